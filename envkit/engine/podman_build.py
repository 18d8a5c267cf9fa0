"""Builds through `podman build`, which is buildah, and turns its talk into short lines.

What it prints: ``[2/4] STEP 3/3: RUN make`` opens a step, ``--> Using cache`` says that it was kept, and everything
else up to the next is the output of the step; ``Error: building at STEP "...": why`` ends all.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any

from envkit.engine import BuildRequest, Say, podman_cli
from envkit.engine.containerfile import FOLDER, plain
from envkit.engine.trouble import explain
from envkit.errors import EnvkitError, Undecided
from envkit.system import files, proc
from envkit.system.terminal import Live

_STEP = re.compile(r"^(?:\[\d+/\d+\] )?STEP (\d+/\d+): (.*)$")
_KEPT = 30  # lines of a step that are shown when it fails
_STAGE = re.compile(r"FROM .+ AS (\S+)", re.I)
_FAILED = re.compile(r'^Error: (?:building at STEP ".*"|error building at STEP ".*"): (.*)$')
# A line of buildah's own that says nothing of a step.
_OWN = re.compile(r"^(?:--> |\[Warning\]|(?:\[\d+/\d+\] )?COMMIT |Successfully tagged |Getting image source)")
_SELF_MADE = ("RUN ", "COPY ")  # what takes time; the others are words for the image's configuration


class Progress:
    """Reads what `podman build` prints line by line, tells ``say`` of each step once when it has ended and in a live
    line while it runs, and keeps the end of its output."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._shown = False  # whether the step that runs is one to tell of
        self._began = time.monotonic()
        self._stage = ""
        self.step = ""
        self.tail: deque[str] = deque(maxlen=_KEPT)
        self.reason = ""

    def line(self, raw: str) -> None:
        """Takes one line."""
        text = raw.rstrip()
        if opened := _STEP.match(text):
            self._ended(f"{time.monotonic() - self._began:.1f} s")
            title = re.sub(r" --mount=\S+|: [0-9a-f]{16}; ", " ", opened[2])
            if title.startswith("FROM "):
                named = _STAGE.fullmatch(title)
                self._stage = f"{named[1]} " if named else ""
            self.step, self._began = " ".join(f"[{self._stage}{opened[1]}] {title}".split())[:100], time.monotonic()
            self.tail.clear()
            self._shown = title.startswith(_SELF_MADE)
            if self._shown:
                self._say(Live(self.step))
        elif failed := _FAILED.match(text):
            self.reason, self._shown = failed[1], False
        elif text.startswith("--> Using cache"):
            self._ended("cached")
        elif text and not _OWN.match(text):
            self.tail.append(text)

    def end(self, well: bool) -> None:
        """Nothing more comes; ``well`` where the last step has run to its end."""
        self._shown = self._shown and well
        self._ended(f"{time.monotonic() - self._began:.1f} s")

    def _ended(self, how: str) -> None:
        if self._shown:
            self._shown = False
            self._say(f"{self.step} {how}")


def build(request: BuildRequest, say: Say, info: dict[str, Any]) -> str:
    """Builds what ``request`` says, named as it says, and returns the image's id.

    Raises Undecided or UsageError as ``explain`` sorts them, Undecided with the failing step's last lines otherwise,
    and Undecided after ``request.timeout_s`` seconds.  The image has its name only when all of it is there.
    """
    with files.scratch("podman") as folder:
        # The context is another's: what stands in for here-documents goes into a copy, as small as the files in it.
        context = folder / "context"
        shutil.copytree(request.context, context, symlinks=True)
        text = (context / "Dockerfile").read_text(encoding="utf-8")
        stale = info.get("store", {}).get("graphDriverName") == "overlay" and not request.no_cache
        fresh = uuid.uuid4().hex if stale else ""
        written, bodies = plain(text, context, request.target, request.contexts, fresh)
        (context / FOLDER).mkdir()
        for name, body in bodies.items():
            (context / FOLDER / name).write_text(body, encoding="utf-8")
        (context / "Dockerfile").write_text(written, encoding="utf-8")
        iid = folder / "iid"
        # Docker's format: OCI's has no place for a HEALTHCHECK.
        words = ["build", "--format=docker", "--pull=never", f"--tag={request.tag}", f"--iidfile={iid}"]
        # Or the points that it mounts a step's files at, /etc/hosts and those in /run, have the time of the build.
        words += [f"--timestamp={epoch}"] if (epoch := request.args.get("SOURCE_DATE_EPOCH")) else []
        words += ["--no-cache"] if request.no_cache else []
        words += ["--network=none"] if request.offline else []
        words += [f"--target={request.target}"] if request.target else []
        words += [f"--build-arg={name}={value}" for name, value in sorted(request.args.items())]
        words += [f"--build-context={name}={path}" for name, path in sorted(request.contexts.items())]
        words += [f"--label={name}={value}" for name, value in sorted(request.labels.items())]
        words += [f"--secret=id={name},src={path}" for name, path in sorted(request.secrets.items())]
        words += podman_cli.limits()
        progress = Progress(say)
        # It says its steps on stdout, and what they print on both.
        well = False
        try:
            done = proc.run(
                ["sh", "-c", 'exec "$@" >&2', "sh", *podman_cli.argv(*words), str(context)],
                timeout_s=request.timeout_s,
                on_line=progress.line,
            )
            well = not done.timed_out and done.exit == 0
        finally:
            progress.end(well)
        if done.timed_out:
            at = f" in the step {progress.step}" if progress.step else ""
            said = f"the build did not end within {request.timeout_s:.0f} s{at}"
            raise Undecided(said, "run again: finished steps are kept")
        if done.exit:
            raise _failure(progress, done, info)
        return iid.read_text().strip().removeprefix("sha256:")


def _failure(progress: Progress, done: proc.Completed, info: dict[str, Any]) -> EnvkitError:
    store = str(info.get("store", {}).get("graphRoot", ""))
    free = shutil.disk_usage(store).free if Path(store).is_dir() else None
    lines = [*progress.tail, progress.reason]
    if not progress.reason:
        lines.append(done.stderr.splitlines()[-1] if done.stderr else "")
    known = explain(lines, where=f"podman's store {store}", free=free)
    if known is not None:
        return known
    code = re.search(r"exit status (\d+)", progress.reason)
    if not progress.reason:
        return podman_cli.refusal(done, f"podman's store {store}")
    why = f"ended with exit code {code[1]}" if code else f"failed: {progress.reason.rstrip('.')}"
    fence = "".join(f"\n{line}" for line in ["```", *progress.tail, "```"]) if progress.tail else ""
    fix = "fix the step, or what it calls, and run again; finished steps are kept"
    return Undecided(f"the step {progress.step} {why}{fence}", fix)
