"""What the package index says of the commands of a Dockerfile, as findings (`envkit check --resolve`)."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.facts import Facts
from envkit.judging.checks._dockerfile import optional, reached
from envkit.judging.checks._outcomes import error, found, warning
from envkit.judging.checks._pips import of_one_command
from envkit.model import Finding, Severity, Span
from envkit.subjects.dockerfile import Dockerfile
from envkit.subjects.packages import Packages
from envkit.subjects.resolved import FAMILY, Change, Resolved


def answered(dockerfile: Dockerfile) -> frozenset[Span]:
    """The places of the installs of which the index said what comes of them."""
    told = (one for one in dockerfile.resolved or () if not one.unanswered)
    return frozenset(span for one in told for span in one.spans)


def refusals(dockerfile: Dockerfile, facts: Facts, *, torch: bool) -> Iterator[Finding]:
    """Each command that asks for what no set of releases meets, with torch in it or without."""
    lenient = {span for _, step in reached(dockerfile) for span in optional(step)}
    for record in dockerfile.resolved or ():
        if not record.refused or record.about_torch is not torch or record.spans & lenient:
            continue
        one = next((each for each in dockerfile.installs if each.span == record.span), None)
        severity, so = Severity.ERROR, f", so that {record.manager} refuses them and the build ends here"
        if one is not None:
            severity, so = of_one_command(dockerfile, one, facts)
        yield found(
            f"no releases meet all that this command asks for{so.replace('the two', 'them')}: {record.refused}",
            record.span,
            severity,
            "loosen one of these requirements, or take releases that go together",
            {"no releases meet it": record.said_by},
        )


def refused(packages: Packages) -> Iterator[Finding]:
    """A list that no releases meet, for none of the Pythons that were asked for."""
    for record in packages.resolved or ():
        if record.refused:
            yield error(
                f"no releases meet all that the file asks for, so that {record.manager} refuses it: {record.refused}",
                record.span,
                {"no releases meet it": record.said_by},
                "loosen one of these requirements, or take releases that go together",
            )


def replaced(dockerfile: Dockerfile) -> Iterator[Finding]:
    """Each torch that a package brings in the place of the one that is there, and who asks for it."""
    for record in dockerfile.resolved or ():
        for one in record.changes:
            if one.name == "torch" and one.old and one.old != one.new and one.because and not one.named:
                yield _replaced(record, one)


def _replaced(record: Resolved, one: Change) -> Finding:
    there = f"the torch {one.old} of {one.before}" if one.before.startswith("the base") else f"torch {one.old}"
    keep = f"keep torch {one.old} by a constraint, or start from a base with torch {one.new.partition('+')[0]}"
    return warning(
        f"{_chain(one)}, so that {record.manager} puts torch {one.new} in the place of {there}",
        one.span or record.span,
        {f"torch {one.old}": one.before or "installed before", f"torch {one.new}": record.said_by},
        f"{record.fix}; or {keep}" if record.fix else keep,
    )


def _chain(one: Change) -> str:
    return ", and ".join(one.because)


def left_behind(dockerfile: Dockerfile) -> Iterator[Finding]:
    """Each package that stays beside a torch that it does not ask for; torchvision-mismatch says it of torch's kin."""
    for record in dockerfile.resolved or ():
        for one in record.unmet:
            if one.name in FAMILY or one.needs not in FAMILY:
                continue
            yield warning(
                f"{one.name} {one.version} asks for {one.asks}, and stays beside {one.needs} {one.there}, of which "
                f"{record.manager} says that it is incompatible and goes on",
                record.span,
                {f"{one.name} {one.version} asks for {one.asks}": record.said_by},
                f"install {one.name} in the same command, so that a release is taken which goes with it",
            )
