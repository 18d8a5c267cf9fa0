"""The checks of the machine itself: its room, and what its environment tells CUDA."""

from __future__ import annotations

from dataclasses import replace

import machines
from hosts import said, without

from envkit.model import Observed, Outcome
from envkit.subjects.host import CudaDirectory, Disk


def test_stub_on_the_search_path_is_found_though_the_driver_is_unknown() -> None:
    host = without(machines.host("h100"), "module", "nvml")
    stub = CudaDirectory("/x/stubs", {"libcuda.so.1": "/x/stubs/libcuda.so"})
    old = CudaDirectory("/old", {"libcuda.so.1": "/old/libcuda.so.470.82.01"})
    both: tuple[CudaDirectory, ...] = (stub, old)
    result = said(
        "host-library-path-has-foreign-libcuda", replace(host, cuda_on_path=Observed.of(both, "LD_LIBRARY_PATH"))
    )
    assert [finding.where for finding in result.findings] == ["/x/stubs"]
    alone: tuple[CudaDirectory, ...] = (old,)
    result = said(
        "host-library-path-has-foreign-libcuda", replace(host, cuda_on_path=Observed.of(alone, "LD_LIBRARY_PATH"))
    )
    assert result.outcome is Outcome.UNKNOWN


def test_full_temporary_directory_is_not_mended_by_docker() -> None:
    room = Observed.of(50 << 30, "statvfs")
    disks: tuple[Disk, ...] = (
        Disk("images", "/var/lib/docker", room, room),
        Disk("temporary", "/tmp", Observed.of(1 << 20, "statvfs"), room),
    )
    result = said("host-disk-space-low", replace(machines.host("bare"), disks=Observed.of(disks, "statvfs")))
    (finding,) = result.findings
    assert finding.where == "/tmp" and "TMPDIR" in finding.fix and "docker" not in finding.fix


def test_an_error_of_one_disk_outranks_a_doubt_about_another() -> None:
    frozen = {"disks.0.flags": ["read-only"], "disks.1.flags": None}
    result = said("host-disk-read-only", machines.host("h100", frozen))
    assert [finding.where for finding in result.findings] == ["/tmp"]
    assert said("host-inodes-low", machines.host("h100", {"disks": []})).outcome is Outcome.UNKNOWN


def test_a_unit_and_its_alias_are_one_fault() -> None:
    dead = {"load": "loaded", "active": "failed", "enabled": "enabled", "restarts": 0}
    result = said(
        "host-service-failed-or-restarting", machines.host("h100", {"services.ssh": dead, "services.sshd": dead})
    )
    assert [finding.where for finding in result.findings] == ["ssh.service"]


def test_two_names_of_one_time_service_are_one() -> None:
    assert said("host-multiple-time-daemons", machines.host("h100")).outcome is Outcome.PASS


def test_a_governor_that_cannot_be_judged_is_no_pass() -> None:
    schedutil = {"scaling.frequencies.0.governor": "schedutil"}
    assert said("host-cpu-governor-limits-clock", machines.host("desk", schedutil)).outcome is Outcome.PASS
    assert (
        said("host-cpu-governor-limits-clock", machines.host("desk", {**schedutil, "nvml": None})).outcome
        is Outcome.UNKNOWN
    )
    fixed = {"scaling.frequencies.0.driver": "acpi-cpufreq", "nvml": None}
    assert said("host-cpu-governor-limits-clock", machines.host("desk", fixed)).outcome is Outcome.FAIL


def test_the_tighter_of_machine_and_group_is_named() -> None:
    changes = {"control_group.memory": 8 << 30, "control_group.memory_used": 7 << 30}
    (finding,) = said("host-available-memory-low", machines.host("h100", changes)).findings
    assert "1.0 GiB" in finding.message and "/sys/fs/cgroup" in next(iter(finding.evidence.values()))


def test_a_star_spares_every_name() -> None:
    changes = {"environment.http_proxy": "http://proxy:3128", "environment.no_proxy": "*"}
    assert said("host-proxy-used-for-localhost", machines.host("desk", changes)).outcome is Outcome.PASS


def test_a_cuda_home_that_is_no_absolute_path_is_found_though_nothing_was_looked_at() -> None:
    (finding,) = said("host-cuda-home-invalid", machines.host("desk", {"environment.CUDA_HOME": "cuda"})).findings
    assert "no absolute path" in finding.message
