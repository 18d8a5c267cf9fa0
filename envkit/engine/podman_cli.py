"""The podman program: how it is asked, what it says of itself, and what its refusals mean.

Podman has no daemon, and its Docker-compatible API before 5.4 takes a request for GPUs and gives none
(containers/podman#22645), so that envkit speaks to the program itself.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envkit.engine.trouble import explain
from envkit.errors import EnvkitError, Undecided, UsageError, one_line
from envkit.system import proc
from envkit.system.proc import Completed

PROGRAM = "podman"
ASK_S = 120.0  # any one question; the store is locked while another podman unpacks a layer of gigabytes
# What podman asks for where nobody says (pkg/specgen/generate/oci.go); more than the own hard limit takes root's power.
_USUAL_LIMITS = (("nofile", resource.RLIMIT_NOFILE, 1 << 20), ("nproc", resource.RLIMIT_NPROC, 1 << 22))
# Where podman looks for what `--init` starts (containers.conf(5), init_path and helper_binaries_dir).
_INITS = (
    "/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman", "/usr/bin",
)  # fmt: skip

_ABSENT = re.compile(r"no such image|image not known|failed to find image|does not exist in local storage", re.I)
_NO_IDS = re.compile(r"no subuid ranges|newuidmap|cannot set up namespace|insufficient UIDs or GIDs", re.I)
_CDI = re.compile(r"unresolvable CDI devices|CDI", re.I)


def program() -> str:
    """The path of podman; Undecided if there is none."""
    found = shutil.which(PROGRAM)
    if found is None:
        raise Undecided("there is no podman on PATH", "install podman (and uidmap, to use it without root)")
    return found


def argv(*words: str) -> list[str]:
    """The command line of podman with ``words``; it says errors alone."""
    return [program(), "--log-level=error", *words]


def ask(
    *words: str,
    timeout_s: float = ASK_S,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Completed:
    """Runs podman with ``words``; raises Undecided if it does not end."""
    given = {**os.environ, **(env or {})}
    done = proc.run(argv(*words), timeout_s=timeout_s, env=given, on_line=on_line, stop=stop)
    if done.timed_out and not (stop is not None and stop()):
        said = f"`podman {words[0]}` did not end within {timeout_s:.0f} s"
        raise Undecided(said, "see whether another podman holds its store (`podman ps`), and run again")
    return done


def told(*words: str, env: Mapping[str, str] | None = None) -> str:
    """What podman prints for ``words``; raises what ``refusal`` makes of a failure."""
    done = ask(*words, env=env)
    if done.exit:
        raise refusal(done)
    return done.stdout


def about(kind: str, name: str) -> dict[str, Any] | None:
    """What podman says of an image or a container, None if it has none of that name."""
    if not ask(kind, "exists", name).exit:
        return dict(json.loads(told(kind, "inspect", name))[0])
    return None


def words_of(done: Completed) -> str:
    """Why podman ended as it did, in its own words: its last line that says so."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("Error:")), (lines or [""])[-1])
    said = re.sub(r"unable to start container [0-9a-f]+: ", "", said.removeprefix("Error:"))
    return one_line(said.strip().rstrip(".")) or f"exit code {done.exit}"


def refusal(done: Completed, store: str = "podman's store") -> EnvkitError:
    """The error for a podman that failed; ``store`` is where it keeps what it holds."""
    unknown = Undecided(f"podman refused: {words_of(done)}", "run it by hand (podman --log-level=debug) to see more")
    return recognised(done, store) or unknown


def recognised(done: Completed, store: str = "podman's store") -> EnvkitError | None:
    """The error that a podman speaks of that failed, None if its words are not known."""
    text = words_of(done)
    if _ABSENT.search(text):
        return UsageError(f"podman has no such image: {text}", "check its name (podman image ls), or build or pull it")
    if "invalid reference format" in text or "parsing reference" in text:
        return UsageError(f"no image can have this name: {text}", "check the name")
    if _NO_IDS.search(text):
        user = "give the user sub-ids (/etc/subuid, /etc/subgid), install uidmap, then `podman system migrate`"
        return Undecided(f"podman may not run as this user: {text}", user)
    if _CDI.search(text):
        return no_gpus(text)
    return explain(done.stderr.splitlines()[-30:], where=store)


def no_gpus(text: str) -> Undecided:
    """The error for GPUs that podman cannot give."""
    return Undecided(
        f"podman cannot give the container these GPUs: {text}",
        "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; `nvidia-ctk cdi list` shows the names that it knows",
    )


def info() -> dict[str, Any]:
    """What podman says of itself; raises Undecided where it does not run, or works on another machine."""
    found = dict(json.loads(told("info", "--format", "json")))
    if found.get("host", {}).get("serviceIsRemote"):
        raise Undecided(
            "podman is set to work on another machine (CONTAINER_HOST, `podman system connection`)",
            "run envkit on that machine, or unset it: `podman system connection default`",
        )
    return found


def limits(*given: str) -> list[str]:
    """Words that hold the limits of files and processes to what this process may give, where that is less than podman
    asks for: as root without CAP_SYS_RESOURCE, no container would start.  ``given`` are limits that have a value."""
    words = []
    for name, number, usual in _USUAL_LIMITS:
        hard = resource.getrlimit(number)[1]
        if number == resource.RLIMIT_NPROC and hard != resource.RLIM_INFINITY:
            hard = min(hard, _most_processes())  # podman lowers its own to that, and may not raise it again
        if name not in given and hard != resource.RLIM_INFINITY and hard < usual:
            words += ["--ulimit", f"{name}={hard}:{hard}"]
    return words


def _most_processes() -> int:
    """How many processes this kernel can have."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 1 << 15  # the kernel's own default (proc(5))


def has_init() -> bool:
    """Whether what podman starts for `--init` is on this machine (catatonit)."""
    return any(os.access(Path(folder, "catatonit"), os.X_OK) for folder in _INITS)


def devices(gpus: Sequence[str]) -> list[str]:
    """The words that give ``gpus`` to a container, by CDI."""
    return [word for gpu in gpus for word in ("--device", f"nvidia.com/gpu={gpu}")]


def qualified(ref: str) -> str:
    """``ref`` with its registry, as Docker reads names: podman asks no registry for one without."""
    first, slash, _ = ref.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return ref
    return f"docker.io/{ref}" if slash else f"docker.io/library/{ref}"
