"""What ends a build at once: a question that nobody answers, a program that is not there, a word in a wrong place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envkit.dockerfile import options, system
from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import forgiven, installs_of, need_stages
from envkit.judging.checks._outcomes import error, found, skip_if, warning
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Severity, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Install, Stage, Step, Word
from envkit.versions import Python, Torch

# ---------------------------------------------------------------- questions

_APT = frozenset({"apt", "apt-get"})
_RPM = frozenset({"yum", "dnf", "microdnf"})
_CHANGING = {
    **dict.fromkeys(_APT, frozenset({"install", "upgrade", "dist-upgrade", "full-upgrade", "build-dep"})),
    **dict.fromkeys(_RPM, frozenset({"install", "update", "upgrade", "groupinstall", "localinstall"})),
}
# Short options may stand together (-qqy); -qq and -q=2 answer for themselves (apt-get(8)).
_YES = pattern(r"-[a-zA-Z]*y[a-zA-Z]*|-[a-zA-Z]*q[a-zA-Z]*q[a-zA-Z]*|-q=2|--(?:assume-)?yes|--force-yes|--assumeyes")
_NOTHING = pattern(
    r"-[a-zA-Z]*[sd][a-zA-Z]*|--(?:simulate|dry-run|just-print|no-act|download-only|print-uris|assumeno)"
)
_SETTING = pattern(r"(?i)assume-?yes|apt\.conf|defaultyes|\byes\s*\|")
# Packages that bring others on every plain Debian and Ubuntu; of a package alone apt asks nothing.
_BRINGING = options.names(
    "git wget curl build-essential gcc g++ cmake ffmpeg vim software-properties-common git-lfs openssh-server "
    "nginx nodejs npm default-jdk subversion tesseract-ocr texlive graphviz"
)
# The same, as long as no other package has brought some of it before.
_FIRST = options.names(
    "python3 python3-pip python3-dev python3-venv python-pip libgl1 libgl1-mesa-glx libsm6 libxext6 libxrender1 "
    "libxrender-dev libglib2.0-dev libopencv-dev python3-opencv ca-certificates"
)


def apt_install_asks(dockerfile: Dockerfile) -> Iterator[Finding]:
    """apt and yum are told beforehand to go on: a build has nobody who answers.  Source: apt-get(8), yum(8)."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()  # stages that are FROM one another share their steps
    for index in dockerfile.reachable:
        stage = dockerfile.stages[index]
        there: set[str] = set()
        for step in dockerfile.steps_of(stage.index):
            if _SETTING.search(step.value):
                break
            for at, (command, own) in enumerate(installs_of(step) if step.name == "RUN" else ()):
                changes = command.program in _CHANGING
                asked += changes
                if changes and _asks(command) and not forgiven(step, at) and command.span not in told:
                    names = [one.name for one in own if one.manager in ("apt", "dnf") and one.name not in there]
                    known = _BRINGING if there else _BRINGING | _FIRST
                    first = next((name for name in names if command.program in _RPM or name in known), "")
                    if first:
                        told.add(command.span)
                        yield _unanswered(command, first, stage.base)
                there |= {one.name for one in own}
        yield from _zones(dockerfile.steps_of(stage.index), stage.base, told)
    skip_if(not asked, "neither apt nor yum is called")


# Releases of Ubuntu whose images are without tzdata and whose tzdata asks where one lives; Debian's images hold it.
# Source: tianon/docker-brew-ubuntu-core issue 181; skbly7's pull request 1 to food-recognition-benchmark-starter-kit.
_ASKING_FOR_ZONE = frozenset({"ubuntu18.04", "ubuntu20.04", "ubuntu22.04"})
# Packages that bring tzdata there: Tcl's library requires it (libtcl8.6).
_WITH_ZONES = options.names("tzdata python3-tk tk tk-dev tcl tcl-dev")
# The values of DEBIAN_FRONTEND with which debconf asks: its default, and those of a person at a terminal.
_ASKING = frozenset({"", "dialog", "readline", "teletype", "text", "editor"})
_ANSWERED = pattern(r"DEBIAN_FRONTEND|DEBCONF|debconf|/etc/(?:localtime|timezone)|noninteractive", re.IGNORECASE)


def _zones(steps: Sequence[Step], base: Base, told: set[Span]) -> Iterator[Finding]:
    """The first install that configures tzdata, which asks for the time zone where nobody answers."""
    if stack.said(base.os) not in _ASKING_FOR_ZONE or base.family not in ("os", "nvidia") or not base.sure:
        return
    for step in steps:
        copied = step.copy is not None and step.copy.foreign
        named = [one for one in step.settings if one.name == "DEBIAN_FRONTEND" and step.name in ("ENV", "ARG")]
        if any(not one.sure or one.value is None for one in named):
            return
        if copied or (not named and _ANSWERED.search(step.value)) or step.unread:
            return
        for command, own in installs_of(step) if step.name == "RUN" else ():
            apt = command.program in _APT and command.sure
            one = next((one for one in own if one.manager == "apt" and one.name in _WITH_ZONES and one.sure), None)
            fed = command.after in ("|", "|&") or command.heredoc or any(r.op[:1] == "<" for r in command.redirects)
            if not apt or one is None or fed:
                continue
            if command.env.get("DEBIAN_FRONTEND", "") not in _ASKING:
                return  # it is there from now on
            if command.span not in told:
                told.add(command.span)
                brings = "tzdata" if one.name == "tzdata" else f"tzdata, which {one.name} brings,"
                yield warning(
                    f"{brings} asks for the time zone on {base.os.value}, and nothing answers, so that the build hangs "
                    "here",
                    one.span,
                    {f"the base is {base.os.value}, without tzdata": f"{base.span.place}, {base.os.via}"},
                    "write `DEBIAN_FRONTEND=noninteractive apt-get install -y ...`, or `ARG "
                    "DEBIAN_FRONTEND=noninteractive` before",
                )
            return


def _unanswered(command: Command, name: str, base: Base) -> Finding:
    """The finding of one command; a base of somebody's own may have what the package would bring."""
    sure = command.program in _RPM or _plain(base)
    so = "brings other packages, and nothing answers, so that the build ends here"
    return found(
        f"`{command.program} install` asks whether to go on, for {name} {so if sure else 'may bring other packages'}",
        command.words[0].span,
        Severity.ERROR if sure else Severity.WARNING,
        f"write `{command.program} install -y`",
    )


def _asks(command: Command) -> bool:
    """Whether a command surely changes packages and is told neither yes nor to change nothing."""
    wanted = _CHANGING.get(command.program)
    if wanted is None or not command.sure or not all(word.sure for word in command.words):
        return False
    options = [arg for arg in command.args if arg.startswith("-")]
    answered = command.after in ("|", "|&") or command.heredoc or any(r.op.startswith("<") for r in command.redirects)
    quiet = command.program in _APT and sum(option in ("-q", "--quiet") for option in options) > 1
    return bool(
        wanted.intersection(command.args)
        and not answered
        and not quiet
        and not any(_YES.fullmatch(option) or _NOTHING.fullmatch(option) for option in options)
        and "--assumeno" not in options
    )


def _plain(base: Base) -> bool:
    """Whether an image holds few packages of its system: Debian's, Ubuntu's, nvidia/cuda's, Python's slim ones."""
    if not base.sure or base.digest:
        return False
    slim = (base.family == "python" or base.repository == "mambaorg/micromamba") and "slim" in base.tag
    return slim or (base.family in ("os", "nvidia") and bool(re.match(r"(?:debian|ubuntu)\d", stack.said(base.os))))


# ---------------------------------------------------------------- programs

_PROGRAMS = {
    "git": "git",
    "curl": "curl",
    "wget": "wget",
    "unzip": "unzip",
    "sudo": "sudo",
    "add-apt-repository": "software-properties-common",
}
# Packages that may bring a program of _PROGRAMS, themselves or by what they recommend, in a wide net: of the 44 that
# public Dockerfiles install most, `apt-get -s` on Debian 12 shows it of git-lfs, zip and one other alone.
_MAY_BRING = pattern(
    r"git\b.*|.*(?:git|curl|wget|sudo|zip)\b.*|devscripts|dkms|dh-.*|debhelper|.*-all|.*desktop.*|ros-.*|r-.*|texlive.*|golang.*|npm|node.*"
    r"|cargo.*|rust.*|mercurial|subversion|repo|vcstool|colcon.*|python3-(?:vcs|colcon|ros).*|ubuntu-.*|kde.*|gnome.*|xfce.*|lxde.*|libreoffice.*"
    r"|google-.*|docker.*|cuda.*|nvidia.*|tensorrt.*|snapd|ansible.*|buildah|podman|code.*|.*-minimal|openjdk.*|default-j.*|maven|gradle|php.*|ruby.*"
    r"|apache.*|mysql.*|postgres.*|software-properties-common|cloud-.*|azure-.*|aws.*|gh|hub|etckeeper|build-dep|pbuilder|sbuild|ca-certificates-.*"
)
_HUB_SINCE = Python("3.9")  # for an older one pip takes huggingface-hub before 1.0
_BRINGS_ALL = frozenset({"dpkg", "conda", "mamba", "micromamba", "tar", "make", "apk", "snap", "brew", "nix", "alien"})


def program_missing(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """A program that a RUN starts was installed before.  Source: the packages of Debian's, Ubuntu's, Python's slim and
    NVIDIA's images; the programs that releases of huggingface-hub name."""
    need_stages(dockerfile)
    asked = 0
    told: set[tuple[str, Span]] = set()
    for index in dockerfile.reachable:
        stage = dockerfile.stages[index]
        for word, brought in _renamed(dockerfile, stage):
            asked += 1
            if (word.text, word.span) not in told:
                told.add((word.text, word.span))
                yield error(
                    f"{brought.name} has brought no huggingface-cli since its release 1.0, and here the newest is "
                    "installed, so that the build ends here",
                    word.span,
                    {f"the newest {brought.name}": brought.span.place},
                    "call `hf` in its place: `hf download ...`, `hf auth login ...`",
                )
        conda = _without_conda(dockerfile, stage, facts)
        asked += conda is not None
        if conda is not None and ("conda", conda.span) not in told:
            told.add(("conda", conda.span))
            since = facts.milestone("pytorch-image-conda")
            yield error(
                f"{conda.text} is called, and neither {stage.base.reference} nor a step before brings it, so that the "
                "build ends here",
                conda.span,
                {f"no conda in PyTorch's images since {since.release}": cited(since)},
                "take the tag that was tested, or install into the image's own environment with pip",
            )
        outside = _outside_path(stage, dockerfile)
        asked += outside is not None
        if outside is not None and ("conda", outside[0].span) not in told:
            word, root, brought = outside
            told.add(("conda", word.span))
            yield error(
                f"{word.text} is called by its name, and it lies in {root}/bin, which is not on PATH, so that the "
                "build ends here",
                word.span,
                {f"conda lies in {root}": brought.span.place},
                f"set `ENV PATH={root}/bin:$PATH` before it, or call {root}/bin/{word.text}",
            )
        if not _plain(stage.base):
            continue
        asked += 1
        for name, word, by in _uses(dockerfile, stage):
            if (name, word.span) in told:
                continue
            told.add((name, word.span))
            yield error(
                f"{by}, and neither {stage.base.reference} nor a step before brings {name}, so that the build ends "
                "here",
                word.span,
                {f"no {name} in the base": f"{stage.base.span.place}, {stage.base.reference}"},
                f"install it before: `apt-get install -y {_PROGRAMS[name]}`",
            )
    skip_if(not asked, "which programs the base holds is not known")


def _without_conda(dockerfile: Dockerfile, stage: Stage, facts: Facts) -> Word | None:
    """The first call of conda in an image of PyTorch's that has none: the newest, and those since a release."""
    base, since = stage.base, Torch(facts.milestone("pytorch-image-conda").release)
    if base.family != "pytorch" or not base.sure or base.digest:
        return None
    release = stack.said(base.torch)
    if base.tag not in ("", "latest") and (not release or Torch(release) < since):
        return None
    for step in dockerfile.steps_of(stage.index):
        copied = step.copy is not None and step.copy.foreign
        if copied or any("conda" in one.name or "forge" in one.name for one in step.installs):
            return None
        for at, command in enumerate(step.commands if step.name == "RUN" else ()):
            if command.words[0].text in ("conda", "mamba") and command.sure and not forgiven(step, at):
                return command.words[0]
            if command.program in system.SHELLS or "/" in command.words[0].text:
                return None
    return None


def _has(path: Sequence[str], root: str) -> bool:
    return any(
        one.rstrip("/") in (f"{root}/bin", f"{root}/condabin") or "conda" in one or "forge" in one for one in path
    )


_INSTALLED_CONDA = frozenset({"miniconda", "anaconda", "miniforge", "mambaforge"})
# What may put a program on PATH in ways of its own; a shell of login or of a terminal reads files at its start.
_STARTS_OWN = pattern(r"\bsh\b[\s\",]+-(?:-login|\w*[li])|\bbash\b[\s\",]+-(?:-login|\w*[li])|\bsu\b|\bsudo\b")
_LINKS = pattern(r"\bln\b|\bcp\b|\bmv\b|\binstall\b\s+-m|update-alternatives|/etc/environment|conda init")


def _outside_path(stage: Stage, dockerfile: Dockerfile) -> tuple[Word, str, Install] | None:
    """The first call of conda by its name where the one that an installer brought is surely not on PATH: with the word
    and the folder."""
    base = stage.base
    if base.family not in ("os", "nvidia") or not base.sure or base.digest:
        return None
    brought: Install | None = None
    for step in dockerfile.steps_of(stage.index):
        copied = step.copy is not None and step.copy.foreign
        if copied or step.name == "SHELL" or any(one.system for one in step.unread):
            return None
        if step.name != "RUN":
            continue
        if _STARTS_OWN.search(step.value) or "BASH_ENV" in step.env:
            return None
        opened = False  # by what the RUN itself exports or sources
        for at, command in enumerate(step.commands):
            word = command.words[0]
            opened = opened or command.program in (".", "source", "eval", "export") or "PATH" in command.assigns
            if word.text in ("conda", "mamba") and brought is not None and not opened:
                root = brought.target.rstrip("/")
                path = (command.env.get("PATH") or "").split(":")
                known = command.env.get("PATH") and not any("$" in one or "~" in one for one in path)
                if command.sure and known and not forgiven(step, at) and not _has(path, root):
                    return word, root, brought
                return None
        mine = [one for one in step.installs if one.manager == "source" and one.name in _INSTALLED_CONDA]
        if any(not one.target.startswith("/") or not one.sure for one in mine):
            return None
        brought = mine[-1] if mine else brought
        if brought is not None and _LINKS.search(step.value):
            return None
    return None


# What requires neither huggingface-hub nor a package that bounds it.
_BESIDE = options.names(
    "pip setuptools wheel uv hf-transfer hf-xet tqdm requests numpy runpod fastapi uvicorn boto3 packaging ninja "
    "jupyterlab opencv-python opencv-python-headless pillow torch torchvision torchaudio"
)


def _renamed(dockerfile: Dockerfile, stage: Stage) -> Iterator[tuple[Word, Install]]:
    """The first call of huggingface-cli where the newest huggingface-hub is surely there.  Source: entry_points.txt of
    huggingface-hub 0.36.2, which has it, and of 1.0.1, which has not."""
    hub: Install | None = None
    before: list[Install] = []
    base = stage.base
    empty = base.family in ("os", "nvidia", "python") and base.sure and not base.digest
    for step in dockerfile.steps_of(stage.index):
        if step.copy is not None and step.copy.foreign:
            return
        if step.name != "RUN":
            continue
        if step.unread:
            return
        for at, (command, own) in enumerate(installs_of(step)):
            pythons = [one for one in own if one.manager not in ("apt", "dnf", "apk")]
            hub = _newest_hub(pythons, before, empty) or (None if pythons else hub)
            before += pythons
            word = command.words[0]
            if word.text == "huggingface-cli" and hub is not None and command.sure and not forgiven(step, at):
                yield word, hub
                return
        if len(step.installs) > sum(len(own) for _, own in installs_of(step)):  # what a list brings
            return


def _newest_hub(own: Sequence[Install], before: Sequence[Install], empty: bool) -> Install | None:
    """The huggingface-hub of one command where it surely is the newest: nothing beside it or before it may hold it.

    ``empty`` says that the base has none; what is there already stays, unless it is to be upgraded.
    """
    hub = next((one for one in own if one.name == "huggingface-hub"), None)
    if hub is None or not hub.sure or hub.marker or hub.url or hub.constraint or hub.locked or hub.index:
        return None
    newest = not re.search(r"[<~!]|==", hub.specifier) and not hub.version
    living = bool(hub.python) and Python(hub.python) >= _HUB_SINCE
    beside = [one for one in own if one is not hub]
    upgraded = "--upgrade" in hub.options
    others = [*beside, *(() if upgraded else before)]
    free = all(one.name in _BESIDE and one.prefix == hub.prefix for one in others)
    return hub if newest and living and free and (empty or upgraded) and hub.manager in ("pip", "uv") else None


def _uses(dockerfile: Dockerfile, stage: Stage) -> Iterator[tuple[str, Word, str]]:
    """The first use of each program that surely is not there: its name, where, and what uses it, in words."""
    lacking = set(_PROGRAMS)
    for step in dockerfile.steps_of(stage.index):
        if _opaque(step):
            return
        if step.name != "RUN":
            continue
        lists = [one for one in step.installs if one.span.path != step.span.path]
        for at, (command, own) in enumerate(installs_of(step)):
            for name, word, by in _needs(command, own, lists):
                if name in lacking and command.sure and not forgiven(step, at):
                    lacking.discard(name)
                    yield name, word, by
            lacking -= _brought(command, own)
            if not lacking:
                return


def _opaque(step: Step) -> bool:
    """Whether a step may bring any program in a way that the text does not show."""
    if step.copy is not None:
        target = step.copy.target
        foreign = step.copy.foreign
        return (foreign and bool(re.match(r"/(?:usr|bin|sbin|opt)?(?:/|\Z)", target))) or bool(
            re.match(r"/(?:usr|bin)?/?\Z", target)
        )
    return (
        step.name == "SHELL" or "--mount=type=bind" in " ".join(step.flags) or any(each.system for each in step.unread)
    )


def _needs(command: Command, own: list[Install], lists: list[Install]) -> Iterator[tuple[str, Word, str]]:
    """The programs that a command starts itself, or that pip starts for it."""
    raw = command.raw_words or command.words
    if raw[0].text == "sudo":
        yield "sudo", raw[0], "sudo is called"
    word = command.words[0]
    if word.text in _PROGRAMS and command.span.path == word.span.path:
        yield word.text, word, f"{word.text} is called"
    reads = {"-r", "--requirement"} & {arg[:2] if arg.startswith("-r") else arg for arg in command.args}
    for one in (*own, *(lists if reads else ())):
        if (
            one.manager in ("pip", "uv")
            and one.url.startswith("git+")
            and one.sure
            and not one.constraint
            and not one.marker
        ):
            yield "git", Word(one.name, one.name, one.span), f"{one.name or one.url} comes from a git repository"
            return


def _brought(command: Command, own: list[Install]) -> set[str]:
    """The programs that a command may bring."""
    script = (
        command.program in system.SHELLS or "/" in command.words[0].text or command.program in (".", "source", "eval")
    )
    hidden = command.program in system.APT and any(not word.sure for word in command.words)
    many = command.program in system.APT and not {"install", "update", "clean"} & set(command.args)
    if not command.sure or script or hidden or many or command.program in _BRINGS_ALL:
        return set(_PROGRAMS)
    if any(one.manager == "apt" and (not one.sure or _MAY_BRING.fullmatch(one.name)) for one in own):
        named = {name for name, package in _PROGRAMS.items() if any(one.name == package for one in own)}
        others = [one for one in own if one.manager == "apt" and one.name not in _PROGRAMS.values()]
        return set(_PROGRAMS) if any(not one.sure or _MAY_BRING.fullmatch(one.name) for one in others) else named
    return {link.name.rsplit("/", 1)[-1] for link in system.links(command)}


# ---------------------------------------------------------------- instructions in the wrong place

_INSTRUCTION = pattern(r"RUN|COPY|ENV|WORKDIR|CMD|ENTRYPOINT|EXPOSE|FROM|VOLUME|HEALTHCHECK|LABEL|USER|ADD|ARG")
_SPEAKING = frozenset({"echo", "printf", "cat", "sed", "awk", "grep"})


def instruction_in_run(dockerfile: Dockerfile) -> Iterator[Finding]:
    """No instruction stands in the lines of the RUN before it.  Source: Dockerfile reference, "Format"."""
    need_stages(dockerfile)
    lines = dockerfile.text.splitlines()
    asked = 0
    for index in dockerfile.reachable:
        for step in dockerfile.stages[index].steps:
            if step.name != "RUN" or step.exec_form or "<<" in step.value:
                continue
            asked += 1
            word = next(filter(None, (_swallowed(each, step, lines) for each in step.commands)), None)
            if word is not None:
                yield error(
                    f"the line before ends in a backslash, so that {word.text} is a word of the RUN in line "
                    f"{step.span.line}, which fails",
                    word.span,
                    {"the RUN goes on": step.span.place},
                    "take the backslash and the && at the end of the line before away",
                )
    skip_if(not asked, "nothing is run")


def _swallowed(command: Command, step: Step, lines: list[str]) -> Word | None:
    """The word of a command that begins a line as an instruction does."""
    if command.program in _SPEAKING or command.span.path != step.span.path:
        return None
    for word in command.words:
        at = word.span.line
        begins = step.span.line < at <= len(lines) and not word.quoted and _INSTRUCTION.fullmatch(word.text)
        if begins and re.match(rf"{word.text}\s+\S", lines[at - 1].strip()):
            return word
    return None


# ---------------------------------------------------------------- a protocol that is gone

_GIT = pattern(r"git://(?:www\.)?github\.com[/:]")


def git_protocol_gone(dockerfile: Dockerfile) -> Iterator[Finding]:
    """GitHub is asked by https or ssh, which it answers.  Source: GitHub, "Improving Git protocol security on GitHub":
    git:// has not been served since March 15, 2022."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        for step in dockerfile.steps_of(index):
            if step.name == "RUN" and re.search(r"(?i)insteadof", step.value):
                break
            for at, command in enumerate(step.commands if step.name == "RUN" else ()):
                asked += 1
                for span, address in _addresses(command, step):
                    if span in told or not command.sure or forgiven(step, at):
                        continue
                    told.add(span)
                    yield error(
                        f"GitHub no longer answers {address}, so that the build ends here",
                        span,
                        fix=f"write {address.replace('git+git:', 'git+https:').replace('git:', 'https:')}",
                    )
    skip_if(not asked, "nothing is run")


def _addresses(command: Command, step: Step) -> Iterator[tuple[Span, str]]:
    """What a command fetches by git://: a clone, and what pip installs, itself or from a list."""
    if command.program == "git" and "clone" in command.args:
        for word in command.words[1:]:
            if _GIT.match(word.text):
                yield word.span, word.text
    if command is step.commands[-1]:
        for one in step.installs:
            if (
                one.url
                and _GIT.match(one.url.removeprefix("git+"))
                and one.sure
                and not one.constraint
                and not one.marker
            ):
                yield one.span, one.url.partition("@")[0]
