"""Runs programs that were made to fail, and keeps what they print, with the cause that was planted.

    python tests/printed/run.py gpus.toml --out raw.json [--only NAME] [--jobs 4] [--gpus 4] [--limit-s 560]
    python tests/printed/run.py gpus.toml --out raw.json --folder /srv/job
    python tests/printed/run.py --keep raw.json [--tag t26]   # into tests/data/printed and printed.jsonl

The first needs only the standard library and, for the programs, the Python that `--python` names.  Each program runs
in a folder of its own, plain and in one other dress: as a job with what comes before it, under torchrun with the rank
before each line, or with what an engine, a cluster, a service or a CI puts there.  The text is what was printed, but
that folders, the machine's name and addresses are replaced; in the folder that `--folder` names, which each program
finds empty, nothing is replaced.  The document is written again after each program.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TEXTS = HERE.parent / "data" / "printed"
LIST = HERE.parent / "data" / "printed.jsonl"
HELD_OF = 3  # one program of so many is set aside, by the hash of its name
# What begins the names of programs that were written after the rules, whose texts are set aside whole, by their part.
_WRITTEN_AFTER = {
    "n22-": "later", "p25-": "unseen", "q26-": "beyond", "r28-": "novel", "s29-": "further", "t30-": "last",
    "u31-": "common", "v32-": "sight", "w33-": "glance",
    "x34-": "newest", "y35-": "endings", "z36-": "strange", "b37-": "anew", "c38-": "foreign",
    "d40-": "noisy", "d42-": "outlived", "d43-": "outlived", "s41-": "street",
}  # fmt: skip
_PLAIN, _JOB, _TEE, _STAMPED, _ACTIONS = "plain", "job", "tee", "stamped", "actions"
_STAMPS = {  # what comes before each line, by the dress, as a format of the time
    _STAMPED: "%Y-%m-%dT%H:%M:%S.%f000Z stdout F ",
    _ACTIONS: "%Y-%m-%dT%H:%M:%S.%f0Z ",
    "compose": "trainer-1  | ",
    "kubectl": "[pod/train-0/trainer] ",
    "journald": "%b %d %H:%M:%S node1 train[4711]: ",
}
_MOST = 6_000_000  # characters of one text; a longer one is not kept whole, and says so
_PLAIN_BELOW = 60_000  # characters; a longer text is kept packed
_EACH_S = 60.0
_FILE = "train.py"
_TORCHRUN = "$PYTHON -m torch.distributed.run --standalone --nproc-per-node 1 --tee 3 train.py"
_BEFORE = """
set +e
echo "=== job 4711 on $(uname -s), $(nproc) processors, started $(date -u +%FT%TZ)"
$PYTHON -u before.py
echo "=== training"
"""
_AFTER = """
code=$?
echo "=== job 4711 ended with exit code $code"
exit $code
"""


def entries(path: Path) -> dict[str, Any]:
    """The programs of a file; one that is `like` another has its fields and files where it has none of its own."""
    read: dict[str, Any] = tomllib.loads(path.read_text())
    for name, entry in read.items():
        if other := read.get(entry.get("like", "")):
            read[name] = {**other, **entry, "files": {**other.get("files", {}), **entry.get("files", {})}}
    return read


def number_of(name: str) -> int:
    """A number that depends on nothing but the name."""
    return int(sha256(name.encode()).hexdigest()[:8], 16)


def part_of(name: str) -> str:
    """Whether a program's texts may be looked at ("tune") or are set aside ("novel" to "foreign")."""
    for begins, part in _WRITTEN_AFTER.items():
        if name.startswith(begins):
            return part
    return "held" if number_of(name) % HELD_OF == 0 else "tune"


def dresses(name: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """How a program is run."""
    if wanted := entry.get("dresses"):
        return tuple(wanted)
    others = [_JOB, _STAMPED] if "script" in entry else [_JOB, _STAMPED, _TEE]
    return (_PLAIN, others[number_of(name + "/") % len(others)])


def script_of(entry: Mapping[str, Any], dress: str) -> str:
    """What bash is given: with a line after the program, so that bash says how it ended."""
    script = entry.get("script", _TORCHRUN if dress == _TEE else f"$PYTHON -u {entry.get('file', _FILE)}\n")
    if dress == _JOB:
        return f"{_BEFORE}\n{script}\n{_AFTER}"
    return f"{script}\nexit $?\n"


@cache
def places(python: str) -> list[str]:
    """The prefix of a Python, that of the one it was made of, and where its torch lies, if it has one."""
    asked = (
        "import sys, importlib.util as u; s = u.find_spec('torch');"
        "print(sys.prefix); print(sys.base_prefix); print(s.origin if s else '')"
    )
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, timeout=120).stdout.splitlines()


def replacements(folder: Path, python: str) -> Iterator[tuple[str, str]]:
    """What is replaced in a text, the longer first."""
    prefix = Path(python).absolute().parent.parent
    known = {str(folder): "/home/user/job", str(folder.resolve()): "/home/user/job"}
    found = places(python)
    if len(found) >= 3 and found[2]:
        known[str(Path(found[2]).parent.parent)] = "/opt/venv/lib/python3/site-packages"
    for path, to in ((str(prefix), "/opt/venv"), *zip(found[:2], ("/opt/venv", "/usr/local"), strict=False)):
        if path not in ("/usr", "/usr/local", "/"):
            known[path] = to
    known[os.path.expanduser("~")] = "/home/user"
    known[str(HERE)] = "/home/user/job"
    known[tempfile.gettempdir() + "/"] = "/tmp/"
    known |= dict.fromkeys(os.environ.get("PIP_FIND_LINKS", "").split(), "/home/user/wheels")
    yield from sorted(((old, new) for old, new in known.items() if len(old) > 3), key=lambda pair: -len(pair[0]))


_ADDRESS = re.compile(r"\b(?!127\.|0\.)(?:10|172|192)\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
_URL = re.compile(
    r"(https?://)(?!pytorch\.org|docs\.|(?:[\w-]+\.)?nvidia\.com|[\w.-]*github\.(?:com|io)|numpy\.org)[\w.:@-]+"
)


def cleaned(text: str, known: list[tuple[str, str]]) -> str:
    """The text without this machine in it."""
    for old, new in known:
        text = text.replace(old, new)
    for name in {socket.gethostname(), socket.getfqdn()}:
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "node1", text)
    text = _ADDRESS.sub("10.0.0.1", text)
    return _URL.sub(r"\1mirror.example.org", text)


@contextmanager
def emptied(path: Path) -> Iterator[str]:
    """A folder of that very name, made anew and removed afterwards."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield str(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def printed(
    name: str, entry: Mapping[str, Any], dress: str, python: str, gpus: str = "", at: Path | None = None
) -> dict[str, Any]:
    """One run: what was printed, how it ended, how long it took.

    ``gpus`` are those that it sees, "" for all; it runs in the folder ``at``, and its text is then kept as it came.
    """
    with emptied(at) if at else tempfile.TemporaryDirectory(prefix="printed-") as made:
        folder = Path(made).resolve()
        for beside in ("before.py", "driver.c", "ranks.py", "slurm.sh", "standin.py", "teller.py", "tiny.py"):
            shutil.copy(HERE / beside, folder / beside)
        for file, text in {entry.get("file", _FILE): entry.get("program", ""), **entry.get("files", {})}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        env = {**os.environ, "PYTHON": python, "PYTHONUNBUFFERED": "1", "PWD": made, "OMP_NUM_THREADS": "2"}
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = gpus
        env["PATH"] = os.pathsep.join((str(Path(python).absolute().parent), env.get("PATH", ""), "/usr/local/cuda/bin"))
        for key, value in entry.get("env", {}).items():
            env[key] = value.replace("$PWD", made)
        limit = float(entry.get("seconds", _EACH_S))
        begun = time.monotonic()
        bash = subprocess.Popen(
            ["bash", "-c", script_of(entry, dress)],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        late = threading.Timer(limit, os.killpg, (bash.pid, signal.SIGKILL))
        late.start()
        lines: list[bytes] = []
        assert bash.stdout is not None
        for line in bash.stdout:
            if dress in _STAMPS:
                lines.append(datetime.now(UTC).strftime(_STAMPS[dress]).encode())
            lines.append(line)
        code = bash.wait()
        if dress == _ACTIONS and code:
            said = f"{datetime.now(UTC).strftime(_STAMPS[dress])}##[error]Process completed with exit code {code}.\n"
            lines.append(said.encode())
        ended = late.finished.is_set()
        late.cancel()
        known = [] if at else list(replacements(folder, python))

        def kept(said: str) -> str:
            return said if at else cleaned(said, known)

        text = kept(b"".join(lines).decode("utf-8", "replace"))
        cut = len(text) > _MOST
        if cut:
            text = text[: _MOST // 2] + text[-_MOST // 2 :]
        files = {
            path.name: kept(path.read_text(errors="replace"))[:_MOST]
            for pattern in entry.get("keeps", ())
            for path in sorted(folder.glob(pattern))
        }
        seconds = round(time.monotonic() - begun, 1)
        return {
            "name": name, "dress": dress, "exit": code, "seconds": seconds, "ended": ended, "cut": cut, "text": text,
            "files": files,
        }  # fmt: skip


class Kept:
    """The document, written again whenever something is known."""

    def __init__(self, path: Path, programs: dict[str, Any]) -> None:
        self._path, self._lock = path, threading.Lock()
        self._known: dict[str, Any] = {"programs": programs, "outputs": [], "not_run": []}

    def put(self, part: str, value: Any) -> None:
        """Adds one."""
        with self._lock:
            self._known[part].append(value)
            self._path.write_text(json.dumps(self._known))


def lanes(jobs: list[tuple[str, str]], programs: dict[str, Any], gpus: int) -> dict[str, list[tuple[str, str]]]:
    """Which programs run one beside another, by the GPUs that they see: the last GPU is for those that need one alone.

    The others share the GPUs before it, those that need two share the first two.  Programs for which there are too few
    GPUs stand under "none", those that need several alone under "last".
    """
    chosen: dict[str, list[tuple[str, str]]] = {}
    shared = max(1, gpus - 1) if gpus != 2 else 2
    for place, job in enumerate(jobs):
        entry = programs[job[0]]
        wanted, alone = entry.get("gpus", 1), entry.get("alone", False)
        if wanted > gpus:
            lane = "none"
        elif alone and (wanted > 1 or gpus < 3):
            lane = "last"
        elif alone:
            lane = str(gpus - 1)
        else:
            lane = "0,1" if wanted > 1 else f"{place % shared}"
        chosen.setdefault(lane, []).append(job)
    return chosen


def run(chosen: argparse.Namespace) -> int:
    """Runs the programs of one file."""
    path = chosen.programs if chosen.programs.exists() else HERE / chosen.programs.name
    programs = entries(path)
    if chosen.only:
        programs = {name: entry for name, entry in programs.items() if re.search(chosen.only, name)}
    kept = Kept(chosen.out, programs)
    begun = time.monotonic()

    def one(job: tuple[str, str], gpus: str = "") -> None:
        name, dress = job
        if time.monotonic() - begun + min(20.0, programs[name].get("seconds", _EACH_S)) > chosen.limit_s:
            kept.put("not_run", f"{name}/{dress}")
            return
        found = printed(name, programs[name], dress, chosen.python, gpus, chosen.folder)
        kept.put("outputs", found)
        how = f"exit {found['exit']}, {found['seconds']} s, {len(found['text'])} characters"
        print(f"{name}/{dress} on {gpus or 'all'}: {how}{', stopped' if found['ended'] else ''}", flush=True)

    jobs = [(name, dress) for name, entry in programs.items() for dress in dresses(name, entry)]
    if not chosen.gpus:
        with ThreadPoolExecutor(1 if chosen.folder else chosen.jobs) as pool:
            list(pool.map(one, [job for job in jobs if not programs[job[0]].get("alone")]))
        for job in jobs:
            if programs[job[0]].get("alone"):
                one(job)
        return 0
    laid = lanes(jobs, programs, chosen.gpus)
    for name, dress in laid.pop("none", []):
        kept.put("not_run", f"{name}/{dress}")
    last = laid.pop("last", [])
    with ExitStack() as stack:
        for gpus, mine in laid.items():
            alone = programs[mine[0][0]].get("alone", False)
            pool = stack.enter_context(ThreadPoolExecutor(1 if alone else chosen.jobs))
            for job in mine:
                pool.submit(one, job, gpus)
    for job in last:
        one(job, ",".join(str(gpu) for gpu in range(programs[job[0]].get("gpus", 1))))
    return 0


def put(path: Path, text: str) -> None:
    """Writes a text of the corpus, a long one packed: what `explain` reads as well."""
    packed = path.with_name(path.name + ".gz")
    for old in (path, packed):
        old.unlink(missing_ok=True)
    if len(text) > _PLAIN_BELOW:
        packed.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_text(text)


def keep(path: Path, tag: str) -> int:
    """Takes the texts of a document into the corpus; a program whose text is there already is replaced."""
    told = json.loads(path.read_text())
    now: dict[str, Any] = {}  # what is expected of a program may have been put right since it ran
    for file in sorted(HERE.glob("*.toml")):
        now |= entries(file)
    rows = {row["id"]: row for row in map(json.loads, LIST.read_text().splitlines())} if LIST.exists() else {}
    TEXTS.mkdir(parents=True, exist_ok=True)
    for found in told["outputs"]:
        name, entry, text = found["name"], now.get(found["name"]), found["text"]
        shown = text + "".join(found.get("files", {}).values())
        if entry is None:
            continue
        wrong = ""
        if found["cut"] or found["ended"]:
            wrong = "too long" if found["cut"] else "did not end"
        elif not entry.get("healthy") and not any(each in shown for each in lines_of(entry)):
            wrong = f"does not show `{entry.get('line')}`"
        elif entry.get("needs", "") and re.search(entry["needs"], shown):
            wrong = "lacks what it needs"
        if wrong and not entry.get("long"):
            print(f"{name}/{found['dress']}: {wrong}; exit {found['exit']}: ...{text[-300:]!r}")
            continue
        id = ".".join((name, *(part for part in (found["dress"], tag) if part not in ("", _PLAIN))))
        if found.get("files"):
            id = id.replace(".", "-")  # a folder: its name has no ending
            (TEXTS / id).mkdir(exist_ok=True)
            for file, said in {"job.log": text, **found["files"]}.items():
                (TEXTS / id / file).write_text(said)
        else:
            put(TEXTS / f"{id}.txt", text)
        rows[id] = row_of(id, name, entry)
    LIST.write_text("".join(json.dumps(rows[id]) + "\n" for id in sorted(rows)))
    parts = Counter(row["part"] for row in rows.values())
    aside = sum(parts[each] for each in ("last", "sight", "foreign"))
    print(f"{len(rows)} texts, of which {aside} are set aside")
    return 0


def lines_of(entry: Mapping[str, Any]) -> list[str]:
    """The words of which one is to be quoted."""
    wanted = entry.get("line", [])
    return [wanted] if isinstance(wanted, str) else wanted


def row_of(id: str, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What `explain` should answer to a text, as scripts/public_logs.py reads it."""
    healthy = entry.get("healthy", False)
    return {
        "id": id,
        "part": part_of(name),
        "category": entry.get("kind", "insufficient-evidence"),
        "also_ok": entry.get("also", []),
        "cause_class": entry.get("cause", "unknown"),
        "cause_also_ok": [*entry.get("also_cause", []), *(["unknown-cut-log"] if healthy else [])],
        "evidence": [] if entry.get("healthy") else lines_of(entry),
        "misleading": entry.get("misleads", False),
        "gpu": not healthy and entry.get("kind") != "not-gpu-env",
        "why": entry["why"],
    }


def main() -> int:
    """Runs, or keeps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", type=Path, nargs="?", help="a TOML file of programs")
    parser.add_argument("--out", type=Path, default=Path("raw.json"))
    parser.add_argument("--only", help="a regular expression of names")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where each program runs, one after another; emptied for each")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs to spread the programs over; 0: each sees all")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="after which no further program is started")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--keep", type=Path, help="a document of such a run, to be taken into the corpus")
    parser.add_argument("--tag", default="", help="what tells the texts of this run from another's, such as t26")
    chosen = parser.parse_args()
    if chosen.keep:
        return keep(chosen.keep, chosen.tag)
    if chosen.programs is None:
        parser.error("name a file of programs, or --keep DOCUMENT")
    return run(chosen)


if __name__ == "__main__":
    raise SystemExit(main())
