"""What is compiled for a lock, with the real uv, an index of hand-made archives, and an engine that runs the build here
in place of a container; the compilers themselves run in test_up_engine.py."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from archive import installed
from index import Index, Publish
from test_prove import FakeEngine
from test_sources import publish

from envkit.build import up
from envkit.engine import Engine
from envkit.engine.local import LocalEngine
from envkit.errors import EnvkitError, Interrupted, Undecided, Unsatisfiable
from envkit.facts import load as load_facts
from envkit.plan import compiled, requires
from envkit.plan.lockfile import PARTS, Lock, Pin, dump, parse, problems
from envkit.plan.spec import Spec
from envkit.plan.update import new_lock
from envkit.system.files import cache_dir, shipped
from envkit.versions import Sm

slow = pytest.mark.slow  # solves a lock with the real uv and runs a real build

# A build backend inside the package, as a compiled package's would be; `{body}` may change what the wheel holds.
BACKEND = """
import json, os, sys, time, zipfile
NAME, VERSION, TAG, NEEDS = {name!r}, {version!r}, "cp313-cp313-linux_x86_64", {needs!r}
FILES = {{"{name}/_c.so": "compiled"}}
def get_requires_for_build_wheel(settings=None):
    return {more!r}
def build_wheel(out, settings=None, metadata=None):
    global VERSION, TAG
    {body}
    info = "%s-%s.dist-info" % (NAME, VERSION)
    lines = ["Metadata-Version: 2.1", "Name: " + NAME, "Version: " + VERSION]
    lines += ["Requires-Dist: " + each for each in NEEDS]
    FILES[info + "/METADATA"] = "\\n".join(lines) + "\\n"
    FILES[info + "/WHEEL"] = "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: false\\nTag: %s\\n" % TAG
    FILES[info + "/RECORD"] = ""
    file = "%s-%s-%s.whl" % (NAME, VERSION, TAG)
    with zipfile.ZipFile(os.path.join(out, file), "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in FILES.items():
            archive.writestr(zipfile.ZipInfo(member, time.localtime()[:6]), text)
    return file
"""
USUAL = ("ninja", "packaging", "psutil", "wheel")


def source(
    index: Index,
    name: str = "ext",
    version: str = "1.0",
    body: str = "pass",
    *,
    needs: tuple[str, ...] = (),
    said: tuple[str, ...] | None = None,
    requires: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
) -> str:
    """Publishes a source archive that "compiles" itself, with the tools that every build gets; ``said`` is what its
    PKG-INFO requires in place of ``needs``."""
    for each in USUAL:
        index.add(each, "1.0")
    text = BACKEND.format(name=name, version=version, needs=needs, body=body, more=list(more))
    listed = ", ".join(f'"{each}"' for each in requires)
    project = f'[build-system]\nrequires = [{listed}]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    info = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    info += "".join(f"Requires-Dist: {each}\n" for each in (needs if said is None else said))
    return publish(index, name, version, {"pyproject.toml": project, "backend.py": text, "PKG-INFO": info})


class Job:
    """A spec with `build`, and the engine that its locks are made with."""

    def __init__(self, published: Publish, folder: Path) -> None:
        self.engine = FakeEngine(files={"/var/lib/dpkg/status": installed(("libc6", "2.41"))})
        self.published = published
        self.folder = folder
        self.said: list[str] = []

    def spec(self, *build: str, text: str = "", packages: tuple[str, ...] = ()) -> Spec:
        listed = ", ".join(f'"{each}"' for each in build or ("ext==1.0",))
        words = f'os = "debian13"\nbuild = [{listed}]\n' + (text or 'gpus = ["A100", "H100"]\n')
        made = self.published("2.6.0", "3.13", "nvidia-cudnn-cu12", *packages, text=words)
        return replace(made, path=self.folder / "envkit.toml")

    def lock(
        self,
        spec: Spec,
        previous: Lock | None = None,
        engine: Engine | None = None,
        upgrade: tuple[str, ...] | None = None,
    ) -> Lock:
        return new_lock(
            spec,
            load_facts(),
            lambda: engine or self.engine,
            self.said.append,
            previous=previous,
            upgrade=upgrade,
            may_stay_open=PARTS,
            workshop=up.workshop,
        )

    @property
    def hooks(self) -> list[str]:
        return [one["asked"]["hook"] for one in self.engine.compiles]


@pytest.fixture
def job(index: Index, published: Publish, tmp_path: Path, no_mirrors: None) -> Job:
    return Job(published, tmp_path)


def pin_of(lock: Lock, name: str = "ext") -> Pin:
    return next(pin for pin in lock.wheels if pin.name == name)


def kept(lock: Lock, name: str = "ext") -> bytes:
    return (cache_dir() / "built" / f"{pin_of(lock, name).sha256}.whl").read_bytes()


def content(data: bytes, member: str) -> str:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        return archive.read(member).decode()


# What comes of it.


@pytest.mark.slow
def test_a_package_is_compiled_against_the_torch_of_the_lock_and_pinned(index: Index, job: Job) -> None:
    file = source(index, needs=("b>=1",), requires=("torch", "helper"))
    index.add("b", "1.5")
    helper = index.add("helper", "1.0")
    spec = job.spec()
    made = job.lock(spec)
    pin, (row,) = pin_of(made), made.sources
    assert (pin.version, pin.file) == ("1.0", "ext-1.0-cp313-cp313-linux_x86_64.whl")
    assert hashlib.sha256(kept(made)).hexdigest() == pin.sha256 and pin.size == len(kept(made))
    assert (row.file, row.sha256) == (file, hashlib.sha256(index.wheels[file]).hexdigest())
    assert (row.python, row.compiled, row.needs) == ("3.13", "8.0;9.0", ("b>=1",))
    assert f"helper==1.0 --hash=sha256:{helper.sha256}" in row.requires
    assert {line.split("==")[0] for line in row.requires} == {"helper", *USUAL}  # torch and setuptools are the image's
    assert pin_of(made, "b").version == "1.5"
    assert job.hooks == ["get_requires_for_build_wheel", "build_wheel"]
    assert parse(dump(made), "x") == made and not problems(spec, made)
    assert made.unindexed == {"ext"}


@pytest.mark.nightly
@slow
def test_the_container_is_of_the_devel_flavor_with_torch_alone_and_goes(index: Index, job: Job) -> None:
    source(index)
    index.add("numpy", "2.0")
    made = job.lock(job.spec(packages=("numpy",)))
    (build,) = job.engine.builds
    alone = parse(build.labels[up.runner.LOCK_LABEL], "label")
    assert (build.target, build.passing) == ("devel", True)
    held = {pin.name for pin in made.wheels if pin.layer != "debug"}
    assert held - {pin.name for pin in alone.wheels} == {"numpy", "ext"}
    assert {pin.layer for pin in alone.wheels} == {"runtime", "devel"}
    assert {one["image"] for one in job.engine.compiles} == {build.tag}
    assert job.engine.removed == [build.tag]


@slow
def test_a_build_gets_the_gpus_and_none_of_the_users_variables_or_credentials(
    index: Index, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    source(index, body="FILES['ext/environment.json'] = json.dumps(dict(os.environ))")
    monkeypatch.setenv("TOKEN_OF_MINE", "hunter2")
    monkeypatch.setenv("MAX_JOBS", "1")
    index.wants = "me:hunter2"
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url.replace("//", "//me:hunter2@"))
    made = job.lock(job.spec())
    seen = json.loads(content(kept(made), "ext/environment.json"))
    assert "hunter2" not in json.dumps([seen, job.engine.compiles, job.said]) + dump(made)
    assert {"TORCH_CUDA_ARCH_LIST": "8.0;9.0", "CUDAARCHS": "80;90", "FORCE_CUDA": "1", "MAX_JOBS": "1"}.items() <= (
        seen.items()
    )
    assert not {name for name in seen if name.startswith(("UV_", "PIP_", "HTTP"))} - {"PIP_NO_INDEX"}


@pytest.mark.nightly
@slow
def test_a_setup_that_would_look_for_a_wheel_elsewhere_is_told_to_compile(index: Index, job: Job) -> None:
    text = BACKEND.format(
        name="ext", version="1.0", needs=(), more=[], body="assert os.environ['EXT_FORCE_BUILD'] == 'TRUE'"
    )
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    source(index)
    setup = 'import os\nif os.getenv("EXT_FORCE_BUILD", "FALSE") == "FALSE":\n    download()\n'
    publish(index, "ext", "1.0", {"pyproject.toml": project, "backend.py": text, "setup.py": setup})
    assert job.lock(job.spec()).sources[0].compiled == "8.0;9.0"


@pytest.mark.nightly
@slow
def test_what_lies_on_a_private_index_is_compiled_from_there(
    index: Index, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = Index()
    private.folder, private.wants = index.folder, "hunter2:"
    file = source(private)
    source(index, body="raise SystemExit('it was run')")
    monkeypatch.setenv("TOKEN", "hunter2")
    text = f'gpus = ["H100"]\nextra-index = ["{private.url.replace("//", "//${TOKEN}@")}"]\n'
    made = job.lock(job.spec(text=text))
    private.server.shutdown()
    private.server.server_close()
    assert made.sources[0].sha256 == hashlib.sha256(private.wheels[file]).hexdigest()
    assert "hunter2" not in dump(made) + "".join(job.said) + json.dumps(job.engine.compiles)


@pytest.mark.nightly
@slow
def test_what_a_backend_asks_for_besides_is_there_when_it_compiles(index: Index, job: Job) -> None:
    index.add("late", "3.0")
    source(index, body="import importlib.metadata as m; assert m.version('late') == '3.0'", more=("late",))
    assert any(line.startswith("late==3.0 ") for line in job.lock(job.spec()).sources[0].requires)


@pytest.mark.nightly
@slow
def test_what_the_wheel_requires_counts_and_not_what_its_source_said(index: Index, job: Job) -> None:
    source(index, needs=("b<2",), said=())
    index.add("b", "1.0")
    index.add("b", "2.0")
    made = job.lock(job.spec(packages=("b",)))
    assert (pin_of(made, "b").version, made.sources[0].needs) == ("1.0", ("b<2",))
    assert made.wish == parse(dump(made), "x").wish and made.wish["torch"] == "2.6.0"


@pytest.mark.nightly
@slow
def test_what_the_source_says_is_in_the_way_is_refused_before_anything_is_compiled(index: Index, job: Job) -> None:
    source(index, needs=("b>=3",))
    index.add("b", "1.0")
    with pytest.raises(Unsatisfiable, match="no set of wheels"):
        job.lock(job.spec())
    assert job.engine.compiles == []


# What is not compiled again.


def test_a_compiled_wheel_follows_from_torch_and_nvidias_libraries_and_from_no_other_wheel() -> None:
    lock = parse(Path(__file__, "../../images/torch-2.6-cu124/envkit.lock").resolve().read_text(), "envkit.lock")

    def key(name: str) -> str:
        assert any(pin.name == name for pin in lock.wheels)
        pins = tuple(replace(pin, sha256="0" * 64) if pin.name == name else pin for pin in lock.wheels)
        return compiled._key(replace(lock, wheels=pins), "s", "8.0")

    assert key("torch") != compiled._key(lock, "s", "8.0") != key("nvidia-cublas-cu12")
    assert key("sympy") == compiled._key(lock, "s", "8.0")


@slow
def test_a_lock_made_again_compiles_nothing_and_needs_no_engine(index: Index, job: Job) -> None:
    source(index, body="FILES['now'] = str(time.time_ns())")
    made = job.lock(job.spec())
    local = LocalEngine(job.folder / "local")
    assert job.lock(job.spec(), made, local).sources == made.sources
    assert job.lock(job.spec(), None, local).sources == made.sources
    index.add("numpy", "2.0")
    more = job.lock(job.spec(packages=("numpy",)), made, local)
    assert pin_of(more) == pin_of(made) and len(job.engine.builds) == 1


@pytest.mark.nightly
@slow
def test_another_machine_keeps_what_the_lock_holds_without_the_wheel(
    index: Index, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    source(index, needs=("b",), said=())
    index.add("b", "1.0")
    made = job.lock(job.spec())
    monkeypatch.setenv("XDG_CACHE_HOME", str(job.folder / "elsewhere"))
    again = job.lock(job.spec(), made, LocalEngine(job.folder / "local"))
    assert (again.wheels, again.sources) == (made.wheels, made.sources)
    assert requires.members(made, job.spec(), load_facts(), print)["b"].by == ("ext",)


@slow
def test_other_gpus_are_compiled_for_anew(index: Index, job: Job) -> None:
    source(index)
    made = job.lock(job.spec())
    other = job.lock(job.spec(text='gpus = ["L4"]\n'), made)
    assert other.sources[0].compiled == "8.9"
    assert job.hooks.count("build_wheel") == 2


@pytest.mark.nightly
@slow
def test_what_a_new_lock_would_change_is_told_without_compiling(index: Index, job: Job) -> None:
    source(index)
    made = job.lock(job.spec())
    told = new_lock(
        job.spec(text='gpus = ["L4"]\n'), load_facts(), lambda: None, print,
        previous=made, may_stay_open=PARTS, workshop=None,
    )  # fmt: skip
    assert pin_of(told) == pin_of(made) and job.hooks.count("build_wheel") == 1


# What is refused.


def refused(job: Job, spec: Spec | None = None, engine: Engine | None = None) -> EnvkitError:
    with pytest.raises(EnvkitError) as caught:
        job.lock(spec or job.spec(), engine=engine)
    assert not list(cache_dir().rglob("*.whl")) and not list(cache_dir().rglob("*.compiled.json"))
    assert job.engine.removed == [one.tag for one in job.engine.builds]
    return caught.value


@pytest.mark.nightly
@slow
def test_without_a_container_engine_nothing_is_compiled(index: Index, job: Job) -> None:
    source(index)
    error = refused(job, engine=LocalEngine(job.folder / "local"))
    assert error.code == 3
    assert error.message == ("ext 1.0 must be compiled, which is done in a container, and there is no container engine")


@pytest.mark.nightly
@slow
def test_a_verb_that_compiles_nothing_writes_no_lock_of_stubs(index: Index, job: Job) -> None:
    source(index)
    with pytest.raises(Undecided, match="this command compiles nothing"):
        new_lock(job.spec(), load_facts(), lambda: job.engine, print, may_stay_open=PARTS)


@slow
@pytest.mark.parametrize(
    ("build", "why", "nearest"),
    [
        ("nosuch==1.0", "the package index has no nosuch, which `build` names", ()),
        ("ext==2.0", "the package index has no source of ext 2.0, which `build` names", ("ext==1.0",)),
    ],
)
def test_a_name_or_a_release_that_does_not_exist_is_refused(
    index: Index, job: Job, build: str, why: str, nearest: tuple[str, ...]
) -> None:
    source(index)
    error = refused(job, job.spec(build))
    assert isinstance(error, Unsatisfiable)
    assert (error.message, error.nearest, job.engine.builds) == (why, nearest, [])


@pytest.mark.nightly
@slow
def test_a_lock_without_nvcc_is_no_place_to_compile_for_gpus(index: Index, published: Publish, job: Job) -> None:
    source(index)
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", text='build = ["ext==1.0"]\ngpus = ["A100"]\n')
    error = refused(job, spec)
    assert "the devel flavor has no nvcc: neither a wheel nor debian12 has it for CUDA 12.4" in error.message
    assert job.engine.builds == []


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "an error": (
        {"body": "print('kernel.cu(3): error: x'); print('ninja: build stopped'); raise RuntimeError('compiling')"},
        "ext 1.0 cannot be compiled against torch 2.6.0 for 8.0;9.0: kernel.cu(3): error: x",
    ),
    "an error before much else": (
        {"body": "print('a.cpp:3:1: error: x'); print('ptxas info\\n' * 400); raise RuntimeError('compiling')"},
        "for 8.0;9.0: a.cpp:3:1: error: x",
    ),
    "an exception": ({"body": "print('error handling: on'); raise ValueError('y')"}, "for 8.0;9.0: ValueError: y"),
    "a GPU that nvcc does not know": (
        {"body": "print(\"nvcc fatal   : Unsupported gpu architecture 'compute_999'\"); sys.exit(1)"},
        "Unsupported gpu architecture 'compute_999' (",
    ),
    "a file that is not there": (
        {"body": "print(\"ninja: error: 'a.cu', needed by 'a.o', missing\"); raise RuntimeError('stopped')"},
        "for 8.0;9.0: ninja: error: 'a.cu', needed by 'a.o', missing",
    ),
    "no answer": ({"body": "os._exit(0)"}, "it ends without a word"),
    "no wheel": ({"body": "return 'a'"}, "it makes 0 wheels"),
    "another release": (
        {"body": "VERSION = '0.0.0'"},
        "it makes ext-0.0.0-cp313-cp313-linux_x86_64.whl, another release",
    ),
    "another Python": ({"body": "TAG = 'cp312-cp312-linux_x86_64'"}, "which is not for Python 3.13 on linux/amd64"),
    "another torch": ({"requires": ("torch>=2.7",)}, "its build requires torch>=2.7, and the lock has torch 2.6.0"),
    "a tool that is not there": ({"requires": ("nosuch",)}, "what it needs to be compiled is not to be had"),
    "a tool from nowhere": ({"requires": ("a @ https://127.0.0.1/a.whl",)}, "a.whl, which is on no index"),
    "no requirement": ({"requires": ("a b",)}, "its build requires `a b`, which is no requirement"),
}


@slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_package_that_cannot_be_compiled_is_refused_with_why(index: Index, job: Job, fault: str) -> None:
    how, why = FAULTS[fault]
    source(index, **how)
    error = refused(job)
    assert isinstance(error, Unsatisfiable)
    assert why in error.message


@slow
def test_a_compiler_that_ran_out_of_memory_is_named(index: Index, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"exit": 1, "result": None, "lines": ["Killed"], "killed": 2, "jobs": 8, "memory": 9 << 30}
    source(index, body=f"json.dump({answer!r}, open(os.path.join(out, 'answer.json'), 'w')); os.kill(os.getppid(), 9)")
    error = refused(job)
    assert "8 compilers at once took more than 9 GB of memory" in error.message
    assert error.fix == "compile fewer files at once: MAX_JOBS=1 envkit lock"


@pytest.mark.nightly
@slow
def test_a_build_that_hangs_is_ended(index: Index, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    source(index, body="print('waiting', flush=True); time.sleep(3600)")
    monkeypatch.setattr(compiled, "BUDGET_S", 2.0)
    error = refused(job)
    assert error.code == 3 and "ext 1.0 was not compiled within" in error.message


@slow
def test_a_run_that_is_stopped_leaves_nothing(index: Index, job: Job) -> None:
    source(index)

    class Stopped(FakeEngine):
        def compile(self, *words: Any, **named: Any) -> Any:
            raise Interrupted("SIGINT")

    job.engine = Stopped(files=job.engine.files)
    with pytest.raises(Interrupted):
        job.lock(job.spec())
    assert job.engine.removed == [one.tag for one in job.engine.builds]
    assert not list(cache_dir().rglob("*.whl"))


@slow
def test_a_source_that_must_be_compiled_and_was_not_asked_for_is_refused_with_the_key(
    index: Index, published: Publish, job: Job
) -> None:
    source(index, requires=("torch",))
    spec = published("2.6.0", "3.13", "nvidia-cudnn-cu12", "ext", text='os = "debian13"\n')
    error = refused(job, spec)
    assert isinstance(error, Unsatisfiable)
    assert error.message.endswith("and it has to be compiled: its build needs torch")
    assert 'build = ["ext==1.0"]' in error.nearest


# The image.


@pytest.fixture
def built(index: Index, job: Job) -> Lock:
    source(index)
    made = job.lock(job.spec())
    job.engine = FakeEngine()
    return made


@pytest.mark.nightly
@slow
def test_a_build_takes_the_wheel_that_was_kept_even_without_a_cache(job: Job, built: Lock) -> None:
    held: list[bytes] = []

    class Seen(FakeEngine):
        def build(self, wish: Any, say: Any) -> Any:
            held.append((wish.contexts["unindexed"] / pin_of(built).file).read_bytes())
            return super().build(wish, say)

    engine = Seen()
    up.build(built, engine, print, no_cache=True)
    assert held == [kept(built)] and engine.compiles == []


@pytest.mark.nightly
@slow
def test_a_wheel_that_is_not_here_is_compiled_again_and_held_to_the_lock(
    job: Job, built: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(job.folder / "elsewhere"))
    up.build(built, job.engine, job.said.append)
    assert job.hooks == ["build_wheel"]
    assert hashlib.sha256(kept(built)).hexdigest() == pin_of(built).sha256
    monkeypatch.setenv("XDG_CACHE_HOME", str(job.folder / "third"))
    with pytest.raises(Undecided, match="was compiled on another machine"):
        up.build(built, LocalEngine(job.folder / "local"), print)


@slow
def test_one_that_becomes_another_wheel_is_refused_and_the_next_lock_takes_it(
    index: Index, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    source(index, body="FILES['now'] = str(time.time_ns())")
    made = job.lock(job.spec())
    monkeypatch.setenv("XDG_CACHE_HOME", str(job.folder / "elsewhere"))
    with pytest.raises(Undecided, match="became another wheel than the one that the lock pins") as caught:
        up.build(made, job.engine, print)
    assert "envkit lock --upgrade-package ext" in caught.value.fix
    before = len(job.hooks)
    renewed = job.lock(job.spec(), made, upgrade=("ext",))
    assert pin_of(renewed).sha256 != pin_of(made).sha256 and len(job.hooks) == before
    up.build(renewed, job.engine, print)
    assert len(job.hooks) == before


# For which GPUs, and how many at once.


@pytest.mark.nightly
@slow
def test_a_gpu_that_the_cuda_does_not_know_gets_the_ptx_of_the_newest_that_it_does(index: Index, job: Job) -> None:
    source(index)
    made = job.lock(job.spec())
    facts = load_facts()
    newest = max(
        max((row for row in facts.cudas if row.version.upto(2) == made.cuda), key=lambda row: row.version).archs
    )
    future = replace(made, gpus=(*made.gpus, ("X", str(Sm(99, 0)), "")))
    assert compiled.architectures(future, facts) == f"8.0;{newest.major}.{newest.minor}+PTX"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compile_step", shipped("templates") / "steps" / "compile.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GIB = 1 << 30


@pytest.mark.parametrize(
    ("processors", "room", "most", "jobs"),
    [(8, 64 * GIB, 0, 8), (64, 64 * GIB, 0, 16), (8, GIB, 0, 1), (8, 64 * GIB, 2, 2), (2, 64 * GIB, 9, 2)],
)
def test_as_many_compilers_run_as_processors_and_memory_allow(processors: int, room: int, most: int, jobs: int) -> None:
    assert loaded().jobs(processors, room, most) == jobs
