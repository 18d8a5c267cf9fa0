"""The parts of a build of an image, each by itself: what the workshop is made of, and where the project's files go."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_prove import FakeEngine, layer, quiet, saved_image

from envkit.build import inside, up
from envkit.engine import Say
from envkit.engine.local import LocalEngine
from envkit.errors import UsageError
from envkit.plan import compiled
from envkit.plan import lockfile as locks
from envkit.plan.indexes import Indexes
from envkit.system.proc import Completed

STACK = Path(__file__).resolve().parents[1] / "images" / "torch-2.6-cu124"
LOCK = locks.parse((STACK / "envkit.lock").read_text(), "envkit.lock")


class Compiler(FakeEngine):
    """Keeps what it is asked to compile."""

    asked: tuple[object, ...] = ()

    def compile(
        self, image: str, argv: Sequence[str], given: Path, made: Path, *, timeout_s: float, say: Say
    ) -> Completed:
        self.asked = (image, argv, given, made, timeout_s)
        return Completed((), 7, "", "")


def test_a_workshop_is_the_devel_flavor_with_torch_alone_and_goes(tmp_path: Path) -> None:
    engine, said = Compiler(), list[str]()
    given, made = tmp_path / "given", tmp_path / "made"
    with up.workshop(LOCK, engine, Indexes(), said.append) as run:
        assert run(given, made, quiet).exit == 7 and engine.removed == []
    (request,) = engine.builds
    assert (request.target, request.passing, request.no_cache, request.offline) == ("devel", True, False, False)
    assert engine.asked[1:] == (compiled.ARGV, given, made, compiled.BUDGET_S)
    assert engine.removed == [engine.asked[0]]
    with pytest.raises(ZeroDivisionError), up.workshop(LOCK, engine, Indexes(), quiet):
        raise ZeroDivisionError
    assert len(engine.removed) == 2, "it goes whatever happens in it"


def test_a_project_lies_with_what_was_vendored_or_is_laid_out_from_its_spec(tmp_path: Path) -> None:
    assert up._project(LOCK, None, tmp_path / "v", tmp_path, quiet, Indexes()) == tmp_path / "v" / inside.STAGE
    with pytest.raises(UsageError) as caught:
        up._project(LOCK, None, None, tmp_path, quiet, Indexes())
    assert caught.value.message == "the lock names a project, and no spec says where that is"
    assert caught.value.fix == "build it from its spec"


def test_the_wheel_of_a_project_lies_beside_the_others(tmp_path: Path) -> None:
    staged, context = tmp_path / "staged", tmp_path / "context"
    (staged / "wheel").mkdir(parents=True)
    context.mkdir()
    (staged / "wheel" / "own.whl").write_bytes(b"own")
    (staged / "wheel" / "other.txt").write_bytes(b"x")
    (staged / inside.WHEELS).write_text("own==1\n")
    (context / "requirements.txt").write_text("torch==2\n")
    contexts: dict[str, Path] = {}
    up._beside_the_others(staged, context, contexts, tmp_path)
    assert contexts == {"unindexed": tmp_path / "unindexed"}
    assert [path.name for path in contexts["unindexed"].iterdir()] == ["own.whl"]
    assert (context / "requirements.txt").read_text() == "torch==2\nown==1\n"
    there = {"unindexed": tmp_path / "there"}
    (tmp_path / "there").mkdir()
    up._beside_the_others(staged, context, there, tmp_path)
    assert (tmp_path / "there" / "own.whl").read_bytes() == b"own"


def test_what_is_no_image_is_written_into_no_archive(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a virtual environment is no image"):
        up.write_archive(LocalEngine(tmp_path), "job:1", tmp_path / "image.tar", quiet)
    assert not (tmp_path / "image.tar").exists()


def test_an_archive_is_written_whole_under_the_images_name(tmp_path: Path) -> None:
    class Saves(FakeEngine):
        def save(self, image: str, target: Path) -> None:
            target.write_bytes(saved_image((layer(a=b"a"),), image))

    said: list[str] = []
    for number, (name, full) in enumerate([("job", "job:latest"), ("host:5000/job:2", "host:5000/job:2")]):
        target = tmp_path / f"{number}.tar"
        written = up.write_archive(Saves(), name, target, said.append)
        assert written.size == len(layer(a=b"a")) and target.stat().st_mode & 0o777 == 0o644
        with tarfile.open(target) as archive:
            listed = archive.extractfile("manifest.json")
            assert listed is not None and json.loads(listed.read())[0]["RepoTags"] == [full]
    assert said[:2] == ["saving job", f"wrote {tmp_path}/0.tar: 0.00 GB"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.tar", "1.tar"]
