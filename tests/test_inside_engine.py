"""What a spec says of its project, in a real engine: files, wheel, user, start; built twice, and derived from.

The lock is the reference environment's without torch and what belongs to it, so that an image takes seconds and the
base's 320 MB; torch itself comes in the nightly tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from clocks import comes

from envkit.engine import BuildRequest, buildx
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided
from envkit.plan import lockfile as locks
from envkit.plan import project, solve, wheels
from envkit.plan.indexes import Indexes
from envkit.plan.spec import load
from envkit.plan.update import suite_wish
from envkit.versions import Python

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[1]
STACK = ROOT / "images" / "torch-2.6-cu124"
SPEC = """\
torch = "2.6.0"
cuda = "12.4"
python = "3.11"
os = "debian12"
packages = ["uv", "pip"]
gpus = []
project = "."

[image]
copy = ["."]
user = "app"
env = { GREETING = 'a "b" $HOME \\ c' }
expose = ["8080"]
entrypoint = ["/workspace/start.sh"]
cmd = ["demo", "served"]

[image.healthcheck]
command = ["python", "-c", "import demo"]
interval = "1s"
"""
FILES = {
    "pyproject.toml": '[project]\nname = "demo"\nversion = "1.2"\nlicense = "MIT"\n'
    '[project.scripts]\ndemo = "demo:main"\n'
    '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n',
    "src/demo/__init__.py": "import os, sys\n\n\ndef main() -> None:\n"
    "    print(os.environ['GREETING'], *sys.argv[1:], flush=True)\n",
    "train.py": "import demo\n\nprint(demo.__file__)\n",
    "start.sh": '#!/bin/sh\nexec "$@"\n',
    ".env": "API_TOKEN=hunter2\n",
    "prod.env": "API_TOKEN=hunter2\n",
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/refs/heads/main": "0123456789abcdef0123456789abcdef01234567\n",
    "keys/server.txt": "-----BEGIN PRIVATE KEY-----\nhunter2\n",
    ".netrc": "machine x login y password hunter2\n",
    "big.bin": "data\n",
    ".dockerignore": "*.bin\n",
}


class Made(NamedTuple):
    """A project's folder, its image and what building it printed."""

    folder: Path
    tag: str
    said: str


def envkit(*argv: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "envkit", *argv], capture_output=True, text=True, cwd=cwd, timeout=600, check=False
    )


def write_project(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "start.sh").chmod(0o755)
    (folder / "envkit.toml").write_text(SPEC)


def write_lock(folder: Path, engine: DockerEngine) -> None:
    """The reference lock without torch, on today's base, with the project as a lock of it pins that."""
    spec = load(folder)
    base = engine.resolve_base(suite_wish("bookworm"), lambda line: None)
    held = locks.parse((STACK / "envkit.lock").read_text(), "envkit.lock")
    # This machine's uv, which a build then takes as it is.
    tools = solve.build_tools(Indexes(), Python("3.11"), ("pip", f"uv=={wheels.uv_version()}"), "")
    installer = next(replace(pin, layer=locks.TOOLS) for pin in tools if pin.name == "uv")
    kept = [pin for pin in held.wheels if pin.name in ("filelock", "typing-extensions")]

    def resolve(python: Python, lines: Any) -> tuple[locks.Pin, ...]:
        return solve.build_tools(Indexes(), python, lines, "")

    own = project.lock(spec, Python("3.11"), None, resolve)
    small = replace(
        held, name=spec.name, flavor="runtime", wish=locks.spec_items(spec), digest=base.sha256, origin="packages",
        debs=(), apt={}, gpus=(), programs=(), missing=(), wheels=locks.in_order((*kept, *tools)), cuda=None,
        variant="cpu", driver=None, project=own, installer=installer,
    )  # fmt: skip
    locks.save(replace(small, inside=spec.image), folder / "envkit.lock")


@pytest.fixture(scope="module")
def made(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("project") / "demo"
    folder.mkdir()
    write_project(folder)
    write_lock(folder, engine)
    tag = f"envkit-test/inside:{uuid.uuid4().hex[:12]}"
    built = envkit("build", str(folder), "--tag", tag)
    assert built.returncode == 0, built.stderr[-4000:]
    yield Made(folder, tag, built.stderr)
    engine.remove(tag)


def inside(tag: str, *argv: str, options: tuple[str, ...] = ()) -> str:
    """What a command prints in a container of the image."""
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", *options, tag, *argv], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def config(tag: str) -> dict[str, Any]:
    done = subprocess.run(["docker", "image", "inspect", tag], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)[0]["Config"]
    return found


def test_it_starts_as_the_spec_says(made: Made) -> None:
    assert inside(made.tag) == 'a "b" $HOME \\ c served\n'
    held = config(made.tag)
    assert held["User"] == "1000:1000" and held["WorkingDir"] == "/workspace"
    assert held["ExposedPorts"] == {"8080": {}} or held["ExposedPorts"] == {"8080/tcp": {}}
    assert held["Healthcheck"] == {"Test": ["CMD", "python", "-c", "import demo"], "Interval": 1_000_000_000}


def test_its_user_has_a_name_and_a_home_and_owns_no_locked_file(made: Made) -> None:
    look = (
        "id -un; id -u; pwd; echo $HOME; touch $HOME/a b; stat -c %U:%a . train.py start.sh src/demo;"
        "for f in /opt/venv/bin/python /opt/venv/lib/python3.11/site-packages/filelock /etc/passwd; do"
        " test -w $f && echo writes $f; done; grep -c . /etc/passwd"
    )
    said = inside(made.tag, "sh", "-c", look).splitlines()
    assert said[:4] == ["app", "1000", "/workspace", "/home/app"]
    assert said[4:8] == ["app:755", "app:644", "app:755", "app:755"]
    assert len(said) == 9 and int(said[8]) > 15


def test_it_is_healthy_by_its_own_word(made: Made) -> None:
    name = f"envkit-test-inside-{uuid.uuid4().hex[:12]}"
    command = ["docker", "run", "--detach", "--rm", "--network=none", "--name", name, made.tag, "sleep", "120"]
    subprocess.run(command, capture_output=True, check=True)

    def health() -> str:
        asked = ["docker", "inspect", "--format", "{{.State.Health.Status}}", name]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()

    try:
        assert comes(lambda: health() == "healthy", 0.2)
    finally:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=True)


def test_files_come_with_the_locks_time_and_credentials_stay_out(made: Made) -> None:
    listed = inside(made.tag, "find", ".", "-type", "f", "-printf", "%P %T@\n").splitlines()
    epoch = locks.parse((made.folder / "envkit.lock").read_text(), "envkit.lock").epoch
    assert {line.split()[1].partition(".")[0] for line in listed} == {str(epoch)}
    assert sorted(line.split()[0] for line in listed) == [
        ".dockerignore", "Dockerfile", "envkit.lock", "envkit.toml", "pyproject.toml", "src/demo/__init__.py",
        "start.sh", "train.py",
    ]  # fmt: skip
    (secret,) = (line for line in made.said.splitlines() if "credentials" in line)
    assert secret.startswith("left out of the image: .env, .git, .netrc, keys/server.txt, prod.env (")
    assert "left out of the image: big.bin (the .dockerignore says so)" in made.said
    places = ("/workspace", "/home", "/opt/venv", "/usr/share/envkit", "/etc", "/root", "/tmp")
    assert inside(made.tag, "sh", "-c", f"grep -rl hunter2 {' '.join(places)} || true", options=("--user=0",)) == ""
    history = subprocess.run(["docker", "history", "--no-trunc", made.tag], capture_output=True, text=True, check=True)
    assert "hunter2" not in history.stdout + json.dumps(config(made.tag))


def test_labels_are_those_of_oci(made: Made) -> None:
    held = config(made.tag)["Labels"]
    found = {name.removeprefix("org.opencontainers.image."): value for name, value in held.items()}
    assert (found["title"], found["version"], found["licenses"]) == ("demo", "1.2", "MIT")
    assert found["revision"] == "0123456789abcdef0123456789abcdef01234567"
    assert found["base.name"] == "debian:12-slim" and found["base.digest"].startswith("sha256:")
    lock = locks.parse((made.folder / "envkit.lock").read_text(), "envkit.lock")
    assert found["created"] == datetime.fromtimestamp(lock.epoch, UTC).isoformat()


@pytest.mark.nightly
def test_two_builds_are_the_same_and_so_is_one_from_what_was_saved(made: Made, engine: DockerEngine) -> None:
    tags = [f"envkit-test/inside-{word}:{uuid.uuid4().hex[:12]}" for word in ("twice", "saved")]
    saved = made.folder.parent / "saved"
    try:
        for path in made.folder.rglob("*"):
            os.utime(path, (2_000_000_000, 2_000_000_000), follow_symlinks=False)
        twice = envkit("build", str(made.folder), "--verify", "--tag", tags[0])
        assert twice.returncode == 0, twice.stderr[-3000:] + twice.stdout
        assert twice.stdout.endswith("both builds are the same\n")
        vendored = envkit("vendor", str(saved), str(made.folder))
        assert vendored.returncode == 0, vendored.stderr[-3000:]
        (made.folder / "later.py").write_text("")
        built = envkit("build", str(made.folder), "--from", str(saved), "--no-cache", "--tag", tags[1])
        assert built.returncode == 0, built.stderr[-3000:]
        assert built.stdout.split()[1] == twice.stdout.split()[1]
        (saved / "project/files/train.py").write_text("another\n")
        refused = envkit("build", str(made.folder), "--from", str(saved))
        assert refused.returncode == 2 and "project/files/train.py" in refused.stderr
    finally:
        (made.folder / "later.py").unlink(missing_ok=True)
        for tag in tags:
            engine.remove(tag)


def test_under_run_the_project_is_the_folder_as_it_is(made: Made) -> None:
    (made.folder / "src/demo/late.py").write_text("print('edited', __file__)\n")
    try:
        words = ["--tag", made.tag, "--gpus", "none", "--no-preflight", "--no-explain"]
        done = envkit("run", str(made.folder), *words, "--", "python", "-c", "import demo.late", cwd=made.folder)
        assert (done.returncode, done.stdout) == (0, "edited /workspace/src/demo/late.py\n"), done.stderr
        script = envkit("run", str(made.folder), *words, "--", "demo", "now", cwd=made.folder)
        assert script.stdout == 'a "b" $HOME \\ c now\n'
    finally:
        (made.folder / "src/demo/late.py").unlink()
    assert inside(made.tag, "python", "train.py") == "/opt/venv/lib/python3.11/site-packages/demo/__init__.py\n"


def derived(engine: DockerEngine, base: str, folder: Path, *lines: str) -> str:
    """An image of these lines on top of ``base``; a RUN among them reaches the index as this machine does."""
    mounts = "--mount=type=secret,id=ca,required=false,mode=0444"
    ca = "if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca PIP_CERT=/run/secrets/ca; fi"
    known = [line.replace("RUN ", f"RUN {mounts} {ca}; ", 1) if line.startswith("RUN ") else line for line in lines]
    (folder / "Dockerfile").write_text("\n".join([f"FROM {base}", *known]) + "\n")
    tag = f"envkit-test/derived:{uuid.uuid4().hex[:12]}"
    found = buildx.ca_bundle(os.environ)
    engine.build(BuildRequest(folder, tag, 600, secrets={"ca": found} if found else {}), lambda line: None)
    return tag


def probed(tag: str, *options: str) -> dict[str, dict[str, Any]]:
    """What `envkit probe` says, check by check."""
    report = json.loads(envkit("probe", tag, "--gpus", "none", "--format", "json", *options).stdout)
    return {row["check"]: row for row in report["results"]}


@pytest.mark.nightly
@pytest.mark.parametrize("flavor", ["runtime", "devel", "debug"])
def test_a_derived_image_installs_in_every_flavor_and_probe_names_the_drift(
    made: Made, engine: DockerEngine, tmp_path: Path, flavor: str
) -> None:
    tags = [f"envkit-test/inside-{flavor}:{uuid.uuid4().hex[:12]}"]
    built = envkit("build", str(made.folder), "--flavor", flavor, "--tag", tags[0])
    assert built.returncode == 0, built.stderr[-3000:]
    try:
        assert config(tags[0])["User"] == ("" if flavor == "debug" else "1000:1000")
        assert probed(tags[0])["image-packages-added"]["outcome"] == "pass"
        install = "RUN uv pip install --no-cache requests && pip install --no-cache-dir --no-deps iniconfig"
        tags.append(derived(engine, tags[0], tmp_path, install))
        assert inside(tags[1], "python", "-c", "import requests, iniconfig; print('ok')") == "ok\n"
        (added,) = probed(tags[1])["image-packages-added"]["findings"]
        assert added["severity"] == "note"
        assert "requests" in added["message"] and "iniconfig" in added["message"] and "demo" not in added["message"]
        changed = "RUN uv pip uninstall typing-extensions && uv pip install --no-cache 'filelock<3.13'"
        if flavor != "debug":  # a locked package is not its user's to change
            with pytest.raises(Undecided, match="Permission denied"):
                derived(engine, tags[0], tmp_path, changed)
        tags.append(derived(engine, tags[0], tmp_path, "USER root", changed, "USER 1000:1000"))
        drifted = {one["where"]: one for one in probed(tags[2])["image-wheels-not-locked"]["findings"]}
        for name, what in (("typing-extensions", "is locked and not installed"), ("filelock", "is installed")):
            assert what in drifted[name]["message"] and drifted[name]["severity"] == "warning"
        shown = envkit("audit", tags[2], "--format", "json")
        seen = {row["check"]: row for row in json.loads(shown.stdout)["results"]}
        assert {one["where"] for one in seen["image-wheels-not-locked"]["findings"]} >= {
            "typing-extensions",
            "filelock",
        }
    finally:
        for tag in tags:
            engine.remove(tag)


def test_its_start_passes_the_checks_of_a_start(made: Made) -> None:
    said = probed(made.tag, "--abilities", "none")
    names = (
        "image-start-fails", "image-user-without-name", "image-workdir-closed", "image-cache-not-writable",
        "image-file-closed", "image-entrypoint-changes-environment", "image-packages-added",
    )  # fmt: skip
    assert {name: said[name]["outcome"] for name in names if said[name]["outcome"] not in ("pass", "skip")} == {}
    assert said["image-start-fails"]["outcome"] == "pass"
