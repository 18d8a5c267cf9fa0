"""What the world's failures look like in the words of the tools, as seen, and what is made of them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from envkit.engine.buildx import Progress, ca_bundle
from envkit.engine.trouble import absent, explain, unreachable, words_of
from envkit.errors import Undecided, UsageError
from envkit.system.terminal import Live

SEEN = [
    (
        "docker",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "no docker engine answers",
    ),
    (
        "buildkit, engine killed",
        "ERROR: failed to receive status: rpc error: code = Unavailable desc = EOF",
        "no docker",
    ),
    (
        "socket",
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        "this user may not",
    ),
    ("no plugin", "docker: 'buildx' is not a docker command.", "no buildx plugin"),
    ("no plugin, docker 28", "docker: unknown command: docker buildx", "no buildx plugin"),
    ("dd", "dd: error writing '/t/x': No space left on device", "the disk is full"),
    ("uv on a full disk", "  cause: No space left on device (os error 28)", "the disk is full"),
    ("apt on a full disk", "E: You don't have enough free space in /var/cache/apt/archives/.", "the disk is full"),
    ("pip", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate", "not trusted"),
    ("uv", "  cause: invalid peer certificate: UnknownIssuer", "not trusted"),
    ("dockerd", "tls: failed to verify certificate: x509: certificate signed by unknown authority", "not trusted"),
    ("uv, no name", "  cause: failed to lookup address information: Name or service not known", "network did not"),
    (
        "apt, no name",
        "W: Failed to fetch http://nowhere.invalid/d/dists/x/InRelease  Could not resolve 'x'",
        "network did",
    ),
    (
        "apt, refused",
        "  Could not connect to 127.0.0.1:9 (127.0.0.1). - connect (111: Connection refused)",
        "network did",
    ),
    ("dockerd, no name", "dial tcp: lookup nowhere.invalid on 10.0.0.1:53: no such host", "network did not"),
    (
        "dockerd, silent",
        "net/http: request canceled while waiting for connection (Client.Timeout exceeded)",
        "network did",
    ),
    ("pip, hashes", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "the lock holds"),
    ("uv, hashes", "  cause: Hash mismatch for `tiny==1.0`", "the lock holds"),
    ("limit", "toomanyrequests: You have reached your pull rate limit", "limits this machine"),
]


@pytest.mark.parametrize(("line", "expected"), [row[1:] for row in SEEN], ids=[row[0] for row in SEEN])
def test_known_failures(line: str, expected: str) -> None:
    error = explain(["something before", line, "and after"], where="the store", free=12_000_000)
    assert isinstance(error, Undecided) and expected in error.message and error.fix
    assert "\n" not in error.message and not error.message.endswith(".")


def test_full_disk_says_where_and_how_much() -> None:
    error = explain(["write /x: no space left on device"], where="/var/lib/docker", free=12_400_000)
    assert error is not None and error.message.endswith("(/var/lib/docker, where 12 MB are free)")


@pytest.mark.parametrize(
    "line",
    ["ERROR: No matching distribution found for six", "make: *** [all] Error 2", "E: Unable to locate package foo"],
)
def test_other_failures_are_not_the_worlds(line: str) -> None:
    assert explain([line], where="the store") is None


def test_dockerfile_and_base_are_the_users() -> None:
    parse = "ERROR: failed to solve: dockerfile parse error on line 1: unknown instruction: FRM (did you mean FROM?)"
    missing = "ERROR: failed to solve: x:1: failed to resolve source metadata for docker.io/library/x:1: x:1: not found"
    for line in (parse, missing):
        error = explain([line], where="the store")
        assert isinstance(error, UsageError) and not error.message.endswith(".")


def test_registry_answer_is_told_from_silence() -> None:
    denied = "pull access denied for x, repository does not exist or may require authorization"
    lost = 'failed to do request: Head "https://r/v2/": dial tcp: lookup r on 10.0.0.1:53: no such host'
    assert absent(denied) and not unreachable(denied)
    assert unreachable(lost) and not absent(lost)


PLAIN = """\
#0 building with "default" instance using docker driver

#1 [internal] load build definition from Dockerfile
#1 DONE 0.0s

#5 [stage-0 1/3] FROM docker.io/library/debian:bookworm-slim@sha256:7431c7156d45e0d68061721cd8dfc2de5d34253335cdf
#5 CACHED

#6 [build 2/3] RUN --mount=type=secret,id=ca     --mount=type=cache,target=/c     uv   pip sync
#6 0.137 hello
#6 DONE 12.4s

#7 [stage-0 3/3] RUN exit 7
#7 0.140 #8 DONE 1.0s
#7 0.150 err
#7 ERROR: process "/bin/sh -c exit 7" did not complete successfully: exit code: 7
------
 > [stage-0 3/3] RUN exit 7:
------
ERROR: failed to solve: process "/bin/sh -c exit 7" did not complete successfully: exit code: 7
"""


def test_progress_is_short_lines_and_the_failing_step() -> None:
    said: list[str] = []
    progress = Progress(said.append)
    for line in PLAIN.splitlines():
        progress.line(line)
    assert [line for line in said if not isinstance(line, Live)] == [
        "[1/3] FROM debian:bookworm-slim cached",
        "[build 2/3] RUN uv pip sync 12.4 s",
    ]
    assert said[0] == Live("[1/3] FROM debian:bookworm-slim")
    assert progress.failed is not None and list(progress.failed.tail) == ["#8 DONE 1.0s", "err"]
    assert "exit code: 7" in progress.reason


def test_ca_bundle_is_the_first_that_exists(tmp_path: Path) -> None:
    here = tmp_path
    (here / "own.crt").write_text("x")
    assert ca_bundle({"SSL_CERT_FILE": str(here / "none"), "PIP_CERT": str(here / "own.crt")}) == here / "own.crt"
    system = ca_bundle({})
    assert system is None or system.is_file()


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


def tls(kind: type[ssl.SSLError], **said: str) -> ssl.SSLError:
    error = kind("bad")
    for name, value in said.items():
        setattr(error, name, value)
    return error


END = ValueError("y")
CIRCLE = caused(RuntimeError("x"), END)
caused(END, CIRCLE)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (caused(RuntimeError("outer"), OSError(111, "Connection refused")), "Connection refused"),
        (caused(ValueError("outer"), RuntimeError(OSError("inner"))), "inner"),
        (
            RuntimeError(tls(ssl.SSLCertVerificationError, verify_message="self-signed")),
            "its certificate was not trusted: self-signed",
        ),
        (tls(ssl.SSLError, reason="WRONG_VERSION_NUMBER"), "TLS failed: WRONG VERSION NUMBER"),
        (tls(ssl.SSLError), "TLS failed: no reason was given"),
        (CIRCLE, "x"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_the_innermost_of_a_chain_of_errors_is_told(error: Exception, words: str) -> None:
    assert words_of(error) == words
