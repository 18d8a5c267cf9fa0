"""Every GPU against every build: the solver says yes exactly where a second reading of the compiled lists does.

The second reading is written from NVIDIA's rules alone (CUDA C++ Programming Guide, binary and PTX compatibility) and
shares no code with the product: it takes the tables' own JSON.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gathered import gathered

from envkit.errors import Unsatisfiable
from envkit.facts import load as load_facts
from envkit.plan.resolve import Choice, resolve
from envkit.plan.spec import parse
from envkit.versions import Sm

FACTS = load_facts()
TABLES = Path(__file__).parent.parent / "envkit" / "facts"
MACHINES = {"x86_64": ("archs", "ptx", "linux/amd64"), "aarch64": ("archs_aarch64", "ptx_aarch64", "linux/arm64")}


def table(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TABLES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


TORCHES = table("torch")
# One row a capability is enough for the solver: the names of one are tried in test_a_name_means_its_capability.
GPUS = {row["sm"]: row for row in [*table("arch"), *table("gpu")]}


def number(arch: str) -> tuple[int, int, str]:
    """ "sm_103a" as (10, 3, "a")."""
    found = re.fullmatch(r"(?:sm|compute)_([0-9]+)([0-9])([af]?)", arch)
    assert found, arch
    return int(found[1]), int(found[2]), found[3]


def runs(sm: str, tegra: bool, compiled: str) -> bool:
    """Machine code: of the same major, no newer minor; of exactly its GPU for "a" and "f" and on and for Tegra."""
    (major, minor, _), (of_major, of_minor, suffix) = number(sm), number(compiled)
    if suffix or tegra:
        return (major, minor) == (of_major, of_minor)
    return major == of_major and minor >= of_minor


def compiles(sm: str, virtual: str) -> bool:
    """PTX: for its own capability and every higher one, unless it is of one architecture."""
    (major, minor, _), (of_major, of_minor, suffix) = number(sm), number(virtual)
    return (major, minor) == (of_major, of_minor) if suffix else (major, minor) >= (of_major, of_minor)


def reading(torch: dict[str, Any], machine: str, sm: str, tegra: bool) -> str:
    """ "sass", "ptx", "none" or "unknown", from the lists of one row."""
    sass, ptx = (torch[label] for label in MACHINES[machine][:2])
    if sass is None:
        return "unknown"
    if any(runs(sm, tegra, arch) for arch in sass):
        return "sass"
    if ptx is None:
        return "unknown"
    return "ptx" if any(compiles(sm, arch) for arch in ptx) else "none"


def offered(torch: dict[str, Any], machine: str) -> bool:
    """Whether a CUDA build for the machine was published at all, as far as read."""
    if torch["published"] is not True:
        return False
    if machine == "x86_64":
        return True
    return bool(torch["pypi_aarch64"] == "cuda" if torch["default"] else torch["archs_aarch64"] is not None)


def is_first(torch: dict[str, Any], machine: str) -> bool:
    """Whether no earlier build that was published has the same compiled lists."""
    sass, ptx, _ = MACHINES[machine]
    same = [row for row in TORCHES if offered(row, machine) and (row[sass], row[ptx]) == (torch[sass], torch[ptx])]
    return same[0] is torch


def python_of(torch: dict[str, Any]) -> str:
    """A Python that the release has wheels for and that a known system ships."""
    default = next(row for row in TORCHES if row["torch"] == torch["torch"] and row["default"])
    shipped = [str(row["python"]) for row in table("os")]
    return next(python for python in shipped if f"cp{python.replace('.', '')}" in default["pythons"])


def ask(wish: dict[str, Any]) -> Choice:
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in wish.items())
    return resolve(parse(text, Path("/srv/job/envkit.toml")), FACTS)


def answer(wish: dict[str, Any]) -> Choice | Unsatisfiable:
    try:
        return ask(wish)
    except Unsatisfiable as error:
        return error


def refused(wish: dict[str, Any]) -> Unsatisfiable:
    with pytest.raises(Unsatisfiable) as caught:
        ask(wish)
    return caught.value


def test_the_tables_hold_what_the_reading_needs() -> None:
    assert len(TORCHES) > 80
    assert len(GPUS) > 20
    assert {row["tegra"] for row in GPUS.values()} == {True, False}
    answers = {
        reading(row, machine, sm, gpu["tegra"]) for row in TORCHES for machine in MACHINES for sm, gpu in GPUS.items()
    }
    assert answers == {"sass", "none", "unknown"}  # so far every GPU that PTX would serve has machine code as well


@gathered(TORCHES)
def test_coverage_is_that_of_the_second_reading(torch: dict[str, Any]) -> None:
    row = next(row for row in FACTS.torches if row.name == f"{torch['torch']}+{torch['variant']}")
    for machine in MACHINES:
        for gpu in FACTS.gpus:
            found = FACTS.coverage(row, gpu.sm, gpu.tegra, machine)
            assert found.state == reading(torch, machine, str(gpu.sm), gpu.tegra), (gpu.name, machine)
            if found.by is not None:
                lists = torch[MACHINES[machine][0]] + (torch[MACHINES[machine][1]] or [])
                assert str(found.by) in [arch.replace("compute_", "sm_") for arch in lists]


@pytest.mark.nightly
@pytest.mark.slow  # thousands of wishes: every torch, on every machine, for every GPU
@gathered(TORCHES)
def test_the_solver_says_yes_exactly_where_the_second_reading_does(torch: dict[str, Any]) -> None:
    for machine, (_, _, platform) in MACHINES.items():
        wish = {"torch": torch["torch"], "cuda": torch["cuda"], "python": python_of(torch), "platform": platform}
        states = {sm: reading(torch, machine, sm, gpu["tegra"]) for sm, gpu in GPUS.items()}
        served = [sm for sm, state in states.items() if state in ("sass", "ptx")]
        if not offered(torch, machine):
            assert isinstance(answer({**wish, "gpus": ["sm_90"]}), Unsatisfiable)
            continue
        made = ask({**wish, "gpus": served})
        assert made.row is not None
        assert made.row.name == f"{torch['torch']}+{torch['variant']}"
        assert [str(target.sm) for target in made.targets] == served
        for target in made.targets:
            assert target.by.startswith("machine code" if states[str(target.sm)] == "sass" else "PTX")
        left = [sm for sm, state in states.items() if state in ("none", "unknown")]
        # each takes milliseconds: builds with the same lists as an earlier one are asked for one GPU of those
        for sm in left if is_first(torch, machine) else left[:1]:
            error = refused({**wish, "gpus": [sm]})
            said = f"has no kernels for {sm} " if states[sm] == "none" else f"has kernels for {sm} "
            assert said in error.message
            assert f"torch {torch['torch']} with CUDA {torch['cuda']}" not in error.nearest


def test_a_name_means_its_capability() -> None:
    for gpu in FACTS.gpus:
        assert FACTS.gpu(gpu.name).sm == gpu.sm
        assert FACTS.gpu(str(gpu.sm)).tegra == gpu.tegra


# Some by name, with the answer that people expect.

PY = {"python": "3.11"}


def test_rtx_5090_under_a_torch_older_than_it() -> None:
    error = refused({"torch": "2.6.0", **PY, "gpus": ["RTX 5090"]})
    assert "has no kernels for sm_120 (RTX 5090): needs torch >= 2.7.0 with CUDA >= 12.8" in error.message
    assert error.nearest[0] == "torch 2.7.0 with CUDA 12.8"


def test_v100_came_back_and_went() -> None:
    def served(torch: str, cuda: str) -> bool:
        return isinstance(answer({"torch": torch, "cuda": cuda, **PY, "gpus": ["V100"]}), Choice)

    assert not served("2.7.0", "12.8")
    assert [served(torch, "12.8") for torch in ("2.8.0", "2.9.0", "2.9.1", "2.10.0")] == [True] * 4
    assert not served("2.11.0", "12.8")
    assert [served(torch, "12.6") for torch in ("2.11.0", "2.14.1")] == [True] * 2
    error = refused({"torch": "2.15.0", **PY, "gpus": ["V100"]})
    assert error.message.endswith("the last torch with them is 2.14.1+cu126")
    assert error.nearest[0] == "torch 2.14.1 with CUDA 12.6"


def test_ada_runs_the_code_of_ampere() -> None:
    made = ask({"torch": "2.7.0", "cuda": "12.8", **PY, "gpus": ["L4", "RTX 4090"]})
    assert {target.by for target in made.targets} == {"machine code of sm_86"}
    assert made.notes == ()


@pytest.mark.parametrize(("cuda", "by"), [("12.8", "machine code of sm_100"), ("13.0", "machine code of sm_100")])
def test_b300_runs_the_code_of_b200(cuda: str, by: str) -> None:
    made = ask({"torch": "2.9.1", "cuda": cuda, **PY, "gpus": ["B300"]})
    assert [(str(target.sm), target.by) for target in made.targets] == [("sm_103", by)]


def test_b300_under_a_build_without_blackwell() -> None:
    error = refused({"torch": "2.9.1", "cuda": "12.6", **PY, "gpus": ["B300"]})
    assert error.message.endswith("has no kernels for sm_103 (B300): torch 2.9.1 has them for CUDA 12.8 and 13.0")


def test_gb10_runs_the_code_of_its_family() -> None:
    made = ask({"torch": "2.9.1", "cuda": "13.0", **PY, "gpus": ["GB10"]})
    assert made.targets[0].by == "machine code of sm_120"


def test_a_driver_within_the_major_and_one_below_it() -> None:
    made = ask({"torch": "2.9.1", "cuda": "12.6", **PY, "gpus": ["A100"], "driver": "535"})
    assert str(made.driver) == "525.60.13"
    assert "minor-version compatibility" in made.notes[0]
    error = refused({"torch": "2.9.1", "cuda": "13.0", **PY, "gpus": ["A100"], "driver": "535"})
    assert error.message == "torch 2.9.1+cu130 needs driver 580.65.06 or newer, but the spec declares 535"


def test_grace_hopper_under_a_release_whose_arm_wheel_has_no_cuda() -> None:
    wish = {"torch": "2.9", **PY, "platform": "linux/arm64", "gpus": ["GH200"]}
    error = refused(wish)
    assert error.message == (
        "the aarch64 wheel of torch 2.9.1 on the default index is CPU-only: CUDA is included from torch 2.11.0 on"
    )
    assert error.nearest[0] == "torch 2.11.0 with CUDA 13.0"
    made = ask({**wish, "torch": "2.11"})
    assert [(str(target.sm), target.by) for target in made.targets] == [("sm_90", "machine code of sm_90")]


def test_ptx_serves_its_own_capability_and_later_ones() -> None:
    """No row serves a GPU by PTX alone; the rule is checked for all pairs of capabilities."""
    for virtual in GPUS:
        for sm in GPUS:
            assert Sm.parse(sm).compiles(Sm.parse(virtual)) == compiles(sm, virtual)


def test_family_and_architecture_code_runs_on_its_own_gpu_alone() -> None:
    """No row holds such code; the rule is checked where the rows would meet it."""
    for compiled in ("sm_90a", "sm_100f", "sm_100a"):
        for sm in GPUS:
            assert Sm.parse(sm).runs(Sm.parse(compiled)) == runs(sm, False, compiled)
            assert Sm.parse(sm).compiles(Sm.parse(compiled)) == compiles(sm, compiled)
