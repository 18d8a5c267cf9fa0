"""What the checks of lists of packages share."""

from __future__ import annotations

from envkit.dockerfile.torches import nightly
from envkit.judging.checks._dockerfile import unknown_if_unread
from envkit.judging.checks._outcomes import skip_if, unknown_if
from envkit.model import Skip, Unknown
from envkit.subjects.dockerfile import Install, Torch
from envkit.subjects.packages import Packages


def need_torch(packages: Packages) -> Torch:
    """The one torch of the file; raises Skip where it has none, Unknown where it is not known or not one."""
    if packages.torch is not None:
        return packages.torch
    unknown_if(packages.torches, "the file names several torches")
    hoped = next((one for one in packages.installs if one.name == "torch" and not one.constraint), None)
    skip_if(hoped is not None and not hoped.marker, "only an extra asks for torch")
    if hoped is not None:
        raise Unknown(f"whether {hoped.span.place} installs torch depends on its marker ({hoped.marker})")
    unknown_if_unread(packages.unread, ", so what it asks for is not known")
    raise Skip("the file names no torch")


def sure(packages: Packages, *names: str) -> tuple[Install, ...]:
    """The installs of these packages that surely happen; all of them without a name."""
    return tuple(one for one in packages.installs if one.sure and (not names or one.name in names))


def need_release(torch: Torch, facts_of: str) -> str:
    """The release of torch; raises Skip where the resolver chooses it (``facts_of`` says on), or it is no usual one."""
    if torch.install is not None and (torch.install.url or nightly(torch.install)):
        raise Skip("the torch is no release of the usual index")
    if torch.version.missing or torch.version.value is None:
        raise Skip(f"no exact version of torch is given, so {facts_of}")
    return torch.version.value
