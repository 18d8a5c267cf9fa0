"""A real Kubernetes: envkit reads the Pods of a run and marks nodes, with faults planted one by one.

There is no kubelet: the tests write what became of each Pod, with documents as preflight makes them.  The servers are
of 1.20, the last that Debian has the source of, which knows no numbers of a Job's Pods; and built by a Go that is newer
than its JSON library, they crash at the first definition of a resource, so that there is no JobSet.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError

import kube_cluster
import pytest
from clocks import PATIENCE_S, comes, spent
from fleet import body, document, encoded, fault
from kube_cluster import Cluster

from envkit.fleet.documents import Document

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes]  # four servers, and a process of envkit for each step

NIGHTLY = pytest.mark.nightly  # `make kubernetes` runs these too
JOBS = kube_cluster.ROOT / "docs" / "jobs"
LABELS = {"nvidia.com/gpu.present": "true"}
GPU_NODES = tuple(f"gpu-{number}" for number in range(1, 9))
WORD = "kubernetes:default/daemonset/envkit-nodes"
RIGHTS = JOBS / "kubernetes-rights.yaml"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Eight GPU nodes and one without; skipped, or a failure with ENVKIT_REQUIRE_KUBERNETES=1, if nobody built them."""
    found = kube_cluster.programs()
    if found is None:
        said = "the servers were not built: make kubernetes"
        pytest.fail(said) if os.environ.get("ENVKIT_REQUIRE_KUBERNETES") == "1" else pytest.skip(said)
    with kube_cluster.cluster(tmp_path_factory.mktemp("kubernetes"), found) as made:
        made.nodes(GPU_NODES, LABELS)
        made.node("cpu-1")
        yield made


@pytest.fixture
def cluster(servers: Cluster) -> Iterator[Cluster]:
    """The same without Pods or marks, before and after; a DaemonSet has a Pod on each GPU node."""
    servers.kubectl("apply", "-f", str(JOBS / "kubernetes-nodes.yaml"))
    yield servers
    cleared(servers)
    for name in GPU_NODES:
        change = {"spec": {"unschedulable": None, "taints": None}, "metadata": {"annotations": None}}
        servers.call("PATCH", f"/api/v1/nodes/{name}", change, "application/merge-patch+json")
        gone = {"status": {"conditions": [{"type": "EnvkitPreflightFailed", "$patch": "delete"}]}}
        servers.call("PATCH", f"/api/v1/nodes/{name}/status", gone, "application/strategic-merge-patch+json")


def cleared(cluster: Cluster) -> None:
    """Takes away all Pods and who would make new ones; no kubelet is here that would end them."""
    for kind in ("apps/v1/namespaces/default/daemonsets", "batch/v1/namespaces/default/jobs"):
        cluster.call("DELETE", f"/apis/{kind}", {"propagationPolicy": "Background"})

    def none() -> bool:
        cluster.call("DELETE", "/api/v1/namespaces/default/pods", {"gracePeriodSeconds": 0})
        return not cluster.call("GET", "/api/v1/namespaces/default/pods?limit=1")["items"]

    assert comes(none, 0.5)


def ended(made: Document, kind: str = "init") -> dict[str, Any]:
    """The status of a Pod whose container left this document."""
    state = {"exitCode": 0, "reason": "Completed", "message": encoded(made).decode(), "finishedAt": kube_cluster.now()}
    one = {
        "name": "preflight",
        "image": "x",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": state},
    }
    return {"phase": "Running", f"{kind}ContainerStatuses" if kind == "init" else "containerStatuses": [one]}


def numbered(number: int, failed: bool) -> Document:
    """The document of a node of an Indexed Job."""
    made = document("n1", body(found=(fault(),)) if failed else None)
    return replace(made, head=replace(made.head, node=str(number)))


def report(cluster: Cluster, pods: dict[str, str], failed: Sequence[str] = (), silent: Sequence[str] = ()) -> None:
    """Every Pod leaves the document of a healthy node, those of ``failed`` a fault and those of ``silent`` nothing."""
    spoken = [node for node in pods if node not in silent]
    made = {node: document(node, body(found=(fault(),)) if node in failed else None) for node in spoken}
    cluster.many(lambda node: cluster.status(pods[node], ended(made[node])), spoken)


IMPATIENT = "from envkit.fleet import apiserver; apiserver.PATIENCE_S = 4.0; from envkit.cli import main; main()"


def envkit(cluster: Cluster, *words: str, user: str = "admin", impatient: bool = False) -> tuple[int, str]:
    how = ("-c", IMPATIENT) if impatient else ("-m", "envkit")
    done = subprocess.run(
        [sys.executable, *how, *words],
        env=cluster.as_user(user), capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def node(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.call("GET", f"/api/v1/nodes/{name}")


def pod(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.call("GET", f"/api/v1/namespaces/default/pods/{name}")


def marks(cluster: Cluster, name: str) -> tuple[bool, bool, bool]:
    """Whether a node has the condition, the taint and a cordon."""
    one = node(cluster, name)
    condition = any(each["type"] == "EnvkitPreflightFailed" for each in one["status"]["conditions"])
    taint = any(each["key"] == "envkit.io/preflight" for each in one["spec"].get("taints", ()))
    return condition, taint, bool(one["spec"].get("unschedulable"))


ALL, NONE = (True, True, True), (False, False, False)


def test_a_failing_and_a_missing_node_are_named_marked_and_returned(cluster: Cluster) -> None:
    """And what runs there goes on, while the scheduler gives them nothing new."""
    pods = cluster.bound("app=envkit-nodes", 8)
    assert set(pods) == set(GPU_NODES)
    report(cluster, pods, failed=["gpu-3"], silent=["gpu-5"])
    cluster.status(pods["gpu-5"], {"phase": "Pending"})
    cluster.pod("user", {"nodeName": "gpu-3"})
    cluster.status("user", {"phase": "Running"})
    code, said = envkit(cluster, "judge", WORD)
    assert code == 1 and "6 of 8 nodes ok; 2 failed (gpu-[3,5])" in said, said
    assert "gpu-3: host-gpu-lost: GPU 3 is gone" in said and "gpu-5: it never started" in said
    code, said = envkit(cluster, "drain", WORD)
    assert code == 0 and "a Pod runs there and goes on" in said and marks(cluster, "gpu-3") == NONE
    code, said = envkit(cluster, "drain", WORD, "--apply")
    assert code == 0 and "2 of 2 changes took effect" in said, said
    assert {name: marks(cluster, name) for name in GPU_NODES} == {
        name: ALL if name in ("gpu-3", "gpu-5") else NONE for name in GPU_NODES
    }
    (condition,) = (one for one in node(cluster, "gpu-3")["status"]["conditions"] if one["type"] != "Ready")
    assert condition["status"] == "True" and "host-gpu-lost: GPU 3 is gone" in condition["message"]
    assert pod(cluster, "user")["status"]["phase"] == "Running"
    cluster.pod("again", {"nodeSelector": {"kubernetes.io/hostname": "gpu-3"}})
    assert comes(lambda: pod(cluster, "again")["status"].get("conditions"), 0.2)
    assert pod(cluster, "again")["status"]["conditions"][0]["reason"] == "Unschedulable"
    report(cluster, pods)
    code, said = envkit(cluster, "drain", WORD, "--undo", "--apply")
    assert code == 0 and "2 of 2 changes took effect" in said, said
    assert {marks(cluster, name) for name in GPU_NODES} == {NONE}
    assert not [key for key in node(cluster, "gpu-3")["metadata"]["annotations"] if "envkit" in key]
    assert comes(lambda: pod(cluster, "again")["spec"].get("nodeName") == "gpu-3", 0.2)


def test_the_marks_of_others_stay(cluster: Cluster) -> None:
    theirs = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    cluster.kubectl("cordon", "gpu-3", "gpu-4")
    cluster.kubectl("taint", "node", "gpu-3", "dedicated=x:NoSchedule")
    pods = cluster.bound("app=envkit-nodes", 8)
    report(cluster, pods, failed=["gpu-3"])
    assert envkit(cluster, "drain", WORD, "--apply")[0] == 0
    assert marks(cluster, "gpu-3") == ALL
    report(cluster, pods)
    assert envkit(cluster, "drain", WORD, "--undo", "--apply")[0] == 0
    assert marks(cluster, "gpu-3") == marks(cluster, "gpu-4") == (False, False, True)
    assert theirs in node(cluster, "gpu-3")["spec"]["taints"]


def test_a_node_whose_gpus_a_job_has_is_left_alone(cluster: Cluster) -> None:
    """The scheduler has no place there for the examination, which is no fault of the node; a Pod that never came is."""
    cleared(cluster)
    gpus = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    cluster.pod("user", {"nodeName": "gpu-3", "containers": [gpus]})
    cluster.status("user", {"phase": "Running"})
    cluster.kubectl("apply", "-f", str(JOBS / "kubernetes-nodes.yaml"))
    pods = cluster.bound("app=envkit-nodes", 7)
    report(cluster, pods)
    code, said = envkit(cluster, "judge", WORD)
    assert code == 3 and "gpu-3: it may still answer" in said and "Insufficient nvidia.com/gpu" in said, said
    code, said = envkit(cluster, "drain", WORD, "--apply")
    assert code == 0 and "0 of 0 changes took effect" in said and marks(cluster, "gpu-3") == NONE


def test_a_job_on_two_nodes_is_read_by_the_names_of_its_pods(cluster: Cluster) -> None:
    """This server drops `completionMode`, so a person has to name the nodes; on which machines they were is known."""
    size = {"storage": "1Gi"}
    disk = {"capacity": size, "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/srv/shared"}}
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": size}}
    for path, kind, spec in (
        ("persistentvolumes", "PersistentVolume", disk),
        ("namespaces/default/persistentvolumeclaims", "PersistentVolumeClaim", claim),
    ):
        cluster.call("POST", f"/api/v1/{path}", {"kind": kind, "metadata": {"name": "shared"}, "spec": spec})
    cleared(cluster)  # the DaemonSet has the GPUs
    cluster.kubectl("apply", "--validate=false", "-f", str(JOBS / "kubernetes-fleet.yaml"))
    pods = cluster.bound("job-name=train", 2)
    for number, (_, pod) in enumerate(sorted(pods.items())):
        cluster.status(pod, ended(numbered(number, number == 1), "main"))
    code, said = envkit(cluster, "judge", "kubernetes:job/train")
    assert code == 2 and "name them with --hosts" in said, said
    code, said = envkit(cluster, "drain", "kubernetes:job/train", "--hosts", "0,1,2", "--apply")
    assert code == 0 and "2: left alone: no Pod of it was ever on a node" in said, said
    assert [marks(cluster, name) for name in sorted(pods)] == [NONE, ALL]


def test_somebody_else_changes_the_node_first(cluster: Cluster) -> None:
    """The server's own 409."""
    stale = node(cluster, "gpu-1")
    cluster.kubectl("label", "node", "gpu-1", f"changed=at-{time.time_ns()}")
    body_ = {"metadata": {"resourceVersion": stale["metadata"]["resourceVersion"]}, "spec": {"unschedulable": True}}
    with pytest.raises(HTTPError, match="409"):
        cluster.call("PATCH", "/api/v1/nodes/gpu-1", body_, "application/merge-patch+json")
    script = (
        "import os; from envkit.fleet import apiserver\n"
        "with apiserver.connected(os.environ) as api:\n"
        f"    api.patch('/api/v1/nodes/gpu-1', 'merge', {body_!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=cluster.environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "Refusal: the API server refused with 409" in done.stderr and not marks(cluster, "gpu-1")[2]


@NIGHTLY
def test_a_server_that_is_down_comes_back_or_is_named(cluster: Cluster) -> None:
    report(cluster, cluster.bound("app=envkit-nodes", 8))
    server = cluster.servers["kube-apiserver"]
    os.kill(server.pid, signal.SIGSTOP)
    try:
        code, said = envkit(cluster, "judge", WORD, impatient=True)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert code == 3 and "the API server did not answer within 4 s" in said, said
    server.kill()
    server.wait()
    code, said = envkit(cluster, "judge", WORD, impatient=True)
    assert code == 3 and "connection refused" in said, said
    asking = subprocess.Popen(
        [sys.executable, "-m", "envkit", "judge", WORD], env=cluster.environment, stdout=subprocess.PIPE, text=True
    )
    cluster.start("kube-apiserver")
    out, _ = asking.communicate(timeout=2 * PATIENCE_S)
    assert asking.returncode == 0, out
    assert comes(cluster.answers, 0.2)


def test_the_rights_that_the_page_lists_are_enough_and_needed(cluster: Cluster) -> None:
    pods = cluster.bound("app=envkit-nodes", 8)
    report(cluster, pods, failed=["gpu-2"])
    code, said = envkit(cluster, "judge", WORD, user="nobody")
    assert code == 3 and 'refused with 403: daemonsets.apps "envkit-nodes" is forbidden' in said, said
    cluster.kubectl("apply", "-f", str(RIGHTS))
    cluster.kubectl("create", "clusterrolebinding", "marker", "--clusterrole=envkit-drain", "--user=marker")
    try:
        code, said = envkit(cluster, "drain", WORD, "--apply", user="marker")
        assert code == 0 and marks(cluster, "gpu-2") == ALL, said
        code, said = envkit(cluster, "drain", WORD, "--apply", user="nobody")
        assert code == 3
    finally:
        cluster.kubectl("delete", "clusterrolebinding", "marker")
        cluster.kubectl("delete", "-f", str(RIGHTS))


@NIGHTLY
def test_a_thousand_nodes(cluster: Cluster) -> None:
    """Each with a Pod of the DaemonSet; one fails, one says nothing."""
    names = [f"big-{number:04}" for number in range(992)]
    began, busy = time.monotonic(), cluster.spent() + spent()
    cluster.nodes(names, LABELS)
    pods = cluster.bound("app=envkit-nodes", 1000)
    report(cluster, pods, failed=["big-0007"], silent=["big-0500"])
    there, worked = time.monotonic(), cluster.spent() + spent()
    code, said = envkit(cluster, "judge", WORD)
    judged = f"judged in {time.monotonic() - there:.1f} s, {cluster.spent() + spent() - worked:.1f} s of a processor"
    made = f"there after {there - began:.1f} s, {worked - busy:.1f} s of a processor"
    print(f"1,000 nodes, Pods and reports: {made}; {judged}")
    cluster.many(lambda name: cluster.call("DELETE", f"/api/v1/nodes/{name}"), names)
    assert code == 1 and "998 of 1000 nodes ok; 2 failed (big-[0007,0500])" in said, said[:2000]
