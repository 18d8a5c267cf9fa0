"""What poetry installs."""

from __future__ import annotations

from collections.abc import Mapping

import answers
import pytest
from clocks import costs_less
from dockerfile_commands import NOTHING, Folder, command, installs, unread

from envkit.dockerfile import poetry
from envkit.dockerfile.project import poetry_pin
from envkit.subjects.dockerfile import Install, Removal, Unread

CU118 = "https://download.pytorch.org/whl/cu118"


def read(
    text: str, files: Folder = NOTHING, env: Mapping[str, str] | None = None, cwd: str = "/app"
) -> list[Install | Removal | Unread]:
    read = list(poetry.read(command(text, env, cwd), files))
    return answers.same("installs", ("poetry", text, files, env, cwd), read)


@pytest.mark.parametrize(
    ("constraint", "pinned"),
    [
        ("2.1.0", ("2.1.0", "")),
        ("==2.1.0", ("2.1.0", "")),
        ("2.1.0+cu118", ("2.1.0", "cu118")),
        ("^2.1.0", ("", "")),
        ("~2.1", ("", "")),
        ("2.1.*", ("", "")),
        ("*", ("", "")),
        (">=2,<3", ("", "")),
        ("2.0.0 || 2.1.0", ("", "")),
    ],
)
def test_what_a_constraint_of_poetry_pins(constraint: str, pinned: tuple[str, str]) -> None:
    assert poetry_pin(constraint) == pinned


PYPROJECT = f"""
[tool.poetry]
name = "demo"
[tool.poetry.dependencies]
python = "~3.10"
torch = {{ version = "2.1.0", source = "torch_cu118" }}
torchvision = "^0.16"
winonly = {{ version = "1.0", platform = "win32" }}
old = {{ version = "1.0", python = "<3.8" }}
apex = {{ git = "https://github.com/NVIDIA/apex.git", tag = "23.08" }}
wheel = {{ url = "https://host/whl/xformers-0.0.22+cu118-cp310-cp310-linux_x86_64.whl" }}
flash_attn = {{ version = "2.5.8", optional = true }}
numpy = [
  {{ version = "1.24.0", python = "<3.9" }},
  {{ version = "1.26.4", python = ">=3.9" }},
]
[tool.poetry.extras]
gpu = ["flash-attn"]
[tool.poetry.group.dev.dependencies]
pytest = "^8"
[tool.poetry.group.docs]
optional = true
[tool.poetry.group.docs.dependencies]
sphinx = "*"
[[tool.poetry.source]]
name = "torch_cu118"
url = "{CU118}"
priority = "explicit"
[[tool.poetry.source]]
name = "mirror"
url = "https://mirror/simple"
"""


def test_a_project_without_a_lock() -> None:
    files = Folder({"/app/pyproject.toml": PYPROJECT})
    found = read("poetry install --no-interaction --without dev -E gpu", files)
    named = installs(found)
    assert set(named) == {"torch", "torchvision", "apex", "wheel", "flash-attn", "numpy", "demo"}
    torch = named["torch"]
    assert (torch.manager, torch.version, torch.index) == ("poetry", "2.1.0", CU118)
    assert torch.extra_indexes == ("https://mirror/simple",) and torch.span.line == 6
    assert (named["torchvision"].specifier, named["torchvision"].version) == ("^0.16", "")
    assert named["apex"].url == "git+https://github.com/NVIDIA/apex.git@23.08"
    assert (named["wheel"].version, named["wheel"].local) == ("0.0.22", "cu118")
    assert named["numpy"].version == "1.26.4"
    python = next(one for one in found if isinstance(one, Install) and one.name == "python")
    assert python.constraint and (python.specifier, python.version) == ("~3.10", "3.10")
    assert unread(found) == [("poetry.lock", "there is no such file in the build context")]


@pytest.mark.parametrize(
    ("options", "there", "absent"),
    [
        ("", {"torch", "pytest", "demo"}, {"sphinx", "flash-attn"}),
        ("--with docs", {"torch", "pytest", "sphinx"}, set()),
        ("--only main", {"torch"}, {"pytest", "demo"}),
        ("--only dev,docs", {"pytest", "sphinx"}, {"torch"}),
        ("--no-dev --no-root", {"torch"}, {"pytest", "demo"}),
        ("--all-extras", {"flash-attn"}, set()),
        ("--only-root", {"demo"}, {"torch", "pytest"}),
    ],
)
def test_groups_and_extras(options: str, there: set[str], absent: set[str]) -> None:
    named = set(installs(read(f"poetry install {options}", Folder({"/app/pyproject.toml": PYPROJECT}))))
    assert there <= named and not absent & named


LOCK = f"""
[[package]]
name = "torch"
version = "2.1.0+cu118"
description = ""
optional = false
python-versions = ">=3.8.0"
groups = ["main"]
files = [
    {{file = "torch-2.1.0+cu118-cp310-cp310-linux_x86_64.whl", hash = "sha256:00"}},
]

[package.dependencies]
numpy = "*"

[package.source]
type = "legacy"
url = "{CU118}"
reference = "torch_cu118"

[[package]]
name = "winonly"
version = "1.0"
optional = false
groups = ["main"]
markers = "sys_platform == \\"win32\\""
files = []

[[package]]
name = "flash-attn"
version = "2.5.8"
optional = true
groups = ["main"]
files = []

[package.dependencies]
einops = "*"

[[package]]
name = "einops"
version = "0.8.0"
optional = true
groups = ["main"]
files = []

[[package]]
name = "pytest"
version = "8.0.0"
optional = false
groups = ["dev"]
markers = {{main = "python_version < \\"3\\"", dev = "sys_platform == \\"linux\\""}}
files = []

[[package]]
name = "apex"
version = "0.1"
optional = false
groups = ["main"]
files = []

[package.source]
type = "git"
url = "https://github.com/NVIDIA/apex.git"
reference = "23.08"
resolved_reference = "abc"

[extras]
gpu = ["flash-attn"]

[metadata]
lock-version = "2.1"
"""


def test_a_lock() -> None:
    files = Folder({"/app/pyproject.toml": PYPROJECT, "/app/poetry.lock": LOCK})
    named = installs(read("poetry install --no-root --without dev", files))
    assert set(named) == {"torch", "apex"}
    torch = named["torch"]
    assert (torch.version, torch.local, torch.index, torch.locked) == ("2.1.0", "cu118", CU118, True)
    assert (torch.specifier, torch.span.line, torch.span.path) == ("==2.1.0+cu118", 3, "app/poetry.lock")
    assert named["apex"].url == "git+https://github.com/NVIDIA/apex.git@23.08"
    # Which optional packages an extra brings is not read.
    gpu = installs(read("poetry install --extras gpu", files))
    assert {gpu[name].sure for name in ("flash-attn", "einops")} == {False} and gpu["torch"].sure
    assert "pytest" in installs(read("poetry sync", files))
    alone = read("poetry install", Folder({"/app/poetry.lock": LOCK}))
    assert installs(alone)["torch"].local == "cu118"
    assert unread(alone) == [("pyproject.toml", "there is no such file in the build context")]


def test_an_old_lock_has_categories_and_sometimes_two_versions() -> None:
    lock = "".join(
        f'[[package]]\nname = "{name}"\nversion = "{version}"\ncategory = "{category}"\noptional = false\n\n{more}'
        for name, version, category, more in (
            ("torch", "2.1.0", "main", ""),
            (
                "torch",
                "2.1.0+cu118",
                "main",
                f'[package.source]\ntype = "legacy"\nurl = "{CU118}"\nreference = "x"\n\n',
            ),
            ("pytest", "8.0.0", "dev", ""),
        )
    )
    files = {"/app/poetry.lock": lock + "[metadata]\n", "/app/pyproject.toml": PYPROJECT}
    named = [one for one in read("poetry install --no-dev", Folder(files)) if isinstance(one, Install) and one.locked]
    assert [(one.name, one.local, one.sure) for one in named] == [("torch", "cu118", True)]
    del files["/app/pyproject.toml"]
    alone = [one for one in read("poetry install --no-dev", Folder(files)) if isinstance(one, Install)]
    assert [(one.local, one.sure) for one in alone] == [("", False), ("cu118", False)]


@pytest.mark.parametrize(
    ("env", "target"),
    [
        ({}, "poetry:venv"),
        ({"POETRY_VIRTUALENVS_CREATE": "false"}, "poetry:system"),
        ({"POETRY_VIRTUALENVS_CREATE": "0"}, "poetry:system"),
        ({"POETRY_VIRTUALENVS_IN_PROJECT": "true"}, "poetry:/app/.venv"),
        ({"VIRTUAL_ENV": "/opt/venv"}, "poetry:/opt/venv"),
    ],
)
def test_where_poetry_installs(env: dict[str, str], target: str) -> None:
    assert installs(read("poetry run pip install torch", NOTHING, env))["torch"].target == target


def test_configuration() -> None:
    assert poetry.configured(command("poetry config virtualenvs.create false")) == {
        "POETRY_VIRTUALENVS_CREATE": "false"
    }
    assert poetry.configured(command("python -m poetry config virtualenvs.in-project true --local")) == {
        "POETRY_VIRTUALENVS_IN_PROJECT": "true"
    }
    assert poetry.configured(command("poetry install")) == {}


def test_poetry_remove() -> None:
    assert [one.name for one in read("poetry remove torch") if isinstance(one, Removal)] == ["torch"]


@pytest.mark.parametrize(
    "text",
    ["poetry", "poetry lock", "poetry export -f requirements.txt", "poetry build", "poetry self add x",
     "poetry env use 3.11",
     "poetry install --dry-run", "poetry run python train.py", "pip install poetry"],
)  # fmt: skip
def test_what_installs_nothing(text: str) -> None:
    assert read(text) == []


def test_poetry_run_pip() -> None:
    found = installs(read("poetry run pip install torch==2.0.1 -f https://links"))["torch"]
    assert (found.manager, found.target, found.find_links) == ("pip", "poetry:venv", ("https://links",))
    assert installs(read("poetry run python -m pip install torch"))["torch"].target == "poetry:venv"


def test_without_a_context_both_files_are_unread() -> None:
    assert [path for path, _ in unread(read("poetry install"))] == ["poetry.lock", "pyproject.toml"]


def test_a_poetry_project_with_standard_tables() -> None:
    text = f"""
[project]
name = "demo"
requires-python = ">=3.10,<3.11"
dependencies = ["torch (==2.5.1)", "numpy>=1"]
[tool.poetry.dependencies]
torch = {{ source = "pt" }}
[[tool.poetry.source]]
name = "pt"
url = "{CU118}"
priority = "supplemental"
"""
    named = installs(read("poetry install --no-root", Folder({"/app/pyproject.toml": text})))
    assert (named["torch"].version, named["torch"].index) == ("2.5.1", CU118)
    assert named["numpy"].extra_indexes == ()


def test_files_that_are_hostile_take_bounded_time() -> None:
    many = "[tool.poetry]\nname='d'\n[tool.poetry.dependencies]\n" + "".join(f"p{n} = '1.0'\n" for n in range(20_000))
    locked = "".join(f'[[package]]\nname = "p{n}"\nversion = "1"\n' for n in range(10_000)) + "[metadata]\n"
    with costs_less(8):
        assert len(installs(read("poetry install", Folder({"/app/pyproject.toml": many})))) > 1_000
        assert len(installs(read("poetry install", Folder({"/app/poetry.lock": locked})))) == 10_000
        for text in (
            "[[package]]\n" * 100_000,
            "\x00" * 1000,
            "[" * 100_000,
            '[[package]]\nname = "x"\nversion = ' + "[" * 100_000,
        ):
            assert unread(read("poetry install", Folder({"/app/poetry.lock": text, "/app/pyproject.toml": text})))
