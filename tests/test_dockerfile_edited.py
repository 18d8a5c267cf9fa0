"""What sed, cp and mv of a RUN make of the files that are read afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from envkit.dockerfile.context import Context, folder_of, named_alike
from envkit.dockerfile.edits import pattern
from envkit.dockerfile.evaluate import read
from envkit.facts import load
from envkit.subjects.dockerfile import Dockerfile

FACTS = load()
LIST = "numpy==1.26.4\ntorch==2.1.0+cu118\ntorchvision==0.16.0\n"


def built(folder: Path, run: str, text: str = LIST) -> Dockerfile:
    (folder / "requirements.txt").write_text(text)
    script = f"FROM python:3.11\nWORKDIR /app\nCOPY . .\nRUN {run}\n"
    return read(script, "Dockerfile", FACTS, Context(folder))


@pytest.mark.parametrize(
    ("run", "version"),
    [
        ("cp requirements.txt /tmp/list.txt && pip install -r /tmp/list.txt", "2.1.0"),
        ("mkdir x && mv requirements.txt x && pip install -r x/requirements.txt", "2.1.0"),
    ],
)
def test_what_is_copied_is_read_in_its_new_place(tmp_path: Path, run: str, version: str) -> None:
    torch = built(tmp_path, run).torch
    assert torch is not None and torch.version.value == version
    assert torch.span.line == 2  # the lines keep their numbers


@pytest.mark.parametrize(
    ("address", "run", "version"),
    [
        ("me/mine", "mv tmp/* . && rm -rf tmp && pip install -r requirements.txt", "2.1.0"),
        ("me/mine", "cp -r tmp/. /srv/ && pip install -r /srv/requirements.txt", "2.1.0"),
        ("me/mine", "mv tmp /srv && pip install -r /srv/requirements.txt", "2.1.0"),
        ("me/other", "mv tmp/* . && rm -rf tmp && pip install -r requirements.txt", ""),
        ("me/mine", "mv tmp/* $PLACE && rm -rf tmp && pip install -r requirements.txt", ""),
    ],
)
def test_what_is_taken_out_of_a_clone_of_the_project_is_known(
    tmp_path: Path, address: str, run: str, version: str
) -> None:
    (tmp_path / "requirements.txt").write_text(LIST)
    script = f"FROM python:3.11\nWORKDIR /app\nRUN git clone https://github.com/{address} tmp && {run}\n"
    found = read(script, "Dockerfile", FACTS, Context(tmp_path, repository=("https://github.com/me/mine", tmp_path)))
    assert (found.torch.version.value if found.torch else "") == version
    assert bool(found.unread) is not bool(version)


@pytest.mark.parametrize(
    ("run", "names", "version"),
    [
        ("sed -i '/torch/d' {0} && pip install -r {0}", "numpy", ""),
        (
            "sed -i.bak -e '/^torch==/d' {0}; pip install -r {0}",
            "numpy torchvision",
            "2.1.0",
        ),
        ("sed -Ei 's/torch==2.1.0/torch==2.6.0/' {0} && pip install -r {0}", "numpy torch torchvision", "2.6.0"),
        ("sed --in-place s/a/b/ /app/{0} && pip install -r {0}", "numpy torch torchvision", "2.1.0"),
        ("sed -i -e '/numpy/d' -e 's|2.1.0+cu118|2.4.0|' {0} && pip install -r {0}", "torch torchvision", "2.4.0"),
        ("sed -i '/vision/d;s/^numpy/#&/' {0} && pip install -r {0}", "torch", "2.1.0"),
        ("sed -i 's/TORCHV/x/I' {0} && pip install -r {0}", "numpy torch xision", "2.1.0"),
        ("sed '/torch/d' {0} > /tmp/r.txt && pip install -r /tmp/r.txt", "numpy", ""),
        ("grep -v '^torch' {0} > /tmp/r.txt && pip install -r /tmp/r.txt", "numpy", ""),
        ("grep -vE '^(torch|numpy)([<>=!~].*)?$' {0} > r.txt && pip install -r r.txt", "torchvision", "2.1.0"),
        (r"grep -v 'torch\|numpy' {0} > r.txt; pip install -r r.txt", "", ""),
        ("grep -iF -e TORCH== -e NUMPY {0} > r.txt && pip install -r r.txt", "numpy torch", "2.1.0"),
        ("egrep 'torch(vision)?=' {0} > r.txt && pip install -r r.txt", "torch torchvision", "2.1.0"),
        ("cat {0} > /tmp/r.txt && pip install -r /tmp/r.txt", "numpy torch torchvision", "2.1.0"),
    ],
)
def test_what_is_edited_is_read_as_edited(tmp_path: Path, run: str, names: str, version: str) -> None:
    dockerfile = built(tmp_path, run.format("requirements.txt"))
    assert not dockerfile.unread
    assert [one.name for one in dockerfile.installs] == names.split()
    torch = dockerfile.torch
    assert (torch.version.value if torch else "") == version
    assert all(
        LIST.splitlines()[one.span.line - 1][:5] == one.name[:5] for one in dockerfile.installs if "x" not in one.name
    )


@pytest.mark.parametrize(
    "run",
    [
        "grep -v torch requirements.txt | sort > /tmp/r.txt && pip install -r /tmp/r.txt",
        "grep -vw torch requirements.txt > /tmp/r.txt && pip install -r /tmp/r.txt",
        r"grep -v '\<torch' requirements.txt > /tmp/r.txt && pip install -r /tmp/r.txt",
        "grep -v $OUT requirements.txt > /tmp/r.txt && pip install -r /tmp/r.txt",
        "grep -v torch requirements.txt /opt/more.txt > /tmp/r.txt && pip install -r /tmp/r.txt",
        "grep -c torch requirements.txt > /tmp/r.txt; pip install -r /tmp/r.txt",
        r"sed -E 's/(torch)==.*/\1/' requirements.txt > /tmp/r.txt && pip install -r /tmp/r.txt",
        "sed -n '/torch/p' requirements.txt > /tmp/r.txt && pip install -r /tmp/r.txt",
        "sed 's/a/b/w /tmp/log' requirements.txt > /tmp/r.txt && pip install -r /tmp/r.txt",
        "cat requirements.txt /opt/more.txt > /tmp/r.txt && pip install -r /tmp/r.txt",
        "cat requirements.txt >> /tmp/r.txt && pip install -r /tmp/r.txt",
        "sed -i '2,3d' requirements.txt && pip install -r requirements.txt",
        "sed -i '/numpy/a torch==2.6.0' requirements.txt && pip install -r requirements.txt",
        'sed -i "s/2.1.0/$VERSION/" requirements.txt && pip install -r requirements.txt',
        "if [ -e /dev/nvidia0 ]; then sed -i /torch/d requirements.txt; fi; pip install -r requirements.txt",
        "cp /opt/list.txt requirements.txt && pip install -r requirements.txt",
        r"sed -i '/\(t*\)*\(o*\)*/d' requirements.txt && pip install -r requirements.txt",
    ],
)
def test_what_is_not_understood_is_not_read(tmp_path: Path, run: str) -> None:
    dockerfile = built(tmp_path, run)
    assert dockerfile.torch is None and dockerfile.unread


def test_a_lock_that_the_build_makes_anew_is_not_the_one_of_the_context(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n')
    (tmp_path / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "x"\nversion = "1"\nsource = { virtual = "." }\n'
    )
    dockerfile = built(tmp_path, "uv lock --upgrade && uv sync")
    assert any(one.path == "uv.lock" and "again" in one.why for one in dockerfile.unread)


@pytest.mark.parametrize(
    ("text", "extended"),
    [
        ("(a*)*b", True),  # takes long
        (r"\(a*\)*b", False),
        ("a*b*c*d*e", False),
        ("x" * 301, False),
        (r"\bx", True),  # GNU's own
        (r"\1", True),
        ("a^b", True),  # means itself in one grammar alone
        ("a$b", True),
        ("[[:upper:]]", True),
        ("[a", True),
        ("*a", True),
        ("(a", True),
    ],
)
def test_a_pattern_that_may_mean_something_else_or_take_long_is_none(text: str, extended: bool) -> None:
    assert pattern(text, extended=extended) is None


def test_a_list_that_is_long_is_not_edited(tmp_path: Path) -> None:
    run = "sed -i /torch/d requirements.txt && pip install -r requirements.txt"
    for text, known in (
        ("a\n" * 2000, True),
        ("a\n" * 2001, False),
        ("#" * 300 + "\n", True),
        ("#" * 301 + "\n", False),
    ):
        assert (not built(tmp_path, run, text).unread) == known


def test_edits_that_would_take_long_together_are_not_done(tmp_path: Path) -> None:
    text = ("#" * 290 + "\n") * 2000
    for count, known in ((8, True), (9, False)):
        run = "sed -i s/a/b/ requirements.txt && " * count + "pip install -r requirements.txt"
        assert (not built(tmp_path, run, text).unread) == known
    run = "sed -i 's/#.*a/b/' requirements.txt && pip install -r requirements.txt"
    assert built(tmp_path, run, text).unread
    assert not built(tmp_path, run, "numpy\n" * 2000).unread


def test_a_hostile_text_is_looked_through_once(tmp_path: Path) -> None:
    for text in (
        "\n" * 400_000,
        "COPY" + " " * 400_000 + "[",
        "#" + " docker build" * 40_000,
        "# docker build -f" + " /" * 90_000,
    ):
        assert folder_of(tmp_path / "Dockerfile", text, tmp_path) == tmp_path
    assert not named_alike("https://example.com/" + "/" * 60_000 + "x", "https://example.com/x")
