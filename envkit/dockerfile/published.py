"""Whether the tag of an image was ever published, as far as lists and what its publisher builds tell."""

from __future__ import annotations

import difflib
import re

from envkit.facts import Facts, ImageTag
from envkit.model import Observed
from envkit.patterns import pattern
from envkit.records import replace
from envkit.subjects.dockerfile import Base
from envkit.versions import Cuda, Torch

NOT_LETTER = r"(?<![a-zA-Z])"
CUDNN = pattern(NOT_LETTER + r"cudnn[-_]?v?([0-9](?:\.[0-9]{1,2}){0,3})?(?![0-9])", re.I)


def row_of(reference: str, facts: Facts) -> ImageTag | None:
    """What the facts know of a tag, of an old one too."""
    return facts.image_tag(reference) or facts.old_image_tag(reference)


def fact(tag: ImageTag) -> str:
    """Where a fact of a tag is from."""
    return f"facts: {tag.reference} [{tag.row.source}; seen {tag.row.seen}]"


def bare_cudnn(facts: Facts) -> str:
    """The major of cuDNN in tags that say "cudnn" without a number, where all known ones agree."""
    majors = {
        row.cudnn.major for row in facts.images if row.cudnn is not None and any("-cudnn-" in tag for tag in row.tags)
    }
    return str(majors.pop()) if len(majors) == 1 else ""


Published = tuple[Observed[bool], tuple[str, ...]]  # whether a tag ever was; where not, the likest that were


def published(tag: str, cuda: str, row: ImageTag | None, facts: Facts) -> Published:
    """Whether a tag of nvidia/cuda was ever published; that it was not is said only where the lists are complete."""
    if row is not None:
        return Observed.of(True, fact(row)), ()
    unknown: Published = Observed.lost("the facts do not list the tags of this CUDA"), ()
    version, minor = Cuda(cuda), Cuda(cuda).upto(2)
    lists = {str(known): tags for known, tags in facts.whole_lists.items()}
    cudnn, majors = CUDNN.search(tag), _cudnns(minor, facts)
    if cudnn is not None and cudnn[1] and majors and cudnn[1].partition(".")[0] not in majors:
        mine = (tags for known, tags in lists.items() if Cuda(known).upto(2) == minor)
        return _never(tag, frozenset[str]().union(*mine))
    if _FLAVORED.fullmatch(tag) and version.major <= _last_alias(facts):
        return unknown  # NVIDIA's own Dockerfiles name none of these aliases, of which some were published
    if cuda in lists:
        return _never(tag, lists[cuda])
    listed = [known for known in lists if Cuda(known).upto(2) == minor]
    whole = len(cuda.split(".")) == 3
    if listed:
        if any(len(known.split(".")) == 2 for known in listed):
            return unknown  # two numbers were enough in those days; which aliases there were is not known
        # where all versions have three numbers there are no tags with two, nor any of an update that was passed over
        if not whole or version < max(Cuda(known) for known in listed):
            return _never(tag, frozenset[str]().union(*(lists[known] for known in listed)))
    newer = [known for known in lists if Cuda(known) > version]
    toolkits = facts.toolkits(minor)
    if not newer or toolkits is None or (toolkits and not whole) or version in toolkits:
        return unknown
    return _never(tag, frozenset[str]().union(*(lists[known] for known in listed or [min(newer, key=Cuda)])))


def _cudnns(minor: Cuda, facts: Facts) -> set[str]:
    """The majors of cuDNN in the known tags of a CUDA, empty where one of them names none: no other was published."""
    known = (*facts.images, *facts.images_old)
    rows = [row for row in known if row.image == "nvidia/cuda" and row.cuda.upto(2) == minor]
    named = [found[1] for row in rows for tag in row.tags if (found := CUDNN.search(tag)) is not None]
    return {major.partition(".")[0] for major in named} if all(named) else set()


_FLAVORED = pattern(r"[0-9]+(?:\.[0-9]+)+(?:-cudnn[0-9.]*)?-(?:base|runtime|devel)")  # no system


def _last_alias(facts: Facts) -> int:
    """The newest major of CUDA of which a tag is known that names no system."""
    return max(
        (cuda.major for cuda, tags in facts.whole_lists.items() if any(map(_FLAVORED.fullmatch, tags))), default=0
    )


def _never(tag: str, tags: frozenset[str]) -> Published:
    near = difflib.get_close_matches(tag, sorted(tags), 3, 0.6)
    return Observed.of(False, "NVIDIA's list of tags does not have it"), tuple(near)


def pytorch_exists(tag: str, torch: str, cuda: str, cudnn: str, flavor: str, facts: Facts) -> Published:
    """Whether a tag of pytorch/pytorch was ever published.

    The images pack the wheels of a release, one image for a CUDA that it was built for ("A.B"), with the major of the
    cuDNN of that build; this holds for the releases that the table of builds knows whole (``Facts.torches``).
    """
    row = facts.image_tag(f"pytorch/pytorch:{tag}")
    if row is not None:
        return Observed.of(True, fact(row)), ()
    builds = [build for build in facts.torches if str(build.torch) == torch]
    if len(torch.split(".")) == 2:
        known = Torch(torch)
        if known < facts.torches[0].torch.upto(2):
            return Observed.lost("the facts do not list the tags of this release"), ()
        builds = [build for build in facts.torches if build.torch.upto(2) == known]
    if not builds:
        return Observed.lost("the facts do not list the tags of this release"), ()
    if len(torch.split(".")) == 3:
        fitting = [build for build in builds if str(build.cuda) == cuda and build.published is not False]
        if any(not cudnn or build.cudnn is None or str(build.cudnn.major) == cudnn for build in fitting):
            return Observed.lost("the tag has the right form, but the facts do not list it"), ()
    made = [
        f"{build.torch}-cuda{build.cuda}-cudnn{build.cudnn.major}-{flavor}"
        for build in builds
        if build.cudnn is not None and build.published
    ]
    return Observed.of(False, f"the builds of torch {torch} [{builds[0].source}]"), tuple(made[:4])


_UBUNTU = pattern(r"ubuntu[-_:]?([0-9]{2})\.?([0-9]{2})(?![0-9])")
_MONTHS = ("04", "10")  # of every release but 6.06


def of_no_release(base: Base, name: str) -> Base:
    """``base`` as one that never was, where its publisher names systems and it names an Ubuntu that never was."""
    named = base.family in ("os", "nvidia", "pytorch") and base.sure and not base.digest and not base.exists.value
    short = re.fullmatch(r"([0-9]{2})(?:\.4)?", base.tag) if base.repository == "ubuntu" else None
    if named and short is not None:
        never = Observed.of(False, "tags of Ubuntu name the year and the month with two digits each")
        return replace(base, exists=never, near_tags=(f"{short[1]}.04",))
    found = _UBUNTU.search(f"{name}:{base.tag}")
    if found is None or not named or found[2] in _MONTHS or found[0].endswith("6.06"):
        return base
    return replace(base, exists=Observed.of(False, "Ubuntu's releases are of April and October"), near_tags=())
