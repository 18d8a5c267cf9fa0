"""Ranks that do not reach each other: sockets, interfaces, stores and rendezvous, gloo, InfiniBand and its kin."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._ranks import ended_otherwise, family, independent, quoted, stem
from envkit.logs.causes._setup import words_seen
from envkit.logs.causes._tracebacks import events_in, fatal
from envkit.logs.causes._worded import worded
from envkit.logs.causes.rules import by_rule
from envkit.logs.codes import status
from envkit.logs.records import Event, Hypothesis, Role, Strength
from envkit.logs.story import Story

_SYSTEM = "nccl-unhandled-system-error"
_REMOTE = "nccl-remote-error"
_IB = "nccl-ib-transport-error"
_WRAPPERS = (_SYSTEM, _REMOTE, "nccl-unhandled-cuda-error", "nccl-timeout-hang")
# interfaces and addresses that end at their own machine: docker's bridges, virtual machines' bridges, loopback
_LOCAL = re.compile(r"^(?:docker|br-|veth|virbr|lxc|cni|flannel|lo$|127\.|172\.17\.|::1$|localhost)")
_REFUSED = {
    "Address already in use": "nccl-port-taken", "Permission denied": "nccl-sockets-forbidden",
    "Operation not permitted": "nccl-sockets-forbidden",
}  # fmt: skip
_LOCKED = "locked memory is limited (ulimit -l): the adapter could not have its queues or buffers"


def not_reached(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """NCCL could not connect (NVIDIA/nccl src/misc/socket.cc); which interface it took says why, where it is told."""
    found = family(story, "nccl-connect-retried", "nccl-poll-connect", "nccl-connect-failed")
    if not found:
        return
    event = found[0]
    error = event.values.get("error") or "no answer"
    if error in _REFUSED:
        yield worded(_REFUSED[error], *quoted(found))
        return
    local = _local_interface(story) or _local(event.values.get("device"))
    where = f" at {event.values['device']}" if event.values.get("device") else ""
    by = f"; NCCL took {local}, which ends at its own machine" if local else ""
    dead = [other for other in independent(story) if other.category not in (_SYSTEM, _REMOTE, event.category)]
    remote = _says(story, "nccl-status-remote") and not _says(story, "nccl-status-system")
    category, why = _REMOTE if remote else event.category, f"a peer{where} was not reached ({error}){by}"
    cause = "peer-failure" if dead and "refused" in error and not local else "network-fabric"
    decide = "nc -vz to that address and port from this host, on the interface that NCCL names"
    over = () if dead else (*_WRAPPERS, "not-gpu-env")
    yield Hypothesis(category, cause, Strength.LIKELY, quoted(found), why, decide_by=decide, over=over)


def no_interface(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """NCCL needs an IP interface even on one machine, to let its ranks find each other (NCCL user guide)."""
    for event in family(story, "nccl-address-family", "nccl-no-interface", "nccl-family-number")[:1]:
        named = stem(event) == "nccl-family-number" or words_seen(story, "nccl_socket_ifname")
        why = "the interface that NCCL_SOCKET_IFNAME names is not there"
        why = why if named else "there is no network interface that NCCL can use"
        yield worded("nccl-without-interface", event, cause="launch-config", why=why)


def peer_closed(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A connection that its other end closed: that rank went first (NCCL user guide, ncclRemoteError)."""
    found = family(
        story,
        *("nccl-peer-closed", "nccl-recv-failed", "c10d-store-closed", "gloo-closed", "gloo-broken"),
        *("nccl-aborted", "c10d-unique-id-closed"),
    )
    if found:
        # NCCL's own line says more than torch's about it
        found = tuple(sorted(found, key=lambda event: stem(event) in ("nccl-aborted", "c10d-store-closed")))
        name = found[0].values.get("device") or found[0].values.get("other_rank")
        chain = fatal(story)
        if chain and not any(event.category for trace in chain for event in events_in(story, trace)):
            return  # the process that went first says why
        ended = ended_otherwise(story)
        if ended and ended[1] == "SIGKILL":
            said = [event for event in story.of("elastic-report-signal") if "SIGKILL" in event.line.text]
            yield worded("killed-before-its-peers", ended[0], *said[:1], *quoted(found), over=_WRAPPERS)
        yield worded("peer-closed-connection", *quoted(found), peer=f"the peer {name}" if name else "a peer")


def adapter(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """What InfiniBand adapters and the transports above them report, the nearest to the wire first."""
    yield from _completion(story)
    yield from _adapter_event(story)
    yield from _connection(story)
    yield from _of_gpu(story)
    yield from _memory(story)
    yield from _transport(story)


def _completion(story: Story) -> Iterator[Hypothesis]:
    """Completions with an error, by the status of InfiniBand verbs (rdma-core libibverbs/verbs.h, ibv_wc_status)."""
    found = family(story, "ib-completion")
    for event in found[:1]:
        row = status("ib", event.values.get("code") or "")
        meaning = f"{row.name}, {row.means}" if row else f"status {event.values.get('code')}"
        device = event.values.get("device") or "a peer"
        yield worded("ib-message-not-carried", *quoted(found), device=device, meaning=meaning)


def _adapter_event(story: Story) -> Iterator[Hypothesis]:
    """An event of a port or of the whole adapter that ends its work."""
    for event in family(story, "ib-fatal-event", "ib-event-name", "ib-adapter-health")[:1]:
        error, of = event.values.get("error") or "a fatal event", event.values.get("device") or ""
        cause = "network-fabric" if "port" in error.lower() else "hardware-fault"
        yield worded("ib-adapter-event", event, cause=cause, of=of and f" {of}", error=error)


def _connection(story: Story) -> Iterator[Hypothesis]:
    """A connection between two adapters that could not be set up."""
    for event in family(story, "ib-modify-qp", "ib-gid", "ucx-transport", "ofi-error", "nvshmem-transport")[:1]:
        error = event.values.get("error") or "no reason given"
        if "annot allocate memory" in error:
            yield Hypothesis(_SYSTEM, "host-resource", Strength.LIKELY, quoted([event]), _LOCKED, over=_WRAPPERS)
            return
        yield worded("ib-connection-unusable", *quoted([event]), error=error.strip())


def _of_gpu(story: Story) -> Iterator[Hypothesis]:
    """Memory of the GPU that the adapter cannot reach (UCX names the kind of memory)."""
    for event in family(story, "ucx-register-gpu")[:1]:
        yield worded("gpu-memory-not-registered", event, module="the adapter could not register the GPU's memory")


def _memory(story: Story) -> Iterator[Hypothesis]:
    """Memory or a queue that the adapter did not get: the limit of locked memory, or no way to the GPU's memory."""
    for event in family(story, "ib-memory", "ib-register", "ib-no-device")[:1]:
        error = event.values.get("error") or ""
        # without a reason, a queue that cannot be made is most often one that may not be locked in memory
        if stem(event) == "ib-memory" or (not error and (event.values.get("what") or "").startswith("ibv_create")):
            cause, strength, because = "host-resource", Strength.LIKELY, _LOCKED
        elif "ad address" in error:
            cause, strength = "driver-firmware-fault", Strength.POSSIBLE
            because = "the adapter could not register the GPU's memory"
        else:
            cause, strength = "container-config", Strength.POSSIBLE
            because = f"the adapter refused a call ({error or event.values.get('device') or 'no reason given'})"
        yield worded("ib-memory-refused", *quoted([event]), cause=cause, strength=strength, why=because)


def _transport(story: Story) -> Iterator[Hypothesis]:
    """A transport that could not go on, by the words of UCX or NCCL."""
    for event in family(story, "ucx-error", "nccl-host-memory")[:1]:
        words = event.values.get("error") or event.line.text
        network = re.search(r"onnect|nreachable|imed out|endpoint|refused|reset", words)
        cause = "network-fabric" if network else "host-resource"
        yield worded("transport-stopped", event, cause=cause, words=words.strip()[:160])


def meeting_point(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Ranks meet at a store before any GPU is used (torch/csrc/distributed/c10d/socket.cpp, TCPStore.cpp, gloo)."""
    taken = family(story, "c10d-port-taken", "c10d-port-taken-summary", "port-in-use")
    if taken:
        yield from by_rule(taken[0], category="not-gpu-env")
        return
    yield from _meeting_rule(story, "c10d-bind-refused")
    yield from _not_met(story)
    for event in family(story, "gloo-no-address")[:1]:
        yield worded("gloo-without-address", *quoted([event]), device=event.values.get("device") or "this host")
    yield from _meeting_rule(story, "c10d-clients-joined", "c10d-clients-waiting")
    yield from _meeting_rule(story, "c10d-environment-missing")


def _meeting_rule(story: Story, *stems: str) -> Iterator[Hypothesis]:
    for event in family(story, *stems)[:1]:
        yield from by_rule(event, category="not-gpu-env")


def _not_met(story: Story) -> Iterator[Hypothesis]:
    """The store of rank 0 was not reached; why it was not depends on what else failed."""
    refused = family(
        story, "c10d-client-timeout", "c10d-connect-timeout", "c10d-client-nowhere", "gloo-refused", "gloo-full-mesh"
    )
    retried = family(story, "c10d-client-failed", "c10d-resolve", roots=False)
    for event in (refused or family(story, "elastic-rendezvous-failed", "elastic-rendezvous-timeout", roots=False))[:1]:
        dead = independent(story)
        others = [each for each in dead if each not in refused and each.category != "not-gpu-env"]
        places = (event.values.get("device"), *(each.values.get("device") for each in retried))
        place = next(filter(None, places), "")
        strength = Strength.POSSIBLE if others or event.role is Role.CASCADE else Strength.LIKELY
        local = "; that address ends at its own machine" if _local(place) else ""
        where = place and f" ({place})"
        yield worded("meeting-point-not-reached", event, *retried[:1], strength=strength, where=where, local=local)


def _local(name: str | None) -> str:
    return name if name and _LOCAL.match(name.strip("[]")) else ""


def _local_interface(story: Story) -> str:
    """The interface NCCL met its peers on, if it ends at its own machine."""
    taken = (_local(event.values.get("device")) for event in story.of("nccl-bootstrap-interface"))
    return next(filter(None, taken), "")


def _says(story: Story, name: str) -> tuple[Event, ...]:
    return family(story, name, roots=False)
