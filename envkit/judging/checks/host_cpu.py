"""What is asked of a machine's processors and clocks."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._host import gpu_signs, is_workstation, need_gpu, nvml_answers
from envkit.judging.checks._outcomes import note, skip_if, warning
from envkit.judging.checks._rows import rows
from envkit.model import Finding, Severity, Unknown
from envkit.subjects import Host
from envkit.subjects.host.system import Frequency

# drivers whose "powersave" is no fixed low clock, but follows the load (kernel documentation, intel_pstate, amd-pstate)
_FOLLOW_THE_LOAD = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
_LIMIT_PERCENT = 95  # of the hardware's most; a proposal: drivers round the same limit differently by a step or two
_EACH_GPU = 2  # processors: Primus' node smoke test names fewer as the usual cause of low figures
_TOO_HOT = 0.01  # of the time since boot; a proposal: a server that is cooled as planned shows none
# clock sources that are read through a device, at microseconds a call, where the processor's own takes 20 ns
_SLOW_CLOCKS = ("hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies")
_FAST_CLOCKS = (
    *("tsc", "tsc-early", "kvm-clock", "xen", "hyperv_clocksource_tsc_page", "hyperv_clocksource_msr"),
    *("arch_sys_counter", "arch_mem_counter", "timebase", "tod", "riscv_clocksource"),
)
_USED, _NEARLY_ALL = 0.80, 0.95  # leptonai/gpud's degrees for open files and for threads


def granted(host: Host) -> tuple[float, str]:
    """The processors that this process may keep busy, and what says so: its affinity or its group's quota."""
    usable = host.processors.need("the processors").usable
    quota = host.control_group.need("this process's control group").processors
    if 0 <= quota < usable:
        return quota, f"{host.control_group.via}: quota"
    return usable, f"{host.processors.via}: affinity"


def host_cpus_offline(host: Host) -> Iterator[Finding]:
    """All processors that are present are online.

    Siblings that are offline because simultaneous multithreading is off are meant to be.
    """
    seen = host.processors.need("the processors")
    missing = seen.present - seen.online
    if seen.smt in ("off", "forceoff") and seen.online * 2 == seen.present:
        return
    if missing:
        yield warning(
            f"{missing} of {seen.present} processors are offline",
            "/sys/devices/system/cpu",
            {f"{seen.online} of {seen.present} online": host.processors.via},
            "look for what took them offline with `dmesg | grep -i cpu`; bring one back with "
            "`echo 1 > /sys/devices/system/cpu/cpuN/online`; check it with `lscpu`",
        )


def host_cpu_governor_limits_clock(host: Host) -> Iterator[Finding]:
    """No governor holds the processors' clocks down."""
    frequencies = host.scaling.need("how the processors' clocks are set").frequencies
    skip_if(not frequencies, "the kernel does not set this machine's processor clocks")
    others = [one for one in frequencies if one.governor != "performance"]
    low = [one for one in others if one.governor == "powersave" and not _follows(one)]
    for one in low or (others if others and _serves(host) else []):
        yield _governor(one, host.scaling.via)


def _follows(one: Frequency) -> bool:
    """Whether "powersave" of this driver follows the load, and was not told to prefer the battery."""
    return one.driver in _FOLLOW_THE_LOAD and one.preference != "power"


def _serves(host: Host) -> bool:
    """Whether this is a server with GPUs; raises Unknown where it has some and NVML does not name them."""
    signs, silent = gpu_signs(host)
    if not signs and not silent:
        return False
    gpus = nvml_answers(host).gpus
    for gpu in gpus:
        gpu.name.need(f"the name of GPU {gpu.index}")
    return bool(gpus) and not any(is_workstation(gpu) for gpu in gpus)


def _governor(one: Frequency, via: str) -> Finding:
    preference = f" and prefers `{one.preference}`" if one.preference else ""
    return warning(
        f"{one.processors} processors are governed by `{one.governor}` of {one.driver}{preference}",
        "/sys/devices/system/cpu/*/cpufreq",
        {one.governor: via},
        "kernel launches depend on the clock of one processor: `cpupower frequency-set -g performance`; check it with "
        "`cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor`",
    )


def host_cpu_clock_limited(host: Host) -> Iterator[Finding]:
    """The processors may run as fast as they can."""
    scaling = host.scaling.need("how the processors' clocks are set")
    skip_if(not scaling.frequencies, "the kernel does not set this machine's processor clocks")
    for one in scaling.frequencies:
        if one.limit * 100 < one.most * _LIMIT_PERCENT:
            yield warning(
                f"{one.processors} processors are held to {one.limit // 1000} MHz of {one.most // 1000} MHz",
                "/sys/devices/system/cpu/*/cpufreq",
                {f"{one.limit} kHz": f"{host.scaling.via}: scaling_max_freq"},
                f"lift the limit: `cpupower frequency-set -u {one.most}kHz`; check it with `cpupower frequency-info`",
            )
    if scaling.boost == "off":
        yield note(
            "the processors' turbo is switched off",
            "/sys/devices/system/cpu",
            {"off": host.scaling.via},
            "`echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo`, or "
            "`echo 1 > /sys/devices/system/cpu/cpufreq/boost`, or the firmware's setup; check it with "
            "`cpupower frequency-info`",
        )


def host_cpu_thermal_throttling(host: Host) -> Iterator[Finding]:
    """Heat did not slow the processors for a noticeable time since boot."""
    skip_if(host.throttling.is_unsupported, "the processors do not count the time that heat costs")
    seen = host.throttling.need("the time that heat cost")
    uptime = host.uptime.need("the time since boot")
    if seen.worst_ms > 1000 * _TOO_HOT * max(uptime, 1):
        yield warning(
            f"heat slowed a processor package for {seen.worst_ms / 1000:.0f} s of {uptime} s since boot",
            "/sys/devices/system/cpu/*/thermal_throttle",
            {f"{seen.worst_ms} ms": host.throttling.via},
            "check fans, dust, heat sinks and the room's cooling; check it with "
            "`grep . /sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_total_time_ms`",
        )


def host_too_few_cpus_per_gpu(host: Host) -> Iterator[Finding]:
    """This process may use at least _EACH_GPU processors for each GPU."""
    need_gpu(host)
    gpus = len(nvml_answers(host).gpus)
    here, via = granted(host)
    if here < _EACH_GPU * gpus:
        yield warning(
            f"{here:g} processors are granted to this process and it sees {gpus} GPUs, {_EACH_GPU} are needed for each",
            "this process",
            {f"{here:g} processors": via},
            "ask the scheduler for more (`srun -c`, `docker run --cpus`, `--cpuset-cpus`); check it with `nproc` and "
            "`cat /sys/fs/cgroup/cpu.max`",
        )


def host_omp_threads_exceed_cpus(host: Host) -> Iterator[Finding]:
    """No thread pool will be larger than the processors that this process is granted."""
    variables = host.environment.need("the environment")
    usable = host.processors.need("the processors").usable
    here, via = granted(host)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        text = variables.get(name)
        if text is None:
            continue
        words = [word.strip() for word in text.split(",")]
        # what is no number of threads is host-variable-invalid's
        wanted = int(words[0]) if words[0].isdecimal() else 0
        if wanted > max(here, 1):
            yield warning(
                f"{name} asks for {wanted} threads and {here:g} processors are granted to this process",
                name,
                {f"{name}={text}": host.environment.via, f"{here:g} processors": via},
                f"set {name} to at most {max(int(here), 1)} divided by the processes of a job; check it with `nproc`",
            )
    if "OMP_NUM_THREADS" not in variables and here * 2 <= usable:
        yield warning(
            f"OMP_NUM_THREADS is not set, so that each pool has {usable} threads on a quota of {here:g} processors",
            "OMP_NUM_THREADS",
            {f"{here:g} processors": via, f"{usable} processors": host.processors.via},
            f"`export OMP_NUM_THREADS={max(int(here), 1)}` or less, or grant a set of processors in place of a quota",
        )


def host_clocksource_slow(host: Host) -> Iterator[Finding]:
    """The kernel reads the time from the processor, not from a device."""
    clock = host.clock.need("the clock source")
    if clock.source in _SLOW_CLOCKS:
        yield warning(
            f"the kernel reads the time from {clock.source}, through a device",
            "/sys/devices/system/clocksource/clocksource0",
            {clock.source: host.clock.via},
            "find out why the kernel stopped using the processor's counter with `dmesg | grep -i clocksource`; "
            "update the "
            "firmware, or boot with `tsc=reliable` where the vendor vouches for it",
        )
    elif clock.source not in _FAST_CLOCKS:
        raise Unknown(f"the speed of the clock source `{clock.source}` is not known")


def host_threads_near_limit(host: Host) -> Iterator[Finding]:
    """The machine is far from the most threads that its kernel allows."""
    seen = host.tasks.need("the count of threads")
    most = min(seen.most_threads, seen.most_pids)
    if seen.threads >= _USED * most:
        name = "kernel.pid_max" if seen.most_pids <= seen.most_threads else "kernel.threads-max"
        yield Finding(
            f"{seen.threads} threads run and the kernel allows {most} ({name})",
            Severity.ERROR if seen.threads >= _NEARLY_ALL * most else Severity.WARNING,
            name,
            {str(seen.threads): host.tasks.via},
            f"end leftover processes, or raise the limit with `sysctl {name}=4194304`; check it with `ps -eLf | wc -l`",
        )


CHECKS = rows(__name__)
