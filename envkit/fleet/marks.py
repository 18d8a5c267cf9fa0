"""Takes failed nodes out of Kubernetes' service and puts healthy ones back.

A failed node gets a condition that says what was found, a taint and a cordon, which keep new Pods away.  No Pod is
evicted: those that run there end as they would.  What somebody else cordoned or tainted is left as it is; an annotation
says which cordon is envkit's own, and condition and taint are envkit's by their names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envkit.fleet.acting import reason_for
from envkit.fleet.apiserver import Api, Refusal, name_in
from envkit.fleet.pods import part, parts
from envkit.fleet.verdict import FleetVerdict, NodeVerdict, State
from envkit.records import dataclass

CONDITION = "EnvkitPreflightFailed"
TAINT = "envkit.io/preflight"  # its value is "failed", its effect NoSchedule; an annotation of this name has the run
CORDONED = "envkit.io/cordoned"  # the annotation of a node that envkit cordoned
_TRIES = 6  # of a change that somebody else's change of the same node overtakes, as the kubelet's every 10 s
_OURS = {"key": TAINT, "value": "failed", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done with a node: ``marks`` are set or taken away on ``machine``, the node of Kubernetes; none
    where ``why_not`` says why.  ``note`` is for a person, ``reason`` what the condition says."""

    node: str
    machine: str = ""
    marks: tuple[str, ...] = ()
    why_not: str = ""
    note: str = ""
    reason: str = ""


def marks_of(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The marks of envkit's own that a node has: "condition", "taint", "cordon"."""
    spec, annotations = part(node, "spec"), part(node, "metadata", "annotations")
    conditions = parts(part(node, "status"), "conditions")
    made = ["condition"] if any(each.get("type") == CONDITION for each in conditions) else []
    made += ["taint"] if any(each.get("key") == TAINT for each in parts(spec, "taints")) else []
    made += ["cordon"] if spec.get("unschedulable") and CORDONED in annotations else []
    return tuple(made)


def _missing(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The marks that a failed node lacks; a cordon of somebody else is one."""
    present = marks_of(node) + (("cordon",) if part(node, "spec").get("unschedulable") else ())
    return tuple(each for each in ("condition", "taint", "cordon") if each not in present)


def found_at(api: Api, machine: str) -> dict[str, Any] | None:
    """The node as the API server knows it, None where it does not."""
    try:
        return api.get(f"/api/v1/nodes/{name_in(machine)}")
    except Refusal as refusal:
        if refusal.status == 404:
            return None
        raise


def to_mark(api: Api, verdict: FleetVerdict, unknown_too: bool = False) -> tuple[Step, ...]:
    """What takes each failed node out of service, with ``unknown_too`` also those of which nothing is known."""
    states = (State.FAIL, State.UNKNOWN) if unknown_too else (State.FAIL,)
    return tuple(_marked(api, one, verdict) for one in verdict.nodes if one.state in states)


def _marked(api: Api, one: NodeVerdict, verdict: FleetVerdict) -> Step:
    machine = _machine(one.node, verdict)
    if not machine:
        return Step(one.node, why_not="no Pod of it was ever on a node")
    node = found_at(api, machine)
    if node is None:
        return Step(one.node, machine, why_not="Kubernetes does not know it")
    missing = _missing(node)
    if not missing:
        return Step(one.node, machine, why_not="it has envkit's marks already")
    busy = [pod for pod in _running(api, machine) if not _stays(pod)]
    note = f"{len(busy)} Pods run there and go on" if len(busy) > 1 else "a Pod runs there and goes on" if busy else ""
    return Step(one.node, machine, missing, note=note, reason=reason_for(one, verdict))


def _machine(node: str, verdict: FleetVerdict) -> str:
    """The node of Kubernetes behind a name of the run, "" where no Pod says; numbers are none of its names."""
    return verdict.machines.get(node, "" if node.isdigit() else node)


def _running(api: Api, machine: str) -> list[dict[str, Any]]:
    return api.items("/api/v1/pods", {"fieldSelector": f"spec.nodeName={machine},status.phase=Running"})


def _stays(pod: Mapping[str, Any]) -> bool:
    """Whether a Pod belongs to the node: one of a DaemonSet, or of the kubelet's own files."""
    owners = parts(part(pod, "metadata"), "ownerReferences")
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)


def to_unmark(api: Api, verdict: FleetVerdict) -> tuple[Step, ...]:
    """What returns each node to service that is ok in this run and that has marks of envkit's."""
    # Of all nodes but their names and annotations, of which envkit's own is there as long as its marks are.
    ours = {
        part(node, "metadata").get("name")
        for node in api.items("/api/v1/nodes", {}, names_only=True)
        if TAINT in part(node, "metadata", "annotations")
    }
    behind: dict[str, list[NodeVerdict]] = {}  # several Pods may have run on one
    for one in verdict.nodes:
        behind.setdefault(_machine(one.node, verdict), []).append(one)
    steps: list[Step] = []
    for machine, all_ in behind.items():
        node = found_at(api, machine) if machine in ours else None
        marks = marks_of(node) if node else ()
        if not marks:
            continue
        if bad := next((one for one in all_ if one.state is not State.OK), None):
            why = f"it is {bad.state.value} in this run: {bad.sentence}"
            steps.append(Step(bad.node, machine, why_not=why))
        else:
            steps.append(Step(all_[0].node, machine, marks))
    return tuple(steps)


def shown(step: Step, undo: bool) -> str:
    """What the step is, for a person."""
    name = step.node if step.machine in ("", step.node) else f"{step.node} ({step.machine})"
    if not step.marks:
        return f"{name}: left alone: {step.why_not}"
    words = {
        "condition": f"condition {CONDITION}=True",
        "taint": f"taint {TAINT}=failed:NoSchedule",
        "cordon": "cordon",
    }
    does = "take away" if undo else "set"
    said = f"{name}: {does} {', '.join(words[mark] for mark in step.marks)}"
    return said + (f" ({step.note})" if step.note else "") + (f": {step.reason}" if step.reason else "")


def apply(api: Api, steps: Sequence[Step], verdict: FleetVerdict, undo: bool, say: Callable[[str], None]) -> int:
    """Does the steps and says what became of them; gives how many did not take.  A refusal of one node's change is
    said, and the others go on; a server without an answer ends it.

    Raises Undecided where the server gives no answer.
    """
    failed = 0
    for step in steps:
        if not step.marks:
            continue
        try:
            left = _applied(api, step, verdict.run.run, undo)
        except Refusal as refusal:
            failed += 1
            say(f"{step.machine}: {refusal.message}")
            continue
        failed += bool(left)
        say(f"{step.machine}: {left or ('in service again' if undo else 'marked')}")
    return failed


def _applied(api: Api, step: Step, run: str, undo: bool) -> str:
    """Changes one node; "" where it took, or what is wrong with it then."""
    for left in reversed(range(_TRIES)):
        node = found_at(api, step.machine)
        if node is None:
            return "Kubernetes does not know it any more"
        try:
            after = _unmarked(api, node) if undo else _with_marks(api, node, step, run)
        except Refusal as refusal:
            if refusal.status != 409 or not left:
                raise
            continue
        if wrong := marks_of(after) if undo else _missing(after):
            return f"the change was accepted, and {'it still has' if undo else 'it lacks'} its {' and '.join(wrong)}"
        break
    return ""


def _with_marks(api: Api, node: dict[str, Any], step: Step, run: str) -> dict[str, Any]:
    """Taint, cordon and whose they are in one change, then the condition; what is there already stays."""
    missing = _missing(node)
    spec: dict[str, Any] = {}
    annotations: dict[str, Any] = {TAINT: run}
    if "taint" in missing:
        spec["taints"] = [*parts(part(node, "spec"), "taints"), _OURS]
    if "cordon" in missing:
        spec["unschedulable"], annotations[CORDONED] = True, "true"
    if spec:
        node = _changed(api, node, annotations, spec)
    if "condition" in missing:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        node = _condition(api, node, {"status": "True", "reason": "PreflightFailed", "message": step.reason, **times})
    return node


def _unmarked(api: Api, node: dict[str, Any]) -> dict[str, Any]:
    """The condition goes first: whose the rest is, is known until the end."""
    marks = marks_of(node)
    if "condition" in marks:
        node = _condition(api, node, {"$patch": "delete"})
    spec: dict[str, Any] = {}
    if "taint" in marks:
        spec["taints"] = [each for each in parts(part(node, "spec"), "taints") if each.get("key") != TAINT]
    if "cordon" in marks:
        spec["unschedulable"] = None
    return _changed(api, node, {TAINT: None, CORDONED: None}, spec)


def _changed(
    api: Api, node: Mapping[str, Any], annotations: Mapping[str, Any], spec: Mapping[str, Any]
) -> dict[str, Any]:
    """One change of the node as it was read: the server refuses it with 409 where it is another one by now."""
    about = part(node, "metadata")
    body = {"metadata": {"resourceVersion": about.get("resourceVersion"), "annotations": annotations}, "spec": spec}
    return api.patch(f"/api/v1/nodes/{name_in(str(about.get('name', '')))}", "merge", body)


def _condition(api: Api, node: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """The one condition of envkit's; the server merges conditions by their type."""
    name = name_in(str(part(node, "metadata").get("name", "")))
    body = {"status": {"conditions": [{"type": CONDITION, **values}]}}
    return api.patch(f"/api/v1/nodes/{name}/status", "strategic", body)
