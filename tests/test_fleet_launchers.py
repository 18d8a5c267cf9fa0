"""Who shall answer: lists of nodes, and the environments of launchers as these really set them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.errors import UsageError
from envkit.fleet import hostlist
from envkit.fleet.launchers import expected, placement


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1 n2"),
        ("n[1-3,7],login", "n1 n2 n3 n7 login"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("r[1-2]n[1-2]-ib", "r1n1-ib r1n2-ib r2n1-ib r2n2-ib"),
        ("gpu-a.example.com", "gpu-a.example.com"),
    ],
)
def test_a_list_as_slurm_writes_it(text: str, names: str) -> None:
    assert hostlist.expand(text) == tuple(names.split())


BAD = (
    "", " ", ",", "n[", "n]", "n[1-2", "n[2-1]", "n[]", "n[a]", "n[1--2]", "n[1-200000]", "n[1-400]m[1-400]", "a b",
    "../etc", "-n1", "n1,n1", "n[1-2],n2", "n\n1", "n1;true", "n$(x)", "a..b", "n[[1]]", "é",
)  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_list_of_nodes(text: str) -> None:
    with pytest.raises(UsageError):
        hostlist.expand(text)


@given(st.sets(st.from_regex(r"(n|gpu|r1c|a-b)(0{0,2}[0-9]{1,3})(|-ib)", fullmatch=True), min_size=1, max_size=40))
def test_a_compressed_list_says_the_same(names: set[str]) -> None:
    assert set(hostlist.expand(hostlist.compressed(names))) == names


def test_a_list_is_short() -> None:
    assert hostlist.compressed(f"n{at}" for at in range(1, 10_001)) == "n[1-10000]"
    assert hostlist.compressed(f"n{at:02d}" for at in range(8, 12)) == "n[08-11]"
    assert hostlist.compressed(["n3"]) == "n3"
    assert hostlist.compressed([]) == ""


def test_a_host_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# the rack\nn1 slots=8\n\nn2:8\nn3  # spare\n")
    assert hostlist.given(str(path)) == ("n1", "n2", "n3")
    path.write_text("# nobody\n")
    with pytest.raises(UsageError, match="is empty"):
        hostlist.given(str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        hostlist.given(str(tmp_path / "missing"))


# As a task of `srun -N8 --ntasks-per-node=2` has them (Slurm 22.05, seen on the cluster of tests/slurm.py).
SLURM = {
    "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "n[1-8]", "SLURM_STEP_NODELIST": "n[1-4]",
    "SLURMD_NODENAME": "n3", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_STEP_TASKS_PER_NODE": "2(x4)",
    "SLURM_PROCID": "5",
}  # fmt: skip


def test_slurm_names_the_nodes_of_the_step() -> None:
    at = placement(SLURM)
    assert (at.launcher, at.node, at.hosts, at.launch) == ("slurm", "n3", ("n1", "n2", "n3", "n4"), "slurm-17.0")
    assert (at.local, at.here) == (1, 2)
    batch = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-8]", "SLURMD_NODENAME": "n1"}
    assert len(expected(batch)) == 8
    assert placement({**SLURM, "SLURM_RESTART_COUNT": "1"}).launch == "slurm-17r1.0"
    # srun --mpi=pmi2 sets the variables of PMI too, and the step is still its own
    by_srun = {**SLURM, "PMI_RANK": "5", "PMI_SIZE": "8", "PMI_JOBID": "17.0", "SLURM_MPI_TYPE": "pmi2"}
    assert placement(by_srun) == at


def test_mpirun_in_an_allocation_has_a_step_without_the_node_where_it_runs() -> None:
    daemon = {**SLURM, "SLURM_STEP_NODELIST": "n[2-8]", "SLURM_LOCALID": "0"}
    mpi = {"PMI_RANK": "5", "PMI_SIZE": "16", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}
    at = placement({**daemon, **mpi})
    assert (at.node, len(at.hosts), at.local, at.here) == ("n3", 8, 1, 2)


def test_torchrun_counts_nodes_and_slurm_names_them() -> None:
    worker = {
        "GROUP_RANK": "2", "GROUP_WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8", "RANK": "17",
        "WORLD_SIZE": "32", "TORCHELASTIC_RUN_ID": "job-5", "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip
    at = placement(worker)
    assert (at.launcher, at.node, at.hosts) == ("torchrun", "2", ("0", "1", "2", "3"))
    assert (at.launch, at.local, at.here) == ("torchrun-job-5r0", 1, 8)
    inside = placement({**SLURM, **worker})
    assert (inside.node, inside.hosts, inside.local) == ("n3", ("n1", "n2", "n3", "n4"), 1)
    operator = placement({"PET_NNODES": "4", "PET_NODE_RANK": "0"})
    assert (operator.node, len(operator.hosts)) == ("0", 4)
    with pytest.raises(UsageError, match="leaves open how many"):
        placement({"PET_NNODES": "2:4", "PET_NODE_RANK": "0"})
    assert placement({"PET_NNODES": "2:4", "PET_NODE_RANK": "1"}, "a,b").node == "b"


def test_mpi_with_one_process_a_node() -> None:
    ompi = {
        "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "1234@1",
    }  # fmt: skip
    at = placement(ompi)
    assert (at.launcher, at.node, len(at.hosts), at.launch) == ("openmpi", "3", 8, "openmpi-1234@1")
    mpich = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1", "MPI_LOCALRANKID": "0"}
    assert placement({**mpich, "ENVKIT_LAUNCH": "x1"}).launch == "x1"
    assert placement(mpich).node == "1"
    several = {**mpich, "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}
    with pytest.raises(UsageError, match="2 processes of one MPI launch"):
        placement(several)
    named = placement(several, f"other,{socket.gethostname()}")
    assert (named.node, named.local, named.here) == (socket.gethostname(), 1, 2)


def test_an_indexed_job_needs_its_count() -> None:
    assert placement({"JOB_COMPLETION_INDEX": "2"}, count=4).node == "2"
    with pytest.raises(UsageError, match="which nodes shall answer"):
        placement({"JOB_COMPLETION_INDEX": "2"})
    with pytest.raises(UsageError, match="number 4 of 4 nodes"):
        placement({"JOB_COMPLETION_INDEX": "4"}, count=4)


def test_a_list_of_hosts_and_the_machines_own_name() -> None:
    own = socket.gethostname()
    assert placement({}, f"a,{own}.example.com").node == f"{own}.example.com"
    assert placement({}, "a,b", "b").node == "b"
    with pytest.raises(UsageError, match="which is none of"):
        placement({}, "a,b")
    with pytest.raises(UsageError, match="which nodes shall answer"):
        placement({})
    assert expected({}) == ()


@pytest.mark.parametrize(
    "environ",
    [
        {"GROUP_RANK": "x", "GROUP_WORLD_SIZE": "2"},
        {"GROUP_RANK": "2", "GROUP_WORLD_SIZE": "2"},
        {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "0"},
        {"PMI_RANK": "0", "PMI_SIZE": "99999999999"},
        {"PMI_RANK": "0", "PMI_SIZE": "200000"},
        {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[", "SLURMD_NODENAME": "n1"},
        {"JOB_COMPLETION_INDEX": "-1"},
    ],
)
def test_an_environment_that_makes_no_sense(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        placement(environ)
