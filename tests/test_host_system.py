"""Processors, memory, drives, remote mounts, names and services: their readers, on trees that were written here."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from clocks import costs_less, ends

from envkit.host import cpu, disks, memory, names, remote, services
from envkit.host.observe import Group, read_groups
from envkit.host.root import HostRoot, Source
from envkit.model import Observed
from envkit.subjects.host import Service
from envkit.subjects.host.system import (
    Clock,
    ControlGroup,
    Frequency,
    Memory,
    MemoryController,
    Mount,
    NamedPath,
    NumaNode,
    NvmeDrive,
    Processors,
    Raid,
    Scaling,
    Tasks,
    Throttling,
)

READERS = {
    "cpu": cpu.SOURCES,
    "memory": memory.SOURCES,
    "disks": disks.SOURCES,
    "remote": remote.SOURCES,
    "names": names.SOURCES,
    "services": services.SOURCES,
}
CPU = "sys/devices/system/cpu"
LIVE = HostRoot(Path("/"), {})


def tree(root: Path, files: Mapping[str, str], environ: Mapping[str, str] | None = None) -> HostRoot:
    """A tree with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return HostRoot(root, environ or {})


STATUS = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-1,3\n"


def test_processors(tmp_path: Path) -> None:
    files = {
        f"{CPU}/present": "0-3\n",
        f"{CPU}/online": "0-2\n",
        f"{CPU}/smt/control": "on\n",
        "proc/self/status": STATUS,
        "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu tsc hypervisor\n\nprocessor\t: 1\nflags\t\t: fpu\n",
    }
    assert cpu.processors(tree(tmp_path, files)).value == Processors(4, 3, 2, "on", True)


@pytest.mark.parametrize("text", ["x", "3-1", "0-99999999", "1,,2"])
def test_a_list_of_processors_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        cpu.parse_list(text)


def test_frequencies_are_told_apart_and_counted(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for number, governor in ((0, "performance"), (2, "performance"), (3, "powersave")):
        base = f"{CPU}/cpu{number}/cpufreq"
        files |= {
            f"{base}/scaling_driver": "intel_pstate\n",
            f"{base}/scaling_governor": f"{governor}\n",
            f"{base}/energy_performance_preference": "balance_performance\n",
            f"{base}/scaling_max_freq": "3800000\n",
            f"{base}/cpuinfo_max_freq": "3800000\n",
        }
    files |= {f"{CPU}/cpu1/topology/core_id": "3\n", f"{CPU}/intel_pstate/no_turbo": "1\n"}
    seen = cpu.scaling(tree(tmp_path, files)).value
    assert seen == Scaling(
        (
            Frequency(2, "intel_pstate", "performance", "balance_performance", 3800000, 3800000),
            Frequency(1, "intel_pstate", "powersave", "balance_performance", 3800000, 3800000),
        ),
        "off",
    )


def test_a_guest_has_no_frequencies_and_counts_no_heat(tmp_path: Path) -> None:
    place = tree(tmp_path, {f"{CPU}/cpu0/topology/physical_package_id": "0\n"})
    assert cpu.scaling(place).value == Scaling()
    assert cpu.throttling(place).is_unsupported


def test_the_worst_package_is_told(tmp_path: Path) -> None:
    files = {}
    for number, (package, spent) in enumerate((("0", "5"), ("0", "9"), ("1", "7"))):
        files[f"{CPU}/cpu{number}/topology/physical_package_id"] = package
        files[f"{CPU}/cpu{number}/thermal_throttle/package_throttle_total_time_ms"] = spent
    assert cpu.throttling(tree(tmp_path, files)).value == Throttling(2, 9)


def test_clock_uptime_tasks_and_container(tmp_path: Path) -> None:
    base = "sys/devices/system/clocksource/clocksource0"
    files = {
        f"{base}/current_clocksource": "hpet\n",
        f"{base}/available_clocksource": "tsc hpet acpi_pm \n",
        "proc/uptime": "599.93 4000.1\n",
        "proc/loadavg": "0.06 0.29 1.33 1/110 6216\n",
        "proc/sys/fs/file-nr": "596\t0\t2465959\n",
        "proc/sys/kernel/threads-max": "192727\n",
        "proc/sys/kernel/pid_max": "32768\n",
    }
    place = tree(tmp_path, files)
    assert cpu.clock(place).value == Clock("hpet", ("tsc", "acpi_pm"))
    assert cpu.uptime(place).value == 599
    assert cpu.tasks(place).value == Tasks(110, 192727, 32768, 596, 2465959)
    assert cpu.synchronisation(place).value is None
    assert cpu.container(place).value == "none"
    assert cpu.container(HostRoot(tmp_path, {"APPTAINER_CONTAINER": "/x.sif"})).value == "apptainer"
    (tmp_path / ".dockerenv").touch()
    assert cpu.container(place).value == "docker"


@pytest.mark.parametrize(
    ("namespace", "mount", "engine"),
    [
        ("4026531836", "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard", "none"),
        ("4026532841", "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard", "docker"),
        ("4026531836", "904 860 0:68 / / rw,relatime - overlay overlay rw,lowerdir=/l", "docker"),
        ("4026531836", "27 1 254:0 /docker/vfs/dir/1f / rw,relatime - ext4 /dev/vda rw", "docker"),
    ],
)
def test_a_machine_whose_root_was_an_image_is_no_container(
    tmp_path: Path, namespace: str, mount: str, engine: str
) -> None:
    place = tree(tmp_path, {".dockerenv": "", "proc/self/mountinfo": f"{mount}\n"})
    (tmp_path / "proc/self/ns").mkdir()
    (tmp_path / "proc/self/ns/pid").symlink_to(f"pid:[{namespace}]")
    assert cpu.container(place).value == engine


def test_this_kernel_says_whether_its_clock_is_synchronised() -> None:
    seen = cpu.synchronisation(LIVE)
    assert (seen.value is not None and seen.value.most_error_us >= 0) or seen.missing


def test_settings_are_read_one_by_one(tmp_path: Path) -> None:
    files = {
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "proc/sys/vm/overcommit_memory": "0\n",
    }
    place = tree(tmp_path, files)
    (tmp_path / "proc/sys/kernel/numa_balancing").mkdir(parents=True)
    seen = cpu.settings(place).need("settings")
    assert seen["transparent_hugepage"].value == "madvise"
    assert seen["vm.overcommit_memory"].value == "0"
    assert seen["vm.max_map_count"].is_unsupported
    assert "is a directory" in seen["kernel.numa_balancing"].missing


MEMINFO = (
    "MemTotal:       24683660 kB\nMemAvailable:   24121476 kB\nSwapTotal: 4 kB\nHugePages_Total:       8\n"
    "HugePages_Free:        6\nHugepagesize:       2048 kB\nCommitLimit: 7 kB\nCommitted_AS: 5 kB\n"
)


def test_memory_leaves_compressed_swap_out(tmp_path: Path) -> None:
    swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 8 8 100\n/swap.img file 8 3 -2\n"
    seen = memory.memory(tree(tmp_path, {"proc/meminfo": MEMINFO, "proc/swaps": swaps})).value
    page = 2 << 20
    assert seen == Memory(24683660 << 10, 24121476 << 10, 4096, 3072, 8 * page, 6 * page, 7168, 5120)


def test_nodes_and_their_free_blocks(tmp_path: Path) -> None:
    files = {
        "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       1024 kB\n",
        "sys/devices/system/node/node0/cpulist": "0-3\n",
        "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:       2048 kB\n",
        "sys/devices/system/node/node1/cpulist": "\n",
        "sys/devices/system/node/online": "0-1\n",
        "proc/buddyinfo": "Node 0, zone      DMA      9      0\n"
        "Node 0, zone   Normal      1      0      0      0      0      0      0      0      0      2      1 \n",
    }
    place = tree(tmp_path, files)
    large = (2 << 21) + (1 << 22)
    assert memory.numa(place).value == (NumaNode(0, 1 << 20, 4, 4096 + large, large), NumaNode(1, 2 << 20, 0))
    with pytest.raises(ValueError, match="buddyinfo"):
        memory.free_blocks("Node zero\n")


def test_memory_controllers(tmp_path: Path) -> None:
    place = tree(tmp_path, {"sys/devices/system/edac/mc/power/x": ""})
    assert memory.memory_errors(place).is_unsupported
    tree(
        tmp_path,
        {f"sys/devices/system/edac/mc/mc0/{name}": text for name, text in (("ce_count", "4"), ("ue_count", "1"))},
    )
    assert memory.memory_errors(place).value == (MemoryController("mc0", 4, 1),)


def test_the_tightest_group_of_version_2_counts(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        f"{base}/cgroup.controllers": "cpu memory pids\n",
        f"{base}/a/cpu.max": "250000 100000\n",
        f"{base}/a/memory.max": "1000\n",
        f"{base}/a/memory.current": "900\n",
        f"{base}/a/memory.stat": "anon 100\ninactive_file 300\nactive_file 100\n",
        f"{base}/a/pids.max": "max\n",
        f"{base}/a/b/cpu.max": "max 100000\n",
        f"{base}/a/b/memory.max": "2000\n",
        f"{base}/a/b/memory.current": "400\n",
        f"{base}/a/b/memory.stat": "anon 100\ninactive_file 0\nactive_file 0\n",
        f"{base}/a/b/memory.events": "low 0\noom 3\noom_kill 2\n",
        f"{base}/a/b/pids.max": "512\n",
        f"{base}/a/b/pids.current": "17\n",
    }
    assert memory.control_group(tree(tmp_path, files)).value == ControlGroup(2.5, 1000, 500, 512, 17, 2)


def test_groups_of_version_1_and_of_a_container_that_shares_names(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "9:pids:/docker/x\n7:memory:/docker/x\n1:cpu,cpuacct:/docker/x\n0::/\n",
        f"{base}/cpu/cpu.cfs_quota_us": "-1\n",
        f"{base}/cpu/cpu.cfs_period_us": "100000\n",
        f"{base}/memory/memory.limit_in_bytes": "5000\n",
        f"{base}/memory/memory.usage_in_bytes": "600\n",
        f"{base}/memory/memory.stat": "cache 1\ntotal_inactive_file 100\ntotal_active_file 0\n",
        f"{base}/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        f"{base}/pids/pids.max": "max\n",
    }
    assert memory.control_group(tree(tmp_path, files)).value == ControlGroup(-1, 5000, 500, -1, 0, 1)
    (tmp_path / base / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory.control_group(HostRoot(tmp_path, {})).value == ControlGroup(-1, -1, 0, -1, 0, 1)


def test_a_group_that_is_not_shown_is_lost(tmp_path: Path) -> None:
    place = tree(tmp_path, {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/other": ""})
    assert "none of this process's" in memory.control_group(place).missing


MOUNTINFO = r"""27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
28 27 254:1 / /data rw,relatime shared:7 - xfs /dev/sdb1 ro,attr2
29 27 254:1 / /data\040two ro - xfs /dev/sdb1 ro,attr2
30 27 254:0 /var /var/lib/docker rw - ext4 /dev/vda rw,discard
31 27 0:40 / /home rw - nfs4 filer:/home rw,vers=4.2
32 27 0:41 / /run/user/1000/doc rw - fuse.portal portal rw
33 27 0:42 / /mnt/far rw - fuse.sshfs ada@far:/ rw
34 27 0:43 / /proc rw - proc proc rw
"""


def test_mounts(tmp_path: Path) -> None:
    place = tree(tmp_path, {"proc/self/mountinfo": MOUNTINFO})
    assert disks.mounts(place).value == (
        Mount("/", "ext4", "/dev/vda"),
        Mount("/data", "xfs", "/dev/sdb1", False, True),
        Mount("/data two", "xfs", "/dev/sdb1", True, True),
    )
    assert [mount.path for mount in disks.parse_mounts(MOUNTINFO) if remote.is_remote(mount)] == ["/home", "/mnt/far"]
    assert "recorded tree" in remote.remote_mounts(place).missing
    with pytest.raises(ValueError, match="mountinfo"):
        disks.parse_mounts("27 1 254:0 / / rw\n")


def test_errors_of_ext4(tmp_path: Path) -> None:
    assert disks.file_system_errors(HostRoot(tmp_path, {})).value == {}
    place = tree(tmp_path, {"sys/fs/ext4/sda1/errors_count": "2\n", "sys/fs/ext4/features/lazy_itable_init": "x\n"})
    assert disks.file_system_errors(place).value == {"sda1": 2}


MDSTAT = """Personalities : [raid1] [raid0] [raid6] [raid5] [raid4]
md1 : active raid0 nvme4n1[2] nvme2n1[0]
      7501212672 blocks super 1.2 512k chunks

md0 : active (auto-read-only) raid1 nvme1n1p2[1] nvme0n1p2[0](F)
      1874716672 blocks super 1.2 [2/1] [_U]
      bitmap: 0/14 pages [0KB], 65536KB chunk

md2 : inactive sdb1[0](S)
      976630488 blocks super 1.2

md127 : inactive sdg[1](S) sdf[0](S)
      6306 blocks super external:imsm

md126 : active raid1 sdg[1] sdf[0]
      878903296 blocks super external:/md127/0 [2/2] [UU]

md3 : active raid5 sdd1[3] sdc1[1] sde1[0]
      1953260544 blocks super 1.2 level 5, 512k chunk, algorithm 2 [3/3] [UUU]
      [=>...................]  check =  8.5% (83100000/976630272) finish=70.1min speed=212400K/sec

unused devices: <none>
"""


def test_arrays(tmp_path: Path) -> None:
    assert disks.parse_mdstat(MDSTAT) == (
        Raid("md1", True, "raid0"),
        Raid("md0", True, "raid1", 2, 1, ("nvme0n1p2",)),
        Raid("md2", False),
        Raid("md126", True, "raid1", 2, 2),
        Raid("md3", True, "raid5", 3, 3),
    )
    assert disks.raids(HostRoot(tmp_path, {})).value == ()
    with pytest.raises(ValueError, match="Personalities"):
        disks.parse_mdstat("")


def test_nvme_and_lustre(tmp_path: Path) -> None:
    place = HostRoot(tmp_path, {})
    assert disks.nvme_drives(place).value == ()
    assert disks.lustre(place).is_unsupported
    tree(tmp_path, {"sys/class/nvme/nvme0/state": "dead\n", "proc/fs/lustre/health_check": "healthy\n"})
    assert disks.nvme_drives(place).value == (NvmeDrive("nvme0", "dead"),)
    assert disks.lustre(place).value == "healthy"


def test_room_has_inodes_and_flags(tmp_path: Path) -> None:
    disk = disks.room("temporary", str(tmp_path), HostRoot(Path("/"), {}))
    assert disk.flags.value is not None
    assert "read-only" not in disk.flags.value
    if not disk.inodes.is_unsupported:
        assert 0 < disk.inodes_free.need("inodes") <= disk.inodes.need("inodes") * 2


def test_mounts_of_other_machines_are_asked_unless_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    every = tuple(Mount(f"/nowhere/{number}", "nfs4", "filer:/") for number in range(3))
    monkeypatch.setattr(remote, "all_mounts", lambda place: Observed.of(every, "mountinfo"))
    monkeypatch.setattr(remote, "_MOST_MOUNTS", 3)
    asked = remote.remote_mounts(HostRoot(Path("/"), {})).need("the mounts")
    assert [(mount.path, mount.ended) for mount in asked] == [(f"/nowhere/{number}", "error") for number in range(3)]
    monkeypatch.setattr(remote, "_MOST_MOUNTS", 2)
    assert "3 mounts" in remote.remote_mounts(HostRoot(Path("/"), {})).missing


def test_a_mount_that_hangs_costs_its_own_answer() -> None:
    release = threading.Event()

    def statvfs(path: str) -> object:
        if path == "/hangs":
            release.wait(600)
        if path == "/stale":
            raise OSError(116, os.strerror(116))
        return None

    with ends():
        answers = remote.ask(["/hangs", "/well", "/stale"], statvfs, 2.0)
    release.set()
    assert answers == {"/hangs": "hung", "/well": "", "/stale": "stale file handle"}


def test_what_lies_where_variables_point(tmp_path: Path) -> None:
    environ = {
        "HOME": "/home/ada",
        "CUDA_HOME": "/opt/cuda",
        "CUDA_PATH": "relative",
        "TRITON_CACHE_DIR": "/home/ada/.triton/new",
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps",
        "SSL_CERT_FILE": "/etc/gone.pem",
        "LD_PRELOAD": "libm.so /opt/x.so:/opt/$LIB/y.so",
    }
    place = tree(tmp_path, {"opt/cuda/bin/nvcc": "", "home/ada/x": "", "tmp/mps": "", "opt/x.so": ""}, environ)
    seen = {one.variable: one for one in remote.named_paths(place).need("paths")}
    assert seen.pop("CUDA_HOME") == NamedPath("CUDA_HOME", "/opt/cuda", "directory", True, ("bin/nvcc",))
    assert {name: (one.path, one.kind) for name, one in seen.items()} == {
        "HOME": ("/home/ada", "directory"),
        "TRITON_CACHE_DIR": ("/home/ada/.triton/new", "absent"),
        "CUDA_MPS_PIPE_DIRECTORY": ("/tmp/mps", "file"),
        "SSL_CERT_FILE": ("/etc/gone.pem", "absent"),
        "LD_PRELOAD": ("/opt/x.so", "file"),
    }
    assert seen["TRITON_CACHE_DIR"].writable


def test_a_cache_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    place = tree(tmp_path, {"home": ""}, {"TRITON_CACHE_DIR": "/home/cache"})
    assert remote.named_paths(place).value == (NamedPath("TRITON_CACHE_DIR", "/home/cache", "absent", False),)


def test_names(tmp_path: Path) -> None:
    assert names.resolve("127.0.0.1") == (("127.0.0.1",), "")
    addresses, error = names.resolve("a..b")
    assert addresses == () and error
    assert names.names(HostRoot(tmp_path / "missing", {})).value is None


UNITS = """LoadState=loaded
ActiveState=active
UnitFileState=enabled
NRestarts=2

LoadState=not-found
ActiveState=inactive
UnitFileState=
NRestarts=[not set]
"""


def test_units() -> None:
    assert services.parse_units(UNITS, ("kubelet", "slurmd")) == {
        "kubelet": Service("loaded", "active", "enabled", 2),
        "slurmd": Service("not-found", "inactive"),
    }
    with pytest.raises(ValueError, match="2 units of 1"):
        services.parse_units(UNITS, ("kubelet",))
    with pytest.raises(ValueError, match="no state of kubelet"):
        services.parse_units("Warning: x", ("kubelet",))


def test_units_without_systemd_and_on_a_recorded_tree(tmp_path: Path) -> None:
    assert services.units(HostRoot(tmp_path, {})).value == {}
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert "recorded tree" in services.units(HostRoot(tmp_path, {})).missing


PATHS = (
    *(f"{CPU}/present", f"{CPU}/online", f"{CPU}/smt/control", f"{CPU}/cpu0/cpufreq/scaling_driver"),
    *("proc/self/status", "proc/uptime", "proc/loadavg", "proc/meminfo", "proc/swaps", "proc/buddyinfo"),
    *("proc/self/cgroup", "proc/vmstat", "proc/self/mountinfo", "proc/mdstat", "sys/class/nvme/nvme0/state"),
    *("sys/devices/system/edac/mc/mc0/ce_count", "sys/devices/system/node/node0/meminfo", "proc/cpuinfo"),
    *("sys/devices/system/clocksource/clocksource0/current_clocksource", "sys/fs/cgroup/cgroup.controllers"),
    *("sys/fs/cgroup/memory.max", "sys/fs/ext4/sda/errors_count", "sys/fs/lustre/health_check"),
)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "hostile", ["", "\0\xff\n::\n", "7 " * (1 << 20), "directory"], ids=["empty", "garbage", "2MiB", "dir"]
)
def test_hostile_trees_end_no_reader(tmp_path: Path, reader: str, hostile: str) -> None:
    for name in PATHS:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if hostile == "directory" else path.write_text(hostile, encoding="latin-1")
    sources: Mapping[str, Source] = READERS[reader]
    with costs_less(4):
        found = read_groups((Group("it", lambda place: sources, 60.0),), HostRoot(tmp_path, {}), 60.0)
    assert set(found) == set(sources)
    assert all(not seen.missing.startswith("the reader of") for seen in found.values()), found
