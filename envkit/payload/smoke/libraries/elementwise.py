"""Functions of one number, in units of the last place; special values, roundings to narrower types, integer division.

The functions are compared with fp64, the roundings with the arithmetic that defines the types.
"""

from __future__ import annotations

import math
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.libraries._compare import stale

_COUNT = 300_001
_SMALLEST = -126  # the least exponent of a normal number in fp32
_PAIRS = 3000
_TYPES = (  # name, torch's name, bits of precision, least exponent of a normal number, exponent bits, largest number
    ("bf16", "bfloat16", 8, -126, 8, 2.0**127 * (2 - 2.0**-7)),
    ("fp16", "float16", 11, -14, 5, 65504.0),
    ("e5m2", "float8_e5m2", 3, -14, 5, 57344.0),
    ("e4m3", "float8_e4m3fn", 4, -6, 4, 448.0),
)
INF, NAN = math.inf, math.nan
SPECIAL = (  # function, arguments, result
    ("exp", (NAN,), NAN), ("exp", (INF,), INF), ("exp", (-INF,), 0.0), ("exp", (89.0,), INF), ("exp", (-0.0,), 1.0),
    ("log", (0.0,), -INF), ("log", (-0.0,), -INF), ("log", (-1.0,), NAN), ("log", (INF,), INF),
    ("sqrt", (-0.0,), -0.0), ("sqrt", (-1.0,), NAN),
    ("rsqrt", (0.0,), INF), ("rsqrt", (INF,), 0.0), ("rsqrt", (-1.0,), NAN),
    ("sin", (INF,), NAN), ("cos", (-INF,), NAN),
    ("tanh", (INF,), 1.0), ("tanh", (-INF,), -1.0), ("tanh", (NAN,), NAN),
    ("erf", (-INF,), -1.0), ("sigmoid", (-INF,), 0.0), ("sigmoid", (INF,), 1.0),
    ("pow", (0.0, 0.0), 1.0), ("pow", (NAN, 0.0), 1.0), ("pow", (-2.0, 3.0), -8.0), ("pow", (-2.0, 0.25), NAN),
    ("pow", (0.0, -1.0), INF), ("true_divide", (1.0, -0.0), -INF), ("true_divide", (0.0, 0.0), NAN),
    ("maximum", (NAN, 1.0), NAN), ("minimum", (1.0, NAN), NAN), ("fmax", (NAN, 1.0), 1.0),
    ("round", (0.5,), 0.0), ("round", (1.5,), 2.0), ("round", (-2.5,), -2.0),
    ("floor", (-0.5,), -1.0), ("ceil", (0.5,), 1.0), ("trunc", (-1.5,), -1.0),
    ("mul", (2.0**-149, 1.0), 2.0**-149), ("mul", (2.0**-127, 0.5), 2.0**-128),
    ("add", (2.0**-149, 2.0**-149), 2.0**-148), ("sub", (1.5 * 2.0**-126, 2.0**-126), 2.0**-127),
)  # fmt: skip


def nearest(values: Any, precision: int, least: int) -> Any:
    """fp64 numbers rounded to the nearest with ``precision`` bits, ties to even, subnormal below ``2 ** least``."""
    _, exponent = torch.frexp(values)
    step = torch.ldexp(torch.ones_like(values), exponent.clamp(min=least + 1) - precision)
    return torch.round(values / step) * step


def meaning(codes: Any, precision: int, least: int, exponents: int) -> Any:
    """What the bit patterns of a small floating type stand for, in fp64, as far as they are finite numbers."""
    fraction = codes & ((1 << (precision - 1)) - 1)
    exponent = (codes >> (precision - 1)) & ((1 << exponents) - 1)
    size = fraction + ((exponent > 0).long() << (precision - 1))
    power = exponent.clamp(min=1) - 1 + least - (precision - 1)
    sign = 1 - 2 * ((codes >> (precision - 1 + exponents)) & 1)
    return torch.ldexp(size.double(), power) * sign.double()


def _bits(tensor: Any) -> Any:
    """The bit patterns of fp32 numbers, with one for all that are none."""
    plain = tensor.detach().cpu()
    return plain.view(torch.int32).masked_fill(plain.isnan(), 0x7FC00000)


def _functions(bench: Bench, random: Any) -> None:
    def spread(low: float, high: float) -> Any:
        return (torch.rand(_COUNT, generator=random, dtype=torch.float64) * (high - low) + low).float()

    def logarithmic(low: float, high: float) -> Any:
        return spread(low, high).double().exp2().float()

    both = torch.cat([logarithmic(-100, 3), -logarithmic(-100, 3)])
    functions: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
        ("exp", torch.exp, (spread(-86, 88),)),
        ("log", torch.log, (logarithmic(-126, 127),)),
        ("sin", torch.sin, (torch.cat([spread(-30, 30), spread(-1e6, 1e6)]),)),
        ("cos", torch.cos, (torch.cat([spread(-30, 30), spread(-1e6, 1e6)]),)),
        ("tanh", torch.tanh, (both,)),
        ("erf", torch.erf, (both,)),
        ("sqrt", torch.sqrt, (logarithmic(-126, 127),)),
        ("rsqrt", torch.rsqrt, (logarithmic(-126, 127),)),
        ("sigmoid", torch.sigmoid, (spread(-80, 30),)),
        ("gelu", torch.nn.functional.gelu, (spread(-1, 10),)),
        ("pow", torch.pow, (logarithmic(-8, 8), spread(-12, 12))),
        ("divide", torch.true_divide, (logarithmic(-30, 30), logarithmic(-30, 30))),
    )
    for name, function, arguments in functions:
        want = function(*(argument.double() for argument in arguments))
        _, exponent = torch.frexp(want)
        unit = torch.ldexp(torch.ones_like(want), exponent.clamp(min=_SMALLEST + 1) - 24)
        stale(bench)
        got = function(*(argument.to(bench.device) for argument in arguments)).cpu()
        # what starts one element behind an aligned address takes other loads
        behind = function(*(argument.to(bench.device)[1:] for argument in arguments)).cpu()
        for found, skipped in ((got, 0), (behind, 1)):
            off = (bench.disturb(found, exact=False).double() - want[skipped:]).abs() / unit[skipped:]
            bench.note(name + ".ulp", float(off.max()))


def _special(bench: Bench) -> None:
    for name, arguments, result in SPECIAL:
        # a whole tensor of it, so that the vectorised code is met
        given = [torch.full((67,), argument, device=bench.device) for argument in arguments]
        bench.exact("special.wrong", _bits(getattr(torch, name)(*given)), _bits(torch.full((67,), result)))


def _casts(bench: Bench, random: Any) -> None:
    patterns = torch.randint(-(1 << 31), 1 << 31, (_COUNT,), generator=random).to(torch.int32)
    anything = patterns.view(torch.float32)
    anything = anything[anything.isfinite()]
    for name, type_name, precision, least, exponents, largest in _TYPES:
        dtype = getattr(torch, type_name)
        width = precision + exponents
        codes = torch.arange(1 << width)
        stored = (codes - ((codes >> (width - 1)) << width)).to(torch.int8 if width == 8 else torch.int16).view(dtype)
        stands_for = meaning(codes, precision, least, exponents)
        finite = stands_for.abs() <= largest
        wide = stored.to(bench.device).to(torch.float32).cpu()
        bench.exact(f"{name}.widened", _bits(wide[finite]), _bits(stands_for[finite].float()))
        bench.exact(f"{name}.widened", wide[~finite].isfinite().long(), torch.zeros(int((~finite).sum())).long())

        known = stands_for[finite].float().double().unique()
        halfway = (known[1:] + known[:-1]) / 2  # every tie, and what lies just beside each
        scaled = torch.rand(_COUNT, generator=random, dtype=torch.float64) * 2 - 1
        parts = [anything, halfway.float(), (scaled * largest).float(), (scaled * 2.0**least * 4).float()]
        parts += [torch.nextafter(parts[1], torch.tensor(limit)) for limit in (INF, -INF)]
        narrow = torch.cat(parts)
        narrow = narrow[narrow.abs() <= largest]
        got = narrow.to(bench.device).to(dtype).cpu()
        want = nearest(narrow.double(), precision, least).float()
        want = torch.copysign(want, narrow)
        bench.exact(f"{name}.narrowed", _bits(got.float()), _bits(want))
        # a type without infinities may saturate instead, so that only NaN is asked of it
        kept = torch.tensor([NAN] if name == "e4m3" else [NAN, INF, -INF])
        bench.exact(f"{name}.narrowed", _bits(kept.to(bench.device).to(dtype).cpu().float()), _bits(kept))


def _integers(bench: Bench, random: Any) -> None:
    for dtype, bits in ((torch.int8, 8), (torch.int16, 16), (torch.int32, 32), (torch.int64, 62)):
        top = 1 << (bits - 1)
        above = torch.randint(-top + 1, top, (_PAIRS,), generator=random)
        below = torch.randint(1, top, (_PAIRS,), generator=random)
        below = (below >> torch.randint(0, bits - 1, (_PAIRS,), generator=random)).clamp(min=1)  # of every size
        below *= torch.randint(0, 2, (_PAIRS,), generator=random) * 2 - 1
        pairs = [(int(upper), int(lower)) for upper, lower in torch.stack([above, below], 1).tolist()]
        toward_zero = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs]
        upper, lower = above.to(dtype).to(bench.device), below.to(dtype).to(bench.device)
        for got, want in (
            (torch.div(upper, lower, rounding_mode="floor"), [a // b for a, b in pairs]),
            (torch.remainder(upper, lower), [a % b for a, b in pairs]),
            (torch.div(upper, lower, rounding_mode="trunc"), toward_zero),
            (torch.fmod(upper, lower), [a - b * toward_zero[place] for place, (a, b) in enumerate(pairs)]),
            (upper >> 3, [a >> 3 for a, _ in pairs]),
            (upper ^ lower, [a ^ b for a, b in pairs]),
        ):
            bench.exact("integer.wrong", got.long(), torch.tensor(want))


def run(bench: Bench) -> None:
    """Measures ``<function>.ulp``, the largest distance in units of fp32's last place, and counts of wrong elements."""
    random = bench.random()
    _functions(bench, random)
    _special(bench)
    _casts(bench, random)
    _integers(bench, random)
