"""Images that turn against the person who probes them: what each must not do is said beside it.

Each is a few files on a small Debian, made without a build.
"""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from errno import EACCES, ENOENT, EPERM, EROFS
from pathlib import Path

import docker
import pytest
from leftovers import containers, stay, volumes

from envkit.engine import ResolvedBase
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided

pytestmark = pytest.mark.engine

SITE = "/etc/python3.11/sitecustomize.py"
CANARY = "hf_" + "canary0of0a0probed0image" * 2
ROOM = 8 << 20  # bytes that the engine's disk may take more during an attack; a container itself takes some KiB

Make = Callable[..., str]


@pytest.fixture
def make(engine: DockerEngine, python_base: ResolvedBase) -> Iterator[Make]:
    """Makes an image out of files on Debian's Python, with further lines of a Dockerfile."""
    api = docker.from_env().api
    made: list[str] = []

    def one(files: Mapping[str, bytes | None], *lines: str) -> str:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name, content in files.items():
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.mode = 0o777 if content is None else 0o755
                entry.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
                entry.size = len(content or b"")
                archive.addfile(entry, io.BytesIO(content or b""))
        version = uuid.uuid4().hex[:12]
        made.append(f"envkit-test/attack:{version}")
        container = api.create_container(python_base.ref, ["true"])["Id"]
        try:
            api.put_archive(container, "/", out.getvalue())
            api.commit(container, "envkit-test/attack", version, changes=list(lines))
        finally:
            api.remove_container(container, v=True)
        return made[-1]

    yield one
    for tag in made:
        engine.remove(tag)


def envkit(*argv: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a user calls it."""
    return subprocess.run([sys.executable, "-m", "envkit", *argv], capture_output=True, text=True, timeout=300)


def nothing_stays(image: str, others: set[str]) -> None:
    assert containers(image) == [] and not stay(volumes, others)


def unlabelled() -> set[str]:
    return {volume["Name"] for volume in docker.from_env().api.volumes()["Volumes"] or []}


FILL = """
import os, sys
def fill(folder):
    written = 0
    try:
        with open(folder + "/filling", "wb", buffering=0) as file:
            while written < {limit}:
                written += file.write(bytes(1 << 20))
    except OSError as error:
        return [written, error.errno]
    return [written, 0]
"""


def test_no_file_system_that_a_probe_may_write_to_is_the_disks(engine: DockerEngine, make: Make) -> None:
    """Of every mount inside: it is in memory with a size, or read-only, whatever the image declares."""
    image = make(
        {"/full/deep/file": b"words", "/empty": None},
        'VOLUME ["/full", "/full/deep", "/empty", "/not/there", "/tmp", "/tmp/below", "/var/lib/x y", "/dev/shm"]',
    )
    body = """
    import json, os
    found = {}
    for line in open("/proc/self/mountinfo"):
        place = line.split()[4].encode().decode("unicode_escape")
        try:
            open(place + "/x", "w").close() if os.path.isdir(place) else open(place, "r+").close()
        except OSError:
            continue
        size = os.statvfs(place)
        found[place] = [line.split(" - ")[1].split()[0], size.f_blocks * size.f_frsize]
    seen = {"writable": found, "file": open("/full/deep/file").read()}
    for path in ("/full/x", "/full/deep/file", "/empty/x", "/not/there/x", "/tmp/below/x", "/envkit/x"):
        try:
            open(path, "a").close()
            seen[path] = 0
        except OSError as error:
            seen[path] = error.errno
    print(json.dumps(seen))
    """
    before, others = unlabelled(), volumes()
    run = engine.run(image, [], payload=payload(body), timeout_s=60, say=lambda line: None)
    seen = json.loads(run.stdout)
    assert seen["file"] == "words", "a VOLUME with files shows them, as it does to the job"
    assert [seen[path] for path in ("/full/x", "/full/deep/file", "/envkit/x")] == [30, 30, 30]
    assert [seen[path] for path in ("/empty/x", "/not/there/x", "/tmp/below/x")] == [0, 0, 0]
    kept = {place: found for place, found in seen["writable"].items() if not place.startswith(("/proc/", "/dev/"))}
    assert set(kept) >= {"/tmp", "/empty", "/not/there", "/tmp/below", "/var/lib/x y"}
    assert {kind for kind, _ in kept.values()} == {"tmpfs"} and max(size for _, size in kept.values()) <= 8 << 30
    devices = {kind for place, (kind, _) in seen["writable"].items() if place not in kept}
    assert devices <= {"tmpfs", "mqueue", "devpts"}, seen["writable"]
    nothing_stays(image, others)
    assert not stay(unlabelled, before), "a volume of the image's own was left"


def payload(body: str) -> bytes:
    return b"\n".join(line.removeprefix("    ").encode() for line in body.splitlines())


def test_a_volume_that_is_filled_at_pythons_start_takes_nothing_of_the_disk(engine: DockerEngine, make: Make) -> None:
    """A sitecustomize writes until it may no more: that is at the size of the file system in memory."""
    site = (
        FILL.format(limit=3 << 30)
        + "if not os.path.exists('/data/filling'): sys.stderr.write('filled %r\\n' % [fill('/data')])\n"
    )
    image = make({SITE: site.encode(), "/data": None}, 'VOLUME ["/data"]')
    found = envkit("probe", image)
    (filled,) = re.findall(r"filled \[\[(\d+), (\d+)\]\]", found.stderr)
    assert filled == (str(1 << 30), "28"), "no space left, at one GiB of memory"
    nothing_stays(image, volumes())


@pytest.mark.parametrize("place", ["/envkit", "/", "/full", "/etc", "/sys", "/proc"])
def test_no_place_but_memory_takes_a_byte(engine: DockerEngine, make: Make, place: str) -> None:
    site = FILL.format(limit=ROOM) + f"sys.stderr.write('filled %r\\n' % [fill({place!r})])\n"
    image = make({SITE: site.encode(), "/full/file": b"x"}, 'VOLUME ["/full", "/envkit"]', "USER 64321")
    found = envkit("probe", image)
    filled = set(re.findall(r"filled \[\[(\d+), (\d+)\]\]", found.stderr))
    assert filled and {written for written, _ in filled} == {"0"}, filled
    assert {error for _, error in filled} <= {str(one) for one in (EROFS, EACCES, ENOENT, EPERM)}, filled


def test_volumes_without_end_are_refused(make: Make) -> None:
    """The engine copies the files below each VOLUME: a hundred, one inside another, would be a hundred copies."""
    many = json.dumps([f"/v/{number}" for number in range(100)])
    found = envkit("probe", make({}, f"VOLUME {many}"))
    assert found.returncode == 3 and "declares 100 VOLUMEs" in found.stderr
    nested = ["/n" + "/d" * depth for depth in range(6)]
    image = make({f"{nested[-1]}/file": b"x"}, f"VOLUME {json.dumps(nested)}")
    others = volumes()
    found = envkit("probe", image)
    assert found.returncode == 3 and "6 VOLUMEs that hold files" in found.stderr
    nothing_stays(image, others)


def test_what_the_image_would_start_is_not_started(engine: DockerEngine, make: Make, tmp_path: Path) -> None:
    """ENTRYPOINT, CMD, HEALTHCHECK and ONBUILD are the image's programs: past its own start none of them runs beside
    the payload, and no STOPSIGNAL saves one from its end."""
    hostile = b'#!/bin/sh\necho the-canary-ran >&2\nexec "$@"\n'
    image = make(
        {"/hostile": hostile},
        'ENTRYPOINT ["/hostile"]',
        'CMD ["/hostile"]',
        'HEALTHCHECK --interval=1s --timeout=1s CMD ["/hostile"]',
        "STOPSIGNAL SIGWINCH",
        "ONBUILD RUN /hostile",
    )
    found = envkit("probe", image, "--direct")
    assert "the-canary-ran" not in found.stdout + found.stderr
    ids: list[str] = []
    body = "import time\ntime.sleep(600)"

    def looked() -> bool:
        ids.extend(containers(image))
        return bool(ids)

    run = engine.run(image, [], payload=payload(body), timeout_s=60, say=lambda line: None, stop=looked)
    assert run.timed_out and run.exit == -signal.SIGKILL
    nothing_stays(image, volumes())


def test_an_entry_point_is_as_restricted_as_the_payload(make: Make) -> None:
    """What an image starts before the job's Python has no rights, no network, and no place to write to but memory."""
    tries = b"""#!/bin/sh
grep CapEff /proc/self/status >&2
grep NoNewPrivs /proc/self/status >&2
echo interfaces: $(ls /sys/class/net) >&2
for folder in / /etc /root /usr /var/lib /data; do echo x 2>/dev/null > $folder/canary && echo wrote $folder >&2; done
exec "$@"
"""
    image = make(
        {"/tries": tries, "/data": None}, 'ENTRYPOINT ["/tries"]', 'CMD ["python3", "a.py"]', 'VOLUME ["/data"]'
    )
    found = envkit("probe", image, "--static", "--format", "json")
    assert re.search(r"CapEff:\s*0+$", found.stderr, re.MULTILINE) and re.search(
        r"NoNewPrivs:\s*1$", found.stderr, re.M
    )
    assert "interfaces: lo\n" in found.stderr
    assert set(re.findall(r"wrote (\S+)", found.stderr)) <= {"/data"}  # an empty VOLUME is memory
    nothing_stays(image, volumes())


def test_the_engine_is_asked_for_what_bounds_a_run(engine: DockerEngine, make: Make) -> None:
    """No log of its output on the engine's disk, no health check, no core dump, no swap."""
    image = make({"/data": None}, 'VOLUME ["/data"]', 'HEALTHCHECK CMD ["true"]')
    api = docker.from_env().api
    seen: list[dict[str, object]] = []

    def looked() -> bool:
        named = [one for one in containers(image) if api.inspect_container(one)["State"]["Running"]]
        seen.extend(api.inspect_container(one) for one in named)
        return bool(seen)

    engine.run(
        image, [], payload=payload("import time\ntime.sleep(60)"), timeout_s=60, say=lambda line: None, stop=looked
    )
    host, config = seen[0]["HostConfig"], seen[0]["Config"]
    assert isinstance(host, dict) and isinstance(config, dict)
    assert host["LogConfig"]["Type"] == "none" and config["Healthcheck"] == {"Test": ["NONE"]}
    assert host["Ulimits"] == [{"Name": "core", "Hard": 1, "Soft": 1}]
    assert host["Memory"] == host["MemorySwap"] > 0 and host["PidsLimit"] == 4096
    assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and host["NetworkMode"] == "none"
    assert host["SecurityOpt"] == ["no-new-privileges"] and not host["Privileged"]
    assert all(not mount["RW"] for mount in seen[0]["Mounts"])  # type: ignore[attr-defined]


def test_a_forged_document_counts_for_nothing(make: Make) -> None:
    """A sitecustomize that prints a document of its own leaves no verdict of pass."""
    forged = json.dumps({"schema": "envkit.payload/1", "kind": "probe", "nonce": "x", "torch": {"value": "9.9"}})
    image = make({SITE: f"print({forged!r})\n".encode() * 3})
    found = envkit("probe", image)
    assert found.returncode != 0 and "9.9" not in found.stdout


def test_the_words_of_an_image_reach_no_terminal_as_commands(make: Make, tmp_path: Path) -> None:
    """Escapes in labels, in file names and in what Python says; no output holds a raw one."""
    evil = "\x1b]0;owned\x07\x1b[2J[red]x[/red]\r\x9b31m"
    image = make(
        {
            SITE: f"import sys; sys.stderr.write({evil!r} + '\\n')\n".encode(),
            f"/usr/local/lib/a{evil}\nb.so": b"\x7fELF",
        },
        f"LABEL io.envkit.flavor={json.dumps('x' + 'y' * 20)}",
    )
    for argv in (("probe", image), ("audit", image), ("probe", image, "-f", "html"), ("audit", image, "-f", "junit")):
        found = envkit(*argv)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", found.stdout + found.stderr), argv


def test_no_secret_of_an_images_variables_is_printed_or_saved(make: Make, tmp_path: Path) -> None:
    """Values of variables that steer CUDA and its kin are evidence; a credential in them stays in the image."""
    image = make(
        {},
        f"ENV HF_TOKEN={CANARY}",
        f"ENV TORCH_HUB_TOKEN={CANARY}",
        f"ENV NCCL_CONF_FILE=https://user:{CANARY}@example.com/x",
        f"ENV LD_LIBRARY_PATH=/opt/{CANARY}/lib",
        f"ENV CUDA_API_KEY={CANARY[3:]}",
    )
    for verb in ("probe", "audit", "smoke"):
        saved = tmp_path / f"{verb}.json"
        more = ("--only", "envkit-none") if verb == "smoke" else ()
        for words in ((), ("-f", "json", "--observed"), ("-f", "html"), ("-f", "junit")):
            found = envkit(verb, image, *words, "--save", str(saved), *more)
            text = found.stdout + found.stderr + (saved.read_text() if saved.exists() else "")
            assert CANARY[3:] not in text, (verb, words)
            if saved.exists():
                assert saved.stat().st_mode & 0o777 == 0o600


def test_a_flood_is_cut_off(engine: DockerEngine, make: Make) -> None:
    """Bytes without end on stdout and stderr: the run ends, and the engine's log of it takes no disk."""
    for stream in ("stdout", "stderr"):
        image = make({SITE: f"import sys\nwhile True: sys.{stream}.write('x' * 65536)\n".encode()})
        with pytest.raises(Undecided, match=f"MiB to {stream} and was stopped"):
            engine.run(image, [], payload=b"", timeout_s=120, say=lambda line: None)
        nothing_stays(image, volumes())
