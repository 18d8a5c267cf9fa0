"""From the bytes of a log to the few pieces of it that are worth reading.

Most lines of a log differ from earlier ones in their numbers only.  So each line's shape (small letters, every digit a
0) is looked up first, and only new shapes are searched, all of a block at once, with one expression for all stretches
of text that matter.  CPython's ``re`` has no automaton for many words, but it does skip fast to the first of a few
bytes: so every stretch is entered at a byte that is rare in logs, which leaves one position in four to look at closer.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import field
from itertools import chain, islice
from typing import Protocol

from envkit.records import dataclass

BLOCK = 1 << 20
"""Bytes read at once."""

LONGEST = 4000
"""Bytes of one line that are looked at together; of a longer one each stretch of this size that holds something."""

MOST = 2 << 30
"""Bytes of one input that are read: what never ends (a FIFO, a device, a bomb of gzip) ends here."""

_LONGEST_CARRY = 4 * BLOCK  # a line without an end is handed on in stretches of this size
_INFLATED = 200  # times its own size that the text of a compressed log may have; a flood of one error has some hundred
_INFLATED_FREE = 64 * BLOCK  # and bytes of text before that is asked
_NUL_RUN = 64 * BLOCK  # so many NUL bytes and nothing else: a device or a hole in a file, not a log
_STRETCHES = 100  # of one line
_BEFORE = 1000  # bytes of a long line that are kept before what was found in it
_QUOTES = (b"> ", b"# ", b"// ", b"* ")
_CONTROLS = bytes(set(range(0x20)) - set(b"\t\n\r\b\f\x1b\0")) + b"\x7f"
_BINARY = 0.05  # share of control bytes above which a block is not text; random bytes have 0.1

# Bytes of logs, the most frequent first, counted over public logs of training runs; what is not here is rarer.
_FREQUENT = b' eotrnisac0ldpu1/m.f_g2h3-y4b6:5879v,w=k"x()[]'


class Stream(Protocol):
    """What is asked of an input."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""


@dataclass(slots=True)
class Piece:
    """A line, or the part of one between carriage returns; ``found`` says whether it holds any of the stretches.

    ``gap`` says that lines before it were passed over; ``before`` is the last of them, with its number.  A piece that
    is ``late`` comes after the end, for the last of ``times`` lines that were only counted.
    """

    number: int
    raw: bytes
    found: bool
    gap: bool
    before: tuple[int, bytes] | None = None
    late: bool = False
    times: int = 1


class Words:
    """One expression for many stretches of text, and which of them a text holds."""

    def __init__(self, words: Iterable[bytes]) -> None:
        wanted = sorted(set(words))
        letters = _entry_bytes(wanted)
        tails: dict[bytes, list[bytes]] = {}
        for word in wanted:
            tails.setdefault(word[_entry(word, letters) :], []).append(word)
        self.pattern = re.compile(_trie(tails.items(), 0) if tails else rb"(?!)")
        # one place of a text can hold all tails of one root, so that a find of one may hide the others
        akin: dict[bytes, list[tuple[bytes, int]]] = {}
        root = {tail: _root(tail, tails.keys()) for tail in tails}
        for tail, known in tails.items():
            akin.setdefault(root[tail], []).extend((word, len(word) - len(tail)) for word in known)
        self._behind = {tail: tuple(akin[root[tail]]) for tail in tails}

    def held_by(self, text: bytes) -> list[bytes]:
        """Which of the words ``text``, in small letters, holds."""
        found: list[bytes] = []
        search = self.pattern.search
        match = search(text)
        while match:
            entry = match.start()
            for word, before in self._behind[match.group()]:
                if text.startswith(word, max(0, entry - before)) and word not in found:
                    found.append(word)
            match = search(text, entry + 1)
        return found


def solid(stretch: str) -> bytes:
    """The longest part without quotes, brackets of HTML and backslashes, which JSON and HTML write otherwise."""
    parts = re.split(r"[\"'<>&\\`\x00-\x1f]", stretch.lower())
    best = max(parts, key=len).encode()
    return best if len(best) >= 4 else stretch.lower().encode()


def _cost(byte: int) -> float:
    at = _FREQUENT.find(byte)
    return 0.05 if at < 0 else 12.0 / (at + 1.5)


def _reach(word: bytes) -> bytes:
    """Where a word may be entered: at least two bytes must be left to be compared."""
    return word[: max(1, len(word) - 2)]


def _entry_bytes(words: Iterable[bytes]) -> frozenset[int]:
    """Bytes, rare in sum, of which every word has one in reach (a greedy cover)."""
    open_words = set(words)
    chosen: set[int] = set()
    while open_words:
        count: dict[int, int] = {}
        for word in open_words:
            for byte in set(_reach(word)):
                count[byte] = count.get(byte, 0) + 1
        best = max(sorted(count), key=lambda byte: count[byte] / _cost(byte))
        chosen.add(best)
        open_words = {word for word in open_words if best not in _reach(word)}
    return frozenset(chosen)


def _entry(word: bytes, letters: frozenset[int]) -> int:
    """Where a word is entered: at the rarest byte, of equals at the one that leaves most of it to be compared."""
    return min((at for at, byte in enumerate(_reach(word)) if byte in letters), key=lambda at: (_cost(word[at]), at))


def _root(tail: bytes, tails: Collection[bytes]) -> bytes:
    """The shortest of the tails that this one begins with."""
    return next(tail[:end] for end in range(1, len(tail) + 1) if tail[:end] in tails)


def _trie(tails: Iterable[tuple[bytes, list[bytes]]], depth: int) -> bytes:
    """An expression for words from where they are entered, their beginnings shared; what stands before is looked
    back at once the rest was found."""
    whole: list[bytes] = []
    behind: dict[bytes, list[tuple[bytes, list[bytes]]]] = {}
    for tail, words in tails:
        if len(tail) == depth:
            whole = [b"(?<=" + re.escape(word) + b")" if len(word) > depth else b"" for word in words]
        else:
            behind.setdefault(tail[depth : depth + 1], []).append((tail, words))
    if b"" in whole:
        return b""  # whatever goes on from here was found already
    parts = whole + [re.escape(first) + _trie(rest, depth + 1) for first, rest in behind.items()]
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"


class Damaged(Exception):
    """What was compressed cannot be read further; the message says why."""


@dataclass(slots=True)
class Seen:
    """What passed by while an input was read; ``quoted`` counts lines that begin as a quotation or a comment does."""

    bytes: int = 0
    lines: int = 0
    binary: bool = False
    cut: str = ""
    quoted: int = 0


def plain(stream: Stream, seen: Seen, most: int = MOST) -> Iterator[bytes]:
    """Blocks of the input's text in UTF-8 or something like it, unpacked where it is gzip's."""
    first = stream.read(BLOCK)
    blocks = _rest(first, stream)
    if first[:2] == b"\x1f\x8b":
        blocks = _unpacked(blocks)
        first = next(blocks, b"")
        blocks = chain([first] if first else [], blocks)
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if first.startswith(mark):
            blocks = _recoded(blocks, name)
    for block in blocks:
        seen.bytes += len(block)
        yield block
        if seen.bytes >= most:
            seen.cut = f"only the first {most >> 20} MiB are read"
            return


def _rest(first: bytes, stream: Stream) -> Iterator[bytes]:
    while first:
        yield first
        first = stream.read(BLOCK)


def _unpacked(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """What gzip packed, all members of it; raises Damaged after the last that could be read, and where the text is so
    much more than what it was packed into that it is no log."""
    engine = zlib.decompressobj(wbits=31)
    begun = False  # a member whose end is still to come
    packed = unpacked = 0
    for block in blocks:
        waiting = block
        packed += len(block)
        while waiting:
            begun = True
            before = engine.copy()
            try:
                text = engine.decompress(waiting, BLOCK)
            except zlib.error as error:
                yield from _up_to_the_damage(before, waiting)
                raise Damaged(f"its gzip stream is damaged ({error})") from error
            if text:
                yield text
                unpacked += len(text)
                if unpacked > _INFLATED_FREE + _INFLATED * packed:
                    times = f"its text has more than {_INFLATED} times the size of its gzip stream"
                    raise Damaged(f"{times}, so that only the first {unpacked >> 20} MiB are read")
            waiting = engine.unconsumed_tail
            if engine.eof:
                waiting = engine.unused_data.lstrip(b"\0")
                engine = zlib.decompressobj(wbits=31)
                begun = False
    if begun and not engine.eof:
        raise Damaged("its gzip stream ends early")


def _up_to_the_damage(engine: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    """What comes out before the damage, which one call for all of it does not give."""
    for at in range(0, len(packed), 64):
        try:
            text = engine.decompress(packed[at : at + 64])
        except zlib.error:
            return
        if text:
            yield text


def _recoded(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(name)("replace")
    for block in blocks:
        yield decoder.decode(block).removeprefix("\ufeff").encode("utf-8", "replace")


_CSI = rb"(?:\x1b|\xc2\x9b|\xe2\x90\x9b|\^\[|ESC)"
_MOVED = re.compile(_CSI + rb"\[[0-9;]{0,20}[ABEFGHJKSTf]")
_PAINTED = re.compile(
    rb"(?:\x1b|\xe2\x90\x9b|\^\[|ESC)\[[0-?]{0,60}[ -/]{0,4}[@-~]|\xc2\x9b[0-?]{0,60}[@-~]"
    rb"|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|\x1b[()*+][A-Za-z0-9]|\x1b[@-Z\\^_=>78]|\x1b"
)
# the same with the escape byte lost on the way, as terminals' logs come out of web pages
_ORPHAN = re.compile(rb"\[(?:0|1|[34][0-9]|9[0-7]|[0-9]{1,2}(?:;[0-9]{1,3}){1,5})m")
_ORPHAN_HINT = re.compile(rb"\[[0-9;]{1,12}m")
_BACKSPACES = re.compile(rb"[^\x08\n]\x08")


def cleaned(block: bytes) -> bytes:
    """The block without terminal escapes; a moved cursor begins a new piece, as a carriage return does."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if b"\x1b" in block or b"ESC[" in block or b"^[[" in block or b"\xc2\x9b" in block or b"\xe2\x90\x9b" in block:
        block = _PAINTED.sub(b"", _MOVED.sub(b"\r", block))
    if b"m" in block and _ORPHAN_HINT.search(block):
        block = _ORPHAN.sub(b"", block)
    if b"^M" in block:
        block = block.replace(b"^M", b"\r").replace(b"\r\n", b"\n")
    if b"\x08" in block:
        for _ in range(8):
            block, times = _BACKSPACES.subn(b"", block)
            if not times:
                break
        block = block.replace(b"\x08", b"")
    return block


Progress = Callable[[int], None]
"""Told how many bytes of text were read since it was last told."""


class Scanner:
    """Goes through one input once and hands out the pieces to be read."""

    def __init__(self, words: Words, strong: Words, sure: Callable[[bytes], bool], ends: int) -> None:
        """``words`` lead to shapes that may be worth reading, ``strong`` (some of them) to those that are more than
        loud, ``sure`` looks closer at each; ``ends`` is how many lines of the beginning and of the end are kept."""
        self._ends = ends
        self.seen = Seen()
        self.first: list[Piece] = []
        self._last: list[tuple[int, bytes]] = []  # the last two blocks, each with the number of its first line
        self._walk = _Walk(words, strong, sure)

    def owe(self, lines: int) -> None:
        """Asks, while a piece with a find is looked at, for so many lines after it."""
        self._walk.owed = max(self._walk.owed, lines)

    def pieces(self, stream: Stream, progress: Progress | None = None) -> Iterator[Piece]:
        """The pieces worth reading, in order.  When it ends, ``seen``, ``first`` and ``last()`` are complete.

        Raises OSError as the stream does.
        """
        number = 1
        for block in self._blocks(stream, progress):
            if len(self.first) < self._ends:
                self.first += islice(_filled(number, block), self._ends - len(self.first))
            self._last = [*self._last[-1:], (number, block)]
            self.seen.quoted += sum(block.count(b"\n" + mark) + block.startswith(mark) for mark in _QUOTES)
            if block.strip():
                yield from self._walk.walk(block, number)
            number += block.count(b"\n")
        yield from self._walk.counted()
        complete = not self._last or self._last[-1][1].endswith(b"\n")
        self.seen.lines = number - 1 if complete else number

    def last(self) -> list[Piece]:
        """The last pieces that are not blank."""
        kept: deque[Piece] = deque(maxlen=self._ends)
        for number, block in self._last:
            kept.extend(_filled(number, block))
        return list(kept)

    def _blocks(self, stream: Stream, progress: Progress | None) -> Iterator[bytes]:
        """Clean blocks that end where a line ends, or somewhere in a line that is too long for one block."""
        carry = b""
        holes = 0
        blocks = plain(stream, self.seen)
        told = 0
        while True:
            try:
                block = next(blocks, b"")
            except Damaged as error:
                self.seen.cut, block = str(error), b""
            if not block:
                break
            if progress is not None:
                progress(self.seen.bytes - told)
                told = self.seen.bytes
            name = next((name for magic, name in PACKED if block.startswith(magic)), "")
            if name and not carry and self.seen.bytes == len(block):
                self.seen.binary, self.seen.cut = True, f"it is {name}, not text"
                return
            if 0 in block:
                self.seen.binary = True
                block = block.translate(None, b"\0")
                holes = holes + BLOCK if not block else 0
                if holes > _NUL_RUN:
                    self.seen.cut = f"{holes >> 20} MiB of it are NUL bytes and nothing else"
                    return
            if len(block) - len(block.translate(None, _CONTROLS)) > _BINARY * len(block):
                self.seen.binary = True
                if self.seen.bytes <= 2 * BLOCK:
                    self.seen.cut = "it is binary, not text"
                    return
                block = b"\n" * block.count(b"\n")
            block = carry + block
            end = block.rfind(b"\n") + 1
            if not end and len(block) > _LONGEST_CARRY:
                end = block.rfind(b" ", len(block) - BLOCK) + 1 or len(block)
            carry = block[end:]
            if end:
                yield cleaned(block[:end])
        if carry:
            yield cleaned(carry)


PACKED = (
    (b"\x7fELF", "a program or library"), (b"PK\x03\x04", "a zip archive"), (b"\x28\xb5\x2f\xfd", "packed by zstd"),
    (b"\xfd7zXZ", "packed by xz"), (b"BZh", "packed by bzip2"), (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"), (b"%PDF-", "a PDF document"),
)  # fmt: skip


_FILLED = re.compile(rb"\S[^\r\n]*")


def _filled(number: int, block: bytes) -> Iterator[Piece]:
    """Every piece that is not blank, long ones cut."""
    at = 0
    for match in _FILLED.finditer(block):
        number += block.count(b"\n", at, match.start())
        begin = max(block.rfind(b"\n", at, match.start()) + 1, block.rfind(b"\r", at, match.start()) + 1, at)
        at = match.end()
        yield Piece(number, block[begin : min(at, begin + LONGEST)], False, False)


SHAPE = bytes(range(256)).lower().translate(bytes.maketrans(b"123456789", b"000000000"))
"""A table for ``bytes.translate``: small letters, every digit a 0."""
_SHAPES = 60_000  # shapes remembered of each kind; in 200 MB of training logs there are some hundred
_SHAPE_LENGTH = 600  # longer lines are searched each time
_CONTEXT_TIMES = 200  # lines around a find are read for so many finds of one shape
_EXACT_TIMES = 500  # from then on a line that is an earlier one but for its times is only counted
_SAMPLED_TIMES = 4_000  # from then on one line in _SAMPLE of this shape is read: its numbers change, its words do not
_SAMPLE = 32
_MANY_READ = 20_000  # finds read of one input; from then on floods of fewer lines are sampled
_SOONER = 20  # times fewer lines of one shape are a flood then
_SPARSER = 1_000  # lines read, at most, while their number doubles or trebles: the gaps between them grow with it
_FLOOD = 300  # new shapes with a find in one block, from which on they are compared without hexadecimal numbers
_LOUD_SHAPES = 4_000  # shapes of floods, alike in no way, that are read for their sounding like an error alone
# addresses, hashes, UUIDs; in a shape every digit is a 0
_VARIES = re.compile(rb"[0a-f]*0[0a-f]{3,}(?:-[0a-f]{4,}){0,4}")
_EXACT = 64  # different lines of one shape that are only counted
_TIMES = re.compile(
    rb"\d{2,4}[-/]\d\d[-/]\d{2,4}[T ]\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?"
    rb"|\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?|\[ {0,6}\d{1,9}\.\d{6}\]"
)


@dataclass(slots=True)
class _Shape:
    """What is known of lines that look alike: how many there were, and the first of them without their times."""

    times: int = 0
    exact: dict[bytes, Piece] = field(default_factory=dict)
    sampled: Piece | None = None


class _Walk:
    """The pieces of block after block: those with a find in them, one before, and some after."""

    def __init__(self, words: Words, strong: Words, sure: Callable[[bytes], bool]) -> None:
        self._search = words.pattern.search
        self._strong = strong.pattern.search
        self._sure = sure
        self._flood: dict[bytes, _Shape] = {}  # shapes of this block alone, those that are alike with one count
        self._kinds: dict[bytes, _Shape | None] = {}  # of floods, by what they have in common
        self._unlike = 0
        self._finds = 0
        self._dull: set[bytes] = set()
        self._known: dict[bytes, _Shape] = {}
        self.owed = 0  # lines still to be read after the last find
        self._before: tuple[int, bytes] | None = None  # the last line before, if it was passed over
        self._gap = False

    def walk(self, block: bytes, number: int) -> Iterator[Piece]:
        """The pieces of a block's lines, the first of which is ``number``; the last one is what follows its end."""
        lines = block.split(b"\n")
        shapes = block.translate(SHAPE).split(b"\n")
        self._learn(shapes)
        known, flood = self._known, self._flood
        finds = [index for index, shape in enumerate(shapes) if shape in known or shape in flood]
        at = 0  # the next line that was neither read nor passed over
        last = len(lines) if lines[-1] else len(lines) - 1
        for index in finds:
            shape = known.get(shapes[index]) or flood[shapes[index]]
            shape.times += 1
            while self.owed and at < index:
                yield from self._read(lines[at], number + at, False)
                at += 1
                self.owed -= 1
            sooner = _SOONER if self._finds > _MANY_READ else 1
            if shape.times > _EXACT_TIMES // sooner and _passed(shape, lines[index], number + index, sooner):
                at, self._gap = index + 1, True
                continue
            if at < index:
                self._before = (number + index - 1, lines[index - 1])
                self._gap = True
            owed = self.owed
            self._finds += 1
            yield from self._read(lines[index], number + index, True)
            at = index + 1
            if shape.times > _CONTEXT_TIMES:
                self.owed = owed
        while self.owed and at < last:
            yield from self._read(lines[at], number + at, False)
            at += 1
            self.owed -= 1
        if at < last:
            self._gap = True
            self._before = (number + last - 1, lines[last - 1])

    def _learn(self, shapes: list[bytes]) -> None:
        """Searches the shapes that were not seen yet and sorts them into the two kinds."""
        self._flood = {}
        fresh = set(shapes)
        fresh -= self._dull
        fresh -= self._known.keys()
        if not fresh:
            return
        if len(self._dull) > _SHAPES:
            self._dull.clear()
        if len(self._known) > _SHAPES:
            rare = [shape for shape, known in self._known.items() if known.times <= _EXACT_TIMES]
            for shape in rare:
                del self._known[shape]
        listed = list(fresh)
        text = b"\n".join(listed)
        place, start = 0, 0  # a shape's index and where it begins in the text
        match = self._search(text)
        hot = []
        while match:
            found = match.start()
            while start + len(listed[place]) < found:
                start += len(listed[place]) + 1
                place += 1
            hot.append(listed[place])
            match = self._search(text, start + len(listed[place]))
        if len(hot) > _FLOOD:
            self._flood = self._alike(hot)
            fresh -= self._flood.keys()
        else:
            known = {shape: _Shape() for shape in hot if self._sure(shape)}
            self._known |= known
            fresh -= known.keys()
        self._dull.update(shape for shape in fresh if len(shape) <= _SHAPE_LENGTH)

    def _alike(self, hot: list[bytes]) -> dict[bytes, _Shape]:
        """The shapes of a flood that are worth reading, those that differ in hexadecimal numbers only with one count.

        So is, once there are thousands that are not alike, what begins with the same word that a signature needs; what
        only sounds like an error is passed over then.
        """
        kept: dict[bytes, _Shape] = {}
        kinds = self._kinds
        for shape, key in zip(hot, _VARIES.sub(b"0", b"\n".join(hot)).split(b"\n"), strict=True):
            if key in kinds:
                kind = kinds[key]
            elif self._unlike < _LOUD_SHAPES:
                self._unlike += 1
                kind = kinds[key] = _Shape() if self._sure(shape) else None
            else:
                found = self._strong(shape)
                kind = kinds.setdefault(b"\n" + found.group(), _Shape()) if found else None
            if kind is None:
                continue
            if kind.sampled is not None and kind.times % _gap(kind.times):
                kind.times += 1
                kind.sampled.times += 1
            else:
                kept[shape] = kind
        return kept

    def counted(self) -> Iterator[Piece]:
        """For lines that were only counted, the last of each kind."""
        for shape in (*self._known.values(), *filter(None, self._kinds.values())):
            for piece in (*shape.exact.values(), *((shape.sampled,) if shape.sampled else ())):
                if piece.times:
                    yield piece

    def _read(self, line: bytes, number: int, found: bool) -> Iterator[Piece]:
        """The pieces of one line: between carriage returns, and of a long one those with a find in them."""
        parts = [line]
        if b"\r" in line:
            parts = [part for part in line.split(b"\r") if part.strip()] or [b""]
            if not found:
                parts = parts[-_STRETCHES:]
        for part in parts:
            if len(parts) > 1 and found and self._is_dull(part, number):
                continue
            if len(part) <= LONGEST or not found:
                yield self._made(number, part[:LONGEST], found)
                continue
            low = part.translate(SHAPE)
            match = self._search(low)
            for _ in range(_STRETCHES):
                if match is None:
                    break
                start = match.start() - _BEFORE if match.start() > LONGEST - _BEFORE else 0
                yield self._made(number, part[start : start + LONGEST], True)
                match = self._search(low, max(start + LONGEST, match.start() + 1))

    def _is_dull(self, part: bytes, number: int) -> bool:
        """Whether a part between carriage returns needs no reading: nothing in it, or one of a flood, which counts."""
        shape = part.translate(SHAPE)
        if not self._search(shape):
            return True
        if len(shape) > _SHAPE_LENGTH:
            return False
        known = self._known.setdefault(shape, _Shape())
        known.times += 1
        return known.times > _EXACT_TIMES and _passed(known, part, number)

    def _made(self, number: int, raw: bytes, found: bool) -> Piece:
        made = Piece(number, raw, found, self._gap, self._before if found else None)
        self._gap, self._before = False, None
        return made


def _gap(times: int) -> int:
    """How many lines of a flood there are to each that is read."""
    return max(_SAMPLE, times // _SPARSER)


def _passed(shape: _Shape, line: bytes, number: int, sooner: int = 1) -> bool:
    """Whether a line of a flood needs no reading; it is counted then."""
    many = shape.times > _SAMPLED_TIMES // sooner
    piece = None
    if not many or len(shape.exact) < _EXACT:
        plain = _TIMES.sub(b"", line[:LONGEST])
        piece = shape.exact.get(plain)
        if piece is None and len(shape.exact) < _EXACT:
            shape.exact[plain] = Piece(number, line[:LONGEST], True, True, late=True, times=0)
    if piece is None:
        if not many or shape.times % _gap(shape.times) == 0:
            return False
        if shape.sampled is None:
            shape.sampled = Piece(number, b"", True, True, late=True, times=0)
        piece = shape.sampled
    piece.number, piece.raw, piece.times = number, line[:LONGEST], piece.times + 1
    return True
