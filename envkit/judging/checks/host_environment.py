"""What is asked of the environment: what it hides from CUDA, puts before its libraries, or leaves switched on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envkit.judging.checks._host import AGAIN, loaded_driver, need_driver, need_gpu, nvml_answers, setting, wsl
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.judging.checks._variables import LEFT_ON
from envkit.model import Finding, Severity, Unknown
from envkit.subjects import Host
from envkit.subjects.host import CudaDirectory, Gpu
from envkit.subjects.host.system import NamedPath
from envkit.versions import Driver

# c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp of PyTorch; a key that torch does not know ends
# its first use of CUDA, and one that a newer torch knows may end an older one's
_BOOLEANS = (
    "expandable_segments", "graph_capture_record_stream_reuse", "pinned_use_background_threads",
    "pinned_use_cuda_host_register", "release_lock_on_cudamalloc",
)  # fmt: skip
_KEYS = (
    *_BOOLEANS, "backend", "garbage_collection_threshold", "large_segment_size_mb", "max_non_split_rounding_mb",
    "max_split_size_mb", "pinned_max_power2_size_mb", "pinned_max_round_threshold_mb", "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb", "per_process_memory_fraction", "roundup_power2_divisions",
)  # fmt: skip
_SPLIT_LEAST = 20  # MiB: kLargeBuffer, below which PyTorch refuses max_split_size_mb

# What NVIDIA's own node diagnosis calls unsuitable for production (DCGM, nvvs/src/Software.cpp), and CUDA-GDB's and
# Nsight's switches, each as its documentation words the effect
_DEBUGGING = {
    "CUDA_INJECTION64_PATH": "a tool's library is loaded into every process that uses CUDA",
    "NSIGHT_CUDA_DEBUGGER": "kernels run under a debugger",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "a fault of a kernel writes all of the GPU's memory to disk",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": "a fault of a kernel makes the process wait for a debugger",
    "CUDA_DEBUGGER_SOFTWARE_PREEMPTION": "kernels run under a debugger",
    "COMPUTE_PROFILE": "every launch is profiled",
    "CUDA_PROFILE": "every launch is profiled",
    "OPENCL_PROFILE": "every launch is profiled",
    "NVIDIA_TF32_OVERRIDE": "the libraries' precision is no longer what the program asked for",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "the libraries' precision is no longer what the program asked for",
}
_CACHES = ("HOME", "XDG_CACHE_HOME", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PARANOID_MOST = 2  # Nsight Systems' installation guide: 2 or less, to sample where a processor's time goes
_PTRACE_MOST = 1  # kernel documentation, Yama: 1 lets a parent and root attach, 2 root alone, 3 nobody


def host_cuda_visible_devices_invalid(host: Host) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES names GPUs that exist, each once."""
    need_driver(host)
    text = host.environment.need("the environment").get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return
    gpus = nvml_answers(host).gpus
    complaint = _unfit(text, gpus)
    if complaint:
        yield error(
            complaint,
            evidence={f"CUDA_VISIBLE_DEVICES={text}": host.environment.via, f"{len(gpus)} GPUs": "nvmlDeviceGetCount"},
            fix="name GPUs by index or full UUID as `nvidia-smi -L` lists them, or unset the variable",
        )


def _unfit(text: str, gpus: tuple[Gpu, ...]) -> str:
    """What is wrong with CUDA_VISIBLE_DEVICES, empty if nothing is."""
    names = [token.strip() for token in text.split(",")]
    if not text.strip():
        return "CUDA_VISIBLE_DEVICES is empty and hides every GPU"
    if any(name.startswith("MIG-") for name in names):
        raise Unknown("CUDA_VISIBLE_DEVICES names MIG devices, which were not listed")
    met: list[Gpu] = []
    for place, name in enumerate(names):
        gpu = _named_gpu(name, gpus)
        if gpu is None:
            return (
                f"CUDA_VISIBLE_DEVICES names `{name}`, which is none of the {len(gpus)} GPUs here: CUDA hides it "
                f"and all that follow, so that {place} stay visible"
            )
        if gpu in met:
            # measured on an H100: cuInit returns CUDA_ERROR_INVALID_DEVICE and no GPU is visible
            return f"CUDA_VISIBLE_DEVICES names GPU {gpu.index} twice, and CUDA then refuses to start"
        met.append(gpu)
    return ""


def _named_gpu(name: str, gpus: tuple[Gpu, ...]) -> Gpu | None:
    """The GPU that CUDA takes the word for: an index, or a UUID cut at any unambiguous place."""
    if name.isdecimal():
        return next((gpu for gpu in gpus if gpu.index == int(name)), None)
    if not name.startswith("GPU-"):
        return None
    uuids = [gpu for gpu in gpus if gpu.uuid.need(f"the UUID of GPU {gpu.index}").startswith(name)]
    return uuids[0] if len(uuids) == 1 else None


def host_library_path_has_foreign_libcuda(host: Host) -> Iterator[Finding]:
    """LD_LIBRARY_PATH leads to no foreign libcuda.

    Stubs are for linking; a newer libcuda needs a data-center GPU, an older one never works.
    """
    need_driver(host)
    findings: list[Finding] = []
    doubt = ""
    versioned: list[tuple[str, str, str]] = []
    for directory in host.cuda_on_path.need("the libraries on LD_LIBRARY_PATH"):
        for name, real in directory.files.items():
            version = re.search(r"\.so\.([0-9]{3}(?:\.[0-9]+)+)\Z", real)
            if "stubs" in real.split("/") or "stubs" in directory.path.split("/"):
                findings.append(_stub(directory, name, real))
            elif version:
                versioned.append((directory.path, real, version[1]))
            elif not wsl(host):
                doubt = f"{real} does not say its driver version"
    if versioned and (not findings or host.module.value is not None):
        driver, via = loaded_driver(host)
        findings += [
            _foreign(path, real, Driver(version_there), driver, via)
            for path, real, version_there in versioned
            if Driver(version_there) != driver
        ]
    unknown_if(not findings and doubt, doubt)
    yield from findings


def _stub(directory: CudaDirectory, name: str, real: str) -> Finding:
    return Finding(
        f"LD_LIBRARY_PATH leads to a stub of libcuda, {directory.path}/{name}",
        # programs load libcuda.so.1; some load libcuda.so first
        Severity.ERROR if name == "libcuda.so.1" else Severity.WARNING,
        directory.path,
        {real: f"{directory.path}/{name}"},
        f"a stub is for linking only and finds no GPU: take {directory.path} out of LD_LIBRARY_PATH; {AGAIN}",
    )


def _foreign(path: str, real: str, there: Driver, driver: Driver, via: str) -> Finding:
    return Finding(
        f"LD_LIBRARY_PATH leads to libcuda {there} and driver {driver} is loaded",
        Severity.ERROR if there < driver else Severity.WARNING,
        path,
        {real: path, str(driver): via},
        f"take {path} out of LD_LIBRARY_PATH; {AGAIN}; a newer libcuda (cuda-compat) works only on data-center GPUs, "
        "an older one nowhere",
    )


def host_preload_library_missing(host: Host) -> Iterator[Finding]:
    """Each library that LD_PRELOAD names by a path is there (ld.so(8)).

    Names without a slash are the loader's to find, and are not judged.
    """
    text = host.environment.need("the environment").get("LD_PRELOAD", "")
    skip_if(not text.strip(), "LD_PRELOAD is not set")
    for one in _paths(host, "LD_PRELOAD"):
        if one.kind != "file":
            yield warning(
                f"LD_PRELOAD names {one.path}, which is {'not there' if one.kind == 'absent' else 'no file'}",
                one.path,
                {one.path: host.named_paths.via},
                "the loader goes on without it and says so at every start: take it out of LD_PRELOAD; check it with "
                "`LD_DEBUG=libs true`",
            )


def _paths(host: Host, *variables: str) -> list[NamedPath]:
    """What lies where these variables point."""
    return [one for one in host.named_paths.need("what lies where variables point") if one.variable in variables]


def host_cuda_home_invalid(host: Host) -> Iterator[Finding]:
    """CUDA_HOME and CUDA_PATH, where they are set, lead to one toolkit with a compiler."""
    variables = host.environment.need("the environment")
    asked = {name: variables[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in variables}
    skip_if(not asked, "neither CUDA_HOME nor CUDA_PATH is set")
    seen = {one.variable: one for one in _paths(host, *asked)}
    fix = "let it name a directory with bin/nvcc, or unset it; check it with `$CUDA_HOME/bin/nvcc --version`"
    for name, path in asked.items():
        one = seen.get(name)
        if one is None or one.kind != "directory":
            said = "no absolute path" if one is None else {"absent": "not there"}.get(one.kind, "no directory")
            what, severity = f"is {said}", Severity.WARNING
        elif "bin/nvcc" not in one.holds:
            what, severity = "has no bin/nvcc", Severity.NOTE
        else:
            continue
        yield Finding(
            f"{name} is `{path}`, which {what}", severity, name, {f"{name}={path}": host.environment.via}, fix
        )
    if len(set(asked.values())) > 1:
        yield warning(
            f"CUDA_HOME is `{asked['CUDA_HOME']}` and CUDA_PATH is `{asked['CUDA_PATH']}`",
            "CUDA_HOME",
            {f"{name}={path}": host.environment.via for name, path in asked.items()},
            "programs differ in which of them they read: set only one, or both to the same value",
        )


def host_allocator_settings_invalid(host: Host) -> Iterator[Finding]:
    """PyTorch can read the settings of its allocator."""
    variables = host.environment.need("the environment")
    names = [name for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if variables.get(name)]
    skip_if(not names, "no setting of PyTorch's allocator is in the environment")
    for name in names:
        for wrong, severity in _wrong_settings(variables[name]):
            yield Finding(
                f"{name}: {wrong}",
                severity,
                name,
                {f"{name}={variables[name]}": host.environment.via},
                "torch ends at its first use of CUDA with a setting that it cannot read: fix it as described in "
                "PyTorch's notes on "
                "CUDA semantics; check it with `python -c 'import torch; torch.zeros(1).cuda()'`",
            )
    if len(names) == 2 and variables[names[0]] != variables[names[1]]:
        yield warning(
            f"PYTORCH_ALLOC_CONF is `{variables[names[0]]}` and PYTORCH_CUDA_ALLOC_CONF is `{variables[names[1]]}`",
            "PYTORCH_ALLOC_CONF",
            {f"{name}={variables[name]}": host.environment.via for name in names},
            "a newer torch reads only the first and an older one only the second: set both to the same value",
        )


def _wrong_settings(text: str) -> Iterator[tuple[str, Severity]]:
    """What PyTorch would refuse in an allocator's settings: "key:value,key:[a:1,b:2]"; a comma may end them."""
    for part in re.split(r",(?![^\[]*\])", text.replace(" ", "").removesuffix(",")):
        key, _, value = part.partition(":")
        if not key or not value:
            yield f"`{part}` is not of the form `key:value`", Severity.ERROR
        elif key not in _KEYS:
            yield f"`{key}` is not a known setting", Severity.WARNING
        elif wanted := _wanted(key, value):
            yield f"{key} is `{value}` and must be {wanted}", Severity.ERROR


def _wanted(key: str, value: str) -> str:
    """What a value must be that PyTorch refuses, empty for one that it takes.

    It reads a number's digits and does not look at what follows them ("512MB").
    """
    number = re.match(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+", value)
    if key in _BOOLEANS:
        return "" if value in ("True", "False") else "True or False"
    if key == "backend":
        return "" if value in ("native", "cudaMallocAsync") else "native or cudaMallocAsync"
    if key == "roundup_power2_divisions":
        return "" if _divisions(value) else "a power of two, or a list of such by size"
    if number is None:
        return "a number"
    if key == "garbage_collection_threshold":
        return "" if 0 < float(number[0]) < 1 else "above 0 and below 1"
    if key == "max_split_size_mb":
        return "" if float(number[0]) >= _SPLIT_LEAST else f"{_SPLIT_LEAST} or more"
    return ""


def _divisions(value: str) -> bool:
    """Whether a value is a power of two, or "[256:1,512:2,>:4]" with powers of two or 0 behind the colons."""

    def power(word: str, least: int = 1) -> bool:
        return word.isdecimal() and int(word) >= least and int(word) & (int(word) - 1) == 0

    if not value.startswith("["):
        return power(value)
    pairs = [part.partition(":") for part in value.removeprefix("[").removesuffix("]").split(",")]
    return value.endswith("]") and all(power(count, 0) and (size == ">" or power(size)) for size, _, count in pairs)


def host_proxy_used_for_localhost(host: Host) -> Iterator[Finding]:
    """Where a proxy is set, requests to this machine do not go through it (curl(1), no_proxy; gRPC's environment)."""
    variables = host.environment.need("the environment")
    proxies = [
        name
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "grpc_proxy")
        if variables.get(name)
    ]
    skip_if(not proxies, "no proxy is set")
    spared = {word.strip() for name in ("no_proxy", "NO_PROXY") for word in variables.get(name, "").split(",")}
    lacking = [name for name in ("localhost", "127.0.0.1") if name not in spared]
    if "*" in spared or not lacking:
        return
    yield note(
        f"{', '.join(proxies)} send requests to {' and '.join(lacking)} through a proxy",
        "no_proxy",
        {f"{name}={variables[name]}": host.environment.via for name in proxies},
        "set no_proxy and NO_PROXY to `localhost,127.0.0.1` and the cluster's names: servers on this machine (Ray, "
        "dashboards, inference servers) are not reached otherwise; check it with `env | grep -i proxy`",
    )


def host_debug_variables_left_on(host: Host) -> Iterator[Finding]:
    """No variable that serves to find faults, or that bends the precision, is left on for every job."""
    variables = host.environment.need("the environment")
    for name, costs in _left_on(variables).items():
        yield warning(
            f"{name} is `{variables[name]}`: {costs}",
            name,
            {f"{name}={variables[name]}": host.environment.via},
            f"unset {name} unless somebody is debugging; check it with `env | grep {name}`",
        )


def _left_on(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that are on and what each costs; those of the network have checks of their own."""
    found = {
        name: left.costs
        for name, left in LEFT_ON.items()
        if name in variables and left.on(variables[name]) and not name.startswith("NCCL_")
    }
    for name, costs in _DEBUGGING.items():
        # NVIDIA_TF32_OVERRIDE=0 is a setting, not the absence of one
        if variables.get(name, "") not in ("", "0") or (name == "NVIDIA_TF32_OVERRIDE" and variables.get(name) == "0"):
            found[name] = costs
    return found


def host_cuda_device_order_not_pci_bus_id(host: Host) -> Iterator[Finding]:
    """On a machine with different GPUs CUDA numbers them as nvidia-smi does."""
    need_driver(host)
    gpus = nvml_answers(host).gpus
    order = host.environment.need("the environment").get("CUDA_DEVICE_ORDER")
    if order not in (None, "", "FASTEST_FIRST", "PCI_BUS_ID"):
        yield warning(
            f"CUDA_DEVICE_ORDER is `{order}`, which is neither FASTEST_FIRST nor PCI_BUS_ID",
            "CUDA_DEVICE_ORDER",
            {f"CUDA_DEVICE_ORDER={order}": host.environment.via},
            "set it to PCI_BUS_ID; check it with `env | grep CUDA_DEVICE_ORDER`",
        )
        return
    skip_if(len(gpus) < 2, "this machine has one GPU")
    kinds = sorted({gpu.name.need(f"the name of GPU {gpu.index}") for gpu in gpus})
    if len(kinds) > 1 and order != "PCI_BUS_ID":
        yield note(
            f"{' and '.join(kinds)} are here and CUDA numbers the fastest first, nvidia-smi by bus",
            "CUDA_DEVICE_ORDER",
            {", ".join(kinds): "nvmlDeviceGetName"},
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID; check it with `nvidia-smi -L`",
        )


def host_mps_pipe_directory_invalid(host: Host) -> Iterator[Finding]:
    """Where CUDA_MPS_PIPE_DIRECTORY is set, an MPS daemon has its pipes there (NVIDIA MPS, environment variables)."""
    need_gpu(host)
    path = host.environment.need("the environment").get("CUDA_MPS_PIPE_DIRECTORY", "")
    skip_if(not path, "CUDA_MPS_PIPE_DIRECTORY is not set")
    seen = _paths(host, "CUDA_MPS_PIPE_DIRECTORY")
    if not seen or seen[0].kind != "directory":
        what = "is no directory" if seen and seen[0].kind != "absent" else "is not there"
    elif "control" not in seen[0].holds:
        what = "holds no pipe of a daemon"
    else:
        return
    yield warning(
        f"CUDA_MPS_PIPE_DIRECTORY is {path}, which {what}",
        path,
        {path: host.named_paths.via},
        "start the daemon with the same variable (`nvidia-cuda-mps-control -d`), or unset it: without a daemon each "
        "process takes the GPU for itself; check it with `echo get_server_list | nvidia-cuda-mps-control`",
    )


def host_cache_directory_not_writable(host: Host) -> Iterator[Finding]:
    """HOME and the cache directories are writable."""
    paths = _paths(host, *_CACHES)
    if not any(one.variable == "HOME" for one in paths):
        yield warning(
            "HOME is not set to an absolute path, so caches have nowhere to go",
            "HOME",
            {"no HOME": host.named_paths.via},
            "set HOME to a directory that can be written to; check it with `echo $HOME`",
        )
    for one in paths:
        # a home that does not exist is a fault though it could be made: nobody makes it
        fit = one.writable and (one.kind == "directory" or (one.kind == "absent" and one.variable != "HOME"))
        if not fit:
            what = {"directory": "cannot be written to", "absent": "does not exist"}.get(one.kind, "is no directory")
            yield warning(
                f"{one.variable} is {one.path}, which {what}",
                one.path,
                {one.path: host.named_paths.via},
                f"let {one.variable} name a directory that this user can write to; check it with `touch {one.path}/x`",
            )


def host_certificate_file_missing(host: Host) -> Iterator[Finding]:
    """Each file of certificates that a variable names is there; without it every download fails."""
    paths = _paths(host, *_CERTIFICATES)
    skip_if(not paths, "no variable names a file of certificates")
    for one in paths:
        # requests takes a directory of hashed certificates too
        if one.kind not in ("file", "directory"):
            yield error(
                f"{one.variable} names {one.path}, which {'is not there' if one.kind == 'absent' else 'is no file'}",
                one.path,
                {one.path: host.named_paths.via},
                f"install ca-certificates, or unset {one.variable}; check it with `ls -l {one.path}`",
            )


def host_nccl_topology_file_missing(host: Host) -> Iterator[Finding]:
    """The topology that NCCL_TOPO_FILE names is there; NCCL goes on with what it detects (NCCL, NCCL_TOPO_FILE)."""
    text = host.environment.need("the environment").get("NCCL_TOPO_FILE", "")
    skip_if(not text, "NCCL_TOPO_FILE is not set")
    seen = _paths(host, "NCCL_TOPO_FILE")
    if not seen or seen[0].kind != "file":
        yield warning(
            f"NCCL_TOPO_FILE is `{text}`, which is no file here",
            "NCCL_TOPO_FILE",
            {text: host.named_paths.via},
            "let it name the machine's topology by an absolute path, or unset it; check it with `NCCL_DEBUG=INFO`",
        )


def host_cpu_profiling_blocked(host: Host) -> Iterator[Finding]:
    """Nsight Systems may sample the processors: kernel.perf_event_paranoid is low enough, or this user may anyway."""
    level, via = setting(host, "kernel.perf_event_paranoid")
    rights = host.privileges.need("this process's capabilities")
    if level > _PARANOID_MOST and not {"perfmon", "sys_admin"} & set(rights):
        yield note(
            f"kernel.perf_event_paranoid is {level}, so that only root may sample processors",
            "kernel.perf_event_paranoid",
            {str(level): via},
            "`sysctl kernel.perf_event_paranoid=2` where profiles are taken; check it with `nsys status -e`",
        )


def host_debugger_attach_blocked(host: Host) -> Iterator[Finding]:
    """A debugger may attach to a process that hangs (gdb, py-spy, cuda-gdb)."""
    level, via = setting(host, "kernel.yama.ptrace_scope")
    if level > _PTRACE_MOST:
        yield note(
            f"kernel.yama.ptrace_scope is {level}: {'nobody' if level > 2 else 'only root'} may attach a debugger",
            "kernel.yama.ptrace_scope",
            {str(level): via},
            "`sysctl kernel.yama.ptrace_scope=1` (after a reboot where it is 3); check it with "
            "`sysctl kernel.yama.ptrace_scope`",
        )
