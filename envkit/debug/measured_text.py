"""The report of `envkit debug --memory` and `--slow` as text, as JSON of ``measured-1.schema.json``, and as a page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from envkit import __version__
from envkit.credentials import redacted_text
from envkit.debug.measures import Measured, Span
from envkit.debug.records import Verdict, unkept
from envkit.debug.render import cleaned
from envkit.errors import EnvkitError
from envkit.report import Table
from envkit.report.page import attempted, filled
from envkit.report.text import visible
from envkit.system import files

SCHEMA = "envkit.measured/1"
_NOTHING = {
    "memory": "nothing grows from step to step, and no allocation failed",
    "slow": "no fifth of a step's time goes to anything that a program could spare it",
}
_TITLES = {"memory": "Where the GPU's memory goes", "slow": "Where a step's time goes"}
_WIDE, _HIGH = 1000.0, 18  # of the picture: its width, and the height of a lane, in pixels
_MOST_LANES = 16
_COLOURS = {"kernel": "k", "gpu_memcpy": "c", "gpu_memset": "c", "cpu_op": "o", "user_annotation": "a"}


def document(made: Measured) -> str:
    """The report as one JSON document, indented, in ASCII; what looks like a credential is hidden."""
    plain: dict[str, Any] = {
        "schema": SCHEMA,
        "tool": {"name": "envkit", "version": __version__},
        "question": made.question,
        "command": list(made.command),
        "image": made.image or None,
        "verdict": made.verdict.value,
        "cause": made.cause,
        "fix": made.fix,
        "findings": [asdict(each) for each in made.judged.findings],
        "notes": list(made.judged.notes),
        "tables": [asdict(each) for each in made.judged.tables],
        "exit": made.exit,
        "ended": made.ended,
        "folder": made.folder,
        "files": list(made.files),
        "elapsed_s": made.elapsed_s,
    }
    return json.dumps(cleaned(plain), indent=2, allow_nan=False) + "\n"


def text(made: Measured, quiet: bool = False) -> str:
    """The report for a person; ``quiet`` leaves the tables out."""
    return "".join(f"{visible(redacted_text(line))}\n" for line in _lines(made, quiet))


def _lines(made: Measured, quiet: bool) -> Iterator[str]:
    if made.verdict is Verdict.FOUND:
        for finding in made.judged.findings:
            yield f"FOUND: {finding.kind}: {finding.said}"
            yield f"  fix: {finding.fix}"
    elif made.verdict is Verdict.CLEAN:
        yield f"CLEAN: {_NOTHING[made.question]}"
    else:
        yield f"UNDECIDED: {made.cause}"
        if made.fix:
            yield f"  fix: {made.fix}"
    for note in made.judged.notes:
        yield f"  note: {note}"
    for table in () if quiet else made.judged.tables:
        yield f"  {table.title}:"
        yield from _rows(table)
    ending = f"exited with status {made.exit}" if made.ended == "exited" else made.ended
    yield f"  the command {ending}; {made.elapsed_s:.1f} s"
    shown = "report.html" if "report.html" in made.files else "report.json"
    yield f"  files: {made.folder} ({shown} shows it)"


def _rows(table: Table) -> Iterator[str]:
    wide = [max(map(len, column)) for column in zip(*table.rows, strict=True)] if table.rows else []
    for row in table.rows:
        cells = [cell.ljust(width) for cell, width in zip(row, wide, strict=True)]
        yield "    " + "  ".join(cells).rstrip()


def page(made: Measured) -> str:
    """The report as one HTML page without scripts or outside resources; with the picture of a step, if there is one."""
    lanes = _lanes(made.judged.spans)
    return filled(
        "measured.html.j2",
        {
            "title": _TITLES[made.question],
            "verdict": made.verdict.value,
            "cause": cleaned(made.cause) or (_NOTHING[made.question] if made.verdict is Verdict.CLEAN else ""),
            "findings": [(each.kind, cleaned(each.said), cleaned(each.fix)) for each in made.judged.findings],
            "notes": [cleaned(note) for note in made.judged.notes],
            "tables": [cleaned(asdict(each)) for each in made.judged.tables],
            "command": cleaned(shlex.join(made.command)),
            "image": cleaned(made.image),
            "lanes": lanes,
            "wide": _WIDE,
            "high": _HIGH,
            "whole_ms": round(max((each.end for each in made.judged.spans), default=0.0), 1),
            "elapsed_s": made.elapsed_s,
            "folder": cleaned(made.folder),
        },
    )


def _lanes(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """The lanes of the picture: in each, rectangles by where they begin and how wide they are, in pixels.

    What would be narrower than half a pixel is joined with what stands beside it."""
    whole = max((each.end for each in spans), default=0.0)
    if whole <= 0:
        return []
    lanes: dict[str, list[dict[str, Any]]] = {}
    for each in spans:
        row = lanes.setdefault(each.lane, [])
        left, right = each.start / whole * _WIDE, each.end / whole * _WIDE
        look = _COLOURS.get(each.kind, "w")
        last = row[-1] if row else None
        if last and last["look"] == look and right - last["left"] < 1.0:
            last["wide"] = round(max(last["wide"], right - last["left"]), 2)
            last["name"] = "several"
            continue
        said = f"{each.name}: {each.end - each.start:.3f} ms"
        row.append(
            {"left": round(left, 2), "wide": round(max(right - left, 0.3), 2), "look": look, "name": cleaned(said)}
        )
    names = sorted(lanes, key=lambda name: (name.startswith("GPU"), name))
    return [{"name": name, "spans": lanes[name]} for name in names[:_MOST_LANES]]


def written(made: Measured, folder: Path) -> Measured:
    """The report with its files in the folder: report.json, then report.html; a page that cannot be written is a note
    beside the verdict."""
    made = replace(made, files=tuple(sorted({*made.files, "report.json"})))
    try:
        files.write(folder / "report.json", document(made), 0o600)
    except EnvkitError as error:
        raise unkept(error, made.verdict, made.cause) from error
    whole = replace(made, files=tuple(sorted({*made.files, "report.html"})))
    if trouble := attempted("report.html", lambda: files.write(folder / "report.html", page(whole), 0o600)):
        whole = replace(made, judged=replace(made.judged, notes=(*made.judged.notes, trouble)))
    with suppress(EnvkitError):  # there is no room for this: what was written before stays
        files.write(folder / "report.json", document(whole), 0o600)
    return whole
