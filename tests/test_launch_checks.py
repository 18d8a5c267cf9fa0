"""What the checks of a launch make of doubt, of several GPUs at once, and of the job's own words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import answers
import machines
import pytest
from gathered import gathered

from envkit import facts
from envkit.judging import pages
from envkit.judging.checks._launch import JobUser, may_write
from envkit.judging.judge import checks, judge, run
from envkit.model import Observed, Outcome, Result
from envkit.subjects import Audit, Host, Launch
from envkit.subjects.declared import Job

FACTS = facts.load()
CHECKS = {name: check for name, check in checks().items() if Launch in check.subjects}
PASSING = [
    (name, json.loads(block.text))
    for name in CHECKS
    for block in pages.load(name).examples
    if block.outcome == "passes"
]
# What one of several things says: that there is a GPU, which driver is loaded.
OTHER_SOURCE = {("host", "module"), ("host", "modules"), ("host", "pci_gpus"), ("host", "device_nodes")}
# What excuses a lack, or adds a demand to another one.
ONE_OF_SEVERAL = {
    "launch-image-requirement-not-met": {("job", "way")},
    "launch-driver-in-image": {("host", "nvml")},
    "launch-nvidia-visible-devices-hides-gpus": {("job", "way")},
    "launch-driver-capabilities-incomplete": {("job", "way")},
    "launch-library-path-replaced": {("job", "mounts")},
    "launch-preload-library-missing": {("job", "mounts")},
    "launch-checkpoints-lost-with-container": {("job", "tmpfs")},
    "launch-home-not-writable": {("job", "mounts"), ("job", "read_only"), ("job", "tmpfs")},
    "launch-cache-not-writable": {("job", "mounts"), ("job", "read_only"), ("job", "tmpfs"), ("launch", "paths")},
    "launch-process-limit-too-low": {("job", "limits"), ("job", "pids"), ("job", "ranks"), ("job", "user")},
    "launch-more-workers-than-cpus": {("job", "cpus"), ("job", "ranks")},
    "launch-master-port-unusable": {("job", name) for name in ("command", "network", "nodes", "ranks", "user")},
    "launch-shm-too-small": {("job", "gpus"), ("job", "ipc"), ("job", "workers")},
    "launch-memlock-too-low-for-rdma": {("job", "capabilities"), ("job", "privileged")},
    "launch-rdma-devices-missing": {("job", "privileged")},
    "launch-socket-interface-unusable": {("job", "nodes")},
    "launch-nccl-transport-disabled": {("job", "nodes")},
}


def of(check: str, launch: Launch) -> Result:
    """What ``check`` says of ``launch``."""
    return answers.judged(check, launch)


class Seen:
    """A record that writes down which observed fields are read; the records in it do so too."""

    def __init__(self, subject: Any, level: str, read: set[tuple[str, str]]) -> None:
        self._subject, self._level, self._read = subject, level, read

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._subject, name)
        if isinstance(value, Observed):
            self._read.add((self._level, name))
            if isinstance(value.value, Audit):
                return replace(value, value=Seen(value.value, "image", self._read))
        if isinstance(value, (Host, Job)):
            return Seen(value, "host" if isinstance(value, Host) else "job", self._read)
        return value


def without(launch: Launch, level: str, name: str) -> Launch:
    """The launch with one field not observed."""
    gone: Any = {name: Observed.lost("taken away")}
    if level == "launch":
        return replace(launch, **gone)
    if level == "image":
        return replace(launch, image=replace(launch.image, value=replace(launch.image.need("the image"), **gone)))
    part: dict[str, Any] = {level: replace(getattr(launch, level), **gone)}
    return replace(launch, **part)


@pytest.mark.parametrize("name", machines.LAUNCH_NAMES)
def test_nothing_fires_and_nothing_is_unknown_on_a_healthy_launch(name: str) -> None:
    results = judge(machines.launch(name), FACTS)
    assert len(results) == len(CHECKS) >= 30
    assert [one for one in results if one.outcome not in (Outcome.PASS, Outcome.SKIP)] == []


@gathered(PASSING)
def test_what_a_pass_rests_on_cannot_be_taken_away(check: str, data: dict[str, Any]) -> None:
    launch = machines.launch(data.pop("on"), data)
    read: set[tuple[str, str]] = set()
    seen: Any = Seen(launch, "launch", read)
    assert run(CHECKS[check], seen, FACTS).outcome is Outcome.PASS
    assert read
    for level, name in sorted(read - OTHER_SOURCE - ONE_OF_SEVERAL.get(check, set())):
        assert of(check, without(launch, level, name)).outcome is not Outcome.PASS, (level, name)


@gathered(CHECKS)
def test_of_a_launch_of_which_nothing_is_known_nothing_passes(check: str) -> None:
    result = of(check, Launch("x", Host("x")))
    assert result.outcome in (Outcome.SKIP, Outcome.UNKNOWN)
    assert result.reason


@pytest.mark.parametrize("name", machines.LAUNCH_NAMES)
def test_no_check_breaks_whatever_is_missing(name: str) -> None:
    launch = machines.launch(name)
    parts: tuple[tuple[str, Any], ...] = (
        ("launch", launch), ("job", launch.job), ("host", launch.host), ("image", launch.image.value),
    )  # fmt: skip
    for level, part in parts:
        assert is_dataclass(part)
        for field in fields(part):
            if isinstance(getattr(part, field.name), Observed):
                results = judge(without(launch, level, field.name), FACTS)
                assert [one for one in results if one.outcome is Outcome.CRASHED] == [], (level, field.name)


def test_an_error_of_one_gpu_outranks_the_doubt_about_another() -> None:
    changes = {"host.nvml.gpus.0.recovery": None, "host.nvml.gpus.1.state": "lost"}
    result = of("launch-gpu-unhealthy", machines.launch("h100", changes))
    assert result.outcome is Outcome.FAIL
    assert "GPU 1" in result.findings[0].message
    changes = {"host.nvml.gpus.0.sm": None, "host.nvml.gpus.1.sm": "sm_70"}
    assert of("launch-arch-not-covered", machines.launch("h100", changes)).outcome is Outcome.FAIL


def test_a_gpu_that_is_not_given_does_not_matter() -> None:
    faults = {"host.nvml.gpus.7.state": "lost", "host.nvml.gpus.7.sm": "sm_70", "host.nvml.gpus.7.mig": "on"}
    whole = judge(machines.launch("h100", faults), FACTS)
    part = judge(machines.launch("h100", {**faults, "job.gpus": ["0", "1"], "job.ranks": 2}), FACTS)
    assert {one.check for one in whole if one.outcome is Outcome.FAIL} >= {
        "launch-gpu-unhealthy",
        "launch-whole-gpu-in-mig-mode",
    }
    assert [one.check for one in part if one.outcome is Outcome.FAIL] == ["launch-engine-cannot-pass-gpus"] * (
        "nvidia.com/gpu=1" not in str(machines.plain("h100")["cdi"])
    )


def test_the_driver_is_judged_by_the_loaded_module_and_not_by_the_image() -> None:
    # the compat library speaks the image's CUDA, and the container would use it
    old = {"host.nvml.cuda": "12.4", "host.nvml.driver": "550.54.15", "host.module.version": "550.54.15"}
    assert of("launch-driver-too-old-for-cuda", machines.launch("h100", old)).outcome is Outcome.PASS
    assert of("launch-compat-library-unused", machines.launch("h100", old)).outcome is Outcome.PASS
    plain = {"compat.0.noted": False, "compat.0.branches": [], "compat.0.brands": [], "compat.0.cuda": ""}
    assert of("launch-driver-too-old-for-cuda", machines.launch("h100", {**old, **plain})).outcome is Outcome.PASS
    strange = {**old, **plain, "host.nvml.gpus.3.name": "NVIDIA X900"}
    assert of("launch-driver-too-old-for-cuda", machines.launch("h100", strange)).outcome is Outcome.UNKNOWN
    gone = machines.launch("h100", {**old, "compat": None})
    assert of("launch-driver-too-old-for-cuda", gone).outcome is Outcome.UNKNOWN


def test_ld_library_path_of_the_job_decides_what_is_searched() -> None:
    stub = {"image.drivers.1.searched": "LD_LIBRARY_PATH"}
    changed = {**stub, "job.environment.LD_LIBRARY_PATH": "/usr/local/cuda/compat"}
    assert of("launch-driver-stub-on-search-path", machines.launch("h100", changed)).outcome is Outcome.PASS
    named = {"job.environment.LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs/"}
    assert of("launch-driver-stub-on-search-path", machines.launch("h100", named)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("gpus", "text", "outcome"),
    [
        (["2", "5"], "0,1", Outcome.PASS),
        (["2", "5"], "1,0", Outcome.PASS),
        (["2", "5"], "2,5", Outcome.FAIL),
        (["2", "5"], "0,1,", Outcome.FAIL),
        (["2", "5"], " 0 , 1 ", Outcome.PASS),
        (["2"], "-1", Outcome.FAIL),
        (["2"], "NoDevFiles", Outcome.FAIL),
        (["2"], "GPU-21111111", Outcome.PASS),
        (["2"], "GPU-3", Outcome.FAIL),
        (["2"], "GPU-", Outcome.PASS),
        (["2", "5"], "GPU-", Outcome.FAIL),
    ],
)
def test_cuda_counts_from_zero_in_a_container(gpus: list[str], text: str, outcome: Outcome) -> None:
    uuids = {f"host.nvml.gpus.{number}.uuid": f"GPU-{number}1111111-2222" for number in range(8)}
    changes = {**uuids, "job.gpus": gpus, "job.environment.CUDA_VISIBLE_DEVICES": text}
    assert of("launch-cuda-visible-devices-invalid", machines.launch("h100", changes)).outcome is outcome


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("eno", Outcome.PASS),
        ("=eno", Outcome.FAIL),
        ("=eno1", Outcome.PASS),
        ("ib,eno1", Outcome.PASS),
        ("^eno", Outcome.PASS),
        ("^docker,eno,ib", Outcome.FAIL),  # leaves lo alone, on two machines
        ("eth", Outcome.FAIL),
    ],
)
def test_nccl_takes_prefixes_whole_names_and_all_others(text: str, outcome: Outcome) -> None:
    names = [{"name": name} for name in ("docker0", "eno1", "ibp24s0", "lo")]
    changes = {"host.network": names, "job.environment.NCCL_SOCKET_IFNAME": text}
    assert of("launch-socket-interface-unusable", machines.launch("h100", changes)).outcome is outcome


@pytest.mark.parametrize(
    ("who", "mode", "may"),
    [
        (JobUser(0, 0, None), 0o000, True),
        (JobUser(10, 20, None), 0o700, True),
        (JobUser(10, 20, None), 0o077, False),  # the owner's bits count for the owner alone
        (JobUser(11, 20, None), 0o770, True),
        (JobUser(11, 21, None), 0o770, False),
        (JobUser(11, 21, None), 0o1777, True),
    ],
)
def test_who_may_write(who: JobUser, mode: int, may: bool) -> None:
    assert may_write(who, 10, 20, mode) is may


@pytest.mark.parametrize(
    ("change", "check", "outcome"),
    [
        ({"job.user": "nobody"}, "launch-home-not-writable", Outcome.UNKNOWN),
        ({"job.mounts.0.kind": "volume"}, "launch-checkpoint-directory-not-writable", Outcome.SKIP),
        ({"job.mounts.0.kind": "absent"}, "launch-checkpoint-directory-not-writable", Outcome.UNKNOWN),
        ({"job.environment.TMPDIR": "/nowhere"}, "launch-temporary-directory-not-writable", Outcome.UNKNOWN),
        (
            {"job.user": "dev", "job.read_only": True, "job.tmpfs": ["/"]},
            "launch-temporary-directory-not-writable",
            Outcome.PASS,
        ),
        ({"job.gpus": ["MIG-1"]}, "launch-gpu-missing", Outcome.UNKNOWN),
        ({"host.nvml.ended": "hung"}, "launch-gpu-missing", Outcome.UNKNOWN),
        ({"job.gpus": []}, "launch-image-requirement-not-met", Outcome.SKIP),
        ({"host.docker.ended": "refused"}, "launch-engine-cannot-pass-gpus", Outcome.SKIP),
    ],
)
def test_doubt_and_what_does_not_apply(change: dict[str, Any], check: str, outcome: Outcome) -> None:
    assert of(check, machines.launch("desk", change)).outcome is outcome


@pytest.mark.slow  # judges every block of every page of a launch
def test_every_finding_names_a_fix_and_how_to_verify_it() -> None:
    hooks: list[Callable[[str], bool]] = [lambda fix: "`" in fix, lambda fix: fix.count(";") > 0 or "df -h" in fix]
    for name in CHECKS:
        for block in pages.load(name).examples:
            data = json.loads(block.text)
            for finding in of(name, machines.launch(data.pop("on"), data)).findings:
                assert finding.evidence, (name, finding)
                assert finding.where, (name, finding)
                assert finding.fix == "fix the image" or all(hook(finding.fix) for hook in hooks), (name, finding)


def test_a_machine_without_a_gpu_or_a_driver_is_one_finding_and_not_twelve() -> None:
    none = {"host.pci_gpus": [], "host.device_nodes": [], "host.nvml.gpus": [], "host.nvml.ended": "no library"}
    idle = {"host.modules": [], "host.module": None, "host.nvml.gpus": [], "host.nvml.ended": "error"}
    for changes, words in ((none, "no NVIDIA GPU"), (idle, "driver is not loaded")):
        results = judge(machines.launch("h100", changes), FACTS)
        assert [one.check for one in results if one.findings] == ["launch-gpu-missing"]
        assert words in str(results)
        assert [one.check for one in results if one.outcome in (Outcome.UNKNOWN, Outcome.CRASHED)] == []
