"""Where an image that a Dockerfile is FROM comes from: what the other files of its project say of it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envkit.dockerfile.copied import Within
from envkit.dockerfile.files import FileText
from envkit.dockerfile.tree import Source
from envkit.patterns import pattern

_COMPOSE = pattern(r"(?i)[^/]*compose[^/]*\.ya?ml")
_SCRIPT = pattern(r"(?i)(?:(?:gnu)?makefile|justfile|.*\.(?:mk|sh|bash|md|hcl))")
_FOLDERS = ("", "docker", "dockerfiles", "scripts", "bin", "build", "ci")
# Where a build gives the word behind FROM another meaning, and what that stands for.  Source: Docker, "docker buildx
# build --build-context", "Bake file reference: target.contexts", "Compose Build Specification: additional_contexts";
# the input build-contexts of docker/build-push-action.
_LENDS = pattern(
    r"(?i)(?:^|/)(?:[^/]*compose[^/]*\.ya?ml|docker-bake[^/]*|[^/]*\.hcl|(?:gnu)?makefile|justfile|[^/]*\.(?:mk|sh|bash|md))\Z"
)
_WORKFLOW = pattern(r"(?:^|/)\.github/workflows/[^/]+\.ya?ml\Z")
_CONTEXTS = pattern(
    r"""(?m)^(\s*)["']?(?:contexts|additional_contexts|build-contexts)["']?\s*[:=]\s*(?:[|>]-?)?([{\[]?)"""
)
_MOST = 40  # files that are searched
_LARGEST = 200_000  # characters of one


def built_by(source: Source, repository: str) -> str:
    """The file of the build context that builds the moving tag of ``repository``, "" where none is known to."""
    name = re.escape(repository)
    tag = re.compile(rf"(?:\s-t|\s--tag|\btags)[\s=\[]+[\"']?{name}(?::latest)?[\"'\s,\]]")
    service = re.compile(rf"^\s+image:\s*[\"']?{name}(?::latest)?[\"']?\s*(?:#.*)?$", re.MULTILINE)
    searched = 0
    for place in _FOLDERS:
        for file in source.names(place):
            compose = _COMPOSE.fullmatch(file) is not None
            if not (compose or _SCRIPT.fullmatch(file)) or searched >= _MOST:
                continue
            searched += 1
            read = source.read(posixpath.join(place, file))
            if not isinstance(read, FileText) or repository not in read.text or len(read.text) > _LARGEST:
                continue
            builds = re.search(r"\bdocker\b[^\n]*\bbuild|\bpodman build|\bbuildah\b|^target ", read.text, re.MULTILINE)
            if _builds_service(read, service) if compose else builds and tag.search(f" {read.text}\n"):
                return read.path
    return ""


def lent(source: Source, name: str) -> tuple[str, str] | None:
    """The file that gives builds a context ``name``, and the image it stands for, "" for what is no image of a registry
    or another one elsewhere; None where no file does.
    """
    found: dict[str, str] = {}
    for path, text in _texts(source):
        if name in text and len(text) <= _LARGEST:
            for value in _values(text, name):
                found.setdefault(value, path)
    if not found:
        return None
    image = next(iter(found)).removeprefix("docker-image://")
    known = len(found) == 1 and image not in found and "$" not in image
    return next(iter(found.values())), image if known else ""


def _texts(source: Source) -> Iterator[tuple[str, str]]:
    """The files that may say how a Dockerfile is built, those of the whole project where its names are known."""
    project = source.project() if isinstance(source, Within) else None
    if project is not None:
        named = (path for path in project.paths if _LENDS.search(path) or _WORKFLOW.search(path))
        for path in sorted(named, key=lambda path: (path.count("/"), path))[:_MOST]:
            yield path, project.text(path)
        return
    places = ((posixpath.join(place, file)) for place in _FOLDERS for file in source.names(place))
    for path in [path for path in places if _LENDS.search(path)][:_MOST]:
        read = source.read(path)
        if isinstance(read, FileText):
            yield read.path, read.text


def _values(text: str, name: str) -> Iterator[str]:
    """What a file says that the context ``name`` is."""
    option = re.compile(rf"""--build-context(?:=|\s+)["']?{re.escape(name)}=["']?([^\s"'\\]+)""")
    yield from (found[1] for found in option.finditer(text))
    entry = re.compile(rf"""(?:^|[\s,{{\[-])["']?{re.escape(name)}["']?\s*[:=]\s*["']?([^\s"',}}\]]+)""")
    for begin in _CONTEXTS.finditer(text):
        rest = text[begin.end() :]
        if begin[2]:
            block = rest.partition("}" if begin[2] == "{" else "]")[0]
        else:
            deeper = re.match(rf"[^\n]*(?:\n{begin[1].lstrip(chr(10))}(?:[ \t]+|-)[^\n]*|\n[ \t]*(?=\n))*", rest)
            block = deeper[0] if deeper is not None else ""
        yield from (found[1] for found in entry.finditer(block))


def _builds_service(file: FileText, service: re.Pattern[str]) -> bool:
    """Whether a service of a compose file has both that image and a build."""
    from envkit.dockerfile.nodes import documents

    if not service.search(file.text):
        return False
    roots = documents(file.text, file.path)
    for root in roots if not isinstance(roots, str) else ():
        for _, one in root.pairs("services"):
            image, build = one.get("image"), one.get("build")
            if image is not None and build is not None and service.search(f" image: {image.text}"):
                return True
    return False
