"""What is asked of how an image starts, as its files alone show it: its entry point, preloads, the C++ runtime."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.model import Finding
from envkit.subjects import Audit
from envkit.versions import Cuda

_OLD = "it was observed by a version that did not look for this"


def audit_entrypoint_cannot_start(audit: Audit) -> Iterator[Finding]:
    """The program that the image starts is there, may be executed, and has its interpreter."""
    skip_if(audit.entrypoint.is_unsupported, audit.entrypoint.via or _OLD)
    one = audit.entrypoint.need("the image's entry point")
    job = shlex.join(one.words)
    if not one.path:
        why, fix = "it is not in the image", "correct ENTRYPOINT or CMD, or COPY the file to where they name it"
    elif one.direct and not one.executable:
        user = audit.user.value or "root"
        why, fix = f"{user} may not execute it (mode {one.mode})", f"`RUN chmod +x {one.path}`, or `COPY --chmod=755`"
    elif one.direct and not one.program:
        why, fix = "it begins with no #! line and is no ELF file: exec format error", "begin it with `#!/bin/sh`"
    elif one.carriage_returns:
        why = "its lines end with a carriage return, as on Windows, which is taken for a part of each word"
        fix = "`*.sh text eol=lf` in .gitattributes, or `RUN sed -i 's/\\r$//'` on it"
    elif one.direct and one.interpreter and not one.interpreter_found:
        why, fix = f"its interpreter {one.interpreter} is not in the image", "install it, or name one that is there"
    else:
        return
    yield error(f"the image starts {one.name} (`{job}`), and {why}", one.path or one.name, {job: "image config"}, fix)


def audit_preload_of_other_cuda(audit: Audit) -> Iterator[Finding]:
    """No library of another CUDA major than torch's is preloaded, and none from outside torch's wheels."""
    skip_if(audit.preloads.is_unsupported, _OLD)
    found = [one for one in audit.preloads.need("what is preloaded") if one.family and one.loaded]
    skip_if(not found, "no library of CUDA is preloaded")
    torch = audit.torch.need("torch's version")
    wheels = {one.path for one in audit.objects.value or () if one.owner_kind == "wheel"}
    for one in found:
        if one.loaded in wheels:
            continue
        number = re.search(r"\.so\.([0-9]+)", one.loaded)
        major = int(number[1]) if number and one.family in ("cudart", "cublas", "cublasLt") else None
        other = bool(torch.cuda) and major is not None and major != Cuda(torch.cuda).major
        yield (error if other else warning)(
            f"{one.by} loads {one.loaded} into every program, "
            + (f"of CUDA {major}, and torch is built for CUDA {torch.cuda}" if other else "before torch's own copy"),
            one.loaded,
            {one.loaded: one.by, torch.cuda: audit.torch.via},
            f"take it out of {one.by}: torch finds its own",
        )


def _number(newest: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", newest)))


def audit_cxx_runtime_older(audit: Audit) -> Iterator[Finding]:
    """LD_LIBRARY_PATH leads to no C++ runtime that is older than the system's."""
    skip_if(audit.cxx.is_unsupported, _OLD)
    found = audit.cxx.need("the C++ runtimes")
    own = [one for one in found if one.by != "LD_LIBRARY_PATH"]
    first = next((one for one in found if one.by == "LD_LIBRARY_PATH"), None)
    skip_if(first is None, "LD_LIBRARY_PATH leads to no C++ runtime")
    skip_if(not own, "the image has no C++ runtime of its own")
    newest = max(own, key=lambda one: _number(one.newest))
    if first is not None and _number(first.newest) < _number(newest.newest):
        yield warning(
            f"LD_LIBRARY_PATH puts {first.path} ({first.newest or 'without versions'}) before {newest.path} "
            f"({newest.newest}): what is compiled in this image, as by torch.compile, does not load",
            first.path,
            {first.path: f"defines {first.newest}", newest.path: f"defines {newest.newest}"},
            "take the folder out of LD_LIBRARY_PATH, or remove the old libstdc++.so.6 from it",
        )
