"""Real stacks to break: virtual environments of four torch releases, copies of them made of links, and single wheels.

A stack is made once and never changed.  What breaks one works on a copy whose files are hard links, and takes a file
away before it puts another in its place, so that a copy of 5 GB costs a fifth of a second and no disk.
"""

from __future__ import annotations

import base64
import csv
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from envkit import facts
from envkit.system import proc
from envkit.versions import Python

RELEASES = {"t24": "2.4.0", "t26": "2.6.0", "t211": "2.11.0", "t215": "2.15.0"}
HERE = Path(__file__).parent
NVCC = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
)
KERNEL = """
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
extern "C" int run(float *x) { twice<<<1, 32>>>(x); return (int)cudaGetLastError(); }
"""


def cache() -> Path:
    """Where stacks and wheels are kept from one run to the next."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envkit-faults"


@contextmanager
def made_once(folder: Path) -> Iterator[bool]:
    """Whether ``folder`` is still to be made; while the caller makes it every other process waits."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(folder.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = folder.with_name(folder.name + ".ready")
        if ready.exists() and folder.exists():
            yield False
            return
        shutil.rmtree(folder, ignore_errors=True)
        yield True
        ready.touch()


def run(*argv: object, timeout_s: float = 3600.0, env: Mapping[str, str] = os.environ) -> str:
    """The stdout of a program that ends well; raises AssertionError with its last words otherwise."""
    done = proc.run([str(word) for word in argv], timeout_s=timeout_s, env=dict(env))
    assert done.exit == 0, f"{done.argv} ended with {done.exit}: {(done.stderr or done.stdout)[-2000:]}"
    return done.stdout


def by_uv(*words: object) -> None:
    """Runs uv with a cache beside the stacks: their files are links into it, so room comes back only where both go."""
    env = {**os.environ, "UV_CACHE_DIR": str(cache() / "uv")}
    run(proc.uv_path(), *words, env=env)


def link_tree(source: Path, target: Path) -> None:
    """``target`` becomes a copy of ``source`` made of hard links, or of real copies where a disk ends between them."""
    target.parent.mkdir(parents=True, exist_ok=True)
    same_disk = source.stat().st_dev == target.parent.stat().st_dev
    run("cp", "-al" if same_disk else "-a", source, target)


@dataclass(frozen=True)
class Stack:
    """A virtual environment."""

    root: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return next(self.root.glob("lib/python3.*/site-packages"))

    def put(self, name: str, source: Path) -> Path:
        """The file ``name`` below site-packages becomes a link to the content of ``source``."""
        target = self.site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        source = source.resolve()
        if source.stat().st_dev == target.parent.stat().st_dev:
            os.link(source, target)
        else:
            shutil.copy2(source, target)
        return target

    def write(self, name: str, content: str | bytes) -> Path:
        """The file ``name`` below site-packages becomes one that holds ``content``."""
        target = self.site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def early(self, *libraries: Path) -> None:
        """Every start of the interpreter opens ``libraries`` first, as the import of another framework does."""
        calls = "; ".join(f"ctypes.CDLL({str(path)!r})" for path in libraries)
        self.write("early.pth", f"import ctypes; {calls}\n")

    def record(self, distribution: str) -> list[str]:
        """The files that the RECORD of ``distribution`` ("nvidia-nccl-cu12") lists and that are there."""
        (info,) = self.site.glob(f"{distribution.replace('-', '_')}-[0-9]*.dist-info")
        with open(info / "RECORD", newline="", encoding="utf-8") as file:
            return [row[0] for row in csv.reader(file) if row and (self.site / row[0]).exists()]

    def drop(self, distribution: str) -> None:
        """Uninstalls ``distribution``."""
        for name in self.record(distribution):
            (self.site / name).unlink()

    def lay(self, other: Stack, distribution: str) -> None:
        """Installs the distribution of ``other`` over whatever is here, as pip does without asking."""
        for name in other.record(distribution):
            self.put(name, other.site / name)

    def package(self, name: str, version: str, *files: str) -> None:
        """A distribution of this name whose RECORD lists ``files``, which lie below site-packages already."""
        info = f"{name}-{version}.dist-info"
        self.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = []
        for file in (*files, f"{info}/METADATA"):
            data = (self.site / file).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{file},sha256={digest},{len(data)}\n")
        self.write(f"{info}/RECORD", "".join(lines) + f"{info}/RECORD,,\n")

    def swap(self, distribution: str, other: Stack, instead: str = "") -> None:
        """Uninstalls ``distribution`` and installs ``instead``, by default the same name, from ``other``."""
        self.drop(distribution)
        self.lay(other, instead or distribution)


@dataclass(frozen=True)
class Target(Stack):
    """A folder that one wheel was installed into and that is no environment."""

    @property
    def site(self) -> Path:
        """The folder itself."""
        return self.root


UNUSED = "/tests/|/torch/testing/_internal/"  # what no user's process imports, a third of all code


def pristine(name: str) -> Stack:
    """The stack ``name``, made at its first use: from the folder ENVKIT_FAULT_STACKS, else by uv from the index."""
    python = Python(f"{sys.version_info.major}.{sys.version_info.minor}")
    if not any(row.default and row.runs_on_python(python) for row in facts.load().torch(RELEASES[name])):
        pytest.skip(f"torch {RELEASES[name]} has no wheel for Python {python}")
    ready = os.environ.get("ENVKIT_FAULT_STACKS", "")
    folder = cache() / ("given" if ready else "stacks") / name
    with made_once(folder) as wanted:
        if wanted and ready:
            link_tree(Path(ready, name).resolve(), folder)
        elif wanted:
            by_uv("venv", "--quiet", "--no-python-downloads", "--python", sys.executable, folder)
            pins = [f"torch=={RELEASES[name]}", "numpy"]
            by_uv("pip", "install", "--quiet", "--python", folder / "bin" / "python", *pins)
        if wanted:  # each copy imports torch a few times; without byte code each of them takes a second longer
            stack = Stack(folder)
            words = ["-m", "compileall", "-q", "-j2", "-x", UNUSED, str(stack.site)]
            done = proc.run([str(stack.python), *words], timeout_s=3600)
            assert done.exit in (0, 1), done.stderr  # 1: a package brings a template that is no Python
    return Stack(folder)


# A kernel that is short of memory, or saves it, first takes back pages that no process maps.  Between two tests of a
# stack that is all of torch, close to a gigabyte, which the next test would read from the disk again.
HOLDS = "import sys, torch; sys.stdin.read()"


def in_order() -> list[str]:
    """The stacks in the order in which they are made: first the one for which most tests wait."""
    return sorted(RELEASES, key=lambda name: name != "t26")


def first() -> Stack:
    """The first stack that this Python can have."""
    return next(stack for stack in map(_made, in_order()) if stack is not None)


def make_and_hold() -> None:
    """Makes every stack, two at a time, then keeps torch of each mapped until this process is ended.

    One is loaded and unpacked while the other's byte code is made.
    """
    order = in_order()
    made, hold = ThreadPoolExecutor(2), ThreadPoolExecutor(len(order))
    for each in [hold.submit(_hold, making) for making in [made.submit(_made, name) for name in order]]:
        each.result()


def _made(name: str) -> Stack | None:
    with suppress(pytest.skip.Exception):  # who asks for it skips as well
        return pristine(name)
    return None


def _hold(making: Future[Stack | None]) -> None:
    stack = making.result()
    if stack is not None:
        proc.run([str(stack.python), "-c", HOLDS], timeout_s=3600.0, hold_stdin=True)


def wheel(*pins: str) -> Target:
    """Wheels ("nvidia-nccl-cu12==2.20.5") in a folder of their own, which all share who ask for the same: read only."""
    folder = cache() / "wheels" / "+".join(pins)
    with made_once(folder) as wanted:
        if wanted:
            by_uv("pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target", folder, *pins)
    return Target(folder)


@dataclass(frozen=True)
class Bench:
    """What one recipe works with; ``folder`` is its own and goes with it."""

    folder: Path

    def stack(self, name: str) -> Stack:
        """A copy of the stack ``name`` that may be broken."""
        target = self.folder / name
        link_tree(pristine(name).root, target)
        return Stack(target)

    def write(self, name: str, content: str, mode: int = 0o644) -> Path:
        """A file of this recipe."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        path.chmod(mode)
        return path

    def library(self, name: str, source: str | Path, *flags: str) -> Path:
        """A shared library compiled from C, whose SONAME is its file name."""
        code = source if isinstance(source, Path) else self.write(f"{Path(name).name}.c", source)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        soname = f"-Wl,-soname,{path.name}"
        run(os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", path, code, soname, *flags, "-ldl")
        return path

    def extension(self, stack: Stack, code: str, cudart: str) -> str:
        """A CUDA extension that links torch, by nvcc 13.0, put into ``stack`` as a package of its own; its name.

        ``code`` is "code=sm_80" or "code=[compute_80,sm_80]"; ``cudart`` is "static" or "shared".
        """
        tools = wheel(*NVCC).site / "nvidia" / "cu13"
        source = self.write("fault.cu", KERNEL)
        made = self.folder / "fault.so"
        words: list[object] = [tools / "bin/nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", made, source]
        words += [
            "-gencode",
            f"arch=compute_{code.rstrip(']')[-2:]},{code}",
            f"-L{tools}/lib",
            f"-L{stack.site}/torch/lib",
        ]
        words += ["-Xlinker", "--no-as-needed", "-l:libc10.so"]
        words += ["-cudart", "static"] if cudart == "static" else ["-cudart", "none", "-l:libcudart.so.13"]
        run(*words)
        stack.put("envkit_fault/fault.so", made)
        stack.package("envkit_fault", "1", "envkit_fault/fault.so")
        return "envkit_fault/fault.so"

    def driver(self, folder: str = "driver", release: str = "580.65.06") -> Path:
        """The folder of a stand-in driver, steered by the environment as libcuda.c says: libcuda.so.1 and NVML.

        Both are links to files named by the ``release``, as the driver's own installer makes them.
        """
        for name in ("libcuda.so", "libnvidia-ml.so"):
            path = self.library(f"{folder}/{name}.1", HERE / "libcuda.c")
            path.rename(path.with_name(f"{name}.{release}"))
            path.symlink_to(f"{name}.{release}")
        return self.folder / folder


LEFT_S = 3600.0


@contextmanager
def bench() -> Iterator[Bench]:
    """A bench on the disk of the stacks."""
    works = cache() / "work"
    works.mkdir(parents=True, exist_ok=True)
    for old in works.iterdir():  # what a run left that was killed
        if time.time() - old.stat().st_mtime > LEFT_S:
            shutil.rmtree(old, ignore_errors=True)
    folder = works / uuid.uuid4().hex[:12]
    folder.mkdir()
    try:
        yield Bench(folder)
    finally:
        shutil.rmtree(folder)


# What steers a linker or a framework; none of it reaches a run from outside.
STEERING = (
    *("LD_", "CUDA", "NVIDIA_", "NCCL_", "TORCH", "PYTORCH_", "TRITON_", "CUDNN_", "AOTI_", "PYTHON", "OMP_", "KMP_"),
    *("CC", "CXX", "PATH", "RANK", "LOCAL_RANK", "WORLD_SIZE"),
)
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def hiding() -> str:
    """The shell commands that hide this machine's own CUDA toolkits, which are no part of a stack; often none."""
    own = [path for path in Path("/usr/local").glob("cuda*") if path.is_dir() and not path.is_symlink()]
    return "\n".join(f"mount -t tmpfs none {path}" for path in own)


def envkit(words: list[str], environment: dict[str, str], setup: str) -> subprocess.CompletedProcess[str]:
    """A run of the real command line, with nothing from outside that steers a linker or a framework.

    ``setup`` is run before it by a shell in a mount namespace of its own, which needs root or a user namespace.
    """
    bare = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    steered = {"PATH": PATH, **environment}
    argv = [sys.executable, "-m", "envkit", *words]
    before = "\n".join(filter(None, (hiding(), setup)))
    if before:
        alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        given = [f"{name}={value}" for name, value in steered.items()]  # not for the shell itself
        argv = [*alone, "sh", "-euc", f'{before}\nexec "$@"', "sh", "env", *given, *argv]
        steered = {"PATH": PATH}
    return subprocess.run(
        argv,
        cwd=HERE.parents[1],
        env={**bare, **steered},
        capture_output=True,
        text=True,
        timeout=1800,  # a busy machine takes its time
        check=False,
        stdin=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--first"]:
        print(first().python)
    else:
        make_and_hold()
