"""What ends a build by what others changed since: sources that no longer build apart, a key of NVIDIA's archive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envkit.dockerfile import system
from envkit.dockerfile.requirements import allows
from envkit.facts import Facts, SdistRow
from envkit.judging.checks._dockerfile import forgiven, installs_of, need_stages
from envkit.judging.checks._outcomes import error, skip_if
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Install, Step
from envkit.versions import Python

# ---------------------------------------------------------------- sources that are built apart

_NO_WHEEL_SINCE = Python("3.12")  # from here on an environment of Python's own has neither setuptools nor wheel
_ALWAYS_SINCE = Python("3.9")  # the newest pip for it, and for each newer one, builds every source apart


def sdist_build_fails(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """What is built from its source apart from the installed packages finds there what it imports.  Source: pip,
    "Build System Interface"; each package, tried with the newest pip."""
    need_stages(dockerfile)
    rows = {row.name: row for row in facts.sdists}
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        steps = [step for each in dockerfile.line_of(index) for step in dockerfile.stages[each].steps]
        before: list[Install] = []
        for number, step in enumerate(steps):
            lenient = {one.span for at, (_, own) in enumerate(installs_of(step)) if forgiven(step, at) for one in own}
            for one in step.installs:
                row = rows.get(one.name)
                if row is not None and _from_source(one, row) and one.span not in lenient:
                    asked += 1
                    apart = _apart(one, before, base, steps[:number])
                    if apart and one.span not in told and not (row.lacks != "torch" and "PIP_CONSTRAINT" in step.env):
                        told.add(one.span)
                        yield _fails(one, row, apart)
                before.append(one)
    skip_if(not asked, "nothing is built from a source that is known to import what a build apart lacks")


def _fails(one: Install, row: SdistRow, apart: str) -> Finding:
    """The finding of one package; ``apart`` says why it is built so."""
    lacks = {
        "torch": "its setup.py imports torch, which is not there",
        "pkg_resources": "its setup.py imports pkg_resources, which today's setuptools no longer has",
    }.get(row.lacks, "today's setuptools refuses its setup.py")
    fix = {
        "torch": "install torch, setuptools, wheel and ninja before, and it with --no-build-isolation",
        "pkg_resources": "take a wheel of its project, or install an older setuptools before, and it with "
        "--no-build-isolation",
    }.get(row.lacks, "take a newer release, or install older releases of setuptools and wheel before, and it with "
        "--no-build-isolation")  # fmt: skip
    return error(
        f"{one.name}{one.specifier} is built apart from the installed packages, and {lacks}, so that the build ends "
        "here",
        one.span,
        {apart: one.span.place, f"{one.name} needs {row.lacks}": cited(row)},
        fix,
    )


def _from_source(one: Install, row: SdistRow) -> bool:
    """Whether a package is surely built from its source, of a release that the row is about."""
    if not one.sure or one.constraint or one.locked or one.marker or one.manager not in ("pip", "uv"):
        return False
    if one.find_links or one.index or one.extra_indexes or "$" in one.specifier:
        return False  # which may have a wheel
    if one.url:
        return row.lacks == "torch" and one.url.startswith("git+") and not row.until
    on_index = row.name not in ("apex", "detectron2", "pytorch3d")
    return on_index and (not row.until or (bool(one.version) and allows(f"<={row.until}", one.version) is True))


def _apart(one: Install, before: Sequence[Install], base: Base, steps: Sequence[Step]) -> str:
    """Why the installer surely builds it apart, "" where it may build it among the installed packages."""
    if any(option.startswith(("--no-build-isolation", "--no-use-pep517")) for option in one.options):
        return ""
    if one.manager == "uv":
        copied = [name for step in steps if step.copy is not None for name in step.copy.sources]
        project = any(re.search(r"(?:^|/)(?:\.|pyproject\.toml|uv\.toml|)$", name) for name in copied)
        project = project or one.span.path.endswith(".toml")
        return "" if project else "uv builds apart"  # whose table tool.uv may say otherwise
    if not one.python or Python(one.python) < _ALWAYS_SINCE:
        return ""
    mine = [
        each for each in before if each.prefix == one.prefix and each.manager in ("pip", "uv") and not each.constraint
    ]
    pip = next((each for each in reversed(mine) if each.name == "pip"), None)
    if pip is not None:
        newest = pip.sure and not pip.specifier and not pip.url and "--upgrade" in pip.options
        return "the newest pip builds every source apart" if newest else ""
    plain = base.family == "python" and Python(one.python) >= _NO_WHEEL_SINCE and not base.digest
    wheel = any(each.name in ("wheel", ".") or each.url for each in mine)
    return f"pip builds apart where no wheel is installed, as with Python {one.python}" if plain and not wheel else ""


# ---------------------------------------------------------------- NVIDIA's key

_MENDED = pattern(
    r"3bf863cc|A4B469963BF863CC|7fa2af80|cuda-keyring|sources\.list\.d|cuda\.list|nvidia-ml\.list|-unauthenticated"
    r"|AllowUnauthenticated|allow-insecure"
)
_OLD_KEY = pattern(r"developer\.download\.nvidia\.(?:com|cn)/compute/cuda/repos/\w+/x86_64/7fa2af80\.pub")
_OLD_ARCHIVE = pattern(r"deb \S*developer\.download\.nvidia\.(?:com|cn)/compute/cuda/repos/")


def apt_key_rotated(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """apt knows the key that NVIDIA signs its archive with.  Source: NVIDIA, "Updating the CUDA Linux GPG Repository
    Key": 3bf863cc took the place of 7fa2af80 on April 27, 2022."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        why = _knows_the_old(base, facts)
        asked += bool(why)
        for step in (step for each in dockerfile.line_of(index) for step in dockerfile.stages[each].steps):
            if step.copy is not None and re.search(r"^/etc/apt|sources|keyring", step.copy.target):
                break
            if step.name != "RUN":
                continue
            if _OLD_KEY.search(step.value) and _OLD_ARCHIVE.search(step.value) and "3bf863cc" not in dockerfile.text:
                asked, why = asked + 1, f"{step.span.place} adds the archive with the key 7fa2af80"
            elif _MENDED.search(step.value):
                break
            updates = (each for at, each in enumerate(step.commands) if _updates(each) and not forgiven(step, at))
            command = next((each for each in updates if _after(each, step)), None)
            if why and command is not None:
                if command.span not in told:
                    told.add(command.span)
                    yield error(
                        "NVIDIA signs its archive with another key than apt knows here, so that the build ends here",
                        command.words[0].span,
                        {why: base.span.place},
                        "write before it `RUN rm -f /etc/apt/sources.list.d/cuda.list "
                        "/etc/apt/sources.list.d/nvidia-ml.list`, or install NVIDIA's cuda-keyring",
                    )
                break
    skip_if(not asked, "nothing here is known to have NVIDIA's old key")


def _knows_the_old(base: Base, facts: Facts) -> str:
    """Why apt in a base knows the old key alone, "" where that is not known."""
    if not base.sure or base.digest:
        return ""
    for row in facts.apt_keys:
        release = re.match(r"v?(\d+(?:\.\d+){1,2})(?=-|$)", base.tag)
        if base.repository == row.image and row.tag in base.tag and release is not None:
            old = allows(f"<={row.until}", release[1]) is True and release[1] not in row.later
            return f"{base.reference} is older than the key: {cited(row)}" if old else ""
    return ""


def _updates(command: Command) -> bool:
    return command.program in system.APT and "update" in command.args and command.sure


def _after(command: Command, step: Step) -> bool:
    """Whether an update comes behind what the step adds of NVIDIA's archive, where it adds some."""
    if not _OLD_KEY.search(step.value):
        return True
    added = [each for each in step.commands if any("compute/cuda/repos" in arg for arg in each.args)]
    return bool(added) and (command.span.line, command.span.column) > (added[-1].span.line, added[-1].span.column)
