"""Words by which a program, a launcher or a shell tells of an end, good or bad; whose a line or a traceback is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from envkit.logs.again import MET
from envkit.logs.records import Event, FileSeen, Line, Traceback

STEPS = 2  # so many are no accident
ILL = re.compile(
    r"ChildFailedError|(?:exitcode|exit(?:ed)?(?: with)?(?: exit)?(?: code| status)?)\s*:?\s-?[1-9]|closing signal SIG"
    r"|\bcode=exited, status=[1-9]|\b[Ss]tart request repeated too quickly"
    r"|core dumped|^Killed\b|^Aborted\b|\b(?:unreachable|failed)=[1-9]|srun: error|slurmstepd: error"
    r"|timed? ?out\b(?! ?[=:]? ?\d)"
)
# counts of what did not happen: "0 of 120 failed", "cuda_errors=0", "without any error"
NAMES = "".join(
    rf"(?<!{name} )"
    for name in (
        "worker",
        "rank",
        "gpu",
        "task",
        "job",
        "node",
        "device",
        "process",
        "replica",
        "shard",
        "actor",
        "part",
    )
)
"""What stands before a number that is a name and no count: "worker 0 failed"."""
ZERO = re.compile(
    rf"(?i)(?<![=:])\b{NAMES}"
    r"(?:0|no|zero|nothing|without(?: any)?)(?: (?:of|out of|/) \d{1,9})? (?:\w{1,20} ){0,2}?"
    r"(?:errors?|fail\w*|exceptions?|crash\w*|abort\w*|killed|timeouts?|refus\w*|missing)\b"
    r"|\b\w*(?:errors?|fail(?:ed|ures?)?|timeouts?|crashe[ds]|aborted|killed|missing)"
    r"(?:_\w{1,20}[\"']?\s?[:=]|[\"']?\s?[:=]?)\s?0\b(?![.x]?\d)"
    r"|(?:\b\d{1,6}(?: trials)?|\u2502.{0,200}) TERMINATED\b"  # of Ray, which calls so what ended well
)
_NONE_OF = re.compile(r"\b\w{1,30}=0\b")  # "ignored=0" tells that nothing was
# words that no program ends with that ended well
_BAD_END = re.compile(
    r"(?i)\berrors?\b|\bfail|\babort|\bexit(?!.{0,12}\b0\b)|\bgiving up\b|\bcannot\b|\bunable\b|\brefus|\bterminat"
    r"|\bkill|\bfatal\b|\bcrash|\bpanic|\bstopp(?:ed|ing) (?:after|at|because|before|on|short|with)\b"
    r"|\bno\b.{0,80}\b(?:device|platform|gpu|adapter|card|driver|accelerator)s? "
    r"(?:was |were )?(?:found|detected|available)\b"
    r"|\bdid not (?:come|start|load|fit|finish|complete|work|answer|respond|succeed)\b"
    r"|\bnot (?:available|supported|found)\b|\bmissing\b|\bHTTP/[\d.]{1,4}\"? 5\d\d\b|\| 5\d\d \|"
)
# how pytest sums up where tests failed, whatever it skipped
_TESTS_FAILED = re.compile(r"=* ?(?:\d{1,6} \w{1,20}, ){0,3}[1-9]\d{0,6} failed\b.{0,200} in [\d.]{1,12}s")
# words by which a program says that it will not go on, whatever else stands beside them
_GIVES_UP = re.compile(
    r"(?i)\brefus(?:es|ed|ing) to (?!connect)|\bg(?:i(?:ves|ving)|ave) up\b|\bof no use\b|\bquitting\b|\bbailing out\b"
    r"|\bcannot (?:go on|continue|proceed|serve|train|start|run)\b"
    r"|\bno \w{1,40} after \d{1,6} (?:tries|attempts|polls|retries)\b|\bwill not (?:start|run|serve|train)\b"
    r"|\b(?:no|none) (?:\w{1,20} ){0,4}(?:fits?|work(?:s|ed)|(?<!were )left|remains?|can be used)\b"
    r"|\b(?:job|run|program) ends\b"
)
_LAST = 4  # lines
# a status of a whole run, as scripts say it
_ENDS = re.compile(
    r"(?i)\b(?:end(?:ed|s|ing)|leav(?:es|ing)|left|quit\w*|return(?:s|ed|ing)|rc|status|code)(?: with)?"
    r"(?: (?:code|status))?"
    r"[:= ]{1,2}-?[1-9]\d{0,2}\b(?:[.!]?$| \()"
)
# what TensorFlow reports where nothing is wrong
_MILD = re.compile(r"Unable to register \w{1,20} factory")
# what who stops a service says first: what follows is of that
ASKED = re.compile(
    r"(?i)\bexit request\b|\bStopping [\w@.-]{1,80}\.service\b|\basked to (?:stop|end|leave|quit|exit)\b"
    r"|\b(?:stop|shutdown|exit|termination) (?:was |is )?requested\b|\b(?:fast|smart) shutdown request\b"
)
_OF_SERVICE = re.compile(r"(?:\d\d:\d\d:\d\d )?(?P<service>[\w.-]{1,60}) {0,40}\| ")
_TAGGED = re.compile(
    r"\[[\w .:/-]{1,40}\](?= )|(?!\w*(?:Error|Exception|Warning|WARNING|ERROR)\b)"
    r"[a-z][\w.-]{0,30}(?: [\w.-]{1,20})?:(?= )"
)
STATUS_0 = r"\bexit(?:ed)?_?(?: with)?(?: ?code| status)?[:= ]{1,2}0\b"
EXIT_0 = re.compile(f"(?i){STATUS_0}")
# what is done or written however a run ended
ANYHOW = re.compile(r"(?i)\blogs?\b|\bdump|\breport|\bcore\b|\bjob (?:\S{1,40} )?(?:finished|ended|completed)\b|^\+ ")
STEADY = 3  # lines that are more than two of a kind by accident
# where Python begins the traceback of an exception that nobody caught: in a program, a thread or a process of its own
_OUTERMOST = frozenset((
    "<module>", "_run_module_as_main", "_run_code", "run", "_bootstrap", "_bootstrap_inner", "_wrap", "wrapper",
))  # fmt: skip
CLOSES = re.compile(r"(?i)\b(?:clean|remov|delet|upload|collect|copy|copi|tear|releas|finaliz|shut|epilog|clos)")
# a word of parting, as all that a record says or its last word
PARTS = re.compile(
    r"(?i)(?:good)?bye\b|(?:\w{1,30}:? ){0,4}(?:(?:is |goes |going )?down|bye|stop(?:s|ped|ping)?|ends|ended|ending"
    r"|exit(?:s|ing)|leav(?:es|ing)|quit(?:s|ting)?)[.!]?$|(?:flush|stopp|leav|quitt|exit|end)(?:ed|ing)\b"
)
SERVES = re.compile(
    r"(?i)\b(?:listening|running|serving) (?:on|at)\b|\bstartup complete\b|\bserver is (?:up|listening|ready)\b"
)
SAYS = 3  # lines before or after the error
TRACKER = re.compile(
    r"(?:wandb|mlflow|neptune|clearml|comet\w*) ?:|COMET |ClearML "
    r"|NCCL INFO [\w./]{1,80}:\d{1,6} (?:\(\w{1,80}\) )?-> \d"
)  # who writes however a program ends, and the calls through which NCCL hands on a result
# a line of a program's own that says what the traceback below it is, and no line of Python's, Hydra's or a launcher's
_INTRODUCES = re.compile(
    r"(?!Exception in thread|Process [\w-]{1,60}:$|Error executing job|Exception ignored|During handling|The above"
    r"|Original |Root Cause|.{0,80}\b(?:rank|worker|engine|training|main|job|script|program)\b)"
    r"(?:.{0,200}(?i:\bfail|\bunavailable\b|\bnot available\b|\berror\b|\bcould not\b|\bskipp|\bcaught\b).{0,80}:$"
    r"|\[[WE] \d{4}-\d\d-\d\d )"
)
OF_TESTS = re.compile(r"-(?:[a-z]*test\w*|ctest-failed|rspec|mocha|surefire|checker)$")
"""What the signatures of failed tests are called: tests that run after it change nothing of that."""
_UNRAISABLE = re.compile(r"Exception ignored (?:in|on|while)\b|Error in atexit\._run_exitfuncs:")
# what an event loop puts between its words and the traceback
_OF_LOOP = re.compile(r"(?:future|task|handle|protocol|transport|source_traceback): <")
_LOOP_SAYS = re.compile(r"(?:Task|Future) exception was never retrieved$|Exception in callback |\w{3,40} protocol: ")
_WARNS = re.compile(r"Warning\b|\bwarn(?:ings?\.warn)?\(|^\s|^$")
QUIET = ("", "info", "debug", "notice")  # levels
_PLAIN_LEVELS = frozenset(QUIET) - {""}
_INFORMS = re.compile(r"(?:\[[^\]]{1,30}\] ){0,3}(?:INFO|DEBUG|NOTICE)\b")
INNOCENT = ("", "not-gpu-env", "insufficient-evidence")


def chain_of(trace: Traceback, traces: Sequence[Traceback]) -> list[Traceback]:
    """A traceback behind those that it was raised out of, the first of them first."""
    found = [trace]
    while found[0].within:
        before = [
            each
            for each in traces
            if each.line.process == trace.line.process and each.first.number < found[0].first.number
        ]
        if not before:
            break
        found.insert(0, max(before, key=lambda each: each.first.number))
    return found


def bad_end(line: Line) -> bool:
    """Whether the words of a line tell of an end that was not good, and of nothing that is done about it."""
    if _MILD.search(line.text):
        return False
    bad = bad_words(line.text) and MET.search(_NONE_OF.sub(" ", line.text)) is None
    bad = bad or line.level == "fatal" or _GIVES_UP.search(line.text) is not None
    return bad or _TESTS_FAILED.match(line.text) is not None


def in_passing(line: Line, behind: int) -> bool:
    """Whether bad words of a line are none of an end: a logger calls it information, and ``behind`` it more is said."""
    plain = line.level.lower() in _PLAIN_LEVELS or _INFORMS.match(line.text)
    return bool(plain) and behind >= STEADY and not ILL.search(line.text)


@lru_cache(1 << 12)
def bad_words(text: str) -> bool:
    """Whether a text tells of an end that was not good, whatever it counts that did not happen."""
    return _BAD_END.search(ZERO.sub(" ", text)) is not None


def ends_ill(seen: FileSeen) -> bool:
    """Whether one of the last lines of a file says that its run ended badly."""
    last = [line for line in seen.tail if re.search(r"\w", line.text)][-_LAST:]
    last = [line for line in last if line.logged or not line.text[:1].isspace()]  # no row of a table
    return any(line.level == "fatal" or ILL.search(line.text) or _ENDS.search(line.text) for line in last)


def is_caught(first: Traceback) -> bool:
    """Whether somebody caught the exception of a traceback and printed it: it begins where that was, and not where
    Python begins that of one that nobody caught."""
    return bool(first.frames) and first.frames[0].function.rpartition(".")[2] not in _OUTERMOST


def tag_of(text: str) -> str:
    """What a line begins with that tells whose it is, as "[array 12_0]" or "job b:"; "" for a line without."""
    found = _TAGGED.match(text)
    return found[0] if found else ""


def service(line: Line) -> str:
    """The service whose line it is in the output of docker compose or of a supervisor of several programs."""
    found = _OF_SERVICE.match(line.raw)
    return found["service"] if found else ""


def is_reported(trace: Traceback, seen: FileSeen) -> bool:
    """Whether the program wrote it, behind a line of its own that warns: Python itself writes none with a level."""
    before = (line for line in seen.kept if line.number == trace.first.number - 1)
    return bool(trace.first.level) or any(
        (line.level.lower() not in QUIET or _INTRODUCES.match(line.text)) and same_process(line, trace.first)
        for line in before
    )


def stays(event: Event) -> bool:
    """Whether it tells of a fault with which its process cannot go on: each later call of CUDA fails by it."""
    return event.has("sticky") or event.has("device")


def same_process(line: Line, other: Line) -> bool:
    """Whether two lines may be of one process: only one of them may say a process number."""
    pids = {line.pid, other.pid} - {None}
    return (line.file, line.host, line.rank) == (other.file, other.host, other.rank) and len(pids) < 2


def is_output(line: Line) -> bool:
    """Whether it is what a program prints of its work, and no warning."""
    return line.level.lower() in QUIET and not _WARNS.search(line.text)


def holds(trace: Traceback, line: Line) -> bool:
    """Whether a line stands within a traceback, its exception's message included."""
    return trace.line.file == line.file and trace.first.number <= line.number <= trace.line.number + 1


def trace_of(line: Line, traces: Sequence[Traceback]) -> Traceback | None:
    """The traceback that a line stands in; None where it stands in none."""
    return next((trace for trace in traces if holds(trace, line)), None)


def leads(line: Line, trace: Traceback) -> bool:
    """Whether it is the program's own line that introduces a traceback."""
    return line.number == trace.first.number - 1 and _INTRODUCES.match(line.text) is not None


def of_loop(line: Line, trace: Traceback) -> bool:
    """Whether a line is what an event loop says of a task, above its traceback."""
    near = line.file == trace.line.file and 0 < trace.first.number - line.number <= SAYS
    return near and _OF_LOOP.match(line.text) is not None


def is_ignored(trace: Traceback, seen: FileSeen) -> bool:
    """Whether Python only printed it and went on: an exception of a finalizer or of what is done at the end, of a
    logger that could not write, or of a task of an event loop that nobody waits for.

    Source: CPython Python/errors.c (PyErr_WriteUnraisable), Modules/atexitmodule.c, Lib/logging (Handler.handleError),
    Lib/asyncio/base_events.py (default_exception_handler).
    """
    above = {trace.first.number - line.number: line.text for line in seen.kept}
    if _UNRAISABLE.match(above.get(1, "")):
        return True
    if _OF_LOOP.match(above.get(1, "")) and any(_LOOP_SAYS.search(above.get(n, "")) for n in (2, 3, 4)):
        return True
    first = trace.frames[0] if trace.frames else None
    return first is not None and (
        first.function.rpartition(".")[2] == "__del__"
        or (first.function == "emit" and "logging" in first.file)
        or trace.kind == "Message"  # of a logger too, behind its call stack
    )
