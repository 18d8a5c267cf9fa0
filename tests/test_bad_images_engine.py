"""Images that cannot be probed, or that lie: each is told from the others in one sentence, and nothing of it stays.

Each image is a few files on a small Debian, or alone; the command line runs as a user would run it.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import docker
import leftovers
import pytest
from clocks import comes, ends
from leftovers import stay, volumes

from envkit.engine import ResolvedBase
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided
from envkit.runner import runner

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parent.parent
SITE = "/etc/python3.11/sitecustomize.py"
TORCH = "/usr/local/lib/python3.11/dist-packages/torch/__init__.py"
OLD = sorted(Path.home().glob(".pyenv/versions/3.[67].*"))

Content = bytes | str | Path | None  # a file, a link, a file or folder of this machine, a program that is taken away
Make = Callable[..., str]


class Run(NamedTuple):
    """One call of the command line; ``peak`` is the most memory that it held, in MiB."""

    exit: int
    out: str
    err: str
    peak: float

    @property
    def said(self) -> str:
        """envkit's own sentence."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("envkit: ")]
        return line.removeprefix("envkit: ")


def archive(files: Mapping[str, Content]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.mode = 0o755
            if isinstance(content, Path):
                made.add(content, name.lstrip("/"), filter=lambda one: None if "/test" in one.name else one)
            elif isinstance(content, bytes):
                entry.size = len(content)
                made.addfile(entry, io.BytesIO(content))
            else:
                entry.type, entry.linkname = tarfile.SYMTYPE, str(content)
                made.addfile(entry)
    return out.getvalue()


@pytest.fixture
def make(engine: DockerEngine, python_base: ResolvedBase) -> Iterator[Make]:
    """Makes an image out of files, on top of Debian's Python or of nothing; no build is run, so no cache is left."""
    api = docker.from_env().api
    made: list[str] = []

    def one(files: Mapping[str, Content], *env: str, alone: bool = False, platform: str = "linux/amd64") -> str:
        version = uuid.uuid4().hex[:12]
        tag = f"envkit-test/bad:{version}"
        made.append(tag)
        if alone:
            command = ["docker", "import", "--platform", platform, "-", tag]
            subprocess.run(command, input=archive(files), check=True, capture_output=True, timeout=120)
            return tag
        container = api.create_container(python_base.ref, ["true"])["Id"]
        try:
            api.put_archive(container, "/", archive(files))
            api.commit(
                container, "envkit-test/bad", version, changes=['CMD ["python3"]', *(f"ENV {word}" for word in env)]
            )
        finally:
            api.remove_container(container)
        return tag

    yield one
    for tag in made:
        engine.remove(tag)


def containers() -> list[str]:
    return leftovers.containers("envkit-test/bad")


def gone() -> bool:
    """Whether no container of envkit is left, after a while."""
    return comes(lambda: not containers(), 0.1)


def start(*argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "envkit", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        errors="surrogateescape",
    )


# A small process between: the most that a child held counts what its parent held as it forked.
PEAK = """
import os, sys
pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "envkit", *sys.argv[2:]], os.environ)
status, used = os.wait4(pid, 0)[1:]
with open(sys.argv[1], "w") as file:
    file.write(str(used.ru_maxrss / 1024))
os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
"""


def envkit(*argv: str) -> Run:
    before = volumes()
    with tempfile.NamedTemporaryFile("r") as peak:
        done = subprocess.run(
            [sys.executable, "-c", PEAK, peak.name, *argv],
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300,
            cwd=ROOT, text=True, errors="surrogateescape",
        )  # fmt: skip
        held = float(peak.read())
    assert gone() and not stay(volumes, before), "something of the run is left"
    return Run(done.returncode, done.stdout, done.stderr, held)


def told(verb: str, image: str) -> str:
    """What envkit says of an image that it can make nothing of; all that must hold of any such answer is held here."""
    run = envkit(verb, image)
    assert (run.exit, run.out) == (3, ""), run.err
    fix = [line for line in run.err.splitlines() if line.startswith("  fix: ")]
    assert len(fix) == 1 and run.err.count("envkit: ") == 1
    assert "this is an internal error of envkit" not in run.err
    assert len(run.said) < 500 and not run.said.endswith(".")
    assert image in run.said
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", run.err), "an active character came through"
    assert 10 < run.peak < 150
    return run.said.replace(image, "IMAGE")


VERBS = pytest.mark.parametrize("verb", ["probe", "smoke"])
NIGHTLY = pytest.mark.nightly


def by_verb(names: str, cases: Mapping[str, tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Every case under `probe` and the first under `smoke`, with the others of it by night: what tells one case from
    another is the same code for both verbs."""
    first = next(iter(cases))
    both = [(verb, id_) for id_ in cases for verb in ("probe", "smoke")]
    return pytest.mark.parametrize(
        ("verb", *names.split()),
        [
            pytest.param(verb, *cases[id_], id=f"{id_}-{verb}", marks=[NIGHTLY] * (verb == "smoke" and id_ != first))
            for verb, id_ in both
        ],
    )


def foreign() -> bytes:
    """A program for another processor: this Python's own head with the number of 64-bit ARM."""
    head = bytearray(Path(sys.executable).resolve().read_bytes()[:8192])
    head[18:20] = (183).to_bytes(2, "little")
    return bytes(head)


# Images that no Python starts in.


@by_verb(
    "files sentence",
    {
        "none": ({"/etc/os-release": b"ID=none\n"}, "the image IMAGE has no python3 to run the payload with"),
        "a-broken-link": (
            {"/usr/bin/python3": "/nowhere/python3"},
            "the image IMAGE has no python3 to run the payload with",
        ),
        "no-interpreter": (
            {"/usr/bin/python3": b"#!/bin/sh\necho no\n"},
            "/usr/bin/python3 in the image IMAGE cannot start: the loader or interpreter it names is not in the image",
        ),
        "another-processor": (
            {"/usr/bin/python3": foreign()},
            "/usr/bin/python3 in the image IMAGE is no program for this machine's processor",
        ),
    },
)
def test_no_python_that_starts(make: Make, verb: str, files: dict[str, Content], sentence: str) -> None:
    assert told(verb, make(files, alone=True)) == sentence


@VERBS
def test_an_image_for_another_platform_is_told_before_anything_runs(make: Make, verb: str) -> None:
    machine = os.uname().machine
    own, other = ("amd64", "arm64") if machine == "x86_64" else ("arm64", "amd64")
    image = make({"/usr/bin/python3": foreign()}, alone=True, platform=f"linux/{other}")
    seen = events()
    assert told(verb, image) == f"the image IMAGE is for linux/{other} and this engine runs linux/{own}"
    assert seen(image) == []


def events() -> Callable[[str], list[str]]:
    """What the engine did with containers of an image since this was called."""
    since = time.time()

    def seen(image: str) -> list[str]:
        client = docker.from_env().api
        found = client.events(since=since - 1, until=time.time() + 1, decode=True, filters={"type": "container"})
        return [event["Action"] for event in found if event["Actor"]["Attributes"].get("image") == image]

    return seen


@VERBS
def test_an_image_that_is_not_there_is_the_users_mistake(engine: DockerEngine, verb: str) -> None:
    run = envkit(verb, "envkit-test/bad:none")
    assert (run.exit, run.out) == (2, "")
    assert run.said == "the docker engine has no image envkit-test/bad:none"


# Pythons that end before the payload.


@by_verb(
    "files env sentence",
    {
        "home": (
            {},
            ["PYTHONHOME=/nowhere"],
            "ended with exit code 1 {}: ModuleNotFoundError: No module named 'encodings'",
        ),
        "leaves": ({SITE: b"import os; os._exit(0)"}, [], "ended with exit code 0 {}"),
        "fails": ({SITE: b"import os; os._exit(7)"}, [], "ended with exit code 7 {}"),
        "segfault": ({SITE: b"import ctypes; ctypes.string_at(0)"}, [], "was killed by SIGSEGV {}"),
        "exits": (
            {SITE: b"import sys; sys.exit('go away')"},
            [],
            "ended with exit code 1 {}: Fatal Python error: init_import_site: Failed to import the site module",
        ),
        "colour": (
            {SITE: b"import os; os.write(2, b'a fault \\x1b[2J in red.\\n'); os._exit(9)"},
            [],
            "ended with exit code 9 {}: a fault \\x1b[2J in red",
        ),
        "pid-1": ({"/usr/bin/python3": b"#!/bin/sh\nkill -9 $$; exit 4\n"}, [], "ended with exit code 4 {}"),
        "no-python": ({"/usr/bin/python3": b"#!/bin/sh\necho hello\n"}, [], "ended with exit code 0 {}: hello"),
    },
)
def test_a_python_that_ends_before_the_payload(
    make: Make, verb: str, files: dict[str, Content], env: list[str], sentence: str
) -> None:
    said = told(verb, make(files or {"/none": b""}, *env))
    assert said == "the Python of IMAGE " + sentence.format("before it ran a line of the payload")


def old_python() -> tuple[dict[str, Content], str]:
    """A Python that is too old: a real one where pyenv has it, else Debian's own that gives itself out for one."""
    if not OLD:
        return {SITE: b"import sys; sys.version_info = (3, 6, 15, 'final', 0)"}, "3.6.15"
    found, version = OLD[0], OLD[0].name
    minor = version.rpartition(".")[0]
    libraries: dict[str, Content] = {str(one): one for one in (found / "lib").glob("libpython*")}
    return {
        **libraries,
        f"{found}/bin/python{minor}": found / "bin" / f"python{minor}",
        f"{found}/lib/python{minor}": found / "lib" / f"python{minor}",
        "/usr/local/bin/python3": f"{found}/bin/python{minor}",
    }, version


@VERBS
def test_a_python_that_is_too_old(make: Make, verb: str) -> None:
    files, version = old_python()
    assert told(verb, make(files)) == f"the Python of IMAGE is {version}, but the payload needs 3.8 or newer"


# No package of Debian is a Python on musl; this is how one looks from within, as it was seen of CPython built with
# musl-gcc: confstr(3) refuses the name, and the loader, which is the library, lies in the process.
MUSL = b"""
import mmap, os
def confstr(name):
    raise OSError(22, "Invalid argument")
os.confstr = confstr
with open("/lib/ld-musl-x86_64.so.1", "rb") as file:
    held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
"""


@VERBS
def test_a_python_on_musl(make: Make, verb: str) -> None:
    image = make({SITE: MUSL, "/lib/ld-musl-x86_64.so.1": b"the library that is also the loader"})
    assert told(verb, image) == "the Python of IMAGE uses musl, but torch, CUDA and the payload need glibc"


# Torch that does not come.


@VERBS
@pytest.mark.parametrize(
    ("torch", "probed", "tried"),
    [
        (
            "import os; os.abort()",
            "import torch was killed by SIGABRT, by the image or by this machine (its processor, its memory)",
            "import torch was killed by SIGABRT",
        ),
        (
            "import os; os._exit(0)",
            "the observed process exited with code 0 while import torch",
            "import torch ended the process: it exited with status 0 and without its document",
        ),
    ],
    ids=["aborts", "leaves"],
)
def test_a_torch_that_kills_its_process_is_not_known(
    make: Make, verb: str, torch: str, probed: str, tried: str
) -> None:
    run = envkit(verb, make({TORCH: torch.encode()}), "--format", "json")
    assert run.exit == 3, run.err
    report = json.loads(run.out)
    reasons = {row["reason"] for row in report["results"] if row["outcome"] == "unknown"}
    assert report["verdict"] == "undecided" and not [row for row in report["results"] if row["outcome"] == "fail"]
    assert any((probed if verb == "probe" else tried) in reason for reason in reasons), reasons


def test_a_torch_that_raises_is_found(make: Make) -> None:
    run = envkit("probe", make({TORCH: b"raise ImportError('libgone.so.1: \\x1b[31mred')"}), "--format", "json")
    assert run.exit == 1, run.err
    (failed,) = [row for row in json.loads(run.out)["results"] if row["outcome"] == "fail"]
    assert failed["check"] == "image-torch-import-fails" and "libgone.so.1" in failed["findings"][0]["message"]


# Noise, floods, silence.


def test_noise_on_both_streams_costs_nothing(make: Make) -> None:
    noise = b"""
import sys
print('{"kind": "probe"}', "\\x1b[2J")
sys.stdout.write("half a line")
sys.stdout.flush()
sys.stderr.write("\\x1b]0;title\\x07")
"""
    noisy = envkit("probe", make({SITE: noise}), "--format", "json")
    plain = envkit("probe", make({"/none": b""}), "--format", "json")
    assert noisy.exit == plain.exit
    assert json.loads(noisy.out)["results"] == json.loads(plain.out)["results"] != []
    assert "\x1b" not in noisy.err and "\\x1b]0;title\\x07" in noisy.err


FLOOD = "import sys\nfor _ in range(100):\n    sys.{stream}.write({text!r} * {times})\n    sys.{stream}.flush()\n"


@pytest.mark.parametrize("text", ["x" * 1024, "y" * 127 + "\n"], ids=["one-line", "lines"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_hundred_megabytes_of_talk_end_a_run_and_are_not_held(make: Make, stream: str, text: str) -> None:
    flood = FLOOD.format(stream=stream, text=text, times=(1 << 20) // len(text)).encode()
    limit = 32 if stream == "stdout" else 64
    expected = f"the run in the image IMAGE wrote more than {limit} MiB to {stream} and was stopped"
    assert told("probe", make({SITE: flood})) == expected
    # What torch prints never reaches stdout: it could be taken for the document there.
    expected = "the run in the image IMAGE wrote more than 64 MiB to stderr and was stopped"
    assert told("probe", make({TORCH: flood})) == expected


def test_talk_is_passed_on_in_part(make: Make) -> None:
    lines = b"import sys\nfor number in range(5000):\n    print('line', number, 'x' * 5000, file=sys.stderr)\n"
    run = envkit("probe", make({TORCH: lines}))
    shown = [line for line in run.err.splitlines() if line.startswith("probe: ")]
    assert len(shown) < 350 and all(len(line) < 1100 for line in shown)
    assert shown[0].startswith("probe: line 0 ") and shown[-1].startswith("probe: line 4999 ")
    assert [line for line in shown if re.fullmatch(r"probe: \(\d+ lines are left out\)", line)]


HANGS = {
    "python": ({"/usr/bin/python3": b"#!/bin/sh\nexec sleep 1000\n"}, "before it ran a line of the payload"),
    "start": ({SITE: b"import time; time.sleep(1000)"}, "before it ran a line of the payload"),
    "spin": ({SITE: b"while True: pass"}, "before it ran a line of the payload"),
}


@pytest.mark.parametrize("hang", HANGS)
def test_a_python_that_hangs_is_ended_at_the_budget(engine: DockerEngine, make: Make, hang: str) -> None:
    """One by the image's own start and then past it, which waits twice; the others past it alone."""
    files, where = HANGS[hang]
    image = make(files)
    place = runner.InEngine(engine, image, "", ())
    with ends(), pytest.raises(Undecided) as caught:
        runner.probe(place, lambda line: None, timeout_s=0.1, direct=hang != "start")
    assert caught.value.message == f"the Python of {image} did not end within 0.1 s {where}"
    assert containers() == []


def test_a_torch_that_hangs_is_ended_at_the_budget(engine: DockerEngine, make: Make) -> None:
    image = make({TORCH: b"from signal import *\npthread_sigmask(SIG_BLOCK, valid_signals())\nwhile True: pass"})
    with pytest.raises(Undecided) as caught:
        runner.probe(runner.InEngine(engine, image, "", ()), lambda line: None, timeout_s=3.0)
    assert caught.value.message == f"the probe in {image} did not end within 3 s and printed no result"
    assert containers() == []


HANGING = {**{name: files for name, (files, _) in HANGS.items()}, "torch": {TORCH: b"while True: pass"}}
# SIGKILL, which nothing answers, in every place; the others once each, and by night in every place.
DAILY = {("torch", signal.SIGTERM), ("spin", signal.SIGINT), *((name, signal.SIGKILL) for name in HANGING)}


@pytest.mark.parametrize(
    ("files", "number"),
    [
        pytest.param(files, number, id=f"{name}-{number.name}", marks=[NIGHTLY] * ((name, number) not in DAILY))
        for name, files in HANGING.items()
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    ],
)
def test_nothing_of_a_hanging_image_outlives_envkit(
    make: Make, files: dict[str, Content], number: signal.Signals
) -> None:
    before = volumes()
    process = start("probe", make(files))
    try:
        # Before the one that runs there is another, which is never started, for a moment.
        assert comes(lambda: leftovers.containers("envkit-test/bad", running=True), 0.05)
        time.sleep(0.3)
        assert len(leftovers.containers("envkit-test/bad", running=True)) == 1
        process.send_signal(number)
        process.communicate(timeout=120)
        assert process.returncode == (-number if number is signal.SIGKILL else 130)
        assert gone(), "a container outlives envkit"
    finally:  # whatever failed, the tests after this one find nothing of it
        process.kill()
        process.communicate()
    assert not stay(volumes, before)


# Images that lie.

FORGE = """
import hashlib, json, os
words = open("/proc/self/cmdline").read().split("\\0")
if "--nonce" in words:
    payload = hashlib.sha256(open(words[1], "rb").read()).hexdigest()
    seal = {{"nonce": words[words.index("--nonce") + 1], "payload_sha256": payload}}
    own = {{"schema": "envkit.payload/1", "kind": words[2], **seal}}
    def say(text):
        data = (text if isinstance(text, str) else json.dumps(text)).encode() + b"\\n"
        while data:
            data = data[os.write(1, data):]
    {body}
"""


@by_verb(
    "body sentence",
    {
        "nonce": ("say({**own, 'nonce': 'x'}); os._exit(0)", "printed a result with the wrong nonce"),
        "payload": (
            "say({**own, 'payload_sha256': 'x'}); os._exit(0)",
            "printed a result with the wrong payload_sha256",
        ),
        "beside": ("say(own)", "printed 2 results for one run"),
        "twice": ("say(own); say(own); os._exit(0)", "printed 2 results for one run"),
        "keys": (
            "say(json.dumps(own)[:-1] + ', \"kind\": \"probe\"}'); os._exit(0)",
            "printed a result that cannot be read: a duplicate key in a mapping",
        ),
        "nan": (
            "say(json.dumps(own)[:-1] + ', \"x\": NaN}'); os._exit(0)",
            "printed a result that cannot be read: NaN, which is not a JSON number",
        ),
        "infinite": (
            "say(json.dumps(own)[:-1] + ', \"x\": 1e999}'); os._exit(0)",
            "printed a result that cannot be read: a number that is not finite",
        ),
        "digits": (
            "say(json.dumps(own)[:-1] + ', \"x\": ' + '9' * 1000 + '}'); os._exit(0)",
            "printed a result that cannot be read: a number of 1000 digits",
        ),
        "deepest": (
            "say(json.dumps(own)[:-1] + ', \"x\": ' + '[' * 100000 + ']' * 100000 + '}'); os._exit(0)",
            "printed a result that cannot be read: nesting too deep to read",
        ),
        "deep": (
            "say(json.dumps(own)[:-1] + ', \"x\": ' + '[' * 100 + ']' * 100 + '}'); os._exit(0)",
            "printed a result that cannot be read: nesting more than 64 deep",
        ),
    },
)  # fmt: skip
def test_a_forged_document_is_none(make: Make, verb: str, body: str, sentence: str) -> None:
    image = make({SITE: FORGE.format(body=body).encode()})
    what = "probe" if verb == "probe" else "smoke suite"
    assert told(verb, image) == f"the {what} in IMAGE ended with exit code 0 and {sentence}"


@VERBS
def test_a_document_of_200_megabytes_is_none(make: Make, verb: str) -> None:
    body = "say(json.dumps(own)[:-1] + ', \"x\": \"' + 'x' * (200 << 20) + '\"}'); os._exit(0)"
    said = told(verb, make({SITE: FORGE.format(body=body).encode()}))
    assert said == "the run in the image IMAGE wrote more than 32 MiB to stdout and was stopped"


def test_a_forgery_in_the_payloads_place_is_held_to_the_form(make: Make) -> None:
    """The image that reads the nonce and prints in the payload's place is believed, but only in the payload's form."""
    body = "say({**own, 'image': {'torch': {'value': '\\x1b[2J', 'via': '', 'missing': ''}}}); os._exit(0)"
    image = make({SITE: FORGE.format(body=body).encode()})
    run = envkit("probe", image)
    assert (run.exit, run.out) == (3, "")
    assert run.said.startswith("the probe's document is malformed: fields missing or unknown")
    assert "\x1b" not in run.err
    body = "say({**own, 'tests': [{'name': '\\x1b[2J'}]}); os._exit(0)"
    run = envkit("smoke", make({SITE: FORGE.format(body=body).encode()}))
    assert run.exit == 3 and "\x1b" not in run.err + run.out
    assert "the smoke suite's document does not fit" in " ".join(run.out.split())


# What a run may do.

LOOK = """
import json, os, sys
def refused(what):
    try:
        what()
    except OSError as error:
        return error.errno
    return 0
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def read(*paths):  # of either kind of cgroup
    return [open(path).read().strip() for path in paths if os.path.exists(path)]
tmp = os.statvfs("/tmp")
def fill():
    with open("/tmp/full", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, tmp.f_blocks * tmp.f_frsize + (1 << 20))
print(json.dumps({
    "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new": status["NoNewPrivs"], "seccomp": status["Seccomp"],
    "network": os.listdir("/sys/class/net"),
    "root": refused(lambda: open("/x", "w")), "payload": refused(lambda: open(sys.argv[0], "r+")),
    "tmp": tmp.f_blocks * tmp.f_frsize, "beyond": refused(fill),
    "memory": read("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"),
    "oom": open("/proc/self/oom_score_adj").read().strip(),
    "pids": read("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"),
}), flush=True)
print("looked", file=sys.stderr, flush=True)
sys.stdin.read()
"""


def test_what_a_run_may_do_from_within_and_from_without(engine: DockerEngine, make: Make) -> None:
    image = make({"/none": b""})
    api = docker.from_env().api
    inspected: list[dict[str, Any]] = []

    def look(line: str) -> None:
        if line == "looked":
            (own,) = containers()
            inspected.append(api.inspect_container(own))
            api.kill(own)

    run = engine.run(image, [], payload=LOOK.encode(), timeout_s=60, say=look)
    seen, host = json.loads(run.stdout), inspected[0]["HostConfig"]
    memory = api.info()["MemTotal"]
    assert seen["capabilities"] == [0] * 5 and host["CapDrop"] == ["ALL"] and not host["CapAdd"]
    assert seen["no_new"] == "1" and "no-new-privileges" in " ".join(host["SecurityOpt"])
    assert seen["network"] == ["lo"] and host["NetworkMode"] == "none"
    assert seen["root"] == 30 and seen["payload"] == 13 and host["ReadonlyRootfs"]
    assert not host["Privileged"] and not host["Binds"] and host["IpcMode"] in ("", "private")
    assert seen["tmp"] == min(memory // 2, 8 << 30) // 4096 * 4096 and seen["beyond"] == 28
    assert host["PidsLimit"] == 4096 and set(seen["pids"]) <= {"4096"}
    assert host["Memory"] == memory * 7 // 8 and host["MemorySwap"] == host["Memory"]
    assert all(int(one) <= host["Memory"] for one in seen["memory"])
    assert seen["oom"] == "500" and host["AutoRemove"]
    if "name=seccomp" in str(api.info()["SecurityOptions"]):
        assert seen["seccomp"] == "2"
    assert containers() == []
