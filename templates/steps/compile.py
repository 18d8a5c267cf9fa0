"""Runs one hook of a package's build backend in a container, and says little of it.

    compile.py    beside it lie hook.py, asked.json and what that names; answer.json and the wheel come to out/

Needs nothing but the standard library, of the Python that the package is compiled for.  asked.json holds what hook.py
reads, with paths from this folder on, and "environment", the variables of the build beside those that are set here.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = 300  # lines of the build's end, of at most 400 characters
ERRORS = 20  # lines before these that name an error: what else is being compiled says much before ninja stops
ERROR = re.compile(r"(?:^|: )(?:fatal )?error(?: ?:| #)|nvcc fatal|undefined reference|Killed")
A_JOB = 4 << 30  # bytes: cicc and cc1plus take two to four gigabytes for a file with torch's headers
TALKS_EVERY_S = 5.0
NO_NEWS = ("warning", "note:", "emark:", "^", " | ")  # in the lines of a compiler that goes on
CGROUP = Path("/sys/fs/cgroup")


def number(path: Path, word: str = "") -> int:
    """The number in a file of the kernel's, or behind ``word`` there; 0 where it says none."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return 0
    found = [line[-1] for line in lines if line and (not word or line[0] == word)]
    return int(found[0]) if found and found[0].isdigit() else 0


def memory() -> int:
    """The bytes that this container may take: its limit (cgroup version 2, then 1), or what the machine has left."""
    limits = [number(CGROUP / "memory.max"), number(CGROUP / "memory/memory.limit_in_bytes")]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        lines = []
    limits += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    return min([limit for limit in limits if limit] or [A_JOB])


def jobs(processors: int, room: int, most: int) -> int:
    """How many compilers may run at once, on ``processors`` and in ``room`` bytes; ``most`` is a person's wish, 0 for
    none."""
    return max(1, min(processors, room // A_JOB, most or processors))


def killed() -> int:
    """How many processes the kernel has killed here because the memory was used up."""
    return number(CGROUP / "memory.events", "oom_kill") or number(CGROUP / "memory/memory.oom_control", "oom_kill")


def own_python(folder: Path) -> None:
    """Has the scripts in ``folder`` start under this Python, whatever they were written for."""
    for path in folder.iterdir() if folder.is_dir() else ():
        with path.open("rb") as file:
            first = file.readline(1000)
            rest = file.read() if first.startswith(b"#!") and b"python" in first else b""
        if rest:
            path.write_bytes(b"#!" + sys.executable.encode() + b"\n" + rest)
        path.chmod(0o755)


def main() -> None:
    """One hook."""
    asked = json.loads((HERE / "asked.json").read_text())
    for name in ("out", "home", "tmp"):
        (HERE / name).mkdir(exist_ok=True)
    tools = HERE / "tools"
    own_python(tools / "bin")
    at_once = jobs(len(os.sched_getaffinity(0)), memory(), asked["jobs"])
    environment = {
        **os.environ,
        "PATH": f"{tools}/bin:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "PYTHONPATH": str(tools),
        "HOME": str(HERE / "home"),
        "TMPDIR": str(HERE / "tmp"),
        "PYTHONUNBUFFERED": "1",
        "MAX_JOBS": str(at_once),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(at_once),
        **asked["environment"],
    }
    place = HERE / "hook.json"
    inside = {**asked, "folder": str(HERE / asked["folder"]), "out": str(HERE / "out")}
    place.write_text(json.dumps(inside))
    said = f"compiling {asked['name']} with {at_once} compiler{'s' if at_once > 1 else ''} at once"
    if asked["hook"] == "build_wheel":
        print(said, file=sys.stderr, flush=True)
    build = subprocess.Popen(
        [sys.executable, str(HERE / "hook.py"), str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=str(HERE),
    )
    assert build.stdout is not None
    kept: deque[str] = deque(maxlen=KEPT)
    errors: list[str] = []
    talked = time.monotonic()
    while True:
        raw = build.stdout.readline(1 << 16)
        if not raw:
            break
        line = raw.decode("utf-8", "replace").strip()[:400]
        if not line:
            continue
        if len(kept) == KEPT and ERROR.search(kept[0]) and len(errors) < ERRORS:
            errors.append(kept[0])
        kept.append(line)
        if time.monotonic() - talked > TALKS_EVERY_S and not any(word in line for word in NO_NEWS):
            talked = time.monotonic()
            print(line, file=sys.stderr, flush=True)
    answered = Path(f"{place}.answer")
    code = build.wait() or int(not answered.is_file())
    given = json.loads(answered.read_text()) if code == 0 else {}
    answer = {
        "exit": code,
        "result": given.get("result"),
        "lines": [*errors, *kept],
        "killed": killed(),
        "jobs": at_once,
        "memory": memory(),
    }
    (HERE / "out" / "answer.json").write_text(json.dumps(answer))
    for path in (HERE / "out").iterdir():  # to be read by who did not make it
        path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)


if __name__ == "__main__":
    main()
