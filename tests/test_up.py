"""The whole main job over an engine that keeps everything in memory: what is written, built, run and reported."""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from archive import DATED, Archive, installed, needs_apt
from elves import packed
from index import Index, Publish
from test_audit import stack, system
from test_prove import FakeEngine, content_id, layer, probe_document, quiet, said, smoke_document

from envkit.build import render
from envkit.build import up as pipeline
from envkit.engine import CONTAINERS, Ability, BuildRequest, BuiltImage, ResolvedBase, Say
from envkit.engine.choice import ENGINES, connect
from envkit.errors import Interrupted, Undecided, Unsatisfiable, UsageError
from envkit.facts import Facts
from envkit.facts import load as load_facts
from envkit.judging.judge import checks
from envkit.model import Outcome, Report
from envkit.plan import lockfile as locks
from envkit.plan import wheels
from envkit.plan.apt import Base, NoBase
from envkit.plan.apt import solve as solve_debs
from envkit.plan.lockfile import Lock
from envkit.plan.resolve import resolve
from envkit.plan.spec import Spec
from envkit.plan.spec import load as load_spec
from envkit.plan.update import base_of, base_request, debs_of, ensure_lock
from envkit.report import render as report_text
from envkit.runner import runner
from envkit.subjects import Audit, Image, SmokeRun, codec
from envkit.system import proc
from envkit.system.files import cache_dir
from envkit.system.proc import Completed

IMAGES = Path(__file__).parent.parent / "images"
REFERENCE = "torch-2.6-cu124"
SOUND = (packed(system()), packed(dict(stack())))  # the layers of a small image in which all is as it should be

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the recorded images are of x86_64")


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts()


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    """The reference spec with its lock, in a folder of its own, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return copied(tmp_path / REFERENCE)


def copied(folder: Path) -> Spec:
    """The spec, and its lock without setuptools, which the image did not have yet when it was recorded."""
    folder.mkdir()
    (folder / "envkit.toml").write_text((IMAGES / REFERENCE / "envkit.toml").read_text())
    whole = locks.parse((IMAGES / REFERENCE / "envkit.lock").read_text(), REFERENCE)
    then = tuple(pin for pin in whole.wheels if pin.name != "setuptools")
    locks.save(replace(whole, wheels=then), folder / "envkit.lock")
    return load_spec(folder)


def locked(spec: Spec) -> Lock:
    found = locks.load(spec)
    assert found is not None
    return found


def healthy() -> FakeEngine:
    made = FakeEngine({"probe": said(probe_document()), "smoke": said(smoke_document())})
    made.makes = (SOUND,)
    made.files["/var/lib/dpkg/status"] = installed(("libc6", "2.36"))
    return made


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
            "requirements.txt": locks.requirements(pin for pin in made.wheels if pin.layer == "runtime"),
        }
    ]
    (built,) = fake.builds
    assert (built.tag, built.target) == (f"envkit/{REFERENCE}:latest", "runtime")
    newest = max(made.epoch, render.apt_epoch(made))
    assert built.args == {"BASE": made.image, "SOURCE_DATE_EPOCH": str(newest)}
    assert locks.parse(built.labels[runner.LOCK_LABEL], "label") == made
    assert [run["argv"][0] for run in fake.runs] == ["probe", "smoke"]
    assert {(run["image"], run["gpus"]) for run in fake.runs} == {(built.tag, ("0",))}
    kinds = {check.id: check.subjects[0] for check in checks().values()}
    judged = {kinds[result.check] for result in report.results}
    assert judged == {Audit, Image, SmokeRun}
    assert sum(kinds[result.check] is Image for result in report.results) == sum(
        kind is Image for kind in kinds.values()
    )
    assert [table.title.split()[0] for table in tables] == ["what", "libraries", "copies", "smoke"]
    assert all(table.rows for table in tables)
    assert any("probing" in line for line in said_lines)


def test_up_of_the_recorded_reference_image_is_green(spec: Spec, facts: Facts) -> None:
    report = run(spec, facts, healthy())
    assert [(result.check, result.findings, result.reason) for result in report.results
            if result.outcome in (Outcome.FAIL, Outcome.CRASHED, Outcome.UNKNOWN)] == []  # fmt: skip
    assert report.exit_code() == 0


def test_up_says_on_what_it_stands_and_a_required_gpu_must_have_had_a_part(spec: Spec, facts: Facts) -> None:
    """The recorded probe and suite saw no GPU: exit code 0 with that said, and undecided where a GPU is required."""
    report = run(spec, facts, healthy())
    assert (report.coverage.files, report.coverage.cpu, report.coverage.gpus) == (True, True, ())
    assert report.coverage.left > 0
    first = report_text(report, "console").splitlines()[0]
    assert first.startswith(f"PASS on files and CPU: up {REFERENCE}: ")
    needed = pipeline.up(spec, facts, healthy(), quiet, gpus=(), require_gpu=True)[0]
    assert needed.exit_code() == 3
    assert [result.check for result in needed.results if result.outcome is Outcome.UNKNOWN] == ["required-gpu"] * 2


def test_the_report_holds_what_was_observed(spec: Spec, facts: Facts) -> None:
    report = run(spec, facts, healthy())
    document = json.loads(report_text(report, "json"))
    assert document["subject"] == {"kind": "up", "name": REFERENCE}
    observed = document["observed"]
    assert codec.from_plain(Image, observed["image"]).digest == content_id(SOUND)
    assert codec.from_plain(SmokeRun, observed["smoke"]).name == f"envkit/{REFERENCE}:latest"
    assert observed["build"]["engine"] == "fake"
    assert observed["build"]["size_bytes"] == 1_500_000_000
    assert observed["build"]["lock_sha256"] == sha256(locks.dump(locked(spec)).encode()).hexdigest()


def test_an_image_that_is_not_what_was_locked_is_found(spec: Spec, facts: Facts) -> None:
    """The probe saw cuDNN of another release than the lock's."""
    fake = healthy()
    fake.answers["probe"] = said(probe_document("torch-2.6-cudnn-9.0"))
    report = run(spec, facts, fake)
    assert report.exit_code() == 1
    assert any(result.outcome is Outcome.FAIL and "cudnn" in result.check for result in report.results), report.results


def test_a_smoke_run_that_was_not_observed_is_undecided(spec: Spec, facts: Facts) -> None:
    fake = FakeEngine({"probe": said(probe_document()), "smoke": said({"schema": "envkit.payload/1", "kind": "smoke"})})
    assert run(spec, facts, fake).exit_code() == 3


def test_a_disturbed_smoke_run_is_red(spec: Spec, facts: Facts) -> None:
    recorded = json.loads(
        (Path(__file__).parent / "data" / "smoke" / f"{REFERENCE}-cpu-inject-fault-all.json").read_text()
    )
    red = [{**test, "injected_fault": ""} for test in recorded["tests"]["value"] if test.get("injected_fault") == "ulp"]
    document = {**smoke_document(), "tests": red}
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
    with pytest.raises(
        Undecided, match=r"ended with exit code 137 before it ran a line of the payload: libgomp: cannot allocate"
    ):
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


@pytest.mark.usefixtures("no_mirrors")
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
    assert ensure_lock(spec, facts, lambda: None, quiet) == locked(spec)


def test_a_lock_for_another_machine_is_not_built_here(spec: Spec) -> None:
    with pytest.raises(UsageError, match="the lock is for linux/arm64, this machine is x86_64"):
        pipeline.build(replace(locked(spec), platform="linux/arm64"), healthy(), quiet)


def test_a_base_with_torch_inside_needs_a_container_engine(spec: Spec) -> None:
    made = replace(locked(spec), base="pytorch", preinstalled=True)
    fake = healthy()
    fake.containers = False
    with pytest.raises(UsageError, match="needs a container engine"):
        pipeline.build(made, fake, quiet)
    assert fake.builds == []


def test_the_local_engine_is_told_the_python(spec: Spec) -> None:
    fake = healthy()
    fake.containers = False
    pipeline.build(locked(spec), fake, quiet)
    assert fake.builds[0].args["PYTHON"] == "3.11"


def test_a_build_takes_tag_and_no_cache(spec: Spec) -> None:
    fake = healthy()
    built = pipeline.build(locked(spec), fake, quiet, tag="mine:7", no_cache=True)
    assert (built.image.tag, fake.builds[0].tag, fake.builds[0].no_cache) == ("mine:7", "mine:7", True)
    assert built.base.ref == locked(spec).image


def test_the_labels_say_where_the_base_came_from(spec: Spec) -> None:
    fake = healthy()
    pipeline.build(locked(spec), fake, quiet)
    labels = fake.builds[0].labels
    assert labels["io.envkit.flavor"] == "runtime"
    assert labels["org.opencontainers.image.base.name"] == locked(spec).image
    assert labels["org.opencontainers.image.base.digest"] == "sha256:" + "c" * 64
    assert labels["org.opencontainers.image.created"].endswith("+00:00")
    assert all(value for value in labels.values())


@pytest.mark.parametrize(("flavor", "tag"), [("", "latest"), ("runtime", "latest"), ("debug", "debug")])
def test_a_flavor_is_a_target_with_a_tag_and_wheels_of_its_own(spec: Spec, flavor: str, tag: str) -> None:
    fake, made = healthy(), locked(spec)
    pipeline.build(made, fake, quiet, flavor=flavor)
    (wish,) = fake.builds
    target = flavor or "runtime"
    assert (wish.target, wish.tag) == (target, f"envkit/{REFERENCE}:{tag}")
    assert wish.labels["io.envkit.flavor"] == target
    names = {line.partition("==")[0] for line in fake.contexts[0]["requirements.txt"].splitlines()}
    assert names == {pin.name for pin in made.wheels if pin.layer == "runtime" or target == "debug"}
    assert {pin.layer for pin in made.wheels} == {"runtime", "debug"}
    assert fake.contexts[0]["Dockerfile"] == render.dockerfile(made)


def test_this_machines_uv_stands_in_for_the_installer_if_it_is_the_locked_one(spec: Spec) -> None:
    fake, made = healthy(), locked(spec)
    for version in (wheels.uv_version(), "0.0.1"):
        pipeline.build(replace(made, installer=replace(made.installer, version=version)), fake, quiet)
    assert [set(wish.contexts) for wish in fake.builds] == [{"installer"}, set()]
    assert not fake.builds[0].offline


def test_the_installer_is_handed_over_from_the_same_place_with_its_own_time(spec: Spec) -> None:
    fake, made = healthy(), locked(spec)
    made = replace(made, installer=replace(made.installer, version=wheels.uv_version()))
    pipeline.build(made, fake, quiet)
    given = fake.builds[0].contexts["installer"]
    own, first = Path(proc.uv_path()), (given / "uv").stat()
    assert os.listdir(given) == ["uv"]
    assert (given / "uv").read_bytes() == own.read_bytes()
    assert (first.st_mtime_ns, first.st_mode) == (own.stat().st_mtime_ns, own.stat().st_mode)
    pipeline.build(made, fake, quiet)
    assert fake.builds[1].contexts["installer"] == given
    assert os.path.samestat((given / "uv").stat(), first)
    (given / "uv").write_bytes(b"of an earlier envkit")
    pipeline.build(made, fake, quiet)
    assert (given / "uv").read_bytes() == own.read_bytes()
    assert os.listdir(given.parent) == [given.name]


def test_a_vendored_build_has_no_network_and_asks_no_registry(spec: Spec, tmp_path: Path) -> None:
    fake, made = healthy(), locked(spec)
    folder = tmp_path / "vendored"
    folder.mkdir()
    built = pipeline.build(made, fake, quiet, vendored=folder)
    (wish,) = fake.builds
    assert wish.offline
    assert wish.contexts["vendor"] == folder
    assert fake.loads == [folder / "base.tar"]
    assert (built.base.how, wish.args["BASE"]) == ("vendored", "vendored:base")
    assert fake.wishes == [base_request(made)]  # load's alone


def test_a_mirror_for_old_packages_is_told_to_the_build(spec: Spec) -> None:
    fake = healthy()
    pipeline.build(locked(spec), fake, quiet, apt_mirror="http://mirror.invalid/{archive}/{date}")
    pipeline.build(locked(spec), fake, quiet)
    assert fake.builds[0].args["APT_MIRROR"] == "http://mirror.invalid/{archive}/{date}"
    assert "APT_MIRROR" not in fake.builds[1].args


# Locking.


def test_the_base_of_a_lock_is_what_the_engine_holds(spec: Spec, facts: Facts) -> None:
    fake = healthy()
    fake.files["/var/lib/dpkg/status"] = b"Package: a\n"
    digest = "sha256:" + "c" * 64
    assert base_of(lambda: fake, quiet, resolve(spec, facts)) == Base(digest, "registry", b"Package: a\n")
    (wish,) = fake.wishes
    assert (wish.ref, wish.suite, wish.digest) == ("debian:12-slim", "bookworm", "")  # today's, not the locked one
    for how, content, origin in (
        ("bootstrapped", digest, "packages"),
        ("local", "", ""),
        ("registry", digest, "registry"),
    ):
        fake.base = ResolvedBase("base", "sha256:" + "b" * 64, how, content)
        found = base_of(lambda: fake, quiet, resolve(spec, facts))
        assert found is not None
        assert (found.digest, found.origin) == (content, origin)


def test_without_a_container_engine_nothing_is_known_of_a_base(spec: Spec, facts: Facts) -> None:
    fake = healthy()
    fake.containers = False
    with pytest.raises(Undecided, match="a base can only be examined with a container engine"):
        base_of(lambda: fake, quiet, resolve(spec, facts))
    with pytest.raises(NoBase, match="--engine none examines no base"):
        base_of(lambda: None, quiet, resolve(spec, facts))
    assert fake.wishes == []


def test_a_base_without_a_package_list_is_refused(spec: Spec, facts: Facts) -> None:
    with pytest.raises(UsageError, match="has no file /var/lib/dpkg/status"):
        base_of(lambda: FakeEngine(), quiet, resolve(spec, facts))


WISH = 'torch = "2.6.0"\npython = "3.11"\n'


def wished(folder: Path, index: Index, published: Publish, text: str = "") -> Spec:
    """A spec in ``folder`` that the index can answer."""
    published("2.6.0", "3.11", "nvidia-cudnn-cu12", text=text)
    folder.mkdir(exist_ok=True)
    (folder / "envkit.toml").write_text(WISH + text)
    return load_spec(folder)


def test_a_lock_is_made_and_written_and_then_kept(
    index: Index, published: Publish, tmp_path: Path, facts: Facts
) -> None:
    spec = wished(tmp_path / "job", index, published)
    said_lines: list[str] = []
    made = ensure_lock(spec, facts, lambda: None, said_lines.append, may_stay_open=locks.PARTS)
    assert locks.load(spec) == made
    assert (made.digest, made.archive, made.debs) == ("", "", ())
    assert any("does not exist yet, locking" in line for line in said_lines)
    assert f"{len(made.wheels)} wheels, 0 Debian packages" in said_lines[-1]
    index.status = 500  # whoever asks it now fails
    assert ensure_lock(spec, facts, lambda: None, quiet) == made


def test_a_lock_for_another_wish_is_made_again_and_keeps_what_fits(
    index: Index, published: Publish, tmp_path: Path, facts: Facts
) -> None:
    spec = wished(tmp_path / "job", index, published)
    first = ensure_lock(spec, facts, lambda: None, quiet, may_stay_open=locks.PARTS)
    index.add("setuptools", "81.0.0")
    index.add("einops", "0.8.1")
    spec.path.write_text(WISH + 'packages = ["einops"]\n')
    said_lines: list[str] = []
    again = ensure_lock(load_spec(spec.path), facts, lambda: None, said_lines.append, may_stay_open=locks.PARTS)
    assert any("is for another spec, locking again" in line for line in said_lines)
    assert {pin.name for pin in again.wheels} - {pin.name for pin in first.wheels} == {"einops"}
    assert set(first.wheels) < set(again.wheels)


@pytest.mark.slow  # three whole locks with Debian packages
@needs_apt
@pytest.mark.usefixtures("no_mirrors")
def test_a_new_base_brings_new_debian_packages_and_the_wheels_stay(
    index: Index, published: Publish, tmp_path: Path, facts: Facts
) -> None:
    """First by name alone, then against a base, then against today's; the lists are those of a hand-made archive."""
    spec = wished(tmp_path / "job", index, published)
    by_name = ensure_lock(spec, facts, lambda: None, quiet, may_stay_open=locks.PARTS)
    index.add("setuptools", "81.0.0")
    extras = resolve(spec, facts).extras
    archive = Archive(tmp_path / "archive")
    for name in sorted({name for names in extras.apt.values() for name in names}):
        archive.add(name, "1.0")
    archive.publish()
    solve_debs(b"", "bookworm", extras.components, {}, "x86_64", cache_dir(), quiet, mirrors=archive.lines)
    fake = healthy()
    assert ensure_lock(spec, facts, lambda: fake, quiet) == by_name  # it answers; nothing is asked
    assert fake.wishes == []
    seen = ensure_lock(spec, facts, lambda: fake, quiet, refresh_os=True)
    assert (seen.digest, seen.origin, seen.archive) == ("sha256:" + "c" * 64, "registry", DATED)
    assert {deb.name for deb in seen.debs} == {name for names in extras.apt.values() for name in names}
    assert seen.wheels == by_name.wheels
    assert locks.load(spec) == seen
    assert debs_of(seen) == tuple(sorted({deb.name for deb in seen.debs}))
    # What is a day young is not good enough for the next one: the mirrors are asked, of which there are none here.
    before = locks.path_of(spec).read_bytes()
    told = "no Debian mirror.*; the Debian packages would not be pinned; the existing lock"
    with pytest.raises(Undecided, match=told):
        ensure_lock(spec, facts, lambda: fake, quiet, refresh_os=True)
    assert locks.path_of(spec).read_bytes() == before
    # And where no container is built, there is nothing to refresh.
    assert ensure_lock(spec, facts, lambda: None, quiet, refresh_os=True) == seen


# Building twice.

BASE = layer(os=b"debian")
FIRST = (BASE, layer(a=b"1", b=b"2"))
OTHER = (BASE, layer(a=b"1", b=b"3"))


def of_registry(spec: Spec) -> Lock:
    """The reference lock on a base that is not made here, so that it is not made once more."""
    return replace(locked(spec), origin="registry")


def test_two_builds_that_are_the_same(spec: Spec) -> None:
    fake = healthy()
    fake.makes = (FIRST,)
    built, verdict = pipeline.verify(of_registry(spec), fake, quiet, flavor="devel", apt_mirror="http://m.invalid/")
    assert verdict.same
    assert verdict.differences == ()
    assert verdict.layers[0] == verdict.layers[1] == fake.layers(built.image.tag)
    assert len(verdict.layers[0]) == 2
    assert [wish.no_cache for wish in fake.builds] == [True, True]
    assert {(wish.target, wish.args["APT_MIRROR"]) for wish in fake.builds} == {("devel", "http://m.invalid/")}
    assert list(fake.images) == [built.image.tag] == [f"envkit/{REFERENCE}:devel"]
    assert fake.removed == [fake.builds[1].tag]


def test_two_builds_that_differ_name_the_first_file_that_does(spec: Spec) -> None:
    fake = healthy()
    fake.makes = (FIRST, OTHER)
    _, verdict = pipeline.verify(of_registry(spec), fake, quiet)
    assert not verdict.same
    (difference,) = verdict.differences
    assert difference.startswith("layer 2: b: ")
    assert verdict.ids == (content_id(FIRST), content_id(OTHER))
    assert len(fake.removed) == 1


def test_a_base_that_the_archive_has_updated_since_is_told_by_its_packages(tmp_path: Path) -> None:
    def status(**versions: str) -> bytes:
        said = (f"Package: {name}\nStatus: install ok installed\nVersion: {is_}\n" for name, is_ in versions.items())
        return "\n".join(said).encode()

    made = tmp_path / "base.tar"
    with tarfile.open(made, "w") as tree:
        data = status(apt="2.6.1", libzstd1="1.5.4-5+deb12u1", tzdata="2026b")
        entry = tarfile.TarInfo("./var/lib/dpkg/status")
        entry.size = len(data)
        tree.addfile(entry, io.BytesIO(data))
    locked = status(apt="2.6.1", libzstd1="1.5.4-5", mawk="1.3")
    assert pipeline.newer_packages(locked, made) == (
        "libzstd1 1.5.4-5+deb12u1 (locked base: 1.5.4-5), mawk no more (locked base: 1.3), "
        "tzdata 2026b (locked base: none)"
    )
    assert pipeline.newer_packages(data, made) == ""


def test_two_builds_whose_settings_differ(spec: Spec) -> None:
    class Restless(FakeEngine):
        def build(self, wish: BuildRequest, say: Say) -> BuiltImage:
            return replace(super().build(wish, say), id=f"sha256:{len(self.builds):064x}")

    _, verdict = pipeline.verify(of_registry(spec), Restless(), quiet)
    assert not verdict.same
    assert verdict.differences == ("the layers are the same, but the images' settings differ",)


@pytest.mark.parametrize("labels", [{}, {"io.envkit.test": "another"}])
def test_an_engine_that_notes_its_build_in_an_image_is_held_to_layers_and_settings(
    spec: Spec, labels: dict[str, str]
) -> None:
    class Noting(FakeEngine):
        def build(self, wish: BuildRequest, say: Say) -> BuiltImage:
            more = labels if self.builds else {}
            return replace(
                super().build(replace(wish, labels={**wish.labels, **more}), say), id=f"sha256:{len(self.builds):064x}"
            )

    _, verdict = pipeline.verify(of_registry(spec), Noting(abilities=CONTAINERS - {Ability.SAME_ID}), quiet)
    assert verdict.ids[0] != verdict.ids[1]
    assert verdict.same == (not labels)


def test_the_second_image_goes_even_if_it_cannot_be_compared(spec: Spec) -> None:
    class Blind(FakeEngine):
        def layers(self, image: str) -> tuple[str, ...]:
            raise Undecided("the engine went away")

    fake = Blind()
    with pytest.raises(Undecided, match="went away"):
        pipeline.verify(of_registry(spec), fake, quiet)
    assert fake.removed == [fake.builds[1].tag]


def test_an_environment_without_layers_is_not_built_twice(spec: Spec) -> None:
    fake = healthy()
    fake.containers = False
    with pytest.raises(UsageError, match="has no layers to compare"):
        pipeline.verify(locked(spec), fake, quiet)
    assert fake.builds == []


def test_a_vendored_base_is_not_made_once_more(spec: Spec, tmp_path: Path) -> None:
    """The reference base is one that was made from packages, which a machine without a network cannot do."""
    fake = healthy()
    assert locked(spec).origin == "packages"
    (tmp_path / "vendored").mkdir()
    _, verdict = pipeline.verify(locked(spec), fake, quiet, vendored=tmp_path / "vendored")
    assert verdict.same
    assert [wish.offline for wish in fake.builds] == [True, True]


def test_images_are_compared_layer_by_layer() -> None:
    fake = FakeEngine(contents={"old": FIRST, "new": (*OTHER, layer(c=b"4")), "same": FIRST})
    assert pipeline.compare_images(fake, "old", "same") == []
    changed, added = pipeline.compare_images(fake, "old", "new")
    assert changed.startswith("layer 2: b: ")
    assert added == "layer 3: only in the second"


def test_the_base_is_asked_for_as_pinned(spec: Spec) -> None:
    fake = healthy()
    pipeline.build(replace(locked(spec), digest="sha256:" + "d" * 64), fake, quiet)
    (wish,) = fake.wishes
    assert (wish.suite, wish.digest) == ("bookworm", "sha256:" + "d" * 64)


def test_engines_have_names() -> None:
    with pytest.raises(UsageError, match="there is no engine `moby`") as caught:
        connect("moby", quiet)
    assert caught.value.fix == f"one of: {', '.join(ENGINES)}"
    assert connect("local", quiet).name == "local"


def test_without_docker_auto_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    said_lines: list[str] = []
    assert connect("auto", said_lines.append).name == "local"
    assert "--engine local" in said_lines[-1]
    with pytest.raises(Undecided) as caught:
        connect("docker", quiet)
    assert "--engine local" in caught.value.fix


def test_the_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "envkit"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_dir() == Path.home() / ".cache" / "envkit"
