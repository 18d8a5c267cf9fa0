"""Reads the document that the payload printed inside an image into the subject that the checks judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from envkit.errors import Undecided, UsageError
from envkit.model import Observed, Reason, is_observation
from envkit.subjects import codec
from envkit.subjects.image import ExpectedContents, Image
from envkit.versions import Sm

SCHEMA = "envkit.payload/1"
# known outside the image, never taken from within
OURS = {"name", "digest", "promise", "gpus_given", "frameworks_asked", "engine", "start", "newer_fields"}
_TAIL = 400


def _garbled(why: str, document: object) -> Undecided:
    tail = str(document)[-_TAIL:]
    said = f"the probe's document is malformed: {why}; it ends with `{tail}`"
    return Undecided(said, "run the probe again; if it stays, something in the image rewrites the payload's output")


def read(
    document: Mapping[str, Any],
    name: str,
    digest: str,
    promise: Observed[ExpectedContents],
    gpus_given: tuple[str, ...] = (),
) -> Image:
    """The image that ``document`` describes, named ``name`` with content ``digest`` and its ``promise``, from a run
    that was given the GPUs ``gpus_given``.

    Raises Undecided, with the document's tail, if a field is missing, unknown, of another type, or both observed and
    missing: a garbled observation is none.
    """
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA or document.get("kind") != "probe":
        raise _garbled(f"expected schema {SCHEMA} and kind probe", document)
    image = document.get("image")
    if not isinstance(image, Mapping):
        raise _garbled("it holds no image", document)
    expected = {field.name for field in fields(Image)} - OURS
    if set(image) != expected:
        odd = sorted(str(key) for key in expected ^ set(image))
        raise _garbled(f"fields missing or unknown: {', '.join(odd)}", document)
    for key, value in image.items():
        if not is_observation(value):
            raise _garbled(f"{key} is not an observation", value)
        if (value["value"] is None) != bool(value["missing"]):
            raise _garbled(f"{key} must have either a value or a reason for its absence", value)
    plain = {**image, "name": name, "digest": digest, "promise": codec.to_plain(promise), "gpus_given": gpus_given}
    try:
        plain["devices"] = {**image["devices"], "value": _devices(image["devices"]["value"])}
        return codec.from_plain(Image, plain)
    except UsageError as error:
        raise _garbled(error.message, document) from error
    except ValueError as error:
        raise _garbled(f"devices: {error}", document) from error


def unlearned(
    name: str, digest: str, promise: Observed[ExpectedContents], gpus_given: tuple[str, ...], why: str
) -> Image:
    """The image of which a probe learned nothing, for the reason ``why``."""
    lost = {field.name: observation(None, "", why) for field in fields(Image) if field.name not in OURS}
    return read({"schema": SCHEMA, "kind": "probe", "image": lost}, name, digest, promise, gpus_given)


def observation(value: object, via: str, missing: str, reason: Reason | None = None) -> dict[str, object]:
    """A value of a document as an observation in plain data; without one it is missing, as ``missing`` says."""
    return {"value": value, "via": via, "missing": missing if value is None else "", "reason": reason}


def ending(document: Mapping[str, Any], stop: object) -> dict[str, object]:
    """How the process ended that wrote ``document``, as plain data; ``stop`` is the error that it ended with."""
    plain = {name: document.get(name, "") for name in ("detail", "signal", "stderr_tail")}
    return {**plain, "ended": document.get("ended"), "stage": str(document.get("stage") or "start"), "stop": stop}


def _devices(value: object) -> object:
    """The capabilities, which the payload spells as text, in the form in which a subject holds them."""
    return [codec.to_plain(Sm.parse(str(sm))) for sm in value] if isinstance(value, list) else value
