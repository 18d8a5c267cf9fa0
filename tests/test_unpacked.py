"""A saved image as a folder: what layers put, take away and replace, and what no engine would unpack."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
from clocks import PATIENCE_S

from envkit.engine import unpacked
from envkit.errors import UsageError
from envkit.image.tree import open_tree

Member = tuple[str, str, str]  # a path, its kind, its content or where it leads


def quiet(line: str) -> None:
    """Takes a line of progress, and is silent."""


def layer(*members: Member) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, kind, what in members:
            entry = tarfile.TarInfo(path)
            entry.mtime = 1_700_000_000
            entry.mode = 0o755 if kind in ("dir", "program") else 0o644
            if kind == "dir":
                entry.type = tarfile.DIRTYPE
            elif kind in ("link", "hard"):
                entry.type, entry.linkname = (tarfile.SYMTYPE if kind == "link" else tarfile.LNKTYPE), what
            elif kind == "device":
                entry.type = tarfile.CHRTYPE
            else:
                entry.size = len(what)
                archive.addfile(entry, io.BytesIO(what.encode()))
                continue
            archive.addfile(entry)
    return buffer.getvalue()


def image(path: Path, *layers: bytes, oci: bool = False, config: dict[str, object] | None = None) -> Path:
    """A saved image with these layers, as `docker save` wrote it before engine 25, or as an OCI layout."""
    diff_ids = [f"sha256:{sha256(one).hexdigest()}" for one in layers]
    told = {"architecture": "amd64", "os": "linux", "config": config or {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}}  # fmt: skip
    document = json.dumps(told).encode()
    digest = sha256(document).hexdigest()
    files = {f"blobs/sha256/{digest}": document}
    files |= {f"blobs/sha256/{name[7:]}": one for name, one in zip(diff_ids, layers, strict=True)}
    if oci:
        manifest = json.dumps(
            {"config": {"digest": f"sha256:{digest}"}, "layers": [{"digest": name} for name in diff_ids]}
        ).encode()
        name = f"sha256:{sha256(manifest).hexdigest()}"
        files |= {f"blobs/sha256/{name[7:]}": manifest, "oci-layout": b"{}"}
        files["index.json"] = json.dumps({"manifests": [{"digest": name}]}).encode()
    else:
        names = [f"blobs/sha256/{name[7:]}" for name in diff_ids]
        files["manifest.json"] = json.dumps([{"Config": f"blobs/sha256/{digest}", "Layers": names}]).encode()
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


LOWER = layer(
    ("usr", "dir", ""), ("usr/lib", "dir", ""), ("lib", "link", "usr/lib"), ("lib/one", "file", "1"),
    ("etc", "dir", ""), ("etc/old", "file", "old"), ("etc/twin", "hard", "etc/old"), ("opt/a/deep", "file", "deep"),
    ("opt/b", "file", "b"), ("bin", "dir", ""), ("bin/run", "program", "#!"), ("abs", "link", "/usr/lib"),
    ("dev/null", "device", ""),
)  # fmt: skip
UPPER = layer(
    ("etc/.wh.old", "file", ""), ("opt/a/new", "file", "new"), ("opt/a/.wh..wh..opq", "file", ""),
    ("opt/b", "dir", ""), ("opt/b/in", "file", "in"), ("abs/two", "file", "2"), ("bin/run", "program", "#!!"),
)  # fmt: skip
SEEN = {
    "/usr/lib/one": "1", "/abs/two": "2", "/etc/twin": "old", "/opt/a/new": "new", "/opt/b/in": "in",
    "/bin/run": "#!!",
}  # fmt: skip


def tree_of(root: Path) -> dict[str, str]:
    """The regular files, by their paths."""
    return {
        f"/{path.relative_to(root)}": path.read_text()
        for path in root.rglob("*") if path.is_file() and not path.is_symlink() and path.is_relative_to(root.resolve())
    }  # fmt: skip


@pytest.mark.parametrize("oci", [False, True])
def test_layers_become_one_folder(tmp_path: Path, oci: bool) -> None:
    settings: dict[str, object] = {"Labels": {"a": "b"}, "Env": ["X=1=2"], "Entrypoint": ["env"]}
    found = unpacked.opened(
        str(image(tmp_path / "image.tar", LOWER, UPPER, oci=oci, config=settings)), tmp_path / "store", quiet
    )
    assert tree_of(found.root) == SEEN
    assert os.readlink(found.root / "lib") == "usr/lib" and not (found.root / "dev/null").exists()
    assert (found.root / "bin/run").stat().st_mtime == 1_700_000_000
    assert stat.S_IMODE((found.root / "bin/run").stat().st_mode) == 0o755
    assert found.labels() == {"a": "b"} and found.declared().environment == {"X": "1=2"}
    assert len(found.layers) == 2 and found.read("/lib/one") == b"1" and found.read("/abs") is None


def test_it_is_what_an_audit_sees(tmp_path: Path) -> None:
    saved = str(image(tmp_path / "image.tar", LOWER, UPPER))
    root = unpacked.opened(saved, tmp_path / "store", quiet).root
    with open_tree(saved, lambda: pytest.fail("no engine is asked"), quiet) as tree:
        seen = {path: bytes(tree.data(path)).decode() for path, one in tree.entries.items() if one.kind == "file"}
    assert tree_of(root) == seen == SEEN


def test_it_is_unpacked_once_and_a_ruin_anew(tmp_path: Path) -> None:
    saved, said = str(image(tmp_path / "image.tar", LOWER)), list[str]()
    first = unpacked.opened(saved, tmp_path / "store", said.append)
    assert unpacked.opened(saved, tmp_path / "store", said.append) == first and len(said) == 1
    (first.root.parent / "envkit-image.json").unlink()
    (first.root / "etc/old").write_text("broken")
    assert tree_of(unpacked.opened(saved, tmp_path / "store", said.append).root)["/etc/old"] == "old"
    unpacked.remove(saved, tmp_path / "store")
    assert not first.root.exists() and Path(saved).exists()


OUTSIDE = "leads out of the image"


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ((layer(("../evil", "file", "x")),), OUTSIDE),
        ((layer(("a/../../evil", "file", "x")),), OUTSIDE),
        ((layer(("a", "file", "x"), ("a/b", "file", "x")),), "is a file and a folder"),
        ((layer(("a", "link", "b"), ("b", "link", "a"), ("a/c", "file", "x")),), "goes through more than 40 links"),
        ((layer(("a", "hard", "../../evil")),), OUTSIDE),
        ((layer(("a", "hard", "nowhere/file")),), "is not in the image"),
        ((layer((".wh...", "file", "")),), "takes away no file"),
        ((b"no tar at all" * 100,), "no saved image that can be read"),
    ],
)
def test_what_no_engine_would_unpack_is_refused_and_leaves_nothing(
    tmp_path: Path, layers: tuple[bytes, ...], why: str
) -> None:
    store = tmp_path / "store"
    with pytest.raises(UsageError, match=why):
        unpacked.opened(str(image(tmp_path / "image.tar", *layers)), store, quiet)
    assert not [path for path in store.iterdir() if path.is_dir()] and not (tmp_path / "evil").exists()


def test_a_link_out_of_the_image_stays_in_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    taken = (("way", "link", str(outside)), ("up", "link", "../../.."))
    written = layer(*taken, ("way/evil", "file", "x"), ("up/evil", "file", "y"))
    found = unpacked.opened(str(image(tmp_path / "image.tar", written)), tmp_path / "store", quiet)
    over = image(tmp_path / "over.tar", layer(*taken), layer(("way/evil", "file", "x")))
    assert (unpacked.opened(str(over), tmp_path / "store", quiet).root / "way/evil").read_text() == "x"
    assert not list(outside.iterdir())
    assert (found.root / str(outside).lstrip("/") / "evil").read_text() == "x" and found.read("/up/evil") == b"y"


def test_a_link_that_goes_up_on_its_way_leads_where_it_says(tmp_path: Path) -> None:
    written = layer(
        ("way", "link", "usr/..//./opt/deep/"), ("./way/one", "file", "x"), ("opt/far", "link", "../way/one")
    )
    saved = str(image(tmp_path / "image.tar", written))
    root = unpacked.opened(saved, tmp_path / "store", quiet).root
    assert (root / "opt/deep/one").read_text() == "x"
    with open_tree(saved, lambda: pytest.fail("no engine is asked"), quiet) as tree:
        assert tree.real("/way/one") == tree.real("/opt/far") == tree.real("/opt/../way/./one") == "/opt/deep/one"


@pytest.mark.parametrize("content", [b"", b"text", layer(("a", "file", "x"))])
def test_what_is_no_saved_image_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "image.tar").write_bytes(content)
    with pytest.raises(UsageError, match="is no saved image"):
        unpacked.opened(str(tmp_path / "image.tar"), tmp_path / "store", quiet)
    with pytest.raises(UsageError, match="there is no file or folder"):
        unpacked.opened(str(tmp_path / "none.tar"), tmp_path / "store", quiet)


def test_mount_points_are_made_in_what_is_envkits_own_alone(tmp_path: Path) -> None:
    saved = image(tmp_path / "image.tar", layer(("way", "link", "/data"), ("data", "dir", "")))
    found = unpacked.opened(str(saved), tmp_path / "store", quiet)
    found.mount_point("/way/in", folder=True)
    found.mount_point("/file", folder=False)
    assert (found.root / "data/in").is_dir() and (found.root / "file").is_file()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="has no /data to mount at"):
        unpacked.opened(str(tmp_path / "folder"), tmp_path / "store", quiet).mount_point("/data", folder=True)


def test_a_pipe_is_no_saved_image_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code = "import sys; from pathlib import Path; from envkit.engine.unpacked import remove; "
    code += "remove(sys.argv[1], Path(sys.argv[2]))"
    words = [sys.executable, "-c", code, str(tmp_path / "pipe"), str(tmp_path / "store")]
    assert subprocess.run(words, timeout=PATIENCE_S, check=False).returncode == 0
