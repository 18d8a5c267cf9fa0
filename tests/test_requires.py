"""Who requires whom in a lock, as trees and reasons; whole documents of made-up locks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envkit.errors import Undecided, UsageError
from envkit.plan import lockfile as locks
from envkit.plan import requires
from envkit.plan.lockfile import Lock, Pin
from envkit.plan.requires import Member
from envkit.plan.spec import load as load_spec
from envkit.system.index import IndexFile

ROOT = Path(__file__).resolve().parents[1]


def held(*rows: tuple[str, str, str, str]) -> dict[str, Member]:
    """Wheels by rows: name, layer, what the spec asks for, and who requires it."""
    found = {}
    for name, layer, asked, by in rows:
        pin = Pin(name, "1", f"{name}-1-py3-none-any.whl", "", layer=layer)
        found[name] = Member(pin, tuple(asked.split()), tuple(by.split()))
    return found


LOCK = held(
    ("torch", "runtime", "torch>=2", "vision"),
    ("vision", "runtime", "vision", ""),
    ("audio", "runtime", "audio[x]", ""),
    ("deep", "runtime", "", "mid gone"),
    ("mid", "runtime", "", "torch audio"),
    ("own", "runtime", "", ""),
    ("leaf", "runtime", "", "own"),
    ("ninja", "devel", "", ""),
    ("one", "devel", "", "two"),
    ("two", "devel", "", "one"),
)


def test_a_tree_begins_with_torch_and_shows_each_thing_once() -> None:
    assert list(requires.tree(LOCK)) == [
        "torch 1  [torch>=2]",
        "  mid 1",
        "    deep 1",
        "audio 1  [audio[x]]",
        "  mid 1 (*)",
        "vision 1",
        "  torch 1 (*)",
        "besides, for every image:",
        "own 1",
        "  leaf 1",
        "besides, for the flavor devel:",
        "ninja 1",
        "one 1",
        "  two 1",
        "    one 1 (*)",
    ]


def test_a_tree_is_cut_at_a_depth() -> None:
    assert list(requires.tree(LOCK, 0))[:3] == ["torch 1 (*)  [torch>=2]", "audio 1 (*)  [audio[x]]", "vision 1 (*)"]
    assert list(requires.tree(LOCK, 1))[:6] == [
        "torch 1  [torch>=2]", "  mid 1 (*)", "audio 1  [audio[x]]", "  mid 1 (*)", "vision 1", "  torch 1 (*)"
    ]  # fmt: skip
    assert list(requires.tree(LOCK, 2))[2] == "    deep 1", "what needs nothing is whole wherever it is cut"


def test_what_each_wheel_needs_of_the_others() -> None:
    found = requires.needed(LOCK)
    assert (found["torch"], found["audio"], found["vision"]) == (("mid",), ("mid",), ("torch",))
    assert (found["mid"], found["deep"], found["one"], found["two"]) == (("deep",), (), ("two",), ("one",))


def test_why_a_wheel_is_there() -> None:
    def of(name: str, **asked: str) -> list[str]:
        return list(requires.because(LOCK, name, asked))

    assert of("deep") == ["mid 1 needs deep, torch needs mid, and the spec asks for torch>=2"]
    assert of("deep", mid="deep>=3") == ["mid 1 needs deep>=3, torch needs mid, and the spec asks for torch>=2"]
    assert of("mid") == [
        "torch 1 needs mid, and the spec asks for torch>=2", "audio 1 needs mid, and the spec asks for audio[x]"
    ]  # fmt: skip
    assert of("torch") == ["the spec asks for torch>=2", "vision 1 needs torch, and the spec asks for vision"]
    assert of("own") == ["envkit adds own to every image"]
    assert of("ninja") == ["envkit adds ninja to images of flavor devel"]
    assert of("leaf") == ["own 1 needs leaf, and envkit adds own to every image"]
    assert of("one") == ["two 1 needs one"] and of("vision") == ["the spec asks for vision"]


def test_the_nearest_way_up_is_taken() -> None:
    rows = held(
        ("top", "runtime", "top", ""), ("far", "runtime", "", "top"), ("a", "runtime", "", "far near"),
        ("near", "runtime", "near", ""), ("x", "runtime", "", "a"), ("c", "runtime", "", "d"),
        ("d", "runtime", "", "c"), ("y", "runtime", "", "c"),
    )  # fmt: skip
    assert requires.paths(rows, "x") == (("a", "near"),)
    assert requires.paths(rows, "y") == (("c",),), "all ways from a circle lead back"


class Pages:
    """An index with these wheels and what their METADATA says."""

    def __init__(self, **metadata: str) -> None:
        self.metadata_of = metadata

    def files(self, name: str) -> tuple[IndexFile, ...]:
        other = IndexFile(f"{name}-0-py3-none-any.whl", "u")
        return (other, IndexFile(f"{name}-1-py3-none-any.whl", "u")) if name in self.metadata_of else ()

    def metadata(self, file: IndexFile) -> str:
        assert "-1-" in file.name
        if not self.metadata_of[file.name.partition("-")[0]]:
            raise OSError("cut off")
        return self.metadata_of[file.name.partition("-")[0]]


@pytest.fixture(scope="module")
def lock() -> Lock:
    found = locks.load(load_spec(ROOT / "images" / "torch-2.6-cu124"))
    assert found is not None
    return found


def needs(*lines: str) -> str:
    return "Metadata-Version: 2.1\nName: z\nVersion: 1\n" + "".join(f"Requires-Dist: {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("B>=1", "c>=9"), "B>=1"),
        (("b>=1", "b<3; sys_platform == 'linux'", "b==7; sys_platform == 'win32'"), "b>=1, b<3"),
        (("b>=1", "b>=1"), "b>=1"),
        (("b>=1; extra == 'x'",), "b>=1 for an extra"),
        (("b>=1; extra == 'x'", "b<2"), "b<2"),
        (("b; sys_platform == 'win32'",), ""),
        ((), ""),
    ],
)
def test_what_a_wheel_asks_of_another(lock: Lock, lines: tuple[str, ...], said: str) -> None:
    pages: Any = Pages(a=needs(*lines))
    assert requires.asks(pages, Pin("a", "1", "a-1-py3-none-any.whl", ""), "b", lock) == said


def test_what_is_not_known_of_a_requirer_is_said(lock: Lock) -> None:
    rows = held(
        ("b", "runtime", "", "a c d gone"), ("a", "runtime", "", ""), ("c", "runtime", "", ""), ("d", "runtime", "", "")
    )
    good: Any = Pages(a=needs("b>=1"), c=needs("b>=2"), d=needs("b"))
    assert requires.bounds(rows, "b", lock, good) == ({"a": "b>=1", "c": "b>=2", "d": "b"}, "")
    lost: Any = Pages(a=needs("b>=1"), d=needs("b"))
    said = "c-1-py3-none-any.whl is not on the package index that was asked"
    assert requires.bounds(rows, "b", lock, lost) == ({"a": "b>=1", "d": "b"}, said)
    cut: Any = Pages(a="", c=needs("b"), d=needs("b"))
    assert requires.bounds(rows, "b", lock, cut) == ({"c": "b", "d": "b"}, "cut off")
    with pytest.raises(Undecided):
        requires.asks(lost, rows["c"].pin, "b", lock)


def test_no_more_requirers_than_a_dozen_are_read(lock: Lock) -> None:
    names = [f"r{number:02}" for number in range(13)]
    rows = held(("b", "runtime", "", " ".join(names)), *((name, "runtime", "", "") for name in names))
    pages: Any = Pages(**dict.fromkeys(names, needs("b")))
    assert list(requires.bounds(rows, "b", lock, pages)[0]) == names[:12]


def test_what_a_lock_contains(lock: Lock) -> None:
    assert requires.in_lock(lock, "Torch") == "torch" and requires.in_lock(lock, lock.debs[0].name) == lock.debs[0].name
    with pytest.raises(UsageError) as caught:
        requires.in_lock(lock, lock.installer.name)
    assert caught.value.message == (
        f"{lock.installer.name} {lock.installer.version} only installs the other wheels: it is no part of the image"
    )
    for text in ("torhc", "!!"):
        with pytest.raises(UsageError) as caught:
            requires.in_lock(lock, text)
        assert caught.value.message.startswith(f"the lock contains no {text}")
        assert caught.value.fix == "`envkit tree` lists its wheels"
    with pytest.raises(UsageError) as caught:
        requires.in_lock(replace(lock, preinstalled=lock.wheels[:1]), "nosuch")
    assert caught.value.fix == f"the base {lock.image} may bring it, and `envkit audit` lists what an image contains"


def test_why_a_debian_package_is_there(lock: Lock) -> None:
    deb = lock.debs[0]
    made = replace(
        lock, apt={deb.layer: ("own=1", "more"), "other": ("named=2",)}, wish={**lock.wish, "apt": ("asked=3",)}
    )

    def of(name: str) -> str:
        return requires.because_of_deb(replace(made, debs=(replace(deb, name=name),)), name)

    assert (
        of("asked") == "the spec asks for asked in `apt`" and of("own") == f"envkit adds own to the layer {deb.layer}"
    )
    assert of("named") == "envkit adds named to the layer other"
    assert of("brought") == f"apt-get takes it in the layer {deb.layer} for own=1, more"
    bare = replace(made, apt={}, debs=(replace(deb, name="x"),))
    assert requires.because_of_deb(bare, "x") == f"apt-get takes it in the layer {deb.layer} for what is below it"
