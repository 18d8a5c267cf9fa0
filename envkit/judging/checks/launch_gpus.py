"""What is asked of the GPUs that a job gets: that they are there, well, free, whole, and seen by the process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from envkit.facts import Facts
from envkit.judging.checks._host import docker_engine, gpu_name, gpu_signs, is_loaded
from envkit.judging.checks._launch import AGAIN, declared, given, judge_each, said, some, some_given, variables, wanted
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.judging.variables import cuda_devices, rows, withholds_gpus
from envkit.model import Finding, Severity, Unknown
from envkit.subjects.host.gpu import Fabric, Gpu, Process, RowRemap
from envkit.subjects.launch import Launch

_VISIBLE, _NVIDIA_VISIBLE = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_TAKEN = 0.1  # of a GPU's memory: a desktop's screen takes 2 % of 24 GB; a proposal


def launch_gpu_missing(launch: Launch) -> Iterator[Finding]:
    """Every GPU that the job names is on the machine, and there is at least one."""
    names = wanted(launch)
    signs, silent = gpu_signs(launch.host)
    if not silent and (not signs or not is_loaded(launch.host)):
        lack = "the NVIDIA driver is not loaded" if signs else "this machine has no NVIDIA GPU"
        yield error(
            f"the job gets GPU {', '.join(names)} and {lack}",
            "--gpus",
            signs or {"none on the PCI bus, in /dev and in NVML": launch.host.pci_gpus.via},
            f"run `envkit doctor` to see what is missing, or use a machine that has GPUs; {AGAIN}",
        )
        return
    found = given(launch)
    count = len(launch.host.nvml.need("NVML").gpus)
    if found.strange or not found.gpus:
        asked = ", ".join(found.strange or names)
        yield error(
            f"the job gets GPU {asked} and this machine has {count}",
            "--gpus",
            {asked: launch.job.gpus.via, f"{count} GPUs": "nvmlDeviceGetCount"},
            f"name GPUs that `nvidia-smi -L` lists, or take a machine that has them; {AGAIN}",
        )


def launch_more_ranks_than_gpus(launch: Launch) -> Iterator[Finding]:
    """There is a GPU for every rank of the job on this machine."""
    ranks = declared(launch.job.ranks, "how many ranks run here")
    gpus = some_given(launch)
    shown = variables(launch).get(_VISIBLE)
    count = len(gpus) if shown is None else min(len(gpus), len([one for one in shown.split(",") if one.strip()]))
    if ranks > count:
        yield error(
            f"{ranks} ranks run here on {count} GPUs",
            "ranks",
            {f"{ranks} ranks": launch.job.ranks.via, f"{count} GPUs": launch.job.gpus.via},
            f"start as many ranks as there are GPUs (`--nproc-per-node={count}`), or give more GPUs; {AGAIN}",
        )


def launch_local_rank_without_gpu(launch: Launch) -> Iterator[Finding]:
    """LOCAL_RANK of the job counts a GPU that it gets."""
    text = variables(launch).get("LOCAL_RANK", "").strip()
    skip_if(not text.isdecimal(), "LOCAL_RANK is not set to a number")
    count = len(some_given(launch))
    if int(text) >= count:
        yield Finding(
            f"LOCAL_RANK is {text} and the job gets {some(count, 'GPU')}, counted from 0",
            # a launcher that gives each rank a container and one GPU counts the machine's ranks all the same
            Severity.ERROR if count > 1 else Severity.WARNING,
            "LOCAL_RANK",
            {**said(launch, "LOCAL_RANK"), f"{count} GPUs": launch.job.gpus.via},
            f"let the launcher set it, or give the job as many GPUs as it has local ranks; {AGAIN}",
        )


def launch_gpu_unhealthy(launch: Launch) -> Iterator[Finding]:
    """No GPU that the job gets is in a state in which it must not be used."""
    gpus = some_given(launch)

    def bad(gpu: Gpu, what: str, via: str, severity: Severity = Severity.ERROR) -> Finding:
        return Finding(
            f"{gpu_name(gpu)} {'must not' if severity is Severity.ERROR else 'should not'} be used: {what}",
            severity,
            f"GPU {gpu.index}",
            {what: via},
            f"leave it out of --gpus, and reset or replace it: `envkit doctor` says which; {AGAIN}",
        )

    def state(gpu: Gpu, word: str) -> Iterator[Finding]:
        if word != "answers":
            yield bad(gpu, f"its state is {word}", gpu.state.via)

    def recovery(gpu: Gpu, word: str) -> Iterator[Finding]:
        if word not in ("none", "unsupported"):
            yield bad(gpu, f"the driver asks for {word}", gpu.recovery.via)

    def rows(gpu: Gpu, remap: RowRemap) -> Iterator[Finding]:
        if remap.supported and (remap.failed or remap.pending):
            what = "a memory row could not be remapped" if remap.failed else "a memory row remap is pending"
            yield bad(gpu, what, gpu.remap.via, Severity.ERROR if remap.failed else Severity.WARNING)

    def errors(gpu: Gpu, count: int) -> Iterator[Finding]:
        if count > 0:
            yield bad(gpu, f"{some(count, 'uncorrected memory error')} since the driver was loaded", "NVML")

    def fabric(gpu: Gpu, link: Fabric) -> Iterator[Finding]:
        if link.state not in ("completed", "not supported") or link.status:
            yield bad(gpu, f"its NVLink fabric is {link.state} with status {link.status}", gpu.fabric.via)

    doubts: list[str] = []
    yield from judge_each(gpus, "the state", lambda gpu: gpu.state, state)
    well = tuple(gpu for gpu in gpus if gpu.state.value == "answers")
    steps: tuple[Callable[[], list[Finding]], ...] = (
        lambda: judge_each(well, "the recovery action", lambda gpu: gpu.recovery, recovery),
        lambda: judge_each(well, "row remapping", lambda gpu: gpu.remap, rows),
        lambda: judge_each(well, "uncorrected memory errors", lambda gpu: gpu.ecc_uncorrected, errors),
        lambda: judge_each(well, "the fabric", lambda gpu: gpu.fabric, fabric),
    )
    for step in steps:
        try:
            yield from step()
        except Unknown as doubt:
            doubts.append(str(doubt))
    unknown_if(doubts, "; ".join(doubts))  # an error that was found stands beside it


def launch_gpu_in_use(launch: Launch) -> Iterator[Finding]:
    """Nobody else computes on the GPUs that the job gets, and little of their memory is taken."""
    gpus = some_given(launch)

    def mode(gpu: Gpu, word: str) -> Iterator[Finding]:
        if word == "prohibited":
            yield error(
                f"the compute mode of {gpu_name(gpu)} is {word}: no program can use it",
                f"GPU {gpu.index}",
                {word: gpu.compute_mode.via},
                f"set it back with `nvidia-smi -i {gpu.index} -c DEFAULT`; {AGAIN}",
            )

    def busy(gpu: Gpu, found: tuple[Process, ...]) -> Iterator[Finding]:
        others = [one for one in found if one.kind == "compute"]
        if others:
            names = ", ".join(f"{one.name or 'a process'} ({one.pid})" for one in others[:3])
            yield warning(
                f"{some(len(others), 'process')} of others on {gpu_name(gpu)} already: {names}",
                f"GPU {gpu.index}",
                {str(one.pid): gpu.processes.via for one in others[:5]},
                f"end them, or give the job other GPUs; {AGAIN}",
            )

    def taken(gpu: Gpu, used: int) -> Iterator[Finding]:
        whole = gpu.memory.need(f"the memory of {gpu_name(gpu)}")
        if whole and used > whole * _TAKEN:
            yield warning(
                f"{100 * used / whole:.0f} % of the memory of {gpu_name(gpu)} is taken",
                f"GPU {gpu.index}",
                {f"{used} of {whole} bytes": gpu.memory_used.via},
                "`nvidia-smi` names the processes that it can see; a reset frees memory that no process holds; "
                f"{AGAIN}",
            )

    modes = judge_each(gpus, "the compute mode", lambda gpu: gpu.compute_mode, mode)
    running = judge_each(gpus, "the processes", lambda gpu: gpu.processes, busy)
    yield from modes or running or judge_each(gpus, "the memory in use", lambda gpu: gpu.memory_used, taken)


def launch_whole_gpu_in_mig_mode(launch: Launch) -> Iterator[Finding]:
    """No GPU that the job gets whole is cut into MIG instances."""
    gpus = some_given(launch)
    names = wanted(launch)
    whole = [gpu for gpu in gpus if not any(re.fullmatch(rf"{gpu.index}:[0-9]+", name) for name in names)]
    skip_if(not whole, "the job names MIG instances")

    def judge(gpu: Gpu, mode: str) -> Iterator[Finding]:
        if mode != "on":
            return
        count = gpu.mig_instances.value
        several = len(gpus) > 1
        yield Finding(
            f"{gpu_name(gpu)} is in MIG mode"
            + (f" with {count} instances" if count is not None else "")
            + (f", and the job wants {len(gpus)} GPUs" if several else ", and the job would see one instance"),
            Severity.WARNING if count and not several else Severity.ERROR,
            f"GPU {gpu.index}",
            {mode: gpu.mig.via},
            f"turn it off with `nvidia-smi -i {gpu.index} -mig 0` and reset the GPU, or name an instance; {AGAIN}",
        )

    yield from judge_each(tuple(whole), "the MIG mode", lambda gpu: gpu.mig, judge)


def launch_gpu_models_mixed(launch: Launch) -> Iterator[Finding]:
    """The GPUs that the job gets are of one product."""
    gpus = some_given(launch)
    skip_if(len(gpus) < 2, "the job gets one GPU")
    names = sorted({gpu.name.need(f"the name of GPU {gpu.index}") for gpu in gpus})
    if len(names) > 1:
        order = variables(launch).get("CUDA_DEVICE_ORDER")
        yield warning(
            f"the job gets {' and '.join(names)}, and CUDA_DEVICE_ORDER is {order or 'not set'}",
            "--gpus",
            dict.fromkeys(names, "nvmlDeviceGetName"),
            f"give GPUs of one product, and set CUDA_DEVICE_ORDER=PCI_BUS_ID where they differ; {AGAIN}",
        )


def launch_cuda_visible_devices_invalid(launch: Launch) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES of the job names GPUs that the container will have, each once and in one way."""
    text = variables(launch).get(_VISIBLE)
    gpus = some_given(launch)
    if text is None:
        return
    complaint = cuda_devices(text, len(gpus), lambda at: gpus[at].uuid.need(f"the UUID of GPU {gpus[at].index}"))
    severity = Severity.ERROR
    hidden = len(gpus) - len(text.split(","))
    if not complaint and hidden > 0:
        complaint, severity = f"is `{text}` and hides {hidden} of the {len(gpus)} GPUs of the job", Severity.WARNING
    if complaint:
        yield Finding(
            f"{_VISIBLE} {complaint}",
            severity,
            _VISIBLE,
            {**said(launch, _VISIBLE), f"{len(gpus)} GPUs": launch.job.gpus.via},
            f"choose with --gpus and unset {_VISIBLE}, or name GPUs from 0 to {len(gpus) - 1}; {AGAIN}",
        )


def launch_nvidia_visible_devices_hides_gpus(launch: Launch) -> Iterator[Finding]:
    """NVIDIA_VISIBLE_DEVICES does not withhold the GPUs that the job wants."""
    wanted(launch)
    skip_if(launch.job.way.value == "cdi", "the job's GPUs are passed by CDI, which does not use this variable")
    env = variables(launch)
    text = env.get(_NVIDIA_VISIBLE)
    fix = f"take {_NVIDIA_VISIBLE} out of the job, or set it to all; {AGAIN}"
    if text is None:
        if env.get("CUDA_VERSION") and not env.get("NVIDIA_REQUIRE_CUDA"):
            return  # an image of the old kind gets all
        yield note(
            f"{_NVIDIA_VISIBLE} is not set: --gpus brings GPUs, `--runtime nvidia` alone brings none",
            _NVIDIA_VISIBLE,
            {"not set": launch.job.environment.via},
            fix,
        )
        return
    if withholds_gpus(text):
        yield error(
            f"the job wants GPUs and {_NVIDIA_VISIBLE} is `{text}`, with which the toolkit's runtime mounts none",
            _NVIDIA_VISIBLE,
            said(launch, _NVIDIA_VISIBLE),
            fix,
        )


def launch_driver_capabilities_incomplete(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """NVIDIA_DRIVER_CAPABILITIES, where it is set, holds compute and utility and no unknown word."""
    wanted(launch)
    text = variables(launch).get(_CAPABILITIES, "")
    if not text.strip():
        return  # the default is compute,utility
    words = {one.strip() for one in text.split(",") if one.strip()}
    hook = launch.job.way.value != "cdi"
    faults = [
        (f"the unknown word {word}", Severity.ERROR) for word in sorted(words - set(rows(facts)[_CAPABILITIES].values))
    ]
    if "all" not in words:
        faults += [("no compute, so libcuda is not mounted", Severity.ERROR)] if "compute" not in words else []
        faults += [("no utility, so NVML is not mounted", Severity.WARNING)] if "utility" not in words else []
    for fault, severity in faults:
        yield Finding(
            f"{_CAPABILITIES} is `{text}` and holds {fault}",
            severity if hook else Severity.WARNING,
            _CAPABILITIES,
            said(launch, _CAPABILITIES),
            f"set {_CAPABILITIES}=compute,utility with what else is wanted; {AGAIN}",
        )


def launch_engine_cannot_pass_gpus(launch: Launch) -> Iterator[Finding]:
    """The engine knows the way by which the job's GPUs shall enter the container."""
    names = wanted(launch)
    way = declared(launch.job.way, "how GPUs are passed to the job")
    if way == "none":
        yield error(
            f"the job gets GPU {', '.join(names)} but nothing says how the GPU is passed to the container",
            "--gpus",
            {way: launch.job.way.via},
            f"give it by `--device nvidia.com/gpu=all` or `--gpus all`; {AGAIN}",
        )
        return
    docker = docker_engine(launch.host)
    if way == "hook":
        programs = launch.host.toolkit.need("the container toolkit").programs
        if "nvidia" not in docker.runtimes and "nvidia-container-runtime-hook" not in programs:
            yield error(
                f"the engine has the runtimes {', '.join(docker.runtimes) or 'none'} and the toolkit has no hook",
                docker.endpoint,
                {", ".join(docker.runtimes) or "none": "/info Runtimes", "no hook": launch.host.toolkit.via},
                "install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker` and restart "
                f"Docker; {AGAIN}",
            )
        return
    if not docker.cdi_dirs.need("whether the engine reads CDI specifications"):
        yield error(
            f"the GPUs are to be passed by CDI, and Docker {docker.version} reads no CDI specification",
            docker.endpoint,
            {"no CDI directory": docker.cdi_dirs.via},
            'set {"features": {"cdi": true}} in /etc/docker/daemon.json and restart Docker; ' + AGAIN,
        )
        return
    specs = launch.host.cdi.need("the CDI specifications")
    known = {device for spec in specs for device in spec.devices} | set(docker.cdi_devices.value or ())
    missing = [name for name in names if f"nvidia.com/gpu={name}" not in known]
    if missing:
        yield error(
            f"no CDI specification defines nvidia.com/gpu={missing[0]}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            "/etc/cdi",
            {f"{len(known)} devices": launch.host.cdi.via},
            f"write one with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; {AGAIN}",
        )
