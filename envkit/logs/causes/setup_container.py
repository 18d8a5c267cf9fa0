"""The container engine and its GPU hook: no runtime, no driver behind it, a requirement, SELinux, shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._readers import of_root
from envkit.logs.causes._setup import gpus_listed, hypothesis, in_container, roots_of, words_seen
from envkit.logs.causes._worded import worded
from envkit.logs.knowledge import statements
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story

_OVER = ("cuda-init-no-device", "not-gpu-env", "insufficient-evidence", "missing-shared-library")


# what the lines of a failure of shared memory say, the plainest first, and the row that words it
_SHARED = {
    "too many open files": "shared-tensor-takes-a-file",
    "cannot allocate memory": "shared-tensor-without-memory",
    "no space left": "shared-memory-full",
    "bus error": "shared-memory-too-small",
    "no such file": "shared-tensor-gone",
    "shared memory": "shared-memory-too-small",
}


@of_root("docker-no-gpu-driver")
def engine_without_gpus(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """The engine cannot give GPUs at all (moby, containerd, podman and CDI error texts)."""
    says = statements("engine").get(event.signature.id)
    cause = says.cause if says else "container-config"
    because = says.because if says else "the container engine has no way to give GPUs"
    if words_seen(story, "snap services docker", "/snap/docker", "snap install docker"):
        because += ", and the docker of snap brings its own"
    yield worded("engine-without-gpus", event, cause=cause, why=because)


@of_root("nvidia-container-cli-init-error", "cli-wsl", "cli-error")
def hook_failed(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """nvidia-container-cli failed; what follows its name is the fault (container toolkit, troubleshooting)."""
    cause, because = _hook_cause(story, event)
    yield hypothesis(event, cause, Strength.LIKELY, because, over=(*_OVER, "docker-no-gpu-driver"))


def requirement(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The image's NVIDIA_REQUIRE_* against the host's driver."""
    for event in roots_of(story, "nvidia-container-cli-requirement-error")[:1]:
        condition = event.values.get("condition") or event.values.get("text") or "a condition"
        driver = story.value("driver")
        because = f"the image requires {condition.strip()}"
        if speaks := story.value("driver_cuda"):
            because += f", and the driver{f' {driver}' if driver else ''} speaks CUDA {speaks}"
        elif driver:
            because += f", and the driver is {driver}"
        yield hypothesis(event, "version-mismatch", Strength.DECISIVE, because, over=(*_OVER, "driver-too-old"))


def selinux(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """SELinux denies the way to docker or to the GPU."""
    for event in roots_of(story, "selinux-docker-wrapper", "selinux-wrapper")[:1]:
        plain = event.line.text.lower()
        named = event.signature.id == "selinux-wrapper" or "nvidia" in plain or words_seen(story, "nvidia")
        strength = Strength.LIKELY if named else Strength.FALLBACK
        yield worded("selinux-denies", event, strength=strength, over=_OVER if named else ())


def shared_memory(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Shared memory for the loader's workers ran out (torch.utils.data, signal handling of workers)."""
    own = roots_of(story, "dataloader-shm-bus-error", "shm-bus-worker", "shm-object", "shm-object-old", "shm-bus")
    # the errno in the same line may have been found first, by a row for all files
    found = own or tuple(event for event in story.roots if "</torch_" in event.line.text)
    if not found:
        return
    event = found[0]
    plain = " ".join(each.line.text.lower() for each in found)
    if event.signature.id == "shm-bus-worker":
        plain += " bus error"
    yield worded(next((id for words, id in _SHARED.items() if words in plain), "shared-tensor-not-made"), event)


def _hook_cause(story: Story, event: Event) -> tuple[str, str]:
    plain = event.line.text.lower()
    kind = event.values.get("kind", "")
    engine = words_seen(story, "snap services docker", "/snap/docker", "rootless", "docker desktop", "desktop-linux")
    lost = ("gpu is lost", "requires reset", "gpu has fallen")
    if any(word in plain for word in lost):
        return "hardware-fault", "a GPU of the host does not answer"
    if "timed out" in plain or "nvml error: unknown error" in plain or ("insufficient" in plain and "nvml" in plain):
        return "driver-firmware-fault", "the driver of the host does not answer as it should"
    if "unknown device" in plain or "invalid device" in plain or "device not found" in plain:
        return "launch-config", "a device was asked for that the machine does not have"
    if "permission denied" in plain or "operation not permitted" in plain:
        return "container-config", "the toolkit may not open the driver's device files or set the device rules"
    if event.signature.id == "cli-hook-direct":
        return "container-config", "this machine takes GPUs by the runtime only: --runtime nvidia in place of --gpus"
    if event.signature.id == "cli-error-enroot":
        return "container-config", "the container toolkit's cli is not installed on this machine"
    if "file exists" in plain or "file creation failed" in plain:
        return "container-config", "the image holds files of the driver where the toolkit mounts the host's"
    driver = ("driver not loaded", "no adapters were found", "libnvidia-ml", "libcuda", "no cuda-capable", "libdxcore")
    if any(word in plain for word in driver) or kind in ("initialization", "driver"):
        works = gpus_listed(story)
        if engine or works is not None:
            return "container-config", "the engine does not see the driver's libraries, though the host has them"
        return "no-gpu-or-driver", "the host has no working driver for the toolkit to bring in"
    if "cgroup" in plain or "device rules" in plain or "bpf" in plain or "device filter" in plain:
        return "container-config", "the engine may not write the container's device rules"
    if "ldconfig" in plain or kind == "ldcache":
        return "container-config", "the toolkit could not refresh the library cache inside the container"
    where = "in this container engine" if in_container(story) else "on this machine"
    return "container-config", f"the toolkit could not set the container up {where}"
