"""What Podman is asked in tests, as root and, by ``main``, as an ordinary user: prints what came of it as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from envkit.engine import BaseRequest, BuildRequest, DeclaredStart, JobRequest
from envkit.engine.podman import PodmanEngine
from envkit.errors import EnvkitError

# What the payload sees of its container, on stdout; with a word, what it does besides.
LOOK = """
import json, os, sys, time
def read(path):
    try:
        return open(path).read().strip()
    except OSError as error:
        return type(error).__name__
def may(path):
    try:
        open(path, "w").close()
    except OSError as error:
        return error.strerror
    return "written"
status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
limits = [line.split() for line in read("/proc/self/limits").splitlines()]
open("/tmp/program", "w").write("#!/bin/sh\\nexit 0\\n")
os.chmod("/tmp/program", 0o755)
print(json.dumps({
    "capabilities": status["CapEff"].strip(), "privileges": status["NoNewPrivs"].strip(),
    "seccomp": status["Seccomp"].strip(), "networks": sorted(os.listdir("/sys/class/net")), "root": may("/x"),
    "payload": may("/envkit/x"), "tmp": os.system("/tmp/program"), "volume": may("/data/new"),
    "held": read("/data/held"), "uid": os.getuid(), "folder": os.getcwd(), "env": os.environ.get("ENVKIT_TEST"),
    "pids": read("/sys/fs/cgroup/pids/pids.max"), "pids2": read("/sys/fs/cgroup/pids.max"),
    "nproc": next(words[2] for words in limits if words[:2] == ["Max", "processes"]),
    "core": next(words[4] for words in limits if words[:2] == ["Max", "core"]),
    "given": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
}), flush=True)
print("said", file=sys.stderr, flush=True)
if "wait" in sys.argv:
    time.sleep(600)
if "die" in sys.argv:
    sys.exit(139)
sys.exit(7)
"""

DOCKERFILE = """ARG BASE
FROM scratch AS unused
COPY nothing /nothing
FROM scratch AS list
COPY <<"EOF" /words
WORD
EOF
FROM ${BASE} AS apart
RUN mkdir /apart && echo apart > /apart/file
FROM ${BASE} AS made
RUN --mount=type=bind,from=list,target=/list --mount=type=bind,from=apart,source=/apart,target=/apart,rw \\
    --mount=type=secret,id=ca,required=false <<"EOF"
set -eu
cat /list/words /folder/words > /made 2>/dev/null || cat /list/words > /made
cat /apart/file >> /made
if [ -s /run/secrets/ca ]; then echo given >> /made; fi
EOF
FROM ${BASE}
RUN mkdir -p /data && echo held > /data/held && chmod 666 /data/held
COPY --from=made /made /made
LABEL io.envkit.test=built
VOLUME /data
USER 1234
ENTRYPOINT ["env"]
HEALTHCHECK CMD true
"""


def payload(folder: Path) -> bytes:
    """The zipapp that looks."""
    (folder / "look").mkdir(exist_ok=True)
    (folder / "look" / "__main__.py").write_text(LOOK)
    made = folder / "look.pyz"
    subprocess.run([sys.executable, "-m", "zipapp", str(folder / "look"), "-o", str(made)], check=True)
    return made.read_bytes()


def quiet(line: str) -> None:
    """Takes a line of progress, and is silent."""


def built(engine: PodmanEngine, base: str, word: str, tag: str, folder: Path, **more: Any) -> str:
    """The id of the image of DOCKERFILE with ``word`` in the list that a step mounts."""
    context = folder / "context"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(DOCKERFILE.replace("WORD", word))
    return engine.build(BuildRequest(context, tag, 300, args={"BASE": base}, **more), quiet).id


def fails(work: Any) -> str:
    """What it says, with the kind of error."""
    try:
        work()
    except EnvkitError as error:
        return f"{type(error).__name__}: {error.message} | {error.fix}"
    return "no error"


def mine(engine: PodmanEngine) -> list[str]:
    """The containers of this process that there are now."""
    line = ["podman", "--log-level=error", "ps", "--all", "--quiet", "--filter", f"label={engine.label}"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()


def asked(engine: PodmanEngine, saved: Path, folder: Path) -> dict[str, Any]:
    """The whole conversation, with the image that ``saved`` holds."""
    base = engine.load(saved, BaseRequest("envkit-test-small:1")).ref
    tag = f"envkit-test-podman:{os.getuid()}-{os.getpid()}"
    look = payload(folder)
    found: dict[str, Any] = {"where": engine.where, "rootless": engine.rootless, "version": engine.version}
    try:
        (folder / "ca.pem").write_text("a certificate")
        first = built(engine, base, "one", tag, folder, secrets={"ca": folder / "ca.pem"}, labels={"by": "test"})
        found["made"] = engine.file(tag, "/made").decode()
        found["again"] = built(engine, base, "one", tag, folder, labels={"by": "test"}) == first
        found["changed"] = [
            built(engine, base, "two", tag, folder, labels={"by": "test"}) != first,
            engine.file(tag, "/made").decode(),
        ]
        found["labels"] = dict(engine.labels(tag))
        found["entry"] = list(engine.declared(tag).entrypoint)
        found["layers"] = len(engine.layers(tag))
        stored = engine.stored(tag)
        found["stored"] = [stored.id.startswith("sha256:"), stored.size > 1 << 20, len(stored.roots)]

        def run(*argv: str, image: str = tag, **more: Any) -> Any:
            return engine.run(image, argv, payload=look, timeout_s=more.pop("timeout_s", 120), say=quiet, **more)

        done = run(env={"ENVKIT_TEST": "a b"})
        found["run"] = {"exit": done.exit, "stderr": done.stderr, "seen": json.loads(done.stdout)}
        placed = DeclaredStart(environment={"ENVKIT_TEST": "other"}, user="0", workdir="/tmp")
        found["placed"] = json.loads(run(placed=placed).stdout)
        found["died"] = run("die").exit
        began = time.monotonic()
        cut = run("wait", timeout_s=1)
        found["cut"] = [cut.timed_out, time.monotonic() - began < 60]
        found["missing program"] = fails(lambda: run(start=lambda own: ["no-such-program", *own]))
        found["missing image"] = fails(lambda: run(image="envkit-test-none:1"))
        found["missing mount"] = fails(lambda: run(mounts={"/m": folder / "gone"}))
        found["missing gpu"] = fails(lambda: run(gpus=("99",)))
        lines: list[tuple[str, ...]] = []

        def attend(line: Any) -> int:
            lines.append(line.argv)
            code = subprocess.run(line.argv, env={**os.environ, **line.env}, check=False).returncode
            found["seen"] = len(mine(engine))  # it stays until it has been asked how it ended
            return code

        codes = {}
        for code in (0, 125, 126, 127, 137):
            end = engine.attend(JobRequest(tag, ("sh", "-c", f"exit {code}"), options=("--init",)), attend)
            codes[str(code)] = [end.exit, end.not_started, end.doubt]
        found["codes"] = codes
        found["line"] = list(lines[0])
        pasted = engine.job_line(JobRequest(tag, ("sh", "-c", "exit 5"))).argv
        found["pasted"] = subprocess.run(pasted, check=False).returncode
        found["network"] = subprocess.run(
            engine.job_line(JobRequest(base, ("sh", "-c", "ls /sys/class/net"))).argv,
            capture_output=True, text=True, check=False,
        ).stdout.split()  # fmt: skip
    finally:
        engine.remove(tag)
    found["left"] = mine(engine)
    return found


def main() -> None:
    """As the user who runs this: SAVED and a folder to work in; with a third word, waits to be killed instead."""
    saved, folder = map(Path, sys.argv[1:3])
    engine = PodmanEngine(folder / "cache")
    if len(sys.argv) > 3:
        engine.run(sys.argv[3], ["wait"], payload=payload(folder), timeout_s=600, say=quiet)
        return
    print(json.dumps(asked(engine, saved, folder)))


if __name__ == "__main__":
    main()
