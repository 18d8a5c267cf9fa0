"""What a build copies and its project lacks, as BuildKit answered on the same files, and what a project says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from envkit import facts
from envkit.dockerfile.context import Context
from envkit.model import Severity
from envkit.static import CheckOptions
from envkit.static.judged import of_dockerfile
from envkit.static.whole import project

FACTS = facts.load()
CHECK = "copied-file-missing"


def laid(folder: Path, files: dict[str, str]) -> Path:
    """A checkout with these files; a text that begins with "->" is a link."""
    for name, text in {".git/HEAD": "ref: refs/heads/main\n", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("->"):
            path.symlink_to(text.removeprefix("->"))
        elif name.endswith("/"):
            path.mkdir()
        else:
            path.write_text(text)
    return folder


def found(folder: Path, text: str, root: str = "", name: str = "Dockerfile") -> dict[str, Severity]:
    """The messages of the check with their severities; ``root`` is the build context below the checkout."""
    path = folder / root / name
    path.write_text(text)
    judged = of_dockerfile(text, str(path), Context(folder / root, path, around=project), CheckOptions(), FACTS)
    result = next(one for one in judged.results if one.check == CHECK)
    return {each.message: each.severity for each in result.findings}


# One context, and whether Docker Engine 26.1.5 with BuildKit ended on the line (2026-11-30, FROM scratch).
CONTEXT = {
    "here.txt": "x",
    "Case.txt": "x",
    "src/a.py": "x",
    "src/sub/b.py": "x",
    "ig/x": "x",
    "ig/keep": "x",
    "ig2/x": "x",
    "igfile": "x",
    "ig3/x": "x",
    "dirlink": "->src",
    ".dockerignore": "ig\n!ig/keep\nig2\nigfile\nig3/*\n",
}
ENDS = [
    "COPY missing.txt /",
    "COPY missing/ /m/",
    "COPY here.txt missing.txt /m/",
    "COPY missing/*.csv /m/",
    "COPY igfile /",
    "COPY ig2 /ig2",
    "COPY ig2/x /",
    "COPY ../missing.txt /",
    "ADD missing.csv /",
    "COPY case.txt /",
    "COPY /home/me/here.txt /m/",
    'COPY ["missing.txt", "/m/"]',
    "RUN --mount=type=bind,source=missing.txt,target=/r.txt true",
]
GOES_ON = [
    "COPY missing* /m/",
    "COPY here.txt missing* /m/",
    "COPY missing* nope* /m/",
    "COPY missing.tx? /m/",
    "COPY missin[g].txt /m/",
    "COPY */none.txt /m/",
    "COPY */a.py /m/",
    "COPY ig /ig",
    "COPY ig3 /ig3",
    "COPY igfil* /m/",
    "COPY dirlink /d",
    "COPY dirlink/a.py /d/",
    "COPY ../here.txt /",
    "COPY ../../src/a.py /",
    "COPY /here.txt /m/",
    "COPY here.txt/ /m/",
    "COPY src/. /m/",
    'COPY "here.txt" /m/',
    "ARG X\nCOPY ${X}/here.txt /m/",
    "COPY <<EOF /x\nhello\nEOF",
    "COPY . /m/",
]


@pytest.mark.parametrize("line", [*ENDS, *GOES_ON])
def test_names_are_looked_up_as_buildkit_does(tmp_path: Path, line: str) -> None:
    folder = laid(tmp_path, CONTEXT)
    assert bool(found(folder, f"FROM scratch\n{line}\n")) == (line in ENDS)


# Projects with a Dockerfile that copies what a clone of them does not have: the files, the Dockerfile, and for whom
# the build ends ("" for nobody, for something makes the file).
A = "FROM scratch\nCOPY app.py /\n"
RUNS = {"app.py": "", "scripts/gpu.py": "", "README.md": "python scripts/gpu.py -x"}
FETCHES = {"app.py": "", "get.sh": "curl -o big.dat https://example.org/big.dat"}
MODULE = {"app.py": "", ".gitmodules": '[submodule "s"]\n\tpath = third/s\n'}
NAMED = {"app.py": "", "README.md": "run `python cam.py`"}
DRAWN = {"app.py": "", "README.md": "```\n.\n├── app.py\n└── Engine/      # the engine's source code\n```\n"}
ASKED = {"app.py": "", "build.bat": 'if not exist "Engine\\list.txt" exit 1'}
PROJECTS: list[tuple[str, dict[str, str], str, str]] = [
    ("a renamed package", {"app.py": "", "am/x.py": ""}, A + "COPY am_segm /m\n", "am_segm"),
    ("a program that was never committed", NAMED, A + "COPY cam.py /\n", "cam.py"),
    ("a folder of data that nothing names", {"app.py": "", "cfg.yaml": "data: 1"}, A + "COPY data/ /data/\n", "data/"),
    ("a script under another case", {"app.py": "", "Run.sh": ""}, A + "COPY run.sh /\n", "run.sh"),
    ("moved to another folder", {"app.py": "", "scripts/gpu.py": ""}, A + "COPY gpu.py /\n", "gpu.py"),
    ("only a page that names where it lies now", RUNS, A + "COPY gpu.py /\n", "gpu.py"),
    ("a script brings it", FETCHES, A + "COPY big.dat /\n", ""),
    ("a script copies it", {"app.py": "", "lib/c.h": "", "make.sh": "cp lib/c.h c.h"}, A + "COPY c.h /\n", ""),
    ("a page draws the folder that a user puts there", DRAWN, A + "COPY Engine/list.txt /\n", ""),
    ("a script asks whether the folder is there", ASKED, A + "COPY Engine/list.txt /\n", ""),
    ("a page draws a folder that the project has", {**DRAWN, "Engine/a.py": ""}, A + "COPY Engine/list.txt /\n",
     "Engine/list.txt"),
    ("a page only speaks of the folder", {"app.py": "", "README.md": "Engine is fast"}, A + "COPY Engine/list.txt /\n",
     "Engine/list.txt"),
    ("a submodule", MODULE, A + "COPY third/s/x.c /\n", ""),
    ("a workflow clones it", {"app.py": "", ".github/workflows/b.yml": "run: git clone https://example.org/e eng"},
     A + "COPY eng /e\n", ""),
    ("weights by hand", {"app.py": ""}, A + "COPY yolo.pt /\n", ""),
    ("a secret by hand", {"app.py": ""}, A + "COPY .env /\n", ""),
    ("ignored below", {"app.py": "", "sub/.gitignore": "*.dat\n"}, A + "COPY sub/x.dat /\n", ""),
    ("git's own folder", {"app.py": ""}, A + "COPY .git /g\n", ""),
    ("another stage", {"app.py": ""}, "FROM scratch AS b\nCOPY app.py /x\n" + A + "COPY --from=b /none /n\n", ""),
    ("another image", {"app.py": ""}, A + "COPY --from=ghcr.io/astral-sh/uv /uv /bin/\n", ""),
    ("an address", {"app.py": ""}, A + "ADD https://example.org/x.txt /\n", ""),
    ("a repository", {"app.py": ""}, A + "ADD git@example.org:a/b.git#v1 /b\n", ""),
]  # fmt: skip


@pytest.mark.parametrize(("files", "text", "lacks"), [one[1:] for one in PROJECTS], ids=[one[0] for one in PROJECTS])
def test_what_nothing_makes_is_lacking(tmp_path: Path, files: dict[str, str], text: str, lacks: str) -> None:
    told = found(laid(tmp_path, files), text)
    assert [message.split(" is not ")[0] for message in told] == ([lacks] if lacks else [])
    assert set(told.values()) <= {Severity.ERROR}


def test_any_folder_may_be_the_context(tmp_path: Path) -> None:
    """A file is told only if no folder has all; what lies elsewhere may be put into a context below the root."""
    folder = laid(
        tmp_path, {"docker/entry.sh": "", "setup.cfg": "", "src/setup.cfg": "", "src/entry.sh": "", "lib/x.py": ""}
    )
    assert not found(folder, "FROM scratch\nCOPY setup.cfg entry.sh /\n", "docker")
    assert not found(folder, "FROM scratch\nCOPY docker/entry.sh setup.cfg /\n", "docker")
    assert not found(folder, "FROM scratch\nCOPY entry.sh x.py /\n", "docker")
    assert list(found(folder, "FROM scratch\nCOPY entry.sh y.py /\n", "docker").values()) == [Severity.ERROR]


def test_a_dockerfile_for_another_project_is_not_judged(tmp_path: Path) -> None:
    """Below the root of a checkout that has nothing of what it copies; at the root it is the project's own."""
    folder = laid(tmp_path, {"env/": "", "code/run.py": ""})
    assert not found(folder, "FROM scratch\nCOPY helper /\n", "env")
    assert found(folder, "FROM scratch\nCOPY helper /\n")


def test_outside_of_a_checkout_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("")
    assert not found(tmp_path, A + "COPY cam.py /\n")
