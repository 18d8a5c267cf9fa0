"""The errors a user can cause or meet; each is one sentence and its fix.

EnvkitError
├── UsageError        exit 2: the input is wrong and the user can mend it
│   └── Unsatisfiable exit 2: the wish is well-formed and the facts forbid it
└── Undecided         exit 3: the world did not answer (no engine, no network, a full disk)

Interrupted           exit 130: Ctrl-C or SIGTERM, after everything was cleaned up; no Exception, so that nothing
                      that handles errors can swallow it
"""

from __future__ import annotations


class EnvkitError(Exception):
    """Base of all errors with a message for the user; ``fix`` says what to do, ``code`` is the exit code."""

    code = 3

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class UsageError(EnvkitError):
    """The input is missing, malformed or contradicts itself."""

    code = 2


class Unsatisfiable(UsageError):
    """No combination meets the wish; ``chain`` is the facts that forbid it, ``nearest`` what comes closest."""

    def __init__(self, message: str, chain: tuple[str, ...], nearest: tuple[str, ...], fix: str = "") -> None:
        super().__init__(message, fix)
        self.chain = chain
        self.nearest = nearest


class Undecided(EnvkitError):
    """Something outside envkit failed, so that no answer can be given."""

    code = 3


class Interrupted(BaseException):
    """The user or the system stopped the run."""

    code = 130
