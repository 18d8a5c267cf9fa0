"""Wheels that a spec names by path or address: pinned by hash, solved with all the rest, and brought into the build."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from index import Index, pip_wheel, publish
from inline import Envkit
from test_prove import FakeEngine

from envkit.build import up, vendor
from envkit.build.render import dockerfile
from envkit.engine import BuildRequest, BuiltImage, Say
from envkit.engine.local import LocalEngine
from envkit.errors import Unsatisfiable, UsageError
from envkit.facts import load as load_facts
from envkit.plan import given, requires
from envkit.plan import lockfile as locks
from envkit.plan.indexes import Access, Indexes
from envkit.plan.lockfile import Lock, problems
from envkit.plan.solve import lock as solve_lock
from envkit.plan.spec import Spec, load, parse

OPEN = ("os", "base")
HASH = "a" * 64


def quiet(line: str) -> None:
    pass


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        ("./wheels/ours-1.0-py3-none-any.whl", "ours==1.0"),
        ("ours-1.0-py3-none-any.whl", "ours==1.0"),
        ("/srv/My_Pkg-1.0+cu12-cp311-cp311-linux_x86_64.whl", "my-pkg==1.0+cu12"),
        (f"https://host.invalid/a/ours-1.0%2Bcpu-py3-none-any.whl#sha256={HASH}", "ours==1.0+cpu"),
        (f"ours[x] @ https://host.invalid/ours-1.0-py3-none-any.whl#sha256={HASH}", "ours[x]==1.0"),
        ("Ours @ ../ours-1.0-1-py3-none-any.whl", "Ours==1.0"),
    ],
)
def test_a_wheel_stands_for_its_release(text: str, requirement: str) -> None:
    found = given.read(text, "packages")
    assert found is not None and found.requirement == requirement
    spec = parse(f'torch = "2.6.0"\npython = "3.11"\npackages = ["{text}"]\n', Path("envkit.toml"))
    assert spec.packages == (requirement,)


@pytest.mark.parametrize("text", ["ours", "ours==1.0", "ours[x]>=1; python_version < '3.12'"])
def test_a_requirement_by_name_is_none(text: str) -> None:
    assert given.read(text, "packages") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "https://host.invalid/ours-1.0-py3-none-any.whl",
            "has no hash of ours-1.0-py3-none-any.whl, which can change",
        ),
        ("https://host.invalid/ours-1.0-py3-none-any.whl#sha256=12", "has `#sha256=12` behind"),
        ("https://host.invalid/ours-1.0-py3-none-any.whl#md5=12", "has `#md5=12` behind"),
        (f"https://me:qzsecret@host.invalid/ours-1.0-py3-none-any.whl#sha256={HASH}", "a credential in the address of"),
        (f"https://host.invalid/ours-1.0-py3-none-any.whl?token=qzsecret#sha256={HASH}", "a credential in the address"),
        ("git+https://me:qzsecret@host.invalid/ours", "which cannot be pinned"),
        ("file:///srv/ours-1.0-py3-none-any.whl", "which cannot be pinned"),
        ("./ours-1.0.tar.gz", "which is no wheel"),
        ("./", "which is no wheel"),
        ("theirs @ ./ours-1.0-py3-none-any.whl", "says theirs of ours-1.0"),
        ("./torch-2.6.0-cp311-cp311-linux_x86_64.whl", "names a wheel of torch"),
    ],
)
def test_what_cannot_be_pinned_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        parse(f'torch = "2.6.0"\npython = "3.11"\npackages = ["{text}"]\n', Path("envkit.toml"))
    assert "qzsecret" not in f"{caught.value.message} {caught.value.fix}"


def test_the_command_that_gives_the_hash_is_told() -> None:
    with pytest.raises(UsageError) as caught:
        given.read("https://host.invalid/ours-1.0-py3-none-any.whl", "packages")
    assert "curl -fsSL https://host.invalid/ours-1.0-py3-none-any.whl | sha256sum" in caught.value.fix


def job(folder: Path, index: Index, packages: str) -> Spec:
    publish(index, "2.6.0", "3.11", "nvidia-cudnn-cu12")
    (folder / "envkit.toml").write_text(f'torch = "2.6.0"\npython = "3.11"\npackages = [{packages}]\n')
    return load(folder)


def apart(index: Index, folder: Path, *names: str, tag: str = "py3-none-any") -> Path:
    """A wheel that the index does not have, and needs einops, which it has."""
    index.add("einops", "0.8.1")
    pin = index.add("ours", "1.0", "einops", *names, tag=tag)
    (folder / "mine").mkdir()
    path = folder / "mine" / pin.file
    path.write_bytes(index.wheels.pop(pin.file))
    return path


class Looking(FakeEngine):
    """An engine that looks what its build finds that no index has."""

    def build(self, wish: BuildRequest, say: Say) -> BuiltImage:
        there = wish.contexts.get("unindexed")
        self.there = {str(path.relative_to(there)): path.read_bytes() for path in there.rglob("*.whl")} if there else {}
        return super().build(wish, say)


def test_a_wheel_by_path_is_locked_and_brought_into_the_build(index: Index, tmp_path: Path) -> None:
    path = apart(index, tmp_path)
    index.add("ours", "1.0", uploaded="2026-01-02T03:04:05.000000Z")  # another one of the same name and release
    spec = job(tmp_path, index, '"./mine/ours-1.0-py3-none-any.whl"')
    made = solve_lock(spec, load_facts(), quiet, may_stay_open=OPEN)
    pins = {pin.name: pin for pin in made.wheels}
    digest = sha256(path.read_bytes()).hexdigest()
    assert (pins["ours"].file, pins["ours"].sha256, "einops" in pins) == (path.name, digest, True)
    text = locks.dump(made)
    assert locks.parse(text, "x") == made and str(tmp_path) not in text
    assert problems(spec, made) == []
    held = requires.members(made, spec, load_facts(), quiet)
    assert (held["einops"].by, held["ours"].asked) == (("ours",), ("ours==1.0",))
    engine = Looking({})
    up.build(made, engine, quiet, wheels=spec.given)
    assert dockerfile(made).count("--mount=type=bind,from=unindexed,target=/unpacked") == 1
    assert engine.there == {path.name: path.read_bytes()}
    installed(made, spec, tmp_path)
    path.write_bytes(path.read_bytes() + b"\0")
    (problem,) = problems(load(tmp_path), made)
    assert problem.startswith(f"the spec asks for wheels {path.name} ") and digest in problem
    with pytest.raises(UsageError, match="not the one that the spec says"):
        up.build(made, engine, quiet, wheels=spec.given)
    path.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)


def installed(made: Lock, spec: Spec, folder: Path) -> None:
    """uv finds the wheel beside the context, by the hash of the lock."""
    pins = [pin for pin in made.wheels if pin.name in ("ours", "einops")]
    (folder / "context").mkdir()
    (folder / "context" / "requirements.txt").write_text(locks.requirements(pins))
    given.gather(spec.given, folder / "unindexed")
    request = BuildRequest(folder / "context", "one:1", 120, args={"PYTHON": sys.executable})
    LocalEngine(folder / "root").build(replace(request, contexts={"unindexed": folder / "unindexed"}), quiet)
    assert len([*(folder / "root").rglob("ours-*.dist-info")]) == 1


def test_a_wheel_by_address_is_fetched_once(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    index.add("einops", "0.8.1")
    pin = index.add("ours", "1.0", "einops")
    elsewhere = index.url.replace("/simple", f"/files/{pin.file}")
    spec = job(tmp_path, index, f'"{elsewhere}#sha256={pin.sha256}"')
    made = solve_lock(spec, load_facts(), quiet, may_stay_open=OPEN)
    assert {"ours", "einops"} <= {one.name for one in made.wheels}
    assert index.url not in locks.dump(made)
    locks.save(made, tmp_path / "envkit.lock")
    with Envkit(capsys) as envkit:
        checked = envkit("check", tmp_path / "envkit.lock")
    assert checked.code == 0 and "the spec asks for" not in checked.out
    content = index.wheels.pop(pin.file)
    given.gather(spec.given, tmp_path / "again")  # from the cache
    assert (tmp_path / "again" / pin.file).read_bytes() == content
    index.wheels[pin.file] = b"another"
    with pytest.raises(UsageError, match=r"has sha256 .*, not the one that the spec says"):
        given.here([replace(spec.given[0], sha256=HASH)])


def test_a_wheel_of_another_python_is_no_solution(index: Index, tmp_path: Path) -> None:
    apart(index, tmp_path, tag="cp39-cp39-manylinux_2_17_x86_64")
    spec = job(tmp_path, index, '"./mine/ours-1.0-cp39-cp39-manylinux_2_17_x86_64.whl"')
    said = r"ours-1\.0-cp39-cp39-manylinux_2_17_x86_64\.whl is not for Python 3\.11 on x86_64 with glibc 2\.36"
    with pytest.raises(Unsatisfiable, match=said):
        solve_lock(spec, load_facts(), quiet, may_stay_open=OPEN)


@pytest.mark.slow  # makes a whole lock
def test_a_vendored_folder_holds_it_with_the_others(index: Index, tmp_path: Path) -> None:
    pip = pip_wheel()
    index.wheels[pip.name] = pip.read_bytes()
    path = apart(index, tmp_path)
    spec = job(tmp_path, index, '"./mine/ours-1.0-py3-none-any.whl"')
    made = solve_lock(spec, load_facts(), quiet, may_stay_open=OPEN)
    few = replace(made, wheels=tuple(pin for pin in made.wheels if pin.name in ("ours", "einops")))
    vendor.fetch_wheels(few, Indexes(Access(index.url)), spec.given, tmp_path / "out")
    assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert {each.name.split("-")[0] for each in (tmp_path / "out").iterdir()} == {"ours", "einops", "uv"}
