"""What a Dockerfile is built on: whether its base exists, still lives, and stays the same from build to build."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.facts.rows import OsLifeRow
from envkit.judging.checks._dockerfile import need_stages, reached
from envkit.judging.checks._outcomes import error, found, skip_if, warning
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Severity
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Stage
from envkit.versions import Cuda

_STAND_IN = pattern(
    r"(?:^|[-_.])(?:not-?set|unset|undefined|none|placeholder|invalid|required|non-?exist(?:ing|ent)|change-?me|override"
    r"(?:-?me)?|must-?(?:be-?)?set|missing|dummy)(?:$|[-_.])"
)
_TEMPLATE = pattern(r"\{\{|\{%|<[a-zA-Z_ -]+>|@[A-Z_]{3,}@")  # what a generator fills in
_MOVING = re.compile(r"(?:^|[-_.])(?:latest|rolling|edge|nightly)(?:$|[-_.])")
# A branch that each push builds anew; behind a version the word names what the image is for ("3.12-dev").
_BRANCH = pattern(r"(?:dev|develop|ci|main|master|head|trunk|canary|snapshot|staging)(?:$|[-_.])")
# A day, a commit or a whole version in a tag says which build of a branch it was.
_BUILD = pattern(
    r"[0-9]{4}-?[0-9]{2}|[-_.](?=[0-9a-f]*[0-9])[0-9a-f]{7,40}(?:$|[-_.])|^[a-z]+[-_.]v?[0-9]+\.[0-9]+\.[0-9][\w.]*$"
)
# The hosts to which old releases went, by their first two labels; a file that names one installs from there.
_ARCHIVES = re.compile(r"\b(?:(?:archive|snapshot)\.debian|vault\.centos|old-releases\.ubuntu)\.")
# The distributions of ROS, each of which is a release (REP 3 and REP 2000); a tag names one as others name a version.
_ROS = re.compile(
    r"(?:indigo|jade|kinetic|lunar|melodic|noetic|ardent|bouncy|crystal|dashing|eloquent|foxy|galactic|humble|iron|jazzy|kilted)"
    r"(?:$|[-_.])"
)
_INSTALLERS = {
    "apt": ("install", "update", "upgrade", "build-dep", "dist-upgrade"),
    "apt-get": ("install", "update", "upgrade", "build-dep", "dist-upgrade"),
    "aptitude": ("install", "update"),
    "yum": ("install", "update", "localinstall", "groupinstall", "makecache"),
    "dnf": ("install", "update", "upgrade", "makecache"),
}


def unpinned_base(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The base is named by a tag that says a version, or by a digest.  Source: Docker, building best practices, "Pin
    base image versions".
    """
    for stage in _bases(dockerfile):
        base = stage.base
        if base.digest or base.built_by:
            continue
        message = _moving(base, dockerfile, facts)
        if message:
            yield warning(message, base.span, {base.reference: base.span.place}, _pin(base))
    told: set[str] = set()
    for _, step in reached(dockerfile):
        image = step.copy.image if step.copy is not None else ""
        why = _moving_copy(image) if image and image not in told else ""
        if step.copy is not None and why:
            told.add(image)
            yield warning(
                f"{image}, out of which files are copied, {why}",
                step.copy.span,
                {image: step.copy.span.place},
                f"name the version that was tested, `--from={image.rpartition(':')[0] or image}:VERSION`",
            )


def _moving_copy(image: str) -> str:
    """Why what is copied out of an image may be another one tomorrow; a name alone may be that of a build context."""
    name, _, tag = image.rpartition("/")[2].partition(":")
    if "@" in image or re.search(r"[$<{]", image) or not ("/" in image or tag):
        return ""
    if not tag:
        return f"has no tag, so each build takes whatever {name} is newest"
    moves = _moves(tag)
    return f"has a tag that {moves}" if moves else ""


def _moves(tag: str) -> str:
    """What a tag does that is given to another image with each release or each push to a branch, else ""."""
    if _MOVING.search(tag) and not re.search(r"[0-9]{4}-?[0-9]{2}", tag):
        return "moves with each release"
    return "moves with each push to a branch" if _BRANCH.match(tag) and not _BUILD.search(tag) else ""


def _moving(base: Base, dockerfile: Dockerfile, facts: Facts) -> str:
    """Why the base may be another one tomorrow, "" where its tag names a version."""
    if _TEMPLATE.search(base.reference):
        return ""
    if not base.sure:
        if base.reference and "$" not in base.reference and _given(base, dockerfile):
            return ""
        if _one_of_the_stages(base, dockerfile) or _place_alone(base, dockerfile):
            return ""
        return f"the base {_written(base, dockerfile)} holds an argument without a default, so the file names no base"
    stands_in = _STAND_IN.search(base.tag or base.repository.rpartition("/")[2])
    if stands_in and "$" in _written(base, dockerfile):
        return ""  # the build fails until the argument is given
    if not base.tag:
        if _broken_off(base, dockerfile):
            return ""
        return f"the base {base.reference} has no tag, so each build takes whatever is newest"
    if moves := _moves(base.tag):
        return f"the tag {base.tag} of {base.repository} {moves}"
    codename = any(facts.os_life(word) is not None for word in re.split(r"[-_.]", base.tag.lower()))
    codename = codename or bool(_ROS.match(base.tag))
    version = re.sub(r"(?:^|[-_.])py[23](?=$|[-_])", "", base.tag)  # which Python is no version of the image
    if not re.search(r"[0-9]", version) and not codename:
        return f"the tag {base.tag} of {base.repository} names no version"
    return ""


def _broken_off(base: Base, dockerfile: Dockerfile) -> bool:
    """Whether a line's end has cut the name of a base in two: it ends where no name does, or what follows it is no
    instruction.  BuildKit refuses such a file, which says nothing of its tag."""
    if re.search(r"[-_./]$", base.reference):
        return True
    next_line = f"{base.span.place.rpartition(':')[0]}:{base.span.line + 1}: there is no instruction"
    return any(problem.startswith(next_line) for problem in dockerfile.problems)


def _given(base: Base, dockerfile: Dockerfile) -> bool:
    """Whether what is not sure of a base is its platform alone, which the builder always gives."""
    written = _written(base, dockerfile)
    names = set(re.findall(r"\$\{?(\w+)", written))
    return bool(names) and names <= {"TARGETARCH", "TARGETPLATFORM", "TARGETOS", "BUILDPLATFORM", "BUILDARCH"}


def _place_alone(base: Base, dockerfile: Dockerfile) -> bool:
    """Whether what is not given of a base is the registry alone, which no version hangs on: $REGISTRY/team/base:1.2."""
    place, _, rest = _written(base, dockerfile).partition("/")
    return bool(re.search(r"[$]", place)) and "$" not in rest and bool(re.search(r":[^:/]*\d|@sha256:", rest))


def _one_of_the_stages(base: Base, dockerfile: Dockerfile) -> bool:
    """Whether arguments choose among the file's stages: a name of one is the text with something in their place."""
    parts = re.split(r"\$\{?\w+(?::?[-+][^}]*)?\}?", _written(base, dockerfile))
    pattern = r"[\w.-]+".join(map(re.escape, parts))
    named = (each.name for each in dockerfile.stages if each.name)
    return any(parts) and any(re.fullmatch(pattern, name, re.IGNORECASE) for name in named)


def _written(base: Base, dockerfile: Dockerfile) -> str:
    """The base as the file writes it."""
    span = base.span
    lines = dockerfile.text.splitlines()
    if 0 < span.line <= len(lines) and span.end_line in (0, span.line) and span.end_column:
        return lines[span.line - 1][span.column - 1 : span.end_column - 1]
    return base.reference


def _pin(base: Base) -> str:
    if not base.sure:
        return "give the argument a default that names a version"
    if base.family == "nvidia":
        return f"name CUDA, flavor and system: `FROM {base.repository}:A.B.C-runtime-ubuntuXY.ZZ`"
    if base.family == "pytorch":
        return f"name torch, CUDA and cuDNN: `FROM {base.repository}:A.B.C-cudaD.E-cudnnF-runtime`"
    return f"name the version that was tested, `FROM {base.repository}:VERSION`, or its digest"


def eol_base(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The base's distribution and its Python still get security fixes, and its publisher has not removed it."""
    asked = 0
    for stage in _bases(dockerfile):
        base = stage.base
        final = stage.index in dockerfile.lineage
        if base.removed:
            asked += 1
            yield error(
                f"{base.reference} was removed by its publisher, so the build cannot begin",
                base.span,
                {f"{base.reference} was removed": base.retired.via},
                _newer(base, facts),
            )
            continue
        system = facts.os_life(base.os.value) if base.os.value and not base.os.missing else _alias_of(base, facts)
        python = facts.python_life(base.python.value) if base.family == "python" and base.python.value else None
        asked += system is not None or python is not None
        ended, evidence, severity = [], dict[str, str](), Severity.NOTE
        if system is not None and system.eol is not None and system.eol < system.seen:
            broken = _installs_from_dead_mirrors(dockerfile, stage) if system.moved else ""
            severity = Severity.ERROR if broken else Severity.WARNING
            alias = not base.os.value
            on = f"{system.name}, the newest system that {base.reference} can be on," if alias else ""
            ended.append(f"{on or f'{system.name} of {base.reference}'} reached its end of life on {system.eol}")
            if broken:
                ended.append(f"its packages were removed from the servers, so `{broken}` fails")
            evidence[f"{system.name} ended on {system.eol}"] = cited(system)
            evidence[system.name] = (
                base.os.via if not alias else f"the newest Ubuntu that nvidia/cuda has CUDA {base.cuda.value} on"
            )
        if python is not None and python.eol < python.seen:
            ended.append(f"Python {python.python} of {base.reference} reached its end of life on {python.eol}")
            evidence[f"Python {python.python} ended on {python.eol}"] = cited(python)
        if ended and (final or severity is Severity.ERROR):
            yield found(", and ".join(ended), base.span, severity, _newer(base, facts), evidence)
    skip_if(not asked, "the base names no system or Python release whose end of life is known")


def _alias_of(base: Base, facts: Facts) -> OsLifeRow | None:
    """The newest Ubuntu that a tag of nvidia/cuda without a system can be on: one of those of its CUDA."""
    if base.family != "nvidia" or not base.sure or base.cuda.value is None or not _NO_SYSTEM.fullmatch(base.tag):
        return None
    rows = (row for row in (*facts.images_old, *facts.images) if row.image == "nvidia/cuda" and row.os)
    on = [facts.os_life(row.os or "") for row in rows if str(row.cuda) == base.cuda.value]
    named = [row for row in on if row is not None and row.name.startswith("ubuntu")]
    return max(named, key=lambda row: row.name, default=None)


_NO_SYSTEM = pattern(r"[0-9]+(?:\.[0-9]+)+(?:-cudnn[0-9.]*)?-(?:base|runtime|devel)")


def _installs_from_dead_mirrors(dockerfile: Dockerfile, stage: Stage) -> str:
    """The first command that needs the servers which a moved release has left, "" where none does."""
    if _ARCHIVES.search(dockerfile.text):
        return ""
    below = [each for each in dockerfile.stages if stage.index in each.line]
    for each in below:
        if each.index not in dockerfile.reachable:
            continue
        for step in each.steps:
            if step.copy is not None and re.search(r"sources\.list|yum\.repos\.d", step.copy.target):
                return ""
            for command in step.commands if step.name == "RUN" else ():
                if _rewrites(command):
                    return ""
                wanted = _INSTALLERS.get(command.program, ())
                verb = next((arg for arg in command.args if not arg.startswith("-")), "")
                if command.sure and verb in wanted:
                    return f"{command.program} {verb}"
    return ""


def _rewrites(command: Command) -> bool:
    """Whether a command changes where packages come from."""
    touched = [*command.args, *(redirect.target.text for redirect in command.redirects)]
    return any(re.search(r"sources\.list|yum\.repos\.d|\.sources$|\.repo$", text) for text in touched)


def _newer(base: Base, facts: Facts) -> str:
    if base.family == "nvidia":
        tag = _same_cuda(base, facts)
        return f"take {tag}" if tag else f"take a tag of {base.repository} that is on NVIDIA's list of supported tags"
    if base.family == "pytorch":
        return f"take an image of a newer torch, or install the torch you need on a supported {_SYSTEM}"
    if base.family == "python":
        return "take a python image of a supported Python on a supported Debian"
    return f"take a base on a supported {_SYSTEM}"


_SYSTEM = "release of the system"


def _same_cuda(base: Base, facts: Facts) -> str:
    """The image of the same CUDA and flavor on a system that still lives, "" where none was made."""
    if base.cuda.missing or not base.cuda.value:
        return ""
    wanted = Cuda(base.cuda.value).upto(2)
    for tag in facts.image_tags("nvidia/cuda", cuda=wanted, flavor=base.flavor.value, cudnn="cudnn" in base.tag):
        system = facts.os_life(tag.row.os or "")
        if system is not None and system.name.startswith("ubuntu") and (system.eol or "") >= system.seen:
            return f"{base.repository}:{tag.reference.rpartition(':')[2]}"
    return ""


def base_tag_never_existed(dockerfile: Dockerfile) -> Iterator[Finding]:
    """The tag of nvidia/cuda or pytorch/pytorch was published once."""
    judged = 0
    for stage in _bases(dockerfile):
        base = stage.base
        if base.exists.value is None or base.exists.missing or base.digest:
            continue
        judged += 1
        if base.exists.value:
            continue
        yield error(
            f"{base.repository} never had the tag {base.tag}",
            base.span,
            {f"no tag {base.tag}": base.exists.via},
            f"take one that exists: {', '.join(f'{base.repository}:{name}' for name in base.near_tags)}"
            if base.near_tags
            else f"take a tag from the publisher's list of {base.repository}",
        )
    skip_if(not judged, "no list of tags is known to be complete for this base")


def _bases(dockerfile: Dockerfile) -> Iterator[Stage]:
    """The reachable stages that begin with an external image, each image once."""
    need_stages(dockerfile)
    seen: set[tuple[str, bool]] = set()
    for index in dockerfile.reachable:
        stage = dockerfile.stages[index]
        final = index in dockerfile.lineage
        if stage.parent is not None or stage.base.scratch or (stage.base.reference, final) in seen:
            continue
        seen.add((stage.base.reference, final))
        yield stage
