"""What uv's failure means, by what it prints: no solution, an index out of reach, or the machine."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

from envkit.errors import Undecided, Unsatisfiable
from envkit.plan.together import Unreached
from envkit.system.no_room import refused
from envkit.system.proc import Completed

_UNREACHED = re.compile(
    r"dns error|error sending request|failed to fetch|connection refused|timed out|could not connect|"
    r"network is unreachable|request failed",
    re.IGNORECASE,
)
# uv goes on without an index that wants a password, as if it were empty, and says so in a hint alone.
REFUSED = re.compile(r"could not be queried|returned a 403 Forbidden")
_UNTRUSTED = re.compile(r"invalid peer certificate|certificate verify failed|UnknownIssuer", re.IGNORECASE)

_NO_SOLUTION = re.compile(r"No solution found|was not found in the|no (?:usable )?wheels|unsatisfiable|Conflicting URL")

_DRAWING = " \u00d7\u2570\u2500\u25b6\u251c\u2502\u00b7"  # the lines and arrows with which uv draws its reports


def failure(done: Completed, places: Iterable[str] = ()) -> Unsatisfiable | Undecided:
    """uv's failure as one of ours, ``places`` being where it writes; its own explanation is kept as the chain."""
    stderr = done.stderr
    lines = [re.sub(r"\s+", " ", line).strip(_DRAWING) for line in stderr.splitlines()]
    said = tuple(line for line in lines if line)
    if full := refused(done, "uv", [place for place in places if place]):
        return full
    if done.exit < 0:
        return Undecided(f"uv was killed by {signal.Signals(-done.exit).name}", "check the kernel log, and try again")
    if _UNTRUSTED.search(stderr):
        return Undecided(
            "the package index presents a certificate that this machine does not trust",
            "point SSL_CERT_FILE at the CA bundle of your network",
        )
    if _UNREACHED.search(stderr):
        host = re.search(r"https?://(?:[^/\s@]*@)?([A-Za-z0-9.:-]+)", stderr)
        at = f" at {host[1]}" if host else ""
        return Unreached(
            f"the package index{at} cannot be reached: {said[-1].removeprefix('cause: ') if said else 'no answer'}",
            "check the network",
        )
    if REFUSED.search(stderr):
        return Undecided(
            "the package index refuses to answer: it wants credentials", "give them in the index's address or in netrc"
        )
    if not _NO_SOLUTION.search(stderr):
        why = said[-1].rstrip(".") if said else f"it exited with {done.exit} and no message"
        return Undecided(f"uv could not resolve the wheels: {why[-300:]}", "see uv's message, and try again")
    return Unsatisfiable("no set of wheels satisfies the spec", said, (), "loosen one of the requirements named above")
