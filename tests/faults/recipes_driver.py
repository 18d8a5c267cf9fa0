"""Faults between a stack and the machine it runs on: driver, nodes, limits, variables, GPUs, compilers.

The driver is a stand-in that says what it is told to.  A run sees it as a container sees a real one: in ld.so.cache,
with device nodes and with a version in /proc, all of it in a mount namespace of the run's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from fault import Case, Fault, probing
from stacks import NVCC, Bench, Stack, pristine, wheel

RELEASE = "580.65.06"
NODES = ("nvidiactl", "nvidia-uvm", "nvidia0")


def machine(bench: Bench, release: str = RELEASE, module: str = RELEASE, nodes: tuple[str, ...] = NODES) -> str:
    """The setup of a run on a machine with a driver ``release``, its kernel ``module`` and device ``nodes``."""
    driver = bench.driver("driver", release)
    conf = bench.write("ld.so.conf", f"include /etc/ld.so.conf.d/*.conf\n{driver}\n")
    dev = bench.folder / "dev"
    dev.mkdir()
    kept = "null zero full random urandom tty"
    return f"""
/sbin/ldconfig -X -C {bench.folder}/ld.so.cache -f {conf}
mount --bind {bench.folder}/ld.so.cache /etc/ld.so.cache
mount -t tmpfs none /proc/driver
mkdir /proc/driver/nvidia
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  {module}  Sun Jul 27' > /proc/driver/nvidia/version
mount -t tmpfs none {dev}
for name in {kept}; do touch {dev}/$name; mount --bind /dev/$name {dev}/$name; done
for name in {" ".join(nodes)}; do touch {dev}/$name; mount --bind /dev/null {dev}/$name; done
mkdir {dev}/shm; mount --rbind /dev/shm {dev}/shm
ln -s /proc/self/fd {dev}/fd
mount --rbind {dev} /dev
"""


def on_gpu(
    bench: Bench,
    stack: Stack,
    *traces: str,
    cuda: str,
    sm: str = "90",
    env: Mapping[str, str] | None = None,
    gpus: str = "all",
) -> Case:
    """A probe of ``stack`` on a machine with one GPU ``sm`` whose driver knows ``cuda`` ("13020")."""
    steered = {"STANDIN_CUDA": cuda, "STANDIN_SM": sm, **(env or {})}
    return probing(stack, *traces, env=steered, gpus=gpus, setup=machine(bench))


@cache  # one function for all who ask for the same, so that its run is shared
def healthy(stack: str, cuda: str, sm: str = "90") -> Callable[[Bench], Case]:
    """The same stack on a machine whose driver is new enough."""
    return lambda bench: on_gpu(bench, pristine(stack), cuda=cuda, sm=sm)


# what cuInit says

CODES = {3: "not initialised", 35: "insufficient driver", 100: "no device", 802: "system not ready"}
CODES |= {803: "system driver mismatch", 804: "compat not supported", 999: "unknown"}


ALSO = {
    100: frozenset({"image-gpu-not-seen"}),
    803: frozenset({"image-forward-compat-incompatible"}),
    804: frozenset({"image-forward-compat-incompatible"}),
}


def _code(number: int) -> Fault:
    def plant(bench: Bench) -> Case:
        return on_gpu(bench, pristine("t26"), str(number), cuda="12040", env={"STANDIN_INIT": str(number)})

    return Fault(
        "D09",
        "image-driver-init-failed",
        f"cuInit returns {number}, {CODES[number]}",
        plant,
        "cuInit returns 0",
        healthy("t26", "12040"),
        also=ALSO.get(number, frozenset()),
        variant=str(number),
    )


def _stub(bench: Bench) -> Case:
    folder = bench.driver("stubs")
    env = {"LD_LIBRARY_PATH": str(folder), "STANDIN_INIT": "34"}
    return probing(pristine("t26"), str(folder), env=env, gpus="all")


def _stubs_on_path(bench: Bench) -> Case:
    folder = bench.folder / "cuda" / "lib64" / "stubs"
    folder.mkdir(parents=True)
    (folder / "libcuda.so").touch()  # as the toolkit's, it is found by who links, and by no loader
    return probing(pristine("t26"), str(folder), env={"LD_LIBRARY_PATH": f"/usr/lib:{folder}"})


def _other_folder_on_path(bench: Bench) -> Case:
    return probing(pristine("t26"), env={"LD_LIBRARY_PATH": f"/usr/lib:{bench.folder}"})


def _older_module(bench: Bench) -> Case:
    env = {"STANDIN_CUDA": "12040"}
    setup = machine(bench, release="550.54.14", module=RELEASE)
    return probing(pristine("t26"), "550.54.14", RELEASE, env=env, gpus="all", setup=setup)


def _not_in_cache(bench: Bench) -> Case:
    folder = bench.driver("loose")
    env = {"LD_LIBRARY_PATH": str(folder), "STANDIN_CUDA": "12040"}
    return probing(pristine("t26"), str(folder), env=env)


def _no_node(bench: Bench) -> Case:
    env = {"STANDIN_CUDA": "12040"}
    setup = machine(bench, nodes=("nvidiactl", "nvidia0"))
    return probing(pristine("t26"), "/dev/nvidia-uvm", env=env, gpus="all", setup=setup)


def _visible_but_absent(bench: Bench) -> Case:
    env = {"STANDIN_NVML_GPUS": "2", "STANDIN_DEVICES": "1"}
    return on_gpu(bench, pristine("t26"), "2", "1", cuda="12040", env=env)


def _compat(bench: Bench, cuda: str, code: str) -> Case:
    """A forward-compatibility driver on LD_LIBRARY_PATH; it ends cuInit with ``code``."""
    folder = bench.driver("cuda/compat", "570.86.15")
    env = {"LD_LIBRARY_PATH": str(folder), "STANDIN_CUDA": cuda, "STANDIN_INIT": code}
    return probing(pristine("t26"), str(folder), env=env, gpus="all", setup=machine(bench, "550.54.14", "550.54.14"))


# compilers and extensions


def _nvcc() -> str:
    """A CUDA_HOME with nvcc 13.0."""
    return str(wheel(*NVCC).site / "nvidia" / "cu13")


def _other_nvcc(bench: Bench) -> Case:
    home = _nvcc()
    return probing(pristine("t26"), home, "13.0", env={"CUDA_HOME": home})


def _own_nvcc(bench: Bench) -> Case:
    return probing(pristine("t211"), env={"CUDA_HOME": _nvcc()})


def _compiler(bench: Bench, version: str) -> Case:
    """torch for CUDA 13.0, its nvcc, and a host compiler that says it is ``version``."""
    says = f'-dump*) echo {version};; --version) echo "c++ (GCC) {version}";;'
    script = f'#!/bin/sh\ncase "$1" in {says} *) exec g++ "$@";; esac\n'
    home = _nvcc()
    path = bench.write("bin/g++", script, 0o755)
    return probing(pristine("t211"), version, env={"CUDA_HOME": home, "CXX": str(path)})


ASSEMBLERS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def _triton(giver: str, *traces: str) -> Case:
    """The smoke test of Triton's targets with the assembler of another Triton."""
    ptxas = str(pristine(giver).site / "triton/backends/nvidia/bin/ptxas")
    words = ("smoke", "--python", str(pristine("t215").python), "--gpus", "none", "--only", "triton-targets")
    return Case(words, dict.fromkeys(ASSEMBLERS, ptxas), traces)


# limits


def _doctor(setup: str, *traces: str) -> Case:
    return Case(("doctor",), {}, traces, setup)


# The CUPTI of CUDA 13.2 calls more than the stand-in has when it is asked for its version.
CUPTI = frozenset({"image-cupti-crashes"})

FAULTS = (
    *(_code(number) for number in CODES),
    Fault(
        "A08",
        "image-loader-variables-shadow-cuda",
        "the toolkit's folder of stubs is on LD_LIBRARY_PATH",
        _stubs_on_path,
        "a folder without CUDA libraries is on LD_LIBRARY_PATH",
        _other_folder_on_path,
    ),
    Fault(
        "B12",
        "image-cupti-crashes",
        "CUPTI of CUDA 13.2 and a driver that lacks what it calls: the stand-in",
        lambda bench: on_gpu(bench, pristine("t215"), "libcupti.so.13", "SIGSEGV", cuda="13020"),
        "CUPTI of CUDA 13.0, which answers with the same driver",
        healthy("t211", "13020"),
        severity="warning",
    ),
    Fault(
        "B14",
        "image-nvcc-of-other-cuda",
        "CUDA_HOME holds nvcc 13.0 and torch is for CUDA 12.4",
        _other_nvcc,
        "CUDA_HOME holds nvcc 13.0 and torch is for CUDA 13.0",
        _own_nvcc,
    ),
    Fault(
        "B14",
        "image-compiler-not-supported-by-nvcc",
        "the host compiler says that it is GCC 99",
        lambda bench: _compiler(bench, "99.1.0"),
        "the host compiler says that it is GCC 12.2.0",
        lambda bench: _compiler(bench, "12.2.0"),
    ),
    Fault(
        "B15",
        "image-known-bad-combination",
        "cuBLAS 13.1.0.3 meets a GPU of capability 10.0",
        lambda bench: on_gpu(bench, pristine("t211"), "13.1.0", "sm_100", cuda="13000", sm="100"),
        "cuBLAS 13.1.0.3 meets a GPU of capability 9.0",
        healthy("t211", "13000"),
        severity="warning",
    ),
    Fault(
        "C01",
        "image-arch-not-covered",
        "torch 2.15 meets a GPU of capability 7.0",
        lambda bench: on_gpu(bench, pristine("t215"), "sm_70", cuda="13020", sm="70"),
        "torch 2.15 meets a GPU of capability 8.9, which runs the code for 8.6",
        healthy("t215", "13020", "89"),
        also=CUPTI,
        twin_also=CUPTI,
    ),
    Fault(
        "C04",
        "image-assembler-newer-than-driver",
        "Triton 3.9 brings a ptxas of CUDA 13 and the driver knows CUDA 12.8",
        lambda bench: on_gpu(bench, pristine("t215"), "12.8", "ptxas-blackwell", cuda="12080"),
        "the driver knows CUDA 13.2",
        healthy("t215", "13020"),
        severity="warning",
        also=CUPTI | {"image-driver-too-old"},
        twin_also=CUPTI,
    ),
    Fault(
        "C05",
        "smoke-triton-targets",
        "Triton 3.9 is told to use the ptxas of Triton 3.0",
        lambda bench: _triton("t24", "sm_100"),
        "Triton 3.9 is told to use one of its own",
        lambda bench: _triton("t215"),
        severity="note",
        of_machine=True,
    ),
    Fault(
        "D01",
        "image-driver-init-failed",
        "cuInit ends the process with SIGSEGV",
        lambda bench: on_gpu(bench, pristine("t26"), "SIGSEGV", cuda="12040", env={"STANDIN_INIT": "crash"}),
        "cuInit returns 0",
        healthy("t26", "12040"),
        also=frozenset({"image-late-library-does-not-open"}),  # one asks the driver as it is opened, and dies of it
        variant="crash",
    ),
    Fault(
        "D01",
        "image-driver-stub",
        "libcuda.so.1 is found in a folder of stubs, and cuInit returns 34",
        _stub,
        "libcuda.so.1 is the driver's",
        healthy("t26", "12040"),
        also=frozenset({"image-loader-variables-shadow-cuda", "image-driver-init-failed", "image-device-nodes-closed"}),
    ),
    Fault(
        "D02",
        "image-driver-too-old",
        "torch for CUDA 13.2 meets a driver that knows CUDA 12.2",
        lambda bench: on_gpu(bench, pristine("t215"), "12.2", "13.2", cuda="12020"),
        "torch for CUDA 13.2 meets a driver that knows CUDA 13.0",
        healthy("t215", "13000"),
        also=CUPTI | {"image-assembler-newer-than-driver"},
        twin_also=CUPTI,
    ),
    Fault(
        "D03",
        "image-minor-compat-in-use",
        "torch for CUDA 13.2 meets a driver that knows CUDA 13.0",
        lambda bench: on_gpu(bench, pristine("t215"), "13.0", "13.2", cuda="13000"),
        "torch for CUDA 13.2 meets a driver that knows CUDA 13.2",
        healthy("t215", "13020"),
        severity="note",
        also=CUPTI,
        twin_also=CUPTI,
    ),
    Fault(
        "D04",
        "image-forward-compat-incompatible",
        "a forward-compatibility driver is found first, and cuInit returns 804",
        lambda bench: _compat(bench, "12080", "804"),
        "the same driver is found first, and cuInit returns 0",
        lambda bench: _compat(bench, "12080", "0"),
        also=frozenset({"image-driver-init-failed"}),
    ),
    Fault(
        "D05",
        "image-driver-library-not-from-host",
        "libcuda.so.550.54.14 meets the kernel module 580.65.06",
        _older_module,
        "library and module are of one release",
        healthy("t26", "12040"),
    ),
    Fault(
        "D06",
        "image-driver-not-in-cache",
        "the driver is found by LD_LIBRARY_PATH and not in ld.so.cache",
        _not_in_cache,
        "the driver is found in ld.so.cache",
        healthy("t26", "12040"),
        severity="warning",
    ),
    Fault(
        "D07",
        "image-device-nodes-closed",
        "there is no /dev/nvidia-uvm",
        _no_node,
        "all nodes can be opened",
        healthy("t26", "12040"),
    ),
    Fault(
        "D07",
        "image-device-nodes-closed",
        "NVIDIA_DRIVER_CAPABILITIES asks for graphics alone",
        lambda bench: on_gpu(
            bench, pristine("t26"), "graphics", cuda="12040", env={"NVIDIA_DRIVER_CAPABILITIES": "graphics"}
        ),
        "it asks for compute and utility",
        lambda bench: on_gpu(
            bench, pristine("t26"), cuda="12040", env={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
        ),
        variant="capabilities",
    ),
    Fault(
        "D08",
        "image-device-count-differs",
        "NVML counts two GPUs and CUDA one",
        _visible_but_absent,
        "both count one",
        healthy("t26", "12040"),
    ),
    Fault(
        "E01",
        "host-resource-limits-too-low",
        "the stack is limited to 1 MiB",
        lambda bench: _doctor("ulimit -s 1024", "1024 KiB"),
        "the stack is limited to 8 MiB",
        lambda bench: _doctor("ulimit -s 8192"),
        severity="warning",
        of_machine=True,
    ),
    Fault(
        "E01",
        "host-shm-too-small",
        "/dev/shm has 64 MiB, as a container's without --shm-size",
        lambda bench: _doctor("mount -t tmpfs -o size=64m none /dev/shm", "/dev/shm"),
        "/dev/shm has 16 GiB",
        lambda bench: _doctor("mount -t tmpfs -o size=16g none /dev/shm"),
        of_machine=True,
    ),
    Fault(
        "E03",
        "image-debug-variables-left-on",
        "CUDA_LAUNCH_BLOCKING=1",
        lambda bench: probing(pristine("t26"), "CUDA_LAUNCH_BLOCKING", env={"CUDA_LAUNCH_BLOCKING": "1"}),
        "CUDA_LAUNCH_BLOCKING=0 and CUDA_MODULE_LOADING=LAZY, which are the defaults",
        lambda bench: probing(pristine("t26"), env={"CUDA_LAUNCH_BLOCKING": "0", "CUDA_MODULE_LOADING": "LAZY"}),
        severity="warning",
    ),
    Fault(
        "F07",
        "image-runs-on-cpu",
        "CUDA_VISIBLE_DEVICES=-1 where GPUs were given",
        lambda bench: on_gpu(
            bench, pristine("t26"), "CUDA_VISIBLE_DEVICES", cuda="12040", env={"CUDA_VISIBLE_DEVICES": "-1"}
        ),
        "CUDA_VISIBLE_DEVICES=0",
        lambda bench: on_gpu(bench, pristine("t26"), cuda="12040", env={"CUDA_VISIBLE_DEVICES": "0"}),
        also=frozenset({"image-device-count-differs", "image-gpus-hidden"}),
    ),
    Fault(
        "F07",
        "image-runs-on-cpu",
        "NVIDIA_CPU_ONLY=1 where a GPU works",
        lambda bench: on_gpu(bench, pristine("t26"), "NVIDIA_CPU_ONLY", cuda="12040", env={"NVIDIA_CPU_ONLY": "1"}),
        "the same GPU without the variable",
        healthy("t26", "12040"),
        severity="warning",
        variant="believed",
    ),
)
