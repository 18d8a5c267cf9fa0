"""Speed beside the limit of the hardware.  Each test has its GPU alone and looks at what it computed as well."""

from envkit.payload.smoke.case import Case

CASES = (
    Case("speed-copy", stress=True, cpu=False, alone=True, saboteurs=("ulp", "one", "scale", "block")),
    Case("speed-gemm", cpu=False, alone=True, saboteurs=("ulp", "one", "nan", "scale", "block"), needs=("gemm-exact",)),
    Case("speed-triad", cpu=False, alone=True, level="full", saboteurs=("ulp", "one", "nan", "scale", "block")),
    Case("speed-host-copies", cpu=False, alone=True, level="full", saboteurs=("ulp", "one", "scale", "block")),
    Case(
        "speed-attention",
        cpu=False,
        alone=True,
        level="full",
        saboteurs=("ulp", "nan", "scale", "block"),
        needs=("attention",),
    ),
    Case("speed-launch", cpu=False, alone=True, level="full", saboteurs=("ulp", "one", "scale", "block")),
    Case(
        "speed-sustained",
        cpu=False,
        alone=True,
        level="stress",
        saboteurs=("ulp", "one", "nan", "scale", "block"),
        needs=("gemm-exact",),
    ),
)
