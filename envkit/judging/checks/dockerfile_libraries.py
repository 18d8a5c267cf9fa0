"""Whether frameworks that bring no CUDA libraries of their own find those that they load."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

from envkit.dockerfile import options, system
from envkit.dockerfile.requirements import allows
from envkit.facts import CudaBuildRow, Facts
from envkit.facts.pairs import lacks_cuda
from envkit.facts.rows import GpuPackageRow
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import Commands, commands_of, need_stages, reached_commands, together
from envkit.judging.checks._image_cuda import equipped
from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Dockerfile, Install, Step, Word
from envkit.versions import Cuda

_ARCHIVE = pattern(r"onnxruntime-linux-x64-gpu(?:[-_]cuda([0-9]+))?-([0-9]+\.[0-9]+(?:\.[0-9]+)?)(?=\.t)")
_WHEEL = pattern(r"nvidia-(?:cublas|cudnn|cuda-runtime)(?:-cu(\d+))?")


def framework_libraries_missing(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """What loads the system's libraries finds them: frameworks that major of CUDA and a cuDNN, OpenCV its libGL."""
    need_stages(dockerfile)
    graphics = [
        *_without_graphics(dockerfile),
        *_without_system_library(dockerfile, facts),
        *_over_that_for_gpus(dockerfile),
    ]
    dockerfile = equipped(dockerfile)
    base, majors = dockerfile.base, _majors(dockerfile)
    skip_if(stack.rocm(dockerfile), "the image is not for NVIDIA GPUs")
    asked = len(graphics)
    yield from graphics
    for finding in _beside_torch(dockerfile, majors, facts):
        asked += 1
        if finding is not None:
            yield finding
    for finding in _without_any(dockerfile, facts):
        asked += 1
        yield finding
    for finding in chain(_bare_name(dockerfile, facts), _on_jetson(dockerfile)):
        asked += 1
        yield finding
    for finding in _of_own_page(dockerfile, majors):
        asked += 1
        if finding is not None:
            yield finding
    skip_if(not (asked or stack.cuda_of_base(base)), "the base has no CUDA, as far as is known")
    for one in dockerfile.installs if stack.cuda_of_base(base) else ():
        row = _row(one, dockerfile, facts)
        if row is None or row.cuda is None:
            continue
        asked += 1
        wanted, release = _soname(row.cuda), f" {one.version}" if one.version else ""
        mine = _soname(stack.cuda_of_base(base))
        there = {f"CUDA {stack.cuda_of_base(base)} in the base": f"{base.span.place}, {base.cuda.via}"}
        if "" in majors:
            continue
        if wanted not in majors:
            yield error(
                f"{one.name}{release} loads the libraries of CUDA {wanted}, and the base {base.reference} has those of "
                f"CUDA {stack.cuda_of_base(base)}",
                one.span,
                {f"{one.name}{release} is built for CUDA {row.cuda}": cited(row), **there},
                f"take a base of CUDA {wanted}, or the {one.name} that is built for CUDA {mine}",
            )
        elif row.cudnn and base.cudnn.is_unsupported and not _brings_cudnn(dockerfile, facts):
            yield error(
                f"{one.name}{release} loads cuDNN {row.cudnn}, and neither {base.reference} nor the file brings one",
                one.span,
                {f"{one.name}{release} loads cuDNN {row.cudnn}": cited(row), "no cuDNN in the base": base.cudnn.via},
                f"take the tag of this base with cudnn in its name, of cuDNN {row.cudnn}",
            )
    for archive, needs, word in _archives(dockerfile, facts) if stack.cuda_of_base(base) else ():
        asked += 1
        wanted, mine = _soname(needs.cuda or ""), stack.cuda_of_base(base)
        if "" in majors or wanted in majors:
            continue
        yield error(
            f"{archive} loads the libraries of CUDA {wanted}, and the base {base.reference} has those of CUDA {mine}",
            word.span,
            {
                f"{archive} is built for CUDA {needs.cuda}": cited(needs),
                f"CUDA {mine} in the base": f"{base.span.place}, {base.cuda.via}",
            },
            f"take a base of CUDA {wanted}, or the release's archive that is built for CUDA {stack.major(mine)}",
        )
    skip_if(not asked, "nothing here loads the system's CUDA libraries, as far as is known")


def _beside_torch(dockerfile: Dockerfile, majors: set[str], facts: Facts) -> Iterator[Finding | None]:
    """What loads the libraries of torch's CUDA, or has one of its own for each CUDA of torch; None where it fits."""
    torch = dockerfile.torch
    cuda = stack.said(torch.cuda) if torch is not None else ""
    if torch is None or not re.fullmatch(r"[0-9]+\.[0-9]+", cuda) or torch.method not in ("base", "pip", "uv", "conda"):
        return
    torchs = {f"{stack.shown(torch)} is for CUDA {cuda}": torch.cuda.via or torch.span.place}
    for one in dockerfile.installs:
        if torch.prefix and one.prefix and one.prefix != torch.prefix:
            continue
        row = _row(one, dockerfile, facts) if dockerfile.base.cuda.is_unsupported else None
        wanted = _soname(row.cuda or "") if row is not None else ""
        if row is not None and wanted and "" not in majors and one.name.startswith("onnxruntime"):
            yield (
                None
                if wanted in majors
                else warning(
                    f"{one.name}{f' {one.version}' if one.version else ''} loads the libraries of CUDA {wanted}, and "
                    f"here are those of torch's CUDA {cuda} alone, so that it computes on the CPU",
                    one.span,
                    {f"{one.name} is built for CUDA {row.cuda}": cited(row), **torchs},
                    f"take the {one.name} that is built for CUDA {stack.major(cuda)}, or a base of CUDA {wanted}",
                )
            )
        build = facts.cuda_build(one.name, one.version) if one.version and _plain(one) else None
        if build is not None and not any("BNB_CUDA_VERSION" in step.value for step in dockerfile.steps):
            yield (
                None
                if not lacks_cuda(build, Cuda(cuda))
                else error(
                    f"{one.name} {one.version} has no library for CUDA {cuda}, which {stack.shown(torch)} is built for",
                    one.span,
                    {f"{one.name} {one.version} has libraries for {_listed(build)}": cited(build), **torchs},
                    f"take the {one.name} that has one for CUDA {cuda}, or a torch for one of these",
                )
            )


# Wheels for one CUDA each that are on a page of their project and bring no library of CUDA: the CUDA is in the page's
# address or the name (DGL), or in the release (PaddlePaddle before 2.5).  Source: dmlc/dgl issue 5547 and
# NVIDIA/DeepLearningExamples issue 1269; PaddlePaddle, installation by pip, 2.4.
_DGLS = pattern(r"data\.dgl\.ai/wheels(?:-test)?/(?:torch-[\d.]+/)?cu(\d{2})(\d)(?:/|$)")
_DGL_NAME = pattern(r"dgl-cu(\d{2})(\d)")
_PADDLE = pattern(r"(?:1|2\.[0-4])(?:\.\d+)*\.?post(\d{2})(\d)")


def _of_own_page(dockerfile: Dockerfile, majors: set[str]) -> Iterator[Finding | None]:
    """What its project's page of wheels builds for another CUDA than any in the image; None where it fits."""
    for one in dockerfile.installs if majors and "" not in majors else ():
        if one.manager not in ("pip", "uv") or not one.sure or one.constraint or one.marker:
            continue
        urls = (one.url, one.index, *one.extra_indexes, *one.find_links)
        found = _DGL_NAME.fullmatch(one.name)
        if one.name == "dgl":
            found = next((each for url in urls if (each := _DGLS.search(url))), None)
        elif one.name == "paddlepaddle-gpu":
            found = _PADDLE.fullmatch(one.version)
        if found is None:
            continue
        cuda = f"{found[1]}.{found[2]}"
        there = " and ".join(sorted(majors))
        yield (
            None
            if _soname(cuda) in majors
            else error(
                f"{one.name} for CUDA {cuda} loads the libraries of CUDA {_soname(cuda)}, and here are those of CUDA "
                f"{there} alone",
                one.span,
                {f"{one.name} is for CUDA {cuda}": one.span.place, f"CUDA {there}": dockerfile.base.span.place},
                f"take the wheel for CUDA {there}, or a base and a torch of CUDA {_soname(cuda)}",
            )
        )


def _bare_name(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """Old releases of bitsandbytes that look for libcudart.so by its bare name, which images without the toolkit
    lack."""
    base, since = dockerfile.base, facts.milestone("bitsandbytes-cudart")
    flavored = base.family == "nvidia" and base.sure and base.nvcc.value is False
    others = any(each.manager in ("conda", "source") for each in dockerfile.installs) or dockerfile.brought
    if not flavored or others or any(stack.toolkits(dockerfile.installs)) or dockerfile.unread:
        return
    for one in dockerfile.installs:
        old = one.name == "bitsandbytes" and allows(f"<{since.release}", one.version) is True
        if old and _plain(one):
            yield error(
                f"bitsandbytes {one.version} looks for libcudart.so, and {base.reference} has it under the name of its "
                "release alone, so that it runs on the CPU or not at all",
                one.span,
                {
                    f"the name of a release is looked for since {since.release}": cited(since),
                    "no toolkit in the base": f"{base.span.place}, {base.nvcc.via}",
                },
                f"take bitsandbytes {since.release} or newer, or the devel image",
            )


def _over_that_for_gpus(dockerfile: Dockerfile) -> Iterator[Finding]:
    """ONNX Runtime for the CPU where the same files of the one for GPUs are already: pip takes the two for different
    packages, unpacks one over the other, and of one command the shorter name last.

    Source: ONNX Runtime, "Install": one package to an environment; pip 26.3, the order of its own installs.
    """
    commands, order = commands_of(dockerfile), list(dockerfile.installs)
    for gpu in order:
        if gpu.name != "onnxruntime-gpu" or not _surely(gpu) or gpu.manager not in ("pip", "uv"):
            continue
        mine = [each for each in order[order.index(gpu) + 1 :] if each.name in (gpu.name, "onnxruntime")]
        beside = [each for each in order if each.name == "onnxruntime" and _of_one_command(gpu, each, commands)]
        cpu = mine[-1] if mine and mine[-1].name == "onnxruntime" else next(iter(beside), None)
        if cpu is None or cpu.prefix != gpu.prefix or not _surely(cpu) or cpu.manager not in ("pip", "uv"):
            continue
        if "--target" in cpu.options | gpu.options or _removed(dockerfile, "onnxruntime"):
            continue
        yield warning(
            "onnxruntime, which is for the CPU, has the same files as onnxruntime-gpu and is unpacked over them, so "
            "that no GPU is used",
            cpu.span,
            {"onnxruntime-gpu": gpu.span.place, "onnxruntime": cpu.span.place},
            "leave onnxruntime out: onnxruntime-gpu computes on the CPU too",
        )
        return


def _of_one_command(one: Install, other: Install, commands: Mapping[Span, Commands]) -> bool:
    """Whether one command installs both."""
    return together(commands.get(one.span, {}), commands.get(other.span, {}))


def _removed(dockerfile: Dockerfile, name: str) -> bool:
    return any(each.name == name for step in dockerfile.steps for each in step.removals)


_JETSONS = pattern(r"nv\d\d\.\d\d")  # the local version of NVIDIA's own wheels


def _on_jetson(dockerfile: Dockerfile) -> Iterator[Finding]:
    """NVIDIA's wheel of torch for Jetson, which brings no CUDA, on the base for Jetson that holds none.

    Source: NVIDIA, "Installing PyTorch for Jetson Platform": the wheels are for the CUDA of JetPack.
    """
    base = dockerfile.base
    named = (torch.install for torch in dockerfile.torches if torch.install is not None)
    one = next((each for each in named if _JETSONS.search(f"{each.local} {each.url}")), None)
    plain = base.repository.endswith("nvidia/l4t-base") and stack.without_cuda(base)
    if one is None or not plain or any(stack.toolkits(dockerfile.installs)):
        return
    if any(step.copy is not None and step.copy.foreign for step in dockerfile.steps):
        return
    yield warning(
        f"NVIDIA's wheel of torch for Jetson loads the CUDA of JetPack, and neither {base.reference} nor the file "
        "brings it",
        one.span,
        {"no CUDA in the base": f"{base.span.place}, {base.cuda.via}"},
        "take nvcr.io/nvidia/l4t-jetpack of the same release",
    )


# ---------------------------------------------------------------- what OpenCV's windows load

_WINDOWS = options.names("opencv-python opencv-contrib-python")
# That without windows, and what requires it: which of the two stays hangs on the order in which they are unpacked.
_HEADLESS = options.names(
    "opencv-python-headless opencv-contrib-python-headless albucore albumentations deepface easyocr img2table "
    "python-doctr rembg"
)
# What requires one with windows, with the first release of which that was read.  Source: METADATA of ultralytics
# 8.0.100 and 8.4.190, facexlib 0.3.0, gfpgan 1.3.8, imgaug 0.4.0 and realesrgan 0.3.0.
_BRING_WINDOWS = {
    "facexlib": ("opencv-python", "0.3.0"),
    "gfpgan": ("opencv-python", "1.3.8"),
    "imgaug": ("opencv-python", "0.4.0"),
    "realesrgan": ("opencv-python", "0.3.0"),
    "ultralytics": ("opencv-python", "8.0.100"),
}
_GL = options.names("libgl1 libgl1-mesa-glx libgl1-mesa-dri libgl1-mesa-dev libgl-dev libglvnd-dev")
_GLIB = options.names("libglib2.0-0 libglib2.0-0t64 libglib2.0-dev libglib2.0-bin software-properties-common gdb")
# Packages that bring neither, with what they depend on and recommend: Depends and Recommends in Debian 12.
_NEITHER = options.names(
    "apt-transport-https apt-utils aria2 build-essential bzip2 ca-certificates ccache clang cmake cron curl dialog "
    "dumb-init espeak-ng file g++ gcc gfortran git git-lfs gnupg gnupg2 htop iproute2 iputils-ping jq less libaio-dev "
    "libbz2-dev libcurl4-openssl-dev libeigen3-dev libffi-dev libgomp1 libhdf5-dev libibverbs-dev libibverbs1 "
    "libjpeg-dev liblzma-dev libmagic1 libncurses-dev libnuma-dev libnuma1 libopenblas-dev libopenmpi-dev libpng-dev "
    "libportaudio2 libpq-dev libprotobuf-dev libreadline-dev libsm-dev libsm6 libsndfile1 libsox-dev libsqlite3-dev "
    "libssl-dev libturbojpeg0 libx11-6 libxext6 libxml2 libxrender-dev libxrender1 libxslt1-dev llvm locales "
    "lsb-release lsof make nano ncdu net-tools netcat-openbsd nginx ninja-build nodejs openmpi-bin openssh-client "
    "openssh-server patch pciutils pkg-config poppler-utils procps protobuf-compiler python-is-python3 python3 "
    "python3-dev python3-distutils python3-full python3-pip python3-setuptools python3-venv python3-wheel rsync screen "
    "sox strace sudo supervisor swig tini tk-dev tmux tree tzdata unzip vim wget xz-utils zip zlib1g-dev"
)
_PYTHONS = pattern(r"python3\.\d+(?:-(?:dev|venv|minimal|distutils))?")
_LISTS = pattern(r".*\.(?:txt|toml|lock|ya?ml|cfg|in|json)|setup\.py")
_ENVIRONMENT = pattern(r"/(?:usr/local/(?:lib/python|bin)|(?!usr(?:/|$)|lib|etc|$).+)")


def _without_graphics(dockerfile: Dockerfile) -> Iterator[Finding]:
    """OpenCV with its windows where the file shows that its libGL or GLib is missing, so that ``import cv2`` fails.

    Source: the dynamic sections of the wheels of opencv-python 4.3.0.38 to 5.0.0.93, whose Qt needs both and which
    hold neither; opencv/opencv-python issue 370.
    """
    base, packages = dockerfile.base, [one.name for one in dockerfile.installs if one.manager in stack.SYSTEM]
    there = _GL | _GLIB | _NEITHER
    plain = base.family in ("os", "python") or (base.family == "nvidia" and stack.said(base.flavor) in _SMALL)
    if not plain or not base.sure or not stack.said(base.os).startswith(("debian", "ubuntu")):
        return
    if any(not (name in there or _PYTHONS.fullmatch(name)) for name in packages) or _may_hold_more(dockerfile):
        return
    whole = base.family == "python" and "slim" not in base.tag  # it holds what headers of GLib belong to
    missing = [
        name
        for name, brings, has in (("libGL.so.1", _GL, False), ("libgthread-2.0.so.0", _GLIB, whole))
        if not has and brings.isdisjoint(packages)
    ]
    for one in dockerfile.installs if missing else ():
        name, since = _BRING_WINDOWS.get(one.name, (one.name, ""))
        if name not in _WINDOWS or one.manager not in ("pip", "uv", "poetry") or not _surely(one):
            continue
        own = not since
        newest = "4.10" if own else _LATER
        fits = allows(f">={since or '4.3'}", one.version) if one.version else allows(one.specifier or ">0", newest)
        if fits is True and (own or "--no-deps" not in one.options):
            yield warning(
                f"{name}{'' if own else f', which {one.name} requires,'} loads {' and '.join(missing)} when it is "
                f"imported, and neither {base.reference} nor the file brings it",
                one.span,
                {f"{base.reference} is {base.os.value}": f"{base.span.place}, {base.os.via}"},
                f"take {one.name}-headless, which opens no windows, or install libgl1 and libglib2.0-0 by apt-get"
                if own
                else "install libgl1 and libglib2.0-0 by apt-get",
            )
            return


# Packages of Debian and Ubuntu that bring none of the libraries of the table, with what they depend on and recommend.
_LEAN = options.names(
    "apt-transport-https apt-utils bash bzip2 ca-certificates curl dumb-init git gnupg gnupg2 gosu htop iproute2 "
    "iputils-ping jq less libffi-dev libgl1 libglib2.0-0 libgomp1 libmagic1 libportaudio2 libpq5 libsm6 libsndfile1 "
    "libssl-dev libxext6 libxrender1 locales lsof nano netcat-openbsd net-tools openssh-client procps rsync sudo tini "
    "tmux tree tzdata unzip vim wget xz-utils zip"
)


def _without_system_library(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """A package whose wheel opens a library of the system that a small image does not have, and that no step brings."""
    rows = {row.package: row for row in facts.system_libraries}
    named = [one for one in dockerfile.installs if one.name in rows and one.manager in ("pip", "uv", "poetry")]
    base = dockerfile.base
    plain = (base.family == "python" and re.search(r"slim", base.tag)) or (
        base.family == "os" or (base.family == "nvidia" and stack.said(base.flavor) in _SMALL)
    )
    if not named or not plain or not base.sure or _may_hold_more(dockerfile):
        return
    debian = stack.said(base.os).startswith(("debian", "ubuntu")) or (base.family == "python" and not base.os.value)
    packages = [one.name for one in dockerfile.installs if one.manager in stack.SYSTEM]
    for one in named if debian else ():
        row = rows[one.name]
        others = [name for name in packages if name not in _LEAN and not _SMALL_PYTHONS.fullmatch(name)]
        if others or not _surely(one) or not set(packages).isdisjoint(row.brought_by):
            continue
        yield warning(
            f"{one.name} loads {row.library} {row.when}, which its wheel does not hold, and neither {base.reference} "
            "nor the file brings it",
            one.span,
            {f"{one.name} loads {row.library}": cited(row), base.reference: base.span.place},
            f"install {row.brought_by[0]} by apt-get",
        )


_SMALL_PYTHONS = pattern(r"python3(?:\.\d+)?(?:-(?:venv|minimal|distutils))?|python-is-python3")
_LATER = "999.0"  # a release that is to come: a bound from below lets the newest in
_SMALL = ("base", "runtime")  # the devel flavor has tools with windows


def _surely(one: Install) -> bool:
    return one.sure and not (one.constraint or one.url or one.marker)


def _may_hold_more(dockerfile: Dockerfile) -> bool:
    """Whether libraries may come by other ways: conda, sources, copies of a system's folders, scripts that were not
    read; or another OpenCV takes the place of the first."""
    if any(one.manager in ("conda", "source") or one.name in _HEADLESS for one in dockerfile.installs):
        return True
    if any(each.system or not _LISTS.fullmatch(posixpath.basename(each.path)) for each in dockerfile.unread):
        return True
    steps = [step for index in dockerfile.lineage for step in dockerfile.stages[index].steps]
    copies = [step.copy for step in steps if step.copy is not None and step.copy.foreign]
    if any(not _ENVIRONMENT.fullmatch(copy.target) for copy in copies):
        return True
    return any(
        re.search(r"\buninstall\b.*opencv|\bdpkg\b|\.deb\b|libgl", step.value, re.IGNORECASE)
        for step in steps
        if not any(one.name in _GL for one in step.installs)
    )


def _listed(row: CudaBuildRow) -> str:
    return f"CUDA {', '.join(map(str, row.cudas))}"


def _plain(one: Install) -> bool:
    """Whether it is a release of an index, which surely gets installed with its own CUDA."""
    elsewhere = one.index or one.extra_indexes or one.find_links
    return (
        one.sure
        and one.manager in ("pip", "uv", "poetry")
        and not (one.constraint or one.url or one.marker or elsewhere)
    )


def _archives(dockerfile: Dockerfile, facts: Facts) -> Iterator[tuple[str, GpuPackageRow, Word]]:
    """The archives of ONNX Runtime for GPUs that the build downloads, each with what its release loads.

    An archive with a CUDA in its name is for that one; the others are of the CUDA of the release's wheel.
    """
    for _, _, command in reached_commands(dockerfile):
        for fetched in system.downloads(command) if command.sure else ():
            found = _ARCHIVE.search(fetched.url)
            row = facts.gpu_package("onnxruntime-gpu", found[2]) if found else None
            if found is None or row is None or row.cuda is None:
                continue
            yield found[0], replace(row, cuda=found[1]) if found[1] else row, fetched.word


_JAX_LOCAL = pattern(r"cuda(\d+)[-_]local")  # the extra for the system's CUDA and cuDNN.  Source: JAX installation page


def _row(one: Install, dockerfile: Dockerfile, facts: Facts) -> GpuPackageRow | None:
    """What a package that surely takes the system's libraries loads; None for others.

    Another index may have a build for another CUDA, and extras may bring the libraries.
    """
    local = next((found for each in one.extras if (found := _JAX_LOCAL.fullmatch(each))), None)
    if local is not None and one.name == "jax" and one.sure and one.manager in ("pip", "uv") and not one.constraint:
        return facts.gpu_package(f"jax-cuda{local[1]}-plugin", one.version)
    if not _plain(one) or any("cu" in each or each == "ctk" for each in one.extras):
        return None
    last = "" if one.version or one.specifier else facts.last_release(one.name, one.python)
    among = facts.gpu_package_among(one.name, one.specifier) if one.specifier and not one.version else None
    row = among or facts.gpu_package(one.name, one.version or last)
    always = row is not None and not row.since and not row.until
    if not (one.version or last or always or among or _newest(one, facts)):
        return None
    if one.name == "faster-whisper" and any(each.name == "ctranslate2" for each in dockerfile.installs):
        return None  # that one decides
    loads = row is not None and row.own is False and (row.build == "wheel" or one.name.startswith("cupy-cuda"))
    return row if loads else None


def _newest(one: Install, facts: Facts) -> bool:
    """Whether pip takes the newest release of a name: its Python is one that new releases are made for."""
    life = facts.python_life(one.python) if one.python else None
    return not one.specifier and one.name != "tensorflow-gpu" and life is not None and life.eol > life.seen


def _majors(dockerfile: Dockerfile) -> set[str]:
    """The majors of every CUDA in the image, "" among them where one is not known."""
    torch = dockerfile.torch
    own = stack.cuda_of_base(dockerfile.base)
    found = {_soname(own)} if own else set[str]()
    found |= {_soname(each.cuda) for each in stack.toolkits(dockerfile.installs)}
    for each in dockerfile.installs:
        wheel = _WHEEL.fullmatch(each.name) if each.name.startswith("nvidia-") else None
        if wheel is not None:
            found.add(wheel[1] or "")
    if torch is not None and stack.said(torch.cuda) != "cpu":
        found.add(_soname(stack.said(torch.cuda)))
    return found


def _soname(cuda: str) -> str:
    """What the names of CUDA's libraries carry: the major, before CUDA 11 the minor too; "" where it is not known."""
    major, _, rest = cuda.partition(".")
    if major.isdigit() and int(major) < _MAJOR_ALONE:
        minor = rest.partition(".")[0]
        return f"{major}.{minor}" if minor else ""
    return major


_MAJOR_ALONE = 11


# ---------------------------------------------------------------- no CUDA at all

_ASK_FOR_GPUS = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
_FOR_GPUS = pattern(r"onnxruntime-gpu|tensorflow-gpu|cupy-cuda\w+")  # whose names say that they are


def _without_any(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """What loads CUDA's libraries in an image that surely holds none, and that is meant for GPUs."""
    base, installs = dockerfile.base, dockerfile.installs
    plain = base.family in ("python", "os") and base.sure and not base.digest and stack.without_cuda(base)
    if not plain or dockerfile.unread or dockerfile.brought or any(map(_other_files, dockerfile.steps)):
        return
    if _majors(dockerfile) or dockerfile.torch is not None or any(_may_bring(one) for one in installs):
        return
    meant = any(
        setting.name in _ASK_FOR_GPUS and setting.value not in ("void", "none")
        for step in dockerfile.steps
        for setting in (step.settings if step.name == "ENV" else ())
    )
    for one in installs:
        row = _row(one, dockerfile, facts) if meant or _FOR_GPUS.fullmatch(one.name) else None
        if row is None or row.cuda is None:
            continue
        release = f" {one.version}" if one.version else ""
        yield warning(
            f"{one.name}{release} loads the libraries of CUDA {_soname(row.cuda)}, and neither {base.reference} nor "
            "the file brings any, so that it uses no GPU",
            one.span,
            {
                f"{one.name}{release} is built for CUDA {row.cuda}": cited(row),
                "no CUDA in the base": f"{base.span.place}, {base.reference}",
            },
            f"take a base of CUDA {_soname(row.cuda)}"
            + (f" with cuDNN {row.cudnn}" if row.cudnn else "")
            + ", or the extra of the package that brings the libraries, where it has one",
        )


def _may_bring(one: Install) -> bool:
    """Whether a package may bring CUDA's libraries, or is of an installer that brings what is not listed."""
    name = one.name.removeprefix("cupy-cuda")
    return one.manager in ("conda", "source") or bool(re.search(r"nvidia|cuda|cudnn|torch", name))


def _other_files(step: Step) -> bool:
    """Whether a step may bring CUDA's libraries as files: of another image or stage, or out of an archive."""
    if step.copy is None:
        return False
    return step.copy.foreign and not step.copy.of_uv


def _brings_cudnn(dockerfile: Dockerfile, facts: Facts) -> bool:
    """Whether anything may bring a cuDNN: torch, a package, a file that was not read, files of another image."""
    if dockerfile.torch is not None or any(not each.system for each in dockerfile.unread) or dockerfile.brought:
        return True
    if any(map(_other_files, dockerfile.steps)):
        return True
    return any(
        "cudnn" in each.name
        or (each.name.startswith("jax") and not any(map(_JAX_LOCAL.fullmatch, each.extras)))
        or (each.name == "tensorflow" and _row(each, dockerfile, facts) is None)
        for each in dockerfile.installs
    )
