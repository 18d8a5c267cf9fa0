"""SSH and Jupyter of the debug flavor by real clients: `ssh`, `sftp` and HTTP.

The files are those of the flavor, the base is Debian's; torch is left out, for none of this depends on it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from clocks import PATIENCE_S, comes

from envkit.engine import BuildRequest, buildx
from envkit.engine.docker import DockerEngine
from envkit.plan.update import suite_wish
from envkit.system import files

# It installs an SSH server and Jupyter from the archives, half a minute.
pytestmark = [
    pytest.mark.engine,
    pytest.mark.nightly,
    pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh here"),
]

STACK = Path(__file__).resolve().parents[1] / "images" / "torch-2.6-cu124"
TOKEN = "a-token-of-this-test-alone"
DOCKERFILE = """\
FROM {base}
COPY debug /debug
RUN apt-get update -qq && sh /debug/debug-install apt-get install -y -qq --no-install-recommends \\
    openssh-server python3-venv
RUN --mount=type=secret,id=ca,required=false if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi && \\
    python3 -m venv /opt/venv && /opt/venv/bin/pip install -q --disable-pip-version-check jupyterlab
ENV PATH=/opt/venv/bin:$PATH CUDA_HOME=/usr/local/cuda
"""


class Server(NamedTuple):
    """A running container: where its ports are published, what it has said, and the key that opens it."""

    name: str
    ssh: int
    http: int
    key: Path

    def said(self) -> str:
        done = subprocess.run(["docker", "logs", self.name], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def image(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    context = tmp_path_factory.mktemp("debug")
    shutil.copytree(files.shipped("templates") / "debug", context / "debug")
    base = engine.resolve_base(suite_wish("bookworm"), lambda line: None)
    (context / "Dockerfile").write_text(DOCKERFILE.format(base=base.ref))
    tag, ca = f"envkit-test/debug:{uuid.uuid4().hex[:12]}", buildx.ca_bundle(os.environ)
    engine.build(BuildRequest(context, tag, 600, secrets={"ca": ca} if ca else {}), lambda line: None)
    yield tag
    engine.remove(tag)


def key_at(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def port_of(name: str, inside: int) -> int:
    shown = subprocess.run(["docker", "port", name, str(inside)], capture_output=True, text=True, check=True)
    return int(shown.stdout.splitlines()[0].rpartition(":")[2])


@pytest.fixture(scope="module")
def server(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    key, name = key_at(tmp_path_factory.mktemp("keys") / "mine"), f"envkit-test-debug-{uuid.uuid4().hex[:12]}"
    subprocess.run(
        [
            "docker", "run", "--detach", "--name", name, "--init", "-p", "127.0.0.1::2222", "-p", "127.0.0.1::8888",
            "--env", "ENVKIT_SSH_KEY", "--env", "ENVKIT_JUPYTER_TOKEN", image, "envkit-debug",
        ],
        env={**os.environ, "ENVKIT_SSH_KEY": key.with_suffix(".pub").read_text(), "ENVKIT_JUPYTER_TOKEN": TOKEN},
        capture_output=True, check=True,
    )  # fmt: skip
    made = Server(name, port_of(name, 2222), port_of(name, 8888), key)
    try:
        assert comes(lambda: "Server listening" in made.said() and answer(made, "/api") is not None), made.said()
        yield made
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True, check=True)


def ssh(server: Server, key: Path, *words: str) -> subprocess.CompletedProcess[str]:
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes",
               "IdentityAgent=none", "LogLevel=ERROR")  # fmt: skip
    argv = ["ssh", *(word for one in options for word in ("-o", one)), "-i", str(key), "-p", str(server.ssh)]
    return subprocess.run(
        [*argv, "root@127.0.0.1", *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def answer(server: Server, path: str, token: str = "", body: object = None) -> tuple[int, bytes] | None:
    """Status and body; None where nobody listens yet."""
    asked = urllib.request.Request(f"http://127.0.0.1:{server.http}{path}", method="GET" if body is None else "POST")
    if token:
        asked.add_header("Authorization", f"token {token}")
    asked.data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as got:
            return got.status, got.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return None


def test_the_key_opens_a_session_with_the_images_environment(server: Server) -> None:
    done = ssh(server, server.key, "command -v python3; echo $CUDA_HOME; id -u; exit 3")
    assert (done.returncode, done.stdout.split()) == (3, ["/opt/venv/bin/python3", "/usr/local/cuda", "0"]), done.stderr
    login = ssh(server, server.key, "bash -lc 'command -v python3'")  # as VS Code's server starts a shell
    assert login.stdout.strip() == "/opt/venv/bin/python3"


def test_no_other_key_and_no_password_opens_one(server: Server, tmp_path: Path) -> None:
    done = ssh(server, key_at(tmp_path / "other"), "true")
    assert done.returncode == 255 and "Permission denied (publickey)" in done.stderr


def test_files_come_and_go_and_a_port_is_forwarded(server: Server, tmp_path: Path) -> None:
    """As VS Code and a browser use it: Jupyter by a tunnel, and a file by SFTP."""
    there = ssh(server, server.key, "-W", "127.0.0.1:8888")
    assert there.returncode == 0, there.stderr
    batch = tmp_path / "batch"
    batch.write_text(f"get /etc/hostname {tmp_path}/hostname\n")
    done = subprocess.run(
        [
            "sftp", "-q", "-b", str(batch), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-i", str(server.key), "-P", str(server.ssh), "root@127.0.0.1",
        ],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and (tmp_path / "hostname").read_text().strip(), done.stderr


def test_jupyter_starts_a_kernel_for_who_has_the_token(server: Server) -> None:
    for token in ("", "wrong"):
        refused = answer(server, "/api/kernels", token)
        assert refused is not None and refused[0] == 403
    page = answer(server, "/lab", TOKEN)
    assert page is not None and page[0] == 200 and b"JupyterLab" in page[1]
    made = answer(server, "/api/kernels", TOKEN, {"name": "python3"})
    assert made is not None and made[0] == 201
    kernel = json.loads(made[1])["id"]
    listed = answer(server, "/api/kernels", TOKEN)
    assert listed is not None and kernel in [one["id"] for one in json.loads(listed[1])]


def test_neither_the_token_nor_a_host_key_is_told_or_in_the_image(server: Server, image: str) -> None:
    assert TOKEN not in server.said()
    shown = subprocess.run(
        ["docker", "top", server.name, "-eo", "pid,args"], capture_output=True, text=True, check=True
    )
    assert "jupyter-lab" in shown.stdout and TOKEN not in shown.stdout
    look = ["docker", "run", "--rm", "--network", "none", image, "sh", "-c", "ls /etc/ssh /root -a"]
    found = subprocess.run(look, capture_output=True, text=True, check=True).stdout
    assert "ssh_host" not in found and "envkit_sshd_config" in found


DEVCONTAINER = "@devcontainers/cli@0.89.0"  # VS Code's own program for development containers, one file of JavaScript


@pytest.mark.skipif(not shutil.which("npm"), reason="no npm here")
def test_the_devcontainer_file_starts_a_container_by_the_program_of_vs_code(image: str, tmp_path: Path) -> None:
    """The image is here already; without GPUs, for the machine has none, and without limits that serve GPUs alone."""
    home, project = tmp_path / "npm", tmp_path / f"envkit-test-{uuid.uuid4().hex[:12]}"  # and so its volumes
    installed = subprocess.run(
        ["npm", "install", "--silent", "--prefix", str(home), DEVCONTAINER], capture_output=True, check=False
    )
    if installed.returncode:
        pytest.skip("npm's registry is not in reach")
    (project / ".devcontainer").mkdir(parents=True)
    for name in ("envkit.toml", "envkit.lock"):
        shutil.copy(STACK / name, project / name)
    (project / "train.py").write_text("import os, sys; print(os.getcwd(), sys.executable)\n")
    render = [sys.executable, "-m", "envkit", "render", str(project), "--as", "devcontainer", "--gpus", "none",
              "--image", image, "--no-preflight", "-o", str(project / ".devcontainer/devcontainer.json")]  # fmt: skip
    subprocess.run(render, capture_output=True, check=True, cwd=project)
    name = f"devcontainer.local_folder={project}"

    def devcontainer(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [str(home / "node_modules/.bin/devcontainer"), words[0], "--workspace-folder", str(project), *words[1:]]
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    try:
        up = devcontainer("up")
        assert up.returncode == 0 and json.loads(up.stdout.splitlines()[-1])["outcome"] == "success", up.stderr
        ran = devcontainer("exec", "python3", "train.py")
        assert (ran.returncode, ran.stdout) == (0, "/workspace /opt/venv/bin/python3\n"), ran.stderr
        assert devcontainer("exec", "sh", "-c", "exit 3").returncode == 3
    finally:
        ids = ["docker", "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={name}"]
        for one in subprocess.run(ids, capture_output=True, text=True, check=True).stdout.split():
            subprocess.run(["docker", "rm", "--force", one], capture_output=True, check=True)
        volumes = [
            mount["source"] for mount in json.loads((project / ".devcontainer/devcontainer.json").read_text())["mounts"]
        ]
        subprocess.run(["docker", "volume", "rm", "--force", *volumes], capture_output=True, check=True)
