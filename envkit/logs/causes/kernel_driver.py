"""What the kernel log tells of a driver that could not start its GPUs, or whose parts do not fit.

Sources: NVIDIA open-gpu-kernel-modules (the sentences of nvidia.ko), NVIDIA driver README, chapter "Common problems".
"""

from __future__ import annotations

from collections.abc import Iterator

from envkit.facts import Facts
from envkit.facts.xid import slot
from envkit.logs.causes._worded import worded
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story

_NO_DEVICE = "cuda-init-no-device"


def driver_refuses_gpu(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The driver itself says that it does not serve this GPU: its release, or the open flavor of the kernel modules."""
    for event in story.of("gpu-not-supported")[:1]:
        yield worded("open-modules-refuse-gpu" if "open" in event.line.text else "release-refuses-gpu", event)


def gpu_owned_by_another_driver(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Another kernel driver, such as nouveau or vfio-pci, holds the GPUs."""
    for event in story.of("probe-not-called")[:1]:
        gpus = f"{event.values['total']} GPU{'s' if event.values['total'] != '1' else ''}"
        nouveau = story.of("nouveau-kernel")[:1]
        who = "nouveau" if nouveau else "another kernel driver"
        strength = Strength.DECISIVE if nouveau else Strength.LIKELY
        yield worded("gpu-held-by-another-driver", event, *nouveau, strength=strength, who=who, gpus=gpus)


def driver_start_failed(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The driver found a GPU and could not start it; the message of the cause stands before that line, if any does."""
    failed = story.of("rm-init", "probe-failed", "probe-error", "driver-no-adapter")
    if not failed or story.of("probe-not-called", "gpu-needs-open", "gpu-legacy", "gpu-not-supported", "bar-invalid"):
        return
    event = next((one for one in failed if one.signature.id == "rm-init"), failed[0])
    if story.of("rm-attach"):
        yield worded("gpu-registers-not-mapped", event.line, event=_gpu(event))
        return
    code = f" (its code is {event.values['code']})" if event.values.get("code") else ""
    strength = Strength.LIKELY if event.signature.id == "rm-init" else Strength.POSSIBLE
    yield worded("gpu-not-started", event, strength=strength, gpu=_gpu(event), code=code)


def kernel_module_of_another_version(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The kernel module says that a program brought driver libraries of another version."""
    for event in story.of("kernel-api-mismatch")[:1]:
        library = event.values.get("lib") or _near(story, event, "kernel-api-mismatch-client", "lib")
        module = _near(story, event, "kernel-api-mismatch-module", "driver")
        both = f": {library} against {module}" if library and module else ""
        yield worded("kernel-module-of-another-version", event.line, both=both)


def _near(story: Story, event: Event, id: str, value: str) -> str:
    """The value of the first such line of the few behind an event."""
    for other in story.of(id):
        if other.line.file == event.line.file and 0 <= other.line.number - event.line.number <= 4:
            return other.values.get(value) or ""
    return ""


def _gpu(event: Event) -> str:
    return f"GPU {slot(event.values['pci'])}" if event.values.get("pci") else "a GPU"
