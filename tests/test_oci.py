"""The archive that `build --output` writes: the same bytes for the same image however an engine saved it, and nothing
of a saved image that is not whole."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest

from envkit.build import up
from envkit.engine import BuildRequest
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided, UsageError
from envkit.image import oci


def sha(text: bytes) -> str:
    return "sha256:" + hashlib.sha256(text).hexdigest()


def layer(name: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        entry = tarfile.TarInfo(name)
        entry.size = len(name)
        made.addfile(entry, io.BytesIO(name.encode()))
    return out.getvalue()


LAYERS = [layer("a"), layer("b"), layer("a")]  # two of them the same
CONFIG = json.dumps(
    {"architecture": "arm64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [sha(one) for one in LAYERS]}}
).encode()


def saved(path: Path, files: dict[str, bytes], links: dict[str, str] | None = None, *, time: int = 0) -> Path:
    with tarfile.open(path, "w") as made:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(text), time
            made.addfile(entry, io.BytesIO(text))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            made.addfile(entry)
    return path


def manifest(*layers: str, config: str = "config.json") -> bytes:
    return json.dumps([{"Config": config, "RepoTags": ["x:1"], "Layers": layers}]).encode()


USUAL = {"config.json": CONFIG, "a.tar": LAYERS[0], "b.tar": LAYERS[1]}
USUAL["manifest.json"] = manifest("a.tar", "b.tar", "a.tar")


def layout(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as made:
        found = {}
        for entry in made:
            assert (entry.mtime, entry.uid, entry.gid, entry.uname) == (0, 0, 0, "")
            if entry.isreg():
                held = made.extractfile(entry)
                assert held is not None
                found[entry.name] = held.read()
        return found


def test_the_same_image_is_the_same_archive_however_it_was_saved(tmp_path: Path) -> None:
    packed = {
        "manifest.json": manifest("1/layer.tar", "2/layer.tar", "3/layer.tar", config="blobs/sha256/c"),
        "2/layer.tar": gzip.compress(LAYERS[1], mtime=77),
        "1/layer.tar": LAYERS[0],
        "blobs/sha256/c": CONFIG,
        "repositories": b"{}",
    }
    one = oci.write(saved(tmp_path / "one", USUAL), tmp_path / "one.tar", "team/x:1")
    links = {"3/layer.tar": "../1/layer.tar"}
    two = oci.write(saved(tmp_path / "two", packed, links, time=99), tmp_path / "two.tar", "team/x:1")
    assert one == two and (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_the_layout_is_that_of_oci(tmp_path: Path) -> None:
    written = oci.write(saved(tmp_path / "in", USUAL), tmp_path / "out", "registry.example.com/x:1.2")
    found = layout(tmp_path / "out")
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(found["index.json"])["manifests"]
    assert entry["digest"] == written.digest and entry["platform"] == {"architecture": "arm64", "os": "linux"}
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "1.2"
    for name, text in found.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/{sha(text).replace(':', '/')}"
    made: dict[str, Any] = json.loads(found[f"blobs/{entry['digest'].replace(':', '/')}"])
    assert [one["digest"] for one in made["layers"]] == [sha(one) for one in LAYERS]
    assert [one["size"] for one in made["layers"]] == [len(one) for one in LAYERS]
    assert made["config"]["digest"] == sha(CONFIG) and entry["size"] == len(json.dumps(made, separators=(",", ":")))
    assert [*found] == sorted(found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"b.tar": LAYERS[0]}, "has another content"),
        ({"b.tar": LAYERS[1][:-1]}, "has another content"),
        ({"b.tar": gzip.compress(LAYERS[1])[:-9]}, "cannot be read"),
        ({"b.tar": None}, "cannot be read"),
        ({"config.json": b"{}"}, "cannot be read"),
        ({"config.json": b"[" * 100_000}, "cannot be read"),
        ({"manifest.json": None}, "cannot be read"),
        ({"manifest.json": b"[]"}, "cannot be read"),
        ({"manifest.json": manifest("a.tar")}, "3 layers and the archive 1"),
        ({"manifest.json": b" " * (17 << 20)}, "more than 16 MiB"),
    ],
)
def test_a_saved_image_that_is_not_whole_is_refused(change: dict[str, bytes | None], says: str, tmp_path: Path) -> None:
    files = {name: text for name, text in {**USUAL, **change}.items() if text is not None}
    with pytest.raises(Undecided, match=says):
        oci.write(saved(tmp_path / "in", files), tmp_path / "out", "x:1")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(saved(tmp_path / "whole", USUAL).read_bytes()[:700])
    with pytest.raises(Undecided, match="not whole"):
        oci.write(tmp_path / "in", tmp_path / "out", "x:1")


@pytest.mark.engine
class TestEngine:
    """What a real engine saves, and takes back."""

    def test_an_archive_is_the_image_for_docker_and_podman(self, engine: DockerEngine, tmp_path: Path) -> None:
        context = tmp_path / "context"
        context.mkdir()
        (context / "data").write_bytes(os.urandom(1000))
        (context / "Dockerfile").write_text("FROM scratch\nCOPY data /\nCOPY data /b\nCOPY data /\n")
        name = f"envkit-test/oci:{uuid.uuid4().hex[:12]}"
        args = {"SOURCE_DATE_EPOCH": "1700000000"}
        try:
            texts = []
            for _ in range(2):
                engine.build(BuildRequest(context, name, 300, args=args, no_cache=True), lambda line: None)
                was = (engine.stored(name).id, engine.layers(name))
                written = up.write_archive(engine, name, tmp_path / "image.tar", lambda line: None)
                texts.append((tmp_path / "image.tar").read_bytes())
                assert sorted(path.name for path in tmp_path.iterdir()) == ["context", "image.tar"]
                engine.remove(name)
            assert texts[0] == texts[1]
            load = ["docker", "load", "-i", str(tmp_path / "image.tar")]
            loaded = subprocess.run(load, capture_output=True, text=True)
            assert loaded.returncode == 0 and name in loaded.stdout, loaded.stderr
            assert (engine.stored(name).id, engine.layers(name)) == was
            assert written.digest.startswith("sha256:")
            if shutil.which("podman"):
                with tempfile.TemporaryDirectory(prefix="envkit-p-") as own:  # podman wants a short path
                    looked = ["podman", "--root", f"{own}/p", "--runroot", f"{own}/r", "--storage-driver", "vfs"]
                    pull = [*looked, "pull", "--quiet", f"oci-archive:{tmp_path}/image.tar"]
                    pulled = subprocess.run(pull, capture_output=True, text=True)
                assert pulled.returncode == 0, pulled.stderr
                assert pulled.stdout.strip() == was[0].removeprefix("sha256:")
        finally:
            engine.remove(name)

    def test_a_full_disk_leaves_nothing(self, engine: DockerEngine, tmp_path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root may mount")
        (tmp_path / "context").mkdir()
        (tmp_path / "context" / "data").write_bytes(os.urandom(300_000))
        (tmp_path / "context" / "Dockerfile").write_text("FROM scratch\nCOPY data /\n")
        name, small = f"envkit-test/oci:{uuid.uuid4().hex[:12]}", tmp_path / "small"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], check=True)
        try:
            engine.build(BuildRequest(tmp_path / "context", name, 300), lambda line: None)
            with pytest.raises(Undecided, match="the disk is full"):
                up.write_archive(engine, name, small / "image.tar", lambda line: None)
            assert [*small.iterdir()] == []
        finally:
            engine.remove(name)
            subprocess.run(["umount", str(small)], check=True)


def test_an_environment_is_no_image(tmp_path: Path) -> None:
    from envkit.engine.local import LocalEngine

    with pytest.raises(UsageError, match="no image"):
        up.write_archive(LocalEngine(tmp_path), "x", tmp_path / "x.tar", lambda line: None)
