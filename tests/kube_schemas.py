"""Objects of Kubernetes held to its own schemas, and a JobSet to that of its definition and of the Job in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate

_MAJOR, _NEWEST = map(int, kubernetes_validate.latest_version().split(".")[:2])
RELEASES = tuple(f"{_MAJOR}.{_NEWEST - back}" for back in range(3))
_JOBSET = json.loads((Path(__file__).parent / "data" / "jobset-v1alpha2.schema.json").read_text())
ERRORS = (kubernetes_validate.ValidationError, jsonschema.ValidationError)


def validate(each: Mapping[str, Any], release: str) -> None:
    """Raises one of ERRORS for an object that a server of this release does not take, or with a field that it drops."""
    if each.get("kind") != "JobSet":
        kubernetes_validate.validate(each, release, strict=True)
        return
    jsonschema.validate(each, _JOBSET)
    for one in each["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": each["metadata"], **one["template"]}
        kubernetes_validate.validate(job, release, strict=True)
