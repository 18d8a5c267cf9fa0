"""The files of a run: who shall answer, a node's heartbeat, a node's document; their bytes and what is refused.

A document is two lines of JSON.  The first, the head, names run, nonce, node and times and has the sha256 of the
second, which holds what the node's checks found and its fingerprint.  It is written under another name and renamed, so
that it is there whole or not at all; a damaged one does not fit its hash.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import field, replace
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from envkit.fleet.hostlist import MOST_NODES, NAME
from envkit.records import dataclass

T = TypeVar("T")

MOST_BYTES = 4 << 20  # of a document; that of a machine with eight GPUs has 20 kB
MOST_RUN_BYTES = 32 << 20  # of run.json, which names all nodes
_LONGEST = 64  # characters of a value of a fingerprint; a longer one keeps its beginning and its hash

Name = Annotated[str, Meta(max_length=253, pattern=f"^(?:{NAME.pattern})$")]
Hex = Annotated[str, Meta(pattern="^[0-9a-f]{16,64}$")]
Text = Annotated[str, Meta(max_length=4000)]
Word = Annotated[str, Meta(max_length=200, pattern="^[A-Za-z0-9][A-Za-z0-9 ._:/+-]*$")]
Key = Annotated[str, Meta(max_length=200)]
Time = Annotated[float, Meta(ge=0.0, le=4e10)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]
Launch = Annotated[str, Meta(max_length=200, pattern="^[A-Za-z0-9._@:+-]*$")]


class Ended(StrEnum):
    """How a node's examination ended."""

    FINISHED = "finished"
    HUNG = "hung"  # it was ended at its budget
    DIED = "died"  # its process ended without an answer


@dataclass(frozen=True, slots=True)
class Run:
    """One launch: the nodes that shall answer and the nonce that each answer repeats.

    ``created`` is the time of the process that made it (seconds since 1970), ``budget_s`` what each node has.
    ``links`` says how the links between nodes are tested afterwards, "" for not at all; a trial has ``trial_s``, and
    reaches at least ``floor`` GB/s.
    """

    schema: Literal["envkit.run/1"]
    run: Launch
    nonce: Hex
    hosts: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MOST_NODES)]
    budget_s: Seconds
    created: Time
    level: Word
    launcher: Word = "hosts"
    spares: Annotated[int, Meta(ge=0, le=MOST_NODES)] = 0
    links: Literal["", "pairs", "groups"] = ""
    trial_s: Seconds = 0.0
    floor: Annotated[float, Meta(ge=0.0, le=1e9)] = 0.0


@dataclass(frozen=True, slots=True)
class Beat:
    """What a node says at its start and whenever it begins a level; ``level`` is "start" before the first, and
    "writing" once only its document was left to write.  ``attempt`` names the process."""

    schema: Literal["envkit.beat/1"]
    run: Launch
    nonce: Hex
    node: Name
    attempt: Hex
    started: Time
    at: Time
    level: Word


@dataclass(frozen=True, slots=True)
class Found:
    """A check that did not pass: its outcome, and of each finding its severity, sentence and fix."""

    check: Word
    outcome: Literal["fail", "unknown", "crashed"]
    reason: Text = ""
    findings: tuple[tuple[Literal["note", "warning", "error"], Text, Text], ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """What a node's checks found, and what it is.

    ``hardware`` is its class, None where it could not be read.  ``fingerprint`` has a value for each property, None
    where it could not be read.  ``shortened`` says that a carrier had no room for all that was found.  ``labels`` are
    the network's domains that the node is in, the widest first, as the scheduler names them.
    """

    found: tuple[Found, ...] = ()
    passed: tuple[Key, ...] = ()
    skipped: Annotated[int, Meta(ge=0)] = 0
    hardware: Text | None = None
    fingerprint: dict[Key, Annotated[str, Meta(max_length=200)] | None] = field(default_factory=dict)
    shortened: bool = False
    labels: Annotated[tuple[Name, ...], Meta(max_length=8)] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """Whose document it is and how the node's examination ended.

    ``host`` is the machine's own name for itself.  ``began`` is the level at which it ended, ``detail`` why it ended
    there.  ``clock_ahead_s`` is by how much the node's clock was ahead of the shared folder's, None without one.
    ``trouble`` is why the document could not be left in the folder.  ``sha256`` is that of the second line.
    """

    schema: Literal["envkit.node/1"]
    run: Launch
    nonce: Hex
    node: Name
    attempt: Hex
    ended_as: Ended
    started: Time
    ended: Time
    level: Word
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    host: Annotated[str, Meta(max_length=253)] = ""
    detail: Text = ""
    clock_ahead_s: float | None = None
    trouble: Text = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A node's answer."""

    head: Head
    body: Body


class Refused(Exception):
    """A file that is no document of this run; the text is the reason, ``damaged`` where it is one and not whole."""

    def __init__(self, why: str, damaged: bool = False) -> None:
        super().__init__(why)
        self.why, self.damaged = why, damaged


def encoded(document: Document) -> bytes:
    """The two lines, with the hash of the second in the first."""
    body = msgspec.json.encode(document.body)
    head = replace(document.head, sha256=hashlib.sha256(body).hexdigest())
    return msgspec.json.encode(head) + b"\n" + body + b"\n"


_HEAD = msgspec.json.Decoder(Head)
_BODY = msgspec.json.Decoder(Body)


def decoded(data: bytes) -> Document:
    """The document in these bytes; raises Refused where they are none, are cut off or were changed."""
    first, newline, rest = data.partition(b"\n")
    head = _read(_HEAD, first, "head")
    if not newline or not rest.endswith(b"\n"):
        raise Refused("it is cut off", damaged=True)
    if hashlib.sha256(rest[:-1]).hexdigest() != head.sha256:
        raise Refused("it does not fit its own hash, so it was cut off or changed", damaged=True)
    if head.ended < head.started:
        raise Refused("it ended before it began by its own clock", damaged=True)
    return Document(head, _read(_BODY, rest[:-1], "body"))


def _read(decoder: msgspec.json.Decoder[T], data: bytes, what: str) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"its {what} cannot be read: {str(error)[:200]}", damaged=True) from error


def read_as(kind: type[T], data: bytes) -> T:
    """A run or a beat in these bytes; raises Refused where they hold none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"it cannot be read: {str(error)[:200]}", damaged=True) from error


def belongs(run: str, nonce: str, given_run: str, given_nonce: str) -> None:
    """Raises Refused for what belongs to another run, or has this one's name and another nonce."""
    if given_run != run:
        raise Refused(f"it belongs to the run `{given_run}`")
    if given_nonce != nonce:
        raise Refused("it has the nonce of another run")


def short(value: str) -> str:
    """A value of a fingerprint; of a long one its beginning and its hash, which differs where the value does."""
    if len(value) <= _LONGEST:
        return value
    return f"{value[: _LONGEST - 14]}#{hashlib.sha256(value.encode('utf-8', 'backslashreplace')).hexdigest()[:12]}"


def word(text: str) -> str:
    """``text`` as the name of a launch: what no such name has becomes a dash."""
    return re.sub("[^A-Za-z0-9._@:+-]", "-", text)[:200]
