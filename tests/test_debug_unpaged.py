"""The answer of `envkit debug` where its page cannot be made or kept: it is given all the same, with one sentence."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import debugged
import pytest

import envkit
from envkit import debug
from envkit.debug import measured_text
from envkit.debug.measures import Judged, Measured
from envkit.debug.records import Verdict
from envkit.errors import Undecided

PACKAGE = Path(envkit.__file__).parent
TEMPLATES = PACKAGE.with_name("templates")
FAILS = ["sh", "-c", "echo 'RuntimeError: CUDA error: out of memory' >&2; exit 3"]
BROKEN = {
    "syntax": "{% for %}",
    "name": "{{ nothing_of_this_name }}",
    "value": "{{ 1 / 0 }}",
}
WRONG = {"missing": "TemplateNotFound", "syntax": "TemplateSyntaxError", "name": "UndefinedError"}
WRONG["value"] = "ZeroDivisionError"


def shipped(folder: Path, kind: str) -> Path:
    """A place to import envkit from whose templates are as ``kind`` says: missing, whole, or one of BROKEN."""
    folder.mkdir()
    (folder / "envkit").symlink_to(PACKAGE)
    if kind != "missing":
        shutil.copytree(TEMPLATES, folder / "templates")
    if text := BROKEN.get(kind):
        for name in ("debugged.html.j2", "measured.html.j2"):
            (folder / "templates" / name).write_text(text)
    return folder


def ran(folder: Path, kind: str, *options: str, most: int | None = None) -> subprocess.CompletedProcess[str]:
    """`envkit debug` with such templates, and with files of ``most`` bytes at most."""
    place = folder / "site"
    where = place if place.is_dir() else shipped(place, kind)
    limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))) if most else None
    words = [sys.executable, "-m", "envkit", "debug", *options, "--", *FAILS]
    environ = {**os.environ, "PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, preexec_fn=limit)


@pytest.mark.parametrize("kind", ["whole", "missing", *BROKEN])
def test_a_page_that_cannot_be_rendered_takes_nothing_from_the_answer(tmp_path: Path, kind: str) -> None:
    done = ran(tmp_path, kind, "--format", "json", "--out", "kept")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["exit"]) == (1, "found", 3) and "Traceback" not in done.stderr
    assert json.loads((tmp_path / "kept" / "report.json").read_text()) == report
    there = (tmp_path / "kept" / "report.html").exists()
    assert there is (kind == "whole") is ("report.html" in report["files"]) and "repro.sh" in report["files"]
    said = [line for line in report["next"] if "report.html" in line]
    assert len(said) == (kind != "whole")
    if said:
        assert WRONG[kind] in said[0] and str(tmp_path / "site" / "templates") in said[0]
        assert said[0].endswith("install envkit again (pip install --force-reinstall envkit)")


@pytest.mark.parametrize("kind", ["whole", "missing"])
def test_whoever_asked_for_the_page_gets_the_verdict_without_it(tmp_path: Path, kind: str) -> None:
    done = ran(tmp_path, kind, "--format", "html", "--out", "kept")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stdout.startswith("<!DOCTYPE html>" if kind == "whole" else "") and bool(done.stdout) is (
        kind == "whole"
    )
    assert ("\nFOUND: " in done.stderr and "the page was not written" in done.stderr) is (kind == "missing")


def test_a_page_for_which_there_is_no_room_is_told_and_the_rest_is_there(tmp_path: Path) -> None:
    whole = ran(tmp_path, "whole", "--out", "whole")
    sizes = {name: (tmp_path / "whole" / name).stat().st_size for name in ("report.json", "report.html")}
    assert sizes["report.json"] < sizes["report.html"]
    small = ran(tmp_path, "whole", "--out", "small", most=sum(sizes.values()) // 2)
    assert (small.returncode, small.stdout.splitlines()[0]) == (whole.returncode, whole.stdout.splitlines()[0])
    assert "report.html cannot be written: File too large; raise the limit (ulimit -f)" in small.stdout
    report = json.loads((tmp_path / "small" / "report.json").read_text())
    assert report["verdict"] == "found" and "report.html" not in report["files"]
    assert (tmp_path / "small" / "repro.sh").exists() and not (tmp_path / "small" / "report.html").exists()


def test_where_not_even_the_document_can_be_kept_the_message_holds_the_answer(tmp_path: Path) -> None:
    with pytest.raises(
        Undecided, match=r"report.json cannot be written: .*; the verdict is found: kernel `turn` reads"
    ):
        debug.kept(tmp_path / "gone", debugged.crash(), {})
    made = debug.kept(tmp_path, debugged.crash(), {"repro.sh": "#!/bin/sh\n", "uv.lock": ""})
    assert made.files == ("report.html", "report.json", "repro.sh", "uv.lock")
    assert made == replace(debugged.crash(), files=made.files) and (tmp_path / "uv.lock").read_text() == ""


def measured() -> Measured:
    """A made-up report of `--slow` that found nothing."""
    more: dict[str, Any] = {"exit": 0, "ended": "exited", "folder": "/x", "elapsed_s": 1.0, "files": ("slow/a.json",)}
    return Measured(
        question="slow", command=("x",), image="", verdict=Verdict.CLEAN, cause="", fix="", judged=Judged(), **more
    )


def test_memory_and_time_lose_nothing_either(tmp_path: Path) -> None:
    with pytest.raises(Undecided, match=r"report.json cannot be written: .*; the verdict is clean"):
        measured_text.written(measured(), tmp_path / "gone")
    (tmp_path / "report.html").mkdir()  # where no file can be put
    made = measured_text.written(measured(), tmp_path)
    assert made.verdict is Verdict.CLEAN and made.files == ("report.json", "slow/a.json")
    assert [note.startswith("report.html was not written: ") for note in made.judged.notes] == [True]
    assert measured_text.text(made).endswith("files: /x (report.json shows it)\n")
    assert (tmp_path / "report.json").read_text() == measured_text.document(made)
    (tmp_path / "report.html").rmdir()
    made = measured_text.written(measured(), tmp_path)
    assert not made.judged.notes and measured_text.text(made).endswith("files: /x (report.html shows it)\n")
    assert json.loads((tmp_path / "report.json").read_text())["files"] == ["report.html", "report.json", "slow/a.json"]
