"""A tree is what a container would see: of layers in every packing, of a folder, and never of more than is there."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import socket
import tarfile
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from fake_docker import FakeDocker
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st
from test_engine_local import PYTHON, context
from test_layers import classic, config, files, member, oci, pack
from test_prove import FakeEngine, layer

from envkit.engine import BuildRequest, Engine, StoredImage
from envkit.engine.docker import DockerEngine
from envkit.engine.local import LocalEngine
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.image.tar import Broken
from envkit.image.tree import Entry, Tree, Unreadable, open_tree
from envkit.image.tree.parts import Budget, Layer, merge
from envkit.image.tree.saved import Piece, Spill, image_in

ZSTD = shutil.which("zstd")
Member = tuple[tarfile.TarInfo, bytes]


def no_engine() -> Engine:
    raise AssertionError("no engine is needed")


def quiet(line: str) -> None:
    pass


@contextmanager
def opened(saved: bytes, folder: Path) -> Iterator[Tree]:
    path = folder / "image.tar"
    path.write_bytes(saved)
    with open_tree(str(path), no_engine, quiet) as tree:
        yield tree


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this test alone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def special(name: str, kind: bytes, link: str = "") -> Member:
    info, _ = member(name, kind=kind)
    info.linkname = link
    return info, b""


def folder(name: str, mode: int = 0o755) -> Member:
    info, _ = member(name, kind=tarfile.DIRTYPE)
    info.mode = mode
    return info, b""


def link(name: str, to: str) -> Member:
    return special(name, tarfile.SYMTYPE, to)


def hard(name: str, to: str) -> Member:
    return special(name, tarfile.LNKTYPE, to)


def seen(tree: Tree) -> dict[str, str]:
    """Every path with its kind, or its content for a file and its goal for a link."""
    shown = {}
    for path, entry in tree.entries.items():
        shown[path] = bytes(tree.data(path)).decode() if entry.kind == "file" else entry.link or entry.kind
    return shown


BASE = pack(
    [
        folder("./"), folder("etc/", 0o750), member("etc/a", b"one"), member("etc/b", b"two"), folder("old/"),
        member("old/x", b"gone"), member("old/deep/y", b"gone too"), link("lib", "usr/lib"),
        member("usr/lib/so", b"\x7fELF"), hard("usr/lib/so.1", "usr/lib/so"), special("dev/null", tarfile.CHRTYPE),
        special("run/pipe", tarfile.FIFOTYPE),
    ]
)  # fmt: skip
TOP = pack([member("etc/.wh.a"), member("etc/b", b"TWO!"), member("old/.wh..wh..opq"), member("old/new", b"here")])
SEEN = {
    "/": "directory", "/dev": "directory", "/dev/null": "other", "/etc": "directory", "/etc/b": "TWO!",
    "/lib": "usr/lib", "/old": "directory", "/old/new": "here", "/run": "directory", "/run/pipe": "other",
    "/usr": "directory",
    "/usr/lib": "directory", "/usr/lib/so": "\x7fELF", "/usr/lib/so.1": "\x7fELF",
}  # fmt: skip


def zstd(data: bytes) -> bytes:
    """``data`` in one frame of raw blocks (RFC 8878): what any zstd unpacks, made without one."""
    blocks = [data[at : at + 65536] for at in range(0, len(data), 65536)] or [b""]
    frame = b"\x28\xb5\x2f\xfd\xa0" + len(data).to_bytes(4, "little")
    for number, block in enumerate(blocks, 1):
        frame += ((len(block) << 3) | (number == len(blocks))).to_bytes(3, "little") + block
    return frame


# Saved images.


@pytest.mark.parametrize(
    "saved",
    [
        classic([BASE, TOP]),
        oci([BASE, TOP]),
        oci([BASE, TOP], manifest_json=True),
        oci([BASE, TOP], nested=True),
        oci([BASE, TOP], packed=lambda one: gzip.compress(one, mtime=0)),
        oci([BASE, TOP], packed=lambda one: gzip.compress(one[:700]) + gzip.compress(one[700:])),
        gzip.compress(oci([BASE, TOP], packed=gzip.compress)),
        pytest.param(oci([BASE, TOP], packed=zstd), marks=pytest.mark.skipif(not ZSTD, reason="no zstd program")),
        pytest.param(zstd(oci([BASE, TOP])), marks=pytest.mark.skipif(not ZSTD, reason="no zstd program")),
    ],
    ids=["classic", "oci", "both", "nested", "gzip", "gzip in two streams", "gzip twice", "zstd", "zstd outside"],
)  # fmt: skip
def test_every_packing_gives_one_tree(saved: bytes, tmp_path: Path, temporary: Path) -> None:
    with opened(saved, tmp_path) as tree:
        assert seen(tree) == SEEN
        assert tree.digest == f"sha256:{sha256(config([BASE, TOP])).hexdigest()}"
        assert tree.name == str(tmp_path / "image.tar")
        assert [(one.id, one.size) for one in tree.layers] == [
            (f"sha256:{sha256(BASE).hexdigest()}", 3 + 3 + 4 + 8 + 4), (f"sha256:{sha256(TOP).hexdigest()}", 4 + 4),
        ]  # fmt: skip
        assert tree.hidden == 3 + 3 + 4 + 8
        assert [path for path, _ in tree.removed] == ["/etc/a", "/etc/b", "/old/deep/y", "/old/x"]
        assert [bytes(tree.removed_data(*one)) for one in tree.removed] == [b"one", b"two", b"gone too", b"gone"]
        assert tree.entries["/etc"] == Entry("directory", 0, 0o750, 0, 0, "", 0)
        assert tree.entries["/etc/b"] == Entry("file", 4, 0o644, 0, 0, "", 1)
        assert tree.entries["/usr/lib/so"] is tree.entries["/usr/lib/so.1"]
        kept = tree.data("/lib/so.1")
    assert kept == b"\x7fELF"  # after the end
    assert list(temporary.iterdir()) == []


def test_the_configuration_says_how_it_runs_and_what_made_each_layer(tmp_path: Path) -> None:
    about = json.loads(config([BASE, TOP]))
    about |= {"architecture": "arm64", "os": "linux", "config": {"Env": ["A=1"], "User": "me"}}
    about["history"] = [
        {"created_by": "ADD\n  base  /"}, {"created_by": "ENV A=1", "empty_layer": True}, {"comment": "no word"},
    ]  # fmt: skip
    manifest = [{"Config": "c.json", "Layers": ["a", "b"]}]

    def saved() -> bytes:
        return files(
            ("manifest.json", json.dumps(manifest).encode()),
            ("c.json", json.dumps(about).encode()),
            ("a", BASE),
            ("b", TOP),
        )

    with opened(saved(), tmp_path) as tree:
        assert tree.config == {"Env": ["A=1"], "User": "me", "architecture": "arm64", "os": "linux"}
        assert [one.command for one in tree.layers] == ["ADD base /", ""]
    about["history"].pop()
    about["config"] = None
    with opened(saved(), tmp_path) as tree:
        assert tree.config == {"architecture": "arm64", "os": "linux"}
        assert [one.command for one in tree.layers] == ["", ""]  # the history tells of one layer


@dataclass
class Stack:
    """Layers unpacked one after the other into one place, in the plainest way there is."""

    held: dict[str, str]

    def unpack(self, members: Sequence[tuple[str, str]]) -> None:
        for name, _ in members:
            place, _, last = name.rpartition("/")
            if last == ".wh..wh..opq":
                self._drop(place, itself=False)
            elif last.startswith(".wh."):
                self._drop(f"{place}/{last[4:]}".lstrip("/"), itself=True)
        for name, what in members:
            if not name.rpartition("/")[2].startswith(".wh."):
                for at, char in enumerate(name):
                    if char == "/":
                        self._put(name[:at], "directory")
                self._put(name, what)

    def _put(self, path: str, what: str) -> None:
        if what != "directory" or self.held.get(path, what) != "directory":
            self._drop(path, itself=True)
        self.held[path] = what

    def _drop(self, path: str, itself: bool) -> None:
        below = f"{path}/" if path else ""
        for one in [one for one in self.held if one.startswith(below) or (itself and one == path)]:
            del self.held[one]


NAMES = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join)


@st.composite
def stacks(draw: st.DrawFn) -> list[list[tuple[str, str]]]:
    """Layers as engines write them: no path twice, none below a file, and whiteouts of what a layer does not have."""
    layers = []
    for number in range(draw(st.integers(1, 5))):
        held: dict[str, str] = {}
        for name in draw(st.lists(NAMES, max_size=5, unique=True)):
            above = [name[:at] for at, char in enumerate(name) if char == "/"]
            if any(held.get(one, "directory") != "directory" for one in above):
                continue
            is_above = any(one.startswith(f"{name}/") for one in held)
            held[name] = "directory" if is_above or draw(st.booleans()) else f"{number}:{name}"
        members = list(held.items())
        whole = set(held) | {name[:at] for name in held for at, char in enumerate(name) if char == "/"}
        for name in draw(st.lists(NAMES, max_size=2, unique=True)):
            place, _, last = name.rpartition("/")
            if not any(held.get(one, "directory") != "directory" for one in [place, *_above(place)]):
                if draw(st.booleans()):
                    members.append((f"{place}/.wh..wh..opq".lstrip("/"), ""))
                elif name not in whole:
                    members.append((f"{place}/.wh.{last}".lstrip("/"), ""))
        layers.append(members)
    return layers


def _above(path: str) -> list[str]:
    return [path[:at] for at, char in enumerate(path) if char == "/"]


@pytest.mark.slow  # four hundred random images, written as archives
@examples(120)
@given(stacks())
def test_layers_become_one_as_if_they_were_unpacked_in_turn(layers: list[list[tuple[str, str]]]) -> None:
    plain = Stack({})
    archives = []
    for members in layers:
        plain.unpack(members)
        archives.append(
            pack([folder(name) if what == "directory" else member(name, what.encode()) for name, what in members])
        )
    with tempfile.TemporaryFile() as file:
        file.write(oci(archives))
        file.flush()
        with image_in(file, "it", quiet) as image:
            found = {
                path: bytes(image.content(path, entry)).decode() if entry.kind == "file" else entry.kind
                for path, entry in image.merged.entries.items()
            }
            lost = sum(entry.size for _, entry in image.merged.removed)
    assert found.pop("/") == "directory"
    assert found == {f"/{path}": what for path, what in plain.held.items()}
    whole = sum(len(what) for members in layers for _, what in members if what != "directory")
    left = sum(len(what) for what in plain.held.values() if what != "directory")
    assert image.merged.hidden == lost == whole - left


def test_a_whiteout_takes_only_what_is_below_and_the_root_may_be_emptied(tmp_path: Path) -> None:
    own = pack([member("a", b"new"), member(".wh.a"), folder("b"), member("b/x", b"new"), member(".wh.b")])
    under = pack([member("a", b"old"), member("b/y", b"old"), member("c", b"old")])
    with opened(oci([under, own]), tmp_path) as tree:
        assert seen(tree) == {"/": "directory", "/a": "new", "/b": "directory", "/b/x": "new", "/c": "old"}
    emptying = pack([member(".wh..wh..opq"), member(".wh..wh.plnk"), member("d", b"1")])
    with opened(oci([under, emptying]), tmp_path) as tree:
        assert seen(tree) == {"/": "directory", "/d": "1"}


def test_a_directory_named_only_in_longer_paths_has_the_owner_and_mode_of_the_layer_below(tmp_path: Path) -> None:
    under = pack([folder("srv", 0o700), folder("srv/a", 0o710)])
    with opened(oci([under, pack([member("srv/a/b/x", b"1")])]), tmp_path) as tree:
        modes = {path: (entry.mode, entry.layer) for path, entry in tree.entries.items()}
        assert modes["/srv/a"] == (0o710, 0) and modes["/srv"] == (0o700, 0) and modes["/srv/a/b"] == (0o755, 1)


def test_a_member_below_a_link_of_its_layer_lands_where_the_link_leads(tmp_path: Path) -> None:
    one = pack([folder("usr/lib"), link("lib", "/usr/lib"), member("lib/x", b"1"), hard("y", "lib/x")])
    with opened(oci([one]), tmp_path) as tree:
        assert seen(tree)["/usr/lib/x"] == "1" and "/lib/x" not in tree.entries
        assert bytes(tree.data("/lib/x")) == bytes(tree.data("/y")) == b"1"


def test_of_hard_links_the_bytes_count_once_and_are_hidden_with_the_last(tmp_path: Path) -> None:
    under = pack([member("a", b"12345"), hard("b", "a"), hard("c", "b")])
    with opened(oci([under, pack([member(".wh.a"), member(".wh.b")])]), tmp_path) as tree:
        assert (tree.layers[0].size, tree.hidden, len(tree.removed)) == (5, 0, 2)
    with opened(oci([under, pack([member(".wh.a"), member(".wh.b"), member("c", b"")])]), tmp_path) as tree:
        assert (tree.hidden, len(tree.removed), bytes(tree.data("/c"))) == (5, 3, b"")


# Links.


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        ("/usr/lib/so", "/usr/lib/so"), ("/lib/so", "/usr/lib/so"), ("/lib/../lib/./so", "/usr/lib/so"),
        ("lib//so", "/usr/lib/so"),
        ("/up", "/"), ("/up/../../../usr/lib", "/usr/lib"), ("/chain", "/usr/lib/so"), ("/", "/"), ("", "/"),
        ("/loop", ""), ("/self/x", ""), ("/dangling", ""), ("/usr/lib/so/x", ""), ("/usr/lib/so/..", ""),
        ("/none/../lib", ""), ("/usr/lib/so/", ""), ("/usr/lib/", "/usr/lib"), ("/empty", ""), ("/.wh.x", ""),
    ],
)  # fmt: skip
def test_links_are_followed_within_the_tree(path: str, leads: str, tmp_path: Path) -> None:
    one = pack(
        [
            folder("usr/lib"), member("usr/lib/so", b"1"), link("lib", "/usr/lib"), link("up", "../../../.."),
            link("chain", "c1"), link("c1", "/up/c2"), link("c2", "lib/../lib/so"), link("loop", "loop2"),
            link("loop2", "loop"), link("self", "self"), link("dangling", "/etc/passwd"), link("empty", ""),
        ]
    )  # fmt: skip
    with opened(oci([one]), tmp_path) as tree:
        assert tree.real(path) == leads
        if not leads:
            with pytest.raises(Unreadable, match="it leads nowhere"):
                tree.data(path)


def test_a_chain_of_10_000_links_leads_nowhere_and_one_of_40_does(tmp_path: Path) -> None:
    chain = [link(f"l{number}", f"l{number + 1}") for number in range(10_000)]
    with opened(oci([pack([*chain, member("l10000", b"end")])]), tmp_path) as tree:
        assert tree.real("/l0") == "" == tree.real("/l9959")
        assert tree.real("/l9960") == "/l10000"
        for path, kind in (("/", "a directory"), ("/l10000/", "nowhere")):
            with pytest.raises(Unreadable, match=kind):
                tree.data(path)


# Folders.


def test_a_folder_is_listed_and_never_left(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"secret")
    (root / "usr/lib/so").write_bytes(b"x" * 100_000)
    os.link(root / "usr/lib/so", root / "usr/lib/so.1")
    (root / "lib").symlink_to("/usr/lib")
    (root / "out").symlink_to("../outside")
    (root / "abs").symlink_to(tmp_path / "outside")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "s"))
    Path(os.fsdecode(os.fsencode(root) + b"/n\xff")).write_bytes(b"")
    os.chmod(root / "usr", 0o2755)

    with open_tree(str(root), no_engine, quiet) as tree:
        assert (tree.name, tree.digest, dict(tree.config), tree.hidden) == (str(root), "", {}, 0)
        assert [(one.id, one.size) for one in tree.layers] == [("", 100_000)]
        assert {path: entry.kind for path, entry in tree.entries.items()} == {
            "/": "directory", "/abs": "link", "/lib": "link", "/n\udcff": "file", "/out": "link", "/pipe": "other",
            "/s": "other", "/usr": "directory", "/usr/lib": "directory", "/usr/lib/so": "file", "/usr/lib/so.1": "file",
        }  # fmt: skip
        assert list(tree.entries) == sorted(tree.entries)
        assert tree.entries["/usr"].mode == 0o2755
        assert tree.entries["/usr/lib/so"] is tree.entries["/usr/lib/so.1"]
        assert tree.sha256("/lib/so") == sha256(b"x" * 100_000).hexdigest()
        assert bytes(tree.data("/lib/so")) == b"x" * 100_000 and bytes(tree.data("/n\udcff")) == b""
        for path, why in (
            ("/out", "it leads nowhere"), ("/abs", "it leads nowhere"), ("/../outside", "it leads nowhere"),
            ("/pipe", "it is a special file"), ("/s", "it is a special file"), ("/usr", "it is a directory"),
        ):  # fmt: skip
            with pytest.raises(Unreadable, match=why):
                tree.data(path)


def test_what_changes_after_it_was_listed_is_unreadable(tmp_path: Path) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    for place in (root / "d", away):
        place.mkdir(parents=True)
        (place / "file").write_bytes(b"here" if place != away else b"secret")
    for name in ("gone", "link", "pipe"):
        (root / name).write_bytes(b"1")
    with open_tree(str(root), no_engine, quiet) as tree:
        for name in ("gone", "link", "pipe"):
            (root / name).unlink()
        (root / "link").symlink_to(away / "file")
        os.mkfifo(root / "pipe")
        shutil.rmtree(root / "d")
        (root / "d").symlink_to(away)
        for path, why in (
            ("/gone", "No such file"), ("/link", "symbolic links"), ("/pipe", "no regular file any more"),
            ("/d/file", "leads out of the tree"),
        ):  # fmt: skip
            assert tree.entries[path].kind == "file"
            with pytest.raises(Unreadable, match=why) as raised:
                tree.data(path)
            assert raised.value.path == path and raised.value.code == 3
            with pytest.raises(Unreadable, match=why):
                tree.sha256(path)


def test_a_folder_that_cannot_be_opened_hides_none_beside_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"1")
        handle = os.open(tmp_path / name, os.O_RDONLY)
        for size in (*[255] * 15, 247):  # 4090 characters, which is too long only together with the tree's own place
            os.mkdir("x" * size, dir_fd=handle)
            below = os.open("x" * size, os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = below
        os.close(handle)
    with open_tree(str(tmp_path), no_engine, quiet) as tree:
        assert {path[:4] for path in tree.unread} == {"/a/x", "/b/x"}
        assert set(tree.unread.values()) == {"File name too long"}
        assert {"/a/file", "/b/file"} <= set(tree.entries)


def test_what_may_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0)
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "f").chmod(0)
    if os.access(tmp_path / "f", os.R_OK):
        pytest.skip("this user may read everything")
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "x").write_bytes(b"1")
    (tmp_path / "listed").chmod(0o400)
    with open_tree(str(tmp_path), no_engine, quiet) as tree:
        assert dict(tree.unread) == dict.fromkeys(["/d", "/listed/x"], "Permission denied")
        assert tree.entries["/listed/x"].kind == "other"
        with pytest.raises(Unreadable, match="/listed/x cannot be read: Permission denied"):
            tree.data("/listed/x")
        with pytest.raises(Unreadable, match="Permission denied"):
            tree.data("/f")
    (tmp_path / "listed").chmod(0o700)
    tmp_path.chmod(0)
    try:
        with pytest.raises(UsageError, match="cannot be listed"), open_tree(str(tmp_path), no_engine, quiet):
            pass
    finally:
        tmp_path.chmod(0o755)


def test_the_kernels_own_file_systems_are_not_descended_into() -> None:
    if not Path("/dev/pts/ptmx").exists():
        pytest.skip("no devpts is mounted here")
    with open_tree("/dev", no_engine, quiet) as tree:
        assert tree.entries["/pts"].kind == "directory"
        assert not [path for path in tree.entries if path.startswith("/pts/")]


# Which of them a name means.


def test_a_name_means_a_folder_then_a_file_then_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine = FakeEngine()
    engine.contents = {name: (layer(**{"from": b"the engine"}),) for name in ("one", "two", "three")}
    (tmp_path / "one").mkdir()
    (tmp_path / "two").write_bytes(oci([files(("from", b"a file"))]))
    told: list[str] = []
    for name, what in (("two", "a file"), ("three", "the engine")):
        with open_tree(name, lambda: engine, told.append) as tree:
            assert (seen(tree)["/from"], tree.name) == (what, name)
    assert told[0] == "two is a file here: that is read, and no image of this name"
    with open_tree("one", no_engine, told.append) as tree:
        assert list(tree.entries) == ["/"]
    assert told[-1] == "one is a directory here: that is read, and no image of this name"
    with open_tree("./one", no_engine, told.append):
        assert told[-1].startswith("one is")  # nothing more was said


def refused(target: str, engine: Callable[[], Engine] = no_engine) -> EnvkitError:
    with pytest.raises(EnvkitError) as raised, open_tree(target, engine, quiet):
        pass
    assert "\n" not in raised.value.message and raised.value.fix
    return raised.value


def test_what_is_nothing_of_these_is_refused_with_the_fix(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "layout").mkdir()
    for name in ("oci-layout", "index.json"):
        (tmp_path / "layout" / name).write_text("{}")
    for target, message in (
        (f"{tmp_path}/none.tar", "there is no file or directory"), ("", "there is no file or directory"),
        ("./none", "there is no file or directory"), (f"{tmp_path}/pipe", "is neither a directory nor a file"),
        ("a\0b", "embedded null"), ("x" * 5000, "cannot be read: File name too long"),
        (f"{tmp_path}/layout", "is the OCI layout of an image"),
    ):  # fmt: skip
        error = refused(target)
        assert message in error.message and error.code == 2
    error = refused("none:1", FakeEngine)
    assert error.message == "there is no directory and no file none:1 here, and there is no image none:1"
    assert (error.code, error.fix) == (2, "build it")

    def nowhere() -> Engine:
        raise Undecided("no docker engine answers: it said nothing", "start it")

    error = refused("none:1", nowhere)
    assert (
        error.message == "there is no directory and no file none:1 here, and no docker engine answers: it said nothing"
    )
    assert (error.code, error.fix) == (3, "start it")


# Images of an engine.


def test_an_image_whose_store_is_out_of_reach_is_saved_and_nothing_stays(docker: FakeDocker, temporary: Path) -> None:
    docker.holds("mine:1", BASE, TOP)
    engine = DockerEngine(temporary)
    told: list[str] = []
    with open_tree("mine:1", lambda: engine, told.append) as tree:
        assert seen(tree) == SEEN
        assert (tree.name, tree.digest) == ("mine:1", engine.stored("mine:1").id)
    assert told[0].startswith("saving mine:1 from the engine")
    assert list(temporary.iterdir()) == []
    with pytest.raises(UsageError, match="no image none:1"):
        engine.stored("none:1")


def test_a_disk_that_does_not_take_an_image_is_told_as_that(docker: FakeDocker, tmp_path: Path) -> None:
    docker.holds("mine:1", BASE, TOP)
    with pytest.raises(EnvkitError) as raised:
        DockerEngine(tmp_path).save("mine:1", Path("/dev/full"))
    assert (raised.value.code, raised.value.message) == (3, "the disk is full: the image was not saved")
    with pytest.raises(UsageError, match=r"none/image\.tar cannot be written: No such file"):
        DockerEngine(tmp_path).save("mine:1", tmp_path / "none" / "image.tar")


def test_an_image_too_large_for_the_disk_is_refused_before_it_is_saved(temporary: Path) -> None:
    class Large(FakeEngine):
        def stored(self, image: str) -> StoredImage:
            return StoredImage("sha256:0", 1 << 60)

        def save(self, image: str, target: Path) -> None:
            raise AssertionError("there is no room")

    error = refused("large:1", Large)
    assert error.code == 3 and error.message.startswith(f"large:1 has 1152921504.6 GB to save, and {temporary} has ")


def test_a_broken_copy_is_told_with_the_images_name(temporary: Path) -> None:
    class Half(FakeEngine):
        def save(self, image: str, target: Path) -> None:
            target.write_bytes(oci([BASE])[:3000])

    half = Half()
    half.contents["half:1"] = (b"",)
    assert "what the engine saved of half:1 is no saved image" in refused("half:1", lambda: half).message
    assert list(temporary.iterdir()) == []


def test_an_environment_without_an_engine_is_a_folder(tmp_path: Path) -> None:
    local = LocalEngine(tmp_path / "local")
    wish = BuildRequest(context(tmp_path / "context"), "one:1", 120, args={"PYTHON": PYTHON})
    built = local.build(wish, quiet)
    with open_tree("one:1", lambda: local, quiet) as tree:
        site = f"/lib/python{PYTHON}/site-packages"
        assert bytes(tree.data(f"{site}/tiny.py")).startswith(b"VERSION = '1.0'")
        assert (tree.name, tree.digest, dict(tree.config)) == ("one:1", built.id, {})


# Hostile input.


def manifest(*names: str, config_name: str = "c") -> tuple[str, bytes]:
    return "manifest.json", json.dumps([{"Config": config_name, "Layers": names}]).encode()


def huge(name: str, size: int) -> bytes:
    """A header that promises more than follows."""
    info, _ = member(name)
    info.size = size
    return info.tobuf(tarfile.PAX_FORMAT)


def below_zero(name: str) -> Member:
    info, _ = member(name)
    info.pax_headers = {"size": "-5"}
    return info, b""


ESCAPES = pack([member("../../etc/cron.d/x", b"1")])
DEEP = pack([member("a/" * 2500 + "x", b"1")])
HOSTILE = {
    "path out of the tree": (oci([ESCAPES]), "layer 1: ../../etc/cron.d/x leads out of the image"),
    "hard link out of the tree": (oci([pack([hard("a", "../../etc/passwd")])]), "which is no file before it"),
    "hard link to nothing": (oci([pack([hard("a", "b"), member("b", b"")])]), "a is a hard link to b, which is no"),
    "hard link to a directory": (oci([pack([folder("b"), hard("a", "b")])]), "which is no file before it"),
    "file as a directory": (oci([pack([member("a", b""), member("a/b", b"")])]), "a is a directory and a file"),
    "directory becomes a file": (oci([pack([member("a/b", b""), member("a", b"")])]), "a is a directory and a file"),
    "links in a circle": (
        oci([pack([link("a", "b"), link("b", "a"), member("a/x", b"")])]), "a goes through more than 40 links",
    ),
    "whiteout of the root": (oci([BASE, pack([member(".wh.")])]), "layer 2: .wh. takes away no file"),
    "whiteout of the parent": (oci([pack([member("a/.wh...")])]), "a/.wh... takes away no file"),
    "path too long": (oci([DEEP]), "is a path of 5001 characters, and Linux takes 4095"),
    "layer ends early": (oci([BASE[:1500]]), "layer 1: it ends within"),
    "member longer than its layer": (oci([huge("a", 1 << 60) + bytes(1024)]), "layer 1: it ends within a"),
    "sizes below zero": (oci([pack([below_zero("a")])]), "layer 1: a has -5 bytes"),
    "no layer": (files(manifest("l"), ("c", config([BASE]))), "layer 1 of 1, l, is not in it"),
    "layer is no tar": (files(manifest("l"), ("c", config([BASE])), ("l", b"x" * 900)), "l, is no tar archive"),
    "layer names the root": (files(manifest(".."), ("c", config([BASE]))), "layer 1 of 1, .., is not in it"),
    "no configuration": (files(manifest("l"), ("l", BASE)), "c is not in it"),
    "fewer layers": (files(manifest(), ("c", config([BASE]))), "its manifest names 0 layers and its configuration 1"),
    "more layers than engines stack": (
        files(manifest(*["l"] * 501), ("c", config([BASE] * 501)), ("l", BASE)), "it has 501 layers",
    ),
    "settings are no table": (
        files(manifest("l"), ("c", config([BASE])[:-1] + b', "config": [1]}'), ("l", BASE)), "is no table",
    ),
    "configuration under another's name": (
        oci([BASE]).replace(b'"type": "layers"', b'"type": "lAyers"'), "its configuration is not the one",
    ),
    "several images": (
        files(("manifest.json", json.dumps([{"RepoTags": ["a:1"]}, {"RepoTags": ["b:2", "b:3"]}]).encode())),
        "it holds 2 images (['a:1'], ['b:2', 'b:3']), expected one",
    ),
    "cut gzip": (oci([BASE], packed=lambda one: gzip.compress(one)[:-20]), "a packed layer ends too soon"),
    "gzip of garbage": (gzip.compress(b"x" * 2000), "a header holds"),
    "nothing": (b"", "it has neither manifest.json nor index.json"),
    "text": (b"hello" * 500, "a header holds"),
}  # fmt: skip


@pytest.mark.parametrize(("saved", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused_in_one_sentence_and_leave_nothing(
    saved: bytes, message: str, tmp_path: Path, temporary: Path
) -> None:
    (tmp_path / "image.tar").write_bytes(saved)
    before = len(os.listdir("/proc/self/fd"))
    error = refused(str(tmp_path / "image.tar"))
    assert message in error.message and error.code == 2
    assert list(temporary.iterdir()) == [] and len(os.listdir("/proc/self/fd")) == before


def test_two_platforms_in_one_file_are_named(tmp_path: Path) -> None:
    both = [json.dumps({"config": {"digest": "sha256:0"}, "layers": [], "n": n}).encode() for n in range(2)]
    names = [f"sha256:{sha256(one).hexdigest()}" for one in both]
    index = {
        "manifests": [
            {"digest": name, "platform": {"os": "linux", "architecture": machine}}
            for name, machine in zip(names, ("amd64", "arm64"), strict=True)
        ]
    }
    held = [(f"blobs/sha256/{name[7:]}", one) for name, one in zip(names, both, strict=True)]
    (tmp_path / "image.tar").write_bytes(files(("index.json", json.dumps(index).encode()), *held))
    message = refused(str(tmp_path / "image.tar")).message
    assert "it holds 2 images (linux/amd64, linux/arm64), expected one" in message


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    saved = oci([BASE, TOP])
    for cut in (*range(0, len(saved.rstrip(b"\0")), 997), len(saved.rstrip(b"\0")) - 1):
        (tmp_path / "image.tar").write_bytes(saved[:cut])
        assert refused(str(tmp_path / "image.tar")).code == 2


def test_no_changed_byte_of_a_header_is_anything_but_a_tree_or_one_sentence(tmp_path: Path) -> None:
    saved = oci([BASE, TOP])
    pick = random.Random(0)
    outcomes = set()
    for _ in range(400):
        place = pick.randrange(len(saved))
        (tmp_path / "image.tar").write_bytes(saved[:place] + bytes([pick.randrange(256)]) + saved[place + 1 :])
        try:
            with open_tree(str(tmp_path / "image.tar"), no_engine, quiet) as tree:
                seen(tree)
            outcomes.add("tree")
        except UnicodeDecodeError:
            outcomes.add("other content")
        except UsageError as error:
            outcomes.add("refused" if "\n" not in error.message else "more than a sentence")
    assert {"tree", "refused"} <= outcomes <= {"tree", "refused", "other content"}


def test_absolute_and_doubled_names_and_names_that_are_no_utf8(tmp_path: Path) -> None:
    raw, _ = member("n\udcff", b"2")
    one = pack([member("/etc//passwd", b"old"), member("etc/./passwd", b"new"), (raw, b"2")], tarfile.GNU_FORMAT)
    with opened(oci([one]), tmp_path) as tree:
        assert seen(tree) == {"/": "directory", "/etc": "directory", "/etc/passwd": "new", "/n\udcff": "2"}
        assert tree.layers[0].size == 4


@pytest.mark.parametrize("kind", ["gzip", pytest.param("zstd", marks=pytest.mark.skipif(not ZSTD, reason="no zstd"))])
def test_a_bomb_is_refused_before_the_disk_is_full(kind: str, tmp_path: Path, temporary: Path) -> None:
    with (tmp_path / "bomb").open("w+b") as file, tempfile.TemporaryFile(dir=temporary) as held:
        if kind == "gzip":
            file.write(gzip.compress(bytes(64 << 20)))
        else:  # one block of 128 KiB that repeats a byte, 500 times over: RFC 8878, RLE blocks
            block = (((128 << 10) << 3) | 2).to_bytes(3, "little") + b"\0"
            last = (((128 << 10) << 3) | 3).to_bytes(3, "little") + b"\0"
            file.write(b"\x28\xb5\x2f\xfd\x00\x58" + block * 500 + last)
        file.flush()
        whole = Piece(file, 0, file.tell())
        small, large = (Spill(held, tmp_path, lambda _, limit=limit: limit) for limit in (8 << 20, 100 << 20))

        def unpack(spill: Spill) -> Piece:
            if kind == "zstd":
                return spill.zstd(whole, "layer 1")
            with gzip.open(tmp_path / "bomb") as stream:
                return spill.take(stream.read, "layer 1")

        with pytest.raises(UsageError, match=r"layer 1 unpacks to more than the 0\.0 GB that .* has to spare"):
            unpack(small)
        held.truncate(0)
        assert unpack(large).size == (64 << 20 if kind == "gzip" else 501 * (128 << 10))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bomb", "temporary"]


def test_zstd_that_is_damaged_is_told_and_without_the_program_it_says_so(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ZSTD:
        saved = oci([BASE], packed=lambda one: zstd(one)[:-300])
        (tmp_path / "image.tar").write_bytes(saved)
        assert "layer 1 of 1 does not unpack: " in refused(str(tmp_path / "image.tar")).message
    (tmp_path / "image.tar").write_bytes(oci([BASE], packed=zstd))
    monkeypatch.setenv("PATH", str(temporary))
    error = refused(str(tmp_path / "image.tar"))
    assert error.message == "layer 1 of 1 is packed with zstd, and there is no zstd program here"
    assert error.fix == "install zstd" and list(temporary.iterdir()) == []


@pytest.mark.slow  # twenty thousand files with every allocation traced
def test_entries_take_no_more_memory_than_is_counted() -> None:
    count = 20_000
    archive = files(*((f"d{number % 100}/{number:08d}", b"") for number in range(count)))
    with tempfile.TemporaryFile() as file:
        file.write(oci([archive]))
        file.flush()
        tracemalloc.start()
        try:
            with image_in(file, "it", quiet) as image:
                assert len(image.merged.entries) == count + 101
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < count * 470 + (4 << 20)


def test_more_entries_than_memory_allows_are_refused() -> None:
    budget = Budget(3 << 20)
    for number in range(5000):
        budget.spend(f"/{number}")
    with pytest.raises(Broken, match="more than 3 MiB of memory"):
        budget.spend("/x", "y" * 1_000_000)
    with pytest.raises(Broken, match="has so many paths"):
        Budget(10_000).spend("/x", "y" * 10_000)


def test_layers_are_asked_for_from_the_top_and_let_go() -> None:
    asked = []

    def reading(number: int) -> Callable[[], Layer]:
        def read() -> Layer:
            asked.append(number)
            return Layer({"/a": Entry("file", number, 0, 0, 0, "", number)})

        return read

    merged = merge([reading(number) for number in range(3)])
    assert asked == [2, 1, 0]
    assert merged.entries["/a"].layer == 2 and merged.hidden == 1 and merged.sizes == (0, 1, 2)
    assert [entry.layer for _, entry in merged.removed] == [1, 0]
