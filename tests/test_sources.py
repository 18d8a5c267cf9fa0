"""What is built from source, with the real uv, real builds, and an index of hand-made archives on this machine."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from index import Index, Publish

from envkit.build import up
from envkit.build.render import dockerfile
from envkit.engine.local import LocalEngine
from envkit.errors import Undecided, Unsatisfiable
from envkit.facts import load as load_facts
from envkit.plan import requires, solve, sources, wheels
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import PARTS, Lock, Pin, Source, dump, parse
from envkit.plan.sources import Sources, gather
from envkit.versions import Glibc, Python

slow = pytest.mark.slow  # builds with real tools, for a second or more
PLACE = wheels.TargetPlatform(Python("3.11"), "x86_64", Glibc("2.36"))
TOOLS = partial(solve.build_tools, Indexes())
FITS = partial(wheels.fits, wheels.ranks_of(PLACE.python, PLACE.machine, PLACE.glibc))

# A build backend inside the package; `{body}` comes before the wheel is written, and may change what is.
BACKEND = """
import os, sys, time, zipfile
NAME, VERSION, TAG, NEEDS, FILES = {name!r}, {version!r}, "py3-none-any", {needs!r}, {{"{name}.py": "x = 1\\n"}}
def get_requires_for_build_wheel(settings=None):
    return {more!r}
def build_wheel(out, settings=None, metadata=None):
    global VERSION, TAG
    {body}
    info = "%s-%s.dist-info" % (NAME, VERSION)
    lines = ["Metadata-Version: 2.1", "Name: " + NAME, "Version: " + VERSION]
    lines += ["Requires-Dist: " + each for each in NEEDS]
    FILES[info + "/METADATA"] = "\\n".join(lines) + "\\n"
    FILES[info + "/WHEEL"] = "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: %s\\n" % TAG
    FILES[info + "/RECORD"] = ""
    file = "%s-%s-%s.whl" % (NAME, VERSION, TAG)
    with zipfile.ZipFile(os.path.join(out, file), "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in FILES.items():
            archive.writestr(zipfile.ZipInfo(member, time.localtime()[:6]), text)
    return file
"""


def packed(name: str, version: str, files: dict[str, str], top: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for member, text in files.items():
            entry = tarfile.TarInfo(f"{top or f'{name}-{version}'}/{member}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def source(
    index: Index,
    name: str,
    version: str,
    body: str = "pass",
    *,
    needs: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
    uploaded: str = "",
) -> str:
    """Publishes a source archive that builds itself, and gives its file name."""
    listed = ", ".join(f'"{each}"' for each in requires)
    text = BACKEND.format(name=name, version=version, needs=needs, body=body, more=list(more))
    project = f'[build-system]\nrequires = [{listed}]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    return publish(index, name, version, {"pyproject.toml": project, "backend.py": text}, uploaded)


def publish(index: Index, name: str, version: str, files: dict[str, str], uploaded: str = "", top: str = "") -> str:
    file = f"{name}-{version}.tar.gz"
    index.wheels[file] = packed(name, version, files, top)
    index.uploaded.update({file: uploaded} if uploaded else {})
    return file


def archive(*entries: tuple[str, bytes, str]) -> bytes:
    """A source archive of entries: name, type in tar's own letters, and content, or what a link names."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for name, kind, text in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, 0o755
            if kind == tarfile.REGTYPE:
                entry.size = len(text)
            else:
                entry.linkname = text
            made.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


PLAIN = ("a/setup.py", tarfile.REGTYPE, "pass")
LEADING_OUT = {
    "up": ("a/../../out", tarfile.REGTYPE, "x"),
    "root": ("/tmp/out", tarfile.REGTYPE, "x"),
    "link-out": ("a/link", tarfile.SYMTYPE, "/etc/passwd"),
    "hard-link-out": ("a/link", tarfile.LNKTYPE, "../../etc/passwd"),
    "link-to-itself": ("a/link", tarfile.SYMTYPE, "link"),
    "device": ("a/null", tarfile.CHRTYPE, ""),
    "pipe": ("a/pipe", tarfile.FIFOTYPE, ""),
    "file-in-a-file": ("a/setup.py/inner", tarfile.REGTYPE, "x"),
    "folder-on-a-file": ("a/setup.py", tarfile.DIRTYPE, ""),
    "too-long": (f"a/{'x' * 300}", tarfile.REGTYPE, "x"),
}


@pytest.mark.parametrize("name", LEADING_OUT)
def test_an_archive_that_holds_more_than_plain_files_is_not_unpacked(name: str, tmp_path: Path) -> None:
    with pytest.raises(sources.Failed, match=r"leads out of it|is no file|cannot be unpacked"):
        sources.unpack("a-1.0.tar.gz", archive(PLAIN, LEADING_OUT[name]), tmp_path / "source")
    assert [each.name for each in tmp_path.iterdir()] == ["source"]
    assert {each.name for each in (tmp_path / "source").rglob("*")} <= {"a", "setup.py"}


def test_a_link_inside_becomes_a_copy_and_what_may_be_run_stays_so(tmp_path: Path) -> None:
    links = (("a/soft", tarfile.SYMTYPE, "setup.py"), ("a/hard", tarfile.LNKTYPE, "a/setup.py"))
    folder = sources.unpack("a-1.0.tar.gz", archive(("a", tarfile.DIRTYPE, ""), PLAIN, *links), tmp_path / "source")
    found = {each.name: (each.is_symlink(), each.read_text(), each.stat().st_mode & 0o777) for each in folder.iterdir()}
    assert found == dict.fromkeys(("setup.py", "soft", "hard"), (False, "pass", 0o755))


def test_many_links_to_one_file_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST_UNPACKED", 30)
    links = [(f"a/{number}", tarfile.LNKTYPE, "a/setup.py") for number in range(10)]
    with pytest.raises(sources.Failed, match="unpacks to more than"):
        sources.unpack("a-1.0.tar.gz", archive(PLAIN, *links), tmp_path / "source")
    assert sum(each.stat().st_size for each in (tmp_path / "source" / "a").iterdir()) <= 30


class Run:
    """A solve whose wheels are built; ``said`` is what it told, ``rows`` what the lock would hold."""

    def __init__(self, cache: Path, *, before: str = "", budget_s: float = 60.0, held: tuple[Source, ...] = ()) -> None:
        self.said: list[str] = []
        self.rows: tuple[Source, ...] = ()
        self.sources = Sources(
            PLACE.python,
            before,
            FITS,
            TOOLS,
            cache,
            self.said.append,
            held,
            budget_s=budget_s,
        )

    def closure(self, *wanted: str) -> tuple[Pin, ...]:
        pins, _ = wheels.closure({"runtime": wanted}, PLACE, self.said.append, built=self.sources)
        self.rows = self.sources.rows(pins)
        return pins

    @property
    def building(self) -> list[str]:
        return [line for line in self.said if line.startswith("building")]


def versions(pins: tuple[Pin, ...]) -> list[str]:
    return [f"{pin.name} {pin.version}" for pin in pins]


# What is taken.


def test_a_package_that_is_source_alone_is_built_and_pinned(index: Index, tmp_path: Path) -> None:
    file = source(index, "a", "1.0", needs=("b>=1",))
    b = index.add("b", "1.5")
    run = Run(tmp_path / "kept")
    a, other = run.closure("a")
    assert (a.file, other) == ("a-1.0-py3-none-any.whl", b)
    assert run.rows == (
        Source("a", file, hashlib.sha256(index.wheels[file]).hexdigest(), len(index.wheels[file]), "3.11", ()),
    )
    assert run.building == ["building a 1.0 from its source: the index has no wheel of it for Python 3.11"]


@slow
@pytest.mark.nightly
def test_two_builds_give_the_same_bytes(index: Index, tmp_path: Path) -> None:
    source(index, "a", "1.0", "NEEDS = list({each + '; extra == \"x\"' for each in 'bcdefghij'})")
    first, second = (Run(tmp_path / name).closure("a") for name in ("one", "two"))
    assert first == second


@pytest.mark.nightly
@slow
def test_what_was_built_is_kept(index: Index, tmp_path: Path) -> None:
    source(index, "a", "1.0")
    first, again = Run(tmp_path), Run(tmp_path)
    assert first.closure("a") == again.closure("a")
    assert (first.rows, len(first.building), again.building) == (again.rows, 1, [])


def test_a_wheel_is_taken_before_newer_source_and_nothing_is_built(index: Index, tmp_path: Path) -> None:
    a = index.add("a", "1.0")
    source(index, "a", "2.0", "raise SystemExit('it was run')")
    source(index, "a", "1.0", "raise SystemExit('it was run')")
    run = Run(tmp_path)
    assert run.closure("a") == (a,)
    assert run.building == []


@slow
@pytest.mark.parametrize("wish", ["a==1.0", "a<2", "a~=1.0"])
def test_a_release_that_is_asked_for_is_built_though_others_have_wheels(
    index: Index, tmp_path: Path, wish: str
) -> None:
    index.add("a", "2.0")
    source(index, "a", "1.0")
    assert versions(Run(tmp_path).closure(wish)) == ["a 1.0"]


@slow
def test_what_another_package_needs_is_built(index: Index, tmp_path: Path) -> None:
    index.add("conf", "2.3", "parser==4.9.*")
    index.add("parser", "4.13")
    for version in ("4.8", "4.9.1", "4.9.3"):
        source(index, "parser", version)
    assert versions(Run(tmp_path).closure("conf")) == ["conf 2.3", "parser 4.9.3"]


@pytest.mark.nightly
@slow
@pytest.mark.nightly
def test_several_packages_may_need_different_releases_in_turn(index: Index, tmp_path: Path) -> None:
    """What is offered grows with what the solver learns."""
    index.add("conf", "2.3", "parser==4.9.*", "late")
    index.add("parser", "4.13")
    source(index, "parser", "4.9.3")
    source(index, "parser", "4.8")
    index.add("late", "1.0")
    source(index, "late", "2.0", needs=("parser==4.8",))
    index.add("other", "1.0", "late>1")
    index.add("old", "1.0", "parser==4.8")
    run = Run(tmp_path)
    assert versions(run.closure("old")) == ["old 1.0", "parser 4.8"]
    assert versions(run.closure("conf")) == ["conf 2.3", "late 1.0", "parser 4.9.3"]
    with pytest.raises(Unsatisfiable):
        run.closure("conf", "other")


@pytest.mark.nightly
@slow
def test_a_conflict_is_not_solved_by_old_source(index: Index, tmp_path: Path) -> None:
    index.add("a", "2.0", "c<2")
    index.add("b", "2.0", "c>=2")
    index.add("c", "1.0")
    index.add("c", "2.0")
    source(index, "a", "0.1")
    source(index, "b", "0.1")
    run = Run(tmp_path)
    with pytest.raises(Unsatisfiable, match="no set of wheels"):
        run.closure("a", "b")
    assert run.building == []


@pytest.mark.nightly
@slow
@pytest.mark.nightly
def test_the_newest_source_that_fits_the_python_and_the_day_is_built(index: Index, tmp_path: Path) -> None:
    source(index, "a", "1.0", uploaded="2024-01-01T00:00:00Z")
    source(index, "a", "2.0", uploaded="2024-06-01T00:00:00Z")
    index.pythons[source(index, "a", "3.0", uploaded="2024-02-01T00:00:00Z")] = ">=3.12"
    assert versions(Run(tmp_path).closure("a")) == ["a 2.0"]
    assert versions(Run(tmp_path, before="2024-06-01").closure("a")) == ["a 1.0"]
    index.yanked.add("a-2.0.tar.gz")
    assert versions(Run(tmp_path).closure("a")) == ["a 1.0"]


@slow
def test_a_release_whose_needs_cannot_be_met_gives_way_to_an_older_one(index: Index, tmp_path: Path) -> None:
    source(index, "a", "2.0", needs=("nosuch>1",))
    source(index, "a", "1.0")
    assert versions(Run(tmp_path).closure("a")) == ["a 1.0"]


@pytest.mark.nightly
@slow
@pytest.mark.nightly
def test_what_a_built_release_needs_is_built_before_an_older_one_is_taken(index: Index, tmp_path: Path) -> None:
    """Of an older one the solver knows no need, so that it never names what the newer one wants."""
    for number in range(1, 9):
        source(index, "a", f"{number}.0", needs=("timer", "words>=2"))
    source(index, "timer", "0.3", needs=("words",))
    index.add("words", "1.0")
    source(index, "words", "2.0")
    run = Run(tmp_path)
    assert versions(run.closure("a")) == ["a 8.0", "timer 0.3", "words 2.0"]
    assert [line.split()[1] for line in run.building] == ["a", "timer", "words"]


@pytest.mark.nightly
@slow
@pytest.mark.nightly
def test_a_newer_release_that_was_built_is_taken_before_the_newest_of_what_it_bounds(
    index: Index, tmp_path: Path
) -> None:
    source(index, "a", "2.0", needs=("torch<2.6",))
    source(index, "a", "1.0")
    for version in ("2.5", "2.6"):
        index.add("torch", version)
    run = Run(tmp_path)
    assert versions(run.closure("torch", "a")) == ["a 2.0", "torch 2.5"]
    assert len(run.building) == 1


@pytest.mark.nightly
@slow
@pytest.mark.nightly
def test_only_so_many_releases_are_built_one_after_the_other(index: Index, tmp_path: Path) -> None:
    for number in range(1, 12):
        source(index, "a", f"{number}.0", needs=(f"c=={number}",))
    index.add("c", "99")
    run = Run(tmp_path)
    with pytest.raises(Unsatisfiable) as caught:
        run.closure("a", "c>20")
    assert "a==11.0" in " ".join(caught.value.chain) and len(run.building) == sources._MOST_OLDER


@pytest.mark.nightly
@slow
def test_an_archive_may_be_a_zip(index: Index, tmp_path: Path) -> None:
    file = source(index, "a", "1.0")
    with tarfile.open(fileobj=io.BytesIO(index.wheels.pop(file))) as packed_tar, io.BytesIO() as out:
        with zipfile.ZipFile(out, "w") as archive:
            for member in packed_tar.getmembers():
                inside = packed_tar.extractfile(member)
                assert inside is not None
                archive.writestr(member.name, inside.read())
        index.wheels["a-1.0.zip"] = out.getvalue()
    run = Run(tmp_path)
    assert versions(run.closure("a")) == ["a 1.0"]
    assert run.rows[0].file == "a-1.0.zip"


# What it is built with.


@pytest.mark.nightly
@slow
def test_what_a_build_needs_is_pinned(index: Index, tmp_path: Path) -> None:
    helper, extra = index.add("helper", "1.0"), index.add("extra", "2.0")
    source(index, "a", "1.0", requires=("helper",), more=("extra",))
    run = Run(tmp_path / "one")
    run.closure("a")
    lines = tuple(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}" for pin in (extra, helper))
    assert run.rows[0].requires == lines
    index.add("helper", "9.0")
    held = Run(tmp_path / "two", held=run.rows)
    held.closure("a")
    assert held.rows == run.rows


@pytest.mark.nightly
@slow
@pytest.mark.nightly
def test_what_newer_tools_cannot_build_those_of_its_day_can(index: Index, tmp_path: Path) -> None:
    index.add("helper", "1.0", uploaded="2020-01-01T00:00:00Z")
    index.add("helper", "2.0", uploaded="2024-01-01T00:00:00Z")
    body = "from importlib.metadata import version; assert version('helper') == '1.0'"
    source(index, "a", "1.0", body, requires=("helper",), uploaded="2020-02-01T00:00:00Z")
    run = Run(tmp_path)
    run.closure("a")
    assert run.rows[0].requires[0].startswith("helper==1.0 ")


@slow
def test_a_build_sees_neither_the_users_variables_nor_the_network(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MINE", "hunter2")
    port = urlsplit(index.url).port
    body = f"""
    import socket
    assert "TOKEN_OF_MINE" not in os.environ and "UV_DEFAULT_INDEX" not in os.environ
    try:
        socket.create_connection(("127.0.0.1", {port}), 5)
    except OSError:
        pass
    else:
        raise SystemExit("the network is open")
    """
    source(index, "a", "1.0", body.strip())
    assert versions(Run(tmp_path).closure("a")) == ["a 1.0"]


# What cannot be built.

FAULTS = {
    "an error": ("raise RuntimeError('of its own')", "its build failed: RuntimeError: of its own"),
    "a module nobody declared": ("import nosuchmodule", "No module named 'nosuchmodule'"),
    "a wheel for one platform": ("TAG = 'cp311-cp311-linux_x86_64'", "it has to be compiled: it makes a-1.0-cp311"),
    "a library inside": ("FILES['a/_c.so'] = 'x'", "a/_c.so in it, which is for one platform"),
    "a program inside": ("FILES['a/tool'] = '\\x7fELF'", "a/tool in it, which is for one platform"),
    "another release": ("VERSION = '0.0.0'", "it makes a-0.0.0-py3-none-any.whl, another release"),
    "nothing": ("os._exit(0)", "it ends without an answer"),
    "no wheel": ("return 'a'", "it makes 0 wheels"),
    "a compiler": ("import subprocess; subprocess.run(['gcc', 'a.c'], check=True)", "its build calls gcc"),
    "a download": ("import urllib.request as u; u.urlopen('http://127.0.0.1:1/x')", "URLError"),
}


@slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_build_that_comes_to_nothing_is_refused_with_why(index: Index, tmp_path: Path, fault: str) -> None:
    body, why = FAULTS[fault]
    source(index, "a", "1.0", body)
    with pytest.raises(Unsatisfiable) as caught:
        Run(tmp_path).closure("a")
    assert "the index has a 1.0 as source alone" in caught.value.message
    assert why in caught.value.message
    assert list(tmp_path.rglob("*.whl")) == []


@slow
def test_what_is_built_against_torch_is_refused_before_torch_is_downloaded(index: Index, tmp_path: Path) -> None:
    index.add("torch", "1.0")
    source(index, "a", "1.0", "raise SystemExit('it was run')", requires=("helper",))
    index.add("helper", "1.0", "torch")
    with pytest.raises(Unsatisfiable, match="it has to be compiled: its build needs torch"):
        Run(tmp_path).closure("a")


@slow
def test_a_build_that_hangs_is_ended(index: Index, tmp_path: Path) -> None:
    source(index, "a", "1.0", "print('waiting'); time.sleep(3600)", uploaded="2025-01-01T00:00:00Z")
    with pytest.raises(Unsatisfiable, match="did not end within 1 s") as caught:
        Run(tmp_path, budget_s=1.0).closure("a")
    assert caught.value.chain == ("waiting",)


@slow
@pytest.mark.parametrize(
    ("files", "top", "why"),
    [
        ({"README": "x"}, "", "neither a pyproject.toml nor a setup.py"),
        ({"pyproject.toml": "["}, "", "its pyproject.toml cannot be read"),
        ({"pyproject.toml": "[build-system]\nrequires = 3"}, "", "is none"),
        ({"pyproject.toml": '[build-system]\nrequires = []\nbackend-path = [".."]'}, "", "leads out of it"),
        ({"pyproject.toml": '[build-system]\nrequires = ["nosuch"]'}, "", "what it needs to be built is not to be had"),
        ({"setup.py": "x"}, "..", "leads out of it"),
        (
            {
                "pyproject.toml": '[build-system]\nrequires = ["wheel-stub"]\nbuild-backend = "wheel_stub.buildapi"\n'
                '[tool.wheel_stub]\nindex_url = "https://wheels.example.com/"'
            },
            "",
            "another index has, https://wheels.example.com; name that in `extra-index`",
        ),
    ],
)
def test_an_archive_that_is_none_is_refused(
    index: Index, tmp_path: Path, files: dict[str, str], top: str, why: str
) -> None:
    publish(index, "a", "1.0", files, top=top)
    with pytest.raises(Unsatisfiable, match=why):
        Run(tmp_path).closure("a")


@slow
def test_an_archive_with_another_hash_is_not_built(index: Index, tmp_path: Path) -> None:
    index.lies.add(source(index, "a", "1.0"))
    with pytest.raises(Undecided, match="another sha256"):
        Run(tmp_path).closure("a")


# The lock, and what is built from it.


@pytest.fixture
def made(index: Index, published: Publish, tmp_path: Path) -> Lock:
    index.add("helper", "1.0")
    source(index, "plain", "1.0", requires=("helper",))
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "plain")
    return solve.lock(spec, load_facts(), print, cache=tmp_path / "kept", may_stay_open=PARTS)


@pytest.mark.nightly
@slow
def test_who_requires_a_wheel_that_was_built_is_told(index: Index, published: Publish, tmp_path: Path) -> None:
    source(index, "plain", "1.0")
    index.add("above", "1.0", "plain==1.0")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "above")
    made = solve.lock(spec, load_facts(), print, may_stay_open=PARTS)
    assert requires.members(made, spec, load_facts(), print)["plain"].by == ("above",)


@pytest.mark.nightly
@slow
@pytest.mark.nightly
def test_no_pre_release_is_taken_because_an_older_one_needs_what_is_source_alone(
    index: Index, published: Publish, tmp_path: Path
) -> None:
    """uv takes a pre-release where no release will do, be it only for want of a wheel."""
    for early in ("1.4rc2", "1.4rc3"):
        index.add("conf", early)
    index.add("conf", "1.3", "parser==4.9.*")
    index.add("parser", "4.13")
    source(index, "parser", "4.9.3")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "conf")
    lock = solve.lock(spec, load_facts(), print, cache=tmp_path / "kept", may_stay_open=PARTS)
    taken = {pin.name: pin.version for pin in lock.wheels}
    assert (taken["conf"], taken["parser"]) == ("1.3", "4.9.3")


def test_a_lock_holds_what_was_built_and_of_what(made: Lock) -> None:
    assert [one.name for one in made.sources] == ["plain"]
    assert parse(dump(made), "x") == made
    assert "plain==1.0 --hash=sha256:" in made.requirements
    text = dockerfile(made)
    assert text.count("--mount=type=bind,from=unindexed,target=/unpacked") == text.count("--find-links=/unpacked") == 1


@pytest.mark.nightly
@slow
def test_a_lock_made_again_is_the_same(index: Index, made: Lock, published: Publish, tmp_path: Path) -> None:
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "plain")
    again = solve.lock(spec, load_facts(), print, cache=tmp_path / "elsewhere", may_stay_open=PARTS)
    assert dump(again) == dump(made)
    index.add("helper", "2.0")
    kept = solve.lock(spec, load_facts(), print, cache=tmp_path / "third", previous=made, may_stay_open=PARTS)
    assert dump(kept) == dump(made)


@pytest.mark.nightly
@slow
def test_source_on_a_private_index_is_found_there_and_nowhere_else(
    index: Index, published: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = Index()
    private.folder, private.wants = tmp_path, "hunter2:"
    source(private, "plain", "1.0")
    source(index, "plain", "9.0", "raise SystemExit('it was run')")
    monkeypatch.setenv("TOKEN", "hunter2")
    said: list[str] = []
    text = f'extra-index = ["{private.url.replace("//", "//${TOKEN}@")}"]\n'
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "plain", text=text)
    made = solve.lock(spec, load_facts(), said.append, cache=tmp_path / "kept", may_stay_open=PARTS)
    private.server.shutdown()
    private.server.server_close()
    assert [(one.name, one.file) for one in made.sources] == [("plain", "plain-1.0.tar.gz")]
    assert "hunter2" not in dump(made) + "".join(said)


def test_a_lock_without_source_says_nothing_of_it(index: Index, published: Publish) -> None:
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    plain = solve.lock(spec, load_facts(), print, may_stay_open=PARTS)
    assert "[sources]" not in dump(plain)
    assert "AS unindexed" not in dockerfile(plain)


@pytest.mark.nightly
@slow
def test_the_wheels_of_a_lock_are_built_again_where_they_are_not_kept(made: Lock, tmp_path: Path) -> None:
    for cache, anew in (("kept", False), ("other", False), ("other", True)):
        target = tmp_path / f"{cache}{anew}"
        target.mkdir()
        said: list[str] = []
        gather(made, target, tmp_path / cache, said.append, anew=anew)
        pin = next(pin for pin in made.wheels if pin.name == "plain")
        assert [file.name for file in target.iterdir()] == [pin.file]
        assert hashlib.sha256((target / pin.file).read_bytes()).hexdigest() == pin.sha256
        assert said == ([] if cache == "kept" else ["building plain 1.0 from its source"])


@pytest.mark.nightly
@slow
def test_another_source_under_the_same_name_is_no_wheel_of_the_lock(index: Index, made: Lock, tmp_path: Path) -> None:
    source(index, "plain", "1.0", "FILES['new.py'] = ''", requires=("helper",))
    with pytest.raises(Undecided, match="is not the one that the lock pins"):
        gather(made, tmp_path, tmp_path / "other", print)
    del index.wheels["plain-1.0.tar.gz"]
    with pytest.raises(Undecided, match="does not have plain"):
        gather(made, tmp_path, tmp_path / "other", print)


@slow
def test_a_wheel_that_comes_out_different_is_refused(
    made: Lock, index: Index, published: Publish, tmp_path: Path
) -> None:
    index.add("helper", "1.0")
    source(index, "plain", "1.0", "FILES['now.py'] = str(time.time_ns())", requires=("helper",))
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "plain")
    odd = solve.lock(spec, load_facts(), print, cache=tmp_path / "odd", may_stay_open=PARTS)
    with pytest.raises(Undecided, match="makes another wheel here"):
        gather(odd, tmp_path, tmp_path / "other", print)


@slow
def test_an_environment_is_made_with_what_was_built(
    made: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    engine, said = LocalEngine(tmp_path / "root"), list[str]()
    up.build(made, engine, said.append, tag="one:1")
    assert "building plain 1.0 from its source" in said
    code = b"import plain; print(plain.x)"
    assert engine.run("one:1", [], payload=code, timeout_s=60, say=said.append).stdout == "1\n"
    up.build(made, engine, said.append, tag="one:1", no_cache=True)
    assert said.count("building plain 1.0 from its source") == 2


@pytest.mark.nightly
@slow
def test_the_wheel_is_packed_for_all_machines_alike(index: Index, tmp_path: Path) -> None:
    source(index, "a", "1.0")
    Run(tmp_path).closure("a")
    (kept,) = tmp_path.rglob("*.whl")
    with zipfile.ZipFile(kept) as archive:
        entries = archive.infolist()
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert entries[-1].filename == "a-1.0.dist-info/RECORD"


def test_a_line_that_is_no_requirement_hides_no_bound_behind_it() -> None:
    found = sources._asks("b", ["./b-1.0.whl", "a>=1", "B[x]<3", "b", "b==2"])
    assert [str(one) for one in found] == ["<3", "==2"]
    said = "a==1 depends on b==2.*, c depends on b~=x and d[e] depends on b[f]>=1.\ne depends on bb<3"
    assert [str(one) for one in sources._told("b", said)] == ["==2.*", ">=1"]
