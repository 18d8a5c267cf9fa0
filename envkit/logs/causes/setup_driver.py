"""The driver against the program: too old, of two versions, with a compat library, or with a fabric that is not up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest

from envkit.facts import Facts
from envkit.logs.causes._readers import of_root
from envkit.logs.causes._setup import hypothesis, in_container, started_without_gpus, unless_only_warned, words_seen
from envkit.logs.causes._worded import worded
from envkit.logs.codes import cuda_version
from envkit.logs.records import Event, Hypothesis, Role, Strength
from envkit.logs.story import Story
from envkit.versions import Driver

_NO_DEVICE = (
    "cuda-init-no-device", "cgroup-lost-gpu", "torch-not-compiled-with-cuda", "gpu-hardware-unknown-error",
    "nvidia-container-cli-init-error",
)  # fmt: skip
_FABRIC = "cuda-init-error-802-fabricmanager"
# what the runtime itself says, without any version
_NO_VERSIONS = ("driver-too-old-runtime", "driver-too-old-code", "driver-too-old-number")
_SERVICE = ("fabric-manager-version", "fabric-manager-failed", "fabric-manager-unit", "fabric-manager-nothing")


@of_root(
    "driver-too-old",
    *(f"driver-too-old-{by}" for by in ("ollama", "matlab", "torch", "jax", "ngc", "ngc-wrapped", "runtime")),
)
def driver_too_old(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """The driver speaks an older CUDA than the program brings (CUDA Runtime API, cudaErrorInsufficientDriver)."""
    speaks = _cuda(event.values.get("driver_cuda")) or _cuda(story.value("driver_cuda")) or _of_driver(story, facts)
    wants = _cuda(event.values.get("cuda")) or _cuda(story.value("cuda")) or _built_for(story)
    without = started_without_gpus(story, event)
    if event.signature.id != "driver-too-old-torch" and without is not None:
        yield worded("old-driver-is-no-driver", event, without)
        return
    strength = unless_only_warned(story, event, Strength.DECISIVE)
    if speaks and wants and _at_least(speaks, wants):
        least = min(strength, Strength.LIKELY)
        yield worded("newer-library-than-torch", event, strength=least, speaks=speaks, wants=wants)
        strength = Strength.POSSIBLE
    because = "the driver is older than the program's CUDA needs"
    if speaks:
        because = f"the driver speaks CUDA {speaks}, and the program needs {wants if wants else 'a newer one'}"
    elif event.values.get("driver"):
        because = f"the driver is {event.values['driver']}, and the program needs a newer one"
    elif not _served(story, event) and event.signature.id in _NO_VERSIONS:
        because = "the driver is older than the program's CUDA needs, or there is none: CUDA says the same of both"
        strength = min(strength, Strength.POSSIBLE)
        yield worded("no-driver-is-too-old", event)
    yield hypothesis(event, "version-mismatch", strength, because, over=_NO_DEVICE)


@of_root("driver-library-mismatch", "driver-mismatch-nvml", "cli-mismatch", "kernel-api-mismatch")
def driver_library_mismatch(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """Module and libraries of the driver differ (NVML_ERROR_LIB_RM_VERSION_MISMATCH, CUDA 803)."""
    libraries = story.value("userspace")
    because = "kernel module and libraries of the driver differ: it was updated without a reboot"
    module = next((value for value in (story.value("module"), _module(story)) if value and value != libraries), None)
    if libraries and module:
        because = f"libraries of {libraries} meet a kernel module of {module}"
    more = [other for other in story.events if other.values.get("userspace") or other.values.get("module")]
    strength = unless_only_warned(story, event, Strength.DECISIVE)
    over = (*_NO_DEVICE, "forward-compat-unsupported", "driver-too-old", "missing-shared-library")
    compat = _compat(story)
    if event.signature.id.startswith("driver-mismatch-803") and (compat or in_container(story)):
        seen = f": {compat.values['path']}" if compat else ""
        yield worded("foreign-libcuda-in-container", event, compat, seen=seen)
        strength = Strength.POSSIBLE
    yield hypothesis(event, "version-mismatch", strength, because, more=more[:2], over=over)


@of_root("forward-compat-unsupported")
def forward_compat(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """A compat libcuda where it cannot work (CUDA Compatibility guide: data centre GPUs and some drivers only)."""
    gpu = story.value("gpu")
    compat = _compat(story)
    strength = unless_only_warned(story, event, Strength.LIKELY)
    if compat is not None:
        yield worded("compat-folder-on-path", event, compat, strength=strength, path=compat.values["path"])
        strength = Strength.POSSIBLE
    at = f" on {gpu}" if gpu else ""
    driver = f" and the driver is {story.value('driver')}" if story.value("driver") else ""
    yield worded("compat-does-not-work", event, strength=strength, at=at, driver=driver)


@of_root(_FABRIC, "fabric-802", "fabric-code")
def fabric_not_ready(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """The NVSwitch fabric is not initialized (cudaErrorSystemNotReady; Fabric Manager user guide)."""
    service = story.of(*_SERVICE)
    if event.signature.id == "fabric-state" and not words_seen(story, "802", "cuda", "fabric"):
        return
    if not service:
        yield worded("fabric-not-ready", event, strength=unless_only_warned(story, event, Strength.LIKELY))
        return
    first = service[0]
    because = "the fabric manager's service did not start"
    if first.signature.id == "fabric-manager-version":
        manager, driver = first.values["userspace"], first.values["driver"]
        because = f"the fabric manager is of {manager} and the driver of {driver}: they must be the same"
    others = [other for other in (event, *service) if other is not first]
    yield worded("fabric-service-failed", first if first.role is Role.ROOT else event, *others[:2], why=because)


def _served(story: Story, event: Event) -> bool:
    """Whether something shows that there is a driver: its version, or a library that was reached through it."""
    return bool(story.value("driver")) or "cudnn handle" in event.line.text


def _compat(story: Story) -> Event | None:
    """The line by which the loader finds a compat libcuda: a library path, or the first of ldconfig's list."""
    told = (*story.of("setup-library-path"), *story.of("setup-ldconfig")[:1])
    return next((event for event in told if "compat" in event.values.get("path", "")), None)


def _cuda(text: str | None) -> str | None:
    """A CUDA version as people write it, from 'A.B' or from the runtime's integer."""
    if text and text.isdigit():
        return cuda_version(int(text))
    return text if text and text[0].isdigit() and "." in text else None


def _of_driver(story: Story, facts: Facts) -> str | None:
    driver = story.value("driver") or ""
    if not re.fullmatch(r"[0-9]+(?:\.[0-9]+){1,2}", driver):  # of a line that was cut, a part
        return None
    native = facts.native_cuda(Driver(driver))
    return str(native) if native is not None else None


def _built_for(story: Story) -> str | None:
    """The CUDA in torch's local version, such as cu and three digits."""
    torch = story.value("torch") or ""
    digits = torch.partition("+cu")[2]
    return f"{digits[:-1]}.{digits[-1]}" if len(digits) == 3 and digits.isdigit() else None


def _at_least(one: str, other: str) -> bool:
    """Whether ``one`` is not older than ``other``; both are 'A.B' or longer."""
    pairs = zip_longest(one.split(".")[:2], other.split(".")[:2], fillvalue="0")
    for left, right in pairs:
        if left != right:
            return left.isdigit() and right.isdigit() and int(left) > int(right)
    return True


def _module(story: Story) -> str | None:
    """The kernel module's version by the kernel's own lines."""
    told = (event.values.get("driver") for event in story.of("nvrm-version", "kernel-api-mismatch-module"))
    return next(filter(None, told), None)
