"""What the checks over GPUs share: asking each of them, and comparing those that are of one product."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from envkit.judging.checks._host import gathered, gpu_name, need_driver, nvml_answers
from envkit.judging.checks._made import check_by
from envkit.judging.checks._outcomes import skip_if, unknown_if
from envkit.model import Finding, Observed, Unknown
from envkit.subjects import Host
from envkit.subjects.host import Gpu

T = TypeVar("T")

BUSY = 90  # percent of the last sample in which a kernel ran: below it, clocks and links may rest


def each_gpu(host: Host, judge: Callable[[Gpu], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings about every GPU; ``judge`` raises Skip for a GPU that has no such thing, Unknown for a doubt.

    A finding that names no place is at its GPU.  An error of one GPU outranks a doubt about another, and a doubt
    outranks everything else.  Raises Skip if every GPU was skipped, Unknown if NVML lists none; skips without a driver.
    """
    need_driver(host)
    gpus = nvml_answers(host).gpus
    unknown_if(not gpus, "NVML lists no GPU")

    def placed(gpu: Gpu) -> Iterator[Finding]:
        yield from (replace(finding, where=finding.where or where(gpu)) for finding in judge(gpu))

    yield from gathered(gpus, placed, gpu_name)


def each_product(host: Host, judge: Callable[[str, list[Gpu]], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings about the GPUs of one product, for every product of which there are at least two.

    Raises as ``each_gpu`` does; skips if no product is there twice, Unknown if a GPU's name was not observed.
    """
    need_driver(host)
    products: dict[str, list[Gpu]] = {}
    nameless: list[Gpu] = []
    for gpu in nvml_answers(host).gpus:
        if gpu.name.value is None:
            nameless.append(gpu)
        else:
            products.setdefault(gpu.name.value, []).append(gpu)

    def alike(product: str) -> Iterator[Finding]:
        skip_if(len(products[product]) < 2, "no two GPUs of one product to compare")
        yield from judge(product, products[product])

    if products:
        doubt = f"the name of {gpu_name(nameless[0])} was not observed" if nameless else ""
        yield from gathered(tuple(products), alike, lambda product: product, doubt)
    else:
        raise Unknown("no GPU's name was observed")


of_each_gpu, of_each_product = check_by(each_gpu), check_by(each_product)


def told(seen: Observed[T], what: str) -> T:
    """The value; raises Skip where the GPU has no such thing, Unknown where it was not observed."""
    skip_if(seen.is_unsupported, f"no GPU here reports {what}")
    return seen.need(what)


def known(seen: Observed[T], what: str, absent: T) -> T:
    """The value, ``absent`` where the GPU has no such thing; raises Unknown where it was not observed."""
    return absent if seen.is_unsupported else seen.need(what)


def where(gpu: Gpu) -> str:
    """A GPU as the place of a finding."""
    return f"GPU {gpu.index}"


def is_laptop(gpu: Gpu) -> bool:
    """Whether the GPU shares its power and its cooling with a laptop's processor, which moves its limits all day."""
    return re.search(r"Laptop|Mobile|Max-Q", gpu.name.value or "") is not None


def is_coherent(gpu: Gpu) -> bool:
    """Whether the operating system itself may keep pages in the GPU's memory, as on Grace Hopper and its successors."""
    return re.search(r"\bG[BH]\d", gpu.name.value or "") is not None


def in_mig(gpu: Gpu) -> bool:
    """Whether the GPU is cut into instances; raises Unknown if that was not observed."""
    return known(gpu.mig, "the MIG mode", "unsupported") == "on"


def is_busy(gpu: Gpu) -> bool:
    """Whether a program keeps the GPU at work; raises Skip where the GPU does not tell (MIG), Unknown for a doubt."""
    return told(gpu.utilization, "its utilization") >= BUSY
