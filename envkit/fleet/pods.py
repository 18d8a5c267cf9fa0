"""What Kubernetes says of the Pods of a job: the documents in their termination messages, where they ran, how they
ended, and which nodes were to answer.

They come from a file that kubectl wrote, or from the API server, which also says how many Pods a Job or a JobSet has,
and to which nodes a DaemonSet goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envkit.errors import UsageError, one_line
from envkit.fleet.documents import Document, Refused, decoded
from envkit.fleet.hostlist import MOST_NODES
from envkit.records import dataclass

if TYPE_CHECKING:
    from envkit.fleet.apiserver import Api

_INDEX = "batch.kubernetes.io/job-completion-index"
ASKED = "kubernetes:"
_NAME = "[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_WORD = re.compile(f"{ASKED}(?:({_NAME})/)?(job|jobset|daemonset)/({_NAME})")
_SOON = frozenset(("ContainerCreating", "PodInitializing"))  # what a container waits for that will start


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a carrier says of a node: its document, or why there is none; ``note`` is the carrier's own word of it.

    ``machine`` is the node of Kubernetes, "" where nobody says; ``open`` is why no document is no fault.
    """

    node: str
    document: Document | None = None
    refused: Refused | None = None
    note: str = ""
    machine: str = ""
    open: str = ""


@dataclass(frozen=True, slots=True)
class Carried:
    """All that one carrier says; ``hosts`` are the nodes that were to answer, where it knows."""

    reports: tuple[NodeReport, ...]
    hosts: tuple[str, ...] = ()


def is_asked(place: Path) -> bool:
    """Whether a place is none of this machine's, but a job that the API server is asked about."""
    return str(place).startswith(ASKED)


def asked(word: str, environ: Mapping[str, str]) -> Carried:
    """What the API server says of the job that ``word`` names: kubernetes:NAMESPACE/KIND/NAME.

    Raises UsageError for another word, and for a job that is not there or leaves open which nodes shall answer;
    Undecided where the server gives no answer.
    """
    from envkit.fleet import apiserver  # each node of a run imports this module, and TLS takes a while

    found = _WORD.fullmatch(word)
    if not found:
        raise UsageError(
            f"`{one_line(word)}` names no job of Kubernetes", "write kubernetes:NAMESPACE/job/NAME, jobset or daemonset"
        )
    space, kind, name = found[1] or "default", found[2], found[3]
    with apiserver.connected(environ) as api:
        try:
            return listed(api, space, kind, name)
        except apiserver.Refusal as refusal:
            if refusal.status != 404:
                raise
            raise UsageError(
                f"there is no {kind} `{name}` in the namespace `{space}`", f"see `kubectl get {kind} --all-namespaces`"
            ) from refusal


def listed(api: Api, space: str, kind: str, name: str) -> Carried:
    """The Pods of a "job", "jobset" or "daemonset" in the namespace ``space``, and the nodes that were to answer."""
    hosts, selector, over = _KINDS[kind](api, space, name)
    found = tuple(reports(api.items(f"/api/v1/namespaces/{space}/pods", {"labelSelector": selector})))
    there = {one.node for one in found}
    return Carried((*found, *(NodeReport(host, open=over) for host in hosts if over and host not in there)), hosts)


def _job(api: Api, space: str, name: str) -> tuple[tuple[str, ...], str, str]:
    job = api.get(f"/apis/batch/v1/namespaces/{space}/jobs/{name}")
    return _numbered(f"the Job {name}", part(job, "spec")), f"job-name={name}", _over(job, f"the Job {name}")


def _over(made: Mapping[str, Any], what: str) -> str:
    """Why a Pod may be gone that was there: of a Job that failed, Kubernetes deletes all that still run."""
    for each in parts(part(made, "status"), "conditions"):
        if each.get("type") == "Failed" and each.get("status") == "True":
            return f"its Pod is gone, for {what} failed: {one_line(str(each.get('reason', '?')))}"
    return ""


def _jobset(api: Api, space: str, name: str) -> tuple[tuple[str, ...], str, str]:
    """The Pods of the one Job that a JobSet makes of its one template; several would have the same numbers."""
    made = api.get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{space}/jobsets/{name}")
    spec = part(made, "spec")
    jobs = parts(spec, "replicatedJobs")
    if len(jobs) != 1 or jobs[0].get("replicas", 1) != 1:
        raise UsageError(
            f"the JobSet {name} makes several Jobs, whose Pods have the same numbers",
            f"name one of them: {ASKED}{space}/job/NAME, as `kubectl get jobs -n {space}` shows it",
        )
    inner = part(jobs[0], "template", "spec")
    label = f"jobset.sigs.k8s.io/jobset-name={name}"
    return _numbered(f"the JobSet {name}", inner), label, _over(made, f"the JobSet {name}")


def _numbered(what: str, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The numbers of an Indexed Job's Pods; none where its Pods have no numbers, and a person has to name them."""
    many = spec.get("completions")
    if spec.get("completionMode") != "Indexed":
        return ()
    if not isinstance(many, int) or not 0 < many <= MOST_NODES:
        raise UsageError(f"{what} has {many} completions", f"give it from 1 to {MOST_NODES}")
    return tuple(map(str, range(many)))


def _daemonset(api: Api, space: str, name: str) -> tuple[tuple[str, ...], str, str]:
    """The nodes that have the labels which its Pods ask for."""
    spec = part(api.get(f"/apis/apps/v1/namespaces/{space}/daemonsets/{name}"), "spec")
    pod = part(spec, "template", "spec")
    if part(pod, "affinity", "nodeAffinity"):
        raise UsageError(
            f"the DaemonSet {name} chooses its nodes by an affinity, which envkit does not read",
            "choose them by nodeSelector, or name them with --hosts",
        )
    nodes = api.items("/api/v1/nodes", {"labelSelector": _selector(part(pod, "nodeSelector"))}, names_only=True)
    names = tuple(str(part(node, "metadata").get("name", "")) for node in nodes)
    return names, _selector(part(spec, "selector", "matchLabels")), ""


def _selector(labels: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


_KINDS = {"job": _job, "jobset": _jobset, "daemonset": _daemonset}


def in_file(data: bytes, path: Path) -> list[Mapping[str, Any]]:
    """The Pods in what `kubectl get pods -o json` wrote; raises UsageError for anything else."""
    try:
        listed = json.loads(data)
        if listed["kind"] not in ("List", "PodList", "Pod"):
            raise TypeError(listed["kind"])
        items = [listed] if listed["kind"] == "Pod" else listed["items"]
        return [pod for pod in items if isinstance(pod, dict) and pod.get("kind", "Pod") == "Pod"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{path} is no list of Pods: {type(error).__name__}",
            "write it by `kubectl get pods -l job-name=NAME -o json`",
        ) from error


def reports(pods: Sequence[Mapping[str, Any]]) -> Iterator[NodeReport]:
    """What Pods say of their nodes."""
    for pod in pods:
        yield from _pod(pod)


def _pod(pod: Mapping[str, Any]) -> Iterator[NodeReport]:
    """The termination message of a Pod's containers: two lines of a document, or what the kubelet says of its end."""
    about, status = part(pod, "metadata"), part(pod, "status")
    labels = {**part(about, "labels"), **part(about, "annotations")}
    machine = str(part(pod, "spec").get("nodeName", ""))
    node = str(labels.get(_INDEX, "")) or machine or _meant_for(pod)
    note = f"Pod {about.get('name', '?')}{f' on {machine}' if machine not in ('', node) else ''}: "
    note += str(status.get("phase", "?"))
    if status.get("reason"):
        note += f", {status['reason']}"
    if about.get("deletionTimestamp"):
        note += ", being deleted"
    for conditions in parts(status, "conditions"):
        if conditions.get("status") == "False" and conditions.get("message"):
            note += f", {conditions['message']}"
            break
    messages: list[str] = []
    # The scheduler has no place for it yet, most often because a job has the GPUs: that is no fault of a node.
    running = any(
        each.get("type") == "PodScheduled" and each.get("status") == "False" for each in parts(status, "conditions")
    )
    for each in (*parts(status, "initContainerStatuses"), *parts(status, "containerStatuses")):
        state, before = part(each, "state"), part(each, "lastState", "terminated")
        ended, waits = part(state, "terminated"), part(state, "waiting")
        # While a container that failed waits to be started again, its message is that of the last start.
        last = ended or before
        running |= "running" in state or waits.get("reason") in _SOON
        if last.get("reason") not in (None, "Completed", "Error"):
            note += f", {last['reason']} (exit code {last.get('exitCode', '?')})"
        if waits.get("reason"):
            note += f", {waits['reason']}"
        message = str(last.get("message", ""))
        if '"envkit.node/1"' in message[:100]:
            messages.append(message if message.endswith("\n") else f"{message}\n")
    running = running and status.get("phase") in ("Pending", "Running")
    for message in messages:
        try:
            document = decoded(message.encode())
            yield NodeReport(document.head.node, document, note=one_line(note), machine=machine)
        except Refused as refused:
            yield NodeReport(node, refused=refused, note=one_line(note), machine=machine)
    if not messages and node:
        yield NodeReport(node, note=one_line(note), machine=machine, open="it may still answer" if running else "")


def _meant_for(pod: Mapping[str, Any]) -> str:
    """The node of a Pod of a DaemonSet that waits for a place there, "" of any other Pod."""
    wanted = part(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in parts(wanted, "nodeSelectorTerms"):
        for each in parts(term, "matchFields"):
            names = each.get("values")
            if each.get("key") == "metadata.name" and isinstance(names, list) and len(names) == 1:
                return str(names[0])
    return ""


def part(item: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The mapping that ``keys`` lead to in an object of the API; an empty one where it has none there."""
    for key in keys:
        found = item.get(key)
        item = found if isinstance(found, dict) else {}
    return item


def parts(item: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The mappings in the list at ``key``; none where there is no list."""
    found = item.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
