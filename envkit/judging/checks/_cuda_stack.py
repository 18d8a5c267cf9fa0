"""What several checks of Dockerfiles ask about the CUDA in an image: of bases, torches, toolkits and frameworks."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from envkit.dockerfile.requirements import PYTHONS, admits, allows, pin, requires_torch
from envkit.dockerfile.torches import nightly, of_install, variant_of
from envkit.facts import ANY_TORCH, Facts, TorchRow
from envkit.judging.checks._dockerfile import own, resolved_anew
from envkit.judging.checks._torch_fit import Build, cited
from envkit.model import Observed, Reason
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Install, Stage, Torch

SYSTEM = ("apt", "dnf", "apk", "yum", "zypper")
PYTHONIC = ("pip", "uv", "poetry", "conda")


def said(observed: Observed[str]) -> str:
    """What was observed, "" where nothing was."""
    return "" if observed.missing or observed.value is None else observed.value


def cuda_of_base(base: Base) -> str:
    """The CUDA of a base as far as it is known, "" otherwise."""
    return said(base.cuda)


def without_cuda(base: Base) -> bool:
    """Whether a base surely holds no CUDA."""
    return base.cuda.is_unsupported


def rocm(dockerfile: Dockerfile) -> bool:
    """Whether the image is for another maker's GPUs."""
    torch = dockerfile.torch
    return dockerfile.base.rocm or (torch is not None and torch.cuda.is_unsupported)


def major(version: str) -> str:
    """The first number."""
    return version.partition(".")[0]


def minor(version: str) -> str:
    """The first two numbers; "" for a version that has one alone."""
    parts = version.split(".")
    return ".".join(parts[:2]) if len(parts) > 1 else ""


def stage_of(install: Install, dockerfile: Dockerfile) -> Stage:
    """The stage that does an install; the target where the record does not show it."""
    for index in (*reversed(dockerfile.lineage), *dockerfile.brought):
        for step in dockerfile.stages[index].steps:
            if any(one.span == install.span and one.name == install.name for one in step.installs):
                return dockerfile.stages[index]
    return dockerfile.target


# ---------------------------------------------------------------- which torch

# They ask for one torch each, so that what is newest on the index is not what one gets beside a pinned one of them.
_PINNING = frozenset({"torchvision", "torchaudio", "torchtext", "torchdata", "xformers", "vllm", "sglang", "triton"})


def least_build(torch: Torch, dockerfile: Dockerfile, facts: Facts) -> Build | None:
    """The build that an unpinned torch of the default index is today at least; None where that is not certain.

    pip takes the newest release that has a wheel for the Python, and releases to come are for no older CUDA.
    """
    install = torch.install
    if install is None or not _takes_newest(install) or not _from_default_index(install, torch):
        return None
    near = _from_its_step(dockerfile, install)
    by_poetry = install.manager == "poetry"
    open_ = [one for one in own(dockerfile.unread) if not (by_poetry and resolved_anew(dockerfile, one))]
    if any(not each.path.endswith(".whl") for each in open_):
        return None
    if any(one.name in _PINNING and held_back(one) for one in near):
        return None
    tag, rows = _tag(install), _rows(facts)
    fitting = [row for row in rows if row.default and row.pythons and allows(install.specifier, str(row.torch))]
    if by_poetry:
        fitting = _for_project(dockerfile, install, fitting)
    else:
        fitting = [row for row in fitting if tag in (row.pythons or ())]
    bounds = tuple(_bounds(near, facts))
    fitting = [row for row in fitting if all(allows(bound, str(row.torch)) is not False for bound in bounds)]
    return max(fitting, key=lambda row: row.torch) if fitting else None


def _for_project(dockerfile: Dockerfile, install: Install, builds: Iterable[Build]) -> list[Build]:
    """The builds that poetry may take: a lock of its own is for each Python that the project is for, the oldest too."""
    asked = [each for each in dockerfile.installs if (each.manager, each.name) == ("poetry", "python")]
    specifier = next((each.specifier for each in asked if each.span.path == install.span.path), "")
    oldest = next((one for one in PYTHONS if specifier and admits(specifier, one) is not False), "")
    known = [row for row in builds if isinstance(row, TorchRow) and row.requires_python]
    return [row for row in known if oldest and admits(row.requires_python or "", oldest) is True]


def is_last(build: Build, torch: Torch, facts: Facts) -> bool:
    """Whether no release to come takes the place of the newest one: one that is newer already does not suit, because
    it has no wheel for the Python, or the specifier leaves it out."""
    if torch.install is None:
        return False
    tag, asked = _tag(torch.install), torch.install.specifier
    newer = [row for row in _rows(facts) if row.default and row.torch > build.torch]
    return any((row.pythons and tag not in row.pythons) or allows(asked, str(row.torch)) is False for row in newer)


def _tag(install: Install) -> str:
    """The tag of wheels for the Python of an install."""
    return "cp" + "".join(install.python.split(".")[:2])


def _rows(facts: Facts) -> tuple[Build, ...]:
    return (*facts.torches_old, *facts.torches)


def _from_its_step(dockerfile: Dockerfile, install: Install) -> tuple[Install, ...]:
    """The installs of the step that brings torch and those behind it; what was there before holds no newer one back."""
    order = list(dockerfile.installs)
    for step in dockerfile.steps:
        if any(one.span == install.span and one.name == install.name for one in step.installs):
            first = next((n for n, one in enumerate(order) if one in step.installs), 0)
            return tuple(order[first:])
    return tuple(order)


def _bounds(near: Iterable[Install], facts: Facts) -> Iterator[str]:
    """Up to which torch the packages beside it go, of the releases that are pinned or else of the newest that is let
    in: pip takes an older torch for them."""
    for one in near:
        rows = facts.torch_needs_of.get(one.name, ())
        let_in = [row for row in rows if not one.specifier or allows(one.specifier, row.until) is not False]
        row = facts.torch_need(one.name, one.version) if one.version else (let_in or rows or (None,))[-1]
        if row is not None and row.torch and not one.constraint:
            yield ",".join(clause for clause in row.torch.split(",") if not clause.startswith((">", "!")))


_LOWER_BOUNDS = pattern(r"(?:\s*>=?\s*[\w.+]+\s*,?)*")


def held_to_unknown(one: Install, facts: Facts) -> bool:
    """Whether it asks for one torch, and which one that is nobody read."""
    return (
        one.name in _PINNING
        and held_back(one)
        and not (one.version and (facts.torch_need(one.name, one.version) or facts.torches_of(one.name, one.version)))
    )


def held_back(install: Install) -> bool:
    """Whether what asks for a package lets its newest release not in: lower bounds alone do."""
    return bool(install.version or install.url or not _LOWER_BOUNDS.fullmatch(install.specifier))


def _takes_newest(install: Install) -> bool:
    """Whether the installer is free to take the newest release for a Python that is known."""
    if install.version or install.url or install.local or install.manager not in ("pip", "uv", "poetry"):
        return False
    known = install.python or install.manager == "poetry"  # which chooses by the project's Pythons
    return bool(known) and not (install.marker or install.locked or nightly(install))


def _from_default_index(install: Install, torch: Torch) -> bool:
    """Whether the newest torch comes from the default index, though other indexes may be asked too."""
    if install.index and not re.search(r"/simple/?$", install.index):
        return False
    if any(option.startswith("--torch-backend") for option in install.options):
        return False
    extras = (*install.extra_indexes, *install.find_links)
    if not extras:
        return True
    older = install.manager == "pip" and all(variant_of(url).startswith("cu") for url in extras)
    return older and torch.cuda.reason is Reason.NEWER_ON_DEFAULT_INDEX


@dataclass(frozen=True, slots=True)
class Implied:
    """The torch that comes along with a package which requires it, where nothing asks for torch itself."""

    by: Install
    torch: Torch


def implied(dockerfile: Dockerfile, facts: Facts) -> Implied | None:
    """What the first package that surely requires torch brings; None where torch is named, or may be in the base."""
    if (
        dockerfile.torch is not None
        or any(one.name == "torch" for one in dockerfile.installs)
        or own(dockerfile.unread)
    ):
        return None
    if not (dockerfile.base.torch.is_unsupported or dockerfile.base.family in ("os", "nvidia", "python")):
        return None
    if any(_installs_by_script(command) for step in dockerfile.steps for command in step.commands):
        return None
    for one in dockerfile.installs:
        torch = along_with(one, dockerfile, facts) if one.name not in _TORCHS_OWN else None
        if torch is not None:
            return Implied(one, torch)
    return None


_INSTALL_SCRIPT = pattern(r"(?:.*/)?\w*install\w*\.py")


def _installs_by_script(command: Command) -> bool:
    """Whether it starts a program of the project's that installs things, torch maybe."""
    return command.program.startswith("python") and any(map(_INSTALL_SCRIPT.fullmatch, command.args[:1]))


_TORCHS = ("torchvision", "torchaudio")  # each release of which requires one torch
_WITH_AN_EXTRA = ("transformers", "diffusers", "safetensors")  # by their extra of that name


def along_with(one: Install, dockerfile: Dockerfile, facts: Facts) -> Torch | None:
    """The torch that pip and uv surely bring for a package which requires it, where none is there; else None."""
    plain = one.sure and not (one.constraint or one.locked or one.marker or "--no-deps" in one.options)
    if not plain or one.manager not in ("pip", "uv"):
        return None
    if one.url:
        if not requires_torch(one.url):
            return None
        return of_install(
            replace(one, name="torch", specifier="", version="", url="", extras=()),
            dockerfile.installs,
            dockerfile.base,
            facts,
        )
    rows = facts.torch_needs_of.get(one.name, ())
    row = (facts.torch_need(one.name, one.version) if one.version else rows[-1]) if rows else None
    mates = facts.torches_of(one.name, one.version) if one.version and row is None else ()
    if row is not None and row.torch is not None and (row.torch or row.note == ANY_TORCH):
        wanted = row.torch
    elif len(mates) == 1:
        wanted = f"=={mates[0]}"
    elif (one.name in _WITH_AN_EXTRA and "torch" in one.extras) or (one.name in _TORCHS and not one.specifier):
        wanted = ""
    else:
        return None
    version, _ = pin(wanted)
    asked = replace(one, name="torch", specifier=wanted, version=version, local="", extras=())
    return of_install(asked, dockerfile.installs, dockerfile.base, facts)


def row_of(torch: Torch | None, facts: Facts) -> TorchRow | None:
    """The row of a torch whose release and CUDA are known, with what its wheel pins; None where there is none."""
    if torch is None:
        return None
    version, cuda = said(torch.version), said(torch.cuda)
    return next((row for row in facts.torches if str(row.torch) == version and str(row.cuda) == cuda), None)


def shown(torch: Torch) -> str:
    """The torch for a message ("torch A.B.C", "torch")."""
    version = said(torch.version)
    return f"torch {version}" if version else "torch"


def evidence(torch: Torch, build: Build | None) -> dict[str, str]:
    """Where the CUDA of a torch is known from."""
    if build is not None:
        return {f"the default build of torch {build.torch} is for CUDA {build.cuda}": cited(build)}
    return {f"{shown(torch)} is for CUDA {torch.cuda.value}": torch.cuda.via}


# ---------------------------------------------------------------- toolkits beside the base's

_NUMBERED = pattern(
    r"(cuda(?:-(?:toolkit|runtime|libraries|libraries-dev|compiler|nvcc|minimal-build|core|cudart|cudart-dev"
    r"|command-line-tools|nvrtc|nvrtc-dev|nvprof|profiler-api))?"
    r"|lib(?:cublas|cufft|curand|cusolver|cusparse|npp|nvjpeg|nvjitlink)(?:-dev|-devel)?)-(\d+)-(\d+)"
)
_WHOLE = pattern(r"cuda(?:-(?:toolkit|runtime|libraries|libraries-dev|compiler|nvcc|minimal-build|core))?(?:-\d+-\d+)?")
_CONDA = pattern(r"cuda|cuda-toolkit|cuda-nvcc|cuda-compiler|cuda-libraries-dev|cudatoolkit-dev")


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A CUDA toolkit that the build adds, or one library of it (not ``whole``); ``cuda`` is "" where not said."""

    install: Install
    cuda: str
    whole: bool


def toolkits(installs: Iterable[Install]) -> Iterator[Toolkit]:
    """What these installs surely bring of CUDA, torch's own libraries aside."""
    every = tuple(installs)
    for one in every:
        if not one.sure:
            continue
        if one.manager in SYSTEM:
            named = _NUMBERED.fullmatch(one.name)
            if named:
                yield Toolkit(one, f"{named[2]}.{named[3]}", bool(_WHOLE.fullmatch(one.name)))
            elif one.name == "nvidia-cuda-toolkit":
                yield Toolkit(one, "", True)
            elif _WHOLE.fullmatch(one.name):
                yield Toolkit(one, _exact(one), True)
        elif one.manager == "conda" and _CONDA.fullmatch(one.name):
            yield Toolkit(one, _exact(one) or _label(one) or _beside(one, every), True)
        elif one.manager == "source" and one.name == "cuda-toolkit":
            yield Toolkit(one, one.version, True)


def _exact(install: Install) -> str:
    found = re.match(r"\d+\.\d+(?:\.\d+)?", install.version or install.specifier.lstrip("=~ "))
    return found[0] if found else ""


def _beside(install: Install, installs: tuple[Install, ...]) -> str:
    """The CUDA that pytorch-cuda holds conda's other packages of CUDA to, by its own constraints."""
    held = [one for one in installs if one.name == "pytorch-cuda" and one.prefix == install.prefix]
    return _exact(held[-1]) if held else ""


def _label(install: Install) -> str:
    """The CUDA of a label of NVIDIA's channel ("nvidia/label/cuda-A.B.C")."""
    labels = (re.search(r"label/cuda-(\d+\.\d+)", channel) for channel in install.channels)
    return next((found[1] for found in labels if found), "")


# ---------------------------------------------------------------- frameworks

_TORCHS_OWN = ("torchvision", "torchaudio")
_FRAMEWORKS = pattern(
    r"tensorflow-gpu|onnxruntime-gpu|paddlepaddle-gpu|mxnet-cu\d+|cupy(?:-cuda\d+x?)?|jax-cuda\d+-(?:plugin|pjrt)"
    r"|vllm|sglang|unsloth|flash-attn|flashinfer-python|exllamav2|auto-gptq|faiss-gpu(?:-cu\d+)?|tensorrt(?:-cu\d+)?"
    r"|tensorrt-llm|spconv-cu\d+|pytorch-cuda|cudatoolkit|pytorch-gpu|tensorflow-gpu-base|dgl-cu\d+"
)


def framework(dockerfile: Dockerfile) -> Install | Torch | None:
    """The first thing the image surely gets that computes on NVIDIA GPUs, None where none is known."""
    torch = dockerfile.torch
    if torch is not None and torch.method != "base" and _torch_has_cuda(torch):
        return torch
    for one in dockerfile.installs:
        if one.sure and not one.constraint and one.manager in PYTHONIC and _is_framework(one):
            return one
    if torch is not None and torch.method == "base" and _torch_has_cuda(torch):
        return torch
    return None


def index_for_cuda(dockerfile: Dockerfile) -> Command | None:
    """A pip or uv that surely runs and asks an index of torch for CUDA, whatever file names what it installs."""
    for _, command in dockerfile.commands:
        installs = command.sure and re.match(r"pip|uv$|python", command.program)
        if installs and any(variant_of(word).startswith("cu") for word in command.args if "://" in word):
            return command
    return None


def _torch_has_cuda(torch: Torch) -> bool:
    if said(torch.cuda):
        return torch.cuda.value != "cpu"
    if torch.cuda.is_unsupported or torch.install is None:
        return False
    one = torch.install
    # Without an exact version the default index gives one for CUDA; an index nobody knows may give any.
    return one.manager in ("pip", "uv", "poetry") and not one.url and not (one.index or one.local)


def _is_framework(one: Install) -> bool:
    if one.name in _TORCHS_OWN and one.manager in ("pip", "uv", "poetry"):
        variant = one.local or variant_of(one.index)  # they require torch, of the same index
        return not one.url and (variant.startswith("cu") if variant else not one.index)
    if one.name == "jax":
        return any(extra.startswith("cuda") for extra in one.extras)
    if one.name == "tensorflow":
        return "and-cuda" in one.extras
    if one.name == "jaxlib":
        return one.local.startswith("cuda")
    return bool(_FRAMEWORKS.fullmatch(one.name))


def normal(path: str) -> str:
    """A folder without needless slashes and dots."""
    return posixpath.normpath(path.strip().strip("\"'")) if path.strip() else ""
