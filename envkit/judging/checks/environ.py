"""What is asked of the environment variables that an image sets: what bends the linker, what slows a job down."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envkit.judging.checks._outcomes import error, note, skip_if, warning
from envkit.judging.checks._variables import LEFT_ON
from envkit.model import Finding
from envkit.subjects.audit import Audit
from envkit.subjects.image import Image, Variable

_CUDA_LIBRARY = re.compile(
    r"lib(cuda|cudart|cublas\w*|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse\w*|nccl|nvrtc[\w-]*|nvJitLink|nvidia-\w+)\.so"
)
_CUDA_DIRECTORY = re.compile(r"cuda|cudnn|nccl|nvidia/\w+/lib", re.IGNORECASE)
_HOSTS = ("/usr/local/nvidia/lib", "/usr/local/nvidia/lib64")  # where the container toolkit once put the driver


def image_loader_variables_shadow_cuda(image: Image | Audit) -> Iterator[Finding]:
    """LD_LIBRARY_PATH names no stubs directory, and neither it nor LD_PRELOAD puts other CUDA libraries first."""
    variables = {one.name: one.value for one in image.variables.need("the environment variables")}
    directories = [entry for entry in re.split("[:;]", variables.get("LD_LIBRARY_PATH", "")) if entry]
    preloads = variables.get("LD_PRELOAD", "").replace(":", " ").split()
    skip_if(not directories and not preloads, "neither LD_LIBRARY_PATH nor LD_PRELOAD is set")
    via = image.variables.via
    idle = {entry for one in image.variables.value or () for entry in one.idle}
    for entry in directories:
        if entry in idle:
            yield note(
                f"LD_LIBRARY_PATH holds {entry}, which is not there or holds no library",
                "LD_LIBRARY_PATH",
                {entry: via},
                "take it off LD_LIBRARY_PATH: a toolkit that is installed later would put its stubs there",
            )
        elif "stubs" in entry.split("/"):
            yield error(
                f"LD_LIBRARY_PATH holds {entry}, whose libcuda is a stub that shadows the driver",
                "LD_LIBRARY_PATH",
                {entry: via},
                "take it off LD_LIBRARY_PATH; to link against the stub, LIBRARY_PATH is enough",
            )
    others = [
        entry
        for entry in directories
        if _CUDA_DIRECTORY.search(entry)
        and entry.rstrip("/") not in _HOSTS
        and not {"stubs", "compat"} & set(entry.split("/"))
    ]
    if others:
        yield note(
            f"LD_LIBRARY_PATH holds {' and '.join(others)}: libraries there come before those that torch's own search "
            "names only by RUNPATH",
            "LD_LIBRARY_PATH",
            dict.fromkeys(others, via),
            "wheels find their libraries without it: unset it unless something else needs it",
        )
    for path in preloads:
        if _CUDA_LIBRARY.match(posixpath.basename(path)):
            yield note(
                f"LD_PRELOAD holds {path}, whose symbols every process binds first",
                "LD_PRELOAD",
                {path: via},
                "unset it once the fault that it works around is fixed",
            )


def image_debug_variables_left_on(image: Image | Audit) -> Iterator[Finding]:
    """No variable that serves to find faults is left on in the environment of every process."""
    variables: tuple[Variable, ...] = image.variables.need("the environment variables")
    skip_if(not variables, "no variable that controls CUDA or a framework is set")
    for one in variables:
        left = LEFT_ON.get(one.name)
        if left is not None and left.on(one.value):
            yield warning(
                f"{one.name} is `{one.value}`: {left.costs}",
                one.name,
                {f"{one.name}={one.value}": image.variables.via},
                f"unset {one.name} in the image and set it for the one run that needs it",
            )
