"""The files of the container while it is built, as far as they come from the context, from the text itself, or are
known not to.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Protocol

from envkit.dockerfile import edits, options, requirements
from envkit.dockerfile.files import NOWHERE, ByBuild, FileText, FromOthers, absolute
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Command, Copy

_URL = pattern(r"(?:https?|ftp|git|ssh)://|git@")
_IN_PLACE = pattern(r"-[a-zA-Z]*i|--in-place")  # of sed


class Source(Protocol):
    """A build context."""

    def read(self, path: str) -> FileText | str:
        """The file at ``path`` below the context's root, or a clause that says why not."""

    def names(self, path: str) -> tuple[str, ...]:
        """The names below a folder; empty where it is none."""

    def clone_of(self, url: str) -> Source | None:
        """What a clone of ``url`` would hold, where that is the repository that the context itself belongs to."""


class NoContext:
    """The context of a Dockerfile that was given without one."""

    def read(self, path: str) -> FileText | str:
        """Always the reason."""
        return "no build context was given"

    def names(self, path: str) -> tuple[str, ...]:
        """Always empty."""
        return ()

    def clone_of(self, url: str) -> Source | None:
        """Always None."""
        return None


def mounts(flags: Iterable[str]) -> Iterator[dict[str, str]]:
    """The mounts of a RUN by their keys; "target" is always there, "" where none is said."""
    for flag in flags:
        if flag.startswith("--mount="):
            parts = [part.partition("=") for part in flag.removeprefix("--mount=").split(",")]
            given = {key.strip().lower(): value.strip().strip("\"'") for key, _, value in parts}
            yield {**given, "target": given.get("target") or given.get("dst") or given.get("destination") or ""}


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A place that is not of the context: ``find`` reads below ``folder`` there; ``why`` is for what it has not."""

    find: Callable[[str], FileText | str]
    folder: str
    why: str

    def read(self, below: str) -> FileText | str:
        """The file below the folder, "" for itself, or a clause that says why it cannot be known."""
        found = self.find(posixpath.normpath(posixpath.join(self.folder, below)))
        return self.why if found == NOWHERE else found


# A text, the reason why there is none, a place of the context and whether all below it is meant, or one of elsewhere.
What = FileText | str | tuple[str, bool] | Elsewhere
_OTHER = FromOthers("it comes from another image or stage")
_DEEPEST = 6  # stages that hand a file on


@dataclass(slots=True)
class Tree:
    """What lies where, newest last; ``copy`` for a stage that is FROM it."""

    context: Source
    events: list[tuple[str, What]] = field(default_factory=list)
    clones: dict[str, tuple[str, str]] = field(default_factory=dict)  # address and branch or tag, by folder
    budget: edits.Budget = field(default_factory=edits.Budget)
    depth: int = 0  # stages that it takes files from, one from another

    def copy(self) -> Tree:
        """A state of its own for another stage."""
        return Tree(self.context, list(self.events), dict(self.clones), self.budget, self.depth)

    def _from(self, cwd: str) -> Callable[[str], FileText | str]:
        """What reads a file that is named from a folder."""
        return lambda path: self.read(path, cwd)

    def at_root(self, path: str) -> FileText | str:
        """The file at an absolute path, or a clause that says why it cannot be known."""
        return self.read(path, "/")

    def clone_at(self, folder: str) -> tuple[str, str]:
        """The address that ``folder`` was cloned from and the branch or tag in it, ("", "") where it is no clone."""
        return self.clones.get(posixpath.normpath(folder), ("", ""))

    def took(self, copy: Copy, workdir: str, stage: Tree | None = None) -> None:
        """A COPY or ADD out of the context, or out of ``stage``, the files of another stage."""
        target = absolute(copy.target, workdir)
        into = copy.target.endswith(("/", "/.")) or copy.target == "." or len(copy.sources) > 1
        for source in copy.sources:
            if _URL.match(source):
                self.events.append((_named(target, source, into), FromOthers("the build downloads it")))
            elif stage is not None and stage.depth < _DEEPEST and not re.search(r"[*?\[]", source):
                there = Elsewhere(stage.at_root, absolute(source, "/"), _OTHER)
                # What a folder adds to another one lets through what was there.
                self.events.append((target, replace(there, why=NOWHERE) if into else there))
                self.events.append((_named(target, source, True), there))
                self.depth = max(self.depth, stage.depth + 1)
            elif copy.foreign:
                self.events.append((_named(target, source, into), _OTHER))
            else:
                # Docker takes a source as if the context were the root: ".." does not lead out of it
                inside = posixpath.normpath("/" + source).lstrip("/") or "."
                self._took(inside + "/" if source.endswith(("/", "/.")) and inside != "." else inside, target, into)

    def _took(self, source: str, target: str, into: bool) -> None:
        folder = source in (".", "./") or source.endswith(("/", "/.")) or bool(self.context.names(source))
        if "*" in source or "?" in source:
            self.events.append((target, (posixpath.dirname(source) or ".", True)))
        elif folder:
            self.events.append((target, (source.rstrip("/."), True)))
        else:
            if into or not posixpath.splitext(target)[1]:
                # A target without a slash may be a folder that is there, which takes the file by its name: what is
                # read below the target can be nothing else.
                self.events.append((_named(target, source, True), (source, False)))
            if not into:
                self.events.append((target, (source, False)))
            # Without the context nobody knows whether this is a folder; what lies below it would be found there.
            if not posixpath.splitext(source)[1] and not isinstance(self.context.read(source), FileText):
                self.events.append((target, (source, True)))

    def bound(
        self, flags: tuple[str, ...], workdir: str, stages: Mapping[str, Tree] | None = None
    ) -> list[tuple[str, What]]:
        """What the bind mounts of a RUN add for its time; ``stages`` are the files of stages by their names."""
        added: list[tuple[str, What]] = []
        for given in mounts(flags):
            if given.get("type", "bind") != "bind":
                continue
            if "from" in given:
                stage = (stages or {}).get(given["from"].lower())
                if stage is not None and given["target"]:
                    folder = absolute(given.get("source") or given.get("src") or "/", "/")
                    added.append((absolute(given["target"], workdir), Elsewhere(stage.at_root, folder, _OTHER)))
                continue
            source = (given.get("source") or given.get("src") or ".").lstrip("/") or "."
            target = absolute(given["target"] or source, workdir)
            added += [(target, (source, False)), (target, (source, True))]
        return added

    def ran(self, command: Command) -> None:
        """What a command writes, clones or downloads."""
        program, words = command.program, command.args
        clone = cloned(command)
        if clone is not None:
            why = FromOthers(f"the build clones it from {clone.url}")
            own = None if clone.ref else self.context.clone_of(clone.url)
            lists = {} if clone.ref else requirements.lists_of(clone.url)
            if own is not None:
                self.events.append((clone.folder, Elsewhere(own.read, ".", why)))
            else:
                self.events.append(
                    (clone.folder, Elsewhere(_listed(clone.url, lists, why), ".", why) if lists else why)
                )
            self.clones[clone.folder] = (clone.url, clone.ref)
        elif program == "git" and "checkout" in words:
            place = posixpath.normpath(command.cwd or "/")
            known = requirements.lists_of(self.clones[place][0]) if place in self.clones else {}
            newest = known and words[-1] in ("main", "master") and not self.clones[place][1]
            if place in self.clones and not words[-1].startswith("-") and not newest:
                self.clones[place] = (self.clones[place][0], words[-1])
                self.events.append((place, FromOthers(f"the build clones it from {self.clones[place][0]}")))
        elif program in ("wget", "curl"):
            name = options.value_of(words, "-O" if program == "wget" else "-o", "--output-document", "--output")
            for word in words:
                if _URL.match(word):
                    place = absolute(name or word.rsplit("/", 1)[-1], command.cwd)
                    self.events.append((place, FromOthers("the build downloads it")))
        elif program in ("cp", "mv"):
            self._moved(command)
        elif program == "uv" and words[:1] == ("lock",) and not {"--check", "--dry-run"} & set(words):
            self.events.append((absolute("uv.lock", command.cwd), ByBuild("the build makes it again")))
        elif program in ("uv", "poetry", "pdm", "pip-compile"):
            name = options.value_of(words, "-o", "--output", "--output-file")  # of an export or a compilation
            if name:
                self.events.append((absolute(name, command.cwd), ByBuild("the build writes it")))
        elif program == "sed" and any(_IN_PLACE.match(word) for word in words):
            self._edited(command)
        for redirect in command.redirects:
            if redirect.op in (">", ">>", "&>", ">|") and redirect.target.sure:
                self._wrote(command, redirect.op, absolute(redirect.target.text, command.cwd))

    def _edited(self, command: Command) -> None:
        """What `sed -i` leaves in the place of files."""
        known = edits.edited_in_place(command, self._from(command.cwd), self.budget) if command.sure else {}
        for word in command.args:  # its script among them, which names no file
            place = absolute(word, command.cwd)
            before = self.read(place, "/")
            if isinstance(before, FileText):
                self.events.append((place, known.get(word) or ByBuild("the build edits it")))

    def _moved(self, command: Command) -> None:
        """What cp and mv put in the place of files, as far as their names look like files'."""
        named = [word for word in command.words[1:] if not word.text.startswith("-")]
        if len(named) < 2 or not all(word.sure for word in named):
            return
        target = named[-1].text
        for word in named[:-1]:
            self._emptied(word.text, target, command)
            source, name = absolute(word.text, command.cwd), posixpath.basename(word.text.rstrip("/"))
            found = self.read(source, "/")
            if not isinstance(found, FileText) or not command.sure:
                found = ByBuild(f"the build copies {word.text} there")
            places = [absolute(posixpath.join(target, name), command.cwd)]
            if posixpath.splitext(target)[1] and not target.endswith("/"):
                places.append(absolute(target, command.cwd))
            self.events += [(place, found) for place in places if posixpath.splitext(place)[1]]

    def _emptied(self, source: str, target: str, command: Command) -> None:
        """What a clone, or a folder in it, or all that lies in one, leaves where cp and mv put it: files that are known
        alone, for anything else may be what was there before."""
        folder = absolute(re.sub(r"/(?:\*|\.)\Z", "", source), command.cwd)
        within = any(folder == place or folder.startswith(f"{place}/") for place in self.clones)
        if not within or not command.sure or self.depth >= _DEEPEST or re.search(r"[*?\[]", folder):
            return
        self.depth += 1
        before = Tree(self.context, list(self.events), budget=self.budget)

        def known(path: str) -> FileText | str:
            found = before.read(path, "/")
            return found if isinstance(found, FileText) else NOWHERE

        there = Elsewhere(known, folder, NOWHERE)
        place = absolute(target, command.cwd)
        self.events.append((place, there))
        if not source.endswith(("/*", "/.")):
            self.events.append((posixpath.join(place, posixpath.basename(folder)), there))

    def _wrote(self, command: Command, op: str, path: str) -> None:
        text: str | None = None
        if command.program == "cat" and command.heredoc:
            text = command.heredoc
        elif command.program in ("echo", "printf") and all(word.sure for word in command.words):
            said = [word for word in command.args if word not in ("-e", "-n", "-ne", "-en")]
            text = " ".join(said).replace("\\n", "\n") + "\n"
        if text is None:
            known = command.sure and op in (">", ">|")
            made = edits.printed(command, self._from(command.cwd), self.budget) if known else None
            self.events.append((path, made or ByBuild("the build writes it")))
            return
        before = self.read(path, "/") if op == ">>" else ""
        said_before = before.text if isinstance(before, FileText) else ""
        where = command.words[0].span
        line = where.line + (1 if command.heredoc else 0)
        self.write(path, where.path, line, text, said_before)

    def write(self, path: str, origin: str, line: int, text: str, before: str = "") -> None:
        """A file whose text ``origin`` holds from ``line`` on; empty lines in front keep the numbers of its lines."""
        gap = "\n" * max(0, line - 1 - before.count("\n"))
        self.events.append((path, FileText(origin, before + gap + text)))

    def read(self, path: str, cwd: str) -> FileText | str:
        """The file at ``path`` of the container, or a clause that says why it cannot be known."""
        if _URL.match(path):
            return "it lies on the network"
        full = absolute(path, cwd)
        why = ""
        for place, what in reversed(self.events):
            if place == full:
                if isinstance(what, FileText | str):
                    return what
                if isinstance(what, Elsewhere):
                    found = what.read("")
                    if found != NOWHERE:
                        return found
                    continue
                if not what[1]:
                    found = self.context.read(what[0])
                    if isinstance(found, FileText):
                        return found
                    why = why or found
                    continue
            if full.startswith(place.rstrip("/") + "/"):
                below = full[len(place.rstrip("/")) + 1 :]
                if isinstance(what, str):
                    return what
                if isinstance(what, Elsewhere) and (found := what.read(below)) != NOWHERE:
                    return found
                if isinstance(what, tuple) and what[1]:
                    found = self.context.read(posixpath.normpath(posixpath.join(what[0], below)))
                    if isinstance(found, FileText):
                        return found
                    why = why or found
        return why or NOWHERE


@dataclass(slots=True)
class Run:
    """The files as one RUN sees them: the tree and its bind mounts."""

    tree: Tree
    flags: tuple[str, ...]
    workdir: str
    stages: Mapping[str, Tree] = field(default_factory=dict)

    def read(self, path: str, cwd: str) -> FileText | str:
        """As Tree.read, the mounts first."""
        mounted = self.tree.bound(self.flags, self.workdir, self.stages)
        if not mounted:
            return self.tree.read(path, cwd)
        return Tree(self.tree.context, [*self.tree.events, *mounted]).read(path, cwd)


_CLONE = options.grammar("git clone")


@dataclass(frozen=True, slots=True)
class Clone:
    """What one ``git clone`` makes: ``ref`` is the branch or tag asked for, "" for the default one."""

    url: str
    folder: str
    ref: str


def cloned(command: Command) -> Clone | None:
    """What the command clones, None where it clones nothing or what is not known before the build."""
    if command.program != "git" or "clone" not in command.args:
        return None
    at = command.args.index("clone") + 1  # of words, which begin with the program
    given = options.read(command.words[at + 1 :], _CLONE)
    if not given.rest or not (_URL.match(given.rest[0].text) or given.rest[0].text.endswith(".git")):
        return None
    url = given.rest[0].text
    folder = given.rest[1].text if len(given.rest) > 1 else url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    ref = given.last("--branch") or given.last("-b")
    return Clone(url, absolute(folder, command.cwd), ref.text if ref else "")


def _named(target: str, source: str, into: bool) -> str:
    return absolute(source.rstrip("/").rsplit("/", 1)[-1], target) if into else target


def _listed(url: str, lists: Mapping[str, str], why: str) -> Callable[[str], FileText | str]:
    """What reads the lists of a repository that the facts know, and nothing else of it."""

    def read(path: str) -> FileText | str:
        name = posixpath.normpath(path)
        return FileText(f"{url.removesuffix('.git')}/{name}", lists[name]) if name in lists else why

    return read
