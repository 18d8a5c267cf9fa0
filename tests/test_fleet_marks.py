"""Failed nodes in Kubernetes: which marks they get and lose, whoever else marked them, and a server that says no."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fleet
import kube_server
import processes
import pytest
from clocks import PATIENCE_S, comes
from fleet import body, document, fault, healthy, judged, lay
from inline import Envkit
from kube_server import KubeServer, Planned

from envkit.errors import Undecided
from envkit.fleet import apiserver, marks
from envkit.fleet.apiserver import Refusal
from envkit.fleet.documents import Found, encoded
from envkit.fleet.marks import Step
from envkit.fleet.verdict import FleetVerdict

MARKS = ("condition", "taint", "cordon")
THEIRS = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
OURS = {"key": "envkit.io/preflight", "value": "failed", "effect": "NoSchedule"}


@pytest.fixture
def server() -> Iterator[KubeServer]:
    """A cluster with the eight nodes of the run, and one more."""
    with kube_server.serving() as made:
        for name in (*fleet.HOSTS, "other"):
            made.node(name, spec={"taints": [THEIRS]})
        yield made


@pytest.fixture
def verdict(tmp_path: Path) -> FleetVerdict:
    """Of eight nodes n2 failed, n3 is unknown and the others are ok."""
    open_one = document("n3", body(found=(Found("host-no-gpu", "unknown", "no answer"),)))
    return judged(lay(tmp_path, *healthy(n2=document("n2", body(found=(fault(),))), n3=open_one)))


def at(server: KubeServer, name: str) -> dict[str, Any]:
    return server.objects[f"/api/v1/nodes/{name}"]


def mark(server: KubeServer, verdict: FleetVerdict) -> list[str]:
    said: list[str] = []
    api = server.api()
    assert marks.apply(api, marks.to_mark(api, verdict), verdict, False, said.append) == 0
    return said


def unmark(server: KubeServer, verdict: FleetVerdict) -> list[str]:
    said: list[str] = []
    api = server.api()
    assert marks.apply(api, marks.to_unmark(api, verdict), verdict, True, said.append) == 0
    return said


def test_a_failed_node_gets_all_three_marks_and_loses_them(
    server: KubeServer, verdict: FleetVerdict, tmp_path: Path
) -> None:
    before = json.loads(json.dumps(server.objects))
    (step,) = marks.to_mark(server.api(), verdict)
    reason = "envkit slurm-17.0: host-gpu-lost: GPU 3 is gone"
    assert step == Step("n2", "n2", MARKS, reason=reason)
    assert server.objects == before
    assert mark(server, verdict) == ["n2: marked"]
    node = at(server, "n2")
    assert node["spec"] == {"taints": [THEIRS, OURS], "unschedulable": True}
    told = node["status"]["conditions"][-1]
    assert (told["type"], told["status"], told["message"]) == ("EnvkitPreflightFailed", "True", reason)
    assert [one["type"] for one in node["status"]["conditions"]] == ["Ready", "EnvkitPreflightFailed"]
    assert {name: one for name, one in server.objects.items() if not name.endswith("/n2")} == {
        name: one for name, one in before.items() if not name.endswith("/n2")
    }
    (again,) = marks.to_mark(server.api(), verdict)
    assert again.why_not == "it has envkit's marks already"
    assert marks.to_unmark(server.api(), verdict)[0].why_not.startswith("it is fail in this run: host-gpu-lost")
    assert unmark(server, judged(lay(tmp_path / "later", *healthy()))) == ["n2: in service again"]
    after = at(server, "n2")
    after["metadata"]["resourceVersion"] = before["/api/v1/nodes/n2"]["metadata"]["resourceVersion"]
    after["metadata"].pop("annotations")
    assert server.objects == before


def test_what_somebody_else_did_stays(server: KubeServer, verdict: FleetVerdict, tmp_path: Path) -> None:
    at(server, "n2")["spec"]["unschedulable"] = True
    at(server, "n4")["spec"]["unschedulable"] = True
    at(server, "n5")["spec"]["taints"] = [THEIRS, {"key": "dedicated", "effect": "NoExecute"}]
    assert marks.to_mark(server.api(), verdict)[0].marks == ("condition", "taint")
    mark(server, verdict)
    later = judged(lay(tmp_path / "later", *healthy()))
    assert [step.node for step in marks.to_unmark(server.api(), later)] == ["n2"]
    unmark(server, later)
    assert at(server, "n2")["spec"] == {"taints": [THEIRS], "unschedulable": True}
    assert at(server, "n4")["spec"]["unschedulable"] is True and len(at(server, "n5")["spec"]["taints"]) == 2


def test_unknown_nodes_only_when_asked(server: KubeServer, verdict: FleetVerdict) -> None:
    assert [step.node for step in marks.to_mark(server.api(), verdict, unknown_too=True)] == ["n2", "n3"]


def test_what_runs_there_is_named_and_left(server: KubeServer, verdict: FleetVerdict) -> None:
    """Those of the node itself are no user's."""
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "name": "exporter"}]}
    server.pod("exporter-x", "n2", metadata=daemon)
    server.pod("elsewhere", "n4")
    server.pod("over", "n2", status={"phase": "Succeeded"})
    assert marks.to_mark(server.api(), verdict)[0].note == ""
    server.pod("train-0", "n2")
    (step,) = marks.to_mark(server.api(), verdict)
    assert step.note == "a Pod runs there and goes on"
    server.pod("train-1", "n2")
    assert marks.to_mark(server.api(), verdict)[0].note == "2 Pods run there and go on"
    mark(server, verdict)
    assert not [line for line in server.asked if "DELETE" in line or "eviction" in line]
    assert "NoExecute" not in json.dumps(at(server, "n2"))


def test_nodes_that_the_cluster_does_not_know(server: KubeServer, verdict: FleetVerdict) -> None:
    del server.objects["/api/v1/nodes/n2"]
    assert marks.to_mark(server.api(), verdict) == (Step("n2", "n2", why_not="Kubernetes does not know it"),)


def test_numbers_are_names_of_no_node(server: KubeServer, tmp_path: Path) -> None:
    server.node("1")
    hosts = ("0", "1")
    numbered = judged(lay(tmp_path, run=fleet.run(hosts, launcher="job")))
    assert [step.why_not for step in marks.to_mark(server.api(), numbered)] == ["no Pod of it was ever on a node"] * 2
    placed = replace(numbered, machines={"0": "n7"})
    assert marks.to_mark(server.api(), placed)[0].machine == "n7"
    assert "0 (n7): set condition" in marks.shown(marks.to_mark(server.api(), placed)[0], False)


def test_a_machine_returns_only_if_all_that_ran_there_is_ok(
    server: KubeServer, verdict: FleetVerdict, tmp_path: Path
) -> None:
    """Two Pods of a run were on one machine."""
    mark(server, verdict)
    placed = replace(verdict, machines={"n1": "n2"})
    assert [step.why_not[:7] for step in marks.to_unmark(server.api(), placed)] == ["it is f"]
    well = replace(judged(lay(tmp_path / "later", *healthy())), machines={"n1": "n2"})
    assert [step.marks for step in marks.to_unmark(server.api(), well)] == [MARKS]


def test_a_node_that_changes_meanwhile_is_read_again(server: KubeServer, verdict: FleetVerdict) -> None:
    """A kubelet's report between reading and writing, whose 409 is no failure; the mark of another is kept."""

    def reported() -> None:
        server.version += 1
        node = at(server, "n2")
        node["metadata"]["resourceVersion"] = str(server.version)
        node["spec"]["taints"].append({"key": "theirs", "effect": "NoSchedule"})

    steps = marks.to_mark(server.api(), verdict)
    server.before["PATCH /api/v1/nodes/n2$"] = reported
    assert marks.apply(server.api(), steps, verdict, False, print) == 0
    assert [one["key"] for one in at(server, "n2")["spec"]["taints"]] == ["nvidia.com/gpu", "theirs", TAINT]


TAINT = "envkit.io/preflight"


def test_a_node_that_never_stops_changing(server: KubeServer, verdict: FleetVerdict) -> None:
    steps = marks.to_mark(server.api(), verdict)
    conflict = Planned(409, "the object has been modified")
    server.planned = [("PATCH /api/v1/nodes/n2$", conflict)] * 6
    said: list[str] = []
    assert marks.apply(server.api(), steps, verdict, False, said.append) == 1
    assert said == ["n2: the API server refused with 409: the object has been modified"]


def test_a_busy_server_is_asked_again(server: KubeServer, verdict: FleetVerdict) -> None:
    steps = marks.to_mark(server.api(), verdict)
    server.planned = [
        ("PATCH", Planned(429, "too many requests", {"Retry-After": "0"})),
        ("PATCH", Planned(503, "etcd leader changed")),
        ("GET /api/v1/nodes/n2", Planned(0)),
    ]
    assert marks.apply(server.api(), steps, verdict, False, print) == 0
    assert not server.planned and marks.marks_of(at(server, "n2")) == MARKS


def test_a_server_that_stays_busy(server: KubeServer, verdict: FleetVerdict) -> None:
    server.planned = [("GET", Planned(429, "too many requests", {"Retry-After": "3600"}))]
    with pytest.raises(Undecided, match="answers with 429: too many requests"):
        marks.to_mark(server.api(), verdict)
    later = Planned(500, "boom", {"Retry-After": "3600"})
    server.planned = [("GET", Planned(500, "boom")), ("GET", later)]
    with pytest.raises(Undecided, match="answers with 500: boom"):
        marks.to_mark(server.api(), verdict)
    assert not server.planned  # it was asked twice


def test_a_server_that_is_slow_or_gone(server: KubeServer, verdict: FleetVerdict) -> None:
    server.planned = [("GET", Planned(200, wait_s=1.0))] * 2
    with pytest.raises(Undecided, match=r"did not answer within 0\.2 s"):
        marks.to_mark(server.api(0.2), verdict)
    drops = b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n{"

    def said() -> str:
        server.planned = [("GET", Planned(200, raw=drops))] * 9
        with pytest.raises(Undecided) as raised:
            marks.to_mark(server.api(0.2), verdict)
        return raised.value.message

    # A loaded machine may not get as far as that within so short a time.
    assert comes(lambda: "cannot be reached: " in said())
    server.planned = [("GET", Planned(200, raw=drops, drip=True))] * 9
    with pytest.raises(Undecided, match=r"did not answer within 0\.2 s"):
        marks.to_mark(server.api(0.2), verdict)
    server.port = 9  # discard, where nobody listens
    assert comes(lambda: re.search("cannot be reached: .*refused", said()))


@pytest.mark.parametrize(("code", "fix"), [(401, "log in again"), (403, "docs/fleet.md")])
def test_a_refusal_is_final_and_named(server: KubeServer, verdict: FleetVerdict, code: int, fix: str) -> None:
    server.planned = [("GET", Planned(code, 'nodes "n2" is forbidden: User "x" cannot get resource "nodes"'))]
    with pytest.raises(Refusal, match=f'refused with {code}: nodes "n2" is forbidden') as raised:
        marks.to_mark(server.api(), verdict)
    assert fix in raised.value.fix and raised.value.code == 3
    assert len(server.asked) == 1


def test_what_an_answer_says_of_credentials_is_hidden(server: KubeServer, verdict: FleetVerdict) -> None:
    server.planned = [("GET", Planned(401, "token=ghp_0123456789abcdefghijABCDEFGHIJ012345 is no good"))]
    with pytest.raises(Refusal) as raised:
        marks.to_mark(server.api(), verdict)
    assert "is no good" in raised.value.message and "ghp_0123" not in raised.value.message


def test_marks_are_taken_away_from_one_of_a_thousand_nodes_with_few_questions(
    server: KubeServer, verdict: FleetVerdict, tmp_path: Path
) -> None:
    mark(server, verdict)
    for number in range(1000):
        server.node(f"more-{number}")
    server.asked.clear()
    (step,) = marks.to_unmark(server.api(), judged(lay(tmp_path / "later", *healthy())))
    assert (step.node, step.marks, len(server.asked)) == ("n2", MARKS, 4)


def test_a_refusal_of_one_node_does_not_stop_the_others(server: KubeServer, tmp_path: Path) -> None:
    two = {name: document(name, body(found=(fault(),))) for name in ("n2", "n6")}
    found = judged(lay(tmp_path, *healthy(**two)))
    steps = marks.to_mark(server.api(), found)
    server.planned = [("PATCH /api/v1/nodes/n2$", Planned(403, "not yours"))]
    said: list[str] = []
    assert marks.apply(server.api(), steps, found, False, said.append) == 1
    assert said == ["n2: the API server refused with 403: not yours", "n6: marked"]


@pytest.mark.parametrize("answer", [b"[]", b"<html>", b"\xff", b"{" * 99999])
def test_answers_that_are_none(server: KubeServer, verdict: FleetVerdict, answer: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer)
    server.planned = [("GET", Planned(200, raw=head + answer))]
    with pytest.raises(Undecided, match="answer is no"):
        marks.to_mark(server.api(), verdict)


def test_a_list_comes_in_pages_and_may_expire(server: KubeServer) -> None:
    for number in range(1200):
        server.pod(f"p{number}", "n1")
    server.planned = [("continue=500", Planned(410, "the provided continue parameter is too old"))]
    assert len(server.api().items("/api/v1/pods", {})) == 1200
    assert len(server.asked) == 5
    server.planned = [("continue=500", Planned(410, "too old"))] * 3
    with pytest.raises(Undecided, match="changed faster"):
        server.api().items("/api/v1/pods", {})


def test_drain_marks_and_returns_nodes(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verb, by a kubectl: shown, done, done already, undone; and the same with the server gone."""
    monkeypatch.setenv("PATH", f"{server.kubectl(tmp_path / 'bin')}:/usr/bin:/bin")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    bad, good = document("n2", body(found=(fault(),))), document("n2")

    def pods(name: str, second: Any) -> Path:
        made = [
            {"metadata": {"name": f"check-{one.head.node}"}, "spec": {"nodeName": one.head.node},
             "status": {"phase": "Succeeded", "containerStatuses": [
                 {"state": {"terminated": {"exitCode": 0, "message": encoded(one).decode()}}}]}}
            for one in healthy(n2=second)
        ]  # fmt: skip
        path = tmp_path / name
        path.write_text(json.dumps({"kind": "List", "items": made}))
        return path

    def drain(*words: object) -> tuple[int, str]:
        with Envkit(capsys) as run:
            done = run("drain", *words, "--hosts", "n[1-8]")
        return done.code, done.out + done.err

    failed, well = pods("failed.json", bad), pods("well.json", good)
    code, said = drain(failed)
    assert code == 0 and "n2: set condition EnvkitPreflightFailed=True, taint envkit.io/preflight=failed" in said
    assert "1 of 1 nodes to change; nothing was done" in said and marks.marks_of(at(server, "n2")) == ()
    code, said = drain(failed, "--apply")
    assert code == 0 and "1 of 1 changes took effect" in said and marks.marks_of(at(server, "n2")) == MARKS
    assert drain(failed, "--undo", "--apply")[0] == 0 and marks.marks_of(at(server, "n2")) == MARKS
    code, said = drain(well, "--undo", "--apply")
    assert code == 0 and "n2: in service again" in said and marks.marks_of(at(server, "n2")) == ()
    server.planned = [("GET", Planned(503, "the server is shutting down", {"Retry-After": "3600"}))]
    code, said = drain(failed, "--apply")
    assert code == 3 and "the API server answers with 503: the server is shutting down" in said
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    code, said = drain(failed)
    assert code == 3 and "`kubectl proxy` does not run: No such file or directory" in said


def test_a_kubectl_that_ends_at_once_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho 'error: current-context is not set' >&2; exit 1\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    not_set = pytest.raises(Undecided, match="`kubectl proxy` does not run: error: current-context is not set")
    with not_set, apiserver.connected({}):
        raise AssertionError("nobody can be asked")


@pytest.mark.slow  # processes of envkit
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_kubectl_outlives_envkit(server: KubeServer, tmp_path: Path, number: signal.Signals) -> None:
    """Whatever ends it while the API server is silent, and nothing is marked."""
    server.planned = [("GET", Planned(200, wait_s=30.0))] * 9
    place = lay(tmp_path / "run", *healthy(n2=document("n2", body(found=(fault(),)))))
    path = server.kubectl(tmp_path / "bin")
    environment = {**os.environ, "PATH": f"{path}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    words = ("drain", str(place), "--also", "kubernetes:job/train", "--apply")
    running = subprocess.Popen([sys.executable, "-m", "envkit", *words], env=environment, stderr=subprocess.DEVNULL)
    assert comes(lambda: server.asked)
    assert processes.named(f"--unix-socket={tmp_path}")
    running.send_signal(number)
    running.wait(timeout=PATIENCE_S)
    assert comes(lambda: not processes.named(f"--unix-socket={tmp_path}"), 0.1)
    assert comes(lambda: not list(tmp_path.glob("envkit-*")), 0.1)
    assert not [line for line in server.asked if "PATCH" in line]


def certificate(folder: Path, name: str) -> Path:
    """A certificate of 127.0.0.1 that signed itself, behind its key."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")
    uses = ("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=critical,keyCertSign,digitalSignature")
    words = ("openssl", "req", "-x509", *key, *uses, "-out", f"{name}.crt", "-subj", f"/CN={name}", "-days", "2")
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=120)
    return folder / f"{name}.crt"


def test_in_a_pod_the_token_of_its_account_is_enough(tmp_path: Path) -> None:
    """By TLS with the cluster's own certificate; a server that has another one is refused at once."""
    certificate(tmp_path, "ca")
    other = certificate(tmp_path, "other")
    (tmp_path / "token").write_text("of-the-account\n")
    with kube_server.serving(tmp_path / "ca.crt", tmp_path / "ca.key") as server:
        server.node("n1")
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
        with apiserver.connected(environ, tmp_path) as api:
            assert api.get("/api/v1/nodes/n1")["metadata"]["name"] == "n1"
            (tmp_path / "token").write_text("renewed")
            api.get("/api/v1/nodes/n1")
        assert server.authorized == ["Bearer of-the-account", "Bearer renewed"]
        other.rename(tmp_path / "ca.crt")
        with apiserver.connected(environ, tmp_path) as api, pytest.raises(Undecided, match="is not trusted"):
            api.get("/api/v1/nodes/n1")
        assert len(server.authorized) == 2
