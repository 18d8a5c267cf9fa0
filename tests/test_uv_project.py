"""uv's own files beside a project: uv.lock, indexes and sources of [tool.uv]; and a spec in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from index import Index, publish

from envkit.errors import Unsatisfiable, UsageError
from envkit.facts import load as load_facts
from envkit.plan import lockfile as locks
from envkit.plan.resolve import resolve
from envkit.plan.solve import lock as solve_lock
from envkit.plan.spec import Spec, load
from envkit.plan.uv_project import sources

OPEN = ("os", "base")
REGISTRY = 'source = { registry = "https://packages.invalid/simple" }'
PROJECT = '[project]\nname = "My_App"\nrequires-python = ">=3.10"\ndependencies = ["ours", "torch>=2.4"]\n'
TABLE = '[tool.envkit]\ntorch = ">=2.4"\npython = "3.11"\n'


def quiet(line: str) -> None:
    pass


def package(name: str, version: str, *needs: str, source: str = REGISTRY, more: str = "") -> str:
    listed = ", ".join(f'{{ name = "{each}" }}' for each in needs)
    return f'[[package]]\nname = "{name}"\nversion = "{version}"\n{source}\n{more}\ndependencies = [{listed}]\n'


def own(*needs: str, more: str = "") -> str:
    return package("my-app", "0.1", *needs, source='source = { virtual = "." }') + more


def of(folder: Path, pyproject: str, *packages: str) -> Spec:
    (folder / "pyproject.toml").write_text(pyproject)
    if packages:
        (folder / "uv.lock").write_text("version = 1\nrevision = 3\n" + "".join(packages))
    return load(folder)


def test_a_table_of_pyproject_is_the_spec_and_its_project_the_spec_s(tmp_path: Path) -> None:
    found = of(tmp_path, PROJECT + TABLE)
    assert (found.packages, found.project, str(found.python)) == (("ours", "torch>=2.4"), ".", "3.11")
    assert locks.path_of(found) == tmp_path / "envkit.lock"
    assert load(tmp_path / "pyproject.toml") == found
    assert of(tmp_path, PROJECT + TABLE + 'project = ""\n').packages == ()
    assert of(tmp_path, TABLE + 'packages = ["tqdm"]\n').packages == ("tqdm",)
    (tmp_path / "envkit.toml").write_text('torch = "2.6.0"\npython = "3.11"\n')
    assert load(tmp_path).packages == ()  # a file of its own goes first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PROJECT, "there is no spec at"),
        (TABLE + 'torhc = "2"\n', "torhc"),
        ("[tool]\nenvkit = 3\n", r"has no table \[tool.envkit\]"),
    ],
)
def test_a_pyproject_without_a_whole_spec(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        of(tmp_path, text)


def test_the_versions_of_uv_lock_are_kept(tmp_path: Path) -> None:
    """Those that the project needs; what torch brings follows from torch."""
    found = of(
        tmp_path,
        PROJECT + TABLE + 'extras = ["train"]\ngroups = ["dev"]\n[project.optional-dependencies]\ntrain = ["extra"]\n'
        '[dependency-groups]\ndev = ["tool"]\n',
        own(
            "ours", "torch",
            more='[package.optional-dependencies]\ntrain = [{ name = "extra" }]\n'
            '[package.dev-dependencies]\ndev = [{ name = "tool" }]\n',
        ),
        package("ours", "1.2", "deep"),
        package("deep", "3", more="resolution-markers = [\"python_full_version < '3.11'\"]"),
        package("deep", "4", more="resolution-markers = [\"python_full_version >= '3.11'\"]"),
        package("extra", "5"),
        package("tool", "6"),
        package("torch", "2.6.0+cu124", "nvidia-cublas-cu12"),
        package("nvidia-cublas-cu12", "12.4.5.8"),
        package("nobody", "7"),
    )  # fmt: skip
    assert sorted(found.constraints) == ["deep==4", "extra==5", "ours==1.2", "tool==6", "torch==2.6.0"]
    assert str(resolve(found, load_facts()).torch) == "2.6.0"


def test_a_python_that_is_open_leaves_the_markers(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        PROJECT + TABLE.replace("3.11", "auto"),
        own("ours"),
        package("ours", "3", more="resolution-markers = [\"python_full_version < '3.11'\"]"),
        package("ours", "4", more="resolution-markers = [\"python_full_version >= '3.11'\"]"),
    )
    assert found.constraints == ('ours==3; python_full_version < "3.11"', 'ours==4; python_full_version >= "3.11"')


def test_a_torch_of_uv_lock_that_the_gpus_cannot_run_is_refused(tmp_path: Path) -> None:
    found = of(tmp_path, PROJECT + TABLE + 'gpus = ["B200"]\n', own("torch"), package("torch", "2.6.0"))
    with pytest.raises(Unsatisfiable, match=r"torch 2\.6\.0\+cu124 has no kernels for sm_100"):
        resolve(found, load_facts())


def test_a_lock_by_uv_lock_holds_its_versions(tmp_path: Path, index: Index) -> None:
    publish(index, "2.6.0", "3.11", "nvidia-cudnn-cu12")
    for version in ("1.0", "1.1", "2.0"):
        index.add("ours", version, "deep")
        index.add("deep", version)
    found = of(tmp_path, PROJECT + TABLE, own("ours", "torch"), package("ours", "1.1", "deep"), package("deep", "1.0"))
    pins = {pin.name: pin.version for pin in solve_lock(found, load_facts(), quiet, may_stay_open=OPEN).wheels}
    assert (pins["ours"], pins["deep"]) == ("1.1", "1.0")
    (tmp_path / "uv.lock").unlink()
    pins = {pin.name: pin.version for pin in solve_lock(load(tmp_path), load_facts(), quiet, may_stay_open=OPEN).wheels}
    assert (pins["ours"], pins["deep"]) == ("2.0", "2.0")


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        (
            (own("ours"), package("ours", "1", source='source = { git = "https://host.invalid/ours#abc" }')),
            r"uv\.lock takes ours from a repository, not from an index",
        ),
        (
            (own("ours"), package("ours", "1", source='source = { editable = "libs/ours" }')),
            r"uv\.lock takes ours from a folder, not from an index",
        ),
        ((own("ours"), package("ours", "1"), package("ours", "2")), "has ours 1 and 2 for extras that exclude"),
        ((own("ours"), package("ours", "x y")), "has no version of ours"),
        (("[[package\n",), "is not TOML"),
        (("package = 3\n",), "is no lock of format 1"),
        (('[[package]]\nname = "my-app"\noptional-dependencies = 3\n',), "is no lock of format 1"),
        (('[[package]]\nname = "my-app"\ndependencies = [3]\n',), "is no lock of format 1"),
    ],
)
def test_a_uv_lock_that_cannot_be_followed(tmp_path: Path, packages: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        of(tmp_path, PROJECT + TABLE, *packages)


def test_what_the_project_does_not_need_may_come_from_anywhere(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        PROJECT + TABLE,
        own("ours"),
        package("ours", "1"),
        package("other", "1", source='source = { git = "https://host.invalid/other#abc" }'),
    )
    assert found.constraints == ("ours==1",)


def test_indexes_of_uv_are_the_spec_s(tmp_path: Path) -> None:
    """PyTorch's is left to `cuda`, even where it is explicit, as uv's guide for PyTorch has it."""
    found = of(
        tmp_path,
        PROJECT
        + TABLE
        + '[[tool.uv.index]]\nname = "pytorch-cu128"\nurl = "https://mirror.invalid/whl/cu128"\nexplicit = true\n'
        '[[tool.uv.index]]\nname = "corp"\nurl = "https://packages.invalid/simple"\n'
        '[[tool.uv.index]]\nurl = "https://main.invalid/simple"\ndefault = true\n'
        '[tool.uv.sources]\ntorch = [{ index = "pytorch-cu128", marker = "sys_platform == \'linux\'" }]\n'
        'ours = { index = "corp" }\n',
    )
    assert (found.index, found.extra_index) == (
        "https://main.invalid/simple",
        ("corp=https://packages.invalid/simple",),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[tool.uv.index]]\nname = "x"\nurl = "https://h.invalid/s"\nexplicit = true\n', "the index x .* is explicit"),
        (
            '[[tool.uv.index]]\nurl = "https://me:qzsecret@h.invalid/s"\n',
            "holds a credential in the address of h.invalid",
        ),
        ('[tool.uv]\nresolution = "lowest"\n', "has resolution = 'lowest', which is not followed"),
        ('[tool.uv]\nprerelease = "allow"\n', "has prerelease = 'allow', which is not followed"),
        ('[tool.uv.sources]\nours = { git = "https://h.invalid/ours" }\n', "takes ours from a repository"),
        ('[tool.uv.sources]\nours = { path = "libs/ours" }\n', "takes ours from a path"),
        ("[tool.uv.sources]\nours = { workspace = true }\n", "takes ours from its workspace"),
        ('[tool.uv.sources]\nours = { index = "unknown" }\n', "takes ours from an index that it does not name"),
        (
            '[[tool.uv.index]]\nname = "theirs"\nurl = "https://h.invalid/simple"\n[tool.uv.sources]\n'
            'ours = [{ index = "theirs", marker = "a" }, { git = "https://h.invalid/ours" }]\n',
            "takes ours from a repository",
        ),
        (
            '[tool.uv.sources]\nnobodys = { path = "a" }\nours = { git = "https://h.invalid/ours" }\n',
            "takes ours from a repository",
        ),
    ],
)
def test_what_uv_would_do_otherwise_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        of(tmp_path, PROJECT + TABLE + text)
    assert "qzsecret" not in f"{caught.value.message} {caught.value.fix}"


def test_a_wheel_that_the_spec_names_stands_in_for_a_source(tmp_path: Path) -> None:
    (tmp_path / "ours-1.0-py3-none-any.whl").write_bytes(b"a wheel")
    text = PROJECT + TABLE + 'packages = ["./ours-1.0-py3-none-any.whl"]\n'
    found = of(tmp_path, text + '[tool.uv.sources]\nours = { git = "https://h.invalid/ours" }\n')
    assert found.packages == ("ours==1.0", "ours", "torch>=2.4")


def test_an_index_of_a_requirements_file_is_the_spec_s(tmp_path: Path) -> None:
    (tmp_path / "envkit.toml").write_text('torch = "2.6.0"\npython = "3.11"\nrequirements = ["r.txt"]\n')
    (tmp_path / "r.txt").write_text(
        "--index-url https://${TOKEN}@main.invalid/simple\n--extra-index-url=https://packages.invalid/simple\n"
        "--extra-index-url https://mirror.invalid/whl/cu124\nours\n"
    )
    found = load(tmp_path)
    assert found.index == "https://${TOKEN}@main.invalid/simple"
    assert found.extra_index == ("https://packages.invalid/simple",)
    (tmp_path / "r.txt").write_text("-f https://h.invalid/wheels.html\nours\n")
    with pytest.raises(UsageError, match="names a page of links"):
        load(tmp_path)


def test_a_source_that_is_nobodys_or_allowed_hides_no_other() -> None:
    index, elsewhere = [{"name": "own"}], {"git": "https://example.com/b"}
    for first in ({"unasked": elsewhere}, {"given": elsewhere}, {"a": {"index": "own"}}, {"torch": {"index": "x"}}):
        allowed = {"index": index, "sources": first}
        sources(Path("pyproject.toml"), allowed, {"a", "b", "given", "torch"}, {"given"})
        both = {"index": index, "sources": {**first, "b": elsewhere}}
        with pytest.raises(UsageError, match="takes b from"):
            sources(Path("pyproject.toml"), both, {"a", "b", "given", "torch"}, {"given"})
    with pytest.raises(UsageError, match="takes b from"):
        sources(Path("pyproject.toml"), {"index": index, "sources": {"b": [{"index": "own"}, elsewhere]}}, {"b"}, ())
