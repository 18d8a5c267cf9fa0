"""A build context: nothing outside of it is read, what a .dockerignore names is not there, and nothing hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clocks import costs_less, ends
from gathered import gathered
from hypothesis import given
from hypothesis import strategies as st

from envkit.dockerfile import context
from envkit.dockerfile.context import Context, folder_of
from envkit.dockerfile.files import LARGEST, FileText


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A context with a neighbour that must stay unread."""
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "context"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "requirements.txt").write_text("torch\n")
    (folder / "sub" / "more.txt").write_text("numpy\n")
    return folder


def text(folder: Path, path: str) -> str:
    found = Context(folder).read(path)
    assert isinstance(found, FileText), found
    return found.text


def why(folder: Path, path: str) -> str:
    found = Context(folder).read(path)
    assert isinstance(found, str), found
    return found


def test_files_and_their_names(root: Path) -> None:
    found = Context(root).read("sub/../requirements.txt")
    assert found == FileText(str(root / "requirements.txt"), "torch\n")
    assert text(root, "./sub/more.txt") == "numpy\n"
    assert Context(root).names(".") == ("requirements.txt", "sub")
    assert Context(root).names("sub/") == ("deep", "more.txt")
    assert Context(root).names("requirements.txt") == () and Context(root).names("none") == ()


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.txt", "sub/../../secret.txt", "..", "/"])
def test_outside(root: Path, path: str) -> None:
    assert why(root, path) == "it lies outside the build context"
    assert Context(root).names(path) == ()


@pytest.mark.parametrize("path", ["none", "none/x", "a\0b", "x" * 300, "y/" * 5000, "\udce4"])
def test_missing(root: Path, path: str) -> None:
    assert why(root, path) == "it is not in the build context"
    assert Context(root).names(path) == ()


def test_links(root: Path) -> None:
    (root / "inside").symlink_to("sub/more.txt")
    (root / "leaves").symlink_to("../secret.txt")
    (root / "up").symlink_to("..")
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "loop").symlink_to("loop")
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    assert text(root, "inside") == "numpy\n"
    for path in ("leaves", "up/secret.txt", "absolute"):
        assert why(root, path) == "it is a link that leaves the build context"
    assert why(root, "loop") == why(root, "one") == "it is a link that leads in a circle"
    assert Context(root).names("up") == ()


def test_the_context_may_be_a_link_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert text(tmp_path / "link", "requirements.txt") == "torch\n"


def test_what_is_no_plain_file(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with ends():
        assert why(root, "pipe") == "it is a pipe, not a plain file"
    assert why(root, "sub") == "it is a folder"


def test_size_and_bytes(root: Path) -> None:
    (root / "large").write_bytes(b"x" * (LARGEST + 1))
    (root / "fits").write_bytes(b"x" * LARGEST)
    (root / "binary").write_bytes(b"\x7fELF\0\0")
    (root / "marked").write_bytes(b"\xef\xbb\xbftorch\xff\n")
    (root / "powershell").write_bytes("torch==2.1.0\r\n".encode("utf-16"))
    assert why(root, "large") == "it has more than 4 MiB"
    assert len(text(root, "fits")) == LARGEST
    assert why(root, "binary") == "it is no text"
    assert text(root, "marked") == "torch\ufffd\n"
    assert text(root, "powershell") == "torch==2.1.0\r\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(root: Path) -> None:
    (root / "closed").write_text("x")
    (root / "closed").chmod(0)
    assert why(root, "closed") == "it cannot be read (permission denied)"


# ---------------------------------------------------------------- .dockerignore


@gathered(
    [
        (["a"], "a", True),
        (["a"], "a/b/c", True),
        (["a"], "b/a", False),
        (["/a"], "a", True),
        (["./a/"], "a/b", True),
        (["a/../b"], "b", True),
        (["*"], "a/b", True),
        (["*.md"], "x.md", True),
        (["*.md"], "d/x.md", False),
        (["*/*.md"], "d/x.md", True),
        (["**/*.md"], "x.md", True),
        (["**/*.md"], "a/b/x.md", True),
        (["**/*.md"], "a/b/x.mdx", False),
        (["**/b"], "ab", False),
        (["**/b"], "a/b/c", True),
        (["a/**"], "a/b/c", True),
        (["a/**/z"], "a/z", True),
        (["a/**/z"], "a/b/c/z", True),
        (["a/**/z"], "a/bz", False),
        (["a**z"], "a/b/z", True),
        (["**"], "a", True),
        (["temp?"], "tempa", True),
        (["temp?"], "temp/", False),
        (["[a-c]x"], "bx", True),
        (["[^a-c]x"], "bx", False),
        (["[^a-c]x"], "dx", True),
        (["a\\*b"], "a*b", True),
        (["a\\*b"], "axb", False),
        (["# a", "", "  "], "a", False),
        ([" a "], "a", True),
        (["*", "!keep.txt"], "keep.txt", False),
        (["*", "!keep.txt"], "other.txt", True),
        (["a", "!a/b"], "a/b/c", False),
        (["a", "!a/b"], "a/c", True),
        (["!a", "a"], "a", True),
        (["*.txt", "!r*.txt", "re.txt"], "rx.txt", False),
        (["*.txt", "!r*.txt", "re.txt"], "re.txt", True),
        (["**/*.txt", "! docs/**/r.txt"], "docs/a/r.txt", False),
        ([".", "/"], "a", False),
        (["a.b"], "axb", False),
    ]
)
def test_rules(lines: list[str], path: str, expected: bool) -> None:
    assert context.ignored(path, context.rules("\n".join(lines))) is expected


def test_what_is_ignored_is_not_there(root: Path) -> None:
    (root / ".dockerignore").write_text("sub\n!sub/deep\n*.log\n")
    (root / "sub" / "deep" / "x.txt").write_text("x")
    (root / "a.log").write_text("x")
    (root / "link").symlink_to("sub/more.txt")
    assert why(root, "sub/more.txt") == why(root, "link") == "the .dockerignore keeps it out of the build context"
    assert text(root, "sub/deep/x.txt") == "x"
    assert Context(root).names(".") == (".dockerignore", "link", "requirements.txt", "sub")
    assert Context(root).names("sub") == ("deep",)


def test_the_dockerfile_may_have_rules_of_its_own(root: Path) -> None:
    (root / ".dockerignore").write_text("sub\n")
    (root / "gpu.Dockerfile.dockerignore").write_text("requirements.txt\n")
    own = Context(root, root / "gpu.Dockerfile")
    assert isinstance(own.read("sub/more.txt"), FileText) and isinstance(own.read("requirements.txt"), str)
    assert isinstance(Context(root, root / "Dockerfile").read("sub/more.txt"), str)


def test_hostile_patterns_are_bounded(root: Path) -> None:
    lines = "\n".join(["**/" * 300 + "x", "*a" * 1000 + "b", "[" * 3000] * 20)
    with costs_less(5):
        assert not context.ignored("/".join(["a" * 200] * 10), context.rules(lines))
    (root / ".dockerignore").mkdir()
    assert text(root, "requirements.txt") == "torch\n"


@given(st.text("ab*?[]^-!\\/.#", max_size=12), st.text("ab/.*", min_size=1, max_size=10))
def test_any_pattern_and_path(pattern: str, path: str) -> None:
    lines = context.rules(pattern)
    assert context.ignored(path, lines) in (True, False)
    assert context.ignored(path, context.rules("**")) is (path != ".")


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=5))
def test_a_plain_pattern_is_that_folder_and_what_is_below(names: list[str]) -> None:
    path = "/".join(names)
    for wild in (path, path.replace("a", "?"), f"**/{path}", path.replace("a", "[a]")):
        lines = context.rules(wild)
        assert context.ignored(path, lines) and context.ignored(f"{path}/x/y", lines)
    assert not context.ignored(f"{path}x", context.rules(path))


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://github.com/a/b", True),
        ("https://github.com/A/b.git/", True),
        ("git@github.com:a/b.git", True),
        ("ssh://git@github.com:22/a/b", True),
        ("https://token@github.com/a/b", True),
        ("https://github.com/a/bc", False),
        ("https://gitlab.com/a/b", False),
        ("b", False),
    ],
)
def test_a_clone_of_the_checkout_around_the_context(tmp_path: Path, url: str, same: bool) -> None:
    folder = tmp_path / "docker"
    (tmp_path / ".git").mkdir()
    folder.mkdir()
    (tmp_path / "r.txt").write_text("torch\n")
    (folder / ".dockerignore").write_text("r.txt\n")
    assert Context(folder).clone_of(url) is None
    origin = '[core]\n\tbare = false\n[remote "origin"]\n\tfetch = +x\n\turl = https://github.com/a/b.git\n'
    (tmp_path / ".git" / "config").write_text('[remote "other"]\n\turl = https://gitlab.com/a/b\n' + origin)
    found = Context(folder).clone_of(url)
    assert (found is not None) == same
    if found is not None:
        assert isinstance(found.read("r.txt"), FileText)
        assert found.clone_of(url) is not None
    assert Context(folder, repository=("https://gitlab.com/c/d", tmp_path)).clone_of(url) is None


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("COPY r.txt /\n", "."),
        ("COPY r.txt own.txt /\n", "."),  # the root has as many, and the own folder is nearer
        ("COPY src r.txt /\n", ".."),
        ("COPY --chown=1:1 src/a.py /\n", ".."),
        ("COPY --from=x src r.txt /\n", "."),
        ("COPY . /\n", "."),
        ("COPY $NAME *.txt https://example.com/src /\n", "."),
        ("COPY ../src /\n", ".."),  # Docker leads ".." no further than the context's root
        ("COPY ../../r.txt ../src /\n", ".."),
        ("COPY .. /\n", "."),
        ('COPY ["src", "/"]\n', "."),
        ("# docker build -t x -f docker/Dockerfile .\nCOPY . /\n", ".."),
        ("# Build: sudo docker buildx build . --file=docker/Dockerfile.cpu -t x && docker push x\nCOPY . /\n", ".."),
        ("# docker build -f docker/Dockerfile docker\nCOPY src r.txt /\n", "."),
        ("# docker build -f other/Dockerfile .\nCOPY . /\n", "."),
        ("# docker build -f docker/Dockerfile src\nCOPY . /\n", "."),
        ("# docker build -f docker/Dockerfile ../..\nCOPY . /\n", "."),
        ("# docker build -f docker/Dockerfile $HERE\nCOPY . /\n", "."),
        ("# docker build -f docker/Dockerfile . more\nCOPY . /\n", "."),
        ("RUN docker build -f docker/Dockerfile .\n", "."),
    ],
)
def test_the_folder_that_a_dockerfile_is_written_for(tmp_path: Path, text: str, folder: str) -> None:
    top = tmp_path / "top"
    (top / "src").mkdir(parents=True)
    (top / "src" / "a.py").touch()
    own = top / "docker"
    own.mkdir()
    for place in (top / "r.txt", own / "r.txt", own / "own.txt"):
        place.touch()
    (tmp_path / "r.txt").touch()
    path = own / "Dockerfile"
    expected = (own / folder).resolve()
    assert folder_of(path, text, top).resolve() == expected
    assert folder_of(path, text).resolve() == own.resolve()  # no checkout, so nothing above is looked at
    (top / ".git").mkdir()
    (top / ".git" / "config").write_text('[remote "origin"]\n\turl = https://example.com/a/b\n')
    assert folder_of(path, text).resolve() == expected
