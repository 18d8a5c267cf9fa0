"""GitHub workflow files: each job as the image that it makes of its container or runner, and the containers it starts.

A job is judged once for each combination of its matrix whose values are written in the file.  Source: GitHub Docs,
Workflow syntax for GitHub Actions; the actions that set up Python, uv and CUDA say in their README what they take.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product

from envkit.dockerfile.evaluate import TooLarge
from envkit.dockerfile.instructions import Instruction, Text
from envkit.dockerfile.nodes import Node, documents
from envkit.dockerfile.tree import Source
from envkit.facts import Facts
from envkit.model import Observed, Result, Severity, Span
from envkit.records import dataclass
from envkit.static import CheckOptions, JudgedFile
from envkit.static.docker_words import container as container_of
from envkit.static.scripts import containers_of
from envkit.static.translated import FITS, File, built, instruction, joined, judged, ran, together
from envkit.static.workloads import Reading, plain
from envkit.subjects.dockerfile import Base, Dockerfile
from envkit.subjects.workload import Container, FileValue, Workload

_EXPRESSION = re.compile(r"\$\{\{([^{}]*)\}\}")
_NAME = re.compile(r"(matrix|env)\.([\w-]+)")
_LINUX = re.compile(r"ubuntu-(\d\d\.\d\d)(?:-arm)?")
_COMPARED = re.compile(r"(matrix\.[\w-]+|runner\.os)\s*(==|!=)\s*'([^']*)'")
_SHELLS = ("bash", "sh")
_SETS_UP_CUDA = re.compile(r"(?i)(?:jimver|[\w-]+)/(?:setup-)?cuda(?:-toolkit)?@")
_HARMLESS = re.compile(
    r"actions/(?:checkout|cache|upload-artifact|download-artifact|setup-python|setup-node|github-script)(?:/\w+)?@"
    r"|astral-sh/setup-uv@|docker/[\w-]+@|codecov/codecov-action@"
)
_OTHER_SYSTEM = re.compile(r"(?i)windows|macos|mac-|win-")
_UNKNOWN = (
    "${github_expression}"  # a shell variable that nobody knows, in the place of an expression that nobody decided
)
_JOBS, _COMBINATIONS, _STEPS = 60, 16, 200
_SAID_OF_CONTAINERS = frozenset(
    ("workload-gpu-request-invalid", "workload-cuda-visible-devices-invalid", "workload-secret-in-file",
     "workload-image-never-existed", "workload-driver-mounted-by-hand", "workload-ranks-exceed-gpus")
)  # fmt: skip

Values = Mapping[str, str | None]  # by "matrix.NAME" and "env.NAME"; None for what only a run knows


def of_workflow(text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts) -> JudgedFile:
    """A workflow, judged by the checks of what its jobs install and of the containers that they start.

    A doubt is worth a warning at most: the workflow's own run shows within minutes what a file left open.
    """
    roots = documents(text, path)
    if isinstance(roots, str):
        return JudgedFile(path, "workflow", text, unreadable=roots)
    file = File(text, path, context, check_options, facts)
    parts: list[tuple[Result, ...]] = []
    containers: list[Container] = []
    reading = Reading(path, context, check_options, facts, [])
    try:
        for root in roots[:1]:
            for key, job in islice(root.pairs("jobs"), _JOBS):
                for subject, only in _job(root, job, file):
                    parts.append(ran(subject, file, only))
                    commands = tuple(command for step in subject.steps for command in step.commands if command.sure)
                    containers += containers_of(commands, reading)
                containers += _containers(root, key, job, reading)
    except TooLarge as error:
        return JudgedFile(path, "workflow", text, unreadable=str(error))
    workload = Workload(path, "workflow", tuple(containers), (), (), check_options.gpus, check_options.driver)
    parts.append(judged(workload, facts, _SAID_OF_CONTAINERS))
    return JudgedFile(path, "workflow", text, together(parts, Severity.WARNING))


# ---------------------------------------------------------------- values


def _filled(text: str, values: Values) -> tuple[str, bool]:
    """A text with its expressions filled in, and whether all of them are known."""
    sure = True

    def value(found: re.Match[str]) -> str:
        nonlocal sure
        known = _value(found[1], values)
        sure = sure and known is not None
        return _UNKNOWN if known is None else known

    return _EXPRESSION.sub(value, text), sure


def _value(expression: str, values: Values) -> str | None:
    """The value of an expression, as far as it is a name of the matrix or of the environment, or a literal."""
    expression = expression.strip()
    named = _NAME.fullmatch(expression)
    if named:
        return values.get(expression)
    literal = re.fullmatch(r"'([^']*)'", expression)
    return literal[1] if literal else None


def _holds(condition: str, values: Values) -> bool | None:
    """Whether a condition of comparisons holds, None where that is not known."""
    bare = condition.strip().removeprefix("${{").removesuffix("}}").strip()
    if "||" in bare or "(" in bare:
        return None
    answers: list[bool | None] = []
    for part in bare.split("&&"):
        compared = _COMPARED.fullmatch(part.strip())
        if compared is None:
            answers.append(None)
            continue
        known = "Linux" if compared[1] == "runner.os" else values.get(compared[1])
        same = None if known is None else known.lower() == compared[3].lower()
        answers.append(same if same is None or compared[2] == "==" else not same)
    return False if False in answers else None if None in answers else True


def _matrix(job: Node) -> list[Values]:
    """The combinations of a job's matrix, of values that are texts; [{}] where there is none to read."""
    matrix = job.get("strategy", "matrix")
    if matrix is None or matrix.keys is None:
        return [{}] if matrix is None else [{"matrix": None}]
    axes = [(key.text, node) for key, node in matrix.pairs() if key.text not in ("include", "exclude")]
    lists = [(name, [_texts(name, item) for item in node.items]) for name, node in axes if node.items is not None]
    found: list[dict[str, str | None]] = [
        {key: value for part in parts for key, value in part.items()}
        for parts in islice(product(*(options for _, options in lists)), 4 * _COMBINATIONS)
    ]
    excluded = [_flat(item) for item in matrix.listed("exclude")]
    found = [one for one in found if not any(_within(each, one) for each in excluded)]
    if not lists:
        found = []
    for item in matrix.listed("include"):
        more, names = _flat(item), {f"matrix.{name}" for name, _ in lists}
        shared = {key: value for key, value in more.items() if key in names}
        fits = [one for one in found if _within(shared, one)]
        if fits and lists:
            for one in fits:
                one.update({key: value for key, value in more.items() if key not in names})
        else:
            found.append(dict(more))
    return list(found[:_COMBINATIONS]) or [{}]


def _within(part: Mapping[str, str | None], whole: Mapping[str, str | None]) -> bool:
    return all(whole.get(key) == value for key, value in part.items())


def _texts(name: str, item: Node) -> dict[str, str | None]:
    """One value of an axis: a text, or texts by their keys."""
    if item.keys is not None:
        return {f"matrix.{name}.{key.text}": _text(value) for key, value in item.pairs()}
    return {f"matrix.{name}": _text(item)}


def _flat(item: Node) -> dict[str, str | None]:
    return {key: value for name, node in item.pairs() for key, value in _texts(name.text, node).items()}


def _text(node: Node) -> str | None:
    leaf = node.items is None and node.keys is None
    return node.text if leaf and not _EXPRESSION.search(node.text) else None


def _environment(values: Values, *nodes: Node | None) -> Values:
    """``values`` and the variables of some ``env:``, the later the stronger."""
    known = dict(values)
    for node in nodes:
        for key, said in node.pairs() if node is not None else ():
            text, sure = _filled(said.text, known)
            known[f"env.{key.text}"] = text if sure and said.keys is None and said.items is None else None
    return known


# ---------------------------------------------------------------- a job as an image


@dataclass(frozen=True, slots=True)
class _Setup:
    """What a job's actions set up: each a value with its place, "" where none does; ``strange`` marks an action that
    may set up anything."""

    python: str = ""
    cuda: str = ""
    cuda_span: Span | None = None
    strange: bool = False


def _job(root: Node, job: Node, file: File) -> Iterator[tuple[Dockerfile, frozenset[str]]]:
    """What each combination of a job makes, and the checks for it."""
    if job.get("steps") is None:
        return
    done: set[tuple[str, ...]] = set()
    for combination in _matrix(job):
        values = _environment(combination, root.get("env"), job.get("env"))
        runner = _runner(job, values)
        if _OTHER_SYSTEM.search(runner):
            continue
        setup = _setup(job, values)
        base = _base(job, runner, setup, values, file)
        if base is None:
            continue
        made = list(_steps(root, job, base, values, file))
        said = (base.reference, setup.python, *(each.text.value for each in made))
        if said in done or not any(each.name == "RUN" for each in made):
            continue
        done.add(said)
        subject = built(made, file, {base.reference: base}, "/bin/bash")
        yield subject, _asked(job, base, setup)


def _asked(job: Node, base: Base, setup: _Setup) -> frozenset[str]:
    """The checks for a job: what an unknown action may have set up is not missed."""
    only = FITS
    if job.get("container") is None and not setup.cuda:
        only -= {"nvcc-used-without-devel", "framework-libraries-missing", "cudnn-mismatch"}
    elif not setup.strange and not setup.python and job.get("container") is not None:
        only |= {"python-missing"}
    return only - {"nvcc-used-without-devel", "framework-libraries-missing"} if setup.strange else only


def _runner(job: Node, values: Values) -> str:
    """The labels of a job's runner as one text."""
    node = job.get("runs-on")
    if node is None:
        return ""
    labels = node.listed() if node.items is not None else (node.get("labels") or node,)
    return " ".join(_filled(label.text, values)[0] for label in labels)


def _setup(job: Node, values: Values) -> _Setup:
    found = _Setup()
    for step in job.listed("steps"):
        uses = step.get("uses")
        condition = step.get("if")
        if uses is None or (condition is not None and _holds(condition.text, values) is False):
            continue
        if uses.text.startswith(("actions/setup-python@", "astral-sh/setup-uv@")):
            said = step.get("with", "python-version")
            version, sure = _filled(said.text, values) if said is not None else ("", False)
            minor = re.fullmatch(r"(3\.\d+)(?:\.\d+)?", version) if sure else None
            if uses.text.startswith("actions/"):
                found = replace(found, python=minor[1] if minor else "?")
        elif _SETS_UP_CUDA.match(uses.text):
            said = step.get("with", "cuda") or step.get("with", "cuda-version")
            version, sure = _filled(said.text, values) if said is not None else ("", False)
            exact = sure and said is not None and re.fullmatch(r"\d+\.\d+(?:\.\d+)?", version)
            found = replace(found, cuda=version if exact else "?", cuda_span=(said or uses).span)
        elif not _HARMLESS.match(uses.text):
            found = replace(found, strange=True)
    return found


def _base(job: Node, runner: str, setup: _Setup, values: Values, file: File) -> Base | None:
    """What the steps find: the container's image, or the runner with what actions set up; None where unknown."""
    node = job.get("container")
    image = node if node is None or node.keys is None else node.get("image")
    if node is not None:
        if image is None or image.empty:
            return None
        reference, sure = _filled(image.text, values)
        reading = Reading(file.path, file.context, file.options, file.facts, [])
        base = reading.image(FileValue(reference, image.span, sure))
        return _with_python(base, setup, image.span)
    named, span = _LINUX.search(runner), (job.get("runs-on") or job).span
    lost: Observed[str] = Observed.lost("a runner has what its image brings")
    cuda, nvcc = Observed[str].unsupported(), Observed[bool]()
    if setup.cuda not in ("", "?") and setup.cuda_span is not None:
        cuda, nvcc = Observed.of(setup.cuda, setup.cuda_span.place), Observed.of(True, setup.cuda_span.place)
        span = setup.cuda_span
    os = Observed.of(f"ubuntu{named[1]}", span.place) if named else lost
    words = "runner:" + (re.sub(r"[^\w.-]+", "-", runner).strip("-") or "unknown")
    base = Base(words, words, "", "", span, True, family="unknown", cuda=cuda, os=os, nvcc=nvcc)
    base = replace(base, cudnn=lost, python=lost, torch=Observed.unsupported(), torch_cuda=Observed.unsupported())
    return _with_python(base, setup, span)


def _with_python(base: Base, setup: _Setup, span: Span) -> Base:
    if not setup.python:
        return base
    known = setup.python != "?"
    python = Observed.of(setup.python, span.place) if known else Observed[str].lost("the action does not say")
    family = (
        base.family if base.family not in ("unknown", "os", "nvidia", "python") else "python" if known else "unknown"
    )
    return replace(base, python=python, family=family)


def _steps(root: Node, job: Node, base: Base, values: Values, file: File) -> Iterator[Instruction]:
    yield instruction("FROM", _at(base.reference, base.span))
    default = job.get("defaults", "run", "shell") or root.get("defaults", "run", "shell")
    folder = job.get("defaults", "run", "working-directory") or root.get("defaults", "run", "working-directory")
    for key, said in (pair for node in (root.get("env"), job.get("env")) if node is not None for pair in node.pairs()):
        known = values.get(f"env.{key.text}")
        if known is not None and re.fullmatch(r"[\w.:/@+,%=-]*", known):
            yield instruction("ENV", _at(f"{key.text}={known}", said.span))
    for step in islice(job.listed("steps"), _STEPS):
        uses, run, condition = step.get("uses"), step.get("run"), step.get("if")
        holds = _holds(condition.text, values) if condition is not None else True
        if holds is False:
            continue
        if uses is not None and uses.text.startswith("actions/checkout@"):
            inside = step.get("with", "path")
            target = posixpath.join("/github/workspace", inside.text if inside is not None else "")
            if step.get("with", "repository") is None:
                yield instruction("COPY", _at(f". {target}", uses.span))
        if run is None or run.items is not None or run.keys is not None:
            continue
        named = step.get("shell") or default
        program = (named.text.split() or [""])[0] if named is not None else "bash"
        if program not in _SHELLS:
            continue
        place = step.get("working-directory") or folder
        below, _ = _filled(place.text, values) if place is not None else ("", True)
        yield instruction("WORKDIR", _at(posixpath.join("/github/workspace", below), run.span))
        yield instruction("RUN", _script(run, _environment(values, step.get("env")), file, step, holds is None))


def _at(text: str, span: Span) -> Text:
    """A text all of which stands at one place."""
    return Text(text, span.path, (0,), ((span.line, span.column),))


def _script(run: Node, values: Values, file: File, step: Node, doubted: bool) -> Text:
    """The commands of a step, in an `if` where nobody knows its condition, for what they do is not sure."""
    pieces: list[tuple[str, int, int]] = []
    first = (run.span.line, run.span.column)
    pieces.append(("set -e\n", *first))  # as the runner starts every shell
    for key, _ in step.pairs("env"):  # those of the step alone, such as PIP_INDEX_URL
        known = values.get(f"env.{key.text}")
        if known is not None and re.fullmatch(r"[\w.:/@+,%=-]*", known):
            pieces.append((f"export {key.text}={known}\n", *first))
    if doubted:
        pieces.append((f'if [ "{_UNKNOWN}" ]; then\n', *first))
    for line, number, column in _lines(run, file.text):
        at = 0
        for found in _EXPRESSION.finditer(line):
            known = _value(found[1], values)
            pieces.append((line[at : found.start()], number, column + at))
            pieces.append((_UNKNOWN if known is None else known, number, column + found.start()))
            at = found.end()
        pieces.append((line[at:], number, column + at))
    if doubted:
        pieces.append(("\nfi\n", *first))
    return joined(pieces, file.path)


def _lines(node: Node, text: str) -> Iterator[tuple[str, int, int]]:
    """The lines of a scalar, each with its place: those of a literal block stand in the file as they are."""
    span = node.span
    lines = text.split("\n")
    raw = lines[span.line - 1][span.column - 1 :] if span.line <= len(lines) else ""
    if not raw.startswith("|"):
        quoted = 1 if raw[:1] in "\"'" else 0
        yield node.text, span.line, span.column + quoted
        return
    for at, line in enumerate(node.text.split("\n")):
        number = span.line + 1 + at
        there = lines[number - 1] if number <= len(lines) else ""
        yield line + "\n", number, len(there) - len(there.lstrip(" ")) - (len(line) - len(line.lstrip(" "))) + 1


# ---------------------------------------------------------------- the containers of a job


def _containers(root: Node, key: Node, job: Node, reading: Reading) -> Iterator[Container]:
    """The container of a job, its services, and the variables of a job without one."""
    for combination in _matrix(job):
        values = _environment(combination, root.get("env"), job.get("env"))
        parts = [(f"{key.text}", job.get("container")), *((name.text, node) for name, node in job.pairs("services"))]
        for name, node in parts:
            image = node if node is None or node.keys is None else node.get("image")
            if node is None or image is None or image.empty:
                continue
            reference, sure = _filled(image.text, values)
            said = FileValue(reference, image.span, sure)
            options = node.get("options")
            one = container_of(name, image.span, said, plain(options), reading)
            given = {each.text: plain(value) for each, value in node.pairs("env")}
            yield replace(one, env={**one.env, **given})
    env = {
        each.text: plain(value) for node in (root.get("env"), job.get("env")) if node for each, value in node.pairs()
    }
    for step in job.listed("steps"):
        env |= {each.text: plain(value) for each, value in step.pairs("env")}
    yield Container(key.text, key.span, env=env)


READERS = {"workflow": of_workflow}
