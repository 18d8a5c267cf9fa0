"""`python = "auto"`: the facts say which Pythons there are, the wheels which of them will do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from index import Index, publish
from inline import Envkit

from envkit.errors import Unsatisfiable, UsageError
from envkit.facts import load as load_facts
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import problems
from envkit.plan.resolve import resolve, settled
from envkit.plan.solve import lock as solve_lock
from envkit.plan.spec import Spec, load, parse

OPEN = ("os", "base")


def spec_of(text: str) -> Spec:
    return parse(f'python = "auto"\n{text}\n', Path("/srv/job/envkit.toml"))


def pythons(text: str) -> list[str]:
    return [str(one.python) for one in settled(spec_of(text), load_facts())]


def test_the_newest_of_debian_comes_first() -> None:
    """Debian's packages can be pinned; the others follow, and what torch has no wheels for is left out."""
    assert pythons('torch = "2.6.0"') == ["3.13", "3.11", "3.12", "3.10"]
    assert pythons('torch = "2.4.0"')[0] == "3.11"
    assert pythons('torch = "2.6.0"\nos = "ubuntu22.04"') == ["3.10"]
    assert pythons('torch = ">=2.6"\nos = "ubuntu26.04"') == ["3.14"]
    assert pythons('torch = "2.13"\nbase = "ngc"\ntag = "26.07-py3"') == ["3.12"]
    assert resolve(spec_of('torch = "2.6.0"'), load_facts()).os == "debian13"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('torch = "2.4.0"\nos = "ubuntu26.04"', "torch 2.4.0 has no wheel for Python 3.14"),
        ('torch = "2.6.0"\nbase = "pytorch"', "the Python in the images of base `pytorch` is not known"),
    ],
)
def test_where_no_python_will_do(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pythons(text)


def test_a_python_that_the_named_system_lacks_is_refused_with_those_that_have_it() -> None:
    wish = parse('torch = "2.6.0"\npython = "3.12"\nos = "debian12"\n', Path("/srv/job/envkit.toml"))
    with pytest.raises(Unsatisfiable) as caught:
        resolve(wish, load_facts())
    wanted = 'for Python 3.12 set os = "ubuntu24.04", or let python = "auto" choose that of debian12'
    assert caught.value.fix == f"{wanted}, or choose one of the nearest"


def offered(index: Index, *tags: str) -> None:
    """An index with torch for two Pythons and a compiled package for some."""
    publish(index, "2.6.0", "3.13", "nvidia-cudnn-cu12")
    publish(index, "2.6.0", "3.11", "nvidia-cudnn-cu12")
    for tag in tags:
        index.add("compiled", "1.0", tag=f"{tag}-{tag}-manylinux_2_28_x86_64")


@pytest.mark.slow  # makes a lock for each Python
def test_the_newest_python_that_all_packages_have_wheels_for(index: Index) -> None:
    offered(index, "cp311")
    wish, said = spec_of('torch = "2.6.0"\npackages = ["compiled"]'), list[str]()
    made = solve_lock(wish, load_facts(), said.append, may_stay_open=OPEN)
    assert (str(made.python), made.os, made.wish["python"]) == ("3.11", "debian12", "auto")
    assert any(line.startswith("Python 3.13 will not do: ") for line in said)
    assert "Python 3.11 of debian12, as `python` is auto" in said
    offered(index, "cp311", "cp313")
    fresh = solve_lock(wish, load_facts(), said.append, may_stay_open=OPEN)
    assert (str(fresh.python), fresh.os) == ("3.13", "debian13")
    held = solve_lock(wish, load_facts(), said.append, previous=made, may_stay_open=OPEN)
    assert str(held.python) == "3.11"  # what the lock before held stays


@pytest.mark.slow  # makes a lock for each Python
def test_no_python_has_wheels_of_all(index: Index) -> None:
    offered(index, "cp39")
    with pytest.raises(Unsatisfiable, match="no set of wheels"):
        solve_lock(
            spec_of('torch = "2.6.0"\npackages = ["compiled"]'), load_facts(), list[str]().append, may_stay_open=OPEN
        )


def test_markers_stay_until_the_python_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "envkit.toml").write_text('torch = "2.6.0"\npython = "auto"\nrequirements = ["r.txt"]\nproject = "."\n')
    project = '[project]\nname = "a"\nrequires-python = ">=3.10,<3.12"\n'
    (tmp_path / "pyproject.toml").write_text(project)
    (tmp_path / "r.txt").write_text(
        "tomli; python_version < '3.11'\npywin32; sys_platform == 'win32'\nrich; os_name == 'posix'\n"
    )
    found = load(tmp_path)
    assert found.packages == ('tomli; python_version < "3.11"', 'rich; os_name == "posix"')
    assert [str(one.python) for one in settled(found, load_facts())] == ["3.11", "3.10"]
    path = Path(__file__).parent.parent / "images/torch-2.6-cu124/envkit.lock"
    made = replace(locks.parse(path.read_text(), "x"), wish=locks.spec_items(found))
    assert problems(found, made) == []
    (tmp_path / "pyproject.toml").write_text(project.replace("<3.12", "<3.11"))
    assert problems(load(tmp_path), made) == ["the spec asks for python >=3.10,<3.11, the lock was made for auto"]
    (tmp_path / "pyproject.toml").write_text(project.replace(">=3.10,<3.12", "<3.8"))
    with pytest.raises(UsageError, match=r"no Python of a known distribution meets requires-python <3\.8"):
        settled(load(tmp_path), load_facts())
    (tmp_path / "r.txt").write_text("torch==2.4.0; python_version < '3.11'\n")
    with pytest.raises(UsageError, match="which torch is asked for depends on the Python"):
        load(tmp_path)


@pytest.mark.slow  # makes a lock for each Python
def test_a_comparison_of_specs_takes_the_python_of_the_lock(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offered(index, "cp311")
    text = 'torch = "2.6.0"\npython = "auto"\npackages = ["compiled"]\n'
    for name, python in (("one", "auto"), ("two", "3.11")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "envkit.toml").write_text(text.replace("auto", python))
    spec = load(tmp_path / "one")
    files = [tmp_path / name / "envkit.toml" for name in ("one", "two")]
    with Envkit(capsys) as envkit:
        before = envkit("diff", *files)
        made = solve_lock(spec, load_facts(), list[str]().append, may_stay_open=OPEN)
        locks.save(made, locks.path_of(spec))
        after = envkit("diff", *files)
    assert "python 3.13 -> 3.11" in before.out and "python 3.13" not in after.out
