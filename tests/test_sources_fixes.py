"""--fix: what edits do to a text, and that nothing else changes, by BuildKit's own parser."""

from __future__ import annotations

import time
from pathlib import Path

import dockerfile as buildkit
import pytest
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st

from envkit.model import Edit, Finding, Outcome, Result, Span
from envkit.static import JudgedFile
from envkit.static.fixes import apply, diff, fixed

ROOT = Path(__file__).parent.parent


def place(text: str, words: str, path: str = "Dockerfile") -> Span:
    """Where the words stand."""
    at = text.index(words)
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return Span(path, line, column, line, column + len(words))


def judged(text: str, *edits: tuple[Edit, ...], path: str = "Dockerfile", kind: str = "dockerfile") -> JudgedFile:
    findings = tuple(Finding("x", edits=each) for each in edits)
    result = Result("a-check", Outcome.FAIL, findings) if findings else Result("a-check", Outcome.PASS)
    return JudgedFile(path, kind, text, (result,))


def swap(text: str, words: str, new: str) -> tuple[Edit, ...]:
    return (Edit(place(text, words), new),)


def after(text: str, words: str, new: str) -> tuple[Edit, ...]:
    span = place(text, words)
    return (Edit(Span(span.path, span.line, span.end_column, span.line, span.end_column), new),)


def test_edits_are_made_whatever_their_order() -> None:
    text = "FROM a:1\nRUN pip install torch numpy\n"
    found = fixed(judged(text, after(text, "install", " --no-cache-dir"), swap(text, "a:1", "b:2")))
    assert found == ("FROM b:2\nRUN pip install --no-cache-dir torch numpy\n", 2)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_stay(end: str, mark: str) -> None:
    text = f"{mark}FROM a:1{end}RUN pip install torch{end}"
    said, count = fixed(judged(text, after(text, "install", " --no-cache-dir")))
    assert (said, count) == (f"{mark}FROM a:1{end}RUN pip install --no-cache-dir torch{end}", 1)


def test_only_a_newline_ends_a_line() -> None:
    text = "FROM a:1\n# form\x0cfeed \x85 \u2028 here\nRUN pip install torch\n"
    assert fixed(judged(text, after(text, "install", " -q")))[0].endswith("RUN pip install -q torch\n")


def test_the_same_edit_of_two_findings_is_made_once() -> None:
    text = "FROM a:1\nRUN pip install torch\n"
    edit = after(text, "install", " -q")
    assert fixed(judged(text, edit, edit)) == ("FROM a:1\nRUN pip install -q torch\n", 2)


def test_of_two_that_want_the_same_words_the_first_wins() -> None:
    text = "FROM a:1\nRUN pip install torch\n"
    said, count = fixed(judged(text, swap(text, "torch", "jax"), swap(text, "install torch", "list")))
    assert (said, count) == ("FROM a:1\nRUN pip list\n", 1)


def test_edits_of_a_finding_are_made_all_or_none() -> None:
    text = "FROM a:1\nRUN pip install torch numpy\n"
    both = (*swap(text, "pip", "uv pip"), *swap(text, "numpy", "scipy"))
    said, count = fixed(judged(text, both, swap(text, "RUN pip", "RUN pipx")))
    assert (said, count) == ("FROM a:1\nRUN pipx install torch numpy\n", 1)


def test_an_edit_in_another_file_is_left_to_that_file() -> None:
    text = "FROM a:1\n"
    there = (Edit(Span("requirements.txt", 1, 1, 1, 6), "x"),)
    assert fixed(judged(text, there)) == (text, 0)


def test_a_fix_that_would_change_another_instruction_is_not_made() -> None:
    """A backslash at the end of a line would swallow the next one."""
    text = "FROM a:1\nRUN true\nRUN false\n"
    assert fixed(judged(text, after(text, "RUN true", " \\"))) == (text, 0)
    assert fixed(judged(text, swap(text, "true", "cat <<EOF"))) == (text, 0)


def test_a_file_that_is_no_dockerfile_is_mended_too() -> None:
    text = "torch>=2\n"
    made = judged(
        text, (Edit(Span("requirements.txt", 1, 6, 1, 8), "=="),), path="requirements.txt", kind="requirements"
    )
    assert fixed(made) == ("torch==2\n", 1)


def test_further_edits_come_last() -> None:
    text = "FROM a:1\nRUN pip install torch\n"
    pin = Edit(Span("Dockerfile", 1, 9, 1, 9), "@sha256:0")
    assert fixed(judged(text), (pin,)) == ("FROM a:1@sha256:0\nRUN pip install torch\n", 1)
    assert fixed(judged(text, swap(text, "a:1", "b:2")), (pin,))[0].startswith("FROM b:2@sha256:0\n")


def test_a_diff_is_what_patch_reads(tmp_path: Path) -> None:
    text = "FROM a:1\r\nRUN x\x0cy\r\nRUN pip install torch"
    said, _ = fixed(judged(text, after(text, "install", " -q")))
    assert diff(judged(text), said) == (
        "--- a/Dockerfile\n+++ b/Dockerfile\n@@ -1,3 +1,3 @@\n FROM a:1\r\n RUN x\x0cy\r\n"
        "-RUN pip install torch\n\\ No newline at end of file\n"
        "+RUN pip install -q torch\n\\ No newline at end of file\n"
    )


@given(st.text(alphabet="ab\n\r\x0c\u2028é", max_size=40), st.data())
def test_apply_is_slicing(text: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))

    def at(offset: int) -> tuple[int, int]:
        return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1

    span = Span("x", *at(begin), *at(end))
    assert apply(text, [Edit(span, "NEW")]) == text[:begin] + "NEW" + text[end:]


OWN = """\
# syntax=docker/dockerfile:1
ARG TAG=24.04
FROM ubuntu:${TAG} AS base
SHELL ["/bin/bash", "-c"]
RUN apt-get update \\
    # a comment inside
    && apt-get install -y \\

       python3-pip
RUN <<EOF
pip install torch
echo "a # b"
EOF
COPY <<-"A" /a
\tpip install torch
A
FROM base
RUN --mount=type=cache,target=/root/.cache pip install torch>=2 numpy
CMD ["python3", "-c", "print('x')"]
"""
FILES = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted(ROOT.glob("images/*/Dockerfile"))}
FILES["own"] = OWN


@pytest.mark.slow  # a hundred edits of every file
@examples(60)
@given(name=st.sampled_from(sorted(FILES)), data=st.data())
def test_a_mended_file_builds_to_the_same_instructions_elsewhere(name: str, data: st.DataObject) -> None:
    """Any edit at all: either BuildKit reads every instruction without an edit as before, or nothing is changed."""
    text = FILES[name]
    lines = text.split("\n")
    number = data.draw(st.integers(1, len(lines)))
    begin = data.draw(st.integers(1, len(lines[number - 1]) + 1))
    end = data.draw(st.integers(begin, len(lines[number - 1]) + 1))
    new = data.draw(
        st.sampled_from(["", " --no-cache-dir", "@sha256:0", "\\", "<<E", "\n", "#", '"torch>=2"', "\nRUN x"])
    )
    said, count = fixed(judged(text, (Edit(Span("Dockerfile", number, begin, number, end), new),)))
    if not count:
        assert said == text
        return
    before, now = buildkit.parse_string(text), buildkit.parse_string(said)
    assert [each.cmd for each in before] == [each.cmd for each in now]
    for one, two in zip(before, now, strict=True):
        if not one.start_line <= number <= one.end_line:
            assert (one.value, one.flags, one.json) == (two.value, two.flags, two.json)


def test_thousands_of_edits_are_made_in_a_moment() -> None:
    text = "FROM a\n" + "RUN pip install p\n" * 4_000
    edits = [(Edit(Span("Dockerfile", line, 16, line, 16), " -q"),) for line in range(2, 4_002)]
    before = time.process_time()
    assert fixed(judged(text, *edits)) == ("FROM a\n" + "RUN pip install -q p\n" * 4_000, 4_000)
    assert time.process_time() - before < 5  # 0.3 s when written, a minute where each edit looks at each other one
