"""A recorded image as the payload prints it today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from envkit.image.probe import OURS
from envkit.subjects import Image

UNSEEN = {"value": None, "via": "", "missing": "not supported", "reason": "unsupported"}


def as_printed(image: Mapping[str, Any]) -> dict[str, Any]:
    """Its fields without what is known outside alone; those that are younger than the recording are unsupported."""
    names = (field.name for field in fields(Image) if field.name not in OURS)
    return {name: image.get(name, UNSEEN) for name in names}
