"""`envkit push` from a real engine to real registries: with credentials and without, by TLS, and into every trouble.

What must hold of each trouble: one sentence, no credential in it, and no name, container or manifest left behind.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import socket
import socketserver
import stat
import subprocess
import sys
import tempfile
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from clocks import PATIENCE_S, comes
from registries import PASSWORD, USER, Fault, Registry, before, registry

from envkit.engine import BuildRequest
from envkit.engine.docker import DockerEngine
from envkit.errors import UsageError
from envkit.plan import lockfile as locks
from envkit.plan import pushed
from envkit.plan.spec import load
from envkit.runner import runner

pytestmark = pytest.mark.engine
SOCKET = "/var/run/docker.sock"
STACK = Path(__file__).resolve().parents[1] / "images" / "torch-2.6-cu124"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class Project(NamedTuple):
    """A folder with a spec, the name of an image that is that of its lock by its labels, and docker's configuration."""

    folder: Path
    tag: str
    config: Path


@pytest.fixture
def project(engine: DockerEngine, tmp_path: Path) -> Iterator[Project]:
    folder, context, config = tmp_path / "project", tmp_path / "context", tmp_path / "config"
    for each in (folder, context, config):
        each.mkdir()
    for name in ("envkit.toml", "envkit.lock"):
        (folder / name).write_bytes((STACK / name).read_bytes())
    lock = locks.load(load(folder))
    assert lock is not None
    (context / "data").write_bytes(os.urandom(200_000))  # nothing that a registry has already
    (context / "Dockerfile").write_text("FROM scratch\nCOPY data /\n")
    labels = {runner.LOCK_LABEL: locks.dump(lock), runner.FLAVOR_LABEL: lock.flavor}
    tag = f"envkit-test/push:{uuid.uuid4().hex[:12]}"
    engine.build(BuildRequest(context, tag, 300, labels=labels), lambda line: None)
    yield Project(folder, tag, config)
    engine.remove(tag)


def words(project: Project, ref: str) -> list[str]:
    return [sys.executable, "-m", "envkit", "push", ref, str(project.folder), "--tag", project.tag]


def environment(project: Project, **more: str) -> dict[str, str]:
    return {**os.environ, "DOCKER_CONFIG": str(project.config), **more}


def push(project: Project, ref: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(project, ref), capture_output=True, text=True, env=environment(project, **more), timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip


def names(project: Project) -> list[str]:
    """All names that the engine has for the project's image."""
    shown = ["docker", "image", "inspect", "--format", "{{json .RepoTags}}", project.tag]
    return list(json.loads(subprocess.run(shown, capture_output=True, text=True, check=True).stdout))


def in_one_sentence(done: subprocess.CompletedProcess[str], code: int, says: str, project: Project) -> None:
    told = [line for line in done.stderr.splitlines() if not line.startswith(("pushing", "pushed", "  fix:"))]
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert len(told) == 1 and says in told[0], done.stderr
    assert PASSWORD not in done.stderr and BASIC not in done.stderr
    assert names(project) == [project.tag]
    assert not (project.folder / "envkit.pushed.toml").exists()


def digest_of(held: Registry, path: str, user: str = "") -> str:
    """What the registry itself says of a name."""
    asked = urllib.request.Request(f"http://{held.host}/v2/{path}", method="HEAD")
    kinds = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
    asked.add_header("Accept", kinds)
    if user:
        asked.add_header("Authorization", f"Basic {user}")
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return str(answer.headers["Docker-Content-Digest"])


def test_the_digest_of_the_registry_is_printed_and_noted_beside_the_lock(project: Project, tmp_path: Path) -> None:
    lock = (project.folder / "envkit.lock").read_bytes()
    with registry(tmp_path / "registry") as held:
        ref = f"{held.host}/team/trainer:1.0"
        done = push(project, ref)
        assert done.returncode == 0, done.stderr
        digest = digest_of(held, "team/trainer/manifests/1.0")
        assert done.stdout == f"{held.host}/team/trainer@{digest}\n"
        (found,) = pushed.read(load(project.folder)).items()
        assert (found[0], found[1].digest, found[1].flavor, found[1].platform) == (
            ref,
            digest,
            "runtime",
            "linux/amd64",
        )
        assert names(project) == [project.tag]
        first = (project.folder / "envkit.pushed.toml").read_text()
        assert push(project, ref).stdout == done.stdout  # again: the same file
        assert (project.folder / "envkit.pushed.toml").read_text() == first
        assert push(project, f"{held.host}/team/trainer").returncode == 0  # latest
        assert held.manifests() == ["1.0", "latest"]
    assert (project.folder / "envkit.lock").read_bytes() == lock


@pytest.mark.nightly
def test_a_name_that_the_engine_had_stays_its_image_s(project: Project, engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "context" / "data").write_text("another")
    with registry(tmp_path / "registry") as held:
        ref = f"{held.host}/other:1"
        engine.build(BuildRequest(tmp_path / "context", ref, 300), lambda line: None)
        try:
            was = engine.stored(ref).id
            assert push(project, ref).returncode == 0
            assert engine.stored(ref).id == was != engine.stored(project.tag).id
            shown = ["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", project.tag]
            assert subprocess.run(shown, capture_output=True, text=True, check=True).stdout.strip() in ("[]", "null")
        finally:
            engine.remove(ref)


def test_credentials_come_from_docker_s_configuration(project: Project, tmp_path: Path) -> None:
    with registry(tmp_path / "registry", auth=True) as held:
        ref = f"{held.host}/team/trainer:1"
        in_one_sentence(push(project, ref), 2, f"the registry {held.host} does not let you push", project)
        wrong = base64.b64encode(f"{USER}:wrong-{PASSWORD}".encode()).decode()
        (project.config / "config.json").write_text(json.dumps({"auths": {held.host: {"auth": wrong}}}))
        in_one_sentence(push(project, ref), 2, "does not let you push", project)
        assert held.manifests() == []
        (project.config / "config.json").write_text(json.dumps({"auths": {held.host: {"auth": BASIC}}}))
        done = push(project, ref)
        assert done.returncode == 0 and PASSWORD not in done.stderr, done.stderr
        assert digest_of(held, "team/trainer/manifests/1", BASIC) in done.stdout


@contextmanager
def helper(project: Project, host: str, script: str) -> Iterator[dict[str, str]]:
    """A credential helper of docker's configuration, which is this shell script; gives the variables to find it by."""
    path = project.config / "docker-credential-envkit-test"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (project.config / "config.json").write_text(json.dumps({"credHelpers": {host: "envkit-test"}}))
    yield {"PATH": f"{project.config}:{os.environ['PATH']}"}


@pytest.mark.nightly
def test_credentials_come_from_a_helper(project: Project, tmp_path: Path) -> None:
    said = json.dumps({"Username": USER, "Secret": PASSWORD})
    with registry(tmp_path / "registry", auth=True) as held:
        ref = f"{held.host}/team/trainer:1"
        script = f'[ "$1" = get ] && [ "$(cat)" = {held.host} ] && echo \'{said}\''
        with helper(project, held.host, script) as found:
            done = push(project, ref, **found)
            assert done.returncode == 0, done.stderr
        (project.folder / "envkit.pushed.toml").unlink()
        with helper(project, held.host, "echo credentials not found in native keychain; exit 1") as found:
            in_one_sentence(push(project, ref, **found), 2, "does not let you push", project)
        with helper(project, held.host, f"echo broken {PASSWORD} >&2; exit 4") as found:
            in_one_sentence(
                push(project, ref, **found), 3, "docker-credential-envkit-test ended with exit code 4", project
            )
        with helper(project, held.host, f"echo '{PASSWORD}'") as found:
            in_one_sentence(push(project, ref, **found), 3, "gave no credentials that can be read", project)
        (project.config / "docker-credential-envkit-test").unlink()
        in_one_sentence(push(project, ref), 3, "docker-credential-envkit-test, which cannot be started", project)


@pytest.fixture
def bridge(engine: DockerEngine) -> str:
    """The address of this machine on the engine's own network, from which TLS is asked for, unlike from loopback."""
    shown = ["docker", "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}"]
    found = subprocess.run(shown, capture_output=True, text=True, check=False).stdout.strip()
    if not found or engine.elsewhere() or os.geteuid() != 0:
        pytest.skip("the engine's own network is not this machine's, or this is not root")
    return found


def certificate(folder: Path, address: str) -> tuple[Path, Path, Path]:
    """A CA's certificate, and the certificate and the key of a server at ``address``, made by openssl."""
    ca, key, request, made = (folder / name for name in ("ca.crt", "server.key", "server.csr", "server.crt"))
    quiet = {"check": True, "capture_output": True, "cwd": folder}
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", str(ca), "-days", "2",
         "-subj", "/CN=test"], **quiet,
    )  # fmt: skip
    asked = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(request)]
    subprocess.run([*asked, "-subj", "/CN=s"], **quiet)
    (folder / "ext").write_text(f"subjectAltName=IP:{address}\n")
    subprocess.run(
        ["openssl", "x509", "-req", "-in", str(request), "-CA", str(ca), "-CAkey", "ca.key", "-CAcreateserial", "-out",
         str(made), "-days", "2", "-extfile", "ext"], **quiet,
    )  # fmt: skip
    return ca, made, key


@pytest.mark.nightly
def test_a_ca_of_its_own_is_trusted_where_the_engine_has_it(project: Project, bridge: str, tmp_path: Path) -> None:
    ca, made, key = certificate(tmp_path, bridge)
    with registry(tmp_path / "registry", address=bridge, tls=(made, key)) as held:
        ref = f"{held.host}/team/trainer:1"
        in_one_sentence(push(project, ref), 3, f"does not trust the certificate of the registry {held.host}", project)
        trusted = Path("/etc/docker/certs.d", held.host)
        trusted.mkdir(parents=True)
        try:
            (trusted / "ca.crt").write_bytes(ca.read_bytes())
            done = push(project, ref)
            assert done.returncode == 0, done.stderr
            assert held.manifests() == ["1"]
        finally:
            (trusted / "ca.crt").unlink(missing_ok=True)
            trusted.rmdir()


@pytest.mark.nightly
def test_a_registry_without_tls_is_named_as_such(project: Project, bridge: str, tmp_path: Path) -> None:
    with registry(tmp_path / "registry", address=bridge) as held:
        says = f"the registry {held.host} speaks HTTP without TLS"
        in_one_sentence(push(project, f"{held.host}/a:1"), 3, says, project)


def test_a_registry_that_is_not_there(project: Project) -> None:
    in_one_sentence(push(project, "127.0.0.1:9/team/trainer:1"), 3, "the registry 127.0.0.1:9 did not serve", project)
    in_one_sentence(push(project, "no-such-host.invalid/a:1"), 3, "no-such-host.invalid did not serve", project)


@pytest.mark.nightly
def test_a_registry_that_fails_at_the_end(project: Project, tmp_path: Path) -> None:
    fault = Fault(lambda method, path: method == "PUT" and "/manifests/" in path, 500)
    with registry(tmp_path / "registry") as held, before(held, fault) as faulty:
        done = push(project, f"{faulty.host}/team/trainer:1")
        in_one_sentence(done, 3, f"the registry {faulty.host} did not take the image", project)
        assert fault.met.is_set() and "500" in done.stderr and held.manifests() == []


@pytest.mark.nightly  # the engine tries each layer five times, ever later
def test_a_registry_that_fails_in_the_middle(project: Project, tmp_path: Path) -> None:
    fault = Fault(lambda method, path: method == "PATCH", 500)
    with registry(tmp_path / "registry") as held, before(held, fault) as faulty:
        in_one_sentence(push(project, f"{faulty.host}/team/trainer:1"), 3, "did not take the image", project)
        assert fault.met.is_set() and held.manifests() == []


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_registry_whose_disk_is_full(project: Project, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(small)], check=True)
    try:
        with registry(tmp_path / "registry", root=small) as held:
            in_one_sentence(push(project, f"{held.host}/team/trainer:1"), 3, "the registry", project)
            assert held.manifests() == []
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


@pytest.mark.parametrize(
    "number",
    [*(pytest.param(each, marks=pytest.mark.nightly) for each in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL],
)
def test_an_end_in_the_middle_leaves_nothing(number: int, project: Project, tmp_path: Path) -> None:
    fault = Fault(lambda method, path: method == "PATCH", 0)
    with registry(tmp_path / "registry") as held, before(held, fault) as slow:
        ref = f"{slow.host}/team/trainer:1"
        process = subprocess.Popen(
            words(project, ref), env=environment(project), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert fault.met.wait(PATIENCE_S)
        assert sorted(names(project)) == sorted([project.tag, ref])
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert out == "" and "Traceback" not in err
        if number != signal.SIGKILL:
            assert len([line for line in err.splitlines() if not line.startswith("push")]) == 1, err
        assert comes(lambda: names(project) == [project.tag])
        assert held.manifests() == [] and not (project.folder / "envkit.pushed.toml").exists()


class Way(socketserver.ThreadingUnixStreamServer):
    """A socket that leads to the engine until it is cut: to who asks there the engine is dead, and then back again."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.open: list[socket.socket] = []
        super().__init__(str(path), socketserver.BaseRequestHandler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(SOCKET)
            self.open += [request, engine]
            back = threading.Thread(target=carry, args=(engine, request), daemon=True)
            back.start()
            carry(request, engine)
            back.join()

    def cut(self) -> None:
        self.shutdown()
        self.server_close()
        Path(str(self.server_address)).unlink()
        for each in self.open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_an_engine_that_dies_in_the_middle_has_no_name_left_once_it_is_back(project: Project, tmp_path: Path) -> None:
    if not Path(SOCKET).exists():
        pytest.skip(f"the engine is not at {SOCKET}")
    fault = Fault(lambda method, path: method == "PATCH", 0)
    with (
        registry(tmp_path / "registry") as held,
        before(held, fault) as slow,
        tempfile.TemporaryDirectory(prefix="w") as short,
    ):
        ref, way = f"{slow.host}/team/trainer:1", Way(Path(short, "s"))
        environ = environment(project, DOCKER_HOST=f"unix://{short}/s")
        process = subprocess.Popen(
            words(project, ref), env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert fault.met.wait(PATIENCE_S)
        way.cut()
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out) == (3, "") and "Traceback" not in err, err
        assert sorted(names(project)) == sorted([project.tag, ref])  # nobody could ask it
        way = Way(Path(short, "s"))
        assert comes(lambda: names(project) == [project.tag])
        way.cut()


def test_an_engine_that_is_not_there_is_said(project: Project, tmp_path: Path) -> None:
    done = push(project, "127.0.0.1:9/a:1", DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    in_one_sentence(done, 3, "no docker engine answers", project)


def test_an_image_of_another_lock_is_not_pushed(project: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "push", "127.0.0.1:9/a:1", str(project.folder), "--flavor", "devel", "--tag",
         project.tag], capture_output=True, text=True, env=environment(project), timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    in_one_sentence(done, 2, f"there is no image {project.tag} of this spec and its lock", project)


@pytest.mark.nightly
def test_an_index_holds_the_image_of_each_platform(project: Project, engine: DockerEngine, tmp_path: Path) -> None:
    """The image of another platform, which nothing has to run for, as another machine would have pushed it."""
    with registry(tmp_path / "registry", auth=True) as held:
        (project.config / "config.json").write_text(json.dumps({"auths": {held.host: {"auth": BASIC}}}))
        common, ref = f"{held.host}/team/trainer:1", f"{held.host}/team/trainer:1-amd64"
        first = subprocess.run(
            [*words(project, ref), "--index", common], capture_output=True, text=True, env=environment(project),
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert first.returncode == 0, first.stderr
        amd64, index = first.stdout.split()
        other = f"{held.host}/team/trainer:1-arm64"
        build = ["docker", "buildx", "build", "--quiet", "--load", "--provenance=false", "--platform", "linux/arm64"]
        subprocess.run([*build, "--tag", other, str(tmp_path / "context")], check=True, capture_output=True)
        subprocess.run(["docker", "push", other], check=True, capture_output=True, env=environment(project))
        subprocess.run(["docker", "image", "rm", other], check=True, capture_output=True)
        arm64 = digest_of(held, "team/trainer/manifests/1-arm64", BASIC)
        os.environ["DOCKER_CONFIG"] = str(project.config)
        try:
            engine.join(common, f"{held.host}/team/trainer@{arm64}", "linux/arm64", lambda line: None)
        finally:
            del os.environ["DOCKER_CONFIG"]
        again = subprocess.run(
            [*words(project, ref), "--index", common], capture_output=True, text=True, env=environment(project),
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert again.stdout.split()[0] == amd64 and again.stdout.split()[1] != index
        asked = urllib.request.Request(f"http://{held.host}/v2/team/trainer/manifests/1")
        asked.add_header("Authorization", f"Basic {BASIC}")
        asked.add_header("Accept", "application/vnd.docker.distribution.manifest.list.v2+json")
        with urllib.request.urlopen(asked, timeout=60) as answer:
            body = answer.read()
            assert again.stdout.split()[1].endswith("@" + str(answer.headers["Docker-Content-Digest"]))
        found = {one["platform"]["architecture"]: one["digest"] for one in json.loads(body)["manifests"]}
        assert found == {"amd64": amd64.partition("@")[2], "arm64": arm64}
        wrong = subprocess.run(
            [*words(project, ref), "--index", other], capture_output=True, text=True, env=environment(project),
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert wrong.returncode == 2 and "is one image and no index of several platforms" in wrong.stderr


def test_an_engine_without_the_containerd_store_attests_nothing(engine: DockerEngine, project: Project) -> None:
    if (
        "containerd"
        in subprocess.run(["docker", "info"], capture_output=True, text=True, check=True)
        .stdout.partition("Storage Driver")[2]
        .partition("Logging")[0]
    ):
        pytest.skip("this engine has the containerd image store")
    request = BuildRequest(project.folder, "envkit-test/attested:1", 60, provenance=True)
    with pytest.raises(UsageError, match="which holds no attestation"):
        engine.build(request, lambda line: None)


@pytest.fixture
def containerd_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerEngine]:
    """An engine of this test's own that keeps images in containerd's store."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("dockerd is not on PATH, or this is not root")
    if not shutil.which("ip"):
        pytest.skip("ip is not on PATH")
    folder = Path(tempfile.mkdtemp(prefix="envkit-dockerd-"))  # a socket's path is short
    # A bridge of its own: with --bridge none a dockerd deletes docker0, which is the other engine's.
    link = f"envkit{os.getpid() % 1_000_000}"
    for words in (f"link add {link} type bridge", f"addr add 10.211.55.1/24 dev {link}", f"link set {link} up"):
        subprocess.run(["ip", *words.split()], check=True)
    (folder / "daemon.json").write_text('{"features": {"containerd-snapshotter": true}}')
    argv = ["dockerd", "--config-file", f"{folder}/daemon.json", "--data-root", f"{folder}/data", "--exec-root",
            f"{folder}/exec", "--pidfile", f"{folder}/pid", "--host", f"unix://{folder}/s", "--bridge", link,
            "--iptables=false", "--ip6tables=false"]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/s")
        answers = ["docker", "version"]
        assert comes(lambda: not subprocess.run(answers, capture_output=True, check=False).returncode), (
            folder / "log"
        ).read_text()[-3000:]
        yield DockerEngine(tmp_path / "cache")
    finally:
        process.terminate()
        process.wait(60)
        subprocess.run(["ip", "link", "delete", link], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.nightly
def test_an_attestation_goes_with_the_image(
    containerd_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "data").write_text("data")
    (tmp_path / "context" / "Dockerfile").write_text("FROM scratch\nARG A\nCOPY data /\n")
    args = {"A": f"https://u:{PASSWORD}@example.com"}
    built = BuildRequest(tmp_path / "context", "envkit-test/attested:1", 300, args=args, provenance=True)
    containerd_engine.build(built, lambda line: None)
    with registry(tmp_path / "registry") as held:
        digest = containerd_engine.push("envkit-test/attested:1", f"{held.host}/a:1", lambda line: None)
        blobs = [path.read_bytes() for path in held.root.glob("docker/registry/v2/blobs/sha256/*/*/data")]
        index = json.loads(next(one for one in blobs if f"sha256:{hashlib.sha256(one).hexdigest()}" == digest))
        kinds = [(one.get("annotations") or {}).get("vnd.docker.reference.type", "image") for one in index["manifests"]]
        assert kinds == ["image", "attestation-manifest"]
        (stated,) = [
            json.loads(one) for one in blobs if b"in-toto.io/Statement" in one and b'predicateType"' in one[:400]
        ]
        assert stated["predicateType"].startswith("https://slsa.dev/provenance/")
        assert not any(PASSWORD.encode() in one for one in blobs if b"in-toto" in one)
