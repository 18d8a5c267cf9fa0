"""The setup domain: driver, container, libraries, compilers.  Every cause beside a twin in which it is not there."""

from __future__ import annotations

import pytest
from gathered import gathered

from tests.logs import told

TB = 'Traceback (most recent call last):\n  File "/app/train.py", line 12, in <module>\n    main()\n'
LAZY = (
    TB + '  File "/opt/env/lib/python3.11/site-packages/torch/cuda/__init__.py", line 319, in _lazy_init\n    '
    "torch._C._cuda_init()\n"
)
SMI = (
    "+---------------------------------------------------------------------------------------+\n"
    "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15    CUDA Version: 12.4     |\n"
)
HOOK = (
    "docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc create "
    "failed: unable "
    "to start container process: error during container init: error running hook #0: error running hook: exit "
    "status 1, "
    "stdout: , stderr: Auto-detected mode as 'legacy'\n"
)

DRIVER = [
    pytest.param(
        LAZY
        + "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
        "driver by downloading and installing a new version.\n",
        "driver-too-old",
        "version-mismatch",
        "found version 11040",
        id="torch",
    ),
    pytest.param(
        "/opt/env/lib/python3.11/site-packages/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: The "
        "NVIDIA "
        "driver on your system is too old (found version 12020). (Triggered internally at "
        "c10/cuda/CUDAFunctions.cpp:108.)\n" + TB + "RuntimeError: CUDA is not available on this machine\n",
        "driver-too-old",
        "version-mismatch",
        "found version 12020",
        id="warning-then-cuda",
    ),
    pytest.param(
        "CUDA error at sample.cu:40 code=35(cudaErrorInsufficientDriver) cudaGetDeviceCount(&n)\n",
        "cuda-init-no-device",
        "no-gpu-or-driver",
        "cudaErrorInsufficientDriver",
        id="sample",
    ),
    pytest.param(
        "terminate called after throwing an instance of 'thrust::system::system_error'\n"
        "  what():  CUDA driver version is insufficient for CUDA runtime version\n",
        "cuda-init-no-device",
        "no-gpu-or-driver",
        "driver version is insufficient",
        id="runtime",
    ),
    pytest.param(
        "$ docker run -it --rm trainer:1 python fit.py\n"
        + TB
        + "RuntimeError: cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version at "
        "Init.cpp:51\n",
        "driver-too-old",
        "container-config",
        "driver version is insufficient",
        id="runtime-without-gpus",
    ),
    pytest.param(
        "ERROR: This container was built for NVIDIA Driver Release 545.23 or later, but\n"
        "       version 470.57 was detected and compatibility mode is UNAVAILABLE.\n",
        "driver-too-old",
        "version-mismatch",
        "built for NVIDIA Driver Release",
        id="ngc",
    ),
    pytest.param(
        TB + "RuntimeError: Unable to initialize backend 'cuda': jaxlib: Found CUDA version 12010, but JAX was built "
        "against "
        "version 12020, which is newer.\n",
        "driver-too-old",
        "version-mismatch",
        "but JAX was built against",
        id="jax",
    ),
    pytest.param(
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n",
        "driver-library-mismatch",
        "version-mismatch",
        "Driver/library version mismatch",
        id="mismatch",
    ),
    pytest.param(
        HOOK + "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown.\n",
        "driver-library-mismatch",
        "version-mismatch",
        "driver/library version mismatch",
        id="mismatch-hook",
    ),
    pytest.param(
        "E tensorflow/cuda_diagnostics.cc:313] kernel version 470.141.3 does not match DSO version 470.161.3 -- cannot "
        "find working devices in this configuration\n",
        "driver-library-mismatch",
        "version-mismatch",
        "does not match DSO version",
        id="mismatch-tensorflow",
    ),
    pytest.param(
        LAZY
        + "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / "
        "cuda "
        "driver combination\n",
        "driver-library-mismatch",
        "version-mismatch",
        "Error 803",
        id="803-host",
    ),
    pytest.param(
        "root@0a1b2c3d4e5f:/app# export LD_LIBRARY_PATH=/usr/local/cuda/compat:/usr/lib\n"
        + LAZY
        + "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination\n",
        "driver-library-mismatch",
        "library-path-clash",
        "Error 803",
        id="803-compat",
    ),
    pytest.param(
        LAZY + "RuntimeError: Error 804: forward compatibility was attempted on non supported HW\n",
        "forward-compat-unsupported",
        "version-mismatch",
        "Error 804",
        id="804",
    ),
    pytest.param(
        LAZY + "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized\n",
        "cuda-init-error-802-fabricmanager",
        "fabric-manager",
        "Error 802",
        id="802",
    ),
    pytest.param(
        "Feb 24 09:28:28 node1 nv-fabricmanager[1507]: fabric manager NVIDIA GPU driver interface version "
        "535.54.03 don't "
        "match with driver version 535.86.10. Please update with matching NVIDIA driver package.\n"
        "Feb 24 09:28:28 node1 systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.\n"
        "Failed to allocate device vector A (error code system not yet initialized)!\n",
        "cuda-init-error-802-fabricmanager",
        "fabric-manager",
        "don't match with driver version",
        id="802-service",
    ),
]

DEVICES = [
    pytest.param(
        LAZY + "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
        "installed a "
        "driver from http://www.nvidia.com/Download/index.aspx\n",
        "cuda-init-no-device",
        "no-gpu-or-driver",
        "Found no NVIDIA driver",
        id="no-driver",
    ),
    pytest.param(
        "$ docker run -it --rm -v /data:/data trainer:1 python fit.py\n"
        + LAZY
        + "RuntimeError: Found no NVIDIA driver on your system.\n",
        "cuda-init-no-device",
        "container-config",
        "Found no NVIDIA driver",
        id="no-driver-without-gpus",
    ),
    pytest.param(
        "$ apptainer exec trainer.sif python fit.py\n" + LAZY + "RuntimeError: No CUDA GPUs are available\n",
        "cuda-init-no-device",
        "container-config",
        "No CUDA GPUs are available",
        id="without-nv",
    ),
    pytest.param(
        "$ CUDA_VISIBLE_DEVICES=-1 python fit.py\n" + LAZY + "RuntimeError: No CUDA GPUs are available\n",
        "cuda-visible-devices-misuse",
        "launch-config",
        "No CUDA GPUs are available",
        id="hidden",
    ),
    pytest.param(
        "$ export CUDA_VISIBLE_DEVICES=0\n" + LAZY + "RuntimeError: No CUDA GPUs are available\n",
        "cuda-init-no-device",
        "no-gpu-or-driver",
        "No CUDA GPUs are available",
        id="not-hidden",
    ),
    pytest.param(
        TB + "ValueError: invalid literal for int() with base 10: 'MIG-1b2c3d4e-0000-1111-2222-333344445555'\n",
        "cuda-visible-devices-misuse",
        "launch-config",
        "invalid literal for int",
        id="uuid",
    ),
    pytest.param(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA "
        "driver is installed and running.\n",
        "cuda-init-no-device",
        "no-gpu-or-driver",
        "NVIDIA-SMI has failed",
        id="smi",
    ),
    pytest.param(
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n",
        "cuda-init-no-device",
        "no-gpu-or-driver",
        "Key was rejected",
        id="secure-boot",
    ),
    pytest.param(
        "Building module:\n'make' -j8 KERNEL_UNAME=6.9.1-arch modules...(bad exit status: 2)\n"
        "Error! Bad return status for module build on kernel: 6.9.1-arch (x86_64)\n"
        "Consult /var/lib/dkms/nvidia/550.54.15/build/make.log for more information.\n",
        "cuda-init-no-device",
        "version-mismatch",
        "Bad return status",
        id="dkms",
    ),
    pytest.param(
        "ERROR: The Nouveau kernel driver is currently in use by your system.  This driver is incompatible with "
        "the NVIDIA "
        "driver\n",
        "cuda-init-no-device",
        "no-gpu-or-driver",
        "Nouveau",
        id="nouveau",
    ),
    pytest.param(
        "ERROR: Unable to find the kernel source tree for the currently running kernel.\n"
        "ERROR: Installation has failed.  Please see the file '/var/log/nvidia-installer.log' for details.\n",
        "cuda-init-no-device",
        "version-mismatch",
        "kernel source tree",
        id="headers",
    ),
    pytest.param(
        "  Warning  FailedScheduling  3m  default-scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/gpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.\n",
        "cuda-init-no-device",
        "container-config",
        "Insufficient nvidia.com/gpu",
        id="k8s-one-node",
    ),
    pytest.param(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB\n"
        "  Warning  FailedScheduling  3m  default-scheduler  0/2 nodes are available: 2 Insufficient nvidia.com/gpu.\n",
        "not-gpu-env",
        "infra",
        "Insufficient nvidia.com/gpu",
        id="k8s-after-another-failure",
    ),
    pytest.param(
        "  Warning  FailedScheduling  3m  default-scheduler  0/9 nodes are available: 4 Insufficient nvidia.com/gpu, 5 "
        "node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }.\n",
        "not-gpu-env",
        "infra",
        "Insufficient nvidia.com/gpu",
        id="k8s-busy",
    ),
    pytest.param(
        TB + "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. "
        "If you "
        "are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu')\n",
        "cuda-init-no-device",
        "launch-config",
        "Attempting to deserialize",
        id="deserialize",
    ),
    pytest.param(
        "$ nvidia-smi\nFailed to initialize NVML: Unknown Error\n",
        "cgroup-lost-gpu",
        "container-config",
        "Unknown Error",
        id="lost",
    ),
    pytest.param(
        "2024-03-01 10:00:00 E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed call to cuInit: "
        "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n",
        "cuda-init-no-device",
        "no-gpu-or-driver",
        "failed call to cuInit",
        id="tensorflow",
    ),
]

CONTAINER = [
    pytest.param(
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n',
        "docker-no-gpu-driver",
        "container-config",
        "could not select device driver",
        id="select",
    ),
    pytest.param(
        "docker: Error response from daemon: unknown or invalid runtime name: nvidia.\n",
        "docker-no-gpu-driver",
        "container-config",
        "invalid runtime name",
        id="runtime",
    ),
    pytest.param(
        "Error response from daemon: failed to create task: CDI device injection failed: unresolvable CDI devices "
        "nvidia.com/gpu=all\n",
        "docker-no-gpu-driver",
        "container-config",
        "CDI",
        id="cdi",
    ),
    pytest.param(
        "  Warning  FailedCreatePodSandBox  2s  kubelet  Failed to create pod sandbox: rpc error: code = Unknown "
        "desc = failed "
        'to get sandbox runtime: no runtime for "nvidia" is configured\n',
        "docker-no-gpu-driver",
        "container-config",
        "no runtime for",
        id="containerd",
    ),
    pytest.param(
        "unknown flag: --gpus\nSee 'docker run --help'.\n",
        "docker-no-gpu-driver",
        "version-mismatch",
        "unknown flag",
        id="old-docker",
    ),
    pytest.param(
        HOOK + "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared "
        "object "
        "file: no such file or directory: unknown.\n",
        "nvidia-container-cli-init-error",
        "no-gpu-or-driver",
        "nvidia-container-cli",
        id="hook-no-driver",
    ),
    pytest.param(
        HOOK + "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared "
        "object "
        "file: no such file or directory: unknown.\n$ nvidia-smi\n" + SMI,
        "nvidia-container-cli-init-error",
        "container-config",
        "nvidia-container-cli",
        id="hook-driver-works",
    ),
    pytest.param(
        HOOK + "nvidia-container-cli: initialization error: nvml error: insufficient permissions: unknown.\n",
        "nvidia-container-cli-init-error",
        "driver-firmware-fault",
        "insufficient permissions",
        id="hook-nvml-refuses",
    ),
    pytest.param(
        HOOK + "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.\n",
        "nvidia-container-cli-init-error",
        "no-gpu-or-driver",
        "driver not loaded",
        id="hook-nvml-without-driver",
    ),
    pytest.param(
        HOOK + "nvidia-container-cli: device error: 3: unknown device: unknown.\n",
        "nvidia-container-cli-init-error",
        "launch-config",
        "unknown device",
        id="hook-device",
    ),
    pytest.param(
        HOOK + "nvidia-container-cli: mount error: file creation failed: /var/lib/docker/overlay2/ab/merged/usr/lib/"
        "x86_64-linux-gnu/libnvidia-ml.so.1: file exists: unknown.\n",
        "nvidia-container-cli-init-error",
        "container-config",
        "file exists",
        id="hook-files",
    ),
    pytest.param(
        HOOK
        + "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.6, please update your driver to a "
        "newer version, or use an earlier cuda container: unknown.\n",
        "nvidia-container-cli-requirement-error",
        "version-mismatch",
        "unsatisfied condition",
        id="requirement",
    ),
    pytest.param(
        "/bin/nvidia-docker: line 34: /bin/docker: Permission denied\n",
        "selinux-docker-wrapper",
        "container-config",
        "Permission denied",
        id="selinux",
    ),
    pytest.param(
        TB
        + "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.\n",
        "dataloader-shm-bus-error",
        "container-config",
        "Bus error",
        id="shm",
    ),
    pytest.param(
        TB + "RuntimeError: unable to open shared memory object </torch_4711_123> in read-write mode: Too many open "
        "files (24)\n",
        "dataloader-shm-bus-error",
        "host-resource",
        "Too many open files",
        id="shm-files",
    ),
    pytest.param(
        TB + "RuntimeError: unable to write to file </torch_4711_123_0>: No space left on device (28)\n",
        "dataloader-shm-bus-error",
        "container-config",
        "unable to write to file",
        id="shm-full",
    ),
]

LIBRARIES = [
    pytest.param(
        TB + "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory\n",
        "missing-shared-library",
        "no-gpu-or-driver",
        "libcuda.so.1",
        id="libcuda",
    ),
    pytest.param(
        "root@0a1b2c3d4e5f:/app# python fit.py\n"
        + TB
        + "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory\n",
        "missing-shared-library",
        "container-config",
        "libcuda.so.1",
        id="libcuda-container",
    ),
    pytest.param(
        TB + '  File "/opt/env/lib/python3.11/site-packages/mycuda/__init__.py", line 3, in <module>\n    import '
        "mycuda_ext\n"
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory\n",
        "missing-shared-library",
        "wrong-build-installed",
        "libcudart.so.11.0",
        id="extension",
    ),
    pytest.param(
        TB + '  File "/opt/env/lib/python3.11/site-packages/torch/__init__.py", line 367, in <module>\n    from '
        "torch._C import *\n"
        "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n",
        "missing-shared-library",
        "wrong-build-installed",
        "libcudnn.so.9",
        id="torch-own",
    ),
    pytest.param(
        "RuntimeError: Library libcublas.so.12 is not found or cannot be loaded\n",
        "missing-shared-library",
        "wrong-build-installed",
        "libcublas.so.12",
        id="ctranslate2",
    ),
    pytest.param(
        "Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: cannot open shared object file: No "
        "such file or "
        "directory\n",
        "missing-shared-library",
        "library-path-clash",
        "libcudnn_cnn_infer",
        id="cudnn-part",
    ),
    pytest.param(
        TB + "ImportError: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory\n",
        "missing-shared-library",
        "version-mismatch",
        "libtorch_cuda_cu.so",
        id="split-torch",
    ),
    pytest.param(
        TB + "ImportError: libtorch_hip.so: cannot open shared object file: No such file or directory\n",
        "missing-shared-library",
        "wrong-build-installed",
        "libtorch_hip.so",
        id="rocm",
    ),
    pytest.param(
        TB + "ImportError: /opt/env/lib/python3.11/site-packages/ext_cuda.cpython-311-x86_64-linux-gnu.so: undefined "
        "symbol: "
        "_ZN3c104cuda9SetDeviceEi\n",
        "undefined-symbol-abi-mismatch",
        "version-mismatch",
        "undefined symbol",
        id="symbol-torch",
    ),
    pytest.param(
        TB + "ImportError: "
        "/opt/env/lib/python3.11/site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: undefined "
        "symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12\n",
        "undefined-symbol-abi-mismatch",
        "library-path-clash",
        "__nvJitLinkAddData",
        id="symbol-cuda",
    ),
    pytest.param(
        "python: error while loading: symbol cublasLtGetStatusString version libcublasLt.so.11 not defined in file "
        "libcublasLt.so.11 with link time reference\n",
        "undefined-symbol-abi-mismatch",
        "library-path-clash",
        "cublasLtGetStatusString",
        id="symbol-linktime",
    ),
    pytest.param(
        TB + "RuntimeError: operator torchvision::nms does not exist\n",
        "undefined-symbol-abi-mismatch",
        "version-mismatch",
        "torchvision::nms",
        id="torchvision",
    ),
    pytest.param(
        TB + "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by "
        "/opt/env/ext_cuda.so)\n",
        "undefined-symbol-abi-mismatch",
        "version-mismatch",
        "GLIBC_2.34",
        id="glibc",
    ),
    pytest.param(
        LAZY + "AssertionError: Torch not compiled with CUDA enabled\n",
        "torch-not-compiled-with-cuda",
        "wrong-build-installed",
        "Torch not compiled",
        id="cpu-torch",
    ),
    pytest.param(
        'Traceback (most recent call last):\n  File "/Users/ann/app/train.py", line 12, in <module>\n    main()\n'
        "AssertionError: Torch not compiled with CUDA enabled\n",
        "torch-not-compiled-with-cuda",
        "no-gpu-or-driver",
        "Torch not compiled",
        id="mac",
    ),
    pytest.param(
        TB + "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'\n",
        "torch-not-compiled-with-cuda",
        "wrong-build-installed",
        "_cuda_setDevice",
        id="cpu-torch-attribute",
    ),
    pytest.param(
        TB + "RuntimeError: Not compiled with GPU support\n",
        "torch-not-compiled-with-cuda",
        "wrong-build-installed",
        "Not compiled with GPU support",
        id="cpu-extension",
    ),
    pytest.param(
        "ERROR: No matching distribution found for torch==1.7.1+cu110\n",
        "not-gpu-env",
        "version-mismatch",
        "No matching distribution",
        id="no-wheel",
    ),
    pytest.param(
        "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.1.0 as it may crash.\n"
        + TB
        + "ImportError: numpy.core.multiarray failed to import\n",
        "not-gpu-env",
        "version-mismatch",
        "NumPy 1.x",
        id="numpy",
    ),
]

COMPILE = [
    pytest.param(
        TB + "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch "
        "(12.1). "
        "Please make sure to use the same CUDA versions.\n",
        "nvcc-torch-cuda-mismatch",
        "version-mismatch",
        "The detected CUDA version",
        id="mismatch",
    ),
    pytest.param(
        TB + "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n",
        "nvcc-torch-cuda-mismatch",
        "container-config",
        "CUDA_HOME",
        id="cuda-home",
    ),
    pytest.param(
        "#9 12.3 /bin/sh: 1: nvcc: not found\n",
        "nvcc-torch-cuda-mismatch",
        "container-config",
        "nvcc: not found",
        id="nvcc",
    ),
    pytest.param(
        "nvcc fatal   : Unsupported gpu architecture 'compute_120'\nninja: build stopped: subcommand failed.\n",
        "nvcc-torch-cuda-mismatch",
        "arch-unsupported",
        "compute_120",
        id="architecture",
    ),
    pytest.param(
        "csrc/ops.cu:3:10: fatal error: cusparse.h: No such file or directory\ncompilation terminated.\n",
        "nvcc-torch-cuda-mismatch",
        "container-config",
        "cusparse.h",
        id="header",
    ),
    pytest.param(
        "CMake Error at CMakeDetermineCompilerId.cmake:503 (message):\n  No CUDA toolset found.\n",
        "nvcc-torch-cuda-mismatch",
        "wrong-build-installed",
        "No CUDA toolset found",
        id="toolset",
    ),
    pytest.param(
        TB + '  File "/opt/env/lib/python3.11/site-packages/torch/utils/cpp_extension.py", line 1974, in '
        "_get_cuda_arch_flags\n"
        "    arch_list[-1] += '+PTX'\nIndexError: list index out of range\n",
        "nvcc-torch-cuda-mismatch",
        "container-config",
        "list index out of range",
        id="no-gpu-while-building",
    ),
    pytest.param(
        "/usr/local/cuda/include/crt/host_config.h:132:2: error: #error -- unsupported GNU version! gcc versions "
        "later than 11 "
        "are not supported!\n",
        "unsupported-gnu-version",
        "version-mismatch",
        "unsupported GNU version",
        id="gnu",
    ),
    pytest.param(
        "/usr/include/c++/11/bits/std_function.h:435:145: error: parameter packs not expanded with '...':\n",
        "unsupported-gnu-version",
        "version-mismatch",
        "parameter packs",
        id="parameter-packs",
    ),
    pytest.param(
        TB + "AssertionError: libcuda.so cannot found!\nPossible files are located at "
        "['/lib/x86_64-linux-gnu/libcuda.so.1']."
        "Please create a symlink of libcuda.so to any of the file.\n",
        "triton-libcuda-not-found",
        "library-path-clash",
        "libcuda.so cannot found",
        id="triton",
    ),
    pytest.param(
        "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status\n"
        + TB
        + "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpab12/main.c', "
        "'-O3', "
        "'-lcuda']' returned non-zero exit status 1.\n",
        "triton-libcuda-not-found",
        "library-path-clash",
        "cannot find -lcuda",
        id="triton-link",
    ),
    pytest.param(
        TB + "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.\n",
        "triton-libcuda-not-found",
        "container-config",
        "Failed to find C compiler",
        id="triton-compiler",
    ),
    pytest.param(
        "/tmp/tmpab12/main.c:5:10: fatal error: Python.h: No such file or directory\n"
        + TB
        + "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpab12/main.c', '-O3']' returned "
        "non-zero exit "
        "status 1.\n",
        "triton-libcuda-not-found",
        "container-config",
        "Python.h",
        id="triton-python",
    ),
    pytest.param(
        "OSError: /lib/x86_64-linux-gnu/libcuda.so.1: cannot read file data: Is a directory\n",
        "missing-shared-library",
        "container-config",
        "Is a directory",
        id="driver-is-a-folder",
    ),
]


@gathered(DRIVER + DEVICES + CONTAINER + LIBRARIES + COMPILE)
def test_cause(text: str, category: str, cause: str, quoted: str) -> None:
    answer = told(text)
    assert (answer.category, answer.cause) == (category, cause)
    assert any(quoted in mark.line.raw for mark in answer.evidence)


INNOCENT = [
    pytest.param(
        "/opt/env/lib/python3.11/site-packages/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: The "
        "NVIDIA driver "
        "on your system is too old (found version 12020).\n" + TB + "KeyError: 'learning_rate'\n",
        id="warned-and-died-of-a-key",
    ),
    pytest.param(
        "W tensorflow/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: "
        "libcudart.so.11.0: cannot "
        "open shared object file: No such file or directory\n"
        "I tensorflow/cudart_stub.cc:29] Ignore above cudart dlerror if you do not have a GPU set up on your machine.\n"
        + TB
        + "ValueError: Input 0 of layer dense is incompatible with the layer\n",
        id="tensorflow-on-cpu",
    ),
    pytest.param(
        TB + "ImportError: libGL.so.1: cannot open shared object file: No such file or directory\n", id="libgl"
    ),
    pytest.param(
        "Collecting torch==2.6.0\nBuilding wheels for collected packages: tokenizers\n"
        "  error: can't find Rust compiler\nERROR: Failed building wheel for tokenizers\n",
        id="rust",
    ),
    pytest.param("fatal error: zlib.h: No such file or directory\ncompilation terminated.\n", id="header"),
    pytest.param(
        TB + "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. \n",
        id="worker-killed",
    ),
    pytest.param(
        "$ docker run --gpus all trainer:1 python fit.py\n" + SMI + TB + "FileNotFoundError: [Errno 2] No such file or "
        "directory: '/data/train.json'\n",
        id="started-well",
    ),
]


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_not_the_setup_is_not_blamed_on_it(text: str) -> None:
    assert told(text).category in ("not-gpu-env", "insufficient-evidence")


TALK = [
    "I read that CUDA driver version is insufficient for CUDA runtime version means that the driver is too old\n",
    "# if you see `could not select device driver` install the toolkit\n",
    "INFO: detected CUDA version (12.4) has a minor version mismatch with the version that was used to compile "
    "PyTorch (12.1)\n",
    SMI,
    "PyTorch version: 2.6.0+cu124\nCUDA used to build PyTorch: 12.4\nIs CUDA available: True\n",
    "export CUDA_VISIBLE_DEVICES=\n",
    "$ docker run --rm ubuntu echo hello\nhello\n",
]


@pytest.mark.parametrize("text", TALK)
def test_talk_and_versions_are_no_failure(text: str) -> None:
    assert told(text).category in ("not-gpu-env", "insufficient-evidence") or told(text).confidence < 0.5


def test_values_are_in_the_sentence() -> None:
    old = told("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n")
    assert "11.4" in old.because
    named = told("The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.1).\n")
    assert "11.8" in named.because and "12.1" in named.because
    image = told("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.6, please update\n" + SMI)
    assert "cuda>=12.6" in image.because and "12.4" in image.because


def test_a_library_with_newer_cuda_than_torch_is_a_clash() -> None:
    text = (
        "PyTorch version: 2.4.0+cu121\nCUDA used to build PyTorch: 12.1\n"
        + SMI
        + "RuntimeError: CUDA driver version is insufficient for CUDA runtime version\n"
    )
    clash = told(text)
    assert (clash.category, clash.cause) == ("driver-too-old", "library-path-clash")
    plain = told(text.replace("12.1", "12.8").replace("cu121", "cu128"))
    assert (plain.category, plain.cause) == ("driver-too-old", "version-mismatch")


@pytest.mark.parametrize(
    ("driver", "cause", "speaks"),
    [
        ("550.54.15", "library-path-clash", "12.4"),
        ("530.30.02", "library-path-clash", "12.1"),  # just the one that torch wants
        ("525.105.17", "version-mismatch", "12.0"),
        ("550", "version-mismatch", ""),  # no release: what it speaks is not known
        ("550.", "version-mismatch", ""),  # the line was cut
    ],
)
def test_what_a_driver_speaks_is_known_by_its_release(driver: str, cause: str, speaks: str) -> None:
    """Where the log names the driver alone, the facts say which CUDA it brings."""
    text = (
        f"PyTorch version: 2.4.0+cu121\nCUDA used to build PyTorch: 12.1\nNvidia driver version: {driver}\n"
        "RuntimeError: CUDA driver version is insufficient for CUDA runtime version\n"
    )
    found = told(text)
    assert (found.category, found.cause) == ("driver-too-old", cause)
    assert (f"the driver speaks CUDA {speaks}" if speaks else "the driver is older") in found.because


def test_an_architecture_that_was_dropped_is_not_called_too_new() -> None:
    old = told("nvcc fatal   : Unsupported gpu architecture 'compute_20'\n")
    new = told("nvcc fatal   : Unsupported gpu architecture 'compute_121'\n")
    assert "dropped" in old.because and "older" in new.because


def test_the_gpu_that_is_listed_cannot_be_missing_from_the_machine() -> None:
    seen = told(SMI + LAZY + "RuntimeError: No CUDA GPUs are available\n")
    assert seen.category == "cuda-init-no-device"
    assert seen.cause == "launch-config"


def test_a_device_asked_for_where_there_is_no_cuda() -> None:
    asked = "ValueError: Invalid CUDA 'device=0' requested. Use 'device=cpu' or pass valid CUDA device(s)\n"
    none = told(TB + asked + "torch.cuda.is_available(): False\n")
    assert (none.category, none.cause) == ("cuda-init-no-device", "no-gpu-or-driver")
    cpu = told("Ultralytics YOLO Python-3.11 torch-2.6.0+cpu CPU\n" + TB + asked + "torch.cuda.is_available(): False\n")
    assert (cpu.category, cpu.cause) == ("torch-not-compiled-with-cuda", "wrong-build-installed")
    some = told(TB + asked + "torch.cuda.is_available(): True\ntorch.cuda.device_count(): 1\n")
    assert some.category == "invalid-device-ordinal"


def test_a_ray_worker_without_a_gpu_was_launched_so() -> None:
    ray = told("(Trainer pid=123) RuntimeError: No CUDA GPUs are available\n")
    assert (ray.category, ray.cause) == ("cuda-init-no-device", "launch-config")
    plain = told("RuntimeError: No CUDA GPUs are available\n")
    assert plain.cause == "no-gpu-or-driver"


def test_headers_that_torch_no_longer_has_tell_of_older_sources() -> None:
    old = told("csrc/ball_query.cpp:2:10: fatal error: THC/THC.h: No such file or directory\n")
    assert (old.category, old.cause) == ("undefined-symbol-abi-mismatch", "version-mismatch")
    other = told("csrc/ball_query.cpp:2:10: fatal error: boost/any.hpp: No such file or directory\n")
    assert other.category == "not-gpu-env"
