"""The four stories: their pages show what was recorded and commands that exist, and the tuner's is played through."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import debugged
import forked
import pytest
from test_debug import SANITIZER

from envkit import cli, debug, facts
from envkit.debug import job, render
from envkit.debug.records import Verdict

ROOT = Path(__file__).parent.parent
# The page of logs is another kind: test_printed.py holds what it shows.
PAGES = sorted(path for path in (ROOT / "docs" / "stories").glob("*.md") if path.stem != "logs")
NAMES = ("bounds", "package", "tuner", "unfrozen")


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of envkit that a page names, in a block or within a line."""
    for found in re.finditer(r"^    (envkit .+)$|`(envkit [^`]+)`", text, re.M):
        yield shlex.split((found[1] or found[2]).partition("  #")[0])


def options(verb: str) -> set[str]:
    """The options that ``--help`` of a verb lists."""
    verbs = cli.parser("").commands
    assert verb in verbs, verb
    return {name for each in verbs[verb].params for name in (*each.opts, *each.secondary_opts)}


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each block that shows a record: which, and what the page says it printed."""
    for found in re.finditer(r"^<!-- recorded: (.+) -->\n\n((?:    .*\n|\n(?=    ))+)", text, re.M):
        yield found[1], found[2]


def printed(name: str) -> str:
    """What the report of a record reads like, its blanks and line ends as one blank."""
    part, _, case = name.partition("/")
    return " ".join(render.text(debugged.report(debugged.recorded()[part][case]["report"])).split())


def test_there_are_four() -> None:
    assert [path.stem for path in PAGES] == list(NAMES)
    guide = (ROOT / "docs" / "debug.md").read_text()
    assert all(f"](stories/{name}.md)" in guide for name in NAMES)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_command_of_a_page_exists_with_its_options_and_programs(path: Path) -> None:
    named = list(commands(path.read_text()))
    assert [words[1] for words in named].count("debug") >= 1
    for words in named:
        at = words.index("--") if "--" in words else len(words)
        given = {word.partition("=")[0] for word in words[2:at] if word.startswith("-")}
        assert given <= options(words[1]), (path.name, words)
        for program in re.findall(r"tests/\S+\.py", " ".join(words[at:])):
            assert (ROOT / program).is_file(), program
        for module, factory in re.findall(r"--precision (\w+):(\w+)", " ".join(words)):
            assert f"def {factory}(" in (ROOT / "tests" / "debug" / f"{module}.py").read_text()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_what_a_page_shows_of_a_record_is_what_it_printed(path: Path) -> None:
    shown = list(blocks(path.read_text()))
    assert shown or path.stem == "unfrozen"
    for name, block in shown:
        said, at = printed(name), 0
        for piece in re.split(r"(?:^|\s)\.\.\.(?:\s|$)", block):
            words = " ".join(piece.split())
            found = said.find(words, at)
            assert found >= 0, (name, words)
            at = found + len(words)


def test_lines_that_a_page_names_are_there() -> None:
    told = {
        "hang_ranks.py": {
            78: "loss.backward()",
            44: "loss.detach().cpu()",
            49: "dist.all_reduce(",
            67: "dist.new_group(",
        },
        "precision_wkv.py": {35: "above = keep * above"},
        "package.py": {26: "aoti_load_package(path)", 28: "torch.cuda.synchronize()"},
    }
    text = "".join(path.read_text() for path in PAGES)
    for file, lines in told.items():
        source = (ROOT / "tests" / "debug" / file).read_text().splitlines()
        for number, words in lines.items():
            assert words in source[number - 1], (file, number)
            assert f"{file}:{number}" in text or f'{file}", line {number}' in text


def test_the_hang_was_the_same_on_two_gpus() -> None:
    record = json.loads(debugged.RECORD.with_name("h200x2-torch-2.11-cu130-debug-ranks.json").read_text())
    (case,) = [case for case in record["cases"] if case["case"] == "frozen-apart"]
    page = " ".join((ROOT / "docs" / "stories" / "unfrozen.md").read_text().split())
    first, second, third = case["seconds"]
    assert f"{first}, {second} and {third} seconds in three runs" in page
    sentence, _, places = case["cause"].partition("; rank 0 is at ")
    assert sentence in page and "hang_ranks.py:44" in places


def test_links_of_a_page_lead_somewhere() -> None:
    for path in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert (path.parent / link).is_file(), (path.name, link)


# Its children map a file of the driver's name, as processes that use CUDA do; the second dies as a C++ runtime ends it.
TUNER = """
import mmap, multiprocessing, os, sys, time
def candidate(number):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "libcuda.so.1"), "w+b") as file:
        file.truncate(4096)
        held = mmap.mmap(file.fileno(), 4096)
    time.sleep(0.6)
    if number == {bad}:
        sys.stderr.write("terminate called after throwing an instance of 'c10::Error'\\n"
                         "  what():  CUDA error: misaligned address\\n")
        sys.stderr.flush()
        os.abort()
def main():
    fork = multiprocessing.get_context("fork")
    for number in range(2):
        child = fork.Process(target=candidate, args=(number,))
        child.start()
        child.join()
        print(f"candidate {{number}}: {{child.exitcode}}", flush=True)
main()
"""


def tuner(folder: Path, bad: int) -> list[str]:
    """The command of a tuner of two candidates, of which the one numbered ``bad`` dies."""
    path = folder / "tune.py"
    path.write_text(TUNER.format(bad=bad))
    return [sys.executable, str(path)]


def test_explain_reads_the_log_of_a_tuner_that_left_with_0(tmp_path: Path) -> None:
    done = subprocess.run(
        tuner(tmp_path, 1), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0 and b"candidate 1: -6" in done.stdout
    log = tmp_path / "tune.log"
    log.write_bytes(done.stdout)
    said = forked.envkit("explain", str(log), "--format", "json")
    assert said.returncode == 1, said.stderr
    told = json.loads(said.stdout)
    assert (told["category"], told["cause_class"]) == ("misaligned-address", "gpu-kernel-bug")
    assert "CUDA error: misaligned address" in told["evidence"][0]["text"]


@pytest.mark.slow  # all stages, twice
@pytest.mark.parametrize("bad", [1, 7], ids=["fault", "clean"])
def test_debug_follows_the_tuner_s_child_to_the_recorded_kernel(
    bad: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes are real, with their fork and their -6; compute-sanitizer's words are those of the H100."""
    case = debugged.recorded()["faults"]["tuner"]
    words = "\n".join(case["logs"]["memcheck/sanitizer.log"])
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "report").write_text(f"{words}\n========= ERROR SUMMARY: 200 errors\n")
    stand_in = SANITIZER.replace("FAULTY", "memcheck" if bad == 1 else "none").replace("REPORT", str(tools / "report"))
    (tools / "compute-sanitizer").write_text(stand_in)
    (tools / "compute-sanitizer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    request = debug.DebugRequest(tuple(tuner(tmp_path, bad)), 100.0, 30.0, 0.0, folder=tmp_path / "found")
    made = debug.run(request, job.LocalMachine(), facts.load(), lambda line: None)
    ran = [step.stage for step in made.steps if step.ran]
    if bad != 1:
        assert (made.verdict, made.children) == (Verdict.CLEAN, ())
        assert ran == ["as-is", "memcheck", "initcheck", "racecheck", "synccheck"]
        return
    assert ran == [step["stage"] for step in case["report"]["steps"] if step["ran"]]
    assert (made.verdict, made.exit) == (Verdict.FOUND, 0)
    helper = case["report"]["cause"] + ", called at /src/tests/debug/tuner.py:"  # which is told since it was recorded
    assert made.cause.startswith(helper) and made.cause.endswith(" in candidate")
    assert (made.category, made.cause_class) == ("misaligned-address", "gpu-kernel-bug")
    (child,) = made.children
    assert child.exit == -6 and child.stack[-1].function == "candidate"
    assert "died of SIGABRT (-6)" in made.steps[0].found and "its parent went on" in made.steps[0].found
