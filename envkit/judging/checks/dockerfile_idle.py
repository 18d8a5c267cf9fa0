"""What keeps the programs of an image from the GPUs that it gets: a JAX for the CPU, a variable that names no GPU."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import need_stages, unknown_if_unread
from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.model import Finding, Severity
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Dockerfile, Install

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPUS = pattern(r"tensorflow|torch|cupy|nvidia-|onnxruntime|numba|mxnet|paddle")


def cpu_jax_in_cuda_image(dockerfile: Dockerfile) -> Iterator[Finding]:
    """An image of CUDA with nothing but JAX to use it gets the JAX that does.  Source: JAX, "Installation":
    without an extra for CUDA it is for the CPU alone."""
    need_stages(dockerfile)
    base = dockerfile.base
    asked = [
        one for one in dockerfile.installs if one.name == "jax" and one.manager in ("pip", "uv") and not one.constraint
    ]
    skip_if(base.family != "nvidia" or not stack.cuda_of_base(base), "the base is no image of CUDA")
    skip_if(not asked or not asked[-1].sure, "nothing here surely installs JAX")
    if any(_of_cuda(one) for one in dockerfile.installs):
        return
    others = dockerfile.torch is not None or stack.framework(dockerfile) is not None
    skip_if(others or any(_GPUS.match(one.name) for one in dockerfile.installs), "something else may use the GPU")
    unknown_if_unread(dockerfile.unread, ", so whether JAX gets its part for CUDA is not known", Severity.WARNING)
    one, cuda = asked[-1], stack.cuda_of_base(base)
    yield warning(
        f"the base has CUDA {cuda}, and jax{one.specifier} without an extra is for the CPU, so that it uses no GPU",
        one.span,
        {f"CUDA {cuda} in the base": f"{base.span.place}, {base.cuda.via}", "no extra for CUDA": one.span.place},
        "install JAX with its extra for CUDA, as its installation page names it, or take a base without CUDA",
    )


def _of_cuda(one: Install) -> bool:
    """Whether a package is JAX's part for CUDA, asks for it, or may come from where that is."""
    if not one.name.startswith("jax"):
        return False
    elsewhere = bool(one.url or one.index or one.extra_indexes or one.find_links or one.locked or one.local)
    extra = any(not each.startswith(("cpu", "ci")) for each in one.extras)
    return elsewhere or extra or one.name.startswith("jax-cuda") or one.manager not in ("pip", "uv")


def cuda_visible_devices_invalid(dockerfile: Dockerfile) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES of the image names GPUs.  Source: CUDA programming guide, environment variables: the first
    entry that is not known and all that follow are hidden."""
    need_stages(dockerfile)
    said = dockerfile.target.env.get(_VISIBLE)
    mine = [one for step in dockerfile.steps for one in step.settings if one.kind == "ENV" and one.name == _VISIBLE]
    skip_if(said is None or not mine, f"the image sets no {_VISIBLE}")
    if said is not None and said.split(",")[0].strip() == "all":
        yield error(
            f"{_VISIBLE} is {said}, which is the name of no GPU, so that CUDA finds none",
            mine[-1].span,
            {f"{_VISIBLE}={said}": mine[-1].span.place},
            "drop it: the container sees only the GPUs that it gets; `all` is a value of NVIDIA_VISIBLE_DEVICES",
        )
