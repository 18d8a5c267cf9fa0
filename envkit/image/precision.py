"""Reads the document of a model whose steps were compared in two precisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envkit.errors import UsageError
from envkit.image.probe import SCHEMA, ending, observation
from envkit.model import Observed
from envkit.subjects.codec import from_plain
from envkit.subjects.precision import Precision

_DISPATCHER = "torch's dispatcher, each operation beside its wide twin"
_SEEN = {
    "torch": "torch.__version__", "gpus": "torch.cuda.get_device_name",
    "device": "the device of parameters and inputs", "wide": "the dtype of the twins", "limits": "torch.finfo",
    "rounding": "torch.backends", "single": _DISPATCHER, "wanted": _DISPATCHER,
}  # fmt: skip


def read(document: Mapping[str, Any], asked: Precision) -> Precision:
    """The steps that ``document`` describes; what is known outside is taken from ``asked`` alone.

    What the document does not hold is not observed; of one that does not fit, or that answers for something else than
    ``asked``, nothing is.  Raises nothing.
    """
    if document.get("schema") != SCHEMA or document.get("kind") != "precision":
        return replace(asked, end=Observed.lost(f"the document is none of schema {SCHEMA}, kind precision"))
    said = tuple(document.get(name) for name in ("target", "dtype", "autocast"))
    if said != (asked.target, asked.dtype, asked.autocast):
        return replace(asked, end=Observed.lost(f"the document answers for {said!r}"))
    lost = str(document.get("torch_error") or f"it ended in the stage {document.get('stage') or 'start'}")
    end = ending(document, document.get("error"))
    plain = {
        "name": asked.name,
        "target": asked.target,
        "dtype": asked.dtype,
        "autocast": asked.autocast,
        "python": observation(document.get("python"), "sys.version_info", lost),
        **{name: observation(document.get(name), via, lost) for name, via in _SEEN.items()},
        "unsteady": observation(document.get("noisy"), "two steps with the same seeds", lost),
        "end": observation(end if document.get("torch") else None, "its process", lost),
        "seconds": document.get("seconds", 0.0),
    }
    try:
        found = from_plain(Precision, plain)
    except UsageError as error:
        return replace(asked, end=Observed.lost(f"the document does not fit: {error.message}"))
    return replace(found, digest=asked.digest, gpus_given=asked.gpus_given, engine=asked.engine)
