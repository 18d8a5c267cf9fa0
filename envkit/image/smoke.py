"""Reads the document that the smoke suite printed inside an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envkit.errors import UsageError
from envkit.model import Observed
from envkit.subjects.codec import from_plain
from envkit.subjects.smoke import SmokeRun

ENDED = frozenset({"ran", "raised", "killed", "hung", "unfit", "garbled"})


def _seen(value: object, via: str, missing: str) -> dict[str, object]:
    return {"value": value, "via": via, "missing": missing if value is None else ""}


def read(document: Mapping[str, Any], name: str, digest: str = "") -> SmokeRun:
    """The run that ``document`` describes, of the image ``name`` with ``digest`` (empty for no image).

    What the document does not hold is not observed; of a document that does not fit, nothing is.  Raises nothing.
    """
    no_torch = str(document.get("torch_error") or "torch was not imported")
    no_driver = str(document.get("gpus_error") or "the driver was not asked")
    plain = {
        "name": name,
        "digest": digest,
        "python": _seen(document.get("python"), "sys.version_info", "the document names no python"),
        "torch": _seen(document.get("torch"), "torch.__version__", no_torch),
        "gpus": _seen(document.get("gpus"), "cuDeviceGetName", no_driver),
        "cuda_before_fork": _seen(document.get("cuda_before_fork"), "torch.cuda.is_initialized", no_torch),
        "tests": _seen(document.get("tests"), "the smoke suite", "the document holds no tests"),
        "sabotage": document.get("sabotage", ""),
        "seconds": document.get("seconds", 0.0),
    }
    try:
        run = from_plain(SmokeRun, plain)
    except UsageError as error:
        return SmokeRun(name, digest, tests=Observed.lost(f"the smoke suite's document does not fit: {error.message}"))
    strange = sorted({test.ended for test in run.tests.value or ()} - ENDED)
    if strange:
        return SmokeRun(name, digest, tests=Observed.lost(f"a smoke test ended in an unknown way: {strange[0]!r}"))
    return run
