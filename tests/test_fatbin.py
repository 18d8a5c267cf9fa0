"""Device code in fat binaries that are put together here byte by byte, and in the real libraries of a torch."""

from __future__ import annotations

import contextlib
import re
import struct
import subprocess
from pathlib import Path

import pytest
import torches
from binaries import CUBIN, EXACT, FAMILY, LTO, LZ4, PLAIN, PTX, ZSTD, cubin, cubin8, entry, fat, library
from clocks import costs_less, spent
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st

from envkit.payload import elf, fatbin


def code_of(data: bytes) -> fatbin.Code | None:
    return fatbin.read(data, elf.read(data))


def embedded(*fats: bytes) -> fatbin.Code | None:
    return code_of(library(__dot__nv_fatbin=b"".join(fats)))


def _length(count: int) -> bytes:
    return b"" if count < 15 else b"\xff" * ((count - 15) // 255) + bytes([(count - 15) % 255])


def _sequence(literals: bytes, back: int, count: int) -> bytes:
    token = bytes([min(len(literals), 15) << 4 | (min(count - 4, 15) if count else 0)])
    match = struct.pack("<H", back) + _length(count - 4) if count else b""
    return token + _length(len(literals)) + literals + match


def packed(data: bytes) -> bytes:
    """An LZ4 block of ``data``: a greedy search for matches, written from the description of the block format."""
    out, start, at = b"", 0, 0
    while at < len(data) - 12:
        found = data.rfind(data[at : at + 4], max(0, at - 65535), at + 3)
        if found < 0:
            at += 1
            continue
        count = 4
        while at + count < len(data) - 5 and data[found + count] == data[at + count]:
            count += 1
        out += _sequence(data[start:at], at - found, count)
        at += count
        start = at
    return out + _sequence(data[start:], 0, 0)


def test_architectures_are_those_of_the_entries() -> None:
    first = fat(
        entry(CUBIN, 80, cubin(124)), entry(CUBIN, 90, cubin(124), EXACT), entry(PTX, 90, b".version", version=(8, 4))
    )
    second = fat(
        entry(CUBIN, 100, cubin(124), FAMILY, more=40),
        entry(PTX, 100, b"x", EXACT, (8, 6)),
        entry(CUBIN, 80, cubin(121)),
    )
    assert embedded(first, bytes(24), second) == fatbin.Code(
        ("sm_80", "sm_90a", "sm_100f"), ("compute_90", "compute_100a"), ("8.4", "8.6"), "12.4"
    )


def test_relocatable_code_counts_too() -> None:
    data = library(
        __nv_relfatbin=fat(entry(PTX, 80, b"x", version=(9, 0))), __dot__nv_fatbin=fat(entry(CUBIN, 75, cubin(111)))
    )
    assert code_of(data) == fatbin.Code(("sm_75",), ("compute_80",), ("9.0",), "11.1")


def test_intermediate_code_is_no_code_for_a_gpu() -> None:
    assert embedded(fat(entry(LTO, 90, b"x"), entry(CUBIN, 80, cubin(124)))) == fatbin.Code(("sm_80",), (), (), "12.4")


def test_versions_are_sorted_as_numbers() -> None:
    code = embedded(fat(*(entry(PTX, 80, b"x", version=one) for one in ((9, 10), (9, 9), (8, 1)))))
    assert code is not None and code.isa == ("8.1", "9.9", "9.10")


@pytest.mark.parametrize(
    "data",
    [
        library(__dot__text=b"code"),
        library(__dot__rodata=fat(entry(CUBIN, 80, cubin(124)))),  # nobody registers what stands there
    ],
)
def test_a_file_without_device_code_has_none(data: bytes) -> None:
    assert code_of(data) is None


def test_without_a_section_table_nothing_is_said() -> None:
    data = bytearray(library(__dot__nv_fatbin=fat(entry(CUBIN, 80, cubin(124)))))
    struct.pack_into("<Q", data, 40, 0)
    with pytest.raises(ValueError, match="no section table"):
        code_of(bytes(data))


@pytest.mark.parametrize(
    ("code", "flags", "toolkit"),
    [
        (cubin(118), PLAIN, "11.8"),
        (packed(cubin(129, 4000)), LZ4, "12.9"),
        (cubin8("13.0"), PLAIN, "13.0"),
        (cubin8("12.8"), PLAIN, "12.8"),
        (cubin8("13.10"), PLAIN, "13.10"),
        (packed(cubin8("13.2", 9000)), LZ4, "13.2"),
        (cubin8("13.0"), ZSTD, ""),  # not decoded here
        (b"no ELF file at all, but long enough", PLAIN, ""),
        (cubin8("13.0", owner=b"Another One\0"), PLAIN, ""),
        (packed(cubin8("13.0"))[:40], LZ4, ""),  # damaged: what is there holds no note
    ],
)
def test_the_toolkit_is_what_the_machine_code_says(code: bytes, flags: int, toolkit: str) -> None:
    assert embedded(fat(entry(CUBIN, 90, code, flags))) == fatbin.Code(("sm_90",), (), (), toolkit)


def test_the_newest_toolkit_counts() -> None:
    every = [entry(CUBIN, 80, cubin(number)) for number in (121, 128, 118)]
    assert embedded(fat(*every)) == fatbin.Code(("sm_80",), (), (), "12.8")
    code = embedded(fat(*every, entry(CUBIN, 100, cubin8("13.0"))))
    assert code is not None and code.built_with == "13.0"
    code = embedded(fat(entry(CUBIN, 100, cubin8("13.9")), entry(CUBIN, 100, cubin8("13.10", 400)), *every))
    assert code is not None and code.built_with == "13.10"


@examples(100)
@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([b"a" * 400, b"ab" * 50, b"kernel name "])), st.integers(0, 3000)
)
def test_a_block_and_any_prefix_of_it_is_unpacked(parts: list[bytes], most: int) -> None:
    data = b"".join(parts)
    block = packed(data)
    assert fatbin.lz4(block, len(data)) == data
    assert fatbin.lz4(block, most) == data[:most]


@examples(100)
@given(st.binary(max_size=300), st.integers(0, 3000))
def test_no_block_unpacks_to_more_than_was_asked_for(block: bytes, most: int) -> None:
    assert len(fatbin.lz4(block, most)) <= most


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (fat(entry(CUBIN, 80, cubin(124)))[:-8], "are there"),  # cut off
        (fat(entry(CUBIN, 80, cubin(124)))[:12], "cut off"),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 32) + bytes(32), "cut off"),  # an entry of half a header
        (struct.pack("<IHHQ", 0xBA55ED50, 2, 16, 8) + bytes(8), "version 2"),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 63) + bytes(8), "are there"),
        (fat(entry(CUBIN, 80, cubin(124), more=1 << 10)[:200]), "are there"),
        (bytes(64), "no fat binary"),
        (fat(bytes(64)), "has 0 and 0 bytes"),  # an entry of no length would never end
    ],
)
def test_a_damaged_fat_binary_is_refused(broken: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        embedded(broken)


WHOLE = library(
    __dot__nv_fatbin=fat(entry(CUBIN, 80, packed(cubin(124, 500)), LZ4), entry(PTX, 80, b"x", version=(8, 4)))
    + fat(entry(CUBIN, 100, cubin8("13.0"), more=40))
)


@examples(120)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) // 4 - 1), st.integers(0, 0xFFFFFFFF)), min_size=1, max_size=4))
def test_damage_gives_value_error_or_an_answer_and_soon(changes: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for at, value in changes:
        struct.pack_into("<I", data, 4 * at, value)
    with costs_less(5.0), contextlib.suppress(ValueError):
        code_of(bytes(data))


def site() -> Path:
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    return Path(subprocess.run([torches.PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout.strip())


@torches.needs_torch
def test_real_libraries_hold_what_cuobjdump_lists() -> None:
    tool = site() / "triton/backends/nvidia/bin/cuobjdump"
    small = [path for path in site().glob("nvidia/*/lib/*.so*") if path.stat().st_size < 60e6]
    small.append(site() / "torch/lib/libtorch_cuda_linalg.so")
    read = 0
    for path in small:
        data = elf.mapped(str(path))
        code = fatbin.read(data, elf.read(data))
        done = subprocess.run(
            [tool, "-all", "--list-elf", "--list-ptx", path], capture_output=True, text=True, check=False
        )
        if not code or "Invalid ELF" in done.stdout + done.stderr:  # newer tools refuse what older ones made
            continue
        # Letters of cubins are the tool's own opinion (see fatbin.py); those of PTX agree.
        listed = {int(number) for number in re.findall(r"\.sm_([0-9]+)[af]?\.cubin", done.stdout)}
        assert {int(re.sub("[^0-9]", "", arch)) for arch in code.sass} == listed, path
        assert set(code.ptx) == {f"compute_{arch}" for arch in re.findall(r"\.sm_(\w+)\.ptx", done.stdout)}, path
        read += 1
    assert read > 3


@torches.needs_torch
def test_torch_holds_what_it_says_and_is_read_within_the_budget() -> None:
    said = subprocess.run(
        [torches.PYTHON, "-c", "import torch; print(torch._C._cuda_getArchFlags(), torch.version.cuda)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    path = str(site() / "torch/lib/libtorch_cuda.so")
    costs = []
    for _ in range(3):
        begun = spent()
        data = elf.mapped(path)
        code = fatbin.read(data, elf.read(data))
        costs.append(spent() - begun)
    assert code is not None and set(said[:-1]) <= {*code.sass, *code.ptx}
    assert code.built_with in ("", said[-1])
    assert min(costs) < 0.25
