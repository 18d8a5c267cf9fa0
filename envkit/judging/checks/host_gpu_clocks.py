"""What is asked of heat, power and clocks of a machine's GPUs: that nothing holds them down or is at its limit.

A GPU at rest lowers its clocks, and one at work may be at its power limit: neither is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from envkit.judging.checks._gpus import is_busy, is_laptop, of_each_gpu, of_each_product, told, where
from envkit.judging.checks._host import gpu_name, is_workstation
from envkit.judging.checks._outcomes import skip_if, warning
from envkit.judging.checks._rows import rows
from envkit.model import Finding, Severity, Skip
from envkit.subjects.host import Gpu

# Proposal: the operating maximum that the boards of A100 and H100 tell lies 2 to 4 degrees below slowdown; 5 warns
# before it, and 10 would fire at full load in a warm room.
_MARGIN_C = 5
# Proposal: GPUs in the rear of an air-cooled box of eight are 10 to 15 degrees warmer than those in front.
_OUTLIER_C = 20
_LIKE_DRAW = 0.25  # peers draw as much as a GPU, give or take a quarter, if they do like work
_PEERS = 3
# Proposal: a GPU at its cap draws 90 to 100 percent of its limit; the mean over a second of a job that works in
# bursts may be less, but hardly half.
_CAPPED_DRAW = 0.5
_SLOWED_US = 60_000_000  # Proposal: one short event while a machine warms up is no news; a minute in all is
_CLOCK_LEAST = 0.5  # hardware slowdown halves the clock; without one a busy GPU stays above that
_PSTATE_MOST = 2  # CUDA runs in P0, on GeForce in P2

_LOOK = "check it with `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`"
_COOLING = "look for blocked air, dead fans, dust and a loose heat sink"


@of_each_gpu
def host_gpu_near_slowdown_temperature(gpu: Gpu) -> Iterator[Finding]:
    """Every GPU is cooler than 5 degrees below the temperature at which it slows down."""
    seen = told(gpu.temperature, "its temperature")
    skip_if(seen.slowdown < 0, "no GPU here reports the temperature at which it slows down")
    if seen.now >= seen.slowdown - (0 if is_workstation(gpu) else _MARGIN_C):
        yield warning(
            f"{gpu_name(gpu)} is at {seen.now} degrees Celsius and slows down at {seen.slowdown}",
            evidence={f"{seen.now} now, {seen.slowdown} slowdown": gpu.temperature.via},
            fix=f"{_COOLING}; {_LOOK}",
        )


@of_each_product
def host_gpu_hotter_than_others(product: str, gpus: list[Gpu]) -> Iterator[Finding]:
    """No GPU is 20 degrees warmer than its like under like load."""
    seen = [(gpu, told(gpu.temperature, "its temperature").now, told(gpu.power, "its power").draw) for gpu in gpus]
    judged = 0
    for gpu, now, draw in seen:
        peers = [other for peer, other, own in seen if peer is not gpu and abs(own - draw) <= draw * _LIKE_DRAW]
        if len(peers) < _PEERS:
            continue
        judged += 1
        middle = median(peers)
        if now - middle >= _OUTLIER_C:
            yield warning(
                f"{gpu_name(gpu)} is at {now} degrees Celsius, and {len(peers)} others under similar load are at "
                f"{middle:g}",
                where(gpu),
                {f"{now} degrees": gpu.temperature.via, f"{draw / 1000:g} W": gpu.power.via},
                f"its cooling is worse than that of its neighbours: {_COOLING}; {_LOOK}",
            )
    skip_if(not judged, f"no four GPUs of one product are under similar load (of {product} there are {len(gpus)})")


@of_each_gpu
def host_gpu_hardware_slowdown_active(gpu: Gpu) -> Iterator[Finding]:
    """No GPU's hardware holds its clocks down now, for heat, for power, or because the power supply asks for it."""
    reasons = told(gpu.throttle, "what holds its clocks down")
    found = [reason for reason in _HARDWARE if reason in reasons]
    if found:
        named = found != ["hw slowdown"]
        yield Finding(
            f"the hardware of {gpu_name(gpu)} holds its clocks down: {', '.join(found)}",
            Severity.ERROR if named and not is_laptop(gpu) else Severity.WARNING,
            evidence=dict.fromkeys(found, gpu.throttle.via),
            fix=f"{_BRAKE if 'hw power brake slowdown' in found else _COOLING}; {_LOOK}",
        )


_HARDWARE = ("hw thermal slowdown", "hw power brake slowdown", "hw slowdown")
_NAMED = (*_HARDWARE, "sw power cap", "sw thermal slowdown", "applications clocks setting")
_BRAKE = "the power supply asked for it: look at its state, its cables and what the machine's management board says"


@of_each_gpu
def host_gpu_software_thermal_slowdown_active(gpu: Gpu) -> Iterator[Finding]:
    """No GPU's driver holds its clocks down now for heat."""
    if "sw thermal slowdown" in told(gpu.throttle, "what holds its clocks down"):
        warm = gpu.temperature.value
        degrees = f" at {warm.now} degrees Celsius" if warm else ""
        yield Finding(
            f"the driver holds the clocks of {gpu_name(gpu)} down for heat{degrees}",
            Severity.NOTE if is_laptop(gpu) else Severity.WARNING,
            evidence={"sw thermal slowdown": gpu.throttle.via},
            fix=f"{_COOLING}; {_LOOK}",
        )


@of_each_gpu
def host_gpu_power_capped_below_limit(gpu: Gpu) -> Iterator[Finding]:
    """A busy GPU whose clocks are capped for power draws more than half of its power limit."""
    if is_laptop(gpu) or gpu.name.need("its name").startswith(_SHARED):
        raise Skip("the GPU shares its power with a processor")
    capped = "sw power cap" in told(gpu.throttle, "what holds its clocks down")
    power = told(gpu.power, "its power")
    if capped and power.draw < power.limit * _CAPPED_DRAW:
        skip_if(not is_busy(gpu), "a GPU that works in bursts may be capped for a moment")
        yield warning(
            f"the clocks of {gpu_name(gpu)} are capped for power while it draws {power.draw / 1000:g} W of "
            f"{power.limit / 1000:g} W",
            evidence={"sw power cap": gpu.throttle.via, f"{power.draw / 1000:g} W": gpu.power.via},
            fix=f"a lower limit than its own is in force: look for a power policy of the machine's vendor, then reset "
            f"the GPU; {_LOOK}",
        )


_SHARED = ("NVIDIA GH", "NVIDIA GB")


@of_each_gpu
def host_gpu_hardware_slowdown_accumulated(gpu: Gpu) -> Iterator[Finding]:
    """Since the driver was loaded the hardware held a GPU's clocks down for less than a minute in all."""
    skip_if(is_laptop(gpu), "laptops slow their GPUs down as a matter of course")
    counted = told(gpu.throttled_us, "for how long its clocks were held down")
    if not any(what in counted for what in ("hw thermal", "hw power brake")):
        raise Skip("no GPU here reports for how long its hardware held its clocks down")
    for what, fix in (("hw thermal", _COOLING), ("hw power brake", _BRAKE)):
        spent = counted.get(what, 0)
        if spent >= _SLOWED_US:
            yield warning(
                f"the hardware held the clocks of {gpu_name(gpu)} down for {spent // 1_000_000} s since the driver "
                f"was loaded: {what}",
                evidence={f"{what} {spent // 1_000_000} s": gpu.throttled_us.via},
                fix=f"{fix}; {_LOOK}",
            )


@of_each_gpu
def host_gpu_clock_capped_by_setting(gpu: Gpu) -> Iterator[Finding]:
    """No setting holds a GPU's SM clock below what it can do."""
    locked = "applications clocks setting" in told(gpu.throttle, "what holds its clocks down")
    clocks = told(gpu.clocks, "its clocks")
    held = clocks.application_sm or (clocks.sm if locked else clocks.most_sm)
    if held >= clocks.most_sm:
        return
    setting = {"applications clocks setting": gpu.throttle.via} if locked else {}
    yield warning(
        f"a setting holds the SM clock of {gpu_name(gpu)} at {held} MHz, and it can do {clocks.most_sm}",
        evidence={f"{held} MHz": gpu.clocks.via, **setting},
        fix=f"if nobody wants it so, `nvidia-smi -i {gpu.index} -rac` and `-rgc`; "
        "check it with `nvidia-smi -q -d CLOCK`",
    )


@of_each_gpu
def host_busy_gpu_clock_low(gpu: Gpu) -> Iterator[Finding]:
    """A busy GPU runs at no less than half of its clock, unless the driver names what holds it down."""
    skip_if(not is_busy(gpu), "no GPU is busy")
    clocks = told(gpu.clocks, "its clocks")
    named = [reason for reason in told(gpu.throttle, "what holds its clocks down") if reason in _NAMED]
    if named or (gpu.pstate.value or 0) > _PSTATE_MOST:
        raise Skip(f"the driver names what holds the busy GPUs down: {', '.join(named) or 'a performance state'}")
    skip_if(not clocks.most_sm, "no GPU here reports its maximum clock")
    if clocks.sm < clocks.most_sm * _CLOCK_LEAST:
        yield warning(
            f"{gpu_name(gpu)} is busy and its SM clock is at {clocks.sm} of {clocks.most_sm} MHz",
            evidence={f"{clocks.sm} MHz": gpu.clocks.via, f"{gpu.utilization.value} percent busy": gpu.utilization.via},
            fix=f"`nvidia-smi -i {gpu.index} -rgc` takes a lock away; if the clock stays low, reset the GPU between "
            f"two jobs; {_LOOK}",
        )


@of_each_gpu
def host_busy_gpu_in_slow_pstate(gpu: Gpu) -> Iterator[Finding]:
    """A busy GPU is in a performance state for computing: P0 to P2."""
    skip_if(not is_busy(gpu), "no GPU is busy")
    state = told(gpu.pstate, "its performance state")
    if state > _PSTATE_MOST:
        yield warning(
            f"{gpu_name(gpu)} is busy in performance state P{state}",
            evidence={f"P{state}": gpu.pstate.via, f"{gpu.utilization.value} percent busy": gpu.utilization.via},
            fix=f"its memory runs at a fraction of its clock: look at what holds it down, take locks away with "
            f"`nvidia-smi -i {gpu.index} -rgc` and `-rmc`, then reset the GPU; {_LOOK}",
        )


CHECKS = rows(__name__)
