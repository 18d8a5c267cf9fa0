"""The catalogue of probes: what each one finds, and the checks that do it, or why none does.

Every module ``recipes_*.py`` beside this file belongs to it by its name: its FAULTS, and its TITLES where it has probes
of its own (by id, such as "G01"); without one a probe is called as the page of its first check is.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from fault import Fault

from envkit.judging import pages

MODULES = tuple(import_module(path.stem) for path in sorted(Path(__file__).parent.glob("recipes_*.py")))
FAULTS: tuple[Fault, ...] = tuple(
    sorted((fault for module in MODULES for fault in module.FAULTS), key=lambda fault: fault.name)
)

TITLES = {
    "A01": "which CUDA libraries a process maps, from where, and whose they are",
    "A02": "one library mapped from two files",
    "A03": "runtimes of two CUDA majors in one process",
    "A04": "the copy that torch really binds is not its wheel's",
    "A05": "a library that a wheel should bring comes from elsewhere",
    "A06": "an extension that carries a CUDA runtime of its own, or needs that of another major",
    "A07": "a directory of the search path shadows a wheel's library",
    "A08": "variables that steer the dynamic linker",
    "A09": "two distributions own one file",
    "A10": "a file is not what its wheel brought",
    "A11": "the installed wheels are not those that torch pins",
    "A12": "two variants of one framework",
    "B01": "a CUDA runtime older than torch's build",
    "B02": "a cuDNN older than torch's build",
    "B03": "parts of cuDNN from two releases",
    "B04": "a cuDNN that opens a library it does not bring",
    "B05": "a cuDNN built for another CUDA major",
    "B06": "libcublas and libcublasLt of two releases",
    "B07": "an nvJitLink without the symbols that cuSPARSE needs",
    "B08": "libnvrtc without its builtins",
    "B09": "an NCCL older than torch's build",
    "B10": "a library whose SONAME hides that it is of another CUDA major",
    "B11": "a mathematical library older than torch pins",
    "B12": "a CUPTI whose version call dies",
    "B13": "all CUDA versions in one image",
    "B14": "an nvcc of another CUDA than torch, or a host compiler it does not take",
    "B15": "versions that are known to fail together",
    "B16": "a C or C++ library older than the wheels need",
    "B17": "a package built for another torch",
    "C01": "torch has no code for the GPU",
    "C02": "an extension has no code for the GPU",
    "C03": "PTX newer than the driver can compile",
    "C04": "an assembler of Triton newer than the driver",
    "C05": "Triton makes no code for a GPU",
    "D01": "no driver, or a stub in its place",
    "D02": "a driver older than the CUDA major needs",
    "D03": "a driver older than torch's CUDA minor",
    "D04": "a forward-compatibility driver that does not fit",
    "D05": "a driver library that is not the kernel module's",
    "D06": "a driver that ld.so.cache does not know",
    "D07": "device nodes that are missing or closed, or capabilities that were not asked for",
    "D08": "CUDA, NVML, nodes and CUDA_VISIBLE_DEVICES count differently",
    "D09": "what a code of cuInit means",
    "E01": "limits on shared memory, stack, files and locked memory",
    "E02": "a fork after CUDA was initialised",
    "E03": "debugging variables left on",
    "E04": "debugging tools that cannot be used",
    "E05": "a PCIe topology that makes NCCL slow or hang",
    "E06": "a GPU that is in use, throttled or worn",
    "F01": "parameters and buffers on more than one device",
    "F02": "an operation that meets tensors of two devices",
    "F03": "an AOTInductor package made for another device or machine",
    "F04": "inputs that an AOTInductor package does not take",
    "F05": "a runner or a C++ runtime that does not fit the package, or kernels missing from it",
    "F06": "a custom operation that ignores the device of its tensors",
    "F07": "a job that would run on the CPU without a word",
    "F08": "ranks that see other devices than they should, or share one",
}

# Checks of the catalogue that no recipe can make fire on a machine without a GPU; their own tests do it by hand.
UNPLANTED = {"aoti-cubin-missing": "only a machine with a GPU makes a package that holds GPU machine code"}

CATALOGUE: dict[str, tuple[str, ...] | str] = {
    "A01": "declined: an inventory and no fault; the probe prints it as its table, and all others judge it",
    "A02": ("image-library-twice",),
    "A03": ("image-library-twice",),
    "A04": ("image-library-from-elsewhere",),
    "A05": ("image-library-from-elsewhere",),
    "A06": ("image-extension-other-cuda",),
    "A07": ("audit-library-shadowed",),
    "A08": ("image-loader-variables-shadow-cuda", "audit-stub-on-path", "audit-compat-registered"),
    "A09": ("image-files-overwritten",),
    "A10": ("image-files-overwritten",),
    "A11": ("image-torch-requirement-not-met",),
    "A12": ("image-frameworks-twice",),
    "B01": ("image-cudart-mismatch",),
    "B02": ("image-cudnn-older-than-build",),
    "B03": ("image-cudnn-mixed",),
    "B04": ("image-cudnn-incomplete", "audit-cudnn-incomplete"),
    "B05": ("image-library-of-other-cuda",),
    "B06": ("image-cublas-mismatch",),
    "B07": ("audit-unresolved-symbol",),
    "B08": ("image-nvrtc-builtins-mismatch",),
    "B09": ("image-nccl-older-than-build", "image-library-of-other-cuda"),
    "B10": ("audit-library-of-other-cuda",),
    "B11": ("image-library-older-than-pinned",),
    "B12": ("image-cupti-crashes",),
    "B13": "declined: an inventory and no fault, for a healthy torch holds six CUDA versions; the table of libraries",
    "B14": ("image-nvcc-of-other-cuda", "image-compiler-not-supported-by-nvcc"),
    "B15": ("image-known-bad-combination",),
    "B16": ("audit-system-library-too-old",),
    "B17": ("image-framework-built-for-other-torch", "audit-unresolved-symbol"),
    "C01": ("image-arch-not-covered", "audit-arch-not-covered"),
    "C02": ("image-extension-arch-not-covered",),
    "C03": ("image-ptx-newer-than-driver",),
    "C04": ("image-assembler-newer-than-driver",),
    "C05": ("smoke-triton-targets",),
    "D01": ("image-driver-stub", "image-driver-init-failed"),
    "D02": ("image-driver-too-old",),
    "D03": ("image-minor-compat-in-use",),
    "D04": ("image-forward-compat-incompatible",),
    "D05": ("image-driver-library-not-from-host", "audit-driver-inside"),
    "D06": ("image-driver-not-in-cache",),
    "D07": ("image-device-nodes-closed",),
    "D08": ("image-device-count-differs",),
    "D09": ("image-driver-init-failed",),
    "E01": ("host-resource-limits-too-low", "host-shm-too-small"),
    "E02": ("placement-fork-after-cuda",),
    "E03": ("image-debug-variables-left-on",),
    "E04": "declined: the rows of tools choose what fits when a debug image is made; the host permits tracing",
    "E05": "declined: bridges, IOMMU and links belong to the machine, and a container sees only a part of them",
    "E06": "declined: a GPU's state of the moment is none of an image; `envkit doctor` judges ECC and remapped rows",
    "F01": ("placement-state-split", "placement-frozen-split"),
    "F02": ("placement-two-devices", "placement-dtype-mix"),
    "F03": ("aoti-no-such-device", "aoti-other-machine", "aoti-isa-missing"),
    "F04": ("aoti-device-differs", "aoti-input-mismatch"),
    "F05": ("aoti-wrong-runner-class", "aoti-cubin-missing", "aoti-cxx-runtime-inside"),
    "F06": "declined: it shows only where a second GPU runs the operation, and its source is not in the image",
    "F07": ("image-runs-on-cpu", "audit-cpu-torch", "image-framework-without-gpu"),
    "F08": ("placement-ranks-share-gpu",),
}
for _module in MODULES:
    CATALOGUE.update(getattr(_module, "CATALOGUE", {}))
    TITLES.update(getattr(_module, "TITLES", {}))
for _fault in FAULTS:  # a probe of a module's own, or a further check of one above, which is not declined
    _told = CATALOGUE.get(_fault.probe, ())
    if isinstance(_told, tuple) and _fault.check not in _told:
        CATALOGUE[_fault.probe] = (*_told, _fault.check)
    TITLES.setdefault(_fault.probe, pages.load(_fault.check).title)
CATALOGUE = dict(sorted(CATALOGUE.items()))
TITLES = dict(sorted(TITLES.items()))
