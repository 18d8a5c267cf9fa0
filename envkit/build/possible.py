"""What no build can be made of, told before any work."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from envkit.errors import UsageError, one_line
from envkit.plan.spec import Platform

# What an engine takes as the name of an image (github.com/distribution/reference), but for a digest.
_TAG = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:[.]|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[.]|__?|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)
_TAG_LENGTH = 255
_MIRROR = re.compile(
    r"https?://(?:[A-Za-z0-9._~!$&()*+,;=:%-]+@)?(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~!$&()*+,;=:@%/-]*)?"
)


def image_name(name: str, *, digest: bool = True) -> None:
    """Raises UsageError for what no engine takes as the name of an image, with a ``digest`` or without."""
    plain, at, hashed = name.partition("@") if digest else (name, "", "")
    good = not at or re.fullmatch(r"sha256:[0-9a-f]{64}", hashed)
    if len(plain) > _TAG_LENGTH or not _TAG.fullmatch(plain) or not good:
        said = f"`{one_line(name)}` is not a valid image name"
        raise UsageError(said, "write it like team/stack:1, in lower case before the colon")


def can_be_built(platform_of_it: str, tag: str = "", apt_mirror: str = "") -> None:
    """Raises UsageError, before any work, for what ``build`` would refuse or fail at: another machine's platform, a
    name that no engine takes, an address that is none."""
    machine = Platform(platform_of_it).machine
    if machine != platform.machine():
        emulator = Path("/proc/sys/fs/binfmt_misc", f"qemu-{machine}")
        lacks = "" if emulator.exists() else f", which has no {emulator} to run such programs"
        said = f"the lock is for {platform_of_it}, this machine is {platform.machine()}{lacks}"
        fix = f"build it on a machine with {machine}, where it is proven too (`envkit push --index` joins both), or "
        raise UsageError(said, f"{fix}change `platform`")
    if tag:
        image_name(tag, digest=False)
    if apt_mirror:
        plain = apt_mirror.replace("{date}", "").replace("{archive}", "")
        if not _MIRROR.fullmatch(plain):
            said = f"`{one_line(apt_mirror)}` is not the URL of a Debian archive"
            raise UsageError(said, "start it with http:// or https:// and a host; {date} and {archive} are filled in")


def can_be_pushed(ref: str, tag: str = "", index: str = "") -> None:
    """Raises UsageError for a name under which no registry takes an image, for one with a digest, which only the
    registry gives, for a ``tag`` that no engine has, and for an ``index`` that is the image itself."""
    if "@" in ref:
        raise UsageError(f"`{one_line(ref)}` has a digest, which a registry gives", "name a tag, or nothing")
    if index == ref:
        raise UsageError("--index is the name of the image itself", "give the platforms' images names of their own")
    for name in (ref, tag, index):
        if name:
            image_name(name, digest=False)
