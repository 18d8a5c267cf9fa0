"""What the payload tells of who is who: content, hidden modules, modes, preloads, Debian's own libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from test_payload_probe import record

from envkit.payload.probe import closed, content, paths, preloaded, wheels
from envkit.payload.probe.paths import PYTHONPATH, SCRIPT, SITE, STDLIB, USER_SITE, Place


def laid(root: Path, *files: str) -> None:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {file}\n")


def hidden(*places: Place) -> list[tuple[str, str, str]]:
    rows = paths.hidden(list(places), paths.HERE)
    return [(row["module"], row["by"], row["hidden_by"]) for row in rows]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    modules = ("random", "json", "os", "test", "sitecustomize")  # the last one is in that of Debian's Python
    laid(tmp_path, *(f"std/{name}.py" for name in modules), "std/logging/__init__.py")
    laid(tmp_path, "site/torch/__init__.py", "site/torch/nn.py", "site/numpy/__init__.py", "site/numpy/core.py")
    laid(tmp_path, "site/mine/__init__.py", "site/mine/train.py", "site/utils.py", "site/transformers/__init__.py")
    laid(tmp_path, "site/torch-2.6.0.dist-info/METADATA", "site/numpy-2.0.0.dist-info/METADATA")
    return tmp_path


def search(tree: Path, by: str = SCRIPT) -> tuple[Place, ...]:
    return Place(str(tree / "job"), by), Place(str(tree / "std"), STDLIB), Place(str(tree / "site"), SITE)


HIDES = {
    "random.py": ("random", SCRIPT, STDLIB),
    "logging/__init__.py": ("logging", SCRIPT, STDLIB),
    "json.cpython-311-x86_64-linux-gnu.so": ("json", SCRIPT, STDLIB),
    "torch.py": ("torch", SCRIPT, SITE),
    "torch/__init__.py": ("torch", SCRIPT, SITE),
    "numpy.py": ("numpy", SCRIPT, SITE),
    "transformers.py": ("transformers", SCRIPT, SITE),
}


@pytest.mark.parametrize("file", HIDES)
def test_a_file_of_the_job_hides_a_module(tree: Path, file: str) -> None:
    laid(tree / "job", file, "train.py", "model.py")
    assert hidden(*search(tree)) == [HIDES[file]]


@pytest.mark.parametrize(
    "files",
    [
        ("utils.py", "train.py", "config.py"),
        ("tests/__init__.py", "test/__init__.py"),
        ("os.py",),  # imported before the script
        ("sitecustomize.py",),  # made to be replaced
        ("torch/model.py", "numpy/data.txt", "random/x.py"),  # folders without __init__ hide nothing
        ("mine/__init__.py", "mine/train.py", "mine/more.py"),  # the project's own source, which is installed too
        ("random.txt", "json.pyi", "not-a-name.py"),
    ],
)
def test_what_hides_nothing(tree: Path, files: tuple[str, ...]) -> None:
    laid(tree / "job", *files)
    assert hidden(*search(tree)) == []


def test_a_link_to_the_same_module_hides_nothing(tree: Path) -> None:
    (tree / "job").symlink_to(tree / "site")
    assert hidden(*search(tree)) == []


def test_of_a_whole_site_packages_further_ahead_only_what_torch_is_made_of_counts(tree: Path) -> None:
    laid(tree / "job", "numpy/__init__.py", "numpy-1.0.dist-info/METADATA", "transformers/__init__.py", "random.py")
    assert hidden(*search(tree, PYTHONPATH)) == [("numpy", PYTHONPATH, SITE), ("random", PYTHONPATH, STDLIB)]
    places = [Place(str(tree / "std"), STDLIB), Place(str(tree / "job"), USER_SITE), Place(str(tree / "site"), SITE)]
    (row,) = paths.hidden(places, paths.HERE)
    assert (row["version"], row["hidden_version"]) == ("1.0", "2.0.0")


def test_another_torch_counts_wherever_it_lies(tree: Path) -> None:
    laid(tree / "job", "torch/__init__.py", "torch-2.4.0.dist-info/METADATA", "scipy/__init__.py")
    assert hidden(*search(tree, SITE)) == [("torch", SITE, SITE)]


def test_a_shadow_of_a_running_python_has_both_paths(tmp_path: Path) -> None:
    laid(tmp_path, "queue.py", "harmless.py")
    (row,) = paths.shadows(str(tmp_path))
    assert (row["path"], row["by"]) == (f"{tmp_path}/queue.py", SCRIPT)
    assert os.path.samefile(row["hidden"], os.path.join(os.path.dirname(os.__file__), "queue.py"))


def test_a_first_python_that_is_gone_is_told_with_where_it_leads(tmp_path: Path, monkeypatch: Any) -> None:
    for folder in ("gone", "there"):
        (tmp_path / folder).mkdir()
    (tmp_path / "gone/python3").symlink_to("/nowhere/python3")
    (tmp_path / "there/python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}/gone:{tmp_path}/there")
    assert paths.dangling() == [{"path": f"{tmp_path}/gone/python3", "target": "/nowhere/python3"}]
    monkeypatch.setenv("PATH", f"{tmp_path}/there:{tmp_path}/gone")
    assert paths.dangling() == []


def torch(tmp_path: Path, *, requires: tuple[str, ...] = (), **files: bytes) -> wheels.Dist:
    made = record(tmp_path, "torch", "2.6.0", {f"torch/lib/{name}.so": data for name, data in files.items()})
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    Path(made.info, "METADATA").write_text(f"Name: torch\nVersion: 2.6.0\n{lines}\n")
    return made


def changed_quietly(path: Path) -> None:
    """Other bytes of the same size under the same time of modification."""
    status = path.stat()
    path.write_bytes(b"?" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_change_that_keeps_size_and_time_is_seen_within_the_budget(tmp_path: Path) -> None:
    dist = torch(tmp_path, a=b"aaaa", b=b"bbbb")
    assert content.compared([dist])[1:] == (2, 8, [], 0)
    changed_quietly(tmp_path / "torch/lib/a.so")
    seen = content.compared([dist])
    assert [(Path(str(row["path"])).name, row["found"]) for row in seen.differing] == [("a.so", "none of their hashes")]


def test_a_change_among_links_is_seen_though_other_links_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uv installs: each file is a link into its cache, and so is that of every other environment."""
    monkeypatch.setattr(content, "_FEW", 6)
    monkeypatch.setattr(content, "_SLACK_NS", 0)
    dist = torch(tmp_path / "env", a=b"aaaa", b=b"bbbb", c=b"cccc")
    changed_quietly(tmp_path / "env/torch/lib/b.so")
    for name in ("lib/a.so", "lib/c.so"):
        os.link(tmp_path / "env/torch" / name, tmp_path / name.replace("/", "-"))
    os.link(Path(dist.info, "RECORD"), tmp_path / "RECORD")
    seen = content.compared([dist], budget_s=0.0)
    assert [(Path(str(row["path"])).name, row["found"]) for row in seen.differing] == [("b.so", "none of their hashes")]
    assert seen.left == [str(tmp_path / f"env/torch/lib/{name}.so") for name in "ac"]


def test_what_the_budget_did_not_reach_is_told(tmp_path: Path) -> None:
    dist = torch(tmp_path, a=b"aaaa", b=b"bbbbb")
    seen = content.compared([dist], budget_s=0.0)
    assert seen == ([], 0, 0, [str(tmp_path / f"torch/lib/{name}.so") for name in "ab"], 9)


def test_what_conda_installed_is_not_compared_and_told_so(tmp_path: Path) -> None:
    dist = torch(tmp_path, a=b"aaaa")
    Path(dist.info, "INSTALLER").write_text("conda\n")
    changed_quietly(tmp_path / "torch/lib/a.so")
    assert content.compared([dist]) == ([], 0, 0, [str(tmp_path / "torch/lib/a.so")], 0)


def test_what_torch_needs_is_followed_and_its_modules_are_looked_for(tmp_path: Path) -> None:
    extra = 'opt-einsum ; extra == "opt-einsum"'
    dists = [torch(tmp_path, requires=("sympy==1.13.1", "nvidia-nccl-cu12==2.21.5", "jinja2", extra))]
    sympy = record(tmp_path, "sympy", "1.13.1", {"sympy/__init__.py": b"", "isympy.py": b""})
    Path(sympy.info, "METADATA").write_text("Name: sympy\nVersion: 1.13.1\nRequires-Dist: mpmath<1.4\n\n")
    dists.append(sympy)
    names = wheels.needed(wheels.by_name(dists))
    assert names == {"sympy", "jinja2", "mpmath"}
    assert [row["text"] for row in wheels.requirements(dists, names)] == [*dists[0].requires, "mpmath<1.4"]
    rows = wheels.first_modules(dists, names, lambda name: "/found/jinja2" if name == "jinja2" else "")
    first = str(tmp_path / "sympy/__init__.py")
    assert rows == [
        {"name": "jinja2", "path": "/found/jinja2"},
        {"name": "mpmath", "path": ""},
        {"name": "sympy", "path": first},
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what another user may not read")
def test_what_another_user_may_not_read_is_told_with_mode_and_owner(tmp_path: Path) -> None:
    files = {"torch/__init__.py": b"", "torch/nn/a.py": b"", "torch/lib/libx.so": b"x"}
    record(tmp_path, "torch", "2.6.0", files)
    (tmp_path / "torch/lib/libx.so").chmod(0o600)
    (tmp_path / "torch/nn").chmod(0o700)
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055) if len(folder.parts) > 2 else None
    code = (
        "import os, sys, json; from envkit.payload.probe import closed, wheels; os.setuid(65534); sys.path[:] = [];"
        f"print(json.dumps(closed.closed(wheels.distributions([{str(tmp_path)!r}]), frozenset())))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(row["path"] for row in __import__("json").loads(done.stdout)) == [
        str(tmp_path / "torch/lib/libx.so"),
        str(tmp_path / "torch/nn"),
    ]
    assert closed.closed([], frozenset()) == []  # root may read all


def test_a_preload_that_is_missing_is_told_as_ignored(tmp_path: Path, monkeypatch: Any) -> None:
    libc = next(path for path in preloaded.mapped.paths() if os.path.basename(path).startswith("libc"))
    monkeypatch.setenv("LD_PRELOAD", f"/nowhere/liba.so:{libc}")
    (tmp_path / "preload").write_text(f"# a comment\n{tmp_path}/script.so\n")
    (tmp_path / "script.so").write_text("#!/bin/sh\n")
    rows = preloaded.preloads(str(tmp_path / "preload"))
    assert [(row["name"], bool(row["loaded"]), bool(row["found"]), bool(row["machine"])) for row in rows] == [
        ("/nowhere/liba.so", False, False, False),
        (libc, True, True, True),
        (f"{tmp_path}/script.so", False, True, False),
    ]


def test_a_library_of_debian_is_held_against_its_packages_md5(tmp_path: Path) -> None:
    (tmp_path / "info").mkdir()
    good, bad = tmp_path / "libgood.so.1", tmp_path / "libbad.so.1"
    for path in (good, bad):
        path.write_bytes(b"x")
    lines = [f"{md5(b'x').hexdigest()}  {str(good)[1:]}", f"{md5(b'y').hexdigest()}  {str(bad)[1:]}"]
    (tmp_path / "info/libs:amd64.md5sums").write_text("\n".join(lines) + "\n")
    found, left = preloaded.changed([str(good), str(bad), "/nowhere/x.so"], str(tmp_path))
    assert (found, left) == ([{"path": str(bad), "package": "libs"}], [])
