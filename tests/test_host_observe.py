"""The whole observation: children that hang, die or talk nonsense, recorded trees, and this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest

from envkit import facts, judge
from envkit.errors import UsageError
from envkit.host.observe import Answer, observe_host, read_in_child, run_child
from envkit.model import Outcome
from envkit.subjects import Host
from envkit.subjects.codec import from_plain, to_plain

FACTS = facts.load()


def child(code: str, limit_s: float = 10.0) -> Answer:
    return run_child([sys.executable, "-c", code], os.environ, limit_s)


def test_what_was_printed_before_a_hang_counts() -> None:
    began = time.monotonic()
    answer = child(
        "print('{\"a\": 1}', flush=True); print('{\"b\"', end='', flush=True); import time; time.sleep(60)",
        0.4,
    )
    assert answer == Answer({"a": 1}, "did not answer within 0.4 s")
    assert time.monotonic() - began < 3


def test_child_that_ignores_sigterm_is_killed() -> None:
    began = time.monotonic()
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    assert child(code, 0.4).ended == "did not answer within 0.4 s"
    assert time.monotonic() - began < 4


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        ("raise SystemExit('no such thing')", "ended with exit code 1: no such thing"),
        ("print('not json')", ""),
        ("print('[1]')", ""),
    ],
)
def test_child_that_dies_or_talks_nonsense(code: str, ended: str) -> None:
    assert child(code) == Answer({}, ended)


def test_program_that_does_not_exist() -> None:
    assert run_child(["/nonexistent/python"], {}, 1.0).ended.startswith("could not be started")


@dataclass
class Script:
    """Readers whose answers are written down; a reader without one does not answer."""

    answers: dict[str, Answer] = field(default_factory=dict)

    def __call__(self, name: str, args: Sequence[str], environ: Mapping[str, str], limit_s: float) -> Answer:
        return self.answers.get(name, Answer({}, f"did not answer within {limit_s:g} s"))


def test_silence_of_every_reader_is_lost_or_hung_and_passes_nothing() -> None:
    host = observe_host(environ={}, read=Script())
    assert host.nvml.value is not None
    assert host.nvml.value.ended == "hung"
    assert host.docker.value is not None
    assert host.docker.value.ended == "hung"
    for name in (
        "device_nodes",
        "driver_libraries",
        "daemon_config",
        "cdi",
        "toolkit",
        "shm",
        "log",
        "cuda_on_path",
    ):
        assert "did not answer within" in getattr(host, name).missing, name
    assert "within 3 s" in host.log.missing
    assert "within 7.2 s" in host.device_nodes.missing  # starting a GPU may take the whole budget
    outcomes = {result.check: result.outcome for result in judge.judge(host, FACTS)}
    for check in ("host-shm-size", "host-disk-free"):
        assert outcomes[check] is Outcome.UNKNOWN
    assert outcomes["host-docker-reachable"] is Outcome.FAIL


def test_reader_that_dies_in_nvml_is_an_observation() -> None:
    host = observe_host(environ={}, read=Script({"nvml": Answer({}, "was killed by SIGSEGV")}))
    assert host.nvml.value is not None
    assert (host.nvml.value.ended, host.nvml.value.detail) == (
        "killed",
        "the process that asked NVML was killed by SIGSEGV",
    )


def test_reader_of_nvml_that_cannot_run_is_no_observation() -> None:
    host = observe_host(environ={}, read=Script({"nvml": Answer({}, "ended with exit code 1: no module")}))
    assert host.nvml.value is None
    assert "no module" in host.nvml.missing


def test_hang_names_its_device_node() -> None:
    paths = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]
    answer = Answer({"nodes": paths, "/dev/nvidia0": ""}, "did not answer within 3 s")
    host = observe_host(environ={}, read=Script({"nodes": answer}))
    errors = [node.error for node in host.device_nodes.need("nodes")]
    assert errors[0] == ""
    assert errors[1] == "its opening did not answer within 3 s"
    assert errors[2].startswith("it was not tried")


def test_answer_of_another_shape_is_lost() -> None:
    host = observe_host(
        environ={}, read=Script({"engine": Answer({"docker": {"ended": 5}}), "log": Answer({"log": 1})})
    )
    assert "printed something else" in host.docker.missing
    assert "printed something else" in host.log.missing


def test_disk_that_hangs_costs_itself_alone() -> None:
    seen = {"value": 1 << 40, "via": "statvfs", "missing": ""}
    disk = {"use": "images", "path": "/var/lib/docker", "free": seen, "total": seen}
    answer = Answer({"shm": seen, "images": disk}, "did not answer within 3 s")
    host = observe_host(environ={}, read=Script({"disks": answer}))
    images, temporary = host.disks.need("disks")
    assert images.free.value == 1 << 40
    assert temporary.free.value is None
    assert "did not answer" in temporary.free.missing


def test_docker_root_is_where_the_engine_says() -> None:
    asked: list[Sequence[str]] = []

    def read(name: str, args: Sequence[str], environ: Mapping[str, str], limit_s: float) -> Answer:
        if name == "disks":
            asked.append(args)
        return Answer({"docker": {"ended": "answered", "root": "/data/docker"}} if name == "engine" else {})

    observe_host(environ={"TMPDIR": "/scratch"}, read=read)
    assert asked == [["/", "images=/data/docker", "temporary=/scratch"]]


def test_wanted_cuda_is_kept_and_must_be_a_version() -> None:
    assert observe_host(environ={}, wanted_cuda="12.8", read=Script()).wanted_cuda.value == "12.8"
    with pytest.raises(UsageError, match="banana"):
        observe_host(environ={}, wanted_cuda="banana", read=Script())


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
        "host-device-nodes-open",
        "host-driver-libraries-present",
        "host-driver-libraries-match-module",
        "host-xid-free",
        "host-driver-log-clean",
        "host-cdi-fresh",
        "host-docker-reachable",
    }
    assert results["host-gpu-present"].outcome is Outcome.PASS
    assert results["host-nvml-answers"].outcome is Outcome.UNKNOWN
    assert not [result for result in results.values() if result.outcome is Outcome.BROKE]


def test_this_machine_within_its_budget() -> None:
    began = time.monotonic()
    host = observe_host(budget_s=8.0)
    assert time.monotonic() - began < 8.0
    lost = [
        item.name for item in fields(Host) if getattr(getattr(host, item.name), "missing", "").startswith("the reader")
    ]
    assert lost == []
    assert from_plain(Host, json.loads(json.dumps(to_plain(host)))) == host
    results = judge.judge(host, FACTS)
    assert not [result for result in results if result.outcome is Outcome.BROKE]
    present = {result.check: result.outcome for result in results}["host-gpu-present"]
    assert present in (Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN)


def test_small_budget_is_kept() -> None:
    began = time.monotonic()
    observe_host(budget_s=1.0, environ={**os.environ, "DOCKER_HOST": "unix:///nonexistent"}, read=read_in_child)
    assert time.monotonic() - began < 3.0


def test_module_of_the_same_name_in_the_working_directory_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong module')")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert "shm" in read_in_child("disks", ["/"], os.environ, 10.0).values
    finally:
        os.chdir(before)
