"""What is asked of the environment variables that an image sets: what bends the linker, what slows a job down."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.judging import variables as judgement
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if
from envkit.judging.checks.start import environment_changes
from envkit.model import Finding, Severity
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


def image_debug_variables_left_on(image: Image | Audit, facts: Facts) -> Iterator[Finding]:
    """No variable that serves to find faults, or bends the precision, is left on for every process."""
    found = _variables(image)
    skip_if(not found, "no variable that controls CUDA or a framework is set")
    values = {one.name: one.value for one in found}
    for row in judgement.debugging(values, facts):
        yield Finding(
            f"{row.name} is `{values[row.name]}`: {row.costs}",
            Severity[(row.weighs or "warning").upper()],
            row.name,
            {f"{row.name}={values[row.name]}": image.variables.via},
            f"unset {row.name} in the image and set it for the one run that needs it",
        )


def _variables(image: Image | Audit) -> tuple[Variable, ...]:
    return image.variables.need("the environment variables")


def _known(image: Image | Audit) -> judgement.Known:
    places = {one.name: one.leads or None for one in _variables(image)}
    visible = next((one.value for one in _variables(image) if one.name == judgement.VISIBLE), "")

    def release(program: str) -> str:
        wheels = image.wheels.need("the installed packages")
        return judgement.release_of(program, ((one.name, one.version) for one in wheels))

    return judgement.Known(
        image.variables.via,
        release,
        lambda name, path: places.get(name),
        # one that hides every GPU is image-gpus-hidden's, or hides them from this run alone
        frozenset({*_hidden_from(image), *([judgement.VISIBLE] if judgement.hides_all(visible) else [])}),
    )


def image_variable_invalid(image: Image | Audit, facts: Facts) -> Iterator[Finding]:
    """Every variable that the table of variables knows has a value that its program takes."""
    values = {one.name: one.value for one in _variables(image)}
    skip_if(not values, "no variable that controls CUDA or a framework is set")
    findings, doubts = judgement.invalid(values, _known(image), facts)
    yield from findings
    unknown_if(doubts, "; ".join(doubts))


def image_variables_contradict(image: Image | Audit, facts: Facts) -> Iterator[Finding]:
    """No two variables contradict one another."""
    values = {one.name: one.value for one in _variables(image)}
    skip_if(len(values) < 2, "fewer than two variables that control CUDA or a framework are set")
    yield from judgement.contradictions(values, image.variables.via, facts)


def _hidden_from(image: Image | Audit) -> dict[str, str]:
    """The variables that hide every GPU from the jobs of this image."""
    seen = {one.name: one.value for one in _variables(image)}
    found = {}
    value = seen.get(judgement.VISIBLE)
    if value is not None and judgement.hides_all(value) and not _of_this_run(image, value):
        found[judgement.VISIBLE] = value
    given = _declared(image).get(judgement.GIVEN)
    if given is not None and judgement.withholds_gpus(given):
        found[judgement.GIVEN] = given
    return found


def _of_this_run(image: Image | Audit, value: str) -> bool:
    """Whether an engine without containers may have hidden the GPUs, because this run was to have none."""
    return isinstance(image, Image) and not value and bool(image.engine) and image.start.is_unsupported


def _declared(image: Image | Audit) -> dict[str, str]:
    """What the image itself sets: a container's runtime sets NVIDIA_VISIBLE_DEVICES too, to void where it uses CDI."""
    if isinstance(image, Audit):
        return {one.name: one.value for one in _variables(image)}
    return {one.name: one.value for one in image.start.value.variables} if image.start.value else {}


def image_gpus_hidden(image: Image | Audit) -> Iterator[Finding]:
    """No variable hides every GPU from the jobs of an image that is to compute on them."""
    hidden = _hidden_from(image)
    torch = image.torch.value
    skip_if(torch is not None and not torch.cuda, "torch is built without CUDA")
    for name, value in hidden.items():
        made = [] if isinstance(image, Audit) else [one for one in environment_changes(image) if one.name == name]
        files = image.process.value.at_start if isinstance(image, Image) and image.process.value and made else ()
        by = f", set by {made[-1].by}" if made else ""
        what = (
            "hides every GPU from CUDA"
            if name == judgement.VISIBLE
            else "lets the container toolkit's runtime give the container no GPU, unless the run says otherwise"
        )
        yield error(
            f"{name} is `{value}`{by}, which {what}",
            name,
            {f"{name}={value}": image.variables.via, **dict.fromkeys(files, "Python's own start")},
            f"take {name} out of the image, or set it to all"
            if name == judgement.GIVEN
            else f"unset {name}: the run chooses GPUs with --gpus",
        )
