"""What questions to the facts give: coverage of a GPU, the drivers of a CUDA or a GPU, one tag of an image."""

from __future__ import annotations

from typing import Literal

from envkit.facts.rows import CudnnRow, ImageRow
from envkit.records import dataclass
from envkit.versions import Driver, Sm


@dataclass(frozen=True, slots=True)
class Coverage:
    """Whether a torch build has code for a GPU.

    ``sass``: machine code that it runs; ``ptx``: only code that its driver must compile first; ``none``:
    neither; ``unknown``: the build's architectures were not read.  ``by`` is the architecture that serves,
    None for the last two.
    """

    state: Literal["sass", "ptx", "none", "unknown"]
    by: Sm | None = None


@dataclass(frozen=True, slots=True)
class DriverFloor:
    """The oldest drivers for one CUDA, each None where it was not read, each with its source.

    ``own`` is what NVIDIA names for the toolkit itself: from there on everything works.  ``compat`` is the
    floor of minor-version compatibility: from there to ``own`` the runtime works, but PTX of this toolkit and
    functions that need a newer driver do not (NVIDIA, CUDA compatibility, minor-version compatibility).
    """

    own: Driver | None
    own_source: str
    compat: Driver | None
    compat_source: str


@dataclass(frozen=True, slots=True)
class GpuDrivers:
    """The driver branches that know a GPU: from ``first`` to ``last``, each None where there is no bound or none was
    read; ``needs`` is the oldest driver that NVIDIA names for the first CUDA that targets it."""

    first: int | None
    last: int | None
    needs: Driver | None
    source: str
    seen: str

    def known_to(self, driver: Driver) -> bool:
        """Whether the branch of ``driver`` is one of them."""
        return (self.first or 0) <= driver.major and (self.last is None or driver.major <= self.last)


@dataclass(frozen=True, slots=True)
class CudnnCode:
    """Whether a cuDNN has code for a GPU, and the row that says so.

    ``has``: it was read in its libraries; ``none``: NVIDIA's support matrix of the release begins above the GPU;
    ``unseen``: the one library that was read has none, which is a hint and no proof; ``unknown``: nothing was read.
    """

    state: Literal["has", "none", "unseen", "unknown"]
    row: CudnnRow | None = None


@dataclass(frozen=True, slots=True)
class ImageTag:
    """One tag of a public base image; ``flavor`` is "base", "runtime" or "devel", ``cudnn`` says if it has cuDNN."""

    reference: str
    flavor: str
    cudnn: bool
    digest: str | None
    row: ImageRow
