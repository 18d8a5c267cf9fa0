"""The closure of Debian packages, solved by the real apt-get over archives of hand-made packages."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from archive import DATED, Archive, installed, needs_apt

from envkit.errors import Undecided, UsageError
from envkit.plan import apt
from envkit.plan.lockfile import Deb
from envkit.system.proc import Completed

pytestmark = needs_apt


def quiet(line: str) -> None:
    pass


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


def solve(
    archive: Archive, status: bytes = b"", fresh: bool = True, machine: str = "x86_64", **wanted: tuple[str, ...]
) -> tuple[Deb, ...]:
    """The packages of ``wanted`` with what the archive holds now."""
    archive.publish()
    cache = archive.folder.parent / "cache"
    said = apt.solve(
        status, archive.suite, ("main",), wanted, machine, cache, quiet, fresh=fresh, mirrors=archive.lines
    )
    assert said[0] == DATED
    return said[1]


def shown(debs: tuple[Deb, ...]) -> list[str]:
    return [f"{deb.layer}: {deb.name} {deb.version}" for deb in debs]


def refused(archive: Archive, *names: str, status: bytes = b"") -> UsageError:
    with pytest.raises(UsageError) as caught:
        solve(archive, status, runtime=names)
    message = caught.value.message
    assert message.isprintable()
    assert not message.endswith(".")
    assert caught.value.fix
    return caught.value


def test_a_package_comes_with_what_it_needs_its_version_hash_and_size(archive: Archive) -> None:
    gcc = archive.add("gcc", "4:12.2.0-3", depends="cpp (>= 12), libc6", recommends="doc", suggests="more")
    cpp = archive.add("cpp", "12.2~rc1-1+b2", arch="all")
    for name in ("libc6", "doc", "more", "other"):
        archive.add(name, "1.0")
    debs = solve(archive, installed(("libc6", "1.0")), runtime=("gcc",))
    assert debs == (
        Deb("cpp", "12.2~rc1-1+b2", "all", cpp, 1003, "runtime"),
        Deb("gcc", "4:12.2.0-3", "amd64", gcc, 1003, "runtime"),
    )


def test_what_the_base_holds_is_not_named_unless_it_must_be_newer(archive: Archive) -> None:
    archive.add("libc6", "2.0")
    archive.add("libc6-dev", "2.0", depends="libc6 (= 2.0)")
    archive.add("python3", "3.11")
    base = installed(("libc6", "1.9"), ("python3", "3.11"))
    assert shown(solve(archive, base, runtime=("python3",))) == []
    assert shown(solve(archive, base, runtime=("python3", "libc6-dev"))) == [
        "runtime: libc6 2.0", "runtime: libc6-dev 2.0",
    ]  # fmt: skip


def test_a_bare_base_has_what_is_required_apt_and_what_these_need() -> None:
    def package(name: str, **fields: str) -> bytes:
        return installed((name, "1"), **fields)

    held = [
        package("libc6"),
        package("mawk", provides="awk"),
        package("bash", priority="required", depends="libc6 (>= 2.36), base-files | nothing"),
        package("base-files", priority="required").replace(b"Maintainer", b"Pre-Depends: awk, mawk\nMaintainer"),
        package("apt", priority="important", depends="libgcc-s1, keyring:any"),
        package("libgcc-s1"),
        package("keyring"),
        package("g++", priority="optional", depends="libc6, bash"),
        package("python3", priority="standard"),
        package("left", priority="required").replace(b"install ok installed", b"deinstall ok config-files"),
    ]
    found = apt.bare(b"\n".join(held))
    names = [line.split()[1] for line in found.decode().splitlines() if line.startswith("Package: ")]
    assert names == ["libc6", "mawk", "bash", "base-files", "apt", "libgcc-s1", "keyring"]
    assert apt.bare(found) == found


def test_a_package_is_of_the_first_layer_that_needs_it(archive: Archive) -> None:
    archive.add("python3", "3", depends="lib")
    archive.add("lib", "1")
    archive.add("git", "2", depends="lib, perl")
    archive.add("perl", "5")
    archive.add("gdb", "13", depends="perl, eyes")
    archive.add("eyes", "1")
    archive.add("python3-venv", "3", depends="python3, perl")
    found = solve(archive, runtime=("python3",), devel=("git",), debug=("gdb",), tools=("python3-venv",))
    assert shown(found) == [
        "runtime: lib 1", "runtime: python3 3", "devel: git 2", "devel: perl 5", "debug: eyes 1", "debug: gdb 13",
        "tools: lib 1", "tools: perl 5", "tools: python3 3", "tools: python3-venv 3",
    ]  # fmt: skip
    assert shown(solve(archive, devel=("git",), debug=("git",))) == ["devel: git 2", "devel: lib 1", "devel: perl 5"]
    assert shown(solve(archive, runtime=(), tools=("perl",))) == ["tools: perl 5"]
    assert solve(archive) == ()


def test_a_layer_above_takes_the_alternative_that_the_layer_below_holds(archive: Archive) -> None:
    """With all names at once apt-get would take mail-b for the runtime's "mail-a | mail-b" too."""
    archive.add("reader", "1", depends="mail-a | mail-b")
    archive.add("mail-a", "1")
    archive.add("mail-b", "1")
    archive.add("writer", "1", depends="mail-b")
    found = shown(solve(archive, runtime=("reader",), devel=("writer", "mail-b")))
    assert found == ["runtime: mail-a 1", "runtime: reader 1", "devel: mail-b 1", "devel: writer 1"]


def test_a_version_that_was_asked_for_is_taken(archive: Archive) -> None:
    archive.add("make", "4.3-1")
    archive.add("make", "4.4-1")
    assert shown(solve(archive, runtime=("make",))) == ["runtime: make 4.4-1"]
    assert shown(solve(archive, runtime=("make=4.3-1",))) == ["runtime: make 4.3-1"]


def test_another_processor_is_solved_for_here(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive", suite="trixie", arch="arm64")
    archive.add("make", "4.4-1")
    (deb,) = solve(archive, installed(("libc6", "2"), arch="arm64"), machine="aarch64", runtime=("make",))
    assert deb.arch == "arm64"


def test_a_name_that_does_not_exist_is_refused_with_the_nearest(archive: Archive) -> None:
    archive.add("libnuma1", "2.0")
    error = refused(archive, "libnuma2")
    assert error.message == "the Debian archive has no package libnuma2"
    assert "libnuma1" in error.fix


def test_a_name_is_no_pattern(archive: Archive) -> None:
    archive.add("libc6-dev", "2.0")
    assert "has no package libc6.dev" in refused(archive, "libc6.dev").message


def test_a_name_that_only_others_provide_is_refused(archive: Archive) -> None:
    archive.add("exim", "4", provides="mta")
    archive.add("postfix", "3", provides="mta")
    assert "mta is not a package" in refused(archive, "mta").message


def test_a_version_that_is_gone_is_refused_with_the_one_there_is(archive: Archive) -> None:
    archive.add("make", "4.4-1")
    assert refused(archive, "make=4.3-1").message == "the Debian archive has no make of version 4.3-1, it has 4.4-1"


def test_packages_that_do_not_go_together_are_refused(archive: Archive) -> None:
    archive.add("a", "1", depends="lib (>= 2)")
    archive.add("lib", "1")
    error = refused(archive, "a")
    assert "conflict with one another" in error.message
    assert "lib (>= 2)" in error.message


def test_nothing_of_the_base_is_taken_away(archive: Archive) -> None:
    archive.add("new", "1", conflicts="old")
    archive.add("old", "1")
    assert "removing packages of the base" in refused(archive, "new", status=installed(("old", "1"))).message


def test_a_package_without_a_sha256_cannot_be_locked(archive: Archive) -> None:
    archive.add("make", "1", hashed=False)
    with pytest.raises(Undecided, match="no sha256 for make"):
        solve(archive, runtime=("make",))


def test_a_mirror_that_is_not_there_is_undecided_and_no_old_list_stands_in(archive: Archive, tmp_path: Path) -> None:
    archive.add("make", "1")
    assert solve(archive, runtime=("make",))
    lines = [f"deb [trusted=yes] file:{tmp_path}/nowhere bookworm main"]
    for fresh in (True, False):  # the first failure must not leave the old lists for new ones
        wanted = {"runtime": ("make",)}
        cache = tmp_path / "cache"
        with pytest.raises(Undecided, match="package lists of bookworm could not be fetched") as caught:
            apt.solve(b"", "bookworm", ("main",), wanted, "x86_64", cache, quiet, fresh=fresh, mirrors=lines)
        assert not isinstance(caught.value, apt.NoApt)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "E: Failed to fetch http://u:secret@d/x  Could not connect to d:80 (192.0.2.1), connection timed out",
            "network",
        ),
        ("E: Failed to fetch http://d/x  Temporary failure resolving 'd'", "network did not serve"),
        ("E: Failed to fetch https://d/x  Certificate verification failed: not trusted", "certificate"),
        ("E: You don't have enough free space in /var/x", "disk is full"),
        ("E: The repository 'http://d bookworm Release' does not have a Release file.", "does not have a Release file"),
    ],
)
def test_trouble_of_the_world_is_told_apart(tmp_path: Path, said: str, told: str) -> None:
    error = apt._trouble(tmp_path, Completed(("apt-get", "update"), 100, "", said + "\n"), "the lists are not there")
    assert isinstance(error, Undecided)
    assert told in error.message


def test_no_password_of_a_mirror_is_shown(tmp_path: Path) -> None:
    for rest in ("  Something else", "  Connection timed out"):
        said = f"E: Failed to fetch http://user:secret@d/x{rest}\n"
        error = apt._trouble(tmp_path, Completed(("apt-get",), 100, "", said), "the lists are not there")
        assert "secret" not in error.message


def test_an_archive_without_a_signature_is_refused(archive: Archive, tmp_path: Path) -> None:
    archive.add("make", "1")
    archive.publish()
    lines = [f"deb file:{archive.folder} bookworm main"]
    with pytest.raises(Undecided, match="no key on this machine matches their signature"):
        apt.solve(b"", "bookworm", ("main",), {"runtime": ("make",)}, "x86_64", tmp_path, quiet, mirrors=lines)


def test_a_list_younger_than_a_day_is_not_fetched_again(archive: Archive, tmp_path: Path) -> None:
    archive.add("make", "1")
    assert shown(solve(archive, runtime=("make",))) == ["runtime: make 1"]
    archive.add("make", "2")
    assert shown(solve(archive, fresh=False, runtime=("make",))) == ["runtime: make 1"]
    (stamp,) = (tmp_path / "cache/apt").glob("*/fetched")
    day = time.time() - 25 * 3600
    os.utime(stamp, (day, day))
    assert shown(solve(archive, fresh=False, runtime=("make",))) == ["runtime: make 2"]
    archive.add("make", "3")
    assert shown(solve(archive, fresh=True, runtime=("make",))) == ["runtime: make 3"]


def test_an_answer_is_kept_for_the_same_question_alone(archive: Archive, tmp_path: Path) -> None:
    archive.add("make", "1", depends="lib")
    archive.add("lib", "1")
    first = solve(archive, runtime=("make",))
    (kept,) = (tmp_path / "cache/apt").glob("*/answers/*")
    assert solve(archive, fresh=False, runtime=("make",)) == first
    assert shown(solve(archive, installed(("lib", "1")), fresh=False, runtime=("make",))) == ["runtime: make 1"]
    assert shown(solve(archive, fresh=False, runtime=("lib",))) == ["runtime: lib 1"]
    assert shown(solve(archive, fresh=False, devel=("lib",))) == ["devel: lib 1"]
    kept.write_text("[[1]]")
    assert solve(archive, fresh=False, runtime=("make",)) == first


def test_what_is_answered_already_starts_no_program(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add("make", "1")
    first = solve(archive, runtime=("make",))
    broken = tmp_path / "bin" / "apt-config"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent), prepend=os.pathsep)
    assert solve(archive, fresh=False, runtime=("make",)) == first
    with pytest.raises(Undecided, match="apt-config"):
        solve(archive, fresh=False, devel=("make",))


def test_two_envkits_at_once_wait_for_one_another(archive: Archive) -> None:
    for number in range(4):
        archive.add(f"p{number}", "1")
    archive.publish()
    found: dict[int, tuple[Deb, ...]] = {}

    def work(number: int) -> None:
        cache = archive.folder.parent / "cache"
        wanted = {"runtime": (f"p{number}",)}
        status = installed((f"q{number}", "1"))
        found[number] = apt.solve(
            status, "bookworm", ("main",), wanted, "x86_64", cache, quiet, fresh=True, mirrors=archive.lines
        )[1]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: shown(debs) for number, debs in found.items()} == {
        number: [f"runtime: p{number} 1"] for number in range(4)
    }


def test_the_machine_s_own_lists_and_packages_are_left_alone(archive: Archive, tmp_path: Path) -> None:
    def state() -> list[tuple[str, int]]:
        places = (Path("/var/lib/apt/lists"), Path("/var/lib/dpkg/status"), Path("/var/cache/apt"))
        found = [path for place in places for path in (place, *(place.iterdir() if place.is_dir() else ()))]
        return [(str(path), path.stat().st_mtime_ns) for path in found]

    before = state()
    archive.add("make", "1")
    solve(archive, runtime=("make",))
    assert state() == before
    scratch = tmp_path / "cache/apt/bookworm-main-amd64"
    assert (scratch / "sources.list").stat().st_mode & 0o077 == 0  # an address may hold a password


def test_a_machine_without_apt_says_so(archive: Archive, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from envkit.engine import debian; from envkit.plan import apt\n"
        "try: apt.solve(b'', 'bookworm', ('main',), {'runtime': ('make',)}, 'x86_64', Path('x'), print)\n"
        "except apt.NoApt as error: print(error.message, debian.sources('bookworm'))"
    )
    env = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "this machine has no apt-get, which is needed to resolve Debian packages []\n"
