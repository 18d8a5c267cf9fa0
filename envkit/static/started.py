"""The start that a Dockerfile describes: ENTRYPOINT and CMD, the scripts of the build's context that they run, the job
at their end, and the files that it names and that the image does not have.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field

from envkit.dockerfile import shell
from envkit.dockerfile.files import FileText, absolute
from envkit.dockerfile.instructions import Text
from envkit.dockerfile.shell_commands import SHELLS
from envkit.dockerfile.starting import PYTHON, handed_on, is_job, unwrapped
from envkit.dockerfile.tree import Elsewhere, Source, Tree
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Dockerfile, Step
from envkit.subjects.start import Absent, HandsOn, JobStart, StartScript
from envkit.subjects.workload import FileValue, Mount, StartLine

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEEPEST = 4  # scripts that start one another
_USES = re.compile(r"\$(?:[@*#1-9]|\{[@*#1-9]|\{!)|\bshift\b|\bgetopts\b")
_HARMLESS = frozenset(
    ("pip", "pip3", "apt-get", "apt", "apk", "dnf", "yum", "uv", "conda", "mamba", "useradd", "adduser", "groupadd",
     "chmod", "chown", "mkdir", "echo", "rm", "ldconfig", "set", "export", "python", "python3", "true", "locale-gen")
)  # fmt: skip


class Nothing:
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
class Below:
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


def of_dockerfile(dockerfile: Dockerfile, tree: Tree, context: Source | None) -> JobStart:
    """The start that a Dockerfile with a stage describes itself; ``tree`` are the files at its end."""
    entrypoint, command = declared_by(dockerfile)
    span = (entrypoint or command or StartLine((), "", dockerfile.target.span)).span
    lines = len(dockerfile.text.split("\n"))
    start = JobStart(dockerfile.path, "dockerfile", "", span, entrypoint, command, dockerfile=dockerfile, lines=lines)
    return followed(start, tree, (), context)


def declared_by(dockerfile: Dockerfile) -> tuple[StartLine | None, StartLine | None]:
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


def folder_of(dockerfile: Dockerfile | None) -> str:
    """The working folder at the end of a build."""
    if dockerfile is None or not dockerfile.stages:
        return ""
    folder = "/"
    for step in dockerfile.steps:
        if step.name == "WORKDIR":
            folder = posixpath.normpath(posixpath.join(step.workdir or "/", step.value.strip().strip("\"'")))
    return folder if "$" not in folder else ""


def followed(start: JobStart, tree: Tree, mounts: Sequence[Mount], context: Source | None) -> JobStart:
    """``start`` with its scripts, its job, and the files that are not there."""
    words = (*(start.entrypoint.words if start.entrypoint else ()), *(start.command.words if start.command else ()))
    if start.entrypoint and start.entrypoint.shell:
        words = start.entrypoint.words
    follower = Follower(start.dockerfile, tree, folder_of(start.dockerfile))
    follower.follow(words, 0)
    found = replace(start, scripts=tuple(follower.scripts), job=follower.job, folder=follower.folder)
    if start.dockerfile is None:
        return found
    return replace(found, absent=tuple(_absent(found, words, tree, mounts, context)))


@dataclass(slots=True)
class Follower:
    """Follows a command line through the scripts that hand it on."""

    dockerfile: Dockerfile | None
    tree: Tree
    folder: str
    scripts: list[StartScript] = field(default_factory=list)
    job: tuple[FileValue, ...] = ()

    def follow(self, words: Sequence[FileValue], depth: int) -> None:
        """Takes the scripts that ``words`` run, and the job at their end."""
        at = unwrapped([word.value for word in words])
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
        last = next((one for one in reversed(commands.commands) if is_job(one)), None)
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
        at = unwrapped([word.value for word in words])
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
        mode = _mode(path, read, self.dockerfile)
        return StartScript(word, text, _hands_on(text), path, read.path, by, login, tuple(given), *mode)

    def _place(self, name: str, by: str) -> str:
        """Where a script lies that is called by ``name``."""
        if "/" in name or by:
            return absolute(name, self.folder) if name.startswith("/") or self.folder else ""
        path = self._environment().get("PATH", _PATH)
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
    form = handed_on(body.replace("\r", ""))
    if form:
        return {'"$@"': HandsOn.EACH, '"$*"': HandsOn.JOINED}.get(form, HandsOn.SPLIT)
    sourced = re.search(r"(?:^|[;&|\n])\s*(?:\.|source|eval|exec\s+\S*entrypoint)\s", body)
    return HandsOn.USED if _USES.search(body) or sourced else HandsOn.IGNORED


def _mode(path: str, read: FileText, dockerfile: Dockerfile | None) -> tuple[bool | None, bool, bool]:
    """Whether the file may be executed in the image, whether a step of the build edits it, and whether the Dockerfile
    says so itself."""
    executable: bool | None = None
    edited = said = False
    name = posixpath.basename(path)
    with suppress(OSError):
        executable = bool(os.stat(read.path).st_mode & 0o111)
    for step in dockerfile.steps if dockerfile is not None else ():
        if step.copy is not None:
            mode = next((flag.partition("=")[2] for flag in step.flags if flag.startswith("--chmod=")), "")
            if path == step.copy.target or path.startswith(step.copy.target.rstrip("/") + "/"):
                if read.path == (dockerfile.path if dockerfile is not None else ""):
                    executable, said = False, True  # a here-document of COPY; BuildKit writes 0644
                executable, said = (_runs(mode, executable), True) if mode else (executable, said)
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
    return executable, edited, said


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
    for word, path in _named(start, words):
        over = _over(path, mounts)
        if over is not None:
            below = posixpath.relpath(path, over.target)
            if over.kind == "bind" and over.source.startswith(".") and context is not None:
                folder = posixpath.normpath(over.source)
                if not folder.startswith("..") and not _may_be(Below(context, folder), below):
                    yield Absent(word, path, hidden=over)
            continue
        if word.sure and surely_absent(path, tree, dockerfile):
            yield Absent(word, path, elsewhere(posixpath.basename(path), path, tree))
    at = unwrapped([word.value for word in words])
    yield from _not_on_path(words[at:], tree, dockerfile)


def _not_on_path(words: Sequence[FileValue], tree: Tree, dockerfile: Dockerfile) -> Iterator[Absent]:
    """The script that words begin with, by its bare name, and that the build puts into no folder of PATH."""
    if not words or not words[0].sure or not re.fullmatch(r"[\w-]+\.(?:sh|py)", words[0].value):
        return
    name, path = words[0].value, dockerfile.target.env.get("PATH", _PATH)
    folders = path.split(":")
    if dockerfile.base.family not in ("os", "python", "nvidia", "pytorch"):
        return  # whose PATH nobody knows
    there = elsewhere(name, "", tree)
    made = any(name in word for _, command in dockerfile.commands for word in command.args)
    if there and not made and posixpath.dirname(there) not in folders:
        yield Absent(words[0], name, there)


def _named(start: JobStart, words: Sequence[FileValue]) -> list[tuple[FileValue, str]]:
    """The files that ``words`` and the job name, with where in the image they are looked for."""
    named: list[tuple[FileValue, str]] = []
    at = unwrapped([word.value for word in words])
    # Before a script goes elsewhere, what is named by the words themselves is looked for where the image starts.
    heads = [(words[at], folder_of(start.dockerfile))] if at < len(words) else []
    heads += [(start.job[0], start.folder)] if start.job else []
    for word, folder in heads:
        if word.value.startswith("/") or (re.match(r"\.{0,2}[\w-]*/", word.value) and folder):
            named.append((word, absolute(word.value, folder)))
    # A shell is handed the file as its first word; Python and what starts it as one behind their options.
    script = _given_to_shell(words[at:]) if at < len(words) else None
    for word in filter(None, (script, python_file(start.job))):
        folder = folder_of(start.dockerfile) if word is script else start.folder
        if word.value.startswith("/") or folder:
            named.append((word, absolute(word.value, folder)))
    return list(dict.fromkeys(named))


def _given_to_shell(words: Sequence[FileValue]) -> FileValue | None:
    """The script that a shell is given as a file, None where it is given a text or none that is sure."""
    if posixpath.basename(words[0].value) not in SHELLS:
        return None
    word = next((one for one in words[1:] if not re.fullmatch(r"[-+](?!\w*c)\w+|--\w+", one.value)), None)
    plain = word is not None and word.sure and re.fullmatch(r"[\w./-]+", word.value)
    return word if plain and word is not None and not word.value.startswith("-") else None


# Programs that are given a file of Python behind words of their own.
_GIVEN = {
    "streamlit": "run", "fastapi": "run", "torchrun": "", "accelerate": "launch", "deepspeed": "", "chainlit": "run",
    "gradio": "", "marimo": "run", "bokeh": "serve", "xvfb-run": "",
}  # fmt: skip


def python_file(job: Sequence[FileValue]) -> FileValue | None:
    """The file that a Python of a job is given, itself or by a program that starts one; None where it is given none
    that is sure."""
    if not job:
        return None
    name = posixpath.basename(job[0].value)
    if name in _GIVEN and (not _GIVEN[name] or (len(job) > 1 and job[1].value == _GIVEN[name])):
        return next((one for one in job[1:] if one.sure and re.fullmatch(r"[\w./-]+\.py", one.value)), None)
    if not PYTHON.fullmatch(name):
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


def surely_absent(path: str, tree: Tree, dockerfile: Dockerfile) -> bool:
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


def elsewhere(name: str, path: str, tree: Tree) -> str:
    """Where else the build puts a file of this name."""
    for place, what in reversed(tree.events):
        if isinstance(what, tuple) and what[1] and name in tree.context.names(what[0] or "."):
            return posixpath.join(place, name)
        if place != path and posixpath.basename(place) == name:
            return place
    return ""
