"""The whole observation: sources that hang, die or talk nonsense, recorded trees, and this machine."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest
from clocks import costs_less, ends

from envkit import facts
from envkit.errors import UsageError
from envkit.host import engine, nodes, nvml
from envkit.host.observe import GROUPS, Group, observe_host, read_groups
from envkit.host.root import HostRoot, Source
from envkit.judging import judge
from envkit.model import Observed, Outcome
from envkit.subjects import Host
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.host import DeviceNode

FACTS = facts.load()
HERE = HostRoot(Path("/"), {})


def hangs(place: HostRoot) -> Observed[str]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
    return Observed.of("late", "sleep")


def dies(place: HostRoot) -> Observed[str]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return Observed.of("late", "kill")


def fails(place: HostRoot) -> Observed[str]:
    raise ValueError("no line `Mem`")


def well(place: HostRoot) -> Observed[str]:
    return Observed.of("6.1", "/proc")


def group(sources: Mapping[str, Source], limit_s: float = 60.0) -> Group:
    return Group("the test", lambda place: sources, limit_s)


def test_what_was_read_before_a_hang_counts() -> None:
    with ends():
        found = read_groups((group({"kernel": well, "os": hangs, "glibc": well}, 2.0),), HERE, 60.0)
        assert found["kernel"].value == "6.1"
        assert found["os"].missing.startswith("the reader of the test hung: no answer within")
        assert found["glibc"].missing.startswith("the reader of the test hung")


def test_a_death_costs_what_comes_after_it_in_its_group_alone() -> None:
    other = Group("another", lambda place: {"cgroup": well})
    found = read_groups((group({"kernel": well, "os": dies}), other), HERE, 60.0)
    assert found["kernel"].value == found["cgroup"].value == "6.1"
    assert found["os"].missing == "the reader of the test was killed by SIGSEGV"


def divides(place: HostRoot) -> Observed[str]:
    return Observed.of(str(1 // len(place.environ)), "arithmetic")


def nests(place: HostRoot) -> Observed[str]:
    return Observed.of(json.loads("[" * 100_000), "json")


@pytest.mark.parametrize("source", [divides, nests])
def test_whatever_a_text_makes_of_its_reader_costs_that_source_alone(source: Source) -> None:
    found = read_groups((group({"kernel": source, "os": well}),), HERE, 60.0)
    assert found["kernel"].missing.startswith("its reader failed: ")
    assert found["os"].value == "6.1"


def test_a_source_that_fails_costs_itself() -> None:
    found = read_groups((group({"kernel": fails, "os": well}),), HERE, 60.0)
    assert found["kernel"].missing == "its reader failed: ValueError: no line `Mem`"
    assert found["os"].value == "6.1"


def test_a_value_of_another_type_is_lost() -> None:
    found = read_groups((group({"kernel": lambda place: Observed.of(5, "x")}),), HERE, 60.0)
    assert "said something else" in found["kernel"].missing


def test_the_budget_ends_every_group_and_passes_nothing() -> None:
    names = [item.name for item in fields(Host) if item.name not in ("name", "wanted_cuda", "expected", "newer_fields")]
    slow = tuple(Group(name, lambda place, name=name: {name: hangs}, 600.0) for name in names)
    with ends():
        host = observe_host(budget_s=0.6, environ={}, groups=slow)
    assert all(getattr(host, name).value is None for name in names)
    outcomes = {result.outcome for result in judge.judge(host, FACTS)}
    assert Outcome.PASS not in outcomes
    assert Outcome.UNKNOWN in outcomes


@pytest.mark.parametrize(("source", "ended"), [(hangs, "hung"), (dies, "killed")])
def test_nvml_that_hangs_or_kills_is_an_observation(source: Source, ended: str) -> None:
    found = read_groups((Group("NVML", lambda place: {"nvml": source}, 2.0, None, nvml.join),), HERE, 60.0)
    said = found["nvml"].need("NVML")
    assert said.ended == ended
    assert said.detail


def test_nvml_whose_reader_fails_is_no_observation() -> None:
    found = read_groups((Group("NVML", lambda place: {"nvml": fails}, 60.0, None, nvml.join),), HERE, 60.0)
    assert "its reader failed" in found["nvml"].missing


def test_an_engine_that_hangs_is_an_observation() -> None:
    found = read_groups((Group("the engine", lambda place: {"docker": hangs}, 0.4, None, engine.join),), HERE, 60.0)
    assert found["docker"].need("the engine").ended == "hung"


def test_a_hang_names_its_device_node() -> None:
    def opened(place: HostRoot) -> Observed[DeviceNode]:
        return Observed.of(DeviceNode("/dev/nvidia0", ""), "open")

    sources: dict[str, Source] = {"/dev/nvidia0": opened, "/dev/nvidia1": hangs, "/dev/nvidiactl": opened}
    found = read_groups((Group("nodes", lambda place: sources, 2.0, nodes.KIND, nodes.join),), HERE, 60.0)
    errors = [node.error for node in found["device_nodes"].need("nodes")]
    assert errors[0] == ""
    assert errors[1].startswith("its opening did not end: the reader of nodes hung")
    assert errors[2].startswith("it was not tried")


def test_a_listing_of_device_nodes_that_hangs_costs_its_group_alone() -> None:
    def listed(place: HostRoot) -> dict[str, Source]:
        time.sleep(600)
        return {}

    listing = Group("nodes", listed, 0.4, nodes.KIND, nodes.join)
    with ends():
        found = read_groups((listing, group({"kernel": well})), HERE, 60.0)
    assert found["device_nodes"].missing == "the reader of nodes hung: no answer within 0 s"
    assert found["kernel"].value == "6.1"


def test_wanted_cuda_is_kept_and_must_be_a_version() -> None:
    assert observe_host(environ={}, wanted_cuda="12.8", groups=()).wanted_cuda.value == "12.8"
    with pytest.raises(UsageError, match="banana"):
        observe_host(environ={}, wanted_cuda="banana", groups=())


def test_recorded_tree_through_the_real_readers(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    (tmp_path / "dev/nvidia0").touch()
    (tmp_path / "dev/kmsg").write_text("4,1,1,-;NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\n")
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    )
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libcuda.so.1").symlink_to("libcuda.so.550.90.07")
    (tmp_path / "usr/lib64/libcuda.so.550.90.07").write_bytes(b"\x7fELF")
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/cdi/nvidia.yaml").write_text(
        "kind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n    mounts:\n"
        "    - hostPath: /usr/lib64/libcuda.so.550.54.15\n"
    )
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    host = observe_host(tmp_path, environ=environ, name="recorded")
    results = {result.check: result for result in judge.judge(host, FACTS)}
    failed = {check for check, result in results.items() if result.outcome is Outcome.FAIL}
    assert failed >= {
        "host-device-nodes-not-accessible",
        "host-driver-libraries-incomplete",
        "host-driver-library-version-mismatch",
        "host-gpu-lost-from-bus",
        "host-cdi-spec-stale",
        "host-docker-unreachable",
    }
    assert results["host-no-gpu"].outcome is Outcome.PASS
    assert results["host-nvml-not-working"].outcome is not Outcome.PASS
    assert not [result for result in results.values() if result.outcome is Outcome.CRASHED]


def test_this_machine_within_its_budget() -> None:
    with costs_less(8.0):
        host = observe_host(budget_s=8.0)
    seen = {item.name: getattr(host, item.name) for item in fields(Host)}
    failed = ("the reader", "its reader")
    lost = [name for name, value in seen.items() if getattr(value, "missing", "").startswith(failed)]
    assert lost == []
    assert from_plain(Host, json.loads(json.dumps(to_plain(host)))) == host
    results = judge.judge(host, FACTS)
    assert not [result for result in results if result.outcome is Outcome.CRASHED]
    present = {result.check: result.outcome for result in results}["host-no-gpu"]
    assert present in (Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN)


def test_a_small_budget_is_kept(tmp_path: Path) -> None:
    with ends():
        observe_host(budget_s=0.05, environ={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/missing"})


def test_every_field_of_a_host_has_one_source() -> None:
    filled = [name for group in GROUPS if group.join is None for name in group.sources(HERE)]
    filled += ["nvml", "docker", "device_nodes"]
    assert len(filled) == len(set(filled))
    declared = {"name", "wanted_cuda", "expected", "newer_fields"}
    assert {item.name for item in fields(Host)} - declared == set(filled)
