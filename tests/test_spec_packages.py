"""add, remove, why, tree and outdated: the real uv over an index of hand-made wheels, and a spec as people write it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from index import Index, Publish
from inline import Ended, Envkit

from envkit.errors import UsageError
from envkit.plan import edit, update
from envkit.plan import lockfile as locks
from envkit.plan.spec import load, parse

SPEC = """# our trainer
torch = "2.6.0"  # what the cluster has
python = "3.11"
packages = [
  # arrays
  "Numpy<2",   # old code
  'served[audio]',
]  # end
gpus = ["H100"]

[check]
fail-on = "warning"
"""
ALONE = ("--engine", "none", "--allow-unpinned", "os", "--allow-unpinned", "base")


@pytest.fixture
def job(tmp_path: Path, index: Index, published: Publish) -> Path:
    published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    index.add("numpy", "1.26.4")
    index.add("numpy", "2.1.0")
    index.add("served", "1.0", "torch>=2", "numpy>=1.20,<3", 'voices>=0.1; extra == "audio"', 'no; sys_platform=="x"')
    index.add("voices", "0.2", "numpy")
    index.add("einops", "0.8.0")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "envkit.toml").write_text(SPEC)
    return folder


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str], job: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Envkit]:
    monkeypatch.chdir(job)
    with Envkit(capsys) as run:
        yield run


def lock(run: Envkit) -> Ended:
    ended = run("lock", *ALONE)
    assert ended.code == 0, ended.err
    return ended


def held(folder: Path) -> dict[str, str]:
    """The wheels of the lock in ``folder``, which answers the spec beside it."""
    spec = load(folder)
    found = locks.read(spec)
    assert found is not None and not locks.problems(spec, found)
    return {pin.name: pin.version for pin in found.wheels}


def state(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# add and remove.


@pytest.mark.slow  # makes whole locks
def test_add_writes_spec_and_lock_and_remove_takes_both_back(envkit: Envkit, job: Path) -> None:
    lock(envkit)
    before = state(job)
    ended = envkit("add", "einops", *ALONE)
    assert (ended.code, ended.out) == (0, "+ einops 0.8.0\n")
    assert (job / "envkit.toml").read_text() == SPEC.replace("'served[audio]',\n", "'served[audio]',\n  \"einops\",\n")
    assert held(job)["einops"] == "0.8.0"
    ended = envkit("remove", "EinOps", *ALONE)
    assert (ended.code, ended.out) == (0, "- einops 0.8.0\n")
    assert state(job) == before


@pytest.mark.slow  # makes whole locks
def test_add_makes_the_first_lock_too_and_keeps_what_was_locked(envkit: Envkit, job: Path, index: Index) -> None:
    ended = envkit("add", "einops", *ALONE)
    assert (ended.code, ended.out.count("\n")) == (0, 1) and ended.out.startswith(
        "envkit.lock: torch 2.6.0 for CUDA 12.4"
    )
    index.add("served", "1.1", "torch>=2")
    assert envkit("add", "voices", *ALONE).out == ""  # it is in the lock already, and served stays where it is
    assert (held(job)["voices"], held(job)["served"]) == ("0.2", "1.0")


@pytest.mark.slow  # makes whole locks
def test_new_bounds_replace_the_old_ones_and_extras_stay(envkit: Envkit, job: Path) -> None:
    lock(envkit)
    assert envkit("add", "numpy>=2", "served==1.0", *ALONE).out == "~ numpy 1.26.4 -> 2.1.0\n"
    text = (job / "envkit.toml").read_text()
    assert text == SPEC.replace('"Numpy<2"', '"Numpy>=2"').replace("'served[audio]'", '"served[audio]==1.0"')


def test_what_is_asked_for_already_changes_nothing(envkit: Envkit, job: Path) -> None:
    lock(envkit)
    before = state(job)
    ended = envkit("add", "numpy", "Served[audio]", *ALONE)
    assert (ended.code, ended.out, ended.err) == (0, "", "the spec asks for this already, and the lock answers it\n")
    assert state(job) == before


@pytest.mark.slow  # makes whole locks, several a case
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "nowhere"), "no set of wheels satisfies the spec"),
        (("add", "einops==9"), "no set of wheels satisfies the spec"),
        (("add", "numpy >> 2"), "the command line holds `numpy >> 2`"),
        (("add", "git+https://u:secret@host.invalid/a"), "the command line holds"),
        (("add", "torch==2.7"), "torch is no package of `packages`"),
        (("add", "--", "-e ."), "the command line holds `-e .`"),
        (("remove", "torch"), "torch is the base of every lock"),
        (("remove", "nunpy"), "does not ask for nunpy; did you mean `numpy`?"),
        (("remove", "voices"), "does not ask for voices"),
    ],
)
def test_what_cannot_be_changes_no_file(words: Sequence[str], said: str, envkit: Envkit, job: Path) -> None:
    lock(envkit)
    before = state(job)
    ended = envkit(words[0], *ALONE, *words[1:])
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err and "\n  fix: " in ended.err
    assert state(job) == before


@pytest.mark.slow  # makes whole locks, several a case
def test_a_spec_without_a_lock_gets_none_from_a_change_that_fails(envkit: Envkit, job: Path) -> None:
    assert envkit("add", "nowhere", *ALONE).code == 2
    assert list(state(job)) == ["envkit.toml"]


def test_a_lock_that_cannot_be_written_leaves_the_spec_as_it_was(job: Path) -> None:
    spec = load(job)
    made = locks.parse(shipped_lock(), "x")
    (job / "envkit.lock").mkdir()
    with pytest.raises(UsageError):
        update.save_both(spec, SPEC, SPEC.replace("2.6.0", "2.7.0"), made)
    assert (job / "envkit.toml").read_text() == SPEC


def test_a_spec_that_somebody_changed_meanwhile_is_not_overwritten(job: Path) -> None:
    spec, made = load(job), locks.parse(shipped_lock(), "x")
    (job / "envkit.toml").write_text(SPEC + "# mine\n")
    with pytest.raises(UsageError, match="was changed while the lock was made"):
        update.save_both(spec, SPEC, SPEC.replace("2.6.0", "2.7.0"), made)
    assert state(job).keys() == {"envkit.toml"}


def shipped_lock() -> str:
    return (Path(__file__).parent.parent / "images/torch-2.6-cu124/envkit.lock").read_text()


@pytest.mark.parametrize(
    ("named", "file", "text"),
    [
        ('requirements = ["r.txt"]', "r.txt", "einops<1\n"),
        ('project = "."', "pyproject.toml", '[project]\nname = "a"\ndependencies = ["Einops<1"]\n'),
        ('project = "."\ngroups = ["d"]', "pyproject.toml", '[project]\nname = "a"\n[dependency-groups]\nd=["einops"]'),
    ],
)  # fmt: skip
def test_what_a_file_asks_for_is_changed_there(named: str, file: str, text: str, envkit: Envkit, job: Path) -> None:
    (job / file).write_text(text)
    (job / "envkit.toml").write_text(SPEC.replace("[check]", f"{named}\n[check]").replace("\n\n", "\n", 1))
    before = state(job)
    for verb, package in (("add", "einops>=0.8"), ("remove", "einops")):
        ended = envkit(verb, package, *ALONE)
        assert ended.code == 2
        assert f"{file} asks for " in ended.err and f"fix: change {file}, then run `envkit lock`" in ended.err
    assert state(job) == before


TEXTS = {
    'torch = "2.6"\npython = "3.11"\npackages = []\n': 'packages = ["new"]\n',
    'torch = "2.6"\npython = "3.11"\npackages = ["a", "b"]\n': 'packages = ["a", "b", "new"]\n',
    'torch = "2.6"\npython = "3.11"\n[check]\nfail-on = "note"\n': 'packages = ["new"]\n',
    'torch = "2.6"\npython = "3.11"\npackages = [\n    "a",\n    "b"\n]\n': '[\n    "a",\n    "b",\n    "new"\n]\n',
    'torch = "2.6"\r\npython = "3.11"\r\npackages = ["a"] # x\r\n': 'packages = ["a", "new"] # x\r\n',
}  # fmt: skip


@pytest.mark.parametrize("text", list(TEXTS))
def test_a_package_joins_the_list_as_it_is_written(text: str) -> None:
    path = Path("/srv/job/envkit.toml")
    made = edit.added(text, parse(text, path), ["new"])
    assert TEXTS[text] in made
    parse(made, path)
    assert [line for line in text.splitlines() if "packages" not in line and line not in made.splitlines()] in (
        [],
        ['    "b"'],
    )


def test_what_is_compiled_is_taken_out_by_hand() -> None:
    path = Path("/srv/job/envkit.toml")
    text = 'torch = "2.6"\npython = "3.11"\ngpus = ["H100"]\nbuild = ["ext==1.0"]\n'
    with pytest.raises(UsageError, match="has ext compiled"):
        edit.removed(text, parse(text, path), ["ext"])


def test_each_marker_has_its_own_bounds() -> None:
    path = Path("/srv/job/envkit.toml")
    text = 'torch = "2.6"\npython = "3.11"\npackages = ["a<2; python_version < \'3.12\'", "a"]\n'
    made = edit.added(text, parse(text, path), ["a>=1", "b ; python_version<'3.12'"])
    assert tomllib.loads(made)["packages"] == [
        "a<2; python_version < '3.12'",
        "a>=1",
        'b; python_version < "3.12"',
    ]
    assert tomllib.loads(edit.removed(made, parse(made, path), ["A"]))["packages"] == ['b; python_version < "3.12"']


def test_the_table_of_a_pyproject_is_changed_and_nothing_else() -> None:
    path = Path("/srv/job/pyproject.toml")
    text = '[project]\nname = "a"  # mine\n\n[tool.envkit]\npackages = ["./b-1-py3-none-any.whl"]\n\n[tool.x]\n'

    def change(held: list[str]) -> None:
        held.append("c")

    assert edit._edited(text, path, change) == text.replace('.whl"]', '.whl", "c"]')


# why and tree.


@pytest.mark.slow  # makes whole locks
def test_why_says_who_asks_with_which_bounds(envkit: Envkit) -> None:
    lock(envkit)
    ended = envkit("why", "NumPy")
    assert (ended.code, ended.out.splitlines()) == (
        0,
        [
            "numpy 1.26.4 is a wheel of the lock (runtime)",
            "  because the spec asks for Numpy<2",
            "  because served 1.0 needs numpy<3,>=1.20, and the spec asks for served[audio]",
            "  because voices 0.2 needs numpy, served needs voices, and the spec asks for served[audio]",
        ],
    )
    ended = envkit("why", "voices")
    assert "because served 1.0 needs voices>=0.1 for an extra, and the spec asks for served[audio]" in ended.out
    ended = envkit("why", "torch", "--format", "json")
    document = json.loads(ended.out)
    assert document["schema"] == "envkit.why/1"
    assert document["asked"] == ["torch 2.6.0"]
    assert document["required_by"] == [{"name": "served", "version": "1.0", "asks": "torch>=2"}]


def test_why_says_that_envkit_added_it(envkit: Envkit) -> None:
    lock(envkit)
    assert "because envkit adds setuptools to every image" in envkit("why", "setuptools").out
    assert "only installs the other wheels" in envkit("why", "uv").err


def test_why_of_what_the_lock_does_not_contain(envkit: Envkit, job: Path) -> None:
    ended = envkit("why", "numpy")
    assert (ended.code, ended.out) == (2, "") and "envkit.lock does not exist" in ended.err
    lock(envkit)
    ended = envkit("why", "nunpy")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("envkit: the lock contains no nunpy; did you mean `numpy`?\n  fix: ")
    assert envkit("why", "../etc\x1b[31m").code == 2


def test_why_of_a_debian_package() -> None:
    from envkit.plan import requires

    made = locks.parse(shipped_lock(), "x")
    asked = next(deb for deb in made.debs if any(deb.name in names for names in made.apt.values()))
    brought = next(deb for deb in made.debs if not any(deb.name in names for names in made.apt.values()))
    assert requires.because_of_deb(made, asked.name).startswith(f"envkit adds {asked.name} to the layer")
    assert requires.because_of_deb(made, brought.name).startswith("apt-get takes it in the layer ")


@pytest.mark.slow  # makes whole locks
def test_tree_shows_each_wheel_and_every_other_time_its_name(envkit: Envkit) -> None:
    lock(envkit)
    lines = envkit("tree").out.splitlines()
    assert lines[:2] == ["torch 2.6.0  [torch 2.6.0]", "  nvidia-cudnn-cu12 9.1.0.70"]
    assert lines[lines.index("served 1.0  [served[audio]]") :][:5] == [
        "served 1.0  [served[audio]]",
        "  numpy 1.26.4",
        "  torch 2.6.0 (*)",
        "  voices 0.2",
        "    numpy 1.26.4",
    ]
    assert "besides, for every image:" in lines and "besides, for the flavor debug:" in lines
    assert lines[-1].startswith("(*) ")
    shallow = envkit("tree", "--depth", "0").out.splitlines()
    assert not [line for line in shallow if line.startswith(" ")]
    document = json.loads(envkit("tree", "--format", "json").out)
    assert document["schema"] == "envkit.tree/1"
    (served,) = (one for one in document["packages"] if one["name"] == "served")
    assert (served["requires"], served["asked"]) == (["numpy", "torch", "voices"], ["served[audio]"])


@pytest.mark.slow  # makes whole locks
def test_who_requires_whom_is_undecided_where_nobody_can_be_asked(
    envkit: Envkit, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(envkit)
    index.server.shutdown()
    index.server.server_close()
    ended = envkit("why", "numpy")  # uv's cache has who, the index alone what they ask for
    assert ended.code == 0
    assert "because served 1.0 needs numpy, and" in ended.out and "not all bounds of numpy were read: " in ended.err
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    ended = envkit("tree")
    assert (ended.code, ended.out) == (3, "")


def test_a_lock_for_another_spec_is_shown_and_said_to_be_one(envkit: Envkit, job: Path) -> None:
    lock(envkit)
    (job / "envkit.toml").write_text(SPEC.replace('"Numpy<2"', '"numpy"'))
    ended = envkit("why", "numpy")
    assert ended.code == 0 and "is for another spec: the spec asks for packages" in ended.err


# outdated and -P.


@pytest.mark.slow  # makes whole locks, several a case
def test_outdated_says_what_a_new_lock_would_change_and_writes_nothing(envkit: Envkit, job: Path, index: Index) -> None:
    lock(envkit)
    before = state(job)
    ended = envkit("outdated")
    assert (ended.code, ended.out) == (0, "envkit.lock -> a new lock: no change\n")
    index.add("served", "2.0", "torch>=2")
    ended = envkit("outdated", "-q")
    assert (ended.code, ended.err) == (1, "")
    assert "served 1.0 -> 2.0" in ended.out
    document = json.loads(envkit("outdated", "--format", "json").out)
    assert {"wheel-changed", "wheel-removed"} <= {one["kind"] for one in document["changes"]}
    assert not [one for one in document["changes"] if one["kind"] in ("base", "archive", "deb-removed")]
    assert state(job) == before
    assert envkit("lock", "-P", "served", *ALONE).code == 0
    assert (held(job)["served"], envkit("outdated").code) == ("2.0", 0)


@pytest.mark.slow  # makes whole locks
def test_outdated_names_the_gpus_and_drivers_that_a_new_torch_costs(
    envkit: Envkit, job: Path, published: Publish
) -> None:
    spec = job / "envkit.toml"
    spec.write_text('torch = "2.6.0"\npython = "3.11"\n')
    lock(envkit)
    published("2.11.0", "3.11", "nvidia-cudnn-cu13")
    spec.write_text('torch = ">=2.6,<2.12"\npython = "3.11"\n')
    ended = envkit("outdated")
    assert ended.code == 1 and "is for another spec: the spec asks for torch >=2.6,<2.12" in ended.err
    breaking = ended.out.partition("\nnotable")[0]
    for said in ("torch 2.6.0+cu124 -> 2.11.0+cu130", "drops sm_70 (", "driver"):
        assert said in breaking, ended.out


def test_an_index_out_of_reach_is_undecided_and_not_outdated(envkit: Envkit, index: Index) -> None:
    lock(envkit)
    index.server.shutdown()
    index.server.server_close()
    ended = envkit("outdated")
    assert (ended.code, ended.out) == (3, ""), ended.err
