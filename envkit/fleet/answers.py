"""A judged run as text: one line, console, JSON with its schema, JUnit, Prometheus, a page, and lists of nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envkit import __version__
from envkit.credentials import redacted_plain, redacted_text
from envkit.errors import UsageError, one_line
from envkit.fleet import hostlist
from envkit.fleet.evidence import Crossing, Tried
from envkit.fleet.links import LinkVerdict
from envkit.fleet.verdict import FleetVerdict, NodeVerdict, State, by_cause
from envkit.model import Finding, Outcome, Report, Result, Severity, Subject
from envkit.report import render as rendered
from envkit.report.page import filled
from envkit.report.text import wrapped
from envkit.system import files

SCHEMA = "envkit.fleet/1"
_MOST_COLUMNS = 40  # checks beside one another on the page
_MOST_ROWS = 2000  # nodes on the page; healthy ones are left out first
_SHOWN = 4000  # characters of the nodes that one line names
_WORDS = {0: "PASS", 1: "FAIL", 3: "UNDECIDED"}
_OUTCOMES = {State.OK: Outcome.PASS, State.FAIL: Outcome.FAIL, State.UNKNOWN: Outcome.UNKNOWN}


def line(verdict: FleetVerdict) -> str:
    """The verdict in one line, with the nodes that are not ok."""
    counts = [f"{len(verdict.named(State.OK))} of {len(verdict.nodes)} nodes ok"]
    for state, word in ((State.FAIL, "failed"), (State.UNKNOWN, "unknown")):
        if names := verdict.named(state):
            counts.append(f"{len(names)} {word} ({_shown(hostlist.compressed(names))})")
    if verdict.links is not None:
        counts += _link_counts(verdict.links)
    return f"{_WORDS[verdict.exit_code]}: run {verdict.run.run}: {'; '.join(counts)}"


def _link_counts(links: LinkVerdict) -> list[str]:
    """The links and boundaries that are not ok, each kind counted, and how much was tried."""
    made: list[str] = []
    for one, many, sure in (("bad link", "bad links", True), ("unsteady link", "unsteady links", False)):
        found = [_ends(each) for each in links.crossings if each.sure is sure]
        if found:
            made.append(f"{len(found)} {one if len(found) == 1 else many} ({_shown(', '.join(found))})")
    return [*made, f"{links.trials} trials of links in {links.rounds} rounds"]


def _ends(crossing: Crossing) -> str:
    """Both sides of a link or a boundary, by the names of their domains where they have some."""
    sides = (crossing.one, crossing.two)
    return " with ".join(name or hostlist.compressed(side) for name, side in zip(crossing.names, sides, strict=True))


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def excluded(verdict: FleetVerdict) -> str:
    """The nodes that no job should get, as Slurm's --exclude takes them: those that are not ok, and one end of each bad
    link; empty where all are ok."""
    return hostlist.compressed(verdict.left_out())


def console(verdict: FleetVerdict, width: int) -> str:
    """For a person: the verdict, then the nodes that are not ok, those of one cause together."""
    lines = wrapped(line(verdict), width, rest="  ")
    for state, sentence, names in by_cause(verdict):
        word = "failed" if state is State.FAIL else "unknown"
        lines += [
            "",
            *wrapped(f"{word}: {_shown(hostlist.compressed(names))}: {redacted_text(sentence)}", width, rest="  "),
        ]
        example = next(one for one in verdict.nodes if one.node == names[0])
        for text in _more(example, sentence):
            lines += wrapped(redacted_text(text), width, first="  also: ", rest="    ")
        fix = next((one.fix for one in example.findings if one.message == sentence and one.fix), "")
        if fix:
            lines += wrapped(redacted_text(fix), width, first="  fix: ", rest="    ")
    lines += _console_links(verdict, width)
    if verdict.rejected:
        lines += ["", f"refused: {len(verdict.rejected)} files or groups of lines are no answer of this run"]
        for each in verdict.rejected[:10]:
            lines += wrapped(f"{each.source}: {each.why}", width, first="  ", rest="    ")
        if len(verdict.rejected) > 10:
            lines.append(f"  and {len(verdict.rejected) - 10} more")
    if verdict.not_compared:
        lines += [
            "",
            *wrapped(f"not compared, for no node could read it: {', '.join(verdict.not_compared)}", width, rest="  "),
        ]
    if text := excluded(verdict):
        lines += ["", f"--exclude={_shown(text)}"]
    return "\n".join(lines) + "\n"


def _console_links(verdict: FleetVerdict, width: int) -> list[str]:
    lines: list[str] = []
    for word, ends, why in link_lines(verdict):
        told = f"{word}: {_shown(ends)}: {why}" if ends else f"{word}: {why}"
        lines += ["", *wrapped(redacted_text(told), width, rest="  ")]
    return lines


def link_lines(verdict: FleetVerdict) -> list[tuple[str, str, str]]:
    """What trials of links found beside bad nodes: a word for it, its ends, and one sentence."""
    if verdict.links is None:
        return []
    made = [("bad network", "", text) for text in verdict.network]
    for one in verdict.links.crossings:
        kind = "link" if one.is_link else "boundary"
        made.append((f"{'bad' if one.sure else 'unsteady'} {kind}", _ends(one), one.why))
    return made + [("links undecided", "", text) for text in verdict.links.open]


def _more(one: NodeVerdict, sentence: str) -> list[str]:
    texts = [each.message for each in one.findings if each.severity is Severity.ERROR] + list(one.reasons)
    rest = [text for text in texts if text != sentence]
    return rest[:3] + ([f"and {len(rest) - 3} more"] if len(rest) > 3 else [])


def plain(verdict: FleetVerdict) -> dict[str, Any]:
    """The document of the shape ``fleet-1.schema.json``."""
    run = verdict.run
    return {
        "schema": SCHEMA,
        "tool": {"name": "envkit", "version": __version__},
        "run": {"name": run.run, "level": run.level, "launcher": run.launcher, "budget_s": run.budget_s},
        "verdict": {0: "pass", 1: "fail", 3: "undecided"}[verdict.exit_code],
        "expected": len(verdict.nodes),
        "ok": list(verdict.named(State.OK)),
        "fail": list(verdict.named(State.FAIL)),
        "unknown": list(verdict.named(State.UNKNOWN)),
        "exclude": excluded(verdict),
        "nodes": [_plain_node(one) for one in verdict.nodes],
        "refused": [{"source": one.source, "node": one.node, "why": one.why} for one in verdict.rejected],
        "not_compared": list(verdict.not_compared),
        "links": _plain_links(verdict),
    }


def _plain_links(verdict: FleetVerdict) -> dict[str, Any] | None:
    links = verdict.links
    if links is None:
        return None
    return {
        "test": verdict.run.links,
        "rounds": links.rounds,
        "trials": links.trials,
        "found": [
            {
                "kind": "link" if one.is_link else "boundary",
                "state": "fail" if one.sure else "unknown",
                "how": one.how.value,
                "one": list(one.one),
                "two": list(one.two),
                "domains": list(one.names),
                "message": one.why,
            }
            for one in links.crossings
        ],
        "network": list(verdict.network),
        "open": list(links.open),
    }


def _plain_node(one: NodeVerdict) -> dict[str, Any]:
    return {
        "node": one.node,
        "state": one.state.value,
        "cause": one.cause.value,
        "class": one.hardware,
        "started": one.started,
        "ended": one.ended,
        "findings": [
            {"severity": each.severity.name.lower(), "message": each.message, "fix": each.fix} for each in one.findings
        ],
        "open": list(one.reasons),
    }


def to_json(verdict: FleetVerdict) -> str:
    return json.dumps(redacted_plain(plain(verdict)), indent=1, allow_nan=False) + "\n"


def report(verdict: FleetVerdict) -> Report:
    """The run as a report in which each node is a check, for the formats that know checks alone."""
    links = (_of_links(verdict),) if verdict.links is not None else ()
    return Report(Subject("fleet", verdict.run.run), (*(_result(one) for one in verdict.nodes), *links))


def _of_links(verdict: FleetVerdict) -> Result:
    """The links of all nodes together; those of a bad node are that node's."""
    told = [(word, f"{ends}: {why}" if ends else why) for word, ends, why in link_lines(verdict)]
    failed = tuple(Finding(text) for word, text in told if word.startswith("bad"))
    if failed:
        return Result("links", Outcome.FAIL, failed)
    reason = "; ".join(text for _, text in told)
    return Result("links", Outcome.UNKNOWN if told else Outcome.PASS, reason=reason)


def _result(one: NodeVerdict) -> Result:
    outcome = _OUTCOMES[one.state]
    if outcome is Outcome.FAIL:
        return Result(one.node, outcome, one.findings)
    return Result(one.node, outcome, reason="; ".join(one.reasons))


def page(verdict: FleetVerdict) -> str:
    """One page: each node that is not ok with its checks, the pairs that were tried, and when each node was at work."""
    bad = [one for one in verdict.nodes if one.state is not State.OK]
    rows = [*bad, *(one for one in verdict.nodes if one.state is State.OK)][:_MOST_ROWS]
    counted: dict[str, int] = {}
    for one in verdict.nodes:
        for check, outcome in one.checks.items():
            counted[check] = counted.get(check, 0) + (outcome != "pass")
    columns = sorted(counted, key=lambda check: (-counted[check], check))[:_MOST_COLUMNS]
    times = [(one.started, one.ended) for one in rows if one.ended]
    first, last = (min(one for one, _ in times), max(two for _, two in times)) if times else (0.0, 0.0)
    span = max(last - first, 1e-3)
    return filled(
        "fleet.html.j2",
        {
            "line": redacted_text(line(verdict)),
            "verdict": {0: "pass", 1: "fail", 3: "undecided"}[verdict.exit_code],
            "columns": columns,
            "hidden": len(counted) - len(columns),
            "left_out": len(verdict.nodes) - len(rows),
            "seconds": f"{last - first:.1f}",
            "links": [(word, _shown(ends), redacted_text(why)) for word, ends, why in link_lines(verdict)[:_MOST_ROWS]],
            "matrix": _matrix(verdict),
            "exclude": excluded(verdict),
            "rows": [
                {
                    "node": one.node,
                    "state": one.state.value,
                    "sentence": redacted_text(one.sentence),
                    "hardware": one.hardware or "",
                    "cells": [one.checks.get(check, "") for check in columns],
                    "left": round(100 * (one.started - first) / span, 2) if one.ended else 0.0,
                    "wide": round(max(100 * (one.ended - one.started) / span, 0.5), 2) if one.ended else 0.0,
                }
                for one in rows
            ],
        },
    )


def _matrix(verdict: FleetVerdict) -> dict[str, Any]:
    """What came of the pairs that were tried, node by node, those with bad trials first; ``left_out`` counts nodes
    that have no room."""
    pairs: dict[frozenset[str], list[Tried]] = {}
    bad: dict[str, int] = {}
    for one in verdict.tried:
        if len(one.nodes) == 2:
            pairs.setdefault(frozenset(one.nodes), []).append(one)
            for name in one.nodes:
                bad[name] = bad.get(name, 0) + (not one.passed)
    place = {name: number for number, name in enumerate(verdict.run.hosts)}
    names = sorted(sorted(bad, key=lambda name: -bad[name])[:_MOST_COLUMNS], key=place.__getitem__)
    rows = [[_cell(pairs.get(frozenset((one, two)), ())) if one != two else ("", "") for two in names] for one in names]
    return {"names": names, "rows": list(zip(names, rows, strict=True)), "left_out": len(bad) - len(names)}


def _cell(trials: Sequence[Tried]) -> tuple[str, str]:
    """How the trials of a pair ended: a state, and how many passed of how many."""
    passed = sum(one.passed for one in trials)
    state = "" if not trials else "ok" if passed == len(trials) else "unknown" if passed else "fail"
    return state, f"{passed}/{len(trials)}" if trials else ""


def _by_report(form: str) -> Callable[[FleetVerdict], str]:
    return lambda verdict: rendered(report(verdict), form, fail_on=verdict.fail_on)


DOCUMENTS: Mapping[str, Callable[[FleetVerdict], str]] = {
    "json": to_json, "html": page, "junit": _by_report("junit"), "prometheus": _by_report("prometheus"),
    "nagios": _by_report("nagios"),
}  # fmt: skip


def render(verdict: FleetVerdict, form: str, width: int = 80) -> str:
    """The run in one of the formats of a report, ending in a newline."""
    return console(verdict, width) if form == "console" else DOCUMENTS[form](verdict)


WRITTEN = {"report.json": "json", "junit.xml": "junit", "fleet.prom": "prometheus", "fleet.html": "html"}


def segment_file(verdict: FleetVerdict, environ: Mapping[str, str]) -> str:
    """The name under which nvidia-resiliency-ext looks for the decision about the nodes of a job: that of the job, or
    of the task of a job array (its documentation, "Segment Health Check").

    Raises UsageError where neither the environment nor the run says which job of Slurm it was.
    """
    job, task = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
    if not (job and task):
        found = re.fullmatch(r"slurm-([0-9]{1,18})\.[0-9]{1,18}", verdict.run.run)
        job = task = found[1] if found else environ.get("SLURM_JOB_ID", "")
    if not (job.isdigit() and task.isdigit()):
        said = f"which job of Slurm made the run {one_line(verdict.run.run)} is not known"
        raise UsageError(said, "call judge inside the job, where SLURM_JOB_ID is set")
    return f"segment_health_check.{job}.{task}"


def write_segment(verdict: FleetVerdict, folder: Path, environ: Mapping[str, str]) -> Path:
    """Leaves the decision there: an empty file where all nodes are ok, the verdict where not; raises as `files.write`
    and ``segment_file``."""
    path = folder / segment_file(verdict, environ)
    files.folder(folder, "name a folder that may be written to")
    files.write(path, "" if verdict.exit_code == 0 else f"{redacted_text(line(verdict))}\n")
    return path


def write(verdict: FleetVerdict, folder: Path) -> None:
    """Writes the lists of nodes, one a line, `exclude`, and the documents into ``folder``; raises as `files.write`."""
    files.folder(folder, "name a folder that may be written to")
    for state in State:
        files.write(folder / f"nodes.{state.value}", "".join(f"{name}\n" for name in verdict.named(state)))
    files.write(folder / "exclude", f"{text}\n" if (text := excluded(verdict)) else "")
    for name, form in WRITTEN.items():
        files.write(folder / name, render(verdict, form), 0o600)
