"""`envkit check`: files to verdict, in the form that was asked for."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from envkit import facts as tables
from envkit import report
from envkit.dockerfile.files import LARGEST
from envkit.errors import EnvkitError, UsageError
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Edit, Outcome, Report, Severity
from envkit.records import dataclass
from envkit.static import ASKED, READ, AskIndex, CheckOptions, JudgedFile, baseline, fixes, ignores, pin, run, settings
from envkit.static.judged import subjects
from envkit.static.kinds import by_name
from envkit.system import files
from envkit.versions import Driver

FORMATS = ("console", "json", "sarif", "github", "gitlab", "junit", "html")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What the command line says; the defaults are those of its options."""

    paths: tuple[str, ...] = ()
    context: Path | None = None
    gpus: tuple[str, ...] = ()
    driver: str = ""
    host: Path | None = None  # a machine that `doctor --save` wrote, in the place of ``gpus`` and ``driver``
    config: Path | None = None
    baseline: Path | None = None
    write_baseline: Path | None = None
    only: tuple[str, ...] = ()
    if_any: bool = False
    start: str = ""  # FILE or FILE#SERVICE; without paths it alone is judged
    strict: bool = False
    since: str = ""  # only what differs from that commit
    fleet: Path | None = None  # the machines of a file, each in the place of ``gpus`` and ``driver``
    on_stdin: str = ""  # the file, there or not, whose text is on stdin; "-" in ``paths`` is one without a name
    ask: AskIndex | None = None  # that the package index is asked what installs bring


@dataclass(frozen=True, slots=True)
class Answer:
    """The files as judged and their one report; ``code`` is what the process should exit by."""

    judged: tuple[JudgedFile, ...]
    report: Report

    def code(self, least: Severity, if_any: bool = False) -> int:
        """1 found, 2 where a file could not be read, 3 undecided, 0 nothing; what is certain outranks what is not.

        With ``if_any`` it is 0 too where no check applies to any of the files; doubt stays doubt.
        """
        found = self.report.exit_code(least)
        if found != 1 and any(each.unreadable for each in self.judged):
            return 2
        skipped = all(result.outcome is Outcome.SKIP for result in self.report.results)
        return 0 if found == 3 and if_any and skipped else found


def answer(asked: CheckRequest, config: settings.Settings) -> Answer:
    """Checks what was asked for; raises UsageError, and Undecided where there is nothing, unless ``asked.if_any``."""
    started = time.monotonic()
    check_options = _check_options(asked, config, tables.load())
    for name in asked.only:
        if name not in checks():
            raise UsageError(f"there is no check `{name}`", "see `envkit check --list`")
    # Before the work: a baseline that cannot be read is known at once.
    known = baseline.load(asked.baseline) if asked.baseline and not asked.write_baseline else None
    paths = (asked.on_stdin,) if asked.on_stdin else asked.paths or (() if asked.start else (".",))
    if asked.on_stdin:
        found: tuple[tuple[Path, str], ...] = ((Path(asked.on_stdin), by_name(Path(asked.on_stdin).name)),)
    else:
        found = run.gather(paths, config, asked.if_any or bool(asked.since)) if paths else ()
    if asked.since and found:
        from envkit.static import since  # most runs ask of every file

        found = since.changed(found, asked.since)
    judged = run.check(found, check_options, config) if found else ()
    if asked.fleet is not None:
        from envkit.static import fleet  # most runs ask of one machine

        machines = fleet.load(asked.fleet, tables.load())
        judged = fleet.judged(judged, machines, check_options, lambda each: run.check(found, each, config))
    if asked.start:
        from envkit.static import starts  # most runs have no use for it

        dockerfiles = [path for path, kind in found if kind == "dockerfile"]
        built = dockerfiles[0] if len(dockerfiles) == 1 else None
        judged = (*judged, starts.judged(asked.start, built, check_options, tables.load()))
    if not judged and not asked.if_any and not asked.since:
        raise run.nothing(paths)
    if asked.only:
        kept = {*asked.only, READ, *(() if asked.ask is None else (ASKED,))}
        judged = tuple(replace(each, results=tuple(r for r in each.results if r.check in kept)) for each in judged)
    if known is not None and asked.baseline:
        judged = baseline.applied(judged, asked.baseline, known)
    return Answer(judged, run.merged(judged, time.monotonic() - started))


def remarks(found: Answer, asked: CheckRequest | None = None) -> list[str]:
    """What a person should know beside the findings: files that could not be read, comments that ignore no check, and
    what is as without --resolve."""
    # A newline in a name must not begin a line, which a build's log may obey.
    names = {each.path: each.path.replace("\n", "\\n") for each in found.judged}
    said = [f"{names[each.path]} cannot be read: {each.unreadable}" for each in found.judged if each.unreadable]
    if asked is not None and asked.ask is not None:
        left = [names[each.path] for each in found.judged if each.kind not in ("dockerfile", "requirements")]
        said += [f"--resolve asks nothing for {name}: it follows Dockerfiles and requirements files" for name in left]
    for each in found.judged:
        comments = ignores.read(each.text, each.kind)
        for line, name in ignores.unknown(comments, checks()) if comments else ():
            said.append(f"{names[each.path]}:{line}: there is no check `{name}` to ignore")
    return said


def taken_down(found: Answer, path: Path) -> tuple[Answer, int]:
    """Writes the baseline at ``path``; gives what is left beside it (nothing) and how many findings it holds."""
    count = baseline.write(path, found.judged)
    judged = baseline.applied(found.judged, path, baseline.load(path))
    return Answer(judged, run.merged(judged, found.report.elapsed_s)), count


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}:\d{2}Z)?")


def asking(before: str, budget_s: float, say: Say) -> AskIndex:
    """That the index is asked, for at most ``budget_s`` seconds a file, as it was at the end of the day ``before``;
    raises UsageError for what is no day, and for a time without an end."""
    from datetime import datetime
    from math import isfinite

    if not isfinite(budget_s):
        raise UsageError("--resolve-budget takes a number of seconds", "write it as 120")
    try:
        if before and not _DAY.fullmatch(before):
            raise ValueError(before)
        datetime.fromisoformat(before or "2000-01-01")
    except ValueError as error:
        raise UsageError(f"`{before}` is no day", "write it as 2025-01-31") from error
    return AskIndex(budget_s, before, say)


def _check_options(asked: CheckRequest, config: settings.Settings, facts: Facts) -> CheckOptions:
    gpus, driver = asked.gpus or config.gpus, asked.driver or config.driver
    if asked.host is not None:
        from envkit.host.products import of_machine  # most runs have no use for either
        from envkit.subjects import Host, saved

        gpus, driver = of_machine(saved.of_kind(asked.host, Host), facts)
    for name in gpus:
        facts.gpu(name)  # raises UsageError with the nearest names
    if driver:
        try:
            Driver(driver)
        except ValueError as error:
            raise UsageError(
                f"`{driver}` is no driver version", "write a branch or a whole version, as nvidia-smi shows it"
            ) from error
    if asked.context is not None and not os.path.isdir(asked.context):
        raise UsageError(f"the build context {asked.context} is no folder", "name the folder that `docker build` gets")
    return CheckOptions(gpus, driver, asked.context, config.bases, asked.strict, _on_stdin(asked), asked.ask)


def _on_stdin(asked: CheckRequest) -> str:
    """The file on stdin as its path is written everywhere ("./a" is "a")."""
    return str(Path(asked.on_stdin)) if asked.on_stdin else "-"


def pinned(
    judged: Sequence[JudgedFile], ask: Callable[[], Callable[[str], str]], say: Say
) -> dict[str, tuple[Edit, ...]]:
    """The edits that write digests behind FROM's words, by path; ``say`` hears of each image that stays without one.

    ``ask`` is called once, where there is something to ask, and gives what knows a reference's digest; it may raise.
    """
    facts = tables.load()
    bases = {each.path: pin.unpinned(each, facts) for each in judged}
    wanted: set[str] = set()
    for each in judged:
        for base in bases[each.path]:
            why = pin.obstacle(base, each.text)
            if why:
                say(f"{base.span}: {base.reference} stays without a digest: {why}")
            else:
                wanted.add(base.reference)
    if not wanted:
        return {}
    try:
        known = pin.digests(wanted, ask(), say)
    except EnvkitError as error:  # no engine: nobody can be asked
        say(f"nothing was pinned: {error.message}")
        return {}
    return {each.path: pin.edits(each, bases[each.path], known) for each in judged}


def fixed(judged: Sequence[JudgedFile], more: dict[str, tuple[Edit, ...]]) -> tuple[str, dict[str, tuple[str, int]]]:
    """The diff of all safe fixes and of ``more``; and by path the new text with the number of things it fixes."""
    shown: list[str] = []
    texts: dict[str, tuple[str, int]] = {}
    for each in judged:
        text, count = fixes.fixed(each, more.get(each.path, ()))
        if count:
            shown.append(_without_credentials(fixes.diff(each, text)))
            texts[each.path] = (text, count)
    return "".join(shown), texts


def _without_credentials(diff: str) -> str:
    """A diff as it may end in a build's log; a hunk that held a credential does not apply as a patch."""
    from envkit.credentials import redacted_text

    return "".join(line[:1] + redacted_text(line[1:]) for line in re.findall(r"[^\n]*\n|[^\n]+", diff))


def write(judged: Sequence[JudgedFile], texts: dict[str, tuple[str, int]], say: Say) -> None:
    """Writes the new texts, each whole or not at all, with the file's mode; raises UsageError for stdin."""
    if "-" in texts:
        raise UsageError("stdin cannot be fixed", "name the file, or use --diff")
    for each in judged:
        if each.path not in texts:
            continue
        text, count = texts[each.path]
        path = Path(each.path)
        # The judged text is decoded; written back, bytes that are no UTF-8 would not be what they were.
        if _now(path) != each.text.encode("utf-8"):
            say(f"{each.path} was not changed: it is no valid UTF-8, or somebody else changed it meanwhile")
            continue
        files.write(files.beside(path.parent, path.name), text, path.stat().st_mode & 0o7777)
        say(f"{each.path}: {count} fixed")


def _now(path: Path) -> bytes | None:
    """What the file holds, None where it cannot be read any more."""
    try:
        return files.content(path, LARGEST)
    except OSError:
        return None


def printed(
    found: Answer, format: str, least: Severity, *, observed: bool, color: bool, width: int, detail: report.Detail
) -> str:
    """The answer in one of FORMATS; ``color``, ``width`` and ``detail`` are for the console alone."""
    if format == "console":
        from envkit.static import lines

        return lines.render(found.judged, found.report, least, color, width, detail)
    if format == "sarif":
        from envkit.static import sarif

        return sarif.render(found.judged)
    if format in ("github", "gitlab"):
        from envkit.static.annotations import github, gitlab

        return github(found.judged) if format == "github" else gitlab(found.judged)
    shown = found.report if observed else replace(found.report, observed={})
    return report.render(shown, format, fail_on=least)


def config_of(asked: CheckRequest) -> settings.Settings:
    """The settings of the named file, else of the nearest envkit.toml with a [check] table in the repository."""
    if asked.config is not None:
        return settings.load(asked.config, checks)
    for folder in (Path.cwd(), *Path.cwd().parents):
        path = folder / "envkit.toml"
        if path.is_file() and settings.is_there(path):
            return settings.load(path, checks)
        if (folder / ".git").exists():
            break
    return settings.Settings()


def checks() -> frozenset[str]:
    """The ids of the checks of files that people write."""
    kinds: tuple[Any, ...] = subjects()
    return frozenset(name for kind in kinds for name in judge.checks(kind))


def listed() -> str:
    """A line a check: id and title of its page."""
    from envkit.judging import pages

    names = sorted(checks())
    widest = max(map(len, names), default=0)
    return "".join(f"{name:{widest}}  {pages.load(name).title}\n" for name in names)
