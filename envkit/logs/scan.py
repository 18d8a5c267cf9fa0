"""From the bytes of a log to the few pieces of it that are worth reading.

Most lines of a log differ from earlier ones in their numbers only.  So each line's shape (small letters, every digit a
0) is looked up first, and only new shapes are searched, all of a block at once, for all the words that matter
(``words``).  Lines of an error that comes again and again are read for a while and then counted.
"""

from __future__ import annotations

import codecs
import re
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Sequence, Set
from dataclasses import field
from itertools import chain, compress, count, filterfalse, islice
from operator import itemgetter
from typing import Protocol

from envkit.logs.words import Rows, Words
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


class Stream(Protocol):
    """What is asked of an input."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""


@dataclass(slots=True)
class Piece:
    """A line, or the part of one between carriage returns; ``found`` says whether it holds any of the stretches.

    ``gap`` says that lines before it were passed over; ``before`` is the last of them, with its number.  A piece that
    is ``late`` comes after the end, for the last of ``times`` lines that were only counted.  ``lead`` is how the line
    begins that it is a later part of, for a collector's words stand there once for all parts.
    """

    number: int
    raw: bytes
    found: bool
    gap: bool
    before: tuple[int, bytes] | None = None
    late: bool = False
    times: int = 1
    lead: bytes = b""


def solid(stretch: str) -> bytes:
    """The longest part without quotes, brackets of HTML and backslashes, which JSON and HTML write otherwise."""
    parts = re.split(r"[\"'<>&\\`\x00-\x1f]", stretch.lower())
    best = max(parts, key=len).encode()
    return best if len(best) >= 4 else stretch.lower().encode()


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


_MOVES = rb"\[[0-9;]{0,20}[ABEFGHJKSTf]"
_PAINTS = rb"\[[0-?]{0,60}[ -/]{0,4}[@-~]"
_MOVED = re.compile(rb"\x1b" + _MOVES)
_PAINTED = re.compile(
    rb"\x1b(?:" + _PAINTS + rb"|\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[()*+][A-Za-z0-9]|[@-Z\\^_=>78])?"
)
# the escape byte in one byte with its bracket, as a picture of itself, or spelled out
_MOVED_SPELLED = re.compile(rb"(?:\xc2\x9b|\xe2\x90\x9b|\^\[|ESC)" + _MOVES)
_PAINTED_SPELLED = re.compile(rb"(?:\xe2\x90\x9b|\^\[|ESC)" + _PAINTS + rb"|\xc2\x9b[0-?]{0,60}[@-~]")
_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,20}m")
_COLOURS = 20  # different ones that are taken out one by one, which is faster than all by their form
_ASKED_FOR_COLOURS = 1 << 16  # bytes of a block in which they are looked for
# the same with the escape byte lost on the way, as terminals' logs come out of web pages
_ORPHAN = re.compile(rb"\[(?:0|1|[34][0-9]|9[0-7]|[0-9]{1,2}(?:;[0-9]{1,3}){1,5})m")
_ORPHAN_HINT = re.compile(rb"\[[0-9;]{1,12}m")
_BACKSPACES = re.compile(rb"[^\x08\n]\x08")


def _without_colours(block: bytes) -> bytes:
    """The block without the colours that its beginning often holds; the same for moves of the cursor."""
    for form, instead in ((_COLOUR, b""), (_MOVED, b"\r")):
        held = Counter(form.findall(block, 0, _ASKED_FOR_COLOURS))
        for escape, times in held.most_common(_COLOURS):
            if times > held.total() // _COLOURS:
                block = block.replace(escape, instead)
    return block


def cleaned(block: bytes) -> bytes:
    """The block without terminal escapes; a moved cursor begins a new piece, as a carriage return does."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if b"\x1b" in block:
        if not any(cut in block for cut in (b"\x1b\x1b", b"\x1b[\x1b", b"\x1b]")):
            block = _without_colours(block)
        if b"\x1b" in block:
            block = _PAINTED.sub(b"", _MOVED.sub(b"\r", block))
    bracket = b"[" in block  # one byte is found much faster than two
    if (
        (bracket and b"ESC[" in block)
        or (b"^" in block and b"^[[" in block)
        or (b"\x9b" in block and (b"\xc2\x9b" in block or b"\xe2\x90\x9b" in block))
    ):
        block = _PAINTED_SPELLED.sub(b"", _MOVED_SPELLED.sub(b"\r", block))
    if bracket and _ORPHAN_HINT.search(block):
        block = _ORPHAN.sub(b"", block)
    if b"^" in block and b"^M" in block:
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

    def __init__(self, words: Words, strong: Callable[[], Words], sure: Callable[[bytes], bool], ends: int) -> None:
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
            lines = block.count(b"\n")
            numbers: Sequence[int] = range(number, number + lines + 1)
            if lines > _DENSE and 2 * len(block.translate(None, _WHITE)) < len(block):
                block, numbers = _without_blanks(block, numbers)
            for mark in _QUOTES:
                if mark[:1] in block:
                    self.seen.quoted += block.count(b"\n" + mark) + block.startswith(mark)
            if block.strip():
                yield from self._walk.walk(block, numbers)
            number += lines
        yield from self._walk.counted()
        complete = not self._last or self._last[-1][1].endswith(b"\n")
        self.seen.lines = number - 1 if complete else number

    def last(self) -> list[Piece]:
        """The last pieces that are not blank."""
        kept: list[Piece] = []
        for number, block in reversed(self._last):
            size = _ENDS_IN
            while len(kept) < self._ends:
                begin = block.rfind(b"\n", 0, max(len(block) - size, 0)) + 1
                found = list(_filled(number + block.count(b"\n", 0, begin), block[begin:]))
                if not begin or len(found) + len(kept) >= self._ends:
                    kept = [*found, *kept][-self._ends :]
                    break
                size *= 8
        return kept

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


_LEAD = 200  # bytes of a line's beginning in which a collector's words end
_ENDS_IN = 1 << 14  # bytes that most often hold the last pieces


def _filled(number: int, block: bytes) -> Iterator[Piece]:
    """Every piece that is not blank, long ones cut."""
    for at, line in enumerate(block.split(b"\n"), number):
        lead = line.partition(b"\r")[0][:_LEAD] if b"\r" in line else b""
        for piece in line.split(b"\r") if b"\r" in line else (line,):
            if piece and not piece.isspace():
                yield Piece(at, piece[:LONGEST], False, False, lead=b"" if piece.startswith(lead) else lead)


_WHITE = b" \t\n\r\f\v"
_BLANKS = re.compile(rb"(?<!\s)\s{200,}")
_SPACES = bytes(0x20 if byte in _WHITE else byte for byte in range(256))
_BLANKS_KEPT = 20  # lines of a stretch of blank ones that stay: as many as are read after a find, and some
_HEADS = (32, 160, 1000)  # bytes that so many may have


def _without_blanks(block: bytes, numbers: Sequence[int]) -> tuple[bytes, Sequence[int]]:
    """The block and the numbers of its lines without what blank lines there are in a row, but for the first of them and
    the last."""
    if b" " * 200 not in block.translate(_SPACES):  # much faster than to look at each blank, as in tables
        return block, numbers
    kept: list[bytes] = []
    left: list[Sequence[int]] = []
    at = line = 0
    for found in _BLANKS.finditer(block):
        begin, end = found.span()
        heads = (block.rfind(b"\n", begin, begin + size) + 1 for size in _HEADS)
        head = next((head for head in heads if head and block.count(b"\n", begin, head) > _BLANKS_KEPT), 0)
        tail = block.rfind(b"\n", head, max(block.rfind(b"\n", head, end), head)) + 1
        if not head or tail <= head:
            continue
        kept.append(block[at:head])
        upto = line + block.count(b"\n", at, head)
        left.append(numbers[line:upto])
        at, line = tail, upto + block.count(b"\n", head, tail)
    if not kept:
        return block, numbers
    kept.append(block[at:])
    left.append(numbers[line:])
    return b"".join(kept), list(chain.from_iterable(left))


SHAPE = bytes(range(256)).lower().translate(bytes.maketrans(b"123456789", b"000000000"))
"""A table for ``bytes.translate``: small letters, every digit a 0."""
_SHAPES = 60_000  # shapes remembered of each kind; in 200 MB of training logs there are some hundred
_SHAPE_LENGTH = 600  # longer lines are searched each time
_KNOWN_LENGTH = 1 << 16  # bytes of a shape with a find that is remembered; longer ones hardly come twice
_CONTEXT_TIMES = 200  # lines around a find are read for so many finds of one kind
_EXACT_TIMES = 500  # from then on a line that is an earlier one but for its times is only counted
_SAMPLED_TIMES = 4_000  # from then on one line in _SAMPLE of this kind is read: its numbers change, its words do not
_SAMPLE = 32
_MANY_READ = 7_000  # lines read of one input, long ones by their bytes; from then on floods of fewer lines are sampled
_SOONER = 20  # times fewer lines of one kind are a flood then, and once more after so many more lines
_MORE_READ = 2_000
_UNLIKE_READ = 4_000  # lines fewer where floods are alike in no way: hardly any of them tells more
_SPARSER = 1_000  # lines read, at most, while their number doubles or trebles: the gaps between them grow with it
_FLOOD = 300  # new shapes with a find in one block, from which on they are compared without their numbers
_COMBINED = 1_000  # kinds of lines that hold words of signatures, from which on one of the words alone is the kind
_LOUD_SHAPES = 1_500  # shapes of floods, alike in no way, that are read for their sounding like an error alone
_NUMBERS = b"0abcdef"  # of shapes: digits in decimals, addresses, hashes, UUIDs; what is left of a line is its kind
_EXACT = 64  # different lines of one kind that are only counted
_DENSE = 20_000  # lines of one block, from which on those of a flood are counted all at once
_TIMES = re.compile(
    rb"\d{2,4}[-/]\d\d[-/]\d{2,4}[T ]\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?"
    rb"|\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?|\[ {0,6}\d{1,9}\.\d{6}\]"
)
# numbers that make a line of a flood another one: an Xid among a thousand of a milder kind
_CODES = re.compile(rb"\bS?Xid \([^)\n]{1,40}\): {0,2}(\d{1,6})")


@dataclass(slots=True)
class _Kind:
    """What is known of lines that are alike but for their numbers: how many there were, the first of them without
    their times, and the codes that tell them apart."""

    times: int = 0
    exact: dict[bytes, Piece] = field(default_factory=dict)
    sampled: Piece | None = None
    codes: set[bytes] = field(default_factory=set)

    @property
    def full(self) -> bool:
        """Whether any further line may be counted without a look at it."""
        return self.times > _SAMPLED_TIMES and len(self.exact) >= _EXACT and not self.codes


_SELDOM = 20  # one line in so many that came before is none worth remembering them for
_FEW_ALIKE = 0.1  # a share of the new shapes below which kinds are looked for in one block of _ASKED_AGAIN
_ASKED_AGAIN = 16
_NEW = _Kind()


class _Walk:
    """The pieces of block after block: those with a find in them, one before, and some after."""

    def __init__(self, words: Words, strong: Callable[[], Words], sure: Callable[[bytes], bool]) -> None:
        self._words = words
        self._strong = strong
        self._sure = sure
        self._flood: dict[bytes, _Kind] = {}  # shapes of this block alone, those that are alike with one count
        self._due: set[bytes] = set()  # those of them whose turn it is to be read
        self._kinds: dict[bytes, _Kind | None] = {}  # of floods, by what their shapes have but for numbers
        self._folded: dict[tuple[bytes, ...], _Kind] = {}  # of a swamped log, by the words of signatures
        self._rows: Rows | None = None  # their numbers
        self._alike_share = 1.0  # of the new shapes of the last block: those of a kind that is settled
        self._codes: set[bytes] = set()
        self._new_codes = False  # in this block
        self._blocks = 0
        self._remembers = 0  # the block from which on dull shapes are remembered
        self._unlike = 0
        self._swamped_from: bytes | None = None  # the shape from which on there are too many that are not alike
        self._pieces = 0
        self._dull: set[bytes] = set()
        self._known: dict[bytes, _Kind] = {}
        self.owed = 0  # lines still to be read after the last find
        self._before: tuple[int, bytes] | None = None  # the last line before, if it was passed over
        self._lead = b""
        self._gap = False

    def walk(self, block: bytes, numbers: Sequence[int]) -> Iterator[Piece]:
        """The pieces of a block's lines, each with its number; the last one is what follows its end."""
        if self._swamped_from is not None:
            yield from self._swamped(block, numbers)
            return
        shapes = block.translate(SHAPE).split(b"\n")
        codes = set(_CODES.findall(block)) if b"Xid (" in block else self._codes
        self._new_codes = not codes <= self._codes
        self._codes |= codes
        # a set would have another order in each run, and so other lines of a flood be read
        unique = dict.fromkeys(shapes)
        self._learn(unique, len(shapes))
        if self._swamped_from is None:
            yield from self._told(block, shapes, unique.keys(), numbers)
            return
        first = shapes.index(self._swamped_from)
        begin = sum(map(len, shapes[:first])) + first
        yield from self._told(block[:begin], [*shapes[:first], b""], set(shapes[:first]), numbers)
        yield from self._swamped(block[begin:], numbers[first:])

    def _told(self, block: bytes, shapes: list[bytes], unique: Set[bytes], numbers: Sequence[int]) -> Iterator[Piece]:
        """The pieces of a block by what is known of its shapes."""
        hot = {shape: self._known[shape] for shape in unique & self._known.keys()}
        hot |= self._flood
        if not hot and not self.owed:
            self._pass_all(block, numbers)
            return
        lines = block.split(b"\n")
        at = 0  # the next line that was neither read nor passed over
        for index, times in self._finds(lines, shapes, hot):
            shape = hot[shapes[index]]
            due = shapes[index] in self._due
            shape.times += 0 if due else times
            if self.owed:
                at = yield from self._read_owed(lines, numbers, at, index)
            sooner = self._sooner()
            often = shape.times > _EXACT_TIMES // sooner and not due
            if often and _passed(shape, lines[index], numbers[index], sooner, times):
                at, self._gap = index + 1, True
                continue
            yield from self._read_find(lines, numbers, at, index, shape.times > _CONTEXT_TIMES // sooner)
            at = index + 1
        yield from self._read_rest(lines, numbers, at)

    def _read_owed(
        self, lines: Sequence[bytes], numbers: Sequence[int], at: int, upto: int
    ) -> Generator[Piece, None, int]:
        """The lines after a find that were asked for, from ``at``; returns the first one that was not read."""
        end = min(at + self.owed, upto)
        for index in range(at, end):
            yield from self._read(lines[index], numbers[index], False)
        self.owed -= max(end - at, 0)
        return max(end, at)

    def _read_find(
        self, lines: Sequence[bytes], numbers: Sequence[int], at: int, index: int, alone: bool
    ) -> Iterator[Piece]:
        """A line with a find; one that is ``alone`` is read without those after it."""
        if at < index:
            self._pass_over(numbers[index - 1], lines[index - 1])
        owed = self.owed
        yield from self._read(lines[index], numbers[index], True)
        if alone:
            self.owed = owed

    def _read_rest(self, lines: Sequence[bytes], numbers: Sequence[int], at: int) -> Iterator[Piece]:
        """What is owed after the last find of a block."""
        last = len(lines) if lines[-1] else len(lines) - 1
        at = yield from self._read_owed(lines, numbers, at, last)
        if at < last:
            self._pass_over(numbers[last - 1], lines[last - 1])

    def _pass_all(self, block: bytes, numbers: Sequence[int]) -> None:
        body = block.removesuffix(b"\n")
        self._pass_over(numbers[body.count(b"\n")], body[body.rfind(b"\n") + 1 :])

    def _swamped(self, block: bytes, numbers: Sequence[int]) -> Iterator[Piece]:
        """The pieces of a block of a log with thousands of loud lines that are not alike.

        What of them only sounds like an error is passed over, and what holds the same words of signatures is counted
        together: the first lines are read, and some of the others.
        """
        wanted = self._of_same_words(block, numbers)
        if not wanted and not self.owed:
            self._pass_all(block, numbers)
            return
        lines = block.split(b"\n")
        at = index = upto = 0
        for place in wanted:
            index, upto = index + block.count(b"\n", upto, place), place
            if self.owed:
                at = yield from self._read_owed(lines, numbers, at, index)
            yield from self._read_find(lines, numbers, at, index, self._sooner() > 1)
            at = index + 1
        yield from self._read_rest(lines, numbers, at)

    def _of_same_words(self, block: bytes, numbers: Sequence[int], more: int = 0) -> list[int]:
        """Places in the lines of a block that are to be read, after ``more`` others; those of each kind are counted."""
        if self._rows is None:
            self._rows = self._strong().rows()
        rows = self._rows
        places, held = self._strong().by_line(block.translate(SHAPE), rows)
        named = _coded(block, places, held, rows.words) if b"Xid (" in block else []
        least = len(rows.words)
        words = {
            number: rows.words[number if number >= 0 else ~number] if number < least else named[number - least]
            for number in dict.fromkeys(held)
        }
        new = [each for each in words.values() if each not in self._folded]
        if len(self._folded) + len(new) > _COMBINED:  # no program combines the words of errors in so many ways
            known = self._folded.keys() | set(new[: max(_COMBINED - len(self._folded), 0)])
            alone = {number: rows.index[each[0]] for number, each in words.items() if number < 0 or each not in known}
            held = [alone.get(number, number) for number in held]
            words |= {number: rows.words[number] for number in alone.values()}
            rows.close(known)
        wanted: list[int] = []
        counted: dict[int, Piece] = {}  # places, each with what tells of it at the end
        left: dict[int, int] = {}
        last = dict(zip(held, places, strict=True))
        sooner = self._sooner()
        exact = _EXACT_TIMES // self._sooner(more)
        for number, times in Counter(held).items():
            kind, sampled = self._fold(words[number])
            before, kind.times = kind.times, kind.times + times
            single = min(max(exact - before, not before), times)
            if single:
                left[number] = single
                more += single
                exact = _EXACT_TIMES // self._sooner(more)
            place = last[number]
            due = False
            if times > single:
                gap = _gap(kind.times) * sooner
                if due := (before + single) // gap < kind.times // gap:
                    wanted.append(place)
                sampled.times += times - single - due
            if sampled.times:
                counted[place] = sampled
        if left:
            for number, place in zip(held, places, strict=True):
                if left.get(number):
                    left[number] -= 1
                    wanted.append(place)
        line = upto = 0
        for place in sorted(counted):
            line, upto = line + block.count(b"\n", upto, place), place
            begin, end = block.rfind(b"\n", 0, place) + 1, block.find(b"\n", place)
            counted[place].number = numbers[line]
            counted[place].raw = block[begin : min(end if end >= 0 else len(block), begin + LONGEST)]
        return sorted(wanted)

    def _pass_over(self, number: int, line: bytes) -> None:
        self._gap, self._before = True, (number, line)

    def _sooner(self, more: int = 0) -> int:
        """How many times fewer lines of one kind are a flood, after what was read and ``more`` that will be."""
        read = self._pieces + more + (_UNLIKE_READ if self._unlike >= _LOUD_SHAPES else 0)
        if read <= _MANY_READ:
            return 1
        return _SOONER if read <= _MANY_READ + _MORE_READ else _SOONER * _SOONER

    def _finds(self, lines: list[bytes], shapes: list[bytes], hot: dict[bytes, _Kind]) -> Iterable[tuple[int, int]]:
        """The indexes of lines that are to be looked at, each with the number of lines that it stands for.

        In a block of very many lines a flood is counted all at once: each of its lines once where they are few, one
        line for all where they are many.
        """
        if len(lines) < _DENSE:
            return [(index, 1) for index in compress(count(), map(hot.__contains__, shapes))]
        many = {shape: kind for shape, kind in hot.items() if kind.times > _SAMPLED_TIMES}
        places = list(compress(count(), map(hot.__contains__, shapes)))
        found = [(index, 1) for index in places if shapes[index] not in many] if len(many) < len(hot) else []
        one = {shape for shape, kind in many.items() if kind.full}
        for of, texts in ((one, shapes), (many.keys() - one, lines)):
            held_at = [index for index in places if shapes[index] in of] if of else []
            held = [texts[index] for index in held_at]
            times, last = Counter(held), dict(zip(held, held_at, strict=True))
            found += [(index, times[text]) for text, index in last.items()]
        return sorted(found)

    def _learn(self, unique: Collection[bytes], lines: int) -> None:
        """Searches the shapes that were not seen yet and sorts them into the two kinds."""
        self._flood, self._due = {}, set()
        self._blocks += 1
        fresh = list(filterfalse(self._known.__contains__, filterfalse(self._dull.__contains__, unique)))
        if not fresh:
            return
        if len(self._dull) > _SHAPES:
            if 2 * len(fresh) < lines:
                self._dull.clear()
            elif _SELDOM * (len(unique) - len(fresh)) < len(unique):  # nothing comes twice: none is kept for a while
                self._dull.clear()
                self._remembers = self._blocks + _ASKED_AGAIN
        if len(self._known) > _SHAPES:
            rare = [shape for shape, known in self._known.items() if known.times <= _EXACT_TIMES]
            for shape in rare:
                del self._known[shape]
        if self._kinds:
            fresh = self._settled(fresh)
        hot = self._words.lines(b"\n".join(fresh))
        if len(hot) > _FLOOD or (hot and len(self._known) > _LOUD_SHAPES):
            self._flood |= self._alike(hot)
            seen: Container[bytes] = hot
        else:
            seen = known = {shape: _Kind() for shape in hot if self._sure(shape)}
            self._known |= {shape: kind for shape, kind in known.items() if len(shape) <= _KNOWN_LENGTH}
            self._flood |= {shape: kind for shape, kind in known.items() if len(shape) > _KNOWN_LENGTH}
        if len(self._dull) <= _SHAPES and self._blocks >= self._remembers:
            self._dull.update(shape for shape in fresh if shape not in seen and len(shape) <= _SHAPE_LENGTH)

    def _settled(self, shapes: list[bytes]) -> list[bytes]:
        """Counts the shapes of kinds whose lines are only sampled, one of each kind being read; returns the others."""
        if self._alike_share < _FEW_ALIKE and self._blocks % _ASKED_AGAIN:
            return shapes
        keys = b"\n".join(shapes).translate(None, _NUMBERS).split(b"\n")
        times = Counter(keys)
        settled = {}
        for key in times:
            kind = self._kinds.get(key, _NEW)
            if kind is None or (kind.sampled is not None and not (kind.codes and self._new_codes)):
                settled[key] = kind
        self._alike_share = sum(times[key] for key in settled) / len(shapes)
        if not settled:
            return shapes
        place = dict(zip(keys, shapes, strict=True))
        for key, kind in settled.items():
            if kind is not None and kind.sampled is not None:
                kind.times += times[key]
                due = self._is_due(kind.times - times[key], kind.times, 1)
                kind.sampled.times += times[key] - due
                if due:
                    self._flood[place[key]] = kind
                    self._due.add(place[key])
        if len(settled) == len(times):
            return []
        return [shape for shape, key in zip(shapes, keys, strict=True) if key not in settled]

    def _alike(self, hot: Iterable[bytes]) -> dict[bytes, _Kind]:
        """The shapes of a flood that are worth reading, those that differ in numbers only with one count.

        From the first on that makes too many, ``_swamped_from``, none is looked at.
        """
        kept: dict[bytes, _Kind] = {}
        keys = b"\n".join(hot).translate(None, _NUMBERS).split(b"\n")
        for shape, key in zip(hot, keys, strict=True):
            kind = self._kinds.get(key, _NEW)
            if kind is _NEW:
                if self._unlike >= _LOUD_SHAPES:
                    self._swamped_from = shape
                    break
                self._unlike += 1
                kind = self._kinds[key] = _Kind() if self._sure(shape) else None
            if kind is None:
                continue
            if kind.sampled is not None and not (kind.codes and self._new_codes):
                times = kind.times = kind.times + 1
                if not self._is_due(times - 1, times, _gap(times)):
                    kind.sampled.times += 1
                    continue
                self._due.add(shape)
            kept[shape] = kind
        return kept

    def _fold(self, words: tuple[bytes, ...]) -> tuple[_Kind, Piece]:
        """What lines with these words are counted by."""
        kind = self._folded.get(words)
        if kind is None or kind.sampled is None:
            sampled = Piece(0, b"", True, True, late=True, times=0)
            kind = self._folded[words] = _Kind(sampled=sampled)
            return kind, sampled
        return kind, kind.sampled

    def _is_due(self, before: int, times: int, gap: int) -> bool:
        """Whether one of a kind's lines after the first ``before`` is read, of each ``gap`` lines one; of more lines
        where many of the input were read."""
        gap *= self._sooner()
        return before // gap < times // gap

    def counted(self) -> Iterator[Piece]:
        """For lines that were only counted, the last of each kind."""
        for shape in (*self._known.values(), *filter(None, self._kinds.values()), *self._folded.values()):
            for piece in (*shape.exact.values(), *((shape.sampled,) if shape.sampled else ())):
                if piece.times:
                    yield piece

    def _read(self, line: bytes, number: int, found: bool) -> Iterator[Piece]:
        """The pieces of one line: between carriage returns, and of a long one those with a find in them."""
        self._lead = b""
        if b"\r" in line:
            self._lead = line.partition(b"\r")[0][:_LEAD]
            parts = list(filter(bytes.strip, line.split(b"\r"))) or [b""]
            if not found:
                parts = parts[-_STRETCHES:]
            elif len(parts) > 1:
                parts = self._hot_parts(parts, number)
        else:
            parts = [line]
        for part in parts:
            if len(part) <= LONGEST or not found:
                yield self._made(number, part[:LONGEST], found)
                continue
            yield from self._stretches(part, number)

    def _stretches(self, part: bytes, number: int) -> Iterator[Piece]:
        """The stretches of a long part around what was found in it; of a flood of one word some, of each at least
        the first."""
        places = self._words.places(part.translate(SHAPE))
        times = Counter(map(itemgetter(0), places))
        before = {word: self._fold((word,))[0].times for word in times}
        single = _EXACT_TIMES // self._sooner()
        left = {word: max(single - known, not known) for word, known in before.items()}  # stretches that are read
        read = dict.fromkeys(times, 0)
        upto = made = 0
        for word, at in places:
            if at < upto:
                read[word] += 1
            elif left[word]:
                start = at - _BEFORE if at > LONGEST - _BEFORE else 0
                yield self._made(number, part[start : start + LONGEST], True)
                read[word] += 1
                left[word] -= 1
                made, upto = made + 1, max(start + LONGEST, at + 1)
                if made >= _STRETCHES:
                    left = {each: int(not before[each] + read[each]) for each in times}
        for word, at in dict(places).items():  # the last of each
            kind, sampled = self._fold((word,))
            kind.times += times[word]
            if times[word] == read[word]:
                continue
            start = max(at - _BEFORE, 0)
            stretch = part[start : start + LONGEST]
            if made < _STRETCHES and self._is_due(before[word] + read[word], kind.times, _gap(kind.times)):
                read[word] += 1
                made += 1
                yield self._made(number, stretch, True)
            sampled.times += times[word] - read[word]
            sampled.number, sampled.raw = number, stretch

    def _hot_parts(self, parts: list[bytes], number: int) -> list[bytes]:
        """The parts between carriage returns that are to be read: those with a find, and of a flood some."""
        kept: list[bytes] = []
        shapes = b"\n".join(parts).translate(SHAPE).split(b"\n")
        hot = self._words.lines(b"\n".join(dict.fromkeys(shapes))) if self._swamped_from is None else {}
        flood = self._alike(hot) if len(hot) > _FLOOD else None
        if self._swamped_from is not None:
            first = shapes.index(self._swamped_from) if self._swamped_from in hot else 0
            rest = b"\n".join(parts[first:])
            parts, shapes = parts[:first], shapes[:first]
        else:
            rest = b""
        wanted: Container[bytes] = hot if flood is None else flood
        for part, shape in compress(zip(parts, shapes, strict=True), map(wanted.__contains__, shapes)):
            if flood is not None:
                kind = flood[shape]
            elif len(shape) <= _SHAPE_LENGTH:
                kind = self._known.setdefault(shape, _Kind())
            else:
                kept.append(part)
                continue
            due = shape in self._due
            kind.times += not due
            sooner = self._sooner(len(kept))
            if kind.times > _EXACT_TIMES // sooner and not due and _passed(kind, part, number, sooner, 1):
                continue
            kept.append(part)
        if rest:
            places = self._of_same_words(rest, [number] * (rest.count(b"\n") + 1), len(kept))
            kept += [rest[rest.rfind(b"\n", 0, at) + 1 :].partition(b"\n")[0] for at in places]
        return kept

    def _made(self, number: int, raw: bytes, found: bool) -> Piece:
        lead = b"" if raw.startswith(self._lead) else self._lead
        made = Piece(number, raw, found, self._gap, self._before if found else None, lead=lead)
        self._gap, self._before = False, None
        self._pieces += 1 + len(raw) // _SHAPE_LENGTH
        return made


def _coded(
    block: bytes, places: Sequence[int], held: list[int], words: Sequence[tuple[bytes, ...]]
) -> list[tuple[bytes, ...]]:
    """Gives lines with codes, which make each of them another one, numbers of their own, that begin behind those of
    ``words``; returns what they stand for."""
    numbers: dict[tuple[bytes, ...], int] = {}
    named: list[tuple[bytes, ...]] = []
    for code in _CODES.finditer(block):
        index = bisect_right(places, block.rfind(b"\n", 0, code.start()))
        if index < len(places) and places[index] < code.end() and (number := held[index]) >= 0:
            row = (*(words[number] if number < len(words) else named[number - len(words)]), code[1])
            if row not in numbers:
                numbers[row] = len(words) + len(named)
                named.append(row)
            held[index] = numbers[row]
    return named


def _gap(times: int) -> int:
    """How many lines of a flood there are to each that is read."""
    return max(_SAMPLE, times // _SPARSER)


def _passed(kind: _Kind, line: bytes, number: int, sooner: int, times: int) -> bool:
    """Whether a line of a flood, which stands for so many, needs no reading; it is counted then."""
    if (b"Xid" in line) and (code := _CODES.search(line)) and code[1] not in kind.codes:
        kind.codes.add(code[1])
        return False
    many = kind.times > _SAMPLED_TIMES // sooner
    piece = None
    if not many or len(kind.exact) < _EXACT:
        plain = _TIMES.sub(b"", line[:LONGEST])
        piece = kind.exact.get(plain)
        if piece is None and len(kind.exact) < _EXACT:
            kind.exact[plain] = Piece(number, line[:LONGEST], True, True, late=True, times=0)
    if piece is None:
        if not many or kind.times % _gap(kind.times) < times == 1:
            return False
        if kind.sampled is None:
            kind.sampled = Piece(number, b"", True, True, late=True, times=0)
        piece = kind.sampled
    piece.number, piece.raw, piece.times = number, line[:LONGEST], piece.times + times
    return True
