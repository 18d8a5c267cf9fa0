"""Apptainer (Singularity) definition files, read as the Dockerfile that makes the same image.

Source: Apptainer User Guide, Definition Files: the header, the order in which sections act (%files, %post, and
%environment only at run time), templates in braces, stages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from envkit.dockerfile.evaluate import TooLarge
from envkit.dockerfile.instructions import Instruction, Text
from envkit.dockerfile.tree import Source
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Span
from envkit.records import dataclass
from envkit.static import CheckOptions, JudgedFile
from envkit.static.judged import fields
from envkit.static.translated import LAYERS, File, built, instruction, joined, judged, shell
from envkit.subjects.dockerfile import Base, Dockerfile

_HEADER = re.compile(r"\s*([A-Za-z][A-Za-z ]*?)\s*:\s*(.*?)\s*(?:\s#.*)?")
_SECTION = re.compile(r"%([a-z]+)\s*(.*?)\s*")
_TEMPLATE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_ARGUMENT = re.compile(r"\s*(\w+)\s*=\s*(.*?)\s*")
_EXPORT = re.compile(r"\s*export\s+(\w+=\S*|\w+=\"[^\"]*\"|\w+='[^']*')\s*(?:#.*)?")
_REGISTRIES = ("docker", "docker-daemon")
_MOST = 50  # stages of one file


@dataclass(slots=True)
class _Stage:
    """One stage: its header as lines with their keys in small letters, and its sections with their lines."""

    header: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    sections: list[tuple[str, str, int, list[int]]] = field(default_factory=list)


def of_apptainer(text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts) -> JudgedFile:
    """A definition file, judged by the checks of Dockerfiles that ask of the image and not of its layers."""
    file = File(text, path, context, check_options, facts)
    stages = _stages(text)
    if not stages or len(stages) > _MOST:
        why = "it has no `Bootstrap:`" if not stages else f"it has more than {_MOST} stages"
        return JudgedFile(path, "apptainer", text, unreadable=why)
    known: dict[str, Base] = {}
    made = [one for stage in stages for one in _instructions(stage, file, _arguments(stages, text), known)]
    try:
        subject = built(made, file, known)
    except TooLarge as error:
        return JudgedFile(path, "apptainer", text, unreadable=str(error))
    only = frozenset(judge.checks(Dockerfile)) - LAYERS
    if known:
        only -= {"unpinned-base"}  # what is no image of a registry has no tag
    return JudgedFile(path, "apptainer", text, judged(subject, facts, only), fields(subject))


def _stages(text: str) -> list[_Stage]:
    """The stages of a file; a second `Bootstrap:` begins another."""
    stages: list[_Stage] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not stages and not line.strip():
            continue
        section = _SECTION.fullmatch(line.rstrip("\r"))
        header = None if section else _HEADER.fullmatch(line.rstrip("\r"))
        if header and header[1].lower() == "bootstrap":
            stages.append(_Stage())
        if not stages:
            continue
        now = stages[-1]
        if section:
            now.sections.append((section[1], section[2], number, []))
        elif now.sections:
            now.sections[-1][3].append(number)
        elif header:
            now.header.setdefault(header[1].lower(), (header[2], number, header.start(2) + 1))
    return stages


def _arguments(stages: list[_Stage], text: str) -> Mapping[str, str]:
    """The default values of a file's templates."""
    lines = text.split("\n")
    found: dict[str, str] = {}
    for stage in stages:
        for name, _, _, numbers in stage.sections:
            for number in numbers if name == "arguments" else ():
                said = _ARGUMENT.fullmatch(lines[number - 1].rstrip("\r"))
                if said:
                    found[said[1]] = said[2].strip("\"'")
    return found


def _filled(line: str, number: int, column: int, arguments: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    """A line with its templates filled in, as pieces; one without a default is a variable that nobody knows."""
    at = 0
    for template in _TEMPLATE.finditer(line):
        yield line[at : template.start()], number, column + at
        yield arguments.get(template[1], f"${{{template[1]}}}"), number, column + template.start()
        at = template.end()
    yield line[at:], number, column + at


def _instructions(
    stage: _Stage, file: File, arguments: Mapping[str, str], known: dict[str, Base]
) -> Iterator[Instruction]:
    """A stage in the order in which a build acts: files, %post, and what holds when the image runs."""
    agent = stage.header["bootstrap"][0].lower()
    reference, number, column = stage.header.get("from", ("scratch", *stage.header["bootstrap"][1:]))
    base = joined(_filled(reference.removeprefix("docker://"), number, column, arguments), file.path)
    if agent not in _REGISTRIES:
        at = base.span(0, len(base.value))
        known[base.value] = Base(base.value, base.value, "", "", at, sure=False)
    name, *_ = stage.header.get("stage", ("",))
    words = joined([*_pieces(base), *([(f" AS {name}", number, column)] if name else [])], file.path)
    yield instruction("FROM", words)
    lines = file.text.split("\n")
    for kind in ("files", "post", "environment"):
        for section, said, at_line, numbers in stage.sections:
            if section != kind:
                continue
            body = [
                piece for each in numbers for piece in _filled(lines[each - 1].rstrip("\r") + "\n", each, 1, arguments)
            ]
            if kind == "files":
                yield from _files(said, numbers, lines, file.path)
            elif kind == "post" and body:
                named = re.search(r"-c\s+(\S+)", said)
                if named:
                    yield shell(named[1], Span(file.path, at_line, 1, at_line, 6))
                body.insert(0, ("set -e\n", numbers[0], 1))  # Apptainer runs it so
                yield instruction("RUN", joined(body, file.path))
            elif kind == "environment":
                yield from _environment(numbers, lines, file.path)


def _pieces(text: Text) -> Iterator[tuple[str, int, int]]:
    ends = [*text.starts[1:], len(text.value)]
    for start, end, place in zip(text.starts, ends, text.places, strict=True):
        yield text.value[start:end], *place


def _files(said: str, numbers: list[int], lines: list[str], path: str) -> Iterator[Instruction]:
    """`SOURCE [TARGET]` a line, from the folder of the build or from another stage."""
    stage = re.fullmatch(r"from\s+(\S+)", said)
    for number in numbers:
        words = lines[number - 1].split("#")[0].split()
        if words:
            column = len(lines[number - 1]) - len(lines[number - 1].lstrip()) + 1
            text = Text.of(f"{words[0]} {words[-1]}", path, number, column)
            flags = (f"--from={stage[1]}",) if stage else ()
            yield instruction("COPY", replace(text), *flags)


def _environment(numbers: list[int], lines: list[str], path: str) -> Iterator[Instruction]:
    """The plain assignments of %environment; what else a shell does there is not followed."""
    for number in numbers:
        found = _EXPORT.fullmatch(lines[number - 1].rstrip("\r"))
        if found:
            yield instruction("ENV", Text.of(found[1], path, number, found.start(1) + 1))


READERS = {"apptainer": of_apptainer}
