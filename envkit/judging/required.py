"""What must have been answered before "pass" may be said, for each kind of subject; and on what its verdict stands.

Checks skip what does not apply, so that a subject of which nearly nothing was seen can leave a few of them that pass.
The questions here are asked of the subject itself and never of other checks: one that is open is a result of its own,
with the outcome unknown.  A subject without an entry in ``KINDS`` cannot be judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from envkit.model import Coverage, NoGpu, Observed, Outcome, Result
from envkit.records import dataclass
from envkit.subjects.imported import NO_FRAMEWORK, TORCH, ImportState
from envkit.subjects.recorded import Recorded

if TYPE_CHECKING:
    from envkit.subjects import AotiRun, Audit, Host, Image, Launch, Placement, Precision, SmokeRun
    from envkit.subjects.smoke import SmokeTest

GPU = "required-gpu"
_ELSE = "--framework names another package, or none"
_OF_CUDA = ("cudart", "cublas", "cudnn")  # families without which no torch with CUDA runs


@dataclass(frozen=True, slots=True)
class Question:
    """One question; ``open`` says why it has no answer, with an empty text where it has one.  ``id`` is its page."""

    id: str
    open: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """The questions of one kind of subject, and on what a verdict of it stands.

    ``questions`` may be empty only where every check that passes says something by itself.
    ``gpu``: what a GPU would have done, empty where no GPU has a part in such a verdict.  ``computes``: it must have
    computed; else it need only show that it is there.
    """

    questions: tuple[Question, ...]
    coverage: Callable[[Any], Coverage]
    gpu: str = ""
    computes: bool = True


def _fields_known(subject: object) -> str:
    """Every field of the document that the subject was read from is one that this version knows."""
    parts = (subject, getattr(subject, "host", None))
    newer = [name for part in parts if isinstance(part, Recorded) for name in part.newer_fields]
    more = f" and {len(newer) - _SHOWN} more" if len(newer) > _SHOWN else ""
    words = f"the document has fields that only a newer version of envkit knows: {', '.join(newer[:_SHOWN])}{more}"
    return words if newer else ""


_SHOWN = 5  # names of fields in one sentence


def _why(seen: Observed[Any]) -> str:
    return seen.missing or "no value"


def _framework_there(image: Image) -> str:
    """The first framework that is there although the image is declared to hold none, empty if none is."""
    if image.import_state is not ImportState.ABSENT:
        return TORCH
    return next((one.name for one in image.frameworks.value or ()), "")


def _framework_imported(image: Image) -> str:
    """Each framework that was asked for, by default torch, was imported in the Python that was asked."""
    asked = image.frameworks_asked or (TORCH,)
    if asked == (NO_FRAMEWORK,):
        for what, seen in (("torch", image.torch_import), ("other frameworks", image.frameworks)):
            if seen.value is None:
                return f"whether {what} can be imported here was not observed: {_why(seen)}"
        found = _framework_there(image)
        return f"the image was declared to hold no framework, and {found} is there" if found else ""
    said = []
    for name in asked:
        if name == TORCH:
            ended = image.torch_import.value or _why(image.torch_import)
        else:
            imported = {one.name: one.ended for one in image.frameworks.value or ()}
            ended = imported.get(name, "absent") if image.frameworks.value is not None else _why(image.frameworks)
        if ended == "absent":
            said.append(f"there is no {name} here")
        elif ended != "done":
            said.append(f"{name} was not imported: {ended}")
    return f"{'; '.join(said)} ({_ELSE})" if said else ""


def _of_torch(image: Image) -> bool:
    """Whether torch stands behind what was asked for: many frameworks use its libraries and name no build of theirs."""
    return TORCH in (image.frameworks_asked or (TORCH,)) or image.import_state is ImportState.DONE


def _libraries_listed(image: Image) -> str:
    """The CUDA libraries of the process that imported torch are listed; a torch without CUDA has none."""
    if not _of_torch(image):
        others = [one for one in image.frameworks.value or () if one.name in image.frameworks_asked]
        listed = image.libraries.value or image.unmapped.value  # some map theirs only when a GPU is first used
        silent = [one.name for one in others if one.gpu == "yes" and not (one.libraries or listed)]
        return f"no CUDA library that {' and '.join(silent)} could load was listed" if silent else ""
    if image.import_state is not ImportState.DONE:  # the question before this one
        return ""
    if image.libraries.value is None:
        return f"the libraries of the process that imports torch were not listed: {_why(image.libraries)}"
    if image.torch.value is None or not image.torch.value.cuda:  # the next question
        return ""
    if not any(one.name.startswith((*_OF_CUDA, "torch_cuda")) for one in image.libraries.value):
        return f"torch is built for CUDA {image.torch.value.cuda}, and no library of CUDA is listed in its process"
    return ""


def _bindings_known(image: Image) -> str:
    """Of the process that imported a torch with CUDA it is known which copy of a CUDA library some caller binds."""
    if image.torch.value is None or not image.torch.value.cuda or _libraries_listed(image):  # other questions
        return ""
    if image.import_state is not ImportState.DONE:
        return ""
    if image.bindings.value is None:
        return f"which CUDA libraries torch binds was not observed: {_why(image.bindings)}"
    listed = {one.name for one in image.libraries.value or () if one.name.startswith(_OF_CUDA)}
    bound = [one for one in image.bindings.value if one.path]
    if not bound or (listed and not any(one.name in listed for one in bound)):  # a torch may hold them within itself
        return f"torch is built for CUDA {image.torch.value.cuda}, and no caller is known that binds a library of CUDA"
    return ""


def _build_read(image: Image) -> str:
    """What torch was built for was read: its CUDA, and with one its architectures; of others, whether for GPUs."""
    if not _of_torch(image):
        others = [one for one in image.frameworks.value or () if one.name in image.frameworks_asked]
        silent = [one.name for one in others if one.ended == "done" and not one.gpu]
        return f"whether the build of {' and '.join(silent)} uses GPUs is not known" if silent else ""
    if image.import_state is not ImportState.DONE:
        return ""
    if image.torch.value is None:
        return f"torch's build was not read: {_why(image.torch)}"
    if image.torch.value.cuda and not image.torch.value.archs:
        return f"torch {image.torch.value.version} does not list its architectures"
    return ""


def _start_known(image: Image) -> str:
    """How a container of the image starts its job is known, unless it was examined past that on purpose."""
    known = image.start.is_unsupported or image.start.value is not None
    return "" if known else f"how the image starts its job is not known: {_why(image.start)}"


def _image_coverage(image: Image) -> Coverage:
    gpus, cpu = tuple(map(str, image.devices.value or ())), image.torch_import.value is not None
    return Coverage(files=True, cpu=cpu, gpus=gpus, no_gpu=_absent(gpus, image.devices))


def _used(seen: Observed[Any], devices: set[str]) -> tuple[str, ...]:
    """The names of those of the GPUs ``seen`` that are among torch's ``devices``; "cuda" is the first of them."""
    used = devices | ({"cuda:0"} if "cuda" in devices else set())
    return tuple(str(name) for index, name in enumerate(seen.value or ()) if f"cuda:{index}" in used)


def _absent(gpus: tuple[str, ...], seen: Observed[Any]) -> NoGpu | None:
    """Why none of the GPUs ``seen`` is among ``gpus``; None where some are."""
    if gpus:
        return None
    return NoGpu.OPEN if seen.value is None else NoGpu.UNUSED if seen.value else NoGpu.ABSENT


def _framework_found(audit: Audit) -> str:
    """A torch, or each package that was asked for, was found among the files; or none, as was declared."""
    asked = audit.frameworks_asked or (TORCH,)
    if audit.wheels.value is None and asked != (TORCH,):
        return f"the installed distributions were not observed: {_why(audit.wheels)}"
    installed = {wheel.name for wheel in audit.wheels.value or ()}
    if asked == (NO_FRAMEWORK,):
        from envkit.payload.probe.frameworks import FRAMEWORKS

        found = [TORCH] if audit.torch.value else sorted(installed & {TORCH, *FRAMEWORKS})
        return f"the image was declared to hold no framework, and {found[0]} is there" if found else ""
    said = []
    for name in asked:
        if name == TORCH and audit.torch.value is None:
            said.append(_why(audit.torch))
        elif name != TORCH and name not in installed:
            said.append(f"there is no {name} here")
    return f"{'; '.join(said)} ({_ELSE})" if said else ""


def _computed(test: SmokeTest) -> bool:
    """Whether a test came to its end and computed: a test that provokes an error only shows how a process dies."""
    from envkit.payload.smoke import EXTRA, TESTS
    from envkit.payload.smoke.case import GENERIC

    own = {case.name for case in TESTS if set(case.faults) & set(GENERIC)}
    return test.ended == "ran" and bool(test.measures) and (test.name in own or test.name.startswith(EXTRA))


def _test_computed(run: SmokeRun) -> str:
    """At least one test that computes came to its end."""
    if run.tests.value is None:
        return f"no test was seen: {_why(run.tests)}"
    if any(map(_computed, run.tests.value)):
        return ""
    why = next((test.detail for test in run.tests.value if test.ended == "not-applicable" and test.detail), "")
    return "no test that computes came to its end" + (f": {why}" if why else "")


def _on_gpu(test: SmokeTest, gpus: int) -> bool:
    """Whether a test ran on one of so many GPUs; one of several runs on processors where there are too few."""
    return test.ended == "ran" and (test.device.startswith("cuda") or (test.device == "gpus" and gpus > 1))


def _smoke_coverage(run: SmokeRun) -> Coverage:
    from envkit.payload.smoke import TESTS
    from envkit.payload.smoke.case import chosen

    ran = [test for test in run.tests.value or () if test.ended == "ran"]
    names = run.gpus.value or ()
    there = [test for test in ran if _on_gpu(test, len(names))]
    used = {test.device for test in there}
    gpus = tuple(name for index, name in enumerate(names) if used & {"gpus", f"cuda:{index}"})
    asked = chosen(TESTS, run.level, run.only, run.exclude, run.suite)
    wanted = {case.name for case in asked if case.gpu or case.several}
    if run.sanitize:
        wanted &= {case.name for case in asked if run.sanitize in case.sanitize}
    left = len(wanted - {test.name for test in there})
    computed = bool(gpus) and any(map(_computed, there))
    return Coverage(cpu=bool(ran), gpus=gpus, computed=computed, left=left, no_gpu=_absent(gpus, run.gpus))


def _no_gpu_expected(host: Host) -> bool:
    return host.expected.value is not None and host.expected.value.gpus.count == 0


def _driver_answered(host: Host) -> str:
    """The driver answered for at least one GPU, or the contract says that there is none, or none is anywhere.

    The last is a finding of host-no-gpu, and no doubt.
    """
    from envkit.judging.checks._host import gpu_signs  # with the records of a machine it costs 50 ms

    signs, silent = gpu_signs(host)
    if _no_gpu_expected(host) or _host_coverage(host).gpus or not (signs or silent):
        return ""
    nvml = host.nvml.value
    said = _why(host.nvml) if nvml is None else nvml.detail or f"it {nvml.ended}, for no GPU"
    return f"the driver answered for no GPU: {said} (in a contract, `count = 0` under `[gpus]` says that there is none)"


def _host_coverage(host: Host) -> Coverage:
    nvml = host.nvml.value
    gpus = nvml.gpus if nvml is not None and nvml.ended == "answered" else ()
    names = tuple(gpu.name.value or f"GPU {gpu.index}" for gpu in gpus)
    if names:
        return Coverage(files=True, gpus=names)
    declared = _no_gpu_expected(host)
    return Coverage(files=True, no_gpu=NoGpu.CONTRACT if declared else NoGpu.OPEN if nvml is None else NoGpu.ABSENT)


def _launch_observed(launch: Launch) -> str:
    """Image, machine and job were observed."""
    machine: Observed[Any] = launch.host.os if launch.job.gpus.value == () else launch.host.nvml
    for what, seen in (("image", launch.image), ("machine", machine), ("job's environment", launch.job.environment)):
        if seen.value is None:
            return f"the {what} was not observed: {_why(seen)}"
    return ""


def _followed(model: Placement) -> str:
    """The model was followed through a run, operation by operation."""
    end = model.end.value
    if end is None:
        return f"the model was not followed: {_why(model.end)}"
    if not model.operations:
        return "no operation of the model was followed" + ("" if end.ended == "ran" else f": its run {end.ended}")
    return ""


def _placement_coverage(model: Placement) -> Coverage:
    used = {group.device for group in model.groups.value or ()} if model.how == "run" and model.operations else set()
    gpus = _used(model.gpus, used)
    return Coverage(cpu=model.operations > 0, gpus=gpus, computed=bool(gpus), no_gpu=_absent(gpus, model.gpus))


def _compared(model: Precision) -> str:
    """Both steps left results that were compared with those in wide numbers."""
    for what, step in (("single precision", model.single), (model.dtype or "the wanted dtype", model.wanted)):
        if step.value is None:
            return f"the step in {what} was not observed: {_why(step)}"
        if not step.value.results:
            return f"the step in {what} left no result to compare"
    return ""


def _precision_coverage(model: Precision) -> Coverage:
    gpus = _used(model.gpus, {model.device.value or ""} if model.wanted.value is not None else set())
    cpu = model.single.value is not None
    return Coverage(cpu=cpu, gpus=gpus, computed=bool(gpus), no_gpu=_absent(gpus, model.gpus))


def _package_ran(run: AotiRun) -> str:
    """The package was read, and loaded in the place that was asked."""
    if run.package.value is None:
        return f"the package was not read: {_why(run.package)}"
    if run.run.value is None:
        return f"how the package runs was not observed: {_why(run.run)}"
    if run.run.value.ended not in ("done", "loaded"):
        return f"the package was not loaded: {run.run.value.ended} {run.run.value.detail}".rstrip()
    return ""


def _aoti_coverage(run: AotiRun) -> Coverage:
    ended = run.run.value
    outputs = ended.outputs if ended is not None and ended.ended == "done" else ()
    gpus = _used(run.gpus, {one.device for one in outputs})
    cpu = ended is not None and ended.ended in ("done", "loaded")
    return Coverage(files=True, cpu=cpu, gpus=gpus, computed=bool(gpus), no_gpu=_absent(gpus, run.gpus))


def _files(subject: object) -> Coverage:
    return Coverage(files=True)


_OF_IMAGES = (
    Question("required-image-framework", _framework_imported),
    Question("required-image-libraries", _libraries_listed),
    Question("required-image-bindings", _bindings_known),
    Question("required-image-build", _build_read),
    Question("required-image-start", _start_known),
)
FIELDS = Question("required-known-fields", _fields_known)
_OF_HOSTS = (Question("required-host-driver", _driver_answered),)
KINDS: Mapping[str, Kind] = {
    "Image": Kind(_OF_IMAGES, _image_coverage, gpu="the process in it saw none", computes=False),
    "Audit": Kind((Question("required-audit-framework", _framework_found),), _files),
    "SmokeRun": Kind((Question("required-smoke-test", _test_computed),), _smoke_coverage, "no test ran on one"),
    "Host": Kind(_OF_HOSTS, _host_coverage, gpu="the driver answered for none", computes=False),
    "Launch": Kind((Question("required-launch-parts", _launch_observed),), _files),
    "Placement": Kind((Question("required-placement-run", _followed),), _placement_coverage, "the model ran on none"),
    "Precision": Kind((Question("required-precision-steps", _compared),), _precision_coverage, "the steps ran on none"),
    "AotiRun": Kind((Question("required-aoti-load", _package_ran),), _aoti_coverage, "the package ran on none"),
    # A file is searched for what is wrong in it, one among many, most of which have no GPU in mind.  One in which there
    # is nothing to judge leaves every check skipped, which is undecided as it is.
    **dict.fromkeys(("Dockerfile", "Packages", "Workload", "JobStart"), Kind((), _files)),
}


def of(subject: object) -> Kind:
    """The entry of a subject; KeyError for one that has none."""
    return KINDS[type(subject).__name__]


def covered(*subjects: object) -> Coverage:
    """On what a verdict of all ``subjects`` together stands."""
    return merged(of(subject).coverage(subject) for subject in subjects)


def merged(parts: Iterable[Coverage]) -> Coverage:
    """All of ``parts`` as one.  GPUs are those of what ran, and the machine's own only where nothing ran."""
    every = tuple(parts)
    ran = [part for part in every if part.cpu] or every
    with_gpus = sorted((part for part in ran if part.gpus), key=lambda part: not part.computed)
    gpus = with_gpus[0].gpus if with_gpus else ()
    return Coverage(
        files=any(part.files for part in every),
        cpu=any(part.cpu for part in every),
        gpus=gpus,
        computed=any(part.computed for part in every),
        left=sum(part.left for part in every),
        no_gpu=None if gpus else next((part.no_gpu for part in reversed(every) if part.no_gpu), None),
    )


def without_gpu(*subjects: object) -> tuple[Result, ...]:
    """A result for each of ``subjects`` in whose verdict a GPU should have had a part and had none.

    Where a GPU can have a part in none of them at all, that is one as well.
    """
    able = [subject for subject in subjects if of(subject).gpu]
    if not able:
        return (Result(GPU, Outcome.UNKNOWN, reason="a GPU is required, and nothing here ran or was asked of a GPU"),)
    found = []
    for subject in able:
        kind = of(subject)
        on = kind.coverage(subject)
        if not on.gpus or (kind.computes and not on.computed):
            why = f": {on.no_gpu}" if on.no_gpu else ""
            found.append(Result(GPU, Outcome.UNKNOWN, reason=f"a GPU is required, and {kind.gpu}{why}"))
    return tuple(found)


def ids() -> frozenset[str]:
    """The ids of all results that this module makes, each of which has a page."""
    return frozenset({GPU, FIELDS.id, *(question.id for kind in KINDS.values() for question in kind.questions)})
