"""What make starts in a build, by the makefile of the context."""

from __future__ import annotations

import answers
import pytest
import written

from envkit import facts as tables
from envkit.dockerfile.evaluate import read
from envkit.subjects.dockerfile import Dockerfile

FACTS = tables.load()


def dockerfile(make: str, makefile: str, **beside: str) -> Dockerfile:
    """A Python image in which ``make`` is run with this makefile and other files beside it."""
    text = f"FROM python:3.11-slim\nWORKDIR /app\nCOPY . .\nRUN {make}\n"
    files = {name.replace("_", "."): body for name, body in beside.items()}
    found = read(text, "Dockerfile", FACTS, written.Beside({"Makefile": makefile, **files}))
    return answers.same("dockerfiles", (text, makefile, files), found)


def said(subject: Dockerfile) -> list[str]:
    """The installs of pip, as name and specifier, with a question mark where they are not sure."""
    return [f"{i.name}{i.specifier}{'' if i.sure else '?'}" for i in subject.installs if i.manager == "pip"]


@pytest.mark.parametrize(
    ("make", "makefile", "wanted"),
    [
        ("make deps", "deps:\n\tpip install torch==2.6.0\n", ["torch==2.6.0"]),
        ("make", "deps:\n\tpip install torch==2.6.0\nother:\n\tpip install x\n", ["torch==2.6.0"]),
        ("make other", "deps:\n\tpip install torch==2.6.0\nother:\n\tpip install x\n", ["x"]),
        ("make all", "all: deps\n\t@pip install x\ndeps:\n\t-pip install y\n", ["y", "x"]),
        ("make all", "all: deps\ndeps: all\n\tpip install y\n", ["y"]),
        ("make deps", "V := 2.6.0\nP = pip\ndeps:\n\t$(P) install torch==${V}\n", ["torch==2.6.0"]),
        ("make deps V=2.5.1", "V := 2.6.0\ndeps:\n\tpip install torch==$(V)\n", ["torch==2.5.1"]),
        ("make deps", "V ?= 2.6.0\nV ?= 2.5.1\ndeps:\n\tpip install torch==$(V)\n", ["torch==2.6.0"]),
        ("make deps", "deps:\n\tpip install \\\n\t  torch==2.6.0 \\\n\t  x\n", ["torch==2.6.0", "x"]),
        ("make deps", "deps:\n\tV=2.6.0; pip install torch==$$V\n", ["torch==2.6.0"]),
        ("make deps", "ifeq ($(GPU),1)\ndeps:\n\tpip install torch==2.6.0\nendif\n", ["torch==2.6.0?"]),
        ("make deps", "# deps:\n#\tpip install torch\ndeps: ; \n\tpip install x # y\n", ["x"]),
        ("make -C sub deps", "deps:\n\tpip install torch\n", []),
        ("make -f Makefile deps", "deps:\n\tpip install x\n", ["x"]),
        ("make nothing", "deps:\n\tpip install torch\n", []),
        ("cmake --build . && make", "x.o: x.c\n\tcc -c x.c\n", []),
    ],
)
def test_the_recipes_of_the_goals_run(make: str, makefile: str, wanted: list[str]) -> None:
    assert said(dockerfile(make, makefile)) == wanted


def test_gnu_make_s_own_file_goes_before_the_makefile() -> None:
    subject = dockerfile("make", "x:\n\tpip install x\n", GNUmakefile="x:\n\tpip install torch==2.6.0\n")
    assert said(subject) == ["torch==2.6.0"]


def test_a_finding_is_at_the_line_of_the_makefile() -> None:
    install = dockerfile("make deps", "# first\n\ndeps:\n\tpip install torch==2.6.0\n").installs[-1]
    assert (install.span.path, install.span.line) == ("Makefile", 4)


def test_what_make_alone_knows_stays_open() -> None:
    torch = dockerfile("make deps", "V := $(shell cat version)\ndeps:\n\tpip install torch==$(V)\n").torch
    assert torch is not None and torch.version.value is None


def test_requirements_are_followed_from_a_recipe() -> None:
    subject = dockerfile("make deps", "deps:\n\tpip install -r requirements.txt\n", requirements_txt="torch==2.6.0\n")
    assert said(subject) == ["torch==2.6.0"]


@pytest.mark.parametrize(
    "makefile",
    [
        "A = $(B)$(B)\nB = $(A)$(A)\nx:\n\techo $(A)\n",
        "".join(f"V{n} = $(V{n + 1})$(V{n + 1})\n" for n in range(60)) + "x:\n\techo $(V0)\n",
        "".join(f"g{n}: g{n + 1}\n\techo {n}\n" for n in range(3000)),
        "x:\n" + "\tpip install a\n" * 20_000,
        "x: " + "y " * 50_000 + "\n\techo\n",
        "\\\n" * 50_000,
        "x:\n\tmake x\n",
    ],
    ids=["cycle", "doubling", "chain", "lines", "needs", "joined", "itself"],
)
def test_a_hostile_makefile_is_bounded(makefile: str) -> None:
    assert dockerfile("make", makefile).stages
