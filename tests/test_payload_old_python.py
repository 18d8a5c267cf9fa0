"""The payload under the oldest Python that it is written for: ENVKIT_OLD_PYTHON names one, else python3.8 of the PATH.

tests/test_contract.py holds the syntax and the names of that Python without having one; here it runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envkit import payload
from envkit.payload.begin import OLDEST
from envkit.runner.pack import pack

NAME = ".".join(map(str, OLDEST))

# Imports each module of a zip; what runs as a program when it is imported is left out.
IMPORTS = """
import importlib, json, sys, zipfile

sys.path.insert(0, sys.argv[1])
members = [name for name in zipfile.ZipFile(sys.argv[1]).namelist() if name.endswith(".py")]
names = [name[: -len(".py")].replace("/", ".") for name in members]
done, failed = [], {}
for name in sorted(name[: -len(".__init__")] if name.endswith(".__init__") else name for name in names):
    if name.split(".")[-1] in ("__main__", "sitecustomize"):
        continue
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = repr(error)
    done.append(name)
print(json.dumps([done, failed]))
"""


def version_of(python: str) -> tuple[int, ...]:
    """The version that a program says of itself; () where it does not start."""
    words = [python, "-I", "-S", "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    except OSError:
        return ()
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()


@pytest.fixture(scope="module")
def old() -> Path:
    """The interpreter; a wrong one that was named is a failure, none at all is a skip."""
    named = os.environ.get("ENVKIT_OLD_PYTHON", "")
    found = shutil.which(named or f"python{NAME}") or ""
    if found and version_of(found) == OLDEST:
        return Path(found)
    if named:
        pytest.fail(f"ENVKIT_OLD_PYTHON is no Python {NAME}: {named}")
    pytest.skip(f"there is no Python {NAME} here")


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "envkit.pyz"
    path.write_bytes(pack())
    return path


def test_every_module_is_imported(old: Path, pyz: Path) -> None:
    words = [str(old), "-I", "-S", "-c", IMPORTS, str(pyz)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    names, failed = json.loads(done.stdout)
    assert failed == {}
    folder = Path(payload.__file__).parent
    left_out = ("__main__.py", "sitecustomize.py")
    assert len(names) == 1 + sum(path.name not in left_out for path in folder.rglob("*.py"))  # and envkit itself


def observed(verb: str, old: Path, *words: str) -> tuple[Any, dict[str, str]]:
    """What a verb saw in that Python, and how each check ended."""
    words = (verb, "--python", str(old), "--format", "json", "--observed", "--gpus", "none", *words)
    done = subprocess.run([sys.executable, "-m", "envkit", *words], capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 3), done.stderr
    report = json.loads(done.stdout)
    return report["observed"], {result["check"]: result["outcome"] for result in report["results"]}


def test_a_probe_of_a_python_without_torch_comes_to_its_end(old: Path) -> None:
    seen, outcomes = observed("probe", old, "--framework", "none")
    assert seen["python"]["value"].startswith(f"{NAME}.")
    assert seen["torch_import"]["value"] == "absent"
    lost = {name for name, value in seen.items() if isinstance(value, dict) and value["missing"]}
    assert lost == {"promise", "torch"}  # nothing else needs an image or torch
    assert "crashed" not in outcomes.values() and "fail" not in outcomes.values()


def test_the_suite_comes_to_its_end(old: Path) -> None:
    seen, outcomes = observed("smoke", old, "--only", "error-crash", "--only", "attention")
    ended = {test["name"]: test["ended"] for test in seen["tests"]["value"]}
    assert ended == {"error-crash": "ran", "attention": "not-applicable"}  # the second needs torch
    assert outcomes["smoke-error-crash"] == "pass"
    assert "crashed" not in outcomes.values()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists(), reason="this machine has a driver")
def test_the_guard_stops_a_job_where_no_driver_is(old: Path) -> None:
    guard = Path(payload.__file__).parent / "guard.py"
    words = [str(old), "-I", "-S", str(guard), "--", "echo", "ran"]
    done = subprocess.run(words, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("envkit guard: ")


def test_a_python_that_is_too_old_is_named_with_its_c_library() -> None:
    newer = "from envkit.payload import begin\nbegin.OLDEST = (99, 0)\nprint(begin.libc(), begin.begin(['probe']))"
    folder = Path(payload.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", newer], cwd=folder, capture_output=True, text=True, timeout=120)
    library, _, fit = done.stdout.strip().rpartition(" ")
    assert fit == "False"
    version = ".".join(map(str, sys.version_info[:3]))
    assert done.stderr == f"this is Python {version} on {library or '?'}, which the payload does not know\n"
