"""This machine's own Debian mirrors, as its apt knows them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from envkit.errors import Undecided
from envkit.system import proc
from envkit.system.no_room import refused


def sources(suite: str, components: Sequence[str] = ("main",)) -> list[str]:
    """Lines for a sources.list that have ``suite``, its updates and its security fixes from this machine's own Debian
    mirrors; none if apt-get is missing here or knows no Debian mirror."""
    if shutil.which("apt-get") is None:
        return []
    done = proc.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], timeout_s=30)
    if done.exit != 0 or done.timed_out:
        raise no_answer("apt-get indextargets", done)
    asked = done.stdout.split()
    main = next((uri.rstrip("/") for uri in asked if uri.endswith("/debian/")), "")
    security = next((uri.rstrip("/") for uri in asked if uri.endswith("/debian-security/")), "")
    parts = " ".join(components)
    lines = [f"deb {main} {suite} {parts}", f"deb {main} {suite}-updates {parts}"] if main else []
    return lines + ([f"deb {security} {suite}-security {parts}"] if main and security else [])


def no_answer(program: str, done: proc.Completed) -> Undecided:
    """The error for a question about this machine's apt that got no answer, which is not the answer "none"."""
    why = (
        "it did not end" if done.timed_out else " ".join(done.stderr.split())[-300:].rstrip(".") or f"exit {done.exit}"
    )
    return refused(done, program.split()[0]) or Undecided(
        f"{program} does not say how this machine is set up: {why}", "run it by hand and repair what it names"
    )
