"""What keeps programs from GPUs: a JAX for the CPU, a variable that names no GPU, a build, which has none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import JETSON, need_stages, reached, unknown_if_unread
from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.model import Finding, Severity
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command, Dockerfile, Install, Step

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


# ---------------------------------------------------------------- what only a container has

# Programs that do nothing without a driver and a GPU.
_OF_A_GPU = frozenset({"nvidia-smi", "trtexec", "deviceQuery", "bandwidthTest", "nvidia-cuda-mps-control", "gpu-burn"})
_PYTHON = pattern(r"(?:python|ipython)[0-9.]*")
_IN_PYTHON = pattern(
    r"assert\s+(?:torch\.cuda\.(?:is_available|device_count)|cupy\.cuda\.is_available|(?:len\()?\w+(?:\.config)?"
    r"\.list_physical_devices\(['\"]GPU)|torch\.cuda\.(?:init|current_device|get_device_\w+|set_device|synchronize|mem_get_info"
    r")\(|\.cuda\(\)|\.to\(\s*['\"]cuda|device\s*=\s*['\"](?:cuda|gpu)|jax\.devices\(['\"](?:gpu|cuda)"
)
_WITHOUT = pattern(r"\bif\b|\btry\b|\bdef\b|\band\b|\bor\b|\blambda\b")  # which may well do without


def run_needs_gpu(dockerfile: Dockerfile) -> Iterator[Finding]:
    """No RUN needs a GPU, for a build gets none.  Source: Docker, "Container Device Interface": only `RUN --device`
    hands one to a build; NVIDIA/nvidia-docker issue 1747: the engine's default runtime is that of containers."""
    need_stages(dockerfile)
    asked = 0
    for index, step in reached(dockerfile):
        if step.name != "RUN":
            continue
        lent = any(flag.startswith("--device") for flag in step.flags)
        lent = lent or JETSON.search(dockerfile.stages[index].base.reference) is not None
        for at, command in enumerate(step.commands):
            what = _wants_gpu(command)
            if not what:
                continue
            asked += 1
            if lent or not command.sure or not _ends_build(step, at):
                continue
            yield warning(
                f"{what} needs a GPU and its driver, and a build gets none, so that it ends here",
                command.span,
                {"no --device for this RUN": step.span.place},
                "do it when the container starts, or hand the build one by CDI: `RUN --device=nvidia.com/gpu=all ...`",
            )
            break  # the build does not come further
    skip_if(not asked, "no RUN does what only a GPU can")


def _wants_gpu(command: Command) -> str:
    """What a command does that needs a GPU, "" where it may need none."""
    if command.program in _OF_A_GPU:
        helps = {"-h", "--help", "--version"} & set(command.args)
        return "" if helps else command.program
    if _PYTHON.fullmatch(command.program) is None:
        return ""
    text = command.heredoc
    if "-c" in command.args[:-1]:
        word = command.words[command.args.index("-c") + 2]
        text = word.text if word.sure else ""
    found = _IN_PYTHON.search(text)
    return f"`{found[0].strip()}`" if found and not _WITHOUT.search(text) else ""


def _ends_build(step: Step, at: int) -> bool:
    """Whether the RUN certainly fails where its command number ``at`` does."""
    command = step.commands[at]
    if re.search(rf"[!(`]\s*{re.escape(command.words[0].raw)}", step.value):
        return False  # its failure is meant, or that of the words in which its output stands
    for each in step.commands[at + 1 :]:
        if each.after == "&&":
            continue
        strict = any(one.program == "set" and re.match("-[a-z]*e", " ".join(one.args)) for one in step.commands[:at])
        return each.after == ";" and each.sure and strict
    return True
