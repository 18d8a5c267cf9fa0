"""Whether the project itself builds an image that its Dockerfile is FROM: what its other files say of it."""

from __future__ import annotations

import posixpath
import re

from envkit.dockerfile.files import FileText
from envkit.dockerfile.tree import Source
from envkit.patterns import pattern

_COMPOSE = pattern(r"(?i)[^/]*compose[^/]*\.ya?ml")
_SCRIPT = pattern(r"(?i)(?:(?:gnu)?makefile|justfile|.*\.(?:mk|sh|bash|md|hcl))")
_FOLDERS = ("", "docker", "dockerfiles", "scripts", "bin", "build", "ci")
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
