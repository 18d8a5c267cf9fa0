"""``envkit explain`` as a person meets it: what is read, what is refused, what is printed, and the exit codes."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import explained as made
import jsonschema
import pytest
from clocks import comes
from gathered import gathered
from inline import Ended, Envkit

from envkit.doctor import anonymize
from envkit.errors import UsageError
from envkit.explain import as_text, explain, nodes
from envkit.explain.explain import ExplainRequest
from envkit.judging import judge, pages
from envkit.logs.knowledge import failures, signatures
from envkit.logs.records import CAUSES, Explanation, FileSeen, Mark, RankState, Role
from envkit.logs.story import Story
from envkit.model import Observed

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"
SCHEMA = json.loads((Path(as_text.__file__).parent / "explain-1.schema.json").read_text())

FAULT = """\
epoch 1 begins
Traceback (most recent call last):
  File "/home/ada/run/train.py", line 40, in <module>
    loss = step(batch)
  File "/home/ada/run/kernels.py", line 12, in step
    out = gather_rows(table, index)
RuntimeError: CUDA error: an illegal memory access was encountered
"""
CALM = "epoch 1 begins\nepoch 1 took 3.2 s\nsaved the model\n"


def document(envkit: Envkit, *words: object) -> Any:
    """What it prints as JSON, held to the schema."""
    ended = envkit(*words, "--format", "json")
    found = ended.document(SCHEMA)
    assert ended.code == (1 if explain_known(found) else 3)
    return found


def explain_known(found: Any) -> bool:
    return found["category"] != "insufficient-evidence" and not found["cause_class"].startswith("unknown")


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str]) -> Iterator[Envkit]:
    with Envkit(capsys, "explain") as run:
        yield run


@pytest.fixture
def fault(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_text(FAULT)
    return path


def refused(ended: Ended) -> str:
    """The one sentence of a refusal."""
    assert ended.code == 2, ended.err
    assert ended.out == ""
    (first,) = [line for line in ended.err.splitlines() if line.startswith("envkit: ")]
    assert not first.endswith(".")
    assert "\n  fix: " in ended.err
    return first.removeprefix("envkit: ")


# Answers.


def test_a_log_is_explained_in_words_with_its_lines(envkit: Envkit, fault: Path) -> None:
    ended = envkit(fault)
    assert ended.code == 1
    assert ended.out.startswith("FOUND: ")
    assert f"{fault}:7: root" in ended.out
    assert "    | RuntimeError: CUDA error: an illegal memory access was encountered" in ended.out
    assert re.search(r"(?m)^fix: ", ended.out)
    assert re.search(r"(?m)^next: ", ended.out)
    assert "page:      envkit explain illegal-memory-access" in ended.out
    assert ended.err == ""


def test_the_document_says_the_same_and_is_the_same_twice(envkit: Envkit, fault: Path) -> None:
    found = document(envkit, fault)
    assert found["category"] == "illegal-memory-access"
    root = found["evidence"][0]
    assert (root["file"], root["line"], root["role"]) == (str(fault), 7, "root")
    assert "illegal memory access" in root["text"]
    assert found["files"] == [
        {"name": str(fault), "lines": 7, "bytes": len(FAULT), "binary": False, "cut": ""},
    ]
    assert envkit("--format", "json", fault).out == envkit("--format", "json", fault).out


def test_a_log_that_tells_of_no_failure_proves_nothing(envkit: Envkit, tmp_path: Path) -> None:
    calm = tmp_path / "calm.log"
    calm.write_text(CALM)
    ended = envkit(calm)
    assert ended.code == 3
    assert ended.out.startswith("UNDECIDED: ")
    assert document(envkit, calm)["category"] == "insufficient-evidence"


def test_an_empty_log_is_said_to_be_empty(envkit: Envkit, tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.write_text("")
    assert envkit(empty).code == 3
    assert document(envkit, empty)["because"] == f"{empty} is empty"
    assert document(envkit, empty)["evidence"] == []


def test_stdin_is_a_log(envkit: Envkit) -> None:
    found = explain.answer(ExplainRequest(("-",)), print, io.BytesIO(FAULT.encode()))
    assert found.category == "illegal-memory-access"
    assert found.evidence[0].line.place == "stdin:7"


def test_a_piped_log_needs_no_argument() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "explain"], input=FAULT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stderr
    assert "stdin:7: root" in done.stdout


def test_a_shells_pipe_by_name_is_read(fault: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m envkit explain <(cat {fault})"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stderr


def test_a_file_named_twice_is_read_once(envkit: Envkit, fault: Path) -> None:
    again = fault.parent / "again.log"
    os.link(fault, again)
    assert len(document(envkit, fault, fault, again)["files"]) == 1
    other = fault.parent / "other.log"
    other.write_text("one more\n")
    assert [file["name"] for file in document(envkit, fault, fault, other)["files"]] == [str(fault), str(other)]


def test_the_kernels_log_is_read_as_the_kernels(envkit: Envkit, fault: Path, tmp_path: Path) -> None:
    kernel = tmp_path / "dmesg.txt"
    kernel.write_text(
        "[ 1203.441202] NVRM: Xid (PCI:0000:65:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000. "
        "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1e_40000000. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n"
    )
    found = document(envkit, fault, "--kernel-log", kernel)
    assert {mark["source"] for mark in found["timeline"] if mark["file"] == str(kernel)} == {"kernel"}
    assert {mark["source"] for mark in found["timeline"] if mark["file"] == str(fault)} == {"program"}
    assert envkit("--kernel-log", kernel).code in (1, 3)  # alone it is a log like any other
    # a console writes no clock, and only the option says whose line it is
    kernel.write_text("NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.\n")
    found = document(envkit, fault, "--kernel-log", kernel)
    assert {mark["source"] for mark in found["timeline"] if mark["file"] == str(kernel)} == {"kernel"}


def test_a_rank_can_be_said_of_a_file(envkit: Envkit, fault: Path) -> None:
    found = document(envkit, "--rank", f"3={fault}")
    assert {mark["rank"] for mark in found["timeline"]} == {3}


@pytest.mark.parametrize("word", ["3", "=x", "a=x", "-1=x", "3="])
def test_a_rank_without_a_file_is_refused(envkit: Envkit, word: str) -> None:
    assert "names no rank and its file" in refused(envkit("--rank", word))


def test_two_ranks_of_one_file_are_refused(envkit: Envkit, fault: Path) -> None:
    assert refused(envkit("--rank", f"1={fault}", "--rank", f"2={fault}")).endswith("of rank 1 and of rank 2")
    assert envkit("--rank", f"1={fault}", "--rank", f"1={fault}").code == 1
    assert "names no rank and its file" in refused(envkit("--rank", f"12345678={fault}"))


def test_a_fifo_is_read(envkit: Envkit, tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with subprocess.Popen(["bash", "-c", f"printf %s {shlex.quote(FAULT)} > {fifo}"]):
        assert envkit(fifo).code == 1


def dump(rank: int, done: int) -> str:
    """A flight recorder's file of a rank that issued four collectives and completed ``done``."""
    entries = [
        {
            "collective_seq_id": seq,
            "is_p2p": False,
            "process_group": ["0", "default_pg"],
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[8]],
            "output_sizes": [[8]],
            "state": "completed" if seq <= done else "scheduled",
            "frames": [{"name": "step", "filename": "train.py", "line": 7}],
        }
        for seq in range(1, 5 if rank != 1 else 4)
    ]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return json.dumps({"version": "2.5", "rank": rank, "pg_config": config, "pg_status": {}, "entries": entries})


def test_the_flight_recorders_files_make_the_table_of_ranks(envkit: Envkit, fault: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"nccl_trace_rank_{rank}" for rank in range(3)]
    for rank, path in enumerate(paths):
        path.write_text(dump(rank, 3))
    found = document(envkit, *paths)
    assert [state["rank"] for state in found["ranks"]] == [0, 1, 2]
    assert {state["rank"]: state["completed"] for state in found["ranks"]} == {0: 3, 1: 3, 2: 3}
    assert found["category"] == "nccl-timeout-hang"
    assert len(document(envkit, fault, *paths)["files"]) == 4


def test_a_broken_flight_recorders_file_is_refused(envkit: Envkit, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_text(dump(0, 3)[:-40])
    assert "begins like a flight recorder's file and cannot be read" in refused(envkit(path))


def test_html_is_one_page(envkit: Envkit, fault: Path) -> None:
    ended = envkit(fault, "-f", "html")
    assert ended.code == 1
    assert ended.out.startswith("<!DOCTYPE html>") and ended.out.endswith("</html>\n")


# Refusals.


def test_what_is_no_log_is_refused_in_one_sentence(envkit: Envkit, fault: Path, tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 400)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert refused(envkit(tmp_path)) == f"{tmp_path} is a directory"
    assert refused(envkit(fault, tmp_path / "gone.log")) == f"there is no file {tmp_path}/gone.log"
    assert refused(envkit(tmp_path / "gone.log")) == f"there is no file {tmp_path}/gone.log"
    assert refused(envkit(tmp_path / "link")) == f"there is no file {tmp_path}/link"
    assert "a device or a socket has no end" in refused(envkit("/dev/zero"))
    assert refused(envkit(tmp_path / "core")) == f"{tmp_path}/core is binary, not a log"
    assert "there is no format `xml`" in refused(envkit(fault, "-f", "xml"))


def test_a_file_that_cannot_be_read_is_refused(envkit: Envkit) -> None:
    assert re.match(r"/proc/self/mem cannot be read: ", refused(envkit("/proc/self/mem")))


def test_binary_beside_a_log_is_told_and_does_not_hide_it(envkit: Envkit, fault: Path, tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 400)
    ended = envkit(fault, tmp_path / "core")
    assert ended.code == 1
    assert f"{tmp_path}/core holds bytes that are no text" in ended.err


def test_no_argument_at_a_terminal_is_refused() -> None:
    code = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn([sys.executable, *sys.argv[1:]])))"
    done = subprocess.run(
        [sys.executable, "-c", code, "-m", "envkit", "explain"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "there is nothing to explain" in done.stdout  # the terminal's, which shows stderr


def unread(pipe: IO[str]) -> int:
    """How many bytes of a pipe its reader has not taken."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_pipe_that_was_read_is_closed_once() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    stream = explain._Pipe(reading, "stdin", lambda line: None)
    assert stream.read() == b""
    stream.close()
    stream.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


def test_a_stop_while_it_waits_for_stdin_is_clean() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "explain", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    process.stdin.write(FAULT)
    process.stdin.flush()
    assert comes(lambda: process.poll() is not None or not unread(process.stdin))  # it has all, and waits for more
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert (out, err) == ("", "envkit: stopped by SIGINT\n")


def test_a_large_input_is_told_of_on_stderr() -> None:
    said: list[str] = []
    seconds = iter((0.0, 1.9, 2.1))  # as it begins, and at each word of what was read
    tell = explain._progress(200_000_000, said.append, lambda: next(seconds))
    assert tell is not None
    tell(1_000_000)
    assert said == []  # not yet
    tell(2_000_000)
    assert said == ["read 3 MB of text; the files have 200 MB"]
    assert explain._progress(1000, said.append) is None


# Pages.


def test_the_page_of_a_check_is_as_it_was(envkit: Envkit) -> None:
    ended = envkit("host-contract-gpus-mismatch")
    assert ended.code == 0
    assert ended.out == pages.told(pages.load("host-contract-gpus-mismatch"))


@gathered(sorted(failures()))
def test_every_failure_has_a_page(name: str) -> None:
    text = explain.page(name)
    found = failures()[name]
    assert text.startswith(f"{name}\n\n{found.title}\n")
    for cause, sentence in found.causes.items():
        assert cause in text and sentence in text
    for part in (*found.decide, *found.next, *found.fix.values(), found.source):
        assert part in text


def test_an_id_of_both_prints_both() -> None:
    both = set(failures()) & set(pages.names())
    assert both == {"driver-too-old"}
    text = explain.page("driver-too-old")
    assert pages.told(pages.load("driver-too-old")) in text
    assert pages.told_failure(failures()["driver-too-old"]) in text


def test_a_failure_of_several_codes_is_found_by_each(envkit: Envkit) -> None:
    for word in ("xid-63/64", "xid-63", "xid-64", "XID-64"):
        assert envkit(word).out.startswith("xid-63/64\n")
    for word in ("xid-119/120 GSP", "xid-119", "xid-120"):
        assert envkit(word).out.startswith("xid-119/120 GSP\n")
    assert envkit("xid-6").code == 2


def test_a_word_that_is_nothing_names_the_nearest(envkit: Envkit) -> None:
    ended = envkit("ilegal-memory-acess")
    assert refused(ended) == "`ilegal-memory-acess` is no file, no check and no kind of failure"
    assert "illegal-memory-access" in ended.err
    assert "host-contract-gpus-mismatch" in envkit("host-contract-gpus").err
    assert "name logs" in envkit("zzzzzzzzzz").err


def test_a_page_takes_no_inputs(envkit: Envkit, fault: Path) -> None:
    assert (
        refused(envkit("host-contract-gpus-mismatch", "--kernel-log", fault))
        == "there is no file host-contract-gpus-mismatch"
    )


# What was observed beside the log.


def saved(folder: Path, kind: str, plain: Any) -> Path:
    path = folder / f"{kind}.json"
    path.write_text(json.dumps({"schema": "envkit.subject/1", "kind": kind, "subject": plain}))
    return path


def image(name: str) -> Any:
    return json.loads((DATA / "image" / f"{name}.json").read_text())


def test_a_saved_image_gives_versions(envkit: Envkit, fault: Path, tmp_path: Path) -> None:
    path = saved(tmp_path, "image", image("torch-2.6-cu124"))
    found = document(envkit, fault, "--observations", path)
    assert found["versions"]["torch"].startswith("2.6.0")
    assert found["versions"]["cuda"] == "12.4"
    assert found["versions"]["nccl"] == "2.21.5"
    assert "torch" not in document(envkit, fault)["versions"]


def test_a_saved_machine_gives_its_driver_and_gpus(tmp_path: Path) -> None:
    import machines

    from envkit.subjects import codec

    given = explain.beside(saved(tmp_path, "host", codec.to_plain(machines.host("h100"))))
    assert given.values["gpu"] == "NVIDIA H100 80GB HBM3"
    assert re.fullmatch(r"\d{3}\.\d+\.\d+", given.values["driver"])
    assert given.values["arch"] == "sm_90"


def test_where_no_module_of_the_driver_is_seen_nvml_names_it(tmp_path: Path) -> None:
    import machines

    from envkit.subjects import codec

    whole = machines.host("h100")
    alone = replace(whole, module=Observed.lost("not here"))
    given = explain.beside(saved(tmp_path, "host", codec.to_plain(alone)))
    assert given.values["driver"] == whole.nvml.need("NVML").driver
    neither = replace(alone, nvml=Observed.lost("not here"))
    assert explain.beside(saved(tmp_path, "host", codec.to_plain(neither))).values == {}


def report(folder: Path, *findings: tuple[str, str], observed: Any = None) -> Path:
    results = [
        {
            "check": check,
            "outcome": "fail",
            "reason": "",
            "findings": [{"severity": "error", "message": message, "where": "", "evidence": {}, "fix": ""}],
        }
        for check, message in findings
    ]
    path = folder / "report.json"
    plain = {
        "schema": "envkit.report/1",
        "tool": {"name": "envkit", "version": "1"},
        "subject": {"kind": "image", "name": "x"},
        "verdict": "fail",
        "elapsed_s": 1.0,
        "results": results,
    }
    path.write_text(json.dumps({**plain, "observed": observed} if observed else plain))
    return path


def test_a_finding_of_a_report_is_the_runner_up_and_a_next_step(tmp_path: Path) -> None:
    path = report(tmp_path, ("image-cudart-mismatch", "torch binds another libcudart"))
    found = replace(made.explanation(), runner_up=None)
    mixed = explain._with_findings(found, explain.beside(path))
    assert mixed.runner_up and mixed.runner_up.cause == "library-path-clash"
    assert "torch binds another libcudart" in mixed.runner_up.because
    assert "envkit explain image-cudart-mismatch" in mixed.next
    assert (mixed.category, mixed.confidence) == (found.category, found.confidence)  # the log's answer stands
    kept = explain._with_findings(made.explanation(), explain.beside(path))
    assert kept.runner_up == made.explanation().runner_up


def test_a_finding_that_says_the_same_makes_it_surer(tmp_path: Path) -> None:
    path = report(tmp_path, ("image-arch-not-covered", "no code for sm_120"))
    found = replace(made.explanation(), category="no-kernel-image", cause="arch-unsupported", confidence=0.8)
    surer = explain._with_findings(found, explain.beside(path))
    assert surer.confidence == 0.9
    assert "image-arch-not-covered" in surer.because and "no code for sm_120" in surer.because
    sure = explain._with_findings(replace(found, confidence=0.9), explain.beside(path))
    assert sure.confidence == 0.95


def test_a_finding_that_means_nothing_here_changes_nothing(tmp_path: Path) -> None:
    path = report(tmp_path, ("host-clocksource-slow", "the clock is slow"))
    assert explain._with_findings(made.explanation(), explain.beside(path)) == made.explanation()


def test_findings_and_versions_of_a_report_reach_the_story(tmp_path: Path) -> None:
    path = report(tmp_path, ("image-cudart-mismatch", "m"), observed=image("torch-2.6-cu124"))
    told = explain.observed(explain.beside(path))
    assert told["finding:image-cudart-mismatch"] == "m"
    assert told["torch"].startswith("2.6.0")


def test_every_meaning_of_a_finding_names_what_exists() -> None:
    checks = judge.checks()
    for meant in explain.meanings().values():
        assert meant.check in checks
        assert meant.cause in CAUSES
        assert meant.category in failures()
        assert meant.cause in failures()[meant.category].causes, meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("[1]", "is neither a report"),
        ('{"schema": "envkit.report/2"}', "is neither a report"),
        ('{"schema": "envkit.report/1"}', "is no whole report"),
        ('{"schema": "envkit.subject/1", "kind": "image", "subject": 3}', "this is not a recorded image"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_a_file_that_is_no_report_is_refused(envkit: Envkit, fault: Path, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "with.json"
    path.write_text(text)
    assert said in refused(envkit(fault, "--observations", path))
    assert "cannot be read" in refused(envkit(fault, "--observations", tmp_path / "none.json"))


# Redaction and credentials.


def test_credentials_are_hidden_in_every_format(envkit: Envkit, tmp_path: Path) -> None:
    secret = "hf_" + "b" * 34
    path = tmp_path / "job.log"
    path.write_text(FAULT.replace("RuntimeError", f"HF_TOKEN={secret} RuntimeError"))
    for format in explain.FORMATS:
        assert secret not in envkit(path, "-f", format).out
    found = replace(made.explanation(), because=f"token={secret}", fix=f"login with {secret}")
    for text in (as_text.render(found), as_text.document(found)):
        assert secret not in text and "[hidden]" in text


def test_a_file_name_that_is_no_utf8_is_told_in_words_that_strict_readers_take() -> None:
    found = replace(made.explanation(), files=(FileSeen("run\udcff.log", 1, 2),))
    plain = json.loads(as_text.document(found))
    assert plain["files"][0]["name"] == "run\\udcff.log"
    jsonschema.validate(plain, SCHEMA)


def test_redact_takes_people_and_machines_out_and_keeps_the_rest_apart() -> None:
    told = [
        "ada@gpu-node-7:~/run$ python train.py",
        "gpu-node-7 and gpu-node-8.cluster.lan cannot meet at 10.11.12.13, only at 10.11.12.14",
        'File "/home/ada/run/train.py", line 3, owner ada@lab.org',
        "GPU-5d1f0c6e-1111-2222-3333-444455556666 Serial Number   : 1563221012345",
        "MASTER_ADDR=trainer7 and trainer7 is silent",
    ]
    hidden = anonymize.words({"text": told, "role": "root"}, ["gpu-node-7", "gpu-node-8"])
    text = "\n".join(hidden["text"])
    for word in ("ada", "gpu-node", "cluster.lan", "10.11.12", "5d1f0c6e", "1563221012345", "lab.org", "trainer7"):
        assert word not in text, text
    assert "192.0.2.1" in text and "192.0.2.2" in text  # two addresses stay two
    assert text.count("host-1") == 2
    assert "line 3" in text and "/run/train.py" in text and hidden["role"] == "root"


def test_a_person_that_only_a_prompt_names_goes_too() -> None:
    hidden = anonymize.words({"text": ["grace@node-a:~/run$ python train.py", "wrote /data/grace/run"]}, [])
    assert hidden["text"] == ["user@host-1:~/run$ python train.py", "wrote /data/user/run"]


def test_a_machines_name_goes_with_its_whole_domain() -> None:
    """Also where a part of that begins with a digit, so that the first name alone would leave it standing."""
    hidden = anonymize.words({"text": "node17.3d-lab.org is silent"}, ["node17.3d-lab.org"])
    assert hidden == {"text": "host-1 is silent"}


def test_redact_on_the_command_line(envkit: Envkit, fault: Path) -> None:
    plain, hidden = document(envkit, fault), document(envkit, fault, "--redact")
    assert hidden["category"] == plain["category"]
    assert "ada" not in json.dumps([hidden["evidence"], hidden["because"]])
    assert hidden["evidence"][0]["line"] == 7


def test_a_user_named_like_a_word_of_envkits_breaks_nothing() -> None:
    short = anonymize.words({"text": "login17 is silent, 10.9 GB"}, ["login17.cluster.org", "10.1.2.3"])
    assert "login17" not in short["text"] and short["text"].endswith("is silent, 10.9 GB")
    hidden = anonymize.words({"role": "cascade", "text": "/home/cascade/x"}, [])
    assert hidden == {"role": "cascade", "text": "/home/user/x"}


# What is printed.


def test_a_terminal_gets_no_control_characters_from_a_log() -> None:
    bad = replace(made.ROOT, text="\x1b[2J\x07boom\u202e", raw="\x1b[2J\x07boom\u202e", file="a\x1bb.log")
    mark = Mark(bad, Role.ROOT, "x")
    found = replace(
        made.explanation(), evidence=(mark,), timeline=(mark, mark), because="a\x1bb", ranks=(RankState(0, "\x1b"),)
    )
    text = as_text.render(found)
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert "\\x1b[2J" in text


def test_colour_repeats_what_the_words_say() -> None:
    plain, painted = as_text.render(made.explanation()), as_text.render(made.explanation(), color=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == plain


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_lines_keep_to_the_width(width: int) -> None:
    long = replace(made.ROOT, raw="word " * 500, text="word " * 500)
    found = replace(made.explanation(), evidence=(Mark(long, Role.ROOT, ""),), because="because of this " * 20)
    assert max(map(len, as_text.render(found, width=width).splitlines())) <= max(width, 60)


def test_an_option_or_a_path_of_a_line_is_not_broken_at_its_hyphens() -> None:
    words = [f"--an-option-{number}=a-b-c" for number in range(20)]
    line = replace(made.ROOT, raw=" ".join(words), text=" ".join(words))
    text = as_text.render(replace(made.explanation(), evidence=(Mark(line, Role.ROOT, ""),)), width=70)
    quoted = [row.removeprefix("    | ").split() for row in text.splitlines() if row.startswith("    | ")]
    assert len(quoted) > 2 and {word for row in quoted for word in row} <= {*words, "..."}


def test_a_long_line_is_cut_around_what_the_program_said() -> None:
    said = "CUDA error: an illegal memory access was encountered"
    long = replace(made.ROOT, raw=f'{{"blob": "{"x" * 3000}", "log": "{said}"}}', text=said)
    text = as_text.render(replace(made.explanation(), evidence=(Mark(long, Role.ROOT, ""),)))
    assert said in text.replace("\n    | ", "")
    assert len(text) < 4000


def test_the_timeline_is_as_long_as_asked_and_keeps_the_root() -> None:
    found = made.many(4, 100)
    text = as_text.render(found, most=5)
    assert "timeline (5 of 101 lines)" in text and "the root of it" in text
    assert "timeline" not in as_text.render(found, most=0)
    assert len(json.loads(as_text.document(found))["timeline"]) == 101
    assert len(json.loads(as_text.document(found, 5))["timeline"]) == 5


def test_the_silent_rank_is_named_and_the_others_share_a_row() -> None:
    text = as_text.render(made.many(64, 2))
    assert re.search(r"(?m)^  0-4, 6-63 +0 +9 +8 +ALLREDUCE$", text)
    assert re.search(r"(?m)^  5 +0 +8 +8 +ALLREDUCE +silent$", text)


def test_very_many_different_ranks_leave_the_silent_one_in() -> None:
    states = tuple(RankState(rank, "0", rank, rank, "X", "", rank == 700) for rank in range(1000))
    shown, left_out = as_text.rows(states)
    assert len(shown) == 64 and left_out == 936
    assert [row.ranks for row in shown if row.silent] == ["700"]


def documents() -> list[Explanation]:
    one = made.explanation()
    return [one, replace(one, runner_up=None, ranks=(), timeline=(), evidence=(), files=(), versions={})]


@pytest.mark.parametrize("found", documents())
def test_a_document_is_of_the_schema(found: Explanation) -> None:
    plain = json.loads(as_text.document(found))
    jsonschema.validate(plain, SCHEMA)
    assert plain["category"] == found.category and plain["cause_class"] == found.cause
    assert (plain["runner_up"] is None) == (found.runner_up is None)


@pytest.mark.parametrize(
    "broken",
    [{"cause_class": "bad luck"}, {"confidence": 1.5}, {"more": 1}, {"evidence": [{"file": "x"}]}, {"next": 3}],
)
def test_the_schema_refuses_another_shape(broken: dict[str, Any]) -> None:
    plain = {**json.loads(as_text.document(made.explanation())), **broken}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain, SCHEMA)


def undescribed(node: Any, path: str = "") -> Iterator[str]:
    """The fields of a schema, at any depth, that say nothing of themselves."""
    if isinstance(node, dict):
        for name, inner in node.get("properties", {}).items():
            if not inner.get("description"):
                yield f"{path}/{name}"
        for key, inner in node.items():
            yield from undescribed(inner, f"{path}/{key}")
    elif isinstance(node, list):
        for inner in node:
            yield from undescribed(inner, path)


def test_every_field_of_the_schema_is_described() -> None:
    assert list(undescribed(SCHEMA)) == []
    assert list(undescribed({"properties": {"x": {}}})) == ["/x"]


def test_a_file_name_that_is_no_text_makes_a_document() -> None:
    odd = replace(made.ROOT, file="a\udcffb.log")
    found = replace(made.explanation(), evidence=(Mark(odd, Role.ROOT, ""),))
    jsonschema.validate(json.loads(as_text.document(found)), SCHEMA)


@pytest.mark.parametrize(
    ("category", "cause", "code"),
    [
        ("out-of-memory", "gpu-memory-exhausted", 1),
        ("not-gpu-env", "program-bug", 1),
        ("insufficient-evidence", "unknown-cut-log", 3),
        ("nccl-timeout-hang", "unknown", 3),
        ("nccl-timeout-hang", "unknown-cut-log", 3),
    ],
)
def test_only_a_cause_is_a_finding(category: str, cause: str, code: int) -> None:
    found = replace(made.explanation(), category=category, cause=cause)
    assert explain.exit_code(found) == code
    assert as_text.render(found).startswith("FOUND" if code == 1 else "UNDECIDED")


def test_it_starts_fast(fault: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "envkit", "explain", str(fault)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    loaded = set(re.findall(r"\| +(\S+)$", done.stderr, re.MULTILINE))
    assert "envkit.logs.reader" in loaded
    assert (
        not {"jinja2", "rich.console", "docker", "pynvml", "envkit.subjects.host", "envkit.judging.checks.image"}
        & loaded
    )


def test_every_pattern_compiles_and_needs_its_anchor() -> None:
    """The rows are not compiled when they are read, so that this is where a wrong one is met."""
    for row in signatures():
        pattern = re.compile(row.pattern)
        assert not pattern.search(""), row.id
        assert len(row.anchor) >= 4, row.id


def test_the_table_of_failures_is_current() -> None:
    done = subprocess.run([sys.executable, "scripts/failure_table.py", "--check"], cwd=ROOT, timeout=60)
    assert done.returncode == 0, "run `python scripts/failure_table.py`"


def test_a_reader_that_fails_midway_is_told_of(tmp_path: Path) -> None:
    class Broken(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            raise OSError(5, "Input/output error")

    with pytest.raises(UsageError, match="stdin cannot be read: "):
        explain.answer(ExplainRequest(("-",)), print, io.BufferedReader(Broken()))


@pytest.mark.parametrize("how", ["fifo", "substitution", "stdin"])
def test_a_pipe_that_is_silent_is_waited_for_aloud(tmp_path: Path, how: str) -> None:
    """The log's writer writes only after envkit has said that it waits: without that, both would wait for ever."""
    (tmp_path / "fault").write_text(FAULT)
    said = tmp_path / "said"
    code = (
        "import sys\nfrom envkit import cli\nfrom envkit.explain import explain\n"
        "explain._SILENT_S = 1\nsys.argv[1:1] = ['explain']\ncli.main()\n"
    )
    writer = f"until grep -q 'nothing came from' {said}; do sleep 0.1; done; cat {tmp_path}/fault"
    way = {
        "fifo": f'mkfifo {tmp_path}/pipe; ({writer}) > {tmp_path}/pipe & "$0" -c "$1" {tmp_path}/pipe',
        "substitution": f'"$0" -c "$1" <({writer})',
        "stdin": f'({writer}) | "$0" -c "$1" -',
    }[how]
    script = f"touch {said}; {way} 2> {said}"
    done = subprocess.run(["bash", "-c", script, sys.executable, code], capture_output=True, timeout=300, check=False)
    assert done.returncode == 1, said.read_text()
    assert "it is read until it ends" in said.read_text()


@pytest.mark.parametrize(
    ("numbers", "text"),
    [(set(), ""), ({3}, "3"), ({2, 1}, "1-2"), ({0, 1, 2, 5, 7, 8}, "0-2, 5, 7-8"), ({1, 3, 5}, "1, 3, 5")],
)
def test_ranks_are_written_as_ranges(numbers: set[int], text: str) -> None:
    assert as_text.ranges(numbers) == text


def test_a_timeline_says_who_wrote_a_line_that_no_program_did() -> None:
    found = replace(made.explanation(), timeline=made.explanation().timeline[:3])
    head, *lines = [line for line in as_text.render(found, width=100).splitlines() if "lines)" in line or ":" in line]
    told = [line for line in (head, *lines) if line.startswith("  ") and ("rank 2" in line or "kernel" in line)]
    assert any("dmesg.log:7 kernel: NVRM" in line for line in told), told
    assert any("rank2.log:3 rank 2: CUDA error" in line for line in told) and not any(
        "program" in line for line in told
    )


# On which node it began.


def node(number: int, state: str = "ok", sentence: str = "", gpus: int | None = 2, **more: str) -> nodes.RanNode:
    return nodes.RanNode(
        more.get("name", f"pod{number}"), "", more.get("machine", f"node{number}"), state, sentence, gpus
    )


def placed(found: Explanation, ran: nodes.Ran) -> str:
    """What is said beside the cause."""
    told = nodes.placed(found, Story((), (), ()), ran)
    return told.because.removeprefix(found.because)


def test_the_node_of_the_line_that_names_it_is_told_with_its_check() -> None:
    base = made.explanation()
    root = replace(base.evidence[0], line=replace(made.ROOT, host="node1.cluster"))
    found = replace(base, ranks=(), evidence=(root,))
    ran = nodes.Ran("run", (node(0), node(1, "fail", "GPU 3 is gone")), ())
    assert placed(found, ran) == ("; rank 2 ran on pod1 (node1), failed the check before the job: GPU 3 is gone")
    assert "which passed the check" in placed(found, nodes.Ran("run", (node(0), node(1)), ()))
    steps = nodes.placed(found, Story((), (), ()), ran).next
    assert steps == (*found.next, "envkit judge run")


def test_where_no_line_and_no_count_places_a_rank_nobody_is_accused() -> None:
    base = replace(made.explanation(), ranks=())
    ran = nodes.Ran("run", (node(0, gpus=None), node(1, "unknown", "no answer")), (), why="two files were cut")
    said = placed(base, ran)
    assert said == (
        "; two files were cut; the run does not say on which node rank 2 was;"
        " pod1 (node1) is open in the check before the job: no answer"
    )


def test_many_nodes_that_did_not_pass_are_counted() -> None:
    quiet = replace(made.explanation(), ranks=(), evidence=())
    assert placed(quiet, nodes.Ran("run", (node(0),), ())) == ""
    many = tuple(node(number, "fail", "no") for number in range(nodes._NAMED + 4))
    said = placed(quiet, nodes.Ran("run", many[:1], many[1:]))
    assert said.count("failed the check") == nodes._NAMED and said.endswith("; 4 more nodes did not pass")
    exactly = nodes.Ran("run", many[: nodes._NAMED], ())
    assert "more nodes" not in placed(quiet, exactly)
