"""Faults of what an environment can do: everything maps as it should, and the job fails when it compiles, opens or
writes something.

The first recipe of each check runs with the others, the rest at night.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace

from fault import Case, Fault, probing, sound
from stacks import Bench, Stack, pristine, run, wheel

TITLES = {
    "G01": "a library that torch opens late does not open",
    "G02": "an installed extension does not load",
    "G03": "NumPy is gone, broken or shadowed",
    "G04": "settings that torch's allocator refuses",
    "G05": "NVRTC compiles nothing",
    "G06": "Triton's assembler is gone or does not run",
    "G07": "a host compiler that is there and does not compile",
    "G08": "what torch.compile imports is broken",
    "G09": "a user without a name",
    "G10": "a cache that the user may not write",
    "G11": "torch.compile fails",
    "G12": "Triton makes no machine code",
    "G13": "an extension cannot be built",
    "G14": "a data loader with processes fails",
}
CATALOGUE = {
    "G01": ("image-late-library-does-not-open",),
    "G02": ("image-extension-does-not-load",),
    "G03": ("image-numpy-unusable",),
    "G04": ("image-allocator-settings-refused",),
    "G05": ("image-nvrtc-cannot-compile",),
    "G06": ("image-ptxas-does-not-run",),
    "G07": ("image-host-compiler-does-not-work",),
    "G08": ("image-compile-requirement-broken",),
    "G09": ("image-user-without-name",),
    "G10": ("image-cache-not-writable",),
    "G11": ("image-torch-compile-fails",),
    "G12": ("image-triton-cannot-compile",),
    "G13": ("image-extension-build-fails",),
    "G14": ("image-data-loader-fails",),
}
CUDNN, NVRTC = "nvidia/cudnn/lib", "nvidia/cuda_nvrtc/lib"
LINALG, SHIM = "torch/lib/libtorch_cuda_linalg.so", "torch/lib/libcaffe2_nvrtc.so"
PTXAS = "triton/backends/nvidia/bin/ptxas"
SETTINGS = "PYTORCH_CUDA_ALLOC_CONF"
NAMELESS = dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME"), "")
OVERWRITTEN = frozenset({"image-files-overwritten"})
Scene = Callable[[Bench], Case]


def without(name: str, trace: str = "") -> Scene:
    """A probe of a stack that lacks a file or a folder below site-packages."""

    def made(bench: Bench) -> Case:
        broken = bench.stack("t26")
        path = broken.site / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return probing(broken, trace or path.name)

    return made


def with_file(name: str, content: str | bytes, *traces: str, mode: int = 0o755) -> Scene:
    """A probe of a stack in which one file holds something else."""

    def made(bench: Bench) -> Case:
        broken = bench.stack("t26")
        broken.write(name, content).chmod(mode)
        return probing(broken, *(traces or (name.rpartition("/")[2],)))

    return made


def with_mode(name: str, mode: int) -> Scene:
    """A probe of a stack in which one file has other permissions; a copy, for a link would change the stack too."""

    def made(bench: Bench) -> Case:
        broken = bench.stack("t26")
        broken.write(name, (broken.site / name).read_bytes()).chmod(mode)
        return probing(broken, name.rpartition("/")[2])

    return made


def given(*traces: str, setup: str = "", **env: str) -> Scene:
    """A probe of an unbroken stack with variables and, in a mount namespace of its own, other folders."""
    return lambda bench: probing(pristine("t26"), *traces, env=env, setup=setup)


def at_length(scene: Scene) -> Scene:
    """The same with everything that can be tried."""

    def made(bench: Bench) -> Case:
        case = scene(bench)
        return replace(case, words=(*case.words, "--abilities", "full"))

    return made


# Libraries.


def _lacks_symbol(bench: Bench) -> Case:
    stack = bench.stack("t26")
    code = "extern int nobody_has_this(void); int linalg(void) { return nobody_has_this(); }"
    stack.put(LINALG, bench.library("libtorch_cuda_linalg.so", code))
    return probing(stack, "nobody_has_this")


def _whole_linalg(bench: Bench) -> Case:
    stack = bench.stack("t26")
    stack.put(LINALG, bench.library("libtorch_cuda_linalg.so", "int linalg(void) { return 0; }"))
    return probing(stack)


# Extensions.


def extension(
    name: str = "my_ops.so", needs: str = "", code: str = "", packed: bool = False, torch: bool = False, place: str = ""
) -> Scene:
    """A probe of a stack with a module that links the library ``needs``, which is not there.

    With ``packed`` a RECORD lists it; ``torch`` links torch's own library; ``place`` is a folder on PYTHONPATH.
    """

    def made(bench: Bench) -> Case:
        stack = bench.stack("t26")
        flags = ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
        if needs:
            flags.append(str(bench.library(f"gone/{needs}", "int gone(void) { return 0; }")))
        if torch:
            flags += [f"-L{stack.site}/torch/lib", "-l:libc10.so"]
        stem = name.rpartition("/")[2].partition(".")[0]
        source = f"void *PyInit_{stem}(void) {{ return 0; }}\n{code}"
        made = bench.library(f"made/{name.rpartition('/')[2]}", source, *flags)
        if place:
            (bench.folder / place).mkdir()
            made.rename(bench.folder / place / name)
            return probing(stack, name, env={"PYTHONPATH": str(bench.folder / place)})
        stack.put(name, made)
        if packed:
            stack.package("my_ops", "1", name)
        return probing(stack, name.rpartition("/")[2], needs)

    return made


def _one_of_two(bench: Bench) -> Case:
    """A package with a file for each CUDA, of which one loads."""
    stack = bench.stack("t26")
    for major, there in (("11", False), ("12", True)):
        flags = ["-Wl,--no-as-needed"]
        library = stack.site / "nvidia/cuda_runtime/lib/libcudart.so.12"
        flags.append(str(library if there else bench.library("gone/libcudart.so.11.0", "int gone(void) { return 0; }")))
        source = f"void *PyInit_ops_cu{major}(void) {{ return 0; }}"
        stack.put(f"my_ops/ops_cu{major}.so", bench.library(f"made/ops_cu{major}.so", source, *flags))
    return probing(stack)


# NumPy and other modules.


def on_path(module: str, content: str) -> Scene:
    """A probe of a stack with a module on PYTHONPATH."""

    def made(bench: Bench) -> Case:
        file = bench.write(f"path/{module}.py", content)
        return probing(pristine("t26"), module, env={"PYTHONPATH": str(file.parent)})

    return made


def uninstalled(distribution: str, *folders: str) -> Scene:
    """A probe of a stack without a distribution, its METADATA included."""

    def made(bench: Bench) -> Case:
        stack = bench.stack("t26")
        (info,) = stack.site.glob(f"{distribution}-[0-9]*.dist-info")
        for folder in (info, *(stack.site / one for one in folders)):
            shutil.rmtree(folder)
        return probing(stack, distribution)

    return made


# Tools.


def program(name: str, text: str, mode: int, variable: str) -> Scene:
    """A probe of an unbroken stack with a variable that names a program."""

    def made(bench: Bench) -> Case:
        path = bench.write(name, text, mode)
        return probing(pristine("t26"), str(path), variable, env={variable: str(path)})

    return made


def _own_ptxas_named(bench: Bench) -> Case:
    stack = pristine("t26")
    return probing(stack, env={"TRITON_PTXAS_PATH": str(stack.site / PTXAS)})


def _another_in_its_place(bench: Bench) -> Case:
    """Triton's own assembler is gone, and a variable names a copy of it."""
    stack = bench.stack("t26")
    kept = bench.folder / "ptxas"
    shutil.copy2(stack.site / PTXAS, kept)
    (stack.site / PTXAS).unlink()
    return probing(stack, env={"TRITON_PTXAS_PATH": str(kept)})


def hidden(folder: str) -> str:
    """The shell commands that put an empty folder over one of this machine's."""
    return f"mount -t tmpfs none {folder}"


def _no_headers(bench: Bench) -> Case:
    return probing(pristine("t26"), "stdlib", setup=hidden("/usr/include"))


def _no_python_headers(bench: Bench) -> Case:
    stack = pristine("t26")
    code = "import sysconfig; print(sysconfig.get_paths()['include'])"
    return probing(stack, "Python.h", setup=hidden(run(stack.python, "-c", code).strip()))


def _nameless(bench: Bench) -> Case:
    """A password file that does not list the user of this run."""
    users = bench.write("passwd", "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
    order = bench.write("nsswitch.conf", "passwd: files\n")  # systemd's own module always knows root
    setup = f"mount --bind {users} /etc/passwd\n[ ! -e /etc/nsswitch.conf ] || mount --bind {order} /etc/nsswitch.conf"
    return probing(pristine("t26"), "uid", env=NAMELESS, setup=setup)


def _named_by_a_variable(bench: Bench) -> Case:
    case = _nameless(bench)
    return replace(case, environment={**NAMELESS, "USER": "somebody"})


def _folder_for_the_nameless(bench: Bench) -> Case:
    case = _nameless(bench)
    return replace(case, environment={**NAMELESS, "TORCHINDUCTOR_CACHE_DIR": str(bench.folder / "cache")})


# Caches.


def cache(variable: str, how: str, package: str = "") -> Scene:
    """A probe with a variable that names a folder ("new", "there"), a file or a read-only file system."""

    def made(bench: Bench) -> Case:
        stack = bench.stack("t26") if package else pristine("t26")
        if package:
            stack.write(f"{package}.py", "")
            stack.package(package, "1", f"{package}.py")
        path = bench.folder / "cache"
        if how == "file":
            path.write_text("", encoding="utf-8")
        elif how != "new":
            path.mkdir()
        setup = f"mount -t tmpfs -o ro none {path}" if how == "read-only" else ""
        return probing(stack, str(path), variable, env={variable: str(path)}, setup=setup)

    return made


# What takes long; this triton imports setuptools, which a plain installation of this torch does not bring.


def able(bench: Bench) -> Stack:
    """A stack that can do everything."""
    stack = bench.stack("t26")
    stack.lay(wheel("setuptools==75.8.0"), "setuptools")
    return stack


def able_with(change: Callable[[Stack], object], *traces: str, setup: str = "", **env: str) -> Scene:
    """A probe at full length of such a stack after ``change``."""

    def made(bench: Bench) -> Case:
        stack = able(bench)
        change(stack)
        return probing(stack, *traces, env=env, setup=setup)

    return at_length(made)


def _assembles_nothing(stack: Stack) -> None:
    says = "Cuda compilation tools, release 12.4, V12.4.131"
    text = (
        f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{says}' && exit 0\necho 'ptxas fatal : out of order' >&2; exit 1\n"
    )
    stack.write(PTXAS, text).chmod(0o755)


def _no_header(stack: Stack) -> None:
    (stack.site / "torch/include/pybind11/pybind11.h").unlink()  # which inductor's kernels do not include


SOUND = sound("t26")
ABLE = able_with(lambda stack: None)


def _of(
    probe: str, variant: str, words: str, plant: Scene, twin_words: str, twin: Scene, severity: str = "error",
    also: frozenset[str] = frozenset(), twin_also: frozenset[str] = frozenset(), twin_skips: bool = False,
    nightly: bool = True,
) -> Fault:  # fmt: skip
    return Fault(
        probe, CATALOGUE[probe][0], words, plant, twin_words, twin, severity, also, twin_also, twin_skips,
        nightly=nightly, variant=variant,
    )  # fmt: skip


UNBROKEN = "an unbroken stack"
BUILTINS = f"{NVRTC}/libnvrtc-builtins.so.12.4"
FAULTS = (
    _of("G01", "linalg", "libtorch_cuda_linalg.so is deleted", without(LINALG), UNBROKEN, SOUND,
        also=OVERWRITTEN, nightly=False),
    _of("G01", "cusolver", "libcusolver.so.11, which only torch's linear algebra needs, is deleted",
        without("nvidia/cusolver/lib/libcusolver.so.11"), UNBROKEN, SOUND, also=OVERWRITTEN),
    _of("G01", "cudnn", "one of cuDNN's inner libraries is deleted",
        without(f"{CUDNN}/libcudnn_engines_precompiled.so.9"), UNBROKEN, SOUND,
        also=OVERWRITTEN | {"image-cudnn-incomplete"}),
    _of("G01", "cut", "one of cuDNN's inner libraries was cut short",
        with_file(f"{CUDNN}/libcudnn_cnn.so.9", b"\x7fELF"), UNBROKEN, SOUND, also=OVERWRITTEN),
    _of("G01", "text", "libcaffe2_nvrtc.so is a text", with_file(SHIM, "moved\n"), UNBROKEN, SOUND, also=OVERWRITTEN),
    _of("G01", "symbol", "libtorch_cuda_linalg.so needs a function that nothing has", _lacks_symbol,
        "one that needs nothing", _whole_linalg, also=OVERWRITTEN, twin_also=OVERWRITTEN),
    _of("G01", "program", "torch_shm_manager may not be executed", with_mode("torch/bin/torch_shm_manager", 0o644),
        "it may", with_mode("torch/bin/torch_shm_manager", 0o755), "warning"),
    _of("G02", "cuda11", "an extension for CUDA 11 that no RECORD lists", extension(needs="libcudart.so.11.0"),
        "an extension that needs nothing", extension(), twin_skips=True, nightly=False),
    _of("G02", "packed", "an installed extension for CUDA 11",
        extension("my_ops/ops.so", "libcudart.so.11.0", packed=True, torch=True),
        "a package with one file for each CUDA", _one_of_two, also=frozenset({"image-extension-other-cuda"})),
    _of("G02", "torch", "an extension calls a function that this torch does not have",
        extension(code="extern int torch_of_another_year(void); int f(void) { return torch_of_another_year(); }",
                  torch=True),
        "an extension that links torch and calls nothing", extension(torch=True)),
    _of("G02", "library", "an extension links a library that this torch does not have",
        extension(needs="libtorch_cuda_cu.so", torch=True), "an extension links the driver",
        extension(needs="libcuda.so.1", torch=True), twin_skips=True),
    _of("G02", "path", "an extension on PYTHONPATH calls a function that nothing has",
        extension(code="extern int nobody(void); int f(void) { return nobody(); }", place="job"),
        "an extension on PYTHONPATH that loads", extension(place="job")),
    _of("G02", "dies", "an extension ends its process while it is loaded",
        extension(code="#include <stdlib.h>\n__attribute__((constructor)) static void die(void) { abort(); }",
                  torch=True),
        "an extension that prints a line while it is loaded",
        extension(code="#include <stdio.h>\n__attribute__((constructor)) static void say(void) { puts(\"hello\"); }",
                  torch=True)),
    _of("G03", "gone", "numpy's folder is gone and its METADATA is not", without("numpy"),
        UNBROKEN, SOUND, nightly=False),
    _of("G04", "key", "a key of the allocator's settings is misspelled",
        given("expandable_segment", **{SETTINGS: "expandable_segment:True"}),
        "it is spelled right", given(**{SETTINGS: "expandable_segments:True"}),
        also=frozenset({"image-variable-invalid"}), nightly=False),
    _of("G04", "case", "a boolean in small letters", given("expandable", **{SETTINGS: "expandable_segments:true"}),
        "another backend, which only a GPU can start", given(**{SETTINGS: "backend:cudaMallocAsync"}),
        also=frozenset({"image-variable-invalid"})),
    _of("G04", "range", "a split size that is too small", given("max_split", **{SETTINGS: "max_split_size_mb:8"}),
        "a split size that is large enough", given(**{SETTINGS: "max_split_size_mb:128"}),
        also=frozenset({"image-variable-invalid"})),
    _of("G04", "form", "an equals sign in the place of the colon",
        given("expandable", **{SETTINGS: "expandable_segments=True"}),
        "two settings with a comma",
        given(**{SETTINGS: "expandable_segments:True,garbage_collection_threshold:0.8"}),
        also=frozenset({"image-variable-invalid"})),
    _of("G05", "gone", "NVRTC's builtins are deleted", without(BUILTINS, "BUILTIN"), UNBROKEN, SOUND,
        also=OVERWRITTEN | {"image-late-library-does-not-open", "image-nvrtc-builtins-mismatch"}, nightly=False),
    _of("G05", "cut", "NVRTC's builtins were cut short", with_file(BUILTINS, b"\x7fELF", "builtins"), UNBROKEN, SOUND,
        also=OVERWRITTEN | {"image-late-library-does-not-open"}),
    _of("G06", "gone", "Triton's ptxas is deleted", without(PTXAS), "a variable names another one",
        _another_in_its_place, nightly=False),
    _of("G06", "mode", "Triton's ptxas may not be executed", with_mode(PTXAS, 0o644),
        "it may", with_mode(PTXAS, 0o755)),
    _of("G06", "nowhere", "TRITON_PTXAS_PATH leads nowhere",
        given("/opt/cuda/ptxas", TRITON_PTXAS_PATH="/opt/cuda/ptxas"), "it names Triton's own", _own_ptxas_named,
        "warning", also=frozenset({"image-variable-invalid"})),
    _of("G06", "named", "TRITON_PTXAS_PATH names a program that is none",
        program("ptxas", "#!/bin/sh\necho hello\n", 0o755, "TRITON_PTXAS_PATH"), "it names Triton's own",
        _own_ptxas_named),
    _of("G07", "headers", "a compiler without the C library's headers", _no_headers,
        "a folder without headers is empty", given(setup=hidden("/var/spool")), nightly=False),
    _of("G07", "cc", "CC names a compiler that is not there", given("/opt/gcc/bin/gcc", CC="/opt/gcc/bin/gcc"),
        "CC names the one that is there", given(CC="gcc")),
    _of("G07", "cxx", "CXX names a program that compiles nothing", given("/bin/true", CXX="/bin/true"),
        "CXX names a compiler with an option", given(CXX="g++ -m64")),
    _of("G07", "python", "a compiler without Python's headers", _no_python_headers, UNBROKEN, SOUND, "warning"),
    _of("G08", "sympy", "sympy was uninstalled", uninstalled("sympy", "sympy"), UNBROKEN, SOUND,
        also=frozenset({"image-torch-dependency-missing"}), nightly=False),
    _of("G08", "mpmath", "mpmath, which sympy needs, is gone", without("mpmath"), UNBROKEN, SOUND,
        also=frozenset({"image-torch-dependency-missing"})),
    _of("G08", "jinja2", "markupsafe, which jinja2 needs, is gone", without("markupsafe"), UNBROKEN, SOUND,
        also=frozenset({"image-torch-dependency-missing"})),
    _of("G08", "networkx", "a networkx.py lies on PYTHONPATH and raises", on_path("networkx", "import nothing_such\n"),
        "a helpers.py lies on PYTHONPATH", on_path("helpers", "pi = 3\n"),
        also=frozenset({"image-module-hidden"})),
    _of("G09", "nameless", "the user has no name, and no variable gives one", _nameless, "USER gives one",
        _named_by_a_variable, nightly=False),
    _of("G09", "again", "the user has no name, and a compiler is there", _nameless,
        "TORCHINDUCTOR_CACHE_DIR names the folder", _folder_for_the_nameless),
    _of("G10", "triton", "TRITON_CACHE_DIR lies on a read-only file system", cache("TRITON_CACHE_DIR", "read-only"),
        "it is not there yet", cache("TRITON_CACHE_DIR", "new"), nightly=False),
    _of("G10", "inductor", "TORCHINDUCTOR_CACHE_DIR is a file", cache("TORCHINDUCTOR_CACHE_DIR", "file"),
        "it is a folder", cache("TORCHINDUCTOR_CACHE_DIR", "there"),
        also=frozenset({"image-variable-invalid"})),
    _of("G10", "home", "HOME lies on a read-only file system", cache("HOME", "read-only"),
        "HOME is an empty folder", cache("HOME", "there"), "warning"),
    _of("G10", "hub", "HF_HOME is a file", cache("HF_HOME", "file", "huggingface_hub"),
        "it is a folder", cache("HF_HOME", "there", "huggingface_hub"), "warning",
        also=frozenset({"image-variable-invalid"})),
    _of("G11", "off", "TORCHDYNAMO_DISABLE is set: torch.compile does nothing",
        able_with(lambda stack: None, "eager", TORCHDYNAMO_DISABLE="1"), "a stack that can do everything", ABLE,
        also=frozenset({"image-debug-variables-left-on"})),
    _of("G12", "assembler", "Triton's ptxas says its version and assembles nothing",
        able_with(_assembles_nothing, "ptxas fatal"), "a stack that can do everything", ABLE, also=OVERWRITTEN),
    _of("G13", "header", "one of torch's headers is deleted", able_with(_no_header, "pybind11.h"),
        "a stack that can do everything", ABLE, twin_skips=True),
    _of("G14", "shm", "/dev/shm is read-only",
        able_with(lambda stack: None, "Read-only", setup="mount -t tmpfs -o ro none /dev/shm"),
        "a stack that can do everything", ABLE),
)  # fmt: skip
