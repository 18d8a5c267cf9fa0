"""What is pinned against the torch that is there: which releases of triton, sympy and others torch itself asks for."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.dockerfile.requirements import allows
from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._brought import newest_of
from envkit.judging.checks._dockerfile import apart, commands_of, together
from envkit.judging.checks._torch_fit import cited, unreleased
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.subjects.dockerfile import Dockerfile, Install, Torch

# What torch's METADATA bounds, and its wheels of each index alike.
BOUND_BY_TORCH = frozenset({"triton", "sympy", "typing-extensions", "networkx", "fsspec"})
_FREE = ("--no-deps", "--target", "--override", "--overrides", "--user")
# An exact release, as METADATA has it of triton and sympy.
_EXACT = pattern(r"==\s*([0-9]+(?:\.[0-9]+)*)")


@dataclass(frozen=True, slots=True)
class Against:
    """A ``pin`` that torch ``release`` does not go with: ``asked`` are torch's own words for it, ``because`` where
    they stand, ``by`` what has the installer resolve torch in the same command (None: nothing does)."""

    torch: Torch
    release: str
    pin: Install
    asked: str
    because: str
    by: Install | None


def torch_of_base(dockerfile: Dockerfile) -> Torch | None:
    """The torch of the base, also where the build removes it before it installs its own."""
    base = dockerfile.base
    return Torch(base.torch, base.torch_cuda, "base", base.span) if stack.said(base.torch) else None


def against(dockerfile: Dockerfile, torches: list[Torch], facts: Facts) -> Iterator[Against]:
    """The pins of later commands that the torch which is there then does not go with.

    pip keeps a torch that satisfies what a command asks for, and resolves what that torch itself requires only where
    something in the command requires torch.  Source: pip, "Dependency resolution"; Requires-Dist of torch's wheels.
    """
    order = list(dockerfile.installs)
    pins = [at for at, one in enumerate(order) if one.name in BOUND_BY_TORCH and one.specifier and _plain(one)]
    if not pins or not torches:
        return
    commands = commands_of(dockerfile)
    for at in pins:
        pin = order[at]
        mine = commands.get(pin.span, {})
        torch = _there(torches, order, at)
        release = _release(torch, facts) if torch is not None else ""
        if torch is None or not release or not _of_one_place(torch, pin, dockerfile):
            continue
        if torch.install is not None and together(commands.get(torch.install.span, {}), mine):
            continue
        asked, because = _asked(torch, release, pin.name, facts)
        if not asked or not _excluded(asked, pin):
            continue
        beside = [one for one in order if one is not pin and together(commands.get(one.span, {}), mine)]
        if any(one.name == "torch" for one in beside):
            continue
        by = next((one for one in beside if stack.along_with(one, dockerfile, facts) is not None), None)
        yield Against(torch, release, pin, asked, because, by)


def _plain(one: Install) -> bool:
    free = one.url or one.constraint or one.locked or one.marker or any(name in one.options for name in _FREE)
    return one.sure and one.manager in ("pip", "uv") and not free and "$" not in one.specifier


def _there(torches: list[Torch], order: list[Install], at: int) -> Torch | None:
    """The torch that is there when the install at a place of the order begins, and stays: None where a later one is
    asked for by name, which has the last word."""
    found: Torch | None = None
    for torch in torches:
        if torch.method == "base" or (torch.install is not None and torch.install in order[:at]):
            found = torch
        elif torch.install is not None and torch.install in order[at:]:
            return None
    return found


def _release(torch: Torch, facts: Facts) -> str:
    """The release of a torch, today's newest of its index where none is named; "" where that is not known."""
    version = stack.said(torch.version)
    if version:
        return "" if unreleased(version) else version.partition("+")[0]
    one = torch.install
    return newest_of(one, facts) if one is not None and not one.specifier else ""


def _of_one_place(torch: Torch, pin: Install, dockerfile: Dockerfile) -> bool:
    """Whether both lie in one environment."""
    if torch.method == "base":
        return not apart(pin.prefix) and dockerfile.base.family != "ngc"
    return torch.prefix == pin.prefix and torch.method in ("pip", "uv") and bool(pin.prefix)


def _asked(torch: Torch, release: str, name: str, facts: Facts) -> tuple[str, str]:
    """What a torch asks for of a package, and where that stands."""
    cuda = stack.said(torch.cuda)
    if name == "triton":
        # A build for the CPU takes none.
        row = next((row for row in facts.torches if str(row.torch) == release and row.default), None)
        known = row is not None and row.triton and cuda != "cpu" and not cuda.startswith("rocm")
        return (row.triton or "", cited(row)) if row is not None and known else ("", "")
    found = [row for row in facts.require_rows("torch", release) if row.requires.get(name)]
    return (found[0].requires[name], cited(found[0])) if found else ("", "")


def _excluded(asked: str, pin: Install) -> bool:
    """Whether what is asked for and what is pinned surely have no release in common."""
    if pin.version:
        return allows(asked, pin.version) is False
    exact = _EXACT.fullmatch(asked)
    return exact is not None and allows(pin.specifier, exact[1]) is False
