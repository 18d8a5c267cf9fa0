"""Looking for a thousand words at once gives what looking for each of them would."""

from __future__ import annotations

import io
import random

import pytest
from logs import reading

from envkit.logs import knowledge
from envkit.logs.reader import _matcher
from envkit.logs.scan import Scanner
from envkit.logs.words import _LOOK, Words

KNOWN = [
    b"cuda error",
    b"error",
    b"an illegal memory access",
    b"fail",
    b"failed to",
    b"nccl",
    b"ccl warn",
    b"uda error:",
]


def text_of(chance: random.Random, known: list[bytes]) -> bytes:
    """Random letters with words and their beginnings among them."""
    parts = []
    for _ in range(chance.randrange(1, 60)):
        word = chance.choice(known)
        parts.append(
            chance.choice((word, word[: chance.randrange(len(word))], bytes(chance.choices(b"cudaerofil \n", k=7))))
        )
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(40))
def test_all_words_of_a_text_are_found_and_no_others(seed: int) -> None:
    chance = random.Random(seed)
    text = text_of(chance, KNOWN)
    words = Words(KNOWN)
    assert sorted(words.held_by(text)) == sorted(word for word in KNOWN if word in text)
    found = words.lines(text)
    assert found.keys() == {line for line in text.split(b"\n") if any(word in line for word in KNOWN)}
    assert all(word in line for line, word in found.items())
    rows = words.rows()
    places, numbers = words.by_line(text, rows)
    held = [rows.words[number] for number in numbers]
    lines = [text[text.rfind(b"\n", 0, at) + 1 :].split(b"\n")[0] for at in places]
    assert lines == [line for line in text.split(b"\n") if line in found]
    assert [known[0] for known in held] == [found[line] for line in lines]
    assert all(word in line for line, known in zip(lines, held, strict=True) for word in known)
    assert all(text.startswith(word, at) for word, at in words.places(text))


def test_words_that_stand_in_one_another_are_found_apart_and_all_of_them() -> None:
    words = Words(KNOWN)
    text = b"cuda error: failed to fail\ncalm\nerror, error"
    assert sorted(words.held_by(text)) == [b"cuda error", b"error", b"fail", b"failed to", b"uda error:"]
    assert words.places(text) == [
        (b"cuda error", 0), (b"failed to", 12), (b"fail", 22), (b"error", 32), (b"error", 39),
    ]  # fmt: skip
    rows = words.rows()
    places, numbers = words.by_line(text, rows)
    assert places == [0, 32]
    assert [rows.words[number] for number in numbers] == [(b"cuda error", b"failed to", b"fail"), (b"error",)]


def test_lines_of_any_length_are_found() -> None:
    words = Words(KNOWN)
    for length in (0, 1, _LOOK - 12, *range(_LOOK - 7, _LOOK + 2), 3 * _LOOK):
        for rest in (b"", b"x" * _LOOK):
            text = b"\n".join((b"calm", b"." * length + b"failed to" + rest, b"calm " * _LOOK, b"an error"))
            kept = dict.fromkeys(text.split(b"\n")[1::2])
            assert words.lines(text) == dict(zip(kept, (b"failed to", b"error"), strict=True)), (length, rest[:1])


def test_closed_rows_tell_no_new_ones_apart() -> None:
    words = Words(KNOWN)
    rows = words.rows()
    text = b"error: nccl fail\nerror: fail\nnccl, fail, nccl\nerror"
    _, numbers = words.by_line(text, rows)
    assert [rows.words[number] for number in numbers] == [
        (b"error", b"nccl", b"fail"), (b"error", b"fail"), (b"nccl", b"fail"), (b"error",),
    ]  # fmt: skip
    rows.close([(b"error", b"nccl", b"fail"), (b"nccl",), (b"nccl", b"31")])  # the last one with a code
    _, numbers = words.by_line(text + b"\nerror: nccl: fail: error: fail of\nerror, nccl, cuda error, fail", rows)
    told = [rows.words[number] if number >= 0 else rows.words[~number][0] for number in numbers]
    known = (b"error", b"nccl", b"fail")
    assert told == [known, b"error", b"nccl", (b"error",), known, b"error"]


def test_the_words_of_the_signatures_are_found_each_in_its_own() -> None:
    words = _matcher().worth
    listed = sorted(_matcher()._stretches)
    assert len(listed) > 1000
    for word in listed:
        assert word in words.held_by(b"a line " + word + b" and more"), word
    strong = _matcher().strong
    assert strong.held_by(b"error: it failed") == [] and strong.held_by(b"cuda error: unknown")


def test_a_word_that_is_too_short_is_refused_and_no_words_find_nothing() -> None:
    with pytest.raises(ValueError, match="b'oom' is shorter than 4 bytes"):
        Words([b"out of memory", b"oom"])
    assert Words([]).held_by(b"anything") == [] and Words([b"word"]).held_by(b"") == []
    assert Words([]).places(b"anything") == [] and Words([]).lines(b"x") == {}
    assert Words([]).by_line(b"x", Words([]).rows()) == ([], [])
    assert Words([b"word", b"\xe2\x9d\xb1 "]).held_by("a ❱ 12 word".encode()) == [b"\xe2\x9d\xb1 ", b"word"]


def test_an_xid_of_another_kind_in_a_flood_is_read() -> None:
    flood = [
        f"[{number}.000001] NVRM: Xid (PCI:0000:3b:00): 13, pid={number}, Graphics Exception\n"
        for number in range(9000)
    ]
    flood[8000] = "[8000.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=8000, GPU has fallen off the bus.\n"
    flood[8500] = "[8500.000001] NVRM: Xid (PCI:0000:3b:00): 48, pid=8500, Graphics Exception\n"
    seen = reading("".join(flood))
    assert {"79", "48", "13"} <= {event.values.get("xid") for event in seen.events}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["error {} failed", "CUDA error: unknown error in {}", "{}"])
def test_the_one_error_in_a_flood_of_changing_words_is_read(form: str) -> None:
    chance = random.Random(5)
    lines = [
        form.format(" ".join("".join(chance.choices("ghijklmnopqrstuvwxyz", k=6)) for _ in range(6)))
        for _ in range(12_000)
    ]
    lines[11_000] = "RuntimeError: CUDA error: an illegal memory access was encountered"
    seen = reading("\n".join(lines) + "\n")
    (found,) = [event for event in seen.events if event.category == "illegal-memory-access"]
    assert found.line.number == 11_001


def test_bars_that_each_tell_an_error_are_counted_and_the_one_error_among_them_is_read() -> None:
    chance = random.Random(5)
    bars = [f"step {number} failed: {chance.getrandbits(32):08x}" for number in range(9_000)]
    bars[8_500] = "RuntimeError: CUDA error: an illegal memory access was encountered"
    seen = reading("\r".join(bars) + "\n")
    assert [event.category for event in seen.events] == ["illegal-memory-access"]
    (file,) = seen.files
    assert max(line.times for line in file.loud) > 1_000  # some are read, the others counted


def test_of_a_flood_of_unlike_lines_few_are_read_from_the_first_block_on() -> None:
    chance = random.Random(5)
    text = "".join("".join(chance.choices("ghjkmnopqrtuvwxyz", k=6)) + " failed\n" for _ in range(30_000))
    scanner = Scanner(_matcher().worth, lambda: _matcher().strong, lambda shape: True, 1)
    assert sum(1 for _ in scanner.pieces(io.BytesIO(text.encode()))) < 3_000


def test_of_a_long_line_of_one_error_some_stretches_are_read_and_the_others_counted() -> None:
    chance = random.Random(5)
    said = [f"loss of {chance.getrandbits(64):x} is not right, it failed; " + "calm " * 30 for _ in range(4_000)]
    said[3_000] = "an illegal memory access was encountered; "
    scanner = Scanner(_matcher().worth, lambda: _matcher().strong, lambda shape: True, 1)
    read = list(scanner.pieces(io.BytesIO("".join(said).encode())))
    assert len(read) < 600
    assert any(said[3_000].encode() in piece.raw for piece in read)
    counted = [piece for piece in read if piece.late]
    assert sum(piece.times for piece in counted) > 2_000  # the others are in what is read
    assert all(b"failed" in piece.raw for piece in counted)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_of_lines_that_combine_the_words_of_errors_in_ever_new_ways_few_are_read_and_the_last_of_each(end: str) -> None:
    chance = random.Random(5)
    known = sorted({signature.anchor for signature in knowledge.signatures()} - {"an illegal memory access"})
    lines = [" ".join((*chance.choices(known, k=2), f"{chance.getrandbits(64):x}")) for _ in range(40_000)]
    lines[-1] = "RuntimeError: CUDA error: an illegal memory access was encountered"
    scanner = Scanner(_matcher().worth, lambda: _matcher().strong, lambda shape: True, 1)
    read = list(scanner.pieces(io.BytesIO(end.join(lines).encode() + b"\n")))
    assert len(read) < 8_000
    assert lines[-1].encode() in {piece.raw for piece in read}
    counted = [piece for piece in read if piece.late and piece.raw]
    assert sum(piece.times for piece in counted) > 20_000
    assert all(piece.raw.decode() in lines for piece in counted)
