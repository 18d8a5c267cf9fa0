"""What a Dockerfile leaves in its layers without need, and what it lets the shell misread."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from envkit.dockerfile import conda, options, pip, system, uv
from envkit.dockerfile.tree import mounts
from envkit.judging.checks._dockerfile import need_stages, reached, reached_commands
from envkit.judging.checks._outcomes import found, note, skip_if
from envkit.model import Edit, Finding, Severity, Span
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.subjects.dockerfile import Command, Dockerfile, Redirect, Step, Word

_CONDA = frozenset({"conda", "mamba", "micromamba"})
_LISTS = "/var/lib/apt/lists"
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh", "fish"})
_INTERPRETER = pattern(r"(?:python|pypy|perl|ruby|node|php)[0-9.]*\Z")
_FETCHES = pattern(r"(?:<\(|\$\(|`)\s*(?:sudo\s+)?(?:curl|wget)\s")


# ---------------------------------------------------------------- apt


def apt_lists_left(dockerfile: Dockerfile) -> Iterator[Finding]:
    """The RUN that installs with apt removes the package lists, which would stay in its layer."""
    need_stages(dockerfile)
    asked = 0
    for step in dockerfile.steps:
        if step.name != "RUN":
            continue
        first = next((command for command in step.commands if command.sure and _installs_apt(command)), None)
        if first is None:
            continue
        asked += 1
        if any(_below(_LISTS, folder) for folder in _mounted(step)) or _lists_removed(step):
            continue
        yield note(
            f"the package lists that {first.program} downloads stay in the layer of this RUN",
            first.span,
            {f"{first.program} install": first.span.place},
            f"end the RUN with `&& rm -rf {_LISTS}/*`",
        )
    skip_if(not asked, "nothing in the final image is installed with apt")


def _installs_apt(command: Command) -> bool:
    if command.program not in system.APT:
        return False
    verb = next(iter(system.apt_words(command)), "")
    return verb in ("install", "build-dep") and "--print-uris" not in command.args and "--dry-run" not in command.args


def _lists_removed(step: Step) -> bool:
    """Whether the lists are gone when the RUN ends: what removes them comes after the last command that gets them."""
    gone = False
    for command in step.commands:
        if command.program in system.APT:
            verbs = system.apt_words(command)
            if "update" in verbs:
                gone = False
            elif "distclean" in verbs or "dist-clean" in verbs:
                gone = True
        elif _removes(command, _LISTS):
            gone = True
    return gone


def _removes(command: Command, folder: str) -> bool:
    """Whether a command deletes a folder or all that lies in it."""
    if command.program == "find":
        paths = [word for word in command.args if word.startswith("/")]
        deletes = "-delete" in command.args or "rm" in command.args
        return deletes and "-name" not in command.args and any(_below(folder, path) for path in paths)
    if command.program != "rm":
        return False
    return any(_covers(_path(word.text, command), folder) for word in command.words[1:] if word.text[:1] != "-")


def _path(text: str, command: Command) -> str:
    home = command.env.get("HOME") or "/root"
    for written in ("${HOME}", "$HOME", "~"):
        if text.startswith(written):
            text = home + text[len(written) :]
    return posixpath.join(command.cwd or "/", text)


def _covers(pattern: str, folder: str) -> bool:
    """Whether a path of rm takes all of a folder: the folder, one above it, or a pattern for what lies in it."""
    pattern = pattern.rstrip("/")
    while pattern.endswith(("/*", "/.*", "/**", "/*.*")):
        pattern = pattern.rpartition("/")[0]
    if not any(sign in pattern for sign in "*?["):
        return _below(folder, pattern)
    wanted, there = pattern.split("/"), folder.split("/")
    return len(wanted) <= len(there) and all(map(fnmatchcase, there, wanted))


def _below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    folder = posixpath.normpath(folder) if folder else ""
    return bool(folder) and (path == folder or path.startswith(folder.rstrip("/") + "/"))


def _mounted(step: Step) -> tuple[str, ...]:
    """The folders of a RUN that a cache or a temporary file system is mounted on; they stay out of the layer."""
    folders = []
    for given in mounts(step.flags):
        if given.get("type") not in ("cache", "tmpfs"):
            continue
        target = re.sub(r"\$\{?(\w+)\}?", lambda name: step.env.get(name[1], name[0]), given["target"])
        folders.append(posixpath.join(step.workdir or "/", target.replace("~", "/root", 1)))
    return tuple(folders)


# ---------------------------------------------------------------- caches of Python's installers


@dataclass(frozen=True, slots=True)
class _Cached:
    """One install that fills a cache: ``folders`` are where that may lie, none where it keeps none."""

    command: Command
    tool: str
    folders: tuple[str, ...]
    fix: str
    edits: tuple[Edit, ...] = ()


def pip_cache_left(dockerfile: Dockerfile) -> Iterator[Finding]:
    """The RUN that installs with pip, uv or conda leaves no cache of theirs in its layer."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()  # a loop runs one command several times
    for step in dockerfile.steps:
        if step.name != "RUN":
            continue
        mounted = _mounted(step)
        cleaners = [(place, command) for place, command in enumerate(step.commands) if _may_empty(command)]
        for place, command in enumerate(step.commands):
            for cached in _caches(command, step) if command.sure else ():
                asked += 1
                later = [cleaner for at, cleaner in cleaners if at > place]
                if not _left(cached, mounted, later) or cached.command.span in told:
                    continue
                span = cached.command.span
                told.add(span)
                yield found(
                    f"{cached.tool} keeps what it downloads in {cached.folders[0]}, which stays in the layer",
                    span,
                    Severity.NOTE,
                    cached.fix,
                    {f"{cached.tool} without an option for its cache": span.place},
                    cached.edits,
                )
    skip_if(not asked, "nothing in the final image is installed with pip, uv or conda")


def _may_empty(command: Command) -> bool:
    return command.program in ("rm", "find") or "clean" in command.args or "purge" in command.args


def _left(cached: _Cached, mounted: tuple[str, ...], later: list[Command]) -> bool:
    """Whether the cache is still in the layer when the RUN ends."""
    if not cached.folders or any(_below(own, each) for own in cached.folders for each in mounted):
        return False
    return not any(_empties(command, cached) for command in later)


def _caches(command: Command, step: Step) -> Iterator[_Cached]:
    """The caches that a command fills."""
    for inner in _unwrapped(command):
        cached = _cached(inner, step)
        if cached is None:
            continue
        yield cached
        if cached.tool in _CONDA and any(
            each.manager == "pip" and each.target.startswith("conda:") and each.span.path != command.span.path
            for each in step.installs
        ):
            off = command.env.get("PIP_NO_CACHE_DIR", "").strip()
            fix = "set `ENV PIP_NO_CACHE_DIR=1`, or end the RUN with `&& rm -rf /root/.cache/pip`"
            yield _Cached(command, "pip", () if off else _home(command.env, "pip"), fix)


def _unwrapped(command: Command) -> tuple[Command, ...]:
    """The command, or what ``conda run`` starts."""
    if command.program not in _CONDA:
        return (command,)
    inside = conda.inner(command)
    return (command if inside is None else inside[1],)


def _cached(command: Command, step: Step) -> _Cached | None:
    """The cache that an install fills; None where the command installs nothing, no folders where it keeps none."""
    target, words = pip.started(command)
    if target:
        return _pip(command, words)
    if command.program == "uv" or pip.module_of(command)[0] == "uv":
        return _uv(command, command.words[1:] if command.program == "uv" else pip.module_of(command)[1])
    if command.program in _CONDA:
        return _conda(command, step)
    return None


def _home(env: Mapping[str, str], *below: str) -> tuple[str, ...]:
    caches = env.get("XDG_CACHE_HOME") or posixpath.join(env.get("HOME") or "/root", ".cache")
    return (posixpath.join(caches, *below),)


def _pip(command: Command, words: tuple[Word, ...]) -> _Cached | None:
    given = options.read(words, pip.GRAMMAR)
    names = given.names()
    if not given.rest or given.rest[0].text != "install" or names & {"--dry-run", "--help", "--version"}:
        return None
    tool = "pip"
    if "--no-cache-dir" in names or command.env.get("PIP_NO_CACHE_DIR", "").strip():
        # Any value that is not empty turns the cache off, "0" and "off" too (pip's source, --no-cache-dir).
        return _Cached(command, tool, (), "")
    if "--no-index" in names or _only_local(given, names):
        return _Cached(command, tool, (), "")
    chosen = given.last("--cache-dir")
    own = chosen.text if chosen else command.env.get("PIP_CACHE_DIR", "")
    folders = (own,) if own else _home(command.env, "pip")
    fix = f"write `pip install --no-cache-dir ...`, or mount the cache: `RUN --mount=type=cache,target={folders[0]}`"
    return _Cached(command, tool, folders, fix, _after(given.rest[0], " --no-cache-dir"))


def _only_local(given: options.ParsedOptions, names: frozenset[str]) -> bool:
    """Whether pip has nothing to download: a local path with neither dependencies nor tools to build with."""
    if not {"--no-deps", "--no-build-isolation"} <= names or "--requirement" in names:
        return False
    paths = [*given.rest[1:], *given.every("--editable")]
    return all(word.text.startswith((".", "/")) and "://" not in word.text for word in paths)


def _after(word: Word, text: str) -> tuple[Edit, ...]:
    """An edit that inserts text behind a word, none where the word stands in another way than it is meant."""
    span = word.span
    if not word.sure or word.raw != word.text or span.line != span.end_line:
        return ()
    if span.end_column - span.column != len(word.raw):
        return ()
    return (Edit(replace(span, column=span.end_column), text),)


def _uv(command: Command, words: tuple[Word, ...]) -> _Cached | None:
    outer = options.read(words, uv.GRAMMAR, inner=True)
    verbs = [word.text for word in outer.rest[:2]]
    if verbs[:1] not in (["sync"], ["add"]) and verbs not in (["pip", "install"], ["pip", "sync"], ["tool", "install"]):
        return None
    given = options.read(words, uv.GRAMMAR)
    names = given.names() | outer.names()
    if {"--no-cache", "--no-cache-dir"} & names or options.is_true(command.env.get("UV_NO_CACHE", "")):
        return _Cached(command, "uv", (), "")
    if names & {"--dry-run", "--help", "--no-index", "--offline"}:
        return _Cached(command, "uv", (), "")
    chosen = given.last("--cache-dir")
    own = chosen.text if chosen else command.env.get("UV_CACHE_DIR", "")
    folders = (own,) if own else _home(command.env, "uv")
    fix = f"add --no-cache, or mount the cache: `RUN --mount=type=cache,target={folders[0]}`"
    return _Cached(command, "uv", folders, fix)


def _conda(command: Command, step: Step) -> _Cached | None:
    """conda's packages; those of an environment file's pip section are pip's."""
    verbs = [word for word in command.args if not word.startswith("-")][:2]
    if verbs[:1] not in (["install"], ["create"], ["update"], ["upgrade"]) and verbs not in (
        ["env", "create"],
        ["env", "update"],
    ):
        return None
    if {"--dry-run", "--download-only", "--help"} & set(command.args):
        return None
    own = command.env.get("CONDA_PKGS_DIRS") or command.env.get("MAMBA_PKGS_DIRS") or ""
    fix = f"end the RUN with `&& {command.program} clean --all --yes`"
    folders = (own,) if own else ("/opt/conda/pkgs",)
    installs = [each for each in step.installs if each.manager == "conda" and each.prefix]
    roots = {each.prefix.partition("/envs/")[0] + "/pkgs" for each in installs} - {folders[0]}
    return _Cached(command, command.program, folders if own else (*sorted(roots), *folders), fix)


def _empties(command: Command, cached: _Cached) -> bool:
    """Whether a later command of the same RUN empties the cache."""
    if any(_removes(command, folder) for folder in cached.folders):
        return True
    if command.program == "rm" and cached.tool in _CONDA:
        return any(word.text.rstrip("/*").endswith("/pkgs") for word in command.words[1:])
    if cached.tool in _CONDA:
        return command.program in (*_CONDA, "$MAMBA_EXE") and "clean" in command.args and _cleans_packages(command)
    if cached.tool == "uv":
        return command.program == "uv" and command.args[:2] == ("cache", "clean")
    target, words = pip.started(command)
    rest = [word.text for word in words if not word.text.startswith("-")]
    return bool(target) and rest[:2] == ["cache", "purge"]


def _cleans_packages(command: Command) -> bool:
    """conda's --all, or both of --packages and --tarballs; one of them leaves the other's files, most of them here."""
    for word in command.args:
        if word in ("--all", "--packages", "--tarballs", "--force-pkgs-dirs"):
            return True
        if re.fullmatch(r"-[a-z]+", word) and set(word[1:]) & set("aptf"):
            return True
    return False


# ---------------------------------------------------------------- what the shell does with a line


def curl_pipe_sh(dockerfile: Dockerfile) -> Iterator[Finding]:
    """What is downloaded is not run unread."""
    need_stages(dockerfile)
    asked = 0
    for _, step in reached(dockerfile):
        if step.name != "RUN":
            continue
        fetched: Command | None = None
        for command in step.commands:
            asked += 1
            if command.after not in ("|", "|&"):
                fetched = None
            elif fetched is not None and command.sure and _runs_input(command):
                yield _piped(
                    f"what {fetched.program} downloads is run by {command.program} without a check", command, fetched
                )
                fetched = None
            if command.program in ("curl", "wget") and not _saves(command):
                fetched = command
            inside = next((word for word in command.words[1:] if _FETCHES.match(word.text)), None)
            if inside is not None and command.sure and _evaluates(command, inside):
                yield _piped(f"what {command.program} runs is downloaded and not checked", command, command)
    skip_if(not asked, "nothing is run")


def _saves(command: Command) -> bool:
    """Whether a download goes into a file and not into the pipe."""
    if any(redirect.op in (">", ">>") for redirect in command.redirects):
        return True
    args = command.args
    if command.program == "curl":
        return any(word in ("-O", "--remote-name") for word in args)
    return not any(re.fullmatch(r"-[a-zA-Z]*O-?|--output-document(?:=.*)?|-O-", word) for word in args)


def _runs_input(command: Command) -> bool:
    """Whether a shell or an interpreter takes its program from the pipe."""
    if command.program not in _SHELLS and not _INTERPRETER.match(command.program):
        return False
    rest = [word for word in command.args if word != "-"]
    if command.program in _SHELLS:
        if any(re.fullmatch(r"-[a-z]*c", word) for word in rest):
            return False
        return "-s" in rest or any(re.fullmatch(r"-[a-z]*s[a-z]*", word) for word in rest) or not _operands(rest)
    return not any(word in ("-c", "-m", "-e") for word in rest) and ("-" in command.args or not _operands(rest))


def _operands(words: list[str]) -> list[str]:
    found_words, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("-o", "-O", "--"):
            skip = word != "--"
        elif not word.startswith("-"):
            found_words.append(word)
    return found_words


def _evaluates(command: Command, word: Word) -> bool:
    """Whether the words that hold a download are run: the script of a shell, or what eval and source take."""
    if command.program in ("eval", "source", "."):
        return True
    if command.program not in _SHELLS and not _INTERPRETER.match(command.program):
        return False
    if word.text.startswith("<("):
        return True
    return any(re.fullmatch(r"-[a-z]*[ce]", each) for each in command.args)


def _piped(message: str, command: Command, fetched: Command) -> Finding:
    url = next((word.text for word in fetched.words if re.match(r"https?://", word.text)), "")
    return note(
        message,
        command.span,
        {"downloaded": url.partition("?")[0] or fetched.span.place},
        "download it to a file, check it against a known sha256 (`ADD --checksum=sha256:...`), and run it then",
    )


def unquoted_specifier(dockerfile: Dockerfile) -> Iterator[Finding]:
    """The shell hands version specifiers to pip, and does not take "<" and ">" for redirections."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()  # a loop runs one command several times
    for _, step, command in reached_commands(dockerfile):
        if not _takes_specifiers(command):
            continue
        asked += 1
        if command.sure and not step.exec_form and command.span not in told:
            told.add(command.span)
            yield from _misread(dockerfile, command)
    skip_if(not asked, "no command takes version specifiers")


def _takes_specifiers(command: Command) -> bool:
    words = [word.text for word in command.words[:8]]
    for inner in _unwrapped(command):
        target, rest = pip.started(inner)
        if target and any(word.text in ("install", "download", "wheel") for word in rest[:4]):
            return True
    if command.program in ("uv", *_CONDA):
        return bool({"install", "add", "create"} & set(words))
    return command.program in ("poetry", "pdm", "pixi") and "add" in words[:3]


def _misread(dockerfile: Dockerfile, command: Command) -> Iterator[Finding]:
    """One finding for each requirement that a redirection cuts."""
    redirects = [each for each in command.redirects if each.op in (">", "<", ">>")]
    at = 0
    while at < len(redirects):
        first = redirects[at]
        word = next((each for each in command.words if _touches(each.span, first)), None)
        at += 1
        if word is None:
            if first.op == ">" and first.target.text.startswith("="):
                yield _cut(command, first.target.span, f">{first.target.raw}", first, ())
            continue
        end = first.target.span
        written = word.raw + first.op + first.target.raw
        while at < len(redirects) and _touches(end, redirects[at]):
            end = redirects[at].target.span
            written += redirects[at].op + redirects[at].target.raw
            at += 1
        if not re.match(r"=|[0-9]", first.target.text):
            continue
        span = replace(word.span, end_line=end.end_line, end_column=end.end_column)
        yield _cut(command, span, written, first, _quoted(dockerfile, span, written))


def _touches(span: Span, redirect: Redirect) -> bool:
    """Whether a redirection begins where a word ends, with no blank between."""
    begin = redirect.target.span
    return span.end_line == begin.line and span.end_column == begin.column - len(redirect.op)


def _quoted(dockerfile: Dockerfile, span: Span, written: str) -> tuple[Edit, ...]:
    """The requirement in quotes, where the file has it on one line exactly as it was read."""
    lines = dockerfile.text.splitlines()
    if span.path != dockerfile.path or span.line != span.end_line or span.line > len(lines):
        return ()
    if lines[span.line - 1][span.column - 1 : span.end_column - 1] != written or re.search(r"[\"'\\`$]", written):
        return ()
    return (Edit(span, f'"{written}"'),)


def _cut(command: Command, span: Span, written: str, redirect: Redirect, edits: tuple[Edit, ...]) -> Finding:
    reads = redirect.op == "<"
    does = (
        f"reads from a file {redirect.target.text}, which is not there"
        if reads
        else f"writes into a file {redirect.target.text}"
    )
    return found(
        f"the shell reads part of `{written}` as a redirection and {does}, so {command.program} never sees the version",
        span,
        Severity.ERROR if reads else Severity.WARNING,
        f'quote it: "{written}"',
        {written: span.place},
        edits,
    )


# ---------------------------------------------------------------- COPY

_HOME = pattern(r"(?:\A|/)(~(?:/.*)?)\Z")
_OF_SHELLS = pattern(r"(?:\|\||&&|\||;|>>?|[12]>(?:&1|.*)|&>.*|<)\Z")


def copy_has_no_shell(dockerfile: Dockerfile) -> Iterator[Finding]:
    """COPY and ADD are given names of files alone: no shell reads their words.  Source: Dockerfile reference, COPY."""
    need_stages(dockerfile)
    asked = 0
    for stage in dockerfile.stages:  # BuildKit refuses a stage that nothing uses as well
        for step in stage.steps:
            if step.copy is None:
                continue
            home = next((word for word in (*step.copy.sources, step.copy.target) if _HOME.search(word)), "")
            asked += not step.exec_form or bool(home)
            if home:
                missing = home in step.copy.sources
                yield found(
                    f"{step.name} takes the ~ of `{home[home.index('~') :]}` for the name of a folder, because no "
                    "shell reads its words"
                    + (", so that the build ends here" if missing else ": the files are not in the home folder"),
                    step.span,
                    Severity.ERROR if missing else Severity.WARNING,
                    "write the folder out, such as /root",
                )
            if step.exec_form:
                continue
            odd = next((word for word in step.copy.sources if _OF_SHELLS.match(word)), "")
            if odd:
                yield found(
                    f"{step.name} takes `{odd}` for the name of a file, because no shell reads its words, so that the "
                    "build ends here",
                    step.span,
                    Severity.ERROR,
                    "take it away; a file that may be missing is copied with a pattern, as in `COPY stati[c] /app/`",
                )
    skip_if(not asked, "nothing is copied by COPY or ADD")
