"""What uv's commands install."""

from __future__ import annotations

from collections.abc import Mapping

import answers
import pytest
from clocks import costs_less
from dockerfile_commands import DEFAULT_INDEX, NOTHING, Folder, command, installs, unread

from envkit.dockerfile import uv
from envkit.subjects.dockerfile import Install, Removal, Unread

CU124 = "https://download.pytorch.org/whl/cu124"


def read(
    text: str, files: Folder = NOTHING, env: Mapping[str, str] | None = None, cwd: str = "/app"
) -> list[Install | Removal | Unread]:
    read = list(uv.read(command(text, env, cwd), files))
    return answers.same("installs", ("uv", text, files, env, cwd), read)


@pytest.mark.parametrize(
    ("text", "env", "target"),
    [
        ("uv pip install --system torch", {}, "uv:--system"),
        ("uv pip install torch", {"UV_SYSTEM_PYTHON": "1"}, "uv:--system"),
        ("uv pip install torch", {}, "uv:VENV"),
        ("uv pip install torch", {"VIRTUAL_ENV": "/opt/venv"}, "uv:/opt/venv"),
        ("uv pip install --python /opt/venv/bin/python torch", {}, "uv:/opt/venv/bin/python"),
        ("uv pip install -p 3.11 torch", {"UV_SYSTEM_PYTHON": "true"}, "uv:3.11"),
        ("uv pip install torch", {"UV_PYTHON": "/opt/conda/bin/python"}, "uv:/opt/conda/bin/python"),
        ("uv --no-cache pip install --system torch", {}, "uv:--system"),
        ("python3 -m uv pip install --system torch", {}, "uv:--system"),
        ("/root/.local/bin/uv pip install --system torch", {}, "uv:--system"),
    ],
)
def test_where_uv_pip_installs(text: str, env: dict[str, str], target: str) -> None:
    found = installs(read(text, NOTHING, env))["torch"]
    assert (found.manager, found.target) == ("uv", target)


@pytest.mark.parametrize(
    "text",
    ["uv", "uv --version", "uv lock", "uv pip compile r.in", "uv pip list", "uv pip install --dry-run torch", "uv init",
     "uv export -o r.txt", "uv cache clean", "uvicorn app:app", "uv build", "uv tool list", "uv python list"],
)  # fmt: skip
def test_what_installs_nothing(text: str) -> None:
    assert read(text) == []


def test_indexes_of_options_and_variables() -> None:
    env = {
        "UV_EXTRA_INDEX_URL": "https://two",
        "UV_INDEX": "torch=https://three https://four",
        "UV_INDEX_URL": "https://never",
    }
    found = installs(
        read(f"uv pip install torch --default-index https://one/simple --index pt={CU124} --no-cache", NOTHING, env)
    )["torch"]
    assert found.index == "https://one/simple"
    assert found.extra_indexes == (CU124, "https://three", "https://four", "https://two")
    assert "--no-cache-dir" in found.options
    assert installs(read("uv pip install torch", NOTHING, {"UV_DEFAULT_INDEX": CU124}))["torch"].index == CU124
    assert installs(read(f"uv pip install torch -i {CU124}"))["torch"].index == CU124
    strategy = installs(read("uv pip install torch --index-strategy unsafe-best-match"))["torch"].options
    assert "--index-strategy=unsafe-best-match" in strategy


def test_torch_backend_ties_torch_to_its_index() -> None:
    found = installs(read("uv pip install --system --torch-backend=cu128 torch torchvision numpy"))
    assert found["torch"].index == found["torchvision"].index == "https://download.pytorch.org/whl/cu128"
    assert found["numpy"].index == ""
    auto = installs(read("uv pip install torch", NOTHING, {"UV_TORCH_BACKEND": "auto"}))["torch"]
    assert auto.index == "" and "--torch-backend=auto" in auto.options


PYPROJECT = """
[project]
name = "demo"
requires-python = ">=3.11,<3.12"
dependencies = [
  "torch==2.6.0",
  "numpy",
]
[project.optional-dependencies]
flash = ["flash-attn==2.7.4"]
[dependency-groups]
dev = ["pytest"]
docs = [{include-group = "dev"}, "sphinx"]
[tool.uv.sources]
torch = [
  { index = "pt-cpu", marker = "sys_platform == 'darwin'" },
  { index = "pt", marker = "sys_platform == 'linux'" },
]
flash-attn = { url = "https://host/flash_attn-2.7.4+cu12torch2.6-cp311-cp311-linux_x86_64.whl" }
[[tool.uv.index]]
name = "pt"
url = "https://download.pytorch.org/whl/cu124"
explicit = true
[[tool.uv.index]]
name = "pt-cpu"
url = "https://download.pytorch.org/whl/cpu"
explicit = true
[[tool.uv.index]]
url = "https://mirror/simple"
default = true
[build-system]
requires = ["hatchling"]
"""


def test_a_project_without_a_lock() -> None:
    files = Folder({"/app/pyproject.toml": PYPROJECT})
    found = read("uv sync --extra flash --group docs --no-dev", files)
    named = installs(found)
    assert set(named) == {"python", "torch", "numpy", "flash-attn", "sphinx", "pytest", "demo"}
    assert (named["torch"].version, named["torch"].index, named["torch"].locked) == ("2.6.0", CU124, False)
    assert named["torch"].span.line == 6 and named["torch"].target == "uv:/app/.venv"
    assert (named["flash-attn"].version, named["flash-attn"].local) == ("2.7.4", "cu12torch2.6")
    assert named["numpy"].index == "https://mirror/simple"
    assert named["python"].version == "3.11"
    assert unread(found) == [("uv.lock", "there is no such file in the build context")]


@pytest.mark.parametrize(
    "text", ["uv pip install --system -r pyproject.toml --extra flash", "uv pip install '.[flash]'"]
)
def test_uv_pip_honours_a_project_s_sources(text: str) -> None:
    found = installs(read(text, Folder({"/app/pyproject.toml": PYPROJECT})))
    assert found["torch"].index == CU124 and found["flash-attn"].local == "cu12torch2.6"
    assert "pytest" not in found


def test_groups_of_uv_sync() -> None:
    files = Folder({"/app/pyproject.toml": PYPROJECT})
    assert "pytest" in installs(read("uv sync", files))
    assert set(installs(read("uv sync --only-dev", files))) == {"python", "pytest"}
    assert "sphinx" in installs(read("uv sync --all-groups --all-extras --no-install-project", files))
    assert "demo" not in installs(read("uv sync --no-install-project", files))


LOCK = """version = 1
requires-python = ">=3.10"

[[package]]
name = "demo"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "numpy", version = "1.26.4", source = { registry = PYPI }, marker = "python_full_version < '3.12'" },
    { name = "numpy", version = "2.1.0", source = { registry = PYPI }, marker = "python_full_version >= '3.12'" },
    { name = "torch", version = "2.6.0", source = { registry = CPU }, marker = "sys_platform == 'darwin'" },
    { name = "torch", version = "2.6.0+cu124", source = { registry = CU124 }, marker = GPU },
    { name = "torch", version = "2.6.0+cpu", source = { registry = CPU }, marker = "extra == 'extra-4-demo-cpu'" },
    { name = "detectron2" },
]

[package.optional-dependencies]
flash = [
    { name = "flash-attn" },
]

[package.dev-dependencies]
dev = [
    { name = "pytest" },
]

[[package]]
name = "numpy"
version = "1.26.4"
source = { registry = PYPI }

[[package]]
name = "numpy"
version = "2.1.0"
source = { registry = PYPI }

[[package]]
name = "torch"
version = "2.6.0"
source = { registry = CPU }

[[package]]
name = "torch"
version = "2.6.0+cpu"
source = { registry = CPU }

[[package]]
name = "torch"
version = "2.6.0+cu124"
source = { registry = CU124 }
dependencies = [
    { name = "nvidia-cudnn-cu12", marker = "platform_machine == 'x86_64'" },
    { name = "torch-old" },
]
wheels = [
    { url = "WHEELS/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl", hash = "sha256:00" },
]

[[package]]
name = "torch-old"
version = "1.0"
source = { registry = CU124 }
wheels = [
    { url = "WHEELS/torch_old-1.0%2Bcu124-cp311-cp311-linux_x86_64.whl", hash = "sha256:00" },
    { url = "WHEELS/torch_old-1.0-cp311-cp311-macosx_11_0_arm64.whl", hash = "sha256:00" },
]

[[package]]
name = "nvidia-cudnn-cu12"
version = "9.1.0.70"
source = { registry = PYPI }

[[package]]
name = "flash-attn"
version = "2.7.4"
source = { url = FLASH }

[[package]]
name = "detectron2"
version = "0.6"
source = { git = "https://github.com/facebookresearch/detectron2.git#abc" }

[[package]]
name = "pytest"
version = "8.3.0"
source = { registry = PYPI }

[[package]]
name = "unreached"
version = "1"
source = { registry = PYPI }
"""
for _short, _whole in (
    ("PYPI", f'"{DEFAULT_INDEX}"'),
    ("CPU", '"https://download.pytorch.org/whl/cpu"'),
    ("CU124", f'"{CU124}"'),
    ("WHEELS", CU124),
    ("FLASH", '"https://host/flash_attn-2.7.4+cu12torch2.6-cp311-cp311-linux_x86_64.whl"'),
    ("GPU", "\"(sys_platform == 'linux' and extra == 'extra-4-demo-gpu') or extra != 'extra-4-demo-cpu'\""),
):
    LOCK = LOCK.replace(_short, _whole)


def test_of_extras_that_exclude_one_another_no_torch_is_sure() -> None:
    both = LOCK.replace("extra == 'extra-4-demo-cpu'", "sys_platform == 'linux'")
    asked = read("uv sync --frozen", Folder({"/app/uv.lock": both}))
    found = [one for one in asked if isinstance(one, Install) and one.name == "torch"]
    assert {(one.local, one.sure) for one in found} == {("cu124", False), ("cpu", False)}
    single = installs(read("uv sync --frozen --no-dev", Folder({"/app/uv.lock": LOCK})))["torch"]
    assert single.sure


def test_a_lock_is_followed_along_the_markers_that_hold() -> None:
    found = read("uv sync --frozen --no-dev", Folder({"/app/uv.lock": LOCK}))
    named = installs(found)
    assert set(named) == {"torch", "nvidia-cudnn-cu12", "torch-old", "numpy", "detectron2"}
    torch = named["torch"]
    assert (torch.version, torch.local, torch.index, torch.locked) == ("2.6.0", "cu124", CU124, True)
    assert (torch.specifier, torch.marker, torch.span.path) == ("==2.6.0+cu124", "", "app/uv.lock")
    assert LOCK.splitlines()[torch.span.line - 1] == 'name = "torch"' and torch.span.line > 40
    assert LOCK.splitlines()[torch.span.line] == 'version = "2.6.0+cu124"'
    assert named["torch-old"].local == "cu124"
    assert named["nvidia-cudnn-cu12"].version == "9.1.0.70"
    assert named["detectron2"].url == "git+https://github.com/facebookresearch/detectron2.git#abc"
    both = {one.version: one.marker for one in found if isinstance(one, Install) and one.name == "numpy"}
    assert both == {"1.26.4": "python_full_version < '3.12'", "2.1.0": "python_full_version >= '3.12'"}
    assert unread(found) == [("pyproject.toml", "there is no such file in the build context")]


def test_what_chooses_among_locked_packages() -> None:
    files = Folder({"/app/uv.lock": LOCK, "/app/.python-version": "# ours\n3.12\n"})
    named = installs(read("uv sync --locked --extra cpu --extra flash", files))
    assert (named["torch"].local, named["numpy"].version, named["python"].version) == ("cpu", "2.1.0", "3.12")
    assert named["flash-attn"].local == "cu12torch2.6" and named["pytest"].locked
    assert installs(read("uv sync --python 3.10", files))["numpy"].version == "1.26.4"
    assert "torch" not in installs(read("uv sync --no-install-package torch", files))
    assert set(installs(read("uv sync --only-group dev", files))) == {"python", "pytest"}


def test_without_a_context_both_files_are_unread() -> None:
    assert unread(read("uv sync --frozen")) == [
        ("uv.lock", "no build context was given"),
        ("pyproject.toml", "no build context was given"),
    ]


@pytest.mark.parametrize(
    ("env", "text", "target"),
    [
        ({}, "uv sync", "uv:/app/.venv"),
        ({"UV_PROJECT_ENVIRONMENT": "/usr/local"}, "uv sync", "uv:/usr/local"),
        ({"VIRTUAL_ENV": "/opt/venv"}, "uv sync", "uv:/app/.venv"),
        ({"VIRTUAL_ENV": "/opt/venv"}, "uv sync --active", "uv:/opt/venv"),
        ({}, "uv sync --directory sub", "uv:/app/sub/.venv"),
        ({}, "uv --project sub sync", "uv:/app/sub/.venv"),
    ],
)
def test_where_uv_sync_installs(env: dict[str, str], text: str, target: str) -> None:
    files = Folder({"/app/uv.lock": LOCK, "/app/sub/uv.lock": LOCK})
    assert installs(read(text, files, env))["torch"].target == target


def test_uv_run_synchronises_and_starts_the_rest() -> None:
    files = Folder({"/app/uv.lock": LOCK})
    assert installs(read("uv run python train.py --extra x", files))["torch"].local == "cu124"
    assert installs(read("uv run --no-sync python train.py", files)) == {}
    inner = installs(read("uv run --no-sync pip install xformers", files))["xformers"]
    assert (inner.manager, inner.target) == ("pip", "uv:/app/.venv")
    (beside,) = read("uv run --no-sync --with torch==2.1.0 python x.py")
    assert isinstance(beside, Unread) and beside.system  # an environment of its own, for this command alone
    assert installs(read("uv run --no-sync uv pip install timm"))["timm"].manager == "uv"
    assert read("uv run --no-sync " + "uv run --no-sync " * 3000 + "x") == []


@pytest.mark.parametrize(
    ("text", "version", "target"),
    [
        ("uv venv --python 3.12 /opt/venv", "3.12", "uv:/opt/venv"),
        ("uv venv -p python3.10", "3.10", "uv:/app/.venv"),
        ("uv venv env --python=/usr/bin/python3.11 --seed", "3.11", "uv:/app/env"),
        ("uv venv", "", "uv:/app/.venv"),
        ("uv python install 3.11.9", "3.11.9", "uv:python"),
        ("uv python install cpython-3.13.1-linux-x86_64-gnu", "3.13.1", "uv:python"),
    ],
)
def test_pythons(text: str, version: str, target: str) -> None:
    found = installs(read(text))["python"]
    assert (found.version, found.target) == (version, target)


def test_pythons_that_a_file_names() -> None:
    files = Folder({"/app/.python-version": "3.12.4\n"})
    assert installs(read("uv python install", files))["python"].version == "3.12.4"
    assert installs(read("uv venv", files))["python"].version == "3.12.4"
    assert read("uv python install") == []


def test_uninstall_and_sync_of_uv_pip() -> None:
    removed = read("uv pip uninstall --system torch")
    assert [(one.name, one.target) for one in removed if isinstance(one, Removal)] == [("torch", "uv:--system")]
    files = Folder({"/app/r.txt": "torch==2.4.1\n", "/app/c.txt": "numpy==1.26\n"})
    found = read("uv pip sync --system r.txt --constraints c.txt", files)
    assert installs(found)["torch"].version == "2.4.1"
    assert [one.name for one in found if isinstance(one, Install) and one.constraint] == ["numpy"]


@pytest.mark.parametrize("variable", ["UV_CONSTRAINT", "UV_OVERRIDE"])
def test_files_of_pins_that_a_variable_names(variable: str) -> None:
    files = Folder({"/app/c.txt": "numpy==1.26.4\n", "/app/d.txt": "scipy==1.15\n"})
    found = read("uv pip install --system torch", files, {variable: "c.txt d.txt"})
    pins = {one.name: one.constraint for one in found if isinstance(one, Install)}
    assert pins == {"torch": False, "numpy": True, "scipy": True}


def test_locks_that_are_hostile_take_bounded_time() -> None:
    chain = '[[package]]\nname = "demo"\nsource = { virtual = "." }\ndependencies = [{ name = "p0" }]\n' + "".join(
        f'[[package]]\nname = "p{n}"\nversion = "1"\ndependencies = [{{ name = "p{n + 1}" }}, {{ name = "p{n}" }}]\n'
        for n in range(3_000)
    )
    dense = '[[package]]\nname = "demo"\nsource = { virtual = "." }\ndependencies = [{ name = "demo" }]\n' * 5_000
    with costs_less(5):
        assert len(installs(read("uv sync", Folder({"/app/uv.lock": chain})))) == 3_000
        for text in (dense, "[[package]]\n" * 100_000, '[[package]]\nname = "x"\n' + "[" * 100_000, "\x00" * 1000, ""):
            assert unread(read("uv sync", Folder({"/app/uv.lock": text})))
