"""Which of a thousand words a text holds, a hundred megabytes of it in half a second.

CPython's ``re`` tries a large alternation at most places of a text, and looking for one word after another passes over
the text a thousand times.  An automaton passes once over it for all of them: Aho and Corasick, "Efficient String
Matching", Communications of the ACM 18 (1975), in the Rust crate of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

_SHORTEST = 4  # bytes of a word: shorter ones stand within too many others


class Words:
    """Many words to be looked for together.

    Raises ValueError for one of less than four bytes.
    """

    def __init__(self, words: Iterable[bytes]) -> None:
        self._words = sorted(set(words), key=lambda word: (len(word), word))
        if self._words and len(self._words[0]) < _SHORTEST:
            raise ValueError(f"{self._words[0]!r} is shorter than {_SHORTEST} bytes")

    @cached_property
    def _all(self) -> BytesAhoCorasick:
        """What finds every word, those within others too."""
        return BytesAhoCorasick(self._words, MatchKind.Standard, Implementation.ContiguousNFA)

    @cached_property
    def _apart(self) -> BytesAhoCorasick:
        """What finds the words that do not overlap with an earlier one, of those that begin together the longest.

        A DFA is twice as fast where hardly a word is found, and half as fast where its 7 MB leave a processor's cache.
        """
        return BytesAhoCorasick(self._words, MatchKind.LeftmostLongest, Implementation.ContiguousNFA)

    def held_by(self, text: bytes) -> list[bytes]:
        """Which of the words ``text``, in small letters, holds, each once, in the order in which they end first."""
        found = self._all.find_matches_as_indexes(text, overlapping=True)
        return [self._words[index] for index in dict.fromkeys(index for index, _, _ in found)]

    def places(self, text: bytes) -> list[tuple[bytes, int]]:
        """The words in ``text`` one behind the other, each with where it begins.

        One that overlaps with an earlier one is left out, and so are those within a longer one.
        """
        words = self._words
        return [(words[index], at) for index, at, _ in self._apart.find_matches_as_indexes(text)]

    def lines(self, text: bytes) -> dict[bytes, bytes]:
        """The lines of ``text`` that hold a word, each with the first of them."""
        words, found, end = self._words, dict[bytes, bytes](), -1
        for index, at, _ in self._apart.find_matches_as_indexes(text):
            if at > end:
                end = text.find(b"\n", at)
                if end < 0:
                    end = len(text)
                found[text[text.rfind(b"\n", 0, at) + 1 : end]] = words[index]
        return found

    def by_line(self, text: bytes) -> tuple[list[int], list[tuple[bytes, ...]]]:
        """For each line of ``text`` that holds a word the place of the first, and all of them, each once."""
        alone = [(word,) for word in self._words]
        places: list[int] = []
        held: list[tuple[bytes, ...]] = []
        end = -1
        for index, at, _ in self._apart.find_matches_as_indexes(text):
            if at > end:
                end = text.find(b"\n", at)
                if end < 0:
                    end = len(text)
                places.append(at)
                held.append(alone[index])
            elif self._words[index] not in held[-1]:
                held[-1] += alone[index]
        return places, held
