"""What a Dockerfile's default build would contain: follows arguments, stages, commands and files, and judges
nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice

from envkit.dockerfile import (
    built,
    cargo,
    conda,
    pip,
    poetry,
    scripts,
    shell,
    system,
    torches,
    unread_installers,
    uv,
    words,
)
from envkit.dockerfile.bases import PATH, holds_torch
from envkit.dockerfile.bases import base as base_of
from envkit.dockerfile.files import Files
from envkit.dockerfile.follows import Follower, follow
from envkit.dockerfile.instructions import Instruction, Text
from envkit.dockerfile.parse import LONGEST_LINE, Parsed, parse
from envkit.dockerfile.pythons import SYSTEM, Pythons, carried, within
from envkit.dockerfile.shell_commands import shell_options
from envkit.dockerfile.stage import SHELL, Env, StageState
from envkit.dockerfile.tree import NoContext, Run, Source, Tree
from envkit.facts import Facts
from envkit.model import Observed, Span
from envkit.patterns import pattern
from envkit.records import replace
from envkit.subjects.dockerfile import (
    Base,
    Carried,
    Command,
    Copy,
    Dockerfile,
    Install,
    Removal,
    Setting,
    Stage,
    StartCommand,
    Step,
    Torch,
    Unread,
    Word,
)
from envkit.subjects.resolved import Resolved

# What no Dockerfile needs that a person or a generator wrote: the largest public ones have 20 KB and 200
# instructions, and an image has no more than 127 layers.  What is beyond it would take minutes, or gigabytes.
LARGEST = 1024 * 1024  # characters of all instructions, comments not counted
MOST = 5_000  # instructions
MOST_VARIABLES = 1_000  # names that ARG and ENV set
MOST_INSTALLS = 40_000  # packages that all commands together ask for
_VOLUME = 4_000_000  # characters of all values of variables together
_MAKES_A_PYTHON = frozenset(
    {"make", "tar", "unzip", "dpkg", "asdf", "mise", "nix", "brew", "spack"}
)  # as far as one sees


class TooLarge(Exception):
    """A Dockerfile is larger than any that somebody builds; the text is a clause that says in what."""


# What BuildKit defines for FROM lines, and for stages that declare them (Dockerfile reference, "Automatic platform
# ARGs").
_PLATFORM = {
    "TARGETPLATFORM": "linux/{arch}",
    "TARGETOS": "linux",
    "TARGETARCH": "{arch}",
    "TARGETVARIANT": "",
    "BUILDPLATFORM": "linux/amd64",
    "BUILDOS": "linux",
    "BUILDARCH": "amd64",
    "BUILDVARIANT": "",
}
_READERS = (pip.read, uv.read, poetry.read, cargo.read)


def read(
    text: str,
    path: str,
    facts: Facts,
    context: Source | None = None,
    *,
    known: Mapping[str, Base] | None = None,
    gpus: tuple[str, ...] = (),
    driver: str = "",
    follower: Follower | None = None,
) -> Dockerfile:
    """The subject of a Dockerfile's text; ``path`` is how the user named it.

    ``context`` is the build context.  ``known`` are bases that a configuration describes, by reference.  ``gpus`` and
    ``driver`` are what the user says the image must run on, and ``follower`` says which releases the installs bring.
    A text without a stage gives a Dockerfile without stages.

    Raises TooLarge for a text that is larger than any Dockerfile.
    """
    return read_with_files(text, path, facts, context, known=known, gpus=gpus, driver=driver, follower=follower)[0]


def read_with_files(
    text: str,
    path: str,
    facts: Facts,
    context: Source | None = None,
    *,
    known: Mapping[str, Base] | None = None,
    gpus: tuple[str, ...] = (),
    driver: str = "",
    follower: Follower | None = None,
) -> tuple[Dockerfile, Tree]:
    """What ``read`` gives, and the files that the last stage has at its end."""
    reader = _Reader(parse(text, path), text, path, facts, context or NoContext(), known or {}, follower=follower)
    return reader.result(gpus, driver), reader.states[-1].tree if reader.states else reader.tree


def read_parsed(
    parsed: Parsed,
    text: str,
    path: str,
    facts: Facts,
    context: Source | None = None,
    *,
    known: Mapping[str, Base] | None = None,
    gpus: tuple[str, ...] = (),
    driver: str = "",
    run_by: tuple[str, ...] = SHELL,
) -> Dockerfile:
    """What ``read`` gives for instructions that somebody else made, each of whose characters has its place in ``text``.

    ``run_by`` is the shell of their commands.  Raises TooLarge as ``read`` does.
    """
    return _Reader(parsed, text, path, facts, context or NoContext(), known or {}, run_by).result(gpus, driver)


class _Reader:
    """Follows the instructions of one Dockerfile."""

    def __init__(
        self,
        parsed: Parsed,
        text: str,
        path: str,
        facts: Facts,
        context: Source,
        known: Mapping[str, Base],
        shell: tuple[str, ...] = SHELL,
        follower: Follower | None = None,
    ) -> None:
        self.shell, self.follower = shell, follower
        self.records: dict[int, list[Resolved]] = {}  # what the follower says, by stage
        self.parsed, self.text, self.path, self.facts, self.known = parsed, text, path, facts, known
        self.tree = Tree(context)
        self.globals: Env = {}
        self.stages: list[Stage] = []
        self.states: list[StageState] = []
        self.names: dict[str, int] = {}
        self.brought: dict[int, set[int]] = {}
        self.triggers: dict[int, list[Instruction]] = {}  # what ONBUILD holds back, by its stage
        self.begun: tuple[Instruction, str, Base, int | None] | None = None
        self.steps: list[Step] = []
        self.variables: set[str] = set()
        self.unset: set[str] = set()  # ARGs without a default, which the default build leaves unset
        self.volume = _VOLUME
        self.asked = 0
        self.known_env: tuple[Env, dict[str, str]] = ({}, {})
        for problem in parsed.problems:
            if problem.too_long:
                raise TooLarge(
                    f"line {problem.span.line} is longer than {LONGEST_LINE:,} bytes, where BuildKit stops reading"
                )
        if sum(map(_size, parsed.instructions)) > LARGEST:
            raise TooLarge(f"its instructions are larger than {LARGEST // 1024} KiB, which those of no Dockerfile are")
        if len(parsed.instructions) > MOST:
            raise TooLarge(f"it has more than {MOST} instructions, which no Dockerfile has")
        for instruction in parsed.instructions:
            self._take(instruction)
        self._close()

    # ---------------------------------------------------------------- stages

    def _take(self, instruction: Instruction) -> None:
        if instruction.name == "FROM":
            self._close()
            self._from(instruction)
        elif self.begun is None:
            if instruction.name == "ARG":
                for name, value in words.assignments(instruction):
                    self.globals[name] = None if value is None else self._expand(value.value, self._outer())[0]
                    self._left_unset(name, value is None)
                    self._count(name, self.globals[name])
        else:
            if instruction.name == "ONBUILD" and instruction.trigger is not None:
                self.triggers.setdefault(len(self.stages), []).append(instruction.trigger)
            self.steps.append(self._step(instruction, self.states[-1]))

    def _count(self, name: str, value: str | None) -> None:
        """Takes down that a variable is set, for every step holds them all."""
        self.variables.add(name)
        self.volume -= len(value or "")
        if len(self.variables) > MOST_VARIABLES:
            raise TooLarge(f"it sets more than {MOST_VARIABLES} variables, which no Dockerfile does")
        if self.volume < 0:
            raise TooLarge(f"its variables hold more than {_VOLUME // 1_000_000} million characters")

    def _known(self, seen: Env) -> dict[str, str]:
        """The variables whose value is known; the same mapping for steps that see the same."""
        if seen != self.known_env[0]:
            self.known_env = (dict(seen), {name: value for name, value in seen.items() if value is not None})
        return self.known_env[1]

    def _outer(self, arch: str = "amd64") -> Env:
        return {**{name: value.format(arch=arch) for name, value in _PLATFORM.items()}, **self.globals}

    def _left_unset(self, name: str, unset: bool) -> None:
        (self.unset.add if unset else self.unset.discard)(name)

    def _expand(self, text: str, env: Mapping[str, str | None]) -> tuple[str, bool]:
        if self.unset and "-" in text:
            answered = self.unset & set(_DEFAULTED.findall(text))
            env = {name: value for name, value in env.items() if value is not None or name not in answered}
        expanded = words.expand(text, env, self.parsed.escape)
        return expanded.text, expanded.sure

    def _from(self, instruction: Instruction) -> None:
        outer = self._outer()
        platform = ""
        for flag in instruction.flags:
            if flag.value.startswith("--platform="):
                platform = self._expand(flag.value.removeprefix("--platform="), outer)[0]
        parts = words.split(instruction.text)
        image = parts[0] if parts else instruction.text
        reference, sure = self._expand(image.value, outer)
        name = parts[2].value.lower() if len(parts) >= 3 and parts[1].value.upper() == "AS" else ""
        span = image.span(0, len(image.value)) if image.value else instruction.span
        parent = self.names.get(reference.lower())
        if parent is not None:
            state, base = self.states[parent].child(), self.stages[parent].base
        else:
            base = self.known.get(reference) or base_of(reference, span, self.facts, sure=sure, platform=platform)
            base = replace(base, span=span)
            if base.family == "unknown" and base.tag in ("", "latest") and base.sure and not base.digest:
                base = self._of_project(base)
            state = StageState({}, {"PATH": PATH, **base.variables}, self.tree.copy(), Pythons())
            state.shell = self.shell
            system = base.os.value or ""
            state.pythons.begin(base, self.facts.os_python(system), self.facts.os_python2(system))
            if (base.torch.value and not base.torch.missing) or holds_torch(base):
                state.torches.append(self._of_base(base, state))
            if self.follower is not None:
                state.held[state.pythons.look("python", state.env).prefix] = self.follower.begins(base)
        self.begun = (instruction, name, base, parent)
        self.steps = []
        self.states.append(state)
        if parent is not None:
            self.steps += [self._step(held_back, state) for held_back in self.triggers.get(parent, ())]

    def _of_project(self, base: Base) -> Base:
        """A base that no registry need have: built by the project, or a named context of its builds."""
        lent = built.lent(self.tree.context, base.reference)
        if lent is None:
            return replace(base, built_by=built.built_by(self.tree.context, base.repository))
        known = self.known.get(lent[1]) or base_of(lent[1], base.span, self.facts, platform=base.platform)
        return replace(known if lent[1] else base, span=base.span, built_by=lent[0])

    def _of_base(self, base: Base, state: StageState) -> Torch:
        found = state.pythons.look("python", state.env)
        python = base.python if base.python.value else Observed.lost("the base does not say")
        return Torch(base.torch, base.torch_cuda, "base", base.span, None, python, found.prefix)

    def _close(self) -> None:
        if self.begun is None:
            return
        instruction, name, base, parent = self.begun
        index, state = len(self.stages), self.states[-1]
        env = {key: value for key, value in state.env.items() if value is not None}
        line = (index,) if parent is None else (*self.stages[parent].line, index)
        steps = tuple(self.steps)
        self.stages.append(
            Stage(
                index, name, instruction.span, base, line, steps, env, carried(state.moved, state.pythons, base, steps)
            )
        )
        if name:
            self.names[name] = index
        self.begun = None

    # ---------------------------------------------------------------- steps

    def _step(self, instruction: Instruction, state: StageState) -> Step:
        flags, is_exec = tuple(flag.value for flag in instruction.flags), instruction.exec_form is not None
        seen = state.seen()
        made = partial(
            Step,
            instruction.name,
            instruction.span,
            instruction.text.value,
            flags,
            is_exec,
            env=self._known(seen),
            workdir=state.workdir,
            user=state.user,
        )
        match instruction.name:
            case "ARG" | "ENV" | "LABEL":
                return made(settings=tuple(self._settings(instruction, state, seen)))
            case "WORKDIR":
                folder, _ = self._expand(_unquoted(instruction.text.value.strip()), seen)
                state.workdir = posixpath.normpath(posixpath.join(state.workdir, folder or "."))
            case "USER":
                state.user = self._expand(instruction.text.value.strip(), seen)[0]
            case "SHELL":
                if instruction.exec_form:
                    state.shell = instruction.exec_form
            case "COPY" | "ADD":
                return made(copy=self._copy(instruction, state, seen))
            case "RUN":
                return self._run(made, instruction, state, seen)
            case "CMD" | "ENTRYPOINT" | "HEALTHCHECK":
                return made(commands=self._commands(instruction, state, dict(seen)))
            case _:
                pass
        return made()

    def _settings(self, instruction: Instruction, state: StageState, seen: Env) -> Iterator[Setting]:
        for name, text in words.assignments(instruction):
            span = text.span(0, len(text.value)) if text is not None and text.value else instruction.span
            if text is None:
                value: str | None = self.globals.get(name) if name in self.globals else self._inherited(name, state)
                sure = value is not None
            else:
                value, sure = self._expand(text.value, seen)
                if not sure and _ONE_VARIABLE.fullmatch(text.value):
                    value = None  # as unknown as the one that it stands for
            if instruction.name != "LABEL":
                self._count(name, value)
            if instruction.name == "ARG":
                state.args[name] = value
                self._left_unset(name, text is None and value is None)
            elif instruction.name == "ENV":
                state.env[name] = value
                self._left_unset(name, False)
            yield Setting(instruction.name, name, value, span, sure, text.value if text is not None else "")

    def _inherited(self, name: str, state: StageState) -> str | None:
        if name in state.args:
            return state.args[name]
        value = _PLATFORM.get(name)
        return None if value is None else value.format(arch="arm64" if self._arm(len(self.stages)) else "amd64")

    def _copy(self, instruction: Instruction, state: StageState, seen: Env) -> Copy | None:
        stage: int | None = None
        image = ""
        for flag in instruction.flags:
            if flag.value.startswith("--from="):
                name = self._expand(flag.value.removeprefix("--from="), {**self._outer(), **seen})[0]
                stage = self.names.get(name.lower())
                if stage is None and name.isdigit() and int(name) < len(self.stages):
                    stage = int(name)
                image = name if stage is None else ""
        if instruction.exec_form is not None:
            parts = [self._expand(word, seen)[0] for word in instruction.exec_form]
        else:
            parts = [self._expand(word.value, seen)[0] for word in words.split(instruction.text)]
        if not parts:
            return None
        target = posixpath.join(state.workdir, parts[-1]) if parts[-1] else state.workdir
        sources = tuple(part for part in parts[:-1] if not part.startswith("<<"))
        copy = Copy(sources, target, instruction.span, stage, image, instruction.name == "ADD")
        for heredoc in instruction.heredocs:
            name = posixpath.join(target, heredoc.name) if parts[-1].endswith("/") else target
            line = heredoc.content.span(0, 0).line
            state.tree.write(posixpath.normpath(name), self.path, line, heredoc.content.value)
        state.tree.took(copy, state.workdir, None if stage is None else self.states[stage].tree)
        if copy.add:
            for source in copy.sources:
                if "://" in source:
                    state.trail = state.trail.fetched(source, copy.target)
        if copy.foreign and not copy.of_uv:
            state.pythons.known = False  # a Python may come along
        if stage is not None:
            self._bring(copy, stage, state)
        return copy

    def _bring(self, copy: Copy, stage: int, state: StageState) -> None:
        """Environments that a COPY --from carries over: their installs come along."""
        other = self.states[stage]
        found = False
        there = {(one.span, one.name, one.prefix) for one in state.installs}  # the same folder may be copied twice
        for source in copy.sources:
            source = posixpath.normpath("/" + source.lstrip("/"))
            into = posixpath.normpath(copy.target)

            def moved(prefix: str, source: str = source, into: str = into) -> str | None:
                """Where a folder of the other stage lands, None where it does not come along."""
                if not prefix:
                    return None
                if source == "/" or prefix == source or prefix.startswith(source.rstrip("/") + "/"):
                    return posixpath.normpath(_root(into) + "/" + prefix[len(source.rstrip("/")) :])
                if source.startswith(prefix + "/") and re.search(r"/(?:site|dist)-packages|/lib$|/python3", source):
                    part = source[len(prefix) :]
                    return into.removesuffix(part) if into.endswith(part) else prefix
                return None

            for prefix, version in other.pythons.prefixes.items():
                target = moved(prefix)
                if target is not None and not within(source, f"{prefix}/lib"):
                    state.pythons.prefixes.setdefault(target, version)
                    found = True
                    home = other.pythons.homes.get(prefix, "")
                    if home and source != "/" and (version or home not in ("/usr", SYSTEM)):
                        state.moved.append(Carried(target, version, home, stage, copy.span))
            for prefix, environment in other.held.items():
                if target := moved(prefix):
                    state.held[target] = environment
            for install in other.installs:
                target = moved(install.prefix)
                if target is not None and install.manager not in ("apt", "dnf", "apk"):
                    found = True
                    if (install.span, install.name, target) not in there:
                        there.add((install.span, install.name, target))
                        state.installs.append(replace(install, prefix=target))
            for torch in other.torches:
                target = moved(torch.prefix)
                if target is not None:
                    found = True
                    if not any((torch.span, target) == (one.span, one.prefix) for one in state.torches):
                        state.torches.append(replace(torch, prefix=target))
        if found:
            self.brought.setdefault(len(self.stages), set()).add(stage)

    # ---------------------------------------------------------------- commands

    def _commands(
        self,
        instruction: Instruction,
        state: StageState,
        seen: Env,
        unread: list[Unread] | None = None,
        files: Files | None = None,
    ) -> tuple[Command, ...]:
        """The commands of an instruction; ``unread`` gets a script that could not be followed to its end.

        ``files`` are those that it may source.
        """
        text = instruction.text
        if instruction.name == "HEALTHCHECK":
            found = re.match(r"\s*CMD\s+", text.value, re.IGNORECASE)
            text = text.slice(found.end(), len(text.value)) if found else text
        if instruction.exec_form is not None:
            return _started(instruction.exec_form, text, instruction.span, state, seen)
        dialect = "bash" if state.shell and "bash" in state.shell[0] else "sh"
        bodies = instruction.heredocs
        if instruction.heredocs and instruction.name == "RUN":
            first = instruction.heredocs[0].content.value.split("\n", 1)[0]
            alone = re.fullmatch(r"\s*<<-?\s*[\"']?[\w.-]+[\"']?\s*", text.value)
            if alone and first.startswith("#!") and not first.rstrip().endswith(system.SHELLS):
                return ()  # a script in another language
            if alone and "bash" in first:
                dialect = "bash"
            if alone:  # without a command the here-document itself is the script, with its own inside it
                text, bodies = instruction.heredocs[0].content, ()
        arch = "arm64" if self._arm(len(self.stages)) else "amd64"
        read = None if files is None else scripts.reader(files)
        script = shell.commands(text, seen, state.workdir, dialect=dialect, heredocs=bodies, arch=arch, read=read)
        if not script.complete and unread is not None:
            unread.append(Unread(f"the whole RUN at {instruction.span.place}", scripts.NO_END, instruction.span))
        return script.commands

    def _run(self, made: Callable[..., Step], instruction: Instruction, state: StageState, seen: Env) -> Step:
        if state.user and state.user not in ("root", "0", "0:0", "root:root"):
            seen.setdefault("HOME", f"/home/{state.user.split(':')[0]}")
        else:
            seen.setdefault("HOME", "/root")
        for name in self.unset & state.args.keys():
            seen.pop(name, None)  # as the shell finds it, so that ${NAME:-default} has its answer
        trees = {name: self.states[index].tree for name, index in self.names.items()}
        files: Files = Run(state.tree, tuple(flag.value for flag in instruction.flags), state.workdir, trees)
        unread: list[Unread] = []
        begun = self._commands(instruction, state, seen, unread, files)
        commands = tuple(
            islice((each for command in begun for each in scripts.started(command, files, unread)), scripts.MOST)
        )
        active = state.shell_environment()
        installs: list[Install] = []
        removals: list[Removal] = []
        if len(commands) == scripts.MOST:
            unread.append(Unread(f"the whole RUN at {instruction.span.place}", scripts.NO_END, instruction.span))
        elsewhere = False  # whether what uv synchronises is an environment that only the build knows
        for command in commands:
            elsewhere = elsewhere or uv.exports_unknown(command)
            state.tree.ran(command)
            new = conda.activated(command)
            if new is not None:
                active = state.pythons.activated(new, command.cwd)
                continue
            state.pythons.take(command, command.env, active, state.trail)
            asked: list[Install] = []
            for item in _asked(command, files, state):
                if isinstance(item, Install):
                    asked.append(item)
                elif isinstance(item, Removal):
                    removals.append(item)
                    state.remove(item)
                else:
                    unread.append(item)
            state.trail = system.remember(command, state.trail)
            # `pip config set` and the like act in later steps as the variables do that they stand for
            state.args.update(pip.configured(command))
            state.args.update(poetry.configured(command))
            for item in asked:
                state.pythons.add(conda.with_python(item, self.facts) if item.manager == "source" else item)
            self.asked += len(asked)
            if self.asked > MOST_INSTALLS:
                raise TooLarge(f"it asks for more than {MOST_INSTALLS:,} packages, which no Dockerfile does")
            placed = [state.placed(_source(item, state.tree), command, active) for item in asked]
            if elsewhere and command.program == "uv" and command.args[:1] in (("sync",), ("run",)):
                placed = [replace(item, python="", prefix="") for item in placed]
            installs.extend(self._followed(placed, state))
        if any(each.system for each in unread) or any(command.program in _MAKES_A_PYTHON for command in commands):
            state.pythons.known = False
        return made(commands=commands, installs=tuple(installs), removals=tuple(removals), unread=tuple(unread))

    def _followed(self, installs: list[Install], state: StageState) -> list[Install]:
        """Takes what one command installs; gives it with the releases that it brings where somebody says them."""
        base = self.begun[2] if self.begun is not None else None
        taken = follow(self.follower, installs, state.held, base) if self.follower and base else None
        if taken is None or base is None:
            if installs:  # few commands do
                state.take(installs, base, self.facts, arm=self._arm(len(self.stages)))
            return installs
        arm = self._arm(len(self.stages))
        state.take(taken.installs, base, self.facts, arm=arm, along=taken.open)
        for one, by in taken.brought:
            state.installs.append(one)
            if one.name == "torch":
                torch = torches.of_install(one, (), base, self.facts, arm=arm)
                state.torches.append(replace(torch, install=by))
        if taken.record is not None:
            self.records.setdefault(len(self.stages), []).append(taken.record)
        return [*taken.installs, *(one for one, _ in taken.brought)]

    def _arm(self, index: int) -> bool:
        base = self.begun[2] if self.begun else self.stages[index].base
        return base.platform.endswith(("arm64", "aarch64", "arm64/v8"))

    # ---------------------------------------------------------------- the whole

    def result(self, gpus: tuple[str, ...], driver: str) -> Dockerfile:
        """The subject."""
        if not self.stages:
            return Dockerfile(self.path, self.text, ())
        last = len(self.stages) - 1
        whole = Dockerfile(self.path, self.text, tuple(self.stages))
        lineage = whole.target.line
        brought = sorted({stage for index in lineage for stage in self.brought.get(index, ())} - set(lineage))
        reachable = self._reachable(last)
        state = self.states[last]
        members = (*lineage, *brought)
        unread = tuple(u for i in members for step in self.stages[i].steps for u in step.unread if not u.system)
        problems = tuple(f"{each.span.place}: {each.message}" for each in self.parsed.problems)
        draft = replace(whole, lineage=lineage, brought=tuple(brought), reachable=tuple(sorted(reachable)))
        draft = replace(draft, installs=tuple(state.installs), unread=unread, torches=tuple(state.torches))
        started = self._started(lineage, state)
        draft = replace(draft, started=started, gpus=gpus, driver=driver, problems=problems)
        if self.follower is not None:
            draft = replace(draft, resolved=tuple(one for i in sorted(reachable) for one in self.records.get(i, ())))
        return self._fields(draft, state)

    def _reachable(self, last: int) -> set[int]:
        found: set[int] = set()
        wanted = [last]
        while wanted:
            index = wanted.pop()
            if index in found:
                continue
            found.add(index)
            stage = self.stages[index]
            if stage.parent is not None:
                wanted.append(stage.parent)
            for step in stage.steps:
                if step.copy is not None and step.copy.source_stage is not None:
                    wanted.append(step.copy.source_stage)
                for flag in step.flags:
                    source = re.search(r"[=,]from=([^,]+)", flag)
                    if source and source[1].lower() in self.names:
                        wanted.append(self.names[source[1].lower()])
        return found

    def _started(self, lineage: tuple[int, ...], state: StageState) -> StartCommand | None:
        entry: tuple[Command, ...] = ()
        command: tuple[Command, ...] = ()
        for index in lineage:
            for step in self.stages[index].steps:
                if step.name == "ENTRYPOINT":
                    entry, command = step.commands, ()
                elif step.name == "CMD":
                    command = step.commands
        for each in (*entry, *command):
            program = each.program
            if program.startswith("python") or program in ("pip", "pip3"):
                found = state.pythons.look(each.words[0].text, state.seen(), each.cwd, state.shell_environment())
                return StartCommand(each, found.version, found.prefix)
            inner = conda.inner(each)
            if inner is not None:
                prefix = state.pythons.environment(inner[0])
                return StartCommand(each, state.pythons.prefixes.get(prefix, ""), prefix)
        return None

    def _fields(self, draft: Dockerfile, state: StageState) -> Dockerfile:
        base, torch = draft.base, draft.torch
        at = base.span.place
        lost: Observed[str] = Observed.lost("the reference holds an argument without a value", at)
        none: Observed[str] = Observed.lost("nothing here installs torch, as far as the text says")
        return replace(
            draft,
            base_image=Observed.of(base.reference, at) if base.sure and base.reference else lost,
            base_cuda=base.cuda,
            base_cudnn=base.cudnn,
            base_flavor=base.flavor,
            base_os=base.os,
            torch_version=torch.version if torch else none,
            torch_cuda=torch.cuda if torch else none,
            python_version=self._python(draft, state),
            torch_install_method=Observed.of(torch.method, torch.span.place) if torch else _implied(draft) or none,
        )

    def _python(self, draft: Dockerfile, state: StageState) -> Observed[str]:
        torch = draft.torch
        if torch is not None and torch.python.value and not torch.python.missing:
            via = torch.python.via or f"the Python that {torch.span.place} installs torch into"
            return Observed.of(torch.python.value, via)
        if draft.started is not None and draft.started.version:
            span = draft.started.command.span
            return Observed.of(draft.started.version, f"what {span.place} starts")
        places = [i for i in draft.installs if i.python and i.manager in ("pip", "uv", "conda", "poetry")]
        if torch is not None and torch.prefix:  # what lies elsewhere says nothing of the Python that has torch
            places = [i for i in places if i.prefix == torch.prefix]
        if places:
            return Observed.of(places[-1].python, f"the Python that {places[-1].span.place} installs into")
        for program in ("python", "python3"):
            found = state.pythons.look(program, state.seen(), state.workdir, state.shell_environment())
            if found.version:
                return Observed.of(found.version, f"what {program} means at the end of the build")
        if draft.base.python.value and draft.base.family not in ("os", "nvidia"):
            return draft.base.python
        return Observed.lost("the text does not say which Python there is")


def _asked(command: Command, files: Files, state: StageState) -> Iterator[Install | Removal | Unread]:
    """What a command does to the packages, whichever manager it is."""
    for reader in _READERS:
        yield from reader(command, files)
    yield from unread_installers.read(command)
    yield from conda.read(command, files)
    for item in system.read(command, files, state.trail):
        yield replace(item, system=True) if isinstance(item, Unread) else item


_MODULES = pattern(r"/lib/python3[\d.]*/(?:site|dist)-packages$")


def _root(folder: str) -> str:
    """The folder of the Python that finds its packages in ``folder``, which stays where it is none of these."""
    return _MODULES.sub("", folder)


# Each requires torch, whatever its version and extras (their Requires-Dist).
_REQUIRING = frozenset({"torchvision", "torchaudio", "lightning", "pytorch-lightning", "sglang", "unsloth", "vllm"})


def _implied(draft: Dockerfile) -> Observed[str] | None:
    """How torch gets there where only what requires it is named, None where nothing that does is."""
    for install in reversed(draft.installs):
        asked = install.sure and not install.constraint and "--no-deps" not in install.options
        if asked and install.name in _REQUIRING:
            return Observed.of(install.manager, f"{install.span.place}, {install.name} requires torch")
    return None


_TORCH_REPOSITORY = pattern(r"github\.com[/:]pytorch/pytorch(?:\.git)?/?(?:@v?([\w.]+))?(?:$|[#?])")
_RELEASE = pattern(r"v?(\d+\.\d+\.\d+)")


def _source(install: Install, tree: Tree) -> Install:
    """``install`` as an install of torch where it builds a clone of torch's repository, else as it is."""
    if install.manager not in ("pip", "uv", "source") or not install.url:
        return install
    url, ref = tree.clone_at(install.url) if install.url.startswith("/") else (install.url, "")
    found = _TORCH_REPOSITORY.search(url)
    if found is None:
        return install
    release = _RELEASE.fullmatch(ref or found[1] or install.version)
    return replace(install, manager="source", name="torch", version=release[1] if release else "", local="")


def _size(instruction: Instruction) -> int:
    return len(instruction.text.value) + sum(len(each.content.value) for each in instruction.heredocs)


def _started(argv: tuple[str, ...], written: Text, span: Span, state: StageState, seen: Env) -> tuple[Command, ...]:
    """The commands of a JSON form: its words, or the script that it hands to a shell."""
    if not argv or not argv[0]:
        return ()
    each = tuple(Word(word, word, span, True, True) for word in argv)
    script, handed, _ = shell_options(each) if posixpath.basename(argv[0]) in system.SHELLS else (0, False, False)
    if handed and script < len(argv):
        at = written.value.find(f'"{argv[script]}"') + 1  # as it stands there, unless it has escapes
        end = at + len(argv[script])
        text = written.slice(at, end) if at else Text.of(argv[script], span.path, span.line, span.column)
        dialect = "bash" if "bash" in argv[0] else "sh"
        return shell.commands(text, seen, state.workdir, dialect=dialect).commands
    env = {name: value for name, value in seen.items() if value is not None}
    return (Command(each, span, each, env=env, cwd=state.workdir),)


_DEFAULTED = pattern(r"\$\{(\w+):?-")
_ONE_VARIABLE = pattern(r'"?\$(?:\w+|\{\w+\})"?')


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
