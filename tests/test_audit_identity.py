"""What the files of an image say of who is who: hidden modules, gaps, modes, preloads, the entry point."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from elves import SITE, elf_file, wheel
from test_audit import LIB, PATH, TORCH, audited

from envkit import facts
from envkit.judging import judge
from envkit.model import Outcome, Severity
from envkit.subjects import Audit

STD = "/usr/lib/python3.11"
STANDARD = {f"{STD}/{name}.py": b"# std" for name in ("random", "json", "calendar", "typing", "os")}
IMPORTS = {f"{SITE}/torch/__init__.py": b"import random\nimport json\n"}
IMPORTING = b"import random\nimport typing_extensions\n"
SCRIPT = {"Cmd": ["python3", "train.py"], "WorkingDir": "/app"}
OWN = ("image-module", "image-torch-h", "image-python-d", "image-code", "image-torch-dep", "image-file-c", "image-prel")


def told(audit: Audit) -> dict[str, tuple[Severity, str]]:
    """The first finding of each check of this theme; one that crashed is an error of the test."""
    found = {}
    for name, check in judge.checks().items():
        if Audit in check.subjects and name.startswith((*OWN, "audit-entry", "audit-preload", "audit-cxx")):
            result = judge.run(check, audit, facts.load())
            assert result.outcome is not Outcome.CRASHED, result
            if result.findings:
                found[name] = (result.findings[0].severity, result.findings[0].message)
    return found


def config(**more: Any) -> dict[str, Any]:
    return {**PATH, **more}


def at(tmp_path: Path, files: Mapping[str, bytes | str], **more: Any) -> dict[str, tuple[Severity, str]]:
    modes = {"/usr/bin/python3.11": 0o755, **more.pop("modes", {})}
    return told(audited(tmp_path, {**STANDARD, **IMPORTS}, files, config=config(**more), modes=modes))


HIDDEN: list[tuple[str, dict[str, bytes | str], dict[str, Any], str, Severity, str]] = [
    ("random", {"/app/random.py": b""}, SCRIPT, "image-module-hidden", Severity.ERROR, "/app/random.py"),
    ("calendar", {"/app/calendar.py": b""}, SCRIPT, "image-module-hidden", Severity.WARNING, "/app/calendar.py"),
    ("torch.py", {"/app/torch.py": b""}, SCRIPT, "image-torch-hidden", Severity.ERROR, "/app/torch.py"),
    (
        "beside the script",
        {"/app/src/json.py": b""},
        {"Cmd": ["python3", "-u", "src/train.py"], "WorkingDir": "/app"},
        "image-module-hidden",
        Severity.ERROR,
        "/app/src/json.py",
    ),
    (
        "PYTHONPATH",
        {"/opt/old/torch/__init__.py": b"", "/opt/old/torch-2.4.0.dist-info/METADATA": b"Name: torch\nVersion: 2.4.0"},
        {"Env": [*PATH["Env"], "PYTHONPATH=/opt/old"]},
        "image-torch-hidden",
        Severity.WARNING,
        "/opt/old/torch (2.4.0)",
    ),
    (
        "the user's own site",
        {
            "/root/.local/lib/python3.11/site-packages/torch/__init__.py": b"",
            "/usr/lib/python3/dist-packages/torch/__init__.py": b"",
        },
        {"Env": ["PATH=/usr/bin"]},
        "image-torch-hidden",
        Severity.WARNING,
        "/root/.local/lib/python3.11/site-packages/torch and not /usr/lib/python3/dist-packages/torch",
    ),
    (
        "what torch imports",
        {
            "/app/typing_extensions.py": b"",
            f"{SITE}/typing_extensions.py": b"x",
            f"{SITE}/torch/__init__.py": IMPORTING,
        },
        SCRIPT,
        "image-module-hidden",
        Severity.ERROR,
        "/app/typing_extensions.py",
    ),
]


@pytest.mark.parametrize(("files", "given", "check", "severity", "text"), [one[1:] for one in HIDDEN])
def test_a_hidden_module_is_named_with_both_paths(
    tmp_path: Path,
    files: dict[str, bytes | str],
    given: dict[str, Any],
    check: str,
    severity: Severity,
    text: str,
) -> None:
    (name, (found, message)) = next(iter(at(tmp_path, files, **given).items()))
    assert (name, found) == (check, severity)
    assert text in message
    assert any(place in message for place in (STD, f"{SITE}/t", "dist-packages"))


@pytest.mark.parametrize(
    ("files", "given"),
    [
        ({"/app/utils.py": b"", "/app/train.py": b"", "/app/tests/__init__.py": b""}, SCRIPT),
        ({"/app/os.py": b""}, SCRIPT),
        ({"/app/torch/model.py": b""}, SCRIPT),  # a folder without __init__
        ({"/other/random.py": b""}, SCRIPT),
        ({"/app/random.py": b""}, {"Cmd": ["python3", "/srv/train.py"], "WorkingDir": "/app"}),
        ({"/venv2/lib/python3.11/site-packages/torch/__init__.py": b"", "/venv2/pyvenv.cfg": b"home = /usr/bin\n"}, {}),
        ({f"{SITE}/__editable___mine_finder.py": b"", f"{SITE}/__editable__.mine.pth": b"import x\n"}, {}),
        ({f"{SITE}/_virtualenv.pth": b"import _virtualenv"}, {}),
    ],
)
def test_what_hides_nothing(tmp_path: Path, files: dict[str, bytes | str], given: dict[str, Any]) -> None:
    assert at(tmp_path, files, **given) == {}


def test_a_pth_with_code_that_no_package_brought_is_named(tmp_path: Path) -> None:
    found = at(tmp_path, {f"{SITE}/start.pth": b"import os; os.environ.pop('X', None)\n"})
    assert found["image-code-at-start"][0] is Severity.NOTE
    assert f"{SITE}/start.pth" in found["image-code-at-start"][1]


def test_a_first_python_that_is_gone_is_named(tmp_path: Path) -> None:
    given = {"Env": ["PATH=/opt/new/bin:/opt/venv/bin:/usr/bin"]}
    found = at(tmp_path, {"/opt/new/bin/python3": "/root/uv/python3.12"}, **given)
    severity, message = found["image-python-dangling"]
    assert severity is Severity.ERROR
    assert message.startswith("/opt/new/bin/python3 leads to /root/uv/python3.12, where nothing is")


def asking(*requires: str) -> dict[str, bytes]:
    return wheel("torch", "2.6.0", TORCH, requires)


SYMPY = wheel("sympy", "1.13.1", {"sympy/__init__.py": b""}, ["mpmath<1.4"])


def test_what_torch_requires_is_there(tmp_path: Path) -> None:
    asked = asking("sympy==1.13.1", 'numpy ; extra == "x"', 'setuptools ; python_version >= "3.12"')
    mpmath = wheel("mpmath", "1.3.0", {"mpmath/__init__.py": b""})
    assert at(tmp_path, {**asked, **SYMPY, **mpmath}) == {}
    severity, message = at(tmp_path, {**asked, **SYMPY})["image-torch-dependency-missing"]
    assert (severity, message.partition(" and ")[0]) == (Severity.ERROR, "sympy 1.13.1 requires mpmath<1.4")
    (_, message) = at(tmp_path, asked)["image-torch-dependency-missing"]
    assert "sympy==1.13.1 and it is not installed; torch.compile does not work without it" in message
    gone = {path: data for path, data in SYMPY.items() if not path.endswith("__init__.py")}
    (_, message) = at(tmp_path, {**asked, **gone, **mpmath})["image-torch-dependency-missing"]
    assert "sympy 1.13.1 is installed without its files" in message


SO = f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"


@pytest.mark.parametrize(
    ("user", "modes", "place"),
    [
        ("1000", {SO: 0o600}, f"1000 may not read {SO}: mode 0600, uid 0"),
        ("1000:100", {f"{SITE}/torch": 0o700}, f"may not enter {SITE}/torch: mode 0700, uid 0"),
        ("1000:1000", {"/opt/venv": 0o750}, "may not enter /opt/venv: mode 0750"),
        ("1000", {"/opt/venv": 0o750}, ""),  # a user without a name is of root's group
        ("0", {SO: 0o600}, ""),
        ("1000", {SO: 0o644}, ""),
    ],
)
def test_modes_are_held_against_the_user(tmp_path: Path, user: str, modes: dict[str, int], place: str) -> None:
    data = elf_file(soname="libcudart.so.12", needed=["libc.so.6"])
    files = {SO: data} if SO in modes else {f"{path}/": b"" for path in modes}
    found = at(tmp_path, files, User=user, modes=modes)
    assert place in found.get("image-file-closed", (0, ""))[1]
    assert ("image-file-closed" in found) == bool(place)


OTHER = elf_file(soname="libx.so")


@pytest.mark.parametrize(
    ("files", "given", "check", "text"),
    [
        (
            {"/etc/ld.so.preload": b"/opt/libx.so\n"},
            {},
            "image-preload-ignored",
            "names /opt/libx.so, which is ignored",
        ),
        (
            {"/opt/x.sh": b"#!/bin/sh\n"},
            {"Env": [*PATH["Env"], "LD_PRELOAD=/opt/x.sh"]},
            "image-preload-ignored",
            "it is no shared library",
        ),
        (
            {"/etc/ld.so.preload": b"/opt/libcudart.so.11.0 # old\n", "/opt/libcudart.so.11.0": OTHER},
            {},
            "audit-preload-of-other-cuda",
            "of CUDA 11, and torch is built for CUDA 12.4",
        ),
        ({"/etc/ld.so.preload": b"/opt/libx.so\n", "/opt/libx.so": OTHER}, {}, "", ""),
        ({"/etc/ld.so.preload": f"{SO}\n".encode()}, {}, "", ""),
        ({}, {"Env": [*PATH["Env"], "LD_PRELOAD=libjemalloc.so.2"]}, "", ""),
    ],
)
def test_preloads(tmp_path: Path, files: dict[str, bytes | str], given: dict[str, Any], check: str, text: str) -> None:
    found = at(tmp_path, files, **given)
    assert list(found) == ([check] if check else [])
    assert text in "".join(message for _, message in found.values())


SHELLS: dict[str, bytes | str] = {"/bin/sh": elf_file(), "/usr/bin/env": elf_file(), "/usr/bin/tini": elf_file()}
RUNS = dict.fromkeys(SHELLS, 0o755)


@pytest.mark.parametrize(
    ("words", "script", "mode", "why"),
    [
        (["/entry.sh"], None, 0o755, "it is not in the image"),
        (["/entry.sh"], b"#!/bin/sh\nexec\n", 0o644, "root may not execute it (mode 0644)"),
        (["/entry.sh"], b"#!/bin/sh\r\nexec\r\n", 0o755, "a carriage return"),
        (["/entry.sh"], b"#!/bin/bash\nexec\n", 0o755, "its interpreter /bin/bash is not in the image"),
        (["/entry.sh"], b"#!/usr/bin/env bash\nexec\n", 0o755, "its interpreter bash is not in the image"),
        (["/entry.sh"], b"exec\n", 0o755, "exec format error"),
        (["tini", "--", "/entry.sh"], b"#!/bin/sh\n", 0o644, "may not execute it"),
        (["entry.sh"], b"#!/bin/sh\n", 0o755, "it is not in the image"),  # PATH does not name /
        (["/bin/sh", "/entry.sh"], b"a\r\nb\r\n", 0o644, "a carriage return"),
        (["/entry.sh"], b"#!/bin/sh\nexec\n", 0o755, ""),
        (["/bin/sh", "/entry.sh"], b"exec\n", 0o644, ""),
        (["tini", "--", "/entry.sh"], b"#!/usr/bin/env sh\n", 0o755, ""),
        (["/bin/sh", "-c", "exec /nowhere"], None, 0o755, ""),
        (["./entry.sh"], b"#!/bin/sh\n", 0o755, ""),
    ],
)
def test_the_entry_point_can_start(tmp_path: Path, words: list[str], script: bytes | None, mode: int, why: str) -> None:
    files = {**SHELLS, **({} if script is None else {"/entry.sh": script})}
    path = {"Env": ["PATH=/opt/venv/bin:/usr/bin:/bin"]}
    found = at(tmp_path, files, modes={**RUNS, "/entry.sh": mode}, Entrypoint=words, Cmd=["python", "x.py"], **path)
    assert list(found) == (["audit-entrypoint-cannot-start"] if why else [])
    assert why in "".join(message for _, message in found.values())


@pytest.mark.parametrize(("minor", "bad"), [(26, True), (33, False)])
def test_an_older_cxx_runtime_on_the_library_path_is_named(tmp_path: Path, minor: int, bad: bool) -> None:
    def cxx(newest: int) -> bytes:
        return elf_file(soname="libstdc++.so.6", versions=["libstdc++.so.6", "GLIBCXX_3.4", f"GLIBCXX_3.4.{newest}"])

    files = {"/opt/conda/lib/libstdc++.so.6": cxx(minor), f"{LIB}/libstdc++.so.6": cxx(30)}
    found = at(tmp_path, files, Env=[*PATH["Env"], "LD_LIBRARY_PATH=/opt/conda/lib"])
    assert list(found) == (["audit-cxx-runtime-older"] if bad else [])
