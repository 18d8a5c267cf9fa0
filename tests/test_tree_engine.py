"""A real engine's image reads the same from its store, from what it saves, and as a container of it is exported."""

from __future__ import annotations

import io
import json
import os
import tarfile
from hashlib import sha256
from pathlib import Path

import docker
import pytest
from test_layers import config, member, pack
from test_tree import Member, folder, hard, link, no_engine, quiet, special

from envkit.engine import StoredImage
from envkit.engine.docker import DockerEngine
from envkit.errors import UsageError
from envkit.image.tree import Entry, Tree, open_tree

pytestmark = pytest.mark.engine


def owned(pair: Member, uid: int, mode: int) -> Member:
    info, content = pair
    info.uid, info.gid, info.mode = uid, uid + 1, mode
    return info, content


LAYERS = [
    pack(
        [
            folder("etc/"), owned(member("etc/a", b"one"), 1000, 0o640), member("etc/b", b"two"), folder("usr/"),
            owned(folder("usr/lib/"), 7, 0o2755), member("usr/lib/libx.so.1.2", b"\x7fELF" * 9000),
            link("usr/lib/libx.so.1", "libx.so.1.2"), link("usr/lib/libx.so", "/lib/libx.so.1"), link("lib", "usr/lib"),
            hard("usr/lib/twin.so", "usr/lib/libx.so.1.2"), folder("opt/"), member("opt/x", b"under"), folder("opt/d/"),
            member("opt/d/y", b"under too"), folder("srv/"), member("srv/z", b"file"),
            special("etc/pipe", tarfile.FIFOTYPE),
            link("round", "round2"), link("round2", "round"), member("etc/n\udcff\u00e4", b"3"), folder("var/"),
        ],
        tarfile.GNU_FORMAT,
    ),
    pack([folder("etc/"), member("etc/.wh.a"), member("etc/b", b"two, longer"), folder("opt/"),
          member("opt/.wh..wh..opq"), member("opt/new", b"above"), folder("var/"), member("var/.wh.none")]),
    pack([member(".wh.srv"), folder("opt/"), folder("opt/d/"), member("opt/d/again", b"1"),
          member("srv", b"a file now"), folder("usr/"), owned(folder("usr/lib/"), 7, 0o2755),
          member("usr/lib/.wh.twin.so")]),
]  # fmt: skip


@pytest.fixture
def image(engine: DockerEngine, tag: str) -> str:
    """An image of three layers, loaded into the engine."""
    about = json.loads(config(LAYERS))
    about |= {"architecture": "amd64", "os": "linux", "config": {"Env": ["A=1"], "Cmd": ["/none"]}}
    about["history"] = [{"created_by": f"step {number}"} for number in range(3)]
    names = [f"{number}/layer.tar" for number in range(3)]
    manifest = [{"Config": "c.json", "RepoTags": [tag], "Layers": names}]
    saved = pack(
        [
            *(member(name, one) for name, one in zip(names, LAYERS, strict=True)),
            member("c.json", json.dumps(about).encode()),
            member("manifest.json", json.dumps(manifest).encode()),
        ]
    )
    client = docker.from_env()
    try:
        client.images.load(io.BytesIO(saved))
    finally:
        client.close()
    return tag


def contents(tree: Tree) -> dict[str, str]:
    files = [path for path, entry in tree.entries.items() if entry.kind == "file"]
    found = {path: sha256(tree.data(path)).hexdigest() for path in files}
    assert found == {path: tree.sha256(path) for path in files}
    return found


def exported(tag: str) -> tuple[dict[str, Entry], dict[str, str]]:
    """What a container of the image holds, by the engine's own copy, without what the engine puts into each.

    Not by its export: that leaves the container's file system mounted (seen of 26.1.5), and with it every layer of the
    image on the disk, until the engine is started again.
    """
    client = docker.from_env()
    try:
        container = client.api.create_container(tag)["Id"]
        try:
            pieces, _ = client.api.get_archive(container, "/")
            stream = io.BytesIO(b"".join(pieces))
        finally:
            client.api.remove_container(container, v=True)
    finally:
        client.close()
    own = {".dockerenv", "dev", "proc", "sys", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}
    entries, hashes = {}, {}
    with tarfile.open(fileobj=stream, errors="surrogateescape") as archive:
        for info in archive:
            info.name = info.name.strip("/")
            if not info.name or info.name in own or info.name.startswith("dev/"):
                continue
            kind = "directory" if info.isdir() else "link" if info.issym() else "other" if info.isfifo() else "file"
            data = archive.extractfile(info) if kind == "file" else None
            content = data.read() if data else b""
            path = f"/{info.name.rstrip('/')}"
            goal = info.linkname if kind == "link" else ""
            entries[path] = Entry(kind, len(content), info.mode, info.uid, info.gid, goal, 0)
            if kind == "file":
                hashes[path] = sha256(content).hexdigest()
    return entries, hashes


def test_the_store_what_is_saved_and_an_export_agree(
    engine: DockerEngine, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FarAway(DockerEngine):
        def stored(self, image: str) -> StoredImage:
            found = super().stored(image)
            return StoredImage(found.id, found.size)

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    far = FarAway(tmp_path)
    told: list[str] = []
    engine.save(image, tmp_path / "saved.tar")
    with (
        open_tree(image, lambda: engine, told.append) as near,
        open_tree(str(tmp_path / "saved.tar"), no_engine, told.append) as saved,
    ):
        if os.geteuid() == 0 and engine.stored(image).roots:
            assert told == []  # read where it lies
        with open_tree(image, lambda: far, told.append) as copied:
            assert told[-1].startswith(f"saving {image} from the engine")
            for other in (saved, copied):
                assert other.entries == near.entries
                assert contents(other) == contents(near)
                assert (other.layers, other.hidden, other.config) == (near.layers, near.hidden, near.config)
                assert other.removed == near.removed
                assert [bytes(other.removed_data(*one)) for one in other.removed] == [
                    bytes(near.removed_data(*one)) for one in near.removed
                ]
        assert near.name == image and near.digest == engine.stored(image).id == saved.digest
        entries, hashes = exported(image)
        assert {**hashes} == contents(near)
        assert {path: (one.kind, one.size, one.mode, one.uid, one.gid, one.link) for path, one in entries.items()} == {
            path: (one.kind, one.size, one.mode, one.uid, one.gid, one.link)
            for path, one in near.entries.items()
            if path != "/"
        }
        assert bytes(near.data("/lib/libx.so")) == b"\x7fELF" * 9000
        assert near.real("/round") == "" and near.real("/usr/lib/libx.so") == "/usr/lib/libx.so.1.2"
        assert "/opt/d/y" not in near.entries and near.entries["/srv"].kind == "file"
        assert near.hidden == len(b"one") + len(b"two") + len(b"under") + len(b"under too") + len(b"file")
        assert [one.command for one in near.layers] == ["step 0", "step 1", "step 2"]
    assert [path.name for path in tmp_path.iterdir()] == ["saved.tar"]


def test_a_name_that_no_image_can_have_is_a_mistake_of_the_person(engine: DockerEngine) -> None:
    for name in ("Some/FILE.tar", "none:1"):
        said = f"there is no directory and no file {name} here, and "
        with pytest.raises(UsageError, match=said), open_tree(name, lambda: engine, quiet):
            pass


def test_an_engines_store_is_read_only_where_this_process_sees_it_as_the_engine_does(
    engine: DockerEngine, image: str
) -> None:
    stored = engine.stored(image)
    if os.geteuid() != 0:
        assert stored.roots == ()
    if not stored.roots:
        pytest.skip("the engine's store is not readable here")
    assert len(stored.roots) == 3 and all(root.is_dir() for root in stored.roots)
    assert f"sha256:{sha256(stored.config).hexdigest()}" == stored.id
    with open_tree(image, lambda: engine, quiet) as tree:
        assert [one.id for one in tree.layers] == list(engine.layers(image))
