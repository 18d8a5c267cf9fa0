"""A CPU tensor given to a package that was compiled for the GPU.

With the checks of inputs on, the error must name the device, where the release generates such a check.  Without them
it may be any error that Python can catch, but never a dead process and never a wrong result.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import packages
from envkit.payload.smoke.compilers.torch_compile import compare, inputs

_NAMED = "unmatched device type"  # torch/_inductor/codegen/cpp_wrapper_cpu.py
_LOAD_S = 150.0  # loading took 45 s on a machine with a slow file system


def _wrong(device: str, results: Any, given: tuple[Any, ...]) -> int:
    """Whether the part of the results that is exact is wrong."""
    bench = Bench(device)
    compare(bench, results, given)
    return int(bench.measures["exact.wrong"])


def _use(device: str, path: str, fault: bool, checks: str) -> dict[str, Any]:
    """Runs the package right, then with its first input on the CPU; ``checks`` is "1" to have it check its inputs."""
    os.environ[packages.CHECKS] = checks
    import torch
    import torch._inductor

    torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("highest")
    given = inputs(Bench(device))
    packages.trust_the_processor()
    loaded = torch._inductor.aoti_load_package(path)
    there = tuple(tensor.to(device) for tensor in given)
    with torch.no_grad():
        ready = _wrong(device, loaded(*there), given)
        try:
            results = loaded(*(given if fault else there)[:1], *there[1:])
            torch.cuda.synchronize(device)
            got = _wrong(device, results, given)
        except RuntimeError as error:
            return {"ready": ready, "said": f"{type(error).__name__}: {error}"}
    return {"ready": ready, "said": "", "result": got}


def run(bench: Bench) -> None:
    """Measures ``ready.wrong`` (right inputs), ``reported.wrong`` with checks, ``unchecked.wrong`` without,
    ``named.offered`` (whether this release checks devices) and ``after.wrong``."""
    bench.not_applicable_if(packages.lacking())
    fault = provoke.planted(bench)
    path = packages.built(bench, inputs(bench), bench.device)
    switches = {"checked": "1", "unchecked": "0"}
    works = {name: partial(_use, bench.device, path, fault, switch) for name, switch in switches.items()}
    found = provoke.ends(works, _LOAD_S, together=True)  # each loads for most of a minute, and neither breaks the GPU
    for name, ending in found.items():
        if ending.ended != "ran":
            why = packages.why_deadly(path) if ending.ended == "killed" else ""
            said = f"the process that uses the package, inputs {name}: {provoke.words(ending)} {why}"
            raise RuntimeError(said.strip())
        bench.count("ready.wrong", ending.value["ready"])
    checked, unchecked = found["checked"], found["unchecked"]
    said = str(checked.value["said"])
    provoke.after_torch(bench)
    checks = packages.checks_device()  # not earlier: it may start CUDA, and then none may fork
    bench.note("named.offered", int(checks))
    named = _NAMED in said + checked.stderr_tail or not checks
    provoke.tell(bench, "reported.wrong", bool(said) and named, f"checked: {said[:300] or 'accepted'}")
    said = str(unchecked.value["said"])
    right = bool(said) or (fault and not unchecked.value["result"])  # a GPU that reads the host's memory computes right
    provoke.tell(bench, "unchecked.wrong", right, f"unchecked: {said[:300] or 'a result'}")
