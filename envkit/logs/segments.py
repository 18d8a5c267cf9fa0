"""Parts of a log that the frame around them takes out of the account: a test that passed, a recipe whose failure make
ignores, an environment that may fail, and what is shown and not said: a help text, a commit, a difference of files.

A part is known by where it begins and by the verdict on it, so a test's own end decides and no word that it printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from envkit.logs.records import FileSeen, Line

# how a part begins and how its runner tells that it is no failure, both with its name
_NAMED = (
    (r"=== RUN {1,3}(?P<name>\S{1,300})", r"\s{0,16}--- (?:PASS|SKIP): (?P<name>\S{1,300})"),  # go test
    (r"\[ RUN {6}\] (?P<name>\S{1,300})", r"\[(?: {7}OK|  SKIPPED) \] (?P<name>\S{1,300})"),  # googletest
    (r"(?P<name>[\w.-]{1,60}): commands(?:_pre|_post)?\[\d{1,3}\]> ",
     r"\s{0,4}(?P<name>[\w.-]{1,60}): (?:IGNORED FAIL|OK|SKIP)\b"),  # tox
    (r"nox > Running session (?P<name>\S{1,200})",
     r"nox > Session (?P<name>\S{1,200}) (?:was )?(?:successful|skipped)"),
    (r"(?P<name>\S.{0,90}?)\.{3,}(?:\([\w ]{1,40}\))?Failed$", r"(?P<name>\S.{0,90}?)\.{3,}Passed$"),
    # of pre-commit, run again
)  # fmt: skip
# the same of runners that tell the verdict behind what the test printed, without its name
_UNNAMED = (
    (r"test\w{0,100} \([\w.]{1,200}\)(?: .{0,300})? \.\.\. ",
     r"(?:ok|expected failure|skipped [\"'].{0,300})$"),  # unittest
    (r"\S{1,200}\.py::\S{1,300} ", r".{0,400}\b(?:PASSED|XFAIL|SKIPPED|RERUN)(?: .{0,200}|$)"),  # pytest -v -s
)  # fmt: skip
# parts of pytest's report, _pytest/terminal.py: of tests that passed, or that were to fail
_AS_MEANT = re.compile(r"={3,} (?:XFAILURES|XPASSES|PASSES|warnings summary.{0,20}) ={3,}$")
_SUMMED_UP = re.compile(r"={3,} (?:short test summary info|.{0,200} in [\d.]{1,12}s\b|(?:FAILURES|ERRORS) =)")
# a row of its summary of a test that was not run or did as it was to, and why that is so
_MEANT = re.compile(r"(?:SKIPPED|XFAIL|XPASS|PASSED|RERUN) \S|\[XPASS\(strict\)\]")
# a warning of CMake with what is indented below it; and what it says where it goes on to its end
_CMAKE_WARNS = re.compile(r"CMake (?:Deprecation )?Warning\b")
_CONFIGURED = re.compile(r"-- (?:Configuring|Generating) done\b")
# a notebook that was run and shown as Markdown, and what is said where a cell ended the run
_NOTEBOOK = re.compile(r"\[NbConvertApp\] Converting notebook \S{1,300} to markdown")
_CELL_ENDED = re.compile(r"(?:\w{1,40}\.){0,8}(?:CellExecutionError|DeadKernelError|CellTimeoutError)\b")
# CTest, Source/CTest/cmCTestRunTest.cxx: each line of a test bears its number
_CTEST = re.compile(
    r"\s{0,4}\d{1,6}/\d{1,6} Test {1,4}#(?P<name>\d{1,6}): .{1,300}(?: Passed |\*\*\*(?:Skipped|Not Run))"
)
_NUMBERED = re.compile(r"(?:^|Z |\| )(?P<name>\d{1,6}): ")
_NAMES = tuple((re.compile(begin), re.compile(good)) for begin, good in _NAMED)
_BARE = tuple((re.compile(begin), re.compile(good)) for begin, good in _UNNAMED)
_IGNORED = re.compile(r"g?make(?:\[\d{1,3}\])?: \[[^\]\n]{1,300}\] Error \d{1,3} \(ignored\)")
_OF_MAKE = re.compile(r"g?make(?:\[\d{1,3}\])?: (?:\*\*\*|\[|Entering|Leaving)")
_STOPPED = re.compile(r"g?make(?:\[\d{1,3}\])?: \*\*\* ")
_TASK = re.compile(r"(?:TASK|RUNNING HANDLER) \[")
_IGNORING = re.compile(r"\.\.\.ignoring$")  # of Ansible
# of TAP: how many there were to be, the verdict behind each test, and the count of what failed
_PLAN = re.compile(r"(?:\s{0,60}|# )1\.\.(?P<all>\d{1,6})\s*$")
_TAP = re.compile(r"\s{0,60}(?P<bad>not )?ok (?P<number>\d{1,6})\b(?P<done>.{0,300} # (?:TODO|SKIP)\b)?", re.IGNORECASE)
_TAP_COUNTS = re.compile(r"(?:# |\u2139 )(?P<what>pass|fail)(?:ed)? {1,8}(?P<count>\d{1,7})$|All tests successful\.$")
_TODO = re.compile(r"not ok \d{1,6}\b.{0,300} # (?:TODO|SKIP)\b", re.IGNORECASE)  # TAP
_DIAGNOSTIC = re.compile(r"#|\s{2,}")
_USAGE = re.compile(r"(?:usage|Usage|USAGE): ?")
_SECTION = re.compile(
    r"(?:.{0,40} )?(?:options|arguments|commands|subcommands|flags|parameters|environment|examples)\b.{0,60}:$", re.I
)
_COMPLAINT = re.compile(r"(?i).{0,100}\berror\b")
_COMMIT = re.compile(r"commit [0-9a-f]{7,40}\b")
_OF_COMMIT = re.compile(
    r"$|(?:Author|AuthorDate|Commit|CommitDate|Date|Merge): | {4}|[ACDMRTU]\d{0,3}\t| \S.{0,300} \| "
)
_XFAILED = re.compile(r"={3,} XFAILURES ={3,}$")  # pytest --xfail-tb
_OF_XFAILED = re.compile(r"(?!={3,} )")
_DIFF = re.compile(r"diff --git |--- (?:a/|/dev/null)|@@ -\d{1,9}(?:,\d{1,9})? \+\d{1,9}")
_OF_DIFF = re.compile(
    r"[-+ @\\]|index [0-9a-f]|diff --git |(?:new|deleted) file mode|(?:old|new) mode|similarity |rename |Binary files|$"
)
_HEADING = re.compile(
    r"#{1,4} \S|(?:Added|Changed|Deprecated|Removed|Fixed|Fixes|Bug ?fixes|Known issues|Breaking changes):?$"
)
_BULLET = re.compile(r" {0,4}[-*+] \S| {2,6}\S")
# what a runner of GitLab says: the shell of its script ends with the first command that fails
_STEPS = re.compile(r'Executing "step_script"')
_STEP = re.compile(r"\$ \S")
_AFTER_STEPS = re.compile(
    r"Running after_script|Uploading artifacts|Cleaning up project|ERROR: Job failed|Job succeeded"
)
# steps of a workflow: one that failed is followed by others than those of its end only where it may fail
_RUN = re.compile(r"##\[group\]Run (?P<what>.{1,300})")
_STEP_FAILED = re.compile(r"##\[error\]Process completed with exit code \d{1,3}\.")
_AT_END = re.compile(
    r"(?i)upload|artifact|report|\blogs?\b|notif|slack|cache|coverage|codecov|\b(?:cat|tail|ls|df|free|echo|dmesg|rm|curl)\b"
    r"|clean|down\b|stop\b|if:"
)
_IN_VAIN = re.compile(r"##\[error\]")
_JOB_ENDS = re.compile(r"(?:.{0,120}Z )?(?:Post job cleanup\.|Cleaning up orphan processes)")
# git bisect, which runs a test that is to fail again and again: how it begins each time, and what it finds
_BISECTS = re.compile(r"running {1,2}'")
_BISECTED = re.compile(r"[0-9a-f]{7,64} is the first '?\w+'? commit$")
# npm, and what it says where all but what may be missing was installed
_NPM = re.compile(r"> \S{1,200}@\d\S{0,60} \w{1,40}$|npm warn ", re.IGNORECASE)
_NPM_DONE = re.compile(r"(?:added|removed|changed|up to date)\b.{0,120} packages?\b.{0,80} in [\d.]{1,8} ?m?s$")
_NPM_FAILED = re.compile(r"npm (?:error|ERR!) ")
# Ray, of a task that it begins again, and what it puts above the traceback
_RAY_RETRIES = re.compile(r"[1-9]\d{0,5} retries remaining, so the task will be retried")
_OF_RAY = re.compile(r"ray::|so the task will be retried")
_EXCEPTION = re.compile(r"[\w.]{1,100}(?:Error|Exception)\b")
_RETRIES = re.compile(r".{0,40}Retrying \(Retry\(total=\d")  # urllib3, within pip
# what the outermost frame says last of a run that it counts as good, whatever a part of it printed
_GOOD = re.compile(
    r"(?:.{0,120} - Marking task as SUCCESS\b.{0,400}"
    r"|Job succeeded|Finished: SUCCESS|\[?(?:INFO\] )?BUILD SUCCESS(?:FUL)?(?: in .{1,40})?"
    r"|\s{0,4}congratulations :\).{0,40}|&&&& PASSED TensorRT\..{1,400})$"
)
# what a log with such a part holds somewhere: most logs of ranks are passed over by it
_HINTS = (
    "=== ", "1..", "CMake Warning", "[NbConvertApp]", "Step 1/", "STEP 1/", "\u2139 fail 0",
    "[ RUN ", ": commands", "nox > ", " ... ", ".py::", " Test ", "(ignored)", "...ignoring", "ot ok ",
    "sage:", "SAGE:", "commit ", "diff --git", "--- a/", "--- /dev/null", "@@ -", "# ", "step_script", "Job succeeded",
    "Fix", "Known", "Changed", "Breaking", " DONE", "Successfully ", "successfully rolled",
    "##[group]Run", " commit\n", "...Failed", " package", "be retried", "Retry(total=",
    "Finished: SUCCESS", "##[error]", "BUILD SUCCESS", "Marking task as SUCCESS", "congratulations :)", "&&&& PASSED",
)  # fmt: skip
# a step of a build, its end, and the end of the build: a step that was done failed nothing that counts
# (behind what a collector put there)
_BUILD_STEP = re.compile(r"(?:.{1,80}[Z|F\]] {1,2})?#(?P<name>\d{1,4}) \d{1,6}\.\d{1,3} ")
_BUILD_DONE = re.compile(r"(?:.{1,80}[Z|F\]] {1,2})?#(?P<name>\d{1,4}) DONE\b")
_BUILD_ERROR = re.compile(r"(?:.{1,80}[Z|F\]] {1,2})?#(?P<name>\d{1,4}) (?:ERROR|CANCELED)\b")
_BUILT = re.compile(
    r"Successfully (?:built [0-9a-f]{8,64}|tagged \S{1,200})$|deployment \"\S{1,200}\" successfully rolled out$"
)
_STEP_BEGINS = re.compile(r"S(?:tep|TEP) (?P<number>\d{1,4})/\d{1,4} ?: ")
_BUILD_BEGINS = re.compile(r"S(?:tep|TEP) \d{1,4}/\d{1,4} ?: |Sending build context|Waiting for deployment ")
_INSTALLED = re.compile(r"Successfully installed (?P<names>.+)")  # of pip, with each package's version behind a hyphen
_NOT_BUILT = re.compile(
    r"\s{0,8}(?:ERROR: )?(?:Failed to build|Failed building wheel for|Could not build wheels for) "
    r"(?P<name>[\w.]+(?:-[\w.]+)*)"
)
_LAST = 6  # lines in which it stands
_BEFORE = 3  # lines that an ignored recipe takes back where another one stopped make


def silent(seen: FileSeen, told: Iterable[Line] = ()) -> set[int]:
    """The numbers of the lines that tell of no failure, whatever they say; ``told`` are lines of its that a signature
    knows, wherever they stand."""
    whole = "\n".join([line.body for part in (seen.head, seen.tail) for line in part])
    if not any(hint in whole for hint in _HINTS):
        return set()
    parts = [{line.number: line for line in part} for part in (seen.head, seen.tail)]
    lines = dict(sorted((parts[0] | parts[1]).items()))
    if any(_GOOD.match(line.text) for line in seen.tail[-_LAST:]):
        return set(range(1, seen.lines + 1))
    found = {number for begin, end in _judged(lines) for number in range(begin, end + 1)}
    known = dict(sorted((lines | {line.number: line for line in told}).items()))
    known |= {line.number: line for line in (*seen.near, *seen.loud)}
    known = dict(sorted(known.items()))
    for begin, end in (
        *_of_tap(known),
        *_rebuilt(known),
        *_built(known),
        *_of_job(known),
        *_framed(known),
        *_as_meant(known),
        *_warned(known),
        *_cells(known),
    ):
        found.update(range(begin, end + 1))
    for part in parts:
        found.update(_shown(dict(sorted(part.items()))))
        found.update(number for begin, end in _judged_bare(part) for number in range(begin, end + 1))
    return found


def _judged(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """Where each part that was judged by its name begins and ends: there, or where another one begins."""
    well = {found["name"] for line in lines.values() if (found := _CTEST.match(line.text))}
    for number, line in lines.items() if well else ():
        if (of := _NUMBERED.search(line.body)) and of["name"] in well:
            yield number, number
    for begins, good in _NAMES:
        begun = [(n, match["name"]) for n, line in lines.items() if (match := _either(begins, line))]
        if not begun:
            continue
        for end, line in lines.items():
            verdict = _either(good, line)
            mine = [n for n, name in begun if verdict and name == verdict["name"] and n < end]
            if mine:
                name = verdict["name"] if verdict else ""
                others = (n for n, other in begun if n > mine[-1] and other.partition("/")[0] != name.partition("/")[0])
                yield mine[0 if good is _NAMES[2][1] else -1], min([end, *(n - 1 for n in others)])


def _either(form: re.Pattern[str], line: Line) -> re.Match[str] | None:
    """Where a form stands at the beginning of a line, or behind what a collector put there."""
    return form.match(line.text) or form.match(line.body)


def _judged_bare(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """The same of parts whose verdict has no name, and of those that are ignored."""
    for begins, good in _BARE:
        begun = 0
        for number, line in lines.items():
            if begins.match(line.text):
                begun = number
            if begun and (good.match(line.text) if number > begun else good.match(begins.sub("", line.text, count=1))):
                yield begun, number
                begun = 0
    yield from _went_past(lines)
    yield from _may_fail(lines)
    task = made = 0
    stopped = any(_STOPPED.match(line.text) for line in lines.values())
    for number, line in lines.items():
        if _TASK.match(line.text):
            task = number
        elif task and _IGNORING.search(line.text):
            yield task, number
        elif _IGNORED.match(line.text):
            yield max(made + 1, number - _BEFORE if stopped else 1), number
        if _OF_MAKE.match(line.text):
            made = number


def of_failed_tests(seen: FileSeen) -> list[int]:
    """The numbers of the lines that a TAP stream tells of tests that failed, before or behind their verdict: the mark
    of a comment makes no talk of them here."""
    lines = sorted({line.number: line for line in (*seen.head, *seen.tail)}.items())
    found: list[int] = []
    beside: list[int] = []
    failed = False
    for number, line in lines:
        if (verdict := _TAP.match(line.text)) is not None:
            failed = bool(verdict["bad"]) and not verdict["done"]
            found += beside if failed else ()
            beside = []
        elif _DIAGNOSTIC.match(line.body):
            (found if failed else beside).append(number)
        else:
            failed = False
    return found


def _of_tap(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """What tests of a TAP stream printed that passed: before their verdict, or all of it where none failed.

    A plan that the last numbers reach, or a count of none that failed, tells so of tests whose lines are not kept.
    """
    verdicts = {n: found for n, line in lines.items() if (found := _TAP.match(line.text))}
    plans = [int(found["all"]) for line in lines.values() if (found := _PLAN.match(line.text))]
    counts = [found for line in lines.values() if (found := _TAP_COUNTS.match(line.text))]
    failed = {n for n, found in verdicts.items() if found["bad"] and not found["done"]}
    tested = bool(verdicts) and bool(plans) and max(int(found["number"]) for found in verdicts.values()) >= max(plans)
    none = bool(counts) and all(found["what"] != "fail" or found["count"] == "0" for found in counts)
    if (tested or none) and not failed:
        yield min(lines), max(lines)
    begun = min(lines, default=0)
    for number in sorted(verdicts) if plans else ():
        if number not in failed:
            yield begun, number
        begun = number + 1
        while number in failed and begun in lines and _DIAGNOSTIC.match(lines[begun].body):
            begun += 1  # what is told of the test that failed


def _rebuilt(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """What pip says of a package that it did not build and then installed all the same."""
    later = {n: found["names"] for n, line in lines.items() if (found := _INSTALLED.match(line.text))}
    for number, line in lines.items() if later else ():
        if (failed := _NOT_BUILT.match(line.text)) is None:
            continue
        name = failed["name"]
        if any(n > number and re.search(rf"(?:^| ){re.escape(name)}-\d", names) for n, names in later.items()):
            yield min(n for n, each in lines.items() if name in each.text), number


def _went_past(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """The commands of a script of GitLab before the last one that was run."""
    begun = next((number for number, line in lines.items() if _STEPS.match(line.text)), 0)
    if begun:
        texts = {number: line.text for number, line in lines.items() if number > begun}
        end = next((number for number, text in texts.items() if _AFTER_STEPS.match(text)), max(lines) + 1)
        last = max((number for number, text in texts.items() if number < end and _STEP.match(text)), default=0)
        yield begun, last - 1


def _may_fail(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """The steps of a workflow that failed and after which its next steps were run all the same."""
    begun = {n: found["what"] for n, line in lines.items() if (found := _RUN.search(line.body))}
    for failed in (n for n, line in lines.items() if _STEP_FAILED.search(line.body)):
        first = max((n for n in begun if n < failed), default=0)
        if first and any(n > failed and not _AT_END.search(what) for n, what in begun.items()):
            yield first, failed


def _of_job(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """The steps of a workflow before its last one where none failed, and all where the job came to its end."""
    begun = [n for n, line in lines.items() if _RUN.search(line.body)]
    if begun and not any(_IN_VAIN.search(line.body) for line in lines.values()):
        ended = max((n for n, line in lines.items() if _JOB_ENDS.match(line.body)), default=0)
        yield begun[0], ended if ended > begun[-1] else begun[-1] - 1


def _as_meant(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """What pytest shows of tests that passed or were to fail: it does so behind what it shows of those that failed."""
    for begin in (n for n, line in lines.items() if _AS_MEANT.match(line.text)):
        yield begin, min((n for n, line in lines.items() if n > begin and _SUMMED_UP.match(line.text)), default=begin)
    yield from ((n, n) for n, line in lines.items() if _MEANT.match(line.text))


def _warned(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """What CMake warns of on the way to its end: the lines that are indented below its word."""
    done = max((n for n, line in lines.items() if _CONFIGURED.match(line.text)), default=0)
    for begin in (n for n, line in lines.items() if n < done and _CMAKE_WARNS.match(line.text)):
        ends = (n for n, line in lines.items() if n > begin and line.text.strip() and not line.text[:1].isspace())
        yield begin, min(ends) - 1


def _cells(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """What the cells of a notebook printed before its last one, which is indented: a cell that ends the run is the last
    that is shown."""
    begun = next((n for n, line in lines.items() if _NOTEBOOK.match(line.body)), 0)
    if begun and not any(_CELL_ENDED.match(line.text) for line in lines.values()):
        yield begun, max(n for n, line in lines.items() if line.text.strip() and not line.body[:1].isspace())


def _told_below(number: int, lines: Mapping[int, Line]) -> int:
    """The last line of the traceback that stands below a line, with gaps where its frames are not kept."""
    for n, line in lines.items():
        if n > number and _EXCEPTION.match(line.text):
            return n
        if n > number and not (line.text[:1].isspace() or _OF_RAY.search(line.text)):
            break
    return number


def _framed(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """What was tried on the way to what was looked for: runs of a bisection, optional packages of npm, an index."""
    found = max((n for n, line in lines.items() if _BISECTED.match(line.text)), default=0)
    yield min((n for n, line in lines.items() if _BISECTS.match(line.text)), default=found + 1), found
    done = max((n for n, line in lines.items() if _NPM_DONE.match(line.text)), default=0)
    if done and not any(_NPM_FAILED.match(line.text) for line in lines.values()):
        yield from ((n, n) for n, line in lines.items() if n > done and _NPM.match(line.text))
        yield min((n for n, line in lines.items() if _NPM.match(line.text)), default=done + 1), done
    for number, line in lines.items():
        if _RAY_RETRIES.search(line.text):
            yield number, _told_below(number, lines)
    installed = max((n for n, line in lines.items() if _INSTALLED.match(line.text)), default=0)
    yield from ((n, n) for n, line in lines.items() if n < installed and _RETRIES.match(line.body))


def _built(lines: Mapping[int, Line]) -> Iterator[tuple[int, int]]:
    """The steps of a build that were done, and all before the line that says that an image or a rollout is there."""
    done = {found["name"] for line in lines.values() if (found := _BUILD_DONE.match(line.body))}
    failed = {found["name"] for line in lines.values() if (found := _BUILD_ERROR.match(line.body))}
    for number, line in lines.items() if done or failed else ():
        of = _BUILD_STEP.match(line.body)
        if of and (of["name"] in done or (failed and of["name"] not in failed)):
            yield number, number
    begun = [(int(found["number"]), n) for n, line in lines.items() if (found := _STEP_BEGINS.match(line.text))]
    if begun:  # a step begins where the one before it did not fail
        yield max((n for number, n in begun if number == 1), default=begun[0][1]), begun[-1][1] - 1
    end = max((number for number, line in lines.items() if _BUILT.match(line.text)), default=0)
    if end:
        yield min((number for number, line in lines.items() if _BUILD_BEGINS.match(line.text)), default=end), end


_KINDS = ((_COMMIT, _OF_COMMIT), (_DIFF, _OF_DIFF), (_TODO, _DIAGNOSTIC), (_XFAILED, _OF_XFAILED))


def _shown(lines: Mapping[int, Line]) -> Iterator[int]:
    """What is shown: a help text, a commit of a history, a difference of files, a test that is known to fail."""
    yield from _helped(lines)
    yield from _in_document(lines)
    inside: re.Pattern[str] | None = None
    for number, line in lines.items():
        for begins, goes_on in _KINDS:
            if begins.match(line.text):
                inside = goes_on
                break
        else:
            inside = inside if inside is not None and inside.match(line.body) else None
        if inside is not None:
            yield number


def _in_document(lines: Mapping[int, Line]) -> Iterator[int]:
    """The items of a list under a heading of Markdown."""
    under = False
    for number, line in lines.items():
        raw = line.body
        if _HEADING.match(raw):
            under = True
        elif under and (_BULLET.match(raw) or not raw.strip()):
            yield number
        else:
            under = False


def _helped(lines: Mapping[int, Line]) -> Iterator[int]:
    """The lines of a help text: from the usage to the last indented line of its sections."""
    begun: list[int] = []
    section = False
    for number, line in lines.items():
        text = line.text
        if _USAGE.match(text):
            begun, section = [number], False
        elif begun:
            heading = _SECTION.match(text) is not None
            if (section and not heading and text[:1] not in (" ", "")) or (not section and _COMPLAINT.match(text)):
                begun = []
                continue
            begun.append(number)
            section = section or heading
            if section:
                yield from begun
                begun = [number]
