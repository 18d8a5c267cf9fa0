"""Files that install into an image without being Dockerfiles, as the instructions of a Dockerfile that does the same.

One reader and one set of checks are enough for all of them: every character of a translated instruction keeps its
place in the file that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from envkit.dockerfile.evaluate import read_parsed
from envkit.dockerfile.instructions import Instruction, Text
from envkit.dockerfile.parse import Parsed
from envkit.dockerfile.tree import Source
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Finding, Outcome, Result, Severity, Span
from envkit.records import dataclass
from envkit.static import CheckOptions
from envkit.subjects.dockerfile import Base, Dockerfile

# What only a build by Docker has: layers, the command line of COPY, variables that a container toolkit reads.
LAYERS = frozenset(("apt-lists-left", "copy-has-no-shell", "missing-nvidia-env", "pip-cache-left", "run-has-no-effect"))
# What decides whether a job finds what it installs, be it made once a day or once a year.
FITS = frozenset(
    ("apt-archive-missing", "apt-package-gone", "apt-python-missing", "arch-list-unsupported", "conda-activate-fails",
     "cuda-memcheck-on-12plus", "cudnn-mismatch", "driver-too-old", "extra-index-shadowed",
     "framework-libraries-missing", "gpu-arch-not-covered", "nvcc-used-without-devel", "torch-build-missing",
     "torch-cuda-vs-base-mismatch-major", "torch-index-missing", "torch-python-unsupported", "torch-rejected",
     "torchvision-mismatch", "unquoted-specifier")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class File:
    """A file that is being read: its text, how the user named it, what lies beside it, what the user asks for."""

    text: str
    path: str
    context: Source | None
    options: CheckOptions
    facts: Facts

    def line(self, number: int) -> Span:
        """The whole of a line, from 1."""
        lines = self.text.split("\n")
        return Span(self.path, number, 1, number, len(lines[number - 1]) + 1)


def joined(pieces: Iterable[tuple[str, int, int]], path: str) -> Text:
    """One text of pieces, each with the line and the column of its first character; a newline ends a piece."""
    values, starts, places, length = [], [], [], 0
    for value, line, column in pieces:
        if value:
            starts.append(length)
            places.append((line, column))
            values.append(value)
            length += len(value)
    return Text("".join(values), path, tuple(starts), tuple(places)) if values else Text.of("", path)


def instruction(name: str, text: Text, *flags: str) -> Instruction:
    """One instruction with that text behind its name."""
    said = tuple(Text.of(flag, text.path, *text.place(0)) for flag in flags)
    return Instruction(name, text.span(0, len(text.value)), text, said)


def shell(name: str, span: Span) -> Instruction:
    """From here on commands are run by that shell."""
    text = Text.of(f'["{name}", "-c"]', span.path, span.line, span.column)
    return Instruction("SHELL", span, text, exec_form=(name, "-c"))


def built(
    instructions: Sequence[Instruction], file: File, known: Mapping[str, Base], program: str = "/bin/sh"
) -> Dockerfile:
    """The image that the instructions make; ``known`` are bases by reference, beside those of the settings, and
    ``program`` is the shell that runs the commands.

    Raises TooLarge as a Dockerfile's reader does.
    """
    bases = {**file.options.bases, **known}
    return read_parsed(
        Parsed(tuple(instructions), "\\", {}, ()),
        file.text,
        file.path,
        file.facts,
        file.context,
        known=bases,
        gpus=file.options.gpus,
        driver=file.options.driver,
        run_by=(program, "-c"),
    )


def judged(subject: object, facts: Facts, only: frozenset[str]) -> tuple[Result, ...]:
    """What the checks among ``only`` say, without edits, for the text that they would be made in is another."""
    return tuple(
        replace(each, findings=tuple(replace(one, edits=()) for one in each.findings))
        for each in judge.judge(subject, facts, only)
    )


def ran(subject: Dockerfile, file: File, only: frozenset[str]) -> tuple[Result, ...]:
    """As ``judged``, of commands that are run and not kept in an image: where none of them surely installs torch, what
    was not read is no doubt about it, except for those who ask for every doubt.
    """
    said = judged(subject, file.facts, only)
    if file.options.strict or subject.torches:
        return said
    return tuple(
        Result(each.check, Outcome.SKIP, reason=f"no torch is surely installed; {each.reason}")
        if each.outcome is Outcome.UNKNOWN
        else each
        for each in said
    )


def together(parts: Iterable[Iterable[Result]], doubt: Severity = Severity.ERROR) -> tuple[Result, ...]:
    """One result a check of several subjects of one file: each finding once; a doubt is worth ``doubt`` at most."""
    found: dict[str, list[Result]] = {}
    for part in parts:
        for each in part:
            found.setdefault(each.check, []).append(each)
    return tuple(_one(check, said, doubt) for check, said in sorted(found.items()))


def _one(check: str, said: Sequence[Result], doubt: Severity) -> Result:
    findings: dict[tuple[Span | None, str], Finding] = {}
    for each in said:
        for finding in each.findings:
            findings.setdefault((finding.span, finding.message), finding)
    if findings:
        return Result(check, Outcome.FAIL, tuple(findings.values()))
    order = (Outcome.CRASHED, Outcome.UNKNOWN, Outcome.PASS, Outcome.SKIP)
    worst = min(said, key=lambda each: order.index(each.outcome))
    return replace(worst, at_most=min(worst.at_most, doubt)) if worst.outcome is Outcome.UNKNOWN else worst
