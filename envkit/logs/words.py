"""Which of a thousand words a text holds, a hundred megabytes of it in a second or two.

CPython's ``re`` tries a large alternation at most places of a text, and looking for one word after another passes over
the text a thousand times.  Here every word is known by four bytes of it, its window, and the windows stand in eight
sets.  For each of the four places a table of ``bytes.translate`` tells in which sets a byte may stand there, one bit
for each; the text goes through the four tables, and the results, taken as long numbers and put one below the other,
are joined by "and".  What is left are one place in fifty, and there a window is looked up.  Hyperscan's Teddy does the
same with a processor's vectors: Wang et al., "Hyperscan: A Fast Multi-pattern Regex Matcher for Modern CPUs", NSDI '19.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from heapq import nsmallest
from math import prod

SHORTEST = 4
"""Bytes of the shortest word that can be looked for."""

LETTERS = bytes(byte if byte in b"abcdefghijklmnopqrstuvwxyz\n" else 0x20 for byte in range(256))
"""A table for ``bytes.translate`` that leaves small letters and the ends of lines."""

_SETS = 8  # of windows, one for each bit of a byte
_TRIED = 10  # windows of a word that are tried, the rarest first
_CROWD = 1e-5  # of the places of a text that are to be looked up: what one more word of the same window costs
_OFTEN, _EACH_LINE = 1e-3, 2e-2  # what a window costs that many a line of this text holds, or each
_AT_ONCE = 1 << 16  # bytes: what is made of them stays in a processor's cache
_MARKED = bytes([0]) + bytes([1]) * 255

# Bytes of logs, the most frequent first, counted over public logs of training runs; what is not here is rarer.
_FREQUENT = b' eotrnisac0ldpu1/m.f_g2h3-y4b6:5879v,w=k"x()[]'
_LEAST_LETTER, _DIGIT = 0.02, 0.2  # in random words each letter is as frequent, and every digit of a shape is a 0

_Held = tuple[tuple[bytes, int], ...]  # words, each with the bytes before its window


class Words:
    """Many words to be looked for together, in texts that often hold others, ``beside``.

    Raises ValueError for one of less than ``SHORTEST`` bytes.
    """

    def __init__(
        self, words: Iterable[bytes], beside: Collection[bytes] = (), *, rows: int = 1, avoided: Iterable[bytes] = ()
    ) -> None:
        """With more ``rows`` of eight sets fewer places are looked up, and the text goes through more tables.

        ``avoided`` are windows that each line of the text holds.
        """
        wanted = sorted(set(words), key=lambda word: (len(word), word))
        if wanted and len(wanted[0]) < SHORTEST:
            raise ValueError(f"{wanted[0]!r} is shorter than {SHORTEST} bytes")
        often = {word[at : at + SHORTEST] for word in beside for at in range(len(word))}
        self._wanted, self._beside = wanted, tuple(beside)
        held: dict[bytes, list[tuple[bytes, int]]] = {}
        sets = [_Set() for _ in range(_SETS * rows)]
        away = _Avoided(avoided)
        for word in wanted:
            at, chosen = _placed(word, sets, held, often, away)
            window = word[at : at + SHORTEST]
            held.setdefault(window, []).append((word, at))
            sets[chosen].add(window)
            away.add(chosen, window)
        self._held: dict[bytes, _Held] = {window: tuple(words_of) for window, words_of in held.items()}
        self._rows = [
            [
                bytes(sum(1 << bit for bit, one in enumerate(row) if byte in one.bytes[place]) for byte in range(256))
                for place in range(SHORTEST)
            ]
            for row in (sets[first : first + _SETS] for first in range(0, len(sets), _SETS))
        ]

    def away_from(self, often: Iterable[bytes]) -> Words:
        """The same words by other windows than these, which each line of a text holds."""
        return Words(self._wanted, self._beside, rows=len(self._rows), avoided=often)

    @cached_property
    def parts(self) -> frozenset[bytes]:
        """What the words are made of: the runs of small letters in them."""
        return frozenset(
            part for held in self._held.values() for word, _ in held for part in word.translate(LETTERS).split()
        )

    def over(self, text: bytes) -> Finds:
        """What ``text``, in small letters, holds of them."""
        if len(text) <= _AT_ONCE:
            return Finds(text, self._marked(text), self._held)
        parts = [
            self._marked(text[at : at + _AT_ONCE + SHORTEST - 1])[:_AT_ONCE] for at in range(0, len(text), _AT_ONCE)
        ]
        return Finds(text, b"".join(parts), self._held)

    def _marked(self, text: bytes) -> bytes:
        """A 1 for each place of the text where a window may begin, else a 0."""
        marks = 0
        for tables in self._rows:
            left = -1
            for place, table in enumerate(tables):
                left &= int.from_bytes(text.translate(table)[place:], "little")
                if not left:
                    break
            marks |= left
        return marks.to_bytes(len(text), "little").translate(_MARKED) if marks else bytes(len(text))

    def held_by(self, text: bytes) -> list[bytes]:
        """Which of the words ``text``, in small letters, holds."""
        return self.over(text).words()


class Finds:
    """The words that one text holds."""

    def __init__(self, text: bytes, marks: bytes, held: dict[bytes, _Held]) -> None:
        self._text, self._marks, self._held = text, marks, held

    def windows(self) -> Iterator[bytes]:
        """What is to be looked up, place by place."""
        at = self._marks.find(b"\1")
        while at >= 0:
            yield self._text[at : at + SHORTEST]
            at = self._marks.find(b"\1", at + 1)

    def all(self, at: int = 0) -> Iterator[tuple[int, bytes]]:
        """Each word and where it begins, in the order of the windows; a window before ``at`` is passed over."""
        text, find, held = self._text, self._marks.find, self._held.get
        at = find(b"\1", at)
        while at >= 0:
            for word, before in held(text[at : at + SHORTEST], ()):
                if at >= before and text.startswith(word, at - before):
                    yield at - before, word
            at = find(b"\1", at + 1)

    def first(self, at: int = 0) -> int | None:
        """Where the first word behind ``at`` begins."""
        return next((begin for begin, _ in self.all(at) if begin >= at), None)

    def words(self) -> list[bytes]:
        """The words, each once, in the order in which they are found first."""
        text, find, held = self._text, self._marks.find, self._held.get
        found: dict[bytes, None] = {}
        at = find(b"\1")
        while at >= 0:
            for word, before in held(text[at : at + SHORTEST], ()):
                if word not in found and at >= before and text.startswith(word, at - before):
                    found[word] = None
            at = find(b"\1", at + 1)
        return list(found)

    def lines(self) -> Iterator[tuple[bytes, bytes]]:
        """Each line that holds a word, with the first of them."""
        text, find, held = self._text, self._marks.find, self._held.get
        at = find(b"\1")
        while at >= 0:
            for word, before in held(text[at : at + SHORTEST], ()):
                if at >= before and text.startswith(word, at - before):
                    end = text.find(b"\n", at)
                    at = len(text) if end < 0 else end
                    yield text[text.rfind(b"\n", 0, at) + 1 : at], word
                    break
            at = find(b"\1", at + 1)


def _share(byte: int) -> float:
    """How often a byte stands in a log, about: the n-th frequent one has one part in 4(n + 1.5)."""
    at = _FREQUENT.find(byte)
    share = 0.004 if at < 0 else 0.25 / (at + 1.5)
    letter = chr(byte)
    return max(share, _LEAST_LETTER if letter.isascii() and letter.isalpha() else _DIGIT if letter == "0" else 0.0)


_SHARES = [_share(byte) for byte in range(256)]


class _Set:
    """The bytes that stand at each place of the windows of one set, how often these stand in a log, and all of them."""

    __slots__ = ("bytes", "share", "shares")

    def __init__(self) -> None:
        self.bytes: list[set[int]] = [set() for _ in range(SHORTEST)]
        self.shares = [0.0] * SHORTEST
        self.share = 0.0

    def add(self, window: bytes) -> None:
        for place, byte in enumerate(window):
            if byte not in self.bytes[place]:
                self.bytes[place].add(byte)
                self.shares[place] += _SHARES[byte]
        self.share = prod(self.shares)


class _Avoided:
    """Windows that no set should let pass, each a bit of a number.

    Known are which of them have a byte at a place, which of them a set lets pass at each place, and which pass now.
    """

    def __init__(self, windows: Iterable[bytes]) -> None:
        self.any = False
        self._having: list[dict[int, int]] = [{} for _ in range(SHORTEST)]
        for bit, window in enumerate(windows):
            self.any = True
            for place, byte in enumerate(window):
                self._having[place][byte] = self._having[place].get(byte, 0) | 1 << bit
        self._passing: dict[int, list[int]] = {}
        self._passed = 0

    def _with(self, chosen: int, window: bytes) -> list[int]:
        passing = self._passing.get(chosen) or [0] * SHORTEST
        return [of | having.get(byte, 0) for of, having, byte in zip(passing, self._having, window, strict=True)]

    def more(self, chosen: int, window: bytes) -> int:
        """How many would come to pass with this window in that set."""
        one, two, three, four = self._with(chosen, window)
        return (one & two & three & four & ~self._passed).bit_count()

    def add(self, chosen: int, window: bytes) -> None:
        """Puts the window into the set."""
        if self.any:
            one, two, three, four = self._passing[chosen] = self._with(chosen, window)
            self._passed |= one & two & three & four


def _placed(
    word: bytes, sets: list[_Set], held: Mapping[bytes, Collection[object]], often: Collection[bytes], away: _Avoided
) -> tuple[int, int]:
    """The window of a word, by where it begins, and the set that it adds least to: of places to be looked up, and of
    words to be compared there."""
    begins = range(len(word) - SHORTEST + 1)
    share_at = [_SHARES[byte] for byte in word]
    rarest = nsmallest(_TRIED, begins, key=lambda at: prod(share_at[at : at + SHORTEST]))
    best, chosen = float("inf"), (0, 0)
    for at in rarest:
        window = word[at : at + SHORTEST]
        crowd = _CROWD * len(held.get(window, ())) + (_OFTEN if window in often else 0.0)
        if crowd >= best:
            continue
        for bit, one in enumerate(sets):
            after = 1.0
            for byte, known, share in zip(window, one.bytes, one.shares, strict=True):
                after *= share if byte in known else share + _SHARES[byte]
            cost = after - one.share + crowd
            if cost < best and away.any:
                cost += _EACH_LINE * away.more(bit, window)
            if cost < best:
                best, chosen = cost, (at, bit)
    return chosen
