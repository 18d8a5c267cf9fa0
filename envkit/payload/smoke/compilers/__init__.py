"""Compilers that run in the image."""

from envkit.payload.smoke.case import CLOSE, Case

_ON_CPU = Case("", gpu=False, level="full", builds=True)
_ON_GPU = Case("", cpu=False, level="full", builds=True)
_TRITON = _ON_GPU._replace(needs=("triton-add",))

CASES = (
    _ON_CPU._replace(name="torch-compile", seconds=180.0),
    _ON_CPU._replace(name="aoti-cpu", seconds=360.0),
    _ON_CPU._replace(name="triton-targets", seconds=180.0),
    _ON_GPU._replace(name="triton-add", level="quick", faults=("ulp", "one", "block")),
    _TRITON._replace(name="triton-dot", faults=CLOSE, seconds=120.0),
    _TRITON._replace(name="triton-reduce", faults=(*CLOSE, "order"), seconds=120.0),
    _TRITON._replace(name="triton-autotune", faults=("ulp", "one", "nan", "block", "fault"), seconds=240.0),
    _TRITON._replace(name="compile-gpu", faults=CLOSE, seconds=240.0),
    _TRITON._replace(name="aoti-gpu", faults=(*CLOSE, "device"), seconds=360.0),
    _ON_CPU._replace(name="aoti-moved", faults=CLOSE, needs=("aoti-cpu",), seconds=360.0),
    _ON_CPU._replace(name="aoti-runner-cpp", faults=CLOSE, needs=("aoti-cpu",), seconds=480.0),
    _ON_CPU._replace(name="cpp-extension", faults=("ulp", "one", "block"), seconds=300.0),
    _ON_GPU._replace(name="nvcc-extension", faults=("ulp", "nan", "block", "order"), seconds=300.0),
    _ON_GPU._replace(name="nvcc-axpy", faults=("ulp", "nan", "block"), seconds=240.0),
)
