"""What ran on real GPUs, judged again: the recorded numbers stay green, the sabotaged ones red."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envkit import facts, judge
from envkit.model import Outcome, Result, Severity
from envkit.subjects import Image, Placement, SmokeRun, codec

GPU = Path(__file__).parent / "data" / "gpu"
UNTOLD = {"smoke-torch-not-promised"}  # the image was not built by envkit and promises nothing
# These need no GPU and came after the recordings, which hold no end of theirs.
LATER = {"smoke-torch-compile", "smoke-aoti-cpu", "smoke-triton-targets"}
GPU_TESTS = {"smoke-streams-events", "smoke-triton-add", "smoke-vector-add-nvrtc"}


def recorded(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GPU / f"{name}.json").read_text())
    return document


def judged(name: str) -> dict[str, Result]:
    document = recorded(name)
    kind = {"image": Image, "smoke": SmokeRun}[document["kind"]]
    results = judge.judge(codec.from_plain(kind, document["subject"]), facts.load())
    return {result.check: result for result in results}


@pytest.mark.parametrize("path", sorted(GPU.glob("*.json")), ids=lambda path: path.stem)
def test_evidence_says_where_and_when_it_was_taken(path: Path) -> None:
    assert {"gpu", "driver", "torch", "date"} <= set(json.loads(path.read_text())["recorded"])


def test_an_h100_passes_every_smoke_check() -> None:
    results = judged("h100-torch-2.11-cu130-smoke")
    assert {check for check, result in results.items() if result.outcome is not Outcome.PASS} == UNTOLD | LATER
    assert {results[check].outcome for check in UNTOLD} == {Outcome.SKIP}
    assert {results[check].outcome for check in LATER} == {Outcome.UNKNOWN}
    assert set(results) >= GPU_TESTS
    tests = recorded("h100-torch-2.11-cu130-smoke")["subject"]["tests"]["value"]
    assert sum(test["device"] == "cuda:0" and test["ended"] == "ran" for test in tests) == 12


@pytest.mark.parametrize("sabotage", ["ulp", "nan"])
def test_a_sabotaged_h100_fails_every_kernel_test_on_every_device(sabotage: str) -> None:
    name = f"h100-torch-2.11-cu130-smoke-{sabotage}"
    results = judged(name)
    spared = {check for check, result in results.items() if result.outcome is not Outcome.FAIL}
    # These measure no kernel, so nothing of theirs is disturbed.
    assert spared == {"smoke-import-leaves-cuda-alone", "smoke-gpu-not-seen"} | UNTOLD | LATER
    for test in recorded(name)["subject"]["tests"]["value"]:
        assert test["device"] in {finding.where for finding in results[f"smoke-{test['name']}"].findings}


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
    waits = {finding.where.partition(" ")[0] for finding in results["placement-waits"].findings}
    assert waits >= {"models.py:133", "models.py:135"}
    assert [finding.where.split()[0] for finding in results["placement-host-copies"].findings] == ["models.py:136"]
    assert followed("run-forks")["placement-fork-after-cuda"].outcome is Outcome.FAIL
