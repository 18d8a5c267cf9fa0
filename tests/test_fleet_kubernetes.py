"""The manifests of docs/jobs for many nodes: Kubernetes' own schemas take them, and what their containers start is what
the reader of Pods reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from envkit.fleet import gather
from envkit.fleet.verdict import FleetVerdict, State, judge

JOBS = Path(__file__).resolve().parents[1] / "docs" / "jobs"
MAJOR, NEWEST = map(int, kubernetes_validate.latest_version().split(".")[:2])
RELEASES = [f"{MAJOR}.{NEWEST - back}" for back in range(3)]
FILES = ("kubernetes-fleet.yaml", "kubernetes-nodes.yaml")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((JOBS / name).read_text()))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", FILES)
def test_manifests_pass_the_schemas_of_three_releases(name: str, release: str) -> None:
    for each in documents(name):
        kubernetes_validate.validate(each, release, strict=True)
    spoilt = documents(name)[-1]
    spoilt["spec"]["template"]["spec"]["restartpolicy"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(spoilt, release, strict=True)


def test_the_numbers_of_nodes_agree() -> None:
    spec = documents("kubernetes-fleet.yaml")[1]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    words = container["command"]
    count = words[words.index("--count") + 1]
    assert str(spec["completions"]) == str(spec["parallelism"]) == count
    assert f"--nnodes={count}" in words[-1]


def pod(name: str, node: str, message: str, kind: str) -> dict[str, Any]:
    """A Pod as the API server shows it once its container has ended, with what lay in /dev/termination-log."""
    ended = {"name": "preflight", "state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}}
    return {
        "kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": node},
        "status": {"phase": "Running", f"{kind}Statuses": [ended]},
    }  # fmt: skip


def judged(place: Path, pods: list[dict[str, Any]], hosts: tuple[str, ...]) -> FleetVerdict:
    (place / "pods.json").write_text(json.dumps({"kind": "List", "items": pods}))
    return judge(gather.gather(place / "pods.json", (), hosts), 4e9)


@pytest.mark.slow  # whole examinations
def test_what_the_daemon_set_starts_is_read_from_its_pods(tmp_path: Path) -> None:
    """Its own command, on two nodes; a third has a Pod that waits, a fourth none."""
    (init,) = documents("kubernetes-nodes.yaml")[0]["spec"]["template"]["spec"]["initContainers"]
    script = init["command"][-1]
    assert "/dev/termination-log" in script
    pods: list[dict[str, Any]] = []
    for node in ("gpu-1", "gpu-2"):
        log = tmp_path / node
        log.touch()
        # No GPU is here, and the file of the kubelet is another one.
        told = script.replace("/dev/termination-log", str(log)).replace(
            "--level passive", "--level passive --gpus none"
        )
        told = told.replace("envkit ", f"{sys.executable} -m envkit ", 1)
        subprocess.run(
            ["sh", "-c", told], env={**os.environ, "NODE": node}, check=True, timeout=300, capture_output=True
        )
        pods.append(pod(f"envkit-{node}", node, log.read_text(), "initContainer"))
    waits = {"name": "preflight", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    third = pod("envkit-gpu-3", "gpu-3", "", "initContainer")
    third["status"]["initContainerStatuses"] = [waits]
    found = judged(tmp_path, [*pods, third], ("gpu-1", "gpu-2", "gpu-3", "gpu-4"))
    assert (found.named(State.OK), found.named(State.FAIL)) == (("gpu-1", "gpu-2"), ("gpu-3", "gpu-4"))
    assert "ImagePullBackOff" in found.nodes[2].sentence and "never started" in found.nodes[3].sentence
