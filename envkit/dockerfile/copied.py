"""What a build takes out of its context, held against the project that the context belongs to.

The context may be any folder of the project, for a Dockerfile does not say which: a name counts as lacking only if the
folder that has most of what the file copies has it not, and no folder has all.  What the project says that somebody or
something makes before the build is not lacking: git ignores it, a submodule brings it, its name is that of a product, a
template of it lies there, or a script, a workflow or a page names it.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from envkit.dockerfile.files import Project, above
from envkit.dockerfile.tree import mounts
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Dockerfile, Lacking, Step


@runtime_checkable
class Within(Protocol):
    """A build context that knows the project it belongs to."""

    def has(self, name: str) -> bool:
        """Whether a file or folder of that name surely is in the context's folder."""

    def keeps_out(self, name: str) -> bool:
        """Whether the .dockerignore keeps it out of the context."""

    def project(self) -> Project | None:
        """The project, None where it is not known."""


_SIGNS = re.compile(r"[*?\[]")


def lacking(dockerfile: Dockerfile, context: Within) -> tuple[Lacking, ...] | None:
    """What the default build copies and the project lacks, in the order of the file; None where no project is known."""
    taken = list(_taken(dockerfile))
    if all(context.has(name) and not context.keeps_out(name) for name, _, _ in taken):
        return ()
    project = context.project()
    if project is None:
        return None
    held = _held([name for name, _, _ in taken], project)
    most = max(held.values(), default=0)
    if most == 0 and project.own:
        return ()  # the file may be written for another project
    best = min(folder for folder in held if held[folder] == most)
    # The folder that was chosen, those above it, and the one that has most: one that lacks nothing may be meant.
    answers = {place: _in(place, taken, project) for place in (project.context, *above(project.context), best)}
    chosen = project.context if held[project.context] == most else best
    return answers[chosen] if all(answers.values()) else ()


def _in(place: str, taken: list[tuple[str, str, Step]], project: Project) -> tuple[Lacking, ...]:
    """What is lacking if the context is the folder ``place``."""
    found: list[Lacking] = []
    for name, source, step in taken:
        path = posixpath.join(place, name)
        if project.has(path):
            if place == project.context and project.kept_out(name):
                found.append(Lacking(source, step.span, kept_out=True))
        elif not expected(name, path, project):
            near = _near(name, project)
            if not (near and place):  # something may put it into a context below the root
                found.append(Lacking(source, step.span, near))
    return tuple(found)


def _taken(dockerfile: Dockerfile) -> Iterator[tuple[str, str, Step]]:
    """What COPY, ADD and bind mounts of the default build take out of the context: the name that has to be there, as
    written, and the step.  Of a pattern that is the folder before its first sign: no match is none too few to BuildKit.
    """
    for index in dockerfile.reachable:
        for step in dockerfile.stages[index].steps:
            sources: list[str] = []
            if step.copy is not None and not step.copy.foreign:
                sources = list(step.copy.sources)
            elif step.name == "RUN":
                bound = [given for given in mounts(step.flags) if given.get("type", "bind") == "bind"]
                sources = [given.get("source") or given.get("src") or "." for given in bound if "from" not in given]
            for source in sources:
                if "$" in source or re.match(r"[a-z+]+://|git@|<<", source) or "\\" in source:
                    continue
                # Docker takes a source as if the context were the root: ".." does not lead out of it.
                name = posixpath.normpath("/" + source).lstrip("/")
                sign = _SIGNS.search(name)
                if sign is not None:
                    name = posixpath.dirname(name[: sign.start()]) if step.copy is not None else ""
                if name and name.split("/")[0] != ".git":
                    yield name, source, step


def _held(names: list[str], project: Project) -> Counter[str]:
    """How many of the names each folder of the project has that has any; the context's own is among them."""
    count: Counter[str] = Counter()
    for name in names:
        tail = f"/{name}"
        count.update({path.removesuffix(name).rstrip("/") for path in project.paths if f"/{path}".endswith(tail)})
    count[project.context] = sum(project.has(posixpath.join(project.context, name)) for name in names)
    return count


# What tools make, and what nobody keeps in a repository: products, packed files, weights, credentials.
_PRODUCT = pattern(
    r"(?i)(?:^|/)(?:\.?dist|build|builds|bin|out|output|outputs|target|release|artifacts?|node_modules|wheels?|wheelhouse|"
    r"\.next|\.venv|venv|vendor|bazel-\w+|publish|certs?|secrets?|\.ssh|\.aws|\.netrc|\.env[^/]*|\.npmrc|id_rsa|id_ed25519|[^/]*ask-?pass[^/]*)"
    r"(?:/|\Z)|\.(?:whl|jar|war|so(?:\.\d+)*|o|a|deb|rpm|run|exe|tar|t?gz|tgz|bz2|xz|zip|7z|egg|apk|ko|min\.js|pem|key|crt|cer|"
    r"p12|pub|pt|pth|onnx|engine|plan|trt|safetensors|ckpt|gguf|bin|pb|tflite|h5|pkl|npz|npy|weights|lic|license)\Z"
)
_TEMPLATE = pattern(r"(?i)[._-]?(?:example|sample|template|tmpl|default|dist|in|tpl)s?\b[._-]?")
# Where a project says what is done before a build.
_SAYS = pattern(
    r"(?i)(?:^|/)(?:(?:gnu)?makefile|justfile|taskfile[^/]*|jenkinsfile[^/]*|noxfile\.py|tasks\.py|fabfile\.py|package\.json|"
    r"[^/]+\.(?:mk|sh|bash|zsh|bat|cmd|ps1|md|rst|adoc|ya?ml|toml|bzl|bazel|cmake)|readme[^/]*|\.?gitlab-ci[^/]*|build|workspace|"
    r"(?:build|download|fetch|get|setup|prepare|export|convert|make|install|deploy|release)[^/]*\.py)\Z"
)
_MAKES = pattern(
    r"(?i)\b(?:cp|copy|copie[sd]|copying|mv|move[sd]?|ln|rsync|scp|sftp|wget|curl|aria2c|clone[sd]?|submodules?|mkdir|touch|tar|"
    r"unzip|untar|gdown|download\w*|export\w*|generat\w+|convert\w*|creat\w+|put|plac\w+|add|build\w*|built|mak\w+|sav\w+|"
    r"train\w*|prepar\w+|extract\w*|obtain\w*|get|renam\w+|compil\w+|freeze|tee|output|install\w*|(?:sym)?link\w*|fetch\w*|"
    r"pull|sync|upload\w*|provid\w+|suppl\w+|your|own|writ\w+|checkout|artifact\w*|cat|echo|envsubst|sed|jinja\w*|render\w*)"
    r"\b|>"
)
_MOST_READ = 400  # files of one project, and as many characters of each as follow
_MOST_TEXT = 200_000
_SOURCES = pattern(r"\.(?:py|ipynb|sh|c|cc|cpp|cu|h|hpp|go|rs|js|ts|java)\Z")


def expected(name: str, path: str, project: Project) -> bool:
    """Whether the project lets expect that something lies at ``path`` when the build begins."""
    if _PRODUCT.search(name) or project.ignored(path) or any(project.ignored(each) for each in above(path) if each):
        return True
    last = posixpath.basename(name)
    folder = posixpath.dirname(path)
    bare = _TEMPLATE.sub("", last)
    for each in project.paths:
        if posixpath.dirname(each) == folder and each != path:
            twin = posixpath.basename(each)
            if _TEMPLATE.search(twin) and _bare(_TEMPLATE.sub("", twin)) == _bare(bare):
                return True
    for each in _modules(project):
        if path == each or path.startswith(f"{each}/"):
            return True
    return _said(name, project) or _folder_said(name, path, project)


def sayings(project: Project) -> Iterator[str]:
    """The texts of the files that may say how a project is built and run, the nearest to its root first."""
    texts = sorted((path for path in project.paths if _SAYS.search(path)), key=lambda path: (path.count("/"), path))
    for path in texts[:_MOST_READ]:
        yield project.text(path)[:_MOST_TEXT]


def _bare(name: str) -> str:
    return re.sub(r"[._-]", "", name).lower()


def _modules(project: Project) -> Iterator[str]:
    for path in project.paths:
        if posixpath.basename(path) == ".gitmodules":
            for found in re.finditer(r"(?m)^\s*path\s*=\s*(\S+)", project.text(path)):
                yield posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1]))


def _said(name: str, project: Project) -> bool:
    """Whether a line of a script, a workflow or a page names it and speaks of making, or names what is nowhere else."""
    last, known = posixpath.basename(name), bool(_near(name, project)) or bool(_SOURCES.search(name))
    one = rf"(?<![\w.-]){re.escape(last)}(?![\w-])"
    # A folder's name is a plain word as well: it counts as a path, or quoted.
    token = re.compile(one if "." in last[1:] else rf"{one}(?=/)|[/`\"'= ]{re.escape(last)}(?=[/`\"'\s]|\Z)")
    for text in sayings(project):
        for line in text.splitlines():
            named = last in line and token.search(line)
            if named and (("." in last[1:] and not known) or _MAKES.search(line.replace(last, ""))):
                return True
    return False


def _folder_said(name: str, path: str, project: Project) -> bool:
    """Whether the whole folder that holds it is one that a user puts there: the project has none of that name, and a
    page draws it in a tree of the project's files, or a script asks whether it is there."""
    top = name.partition("/")[0]
    place = path.removesuffix(name)
    if top in ("", name) or project.has(f"{place}{top}") or _near(top, project):
        return False
    drawn = re.compile(rf"(?:[├└│]|[|`+]-{{1,2}})[─\s-]*{re.escape(top)}[/\\\\]?(?=\s|\Z)")
    asked = re.compile(rf"(?:-[def]|\b(?:exists?|is_?dir|Test-Path))\b.*(?<![\w.-]){re.escape(top)}(?![\w-])")
    texts = (project.text(each)[:_MOST_TEXT] for each in project.paths if _SAYS.search(each))
    return any(top in text and (drawn.search(text) or asked.search(text)) for text in texts)


def _near(name: str, project: Project) -> str:
    """Where the project has a file or folder of that name, in whatever case; "" where nowhere."""
    last = posixpath.basename(name).lower()
    found = [path for path in project.paths if posixpath.basename(path).lower() == last]
    return min(found, key=lambda path: (not path.lower().endswith(name.lower()), path.count("/"), path), default="")
