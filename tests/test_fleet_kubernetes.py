"""The manifests of docs/jobs for many nodes: Kubernetes' own schemas take them, and what their containers start is what
the reader of Pods reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fleet
import kube_schemas
import kube_server
import pytest
import yaml
from fleet import body, document, encoded, fault
from inline import Envkit
from kube_server import KubeServer

from envkit.errors import UsageError
from envkit.fleet import gather, pods
from envkit.fleet.verdict import Cause, FleetVerdict, State, judge

JOBS = Path(__file__).resolve().parents[1] / "docs" / "jobs"
FILES = ("kubernetes-fleet.yaml", "kubernetes-jobset.yaml", "kubernetes-nodes.yaml", "kubernetes-rights.yaml")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((JOBS / name).read_text()))


@pytest.mark.parametrize("release", kube_schemas.RELEASES)
@pytest.mark.parametrize("name", FILES)
def test_manifests_pass_the_schemas_of_three_releases(name: str, release: str) -> None:
    for each in documents(name):
        kube_schemas.validate(each, release)


def job_of(name: str) -> dict[str, Any]:
    """What describes the Job of a file, which may lie in a JobSet."""
    last: dict[str, Any] = documents(name)[-1]
    return last["spec"]["replicatedJobs"][0]["template"]["spec"] if last["kind"] == "JobSet" else last["spec"]


@pytest.mark.parametrize(
    ("name", "path", "word"),
    [
        ("kubernetes-fleet.yaml", "spec.template.spec", "restartpolicy"),
        ("kubernetes-nodes.yaml", "spec.template.spec", "initcontainers"),
        ("kubernetes-rights.yaml", "", "rule"),
        ("kubernetes-jobset.yaml", "spec", "replicatedjobs"),
        ("kubernetes-jobset.yaml", "spec.network", "subDomain"),
        ("kubernetes-jobset.yaml", "spec.replicatedJobs.0.template.spec", "completionmode"),
    ],
)
def test_a_misspelt_field_of_a_manifest_is_found(name: str, path: str, word: str) -> None:
    spoilt = documents(name)[-1]
    at: Any = spoilt
    for step in filter(None, path.split(".")):
        at = at[int(step) if step.isdigit() else step]
    at[word] = "x"
    with pytest.raises(kube_schemas.ERRORS):
        kube_schemas.validate(spoilt, kube_schemas.RELEASES[0])


@pytest.mark.parametrize("name", ["kubernetes-fleet.yaml", "kubernetes-jobset.yaml"])
def test_the_numbers_of_nodes_agree(name: str) -> None:
    spec = job_of(name)
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


@pytest.fixture
def server() -> Iterator[KubeServer]:
    """An API server with nothing in it."""
    with kube_server.serving() as made:
        yield made


def ended(node: str, *, message: str | None = None, **state: Any) -> dict[str, Any]:
    """The status of a Pod whose container left its document, that of a healthy node by default."""
    told = encoded(document(node)).decode() if message is None else message
    state = state or {"state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": told}}}
    return {"status": {"phase": "Running", "initContainerStatuses": [{"name": "preflight", **state}]}}


def daemonset(server: KubeServer, *names: str, **pod: Any) -> None:
    """A DaemonSet for the nodes ``names``, which have GPUs; another node has none."""
    for name in names:
        server.node(name, {"nvidia.com/gpu.present": "true"})
    server.node("cpu-1")
    template = {"spec": {"nodeSelector": {"nvidia.com/gpu.present": "true"}, **pod}}
    spec = {"selector": {"matchLabels": {"app": "envkit-nodes"}}, "template": template}
    server.put("/apis/apps/v1/namespaces/default/daemonsets/envkit-nodes", spec=spec)


def found_by(server: KubeServer, kind: str, name: str, hosts: tuple[str, ...] = ()) -> FleetVerdict:
    carried = pods.listed(server.api(), "default", kind, name)
    made = gather.Gathered(fleet.run(hosts or carried.hosts))
    for each in carried.reports:
        gather.take(made, each, "the API server")
    return judge(made, 4e9)


def test_the_nodes_of_a_daemon_set_are_expected_by_their_labels(server: KubeServer) -> None:
    """n1 is healthy, n2 has a fault, n3's image never came, n4 has no Pod, n5 is still at it."""
    daemonset(server, "n1", "n2", "n3", "n4", "n5")
    of = {"app": "envkit-nodes"}
    server.pod("a", "n1", of, **ended("n1"))
    bad = encoded(document("n2", body(found=(fault(),)))).decode()
    server.pod("b", "n2", of, **ended("n2", message=bad))
    server.pod("c", "n3", of, **ended("n3", state={"waiting": {"reason": "ErrImagePull"}}))
    server.pod("d", "n5", of, **ended("n5", state={"running": {}}))
    server.pod("another", "n4", {"app": "another"}, **ended("n4"))
    found = found_by(server, "daemonset", "envkit-nodes")
    assert found.run.hosts == ("n1", "n2", "n3", "n4", "n5")
    states = {one.node: (one.state, one.cause) for one in found.nodes}
    assert states == {
        "n1": (State.OK, Cause.NONE),
        "n2": (State.FAIL, Cause.FOUND),
        "n3": (State.FAIL, Cause.NEVER_STARTED),
        "n4": (State.FAIL, Cause.NEVER_STARTED),
        "n5": (State.UNKNOWN, Cause.RUNNING),
    }
    assert found.machines == {name: name for name in ("n1", "n2", "n3", "n5")}


def test_a_node_whose_gpus_a_job_has_is_not_accused(server: KubeServer) -> None:
    """The Pod of n1 waits for them, that of n2 came there and does not start."""
    daemonset(server, "n1", "n2")
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    term = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    busy = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "1 Insufficient gpu"}
    waits = {"phase": "Pending", "conditions": [busy]}
    of = {"app": "envkit-nodes"}
    server.pod("a", "", of, spec={"affinity": {"nodeAffinity": term}}, status=waits)
    server.pod("b", "n2", of, status={"phase": "Pending"})
    found = found_by(server, "daemonset", "envkit-nodes")
    assert [one.state for one in found.nodes] == [State.UNKNOWN, State.FAIL]
    assert found.nodes[0].sentence == "it may still answer (Pod a: Pending, 1 Insufficient gpu)"


def test_a_daemon_set_with_an_affinity_leaves_open_who_shall_answer(server: KubeServer) -> None:
    daemonset(server, "n1", affinity={"nodeAffinity": {"required": {}}})
    with pytest.raises(UsageError, match="chooses its nodes by an affinity"):
        pods.listed(server.api(), "default", "daemonset", "envkit-nodes")


def test_a_container_that_waits_for_its_next_start_has_the_message_of_the_last(server: KubeServer) -> None:
    daemonset(server, "n1")
    last = {"terminated": {"exitCode": 1, "reason": "Error", "message": encoded(document("n1")).decode()}}
    waits = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": last}
    server.pod("a", "n1", {"app": "envkit-nodes"}, **ended("n1", **waits))
    assert found_by(server, "daemonset", "envkit-nodes").exit_code == 0


def indexed(many: object = 3, mode: str = "Indexed") -> dict[str, Any]:
    return {"completionMode": mode, "completions": many, "parallelism": many}


def test_the_numbers_of_an_indexed_job_are_its_nodes(server: KubeServer) -> None:
    """Number 1 ran out of memory and fails with its machine's name; number 2 still waits for a machine."""
    server.put("/apis/batch/v1/namespaces/default/jobs/train", spec=indexed())
    of = {"job-name": "train"}

    def numbered(number: int, node: str, status: dict[str, Any]) -> None:
        index = {"annotations": {"batch.kubernetes.io/job-completion-index": str(number)}}
        server.pod(f"train-{number}", node, of, metadata=index, **status)

    numbered(0, "gpu-7", ended("0"))
    numbered(1, "gpu-8", ended("1", state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}))
    why = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient gpu"}
    numbered(2, "", {"status": {"phase": "Pending", "conditions": [why]}})
    found = found_by(server, "job", "train")
    assert [one.state for one in found.nodes] == [State.OK, State.FAIL, State.UNKNOWN]
    assert "Pod train-1 on gpu-8: Running, OOMKilled (exit code 137)" in found.nodes[1].sentence
    assert "2 Insufficient gpu" in found.nodes[2].sentence
    assert found.machines == {"0": "gpu-7", "1": "gpu-8"}


def test_a_job_that_is_cancelled_evicted_or_started_again(server: KubeServer) -> None:
    """Number 0 was evicted, number 1 is being deleted, two Pods of number 2 answered, the message of 3 is cut."""
    server.put("/apis/batch/v1/namespaces/default/jobs/train", spec=indexed(4))

    def numbered(name: str, number: int, **parts: Any) -> None:
        index = {"annotations": {"batch.kubernetes.io/job-completion-index": str(number)}, **parts.pop("about", {})}
        server.pod(name, f"gpu-{number}", {"job-name": "train"}, metadata=index, **parts)

    numbered("a", 0, status={"phase": "Failed", "reason": "Evicted"})
    numbered("b", 1, about={"deletionTimestamp": "2026-11-28T10:00:00Z"}, status={"phase": "Pending"})
    first, again = document("2", attempt="a" * 16), document("2", attempt="b" * 16)
    numbered("c", 2, **ended("2", message=encoded(first).decode()))
    numbered("d", 2, **ended("2", message=encoded(again).decode()))
    numbered("e", 3, **ended("3", message=encoded(document("3")).decode()[:600]))
    found = found_by(server, "job", "train")
    said = [one.sentence for one in found.nodes]
    assert [one.cause for one in found.nodes] == [Cause.NEVER_STARTED] * 2 + [Cause.TWICE, Cause.DAMAGED]
    assert "Pod a on gpu-0: Failed, Evicted" in said[0] and "Pod b on gpu-1: Pending, being deleted" in said[1]


def test_a_pod_that_went_with_its_job_accuses_no_node(server: KubeServer) -> None:
    """Number 1 failed, and Kubernetes took away number 2 with the Job; without that, number 2 never came."""
    path = "/apis/batch/v1/namespaces/default/jobs/train"
    for number in range(2):
        index = {"annotations": {"batch.kubernetes.io/job-completion-index": str(number)}}
        bad = encoded(document(str(number), body(found=(fault(),)) if number else None)).decode()
        server.pod(f"p{number}", f"gpu-{number}", {"job-name": "train"}, metadata=index, **ended("", message=bad))
    server.put(path, spec=indexed(3))
    assert [one.state for one in found_by(server, "job", "train").nodes] == [State.OK, State.FAIL, State.FAIL]
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    server.put(path, spec=indexed(3), status={"conditions": [failed]})
    nodes = found_by(server, "job", "train").nodes
    assert [one.state for one in nodes] == [State.OK, State.FAIL, State.UNKNOWN]
    assert nodes[2].sentence == "its Pod is gone, for the Job train failed: BackoffLimitExceeded"


def test_a_job_without_numbers_needs_a_list_of_its_nodes(server: KubeServer) -> None:
    server.put("/apis/batch/v1/namespaces/default/jobs/train", spec=indexed(3, "NonIndexed"))
    assert pods.listed(server.api(), "default", "job", "train").hosts == ()


@pytest.mark.parametrize("many", [None, 0, -1, 100_000_000, "3"])
def test_a_job_of_no_number_of_nodes(server: KubeServer, many: object) -> None:
    server.put("/apis/batch/v1/namespaces/default/jobs/train", spec=indexed(many))
    with pytest.raises(UsageError, match=r"the Job train has .* completions"):
        pods.listed(server.api(), "default", "job", "train")


def test_the_one_job_of_a_job_set_has_its_nodes(server: KubeServer) -> None:
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/train"
    one = {"name": "node", "replicas": 1, "template": {"spec": indexed(2)}}
    server.put(path, spec={"replicatedJobs": [one]})
    assert pods.listed(server.api(), "default", "jobset", "train").hosts == ("0", "1")
    assert "jobset.sigs.k8s.io%2Fjobset-name%3Dtrain" in server.asked[-1]
    for several in ([one, one], [{**one, "replicas": 2}], []):
        server.put(path, spec={"replicatedJobs": several})
        with pytest.raises(UsageError, match="several Jobs"):
            pods.listed(server.api(), "default", "jobset", "train")


@pytest.mark.parametrize("word", ["", "train", "pod/x", "a/b/job/x", "job/X", "job/../x", "job/x?limit=1"])
def test_words_that_name_no_job(word: str) -> None:
    with pytest.raises(UsageError, match="names no job of Kubernetes"):
        pods.asked(f"kubernetes:{word}", {})


def test_judge_reads_a_job_from_the_api_server(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a kubectl; a job that is not there is the user's mistake."""
    monkeypatch.setenv("PATH", f"{server.kubectl(tmp_path / 'bin')}:/usr/bin:/bin")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    daemonset(server, "n1", "n2")
    server.pod("a", "n1", {"app": "envkit-nodes"}, **ended("n1"))
    with Envkit(capsys) as run:
        done = run("judge", "kubernetes:daemonset/envkit-nodes")
        none = run("judge", "kubernetes:ml/daemonset/envkit-nodes")
    assert done.code == 1 and "n2: it never started" in done.out
    assert none.code == 2 and "there is no daemonset `envkit-nodes` in the namespace `ml`" in none.err
