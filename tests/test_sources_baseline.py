"""Baselines: what is known stays known when lines move and when envkit starts elsewhere, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envkit.errors import UsageError
from envkit.model import Finding, Outcome, Result, Span
from envkit.static import JudgedFile
from envkit.static.baseline import applied, load, write


def judged(text: str, path: str = "Dockerfile", check: str = "a-check") -> JudgedFile:
    """A finding on every line with "torch"."""
    numbers = [n for n, line in enumerate(text.split("\n"), 1) if "torch" in line]
    found = tuple(Finding("unpinned", span=Span(path, n)) for n in numbers)
    return JudgedFile(path, "dockerfile", text, (Result(check, Outcome.FAIL if found else Outcome.PASS, found),))


def left(path: Path, *files: JudgedFile) -> list[int]:
    found = applied(files, path, load(path))
    return [f.span.line for each in found for r in each.results for f in r.findings if f.span]


def test_known_findings_do_not_count_wherever_their_lines_went(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    assert write(path, [judged("FROM a\nRUN pip install torch\n")]) == 1
    moved = judged("FROM a\n# grown\n\n  RUN pip install torch\nRUN pip install torch -U\n")
    assert left(path, moved) == [5]


def test_what_is_known_is_skipped_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    one = judged("RUN pip install torch\n")
    write(path, [one])
    (found,) = applied([one], path, load(path))
    assert [(r.outcome, r.reason) for r in found.results] == [(Outcome.SKIP, "in the baseline")]


def test_the_same_line_twice_counts_twice(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    line = "RUN pip install torch\n"
    write(path, [judged(line)])
    assert left(path, judged(line * 3)) == [2, 3]


def test_another_check_or_file_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    line = "RUN pip install torch\n"
    write(path, [judged(line)])
    assert left(path, judged(line, check="another")) == [1]
    assert left(path, judged(line, path="other/Dockerfile")) == [1]


def test_files_are_named_from_the_baselines_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "RUN pip install torch\n"
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    write(Path("known.json"), [judged(line, "sub/Dockerfile")])
    monkeypatch.chdir(tmp_path / "sub")
    assert left(Path("../known.json"), judged(line, "Dockerfile")) == []
    assert left(Path("../known.json"), judged(line, str(tmp_path / "sub" / "Dockerfile"))) == []


def test_a_baseline_holds_no_text_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    write(path, [judged("ENV TOKEN=hunter2 # torch\n")])
    assert "hunter2" not in path.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"schema": "envkit.baseline/1"}', "cannot be read"),
        ('{"schema": "envkit.baseline/1", "findings": [1]}', "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ('{"schema": "envkit.baseline/9", "findings": []}', "is of the schema 'envkit.baseline/9'"),
        ("\xff", "cannot be read"),
    ],
)
def test_what_is_no_baseline_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "known.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=words) as caught:
        load(path)
    assert "--write-baseline" in caught.value.fix


def test_a_baseline_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load(tmp_path / "none.json")


def test_the_document(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    write(path, [judged("RUN pip install torch\n", str(tmp_path / "a" / "Dockerfile"))])
    document = json.loads(path.read_text())
    assert document["schema"] == "envkit.baseline/1"
    (found,) = document["findings"]
    assert (found["check"], found["path"], len(found["fingerprint"])) == ("a-check", "a/Dockerfile", 64)
