"""What a node is, as text that can be compared: its hardware class and the properties that equal nodes share.

Read from the observations in a report of `envkit preflight`.  The number of GPUs is a property and no part of the
class: a node that has lost one must differ from its own class, not found another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envkit.fleet.documents import short
from envkit.model import is_observation

UNSUPPORTED = "not supported"
NO_GPU = "no GPU"
NO_LINK = "no link"
# Of each process another one by their meaning.
_OF_EACH_PROCESS = frozenset(
    ("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "PET_NODE_RANK", "TORCHELASTIC_ERROR_FILE")
)
_LIBRARIES = ("cudart", "cublas", "cudnn", "nccl", "nvrtc")  # families of `subjects.image.Library`


def hardware(observed: Mapping[str, Any]) -> str | None:
    """The class of a machine: its GPU products and its architecture; None where one of them is not known."""
    host = observed.get("host")
    architecture = _text(host, "architecture")
    if architecture is None:
        return None
    if _text(host, "nvml", "ended") == "answered":
        names = [_text(gpu, "name") for gpu in _items(host, "nvml", "gpus") or ()]
        if None in names:
            return None
        products = sorted({name for name in names if name})
        return f"{' + '.join(products) or NO_GPU}, {architecture}"
    if _items(host, "pci_gpus") == ():  # without a driver the bus still says that there is none
        return f"{NO_GPU}, {architecture}"
    return None


def fingerprint(observed: Mapping[str, Any]) -> dict[str, str | None]:
    """The properties of a node by name; None where one could not be read, absent where nobody looked."""
    made: dict[str, str | None] = {}
    if isinstance(host := observed.get("host"), Mapping):
        made |= dict(_machine(host))
    if isinstance(image := observed.get("image"), Mapping):
        made |= dict(_image(image))
    launch = observed.get("launch")
    if isinstance(launch, Mapping) and (digest := _text(launch, "image", "digest")):
        made["image"] = digest
    return {key: None if value is None else short(value) for key, value in made.items()}


def _machine(host: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    answered = _text(host, "nvml", "ended") == "answered"
    yield "driver", _text(host, "nvml", "driver") if answered else _text(host, "module", "version")
    gpus = _items(host, "nvml", "gpus") if answered else None
    if gpus is not None:
        yield "gpus", str(len(gpus))
        for key in ("memory", "vbios", "gsp", "ecc", "mig", "persistence"):
            yield f"gpu {key}", _of_all(gpus, key)
    for key in ("kernel", "os", "glibc", "architecture"):
        yield key, _text(host, key)
    cards = _items(host, "infiniband")
    yield "network cards", None if cards is None else str(len(cards))
    if cards:
        yield "network firmware", _of_all(cards, "firmware")
        yield "network rate", _rates(cards)
    yield "container toolkit", _text(host, "toolkit", "version")
    yield "container engine", _text(host, "docker", "version")
    limits = _value(host, "limits")
    for name, limit in sorted(limits.items()) if isinstance(limits, Mapping) else ():
        yield f"limit {name}", f"{_number(limit, 'soft')}:{_number(limit, 'hard')}"
    variables = _value(host, "environment")
    for name, value in sorted(variables.items()) if isinstance(variables, Mapping) else ():
        if name not in _OF_EACH_PROCESS:
            yield f"variable {name}", str(value)


def _rates(cards: Sequence[Any]) -> str | None:
    """The Gb/s of all ports that have a link, each once; None where one of them is not known."""
    ports = [port for card in cards for port in _items(card, "ports") or ()]
    states = [_text(port, "state") for port in ports]
    rates = [_number_of(port) for port, state in zip(ports, states, strict=True) if state == "ACTIVE"]
    if None in states or None in rates:
        return None
    return ", ".join(f"{rate:g}" for rate in sorted({rate for rate in rates if rate is not None})) or NO_LINK


def _number_of(port: Any) -> float | None:
    rate = _value(port, "rate")
    return float(rate) if isinstance(rate, (int, float)) else None


def _image(image: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    if digest := _text(image, "digest"):
        yield "image", digest
    if (python := _text(image, "python")) is not None:
        yield "python", python
    torch = _value(image, "torch")
    if isinstance(torch, Mapping):
        for key in ("version", "cuda", "nccl"):
            yield f"torch {key}" if key != "version" else "torch", _text(torch, key)
    for library in _items(image, "libraries") or ():
        name = _text(library, "name") or ""
        version = _text(library, "version") or _text(library, "owner_version")
        if name in _LIBRARIES and version:
            yield name, version


def _value(item: Any, *path: str) -> Any:
    """What lies at ``path``, observations looked through; None where it is missing, UNSUPPORTED where there is none."""
    for key in (*path, None):
        if is_observation(item):
            item = UNSUPPORTED if item.get("reason") == "unsupported" else None if item["missing"] else item["value"]
        if key is None or item is None or item == UNSUPPORTED:
            return item
        item = item.get(key) if isinstance(item, Mapping) else None
    return item


def _text(item: Any, *path: str) -> str | None:
    found = _value(item, *path)
    return None if found is None or isinstance(found, (Mapping, list, tuple)) else str(found)


def _number(item: Any, key: str) -> str:
    return _text(item, key) or "?"


def _items(item: Any, *path: str) -> tuple[Any, ...] | None:
    found = _value(item, *path)
    if found == UNSUPPORTED:
        return ()
    return tuple(found) if isinstance(found, (list, tuple)) else None


def _of_all(items: Sequence[Any], key: str) -> str | None:
    """The values of all items, each once; None where one of them is not known."""
    values = [_text(item, key) for item in items]
    return None if None in values else ", ".join(sorted({value for value in values if value is not None}))
