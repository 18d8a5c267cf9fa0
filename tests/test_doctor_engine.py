"""Misconfigured engines, for real: a dockerd of this test's own, beside a tree that plays the rest of the machine.

What a check says of an engine is held against what that engine then does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clocks import PATIENCE_S, comes, ends
from hosts import said

from envkit.host import engine as reader
from envkit.host.observe import observe_host
from envkit.model import Outcome, Result, Severity
from envkit.payload import isolate
from envkit.subjects import Host

pytestmark = pytest.mark.engine

DRIVER = "580.159.04"
LIBRARY = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}"
TOOLKIT = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-runtime-hook")
WHOLE = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}, "features": {"cdi": True}}
ABOUT_DOCKER = (
    "host-docker-unreachable",
    "host-docker-config-invalid",
    "host-docker-config-not-applied",
    "host-docker-too-old",
    "host-docker-desktop-or-snap",
    "host-docker-engine-remote",
    "host-docker-socket-world-writable",
    "host-docker-without-gpu-support",
    "host-docker-gpus-option-unsupported",
    "host-cdi-spec-missing",
    "host-cdi-disabled-in-docker",
    "host-cdi-spec-stale",
    "host-cdi-device-defined-twice",
)


@dataclass
class Daemon:
    """A dockerd under ``root``, which is also the root of the machine that is observed."""

    root: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        return self.root / "etc/docker/daemon.json"

    @property
    def url(self) -> str:
        return f"unix://{self.root}/var/run/docker.sock"

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def launch(self) -> subprocess.Popen[bytes]:
        """Starts a daemon with the configuration that is there."""
        # In a network of its own: with --bridge none a dockerd deletes docker0, which may be another engine's.
        argv = [
            "unshare",
            "--net",
            "dockerd",
            "--data-root",
            f"{self.root}/d",
            "--exec-root",
            f"{self.root}/x",
            "--pidfile",
        ]
        argv += [f"{self.root}/pid", "--host", self.url, "--config-file", str(self.config), "--bridge", "none"]
        argv += ["--iptables=false", "--ip6tables=false", "--storage-driver", "vfs"]
        environ = {**os.environ, "PATH": f"{self.root}/usr/bin:{os.environ['PATH']}"}
        environ.pop("DOCKER_HOST", None)
        with (self.root / "log").open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environ)
        return self.process

    def start(self, config: dict[str, Any] | None = None) -> None:
        """Starts the daemon and waits until it answers."""
        self.write("etc/docker/daemon.json", json.dumps(WHOLE if config is None else config))
        process = self.launch()
        deadline = time.monotonic() + PATIENCE_S
        while reader.ask(self.url, True).ended != "answered":
            assert process.poll() is None, (self.root / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "dockerd did not answer"
            time.sleep(0.05)

    def docker(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "--host", self.url, *argv], capture_output=True, text=True, timeout=60, check=False
        )

    def host(self) -> Host:
        """The machine as it is observed, its engine by the socket under its root."""
        return observe_host(self.root, environ={"HOME": str(self.root / "root")})

    def said(self, check: str) -> Result:
        return said(check, self.host())

    def family(self) -> list[int]:
        """Every process whose command line names this root."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if str(self.root).encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                    found.append(int(path.parent.name))
        return found

    def stop(self) -> None:
        """Ends the daemon and what it started, and takes its mounts away."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(120)
        for pid in self.family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.kill()
            self.process.wait(120)
        comes(lambda: not self.family(), 0.05)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((path for path in mounts if path.startswith(f"{self.root}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)


def gpu(daemon: Daemon) -> None:
    """A machine with one GPU, its driver, the toolkit and a CDI specification."""
    pci = "sys/bus/pci/devices/0000:65:00.0"
    for name, text in {"vendor": "0x10de", "class": "0x030200", "device": "0x2330"}.items():
        daemon.write(f"{pci}/{name}", text + "\n")
    daemon.write(
        "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build\nGCC version: gcc 13\n",
    )
    daemon.write(LIBRARY, "")
    for program in TOOLKIT:
        daemon.write(f"usr/bin/{program}", "#!/bin/sh\nexit 1\n", 0o755)
    daemon.write("usr/sbin/dockerd", "")
    (daemon.root / "var/run").mkdir(parents=True)
    specify(daemon)


def specify(daemon: Daemon, name: str = "nvidia.yaml", library: str = LIBRARY) -> None:
    daemon.write(
        f"etc/cdi/{name}",
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n    mounts:\n"
        f"    - hostPath: {library}\n      containerPath: {library}\n",
    )


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """An engine that is not yet started; nothing of it is left."""
    lacks = "dockerd is not installed" if shutil.which("dockerd") is None else ""
    lacks = lacks or ("a dockerd needs root" if os.geteuid() else "")
    if lacks and os.environ.get("ENVKIT_REQUIRE_ENGINE") == "1":
        pytest.fail(f"ENVKIT_REQUIRE_ENGINE=1 and {lacks}")
    if lacks:
        pytest.skip(lacks)
    made = Daemon(Path(tempfile.mkdtemp(prefix="dk")))  # short, for a socket's path has 107 bytes
    made.root.chmod(0o755)
    gpu(made)
    try:
        yield made
    finally:
        made.stop()
        left = made.family()
        shutil.rmtree(made.root, ignore_errors=True)
    assert not left
    assert not made.root.exists()


def test_a_whole_engine_passes(daemon: Daemon) -> None:
    daemon.start()
    host = daemon.host()
    results = {check: said(check, host) for check in ABOUT_DOCKER}
    assert {check: result for check, result in results.items() if result.outcome is not Outcome.PASS} == {}


def test_an_engine_without_a_way_to_a_gpu(daemon: Daemon) -> None:
    for program in TOOLKIT:
        (daemon.root / "usr/bin" / program).unlink()
    daemon.start({})
    host = daemon.host()
    # the cause alone is told, and as an error: the specifications that are there are not read, and there is no toolkit
    assert said("host-docker-without-gpu-support", host).outcome is Outcome.SKIP
    (cause,) = said("host-cdi-disabled-in-docker", host).findings
    assert cause.severity is Severity.ERROR
    assert said("host-docker-gpus-option-unsupported", host).outcome is Outcome.SKIP
    empty(daemon)
    tried = daemon.docker("run", "--rm", "--network=none", "--gpus", "all", "empty", "/none")
    assert tried.returncode
    assert "could not select device driver" in tried.stderr


def test_the_hook_alone_is_a_way(daemon: Daemon) -> None:
    daemon.start({})
    assert daemon.said("host-docker-without-gpu-support").outcome is Outcome.PASS
    empty(daemon)
    tried = daemon.docker("run", "--rm", "--network=none", "--gpus", "all", "empty", "/none")
    assert tried.returncode
    assert "could not select device driver" not in tried.stderr


def empty(daemon: Daemon) -> None:
    """An image without a file."""
    archive = daemon.root / "empty.tar"
    subprocess.run(["tar", "-cf", str(archive), "-T", "/dev/null"], check=True, timeout=120)
    made = daemon.docker("import", str(archive), "empty")
    assert made.returncode == 0, made.stderr


def test_a_runtime_written_after_the_start_is_not_in_force_until_the_engine_reads_it(daemon: Daemon) -> None:
    daemon.start({"features": {"cdi": True}})
    daemon.config.write_text(json.dumps(WHOLE))
    (finding,) = daemon.said("host-docker-config-not-applied").findings
    assert "runtimes nvidia" in finding.message
    assert finding.severity is Severity.WARNING
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    assert comes(lambda: daemon.said("host-docker-config-not-applied").outcome is Outcome.PASS, 0.1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"runtimes": {,}}', "not JSON"),
        ('{"runtimes": []}', "runtimes is no table"),
        ('{"features": {"cdi": "yes"}}', "features.cdi"),
        ('{"runtimes": {"runc": {"path": "runc"}}}', "reserved"),
        ('{"default-runtime": "nvidia-legacy"}', "default runtime"),
    ],
)
def test_a_file_with_which_the_engine_does_not_start_again(daemon: Daemon, text: str, words: str) -> None:
    daemon.start()
    daemon.config.write_text(text)
    result = daemon.said("host-docker-config-invalid")
    assert result.outcome is Outcome.FAIL
    assert words in result.findings[0].message
    daemon.stop()
    assert daemon.launch().wait(120)
    log = (daemon.root / "log").read_text()
    assert "unable to configure the Docker daemon with file" in log or "failed to start daemon: " in log


def test_an_engine_with_cdi_off_reads_no_specification(daemon: Daemon) -> None:
    daemon.start({"runtimes": WHOLE["runtimes"], "features": {"cdi": False}})
    (finding,) = daemon.said("host-cdi-disabled-in-docker").findings
    assert finding.severity is Severity.WARNING  # the runtime is there
    assert daemon.said("host-docker-config-not-applied").outcome is Outcome.PASS


def test_a_specification_of_files_that_are_gone(daemon: Daemon) -> None:
    specify(daemon, library="/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15")
    daemon.start({"features": {"cdi": True}, "cdi-spec-dirs": [f"{daemon.root}/etc/cdi"]})
    messages = [finding.message for finding in daemon.said("host-cdi-spec-stale").findings]
    assert any("do not exist" in message for message in messages)
    assert any("was written for driver 570.86.15" in message for message in messages)
    tried = with_device(daemon)
    assert "libcuda.so.570.86.15" in tried.stderr


def with_device(daemon: Daemon) -> subprocess.CompletedProcess[str]:
    empty(daemon)
    return daemon.docker("run", "--rm", "--network=none", "--device", "nvidia.com/gpu=all", "empty", "/none")


def test_a_device_that_two_files_define(daemon: Daemon) -> None:
    daemon.start({"features": {"cdi": True}, "cdi-spec-dirs": [f"{daemon.root}/etc/cdi"]})
    assert "unresolvable" not in with_device(daemon).stderr
    assert daemon.said("host-cdi-device-defined-twice").outcome is Outcome.PASS
    specify(daemon, "second.yaml")
    time.sleep(0.5)  # the engine watches the directory
    assert "unresolvable" in with_device(daemon).stderr
    assert daemon.said("host-cdi-device-defined-twice").outcome is Outcome.FAIL


def test_a_specification_that_is_no_yaml(daemon: Daemon) -> None:
    daemon.write("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n\tdevices: []\n")
    daemon.start({"features": {"cdi": True}, "cdi-spec-dirs": [f"{daemon.root}/etc/cdi"]})
    assert daemon.said("host-cdi-spec-stale").outcome is Outcome.FAIL
    assert "unresolvable" in with_device(daemon).stderr


def test_an_engine_that_is_stopped_in_its_tracks(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    with ends():
        (finding,) = daemon.said("host-docker-unreachable").findings
    assert "no answer within 2 s" in finding.message
    assert finding.severity is Severity.ERROR


def test_an_engine_that_was_killed_and_one_that_ended(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.process is not None
    daemon.process.kill()
    daemon.process.wait(120)
    (killed,) = daemon.said("host-docker-unreachable").findings
    assert "nobody listens" in killed.message
    daemon.stop()
    (daemon.root / "pid").unlink(missing_ok=True)
    daemon.start()
    daemon.process.terminate()
    daemon.process.wait(120)
    (ended,) = daemon.said("host-docker-unreachable").findings
    assert ended.severity is Severity.ERROR
    assert "does not exist" in ended.message


def test_a_socket_that_this_user_may_not_open_and_one_that_everybody_may(daemon: Daemon) -> None:
    daemon.start()
    socket = daemon.root / "var/run/docker.sock"
    socket.chmod(0o600)
    heard: list[str] = []

    def ask(say: Any) -> None:
        os.setuid(65534)
        say(reader.ask(daemon.url, True).ended)

    task = isolate.Task("ask", "", 10.0, ask, strict=True, heard=heard.append)
    isolate.run([[task]], 10.0, lambda task, ending: None)
    assert heard == ["permission denied"]
    socket.chmod(0o660)
    assert daemon.said("host-docker-socket-world-writable").outcome is Outcome.PASS
    socket.chmod(0o666)
    assert daemon.said("host-docker-socket-world-writable").outcome is Outcome.FAIL


def test_a_storage_driver_that_copies_every_layer(daemon: Daemon) -> None:
    daemon.start()
    (finding,) = daemon.said("host-docker-storage-driver-unsuitable").findings
    assert "vfs" in finding.message
