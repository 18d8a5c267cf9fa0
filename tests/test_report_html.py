"""The page of HTML: whole, without script or anything from elsewhere, and deaf to what an image says."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from envkit.model import Finding, Outcome, Report, Result, Severity, Subject
from envkit.report import Bar, Table, render

VOID = {"meta", "input"}


class Page(HTMLParser):
    """Collects tags, attributes and text; a tag that is not closed in its place is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(*results: Result, bars: tuple[Bar, ...] = (), fail_on: Severity = Severity.ERROR) -> str:
    return render(Report(Subject("smoke", "train"), results), "html", fail_on=fail_on, bars=bars)


def test_nothing_is_run_or_loaded() -> None:
    text = page(Result("a", Outcome.PASS), bars=(Bar("x", 1.0, "GB/s", 2.0),))
    read = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(read.tags)
    assert not {"src", "href", "onclick", "onload"} & {name for name, _ in read.attributes}
    assert not re.search(r"url\(|@import|https?:", text)


@pytest.mark.parametrize(
    "hostile",
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</td></table>", "\x1b[2J\u202e{{ 7 * 7 }}"],
)
def test_what_an_image_says_stays_text(hostile: str) -> None:
    finding = Finding(hostile, where=hostile, evidence={hostile: hostile}, fix=hostile)
    results = (Result("a", Outcome.FAIL, (finding,)), Result("b", Outcome.UNKNOWN, reason=hostile))
    report = Report(Subject("smoke", hostile), results)
    read = Page(render(report, "html", bars=(Bar(hostile, 1.0, hostile),)))
    assert "script" not in read.tags and "img" not in read.tags
    assert not any(name.startswith("on") for name, _ in read.attributes)
    shown = hostile.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert read.text.count(shown) >= 8


def test_the_verdict_is_the_exit_codes_and_stands_first() -> None:
    warned = Result("a", Outcome.FAIL, (Finding("slow", Severity.WARNING),))
    assert re.search(r"<body>\s*<h1 class=\"pass\"><b>PASS</b> smoke train</h1>", page(warned))
    assert '<h1 class="fail"><b>FAIL</b>' in page(warned, fail_on=Severity.WARNING)
    assert '<h1 class="undecided"><b>UNDECIDED</b>' in page(Result("a", Outcome.SKIP, reason="no GPU"))
    assert "nothing was judged" in page()


def test_failures_come_first_and_every_check_has_its_line() -> None:
    results = [Result(outcome.value + "-one", outcome) for outcome in Outcome if outcome is not Outcome.FAIL]
    note, error = (
        Result(name, Outcome.FAIL, (Finding("m", level),))
        for name, level in (("n", Severity.NOTE), ("e", Severity.ERROR))
    )
    text = page(*results, note, error)
    names = re.findall(r'<td class="what">\w+</td><td>([\w-]+)', text)
    assert names == ["e", "n", "crashed-one", "unknown-one", "pass-one"]
    assert "<summary>1 skipped: no reason was given</summary>" in text and "skip-one" in text


def test_what_was_skipped_is_folded_by_its_reason() -> None:
    skipped = [Result(f"s{number}", Outcome.SKIP, reason="no GPU") for number in range(3)]
    text = page(Result("a", Outcome.PASS), Result("z", Outcome.SKIP, reason="no torch"), *skipped)
    assert re.findall(r"<summary>(.*?)</summary>", text) == ["3 skipped: no GPU", "1 skipped: no torch"]
    assert re.search(r"<p>s0, s1, s2</p></details>", text) and "<p>z</p></details>" in text


def test_tables_are_those_of_the_console_and_times_are_drawn() -> None:
    tests = Table("smoke tests", ("test", "seconds"), (("slow", "8.0"), ("<quick>", "2.0"), ("none", "-")))
    libraries = Table("what it is", ("", ""), (("digest", "sha256:1"),))
    report = Report(Subject("smoke", "train"), (Result("a", Outcome.PASS),))
    text = render(report, "html", tables=(tests, libraries))
    read = Page(text)
    assert "<th>test</th><th>seconds</th>" in text and "<quick>" in read.text and "sha256:1" in read.text
    assert widths(text)[0] == [100.0, 25.0]
    assert "<th></th><th></th>" not in text


def widths(text: str) -> tuple[list[float], list[float]]:
    return (
        [float(one) for one in re.findall(r"width:([\d.]+)%", text)],
        [float(one) for one in re.findall(r"left:([\d.]+)%", text)],
    )


def test_a_bar_is_to_the_scale_of_its_limits() -> None:
    filled, marks = widths(page(bars=(Bar("half", 50.0, "GB/s", 100.0, 90.0),)))
    assert filled[0] / marks[0] == pytest.approx(0.5, abs=0.001)
    assert marks[1] / marks[0] == pytest.approx(0.9, abs=0.001)
    assert max(filled + marks) < 100.0


def test_a_figure_above_its_limit_stays_inside() -> None:
    filled, marks = widths(page(bars=(Bar("much", 300.0, "GB/s", 100.0),)))
    assert 99.0 > filled[0] > 90.0 > marks[0]


def test_a_figure_without_limits_is_a_number_and_no_bar() -> None:
    text = page(bars=(Bar("launch", 3.4, "us"), Bar("none", 2.0, "GB/s", 0.0)))
    assert "3.4 us" in text
    assert widths(text) == ([], [])
