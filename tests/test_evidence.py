"""What ran on real GPUs, judged again: the recorded numbers stay green, those with an injected fault red."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import machines
import pytest
from gathered import gathered

from envkit import facts
from envkit.judging import judge, pages
from envkit.judging.throughput import figures
from envkit.model import Outcome, Result, Severity
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import chosen
from envkit.subjects import Host, Image, Placement, SmokeRun, codec

GPU = Path(__file__).parent / "data" / "gpu"
# Smoke tests that are younger than the recordings and wait for machines to be recorded on, one H100 and two H200.
NOT_RECORDED: frozenset[str] = frozenset({"operators"})


def recorded(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GPU / f"{name}.json").read_text())
    return document


def judged(name: str, without: frozenset[str] = NOT_RECORDED) -> dict[str, Result]:
    document = recorded(name)
    kind = {"image": Image, "smoke": SmokeRun, "host": Host}[document["kind"]]
    results = judge.judge(codec.from_plain(kind, document["subject"]), facts.load())
    younger = {f"smoke-{test}" for test in without}
    return {result.check: result for result in results if result.check not in younger}


@pytest.mark.parametrize("path", sorted(GPU.glob("*.json")), ids=lambda path: path.stem)
def test_evidence_says_where_and_when_it_was_taken(path: Path) -> None:
    assert {"gpu", "driver", "torch", "date"} <= set(json.loads(path.read_text())["recorded"])


H100_HOST = "h100-host"
H100, H200 = "h100-torch-2.11-cu130-smoke", "h200x2-torch-2.11-cu130-smoke"
RECORDED = tuple(test for test in TESTS if test.name not in NOT_RECORDED)
NEEDS_TWO = {test.name for test in RECORDED if test.several and not test.cpu}


def ended(name: str, how: str = "ran") -> set[str]:
    tests = recorded(name)["subject"]["tests"]["value"]
    return {test["name"] for test in tests if test["ended"] == how}


def test_an_h100_in_a_container_passes_the_whole_suite() -> None:
    results = judged(H100)
    wrong = {check for check, result in results.items() if result.outcome not in (Outcome.PASS, Outcome.SKIP)}
    assert wrong == set()
    asked = {test.name for test in chosen(RECORDED, "full")}
    assert ended(H100) == asked - NEEDS_TWO
    assert ended(H100, "not-applicable") == NEEDS_TWO


def test_an_h200_passes_the_operators_within_the_level_quick() -> None:
    results = judged("h200-torch-2.11-cu130-smoke-quick", frozenset())
    assert results["smoke-operators"].outcome is Outcome.PASS
    assert {check for check, result in results.items() if result.outcome not in (Outcome.PASS, Outcome.SKIP)} == set()
    document = recorded("h200-torch-2.11-cu130-smoke-quick")
    ran = {(test["name"], test["device"]) for test in document["subject"]["tests"]["value"] if test["ended"] == "ran"}
    assert ("operators", "cuda:0") in ran


def test_an_h200_passes_the_level_full_with_the_operators() -> None:
    results = judged("h200-torch-2.11-cu130-smoke", frozenset())
    assert {check for check, result in results.items() if result.outcome not in (Outcome.PASS, Outcome.SKIP)} == set()
    assert results["smoke-operators"].outcome is Outcome.PASS
    assert ended("h200-torch-2.11-cu130-smoke") == {test.name for test in chosen(TESTS, "full")} - NEEDS_TWO


def test_an_h200_can_do_all_that_is_tried_at_the_level_full() -> None:
    document = recorded("h200-torch-2.11-cu130-probe-abilities")
    abilities = document["subject"]["abilities"]["value"]
    assert abilities["level"] == "full"
    assert {"torch-compile", "triton-compile", "extension-build", "data-loader"} <= {
        one["kind"] for one in abilities["tried"] if one["end"] == "works"
    }
    results = judged("h200-torch-2.11-cu130-probe-abilities")
    worst = {
        check: max(one.severity for one in result.findings) for check, result in results.items() if result.findings
    }
    # The machine has an ONNX Runtime for the CPU beside its torch for CUDA.
    assert {check for check, severity in worst.items() if severity > Severity.NOTE} == {"image-framework-without-gpu"}


def test_two_h200_pass_the_whole_suite() -> None:
    results = judged(H200)
    wrong = {check for check, result in results.items() if result.outcome not in (Outcome.PASS, Outcome.SKIP)}
    assert wrong == set()
    assert ended(H200) == {test.name for test in chosen(RECORDED, "full")}
    devices = {test["device"] for test in recorded(H200)["subject"]["tests"]["value"]}
    assert devices == {"cpu", "cuda:0", "cuda:1", "gpus"}


@pytest.mark.parametrize("name", [f"{H100}-inject-fault-all", f"{H100}-inject-fault-rest", f"{H200}-inject-fault-all"])
def test_every_injected_fault_on_a_gpu_is_seen_by_every_test(name: str) -> None:
    results = judged(name)
    tests = [test for test in recorded(name)["subject"]["tests"]["value"] if test["ended"] != "not-applicable"]
    assert tests
    for test in tests:
        result = results[f"smoke-{test['name']}"]
        assert result.outcome is Outcome.FAIL, (test["name"], result.reason)
        assert test["device"] in {one.where for one in result.findings if one.severity is Severity.ERROR}


def test_all_but_two_tests_were_sabotaged_on_a_gpu_or_where_they_run() -> None:
    """The test's debugger was taken for refused there, by a warning that is none; ten seconds of load were not run."""
    red = {
        test["name"]
        for name in (f"{H100}-inject-fault-all", f"{H100}-inject-fault-rest", f"{H200}-inject-fault-all")
        for test in recorded(name)["subject"]["tests"]["value"]
        if test["ended"] != "not-applicable"
    }
    assert {test.name for test in RECORDED} - red == {"error-debugger", "speed-sustained"}


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_kernels_are_clean_under_compute_sanitizer(tool: str) -> None:
    results = judged(f"{H100}-{tool}")
    assert results["smoke-sanitizer"].outcome is Outcome.PASS
    assert len(ended(f"{H100}-{tool}")) >= 5
    assert {result.outcome for result in results.values()} <= {Outcome.PASS, Outcome.SKIP}


def test_the_quick_level_passes_and_stress_repeats() -> None:
    for name in (f"{H100}-quick", f"{H100}-stress"):
        assert {result.outcome for result in judged(name).values()} <= {Outcome.PASS, Outcome.SKIP}
    rounds = {test["name"]: test.get("rounds", 1) for test in recorded(f"{H100}-stress")["subject"]["tests"]["value"]}
    assert rounds["gemm-large"] > 1 and rounds["driver-memory"] > 1


def test_speeds_on_an_h100_and_two_h200_agree_with_nvidias_tools() -> None:
    """Within 3 % of nvbandwidth and of nccl-tests in the same hour."""
    known = facts.load()
    run = codec.from_plain(SmokeRun, recorded(H100)["subject"])
    seen = {(one.test, one.what): one.value for one in figures(run, known)}
    beside = {name.partition(",")[0]: value for name, value in recorded(H100)["recorded"]["beside"].items()}
    pairs = [
        (seen["speed-copy", "copy"], 2 * beside["nvbandwidth 0.8 device_local_copy"]),
        (seen["speed-host-copies", "h2d"], beside["nvbandwidth 0.8 host_to_device_memcpy_ce"]),
        (seen["speed-host-copies", "d2h"], beside["nvbandwidth 0.8 device_to_host_memcpy_ce"]),
    ]
    two = codec.from_plain(SmokeRun, recorded(H200)["subject"])
    (busbw,) = [one.value for one in figures(two, known) if one.test == "nccl-allreduce"]
    (nccl,) = recorded(H200)["recorded"]["beside"].values()
    pairs.append((busbw, sum(nccl) / len(nccl)))
    for ours, theirs in pairs:
        assert abs(ours / theirs - 1) < 0.03


def test_a_silent_rank_is_named_within_fifteen_seconds() -> None:
    (hang,) = [test for test in recorded(H200)["subject"]["tests"]["value"] if test["name"] == "error-hang-ranks"]
    assert hang["measures"]["nccl.named.wrong"] == hang["measures"]["nccl.left.behind"] == 0
    assert hang["measures"]["nccl.seconds"] < 15
    assert "rank 1 was last seen leaving step 4" in hang["detail"]


def test_the_doctor_says_of_an_h100_machine_what_was_true_of_it() -> None:
    """Each finding was held against the machine by hand: NVLink is switched off by a module's option there, the clock
    is not disciplined, the container toolkit is not installed, it had just started, and programs with planted faults
    had run on it."""
    results = judged(H100_HOST)
    found = {
        check: {finding.severity for finding in result.findings} for check, result in results.items() if result.findings
    }
    assert found == {
        "host-driver-options-discouraged": {Severity.WARNING},
        "host-program-faulted-on-gpu": {Severity.WARNING, Severity.NOTE},  # Xid 13 and 31, and 43 for what followed
        "host-clock-not-synchronised": {Severity.WARNING},
        "host-toolkit-missing": {Severity.WARNING},
        "host-recently-booted": {Severity.NOTE},
    }
    assert {result.outcome for result in results.values()} == {Outcome.PASS, Outcome.SKIP, Outcome.FAIL}
    seconds = recorded(H100_HOST)["recorded"]["beside"]
    assert max(seconds["envkit doctor, s, of three runs"]) <= 1.0


# on the recorded machine, the faults that the pages of these checks plant
BROKEN = (
    *(
        "host-bar1-too-small",
        "host-cdi-device-defined-twice",
        "host-cdi-disabled-in-docker",
        "host-cdi-spec-stale",
        "host-gpu-clock-capped-by-setting",
    ),
    *(
        "host-cuda-home-invalid",
        "host-debug-variables-left-on",
        "host-device-nodes-stale",
        "host-device-nodes-not-accessible",
    ),
    *("host-disk-space-low", "host-docker-config-invalid", "host-docker-too-old", "host-docker-unreachable"),
    *(
        "host-driver-api-mismatch",
        "host-driver-installed-twice",
        "host-driver-library-version-mismatch",
        "host-ecc-off",
    ),
    *(
        "host-driver-libraries-incomplete",
        "host-driver-blacklisted",
        "host-gpu-near-slowdown-temperature",
        "host-shm-too-small",
    ),
    *(
        "host-gpu-counts-differ",
        "host-gpu-not-responding",
        "host-gpu-excluded-from-driver",
        "host-gpu-initialization-failed",
        "host-resource-limits-too-low",
    ),
    *(
        "host-gpu-lost-from-bus",
        "host-gsp-not-responding",
        "host-library-path-has-foreign-libcuda",
        "host-gpu-uncontained-memory-error",
    ),
    *("host-available-memory-low", "host-gpu-retirement-event", "host-nouveau-loaded", "host-nvml-not-working"),
    *(
        "host-nvswitch-sxid-logged",
        "host-out-of-memory-kill",
        "host-persistence-mode-off",
        "host-row-remap-failed-or-pending",
    ),
    *("host-gpu-spare-rows-low", "host-cuda-visible-devices-invalid", "host-other-xid"),
)


@gathered(BROKEN)
def test_the_recorded_machine_broken_is_found(check: str) -> None:
    """The same machine with one fault planted, in more than thirty ways; its check passed before."""
    assert judged(H100_HOST)[check].outcome is Outcome.PASS
    found = 0
    for example in pages.load(check).examples:
        if (example.kind, example.outcome) != ("host", "fails"):
            continue
        changes = {path: value for path, value in json.loads(example.text).items() if path != "on"}
        try:
            broken = machines.changed(recorded(H100_HOST)["subject"], changes)
        except (AssertionError, IndexError, KeyError):
            continue  # a fault of a part that this machine has not, such as a second GPU
        results = judge.judge(codec.from_plain(Host, broken), facts.load())
        (result,) = [one for one in results if one.check == check]
        found += result.outcome is Outcome.FAIL
    assert found


def test_an_h100_image_binds_what_its_torch_was_built_for() -> None:
    results = judged("h100-torch-2.11-cu130-probe")
    assert {result.outcome for result in results.values()} == {Outcome.PASS, Outcome.SKIP, Outcome.FAIL}
    found = {
        check: {finding.severity for finding in result.findings} for check, result in results.items() if result.findings
    }
    assert found == {
        "image-extension-other-cuda": {Severity.NOTE},  # CuPy's runtime of its own
        "image-framework-library-clash": {Severity.NOTE},  # and torchvision's
        "image-framework-without-gpu": {Severity.WARNING},  # the ONNX Runtime there is the build for the CPU
    }
    driver = {check for check, result in results.items() if "driver" in check or "device" in check}
    assert {results[check].outcome for check in driver} == {Outcome.PASS}


def test_an_h100_image_shows_the_cudnn_that_is_bound_and_the_one_that_is_not() -> None:
    image = codec.from_plain(Image, recorded("h100-torch-2.11-cu130-probe")["subject"])
    (bound,) = image.mapped("cudnn")
    assert (bound.version, bound.owner) == ("9.19.0", "nvidia-cudnn-cu13")
    assert {one.path for one in image.bindings.need("bindings") if one.name == "cudnn"} == {bound.path}
    (idle,) = [lib for lib in image.unmapped.need("what is not mapped") if lib.name == "cudnn"]
    assert (idle.version, idle.path, idle.found_via) == (
        "9.14.0",
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.14.0",
        "on disk, in ld.so.cache",
    )
    assert image.mapped("cuda")


PLACED = {
    "cpu_input": ("placement-two-devices", "models.py:26", "input 0"),
    "two_gpus": ("placement-two-devices", "models.py:27", "two.weight"),
    "embedding": ("placement-two-devices", "models.py:37", "input 0"),
    "half_float": ("placement-dtype-mix", "models.py:27", "two.weight"),
    "frozen_mixed": ("placement-two-devices", "models.py:119", "frozen.weight"),
}
CLEAN = ("clean", "embedding_clean", "half_clean", "frozen_clean", "autocast", "moved", "context")


TWO, ONE = "h200x2-torch-2.11-cu130-placement", "h100-torch-2.11-cu130-placement"


def followed(case: str, machine: str = TWO) -> dict[str, Result]:
    plain = recorded(machine)["subjects"][case]
    results = judge.judge(codec.from_plain(Placement, plain), facts.load())
    return {result.check: result for result in results}


@pytest.mark.parametrize("how", ["run", "fake", "trace"])
@pytest.mark.parametrize("case", PLACED)
def test_a_misplaced_tensor_is_found_with_its_line_on_gpus_and_without(how: str, case: str) -> None:
    check, line, name = PLACED[case]
    result = followed(f"{how}-{case}")[check]
    assert result.outcome is Outcome.FAIL
    assert [finding.where.split()[0] for finding in result.findings] == [line]
    assert name in str(result.findings)


@pytest.mark.parametrize("case", [case for case in PLACED if case != "two_gpus"])
def test_a_misplaced_tensor_is_found_with_its_line_on_an_h100(case: str) -> None:
    check, line, name = PLACED[case]
    for run in [f"run-{case}"] + ["container-cpu_input"] * (case == "cpu_input"):
        (finding,) = followed(run, ONE)[check].findings
        assert finding.where.split()[0] == line
        assert name in finding.message


@pytest.mark.parametrize("machine", [ONE, TWO])
@pytest.mark.parametrize("case", CLEAN)
def test_a_model_in_its_place_is_clean_on_gpus(case: str, machine: str) -> None:
    results = followed(f"run-{case}", machine)
    found = {check for check, result in results.items() if result.outcome is not Outcome.PASS}
    skipped = {check for check in found if results[check].outcome is Outcome.SKIP}
    assert found == skipped
    assert "placement-two-devices" not in skipped and "placement-dtype-mix" not in skipped


def test_two_ranks_on_one_gpu_are_found_and_one_each_is_clean() -> None:
    (finding,) = followed("ranks-on-one-gpu")["placement-ranks-share-gpu"].findings
    assert "0 and 1" in finding.message
    assert followed("ranks-on-one-each")["placement-ranks-share-gpu"].outcome is Outcome.PASS


def test_copies_and_waits_are_told_with_their_lines_on_gpus() -> None:
    results = followed("run-reader")
    waits = {finding.where.partition(" ")[0] for finding in results["placement-host-waits-for-gpu"].findings}
    assert waits >= {"models.py:133", "models.py:135"}
    assert [finding.where.split()[0] for finding in results["placement-host-copies"].findings] == ["models.py:136"]
    assert followed("run-forks")["placement-fork-after-cuda"].outcome is Outcome.FAIL


def test_the_page_of_the_suite_is_what_the_recorded_runs_say() -> None:
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "scripts/smoke_table.py", "--check"], cwd=root, timeout=60)
    assert done.returncode == 0, "run `python scripts/smoke_table.py`"


def test_the_table_of_checks_is_current_and_each_has_its_fault_and_its_twin() -> None:
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "scripts/check_table.py", "--check"], cwd=root, timeout=60)
    assert done.returncode == 0, "run `python scripts/check_table.py`"
    rows = [line for line in (root / "docs" / "checks.md").read_text().splitlines() if line.startswith("| [")]
    assert len(rows) >= 200
