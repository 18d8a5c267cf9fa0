"""Causes that many ranks' lines tell: each fault beside its clean twin, in made-up logs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from clocks import costs_less
from gathered import gathered

from envkit.logs import knowledge
from tests.logs import told

_WARN = "node1:100:200 [0] misc/file.cc:1 NCCL WARN "
_TORCH = "RuntimeError: NCCL error in: /src/ProcessGroupNCCL.cpp:1, unhandled "
_ROWS = Path(knowledge.__file__).parent / "signatures" / "ranks.jsonl"


def _timeout(rank: int, seq: int = 7, op: str = "ALLREDUCE", size: int = 64, limit: int = 600000) -> str:
    return (
        f"[rank{rank}]:[E1206 18:44:12.000000{rank} ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)={limit}) "
        f"ran for {limit + 60} milliseconds before timing out."
    )


@pytest.mark.parametrize(
    ("log", "category", "cause", "quoted"),
    [
        (
            f"{_WARN}Call to posix_fallocate failed : No space left on device\n{_TORCH}system error",
            "nccl-shm-too-small",
            "container-config",
            "posix_fallocate",
        ),
        (
            f"{_WARN}Error: failed to extend /dev/shm/nccl-aBcD to 9637892 bytes\n{_TORCH}system error",
            "nccl-shm-too-small",
            "container-config",
            "failed to extend",
        ),
        (
            f"{_WARN}Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10",
            "nccl-duplicate-gpu",
            "launch-config",
            "Duplicate GPU",
        ),
        (
            f"{_WARN}Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703",
            "nccl-version-mismatch",
            "version-mismatch",
            "Mismatched NCCL",
        ),
        (
            "ImportError: /env/torch/lib/libtorch_cuda.so: undefined symbol: ncclMemFree",
            "nccl-version-mismatch",
            "version-mismatch",
            "ncclMemFree",
        ),
        (
            f"{_WARN}Connect to 10.9.9.9<21724> failed : Connection refused\n{_TORCH}system error",
            "nccl-unhandled-system-error",
            "network-fabric",
            "Connection refused",
        ),
        (
            f"{_WARN}socketPollConnect: Connect to 10.9.9.9<41331> returned 111(Connection refused), exceeded error "
            "retry count after 35 attempts",
            "nccl-remote-error",
            "network-fabric",
            "exceeded error retry",
        ),
        (
            f"{_WARN}Bootstrap : no socket interface found",
            "nccl-unhandled-system-error",
            "launch-config",
            "no socket interface",
        ),
        (
            f"{_WARN}Call to ibv_reg_mr failed with error Cannot allocate memory",
            "nccl-unhandled-system-error",
            "host-resource",
            "ibv_reg_mr",
        ),
        (
            f"{_WARN}NET/IB : Got completion from peer 10.9.9.9<5> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
            "nccl-ib-transport-error",
            "network-fabric",
            "status=12",
        ),
        (
            f"{_WARN}Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1, curr state INIT",
            "nccl-ib-transport-error",
            "network-fabric",
            "ibv_modify_qp",
        ),
        (
            f"{_WARN}Call to ibv_open_device failed with error Cannot allocate memory",
            "nccl-unhandled-system-error",
            "host-resource",
            "ibv_open_device",
        ),
        (
            f"{_WARN}Error: network AWS Libfabric not found.\n{_TORCH}system error",
            "nccl-net-plugin-not-found",
            "container-config",
            "not found",
        ),
        (
            "node1:1:2 [0] transport/nvls.cc:9 NCCL WARN Cuda failure 401 'the operation cannot be performed'",
            "nccl-unhandled-cuda-error",
            "fabric-manager",
            "nvls.cc",
        ),
        (
            "node1:1:2 [0] transport/p2p.cc:9 NCCL WARN Cuda failure 'invalid resource handle'",
            "nccl-unhandled-cuda-error",
            "container-config",
            "invalid resource handle",
        ),
        (
            f"{_TORCH}cuda error, NCCL version 2.14.3\nLast error:\nCuda failure 'uncorrectable ECC error encountered'",
            "ecc-uncorrectable",
            "hardware-fault",
            "uncorrectable ECC",
        ),
        (
            f"{_WARN}socketProgress: Connection closed by remote peer node2<5>",
            "nccl-remote-error",
            "peer-failure",
            "closed by remote peer",
        ),
        (
            "RuntimeError: [/src/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.9.9.9]:3632",
            "not-gpu-env",
            "peer-failure",
            "Connection closed by peer",
        ),
        (
            "[W socket.cpp:1] [c10d] The server socket has failed to bind to [::]:29500 "
            "(errno: 98 - Address already in use).",
            "not-gpu-env",
            "launch-config",
            "29500",
        ),
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to "
            "(10.9.9.9, 29500).",
            "not-gpu-env",
            "launch-config",
            "client socket has timed out",
        ),
        (
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
            "not-gpu-env",
            "launch-config",
            "1/2 clients",
        ),
        (
            "WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers",
            "not-gpu-env",
            "infra",
            "death signal",
        ),
        (
            "RuntimeError: [Rank 0]: Ranks 4, 5 failed to pass monitoredBarrier in 2000 ms",
            "nccl-timeout-hang",
            "rank-desync",
            "monitoredBarrier",
        ),
        (
            "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
            "CollectiveFingerPrint(SequenceNumber=4, OpType=ALLREDUCE, TensorShape=[8]), but Rank 0 is running "
            "collective: CollectiveFingerPrint(SequenceNumber=4, OpType=ALLREDUCE, TensorShape=[16])",
            "nccl-timeout-hang",
            "rank-desync",
            "Detected mismatch",
        ),
        (
            "RuntimeError: No backend type associated with device type cpu",
            "tensors-on-different-devices",
            "device-mixup",
            "No backend type",
        ),
    ],
)
def test_one_cause_is_told_with_its_line(log: str, category: str, cause: str, quoted: str) -> None:
    found = told(log)
    assert (found.category, found.cause) == (category, cause)
    assert quoted in found.evidence[0].line.text


@pytest.mark.parametrize(
    "log",
    [
        "node1:1:2 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so.\n",
        "node1:1:2 [0] NCCL INFO Failed to open libibverbs.so[.1]\n",
        "node1:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying\n",
        "NCCL version 2.27.5+cuda12.9\n",
        "[W1 socket.cpp:1] [c10d] The client socket has failed to connect to [h]:29500 (errno: 111 - refused).\n",
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n",
        "Warning: process group has NOT been destroyed before we destruct ProcessGroupNCCL\n",
        "[rank0]: using GPU 0 as device used by this process is currently unknown.\n",
    ],
)
def test_what_a_healthy_job_prints_is_no_failure(log: str) -> None:
    assert told(log + "epoch 1 done\n").category == "insufficient-evidence"


def test_a_release_packed_in_one_number_is_unpacked() -> None:
    found = told(f"{_WARN}Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703")
    assert "2.27.5" in found.because and "2.27.3" in found.because


def test_a_flushed_completion_is_a_consequence() -> None:
    flushed = f"{_WARN}NET/IB : Got completion from peer 10.9.9.9<5> with error 5, opcode 0, len 0, vendor err 249\n"
    refused = f"{_WARN}NET/IB : Got completion from peer 10.9.9.8<5> with error 12, opcode 0, len 0, vendor err 129\n"
    found = told(flushed + refused)
    assert found.category == "nccl-ib-transport-error"
    assert "error 12" in found.evidence[0].line.text


def test_a_closed_connection_gives_way_to_the_failure_of_another_rank() -> None:
    closed = "node1:1:5 [0] misc/socket.cc:1 NCCL WARN socketProgress: Connection closed by remote peer node1<5>\n"
    memory = "node1:2:6 [3] include/alloc.h:1 NCCL WARN Cuda failure 'out of memory'\n"
    found = told(closed + memory)
    assert (found.category, found.cause) == ("out-of-memory", "gpu-memory-exhausted")


def test_a_time_out_gives_way_to_an_exception_of_another_rank() -> None:
    broken = (
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/w/train.py", line 7, in <module>\n'
        "[rank3]:     x = batch['labels']\n"
        "[rank3]: KeyError: 'labels'\n"
    )
    assert told(broken + _timeout(0)).category == "not-gpu-env"
    assert told(_timeout(0)).category == "nccl-timeout-hang"


def test_ranks_with_other_sizes_numbers_or_operations_are_out_of_step() -> None:
    for other in (_timeout(1, size=65), _timeout(1, seq=9), _timeout(1, op="BROADCAST")):
        found = told(f"{_timeout(0)}\n{other}")
        assert (found.category, found.cause) == ("nccl-timeout-hang", "rank-desync")
        assert len(found.evidence) == 2 and "rank 1" in found.because


def test_ranks_in_step_point_to_the_transport() -> None:
    found = told("\n".join(_timeout(rank) for rank in range(4)))
    assert (found.category, found.cause) == ("nccl-timeout-hang", "network-fabric")


def test_a_phase_as_old_as_the_time_out_is_what_was_waited_for() -> None:
    bar = "\r 35%|###       | 35/100 [{}<57:14,  1.1s/it]\n"
    assert told(bar.format("10:02") + _timeout(6)).cause == "launch-config"
    assert told(bar.format("02:00") + _timeout(6)).cause == "rank-desync"


def test_a_rank_killed_from_outside_is_the_peer_that_was_waited_for() -> None:
    killed = (
        "E0909 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: {}) local_rank: 3 (pid: 9)\n"
    )
    found = told(f"{_timeout(0)}\n{killed.format(-9)}")
    assert found.cause == "peer-failure" and "SIGKILL" in found.because
    assert told(f"{_timeout(0)}\n{killed.format(-6)}").cause == "rank-desync"


def test_a_result_without_its_reason_stays_open() -> None:
    found = told(f"{_TORCH}system error, NCCL version 2.7.8")
    assert (found.category, found.cause) == ("nccl-unhandled-system-error", "unknown-cut-log")
    assert "NCCL_DEBUG" in found.decide_by


def test_unused_parameters_are_named() -> None:
    head = "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.\n"
    found = told(head + "Parameters which did not receive grad for rank 3: head.weight, head.bias\n")
    assert (found.category, found.cause) == ("not-gpu-env", "program-bug")
    assert "head.weight" in found.because and "head.weight" in found.evidence[0].line.text
    unlike = told(
        f"{head}Parameters which did not receive grad for rank 3: head.weight\n"
        "Parameters which did not receive grad for rank 1: tail.weight\n"
    )
    assert unlike.cause == "rank-desync"


def test_launchers_alone_name_no_cause() -> None:
    found = told("mpirun noticed that process rank 2 with PID 0 on node x exited on signal 9 (Killed).")
    assert (found.category, found.cause) == ("insufficient-evidence", "unknown-cut-log")
    assert "SIGKILL" in found.because


def test_talk_about_an_error_is_no_evidence() -> None:
    talk = "I googled and found that socketProgress: Connection closed by remote peer means a dead rank, any idea?\n"
    assert told(talk + "KeyError: 'labels'\n").category != "nccl-shm-too-small"
    assert told("how do I fix this? is it the NCCL watchdog again?\n").category == "insufficient-evidence"


@gathered([json.loads(line) for line in _ROWS.read_text().splitlines()])
def test_a_pattern_takes_linear_time(row: dict[str, str]) -> None:
    pattern = re.compile(row["pattern"])
    pieces = [
        row["anchor"],
        "a",
        " ",
        "1",
        *[part for part in re.split(r"[\\()\[\]?{}|^$.+*]", row["pattern"]) if len(part) > 4][:3],
    ]
    for piece in pieces:
        hostile = (piece * (8192 // len(piece) + 1))[:8192]
        with costs_less(0.3):
            pattern.search(hostile)


def test_ranks_that_all_wait_to_receive_are_told_as_that() -> None:
    both = told("\n".join(_timeout(rank, op="RECV") for rank in range(2)))
    assert (both.category, both.cause) == ("nccl-timeout-hang", "rank-desync")
    assert "none of them to send" in both.because
    assert "none of them" not in told("\n".join(map(_timeout, range(2)))).because
