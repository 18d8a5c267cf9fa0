"""Compilers that run in the image."""

from envkit.payload.smoke.case import CLOSE, Case

_ON_CPU = Case("", gpu=False, level="full", builds=True)
_ON_GPU = Case("", cpu=False, level="full", builds=True)
_TRITON = _ON_GPU._replace(needs=("triton-add",))

CASES = (
    _ON_CPU._replace(name="torch-compile", seconds=180.0),
    _ON_CPU._replace(name="aoti-cpu", seconds=360.0),
    _ON_CPU._replace(name="triton-targets", seconds=180.0),
    _ON_GPU._replace(name="triton-add", level="quick", saboteurs=("ulp", "one", "block")),
    _TRITON._replace(name="triton-dot", saboteurs=CLOSE, seconds=120.0),
    _TRITON._replace(name="triton-reduce", saboteurs=(*CLOSE, "order"), seconds=120.0),
    _TRITON._replace(name="triton-autotune", saboteurs=("ulp", "one", "nan", "block", "fault"), seconds=240.0),
    _TRITON._replace(name="compile-gpu", saboteurs=CLOSE, seconds=240.0),
    _TRITON._replace(name="aoti-gpu", saboteurs=(*CLOSE, "device"), seconds=360.0),
    _ON_CPU._replace(name="aoti-moved", saboteurs=CLOSE, needs=("aoti-cpu",), seconds=360.0),
    _ON_CPU._replace(name="aoti-runner-cpp", saboteurs=CLOSE, needs=("aoti-cpu",), seconds=480.0),
    _ON_CPU._replace(name="cpp-extension", saboteurs=("ulp", "one", "block"), seconds=300.0),
    _ON_GPU._replace(name="nvcc-extension", saboteurs=("ulp", "nan", "block", "order"), seconds=300.0),
    _ON_GPU._replace(name="nvcc-axpy", saboteurs=("ulp", "nan", "block"), seconds=240.0),
)
