"""A baseline: the findings that a project had when it began to check, so that only new ones count.

A finding is known by its check, its file and the text of its line, not by the line's number, so that it is still known
when the file grows above it.  A text that stands there twice counts twice.  Files are named from the baseline's own
folder, so that it does not matter where envkit is started.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from envkit.errors import UsageError
from envkit.model import Finding, Outcome, Result
from envkit.static import JudgedFile
from envkit.system import files

SCHEMA = "envkit.baseline/1"


def fingerprint(check: str, name: str, judged: JudgedFile, finding: Finding) -> str:
    """What a finding is known by, 64 hexadecimal digits; ``name`` is the file's."""
    known = "\0".join((check, name, judged.line_of(finding) or finding.message))
    from hashlib import sha256

    return sha256(known.encode("utf-8", "surrogatepass")).hexdigest()


def write(path: Path, judged: Sequence[JudgedFile]) -> int:
    """Writes every finding of now; gives their number."""
    found = [
        {
            "check": result.check,
            "path": _name(each, path),
            "fingerprint": fingerprint(result.check, _name(each, path), each, finding),
        }
        for each in judged
        for result in each.results
        for finding in result.findings
    ]
    files.write(path, json.dumps({"schema": SCHEMA, "findings": found}, indent=1) + "\n")
    return len(found)


def load(path: Path) -> Counter[str]:
    """The fingerprints of a baseline; raises UsageError for a file that is none."""
    again = "write it again with --write-baseline"
    try:
        document = json.loads(files.text(path, again, files.MOST_BYTES))
        schema, found = document["schema"], Counter(str(item["fingerprint"]) for item in document["findings"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as a baseline: {error}", again) from error
    if schema != SCHEMA:
        raise UsageError(f"{path} is of the schema {schema!r}, this envkit reads {SCHEMA}", again)
    return found


def applied(judged: Sequence[JudgedFile], path: Path, known: Counter[str]) -> tuple[JudgedFile, ...]:
    """The files without the findings that the baseline at ``path`` holds."""
    left = Counter(known)
    return tuple(
        replace(each, results=tuple(_one(result, each, _name(each, path), left) for result in each.results))
        for each in judged
    )


def _name(judged: JudgedFile, path: Path) -> str:
    """The file's name as seen from the baseline's folder; "-" stays what it is."""
    if judged.path == "-":
        return "-"
    return Path(os.path.relpath(judged.path, path.absolute().parent)).as_posix()


def _one(result: Result, judged: JudgedFile, name: str, left: Counter[str]) -> Result:
    new: list[Finding] = []
    for finding in result.findings:
        mark = fingerprint(result.check, name, judged, finding)
        if left[mark]:
            left[mark] -= 1
        else:
            new.append(finding)
    if len(new) == len(result.findings):
        return result
    if new:
        return replace(result, findings=tuple(new))
    return Result(result.check, Outcome.SKIP, reason="in the baseline")
