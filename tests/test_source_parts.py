"""The parts of a build from source, each by itself: nothing here asks an index or makes an environment.

`test_sources.py` and `test_compiled.py` have the whole with the real uv.
"""

from __future__ import annotations

import hashlib
import io
import json
import stat
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envkit.errors import Undecided, Unsatisfiable, UsageError
from envkit.facts import load as load_facts
from envkit.plan import compiled, solve, sources
from envkit.plan import lockfile as locks
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import Lock, Pin, Source
from envkit.plan.sources import Archive, Failed, Sources
from envkit.plan.spec import load as load_spec
from envkit.system.index import IndexFile
from envkit.system.proc import Completed
from envkit.versions import Python

PY = Python("3.11")
ROOT = Path(__file__).resolve().parents[1]


def why(work: Any) -> tuple[str, bool]:
    with pytest.raises(Failed) as caught:
        work()
    assert str(caught.value) == caught.value.why
    return caught.value.why, caught.value.compiled


# What is taken.


def useful(*listed: IndexFile, before: str = "", bounds: Sequence[str] = ()) -> list[str]:
    """The source releases of ``a`` that are offered where the index lists these files."""
    made = Sources(PY, before, lambda file: "linux" not in file, lambda *_: (), Path(), print)
    made._pages["a"] = listed
    return [str(one.version) for one in made._useful("a", [SpecifierSet(bound) for bound in bounds])]


def sdist(version: str, **more: Any) -> IndexFile:
    return IndexFile(f"a-{version}.tar.gz", "u", **more)


def wheel(version: str, tag: str = "any", **more: Any) -> IndexFile:
    return IndexFile(f"a-{version}-py3-none-{tag}.whl", "u", **more)


@pytest.mark.parametrize(
    ("listed", "bounds", "found"),
    [
        ([sdist("1"), sdist("2")], (), ["1", "2"]),
        ([sdist("1"), wheel("2"), sdist("2"), sdist("3")], (), ["3"]),
        ([sdist("1"), wheel("2", "linux"), sdist("3")], (), ["1", "3"]),
        ([sdist("1"), wheel("2", yanked=True)], (), ["1"]),
        ([sdist("1"), wheel("2")], ("==1",), ["1"]),
        ([sdist("1"), wheel("2")], ("<2",), ["1"]),
        ([sdist("1"), wheel("2")], (">=1",), []),
        ([sdist("1"), wheel("2")], (">=1", "==1"), ["1"]),
        ([sdist("1", yanked=True)], (), []),
        ([sdist("1", yanked=True), wheel("2")], ("<2",), []),
        ([sdist("1", yanked=True), wheel("2")], ("==1",), ["1"]),
        ([sdist("1", requires=">=3.12"), sdist("2", requires=">=3.11")], (), ["2"]),
        (
            [sdist("1", requires="nonsense"), IndexFile("a-x.tar.gz", "u"), IndexFile("a.whl", "u"), sdist("3")],
            (),
            ["3"],
        ),
    ],
)  # fmt: skip
def test_source_counts_where_no_wheel_does(listed: list[IndexFile], bounds: Sequence[str], found: list[str]) -> None:
    assert useful(*listed, bounds=bounds) == found


def test_source_of_a_later_day_does_not_count() -> None:
    days = [sdist("1", uploaded="2024-01-01"), sdist("2", uploaded="2024-01-02"), sdist("3")]
    assert useful(*days, before="2024-01-02") == ["1"] and useful(*days) == ["1", "2", "3"]


def test_what_is_asked_of_a_name_is_read_from_requirements_and_from_uvs_words() -> None:
    lines = ["a>=1", "no requirement here", "A==2; python_version > '3'", "a", "b==3"]
    assert [str(one) for one in sources._asks("a", lines)] == [">=1", "==2"]
    text = "Because b==1 depends on a[x]>=3,<4, and c depend on a~=1.0.\nd depends on ab==7 and e depends on a==1.*.*"
    assert [{*map(str, one)} for one in sources._told("a", text)] == [{">=3", "<4"}, {"~=1.0"}]


def test_a_stand_in_is_an_empty_wheel_that_says_what_it_requires() -> None:
    file, data = sources.stub("a-b", "1.0", ">=3.9", ("c>=1", "d"))
    assert file == "a_b-1.0-py3-none-any.whl"
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        assert packed.namelist() == [f"a_b-1.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")]
        assert packed.read("a_b-1.0.dist-info/METADATA").decode() == (
            "Metadata-Version: 2.1\nName: a-b\nVersion: 1.0\nRequires-Python: >=3.9\nRequires-Dist: c>=1\n"
            "Requires-Dist: d\n"
        )
        assert packed.read("a_b-1.0.dist-info/WHEEL").decode() == (
            "Wheel-Version: 1.0\nGenerator: envkit\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
    with zipfile.ZipFile(io.BytesIO(sources.stub("a", "1", "")[1])) as packed:
        assert b"Requires" not in packed.read("a-1.dist-info/METADATA")


class Scripted(Sources):
    """Sources whose releases are made by a function of the test's."""

    makes: Any

    def _make(self, one: Archive) -> sources.Built:
        made: sources.Built = self.makes(one)
        return made


def row(name: str = "a") -> Source:
    return Source(name, f"{name}-1.tar.gz", "0" * 64, 3, "3.11", ())


def test_what_the_solver_chose_is_built_once_and_its_day_told(tmp_path: Path) -> None:
    made = Scripted(PY, "", lambda file: True, lambda *_: (), tmp_path, print)
    asked: list[str] = []

    def makes(one: Archive) -> sources.Built:
        asked.append(f"{one.name} {one.version}")
        if one.name == "bad":
            raise Unsatisfiable("it cannot be built", (), ())
        return sources.Built(f"{one.name}-1-py3-none-any.whl", b"data", row(one.name), one.file.uploaded)

    made.makes = makes
    assert made.links(tmp_path) == () and not list(tmp_path.iterdir())
    for name in ("a", "c", "bad"):
        one = Archive(name, Version("1"), IndexFile(f"{name}-1.tar.gz", "u", uploaded="2024-01-02"))
        made._stubs[one.name, one.version] = one
    made.state = 1
    assert made.links(tmp_path) == ("--find-links", f"{tmp_path}/links1")
    offered = ["a-1-py3-none-any.whl", "bad-1-py3-none-any.whl", "c-1-py3-none-any.whl"]
    assert sorted(each.name for each in (tmp_path / "links1").iterdir()) == offered
    package: dict[str, Any] = {"name": "A", "version": "1.0", "wheels": [{}]}
    other = {"name": "x", "version": "1"}
    assert made.build([other, package]) is True and asked == ["a 1"] and made.state == 2
    assert package["wheels"] == [{}], "who is asked again is told then"
    assert made.build([other, package]) is False and asked == ["a 1"]
    (told,) = package["wheels"]
    assert told["size"] == 4 and told["upload-time"].isoformat() == "2024-01-02T00:00:00+00:00"
    assert made.links(tmp_path)[1] == f"{tmp_path}/links2"
    assert (tmp_path / "links2" / "a-1-py3-none-any.whl").read_bytes() == b"data"
    assert (tmp_path / "links2" / "c-1-py3-none-any.whl").read_bytes() != b"data"
    for _ in range(2):
        with pytest.raises(Unsatisfiable, match="it cannot be built"):
            made.build([{"name": "bad", "version": "1"}])
    assert asked == ["a 1", "bad 1"], "what failed is not tried again"
    pins = [Pin("z", "1", "z.whl", ""), Pin("a", "1", "a-1-py3-none-any.whl", "")]
    assert made.rows(pins) == (row("a"),)


def test_a_refusal_says_what_helps() -> None:
    one = Archive("a", Version("1"), sdist("1"))
    found = sources._refusal(one, PY, Failed("it calls gcc", ["x"], compiled=True))
    assert found.message == (
        "the index has a 1 as source alone (for Python 3.11), and it has to be compiled: it calls gcc"
    )
    assert found.nearest == ('build = ["a==1"]',) and "the key `build`" in found.fix
    found = sources._refusal(one, PY, Failed("odd", ()))
    assert found.message == "the index has a 1 as source alone (for Python 3.11), and its build failed: odd"
    assert found.nearest == () and found.fix == "choose another release of a, or put a wheel of it on your index"
    assert sources.explained([]) == "" and sources.explained(["nothing that anybody knows"]) == ""


# The archive.


def project(folder: Path, text: str | None, setup: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    if text is not None:
        (folder / "pyproject.toml").write_text(text)
    if setup:
        (folder / "setup.py").write_text("")
    return folder


DEFAULT = (("setuptools>=40.8.0",), "setuptools.build_meta:__legacy__", ())
SYSTEM = "[build-system]\n"


@pytest.mark.parametrize(
    ("text", "setup", "said"),
    [
        (None, True, DEFAULT),
        ("", False, DEFAULT),
        ("build-system = 1\n", False, DEFAULT),
        (SYSTEM, False, DEFAULT),
        (f'{SYSTEM}requires = ["x"]\nbuild-backend = "b.c"\nbackend-path = ["."]\n', False, (("x",), "b.c", (".",))),
        (f'{SYSTEM}requires = []\nbackend-path = ["in/side"]\n', False, ((), DEFAULT[1], ("in/side",))),
    ],
)
def test_a_source_says_how_it_is_built(tmp_path: Path, text: str | None, setup: bool, said: object) -> None:
    assert sources.declared(project(tmp_path / "s", text, setup)) == said


STUB = f'{SYSTEM}build-backend = "wheel_stub.buildapi"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "it has neither a pyproject.toml nor a setup.py"),
        ("no toml", "its pyproject.toml cannot be read: "),
        (f"{SYSTEM}requires = 1\n", "the [build-system] of its pyproject.toml is none"),
        (f"{SYSTEM}requires = [1]\n", "the [build-system] of its pyproject.toml is none"),
        (f"{SYSTEM}build-backend = 1\n", "the [build-system] of its pyproject.toml is none"),
        (f"{SYSTEM}backend-path = 1\n", "the [build-system] of its pyproject.toml is none"),
        (f'{SYSTEM}backend-path = [".", ".."]\n', "the backend-path of its pyproject.toml leads out of it"),
        (STUB, "it is a stub of a wheel that another index has; name that in `extra-index`"),
        (
            f'{STUB}[tool.wheel_stub]\nindex_url = "https://a.example/b/"\n',
            "it is a stub of a wheel that another index has, https://a.example/b; name that in `extra-index`",
        ),
        (
            f'{STUB}[tool.wheel_stub]\nindex_url = "http://a.example/"\n',
            "it is a stub of a wheel that another index has; name that in `extra-index`",
        ),
        (f"{STUB}[tool]\nwheel_stub = 1\n", "it is a stub of a wheel that another index has; name"),
        (f"tool = 1\n{STUB}", "it is a stub of a wheel that another index has; name"),
    ],
)
def test_a_source_that_says_it_wrong_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    assert why(lambda: sources.declared(project(tmp_path / "s", text)))[0].startswith(said)


def zipped(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name in names:
            made.writestr(name, "x")
    return out.getvalue()


def test_an_archive_holds_one_folder(tmp_path: Path) -> None:
    assert sources.unpack("a.zip", zipped("a/b", "top"), tmp_path / "one") == tmp_path / "one" / "a"
    for number, names in enumerate([("b",), ("a/b", "c/d")]):
        said, _ = why(
            lambda names=names, number=number: sources.unpack("a.zip", zipped(*names), tmp_path / f"n{number}")
        )
        assert said == "a.zip does not hold one folder"
    assert why(lambda: sources.unpack("a.zip", b"x", tmp_path / "z"))[0].startswith("a.zip cannot be unpacked: ")
    assert why(lambda: sources.unpack("a.tar.gz", b"x", tmp_path / "t"))[0].startswith("a.tar.gz cannot be unpacked: ")


def test_an_archive_is_bounded_in_bytes_and_files() -> None:
    sources._bounded([1, 2], "f", 3)
    assert why(lambda: sources._bounded([2, 2], "f", 3)) == (
        "f unpacks to more than 0 MB or 100000 files", False
    )  # fmt: skip
    sources._bounded([0] * 100_000, "f")
    why(lambda: sources._bounded([0] * 100_001, "f"))
    sources._bounded([1 << 30], "f")
    assert "more than 1024 MB" in why(lambda: sources._bounded([(1 << 30) + 1], "f"))[0]


class Pages:
    """An index of these files, with this content."""

    def __init__(self, *files: IndexFile, data: bytes = b"data") -> None:
        self.listed, self.data, self.most = files, data, 0

    def files(self, name: str) -> tuple[IndexFile, ...]:
        return self.listed

    def whole(self, file: IndexFile, most: int) -> bytes:
        self.most = most
        return self.data


def test_the_first_index_that_has_a_project_is_its_own() -> None:
    none, first, second = Pages(), Pages(sdist("1")), Pages(sdist("2"))
    assert sources.files_of("a", [none, first, second]) == (first, first.listed)  # type: ignore[list-item]
    assert sources.files_of("a", [first, none]) == (first, first.listed)  # type: ignore[list-item]
    assert sources.files_of("a", [none]) == (none, ())  # type: ignore[list-item]


def test_an_archive_is_what_its_page_says() -> None:
    pages, digest = Pages(), hashlib.sha256(b"data").hexdigest()
    for said in ("", digest):
        assert sources.fetch(pages, sdist("1", sha256=said)) == b"data"  # type: ignore[arg-type]
    assert pages.most == 256 << 20
    with pytest.raises(Undecided, match=r"a-1.tar.gz on the package index has another sha256 than its page says"):
        sources.fetch(pages, sdist("1", sha256="0" * 64))  # type: ignore[arg-type]


# The build.


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """Where a build is called: this Python in the place of the environment that is made for one."""
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").symlink_to(sys.executable)
    for name in ("tools", "out", "source"):
        (tmp_path / name).mkdir()
    (tmp_path / "hook.py").write_bytes(sources._hook())
    return tmp_path


def called(room: Path, body: str, said: list[str], budget_s: float = 60.0) -> object:
    (room / "source" / "backend.py").write_text(f"import os, sys, time\ndef build_wheel(out, *_):\n    {body}\n")
    return sources._call(room, room / "source", "backend", (".",), "build_wheel", said.append, budget_s)


def test_a_hook_answers_in_an_environment_of_its_own(room: Path) -> None:
    said: list[str] = []
    found = called(room, "return sorted(f'{name}={value}' for name, value in os.environ.items())", said)
    assert isinstance(found, list)
    assert {*found} >= {
        f"PATH={room}/tools:{room}/env/bin:/usr/bin:/bin", f"HOME={room}/home", f"TMPDIR={room}/tmp", "LC_ALL=C.UTF-8",
        "TZ=UTC", "SOURCE_DATE_EPOCH=315532800", "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1",
        "PYTHONUNBUFFERED=1", "PIP_NO_INDEX=1", "CC=cc", "CXX=c++",
    }  # fmt: skip
    assert len(found) == 13 and all("network" in line for line in said)


@pytest.mark.parametrize(
    ("body", "beside", "said", "native"),
    [
        ("raise SystemExit('it is odd')", "", "it is odd", False),
        ("raise SystemExit('it is odd')", "x.pyx", "it is odd", True),
        ("raise SystemExit('it is odd')", "x.txt", "it is odd", False),
        ("open(os.path.join(out, '..', 'tools', 'gcc.called'), 'w'); sys.exit(1)", "", "its build calls gcc", True),
        ("os._exit(0)", "", "it ends without an answer", False),
    ],
)
def test_a_hook_that_fails_says_why(room: Path, body: str, beside: str, said: str, native: bool) -> None:
    if beside:
        (room / "source" / beside).write_text("")
    assert why(lambda: called(room, body, [])) == (said, native)


def test_a_hook_that_hangs_is_ended_and_of_its_words_the_last_are_kept(room: Path) -> None:
    body = "[print(f'line {number}') for number in range(9)]; sys.stdout.flush(); time.sleep(60)"
    with pytest.raises(Failed, match="it did not end within 1 s") as caught:
        called(room, body, [], 1.0)
    assert list(caught.value.lines) == [f"line {number}" for number in range(1, 9)]


def test_progress_is_told_now_and_then(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(sources, "_TALKS_EVERY_S", 0.0)
    called(room, "print('a line', file=sys.stderr); print(' ', file=sys.stderr)", said)
    assert [line for line in said if line.startswith("build")] == ["build: a line"]
    said.clear()
    monkeypatch.setattr(sources, "_TALKS_EVERY_S", 1000.0)
    called(room, "print('a line', file=sys.stderr)", said)
    assert not [line for line in said if line.startswith("build")]


@pytest.mark.parametrize(
    ("ask", "torch"),
    [("torch", True), ("torch>=2", True), ("torch ==2", True), ("torch;x", True), ("torchvision", False),
     ("torch-scatter", False), ("numpy", False), ("torch.x", False)],
)  # fmt: skip
def test_a_build_that_needs_torch_is_compiled(ask: str, torch: bool) -> None:
    if torch:
        assert why(lambda: sources._asks_no_torch(["x", ask])) == ("its build needs torch", True)
    else:
        sources._asks_no_torch(["x", ask])
    pins = [Pin("x", "1", "x.whl", ""), Pin(ask, "1", "t.whl", "")]
    if ask == "torch":
        assert why(lambda: sources._without_torch(pins)) == ("its build needs torch", True)
    else:
        assert sources._without_torch(pins) == pins


def test_what_a_backend_asks_for_besides_is_resolved_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def environment(indexes: Indexes, *words: str) -> None:
        (Path(words[-1]) / "bin").mkdir(parents=True)
        (Path(words[-1]) / "bin" / "python").symlink_to(sys.executable)

    def resolve(python: Python, lines: Sequence[str]) -> tuple[Pin, ...]:
        asked.append(list(lines))
        return ()

    monkeypatch.setattr(sources, "uv", environment)
    body = (
        "def build_wheel(out, *_):\n    open(out + '/a-1-py3-none-any.whl', 'w')\n    return 'a-1-py3-none-any.whl'\n"
    )
    text = f'{SYSTEM}requires = ["x"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    own = Python("{}.{}".format(*sys.version_info))
    for number, more in enumerate(["[]", "['y']"]):
        (room := tmp_path / str(number)).mkdir()
        folder = project(room / "source", text)
        (folder / "backend.py").write_text(f"def get_requires_for_build_wheel(*_):\n    return {more}\n{body}")
        wheel, python, pins = sources.built_in(room, folder, own, None, resolve, print, Indexes())
        assert (wheel.name, python, pins) == ("a-1-py3-none-any.whl", own, ())
    assert asked == [["x"], ["x"], ["x", "y"]]
    (room := tmp_path / "held").mkdir()
    folder = project(room / "source", text)
    (folder / "backend.py").write_text(f"get_requires_for_build_wheel = None\n{body}")
    assert sources.built_in(room, folder, own, (), resolve, print, Indexes())[2] == () and len(asked) == 3


def test_what_a_build_takes_is_known_before_it_runs(tmp_path: Path) -> None:
    asked: list[tuple[Python, list[str]]] = []

    def resolve(python: Python, lines: Sequence[str]) -> tuple[Pin, ...]:
        asked.append((python, list(lines)))
        return (Pin("b", "2", "b.whl", "1" * 64), Pin("a", "1", "a.whl", "2" * 64))

    own = Python("{}.{}".format(*sys.version_info))
    folder = project(tmp_path / "s", f'{SYSTEM}requires = ["x"]\nbuild-backend = "setuptools.y"\n')
    python, pins = sources.pinned_for(folder, own, resolve)
    assert asked == [(own, ["x", "wheel"])] and python == own
    assert [line.split()[0] for line in pins] == ["a==1", "b==2"] and f"sha256:{'2' * 64}" in pins[0]
    project(folder, f'{SYSTEM}requires = ["x"]\nbuild-backend = "flit"\n')
    sources.pinned_for(folder, own, resolve)
    assert asked[1][1] == ["x"] and sources.interpreter(own) == (sys.executable, own)


# The wheel.


INFO = "a-1.0.dist-info"
ANY = "a-1.0-py3-none-any.whl"


def wheel_at(folder: Path, name: str, **members: bytes) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(f"{INFO}/RECORD", "old")
        packed.writestr(f"{INFO}/METADATA", "m")
        packed.writestr("folder/", "")
        for member, data in members.items():
            entry = zipfile.ZipInfo(member.replace("__", "/"))
            entry.external_attr = (0o755 if member.startswith("run") else 0o644) << 16
            packed.writestr(entry, data)
    return path


def test_a_wheel_is_packed_anew_from_its_files_alone(tmp_path: Path) -> None:
    data = sources.normalised(wheel_at(tmp_path, "a-1.0-py3-none-any.whl", zz=b"1", run=b"2", b__c=b"3"), "a", "1.0")
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        seen = [(one.filename, one.external_attr >> 16, one.date_time, one.compress_type) for one in packed.infolist()]
        record = packed.read(f"{INFO}/RECORD").decode().splitlines()
        assert {one.create_system for one in packed.infolist()} == {3}
    day = (1980, 1, 1, 0, 0, 0)
    assert seen == [
        ("b/c", stat.S_IFREG | 0o644, day, 0), ("run", stat.S_IFREG | 0o755, day, 0),
        ("zz", stat.S_IFREG | 0o644, day, 0), (f"{INFO}/METADATA", stat.S_IFREG | 0o644, day, 0),
        (f"{INFO}/RECORD", stat.S_IFREG | 0o644, day, 0),
    ]  # fmt: skip
    assert record[0] == "b/c,sha256=TgdAhWK-24tgzgXB3s_jrRa3IjCWfeAfZAt-Rym0n84,1" and record[-1] == f"{INFO}/RECORD,,"
    assert len(record) == 5


@pytest.mark.parametrize(
    ("name", "members", "said", "native"),
    [
        ("a-1.0-cp311-cp311-linux_x86_64.whl", {}, "it makes {}, which is for one platform", True),
        ("a-1.0-py3-none-linux_x86_64.whl", {}, "it makes {}, which is for one platform", True),
        ("b-1.0-py3-none-any.whl", {}, "it makes {}, another release", False),
        ("a-2.0-py3-none-any.whl", {}, "it makes {}, another release", False),
        ("a.whl", {}, "it makes {}, which is no name of a wheel", False),
        (ANY, {"x.so": b"1"}, "{} has x.so in it, which is for one platform", True),
        (ANY, {"x.so.1": b"1"}, "{} has x.so.1 in it, which is for one platform", True),
        (ANY, {"x": b"\x7fELF"}, "{} has x in it, which is for one platform", True),
        (ANY, {"b-1.dist-info__x": b"1"}, "{} is no wheel: it has no METADATA", False),
    ],
)
def test_a_wheel_of_another_release_or_for_one_platform_is_refused(
    tmp_path: Path, name: str, members: dict[str, bytes], said: str, native: bool
) -> None:
    path = wheel_at(tmp_path, name, **members)
    assert why(lambda: sources.normalised(path, "a", "1.0")) == (said.format(name), native)


def test_a_local_part_of_a_version_and_any_version_are_taken(tmp_path: Path) -> None:
    assert {tag.platform for tag in sources.tags_of(Path("a-1.0+x-py3-none-any.whl"), "a", "1.0")} == {"any"}
    assert sources.tags_of(Path("a-7-py3-none-any.whl"), "a", "")
    (tmp_path / "a-1.0-py3-none-any.whl").write_bytes(b"x")
    said, _ = why(lambda: sources.opened(tmp_path / "a-1.0-py3-none-any.whl"))
    assert said.startswith("a-1.0-py3-none-any.whl is no wheel: ")


# What is kept.


def test_a_build_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    made = sources.Built("a-1-py3-none-any.whl", b"data", replace(row(), requires=("x==1",)))
    answer = tmp_path / "built" / "k.json"
    assert sources._kept(answer, tmp_path) is None
    sources.files.folder(tmp_path / "built")
    sources._keep(made, tmp_path, answer)
    assert sources._kept(answer, tmp_path) == made
    digest = hashlib.sha256(b"data").hexdigest()
    assert sources.kept_wheel(tmp_path, digest) == b"data" and answer.stat().st_mode & 0o777 == 0o600
    (tmp_path / "built" / f"{digest}.whl").write_bytes(b"other")
    assert sources.kept_wheel(tmp_path, digest) == b"" and sources._kept(answer, tmp_path) is None
    answer.write_text("[]")
    assert sources._kept(answer, tmp_path) is None and sources.kept_wheel(tmp_path, "none") == b""


def test_a_wheel_that_was_compiled_elsewhere_is_not_here() -> None:
    with pytest.raises(Undecided) as caught:
        sources.not_here(row(), Pin("a", "1", "a.whl", ""))
    assert caught.value.message == "a.whl was compiled on another machine, and this one does not have it"
    assert caught.value.fix.endswith("envkit lock --upgrade-package a")
    with zipfile.ZipFile(io.BytesIO(sources.stand_in(replace(row(), needs=("x",)), Pin("a", "1", "", "")))) as packed:
        assert b"Requires-Dist: x\n" in packed.read("a-1.dist-info/METADATA")


def test_the_wheels_of_a_lock_are_taken_as_kept_or_made_again(
    tmp_path: Path, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    digest = hashlib.sha256(b"plain").hexdigest()
    plain, other = Pin("a", "1", "a.whl", digest), Pin("c", "1", "c.whl", "3" * 64)
    held = replace(lock, wheels=(plain, other), sources=(row("a"), replace(row("c"), compiled="9.0")))
    rebuilt: list[str] = []

    def rebuild(source: Source, pin: Pin, indexes: Indexes, say: Any) -> bytes:
        rebuilt.append(pin.name)
        return b"plain"

    monkeypatch.setattr(sources, "_rebuilt", rebuild)
    for anew, times in ((False, 1), (False, 1), (True, 2)):
        sources.gather(held, tmp_path, tmp_path / "cache", said.append, anew=anew, again=lambda *_: b"again")
        assert len(rebuilt) == times
        assert ((tmp_path / "a.whl").read_bytes(), (tmp_path / "c.whl").read_bytes()) == (b"plain", b"again")
    assert said == ["building a 1 from its source"] * 2
    with pytest.raises(Undecided, match=r"c.whl was compiled on another machine"):
        sources.gather(held, tmp_path, tmp_path / "cache", said.append)


def test_a_source_that_the_index_lost_or_changed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages(sdist("1"), data=b"data")
    monkeypatch.setattr(Indexes, "places", lambda self, seconds: (pages,))
    good = replace(row(), sha256=hashlib.sha256(b"data").hexdigest())
    assert sources.archive_of(good, Indexes()) == (sdist("1"), b"data")
    with pytest.raises(Undecided, match=r"a-1.tar.gz on the package index is not the one that the lock pins") as caught:
        sources.archive_of(row(), Indexes())
    assert caught.value.fix == "lock again: envkit lock --upgrade-package a"
    with pytest.raises(Undecided, match=r"does not have b-1.tar.gz any more"):
        sources.archive_of(row("b"), Indexes())


# What is compiled.


@pytest.fixture(scope="module")
def lock() -> Lock:
    found = locks.load(load_spec(ROOT / "images" / "torch-2.6-cu124"))
    assert found is not None
    return found


def test_the_variables_of_a_compile() -> None:
    always = {
        "LC_ALL": "C.UTF-8", "TZ": "UTC", "SOURCE_DATE_EPOCH": "315532800", "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1", "PIP_NO_INDEX": "1", "CFLAGS": "-g0",
        "CXXFLAGS": "-g0", "LDFLAGS": "-Wl,--strip-all",
    }  # fmt: skip
    assert compiled._variables("cpu") == always
    assert compiled._variables("8.0;8.6;9.0a+PTX") == always | {
        "TORCH_CUDA_ARCH_LIST": "8.0;8.6;9.0a+PTX", "CUDAARCHS": "80;86;90a", "FLASH_ATTN_CUDA_ARCHS": "80;90",
        "FORCE_CUDA": "1", "NVCC_THREADS": "1",
    }  # fmt: skip


def test_the_gpus_of_a_lock_in_torchs_words(lock: Lock) -> None:
    facts = load_facts()

    def of(*names: str) -> str:
        return compiled.architectures(replace(lock, gpus=tuple(("X", name, "") for name in names)), facts)

    assert of("sm_90", "sm_80", "sm_90") == "8.0;9.0" and of() == ""
    assert of("sm_90a") == "9.0a" and of("sm_10") == "1.0"
    assert of("sm_990").endswith("+PTX") and of("sm_990") == of("sm_991")
    assert compiled.architectures(replace(lock, cuda=None), facts) == "cpu"


def test_a_setup_that_would_fetch_a_wheel_is_told_to_build(tmp_path: Path) -> None:
    assert compiled._no_download(tmp_path) == {}
    (tmp_path / "setup.py").write_text("os.getenv('FLASH_ATTENTION_FORCE_BUILD'); X_FORCE_BUILD; lower_FORCE_BUILD")
    assert compiled._no_download(tmp_path) == {"FLASH_ATTENTION_FORCE_BUILD": "TRUE", "X_FORCE_BUILD": "TRUE"}


def test_a_wheel_is_another_where_what_it_follows_from_is(lock: Lock) -> None:
    key = compiled._key(lock, "0" * 64, "9.0")
    assert len(key) == 32 and key == compiled._key(lock, "0" * 64, "9.0")
    torch = next(pin for pin in lock.wheels if pin.name == "torch")
    plain = next(pin for pin in lock.wheels if pin.name != "torch" and not pin.name.startswith("nvidia-"))
    cuda = next(pin for pin in lock.wheels if pin.name.startswith("nvidia-"))

    def changed(pin: Pin) -> Lock:
        pins = tuple(replace(one, sha256="f" * 64) if one is pin else one for one in lock.wheels)
        return replace(lock, wheels=pins)

    others = [
        compiled._key(lock, "1" * 64, "9.0"), compiled._key(lock, "0" * 64, "8.0"),
        compiled._key(changed(torch), "0" * 64, "9.0"), compiled._key(changed(cuda), "0" * 64, "9.0"),
        compiled._key(replace(lock, os="other"), "0" * 64, "9.0"),
        compiled._key(replace(lock, platform="linux/arm64"), "0" * 64, "9.0"),
    ]  # fmt: skip
    assert len({key, *others}) == 7 and compiled._key(changed(plain), "0" * 64, "9.0") == key


def test_what_a_build_asks_for_beside_torch(lock: Lock) -> None:
    asks = [
        "numpy>=1",
        "Torch>=2",
        "torch>=99; python_version < '3'",
        f"torch=={lock.torch}",
        "x; python_version > '2'",
    ]
    assert compiled._beside_torch(asks, lock) == ["numpy>=1", 'x; python_version > "2"']
    for ask, said in (
        ("a b", "its build requires `a b`, which is no requirement"),
        ("a @ https://x.example/a.whl", "its build requires a @ https://x.example/a.whl, which is on no index"),
        ("torch>=99", f"its build requires torch>=99, and the lock has torch {lock.torch}"),
    ):
        assert why(partial(compiled._beside_torch, [ask], lock))[0] == said


def test_a_lock_for_gpus_without_nvcc_compiles_nothing(lock: Lock) -> None:
    one = compiled.Release("a", "1", sdist("1"), b"data", ())
    assert one.sha256 == hashlib.sha256(b"data").hexdigest()
    without = replace(lock, missing=(("nvcc", "the index has none"),), gpus=(("H100", "sm_90", ""),))
    with pytest.raises(UsageError) as caught:
        compiled._can_be_compiled(without, [one])
    assert caught.value.message == (
        "a 1 is to be compiled for GPUs, and the devel flavor has no nvcc: the index has none"
    )
    compiled._can_be_compiled(replace(without, gpus=()), [one])
    compiled._can_be_compiled(replace(without, missing=()), [one])
    with pytest.raises(Undecided, match="a 1 and a 1 must be compiled, which is done in a container"):
        compiled._engine(lambda: None, [one, one])


def test_what_changes_under_a_compiled_wheel_is_refused(lock: Lock) -> None:
    compiled._same_torch(lock, lock)
    with pytest.raises(Unsatisfiable, match="requires another os than the one") as caught:
        compiled._same_torch(lock, replace(lock, os="other", image="x"))
    assert caught.value.chain == (f"{lock.os} -> other",) and caught.value.fix == "pin `os` in the spec"


def test_what_metadata_requires_without_an_extra() -> None:
    text = "Requires-Dist: b>=1\nRequires-Dist: a; extra == 'x'\nRequires-Dist: c @ https://x.example/c.whl\n"
    assert compiled._needs(f"Name: z\n{text}Requires-Dist: b>=1\nRequires-Dist: a\n") == ("a", "b>=1")


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        ([], ""),
        (["a", "b."], "b"),
        (["x.c:1: error: one", "x.c:2: error: two", "end"], "x.c:1: error: one"),
        (["fatal error: x", "end"], "fatal error: x"),
        (["KeyError: 1", "ValueError: 2", "end"], "ValueError: 2"),
        (["a.b.OddError: 1", "error: command 'gcc' failed"], "a.b.OddError: 1"),
        (["ninja: build stopped", "error: command 'gcc' failed."], "error: command 'gcc' failed"),
        (["undefined reference to x", "collect2"], "undefined reference to x"),
        (["error handling on"], "error handling on"),
    ],
)
def test_the_line_that_says_what_went_wrong(lines: list[str], first: str) -> None:
    assert compiled._first_error(lines) == first


def test_what_is_shown_of_a_build_is_the_first_error_and_the_end() -> None:
    lines = [str(number) for number in range(40)]
    assert compiled._shown([*lines[:10], "x: error: y", *lines[10:]]) == (
        "x: error: y", "10", "11", "12", "13", "14", "34", "35", "36", "37", "38", "39"
    )  # fmt: skip
    assert compiled._shown(["a", "b"]) == ("a", "b") and compiled._shown([]) == ()


def shop(lock: Lock, cache: Path, run: Any, said: list[str]) -> compiled._Shop:
    glibc = solve.glibc_of(lock, load_facts())
    return compiled._Shop(lock, "9.0", glibc, run, lambda lines: (), Indexes(), cache, said.append)


def answering(answer: object, stderr: str = "", timed_out: bool = False, **members: bytes) -> Any:
    """A workshop that gives back these files, and what it was given as the names in its tar."""

    def run(given: Path, made: Path, say: Any) -> Completed:
        with tarfile.open(given) as archive:
            run.given = [(one.name, one.uid, one.mtime, oct(one.mode)) for one in archive]  # type: ignore[attr-defined]
            asked = archive.extractfile("asked.json")
            run.asked = json.loads(asked.read()) if asked else None  # type: ignore[attr-defined]
        for line in stderr.splitlines():
            say(line)
        with tarfile.open(made, "w") as archive:
            for name, data in {
                **({} if answer is None else {"answer.json": json.dumps(answer).encode()}),
                **members,
            }.items():
                entry = tarfile.TarInfo(f"out/{name}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        return Completed((), 0, "", stderr, timed_out)

    return run


ANSWER = {"exit": 0, "result": ["x"], "lines": [], "killed": 0, "jobs": 8, "memory": 9 << 30}


def hook_of(lock: Lock, folder: Path, run: Any, said: list[str]) -> object:
    room = folder / "room"
    for name in ("tools", "source"):
        (room / name).mkdir(parents=True, exist_ok=True)
    asked = {"name": "a 1", "folder": "source"}
    return compiled._call(room, asked, shop(lock, folder, run, said), "build_wheel")


def test_a_hook_runs_in_the_workshop_and_answers(tmp_path: Path, lock: Lock) -> None:
    said: list[str] = []
    run = answering(ANSWER, "x" * 200 + "\n\n  y \n", **{"a.whl": b"wheel", "other": b"no"})
    assert hook_of(lock, tmp_path, run, said) == ["x"]
    assert run.asked == {"name": "a 1", "folder": "source", "hook": "build_wheel"}
    assert [one[0] for one in run.given] == ["hook.py", "compile.py", "asked.json", "tools", "source"]
    assert {one[1:3] for one in run.given} == {(0, 315532800)} and {one[3][-3:] for one in run.given} == {"644", "755"}
    assert said == [f"build: {'x' * 100}", "build: y"]
    assert sorted(each.name for each in (tmp_path / "room" / "made").iterdir()) == ["a.whl", "answer.json"]


@pytest.mark.parametrize(
    ("answer", "stderr", "said"),
    [
        (None, "", "it ends without an answer"),
        (None, "one\ntwo\n", "it ends without an answer: two"),
        ({"exit": 0}, "", "it ends without an answer"),
        ({**ANSWER, "exit": 1}, "", "it ends without a word"),
        ({**ANSWER, "exit": 1, "lines": ["/work/source/a.c:1: error: x"]}, "", "a.c:1: error: x"),
        ({**ANSWER, "exit": 1, "killed": 1}, "", "8 compilers at once took more than 9 GB of memory"),
    ],
)
def test_a_hook_that_fails_in_the_workshop_says_why(
    tmp_path: Path, lock: Lock, answer: object, stderr: str, said: str
) -> None:
    assert why(lambda: hook_of(lock, tmp_path, answering(answer, stderr), []))[0] == said


def test_a_compile_past_its_time_is_undecided(tmp_path: Path, lock: Lock) -> None:
    with pytest.raises(Undecided, match="a 1 was not compiled within 4 hours"):
        hook_of(lock, tmp_path, answering(ANSWER, timed_out=True), [])


def test_what_was_compiled_is_kept_by_its_key(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"data").hexdigest()
    made = compiled.Wheel("a-1-x.whl", "1", digest, 4, row())
    assert compiled._kept(tmp_path, "k") is None
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "k.compiled.json").write_bytes(msgspec.json.encode(made))
    assert compiled._kept(tmp_path, "k") is None, "without its wheel it is not whole"
    (tmp_path / "built" / f"{digest}.whl").write_bytes(b"data")
    assert compiled._kept(tmp_path, "k") == made
    (tmp_path / "built" / "k.compiled.json").write_text("{}")
    assert compiled._kept(tmp_path, "k") is None


def test_a_wheel_without_code_for_gpus_is_said(lock: Lock) -> None:
    said: list[str] = []
    data = zipped("a.so", "b.py")
    compiled._for_the_gpus("a.whl", data, lock, said.append)
    compiled._for_the_gpus("a.whl", data, replace(lock, gpus=()), said.append)
    assert said == ["a.whl holds no code for GPUs"]
