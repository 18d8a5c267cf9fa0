"""A real Slurm of eight nodes: the check of a job's nodes, its faults one by one, each beside healthy twins.

The nodes are one machine, so what differs among them is planted in what the task of one node starts: its environment,
the folder that it is given, or the machine that it judges (a recorded H100 machine, one for each node).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import elves
import fleet
import machines
import processes
import pytest
import slurm
import torches
from clocks import PATIENCE_S, comes
from slurm import Cluster

from envkit.fleet import gather, hostlist
from envkit.fleet.verdict import Cause, FleetVerdict, Rules, State, judge
from envkit.subjects import saved
from envkit.subjects.codec import to_plain

pytestmark = [pytest.mark.slow, pytest.mark.slurm]  # a cluster, and a process of envkit for each node

ALL = tuple(f"n{number}" for number in range(1, 9))
BUDGET_S = 20
ENVKIT = f"{sys.executable} -m envkit"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Slurm's daemons; where its packages are not installed, skipped, or a failure with ENVKIT_REQUIRE_SLURM=1."""
    if lacking := slurm.missing():
        if os.environ.get("ENVKIT_REQUIRE_SLURM") == "1":
            pytest.fail(f"ENVKIT_REQUIRE_SLURM=1 and this machine lacks {', '.join(lacking)}")
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(scope="module")
def h100() -> str:
    """A healthy machine as `doctor --save` writes it."""
    return saved.text("host", to_plain(machines.host("h100")))


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path, h100: str) -> Iterator[Path]:
    """A folder that all nodes share, with a recorded healthy machine for each; no node has a job before and after."""
    for name in ALL:
        (tmp_path / f"{name}.json").write_text(h100)
    yield tmp_path
    cluster.wait_idle()


NIGHTLY = pytest.mark.nightly  # CI has its minutes for one whole matrix


def task(place: Path, faults: Mapping[str, str], words: str, command: str = "") -> str:
    """A script for all tasks: on the nodes of ``faults`` their line of bash comes first."""
    cases = "\n".join(f"{name}) {line} ;;" for name, line in faults.items())
    path = place / "task.sh"
    path.write_text(
        f"node=$SLURMD_NODENAME\nshared={place}/runs\ncase $node in\n{cases}\n*) ;;\nesac\n"
        f"exec {ENVKIT} preflight --level passive {words} --fleet $shared --budget {BUDGET_S} {command}\n"
    )
    return str(path)


RECORDED = '--host "$(dirname $0)/$node.json"'
REAL = "--gpus none"
SRUN = ("srun", "-N8", "--ntasks-per-node=1", "--kill-on-bad-exit=0")


def run_of(place: Path) -> Path:
    """The only run below ``place``."""
    (found,) = (each.parent for each in (place / "runs").glob("*/run.json"))
    return found


def judged(place: Path, *also: Path) -> FleetVerdict:
    return judge(gather.gather(run_of(place), also, ()), time.time() + 3600)


def bad(found: FleetVerdict) -> dict[str, Cause]:
    return {one.node: one.cause for one in found.nodes if one.state is not State.OK}


def in_python(place: Path, name: str, code: str) -> str:
    """A line of bash after which the node's examination, and nothing else of envkit, runs this first."""
    folder = place / name
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import os, sys, time\nif '--observed' in sys.orig_argv:\n    {code}\n")
    return f"export PYTHONPATH={folder}"


def machine(place: Path, name: str, changes: Mapping[str, object]) -> str:
    """A line of bash after which a node judges this machine."""
    (place / f"{name}.json").write_text(saved.text("host", to_plain(machines.host("h100", changes))))
    return f"node={name}"


def test_fake_gpus_and_lists_as_slurm_itself_reads_them(cluster: Cluster) -> None:
    shown = cluster.run(*SRUN, "--gres=gpu:h100:8", "printenv", "CUDA_VISIBLE_DEVICES")
    assert (shown[0], shown[1].split()) == (0, ["0,1,2,3,4,5,6,7"] * 8), shown
    for text in ("n[1-8]", "n[01-03,7],x", "n[1-2]m[3-4]"):
        listed = cluster.run("scontrol", "show", "hostnames", text)[1].split()
        assert tuple(listed) == hostlist.expand(text)
        again = cluster.run("scontrol", "show", "hostnames", hostlist.compressed(listed))[1].split()
        assert set(again) == set(listed)


@NIGHTLY
def test_eight_healthy_nodes_are_ok(cluster: Cluster, place: Path) -> None:
    code, _, err = cluster.run(*SRUN, "bash", task(place, {}, RECORDED))
    assert (code, bad(judged(place))) == (0, {}), err


def image(place: Path, nccl: str) -> str:
    """A saved image with this NCCL in it."""
    (folder := place / f"nccl-{nccl}").mkdir()
    library = elves.elf_file(soname="libnccl.so.2")
    files = elves.wheel("nvidia-nccl-cu12", nccl, {"nvidia/nccl/lib/libnccl.so.2": library})
    with elves.image(folder, {**files, "etc/os-release": b'ID=debian\nVERSION_ID="12"\n'}):
        return str(folder / "image.tar")


# What a stranger may leave among the documents of a run, by the name of its file.
HOSTILE: Mapping[str, bytes] = {
    "n8.00000000000000aa.json": b"[" * 100_000,
    "n8.00000000000000ab.json": b'{"schema": "envkit.node/1", "node": "n8"}',
    "n99.00000000000000ac.json": b"{}",
    "..%2f..%2fetc.json": b"\0\xff",
}


def test_each_of_seven_faults_is_named_with_its_node(cluster: Cluster, place: Path) -> None:
    seven = machines.plain("h100")["nvml"]["value"]["gpus"][:7]
    common, other = image(place, "2.21.5"), image(place, "2.23.4")
    (hostile := place / "hostile").mkdir()
    for name, data in HOSTILE.items():
        (hostile / name).write_bytes(data)
    drifted = {"environment.NCCL_DEBUG": "INFO", "nvml.driver": "575.57.08", "module.version": "575.57.08"}
    faults = {
        "n1": "exit 0",
        "n2": in_python(place, "hangs", "time.sleep(600)"),
        "n3": in_python(place, "dies", "os.kill(os.getpid(), 9)"),
        "n4": machine(place, "remap", {"nvml.gpus.3.remap.failed": True}),
        "n5": machine(place, "seven", {"nvml.gpus": seven}),
        "n6": f"{machine(place, 'drift', drifted)}; image={other}",
        "n7": in_python(place, "level", "print('level passive', file=sys.stderr, flush=True); time.sleep(600)"),
        "n8": f"(until cp {hostile}/* $shared/*/nodes/ 2>/dev/null; do sleep 0.1; done) &",
    }
    # More of its class than those with faults: without them no value has a majority.
    words = f'"${{image:-{common}}}" {RECORDED}'
    code, _, err = cluster.run(*SRUN, "bash", task(place, faults, words))
    found = judged(place)
    assert code == 1, err
    causes = bad(found)
    assert {causes.pop("n5"), causes.pop("n6")} <= {Cause.FOUND, Cause.DRIFT}  # by checks of their own as well
    assert causes == {
        "n1": Cause.NEVER_STARTED, "n2": Cause.HUNG, "n3": Cause.DIED, "n4": Cause.FOUND, "n7": Cause.HUNG,
    }, [one.sentence for one in found.nodes]  # fmt: skip
    assert any("gpus is 7 here and 8 on" in each.message for each in found.nodes[4].findings)
    said = " ".join(each.message for each in found.nodes[5].findings)
    for key in ("driver is 575.57.08 here", "image is sha256:", "variable NCCL_DEBUG is INFO here"):
        assert key in said, said
    assert "its start" in found.nodes[1].sentence and "the level passive" in found.nodes[6].sentence
    for one in (found.nodes[1], found.nodes[6]):  # by the node's own clock
        assert one.ended - one.started <= BUDGET_S + 5, one
    assert {each.source for each in found.rejected} == {f"nodes/{name}" for name in HOSTILE if "%" not in name}


# In the process of the node: its document lies there cut in half, as after a crash of the file server.
HALF = """
import os, sys
_replace = os.replace
def half(one, two):
    if os.path.basename(os.path.dirname(two)) == "nodes":
        os.truncate(one, os.path.getsize(one) // 2)
    _replace(one, two)
if "--observed" not in sys.orig_argv:
    os.replace = half
"""


def test_folders_clocks_and_ends_that_are_not_as_they_should_be(cluster: Cluster, place: Path) -> None:
    clock, slow, half, seen = place / "clock", place / "slow", place / "half", place / "seen"
    for each in (clock, slow, half, seen):
        each.mkdir()
    # The clock of a process, not that of the kernel, which dates its files; a folder where a rename takes two seconds.
    (clock / "sitecustomize.py").write_text("import time\n_now = time.time\ntime.time = lambda: _now() + 3600\n")
    (slow / "sitecustomize.py").write_text(
        "import os, time\n_replace = os.replace\nos.replace = lambda *words: time.sleep(2) or _replace(*words)\n"
    )
    (half / "sitecustomize.py").write_text(HALF)
    again = task(place, {}, RECORDED)
    os.rename(again, place / "again.sh")
    crash = "(until ls $shared/*/beats/n5.* >/dev/null 2>&1; do sleep 0.1; done; kill -9 $$) &"
    faults = {
        "n1": f"mkdir -p $shared; mount --bind $shared {seen}; mount -o remount,ro,bind {seen}; shared={seen}",
        "n2": f"export PYTHONPATH={clock}",
        "n3": f"bash {place}/again.sh",
        "n4": f"export PYTHONPATH={slow}",
        "n5": f"{in_python(place, 'hangs', 'time.sleep(600)')}; {crash}",
        "n6": f"export PYTHONPATH={half}",
        "n7": in_python(place, "after", "import atexit; atexit.register(time.sleep, 600)"),
    }
    words = f"{RECORDED} --may-differ 'variable PYTHONPATH'"
    code, out, err = cluster.run(*SRUN, "--label", "bash", task(place, faults, words))
    cluster.run("umount", str(seen))
    (place / "job.out").write_text(out)
    found = judged(place, place / "job.out")
    assert bad(found) == {
        "n1": Cause.NOT_DELIVERED, "n2": Cause.CLOCK, "n3": Cause.TWICE, "n5": Cause.SILENT, "n6": Cause.DAMAGED,
        "n7": Cause.HUNG,
    }, (code, err)  # fmt: skip
    assert "3600 s ahead" in found.nodes[1].sentence and "read-only" in found.nodes[0].sentence.lower()
    assert "the level passive" in found.nodes[6].sentence
    assert found.nodes[6].ended - found.nodes[6].started <= BUDGET_S + 5


@NIGHTLY
def test_what_a_full_folder_does_not_take_comes_with_the_log(cluster: Cluster, place: Path) -> None:
    (place / "runs").mkdir()
    cluster.run("mount", "-t", "tmpfs", "-o", "size=60k", "none", str(place / "runs"))
    try:
        code, out, err = cluster.run(*SRUN, "--label", "bash", task(place, {}, RECORDED))
        (place / "job.out").write_text(out)
        found = judged(place, place / "job.out")
    finally:
        cluster.run("umount", str(place / "runs"))
    assert code == 3, err
    assert set(bad(found).values()) == {Cause.NOT_DELIVERED}
    assert all("the disk is full" in one.sentence for one in found.nodes if one.state is State.UNKNOWN)


# In the Python of a trial alone, before its ranks are forked.
DIES = """
import os, sys
if any(word.endswith("trial.py") for word in sys.orig_argv):
    import torch.distributed as dist
    dist.all_reduce = lambda data: os.kill(os.getpid(), 9)
"""


@NIGHTLY
@torches.needs_torch
def test_links_are_tested_where_the_topology_says_and_the_job_starts_without_the_bad_node(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Four nodes below two switches; the ranks of n3 die in each trial."""
    folder = tmp_path_factory.mktemp("links")
    (inner := folder / "cluster").mkdir()
    (inner / "topology.conf").write_text(
        "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\nSwitchName=s3 Nodes=n[5-8]\n"
        "SwitchName=top Switches=s[1-3]\n"
    )
    (folder / "sitecustomize.py").write_text(DIES)
    words = f"{REAL} --spares 1 --links pairs --trial-budget 120 --python {torches.PYTHON}"
    words += " --may-differ 'variable PYTHONPATH'"
    show = "-- bash -c 'echo started $SLURMD_NODENAME of $ENVKIT_NODELIST'"
    with slurm.cluster(inner, {"TopologyPlugin": "topology/tree"}) as cluster:
        srun = ("srun", "-N4", "-w", "n[1-4]", "--ntasks-per-node=1", "--kill-on-bad-exit=0")
        faults = {"n3": f"export PYTHONPATH={folder}"}
        out, err = cluster.start(*srun, "bash", task(folder, faults, words, show)).communicate(timeout=900)
    found = judge(gather.gather(run_of(folder), (), ()), time.time() + 3600, Rules(may_differ=("variable PYTHONPATH",)))
    assert found.links is not None and found.named(State.FAIL) == ("n3",), (found.nodes, err)
    assert "killed by SIGKILL" in found.nodes[2].sentence
    lines = sorted(line for line in out.splitlines() if line.startswith("started"))
    assert lines == [f"started {name} of n[1-2,4]" for name in ("n1", "n2", "n4")], (out, err)
    gathered = gather.gather(run_of(folder), (), ())
    assert {name: held[0].body.labels for name, held in gathered.documents.items()} == {
        "n1": ("top", "s1"), "n2": ("top", "s1"), "n3": ("top", "s2"), "n4": ("top", "s2"),
    }  # fmt: skip
    assert set(gathered.record.plans[1].trials) == {("n1", "n2"), ("n3", "n4")}


def asks_too_much(place: Path) -> str:
    """A line of bash after which a node fails: its contract requires a check that is skipped there."""
    (place / "contract.toml").write_text('[checks]\nrequire = ["host-no-gpu"]\n')
    return f"more='--expect {place}/contract.toml'"


START = (
    "$more -- bash -c 'echo started $SLURMD_NODENAME $ENVKIT_NODE_RANK $ENVKIT_NODELIST; "
    "exit $((ENVKIT_NODE_RANK == 0 ? 7 : 0))'"
)


@NIGHTLY
def test_the_command_starts_on_healthy_nodes_alone_and_its_exit_code_is_the_jobs(cluster: Cluster, place: Path) -> None:
    """One node fails and one never starts: of eight, six are needed."""
    faults = {"n2": asks_too_much(place), "n5": "exit 0"}
    code, out, err = cluster.run(*SRUN, "bash", task(place, faults, f"{REAL} --spares 2", START))
    lines = sorted(line for line in out.splitlines() if line.startswith("started"))
    chosen = [name for name in ALL if name not in faults]
    assert lines == [f"started {name} {rank} n[1,3-4,6-8]" for rank, name in enumerate(chosen)], err
    assert code == 7
    assert bad(judged(place)) == {"n2": Cause.FOUND, "n5": Cause.NEVER_STARTED}


FAILS = """
import os
print("world_size=" + os.environ["ENVKIT_WORLD_SIZE"], flush=True)
if os.environ["SLURMD_NODENAME"] == "n4":
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
"""


@pytest.mark.parametrize("label", [(), pytest.param(("--label",), marks=NIGHTLY)])
def test_after_a_job_failed_its_node_is_named(cluster: Cluster, place: Path, label: tuple[str, ...]) -> None:
    """n2 fails the check and is left out, so that the ranks of the job are not the tasks of Slurm's step."""
    (place / "train.py").write_text(FAILS)
    words = task(
        place, {"n2": asks_too_much(place)}, f"{REAL} --spares 1", f"$more -- {sys.executable} {place}/train.py"
    )
    srun = ("srun", "-N4", "-w", "n[1-4]", "--ntasks-per-node=1", "--kill-on-bad-exit=0", *label)
    code, out, err = cluster.run(*srun, "bash", words)
    assert code == 1 and "n4" in err, err
    (place / "job.out").write_text(out + err)
    told = cluster.run(sys.executable, "-m", "envkit", "explain", "--run", str(run_of(place)), str(place / "job.out"))
    said = " ".join(told[1].split())
    assert told[0] == 1 and said.count(" ran on ") == 1, told
    assert f"{'task 3' if label else 'this'} ran on n4, which passed the check before the job" in said
    assert "n2 failed the check before the job: host-no-gpu" in said


@NIGHTLY
def test_without_spares_one_bad_node_keeps_the_command_from_starting(cluster: Cluster, place: Path) -> None:
    faults = {"n2": asks_too_much(place)}
    code, out, err = cluster.run(*SRUN, "bash", task(place, faults, REAL, START))
    assert (code, "started" in out) == (1, False)
    assert "of 8 nodes are ok, and 8 are needed" in err and "n2: host-no-gpu" in err


@NIGHTLY
def test_several_tasks_of_a_node_start_once_it_passed(cluster: Cluster, place: Path) -> None:
    show = "-- bash -c 'echo started $ENVKIT_RANK of $ENVKIT_WORLD_SIZE'"
    code, out, err = cluster.run(
        "srun",
        "-N2",
        "-w",
        "n[1-2]",
        "--ntasks-per-node=2",
        "--kill-on-bad-exit=0",
        "bash",
        task(place, {}, REAL, show),
    )
    assert (code, sorted(out.splitlines())) == (0, [f"started {rank} of 4" for rank in range(4)]), err
    assert len(list((run_of(place) / "nodes").iterdir())) == 2


@NIGHTLY
@pytest.mark.parametrize("how", ["scancel", "SIGTERM", "SIGKILL"])
def test_a_job_that_is_ended_leaves_no_process(cluster: Cluster, place: Path, how: str) -> None:
    """While every node's examination hangs.  A killed srun cancels nothing: the nodes' own budget ends them."""
    faults = dict.fromkeys(ALL, in_python(place, "hangs", "time.sleep(600)"))
    running = cluster.start(*SRUN, "--job-name", f"ended-{how}", "bash", task(place, faults, RECORDED))
    assert comes(lambda: len(list((place / "runs").glob("*/beats/n*.json"))) == len(ALL))
    if how == "scancel":
        cluster.run("scancel", "--name", f"ended-{how}")
    else:
        os.killpg(running.pid, signal.Signals[how])
    running.communicate(timeout=120)
    assert comes(lambda: not [pid for pid in processes.named(str(place)) if not processes.gone(pid)], 0.2)
    found = judged(place)
    assert found.named(State.FAIL) == ALL
    assert {one.cause for one in found.nodes} <= {Cause.DIED, Cause.HUNG, Cause.SILENT}, bad(found)


@NIGHTLY
def test_a_controller_that_goes_down_costs_no_result(tmp_path_factory: pytest.TempPathFactory, h100: str) -> None:
    """In the middle of a run whose first node never starts: all others are judged, nothing is drained, and it is once
    the controller is back."""
    place = tmp_path_factory.mktemp("down")
    for name in ALL:
        (place / f"{name}.json").write_text(h100)
    (inner := place / "cluster").mkdir()
    with slurm.cluster(inner) as cluster:
        running = cluster.start(*SRUN, "bash", task(place, {"n1": "exit 0"}, RECORDED))
        assert comes(lambda: len(list((place / "runs").glob("*/beats/n*.json"))) == len(ALL) - 1)
        assert cluster.controller is not None
        cluster.controller.kill()
        cluster.controller.wait()
        assert comes(lambda: len(list((place / "runs").glob("*/nodes/n*.json"))) == len(ALL) - 1)
        assert bad(judged(place)) == {"n1": Cause.NEVER_STARTED}
        drain = (sys.executable, "-m", "envkit", "drain", str(run_of(place)), "--apply")
        code, out, err = cluster.run(*drain)
        assert (code, out) == (3, "") and "fix: run it where Slurm's commands work" in err, (code, out, err)
        cluster.control()
        running.communicate(timeout=120)
        cluster.wait_idle()
        assert cluster.run(*drain)[0] == 0
        assert cluster.state("n1") == "drained"


OWNER = """
import sys
from pathlib import Path
import slurm
with slurm.cluster(Path(sys.argv[1])) as cluster:
    job = cluster.start("srun", "-N2", "sleep", "600")
    print("ready", flush=True)
    job.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_cluster_ends_with_whoever_started_it(cluster: Cluster, tmp_path: Path, number: signal.Signals) -> None:
    """In the middle of a job, whose steps and what they run are nobody's children; another cluster is not touched."""
    (inner := tmp_path / "cluster").mkdir()
    own = [sys.executable, "-c", OWNER, str(inner)]
    environment = {**cluster.environment, "PYTHONPATH": str(Path(slurm.__file__).parent)}
    owner = subprocess.Popen(own, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert owner.stdout is not None and owner.stdout.readline() == b"ready\n"
        assert comes(lambda: len({*processes.named("/sleep")} & {*slurm.processes_of(inner)}) == 2, 0.1)
        owner.send_signal(number)
        owner.communicate(timeout=PATIENCE_S)
    finally:
        owner.kill()
        owner.communicate()
    assert comes(lambda: not slurm.processes_of(inner), 0.1)
    assert len(slurm.processes_of(cluster.folder)) >= 2 + slurm.NODES


def test_failed_nodes_are_drained_and_return_once_they_are_ok(cluster: Cluster, place: Path) -> None:
    """n2 failed and is idle, n3 failed with somebody's job on it, n4 failed and was drained by somebody else."""
    bad_ones = {name: fleet.document(name, fleet.body(found=(fleet.fault(),))) for name in ("n2", "n3", "n4")}
    failed = fleet.lay(place / "failed", *fleet.healthy(**bad_ones))
    ok = fleet.lay(place / "ok", *fleet.healthy())
    job = cluster.start("srun", "-N1", "-w", "n3", "sleep", "600")
    assert comes(lambda: cluster.state("n3") not in ("idle", ""), 0.2)
    assert cluster.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=fan broken")[0] == 0
    shown = cluster.run(sys.executable, "-m", "envkit", "drain", str(failed))
    assert (shown[0], cluster.state("n2")) == (0, "idle")
    done = cluster.run(sys.executable, "-m", "envkit", "drain", str(failed), "--apply")
    assert done[0] == 0, done
    assert [cluster.state(name) for name in ("n1", "n2", "n3", "n4")] == ["idle", "drained", "draining", "drained"]
    assert job.poll() is None  # nobody's job is ended
    reasons = cluster.run("sinfo", "-h", "-N", "-o", "%N %E")[1]
    assert "n2 envkit slurm-17.0: host-gpu-lost: GPU 3 is gone" in reasons and "n4 fan broken" in reasons
    again = cluster.run(sys.executable, "-m", "envkit", "drain", str(failed), "--apply")
    assert again[0] == 0 and "by envkit" in again[1] and "0 of 0 changes" in again[2], again
    os.killpg(job.pid, signal.SIGTERM)
    job.communicate(timeout=120)
    assert comes(lambda: cluster.state("n3") == "drained", 0.2)
    still = cluster.run(sys.executable, "-m", "envkit", "drain", str(failed), "--undo", "--apply")
    assert (still[0], cluster.state("n2")) == (0, "drained")
    back = cluster.run(sys.executable, "-m", "envkit", "drain", str(ok), "--undo", "--apply")
    assert back[0] == 0, back
    assert comes(lambda: [cluster.state(name) for name in ("n2", "n3", "n4")] == ["idle", "idle", "drained"], 0.2)
    assert cluster.run("scontrol", "update", "NodeName=n4", "State=UNDRAIN")[0] == 0


PROLOG = Path(__file__).resolve().parents[1] / "docs" / "jobs" / "slurm-prolog.sh"


@NIGHTLY
def test_the_prolog_drains_a_node_that_does_not_meet_its_contract(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The script of docs/jobs as Slurm's Prolog: n5 is promised eight GPUs, the others none."""
    folder = tmp_path_factory.mktemp("prolog")
    (folder / "bin").mkdir()
    (folder / "bin" / "envkit").write_text(f'#!/bin/sh\nexec {ENVKIT} "$@"\n')
    (folder / "bin" / "envkit").chmod(0o755)
    for name, count in (("n5", 8), ("other", 0)):
        (folder / f"{name}.toml").write_text(f"[gpus]\ncount = {count}\n")
    script = folder / "prolog.sh"
    script.write_text(
        f"#!/bin/bash\nexport PATH={folder}/bin:/usr/bin:/bin\n"
        f'[ "$SLURMD_NODENAME" = n5 ] && name=n5 || name=other\n'
        f"export ENVKIT_EXPECT={folder}/$name.toml\nexec bash {PROLOG}\n"
    )
    script.chmod(0o755)
    inner = folder / "cluster"
    inner.mkdir()
    with slurm.cluster(inner, {"Prolog": str(script), "PrologEpilogTimeout": "60"}) as watched:
        good = watched.run("srun", "-N2", "-w", "n[1-2]", "true")
        assert good[0] == 0, good
        bad = watched.run("srun", "-N1", "-w", "n5", "true")
        assert bad[0] != 0, bad
        assert comes(lambda: "drain" in watched.state("n5"), 0.2)
        assert "Prolog error" in watched.run("sinfo", "-h", "-N", "-n", "n5", "-o", "%E")[1]
        assert {watched.state(name).strip("*") for name in ("n1", "n2", "n8")} == {"idle"}
        assert "the contract expects 8 GPUs" in (inner / "n5.log").read_text()


HEALTH = PROLOG.with_name("slurm-healthcheck.sh")


@NIGHTLY
def test_the_health_check_drains_a_node_and_returns_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The script of docs/jobs as Slurm's HealthCheckProgram: n5 is promised eight GPUs until its contract is mended; n4
    is drained by somebody else, and a job of n5 goes on."""
    folder = tmp_path_factory.mktemp("health")
    (folder / "bin").mkdir()
    (folder / "bin" / "envkit").write_text(f'#!/bin/sh\nexec {ENVKIT} "$@"\n')
    (folder / "bin" / "envkit").chmod(0o755)
    for name, count in (("n5", 8), ("other", 0)):
        (folder / f"{name}.toml").write_text(f"[gpus]\ncount = {count}\n")
    script = folder / "health.sh"
    (inner := folder / "cluster").mkdir()
    script.write_text(
        f"#!/bin/bash\nexport PATH={folder}/bin:/usr/bin:/bin SLURM_CONF={inner}/slurm.conf\n"
        f"[ -e {folder}/begin ] || exit 0\n"
        f'[ "$SLURMD_NODENAME" = n5 ] && name=n5 || name=other\n'
        f"export ENVKIT_EXPECT={folder}/$name.toml\nexec bash {HEALTH}\n"
    )
    script.chmod(0o755)
    every = {"HealthCheckProgram": str(script), "HealthCheckInterval": "8", "HealthCheckNodeState": "ANY"}
    with slurm.cluster(inner, every) as watched:
        job = watched.start("srun", "-N1", "-w", "n5", "sleep", "600")
        assert comes(lambda: watched.state("n5") == "mixed" or "alloc" in watched.state("n5"), 0.2)
        assert watched.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=fan broken")[0] == 0
        (folder / "begin").touch()
        assert comes(lambda: "drain" in watched.state("n5"), 0.5)
        assert job.poll() is None
        reasons = watched.run("sinfo", "-h", "-N", "-o", "%N %E")[1]
        assert "n5 envkit-health: ENVKIT CRITICAL" in reasons and "expects 8 GPUs" in reasons, reasons
        assert {watched.state(name).strip("*") for name in ("n1", "n2", "n8")} == {"idle"}
        (folder / "n5.toml").write_text("[gpus]\ncount = 0\n")
        assert comes(lambda: "drain" not in watched.state("n5"), 0.5)
        assert "n4 fan broken" in watched.run("sinfo", "-h", "-N", "-o", "%N %E")[1]
        os.killpg(job.pid, signal.SIGTERM)
        job.communicate(timeout=120)


PAGE = PROLOG.parents[1] / "fleet.md"


@NIGHTLY
def test_the_batch_script_of_the_page_gates_a_job(cluster: Cluster, place: Path) -> None:
    """As docs/fleet.md has it, but for what no machine without GPUs can do: the level, and torchrun."""
    block = PAGE.read_text().partition("```bash\n")[2].partition("```")[0]
    assert len(block.splitlines()) <= 10
    (bin_ := place / "bin").mkdir()
    (bin_ / "envkit").write_text(f'#!/bin/sh\nexec {ENVKIT} "$@"\n')
    (bin_ / "torchrun").write_text("#!/bin/sh\necho started $SLURMD_NODENAME of $ENVKIT_NODELIST\n")
    for each in bin_.iterdir():
        each.chmod(0o755)
    changed = block.replace("--nodes=10", "--nodes=8").replace("--level quick", "--level passive --gpus none")
    assert changed.count("--gpus none") == 1 and "--nodes=8" in changed
    (place / "job.sh").write_text(changed.replace("\nsrun", f"\nPATH={bin_}:$PATH\nsrun"))
    job = ("sbatch", "--wait", "-D", str(place), "-o", str(place / "job.out"), str(place / "job.sh"))
    code, _, err = cluster.run(*job)
    said = (place / "job.out").read_text()
    started = sorted(line for line in said.splitlines() if line.startswith("started"))
    assert (code, started) == (0, [f"started n{at} of n[1-6]" for at in range(1, 7)]), (err, said)
    assert "8 of 8 nodes ok" in said and "PASS: run slurm-" in said
