"""Packs the payload into one file that any Python runs; the same sources give the same bytes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

_PAYLOAD = Path(__file__).parent.parent / "payload"
_COMPANION = _PAYLOAD / "companion"  # which `envkit debug` binds into a container as a folder
_SUFFIXES = (".py", ".cpp", ".cu", ".ptx", ".triton")  # of its modules, and of what its tests compile
_STAMP = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can hold
# Read by any Python 3, which is told whether the rest is for it.  Left by os._exit: nothing that the image hangs on
# Python's end (atexit, PYTHONINSPECT) runs after the document.
_START = """import os
import sys

from envkit.payload.begin import begin

code = 3
if begin(sys.argv[1:]):
    from envkit.payload.main import main

    code = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


def _members() -> dict[str, bytes]:
    found = {"__main__.py": _START.encode(), "envkit/__init__.py": b'"""The part of envkit that enters an image."""\n'}
    for path in (path for path in _PAYLOAD.rglob("*") if path.suffix in _SUFFIXES and path.parent != _COMPANION):
        found[f"envkit/payload/{path.relative_to(_PAYLOAD).as_posix()}"] = path.read_bytes()
    return dict(sorted(found.items()))


def pack() -> bytes:
    """The payload as a zip that ``python3`` runs, equal bytes for equal sources.

    Members are sorted, carry a fixed time and mode, and are stored, because deflate differs between zlib versions.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in _members().items():
            member = zipfile.ZipInfo(name, _STAMP)
            member.external_attr = 0o644 << 16
            member.create_system = 3  # Unix, whatever machine packs
            archive.writestr(member, data)
    return buffer.getvalue()
