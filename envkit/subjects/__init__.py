"""What is judged: frozen records of one thing as it was observed, each value with how it was found.

A subject can be written to JSON and read back with nothing lost, so that it can be judged elsewhere.  Each is imported
when it is first asked for: making the records of all of them takes longer than looking at a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envkit.subjects.aoti import AotiRun
    from envkit.subjects.audit import Audit
    from envkit.subjects.host import Host
    from envkit.subjects.image import Image
    from envkit.subjects.launch import Launch
    from envkit.subjects.placement import Placement
    from envkit.subjects.precision import Precision
    from envkit.subjects.smoke import SmokeRun

__all__ = ["KINDS", "AotiRun", "Audit", "Host", "Image", "Launch", "Placement", "Precision", "SmokeRun"]

# the word by which a saved subject says what it is, which names its module, and by which the name of its checks begins
_TYPES = {
    "aoti": "AotiRun", "audit": "Audit", "host": "Host", "image": "Image", "launch": "Launch",
    "placement": "Placement", "precision": "Precision", "smoke": "SmokeRun",
}  # fmt: skip


class _Kinds(Mapping[str, type[Any]]):
    """The type of each kind of subject, imported when it is looked up."""

    def __getitem__(self, kind: str) -> type[Any]:
        found: type[Any] = getattr(import_module(f"{__name__}.{kind}"), _TYPES[kind])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_TYPES)

    def __len__(self) -> int:
        return len(_TYPES)

    def __contains__(self, kind: object) -> bool:
        return kind in _TYPES


KINDS: Mapping[str, type[Any]] = _Kinds()


def __getattr__(name: str) -> Any:
    for kind, type_name in _TYPES.items():
        if name == type_name:
            return KINDS[kind]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
