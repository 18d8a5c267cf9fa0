"""What the checks of compose files, manifests and devcontainers share."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._outcomes import skip_if
from envkit.model import Span
from envkit.subjects.dockerfile import Dockerfile
from envkit.subjects.workload import Container, FileValue, GpuRequest, Workload

MIB = 1024 * 1024
GIB = 1024 * MIB
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtpe]?)(i?)(b?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_CPU = re.compile(r"(?:^|[-_.])cpu(?:[-_.]|\Z)", re.IGNORECASE)
_CPU_OPTION = re.compile(r"--(?:use-)?cpu(?:=|\Z)|--device=cpu\Z")
_FAMILIES = ("nvidia", "pytorch", "ngc")
# Images of servers that run on NVIDIA's GPUs, where their tag names no other maker's.
_FOR_GPUS = re.compile(
    r"vllm/vllm-openai|lmsysorg/sglang|ghcr\.io/huggingface/text-generation-inference|nvcr\.io/nim/.+"
)
_OTHER_MAKE = re.compile(r"rocm|intel|xpu|cpu|gaudi|hpu|npu|ascend|trainium|neuron|tpu", re.IGNORECASE)


def need_containers(workload: Workload) -> tuple[Container, ...]:
    """The containers that stay; raises Skip where the file starts none."""
    skip_if(not workload.containers, "the file starts no container")
    return workload.containers


def requests(container: Container) -> tuple[GpuRequest, ...]:
    """The GPU requests that give GPUs: Kubernetes' own requests follow the limits."""
    return tuple(one for one in container.gpus if one.form != "request")


def evident(container: Container) -> Iterator[tuple[str, Span]]:
    """What shows that a container is made for NVIDIA GPUs, each with its place.

    Nothing for one whose name or command says that it is for CPUs.
    """
    if _CPU.search(container.name) or any(_CPU_OPTION.match(word.value) for word in container.command):
        return
    base = container.base
    if base is not None and base.sure and container.image is not None:
        cuda = "" if base.cuda.missing else base.cuda.value or ""
        if base.family in _FAMILIES and cuda not in ("", "cpu"):
            yield f"image {container.image.value} with CUDA {cuda}", container.image.span
        elif _FOR_GPUS.fullmatch(base.repository) and not _OTHER_MAKE.search(base.tag):
            yield f"image {container.image.value}, which is made for them", container.image.span
    built = container.built
    if built is not None and built.torch is not None and not built.torch.cuda.missing:
        if built.torch.cuda.value not in (None, "", "cpu") and _meant(built):
            yield f"{built.path} installs torch for CUDA {built.torch.cuda.value}", container.span
    elif built is not None and not built.base_cuda.missing and built.base_cuda.value:
        yield f"{built.path} is built from CUDA {built.base_cuda.value}", container.span
    if container.allotted is not None:
        yield f"the job asks for {container.allotted.value} GPUs", container.allotted.span
    chosen = container.env.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and chosen.sure and chosen.value.strip() not in ("", "-1", "none", "void", "NoDevFiles"):
        yield f"CUDA_VISIBLE_DEVICES={chosen.value}", chosen.span


def _meant(built: Dockerfile) -> bool:
    """Whether a torch for CUDA was chosen: what the default index serves has CUDA in it, wanted or not."""
    torch = built.torch
    install = None if torch is None else torch.install
    if install is None or (not built.base_cuda.missing and built.base_cuda.value):
        return True
    if visible_in(built):
        return True
    named = (install.local, install.url, install.index, *install.extra_indexes, *install.find_links)
    return install.manager == "conda" or any(re.search(r"cu[0-9]{2,3}", each) for each in named)


def visible_in(built: Dockerfile) -> str:
    """NVIDIA_VISIBLE_DEVICES as a Dockerfile or its base sets it, "" where neither does."""
    if not built.stages:
        return ""
    return built.target.env.get("NVIDIA_VISIBLE_DEVICES") or built.base.variables.get("NVIDIA_VISIBLE_DEVICES", "")


def visible(container: Container) -> str:
    """NVIDIA_VISIBLE_DEVICES as the container gets it, "" where neither file nor image sets it."""
    if "NVIDIA_VISIBLE_DEVICES" in container.env:
        said = container.env["NVIDIA_VISIBLE_DEVICES"]
        return said.value if said is not None else "?"
    if container.base is not None:
        return container.base.variables.get("NVIDIA_VISIBLE_DEVICES", "")
    return visible_in(container.built) if container.built is not None else ""


def number(said: FileValue | None) -> int | None:
    """A whole number as written, None for anything else."""
    if said is None or not said.sure or not re.fullmatch(r"-?[0-9]{1,9}", said.value.strip()):
        return None
    return int(said.value)


def gpu_count(container: Container) -> int | None:
    """How many GPUs the container gets, None where that depends on the machine; 0 where it asks for none."""
    asked = [one for one in requests(container) if one.form not in ("runtime", "host")]
    if not asked:
        return None if requests(container) else 0
    total = 0
    for one in asked:
        if not one.sure:
            return None
        if one.form == "node" or one.form == "claim" or (one.ids and "all" in one.ids):
            return None
        if one.form == "option":
            ids = re.fullmatch(r"[\"']*device=([^\"']+)[\"']*", one.count.value) if one.count else None
            counted = len(ids[1].split(",")) if ids else number(one.count)
        else:
            counted = len(one.ids) if one.ids else number(one.count)
        if counted is None or counted < 0:
            return None
        total += counted
    return total


def size(said: FileValue) -> int | None:
    """Bytes of a size as Docker or Kubernetes writes it ("2gb", "8Gi", "512M"), None for anything else.

    Docker's units are all powers of 1024; Kubernetes' without an "i" are powers of 1000, which differs by too little to
    matter here, so 1024 is taken for both.
    """
    if not said.sure:
        return None
    whole = _SIZE.fullmatch(said.value.strip())
    return int(float(whole[1]) * 1024 ** _POWERS[whole[2].lower()]) if whole else None


def amount(bytes_: int) -> str:
    """A size for a person."""
    return f"{bytes_ / GIB:.1f} GiB" if bytes_ >= GIB else f"{bytes_ // MIB} MiB"


def words(container: Container) -> tuple[FileValue, ...]:
    """The words of the command, those of a script handed to a shell one by one."""
    return tuple(
        FileValue(part, said.span, said.sure)
        for said in container.command
        for part in (said.value.split() if any(blank in said.value for blank in " \n") else (said.value,))
    )


def option(container: Container, *names: str) -> FileValue | None:
    """The value of an option of the command, whether joined by "=" or the next word; None where it is not given."""
    listed = words(container)
    for at, word in enumerate(listed):
        name, equals, value = word.value.partition("=")
        if name not in names:
            continue
        if equals:
            return FileValue(value, word.span, word.sure)
        if at + 1 < len(listed):
            return listed[at + 1]
    return None
