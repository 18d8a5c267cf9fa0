"""What the image under a FROM holds, as far as its reference and the facts say.

A tag is believed where its publisher has a grammar for it (nvidia/cuda, pytorch/pytorch, python, distributions) or
where it says a thing plainly ("cuda" and a version); what a tag leaves out is looked up in the facts, and what those
leave out stays unobserved with the reason.  A value that an image surely does not have (CUDA in python) is unsupported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from envkit.dockerfile.published import (
    CUDNN,
    NOT_LETTER,
    bare_cudnn,
    fact,
    of_no_release,
    published,
    pytorch_exists,
    row_of,
)
from envkit.facts import BaseImageRow, Facts, ImageTag
from envkit.model import Observed, Span
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Base
from envkit.versions import Cuda

TAG = "the tag says so"

_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # Docker's default for Linux
_GPU = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


@dataclass(frozen=True, slots=True)
class Reference:
    """An image reference; ``registry`` is "" for Docker Hub, ``path`` is without it and without "library/"."""

    registry: str
    path: str
    tag: str
    digest: str

    @property
    def repository(self) -> str:
        """The repository as people write it."""
        return f"{self.registry}/{self.path}" if self.registry else self.path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


def split(reference: str) -> Reference:
    """The parts of "host:port/path:tag@digest"; a registry has a dot or a colon, or is "localhost" (distribution)."""
    rest, _, digest = reference.strip().strip("\"'").partition("@")
    head, slash, tail = rest.rpartition("/")
    name, _, tag = tail.partition(":")
    path = f"{head}{slash}{name}"
    first, slash, after = path.partition("/")
    registry = ""
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first.lower(), after
    if registry in _HUB:
        registry = ""
    if not registry:
        path = path.removeprefix("library/")
    return Reference(registry, path, tag, digest)


# ---------------------------------------------------------------- what any tag may say

# "cuda:1.4.0" is the image's own release: no image is of a CUDA with one digit below 7.
_CUDA_DOTTED = pattern(
    NOT_LETTER + r"(?:cuda|cudatk|cu)[-_.:]?v?((?![1-6]\.)[0-9]{1,2}\.[0-9]{1,2}(?:\.[0-9]{1,2})?)(?![0-9])", re.I
)
_CUDA_SHORT = pattern(NOT_LETTER + r"(?:cuda|cudatk|cu)[-_]?([0-9]{2,4})(?![0-9.])", re.I)
_OS = pattern(
    NOT_LETTER + r"(ubuntu|debian|rockylinux|rocky|centos|ubi|almalinux|oraclelinux|amzn|amazonlinux|fedora|alpine)"
    r"[-_:]?([0-9]{1,4}(?:\.[0-9]{1,2})?)(?![0-9])",
    re.I,
)
_PYTHON = pattern(
    NOT_LETTER + r"(?:python|py|cp|cpython)[-_:]?(?:(3)\.?(1?[0-9])|(2)\.?(7))(\.[0-9]{1,2})?(?![0-9])", re.I
)
_TORCH = pattern(
    NOT_LETTER + r"(?:pytorch|torch|pth|pt|th)(?:[-_]release)?[-_:]?v?([0-2]\.[0-9]{1,2}(?:\.[0-9]{1,2})?)(?![0-9])",
    re.I,
)
_TORCH_SHORT = pattern(NOT_LETTER + r"(?:torch|pt)([12])([0-9]{1,2})([0-9])(?![0-9.])", re.I)
_LEADING_CUDA = pattern(r"((?![1-6]\.)[0-9]{1,2}\.[0-9]{1,2}(?:\.[0-9]{1,2})?)(?=$|[-_])")
_LEADING_TORCH = pattern(r"v?([0-2]\.[0-9]{1,2}\.[0-9]{1,2})(?=$|[-_+])")
_OTHER_RELEASE = pattern(r"torchserve|torchvision|lightning")  # whose tags tell their own release
_ROCM = pattern(NOT_LETTER + r"rocm[-_]?[0-9]", re.I)
_ROCM_NAME = pattern(r"^rocm/|/rocm(?:$|[-_])|[-_]rocm$")
_CPU = pattern(r"(?:^|[-_.])cpu(?:$|[-_.])", re.I)
_FLAVORS = ("devel", "runtime", "base")
# The system of ROS's images by the name of its release, two of which are names of Ubuntu's too; lunar and rolling were
# made on several.  Source: osrf/docker_images at 368c7cdeca65, the folders ros/RELEASE/ubuntu and their Dockerfiles.
ROS = {
    **dict.fromkeys(("indigo", "jade"), "ubuntu14.04"),
    **dict.fromkeys(("kinetic", "ardent"), "ubuntu16.04"),
    **dict.fromkeys(("melodic", "bouncy", "crystal", "dashing", "eloquent"), "ubuntu18.04"),
    **dict.fromkeys(("noetic", "foxy", "galactic"), "ubuntu20.04"),
    **dict.fromkeys(("humble", "iron"), "ubuntu22.04"),
    **dict.fromkeys(("jazzy", "kilted"), "ubuntu24.04"),
    **dict.fromkeys(("lunar", "rolling"), ""),
}
# A tag whose last word is a long-term release of Ubuntu, as Vast.ai writes it; months of NVIDIA's
# stand first.
_LAST_UBUNTU = pattern(r"[A-Za-z0-9]-((?:1[468]|2[0246])\.04)$")
_OS_NAMES = {"rocky": "rockylinux", "amazonlinux": "amzn"}
_WORDS = pattern(r"[-_.:/]")


def _cuda(text: str) -> str:
    found = _CUDA_DOTTED.search(text)
    if found:
        return found[1]
    for found in _CUDA_SHORT.finditer(text):
        digits = found[1]
        if len(digits) == 2 and digits[0] in "789":
            return f"{digits[0]}.{digits[1]}"
        if len(digits) > 2 and digits[0] == "1":
            return ".".join((digits[:2], *digits[2:]))
    return ""


def _minor(cuda: str) -> str:
    """What torch says of its CUDA: two numbers."""
    return ".".join(cuda.split(".")[:2])


def _os(text: str, facts: Facts) -> str:
    found = _OS.search(text)
    if found:
        name, number = found[1].lower(), found[2]
        name = _OS_NAMES.get(name, name)
        if name == "ubuntu":
            if len(number) == 4:
                number = f"{number[:2]}.{number[2:]}"
            return f"ubuntu{number}" if re.fullmatch(r"[0-9]{2}\.[0-9]{2}", number) else ""
        if name == "alpine":
            return f"alpine{number}" if "." in number else ""
        return f"{name}{number.partition('.')[0]}"
    last = _LAST_UBUNTU.search(text)
    if last:
        return f"ubuntu{last[1]}"
    jetpack = _JETPACK.search(text)
    if jetpack:
        return _JETSON_SYSTEMS[_JETPACKS[jetpack[1]]]
    for word in _WORDS.split(text.lower()):
        row = facts.os_life(word) if word.isalpha() and word not in ROS else None
        if row is not None and row.codename == word:
            return row.name
    return ""


def _python(text: str) -> str:
    found = _PYTHON.search(text)
    return f"{found[1] or found[3]}.{found[2] or found[4]}{found[5] or ''}" if found else ""


def _torch(text: str) -> str:
    found = _TORCH.search(text)
    if found:
        return found[1]
    found = _TORCH_SHORT.search(text)
    if found is None or (found[1], found[2]) == ("1", "1"):  # "torch112" is one of two releases
        return ""
    return f"{found[1]}.{found[2]}.{found[3]}"


def _flavor(text: str) -> str:
    words = _WORDS.split(text.lower())
    return next((flavor for flavor in _FLAVORS if flavor in words), "")


def _said(value: object, missing: str, via: str = TAG) -> Observed[str]:
    return Observed.of(str(value), via) if value else Observed.lost(missing)


def _none(via: str) -> Observed[str]:
    return Observed.unsupported(via)


def _plain(base: Base, reference: Reference, facts: Facts, where: str = "the tag") -> Base:
    """``base`` with what its tag plainly says, whoever made it; of images that nobody here knows also their name."""
    text = reference.tag
    cuda, torch = _cuda(text), _torch(text)
    if base.family == "unknown" and not (cuda or torch) and (_cuda(reference.name) or _torch(reference.name)):
        text = f"{reference.name}-{text}" if text else reference.name
        cuda, torch = _cuda(text), _torch(text)
    if not torch and "torch" in reference.name and not _OTHER_RELEASE.search(reference.name):
        found = _LEADING_TORCH.match(text)
        torch = found[1] if found else ""
    if not cuda and re.search(r"(?:^|[-_])cuda$", reference.name):
        found = _LEADING_CUDA.match(text)
        cuda = found[1] if found else ""
    rocm = bool(_ROCM.search(text) or _ROCM_NAME.search(reference.path))
    cudnn = CUDNN.search(text)
    flavor = _flavor(text) if cuda else ""
    why = f"{where} does not say" if text else "there is no tag"
    base = replace(
        base,
        rocm=rocm,
        cuda=_none("ROCm instead of CUDA") if rocm else _said(cuda, why),
        cudnn=_none("ROCm instead of CUDA") if rocm else _said(cudnn[1] or "" if cudnn else "", why),
        flavor=_said(flavor, why),
        os=_said(_os(text, facts), why),
        python=_said(_python(text) or _python(reference.name), why),
        torch=_said(torch, why),
        torch_cuda=_none("ROCm instead of CUDA") if rocm else _said(_minor(cuda) if torch else "", why),
        nvcc=Observed.of(True, TAG) if flavor == "devel" else Observed.lost(why),
        compiler=Observed.of(True, TAG) if flavor == "devel" else Observed.lost(why),
    )
    tegra = _JETSON_WITHIN.search(reference.tag) if _FOR_JETSON.search(f"{reference.path}:{reference.tag}") else None
    return _tegra(base, reference.tag, int(tegra[1])) if tegra is not None else base


def _without_gpu(base: Base, via: str) -> Base:
    """``base`` as an image that surely holds neither CUDA nor torch."""
    none, no = _none(via), Observed.of(False, via)
    return replace(base, cuda=none, cudnn=none, flavor=none, torch=none, torch_cuda=none, nvcc=no)


# ---------------------------------------------------------------- nvidia/cuda

_NVIDIA = pattern(r"([0-9]{1,2}\.[0-9]{1,2}(?:\.[0-9]{1,2})?)-(.+)")


def _nvidia(base: Base, reference: Reference, facts: Facts) -> Base:
    tag, via = reference.tag, f"tag {reference.tag}"
    base = _plain(base, reference, facts)
    found = _NVIDIA.match(tag)
    flavor, words = _flavor(tag), tag.split("-")
    row = row_of(f"nvidia/cuda:{tag}", facts)
    system = _os(tag, facts) or _label(words)
    if not system and row is not None and row.row.os is not None:
        base = replace(base, os=Observed.of(row.row.os, fact(row)))
    elif system:
        base = replace(base, os=Observed.of(system, via))
    if reference.path.endswith("nvidia/opengl"):  # numbered after its libglvnd
        no_cuda = _none("nvidia/opengl holds no CUDA")
        base = replace(base, cuda=no_cuda, cudnn=no_cuda, flavor=no_cuda, torch=no_cuda, torch_cuda=no_cuda)
        return replace(base, variables=_GPU, python=_none("nvidia/opengl holds no Python"))
    if not found:
        base = replace(base, flavor=_said(flavor, "the tag does not say", via))
        if tag in ("", "latest") and _official(reference):
            via = "NVIDIA's description of the image: the tag was removed"
            base = replace(base, retired=Observed.of(True, via), removed=True)
        return _compilers(base, flavor, via)
    cuda = found[1]
    cudnn = CUDNN.search(tag)
    if cudnn is None:
        version = _none(f"{via} has no cudnn") if flavor else Observed[str].lost("the tag names no flavor")
    elif cudnn[1]:
        version = Observed.of(cudnn[1], via)
    elif row is not None and row.row.cudnn is not None:
        version = Observed.of(str(row.row.cudnn), fact(row))
    else:
        major = bare_cudnn(facts)
        version = _said(major, "the facts do not know the cuDNN of this tag", f"{via}; all tags of its form hold it")
    no_torch, flavors = _none("nvidia/cuda holds no torch"), _said(flavor, "the tag names no flavor", via)
    base = replace(base, cuda=Observed.of(cuda, via), cudnn=version, flavor=flavors)
    base = replace(base, torch=no_torch, torch_cuda=no_torch, variables=_nvidia_variables(cuda, facts))
    if system.startswith("ubuntu"):
        base = replace(base, python=_none("nvidia/cuda holds no Python on Ubuntu"))
    if _official(reference) and base.sure and reference.path == "nvidia/cuda":
        exists, near = published(tag, cuda, row, facts)
        base = _retired(replace(base, exists=exists, near_tags=near), row)
    return _compilers(base, flavor, via)


def _official(reference: Reference) -> bool:
    return reference.registry in ("", "nvcr.io")


def _label(words: list[str]) -> str:
    """Names of systems that only nvidia/cuda uses, as it writes them."""
    return next((word for word in words if re.fullmatch(r"(?:cm|azl|opensuse|amzn|ubi|centos)[0-9]+", word)), "")


def _retired(base: Base, row: ImageTag | None) -> Base:
    """``base`` with whether its publisher retired the tag, and whether it is known to be gone."""
    if row is None or row.row.retired is None:
        return replace(base, retired=Observed.lost("the facts do not say"))
    removed = row.row.removed is True
    gone = f"; {row.row.note}" if removed else ""
    return replace(base, retired=Observed.of(row.row.retired, fact(row) + gone), removed=removed)


def _compilers(base: Base, flavor: str, via: str) -> Base:
    if not flavor:
        return base
    there = Observed.of(flavor == "devel", f"{via}: {flavor} flavor")
    return replace(base, nvcc=there, compiler=there)


def _nvidia_variables(cuda: str, facts: Facts) -> Mapping[str, str]:
    variables = {**_GPU, "CUDA_VERSION": cuda, "PATH": f"/usr/local/nvidia/bin:/usr/local/cuda/bin:{PATH}"}
    library_path = facts.library_path("nvidia/cuda", Cuda(cuda))
    return {**variables, "LD_LIBRARY_PATH": library_path} if library_path else variables


# ---------------------------------------------------------------- pytorch/pytorch

_PYTORCH = pattern(
    r"v?([0-9]+\.[0-9]+(?:\.[0-9]+)?)-cuda([0-9]+(?:\.[0-9]+){0,2})(?:-cudnn([0-9]+(?:\.[0-9]+)*))?-(devel|runtime)"
)
_PYTORCH_PART = pattern(r"v?([0-9]+\.[0-9]+\.[0-9]+)(?:-(devel|runtime))?")


def _pytorch(base: Base, reference: Reference, facts: Facts) -> Base:
    tag, via = reference.tag, f"tag {reference.tag}"
    found = _PYTORCH.fullmatch(tag)
    variables = {
        **_GPU,
        "PATH": f"/usr/local/nvidia/bin:/usr/local/cuda/bin:/opt/conda/bin:{PATH}",
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
    }
    if not found:
        part = _PYTORCH_PART.fullmatch(tag)
        base = _plain(base, reference, facts)
        if part:
            base = replace(base, torch=Observed.of(part[1], via))
            base = _beside(base, part[1], part[2] or "", facts)
        elif tag in ("", "latest"):
            base = replace(base, torch=Observed.lost("the tag moves with each release"))
        return replace(base, variables=variables)
    torch, cuda, cudnn, flavor = found.groups()
    base = replace(base, cuda=Observed.of(cuda, via), cudnn=_said(cudnn, "the tag does not say", via))
    base = replace(base, torch=Observed.of(torch, via), torch_cuda=Observed.of(_minor(cuda), via))
    base = replace(base, flavor=Observed.of(flavor, via), variables={**variables, "PYTORCH_VERSION": torch})
    base = _beside(base, torch, flavor, facts)
    if not reference.registry and base.sure:
        exists, near = pytorch_exists(tag, torch, cuda, cudnn or "", flavor, facts)
        base = replace(base, exists=exists, near_tags=near)
    return base


def _beside(base: Base, torch: str, flavor: str, facts: Facts) -> Base:
    """``base`` with what images of the release ``torch`` hold beside it."""
    row = facts.pytorch_image(torch)
    why = f"the facts do not know what the images of torch {torch} hold"
    via = f"facts: pytorch/pytorch of torch {torch} [{row.source}; seen {row.seen}]" if row else ""
    python, system, gcc = (row.python, row.os, row.gcc) if row else (None, None, None)
    if flavor == "devel":
        compiler = nvcc = Observed.of(True, "devel flavor, built on nvidia/cuda devel")
    else:
        compiler = Observed.of(gcc, via) if gcc is not None and flavor else Observed[bool].lost(why)
        nvcc = Observed.of(False, "runtime flavor") if flavor else Observed[bool].lost("the tag names no flavor")
    return replace(base, python=_said(python, why, via), os=_said(system, why, via), compiler=compiler, nvcc=nvcc)


# ---------------------------------------------------------------- NVIDIA's other images

_MONTH = pattern(r"([0-9]{2}\.[0-9]{2})(?=$|-)")
# Images of one month that NVIDIA's frameworks support matrix gives one CUDA stack.
_MONTHLY = (
    *("tensorflow", "jax", "mxnet", "tritonserver", "tensorrt", "paddlepaddle", "tensorrtserver", "inferenceserver"),
    *("digits", "caffe", "caffe2", "cntk", "theano", "torch", "vllm"),
)
# Those whose Python NVIDIA's notes do not tell for each month; it was Python 2.7 in many.
_OTHER_PYTHON = ("digits", "caffe", "caffe2", "cntk", "theano", "torch")

_JETSON = pattern(r"r([0-9]{2})(?=$|[.-])")  # the release of Linux for Tegra
# Those that hold a framework in the python3 of their system.  Source: dusty-nv/jetson-containers, Dockerfile.pytorch,
# Dockerfile.tensorflow and Dockerfile.ml of r32, which install wheels for it with pip3.
_JETSON_PYTHON = ("l4t-pytorch", "l4t-ml", "l4t-tensorflow")
_JETSON_DEVEL = ("l4t-jetpack", "l4t-pytorch", "l4t-ml", "l4t-tensorflow")
# Of JetPack 5; before, the machine's own CUDA was mounted into the container. l4t-base has had none since.  Source:
# dusty-nv/jetson-containers at dd206bfe71f9, jetson_containers/l4t_version.py, get_l4t_base.
_WITH_TOOLKIT = 34
# The system of each release since the one named; source: dusty-nv/jetson-containers at dd206bfe71f9,
# jetson_containers/l4t_version.py, get_lsb_release.
_JETSON_SYSTEMS = {36: "ubuntu22.04", 34: "ubuntu20.04", 32: "ubuntu18.04"}
_JETSON_LAST = 36
_JETPACK = pattern(r"(?:^|-)(?:jetpack|jp)([456])(?![0-9])", re.I)
_JETPACKS = {"4": 32, "5": 34, "6": 36}  # the first release of Linux for Tegra of each JetPack
# Images of another framework, which have no torch; source: NVIDIA's frameworks support matrix.
_WITHOUT_TORCH = ("tensorflow", "jax", "mxnet", "tensorrt", "paddlepaddle")


def _of_month(base: Base, name: str, month: str, facts: Facts) -> Base:
    """``base`` as one that never was, where no month has its number, or NVIDIA passed that month over.

    The rows of PyTorch's images are those of NVIDIA's release notes, whole from the first to the last.
    """
    rows = [row for row in (*facts.ngcs_wide, *facts.ngcs) if row.image.endswith("/pytorch")]
    known = sorted({row.tag[:5] for row in rows})
    passed = name == "pytorch" and known[0] < month < known[-1] and month not in known
    if 1 <= int(month[3:]) <= 12 and not passed:
        return base
    via = "NVIDIA's release notes have none of that month" if passed else "a year has twelve months"
    near = [row.tag for row in rows if row.tag[:2] == month[:2]] if name == "pytorch" else []
    return replace(base, exists=Observed.of(False, via), near_tags=tuple(sorted(set(near))[-3:]))


def _ngc(base: Base, reference: Reference, facts: Facts) -> Base:
    name, tag = reference.name, reference.tag
    base = _plain(base, reference, facts)
    month = _MONTH.match(tag)
    if month and (name == "pytorch" or name in _MONTHLY):
        base = _of_month(base, name, month[1], facts)
    if name == "pytorch" and month:
        row = facts.ngc(tag) or facts.ngc(f"{month[1]}-py3")
        there = Observed.of(True, "NVIDIA's PyTorch image holds the toolkit and compilers")
        base = replace(base, nvcc=there, compiler=there, torch_cuda=Observed.lost("the facts do not say"))
        if row is None:
            return base
        via = f"facts: {row.image}:{row.tag} [{row.source}; seen {row.seen}]"
        why = f"the facts do not know it for {row.tag}"
        own = _minor(str(row.cuda)) if row.cuda else ""
        base = replace(base, cuda=_said(row.cuda, why, via), cudnn=_said(facts.ngc_cudnn(row), why, via))
        base = replace(base, torch=_said(row.torch, why, via), torch_cuda=_said(own, why, via))
        return replace(base, os=_said(row.os, why, via), python=_said(row.python, why, via), variables={**_GPU})
    if name in _MONTHLY and month:
        row = facts.ngc(f"{month[1]}-py3")
        if row is not None and "l4t" not in tag:
            via = f"facts: the stack of {month[1]}, as in {row.image}:{row.tag} [{row.source}; seen {row.seen}]"
            why = "the facts do not say"
            # Their Python is the system's; that of the old images of PyTorch was conda's.
            python = "" if "py2" in tag or name in _OTHER_PYTHON else facts.os_python(row.os or "")
            base = replace(base, cuda=_said(row.cuda, why, via), os=_said(row.os, why, via), variables={**_GPU})
            base = replace(base, python=_said(python, why, via))
            if base.cudnn.value is None:
                base = replace(base, cudnn=_said(facts.ngc_cudnn(row).partition(".")[0], why, via))
    jetson = _JETSON.match(tag) if name.startswith("l4t-") else None
    if jetson is not None:
        base = _tegra(base, tag, int(jetson[1]))
        release = f"{base.torch.value}.0"  # their tags name the minor alone, and each is its first release
        if facts.torch_builds(release):
            base = replace(base, torch=Observed.of(release, base.torch.via))
    if jetson is not None and name in _JETSON_PYTHON and base.python.missing:
        own = facts.os_python(base.os.value or "")
        base = replace(
            base, python=_said(own, "the facts do not know its Python", f"{name}: the python3 of its system")
        )
    if jetson is not None and name in _JETSON_DEVEL and int(jetson[1]) >= _WITH_TOOLKIT:
        there = Observed.of(True, "NVIDIA's images for Jetson hold the toolkit and compilers since JetPack 5")
        base = replace(base, nvcc=there, compiler=there)
    if jetson is not None and name == "l4t-base" and int(jetson[1]) >= _WITH_TOOLKIT:
        base = _without_gpu(base, "NVIDIA's base for Jetson holds no CUDA since JetPack 5")
    if name in _WITHOUT_TORCH and "torch" not in tag:
        none = _none(f"NVIDIA's image of {name} holds no torch")
        base = replace(base, torch=none, torch_cuda=none)
    if name == "tensorflow":
        there = Observed.of(True, "NVIDIA's TensorFlow image holds the toolkit and compilers")
        base = replace(base, nvcc=there, compiler=there)
    return base


_FOR_JETSON = pattern(r"jetson|l4t|tegra", re.I)
_JETSON_WITHIN = pattern(r"(?:^|-)r([0-9]{2})\.[0-9]")


def _jetson_containers(base: Base, reference: Reference, facts: Facts) -> Base:
    """An image of dusty-nv/jetson-containers, whose tags end with the release of Linux for Tegra, and of late with
    that of Ubuntu."""
    base = _plain(base, reference, facts)
    found = _JETSON_WITHIN.search(reference.tag)
    return _tegra(base, reference.tag, int(found[1])) if found is not None else base


def _tegra(base: Base, tag: str, release: int) -> Base:
    """The base with the Ubuntu of a release of Linux for Tegra."""
    since = next((first for first in _JETSON_SYSTEMS if first <= release <= _JETSON_LAST), 0)
    if not since or base.os.value is not None:
        return base
    return replace(base, os=Observed.of(_JETSON_SYSTEMS[since], f"tag {tag}: Linux for Tegra r{release}"))


# ---------------------------------------------------------------- AMD's images

_ROCM_DEVEL = pattern(r"dev-ubuntu-([0-9]{2}\.[0-9]{2})")


def _rocm(base: Base, reference: Reference, facts: Facts) -> Base:
    """An image of AMD's; those to develop in are Ubuntu's with its python3, pip and a compiler, and hold no torch.

    Source: ROCm/ROCm-docker at c0dbf1d23029, dev/Dockerfile-ubuntu-20.04 to dev/Dockerfile-ubuntu-24.04-complete.
    """
    base = _plain(base, reference, facts)
    found = _ROCM_DEVEL.match(reference.name)
    if found is None:
        return base
    via, none = f"image {reference.name}", _none(f"{reference.path} holds no torch")
    system = f"ubuntu{found[1]}"
    python = _said(facts.os_python(system), "the facts do not know its Python", f"{via}: the python3 of {system}")
    base = replace(base, family="os", os=Observed.of(system, via), python=python, torch=none, torch_cuda=none)
    return replace(base, flavor=_none(via), compiler=Observed.of(True, via), nvcc=Observed.of(False, via))


# ---------------------------------------------------------------- images without CUDA

_PYTHON_TAG = pattern(r"([23](?:\.[0-9]+){1,2})(?:(?:a|b|rc)[0-9]+)?(?=$|-)")
_SMALL = ("slim", "alpine")


def _python_image(base: Base, reference: Reference, facts: Facts) -> Base:
    tag = reference.tag
    base = _without_gpu(base, "the python image holds no CUDA")
    found = _PYTHON_TAG.match(tag)
    why = "the tag names no minor version" if tag else "there is no tag"
    small = any(word in _WORDS.split(tag) or f"-{word}" in tag for word in _SMALL) or tag in _SMALL
    base = replace(base, python=_said(found and found[1], why, f"tag {tag}"))
    return _distribution(base, tag, small, facts)


def _distribution(base: Base, tag: str, small: bool, facts: Facts) -> Base:
    """``base`` with the system that a tag names, and the compiler that all but small images hold."""
    system = _os(tag, facts) or ("alpine" if "alpine" in tag else "")
    compiler = Observed.of(not small, f"tag {tag}: {'a slim' if small else 'a full'} image")
    return replace(base, os=_said(system, "the tag names no distribution", f"tag {tag}"), compiler=compiler)


def _uv(base: Base, reference: Reference, facts: Facts) -> Base:
    tag = reference.tag
    base = _without_gpu(base, "uv's images hold no CUDA")
    python = _python(tag)
    if python:
        base = replace(base, family="python", python=Observed.of(python, f"tag {tag}"))
    elif any(word in tag for word in ("debian", "bookworm", "trixie", "bullseye", "alpine")):
        base = replace(base, family="os")
    small = any(f"-{word}" in tag or tag.startswith(word) for word in _SMALL) or not python
    return _distribution(base, tag, small, facts)


# Names of official images and how their releases are called in the facts.
_SYSTEMS = {
    **{name: name for name in ("ubuntu", "debian", "alpine", "oraclelinux")},
    **{path: name for name in ("rockylinux", "almalinux", "centos", "fedora") for path in (name, f"{name}/{name}")},
    "amazonlinux": "amzn",
    "amazonlinux/amazonlinux": "amzn",
    "minideb": "debian",
    **dict.fromkeys(("buildpack-deps", "opensuse/leap", "archlinux", "kalilinux/kali-rolling"), ""),
}
_NUMBER = pattern(r"v?([0-9]+(?:\.[0-9]+)?)")
_UBI = pattern(r"(?:ubi|rhel)([0-9]{1,2})(?:$|[-/])")


def _system(base: Base, reference: Reference, facts: Facts, name: str) -> Base:
    tag = reference.tag
    base = _without_gpu(base, "a distribution's image holds no CUDA")
    words = _WORDS.split(tag.lower())
    label = next((row.name for word in words if word.isalpha() and (row := facts.os_life(word)) is not None), "")
    number = _NUMBER.match(tag)
    stream = re.search(r"stream-?([0-9]+)", tag)
    if name == "centos" and stream:
        label = f"centos-stream{stream[1]}"
    elif not label and number and name:
        major = number[1].partition(".")[0]
        label = f"{name}{number[1] if name in ('ubuntu', 'alpine') else major}"
        if name == "ubuntu" and "." not in number[1]:
            label = ""
        if name == "alpine" and "." not in number[1]:
            label = "alpine"
    compiler = Observed.of(reference.name == "buildpack-deps", f"image {reference.path}")
    why = "the tag names no release" if tag else "there is no tag"
    python = _none("a plain Ubuntu or Debian image holds no Python") if name in ("ubuntu", "debian") else base.python
    return replace(base, os=_said(label, why, f"tag {tag}"), compiler=compiler, python=python)


def _ubi(base: Base, reference: Reference, facts: Facts) -> Base:
    base = _without_gpu(base, "a distribution's image holds no CUDA")
    found = _UBI.search(f"{reference.path}-")
    python = re.search(r"python-([23])([0-9]+)", reference.name)
    via = f"image {reference.path}"
    if python:
        base = replace(base, family="python", python=Observed.of(f"{python[1]}.{python[2]}", via))
    compiler = Observed.lost("not known") if python else Observed.of(False, via)
    system = _said(f"ubi{found[1]}" if found else "", "the name tells no release", via)
    return replace(base, os=system, compiler=compiler)


def _conda(base: Base, reference: Reference, facts: Facts) -> Base:
    plain = _plain(base, reference, facts)
    if re.search(r"(?:mini|ana)conda|forge", reference.path):  # micromamba's and pixi's have nothing there
        base = replace(base, variables={"PATH": f"/opt/conda/bin:{PATH}"})
        plain = replace(plain, variables=base.variables)
    if not plain.cuda.missing:
        return replace(plain, family="conda", torch=_none("conda's images hold no torch"))
    base = _without_gpu(base, "the image of a conda installer holds no CUDA")
    if _SMALL_CONDA.fullmatch(reference.path):
        base = replace(base, compiler=Observed.of(False, f"image {reference.path}"))
    return replace(base, os=plain.os, python=plain.python)


def _ros(base: Base, reference: Reference, facts: Facts) -> Base:
    """ROS's own images, Ubuntu or Debian with ROS and without CUDA; a codename in the tag goes before the release."""
    base = _without_gpu(base, "ROS's images hold no CUDA")
    named, release = _os(reference.tag, facts), _WORDS.split(reference.tag.lower())[0]
    system = named or ROS.get(release, "")
    return replace(base, os=_said(system, "the tag names no release of ROS", f"tag {reference.tag}"))


def _jupyter(base: Base, reference: Reference, facts: Facts) -> Base:
    plain = _plain(base, reference, facts)
    if "cuda" in reference.tag or re.search(r"torch|tensorflow|gpu|cuda", reference.name):
        return plain
    return replace(_without_gpu(base, "the image holds no CUDA"), os=plain.os, python=plain.python)


def _devcontainer(base: Base, reference: Reference, facts: Facts) -> Base:
    plain = _plain(base, reference, facts)
    base = replace(_without_gpu(base, "the image holds no CUDA"), os=plain.os)
    if reference.name in ("miniconda", "anaconda"):
        return replace(base, family="conda")
    if reference.name.startswith("python"):
        version = re.sub(r"^(?:dev-)?[0-9](?:\.[0-9]+){0,2}-(?=[23]\.)", "", reference.tag)
        found = _PYTHON_TAG.match(version)
        return replace(base, family="python", python=_said(found[1] if found else "", "the tag does not say"))
    if reference.name in ("base", "ubuntu", "debian"):
        return replace(base, family="os")
    return base


def _tensorflow(base: Base, reference: Reference, facts: Facts) -> Base:
    # The releases behind it have no tags with py3, so that those of the newest stayed at the last one that has.
    last = ".".join(map(str, _PYTHON3_ALONE[-1][0]))
    tag = re.sub(r"^latest(?=-.*\bpy3\b)", last, reference.tag)
    base = replace(base, torch=_none("the image holds no torch"), torch_cuda=_none("the image holds no torch"))
    base = _of_tensorflow(base, tag, facts)
    if "gpu" not in _WORDS.split(tag):
        return _without_gpu(base, "without gpu in its tag the image holds no CUDA") if tag else base
    found = re.match(r"([0-9]+\.[0-9]+)(?:\.[0-9]+)?", tag)
    row = facts.gpu_package("tensorflow-gpu", found[1]) or facts.gpu_package("tensorflow", found[1]) if found else None
    if row is None:
        return replace(base, cuda=Observed.lost("the facts do not know its CUDA"), variables={**_GPU})
    via = f"facts: tensorflow {found[1] if found else ''} [{row.source}; seen {row.seen}]"
    cudnn = _said(row.cudnn, "the facts do not know its cuDNN", via)
    return replace(base, cuda=_said(row.cuda, "the facts do not know its CUDA", via), cudnn=cudnn, variables={**_GPU})


_TENSORFLOW = pattern(r"([0-9]+\.[0-9]+)(?:\.([0-9]+))?(?:$|-|rc)|latest(?:$|-)")
_PYTHON3_ALONE = (((1, 15), 1), ((2, 1), 1))  # the first patch releases of a minor whose tags all have Python 3


def _of_tensorflow(base: Base, tag: str, facts: Facts) -> Base:
    """``base`` with the system and the Python of its release; old tags without py3 hold Python 2."""
    found = _TENSORFLOW.match(tag)
    row = facts.base_image("tensorflow/tensorflow", tag) if found else None
    if found is None or row is None:
        return base
    base = _of_row(base, row, tag)
    if found[1] and "py3" not in tag:
        minor = tuple(map(int, found[1].split(".")))
        first = next((patch for of, patch in _PYTHON3_ALONE if of == minor), 0 if minor > (2, 1) else 99)
        if int(found[2] or 0) < first:
            python = facts.os_python2(row.os or "")
            return replace(base, python=_said(python, "Python 2", "tags without py3 of this release hold Python 2"))
    return base


_ODD = pattern(r"(?:^|-)(?:alpine|windowsservercore|nanoserver)")  # a system that is none of the rows'


_MOVING = frozenset({"", "latest", "stable", "oldstable", "oldoldstable", "rolling", "minimal"})


def moves(base: Base) -> bool:
    """Whether the tag of a distribution's own image is one release today and another one later."""
    return base.family == "os" and not base.rocm and base.tag.partition("-")[0] in _MOVING


def _held(base: Base, name: str, reference: Reference, facts: Facts) -> Base:
    """``base`` with what the facts know of its image; what its tag says goes before it."""
    tag = reference.tag
    if not base.sure or (reference.digest and not tag) or _ODD.search(tag) or name == "tensorflow/tensorflow":
        return base
    open_ones = (seen.missing and not seen.is_unsupported for seen in (base.os, base.python, base.torch, base.cuda))
    if not any(open_ones):
        return base  # the table is read for those alone that it could tell something
    row = facts.base_image(name, tag)
    if row is not None:
        base = _of_row(base, row, tag)
    return _with_pinned_torch(base, name, tag, facts)


_PINS_TORCH = {"vllm/vllm-openai": "vllm", "lmsysorg/sglang": "sglang"}  # images whose tag is the package's release


def _with_pinned_torch(base: Base, name: str, tag: str, facts: Facts) -> Base:
    """``base`` with the torch that its package asks for exactly."""
    found = re.match(r"v?([0-9]+\.[0-9]+\.[0-9]+(?:\.?post[0-9]+)?)", tag) if name in _PINS_TORCH else None
    row = facts.torch_need(_PINS_TORCH[name], found[1]) if found and not base.rocm and base.torch.missing else None
    if row is None or row.torch is None or not row.torch.startswith("=="):
        return base
    via = f"facts: {row.package} {found[1] if found else ''} asks for torch{row.torch} [{row.source}; seen {row.seen}]"
    torch_cuda = Observed.of(_minor(base.cuda.value), via) if base.cuda.value else base.torch_cuda
    return replace(base, torch=Observed.of(row.torch.removeprefix("=="), via), torch_cuda=torch_cuda)


def _of_row(base: Base, row: BaseImageRow, tag: str) -> Base:
    """``base`` with what a row says of it where its tag says nothing."""
    via = f"facts: {row.image}:{tag or 'latest'} [{row.source}; seen {row.seen}]"

    def known(seen: Observed[str], value: object) -> Observed[str]:
        return Observed.of(str(value), via) if value is not None and seen.missing and not seen.is_unsupported else seen

    compiler = base.compiler
    if row.compiler is not None and compiler.missing:
        compiler = Observed.of(row.compiler, via)
    torch_cuda = known(
        base.torch_cuda, _minor(str(row.cuda)) if row.cuda is not None and row.torch is not None else None
    )
    base = replace(base, os=known(base.os, row.os), python=known(base.python, row.python), compiler=compiler)
    return replace(base, cuda=known(base.cuda, row.cuda), torch=known(base.torch, row.torch), torch_cuda=torch_cuda)


_DEEP_LEARNING = pattern(r"pytorch-(?:gpu|cu([0-9]{3})|cpu|xla)\.([0-9])-([0-9]{1,2})(?:\.py([23])([0-9]{1,2}))?")


def _google(base: Base, reference: Reference, facts: Facts) -> Base:
    base = _plain(base, reference, facts)
    found = _DEEP_LEARNING.match(reference.name)
    if not found:
        return base
    via = f"image {reference.name}"
    if found[1]:
        cuda = Observed.of(f"{found[1][:2]}.{found[1][2]}", via)
        base = replace(base, cuda=cuda, torch_cuda=cuda)
    if found[4]:
        base = replace(base, python=Observed.of(f"{found[4]}.{found[5]}", via))
    return replace(base, torch=Observed.of(f"{found[2]}.{found[3]}", via))


def _tool(base: Base, reference: Reference, facts: Facts, name: str) -> Base:
    """An official image of a language, a server or a tool, whose tag may end with the system that it is made on."""
    if _cuda(reference.tag):
        return _plain(base, reference, facts)
    base = _without_gpu(base, f"the image {name} holds no CUDA")
    system = _os(f"ubuntu{reference.tag}" if name == "rocker/r-ubuntu" else reference.tag, facts)
    python = _python(reference.tag)
    if python:
        base = replace(base, family="python", python=Observed.of(python, f"tag {reference.tag}"))
    return replace(base, os=_said(system, "the tag does not say", f"tag {reference.tag}"))


# ---------------------------------------------------------------- who made it

Reader = Callable[[Base, Reference, Facts], Base]

_WITHOUT = pattern(  # official images of languages, servers and tools; none has CUDA
    r"(?:node|golang|rust|openjdk|eclipse-temurin|ruby|php|perl|gcc|nginx|redis|postgres|mysql|mariadb|mongo|busybox|httpd"
    r"|caddy|traefik|haproxy|memcached|rabbitmq|maven|gradle|swift|julia|r-base|docker|bash|curlimages/curl|alpine/git"
    r"|hadolint/hadolint|oven/bun|denoland/deno|rocker/.+|tiangolo/uvicorn-.+)"
)
# Without a compiler.  Source: ContinuumIO/docker-images at 027bce7a1418, miniconda3/debian/Dockerfile;
# conda-forge/miniforge-images at 01b5f660a1e4, ubuntu/Dockerfile.
_SMALL_CONDA = pattern(r"continuumio/miniconda3|condaforge/(?:miniforge3|mambaforge)")
_CONDA = pattern(
    r"(?:.*/)?(?:continuumio/(?:mini|ana)conda[23]?|condaforge/.+|mambaorg/micromamba|conda/.+|(?:mini|ana)conda3"
    r"|mambaorg/.+|prefix-dev/pixi|ghcr\.io/prefix-dev/pixi)"
)


def _official_name(reference: Reference) -> str:
    """The name of an official image wherever it is copied to, else the path of the repository."""
    path = reference.path
    if reference.registry == "public.ecr.aws":
        path = path.removeprefix("docker/").removeprefix("ubuntu/")
    last = path.removeprefix("library/").rpartition("/library/")[2] or path
    return re.sub(r"^(?:library|amd64|arm64v8|i386)/", "", last)


def _family(reference: Reference) -> tuple[str, Reader]:
    """The family of an image and what reads it, by its repository."""
    path, registry = reference.path, reference.registry
    if re.search(r"(?:^|/)nvidia/(?:cuda|cudagl|cuda-arm64|cuda-ppc64le|opengl)$", path):
        return "nvidia", _nvidia
    if re.search(r"(?:^|/)pytorch/pytorch$", path):
        return "pytorch", _pytorch
    if registry == "nvcr.io" or path.startswith("nvcr.io/"):
        return "ngc", _ngc
    if (registry, path) == ("ghcr.io", "nvidia/jax"):
        return "other", _ngc
    last = _official_name(reference)
    if last == "python":
        return "python", _python_image
    if (registry, path) in (("ghcr.io", "astral-sh/uv"), ("", "astral/uv")):
        return "other", _uv
    if registry in ("registry.access.redhat.com", "registry.redhat.io") or re.match(r"(?:redhat/)?ubi[0-9]+", path):
        return "os", _ubi
    if registry == "mcr.microsoft.com" and "devcontainers" in path:
        return "other", _devcontainer
    if last in _SYSTEMS:
        name = _SYSTEMS[last]
        return "os", lambda base, reference, facts: _system(base, reference, facts, name)
    if registry == "quay.io" and path == "centos/centos":
        return "os", lambda base, reference, facts: _system(base, reference, facts, "centos")
    if _CONDA.fullmatch(path):
        return "conda", _conda
    if re.fullmatch(r"(?:(?:osrf|arm64v8|amd64)/)?ros", last):
        return "other", _ros
    if path.startswith("jupyter/"):
        return "conda", _jupyter
    if path == "tensorflow/tensorflow":
        return "other", _tensorflow
    if path.startswith("deeplearning-platform-release/"):
        return "other", _google
    if not registry and _WITHOUT.fullmatch(last):
        return "other", lambda base, reference, facts: _tool(base, reference, facts, last)
    if path.startswith("dustynv/"):
        return "other", _jetson_containers
    if path.startswith("rocm/"):
        return "other", _rocm
    if re.match(r"(?:runpod|paperspace|vllm|huggingface|anibali|cnstark|lmsysorg|rapidsai)/", path):
        return "other", _plain
    return "unknown", _plain


def base(reference: str, span: Span, facts: Facts, *, sure: bool = True, platform: str = "") -> Base:
    """The external image ``reference`` and what it holds.

    ``span`` is where the file names it; ``sure`` is False where a part of the reference depends on what the file does
    not settle: then only what the settled part says is observed, and whether the tag exists is not judged.  Never
    raises.
    """
    parts = split(reference)
    found = Base(reference, parts.repository, parts.tag, parts.digest, span, sure, platform)
    if reference == "scratch":
        nothing = _without_gpu(found, "scratch is empty")
        empty = _none("scratch is empty")
        return replace(nothing, scratch=True, os=empty, python=empty, compiler=Observed.of(False, "scratch is empty"))
    if "$" in parts.tag:
        # a word with an unknown part says nothing: "X.$MINOR-base" must not be read as a version
        known = [word for word in parts.tag.split("-") if not re.search(r"[${}]", word)]
        parts = replace(parts, tag="-".join(known))
        found = replace(found, sure=False)
    if "$" in parts.path:
        return _plain(replace(found, sure=False), parts, facts)
    family, read = _family(parts)
    read_base = of_no_release(read(replace(found, family=family), parts, facts), parts.name)
    named = _official_name(parts)
    return _held(read_base, named if "/" not in named else parts.repository, parts, facts)


def holds_torch(base: Base) -> bool:
    """Whether the image is one of torch, though neither its tag nor a fact says which."""
    if base.torch.is_unsupported or not base.sure:
        return False
    name = base.repository.rsplit("/", 1)[-1]
    return "pytorch" in name.split("-") or name in ("vllm-openai", "sglang")
