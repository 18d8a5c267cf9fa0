"""The table of variables and the one judgement of it, for each kind of subject."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import answers
import machines
import pytest
from environments import HEALTHY
from gathered import gathered

from envkit import facts
from envkit.judging import judge
from envkit.judging import variables as judgement
from envkit.model import Observed, Outcome, Severity, Unknown
from envkit.payload.probe import environ
from envkit.subjects import Audit, Image
from envkit.subjects.image import Process, Start, StartReached, TorchBuild, Variable

FACTS = facts.load()
ROWS = judgement.rows(FACTS)
ALARMS = (Severity.WARNING, Severity.ERROR)


def found(variables: Mapping[str, str], torch: str = "", **places: str) -> list[tuple[str, Severity]]:
    """What is wrong with variables, as names and severities; raises Unknown where something stayed open."""
    known = judgement.Known(
        "env", lambda program: torch if program == "torch" else "", lambda name, path: places.get(name)
    )
    findings, doubts = judgement.invalid(variables, known, FACTS)
    if doubts:
        raise Unknown("; ".join(doubts))
    return [(finding.where, finding.severity) for finding in findings]


# ---------------------------------------------------------------- the table


def test_every_row_can_be_judged_and_is_recorded() -> None:
    types = {*judgement.TYPES, *judgement.FLAGS, *judgement._PLACES, "allocator", "number flag", "set flag"}
    for row in FACTS.variables:
        assert row.type in types, row.name
        assert ":" in row.name or environ.steers(row.name) or row.name == "TMPDIR", row.name
        assert row.otherwise or row.type in ("text", "set flag", "search path"), row.name
        assert {row.severity, row.weighs or "note"} <= {"note", "warning", "error"}, row.name
        assert (row.costs is None) == (row.weighs is None), row.name
        if row.type == "pattern":
            re.compile(row.values[0])
            assert row.form, row.name
    for pair in FACTS.variable_pairs:
        for name, relation, other in pair.when:
            assert relation in judgement.RELATIONS, pair.id
            assert name in ROWS, pair.id
            assert other in ROWS or not re.fullmatch("[A-Z][A-Z_]{4,}", other), pair.id
    assert len(FACTS.variables) >= 300


@gathered(list(ROWS))
def test_what_costs_something_is_a_value_that_the_program_takes(name: str) -> None:
    row = ROWS[name]
    for value in row.on:
        if value != "*" and row.type not in ("text",):
            assert judgement.left_on(row, value)
            assert judgement.problem(row, value, judgement.Known("env")) == "", value


def test_the_table_of_the_documentation_is_current() -> None:
    script = Path(__file__).parents[1] / "scripts" / "variable_table.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0


# ---------------------------------------------------------------- healthy environments


@gathered(list(HEALTHY))
def test_a_healthy_environment_raises_no_alarm(name: str) -> None:
    env = HEALTHY[name]
    assert [one for one in found(env) if one[1] in ALARMS] == []
    assert list(judgement.contradictions(env, "env", FACTS)) == []
    kept = tuple(Variable(key, value) for key, value in sorted(env.items()) if environ.steers(key))
    given = Observed.of(kept, "env")
    torch = Observed.of((), "metadata")
    for subject in (Image("i", variables=given, wheels=torch), Audit("i", variables=given, wheels=torch)):
        for check in ("image-variable-invalid", "image-variables-contradict", "image-debug-variables-left-on"):
            said = answers.judged(check, subject)
            assert said.outcome not in (Outcome.UNKNOWN, Outcome.CRASHED), (check, said.reason)
            assert [one.message for one in said.findings if one.severity in ALARMS] == []
    if env.get("NVIDIA_VISIBLE_DEVICES") != "void":  # a container's runtime sets that, an image does not
        assert hidden(Audit("i", variables=given)) == []
    assert hidden(Image("i", variables=given)) == []


@gathered([name for name in HEALTHY if not name.startswith("Kubernetes")])
def test_a_healthy_environment_raises_no_alarm_on_a_machine(name: str) -> None:
    host = machines.host("h100", {f"environment.{key}": value for key, value in HEALTHY[name].items()})
    for check in ("host-variable-invalid", "host-variables-contradict", "host-debug-variables-left-on"):
        said = answers.judged(check, host)
        assert said.outcome is not Outcome.UNKNOWN, said.reason
        assert [one.message for one in said.findings if one.severity in ALARMS] == []


# ---------------------------------------------------------------- torch's allocator


@pytest.mark.parametrize(
    "text",
    [
        "expandable_segments:True",
        "max_split_size_mb:512, garbage_collection_threshold:0.6",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[64:8,256:4,1024:0,>:1],backend:native",
        "backend:cudaMallocAsync",
        "expandable_segments:True,",
        "max_split_size_mb:512MB",
        "per_process_memory_fraction:1.0",
        "",
    ],
)
def test_settings_of_the_allocator_that_torch_reads(text: str) -> None:
    assert found({"PYTORCH_CUDA_ALLOC_CONF": text}) == []


@pytest.mark.parametrize(
    "text",
    [
        "expandable_segments=True",
        "expandable_segments:",
        "expandable_segments:1",
        "max_split_size_mb:19",
        "max_split_size_mb:1g",
        "max_split_size_mb:all",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:0",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[256:3]",
        "roundup_power2_divisions:[256:1",
        "backend:cuda",
        "expandable_segments:True,,backend:native",
        "expandable_segments:True;backend:native",
        "max_split_size_mb:-1",
        "expandable_segment:True",
        "pinned_num_register_threads:3",
    ],
)
def test_settings_of_the_allocator_that_torch_refuses(text: str) -> None:
    wrong = found({"PYTORCH_CUDA_ALLOC_CONF": text})
    assert {severity for _, severity in wrong} == {Severity.ERROR}


def test_a_setting_is_held_against_the_installed_torch() -> None:
    later = {"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.5"}
    assert found(later, torch="2.6.0+cu124") == [("PYTORCH_CUDA_ALLOC_CONF", Severity.ERROR)]
    assert found(later, torch="2.15.0") == found(later) == []
    strange = {"PYTORCH_CUDA_ALLOC_CONF": "of_tomorrow:1"}
    assert found(strange, torch="2.6.0") == [("PYTORCH_CUDA_ALLOC_CONF", Severity.ERROR)]
    with pytest.raises(Unknown):
        found(strange)
    newer = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert found(newer, torch="2.6.0+cu124") == [("PYTORCH_ALLOC_CONF", Severity.WARNING)]
    assert found(newer, torch="2.15.0") == []


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("OMP_NUM_THREADS", "0", Severity.WARNING),
        ("OMP_NUM_THREADS", "all", Severity.WARNING),
        ("OMP_NUM_THREADS", "4,0", Severity.WARNING),
        ("OMP_PROC_BIND", "yes", Severity.WARNING),
        ("OMP_DYNAMIC", "1", Severity.WARNING),
        ("OMP_PLACES", "nope", Severity.WARNING),
        ("OMP_SCHEDULE", "fast", Severity.WARNING),
        ("OMP_STACKSIZE", "8Q", Severity.WARNING),
        ("KMP_AFFINITY", "granularity=core2", Severity.WARNING),
        ("MKL_THREADING_LAYER", "GNUX", Severity.WARNING),
        ("CUBLAS_WORKSPACE_CONFIG", "4096:8", Severity.ERROR),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096,8", Severity.ERROR),
        ("NCCL_ALGO", "Rings", Severity.ERROR),
        ("NCCL_PROTO", "LL256", Severity.ERROR),
        ("NCCL_DEBUG", "INF0", Severity.WARNING),
        ("NCCL_P2P_LEVEL", "nvl", Severity.WARNING),
        ("NCCL_BUFFSIZE", "4MB", Severity.WARNING),
        ("NCCL_P2P_DISABLE", "true", Severity.WARNING),
        ("NCCL_IB_TIMEOUT", "32", Severity.WARNING),
        ("NCCL_SOCKET_IFNAME", "eth0 eth1", Severity.ERROR),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "true", Severity.ERROR),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "", Severity.ERROR),
        ("TORCH_NCCL_BLOCKING_WAIT", "enable", Severity.ERROR),
        ("NCCL_BLOCKING_WAIT", "2", Severity.ERROR),
        ("TORCH_DISTRIBUTED_DEBUG", "VERBOSE", Severity.ERROR),
        ("TORCH_LOGS", "dynamo inductor", Severity.ERROR),
        ("TORCH_CUDA_ARCH_LIST", "8.0,9.0", Severity.WARNING),
        ("TORCH_CUDA_ARCH_LIST", "sm_90", Severity.WARNING),
        ("TORCH_CUDA_ARCH_LIST", "8.0;9.9+PTX", Severity.WARNING),
        ("TORCHINDUCTOR_COMPILE_THREADS", "many", Severity.ERROR),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "yes", Severity.WARNING),
        ("TRITON_OVERRIDE_ARCH", "hopper", Severity.ERROR),
        ("MASTER_PORT", "70000", Severity.ERROR),
        ("MASTER_PORT", "29500:29501", Severity.ERROR),
        ("MASTER_ADDR", "http://node0", Severity.ERROR),
        ("MASTER_ADDR", "node0:29500", Severity.ERROR),
        ("RANK", "-1", Severity.ERROR),
        ("WORLD_SIZE", "0", Severity.ERROR),
        ("PYTHONHASHSEED", "abc", Severity.ERROR),
        ("PYTHONHASHSEED", "4294967296", Severity.ERROR),
        ("PYTHONUTF8", "2", Severity.ERROR),
        ("PYTHONMALLOC", "jemalloc", Severity.ERROR),
        ("JAX_PLATFORMS", "gpus", Severity.ERROR),
        ("XLA_FLAGS", "xla_gpu_autotune_level=0", Severity.ERROR),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "80%", Severity.ERROR),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "yes", Severity.WARNING),
        ("HF_HUB_OFFLINE", "2", Severity.WARNING),
        ("HF_ENDPOINT", "hf-mirror.example", Severity.ERROR),
        ("UCX_TLS", "rc_x,cuda_cop", Severity.WARNING),
        ("GLOO_SOCKET_IFNAME", "eth0;eth1", Severity.ERROR),
        ("CUDA_DEVICE_ORDER", "PCI_BUS", Severity.WARNING),
        ("CUDA_CACHE_MAXSIZE", "4G", Severity.WARNING),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "0", Severity.WARNING),
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utilities", Severity.ERROR),
        ("NVIDIA_VISIBLE_DEVICES", "gpu0", Severity.ERROR),
        ("NVIDIA_TF32_OVERRIDE", "off", Severity.WARNING),
    ],
)
def test_a_value_that_its_program_does_not_take(name: str, value: str, severity: Severity) -> None:
    assert found({name: value}) == [(name, severity)]


def test_the_architectures_of_torch_s_list_are_those_of_the_facts() -> None:
    (row,) = (row for row in FACTS.variables if row.name == "TORCH_CUDA_ARCH_LIST")
    assert list(row.values) == [f"{arch.sm.major}.{arch.sm.minor}" for arch in FACTS.archs]


def test_a_word_that_only_a_later_release_may_know_is_open() -> None:
    for name, value in (("NCCL_ALGO", "quantum"), ("JAX_PLATFORMS", "neuron"), ("TORCH_CUDA_ARCH_LIST", "19.0")):
        with pytest.raises(Unknown):
            found({name: value})


@pytest.mark.parametrize(
    ("name", "there", "wrong"),
    [
        ("TRITON_PTXAS_PATH", "absent", True),
        ("TRITON_PTXAS_PATH", "file", True),  # it may not be run
        ("TRITON_PTXAS_PATH", "program", False),
        ("PYTHONHOME", "absent", True),
        ("PYTHONHOME", "directory", False),
        ("TRITON_CACHE_DIR", "absent", False),  # Triton makes it
        ("TRITON_CACHE_DIR", "file", True),
        ("TMPDIR", "absent", True),
        ("NCCL_TOPO_FILE", "absent", True),
        ("CUDA_HOME", "directory", False),
    ],
)
def test_what_lies_at_a_path(name: str, there: str, wrong: bool) -> None:
    assert bool(found({name: "/some/where"}, **{name: there})) is wrong
    assert found({name: "some/where"}, **{name: there}) == []


def test_a_path_that_nobody_could_look_at_is_open() -> None:
    with pytest.raises(Unknown):
        found({"PYTHONHOME": "/x"}, PYTHONHOME="")


# ---------------------------------------------------------------- GPUs


@pytest.mark.parametrize("value", ["", " ", "-1", "-1,0", "none", "NoDevFiles", "void", ",0"])
def test_what_hides_every_gpu(value: str) -> None:
    assert judgement.hides_all(value)
    assert found({"CUDA_VISIBLE_DEVICES": value}) == [("CUDA_VISIBLE_DEVICES", Severity.ERROR)]


@pytest.mark.parametrize("value", ["0,0", "GPU-a,GPU-a", "0,x,1", "0,2,-1,1", "0,GPU-abc", "MIG-a,MIG-b"])
def test_what_hides_some_or_ends_cuda_without_knowing_the_gpus(value: str) -> None:
    assert not judgement.hides_all(value)
    assert found({"CUDA_VISIBLE_DEVICES": value}) == [("CUDA_VISIBLE_DEVICES", Severity.ERROR)]


def hidden(subject: Image | Audit) -> list[str]:
    said = judge.run(judge.checks()["image-gpus-hidden"], subject, FACTS)
    return [finding.where for finding in said.findings]


def test_gpus_are_hidden_by_the_image_the_entry_point_or_python_but_not_by_its_runtime() -> None:
    def image(config: dict[str, str], process: dict[str, str], seen: dict[str, str]) -> Image:
        told = [tuple(Variable(*pair) for pair in part.items()) for part in (config, process, seen)]
        return Image(
            "i",
            variables=Observed.of(told[2], "os.environ"),
            start=Observed.of(Start(("python3",), "python3", StartReached.REACHED, variables=told[0]), "image config"),
            process=Observed.of(
                Process("python3", "/usr", "/", 0, 0, "root", "/root", "", told[1], ("/site/hide.pth",)), "/proc"
            ),
            engine="Docker",
        )

    void, empty = {"NVIDIA_VISIBLE_DEVICES": "void"}, {"CUDA_VISIBLE_DEVICES": ""}
    assert hidden(image({}, void, void)) == []
    assert hidden(image(void, void, void)) == ["NVIDIA_VISIBLE_DEVICES"]
    assert hidden(image({}, {}, empty)) == ["CUDA_VISIBLE_DEVICES"]
    (finding,) = judge.run(judge.checks()["image-gpus-hidden"], image({}, {}, empty), FACTS).findings
    assert "Python's own start" in finding.message and "/site/hide.pth" in finding.evidence
    cpu = replace(image({}, {}, empty), torch=Observed.of(TorchBuild("2.6.0+cpu", "", "", "", (), ""), "torch"))
    assert judge.run(judge.checks()["image-gpus-hidden"], cpu, FACTS).outcome is Outcome.SKIP
    # an engine without containers hides the GPUs of a run that is to have none
    ours = replace(image({}, {}, empty), start=Observed.unsupported(), wheels=Observed.of((), "metadata"))
    assert hidden(ours) == []
    assert judge.run(judge.checks()["image-variable-invalid"], ours, FACTS).outcome is Outcome.PASS


# ---------------------------------------------------------------- contradictions


def together(variables: dict[str, str]) -> list[str]:
    return [finding.where for finding in judgement.contradictions(variables, "env", FACTS)]


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "8", "WORLD_SIZE": "8", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"},
        {"RANK": "0", "WORLD_SIZE": "2"},
        {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node0"},
        {"RANK": "9", "LOCAL_RANK": "8", "LOCAL_WORLD_SIZE": "8"},
        {"LOCAL_RANK": "2", "CUDA_VISIBLE_DEVICES": "0,1"},
        {"CUDA_VISIBLE_DEVICES": "4,5", "NVIDIA_VISIBLE_DEVICES": "4,5"},
        {"MASTER_PORT": "0", "WORLD_SIZE": "2"},
        {"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5_0"},
        {"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "NVL"},
        {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
        {"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "8"},
        {"TORCH_NCCL_BLOCKING_WAIT": "0", "NCCL_BLOCKING_WAIT": "1"},
        {"CUDA_FORCE_PTX_JIT": "1", "CUDA_DISABLE_PTX_JIT": "1"},
        {"PYTORCH_ALLOC_CONF": "backend:native", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        {"HF_HUB_CACHE": "/a", "HUGGINGFACE_HUB_CACHE": "/b"},
        {"OMP_NUM_THREADS": "8", "OMP_THREAD_LIMIT": "4"},
        {"OMP_PROC_BIND": "false", "GOMP_CPU_AFFINITY": "0-3"},
    ],
)
def test_variables_that_contradict_each_other(variables: dict[str, str]) -> None:
    assert len(together(variables)) == 1


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "7", "WORLD_SIZE": "8", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"},
        {"WORLD_SIZE": "8"},
        {"RANK": "0", "WORLD_SIZE": ""},
        {"LOCAL_RANK": "3", "CUDA_VISIBLE_DEVICES": "3"},
        {"CUDA_VISIBLE_DEVICES": "0,1", "NVIDIA_VISIBLE_DEVICES": "4,5"},
        {"CUDA_VISIBLE_DEVICES": "4", "NVIDIA_VISIBLE_DEVICES": "all"},
        {"CUDA_VISIBLE_DEVICES": "4", "NVIDIA_VISIBLE_DEVICES": "void"},
        {"MASTER_PORT": "0", "WORLD_SIZE": "1"},
        {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "mlx5_0"},
        {"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "LOC"},
        {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
        {"PYTORCH_ALLOC_CONF": "a:1,b:2", "PYTORCH_CUDA_ALLOC_CONF": "a:1, b:2"},
    ],
)
def test_variables_that_go_together(variables: dict[str, str]) -> None:
    assert together(variables) == []
