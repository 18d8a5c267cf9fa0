"""What launchers, loggers and terminals put before a program's own words, and what it tells: who, when, how loud.

Prefixes nest (a Kubernetes time before a rank label before a logger's), so rules are tried again until none fits.  A
rule takes only what its own form proves to be a prefix; a text that merely resembles one is left as it is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from itertools import product
from pathlib import Path
from sys import intern

from envkit.records import dataclass

NO_YEAR = 2000
"""The year of a time that was written without one; a leap year, and one in which no log of CUDA was written."""

_DEEPEST = 12  # prefixes before one message; the deepest seen in public logs is six
_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
_BAR = re.compile(
    r"[^|\n]{0,160}\|[^|\n]{0,250}\| *[\d.]{1,12}[kKMG]?/[\d.?]{1,12}[kKMG]? \[[^\]\n]{0,100}\](?=[^\s,\]])"
)
# what a quotation, a comment or a list puts before each line of a log that was pasted into it
_QUOTE = re.compile(r"(?:> ?){1,6}(?![>\d])|(?:#{1,6}|//|\*) (?:\d{1,3}(?:\.\d{1,3}){1,4} )?(?! {0,8}\d{1,6} \")")
_BOX = re.compile("\u2502 (?P<said>(?!.{0,200}[.]py:)[A-Z][^\u2502\u2771\n]{3,300}?) {1,200}\u2502$")  # a panel of Rich
_TALKING_RANK = re.compile(r"\[(?:PG [^\]\n]{0,80}?)?[Rr]ank (\d{1,6})\]")
_LETTERS = {"E": "error", "W": "warning", "I": "info", "F": "fatal", "D": "debug", "V": "debug", "C": "fatal"}
_LEVELS = {
    "warn": "warning", "err": "error", "critical": "fatal", "severe": "fatal", "crit": "fatal",
    "trc": "trace", "dbg": "debug", "inf": "info", "wrn": "warning", "ftl": "fatal", "pnc": "fatal",
    "trce": "trace", "dbug": "debug", "fail": "error",
}  # fmt: skip
_PROMPT = re.compile(
    r"\s{0,8}(?:(?:\([\w.-]{1,60}\) ?)?"
    r"(?:[\w.-]{1,40}@[\w.-]{1,80}(?:[: [][^\n$#]{0,120})?[$#]|\$|[A-Z]:\\[^>\n]{0,100}>|PS [^>\n]{1,100}>)(?: |$)"
    r"|>>> |In \[\d{1,5}\]: |commands(?:_pre|_post)?\[\d{1,3}\]> |exit \d{1,3} \([\d.]{1,9} seconds\) \S{1,200}> "
    r"|nox > (?![CRS]\w{3,9}\b|\*)|\+{1,3} [\w./-]|\[[\w.-]{1,40}@[\w.-]{1,80} [^\]\n]{1,80}\][$#] )"
)
_LOUD = 3  # the number of syslog's "error"; the smaller ones are worse, and a program's words bear the greater ones
_SOURCES = {
    "kernel": ("NVRM:", "nvidia-nvswitch", "nvidia-nvlink:"),
    "slurm": ("slurmstepd", "srun: ", "sbatch: ", "salloc: ", "slurmd"),
    "docker": ("docker: ", "Error response from daemon", "nvidia-container-cli:", "time="),
}
_SPEAKERS = tuple(start for starts in _SOURCES.values() for start in starts)
_SLURM_HOST = re.compile(r"slurmstepd-(?P<host>[\w-]{1,80}): |srun: error: (?P<other>[\w-]{1,80}): task")
_TAGS = {"kernel": "kernel", "dockerd": "docker", "containerd": "docker", "kubelet": "kubernetes"}


@dataclass(slots=True)
class LogMessage:
    """What one line says once its prefixes are off; ``at`` is where the text begins in the raw line, ``frame`` where
    that begins which was written before a collector put its own words before each line.

    ``quoted`` is a line that begins with the mark of a quotation, a comment or a list, ``prompt`` one at which somebody
    typed a command.  ``collected`` is what a collector says of a text that it wrote into a record of its own.
    """

    text: str
    at: int = 0
    frame: int = 0
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    time_s: float | None = None
    clock: str = ""
    level: str = ""
    source: str = "program"
    quoted: bool = False
    prompt: bool = False
    collected: bool = False


def strip(raw: str) -> LogMessage:
    """Takes the prefixes off one line (without its end, terminal escapes gone)."""
    said = LogMessage(raw)
    at = _marks(raw, 0, said)
    timed = dated = streams = False
    start = True
    for _ in range(_DEEPEST):
        if raw[at : at + 2] == "\u2502 " and at == said.frame and (box := _BOX.match(raw, at)):
            said.at, said.text = at + 2, box["said"]
            return said
        match = _one(raw, at, start, timed, dated)
        if match is None:
            break
        found = match.groupdict()
        if said.frame and "outermost" in found and not streams:
            break  # a number before a test's lines, as ctest puts it there, is no rank's in what others collect
        at = match.end()
        if "framed" in found and match.start() == said.frame:
            # What a collector puts before each line says nothing of how the program begins its own.
            said.frame, streams = at, bool(found.get("streams"))
            _note(said, found)
            at = _marks(raw, at, said)
            continue
        start = "collected" in found
        dated = dated or "dated" in found
        timed = timed or dated or "timed" in found
        timed = timed or bool(found.get("level") or found.get("letter") or found.get("boot"))
        _note(said, found)
    said.at = at
    said.text = raw[at:] if at else raw
    _sound(said)
    return said


def _marks(raw: str, at: int, said: LogMessage) -> int:
    """Where the text begins behind the mark of a quotation and behind a bar that no end of line parts from it."""
    first = raw[at : at + 3]
    if first.startswith((">", "#", "//", "* ")) and first != ">>>" and (quote := _QUOTE.match(raw, at)):
        said.quoted = True
        at = quote.end()
    if "[" in raw and "|" in raw and ("it/s" in raw or "s/it" in raw or "B/s" in raw) and (bar := _BAR.match(raw, at)):
        at = bar.end()
    return at


_Rule = tuple[str, Callable[[str, int], re.Match[str] | None]]


def _rules() -> Iterator[tuple[str, str, str, str]]:
    """The rules of ``prefixes.toml`` with their parts and dates filled in: first characters, need, literal, form."""
    told = tomllib.loads(Path(__file__).with_name("prefixes.toml").read_text("utf-8"))

    def whole(form: str) -> str:
        return re.sub(r"\(\?&(\w+)\)", lambda part: whole(told["parts"][part[1]]), form)

    for firsts, need, literal, form in told["rules"]:
        for date, its in told["dates"].items() if "(?&DATED)" in form else (("", firsts),):
            yield firsts or its, need, literal, whole(form.replace("DATED", date))


def _tables() -> dict[tuple[bool, bool, bool], dict[str, tuple[_Rule, ...]]]:
    """The rules by what was taken before (nothing, a time or level, a date) and by the first character."""
    compiled = [
        (re.compile(f"[{firsts}]").match, need, (literal, re.compile(form).match))
        for firsts, need, literal, form in _rules()
    ]
    tables: dict[tuple[bool, bool, bool], dict[str, tuple[_Rule, ...]]] = {}
    for start, timed, dated in product((False, True), repeat=3):
        holds = {"": True, "start": start, "time": timed, "date": dated}
        tables[start, timed, dated] = {
            letter: tuple(rule for begins, need, rule in compiled if begins(letter) and holds[need])
            for letter in map(chr, range(128))
        }
    return tables


_TABLES = _tables()


def _one(raw: str, at: int, start: bool, timed: bool, dated: bool) -> re.Match[str] | None:
    """The first rule that fits here; None where the program itself speaks."""
    for literal, match in _TABLES[start, timed, dated].get(raw[at : at + 1], ()):
        if literal in raw and (found := match(raw, at)) is not None and found.end() > at:
            return found
    return None


def _note(said: LogMessage, found: dict[str, str | None]) -> None:
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
        said.level = intern(_LEVELS.get(level.lower(), level.lower()))
    elif letter := found.get("letter"):
        said.level = _LETTERS[letter]
    elif (severity := found.get("severity")) and int(severity) % 8 <= _LOUD and found.get("tag") != "kernel":
        said.level = "error" if int(severity) % 8 == _LOUD else "fatal"
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
    of = found.get
    midnight = _midnight(of("Y"), of("y"), of("M"), of("mon"), of("D"), of("md"), of("z"))
    hour, minute, second = int(found["h"] or 0), int(found["m"] or 0), int(found["s"] or 0)
    if half := of("half"):
        hour = hour % 12 + 12 * (half == "PM")
    if midnight is None or hour > 23 or minute > 59:
        return None
    return midnight + hour * 3600 + minute * 60 + min(second, 59) + float(f"0.{of('f') or 0}")


@lru_cache(1 << 10)
def _midnight(
    year: str | None, short: str | None, month: str | None, name: str | None, day: str | None, packed: str | None,
    zone: str | None,
) -> float | None:  # fmt: skip
    """When a day begins, from what a line writes of it; a log has few days and many lines."""
    month = month or str(_MONTHS.get((name or "").lower(), 0))
    if packed:
        # "0318" of glog; c10 writes the month without its zero: "318"
        month, day = packed[:-2], packed[-2:]
    in_full = int(year) if year else 2000 + int(short) if short else NO_YEAR
    try:
        return datetime(in_full, int(month), int(day or 0), tzinfo=_zone(zone)).timestamp()
    except ValueError:
        return None


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
        if text.startswith(_SPEAKERS):
            said.source = next(source for source, starts in _SOURCES.items() if text.startswith(starts))
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
