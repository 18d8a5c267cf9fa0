"""What a launch saw of an engine's image is kept: the next one reads no files, and says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_prove import FakeEngine, layer

from envkit.host.root import HostRoot
from envkit.launch import docker_options, launch
from envkit.subjects import Host, Launch
from envkit.subjects.declared import Job

IMAGE = "team/job:1"
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n"
FILES = layer(**{"etc/passwd": PASSWD, "usr/bin/python3": b"\x7fELF", "data/file": b"x"})
OTHER = layer(**{"etc/passwd": b"", "usr/bin/python3": b"\x7fELF"})


@dataclass
class Counting(FakeEngine):
    """Counts how often an image is read."""

    read: int = 0

    def save(self, image: str, target: Path) -> None:
        self.read += 1
        super().save(image, target)


@pytest.fixture
def engine() -> Counting:
    return Counting(contents={IMAGE: (FILES,)})


def job(*command: str, env: Sequence[str] = (), volume: str = "/tmp:/data") -> Job:
    return docker_options.job_from(gpus="none", env=env, mounts=[volume], command=command or ("python3", "train.py"))


def seen(engine: Counting, asked: Job, kept: Path | None) -> Launch:
    place = HostRoot(Path("/"), {})
    return launch.observe(IMAGE, Host("here"), asked, lambda: engine, lambda line: None, place, kept)


def plain(made: Launch) -> Launch:
    """Without what changes from one look at this machine to the next."""
    from dataclasses import replace

    return replace(made, job=replace(made.job, mounts=job().mounts))


def test_the_second_launch_reads_nothing_and_is_the_same(engine: Counting, tmp_path: Path) -> None:
    bare = plain(seen(engine, job(), None))
    first = plain(seen(engine, job(), tmp_path))
    assert (first, engine.read) == (bare, 2)
    second = plain(seen(engine, job("python3", "other.py", "--lr", "1"), tmp_path))
    assert engine.read == 2
    assert second.image == first.image and second.accounts == first.accounts and second.paths == first.paths
    assert second.job.command.value == ("python3", "other.py", "--lr", "1")
    (record,) = tmp_path.glob("*.json")
    assert record.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "other",
    [job("sh"), job(env=["HF_HOME=/data/file"]), job(volume="/tmp:/other")],
    ids=["program", "variable", "mount"],
)
def test_another_question_is_asked_of_the_image(engine: Counting, tmp_path: Path, other: Job) -> None:
    seen(engine, job(), tmp_path)
    assert plain(seen(engine, other, tmp_path)) == plain(seen(engine, other, None))
    assert engine.read == 3


def test_another_content_of_the_same_name_is_read(engine: Counting, tmp_path: Path) -> None:
    assert seen(engine, job(), tmp_path).accounts.value
    engine.contents[IMAGE] = (OTHER,)
    assert seen(engine, job(), tmp_path).accounts.value == ()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"config": 1}', '"x"'])
def test_a_damaged_record_is_none(engine: Counting, tmp_path: Path, text: str) -> None:
    first = seen(engine, job(), tmp_path)
    (record,) = tmp_path.glob("*.json")
    record.write_text(text)
    assert plain(seen(engine, job(), tmp_path)) == plain(first)
    assert engine.read == 2 and len(record.read_text()) > 100


def test_no_secret_of_the_image_is_kept() -> None:
    env = ["HF_TOKEN=hf_thisistheonethatnobodymaysee", "PATH=/usr/bin", "CUDA_VISIBLE_DEVICES=0", "OTHER=x"]
    told = launch._told({"Env": env, "Labels": {"a": "b"}, "User": "ada"})
    assert told == {"User": "ada", "Env": ["PATH=/usr/bin", "CUDA_VISIBLE_DEVICES=0"]}
    assert launch._told({}) == {}


def test_the_code_that_looked_is_every_module_of_it(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", "b/d.txt", "b/e/f.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert sorted(each.name for each in launch._modules(str(tmp_path))) == ["a.py", "c.py", "f.py"]


def test_few_records_are_kept(engine: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_MOST_RECORDS", 2)
    for number in range(4):
        seen(engine, job(volume=f"/tmp:/data{number}"), tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 2
