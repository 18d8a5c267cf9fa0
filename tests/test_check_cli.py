"""`envkit check` as a person and a CI job meet it: what it takes, what it prints, how it ends, and bad input."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

import forked
import machines
import pytest
from clocks import comes, costs_less
from inline import Ended, Envkit
from processes import children

from envkit.static import check
from envkit.subjects import saved
from envkit.subjects.codec import to_plain

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "envkit" / "report" / "report-1.schema.json").read_text())
FIELDS = (
    "base_image", "base_cuda", "base_cudnn", "base_flavor", "base_os", "torch_version", "torch_cuda", "python_version",
    "torch_install_method",
)  # fmt: skip
CLEAN = """\
FROM python:3.12-slim-bookworm
RUN pip install --no-cache-dir torch==2.6.0
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
CMD ["python", "-c", "import torch"]
"""
MIXED = """\
FROM nvidia/cuda:11.8.0-base-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir torch==2.6.0
"""
MAJOR = "torch-cuda-vs-base-mismatch-major"
# The torch that this base holds is nobody's knowledge.
MOVING = "FROM registry.example/team/base:stable\nRUN pip install --no-cache-dir torch==2.6.0\n"
PRIVATE = "FROM registry.example/team/base:7\nRUN pip install --no-cache-dir torch==2.6.0\n"


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Envkit]:
    """Runs `envkit check` with these words in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with Envkit(capsys, "check") as run:
        yield run


def spawn(*words: object, folder: Path, stdin: bytes = b"", **environment: str) -> Ended:
    """The same in a process of its own."""
    done = forked.envkit("check", *map(str, words), cwd=folder, stdin=stdin, env={**os.environ, **environment})
    return Ended(done.returncode, done.stdout, done.stderr)


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


# ---------------------------------------------------------------- what it ends with


def test_a_clean_file_ends_with_0(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": CLEAN})
    assert envkit("Dockerfile") == Ended(0, "PASS: 1 file: nothing found\n", "")


def test_a_finding_ends_with_1_from_fail_on_upward(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": MIXED})
    found = envkit("Dockerfile")
    assert found.code == 0
    assert f"warning[{MAJOR}]: torch 2.6.0 is built for CUDA 12.4" in found.out
    assert "  --> Dockerfile:3:32\n" in found.out
    assert "  |                                ^^^^^^^^^^^^\n" in found.out
    assert envkit("--fail-on", "warning", "Dockerfile").code == 1
    assert envkit("--fail-on", "fatal", "Dockerfile").code == 2


def test_doubt_ends_with_3_and_is_outranked_by_a_finding(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"a/Dockerfile": MOVING, "b/Dockerfile": MIXED})
    found = envkit("a/Dockerfile")
    assert found.code == 3
    assert re.search(r"^undecided\[torch-python-unsupported]", found.out, re.MULTILINE)
    assert re.search(rf"^open\[{MAJOR}", found.out, re.MULTILINE), "nothing is compiled, so it could only be a warning"
    assert "UNDECIDED: 1 file: 1 warning, 1 undecided, 1 open" in found.out
    assert envkit("a", "b").code == 3
    assert envkit("--fail-on", "warning", "a", "b").code == 1


def test_what_the_first_build_on_a_base_settles_is_shown_and_leaves_the_exit_code(
    envkit: Envkit, tmp_path: Path
) -> None:
    lay(tmp_path, {"a/Dockerfile": PRIVATE})
    found = envkit("a/Dockerfile")
    assert (found.code, "open[torch-python-unsupported]" in found.out) == (0, True)
    assert envkit("--strict", "a/Dockerfile").code == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none"], "none does not exist"),
        (["--only", "nosuch", "Dockerfile"], "there is no check `nosuch`"),
        (["--format", "yaml", "Dockerfile"], "there is no format `yaml`"),
        (["--format", "prometheus", "Dockerfile"], "there is no format `prometheus`"),
        (["--gpu", "Voodoo 2", "Dockerfile"], "Voodoo 2"),
        (["--driver", "new", "Dockerfile"], "`new` is no driver version"),
        (["--context", "none", "Dockerfile"], "the build context none is no folder"),
        (["--baseline", "none.json", "Dockerfile"], "none.json cannot be read"),
        (["--config", "none.toml", "Dockerfile"], "none.toml cannot be read"),
        (["--pin", "Dockerfile"], "--pin needs --diff or --fix"),
    ],
)
def test_wrong_use_is_one_sentence_with_its_fix_and_2(
    envkit: Envkit, tmp_path: Path, words: list[str], message: str
) -> None:
    lay(tmp_path, {"Dockerfile": CLEAN})
    found = envkit(*words)
    assert (found.code, found.out) == (2, "")
    first, fix = found.err.splitlines()[0], found.err.splitlines()[-1]
    assert first.startswith("envkit: ")
    assert message in first
    assert not first.endswith(".")
    assert fix.startswith("  fix: ") or "nearest" in found.err


def test_nothing_to_check_is_undecided(envkit: Envkit, tmp_path: Path) -> None:
    found = envkit()
    assert (found.code, found.out) == (3, "")
    assert "there is nothing to check in ." in found.err


def test_if_any_lets_nothing_be_nothing_and_doubt_doubt(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"ci.yml": "on: push\n", "a/Dockerfile": MOVING})
    for words, plain, lenient in ((["ci.yml"], 3, 0), (["a"], 3, 3), (["none"], 2, 2)):
        assert (envkit(*words).code, envkit("--allow-no-files", *words).code) == (plain, lenient), words


# ---------------------------------------------------------------- what it takes


def test_the_default_is_this_folder(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"docker/Dockerfile": CLEAN, "train.Dockerfile": CLEAN, "README.md": "FROM here on\n"})
    found = envkit("--format", "json", "--observed")
    assert set(found.document(SCHEMA)["observed"]["files"]) == {"docker/Dockerfile", "train.Dockerfile"}


def test_stdin(tmp_path: Path) -> None:
    found = spawn("-", "--fail-on", "warning", folder=tmp_path, stdin=MIXED.encode())
    assert found.code == 1
    assert f"warning[{MAJOR}]" in found.out
    assert "  --> -:3:32\n" in found.out
    assert spawn("-", folder=tmp_path, stdin=b"x" * 5_000_000).code == 2


def test_stdin_has_no_context_unless_one_is_named(tmp_path: Path) -> None:
    lay(tmp_path, {"requirements.txt": "torch==2.6.0\n"})
    text = b"FROM python:3.12-slim-bookworm\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\n"
    words = ("-", "--format", "json", "--observed")
    alone = spawn(*words, folder=tmp_path, stdin=text).document(SCHEMA)["observed"]
    assert alone["torch_version"] is None
    there = spawn(*words, "--context", ".", folder=tmp_path, stdin=text).document(SCHEMA)["observed"]
    assert there["torch_version"] == "2.6.0"


def test_what_an_editor_holds_is_judged_as_the_file_that_it_will_be(tmp_path: Path) -> None:
    lay(tmp_path, {"docker/requirements.txt": "torch==2.6.0\n", "docker/Dockerfile": "FROM old:1\n"})
    text = b"FROM python:3.12-slim-bookworm\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\n"
    words = ("--format", "json", "--observed", "--stdin-filename")
    for name in ("docker/Dockerfile", "./docker/Dockerfile", "docker/new.Dockerfile"):
        found = spawn("--stdin", *words, name, folder=tmp_path, stdin=text).document(SCHEMA)
        assert found["observed"]["torch_version"] == "2.6.0"
        assert found["subject"]["name"] == name.removeprefix("./")
    listed = spawn("-", *words, "docker/requirements.txt", folder=tmp_path, stdin=b"torch\n")
    assert "packages-unpinned-torch" in listed.out and (tmp_path / "docker/Dockerfile").read_text() == "FROM old:1\n"
    assert spawn("--stdin", "--fail-on", "warning", folder=tmp_path, stdin=MIXED.encode()).code == 1


def test_what_does_not_go_with_a_file_on_stdin_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": CLEAN})
    for words in (("Dockerfile",), ("--fix",), ("--since", "HEAD"), ("--start", "compose.yaml")):
        found = spawn("--stdin-filename", "a.Dockerfile", *words, folder=tmp_path, stdin=CLEAN.encode())
        assert found.code == 2 and "stdin" in found.err


def test_the_context_is_the_files_folder_or_the_one_named(envkit: Envkit, tmp_path: Path) -> None:
    text = "FROM python:3.12-slim-bookworm\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\n"
    lay(tmp_path, {"docker/Dockerfile": text, "requirements.txt": "torch==2.6.0\n"})
    words = ("--format", "json", "--observed", "docker/Dockerfile")
    assert envkit(*words).document(SCHEMA)["observed"]["torch_version"] is None
    found = envkit("--context", ".", *words).document(SCHEMA)["observed"]
    assert found["torch_version"] == "2.6.0"
    assert "requirements.txt:1" in found["origins"]["torch_version"]


def test_only_asks_one_check(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": MIXED})
    found = envkit("--only", MAJOR, "--format", "json", "Dockerfile")
    assert [each["check"] for each in found.document(SCHEMA)["results"]] == [MAJOR]


def test_list_names_every_check_with_its_title(envkit: Envkit) -> None:
    found = envkit("--list")
    lines = found.out.splitlines()
    assert found.code == 0
    assert [line.split()[0] for line in lines] == sorted(check.checks())
    assert all(len(line.split()) > 3 for line in lines)


def test_gpu_and_driver_are_what_it_must_run_on(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": CLEAN})
    found = envkit("--gpu", "RTX 5090", "--driver", "470", "Dockerfile")
    assert found.code == 1
    assert "error[gpu-arch-not-covered]" in found.out
    assert "error[driver-too-old]" in found.out


# ---------------------------------------------------------------- what it prints


def test_observed_is_the_contract(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": MIXED})
    observed = envkit("--observed", "--format", "json", "Dockerfile").document(SCHEMA)["observed"]
    assert set(observed) == {*FIELDS, "origins"}
    assert {name: observed[name] for name in FIELDS} == {
        "base_image": "nvidia/cuda:11.8.0-base-ubuntu22.04",
        "base_cuda": "11.8.0",
        "base_cudnn": None,
        "base_flavor": "base",
        "base_os": "ubuntu22.04",
        "torch_version": "2.6.0",
        "torch_cuda": "12.4",
        "python_version": "3.10",
        "torch_install_method": "pip",
    }
    assert set(observed["origins"]) == set(FIELDS)
    assert all(isinstance(said, str) and said for said in observed["origins"].values())


def test_observed_is_left_out_unless_it_was_asked_for(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": MIXED})
    assert "observed" not in envkit("--format", "json", "Dockerfile").document(SCHEMA)


def test_json_says_the_same_as_the_exit_code(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"a/Dockerfile": PRIVATE, "b/Dockerfile": MIXED, "c/Dockerfile": CLEAN, "d/Dockerfile": "\0"})
    words = {0: "pass", 1: "fail", 2: "undecided", 3: "undecided"}
    for names in ("a", "b", "c", "ab", "bc", "ac", "cd", "bd"):
        for severity in ("note", "warning", "error"):
            found = envkit("--format", "json", "--fail-on", severity, *names)
            assert found.document(SCHEMA)["verdict"] == words[found.code], (names, severity)


def test_a_finding_in_json_says_where(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": MIXED})
    (result,) = envkit("--only", MAJOR, "--format", "json", "Dockerfile").document(SCHEMA)["results"]
    (finding,) = result["findings"]
    assert (finding["severity"], finding["where"]) == ("warning", "Dockerfile:3")
    assert finding["evidence"]
    assert finding["fix"]


@pytest.mark.parametrize("format", check.FORMATS)
def test_every_format_names_the_finding(envkit: Envkit, tmp_path: Path, format: str) -> None:
    lay(tmp_path, {"Dockerfile": MIXED})
    found = envkit("--format", format, "--fail-on", "warning", "Dockerfile")
    assert found.code == 1
    assert MAJOR in found.out
    assert found.out.endswith("\n")
    assert found.err == ""
    if format in ("json", "sarif", "gitlab"):
        json.loads(found.out)
    if format == "junit":
        assert ElementTree.fromstring(found.out).find(".//failure") is not None
    if format == "github":
        assert re.search(rf"^::warning file=Dockerfile,line=3,.*title={MAJOR}::", found.out, re.M)


@pytest.mark.parametrize("format", check.FORMATS)
def test_every_format_tells_of_an_unreadable_file_on_stderr(envkit: Envkit, tmp_path: Path, format: str) -> None:
    lay(tmp_path, {"Dockerfile": "\0", "b/Dockerfile": CLEAN})
    found = envkit("--format", format, ".")
    assert found.code == 2
    assert found.err == "envkit: Dockerfile cannot be read: it is no text, it holds zero bytes\n"


def test_secrets_of_a_file_are_in_no_format(envkit: Envkit, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    lay(tmp_path, {"Dockerfile": f"FROM ubuntu\nARG GITHUB_TOKEN={token}\nENV A=1\n"})
    for format in check.FORMATS:
        found = envkit("--format", format, "--observed", "Dockerfile")
        assert token not in found.out + found.err, format


@pytest.mark.parametrize(
    ("environment", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colors_only_at_a_terminal_that_wants_them(tmp_path: Path, environment: dict[str, str], colored: bool) -> None:
    lay(tmp_path, {"Dockerfile": MIXED})
    assert "\x1b[" not in spawn("Dockerfile", folder=tmp_path, **environment).out
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "check", "--only", MAJOR, "Dockerfile"],
        cwd=tmp_path,
        stdout=theirs,
        env={**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment},
    )
    os.close(theirs)
    said = b""
    with suppress(OSError):  # a terminal whose other end is closed says so by an error
        while piece := os.read(ours, 4096):
            said += piece
    os.close(ours)
    assert process.wait(120) == 0
    assert MAJOR.encode() in said
    assert (b"\x1b[" in said) is colored


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    lay(tmp_path, {f"{number}/Dockerfile": MIXED for number in range(40)})
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "check", "."],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout and process.stderr
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(120) in (0, 3)


def test_all_processes_end_with_it(tmp_path: Path) -> None:
    """Ctrl-C ends the whole group."""
    lay(tmp_path, {f"{number}/Dockerfile": MIXED * 20 for number in range(200)})
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "check", "."],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert comes(lambda: children(process.pid)), "it works alone"
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr
    said = process.stderr.read().decode()
    assert process.wait(120) in (0, 130)
    assert "Traceback" not in said

    def is_gone() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    assert comes(is_gone), "some of its processes live on"


# ---------------------------------------------------------------- settings, comments, baselines


def test_the_nearest_settings_count_up_to_the_repository(
    envkit: Envkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, {"sub/deep/Dockerfile": MIXED, "envkit.toml": f'[check.severity]\n{MAJOR} = "error"\n'})
    monkeypatch.chdir(tmp_path / "sub" / "deep")
    assert envkit("Dockerfile").code == 1
    (tmp_path / "sub" / ".git").mkdir()
    assert envkit("Dockerfile").code == 0, "what lies above the repository is not its own"
    assert envkit("--config", "../../envkit.toml", "Dockerfile").code == 1
    lay(tmp_path, {"sub/envkit.toml": f'[check.severity]\n{MAJOR} = "off"\n'})
    assert f"turned off in {tmp_path}/sub/envkit.toml" in envkit("--format", "json", "Dockerfile").out


def test_a_spec_without_the_table_is_nobodys_settings(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": CLEAN, "envkit.toml": "this is no toml"})
    assert envkit("Dockerfile").code == 0


def test_a_saved_machine_is_what_it_must_run_on(envkit: Envkit, tmp_path: Path) -> None:
    """A GeForce of driver 550, for which an image of CUDA 12.6 does not start; a settings file that names other GPUs
    does not count beside the machine."""
    desk = machines.host("desk", {"nvml.driver": "550.54.15"})
    (tmp_path / "desk.json").write_text(saved.text("host", to_plain(desk)))
    (tmp_path / "bare.json").write_text(saved.text("host", to_plain(machines.host("bare"))))
    lay(tmp_path, {"Dockerfile": "FROM nvidia/cuda:12.6.3-base-ubuntu22.04\nRUN true\n"})
    lay(tmp_path, {"envkit.toml": '[check]\ngpus = ["H100"]\ndriver = "580"\n'})
    assert envkit("Dockerfile").code == 0
    ended = envkit("--host", "desk.json", "Dockerfile")
    assert ended.code == 1 and "GeForce RTX 4090 is none" in ended.out, ended
    for words, said in (
        (("--host", "desk.json", "--gpu", "H100"), "--host already names the GPUs and the driver"),
        (("--host", "desk.json", "--driver", "550"), "--host already names the GPUs and the driver"),
        (("--host", "bare.json"), "no NVIDIA GPU was found"),
        (("--host", "gone.json"), "gone.json"),
        (("--host", "Dockerfile"), "Dockerfile"),
    ):
        ended = envkit(*words, "Dockerfile")
        assert (ended.code, ended.out) == (2, "") and said in ended.err and "fix:" in ended.err, ended


_FLEET = """
[[machine]]
name = "a1"
gpus = ["RTX 4090"]
driver = "535"
[[machine]]
name = "a2"
gpus = ["RTX 4090"]
driver = "535"
[[machine]]
name = "b"
gpus = ["H100"]
driver = "580"
[[machine]]
name = "c"
host = "desk.json"
"""


def test_a_fleet_is_what_it_must_run_on(envkit: Envkit, tmp_path: Path) -> None:
    """A finding says on which machines it holds, those of one kind together; what holds without a machine is said once,
    and a fleet on which all runs changes nothing."""
    desk = machines.host("desk", {"nvml.driver": "550.54.15"})
    (tmp_path / "desk.json").write_text(saved.text("host", to_plain(desk)))
    lay(tmp_path, {"Dockerfile": "FROM nvidia/cuda:12.6.3-base-ubuntu22.04\nRUN apt-get install -y curl\n"})
    lay(tmp_path, {"all.toml": _FLEET, "new.toml": '[[machine]]\nname = "b"\ngpus = ["H100"]\ndriver = "580"\n'})
    ended = envkit("--fleet", "all.toml", "Dockerfile")
    assert ended.code == 1, ended
    assert "on a1, a2: nvidia/cuda:12.6.3-base-ubuntu22.04 starts on driver 535" in ended.out
    assert "on c: nvidia/cuda:12.6.3-base-ubuntu22.04 starts on driver 550" in ended.out
    assert "on b" not in ended.out and ended.out.count("apt-lists-left") == 1
    assert envkit("--fleet", "new.toml", "Dockerfile").code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "machine"),
        ("[[machine]", "no TOML"),
        ("machine = []", "names no machine"),
        ('[[machine]]\nname = "a"', "neither a host nor GPUs"),
        ('[[machine]]\nname = "a"\ngpus = ["H100"]\nhost = "a.json"', "both a host and GPUs"),
        ('[[machine]]\nname = "a"\ngpus = ["Voodoo 3"]', "Voodoo 3"),
        ('[[machine]]\nname = "a"\ndriver = "newest"', "no driver version"),
        ('[[machine]]\nname = "a"\ndriver = 550', "driver"),
        ('[[machine]]\nname = "a"\nhost = "gone.json"', "gone.json"),
        ('[[machine]]\nname = "a"\nhots = "gone.json"', "unknown key"),
    ],
)
def test_a_file_that_is_no_fleet_is_refused(envkit: Envkit, tmp_path: Path, text: str, said: str) -> None:
    lay(tmp_path, {"Dockerfile": CLEAN, "fleet.toml": text})
    ended = envkit("--fleet", "fleet.toml", "Dockerfile")
    assert (ended.code, ended.out) == (2, "") and said in ended.err and "fix:" in ended.err, ended


def test_a_fleet_stands_alone(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": CLEAN, "fleet.toml": _FLEET})
    for words in (("--gpu", "H100"), ("--driver", "550"), ("--host", "desk.json")):
        ended = envkit("--fleet", "fleet.toml", *words, "Dockerfile")
        assert ended.code == 2 and "--fleet already names the machines" in ended.err
    assert "gone.toml" in envkit("--fleet", "gone.toml", "Dockerfile").err


def test_settings_say_what_must_run_and_what_fails(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"Dockerfile": CLEAN, "envkit.toml": '[check]\ngpus = ["RTX 5090"]\ndriver = "470"\n'})
    assert {"error[gpu-arch-not-covered]", "error[driver-too-old]"} <= set(
        re.findall(r"error\[[\w-]+\]", envkit("Dockerfile").out)
    )
    lay(tmp_path, {"Dockerfile": MIXED, "envkit.toml": '[check]\nfail-on = "warning"\n'})
    assert envkit("Dockerfile").code == 1
    assert envkit("--fail-on", "error", "Dockerfile").code == 0


def test_settings_know_a_private_base(envkit: Envkit, tmp_path: Path) -> None:
    held = 'cuda = "11.8"\nflavor = "base"\nos = "ubuntu22.04"\npython = "3.11"\n'
    told = f'[check.base."registry.example/team/base:7"]\n{held}'
    lay(tmp_path, {"Dockerfile": PRIVATE, "envkit.toml": told})
    found = envkit("--only", MAJOR, "--observed", "--format", "json", "--fail-on", "warning", "Dockerfile")
    assert found.code == 1
    assert found.document(SCHEMA)["observed"]["base_cuda"] == "11.8"
    assert found.document(SCHEMA)["observed"]["origins"]["base_cuda"].endswith("envkit.toml")


def test_comments_take_findings_away_and_unknown_names_are_told(envkit: Envkit, tmp_path: Path) -> None:
    text = MIXED.replace("RUN pip", f"# envkit ignore={MAJOR},nosuch\nRUN pip")
    lay(tmp_path, {"Dockerfile": text})
    found = envkit("--fail-on", "warning", "Dockerfile")
    assert found.code == 0
    assert found.err == "envkit: Dockerfile:3: there is no check `nosuch` to ignore\n"
    assert "ignored by line 3" in envkit("--format", "json", "Dockerfile").out


def test_a_comment_in_the_requirements_file_counts_there(envkit: Envkit, tmp_path: Path) -> None:
    text = MIXED.replace("RUN pip install --no-cache-dir torch==2.6.0", "COPY r.txt .\nRUN pip install -r r.txt")
    lay(tmp_path, {"Dockerfile": text, "r.txt": "torch==2.6.0\n"})
    assert "  --> r.txt:1:1, by way of Dockerfile\n" in envkit("--only", MAJOR, "Dockerfile").out
    lay(tmp_path, {"r.txt": f"torch==2.6.0  # envkit ignore={MAJOR}\n"})
    assert "ignored by line 1 of r.txt" in envkit("--only", MAJOR, "--format", "json", "Dockerfile").out


def test_a_baseline_lets_only_new_findings_count(envkit: Envkit, tmp_path: Path) -> None:
    lay(tmp_path, {"a/Dockerfile": MIXED})
    words = ("--only", MAJOR, "--only", "unpinned-base", "--fail-on", "warning")
    found = envkit(*words, "--write-baseline", "known.json", ".")
    assert (found.code, found.err) == (0, "wrote known.json: 1 finding\n")
    assert envkit(*words, "--baseline", "known.json", ".").code == 0
    lay(tmp_path, {"a/Dockerfile": "# grown\n" + MIXED, "b/Dockerfile": MIXED})
    found = envkit(*words, "--baseline", "known.json", ".")
    assert found.code == 1
    assert found.out.count(f"warning[{MAJOR}]") == 1
    assert "b/Dockerfile:3:32" in found.out


# ---------------------------------------------------------------- bad input


def bomb() -> str:
    return "FROM ubuntu:24.04\nARG a=" + "${a:-" * 10_000 + "x" + "}" * 10_000 + "\nRUN echo $a\n"


def doubling() -> str:
    lines = [f"ARG A{n}=${{A{n - 1}}}${{A{n - 1}}}" for n in range(1, 64)]
    return "\n".join(["ARG A0=ubuntu", *lines, "FROM $A63", "ENV X=$A63", ""])


HARD = {
    "nested": bomb(),
    "doubling": doubling(),
    "one long line": "FROM ubuntu:24.04\nENV TOKEN=" + "x a=b " * 600_000,
    "many lines": "FROM ubuntu:24.04\n" + "# c\n" * 500_000,
    "quotes": "FROM ubuntu:24.04\nRUN " + "'\"" * 50_000 + "\n",
    "parentheses": "FROM ubuntu:24.04\nRUN " + "(" * 50_000 + "\n",
    "substitutions": "FROM ubuntu:24.04\nRUN " + "$(" * 20_000 + "\n",
    "heredocs": "FROM ubuntu:24.04\nRUN " + "<<A " * 5_000 + "\n",
    "stages": "".join(f"FROM ubuntu:24.04 AS s{n}\n" for n in range(2_000)),
    "many commands": "FROM ubuntu:24.04\n" + "RUN pip install torch\n" * 2_000,
    "nothing": "",
    "no FROM": "RUN true\n",
    "no UTF-8": "FROM ubuntu:24.04\nRUN echo \udcff\udcfe\n",
    "escapes": "FROM \x1b]0;owned\x07\u202e:1\n",
    "an outside context": "FROM python:3.12-slim\nCOPY ../../../etc/passwd /x\nRUN pip install -r /a/../etc/passwd\n",
}
REFUSED = ("one long line", "quotes")  # BuildKit takes no line over 64 KiB
HARD_S = 5.0  # a process that takes a second on a quiet machine


@pytest.mark.parametrize("name", ["nothing", "no FROM"])
def test_no_check_crashes_on_a_file_without_a_stage(envkit: Envkit, tmp_path: Path, name: str) -> None:
    lay(tmp_path, {"Dockerfile": HARD[name]})
    assert {each["outcome"] for each in envkit("--format", "json", "Dockerfile").document(SCHEMA)["results"]} == {
        "skip"
    }


@pytest.mark.slow  # half of what this file takes: a process each, which works until a bound stops it
@pytest.mark.parametrize("name", HARD)
def test_a_hard_file_takes_bounded_time_and_memory_and_is_no_crash(tmp_path: Path, name: str) -> None:
    (tmp_path / "Dockerfile").write_bytes(HARD[name].encode("utf-8", "surrogateescape"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    found = spawn("--observed", "--format", "json", "Dockerfile", folder=tmp_path)
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert found.code in ((2,) if name in REFUSED else (0, 1, 3)), found.err
    assert "Traceback" not in found.err
    assert '"crashed"' not in found.out
    assert took < HARD_S
    found.document(SCHEMA)
    shown = spawn("Dockerfile", folder=tmp_path)
    assert not set(shown.out + shown.err) & set("\x1b\x07\u202e")


def test_files_that_include_themselves_and_one_another(envkit: Envkit, tmp_path: Path) -> None:
    text = "FROM python:3.12-slim-bookworm\nCOPY . /a\nRUN pip install --no-cache-dir -r /a/r.txt\n"
    lay(tmp_path, {"Dockerfile": text, "r.txt": "-r s.txt\ntorch==2.6.0\n", "s.txt": "-r r.txt\n-r s.txt\n"})
    observed = envkit("--observed", "--format", "json", "Dockerfile").document(SCHEMA)["observed"]
    assert observed["torch_version"] == "2.6.0"
    lay(tmp_path, {"requirements.txt": "-r requirements.txt\ntorch==2.6.0\n"})
    assert envkit("requirements.txt").code in (0, 3)


def test_links_that_leave_the_context_are_not_followed(envkit: Envkit, tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "secret.txt": "torch==9.9.9\n",
            "c/Dockerfile": "FROM python:3.12-slim-bookworm\nCOPY r.txt .\nRUN pip install -r r.txt\n",
        },
    )
    (tmp_path / "c" / "r.txt").symlink_to("../secret.txt")
    found = envkit("--observed", "--format", "json", "c/Dockerfile")
    assert "9.9.9" not in found.out
    assert found.document(SCHEMA)["observed"]["torch_version"] is None


@pytest.mark.parametrize(
    "data", [os.urandom(50_000) + b"\0", b"FROM a\n" + b"x" * 100_000_000], ids=["binary", "100 MB"]
)
def test_what_no_dockerfile_is_ends_with_2_at_once(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "Dockerfile").write_bytes(data)
    with costs_less(HARD_S):
        found = spawn("Dockerfile", folder=tmp_path)
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert found.err.startswith("envkit: Dockerfile cannot be read: it ")
