"""``envkit doctor``: a machine, this one or a saved one, under a contract or without, and the report on it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

from envkit import facts
from envkit.doctor import anonymize, contracts
from envkit.engine.endpoint import endpoint
from envkit.errors import UsageError
from envkit.host.observe import observe_host
from envkit.judging import judge, pages, required
from envkit.model import Observed, Report, Subject
from envkit.report import Table, summary
from envkit.subjects import Host, codec, saved
from envkit.versions import Cuda


def host(root: Path, budget_s: float, cuda: str, contract: Path | None, recorded: Path | None, redact: bool) -> Host:
    """The machine whose root lies at ``root``, or the one in ``recorded``, with what is expected of it.

    Raises UsageError for a contract or a recording that cannot be read, a root that is no directory, a CUDA version
    that is none, two machines at once, a docker context that does not exist, and a budget that leaves no time or never
    ends.
    """
    if not 0 < budget_s < inf:
        raise UsageError(f"a budget of {budget_s:g} s leaves no time", "name seconds, such as 8")
    if not os.path.isdir(root):
        raise UsageError(f"{root} is no directory", "name the place where the root of the machine lies")
    if recorded is not None and root != Path("/"):
        raise UsageError("--from and --root were both given", "name the one machine that shall be judged")
    if cuda:
        try:
            Cuda(cuda)
        except ValueError as error:
            raise UsageError(f"`{cuda}` is no version of CUDA", "write it like MAJOR.MINOR") from error
    expected = contracts.load(contract, _ids()) if contract else None
    if recorded is None:
        if root == Path("/"):
            endpoint(os.environ)  # a context that does not exist is no finding about the machine
        # the checks are imported while the children read, which takes as long
        seen = observe_host(
            root, budget_s, wanted_cuda=cuda, expected=expected, meanwhile=lambda: (judge.checks(Host), facts.load())
        )
    else:
        seen = saved.of_kind(recorded, Host)
        if expected:
            seen = replace(seen, expected=Observed.of(expected, "declared"))
        if cuda:
            seen = replace(seen, wanted_cuda=Observed.of(cuda, "declared"))
    return codec.from_plain(Host, anonymize.machine(codec.to_plain(seen))) if redact else seen


def report(seen: Host, started: float, require_gpu: bool = False) -> tuple[Report, tuple[Table, ...]]:
    """What all checks of a machine say of it, held to its contract; ``started`` is of time.monotonic.

    With ``require_gpu``, or if the contract says so, it is undecided where the driver answers for no GPU.
    """
    contract = seen.expected.value
    results = contracts.hold(judge.judge(seen, facts.load()), contract)
    if require_gpu or (contract is not None and "gpu" in contract.require):
        results += required.without_gpu(seen)
    elapsed, covered = round(time.monotonic() - started, 3), required.covered(seen)
    made = Report(Subject("host", seen.name), results, elapsed, codec.to_plain(seen), covered)
    return made, summary.host(results)


def _ids() -> frozenset[str]:
    return frozenset(judge.checks(Host))


def listing() -> Iterator[str]:
    """A line a check of a machine: its id, the severities it gives, and what holds when it passes."""
    for name in sorted(_ids()):
        page = pages.load(name)
        yield f"{name}  {page.told.get('severity', '')}  {page.title}"
