"""The checks of the machine itself: its room, and what its environment tells CUDA."""

from __future__ import annotations

from dataclasses import replace

from hosts import recorded, said, without

from envkit.model import Observed, Outcome
from envkit.subjects.host import CudaDirectory, Disk


def test_stub_on_the_search_path_is_found_though_the_driver_is_unknown() -> None:
    host = without(recorded("healthy-h100.json"), "module", "nvml")
    stub = CudaDirectory("/x/stubs", {"libcuda.so.1": "/x/stubs/libcuda.so"})
    old = CudaDirectory("/old", {"libcuda.so.1": "/old/libcuda.so.470.82.01"})
    both: tuple[CudaDirectory, ...] = (stub, old)
    result = said("host-library-path-clean", replace(host, cuda_on_path=Observed.of(both, "LD_LIBRARY_PATH")))
    assert [finding.where for finding in result.findings] == ["/x/stubs"]
    alone: tuple[CudaDirectory, ...] = (old,)
    result = said("host-library-path-clean", replace(host, cuda_on_path=Observed.of(alone, "LD_LIBRARY_PATH")))
    assert result.outcome is Outcome.UNKNOWN


def test_full_temporary_directory_is_not_mended_by_docker() -> None:
    room = Observed.of(50 << 30, "statvfs")
    disks: tuple[Disk, ...] = (
        Disk("images", "/var/lib/docker", room, room),
        Disk("temporary", "/tmp", Observed.of(1 << 20, "statvfs"), room),
    )
    result = said("host-disk-free", replace(recorded("no-gpu.json"), disks=Observed.of(disks, "statvfs")))
    (finding,) = result.findings
    assert finding.where == "/tmp" and "TMPDIR" in finding.fix and "docker" not in finding.fix
