"""The payload goes in, a document comes out; anything else is undecided, with the last words of what went wrong."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from clocks import comes, ends
from processes import named
from recorded_images import as_printed

from envkit.engine import (
    CONTAINERS,
    Ability,
    BaseRequest,
    BuildRequest,
    BuiltImage,
    DeclaredStart,
    Engine,
    ResolvedBase,
    Say,
    Start,
    StoredImage,
    where_they_lie,
)
from envkit.errors import Undecided, UsageError
from envkit.plan.lockfile import Lock, dump, parse
from envkit.runner import runner
from envkit.runner.runner import InEngine, LocalPython, SmokeRequest
from envkit.subjects.image import NO_PROMISE
from envkit.system import files, proc
from envkit.system.proc import Completed
from envkit.versions import Sm

DATA = Path(__file__).parent / "data"
IMAGES = Path(__file__).parent.parent / "images"
LOCK: Lock = parse((IMAGES / "torch-2.6-cu124" / "envkit.lock").read_text(), "envkit.lock")


def quiet(line: str) -> None:
    pass


def probe_document(name: str = "torch-2.6-cu124") -> dict[str, Any]:
    """The recorded image as the payload prints it: without what is known outside alone."""
    image = json.loads((DATA / "image" / f"{name}.json").read_text())
    return {
        "schema": "envkit.payload/1",
        "kind": "probe",
        "payload_sha256": "",
        "image": as_printed(image),
    }


def smoke_document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "smoke" / "torch-2.6-cu124-cpu.document.json").read_text())
    found["payload_sha256"] = ""  # another run's, whatever payload was recorded
    return found


def content_id(content: tuple[bytes, ...]) -> str:
    """An image's id, which depends on nothing but its layers."""
    return f"sha256:{sha256(b''.join(sha256(layer).digest() for layer in content)).hexdigest()}"


def layer(**files: bytes) -> bytes:
    """A layer with these files, as a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def saved_image(content: tuple[bytes, ...], *tags: str) -> bytes:
    """An image as `docker save` writes it."""
    named = {f"blobs/sha256/{sha256(one).hexdigest()}": one for one in content}
    config = {
        "config": {"Env": ["PATH=/opt/venv/bin:/usr/bin"]},  # as the rendered Dockerfile sets it
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{name.rpartition('/')[2]}" for name in named]},
    }
    manifest = [{"Config": "config.json", "RepoTags": list(tags), "Layers": list(named)}]
    named |= {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    return layer(**named)


def said(document: Mapping[str, Any], stderr: str = "", exit: int = 0) -> Completed:
    """An answer that the fake engine seals as the payload does."""
    sealed = {**document, "nonce": NONCE, "payload_sha256": SHA256}
    return Completed((), exit, f"chatter of the image\n{json.dumps(sealed)}\n", stderr)


NONCE, SHA256 = "the nonce of the run", "the sha256 of the payload"


@dataclass
class FakeEngine:
    """An engine that keeps in memory what it was told; ``answers`` are the runs by the payload's first word.

    An answer that is an exception is raised.  With ``python`` the payload is really run, under that interpreter.
    ``base`` is the base that it finds, with its ``files``.  ``makes`` are the images that its builds make, one after
    the other and the last one again, as the tars of their layers, the base's first.
    """

    answers: dict[str, Completed | Exception] = field(default_factory=dict)
    python: str = ""
    name: str = "fake"
    where: str = "fake engine"
    containers: bool = True
    abilities: frozenset[Ability] = CONTAINERS
    images: dict[str, Mapping[str, str]] = field(default_factory=dict)
    base: ResolvedBase | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    makes: tuple[tuple[bytes, ...], ...] = ((layer(),),)
    contexts: list[dict[str, str]] = field(default_factory=list)
    builds: list[BuildRequest] = field(default_factory=list)
    contents: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    loads: list[Path] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    compiles: list[dict[str, Any]] = field(default_factory=list)
    wishes: list[BaseRequest] = field(default_factory=list)
    failure: Exception | None = None
    starts: DeclaredStart = field(default_factory=DeclaredStart)

    def resolve_base(self, wish: BaseRequest, say: Say) -> ResolvedBase:
        self.wishes.append(wish)
        say(f"base {wish.ref}")
        return self.base or ResolvedBase(wish.ref, "sha256:" + "b" * 64, "local", "sha256:" + "c" * 64)

    def build(self, wish: BuildRequest, say: Say) -> BuiltImage:
        self.contexts.append({path.name: path.read_text() for path in wish.context.iterdir()})
        assert all(path.is_dir() for path in wish.contexts.values())
        content = self.makes[min(len(self.builds), len(self.makes) - 1)]
        self.builds.append(wish)
        say("building")
        if self.failure is not None:
            raise self.failure
        self.images[wish.tag] = wish.labels
        self.contents[wish.tag] = content
        return BuiltImage(content_id(content), wish.tag, 1_500_000_000, 12.5)

    def layers(self, image: str) -> tuple[str, ...]:
        return tuple(f"sha256:{sha256(layer).hexdigest()}" for layer in self._content(image))

    def stored(self, image: str) -> StoredImage:
        content = self._content(image)
        return StoredImage(content_id(content), sum(map(len, content)))

    def file(self, image: str, path: str) -> bytes:
        if path not in self.files:
            raise UsageError(f"the image {image} has no file {path}", "choose an image with it")
        return self.files[path]

    def save(self, image: str, target: Path) -> None:
        target.write_bytes(saved_image(self._content(image)))

    def load(self, saved: Path, wish: BaseRequest) -> ResolvedBase:
        self.loads.append(saved)
        self.wishes.append(wish)
        return ResolvedBase("vendored:base", "sha256:" + "b" * 64, "vendored", wish.digest)

    def _content(self, image: str) -> tuple[bytes, ...]:
        if image not in self.contents:
            raise UsageError(f"there is no image {image}", "build it")
        return self.contents[image]

    def push(self, image: str, ref: str, say: Say) -> str:
        raise AssertionError("nothing is pushed here")

    def join(self, index: str, pinned: str, platform: str, say: Say) -> str:
        raise AssertionError("nothing is pushed here")

    def elsewhere(self) -> bool:
        return False

    def labels(self, image: str) -> Mapping[str, str]:
        if image not in self.images:
            raise UsageError(f"there is no image {image}", "build it")
        return self.images[image]

    def declared(self, image: str) -> DeclaredStart:
        return self.starts

    def run(
        self,
        image: str,
        argv: Sequence[str],
        *,
        payload: bytes,
        gpus: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        start: Start | None = None,
        placed: DeclaredStart | None = None,
        mounts: Mapping[str, Path] | None = None,
        timeout_s: float,
        say: Say,
        stop: Callable[[], bool] | None = None,
    ) -> Completed:
        self.runs.append({"image": image, "argv": list(argv), "gpus": gpus, "timeout_s": timeout_s})
        if start is not None:
            self.runs[-1] |= {"words": list(start(["P", *argv])), "env": dict(env or {})}
        if placed is not None:
            self.runs[-1]["placed"] = placed
        if mounts:
            self.runs[-1]["mounts"] = dict(mounts)
        assert payload[:2] == b"PK"
        if self.python:
            return LocalPython(Path(self.python)).run(list(argv), timeout_s, say, mounts)
        answer = self.answers.get("start") if start is not None and "start" in self.answers else self.answers[argv[0]]
        if isinstance(answer, Exception):
            raise answer
        for line in answer.stderr.splitlines():
            say(line)
        nonce = argv[argv.index("--nonce") + 1]
        return replace(answer, stdout=answer.stdout.replace(NONCE, nonce).replace(SHA256, sha256(payload).hexdigest()))

    def compile(
        self, image: str, argv: Sequence[str], given: Path, made: Path, *, timeout_s: float, say: Say
    ) -> Completed:
        """Runs what is in the tar for real, in a folder of this machine, and with no variable of the test's."""
        with files.scratch("fake") as room:
            with tarfile.open(given) as archive:
                archive.extractall(room)
            self.compiles.append(
                {"image": image, "argv": list(argv), "asked": json.loads((room / "asked.json").read_text())}
            )
            if self.failure is not None:
                raise self.failure
            command = [sys.executable, str(room / Path(argv[1]).name)]
            done = proc.run(command, timeout_s=timeout_s, env={"PATH": "/usr/bin:/bin"}, cwd=room, on_line=say)
            with tarfile.open(made, "w") as archive:
                archive.add(room / "out", "out")
        return done

    def remove(self, image: str) -> None:
        self.removed.append(image)
        self.images.pop(image, None)
        self.contents.pop(image, None)


def place(engine: Engine, name: str = "job:1") -> InEngine:
    return InEngine(engine, name, "sha256:" + "a" * 64, ("all",))


def engine_with(probe: Completed | Exception | None = None, smoke: Completed | Exception | None = None) -> FakeEngine:
    made = FakeEngine({"probe": probe or said(probe_document()), "smoke": smoke or said(smoke_document())})
    made.images["job:1"] = {runner.LOCK_LABEL: dump(LOCK), runner.FLAVOR_LABEL: "runtime"}
    return made


# Mounts.


def test_a_run_in_no_container_is_told_where_a_mount_lies(tmp_path: Path) -> None:
    mounts = {"/given/code": tmp_path, "/given/one": tmp_path / "file"}
    argv = ["probe", "/given/code", "/given/code/a/b", "/given/codes", "/given/one", "x/given/code"]
    assert where_they_lie(argv, mounts) == [
        "probe", str(tmp_path), f"{tmp_path}/a/b", "/given/codes", f"{tmp_path}/file", "x/given/code",
    ]  # fmt: skip
    done = LocalPython(Path(sys.executable)).run(["probe", "/given/code/a"], 60, quiet, mounts)
    assert done.exit == 2 and f"unknown words: {tmp_path}/a\n" in done.stderr


def test_an_engine_is_given_the_mounts(tmp_path: Path) -> None:
    fake = engine_with()
    place(fake).run(["probe", "--nonce", "n"], 10, quiet, {"/given": tmp_path})
    assert fake.runs[0]["mounts"] == {"/given": tmp_path}


# Probe.


def test_a_probe_is_read_with_its_name_digest_and_promise() -> None:
    fake = engine_with()
    image = runner.probe(place(fake), quiet)
    assert (image.name, image.digest) == ("job:1", "sha256:" + "a" * 64)
    assert str(image.torch.need("torch").version).startswith("2.6.0")
    assert image.promise.need("the promise") == runner.promise_of(LOCK, "runtime")
    gpus = ",".join(dict.fromkeys(f"{sm.major}{sm.minor}" for sm in image.promise.need("the promise").gpus))
    asked = ["--abilities", "quick", "--sm", gpus]
    assert fake.runs[0]["argv"][:-1] == ["probe", "--budget", "300", *asked, "--announce", "--nonce"]
    assert image.gpus_given == ("all",)
    assert fake.runs[0]["gpus"] == ("all",)
    assert fake.runs[0]["timeout_s"] > 300


def test_progress_is_told_line_by_line() -> None:
    heard: list[str] = []
    runner.probe(place(engine_with(said(probe_document(), "one\n\n two\n"))), heard.append)
    assert heard == ["probing job:1", "probe: one", "probe:  two"]


def test_an_image_without_the_label_promises_nothing() -> None:
    fake = engine_with()
    fake.images["job:1"] = {}
    assert runner.probe(place(fake), quiet).promise.missing == NO_PROMISE


@pytest.mark.parametrize("label", ["garbage", dump(LOCK).replace("sm_70", "sm_70; id"), dump(LOCK)[:-200]])
def test_a_label_that_is_no_lock_is_told_and_no_traceback(label: str) -> None:
    fake = engine_with()
    fake.images["job:1"] = {runner.LOCK_LABEL: label, runner.FLAVOR_LABEL: "runtime"}
    with pytest.raises(UsageError, match=re.escape(f"the label {runner.LOCK_LABEL} of job:1")):
        runner.probe(place(fake), quiet)


@pytest.mark.parametrize("flavor", ["", "tools", "Debug", "x\n\x1b[2J"])
def test_a_label_that_is_no_flavor_is_told_and_no_traceback(flavor: str) -> None:
    fake = engine_with()
    fake.images["job:1"] = {runner.LOCK_LABEL: dump(LOCK), runner.FLAVOR_LABEL: flavor}
    with pytest.raises(UsageError, match="which is no flavor") as caught:
        runner.probe(place(fake), quiet)
    assert caught.value.message.isprintable()
    assert fake.runs == []


def test_a_promise_is_what_the_lock_holds() -> None:
    promise = runner.promise_of(LOCK, "runtime")
    assert (str(promise.torch), str(promise.cuda)) == ("2.6.0", "12.4")
    below = [pin.name for pin in LOCK.wheels if pin.layer == "runtime"]
    assert [wheel.name for wheel in promise.wheels] == below
    assert (
        [wheel.name for wheel in runner.promise_of(LOCK, "debug").wheels] == [pin.name for pin in LOCK.wheels] != below
    )
    assert promise.gpus == tuple(Sm.parse(capability) for _, capability, _ in LOCK.gpus)
    assert promise != runner.promise_of(replace(LOCK, epoch=1), "runtime")


# Documents that are none.

NO_DOCUMENTS = {
    "nothing": "",
    "blank lines": "\n \n",
    "talk": "hello\n",
    "half a document": json.dumps(probe_document())[:-5] + "\n",
    "a list": "[1]\n",
    "a number": "7\n",
    "text after the document": json.dumps(probe_document()) + "\nbye\n",
}


@pytest.mark.parametrize("stdout", NO_DOCUMENTS.values(), ids=NO_DOCUMENTS.keys())
@pytest.mark.parametrize("verb", ["probe", "smoke"])
def test_no_document_is_undecided_with_the_last_words(verb: str, stdout: str) -> None:
    words = "".join(f"line {number}\n" for number in range(40)) + "Segmentation fault.\n"
    ask = runner.probe if verb == "probe" else runner.smoke
    done = Completed((), -11, stdout, words)
    with pytest.raises(Undecided) as caught:
        ask(place(engine_with(done, done)), quiet)
    how = "was killed by SIGSEGV before it ran a line of the payload: Segmentation fault"
    assert caught.value.message == f"the Python of job:1 {how}"
    began = replace(done, stdout=BEGAN.format("3.11.2", "glibc 2.36") + stdout)
    with pytest.raises(Undecided) as caught:
        ask(place(engine_with(began, began)), quiet)
    assert caught.value.message.endswith(" in job:1 was killed by SIGSEGV and printed no result: Segmentation fault")
    assert caught.value.fix


BEGAN = '{{"began": {{"python": "{}", "libc": "{}"}}, "nonce": "the nonce of the run"}}\n'


@pytest.mark.parametrize(
    ("python", "libc", "said"),
    [
        ("3.7.17", "glibc 2.36", "the Python of job:1 is 3.7.17, but the payload needs 3.8 or newer"),
        ("3.13.1", "musl", "the Python of job:1 uses musl, but torch, CUDA and the payload need glibc"),
        ("3.10.1", "", "the probe in job:1 ended with exit code 3 and printed no result"),
        ("\\u001b[2J", "", "the probe in job:1 ended with exit code 3 and printed no result"),
        ("9" * 9999 + ".1.1", "", "the probe in job:1 ended with exit code 3 and printed no result"),
    ],
)
def test_a_python_that_is_not_fit_says_so_itself(python: str, libc: str, said: str) -> None:
    done = Completed((), 3, BEGAN.format(python, libc), "")
    with pytest.raises(Undecided) as caught:
        runner.probe(place(engine_with(done)), quiet)
    assert caught.value.message == said


def test_of_a_flood_the_beginning_and_the_end_are_told() -> None:
    heard: list[str] = []
    stderr = "".join(f"{number} {'x' * 3000}\n" for number in range(1000))
    runner.probe(place(engine_with(said(probe_document(), stderr))), heard.append)
    numbers = [int(line.split()[1]) for line in heard if line.endswith("x...")]
    assert numbers == [*range(300), *range(985, 1000)]
    assert "probe: (685 lines are left out)" in heard and max(map(len, heard)) < 1100


@pytest.mark.parametrize("verb", ["probe", "smoke"])
@pytest.mark.parametrize(
    ("forge", "told"),
    [
        (lambda text: text.replace(NONCE, "0" * 32), "and printed a result with the wrong nonce"),
        (lambda text: text.replace(SHA256, "0" * 64), "and printed a result with the wrong payload_sha256"),
        (lambda text: '{"kind": "smoke"}', "and printed a result with the wrong nonce and payload_sha256"),
        (lambda text: "[" * 100_000, r"before it ran a line of the payload: \[+\.\.\."),
        (lambda text: text + text, "and printed 2 results for one run"),
        (lambda text: text.replace('{"', '{"a": NaN, "', 1), "and printed a result that cannot be read: NaN, .*"),
    ],
)
def test_a_document_that_does_not_answer_this_run_is_none(verb: str, forge: Callable[[str], str], told: str) -> None:
    documents = {"probe": probe_document(), "smoke": smoke_document()}
    answer = said(documents[verb])
    forged = replace(answer, stdout=forge(answer.stdout))
    with pytest.raises(Undecided, match=f"ended with exit code 0 {told}$"):
        (runner.probe if verb == "probe" else runner.smoke)(place(engine_with(forged, forged)), quiet)


@pytest.mark.parametrize(("end", "cut"), [(1, False), (-9, False), (0, True)])
def test_a_run_that_did_not_end_well_is_undecided_whatever_it_left(end: int, cut: bool) -> None:
    done = replace(said(probe_document(), exit=end), timed_out=cut)
    with pytest.raises(Undecided, match="in job:1 printed its result and then"):
        runner.probe(place(engine_with(done)), quiet)


FORGER = """
import atexit, json, sys
document = json.dumps({document})
atexit.register(lambda: print(document, flush=True))
print(document, flush=True)
"""


@pytest.mark.parametrize("inspect", ["", "1"])
def test_what_the_image_prints_at_pythons_start_and_end_is_no_document(tmp_path: Path, inspect: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(FORGER.replace("{document}", repr(smoke_document())))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} PYTHONINSPECT={inspect} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    run = runner.smoke(LocalPython(python), quiet, SmokeRequest(only=("triton-add",)))
    assert [test.name for test in run.tests.need("the tests")] == ["triton-add"]
    died = tmp_path / "died"
    died.write_text(f"#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -c pass\n")
    died.chmod(0o755)
    with pytest.raises(Undecided, match="printed a result with the wrong nonce and payload_sha256"):
        runner.smoke(LocalPython(died), quiet)


def test_a_label_too_large_for_a_lock_is_told() -> None:
    fake = engine_with()
    fake.images["job:1"] = {runner.LOCK_LABEL: dump(LOCK) + "# " + "x" * (1 << 20)}
    with pytest.raises(UsageError, match="which no lock has"):
        runner.probe(place(fake), quiet)
    assert fake.runs == []


def test_without_stderr_the_end_of_stdout_is_shown() -> None:
    with pytest.raises(Undecided, match="exec format error"):
        runner.probe(place(engine_with(Completed((), 1, "exec format error\n", ""))), quiet)


def test_a_run_past_its_budget_says_so() -> None:
    with pytest.raises(Undecided, match="did not end within 300 s before it ran a line of the payload"):
        runner.probe(place(engine_with(Completed((), -9, "", "", timed_out=True))), quiet)


def garbled() -> dict[str, dict[str, Any]]:
    whole = probe_document()
    image = whole["image"]
    return {
        "another schema": {**whole, "schema": "envkit.payload/2"},
        "another kind": {**whole, "kind": "smoke"},
        "no image": {key: value for key, value in whole.items() if key != "image"},
        "an image of text": {**whole, "image": "x"},
        "a field less": {**whole, "image": {key: value for key, value in image.items() if key != "torch"}},
        "a field more": {**whole, "image": {**image, "promise": {"value": None, "via": "", "missing": "x"}}},
        "both value and missing": {**whole, "image": {**image, "torch": {**image["torch"], "missing": "x"}}},
        "neither": {**whole, "image": {**image, "torch": {"value": None, "via": "", "missing": ""}}},
        "another type": {**whole, "image": {**image, "libraries": {"value": 7, "via": "", "missing": ""}}},
        "a strange device": {**whole, "image": {**image, "devices": {"value": ["x"], "via": "", "missing": ""}}},
    }


@pytest.mark.parametrize("document", garbled().values(), ids=garbled().keys())
def test_a_garbled_document_is_undecided(document: dict[str, Any]) -> None:
    with pytest.raises(Undecided, match="the probe's document is malformed"):
        runner.probe(place(engine_with(said(document))), quiet)


def test_an_engine_that_fails_is_not_swallowed() -> None:
    with pytest.raises(Undecided, match="the engine went away"):
        runner.probe(place(engine_with(Undecided("the engine went away"))), quiet)


# Smoke.


def test_a_smoke_run_is_read() -> None:
    fake = engine_with()
    run = runner.smoke(place(fake), quiet)
    assert run.name == "job:1"
    tests = run.tests.need("the tests")
    assert {test.name for test in tests} >= {"gemm-exact", "conv", "attention"}
    promised = tuple(dict.fromkeys(capability for _, capability, _ in LOCK.gpus))
    words = [word for sm in promised for word in ("--sm", sm.removeprefix("sm_"))]
    assert fake.runs[0]["argv"][:-1] == [
        "smoke", "--budget", "600", "--level", "quick", "--seconds", "590", *words, "--nonce",
    ]  # fmt: skip
    assert (run.gpus_given, run.only, run.torch_promised) == (("all",), (), str(LOCK.torch))
    assert run.gpus_promised == promised != ()


def test_tests_and_injected_faults_are_passed_on() -> None:
    fake = engine_with()
    run = runner.smoke(place(fake), quiet, SmokeRequest(only=("gemm-exact", "conv"), injected_fault="ulp"), 60.0)
    assert fake.runs[0]["argv"][:14] == [
        "smoke", "--budget", "60", "--level", "quick", "--seconds", "50", "--only", "gemm-exact", "--only", "conv",
        "--inject-fault", "ulp", "--sm",
    ]  # fmt: skip
    assert run.only == ("gemm-exact", "conv")
    assert "the fault 'ulp' was to be injected" in run.tests.missing  # the recorded document says that there was none


@pytest.mark.parametrize(
    ("wish", "said_of_it"),
    [
        (SmokeRequest(only=("gem",)), "there is no smoke test `gem`"),
        (SmokeRequest(exclude=("--seconds",)), "there is no smoke test `--seconds`"),
        (SmokeRequest(injected_fault="rust"), "there is no kind of injected fault `rust`"),
        (SmokeRequest("loud"), "there is no level `loud`"),
        (SmokeRequest(sanitize="leakcheck"), "there is no tool of compute-sanitizer `leakcheck`"),
        (SmokeRequest("stress"), "--level stress and --minutes must be used together"),
        (SmokeRequest(minutes=1.0), "--level stress and --minutes must be used together"),
        (SmokeRequest(injected_fault="ulp", sanitize="memcheck"), "cannot be used together"),
        (SmokeRequest(only=("fft",), exclude=("fft",)), "no smoke test is left to run"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_before_anything_runs(wish: SmokeRequest, said_of_it: str) -> None:
    fake = engine_with()
    with pytest.raises(UsageError, match=re.escape(said_of_it)) as caught:
        runner.smoke(place(fake), quiet, wish)
    assert caught.value.fix
    assert fake.runs == []


def test_a_test_of_ones_own_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    missing = tmp_path / "missing.py"
    fake = engine_with()
    with pytest.raises(UsageError, match=f"there is no file {missing}") as caught:
        runner.smoke(place(fake), quiet, SmokeRequest(extra=(missing,)))
    assert caught.value.fix and fake.runs == []


def test_a_smoke_document_that_does_not_fit_is_not_observed() -> None:
    run = runner.smoke(place(engine_with(smoke=said({**smoke_document(), "tests": 7}))), quiet)
    assert "does not fit" in run.tests.missing


# GPUs.


@pytest.mark.parametrize(
    ("wish", "shown"),
    [("all", ("all",)), ("none", ()), ("0", ("0",)), ("0, 2,", ("0", "2"))],
)
def test_the_gpus_to_show(wish: str, shown: tuple[str, ...]) -> None:
    assert runner.default_gpus(wish) == shown


def test_auto_shows_gpus_where_the_driver_has_its_node() -> None:
    assert runner.default_gpus("auto") == (("all",) if os.path.exists("/dev/nvidiactl") else ())


# The real payload, under this Python.


def test_the_real_payload_under_this_python() -> None:
    here = runner.this_python()
    assert (here.name, here.digest) == (sys.executable, "")
    assert here.promise().missing
    image = runner.probe(here, quiet)
    assert image.name == sys.executable
    assert image.promise.missing == NO_PROMISE
    assert image.python.need("the Python").startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")


def test_the_real_payload_through_an_engine() -> None:
    fake = FakeEngine(python=sys.executable)
    fake.images["job:1"] = {runner.LOCK_LABEL: dump(LOCK), runner.FLAVOR_LABEL: "runtime"}
    image = runner.probe(place(fake), quiet)
    assert image.promise.need("the promise").torch == str(LOCK.torch)


def test_a_python_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"there is no {tmp_path}/missing/python3"):
        runner.probe(LocalPython(tmp_path / "missing/python3"), quiet)


def test_a_program_that_is_no_python_is_undecided() -> None:
    with pytest.raises(Undecided, match="/bin/true ended with exit code 0 before it ran a line"):
        runner.probe(LocalPython(Path("/bin/true")), quiet)


def test_a_payload_past_its_budget_is_killed_with_all_its_children(tmp_path: Path) -> None:
    slow = tmp_path / "python"
    mark = f"3001.{os.getpid()}"
    slow.write_text(f"#!/bin/sh\nsleep {mark} &\nexec sleep {mark}\n")
    slow.chmod(0o755)
    with ends():
        done = LocalPython(slow).run(["probe"], 2.0, quiet)
    assert done.timed_out
    assert comes(lambda: not named(f"sleep\0{mark}"))


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        ("killed SIGABRT", "import torch was killed by SIGABRT"),
        ("hung no answer within 120 s", "import torch did not end: no answer within 120 s"),
        ("garbled it exited with status 0", "import torch ended the process: it exited with status 0"),
    ],
)
def test_a_torch_that_dies_in_the_import_leaves_every_kernel_unknown(error: str, missing: str) -> None:
    died = {**smoke_document(), "torch": None, "torch_error": error}
    run = runner.smoke(place(engine_with(smoke=said(died))), quiet)
    assert (run.tests.value, run.tests.missing) == (None, missing)
    raised = {**died, "torch_error": "raised ImportError: libgone.so.1"}
    assert runner.smoke(place(engine_with(smoke=said(raised))), quiet).tests.value
