"""Several services in one log: which of them ended first, how, and what it said last (Docker Compose, honcho)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, OPEN, gpu_roots, shortened, unquoted
from envkit.logs.causes._tracebacks import fatal
from envkit.logs.ends import service
from envkit.logs.goes_on import speaks_on
from envkit.logs.records import FileSeen, Hypothesis, Line, Strength
from envkit.logs.story import Story

_ENDED = re.compile(r"^(?P<name>[\w.-]{1,80}) (?:exited with code |stopped \(rc=)(?P<code>-?\d{1,3})\b")
_ABORTING = re.compile(r"^Aborting on container exit|^sending SIGTERM to ")
_TAKEN_DOWN = ("137", "143", "-9", "-15")
_SETTING = re.compile(
    r"(?i)\b(?:bad|invalid|unknown|unsupported|missing|malformed|illegal|unexpected)\b"
    r"|\bmust (?:be|have)\b|\bnot (?:set|given)\b|\bunset\b|\brequired\b|\bno such\b|\bnot found\b"
)
_RESOURCE = re.compile(r"(?i)\bno space\b|\bmemory\b|\bquota\b|\btoo many\b")
_CUES = (("host-resource", _RESOURCE), ("launch-config", _SETTING))
_GPU = re.compile(r"(?i)\bcuda|\bgpu|nvidia|nccl|driver")


def first_to_end(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The service that ended first: where it ended with 0 the rest was only taken down, else its last line tells.

    Source: docker compose, "Attaching to", "exited with code", "Aborting on container exit".
    """
    for lines in map(_of_file, story.files):
        ends = [(line, found) for line in lines if (found := _ENDED.match(line.text))]
        ends = [(line, found) for line, found in ends if not speaks_on(line, found["name"], lines)]
        if not ends:
            continue
        line, first = ends[0]
        if first["code"] == "0":
            yield from _all_well(ends, lines)
        elif first["code"] not in _TAKEN_DOWN and not fatal(story) and not gpu_roots(story):
            said = [each for each in lines if service(each) == first["name"] and each.number < line.number]
            told = any(service(event.line) in ("", first["name"]) for event in story.roots)
            if said and not told and not _GPU.search(unquoted(said[-1].text)):
                why = f"the service {first['name']} ended with {first['code']}: {shortened(said[-1].text)}"
                cause = next((name for name, cue in _CUES if cue.search(said[-1].text)), "")
                strength = Strength.LIKELY if cause else Strength.USUAL
                decide = "what the service does in its last line"
                yield Hypothesis(
                    INNOCENT, cause or "program-bug", strength, (said[-1], line), why, decide, over=(OPEN,)
                )
        return


def _all_well(ends: list[tuple[Line, re.Match[str]]], lines: list[Line]) -> Iterator[Hypothesis]:
    """A log whose first service ended with 0, so that the others were taken down, or ended with 0 too."""
    line, first = ends[0]
    aborted = next((each.number for each in lines if _ABORTING.match(each.text)), 0)
    rest = [found["code"] for _, found in ends[1:] if found["code"] != "0"]
    if not rest or (line.number < aborted and set(rest) <= {*_TAKEN_DOWN}):
        why = f"the service {first['name']} ended with 0, and no other ended by itself with an error"
        decide = "the exit code that the engine itself ended with"
        yield Hypothesis(OPEN, "unknown", Strength.LIKELY, (line,), why, decide)


def _of_file(seen: FileSeen) -> list[Line]:
    """The lines that are kept of a file, in their order."""
    kept = {line.number: line for line in (*seen.head, *seen.loud, *seen.tail)}
    return [kept[number] for number in sorted(kept)]
