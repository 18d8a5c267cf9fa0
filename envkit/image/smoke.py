"""Reads the document that the smoke suite printed inside an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envkit.errors import UsageError
from envkit.image.probe import SCHEMA, observation
from envkit.model import Observed, Reason
from envkit.subjects.codec import from_plain
from envkit.subjects.smoke import SmokeRun

# How the payload says that the process which imports torch ended without an error of Python's -> in a sentence.
_DIED = {"killed": "was killed by ", "hung": "did not end: ", "garbled": "ended the process: "}


def read(document: Mapping[str, Any], asked: SmokeRun) -> SmokeRun:
    """The run that ``document`` describes; what is known outside the image is taken from ``asked`` alone.

    What the document does not hold is not observed; of a document that does not fit, or that answers another why than
    ``asked``, nothing is.  Raises UsageError where the suite refused a file of --test-file.
    """
    if document.get("schema") != SCHEMA or document.get("kind") != "smoke":
        return replace(asked, tests=Observed.lost(f"the smoke suite's document is none of schema {SCHEMA}, kind smoke"))
    if document.get("refused"):
        raise UsageError(f"the smoke suite refused: {document['refused']}", "fix the file that --test-file names")
    no_torch = str(document.get("torch_error") or "torch was not imported")
    # the payload says first how the process ended
    ended, _, detail = str(document.get("torch_error") or "").partition(" ")
    reason = {"": Reason.NOT_IMPORTED, "not-applicable": Reason.NO_TORCH}.get(ended)
    died = ""
    if document.get("torch") is None and ended in _DIED:
        # every test died of it: one thing that is not known about the image, not a fault of each kernel
        died = f"import torch {_DIED[ended]}{detail}"
    tests = None if died else document.get("tests")
    no_driver = str(document.get("gpus_error") or "the driver was not asked")
    forked = document.get("cuda_before_fork")
    plain = {
        "name": asked.name,
        "python": observation(document.get("python"), "sys.version_info", "the document names no python"),
        "torch": observation(document.get("torch"), "torch.__version__", no_torch, reason),
        "gpus": observation(document.get("gpus"), "cuDeviceGetName", no_driver),
        "cuda_before_fork": observation(forked, "torch.cuda.is_initialized", no_torch, reason),
        "tests": observation(tests, "the smoke suite", died or "the document holds no tests"),
        "injected_fault": document.get("injected_fault", ""),
        "seconds": document.get("seconds", 0.0),
        "import_s": observation(document.get("import_s"), "time.monotonic", no_torch, reason),
        "parent_kb": observation(document.get("parent_kb"), "VmHWM in /proc/self/status", no_torch, reason),
    }
    try:
        run = from_plain(SmokeRun, plain)
    except UsageError as error:
        return replace(asked, tests=Observed.lost(f"the smoke suite's document does not fit: {error.message}"))
    if run.injected_fault != asked.injected_fault:
        why = f"the fault {asked.injected_fault!r} was to be injected and the document says {run.injected_fault!r}"
        return replace(asked, tests=Observed.lost(why))
    return replace(asked, **{name: getattr(run, name) for name in plain})
