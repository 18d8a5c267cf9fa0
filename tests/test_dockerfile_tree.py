"""What lies where in the container while it is built."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dockerfile_commands import command
from written import Beside

from envkit.dockerfile.files import FileText
from envkit.dockerfile.tree import NoContext, Run, Tree, cloned
from envkit.model import Span
from envkit.subjects.dockerfile import Copy

AT = Span("Dockerfile", 1)
CONTEXT = Beside({"requirements.txt": "torch\n", "app/requirements.txt": "numpy\n", "app/sub/x.txt": "x\n"})


def copied(*sources: str, to: str, workdir: str = "/", stage: int | None = None) -> Tree:
    tree = Tree(CONTEXT)
    tree.took(Copy(sources, to, AT, stage), workdir)
    return tree


@pytest.mark.parametrize(
    ("sources", "to", "path", "text"),
    [
        (("requirements.txt",), "/app/", "/app/requirements.txt", "torch\n"),
        (("requirements.txt",), "/app/r.txt", "/app/r.txt", "torch\n"),
        (("requirements.txt",), "/app", "/app/requirements.txt", "torch\n"),
        (("requirements.txt",), "/app", "/app", "torch\n"),
        (("./requirements.txt",), "/app/", "/app/requirements.txt", "torch\n"),
        (("/requirements.txt",), "/app/", "/app/requirements.txt", "torch\n"),
        (("../requirements.txt",), "/app/", "/app/requirements.txt", "torch\n"),
        ((".",), "/app", "/app/requirements.txt", "torch\n"),
        (("..",), "/app", "/app/requirements.txt", "torch\n"),
        ((".",), "/src", "/src/app/requirements.txt", "numpy\n"),
        (("app",), "/src", "/src/requirements.txt", "numpy\n"),
        (("app/",), "/src/", "/src/sub/x.txt", "x\n"),
        (("requirements.txt", "app/sub/x.txt"), "/src/", "/src/x.txt", "x\n"),
        (("*.txt",), "/src/", "/src/requirements.txt", "torch\n"),
    ],
)
def test_a_copy_puts_a_file_where_docker_does(sources: tuple[str, ...], to: str, path: str, text: str) -> None:
    found = copied(*sources, to=to).read(path, "/")
    assert isinstance(found, FileText)
    assert found.text == text


@pytest.mark.parametrize("path", ["/app/other.txt", "/requirements.txt", "/elsewhere/requirements.txt"])
def test_what_nothing_puts_there_says_so(path: str) -> None:
    assert isinstance(copied("requirements.txt", to="/app/").read(path, "/"), str)


def test_a_relative_path_begins_at_the_working_directory() -> None:
    found = copied("requirements.txt", to="/app/").read("requirements.txt", "/app")
    assert isinstance(found, FileText)


def test_the_newest_file_of_a_place_is_the_one_read() -> None:
    tree = copied("requirements.txt", to="/r.txt")
    tree.took(Copy(("app/requirements.txt",), "/r.txt", AT), "/")
    found = tree.read("/r.txt", "/")
    assert isinstance(found, FileText) and found.text == "numpy\n"


def test_a_file_of_another_stage_or_without_a_context_says_why_it_was_not_read() -> None:
    assert copied("/r.txt", to="/r.txt", stage=0).read("/r.txt", "/") == "it comes from another image or stage"
    tree = Tree(NoContext())
    tree.took(Copy(("r.txt",), "/r.txt", AT), "/")
    assert tree.read("/r.txt", "/") == "no build context was given"


def test_a_file_of_another_stage_is_the_one_that_stage_has() -> None:
    stage, base = copied("app", to="/src"), Copy((), "", AT, 0)
    for sources, to, path in (
        (("/src",), "/lib", "/lib/sub/x.txt"),
        (("/src/",), "/lib/", "/lib/sub/x.txt"),
        (("src/sub/x.txt",), "/lib", "/lib/x.txt"),
        (("/src/sub/x.txt",), "/y.txt", "/y.txt"),
        (("/",), "/all", "/all/src/sub/x.txt"),
    ):
        tree = Tree(CONTEXT)
        tree.took(replace(base, sources=sources, target=to), "/", stage)
        assert isinstance(tree.read(path, "/"), FileText), (sources, to)
        assert isinstance(tree.read("/lib/other.txt", "/"), str)


def test_a_folder_of_another_stage_hides_what_it_may_replace() -> None:
    stage = Tree(CONTEXT)
    for target, text in (("/app", "it comes from another image or stage"), ("/app/", "torch\n")):
        tree = copied(".", to="/app")
        tree.took(Copy(("/made",), target, AT, 0), "/", stage)
        found = tree.read("/app/requirements.txt", "/")
        assert (found if isinstance(found, str) else found.text) == text
    tree = copied(".", to="/app")
    tree.took(Copy(("/made/requirements.txt",), "/app/", AT, 0), "/", stage)
    assert tree.read("/app/requirements.txt", "/") == "it comes from another image or stage"


def test_a_long_chain_of_stages_ends() -> None:
    stage = copied("app", to="/src")
    for _ in range(20):
        after = Tree(CONTEXT)
        after.took(Copy(("/src", "/src/"), "/src/", AT, 0), "/", stage)
        stage = after
    assert isinstance(stage.read("/src/sub/x.txt", "/"), str)


def test_a_clone_of_the_repository_itself_is_its_checkout() -> None:
    own = Beside(CONTEXT.files, "https://example.com/a/b")
    for line, known in (
        ("git clone https://example.com/a/b", True),
        ("git clone -b v1 https://example.com/a/b", False),
        ("git clone https://example.com/a/other b", False),
    ):
        tree = Tree(own)
        tree.ran(command(line, cwd="/w"))
        assert isinstance(tree.read("/w/b/app/requirements.txt", "/"), FileText) == known
        assert str(tree.read("/w/b/none.txt", "/")).startswith("the build clones it") != known
        tree.ran(command("git checkout v3", cwd="/w/b"))
        assert "clones it from" in str(tree.read("/w/b/requirements.txt", "/"))


def test_nothing_lies_below_a_plain_file() -> None:
    assert copied("requirements.txt", to="/app/r.txt").read("/app/r.txt/uv.lock", "/") == (
        "nothing in the Dockerfile puts it there"
    )


def test_an_address_is_not_read() -> None:
    assert Tree(CONTEXT).read("https://example.com/r.txt", "/") == "it lies on the network"


@pytest.mark.parametrize(
    "flag",
    [
        "--mount=type=bind,source=requirements.txt,target=/tmp/r.txt",
        "--mount=source=requirements.txt,dst=/tmp/r.txt",
        "--mount=type=bind,src=.,target=/tmp",
    ],
)
def test_a_bind_mount_shows_a_file_of_the_context(flag: str) -> None:
    path = "/tmp/r.txt" if "r.txt" in flag.rsplit("=", 1)[-1] else "/tmp/requirements.txt"
    assert isinstance(Run(Tree(CONTEXT), (flag,), "/").read(path, "/"), FileText)
    assert isinstance(Tree(CONTEXT).read(path, "/"), str)


@pytest.mark.parametrize(
    ("line", "folder", "ref"),
    [
        ("git clone https://example.com/a/b.git", "/w/b", ""),
        ("git clone https://example.com/a/b --depth 1", "/w/b", ""),
        ("git clone --depth 1 -b v1 https://example.com/a/b c", "/w/c", "v1"),
        ("git clone --branch=v2 --recursive https://example.com/a/b /src/b", "/src/b", "v2"),
        ("git clone git@example.com:a/b.git", "/w/b", ""),
    ],
)
def test_a_clone_has_its_folder_and_branch(line: str, folder: str, ref: str) -> None:
    clone = cloned(command(line, cwd="/w"))
    assert clone is not None
    assert (clone.folder, clone.ref) == (folder, ref)


@pytest.mark.parametrize("line", ["git pull", "git clone", "git clone $REPOSITORY", "echo git clone https://x/y"])
def test_what_is_no_clone_clones_nothing(line: str) -> None:
    assert cloned(command(line)) is None


def test_a_checkout_in_a_clone_changes_what_it_holds() -> None:
    tree = Tree(CONTEXT)
    tree.ran(command("git clone https://example.com/a/b", cwd="/w"))
    tree.ran(command("git checkout v3", cwd="/w/b"))
    assert tree.clone_at("/w/b/") == ("https://example.com/a/b", "v3")
    assert tree.copy().clone_at("/w/b") == tree.clone_at("/w/b")
    for line, ref in (("git checkout v4 --", "v3"), ("git checkout --detach v5", "v5"), ("git checkout -b own", "own")):
        tree.ran(command(line, cwd="/w/b"))
        assert tree.clone_at("/w/b") == ("https://example.com/a/b", ref)
    tree.ran(command("git checkout v6", cwd="/w"))
    assert tree.clone_at("/w/b") == ("https://example.com/a/b", "own")
    assert "clones it from" in str(tree.read("/w/b/requirements.txt", "/"))
