"""Builds through ``docker buildx build`` and turns BuildKit's talk into short lines.

The plain progress format is read, for every buildx writes it alike (the JSON one differs between versions in its
framing): ``#5 [stage-0 2/3] RUN make`` opens a step, ``#5 0.137 text`` is its output, ``#5 DONE 1.2s``, ``#5 CACHED``
and ``#5 ERROR: why`` close it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from envkit.engine import BuildRequest, Say
from envkit.engine.transfer import Transfer
from envkit.engine.trouble import explain
from envkit.errors import Undecided
from envkit.records import dataclass
from envkit.system import files, proc
from envkit.system.terminal import Live

_OPEN = re.compile(r"^#(\d+) (\[.*|exporting to .*)$")
_CLOSE = re.compile(r"^#(\d+) (DONE|CACHED|ERROR|CANCELED)\b:? ?(.*)$")
_OUTPUT = re.compile(r"^#(\d+) (?:\d+\.\d+ )?(.*)$")
_POSITION = re.compile(r"^\[(?:([^\] ]+) )?(\d+/\d+)\] ")
_NAMELESS = re.compile(r"stage-\d+")  # what BuildKit calls a stage without a name
_WRITTEN_EVERY_S = 0.1  # the live line
_KEPT = 30  # lines of a step shown when it fails; a pip or apt failure says why within its last twenty


@dataclass(slots=True)
class _Step:
    title: str
    stage: str
    shown: bool
    came: Transfer
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))


class Progress:
    """Reads plain progress line by line, and remembers how it ended.

    ``say`` is told once of each step of the Dockerfile, when it has ended, and between of those that run, with what
    they have brought, in a live line.  ``on_made`` is given the stage of each step that has run to its end, and not of
    one that was kept.
    """

    def __init__(
        self, say: Say, on_made: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._on_made = on_made
        self._clock = clock
        self._written = clock() - _WRITTEN_EVERY_S
        self._steps: dict[str, _Step] = {}
        self._open_now: dict[str, _Step] = {}
        self.failed: _Step | None = None
        self.reason = ""
        self.loose: deque[str] = deque(maxlen=_KEPT)

    def line(self, raw: str) -> None:
        """Takes one line of buildx's stderr."""
        text = raw.rstrip()
        if closed := _CLOSE.match(text):
            self._close(closed[1], closed[2], closed[3])
        elif (opened := _OPEN.match(text)) and opened[1] not in self._steps:
            self._open(opened[1], opened[2])
        elif output := _OUTPUT.match(text):
            step = self._steps.get(output[1])
            if step is not None:
                step.tail.append(output[2])
                if step.came.line(output[2]):
                    self._brings(output[1], step)
        elif text:
            self.loose.append(text)

    @property
    def running(self) -> str:
        """The title of the step that was opened last, empty before the first."""
        return next((step.title for step in reversed(self._steps.values()) if step.shown), "")

    def _brings(self, number: str, step: _Step) -> None:
        """Bytes have come for a step; one of BuildKit's own, as for the context, is told of where it brings some."""
        if not step.shown and str(step.came):
            step.shown = True
            self._open_now[number] = step
        if self._clock() - self._written >= _WRITTEN_EVERY_S:
            self._show()

    def _show(self) -> None:
        """Says what runs; at once where a step begins or ends, for the next word of it may be minutes away."""
        if not self._open_now:
            return
        self._written = self._clock()
        steps = list(self._open_now.values())
        step = next((one for one in reversed(steps) if str(one.came)), steps[-1])
        beside = f"{len(steps)} steps, " * (len(steps) > 1)
        self._say(Live(f"{beside}{step.came}{': ' if str(step.came) else ''}{step.title}"))

    def _open(self, number: str, title: str) -> None:
        position = _POSITION.match(title)
        stage = (position[1] or "") if position else ""
        named = f"{stage} " if stage and not _NAMELESS.fullmatch(stage) else ""
        short = f"[{named}{position[2]}] {title[position.end() :]}" if position else title.removeprefix("[internal] ")
        short = re.sub(r" --mount=\S+|@sha256:[0-9a-f]+|docker\.io/(?:library/)?", "", short)
        short = re.sub(r"\s+", " ", short)
        shown = position is not None or not title.startswith("[")
        step = _Step(short if len(short) <= 100 else short[:97] + "...", stage, shown, Transfer(self._clock))
        self._steps[number] = step
        if step.shown:
            self._open_now[number] = step
            self._show()

    def _close(self, number: str, how: str, rest: str) -> None:
        step = self._steps.get(number)
        if step is None:
            return
        self._open_now.pop(number, None)
        if how == "ERROR":
            self.failed, self.reason = step, rest
        elif step.shown and how == "CACHED":
            self._say(f"{step.title} cached")
        elif step.shown and how == "DONE":
            self._say(f"{step.title} {rest.removesuffix('s')} s" + (f", {step.came}" if str(step.came) else ""))
            if self._on_made is not None:
                self._on_made(step.stage)
        self._show()


def ca_bundle(env: Mapping[str, str]) -> Path | None:
    """The CA bundle to hand to a build: the one ``env`` names, else the system's; None if there is none."""
    named = [env.get(name, "") for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")]
    for candidate in [*named, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"]:
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    return None


def client() -> str:
    """The path of the docker client; Undecided if there is none."""
    found = shutil.which("docker")
    if found is None:
        raise Undecided(
            "there is no docker client on PATH", "install docker-cli and docker-buildx, or use --engine local"
        )
    return found


def _failure(progress: Progress, completed: proc.Completed, where: str, free: int | None) -> Exception:
    failed = progress.failed
    tail = list(failed.tail) if failed else []
    loose = progress.loose if failed is None else [text for text in progress.loose if text.startswith("ERROR:")]
    # A line that quotes the step's command holds the Dockerfile's words, not what happened.
    lines = [text for text in (*tail, progress.reason, *loose) if "did not complete successfully" not in text]
    known = explain(lines, where=where, free=free)
    if known is not None:
        return known
    if failed is None:
        shown, sentence = list(progress.loose)[-_KEPT:], f"docker buildx ended with exit code {completed.exit}"
    else:
        code = re.search(r"exit code: (\d+)", progress.reason)
        why = f"ended with exit code {code[1]}" if code else f"failed: {progress.reason.rstrip('.')}"
        shown, sentence = tail, f"the step {failed.title} {why}"
    fence = "".join(f"\n{line}" for line in ["```", *shown, "```"]) if shown else ""
    memory = "exit code: 137" in progress.reason
    return Undecided(
        sentence + fence,
        "the step was killed, as the kernel does when memory runs out; give the engine more memory"
        if memory
        else "fix the step, or what it calls, and run again; finished steps are kept",
    )


# What BuildKit says of a layer that the engine removes for an image that goes, just as a build beside takes it up; the
# next build makes it again.  Seen with Docker Engine 26.1.5 and overlay2, with builds and removals side by side.
_LAYER_GONE = re.compile(r"failed to prepare \S+ as \S+: open \S+/\.tmp-\S+: no such file or directory")


def build(
    request: BuildRequest,
    say: Say,
    *,
    builder: str,
    unpacked: bool,
    where: str,
    free: int | None,
    on_made: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> str:
    """Builds what ``request`` says into the engine's image store and returns the image's id.

    ``builder`` is buildx's name of the one that works in that store.  ``unpacked`` says that the store is containerd's,
    which holds a layer twice, as files and as it would be sent; it is then left uncompressed, for gzip took 150 s over
    the 5.5 GB of a torch image and copying 37 s (4 cores).  ``where`` names the store and ``free`` its free bytes, for
    the message of a full disk.  ``on_made`` is given the stage of each step that was run, and the build ends where
    ``stop`` says True.  Raises Undecided or UsageError as ``explain`` sorts them, Undecided with the failing step's
    last lines otherwise, and Undecided after ``request.timeout_s`` seconds.  BuildKit may have written the tag even
    though it failed: the caller passes a name of its own and renames.
    """
    # An attestation holds the build's time and makes every image differ.  Its longer form holds the values of
    # arguments, and an address among them may have a password.
    attested = "mode=min" if request.provenance else "false"
    argv = [client(), "buildx", "build", "--progress=plain", f"--provenance={attested}"]
    if unpacked:
        argv.append(f"--output=type=image,name={request.tag},compression=uncompressed,unpack=true")
    else:
        argv += ["--load", f"--tag={request.tag}"]
    argv += [f"--builder={builder}"]
    argv += ["--no-cache"] if request.no_cache else []
    argv += ["--network=none"] if request.offline else []
    argv += [f"--target={request.target}"] if request.target else []
    argv += [f"--build-arg={name}={value}" for name, value in sorted(request.args.items())]
    argv += [f"--build-context={name}={path}" for name, path in sorted(request.contexts.items())]
    argv += [f"--label={name}={value}" for name, value in sorted(request.labels.items())]
    argv += [f"--secret=id={name},src={path}" for name, path in sorted(request.secrets.items())]
    ends = time.monotonic() + request.timeout_s
    with files.scratch("build") as folder:
        iid = folder / "iid"
        environment = {**os.environ, "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain", "NO_COLOR": "1"}
        # buildx asks git about the context for an attestation that is off here, under a configuration that may lie
        # above the folder for temporary files.
        environment |= {"BUILDX_GIT_INFO": "false", "BUILDX_GIT_LABELS": "false", "BUILDX_GIT_CHECK_DIRTY": "false"}
        argv += [f"--iidfile={iid}", str(request.context)]
        for more in (True, False):
            progress = Progress(say, on_made)
            left = max(ends - time.monotonic(), 0.0)
            completed = proc.run(argv, timeout_s=left, env=environment, on_line=progress.line, stop=stop)
            if not (more and completed.exit and not completed.timed_out and _LAYER_GONE.search(progress.reason)):
                break
            say("the engine took away a layer that this build was about to use; once more")
        if completed.timed_out:
            at = f" in the step {progress.running}" if progress.running else ""
            raise Undecided(
                f"the build did not end within {request.timeout_s:.0f} s{at}", "run again: finished steps are kept"
            )
        if completed.exit != 0:
            raise _failure(progress, completed, where, free)
        return iid.read_text().strip()
