"""A real Kubernetes on this machine: etcd, API server, controller manager and scheduler, built by scripts/kubernetes.

Everything lies in one folder and listens on loopback.  There is no kubelet: nodes are objects, and a test says what
became of a Pod by writing its status, as a kubelet does.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from clocks import comes
from slurm import free_ports, guarded

ROOT = Path(__file__).resolve().parents[1]
LATER = "2099-01-01T00:00:00Z"
_USERS = {"admin": "system:masters", "marker": "", "nobody": ""}  # and their groups


def programs() -> Path | None:
    """The folder of the servers, None where they were not built."""
    found = subprocess.run([ROOT / "scripts" / "kubernetes", "--cached"], capture_output=True, text=True, timeout=60)
    return Path(found.stdout.strip()) if found.returncode == 0 else None


@dataclass
class Cluster:
    """Running servers; a client takes ``environment``, as the administrator or as another user."""

    folder: Path
    programs: Path
    port: int
    etcd: int
    environment: dict[str, str] = field(default_factory=dict)
    kept: threading.local = field(default_factory=threading.local)
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        """An answer of the API server to the administrator; raises HTTPError for a no."""
        headers = {"Authorization": "Bearer admin-token", "Content-Type": kind}
        for attempt in range(2):  # a connection that was kept may be that of a server which is gone
            held = getattr(self.kept, "connection", None)
            try:
                if held is None:
                    tls = ssl.create_default_context(cafile=self.folder / "certificates" / "apiserver.crt")
                    held = self.kept.connection = HTTPSConnection("127.0.0.1", self.port, timeout=60, context=tls)
                held.request(method, path, None if body is None else json.dumps(body), headers)
                answer = held.getresponse()
                data = answer.read()
                break
            except (OSError, HTTPException):
                self.kept.connection = None
                if attempt or method == "POST":
                    raise
        if answer.status >= 400:
            raise HTTPError(path, answer.status, data.decode()[:300], answer.headers, None)
        made: dict[str, Any] = json.loads(data)
        return made

    def node(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """A ready node with eight GPUs."""
        conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": LATER, "lastTransitionTime": LATER}]
        amount = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
        about = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
        status = {"conditions": conditions, "capacity": amount, "allocatable": amount}
        self.call("POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": about, "status": status})

    def nodes(self, names: Sequence[str], labels: Mapping[str, str]) -> None:
        """Many of them."""
        self.many(lambda name: self.node(name, labels), names)

    def many(self, does: Callable[[str], object], names: Sequence[str]) -> None:
        """Does the same for many names, some at once."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(does, names))

    def pod(self, name: str, spec: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> None:
        """A Pod of a user."""
        own = {
            "metadata": {"name": name, **(about or {})},
            "spec": {"containers": [{"name": "main", "image": "x"}], **spec},
        }
        self.call("POST", "/api/v1/namespaces/default/pods", {"kind": "Pod", "apiVersion": "v1", **own})

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """The Pods with a label."""
        items: list[dict[str, Any]] = self.call("GET", f"/api/v1/namespaces/default/pods?labelSelector={selector}")[
            "items"
        ]
        return items

    def bound(self, selector: str, many: int) -> dict[str, str]:
        """Waits until so many Pods with a label have a node; gives the Pod of each node."""
        found: dict[str, str] = {}

        def all_are() -> bool:
            found.clear()
            found.update(
                {
                    pod["spec"]["nodeName"]: pod["metadata"]["name"]
                    for pod in self.pods(selector)
                    if pod["spec"].get("nodeName")
                }
            )
            return len(found) == many

        assert comes(all_are, 0.3), f"{len(found)} of {many} Pods have a node"
        return found

    def status(self, pod: str, status: Mapping[str, Any]) -> None:
        """Writes what became of a Pod, as the kubelet does."""
        path = f"/api/v1/namespaces/default/pods/{pod}/status"
        self.call("PATCH", path, {"status": status}, "application/strategic-merge-patch+json")

    def as_user(self, user: str) -> dict[str, str]:
        """The environment of a client of this user."""
        return {**self.environment, "KUBECONFIG": str(self.folder / f"{user}.kubeconfig")}

    def kubectl(self, *words: str) -> str:
        """kubectl, which must end well."""
        done = subprocess.run(
            ["kubectl", *words], env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str) -> None:
        """Starts one of the servers, by its name."""
        own, keys = self.folder, self.folder / "account.key"
        client = f"--kubeconfig={own}/admin.kubeconfig"
        # Thousands of Pods come in seconds, and the nodes, which nobody reports, stay ready.
        fast = ("--kube-api-qps=2000", "--kube-api-burst=4000", "--leader-elect=false")
        words = {
            "etcd": (
                f"--data-dir={own}/etcd", "--unsafe-no-fsync", "--listen-peer-urls=http://127.0.0.1:0",
                f"--listen-client-urls=http://127.0.0.1:{self.etcd}", f"--advertise-client-urls=http://127.0.0.1:{self.etcd}",
            ),
            "kube-apiserver": (
                f"--etcd-servers=http://127.0.0.1:{self.etcd}", f"--secure-port={self.port}",
                "--bind-address=127.0.0.1", f"--cert-dir={own}/certificates", f"--service-account-key-file={keys}",
                f"--service-account-signing-key-file={keys}", "--service-account-issuer=envkit",
                f"--token-auth-file={own}/tokens", "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
            ),
            "kube-controller-manager": (
                client, "--controllers=*,-nodeipam", "--node-monitor-grace-period=24h", *fast,
                f"--cert-dir={own}/manager", "--secure-port=0", "--port=0",
            ),
            "kube-scheduler": (client, *fast, f"--cert-dir={own}/scheduler", "--secure-port=0", "--port=0"),
        }[name]  # fmt: skip
        with (own / f"{name}.log").open("ab") as log:
            self.servers[name] = subprocess.Popen(
                [self.programs / name, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def spent(self) -> float:
        """Seconds of processor time that the servers took."""
        took = 0
        for each in self.servers.values():
            took += sum(map(int, Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        return took / os.sysconf("SC_CLK_TCK")

    def answers(self) -> bool:
        """Whether the API server is ready."""
        with suppress(OSError, HTTPException, ValueError):
            return bool(self.call("GET", "/api/v1/namespaces/default"))
        return False


def _kubeconfig(cluster: Cluster, user: str) -> str:
    server = {"server": f"https://127.0.0.1:{cluster.port}"}
    server["certificate-authority"] = str(cluster.folder / "certificates" / "apiserver.crt")
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": user, "user": {"token": f"{user}-token"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
    )


@contextmanager
def cluster(folder: Path, found: Path) -> Iterator[Cluster]:
    """A cluster without nodes, from the programs in ``found``; nothing of it is left afterwards."""
    port, etcd = free_ports(2)
    made = Cluster(folder, found, port, etcd)
    key = ("openssl", "genrsa", "-out", str(folder / "account.key"), "2048")
    subprocess.run(key, check=True, capture_output=True, timeout=120)
    tokens = [f"{user}-token,{user},{user}{f',{group}' if group else ''}" for user, group in _USERS.items()]
    (folder / "tokens").write_text("\n".join(tokens) + "\n")
    for user in _USERS:
        (folder / f"{user}.kubeconfig").write_text(_kubeconfig(made, user))
    path = f"{found}:{os.environ['PATH']}"
    home = folder / "home"
    home.mkdir()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    made.environment = {**plain, "PATH": path, "KUBECONFIG": str(folder / "admin.kubeconfig"), "HOME": str(home)}
    with guarded(folder):
        try:
            for name in ("etcd", "kube-apiserver"):
                made.start(name)
            assert comes(made.answers, 0.2), (folder / "kube-apiserver.log").read_text()[-2000:]
            for name in ("kube-controller-manager", "kube-scheduler"):
                made.start(name)
            yield made
        finally:
            for each in made.servers.values():
                each.kill()
                each.wait()


def now() -> str:
    """The time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
