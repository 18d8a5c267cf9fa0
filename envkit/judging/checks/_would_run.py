"""Which image and which build of torch would run on a machine: what checks of drivers and GPUs name in their fixes."""

from __future__ import annotations

from collections.abc import Sequence

from envkit.errors import UsageError
from envkit.facts import Facts, ImageTag, TorchRow
from envkit.judging.checks import _cuda_stack as stack
from envkit.subjects.dockerfile import Base
from envkit.versions import Cuda, Driver


def driver_runs(cuda: Cuda, driver: str, facts: Facts) -> bool:
    """Whether a program for ``cuda`` runs on a release or a branch of the driver, by minor-version compatibility alone;
    without a driver every one does, and of what the facts do not know none."""
    if not driver:
        return True
    try:
        wanted = Driver(driver)
    except ValueError:
        return False
    floor = facts.driver_min(cuda).compat
    if floor is None:
        return False
    return wanted.major >= floor.major if len(wanted.parts) == 1 else wanted >= floor


def torch_for(version: str, driver: str, gpus: Sequence[str], facts: Facts) -> str:
    """The build of torch ``version`` that runs on the driver and has code for the GPUs, else the newest torch of which
    one does, as a fix names it ("torch==A.B.C+cuXYZ from ADDRESS"); "" where none is known."""
    try:
        wanted = [facts.gpu(name) for name in gpus]
    except UsageError:
        return ""
    fitting = [
        row
        for row in facts.torches
        if row.published
        and driver_runs(row.cuda, driver, facts)
        and all(facts.coverage(row, one.sm, one.tegra).state == "sass" for one in wanted)
    ]
    same = [row for row in fitting if str(row.torch) == version.partition("+")[0]]
    best = max(same or fitting, key=lambda row: (row.torch, row.cuda), default=None)
    return _named(best) if best is not None else ""


def _named(row: TorchRow) -> str:
    return f"torch=={row.name} from {row.index}"


def base_for(base: Base, driver: str, facts: Facts) -> str:
    """The newest tag like the base's (flavor, cuDNN, system) that runs on the driver: of nvidia/cuda one whose CUDA the
    driver speaks, so that it starts on every GPU; "" for other images, and where there is none."""
    image = {"nvidia": "nvidia/cuda", "pytorch": "pytorch/pytorch"}.get(base.family, "")
    if not image or not base.repository.endswith(image):
        return ""
    try:
        native = facts.native_cuda(facts.oldest_release(Driver(driver)))
    except ValueError:
        return ""
    cudnn = "cudnn" in base.tag if image == "nvidia/cuda" else None
    like = facts.image_tags(image, flavor=stack.said(base.flavor) or None, cudnn=cudnn)
    fitting = [tag for tag in like if not tag.row.removed and _starts(tag, native, driver, facts)]
    best = max(fitting, key=lambda tag: _likeness(tag, base), default=None)
    return f"{base.repository}:{best.reference.rpartition(':')[2]}" if best is not None else ""


def _starts(tag: ImageTag, native: Cuda | None, driver: str, facts: Facts) -> bool:
    if tag.row.image != "nvidia/cuda":
        return driver_runs(tag.row.cuda, driver, facts)  # most of these images require nothing of the driver
    required = tag.row.require_cuda or tag.row.cuda.upto(2)
    return native is not None and required <= native and tag.row.cuda.upto(2) <= native


def _likeness(tag: ImageTag, base: Base) -> tuple[bool, bool, tuple[int, ...], str]:
    """The same system first, then any Ubuntu; of these the newest torch or CUDA."""
    system = tag.row.os or ""
    newest = tag.row.torch.parts if tag.row.torch is not None else tag.row.cuda.parts
    return system == stack.said(base.os), system.startswith("ubuntu"), newest, system
