"""What ends a build by what others changed since: sources that no longer build apart, a key of NVIDIA's archive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from envkit.dockerfile import options, system
from envkit.dockerfile.requirements import allows
from envkit.facts import Facts, SdistRow, TorchAbiRow
from envkit.judging.checks import _abi as abi
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import (
    Commands,
    commands_of,
    forgiven,
    installs_of,
    need_stages,
    optional,
    together,
)
from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.records import replace
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
        steps = dockerfile.steps_of(index)
        before: list[Install] = []
        for number, step in enumerate(steps):
            lenient = optional(step)
            for one in step.installs:
                row = rows.get(one.name)
                if row is not None and _from_source(one, row) and one.span not in lenient:
                    asked += 1
                    apart = _apart(one, row.apart, before, base, steps[:number])
                    bound = row.lacks != "torch" and "PIP_CONSTRAINT" in step.env
                    if one.span not in told and (
                        (apart and not bound) or _before_torch(one, row.lacks, base, (*steps[:number], step))
                    ):
                        told.add(one.span)
                        yield _fails(one, row, apart)
                    lacked = "" if apart else _lacked(one, row, before, base, (*steps[:number], step))
                    if one.span not in told and lacked:
                        told.add(one.span)
                        yield _lacks_beside(one, row, lacked)
                if (
                    "torch" in one.builds
                    and one.manager == "pip"
                    and one.sure
                    and not one.marker
                    and one.span not in lenient
                ):
                    asked += 1
                    apart = _apart(one, "apart" in one.builds, before, base, steps[:number])
                    if one.span not in told and (apart or _before_torch(one, "torch", base, (*steps[:number], step))):
                        told.add(one.span)
                        yield _own_fails(one, apart)
                before.append(one)
    skip_if(not asked, "nothing is built from a source that is known to import what a build apart lacks")


def _fails(one: Install, row: SdistRow, apart: str) -> Finding:
    """The finding of one package; ``apart`` says why it is built so, "" where it lacks torch all the same."""
    if not apart:
        return error(
            f"{one.name}{one.specifier} imports torch while it is built, and no step before installs torch, so that "
            "the build ends here",
            one.span,
            {f"{one.name} needs {row.lacks}": cited(row)},
            f"install torch in a step of its own before, and {one.name} with --no-build-isolation",
        )
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


# Packages of Debian's and Ubuntu's that bring no Python package which a setup.py may import.
_NO_PYTHONS = pattern(
    r"python3(?:\.\d+)?(?:-(?:pip|dev|venv|setuptools|wheel|distutils|minimal|full|tk))?|git|git-lfs|wget|curl|vim|nano"
    r"|build-essential|gcc.*|g\+\+.*|ninja-build|cmake|ffmpeg|unzip|zip|ca-certificates|tmux|htop|less|sudo|pkg-config|aria2"
    r"|lib(?:gl1|glib2\.0-0|gl1-mesa-glx|sm6|xext6|xrender1|xrender-dev|gomp1|sndfile1|aio-dev|ssl-dev|jpeg-dev|png-dev)"
)
# Ubuntu's whose python3-wheel and python3-setuptools come without the package packaging; later ones require it.
_WITHOUT_PACKAGING = frozenset({"ubuntu20.04", "ubuntu22.04"})
# Not setuptools, whose releases of today lend theirs to whoever imports it.
_REQUIRES_NONE = abi.FAMILY | options.names("pip wheel uv ninja numpy cmake psutil pybind11 einops")


def _lacked(one: Install, row: SdistRow, before: Sequence[Install], base: Base, steps: Sequence[Step]) -> str:
    """What a package that is built among the installed ones imports and surely does not find there, else ""."""
    among = any(option.startswith("--no-build-isolation") for option in one.options) and one.manager == "pip"
    plain = base.family in ("os", "nvidia") and base.sure and not base.digest
    if not (among and plain and stack.said(base.os) in _WITHOUT_PACKAGING and one.prefix in ("/usr", "/usr/local")):
        return ""
    if any(step.unread or (step.copy is not None and step.copy.foreign) for step in steps):
        return ""
    if any(word in step.value for step in steps for word in ("get-pip", "venv ", "conda", "--target", "--root")):
        return ""
    for each in before:
        known = _NO_PYTHONS.fullmatch(each.name) if each.manager == "apt" else each.name in _REQUIRES_NONE
        if not known or each.url:
            return ""
    return next((name for name in row.beside if all(each.name != name for each in before)), "")


def _lacks_beside(one: Install, row: SdistRow, lacked: str) -> Finding:
    return error(
        f"{one.name}{one.specifier} imports {lacked} while it is built among the installed packages, and nothing "
        "before installs it, so that the build ends here",
        one.span,
        {f"{one.name} imports {lacked}": cited(row)},
        f"install {lacked} before, with setuptools, wheel and ninja",
    )


def _own_fails(one: Install, apart: str) -> Finding:
    """The finding of a project of the context; arguments as those of ``_fails``."""
    what = one.name if one.name not in ("", ".") else one.url
    how = "it is built apart from the installed packages" if apart else "no step before installs torch"
    return error(
        f"the setup.py of {what} imports torch, and {how}, so that the build ends here",
        one.span,
        {apart or "nothing brings torch before": one.span.place, "its setup.py imports torch": "setup.py"},
        "install torch before, and this with --no-build-isolation, or name torch among the requires of [build-system]",
    )


def _before_torch(one: Install, lacks: str, base: Base, steps: Sequence[Step]) -> bool:
    """Whether torch is surely not there when a package is built that imports it: nothing before may have brought it.

    pip builds what one command names before it installs any of it, a torch beside it too.
    """
    plain = base.family in ("python", "os", "nvidia") and base.sure and not base.digest
    if lacks != "torch" or not plain or "--no-deps" in one.options:
        return False
    if any(step.unread or (step.copy is not None and step.copy.source_stage is not None) for step in steps):
        return False
    *before, step = steps
    named = [own for _, own in installs_of(step) if one in own]  # in the text of a command, or else in a list
    beside = {each.span for each in (named[0] if named else step.installs) if each.span.path == one.span.path}
    earlier = [each for each in step.installs if each.span not in beside]
    earlier += [each for other in before for each in other.installs]
    return all(each.name in abi.TOOLS for each in earlier if each.manager not in ("apt", "dnf", "apk"))


_TORCHS = pattern(r"https?://download\.pytorch\.org/")  # where no project but torch's own has files


def _from_source(one: Install, row: SdistRow) -> bool:
    """Whether a package is surely built from its source, of a release that the row is about."""
    if not one.sure or one.constraint or one.locked or one.marker or one.manager not in ("pip", "uv"):
        return False
    others = [url for url in (*one.find_links, *one.extra_indexes) if not _TORCHS.match(url)]
    if others or one.index or "$" in one.specifier:
        return False  # which may have a wheel
    if one.url:
        return one.url.startswith("git+") and (_at_old_commit(one, row) if row.until else row.lacks == "torch")
    if row.wheels and not {f"--no-binary={one.name}", "--no-binary=:all:"} & one.options:
        return False
    return row.on_index and (not row.until or (bool(one.version) and allows(f"<={row.until}", one.version) is True))


def _at_old_commit(one: Install, row: SdistRow) -> bool:
    """Whether an address names a tag or a commit of a repository that the row's releases were made from."""
    reference = one.url.partition("#")[0].rpartition("@")[2].removeprefix("v")
    dated = re.fullmatch(r"[\d.]+", reference) is not None and allows(f"<={row.until}", reference) is True
    return dated or (len(reference) >= _SHORT and any(each.startswith(reference) for each in row.commits))


_SHORT = 7  # characters of a commit that tell it from others


def _apart(one: Install, always: bool, before: Sequence[Install], base: Base, steps: Sequence[Step]) -> str:
    """Why the installer surely builds it apart, "" where it may build it among the installed packages; ``always``
    where a pyproject.toml has each pip do so."""
    if any(option.startswith(("--no-build-isolation", "--no-use-pep517")) for option in one.options):
        return ""
    if one.manager == "uv":
        copied = [name for step in steps if step.copy is not None for name in step.copy.sources]
        project = any(re.search(r"(?:^|/)(?:\.|pyproject\.toml|uv\.toml|)$", name) for name in copied)
        project = project or one.span.path.endswith(".toml")
        return "" if project else "uv builds apart"  # whose table tool.uv may say otherwise
    if not one.python or Python(one.python) < _ALWAYS_SINCE:
        return ""
    if always and not any(each.name == "setuptools" and each.constraint for each in before):
        return "its pyproject.toml has each pip build it apart"
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


# ---------------------------------------------------------------- a package that torch was not built for


def numpy_too_new(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """torch was built for the NumPy that stands beside it.  Source: pytorch/pytorch issue 107302; NumPy, "Migration
    guide" of its second release."""
    need_stages(dockerfile)
    torch = dockerfile.torch
    skip_if(torch is None or torch.version.missing or not torch.version.value, "which torch the image has is not known")
    version = str(torch.version.value) if torch is not None else ""
    for row in facts.torch_abis:
        old = allows(f"<{row.torch}", version) is True
        skip_if(not old, f"this torch takes every {row.package}")
        mine = [
            one
            for one in dockerfile.installs
            if one.manager in ("pip", "uv") and torch is not None and one.prefix == torch.prefix and not one.url
        ]
        pins = [one for one in mine if one.name == row.package and not one.constraint]
        held = dockerfile.base.family == "ngc"  # NVIDIA holds its NumPy by a constraint
        asker = None if held else _asker(mine, row, commands_of(dockerfile), facts)
        if asker is not None:
            what = f", which {asker.name}{asker.specifier} asks for in its second release, is"
            yield warning(abi.misfit(what, row, version), asker.span, abi.takes(row), abi.older(row))
            continue
        last = pins[-1] if pins else _bringer(mine, row, dockerfile)
        if last is None or not last.sure or last.marker:
            continue
        if last.name != row.package:
            bound = last.specifier and last.name not in abi.FAMILY
            if not bound and _takes_the_newest(replace(last, specifier=""), mine, row, dockerfile):
                what = f" comes with {last.name} without a bound, and will be"
                yield warning(abi.misfit(what, row, version), last.span, abi.takes(row), abi.older(row))
            continue
        if last.version and allows(f">={row.since}", last.version) is True:
            yield error(abi.misfit(f"=={last.version} is", row, version), last.span, abi.takes(row), abi.older(row))
        elif not last.version and _takes_the_newest(last, mine, row, dockerfile):
            yield warning(abi.misfit(" without a pin will be", row, version), last.span, abi.takes(row), abi.older(row))


def _takes_the_newest(one: Install, mine: Sequence[Install], row: TorchAbiRow, dockerfile: Dockerfile) -> bool:
    """Whether nothing keeps the installer from the newest release, a base that holds one neither."""
    base = dockerfile.base
    plain = base.family in ("python", "os", "nvidia") and base.sure and not base.digest and not dockerfile.unread
    return plain and abi.unbounded(one, mine, row) and bool(one.python) and Python(one.python) >= abi.SINCE


_PLAIN_PYTHON = pattern(r"python3(?:\.\d+)?(?:-(?:pip|dev|venv|setuptools|wheel|distutils|minimal|full|tk))?")


def _bringer(mine: Sequence[Install], row: TorchAbiRow, dockerfile: Dockerfile) -> Install | None:
    """The first package that brings the newest release of another one, where all that is there is known not to bound
    it, and nothing else may have brought it before."""
    known = abi.FAMILY | abi.TOOLS | abi.BRINGS | abi.WITHOUT
    if row.package != "numpy" or any(one.name not in known or one.constraint or one.extras for one in mine):
        return None
    for one in dockerfile.installs:
        ours = one.manager in ("pip", "uv") or (one.manager in ("apt", "dnf") and _plain_package(one.name))
        if not ours:
            return None
    first = next((one for one in mine if one.name in abi.BRINGS), None)
    return first if first is not None and not first.index else None  # another index may have an older one


# From 4.12 on they ask for NumPy 2 and newer where Python is 3.9 or newer: read in the METADATA of 4.11.0.86, of
# 4.12.0.88, 4.13.0.92 and of the newest of each (2026-11-29).
_OPENCV = options.names("opencv-python opencv-python-headless opencv-contrib-python opencv-contrib-python-headless")
_NEWEST_SINCE = Python("3.12")  # which the newest releases of the field still take


def _asker(
    mine: Sequence[Install], row: TorchAbiRow, commands: Mapping[Span, Commands], facts: Facts
) -> Install | None:
    """A package that surely asks for a release which torch was not built for, where nothing bounds it: whichever one
    is there, in the base or by an earlier command too, is replaced."""
    known = abi.FAMILY | abi.TOOLS | abi.BRINGS | abi.WITHOUT | _OPENCV
    if row.package != "numpy" or any(one.constraint or one.extras for one in mine):
        return None
    others = [one for one in mine if one.name not in known]
    if any(not _second_alone(one, facts) for one in others):
        return None
    bounding = [one for one in mine if one.name in abi.BRINGS - _OPENCV and one.specifier]
    held = any(not _lets_second_in(one, row, facts) for one in bounding)  # an old release may bound it
    first = next((one for one in mine if one.name in _OPENCV or one in others), None)
    if first is None or held or first.index or first.marker or not (first.sure and first.python):
        return None
    place = commands.get(first.span, {})
    for at, one in enumerate(mine):
        before = at < mine.index(first) and place and not together(place, commands.get(one.span, {}))
        if one.name == row.package and (one.version or one.specifier) and not before:
            return None
    if "--no-deps" in first.options or Python(first.python) < abi.SINCE:
        return None
    if first in others:
        return first
    new = allows(">=4.12", first.version) is True if first.version else not re.search(r"[<~!]|==", first.specifier)
    return first if new else None


def _lets_second_in(one: Install, row: TorchAbiRow, facts: Facts) -> bool:
    """Whether a pinned release, as its metadata was read, bounds the other package not below its second release."""
    rows = facts.require_rows(one.name, one.version) if one.version else ()
    bounds = [each.requires[row.package] for each in rows if row.package in each.requires]
    return bool(bounds) and all(not bound or allows(bound, row.since) is not False for bound in bounds)


def _second_alone(one: Install, facts: Facts) -> bool:
    """Whether what an install puts there takes NumPy's second release alone: a release that was read, or the newest
    one where its Python has that."""
    if one.manager not in ("pip", "uv") or not (one.version or not one.specifier):
        return False
    newest = bool(one.python) and Python(one.python) >= _NEWEST_SINCE
    return bool(one.version or newest) and facts.numpy_need(one.name, one.version) is not None


def _plain_package(name: str) -> bool:
    """Whether a system's package surely brings no NumPy for Python."""
    return _PLAIN_PYTHON.fullmatch(name) is not None or not re.match(r"python|ros-|conda|lib(?:opencv|torch)", name)


# ---------------------------------------------------------------- NVIDIA's key

_MENDED = pattern(
    r"3bf863cc|A4B469963BF863CC|7fa2af80|cuda-keyring|sources\.list\.d|cuda\.list|nvidia-ml\.list|-unauthenticated"
    r"|AllowUnauthenticated|allow-insecure"
)
# What only NVIDIA's archive has.
_NVIDIAS = pattern(
    r"cuda(?:-[a-z-]+)?-\d+-\d+|cuda(?:-toolkit|-drivers)?|libcu(?:dnn|blas)\d*(?:-dev)?|libn(?:ccl2?|vinfer\d*)(?:-dev)?"
)
_OLD_KEY = pattern(r"developer\.download\.nvidia\.(?:com|cn)/compute/cuda/repos/\w+/x86_64/7fa2af80\.pub")
_KEYRING = pattern(r"3bf863cc|A4B469963BF863CC|cuda-keyring")
_OLD_ARCHIVE = pattern(
    r"deb \S*developer\.download\.nvidia\.(?:com|cn)/compute/cuda/repos/|dpkg -i \S*cuda-repo-[a-z]+\d+_\S+\.deb"
)


def apt_key_rotated(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """apt knows the keys that NVIDIA and ROS sign their archives with.  Source: NVIDIA, "Updating the CUDA Linux GPG
    Repository Key": 3bf863cc took the place of 7fa2af80 on April 27, 2022; ros/rosdistro issue 46260: the key that
    images of ROS held expired on June 1, 2025."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        why = _knows_the_old(base, facts)
        asked += bool(why)
        key = archive = False  # whether a step added NVIDIA's old key, and its archive
        for step in dockerfile.steps_of(index):
            if step.copy is not None and re.search(r"^/etc/apt|sources|keyring", step.copy.target):
                break
            if step.name != "RUN":
                continue
            adds = _OLD_ARCHIVE.search(step.value) is not None
            key, archive = key or _OLD_KEY.search(step.value) is not None, archive or adds
            if key and archive and not why and "3bf863cc" not in dockerfile.text and not _KEYRING.search(step.value):
                asked, why = asked + 1, f"{step.span.place} adds the archive with the key 7fa2af80"
            elif (_MENDED.search(step.value) and not (key or adds)) or _KEYRING.search(step.value):
                break
            asks = any(_NVIDIAS.fullmatch(one.name) for one in step.installs if one.manager == "apt" and one.sure)
            ends = [
                each
                for at, each in enumerate(step.commands)
                if not forgiven(step, at) and (_refuses(each, base) if _updates(each) else asks and _installs(each))
            ]
            command = next((each for each in ends if _after(each, step)), None)
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
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        if not _holds_ros_old_key(base):
            continue
        asked += 1
        command = _first_update(dockerfile.steps_of(index), base)
        if command is not None and command.span not in told:
            told.add(command.span)
            yield error(
                f"the key of ROS's archive in {base.reference} expired on June 1, 2025, so that the build ends here",
                command.words[0].span,
                {
                    "the image was not made again": base.span.place,
                    "EXPKEYSIG F42ED6FBAB17C654": "ros/rosdistro issue 46260; dusty-nv/jetson-containers issue 1124",
                },
                "write before it `RUN rm -f /etc/apt/sources.list.d/ros*`, or install ros2-apt-source in place of the "
                "key, or take an image of a ROS that still lives",
            )
    skip_if(not asked, "nothing here is known to have an old key")


# Releases of ROS that had ended before their archive's key did, whose images nobody makes again.  Source: REP 3 and REP
# 2000, end of life of each; osrf/docker_images issue 821, whose images of the others were made again.
_ENDED_ROS = frozenset(
    {"jade", "lunar", "melodic", "ardent", "bouncy", "crystal", "dashing", "eloquent", "foxy", "galactic", "iron"}
)
_MENDS_ROS = pattern(
    r"ros2?\.(?:key|asc|list|sources)|apt-source|ros-archive|F42ED6FBAB17C654|C1CF6E31|sources\.list|apt-key"
    r"|keyring|packages\.ros\.org|[Ii]nsecure|trusted=yes|allow-unauthenticated"
)


def _holds_ros_old_key(base: Base) -> bool:
    """Whether an image of ROS was surely made before its archive's key was given a longer life."""
    if not base.sure or base.digest:
        return False
    if re.fullmatch(r"(?:osrf/|arm64v8/|amd64/)?ros", base.repository):
        return base.tag.partition("-")[0] in _ENDED_ROS
    return base.repository == "dustynv/ros" and re.search(r"-l4t-r3[245]\.", base.tag) is not None


def _first_update(steps: Sequence[Step], base: Base) -> Command | None:
    """The first update of apt's lists that ends the build, None where a step before may have mended the key."""
    for step in steps:
        if step.copy is not None and (
            re.search(r"^/etc\b|^/$|^/usr\b|sources|keyring", step.copy.target) or step.copy.source_stage is not None
        ):
            return None
        if _MENDS_ROS.search(step.value):
            return None
        for at, command in enumerate(step.commands if step.name == "RUN" else ()):
            if command.program in system.SHELLS or "/" in command.words[0].text:
                return None
            if _updates(command):
                return None if forgiven(step, at) or not _refuses(command, base) else command
    return None


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


def _refuses(command: Command, base: Base) -> bool:
    """Whether an update ends where an archive's key is not known: from apt 1.5 on, which Ubuntu 16.04 does not have;
    the program apt, in place of apt-get, did so there already.  Source: apt, debian/NEWS of 1.5~beta1; apt 1.2.35,
    apt-private/private-cmndline.cc."""
    found = re.fullmatch(r"ubuntu(\d+)\.\d+", stack.said(base.os))
    if found is None:
        return not base.os.missing
    return int(found[1]) >= (16 if command.program == "apt" else 18)


def _installs(command: Command) -> bool:
    """Whether apt takes packages, for which it asks where an archive's key is not known, and with --yes ends."""
    return command.program in system.APT and "install" in command.args and command.sure


def _after(command: Command, step: Step) -> bool:
    """Whether an update comes behind what the step adds of NVIDIA's archive, where it adds some."""
    if not _OLD_ARCHIVE.search(step.value):
        return True
    added = [each for each in step.commands if any("compute/cuda/repos" in arg for arg in each.args)]
    return bool(added) and (command.span.line, command.span.column) > (added[-1].span.line, added[-1].span.column)
