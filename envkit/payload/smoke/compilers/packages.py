"""The AOTInductor packages that several tests build, load or run, and why loading one ends a process."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable
from typing import Any

from envkit.payload.aoti import compilers, package
from envkit.payload.isolate import Task
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import stages
from envkit.payload.smoke.compilers.lacking import lacking_cpp
from envkit.payload.smoke.compilers.torch_compile import inductor_cache, layer

CHECKS = "AOTI_RUNTIME_CHECK_INPUTS"  # read by the code that inductor generates, where the release knows it
BUILD_S = 200.0
LOAD_S = 120.0  # unpacking and loading took 45 s on a machine with a slow file system


def lacking() -> str:
    """Why no package can be built here; empty where nothing is missing."""
    import torch._inductor

    if not hasattr(torch._inductor, "aoti_load_package"):
        return "this release of torch has no AOTInductor packages (torch._inductor.aoti_load_package)"
    return lacking_cpp("AOTInductor builds its packages")


def model() -> Any:
    """``layer`` as a module, since only modules are exported."""

    def forward(_: Any, whole: Any, weight: Any, real: Any, mix: Any) -> Any:
        return layer(whole, weight, real, mix)

    return type("Layer", (torch.nn.Module,), {"forward": forward})()


def _generates(words: str) -> bool:
    """Whether the generator of packages knows ``words``."""
    from torch._inductor.codegen import cpp_wrapper_cpu

    return words in inspect.getsource(cpp_wrapper_cpu)


def checks_of_old() -> bool:
    """Whether this release builds the checks of inputs only into packages that are not optimised."""
    return not _generates(CHECKS)


def checks_device() -> bool:
    """Whether the checks that this release generates compare the device of an input."""
    return _generates("unmatched device type")


def _build(given: tuple[Any, ...], device: str, path: str, cache: str) -> None:
    import torch._inductor
    from torch._inductor import config

    inductor_cache(cache)
    trust_the_processor()
    config.aot_inductor.debug_compile = checks_of_old()
    if device != "cpu":
        torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("highest")  # or products are rounded to tf32
    with torch.no_grad():
        there = tuple(tensor.to(device) for tensor in given)
        exported = torch.export.export(model(), there)
        torch._inductor.aoti_compile_and_package(exported, package_path=path + ".part.pt2")
    os.replace(path + ".part.pt2", path)


def built(bench: Bench, given: tuple[Any, ...], device: str) -> str:
    """The package of ``layer`` for ``device``, made once in this run, in a process of its own; its path.

    Where it was made is gone when this returns, so what the package took from there by its path is missing.
    """
    path = os.path.join(bench.folder(), f"layer-{device.replace(':', '')}.pt2")
    cache = path + ".made"
    with stages.one_at_a_time(path):
        if not os.path.exists(path):
            try:
                stages.part(Task("building the package", device, BUILD_S, lambda _: _build(given, device, path, cache)))
            finally:
                shutil.rmtree(cache, ignore_errors=True)
    return path


def build_and_use(bench: Bench, given: tuple[Any, ...], device: str, use: Callable[..., dict[str, Any]]) -> None:
    """Has a process of its own ``use`` the built package; measures ``objects.packed`` beside what that measures."""
    path = built(bench, given, device)
    bench.note("objects.packed", libraries(path))
    loading = Task("loading the package", bench.device, LOAD_S, lambda _: use(bench, path, given))
    stages.take(bench, stages.part(loading, lambda: why_deadly(path)))


def trust_the_processor() -> None:
    """Takes what /proc/cpuinfo lists for usable, in this process.

    Before it builds or loads a package, torch imports itself again for each set of vector instructions, to see that a
    library compiled for it loads: 6 imports, 12 s on four cores and 40 s on a machine with a slow file system.  The
    test torch-compile leaves torch to ask that, on the same processor and with the same compiler.
    """
    from torch._inductor import config

    if hasattr(config.cpp, "vec_isa_ok"):
        config.cpp.vec_isa_ok = True


def load(bench: Bench, path: str) -> Any:
    """The loaded package, which checks its inputs.

    What torch unpacks stays behind when its process dies, so it is put where the run clears up.
    """
    import torch._inductor

    trust_the_processor()
    os.environ[CHECKS] = "1"
    os.environ["TMPDIR"] = stages.own_folder(bench, os.path.basename(path) + ".loaded")
    return torch._inductor.aoti_load_package(path)


def why_deadly(path: str) -> str:
    """Why loading the package ended its process, as far as its files and the compiler here tell; else empty."""
    said, _ = package.read(path)
    for library in said["libraries"]:
        if library["carries"]:
            by = [one["path"] for one in compilers.observe()["value"] or () if one["links"] == "inside"]
            how = f"as {by[0]} links whatever it builds" if by else "as nothing here does"
            return f"{library['name']} brings a C++ runtime of its own beside the process's (-static-libstdc++), {how}"
    return ""


def libraries(path: str) -> int:
    """How many shared libraries the package holds."""
    return len(package.read(path)[0]["libraries"])
