"""What a build compiles for CUDA, and with which compilers.

Names of programs and switches are those of their own documentation.  What a Python package wants of CUDA, and what
decides whether installing it compiles CUDA code, are facts (tables gpu_package and package_build).
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from envkit.dockerfile import cargo
from envkit.dockerfile.requirements import allows
from envkit.dockerfile.torches import variant_of
from envkit.dockerfile.tree import cloned, mounts
from envkit.facts import Facts, PackageBuildRow
from envkit.judging.checks._dockerfile import once
from envkit.model import Observed, Span
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Command, Dockerfile, Install, Removal, Stage, Step


@dataclass(frozen=True, slots=True)
class CudaBuildStep:
    """One place of a Dockerfile that compiles CUDA code while the image is built.

    ``what`` names it for a person ("flash-attn", "nvcc").  ``sure`` is False where it may find something ready-made, or
    may do without CUDA.  ``torch_extension`` says that it is compiled against torch's headers, whose cpp_extension
    refuses a toolkit of another major than torch's.  ``asks`` is True where nvcc is only asked for its version: nothing
    comes of it, but it has to be there.  ``env`` is the environment it runs in.  ``at`` is the place in the
    Dockerfile where it happens, which ``span`` is not where a requirements file or a script says it.  ``arch_list`` is
    the variable that names its architectures, where no row of the facts does and nothing else may.
    """

    span: Span
    what: str
    stage: int
    sure: bool
    needs_nvcc: bool
    torch_extension: bool
    asks: bool = False
    env: Mapping[str, str] | None = None
    at: Span | None = None
    arch_list: str = ""


# ---------------------------------------------------------------- what compiles

_TRUE = frozenset({"1", "on", "true", "yes", "y"})
# Switches of build systems that turn CUDA on ("GGML_CUDA", "LLAMA_CUBLAS", "WITH_CUDA", "USE_CUDA", "ENABLE_CUDA",
# "onnxruntime_USE_CUDA"); a value that is no yes turns it off.
_SWITCH = pattern(r"-?D?\s*(\w*(?:CUDA|CUBLAS|CUDNN|HIPBLAS_CUDA)\w*)(?::\w+)?=[\"']?([^\"'\s]+)")
_NO_SWITCH = pattern(r"STATIC|NO_|DISABLE|WITHOUT|SKIP|_LIB|INCLUDE|_DIR$|PATH|ROOT|HOME|FLAGS|ARCH|VERSION|STANDARD")
_CMAKE_CUDA = pattern(r"-D(?:CMAKE_CUDA_(?:ARCHITECTURES|COMPILER)|CUDAToolkit_ROOT)(?::\w+)?=(\S+)")
_MAKE_SWITCH = pattern(
    r"(?:GGML_CUDA|LLAMA_CUBLAS|LLAMA_CUDA|WHISPER_CUBLAS|WHISPER_CUDA|USE_CUDA|GPU|USE_CUBLAS)=(\S+)"
)
_MAKE_TOOLKIT = pattern(r"(?:NVCC|NVCC_GENCODE|CUDA_HOME|CUDA_PATH)=\S+")
_ENV_SWITCH = ("GGML_CUDA", "LLAMA_CUBLAS", "LLAMA_CUDA", "WHISPER_CUBLAS", "WHISPER_CUDA")
_ASKING = frozenset({"--version", "-V", "--help", "-h", "--dryrun"})
_CARGO_FEATURE = pattern(r"(?:^|[,\s/])(?:cuda|cublas|cudnn|flash-attn(?:-v\d)?|candle-cuda)(?:$|[,\s])")

_FORCING = pattern(r"--(?:force[-_]cuda|cuda_ext|enable-cuda-ext|cuda)$|=--cuda_ext|--cuda_ext")
_LOCAL = pattern(r"(?:git\+|https?://|file:|\.{0,2}/|\.$)")
_ARCHIVE = pattern(r"\.(?:tar\.\w+|tgz|zip)(?:$|[#?])")
_INSTALLER = pattern(r"pip|python|uv$|poetry|pdm|conda|mamba|micromamba")
_PYTHON = pattern(r"python[\d.]*$")
_TOOLKIT_SCRIPT = pattern(r"cuda\w*\.sh\b|\bcuda\S*\.run\b|Install_CUDA|install[_-]?cuda")
_MAKES = ("make", "gmake", "ninja")
_COMPILING = frozenset({"nvcc", "cmake", "cargo", *_MAKES})


@once  # six checks ask for that of one file
def compiles(dockerfile: Dockerfile, facts: Facts) -> tuple[CudaBuildStep, ...]:
    """Every place in the stages that the default build makes which compiles CUDA code, in order.

    Not in it is what compiles when the image runs.  A command that only may run (``Command.sure``) is not sure here.
    """
    return tuple(one for index, step, clones in _runs(dockerfile, facts) for one in _step(step, index, facts, clones))


def _runs(dockerfile: Dockerfile, facts: Facts) -> Iterator[tuple[int, Step, Mapping[str, str]]]:
    """Each RUN that the default build does, with its stage and what was cloned into which folder there."""
    clones: dict[int, Mapping[str, str]] = {}
    for index in dockerfile.reachable:
        stage = dockerfile.stages[index]
        clones[index] = _clones(stage, {} if stage.parent is None else clones.get(stage.parent, {}), facts)
        yield from ((index, step, clones[index]) for step in stage.steps if step.name == "RUN")


def _clones(stage: Stage, before: Mapping[str, str], facts: Facts) -> Mapping[str, str]:
    """The folders that a stage and its parent (``before``) clone into, and the packages those hold."""
    found: dict[str, str] = {}
    for step in stage.steps:
        for command in step.commands if step.name == "RUN" else ():
            clone = cloned(command)
            if clone is not None:
                found[clone.folder] = _package_of(clone.url, facts)
    return {**before, **found} if found else before


def _package_in(folder: str, clones: Mapping[str, str], facts: Facts) -> PackageBuildRow | None:
    """The known extension of torch that a folder holds, by its own name, those above it, or what was cloned there."""
    path = posixpath.normpath(folder)
    parts = path.split("/")
    for count in range(len(parts), 0, -1):
        above = "/".join(parts[:count])
        for name in (_package_of(parts[count - 1], facts), clones.get(above, "")):
            build = facts.package_builds.get(name)
            if build is not None and build.torch:
                return build
    return None


def _step(step: Step, stage: int, facts: Facts, clones: Mapping[str, str]) -> Iterator[CudaBuildStep]:
    commands = step.commands
    seen: set[Span] = set()
    switched = False
    own = {install.span for install in step.installs if "cuda" in install.builds}
    for at, command in enumerate(commands):
        following = commands[at + 1].after if at + 1 < len(commands) else ""
        tolerated = following == "||"
        switched = switched or _switches_a_makefile(command)
        one = _command(command, switched, stage, facts, clones)
        if one is not None and one.span in own and not one.needs_nvcc:
            continue  # which is less than what its setup.py says
        if one is not None and one.span not in seen and not _ready_made(command, step):
            seen.add(one.span)
            sure = one.sure and not tolerated and not (one.asks and following in (";", "|", "|&", "&"))
            place = one.span if one.span.path == step.span.path else step.span
            yield replace(one, sure=sure, env=command.env, at=place)
    owner = owners(step) if step.installs else None
    said: dict[int, str] = {}  # by the command's identity: one command may ask for thousands of packages
    for install in step.installs:
        if install.span in seen or owner is None:
            continue
        by = owner(install)
        if by is not None and id(by) not in said:
            said[id(by)] = " ".join(word.text for word in by.words)
        found = _install(install, by, said.get(id(by), ""), stage, facts, clones)
        if found is not None:
            yield replace(found, at=found.span if found.span.path == step.span.path else step.span)


# Crates that bring or load libraries made elsewhere, or compile their kernels when they run; and the feature that asks
# nvcc for its version all the same.  Source: the build scripts of ort-sys, torch-sys and cudarc.
_READY_CRATES: Mapping[str, str] = {
    **dict.fromkeys(("ort", "ort-sys", "tch", "torch-sys"), ""),
    "cudarc": "cuda-version-from-build-system",
}


def _ready_made(command: Command, step: Step) -> bool:
    """Whether all crates that a command's features turn CUDA on in are known to do without nvcc."""
    crates = [one for one in step.installs if one.manager == "cargo" and one.span == command.span]
    counting = [one for one in crates if one.sure or any(map(_CARGO_FEATURE.search, one.options))]
    return any(one.name in _READY_CRATES for one in crates) and all(
        one.name in _READY_CRATES and _READY_CRATES[one.name] not in one.options for one in counting
    )


def owners(step: Step) -> Callable[[Install], Command | None]:
    """What finds the command of ``step`` that asks for an install; it gives None where the text does not show which."""
    otherwise = next((each for each in step.commands if _INSTALLER.match(each.program)), None)
    # The commands by where they begin, with where all up to each end at most: a search goes no further back than that.
    places: dict[Span, int] = {}
    for at, command in enumerate(step.commands):
        places.setdefault(command.span, at)
    ordered = sorted(places.items(), key=lambda item: (item[0].path, item[0].line, item[0].column))
    begins = [(span.path, span.line, span.column) for span, _ in ordered]
    ends = [(span.path, span.end_line or span.line, span.end_column or 1 << 30) for span, _ in ordered]
    latest = list(accumulate(ends, max))

    def owner(install: Install) -> Command | None:
        place = (install.span.path, install.span.line, install.span.column)
        found: int | None = None
        at = bisect_right(begins, place) - 1
        while at >= 0 and latest[at] > place and begins[at][0] == place[0]:
            if ends[at] > place and (found is None or ordered[at][1] < found):
                found = ordered[at][1]
            at -= 1
        return otherwise if found is None else step.commands[found]

    return owner


def _switches_a_makefile(command: Command) -> bool:
    """Whether sed writes GPU=1 into a Makefile, as darknet and its like want it."""
    return command.program == "sed" and any(re.search(r"/GPU\s*=\s*1", word) for word in command.args)


def _command(
    command: Command, switched: bool, stage: int, facts: Facts, clones: Mapping[str, str]
) -> CudaBuildStep | None:
    """The first thing of a command that compiles for CUDA; None where nothing does."""
    program = command.program
    if program not in _COMPILING and not program.startswith("python"):
        return None
    args, first = command.args, command.words[0].span
    if program == "nvcc":
        asks = bool(args) and set(args) <= _ASKING
        return CudaBuildStep(first, "nvcc", stage, command.sure, True, False, asks)
    if program == "cmake":
        return _cmake(command, stage)
    if program in _MAKES:
        return _make(command, switched, stage)
    if program == "cargo" and {"build", "install", "run", "test"} & set(args[:2]):
        if _CARGO_FEATURE.search(" ".join(cargo.features(args))):
            return CudaBuildStep(first, "cargo with a feature for CUDA", stage, False, True, False)
    elif program.startswith("python") and _PYTHON.match(program) and args and posixpath.basename(args[0]) in _SETUPS:
        return _setup(command, stage, facts, clones)
    return None


_SETUPS = ("setup.py", "setup_cuda.py")


def _on(value: str) -> bool:
    return value.strip("\"'").lower() in _TRUE


def switched_on(text: str) -> str:
    """The first switch in options of CMake ("-DGGML_CUDA=ON") that turns CUDA on, "" for none."""
    for found in _SWITCH.finditer(text):
        if not _NO_SWITCH.search(found[1].upper()) and _on(found[2]):
            return found[1]
    return ""


def _cmake(command: Command, stage: int) -> CudaBuildStep | None:
    words = command.words
    if any(word.text in ("--build", "--install", "--version", "-P", "-E") for word in words[1:2]):
        return None
    opencv = any("opencv" in word.text.lower() for word in words) or "opencv" in command.cwd.lower()
    for at, word in enumerate(words[1:], 1):
        text = word.text if word.text != "-D" else "-D" + (words[at + 1].text if at + 1 < len(words) else "")
        if not text.startswith("-D"):
            continue
        name = switched_on(text)
        if name:
            # OpenCV goes on without CUDA where it finds none, others stop.
            return CudaBuildStep(word.span, f"cmake with {name}", stage, command.sure and not opencv, True, False)
    if any("CUDA" in word.text and re.search(r"=(?:OFF|0|FALSE|NO)$", word.text, re.IGNORECASE) for word in words):
        return None
    for word in words[1:]:
        found = _CMAKE_CUDA.match(word.text)
        if found and not found[1].lower().startswith("off"):
            return CudaBuildStep(word.span, f"cmake with {word.text[2:].partition('=')[0]}", stage, False, True, False)
    return None


def _make(command: Command, switched: bool, stage: int) -> CudaBuildStep | None:
    span = command.words[0].span
    for word in command.words[1:]:
        switch = _MAKE_SWITCH.match(word.text)
        if switch and _on(switch[1]):
            return CudaBuildStep(word.span, f"make with {word.text}", stage, command.sure and word.sure, True, False)
        if switched_on(word.text):
            return CudaBuildStep(word.span, f"make with {switched_on(word.text)}", stage, command.sure, True, False)
    for name, word in command.assigns.items():
        if _MAKE_SWITCH.match(f"{name}={word.text}") and _on(word.text):
            return CudaBuildStep(word.span, f"make with {name}={word.text}", stage, command.sure, True, False)
    if command.program == "make" and (name := next((n for n in _ENV_SWITCH if _on(command.env.get(n, ""))), "")):
        return CudaBuildStep(span, f"make with {name} set", stage, command.sure, True, False)
    if switched:
        return CudaBuildStep(span, "make with GPU=1 in its Makefile", stage, command.sure, True, False)
    for word in command.words[1:]:
        if _MAKE_TOOLKIT.match(word.text):
            return CudaBuildStep(word.span, f"make with {word.text}", stage, False, True, False)
    return None


def _package_of(folder: str, facts: Facts) -> str:
    """The package that a folder or an address of a repository is known to hold, "" for none."""
    name = re.split(r"[#?]", folder)[0].rstrip("/").rsplit("/", 1)[-1].lower()
    name = name.removesuffix(".zip").partition("@")[0].removesuffix(".git")
    name = facts.package_repositories.get(name, name)
    return re.sub(r"[-_.]+", "-", name)


def _setup(command: Command, stage: int, facts: Facts, clones: Mapping[str, str]) -> CudaBuildStep | None:
    """``python setup.py install`` and its like, of a repository that is known, or where CUDA is asked for."""
    verbs = set(command.args[1:])
    if not verbs & {"install", "develop", "build", "build_ext", "bdist_wheel", "bdist_egg"}:
        return None
    folder = posixpath.normpath(posixpath.join(command.cwd, posixpath.dirname(command.args[0])))
    build = _package_in(folder, clones, facts)
    span = command.words[1].span
    asked = next((word for word in command.args if _FORCING.search(word)), "")
    if not asked and _on(command.env.get("FORCE_CUDA", "")):
        asked = "FORCE_CUDA"
    if build is not None and _turned_off(build, command.env, " ".join(command.args)):
        return None
    named = posixpath.basename(command.args[0])
    if named == "setup_cuda.py":
        return CudaBuildStep(span, named, stage, command.sure, True, True)
    if asked or (build is not None and not build.needs_gpu):
        what = build.name if build is not None else f"setup.py with {asked}"
        return CudaBuildStep(span, what, stage, command.sure, True, True)
    if command.env.get("TORCH_CUDA_ARCH_LIST") or "build_ext" in verbs:
        return CudaBuildStep(span, "setup.py of an extension", stage, False, False, True)
    return None


def asking_for_a_gpu(dockerfile: Dockerfile, facts: Facts) -> Iterator[tuple[CudaBuildStep, bool]]:
    """Every extension of torch that is made from its source and that makes CUDA code where torch finds a GPU, which
    a build does not, or where it is forced to, with whether it is."""
    for index, step, clones in _runs(dockerfile, facts):
        if any(flag.startswith("--device") for flag in step.flags):
            continue
        for at, command in enumerate(step.commands):
            following = step.commands[at + 1].after if at + 1 < len(step.commands) else ""
            name = _of_setup(command, facts, clones)
            if name and command.sure and following != "||":
                made = CudaBuildStep(command.words[1].span, name, index, True, False, True, env=command.env)
                yield made, _forced(command)
        owner = owners(step) if step.installs else None
        for install in step.installs:
            by = owner(install) if owner is not None else None
            name = _source_of(install, facts, clones)
            if by is not None and name and install.sure and not install.marker:
                place = install.span if install.span.path == step.span.path else step.span
                made = CudaBuildStep(install.span, name, index, True, False, True, env=by.env, at=place)
                yield made, _forced(by)


def _forced(command: Command) -> bool:
    """Whether a command asks for CUDA code in any of the ways that extensions of torch know."""
    said = " ".join(word.text for word in command.words)
    return _on(command.env.get("FORCE_CUDA", "")) or "FORCE_CUDA" in said or bool(re.search(r"--(?:force_)?cuda", said))


def _of_setup(command: Command, facts: Facts, clones: Mapping[str, str]) -> str:
    """The package that ``python setup.py`` builds in a clone and that needs a GPU for its CUDA code, else ""."""
    args = command.args
    if not (command.program.startswith("python") and args and posixpath.basename(args[0]) in _SETUPS):
        return ""
    if not {"install", "develop", "build_ext", "bdist_wheel"} & set(args[1:]) or not command.cwd:
        return ""
    build = _package_in(posixpath.join(command.cwd, posixpath.dirname(args[0])), clones, facts)
    return build.name if build is not None and build.needs_gpu else ""


def _source_of(install: Install, facts: Facts, clones: Mapping[str, str]) -> str:
    """The package that an install surely builds from its source and that needs a GPU for its CUDA code, else ""."""
    if not _may_compile(install) or install.manager == "poetry" or install.locked or "$" in install.url:
        return ""
    if install.find_links or install.index or install.extra_indexes or (install.url and not _LOCAL.match(install.url)):
        return ""  # which may have a wheel
    build = facts.package_builds.get(_name(install, facts, clones) if install.url else install.name)
    if build is None or not build.needs_gpu or (build.repository_only and not install.url):
        return ""
    # What has a twin with -full holds its operators itself from its second release on alone.
    small = f"{build.name}-full" in facts.package_builds and allows("<2", install.version or "2") is True
    return "" if small else build.name


def _turned_off(build: PackageBuildRow, env: Mapping[str, str], said: str) -> bool:
    """Whether a package compiles no CUDA code in this environment by a command of the words ``said``."""
    name, _, off = build.skipped_by.partition("=")
    skipped = env.get(name) == off if off else _on(env.get(name, ""))
    return skipped or bool(build.asked_by and not _asked(build, env, said))


def _asked(build: PackageBuildRow, env: Mapping[str, str], said: str) -> str:
    """The first option, variable or switch that turns CUDA on for a package which has to be asked, "" for none."""
    for name in build.asked_by:
        if name.startswith("--"):
            found = name if name in said else ""
        elif name.endswith("*"):
            found = next((key for key, value in env.items() if key.startswith(name[:-1]) and _on(value)), "")
        elif name == "CMAKE_ARGS":
            found = switched_on(env.get(name, ""))
        else:
            found = name if _on(env.get(name, "")) else ""
        if found:
            return found
    return ""


def _install(
    install: Install, command: Command | None, said: str, stage: int, facts: Facts, clones: Mapping[str, str]
) -> CudaBuildStep | None:
    """What installing a Python package compiles for CUDA, None for nothing; ``said`` are the words of ``command``."""
    env = command.env if command is not None else {}
    if "cuda" in install.builds:
        what = f"the setup.py of {_shown(install)}"
        arch_list = "TORCH_CUDA_ARCH_LIST" if "open" in install.builds else ""
        return CudaBuildStep(install.span, what, stage, install.sure, True, True, env=env, arch_list=arch_list)
    if not _may_compile(install):
        return None
    local = bool(_LOCAL.match(install.url))
    name = _name(install, facts, clones) if local else install.name
    build = facts.package_builds.get(name)
    whole = CudaBuildStep(install.span, name, stage, install.sure, True, build is None or build.torch, env=env)
    if build is not None and (_turned_off(build, env, said) or (build.repository_only and not local)):
        return None
    if build is not None and build.asked_by:
        return _where_asked(whole, install, build, _asked(build, env, said))
    return _unasked(whole, install, build, said, local, facts)


def _may_compile(install: Install) -> bool:
    """Whether an install may run a setup.py at all: a wheel runs none."""
    if install.manager not in ("pip", "uv", "poetry") or install.constraint:
        return False
    return not (install.url.endswith(".whl") or ".whl#" in install.url or "prebuilt" in install.url)


def _unasked(
    whole: CudaBuildStep, install: Install, build: PackageBuildRow | None, said: str, local: bool, facts: Facts
) -> CudaBuildStep | None:
    """What a package compiles that has no switch of its own for CUDA."""
    env = whole.env or {}
    if local and (switch := switched_on(env.get("CMAKE_ARGS", ""))):
        return replace(whole, what=f"{_shown(install)} with {switch}", torch_extension=False)
    forced = _on(env.get("FORCE_CUDA", "")) or bool(re.search(r"--force_cuda|--cuda_ext", said))
    if build is not None and build.needs_gpu:
        return whole if forced and not install.find_links and not install.index else None
    if build is not None and build.repository_only:
        return whole
    row = facts.gpu_package(whole.what, install.version)
    if row is not None and row.build == "source" and row.nvcc:
        return _from_source(whole, install, build, local)
    return _perhaps(whole, install, forced) if local else None


def _name(install: Install, facts: Facts, clones: Mapping[str, str]) -> str:
    """The package that an install out of a folder or a repository gives, as far as that is known."""
    url, name = install.url, install.name
    if name not in ("", ".") and facts.gpu_package(name) is not None:
        return name
    held = _package_in(url, clones, facts) if url.startswith("/") else None
    return held.name if held is not None else _package_of(url, facts) or name


def _where_asked(whole: CudaBuildStep, install: Install, build: PackageBuildRow, asked: str) -> CudaBuildStep | None:
    """What a package compiles that ``asked`` turned CUDA on for: nothing where an index has it ready-made."""
    indexes = (install.index, *install.extra_indexes, *install.find_links) if build.ready_made == "index" else ()
    if any(variant_of(index) for index in indexes) and "--no-binary" not in install.options:
        return None
    # An option stands in the command; a variable may have been set far above it.
    return whole if asked.startswith("--") else replace(whole, what=f"{whole.what} with {asked}")


def _from_source(
    whole: CudaBuildStep, install: Install, build: PackageBuildRow | None, local: bool
) -> CudaBuildStep | None:
    """What a package compiles that is served as source; not sure where compiled files may be found in its stead."""
    if not local and (install.find_links or (install.index and not install.index.rstrip("/").endswith("simple"))):
        return None  # an index of wheels
    if build is None or not build.ready_made:
        return whole
    if build.ready_made == "index":
        certain = local
    else:
        certain = _on((whole.env or {}).get(build.forced_by, "")) or "--no-binary" in install.options
    return replace(whole, sure=whole.sure and certain)


def _perhaps(whole: CudaBuildStep, install: Install, forced: bool) -> CudaBuildStep | None:
    """What a repository compiles that may hold CUDA code; one that does mostly goes on without nvcc."""
    if _ARCHIVE.search(install.url) or not (forced or (whole.env or {}).get("TORCH_CUDA_ARCH_LIST")):
        return None
    what = f"{_shown(install)}, for {'FORCE_CUDA' if forced else 'TORCH_CUDA_ARCH_LIST'} is set"
    return replace(whole, what=what, sure=False, needs_nvcc=forced, torch_extension=True)


def _shown(install: Install) -> str:
    return install.name if install.name not in ("", ".") else install.url


# ---------------------------------------------------------------- what compilers are there

# Packages of NVIDIA's repositories and of Debian's own that hold nvcc (CUDA Installation Guide for Linux, "Meta
# Packages").
_NVCC_SYSTEM = pattern(
    r"cuda(?:-\d+(?:-\d+)?)?|cuda-(?:toolkit|nvcc|compiler|minimal-build|core|sdk)(?:-\d+(?:-\d+)?|-?[$`].*)?|nvidia-cuda-toolkit|nvhpc.*|nvidia-cuda-dev-tools"
)
_NVCC_CONDA = pattern(
    r"cuda|cuda-(?:nvcc|toolkit|compiler|minimal-build)(?:[-_].*)?|cudatoolkit-dev|cuda-nvcc_linux-64"
)
_COMPILER_SYSTEM = pattern(
    r"build-essential|build-base|gcc(?:-\d+(?:\.\d+)?)?|g\+\+(?:-\d+(?:\.\d+)?)?|gcc-c\+\+|clang(?:-\d+)?|gfortran(?:-\d+)?|libtool"
    r"|gcc-toolset-\d+(?:-gcc.*)?|devtoolset-\d+(?:-gcc.*)?|@?\"?development[- ]tools\"?"
    r"|@development|r-base-dev|dkms|tcc"
)
# They recommend a compiler, which apt takes unless told not to.
_RECOMMENDING = pattern(r"python3-pip|python-pip|cmake|dpkg-dev|libc6-dev|libc-dev|debhelper|npm")
_COMPILER_CONDA = pattern(
    r"gcc|gxx|gcc_linux-64|gxx_linux-64|gcc_impl_linux-64|c-compiler|cxx-compiler|compilers|clang|clangxx|sysroot_linux-64-gcc"
)
# Folders with a toolkit, and nvcc itself.
_HOMES = pattern(
    r"(?:/usr/local(?:/cuda[-\d.]*(?:/bin(?:/nvcc)?)?)?|/opt/conda|/opt/cuda|/usr|)(?:/\*|/cuda[-\d.]*\*)?"
)
_SYSTEM = ("apt", "dnf", "apk", "yum", "zypper")


_DEEPEST = 20  # stages through which a toolkit is copied on


def has_nvcc(
    dockerfile: Dockerfile, stage_index: int, at: Span | None, ends: dict[int, Observed[bool]] | None = None
) -> Observed[bool]:
    """Whether nvcc is there when the build comes to ``at`` in a stage; at its end for None.

    Wheels (nvidia-cuda-nvcc-cuNN) do not count: they lie in site-packages, where neither PATH nor torch looks.
    ``ends`` holds what is known of the ends of other stages.
    """
    ends = {} if ends is None else ends
    found = dockerfile.stages[stage_index].base.nvcc
    doubt = ""
    for stage, step in _before(dockerfile, stage_index, at):
        for install in step.installs:
            if at is not None and stage.index == stage_index and _later(install.span, at):
                continue
            if _brings_nvcc(install):
                via = f"{install.span.place} installs {install.name}"
                if install.sure:
                    return Observed.of(True, via)
                doubt = doubt or f"{via}, under a condition or of a release that only the build knows"
        here = at is not None and stage.index == stage_index and _holds(step.span, at)
        for copied in (_copied(dockerfile, step, ends), _lent(dockerfile, step, ends) if here else None):
            if copied is not None and copied.value:
                return copied
            if copied is not None and copied.missing:
                doubt = doubt or copied.missing
        doubt = doubt or _script(step)
    if doubt and not found.value:
        return Observed.lost(doubt)
    return Observed.of(False, found.via or "the base has no CUDA") if found.is_unsupported else found


def toolkit(dockerfile: Dockerfile, stage_index: int, at: Span | None) -> Observed[str]:
    """The CUDA ("A.B" or "A.B.C") of the toolkit that compiles at ``at`` in a stage (at its end for None).

    Without any nvcc it is the CUDA of the base.  Not observed where two toolkits are there, or none says its version.
    """
    base = dockerfile.stages[stage_index].base
    added: dict[str, str] = {}
    for _, step in _before(dockerfile, stage_index, at):
        for install in step.installs:
            if _brings_nvcc(install) and not (at is not None and _later(install.span, at)):
                named = re.search(r"-(\d+)-(\d+)$", install.name)
                said = f"{named[1]}.{named[2]}" if named and install.manager in _SYSTEM else ""
                said = said or _minor(install.version or install.specifier)
                added[said] = f"{install.span.place} installs {install.name}"
    if not added:
        return base.cuda
    if base.nvcc.value and set(added) != {_minor(base.cuda.value or "")}:
        return Observed.lost(f"{next(iter(added.values()))} beside the toolkit of the base")
    if len(added) > 1 or "" in added:
        return base.cuda if base.nvcc.value else Observed.lost(f"{next(iter(added.values()))} of an unknown version")
    return base.cuda if base.nvcc.value else Observed.of(*next(iter(added.items())))


def _minor(version: str) -> str:
    found = re.search(r"\d+\.\d+", version)
    return found[0] if found else ""


def _before(dockerfile: Dockerfile, stage_index: int, at: Span | None) -> Iterator[tuple[Stage, Step]]:
    for index in dockerfile.stages[stage_index].line:
        stage = dockerfile.stages[index]
        for step in stage.steps:
            if index == stage_index and at is not None and at.path == step.span.path and _later(step.span, at):
                return
            yield stage, step


def _later(one: Span, other: Span) -> bool:
    return one.path == other.path and (one.line, one.column) > (other.line, other.column)


def _brings_nvcc(install: Install) -> bool:
    if install.manager in _SYSTEM:
        return bool(_NVCC_SYSTEM.fullmatch(install.name))
    if install.manager == "conda":
        return bool(_NVCC_CONDA.fullmatch(install.name))
    return install.manager == "source" and install.name == "cuda-toolkit"


def _copied(dockerfile: Dockerfile, step: Step, ends: dict[int, Observed[bool]]) -> Observed[bool] | None:
    """What a COPY of a toolkit's folder out of another stage or image says of nvcc, None for any other step."""
    copy = step.copy
    if copy is None or not copy.foreign:
        return None
    if not any(_HOMES.fullmatch(source.rstrip("/")) for source in copy.sources):
        return None
    return _from(dockerfile, copy.source_stage, copy.image, copy.span, ends)


def _lent(dockerfile: Dockerfile, step: Step, ends: dict[int, Observed[bool]]) -> Observed[bool] | None:
    """What a RUN's mount of a toolkit's folder of another stage or image says of nvcc, None where it has none."""
    for given in mounts(step.flags):
        stage_or_image = given.get("from", "")
        source = (given.get("source") or given.get("src") or "/").rstrip("/")
        if not stage_or_image or given.get("type", "bind") != "bind" or not _HOMES.fullmatch(source):
            continue
        stage = next((each.index for each in dockerfile.stages if each.name == stage_or_image.lower()), None)
        return _from(dockerfile, stage, stage_or_image, step.span, ends)
    return None


def _from(
    dockerfile: Dockerfile, stage: int | None, image: str, span: Span, ends: dict[int, Observed[bool]]
) -> Observed[bool]:
    """Whether a toolkit that the step at ``span`` takes out of another stage or an image has nvcc."""
    if stage is not None:
        if stage not in ends:
            ends[stage] = Observed.lost("the toolkit is copied through more stages than are followed")
            if len(ends) < _DEEPEST:
                ends[stage] = has_nvcc(dockerfile, stage, None, ends)
        return ends[stage]
    if "devel" in image:
        return Observed.of(True, f"{span.place} takes it out of {image}")
    return Observed.lost(f"what {image} holds is not known")


def _holds(one: Span, at: Span) -> bool:
    """Whether a place lies within the lines of an instruction."""
    return one.path == at.path and one.line <= at.line <= (one.end_line or one.line)


def _script(step: Step) -> str:
    """Why a step may bring a toolkit that its text does not show, "" where it shows all that matters."""
    for command in step.commands:
        words = " ".join(word.text for word in command.words)
        if not step.installs and _TOOLKIT_SCRIPT.search(words):
            return f"what {command.words[-1].text} installs is not known"
        if command.program in ("spack", "guix", "nix", "nix-env", "module", "ansible-playbook"):
            return f"what {command.program} installs is not known"
    return ""


def has_compiler(dockerfile: Dockerfile, stage_index: int) -> Observed[bool]:
    """Whether a C compiler is there at the end of a stage.

    python3-pip, cmake and some others recommend one, which apt installs unless --no-install-recommends says not to
    (`apt-cache depends` on Debian 12); a CUDA toolkit by apt brings one, because nvcc needs it.
    """
    found = dockerfile.stages[stage_index].base.compiler
    ends: dict[int, Observed[bool]] = {}
    there: dict[str, str] = {}
    doubt = ""
    for _, step in _before(dockerfile, stage_index, None):
        for install in step.installs:
            if _brings_compiler(install):
                via = f"{install.span.place} installs {install.name}"
                if install.sure:
                    there[install.name] = via
                else:
                    doubt = doubt or f"{via} only under a condition"
        for removal in step.removals:
            doubt = _removed(removal, there) or doubt
        copied = _copied(dockerfile, step, ends)
        if copied and step.copy and any(source.rstrip("/") in ("", "/usr") for source in step.copy.sources):
            doubt = doubt or f"{step.copy.span.place} copies whole folders"
        doubt = doubt or _apt_unread(step)
    if there:
        return Observed.of(True, next(iter(there.values())))
    if found.value:
        return found
    return Observed.lost(doubt) if doubt else found


def _brings_compiler(install: Install) -> bool:
    name = install.name.lower()
    if install.manager in _SYSTEM:
        if _COMPILER_SYSTEM.fullmatch(name) or (_NVCC_SYSTEM.fullmatch(name) and install.manager == "apt"):
            return True
        return (
            install.manager == "apt"
            and bool(_RECOMMENDING.fullmatch(name))
            and "--no-install-recommends" not in install.options
        )
    return install.manager == "conda" and bool(_COMPILER_CONDA.fullmatch(name))


def _removed(removal: Removal, there: dict[str, str]) -> str:
    if removal.manager in _SYSTEM and removal.sure and removal.name in there:
        del there[removal.name]
        if not there:
            return f"{removal.span.place} removes {removal.name}"
    return ""


def _apt_unread(step: Step) -> str:
    """Why a step may install system packages that its text does not name."""
    for unread in step.unread:
        for command in step.commands:
            if command.program in ("apt", "apt-get", "apk", "dnf", "yum", "microdnf") and any(
                word.span == unread.span for word in command.words
            ):
                return f"{unread.path} was not read ({unread.why})"
    for command in step.commands:
        if command.program in ("apt", "apt-get") and [one for one in command.args if one[:1] != "-"] == ["install"]:
            return "what xargs hands to apt is not known"  # the readers see the command behind xargs
    return ""


# ---------------------------------------------------------------- Python's headers

_HEADERS = pattern(r"(?:lib)?python(3(?:\.\d+)?)-(?:all-)?dev|python-dev-is-python3")
# Libraries for development that may bring them; what each release of theirs requires was not read.
_MAY_BRING = pattern(r"lib(?:boost|opencv|vtk|pcl|openmpi|mpich)\S*-dev|python3(?:\.\d+)?-full|r-base\S*|ros-\S+")
# What may bring a Python with its headers in ways that the text does not show.
_PYTHONS = frozenset({"conda", "mamba", "micromamba", "pyenv", "make", "dpkg", "nix", "brew"})


def without_headers(dockerfile: Dockerfile, install: Install, own: str) -> str:
    """Which package of the distribution is the Python that an install goes into, where nothing brings its headers;
    "" where they are there or may be.  ``own`` is the version of the distribution's python3.

    Images of Python itself and conda's Pythons have them; apt's are a package of their own, which python3-pip
    recommends for the distribution's own Python alone (`apt-cache depends` on Debian 12).
    """
    base, version = dockerfile.base, install.python
    alone = install.manager == "pip" or (install.manager == "uv" and install.prefix == "/usr/local")
    if base.family not in ("os", "nvidia") or not (base.sure and own and version and alone) or dockerfile.brought:
        return ""
    there = ""
    for _, step in _before(dockerfile, len(dockerfile.stages) - 1, None):
        if _hides_python(step):
            return ""
        for one in step.installs:
            if one.manager == "apt":
                if _brings_headers(one, version, own):
                    return ""
                there = there or (f"{one.span.place} installs {one.name}" if _is_python(one, version, own) else "")
            elif one.manager in ("conda", "source", *_SYSTEM) or one.name == "python":
                return ""
    return there


def _hides_python(step: Step) -> bool:
    """Whether a step may bring a Python, or packages, that its text does not name."""
    if step.copy is not None:
        return bool(step.copy.image) and not step.copy.target.startswith(("/bin", "/usr/bin", "/usr/local/bin"))
    if step.name != "RUN":
        return False
    made = any(
        each.program in _PYTHONS or (each.program == "uv" and each.args[:1] != ("pip",)) for each in step.commands
    )
    return made or bool(_apt_unread(step) or _script(step)) or any(each.system for each in step.unread)


def _is_python(one: Install, version: str, own: str) -> bool:
    """Whether a package surely is the distribution's Python of this version."""
    found = re.fullmatch(r"python(3(?:\.\d+)?)(?:-(?:minimal|pip|venv|setuptools|distutils))?", one.name)
    return found is not None and one.sure and (version == found[1] or (found[1] == "3" and version == own))


def _brings_headers(one: Install, version: str, own: str) -> bool:
    found = _HEADERS.fullmatch(one.name)
    if found is not None:
        return (found[1] or own) in (version, "3") and (version == own or found[1] == version)
    recommends = one.name == "python3-pip" and "--no-install-recommends" not in one.options
    return (recommends and version == own) or bool(_MAY_BRING.fullmatch(one.name))
