"""Judges a run of the smoke suite as a whole: what was asked, given and promised, beside what it saw."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from envkit.judging.checks._given import FIX, must_see
from envkit.judging.checks._outcomes import error, skip_if, unknown_if
from envkit.judging.checks._smoke import Limit, beyond, death, number
from envkit.model import Finding, Reason, Skip
from envkit.payload.smoke import EXTRA
from envkit.subjects.smoke import SmokeRun


def smoke_import_leaves_cuda_alone(run: SmokeRun) -> Iterator[Finding]:
    """Importing torch does not initialise CUDA, so that a process can still fork its workers."""
    skip_if(run.torch.reason is Reason.NO_TORCH, "there is no torch in this Python")
    skip_if(run.sanitize, "under compute-sanitizer each test has an interpreter of its own")
    if run.cuda_before_fork.reason is Reason.NOT_IMPORTED and run.only and run.tests.value is not None:
        raise Skip("no test that forks from an imported torch was run")
    if run.cuda_before_fork.need("whether importing torch initialises CUDA"):
        yield error(
            "importing torch initialised CUDA before any test had started",
            evidence={"true": run.cuda_before_fork.via},
            fix="look for a sitecustomize, a .pth file or a plugin that calls torch.cuda when torch is imported",
        )


def smoke_gpu_not_seen(run: SmokeRun) -> Iterator[Finding]:
    """A run that was given GPUs sees them; else each GPU test is skipped and the CPU's results look like a pass."""
    least = must_see(run.gpus_given)
    seen = run.gpus.need("the GPUs that the run saw")
    given = " and ".join(run.gpus_given)
    if len(seen) < least:
        not_applicable = (
            test.detail for test in run.tests.value or () if test.ended == "not-applicable" and test.device == "cuda"
        )
        why = next(not_applicable, "")
        yield error(
            f"the run was given GPU {given} and sees {len(seen) or 'none'}" + (f": {why}" if why else ""),
            evidence={", ".join(seen) or "none": run.gpus.via, given: "given by envkit"},
            fix=FIX,
        )


def smoke_torch_not_promised(run: SmokeRun) -> Iterator[Finding]:
    """The torch under test is the promised release; a promised torch that is absent is no reason to skip its tests."""
    skip_if(not run.torch_promised, "no torch was promised")
    skip_if(
        run.only and run.torch.reason is Reason.NOT_IMPORTED, "no test that uses the shared torch import was requested"
    )
    promised = run.torch_promised
    if run.torch.reason is Reason.NO_TORCH:
        yield error(
            f"torch {promised} was promised and there is none",
            "torch",
            {run.torch.missing: "import torch", promised: "the image's label"},
            "install what the lock names into a fresh environment: `envkit build`",
        )
        return
    has = run.torch.need("the version of torch")
    if Version(has.partition("+")[0]) != Version(promised.partition("+")[0]):
        yield error(
            f"torch {promised} was promised and torch {has} was tested",
            "torch",
            {has: run.torch.via, promised: "the image's label"},
            "install what the lock names into a fresh environment: `envkit build`",
        )


def smoke_extra(run: SmokeRun) -> Iterator[Finding]:
    """Every test from outside the suite ran, and each of its measures is within the limit that it sets itself."""
    mine = [test for test in run.tests.need("the run of the smoke suite") if test.name.startswith(EXTRA)]
    skip_if(not mine, "no test from outside the suite was run")
    blind = []
    for test in mine:
        found = []
        if test.ended not in ("ran", "not-applicable"):
            found.append(death(test))
        elif test.ended == "ran":
            most = {**{name: 0.0 for name in test.measures if name.endswith(".wrong")}, **test.limits}
            if not most:
                found.append(
                    error(
                        f"{test.name} sets no limit, so it cannot fail",
                        test.device,
                        {", ".join(sorted(test.measures)) or "none": "its measures"},
                        "count what is wrong under a name that ends in .wrong, or call bench.limit(name, most)",
                    )
                )
            for name, limit in most.items():
                row = Limit(test.name, (name,), (test.device.partition(":")[0],), "set by the test itself", most=limit)
                finding = beyond(row, name, test)
                found += [finding] if finding else []
        if run.injected_fault and test.ended != "not-applicable" and not found:
            blind.append(f"{test.name} on {test.device} does not see the injected fault {test.injected_fault}")
        yield from found
    unknown_if(blind, "; ".join(blind))
    if all(test.ended == "not-applicable" for test in mine):
        raise Skip("; ".join(dict.fromkeys(test.detail for test in mine)))


def smoke_sanitizer(run: SmokeRun) -> Iterator[Finding]:
    """Under compute-sanitizer no test has an invalid access, a race, an uninitialised read or a wrong barrier."""
    skip_if(not run.sanitize, "the run was not under compute-sanitizer")
    tests = [test for test in run.tests.need("the run of the smoke suite") if test.ended != "not-applicable"]
    unknown_if(not tests, f"no test was run under {run.sanitize}")
    unread = []
    for test in tests:
        errors = number(test, "sanitizer.errors")
        if errors > 0:
            yield error(
                f"{run.sanitize} found {errors:.0f} in {test.name}: {test.detail}",
                test.device,
                {f"{errors:.0f}": f"the error summary of compute-sanitizer --tool {run.sanitize}"},
                "the kernel and the line are in the message; if the kernel belongs to a library, report it there",
            )
        elif errors != 0:
            unread.append(f"{test.name} on {test.device}")
    unknown_if(unread, f"{run.sanitize} left no summary of {', '.join(unread)}")
