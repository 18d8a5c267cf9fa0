"""From a spec to pins, with the real uv and an index of hand-made wheels on this machine."""

from __future__ import annotations

import io
import re
import sys
import sysconfig
import tarfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from archive import DATED, Archive, needs_apt
from index import UPLOADED_S, Index, Publish, extra_wheels
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envkit.errors import Undecided, Unsatisfiable, UsageError
from envkit.facts import load as load_facts
from envkit.plan import solve, uv_failure, wheels
from envkit.plan.apt import Base
from envkit.plan.apt import solve as solve_debs
from envkit.plan.lockfile import PARTS, Lock, Pin, dump, spec_items
from envkit.plan.lockfile import parse as parse_lock
from envkit.plan.resolve import Choice, resolve
from envkit.plan.spec import Spec, parse
from envkit.system import proc
from envkit.system.no_room import NoRoom
from envkit.system.proc import Completed
from envkit.versions import Glibc, Python

FRAME = " \u00d7\u2570\u2500\u25b6"  # what uv draws around its words


# Locks of these tests may leave system and base open, but for those that ask what is refused.
weak = partial(solve.lock, may_stay_open=PARTS)


def quiet(line: str) -> None:
    pass


def sdist(name: str, version: str) -> bytes:
    """A source release whose metadata can be read without building it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for member, text in (
            ("PKG-INFO", f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n"),
            ("pyproject.toml", f'[project]\nname = "{name}"\nversion = "{version}"\n'),
        ):
            entry = tarfile.TarInfo(f"{name}-{version}/{member}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def closure(*requirements: str, python: str = "3.11", glibc: str = "2.36") -> tuple[tuple[Pin, ...], int]:
    return layered(python=python, glibc=glibc, runtime=requirements)


def layered(
    *,
    python: str = "3.11",
    glibc: str = "2.36",
    runtime: tuple[str, ...] = (),
    devel: tuple[str, ...] = (),
    debug: tuple[str, ...] = (),
    kept: tuple[Pin, ...] = (),
) -> tuple[tuple[Pin, ...], int]:
    wanted = {"runtime": runtime, "devel": devel, "debug": debug}
    place = wheels.TargetPlatform(Python(python), "x86_64", Glibc(glibc))
    return wheels.closure(wanted, place, quiet, kept=kept)


# The closure.


def test_the_closure_is_pinned_by_hash_and_sorted(index: Index) -> None:
    b = index.add("b-lib", "1.5")
    index.add("b-lib", "2.0")
    a = index.add("a", "1.0", "b_lib<2", "zed; python_version < '3.8'")
    assert closure("a") == ((a, b), UPLOADED_S)


def test_the_same_wish_gives_the_same_pins(index: Index) -> None:
    index.add("a", "1.0", "b")
    index.add("b", "1.0")
    assert closure("a", "b") == closure("b", "a")


def test_wheels_fit_the_python_and_the_glibc_of_the_target_not_of_this_machine(index: Index) -> None:
    for tag in ("cp310-cp310-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_x86_64",
                "cp312-cp312-manylinux_2_39_x86_64", "cp312-cp312-manylinux_2_28_aarch64"):  # fmt: skip
        index.add("a", "1.0", tag=tag)
    (pin,), _ = closure("a", python="3.10")
    assert pin.file == "a-1.0-cp310-cp310-manylinux_2_28_x86_64.whl"
    (pin,), _ = closure("a", python="3.12")
    assert pin.file == "a-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    with pytest.raises(Unsatisfiable):
        closure("a", python="3.13")
    with pytest.raises(Unsatisfiable):
        closure("a", python="3.10", glibc="2.17")


@pytest.mark.parametrize(
    ("glibc", "tag"),
    [
        ("2.36", "cp311-cp311-manylinux_2_34_x86_64"),
        ("2.31", "cp311-cp311-manylinux_2_28_x86_64"),
        ("2.17", "cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64"),
    ],
)
def test_of_several_wheels_that_fit_the_one_an_installer_takes_is_pinned(index: Index, glibc: str, tag: str) -> None:
    tags = ("cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_34_x86_64", "py3-none-any",
            "cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64", "cp311-cp311-musllinux_1_2_x86_64")  # fmt: skip
    pins = {each: index.add("a", "1.0", tag=each) for each in tags}
    (pin,), _ = closure("a", glibc=glibc)
    assert replace(pin, others=()) == pins[tag]


def test_a_wheel_is_of_the_first_flavor_that_needs_it(index: Index) -> None:
    index.add("torch", "1.0", "lib")
    index.add("lib", "1.0")
    index.add("tool", "1.0", "lib", "part")
    index.add("part", "1.0")
    index.add("debugger", "1.0", "part", "eyes")
    index.add("eyes", "1.0")
    pins, _ = layered(runtime=("torch",), devel=("tool",), debug=("debugger",))
    assert [(pin.name, pin.layer) for pin in pins] == [
        ("lib", "runtime"), ("torch", "runtime"), ("part", "devel"), ("tool", "devel"),
        ("debugger", "debug"), ("eyes", "debug"),
    ]  # fmt: skip
    assert [pin.layer for pin in layered(devel=("tool",))[0]] == ["devel"] * 3
    assert [pin.layer for pin in layered(debug=("part",))[0]] == ["debug"]
    assert layered() == ((), 0)


def test_the_flavors_are_solved_as_one(index: Index) -> None:
    """What a debugging tool forbids, the runtime does not hold either, for the debug flavor stands on it."""
    index.add("lib", "1.0")
    index.add("lib", "2.0")
    index.add("debugger", "1.0", "lib<2")
    pins, _ = layered(runtime=("lib",), debug=("debugger",))
    assert [(pin.name, pin.version, pin.layer) for pin in pins] == [
        ("lib", "1.0", "runtime"), ("debugger", "1.0", "debug"),
    ]  # fmt: skip


def test_the_wheels_of_other_platforms_are_kept_those_of_other_pythons_not(index: Index) -> None:
    tags = ("cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_aarch64", "cp311-cp311-macosx_11_0_arm64",
            "cp311-cp311-win_amd64", "cp311-cp311-manylinux_2_39_aarch64")  # fmt: skip
    for tag in tags:
        index.add("a", "1.0", tag=tag)
    index.add("a", "1.0", tag="cp311-cp311-manylinux_2_17_aarch64")
    other = index.add("a", "1.0", tag="cp311-cp311-manylinux_2_28_aarch64")
    index.add("a", "0.9", tag="cp311-cp311-manylinux_2_31_aarch64")
    index.add("pure", "1.0")
    index.add("b", "1.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    a, b, pure = closure("a", "b", "pure")[0]
    assert a.file == "a-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert a.others == ((other.file, other.sha256),)
    assert (b.others, pure.others) == ((), ())


def test_what_was_pinned_stays_where_it_fits(index: Index) -> None:
    kept = (index.add("a", "1.0"), index.add("b", "1.0"))
    index.add("a", "2.0")
    index.add("b", "2.0")
    index.add("c", "2.0", "b>=2")

    def versions(*names: str, kept: tuple[Pin, ...] = kept) -> list[str]:
        return [f"{pin.name} {pin.version}" for pin in layered(runtime=names, kept=kept)[0]]

    assert versions("a", "b") == ["a 1.0", "b 1.0"]
    assert versions("a", "b", kept=kept[:1]) == ["a 1.0", "b 2.0"]
    assert versions("a", "b", kept=()) == ["a 2.0", "b 2.0"]
    assert versions("a>1", "b") == ["a 2.0", "b 1.0"]
    assert versions("a", "c") == ["a 1.0", "b 2.0", "c 2.0"]


def test_wheels_of_other_systems_are_passed_over_whatever_their_number(index: Index) -> None:
    """uv writes one wheel in the line of its package, and several in a line each."""
    x86 = index.add("a", "1.0", tag="cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64")
    others = {}
    for tag in (
        "cp311-cp311-macosx_11_0_arm64", "cp311-cp311-musllinux_1_2_x86_64", "cp311-cp311-win_amd64",
        "cp311-cp311-linux_aarch64", "cp311-cp311-manylinux_2_28_aarch64",
    ):  # fmt: skip
        others[tag] = index.add("a", "1.0", tag=tag)
    arm = others["cp311-cp311-manylinux_2_28_aarch64"]
    index.add("b", "1.0", tag="cp311-cp311-win_amd64")
    alone = index.add("c", "1.0", tag="cp311-cp311-linux_x86_64")
    assert closure("a", "c")[0] == (replace(x86, others=((arm.file, arm.sha256),)), alone)
    with pytest.raises(Unsatisfiable):
        closure("b")


def test_an_index_that_says_so_gives_the_sizes(index: Index) -> None:
    index.add("a", "1.0")
    assert closure("a")[0][0].size == 0
    index.sized = True
    index.add("b", "1.0")
    assert closure("b")[0][0].size == len(index.wheels["b-1.0-py3-none-any.whl"])


def test_without_a_cache_the_index_is_asked_again(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_NO_CACHE", "1")
    index.add("a", "1.0", tag="py3-none-manylinux_2_28_x86_64")
    other = index.add("a", "1.0", tag="py3-none-manylinux_2_28_aarch64")
    index.add("b", "1.0", "a")
    pins, _ = layered(runtime=("a",), devel=("b",))
    assert [(pin.name, pin.layer, pin.others) for pin in pins] == [
        ("a", "runtime", ((other.file, other.sha256),)), ("b", "devel", ()),
    ]  # fmt: skip


def test_a_local_version_is_kept_in_the_pin(index: Index) -> None:
    pin = index.add("a", "1.0+cu126")
    assert closure("a==1.0+cu126")[0] == (pin,)


def test_a_conflict_is_explained(index: Index) -> None:
    index.add("a", "1.0", "c<2")
    index.add("b", "1.0", "c>=2")
    index.add("c", "1.0")
    index.add("c", "2.0")
    with pytest.raises(Unsatisfiable) as caught:
        closure("a", "b")
    told = " ".join(caught.value.chain)
    assert "c<2" in told
    assert "c>=2" in told
    assert all(line.isprintable() and line[0] not in FRAME for line in caught.value.chain)


def test_what_uv_says_is_not_broken_where_the_terminal_is_narrow(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    index.add("left", "1", "deep==1")
    index.add("right", "1", "deep==2")
    index.add("deep", "1")
    index.add("deep", "2")
    with pytest.raises(Unsatisfiable) as caught:
        closure("left", "right")
    assert any("depend on deep==1" in line and "are incompatible" in line for line in caught.value.chain)


def test_a_package_that_does_not_exist_is_unsatisfiable(index: Index) -> None:
    index.add("a", "1.0")
    with pytest.raises(Unsatisfiable) as caught:
        closure("nosuchthing")
    assert "nosuchthing" in " ".join(caught.value.chain)


def test_a_source_release_cannot_be_pinned(index: Index) -> None:
    index.add("a", "1.0")
    index.wheels["b-1.0.tar.gz"] = sdist("b", "1.0")
    with pytest.raises(Unsatisfiable):
        closure("b")


def test_an_index_without_hashes_still_gives_pins_with_hashes(index: Index) -> None:
    pin = index.add("a", "1.0")
    index.hashed = False
    assert closure("a")[0] == (pin,)


def test_nobody_listens_is_undecided(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    with pytest.raises(Undecided) as caught:
        closure("a")
    assert not isinstance(caught.value, UsageError)
    assert "cannot be reached" in caught.value.message


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_an_index_that_answers_with_an_error_is_undecided(index: Index, status: int) -> None:
    index.add("a", "1.0")
    index.status = status
    with pytest.raises(Undecided):
        closure("a")


def test_the_wish_list_leaves_nothing_behind(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    index.add("a", "1.0")
    closure("a")
    assert list(scratch.glob("envkit-*")) == []


# uv's words.


def failed(text: str, exit: int = 1) -> Unsatisfiable | Undecided:
    return uv_failure.failure(Completed(("uv",), exit, "", text))


@pytest.mark.parametrize(
    "text",
    [
        "error: Request failed after 3 retries\n  Caused by: Failed to fetch: `http://127.0.0.1/simple/torch/`\n"
        "  Caused by: error sending request for url (http://127.0.0.1/simple/torch/)\n"
        "  Caused by: client error (Connect)\n  Caused by: tcp connect error: Connection refused (os error 111)\n",
        "error: Failed to fetch: `http://127.0.0.1/simple/torch/`\n  Caused by: dns error: failed to lookup address\n",
        "error: Failed to fetch: `http://x/`\n  Caused by: operation timed out\n",
        "error: Network is unreachable (os error 101)\n",
    ],
)
def test_an_index_out_of_reach_is_undecided(text: str) -> None:
    error = failed(text)
    assert isinstance(error, Undecided)
    assert "cannot be reached" in error.message
    assert error.message.isprintable()


def test_a_foreign_certificate_is_told_apart() -> None:
    error = failed(
        "error: Failed to fetch: `https://127.0.0.1/simple/torch/`\n"
        "  Caused by: invalid peer certificate: UnknownIssuer\n"
    )
    assert isinstance(error, Undecided)
    assert "certificate" in error.message
    assert "SSL_CERT_FILE" in error.fix


def test_a_full_disk_is_told_apart() -> None:
    error = failed("error: failed to write to file `/c/x`: No space left on device (os error 28)\n")
    assert isinstance(error, NoRoom)
    assert error.message == "the disk is full: uv could not write to /c/x"


@pytest.mark.parametrize(
    ("text", "exit", "said"),
    [
        ("error: File too large (os error 27)\n", 2, "the limit on a file's size is reached.*: uv could not write to "),
        ("", -25, "the limit on a file's size is reached.*: uv could not write to "),  # SIGXFSZ
        ("error: failed to create `/c/y`: Read-only file system (os error 30)", 2, "is read-only: uv .* to /c/y$"),
        ("error: Disk quota exceeded (os error 122)\n", 2, "the disk quota is used up: uv could not write to "),
        ("", -9, "uv was killed by SIGKILL"),
        ("", 2, "uv could not resolve the wheels: it exited with 2 and no message"),
        ("error: a panic\n", 101, "uv could not resolve the wheels: error: a panic"),
    ],
)
def test_only_what_uv_calls_no_solution_is_one(text: str, exit: int, said: str) -> None:
    error = failed(text, exit)
    assert isinstance(error, Undecided) and not isinstance(error, Unsatisfiable)
    assert re.search(said, error.message), error.message
    assert error.fix


def test_a_conflict_keeps_the_words_of_the_solver_without_their_frame() -> None:
    error = failed(
        "  \u00d7 No solution found when resolving dependencies:\n"
        "  ╰─▶ Because torch==2.6.0 depends on triton==3.2.0 and you require triton==3.1.0, we can\n"
        "      conclude that your requirements are unsatisfiable.\n\n"
        "hint: `torch` was requested with a pre-release marker\n"
    )
    assert isinstance(error, Unsatisfiable)
    assert error.chain == (
        "No solution found when resolving dependencies:",
        "Because torch==2.6.0 depends on triton==3.2.0 and you require triton==3.1.0, we can",
        "conclude that your requirements are unsatisfiable.",
        "hint: `torch` was requested with a pre-release marker",
    )


# The platform.


@pytest.mark.parametrize(
    ("glibc", "tag"),
    [("2.36", "x86_64-manylinux_2_36"), ("2.28", "x86_64-manylinux_2_28"), ("2.30", "x86_64-manylinux_2_28"),
     ("2.99", "x86_64-manylinux_2_40"), ("3.0", "x86_64-manylinux_2_40"), ("2.17", "x86_64-manylinux_2_17"),
     *((f"2.{minor}", f"x86_64-manylinux_2_{minor}") for minor in range(31, 41))],
)  # fmt: skip
def test_the_platform_is_never_newer_than_the_system(glibc: str, tag: str) -> None:
    assert wheels.platform_tag("x86_64", Glibc(glibc)) == tag


def test_a_glibc_older_than_any_wheel_is_refused() -> None:
    with pytest.raises(UsageError, match=r"glibc 2\.12"):
        wheels.platform_tag("x86_64", Glibc("2.12"))


def test_uv_says_its_version() -> None:
    assert wheels.uv_version()[0].isdigit()
    assert Path(proc.uv_path()).exists()


# The whole way.


def runtime(made: Lock) -> list[str]:
    return [pin.name for pin in made.wheels if pin.layer == "runtime"]


def test_a_wish_becomes_a_lock(index: Index, published: Publish) -> None:
    numpy = index.add("numpy", "2.2.0")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy", text='gpus = ["H100"]')
    said: list[str] = []
    made = weak(spec, load_facts(), said.append)
    assert runtime(made) == ["numpy", "nvidia-cudnn-cu12", "setuptools", "torch"]
    assert made.wheels[0] == numpy
    assert {pin.name for pin in made.wheels if pin.layer != "runtime"} == {
        canonicalize_name(Requirement(line).name) for line in extra_wheels(spec)
    }
    assert {pin.layer for pin in made.wheels} == {"runtime", "debug"}
    assert (str(made.torch), made.variant, str(made.cuda), made.suite) == ("2.6.0", "cu124", "12.4", "bookworm")
    assert (made.installer.name, made.installer.version) == ("uv", wheels.uv_version())
    assert made.installer.layer == "tools"
    assert made.wish == spec_items(spec)
    assert made.epoch == UPLOADED_S
    assert made.gpus == (("H100", "sm_90", "machine code of sm_90"),)
    assert any("torch 2.6.0 for CUDA 12.4" in line for line in said)
    assert parse_lock(dump(made), "x") == made


@pytest.mark.slow  # a lock for each flavor
def test_the_lock_is_the_same_for_every_flavor(index: Index, published: Publish) -> None:
    texts = set()
    for flavor in ("runtime", "devel", "debug"):
        spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", text=f'flavor = "{flavor}"')
        made = weak(spec, load_facts(), quiet)
        assert made.flavor == flavor
        texts.add(dump(replace(made, flavor="runtime")))
    assert len(texts) == 1


@pytest.mark.slow  # makes whole locks
def test_a_lock_made_again_keeps_what_it_held(index: Index, published: Publish) -> None:
    index.add("numpy", "2.2.0")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    first = weak(spec, load_facts(), quiet)
    index.add("numpy", "2.3.0")

    def numpy(upgrade: tuple[str, ...] | None) -> str:
        made = weak(spec, load_facts(), quiet, previous=first, upgrade=upgrade)
        return next(pin.version for pin in made.wheels if pin.name == "numpy")

    assert weak(spec, load_facts(), quiet, previous=first) == first
    assert (numpy(None), numpy(("torch",)), numpy(("numpy",)), numpy(())) == ("2.2.0", "2.2.0", "2.3.0", "2.3.0")
    with pytest.raises(UsageError, match="the lock contains no nunpy to upgrade; did you mean `numpy`"):
        numpy(("nunpy",))


def test_an_index_is_asked_once_and_never_again_for_the_installer(index: Index, published: Publish) -> None:
    index.add("numpy", "2.0")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    made = weak(spec, load_facts(), quiet)
    index.pages.clear()
    assert weak(spec, load_facts(), quiet) == made
    assert sorted(index.pages) == sorted({*index.pages} - {"uv"})
    assert {"numpy", "torch"} <= {*index.pages}


def test_what_uvs_cache_answers_is_what_the_lock_holds(index: Index, published: Publish) -> None:
    index.add("numpy", "2.0", "needed")
    index.add("needed", "1.0")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    assert solve._guess(spec, load_facts(), ()) is None  # nothing was read yet
    made = weak(spec, load_facts(), quiet)
    index.pages.clear()
    guess = solve._guess(spec, load_facts(), ())
    assert guess is not None and guess.layered() == made.wheels and guess.newest == made.epoch
    assert index.pages == []


def test_a_lock_holds_what_the_index_has_now_whatever_uvs_cache_says(index: Index, published: Publish) -> None:
    index.add("numpy", "2.0")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    before = weak(spec, load_facts(), quiet)
    newer = {index.add("numpy", "2.1", "needed"), index.add("needed", "1.0")}
    made = weak(spec, load_facts(), quiet)
    assert newer <= {*made.wheels}
    assert {*made.wheels} - newer == {pin for pin in before.wheels if pin.name != "numpy"}


def test_an_installer_that_a_page_of_before_does_not_list_is_asked_for(index: Index, published: Publish) -> None:
    index.add("uv", "0.0.1")
    closure("uv")  # uv's cache has the page now
    made = weak(published("2.6.0", "3.11", "nvidia-cudnn-cu12"), load_facts(), quiet)
    assert made.installer.version == wheels.uv_version()


def held_back(index: Index, spec: Spec) -> tuple[str, list[str]]:
    """Why lib 2.0 is not taken, and the projects whose pages were read more than once for that."""
    said: list[str] = []
    index.pages.clear()
    made = weak(spec, load_facts(), said.append)
    assert [pin.version for pin in made.wheels if pin.name == "lib"] == ["1.0"]
    (line,) = (line for line in said if line.startswith("lib 1.0 is taken and not 2.0: "))
    assert not [line for line in said if line.startswith("not the newest either")]
    return line, sorted(name for name in {*index.pages} if index.pages.count(name) > 1)


def test_why_a_newer_release_was_not_taken_is_found_in_what_was_read(index: Index, published: Publish) -> None:
    index.add("lib", "1.0")
    index.add("lib", "2.0", "other==9")
    index.add("other", "1.0")
    line, again = held_back(index, published("2.6.0", "3.11", "nvidia-cudnn-cu12", "lib"))
    assert "there is no version of other==9" in line
    assert again == []


def test_why_a_newer_release_was_not_taken_is_asked_where_what_was_read_does_not_say(
    index: Index, published: Publish
) -> None:
    index.add("lib", "1.0")
    index.add("lib", "2.0", "nowhere")  # uv's cache has no page that is not there
    line, again = held_back(index, published("2.6.0", "3.11", "nvidia-cudnn-cu12", "lib"))
    assert "nowhere was not found in the package registry" in line and "network" not in line
    assert "nowhere" in again


def test_without_a_base_debian_packages_are_locked_by_name_and_it_is_said(index: Index, published: Publish) -> None:
    said: list[str] = []
    made = weak(published("2.6.0", "3.11", "nvidia-cudnn-cu12"), load_facts(), said.append)
    assert (made.archive, made.debs) == ("", ())
    assert "python3" in made.apt["runtime"]
    shown = "\n".join(line for line in said if line.startswith("NOT PINNED"))
    assert re.search(r"NOT PINNED \(os\): the \d+ Debian packages .* by name alone.*: no base was available", shown)
    assert re.search(r"NOT PINNED \(base\): the base debian:12-slim .* by its tag alone", shown)


def test_a_system_that_is_no_debian_gets_names_only(index: Index, published: Publish) -> None:
    said: list[str] = []
    spec = published("2.6.0", "3.10", "nvidia-cudnn-cu12", text='os = "ubuntu22.04"')
    made = weak(spec, load_facts(), said.append, base=lambda _: Base("sha256:" + "0" * 64, "registry", b""))
    assert (made.archive, made.debs) == ("", ())
    assert any(re.search(r"NOT PINNED \(os\): .*ubuntu:22.04.* is not plain Debian", line) for line in said)


@needs_apt
def test_debian_packages_are_solved_beside_the_wheels(index: Index, published: Publish, tmp_path: Path) -> None:
    """The lists that envkit keeps are those of a hand-made archive, and a day young: no mirror is asked."""
    archive = Archive(tmp_path / "archive")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    choice = resolve(spec, load_facts())
    for name in sorted({name for names in choice.extras.apt.values() for name in names}):
        archive.add(name, "1.0")
    archive.add("python3", "2:3.5-1", depends="libpython3-stdlib")
    archive.add("libpython3-stdlib", "3.5-1")
    archive.publish()
    cache = tmp_path / "cache"
    known = solve_debs(b"", choice.suite, choice.extras.components, {}, "x86_64", cache, quiet, mirrors=archive.lines)
    base = Base("sha256:" + "1" * 64, "packages", b"")
    made = weak(spec, load_facts(), quiet, base=lambda _: base, cache=cache)
    assert made.archive == known[0] == DATED
    assert (made.digest, made.origin) == (base.digest, "packages")
    held = {deb.name: deb for deb in made.debs}
    assert (held["python3"].version, held["python3"].layer) == ("2:3.5-1", "runtime")
    assert held["libpython3-stdlib"].layer == "runtime"
    assert set(held) == {"libpython3-stdlib", *(name for names in choice.extras.apt.values() for name in names)}
    assert parse_lock(dump(made), "x") == made

    # What is held stays, whatever the archive has by now, until an upgrade names it or the base is another one.
    archive.add("make", "9.9")
    archive.publish()
    solve_debs(
        b"", choice.suite, choice.extras.components, {}, "x86_64", cache, quiet, fresh=True, mirrors=archive.lines
    )
    assert weak(spec, load_facts(), quiet, base=lambda _: base, cache=cache, previous=made) == made
    other = Base("sha256:" + "2" * 64, "packages", b"")
    moved = weak(spec, load_facts(), quiet, base=lambda _: other, cache=cache, previous=made)
    assert {deb.name: deb.version for deb in moved.debs}["make"] == "9.9"


def test_the_base_is_asked_for_while_the_wheels_are_solved(index: Index, published: Publish) -> None:
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    waited: list[bool] = []

    def base(choice: Choice) -> None:
        waited.append(index.asked.wait(120))

    weak(spec, load_facts(), quiet, base=base)
    assert waited == [True]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sysconfig has a lock of its own there")
def test_threads_do_not_meet_in_sysconfig(index: Index, published: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("numpy", "2.0")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    fill = vars(sysconfig)["_init_posix"]

    def slow(values: dict[str, object]) -> None:
        time.sleep(0.2)
        fill(values)

    monkeypatch.setattr(sysconfig, "_init_posix", slow)
    monkeypatch.setattr(sysconfig, "_CONFIG_VARS", None)  # as in a process that has not asked yet
    wheels.ranks_of.cache_clear()
    assert weak(spec, load_facts(), quiet).installer.version == wheels.uv_version()


def test_a_base_that_cannot_be_had_ends_the_lock(index: Index, published: Publish) -> None:
    def base(choice: Choice) -> Base:
        raise Undecided("no base", "bring one")

    with pytest.raises(Undecided, match="no base; the Debian packages and the base would not be pinned") as caught:
        solve.lock(published("2.6.0", "3.11", "nvidia-cudnn-cu12"), load_facts(), quiet, base=base)
    assert caught.value.fix == "bring one; or accept it: --allow-unpinned os --allow-unpinned base"


@pytest.mark.slow  # makes whole locks
def test_a_library_of_another_cuda_is_refused(index: Index, published: Publish) -> None:
    index.add("nvidia-nccl-cu12", "2.21.5")
    index.add("nvidia-nccl-cu13", "2.28.9")
    needs = ("nvidia-cudnn-cu13", "nvidia-nccl-cu13", "nvidia-nccl-cu12")
    spec = published("2.11.0", "3.11", *needs, text='cuda = "13.0"')
    with pytest.raises(UsageError) as caught:
        weak(spec, load_facts(), quiet)
    assert "nvidia-nccl-cu12 2.21.5 belongs to CUDA 12" in caught.value.message
    assert "CUDA 13.0" in caught.value.message
    assert "the same paths as those of nvidia-nccl-cu13" in caught.value.message
    assert "ask for nvidia-nccl-cu13" in caught.value.fix


@pytest.mark.slow  # makes whole locks
def test_a_lock_says_the_cudnn_and_nccl_that_it_pins(index: Index, published: Publish) -> None:
    spec = published("2.11.0", "3.11", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", text='cuda = "13.0"')
    index.add("nvidia-nccl-cu13", "2.99.1")
    made = weak(spec, load_facts(), quiet)
    held = {pin.name: pin.version for pin in made.wheels}
    assert (made.cudnn, made.nccl) == (held["nvidia-cudnn-cu13"], "2.99.1")


@pytest.mark.slow  # makes whole locks
def test_a_library_of_another_cuda_that_has_its_own_folder_is_taken(index: Index, published: Publish) -> None:
    """The wheel of cuBLAS for CUDA 13 has no ending and unpacks into nvidia/cu13."""
    index.add("nvidia-cublas-cu12", "12.9.1.4")
    index.add("nvidia-cublas", "13.1.0.3")
    needs = ("nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cublas-cu12")
    made = weak(published("2.11.0", "3.11", *needs, text='cuda = "13.0"'), load_facts(), quiet)
    assert {"nvidia-cublas", "nvidia-cublas-cu12"} <= {pin.name for pin in made.wheels}


def test_a_base_with_torch_gets_only_what_it_lacks(index: Index, published: Publish) -> None:
    index.add("einops", "0.8.0")
    index.add("accelerate", "1.0.0", "torch>=2")
    text = 'base = "pytorch"\ncuda = "12.4"\nflavor = "devel"'
    made = weak(published("2.6.0", "3.11", "nvidia-cudnn-cu12", "einops", "accelerate", text=text), load_facts(), quiet)
    assert made.preinstalled
    assert runtime(made) == ["accelerate", "einops"]


def test_what_was_asked_for_by_name_goes_on_a_base_with_torch(index: Index, published: Publish) -> None:
    """A name like those of CUDA's own wheels does not make a package part of torch, nor is a wish dropped silently."""
    index.add("nvidia-ml-py", "12.575.51")
    text = 'base = "pytorch"\ncuda = "12.4"\nflavor = "devel"'
    packages = ("nvidia-ml-py", "nvidia-cudnn-cu12", "torch>=2")
    made = weak(published("2.6.0", "3.11", "nvidia-cudnn-cu12", *packages, text=text), load_facts(), quiet)
    assert runtime(made) == ["nvidia-cudnn-cu12", "nvidia-ml-py"]


def test_a_package_that_needs_torch_does_not_bring_another_one_to_ngc(index: Index, published: Publish) -> None:
    index.add("accelerate", "1.0.0", "torch>=2")
    published("2.6.0", "3.12", "nvidia-cudnn-cu12")
    spec = parse(
        'base = "ngc"\ntag = "26.07-py3"\ntorch = "2.13"\npython = "3.12"\npackages = ["accelerate"]',
        Path("/srv/job/envkit.toml"),
    )
    made = weak(spec, load_facts(), quiet)
    assert runtime(made) == ["accelerate"]


def test_a_wish_that_the_facts_forbid_never_asks_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    spec = parse('torch = "2.6.0"\npython = "3.11"\ncuda = "12.1"', Path("/srv/job/envkit.toml"))
    with pytest.raises(Unsatisfiable, match=r"12\.1"):
        weak(spec, load_facts(), quiet)


def test_where_nothing_is_wanted_nobody_is_asked() -> None:
    said: list[str] = []
    place = wheels.TargetPlatform(Python("3.11"), "x86_64", Glibc("2.36"))
    assert wheels.closure({"runtime": (), "dev": ()}, place, said.append) == ((), 0)
    assert said == []
