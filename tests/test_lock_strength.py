"""A lock never loses a layer: what it leaves open, or holds less firmly than the one that is there, is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from archive import Archive, installed, needs_apt
from fake_docker import FakeDocker
from index import Index, Publish
from inline import Ended, Envkit
from test_prove import FakeEngine

from envkit.engine import BaseRequest, ResolvedBase, Say
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.facts import load as load_facts
from envkit.judging.judge import judge
from envkit.model import Observed, Outcome, Severity
from envkit.plan import lockfile as locks
from envkit.plan.apt import Base, NoApt, NoBase
from envkit.plan.apt import solve as solve_debs
from envkit.plan.lockfile import MADE, OPEN, PARTS, PINNED, Lock
from envkit.plan.resolve import Choice, resolve
from envkit.plan.solve import lock as solve_lock
from envkit.plan.spec import Spec
from envkit.plan.spec import load as load_spec
from envkit.plan.update import base_of
from envkit.runner import runner
from envkit.static.check import CheckRequest, answer, config_of
from envkit.subjects import Image
from envkit.system.files import cache_dir
from envkit.system.no_room import NoRoom

IMAGES = Path(__file__).parent.parent / "images"
DIGEST = "sha256:" + "c" * 64


def checked_in(name: str = "torch-2.6-cu124") -> Lock:
    return locks.parse((IMAGES / name / "envkit.lock").read_text(), name)


def quiet(line: str) -> None:
    pass


# How firmly.


def test_strength_is_what_another_build_gets() -> None:
    whole = checked_in()
    assert locks.strength(whole) == {"os": PINNED, "base": MADE}
    assert locks.strength(replace(whole, origin="registry")) == {"os": PINNED, "base": PINNED}
    assert locks.strength(replace(whole, digest="", origin="", image=f"debian@{DIGEST}"))["base"] == PINNED
    assert locks.strength(replace(whole, digest="", origin=""))["base"] == OPEN
    assert locks.strength(replace(whole, archive="", debs=()))["os"] == OPEN
    assert locks.strength(replace(whole, archive="", debs=(), apt={}))["os"] == PINNED  # none is asked for


def test_weaker_is_weaker_of_the_same_base() -> None:
    whole = replace(checked_in(), origin="registry")
    made, tag, names = (replace(whole, origin="packages"), replace(whole, digest=""), replace(whole, archive=""))
    assert locks.weaker(whole, whole) == ()
    assert locks.weaker(made, whole) == locks.weaker(tag, whole) == ("base",)
    assert locks.weaker(replace(tag, archive=""), whole) == ("os", "base")
    assert locks.weaker(names, whole) == ("os",) and locks.weaker(whole, names) == ()
    assert locks.weaker(replace(made, image="debian:13-slim"), whole) == ()


def test_a_lock_says_in_its_first_lines_what_it_leaves_open_and_the_seal_holds_it() -> None:
    whole = checked_in()
    lines = locks.dump(whole).splitlines()
    assert "NOT PINNED" not in lines[1] and "a plain `docker build` of the Dockerfile takes debian:12-slim" in lines[1]
    assert "docker build" not in locks.dump(replace(whole, origin="registry"))
    weak = replace(whole, archive="", debs=(), digest="", origin="")
    text = locks.dump(weak)
    assert [line.partition(":")[0] for line in text.splitlines()[1:3]] == ["# NOT PINNED (os)", "# NOT PINNED (base)"]
    assert locks.parse(text, "x") == weak
    with pytest.raises(UsageError, match="edited by hand at line 2"):
        locks.parse(text.replace("NOT PINNED (os)", "pinned (os)"), "x")


@pytest.mark.parametrize("name", sorted(path.parent.name for path in IMAGES.glob("*/envkit.lock")))
def test_the_locks_that_are_checked_in_say_what_they_leave_open(name: str) -> None:
    text = (IMAGES / name / "envkit.lock").read_text()
    left = locks.unpinned(checked_in(name))
    assert text.count("# NOT PINNED (") == len(left)
    assert (len(left) == 2) == (name in ("torch-2.6-cu124-nvidia-devel", "torch-2.6-cu124-pytorch"))


# What is made, and what is refused.


@pytest.fixture
def job(tmp_path: Path, published: Publish) -> Spec:
    published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    (tmp_path / "job").mkdir()
    (tmp_path / "job/envkit.toml").write_text('torch = "2.6.0"\npython = "3.11"\n')
    return load_spec(tmp_path / "job")


@pytest.fixture
def mirror(job: Spec, tmp_path: Path, no_mirrors: None) -> Archive:
    """Lists of a hand-made archive in envkit's cache, a moment old."""
    extras = resolve(job, load_facts()).extras
    archive = Archive(tmp_path / "archive")
    for name in sorted({name for names in extras.apt.values() for name in names}):
        archive.add(name, "1.0")
    archive.publish()
    solve_debs(b"", "bookworm", extras.components, {}, "x86_64", cache_dir(), quiet, mirrors=archive.lines)
    return archive


def fails(error: EnvkitError) -> Callable[[Choice], Base]:
    def base(choice: Choice) -> Base:
        raise error

    return base


def of(origin: str, digest: str = DIGEST) -> Callable[[Choice], Base]:
    return lambda _: Base(digest, origin, installed(("libc6", "2.36")))


def lock(job: Spec, base: Callable[[Choice], Base], *allowed: str, **more: object) -> Lock:
    return solve_lock(job, load_facts(), quiet, base=base, cache=cache_dir(), may_stay_open=allowed, **more)  # type: ignore[arg-type]


CAUSES = [
    (NoBase("--engine none examines no base", "use one"), UsageError),
    (Undecided("no docker engine answers", "start it"), Undecided),
    (Undecided("no registry serves it and mmdebstrap is missing", "install it"), Undecided),
]


@pytest.mark.parametrize(("cause", "kind"), CAUSES)
def test_a_first_lock_without_a_base_is_refused_with_the_cause(
    job: Spec, cause: EnvkitError, kind: type[EnvkitError]
) -> None:
    for allowed, left in (
        ((), "os --allow-unpinned base"), (("os",), "base"), (("base",), "os"),
    ):  # fmt: skip
        with pytest.raises(kind, match=cause.message) as caught:
            lock(job, fails(cause), *allowed)
        assert caught.value.fix == f"{cause.fix}; or accept it: --allow-unpinned {left}"
    made = lock(job, fails(cause), "os", "base")
    assert set(locks.unpinned(made)) == {"os", "base"}


@pytest.mark.slow  # makes whole locks
@needs_apt
@pytest.mark.usefixtures("mirror")
def test_a_pinned_lock_keeps_its_system_until_it_is_asked_for(job: Spec, index: Index) -> None:
    whole = lock(job, of("registry"))
    assert locks.strength(whole) == {"os": PINNED, "base": PINNED}
    index.add("setuptools", "81.0.0")
    gone = fails(Undecided("no docker engine answers", "start it"))
    for base in (gone, of("packages"), of("", "")):  # none, a weaker one, one without a digest
        kept = lock(job, base, previous=whole, upgrade=("setuptools",))
        assert replace(kept, wheels=whole.wheels) == whole and kept.wheels != whole.wheels
    for upgrade in ((), tuple(deb.name for deb in whole.debs)):
        with pytest.raises(Undecided, match=r"the existing lock pins them and was left unchanged"):
            lock(job, gone, previous=whole, upgrade=upgrade)
    # A tree made from packages is what `envkit build` makes again, and no plain `docker build` does.
    changed = replace(whole, apt={"runtime": ("python3",)})
    with pytest.raises(Undecided, match="no registry currently gives a digest of debian:12-slim; the base would not"):
        lock(job, of("packages"), previous=changed)
    assert locks.strength(lock(job, of("packages"), "base", previous=changed))["base"] == MADE


@needs_apt
@pytest.mark.usefixtures("mirror")
def test_a_base_without_a_digest_is_refused(job: Spec) -> None:
    with pytest.raises(Undecided, match="has debian:12-slim, but without a digest from a registry; the base would"):
        lock(job, of("", ""))
    assert set(locks.unpinned(lock(job, of("", ""), "base"))) == {"base"}


def test_an_image_that_was_loaded_without_a_digest_gives_way_to_a_base_that_has_one(job: Spec) -> None:
    """Its Debian packages and it are pinned then, and `envkit build` makes that base again."""

    class Loaded(FakeEngine):
        def resolve_base(self, wish: BaseRequest, say: Say) -> ResolvedBase:
            self.base = (
                ResolvedBase("b", "b", "local", "") if wish.ref else ResolvedBase("t", "t", "bootstrapped", DIGEST)
            )
            return super().resolve_base(wish, say)

    fake = Loaded()
    fake.files["/var/lib/dpkg/status"] = installed(("libc6", "2.36"))
    found = base_of(lambda: fake, quiet, resolve(job, load_facts()))
    assert (found.digest, found.origin) == (DIGEST, "packages")
    assert [wish.ref for wish in fake.wishes] == ["debian:12-slim", ""]


class Read(FakeEngine):
    """Its base is made from packages; ``reads`` counts how often a file of it was read."""

    reads = 0

    def file(self, image: str, path: str) -> bytes:
        self.reads += 1
        return super().file(image, path)


def read(fake: Read, cache: Path, digest: str = DIGEST, version: str = "2.6") -> bytes:
    """The package list of a base of this digest, whose apt has this version."""
    fake.base = ResolvedBase("t", "t", "bootstrapped", digest)
    fake.files["/var/lib/dpkg/status"] = installed(("apt", version))
    return status_of(fake, cache)


def status_of(fake: FakeEngine, cache: Path) -> bytes:
    choice = resolve(load_spec(IMAGES / "torch-2.6-cu124"), load_facts())
    return base_of(lambda: fake, quiet, choice, cache).status


def test_the_package_list_of_a_base_is_read_once_and_again_for_another_digest(tmp_path: Path) -> None:
    fake, other = Read(), "sha256:" + "e" * 64
    first = read(fake, tmp_path)
    assert b"Package: apt" in first
    assert (read(fake, tmp_path), fake.reads) == (first, 1)
    assert (read(fake, tmp_path, other, "3.0") != first, fake.reads) == (True, 2)
    assert (read(fake, tmp_path), fake.reads) == (first, 3)
    assert len(list((tmp_path / "bases").iterdir())) == 1  # one for each suite


@pytest.mark.parametrize("how", ["cut", "changed", "empty", "no text", "a folder"])
def test_a_kept_package_list_that_is_damaged_is_read_again(tmp_path: Path, how: str) -> None:
    fake = Read()
    first = read(fake, tmp_path)
    (kept,) = (tmp_path / "bases").iterdir()
    text = kept.read_bytes()
    if how == "a folder":
        kept.unlink()
        kept.mkdir()
    else:
        made = {"cut": text[:-1], "changed": text.replace(b"2.6", b"2.7"), "empty": b"", "no text": b"\xff"}
        kept.write_bytes(made[how])
    assert (read(fake, tmp_path), fake.reads) == (first, 2)
    assert (read(fake, tmp_path), fake.reads) == (first, 3 if how == "a folder" else 2)


def test_a_package_list_that_cannot_be_kept_is_read_each_time(tmp_path: Path) -> None:
    fake, cache = Read(), tmp_path / "file"
    cache.write_text("no folder")
    assert read(fake, cache) == read(fake, cache)
    assert fake.reads == 2
    assert cache.read_text() == "no folder"


def test_a_base_that_is_not_made_from_packages_is_read_each_time(tmp_path: Path) -> None:
    """The digest of a registry may be that of an index, which has a list for each platform."""
    fake = Read(base=ResolvedBase("r", "r", "registry", DIGEST), files={"/var/lib/dpkg/status": b"Package: a\n"})
    for _ in range(2):
        assert status_of(fake, tmp_path) == b"Package: a\n"
    assert fake.reads == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_mirrors")
def test_a_machine_without_a_mirror_is_refused(job: Spec) -> None:
    with pytest.raises(Undecided, match="the Debian packages would not be pinned") as caught:
        lock(job, of("registry"))
    assert not isinstance(caught.value, NoApt) and caught.value.fix.endswith("or accept it: --allow-unpinned os")
    assert set(locks.unpinned(lock(job, of("registry"), "os"))) == {"os"}


def test_a_full_disk_is_no_thing_to_accept(job: Spec) -> None:
    with pytest.raises(NoRoom, match="the disk is full"):
        lock(job, fails(NoRoom("the disk is full: x", "make room")), "os", "base")


def test_a_system_that_cannot_be_pinned_is_refused_before_any_work(tmp_path: Path, index: Index) -> None:
    (tmp_path / "envkit.toml").write_text('torch = "2.6.0"\npython = "3.12"\n')
    with pytest.raises(UsageError, match=r"ubuntu:24\.04 is not plain Debian") as caught:
        lock(load_spec(tmp_path), of("registry"))
    assert caught.value.code == 2 and "--allow-unpinned os" in caught.value.fix
    assert not index.asked.is_set()


# The command line.


def envkit(capsys: pytest.CaptureFixture[str], *words: object) -> Ended:
    with Envkit(capsys) as run:
        return run(*words)


@pytest.mark.parametrize("words", [("lock",), ("lock", "--refresh-os"), ("lock", "--upgrade"), ("build",), ("up",)])
@pytest.mark.usefixtures("no_mirrors")
def test_no_verb_writes_a_lock_that_leaves_something_open(
    words: tuple[str, ...], job: Spec, docker: FakeDocker, capsys: pytest.CaptureFixture[str]
) -> None:
    docker.holds("debian:12-slim", b"", digest=DIGEST)
    docker.files["/var/lib/dpkg/status"] = installed(("libc6", "2.36"))
    ended = envkit(capsys, *words, job.path.parent)
    assert ended.code == 3 and "the Debian packages would not be pinned" in ended.err, ended.err
    assert "\n  fix: " in ended.err and [path.name for path in job.path.parent.iterdir()] == ["envkit.toml"]


def test_what_may_stay_open_is_looked_at_first(job: Spec, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("lock", "build", "up"):
        ended = envkit(capsys, verb, job.path.parent, "--allow-unpinned", "wheels")
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == "envkit: there is no part of a lock `wheels`\n  fix: one of: os, base\n"


def test_refreshing_a_lock_where_no_container_is_built_keeps_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    index: Index,
    published: Publish,
) -> None:
    """As `make run` does on a machine without Docker, which once replaced its pinned packages by names."""
    from envkit.plan.update import ensure_lock

    job = tmp_path / "torch-2.6-cu124"
    job.mkdir()
    for name in ("envkit.toml", "envkit.lock"):
        (job / name).write_bytes((IMAGES / job.name / name).read_bytes())
    said: list[str] = []
    held = ensure_lock(load_spec(job), load_facts(), lambda: None, said.append, refresh_os=True)
    assert (job / "envkit.lock").read_bytes() == (IMAGES / job.name / "envkit.lock").read_bytes()
    assert held.debs and said == [
        "keeping the locked base and Debian packages: no container engine here builds on them"
    ]
    # Asked for by name, it is refused: nothing could be refreshed.
    published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    index.add("numpy", "2.2.0")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    ended = envkit(capsys, "lock", job, "--engine", "none", "--upgrade")
    assert ended.code == 2 and "--engine none examines no base" in ended.err
    assert (job / "envkit.lock").read_bytes() == (IMAGES / job.name / "envkit.lock").read_bytes()


def test_an_environment_without_containers_asks_for_no_base(
    job: Spec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first lock leaves the system open, which it does not have; what was pinned before stays pinned."""
    from envkit.engine.local import LocalEngine
    from envkit.plan.update import ensure_lock

    local, warned = LocalEngine(tmp_path / "local"), list[str]()
    made = ensure_lock(job, load_facts(), lambda: local, lambda line: None, warn=warned.append)
    assert set(locks.unpinned(made)) == {"os", "base"} == {line.split("(")[1].split(")")[0] for line in warned}
    assert locks.read(job) == made
    ended = envkit(capsys, "lock", job.path.parent, "--engine", "none", "--upgrade")  # by itself it is refused still
    assert ended.code == 2 and "--allow-unpinned os --allow-unpinned base" in ended.err


# The verdicts.


def test_a_check_of_the_folder_warns() -> None:
    def fired(name: str) -> list[str]:
        asked = CheckRequest((str(IMAGES / name / "envkit.lock"),))
        found = answer(asked, config_of(asked))
        (result,) = [one for one in found.report.results if one.check == "packages-lock-not-fully-pinned"]
        assert all(finding.severity is Severity.WARNING for finding in result.findings)
        return [finding.message for finding in result.findings]

    assert fired("torch-2.6-cu124") == []
    os, base = sorted(fired("torch-2.6-cu124-pytorch"), reverse=True)
    assert "by name alone" in f"{os}{base}" and "by its tag alone" in f"{os}{base}"


@pytest.mark.parametrize(("part", "change"), [("os", {"archive": "", "debs": ()}), ("base", {"digest": ""})])
def test_what_an_image_s_lock_leaves_open_is_a_warning_of_up_probe_and_audit(
    part: str, change: dict[str, object]
) -> None:
    weak = replace(checked_in(), **change)  # type: ignore[arg-type]
    image = Image("x", promise=Observed.of(runner.promise_of(weak, "runtime"), runner.LOCK_LABEL))
    (result,) = [one for one in judge(image, load_facts()) if one.check == "image-lock-not-fully-pinned"]
    assert result.outcome is Outcome.FAIL and part in PARTS
    assert [(one.message, one.severity) for one in result.findings] == [(locks.unpinned(weak)[part], Severity.WARNING)]


def test_a_lock_that_stays_says_what_it_leaves_open(
    job: Spec, index: Index, mirror: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    allowed = ("--engine", "none", "--allow-unpinned", "os", "--allow-unpinned", "base")
    assert envkit(capsys, "lock", job.path, *allowed).code == 0
    again = envkit(capsys, "lock", job.path, "--engine", "none")
    assert again.code == 0 and "is up to date with this spec" in again.err
    assert "NOT PINNED (os): " in again.err and "NOT PINNED (base): " in again.err


@pytest.mark.parametrize("option", [("--upgrade",), ("-P", "numpy"), ("--refresh-os",)])
def test_a_check_of_a_lock_changes_nothing(
    job: Spec, capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    ended = envkit(capsys, "lock", job.path, "--check", *option)
    assert ended.code == 2 and "--check changes nothing" in ended.err
