"""What comes out of git repositories, and of which state of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envkit.dockerfile.files import absolute
from envkit.dockerfile.tree import cloned
from envkit.facts import Facts
from envkit.judging.checks._compiles import compiles
from envkit.judging.checks._dockerfile import inside, need_stages, reached
from envkit.judging.checks._outcomes import found, skip_if
from envkit.model import Finding, Severity, Span
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.subjects.dockerfile import Command, Dockerfile, Step

# Names of branches that every push moves, by what people call them; any other name may be a tag, which stays.
_MOVES = pattern(r"(?i)(?:refs/heads/|origin/)?(?:main|master|trunk|head|develop|devel|dev|nightly|latest|stable)")
_ADDRESS = pattern(r"(?:https?|ssh|git)://|[\w.-]+@[\w.-]+:")
_CREDENTIALS = pattern(r"//[^/@]*@")
_REFERENCE = pattern(r"git\+\w+://(?:[^/@]*@)?([^@#]*)(?:@([^#]*))?(?:#.*)?")
# What puts a clone at another state than the one it was made with, or says which one is meant.
_SETTING = frozenset({"checkout", "reset", "switch", "worktree", "fetch", "pull", "revert", "bisect", "rev-parse"})
_MANY = 3  # repositories that one sentence names


@dataclass(frozen=True, slots=True)
class _Taken:
    """One repository that a step takes at whichever state it has: its name, and where the file says so."""

    name: str
    span: Span
    compiled: bool
    pip: bool = False


def unpinned_clone(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """What comes out of a git repository is of one commit or tag.  Source: git-clone(1), "the remote's currently active
    branch"; pip, "VCS Support"."""
    need_stages(dockerfile)
    told: set[Span] = set()  # stages that are FROM one another share their steps
    made: dict[int, list[Span]] = {}  # by line, where the build surely compiles for CUDA or torch
    steps = [step for _, step in reached(dockerfile) if step.name == "RUN"]
    comes = any(cloned(each) for step in steps for each in step.commands)
    comes = comes or any(one.url[:4] == "git+" for step in steps for one in step.installs)
    skip_if(not comes, "nothing comes out of a git repository")
    for one in compiles(dockerfile, facts):
        place = one.at or one.span
        if one.sure and not one.asks:
            made.setdefault(place.line, []).append(place)
    for index in dockerfile.reachable:
        runs = [step for step in dockerfile.steps_of(index) if step.name == "RUN"]
        later, begin = _Later(runs, made), 0
        for step in runs:
            every = (*_clones(step, begin, later), *_of_pip(step, facts))
            taken = [each for each in every if each.span not in told]
            begin += len(step.commands)
            told |= {each.span for each in taken}
            if taken:
                yield _finding(taken)


def _finding(taken: Sequence[_Taken]) -> Finding:
    """One finding for all that a RUN takes: a warning where some of it is compiled for the image's torch or CUDA."""
    compiled = next((each for each in taken if each.compiled), None)
    first = compiled or taken[0]
    names = list(dict.fromkeys(each.name for each in (first, *taken)))
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    what = ", ".join(names[:_MANY]) + more
    verb = "comes" if len(names) == 1 else "come"
    so = (
        f", and the next one of {first.name} may not compile with this torch or CUDA"
        if compiled
        else ", so that each build may get other code"
    )
    return found(
        f"{what} {verb} from a branch, at the commit of the day of the build{so}",
        first.span,
        Severity.WARNING if compiled else Severity.NOTE,
        "name the commit that was tested, `git+https://...@COMMIT`"
        if first.pip
        else "take the commit that was tested, `git checkout COMMIT` in the clone, or a tag, `git clone --branch TAG`",
        {each.name: each.span.place for each in taken[:_MANY]},
    )


# ---------------------------------------------------------------- clones


class _Later:
    """What the commands of a stage do in folders: for each, and for those above it, the number of the last command that
    puts a clone there at a certain state, and of the last one that compiles there."""

    def __init__(self, runs: Sequence[Step], made: Mapping[int, Sequence[Span]]) -> None:
        self._settled: dict[str, int] = {}
        self._compiled: dict[str, int] = {}
        self._anywhere = -1  # the last that may settle any of them
        number = -1
        for command in (each for step in runs for each in step.commands):
            number += 1
            place = _settles(command)
            if place:
                _note(self._settled, place, number)
            elif place is not None:
                self._anywhere = number
            lines = range(command.span.line, (command.span.end_line or command.span.line) + 1) if made else ()
            if any(inside(command.span, each) for line in lines for each in made.get(line, ())):
                for folder in (command.cwd, *(absolute(arg, command.cwd) for arg in command.args if arg[:1] != "-")):
                    _note(self._compiled, folder, number)

    def settles(self, folder: str, after: int) -> bool:
        """Whether a command after the number ``after`` may put the clone in a folder at a certain state."""
        known = bool(folder) and "$" not in folder
        return (
            max(self._anywhere, self._settled.get(folder, -1) if known else max(self._settled.values(), default=-1))
            > after
        )

    def compiles(self, folder: str, after: int) -> bool:
        """Whether a command after the number ``after`` surely compiles for CUDA or torch what lies in a folder."""
        return self._compiled.get(folder, -1) > after


def _note(found: dict[str, int], place: str, number: int) -> None:
    """Notes a number for a folder and those above it."""
    parts = place.split("/")[:_DEEPEST]
    for count in range(2, len(parts) + 1):
        found["/".join(parts[:count])] = number


_DEEPEST = 32  # folders of a path that are told apart


def _clones(step: Step, begin: int, later: _Later) -> Iterator[_Taken]:
    """What the step clones at no certain state; its first command has the number ``begin``."""
    for number, command in enumerate(step.commands, begin):
        clone = cloned(command) if command.sure else None
        if clone is None or not _ADDRESS.match(clone.url) or _options(command):
            continue
        place = _CREDENTIALS.sub("//", clone.url)
        if "$" in place or "$" in clone.ref or (clone.ref and not _MOVES.fullmatch(clone.ref)):
            continue
        folder = clone.folder if command.cwd or clone.folder.startswith("/") else ""
        if later.settles(folder, number):
            continue
        word = next((word for word in command.words if word.text == clone.url), command.words[0])
        name = place.rstrip("/").removesuffix(".git").rsplit("/", 1)[-1].rsplit(":", 1)[-1]
        yield _Taken(name, word.span, later.compiles(folder, number))


def _options(command: Command) -> bool:
    """Whether a clone names its state in another way, or makes no files of it."""
    return any(word.text.startswith(("--revision", "--no-checkout", "--bare", "--mirror")) for word in command.words)


def _settles(command: Command) -> str | None:
    """The folder in which a command may put a clone at a certain state, "" where that is not known; None for no such
    command."""
    if command.program != "git":
        other = any("git checkout" in arg or "git reset" in arg for arg in command.args)
        return "" if other else None
    place, words, rest = command.cwd, list(command.args), list[str]()
    while words and not rest:
        word = words.pop(0)
        if word == "-C" and words:
            place = absolute(words.pop(0), place)
        elif word == "-c" and words:
            words.pop(0)
        elif word.startswith(("--git-dir", "--work-tree")):
            place = ""
        else:
            rest = [word, *words]
    if not rest or rest[0] not in _SETTING:
        return None
    named = [word for word in rest[1:] if not word.startswith("-") and word not in ("origin", "upstream")]
    moves = all(_MOVES.fullmatch(each) for each in named)
    if moves and (named or rest[0] in ("fetch", "pull", "rev-parse", "reset")):
        return None
    return "" if "$" in place else place


# ---------------------------------------------------------------- pip


def _of_pip(step: Step, facts: Facts) -> Iterator[_Taken]:
    """What pip and uv take from a repository at no certain state."""
    for one in step.installs:
        match = _REFERENCE.fullmatch(one.url) if one.manager in ("pip", "uv") else None
        if match is None or not one.sure or one.constraint or one.locked or "$" in one.url or one.marker:
            continue
        if match[2] and not _MOVES.fullmatch(match[2]):
            continue
        name = match[1].rstrip("/").removesuffix(".git").rsplit("/", 1)[-1]
        yield _Taken(name, one.span, _against_torch(one.name or name.lower().replace("_", "-"), facts), pip=True)


def _against_torch(name: str, facts: Facts) -> bool:
    """Whether a package is compiled against the torch that is there."""
    build = facts.package_builds.get(name)
    return (build is not None and build.torch) or any(row.name == name and row.lacks == "torch" for row in facts.sdists)
