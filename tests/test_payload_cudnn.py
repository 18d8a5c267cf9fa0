"""What cuDNN's libraries open by name, read in files put together here."""

from __future__ import annotations

import pytest
from elves import elf_file

from envkit.payload import cudnn, elf

NAMES = b"\0libcudnn_ops.so\0libcudnn_graph.so\0libcudnn.so\0libother.so\0"
SHIM = elf_file(soname="libcudnn.so.9", undefined=["dlopen"], rodata=NAMES)
OPS = elf_file(soname="libcudnn_ops.so.9", needed=["libcudnn_graph.so.9", "libc.so.6"])
FILES = {"libcudnn.so.9": SHIM, "libcudnn_ops.so.9": OPS, "libcudnn_graph.so.9": elf_file(soname="libcudnn_graph.so.9")}


def opened(name: str, data: bytes) -> tuple[str, ...]:
    return cudnn.opened(name, memoryview(data), elf.read(data))


@pytest.mark.parametrize(
    ("name", "data", "names"),
    [
        ("libcudnn.so.9", SHIM, ("libcudnn_graph.so.9", "libcudnn_ops.so.9")),
        ("libcudnn.so.9.14.0", SHIM, ("libcudnn_graph.so.9", "libcudnn_ops.so.9")),
        ("libcudnn.so.8", elf_file(undefined=["dlopen"], rodata=NAMES), ("libcudnn_graph.so.8", "libcudnn_ops.so.8")),
        ("libcudnn_heuristic.so.9", elf_file(soname="libcudnn_heuristic.so.9", rodata=NAMES), ()),
        ("libother.so.9", elf_file(soname="libother.so.9", undefined=["dlopen"], rodata=NAMES), ()),
        (
            "libcudnn_ops.so.9",
            elf_file(soname="libcudnn_ops.so.9", needed=["libcudnn_graph.so.9"], undefined=["dlopen"], rodata=NAMES),
            (),
        ),
    ],
    ids=["shim", "full-name", "without-soname", "opens-nothing", "other-library", "own-and-needed"],
)
def test_a_library_opens_the_names_in_its_strings_with_its_own_number(
    name: str, data: bytes, names: tuple[str, ...]
) -> None:
    assert opened(name, data) == names


def asked_by(name: str) -> set[str]:
    header = elf.read(FILES[name])
    return cudnn.refers(header, opened(name, FILES[name]))


@pytest.mark.parametrize("gone", ["", "libcudnn_ops.so.9", "libcudnn_graph.so.9"])
def test_the_closure_names_what_is_not_there(gone: str) -> None:
    names = set(FILES) - {gone}
    referenced, missing = cudnn.closure(names, asked_by, names.__contains__)
    assert referenced == ("libcudnn_graph.so.9", "libcudnn_ops.so.9")
    assert missing == ((gone,) if gone else ())


def test_another_major_beside_it_does_not_fill_a_gap() -> None:
    names = {"libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_ops.so.8"}
    asked = {"libcudnn.so.9": asked_by("libcudnn.so.9")}
    assert cudnn.closure(names, lambda name: asked.get(name, ()), names.__contains__)[1] == ("libcudnn_ops.so.9",)


def test_the_files_of_other_libraries_are_passed_over() -> None:
    assert cudnn.closure(["libcudart.so.12", "libcudnn.txt"], asked_by, bool) == ((), ())
