"""What a machine asks of an image, in the names that a spec and a command line have for it."""

from __future__ import annotations

from envkit.errors import UsageError, one_line
from envkit.facts import Facts
from envkit.subjects import Host
from envkit.subjects.host import Gpu


def of_machine(host: Host, facts: Facts) -> tuple[tuple[str, ...], str]:
    """The machine's GPUs, each product once, and its driver, as a spec names them.

    Raises UsageError where NVML answered for no GPU.
    """
    seen = host.nvml.value
    if seen is None or not seen.gpus:
        why = seen.detail if seen else host.nvml.missing
        said = f"no NVIDIA GPU was found on this machine{f': {one_line(why)}' if why else ''}"
        raise UsageError(said, "name what the image must run on with --gpu, such as --gpu H100")
    names = dict.fromkeys(_product(gpu, facts) for gpu in seen.gpus)
    if "" in names:
        raise UsageError("NVML does not name every GPU of this machine", "see `envkit doctor`, or name them with --gpu")
    return tuple(names), seen.driver


def _product(gpu: Gpu, facts: Facts) -> str:
    """The name by which the facts know a GPU, or its compute capability where they do not know the product."""
    try:
        return facts.gpu(gpu.name.value or "").name
    except UsageError:
        return gpu.sm.value or ""
