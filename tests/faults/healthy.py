"""Healthy environments that look odd: each is one that people run on purpose, and none may have a finding above a note.

ENVIRONMENTS are Pythons and folders of this machine, most of them copies of the stack ``t26`` made of links; IMAGES are
Dockerfiles behind a FROM of Debian with its python3, for what only a container can be: its user, its entry point.
Where the real package is too large, a small one stands in, and its words say so.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fault import Case, auditing, probing
from stacks import Bench, Stack, link_tree, pristine, run, wheel

CUDA = ("cuda_runtime", "cublas", "cufft", "curand", "cusolver", "cusparse", "nvjitlink", "cuda_nvrtc", "nvtx")


@dataclass(frozen=True)
class Environment:
    """A healthy environment, and the run that must find nothing; ``nightly`` keeps it out of the daily run."""

    name: str
    make: Callable[[Bench], Case]
    nightly: bool = True


@dataclass(frozen=True)
class HealthyImage:
    """A healthy image: ``text`` stands behind FROM.  ``open`` marks one whose start a probe cannot go through."""

    name: str
    text: str
    nightly: bool = True
    open: bool = False


def _with(**env: str) -> Callable[[Bench], Case]:
    """The unbroken stack with these variables."""
    return lambda bench: probing(pristine("t26"), env=env)


def _bare(python: Path | str, **env: str) -> Case:
    """A probe of a Python without torch."""
    return Case(("probe", "--python", str(python), "--gpus", "none", "--framework", "none"), env)


def _venv(bench: Bench, name: str = "venv", *words: str) -> Stack:
    """A new virtual environment with nothing in it."""
    run(sys.executable, "-m", "venv", "--without-pip", *words, bench.folder / name)
    return Stack(bench.folder / name)


def _with_wheels(bench: Bench, *pins: str) -> Stack:
    stack = bench.stack("t26")
    for pin in pins:
        stack.lay(wheel(pin), pin.partition("==")[0])
    return stack


# ---------------------------------------------------------------- where an environment lies


def _linked(bench: Bench) -> Case:
    link = bench.folder / "current"
    link.symlink_to(pristine("t26").root)
    return probing(Stack(link))


def _moved(bench: Bench) -> Case:
    stack = bench.stack("t26")
    target = bench.folder / "srv" / "env"
    target.parent.mkdir()
    stack.root.rename(target)
    return probing(Stack(target))


def _user_site(bench: Bench) -> Case:
    stack = pristine("t26")
    folder = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link_tree(stack.site, bench.folder / "home" / ".local" / "lib" / folder / "site-packages")
    words = ("probe", "--python", str(stack.python.resolve()), "--gpus", "none")
    return Case(words, {"HOME": str(bench.folder / "home")})


def _two_layers(bench: Bench) -> Case:
    upper = _venv(bench)
    upper.write("base.pth", f"{pristine('t26').site}\n")
    return probing(upper)


def _beside_another(bench: Bench) -> Case:
    other = _venv(bench, "other")
    other.write("torch/__init__.py", "raise ImportError('nobody imports this one')\n")
    other.package("torch", "2.4.0", "torch/__init__.py")
    return probing(pristine("t26"), env={"PATH": f"{other.root}/bin:/usr/bin:/bin"})


def _read_only(bench: Bench) -> Case:
    root = pristine("t26").root
    return probing(pristine("t26"), setup=f"mount --bind {root} {root}\nmount -o remount,ro,bind {root}")


def _conda(bench: Bench) -> Case:
    stack = bench.stack("t26")
    (stack.root / "conda-meta").mkdir()
    (stack.root / "conda-meta" / "history").write_text("==> 2026-01-01 00:00:00 <==\n# cmd: conda create -n train\n")
    (stack.root / "etc" / "conda" / "activate.d").mkdir(parents=True)
    env = {
        "CONDA_PREFIX": str(stack.root),
        "CONDA_DEFAULT_ENV": "train",
        "CONDA_SHLVL": "1",
        "CONDA_EXE": "/c/bin/conda",
    }
    return probing(stack, env={**env, "PATH": f"{stack.root}/bin:/usr/bin:/bin"})


# ---------------------------------------------------------------- what Python runs and where it looks


def _project(bench: Bench) -> Case:
    for name in ("train.py", "utils.py", "config.py", "data/__init__.py", "models/__init__.py", "tests/test_train.py"):
        bench.write(f"project/{name}", "x = 1\n")
    return probing(pristine("t26"), env={"PYTHONPATH": str(bench.folder / "project")})


def _gone_from_path(bench: Bench) -> Case:
    return probing(pristine("t26"), env={"PYTHONPATH": f"{bench.folder}/src:{bench.folder}/vendor"})


def _editable(bench: Bench) -> Case:
    stack = bench.stack("t26")
    source = bench.write("src/trainer/__init__.py", "").parent
    stack.write(
        "__editable___trainer_1_0_finder.py",
        "import sys\nfrom importlib.util import spec_from_file_location\n\n\nclass Finder:\n"
        "    @classmethod\n    def find_spec(cls, name, path=None, target=None):\n"
        "        if name == 'trainer':\n"
        f"            return spec_from_file_location(name, {str(source / '__init__.py')!r})\n\n\n"
        "def install():\n    sys.meta_path.append(Finder)\n",
    )
    finder = "__editable___trainer_1_0_finder"
    stack.write("__editable__.trainer-1.0.pth", f"import {finder}; {finder}.install()\n")
    stack.package("trainer", "1.0", "__editable__.trainer-1.0.pth", f"{finder}.py")
    return probing(stack)


def _namespace(bench: Bench) -> Case:
    stack = bench.stack("t26")
    for part in ("one", "two"):
        stack.write(f"company/{part}/__init__.py", "")
        stack.package(f"company_{part}", "1", f"company/{part}/__init__.py")
    bench.write("more/company/three/__init__.py", "")
    return probing(stack, env={"PYTHONPATH": str(bench.folder / "more")})


def _coverage(bench: Bench) -> Case:
    stack = bench.stack("t26")
    stack.write("coverage.py", "def process_startup():\n    pass\n")
    stack.write(
        "a1_coverage.pth",
        "import sys; exec('try: import coverage; coverage.process_startup()\\nexcept ImportError: pass')\n",
    )
    return probing(stack, env={"COVERAGE_PROCESS_START": "pyproject.toml"})


def _debugpy(bench: Bench) -> Case:
    bench.write("attach/sitecustomize.py", "import os\nif os.environ.get('DEBUGPY_PORT'):\n    import debugpy\n")
    return probing(pristine("t26"), env={"PYTHONPATH": str(bench.folder / "attach")})


def _zip(bench: Bench) -> Case:
    with zipfile.ZipFile(bench.folder / "app.zip", "w") as archive:
        archive.writestr("app/__init__.py", "")
    return probing(pristine("t26"), env={"PYTHONPATH": str(bench.folder / "app.zip")})


def _usercustomize(bench: Bench) -> Case:
    folder = f"python{sys.version_info.major}.{sys.version_info.minor}"
    bench.write(f"home/.local/lib/{folder}/site-packages/usercustomize.py", "import sys\nsys.ps1 = '> '\n")
    return _bare(pristine("t26").python.resolve(), HOME=str(bench.folder / "home"))


# ---------------------------------------------------------------- the linker


def _own_folders(bench: Bench) -> Case:
    folders = sorted({str(path.parent) for path in pristine("t26").site.glob("nvidia/*/lib/*.so*")})
    return probing(pristine("t26"), env={"LD_LIBRARY_PATH": ":".join(folders)})


def _toolkit_of_the_same_release(bench: Bench) -> Case:
    folder = bench.folder / "cuda-12.4" / "lib64"
    folder.mkdir(parents=True)
    for part in CUDA:
        for path in (pristine("t26").site / "nvidia" / part / "lib").glob("*.so*"):
            run("cp", path, folder)
    return probing(pristine("t26"), env={"LD_LIBRARY_PATH": str(folder)})


def _allocator(name: str, **env: str) -> Callable[[Bench], Case]:
    """An allocator of this name is preloaded; a stand-in that allocates nothing."""

    def make(bench: Bench) -> Case:
        return probing(
            pristine("t26"), env={"LD_PRELOAD": str(bench.library(name, "int mallctl(void) { return 0; }\n")), **env}
        )

    return make


# ---------------------------------------------------------------- packages beside torch


def _audio(bench: Bench) -> Stack:
    return _with_wheels(bench, "torchaudio==2.6.0")


def _bitsandbytes(bench: Bench) -> Stack:
    return _with_wheels(bench, "bitsandbytes==0.45.3")


def _vision(bench: Bench) -> Stack:
    return _with_wheels(bench, "torchvision==0.21.0", "pillow==11.0.0")


def _cpu_torch(bench: Bench) -> Case:
    """A torch for the CPU from its own index; a stand-in with its version file alone."""
    stack = _venv(bench)
    stack.write(
        "torch/version.py", "__version__ = '2.6.0+cpu'\ndebug = False\ncuda = None\ngit_version = 'x'\nhip = None\n"
    )
    stack.write("torch/__init__.py", "from torch.version import __version__\n")
    stack.put("torch/lib/libc10.so", bench.library("libc10.so", "int c10(void) { return 0; }\n"))
    stack.package("torch", "2.6.0+cpu", "torch/__init__.py", "torch/version.py", "torch/lib/libc10.so")
    return auditing(stack.root)


def _jax(bench: Bench) -> Case:
    """JAX with its plugin for CUDA 12; stand-ins of the wheels with their names and versions."""
    stack = _venv(bench)
    for name in ("jax", "jaxlib", "jax_cuda12_plugin", "jax_cuda12_pjrt"):
        stack.write(f"{name}/__init__.py", "__version__ = '0.4.38'\n")
        stack.put(f"{name}/made.so", bench.library(f"{name}.so", "int made(void) { return 0; }\n"))
        stack.package(name, "0.4.38", f"{name}/__init__.py", f"{name}/made.so")
    return auditing(stack.root, more=("--framework", "jax"))


def _ngc(bench: Bench) -> Case:
    """torch in dist-packages without NVIDIA's wheels, which its METADATA does not ask for; a toolkit in /usr/local/cuda
    with the libraries of those wheels, cuDNN and NCCL in the distribution's folder."""
    root, name = bench.folder / "root", f"python{sys.version_info.major}.{sys.version_info.minor}"
    lib, system = root / "usr/local/cuda-12.4/targets/x86_64-linux/lib", root / "usr/lib/x86_64-linux-gnu"
    for folder in (lib, system, root / "usr/bin", root / "etc", root / "opt/nvidia/nsight-compute/2024.1"):
        folder.mkdir(parents=True)
    (root / "usr/local/cuda").symlink_to("cuda-12.4")
    (root / "usr/local/cuda-12.4/lib64").symlink_to("targets/x86_64-linux/lib")
    site = root / "usr/local/lib" / name / "dist-packages"
    link_tree(pristine("t26").site, site)
    for folder in sorted((site / "nvidia").glob("*/lib")):
        target = lib if folder.parent.name in CUDA else system
        for path in folder.glob("*.so*"):
            path.rename(target / path.name)
    for path in (*site.glob("nvidia_*"), site / "nvidia", site / "cusparselt"):
        shutil.rmtree(path, ignore_errors=True)
    (metadata,) = site.glob("torch-*.dist-info/METADATA")
    lines = [line for line in metadata.read_text().splitlines() if not line.startswith("Requires-Dist: nvidia-")]
    metadata.unlink()
    metadata.write_text("\n".join(lines))
    record = metadata.with_name("RECORD")
    rows = [row for row in record.read_text().splitlines() if "/METADATA," not in row]
    record.unlink()
    record.write_text("\n".join(rows) + "\n")
    run("cp", pristine("t26").python.resolve(), root / "usr/bin" / name)
    (root / "usr/bin/python3").symlink_to(name)
    (root / "etc/ld.so.conf").write_text("/usr/local/cuda/targets/x86_64-linux/lib\n")
    return auditing(root)


def _merged(bench: Bench) -> Case:
    stack = bench.stack("t26")
    for name in ("lib64", "usr"):
        if (stack.root / name).is_symlink():
            (stack.root / name).unlink()
    root = bench.folder / "root"
    for folder in ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/bin", "usr/sbin", "opt"):
        (root / folder).mkdir(parents=True)
    for name in ("lib", "lib64", "bin", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    stack.root.rename(root / "opt/venv")
    return auditing(root)


def _pipx(bench: Bench) -> Case:
    tool = _venv(bench, "pipx/venvs/httpie")
    tool.write("torch.py", "raise ImportError\n")  # inside of a tool's own environment nobody's business
    bench.write("bin/http", f"#!{tool.python}\nprint()\n", 0o755)
    return probing(
        pristine("t26"), env={"PATH": f"{bench.folder}/bin:/usr/bin:/bin", "PIPX_HOME": f"{bench.folder}/pipx"}
    )


def _caches(bench: Bench) -> Case:
    names = {"HF_HOME": "hf", "HF_DATASETS_CACHE": "hf/datasets", "TORCH_HOME": "torch", "TRITON_CACHE_DIR": "triton",
             "TORCHINDUCTOR_CACHE_DIR": "inductor", "XDG_CACHE_HOME": "cache", "TMPDIR": "tmp"}  # fmt: skip
    for folder in names.values():
        (bench.folder / folder).mkdir(parents=True, exist_ok=True)
    return probing(pristine("t26"), env={name: str(bench.folder / folder) for name, folder in names.items()})


THREADS: Mapping[str, str] = {
    "OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4", "OMP_PROC_BIND": "close", "OMP_PLACES": "cores",
    "KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1", "GOMP_CPU_AFFINITY": "0-1",
}  # fmt: skip
USUAL: Mapping[str, str] = {
    "CUDA_MODULE_LOADING": "LAZY", "NCCL_DEBUG": "WARN", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
}  # fmt: skip
NVIDIA = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"

ENVIRONMENTS = (
    Environment("a link leads to the environment", _linked, nightly=False),
    Environment("an environment that was moved", _moved),
    Environment("torch in the user's site-packages", _user_site, nightly=False),
    Environment("an environment on top of another one, by a .pth file", _two_layers),
    Environment("another environment with another torch is first on PATH", _beside_another),
    Environment("site-packages are read-only", _read_only),
    Environment("an environment in conda's layout, activated", _conda),
    Environment("a project's folder on PYTHONPATH", _project, nightly=False),
    Environment("PYTHONPATH names folders that do not exist", _gone_from_path),
    Environment("an editable install with a finder", _editable),
    Environment("a namespace package in three places", _namespace),
    Environment("coverage starts from a .pth file (a stand-in)", _coverage),
    Environment("a sitecustomize that attaches a debugger when asked", _debugpy),
    Environment("a zip archive on PYTHONPATH", _zip),
    Environment("a usercustomize that changes the prompt", _usercustomize),
    Environment("LD_LIBRARY_PATH names the folders of torch's own wheels", _own_folders, nightly=False),
    Environment("LD_LIBRARY_PATH names a toolkit of the same release", _toolkit_of_the_same_release),
    Environment("LD_LIBRARY_PATH as NVIDIA's images set it, without the folders", _with(LD_LIBRARY_PATH=NVIDIA)),
    Environment("jemalloc is preloaded (a stand-in)", _allocator("libjemalloc.so.2", MALLOC_CONF="narenas:2")),
    Environment("tcmalloc is preloaded (a stand-in)", _allocator("libtcmalloc_minimal.so.4")),
    Environment("threads and their places are set", _with(**THREADS)),
    Environment("the usual variables of a training job", _with(**USUAL), nightly=False),
    Environment("caches of Hugging Face, Triton and Inductor on another disk", _caches),
    Environment("torchaudio without FFmpeg", lambda bench: probing(_audio(bench))),
    Environment("torchaudio without FFmpeg, its files", lambda bench: auditing(_audio(bench).root), nightly=False),
    Environment("bitsandbytes without a GPU", lambda bench: probing(_bitsandbytes(bench)), nightly=False),
    Environment("bitsandbytes, its files", lambda bench: auditing(_bitsandbytes(bench).root)),
    Environment("torchvision that fits, its files", lambda bench: auditing(_vision(bench).root)),
    Environment("a torch for the CPU on purpose (a stand-in)", _cpu_torch),
    Environment("JAX with its plugin for CUDA (stand-ins)", _jax),
    Environment("the layout of NGC's images (a stand-in of the toolkit)", _ngc),
    Environment("a system with one /usr", _merged),
    Environment("tools in environments of pipx", _pipx),
)


def _script(path: str, *lines: str) -> str:
    return f"COPY --chmod=755 <<'E' {path}\n" + "\n".join(lines) + "\nE\n"


ENTRY = _script("/entry.sh", "#!/bin/sh", "set -e", 'exec "$@"')
INIT = ("#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done', 'exec "$@"')
VENV = "RUN python3 -m venv --without-pip /opt/venv\n"
CONDA = (
    "RUN python3 -m venv --without-pip /opt/conda/envs/train && mkdir -p /opt/conda/etc/profile.d\n"
    + _script(
        "/opt/conda/etc/profile.d/conda.sh",
        "conda() { [ \"$1\" = activate ] && export CONDA_PREFIX=/opt/conda/envs/$2 CONDA_DEFAULT_ENV=$2 "
        "PATH=/opt/conda/envs/$2/bin:$PATH; }",
    )
)  # fmt: skip
TRAIN = "WORKDIR /app\nRUN echo 'print(1)' > train.py\n"
JOB = 'CMD ["python", "train.py"]\n'
JOB3 = 'CMD ["python3", "train.py"]\n'

IMAGES = (
    HealthyImage("an image that starts nothing", ""),
    HealthyImage("the exec form in a working folder", TRAIN + JOB3),
    HealthyImage("the shell form, with several commands", TRAIN + "CMD cd /app && python3 train.py && echo done\n"),
    HealthyImage("an entry point that becomes its command", TRAIN + ENTRY + 'ENTRYPOINT ["/entry.sh"]\n' + JOB3, False),
    HealthyImage(
        "an entry point that activates a virtual environment",
        TRAIN + VENV + _script("/entry.sh", "#!/bin/bash", "set -euo pipefail", ". /opt/venv/bin/activate", 'exec "$@"')
        + 'ENTRYPOINT ["/entry.sh"]\n' + JOB, False,
    ),
    HealthyImage(
        "an entry point that activates an environment of conda",
        TRAIN + CONDA + _script("/entry.sh", "#!/bin/bash", "set -e", "source /opt/conda/etc/profile.d/conda.sh",
                                "conda activate train", 'exec "$@"') + 'ENTRYPOINT ["/entry.sh"]\n' + JOB, False,
    ),
    HealthyImage(
        "tini in front of an entry point (a stand-in)",
        TRAIN + _script("/usr/bin/tini", *INIT) + ENTRY + 'ENTRYPOINT ["tini", "-g", "--", "/entry.sh"]\n' + JOB3,
    ),
    HealthyImage(
        "dumb-init (a stand-in)",
        TRAIN + _script("/usr/bin/dumb-init", *INIT) + 'ENTRYPOINT ["dumb-init", "--"]\n' + JOB3,
    ),
    HealthyImage(
        "gosu gives the job to another user (a stand-in)",
        TRAIN + "RUN useradd -m app\n" + _script("/usr/bin/gosu", "#!/bin/sh", "u=$1; shift",
                                                  'exec setpriv --reuid="$u" --regid="$u" --init-groups "$@"')
        + 'ENTRYPOINT ["gosu", "app"]\n' + JOB3, open=True,
    ),
    HealthyImage("a user with a name", TRAIN + "RUN useradd -m app\nUSER app\n" + JOB3, False),
    HealthyImage("a user without a name and a home", TRAIN + "ENV HOME=/tmp USER=app\nUSER 12345:0\n" + JOB3),
    HealthyImage("a login shell whose profile changes nothing", TRAIN + 'CMD ["bash", "-lc", "python3 train.py"]\n'),
    HealthyImage(
        "a shell whose login puts an environment first",
        TRAIN + VENV + "RUN echo 'PATH=/opt/venv/bin:$PATH' > /etc/profile.d/venv.sh\n"
        + 'CMD ["bash", "-lc", "python train.py"]\n',
    ),
    HealthyImage(
        "an entry point that runs the scripts of a folder first",
        TRAIN + _script("/docker-entrypoint.d/10.sh", "#!/bin/sh", "true")
        + _script("/entry.sh", "#!/bin/sh", "set -e", 'for f in /docker-entrypoint.d/*.sh; do "$f"; done', 'exec "$@"')
        + 'ENTRYPOINT ["/entry.sh"]\n' + JOB3,
    ),
    HealthyImage(
        "an entry point that starts a shell where it is given nothing",
        TRAIN + _script("/entry.sh", "#!/bin/bash", "if [ $# -gt 0 ]", "then", 'exec "$@"', "else", "exec bash", "fi")
        + 'ENTRYPOINT ["/entry.sh"]\n',
    ),
    HealthyImage("sh -c with its words", TRAIN + 'ENTRYPOINT ["/bin/sh", "-c", "exec \\"$@\\"", "sh"]\n' + JOB3),
    HealthyImage(
        "a job's script with a log", TRAIN + _script("/run.sh", "#!/bin/bash", "set -euo pipefail", "ulimit -c 0",
                                                      "cd /app", "python3 -u train.py 2>&1 | cat")
        + 'CMD ["/run.sh"]\n',
    ),
    HealthyImage(
        "a program that pip installed into an environment on PATH",
        TRAIN + VENV + "ENV PATH=/opt/venv/bin:$PATH\n"
        + _script("/opt/venv/bin/serve", "#!/opt/venv/bin/python", "print()") + 'CMD ["serve"]\n', False,
    ),
    HealthyImage("an environment whose Python is named", TRAIN + VENV + 'CMD ["/opt/venv/bin/python", "train.py"]\n'),
    HealthyImage(
        "two environments, one of them on PATH",
        TRAIN + VENV + "RUN python3 -m venv --without-pip /opt/tools\n"
        + "ENV PATH=/opt/venv/bin:$PATH VIRTUAL_ENV=/opt/venv\n" + JOB,
    ),
    HealthyImage(
        "packages of the distribution beside an environment",
        TRAIN + VENV
        + "RUN d=/usr/lib/python3/dist-packages/yaml && mkdir -p $d && touch $d/__init__.py\n"
        + 'ENTRYPOINT ["/opt/venv/bin/python"]\nCMD ["train.py"]\n',
    ),
    HealthyImage(
        "the variables of NVIDIA's images",
        TRAIN + "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility\n"
        + f"ENV LD_LIBRARY_PATH={NVIDIA} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1\n" + JOB3,
    ),
    HealthyImage("a volume for a cache", TRAIN + "ENV HF_HOME=/cache/hf\nVOLUME /cache\n" + JOB3),
    HealthyImage("a module as the job", TRAIN + "RUN mkdir trainer && touch trainer/__main__.py\n"
                 + 'CMD ["python3", "-m", "trainer"]\n'),
)  # fmt: skip
