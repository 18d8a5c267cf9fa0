"""What podman is asked, word by word, and what comes of each of its answers; the podman is a program that a test plays.

`test_engine_podman.py` has the same conversation with the real one.
"""

from __future__ import annotations

import base64
import io
import os
import resource
import sys
import tarfile
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fake_podman import ID, FakePodman, FakeProgram, info, quiet, refused, with_info

from envkit.engine import (
    BaseRequest,
    CannotStart,
    DeclaredStart,
    JobRequest,
    podman_cli,
    reaper,
)
from envkit.engine import base as bases
from envkit.engine.leftovers import pid_space
from envkit.engine.podman import PodmanEngine
from envkit.engine.store import sees_trusted
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.system import proc
from envkit.system.proc import Completed

IMAGE = "job:1"
LIMITS = podman_cli.limits()  # of the machine that runs this; how they come about is a test of its own
PATH_OF = "envkit.engine.podman"


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePodman:
    return FakePodman(tmp_path / "fake", monkeypatch)


@pytest.fixture
def engine(podman: FakePodman, tmp_path: Path) -> PodmanEngine:
    made = PodmanEngine(tmp_path / "cache")
    podman.forget()
    return made


# -- who it is


@pytest.mark.parametrize(
    ("host", "where"),
    [
        ({}, "podman 4.9.3"),
        ({"security": {"rootless": True}}, "podman 4.9.3 (rootless)"),
        ({"cgroupControllers": ["pids"]}, "podman 4.9.3 (no limit of memory: cgroup v2)"),
        ({"cgroupControllers": ["memory"]}, "podman 4.9.3 (no limit of processes: cgroup v2)"),
        (
            {"security": {"rootless": True}, "cgroupControllers": None, "cgroupVersion": "v1"},
            "podman 4.9.3 (rootless, no limit of processes and memory: cgroup v1)",
        ),
    ],
)
def test_what_it_cannot_limit_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: dict[str, Any], where: str
) -> None:
    _, engine = with_info(tmp_path, monkeypatch, info(**host))
    assert engine.where == where and engine.version == "4.9.3" and engine.containers and not engine.elsewhere()
    assert engine.rootless is ("rootless" in where)
    assert engine.label == f"io.envkit.run={pid_space()}-{os.getpid()}"


def test_a_podman_of_another_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakePodman(tmp_path / "fake", monkeypatch, info(serviceIsRemote=True))
    message, fix = refused(Undecided, lambda: PodmanEngine(tmp_path))
    assert message.startswith("podman is set to work on another machine") and "connection default" in fix


def test_without_podman_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(Undecided, lambda: PodmanEngine(tmp_path))[0] == "there is no podman on PATH"


def test_every_question_asks_for_errors_alone(podman: FakePodman) -> None:
    assert podman_cli.argv("a", "b") == [str(podman.path), "--log-level=error", "a", "b"]
    podman.on("'a b'", "c\n")
    assert podman_cli.told("a", "b", env={"X": "y"}) == "c\n"
    assert (podman.folder / "lines").read_text() == "--log-level=error\037a\037b\037\036"


@pytest.mark.slow
def test_a_question_without_an_answer_ends(podman: FakePodman) -> None:
    podman.on("slow", does="sleep 60")
    message, fix = refused(Undecided, lambda: podman_cli.ask("slow", timeout_s=0.3))
    assert message == "`podman slow` did not end within 0 s" and "`podman ps`" in fix
    stopped = podman_cli.ask("slow", timeout_s=60, stop=lambda: True)
    assert stopped.timed_out, "who stopped it himself is not told that it hangs"


ABSENT = "podman has no such image: {}"
NO_NAME = "no image can have this name: {}"
NO_USER = "podman may not run as this user: {}"
NO_GPUS = "podman cannot give the container these GPUs: {}"


@pytest.mark.parametrize(
    ("stderr", "kind", "message"),
    [
        ("Error: no such image x: image not known.\n", UsageError, ABSENT.format("no such image x: image not known")),
        ("Error: x: image not known", UsageError, ABSENT.format("x: image not known")),
        ("Error: failed to find image x", UsageError, ABSENT.format("failed to find image x")),
        ("Error: x does not exist in local storage", UsageError, ABSENT.format("x does not exist in local storage")),
        ("Error: invalid reference format", UsageError, NO_NAME.format("invalid reference format")),
        ("Error: parsing reference \"A\"", UsageError, NO_NAME.format('parsing reference "A"')),
        ("Error: no subuid ranges found", Undecided, NO_USER.format("no subuid ranges found")),
        ("Error: cannot set up namespace", Undecided, NO_USER.format("cannot set up namespace")),
        ("Error: unresolvable CDI devices x=1", Undecided, NO_GPUS.format("unresolvable CDI devices x=1")),
        ("Error: bad\nwarning: later", Undecided, "podman refused: bad"),
        ("first\nlast.\n\n", Undecided, "podman refused: last"),
        ("", Undecided, "podman refused: exit code 3"),
        (
            f"Error: unable to start container {'0f' * 32}: why",
            Undecided,
            "podman refused: why",
        ),
    ],
)  # fmt: skip
def test_a_refusal_is_sorted_by_its_words(stderr: str, kind: type[EnvkitError], message: str) -> None:
    error = podman_cli.refusal(Completed(("podman",), 3, "", stderr))
    assert (type(error), error.message) == (kind, message)


def test_a_full_disk_names_the_store() -> None:
    done = Completed(("podman",), 1, "", "Error: write: no space left on device\n" + "line\n" * 29)
    known = podman_cli.recognised(done, "the store here")
    assert known is not None and "the store here" in known.message
    later = Completed(("podman",), 1, "", "Error: write: no space left on device\n" + "line\n" * 30)
    assert podman_cli.recognised(later, "x") is None, "only the last 30 lines speak of the end"


@pytest.mark.parametrize(
    ("ref", "full"),
    [
        ("debian:12", "docker.io/library/debian:12"),
        ("me/job", "docker.io/me/job"),
        ("localhost/job", "localhost/job"),
        ("host:5000/job", "host:5000/job"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        ("job.x:1", "docker.io/library/job.x:1"),
    ],
)
def test_a_name_is_read_as_docker_reads_it(ref: str, full: str) -> None:
    assert podman_cli.qualified(ref) == full


def test_gpus_are_devices() -> None:
    assert podman_cli.devices(()) == []
    assert podman_cli.devices(("0", "1")) == ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"]


def limits_under(files: int, *given: str, processes: int = 0) -> list[str]:
    """What ``limits`` says in a process with these hard limits."""
    near, far = os.pipe()
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, files), files))
        if processes:
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
        os.write(far, " ".join(podman_cli.limits(*given)).encode())
        os._exit(0)
    os.close(far)
    with open(near) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text.split()


def test_limits_are_given_where_this_process_has_less_than_podman_asks_for() -> None:
    assert limits_under(1000, "nproc") == ["--ulimit", "nofile=1000:1000"]
    assert limits_under(1000, "nproc", "nofile") == []
    assert limits_under(1000, processes=900) == ["--ulimit", "nofile=1000:1000", "--ulimit", "nproc=900:900"]
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard == resource.RLIM_INFINITY or hard > most:
        assert limits_under(1000, processes=most + 1)[2:] == (
            ["--ulimit", f"nproc={most}:{most}"] if most < 1 << 22 else []
        )


def test_an_init_counts_where_it_can_be_started() -> None:
    places = [Path(folder, "catatonit") for folder in ("/usr/libexec/podman", "/usr/lib/podman", "/usr/bin")]
    places += [Path("/usr/local/libexec/podman/catatonit"), Path("/usr/local/lib/podman/catatonit")]
    assert podman_cli.has_init() is any(os.access(place, os.X_OK) for place in places)


# -- bases


DIGEST = "sha256:" + "d" * 64


def test_an_image_that_is_there_is_taken_by_its_name(podman: FakePodman, engine: PodmanEngine) -> None:
    podman.holds("debian:12", RepoDigests=[f"docker.io/library/debian@{DIGEST}", "x@sha256:other"])
    found = engine.resolve_base(BaseRequest("debian:12"), quiet)
    assert (found.ref, found.id, found.how, found.sha256) == ("debian:12", ID, "local", DIGEST)
    assert engine.resolve_base(BaseRequest("debian:12", digest=DIGEST), quiet) == found
    assert podman.lines() == [["image", "exists", "debian:12"], ["image", "inspect", "debian:12"]] * 2


def test_an_image_without_a_digest_has_none(podman: FakePodman, engine: PodmanEngine) -> None:
    podman.holds("debian:12", RepoDigests=None)
    assert engine.resolve_base(BaseRequest("debian:12"), quiet).sha256 == ""


def test_a_tree_of_our_own_is_known_by_its_only_layer(podman: FakePodman, engine: PodmanEngine) -> None:
    tree = "sha256:" + "e" * 64
    podman.holds(
        "own:1", Labels={"io.envkit.base.sha256": tree}, RootFS={"Layers": [tree]}, RepoDigests=[f"x@{DIGEST}"]
    )
    found = engine.resolve_base(BaseRequest("own:1"), quiet)
    assert (found.how, found.sha256) == ("bootstrapped", tree)
    podman.holds("more:1", Labels={"io.envkit.base.sha256": tree}, RootFS={"Layers": [tree, "sha256:2"]})
    assert engine.resolve_base(BaseRequest("more:1"), quiet).how == "local"


def test_another_digest_is_asked_of_the_registry(podman: FakePodman, engine: PodmanEngine) -> None:
    said: list[str] = []
    podman.holds("debian:12", RepoDigests=["debian@sha256:older"])
    pinned = f"docker.io/library/debian:12@{DIGEST}"
    podman.on(f"'pull {pinned}'", does='touch "$D/pulled"', err="Getting image source signatures\nCopying blob\n")
    podman.holds(pinned, when='[ -e "$D/pulled" ]', RepoDigests=[f"debian@{DIGEST}"])
    found = engine.resolve_base(BaseRequest("debian:12", digest=DIGEST), said.append)
    assert (found.ref, found.how, found.sha256) == (pinned, "registry", DIGEST)
    assert said == [f"asking the registry for debian:12@{DIGEST}"]
    assert podman.lines("image", "exists")[1:] == [
        ["image", "exists", f"debian:12@{DIGEST}"], ["image", "exists", pinned]
    ]  # fmt: skip


def test_a_pull_that_brings_something_else_is_said(podman: FakePodman, engine: PodmanEngine) -> None:
    podman.on("'pull '*")
    message, _ = refused(Undecided, lambda: engine.resolve_base(BaseRequest("debian:12"), quiet))
    assert message == "podman pulled debian:12 and does not hold it"


@pytest.mark.parametrize(
    ("stderr", "kind", "message"),
    [
        (
            "Error: initializing source: manifest unknown",
            UsageError,
            "the base image debian:12 does not exist or is private: initializing source: manifest unknown",
        ),
        (
            "Error: dial tcp: lookup x: no such host.",
            Undecided,
            "the base image debian:12 is not here and no registry serves it: dial tcp: lookup x: no such host",
        ),
        ("Error: odd", Undecided, "podman refused: odd"),
        ("Error: no space left on device", Undecided, ""),
    ],
)
def test_why_no_registry_served_is_told(
    podman: FakePodman, engine: PodmanEngine, stderr: str, kind: type[EnvkitError], message: str
) -> None:
    podman.on("'pull '*", err=stderr, exit=125)
    told, _ = refused(kind, lambda: engine.resolve_base(BaseRequest("debian:12"), quiet))
    assert told == message or (not message and "podman's store /nowhere/storage" in told)


@pytest.mark.slow
def test_a_silent_registry_is_given_up_and_one_that_speaks_is_not(
    podman: FakePodman, engine: PodmanEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{PATH_OF}._FIRST_WORD_S", 0.05)
    podman.on("'pull '*", does="sleep 60")
    message, fix = refused(Undecided, lambda: engine.resolve_base(BaseRequest("debian:12"), quiet))
    assert message.endswith("no registry serves it: the registry said nothing for 0 s")
    assert fix.startswith("give the machine access to the registry")
    monkeypatch.setattr(f"{PATH_OF}._FIRST_WORD_S", 0.7)  # for a shell to start and speak, on a loaded machine too
    podman.on("'pull '*", does="echo 'Copying blob 1' >&2; sleep 1")
    podman.on("'image exists docker.io/library/debian:12'", when='grep -q pull "$D/lines"')
    podman.on("'image inspect docker.io/library/debian:12'", f'[{{"Id": "{ID}", "RootFS": {{}}}}]')
    assert engine.resolve_base(BaseRequest("debian:12"), quiet).how == "registry"


def test_a_base_is_made_where_no_registry_serves(
    podman: FakePodman, engine: PodmanEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that was made before stands in for mmdebstrap."""
    dpkg = FakeProgram(tmp_path / "dpkg", "dpkg", monkeypatch)
    dpkg.on("--print-architecture", "amd64\n")
    (tmp_path / "tree").write_bytes(b"\0" * 1024)
    tree = bases._hash(tmp_path / "tree")
    store = tmp_path / "cache" / "bases"
    store.mkdir(parents=True)
    (store / f"{tree.removeprefix('sha256:')}.tar").write_bytes(b"\0" * 1024)
    wish = BaseRequest("debian:12", "bookworm", "", ("ca-certificates",), 1700000000)
    bases._record(store, "bookworm", wish.include, wish.epoch, "amd64").write_text(tree)
    ref = f"envkit-base:bookworm-{tree[7:19]}"
    podman.on("'pull '*", err="Error: no such host", exit=125)
    podman.on("'load --input '*", f"Loaded image: {ref}\n", does='cp "$3" "$D/loaded"')
    facts = {"Labels": {"io.envkit.base.sha256": tree}, "RootFS": {"Layers": [tree]}}
    podman.holds(ref, when='[ -e "$D/loaded" ]', **facts)
    said: list[str] = []
    found = engine.resolve_base(wish, said.append)
    assert (found.ref, found.how, found.sha256) == (ref, "bootstrapped", tree)
    assert said == [
        "asking the registry for debian:12",
        "no registry serves debian:12; making it from the packages of bookworm",
        f"loading {ref}",
    ]
    with tarfile.open(podman.folder / "loaded") as archive:
        assert archive.getnames()[:3] == ["oci-layout", "index.json", "manifest.json"]
    podman.forget()
    said.clear()
    assert engine.resolve_base(wish, said.append) == found and not podman.lines("load"), "it is loaded once"
    nameless = BaseRequest("", "bookworm", "", wish.include, wish.epoch)
    assert engine.resolve_base(nameless, said.append) == found and len(said) == 2
    assert engine.resolve_base(BaseRequest("", "bookworm", tree), quiet) == found, "by the locked hash"
    message, _ = refused(
        Undecided, lambda: engine.resolve_base(BaseRequest("", "bookworm", DIGEST, wish.include, wish.epoch), quiet)
    )
    assert message == f"the base made from bookworm today is {tree}, the lock holds {DIGEST}"
    podman.on("'load --input '*", f"Loaded image: {ref}\n")
    (podman.folder / "loaded").unlink()
    message, _ = refused(Undecided, lambda: engine.resolve_base(nameless, quiet))
    assert message == f"podman loaded {ref} and does not hold it"
    podman.on("'load --input '*", err="Error: no such file", exit=125)
    assert refused(Undecided, lambda: engine.resolve_base(nameless, quiet))[0] == "podman refused: no such file"


def test_a_saved_base_is_loaded_if_it_is_the_one(podman: FakePodman, engine: PodmanEngine, tmp_path: Path) -> None:
    saved = tmp_path / "base.tar"
    podman.on("'load --input '*", "Loaded image: base:1\n")
    message, fix = refused(UsageError, lambda: engine.load(saved, BaseRequest("base:1", digest=DIGEST)))
    assert message == f"{saved} holds another base than {DIGEST}" and fix == "fill it again with `envkit vendor`"
    podman.holds("base:1")
    found = engine.load(saved, BaseRequest("base:1", digest=DIGEST))
    assert (found.ref, found.id, found.how, found.sha256) == ("base:1", ID, "vendored", DIGEST)
    assert podman.lines("load") == [["load", "--input", str(saved)]] * 2
    tree = "sha256:" + "e" * 64
    podman.holds("base:1", Labels={"io.envkit.base.sha256": tree}, RootFS={"Layers": [tree]})
    assert engine.load(saved, BaseRequest("base:1", digest=tree)).sha256 == tree
    refused(UsageError, lambda: engine.load(saved, BaseRequest("base:1", digest=DIGEST)))
    for count, text in ((0, ""), (2, "Loaded image(s): a:1\nLoaded image: b:1\n")):
        podman.on("'load --input '*", text)
        message, _ = refused(UsageError, lambda: engine.load(saved, BaseRequest("base:1")))
        assert message == f"{saved} holds {count} images, not one with a name"


def test_a_digest_is_asked_of_the_registry_by_skopeo(
    engine: PodmanEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skopeo = FakeProgram(tmp_path / "skopeo", "skopeo", monkeypatch)
    words = ["inspect", "--format", "{{.Digest}}", "docker://docker.io/library/debian:12"]
    skopeo.on("'inspect '*", f"{DIGEST}\n")
    assert engine.digest("debian:12") == DIGEST and skopeo.lines() == [words]
    skopeo.on("'inspect '*", err="Error: manifest unknown", exit=1)
    message, fix = refused(UsageError, lambda: engine.digest("debian:12"))
    assert message == "debian:12 does not exist or is private: manifest unknown" and fix.endswith("podman login")
    skopeo.on("'inspect '*", err="Error: no route to host", exit=1)
    message, _ = refused(Undecided, lambda: engine.digest("debian:12"))
    assert message == "no registry answers for debian:12: no route to host"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(Undecided, lambda: engine.digest("debian:12"))[1].startswith("install skopeo")


# -- images


def test_an_image_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rootless in (False, True):
        _, engine = with_info(tmp_path, monkeypatch, info(security={"rootless": rootless}))
        message, fix = refused(UsageError, partial(engine.labels, "gone:1"))
        assert message == "podman has no image gone:1" and ("root's images" in fix) is rootless


def test_what_an_image_says_of_itself(podman: FakePodman, engine: PodmanEngine) -> None:
    config = {"Entrypoint": ["a"], "Cmd": ["b"], "Env": ["X=1=2", "Y="], "User": "7:8", "WorkingDir": "/w"}
    podman.holds(IMAGE, Labels={"by": "me"}, Config=config, RootFS={"Layers": ["sha256:1", "sha256:2"]}, Size=9)
    assert engine.labels(IMAGE) == {"by": "me"}
    assert engine.declared(IMAGE) == DeclaredStart(("a",), ("b",), {"X": "1=2", "Y": ""}, "7:8", "/w")
    assert engine.layers(IMAGE) == ("sha256:1", "sha256:2")
    stored = engine.stored(IMAGE)
    assert (stored.id, stored.size, stored.config, stored.roots) == (f"sha256:{ID}", 9, b"", ())
    podman.holds(IMAGE, Labels=None, Config=None, RootFS={"Layers": None}, Size=None)
    assert (engine.labels(IMAGE), engine.declared(IMAGE), engine.layers(IMAGE)) == ({}, DeclaredStart(), ())
    assert engine.stored(IMAGE).size == 0


@pytest.mark.parametrize(
    ("fault", "read"),
    [
        ("", True), ("rootless", False), ("driver", False), ("native", False), ("metacopy", False), ("layers", False),
        ("content", False), ("absent", False), ("folder", False),
    ],
)  # fmt: skip
def test_roots_own_overlay_store_is_read_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, read: bool
) -> None:
    if not sees_trusted():
        pytest.skip("only who sees trusted attributes reads a store")
    said = info(security={"rootless": fault == "rootless"})
    status = {"Native Overlay Diff": "true", "Using metacopy": "false"}
    status |= {"native": {"Native Overlay Diff": "false"}, "metacopy": {"Using metacopy": "true"}}.get(fault, {})
    said["store"] |= {"graphRoot": str(tmp_path / "store"), "graphStatus": status}
    fake, engine = with_info(tmp_path, monkeypatch, said)
    config, identity = b"{}", sha256(b"{}").hexdigest()
    kept = tmp_path / "store" / "overlay-images" / identity
    kept.mkdir(parents=True)
    if fault != "absent":
        name = "=" + base64.b64encode(f"sha256:{identity}".encode()).decode()
        (kept / name).write_bytes(b"[]" if fault == "content" else config)
    for name in ("upper", "low"):
        if (fault, name) != ("folder", "low"):
            (tmp_path / name).mkdir()
    places = {"UpperDir": f"{tmp_path}/upper", "LowerDir": f"{tmp_path}/low"}
    driver = {"Name": "vfs" if fault == "driver" else "overlay", "Data": places}
    layers = ["sha256:1"] if fault == "layers" else ["sha256:1", "sha256:2"]
    fake.holds(IMAGE, Id=identity, GraphDriver=driver, RootFS={"Layers": layers})
    stored = engine.stored(IMAGE)
    expected = (config, (tmp_path / "low", tmp_path / "upper")) if read else (b"", ())
    assert (stored.config, stored.roots) == expected


def test_a_file_comes_from_a_container_that_never_starts(podman: FakePodman, engine: PodmanEngine) -> None:
    podman.holds(IMAGE)
    podman.on("'create '*", "c\n")
    podman.on("'cp '*", does='printf content > "$3"')
    assert engine.file(IMAGE, "/etc/x") == b"content"
    (made,), (copied,), (gone,) = podman.lines("create"), podman.lines("cp"), podman.lines("rm")
    name = made[2]
    assert made == [
        "create", "--name", name, "--label", engine.label, "--pull", "never", "--network", "none", "--image-volume",
        "ignore", "--entrypoint", "", IMAGE, "true",
    ]  # fmt: skip
    assert name.startswith("envkit-") and len(name) == 23 and copied[1] == f"{name}:/etc/x"
    assert gone == ["rm", "--force", "--time", "0", "--volumes", "--ignore", name]
    podman.on("'cp '*", err="Error: no such file", exit=125)
    message, _ = refused(UsageError, lambda: engine.file(IMAGE, "/etc/x"))
    assert message == f"the image {IMAGE} has no file /etc/x"
    podman.on("'cp '*", does='mkdir "$3"')
    refused(UsageError, lambda: engine.file(IMAGE, "/etc"))
    podman.on("'cp '*", does='printf half > "$3"', exit=1)
    refused(UsageError, lambda: engine.file(IMAGE, "/etc/x"))


def test_an_image_is_saved_where_it_is_asked_for(podman: FakePodman, engine: PodmanEngine, tmp_path: Path) -> None:
    podman.holds(IMAGE)
    podman.on("'save '*", "archive")
    engine.save(IMAGE, tmp_path / "image.tar")
    assert (tmp_path / "image.tar").read_text() == "archive"
    assert podman.lines("save") == [["save", "--format", "docker-archive", IMAGE]]
    with (tmp_path / "open").open("w+") as file:
        engine.save(IMAGE, Path(f"/proc/self/fd/{file.fileno()}"))
        assert file.read() == "archive"
    message, _ = refused(UsageError, lambda: engine.save(IMAGE, tmp_path / "no" / "image.tar"))
    assert message.startswith(f"{tmp_path}/no/image.tar cannot be written: ")
    podman.on("'save '*", err="write: no space left on device", exit=125)
    message, _ = refused(Undecided, lambda: engine.save(IMAGE, tmp_path / "image.tar"))
    assert message == "the disk is full: the image was not saved"
    podman.on("'save '*", err="Error: odd", exit=125)
    assert refused(Undecided, lambda: engine.save(IMAGE, tmp_path / "image.tar"))[0] == "podman refused: odd"


@pytest.mark.parametrize(
    ("ref", "full", "plain"),
    [
        ("127.0.0.1:5000/a:1", "127.0.0.1:5000/a:1", True),
        ("localhost/a:1", "localhost/a:1", True),
        ("registry.example/a:1", "registry.example/a:1", False),
        ("team/a:1", "docker.io/team/a:1", False),
    ],
)
def test_an_image_is_pushed(podman: FakePodman, engine: PodmanEngine, ref: str, full: str, plain: bool) -> None:
    said: list[str] = []
    podman.holds(IMAGE)
    podman.on("'push '*", does=f'echo {DIGEST} > "$(value --digestfile=)"')
    assert engine.push(IMAGE, ref, said.append) == DIGEST and said == [f"pushing {ref}"]
    (line,) = podman.lines("push")
    assert line[:2] == ["push", "--quiet"] and line[2].startswith("--digestfile=")
    assert line[3:] == [*(["--tls-verify=false"] if plain else []), IMAGE, f"docker://{full}"]


def test_a_push_that_is_refused_says_why(podman: FakePodman, engine: PodmanEngine) -> None:
    podman.holds(IMAGE)
    podman.on("'push '*", err="Error: writing blob: x: requested access is denied\n", exit=125)
    message, fix = refused(UsageError, lambda: engine.push(IMAGE, "r.io/a:1", quiet))
    assert (message, fix) == ("the registry does not take r.io/a:1 from this user: denied", "podman login")
    podman.on("'push '*", err="Error: no route to host\n", exit=125)
    assert refused(Undecided, lambda: engine.push(IMAGE, "r.io/a:1", quiet))[0].endswith("no route to host")


def test_there_is_no_joining(engine: PodmanEngine) -> None:
    message, _ = refused(UsageError, lambda: engine.join("a:1", "a@x", "linux/arm64", quiet))
    assert message.startswith("the podman engine cannot ")


def test_a_name_goes_though_a_container_has_the_image(podman: FakePodman, engine: PodmanEngine) -> None:
    podman.on("'image rm '*")
    engine.remove(IMAGE)
    assert podman.lines() == [["image", "rm", IMAGE]]
    podman.on("'image rm '*", exit=2)
    podman.forget()
    engine.remove(IMAGE)
    assert podman.lines() == [["image", "rm", IMAGE], ["image", "exists", IMAGE]]
    podman.holds(IMAGE)
    podman.on("'untag '*")
    podman.forget()
    engine.remove(IMAGE)
    assert podman.lines() == [["image", "rm", IMAGE], ["image", "exists", IMAGE], ["untag", IMAGE]]


def test_what_a_killed_envkit_left_goes_with_the_next_build(podman: FakePodman, engine: PodmanEngine) -> None:
    here, dead = pid_space(), 4194304 + 1  # beyond any process number
    stale, mine = f"envkit-draft:1000-{here}-{dead}-0f", f"envkit-draft:9999999999-{here}-{os.getpid()}-0f"
    podman.on("'image ls '*", f"localhost/{stale}\nlocalhost/{mine}\n")
    label = "io.envkit.run"
    podman.on(
        "'ps '*",
        f"dead map[{label}:{here}-{dead}]\nlives map[{label}:{here}-{os.getpid()}]\n"
        f"elsewhere map[{label}:0a-{dead}]\nother map[a:b]\n",
    )
    podman.on("'image rm '*")
    engine._drop_leftovers()
    assert podman.lines() == [
        ["image", "ls", "--filter", "reference=envkit-draft", "--format", "{{.Repository}}:{{.Tag}}"],
        ["image", "rm", stale],
        ["ps", "--all", "--filter", f"label={label}", "--format", "{{.ID}} {{.Labels}}"],
        ["rm", "--force", "--time", "0", "--volumes", "--ignore", "dead"],
    ]


# -- runs


def bounds(engine: PodmanEngine, **sizes: int) -> list[str]:
    """What every container has that runs code of others, where podman can limit all, as root."""
    words = [
        "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only",
        "--read-only-tmpfs=false", "--image-volume", "ignore", "--no-healthcheck", "--log-driver", "none",
        "--entrypoint", "",
    ]  # fmt: skip
    for path, size in sizes.items():
        words += ["--tmpfs", f"/{path}:rw,exec,nosuid,nodev,mode=1777,size={size}"]
    words += ["--memory", str(7 << 30), "--memory-swap", str(7 << 30), "--oom-score-adj", "500"]
    return [*words, "--pids-limit", "4096", "--ulimit", "core=1:1", *LIMITS]


@pytest.fixture
def ready(podman: FakePodman) -> FakePodman:
    """With an image, and a podman that starts containers."""
    podman.holds(IMAGE)
    podman.on("'create '*", "c\n")
    podman.on("'start '*", "out\n", err="said\n")
    return podman


def test_a_run_has_these_words_and_no_others(ready: FakePodman, engine: PodmanEngine, tmp_path: Path) -> None:
    said: list[str] = []
    volumes: dict[str, Any] = {"/data/": {}, "/tmp": {}, "/m": {}, "/dev/shm": {}, "/envkit": {}}
    ready.holds(IMAGE, Config={"Volumes": volumes})
    (tmp_path / "m").mkdir()
    ready.on("'create '*", "c\n", does='printf %s "$HF_TOKEN" > "$D/secret"')
    done = engine.run(
        IMAGE, ["probe"], payload=b"zip", gpus=("0",), env={"A": "b", "HF_TOKEN": "hidden"},
        mounts={"/m": tmp_path / "m"}, timeout_s=60, say=said.append,
        placed=DeclaredStart(environment={"A": "z", "C": "d"}, user="7", workdir="/w"),
    )  # fmt: skip
    assert done == Completed(
        ("python3", "/envkit/envkit.pyz", "probe", "--watch-stdin"), 0, "out\n", "said\n"
    ) and said == ["said"]  # fmt: skip
    (made,), (started,), (gone,) = ready.lines("create"), ready.lines("start"), ready.lines("rm")
    payload = made[made.index("--volume", made.index("--volume") + 1) + 1]
    assert payload.endswith("/envkit.pyz:/envkit/envkit.pyz:ro")
    assert made == [
        "create", "--name", made[2], "--label", engine.label, "--pull", "never",
        *bounds(engine, data=1 << 30, tmp=4 << 30), "--interactive", "--shm-size", str(1 << 30),
        "--device", "nvidia.com/gpu=0", "--volume", f"{tmp_path}/m:/m:ro", "--volume", payload,
        "--env", "A=b", "--env", "C=d", "--env", "HF_TOKEN", "--user", "7", "--workdir", "/w",
        IMAGE, "python3", "/envkit/envkit.pyz", "probe", "--watch-stdin",
    ]  # fmt: skip
    assert started == ["start", "--attach", "--interactive", made[2]]
    assert gone == ["rm", "--force", "--time", "0", "--volumes", "--ignore", made[2]]
    assert (ready.folder / "secret").read_text() == "hidden"
    assert "hidden" not in (ready.folder / "lines").read_text()
    assert not Path(payload.partition(":")[0]).exists()


def test_a_start_of_the_images_own_stands_before_the_payload(ready: FakePodman, engine: PodmanEngine) -> None:
    done = engine.run(IMAGE, [], payload=b"", start=lambda own: ["tini", *own], timeout_s=60, say=quiet)
    assert done.argv == ("tini", "/envkit/envkit.pyz", "--watch-stdin")
    (made,) = ready.lines("create")
    assert made[-4:] == [IMAGE, *done.argv] and "--env" not in made and "--user" not in made


def test_a_rootless_podman_without_groups_limits_processes_by_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = info(security={"rootless": True}, cgroupControllers=[], memTotal=0)
    fake, engine = with_info(tmp_path, monkeypatch, host)
    words = engine._bounds({})
    assert words[words.index("--entrypoint") + 2 :] == [
        "--pids-limit", "0", "--ulimit", "nproc=4096:4096", "--ulimit", "core=0:0", *podman_cli.limits("nproc")
    ]  # fmt: skip
    fake.holds(IMAGE)
    fake.on("'create '*")
    fake.on("'start '*", "o")
    engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet)
    assert f"/tmp:rw,exec,nosuid,nodev,mode=1777,size={1 << 30}" in fake.lines("create")[0]


@pytest.mark.parametrize(("memory", "size"), [(64 << 30, 8 << 30), (4 << 30, 2 << 30)])
def test_a_run_writes_into_half_the_memory_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, size: int
) -> None:
    fake, engine = with_info(tmp_path, monkeypatch, info(memTotal=memory))
    fake.holds(IMAGE)
    fake.on("'create '*")
    fake.on("'start '*", "o")
    engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet)
    (made,) = fake.lines("create")
    assert f"/tmp:rw,exec,nosuid,nodev,mode=1777,size={size}" in made
    assert made[made.index("--memory") + 1] == str(memory * 7 // 8)


@pytest.mark.parametrize(("code", "exit"), [(0, 0), (7, 7), (128, 128), (129, -1), (137, -9), (192, -64), (193, 193)])
def test_a_code_above_128_is_a_signal(ready: FakePodman, engine: PodmanEngine, code: int, exit: int) -> None:
    ready.on("'start '*", "o", exit=code)
    done = engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet)
    assert (done.exit, done.timed_out) == (exit, False)


@pytest.mark.slow
def test_a_run_past_its_time_is_ended(ready: FakePodman, engine: PodmanEngine) -> None:
    ready.on("'start '*", does="sleep 60")
    assert engine.run(IMAGE, [], payload=b"", timeout_s=0.3, say=quiet).timed_out
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet, stop=lambda: True).timed_out
    assert len(ready.lines("rm")) == 2


NEVER = {"State": {"Status": "created", "StartedAt": "0001-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("program", "words", "kind", "message"),
    [
        ("", 'exec: "python3": not found', CannotStart, f"the image {IMAGE} has no python3 to run the payload with"),
        ("", "executable file `python3` x", CannotStart, f"the image {IMAGE} has no python3 to run the payload with"),
        ("", "crun: `python3` x", CannotStart, f"the image {IMAGE} has no python3 to run the payload with"),
        ("own", 'exec: "own": not found', CannotStart, f'the image {IMAGE} cannot start own: exec: "own": not found'),
        ("", "unresolvable CDI devices", Undecided, NO_GPUS.format("unresolvable CDI devices")),
        ("", "odd", CannotStart, "the container could not be started: odd"),
    ],
)
def test_why_a_container_did_not_start(
    ready: FakePodman, engine: PodmanEngine, program: str, words: str, kind: type[EnvkitError], message: str
) -> None:
    said: list[str] = []
    ready.on("'start '*", err=f"before\nError: unable to start container {'0f' * 32}: {words}\n", exit=127)
    ready.has_container(**NEVER)
    start = (lambda own: [program, *own]) if program else None
    told, _ = refused(kind, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=said.append, start=start))
    assert told == message and said == ["before"], "its own words on the failure become an error"


@pytest.mark.parametrize("code", [125, 126, 127])
def test_a_code_of_podmans_own_is_the_programs_where_it_ran(ready: FakePodman, engine: PodmanEngine, code: int) -> None:
    ready.on("'start '*", exit=code)
    ready.has_container(State={"Status": "exited", "StartedAt": "2026-01-01T00:00:00Z"})
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == code
    for state in (
        {"Status": "initialized", "StartedAt": "2026-01-01T00:00:00Z"},
        {"Status": "configured", "StartedAt": "2026-01-01T00:00:00Z"},
        {"Status": "created", "StartedAt": "2026-01-01T00:00:00Z"},
        {"Status": "exited", "StartedAt": "0001-01-01T00:00:00Z"},
        {"Status": "exited"},
    ):
        ready.has_container(State=state)
        refused(CannotStart, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet))


def test_a_code_below_them_is_never_asked_about(ready: FakePodman, engine: PodmanEngine) -> None:
    ready.on("'start '*", exit=124)
    ready.has_container(**NEVER)
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 124
    assert ready.lines("container") == []


def test_a_program_that_the_kernel_does_not_take_is_named(ready: FakePodman, engine: PodmanEngine) -> None:
    words = "exec /usr/bin/python3: exec format error\n"
    for code in (1, 255):
        ready.on("'start '*", err=words, exit=code)
        message, _ = refused(CannotStart, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet))
        assert message == f"/usr/bin/python3 in the image {IMAGE} is no program for this machine's processor"
    ready.on("'start '*", "a word", err=words, exit=1)
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 1, "what has spoken was started"
    ready.on("'start '*", err=words, exit=2)
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 2


def test_what_is_not_there_is_said_before_a_container_is_made(
    ready: FakePodman, engine: PodmanEngine, tmp_path: Path
) -> None:
    mounts = {"/m": tmp_path / "gone"}
    message, _ = refused(UsageError, lambda: engine.run(IMAGE, [], payload=b"", mounts=mounts, timeout_s=60, say=quiet))
    assert message == f"there is no {tmp_path}/gone" and ready.lines("create") == []
    ready.holds(IMAGE, Architecture="arm64")
    refused(Undecided, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet))
    assert ready.lines("create") == []


@pytest.mark.slow
def test_a_container_that_cannot_be_removed_hides_nothing(
    ready: FakePodman, engine: PodmanEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman_cli.ask, "__kwdefaults__", {**(podman_cli.ask.__kwdefaults__ or {}), "timeout_s": 0.3})
    ready.on("'rm '*", does="sleep 60")
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 0


def test_a_persons_own_command_may_trace_itself(ready: FakePodman, engine: PodmanEngine, tmp_path: Path) -> None:
    mounts = {"/m": (tmp_path, True), "/r": (tmp_path, False)}
    placed = DeclaredStart(environment={"A": "b"}, user="7")
    done = engine.follow(
        IMAGE, ["make", "it"], mounts=mounts, gpus=("all",), network="host", placed=placed, timeout_s=60, say=quiet
    )
    assert done.argv == ("make", "it") and done.stdout == "out\n"
    (made,) = ready.lines("create")
    own = ["--interactive", "--cap-add", "SYS_PTRACE", "--shm-size", str(1 << 30), "--log-driver", "none"]
    own += ["--no-healthcheck", "--entrypoint", ""]
    rest = [
        "--pids-limit", "8192", *LIMITS, "--device", "nvidia.com/gpu=all", "--volume", f"{tmp_path}:/m", "--volume",
        f"{tmp_path}:/r:ro",
    ]  # fmt: skip
    tail = ["--env", "A=b", "--user", "7", IMAGE, "make", "it"]
    assert made[7:] == [*own, "--network", "host", *rest, *tail]
    ready.forget()
    engine.follow(IMAGE, ["x"], mounts={}, timeout_s=60, say=quiet)
    assert ready.lines("create")[0][7:] == [*own, "--pids-limit", "8192", *LIMITS, IMAGE, "x"]


MAKES = 'for word; do case "$word" in */work:/work) mkdir "${{word%:/work}}/out"; {};; esac; done'


def given(folder: Path) -> Path:
    with tarfile.open(folder / "given.tar", "w") as archive:
        entry = tarfile.TarInfo("source")
        entry.size = 6
        archive.addfile(entry, io.BytesIO(b"source"))
    return folder / "given.tar"


def test_what_is_compiled_comes_back(
    ready: FakePodman, engine: PodmanEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.on("'create '*", does=MAKES.format('cp "${word%:/work}/source" "${word%:/work}/out/made"'))
    made = tmp_path / "made.tar"
    done = engine.compile(IMAGE, ["cc"], given(tmp_path), made, timeout_s=60, say=quiet)
    assert (done.argv, done.exit) == (("cc",), 0)
    (line,) = ready.lines("create")
    work = line[line.index("--volume") + 1]
    own = ["--interactive", "--user", "0:0", "--workdir", "/work", "--volume", work, IMAGE, "cc"]
    assert line[7:] == [*bounds(engine, tmp=4 << 30), *own] and work.endswith("/work:/work")
    with tarfile.open(made) as archive:
        assert archive.getnames() == ["out", "out/made"]
    monkeypatch.setattr(f"{PATH_OF}._MOST_MADE", 6)
    engine.compile(IMAGE, ["cc"], given(tmp_path), made, timeout_s=60, say=quiet)
    monkeypatch.setattr(f"{PATH_OF}._MOST_MADE", 5)
    message, _ = refused(
        Undecided, lambda: engine.compile(IMAGE, ["cc"], given(tmp_path), made, timeout_s=60, say=quiet)
    )
    assert message == "what the container left in /work/out has more than 0 GB"


@pytest.mark.slow
def test_of_a_compile_that_made_nothing_or_hung_nothing_comes_back(
    ready: FakePodman, engine: PodmanEngine, tmp_path: Path
) -> None:
    made = tmp_path / "made.tar"
    engine.compile(IMAGE, ["cc"], given(tmp_path), made, timeout_s=60, say=quiet)
    ready.on("'start '*", does="sleep 60")
    ready.on("'create '*", does=MAKES.format(":"))
    assert engine.compile(IMAGE, ["cc"], given(tmp_path), made, timeout_s=0.3, say=quiet).timed_out
    assert not made.exists()


# -- jobs


def test_a_job_is_a_line_that_a_person_would_type(engine: PodmanEngine) -> None:
    init = ["--init"] if podman_cli.has_init() else []
    request = JobRequest(IMAGE, ("train",), ("0",), user=(7, 8), options=("--init", "--ulimit", "nofile=9:9"))
    line = engine.job_line(request)
    assert list(line.argv) == [
        "podman", "run", "--rm", "--device", "nvidia.com/gpu=0", *podman_cli.limits("nofile"), *init,
        "--ulimit", "nofile=9:9", "--user", "7:8", IMAGE, "train",
    ]  # fmt: skip
    engine.rootless = True
    assert engine.job_line(request).argv[-4:] == ("--user", "0:0", IMAGE, "train")


def attended(engine: PodmanEngine, code: int = 0, gpus: tuple[str, ...] = ()) -> tuple[Any, list[str]]:
    lines: list[str] = []

    def attend(line: Any) -> int:
        lines.extend(line.argv)
        return code

    return engine.attend(JobRequest(IMAGE, ("train",), gpus), attend), lines


def test_a_job_that_is_waited_for_keeps_its_container_until_it_was_asked(
    ready: FakePodman, engine: PodmanEngine
) -> None:
    ready.has_container(State={"Status": "exited", "ExitCode": 3, "OOMKilled": True})
    end, line = attended(engine, 125)
    assert (end.exit, end.not_started, end.out_of_memory, end.doubt) == (3, "", True, "")
    assert line == [
        "podman", "run", "--name", line[3], "--label", engine.label, "--pull", "never", "--log-driver", "none",
        "--no-healthcheck", *LIMITS, IMAGE, "train",
    ]  # fmt: skip
    assert [words[0] for words in ready.lines()] == ["image", "image", "container", "container", "rm"]


def test_a_job_that_did_not_start_is_said(ready: FakePodman, engine: PodmanEngine) -> None:
    ready.has_container(State={"Status": "created"})
    end, _ = attended(engine, 127)
    assert (end.exit, end.not_started) == (127, "podman did not start it, as it says above")
    ready.on("'container exists '*", exit=1)
    assert refused(Undecided, lambda: attended(engine))[0] == "podman made no container, as it says above"


@pytest.mark.parametrize(
    ("devices", "doubt"),
    [
        (None, True),
        (["/dev/fuse"], True),
        (["/dev/nvidia"], True),
        (["/dev/fuse", "/dev/nvidia0"], False),
        (["/dev/dxg"], False),
        (["/dev/nvidia-caps/nvidia-cap1"], False),
    ],
)
def test_a_gpu_that_podman_lists_no_device_of_is_in_doubt(
    ready: FakePodman, engine: PodmanEngine, devices: list[str] | None, doubt: bool
) -> None:
    listed = None if devices is None else [{"PathInContainer": path} for path in devices]
    ready.has_container(State={"Status": "exited", "ExitCode": 0}, HostConfig={"Devices": listed})
    assert bool(attended(engine, gpus=("0",))[0].doubt) is doubt
    assert attended(engine)[0].doubt == "", "without a GPU there is nothing to doubt"


# -- what goes on where envkit was killed


def reaped(podman: FakePodman, heard: str) -> Completed:
    """The process that waits beside envkit, which has told it this and gone."""
    return proc.run(reaper.command("c1", str(podman.path)), timeout_s=60, stdin=heard)


@pytest.mark.slow
def test_a_container_is_removed_where_envkit_said_nothing(podman: FakePodman) -> None:
    assert reaper.command("c1", "p") == [sys.executable, "-P", "-S", reaper.__file__, "c1", "p"]
    assert reaped(podman, "\n").exit == 0 and podman.lines() == []
    podman.on("'container exists c1'", when='[ "$(grep -c . "$D/tries" 2>/dev/null)" = 1 ] || ! echo x >> "$D/tries"')
    assert reaped(podman, "").exit == 0
    assert podman.lines() == [
        ["container", "exists", "c1"], ["container", "exists", "c1"],
        ["rm", "--force", "--time", "0", "--volumes", "--ignore", "c1"],
    ]  # fmt: skip
