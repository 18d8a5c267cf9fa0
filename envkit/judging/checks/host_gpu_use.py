"""What is asked of who uses a machine's GPUs: that a job may, and that nobody does who should not."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._gpus import BUSY, each_gpu, in_mig, is_coherent, known, of_each_gpu, told
from envkit.judging.checks._host import gpu_name, is_workstation
from envkit.judging.checks._outcomes import error, note, skip_if, warning
from envkit.model import Finding, Severity, Skip
from envkit.subjects import Host
from envkit.subjects.host import Gpu
from envkit.subjects.host.gpu import Process

# AMD-AGI/Primus, node_smoke, calls a GPU in use from here on.  A driver's own reserve, which old ones count as used, is
# 0.5 GiB on an H100 and 1 percent on larger ones.
_USED = 2 * 1024**3
_MPS_SERVER = "nvidia-cuda-mps-server"
_WHO = "check it with `nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv`"


def _processes(gpu: Gpu) -> tuple[Process, ...]:
    """The processes on the GPU; skips in MIG mode, where they belong to instances and are shown to root alone."""
    skip_if(in_mig(gpu), "the processes of a GPU in MIG mode are those of its instances")
    return told(gpu.processes, "its processes")


def _need_sight(host: Host) -> None:
    """Skips in a container, whose processes are all that the driver shows there."""
    if host.container.need("whether this is a container") != "none":
        raise Skip("in a container the processes of others are not shown")


@of_each_gpu
def host_compute_mode_not_default(gpu: Gpu) -> Iterator[Finding]:
    """Every GPU lets several processes compute."""
    mode = told(gpu.compute_mode, "its compute mode")
    if mode == "default":
        return
    prohibited = "prohibited" in mode
    if not prohibited and any(_is_server(process) for process in gpu.processes.value or ()):
        return
    yield Finding(
        f"the compute mode of {gpu_name(gpu)} is {mode}",
        Severity.ERROR if prohibited else Severity.WARNING,
        evidence={mode: gpu.compute_mode.via},
        fix=f"run `nvidia-smi -i {gpu.index} -c DEFAULT`; check it with `nvidia-smi -q -d COMPUTE`",
    )


def _is_server(process: Process) -> bool:
    return process.name.startswith(_MPS_SERVER[:15])  # as long as the kernel keeps a name


@of_each_gpu
def host_mig_change_pending(gpu: Gpu) -> Iterator[Finding]:
    """No change of the MIG mode waits for a reset."""
    mode = told(gpu.mig, "a MIG mode")
    skip_if(mode == "unsupported", "no GPU here reports a MIG mode")
    pending = told(gpu.mig_pending, "a pending MIG mode")
    if mode != pending:
        yield warning(
            f"MIG is {mode} on {gpu_name(gpu)} and will be {pending} after a reset",
            evidence={f"now {mode}": gpu.mig.via, f"pending {pending}": gpu.mig_pending.via},
            fix=f"stop all GPU programs and run `nvidia-smi --gpu-reset -i {gpu.index}`, or take the change back with "
            f"`nvidia-smi -i {gpu.index} -mig {int(mode == 'on')}`; check it with `nvidia-smi -q | grep -A2 MIG`",
        )


@of_each_gpu
def host_mig_without_instances(gpu: Gpu) -> Iterator[Finding]:
    """A GPU in MIG mode has instances to compute on."""
    skip_if(not in_mig(gpu), "no GPU is in MIG mode")
    if told(gpu.mig_instances, "its MIG instances") == 0:
        yield error(
            f"{gpu_name(gpu)} is in MIG mode and has no instance: no program can use it",
            evidence={"MIG on": gpu.mig.via, "0 instances": gpu.mig_instances.via},
            fix="make instances with `nvidia-smi mig -cgi <profile> -C`, or turn MIG off with "
            f"`nvidia-smi -i {gpu.index} -mig 0`; check it with `nvidia-smi -L`",
        )


@of_each_gpu
def host_idle_mps_server(gpu: Gpu) -> Iterator[Finding]:
    """No MPS server waits on a GPU without a client."""
    processes = _processes(gpu)
    servers = [process for process in processes if _is_server(process)]
    if servers and not any(process.kind == "mps" and process not in servers for process in processes):
        pid = servers[0].pid
        yield note(
            f"an MPS server (process {pid}) holds {gpu_name(gpu)} and has no client",
            evidence={f"process {pid}, {servers[0].name}": gpu.processes.via},
            fix=f"if no job wants it, `echo quit | nvidia-cuda-mps-control`; {_WHO}",
        )


@of_each_gpu
def host_gpu_used_by_other_user(gpu: Gpu) -> Iterator[Finding]:
    """No other user's program computes on a GPU."""
    processes = _processes(gpu)
    used = known(gpu.memory_used, "its memory in use", 0)
    others = [one for one in processes if one.kind != "graphics" and not one.mine and not _is_server(one)]
    skip_if(not processes and used >= _USED and not is_coherent(gpu), "the GPU is in use, and by whom is not shown")
    if others:
        named = ", ".join(f"{one.pid} ({one.name or 'no name'})" for one in others[:4])
        yield note(
            f"{len(others)} processes of other users compute on {gpu_name(gpu)}: {named}",
            evidence={f"process {one.pid}": gpu.processes.via for one in others[:4]},
            fix=f"choose another GPU, or wait; a process that a job left behind can be ended by its owner; {_WHO}",
        )


def host_gpu_memory_used_without_process(host: Host) -> Iterator[Finding]:
    """No GPU has 2 GiB of memory in use without a process that holds it."""

    def judge(gpu: Gpu) -> Iterator[Finding]:
        skip_if(is_coherent(gpu), "the operating system may keep pages in the memory of this GPU")
        used = told(gpu.memory_used, "its memory in use")
        if known(gpu.virtual, "whether it is shared out", "none").startswith("host"):
            raise Skip("the memory of a GPU that is divided into vGPUs belongs to virtual machines")
        if _processes(gpu) or used < _USED:
            return
        _need_sight(host)
        yield warning(
            f"{gpu_name(gpu)} has {used / 1024**3:.1f} GiB of memory in use and no process that holds it",
            evidence={f"{used} bytes": gpu.memory_used.via, "no process": gpu.processes.via},
            fix="a killed job left it behind, or a process that waits for ever in the driver holds it: look for one "
            f"with `fuser -v /dev/nvidia*`, then reset the GPU with `nvidia-smi --gpu-reset -i {gpu.index}`; {_WHO}",
        )

    yield from each_gpu(host, judge)


def host_gpu_busy_without_process(host: Host) -> Iterator[Finding]:
    """No GPU is busy without a process that uses it."""

    def judge(gpu: Gpu) -> Iterator[Finding]:
        load = told(gpu.utilization, "its utilization")
        if _processes(gpu) or load < BUSY:
            return
        if known(gpu.persistence, "persistence mode", "on") == "off":
            raise Skip("without persistence mode a GPU shows load while it starts")
        _need_sight(host)
        yield warning(
            f"{gpu_name(gpu)} is {load} percent busy, and no process uses it",
            evidence={f"{load} percent": gpu.utilization.via, "no process": gpu.processes.via},
            fix="ask again in a minute; if it stays, a kernel outlived its process: reset the GPU with "
            f"`nvidia-smi --gpu-reset -i {gpu.index}`; {_WHO}",
        )

    yield from each_gpu(host, judge)


@of_each_gpu
def host_graphics_on_compute_gpu(gpu: Gpu) -> Iterator[Finding]:
    """No screen and no graphics program is on a GPU that is made for computing."""
    skip_if(is_workstation(gpu), "workstation GPUs draw on screens")
    processes = _processes(gpu)
    screen = known(gpu.display, "whether a screen is drawn on", "off") == "on"
    drawing = [one for one in processes if one.kind == "graphics"]
    if screen or drawing:
        named = ", ".join(f"{one.pid} ({one.name or 'no name'})" for one in drawing[:4])
        yield note(
            f"graphics run on {gpu_name(gpu)}: {named or 'a screen is drawn on'}",
            evidence={named: gpu.processes.via} if named else {"on": gpu.display.via},
            fix="a display server takes memory and time from jobs: `systemctl set-default multi-user.target` and "
            "reboot, or give it another GPU; check it with `nvidia-smi`",
        )
