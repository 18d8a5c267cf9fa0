"""``--start FILE``: the start that a compose file, a manifest, a devcontainer.json or a Dockerfile describes.

A start is laid over the Dockerfile that the image is built from as if it were its last lines, so that one reader knows
what is in force.  Where a script of the build's context hands its words on, they are followed to the job.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from envkit.dockerfile.evaluate import TooLarge, read_with_files
from envkit.dockerfile.tree import Source, Tree
from envkit.engine import DeclaredStart
from envkit.errors import UsageError, one_line
from envkit.facts import Facts
from envkit.judging import judge
from envkit.runner import start as starts
from envkit.static import CheckOptions, JudgedFile
from envkit.static.judged import context_of
from envkit.static.kinds import BY_TEXT, by_name, by_text
from envkit.static.started import Below, Follower, Nothing, declared_by, folder_of, followed, of_dockerfile
from envkit.static.workloads import KINDS
from envkit.subjects.start import JobStart
from envkit.subjects.workload import Container
from envkit.system import files

LARGEST = 4 << 20  # bytes of a file that describes a start


def of_file(name: str, dockerfile: Path | None, check_options: CheckOptions, facts: Facts) -> JobStart:
    """The start that ``name`` (FILE or FILE#SERVICE) describes; ``dockerfile`` builds the image that it names.

    Raises UsageError for a file that describes no start, or several of which none is named.
    """
    path, _, service = name.partition("#") if not os.path.exists(name) else (name, "", "")
    text = _text(path)
    kind = by_name(os.path.basename(path))
    kind = by_text(text, os.path.basename(path)) if kind in ("", *BY_TEXT) else kind
    if kind != "dockerfile" and kind not in KINDS:
        raise UsageError(
            f"{one_line(path)} describes no start",
            "name a compose file, a manifest, a devcontainer.json or a Dockerfile",
        )
    context = context_of(Path(path), kind, check_options, text)
    return read(kind, text, path, context, check_options, facts, service, _beside(dockerfile, check_options))


Built = tuple[str, str, Source | None]  # text and path of a Dockerfile, and its context


def _beside(path: Path | None, check_options: CheckOptions) -> Built | None:
    if path is None:
        return None
    text = _text(str(path))
    return text, str(path), context_of(path, "dockerfile", check_options, text)


def _text(path: str) -> str:
    try:
        return files.content(path, LARGEST).decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise UsageError(
            f"{one_line(path)} cannot be read: {files.why(error)}", "name a file, as FILE#SERVICE"
        ) from None


def read(
    kind: str,
    text: str,
    path: str,
    context: Source | None,
    check_options: CheckOptions,
    facts: Facts,
    service: str = "",
    built: Built | None = None,
) -> JobStart:
    """The start that a file's text describes; raises UsageError as ``of_file``."""
    if kind == "dockerfile":
        return _of_dockerfile(text, path, context, check_options, facts)
    container = chosen(kind, text, path, context, check_options, facts, service)
    own = _own(container, path, context) or built
    start = JobStart(
        path, kind, container.name, container.span, container.entrypoint, container.arguments,
        user=container.user, environment=container.env,
    )  # fmt: skip
    if own is None:
        named = f"{container.image.value} is not built here" if container.image else "its Dockerfile was not read"
        return followed(replace(start, why=named), Tree(Nothing()), container.mounts, context)
    return _laid(start, own, container, context, check_options, facts)


def chosen(
    kind: str, text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts, service: str
) -> Container:
    """The service that is meant: the named one, the only one, or the only one that asks for GPUs."""
    workload = KINDS[kind](text, path, context, check_options, facts)
    if isinstance(workload, str):
        raise UsageError(f"{path} cannot be read: {workload}", "correct it")
    meant = [one for one in workload.containers if not one.initial and service in ("", one.name)]
    if not service and len(meant) > 1:
        meant = [one for one in meant if one.gpus] if len([one for one in meant if one.gpus]) == 1 else meant
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(one.name for one in workload.containers) or "none"
    said = f"{path} has no container `{one_line(service)}`" if service else f"{path} describes {len(meant)} starts"
    raise UsageError(said, f"name one as {path}#NAME; it has: {names}")


def _own(container: Container, path: str, context: Source | None) -> Built | None:
    """The Dockerfile that a service is built from; its ``path`` goes from the file that names it."""
    if container.built is None or context is None:
        return None
    return container.built.text, container.built.path, Below(context, container.folder)


def _of_dockerfile(text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts) -> JobStart:
    try:
        dockerfile, tree = read_with_files(text, path, facts, context, known=check_options.bases)
    except TooLarge as error:
        raise UsageError(f"{path} cannot be read: {error}", "name another file") from None
    if not dockerfile.stages:
        raise UsageError(f"{path} has no FROM", "name a Dockerfile that builds an image")
    return of_dockerfile(dockerfile, tree, context)


def _laid(
    start: JobStart, own: Built, container: Container, context: Source | None, check_options: CheckOptions, facts: Facts
) -> JobStart:
    """``start`` laid over its Dockerfile."""
    text, path, beside = own
    try:
        before, _ = read_with_files(text, path, facts, beside, known=check_options.bases)
        entrypoint, command = declared_by(before)
        # Kubernetes' command and compose's entrypoint take the image's CMD away with its ENTRYPOINT.
        given, behind = start.entrypoint, start.command
        replaced, dropped = (entrypoint, command) if given is not None else (None, command if behind else None)
        given, behind = given or entrypoint, behind if behind or given else command
        lines = [
            *(f"ENV {name}={_quoted(one.value)}" for name, one in container.env.items() if one and one.sure),
            *(f"WORKDIR {one.value}" for one in (container.workdir,) if one and one.sure),
            *(f"USER {one.value}" for one in (container.user,) if one and one.sure and one.value),
            *(f"{key} {json.dumps([word.value for word in one.words])}"
              for key, one in (("ENTRYPOINT", start.entrypoint), ("CMD", behind)) if one and not one.shell),
        ]  # fmt: skip
        laid, tree = read_with_files("\n".join([text, *lines, ""]), path, facts, beside, known=check_options.bases)
    except TooLarge as error:
        return replace(start, why=f"{path} was not read: {error}")
    found = replace(
        start, entrypoint=given, command=behind, replaced=replaced, dropped=dropped, dockerfile=laid,
        lines=len(text.split("\n")),
    )  # fmt: skip
    old = Follower(before, tree, folder_of(before)).script(entrypoint.words if entrypoint else ())
    return followed(replace(found, replaced_script=old), tree, container.mounts, context)


def _quoted(value: str) -> str:
    return json.dumps(value.replace("\n", " "), ensure_ascii=False).replace("$", "\\$")


def judged(name: str, dockerfile: Path | None, check_options: CheckOptions, facts: Facts) -> JudgedFile:
    """The start that ``name`` describes, judged by every check for it; raises UsageError as ``of_file``."""
    start = of_file(name, dockerfile, check_options, facts)
    return JudgedFile(start.path, "start", _text(start.path), judge.judge(start, facts))


def _of_text(text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts) -> JudgedFile:
    kind = by_text(text) or "devcontainer"
    return JudgedFile(path, "start", text, judge.judge(read(kind, text, path, context, check_options, facts), facts))


READERS = {"start": _of_text}


# ---------------------------------------------------------------- for a probe


def override(name: str, facts: Facts) -> starts.Override:
    """The start that ``name`` (FILE or FILE#SERVICE) describes, for an image that is there.

    Raises UsageError for what ``of_file`` refuses, and for words that hold a variable which nobody decided.
    """
    path, _, service = name.partition("#") if not os.path.exists(name) else (name, "", "")
    text = _text(path)
    kind = by_name(os.path.basename(path))
    kind = by_text(text, os.path.basename(path)) if kind in ("", *BY_TEXT) else kind
    if kind not in KINDS:
        raise UsageError(
            f"{one_line(path)} describes no start", "name a compose file, a manifest or a devcontainer.json"
        )
    options = CheckOptions()
    one = chosen(kind, text, path, context_of(Path(path), kind, options, text), options, facts, service)
    lines = [line for line in (one.entrypoint, one.arguments) if line is not None]
    for word in (word for line in lines for word in line.words):
        if not word.sure:
            said = f"{word.span.place}: the start holds `{one_line(word.value)}`, whose value the file does not say"
            raise UsageError(said, "name the command with --command")
    environment = {key: said.value for key, said in one.env.items() if said is not None and said.sure}
    user, workdir = (said.value if said is not None and said.sure else "" for said in (one.user, one.workdir))

    def declared(image: DeclaredStart) -> DeclaredStart:
        entry = tuple(word.value for word in one.entrypoint.words) if one.entrypoint else image.entrypoint
        behind = image.command if one.entrypoint is None else ()
        command = tuple(word.value for word in one.arguments.words) if one.arguments else behind
        if kind == "devcontainer":  # a terminal or a task of the editor, past the entry point
            entry, command = (), ()
        return DeclaredStart(
            entry, command, {**image.environment, **environment}, user or image.user, workdir or image.workdir
        )

    folder = Path(path).parent
    mounts = {
        mount.target: folder / mount.source
        for mount in one.mounts
        if mount.kind == "bind" and "$" not in mount.source and (folder / mount.source).exists()
    }
    unknown = tuple(key for key in one.env if key not in environment) + (("its env_file",) if one.env_files else ())
    return starts.Override(f"{path}, {one.name}", declared, mounts, unknown)
