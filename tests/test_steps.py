"""The scripts that run inside a build: what they take out, link and write down, on folders made up for it."""

from __future__ import annotations

import base64
import csv
import importlib.util
import json
import os
import struct
import sys
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest
import torches

from envkit.system import proc
from envkit.system.files import shipped

TEMPLATES = shipped("templates")
BIG = b"x" * (1 << 20) + b"y"  # the least that is worth a link


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("assemble", TEMPLATES / "steps" / "assemble.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


assemble = loaded()


# Symbols.

NOBITS, PROGBITS, ALLOCATED = 8, 1, 2


def elf(*sections: tuple[int, int, int], padding: int = 0) -> bytes:
    """A 64-bit little-endian ELF file with sections of (type, flags, size) and their headers at its end."""
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 64 + padding, 0, 64, 0, 0, 64, len(sections), 0
    )
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, kind, flags, 0, 64, size, 0, 0, 1, 0) for kind, flags, size in sections
    )
    return head + b"\0" * padding + table


def share(folder: Path, data: bytes) -> float:
    path = folder / "x.so"
    path.write_bytes(data)
    found = assemble.symbols(path)
    assert isinstance(found, float)
    return found


def test_what_no_loader_maps_is_counted(tmp_path: Path) -> None:
    data = elf((PROGBITS, ALLOCATED, 600), (PROGBITS, 0, 200), (2, 0, 100), (NOBITS, 0, 1 << 40), padding=1000)
    assert share(tmp_path, data) == 300 / len(data)
    assert share(tmp_path, elf((PROGBITS, ALLOCATED, 600), padding=1000)) == 0.0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x7fELF",
        b"\x7fELF\x02\x01",
        b"#!/bin/sh\n" + b"x" * 200,
        elf((PROGBITS, 0, 100), padding=100)[:63],
        elf((PROGBITS, 0, 100), padding=100)[:-1],
        elf((PROGBITS, 0, 1 << 50), padding=100),
        elf(),
        elf()[:58] + b"\0" * 6,
        elf((PROGBITS, 0, 100), padding=100)[:40] + b"\xff" * 8 + elf((PROGBITS, 0, 100), padding=100)[48:],
        b"\x7fELF\x01\x01" + elf((PROGBITS, 0, 100), padding=100)[6:],
        b"\x7fELF\x02\x02" + elf((PROGBITS, 0, 100), padding=100)[6:],
    ],
    ids=[
        "empty",
        "magic",
        "class",
        "script",
        "head",
        "table",
        "lie",
        "no-sections",
        "no-table",
        "far",
        "32",
        "big-endian",
    ],
)
def test_what_is_no_whole_elf_file_is_left_alone(data: bytes, tmp_path: Path) -> None:
    assert share(tmp_path, data) == 0.0


# site-packages.


def recorded(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()


def wheel(site: Path, info: str, files: dict[str, bytes]) -> None:
    """Files as an installer leaves them, with their RECORD in ``info``."""
    rows = []
    for name, data in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        rows.append([name, recorded(data), str(len(data))])
    record = site / f"{info}.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    with record.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([*rows, [f"{info}.dist-info/RECORD", "", ""]])


def rows_of(site: Path, info: str) -> list[list[str]]:
    with (site / f"{info}.dist-info" / "RECORD").open(newline="") as file:
        return list(csv.reader(file))


LISTED = "numpy==2.2.0 --hash=sha256:00\nsympy==1.13.1 --hash=sha256:00\n"
NUMPY, SYMPY = "numpy-2.2.0", "sympy-1.13.1"
LIBRARY = elf((PROGBITS, ALLOCATED, 600), (PROGBITS, 0, 900), padding=1000)
GONE = ("numpy/tests/test_a.py", "numpy/core/tests/data/x.bin", "sympy/core/tests/test_b.py")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    found = tmp_path / "venv" / "site-packages"
    wheel(
        found,
        NUMPY,
        {
            "numpy/__init__.py": b"VALUE = 1\n",
            "numpy/testing.py": b"VALUE = 2\n",
            "numpy/template.py": b"{{ this is no Python }}\n",
            "numpy/a, b.txt": b"a comma in its name",
            "numpy/tests/test_a.py": b"",
            "numpy/core/tests/data/x.bin": b"1",
            "numpy/libs/one.so": BIG,
            "numpy/libs/two.so": BIG,
            "numpy/libs/three.so": BIG + b"z",
            "numpy/libs/heavy.so.1": LIBRARY,
            "numpy/small_1": b"same",
            "numpy/small_2": b"same",
        },
    )
    wheel(found, SYMPY, {"sympy/__init__.py": b"VALUE = 3\n", "sympy/core/tests/test_b.py": b"", "sympy/x.so": BIG})
    return found


def finished(site: Path, keep: bool, path: pytest.MonkeyPatch, place: str = "in place") -> None:
    """Runs ``finish`` with a strip that leaves a known file: this is about what is written down of it."""
    tools = site.parent / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "strip").write_text(
        '#!/bin/sh\n[ "$1 $2" = "--strip-unneeded -o" ] && printf "stripped %s" "${4##*/}" >"$3"\n'
    )
    (tools / "strip").chmod(0o755)
    path.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    wanted = site.parent / "wheels.txt"
    wanted.write_text(LISTED)
    if place == "in place":
        assemble.finish(wanted, site, keep)
    else:
        site.rename(site.parent / "unpacked")
        assemble.finish(wanted, site, keep, site.parent / "unpacked")


PLACES = pytest.mark.parametrize("place", ["in place", "from another"])


@PLACES
def test_the_unused_goes_and_the_record_is_true(site: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    before = {row[0] for info in (NUMPY, SYMPY) for row in rows_of(site, info)}
    finished(site, False, monkeypatch, place)
    assert not any((site / name).exists() for name in GONE)
    rows = [row for info in (NUMPY, SYMPY) for row in rows_of(site, info)]
    assert {row[0] for row in rows} == before - {*GONE}
    for name, digest, size in rows:
        data = (site / name).read_bytes()
        if not name.endswith("/RECORD"):
            assert (digest, size) == (recorded(data), str(len(data))), name
    assert (site / "numpy/libs/heavy.so.1").read_bytes() == b"stripped heavy.so.1"
    assert (site / "numpy/libs/one.so").read_bytes() == BIG


@PLACES
def test_large_files_that_are_the_same_become_one(site: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    finished(site, False, monkeypatch, place)
    libs = site / "numpy/libs"
    assert (libs / "one.so").samefile(libs / "two.so")
    assert not (libs / "one.so").samefile(libs / "three.so")
    assert not (site / "numpy/small_1").samefile(site / "numpy/small_2")
    assert not (site / "sympy/x.so").samefile(libs / "one.so")  # of another wheel, which is another's to take out
    assert (libs / "two.so").read_bytes() == BIG


def seen(path: Path) -> tuple[bytes, int, int]:
    """What a file holds, its permissions and its time."""
    return path.read_bytes(), path.stat().st_mode, 0 if path.name == "RECORD" else path.stat().st_mtime_ns


@PLACES
def test_told_to_keep_it_leaves_every_file_as_it_was(site: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (site / "numpy/libs/heavy.so.1").chmod(0o755)
    os.utime(site / "numpy/small_1", (1_000_000_000, 1_000_000_000))
    before = {path: seen(path) for path in site.rglob("*") if path.is_file()}
    finished(site, True, monkeypatch, place)
    after = {path: seen(path) for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert after == before
    assert not (site / "numpy/libs/one.so").samefile(site / "numpy/libs/two.so")
    assert list(site.rglob("*.pyc"))


@pytest.mark.parametrize("keep", [True, False])
def test_byte_code_is_checked_by_content_and_the_same_again(
    site: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    made: list[dict[Path, bytes]] = []
    for time in (1_000_000_000, 1_600_000_000):
        for path in site.rglob("*.py"):
            os.utime(path, (time, time))
        for path in site.rglob("*.pyc"):
            path.unlink()
        if made:
            assemble.finish(site.parent / "wheels.txt", site, True)  # the first took out what there was to take
        else:
            finished(site, keep, monkeypatch)
        made.append({path: path.read_bytes() for path in site.rglob("*.pyc")})
    assert made[0] == made[1]
    names = {path.name.split(".")[0] for path in made[0]}
    assert {"__init__", "testing"} <= names and "template" not in names
    for data in made[0].values():
        assert int.from_bytes(data[4:8], "little") == 0b11  # PEP 552: a hash of the source, and compared with it


@pytest.mark.parametrize(
    ("listed", "info"),
    [
        ("typing-extensions", "typing_extensions-4.12.2"),
        ("jinja2", "Jinja2-3.1.5"),
        ("ruamel-yaml", "ruamel.yaml-0.18.6"),
        ("zope.interface", "zope.interface-6.4"),
        ("jaraco-text", "jaraco_text-4.0.0"),
        ("a-b", "A__b-1"),
    ],
)
def test_a_record_is_found_however_its_wheel_writes_the_name(listed: str, info: str, tmp_path: Path) -> None:
    wheel(tmp_path, info, {"x.py": b"1"})
    wheel(tmp_path, "other-1", {"y.py": b"1"})
    wanted = tmp_path / "wheels.txt"
    wanted.write_text(f"{listed}==1 --hash=sha256:00\n")
    ((name, record, rows),) = assemble.records(wanted, tmp_path)
    assert (name, record) == (listed, tmp_path / f"{info}.dist-info" / "RECORD")
    assert [row[0] for row in rows] == ["x.py", f"{info}.dist-info/RECORD"]


def test_a_wheel_that_was_not_installed_ends_the_build(tmp_path: Path) -> None:
    wanted = tmp_path / "wheels.txt"
    wanted.write_text("numpy==1 --hash=sha256:00\n")
    with pytest.raises(KeyError, match="numpy"):
        list(assemble.records(wanted, tmp_path))


def test_only_its_own_wheel_may_lose_a_file(tmp_path: Path) -> None:
    rows = [["numpy/tests/test_a.py", "", ""], ["mine/tests/test_a.py", "", ""]]
    assemble.clear("mine", tmp_path, rows, False)
    assert len(rows) == 2


# Shell.

SHELL = sorted(
    path
    for path in TEMPLATES.rglob("*")
    if path.is_file() and (path.suffix == ".sh" or path.read_bytes().startswith(b"#!/bin/sh"))
)


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_every_shell_file_parses(path: Path) -> None:
    done = proc.run(["sh", "-n", str(path)], timeout_s=60)
    assert (done.exit, done.stderr) == (0, "")


def test_there_are_shell_files() -> None:
    assert {"apt.sh", "settle.sh"} <= {path.name for path in SHELL}


def apt_sh(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """Runs apt.sh where python3 3.11.2 and g++ 12.2 are installed and gdb is not quite; the calls of apt-get, of which
    the first fails."""
    bin = folder / "bin"
    bin.mkdir()
    listed = "python3=3.11.2-1 installed\\ng++=4:12.2.0-3 installed\\ngdb=13.1-3 config-files\\n"
    (bin / "dpkg-query").write_text(f"#!/bin/sh\nprintf '{listed}'\n")
    (bin / "apt-get").write_text(f'#!/bin/sh\necho "$@" >>{folder}/calls\nexit 9\n')
    for program in bin.iterdir():
        program.chmod(0o755)
    # What it writes first is the list of what is never unpacked, and that on this machine.
    script = (TEMPLATES / "steps/apt.sh").read_text().replace("/etc/dpkg/dpkg.cfg.d/envkit", f"{folder}/excluded")
    (folder / "apt.sh").write_text(script)
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
    done = proc.run(["sh", str(folder / "apt.sh"), *arguments], timeout_s=60)
    calls = (folder / "calls").read_text().splitlines() if (folder / "calls").is_file() else []
    assert done.exit == (9 if calls else 0), done.stderr
    return calls


@pytest.mark.parametrize("mode", [(), ("--unpack",)])
def test_nothing_is_asked_of_the_archive_where_the_base_holds_every_version(
    mode: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert apt_sh(tmp_path, monkeypatch, *mode, "1700000000", "-", "g++=4:12.2.0-3", "python3=3.11.2-1") == []
    assert not (tmp_path / "excluded").exists()


@pytest.mark.parametrize("wanted", [("python3=3.11.3-1",), ("g++=4:12.2.0-3", "gdb=13.1-3"), ("python3",)])
def test_the_archive_is_asked_for_another_version_one_that_is_missing_or_a_bare_name(
    wanted: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (call,) = apt_sh(tmp_path, monkeypatch, "1700000000", "-", *wanted)
    assert call.endswith("update -qq")


# The proof that nothing needs what is taken out.

# Imports and works with every file refused that an image will not have; says who asked for one all the same, and which
# module outside of them names one of them in an import.
WITHOUT = r"""
import ast, fnmatch, importlib, importlib.util, json, sys
from pathlib import Path

unused = json.loads(sys.argv[1])
roots = {}
for name in unused:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin:
        roots[name] = Path(spec.origin).parent.parent
held = {}
for name, root in roots.items():
    for path in (root / name).rglob("*"):
        if path.is_file() and any(fnmatch.fnmatchcase(path.relative_to(root).as_posix(), p) for p in unused[name]):
            held[str(path)] = name
asked = []

def hook(event, args):
    if event in ("open", "ctypes.dlopen") and isinstance(args[0], str):
        path = args[0]
        if "__pycache__" in path:
            path = str(Path(path).parent.parent / (Path(path).name.split(".")[0] + ".py"))
        if path in held:
            asked.append(path)
            raise FileNotFoundError(2, "not in the image", path)

gone = {str(Path(path).relative_to(roots[name]).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for path, name in held.items() if path.endswith(".py")}
named = []
for name, root in roots.items():
    for path in (root / name).rglob("*.py"):
        if str(path) in held:
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError:
            continue
        parts = list(path.relative_to(root).with_suffix("").parts)
        package = parts[:-1]
        for node in tree.body:  # what an import of the module runs
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                whole = ".".join(base + ([node.module] if node.module else []))
                modules = [whole, *(whole + "." + alias.name for alias in node.names)]
            named += [f"{path}: {module}" for module in modules if module in gone]

sys.addaudithook(hook)
works = {
    "mpmath": "import mpmath; assert str(mpmath.mp.sqrt(4)) == '2.0'",
    "networkx": "import networkx as n; assert n.shortest_path_length(n.path_graph(4), 0, 3) == 3",
    "numpy": "import numpy as n, numpy.testing as t; t.assert_allclose(n.linalg.inv([[2.0]]), [[0.5]])",
    "sympy": "import sympy as s; x = s.Symbol('x'); assert s.lambdify(x, s.diff(x**2))(3) == 6",
    "torch": "import torch; assert torch.fx.symbolic_trace(torch.nn.ReLU())(torch.tensor([-1.0])).item() == 0",
    "triton": "import triton, triton.language, triton.compiler",
}
for name in roots:
    exec(works[name])
print(json.dumps({"seen": sorted(roots), "held": sorted(set(held.values())), "asked": asked, "named": named}))
"""


@torches.needs_triton
def test_nothing_needs_what_is_taken_out() -> None:
    done = proc.run([torches.PYTHON, "-I", "-c", WITHOUT, json.dumps(assemble.UNUSED)], timeout_s=300)
    assert done.exit == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["held"], "there was nothing to do without"
    assert found["asked"] == [] and found["named"] == []


def test_the_proof_would_see_a_module_that_is_needed(tmp_path: Path) -> None:
    """The test above can fail: here numpy's own start needs what is said to be unused."""
    fake = tmp_path / "numpy"
    (fake / "tests").mkdir(parents=True)
    (fake / "__init__.py").write_text("from numpy.tests import needed\n")
    (fake / "tests" / "__init__.py").write_text("")
    (fake / "tests" / "needed.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + WITHOUT
    wanted = json.dumps({"numpy": assemble.UNUSED["numpy"]})

    done = proc.run([sys.executable, "-I", "-c", code, wanted], timeout_s=60)
    assert done.exit != 0 and "not in the image" in done.stderr
