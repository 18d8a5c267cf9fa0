"""The page of an explanation: whole, without script, deaf to what a log says, and bounded whatever was read."""

from __future__ import annotations

import re
from dataclasses import replace

import explained as made
import pytest
from test_report_html import Page

from envkit.explain import as_html
from envkit.explain.as_html import MOST_MARKS
from envkit.logs.records import Explanation, Mark, RankState, Role


def cells(text: str) -> list[tuple[str, bool, float, float]]:
    """Each mark that is drawn: its role, whether it is framed, where it stands, and how wide it is."""
    found = re.findall(r'class="(\w+)( chosen)?" style="left:([\d.]+)%;width:([\d.]+)%"', text)
    return [(role, bool(chosen), float(left), float(width)) for role, chosen, left, width in found]


def test_nothing_is_run_or_loaded() -> None:
    text = as_html.render(made.explanation())
    read = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(read.tags)
    assert not {"src", "onclick", "onload"} & {name for name, _ in read.attributes}
    assert all(value and value.startswith("#m") for name, value in read.attributes if name == "href")
    assert not re.search(r"url\(|@import|https?:", text)


def test_every_link_leads_to_a_row_and_no_row_is_named_twice() -> None:
    read = Page(as_html.render(made.many(8, 3000)))
    anchors = [value for name, value in read.attributes if name == "id"]
    links = {str(value)[1:] for name, value in read.attributes if name == "href"}
    assert links and links <= set(anchors)
    assert len(anchors) == len(set(anchors))


@pytest.mark.parametrize(
    "hostile",
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</td></table></pre>", "\x1b[2J\u202e{{ 7 * 7 }}"],
)
def test_what_a_log_says_stays_text(hostile: str) -> None:
    one = made.explanation()
    bad = replace(made.ROOT, text=hostile, raw=hostile, file=hostile, host=hostile)
    mark = Mark(bad, Role.ROOT, hostile)
    found = replace(
        one,
        because=hostile,
        evidence=(mark,),
        timeline=(mark, *one.timeline),
        next=(hostile,),
        fix=hostile,
        decide_by=hostile,
        ranks=(RankState(0, hostile, 1, 1, hostile, hostile),),
        versions={hostile: hostile},
        files=(replace(one.files[0], name=hostile, cut=hostile),),
    )
    read = Page(as_html.render(found))
    assert not {"script", "img"} & set(read.tags)
    assert not any(name.startswith("on") for name, _ in read.attributes)
    shown = hostile.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert read.text.count(shown) >= 12


def test_the_answer_stands_first_and_the_evidence_is_quoted_as_written() -> None:
    text = as_html.render(made.explanation())
    read = Page(text)
    assert re.search(r'<body>\s*<h1 class="known">a kernel read or wrote', text)
    assert "Cause: gpu-kernel-bug, likely (0.80)" in read.text
    assert '<pre class="root">[x] CUDA error: an illegal memory access was encountered</pre>' in text
    assert "rank2.log:3" in read.text
    for said in ("CUDA_LAUNCH_BLOCKING=1 CMD", "use 64-bit offsets", "xid-31, hardware-fault", "whether it stays"):
        assert said in read.text


def test_a_line_that_came_again_says_how_often() -> None:
    one = made.explanation()
    often = Mark(replace(made.ROOT, text="again", times=3), Role.ROOT, "x")
    once = Mark(replace(made.ROOT, text="alone", times=1), Role.ROOT, "x")
    text = Page(as_html.render(replace(one, timeline=(often, once, *one.timeline)))).text
    assert "again (3 times)" in text and "alone" in text and "(1 times)" not in text


def test_not_knowing_does_not_look_like_an_answer() -> None:
    open_ = replace(made.explanation(), category="insufficient-evidence", cause="unknown-cut-log", confidence=0.35)
    text = as_html.render(open_)
    assert '<h1 class="open">' in text and "Undecided" in text and "a guess" in text
    assert '<h1 class="known">' not in text


def test_marks_stand_in_their_lanes_in_order_and_the_evidence_is_framed() -> None:
    text = as_html.render(made.explanation())
    lanes = re.findall(r'<div class="lane"><b title="([^"]*)">', text)
    assert lanes == ["rank 0", "rank 1", "rank 2", "rank 3", "kernel node1"]
    drawn = cells(text)
    assert len(drawn) == len(made.explanation().timeline)
    assert [(role, chosen) for role, chosen, _, _ in drawn if chosen] == [("root", True), ("diagnostic", True)]
    at = {role: left for role, _, left, _ in drawn}
    assert at["root"] < at["cascade"]
    assert max(left + width for _, _, left, width in drawn) <= 100.0


def test_ranks_that_say_the_same_share_a_row_and_the_silent_one_stands_out() -> None:
    text = as_html.render(made.many(64, 10))
    assert "<td>0-4, 6-63</td>" in text
    assert re.search(r'<tr class="silent"><td>5</td>.*silent', text)


def test_a_line_without_a_time_makes_it_the_order_of_files() -> None:
    one = made.explanation()
    assert "in the order of time, from 2023-11-14 22:13:21 to 2023-11-14 22:13:33" in as_html.render(one)
    timeless = (one.timeline[0], Mark(replace(made.LATE, time_s=None, clock=""), Role.CASCADE, "x"))
    text = as_html.render(replace(one, timeline=timeless))
    assert "in the order of the files" in text and "in the order of time" not in text


@pytest.mark.slow  # it works up to its bound
def test_the_size_is_bounded_and_what_is_left_out_is_counted() -> None:
    found = made.many(64, 30_000)
    text = as_html.render(found)
    assert len(text) < 2_000_000
    drawn = cells(text)
    assert len(drawn) <= 64 * 120
    assert [role for role, chosen, _, _ in drawn if chosen] == ["root"]  # the root is kept though it is the last of all
    assert f"{30_001 - MOST_MARKS} more are not drawn" in text
    assert "the root of it" in Page(text).text


def test_of_very_many_processes_the_lane_with_the_root_is_drawn() -> None:
    found = made.many(500, 5000)
    text = as_html.render(found)
    lanes = re.findall(r'<div class="lane"><b title="([^"]*)">', text)
    assert len(lanes) == 80 and "rank 5" in lanes
    assert "420 more (" in text


def test_credentials_and_endless_lines_are_not_shown() -> None:
    secret = "hf_" + "a" * 34
    long = replace(made.ROOT, raw=f"token={secret} " + "x" * 100_000, text=f"token={secret}")
    found: Explanation = replace(
        made.explanation(), evidence=(Mark(long, Role.ROOT, ""),), timeline=(Mark(long, Role.ROOT, ""),)
    )
    text = as_html.render(found)
    assert secret not in text and "[hidden]" in text
    assert len(text) < 30_000


def test_the_same_explanation_gives_the_same_page() -> None:
    assert as_html.render(made.many(16, 900)) == as_html.render(made.many(16, 900))


def test_lanes_are_ordered_by_rank_then_by_name() -> None:
    lanes = [
        as_html._lane_of(each)
        for each in (
            replace(made.line(1, "x", 10), host="b"), made.line(1, "x", 2), made.KERNEL, made.line(1, "x"),
            replace(made.line(1, "x"), source="slurm"), replace(made.KERNEL, host=""),
        )
    ]  # fmt: skip
    assert lanes == ["rank 10 b", "rank 2", "kernel node1", "job.log", "job.log (slurm)", "kernel"]
    odd = ["rank x", "pod 3"]
    assert sorted([*lanes, *odd], key=as_html._lane_order) == [
        "rank 2", "rank 10 b", "job.log", "job.log (slurm)", "kernel", "kernel node1", "pod 3", "rank x",
    ]  # fmt: skip


def test_a_row_tells_the_time_by_its_clock_and_how_often_a_line_came() -> None:
    one = as_html._row(4, Mark(replace(made.line(2, "text"), times=3), Role.ROOT, "what"))
    assert (one["when"], one["text"], one["anchor"]) == ("2023-11-14 22:13:22", "text (3 times)", "m4")
    boot = replace(made.line(2, "text"), clock="boot", time_s=12.5)
    assert as_html._row(0, Mark(boot, Role.ROOT, "what"))["when"] == "12.500 s after boot"
    none = as_html._row(0, Mark(replace(boot, time_s=None), Role.ROOT, "what"))
    assert (none["when"], none["text"]) == ("", "text")
    assert as_html._wall(1e300) == f"{1e300:.0f} s"


def test_the_clock_is_told_where_every_line_has_one() -> None:
    marks = [Mark(made.line(number, "x"), Role.ROOT, "y") for number in (5, 2, 9)]
    assert "from 2023-11-14 22:13:22 to 2023-11-14 22:13:29" in as_html._clock(marks)
    for other in (replace(made.line(1, "x"), clock="boot"), replace(made.line(1, "x"), time_s=None)):
        assert "not every line bears a time" in as_html._clock([*marks, Mark(other, Role.ROOT, "y")])
    assert "not every line" in as_html._clock([])


def test_of_too_many_lines_the_evidence_then_the_roots_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_html, "_MOST_LISTED", 3)
    roles = (Role.ADVICE, Role.CASCADE, Role.DIAGNOSTIC, Role.ROOT, Role.CASCADE)
    marks = [Mark(made.line(number, "x"), role, "y") for number, role in enumerate(roles)]
    assert as_html._listed(marks, {("job.log", 2)}) == [1, 2, 3]
    assert as_html._listed(marks[:3], set()) == [0, 1, 2]


def test_a_cell_stands_for_its_worst_line_and_counts_the_others() -> None:
    roles = (Role.CASCADE, Role.ROOT, Role.ROOT)
    marks = [Mark(made.line(number, f"text {number}"), role, "y") for number, role in enumerate(roles)]
    cell = as_html._cell(marks, [0, 1, 2], 3, 8, {("job.log", 2)}, {1})
    assert (cell.role, cell.left, cell.width, cell.link, cell.chosen) == ("root", 37.5, 1.0, "#m1", True)
    assert cell.tip == "root job.log:1: text 1 (and 2 more here)"
    alone = as_html._cell(marks, [0], 0, 400, set(), set())
    assert (alone.width, alone.link, alone.chosen, alone.tip) == (0.25, "", False, "cascade job.log:0: text 0")
