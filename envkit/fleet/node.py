"""What a node of a run does: it examines itself in a child with a budget, says at which level it is, and leaves one
document, in the shared folder or, where that takes none, on stdout."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from envkit.errors import FAULT, EnvkitError, Interrupted, one_line
from envkit.fleet import fingerprint, folder, frames, launchers
from envkit.fleet.documents import Body, Document, Ended, Found, Head, encoded
from envkit.fleet.folder import Hangs, Place
from envkit.records import dataclass
from envkit.system import files, proc

Say = Callable[[str], None]

# What a level may take where nobody said: twice what it took on eight H100.
BUDGETS_S: Mapping[str, float] = {"passive": 30.0, "probe": 90.0, "quick": 180.0, "full": 600.0}
TERMINATION_BYTES = 4096  # of a container's termination message (Kubernetes: TerminationMessagePathDefault)
_INNER = 0.9  # of the budget is what the examination is given: what it ends by itself, it can tell of
_GRACE_S = 2.0  # between SIGTERM and SIGKILL for the examination
_LONGEST = 1000  # characters of a text of the report
_BRIEF = 160  # the same in a termination message
_ANSWERED = (0, 1, 3)
# The command line, in a process that ends with this one even where a signal falls between its fork and `proc`'s care.
_CHILD = (
    "import sys; from envkit.payload.watchdog import die_with_parent; die_with_parent(int(sys.argv.pop(1))); "
    "from envkit.cli import main; main()"
)


@dataclass(frozen=True, slots=True)
class Examined:
    """How the examination ended, at which level, why, and what it found."""

    ended: Ended
    level: str
    detail: str
    body: Body


def examine(words: Sequence[str], budget_s: float, at_level: Callable[[str], None], say: Say) -> Examined:
    """`envkit preflight` with these words in a child, which is ended at ``budget_s`` whatever it waits for.

    ``at_level`` is called with each level as it begins; ``say`` with the lines of progress.
    """
    level, last = "start", ""
    limit = time.monotonic() + budget_s

    def heard(line: str) -> None:
        nonlocal level, last
        last = line.strip() or last
        if line.startswith("level ") and line[6:].isalpha():
            level = line[6:]
            at_level(level)
        say(line)

    argv = [sys.executable, "-c", _CHILD, str(os.getpid()), "preflight", *words, "--budget", f"{budget_s * _INNER:g}"]
    done = proc.run(
        [*argv, "--format", "json", "--observed"],
        timeout_s=budget_s,
        on_line=heard,
        grace_s=_GRACE_S,
        stop=lambda: time.monotonic() > limit,
    )
    if done.timed_out:
        return Examined(
            Ended.HUNG, level, f"it was ended after {budget_s:g} s; its last line was `{one_line(last)}`", Body()
        )
    if done.exit in _ANSWERED and done.stdout.startswith("{"):
        with suppress(ValueError, KeyError, TypeError):
            return Examined(Ended.FINISHED, level, "", body_of(json.loads(done.stdout)))
    if done.exit in (2, 3):  # a sentence in place of a report: an image that is not there, an engine that is down
        message, fix = _sentence(done.stderr)
        found = (
            Found("preflight-refused", "fail", findings=(("error", message, fix),))
            if done.exit == 2
            else Found("preflight-undecided", "unknown", message)
        )
        return Examined(Ended.FINISHED, level, "", Body((found,)))
    how = proc.signal_name(-done.exit) if done.exit < 0 else f"exit code {done.exit}"
    what = "a fault of envkit" if done.exit == FAULT else "its process ended"
    return Examined(Ended.DIED, level, f"{what} ({how}); its last line was `{one_line(last)}`", Body())


def _sentence(stderr: str) -> tuple[str, str]:
    """The message and the fix among the lines of an error."""
    message = fix = ""
    for line in stderr.splitlines():
        if line.startswith("envkit: "):
            message, fix = line[len("envkit: ") :], ""
        elif line.startswith("  fix: "):
            fix = line[len("  fix: ") :]
    return message[:_LONGEST] or "no reason was given", fix[:_LONGEST]


def body_of(report: Mapping[str, Any]) -> Body:
    """A report of `envkit preflight --format json --observed` as the body of a document."""
    found: list[Found] = []
    passed: list[str] = []
    skipped = 0
    for result in report["results"]:
        outcome = result["outcome"]
        if outcome == "pass":
            passed.append(result["check"])
        elif outcome == "skip":
            skipped += 1
        else:
            findings = tuple(
                (one["severity"], one["message"][:_LONGEST], one["fix"][:_LONGEST]) for one in result["findings"]
            )
            found.append(Found(result["check"], outcome, result["reason"][:_LONGEST], findings))
    observed = report.get("observed", {})
    prints = fingerprint.fingerprint(observed)
    prints["envkit"] = str(report["tool"]["version"])
    return Body(tuple(found), tuple(passed), skipped, fingerprint.hardware(observed), prints)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose document it becomes: run, nonce, node, and this process of it."""

    run: str
    nonce: str
    node: str
    attempt: str
    started: float


def identity(run: str, nonce: str, node: str) -> Identity:
    """This process as an attempt of ``node``, begun now."""
    return Identity(run, nonce, node, secrets.token_hex(8), time.time())


def document(who: Identity, examined: Examined, ahead_s: float | None, trouble: str = "") -> Document:
    """What the node says, at this moment."""
    head = Head(
        "envkit.node/1", who.run, who.nonce, who.node, who.attempt, examined.ended, who.started,
        max(time.time(), who.started), examined.level, "0" * 64, socket.gethostname()[:253],
        examined.detail[:_LONGEST], ahead_s, trouble[:_LONGEST],
    )  # fmt: skip
    return Document(head, replace(examined.body, labels=launchers.topology(os.environ)))


@dataclass(frozen=True, slots=True)
class Carriers:
    """Where a document goes: the shared folder if there is one, framed lines on stdout, a termination message."""

    place: Place | None
    framed: bool = False
    termination: Path | None = None


def answer(who: Identity, carriers: Carriers, words: Sequence[str], budget_s: float, say: Say) -> tuple[Document, bool]:
    """Examines this node and leaves its document; False beside it where the shared folder did not take it.

    A run that is stopped leaves a document that says so before Interrupted goes on.
    """
    trouble: list[str] = []
    at = "start"

    def beat(level: str) -> None:
        nonlocal at
        at = level
        if carriers.place is not None and not trouble:
            try:
                folder.beat(carriers.place, who.node, who.attempt, who.started, level)
            except (EnvkitError, Hangs) as error:
                trouble.append(_why(error))

    beat("start")
    try:
        examined = examine(words, budget_s, beat, say)
    except Interrupted as stop:
        _leave(who, carriers, Examined(Ended.DIED, at, f"it was stopped by {stop}", Body()), trouble, say)
        raise
    beat("writing")
    return _leave(who, carriers, examined, trouble, say)


def _why(error: EnvkitError | Hangs) -> str:
    return error.message if isinstance(error, EnvkitError) else str(error)


def _leave(
    who: Identity, carriers: Carriers, examined: Examined, trouble: list[str], say: Say
) -> tuple[Document, bool]:
    place = carriers.place
    made = document(who, examined, place.ahead_s if place else None)
    taken = place is None
    if place is not None:
        try:
            folder.deliver(place, who.node, who.attempt, encoded(made))
            taken = True
        except (EnvkitError, Hangs) as error:
            trouble.append(_why(error))
    if not taken:
        made = replace(made, head=replace(made.head, trouble="; ".join(dict.fromkeys(trouble))[:_LONGEST]))
        say(f"{who.node}: its document is on stdout, in lines that begin with {frames.MARK}: {made.head.trouble}")
    if carriers.framed or not taken:
        for line in frames.lines(made):
            print(line, flush=True)
    if carriers.termination is not None:
        files.write(carriers.termination, brief(made).decode())
    return made, taken


def brief(made: Document) -> bytes:
    """The document in the size of a termination message.  What has no room there is left out, fixes and notes first;
    where that could change the verdict, the document says that it is shortened."""
    body = made.body
    for body in _shorter(made.body):
        data = encoded(Document(made.head, body))
        if len(data) <= TERMINATION_BYTES:
            return data
    head = replace(made.head, detail=made.head.detail[:_BRIEF], trouble=made.head.trouble[:_BRIEF])
    return encoded(Document(head, body))


def _shorter(body: Body) -> list[Body]:
    """The body, ever shorter; the last one fits in any case."""
    one_passed = replace(body, passed=body.passed[:1])
    cut = tuple(
        replace(
            one,
            reason=one.reason[:_BRIEF],
            findings=tuple((severity, message[:_BRIEF], "") for severity, message, _ in one.findings),
        )
        for one in body.found
    )
    firm = tuple(one for one in cut if one.outcome != "fail" or any(sev == "error" for sev, _, _ in one.findings))
    without = {key: value for key, value in body.fingerprint.items() if not key.startswith(("variable ", "limit "))}
    worst = sorted(firm, key=lambda one: one.outcome != "fail")[:3]
    return [
        body,
        one_passed,
        replace(one_passed, found=cut),
        replace(one_passed, found=firm, shortened=len(firm) < len(cut)),
        replace(one_passed, found=tuple(worst), shortened=True),
        replace(one_passed, found=tuple(worst), fingerprint=without, shortened=True),
        replace(one_passed, found=tuple(worst[:1]), fingerprint={}, hardware=None, shortened=True),
    ]
