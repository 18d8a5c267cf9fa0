"""What /sys and /proc say of processors and clocks."""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections import Counter

from envkit.host.root import HostRoot, by_name, short
from envkit.model import Observed
from envkit.subjects.host.system import Clock, Frequency, Processors, Scaling, Synchronisation, Tasks, Throttling

_CPU = "sys/devices/system/cpu"
_MOST_PROCESSORS = 8192  # NR_CPUS of the largest distribution kernels

_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h
_STA_UNSYNC = 0x0040  # linux/timex.h
_TIME_ERROR = 5  # linux/timex.h: what adjtimex returns for a clock that nobody disciplines


class _Timex(ctypes.Structure):
    """struct timex of linux/timex.h as far as it is read, and room for the rest."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    ]


def parse_list(text: str) -> tuple[int, ...]:
    """The numbers of the kernel's list format ("0-3,8"); raises ValueError for anything else."""
    found: list[int] = []
    for part in text.strip().split(",") if text.strip() else []:
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if high < low or high >= _MOST_PROCESSORS:
            raise ValueError(f"`{part}` is no range of processors")
        found += range(low, high + 1)
    return tuple(found)


def _word(place: HostRoot, name: str) -> str:
    """The text of a file that need not be there; empty if it is not."""
    try:
        return place.word(name)
    except (FileNotFoundError, NotADirectoryError):
        return ""


def processors(place: HostRoot) -> Observed[Processors]:
    """The processors by number; raises OSError or ValueError where /sys does not tell."""
    present = parse_list(place.word(f"{_CPU}/present"))
    online = parse_list(place.word(f"{_CPU}/online"))
    if not online or not set(online) <= set(present):
        raise ValueError(f"{len(online)} processors online of {len(present)}")
    allowed = re.search(r"^Cpus_allowed_list:\s*(.*)$", place.word("proc/self/status"), re.MULTILINE)
    if allowed is None:
        raise ValueError("no Cpus_allowed_list in /proc/self/status")
    usable = set(parse_list(allowed[1])) & set(online)
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", place.word("proc/cpuinfo"), re.MULTILINE)
    guest = flags is not None and "hypervisor" in flags[1].split()
    smt = _word(place, f"{_CPU}/smt/control")
    return Observed.of(Processors(len(present), len(online), len(usable), smt, guest), f"/{_CPU}")


def scaling(place: HostRoot) -> Observed[Scaling]:
    """The governors and limits of all processors; nothing where the kernel sets no clocks."""
    seen: Counter[tuple[str, str, str, int, int]] = Counter()
    for name in place.names(_CPU):
        base = f"{_CPU}/{name}/cpufreq"
        if not re.fullmatch(r"cpu[0-9]+", name) or not _word(place, f"{base}/scaling_driver"):
            continue  # an offline processor has the directory's remains at most
        driver, governor = place.word(f"{base}/scaling_driver"), place.word(f"{base}/scaling_governor")
        preference = _word(place, f"{base}/energy_performance_preference")
        limit, most = int(place.word(f"{base}/scaling_max_freq")), int(place.word(f"{base}/cpuinfo_max_freq"))
        seen[driver, governor, preference, limit, most] += 1
    kinds = tuple(Frequency(count, *kind) for kind, count in sorted(seen.items()))
    return Observed.of(Scaling(kinds, _boost(place)), f"/{_CPU}")


def _boost(place: HostRoot) -> str:
    """Whether turbo is on: intel_pstate says whether it is off, the other drivers whether it is on."""
    off, on = _word(place, f"{_CPU}/intel_pstate/no_turbo"), _word(place, f"{_CPU}/cpufreq/boost")
    if off:
        return "off" if off != "0" else "on"
    return {"": "", "0": "off"}.get(on, "on")


def throttling(place: HostRoot) -> Observed[Throttling]:
    """The time that heat cost, by package; unsupported where the processors do not count it."""
    worst: dict[str, int] = {}
    for name in place.names(_CPU):
        if re.fullmatch(r"cpu[0-9]+", name):
            text = _word(place, f"{_CPU}/{name}/thermal_throttle/package_throttle_total_time_ms")
            package = _word(place, f"{_CPU}/{name}/topology/physical_package_id")
            if text and package:
                worst[package] = max(worst.get(package, 0), int(text))
    if not worst:
        return Observed.unsupported(f"/{_CPU}")
    return Observed.of(Throttling(len(worst), max(worst.values())), "package_throttle_total_time_ms")


def clock(place: HostRoot) -> Observed[Clock]:
    """The clock source in use and the others."""
    base = "sys/devices/system/clocksource/clocksource0"
    source = place.word(f"{base}/current_clocksource")
    if not re.fullmatch(r"\S+", source):
        raise ValueError(f"`{source[:40]}` is no clock source")
    others = tuple(name for name in place.word(f"{base}/available_clocksource").split() if name != source)
    return Observed.of(Clock(source, others), f"/{base}/current_clocksource")


def synchronisation(place: HostRoot) -> Observed[Synchronisation]:
    """What the running kernel says of its clock; a recorded tree has none."""
    if not place.live:
        return Observed.lost("a recorded tree does not run")
    asked = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked))
    if state < 0:
        return Observed.lost(os.strerror(ctypes.get_errno()).lower(), "adjtimex")
    well = state != _TIME_ERROR and not asked.status & _STA_UNSYNC
    return Observed.of(Synchronisation(well, asked.maxerror), "adjtimex")


def parse_uptime(text: str) -> float:
    """The seconds since boot out of /proc/uptime; raises ValueError or IndexError on anything else."""
    seconds = float(text.split()[0])
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"`{text[:40]}` is no time")
    return seconds


def uptime(place: HostRoot) -> Observed[int]:
    """Seconds since boot."""
    return Observed.of(int(parse_uptime(place.word("proc/uptime"))), "/proc/uptime")


def tasks(place: HostRoot) -> Observed[Tasks]:
    """Threads and open files of the whole machine, and the most there can be."""
    running = re.fullmatch(r"[0-9]+/([0-9]+)", place.word("proc/loadavg").split()[3])
    if running is None:
        raise ValueError("no count of tasks in /proc/loadavg")
    files, _, most_files = place.word("proc/sys/fs/file-nr").split()
    threads, pids = (int(place.word(f"proc/sys/kernel/{name}")) for name in ("threads-max", "pid_max"))
    seen = Tasks(int(running[1]), threads, pids, int(files), int(most_files))
    return Observed.of(seen, "/proc/loadavg, /proc/sys/fs/file-nr")


def container(place: HostRoot) -> Observed[str]:
    """The engine whose container this is, "none" outside: by the marks that engines leave.

    A virtual machine whose root was made of a container's image bears its marks, and is none.
    """
    engine = _container(place)
    if engine != "none" and _whole_machine(place):
        return Observed.of("none", "/proc/self/ns/pid, /proc/self/mountinfo")
    return Observed.of(engine, "/.dockerenv, /run, environment")


def _whole_machine(place: HostRoot) -> bool:
    """Whether this process is in the kernel's first PID namespace and its root is the root of a block device."""
    try:
        namespace = os.readlink(place.root / "proc/self/ns/pid")
        mounts = place.word("proc/self/mountinfo").splitlines()
    except OSError:
        return False
    if namespace != f"pid:[{_FIRST_PID_NAMESPACE}]":
        return False
    # "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw": what is mounted, where, and of which device (proc(5))
    words = [line.split() for line in mounts]
    return any(each[3:5] == ["/", "/"] and each[-2].startswith("/dev/") for each in words if len(each) > 6)


def _container(place: HostRoot) -> str:
    """The engine whose marks are here: files, systemd's word, or variables of Apptainer and Kubernetes."""
    for file, engine in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if place.exists(file):
            return engine
    if told := _word(place, "run/systemd/container"):
        return told.split()[0]
    for variable, engine in (
        ("APPTAINER_CONTAINER", "apptainer"),
        ("SINGULARITY_CONTAINER", "singularity"),
        ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ):
        if place.environ.get(variable):
            return engine
    return "none"


def settings(place: HostRoot) -> Observed[dict[str, Observed[str]]]:
    """Switches of the kernel; each is read by itself, for some may be denied."""
    found: dict[str, Observed[str]] = {}
    for name, path in _SETTINGS.items():
        try:
            text = place.word(path)
        except (FileNotFoundError, NotADirectoryError):
            found[name] = Observed.unsupported(f"/{path}")
        except OSError as error:
            found[name] = Observed.lost(f"/{path}: {short(error)}", f"/{path}")
        else:
            chosen = re.search(r"\[(\w+)\]", text)  # "always [madvise] never"
            found[name] = Observed.of(chosen[1] if chosen else text, f"/{path}")
    return Observed.of(found, "/proc/sys, /sys/kernel")


_SYSCTLS = (
    *("kernel.numa_balancing", "kernel.perf_event_paranoid", "kernel.yama.ptrace_scope"),
    *("vm.max_map_count", "vm.overcommit_memory", "vm.zone_reclaim_mode"),
)
_SETTINGS = {name: f"proc/sys/{name.replace('.', '/')}" for name in _SYSCTLS}
_SETTINGS["transparent_hugepage"] = "sys/kernel/mm/transparent_hugepage/enabled"

SOURCES = by_name(container, settings, processors, clock, synchronisation, uptime, tasks, scaling, throttling)
