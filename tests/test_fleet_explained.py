"""After a failure: the node on which the rank was where it began, by the documents of the run's own folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fleet
import msgspec
import pytest
from clocks import PATIENCE_S
from fleet import body, document, fault, healthy, lay, prints
from inline import Envkit

from envkit.fleet.start import Start

Explain = Callable[..., tuple[int, str]]
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Explain:
    """`envkit explain` with these words: its exit code and what it printed, in one line."""

    def explained(*words: object) -> tuple[int, str]:
        with Envkit(capsys) as run:
            done = run("explain", *words)
        return done.code, " ".join((done.out + done.err).split())

    return explained


def started(place: Path, *names: str, why: str = "8 of 8 nodes are ok") -> Path:
    """The decision of a run, beside its documents."""
    made = Start("envkit.start/1", "slurm-17.0", fleet.NONCE, names, why)
    (place / "start.json").write_bytes(msgspec.json.encode(made))
    return place


def log(folder: Path, text: str, name: str = "job.log") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_the_node_of_the_rank_is_named(tmp_path: Path, explain: Explain) -> None:
    """Of 64 ranks on eight nodes; without the run no node is."""
    place = started(lay(tmp_path / "run", *healthy()), *fleet.HOSTS)
    failed = log(tmp_path, f"world_size=64\n[rank27]: {ECC}")
    code, said = explain("--run", place, failed)
    assert code == 1 and "rank 27 ran on n4, which passed the check before the job" in said
    assert f"envkit judge {place}" in said
    assert " n4" not in explain(failed)[1]


def test_spares_that_were_left_out_count_for_nothing(tmp_path: Path, explain: Explain) -> None:
    """n2 failed, so that the job had n1 and n3 to n8 for its 56 ranks; the node that failed is named too."""
    bad = lay(tmp_path / "run", *healthy(n2=document("n2", body(found=(fault(),)))), run=fleet.run(spares=1))
    place = started(bad, *(name for name in fleet.HOSTS if name != "n2"))
    code, said = explain("--run", place, log(tmp_path, f"world_size=56\n[rank8]: {ECC}"))
    assert code == 1 and "rank 8 ran on n3, which passed" in said
    assert "n2 failed the check before the job: host-gpu-lost: GPU 3 is gone" in said


def test_a_node_that_is_open_is_said_to_be(tmp_path: Path, explain: Explain) -> None:
    place = lay(tmp_path / "run", *healthy(n4=document("n4", prints(body(), driver=None))))
    said = explain("--run", place, log(tmp_path, f"world_size=64\n[rank27]: {ECC}"))[1]
    assert "rank 27 ran on n4, is open in the check before the job: driver was not observed here" in said


def test_a_machine_that_the_line_names_needs_no_counting(tmp_path: Path, explain: Explain) -> None:
    place = started(lay(tmp_path / "run", *healthy()), *fleet.HOSTS)
    said = explain("--run", place, log(tmp_path, f"2026-11-28T10:00:00 n6 trainer[77]: {ECC}"))[1]
    assert "ran on n6, which passed" in said


@pytest.mark.parametrize("world", ["", "world_size=63\n"])
def test_where_a_rank_was_is_not_guessed(tmp_path: Path, explain: Explain, world: str) -> None:
    """Without the number of all ranks, or with one that does not fit the nodes."""
    place = started(lay(tmp_path / "run", *healthy()), *fleet.HOSTS)
    code, said = explain("--run", place, log(tmp_path, f"{world}[rank27]: {ECC}"))
    assert code == 1 and "the run does not say on which node rank 27 was" in said and "ran on" not in said


def test_logs_of_all_ranks_and_the_gpus_of_the_documents_say_how_many_a_node_has(
    tmp_path: Path, explain: Explain
) -> None:
    place = started(lay(tmp_path / "run", *healthy()), *fleet.HOSTS)
    last = int(body().fingerprint["gpus"] or 0) * len(fleet.HOSTS) - 1
    failed = log(tmp_path, ECC, "rank27.log")
    assert "ran on" not in explain("--run", place, failed, log(tmp_path, "step 1\n", f"rank{last - 1}.log"))[1]
    assert "rank 27 ran on n4" in explain("--run", place, failed, log(tmp_path, "step 1\n", f"rank{last}.log"))[1]


def test_a_job_that_never_started(tmp_path: Path, explain: Explain) -> None:
    place = started(lay(tmp_path / "run", *healthy(n2=None)), why="7 of 8 nodes are ok, and 8 are needed")
    said = explain("--run", place, log(tmp_path, "srun: error: n1: task 0: Exited with exit code 1\n"))[1]
    assert "the command of this run started on no node: 7 of 8 nodes are ok, and 8 are needed" in said
    assert "n2 failed the check before the job: it never started" in said


def test_names_of_nodes_are_redacted(tmp_path: Path, explain: Explain) -> None:
    names = tuple(f"secretive{number}" for number in range(1, 9))
    place = started(lay(tmp_path / "run", run=fleet.run(names)), *names)
    said = explain("--run", place, "--redact", log(tmp_path, f"world_size=64\n[rank27]: {ECC}"))[1]
    assert "rank 27 ran on" in said and "secretive" not in said


def test_words_that_do_not_fit(tmp_path: Path, explain: Explain) -> None:
    failed = log(tmp_path, ECC)
    assert explain("--hosts", "n[1-8]", failed)[0] == 2
    assert explain("--run", tmp_path, failed)[0] == 2
    assert explain("--run", tmp_path / "missing", failed)[0] == 2


@pytest.mark.slow  # three examinations
@pytest.mark.nightly  # a real Slurm has one in `make test`
def test_a_job_that_really_ran(tmp_path: Path, explain: Explain) -> None:
    """Three nodes of this machine start a program, and that of the second runs out of memory."""
    program = tmp_path / "train.py"
    memory = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB"
    program.write_text(
        "import os\n"
        "print('world_size=' + os.environ['ENVKIT_NODES'], flush=True)\n"
        f"if os.environ['ENVKIT_NODE_RANK'] == '1':\n    raise RuntimeError({memory!r})\n"
    )
    words = [sys.executable, "-m", "envkit", "preflight", "--fleet", str(tmp_path / "run"), "--hosts", "a,b,c"]
    more = ["--level", "passive", "--gpus", "none", "--", sys.executable, str(program)]
    running = []
    for number, name in enumerate("abc"):
        with (tmp_path / f"rank{number}.log").open("wb") as out:
            running.append(
                subprocess.Popen([*words, "--node", name, *more], stdout=out, stderr=out, env={**os.environ})
            )
    ends = [each.wait(timeout=PATIENCE_S) for each in running]
    assert ends == [0, 1, 0]
    code, said = explain("--run", tmp_path / "run", *(tmp_path / f"rank{number}.log" for number in range(3)))
    assert code == 1 and "rank 1 ran on b, which passed the check before the job" in said


def test_the_node_of_a_rank_that_never_came_is_named(tmp_path: Path, explain: Explain) -> None:
    """Of 16 ranks on eight nodes 15 waited, for rank 5; the healthy waiters are not accused."""
    place = started(lay(tmp_path / "run", *healthy()), *fleet.HOSTS)
    waits = (
        "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=10, "
        "NumelOut=10, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
    )
    told = [f"[rank{rank}]:[E1128 10:00:00.0 ProcessGroupNCCL.cpp:629] {waits.format(rank)}" for rank in range(16)]
    del told[5]
    said = explain("--run", place, log(tmp_path, "world_size=16\n" + "".join(told)))[1]
    assert "rank 5 ran on n3, which passed" in said and said.count(" ran on ") == 1


def spared(tmp_path: Path) -> Path:
    """A run on Slurm whose second node failed, so that tasks and ranks count otherwise from there on."""
    bad = lay(tmp_path / "run", *healthy(n2=document("n2", body(found=(fault(),)))), run=fleet.run(spares=1))
    return started(bad, *(name for name in fleet.HOSTS if name != "n2"))


def test_a_label_of_srun_counts_spares_too(tmp_path: Path, explain: Explain) -> None:
    failed = log(tmp_path, f"0: world_size=7\n3: {ECC}")
    assert "task 3 ran on n4, which passed" in explain("--run", spared(tmp_path), failed)[1]


def test_what_srun_says_of_a_task_is_its_node(tmp_path: Path, explain: Explain) -> None:
    """Below torchrun, which has eight ranks for each task; without srun's words nothing says what the label counts."""
    place = spared(tmp_path)
    assert "rank 17 ran on n4, which" in explain("--run", place, log(tmp_path, f"0: nranks 56\n3: [rank17]: {ECC}"))[1]
    text = f"0: world_size=56\n3: {ECC}"
    assert "the run does not say on which node task 3 was" in explain("--run", place, log(tmp_path, text))[1]
    ended = "srun: error: n4: task 3: Exited with exit code 1\n"
    assert "task 3 ran on n4, which passed" in explain("--run", place, log(tmp_path, text + ended))[1]


@pytest.mark.parametrize(("more", "named"), [("", True), ("srun: error: n6: task 5: Exited with exit code 1\n", False)])
def test_lines_without_a_rank_are_of_the_only_node_that_srun_names(
    tmp_path: Path, explain: Explain, more: str, named: bool
) -> None:
    failed = log(tmp_path, f"{ECC}srun: error: n4: task 3: Exited with exit code 1\n{more}")
    assert ("this ran on n4, which passed" in explain("--run", spared(tmp_path), failed)[1]) is named
