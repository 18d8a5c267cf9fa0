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
from functools import cache, cached_property
from heapq import nsmallest
from math import prod

SHORTEST = 4
"""Bytes of the shortest word that can be looked for."""

LETTERS = bytes(byte if byte in b"abcdefghijklmnopqrstuvwxyz\n" else 0x20 for byte in range(256))
"""A table for ``bytes.translate`` that leaves small letters and the ends of lines."""

_SETS = 8  # of windows, one for each bit of a byte
_TRIED = 10  # windows of a word that are tried for so many sets, the rarest first
_CROWD = 1e-5  # of the places of a text that are to be looked up: what one more word of the same window costs
_OFTEN = 1e-3  # what a window costs that many a line of this text holds
_MARKED = bytes([0]) + bytes([1]) * 255

# Bytes of logs, the most frequent first, counted over public logs of training runs; what is not here is rarer.
_FREQUENT = b' eotrnisac0ldpu1/m.f_g2h3-y4b6:5879v,w=k"x()[]'
_LEAST_LETTER, _DIGIT = 0.02, 0.2  # in random words each letter is as frequent, and every digit of a shape is a 0

_Held = tuple[tuple[bytes, int], ...]  # words, each with the bytes before its window


class Words:
    """Many words to be looked for together, in texts that often hold others, ``beside``.

    Raises ValueError for one of less than ``SHORTEST`` bytes.
    """

    def __init__(self, words: Iterable[bytes], beside: Iterable[bytes] = (), *, rows: int = 1) -> None:
        """With more ``rows`` of eight sets fewer places are looked up, and the text goes through more tables."""
        wanted = sorted(set(words), key=lambda word: (len(word), word))
        if wanted and len(wanted[0]) < SHORTEST:
            raise ValueError(f"{wanted[0]!r} is shorter than {SHORTEST} bytes")
        often = {word[at : at + SHORTEST] for word in beside for at in range(len(word))}
        held: dict[bytes, list[tuple[bytes, int]]] = {}
        members: list[list[set[int]]] = [[set() for _ in range(SHORTEST)] for _ in range(_SETS * rows)]
        shares = [[0.0] * SHORTEST for _ in range(_SETS * rows)]
        for word in wanted:
            at, chosen = _placed(word, members, shares, held, often)
            window = word[at : at + SHORTEST]
            held.setdefault(window, []).append((word, at))
            for place, byte in enumerate(window):
                if byte not in members[chosen][place]:
                    members[chosen][place].add(byte)
                    shares[chosen][place] += _share(byte)
        self._held: dict[bytes, _Held] = {window: tuple(words_of) for window, words_of in held.items()}
        self._rows = [
            [
                bytes(sum(1 << bit for bit, of_set in enumerate(row) if byte in of_set[place]) for byte in range(256))
                for place in range(SHORTEST)
            ]
            for row in (members[first : first + _SETS] for first in range(0, len(members), _SETS))
        ]

    @cached_property
    def parts(self) -> frozenset[bytes]:
        """What the words are made of: the runs of small letters in them."""
        return frozenset(
            part for held in self._held.values() for word, _ in held for part in word.translate(LETTERS).split()
        )

    def over(self, text: bytes) -> Finds:
        """What ``text``, in small letters, holds of them."""
        marks = 0
        for tables in self._rows:
            left = -1
            for place, table in enumerate(tables):
                left &= int.from_bytes(text.translate(table)[place:], "little")
                if not left:
                    break
            marks |= left
        if not marks:
            return Finds(text, b"", self._held)
        return Finds(text, marks.to_bytes(len(text), "little").translate(_MARKED), self._held)

    def held_by(self, text: bytes) -> list[bytes]:
        """Which of the words ``text``, in small letters, holds."""
        return self.over(text).words()


class Finds:
    """The words that one text holds."""

    def __init__(self, text: bytes, marks: bytes, held: dict[bytes, _Held]) -> None:
        self._text, self._marks, self._held = text, marks, held

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


@cache
def _share(byte: int) -> float:
    """How often a byte stands in a log, about: the n-th frequent one has one part in 4(n + 1.5)."""
    at = _FREQUENT.find(byte)
    share = 0.004 if at < 0 else 0.25 / (at + 1.5)
    letter = chr(byte)
    return max(share, _LEAST_LETTER if letter.isascii() and letter.isalpha() else _DIGIT if letter == "0" else 0.0)


def _placed(
    word: bytes,
    members: list[list[set[int]]],
    shares: list[list[float]],
    held: Mapping[bytes, Collection[object]],
    often: Collection[bytes],
) -> tuple[int, int]:
    """The window of a word, by where it begins, and the set that it adds least to: of places to be looked up, and of
    words to be compared there."""
    begins = range(len(word) - SHORTEST + 1)
    rarest = nsmallest(
        _TRIED * len(members) // _SETS, begins, key=lambda at: prod(map(_share, word[at : at + SHORTEST]))
    )
    best, chosen = float("inf"), (0, 0)
    for at in rarest:
        window = word[at : at + SHORTEST]
        crowd = _CROWD * len(held.get(window, ())) + (_OFTEN if window in often else 0.0)
        for bit, (known, share) in enumerate(zip(members, shares, strict=True)):
            before = after = 1.0
            for byte, those, sum_of in zip(window, known, share, strict=True):
                before *= sum_of
                after *= sum_of if byte in those else sum_of + _share(byte)
            if after - before + crowd < best:
                best, chosen = after - before + crowd, (at, bit)
    return chosen
