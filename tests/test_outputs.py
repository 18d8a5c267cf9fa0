"""What runs an image elsewhere: each file is parsed back as its reader would, and no value gets out of its quotes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from envkit.build import exporters, flags
from envkit.plan.lockfile import Deb, Lock, Pin
from envkit.plan.spec import Flavor
from envkit.system import proc
from envkit.system.files import shipped
from envkit.versions import Cuda, Driver, Python

SHA = "0123456789abcdef" * 4
DEBUG = shipped("templates") / "debug"
SCRIPTS = ("cuda-blocking", "cuda-cores", "debug-finish", "debug-install", "envkit-debug", "profile.sh")
STEPS = shipped("templates") / "steps"
LOCK = Lock(
    name="trainer.v2",
    wish={},
    torch=Version("2.6.0"),
    variant="cu124",
    cuda=Cuda("12.4"),
    cudnn="",
    nccl="",
    triton="",
    python=Python("3.13"),
    os="debian13",
    platform="linux/amd64",
    base="wheels",
    flavor="debug",
    image="debian:13-slim",
    suite="trixie",
    digest="sha256:" + SHA,
    origin="packages",
    backend="cu124",
    preinstalled=False,
    driver=Driver("525.60.13"),
    epoch=1700000000,
    archive="2026-11-15T08:12:33Z",
    components=("main", "non-free"),
    gpus=(),
    apt={"runtime": ("g++",), "devel": ("git",), "tools": ("python3-venv",)},
    debs=(
        Deb("g++", "4:14.2.0-1", "amd64", SHA, 1356, "runtime"),
        Deb("libx1", "1.0+dfsg~b1-2", "amd64", SHA, 1, "runtime"),
        Deb("git", "1:2.47.3-0+deb13u1", "amd64", SHA, 1, "devel"),
        Deb("python3.13-venv", "3.13.5-2", "amd64", SHA, 1, "tools"),
    ),
    programs=(),
    missing=(),
    installer=Pin("uv", "0.8.0", "uv-0.8.0-py3-none-manylinux_2_17_x86_64.whl", SHA, 17, "tools"),
    wheels=(
        Pin("torch", "2.6.0+cu124", "torch-2.6.0+cu124-cp313-cp313-linux_x86_64.whl", SHA),
        Pin("py-spy", "0.4.3", "py_spy-0.4.3-py2.py3-none-manylinux_2_5_x86_64.whl", SHA, 0, "debug"),
    ),
)


def composed(lock: Lock, flavor: Flavor) -> tuple[list[str], dict[str, Any]]:
    """The comments and the document of a compose.yaml."""
    lines = exporters.compose(lock, flavor).splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert lines[: len(comments)] == comments
    return comments, yaml.safe_load("\n".join(lines[len(comments) :]))


@pytest.mark.parametrize("flavor", Flavor)
def test_compose_gives_the_flags_of_the_command_line(flavor: Flavor) -> None:
    comments, document = composed(LOCK, flavor)
    assert document["name"] == "trainer-v2"  # Compose takes no dot there
    service = document["services"]["envkit"]
    given = {(flag.arguments[0], *flag.arguments[1:]) for flag in flags.run_flags(LOCK, flavor)}
    said = {("--init",)} if service["init"] else set()
    said |= {("--cap-add", name) for name in service.get("cap_add", [])}
    said |= {("--publish", port) for port in service.get("ports", [])}
    said |= {("--ulimit", f"{name}={value}") for name, value in service["ulimits"].items()}
    said |= {("--shm-size", service["shm_size"])}
    if flavor is Flavor.DEBUG:
        (volume,) = service["volumes"]
        said |= {("--volume", f"{document['volumes'][volume['source']]['name']}:{volume['target']}")}
    else:  # the project itself, and a HOME that its user may write to
        given = {each for each in given if each[0] != "--volume"}
        assert [(each["source"], each["target"]) for each in service["volumes"]] == [
            (".", flags.WORKSPACE),
            ("home", flags.HOME),
        ]
        home = document["services"]["home"]
        assert [*home["entrypoint"], *home["command"]] == ["chown", service["user"], flags.HOME]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device["driver"] == "cdi"
    said |= {("--device", name) for name in device["device_ids"]}
    assert said == given
    assert all(any(" ".join(arguments) in line for line in comments) for arguments in given)
    assert service["build"]["target"] == flavor.value
    assert service["image"] == flags.image(LOCK, flavor)


def test_the_default_flavor_is_the_latest() -> None:
    assert flags.image(LOCK, Flavor.DEBUG) == "envkit/trainer.v2:latest"
    assert flags.image(LOCK, Flavor.RUNTIME) == "envkit/trainer.v2:runtime"


def test_only_the_debug_image_gets_more_than_a_container_has() -> None:
    for flavor in Flavor:
        for flag in flags.run_flags(LOCK, flavor):
            assert flag.why
            assert flag.arguments[0] not in ("--privileged", "--pid", "--network", "--ipc")
            assert "SYS_ADMIN" not in flag.arguments
            if flag.arguments[0] == "--publish":
                assert flag.arguments[1].startswith("127.0.0.1:")
    capable = {
        flavor for flavor in Flavor for flag in flags.run_flags(LOCK, flavor) if flag.arguments[0] == "--cap-add"
    }
    assert capable == {Flavor.DEBUG}
    assert any("NVreg_RestrictProfilingToAdminUsers=0" in note for note in flags.notes(LOCK, Flavor.DEBUG))
    assert flags.notes(LOCK, Flavor.RUNTIME) == ()


def test_keys_and_tokens_come_from_the_environment_of_compose() -> None:
    _, document = composed(LOCK, Flavor.DEBUG)
    service = document["services"]["envkit"]
    assert service["command"] == ["envkit-debug"]
    assert service["environment"]["ENVKIT_SSH_KEY"] == "${ENVKIT_SSH_KEY:-}"
    # The server's own key outlives the container, or every start would warn of a changed one.
    assert service["environment"]["ENVKIT_STATE"].startswith(flags.WORKSPACE)
    for flavor in (Flavor.RUNTIME, Flavor.DEVEL):
        assert "ENVKIT_SSH_KEY" not in composed(LOCK, flavor)[1]["services"]["envkit"]["environment"]


def test_compose_fills_in_nothing_of_a_value() -> None:
    _, document = composed(replace(LOCK, name='a${HOME}"b'), Flavor.RUNTIME)
    assert document["services"]["envkit"]["image"] == 'envkit/a$${HOME}"b:runtime'


def test_devcontainer_json_has_what_the_tools_need() -> None:
    document = json.loads(exporters.devcontainer(LOCK))
    assert document["image"] == flags.image(LOCK, Flavor.DEBUG)
    given = flags.run_flags(LOCK, Flavor.DEBUG)
    assert document["capAdd"] == [flag.arguments[1] for flag in given if flag.arguments[0] == "--cap-add"]
    pairs = [*zip(document["runArgs"][::2], document["runArgs"][1::2], strict=True)]
    assert ("--device", "nvidia.com/gpu=all") in pairs and ("--ulimit", "core=-1") in pairs
    assert not any(name in ("--publish", "--cap-add", "--init") for name, _ in pairs)
    assert {"ms-python.python", "ms-vscode.cpptools", "nvidia.nsight-vscode-edition"} <= {
        *document["customizations"]["vscode"]["extensions"]
    }
    assert document["workspaceFolder"] in document["workspaceMount"]
    assert "settings" in document["customizations"]["vscode"]
    held = json.loads(exporters.devcontainer(replace(LOCK, preinstalled=True)))
    assert held["customizations"]["vscode"]["settings"] == {}


def sections(text: str) -> dict[str, str]:
    """The sections of an Apptainer definition by name, its header under ""."""
    parts = re.split(r"(?m)^%([a-z]+)\n", text)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_apptainer_takes_the_same_wheels_by_hash_and_packages_by_version() -> None:
    found = sections(exporters.apptainer(LOCK))
    assert {*found} == {"", "post", "environment", "runscript", "test", "labels", "help"}
    header = dict(line.split(": ", 1) for line in found[""].splitlines() if line and not line.startswith("#"))
    assert header == {"Bootstrap": "docker", "From": "debian:13-slim"}
    assert "has not proven" in found[""] and "docker-daemon:envkit/trainer.v2:runtime" in found[""]
    post = found["post"]
    assert f"torch==2.6.0+cu124 --hash=sha256:{SHA}\n" in post
    assert f"uv==0.8.0 --hash=sha256:{SHA}\n" in post
    assert "g++=4:14.2.0-1" in post and "'libx1=1.0+dfsg~b1-2'" in post and "python3.13-venv=3.13.5-2" in post
    assert "git" not in post and "py-spy" not in post
    assert post.count("--require-hashes") == 2
    assert "--torch-backend cu124" in post
    assert '("3.13", "2.6.0", "12.4")' in found["test"]


@pytest.mark.parametrize("change", [{}, {"preinstalled": True}, {"archive": "", "debs": ()}, {"backend": ""}])
def test_apptainers_scripts_are_shell(change: dict[str, Any], tmp_path: Path) -> None:
    found = sections(exporters.apptainer(replace(LOCK, **change)))
    for name in ("post", "environment", "runscript", "test"):
        done = proc.run(["sh", "-n"], timeout_s=60, stdin=found[name])
        assert (done.exit, done.stderr) == (0, ""), name
    if change.get("archive") == "":
        assert "g++" in found["post"] and "python3-venv" in found["post"] and "=4:" not in found["post"]


def test_a_pulled_base_keeps_its_digest() -> None:
    text = exporters.apptainer(replace(LOCK, suite="", origin="registry", image="nvidia/cuda:12.4.1-base-ubuntu22.04"))
    assert f"From: nvidia/cuda:12.4.1-base-ubuntu22.04@sha256:{SHA}\n" in text


# The scripts of the debug image


@pytest.mark.parametrize("path", [*(DEBUG / name for name in SCRIPTS), STEPS / "cuda-home"], ids=lambda path: path.name)
def test_scripts_are_plain_shell_and_no_template(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "{{" not in text and "{%" not in text and "{#" not in text
    done = proc.run(["sh", "-n"], timeout_s=60, stdin=text)
    assert (done.exit, done.stderr) == (0, "")
    if path.name != "profile.sh":
        assert text.startswith("#!/bin/sh\n") and "\nset -eu\n" in text


def test_all_of_the_folder_is_tested() -> None:
    assert {path.name for path in DEBUG.iterdir()} == {*SCRIPTS, "dpkg-exclude", "sshd_config"}


def test_the_ssh_server_takes_keys_alone() -> None:
    lines = (DEBUG / "sshd_config").read_text(encoding="utf-8").splitlines()
    said = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    assert (
        said["PasswordAuthentication"] == said["KbdInteractiveAuthentication"] == said["PermitEmptyPasswords"] == "no"
    )
    assert said["PermitRootLogin"] == "prohibit-password"
    assert said["AuthenticationMethods"] == "publickey"
    assert not {"HostKey", "AuthorizedKeysFile", "Port"} & {*said}  # never in the image


def script(name: str, *argv: str, home: Path, **environment: str) -> proc.Completed:
    """Runs a script with a home of its own and no service unless asked for."""
    quiet = {"ENVKIT_SSH_PORT": "0", "ENVKIT_JUPYTER_PORT": "0"}
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home), **quiet, **environment}
    return proc.run(["sh", str(DEBUG / name), *argv], timeout_s=60, env=env, cwd=home)


def test_envkit_debug_becomes_the_command(tmp_path: Path) -> None:
    done = script("envkit-debug", "sh", "-c", 'echo "$1"; exit 7', "-", "it ran", home=tmp_path)
    assert (done.exit, done.stdout) == (7, "it ran\n")
    assert "core dumps" in done.stderr


def test_envkit_debug_refuses_to_do_nothing(tmp_path: Path) -> None:
    done = script("envkit-debug", home=tmp_path)
    assert done.exit == 2
    assert "nothing was started and no command was given" in done.stderr


@pytest.mark.parametrize("port", ["x", "", "65536", "-1", "2 2"])
def test_envkit_debug_refuses_a_port_that_is_none(port: str, tmp_path: Path) -> None:
    done = script("envkit-debug", "true", home=tmp_path, ENVKIT_SSH_PORT=port or " ")
    assert done.exit == 2
    assert "no port" in done.stderr


def server(folder: Path) -> str:
    """A PATH on which an sshd notes what it was told and ends."""
    told = folder / "sshd"
    told.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$HOME/told"\n')
    told.chmod(0o755)
    return f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"


def test_a_private_key_is_taken_for_no_public_one(tmp_path: Path) -> None:
    secret = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----"
    path = server(tmp_path)
    done = script("envkit-debug", "true", home=tmp_path, ENVKIT_SSH_PORT="2222", ENVKIT_SSH_KEY=secret, PATH=path)
    assert done.exit == 2
    assert "private" in done.stderr and "abc" not in done.stderr
    assert not (tmp_path / ".envkit/authorized_keys").exists()


def test_no_key_is_no_server_and_no_fault(tmp_path: Path) -> None:
    done = script("envkit-debug", "true", home=tmp_path, ENVKIT_SSH_PORT="2222", PATH=server(tmp_path))
    assert done.exit == 0
    assert "no SSH server" in done.stderr
    assert not (tmp_path / "told").exists()


def test_cuda_blocking_and_cuda_cores_set_what_they_promise(tmp_path: Path) -> None:
    assert "CUDA_LAUNCH_BLOCKING=1\n" in script("cuda-blocking", "env", home=tmp_path).stdout
    done = script("cuda-cores", "env", home=tmp_path, CORES=str(tmp_path / "cores"))
    assert "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1\n" in done.stdout
    assert f"CUDA_COREDUMP_FILE={tmp_path}/cores/core_gpu.%h.%p\n" in done.stdout
    assert (tmp_path / "cores").is_dir()
    for name in ("cuda-blocking", "cuda-cores"):
        assert script(name, home=tmp_path).exit == 2
        assert script(name, "sh", "-c", "exit 5", home=tmp_path).exit == 5
