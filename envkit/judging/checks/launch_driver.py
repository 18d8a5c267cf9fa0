"""What is asked of driver and image together: what it requires, runs, compiles, and brings that it should not."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from envkit.errors import UsageError
from envkit.facts import Facts, served
from envkit.judging import nvidia_require as require
from envkit.judging.checks import _launch as job
from envkit.judging.checks._host import gpu_name, loaded_driver, need_driver, nvml_answers
from envkit.judging.checks._outcomes import error, note, or_skip, skip_if, unknown_if, warning
from envkit.judging.checks._torch_fit import ptx_isa
from envkit.judging.variables import is_on, rows
from envkit.model import Finding, Severity, Skip
from envkit.subjects.host import Gpu
from envkit.subjects.launch import CompatLibrary, Launch
from envkit.versions import Cuda, Driver, Sm

_DISABLE = "NVIDIA_DISABLE_REQUIRE"
_PTX_SETTINGS = ("CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT")
# nvmlBrandType_t of nvml.h.  That a compat library's note names GPUs by these numbers is inferred: NVIDIA says it
# nowhere, and the notes list exactly the brands that the same release's NVIDIA_REQUIRE_CUDA lists.
_BRANDS = {
    "Quadro": 1, "Tesla": 2, "NVS": 3, "GRID": 4, "GeForce": 5, "Titan": 6, "vApps": 7, "VPC": 8, "VCS": 9, "vWS": 10,
    "Cloud Gaming": 11, "Quadro RTX": 12, "NVIDIA RTX": 13, "NVIDIA": 14, "GeForce RTX": 15, "Titan RTX": 16,
}  # fmt: skip


def _required(launch: Launch) -> list[require.Requirement]:
    """The image's requirements; raises Skip if there are none, Nonsense for an old image's unreadable version."""
    job.wanted(launch)
    found = list(require.requirements(job.variables(launch)))
    skip_if(not found, "the image sets no NVIDIA_REQUIRE_* conditions")
    return found


def _about(launch: Launch, gpu: Gpu, asked: frozenset[str]) -> require.Properties:
    """What is asked about, as far as it is asked; raises Unknown for what was not observed."""
    cuda = nvml_answers(launch.host).cuda if "cuda" in asked else ""
    unknown_if("cuda" in asked and not cuda, "the driver did not say which CUDA it speaks")
    brand = None
    if "brand" in asked:  # what has none is of the brand that NVML calls unknown
        lacks = gpu.brand.is_unsupported
        brand = "unknown" if lacks else gpu.brand.need(f"the brand of {gpu_name(gpu)}")
    sm = job.sm_of(gpu) if "arch" in asked else None
    return require.Properties(
        cuda or None,
        str(loaded_driver(launch.host)[0]) if "driver" in asked else None,
        f"{sm.major}.{sm.minor}" if sm else None,
        brand,
    )


def _unmet(
    launch: Launch, required: list[require.Requirement]
) -> Iterator[tuple[require.Requirement, str, dict[str, str]]]:
    """Each requirement that some GPU does not meet, what the machine has in its place, and the evidence."""
    for one in required:
        for gpu in job.some_given(launch):
            about = _about(launch, gpu, require.asks(one.text))
            try:
                if require.met(one.text, about):
                    continue
                has = [
                    f"{name} {value}"
                    for name, value in (
                        ("driver", about.driver), ("CUDA", about.cuda), ("arch", about.arch), ("brand", about.brand)
                    )
                    if value
                ]  # fmt: skip
                why = f"{gpu_name(gpu)} has {', '.join(has)}"
            except require.InvalidExpression as nonsense:
                why = f"it cannot be read: {nonsense}"
            yield one, why, {f"{one.variable}={one.text}": launch.job.environment.via, why: "NVML"}
            break


def _short(text: str) -> str:
    first, _, rest = text.partition(" ")
    count = len(rest.split())
    return f"{first} or {job.some(count, 'other alternative')}" if count else first


def launch_image_requirement_not_met(launch: Launch) -> Iterator[Finding]:
    """Every GPU that the job gets meets what the image requires by NVIDIA_REQUIRE_*."""
    skip_if(require.disabled(job.variables(launch)), f"{_DISABLE} turns the requirements off")
    by_cdi = launch.job.way.value == "cdi"
    then = (
        "the toolkit does not check it if GPUs are passed by CDI"
        if by_cdi
        else "the toolkit's hook refuses the container, although its newer default mode would not check it"
    )
    fix = "update the driver, or take an image for an older CUDA; do not set NVIDIA_DISABLE_REQUIRE, which hides it"
    try:
        for one, why, evidence in _unmet(launch, _required(launch)):
            yield Finding(
                f"{one.variable} asks for {_short(one.text)}, and {why}: {then}",
                Severity.WARNING if by_cdi else Severity.ERROR,
                one.variable,
                evidence,
                f"{fix}; {job.AGAIN}",
            )
    except require.InvalidExpression as nonsense:
        yield error(str(nonsense), "CUDA_VERSION", job.said(launch, "CUDA_VERSION"), "fix the image")


def launch_image_requirement_disabled(launch: Launch) -> Iterator[Finding]:
    """Nothing turns the image's requirements off."""
    job.wanted(launch)
    if not require.disabled(job.variables(launch)):
        return
    try:
        hidden = [f"{one.variable} ({_short(one.text)})" for one, _, _ in _unmet(launch, _required(launch))]
    except require.InvalidExpression as nonsense:
        hidden = [str(nonsense)]
    except Skip:
        hidden = []
    yield Finding(
        f"{_DISABLE} hides that {', '.join(hidden)} is not met"
        if hidden
        else f"{_DISABLE} is set although every requirement is met",
        Severity.WARNING if hidden else Severity.NOTE,
        _DISABLE,
        job.said(launch, _DISABLE),
        f"unset {_DISABLE}, and update the driver or take an image for an older CUDA; {job.AGAIN}",
    )


def _needed(launch: Launch) -> tuple[Cuda, str, str]:
    """The CUDA that the image needs, what needs it and how that is known; raises Skip if nothing needs one."""
    job.wanted(launch)
    torch = job.torch_of(launch)
    if torch is not None:
        skip_if(not torch.cuda, f"torch {torch.version} is built without CUDA")
        return Cuda(torch.cuda).upto(2), f"torch {torch.version}", job.image(launch).torch.via
    text = job.variables(launch).get("CUDA_VERSION", "")
    try:
        return Cuda(text).upto(2), "the image", "CUDA_VERSION"
    except ValueError:
        raise Skip("nothing in the image says which CUDA it needs") from None


def _spoken(launch: Launch) -> tuple[Cuda, Driver, dict[str, str]]:
    """The CUDA that the driver speaks, the driver, and the evidence."""
    need_driver(launch.host)
    text = nvml_answers(launch.host).cuda
    unknown_if(not text, "the driver did not say which CUDA it speaks")
    driver, via = loaded_driver(launch.host)
    return Cuda(text), driver, {text: "nvmlSystemGetCudaDriverVersion", str(driver): via}


def _unfit(one: CompatLibrary, driver: Driver, gpus: tuple[Gpu, ...], facts: Facts) -> str:
    """Why this compat libcuda does not run on the driver and these GPUs, empty if it does."""
    has = Driver(one.driver)
    if has == driver:
        return ""
    if one.noted and one.branches:
        if driver.major not in one.branches:
            return f"its note names the branches {', '.join(map(str, one.branches))} and not {driver.major}"
        if has < driver:
            return f"it is older than driver {driver}"
    elif has.major <= driver.major:
        return f"it is of no newer branch than driver {driver}"
    for gpu in gpus:
        if one.brands:
            brand = gpu.brand.need(f"the brand of {gpu_name(gpu)}")
            number = next((value for name, value in _BRANDS.items() if require.same_brand(name, brand)), 0)
            if number not in one.brands:
                return f"its note leaves out the brand of {gpu_name(gpu)}"
        else:
            name = gpu.name.need(f"the name of GPU {gpu.index}")
            known = _datacenter(name, facts)
            unknown_if(known is None, f"whether {gpu_name(gpu)} is a data-center GPU is not known")
            if not known:
                return f"{gpu_name(gpu)} is no data-center GPU"
    return ""


def _datacenter(name: str, facts: Facts) -> bool | None:
    """Whether the product is a data-center one; None where the facts do not know."""
    try:
        return facts.gpu(name).datacenter
    except UsageError:
        return None


def _bridges(launch: Launch, facts: Facts, cuda: Cuda, driver: Driver) -> list[CompatLibrary]:
    """The compat libraries of the image that would run here and speak the major of ``cuda``."""
    gpus = job.some_given(launch)
    fitting = []
    for one in launch.compat.need("the forward-compatibility libraries of the image"):
        spoken = Cuda(one.cuda) if one.cuda else facts.native_cuda(Driver(one.driver))
        if spoken is not None and spoken.major >= cuda.major and not _unfit(one, driver, gpus, facts):
            fitting.append(one)
    return fitting


def launch_driver_too_old_for_cuda(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """The machine's driver, or a compat library of the image that fits it, speaks the CUDA major the image needs."""
    cuda, what, via = _needed(launch)
    speaks, driver, evidence = _spoken(launch)
    if speaks.major >= cuda.major or _bridges(launch, facts, cuda, driver):
        return
    libraries = launch.compat.need("the forward-compatibility libraries of the image")
    why = next((reason for one in libraries if (reason := _unfit(one, driver, job.some_given(launch), facts))), "")
    compat = f"its compat library does not help: {why}" if why else "the image has no compat library that helps"
    floor = facts.driver_min(cuda)
    needs = f" and needs driver {floor.compat} or newer" if floor.compat else ""
    yield error(
        f"{what} is built for CUDA {cuda}{needs}; driver {driver} speaks CUDA {speaks}, and {compat}",
        "driver",
        {**evidence, str(cuda): via},
        f"install driver {floor.own or floor.compat or 'for this CUDA'} or newer, or take an image for CUDA "
        f"{speaks.major}; on a data-center GPU NVIDIA's cuda-compat package bridges the gap; {job.AGAIN}",
    )


def launch_compat_library_unused(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """The compat library that the launch needs will be used: the toolkit finds exactly one, or ld.so searches it."""
    cuda, _, _ = _needed(launch)
    speaks, driver, evidence = _spoken(launch)
    skip_if(speaks.major >= cuda.major, f"driver {driver} supports CUDA {speaks} and needs no compat library")
    fitting = _bridges(launch, facts, cuda, driver)
    skip_if(not fitting, "the image has no compat library that fits here")
    by_path = {posixpath.dirname(file.path) for file, _ in job.driver_files(launch, "compat")}
    offered = [one for one in launch.compat.need("the compat libraries") if one.offered]
    if any(posixpath.dirname(one.path) in by_path for one in fitting):
        return
    if len(offered) == 1 and offered[0] in fitting:
        return
    where = posixpath.dirname(fitting[0].path)
    many = len(offered) > 1
    yield error(
        f"CUDA {cuda} needs {fitting[0].path} on driver {driver}, and nothing uses it: "
        + (f"/usr/local/cuda/compat holds {len(offered)} of them" if many else f"the toolkit does not look in {where}"),
        where,
        {**evidence, fitting[0].path: launch.compat.via},
        f"put {where} first on LD_LIBRARY_PATH, or make /usr/local/cuda point to its toolkit only; {job.AGAIN}",
    )


def launch_compat_library_incompatible(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """A compat library that ld.so would find first runs on this driver and these GPUs."""
    job.wanted(launch)
    need_driver(launch.host)
    libraries = launch.compat.need("the forward-compatibility libraries of the image")
    found = [
        (one, by)
        for one in libraries
        for file, by in job.driver_files(launch, "compat")
        if posixpath.dirname(file.path) == posixpath.dirname(one.path)
    ]
    skip_if(not found, "no compat library of the image is searched")
    driver, via = loaded_driver(launch.host)
    for one, by in dict(found).items():
        why = _unfit(one, driver, job.some_given(launch), facts)
        if why:
            yield error(
                f"{one.path} is found first, by {by}, and does not run here: {why}",
                posixpath.dirname(one.path),
                {one.driver: "its file name", str(driver): via, one.path: by},
                f"take its directory off {by}: the toolkit registers it on machines that need it; {job.AGAIN}",
            )


def launch_minor_compat_in_use(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """The driver is as new as the image's CUDA, so that nothing rests on minor-version compatibility."""
    cuda, what, via = _needed(launch)
    speaks, driver, evidence = _spoken(launch)
    skip_if(
        speaks.major < cuda.major,
        f"driver {driver} speaks CUDA {speaks}, another major, which minor-version compatibility does not cover",
    )
    if speaks >= cuda:
        return
    own = facts.driver_min(cuda).own or "of that CUDA"
    yield note(
        f"{what} is built for CUDA {cuda} and driver {driver} speaks CUDA {speaks}: PTX of the newer one is not "
        "compiled, and calls that need a newer driver return 36",
        "driver",
        {**evidence, str(cuda): via},
        f"nothing while everything has machine code for the GPU; driver {own} has it all; {job.AGAIN}",
    )


def _code(launch: Launch) -> Iterator[tuple[str, list[Sm], list[Sm], str]]:
    """What holds device code in the image: its name, machine code, PTX, and the CUDA it was built with; torch first."""
    audit = job.image(launch)
    torch = job.torch_of(launch)
    if torch is not None and torch.cuda:
        code = audit.code.need("torch's device code")
        yield f"torch {torch.version}", list(map(Sm.parse, code.sass)), list(map(Sm.parse, code.ptx)), torch.cuda
    for one in audit.extensions.need("the extensions with device code"):
        if one.sass or one.ptx:
            yield one.path, list(map(Sm.parse, one.sass)), list(map(Sm.parse, one.ptx)), one.built_with


def launch_arch_not_covered(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """torch and every extension have machine code, or PTX, for every GPU that the job gets."""
    gpus, doubt = job.sms_of(job.some_given(launch))
    tegra = {row.sm for row in facts.archs if row.tegra}
    holders = list(_code(launch))
    skip_if(not holders, "nothing in the image holds device code")
    for name, sass, ptx, _ in holders:
        for sm in gpus:
            if served(sass, ptx, sm, sm in tegra).state != "none":
                continue
            has = " ".join([*map(str, sass), *(str(one).replace("sm_", "compute_") for one in ptx)])
            yield Finding(
                f"{name} has no code for {sm}: it holds {has}",
                Severity.ERROR if name.startswith("torch ") else Severity.WARNING,
                name,
                {has: job.image(launch).code.via or "ELF sections", str(sm): "nvmlDeviceGetCudaComputeCapability"},
                f"take a build for {sm} (`envkit facts gpu {sm}` names torch's), or another GPU; {job.AGAIN}",
            )
    unknown_if(doubt, doubt)


def launch_ptx_jit_setting_unusable(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """What CUDA_FORCE_PTX_JIT and CUDA_DISABLE_PTX_JIT leave of the image's code runs on the GPUs that the job gets."""
    env, table = job.variables(launch), rows(facts)
    names = [name for name in _PTX_SETTINGS if is_on(table[name], env.get(name, ""))]
    skip_if(not names, f"neither {' nor '.join(_PTX_SETTINGS)} is on")
    gpus, doubt = job.sms_of(job.some_given(launch))
    tegra = {row.sm for row in facts.archs if row.tegra}
    for name in names:
        forced = name == _PTX_SETTINGS[0]
        for holder, sass, ptx, _ in _code(launch):
            for sm in gpus:
                left = served(() if forced else sass, ptx if forced else (), sm, sm in tegra).state
                if left == "none" and served(sass, ptx, sm, sm in tegra).state != "none":
                    what = "no PTX" if forced else "only PTX"
                    yield error(
                        f"{name} is `{env[name]}` and {holder} has {what} for {sm}: its kernels do not run",
                        name,
                        {**job.said(launch, name), str(sm): "nvmlDeviceGetCudaComputeCapability"},
                        f"unset {name}; {job.AGAIN}",
                    )
    unknown_if(doubt, doubt)


def launch_ptx_newer_than_driver(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """Where a GPU has only PTX to run on, the driver compiles that PTX."""
    gpus, doubt = job.sms_of(job.some_given(launch))
    speaks, driver, evidence = _spoken(launch)
    tegra = {row.sm for row in facts.archs if row.tegra}
    resting = [
        (name, built, sm)
        for name, sass, ptx, built in _code(launch)
        for sm in gpus
        if served(sass, ptx, sm, sm in tegra).state == "ptx"
    ]
    unknown_if(not resting and doubt, doubt)
    skip_if(not resting, "for every GPU there is machine code, or no code at all: no PTX has to be compiled")
    for name, built, sm in resting:
        if not built:
            doubt = doubt or f"{name} does not say by which toolkit its PTX was made"
            continue
        made = Cuda(built).upto(2)
        if made <= speaks or ptx_isa(facts, made) <= ptx_isa(facts, speaks):
            continue
        yield error(
            f"{name} has only PTX of CUDA {made} for {sm}, and driver {driver} compiles that of CUDA {speaks}",
            name,
            {**evidence, str(made): "the PTX version that the build declares"},
            f"install a driver for CUDA {made}, or take a build with machine code for {sm}; {job.AGAIN}",
        )
    unknown_if(doubt, doubt)


def launch_torch_without_cuda(launch: Launch) -> Iterator[Finding]:
    """The image's torch is built with CUDA, where the job gets GPUs."""
    names = job.wanted(launch)
    torch = or_skip(job.torch_of(launch), "there is no torch in the image")
    if not torch.cuda:
        yield error(
            f"the job gets GPU {', '.join(names)} and torch {torch.version} is built without CUDA: it runs on the CPU",
            torch.path,
            {"None": job.image(launch).torch.via},
            f"install torch from the index of a CUDA (`envkit lock`), or run without GPUs; {job.AGAIN}",
        )


def launch_driver_in_image(launch: Launch) -> Iterator[Finding]:
    """No driver library of the image is searched beside the machine's."""
    job.wanted(launch)
    need_driver(launch.host)
    driver, via = loaded_driver(launch.host)
    for file, by in job.driver_files(launch, "driver"):
        version = file.path.rpartition(".so.")[2]
        same = version.count(".") > 0 and version.replace(".", "").isdecimal() and Driver(version) == driver
        yield Finding(
            f"the image brings {file.path}, which ld.so finds by {by}, and driver {driver} is loaded",
            Severity.WARNING if same else Severity.ERROR,
            file.path,
            {file.path: by, str(driver): via},
            f"take {file.owner or 'it'} out of the image: the engine brings the machine's; {job.AGAIN}",
        )


def launch_driver_stub_on_search_path(launch: Launch) -> Iterator[Finding]:
    """No stub of the driver's libraries is searched by the job."""
    job.wanted(launch)
    files = job.image(launch).drivers.need("the driver's libraries in the image")
    places = {
        posixpath.dirname(one.path): by for one in files if one.kind == "stub" and (by := job.searched(launch, one))
    }
    for folder, by in sorted(places.items()):
        yield error(
            f"{folder} holds stubs of the driver and ld.so searches it, by {by}",
            by,
            {folder: by},
            f"take {folder} off {by}; LIBRARY_PATH is enough to link; {job.AGAIN}",
        )


def launch_platform_mismatch(launch: Launch) -> Iterator[Finding]:
    """The image is made for this machine's processor."""
    made = job.image(launch).platform.need("the image's architecture")
    here = launch.host.architecture.need("this machine's processor")
    if made != here:
        yield error(
            f"the image is for {made} and this machine is {here}",
            launch.name,
            {made: job.image(launch).platform.via, here: launch.host.architecture.via},
            f"pull or build it for {here} (`--platform`); {job.AGAIN}",
        )


def launch_gpu_not_in_lock(launch: Launch) -> Iterator[Finding]:
    """Every GPU that the job gets is one that the image was locked for."""
    promised = job.promised_gpus(launch)
    gpus, doubt = job.sms_of(job.some_given(launch))
    unknown_if(doubt, doubt)
    for sm in (one for one in gpus if one not in promised):
        yield warning(
            f"the image was locked for {', '.join(map(str, promised))} and the job gets {sm}",
            str(sm),
            {
                str(sm): "nvmlDeviceGetCudaComputeCapability",
                " ".join(map(str, promised)): job.image(launch).promise.via,
            },
            f"add the GPU to the specification, lock, build and prove it again: `envkit up`; {job.AGAIN}",
        )
