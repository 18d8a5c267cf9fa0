"""Which of a thousand words a text holds, a hundred megabytes of it in half a second.

CPython's ``re`` tries a large alternation at most places of a text, and looking for one word after another passes over
the text a thousand times.  An automaton passes once over it for all of them: Aho and Corasick, "Efficient String
Matching", Communications of the ACM 18 (1975), in the Rust crate of that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

_LOOK = 1 << 15  # bytes of a line that are searched first, and of shorter lines together
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
        found, at = dict[bytes, bytes](), 0
        while at < len(text):
            upto = at + _LOOK
            end = len(text) if upto >= len(text) else text.rfind(b"\n", at, upto)
            if end < 0:  # of a line that is so long the beginning most often tells
                end = text.find(b"\n", upto)
                if end < 0:
                    end = len(text)
                first = next(iter(self._apart.find_matches_as_indexes(text[at:upto])), None)
                if first is not None and first[1] + len(self._words[-1]) <= _LOOK:
                    found[text[at:end]] = self._words[first[0]]
                    at = end + 1
                    continue
            found |= self._lines(text[at:end])
            at = end + 1
        return found

    def _lines(self, text: bytes) -> dict[bytes, bytes]:
        words, found, end = self._words, dict[bytes, bytes](), -1
        for index, at, _ in self._apart.find_matches_as_indexes(text):
            if at > end:
                end = text.find(b"\n", at)
                if end < 0:
                    end = len(text)
                found[text[text.rfind(b"\n", 0, at) + 1 : end]] = words[index]
        return found

    def by_line(self, text: bytes, rows: Rows) -> tuple[list[int], list[int]]:
        """For each line of ``text`` that holds a word the place of the first, and the number of all of them in
        ``rows``; of a line whose row is not told apart any more the number of its first word, inverted."""
        further, many = rows.further, len(self._words)
        places: list[int] = []
        numbers: list[int] = []
        end = now = -1
        for index, at, _ in self._apart.find_matches_as_indexes(text):
            if at > end:
                end = text.find(b"\n", at)
                if end < 0:
                    end = len(text)
                now = index
                places.append(at)
                numbers.append(index)
                continue
            then = further.get(now * many + index)
            if then is None:
                if now < 0:
                    continue
                then = rows.then(now, index)
            if then != now:
                now = then
                numbers[-1] = now if now >= 0 else ~rows.first[numbers[-1]]
        return places, numbers

    def rows(self) -> Rows:
        """The rows of one log, to be filled by ``by_line``."""
        return Rows(self._words)


class Rows:
    """What lines hold of many words, in the order in which they come, each such row of words under a number.

    A flood has a million lines, and few rows: each is made once.  The number of one word alone is its index.
    ``further`` has, by the number of a row and the next word of a line, the number of both; ``first`` has the number of
    a row's first word, ``index`` that of a word.
    """

    def __init__(self, words: Sequence[bytes]) -> None:
        self._words = words
        self._open = True
        self.words: list[tuple[bytes, ...]] = [(word,) for word in words]
        self.further: dict[int, int] = {}
        self.first = list(range(len(words)))
        self.index = {word: index for index, word in enumerate(words)}

    def then(self, number: int, index: int) -> int:
        """The number of a row with one word more, the same where the row has it, -1 where no more are told apart."""
        word = self._words[index]
        then = number
        if word not in self.words[number]:
            if not self._open:
                return -1
            then = self._made(number, word)
        self.further[number * len(self._words) + index] = then
        return then

    def _made(self, number: int, word: bytes) -> int:
        self.words.append((*self.words[number], word))
        self.first.append(self.first[number])
        return len(self.words) - 1

    def close(self, known: Iterable[tuple[bytes, ...]]) -> None:
        """Forgets all rows of several words but those that are known, and those that they begin with, and tells no
        further ones apart; when that was done before nothing is known that was not then."""
        if not self._open:
            return
        self._open = False
        many = len(self._words)
        del self.words[many:], self.first[many:]
        self.further.clear()
        for row in known:
            now = self.index[row[0]]
            for word in row[1:]:
                if word not in self.index:  # a code, which is no word
                    break
                key = now * many + self.index[word]
                if key not in self.further:
                    self.further[key] = self._made(now, word)
                now = self.further[key]
