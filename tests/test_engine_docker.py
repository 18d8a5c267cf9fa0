"""The Docker engine against a real one: builds, isolation, and that nothing is ever left behind."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import docker
import pytest
from clocks import comes, ends
from leftovers import containers, drafts, stay, volumes, volumes_of
from processes import named

from envkit.engine import BaseRequest, BuildRequest, BuiltImage, CannotStart, ResolvedBase, reaper
from envkit.engine.docker import DockerEngine
from envkit.engine.held import OWNER_LABEL, RUN_LABEL
from envkit.engine.leftovers import abandoned, pid_space, stale_drafts
from envkit.errors import Undecided, UsageError
from envkit.image.tar import read
from envkit.system import proc
from envkit.system.terminal import Live

pytestmark = pytest.mark.engine

# What envkit's own payload does when it is told to watch its stdin: at the end of stdin everything dies.
WATCH = """
import os, signal, sys, threading
def _watch():
    while os.read(0, 1024):
        pass
    os._exit(137)  # a container's first process cannot kill itself by a signal; its end takes all others with it
if "--watch-stdin" in sys.argv:
    threading.Thread(target=_watch, daemon=True).start()
"""


def quiet(line: str) -> None:
    pass


def payload(body: str) -> bytes:
    return (WATCH + textwrap.dedent(body)).encode()


def write(directory: Path, dockerfile: str) -> Path:
    (directory / "Dockerfile").write_text(textwrap.dedent(dockerfile).lstrip())
    return directory


def build(engine: DockerEngine, context: Path, tag: str, **secrets: Path) -> BuiltImage:
    labels = {"io.envkit.spec": "test one"}
    return engine.build(BuildRequest(context, tag, 300, labels=labels, secrets=secrets), quiet)


@pytest.fixture
def image(engine: DockerEngine, python_base: ResolvedBase, tag: str) -> str:
    """The base under a name of this test's own, so that its containers can be told from others'."""
    repository, _, version = tag.partition(":")
    docker.from_env().api.tag(python_base.ref, repository, version)
    return tag


# -- builds


def test_build_tags_labels_and_tells(engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path) -> None:
    write(tmp_path, f"FROM {python_base.ref}\nARG WORD\nRUN echo $WORD > /word\n")
    said: list[str] = []
    request = BuildRequest(tmp_path, tag, 300, args={"WORD": "hi"}, labels={"io.envkit.spec": "a b=c"}, no_cache=True)
    built = engine.build(request, said.append)
    assert built.id.startswith("sha256:") and built.tag == tag and built.size_bytes > 50_000_000
    assert engine.labels(tag)["io.envkit.spec"] == "a b=c"
    assert said[0] == f"[1/2] FROM {python_base.ref}"
    stays = [line for line in said if not isinstance(line, Live)]
    assert re.fullmatch(r"\[2/2\] RUN echo hi > /word \d+\.\d s", stays[-2])
    assert re.fullmatch(r"exporting to image \d+\.\d s", stays[-1])
    read = engine.run(tag, [], payload=payload("print(open('/word').read())"), timeout_s=60, say=quiet)
    assert read.stdout.split() == ["hi"]


def test_failed_build_leaves_the_tag_as_it_was(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path
) -> None:
    others = drafts()
    before = build(engine, write(tmp_path, f"FROM {python_base.ref}\nRUN echo one > /n\n"), tag)
    write(tmp_path, f"FROM {python_base.ref}\nRUN echo two > /n && echo the last word >&2 && exit 7\n")
    with pytest.raises(Undecided) as caught:
        build(engine, tmp_path, tag)
    assert "[2/2] RUN echo two" in caught.value.message and "ended with exit code 7" in caught.value.message
    assert "```\nthe last word\n```" in caught.value.message
    assert docker.from_env().api.inspect_image(tag)["Id"] == before.id
    assert not stay(drafts, others)


def test_what_a_killed_build_left_goes_at_the_next_one(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path
) -> None:
    others = drafts()
    write(tmp_path, f"FROM {python_base.ref} AS low\nRUN echo one > /n\nFROM low AS high\nRUN sleep 600\n")
    code = (
        "import sys; from pathlib import Path; from envkit.engine import BuildRequest;"
        "from envkit.engine.docker import DockerEngine;"
        "request = BuildRequest(Path(sys.argv[1]), sys.argv[2], 600, target='high', ahead='low', no_cache=True,"
        " labels={'io.envkit.test': sys.argv[2]});"
        "DockerEngine(Path(sys.argv[1])).build(request, lambda line: None)"
    )
    killed = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), tag])
    try:
        assert comes(lambda: drafts() - others, 0.1)
    finally:
        killed.kill()
        killed.wait()
    assert drafts() - others
    build(engine, write(tmp_path, f"FROM {python_base.ref}\n"), tag)
    assert not stay(drafts, others)


def test_failed_first_build_leaves_no_tag(engine: DockerEngine, tag: str, tmp_path: Path) -> None:
    write(tmp_path, "FROM scratch\nCOPY missing /\n")
    with pytest.raises(Undecided, match="missing"):
        build(engine, tmp_path, tag)
    with pytest.raises(UsageError, match="has no image"):
        engine.labels(tag)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            "--mount=type=tmpfs,target=/t,size=65536 dd if=/dev/zero of=/t/x bs=1M count=1",
            "the disk is full: .* MB are free",
        ),
        (
            "python3 -c 'import urllib.request as u; u.urlopen(\"http://nowhere.invalid\")'",
            "the network did not serve: .*(Name or service not known|Temporary failure in name resolution)",
        ),
        (
            "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'",
            "the network did not serve: .*Connection refused",
        ),
        ("sh -c 'kill -9 $$'", "ended with exit code 137"),
    ],
    ids=["disk-full", "no-name-service", "refused", "killed"],
)  # fmt: skip
def test_build_says_what_failed(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path, step: str, expected: str
) -> None:
    with pytest.raises(Undecided, match=expected) as caught:
        build(engine, write(tmp_path, f"FROM {python_base.ref}\nRUN {step}\n"), tag)
    assert caught.value.fix


def test_unreadable_dockerfile_is_the_users(engine: DockerEngine, tag: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown instruction"):
        build(engine, write(tmp_path, "FRM scratch\n"), tag)


def test_build_has_a_budget(engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path) -> None:
    write(tmp_path, f"FROM {python_base.ref}\nRUN sleep 600\n")
    with ends(), pytest.raises(Undecided, match=r"did not end within 3 s in the step \[2/2\] RUN sleep 600"):
        engine.build(BuildRequest(tmp_path, tag, 3), quiet)


def test_a_stage_is_built_offline_with_a_folder_in_anothers_place(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path
) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "word").write_text("given")
    context = tmp_path / "context"
    context.mkdir()
    write(
        context,
        f"""
        FROM scratch AS words
        FROM {python_base.ref} AS wanted
        COPY --from=words /word /word
        RUN ls /sys/class/net > /net
        FROM wanted AS unwanted
        RUN exit 9
        """,
    )
    request = BuildRequest(context, tag, 300, target="wanted", contexts={"words": tmp_path / "given"}, offline=True)
    engine.build(request, quiet)
    assert engine.file(tag, "/word") == b"given"
    assert engine.file(tag, "/net").split() == [b"lo"]
    with pytest.raises(UsageError, match="has no file /none"):
        engine.file(tag, "/none")
    with pytest.raises(Undecided, match="exit code 9"):
        engine.build(BuildRequest(context, tag, 300, contexts=request.contexts), quiet)
    assert containers(tag) == []


@pytest.mark.parametrize("ending", ["exit 0", "exit 7"])
def test_a_large_stage_is_an_image_while_the_rest_is_built_and_none_afterwards(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path, ending: str
) -> None:
    low = f"FROM {python_base.ref} AS low\nRUN head -c 50000000 /dev/urandom > /low\n"
    write(tmp_path, f"{low}FROM low AS high\nRUN sleep 3 && {ending}\n")
    others = drafts()
    seen: dict[str, int] = {}
    over = threading.Event()

    def watch() -> None:
        asked = docker.from_env().api
        while not over.wait(0.05):
            for one in asked.images("envkit-draft"):
                for name in {*(one["RepoTags"] or ())} - others:
                    with suppress(docker.errors.NotFound):
                        seen[name] = len(asked.inspect_image(one["Id"])["RootFS"]["Layers"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        own = {f"io.envkit.test.{uuid.uuid4().hex}": "1"}  # there is no image like it
        request = BuildRequest(tmp_path, tag, 60, target="high", ahead="low", labels=own, no_cache=True)
        with nullcontext() if ending == "exit 0" else pytest.raises(Undecided, match="exit code 7"):
            engine.build(request, quiet)
    finally:
        over.set()
        watcher.join()
    base = len(engine.layers(python_base.ref))
    assert (base + 1) in [layers for name, layers in seen.items() if name.endswith("-ahead")]
    assert not drafts() & {*seen}
    if ending == "exit 0":
        assert len(engine.layers(tag)) == base + 2


def test_an_image_is_saved_and_its_layers_are_what_was_saved(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path
) -> None:
    build(engine, write(tmp_path, f"FROM {python_base.ref}\nRUN echo one > /n\n"), tag)
    engine.save(tag, tmp_path / "image.tar")
    with (tmp_path / "image.tar").open("rb") as stream:
        layers = read(stream, ())
    assert tuple(layer.diff_id for layer in layers) == engine.layers(tag)
    assert engine.layers(tag)[: len(engine.layers(python_base.ref))] == engine.layers(python_base.ref)
    with pytest.raises(UsageError, match="has no image envkit-test:none"):
        engine.save("envkit-test:none", tmp_path / "none.tar")


def test_a_saved_base_is_taken_in_by_its_own_hash_alone(
    engine: DockerEngine, python_base: ResolvedBase, tmp_path: Path
) -> None:
    saved = tmp_path / "base.tar"
    engine.save(python_base.ref, saved)
    pinned = BaseRequest("debian:bookworm-slim", "bookworm", python_base.sha256)
    found = engine.load(saved, pinned)
    assert (found.id, found.how, found.sha256) == (python_base.id, "vendored", python_base.sha256)
    with pytest.raises(UsageError, match="holds another base than sha256:0000"):
        engine.load(saved, BaseRequest("debian:bookworm-slim", "bookworm", "sha256:" + "0" * 64))


def _holds(image: str, needle: bytes) -> list[str]:
    """Where ``needle`` stands in ``image``: its history, its config, every file of every layer."""
    client = docker.from_env()
    found = ["history"] if needle in json.dumps(client.api.history(image)).encode() else []
    found += ["config"] if needle in json.dumps(client.api.inspect_image(image)).encode() else []
    saved = io.BytesIO(b"".join(client.api.get_image(image)))
    with tarfile.open(fileobj=saved) as archive:
        for entry in archive.getmembers():
            content = archive.extractfile(entry)
            if content is None:
                continue
            try:
                with tarfile.open(fileobj=content) as layer:
                    files = ((file.name, layer.extractfile(file)) for file in layer.getmembers() if file.isreg())
                    found += [name for name, file in files if file is not None and needle in file.read()]
            except tarfile.ReadError:
                content.seek(0)
                found += [entry.name] if needle in content.read() else []
    return found


@pytest.mark.parametrize("leaks", [False, True])
def test_secret_is_in_no_layer(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path, leaks: bool
) -> None:
    """The twin that copies the bundle into its layer shows that the search would find it."""
    bundle = tmp_path / "bundle.crt"
    marker = "a bundle that no image may hold"
    bundle.write_text(f"-----BEGIN CERTIFICATE-----\n{marker}\n")
    context = tmp_path / "context"
    context.mkdir()
    then = "cp /run/secrets/ca /kept.crt" if leaks else "test -s /run/secrets/ca"
    write(context, f"FROM {python_base.ref}\nRUN --mount=type=secret,id=ca {then}\n")
    build(engine, context, tag, ca=bundle)
    found = _holds(tag, marker.encode())
    assert found == (["kept.crt"] if leaks else [])


# -- runs


def test_run_is_fenced_in(engine: DockerEngine, image: str) -> None:
    body = """
    import json, subprocess
    def refused(path):
        try:
            open(path, "w").close()
        except OSError as error:
            return type(error).__name__ + " " + str(error.errno)
        return ""
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    open("/tmp/tool", "w").write("#!/bin/sh\\necho ran\\n")
    os.chmod("/tmp/tool", 0o755)
    print(json.dumps({
        "argv": sys.argv[1:], "word": os.environ["WORD"],
        "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16), "no_new": status["NoNewPrivs"],
        "network": os.listdir("/sys/class/net"), "root": refused("/x"), "payload": refused(sys.argv[0]),
        "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
        "ran": subprocess.run(["/tmp/tool"], stdout=subprocess.PIPE).stdout.decode(),
        "gpus": [name for name in os.listdir("/dev") if name.startswith("nvidia")],
        "pid": os.getpid(),
    }))
    print("to stderr", file=sys.stderr)
    sys.exit(3)
    """
    said: list[str] = []
    run = engine.run(image, ["probe"], payload=payload(body), env={"WORD": "w"}, timeout_s=60, say=said.append)
    seen = json.loads(run.stdout)
    assert (run.exit, run.timed_out, run.stderr, said) == (3, False, "to stderr\n", ["to stderr"])
    assert seen["argv"] == ["probe", "--watch-stdin"] and seen["word"] == "w"
    assert seen["capabilities"] == 0 and seen["no_new"] == "1"
    assert seen["network"] == ["lo"] and seen["gpus"] == []
    assert seen["root"] == "OSError 30" and seen["payload"] == "OSError 30"
    assert seen["shm"] == 1 << 30 and seen["ran"] == "ran\n"
    assert seen["pid"] == 1, "the payload's watcher is the first process: its end takes all others with it"
    assert containers(image) == []


def test_signal_is_told_from_exit(engine: DockerEngine, image: str) -> None:
    run = engine.run(image, [], payload=payload("sys.exit(128 + signal.SIGSEGV)"), timeout_s=60, say=quiet)
    assert run.exit == -signal.SIGSEGV


def test_run_has_a_budget(engine: DockerEngine, image: str) -> None:
    body = "import time\nprint('so far', flush=True)\ntime.sleep(600)"
    with ends():
        run = engine.run(image, [], payload=payload(body), timeout_s=5, say=quiet)
    assert run.timed_out and run.stdout == "so far\n"
    assert containers(image) == []


def test_a_run_ends_once_it_shall_stop(engine: DockerEngine, image: str) -> None:
    begun: list[str] = []
    body = "import time\nprint('begun', file=sys.stderr, flush=True)\ntime.sleep(600)"
    run = engine.run(image, [], payload=payload(body), timeout_s=60, say=begun.append, stop=lambda: bool(begun))
    assert run.timed_out and begun == ["begun"]
    assert containers(image) == []


def test_flood_of_output_is_stopped(engine: DockerEngine, image: str) -> None:
    with pytest.raises(Undecided, match="wrote more than 32 MiB to stdout"):
        engine.run(image, [], payload=payload("while True: print('x' * 65536)"), timeout_s=60, say=quiet)
    assert containers(image) == []


def test_image_without_python(engine: DockerEngine, python_base: ResolvedBase, image: str) -> None:
    with pytest.raises(CannotStart, match="cannot start python9: executable file not found"):
        engine.run(image, [], payload=payload(""), start=lambda own: ["python9", *own], timeout_s=60, say=quiet)
    assert containers(image) == []


def test_a_mount_is_read_and_not_written(engine: DockerEngine, image: str, tmp_path: Path) -> None:
    code = tmp_path / "my code"
    code.mkdir()
    (code / "word").write_text("here")
    (tmp_path / "link").symlink_to(code)
    body = """
    import errno
    print(sys.argv[1], open(sys.argv[1]).read())
    for path in ("/given/code/word", "/given/code/new", "/given/one"):
        try:
            open(path, "w").close()
        except OSError as error:
            print(errno.errorcode[error.errno])
    """
    mounts = {"/given/code": tmp_path / "link", "/given/one": code / "word"}
    run = engine.run(image, ["/given/code/word"], payload=payload(body), mounts=mounts, timeout_s=60, say=quiet)
    assert run.stdout.split() == ["/given/code/word", "here", "EROFS", "EROFS", "EROFS"], run.stderr
    assert (code / "word").read_text() == "here" and containers(image) == []
    with pytest.raises(UsageError, match=r"there is no .*/gone"):
        engine.run(image, [], payload=payload(""), mounts={"/given": tmp_path / "gone"}, timeout_s=60, say=quiet)


def test_missing_image(engine: DockerEngine) -> None:
    for ask in (
        lambda: engine.run("envkit-test:none", [], payload=b"", timeout_s=5, say=quiet),
        lambda: engine.labels("envkit-test:none"),
    ):
        with pytest.raises(UsageError, match="has no image envkit-test:none"):
            ask()
    engine.remove("envkit-test:none")


@pytest.mark.skipif(
    any(Path(d).is_dir() for d in ("/etc/cdi", "/var/run/cdi")), reason="this machine offers CDI devices"
)
def test_gpu_that_is_not_there(engine: DockerEngine, image: str) -> None:
    with pytest.raises(Undecided, match="cannot give the container these GPUs") as caught:
        engine.run(image, [], payload=payload(""), gpus=("all",), timeout_s=60, say=quiet)
    assert "nvidia-ctk cdi generate" in caught.value.fix and containers(image) == []


DRIVER = """
import sys
from pathlib import Path
from envkit.engine.docker import DockerEngine
engine = DockerEngine(Path(sys.argv[2]))
engine.run(sys.argv[1], [], payload=Path(sys.argv[3]).read_bytes(), timeout_s=600, say=print)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_container_outlives_envkit(engine: DockerEngine, image: str, tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "payload.py"
    file.write_bytes(payload("import time\nprint('up', file=sys.stderr, flush=True)\ntime.sleep(600)"))
    others = set(containers(image))
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", DRIVER, image, str(tmp_path), str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        (container,) = set(containers(image)) - others
        own = volumes_of(container)
        assert own
        process.send_signal(number)
        process.wait(120)
        if number is signal.SIGTERM:
            assert process.stderr is not None and b"Interrupted" in process.stderr.read()
        assert comes(lambda: not set(containers(image)) - others, 0.1) and not own & volumes()
    finally:  # whatever failed, the tests after this one find nothing of it
        process.kill()
        process.communicate()
        for left in set(containers(image)) - others:
            docker.from_env().api.remove_container(left, v=True, force=True)


FENCED = """
import json, os, socket
def refused(act):
    try:
        act()
    except OSError:
        return True
os.mkdir("/work/out")
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
seen = {
    "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16),
    "no new privileges": status["NoNewPrivs"].strip(),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "root is closed": refused(lambda: open("/etc/x", "w")) and refused(lambda: open("/opt/x", "w")),
    "variables": sorted({*os.environ} - {"LC_CTYPE"}),  # which Python sets itself
    "given": open("/work/given.txt").read(),
}
json.dump(seen, open("/work/out/seen.json", "w"))
"""


def given(folder: Path, body: str) -> Path:
    """What a container that compiles is given: a program, and a file beside it."""
    (folder / "x.py").write_text(body)
    (folder / "given.txt").write_text("text")
    with tarfile.open(folder / "given.tar", "w") as archive:
        for name in ("x.py", "given.txt"):
            archive.add(folder / name, name)
    return folder / "given.tar"


def test_a_compile_is_fenced_in_and_what_it_made_comes_back(
    engine: DockerEngine, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MINE", "x")
    before, made = volumes(), tmp_path / "made.tar"
    argv = ["python3", "/work/x.py"]
    done = engine.compile(image, argv, given(tmp_path, FENCED), made, timeout_s=120, say=quiet)
    assert done.exit == 0, done.stderr
    with tarfile.open(made) as archive:
        file = archive.extractfile("out/seen.json")
        assert file is not None
        seen = json.loads(file.read())
    assert seen == {
        "capabilities": 0,
        "no new privileges": "1",
        "interfaces": ["lo"],
        "root is closed": True,
        "variables": ["HOME", "HOSTNAME", "PATH"],
        "given": "text",
    }
    assert stay(volumes, before) == set() and containers(image) == []
    late = engine.compile(
        image, argv, given(tmp_path, "import time; time.sleep(600)"), tmp_path / "no.tar", timeout_s=1, say=quiet
    )
    assert late.timed_out and not (tmp_path / "no.tar").exists() and containers(image) == []


COMPILES = """
import sys
from pathlib import Path
from envkit.engine.docker import DockerEngine
from envkit.system.terminal import Live
engine = DockerEngine(Path(sys.argv[2]))
engine.compile(
    sys.argv[1], ["python3", "/work/x.py"], Path(sys.argv[3]), Path(sys.argv[2]) / "made", timeout_s=600, say=print
)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_compiler_outlives_envkit(engine: DockerEngine, image: str, tmp_path: Path, number: signal.Signals) -> None:
    tar = given(tmp_path, "import sys, time\nprint('up', file=sys.stderr, flush=True)\ntime.sleep(600)")
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", COMPILES, image, str(tmp_path), str(tar)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        (container,) = containers(image)
        own = volumes_of(container)
        assert own
        process.send_signal(number)
        process.wait(120)
        assert comes(lambda: not containers(image), 0.1) and not own & volumes()
    finally:
        process.kill()
        process.communicate()
        for left in containers(image):
            docker.from_env().api.remove_container(left, v=True, force=True)


def test_a_passing_image_has_the_name_of_a_draft(engine: DockerEngine, image: str, tmp_path: Path) -> None:
    context = write(tmp_path, f"FROM {image}\nRUN echo x > /x\n")
    built = engine.build(BuildRequest(context, "envkit-test:never", 300, passing=True), quiet)
    try:
        assert built.tag in drafts() and engine.file(built.tag, "/x") == b"x\n"
    finally:
        engine.remove(built.tag)
    assert built.tag not in drafts()


def test_the_tests_of_signals_hold_where_sigint_is_ignored() -> None:
    """As it is for whatever a shell without job control starts with `&`."""
    shell = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__, "-k", "outlives_envkit and 2"]
    done = proc.run([*shell, *tests], timeout_s=300)
    assert done.exit == 0, done.stdout  # pytest ends with 5 where it found no test


@pytest.mark.parametrize("killed", [True, False])
def test_a_container_that_the_engine_makes_after_envkit_was_killed_goes_too(image: str, killed: bool) -> None:
    api = docker.from_env().api
    name = f"envkit-test-{uuid.uuid4().hex[:12]}"
    labels = [{RUN_LABEL: "1", OWNER_LABEL: owner} for owner in (name, "envkit-test-other")]
    # as by a holder that was being removed, and as for a container of another run that is about to be made
    left_over, others = (api.create_volume(labels=each)["Name"] for each in labels)
    with subprocess.Popen(reaper.command(name), stdin=subprocess.PIPE) as waiting:
        assert waiting.stdin is not None
        if not killed:
            waiting.stdin.write(b"\n")
        waiting.stdin.close()
        time.sleep(1.5)  # as an engine under load takes
        api.create_container(image, ["true"], name=name)
        waiting.wait(120)
    left = api.containers(all=True, filters={"name": name})
    for entry in left:
        api.remove_container(entry["Id"], v=True, force=True)
    assert len(left) == (0 if killed else 1)
    listed = {each["Name"] for each in api.volumes(filters={"label": RUN_LABEL})["Volumes"] or []}
    stays = {left_over, others} & listed
    for volume in stays:
        api.remove_volume(volume)
    assert stays == ({others} if killed else {left_over, others})


def test_container_that_was_never_started_goes_with_the_next_run() -> None:
    """What is left by a kill between making and starting; a run that has just begun beside this one stays."""
    listed = [
        {"Id": "left", "State": "created", "Created": 1000},
        {"Id": "beginning", "State": "created", "Created": 1950},
        {"Id": "running", "State": "running", "Created": 1000},
        {"Id": "own", "State": "created", "Created": 2000},
    ]
    assert abandoned(listed, "own") == ["left"]


def test_draft_of_a_killed_build_goes_at_the_next_one_and_another_machines_after_a_day() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    mine, killed = (f"envkit-draft:1000-{pid_space()}-{pid}-0f" for pid in (os.getpid(), ended.pid))
    elsewhere, later = "envkit-draft:1000-0a-1-0f-ahead", "envkit-draft:80000-0a-1-1e"
    told = [mine, killed, elsewhere, later, "envkit-draft:mine"]
    assert stale_drafts(told, 1000 + 24 * 3600.0 - 1) == [killed]
    assert stale_drafts(told, 1000 + 24 * 3600.0 + 1) == [mine, killed, elsewhere]


def test_base_without_a_name_is_made_without_asking_a_registry(engine: DockerEngine, python_base: ResolvedBase) -> None:
    said: list[str] = []
    found = engine.resolve_base(
        BaseRequest("", "bookworm", "", ("ca-certificates", "python3"), 1700000000), said.append
    )
    assert (found.id, found.how) == (python_base.id, "bootstrapped")
    assert not any("registry" in line for line in said)


class Relay:
    """A socket in front of the engine's own that can go away in the middle, as an engine does when it dies."""

    def __init__(self, path: Path) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._open: list[socket.socket] = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect("/var/run/docker.sock")
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def die(self) -> None:
        for end in self._open:
            with suppress(OSError):  # it may have ended by itself
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.fixture
def relay(engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    if os.environ.get("DOCKER_HOST") or not os.path.exists("/var/run/docker.sock"):
        pytest.skip("the engine is not behind /var/run/docker.sock")
    relay = Relay(tmp_path / "engine.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    yield relay
    relay.die()
    for pid in named("reaper.py"):  # it waits for this engine, which will not come back
        with suppress(OSError):
            if f"{tmp_path}/engine.sock".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)


def test_engine_that_dies_in_a_run(relay: Relay, image: str, tmp_path: Path) -> None:
    body = "import time\nprint('up', file=sys.stderr, flush=True)\ntime.sleep(600)"
    with pytest.raises(Undecided, match=r"no docker engine answers|did not say how the container ended"):
        DockerEngine(tmp_path).run(image, [], payload=payload(body), timeout_s=60, say=lambda line: relay.die())
    # The connection's end is the container's end, whichever side broke it.
    os.environ.pop("DOCKER_HOST")
    assert comes(lambda: not containers(image), 0.1)
    assert containers(image) == []


def test_engine_that_dies_in_a_build(relay: Relay, python_base: ResolvedBase, tag: str, tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    write(context, f"FROM {python_base.ref}\nRUN sleep 30; echo {tag}\n")
    engine = DockerEngine(tmp_path)
    with pytest.raises(Undecided, match="no docker engine answers"):
        engine.build(BuildRequest(context, tag, 60), lambda line: relay.die())


# -- bases


def test_base_is_bootstrapped_once_and_found_by_its_hash(engine: DockerEngine, python_base: ResolvedBase) -> None:
    again = engine.resolve_base(BaseRequest("envkit-test-base:none", "bookworm", python_base.sha256), quiet)
    assert again == python_base and again.how == "bootstrapped"
    assert again.ref == f"envkit-base:bookworm-{again.sha256.removeprefix('sha256:')[:12]}"


def test_local_image_is_taken_by_name(engine: DockerEngine, tag: str, tmp_path: Path) -> None:
    built = build(engine, write(tmp_path, "FROM scratch\nLABEL a=b\n"), tag)
    found = engine.resolve_base(BaseRequest(tag), quiet)
    assert (found.ref, found.id, found.how) == (tag, built.id, "local")


def test_image_built_on_a_bootstrapped_base_is_not_that_base(
    engine: DockerEngine, python_base: ResolvedBase, tag: str, tmp_path: Path
) -> None:
    built = build(engine, write(tmp_path, f"FROM {python_base.ref}\nRUN echo one > /n\n"), tag)
    found = engine.resolve_base(BaseRequest(tag), quiet)
    assert found.how == "local" and found.id == built.id and found.sha256 != python_base.sha256


def test_unreachable_registry_is_known_soon(engine: DockerEngine) -> None:
    with ends(), pytest.raises(Undecided, match=r"nowhere\.invalid/no:one is not here and no registry serves it"):
        engine.resolve_base(BaseRequest("nowhere.invalid/no:one"), quiet)


def test_silent_registry_is_known_soon(engine: DockerEngine) -> None:
    """A server that takes the connection and never answers, as behind a firewall that drops."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ends(),
        pytest.raises(Undecided, match="the registry said nothing for 8 s"),
    ):
        engine.resolve_base(BaseRequest(f"127.0.0.1:{server.getsockname()[1]}/no:one"), quiet)


def test_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(Undecided, match="no docker engine answers") as caught:
        DockerEngine(tmp_path)
    assert "systemctl start docker" in caught.value.fix
