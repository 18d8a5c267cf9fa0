"""What launchers, loggers and terminals put before a program's own words, and what it tells: who, when, how loud.

Prefixes nest (a Kubernetes time before a rank label before a logger's), so rules are tried again until none fits.  A
rule takes only what its own form proves to be a prefix; a text that merely resembles one is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

NO_YEAR = 2000
"""The year of a time that was written without one; a leap year, and one in which no log of CUDA was written."""

_DEEPEST = 12  # prefixes before one message; the deepest seen in public logs is six
_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip

_HMS = r"(?P<h>[0-2]\d):(?P<m>[0-5]\d):(?P<s>[0-6]\d)(?:[.,:](?P<f>\d{1,9}))?"
_ZONE = r"(?P<z>Z\b|UTC\b|[+-]\d\d:?\d\d\b)"
_ISO = rf"(?P<Y>(?:19|20)\d\d)[-/.](?P<M>[01]\d)[-/.](?P<D>[0-3]\d)(?:T|[ _-]| {{2}}){_HMS} ?{_ZONE}?"
_US = rf"(?P<M>[01]\d)/(?P<D>[0-3]\d)/(?P<Y>20\d\d)[ -]{_HMS}(?: [AP]M)?"
_SHORT = rf"(?P<y>[012]\d)[-/](?P<M>[01]\d)[-/](?P<D>[0-3]\d)[ _]{_HMS}"
_MD = rf"(?P<M>[01]\d)[-/](?P<D>[0-3]\d)[ _]{_HMS}"
_MON = r"(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_SYSLOG = rf"{_MON} {{1,2}}(?P<D>\d{{1,2}}) {_HMS}"
_CTIME = rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MON} {{1,2}}(?P<D>\d{{1,2}}) {_HMS} (?P<Y>(?:19|20)\d\d)"
_LEVEL = r"(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|ERR|CRITICAL|FATAL|SEVERE)\b"
# each with the characters it can begin with
_DATED = (
    ("12", rf"(?:{_ISO})"), ("01", rf"(?:{_US})"), ("MTWFS", rf"(?:{_CTIME})"), ("JFMASOND", rf"(?:{_SYSLOG})"),
    ("012", rf"(?:{_SHORT})"), ("01", rf"(?:{_MD})"),
)  # fmt: skip
_AFTER_TIME = r"(?: (?:-|:|\||>>) ?|[:|] ?| |(?=\[)|$)"
_SOURCE_FILE = r"[\w./+-]{1,120}\.(?:cpp|cc|cu|cxx|c|hpp|h|py|go|rs)(?::\d{1,7})?"

_HOST = r"(?P<host>[A-Za-z0-9][\w.-]{0,80})"
_HOSTS = r"(?P<host>(?:node|worker|host|gpu|compute|server|ip|dgx|hgx|nid|master)[\w.-]{0,60})"
_PID = r"(?P<pid>\d{1,9})"
_DAEMONS = r"(?P<tag>slurm\w{1,10}|dockerd|containerd|kubelet|nvidia-[\w-]{1,40})"
_TARGET = r"[a-z_][\w.]{0,60}(?:::\w{1,60}){0,8}"  # a module of Python or Rust
_DIGITS, _SMALL, _CAPITALS = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ANY = _SMALL + _CAPITALS
_LOUDNESS = "TDINWECFS"  # the first letters of the levels

# A rule: the characters it can begin with, what must have been taken before it ("" nothing, "start" no other prefix,
# "time" a time or a level, "date" a time), a literal that the line holds, and its form.
_RULES: tuple[tuple[str, str, str, str], ...] = (
    # --- launchers -------------------------------------------------------------------------------------------------
    ("[", "", "", r"\[(?:rank|RANK ?)(?P<rank>\d{1,6})\]:? ?"),  # torch, and trainers in capitals
    ("[", "", "", r"\[default(?P<rank>\d{1,6})\]: ?"),  # torchrun --tee
    ("[", "", "]<std", r"\[\d{1,6},(?P<rank>\d{1,6})\]<std(?:out|err|diag)>: ?"),  # mpirun --tag-output
    ("[", "", "", r"\[(?P<host>[A-Za-z][\w.-]{0,80}):(?P<pid>\d{1,8})\] "),  # Open MPI itself
    ("[", "", "[pod/", r"\[pod/[\w./-]{1,200}\] ?"),  # kubectl logs --prefix
    # Ray, vLLM
    ("(", "", "pid=", r"\((?P<who>[\w.:<> =/-]{0,80}?)\bpid=(?P<pid>\d{1,8})(?:, ?ip=(?P<host>[\w.:]{1,60}))?\) ?"),
    ("(", "", "", r"\((?:raylet|autoscaler|gcs_server)(?:, ?ip=(?P<host>[\w.:]{1,60}))?\) ?"),
    (_DIGITS, "start", ": ", r"(?P<rank>\d{1,5}): (?=\S| )(?!0x)"),  # srun --label
    (" ", "start", ": ", r" {1,3}(?P<rank>\d{1,5}): (?!0x|\w+::)(?=\S)"),
    (_DIGITS + _ANY, "start", " [", r"[\w.-]{1,60}/\d{1,6} (?=\[(?:default|rank)\d)"),
    # pdsh, DeepSpeed's launcher
    ("nwhgcsidm", "start", ": ", rf"{_HOSTS}: (?=\S)"),
    (_SMALL + _DIGITS, "start", " | ", r"[a-z][a-z0-9_.-]{0,60} +\| (?![^\n]{0,300} \| )"),  # docker compose
    # docker buildx: the excerpt of a failed step, and a step's plain output
    (_DIGITS, "start", "", r"\d{1,5}\.\d{1,3} (?![kKMGTm]i?B\b|m?s\b|it/s)(?P<build>)(?=[A-Za-z/\[\"'-])"),
    ("#", "start", "", r"#\d{1,4} (?P<build>(?:\d{1,5}\.\d{1,3} )?)"),
    ("#", "", "##[", r"##\[(?P<level>error|warning|group|debug|command|endgroup)\] ?"),  # GitHub Actions, Azure
    # --- kernels ---------------------------------------------------------------------------------------------------
    ("<", "start", "", r"<\d{1,3}>(?=[\[\w ])"),
    ("[", "", "", r"\[ {0,6}(?P<boot>\d{1,9}\.\d{6})\](?: {0,2}\[ {0,6}[TC]\d{1,9}\])?(?: |(?=[A-Z])|$)"),
    (_DIGITS, "start", ";", r"\d{1,4},\d{1,12},(?P<usec>\d{1,18}),[^;\s]{1,60};"),  # /dev/kmsg
    ("kuds", "", ":", r"(?:kern|user|daemon|syslog) {0,4}:(?P<level>[a-z]{1,7}) {0,3}: "),  # dmesg --decode
    (_ANY + _DIGITS, "", "kernel:", rf"(?:{_HOST} )?(?P<kernel>kernel): ?"),
    # --- times -----------------------------------------------------------------------------------------------------
    *((first, "", ":", rf"(?P<dated>){when}{_AFTER_TIME}") for first, when in _DATED),
    *(("[", "", ":", rf"(?P<dated>)\[{when}(?:[ ,|][^\]\n]{{0,80}})?\](?: ?[:|-] | ?: ?| ?)") for _, when in _DATED),
    ("(", "", ":", rf"(?P<dated>)\({_DATED[0][1]}\):? ?"),
    ("012", "", ":", r"[0-2]\d:[0-5]\d:[0-6]\d(?:[.,]\d{1,9})?(?: (?:-|:|\|) ?|: | )"),
    ("[", "", ":", r"\[[0-2]\d:[0-5]\d:[0-6]\d(?:[.,]\d{1,9})?\]:? ?"),
    # glog, klog, absl and c10's logger, with and without the brackets that c10 puts around it
    ("[", "", ":", rf"\[(?P<letter>[EWIFV])(?P<md>\d{{3,4}}) {_HMS} (?:\d{{1,9}} )?{_SOURCE_FILE}\] ?"),
    ("[", "", "", rf"\[(?P<letter>[EWIFV]) {_SOURCE_FILE}\] ?"),
    ("EWIFD", "", "] ", rf"(?P<letter>[EWIFD])(?P<Y>20\d\d)?(?P<md>\d{{4}}) {_HMS} {{1,8}}{_PID} {_SOURCE_FILE}\] ?"),
    ("EWIF", "time", "] ", rf"(?P<letter>[EWIF]) {_SOURCE_FILE}\] ?"),  # TensorFlow, after its own time
    # --- loggers ---------------------------------------------------------------------------------------------------
    ("[", "", "|", rf"\[{_LEVEL}\|[^\]\n]{{1,100}}\]:? ?"),  # transformers
    ("[", "", "", rf"\[ ?{_LEVEL} ?\](?: ?[:-] ?| ?)"),
    ("[", "time", "", r"\[(?P<level>trace|debug|info|warn|warning|error|critical|fatal) *\](?: ?[:-] ?| ?)"),
    (_LOUDNESS, "", " [", rf"{_LEVEL} +\[{_MD}[^\]\n]{{0,60}}\]:? ?"),
    (_LOUDNESS, "", ":", rf"{_LEVEL} +{_MD} +(?:\[{_SOURCE_FILE}\]|{_SOURCE_FILE}\]) ?"),  # vLLM
    (_LOUDNESS, "", ":", rf"{_LEVEL}:(?=[A-Za-z_])[A-Za-z_][\w.]{{0,120}}:(?!:)"),  # logging.basicConfig
    (_LOUDNESS, "", ":", rf"{_LEVEL}: ?"),
    (_LOUDNESS, "time", "| ", rf"{_LEVEL} *\| (?:[\w.<>]{{1,100}}:[\w<>]{{1,100}}:\d{{1,7}} - )?"),  # loguru
    (_LOUDNESS, "time", " - ", rf"{_LEVEL} - (?:[A-Za-z_][\w.]{{0,100}} - )?"),
    (_ANY + "_", "time", " - ", rf"[A-Za-z_][\w.]{{0,100}}(?::\d{{1,7}})? - {_LEVEL} - "),
    (_LOUDNESS, "time", "", rf"{_LEVEL}(?: {{1,6}}\[[^\]\n]{{1,100}}\])?:? *(?:{_TARGET}: )?"),
    ("s", "time", "std", r"std(?:out|err) [FP] "),  # Kubernetes' container runtimes
    # syslog
    (_ANY + _DIGITS, "date", "]: ", rf"{_HOST} (?P<tag>[A-Za-z][\w./-]{{0,60}})\[{_PID}\]: "),
    (_ANY + _DIGITS, "date", ": ", rf"{_HOST} {_DAEMONS}: "),
    ("[", "time", "", r"\[(?!c10d\])[\w.:/<>*-]{1,80}(?: \(pid (?P<pid>\d{1,8})\))?\](?: ?[:-] | ?)"),
    (_ANY + _DIGITS, "", "NCCL ", rf"{_HOST}:{_PID}:\d{{1,9}} \[-?\d{{1,3}}\] (?=[^\n]{{0,200}}NCCL )"),
    ("E", "", "E  ", r"E {3}(?=\S| )"),  # pytest
)
_BAR = re.compile(
    r"[^|\n]{0,160}\|[^|\n]{0,250}\| *[\d.]{1,12}[kKMG]?/[\d.?]{1,12}[kKMG]? \[[^\]\n]{0,100}\](?=[^\s,\]])"
)
_QUOTE = re.compile(r"(?:> ?){1,6}(?![>\d])")
_TALKING_RANK = re.compile(r"\[(?:PG [^\]\n]{0,80}?)?[Rr]ank (\d{1,6})\]")
_LETTERS = {"E": "error", "W": "warning", "I": "info", "F": "fatal", "D": "debug", "V": "debug"}
_LEVELS = {"warn": "warning", "err": "error", "critical": "fatal", "severe": "fatal", "crit": "fatal"}
_PROMPT = re.compile(
    r"\s{0,8}(?:(?:\([\w.-]{1,60}\) ?)?"
    r"(?:[\w.-]{1,40}@[\w.-]{1,80}(?:[: [][^\n$#]{0,120})?[$#]|\$|[A-Z]:\\[^>\n]{0,100}>|PS [^>\n]{1,100}>)(?: |$)"
    r"|>>> |In \[\d{1,5}\]: |\+{1,3} [\w./-]|\[[\w.-]{1,40}@[\w.-]{1,80} [^\]\n]{1,80}\][$#] )"
)
_SOURCES = {
    "kernel": ("NVRM:", "nvidia-nvswitch", "nvidia-nvlink:"),
    "slurm": ("slurmstepd", "srun: ", "sbatch: ", "salloc: ", "slurmd"),
    "docker": ("docker: ", "Error response from daemon", "nvidia-container-cli:", "time="),
}
_SLURM_HOST = re.compile(r"slurmstepd-(?P<host>[\w-]{1,80}): |srun: error: (?P<other>[\w-]{1,80}): task")
_TAGS = {"kernel": "kernel", "dockerd": "docker", "containerd": "docker", "kubelet": "kubernetes"}


@dataclass(slots=True)
class LogMessage:
    """What one line says once its prefixes are off; ``at`` is where the text begins in the raw line.

    ``quoted`` is a line that begins with a Markdown quotation mark, ``prompt`` one at which somebody typed a command.
    """

    text: str
    at: int = 0
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    time_s: float | None = None
    clock: str = ""
    level: str = ""
    source: str = "program"
    quoted: bool = False
    prompt: bool = False


def strip(raw: str) -> LogMessage:
    """Takes the prefixes off one line (without its end, terminal escapes gone)."""
    said = LogMessage(raw)
    at = 0
    timed = dated = False
    if raw.startswith(">") and not raw.startswith(">>>") and (quote := _QUOTE.match(raw)):
        said.quoted = True
        at = quote.end()
    if "[" in raw and "|" in raw and ("it/s" in raw or "s/it" in raw or "B/s" in raw) and (bar := _BAR.match(raw, at)):
        at = bar.end()
    for depth in range(_DEEPEST):
        match = _one(raw, at, depth == 0, timed, dated)
        if match is None:
            break
        at = match.end()
        found = match.groupdict()
        dated = dated or "dated" in found
        timed = timed or dated or any(found.get(name) for name in ("level", "letter", "boot"))
        _note(said, found, raw)
    said.at = at
    said.text = raw[at:] if at else raw
    _sound(said)
    return said


_Rule = tuple[str, Callable[[str, int], re.Match[str] | None]]


def _tables() -> dict[tuple[bool, bool, bool], dict[str, tuple[_Rule, ...]]]:
    """The rules by what was taken before (nothing, a time or level, a date) and by the first character."""
    compiled = [(firsts, need, literal, re.compile(pattern).match) for firsts, need, literal, pattern in _RULES]
    tables: dict[tuple[bool, bool, bool], dict[str, tuple[_Rule, ...]]] = {}
    for start, timed, dated in product((False, True), repeat=3):
        holds = {"": True, "start": start, "time": timed, "date": dated}
        tables[start, timed, dated] = {
            letter: tuple((held, match) for firsts, need, held, match in compiled if letter in firsts and holds[need])
            for letter in {letter for firsts, *_ in compiled for letter in firsts}
        }
    return tables


_TABLES = _tables()


def _one(raw: str, at: int, start: bool, timed: bool, dated: bool) -> re.Match[str] | None:
    """The first rule that fits here; None where the program itself speaks."""
    for literal, match in _TABLES[start, timed, dated].get(raw[at : at + 1], ()):
        if literal in raw and (found := match(raw, at)) is not None and found.end() > at:
            return found
    return None


def _note(said: LogMessage, found: dict[str, str | None], raw: str) -> None:
    """Keeps what a prefix told; of two that speak of one thing the outer one is the launcher's and counts, of two
    times the first, which is the collector's where there is one and so the same clock for all."""
    if (rank := found.get("rank")) is not None:
        said.rank = int(rank)
    elif (who := found.get("who")) and (named := re.search(r"\brank[= ]?(\d{1,6})", who)):
        said.rank = int(named.group(1))
    if (host := found.get("host")) and not said.host:
        said.host = host
    if (pid := found.get("pid")) is not None and said.pid is None:
        said.pid = int(pid)
    if level := found.get("level"):
        said.level = _LEVELS.get(level.lower(), level.lower())
    elif letter := found.get("letter"):
        said.level = _LETTERS[letter]
    if found.get("kernel"):
        said.source = "kernel"
    elif tag := found.get("tag"):
        said.source = _TAGS.get(tag, "slurm" if tag.startswith("slurm") else said.source)
    elif "build" in found:
        said.source = "build"
    if said.time_s is None:
        if boot := found.get("boot"):
            said.time_s, said.clock, said.source = float(boot), "boot", "kernel"
        elif usec := found.get("usec"):
            said.time_s, said.clock, said.source = int(usec) / 1e6, "boot", "kernel"
        elif found.get("h"):
            said.time_s = _epoch(found)
            said.clock = "wall" if said.time_s is not None else ""
    elif found.get("boot"):
        said.source = "kernel"


def _epoch(found: dict[str, str | None]) -> float | None:
    """Seconds since the epoch; without a zone as if UTC, without a year in NO_YEAR."""
    month = found.get("M") or str(_MONTHS.get((found.get("mon") or "").lower(), 0))
    day = found.get("D")
    if packed := found.get("md"):
        # "0318" of glog; c10 writes the month without its zero: "318"
        month, day = packed[:-2], packed[-2:]
    year = int(found["Y"] or 0) if found.get("Y") else 2000 + int(found["y"] or 0) if found.get("y") else NO_YEAR
    hour, minute, second = (int(found[name] or 0) for name in ("h", "m", "s"))
    try:
        when = datetime(year, int(month), int(day or 0), hour, minute, min(second, 59), tzinfo=_zone(found.get("z")))
    except ValueError:
        return None
    return when.timestamp() + float(f"0.{found.get('f') or 0}")


def _zone(written: str | None) -> timezone:
    if not written or written[0] not in "+-":
        return UTC
    minutes = int(written[1:3]) * 60 + int(written[-2:])
    if minutes >= 24 * 60:
        return UTC
    return timezone(timedelta(minutes=minutes if written[0] == "+" else -minutes))


def _sound(said: LogMessage) -> None:
    """What the text itself tells of who speaks."""
    text = said.text
    if said.rank is None and text.startswith("[") and (talking := _TALKING_RANK.match(text)):
        said.rank = int(talking.group(1))
    said.prompt = _PROMPT.match(text) is not None
    if said.source == "program":
        said.source = next((source for source, starts in _SOURCES.items() if text.startswith(starts)), said.source)
        if said.source == "slurm" and (named := _SLURM_HOST.match(text)):
            said.host = said.host or named.group("host") or named.group("other")


_NAMED_RANK = (
    re.compile(r"(?i)(?:^|[^a-z])(?:global_?)?rank[_.=-]?(\d{1,5})(?!\d)"),
    re.compile(r"(?i)(?:^|[^a-z])(?:worker|task|proc|process|trainer)[_.=-]?(\d{1,5})(?!\d)"),
    re.compile(r"(?i)(?:^|/)(\d{1,5})[_.-](?:std)?(?:err|out)(?:or|put)?(?:\.\w{1,5})?$"),
    re.compile(r"(?i)(?:^|/)(?:attempt_\d+/)(\d{1,5})/std(?:err|out)\.log$"),
    re.compile(r"(?i)(?:std)?(?:err|out)[_.-](\d{1,5})$"),
)


def rank_of_name(name: str) -> int | None:
    """The rank that a file's name tells, as in "rank3.log", "worker-3.err", "0_stderr" or "attempt_0/3/stderr.log"."""
    found = next((ranks for rule in _NAMED_RANK if (ranks := rule.findall(name))), None)
    return int(found[-1]) if found else None
