"""What a project's own files ask for, as requirements of a spec."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from envkit.errors import UsageError
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import problems
from envkit.plan.spec import Spec, load, parse


def spec_of(folder: Path, text: str, **names: str) -> Spec:
    """The spec ``text`` in ``folder``, beside files whose names have "_" for a dot."""
    (folder / "envkit.toml").write_text(f'torch = "2.6.0"\npython = "3.11"\n{text}\n')
    for name, content in names.items():
        (folder / name.replace("_", ".")).write_text(content)
    return load(folder)


ROOT = Path(__file__).parent.parent
FILES = 'requirements = ["r.txt"]'
PROJECT = 'project = "."'


def test_a_requirements_file_and_those_that_it_names(tmp_path: Path) -> None:
    found = spec_of(
        tmp_path,
        'packages = ["einops"]\n' + FILES,
        r_txt="# ours\nnumpy<2  # for old code\n-r more.txt\r\n-c bounds.txt\n\ntqdm>=4 \\\n  --hash=sha256:00\n"
        "--prefer-binary\n",
        more_txt="Pillow[xmp]>=10; sys_platform == 'linux'\npywin32; sys_platform == 'win32'\n",
        bounds_txt="scipy<1.15\n",
    )
    assert found.packages == ("einops", "numpy<2", 'Pillow[xmp]>=10; sys_platform == "linux"', "tqdm>=4")
    assert found.constraints == ("scipy<1.15",)


def test_a_requirements_file_names_wheels_by_path_and_address(tmp_path: Path) -> None:
    (tmp_path / "sub" / "wheels").mkdir(parents=True)
    wheel = tmp_path / "sub" / "wheels" / "a-1.0-py3-none-any.whl"
    wheel.write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    (tmp_path / "sub" / "r.txt").write_text(
        f"./wheels/{wheel.name} --hash=sha256:{digest}\n"
        f"b[x] @ https://host.invalid/b-2-py3-none-any.whl \\\n    --hash=sha256:{'1' * 64}\n"
        f"https://host.invalid/c-3-py3-none-any.whl#sha256={'2' * 64} ; python_version < '3.9'\n"
    )
    found = spec_of(tmp_path, 'requirements = ["sub/r.txt"]')
    assert found.packages == ("a==1.0", "b[x]==2")
    assert [(one.file, one.where, one.sha256) for one in found.given] == [
        (wheel.name, str(wheel), digest),
        ("b-2-py3-none-any.whl", "https://host.invalid/b-2-py3-none-any.whl", "1" * 64),
    ]
    assert found.wheels == tuple(one.said for one in found.given)
    wheel.write_bytes(b"other")
    with pytest.raises(UsageError, match="not the one that the spec says"):
        load(tmp_path)


def test_a_wheel_is_named_in_one_place(tmp_path: Path) -> None:
    line = "https://host.invalid/a-{}-py3-none-any.whl#sha256=" + "1" * 64
    same = spec_of(tmp_path, f'packages = ["{line.format(1)}"]\n{FILES}', r_txt=line.format(1))
    assert len(same.given) == 1
    with pytest.raises(UsageError, match="a is given twice"):
        spec_of(tmp_path, f'packages = ["{line.format(1)}"]\n{FILES}', r_txt=line.format(2))


def test_the_build_of_torch_in_a_file_is_left_to_the_key_cuda(tmp_path: Path) -> None:
    found = spec_of(
        tmp_path,
        FILES,
        r_txt="--extra-index-url https://mirror.invalid/whl/cu124\ntorch==2.6.0+cu124; sys_platform != 'darwin'\n"
        "torch==2.6.0; sys_platform == 'darwin'\ntorchvision==0.21.0+cu124\n",
    )
    assert found.packages == ("torch==2.6.0", "torchvision==0.21.0")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("git+https://user:secret@host.invalid/a", r"r\.txt holds `git\+https://host\.invalid/a`, which no index has"),
        ("-e .", "holds `-e .`, which no index has"),
        ("./wheels/a-1.tar.gz", "which no index has"),
        ("a @ https://host.invalid/a-1.tar.gz", "holds a URL for a"),
        ("./wheels/a-1-py3-none-any.whl", r"a-1-py3-none-any\.whl cannot be read"),
        ("a @ https://host.invalid/a-1-py3-none-any.whl", "has no hash of a-1-py3-none-any.whl, which can change"),
        ("https://user:secret@host.invalid/a-1-py3-none-any.whl", "holds a credential in the address of host.invalid"),
        ("b @ https://host.invalid/a-1-py3-none-any.whl#sha256=" + "0" * 64, "says b of a-1-py3-none-any.whl"),
        ("./a.whl", "which is no wheel"),
        ("--index-url https://user:secret@host.invalid/simple", "holds a credential in the address of host.invalid"),
        ("--pre", "holds the option `--pre`"),
        ("numpy===2.0", "=== compares text"),
        ("numpy >> 2", "r.txt holds `numpy >> 2`"),
        ("-r r.txt", "is named by 20 files in a row"),
        ("-r none.txt", r"none\.txt cannot be read"),
    ],
)
def test_a_line_that_cannot_be_pinned_is_refused_without_its_credentials(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        spec_of(tmp_path, FILES, r_txt=f"{line}\n")
    assert "secret" not in f"{caught.value.message} {caught.value.fix}"


def test_a_project_with_its_extras_and_groups(tmp_path: Path) -> None:
    found = spec_of(
        tmp_path,
        PROJECT + '\nextras = ["all"]\ngroups = ["dev"]',
        pyproject_toml='[project]\nname = "My_App"\nrequires-python = ">=3.10"\ndependencies = ["torch>=2.4", "tqdm"]\n'
        '[project.optional-dependencies]\nall = ["my-app[train]", "rich"]\ntrain = ["wandb<0.20"]\nother = ["x"]\n'
        '[dependency-groups]\nbase = ["ruff"]\ndev = [{include-group = "base"}, "pytest>=8"]\n'
        '[tool.uv]\nconstraint-dependencies = ["numpy<2"]\noverride-dependencies = ["click==8.1.8"]\n'
        'exclude-newer = "2026-06-01T00:00:00Z"\n[tool.uv.sources]\ntorch = { index = "theirs" }\n',
    )
    assert found.packages == ("torch>=2.4", "tqdm", "rich", "wandb<0.20", "ruff", "pytest>=8")
    assert (found.constraints, found.overrides, found.before) == (("numpy<2",), ("click==8.1.8",), "2026-06-01")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.poetry]\n", r"has no \[project\]"),
        ('[project]\ndynamic = ["dependencies"]\n', "`dependencies` is dynamic"),
        ('[project]\nname = "a"\nrequires-python = ">=3.12"\n', "requires Python >=3.12, but `python` is 3.11"),
        ('[project]\nname = "a"\ndependencies = "b"\n', "`dependencies` must be a list of texts"),
        ('[project]\nname = "a"\n', "has no extra `train`"),
        ('[project]\nname = "a"\n[project.optional-dependencies]\ntrain = []\n', "group `dev` does not exist"),
        (
            '[project]\nname = "a"\n[project.optional-dependencies]\ntrain = []\n[dependency-groups]\n'
            'dev = [{include-group = "dev"}]\n',
            "group `dev` includes itself",
        ),
        (
            '[project]\nname = "a"\ndependencies = ["b"]\n[project.optional-dependencies]\ntrain = []\n'
            '[dependency-groups]\ndev = []\n[tool.uv.sources]\nb = { git = "https://host.invalid/b" }\n',
            "takes b from a repository, not from an index",
        ),
        ("[project\n", "is not TOML"),
    ],
)
def test_a_project_that_cannot_be_followed_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        spec_of(tmp_path, PROJECT + '\nextras = ["train"]\ngroups = ["dev"]', pyproject_toml=text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('extras = ["a"]', "`extras` without `project`"),
        ('overrides = ["torch==2.7"]', "`overrides` holds torch"),
        ('exclude-newer = "soon"', "`exclude-newer` is `soon`, which is no day"),
        ('constraints = ["numpy >> 2"]', "`constraints` holds `numpy >> 2`"),
    ],
)
def test_a_key_that_says_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        spec_of(tmp_path, text)


def test_what_a_file_asks_for_is_part_of_the_wish(tmp_path: Path) -> None:
    """A lock is made again where a file that the spec names asks for something else."""
    spec = spec_of(tmp_path, FILES, r_txt="numpy\n")
    path = ROOT / "images/torch-2.6-cu124/envkit.lock"
    made = replace(locks.parse(path.read_text(), "x"), wish=locks.spec_items(spec))
    assert problems(spec, made) == []
    bounded = spec_of(tmp_path, 'overrides = ["click<8"]\nexclude-newer = "2026-06-01"', r_txt="")
    also = replace(made, wish=locks.spec_items(bounded))
    assert locks.parse(locks.dump(also), "x") == also
    changed = spec_of(tmp_path, FILES + '\nconstraints = ["scipy<2"]', r_txt="numpy<2\n")
    assert problems(changed, made) == [
        "the spec asks for packages numpy<2, the lock was made for numpy",
        "the spec asks for constraints scipy<2, the lock was made for none",
    ]
    assert problems(spec_of(tmp_path, ""), made) == ["the spec asks for packages none, the lock was made for numpy"]


def test_reading_a_spec_alone_opens_no_other_file(tmp_path: Path) -> None:
    text = 'torch = "2.6.0"\npython = "3.11"\nrequirements = ["none.txt"]\n'
    assert parse(text, tmp_path / "envkit.toml").names_files
