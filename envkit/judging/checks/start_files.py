"""What is asked of a start as files describe it (`envkit check --start FILE`): only what their text proves."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.judging.checks._outcomes import error, skip_if, unknown_if, warning
from envkit.judging.checks.dockerfile_python import pip_python_mismatch
from envkit.model import Finding, Span
from envkit.subjects.dockerfile import Command, Dockerfile
from envkit.subjects.start import HandsOn, JobStart, StartScript
from envkit.subjects.workload import FileValue, StartLine

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_OPERATORS = frozenset({"&&", "||", ";", "|", ">", ">>", "2>&1", "<", "&"})
_BUILTINS = frozenset({"source", ".", "cd", "export", "set", "ulimit", "umask", "eval", "alias", "unset"})
_VARIABLE = re.compile(r"\$(?:\{[A-Za-z_]\w*|[A-Za-z_])")
_SETS = re.compile(
    r"(?:^|[;&|\n])\s*(?:export\s+\w|source\s|\.\s+/|conda\s+activate|micromamba\s+activate|module\s+load)"
)
_CONDA = re.compile(r"(?:^|[;&|\n])\s*(?:conda|mamba|micromamba)\s+activate\b")
_HOOK = re.compile(r"conda\.sh|shell\.\w+\s+hook|shell\s+hook|conda\s+init|bin/activate|mamba\.sh|\.bashrc|profile")
_RC = re.compile(r"(?:\.bashrc|\.bash_profile|\.profile|/etc/profile(?:\.d/\S+)?|bash\.bashrc|\.zshrc)\Z")
_STEERS = re.compile(r"\b(PATH|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|VIRTUAL_ENV|CONDA_\w+|CUDA_\w+|NCCL_\w+|HF_\w+)=")
_BASH_LESS = re.compile(r"(?:^|/)(?:alpine|busybox)(?::|\Z)|-alpine")


def _lines(start: JobStart) -> tuple[StartLine, ...]:
    return tuple(one for one in (start.entrypoint, start.command) if one is not None)


def _need_words(start: JobStart) -> tuple[FileValue, ...]:
    words = tuple(word for line in _lines(start) for word in line.words)
    skip_if(not words, "nothing here says what is started")
    return words


def _shown(words: tuple[FileValue, ...], most: int = 6) -> str:
    said = " ".join(word.value.replace("\n", " ") for word in words[:most])
    return f"`{said[:120]}`"


def start_command_dropped(start: JobStart) -> Iterator[Finding]:
    """What stands behind an entry point reaches it: no shell form and no script drops its words.  Source: Dockerfile
    reference, "Shell form ENTRYPOINT example"."""
    _need_words(start)
    entry, command = start.entrypoint, start.command
    if entry is not None and entry.shell and command is not None and command.words:
        if not re.search(r"\$(?:[@*#0-9]|\{[@*#0-9])", entry.words[-1].value):
            behind = command.words[2:] if command.shell else command.words
            yield error(
                f"{entry.key} is in the shell form, which drops {_shown(behind)} of {command.key}",
                command.span,
                {entry.key: entry.span.place},
                f"write {entry.key} as a JSON list, or the words into it",
            )
        return
    for script in start.scripts:
        named = not script.origin and (re.search(r"\$\{?0", script.text) or script.given[:1] == script.given)
        named = named and (script.given[:1] == () or script.given[0].value in (*_SHELLS, "--", "-", "_"))
        if not script.given or named or script.hands_on is not HandsOn.IGNORED:
            continue
        said = script.word.value if script.origin else f"the text behind {script.by_shell} -c"
        yield error(
            f"{said} never uses the words that it is given: {_shown(script.given)}",
            script.given[0].span,
            {script.origin or said: "it mentions neither $@ nor $1"},
            'end it with `exec "$@"`' if script.origin else "write them into the text, in one word with it",
        )


def start_arguments_split(start: JobStart) -> Iterator[Finding]:
    """The words of a command stay as they are on their way through the entry point.  Source: POSIX shell, "Special
    Parameters"."""
    _need_words(start)
    skip_if(not start.scripts, "no script that is known stands before the job")
    for script in start.scripts:
        if script.hands_on is HandsOn.JOINED and len(script.given) > 1 + (not script.origin):
            yield error(
                f'{script.word.value} runs "$*", which makes one word of {_shown(script.given)}',
                script.word.span,
                {script.origin: script.path},
                'write `exec "$@"`',
            )
        odd = [
            word for word in script.given[not script.origin :] if re.search(r"[\s*?\[]", word.value) or not word.value
        ]
        if script.hands_on is HandsOn.SPLIT and odd:
            yield error(
                f"{script.word.value} runs $@ without quotes, which splits `{odd[0].value}`",
                odd[0].span,
                {script.origin: script.path},
                'write `exec "$@"`',
            )


def start_needs_a_shell(start: JobStart) -> Iterator[Finding]:
    """What only a shell understands stands behind a shell.  Source: Dockerfile reference, "Exec form"; Compose
    Specification, command; Kubernetes, "Define a Command and Arguments"."""
    _need_words(start)
    job = start.job
    skip_if(not job, "the job's program is not known")
    where = {"compose": "compose", "kubernetes": "Kubernetes"}.get(start.kind, "the exec form")
    handed = (HandsOn.EACH, HandsOn.SPLIT, HandsOn.JOINED)
    if any(script.hands_on not in handed for script in start.scripts):
        return  # a shell has read these words
    fix = 'start a shell: ["sh", "-c", "..."], or put the words into a script'
    if job[0].value in _BUILTINS and job[0].sure:
        yield error(f"`{job[0].value}` is a command of shells, and {where} starts none", job[0].span, fix=fix)
        return
    code = next((at for at, word in enumerate(job) if word.value in ("-c", "-e")), len(job))
    for word in job[:code]:
        if word.value in _OPERATORS:
            yield error(
                f"{job[0].value} is given `{word.value}` as a word, for {where} starts no shell", word.span, fix=fix
            )
            return
        if _VARIABLE.search(word.value) and (start.kind != "compose" or word.sure):
            yield error(f"nobody replaces `{word.value}`, for {where} starts no shell", word.span, fix=fix)
            return
    if re.search(r"\S\s+\S", job[0].value) and not job[0].value.startswith("/") and job[0].sure:
        yield error(
            f"there is no program `{job[0].value}`: it is one word for {where}", job[0].span, fix="write a word each"
        )


def start_exec_form_broken(start: JobStart) -> Iterator[Finding]:
    """A start that looks like a JSON list is one.  Source: Dockerfile reference, "Exec form": double quotes."""
    _need_words(start)
    for line in _lines(start):
        text = line.words[-1].value.strip() if line.words else ""
        if line.shell and text.startswith("[") and not re.match(r"\[\[?\s", text):
            yield error(
                f"{line.key} {text[:80]} is no JSON, so that a shell looks for a program `{text.split()[0]}`",
                line.span,
                fix='write it with double quotes and no comma at its end: ["python", "train.py"]',
            )


def start_script_not_executable(start: JobStart) -> Iterator[Finding]:
    """A script that is started may be executed, and its interpreter is there.  Source: execve(2)."""
    _need_words(start)
    skip_if(not start.scripts, "no script that is known is started")
    for script in start.scripts:
        if not script.origin or script.edited:
            continue
        first = script.text.split("\n", 1)[0]
        where, evidence = script.word.span, {script.origin: script.path}
        if "\r" in first:
            lines = "its first line ends with a carriage return, so that its interpreter is not found"
            by = "its lines end with carriage returns, which are part of its commands"
            yield error(
                f"{script.word.value} cannot run: {by if script.by_shell else lines}",
                where,
                evidence,
                "write it with line ends of Unix, and `*.sh text eol=lf` into .gitattributes",
            )
        elif script.by_shell:
            continue
        elif script.executable is False:
            yield error(
                f"{script.word.value} may not be executed in the image",
                where,
                evidence,
                "COPY --chmod=755, or chmod +x it",
            )
        elif not first.startswith("#!"):
            mark = "a byte-order mark" if first.startswith("\ufeff") else "no #! line"
            yield error(f"{script.word.value} begins with {mark}", where, evidence, "begin it with #!/bin/sh")
        elif _without(first, start.dockerfile):
            base = start.dockerfile.base.reference if start.dockerfile else ""
            yield error(
                f"{script.word.value} is for {first[2:].strip()}, which {base} does not have",
                where,
                evidence,
                "write it for /bin/sh, or install the shell",
            )


def _without(first: str, dockerfile: Dockerfile | None) -> bool:
    """Whether a script's interpreter is bash and the image surely has none."""
    if dockerfile is None or not re.search(r"\bbash\b", first) or not _BASH_LESS.search(dockerfile.base.reference):
        return False
    return not any("bash" in word for _, command in dockerfile.commands for word in command.args)


def start_file_missing(start: JobStart) -> Iterator[Finding]:
    """The files that a start names are where it looks for them, as far as the Dockerfile and its context show."""
    _need_words(start)
    unknown_if(start.dockerfile is None, f"the image's files are not known: {start.why}")
    for one in start.absent:
        if one.hidden is not None:
            yield error(
                f"{one.path} is hidden: {one.hidden.source} is mounted over {one.hidden.target} and does not have it",
                one.hidden.span,
                {one.path: one.word.span.place},
                "put it outside of the mounted folder, or mount a volume over its own folder",
            )
            continue
        if one.kept_out:
            yield error(
                f"nothing puts {one.path} into the image: the .dockerignore keeps {one.kept_out} out",
                one.word.span,
                {"working folder": start.folder} if start.folder else {},
                f"let it in by a line `!{one.kept_out}` at the end of the .dockerignore",
            )
            continue
        if "/" not in one.path:
            yield error(
                f"{one.path} is looked for in the folders of PATH, and the build puts it at {one.copied}",
                one.word.span,
                fix=f"name {one.copied}",
            )
            continue
        if one.module:
            there = f", and the build puts {posixpath.basename(one.path)} at {one.copied}" if one.copied else ""
            yield error(
                f"there is no module {one.module} in {start.folder}, where Python looks: nothing puts {one.path} "
                f"into the image{there}",
                one.word.span,
                {"working folder": start.folder},
                "name the module as it lies below the working folder, correct WORKDIR or COPY, or set PYTHONPATH",
            )
            continue
        there = f"; the build puts it at {one.copied}" if one.copied else ""
        yield error(
            f"nothing puts {one.path} into the image{there}",
            one.word.span,
            {"working folder": start.folder} if start.folder else {},
            f"name {one.copied}" if one.copied else "COPY it, or correct WORKDIR or the path",
        )


def start_entrypoint_bypassed(start: JobStart) -> Iterator[Finding]:
    """What the image's own entry point sets up is not lost.  Source: Kubernetes, "Define a Command and Arguments";
    Compose Specification, entrypoint."""
    _need_words(start)
    skip_if(start.kind == "dockerfile" or start.entrypoint is None or start.entrypoint.key == "ENTRYPOINT",
            "the image's own entry point is in force")  # fmt: skip
    unknown_if(start.dockerfile is None, f"the image's own entry point is not known: {start.why}")
    script, own = start.replaced_script, start.replaced
    skip_if(own is None, "the image has no entry point of its own")
    assert own is not None and start.entrypoint is not None
    if script is None or not _SETS.search(script.text) or any(one.path == script.path for one in start.scripts):
        return
    what = next(line.strip() for line in re.split(r"[;\n]|&&", script.text) if _SETS.match(line))
    yield warning(
        f"{start.entrypoint.key} takes the place of {script.origin or own.key}, which sets up the job: `{what[:80]}`",
        start.entrypoint.span,
        {own.key: own.span.place, script.origin or own.key: f"`{what[:80]}`"},
        "give the job as `args`" if start.kind == "kubernetes" else "give the job as `command`",
    )


def start_without_command(start: JobStart) -> Iterator[Finding]:
    """An entry point that runs what it is given is given something.  Source: Dockerfile reference, "Understand how CMD
    and ENTRYPOINT interact"."""
    _need_words(start)
    dropped = f": {start.entrypoint.key} takes {_shown(start.dropped.words)} of CMD away" if (
        start.dropped is not None and start.entrypoint is not None) else ""  # fmt: skip
    for script in start.scripts:
        handed = script.hands_on in (HandsOn.EACH, HandsOn.SPLIT, HandsOn.JOINED)
        if (
            handed
            and not script.given[not script.origin :]
            and not re.search(r"\$#|\$\{?[1@]:?[-=]|-z\s|-n\s|set --", script.text)
        ):
            yield error(
                f"{script.word.value if script.origin else 'the start'} runs the words that it is given, and is given "
                f"none{dropped}",
                script.word.span,
                {"CMD": start.dropped.span.place} if start.dropped else {},
                "name the command as well",
            )
            return


def start_python_without_the_packages(start: JobStart, facts: Facts) -> Iterator[Finding]:
    """The Python that the job starts is the one that the packages are installed into."""
    _need_words(start)
    unknown_if(start.dockerfile is None, f"what the image installs is not known: {start.why}")
    assert start.dockerfile is not None
    skip_if(not start.job or not re.match(r"python|pip", posixpath.basename(start.job[0].value)), "no Python is named")
    for one in pip_python_mismatch(start.dockerfile, facts):
        evidence = {name: _placed(place, start) for name, place in one.evidence.items()}
        yield replace(one, span=start.job[0].span, where=start.job[0].span.place, evidence=evidence, edits=())


def _placed(place: str, start: JobStart) -> str:
    """A place in the Dockerfile, or where the start says what the laid-over lines say."""
    found = re.match(r"(.*):(\d+)", place)
    return start.job[0].span.place if found and int(found[2]) > start.lines else place


def start_activation_fails(start: JobStart) -> Iterator[Finding]:
    """What activates an environment can do so in the shell that runs it.  Source: conda, "conda init"; dash(1), which
    has no `source`."""
    _need_words(start)
    texts = [(script, script.text) for script in start.scripts]
    skip_if(not texts, "no shell that is known stands before the job")
    for script, text in texts:
        body = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
        first = text.split("\n", 1)[0]
        if _CONDA.search(body) and not _HOOK.search(body) and not script.login and not re.search(r"-\w*[il]", first):
            yield error(
                f"{_of(script)} activates an environment of conda in a shell that knows no `conda activate`",
                script.word.span,
                fix='write `eval "$(conda shell.bash hook)"` before it, or `conda run --no-capture-output -n NAME`',
            )
        plain = (
            script.by_shell == "sh" if script.by_shell else re.match(r"#!\s*(?:/usr/bin/env\s+)?(?:/bin/)?sh\b", first)
        )
        if plain and re.search(r"(?:^|[;&|\n])\s*source\s", body) and _dash(start.dockerfile):
            yield error(
                f"{_of(script)} calls `source`, and /bin/sh of {start.dockerfile.base.reference} has none"
                if start.dockerfile
                else "",
                script.word.span,
                fix="write `.` in its place, or run it with bash",
            )


def _of(script: StartScript) -> str:
    return script.word.value if script.origin else f"the text of {script.by_shell or 'the shell'}"


def _dash(dockerfile: Dockerfile | None) -> bool:
    """Whether /bin/sh is dash for sure: Debian's and Ubuntu's, where no step puts another in its place."""
    os = dockerfile.base.os if dockerfile is not None else None
    if dockerfile is None or os is None or not os.value or not os.value.startswith(("debian", "ubuntu")):
        return False
    return not any("/bin/sh" in word for _, command in dockerfile.commands for word in command.args)


def start_variables_of_a_login_shell(start: JobStart) -> Iterator[Finding]:
    """No variable that the job needs is set where only a login or a terminal reads it.  Source: bash(1), INVOCATION."""
    _need_words(start)
    unknown_if(start.dockerfile is None, f"what the build writes is not known: {start.why}")
    assert start.dockerfile is not None
    skip_if(any(script.login for script in start.scripts), "a shell of a login stands before the job")
    bodies = "\n".join(script.text for script in start.scripts)
    for command, file, said in _written(start.dockerfile):
        variable = _STEERS.search(said)
        if posixpath.basename(file) in bodies or (
            variable is None and not re.search(r"conda init|conda activate", said)
        ):
            continue
        if variable is not None and variable[1] in start.dockerfile.target.env and variable[1] != "PATH":
            continue
        what = variable[1] if variable else "an environment of conda"
        place = _span(start)
        yield warning(
            f"{file} sets {what}, which only a login or a terminal reads, and the job starts without one",
            place,
            {file: command.span.place},
            f"set {what} with ENV" if variable else "put the environment's bin first on PATH with ENV",
        )
        return


def _written(dockerfile: Dockerfile) -> Iterator[tuple[Command, str, str]]:
    """Commands that surely write to a start-up file of shells, with the file and the text."""
    for step, command in dockerfile.commands:
        if not command.sure:
            continue
        piped = " ".join(" ".join(one.args) for one in step.commands) if command.program == "tee" else ""
        targets = [one.target.text for one in command.redirects if one.op.startswith(">")]
        targets += list(command.args) if command.program == "tee" else []
        file = next((target for target in targets if _RC.search(target)), "")
        if file:
            yield command, file, f"{' '.join(command.args)} {piped} {command.heredoc}"
        elif command.program in ("conda", "mamba") and command.args[:1] == ("init",):
            yield command, "~/.bashrc", "conda init"


def start_output_held_back(start: JobStart) -> Iterator[Finding]:
    """`conda run` passes on what the job prints, while it prints.  Source: conda run reference."""
    words = _need_words(start)
    texts = [word.value for word in words] + [script.text for script in start.scripts]
    runs = re.compile(r"\b(?:conda|mamba)\s+run\s+(?!.*(?:--no-capture-output|--live-stream|-s\b))")
    joined = " ".join(texts[: len(words)])
    skip_if(not re.search(r"\b(?:conda|mamba)\s+run\b", "\n".join([joined, *texts])), "no `conda run` is started")
    if any(runs.search(line) for text in (joined, *texts[len(words) :]) for line in text.split("\n")):
        yield warning(
            "`conda run` holds back what the job prints until it ends, and all of it where it is killed",
            _span(start),
            fix="add --no-capture-output",
        )


def start_user_without_home(start: JobStart) -> Iterator[Finding]:
    """A user that the image does not know has a home to write to.  Source: Docker, which sets HOME=/ for a uid that
    /etc/passwd lacks."""
    unknown_if(start.dockerfile is None, f"the image's users are not known: {start.why}")
    assert start.dockerfile is not None
    dockerfile = start.dockerfile
    last = [step for step in dockerfile.steps if step.name == "USER"]
    uid = last[-1].value.strip().partition(":")[0] if last else ""
    skip_if(not re.fullmatch(r"[1-9]\d*", uid), "no user is named by a number")
    skip_if(dockerfile.base.family not in ("os", "nvidia", "python"), "the base may know the user")
    made = any(
        command.program in ("useradd", "adduser", "usermod") or "passwd" in " ".join(command.args)
        for _, command in dockerfile.commands
    )
    ubuntu = uid == "1000" and (dockerfile.base.os.value or "").startswith("ubuntu2")
    if made or ubuntu or "HOME" in dockerfile.target.env or uid in ("65534",):
        return
    span = start.user.span if start.user is not None else last[-1].span
    yield warning(
        f"nobody gives the user {uid} a name and a home, so that HOME is / and caches cannot be written",
        span,
        {f"USER {uid}": span.place},
        "make the user in the Dockerfile, or set HOME to a folder that it may write to",
    )


def start_exit_code_lost(start: JobStart) -> Iterator[Finding]:
    """The container ends as its job ends.  Source: POSIX shell, "Pipelines" and "Lists"."""
    _need_words(start)
    skip_if(not start.scripts, "no script that is known stands before the job")
    for script in start.scripts:
        body = re.sub(r"\\\n", " ", script.text)
        safe = re.search(r"pipefail|PIPESTATUS|set -\w*e|wait\b|\$\?", body)
        lines = [line.strip() for line in body.split("\n") if line.strip() and not line.lstrip().startswith("#")]
        if safe or not lines:
            continue
        job = re.compile(r"(?:^|[;&|]\s*|exec\s+)(?:\S*/)?(?:python[\d.]*|torchrun|accelerate)\s[^|;&]*")
        piped = next(
            (
                line
                for line in lines
                if re.search(job.pattern + r"\|\s*tee\b", line) or re.search(r"2>&1\s*\|\s*tee\b", line)
            ),
            "",
        )
        after = re.search(job.pattern + r";\s*(?:echo|sleep|date|true)\b", lines[-1])
        if piped or after:
            how = f"the exit code of `{(piped or lines[-1])[:80]}` is that of its last command, not of the job"
            yield warning(
                how, script.word.span, fix="write `set -eo pipefail` first (bash), or let the job be the last command"
            )


def _span(start: JobStart) -> Span:
    return (start.entrypoint or start.command or StartLine((), "", start.span)).span
