"""Kernels that NVRTC compiles from source and the driver launches."""

from envkit.payload.smoke.case import Case

_NEEDS = ("driver-context", "vector-add-nvrtc")
_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

CASES = (
    Case(
        "vector-add-nvrtc",
        cpu=False,
        start="bare",
        saboteurs=("ulp", "one", "block"),
        needs=("driver-context",),
        sanitize=_TOOLS,
    ),
    Case(
        "nvrtc-reduction",
        cpu=False,
        start="bare",
        saboteurs=("ulp", "one", "order"),
        needs=_NEEDS,
        sanitize=_TOOLS,
    ),
    Case(
        "nvrtc-grid-stride",
        cpu=False,
        start="bare",
        saboteurs=("ulp", "one", "block"),
        needs=_NEEDS,
        sanitize=_TOOLS,
    ),
    Case(
        "nvrtc-alignment",
        cpu=False,
        start="bare",
        level="full",
        saboteurs=("ulp", "one", "block"),
        needs=_NEEDS,
        sanitize=_TOOLS,
    ),
    Case(
        "nvrtc-timer",
        cpu=False,
        start="bare",
        level="full",
        saboteurs=("ulp", "one", "fault"),
        needs=("driver-events", *_NEEDS),
    ),
)
