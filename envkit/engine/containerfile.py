"""A Dockerfile for a builder that knows no here-documents and runs stages that nothing needs: buildah before 1.33.

`COPY <<"EOF"` becomes a COPY of a file, `RUN <<"EOF"` a script that is mounted for its step, and stages that the target
does not need, or for which a folder stands in, are left out.  buildah takes a step that it ran before from its cache by
the step's words alone, whatever is mounted for it by now: a step with mounts gets a word more, the hash of what they
show.  It reads what envkit renders: here-documents whose mark is quoted, with one mark a step.

Where podman stores by overlay, a stage of which each step came from the cache is not mounted, and a step of another
stage that mounts it sees an empty folder, or none (seen with buildah 1.28): such a stage ends with a step that no cache
has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from hashlib import sha256
from pathlib import Path

from envkit.errors import UsageError
from envkit.records import dataclass

FOLDER = ".envkit-steps"  # in the build's context
_HERE = re.compile(r'<<-?(?P<quote>["\']?)(?P<mark>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)')
_FROM = re.compile(r"FROM\s+(?:--platform=\S+\s+)?(?P<base>\S+)(?:\s+AS\s+(?P<name>\S+))?\s*", re.IGNORECASE)
_NEEDS = re.compile(r"(?:--from=|[,=]from=)([^\s,]+)")
_MOUNTED = re.compile(r"--mount=(\S+)")
_RUN = re.compile(r"RUN((?:\s|\\\n|--\S+)*)(.*)", re.DOTALL)


@dataclass(slots=True)
class _Stage:
    name: str
    base: str
    steps: list[str] = field(default_factory=list)

    def needs(self) -> set[str]:
        return {self.base, *(name for step in self.steps for name in _NEEDS.findall(step))}


def plain(
    text: str, context: Path, target: str = "", replaced: Mapping[str, Path] | None = None, fresh: str = ""
) -> tuple[str, dict[str, str]]:
    """``text`` without here-documents, up to ``target`` (the last stage if empty), and the files that it copies and
    mounts, by their names in the folder ``FOLDER`` of the folder ``context``.

    ``replaced`` are folders by the names of the stages that they stand in for.  ``fresh``, a text that no build had
    before, is copied into each stage on an image that another one mounts and none begins with, as its last step.
    Raises UsageError for a target that is no stage, and for a here-document in a form that envkit does not render.
    """
    folders = replaced or {}
    files: dict[str, str] = {}
    head, stages = _stages(text, files)
    named = {stage.name: stage for stage in stages}
    wanted = named.get(target) if target else stages[-1] if stages else None
    if wanted is None:
        raise UsageError(f"the Dockerfile has no stage `{target}`", "name one that it has")
    needed: set[str] = set()
    waiting = [wanted]
    while waiting:
        stage = waiting.pop()
        if stage.name not in needed:
            needed.add(stage.name)
            waiting += [named[name] for name in stage.needs() if name in named and name not in folders]
    keys = {name: _of_folder(path) for name, path in folders.items()}
    mounted = _mounted(stage for stage in stages if stage.name in needed) - {stage.base for stage in stages}
    kept: list[str] = []
    for stage in stages:  # a stage needs only those before it
        if stage.name in needed:
            steps = [_keyed(step, context, keys, files) for step in stage.steps]
            bodies = [body for name, body in files.items() if f"{FOLDER}/{name}" in "".join(steps)]
            keys[stage.name] = _hash(*steps, *bodies, keys.get(stage.base, stage.base))
            kept += steps
            if fresh and stage.name in mounted and stage.base != "scratch":
                files["fresh"] = fresh
                kept.append(f"COPY {FOLDER}/fresh /{FOLDER}.fresh\n")
    used = "".join(kept)
    return "".join([*head, *kept]), {name: body for name, body in files.items() if f"{FOLDER}/{name}" in used}


def _mounted(stages: Iterable[_Stage]) -> set[str]:
    """The names of what the steps of these stages mount."""
    mounts = (mount for stage in stages for step in stage.steps for mount in _MOUNTED.findall(step))
    return {part.removeprefix("from=") for mount in mounts for part in mount.split(",") if part.startswith("from=")}


def _hash(*texts: str) -> str:
    return sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _of_folder(folder: Path) -> str:
    """The hash of what a folder holds: names, sizes and times of its files."""
    found = []
    for top, _, names in os.walk(folder):
        for name in names:
            about = os.lstat(os.path.join(top, name))
            found.append(f"{os.path.relpath(top, folder)}/{name} {about.st_size} {about.st_mtime_ns}")
    return _hash(*sorted(found))


def _keyed(step: str, context: Path, keys: Mapping[str, str], files: Mapping[str, str]) -> str:
    """A RUN with mounts, and before its command the shell's word for nothing with the hash of what they show."""
    run = _RUN.fullmatch(step)
    if run is None:
        return step
    shown = []
    for mount in _MOUNTED.findall(run[1]):
        options: dict[str, str] = dict(part.partition("=")[::2] for part in mount.split(","))
        if options.get("type") != "bind":
            continue
        source = options.get("source") or options.get("src") or ""
        if name := options.get("from"):
            shown.append(keys.get(name, name))
        elif source.startswith(f"{FOLDER}/"):
            shown.append(files[source.removeprefix(f"{FOLDER}/")])
        elif (file := context / source).is_file():
            shown.append(sha256(file.read_bytes()).hexdigest())
        else:
            shown.append(_of_folder(file))
    return f"RUN{run[1]}: {_hash(*shown)}; {run[2]}" if shown else step


def _stages(text: str, files: dict[str, str]) -> tuple[list[str], list[_Stage]]:
    """What stands before the first stage, and the stages, their here-documents written to ``files``."""
    head: list[str] = []
    stages: list[_Stage] = []
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        step = line
        while step.endswith("\\\n") and not step.lstrip().startswith("#"):
            step += next(lines, "")
        if found := _FROM.fullmatch(step):
            stages.append(_Stage(found["name"] or f"stage {len(stages)}", found["base"]))
        elif not step.lstrip().startswith("#") and (here := _HERE.search(step)):
            body = "".join(iter(partial(_until, lines, here["mark"]), ""))
            step = _without(step, here, body, files)
        (stages[-1].steps if stages else head).append(step)
    return head, stages


def _until(lines: Iterator[str], mark: str) -> str:
    """The next line of a here-document, empty at its end."""
    line = next(lines, "")
    return "" if line.rstrip("\n") == mark else line


def _without(step: str, here: re.Match[str], body: str, files: dict[str, str]) -> str:
    """The step with its here-document in a file."""
    name = f"{len(files) + 1:03}"
    rest = step[here.end() :].strip()
    before = step[: here.start()].rstrip()
    if not here["quote"] or _HERE.search(rest):
        raise UsageError(f"`{before} {here[0]}` is a form of here-document that is not read", "quote its one mark")
    options = before.removeprefix("RUN").replace("\\\n", " ").split()
    if before == "COPY" and rest:
        files[name] = body
        return f"COPY {FOLDER}/{name} {rest}\n"
    if before.startswith("RUN") and not rest and all(option.startswith("--") for option in options):
        files[name] = body
        mount = f"--mount=type=bind,source={FOLDER}/{name},target=/{FOLDER}"
        return f"{' '.join(['RUN', mount, *options])} sh /{FOLDER}\n"
    raise UsageError(f"`{before} {here[0]} {rest}` is a here-document where none is read", "use COPY or RUN")
