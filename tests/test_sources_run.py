"""Which files are checked, how they are read, and how what is said of many becomes one report."""

from __future__ import annotations

import os
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
from processes import children

from envkit.dockerfile.files import LARGEST
from envkit.errors import Undecided, UsageError
from envkit.model import Finding, Outcome, Result, Severity, Verdict
from envkit.static import READ, CheckOptions, JudgedFile
from envkit.static.judged import READERS
from envkit.static.kinds import BY_TEXT, KINDS, by_name, by_text
from envkit.static.run import check, gather, merged, text_of
from envkit.static.settings import Settings
from envkit.static.walk import below

PLAIN = "FROM ubuntu:24.04\n"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def lay(root: Path, *names: str, text: str = PLAIN) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def names(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path, _ in below(root)]


# ---------------------------------------------------------------- kinds


# Names of files with the kinds that they promise; the pre-commit hook is held to them too (test_check_hosts).
PROMISED = [
    ("Dockerfile", "dockerfile"),
    ("dockerfile", "dockerfile"),
    ("Dockerfile.gpu", "dockerfile"),
    ("Dockerfile-cuda", "dockerfile"),
    ("Dockerfile_dev", "dockerfile"),
    ("train.Dockerfile", "dockerfile"),
    ("train.dockerfile", "dockerfile"),
    ("Containerfile", "dockerfile"),
    ("Dockerfile.dockerignore", ""),
    (".dockerignore", ""),
    ("Makefile", "script"),
    ("docker.mk", "script"),
    ("train.sbatch", "script"),
    ("run.sh", "script"),
    ("container.def", "script"),
    ("Singularity", "script"),
    ("values.yaml", "yaml"),
    ("Dockerfiles.md", ""),
    ("mydockerfile", ""),
    ("requirements.txt", "requirements"),
    ("requirements-dev.txt", "requirements"),
    ("dev-requirements.txt", "requirements"),
    ("requirements.in", "requirements"),
    ("constraints.txt", "requirements"),
    ("requirements.md", ""),
    ("pyproject.toml", "pyproject"),
    ("uv.lock", "uv-lock"),
    ("envkit.toml", "spec"),
    ("envkit.lock", "lock"),
    ("compose.yaml", "compose"),
    ("docker-compose.gpu.yml", "compose"),
    ("devcontainer.json", "devcontainer"),
    (".devcontainer.json", "devcontainer"),
    ("environment.yml", "yaml"),
    ("pod.yaml", "yaml"),
    ("package.json", ""),
    ("main.py", ""),
]


@pytest.mark.parametrize(("name", "kind"), PROMISED)
def test_a_name_promises_a_kind(name: str, kind: str) -> None:
    assert by_name(name) == kind
    assert kind in ("", *BY_TEXT) or kind in KINDS


def test_every_kind_that_names_promise_is_among_them() -> None:
    known_by_text = {"conda", "kubernetes", "workflow", "apptainer", "slurm", "helm", "makefile"}
    assert {kind for _, kind in PROMISED} - {"", *BY_TEXT} == set(KINDS) - known_by_text


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("FROM a\n", "build.txt", "dockerfile"),
        ("# c\n  from a AS b\n", "", "dockerfile"),
        ("apiVersion: v1\nkind: Pod\n", "pod.yaml", "kubernetes"),
        ("name: x\ndependencies:\n - python\n", "env.yml", "conda"),
        ("services:\n  a:\n", "stack.yml", "compose"),
        ("on: push\njobs: {}\n", "ci.yml", ""),
        ("on: push\njobs: {a: {container: pytorch/pytorch}}\n", "ci.yml", "workflow"),
        ("BootStrap: docker\nFrom: a\n", "a.def", "apptainer"),
        ("EXPORTS\n", "a.def", ""),
        ("#!/bin/bash\n#SBATCH -N 1\napptainer exec a.sif b\n", "a.sh", "slurm"),
        ("#!/bin/bash\n#SBATCH -N 1\nmpirun a\n", "a.sbatch", ""),
        ("#!/bin/bash\napptainer exec a.sif b\n", "a.sh", ""),
        ("cat <<E\nFROM a\nE\n", "a.sh", ""),
        ("image:\n  repository: vllm/vllm-openai\n# nvidia\n", "values-gpu.yaml", "helm"),
        ("image:\n  repository: nginx\n", "values.yaml", ""),
        ("a:\n\tdocker run a\n", "Makefile", "makefile"),
        ("a:\n\tcc a.c\n", "Makefile", ""),
        ("FROM: a\n", "ci.yml", ""),
        ("apiVersion: v1\nkind: Pod\n", "", "kubernetes"),
        ("hello\n", "x.txt", ""),
        ("", "", ""),
    ],
)
def test_a_text_shows_its_kind(text: str, name: str, kind: str) -> None:
    assert by_text(text, name) == kind


def test_every_kind_has_a_reader() -> None:
    assert set(READERS) == {*KINDS, "start"}, "no name of a file promises a start: it is what --start asks for"
    for kind, module in READERS.items():
        assert kind == "dockerfile" or kind in import_module(module).READERS


# ---------------------------------------------------------------- folders


def test_what_cannot_be_read_is_named_and_no_pass(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "Dockerfile")
    (tmp_path / "requirements.txt").symlink_to("gone.txt")
    (tmp_path / "pod.yaml").symlink_to("gone.yaml")
    (tmp_path / "envkit.toml").mkdir()
    lay(tmp_path, "a.Dockerfile")
    assert names(tmp_path) == ["Dockerfile", "a.Dockerfile", "requirements.txt"]
    judged = check(gather([str(tmp_path)], Settings()), CheckOptions(), Settings())
    assert [one.unreadable for one in judged] == ["it is a pipe, not a plain file", "", "it leads nowhere"]


def test_a_folder_is_walked_without_what_tools_made(tmp_path: Path) -> None:
    lay(tmp_path, "Dockerfile", "docker/Dockerfile.gpu", "build/Dockerfile", "README.md")
    lay(tmp_path, "node_modules/x/Dockerfile", "myenv/lib/Dockerfile", "a/site-packages/Dockerfile")
    (tmp_path / "myenv" / "pyvenv.cfg").touch()
    assert names(tmp_path) == ["Dockerfile", "build/Dockerfile", "docker/Dockerfile.gpu"]


def test_what_git_ignores_is_left_out(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    lay(tmp_path, "Dockerfile", "out/Dockerfile", "sub/Dockerfile", "sub/tmp.Dockerfile", "kept/Dockerfile")
    (tmp_path / ".gitignore").write_text("/out/\ntmp.*\n/kept/\n")
    git(tmp_path, "add", "-f", "kept/Dockerfile")
    assert names(tmp_path) == ["Dockerfile", "kept/Dockerfile", "sub/Dockerfile"]
    assert names(tmp_path / "sub") == ["Dockerfile"]


def test_an_ignored_folder_that_was_asked_for_is_walked(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    lay(tmp_path, "out/Dockerfile", "in/Dockerfile")
    (tmp_path / ".gitignore").write_text("/out/\n*/Dockerfile\n")
    assert names(tmp_path / "out") == ["Dockerfile"]
    assert names(tmp_path / "in") == [], "the folder is not ignored, all that is in it is"


def test_a_deleted_file_that_git_still_lists_is_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    lay(tmp_path, "Dockerfile", "old/Dockerfile")
    git(tmp_path, "add", ".")
    (tmp_path / "old" / "Dockerfile").unlink()
    assert names(tmp_path) == ["Dockerfile"]


def test_no_git_is_needed_to_know_what_it_ignores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    lay(tmp_path, "Dockerfile", ".tox/Dockerfile")
    (tmp_path / ".gitignore").write_text(".tox\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert names(tmp_path) == ["Dockerfile"]


def test_a_link_out_of_the_tree_is_named_and_not_read(tmp_path: Path) -> None:
    lay(tmp_path, "tree/Dockerfile", "tree/sub/Dockerfile")
    (tmp_path / "secret").write_text("FROM hunter2\n")
    (tmp_path / "tree" / "requirements.txt").symlink_to(tmp_path / "secret")
    (tmp_path / "tree" / "sub" / "a.Dockerfile").symlink_to("../Dockerfile")
    tree = str(tmp_path / "tree")
    judged = check(gather((tree,), Settings()), CheckOptions(), Settings())
    assert [(each.path, each.unreadable) for each in judged if each.unreadable] == [
        (f"{tree}/requirements.txt", "it is a link that leads out of the folder")
    ]
    assert len(judged) == 4 and "hunter2" not in repr(judged)
    judged = check(gather((f"{tree}/sub",), Settings()), CheckOptions(), Settings())
    assert [bool(each.unreadable) for each in judged] == [False, True], "another folder's, where there is no repository"
    git(tmp_path / "tree", "init", "-q")
    judged = check(gather((f"{tree}/sub",), Settings()), CheckOptions(), Settings())
    assert [bool(each.unreadable) for each in judged] == [False, False]


def test_links_to_folders_and_loops_are_not_followed(tmp_path: Path) -> None:
    lay(tmp_path, "a/Dockerfile")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "Dockerfile").symlink_to("Dockerfile")
    (tmp_path / "Dockerfile.dir").mkdir()
    assert names(tmp_path) == ["Dockerfile", "a/Dockerfile"], "the loop is named as what cannot be read"


def test_gather_takes_files_folders_and_stdin_once_each(tmp_path: Path) -> None:
    lay(tmp_path, "Dockerfile", "sub/requirements.txt")
    one = str(tmp_path / "Dockerfile")
    found = gather((one, str(tmp_path), "-", one), Settings())
    assert found == (
        (Path(one), "dockerfile"),
        (tmp_path / "sub" / "requirements.txt", "requirements"),
        (Path("-"), ""),
    )


def test_gather_leaves_out_what_the_settings_exclude_but_not_what_was_named(tmp_path: Path) -> None:
    lay(tmp_path, "Dockerfile", "vendor/Dockerfile")
    settings = Settings(str(tmp_path / "envkit.toml"), exclude=("vendor",))
    assert [path.parent.name for path, _ in gather((str(tmp_path),), settings)] == [tmp_path.name]
    assert len(gather((str(tmp_path / "vendor" / "Dockerfile"),), settings)) == 1


def test_gather_refuses_what_is_not_there_and_says_so_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none does not exist"):
        gather((str(tmp_path / "none"),), Settings())
    with pytest.raises(Undecided, match="there is nothing to check in"):
        gather((str(tmp_path),), Settings())


def test_a_folder_named_dockerfile_is_no_dockerfile(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").mkdir()
    with pytest.raises(UsageError, match="Dockerfile is a folder"):
        gather((str(tmp_path / "Dockerfile"),), Settings())
    lay(tmp_path, "Dockerfile/Dockerfile.gpu")
    assert len(gather((str(tmp_path / "Dockerfile"),), Settings())) == 1


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"FROM a\n\0", "it is no text, it holds zero bytes"),
        ("FROM a\n".encode("utf-16"), "it is no text, it holds zero bytes"),
        (b"x" * (LARGEST + 1), "it has more than 4 MiB"),
        (b"x" * LARGEST, ""),
        (b"", ""),
    ],
)
def test_what_is_no_text_is_refused_in_a_clause(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "Dockerfile").write_bytes(data)
    assert text_of(tmp_path / "Dockerfile")[1] == why


def test_a_hundred_megabytes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    with path.open("wb") as file:
        file.truncate(100_000_000_000)  # a hole: reading all of it would take minutes and the machine's memory
    assert text_of(path) == ("", "it has more than 4 MiB")


def test_bytes_that_are_no_utf8_are_replaced_and_a_mark_kept(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_bytes(b"\xef\xbb\xbfFROM a\r\nRUN \xff\n")
    assert text_of(tmp_path / "Dockerfile") == ("\ufeffFROM a\r\nRUN \ufffd\n", "")


def test_devices_pipes_folders_and_loops_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    device, pipe = "it is a device, not a plain file", "it is a pipe, not a plain file"
    for path, why in (("/dev/zero", device), (str(tmp_path / "pipe"), pipe)):
        assert text_of(Path(path)) == ("", why)
    assert text_of(tmp_path) == ("", "it is a folder")
    assert text_of(tmp_path / "loop") == ("", "it is a link that leads in a circle")


def test_a_file_that_is_nothing_of_ours_is_said_if_named_and_left_out_if_met(tmp_path: Path) -> None:
    lay(tmp_path, "notes.txt", "ci.yml", text="hello\n")
    (named,) = check([(tmp_path / "notes.txt", "")], CheckOptions(), Settings())
    assert named.unreadable.startswith("it is none of: Dockerfile, ")
    assert check([(tmp_path / "ci.yml", "yaml")], CheckOptions(), Settings()) == ()


# ---------------------------------------------------------------- many files


def many(root: Path, count: int) -> list[tuple[Path, str]]:
    for number in range(count):
        lay(root, f"{number:03}/Dockerfile", text=f"FROM ubuntu:24.04\nENV N={number}\n")
    return [(root / f"{number:03}" / "Dockerfile", "dockerfile") for number in range(count)]


@pytest.mark.parametrize("count", [1, 12, 61])
def test_files_are_judged_in_their_order_by_however_many_processes(tmp_path: Path, count: int) -> None:
    found = check(many(tmp_path, count), CheckOptions(), Settings())
    assert [each.path for each in found] == [str(tmp_path / f"{number:03}" / "Dockerfile") for number in range(count)]
    alone = [
        check([(Path(each.path), "dockerfile")], CheckOptions(), Settings())[0] for each in found[:: max(1, count // 5)]
    ]
    assert alone == list(found[:: max(1, count // 5)])


def test_no_process_and_no_descriptor_is_left(tmp_path: Path) -> None:
    files = many(tmp_path, 60)
    before = set(os.listdir("/proc/self/fd"))
    others = children(os.getpid())  # of tests that ran in this process before
    check(files, CheckOptions(), Settings())
    assert set(os.listdir("/proc/self/fd")) == before
    assert set(children(os.getpid())) <= set(others)


# ---------------------------------------------------------------- one report


def judged(path: str, *results: Result, unreadable: str = "") -> JudgedFile:
    return JudgedFile(path, "dockerfile", PLAIN, results, {"base_image": path}, unreadable)


FAIL = Result("c", Outcome.FAIL, (Finding("x", Severity.NOTE),))
DOUBT = Result("c", Outcome.UNKNOWN, reason="not read")
PASS = Result("c", Outcome.PASS)
SKIP = Result("c", Outcome.SKIP, reason="no torch")


def test_one_file_is_the_subject_itself() -> None:
    report = merged([judged("a", FAIL)], 0.5)
    assert (report.subject.kind, report.subject.name) == ("dockerfile", "a")
    assert report.results == (FAIL,)
    assert report.observed == {"base_image": "a"}


def test_what_is_found_in_one_file_hides_no_doubt_about_another() -> None:
    report = merged([judged("a", FAIL), judged("b", DOUBT)], 0.5)
    assert [(each.outcome, each.reason) for each in report.results] == [
        (Outcome.FAIL, ""),
        (Outcome.UNKNOWN, "b: not read"),
    ]
    assert report.exit_code() == 3
    assert report.exit_code(Severity.NOTE) == 1


def test_a_check_that_passes_somewhere_passes() -> None:
    assert merged([judged("a", SKIP), judged("b", PASS)], 0.5).results == (PASS,)
    assert merged([judged("a", SKIP), judged("b", SKIP)], 0.5).results == (SKIP,)


def test_a_file_that_could_not_be_read_is_no_pass() -> None:
    report = merged([judged("a", PASS), judged("b", unreadable="it is no text")], 0.5)
    assert Result(READ, Outcome.UNKNOWN, reason="b: it is no text") in report.results
    assert report.verdict() is Verdict.UNDECIDED


def test_reasons_name_a_few_files() -> None:
    files = [judged(str(number), Result("c", Outcome.UNKNOWN, reason=f"why {number % 5}")) for number in range(20)]
    (result,) = merged(files, 0.5).results
    assert result.reason == (
        "0, 5, 10 and 1 more: why 0; 1, 6, 11 and 1 more: why 1; 2, 7, 12 and 1 more: why 2; and 2 more reasons"
    )


def test_fields_of_several_files_are_by_path() -> None:
    report = merged([judged("a", PASS), judged("b", PASS)], 0.5)
    assert report.observed == {"files": {"a": {"base_image": "a"}, "b": {"base_image": "b"}}}
    assert (report.subject.kind, report.subject.name) == ("files", "2 files")
