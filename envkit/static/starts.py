"""``--start FILE``: the start that a compose file, a manifest, a devcontainer.json or a Dockerfile describes.

A start is laid over the Dockerfile that the image is built from as if it were its last lines, so that one reader knows
what is in force.  Where a script of the build's context hands its words on, they are followed to the job.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from envkit.dockerfile import shell
from envkit.dockerfile.evaluate import TooLarge, read_with_files
from envkit.dockerfile.files import FileText, absolute
from envkit.dockerfile.instructions import Text
from envkit.dockerfile.shell_commands import SHELLS
from envkit.dockerfile.tree import Elsewhere, Source, Tree
from envkit.engine import DeclaredStart
from envkit.errors import UsageError, one_line
from envkit.facts import Facts
from envkit.judging import judge
from envkit.records import dataclass
from envkit.runner import start as starts
from envkit.static import CheckOptions, JudgedFile
from envkit.static.judged import context_of
from envkit.static.kinds import BY_TEXT, by_name, by_text
from envkit.static.workloads import KINDS
from envkit.subjects.dockerfile import Dockerfile, Step
from envkit.subjects.start import Absent, HandsOn, JobStart, StartScript
from envkit.subjects.workload import Container, FileValue, Mount, StartLine
from envkit.system import files

LARGEST = 4 << 20  # bytes of a file that describes a start
_DEEPEST = 4  # scripts that start one another
_USES = re.compile(r"\$(?:[@*#1-9]|\{[@*#1-9]|\{!)|\bshift\b|\bgetopts\b")
_HARMLESS = frozenset(
    ("pip", "pip3", "apt-get", "apt", "apk", "dnf", "yum", "uv", "conda", "mamba", "useradd", "adduser", "groupadd",
     "chmod", "chown", "mkdir", "echo", "rm", "ldconfig", "set", "export", "python", "python3", "true", "locale-gen")
)  # fmt: skip


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
        return _followed(replace(start, why=named), Tree(_Nothing()), container.mounts, context)
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


class _Nothing:
    """A context of which nothing is known."""

    def read(self, path: str) -> FileText | str:
        """Always the reason."""
        return "the image is not built here"

    def names(self, path: str) -> tuple[str, ...]:
        """Always empty."""
        return ()

    def clone_of(self, url: str) -> Source | None:
        """Always None."""
        return None


@dataclass(slots=True)
class _Below:
    """A folder of a context."""

    context: Source
    folder: str

    def read(self, path: str) -> FileText | str:
        """The file below the folder."""
        return self.context.read(posixpath.normpath(posixpath.join(self.folder, path)))

    def names(self, path: str) -> tuple[str, ...]:
        """The names below a folder of it."""
        return self.context.names(posixpath.normpath(posixpath.join(self.folder, path)))

    def clone_of(self, url: str) -> Source | None:
        """As the context says."""
        return self.context.clone_of(url)


def _own(container: Container, path: str, context: Source | None) -> Built | None:
    """The Dockerfile that a service is built from; its ``path`` goes from the file that names it."""
    if container.built is None or context is None:
        return None
    return container.built.text, container.built.path, _Below(context, container.folder)


def _of_dockerfile(text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts) -> JobStart:
    try:
        dockerfile, tree = read_with_files(text, path, facts, context, known=check_options.bases)
    except TooLarge as error:
        raise UsageError(f"{path} cannot be read: {error}", "name another file") from None
    if not dockerfile.stages:
        raise UsageError(f"{path} has no FROM", "name a Dockerfile that builds an image")
    entrypoint, command = _declared(dockerfile)
    span = (entrypoint or command or StartLine((), "", dockerfile.target.span)).span
    start = JobStart(
        path, "dockerfile", "", span, entrypoint, command, dockerfile=dockerfile, lines=len(text.split("\n"))
    )
    return _followed(start, tree, (), context)


def _declared(dockerfile: Dockerfile) -> tuple[StartLine | None, StartLine | None]:
    """ENTRYPOINT and CMD as they are in force: an ENTRYPOINT takes away the CMD of the stages before its own."""
    entrypoint = command = None
    for index in dockerfile.lineage:
        shell_words: tuple[str, ...] = ("/bin/sh", "-c")
        here = False
        for step in dockerfile.stages[index].steps:
            if step.name == "SHELL":
                shell_words = _json(step) or shell_words
            elif step.name == "CMD":
                command, here = _line(step, shell_words), True
            elif step.name == "ENTRYPOINT":
                entrypoint, command = _line(step, shell_words), command if here else None
    return entrypoint, command


def _json(step: Step) -> tuple[str, ...]:
    try:
        found = json.loads(step.value)
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _line(step: Step, shell_words: tuple[str, ...]) -> StartLine:
    words = _json(step) if step.exec_form else (*shell_words, step.value)
    return StartLine(tuple(FileValue(word, step.span) for word in words), step.name, step.span, not step.exec_form)


def _laid(
    start: JobStart, own: Built, container: Container, context: Source | None, check_options: CheckOptions, facts: Facts
) -> JobStart:
    """``start`` laid over its Dockerfile."""
    text, path, beside = own
    try:
        before, _ = read_with_files(text, path, facts, beside, known=check_options.bases)
        entrypoint, command = _declared(before)
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
    old = _Follower(before, tree, _folder(before)).script(entrypoint.words if entrypoint else ())
    return _followed(replace(found, replaced_script=old), tree, container.mounts, context)


def _quoted(value: str) -> str:
    return json.dumps(value.replace("\n", " "), ensure_ascii=False).replace("$", "\\$")


def _folder(dockerfile: Dockerfile | None) -> str:
    """The working folder at the end of a build."""
    if dockerfile is None or not dockerfile.stages:
        return ""
    folder = "/"
    for step in dockerfile.steps:
        if step.name == "WORKDIR":
            folder = posixpath.normpath(posixpath.join(step.workdir or "/", step.value.strip().strip("\"'")))
    return folder if "$" not in folder else ""


def _followed(start: JobStart, tree: Tree, mounts: Sequence[Mount], context: Source | None) -> JobStart:
    """``start`` with its scripts, its job, and the files that are not there."""
    words = (*(start.entrypoint.words if start.entrypoint else ()), *(start.command.words if start.command else ()))
    if start.entrypoint and start.entrypoint.shell:
        words = start.entrypoint.words
    follower = _Follower(start.dockerfile, tree, _folder(start.dockerfile))
    follower.follow(words, 0)
    found = replace(start, scripts=tuple(follower.scripts), job=follower.job, folder=follower.folder)
    if start.dockerfile is None:
        return found
    return replace(found, absent=tuple(_absent(found, words, tree, mounts, context)))


@dataclass(slots=True)
class _Follower:
    """Follows a command line through the scripts that hand it on."""

    dockerfile: Dockerfile | None
    tree: Tree
    folder: str
    scripts: list[StartScript] = field(default_factory=list)
    job: tuple[FileValue, ...] = ()

    def follow(self, words: Sequence[FileValue], depth: int) -> None:
        """Takes the scripts that ``words`` run, and the job at their end."""
        at = starts.unwrapped([word.value for word in words])
        if at >= len(words) or depth > _DEEPEST:
            return
        found = self.script(words)
        if found is None:
            self.job = tuple(words[at:])
            return
        self.scripts.append(found)
        if found.hands_on in (HandsOn.EACH, HandsOn.SPLIT, HandsOn.JOINED):
            self.folder = self._end_folder(found)
            self.follow(found.given if found.origin else found.given[1:], depth + 1)  # the first is a text's $0
            return
        commands = shell.commands(Text.of(found.text, found.origin), self._environment(), self.folder, dialect="bash")
        last = next((one for one in reversed(commands.commands) if starts.is_job(one)), None)
        self.folder = last.cwd if last is not None and commands.complete else ""
        if last is not None and commands.complete:
            span = found.word.span
            inner = [FileValue(word.text, word.span if found.origin else span, word.sure) for word in last.words]
            self.follow(inner, depth + 1)

    def _environment(self) -> dict[str, str]:
        return dict(self.dockerfile.target.env) if self.dockerfile is not None and self.dockerfile.stages else {}

    def _end_folder(self, script: StartScript) -> str:
        found = shell.commands(Text.of(script.text, ""), self._environment(), self.folder, dialect="bash")
        return found.commands[-1].cwd if found.complete and found.commands else ""

    def script(self, words: Sequence[FileValue]) -> StartScript | None:
        """The script that ``words`` run, None where they run a program or nobody knows."""
        at = starts.unwrapped([word.value for word in words])
        if at >= len(words) or not words[at].sure:
            return None
        head = words[at]
        name = posixpath.basename(head.value)
        if name not in SHELLS:
            return self._file(head, "", False, words[at + 1 :])
        index, login = at + 1, False
        while index < len(words) and words[index].value[:1] in ("-", "+") and words[index].value != "--":
            option = words[index].value
            login = login or option in ("--login", "--interactive") or bool(re.fullmatch(r"-\w*[li]\w*", option))
            index += 1
            if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option):
                if index >= len(words) or not words[index].sure:
                    return None
                text, given = words[index], tuple(words[index + 1 :])
                hands = _hands_on(text.value)
                return StartScript(text, text.value, hands, by_shell=name, login=login, given=given)
        if index >= len(words):
            return None
        return self._file(words[index], name, login, words[index + 1 :])

    def _file(self, word: FileValue, by: str, login: bool, given: Sequence[FileValue]) -> StartScript | None:
        if not word.sure or ("/" not in word.value and not by and not word.value.endswith(".sh")):
            return None
        path = self._place(word.value, by)
        read = self.tree.read(path, "/") if path else "nobody knows"
        if isinstance(read, str):
            return None
        text = read.text.lstrip("\n") if read.path == (self.dockerfile.path if self.dockerfile else "") else read.text
        first = text.split("\n", 1)[0]
        if not by and not _of_shell(first, word.value):
            return None
        executable, edited = _mode(path, read, self.dockerfile)
        return StartScript(word, text, _hands_on(text), path, read.path, by, login, tuple(given), executable, edited)

    def _place(self, name: str, by: str) -> str:
        """Where a script lies that is called by ``name``."""
        if "/" in name or by:
            return absolute(name, self.folder) if name.startswith("/") or self.folder else ""
        path = self._environment().get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        places = [posixpath.join(folder, name) for folder in path.split(":") if folder.startswith("/")]
        return next((place for place in places if isinstance(self.tree.read(place, "/"), FileText)), "")


def _of_shell(first: str, name: str) -> bool:
    """Whether a file with this first line is a script for a shell, or one that somebody meant for one."""
    line = first.lstrip("\ufeff").strip()
    if not line.startswith("#!"):
        return name.endswith((".sh", ".bash")) or "entrypoint" in name
    words = [posixpath.basename(word) for word in line[2:].split() if not word.startswith("-")]
    return any(word in SHELLS for word in words[:2])


def _hands_on(text: str) -> HandsOn:
    body = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
    form = starts.handed_on(body.replace("\r", ""))
    if form:
        return {'"$@"': HandsOn.EACH, '"$*"': HandsOn.JOINED}.get(form, HandsOn.SPLIT)
    sourced = re.search(r"(?:^|[;&|\n])\s*(?:\.|source|eval|exec\s+\S*entrypoint)\s", body)
    return HandsOn.USED if _USES.search(body) or sourced else HandsOn.IGNORED


def _mode(path: str, read: FileText, dockerfile: Dockerfile | None) -> tuple[bool | None, bool]:
    """Whether the file may be executed in the image, and whether a step of the build edits it."""
    executable: bool | None = None
    edited = False
    name = posixpath.basename(path)
    with suppress(OSError):
        executable = bool(os.stat(read.path).st_mode & 0o111)
    for step in dockerfile.steps if dockerfile is not None else ():
        if step.copy is not None:
            mode = next((flag.partition("=")[2] for flag in step.flags if flag.startswith("--chmod=")), "")
            if path == step.copy.target or path.startswith(step.copy.target.rstrip("/") + "/"):
                if read.path == (dockerfile.path if dockerfile is not None else ""):
                    executable = False  # a here-document of COPY; BuildKit writes 0644
                executable = _runs(mode, executable) if mode else executable
        for command in step.commands if step.name == "RUN" else ():
            args = command.args
            named = any(posixpath.basename(word) == name or "*" in word for word in args)
            whole = any(
                path.startswith(absolute(word, command.cwd).rstrip("/") + "/") for word in args if "$" not in word
            )
            if command.program == "chmod" and (named or (whole and any("R" in word for word in args))):
                word = next((word for word in args if not re.fullmatch(r"-[a-zA-Z]+", word) or "x" in word), "")
                executable = _runs(word, executable) if command.sure else None
            elif named and command.program not in ("echo", "chown", "ls", "cat", "test"):
                executable, edited = None, True
    return executable, edited


def _runs(mode: str, before: bool | None) -> bool | None:
    """Whether a file may be executed after chmod ``mode``, in digits or in letters."""
    if re.fullmatch(r"[0-7]{3,4}", mode):
        return any(int(digit) & 1 for digit in mode[-3:])
    if re.search(r"-[rwst]*x", mode):
        return False
    return True if re.search(r"[+=][rwst]*[xX]", mode) else before


def _absent(
    start: JobStart, words: Sequence[FileValue], tree: Tree, mounts: Sequence[Mount], context: Source | None
) -> Iterator[Absent]:
    """The files that ``words`` and the job name and that surely are not there."""
    dockerfile = start.dockerfile
    assert dockerfile is not None
    named: list[tuple[FileValue, str]] = []
    at = starts.unwrapped([word.value for word in words])
    if at < len(words) and words[at].value.startswith("/"):
        named.append((words[at], words[at].value))
    script = python_file(start.job)
    if script is not None and (script.value.startswith("/") or start.folder):
        named.append((script, absolute(script.value, start.folder)))
    if start.job and start.job[0].value.startswith("/") and (start.job[0], start.job[0].value) not in named:
        named.append((start.job[0], start.job[0].value))
    for word, path in named:
        over = _over(path, mounts)
        if over is not None:
            below = posixpath.relpath(path, over.target)
            if over.kind == "bind" and over.source.startswith(".") and context is not None:
                folder = posixpath.normpath(over.source)
                if not folder.startswith("..") and not _may_be(_Below(context, folder), below):
                    yield Absent(word, path, hidden=over)
            continue
        if word.sure and _surely_absent(path, tree, dockerfile):
            yield Absent(word, path, _elsewhere(posixpath.basename(path), path, tree))


def python_file(job: Sequence[FileValue]) -> FileValue | None:
    """The file that a Python of a job is given, None where it is given none that is sure."""
    if not job or not starts.PYTHON.fullmatch(posixpath.basename(job[0].value)):
        return None
    for index, word in enumerate(job[1:], 1):
        if job[index - 1].value in ("-W", "-X", "--check-hash-based-pycs"):
            continue
        if word.value.startswith("-"):
            if word.value[:2] in ("-c", "-m") or word.value == "-":
                return None
            continue
        return word if word.sure and not re.search(r"[$`*]", word.value) else None
    return None


def _over(path: str, mounts: Sequence[Mount]) -> Mount | None:
    covering = [one for one in mounts if path == one.target or path.startswith(one.target.rstrip("/") + "/")]
    return max(covering, key=lambda one: len(one.target), default=None)


def _may_be(source: Source, path: str) -> bool:
    """Whether a folder may hold a file: its names show it, or cannot be read."""
    top = path.split("/")[0]
    names = source.names(".")
    return not names or top in names


def _surely_absent(path: str, tree: Tree, dockerfile: Dockerfile) -> bool:
    """Whether nothing of the build can have put a file there: the base cannot hold it, no step that makes files of a
    kind that is not followed has to do with its folder, and what is copied there does not have it."""
    base = dockerfile.base
    ours = any(path.startswith(folder) for folder in _made(dockerfile))
    if not base.scratch and (base.family in ("unknown", "other") or not ours):
        return False
    for place, what in tree.events:
        if path != place and not path.startswith(place.rstrip("/") + "/"):
            continue
        if isinstance(what, str | Elsewhere) or (isinstance(what, FileText) and path == place):
            return False
        if isinstance(what, tuple):
            below = posixpath.relpath(path, place) if path != place else ""
            source = posixpath.normpath(posixpath.join(what[0], below)) if below else what[0]
            if below and not what[1]:
                continue
            listed = tree.context.names(posixpath.dirname(source) or ".")
            if posixpath.basename(source) in listed or not tree.context.names("."):
                return False
    name = posixpath.basename(path)
    for _, command in dockerfile.commands:
        inside = command.cwd and (path.startswith(command.cwd.rstrip("/") + "/"))
        if any(name in word for word in (*command.args, *(r.target.text for r in command.redirects))):
            return False
        if command.program not in _HARMLESS and (
            inside or any(posixpath.dirname(path) in word for word in command.args)
        ):
            return False
    return True


def _made(dockerfile: Dockerfile) -> Iterator[str]:
    """The folders that the Dockerfile itself makes, which no public base holds files in."""
    system = ("/usr/", "/bin/", "/lib", "/etc/", "/sbin/", "/var/", "/opt/conda", "/opt/nvidia")
    for step in dockerfile.steps:
        folders = [posixpath.join(step.workdir or "/", step.value.strip())] if step.name == "WORKDIR" else []
        if step.copy is not None:
            folders += [step.copy.target, posixpath.dirname(step.copy.target.rstrip("/"))]
        for folder in map(posixpath.normpath, folders):
            if folder != "/" and not (folder + "/").startswith(system):
                yield folder.rstrip("/") + "/"
    yield from ("/" + name for name in ("app/", "entrypoint", "docker-entrypoint", "start", "run."))


def _elsewhere(name: str, path: str, tree: Tree) -> str:
    """Where else the build puts a file of this name."""
    for place, what in reversed(tree.events):
        if isinstance(what, tuple) and what[1] and name in tree.context.names(what[0] or "."):
            return posixpath.join(place, name)
        if place != path and posixpath.basename(place) == name:
            return place
    return ""


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
