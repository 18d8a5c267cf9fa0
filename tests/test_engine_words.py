"""What Charliecloud, Apptainer, buildx's imagetools, mmdebstrap and a push by Docker are asked, word by word, and what
comes of their answers; the programs are ones that a test plays.
"""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker.auth
import docker.errors
import pytest
from fake_docker import FakeDocker, Stream
from fake_podman import FakeProgram, quiet, refused
from test_prove import layer, saved_image

from envkit.engine import (
    Ability,
    BaseRequest,
    Bind,
    BuildRequest,
    CannotStart,
    DeclaredStart,
    JobRequest,
    base,
    docker_push,
    platforms,
)
from envkit.engine.apptainer import ApptainerEngine
from envkit.engine.charliecloud import CharliecloudEngine
from envkit.engine.docker import DockerEngine
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.system.proc import Completed
from envkit.system.terminal import Live

DIGEST = "sha256:" + "d" * 64


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A saved image of one layer."""
    path = tmp_path / "image.tar"
    path.write_bytes(saved_image((layer(file=b"content"),), "job:1"))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An image in a folder."""
    path = tmp_path / "root"
    for name in ("bin", "mnt", "a", "b"):
        (path / name).mkdir(parents=True)
    (path / "bin" / "sh").write_text("")
    return path


@pytest.fixture(autouse=True)
def a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "somebody")


def cloud(tmp_path: Path, patch: pytest.MonkeyPatch) -> tuple[FakeProgram, CharliecloudEngine]:
    fake = FakeProgram(tmp_path / "ch", "ch-run", patch)
    fake.on("--version", err="0.38\n")
    fake.on("'--private-tmp '*", "out\n", err="said\n")
    made = CharliecloudEngine(tmp_path / "cache")
    fake.forget()
    return fake, made


def apptainer(tmp_path: Path, patch: pytest.MonkeyPatch) -> tuple[FakeProgram, ApptainerEngine]:
    fake = FakeProgram(tmp_path / "ap", "apptainer", patch)
    fake.on("--version", "apptainer version 1.3.4\n")
    fake.on("'exec '*", "out\n", err="said\n", does='env | grep ^APPTAINERENV_ | sort > "$D/variables"')
    made = ApptainerEngine(tmp_path / "cache")
    fake.forget()
    return fake, made


# -- what they have in common


def test_who_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = cloud(tmp_path, monkeypatch)
    assert (first.version, first.where) == ("0.38", "charliecloud 0.38 (with the machine's network and processes)")
    _, second = apptainer(tmp_path, monkeypatch)
    assert (second.version, second.where) == ("1.3.4", "apptainer 1.3.4 (as this user)")
    for engine in (first, second):
        assert engine.containers and not engine.elsewhere() and engine.abilities == {Ability.LAYERS}
    monkeypatch.setenv("PATH", str(tmp_path))
    message, fix = refused(Undecided, lambda: ApptainerEngine(tmp_path))
    assert (message, fix) == ("there is no apptainer on PATH", "install apptainer, or load its module")


def test_what_they_cannot_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, engine = apptainer(tmp_path, monkeypatch)
    for ability, work in (
        (Ability.BUILD, lambda: engine.resolve_base(BaseRequest("a:1"), quiet)),
        (Ability.BUILD, lambda: engine.build(BuildRequest(tmp_path, "a:1", 1), quiet)),
        (Ability.BUILD, lambda: engine.load(tmp_path, BaseRequest("a:1"))),
        (Ability.COMPILE, lambda: engine.compile("a", [], tmp_path, tmp_path, timeout_s=1, say=quiet)),
        (Ability.FOLLOW, lambda: engine.follow("a", [], mounts={}, timeout_s=1, say=quiet)),
        (Ability.DIGEST, lambda: engine.digest("a:1")),
        (Ability.PUSH, lambda: engine.push("a", "b:1", quiet)),
        (Ability.JOIN, lambda: engine.join("a:1", "b", "linux/arm64", quiet)),
    ):
        assert refused(UsageError, work)[0].startswith(f"the apptainer engine cannot {ability.value}")


def test_a_saved_image_is_read_as_it_says(
    tmp_path: Path, image: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, engine = apptainer(tmp_path, monkeypatch)
    name = str(image)
    assert len(engine.layers(name)) == 1 and engine.file(name, "/file") == b"content"
    stored = engine.stored(name)
    assert stored.id.startswith("sha256:") and len(stored.roots) == 1 and (stored.roots[0] / "file").is_file()
    assert engine.labels(name) == {} and engine.declared(str(folder)) == DeclaredStart()
    message, fix = refused(UsageError, lambda: engine.file(name, "/none"))
    assert (message, fix) == (f"the image {name} has no file /none", "choose an image with it")
    message, fix = refused(UsageError, lambda: engine.layers(str(folder)))
    assert message == f"the folder {folder} has no layers" and "podman save" in fix
    engine.save(name, tmp_path / "copy.tar")
    assert (tmp_path / "copy.tar").read_bytes() == image.read_bytes()
    message, _ = refused(UsageError, lambda: engine.save(str(folder), tmp_path / "copy"))
    assert message == f"the folder {folder} is no saved image"
    engine.remove(name)
    assert not stored.roots[0].exists() and image.exists()


@pytest.mark.parametrize("which", [cloud, apptainer])
@pytest.mark.parametrize(("code", "exit"), [(0, 0), (7, 7), (128, 128), (129, -1), (192, -64), (193, 193)])
def test_a_code_above_128_is_a_signal(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, which: Any, code: int, exit: int
) -> None:
    fake, engine = which(tmp_path, monkeypatch)
    fake.on("'exec '*|'--private-tmp '*", "out\n", err="said\n", exit=code)
    said: list[str] = []
    done = engine.run(str(folder), ["x"], payload=b"zip", timeout_s=60, say=said.append)
    command = ("python3", "/mnt/envkit.pyz", "x", "--watch-stdin")
    assert done == Completed(command, exit, "out\n", "said\n", False) and said[-1] == "said"


FATAL = "\x1b[31mFATAL:\x1b[0m   stat /x/python3: no such file or directory\n"


@pytest.mark.parametrize(
    ("which", "stderr", "start", "message"),
    [
        (apptainer, FATAL, False, "the image {} has no python3 to run the payload with"),
        (apptainer, "FATAL:   odd thing\n", False, "apptainer could not start python3: odd thing"),
        (apptainer, FATAL, True, "apptainer could not start tini: stat /x/python3: no such file or directory"),
        (cloud, "ch-run[7]: error: can't execve(2): python3: No such file or directory (ch_core.c:1 2)\n", False,
         "the image {} has no python3 to run the payload with"),
        (cloud, "ch-run[7]: error: odd (ch-run.c:12)\n", False, "charliecloud could not start python3: odd"),
    ],
)  # fmt: skip
def test_a_program_that_they_could_not_start(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, which: Any, stderr: str, start: bool, message: str
) -> None:
    fake, engine = which(tmp_path, monkeypatch)
    own = (lambda words: ["tini", *words]) if start else None

    def run() -> Completed:
        done: Completed = engine.run(str(folder), [], payload=b"", start=own, timeout_s=60, say=quiet)
        return done

    fake.on("'exec '*|'--private-tmp '*", err=stderr, exit=1)
    assert refused(CannotStart, run)[0] == message.format(folder)
    fake.on("'exec '*|'--private-tmp '*", err=stderr)
    assert run().exit == 0, "who ended well was started, whatever it printed"


def test_a_mount_that_is_not_there_is_said(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, engine = apptainer(tmp_path, monkeypatch)
    mounts = {"/m": tmp_path / "gone"}
    message, _ = refused(
        UsageError, lambda: engine.run(str(folder), [], payload=b"", mounts=mounts, timeout_s=60, say=quiet)
    )
    assert message == f"there is no {tmp_path}/gone" and fake.lines() == []


@pytest.mark.parametrize(("code", "exit"), [(0, 0), (3, 3), (-9, 137), (-1, 129)])
def test_a_job_ends_as_its_child(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, exit: int
) -> None:
    _, engine = apptainer(tmp_path, monkeypatch)
    assert engine.attend(JobRequest(str(folder), ("x",)), lambda line: code).exit == exit


# -- each in its own words


def test_apptainers_words(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, engine = apptainer(tmp_path, monkeypatch)
    (tmp_path / "m").mkdir()
    engine.run(
        str(folder), ["probe"], payload=b"zip", gpus=("0", "1"), env={"A": "b,c"}, mounts={"/a": tmp_path / "m"},
        placed=DeclaredStart(environment={"A": "z", "D": "e"}, workdir="/w"), timeout_s=60, say=quiet,
    )  # fmt: skip
    (line,) = fake.lines()
    work, payload = line[7].removeprefix("--workdir="), line[9]
    assert work.endswith("/work") and payload == f"--bind={work.removesuffix('work')}payload:/mnt:ro"
    assert line == [
        "exec", "--containall", "--no-home", "--nv", "--net", "--network", "none", f"--workdir={work}",
        f"--bind={tmp_path}/m:/a:ro", payload, "--pwd=/w", str(folder), "python3", "/mnt/envkit.pyz", "probe",
        "--watch-stdin",
    ]  # fmt: skip
    assert (fake.folder / "variables").read_text().splitlines() == [
        "APPTAINERENV_A=b,c", "APPTAINERENV_CUDA_VISIBLE_DEVICES=0,1", "APPTAINERENV_D=e"
    ]  # fmt: skip


def test_apptainers_line_for_a_job(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, engine = apptainer(tmp_path, monkeypatch)
    request = JobRequest(
        str(folder),
        ("train",),
        ("all",),
        {"A": "b", "HF_TOKEN": "s"},
        (Bind("/z", "/b"), Bind("/y", "/a", False)),
        "/w",
    )
    line = engine.job_line(request)
    assert line.argv == (
        "env", "APPTAINERENV_A=b", "apptainer", "exec", "--containall", "--no-home", "--nv", "--bind=/y:/a:ro",
        "--bind=/z:/b", "--pwd=/w", str(folder), "train",
    )  # fmt: skip
    assert line.env == {"APPTAINERENV_HF_TOKEN": "s"}
    assert engine.job_line(JobRequest(str(folder), ("x",))).argv == (
        "env", "apptainer", "exec", "--containall", "--no-home", str(folder), "x"
    )  # fmt: skip
    sif = tmp_path / "a.sif"
    sif.write_bytes(b"SIF")
    assert engine.job_line(JobRequest(str(sif), ("x",))).argv[-2:] == (str(sif), "x")
    for source, target in (("/a,b", "/c"), ("/a:b", "/c"), ("/a", "/c,d"), ("/a", "/c:d")):
        request = JobRequest(str(folder), ("x",), binds=(Bind(source, target),))
        message, _ = refused(UsageError, lambda request=request: engine.job_line(request))
        assert message == f"apptainer cannot mount a path with a comma or a colon: {source}"
    request = JobRequest(str(folder), ("x",), binds=(Bind("volume", "/c"),))
    assert refused(UsageError, lambda: engine.job_line(request))[0] == "apptainer has no volumes such as volume"


UNSET = [f"--unset-env={glob}" for glob in ("LD_*", "PYTHON*", "CONDA*", "VIRTUAL_ENV", "TMPDIR")]


def test_charliecloudss_words(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, engine = cloud(tmp_path, monkeypatch)
    keeps = 'for word; do case "$word" in --set-env=*) cp "${word#--set-env=}" "$D/variables";; esac; done'
    fake.on("'--private-tmp '*", "out\n", does=keeps)
    engine.run(
        str(folder), ["probe"], payload=b"zip", gpus=("0", "1"), env={"A": "b $c"}, timeout_s=60, say=quiet,
        placed=DeclaredStart(environment={"A": "z"}, workdir="/w", user="12345:54321"),
    )  # fmt: skip
    (line,) = fake.lines()
    assert line == [
        "--private-tmp", "--env-no-expand", "--unset-env=*", line[3], line[4], "--cd=/w", "--uid=12345", "--gid=54321",
        str(folder), "--", "python3", "/mnt/envkit.pyz", "probe", "--watch-stdin",
    ]  # fmt: skip
    assert line[3].startswith("--set-env=/") and line[4].startswith("--bind=/") and line[4].endswith("/payload:/mnt")
    assert (fake.folder / "variables").read_text() == "A=b $c\nCUDA_VISIBLE_DEVICES=0,1\n"
    message, fix = refused(
        UsageError, lambda: engine.run(str(folder), [], payload=b"", env={"A": "b\nc"}, timeout_s=60, say=quiet)
    )
    assert message == "the value of A has more than one line, which ch-run cannot hand on" and fix == "unset it"


def test_charlieclouds_line_for_a_job(
    tmp_path: Path, folder: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, engine = cloud(tmp_path, monkeypatch)
    own = (os.getuid(), os.getgid())
    binds = (Bind(f"{tmp_path}/root", "/b"), Bind(f"{tmp_path}", "/a"))
    request = JobRequest(str(folder), ("train",), ("all",), {"A": "b", "HF_TOKEN": "s"}, binds, "/w", own)
    line = engine.job_line(request)
    assert line.argv == (
        "ch-run", "--private-tmp", "--env-no-expand", *UNSET, "--set-env=A=b", f"--bind={tmp_path}:/a",
        f"--bind={tmp_path}/root:/b", "--cd=/w", str(folder), "--", "train",
    )  # fmt: skip
    assert line.env == {"HF_TOKEN": "s"}
    monkeypatch.delenv("USER")
    assert engine.job_line(request).env == {"USER": pwd.getpwuid(os.getuid()).pw_name, "HF_TOKEN": "s"}
    message, fix = refused(Undecided, lambda: engine.job_line(JobRequest(str(image), ("x",), ("all",))))
    assert message.startswith("charliecloud gives an image no driver's libraries") and "ch-fromhost" in fix
    job = engine.job_line(JobRequest(str(image), ("x",)))
    root = Path(job.argv[-3])
    mounted = [root / "etc" / name for name in ("passwd", "group", "hosts", "resolv.conf")]
    assert all(path.is_file() for path in mounted) and not (folder / "etc").exists()
    for bind, said in (
        (Bind("/a", "/b", False), "charliecloud cannot mount /a read-only at /b"),
        (Bind("volume", "/b"), "charliecloud has no volumes such as volume"),
    ):
        request = JobRequest(str(folder), ("x",), binds=(bind,))
        assert refused(UsageError, lambda request=request: engine.job_line(request))[0] == said


def test_the_image_says_how_a_job_starts(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, engine = apptainer(tmp_path, monkeypatch)
    said = DeclaredStart(("entry",), ("command",), {"A": "b", "C": "d"}, "7")

    found = engine._image(str(folder))
    monkeypatch.setattr(type(found), "declared", lambda self: said)
    assert engine.job_line(JobRequest(str(folder), (), env={"C": "e"})).argv[-2:] == ("entry", "command")
    line = engine.job_line(JobRequest(str(folder), ("own",), env={"C": "e"})).argv
    assert line[-2:] == ("entry", "own") and line[1:3] == ("APPTAINERENV_A=b", "APPTAINERENV_C=e")


# -- an index of several platforms


def manifest(digest: str, system: str, of: str = "") -> dict[str, Any]:
    os_, _, machine = system.partition("/")
    noted = {"annotations": {"vnd.docker.reference.digest": of}} if of else {}
    return {"digest": digest, "platform": {"os": os_, "architecture": machine}, **noted}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProgram:
    fake = FakeProgram(tmp_path / "client", "docker", monkeypatch)
    fake.on("'buildx imagetools create '*", does='touch "$D/made"')
    return fake


def index_has(client: FakeProgram, when: str, *manifests: dict[str, Any], **more: Any) -> None:
    said = {"digest": DIGEST, "manifests": list(manifests), **more}
    client.on("'buildx imagetools inspect '*", json.dumps(said), when=when)


BEFORE, AFTER = '[ ! -e "$D/made" ]', '[ -e "$D/made" ]'


def test_an_image_is_joined_to_those_of_other_platforms(client: FakeProgram) -> None:
    arm = manifest("sha256:new", "linux/arm64")
    index_has(
        client, BEFORE, manifest("sha256:amd", "linux/amd64"), manifest("sha256:old", "linux/arm64"),
        manifest("sha256:att", "unknown/unknown", "sha256:amd"),
        manifest("sha256:gone", "unknown/unknown", "sha256:old"),
    )  # fmt: skip
    index_has(client, AFTER, arm)
    said: list[str] = []
    pinned = f"host:5000/team/job@{DIGEST}"
    assert platforms.join("host:5000/team/job:1", pinned, "linux/arm64", "own", said.append) == DIGEST
    assert said == ["joining linux/arm64 to host:5000/team/job:1, which has 2 others"]
    inspect = ["buildx", "imagetools", "inspect", "--builder", "own", "--format", "{{json .Manifest}}"]
    create = ["buildx", "imagetools", "create", "--builder", "own", "--progress", "plain", "--tag"]
    assert client.lines() == [
        [*inspect, "host:5000/team/job:1"],
        [*create, "host:5000/team/job:1", "host:5000/team/job@sha256:amd", "host:5000/team/job@sha256:att", pinned],
        [*inspect, "host:5000/team/job:1"],
    ]


def test_an_index_is_made_where_none_is(client: FakeProgram) -> None:
    client.on("'buildx imagetools inspect '*", err="ERROR: job:1: not found\n", exit=1, when=BEFORE)
    index_has(client, AFTER, manifest("sha256:new", "linux/arm64"))
    said: list[str] = []
    assert platforms.join("job:1", "job@x", "linux/arm64", "own", said.append) == DIGEST and said == ["making job:1"]
    index_has(client, AFTER, manifest("sha256:new", "linux/amd64"))
    message, _ = refused(Undecided, lambda: platforms.join("job:1", "job@x", "linux/arm64", "own", quiet))
    assert message == "the registry has no linux/arm64 under job:1 now"


def test_what_is_no_index_or_cannot_be_read_is_refused(client: FakeProgram) -> None:
    client.on("'buildx imagetools inspect '*", json.dumps({"digest": DIGEST}))
    message, fix = refused(UsageError, lambda: platforms.join("job:1", "x", "linux/arm64", "own", quiet))
    assert message == "job:1 is one image and no index of several platforms" and "another name" in fix
    for text in ("nonsense", "7"):
        client.on("'buildx imagetools inspect '*", text)
        message, _ = refused(Undecided, lambda: platforms.join("job:1", "x", "linux/arm64", "own", quiet))
        assert message == "what the registry has under job:1 cannot be read"
    client.on("'buildx imagetools inspect '*", err="first\nERROR: denied\n", exit=1)
    message, _ = refused(UsageError, lambda: platforms.join("h.io/job:1", "x", "linux/arm64", "own", quiet))
    assert message == "the registry h.io does not let you push: denied"
    index_has(client, "true")
    client.on("'buildx imagetools create '*", err="some\njob:1: not found\n", exit=1)
    message, _ = refused(Undecided, lambda: platforms.join("job:1", "x", "linux/arm64", "own", quiet))
    assert message.endswith("did not take the image: job:1: not found"), "what must be there is not absent"


# -- a push by Docker


PROGRESS = [
    {"status": "Pushing", "id": "a", "progressDetail": {"current": 5_000_000, "total": 100_000_000}},
    {"status": "Pushing", "id": "a", "progressDetail": {"current": 10_000_000, "total": 100_000_000}},
    {"status": "Pushing", "id": "a", "progressDetail": {"current": 19_000_000, "total": 100_000_000}},
    {"status": "Pushing", "id": "b", "progressDetail": {"current": 100_000_001, "total": 100_000_000}},
    {"aux": {"Digest": DIGEST}},
]


@pytest.fixture
def engine(docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DockerEngine:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    docker.holds("job:1", layer(a=b"a"))
    docker.answers["POST /images/h.io/team/job/push"] = (200, Stream(PROGRESS))
    return DockerEngine(tmp_path)


def test_a_push_has_the_registrys_name_for_a_while(docker: FakeDocker, engine: DockerEngine) -> None:
    said: list[str] = []
    docker.lines.clear()
    assert engine.push("job:1", "h.io/team/job", said.append) == DIGEST
    assert said[0] == "pushing h.io/team/job" and said[-1].startswith("pushed 119.0 MB, ")
    assert [isinstance(line, Live) for line in said] == [False, *[True] * (len(said) - 2), False]
    assert said[1].startswith("pushing to h.io: 5.0 MB, ") and said[1].endswith(" of 100.0 MB")
    assert docker.names() == ["job:1"]
    moves = [line for line in docker.lines if not line.startswith("GET")]
    image = next(line for line in docker.lines if "/tag" in line).split("/")[2]
    assert moves == [
        f"POST /images/{image}/tag?tag=latest&repo=h.io/team/job&force=0",
        "POST /images/h.io/team/job/push?tag=latest",
        "DELETE /images/h.io/team/job:latest?force=False&noprune=False",
    ]


def test_a_name_that_was_another_images_is_given_back(docker: FakeDocker, engine: DockerEngine) -> None:
    for name in ("h.io/team/job:2", "other:1"):
        docker.holds(name, layer(b=b"b"))
    before = docker._find("h.io/team/job:2")
    assert engine.push("job:1", "h.io/team/job:2", quiet) == DIGEST
    after = docker._find("h.io/team/job:2")
    assert before is not None and after is not None and before["id"] == after["id"]
    docker.holds("h.io/team/job:2", layer(a=b"a"))
    docker.lines.clear()
    assert engine.push("job:1", "h.io/team/job:2", quiet) == DIGEST
    assert [line for line in docker.lines if not line.startswith("GET")] == ["POST /images/h.io/team/job/push?tag=2"]


def test_an_engine_that_tells_no_digest_is_asked_for_it(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.answers["POST /images/h.io/team/job/push"] = (200, Stream([{"status": "done"}]))
    message, _ = refused(Undecided, lambda: engine.push("job:1", "h.io/team/job", quiet))
    assert message == "the engine ended the push without a digest"
    docker.answers["GET /distribution/h.io/team/job:latest/json"] = (200, {"Descriptor": {"digest": DIGEST}})
    assert engine.push("job:1", "h.io/team/job", quiet) == DIGEST


def test_what_goes_wrong_in_a_push_is_told(
    docker: FakeDocker, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = "the registry h.io does not let you push: denied: no"
    docker.answers["POST /images/h.io/team/job/push"] = (200, Stream([{"error": "denied: no"}]))
    assert refused(UsageError, lambda: engine.push("job:1", "h.io/team/job", quiet))[0] == refusal
    docker.answers["POST /images/h.io/team/job/push"] = (500, {"message": "denied: no"})
    assert refused(UsageError, lambda: engine.push("job:1", "h.io/team/job", quiet))[0] == refusal
    assert docker.names() == ["job:1"], "the name goes though the push failed"
    assert refused(UsageError, lambda: engine.push("gone:1", "h.io/a", quiet))[0].endswith("has no image gone:1")

    class Slow(Stream):
        def __iter__(self) -> Any:
            time.sleep(0.4)
            return iter(())

    monkeypatch.setattr(docker_push, "STALL_S", 0.1)
    docker.answers["POST /images/h.io/team/job/push"] = (200, Slow([]))
    made = DockerEngine(Path())
    with pytest.raises(Undecided, match="the engine said nothing of the push for 0 s"):
        docker_push.push(made._client.api, "job:1", "h.io/team/job", quiet)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "server gave HTTP response to HTTPS client.",
            Undecided,
            "the registry h.io speaks HTTP without TLS, which the engine does not take: server gave HTTP response to "
            "HTTPS client",
        ),
        ("x509: odd", Undecided, "the engine does not trust the certificate of the registry h.io: x509: odd"),
        ("unauthorized: x", UsageError, "the registry h.io does not let you push: unauthorized: x"),
        ("no basic auth credentials", UsageError, "the registry h.io does not let you push: no basic auth credentials"),
        ("dial: no such host", Undecided, "the registry h.io did not serve: dial: no such host"),
        ("no space left on device", Undecided, "the disk is full: no space left on device (the engine's store)"),
        ("odd.", Undecided, "the registry h.io did not take the image: odd"),
    ],
)  # fmt: skip
def test_the_engines_words_on_a_push_are_sorted(text: str, kind: type[EnvkitError], message: str) -> None:
    error = docker_push.trouble(text, "h.io")
    assert (type(error), error.message) == (kind, message)


def helper(tmp_path: Path, patch: pytest.MonkeyPatch, host: str = "h.io") -> FakeProgram:
    (tmp_path / "config").mkdir(exist_ok=True)
    patch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
    (tmp_path / "config" / "config.json").write_text(json.dumps({"credHelpers": {host: "own"}}))
    return FakeProgram(tmp_path / "helper", "docker-credential-own", patch)


@pytest.mark.slow
def test_credentials_are_docker_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = helper(tmp_path, monkeypatch)
    made.on("get", json.dumps({"Username": "me", "Secret": "s"}), does='cat > "$D/asked"')
    assert docker_push._credentials("h.io") == {"Username": "me", "Password": "s", "ServerAddress": "h.io"}
    assert (made.folder / "asked").read_text() == "h.io" and docker_push._credentials("other.io") == {}
    made.on("get", json.dumps({"Username": "<token>", "Secret": "s"}))
    assert docker_push._credentials("h.io") == {"IdentityToken": "s"}
    made.on("get", "credentials not found in native keychain\n", exit=1)
    assert docker_push._credentials("h.io") == {}
    made.on("get", "secret words\n", exit=1)
    message, fix = refused(Undecided, lambda: docker_push._credentials("h.io"))
    assert message == "the credential helper docker-credential-own ended with exit code 1"
    assert fix == "log in again with `docker login h.io`, or see what docker-credential-own says"
    for text in ("nonsense", "{}", "[]"):
        made.on("get", text)
        message, _ = refused(Undecided, lambda: docker_push._credentials("h.io"))
        assert message == "the credential helper docker-credential-own gave no credentials that can be read"
    monkeypatch.setattr(docker_push, "_HELPER_S", 0.2)
    made.on("get", does="sleep 60")
    message, _ = refused(Undecided, lambda: docker_push._credentials("h.io"))
    assert message == "the credential helper docker-credential-own did not answer within 0 s"
    made.path.unlink()
    message, _ = refused(Undecided, lambda: docker_push._credentials("h.io"))
    assert message.startswith("docker's configuration names the credential helper docker-credential-own, which cannot")


def test_dockers_own_registry_has_its_old_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = helper(tmp_path, monkeypatch, docker.auth.INDEX_URL)
    made.on("get", json.dumps({"Username": "me", "Secret": "s"}), does='cat > "$D/asked"')
    docker_push._credentials(docker.auth.INDEX_NAME)
    assert (made.folder / "asked").read_text() == docker.auth.INDEX_URL


# -- a base from packages


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeProgram]:
    """A machine with mmdebstrap, whose apt-get has a proxy; what the maker says and does is the test's."""
    FakeProgram(tmp_path / "dpkg", "dpkg", monkeypatch).on("--print-architecture", "amd64\n")
    FakeProgram(tmp_path / "unshare", "unshare", monkeypatch).on("'--mount true'", exit=1)
    options = 'Acquire::http::Proxy "http://p:1";\nAPT::Odd "x";\n'
    FakeProgram(tmp_path / "apt-config", "apt-config", monkeypatch).on("dump", options)
    monkeypatch.setattr("envkit.engine.debian.sources", lambda suite: ["deb http://u:p@m.example/debian suite main"])
    made = FakeProgram(tmp_path / "mm", "mmdebstrap", monkeypatch)

    def says(**more: Any) -> FakeProgram:
        made.on("'--variant=minbase '*", **more)
        return made

    return says


WRITES = 'for word; do case "$word" in */base.tar) printf tree > "$word";; esac; done; env > "$D/variables"'


def test_mmdebstrap_is_asked_word_by_word(tmp_path: Path, debian: Callable[..., FakeProgram]) -> None:
    talk = "I: running apt-get update...\nI: running tempdir...\nI: done\nW: x...\n"
    maker, said = debian(err=talk, does=WRITES), list[str]()
    made = base.bootstrap("bookworm", ("python3", "ca-certificates"), 1700000000, tmp_path / "cache", said.append)
    assert made.tar.read_text() == "tree" and made.arch == "amd64" and said == ["bookworm: running apt-get update"]
    (line,) = maker.lines()
    hooks = [word for word in line if word.startswith("--customize-hook=")]
    others = [word for word in line if not word.startswith(("--customize-hook=", "--dpkgopt="))]
    assert others == [
        "--variant=minbase", "--architectures=amd64", "--include=ca-certificates,python3,usr-is-merged",
        '--aptopt=Acquire::http::Proxy "http://p:1";', '--aptopt=APT::Install-Recommends "false"',
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "bookworm", line[-2],
        "deb http://u:p@m.example/debian suite main",
    ]  # fmt: skip
    assert len(hooks) == 6 and any("deb http://m.example/debian suite main" in hook for hook in hooks)
    assert not any("u:p@" in hook for hook in hooks), "the tree keeps no password"
    variables = (maker.folder / "variables").read_text().splitlines()
    assert "SOURCE_DATE_EPOCH=1700000000" in variables and "LC_ALL=C.UTF-8" in variables
    assert not any(line.startswith("USER=") for line in variables)
    again = base.bootstrap("bookworm", ("ca-certificates", "python3"), 1700000000, tmp_path / "cache", quiet)
    assert again == made and len(maker.lines()) == 1, "it is made once a day"
    assert not [path for path in (tmp_path / "cache" / "bases").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (
            "E: no user namespace for you.\n",
            "mmdebstrap may not make a tree as this user: E: no user namespace for you",
        ),
        ("W: NO_PUBKEY 1\n", "the packages of bookworm cannot be verified: W: NO_PUBKEY 1"),
        ("I: hidden\nE: odd\nE:  thing.\n", "mmdebstrap failed for bookworm: E: odd E: thing"),
        ("", "mmdebstrap failed for bookworm: exit code 3"),
    ],
)
def test_why_mmdebstrap_failed(tmp_path: Path, debian: Callable[..., FakeProgram], stderr: str, message: str) -> None:
    debian(err=stderr, exit=3)
    told, _ = refused(Undecided, lambda: base.bootstrap("bookworm", (), 1, tmp_path / "cache", quiet))
    assert told == message and not list((tmp_path / "cache" / "bases").glob("*.tar"))


@pytest.mark.slow
def test_a_long_failure_is_cut_and_a_slow_one_ended(
    tmp_path: Path, debian: Callable[..., FakeProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    debian(err="E: " + "x" * 1000, exit=3)
    told, _ = refused(Undecided, lambda: base.bootstrap("bookworm", (), 1, tmp_path / "cache", quiet))
    assert told == "mmdebstrap failed for bookworm: " + "x" * 400
    monkeypatch.setattr(base, "_BUDGET_S", 0.3)
    debian(does="sleep 60")
    told, fix = refused(Undecided, lambda: base.bootstrap("bookworm", (), 1, tmp_path / "cache", quiet))
    assert told == "making the base from bookworm did not end within 0 s" and "mirror" in fix
