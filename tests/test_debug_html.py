"""The page of `envkit debug`: whole, without script, deaf to what the command said, and bounded whatever it did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import debugged as made
import pytest
from test_report_html import Page

import envkit
from envkit.debug import as_html
from envkit.debug.records import DebugReport, PythonFrame, Step, Verdict

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></table></pre></details>",
    "\x1b[2J\u202e{{ 7 * 7 }}",
)


def shown(report: DebugReport) -> Page:
    return Page(as_html.render(report))


def bars(text: str) -> dict[str, tuple[str, float, float]]:
    """The drawn stages: role, where each begins and how long it is, in percent."""
    found = re.findall(
        r'<b>([\w-]+)</b><div class="cells"><i class="(\w+)" style="left:([\d.]+)%;width:([\d.]+)%"', text
    )
    return {name: (role, float(left), float(width)) for name, role, left, width in found}


@pytest.mark.parametrize("report", [made.crash(), made.hang()], ids=["crash", "hang"])
def test_nothing_is_run_or_loaded(report: DebugReport) -> None:
    text = as_html.render(report)
    read = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "form", "a"} & set(read.tags)
    assert not {"src", "href"} & {name for name, _ in read.attributes}
    assert not any(name.startswith("on") for name, _ in read.attributes)
    assert not re.search(r"url\(|@import|https?:", text)


def test_the_page_is_well_formed_without_any_part() -> None:
    bare = replace(
        made.crash(), verdict=Verdict.CLEAN, cause="", category="", cause_class="", fault=None, python=(), children=(),
        explanation=None, fix="", next=(), image="", steps=(), files=(), versions={},
    )  # fmt: skip
    read = shown(bare)
    assert "CLEAN: the command succeeded" in read.text and "What to do" not in read.text and "Kernel" not in read.text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_the_command_says_stays_text(hostile: str) -> None:
    one, two = made.crash(), made.hang()
    frame = PythonFrame(hostile, 1, hostile)
    assert one.fault and one.explanation
    mark = one.explanation.evidence[0]
    mark = replace(mark, line=replace(mark.line, file=hostile, raw=hostile, text=hostile))
    bad = replace(
        two,
        command=(hostile,),
        image=hostile,
        cause=hostile,
        fault=replace(one.fault, kernel=hostile, kind=hostile, place=replace(one.fault.place, file=hostile)),
        python=(frame,),
        children=tuple(replace(each, stack=(frame,), waiter=(frame,)) for each in one.children),
        explanation=replace(one.explanation, because=hostile, evidence=(mark,)),
        steps=(
            Step("as-is", True, hostile, 1.0, 1, "exited", hostile),
            Step("memcheck", False, hostile, missing=hostile, get=hostile),
        ),
        hang=tuple(
            replace(each, command=hostile, waits_in=hostile, native=hostile, threads=((frame,), (frame,)))
            for each in two.hang
        ),
        ranks=tuple(replace(row, operation=hostile, raised=hostile, missing=(hostile,)) for row in two.ranks),
        fix=hostile,
        next=(hostile,),
        folder=hostile,
        files=(hostile,),
        versions={hostile: hostile},
    )
    read = shown(bad)
    assert not {"script", "img"} & set(read.tags)
    assert not any(name.startswith("on") for name, _ in read.attributes)
    escaped = hostile.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert read.text.count(escaped) >= 24
    assert "\x1b" not in read.text and "\u202e" not in read.text and " 49 " not in read.text


def test_the_cause_stands_first_with_its_kernel_and_the_line_that_launched_it() -> None:
    text = as_html.render(made.crash())
    read = Page(text)
    assert re.search(r'<body>\s*<h1 class="known">FOUND: \w+', text)
    assert read.text.index(made.crash().cause) < read.text.index("turn(float4 *)")
    for said in (
        "gpu-kernel-bug",
        "python tune.py --steps 3",
        "my/train:1",
        "/srv/train/turn.cu:12, in load",
        "(32, 0, 0) of block (7, 0, 0)",
        "read of 16 bytes at 0x7f0000000204",
        "0x7f0000000000 of 16,388 bytes; the address is inside it",
        "(200 times)",
        "/srv/train/tune.py:18 launch",
        "process 42: died of SIGABRT (-6)",
        "tune.py:24 candidate",
        "process 43: exited with status 7",
        "a multiple of 16",
        "compute-sanitizer --tool memcheck CMD",
        "envkit explain misaligned-address",
        "as-is/output.txt:7",
        "almost certain, 0.95",
        "apt-get install cuda-gdb",
        "torch 2.6.0",
    ):
        assert said in read.text, said


def test_stages_are_drawn_one_after_the_other_and_the_telling_one_stands_out() -> None:
    drawn = bars(as_html.render(made.crash()))
    assert drawn == {
        "as-is": ("diagnostic", 0.0, 20.0),
        "blocking": ("cascade", 20.0, 25.0),
        "memcheck": ("root", 45.0, 55.0),
    }


def test_a_core_dump_or_a_hang_is_the_stage_that_told() -> None:
    crash = made.crash()
    assert crash.fault
    steps = (*crash.steps[:-1], Step("core-dump", True, "the driver writes it", 1.0, 1, "exited", "kernel `turn`"))
    core = replace(crash, fault=replace(crash.fault, tool="core"), steps=steps)
    assert [name for name, (role, _, _) in bars(as_html.render(core)).items() if role == "root"] == ["core-dump"]
    assert bars(as_html.render(made.hang()))["as-is"][0] == "root"


def test_a_stage_after_the_one_that_told_takes_nothing_from_it() -> None:
    crash = made.crash()
    later = Step("core-dump", True, "the driver writes it", 1.0, 1, "exited", "no core was written")
    drawn = bars(as_html.render(replace(crash, steps=(*crash.steps[:-1], later))))
    assert (drawn["memcheck"][0], drawn["core-dump"][0]) == ("root", "diagnostic")


@pytest.mark.parametrize(("verdict", "look"), [(Verdict.CLEAN, "clean"), (Verdict.UNDECIDED, "open")])
def test_what_is_no_finding_does_not_look_like_one(verdict: Verdict, look: str) -> None:
    report = replace(made.crash(), verdict=verdict, fault=None, children=(), explanation=None)
    text = as_html.render(report)
    assert f'<h1 class="{look}">{verdict.value.upper()}' in text and '<h1 class="known">' not in text
    assert "root" not in {role for role, _, _ in bars(text).values()}


def test_ranks_stand_side_by_side_and_those_that_say_the_same_together() -> None:
    text = as_html.render(made.hang(8))
    read = Page(text)
    odd = re.findall(r'<tr class="silent"><td>([^<]*)</td>', text)
    assert odd == ["1"] and "<td>0, 2-7</td>" in text
    assert re.findall(r"<h3>([^<]*)</h3>", text) == ["ranks 0, 2-7", "rank 1"]
    assert "2, without branch.weight, branch.bias" in read.text
    assert read.text.count("1 more thread") == 2 and "data.py:5 load" in read.text
    assert '<span class="own" title="/srv/train/train.py:78">' in text
    assert '<span class="library" title="/venv/lib/python3.12/site-packages/torch/autograd/graph.py:823">' in text


def test_a_rank_that_is_elsewhere_while_the_others_wait_stands_out() -> None:
    one = made.hang(4)
    rows = tuple(replace(row, state="elsewhere" if row.rank == 2 else "waits", missing=()) for row in one.ranks)
    text = as_html.render(replace(one, ranks=rows))
    assert re.findall(r'<tr class="silent"><td>([^<]*)</td>', text) == ["2"]


def test_processes_without_ranks_are_shown_each_with_its_native_stack() -> None:
    one = made.hang(3)
    bare = tuple(replace(each, rank="", native="#0 read ()") for each in one.hang[:2])
    none = replace(one.hang[2], rank="", threads=())
    read = shown(replace(one, ranks=(), hang=(*bare, none)))
    assert all(f"process {pid}" in read.text for pid in (100, 101, 102))
    assert read.text.count("#0 read ()") == 2 and "it has no stack of Python" in read.text


@pytest.mark.slow  # it works up to its bound
def test_the_size_is_bounded_and_what_is_left_out_is_counted() -> None:
    one = made.hang(600)
    deep = tuple(PythonFrame(f"/srv/{number}.py", number, "again") for number in range(1000))
    rows = tuple(replace(row, main=(*deep, made.here("x.py", row.rank, "f")), seq=row.rank) for row in one.ranks)
    report = replace(
        one, ranks=rows, hang=(), python=deep, children=made.crash().children * 200, cause="y" * 100_000,
        files=tuple(f"as-is/{number}" for number in range(500)),
    )  # fmt: skip
    text = as_html.render(report)
    assert len(text) < 1_500_000
    assert "and 536 more" in text  # rows
    assert "and 552 more" in text  # stacks
    assert "and 300 more" in text  # files
    assert '<tr class="silent"><td>1</td>' in text


def test_credentials_are_not_shown() -> None:
    secret = "hf_" + "a" * 34
    bad = replace(
        made.crash(),
        command=("python", "train.py", "--api-key", "sesame"),
        cause=f"token={secret}",
        folder=f"/{secret}",
    )
    text = as_html.render(bad)
    assert secret not in text and "sesame" not in text and "[hidden]" in text


def test_the_same_report_gives_the_same_page() -> None:
    assert as_html.render(made.hang(16)) == as_html.render(made.hang(16))


def test_what_was_recorded_on_a_gpu_can_be_shown() -> None:
    for name, case in made.recorded()["faults"].items():
        report = made.report(case["report"])
        read = shown(report)
        assert report.fault and report.cause in read.text and report.fault.kernel in read.text, name


def test_the_verb_prints_the_page_that_it_writes(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(envkit.__file__).parents[1])}
    words = ["debug", "--format", "html", "--out", "found", "--", sys.executable, "-c", "1/0"]
    done = subprocess.run(
        [sys.executable, "-m", "envkit", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environ,
        cwd=tmp_path,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == (tmp_path / "found" / "report.html").read_text()
    read = Page(done.stdout)
    assert "FOUND" in read.text and "ZeroDivisionError" in read.text
    assert "report.html" in json.loads((tmp_path / "found" / "report.json").read_text())["files"]
