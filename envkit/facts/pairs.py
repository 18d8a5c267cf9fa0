"""Which releases of torchvision and torchaudio go with which torch, from the torch rows.

Their wheels name one torch exactly, and the rows list it; where a release asks for a range or names none, the row's
note says so (Requires-Dist of the wheels on PyPI).
"""

from __future__ import annotations

from collections.abc import Sequence

from envkit.facts import CudaBuildRow, Facts
from envkit.patterns import pattern
from envkit.versions import Cuda, Torch

_ASKS_ONLY = pattern(r"(torchvision|torchaudio) asks only torch>=([0-9.]+[0-9])")
_ASKS_NONE = pattern(r"(torchvision|torchaudio) pairs by upload day, its wheel METADATA names no torch")


def goes_with(package: str, version: str, torch: Torch, facts: Facts, cuda: Cuda | None = None) -> bool | None:
    """Whether ``version`` of "torchvision" or "torchaudio" is for ``torch``; None for other names and where no row
    tells.

    ``cuda`` is that of a torch from the default index, beside which the default build of the other is taken.
    """
    releases = facts.torches_of(package, version)
    if not releases:
        return None
    return str(torch) in releases or _in_range(package, releases, torch, facts, cuda)


def lacks_cuda(row: CudaBuildRow, cuda: Cuda) -> bool:
    """Whether the package of ``row`` has no library that it loads beside a torch for ``cuda``."""
    if row.match == "major":
        return all(one.major != cuda.major for one in row.cudas)
    return cuda.upto(2) not in {one.upto(2) for one in row.cudas}


def _in_range(package: str, releases: Sequence[str], torch: Torch, facts: Facts, cuda: Cuda | None) -> bool:
    for row in facts.torches:
        none = _ASKS_NONE.search(row.note)
        if none and none[1] == package and str(row.torch) in releases and torch >= row.torch:
            # Built on torch's stable interface, which later releases keep; but its import compares the two CUDA
            # versions, major and minor (torchaudio, _extension/utils.py, _check_cuda_version).
            return cuda is None or cuda.upto(2) == row.cuda.upto(2)
        found = _ASKS_ONLY.search(row.note)
        if found and found[1] == package:
            least = Torch(found[2])
            return torch >= least and all(Torch(release) >= least for release in releases)
    return False
