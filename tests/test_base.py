"""Bases from packages: the archive that an engine loads, the cache, and that the same packages give the same bytes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

from envkit.engine import BaseRequest, ResolvedBase, base
from envkit.engine.base import BootstrappedTree
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided, UsageError
from envkit.system.files import cache_dir, shipped


def quiet(line: str) -> None:
    pass


def tree(directory: Path, content: bytes) -> BootstrappedTree:
    """A small tree as bootstrap would give it."""
    path = directory / "tree.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("etc/word")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return BootstrappedTree(path, "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest(), "amd64")


def test_image_archive_holds_what_it_names(tmp_path: Path) -> None:
    made = tree(tmp_path, b"hello")
    packed = b"".join(base.image_archive(made, "envkit-base:x-1", 1700000000, {"a": "b"}))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        streams = {entry.name: archive.extractfile(entry) for entry in archive}
        files = {name: stream.read() for name, stream in streams.items() if stream is not None}
    for name, content in files.items():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(content).hexdigest() == name.removeprefix("blobs/sha256/")

    def blob(pointer: dict[str, object]) -> bytes:
        content = files[f"blobs/sha256/{str(pointer['digest']).removeprefix('sha256:')}"]
        assert len(content) == pointer["size"]
        return content

    manifest = json.loads(blob(json.loads(files["index.json"])["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    assert config["rootfs"]["diff_ids"] == [made.sha256]
    assert config["created"] == "2023-11-14T22:13:20Z" and config["config"]["Labels"] == {"a": "b"}
    assert blob(manifest["layers"][0]) == made.tar.read_bytes()
    assert json.loads(files["manifest.json"])[0]["RepoTags"] == ["envkit-base:x-1"]


def recorded(cache: Path, sha256: str, suite: str, include: tuple[str, ...], epoch: int) -> Path:
    """The record in ``cache`` that this is the newest tree made so."""
    store = cache / "bases"
    store.mkdir(exist_ok=True)
    arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    record = base._record(store, suite, include, epoch, arch)
    record.write_text(sha256)
    return record


def test_image_archive_depends_on_the_tree_alone(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    made = [tree(tmp_path / name, content) for name, content in (("a", b"x"), ("b", b"x"), ("c", b"y"))]
    os.utime(made[1].tar, (1, 1))
    packed = [b"".join(base.image_archive(one, "envkit-base:x-1", 0, {})) for one in made]
    assert packed[0] == packed[1] != packed[2]


def test_tag_is_the_suite_and_the_hash() -> None:
    assert base.tag("trixie", "sha256:" + "ab" * 32) == "envkit-base:trixie-abababababab"


def test_a_base_is_unpacked_like_what_a_build_installs() -> None:
    step = (shipped("templates") / "steps/apt.sh").read_text()
    assert tuple(re.findall(r"(?m)^path-\w+=\S+$", step)) == base.UNPACKED


def test_suite_that_is_not_debian(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="jammy is no Debian suite") as caught:
        base.bootstrap("jammy", (), 0, tmp_path, quiet)
    assert "bookworm" in caught.value.fix


def test_machine_that_is_not_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Undecided, match="dpkg is missing") as caught:
        base.bootstrap("bookworm", (), 0, tmp_path, quiet)
    assert "mmdebstrap" in caught.value.fix


def debian_tools(directory: Path, *names: str) -> Path:
    """A PATH with these real programs and no others."""
    tools = directory / "bin"
    tools.mkdir()
    for name in names:
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"this machine has no {name}")
        (tools / name).symlink_to(found)
    return tools


def test_machine_without_mmdebstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(debian_tools(tmp_path, "dpkg")))
    with pytest.raises(Undecided, match="mmdebstrap, which would make it from bookworm's packages, is missing"):
        base.bootstrap("bookworm", (), 0, tmp_path, quiet)


def test_pinned_tree_is_taken_from_the_cache_and_a_spoiled_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(debian_tools(tmp_path, "dpkg")))
    made = tree(tmp_path, b"hello")
    kept = tmp_path / "bases" / (made.sha256.removeprefix("sha256:") + ".tar")
    kept.parent.mkdir()
    shutil.copy(made.tar, kept)
    found = base.bootstrap("bookworm", (), 0, tmp_path, quiet, made.sha256)
    assert (found.tar, found.sha256) == (kept, made.sha256)
    kept.write_bytes(made.tar.read_bytes() + b"\0")
    with pytest.raises(Undecided, match="mmdebstrap"):
        base.bootstrap("bookworm", (), 0, tmp_path, quiet, made.sha256)


def packages(made: BootstrappedTree) -> bytes:
    """What dpkg says is installed there."""
    with tarfile.open(made.tar) as archive:
        status = archive.extractfile("./var/lib/dpkg/status")
        assert status is not None
        return status.read()


def test_recent_tree_is_that_of_today_and_no_damaged_record_is_one(tmp_path: Path) -> None:
    if shutil.which("dpkg") is None:
        pytest.skip("this machine has no dpkg")
    made = tree(tmp_path, b"hello")
    assert base.recent("bookworm", ("a",), 0, tmp_path) == ""
    record = recorded(tmp_path, made.sha256, "bookworm", ("a",), 0)
    assert base.recent("bookworm", ("a",), 0, tmp_path) == made.sha256
    assert base.recent("bookworm", ("a",), 1, tmp_path) == base.recent("trixie", ("a",), 0, tmp_path) == ""
    for damaged in (b"", made.sha256.encode()[:-1], b"sha256:\xff" + b"0" * 63, b"../" + made.sha256.encode()):
        record.write_bytes(damaged)
        assert base.recent("bookworm", ("a",), 0, tmp_path) == ""
    record.write_text(made.sha256)
    os.utime(record, (1, 1))
    assert base.recent("bookworm", ("a",), 0, tmp_path) == ""


@pytest.mark.engine
def test_engine_that_has_the_tree_of_today_is_not_given_it_again(tmp_path: Path, python_base: ResolvedBase) -> None:
    wish = BaseRequest("", "bookworm", "", ("ca-certificates", "python3"), 1700000000)
    recorded(tmp_path, python_base.sha256, wish.suite, wish.include, wish.epoch)
    found = DockerEngine(tmp_path).resolve_base(wish, quiet)  # there is no file of the tree
    assert (found.id, found.sha256, found.how) == (python_base.id, python_base.sha256, "bootstrapped")


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed")
def test_same_packages_give_the_same_bytes(
    python_base: ResolvedBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base of all tests, and one that shares no cache with it and is made with settings of Python's; nothing of
    this machine is in the tree."""
    said: list[str] = []
    include = ("ca-certificates", "python3")
    found = base.bootstrap("bookworm", include, 1700000000, cache_dir(), quiet)
    assert base.tag("bookworm", found.sha256) == python_base.ref
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    made = [base.bootstrap("bookworm", include, 1700000000, tmp_path / "b", said.append)]
    if packages(found) != packages(made[0]):  # the mirror has others since, for the base may be a day old
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
        found = base.bootstrap("bookworm", include, 1700000000, tmp_path / "a", quiet)
    made.append(found)
    assert made[0].sha256 == made[1].sha256 and made[0].tar != made[1].tar
    assert "bookworm: downloading packages with apt" in said
    with tarfile.open(made[0].tar) as archive:
        entries = {entry.name.removeprefix("."): entry for entry in archive}
        for name in ("/etc/hostname", "/etc/resolv.conf", "/etc/machine-id"):
            assert entries[name].isreg() and entries[name].size == 0
        assert "/etc/apt/apt.conf.d/99mmdebstrap" not in entries
        sources = archive.extractfile(entries["/etc/apt/sources.list"])
        assert sources is not None
        lines = sources.read().decode().splitlines()
        assert [line.split()[2] for line in lines] == ["bookworm", "bookworm-updates", "bookworm-security"]
        assert max(entry.mtime for entry in entries.values()) <= 1700000000
        host = socket.gethostname().encode()
        small = [entry for name, entry in entries.items() if entry.isreg() and name.startswith("/etc/")]
        files = ((entry.name, archive.extractfile(entry)) for entry in small)
        if len(host) > 3:  # a shorter one stands in ordinary words
            assert [path for path, file in files if file is not None and host in file.read()] == []
    again = base.bootstrap("bookworm", include, 1700000000, tmp_path / "b", quiet)
    assert again == made[0]
