"""Whether apt finds the packages of CUDA that it is told to install in the archives that the base knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.dockerfile.bases import ROS
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import need_stages
from envkit.judging.checks._outcomes import error, skip_if
from envkit.judging.checks.dockerfile_interpreter import other_archive
from envkit.model import Finding
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Dockerfile, Install, Step

# What NVIDIA's own archive has and no distribution: packages with the release in their name, and those of cuDNN.
_NVIDIAS = pattern(
    r"cuda-(?:[a-z]+-)*\d+-\d+|cuda-toolkit|cuda-drivers|libcudnn\d+(?:-dev)?(?:-cuda-\d+)?|libnvinfer\d+"
)
# What Debian has in non-free, which its images leave out; Ubuntu's images list multiverse.
_NON_FREE = pattern(r"nvidia-(?:cuda-(?:toolkit|dev|gdb)|cudnn|driver|smi|settings|kernel-dkms)|libcuda1|libnvidia-ml1")
# Official images of languages, which are made on Debian where their tag does not say Alpine or Windows.
_ON_DEBIAN = pattern(r"(?:library/)?(?:python|rust|node|golang|gcc)")
_ADDS = pattern(r"non-free|contrib|cuda-keyring|nvidia\.com|\.deb\b|\.run\b|local_installers", re.IGNORECASE)


def apt_archive_missing(dockerfile: Dockerfile) -> Iterator[Finding]:
    """The archives that the base knows have the packages of CUDA that apt installs.  Source: Debian's images list main
    alone; NVIDIA, CUDA installation guide for Linux, "Network Repo Installation"."""
    need_stages(dockerfile)
    asked = 0
    for index in dockerfile.reachable:
        stage = dockerfile.stages[index]
        system = _system(stage.base)
        if not system:
            continue
        asked += 1
        for step in dockerfile.steps_of(index):
            if other_archive(step) or (step.name == "RUN" and _ADDS.search(step.value)):
                break
            lacking = _lacking(step, system)
            if lacking is not None:
                one, why, fix = lacking
                yield error(
                    f"{one.name} is not in the archives that {stage.base.reference} knows, so that the build ends here",
                    one.span,
                    {why: f"{stage.base.span.place}, {stage.base.reference}"},
                    fix,
                )
                break
    skip_if(not asked, "the base is no plain Debian or Ubuntu, as far as is known")


def _system(base: Base) -> str:
    """ "debian" or "ubuntu" where the image is made of its packages and of no other archive, else ""."""
    found = re.match(r"debian|ubuntu", stack.said(base.os))
    if not base.sure or base.digest or base.family == "nvidia" or base.cuda.value:
        return ""
    if _ON_DEBIAN.fullmatch(base.repository):
        return "" if re.search(r"alpine|windows|nanoserver", base.tag) else "debian"
    return found[0] if found and base.family == "os" else ""


def _lacking(step: Step, system: str) -> tuple[Install, str, str] | None:
    """The first package of a step that is in none of the system's archives, why, and what to do."""
    for one in step.installs:
        if one.manager != "apt" or not one.sure:
            continue
        if _NVIDIAS.fullmatch(one.name):
            return (
                one,
                "only NVIDIA's archive has it",
                "take an nvidia/cuda base, or install NVIDIA's cuda-keyring before",
            )
        if system == "debian" and _NON_FREE.fullmatch(one.name):
            return (
                one,
                "Debian has it in non-free, which its images leave out",
                "take an nvidia/cuda base, or add non-free to the components in /etc/apt/sources.list.d/debian.sources",
            )
    return None


# The first releases without a package, as far as people stumble over it; names that moved to another package.
_GONE = {
    "libgl1-mesa-glx": ({"ubuntu": 24, "debian": 13}, "libgl1"),
    "libncurses5": ({"ubuntu": 24, "debian": 13}, "libncurses6"),
    "libtinfo5": ({"ubuntu": 24, "debian": 13}, "libtinfo6"),
    "python3-distutils": ({"ubuntu": 24, "debian": 13}, "python3-setuptools"),
    "libasound2": ({"ubuntu": 24}, "libasound2t64"),
    "libssl1.1": ({"ubuntu": 22, "debian": 12}, "libssl3"),
    "netcat": ({"ubuntu": 24, "debian": 12}, "netcat-openbsd"),
    "software-properties-common": ({"debian": 13}, "nothing in its place: Debian has no add-apt-repository any more"),
    "qt5-default": ({"ubuntu": 22, "debian": 11}, "qtbase5-dev"),
    "libqt4-dev": ({"ubuntu": 20, "debian": 11}, "qtbase5-dev"),
    "python-dev": ({"ubuntu": 22, "debian": 12}, "python3-dev"),
    "python-numpy": ({"ubuntu": 22, "debian": 11}, "python3-numpy"),
    "python-setuptools": ({"ubuntu": 22, "debian": 12}, "python3-setuptools"),
    "python-tk": ({"ubuntu": 22, "debian": 12}, "python3-tk"),
    "python-opencv": ({"ubuntu": 20, "debian": 11}, "python3-opencv"),
    "libpng12-dev": ({"ubuntu": 18, "debian": 9}, "libpng-dev"),
    "libjasper-dev": ({"ubuntu": 18, "debian": 9}, "nothing in its place: no later release has it"),
    "libav-tools": ({"ubuntu": 18, "debian": 10}, "ffmpeg"),
    "libdc1394-22-dev": ({"ubuntu": 22, "debian": 12}, "libdc1394-dev"),
    "libtiff5": ({"ubuntu": 24, "debian": 12}, "libtiff6"),
    "libssl1.0-dev": ({"ubuntu": 20, "debian": 10}, "libssl-dev"),
    "openjdk-8-jdk": ({"debian": 10}, "default-jdk, or take Temurin's archive"),
    "openjdk-8-jre": ({"debian": 10}, "default-jre, or take Temurin's archive"),
    "openjdk-11-jdk": ({"debian": 12}, "default-jdk, or take Temurin's archive"),
    "openjdk-11-jre": ({"debian": 12}, "default-jre, or take Temurin's archive"),
    "openjdk-17-jdk": ({"debian": 13}, "default-jdk, or take Temurin's archive"),
    "openjdk-17-jre": ({"debian": 13}, "default-jre, or take Temurin's archive"),
    **{
        f"{name}-{release}": (gone, f"a {name} that the release has, or take an older release")
        for name in ("gcc", "g++")
        for release, gone in {
            "4.8": {"ubuntu": 20, "debian": 9},
            "5": {"ubuntu": 20, "debian": 9},
            "6": {"ubuntu": 20, "debian": 10},
            "7": {"ubuntu": 22, "debian": 11},
            "8": {"ubuntu": 22, "debian": 11},
            "9": {"debian": 12},
            "10": {"debian": 12},
        }.items()
    },
}
_GONE |= {f"{name}-headless": _GONE[name] for name in tuple(_GONE) if name.startswith("openjdk")}
_OF_ROS = pattern(rf"ros-(?:{'|'.join(ROS)})-[a-z][a-z0-9-]*\*?")
_ADDS_ARCHIVES = "software-properties-common"  # which no other archive has, and is asked for to add one
_OF_ANOTHER_RELEASE = pattern(
    r"sources\.list(?!\.d)|\.sources\b|bookworm|bullseye|buster|jammy|focal|noble|debian\.org|\.deb\b"
)


# Tags of python without a distribution and a patch release stand for the newest Debian since it came out; those of a
# Python that had ended by then do not.  Source: docker-library/official-images at 01732a42e52e, library/python, and
# docker-library/python, which has 3.9/trixie.
_MOVING_PYTHON = pattern(r"(?:3(?:\.(?:9|1[0-9]))?(?:-slim)?|slim|latest)?")
_MOVED_TO = "debian13"
# The newest image of PyTorch is on it or on a later one.  Source: pytorch/pytorch pull request 113032 of 2023-11-06.
_PYTORCH_SINCE = "ubuntu22.04"


def _system_of(base: Base) -> str:
    """The system of a base: that of its tag, or the least that a tag which moves stands for today."""
    if base.family == "pytorch" and base.tag in ("", "latest") and not base.digest and base.sure:
        return _PYTORCH_SINCE
    moves = base.family == "python" and base.repository.rpartition("/")[2] == "python" and not base.digest
    return stack.said(base.os) or (_MOVED_TO if moves and _MOVING_PYTHON.fullmatch(base.tag) else "")


def apt_package_gone(dockerfile: Dockerfile) -> Iterator[Finding]:
    """The base's release still has the packages that apt installs.  Source: the packages of Debian and Ubuntu."""
    need_stages(dockerfile)
    asked = 0
    of_ros = False  # whether that is told, for whoever takes one package of ROS takes many
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        system = _system_of(base)
        found = re.fullmatch(r"(ubuntu|debian)(\d+)(?:\.\d+)?", system)
        plain = base.family in ("os", "nvidia", "python")
        known = plain or base.family in ("ngc", "pytorch") or base.repository == "tensorflow/tensorflow"
        if found is None or not base.sure or not known:
            continue
        asked += not base.os.missing
        via = base.os.via or (
            "the tag moved to it or to a newer one: "
            + ("pytorch pull request 113032" if base.family == "pytorch" else "official-images, library/python")
        )
        for step in dockerfile.steps_of(index):
            others = other_archive(step)
            if others and (step.name != "RUN" or _OF_ANOTHER_RELEASE.search(step.value)):
                break
            for one in step.installs:
                since, instead = _GONE.get(one.name, ({}, ""))
                if others and one.name != _ADDS_ARCHIVES:
                    continue  # that archive may have it
                if one.manager == "apt" and one.sure and plain and _OF_ROS.fullmatch(one.name):
                    asked += 1
                    if not of_ros:
                        of_ros = True
                        yield error(
                            f"{system} has no package {one.name}: ROS's own archive alone has it, so that the build "
                            "ends here",
                            one.span,
                            {f"the base is {system}": f"{base.span.place}, {via}"},
                            "start from an image of ROS, or add ROS's archive and its key before",
                        )
                    continue
                if one.manager != "apt" or not one.sure or int(found[2]) < since.get(found[1], 1000):
                    continue
                asked += 1
                yield error(
                    f"{system} has no package {one.name}, so that the build ends here",
                    one.span,
                    {f"the base is {system}": f"{base.span.place}, {via}"},
                    f"install {instead}",
                )
            if others:
                break
    skip_if(not asked, "which release the base is of is not known")
