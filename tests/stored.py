"""One small document of each format that envkit promises to read or to print, kept for good, and what it makes of them.

    python tests/stored.py

writes the documents that are missing in tests/data/v1 as this version writes them, and a row in its index.json for each
file that has none: its sha256, and how it was judged.  It never changes a document or a row that is there: whoever
breaks a format has to delete them by hand.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import forked
import jsonschema

from envkit.image import aoti
from envkit.subjects import codec, saved
from envkit.subjects.aoti import AotiRun

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests/data/v1"
INDEX = FOLDER / "index.json"
RENAMED = FOLDER / "renamed.json"
HOST = "tests/data/gpu/h100-host.json"
# Recordings that are kept elsewhere for other tests.
RECORDINGS = (
    "tests/data/gpu/h100-torch-2.11-cu130-probe.json",
    "tests/data/gpu/h100-torch-2.11-cu130-smoke-quick.json",
    HOST,
)
OUTPUTS = ("report", "explain", "debug")
DATA = ROOT / "tests/data"
IMAGE = "torch-2.6-cu124-pytorch"  # the smallest lock
SITE = "opt/venv/lib/python3.11/site-packages"
# An image's files: a torch whose wheel lists nothing, and a driver that does not belong there.
TREE: Mapping[str, str] = {
    "etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
    "opt/venv/pyvenv.cfg": "home = /usr/bin\nversion = 3.11.2\n",
    f"{SITE}/torch/__init__.py": "",
    f"{SITE}/torch/version.py": "__version__ = '2.6.0+cu124'\ncuda = '12.4'\n",
    f"{SITE}/torch-2.6.0+cu124.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0+cu124\n",
    f"{SITE}/torch-2.6.0+cu124.dist-info/RECORD": "torch/__init__.py,,\ntorch/version.py,,\n",
    "usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14": "",
}
LOG = """Epoch 0 step 100
Traceback (most recent call last):
  File "/app/train.py", line 12, in <module>
    loss = model(batch.cuda())
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of \
which 1.20 GiB is free. Process 4242 has 77.80 GiB memory in use.
"""
CONTRACT = """require = ["gpu"]

[gpus]
count = 8
name = "NVIDIA H100*"
memory_gib = 79
mig = "off"
ecc = "on"
persistence = "on"

[driver]
version = ">=550.54.15,<581"
cuda = ">=12.4"

[nvlink]
links = 18

[infiniband]
ports = 8
rate_gbps = 400

[machine]
kernel = "6.8.*"
os = "Ubuntu 24.04*"
services = ["nvidia-fabricmanager", "slurmd"]
"""
SETTINGS = """[check]
fail-on = "warning"
gpus = ["H100"]
driver = "550"
exclude = ["third_party"]

[check.base."registry.example/team/base:7"]
cuda = "12.4"
cudnn = "9"
flavor = "devel"
os = "ubuntu22.04"
python = "3.11"
torch = "2.6.0"
torch-cuda = "12.4"
"""
DOCKERFILE = "FROM registry.example/team/base:7\nRUN pip install torch\nRUN pip install torchvision==0.15.2\n"


def schema_of(kind: str) -> Path:
    """The schema that comes with envkit for what a verb prints."""
    (path,) = (ROOT / "envkit").rglob(f"{kind}-1.schema.json")
    return path


def files() -> dict[str, str]:
    """Every file that is kept, from the repository's root, and its kind."""
    found = dict.fromkeys(RECORDINGS, "subject")
    for path in sorted(each for each in FOLDER.rglob("*") if each.is_file()):
        if path in (INDEX, RENAMED):
            continue
        name, kind = str(path.relative_to(ROOT)), path.stem
        if path.suffix == ".json" and kind in OUTPUTS:
            found[name] = kind
        elif path.name in ("contract.toml", "envkit.toml", "envkit.lock", "baseline.json", "Dockerfile"):
            found[name] = path.name
        else:
            found[name] = "subject"
    return found


def digest(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def words_for(name: str, kind: str) -> tuple[str, ...]:
    """The command that reads a document and says its verdict as JSON; () where none does."""
    folder = str(Path(name).parent)
    if kind == "subject":
        return ("judge", name)
    if kind == "contract.toml":
        return ("doctor", "--from", HOST, "--expect", name)
    if kind == "envkit.lock":
        return ("check", name)
    if kind == "baseline.json":
        return ("check", f"{folder}/Dockerfile", "--baseline", name, "--config", f"{folder}/envkit.toml")
    return ()


def judged(name: str, kind: str) -> dict[str, Any]:
    """What envkit makes of a document: exit code, verdict, and the checks by how they ended.

    What a verb printed is held to its schema instead.  A spec is held to the lock beside it, which `lock --check` does.
    """
    if kind in OUTPUTS:
        document = json.loads((ROOT / name).read_text("utf-8"))
        jsonschema.validate(document, json.loads(schema_of(kind).read_text("utf-8")))
        return {"schema": document["schema"]}
    if kind == "envkit.toml" and (ROOT / name).with_name("envkit.lock").exists():
        return {"exit": forked.envkit("lock", "--check", name, cwd=ROOT).returncode}
    words = words_for(name, kind)
    if not words:
        return {}  # it is read with another file
    done = forked.envkit(*words, "--format", "json", cwd=ROOT, timeout=600)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    ended: dict[str, list[str]] = {}
    for result in report["results"]:
        if result["outcome"] != "skip":  # of a check that had nothing to judge nothing is promised
            ended.setdefault(result["outcome"], []).append(result["check"])
    return {"exit": done.returncode, "verdict": report["verdict"], **{key: sorted(ended[key]) for key in sorted(ended)}}


def row(name: str, kind: str) -> dict[str, Any]:
    """The row of a file in the index."""
    return {"kind": kind, "sha256": digest(ROOT / name), **judged(name, kind)}


def index() -> dict[str, dict[str, Any]]:
    """The rows by file."""
    rows: dict[str, dict[str, Any]] = json.loads(INDEX.read_text("utf-8"))
    return rows


def today(check: str) -> str:
    """The id that a check of a stored row has now: renamed.json maps old ids to new ones."""
    renamed: dict[str, str] = json.loads(RENAMED.read_text("utf-8"))
    return renamed.get(check, check)


def envkit(*words: str, cwd: Path = ROOT) -> str:
    """What a verb prints; an end by a signal or by wrong usage is an error here."""
    done = forked.envkit(*words, cwd=cwd, timeout=600)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"envkit {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def subjects() -> dict[str, str]:
    """Saved observations, of recordings that are here."""
    models = json.loads((DATA / "gpu/h100-torch-2.11-cu130-placement.json").read_text())["subjects"]
    found = {
        "placement-clean.json": saved.text("placement", models["run-clean"]),
        "placement-mixed.json": saved.text("placement", models["run-frozen_mixed"]),
        "image-without-torch.json": saved.text("image", json.loads((DATA / "image/no-torch.json").read_text())),
    }
    for name in ("cpu", "cuda"):
        document = json.loads((DATA / f"aoti/h100.cuda-usr-{name}.json").read_text())
        run = aoti.read(document, AotiRun("team/stack:1", gpus_given=("all",)), "model.pt2")
        found[f"aoti-{name}-input.json"] = saved.text("aoti", codec.to_plain(run))
    return found


def observed(scratch: Path) -> dict[str, str]:
    """What verbs write when they are run now, here; no path of this machine stays."""
    for name, text in TREE.items():
        path = scratch / "rootfs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    envkit("audit", "rootfs", "--save", "audit.json", cwd=scratch)
    (scratch / "train.log").write_text(LOG)
    (scratch / "train.py").write_text("import os\n\nos.abort()\n")
    envkit("debug", "--out", "debugged", "--", "/usr/bin/python3", "train.py", cwd=scratch)
    debugged = (scratch / "debugged/report.json").read_text()
    return {
        "audit.json": (scratch / "audit.json").read_text(),
        "explain.json": envkit("explain", "train.log", "--format", "json", cwd=scratch),
        "debug.json": debugged.replace(str(scratch.resolve()), "/home/user/job"),
    }


def write() -> None:
    """Writes what is missing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        texts = {**subjects(), **observed(Path(scratch)), "contract.toml": CONTRACT}
    texts |= {"checked/Dockerfile": DOCKERFILE, "checked/envkit.toml": SETTINGS}
    for name, text in texts.items():
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_text(text)
    report, baseline = FOLDER / "report.json", FOLDER / "checked/baseline.json"
    if not report.exists():
        report.write_text(envkit("judge", str(FOLDER / "placement-mixed.json"), "--format", "json"))
    if not baseline.exists():
        words = ("--config", str(baseline.with_name("envkit.toml")), "--write-baseline", str(baseline))
        envkit("check", str(baseline.with_name("Dockerfile")), *words)
    (FOLDER / IMAGE).mkdir(exist_ok=True)
    for name in ("envkit.toml", "envkit.lock"):
        if not (FOLDER / IMAGE / name).exists():
            shutil.copy(ROOT / "images" / IMAGE / name, FOLDER / IMAGE / name)
    if not RENAMED.exists():
        RENAMED.write_text("{}\n")
    rows = index() if INDEX.exists() else {}
    rows |= {name: row(name, kind) for name, kind in files().items() if name not in rows}
    for kind in OUTPUTS:
        path = schema_of(kind)
        rows.setdefault(path.name, {"kind": "schema", "sha256": digest(path)})
    INDEX.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write()
