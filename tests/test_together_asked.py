"""What the solver is asked while torch and the rest are chosen together, question by question, and what is made of its
answers; the solver is a list of answers.  `test_together.py` has the real one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from envkit.errors import EnvkitError, Undecided, Unsatisfiable
from envkit.facts import Facts
from envkit.facts import load as load_facts
from envkit.facts.pairs import lacks_cuda
from envkit.plan import together
from envkit.plan.resolve import Choice, feasible
from envkit.plan.spec import Platform, Spec, parse
from envkit.plan.together import Chosen, Release, Unmeant
from envkit.versions import Cuda

FACTS: Facts = load_facts()
YEAR = 365 * 86400


def spec_of(torch: str, *packages: str, text: str = "") -> Spec:
    listed = ", ".join(f'"{each}"' for each in packages)
    return parse(f'torch = "{torch}"\npython = "3.11"\npackages = [{listed}]\n{text}', Path("/srv/job/envkit.toml"))


class Solver:
    """Gives its answers one by one; ``asked`` are the questions: requirements, constraints, and whether alone."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[tuple[tuple[str, ...], tuple[str, ...], bool]]()

    def __call__(
        self, requirements: Sequence[str], constraints: Sequence[str] = (), *, alone: bool = False
    ) -> Mapping[str, Release]:
        self.asked.append((tuple(requirements), tuple(constraints), alone))
        answer = self.answers.pop(0)
        if isinstance(answer, EnvkitError):
            raise answer
        return {one.name: one for one in answer}


def group_of(spec: Spec) -> tuple[Choice, ...]:
    return next(group for group in together.grouped(feasible(spec, FACTS)) if not group[0].backend)


def torch(version: str) -> Release:
    return Release("torch", version)


def among(spec: Spec, *answers: Any) -> tuple[Chosen | EnvkitError, Solver]:
    solver = Solver(*answers)
    try:
        return together._among(spec, group_of(spec), FACTS, solver), solver
    except EnvkitError as error:
        return error, solver


def of(result: Chosen | EnvkitError) -> Chosen:
    assert isinstance(result, Chosen), result
    return result


def no(result: Chosen | EnvkitError) -> EnvkitError:
    assert isinstance(result, EnvkitError)
    return result


SPEC = spec_of(">=2.6,<2.9", "numpy")
NUMPY = Release("numpy", "2.0", 4_000_000_000)
NO = Unsatisfiable("no set of wheels", ("error: No solution found", "cause: because of that"), ())


def test_all_torches_of_a_group_are_asked_for_at_once() -> None:
    result, solver = among(SPEC, [torch("2.7.1"), NUMPY])
    chosen = of(result)
    assert (str(chosen.choice.torch), chosen.bounds) == ("2.7.1", ()) and chosen.over == group_of(SPEC)
    ((wanted, bounds, alone),) = solver.asked
    assert "numpy" in wanted and wanted[-1].startswith("torch>=2.6") and bounds == () and not alone
    assert not [line for line in wanted[:-1] if line.startswith("torch")]
    held = [str(choice.torch) for choice in group_of(SPEC)]
    between = {str(row.torch) for row in FACTS.torches_all if "2.6" < str(row.torch) < max(held)} - {*held}
    assert {part[2:] for part in wanted[-1].split(",") if part.startswith("!=")} >= between


def test_a_torch_that_the_facts_do_not_know_is_left_out() -> None:
    result, solver = among(SPEC, [torch("2.7.99"), NUMPY], [torch("2.7.1"), NUMPY])
    assert of(result).bounds == ("torch!=2.7.99",) and solver.asked[1][1] == ("torch!=2.7.99",)


def test_a_solver_that_goes_on_so_is_not_asked_for_ever() -> None:
    result, solver = among(SPEC, *([torch("2.7.99"), NUMPY] for _ in range(20)))
    assert no(result).message == "no set of wheels satisfies the spec" and len(solver.asked) == 12


def test_no_solution_is_the_solvers_word() -> None:
    result, _ = among(SPEC, NO)
    assert result is NO


def test_a_library_of_another_torch_is_left_out_or_chooses_its_torch() -> None:
    result, solver = among(SPEC, [torch("2.7.1"), Release("torchaudio", "2.6.0")], [torch("2.6.0"), NUMPY])
    assert str(of(result).choice.torch) == "2.6.0"
    assert solver.asked[1][0][-1].startswith("torch") and "2.6.0" in solver.asked[1][0][-1]
    result, solver = among(
        SPEC, [torch("2.7.1"), Release("torchaudio", "0.9.0")], [torch("2.7.1"), NUMPY]
    )  # fmt: skip
    assert of(result).bounds == ("torchaudio!=0.9.0",)
    result, _ = among(SPEC, [torch("2.7.1"), Release("torchaudio", "0.9.0")], NO)
    error = no(result)
    assert isinstance(error, Unmeant) and error.message.startswith("torchaudio 0.9.0 is for torch ")
    assert error.message.endswith(", not for 2.7.1") and error.fix == "change torchaudio, or torch"


def test_a_library_without_code_for_the_cuda_of_a_torch_chooses_another_or_is_left_out() -> None:
    """bitsandbytes 0.45.0 has libraries up to CUDA 12.6, and the newest torch of the spec is for 12.8."""
    spec, old = spec_of(">=2.6,<2.9", "bitsandbytes"), Release("bitsandbytes", "0.45.0")
    cudas = {str(choice.torch): str(choice.cuda) for choice in group_of(spec)}
    assert cudas["2.8.0"] == "12.8" and cudas["2.7.1"] == "12.6"
    result, solver = among(spec, [torch("2.8.0"), old], [torch("2.7.1"), old])
    assert str(of(result).choice.torch) == "2.7.1" and "2.8.0" not in solver.asked[1][0][-1]
    (told,) = together.held_back(spec, of(result), FACTS, Solver([]))
    assert told.startswith("torch 2.7.1 for CUDA 12.6 is taken and not 2.8.0: bitsandbytes 0.45.0 is made for CUDA 1")
    newer = Release("bitsandbytes", "0.45.3")
    assert str(of(among(spec, [torch("2.8.0"), newer])[0]).choice.torch) == "2.8.0"
    error = no(among(spec, [torch("2.8.0"), Release("bitsandbytes", "0.40.0")], NO)[0])
    assert "bitsandbytes 0.40.0 is made for CUDA 11.0, " in error.message and error.message.endswith("for CUDA 12.8")


@pytest.mark.parametrize(
    ("version", "cuda", "lacks"),
    [("0.49.2", "13.2", True), ("0.50.2", "13.1", False), ("0.50.2", "14.0", True), ("0.41.3.post2", "12.1", False)],
)
def test_the_nearest_library_of_a_major_will_do_where_the_release_looks_for_it(
    version: str, cuda: str, lacks: bool
) -> None:
    row = FACTS.cuda_build("bitsandbytes", version)
    assert row is not None and lacks_cuda(row, Cuda(cuda)) is lacks
    assert FACTS.cuda_build("numpy", version) is None and FACTS.cuda_build("bitsandbytes", "99") is None


def test_a_release_from_years_before_its_torch_is_asked_about() -> None:
    choice = next(one for one in group_of(SPEC) if str(one.torch) == "2.7.1")
    assert choice.row is not None
    day = datetime.fromisoformat(choice.row.released).replace(tzinfo=UTC).timestamp()
    old = int(day) - 2 * YEAR
    for uploaded, before in ((old, False), (old - 1, True), (0, False)):
        assert together._years_before(Release("a", "1", uploaded), choice) is before
    assert not together._years_before(Release("a", "1", 1), replace(choice, row=None))
    past, newest = Release("numpy", "1.0", old - 1), Release("numpy", "2.0", old)
    result, solver = among(SPEC, [torch("2.7.1"), past], [newest], [torch("2.7.1"), NUMPY])
    assert of(result).bounds == ("numpy>1.0",)
    assert solver.asked[1] == (("numpy",), (), True)
    result, solver = among(SPEC, [torch("2.7.1"), past], [past])
    assert of(result).bounds == (), "the newest that there is is meant"
    result, solver = among(SPEC, [torch("2.7.1"), past], [newest], NO, NO)
    error = no(result)
    year = datetime.fromtimestamp(past.uploaded, UTC).year
    assert error.message == (
        f"the newest numpy that goes with the rest of the spec is release 1.0 of {year}; torch 2.7.1 is of "
        f"{choice.row.released[:4]}"
    )
    assert isinstance(error, Unmeant) and error.nearest == ("numpy 1.0",)
    assert error.chain == ("newest: numpy 2.0", "because of that")
    assert solver.asked[3][0][0] == "numpy==2.0" and "numpy" not in solver.asked[3][0]


def test_what_bounds_itself_is_passed_over_and_the_next_is_asked_about() -> None:
    spec = spec_of(">=2.6,<2.9", "first==1", "absent", "numpy")
    early = Release("numpy", "3.0rc1", 4_000_000_000)
    found = [torch("2.7.1"), Release("first", "1", 1), early]
    result, _ = among(spec, found, [early], [torch("2.7.1"), NUMPY])
    assert of(result).bounds == ("numpy<3.0",)


def test_a_pre_release_that_nobody_asked_for_is_not_meant() -> None:
    early = Release("numpy", "3.0rc1", 4_000_000_000)
    result, solver = among(SPEC, [torch("2.7.1"), early], [early], NO)
    error = no(result)
    assert error.message == "no numpy but pre-release 3.0rc1 goes with the rest of the spec"
    assert isinstance(error, Unmeant) and error.chain == () and solver.asked[1][2] is True
    wanted = spec_of(">=2.6,<2.9", "numpy>=3.0rc1")
    assert of(among(wanted, [torch("2.7.1"), early])[0]).bounds == ()


@pytest.mark.parametrize(
    ("line", "bounded"),
    [("a", False), ("a>=1", False), ("a>1", False), ("a!=1", False), ("a==1", True), ("a<2", True), ("a<=2", True),
     ("a~=1.0", True), ("a>=1,<2", True)],
)  # fmt: skip
def test_who_bounds_a_release_means_an_old_one(line: str, bounded: bool) -> None:
    assert together._bounded(spec_of("2.6.0", line)) == ({"a"} if bounded else set())
    assert together._bounded(spec_of("2.6.0", "A", line)) == ({"a"} if bounded else set())
    for key in ("constraints", "overrides"):
        assert together._bounded(replace(spec_of("2.6.0", "a"), **{key: (line,)})) == ({"a"} if bounded else set())


def test_wheels_of_one_library_for_two_cudas_are_known() -> None:
    choice = group_of(SPEC)[0]
    assert choice.cuda is not None
    own = str(choice.cuda.major)
    other = "13" if own == "12" else "12"
    both = [f"nvidia-nccl-cu{other}", f"nvidia-nccl-cu{own}", "z"]
    assert together.of_another_cuda(both, choice) == (f"nvidia-nccl-cu{other}", other)
    assert together.of_another_cuda(both[:1], choice) is None and together.of_another_cuda(both[1:], choice) is None
    apart = [f"nvidia-cutlass-dsl-libs-cu{other}", f"nvidia-cutlass-dsl-libs-cu{own}"]
    assert together.of_another_cuda(apart, choice) is None
    assert together.of_another_cuda(both, replace(choice, cuda=None)) is None
    assert together.twin("nvidia-nccl-cu13", "12") == "nvidia-nccl-cu12"


def test_why_a_release_is_kept_out() -> None:
    over = group_of(SPEC)
    plain = Release("numpy", "3.0")

    def why(wanted: Release, *answers: Any) -> str:
        return together._why(FACTS, Solver(*answers), over, wanted, ["numpy>=1", "other"])

    assert why(replace(plain, wheel=False)) == "numpy 3.0 has no wheel, only its source, which is built if you pin it"
    assert why(plain, NO) == "because of that"
    assert why(plain, Unsatisfiable("a message", (), ())) == "a message"
    assert why(plain, Undecided("no answer", "")) == "the index could not be asked why: no answer"
    assert why(plain, []) == "with numpy 3.0 something else that was asked for would be older"
    assert why(Release("torchaudio", "0.9.0")).startswith("it is for torch ")


def test_what_is_not_the_newest_is_told() -> None:
    over = group_of(SPEC)
    best, second = over[0], over[1]
    taken = {one.name: one for one in (Release("a", "1"), Release("b", "1"), Release("c", "2"), torch(str(best.torch)))}
    spec = spec_of(">=2.6,<2.9", "a", "b", "c")
    newest = [Release("a", "2"), Release("b", "2"), Release("c", "2")]

    def told(choice: Choice, *answers: Any, kept: tuple[str, ...] = ()) -> list[str]:
        return list(together.held_back(spec, Chosen(choice, taken, (), over), FACTS, Solver(*answers), kept))

    assert told(best, newest, NO, kept=("b",)) == ["a 1 is taken and not 2: because of that"]
    assert len(told(best, newest, NO, NO)) == 2
    (line,) = told(second, [], NO)
    assert line == f"torch {second.torch} for {second.built_for} is taken and not {best.torch}: because of that"
    assert list(together.held_back(spec, Chosen(best), FACTS, Solver())) == []
    many = [Release(name, "2") for name in "abcde"]
    held = {name: Release(name, "1") for name in "abcde"}
    five = spec_of(">=2.6,<2.9", *"abcde")
    lines = list(together.held_back(five, Chosen(best, held, (), over), FACTS, Solver(many, NO, NO, NO)))
    assert len(lines) == 4 and lines[-1] == "not the newest either: d, e"


def test_the_changes_that_are_tried_for_a_solution() -> None:
    spec = spec_of(">=2.6,<2.9", "a==1", "b", "c>2", text='cuda = "12.4"\n')
    changed = [one for _, one in together._small(spec)]
    assert [str(one.torch) for one in changed[:2]] == [">0", ">0"] and changed[0].cuda == spec.cuda
    assert changed[1].cuda is None and [one.packages for one in changed[2:]] == [("a", "b", "c>2"), ("a==1", "b", "c")]
    assert len(list(together._small(spec_of(">=2.6", "a", "torch>=2")))) == 1
    chosen = Chosen(group_of(SPEC)[0], {"a": Release("a", "7", 86400 * 10)})
    assert [say(chosen) for say, _ in together._small(spec)][2:] == ["a 7", ""]
    large = spec_of(">=2.6", "a", text='exclude-newer = "2025-01-01"\nconstraints = ["x<1", "torch<3"]\n')
    said = [say(chosen) for say, _ in together._large(large, FACTS)]
    assert said[:2] == ['exclude-newer = "1970-01-12"', 'constraints without ["x<1"]']
    assert said[-1] == 'packages without ["a"]' and [line for line in said if "platform" in line] == []
    assert len(said) == 3 + len({os.python for os in FACTS.oses} - {large.python})
    first = [one for _, one in together._large(large, FACTS)]
    assert first[0].before == "" and first[1].constraints == ("torch<3",) and first[-1].packages == ()
    arm = replace(large, platform=Platform.ARM64)
    assert 'platform = "linux/amd64"' in [say(chosen) for say, _ in together._large(arm, FACTS)]


def test_a_refusal_names_what_the_rest_goes_with() -> None:
    spec = spec_of("==2.7.1", "numpy")
    choices = group_of(spec)

    def wanted(answer: Any) -> tuple[str, ...]:
        return together._torch_wanted(spec, choices, FACTS, lambda choice, spec: Solver(answer))

    assert wanted([torch("2.6.0")]) == ("the rest of the spec goes with torch 2.6.0, but `torch` is ==2.7.1",)
    assert wanted([torch("2.7.1")]) == () and wanted(NO) == ()
