"""What is asked of the driver that a process in the image meets: its library, its start, its age, its nodes.

The runtime's own words name a code; these checks name who brought the library, what the kernel module is, what else the
image holds, and so the cause.  Most of them are skipped where there is no driver and no GPU was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts, served
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.judging.checks._torch import cuda_build
from envkit.judging.checks._torch_fit import ptx_isa
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects.audit import Audit
from envkit.subjects.image import DriverSeen, Image, Node
from envkit.subjects.imported import ImportState
from envkit.versions import Cuda, Driver, Sm

_ABSENT = "libcuda.so.1: cannot open shared object file"
_STUB, _NO_DEVICE, _MISMATCH, _NO_COMPAT = 34, 100, 803, 804  # CUresult of cuda.h
_OTHER_WAYS = ("/dev/dxg", "/dev/nvhost-gpu", "/dev/nvmap")  # WSL and embedded GPUs have no /dev/nvidia0
_IN_NAME = re.compile(r"libcuda\.so\.([0-9]+(?:\.[0-9]+)+)\Z")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+\Z")
_MISMATCHED = "nvmlInit returned 18"  # NVML_ERROR_LIB_RM_VERSION_MISMATCH of nvml.h
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_HIDING = ("", "-1", "none", "nodevfiles")


def _seen(image: Image) -> DriverSeen:
    """The driver; raises Skip where there is none and no GPU was given, or where there is no library to judge."""
    seen = image.driver.need("the driver")
    if not seen.library and _ABSENT in seen.load_error:
        given = "" if image.gpus_given else " and no GPU was given to the run"
        raise Skip(f"there is no libcuda.so.1 here{given}")
    return seen


def _loaded(image: Image) -> DriverSeen:
    """The driver whose library could be loaded; raises Unknown where something exists but cannot be loaded."""
    seen = _seen(image)
    unknown_if(not seen.library, f"the driver's library cannot be loaded: {seen.load_error}")
    return seen


def _elsewhere(seen: DriverSeen) -> bool:
    """Whether the GPU is reached through WSL, or is an embedded one: module and nodes are others there."""
    return any(node.path in _OTHER_WAYS for node in seen.nodes)


def _module(seen: DriverSeen) -> tuple[str, str]:
    """The version of the loaded kernel module and who says it, empty if nobody does.

    NVML starts only on a module of its own version, so its word stands where a sandbox hides /proc.
    """
    if seen.module:
        return seen.module, "/proc/driver/nvidia/version"
    return (seen.nvml, "nvmlSystemGetDriverVersion") if _VERSION.match(seen.nvml) else ("", "")


def _variable(image: Image | Audit, name: str) -> str | None:
    return next((one.value for one in image.variables.value or () if one.name == name), None)


def _brought(seen: DriverSeen) -> str:
    return f"{seen.library}, which {seen.owner} brought into the image" if seen.owner else seen.library


def image_driver_stub(image: Image) -> Iterator[Finding]:
    """The libcuda.so.1 that dlopen gives is a driver and not the toolkit's stub."""
    seen = _loaded(image)
    if seen.init != _STUB and seen.library not in seen.stubs:
        unknown_if(seen.init is None, f"cuInit did not answer: {seen.load_error or 'it was not called'}")
        return
    yield error(
        f"libcuda.so.1 is the toolkit's stub at {_brought(seen)}: no driver is behind it",
        seen.library,
        {seen.library: "dlopen of libcuda.so.1", f"cuInit returned {seen.init}": "cuInit"},
        "take the stubs directory off LD_LIBRARY_PATH and out of /etc/ld.so.conf.d, run `ldconfig`, and give the "
        "container GPUs; to link against the stub, use LIBRARY_PATH",
    )


def image_driver_init_failed(image: Image, facts: Facts) -> Iterator[Finding]:
    """cuInit succeeds."""
    seen = _seen(image)
    if not seen.library or seen.init is None:
        yield error(
            f"the driver at {seen.library} did not answer: {seen.load_error}"
            if seen.library
            else f"libcuda.so.1 exists but cannot be loaded: {seen.load_error}",
            seen.library or "libcuda.so.1",
            {seen.load_error or "no code": image.driver.via},
            "bring the driver's libraries from the host alone, whole and of one version; on the host, "
            "`envkit doctor` and `dmesg | grep -E 'NVRM|Xid'`",
        )
        return
    if seen.init == 0:
        return
    if seen.init == _NO_DEVICE and not image.gpus_given:
        raise Skip(f"cuInit returned {_NO_DEVICE}, no device, and no GPU was given to the run")
    row = next((row for row in facts.cuda_errors if row.code == seen.init), None)
    if row is None:
        yield error(
            f"cuInit of {seen.library} returned {seen.init}, a code that the facts do not hold",
            seen.library,
            {str(seen.init): "cuInit"},
            "look it up in cuda.h of the newest toolkit; on the host, `envkit doctor`",
        )
        return
    hidden = _variable(image, _VISIBLE) if seen.init == _NO_DEVICE else None
    evidence = {str(seen.init): f"cuInit of {seen.library}", row.name: row.source}
    if hidden is not None:
        evidence[f"{_VISIBLE}={hidden}"] = image.variables.via
    why = f"the usual cause: {row.cause}" if hidden is None else f"{_VISIBLE} is `{hidden}`"
    yield error(f"cuInit returned {seen.init}, {row.name}: {row.means}; {why}", seen.library, evidence, row.fix)


def image_driver_too_old(image: Image, facts: Facts) -> Iterator[Finding]:
    """The driver speaks at least the CUDA major that torch was built with."""
    seen = _loaded(image)
    build = cuda_build(image)
    wanted = Cuda(build.cuda).upto(2)
    floor = facts.driver_min(wanted)
    evidence = {str(wanted): "torch.version.cuda"}
    loaded, loaded_via = _module(seen)
    if seen.cuda:
        if Cuda(seen.cuda).major >= wanted.major:
            return
        is_for, evidence[seen.cuda] = f"speaks CUDA {seen.cuda}", f"cuDriverGetVersion of {seen.library}"
    elif loaded and seen.library not in seen.compat and floor.compat and Driver(loaded) < floor.compat:
        is_for = "does not report which CUDA it supports"
    else:
        raise Unknown(f"the driver at {seen.library} does not report which CUDA it supports")
    module = f" (kernel module {loaded})" if loaded else ""
    needs = f", which needs driver {floor.compat} or newer" if floor.compat else ""
    if loaded:
        evidence[loaded] = loaded_via
    if floor.compat:
        evidence[str(floor.compat)] = floor.compat_source
    yield error(
        f"the driver{module} {is_for} and torch {build.version} is built for CUDA {wanted}{needs}",
        seen.library,
        evidence,
        f"install driver {floor.own or floor.compat or 'for this CUDA'} or newer on the host, or take a torch "
        "built for an older CUDA; on a data-center GPU NVIDIA's cuda-compat package in the image may bridge the gap",
    )


def image_minor_compat_in_use(image: Image, facts: Facts) -> Iterator[Finding]:
    """The driver is as new as torch's CUDA, so that nothing rests on minor-version compatibility."""
    seen = _loaded(image)
    build = cuda_build(image)
    wanted = Cuda(build.cuda).upto(2)
    unknown_if(not seen.cuda, f"the driver at {seen.library} does not report which CUDA it supports")
    has = Cuda(seen.cuda)
    if has.major < wanted.major:
        raise Skip(
            f"the driver speaks CUDA {has}, another major than torch's, which minor-version compatibility does "
            "not cover"
        )
    if has >= wanted:
        return
    own = facts.driver_min(wanted)
    yield note(
        f"the driver speaks CUDA {has} and torch {build.version} is built for CUDA {wanted}: it runs by minor-version "
        f"compatibility, in which PTX of CUDA {wanted} is not compiled and calls that need a newer driver return 36",
        seen.library,
        {seen.cuda: f"cuDriverGetVersion of {seen.library}", str(wanted): "torch.version.cuda"},
        f"nothing, as long as every extension has machine code for the GPU; driver {own.own} is torch's CUDA's own"
        if own.own
        else "nothing, as long as every extension has machine code for the GPU",
    )


def _newest(files: tuple[str, ...]) -> tuple[Driver, str] | None:
    """The newest version that the names of libcuda files hold, and its path."""
    named = [(Driver(found.group(1)), path) for path in files if (found := _IN_NAME.search(path))]
    return max(named, key=lambda pair: pair[0]) if named else None


def image_forward_compat_incompatible(image: Image, facts: Facts) -> Iterator[Finding]:
    """Where the image holds NVIDIA's forward-compatibility package, it is used only where it can work."""
    seen = _seen(image)
    bound = seen.library in seen.compat
    refused = seen.init in (_MISMATCH, _NO_COMPAT)
    skip_if(not seen.compat and not refused, "the image holds no forward-compatibility package")
    unknown_if(not seen.library, f"the driver's library cannot be loaded: {seen.load_error}")
    evidence = {seen.library: "dlopen of libcuda.so.1"}
    off = "take the compat directory off LD_LIBRARY_PATH, out of /etc/ld.so.conf.d and out of the image"
    loaded, loaded_via = _module(seen)
    module = f"kernel module {loaded}" if loaded else "a kernel module of unseen version"
    if loaded:
        evidence[loaded] = loaded_via
    if refused:
        no_newer = bound and seen.file and loaded and Driver(seen.file).major <= Driver(loaded).major
        older = "it is of no newer branch than the module" if no_newer else ""
        row = next((row for row in facts.cuda_errors if row.code == seen.init), None)
        yield error(
            f"cuInit returned {seen.init}{f', {row.name},' if row else ''} from {_brought(seen)} on {module}: "
            + ("this GPU has no forward compatibility" if seen.init == _NO_COMPAT else older or "the two do not fit"),
            seen.library,
            {**evidence, str(seen.init): "cuInit"},
            f"{off}, and install a newer driver on the host if it is too old" if bound or not row else row.fix,
        )
    elif bound:
        yield from _compat_in_use(seen, evidence, off)
    else:
        yield from _compat_unused(image, seen, facts, evidence)


def _compat_in_use(seen: DriverSeen, evidence: dict[str, str], off: str) -> Iterator[Finding]:
    loaded, _ = _module(seen)
    if not seen.file or not loaded:
        raise Unknown(f"the versions of {seen.library} and of the kernel module were not both seen")
    if Driver(seen.file).major <= Driver(loaded).major:
        yield Finding(
            f"the forward-compatibility libcuda {seen.file} is in use but not newer than kernel module {loaded}: "
            "use the host's own libcuda",
            Severity.ERROR if seen.init else Severity.WARNING,
            seen.library,
            {**evidence, seen.file: "file name"},
            off,
        )


def _compat_unused(image: Image, seen: DriverSeen, facts: Facts, evidence: dict[str, str]) -> Iterator[Finding]:
    build = image.torch.value
    if build is None or not build.cuda or not seen.cuda:
        return
    wanted = Cuda(build.cuda).upto(2)
    newest, floor = _newest(seen.compat), facts.driver_min(wanted).compat
    if Cuda(seen.cuda).major >= wanted.major or newest is None or floor is None or newest[0] < floor:
        return
    directory = newest[1].rpartition("/")[0]
    yield warning(
        f"the driver speaks CUDA {seen.cuda}, torch {build.version} needs CUDA {wanted}, and the forward-compatibility "
        f"libcuda {newest[0]} in {directory} is not used",
        newest[1],
        {**evidence, seen.cuda: "cuDriverGetVersion", str(newest[0]): "file name"},
        f"on a data-center GPU, put {directory} first on LD_LIBRARY_PATH; on any other, install a newer driver",
    )


def image_driver_library_not_from_host(image: Image) -> Iterator[Finding]:
    """The driver's library is of the loaded kernel module's version, and the host brought it."""
    seen = _loaded(image)
    skip_if(seen.library in seen.compat, "a forward-compatibility libcuda is meant to differ from the module")
    skip_if(seen.library in seen.stubs or seen.init == _STUB, "the library is a stub, not a driver")
    fix = "take the driver's packages out of the image (libcuda, libnvidia-ml, nvidia-utils): the host brings them"
    loaded, via = _module(seen)
    differs = bool(seen.file and loaded) and Driver(seen.file) != Driver(loaded)
    if differs or seen.nvml == _MISMATCHED:
        yield error(
            f"libcuda is {seen.file} and the loaded kernel module is {loaded}: it comes from {_brought(seen)}"
            if differs
            else f"NVML says that library and module are of two versions, and libcuda comes from {_brought(seen)}",
            seen.library,
            {seen.file: f"file name of {seen.library}", loaded: via}
            if differs
            else {_MISMATCHED: "NVML, error 18", seen.library: "dlopen of libcuda.so.1"},
            fix
            if seen.owner
            else f"if the host's driver was updated, reboot it and write its CDI specification again; else {fix}",
        )
    elif seen.owner:
        yield warning(
            f"the image holds a driver library of its own, {_brought(seen)}, and it fits only a host with the "
            "same driver release",
            seen.library,
            {seen.owner: "owner of the file", seen.library: "dlopen of libcuda.so.1"},
            fix,
        )
    elif not (seen.file and loaded) and _elsewhere(seen):
        raise Skip("the GPU is reached through WSL or is an embedded one, without a module of that version")
    elif not seen.file or not loaded:
        what = f"{seen.library} has no version in its name" if not seen.file else "the kernel module shows no version"
        raise Unknown(what)


def image_driver_not_in_cache(image: Image) -> Iterator[Finding]:
    """What dlopen finds, ld.so.cache names too."""
    seen = _loaded(image)
    skip_if(seen.library in seen.compat or seen.library in seen.stubs, f"{seen.library} is not the host's driver")
    unknown_if(seen.in_cache is None, "ld.so.cache was not read")
    if seen.in_cache:
        return
    believed = _variable(image, "NVIDIA_CPU_ONLY")
    said = f", and NVIDIA_CPU_ONLY is {believed}" if believed else ""
    yield warning(
        f"libcuda.so.1 loads from {seen.library} and ld.so.cache does not name it: scripts that ask ldconfig will say "
        f"that there is no driver{said}",
        seen.library,
        {seen.library: "dlopen of libcuda.so.1", "not named": "/etc/ld.so.cache"},
        "let the container toolkit update the cache (its hook update-ldcache), or run `ldconfig` with the directory in "
        "/etc/ld.so.conf.d; do not rely on NVIDIA_CPU_ONLY",
    )


def image_device_nodes_closed(image: Image | Audit) -> Iterator[Finding]:
    """A container that was given GPUs can open their nodes, and asks the toolkit for what compute needs."""
    image.variables.need("the environment variables")
    asked = _variable(image, _CAPABILITIES)
    given = isinstance(image, Image) and bool(image.gpus_given)
    skip_if(asked is None and not given, f"no GPU was given to the run and {_CAPABILITIES} is not set")
    words = {word.strip() for word in (asked or "all").split(",")}
    for word, severity, brings in (("compute", Severity.ERROR, "CUDA"), ("utility", Severity.WARNING, "NVML")):
        if not words & {"all", word}:
            yield Finding(
                f"{_CAPABILITIES} is `{asked}`, without {word}: the toolkit brings no {brings} into the container",
                severity,
                _CAPABILITIES,
                {str(asked): image.variables.via},
                f"set {_CAPABILITIES}=compute,utility, with what else is wanted",
            )
    if isinstance(image, Image) and given:
        yield from _nodes(image.driver.need("the driver"), image.driver.via)


def _nodes(seen: DriverSeen, via: str) -> Iterator[Finding]:
    fix = "give the container the device by the engine (`--gpus all` or a CDI device); where nodes vanish from running "
    fix += "containers after `systemctl daemon-reload`, use CDI"
    paths = {node.path for node in seen.nodes}
    gpus = [node for node in seen.nodes if re.fullmatch(r"/dev/nvidia[0-9]+", node.path)]
    if not _elsewhere(seen) and "/dev/nvidia*" not in paths:
        wanted = ["/dev/nvidiactl", "/dev/nvidia-uvm"] + ([] if gpus else ["/dev/nvidia0"])
        for path in wanted:
            if path not in paths:
                yield error(f"GPUs were given and {path} does not exist", path, {path: via}, fix)
    for node in seen.nodes:
        if node.error:
            yield Finding(
                f"{node.path} cannot be opened: {node.error}",
                Severity.WARNING if _may_be_closed(node, gpus) else Severity.ERROR,
                node.path,
                {node.error: f"open of {node.path}"},
                fix,
            )


def _may_be_closed(node: Node, gpus: list[Node]) -> bool:
    """Whether compute goes without this node: the display's one, or one GPU of several that do open."""
    return node.path == "/dev/nvidia-modeset" or (node in gpus and any(not other.error for other in gpus))


def image_device_count_differs(image: Image) -> Iterator[Finding]:
    """CUDA, NVML and the device nodes count the same GPUs, and CUDA_VISIBLE_DEVICES names only such as exist."""
    seen = _loaded(image)
    skip_if(seen.init, f"cuInit returned {seen.init}: no devices can be counted")
    if seen.count is None:
        raise Unknown(f"the driver did not say how many devices there are: {seen.load_error or image.devices.missing}")
    image.variables.need("the environment variables")
    listed = _variable(image, _VISIBLE)
    nodes = sum(1 for node in seen.nodes if re.fullmatch(r"/dev/nvidia[0-9]+", node.path) and not node.error)
    cuda = {f"CUDA counts {seen.count}": "cuDeviceGetCount"}
    if listed is not None:
        names = [one.strip() for one in listed.split(",") if one.strip()]
        wanted = 0 if listed.strip().lower() in _HIDING else len(names)
        if seen.count != wanted:
            yield error(
                f"{_VISIBLE} is `{listed}`, which names {wanted}, and CUDA sees {seen.count}: its list ends at the "
                "first entry that does not exist",
                _VISIBLE,
                {**cuda, f"{_VISIBLE}={listed}": image.variables.via},
                f"name GPUs that this container has, by number from 0 or as `nvidia-smi -L` writes them; or unset "
                f"{_VISIBLE} and choose with `--gpus`",
            )
    elif seen.nvml_count is not None and seen.count != seen.nvml_count:
        yield error(
            f"CUDA sees {seen.count} and NVML {seen.nvml_count}",
            seen.library,
            {**cuda, f"NVML counts {seen.nvml_count}": "nvmlDeviceGetCount"},
            "a GPU has fallen off the bus, or cannot be started: `envkit doctor` on the host; with MIG, CUDA sees "
            f"one instance: name it in {_VISIBLE}",
        )
    if seen.nvml_count is not None and nodes and nodes != seen.nvml_count:
        yield error(
            f"NVML counts {seen.nvml_count} GPUs and {nodes} of /dev/nvidia* can be opened",
            "/dev/nvidia*",
            {f"{nodes} nodes": "open of /dev/nvidia*", f"NVML counts {seen.nvml_count}": "nvmlDeviceGetCount"},
            "a GPU has fallen off the bus, or a stale node is left: `envkit doctor` and `dmesg | grep Xid` on the host",
        )
    if listed is None and seen.nvml_count is None:
        raise Unknown(f"NVML did not count its GPUs ({seen.nvml}), so CUDA's {seen.count} cannot be compared")


def _archs(words: tuple[str, ...], prefix: str) -> list[Sm]:
    return [Sm.parse(word) for word in words if word.startswith(prefix)]


def _holders(image: Image) -> Iterator[tuple[str, list[Sm], list[Sm], str]]:
    """What holds device code: its name, its machine code, its PTX, the CUDA it was built with; torch is the first."""
    build = image.torch.value
    if build is not None and build.cuda:
        yield f"torch {build.version}", _archs(build.archs, "sm_"), _archs(build.archs, "compute_"), build.cuda
    for one in image.extensions.need("the extensions with device code"):
        yield one.path, _archs(one.sass, "sm_"), _archs(one.ptx, "compute_"), one.built_with


def image_ptx_newer_than_driver(image: Image, facts: Facts) -> Iterator[Finding]:
    """Where a present GPU has only PTX to run on, the driver can compile that PTX."""
    seen = _loaded(image)
    gpus = sorted(set(image.devices.need("the GPUs of this run")))
    skip_if(not gpus, f"no GPU is here ({image.devices.via})")
    unknown_if(not seen.cuda, f"the driver at {seen.library} does not report which CUDA it supports")
    has = Cuda(seen.cuda)
    tegra = {row.sm for row in facts.archs if row.tegra}
    for name, sass, ptx, built_with in _holders(image):
        only_ptx = [gpu for gpu in gpus if served(sass, ptx, gpu, gpu in tegra).state == "ptx"]
        if not only_ptx:
            continue
        unknown_if(not built_with, f"{name} does not say by which toolkit its PTX was made")
        made = Cuda(built_with)
        if made.upto(2) <= has or ptx_isa(facts, made) <= ptx_isa(facts, has):
            continue
        yield error(
            f"{name} has only PTX of CUDA {made.upto(2)} for {only_ptx[0]}, and the driver compiles PTX up to "
            f"CUDA {has}",
            name,
            {
                seen.cuda: f"cuDriverGetVersion of {seen.library}",
                str(made): "the PTX version that the build declares",
                " ".join(map(str, ptx)): "PTX in the library",
                str(only_ptx[0]): image.devices.via,
            },
            f"install a driver for CUDA {made.upto(2)} or newer, or take a build with machine code for {only_ptx[0]}",
        )


def image_runs_on_cpu(image: Image) -> Iterator[Finding]:
    """Where GPUs were given or seen, torch can use them."""
    given = " and ".join(image.gpus_given)
    here = (image.devices.value or ()) if given else image.devices.need("the GPUs of this run")
    skip_if(not given and not here, "no GPU was given to the run and none is here")
    image.variables.need("the environment variables")
    gpus = f"GPU {given} was given" if given else f"{len(here)} GPU{'s are' if len(here) > 1 else ' is'} here"
    hidden = _variable(image, _VISIBLE)
    if hidden is not None and hidden.strip().lower() in _HIDING:
        yield error(
            f"{gpus} and {_VISIBLE} is `{hidden}`, which hides every GPU",
            _VISIBLE,
            {f"{_VISIBLE}={hidden}": image.variables.via},
            f"unset {_VISIBLE} in the image",
        )
    believed = _variable(image, "NVIDIA_CPU_ONLY")
    if believed and here:
        yield warning(
            f"{gpus} and NVIDIA_CPU_ONLY is {believed}: scripts that read it leave the GPU alone",
            "NVIDIA_CPU_ONLY",
            {believed: image.variables.via},
            "unset it; the image's entry point sets it where ldconfig does not name libcuda.so.1",
        )
    promise = image.promise.value
    if promise is not None and promise.torch and not promise.cuda:
        return
    build = image.torch.value
    if build is not None and not build.cuda:
        yield error(
            f"{gpus} and torch {build.version} is built without CUDA: it computes on the CPU and says nothing",
            build.path,
            {"None": "torch.version.cuda", gpus: "given by envkit" if given else image.devices.via},
            "install torch from the index of a CUDA (`envkit lock`), or give no GPU: `--gpus none`",
        )
    elif build is None and image.torch_import.need("how import torch ended").state is ImportState.DONE:
        image.torch.need("torch's build")
