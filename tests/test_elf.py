"""The payload's ELF reader, against pyelftools and against files that were damaged on purpose."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torches
from clocks import costs_less
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection
from elves import elf_file
from fuzzed import examples
from gathered import gathered
from hypothesis import given
from hypothesis import strategies as st

from envkit.payload import elf
from envkit.payload.probe import maps

# An interpreter may have all its modules built in; wheels with compiled modules are there in any case.
_DYNLOAD = sorted(Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so"))
EXTENSIONS = (_DYNLOAD + sorted(Path(sysconfig.get_path("platlib")).rglob("*.so")))[:60]
LIBRARIES = sorted({*(path for path in maps.mapped() if os.path.exists(path)), *map(str, EXTENSIONS)})
SMALL = min((Path(path).read_bytes() for path in LIBRARIES), key=len)
LIMIT_S = 5.0  # for one damaged file; the whole ones take under a millisecond


def of(path: str) -> elf.Elf:
    return elf.read(elf.mapped(path))


def test_there_is_something_to_read() -> None:
    assert len(LIBRARIES) > 10
    assert len(SMALL) > 1000


@gathered(LIBRARIES)
def test_a_library_is_read_as_pyelftools_reads_it(path: str) -> None:
    mine = of(path)
    with open(path, "rb") as file:
        other = ELFFile(file)
        section = other.get_section_by_name(".dynamic")
        assert isinstance(section, DynamicSection)
        tags: list[Any] = list(section.iter_tags())
        assert mine.needed == tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED")
        assert mine.soname == next((tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"), "")
        for name, paths in (("runpath", mine.runpath), ("rpath", mine.rpath)):
            theirs = next((getattr(tag, name) for tag in tags if tag.entry.d_tag == f"DT_{name.upper()}"), "")
            assert ":".join(paths) == theirs
        assert mine.machine == {"x64": "x86_64", "AArch64": "aarch64"}[other.get_machine_arch()]
        for each in other.iter_sections():
            if each.name:
                held = each["sh_type"] != "SHT_NOBITS"
                assert mine.sections[each.name] == ((each["sh_offset"], each["sh_size"]) if held else (0, 0))
        needs = next((one for one in other.iter_sections() if isinstance(one, GNUVerNeedSection)), None)
        wanted = needs.iter_versions() if needs else []
        assert list(mine.needs) == [(who.name, tuple(aux.name for aux in names)) for who, names in wanted]
        defines = next((one for one in other.iter_sections() if isinstance(one, GNUVerDefSection)), None)
        assert list(mine.defines) == ([next(names).name for _, names in defines.iter_versions()] if defines else [])


@pytest.mark.parametrize("path", LIBRARIES[:12])
def test_symbols_are_those_that_pyelftools_reads(path: str) -> None:
    data = elf.mapped(path)
    mine = list(elf.symbols(data, elf.read(data)))
    with open(path, "rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(section, SymbolTableSection)
        theirs = [
            (one.name, one["st_shndx"] != "SHN_UNDEF", one["st_info"]["bind"] == "STB_WEAK")
            for one in section.iter_symbols()
            if one.name and one["st_info"]["bind"] != "STB_LOCAL"
        ]
    assert [(one.name, one.defined, one.weak) for one in mine] == theirs


def test_a_symbol_says_its_version_and_who_provides_it() -> None:
    libc = next(path for path in LIBRARIES if os.path.basename(path).startswith("libc.so"))
    data = elf.mapped(libc)
    file = elf.read(data)
    mine = {(one.name, one.version): one for one in elf.symbols(data, file) if one.defined}
    version = next(version for name, version in mine if name == "getpid")
    assert version.startswith("GLIBC_2.") and version in file.defines and mine["getpid", version].provider == ""
    asking = [(one, elf.mapped(one)) for one in map(str, EXTENSIONS)]
    wanted = {symbol for _, data in asking for symbol in elf.symbols(data, elf.read(data)) if not symbol.defined}
    providers = {one.provider for one in wanted if one.version.startswith("GLIBC_")}
    assert {"libc.so.6", "libm.so.6"} <= providers and all(".so." in name for name in providers)
    assert any(one.weak for one in wanted) and any(one.name.startswith("Py") and not one.version for one in wanted)


def test_without_a_section_table_the_hash_table_counts_the_symbols() -> None:
    for path in map(str, EXTENSIONS[:20]):
        whole = Path(path).read_bytes()
        bare = bytearray(whole)
        struct.pack_into("<Q", bare, 40, 0)  # e_shoff
        file = elf.read(bytes(bare))
        assert file.sections == {}
        assert file._replace(sections=elf.read(whole).sections) == elf.read(whole)
        assert list(elf.symbols(bytes(bare), file)) == list(elf.symbols(whole, elf.read(whole)))


@pytest.mark.parametrize("tag", [5, 6, 10])  # DT_STRTAB, DT_SYMTAB, DT_STRSZ
def test_a_file_that_lacks_one_of_the_tables_has_no_symbols(tag: int) -> None:
    data = bytearray(elf_file(defines=["f"]))
    assert [one.name for one in elf.symbols(data, elf.read(data))] == ["f"]
    start, size = elf.read(data).sections[".dynamic"]
    (place,) = [at for at in range(start, start + size, 16) if struct.unpack_from("<Q", data, at) == (tag,)]
    struct.pack_into("<Q", data, place, 0x6FFFFF00)  # a tag that means nothing
    assert list(elf.symbols(data, elf.read(data))) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x7fELF",
        b"#!/bin/sh\n" * 20,
        b"\x7fELF\x01\x01" + b"\0" * 100,  # 32 bits
        b"\x7fELF\x02\x02" + b"\0" * 100,  # big-endian
        b"\x7fELF\x02\x01" + b"\0" * 10 + struct.pack("<HH", 1, 62) + b"\0" * 100,  # an object file
    ],
)
def test_what_is_no_such_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ELF"):
        elf.read(data)


def test_an_empty_file_and_a_missing_one_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(b"")
    with pytest.raises(ValueError, match="empty"):
        elf.mapped(str(tmp_path / "x.so"))
    with pytest.raises(FileNotFoundError):
        elf.mapped(str(tmp_path / "y.so"))


def test_a_file_that_was_cut_off_is_refused_wherever_the_cut_is() -> None:
    for size in range(0, len(SMALL), 97):
        with pytest.raises(ValueError, match=r"ends at|not a 64-bit"):
            elf.read(SMALL[:size])


def consumed(data: bytes) -> None:
    """Reads all there is; only ValueError may come, and soon."""
    with costs_less(LIMIT_S), contextlib.suppress(ValueError):
        for _ in elf.symbols(data, elf.read(data)):
            pass


WORDS = st.sampled_from([0, 1, 16, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1])


@examples(120)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 9), WORDS | st.integers(0, 1 << 20)), min_size=1, max_size=8))
def test_a_damaged_file_raises_value_error_or_nothing(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    for at, value in changes:
        struct.pack_into("<Q", data, at // 8 * 8, value)
    consumed(bytes(data))


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 1 << 30), WORDS), min_size=1, max_size=4))
def test_damage_to_the_tables_themselves_is_bounded(changes: list[tuple[int, int]]) -> None:
    file = elf.read(SMALL)
    names = (".dynamic", ".gnu.version_r", ".gnu.version", ".dynsym", ".gnu.hash", ".shstrtab")
    spots = [at for name in names if name in file.sections for at in range(*_span(file.sections[name]), 4)]
    spots += list(range(16, 64, 2))  # the file header
    data = bytearray(SMALL)
    for at, value in changes:
        struct.pack_into("<I", data, spots[at % len(spots)], value & 0xFFFFFFFF)
    consumed(bytes(data))


def _span(place: tuple[int, int]) -> tuple[int, int]:
    return place[0], place[0] + place[1] - 4


def test_a_name_without_end_is_refused_soon() -> None:
    at, size = elf.read(SMALL).sections[".dynstr"]
    data = bytearray(SMALL)
    data[at : at + size] = b"x" * size
    with pytest.raises(ValueError, match="does not end"):
        elf.read(bytes(data))


def test_versions_that_lead_back_to_themselves_end() -> None:
    file = elf.read(SMALL)
    at, _ = file.sections[".gnu.version_r"]
    data = bytearray(SMALL)
    # vn_aux and vn_next of 16 lead each entry into the next one, and vna_next of 2^32 - 16 would lead back.
    struct.pack_into("<HHIII", data, at, 1, 0xFFFF, 1, 16, 16)
    consumed(bytes(data))


@pytest.mark.parametrize(
    ("entry", "expanded"),
    [
        ("$ORIGIN", "/a/b"),
        ("$ORIGIN/", "/a/b"),
        ("${ORIGIN}/../x", "/a/b/../x"),
        ("$ORIGIN:", "/a/b:"),
        ("/usr/$LIB/x", "/usr/lib64/x"),
        ("/opt/${PLATFORM}", "/opt/haswell"),
        ("$ORIGINAL", "$ORIGINAL"),
        ("$ORIGIN_X", "$ORIGIN_X"),
        ("${ORIGIN", "${ORIGIN"),
        ("$HOME/x", "$HOME/x"),
        ("/plain/", "/plain"),
    ],
)
def test_tokens_are_replaced_as_the_linker_does(entry: str, expanded: str) -> None:
    assert elf.expand((entry,), "/a/b/libx.so", "lib64", "haswell") == (expanded,)


def test_lib_and_platform_are_this_machines_where_nobody_says() -> None:
    machine = os.uname().machine
    lib, platform = elf.expand(("$LIB", "$PLATFORM"), "/a/x.so")
    assert lib == elf.own_lib() and platform == machine
    libc = next(path for path in LIBRARIES if os.path.basename(path).startswith("libc.so"))
    there = f"/usr/{lib}" if os.path.exists(f"/usr/{lib}/libc.so.6") else f"/{lib}"
    assert os.path.samefile(there, os.path.dirname(libc))


@torches.needs_torch
def test_all_libraries_of_torch_are_read_within_the_budget() -> None:
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    site = subprocess.run([torches.PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    paths = [str(path) for path in Path(site).rglob("*.so*") if path.is_file() and path.suffix != ".h"]
    assert len(paths) > 50
    for path in paths:
        of(path)  # the second round measures reading, not the disk
    with costs_less(0.3 * max(1.0, len(paths) / 400)):
        for path in paths:
            of(path)
