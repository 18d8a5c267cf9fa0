"""Reads the document of a model that was followed inside an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envkit.errors import UsageError
from envkit.image.probe import SCHEMA, ending, observation
from envkit.model import Observed
from envkit.subjects.codec import from_plain
from envkit.subjects.placement import Placement

_WAYS = ("run", "fake", "trace")
_VIA = {
    "run": "a run on the devices themselves",
    "fake": "torch's fake tensors",
    "trace": "torch's dispatcher, with tensors on the CPU",
}
_STATE = ("groups", "astray", "ranks", "lines", "forks")
_PLAIN = ("refusal", "declared_map", "operations", "unjudged", "backward")


def read(document: Mapping[str, Any], asked: Placement) -> Placement:
    """The model that ``document`` describes; what is known outside is taken from ``asked`` alone.

    What the document does not hold is not observed; of one that does not fit, or that answers for another target than
    ``asked``, nothing is.  Raises nothing.
    """
    if document.get("schema") != SCHEMA or document.get("kind") != "placement":
        return replace(asked, end=Observed.lost(f"the document is none of schema {SCHEMA}, kind placement"))
    if document.get("target") != asked.target:
        return replace(asked, end=Observed.lost(f"the document answers for {document.get('target')!r}"))
    followed = document.get("followed")
    told: Mapping[str, Any] = followed if isinstance(followed, dict) else {}
    lost = str(document.get("torch_error") or "torch was not imported")
    stage = str(document.get("stage") or "start")
    via = _VIA.get(str(document.get("how")), "")
    end = ending(document, told.get("error"))
    plain = {
        "name": asked.name,
        "target": asked.target,
        "how": document.get("how", ""),
        "python": observation(document.get("python"), "sys.version_info", "the document names no python"),
        "torch": observation(document.get("torch"), "torch.__version__", lost),
        "gpus": observation(document.get("gpus"), "torch.cuda.get_device_name", lost),
        "end": observation(end if document.get("torch") else None, "its process", lost),
        **{name: observation(told.get(name), via, f"it ended in the stage {stage}") for name in _STATE},
        **{name: told[name] for name in _PLAIN if name in told},
        "tried": document.get("tried", ()),
        "seconds": document.get("seconds", 0.0),
    }
    try:
        found = from_plain(Placement, plain)
    except UsageError as error:
        return replace(asked, end=Observed.lost(f"the document does not fit: {error.message}"))
    if found.torch.value and found.how not in _WAYS:
        return replace(asked, end=Observed.lost(f"the model was followed in an unknown way: {found.how!r}"))
    return replace(
        found, digest=asked.digest, gpus_given=asked.gpus_given, ranks_asked=asked.ranks_asked, engine=asked.engine
    )
