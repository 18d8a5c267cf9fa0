"""The whole main job over an engine that keeps everything in memory: what is written, built, run and reported."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from test_prove import FakeEngine, probe_document, quiet, said, smoke_document

from envkit import lock as locks
from envkit import prove, render
from envkit import up as pipeline
from envkit.errors import Interrupted, Undecided, Unsatisfiable, UsageError
from envkit.facts import Facts
from envkit.facts import load as load_facts
from envkit.judge import checks
from envkit.lock import Lock
from envkit.model import Outcome, Report
from envkit.proc import Completed
from envkit.report import render as report_text
from envkit.spec import Spec
from envkit.spec import load as load_spec
from envkit.subjects import Image, SmokeRun, codec

IMAGES = Path(__file__).parent.parent / "images"
REFERENCE = "torch-2.6-cu124"

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the recorded images are of x86_64")


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts()


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """The reference spec with its lock, in a folder of its own."""
    return copied(tmp_path / REFERENCE)


def copied(folder: Path, name: str = REFERENCE) -> Spec:
    folder.mkdir()
    for part in ("envkit.toml", "envkit.lock"):
        (folder / part).write_text((IMAGES / name / part).read_text())
    return load_spec(folder)


def locked(spec: Spec) -> Lock:
    found = locks.load(spec)
    assert found is not None
    return found


def healthy() -> FakeEngine:
    return FakeEngine({"probe": said(probe_document()), "smoke": said(smoke_document())})


def names(spec: Spec) -> list[str]:
    return sorted(path.name for path in spec.path.parent.iterdir())


def run(spec: Spec, facts: Facts, fake: FakeEngine) -> Report:
    return pipeline.up(spec, facts, fake, quiet, gpus=())[0]


# The whole way.


def test_up_builds_what_was_rendered_and_judges_image_and_smoke(spec: Spec, facts: Facts) -> None:
    fake = healthy()
    said_lines: list[str] = []
    report, tables = pipeline.up(spec, facts, fake, said_lines.append, gpus=("0",))
    made = locked(spec)
    assert names(spec) == ["Dockerfile", "envkit.lock", "envkit.toml"]
    assert (spec.path.parent / "Dockerfile").read_text() == render.dockerfile(made)
    assert fake.contexts == [
        {
            "Dockerfile": render.dockerfile(made),
            "envkit.lock": locks.dump(made),
            "requirements.txt": made.requirements,
        }
    ]
    (built,) = fake.builds
    assert built["tag"] == f"envkit/{REFERENCE}:latest"
    assert built["args"] == {"BASE": made.image, "SOURCE_DATE_EPOCH": str(made.epoch)}
    assert locks.parse(built["labels"][prove.LOCK_LABEL], "label") == made
    assert [run["argv"][0] for run in fake.runs] == ["probe", "smoke"]
    assert {(run["image"], run["gpus"]) for run in fake.runs} == {(built["tag"], ("0",))}
    kinds = {check.id: check.subject for check in checks().values()}
    judged = {kinds[result.check] for result in report.results}
    assert judged == {Image, SmokeRun}
    assert sum(kinds[result.check] is Image for result in report.results) == sum(
        kind is Image for kind in kinds.values()
    )
    assert [table.title.split()[0] for table in tables] == ["libraries", "smoke"]
    assert all(table.rows for table in tables)
    assert any("probing" in line for line in said_lines)


def test_up_of_the_recorded_reference_image_is_green(spec: Spec, facts: Facts) -> None:
    report = run(spec, facts, healthy())
    assert [(result.check, result.findings, result.reason) for result in report.results
            if result.outcome in (Outcome.FAIL, Outcome.BROKE, Outcome.UNKNOWN)] == []  # fmt: skip
    assert report.exit_code() == 0


def test_the_report_holds_what_was_observed(spec: Spec, facts: Facts) -> None:
    report = run(spec, facts, healthy())
    document = json.loads(report_text(report, "json"))
    assert document["subject"] == {"kind": "up", "name": REFERENCE}
    observed = document["observed"]
    assert codec.from_plain(Image, observed["image"]).digest == "sha256:" + "a" * 64
    assert codec.from_plain(SmokeRun, observed["smoke"]).name == f"envkit/{REFERENCE}:latest"
    assert observed["build"]["engine"] == "fake"
    assert observed["build"]["size_bytes"] == 1_500_000_000
    assert observed["build"]["lock_sha256"] == sha256(locks.dump(locked(spec)).encode()).hexdigest()


def test_an_image_that_is_not_what_was_locked_is_found(spec: Spec, facts: Facts) -> None:
    """The probe saw cuDNN of another release than the lock's."""
    fake = FakeEngine({"probe": said(probe_document("torch-2.6-cudnn-9.0")), "smoke": said(smoke_document())})
    report = run(spec, facts, fake)
    assert report.exit_code() == 1
    assert any(result.outcome is Outcome.FAIL and "cudnn" in result.check for result in report.results), report.results


def test_a_smoke_run_that_was_not_observed_is_undecided(spec: Spec, facts: Facts) -> None:
    fake = FakeEngine({"probe": said(probe_document()), "smoke": said({"schema": "envkit.payload/1", "kind": "smoke"})})
    assert run(spec, facts, fake).exit_code() == 3


def test_a_sabotaged_smoke_run_is_red(spec: Spec, facts: Facts) -> None:
    recorded = json.loads((Path(__file__).parent / "data" / "smoke" / f"{REFERENCE}-cpu-sabotage-nan.json").read_text())
    document = {**smoke_document(), "tests": recorded["tests"]["value"]}
    fake = FakeEngine({"probe": said(probe_document()), "smoke": said(document)})
    assert run(spec, facts, fake).exit_code() == 1


def test_a_second_run_writes_nothing_anew(spec: Spec, facts: Facts) -> None:
    run(spec, facts, healthy())
    before = {name: (spec.path.parent / name).stat().st_ino for name in names(spec)}
    run(spec, facts, healthy())
    assert {name: (spec.path.parent / name).stat().st_ino for name in names(spec)} == before


def test_a_dockerfile_that_somebody_changed_is_rendered_again(spec: Spec) -> None:
    made = locked(spec)
    path = spec.path.with_name("Dockerfile")
    path.write_bytes(b"\xff\xfe no text")
    pipeline.write_dockerfile(spec, made)
    assert path.read_text() == render.dockerfile(made)


# What goes wrong.


@pytest.mark.parametrize(
    "failure",
    [Undecided("the registry does not answer"), UsageError("a word is wrong"), Undecided("the disk is full")],
)
def test_a_build_that_fails_leaves_whole_files_and_no_run(spec: Spec, facts: Facts, failure: Exception) -> None:
    fake = healthy()
    fake.failure = failure
    with pytest.raises(type(failure), match=str(failure)):
        run(spec, facts, fake)
    assert fake.runs == []
    assert names(spec) == ["Dockerfile", "envkit.lock", "envkit.toml"]
    assert (spec.path.parent / "Dockerfile").read_text() == render.dockerfile(locked(spec))


def test_a_stop_on_the_way_goes_through(spec: Spec, facts: Facts, tmp_path: Path) -> None:
    """Interrupted is no Exception, so nothing that handles errors may keep it."""

    class Stopped(FakeEngine):
        def labels(self, image: str) -> dict[str, str]:
            raise Interrupted("SIGINT")

    with pytest.raises(Interrupted):
        run(spec, facts, Stopped({"probe": said(probe_document())}))
    assert names(spec) == ["Dockerfile", "envkit.lock", "envkit.toml"]


@pytest.mark.parametrize("verb", ["probe", "smoke"])
def test_a_payload_that_dies_is_undecided_with_its_last_words(spec: Spec, facts: Facts, verb: str) -> None:
    fake = healthy()
    fake.answers[verb] = Completed((), 137, "", "libgomp: cannot allocate\n")
    with pytest.raises(Undecided, match=r"ended with 137 and left no document:\n  \| libgomp: cannot allocate"):
        run(spec, facts, fake)


def test_a_garbled_document_is_undecided(spec: Spec, facts: Facts) -> None:
    fake = healthy()
    fake.answers["probe"] = said({"schema": "envkit.payload/1", "kind": "probe", "image": {}})
    with pytest.raises(Undecided, match="malformed"):
        run(spec, facts, fake)


def test_a_wish_that_the_facts_forbid_builds_nothing(tmp_path: Path, facts: Facts) -> None:
    (tmp_path / "envkit.toml").write_text('torch = "2.6.0"\npython = "3.11"\ncuda = "12.1"\n')
    fake = healthy()
    with pytest.raises(Unsatisfiable):
        run(load_spec(tmp_path), facts, fake)
    assert (fake.builds, fake.wishes, sorted(os.listdir(tmp_path))) == ([], [], ["envkit.toml"])


def test_a_lock_that_cannot_be_made_leaves_the_old_one(
    spec: Spec, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(spec.path.parent.parent / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    before = locks.path_of(spec).read_bytes()
    spec.path.write_text(spec.path.read_text().replace('packages = ["numpy"]', 'packages = ["numpy", "einops"]'))
    with pytest.raises(Undecided):
        run(load_spec(spec.path), facts, healthy())
    assert locks.path_of(spec).read_bytes() == before
    assert names(spec) == ["envkit.lock", "envkit.toml"]


# The parts.


def test_ensure_lock_takes_the_one_that_answers(spec: Spec, facts: Facts) -> None:
    assert pipeline.ensure_lock(spec, facts, quiet) == locked(spec)


def test_a_lock_for_another_machine_is_not_built_here(spec: Spec) -> None:
    with pytest.raises(UsageError, match="the lock is for linux/arm64, this machine is x86_64"):
        pipeline.build(replace(locked(spec), platform="linux/arm64"), healthy(), quiet)


def test_a_base_with_torch_inside_needs_a_container_engine(tmp_path: Path) -> None:
    made = locked(copied(tmp_path / "torch-2.6-cu124-pytorch", "torch-2.6-cu124-pytorch"))
    fake = healthy()
    fake.name = "local"
    with pytest.raises(UsageError, match="needs a container engine"):
        pipeline.build(made, fake, quiet)
    assert fake.builds == []


def test_the_local_engine_is_told_the_python(spec: Spec) -> None:
    fake = healthy()
    fake.name = "local"
    pipeline.build(locked(spec), fake, quiet)
    assert fake.builds[0]["args"]["PYTHON"] == "3.11"


def test_a_build_takes_tag_and_no_cache(spec: Spec) -> None:
    fake = healthy()
    built = pipeline.build(locked(spec), fake, quiet, tag="mine:7", no_cache=True)
    assert (built.image.tag, fake.builds[0]["no_cache"]) == ("mine:7", True)
    assert built.base.ref == locked(spec).image


def test_the_labels_say_where_the_base_came_from(spec: Spec) -> None:
    fake = healthy()
    pipeline.build(locked(spec), fake, quiet)
    labels = fake.builds[0]["labels"]
    assert labels["io.envkit.base.how"] == "local"
    assert labels["org.opencontainers.image.base.digest"] == "sha256:" + "c" * 64
    assert labels["org.opencontainers.image.created"].endswith("+00:00")
    assert all(value for value in labels.values())


def test_the_base_is_asked_for_as_pinned(spec: Spec) -> None:
    fake = healthy()
    pipeline.build(replace(locked(spec), digest="sha256:" + "d" * 64), fake, quiet)
    (wish,) = fake.wishes
    assert (wish.suite, wish.digest) == ("bookworm", "sha256:" + "d" * 64)


def test_engines_have_names() -> None:
    with pytest.raises(UsageError, match="there is no engine `moby`") as caught:
        pipeline.connect("moby", quiet)
    assert "docker, local, auto" in caught.value.fix
    assert pipeline.connect("local", quiet).name == "local"


def test_without_docker_auto_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    said_lines: list[str] = []
    assert pipeline.connect("auto", said_lines.append).name == "local"
    assert "--engine local" in said_lines[-1]
    with pytest.raises(Undecided) as caught:
        pipeline.connect("docker", quiet)
    assert "--engine local" in caught.value.fix


def test_the_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert pipeline.cache_dir() == tmp_path / "envkit"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert pipeline.cache_dir() == Path.home() / ".cache" / "envkit"
