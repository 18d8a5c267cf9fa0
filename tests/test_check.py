"""--fix, --diff and --pin: what is written, how, and what is left alone; our own images, judged clean."""

from __future__ import annotations

import io
import json
import os
import re
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dockerfile as buildkit
import pytest
from clocks import ends
from fake_docker import FakeDocker
from inline import Envkit

from envkit.errors import Undecided, UsageError
from envkit.facts import load
from envkit.model import Edit, Finding, Outcome, Result, Severity, Span
from envkit.report import Detail
from envkit.static import CheckOptions, JudgedFile, check, pin
from envkit.static.fixes import fixed
from envkit.static.judged import of_text

ROOT = Path(__file__).parent.parent
UNQUOTED = "FROM python:3.12-slim-bookworm\nRUN pip install --no-cache-dir torch>=2.0 numpy\n"
DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Envkit]:
    """Runs `envkit check` with these words in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with Envkit(capsys, "check") as run:
        yield run


def one(text: str, *edits: Edit, path: str = "Dockerfile") -> JudgedFile:
    result = Result("a-check", Outcome.FAIL, (Finding("x", edits=edits),))
    return JudgedFile(path, "dockerfile", text, (result,))


# ---------------------------------------------------------------- --fix and --diff


def test_a_diff_changes_nothing(envkit: Envkit, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(UNQUOTED)
    found = envkit("--diff", "Dockerfile")
    assert found.out.startswith("--- a/Dockerfile\n+++ b/Dockerfile\n@@ ")
    assert '+RUN pip install --no-cache-dir "torch>=2.0" numpy\n' in found.out
    assert (tmp_path / "Dockerfile").read_text() == UNQUOTED
    assert found.err == ""


def test_a_fix_shows_its_diff_writes_and_judges_what_is_left(envkit: Envkit, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(UNQUOTED)
    found = envkit("--fix", "--only", "unquoted-specifier", "--fail-on", "warning", "Dockerfile")
    assert found.out.index("--- a/Dockerfile") < found.out.index("PASS: 1 file: nothing found")
    assert (found.code, found.err) == (0, "Dockerfile: 1 fixed\n")
    assert (tmp_path / "Dockerfile").read_text() == UNQUOTED.replace("torch>=2.0", '"torch>=2.0"')
    again = envkit("--fix", "--only", "unquoted-specifier", "Dockerfile")
    assert (again.out, again.err) == ("PASS: 1 file: nothing found\n", "")


def test_a_document_on_stdout_stays_one(envkit: Envkit, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(UNQUOTED)
    found = envkit("--fix", "--format", "json", "Dockerfile")
    json.loads(found.out)
    assert "+RUN pip install" in found.err


def test_mode_line_ends_and_mark_are_kept_and_no_file_is_left_beside(envkit: Envkit, tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_bytes(b"\xef\xbb\xbf" + UNQUOTED.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    envkit("--fix", "Dockerfile")
    said = path.read_bytes()
    assert said.startswith(b"\xef\xbb\xbfFROM")
    assert b'"torch>=2.0"' in said
    assert said.count(b"\n") == said.count(b"\r\n") == 2
    assert path.stat().st_mode & 0o7777 == 0o640
    assert os.listdir(tmp_path) == ["Dockerfile"]


def test_a_link_stays_one(envkit: Envkit, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "Dockerfile").write_text(UNQUOTED)
    (tmp_path / "Dockerfile").symlink_to("real/Dockerfile")
    envkit("--fix", "Dockerfile")
    assert (tmp_path / "Dockerfile").is_symlink()
    assert '"torch>=2.0"' in (tmp_path / "real" / "Dockerfile").read_text()


def test_a_file_that_is_no_utf8_is_left_alone(envkit: Envkit, tmp_path: Path) -> None:
    data = UNQUOTED.encode() + b"RUN echo \xff\n"
    (tmp_path / "Dockerfile").write_bytes(data)
    found = envkit("--fix", "Dockerfile")
    assert "Dockerfile was not changed: it is no valid UTF-8" in found.err
    assert (tmp_path / "Dockerfile").read_bytes() == data


def test_a_file_that_somebody_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM b:1\n")
    said: list[str] = []
    text = "FROM a:1\n"
    judged = one(text, Edit(Span(str(path), 1, 9, 1, 9), "2"), path=str(path))
    _, texts = check.fixed([judged], {})
    check.write([judged], texts, said.append)
    assert path.read_text() == "FROM b:1\n"
    assert said == [f"{path} was not changed: it is no valid UTF-8, or somebody else changed it meanwhile"]


def test_a_file_that_is_left_alone_keeps_none_of_the_others_back(tmp_path: Path) -> None:
    said: list[str] = []
    judged = []
    for name, edits in (("clean", 0), ("changed", 1), ("last", 1)):
        path = tmp_path / name
        path.write_text("FROM b:1\n" if name == "changed" else "FROM a:1\n")
        judged.append(one("FROM a:1\n", *[Edit(Span(str(path), 1, 9, 1, 9), "2")] * edits, path=str(path)))
    _, texts = check.fixed(judged, {})
    check.write(judged, texts, said.append)
    assert [(tmp_path / each.path).read_text() for each in judged] == ["FROM a:1\n", "FROM b:1\n", "FROM a:12\n"]
    assert "changed was not changed" in said[0] and said[1:] == [f"{tmp_path / 'last'}: 1 fixed"]


def test_stdin_is_no_file_to_mend() -> None:
    judged = one("FROM a:1\n", Edit(Span("-", 1, 9, 1, 9), "2"), path="-")
    _, texts = check.fixed([judged], {})
    with pytest.raises(UsageError, match="stdin cannot be fixed"):
        check.write([judged], texts, print)


# ---------------------------------------------------------------- --pin


class Registry(FakeDocker):
    """An engine whose registry knows some digests."""

    digests: dict[str, str]
    asked: list[str]
    patience_s: float = 0.0

    def answer(self, method: str, path: str, words: dict[str, str], body: bytes) -> tuple[int, Any]:
        found = re.fullmatch(r"/distribution/(.*)/json", path)
        if not found:
            return super().answer(method, path, words, body)
        self.asked.append(found[1])
        time.sleep(self.patience_s)
        if found[1] not in self.digests:
            return 500, {"message": "dial tcp: lookup registry: no such host"}
        return 200, {"Descriptor": {"digest": self.digests[found[1]]}, "Platforms": []}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """An engine that this test plays, in the place of any other."""
    made = Registry(tmp_path / "docker")
    made.digests, made.asked = {}, []
    monkeypatch.setenv("DOCKER_HOST", f"unix://{made.folder}/s")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield made
    made.close()


STAGES = f"""\
ARG TAG=24.04
FROM ubuntu:${{TAG}} AS a
FROM python:3.12-slim-bookworm AS b
FROM b AS c
FROM --platform=linux/amd64 python:3.12-slim-bookworm  AS d
FROM debian:12@{DIGEST}
FROM scratch
FROM alpine
COPY --from=b / /
"""


def test_pin_writes_the_digest_behind_each_literal_base(envkit: Envkit, tmp_path: Path, registry: Registry) -> None:
    registry.digests["python:3.12-slim-bookworm"] = DIGEST
    (tmp_path / "Dockerfile").write_text(STAGES)
    found = envkit("--pin", "--fix", "Dockerfile")
    now = (tmp_path / "Dockerfile").read_text()
    assert now == STAGES.replace("python:3.12-slim-bookworm", f"python:3.12-slim-bookworm@{DIGEST}")
    assert registry.asked == ["python:3.12-slim-bookworm"], "each reference once, and only what can be pinned"
    assert "Dockerfile:2:6: ubuntu:24.04 stays without a digest: build arguments decide it" in found.err
    assert "alpine stays without a digest: it has no tag" in found.err
    assert [each.cmd for each in buildkit.parse_string(now)] == [each.cmd for each in buildkit.parse_string(STAGES)]


def test_pin_says_which_registry_does_not_answer_and_changes_nothing_there(
    envkit: Envkit, tmp_path: Path, registry: Registry
) -> None:
    text = "FROM python:3.12-slim-bookworm\n"
    (tmp_path / "Dockerfile").write_text(text)
    found = envkit("--pin", "--fix", "Dockerfile")
    assert "python:3.12-slim-bookworm stays without a digest: no registry answers" in found.err
    assert (tmp_path / "Dockerfile").read_text() == text


def test_pin_without_an_engine_says_so(envkit: Envkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    monkeypatch.setenv("PATH", str(tmp_path))  # Podman is not there either
    (tmp_path / "Dockerfile").write_text("FROM python:3.12-slim-bookworm\n")
    found = envkit("--pin", "--diff", "Dockerfile")
    assert "nothing was pinned: " in found.err
    assert found.out == ""


def test_registries_are_asked_side_by_side_and_not_for_ever() -> None:
    all_asked, never = threading.Barrier(12), threading.Event()

    def ask(reference: str) -> str:
        all_asked.wait()  # nobody gets an answer before all have been asked
        if reference == "slow:1":
            never.wait()
        if reference == "gone:1":
            raise UsageError("gone:1 does not exist or is private")
        return DIGEST

    said: list[str] = []
    wanted = [*(f"a:{number}" for number in range(10)), "gone:1", "slow:1"]
    with ends():
        known = pin.digests(wanted, ask, said.append, budget_s=3.0)
    assert known == {f"a:{number}": DIGEST for number in range(10)}
    assert said == [
        "gone:1 stays without a digest: gone:1 does not exist or is private",
        "slow:1 stays without a digest: no registry answered within 3 s",
    ]


def test_nobody_is_asked_where_nothing_can_be_pinned() -> None:
    def ask() -> Callable[[str], str]:
        raise Undecided("nobody should ask")

    said: list[str] = []
    judged = JudgedFile("Dockerfile", "dockerfile", f"FROM debian:12@{DIGEST}\nFROM scratch\n")
    assert check.pinned([judged, JudgedFile("r.txt", "requirements", "torch\n")], ask, said.append) == {}
    assert said == []


# ---------------------------------------------------------------- our own


OWN = sorted(ROOT.glob("images/*/Dockerfile"))


def test_there_are_images() -> None:
    assert len(OWN) >= 10


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.parent.name)
def test_our_own_images_are_clean(path: Path) -> None:
    """No finding at all, notes included, and nothing left open."""
    found = check.answer(check.CheckRequest((str(path),)), check.config_of(check.CheckRequest(config=None)))
    said = [(f.severity.name, r.check, f.message) for r in found.report.results for f in r.findings]
    open_ = [(r.check, r.reason) for r in found.report.results if r.outcome in (Outcome.UNKNOWN, Outcome.CRASHED)]
    assert said == []
    assert open_ == []
    assert found.code(Severity.NOTE) == 0


def test_our_own_specs_and_locks_are_clean() -> None:
    found = check.answer(check.CheckRequest((str(ROOT / "images"),)), check.config_of(check.CheckRequest()))
    assert len(found.judged) > len(OWN)
    said = [(r.check, f.where.partition(":")[0]) for r in found.report.results for f in r.findings]
    by_tag = [ROOT / "images" / f"torch-2.6-cu124-{name}" / "envkit.lock" for name in ("nvidia-devel", "pytorch")]
    # Bases of others, locked where no registry answered: the locks say so, and so does the check.
    assert sorted(said) == sorted(("packages-lock-not-fully-pinned", str(path)) for path in by_tag for _ in range(2))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.parent.name)
def test_nothing_wrong_is_said_of_our_own_images(path: Path) -> None:
    """The lock knows what is in them; what the Dockerfile's text does not show may stay open, and no more."""
    lock = tomllib.loads((path.parent / "envkit.lock").read_text())
    observed = check.answer(check.CheckRequest((str(path),)), check.config_of(check.CheckRequest())).report.observed
    assert observed["base_image"].partition("@")[0] == lock["image"]
    assert observed["torch_version"] in (lock["torch"], None)
    assert observed["torch_cuda"] in (lock["cuda"], None)
    assert observed["python_version"] in (lock["python"], None)


# ---------------------------------------------------------------- small things


def test_the_help_names_every_option(envkit: Envkit) -> None:
    said = envkit("--help").out
    for word in (
        "--context",
        "--gpu",
        "--driver",
        "--fix",
        "--diff",
        "--pin",
        "--only",
        "--baseline",
        "--write-baseline",
    ):
        assert word in said
    for word in ("--config", "--format", "--fail-on", "--observed", "--list"):
        assert word in said


def test_printed_needs_no_terminal() -> None:
    found = check.Answer((one("FROM a:1\n"),), check.run.merged([one("FROM a:1\n")], 0.1))
    stream = io.StringIO()
    stream.write(
        check.printed(found, "console", Severity.ERROR, observed=False, color=False, width=20, detail=Detail.NORMAL)
    )
    assert stream.getvalue().endswith("FAIL: 1 file: 1 error\n")


def test_a_diff_shows_no_credential() -> None:
    text = "FROM a\nENV API_TOKEN=Zx81kfPq02Lmw7Rt\nRUN pip install --index-url https://u:Zx81kfPq@x.example/s p\n"
    edit = Edit(Span("Dockerfile", 3, 16, 3, 16), " --no-cache-dir")
    result = Result("pip-cache-left", Outcome.FAIL, (Finding("x", edits=(edit,)),))
    shown, texts = check.fixed((JudgedFile("Dockerfile", "dockerfile", text, (result,)),), {})
    assert "Zx81" not in shown
    assert "+RUN pip install --no-cache-dir --index-url https://[hidden]@x.example/s p\n" in shown
    assert "https://u:Zx81kfPq@x.example/s" in texts["Dockerfile"][0]


@pytest.mark.parametrize(
    ("base", "system", "why"),
    [
        ("ubuntu:latest", None, "ubuntu26.04 today, facts: ubuntu:latest"),
        ("ubuntu:22.04", "ubuntu22.04", "tag 22.04"),
        ("python:3.11-slim", "debian13", "facts: python:3.11-slim"),
    ],
)
def test_a_file_does_not_say_which_system_the_latest_is(base: str, system: str | None, why: str) -> None:
    one = of_text("dockerfile", f"FROM {base}\nRUN true\n", "Dockerfile", None, CheckOptions(), load())
    assert one.observed["base_os"] == system
    assert one.observed["origins"]["base_os"].startswith(why)


@pytest.mark.parametrize(
    ("line", "torch", "cuda"),
    [
        ("pip install torch==2.6", "2.6.0", "12.4"),
        ("conda install -y pytorch=1.0.0 torchvision cuda90 -c pytorch", "1.0.0", "9.0"),
    ],
)
def test_the_torch_of_an_image_is_observed(line: str, torch: str, cuda: str) -> None:
    text = f"FROM continuumio/miniconda3:4.8.2\nRUN {line}\n"
    one = of_text("dockerfile", text, "Dockerfile", None, CheckOptions(), load())
    assert (one.observed["torch_version"], one.observed["torch_cuda"]) == (torch, cuda)


@pytest.mark.parametrize(
    ("line", "fixed_line"),
    [
        (
            'RUN ["/bin/bash", "-c", "cd /x && pip install numpy"]',
            'RUN ["/bin/bash", "-c", "cd /x && pip install --no-cache-dir numpy"]',
        ),
        ('RUN ["/bin/bash", "-c", "echo \\"a\\" && pip install numpy"]', None),  # nothing tells where its words stand
        (
            'RUN ["/bin/bash", "-c", "pip install numpy>=1.20"]',  # quotes would end the string
            'RUN ["/bin/bash", "-c", "pip install --no-cache-dir numpy>=1.20"]',
        ),
    ],
)
def test_a_fix_inside_a_json_form_stays_one(line: str, fixed_line: str | None) -> None:
    text = f"FROM python:3.11-slim\n{line}\n"
    one = of_text("dockerfile", text, "Dockerfile", None, CheckOptions(), load())
    mended, _ = fixed(one)
    assert mended in (text, f"FROM python:3.11-slim\n{fixed_line}\n")
    assert (mended != text) == (fixed_line is not None)
