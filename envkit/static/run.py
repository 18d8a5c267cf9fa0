"""Checks files: finds them, reads them with bounds, judges them side by side, and puts one report together."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from envkit import facts as tables
from envkit.dockerfile.files import LARGEST
from envkit.errors import Undecided, UsageError
from envkit.facts import Facts
from envkit.judging import doubts, judge
from envkit.model import Coverage, Outcome, Report, Result, Subject
from envkit.static import READ, CheckOptions, JudgedFile, ignores, whole
from envkit.static.judged import READERS, context_of, of_text
from envkit.static.kinds import BY_TEXT, KINDS, by_name, by_text
from envkit.static.settings import Settings
from envkit.static.walk import OUTSIDE, below
from envkit.system import files

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ALONE = 12  # files; for fewer, a second process costs more than it saves
_NAMED = 3  # files and reasons that a merged result names


def gather(paths: Sequence[str], settings: Settings, none: bool = False) -> tuple[tuple[Path, str], ...]:
    """The files that ``paths`` mean, each with the kind that its name promises ("" for one that was named and tells
    nothing).

    Raises UsageError for a path that does not exist, and Undecided where nothing is left to check, unless that is
    fine (``none``).
    """
    found: dict[Path, str] = {}
    for name in paths:
        path = Path(name)
        if name != "-" and os.path.isdir(name):
            held = list(below(path))
            if not held and by_name(path.name) not in ("", *BY_TEXT):
                raise UsageError(f"{name} is a folder, and nothing in it is to be checked", "name the file")
            for each, kind in held:
                if not settings.excludes(each):
                    found.setdefault(each, kind)
        elif name == "-" or os.path.lexists(name):
            found[path] = by_name(path.name)
        else:
            raise UsageError(
                f"{name} does not exist or may not be reached", "name a file, a folder, or - for a Dockerfile on stdin"
            )
    if not found and not none:
        raise nothing(paths)
    return tuple(found.items())


def nothing(paths: Sequence[str]) -> Undecided:
    """The error for paths without a file that envkit knows."""
    return Undecided(f"there is nothing to check in {', '.join(paths)}", f"envkit reads: {', '.join(KINDS.values())}")


def check(files: Sequence[tuple[Path, str]], check_options: CheckOptions, settings: Settings) -> tuple[JudgedFile, ...]:
    """Every file judged, in the order given; files that a walk met and that turn out to be none of ours are left out.

    Many files are shared out to as many processes as there are processors; none of them outlives this one.
    """
    whole.forget()
    facts = tables.load()
    workers = min(len(os.sched_getaffinity(0)), len(files) // _ALONE)
    if workers < 2:
        judged = [_one(path, kind, check_options, settings, facts) for path, kind in files]
    else:
        judged = _shared(files, check_options, settings, facts, workers)
    return tuple(each for each in judged if each is not None)


def _shared(
    files: Sequence[tuple[Path, str]], check_options: CheckOptions, settings: Settings, facts: Facts, workers: int
) -> list[JudgedFile | None]:
    """The files dealt out to forks, each of which sends its results back through a pipe.

    A share whose fork died, whatever of, is judged here once more, so that its fault shows.
    """

    def share(number: int) -> list[JudgedFile | None]:
        return [_one(path, kind, check_options, settings, facts) for path, kind in files[number::workers]]

    # The first file, judged before the forks, imports the checks and reads the tables that they then share.
    first = _one(*files[0], check_options, settings, facts)
    sys.stdout.flush()
    sys.stderr.flush()
    forks: list[tuple[int, int]] = []
    results: list[JudgedFile | None] = [None] * len(files)
    try:
        for number in range(1, workers):
            forks.append(_forked(partial(share, number)))
        results[0] = first
        results[workers::workers] = [_one(*each, check_options, settings, facts) for each in files[workers::workers]]
        for number, (_, read_end) in enumerate(forks, 1):
            with os.fdopen(read_end, "rb", closefd=False) as pipe:
                said = _unpickled(pipe.read())
            results[number::workers] = share(number) if said is None else said
    finally:
        for pid, read_end in forks:
            os.close(read_end)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return results


def _forked(work: Callable[[], object]) -> tuple[int, int]:
    """A fork that does ``work``: its process id and the pipe to read the pickled result from; it dies with us."""
    import ctypes
    import pickle

    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.close(read_end)
        with os.fdopen(write_end, "wb") as pipe:
            pickle.dump(work(), pipe, pickle.HIGHEST_PROTOCOL)
        code = 0
    finally:
        os._exit(code)  # nothing of the parent's clean-up is this child's to do


def _unpickled(data: bytes) -> list[JudgedFile | None] | None:
    """What a fork of this very process sent, None where it died before its end."""
    import pickle

    try:
        found: list[JudgedFile | None] = pickle.loads(data)
    except (EOFError, pickle.UnpicklingError):
        return None
    return found


def _one(path: Path, kind: str, check_options: CheckOptions, settings: Settings, facts: Facts) -> JudgedFile | None:
    """One file, judged; None for one that a walk met and whose text shows that it is none of ours."""
    name = str(path)
    if kind == OUTSIDE:
        return JudgedFile(name, by_name(path.name), unreadable="it is a link that leads out of the folder")
    text, why = text_of(path, check_options.on_stdin)
    if why and kind == "script":  # an installer that carries its archive, a module that ends in .def
        return None
    if why:
        return JudgedFile(name, kind, unreadable=why)
    if kind in ("", *BY_TEXT):
        shown = by_text(text, "" if name == "-" else path.name)
        if not shown and kind in BY_TEXT:
            return None
        if not shown:
            return JudgedFile(name, kind, unreadable=f"it is none of: {', '.join(KINDS.values())}")
        kind = shown
    if kind not in READERS:
        return None
    judged = judge.guarded(
        lambda: of_text(kind, text, name, context_of(path, kind, check_options, text), check_options, facts)
    )
    if isinstance(judged, str):
        return JudgedFile(name, kind, text, (Result(READ, Outcome.CRASHED, reason=judged),))
    results = ignores.weighed(judged.results, settings.severity, settings.path)
    left = ignores.applied(results, name, ignores.read(text, kind), cache(_beside))
    return replace(judged, results=doubts.every(left) if check_options.strict else doubts.once(left))


def _beside(path: str) -> tuple[ignores.Ignored, ...]:
    """The ignore comments of a file that a finding's place is in."""
    return ignores.read(text_of(Path(path))[0], by_name(Path(path).name))


def text_of(path: Path, on_stdin: str = "-") -> tuple[str, str]:
    """The text of a file, or a clause that says why not; bytes that are no UTF-8 are replaced, as Docker does.

    That of ``on_stdin`` is read from stdin.
    """
    try:
        raw = sys.stdin.buffer.read(LARGEST + 1) if str(path) == on_stdin else files.content(path, LARGEST)
    except FileNotFoundError:
        return "", "it leads nowhere"
    except OSError as error:
        return "", files.why(error)
    if len(raw) > LARGEST:
        return "", f"it has more than {LARGEST >> 20} MiB"
    if b"\0" in raw:
        return "", "it is no text, it holds zero bytes"
    return raw.decode("utf-8", "replace"), ""


def merged(judged: Sequence[JudgedFile], elapsed_s: float) -> Report:
    """One report of all files: a check's outcome is its worst, and its findings are those of all files in order.

    What stayed undecided in one file is not hidden by what was found in another: such a check has two results.
    """
    alone = judged[0] if len(judged) == 1 else None
    subject = Subject(alone.kind or "file", alone.path) if alone else Subject("files", f"{len(judged)} files")
    by_check: dict[str, list[tuple[str, Result]]] = {}
    for each in judged:
        read = Result(READ, Outcome.UNKNOWN, reason=each.unreadable)
        for result in (read,) if each.unreadable else each.results:
            by_check.setdefault(result.check, []).append((each.path, result))
    if alone:
        results = [result for found in by_check.values() for _, result in found]
        observed = alone.observed
    else:
        results = [result for check, found in sorted(by_check.items()) for result in _together(check, found)]
        observed = {"files": {each.path: each.observed for each in judged if each.observed}}
    on = Coverage(files=any(not each.unreadable for each in judged))
    return Report(subject, tuple(results), round(elapsed_s, 3), observed, on)


def _together(check: str, found: Sequence[tuple[str, Result]]) -> Iterator[Result]:
    """What a check says of several files."""
    said = {result.outcome for _, result in found}
    if Outcome.FAIL in said:
        yield Result(check, Outcome.FAIL, tuple(finding for _, result in found for finding in result.findings))
    for outcome in (Outcome.CRASHED, Outcome.UNKNOWN):
        if outcome in said:
            worst = max(result.at_most for _, result in found if result.outcome is outcome)
            yield Result(check, outcome, reason=_reasons(outcome, found), at_most=worst)
    if said <= {Outcome.PASS, Outcome.SKIP}:
        outcome = Outcome.PASS if Outcome.PASS in said else Outcome.SKIP
        yield Result(check, outcome, reason=_reasons(outcome, found) if outcome is Outcome.SKIP else "")


def _reasons(outcome: Outcome, found: Sequence[tuple[str, Result]]) -> str:
    """The reasons of those results, each with the files it is about; where none of them applies that is no news."""
    paths: dict[str, list[str]] = {}
    for path, result in found:
        if result.outcome is outcome:
            paths.setdefault(result.reason, []).append(path)
    said = [reason if outcome is Outcome.SKIP else f"{_some(where)}: {reason}" for reason, where in paths.items()]
    return "; ".join(said[:_NAMED]) + (f"; and {len(said) - _NAMED} more reasons" if len(said) > _NAMED else "")


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_NAMED]) + (f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else "")
