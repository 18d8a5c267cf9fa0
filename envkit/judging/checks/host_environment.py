"""What is asked of the environment: what it hides from CUDA, puts before its libraries, or leaves switched on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.judging import variables as judgement
from envkit.judging.checks._host import AGAIN, loaded_driver, need_driver, need_gpu, nvml_answers, setting, wsl
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.model import Finding, Severity
from envkit.subjects import Host
from envkit.subjects.host import CudaDirectory
from envkit.subjects.host.system import NamedPath
from envkit.versions import Driver

# each of them has a check of its own here or in host_nccl
_ELSEWHERE = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH", "CUDA_MPS_PIPE_DIRECTORY"),
        *("NCCL_TOPO_FILE", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "GLOO_SOCKET_IFNAME"),
    }
)
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
    complaint = judgement.cuda_devices(text, len(gpus), lambda at: gpus[at].uuid.need(f"the UUID of GPU {at}"))
    if complaint:
        yield error(
            f"CUDA_VISIBLE_DEVICES {complaint}",
            evidence={f"CUDA_VISIBLE_DEVICES={text}": host.environment.via, f"{len(gpus)} GPUs": "nvmlDeviceGetCount"},
            fix="name GPUs by index or full UUID as `nvidia-smi -L` lists them, or unset the variable",
        )


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


def _known(host: Host) -> judgement.Known:
    def lies(name: str, path: str) -> str | None:
        one = next(iter(_paths(host, name)), None)
        if one is None:
            return None
        return "program" if one.kind == "file" and one.executable is not False else one.kind

    return judgement.Known(host.environment.via, lies=lies, elsewhere=_ELSEWHERE)


def host_variable_invalid(host: Host, facts: Facts) -> Iterator[Finding]:
    """Every variable that the table of variables knows has a value that its program takes."""
    variables = host.environment.need("the environment")
    findings, doubts = judgement.invalid(variables, _known(host), facts)
    yield from findings
    unknown_if(doubts, "; ".join(doubts))


def host_variables_contradict(host: Host, facts: Facts) -> Iterator[Finding]:
    """No two variables contradict one another."""
    variables = host.environment.need("the environment")
    # two toolkits are host-cuda-home-invalid's
    kept = {name: text for name, text in variables.items() if name != "CUDA_PATH"}
    yield from judgement.contradictions(kept, host.environment.via, facts)


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


def host_debug_variables_left_on(host: Host, facts: Facts) -> Iterator[Finding]:
    """No variable that serves to find faults, or that bends the precision, is left on for every job."""
    variables = host.environment.need("the environment")
    for row in judgement.debugging(variables, facts):
        if row.name.startswith("NCCL_"):  # those of the network have checks of their own
            continue
        yield Finding(
            f"{row.name} is `{variables[row.name]}`: {row.costs}",
            Severity[(row.weighs or "warning").upper()],
            row.name,
            {f"{row.name}={variables[row.name]}": host.environment.via},
            f"unset {row.name} unless somebody is debugging; check it with `env | grep {row.name}`",
        )


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
