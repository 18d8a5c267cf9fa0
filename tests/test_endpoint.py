"""One engine for all that envkit does: the one that the docker client would ask, over a socket, TCP and TLS."""

from __future__ import annotations

import hashlib
import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from fake_docker import FakeDocker
from forked import envkit
from test_prove import FakeEngine, layer, place

from envkit.engine import BuildRequest
from envkit.engine.docker import DockerEngine
from envkit.engine.endpoint import SOCKET, Endpoint, endpoint
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.host import engine as host_engine
from envkit.host.root import HostRoot
from envkit.runner import runner

PYTHONS = ("Errno", "Exception(", "('", "Error(", "HTTPSConnection", "HTTPConnection")  # of its own words
TLS = {"DOCKER_TLS_VERIFY": "1"}


def context(home: Path, name: str, host: str, **more: bool) -> Path:
    """Writes a docker context as the client does; returns the folder of its TLS files."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = home / ".docker/contexts/meta" / digest
    meta.mkdir(parents=True)
    said = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False, **more}}}
    (meta / "meta.json").write_text(json.dumps(said))
    return home / ".docker/contexts/tls" / digest / "docker"


def use(home: Path, name: str) -> None:
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker/config.json").write_text(json.dumps({"currentContext": name}))


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, Endpoint("used", "unix:///used")),
        ({"DOCKER_CONTEXT": "named"}, Endpoint("named", "unix:///named")),
        ({"DOCKER_CONTEXT": "default"}, Endpoint("default", SOCKET)),
        ({"DOCKER_HOST": "unix:///told", "DOCKER_CONTEXT": "named"}, Endpoint("default", "unix:///told")),
        ({"DOCKER_HOST": "", "DOCKER_CONTEXT": ""}, Endpoint("used", "unix:///used")),
        ({"DOCKER_CONFIG": "OTHER"}, Endpoint("default", SOCKET)),
    ],
)
def test_the_order_is_dockers_own(tmp_path: Path, environ: dict[str, str], found: Endpoint) -> None:
    context(tmp_path, "used", "unix:///used")
    context(tmp_path, "named", "unix:///named")
    use(tmp_path, "used")
    given = {"HOME": str(tmp_path), **environ}
    if "DOCKER_CONFIG" in given:
        given["DOCKER_CONFIG"] = str(tmp_path / "other")
    assert endpoint(given) == found


@pytest.mark.parametrize("name", ["used", "named", "", "default"])
@pytest.mark.parametrize("host", ["", "unix:///told"])
def test_the_client_itself_takes_the_same_context(tmp_path: Path, name: str, host: str) -> None:
    """Held to the program docker where it is: what it calls the current context is what this calls it."""
    try:
        said = subprocess.run(["docker", "context", "show"], capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("there is no docker client here")
    if said.returncode:
        pytest.skip("this docker client is too old to show its context")
    context(tmp_path, "used", "unix:///used")
    context(tmp_path, "named", "unix:///named")
    use(tmp_path, "used")
    environ = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "DOCKER_CONTEXT": name,
        "DOCKER_HOST": host,
    }
    shown = subprocess.run(["docker", "context", "show"], env=environ, capture_output=True, text=True, timeout=60)
    assert endpoint(environ).context == shown.stdout.strip()


@pytest.mark.parametrize(
    "written",
    ["not json", "[]", "{}", '{"Endpoints": 7}', '{"Endpoints": {"docker": []}}', '{"Endpoints": {"kubernetes": {}}}'],
)
def test_a_context_that_cannot_be_read_is_one_sentence(tmp_path: Path, written: str) -> None:
    context(tmp_path, "far", "x")
    (meta,) = tmp_path.glob(".docker/contexts/meta/*/meta.json")
    meta.write_text(written)
    with pytest.raises(UsageError, match="the docker context `far`, which DOCKER_CONTEXT names, cannot be read"):
        endpoint({"HOME": str(tmp_path), "DOCKER_CONTEXT": "far"})


@pytest.mark.parametrize("host", ["nonsense", "unix://", "://x", "gopher://x", "/var/run/docker.sock"])
def test_an_address_that_is_none(host: str) -> None:
    with pytest.raises(UsageError, match="which is no address of an engine"):
        endpoint({"DOCKER_HOST": host})


@pytest.mark.parametrize("host", ["ssh://user@node", "npipe:////./pipe/x", "fd://x"])
def test_an_address_that_is_not_spoken_is_one_sentence(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(Undecided) as caught:
        DockerEngine(tmp_path)
    assert "paramiko" not in caught.value.message and "systemctl" not in caught.value.fix
    assert "DOCKER_HOST" in caught.value.fix


def plain(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    for name in (
        "DOCKER_HOST",
        "DOCKER_CONTEXT",
        "DOCKER_CONFIG",
        "DOCKER_TLS_VERIFY",
        "DOCKER_TLS",
        "DOCKER_CERT_PATH",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))


VERBS = (
    ("probe", "some:image"),
    ("smoke", "some:image"),
    ("audit", "some:image"),
    ("preflight", "some:image", "--level", "probe"),
    ("doctor",),
)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("how", ["variable", "configuration"])
def test_a_context_that_does_not_exist_is_the_users(
    verb: tuple[str, ...], how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(monkeypatch, tmp_path)
    if how == "variable":
        monkeypatch.setenv("DOCKER_CONTEXT", "nope")
    else:
        use(tmp_path, "nope")
    done = envkit(*verb)
    assert done.returncode == 2, done.stderr
    assert "there is no docker context `nope`" in done.stderr and "docker context ls" in done.stderr


def test_a_context_is_asked_by_the_sdk_the_builder_and_the_machines_reader_alike(
    docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(monkeypatch, tmp_path)
    context(tmp_path, "mine", f"unix://{docker.folder}/s")
    use(tmp_path, "mine")
    docker.holds("some:image", layer(a=b"a"))
    docker.will_make((layer(b=b"b"),))
    engine = DockerEngine(tmp_path)
    assert engine.endpoint.shown == f"unix://{docker.folder}/s (docker context mine)"
    assert len(engine.layers("some:image")) == 1
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    engine.build(BuildRequest(tmp_path, "made:one", 60), lambda line: None)
    assert "--builder=mine" in docker.builds()[0]["argv"]
    seen = host_engine.docker(HostRoot(Path("/"), {"HOME": str(tmp_path)})).value
    assert seen is not None and (seen.ended, seen.endpoint) == ("answered", f"unix://{docker.folder}/s")


def test_a_report_names_the_engine(docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain(monkeypatch, tmp_path)
    context(tmp_path, "mine", f"unix://{docker.folder}/s")
    use(tmp_path, "mine")
    docker.holds("some:image", layer(a=b"a"))
    done = envkit("audit", "some:image", "-f", "json", "--save", tmp_path / "audit.json")
    named = json.loads((tmp_path / "audit.json").read_text())["subject"]["engine"]
    assert named == f"unix://{docker.folder}/s (docker context mine)"
    assert f"the docker engine is unix://{docker.folder}/s (docker context mine)" in done.stderr
    fake = FakeEngine(python=sys.executable, images={"job:1": {}})
    assert runner.probe(place(fake), lambda line: None, static=True).engine == "fake engine"
    assert runner.placement(place(fake), "model:make", lambda line: None).engine == "fake engine"
    assert runner.precision(place(fake), "model:make", lambda line: None).engine == "fake engine"
    package = tmp_path / "model.pt2"
    package.write_bytes(b"no package")
    assert runner.aoti(place(fake), lambda line: None, package).engine == "fake engine"
    assert runner.audit(str(tmp_path), lambda: pytest.fail("no engine is needed"), lambda line: None).engine == ""


def test_an_engine_is_not_verified_by_a_certificate_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(monkeypatch, tmp_path)
    for name, value in {**TLS, "DOCKER_HOST": "tcp://127.0.0.1:1", "DOCKER_CERT_PATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"holds no ca\.pem"):
        DockerEngine(tmp_path)
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(EnvkitError, match=r"^(?!.*holds no ca\.pem)"):
        DockerEngine(tmp_path)


# -- TCP and TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as DOCKER_CERT_PATH names one, and the server's own pair in it; made by openssl, which Debian has."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=120)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    # Python 3.13 asks for both: an authority says that it signs, and what it signed names its key (VERIFY_X509_STRICT).
    signs = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", "-x509", *key, *signs, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")
    for name, extra in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
        openssl("req", *key, "-keyout", f"{name}-key.pem", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(f"{extra}\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n")
        ca = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial")
        signed = ("-in", f"{name}.csr", "-out", f"{name}-cert.pem", "-extfile", f"{name}.ext", "-days", "2")
        openssl("x509", "-req", *signed, *ca)
    (folder / "client-cert.pem").rename(folder / "cert.pem")
    (folder / "client-key.pem").rename(folder / "key.pem")
    return folder


@pytest.fixture
def behind_tls(docker: FakeDocker, certificates: Path) -> str:
    """The address of an engine that wants a client's certificate."""
    wanted = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem"))
    wanted.load_cert_chain(certificates / "server-cert.pem", certificates / "server-key.pem")
    wanted.verify_mode = ssl.CERT_REQUIRED
    docker.holds("some:image", layer(a=b"a"))
    return docker.over_tcp(wanted)


def asked(home: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    """Whether the SDK is answered, and how the machine's reader fares."""
    plain(monkeypatch, home)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    try:
        answered, said = len(DockerEngine(home).layers("some:image")) == 1, ""
    except EnvkitError as error:
        answered, said = False, error.message
    assert not any(word in said for word in PYTHONS), said
    seen = host_engine.docker(HostRoot(Path("/"), {"HOME": str(home), **environ})).value
    assert seen is not None
    return answered, seen.ended


def test_tcp_with_and_without_tls(
    docker: FakeDocker, behind_tls: str, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"DOCKER_HOST": f"tcp://{docker.over_tcp()}"}
    assert asked(tmp_path, here, monkeypatch) == (True, "answered")
    far = {"DOCKER_HOST": f"tcp://{behind_tls}"}
    given = {"DOCKER_CERT_PATH": str(certificates)}
    assert asked(tmp_path, {**far, **TLS, **given}, monkeypatch) == (True, "answered")
    assert asked(tmp_path, {**far, "DOCKER_TLS": "1", **given}, monkeypatch) == (True, "answered")
    for wrong in (far, {**far, **TLS}, {**far, **given}):
        assert asked(tmp_path, wrong, monkeypatch) == (False, "error"), wrong


def test_a_context_has_its_own_tls_and_the_variables_add_none(
    behind_tls: str, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = context(tmp_path, "far", f"tcp://{behind_tls}")
    assert asked(tmp_path, {"DOCKER_CONTEXT": "far"}, monkeypatch) == (False, "error")
    also = {**TLS, "DOCKER_CERT_PATH": str(certificates), "DOCKER_CONTEXT": "far"}
    assert asked(tmp_path, also, monkeypatch) == (False, "error")
    tls.mkdir(parents=True)
    for name in ("ca", "cert", "key"):
        (tls / f"{name}.pem").write_bytes((certificates / f"{name}.pem").read_bytes())
    assert asked(tmp_path, {"DOCKER_CONTEXT": "far"}, monkeypatch) == (True, "answered")
    (tls / "ca.pem").unlink()  # who signed the engine's certificate is then not known
    assert asked(tmp_path, {"DOCKER_CONTEXT": "far"}, monkeypatch) == (False, "error")


def test_messages_of_an_engine_hold_no_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain(monkeypatch, tmp_path)
    for host in (f"unix://{tmp_path}/none.sock", "tcp://127.0.0.1:9", f"unix://{tmp_path}"):
        monkeypatch.setenv("DOCKER_HOST", host)
        with pytest.raises(Undecided) as caught:
            DockerEngine(tmp_path)
        assert not any(word in caught.value.message for word in PYTHONS), caught.value.message


def test_a_version_of_the_api_that_is_none_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain(monkeypatch, tmp_path)
    monkeypatch.setenv("DOCKER_API_VERSION", "newest")
    with pytest.raises(UsageError, match="DOCKER_API_VERSION is `newest`, which is no version"):
        DockerEngine(tmp_path)


@pytest.mark.parametrize(
    "host",
    [
        "tcp://user:0canary0@127.0.0.1:9",
        "http://0canary0@node:2375",
        "https://u:0canary0@0canary0@node",
        "TCP://u:0Canary0@node",
        "u:0canary0@node:2375",
        "ssh://user:0canary0@node",
        "tcp://u:0canary0/x@node",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_quoted(host: str) -> None:
    with pytest.raises(UsageError, match="DOCKER_HOST has a user or a password in its address") as caught:
        endpoint({"DOCKER_HOST": host})
    assert "canary" not in f"{caught.value} {caught.value.fix}".lower()


@pytest.mark.parametrize("verb", [*VERBS, ("build", "SPEC"), ("probe", "other:image", "--engine", "docker")])
def test_no_verb_prints_the_password_of_an_engine(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(monkeypatch, tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "tcp://u:0CANARY0@127.0.0.1:9")
    (tmp_path / "envkit.toml").write_text('torch = "2.6.0"\npython = "3.11"\n')
    done = envkit(*[str(tmp_path) if word == "SPEC" else word for word in verb], cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "canary" not in (done.stdout + done.stderr).lower() and done.stderr.count("envkit: ") == 1
