"""The table of public projects keeps its promises, and scripts/corpus fetches, verifies and counts."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "corpus"
DOCKERFILE = "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nCOPY requirements.txt /\nRUN pip install -r /requirements.txt\n"


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with a table of its own place."""
    loader = SourceFileLoader("corpus", str(SCRIPT))
    spec = spec_from_loader("corpus", loader)
    assert spec
    module = module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setitem(sys.modules, "corpus", module)  # where dataclasses look for their module
    loader.exec_module(module)
    return module


def mirror(folder: Path, name: str) -> str:
    """A repository with a Dockerfile and its requirements at FOLDER/NAME/repo; its commit."""
    made = folder / name / "repo"
    made.mkdir(parents=True)
    (made / "Dockerfile").write_text(DOCKERFILE)
    (made / "requirements.txt").write_text("torch\n")
    (made / "model.bin").write_bytes(b"weights")
    (made / "link.toml").symlink_to("/etc/passwd")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=made, check=True)
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=made, check=True, capture_output=True, text=True).stdout[
        :-1
    ]


def table(folder: Path, commit: str, sha256: str) -> None:
    """A table with the one Dockerfile of ``mirror``, in the half to develop on."""
    one = f'path = "Dockerfile", context = ".", sha256 = "{sha256}"'
    project = f'[[project]]\nrepository = "a/b"\ncommit = "{commit}"\nhalf = "develop"\nfiles = [{{ {one} }}]\n'
    (folder / "dockerfiles.toml").write_text(project)


def test_table_promises(corpus: ModuleType) -> None:
    """Enough files, few of one owner, halves by the owner's hash, none that rules were written after before."""
    rows = corpus.entries("both")
    assert len(rows) >= 400
    assert len({each.sha256 for each in rows}) == len(rows)
    assert max(Counter(each.repository for each in rows).values()) <= 2
    assert max(Counter(each.repository.split("/")[0].lower() for each in rows).values()) <= 4
    for each in rows:
        owner = each.repository.split("/")[0].lower().encode()
        assert each.half == ("aside" if hashlib.sha256(owner).digest()[0] & 1 else "develop"), each
    known = Path(__file__).parent / "data" / "public_dockerfiles.jsonl"
    before = {json.loads(row)["repo"].lower() for row in known.read_text().splitlines()}
    assert not before & {each.repository.lower() for each in rows}


def test_later_files_are_of_other_owners(corpus: ModuleType) -> None:
    """No owner of the files that were chosen later is in either half, and a third of them were read first."""
    later, owners = corpus.entries("later"), {each.repository.split("/")[0].lower() for each in corpus.entries("both")}
    assert len(later) >= 60
    assert not owners & {each.repository.split("/")[0].lower() for each in later}
    sampled = [key for key, rows in corpus.labels("later").items() if any(row.name == "sample" for row in rows)]
    assert len(sampled) * 3 >= len(later)


@pytest.mark.parametrize(
    ("half", "least"),
    [
        ("fresh", 110),
        ("unseen", 80),
        ("beyond", 70),
        ("novel", 80),
        ("batches", 75),
        ("last", 50),
        ("recent", 45),
        ("sight", 60),
        ("newest", 50),
        ("strange", 60),
        ("foreign", 60),
        ("again", 40),
        ("plain", 40),
    ],
)
def test_files_of_owners_that_are_nowhere_else(corpus: ModuleType, half: str, least: int) -> None:
    """Whoever writes rules has seen no file of these owners, and a person read each before it was judged."""
    rows = corpus.entries(half)
    before = corpus.ADDED[: corpus.ADDED.index(half)]
    seen = {each.repository.split("/")[0].lower() for name in ("both", *before) for each in corpus.entries(name)}
    known = Path(__file__).parent / "data" / "public_dockerfiles.jsonl"
    seen |= {json.loads(row)["repo"].split("/")[0].lower() for row in known.read_text().splitlines()}
    owners = {each.repository.split("/")[0].lower() for each in rows}
    assert len(rows) >= least
    assert len(owners) == len(rows)
    assert not seen & owners
    read = corpus.labels(half)
    assert all(any(row.name == "sample" for row in read[each.key]) for each in rows)


def test_labels_are_of_the_table(corpus: ModuleType) -> None:
    """Every row of a label file is of a Dockerfile of that half, and says what rows may say."""
    from envkit.static.check import checks

    for half in corpus.PARTS:
        keys = {each.key for each in corpus.entries(half)}
        for key, said in corpus.labels(half).items():
            assert key in keys
            for each in said:
                fact = each.name in corpus.FIELDS or (each.name, each.verdict) == ("sample", "read")
                assert fact or each.name in (corpus.OTHER, *checks()), each
                assert fact or each.verdict.split()[0] in ("true", "false", "missed", "harm", "noise"), each


def test_fetch_and_measure(corpus: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror's project is fetched with what is read of it, and its findings are weighed by the labels."""
    commit = mirror(tmp_path, "a+b")
    sha256 = hashlib.sha256(DOCKERFILE.encode()).hexdigest()
    table(tmp_path, commit, sha256)
    monkeypatch.setattr(corpus, "TABLE", tmp_path)
    cache = tmp_path / "cache"
    assert corpus.fetch_all(cache, tmp_path, "develop") == 0
    folder = cache / "develop" / "a+b"
    assert sorted(path.name for path in folder.iterdir()) == ["Dockerfile", "requirements.txt"]

    rows = [
        f"{sha256[:12]}\t0\tsample\tread",
        f"{sha256[:12]}\t3\teol-base\tmissed",
        f"{sha256[:12]}\t1\tbase_os\tubuntu22.04",
    ]
    (tmp_path / "labels-develop.tsv").write_text("\n".join([*rows, f"{sha256[:12]}\t0\tunpinned-torch\ttrue none"]))
    figures = corpus.measure("develop", cache, True)
    assert figures.given["warning", "true"] == 1
    assert (figures.found, figures.wanted, figures.right["base_os"]) == (1, 2, 1)
    assert any(row.endswith("Dockerfile:3 missed, eol-base") for row in figures.rows)
    assert not any("unpinned-torch" in row and "unlabelled" in row for row in figures.rows)


def test_fixes_mend_what_they_are_for(
    corpus: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fixes of a half are made and judged again; a fix that leaves its finding, or makes one, is counted."""
    sha256 = hashlib.sha256(DOCKERFILE.encode()).hexdigest()
    table(tmp_path, mirror(tmp_path, "a+b"), sha256)
    monkeypatch.setattr(corpus, "TABLE", tmp_path)
    cache = tmp_path / "cache"
    assert corpus.fetch_all(cache, tmp_path, "develop") == 0
    capsys.readouterr()
    assert corpus.mend("develop", cache, True) == 0
    assert capsys.readouterr().out == "develop: 1 Dockerfiles, 1 with fixes, 1 findings gone, 0 not mended\n"

    monkeypatch.setattr(corpus, "fixed", lambda one: (one.text + "RUN pip install torch>=2.0\n", 1))
    assert corpus.mend("develop", cache, True) == 1
    shown = capsys.readouterr().out
    assert "left {'pip-cache-left': 2" in shown
    assert "'unquoted-specifier': 1" in shown
    assert shown.endswith("0 findings gone, 1 not mended\n")


def test_wrong_hash_is_kept_out(corpus: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Dockerfile that is not the table's leaves nothing in the cache."""
    table(tmp_path, mirror(tmp_path, "a+b"), "0" * 64)
    monkeypatch.setattr(corpus, "TABLE", tmp_path)
    assert corpus.fetch_all(tmp_path / "cache", tmp_path, "both") == 1
    assert not list((tmp_path / "cache" / "develop").iterdir())


def test_aside_shows_totals_only(corpus: ModuleType) -> None:
    """The rows of the half set aside are shown where they are asked for."""
    figures = corpus.Figures(files=1, rows=["a row"])
    assert "a row" not in list(corpus.shown_of("aside", figures, False))
    assert "a row" in list(corpus.shown_of("aside", figures, True))
