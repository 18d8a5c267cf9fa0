"""The CUDA driver alone, through ctypes and PTX text: needs no torch and no toolkit."""

from envkit.payload.smoke.case import Case

_NEEDS = ("driver-context",)
_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

CASES = (
    Case("driver-context", cpu=False, start="bare", alone=True, saboteurs=("ulp", "one")),
    Case("driver-ptx", cpu=False, start="bare", saboteurs=("ulp", "one", "block"), needs=_NEEDS, sanitize=_TOOLS),
    Case("driver-copies", cpu=False, start="bare", saboteurs=("ulp", "one"), needs=_NEEDS),
    Case("driver-launches", cpu=False, start="bare", saboteurs=("ulp", "order"), needs=("driver-ptx",)),
    Case("driver-events", cpu=False, start="bare", saboteurs=("ulp", "order"), needs=("driver-ptx",)),
    Case(
        "driver-memory",
        stress=True,
        cpu=False,
        start="bare",
        level="full",
        alone=True,
        saboteurs=("one",),
        needs=("driver-ptx",),
        seconds=120.0,
    ),
)
