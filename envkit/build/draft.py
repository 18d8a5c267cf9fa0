"""The envkit.toml that `envkit init` writes: commented, and satisfiable by the facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envkit.build import render
from envkit.dockerfile.requirements import build_of
from envkit.errors import Unsatisfiable
from envkit.facts import Facts
from envkit.plan.resolve import resolve
from envkit.plan.spec import CPU, parse
from envkit.system import files

REQUIREMENTS = "requirements.txt"
_BUILD = re.compile(r"\+[A-Za-z0-9.]+")  # behind a release: "+cpu"


def text(facts: Facts, path: Path, torch: str = "", gpus: Sequence[str] = (), driver: str = "") -> str:
    """A spec for ``torch`` (a release or a range; by default the newest that fits the rest), ``gpus`` and ``driver``.

    A requirements.txt beside ``path`` is named in it, and what that says of torch holds.  Raises UsageError for what is
    none of them, and Unsatisfiable where no build, Python and system fit together.
    """
    refused: Unsatisfiable | None = None
    beside = path.with_name(REQUIREMENTS)
    asked = files.text(beside, "check the file and its permissions") if beside.is_file() else ""
    for values in _candidates(facts, torch or _torch_of(asked), _cuda_of(asked), gpus, driver):
        values["requirements"] = json.dumps([REQUIREMENTS] if beside.is_file() else [])
        made = render.template("envkit.toml.j2", values)
        try:
            resolve(parse(made, path), facts)
        except Unsatisfiable as error:
            refused = refused or error
        else:
            return made
    assert refused is not None
    raise refused


def _torch_of(requirements: str) -> str:
    """What the lines of a requirements file say of torch, as a spec says it; empty where they leave it open."""
    for line in requirements.splitlines():
        try:
            found = Requirement(line.partition("#")[0].strip())
        except InvalidRequirement:  # an option, a URL, nothing
            continue
        if canonicalize_name(found.name) == "torch" and found.specifier:
            return _BUILD.sub("", str(found.specifier)).removeprefix("==")
    return ""


def _cuda_of(requirements: str) -> str:
    """Which build of torch a requirements file takes, as `cuda` says it: by what follows its release ("+cuXYZ") or the
    index of such builds; "auto" where it says neither."""
    for line in requirements.splitlines():
        words = line.partition(" #")[0].strip()
        found = _BUILD.search(words) if re.match(r"torch(vision|audio)?\s*[=<>!~\[]", words, re.I) else None
        build = found[0][1:] if found else build_of(words) if words.startswith("-") else ""
        if build == CPU:
            return CPU
        if number := re.fullmatch(r"cu([0-9]+)([0-9])", build):
            return f"{number[1]}.{number[2]}"
    return "auto"


def _candidates(facts: Facts, torch: str, cuda: str, gpus: Sequence[str], driver: str) -> Iterator[dict[str, str]]:
    """Values of the template, the newest torch and the first system first."""
    newest = sorted({row.torch for row in facts.torches if row.default}, reverse=True)
    for wanted in [torch] if torch else map(str, newest):
        for row in facts.oses:
            yield {
                "torch": json.dumps(wanted, ensure_ascii=False),
                "example": str(newest[0]),
                "cuda": json.dumps(cuda),
                "python": str(row.python),
                "os": row.name,
                "oses": ", ".join(f"{each.name} (Python {each.python})" for each in facts.oses),
                "gpus": json.dumps(list(gpus), ensure_ascii=False),
                "driver": driver or str(max(each.branch for each in facts.drivers if each.latest)),
                "said": driver,
            }
