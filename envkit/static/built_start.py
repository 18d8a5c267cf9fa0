"""The start that a Dockerfile describes, as `envkit check` judges it without being asked: what is certain from the
files of the project alone, whichever of its folders is the build context and whatever is mounted later.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence

from envkit.dockerfile import copied
from envkit.dockerfile.context import Context
from envkit.dockerfile.files import FileText, Project
from envkit.dockerfile.starting import PYTHON
from envkit.dockerfile.tree import Source, Tree
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.static.started import elsewhere, of_dockerfile, surely_absent
from envkit.subjects.dockerfile import Dockerfile, Step
from envkit.subjects.start import Absent, JobStart, StartScript
from envkit.subjects.workload import FileValue

# The checks of a start whose findings a Dockerfile and its project prove.
CHECKS = frozenset(
    ("start-exec-form-broken", "start-file-missing", "start-needs-a-shell", "start-script-not-executable")
)


@dataclass(slots=True)
class _Named:
    """A build context that shows the names which its project has in it."""

    context: Source
    project: Project

    def read(self, path: str) -> FileText | str:
        """As the context."""
        return self.context.read(path)

    def names(self, path: str) -> tuple[str, ...]:
        """What the project has below a folder of the context and no .dockerignore keeps out."""
        folder = posixpath.normpath(posixpath.join(self.project.context, path)) if path else self.project.context
        folder = "" if folder == "." else folder
        shown = (each for each in self.project.paths if each and posixpath.dirname(each) == folder)
        below = posixpath.normpath(path or ".")
        return tuple(
            posixpath.basename(each)
            for each in shown
            if not self.project.kept_out(posixpath.normpath(posixpath.join(below, posixpath.basename(each))))
        )

    def clone_of(self, url: str) -> Source | None:
        """As the context."""
        return self.context.clone_of(url)


def of_built(dockerfile: Dockerfile, tree: Tree, context: Source | None) -> JobStart:
    """The start of a Dockerfile with a stage, with the files that are certainly not there and the scripts whose mode
    is certain."""
    project = context.project() if isinstance(context, copied.Within) else None
    if context is None or project is None:
        start = replace(of_dockerfile(dockerfile, tree, context), absent=())
    else:
        named = Tree(_Named(context, project), tree.events, tree.clones, tree.budget, tree.depth)
        start = of_dockerfile(dockerfile, named, context)
        absent = (*start.absent, *_module(start, named))
        start = replace(start, absent=tuple(_certain(absent, dockerfile, project)))
    if not _as_it_is(start, dockerfile):
        start = replace(start, job=())
    scripts = tuple(replace(one, executable=_mode(one, context, project)) for one in start.scripts)
    return replace(start, scripts=scripts)


def _mode(script: StartScript, context: Source | None, project: Project | None) -> bool | None:
    """Whether a script may be executed: what a step says, else the mode that git keeps; None where neither does."""
    if script.executable is not False or script.said or project is None or not isinstance(context, Context):
        return script.executable
    path = os.path.relpath(script.origin, context.root)
    return None if path.startswith("..") else project.executable(posixpath.join(project.context, path))


# Programs that take their words as they are, and replace no variable in them.
_LITERAL = pattern(
    r"python[\d.]*|uvicorn|gunicorn|hypercorn|granian|streamlit|flask|fastapi|celery|torchrun|accelerate|deepspeed|vllm|jupyter\S*|"
    r"mlflow|ray|tensorboard|chainlit|text-generation-launcher|trtllm-serve|tritonserver|bash|sh"
)


def _as_it_is(start: JobStart, dockerfile: Dockerfile) -> bool:
    """Whether the job's words reach a program that takes them as they are: no entry point of a base that nobody knows
    stands before it, and the program is known to replace nothing in them."""
    if not start.job or (start.entrypoint is None and dockerfile.base.family in ("unknown", "other")):
        return False
    name = posixpath.basename(start.job[0].value)
    return bool(_LITERAL.fullmatch(name)) or "$" in name or " " in name or start.job[0].value in _OF_SHELLS


_OF_SHELLS = frozenset(("source", "cd", "export", "set", "ulimit", "umask", "unset"))
# What puts modules where Python looks for them, beside the folder that it starts in.
_INSTALLS_OWN = pattern(
    r"PYTHONPATH|\.pth\b|setup\.py|\b(?:poetry|pdm|hatch|flit|rye|pixi)\b|\buv\s+sync\b"
    r"|\b(?:pip3?|uv)\b[^&|;\n]*\binstall\b[^&|;\n]*(?:\s-e|\s--editable|\s--target|\s-t"
    r"|(?<!-r)(?<!-c)(?<!--requirement)\s['\"]?(?:\.{1,2}(?=[/\[\s'\"&;]|\Z)|/\w))"
)
_FOLDER_OPTIONS = ("--app-dir", "--chdir", "--pythonpath", "-c", "--config", "--factory-dir")


def _module(start: JobStart, tree: Tree) -> Iterator[Absent]:
    """The module of the project that a Python, uvicorn or gunicorn is to import and that is not where it looks."""
    dockerfile = start.dockerfile
    found = _imported(start.job)
    if found is None or dockerfile is None or not start.folder or not start.job[0].sure:
        return
    word, dotted = found
    made = (
        step for index in dockerfile.reachable for step in dockerfile.stages[index].steps
    )  # it may be copied from one
    if any(map(_sets_path, made)) or "PYTHONPATH" in dockerfile.target.env:
        return
    if any("PYTHONPATH" in script.text or "cd " in script.text for script in start.scripts):
        return
    inner = dotted.replace(".", "/")
    places = [f"{start.folder.rstrip('/')}/{inner}{end}" for end in ("", ".py", ".so")]
    if all(surely_absent(place, tree, dockerfile) for place in places):
        yield Absent(word, places[1], elsewhere(posixpath.basename(places[1]), places[1], tree), module=dotted)


def _sets_path(step: Step) -> bool:
    return step.name == "RUN" and _INSTALLS_OWN.search(step.value) is not None


def _imported(job: Sequence[FileValue]) -> tuple[FileValue, str] | None:
    """The module that a job imports by its name, with the word that names it."""
    words = list(job)
    if words and PYTHON.fullmatch(posixpath.basename(words[0].value)):
        at = next((at for at, word in enumerate(words) if at and not re.fullmatch(r"-[uBOIsEb]+", word.value)), 0)
        if not at or words[at].value != "-m" or len(words) < at + 2:
            return None
        words = words[at + 1 :]
        if words[0].value not in ("uvicorn", "gunicorn", "hypercorn"):
            plain = words[0].sure and re.fullmatch(r"[A-Za-z_]\w*(?:\.\w+)*", words[0].value)
            return (words[0], words[0].value) if plain else None
    if not words or posixpath.basename(words[0].value) not in ("uvicorn", "gunicorn", "hypercorn"):
        return None
    if any(word.value.startswith(_FOLDER_OPTIONS) or not word.sure for word in words):
        return None
    for word in words[1:]:
        app = re.fullmatch(r"([A-Za-z_]\w*(?:\.\w+)*):\w+(?:\(\))?", word.value)
        if app:
            return word, app[1]
    return None


def _certain(absent: Sequence[Absent], dockerfile: Dockerfile, project: Project) -> Iterator[Absent]:
    for one in absent:
        if one.module and not _own_module(one.module, project):
            continue
        placed = [copy for copy in _copies(dockerfile) if _below(one.path, copy[1]) is not None]
        if not _copies_code(dockerfile, project) or _mounted(one.path, project):
            continue
        names = [posixpath.normpath(posixpath.join(source, str(_below(one.path, target)))) for source, target in placed]
        if any(copied.expected(name, posixpath.join(project.context, name), project) for name in names):
            continue
        if any(_meant_otherwise(name, dockerfile, project) for name in names):
            continue
        out = next((name for name in names if project.has(posixpath.join(project.context, name))), "")
        yield replace(one, kept_out=out) if out else one


def _own_module(dotted: str, project: Project) -> bool:
    """Whether the project has a module of that name, so that no installed package is meant."""
    tails = tuple(f"/{dotted.replace('.', '/')}{end}" for end in (".py", "/__init__.py", "/__main__.py"))
    return any(f"/{path}".endswith(tails) for path in project.paths)


def _copies(dockerfile: Dockerfile) -> Iterator[tuple[str, str]]:
    """The folders and files that the image takes out of the context, with where they go."""
    for step in dockerfile.steps:
        if step.copy is not None and not step.copy.foreign:
            for source in step.copy.sources:
                inside = posixpath.normpath("/" + source).lstrip("/") or "."
                yield inside, posixpath.normpath(posixpath.join(step.workdir or "/", step.copy.target))


def _below(path: str, target: str) -> str | None:
    if path == target:
        return "."
    return posixpath.relpath(path, target) if path.startswith(target.rstrip("/") + "/") else None


def _copies_code(dockerfile: Dockerfile, project: Project) -> bool:
    """Whether the image holds the project's code: one that holds its lists alone gets the code by a mount."""
    for source, _ in _copies(dockerfile):
        whole = posixpath.normpath(posixpath.join(project.context, source))
        folder = any(path.startswith(f"{whole}/") for path in project.paths) or whole == "."
        if folder or source.endswith((".py", ".sh")) or re.search(r"[*?\[]", source):
            return True
    return False


def _mounted(path: str, project: Project) -> bool:
    """Whether a file of the project speaks of a mount over the folder: `-v .:/app`, a volume, a mountPath."""
    places = []
    while path not in ("/", ""):
        path = posixpath.dirname(path)
        places += [path] if path != "/" else []
    if not places:
        return False
    shapes = "|".join(re.escape(place) for place in places)
    over = re.compile(
        rf"(?:[\w}}\"'./)]:|mountPath:\s*[\"']?|target[=:]\s*[\"']?|dst=|destination=)(?:{shapes})(?![\w/.-])"
    )
    return any(over.search(text) for text in copied.sayings(project))


def _meant_otherwise(name: str, dockerfile: Dockerfile, project: Project) -> bool:
    """Whether another folder of the project may be the context and has the file: one that has all that is copied by
    name, and that is not below the Dockerfile's own where that is the context itself."""
    tail = f"/{name}"
    folders = {path.removesuffix(name).rstrip("/") for path in project.paths if f"/{path}".endswith(tail)}
    sources = [source for source, _ in _copies(dockerfile) if source != "." and not re.search(r"[*?\[$]", source)]
    for folder in folders - {project.context}:
        if not all(project.has(posixpath.join(folder, source)) for source in sources):
            continue
        if sources or project.own != project.context or not folder.startswith(project.own):
            return True
        short = posixpath.basename(folder)
        if any(re.search(rf"(?:context|build)\b.*\b{re.escape(short)}\b", text) for text in copied.sayings(project)):
            return True
    return False
