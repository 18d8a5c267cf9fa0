"""What the shell of a RUN cannot do: activate without a hook, `source` where it is dash, keep a variable for later."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import forgiven, inside, installs_of, need_stages
from envkit.judging.checks._outcomes import error, found, skip_if, warning
from envkit.model import Finding, Severity, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command, Dockerfile, Install, Step

# What makes the function `conda` in a shell; another shell of its own may do anything.
_HOOK = pattern(r"conda\.sh|shell\.\w+\s+hook|shell\s+hook|/activate\b|BASH_ENV|mamba\.sh|bash\s+-\w*[il]")
_OTHER_SHELL = pattern(r"<<|/bin/sh|\b(?:ba|z|k)sh\s+-\w*[cils]")
_RC = pattern(r"(?:^|/)\.(?:bashrc|profile|bash_profile)\Z")
# What leaves nothing behind in a RUN without a redirection: the conditions around an export among them.
# What changes nothing but what it prints.
_ONLY_SAY = frozenset(
    {".", "awk", "basename", "cat", "cut", "date", "dirname", "echo", "grep", "head", "ls", "lsb_release", "nproc"}
    | {"printf", "pwd", "sort", "tail", "tr", "uname", "which"}
)
# Files that do nothing but set up the shell that reads them.
_SETS_UP = pattern(
    r"(?:^|/)(?:\.(?:bashrc|zshrc|profile|bash_profile)|activate|(?:conda|mamba|nvm)\.sh|setup\.bash)\Z"
    r"|^/opt/ros/[^/]+/setup\.sh\Z"
)
_SHELLS = pattern(r"(?:/usr)?(?:/bin/)?(?:ba|da|z)?sh")
_KEEPS = frozenset({"export", "cd", "source", ".", "alias", "set", "unset", "ulimit", "umask", "shopt"}) | frozenset(
    {"[", "[[", "test", "true", ":", "echo"}
)


# What sets the shell that reads it alone.
_OF_THE_SHELL = frozenset({"alias", "hash", "set", "shopt", "ulimit", "umask", "unalias", "unset"})
_ASSIGNS = pattern(
    r"""(?:[A-Za-z_]\w*\+?=(?:"(?:[^"$`\\]|\$\{?\w+\}?)*"|'[^']*'|[^\s"'$`;&|()<>\\]|\$\{?\w+\}?)*(?:\s+|\Z))+"""
)


def conda_activate_fails(dockerfile: Dockerfile) -> Iterator[Finding]:
    """`conda activate` stands behind what makes it known to the shell of its RUN.  Source: conda, "conda init"."""
    asked = 0
    for step, at, command, _, told in _commands(dockerfile):
        if command.program not in ("conda", "mamba") or command.args[:1] != ("activate",) or told:
            continue
        asked += 1
        if _HOOK.search(step.value) or "BASH_ENV" in step.env or _sourced(dockerfile, step):
            continue
        why = f"`{command.program} activate` is not known to the shell of this RUN"
        fix = "write `. /opt/conda/etc/profile.d/conda.sh &&` before it, or `conda run -n NAME COMMAND`"
        yield _unknown(step, at, why, "what follows goes into another environment", fix)
    skip_if(not asked, "no RUN activates an environment by `conda activate`")


_OF_BASH = frozenset({"declare", "mapfile", "popd", "pushd", "readarray", "shopt", "source"})


def run_needs_bash(dockerfile: Dockerfile) -> Iterator[Finding]:
    """What bash alone knows stands in no RUN whose shell is dash.  Source: dash(1), which has neither these commands
    nor process substitution."""
    asked = 0
    for step, at, command, dash, told in _commands(dockerfile):
        asked += dash
        if not dash:
            continue
        name, fix = command.words[0].text, 'write `SHELL ["/bin/bash", "-c"]` before this RUN'
        if _substitutes(command):
            yield error(
                "/bin/sh of the base is dash, which has no process substitution, so that the build ends here",
                command.span,
                fix=fix,
            )
        elif name in _OF_BASH and not told:
            why = f"/bin/sh of the base is dash, which has no `{name}`"
            fix = 'write `.` in its place, or `SHELL ["/bin/bash", "-c"]` before this RUN' if name == "source" else fix
            yield _unknown(step, at, why, "what follows runs without it", fix)
    skip_if(not asked, "no RUN is known to have dash for its shell")


def _substitutes(command: Command) -> bool:
    """Whether a command takes what another prints for a file: ``<(...)``."""
    taken = (*command.words, *(redirect.target for redirect in command.redirects))
    return any(word.raw.startswith(("<(", ">(")) for word in taken)


def run_has_no_effect(dockerfile: Dockerfile) -> Iterator[Finding]:
    """A RUN does something that outlives its shell.  Source: Dockerfile reference, RUN and ENV."""
    need_stages(dockerfile)
    asked = 0
    for index in dockerfile.reachable:
        for step in dockerfile.stages[index].steps:
            if step.name != "RUN":
                continue
            asked += 1
            if not step.commands:
                if step.value.lstrip().startswith("#") and "\n" not in step.value.strip():
                    what = f"`{step.value.strip()[:60]}` is a comment to the shell, so that this RUN does nothing"
                    yield warning(what, step.span, fix="begin the line with the #, in place of RUN")
                elif _ASSIGNS.fullmatch(step.value.strip()):
                    yield warning(_ends(step), step.span, fix="write ENV in place of RUN")
                continue
            if any(command.redirects for command in step.commands):
                continue
            words = {command.words[0].text for command in step.commands}
            nested = any(mark in step.value for mark in "(`<")  # what stands in another command's words
            commands = (each for each in step.commands if not nested or not _substituted(each, step))
            outer = {command.words[0].text for command in commands}
            exports = outer <= _KEEPS and "export" in outer and words - outer <= _ONLY_SAY
            fix = (
                "write ENV in place of RUN export" if exports
                else "write WORKDIR in place of RUN cd" if words in ({"cd"}, {"cd", "pwd"})
                else "source it in each RUN that needs it, or set what it sets by ENV" if _only_sets_up(step)
                else "make a link in place of RUN alias: `ln -s`" if words == {"alias"}
                else "write it into each RUN that needs it" if words <= _OF_THE_SHELL or _only_for_itself(step)
                else ""
            )  # fmt: skip
            if fix:
                yield warning(_ends(step), step.span, fix=fix)
            elif words == {"pwd"}:
                yield warning("`pwd` alone changes nothing", step.span, fix="remove it")
            elif len(step.commands) == 1 and _only_a_shell(step.commands[0], step):
                what = (
                    f"`{step.value.strip()[:60]}` starts a shell that a build gives no input, so that it does nothing"
                )
                yield warning(what, step.span, fix="remove it, or write CMD for what the container is to start")
    skip_if(not asked, "nothing is run")


def _ends(step: Step) -> str:
    return f"`{step.value.strip()[:60]}` ends with the shell of this RUN, and no later step sees it"


def _only_sets_up(step: Step) -> bool:
    """Whether a RUN does nothing but read files that set up its own shell, or activate an environment behind them, or
    choose one of nvm's versions, which sets that shell's PATH."""
    files = [each.args[:1] for each in step.commands if each.words[0].text in (".", "source")]
    others = [each for each in step.commands if each.words[0].text not in (".", "source", "true", ":")]
    activates = all(each.program in ("conda", "mamba") and each.args[:1] == ("activate",) for each in others)
    uses = [
        each for each in others if each.program == "nvm" and each.args[:1] == ("use",) and "--save" not in each.args
    ]
    if uses and len(uses) == len(others):
        return all(file and _SETS_UP.search(file[0]) for file in files)
    return bool(files) and activates and all(file and _SETS_UP.search(file[0]) for file in files)


def _only_for_itself(step: Step) -> bool:
    """Whether each command of a RUN changes its shell alone, be it one way or another."""
    return len(step.commands) > 1 and all(
        each.words[0].text in _OF_THE_SHELL | {"cd", "export", "true", ":"}
        or (each.words[0].text in (".", "source") and bool(each.args) and bool(_SETS_UP.search(each.args[0])))
        or (each.program in ("conda", "mamba") and each.args[:1] == ("activate",))
        for each in step.commands
    )


def _only_a_shell(command: Command, step: Step) -> bool:
    """Whether a RUN starts a shell without a script; what the build mounts as its input it does not read."""
    if "<<" in step.value or command.redirects:
        return False
    first, *rest = (word.text for word in command.words)
    if first == "scl":
        return rest[:1] == ["enable"] and len(rest) > 2 and bool(_SHELLS.fullmatch(rest[-1]))
    if first in ("su", "newgrp"):
        return len([word for word in rest if not word.startswith("-")]) <= 1 and not {"-c", "--command"} & {*rest}
    return bool(_SHELLS.fullmatch(first)) and all(word in ("-l", "-i", "-il", "-li", "--login") for word in rest)


def _substituted(command: Command, step: Step) -> bool:
    """Whether a command stands in the words of another one, which takes what it prints."""
    return any(other is not command and inside(other.span, command.span) for other in step.commands)


def _commands(dockerfile: Dockerfile) -> Iterator[tuple[Step, int, Command, bool, bool]]:
    """The sure commands of the RUNs whose shell is the default one: the step, their number in it, whether that shell
    is dash for sure, and whether its like came before in the step."""
    need_stages(dockerfile)
    seen: set[int] = set()
    others = {stage.index for stage in dockerfile.stages if any(_unlike(step) for step in stage.steps)}
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        system = stack.said(base.os)
        dash = bool(re.match(r"debian|ubuntu", system)) and base.family in ("os", "nvidia", "python")
        for number in dockerfile.stages[index].line:
            steps = dockerfile.stages[number].steps
            for step in steps if number not in seen else ():
                if _unlike(step):
                    break
                dash = dash and step.name != "SHELL"
                own = step.exec_form or bool(_OTHER_SHELL.search(step.value))
                if "/bin/sh" in step.value:
                    dash = False  # a link to another shell
                before: set[tuple[str, ...]] = set()
                for at, command in enumerate(step.commands if step.name == "RUN" and not own else ()):
                    verb = (command.words[0].text, *(command.args[:1] if "conda" in command.program else ()))
                    if command.sure and command.span.path == step.span.path:
                        yield step, at, command, dash, verb in before
                    before.add(verb)
            seen.add(number)
            if number in others:
                break  # the stages that are FROM this one have its shell


_PLAIN_BASH = pattern(
    r'\[\s*"(?:/usr)?/bin/bash"\s*,\s*(?:"-(?:e|u|x|o)+"\s*,\s*(?:"pipefail"\s*,\s*)?)?"-[eux]*c"\s*\]'
)


def _unlike(step: Step) -> bool:
    """Whether a SHELL may know more than the default one: any but a bash that reads no file of its own."""
    return step.name == "SHELL" and not _PLAIN_BASH.fullmatch(step.value.strip())


def _unknown(step: Step, at: int, why: str, otherwise: str, fix: str) -> Finding:
    """The shell of a step does not know the word of its command number ``at``: the build ends, or what is said."""
    ends = not forgiven(step, at) and _stops(step, at)
    said = f"{why}, so that {'the build ends here' if ends else otherwise}"
    return found(said, step.commands[at].span, Severity.ERROR if ends else Severity.WARNING, fix)


def _stops(step: Step, at: int) -> bool:
    """Whether the RUN fails where its command number ``at`` does: nothing or ``&&`` follows."""
    following = step.commands[at + 1 :]
    return not following or following[0].after == "&&" or bool(re.match(r"\s*set -\w*e", step.value))


def _sourced(dockerfile: Dockerfile, step: Step) -> bool:
    """Whether a file of the shell's own is read first, which `conda init` may have written; Ubuntu's .bashrc of root
    ends at once in a shell without a terminal."""
    ubuntu = stack.said(dockerfile.base.os).startswith("ubuntu") and (step.user or "root") in ("root", "0")
    files = [each.args[0] for each in step.commands if each.words[0].text in (".", "source") and each.args]
    return any(not (ubuntu and _RC.search(file)) for file in files)


# ---------------------------------------------------------------- an install that fails unseen

_TORCHS_OWN = frozenset({"torch", "torchvision", "torchaudio", "pytorch"})
_SHRUGS = frozenset({"true", ":", "echo", "printf"})


def install_failure_ignored(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The build ends where torch, or what is compiled against it, cannot be installed.  Source: POSIX shell, "Lists":
    the exit status of `a || b` is that of b where a fails, that of `a; b` and of `a | b` that of b."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        shell_words = next((one.value for one in reversed(dockerfile.steps_of(index)) if one.name == "SHELL"), "")
        for step in dockerfile.stages[index].steps:
            if step.name != "RUN":
                continue
            for at, (command, own) in enumerate(installs_of(step)):
                one = next((each for each in (*own, *_listed(command, step)) if _matters(each, facts)), None)
                if one is None or command.span.path != step.span.path:
                    continue
                asked += 1
                how = _shrugged(step, at) or _overtaken(step, at, shell_words)
                if not how or command.span in told:
                    continue
                told.add(command.span)
                core = one.name in _TORCHS_OWN
                yield found(
                    f"where {one.name} cannot be installed the build goes on without it, for `{how}` follows",
                    command.words[0].span,
                    Severity.WARNING if core else Severity.NOTE,
                    _amended(how)
                    if core or how[0:2] != "||"
                    else f"take `{how}` away, or ask for {one.name} by an ARG, so that two builds are alike",
                    {f"{one.name} is installed": one.span.place},
                )
    skip_if(not asked, "nothing here installs torch or what is compiled against it")


def _listed(command: Command, step: Step) -> list[Install]:
    """What the lists bring that an installer's command names."""
    if not _INSTALLS.match(command.program):
        return []
    files = {posixpath.basename(arg) for arg in command.args}
    return [
        one for one in step.installs if one.span.path != step.span.path and posixpath.basename(one.span.path) in files
    ]


def _matters(one: Install, facts: Facts) -> bool:
    """Whether it is torch, its kin, or a package that is compiled against torch."""
    if one.constraint or one.marker or one.manager not in ("pip", "uv", "conda"):
        return False
    build = facts.package_builds.get(one.name)
    return one.name in _TORCHS_OWN or (build is not None and build.torch)


def _shrugged(step: Step, at: int) -> str:
    """What lets the step go on where the command number ``at`` fails, "" where the build ends or another way is tried.

    The exit status of `a && b || c` is that of c where a fails, unless b and c stand in brackets of their own.
    """
    later = step.commands[at + 1 :]
    alone = not _GROUPS.search(_EXPANSION.sub("", step.value))
    place = next((place for place, each in enumerate(later) if each.after != "&&" or not alone), None)
    if place is None or later[place].after != "||":
        return ""
    first = later[place]
    ends = first.program == "exit" and first.args[:1] == ("0",)
    if not ends and first.program not in _SHRUGS:
        return ""
    # What follows in the same breath may end it all the same, or try another way.
    beside = later[place + 1 : place + 4]
    if any(each.program in ("exit", "false", "return", "kill") or _INSTALLS.match(each.program) for each in beside):
        return ""
    said = " ".join(word.raw for word in first.words)
    return f"|| {said}" if len(said) <= _SHOWN else f"|| {said[:_SHOWN]}..."


def _overtaken(step: Step, at: int, shell_words: str) -> str:
    """The command behind the command number ``at`` whose status counts in the place of its own, "" where the build ends
    all the same: behind a semicolon or a line's end without `set -e`, behind a pipe without pipefail."""
    later = step.commands[at + 1 :]
    if not later or step.exec_form or _GROUPS.search(_EXPANSION.sub("", _BODY.sub("", step.value, count=1))):
        return ""
    ends, pipes = _strict(step, at, shell_words)
    for each in later:
        if each.after in ("|", "|&") and not pipes:
            break
        if each.after in ("||", "&"):
            return ""
        if each.after in (";", "\n") and not ends:
            break
    else:
        return ""
    behind = later[later.index(each) :]
    if "PIPESTATUS" in step.value or "$?" in step.value or any(_PROVES.search(_said(one)) for one in behind):
        return ""
    said = _said(each)
    sign = each.after if each.after in ("|", "|&") else ";"
    return f"{sign} {said}" if len(said) <= _SHOWN else f"{sign} {said[:_SHOWN]}..."


def _said(command: Command) -> str:
    return " ".join(word.raw for word in command.words)


def _strict(step: Step, at: int, shell_words: str) -> tuple[bool, bool]:
    """Whether the shell of a step ends at a command that fails, and fails with a pipe of which one does."""
    before = [shell_words, step.value.partition("\n")[0] if step.value.lstrip().startswith("<<") else ""]
    before += [_said(each) for each in step.commands[:at] if each.program == "set"]
    before += re.findall(r"(?m)^#!.*|\b(?:ba|da|z)?sh\s+-\w+", step.value)
    said = " ".join(before)
    return bool(re.search(r"(?:^|[\s\"'])-[a-zA-Z]*e|errexit", said)), "pipefail" in said


def _amended(how: str) -> str:
    if how.startswith("||"):
        return f"take `{how}` away"
    if how.startswith("|"):
        return 'write SHELL ["/bin/bash", "-o", "pipefail", "-c"] before it'
    return "write && in the place of the semicolon, or `set -e` first"


# What would end the build where the package is not there.
_PROVES = pattern(r"\bimport\b|pip3? (?:check|show)|--no-build-isolation|setup\.py|\bexit [1-9]|\bfalse\b|\btest\b|\[ ")
_BODY = pattern(r"\A\s*<<-?\s*[\"']?\w+[\"']?")
_INSTALLS = pattern(r"pip|uv|conda|mamba|micromamba|python")
_EXPANSION = pattern(r"\$\{[^}]*\}|'[^']*'")
_GROUPS = pattern(r"\(|\{\s|\b(?:if|for|while|until|case)\b|<<")
_SHOWN = 40  # characters of a command that a sentence shows
