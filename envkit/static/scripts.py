"""Slurm batch scripts and Makefiles: the containers that their commands start, and what they install beside them.

A doubt is worth a warning at most, as for a workflow: the script's own run shows what its text left open.
Source: Slurm, sbatch (the options of GPUs); GNU make manual, recipes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from envkit.dockerfile import makefile, shell
from envkit.dockerfile.evaluate import TooLarge
from envkit.dockerfile.files import FileText
from envkit.dockerfile.instructions import Text
from envkit.dockerfile.tree import Source
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Observed, Result, Severity, Span
from envkit.static import CheckOptions, JudgedFile, docker_words
from envkit.static.translated import FITS, File, built, instruction, judged, ran, together
from envkit.static.workloads import Reading
from envkit.subjects.dockerfile import Base, Command
from envkit.subjects.workload import Container, FileValue, GpuRequest, Workload

_DIRECTIVE = re.compile(r"^#SBATCH\s+(.*?)\s*$", re.M)
_OPTION = re.compile(r"(--[\w-]+|-[A-Za-z])(?:[= ]\s*|(?=\d))([^\s#]+)")
_GRES = re.compile(r"(?:gres/)?gpu(?::[\w.-]*[A-Za-z][\w.-]*)?(?::(\d+))?(?:\(S:.*\))?")
_TYPED = re.compile(r"(?:[\w.-]*[A-Za-z][\w.-]*:)?(\d+)")
_AMD = re.compile(r"(?i)\brocm|\blumi\b|\bmiopen|\bhip_visible|\bamd[_-]?gpu|\bmi(?:100|2[015]0x?|300[ax]?)\b")
_MOST = 500  # containers of one file
# A job on a cluster brings its Python and its CUDA by modules, which this file does not describe.
_INSTALLED = FITS - {
    *("conda-activate-fails", "cudnn-mismatch", "framework-libraries-missing", "nvcc-used-without-devel")
}


def of_slurm(text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts) -> JudgedFile:
    """A batch script, judged by the checks of containers with the GPUs of its job, and of what it installs."""
    file = File(text, path, context, check_options, facts)
    head = text.split("\n", 1)[0]
    dialect = "sh" if re.match(r"#!\s*/bin/(?:da)?sh\b", head) else "bash"
    body = Text.of(text, path)
    commands = shell.commands(body, {}, "", dialect=dialect).commands
    reading = Reading(path, context, check_options, facts, [])
    containers = containers_of(commands, reading)
    asked = _allotted(text, path)
    containers = [_given(one, asked, text) for one in containers]
    if asked is not None and not any(one.gpus for one in containers) and not _AMD.search(text):
        containers = [replace(one, allotted=asked.count or FileValue("its", asked.span)) for one in containers]
    base = Base("node:slurm", "node:slurm", "", "", Span(path, 1), True, cuda=Observed.unsupported())
    made = [
        instruction("FROM", Text.of(base.reference, path)),
        instruction("RUN", body),
    ]
    try:
        subject = built(made, file, {base.reference: base}, dialect)
    except TooLarge as error:
        return JudgedFile(path, "slurm", text, unreadable=str(error))
    parts = [ran(subject, file, _INSTALLED), _of_containers("slurm", containers, file)]
    return JudgedFile(path, "slurm", text, together(parts, Severity.WARNING))


def of_makefile(text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts) -> JudgedFile:
    """A Makefile, judged by the checks of the containers that its recipes start."""
    file = File(text, path, context, check_options, facts)
    reading = Reading(path, context, check_options, facts, [])
    commands = tuple(
        each
        for line, sure in makefile.recipes(FileText(path, text))
        for each in shell.commands(line, {}).commands
        if sure
    )
    containers = containers_of(commands, reading)
    parts = [_of_containers("makefile", containers, file)]
    return JudgedFile(path, "makefile", text, together(parts, Severity.WARNING))


def _of_containers(kind: str, containers: list[Container], file: File) -> tuple[Result, ...]:
    asked = file.options
    workload = Workload(file.path, kind, tuple(containers[:_MOST]), (), (), asked.gpus, asked.driver)
    return judged(workload, file.facts, frozenset(judge.checks(Workload)))


def containers_of(commands: tuple[Command, ...], reading: Reading) -> list[Container]:
    """The containers that the commands start; an image that the same file builds is that of its Dockerfile."""
    made: docker_words.Made = {}
    for command in commands:
        docker_words.built(command, reading, made)
    found = []
    for command in commands:
        for each in _inner(command):
            one = docker_words.started(each, reading, made)
            if one is not None:
                chosen = command.env.get("CUDA_VISIBLE_DEVICES")
                if (
                    chosen is not None
                    and "CUDA_VISIBLE_DEVICES" not in one.env
                    and each.program not in ("docker", "podman")
                ):
                    one = replace(one, env={**one.env, "CUDA_VISIBLE_DEVICES": FileValue(chosen, command.span)})
                found.append(one)
    return found


def _inner(command: Command) -> Iterator[Command]:
    """The command, and that which srun or mpirun starts: `srun apptainer exec ...`."""
    yield command
    if command.program not in ("srun", "mpirun", "mpiexec"):
        return
    for at, word in enumerate(command.words[1:], 1):
        if word.text.rsplit("/", 1)[-1] in ("apptainer", "singularity", "docker", "podman"):
            yield replace(command, words=command.words[at:])
            return


def _allotted(text: str, path: str) -> GpuRequest | None:
    """The GPUs that one task of the job gets on one node, None where it asks for none."""
    found: GpuRequest | None = None
    nodes = 1
    for directive in _DIRECTIVE.finditer(text):
        line = text.count("\n", 0, directive.start()) + 1
        for option in _OPTION.finditer(directive[1]):
            column = directive.start(1) - directive.start() + option.start() + 1
            span = Span(path, line, column, line, column + len(option[0]))
            name, value = option[1], option[2]
            if name in ("-N", "--nodes"):
                nodes = int(value) if re.fullmatch(r"\d{1,5}", value) else 0
                continue
            count = _count(name, value)
            if count is not None and not (found is not None and name == "--gpus-per-task"):
                sure = bool(count) and not (name in ("-G", "--gpus") and nodes != 1)
                found = GpuRequest("allotted", span, "gpu", FileValue(count or "", span), sure=sure)
    return found


def _count(name: str, value: str) -> str | None:
    """How many GPUs an option of sbatch asks for, "" for a number that is not known, None for another option."""
    if name == "--gres":
        for part in value.split(","):
            asked = _GRES.fullmatch(part)
            if asked:
                return asked[1] or "1"
            if part.startswith("gpu"):
                return ""
        return None
    if name not in ("-G", "--gpus", "--gpus-per-node", "--gpus-per-task"):
        return None
    typed = _TYPED.fullmatch(value)
    return typed[1] if typed else ""


def _given(one: Container, asked: GpuRequest | None, text: str) -> Container:
    """A container with the GPUs of the job, which --nv and pyxis give it; docker knows no job."""
    forms = {request.form for request in one.gpus}
    if not forms & {"nv", "pyxis"}:
        return one
    if asked is None:  # a partition may give whole nodes
        return replace(one, gpus=tuple(replace(each, sure=False) for each in one.gpus))
    return replace(one, gpus=(asked,))


READERS = {"slurm": of_slurm, "makefile": of_makefile}
