"""The reader of logs: prefixes, broken and foreign bytes, floods, tracebacks, talk."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import random
import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st
from logs import reading

from envkit.logs import scan, tracebacks
from envkit.logs.prefix import NO_YEAR, rank_of_name, strip
from envkit.logs.reader import ENDS, FIRST, LAST, LOUD, Input, read
from envkit.logs.records import Event, Line, Reading, Role
from envkit.logs.scan import BLOCK, cleaned
from envkit.logs.tracebacks import FIRST as FIRST_TRACES
from envkit.logs.tracebacks import LAST as LAST_TRACES
from envkit.logs.words import Words

ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python3, GPU has fallen off the bus."
DULL = "2026-03-01 12:00:00,123 - trainer - INFO - step 17 loss 2.5 lr 1e-4 grad_norm 0.7\n"


def events(text: str | bytes, category: str) -> list[Event]:
    """The events of one category."""
    return [event for event in reading(text).events if event.category == category]


def illegal(text: str | bytes) -> list[Event]:
    return events(text, "illegal-memory-access")


# --- prefixes ---------------------------------------------------------------------------------------------------------

SAID = "the program's own words: 12 of 30"
PREFIXES = {
    "[rank3]: ": {"rank": 3},
    "[default3]:[rank3]: ": {"rank": 3},
    "[RANK 1] 2026-05-18 09:01:12,701 [ERROR] ": {"rank": 1, "level": "error"},
    "[1,3]<stderr>:": {"rank": 3},
    "7: ": {"rank": 7},
    "[rank3]:[E318 06:30:51.713449198 ProcessGroupNCCL.cpp:616] ": {"rank": 3, "level": "error"},
    "[W socket.cpp:426] ": {"level": "warning"},
    "(RayTrainWorker pid=12, ip=10.0.0.1) ": {"pid": 12, "host": "10.0.0.1"},
    "(EngineCore_0 pid=123) ERROR 01-02 03:04:05 [core.py:1] ": {"pid": 123, "level": "error", "clock": "wall"},
    "(VllmWorker rank=2 pid=9) ": {"rank": 2, "pid": 9},
    "web-1  | ": {},
    "[pod/train-0/main] ": {},
    "worker-1: ": {"host": "worker-1"},
    "2026-01-01T00:00:00.123456789Z stderr F ": {"clock": "wall"},
    "2026-01-01T00:00:00.1234567Z ##[error]": {"level": "error"},
    "2026-01-01 00:00:00,123 - my.logger - ERROR - ": {"level": "error"},
    "2026-01-01 00:00:00.123 | ERROR    | mod.sub:func:12 - ": {"level": "error"},
    "2026-01-01T00:00:00.000Z ERROR text_generation_launcher: ": {"level": "error"},
    "2026-01-01 00:00:00.123456: E external/xla/stream.cc:12] ": {"level": "error"},
    "[2026-01-01 00:00:00,123] [INFO] [launch.py:1:main] ": {"level": "info"},
    "[INFO|trainer.py:1234] 2026-01-01 00:00:00,123 >> ": {"level": "info"},
    "08/13/2020 18:56:31 - INFO - my.trainer - ": {"level": "info", "clock": "wall"},
    "ERROR [06/09 11:05:25 d2.engine.loop]: ": {"level": "error"},
    "W0321 12:00:00.123456 1234 file.cc:12] ": {"level": "warning", "pid": 1234},
    "E0506 16:40:45.421854       1 main.go:356] ": {"level": "error"},
    "ERROR:my.package.module:": {"level": "error"},
    "2023-04-29 05:40:12.977 [170/train/570 (pid 27001)] [00000000] ": {"pid": 27001},
    "Dec  2 09:40:12 node4 trainer[812]: ": {"host": "node4", "pid": 812, "clock": "wall"},
    "22-09-01 02:31:11.512 : ": {"clock": "wall"},
    "#12 31.5 ": {"source": "build"},
    "31.55 ": {"source": "build"},
    "E   ": {},
    "[16:04:22] ": {},
    "<3>1 2026-01-01T00:00:00.123Z node4 trainer 812 - - ": {"host": "node4", "pid": 812, "clock": "wall"},
    '<165>1 2026-01-01T00:00:00+01:00 node4 app - ID47 [own@32473 unit="3"] ': {"host": "node4", "clock": "wall"},
    "<3>1 - node4 app - - - ": {"host": "node4", "clock": ""},
    "Dec  2 09:40:12 node4 trainer: ": {"host": "node4", "clock": "wall"},
    "2026-01-01 00:00:00,123;ERROR;trainer;": {"level": "error", "clock": "wall"},
    "2026-01-01 00:00:00;trainer;12;critical;": {"level": "fatal"},
    "2026-01-01T00:00:00.123Z\twarn\ttrainer/main.go:12\t": {"level": "warning"},
    "2026-01-01 00:00:00,123 | ERROR | trainer | ": {"level": "error"},
    "2026-01-01 00:00:00,123,ERROR,trainer,": {"level": "error"},
    "2026-01-01 00:00:00.123 ERROR 77 --- [main] o.l.Trainer : ": {"level": "error", "pid": 77},
    "[main] ERROR org.lab.Trainer - ": {"level": "error"},
    "2026-01-01 00:00:00 ERROR [main] org.lab.Trainer - ": {"level": "error"},
    "E, [2026-01-01T00:00:00.123 #77] ERROR -- trainer: ": {"level": "error", "pid": 77},
    "[E 2026-01-01 00:00:00.123 trainer] ": {"level": "error"},
    "9:42PM ERR ": {"level": "error"},
    "[21:42:59 WRN] ": {"level": "warning"},
    "29-Nov-2026 21:42:59.825 SEVERE [main] ": {"level": "fatal", "clock": "wall"},
    "29/11/2026 21:42:59 ": {"clock": "wall"},
    "Sun Nov 29 21:42:59 UTC 2026 ": {"clock": "wall"},
    "20261129T214259Z ERROR ": {"level": "error", "clock": "wall"},
    "1764452579.825 ": {},
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_taken_off_and_tells_who_and_when(prefix: str) -> None:
    said = strip(prefix + SAID)
    assert said.text == SAID
    told = {name: getattr(said, name) for name in PREFIXES[prefix]}
    assert told == PREFIXES[prefix]


def test_the_first_line_of_a_record_of_java_says_nothing() -> None:
    said = strip("Nov 29, 2026 9:42:59 PM org.lab.Trainer main")
    assert (said.text, said.clock) == ("", "wall")
    assert said.time_s == datetime(2026, 11, 29, 21, 42, 59, tzinfo=UTC).timestamp()
    assert strip("SEVERE: " + SAID).level == "fatal"


@pytest.mark.parametrize(
    "kernel",
    [
        f"[  123.456789] {XID}",
        f"[ 1712.331912] [ T1946] {XID}",
        f"Aug 10 15:36:05 node1 kernel: {XID}",
        f"Dec  2 09:40:12 node1 kernel: [239314.528856] {XID}",
        f"kern  :warn  : 2025-01-21T04:41:44,283302+00:00 {XID}",
        f"[Tue Aug 11 03:14:22 2026] {XID}",
        f"4,1234,56789,-;{XID}",
        f"<4>[  123.456789] {XID}",
        f"<4>1 2026-01-01T00:00:00Z node1 kernel - - - {XID}",
        f"kernel: {XID}",
        XID,
    ],
)
def test_a_kernel_line_is_the_kernels_in_every_form(kernel: str) -> None:
    said = strip(kernel)
    assert (said.text, said.source) == (XID, "kernel")


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: out of memory",
        "Error: CUDA error: invalid argument",
        "0.53 GiB free",
        "12:30 is no time",
        "[Rank 6] Watchdog caught collective operation timeout",
        "[c10d] The server socket has failed to listen",
        "NVRM: again.",
        "slurmstepd-gpu1: error: Detected 1 oom-kill event(s)",
        "| Name | Value | Other |",
        "Epoch 3: 12 of 20 | loss 0.5",
        "training failed: CUDA error",
        "[1025, 7] is the shape",
        "Sat Jun 28 15:40:02 2025 was a day",
        "  File \"/opt/x.py\", line 3, in f",
        "=========     at 0x250 in kernel",
        "2026 was a year",
        "20261129 files",
        "1764452579 bytes",
        "torch.cuda.OutOfMemoryError: CUDA out of memory",
        "[main] is on no list",
        "",
    ],
)  # fmt: skip
def test_what_is_no_prefix_stays(text: str) -> None:
    kept = strip(text).text
    assert kept == ("was a day" if text.startswith("Sat") else text)


def test_times_with_a_zone_and_without_a_year() -> None:
    there = strip("2026-03-01T14:00:00+0200 x")
    assert there.time_s == datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
    for zone, hour, minute in (
        ("-0230", 16, 30),
        ("+23:59", -10, 1),
        ("Z", 14, 0),
        ("+2400", 14, 0),
    ):  # none is of a day
        at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=hour, minutes=minute)
        assert strip(f"2026-03-01T14:00:00{zone} x").time_s == at.timestamp(), zone
    assert strip("2026-13-41 14:00:00 x").time_s is None
    assert strip("Feb 29 14:00:00 node1 tag[1]: x").time_s == datetime(NO_YEAR, 2, 29, 14, tzinfo=UTC).timestamp()


def test_a_year_that_a_line_lacks_is_that_of_the_others() -> None:
    text = f"2026-03-01 12:00:00 start\nMar  1 12:00:05 node1 kernel: {XID}\n"
    found = reading(text).events[-1].line
    assert found.time_s == datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC).timestamp()
    alone = reading(f"Mar  1 12:00:05 node1 kernel: {XID}\n").events[-1].line
    assert alone.time_s == datetime(NO_YEAR, 3, 1, 12, 0, 5, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.log", 3), ("worker-3.err", 3), ("0_stderr", 0), ("node2-rank13", 13),
        ("logs/attempt_0/5/stderr.log", 5), ("stderr.4", 4), ("train.log", None),
        ("slurm-4711.out", None), ("v2.log", None), ("h100.log", None),
    ],
)  # fmt: skip
def test_a_file_name_tells_the_rank(name: str, rank: int | None) -> None:
    assert rank_of_name(name) == rank


def test_a_lines_own_rank_comes_before_the_files() -> None:
    found = reading(f"{ILLEGAL}\n[rank5]: {ILLEGAL}\n", names=["rank3.log"]).events
    assert [event.line.rank for event in found] == [3, 5]


@examples(100)
@given(st.text(max_size=200))
def test_a_text_is_the_end_of_its_line(text: str) -> None:
    said = strip(text)
    assert text.endswith(said.text) and text[said.at :] == said.text


# --- forms of text ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        ILLEGAL,
        f"    {ILLEGAL}",
        f"\x1b[31m\x1b[1m{ILLEGAL}\x1b[0m",
        "RuntimeError: CUDA \x1b[1merror: an illegal memory\x1b[0m access was encountered",
        "RuntimeError: CUDA error: an illegal memorry\x08\x08y access was encountered",
        f"\x1b]0;title\x07{ILLEGAL}",
        f"[1;31m{ILLEGAL}[0m",
        f"^[[31m{ILLEGAL}^[[0m",
        f"10%|#   | 1/10 [00:01<00:09, 1.0it/s]\r20%|##  | 2/10 [00:02<00:08, 1.0it/s]\r{ILLEGAL}",
        f"Epoch 0:   0%|          | 0/500 [00:00<?, ?it/s]{ILLEGAL}",
        f"10%|#   | 1/10 [00:01<00:09, 1.0it/s]\x1b[A{ILLEGAL}",
        f"<pre>{ILLEGAL}</pre>",
        json.dumps({"level": "error", "msg": ILLEGAL, "ts": 1772366400.5}),
        json.dumps({"log": f"{ILLEGAL}\n", "stream": "stderr", "time": "2026-03-01T12:00:00.000000001Z"}),
        "2026-03-01T12:00:00Z stderr F " + json.dumps({"severity": "ERROR", "message": ILLEGAL}),
        f"{ILLEGAL}\r",
        f"\0\0\0\0{ILLEGAL}",
        f"\ufffd\ufffd {ILLEGAL}",
    ],
)
def test_an_error_is_found_in_every_dress(line: str) -> None:
    found = illegal(DULL * 3 + line + "\n" + DULL * 3)
    assert [event.line.number for event in found] == [4]
    assert found[0].role is Role.ROOT
    assert "illegal memory access was encountered" in found[0].line.text


def test_json_tells_time_and_level() -> None:
    (found,) = illegal(json.dumps({"levelname": "ERROR", "message": ILLEGAL, "asctime": "2026-03-01 12:00:00,5"}))
    assert (found.line.level, found.line.clock) == ("error", "wall")
    assert found.line.time_s == pytest.approx(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() + 0.5)
    assert found.line.raw.startswith('{"levelname"')


def test_entities_are_undone_in_the_text_and_stay_in_the_quotation() -> None:
    line = "TypeError: unsupported operand type(s) for +: &#39;int&#39; and &#39;str&#39;"
    (heard,) = reading(line).files[0].head
    assert heard.text.endswith("'int' and 'str'") and heard.raw == line


@pytest.mark.parametrize(
    ("encode", "binary"),
    [
        (lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"), False),
        (lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"), False),
        (lambda text: codecs.BOM_UTF8 + text.encode(), False),
        (lambda text: gzip.compress(text.encode()), False),
        (lambda text: gzip.compress(text[:200].encode()) + gzip.compress(text[200:].encode()), False),
        (lambda text: text.encode().replace(b"\n", b"\r\n"), False),
        (lambda text: text.encode("latin-1") + b"\xff\xfe\xfa\n", False),
        (lambda text: text.encode("utf-16-le"), True),
    ],
)  # fmt: skip
def test_encodings(encode: object, binary: bool) -> None:
    assert callable(encode)
    seen = reading(encode(DULL * 50 + ILLEGAL + "\n"))
    assert [event.line.number for event in seen.events] == [51]
    assert (seen.files[0].binary, seen.files[0].cut) == (binary, "")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x7fELF\x02\x01\x01" + ILLEGAL.encode() + b"\0" * 50,
        b"PK\x03\x04" + ILLEGAL.encode(),
        random.Random(3).randbytes(50_000) + ILLEGAL.encode(),
        b"\x28\xb5\x2f\xfd" + ILLEGAL.encode(),
    ],
)
def test_what_is_not_text_is_not_read_and_said_to_be_so(raw: bytes) -> None:
    seen = reading(raw)
    assert seen.files[0].binary
    assert seen.files[0].cut
    assert not seen.events


def test_damaged_gzip_is_read_as_far_as_it_goes_and_said_to_be_damaged() -> None:
    chance = random.Random(5)
    noise = "".join(chance.choice("abcdefgh ") for _ in range(400_000))
    packed = bytearray(gzip.compress(f"{ILLEGAL}\n{noise}\n".encode()))
    packed[-6] ^= 0xFF  # in the check sum
    seen = reading(bytes(packed))
    assert "damaged" in seen.files[0].cut
    assert [event.line.number for event in seen.events] == [1]
    assert seen.files[0].bytes > 300_000
    cut = reading(gzip.compress(f"{ILLEGAL}\n{noise}\n".encode())[:-3000])
    assert "ends early" in cut.files[0].cut
    assert cut.events


class Endless(io.RawIOBase):
    """A device that never ends."""

    def __init__(self, what: bytes) -> None:
        self.what = what
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        """As many bytes as are asked for."""
        self.given += size
        return (self.what * (size // len(self.what) + 1))[:size]


def test_a_device_without_an_end_is_given_up() -> None:
    zero, noise = Endless(b"\0"), Endless(random.Random(1).randbytes(1009))
    assert "NUL" in read([Input("zero", zero)]).files[0].cut
    assert zero.given < 100 * BLOCK
    assert "binary" in read([Input("noise", noise)]).files[0].cut
    assert noise.given <= 2 * BLOCK


def test_a_text_without_an_end_is_given_up() -> None:
    seen = scan.Seen()
    blocks = sum(1 for _ in scan.plain(Endless(b"y\n"), seen, most=5 * BLOCK))
    assert blocks == 5
    assert "only the first 5 MiB" in seen.cut


def test_an_empty_file_and_one_of_blanks() -> None:
    seen = reading("", "\n\n \n").files
    assert [(one.lines, one.bytes, one.head, one.tail) for one in seen] == [(0, 0, (), ()), (3, 4, (), ())]


def test_an_unreadable_stream_raises_what_it_raises() -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        read([Input("x", Broken())])


def test_two_logs_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two logs are called x"):
        read([Input("x", io.BytesIO()), Input("x", io.BytesIO())])


# --- places -----------------------------------------------------------------------------------------------------------


@examples(30)
@given(
    st.lists(st.sampled_from([DULL, "\n", "a\rb\n", f"{ILLEGAL}\n", "[rank1]: x\r\n", "é" * 30 + "\n"]), max_size=60)
)
def test_numbers_count_ends_of_line(parts: list[str]) -> None:
    text = "".join(parts)
    seen = reading(text)
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines, 1) if ILLEGAL in line), None)
    found = [event for event in seen.events if event.category == "illegal-memory-access"]
    assert [event.line.number for event in found] == ([] if first is None else [first])
    assert sum(event.line.times for event in found) == text.count(ILLEGAL)
    assert seen.files[0].lines == text.count("\n")
    for line in (*seen.files[0].head, *seen.files[0].tail):
        assert line.raw in cleaned(lines[line.number - 1].encode()).decode()


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 40])
def test_an_error_across_the_end_of_a_block_is_found(offset: int) -> None:
    dull = DULL * (BLOCK // len(DULL) + 1)
    before = dull[: BLOCK + offset - 20].rpartition("\n")[0] + "\n"
    pad = "x" * (BLOCK + offset - 20 - len(before)) + " "
    (found,) = illegal(before + pad + ILLEGAL + "\n" + dull)
    assert found.line.number == before.count("\n") + 1


def test_head_and_tail_and_the_loud() -> None:
    text = "".join(f"line {number}\n\n" for number in range(500)) + "the flux capacitor failed\n" + "bye\n" * 3
    seen = reading(text).files[0]
    assert [line.text for line in seen.head] == [f"line {number}" for number in range(ENDS)]
    assert [line.text for line in seen.tail][-4:] == ["the flux capacitor failed", "bye", "bye", "bye"]
    assert len(seen.tail) == ENDS
    assert [(line.text, line.number) for line in seen.loud] == [("the flux capacitor failed", 1001)]


def test_the_loud_are_bounded_and_their_numbers_folded() -> None:
    chance = random.Random(1)
    words = ["".join(chance.choice("abcdefghij") for _ in range(9)) for _ in range(400)]
    text = "".join(f"widget {word} failed after {index}\n" for index, word in enumerate(words))
    assert len(reading(text).files[0].loud) == LOUD
    (folded,) = reading("".join(f"widget 7 failed after {index}\n" for index in range(50))).files[0].loud
    assert folded.times == 50


def test_quiet_lines_are_not_loud() -> None:
    assert not reading("build ok, 0 errors\nvalidation error: 0.125\nfailed=0\n").files[0].loud


# --- lines of 50 MB, floods, memory -----------------------------------------------------------------------------------


def test_an_error_within_a_long_line_is_found() -> None:
    text = "x " * 1_000_000 + ILLEGAL + " y" * 1_000_000 + "\nnext\n"
    (found,) = illegal(text)
    assert found.line.number == 1
    assert len(found.line.raw) <= scan.LONGEST
    assert reading(text).files[0].lines == 2


def test_a_flood_hides_nothing_and_keeps_little() -> None:
    flood = "".join(f"{ILLEGAL} on attempt {index}\n" for index in range(3000))
    seen = reading(f"start\n{flood}{XID}\n[rank7]: {ILLEGAL}\n{flood}")
    mine = [event for event in seen.events if event.category == "illegal-memory-access"]
    assert len(mine) == FIRST + LAST + 1
    assert mine[0].line.number == 2
    assert [event.line.rank for event in mine].count(7) == 1
    assert sum(event.line.times for event in mine) == 6001
    assert any("fallen off the bus" in event.line.text for event in seen.events)


_FLOOD = """
import test_logs_reader as tests
flood = "".join(f"{tests.ILLEGAL} on attempt {index}\\n" for index in range(3000))
print([event.line for event in tests.reading(flood + f"[rank7]: {tests.ILLEGAL}\\n" + flood).events])
"""


def test_what_is_read_of_a_flood_does_not_hang_on_the_order_of_a_set() -> None:
    seen = {
        subprocess.run(
            [sys.executable, "-c", _FLOOD],
            cwd=Path(__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_a_flood_between_carriage_returns_is_read_in_part_and_counted() -> None:
    seen = reading("".join(f"{ILLEGAL} on attempt {index}\r" for index in range(3000)) + f"{XID}\n")
    mine = [event for event in seen.events if event.category == "illegal-memory-access"]
    assert len(mine) <= FIRST + LAST
    assert sum(event.line.times for event in mine) >= 3000
    assert any("fallen off the bus" in event.line.text for event in seen.events)


@pytest.mark.slow  # a hundred megabytes to pack and to read
def test_a_bomb_of_gzip_is_given_up_and_a_flood_is_not() -> None:
    flood = gzip.compress(f"{ILLEGAL} again\n".encode() * 100_000)
    (read,) = reading(flood).files
    assert (read.cut, read.lines) == ("", 100_000)
    bomb = reading(gzip.compress(f"{ILLEGAL}\n".encode() + b"\n" * (96 << 20)))
    assert "200 times the size of its gzip stream" in bomb.files[0].cut
    assert bomb.files[0].bytes < 96 << 20
    assert bomb.events  # what came before it


def test_repetitions_are_folded() -> None:
    (found,) = illegal(f"{ILLEGAL}\n" * 5000)
    assert (found.line.number, found.line.times) == (1, 5000)


def test_a_flood_of_many_processes_is_bounded() -> None:
    text = "".join(f"(Worker pid={pid}) {ILLEGAL}\n" for pid in range(5000))
    found = illegal(text)
    assert 500 <= len(found) <= 520


@pytest.mark.slow  # twenty megabytes with every allocation traced
def test_memory_stays_small() -> None:
    line = DULL + f"{ILLEGAL} number 1\n" + DULL * 20
    raw = (line * (20 * BLOCK // len(line))).encode()
    reading(raw[:BLOCK])
    tracemalloc.start()
    reading(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * BLOCK


# --- wrapped by mail --------------------------------------------------------------------------------------------------


def test_a_kernel_message_that_mail_wrapped_is_read_whole() -> None:
    whole = (
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS"
    )
    wrapped = (
        "[123456.123456] NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3,\n"
        "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS\n"
    )
    one, other = reading(f"[123456.123456] {whole}\n").events, reading(wrapped).events
    assert one and other
    assert (other[0].category, other[0].values["xid"], other[0].line.number) == (one[0].category, "31", 1)


def test_lines_that_are_whole_are_not_joined() -> None:
    text = "an ordinary line that is long enough to be wrapped by somebody\nCUDA error: out of memory\n"
    assert [event.line.number for event in reading(text).events] == [2]


# --- talk -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f"$ grep '{ILLEGAL}' train.log",
        f"root@node1:~# dmesg | grep '{ILLEGAL}'",
        f">>> print('{ILLEGAL}')",
        f'src/x.py:12:    raise ValueError("{ILLEGAL}")',
        f'    raise RuntimeError("{ILLEGAL}")',
        "I think it is because of the CUDA error: an illegal memory access was encountered",
        "Hi, we see the same CUDA error: an illegal memory access was encountered",
        "Has anyone seen CUDA error: an illegal memory access was encountered",
        "in the new release of the library there is a fix for CUDA error: an illegal memory access was encountered",
    ],
)
def test_talk_about_an_error_is_no_error(line: str) -> None:
    found = illegal(f"{DULL}{line}\n{DULL * 4}")
    assert [event.role for event in found] == [Role.ADVICE]


@pytest.mark.parametrize(
    "line",
    [
        f"  what():  {ILLEGAL[14:]}",
        f"torch.AcceleratorError: {ILLEGAL[14:]}",
        f"terminate called after throwing an instance of 'c10::Error' what(): {ILLEGAL[14:]}",
        f"ERROR: {ILLEGAL}",
        f"worker died with {ILLEGAL}",
        f"An error occurred while the worker was in the loop of the step: {ILLEGAL}",
        f"step 12 failed: {ILLEGAL[14:]}",
        f"asyncio: Task exception was never retrieved: {ILLEGAL}",
        f'time="2026-03-01T12:00:00Z" level=error msg="{ILLEGAL}"',
        f"future: <Task exception=RuntimeError('{ILLEGAL[14:]}')>",
    ],
)
def test_what_programs_put_before_an_error_is_not_talk(line: str) -> None:
    assert [event.role for event in illegal(f"{line}\n")] == [Role.ROOT]


MARKS = pytest.mark.parametrize("mark", ["> ", "# ", "// ", "* ", "### 5.4 "])


@MARKS
def test_a_log_that_was_pasted_as_a_quotation_is_a_log(mark: str) -> None:
    text = "".join(f"{mark}{line}\n" for line in ("start", DULL.strip(), ILLEGAL, "end"))
    assert [event.role for event in illegal(text)] == [Role.ROOT]


@MARKS
def test_a_quoted_error_is_talk_only_beside_one_that_is_not_quoted(mark: str) -> None:
    quoted = f"{DULL}{mark}{ILLEGAL}\n{DULL * 4}"
    assert [event.role for event in illegal(quoted)] == [Role.ROOT]
    both = [event.role for event in reading(f"{quoted}RuntimeError: CUDA error: misaligned address\n").events]
    assert both == [Role.ADVICE, Role.ROOT]


@MARKS
def test_a_traceback_within_a_comment_is_read(mark: str) -> None:
    assert traces("".join(f"{mark}{line}\n" for line in TRACE.splitlines()))[0][2:4] == (["<module>", "forward"], KIND)


def test_the_traceback_that_torchrun_repeats_is_read_with_its_exception() -> None:
    lines = TRACE.splitlines()
    block = "".join(f"  {line}\n" for line in lines).replace("  Traceback", "  traceback : Traceback", 1)
    head = "Root Cause (first observed failure):\n[0]:\n  time      : 2026-03-01_12:00:00\n  exitcode  : 1 (pid: 41)\n"
    (found,) = traces(head + block)
    assert found[2:4] == (["<module>", "forward"], KIND)


# --- tracebacks -------------------------------------------------------------------------------------------------------

TRACE = f"""Traceback (most recent call last):
  File "/app/train.py", line 10, in <module>
    main()
    ^^^^^^
  File "/opt/lib/torch/nn/modules/module.py", line 20, in forward
    return self.op(x)
{ILLEGAL}
more of the message
"""


KIND = ILLEGAL.partition(":")[0]


def traces(text: str) -> list[tuple[int, int, list[str], str, str, str]]:
    """What matters of each traceback: places, functions, exception, message, how it hangs on the one before."""
    return [
        (one.first.number, one.line.number, [frame.function for frame in one.frames], one.kind, one.message, one.within)
        for one in reading(text).tracebacks
    ]


WHOLE = (1, 7, ["<module>", "forward"], "RuntimeError", f"{ILLEGAL[14:]}\nmore of the message", "")


@pytest.mark.parametrize(
    "prefix",
    [
        "", "[rank3]: ", "(Worker pid=7) ", "2026-03-01 12:00:00,123 ", "    ", "ERROR: ", "  | ",
        "E0506 16:40:45.421854 1 m.py:3] ",
    ],
)  # fmt: skip
def test_a_traceback_with_any_prefix(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in TRACE.splitlines())
    assert traces(text) == [WHOLE]


def test_the_code_of_a_frame_is_kept() -> None:
    (one,) = reading(TRACE).tracebacks
    assert [(frame.file, frame.line, frame.code) for frame in one.frames] == [
        ("/app/train.py", 10, "main()"),
        ("/opt/lib/torch/nn/modules/module.py", 20, "return self.op(x)"),
    ]


def test_tracebacks_of_ranks_that_write_at_once() -> None:
    lines = [f"[rank{rank}]: {line}\n" for line in TRACE.splitlines() for rank in range(4)]
    found = reading("".join(lines)).tracebacks
    assert sorted(one.line.rank or 0 for one in found) == [0, 1, 2, 3]
    assert {tuple(frame.function for frame in one.frames) for one in found} == {("<module>", "forward")}


@pytest.mark.parametrize(
    ("words", "within"),
    [
        ("During handling of the above exception, another exception occurred:", "during"),
        ("The above exception was the direct cause of the following exception:", "from"),
    ],
)
def test_chained_tracebacks(words: str, within: str) -> None:
    text = TRACE.replace("more of the message\n", "") + f"\n{words}\n\n" + TRACE.replace("RuntimeError", "my.Error")
    assert [(one[3], one[5]) for one in traces(text)] == [("RuntimeError", ""), ("my.Error", within)]


def test_a_traceback_without_its_head_or_its_end() -> None:
    lines = TRACE.splitlines(keepends=True)
    assert traces("".join(lines[1:7]))[0][2:4] == (["<module>", "forward"], "RuntimeError")
    assert [one[3] for one in traces("".join(lines[:6]))] == [""]


@pytest.mark.parametrize(("strange", "kinds"), [(24, ["RuntimeError"]), (25, ["", "RuntimeError"])])
def test_so_many_lines_of_others_may_stand_between_two_frames_and_no_more(strange: int, kinds: list[str]) -> None:
    *head, frame, code, raised, _ = TRACE.splitlines()
    found = tracebacks.Tracebacks()
    for number, text in enumerate([*head, *["of another"] * strange, frame, code, raised], 1):
        found.take(Line("log", number, text, text))
    assert [one.kind for one in found.found()] == kinds


def test_tracebacks_of_ipython_pytest_and_json() -> None:
    ipython = (
        "---------------------------------------------------------------------------\n"
        "ValueError                                Traceback (most recent call last)\n"
        "File ~/env/lib/x.py:592, in Retry.increment(self, method)\n"
        "    591 if a:\n--> 592     raise ValueError(b)\n\nValueError: bad thing\n"
    )
    assert traces(ipython) == [(2, 7, ["Retry.increment(self, method)"], "ValueError", "bad thing", "")]
    pytest_own = "tests/test_x.py:16: in <module>\n    import y\nlib/y.py:3: in load\n    f()\nE   ImportError: no y\n"
    assert traces(pytest_own) == [(1, 5, ["<module>", "load"], "ImportError", "no y", "")]
    assert [one[2:] for one in traces(json.dumps({"level": "error", "message": TRACE}))] == [WHOLE[2:]]
    literal = "worker said " + json.dumps(TRACE)
    assert [one[2:4] for one in traces(literal)] == [WHOLE[2:4]]


def test_the_number_of_tracebacks_is_bounded() -> None:
    found = reading("".join(TRACE.replace("line 10", f"line {index}") for index in range(400))).tracebacks
    assert len(found) == FIRST_TRACES + LAST_TRACES
    assert found[0].frames[0].line == 0


def test_a_deep_traceback_is_bounded() -> None:
    frames = "".join(f'  File "/x.py", line {index}, in f\n    f()\n' for index in range(1000))
    (one,) = reading(f"Traceback (most recent call last):\n{frames}RecursionError: too deep\n").tracebacks
    assert len(one.frames) == 200
    assert (one.frames[0].line, one.frames[-1].line) == (0, 999)


# --- the search -------------------------------------------------------------------------------------------------------


@examples(100)
@given(st.sets(st.text("abc:", min_size=4, max_size=6), min_size=1, max_size=12), st.text("abc:", max_size=40))
def test_the_search_finds_what_is_there(words: set[str], text: str) -> None:
    wanted = {word.encode() for word in words}
    held = {word for word in wanted if word in text.encode()}
    made = Words(wanted)
    assert set(made.held_by(text.encode())) == held
    assert bool(made.places(text.encode())) == bool(held)


def test_so_many_lines_are_read_after_a_find_as_were_asked_for() -> None:
    """Between two finds and up to the end, an even and an odd number of them."""
    text = b"".join(b"boom\n" if number in (3, 12) else b"calm\n" for number in range(1, 31))
    scanner = scan.Scanner(Words([b"boom"]), lambda: Words([b"boom"]), lambda shape: True, 1)
    numbers = []
    for piece in scanner.pieces(io.BytesIO(text)):
        numbers.append(piece.number)
        if piece.found:
            scanner.owe({3: 4, 12: 3}[piece.number])
    assert numbers == [3, 4, 5, 6, 7, 12, 13, 14, 15]


BORING = (
    DULL,
    "Epoch 3:  45%|####      | 45/100 [00:10<00:12,  4.41it/s, loss=0.123]",
    "node01:4711:4712 [3] NCCL INFO Channel 07/0 : 3[3] -> 4[4] via P2P/CUMEM/read",
    "(Worker_TP0 pid=123) INFO 03-01 12:00:00 [engine.py:12] request 12ab finished in 0.125s",
    "[rank0]: batch 12 data/shard_0001.parquet memory 12.5 GiB tokens per second 12345",
    "INFO:     10.0.0.1:4711 - \"POST /v1/completions HTTP/1.1\" 200 OK",
    "2026-03-01 12:00:00 [info     ] checkpoint saved               path=/data/step-100.pt seconds=12.5",
    "Downloading shards: 100%|##########| 4/4 [00:00<00:00, 12.41it/s]",
    "iteration 100/ 2000 | consumed samples: 12800 | elapsed time per iteration (ms): 812.4 | lm loss: 2.1E+00",
)  # fmt: skip


@pytest.mark.parametrize("line", BORING)
def test_lines_of_a_healthy_run_are_no_events(line: str) -> None:
    seen = reading(f"{line}\n" * 3)
    assert [event for event in seen.events if event.role in (Role.ROOT, Role.CASCADE)] == []
    assert seen.files[0].loud == ()


@examples(60)
@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_bytes_are_read(noise: bytes, at: int) -> None:
    raw = noise[:at] + b"\n" + ILLEGAL.encode() + b"\n" + noise[at:]
    seen: Reading = reading(raw)
    assert seen.files[0].lines >= 1 or seen.files[0].cut
    packed = raw.startswith((b"\x1f\x8b", *(magic for magic, _ in scan.PACKED)))
    if not packed and not seen.files[0].cut and not raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        assert any(event.category == "illegal-memory-access" for event in seen.events)


def test_a_note_of_a_logger_ends_no_traceback() -> None:
    """The log was cut inside a traceback, and another program goes on."""
    cut = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\n    step()\n'
    (trace,) = reading(cut + "NOTE: Redirects are not supported here.\n").tracebacks
    assert trace.kind == ""  # nobody knows it
    (trace,) = reading(cut + "HALT: no more\nOSError: disk\n").tracebacks
    assert trace.kind == "OSError"


@pytest.mark.parametrize("colour", ["31", "38;2;1;2;3"])
def test_colours_go_whether_they_are_many_few_or_spelled_out(colour: str) -> None:
    def text(escape: str) -> bytes:
        painted = f"{escape}[{colour}mERROR{escape}[0m: cannot open it {escape}[2Kagain\n"
        return (painted * 50).encode()

    plain = b"ERROR: cannot open it \ragain\n" * 50
    assert [cleaned(text(escape)) for escape in ("\x1b", "\u241b", "^[", "ESC")] == [plain] * 4
    assert cleaned(b"\x1b]0;a title\x07\x1b[1m" + text("\x1b")) == plain
    assert cleaned(b"\x1b[\x1b[1m a\n" + text("\x1b")) == b"[ a\n" + plain


@pytest.mark.parametrize("blank", ["\n", "\n\n \n\t\n", " " * 9 + "\n", "\r\n"])
def test_lines_among_many_blank_ones_keep_their_numbers(blank: str) -> None:
    lines = blank.count("\n")
    runs = [300 * (number % 3) + number for number in range(150)]
    text = "".join(
        blank * times + f"RuntimeError: CUDA error: out of memory {number}\n" for number, times in enumerate(runs)
    )
    seen = read([Input("log", io.BytesIO(text.encode()))])
    ends = [sum(runs[: number + 1]) * lines + number + 1 for number in range(len(runs))]
    assert seen.files[0].lines == ends[-1]
    assert {event.line.number for event in seen.events} <= set(ends)
    for event in seen.events:
        assert event.line.text.endswith(f" {ends.index(event.line.number)}")
    assert [line.number for line in seen.files[0].tail] == ends[-40:]
