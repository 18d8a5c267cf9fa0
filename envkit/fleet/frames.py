"""A node's document as lines of stdout, among those of other nodes and programs, where no folder is shared.

Each line is `@envkit NONCE NODE ATTEMPT PART/PARTS TEXT`, whatever a launcher or a log puts before it: srun writes
long lines of several tasks into one another, and `kubectl logs --prefix` and `mpirun --tag-output` begin each line
with words of their own.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Iterator

from envkit.fleet.documents import MOST_BYTES, Document, Refused, decoded, encoded
from envkit.fleet.hostlist import MOST_NODES
from envkit.records import dataclass

_PART = 400  # characters; with its head a line stays below what srun, docker and PIPE_BUF hold together
MARK = "@envkit"
_LINE = re.compile(
    rb"@envkit ([0-9a-f]{16,64}) ([A-Za-z0-9._-]{1,253}) ([0-9a-f]{16,64}) ([0-9]{1,5})/([0-9]{1,5}) ([A-Za-z0-9+/=]+)"
)


@dataclass(frozen=True, slots=True)
class Framed:
    """What the lines of one process of a node came to: its document, or why there is none."""

    node: str
    nonce: str
    document: Document | None
    refused: Refused | None = None


def lines(document: Document) -> Iterator[str]:
    """The document as lines without their ends."""
    text = base64.b64encode(zlib.compress(encoded(document), 9)).decode()
    parts = [text[at : at + _PART] for at in range(0, len(text), _PART)]
    head = document.head
    for number, part in enumerate(parts, 1):
        yield f"{MARK} {head.nonce} {head.node} {head.attempt} {number}/{len(parts)} {part}"


def documents(given: Iterable[bytes]) -> Iterator[Framed]:
    """What the framed lines among ``given`` hold, node by node."""
    parts: dict[tuple[str, str, str], dict[int, tuple[int, bytes]]] = {}
    for line in given:
        found = _LINE.search(line)
        if not found or len(parts) > 2 * MOST_NODES:
            continue
        key = (found[1].decode(), found[2].decode(), found[3].decode())
        parts.setdefault(key, {})[int(found[4])] = (int(found[5]), found[6])
    for (nonce, node, _), pieces in parts.items():
        try:
            yield Framed(node, nonce, _joined(node, pieces))
        except Refused as why:
            yield Framed(node, nonce, None, why)


def _joined(node: str, pieces: dict[int, tuple[int, bytes]]) -> Document:
    whole = {many for many, _ in pieces.values()}
    if len(whole) != 1 or set(pieces) != set(range(1, max(whole) + 1)):
        raise Refused(f"only {len(pieces)} of {max(whole)} lines of it are there", damaged=True)
    try:
        packed = base64.b64decode(b"".join(pieces[number][1] for number in sorted(pieces)), validate=True)
        unpack = zlib.decompressobj()
        data = unpack.decompress(packed, MOST_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise Refused(f"its lines cannot be unpacked: {error}", damaged=True) from error
    if unpack.unconsumed_tail or not unpack.eof:
        raise Refused(f"it is cut off or has more than {MOST_BYTES >> 20} MiB", damaged=True)
    document = decoded(data)
    if document.head.node != node:
        raise Refused(f"it is of the node `{document.head.node}`")
    return document
