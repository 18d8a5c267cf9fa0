"""NVIDIA's wheels that two frameworks of one environment ask for, where their releases exclude each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.specifiers import SpecifierSet

from envkit.dockerfile.requirements import allows
from envkit.facts import Facts, TorchRow
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import Commands, together
from envkit.judging.checks._outcomes import found
from envkit.judging.checks._pips import of_one_command
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Severity, Span
from envkit.records import dataclass
from envkit.subjects.dockerfile import Dockerfile, Install, Torch
from envkit.versions import Torch as TorchRelease


@dataclass(frozen=True, slots=True)
class _Needs:
    """What one framework asks for: ``requires`` by the name of a wheel, ``at`` its place among the installs."""

    one: Install
    at: int
    named: str
    requires: Mapping[str, str]
    because: str


def excluding(
    dockerfile: Dockerfile,
    order: Sequence[Install],
    commands: Mapping[Span, Commands],
    heedless: frozenset[str],
    facts: Facts,
) -> Iterator[Finding]:
    """Two frameworks whose releases of NVIDIA's wheels exclude each other: one command that is given both ends, and of
    two the later one puts its own in the place of those of the first."""
    needs = [*_of_torches(dockerfile, order, facts), *_of_others(order, facts)]
    needs.sort(key=lambda each: each.at)
    stays = {(each.one.prefix, each.named.partition(" ")[0]): each.at for each in needs}.values()
    for number, second in enumerate(needs):
        for first in needs[:number]:
            shared = [name for name in first.requires if _apart(first.requires[name], second.requires.get(name, ""))]
            if not shared or first.one.name == second.one.name or heedless & (first.one.options | second.one.options):
                continue
            joined = together(commands.get(first.one.span, {}), commands.get(second.one.span, {}))
            if joined:
                severity, so = of_one_command(dockerfile, second.one, facts)
                message = f"{_asks(second, shared[:1])}, and {_asks(first, shared[:1])}{so}"
            elif first.one.prefix and first.one.prefix == second.one.prefix and {first.at, second.at} <= {*stays}:
                severity = Severity.WARNING
                message = f"{_asks(second, shared)}, so that {second.one.manager} puts its own in the place of what "
                message += f"{first.named} asks for: {_told(first, shared)}"
                if first.named.startswith("torch ") and (gone := _gone(first, second)):
                    severity = Severity.ERROR
                    message += f"; `import torch` then finds no {gone}"
            else:
                continue
            yield found(
                message,
                second.one.span,
                severity,
                "take releases of the two that ask for the same of NVIDIA's wheels, or an environment for each",
                {each.named: f"{each.one.span.place}, {each.because}" for each in (first, second)},
            )
            return


def _asks(needs: _Needs, shared: Sequence[str]) -> str:
    return f"{needs.named} asks for {_told(needs, shared)}"


_MOST_TOLD = 2


def _told(needs: _Needs, shared: Sequence[str]) -> str:
    """The first of the wheels that exclude each other."""
    told = [f"{name}{needs.requires[name]}" for name in shared[:_MOST_TOLD]]
    more = f" and {len(shared) - len(told)} more" if len(shared) > len(told) else ""
    return f"{', '.join(told)}{more}"


def _apart(one: str, other: str) -> bool:
    """Whether no release is let in by both, as far as one of the two names an exact one."""
    for exact, bound in ((one, other), (other, one)):
        if bound and exact.startswith("==") and allows(bound, exact[2:]) is False:
            return True
    return False


def _gone(first: _Needs, second: _Needs) -> str:
    """The library of cuDNN that torch is linked to where the other framework brings another major, whose library bears
    another name; "" where it stays.

    ``readelf -d libtorch_cuda.so`` says that it is needed, by the name that has the major.
    """
    for name, asked in first.requires.items():
        if name.startswith("nvidia-cudnn-"):
            mine = int(stack.major(asked.removeprefix("==")))
            for bound in SpecifierSet(second.requires.get(name, "")):
                theirs = int(stack.major(bound.version))
                least = bound.operator in ("==", "~=", ">=", ">")
                if (least and theirs > mine) or (bound.operator in ("==", "~=") and theirs < mine):
                    return f"libcudnn.so.{mine}"
    return ""


def _of_others(order: Sequence[Install], facts: Facts) -> Iterator[_Needs]:
    for at, one in enumerate(order):
        row = facts.nvidia_need(one.name, one.version, one.extras) if one.version else None
        if row is not None:
            extras = f"[{','.join(one.extras)}]" if one.extras else ""
            yield _Needs(one, at, f"{one.name}{extras} {one.version}", row.requires, cited(row))


def _of_torches(dockerfile: Dockerfile, order: Sequence[Install], facts: Facts) -> Iterator[_Needs]:
    for torch in dockerfile.torches:
        one, row = torch.install, _row(torch, facts)
        at = next((number for number, each in enumerate(order) if each is one), None)
        if one is not None and row is not None and at is not None:
            major = stack.major(str(row.cuda))
            wheels = {f"nvidia-cudnn-cu{major}": row.cudnn, f"nvidia-nccl-cu{major}": row.nccl}
            asked = {name: f"=={release}" for name, release in wheels.items() if release is not None}
            yield _Needs(one, at, f"torch {row.torch}", asked, cited(row))


def _row(torch: Torch, facts: Facts) -> TorchRow | None:
    """The build of a torch whose wheel asks for NVIDIA's wheels and does not hold the libraries itself."""
    one = torch.install
    if one is None or torch.method not in ("pip", "uv") or one.url or one.locked:
        return None
    of_pytorchs_index = bool(one.index or one.local or one.extra_indexes or one.find_links)
    since = facts.milestone("torch-index-requires-cuda" if of_pytorchs_index else "torch-requires-cuda").release
    row = stack.row_of(torch, facts)
    return row if row is not None and row.torch >= TorchRelease(since) else None
