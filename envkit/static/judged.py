"""From a file's text to what its checks say of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, assert_never

from envkit.dockerfile import copied
from envkit.dockerfile.bases import moves
from envkit.dockerfile.evaluate import TooLarge, read_with_files
from envkit.dockerfile.tree import Source
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Observed, Outcome, Result, ValueState
from envkit.records import replace
from envkit.static import READ, CheckOptions, JudgedFile
from envkit.static.kinds import KINDS
from envkit.subjects.dockerfile import Dockerfile

FIELDS = (
    *("base_image", "base_cuda", "base_cudnn", "base_flavor", "base_os"),
    *("torch_version", "torch_cuda", "python_version", "torch_install_method"),
)


def fields(dockerfile: Dockerfile) -> dict[str, Any]:
    """The nine fields of the contract, null where the file does not say, and under ``origins`` where each came from.

    ``base_cudnn`` is the major, as tags give it, and ``torch_version`` the public version without its local part; their
    origins have all that a fact knows.
    """
    found: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in FIELDS:
        seen: Observed[str] = getattr(dockerfile, name)
        value = None if seen.missing else seen.value
        if name == "base_os" and value and moves(dockerfile.base):  # the file does not say which release it is
            found[name], origins[name] = None, f"{value} today, {seen.via}"
            continue
        short = value
        if value and name in ("base_cudnn", "torch_version"):
            short = value.split(".")[0] if name == "base_cudnn" else _release(value.split("+")[0], dockerfile)
        if value is None:
            origins[name] = _absent(seen)
        else:
            origins[name] = seen.via if short == value else f"{value}, {seen.via}"
        found[name] = short
    return {**found, "origins": origins}


def _release(version: str, dockerfile: Dockerfile) -> str:
    """A version of torch with its patch: to pip "A.B" is "A.B.0"."""
    torch = dockerfile.torch
    whole = torch is None or torch.method not in ("pip", "uv", "poetry") or version.count(".") != 1
    return version if whole else f"{version}.0"


def _absent(seen: Observed[str]) -> str:
    match seen.state:
        case ValueState.UNSUPPORTED:
            return "the base has none"
        case ValueState.MISSING | ValueState.VALUE:
            return seen.missing
        case never:
            assert_never(never)


def of_dockerfile(
    text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts
) -> JudgedFile:
    """A Dockerfile's text, judged by every check for it."""
    try:
        subject, tree = read_with_files(
            text, path, facts, context, known=check_options.bases, gpus=check_options.gpus, driver=check_options.driver
        )
    except TooLarge as error:
        return JudgedFile(path, "dockerfile", unreadable=str(error))
    if isinstance(context, copied.Within):
        subject = replace(subject, lacking=copied.lacking(subject, context))
    results = judge.judge(subject, facts)
    if any(step.name in ("CMD", "ENTRYPOINT") for step in subject.steps):
        from envkit.static import built_start  # what a stage without either has no use for

        start = built_start.of_built(subject, tree, context)
        said = judge.judge(start, facts, built_start.CHECKS)
        results = tuple(sorted((*results, *said), key=lambda result: result.check))
    if subject.problems:  # what is no Dockerfile to BuildKit was judged in parts, which is not all of it
        results = (Result(READ, Outcome.UNKNOWN, reason=f"BuildKit refuses it: {subject.problems[0]}"), *results)
    if check_options.ask is not None and subject.stages:
        from envkit.static import resolved  # uv and its answers: most runs ask nobody

        return resolved.judged(text, path, context, check_options, facts, results)
    return JudgedFile(path, "dockerfile", text, results, fields(subject))


# One reader a kind of file (kinds.KINDS): text, path as the user named it, what lies beside it, check_options, facts.
Reader = Callable[[str, str, Source | None, CheckOptions, Facts], JudgedFile]
# The module whose READERS have it; it is imported when a file of that kind is met, for most runs meet Dockerfiles only.
READERS: Mapping[str, str] = {
    **dict.fromkeys(KINDS, "envkit.static.packages"),
    **dict.fromkeys(("compose", "kubernetes", "devcontainer"), "envkit.static.workloads"),
    "apptainer": "envkit.static.apptainer",
    "workflow": "envkit.static.workflows",
    **dict.fromkeys(("slurm", "makefile"), "envkit.static.scripts"),
    "helm": "envkit.static.helm",
    "dockerfile": __name__,
    "start": "envkit.static.starts",
}


def of_text(
    kind: str, text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts
) -> JudgedFile:
    """A file's text, judged by the checks for its kind; ``kind`` is one of READERS."""
    if kind == "dockerfile":
        return of_dockerfile(text, path, context, check_options, facts)
    readers: Mapping[str, Reader] = import_module(READERS[kind]).READERS
    return readers[kind](text, path, context, check_options, facts)


def subjects() -> tuple[type[Any], ...]:
    """The types that the readers make."""
    from envkit.subjects.packages import Packages
    from envkit.subjects.start import JobStart
    from envkit.subjects.workload import Workload

    return (Dockerfile, Packages, Workload, JobStart)


def context_of(path: Path, kind: str, check_options: CheckOptions, text: str) -> Source | None:
    """What lies beside a file of this ``text``: for a Dockerfile the build context that the user named or that it is
    written for, for a workflow its repository, else the folder it lies in.

    A file on stdin without a name ("-") lies nowhere, so that without a named context there is nothing beside it.
    """
    from envkit.dockerfile.context import Context, folder_of
    from envkit.static.whole import project

    named = check_options.context if kind == "dockerfile" else None
    if str(path) == "-":
        return Context(named, around=project) if named else None
    if named is None and kind == "dockerfile":
        named = folder_of(path, text)
    if kind == "workflow":
        whole = Path(os.path.abspath(path))
        if whole.parts[-3:-1] == (".github", "workflows"):
            named = Path(os.path.relpath(whole.parents[2]))
    beside = Context(named or path.parent, path, around=project)
    return beside if kind == "dockerfile" else beside.whole()
