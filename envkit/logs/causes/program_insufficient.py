"""Where the log does not say: only wrappers speak, only unknown words do, or nothing failed at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, OPEN, shortened, unquoted
from envkit.logs.causes._tracebacks import fatal, is_wrapper
from envkit.logs.causes.program_python import says_a_name
from envkit.logs.ends import (
    ILL,
    is_output,
    same_process,
    stays,
)
from envkit.logs.goes_on import (
    answers_behind,
    begun_again,
    carried_on,
    is_met,
    left_open,
    said_later,
)
from envkit.logs.outcome import falls_short
from envkit.logs.records import FileSeen, Hypothesis, Line, Role, Strength
from envkit.logs.segments import silent
from envkit.logs.story import Story
from envkit.logs.survived import (
    ended_badly_so,
    ends_well,
    overcome,
    went_on,
    works_again,
)
from envkit.records import replace

_EXIT = re.compile(
    r"(?:exitcode\s*: |\(exitcode: |[Ee]xit code:? |exit status |[Ee]xited with (?:exit )?code )(?P<exit>-?\d+)"
)
_WRAPPER = re.compile(
    r"ChildFailedError|\(exitcode: -?\d+\)|exitcode\s*: -?\d+|Engine core initialization failed"
    r"|Engine process failed to"
    r"|Failed core proc|ProcessExitedException|exited with (?:code|status)(?! 0\b)|Exited with exit code"
    r"|[Ee]xit code:? -?[1-9]|exit status -?\d+|CalledProcessError"
    r"|closing signal SIG|Root Cause \(first observed failure\)|Root Cause:"
    r"|See (?:root cause|stack trace)|ncclSystemError|worker(?:s| process)? (?:died|exited|terminated)|Shard \d+ failed"
    r"|Command terminated|command failed|MPI_ABORT was invoked|Primary job  terminated"
    r"|scheduler is dead\. Please check|Aborting Ring\w{0,20} with |CollectiveExecutor::StartAbort "
    r"|Aborted \(core dumped\)|^Aborted$|Segmentation fault"
)
_NAMED = re.compile(r"(?:[a-z]\w*\.)*[A-Z]\w{2,60}(?:Error|Exception): ")
_SPEAKER = re.compile(r"^(?!nvidia)\w{1,30}[-_][\w-]{1,40}: ")
_ENDED_WELL = re.compile(
    r"\b(?:completed|finished|ended) (?:successfully|without errors?)\b|\bshut(?:ting)? down cleanly\b"
    r"|\b(?:job|benchmarks?|search|sweep|evaluation|study|tuning|export|conversion) (?:is |has |was )?"
    r"(?:finished|completed?|done)\b|\b(?P<all>\d{1,9}) (?:of|out of|/) (?P=all) \w+ (?:answered|served|processed)\b"
    r"|\b[Tt]raining (?:has )?(?:finished|completed?|done)\b|\ball \d{1,6} \w{1,30} done\b"
)
# what a wrapper or a tool says last where nothing failed: pytest has its own (story.py)
_NOTHING_FAILED = re.compile(
    r"\b(?:exit(?:ed)?|ended)(?: with)?(?: exit)?(?: code| status)?:? 0\.?$|^OK(?: \(|$)|^build succeeded\b"
    r"|^100% tests passed\b|^BUILD SUCCESSFUL\b"
    r"|(?i:^(?:all )?(?:done|finished|completed|success|ok|passed)[.!]?(?:$|,| in \d))"
    r"|(?i:\b(?:saved|wrote|written|stored) (?:to |in |checkpoint|model|report|\S{1,80}[./]\S))"
    r"|(?i:\ball (?:is )?(?:ok|well|good|passed)[.!]?$)"
)
_LAUNCHED = re.compile(
    r"torch[/.]distributed|\belastic\b|Setting OMP_NUM_THREADS|\*{5}"
)  # what torchrun says of itself
_LAUNCHER = re.compile(
    r"ChildFailedError|exitcode|Engine core|Engine process|core proc|ProcessExited|Root Cause|[Ss]ee (?:root|stack)"
    r"|closing signal|\brank\b|Shard \d|MPI_ABORT|Primary job|scheduler is dead|Aborting Ring|StartAbort"
)
_ASKED = re.compile(r"\bSIG(?:TERM|INT)\b|\bsignal 15\b")
# how services and supervisors say that a planned stop went well
_IN_ORDER = re.compile(
    r"\(exit status 0\)|^(?:stopped: )?[\w.:-]{1,80} \(terminated by SIGTERM\)$"
    r"|\bexited with code 0\b|\bDeactivated successfully\b|\bApplication shutdown complete\b"
    r"|\bFinished server process\b|(?i:\bexited normally\b"
    r"|\b(?:stopped|shut ?down|closed) (?:cleanly|gracefully|in order)\b"
    r"|\bshutdown complete\b|\bdrained\b|^(?:good)?bye\b|\bbye bye\b|\b(?:0|no) \w{1,20} (?:are |were )?lost\b)"
)
_SOURCE = re.compile(r"\s*(?:raise|return|assert)\b")  # the line of code that a frame shows
_GPU = re.compile(
    r"cuda(?!:\d)|nccl|cudnn|nvrm|\bxid\b|nvidia|\bgpus?\b|ptxas|nvcc|cublas|cusolver|cufft|curand|cusparse"
    r"|hsa_status|\brocm|rocblas|miopen|rocdevice",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"(?:^|[\s\[(])(?:error|fatal(?: error)?|panic|exception|\w{3,40} failed"
    r"|\w{1,60}(?:Error|Exception))\b\s{0,4}[:!\]]"
    r"|\bE\d{4}:|^(?:[a-z]\w{0,30}\.){1,8}\w{1,60}(?:Error|Exception): ",
    re.IGNORECASE,
)
# "tool: what: message", as commands, shells and engines complain
_COMPLAINS = re.compile(
    r"^(?:[\w./+-]{1,80}(?:\[\d+\])?: ){1,4}.{0,300}?(?:\b[Nn]ot found\b|\b[Nn]o such\b|\bdenied\b"
    r"|\b[Cc](?:annot|an't|ould not)\b|\b[Uu]nable to\b|\b[Rr]efused\b|\b[Uu]n(?:recogni[sz]ed|known|supported)\b"
    r"|\b[Ii]nvalid\b|\bnot supported\b)|\bError response from daemon: |^E: "
    # what the C library calls an error, at the end of a sentence, behind which Perl says where it ends
    r"|(?:: |\[Errno \d{1,3}\] )(?:No such file or directory|Permission denied|Is a directory|Not a directory"
    r"|No space left on device"
    r"|Connection refused|Read-only file system|Cannot allocate memory|Disk quota exceeded)"
    r"(?: at \S{1,200} line \d{1,7})?\.?$"
)
_COMPILER = re.compile(r"\.(?:c|cc|cpp|cxx|cu|h|hpp|rs|go|ts|java)[:(]\d{1,7}.{0,20}?\berror\b", re.IGNORECASE)
_TASK_FAILED = re.compile(r"fatal: \[[^\]\n]{1,200}\]: (?:FAILED|UNREACHABLE)!")  # of Ansible, before what it says
_HARMLESS = re.compile(
    r"dependency resolver does not currently take into account"
    r"|warning|deprecat|\b0 (?:errors|failed)|no errors?\b|error_file|errors?=0|failures?: 0",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"\bException in task \d.{0,80}$|\b[A-Z]?\w{0,20}[Ee]rrors?\s{0,3}:\s{0,20}$"
    r"|(?:^|\W)(?:During handling of the above exception|The above exception was the direct cause of)\b"
)
_CUES = tuple(
    (cause, re.compile(words, re.IGNORECASE))
    for cause, words in (
        (
            "corrupt-data",
            r"unexpected (?:end|eof)|truncat|corrupt|checksum|\bcrc\b|not in gzip|do not match the hashes",
        ),
        ("host-resource", r"memory|no space|quota|too many|\bheap\b"),
        ("container-config", r"permission|not permitted|read-only"),
        (
            "infra",
            r"\blocked\b|\block(?:file)?\b.{0,80}\b(?:held|another|in use|unavailable|exclusive)\b"
            r"|\b(?:acquire|exclusive|get|obtain|transaction)\b.{0,40}\block\b"
            r"|capacity|throttl|rate limit|unauthori[sz]ed|forbidden"
            r"|connect|network|broken pipe|socket|timed? ?out|unreachable|resolve|http|certificate|registry|refused",
        ),
        (
            "version-mismatch",
            r"\brequires (?:a newer|rustc|go|node|python)\b|unsupported engine"
            r"|unsatisfiable|no solution|conflict|incompatible|not compatible|no matching distribution",
        ),
        (
            "launch-config",
            r"\b(?:mpi|world)[ _]?size\b.{0,60}(?:!=|==|must|equal|divisible)"
            r"|no such file|not found|does not exist|invalid (?:option|value|partition|\w{1,20} value)|unrecogni[sz]ed"
            r"|missing (?:script|required|argument)|already (?:in use|allocated)|unable to allocate resources",
        ),
    )
)
# the exit status of a program, as shells, make, services and workflows report it
_BAD_EXIT = re.compile(
    r"(?:\bexit(?:ed)?(?: with)?(?: exit)?(?: code| status)?[:=]? "
    r"|\bended with (?:exit code )?|\bstatus=|\brc=|^\+ exit )"
    r"(?P<code>[1-9]\d{0,2})\b|: \*\*\* \[[^\]\n]{1,200}\] Error (?P<make>\d{1,3})"
)
_AFTER_END = re.compile(
    r"(?i)^(?:-{3,}|={3,}|#{2}\[|cleaning up|post job|uploading|\+ )|\bfailed\b|\bfailure\b|\bstopp"
)
_QUIET_WORDS = re.compile(r"[-=_#*~ ]{0,200}$")
_COMPLAINT = re.compile(
    r"(?i)\b(?:must|missing|required?|bad|invalid|unknown|unsupported|malformed|illegal|(?:un)?expected|wrong|refus\w{1,4}|denied"
    r"|already|exceed\w{0,3}|too (?:many|large|long|small|few|old|new|slow)|fail\w{0,5}|errors?|unable|undefined|unset"
    r"|empty|corrupt\w{0,3}|no such|not|cannot|can't|never|nothing|needs|instead of|differs?|mismatch|conflicts?|stale"
    r"|expired|giving up|gave up|broken|but (?:got|found|is|has|was))\b"
)
_SETTING = re.compile(
    r"(?i)\b(?:must (?:be|have)|missing|required|bad|invalid|unknown|unsupported|unset|not (?:set|given)|no such"
    r"|expired)\b"
)
# what pytest says of a test that did as it was to, whatever the test is called
_OF_GOOD_TEST = re.compile(r"\.py::\S.{0,300} (?:PASSED|SKIPPED|XFAIL|XPASS)\b|^(?:SKIPPED|XFAIL|XPASS|PASSED) \S")
_NEAR_END = 4  # lines
_SIGNALS = {
    6: "the process ended itself by abort (signal 6), and what it said before that is missing",
    7: "the process met a bus error (signal 7), which a full /dev/shm causes, and nothing says so",
    9: "the process was killed from outside (signal 9), most often for want of memory, but nothing says so",
    11: "the process crashed (signal 11), and nothing says in whose code",
    15: "the process was asked to end (signal 15) by another, and nothing says why",
}
_ELSEWHERE = "only launchers and wrappers speak: the process that failed first wrote elsewhere or above"
_KILL, _USAGE, _NOT_RUN = 9, 2, 126
# systemd, of the process of a unit that ended with a status
_UNIT_ENDED = re.compile(r": Main process exited, code=\w{4,8}, status=[1-9]|: Failed with result '")
_SHELL = 128  # a shell's exit status of a process that a signal ended is this and the signal's number
_MOST = 4
_CAUSED = 12  # lines
_STEPS = 2


def only_wrappers(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Launchers that say that a process ended, and no line of the process itself.

    Source: PyTorch torch/distributed/elastic/multiprocessing/errors (ChildFailedError), vLLM v1/engine/utils.py.
    """
    if _began(story) or fatal(story):
        return
    lines = [line for line in _seen(story) if _WRAPPER.search(line.text) and not _SOURCE.match(line.text)]
    lines += [trace.line for trace in story.tracebacks if is_wrapper(trace) and trace.line not in lines]
    loud = [line for seen in story.files for line in seen.loud]
    again = {seen.name: seen for seen in story.files}
    lines = [line for line in lines if not works_again(line.number - 1, "", story.tracebacks, again[line.file])]
    events, traces = story.events, story.tracebacks
    mute = {
        seen.name: silent(seen, [line for line in lines if line.file == seen.name]) for seen in story.files if lines
    }
    lines = [line for line in lines if line.number not in mute[line.file]]
    over = (ends_well, begun_again)
    lines = [line for line in lines if not any(of(line, line, events, traces, again[line.file]) for of in over)]
    if not lines or any(_COMPILER.search(line.text) for line in loud):
        return
    said = [line for line in loud if speaks(line)]
    if any(line.file == lines[0].file and line.number < lines[0].number for line in said):
        return
    exits = [line for line in lines if _EXIT.search(line.text)]
    signal = _signal(exits)
    why = _SIGNALS.get(signal, _ELSEWHERE)
    rest = [line for line in lines if line not in exits]
    named = [line for line in lines if "first observed failure" in line.text]
    first = [line for line in exits if named and line.file == named[0].file and line.number > named[0].number]
    chosen = tuple(dict.fromkeys((*first[:1], *exits[:2], *exits[-1:], *rest)))[:_MOST]
    if signal == _KILL:  # nothing of the GPU's sends it, whoever did
        yield Hypothesis(INNOCENT, "host-resource", Strength.USUAL, chosen, why, "dmesg -T of that time")
    elif own := _own_exit(exits):
        why = f"the process ended itself with exit code {own}, and said nothing of why"
        decide = f"where the program ends with {own} (exit, sys.exit, os._exit)"
        cause = "program-bug"
        if (word := _own_word(lines[0], story)) is not None:
            why = f"the process ended itself with exit code {own}, and said before that: {shortened(word.text)}"
            cause, chosen = _cause_of(word), (word, *chosen)[:_MOST]
        yield Hypothesis(INNOCENT, cause, Strength.USUAL, chosen, why, decide)
    sure = any(_LAUNCHER.search(line.text) for line in chosen)  # of whose workers each has a log of its own
    strength = Strength.LIKELY if sure else Strength.USUAL
    strength = Strength.POSSIBLE if signal == _KILL or _own_exit(exits) else strength
    decide = "the lines above the first of these"
    yield Hypothesis(OPEN, "unknown-cut-log", strength, chosen, why, decide)


def last_words(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A process that ended with an error of its own: what it said last, if that complains of something."""
    if _began(story) or fatal(story) or len(story.files) != 1 or len(story.ranks) > 1:
        return
    lines = sorted({line.number: line for line in _seen(story)}.values(), key=lambda each: each.number)
    if any((speaks(line) and not _ended_badly(line)) or _LAUNCHER.search(line.text) for line in lines):
        return
    end = next((index for index, line in enumerate(lines) if _ended_badly(line)), 0)
    if any(
        is_output(line) and not _ended_badly(line) and not _AFTER_END.search(line.text) for line in lines[end + 1 :]
    ):
        return  # of what else it tells nothing is known
    before = [line for line in lines[:end] if line.number >= lines[end].number - _NEAR_END]
    said = next((line for line in reversed(before) if not _QUIET_WORDS.match(line.text)), None)
    if said is None or said.level in ("info", "debug") or _HARMLESS.search(said.text) or _WRAPPER.search(said.text):
        return
    if not _COMPLAINT.search(said.text) or _GPU.search(unquoted(said.text)):
        return
    why = f"the process ended with an error, and said last: {shortened(said.text)}"
    decide = "what the program does in that line"
    yield Hypothesis(INNOCENT, _cause_of(said), Strength.USUAL, (said, lines[end]), why, decide, over=(OPEN,))


def _own_word(first: Line, story: Story) -> Line | None:
    """The program's last line before a launcher's first one, if it complains of something other than the GPU."""
    before = [line for line in _seen(story) if line.file == first.file and line.number < first.number]
    said = next((line for line in reversed(before) if _said_by_program(line)), None)
    near = said is not None and first.number - said.number <= _NEAR_END
    told = near and said is not None and _COMPLAINT.search(said.text) and not _GPU.search(unquoted(said.text))
    return said if told else None


def _said_by_program(line: Line) -> bool:
    return not (_QUIET_WORDS.match(line.text) or _WRAPPER.search(line.text) or _LAUNCHED.search(line.text))


def _cause_of(said: Line) -> str:
    """The cause class that the words of a program's last line stand for."""
    cause = next((name for name, cue in _CUES if cue.search(said.text)), "")
    return cause or ("launch-config" if _SETTING.search(said.text) else "program-bug")


def _ended_badly(line: Line) -> bool:
    """Whether a line reports an exit status that a program chose itself."""
    found = _BAD_EXIT.search(line.text)
    return found is not None and int(found["code"] or found["make"]) < _NOT_RUN - 2


def _own_exit(exits: Iterable[Line]) -> int:
    """The exit status of the first process if only its own program can have chosen it, else 0.

    Python ends with 1 after an exception and with 2 after wrong arguments; from 126 on the status is a shell's.
    """
    codes = [int(match["exit"]) for line in exits if (match := _EXIT.search(line.text))]
    chosen = {code for code in codes if _USAGE < code < _NOT_RUN}
    return (
        chosen.pop() if len(chosen) == 1 and all(code in (0, 1, *chosen) or _is_signal(code) for code in codes) else 0
    )


def _is_signal(code: int) -> bool:
    return code < 0 or code > _SHELL


def _signal(exits: Iterable[Line]) -> int:
    """The signal that ended the job's process by these lines, 0 where they name none.

    Of several it is the one that another did not send: the launcher ends the rest by signal 15.
    """
    codes = [int(match["exit"]) for line in exits if (match := _EXIT.search(line.text))]
    signals = [-code if code < 0 else code - _SHELL for code in codes if code]
    return next((each for each in signals if each != 15), signals[0] if signals else 0)


def ended_well(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A log whose last line says that the program ended well: what it reported before that, it survived."""
    last = [seen.tail[-1] for seen in story.files if seen.tail]
    spoke = story.roots or story.tracebacks or story.well or any(seen.loud for seen in story.files)
    if len(last) != 1 or len(story.ranks) > 1 or not spoke or falls_short(story.files[0]):
        return
    ordered = any(event.has("order") for event in story.roots)  # who is asked to end may do so with 0
    if not _ENDED_WELL.search(last[0].text) and (ordered or fatal(story) or not _NOTHING_FAILED.search(last[0].text)):
        if story.well and not (story.roots or story.tracebacks):
            why = (
                f"the whole is told to have ended well ({shortened(story.well[0].text)}), with what was reported before"
            )
            decide = "how the program ended: its exit code"
            yield _good(Strength.LIKELY, story.well, why, decide)
        return
    told = [*(event.line for event in story.roots), *(trace.line for trace in story.tracebacks)]
    told += filter(speaks, story.files[0].loud)
    elsewhere = [line for line in told if not same_process(line, last[0])]
    if elsewhere or any(map(stays, story.roots)) or any(ended_badly_so(line, story.files[0]) for line in told):
        return
    later = max((event.line.number for event in story.roots), default=0)
    if later >= last[0].number or any(event.category == OPEN for event in story.events):
        return
    why = f"the log ends well ({shortened(last[0].text)}), so the program survived what it reported before that"
    over = {event.category for event in story.roots if event.category}
    decide = "how the program ended: its exit code"
    yield replace(_good(Strength.DECISIVE, (last[0],), why, decide), over=tuple(sorted(over)))


def _good(strength: Strength, lines: tuple[Line, ...], why: str, decide: str) -> Hypothesis:
    """That nothing failed in the end: there is nothing to be mended, and no earlier part of the log to be asked for."""
    fix = "none for the end of this log; read what it reported before that only if it should not come at all"
    looks = ("the exit code of the program, if the log does not show it",)
    return Hypothesis(OPEN, "unknown", strength, lines, why, decide, fix, looks, title="the log ends well")


def stopped_as_asked(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A service that was asked to end, and that says, or whose supervisor says, that it did so in order."""
    orders = [event for event in story.roots if event.has("order") or _ASKED.search(event.line.text)]
    if not orders or len(orders) < len(story.roots) or fatal(story) or len(story.files) != 1:
        return
    lines = sorted({line.number: line for line in (*story.files[0].head, *story.files[0].tail)}.items())
    after = [line for number, line in lines if number > orders[0].line.number]
    end = next((line for line in reversed(after) if _IN_ORDER.search(line.text)), None)
    if end is not None and not any(speaks(line) and not _IN_ORDER.search(line.text) for line in after):
        why = f"the program was asked to end, and did so in order: {shortened(end.text)}"
        decide = "who asked it to end, if nobody meant to"
        good = _good(Strength.LIKELY, (orders[0].line, end), why, decide)
        yield replace(good, over=(INNOCENT,), title="the program ended as it was asked to")


def unknown_words(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Lines that sound like an error and that no rule knows: told as such, and as innocent if no GPU is in them."""
    if _began(story) or fatal(story):
        return
    loud = [(line, seen) for seen in story.files for line in seen.loud if speaks(line) and not _passed(line, seen)]
    events, traces = story.events, story.tracebacks
    lines = [
        line for line, seen in loud
        if not _OF_GOOD_TEST.search(line.text)
        and not overcome(line, events, traces, seen)
        and not ends_well(line, line, events, traces, seen)
        and not carried_on(line, line, events, traces, seen)
        and not left_open(line, events, traces, seen)
        and not said_later(line, events, traces, seen)
        and not answers_behind(line, seen)
        and not is_met(line, seen)
    ]  # fmt: skip
    if not lines:
        return
    # "Test Error:" is a heading; what stands below it tells, where something does
    first = next((line for line in lines if not _HEADING.search(line.text)), lines[0])
    decide = "what the program did in the line before it"
    if gpu := next((line for line in lines if _GPU.search(unquoted(_own(line))) and not says_a_name(line.text)), None):
        why = f"a line speaks of the GPU in words that no rule knows: {shortened(gpu.text)}"
        yield Hypothesis(OPEN, "unknown", Strength.FALLBACK, tuple(dict.fromkeys((gpu, first))), why, decide)
        return
    cause = next((name for name, cue in _CUES if cue.search(first.text)), "program-bug")
    why = f"the first line that tells of an error has no GPU in it: {shortened(first.text)}"
    yield Hypothesis(INNOCENT, cause, Strength.FALLBACK, (first, *_caused(first, story)), why, decide)


def _own(line: Line) -> str:
    """What a line says of an error, without the names of who says so: what stands before an exception or a colon."""
    raised = _NAMED.search(line.text)
    return line.text[raised.start() :] if raised else _SPEAKER.sub("", line.text)


def _caused(line: Line, story: Story) -> list[Line]:
    """What stands below the last "Caused by:" of an error, as Cargo and others write it."""
    kept = {each.number: each for seen in story.files if seen.name == line.file for each in (*seen.head, *seen.tail)}
    below = [n for n in sorted(kept) if line.number < n <= line.number + _CAUSED and kept[n].text == "Caused by:"]
    return [kept[below[-1] + 1]] if below and below[-1] + 1 in kept else []


def _passed(line: Line, seen: FileSeen) -> bool:
    """Whether the process made steps after the line, and nothing was said behind them of an end that was not good."""
    after = next((each for each in (*seen.head, *seen.tail) if each.number == line.number + 1), None)
    if after is not None and after.text == "...ignoring":
        return True
    steps = went_on(line, seen) or _worked_on(line, seen)
    last = max(steps, default=0)
    ends = (each for each in (*seen.tail, *seen.loud) if each.number > last)
    bad = any(speaks(each) or _WRAPPER.search(each.text) or ILL.search(each.text) for each in ends)
    return len(steps) >= _STEPS and not bad


def _worked_on(line: Line, seen: FileSeen) -> list[int]:
    """The numbers of the lines behind one that the program printed something before, if the last of them ends well."""
    mine = [each for each in seen.tail if each.process == line.process and is_output(each)]
    began = any(each.number < line.number and is_output(each) and each.process == line.process for each in seen.head)
    after = [each.number for each in mine if each.number > line.number]
    well = bool(mine) and bool(_ENDED_WELL.search(mine[-1].text) or _NOTHING_FAILED.search(mine[-1].text))
    return after if began and well else []


def cut_short(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A traceback without its exception, or a log that ends without a word of failure."""
    if _began(story) or fatal(story):
        return
    open_ends = [trace for trace in story.tracebacks if not trace.kind]
    if open_ends:
        why = "a traceback begins and its exception is not there"
        decide = "the line after the traceback's last frame"
        yield Hypothesis(OPEN, "unknown-cut-log", Strength.POSSIBLE, (open_ends[0].line,), why, decide)
        return
    if any(speaks(line) or _WRAPPER.search(line.text) for line in _seen(story)) or story.tracebacks:
        return
    if any(event.role is not Role.ADVICE and event.category for event in story.events):
        return
    last = tuple(line for seen in story.files for line in seen.tail[-1:])[:1]
    ends = (line for seen in story.files for line in seen.tail if _UNIT_ENDED.search(line.text))
    last = tuple(ends)[:2] or last
    why = "no line tells of a failure"
    decide, title = "how the program ended: its exit code", "the log tells of no failure"
    yield Hypothesis(OPEN, "unknown", Strength.FALLBACK, last, why, decide, title=title)


def _began(story: Story) -> bool:
    """Whether any line tells of something that the program did not survive."""
    return any(not event.has("warning") and not event.line.level.startswith("warn") for event in story.roots)


def _seen(story: Story) -> Iterable[Line]:
    """Every line that is kept, once, in the order of the files and lines."""
    found: dict[tuple[int, int], Line] = {}
    order = {seen.name: index for index, seen in enumerate(story.files)}
    for seen in story.files:
        for line in (*seen.head, *seen.loud, *seen.tail):
            found[order[line.file], line.number] = line
    for event in story.events:
        if event.role is not Role.ADVICE:
            found[order[event.line.file], event.line.number] = event.line
    return [found[key] for key in sorted(found)]


def speaks(line: Line) -> bool:
    """Whether the line itself tells of an error, and is no launcher's report of one."""
    if line.level in ("info", "debug"):
        return False
    said = _ERROR.search(line.text) or _COMPLAINS.search(line.text) or _TASK_FAILED.match(line.body)
    return bool(said or line.level in ("error", "fatal", "critical")) and not (
        _HARMLESS.search(line.text) or _WRAPPER.search(line.text)
    )
