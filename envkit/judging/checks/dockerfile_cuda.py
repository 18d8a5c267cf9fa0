"""What is asked of the CUDA toolkits and libraries in an image: one of each, and of one another's version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envkit.dockerfile import options
from envkit.dockerfile.requirements import allows
from envkit.dockerfile.torches import cuda_of, variant_of
from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._compiles import compiles
from envkit.judging.checks._dockerfile import commands_of, need_stages, reached_commands, together, unknown_if_unread
from envkit.judging.checks._image_cuda import equipped
from envkit.judging.checks._outcomes import error, found, note, skip_if, warning
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Severity, Skip, Span, Unknown
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Install, Stage, Torch, Word
from envkit.versions import Cuda

# ---------------------------------------------------------------- two toolkits

_BUILDERS = frozenset({"cmake", "make", "ninja", "nvcc", "bazel", "bazelisk", "meson", "cargo", "g++", "gcc"})
_LINKED = pattern(r"libcudnn\d.*|cudnn.*|libnccl.*|libnvinfer.*|tensorrt.*|nsight-.*|libnvjpeg.*|libopencv.*cuda.*")
_USERS = pattern(
    r"tensorrt.*|dgl.*|cudf-cu\d+|cuml-cu\d+|cugraph-cu\d+|pycuda|numba-cuda|jaxlib|jax|tensorflow.*|mxnet.*|opencv-.*gpu"
    r"|nvidia-dali-.*|taichi|warp-lang|kaolin|nerfacc|tinycudann|faiss-gpu|rapids.*|insightface"
)


def duplicate_cuda(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """An image has one CUDA toolkit, and no math libraries in its base that nothing uses."""
    need_stages(dockerfile)
    base = dockerfile.base
    cuda = stack.cuda_of_base(base)
    skip_if(stack.without_cuda(base), "there is no CUDA in the base")
    added = [one for one in stack.toolkits(dockerfile.installs) if one.whole]
    skip_if(not cuda and not added, "the base does not say its CUDA, and nothing adds one")
    base.cuda.need(f"the CUDA of {base.reference}")
    second = [one for one in added if _other(one, cuda)]
    named: set[str] = set()
    for one in second:
        if one.cuda in named:
            continue
        named.add(one.cuda)
        what = f"CUDA {one.cuda}" if one.cuda else "the distribution's own CUDA"
        yield warning(
            f"{one.install.name} installs {what} beside CUDA {cuda} of the base",
            one.install.span,
            {what: one.install.span.place, f"CUDA {cuda}": f"{base.span.place}, {base.cuda.via}"},
            f"take a base of CUDA {one.cuda}, or the packages of CUDA {stack.minor(cuda)}"
            if one.cuda
            else "take the toolkit of the base (flavor devel), or NVIDIA's packages of the base's CUDA",
        )
    if second:
        return
    yield from _idle(dockerfile, facts)


def _other(one: stack.Toolkit, cuda: str) -> bool:
    """Whether it is surely of another version than the base's."""
    if not one.cuda:
        return one.install.name == "nvidia-cuda-toolkit"
    part = stack.minor if stack.minor(cuda) else stack.major
    return part(one.cuda) != part(cuda)


def _idle(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The note on libraries of the base that nothing uses."""
    base, torch = dockerfile.base, dockerfile.torch
    flavor = stack.said(base.flavor)
    if base.family != "nvidia" or flavor not in ("runtime", "devel"):
        return
    if torch is None or torch.method in ("base", "source") or torch.cuda.value == "cpu":
        return
    if dockerfile.unread or any(step.unread for step in dockerfile.steps):
        return
    if flavor == "devel" and re.search(r"build|compil|devel", dockerfile.target.name):
        return  # what an image compiles that is called one that builds comes when it runs
    if torch.cuda.is_unsupported or compiles(dockerfile, facts) or _used(dockerfile, facts):
        return
    yield note(
        f"the base {base.reference} brings CUDA's math libraries, {stack.shown(torch)} brings its own, and nothing "
        "here uses the base's",
        base.span,
        {f"{flavor} flavor": f"{base.span.place}, {base.flavor.via}", stack.shown(torch): torch.span.place},
        _smaller(dockerfile, facts),
    )


def _used(dockerfile: Dockerfile, facts: Facts) -> bool:
    """Whether something may use the libraries of the base: a build, or a package without libraries of its own."""
    for _, step, command in reached_commands(dockerfile):
        python = any(one.manager == "source" and one.name == "python" for one in step.installs)
        if command.program in _BUILDERS and not python:
            return True
    for one in dockerfile.installs:
        if one.manager in stack.SYSTEM:
            if _LINKED.fullmatch(one.name):
                return True
            continue
        if one.constraint:
            continue
        row = facts.gpu_package(one.name, one.version)
        if (row is not None and (row.nvcc or row.own is False)) or _USERS.fullmatch(one.name):
            return True
    return any(
        command.program.startswith("python") and any(word.endswith("setup.py") for word in command.args[:1])
        for _, _, command in reached_commands(dockerfile)
    )


def _smaller(dockerfile: Dockerfile, facts: Facts) -> str:
    """The base of flavor "base" with the same CUDA and system, where it exists."""
    base = dockerfile.base
    tag = re.sub(r"-cudnn\d*(?:\.\d+)*", "", base.tag).replace("runtime", "base").replace("devel", "base")
    if facts.image_tag(f"nvidia/cuda:{tag}") is None and facts.old_image_tag(f"nvidia/cuda:{tag}") is None:
        return "take a plain Ubuntu or Python base, or the flavor base of nvidia/cuda"
    return f"take `FROM {base.repository}:{tag}`, or a plain Ubuntu or Python base"


# ---------------------------------------------------------------- what a change of FROM left behind

_PATH = pattern(r"/usr/local/cuda-(\d+)(?:\.(\d+)(\.\d+)?)?(?![\d.]*\d)")
_ENTRY_ENDS = pattern(r"[:\s\"'=,;]")
_HARMLESS = frozenset({"rm", "mkdir", "test", "[", "[[", "ls", "find", "true", "rmdir", "mv", "du"})


@dataclass(frozen=True, slots=True)
class _Named:
    """A folder of a CUDA that a file names; ``started`` says that a program in it is run."""

    path: str
    cuda: str
    span: Span
    started: bool
    home: bool = False


def cuda_paths_not_of_base(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """What the file says of CUDA's folders and packages is of the CUDA that FROM names."""
    need_stages(dockerfile)
    dockerfile = equipped(dockerfile)
    told = [
        one
        for one in _reached(dockerfile)
        if one.base.family in ("nvidia", "pytorch", "os") and stack.minor(stack.cuda_of_base(one.base))
    ]
    if not told:
        unknown = [
            one for one in _reached(dockerfile) if not stack.without_cuda(one.base) and any(_open(one, dockerfile))
        ]
        if unknown:
            base = unknown[0].base
            forced = any(one.started or one.home for stage in unknown for one in _open(stage, dockerfile))
            worst = Severity.ERROR if forced else Severity.WARNING
            raise Unknown(f"the CUDA of {base.reference} was not observed: {base.cuda.missing}", worst)
        raise Skip("no base here is one of a known CUDA")
    for stage in told:
        yield from _left_behind(stage, dockerfile, facts)
    yield from _index_left_behind(dockerfile, facts)


def _index_left_behind(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The torch that stays, where the file names its CUDA in words and FROM names a newer major."""
    torch, base = dockerfile.torch, dockerfile.base
    install = torch.install if torch is not None else None
    if torch is None or install is None or not install.sure or base.family not in ("nvidia", "pytorch"):
        return
    named = install.local or next(filter(None, map(variant_of, (install.index, *install.extra_indexes))), "")
    cuda, older = stack.cuda_of_base(base), stack.said(torch.cuda)
    if (
        cuda_of(named) != older
        or not older[:1].isdigit()
        or not stack.minor(cuda)
        or int(stack.major(older)) >= int(stack.major(cuda))
    ):
        return
    now, before = facts.driver_min(Cuda(cuda)), facts.driver_min(Cuda(older))
    floors = f"{before.compat} to {now.compat}" if before.compat and now.compat else ""
    yield warning(
        f"torch is still the build {named} for CUDA {older}, and FROM has moved to CUDA {cuda}"
        + (f", which raises the minimum driver from {floors}" if floors else ""),
        base.span,
        {f"build {named}": install.span.place, f"minimum driver for CUDA {cuda}": now.compat_source},
        f"take a base of CUDA {stack.major(older)}, or the build of torch for CUDA {stack.major(cuda)}",
    )


def _reached(dockerfile: Dockerfile) -> list[Stage]:
    return [dockerfile.stages[index] for index in dockerfile.reachable]


def _left_behind(stage: Stage, dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    cuda = stack.minor(stack.cuda_of_base(stage.base))
    line = [dockerfile.stages[index] for index in stage.line]
    installs = [install for step in dockerfile.steps_of(stage.index) for install in step.installs]
    added = list(stack.toolkits(installs))
    if any(not one.cuda and one.install.name != "nvidia-cuda-toolkit" for one in added) or _brought(line):
        return
    there = {stack.minor(one.cuda) for one in added} | {cuda}
    there |= {stack.major(each) for each in there}
    told: set[str] = set()
    for one in _named(stage):
        if one.cuda in there or one.path in told:
            continue
        three = one.cuda.count(".") == 2
        if three and (added or stage.base.family == "os"):
            continue  # an installer may be told to make a folder of that name
        told.add(one.path)
        forced = one.started or (
            one.home and any(made.torch_extension and made.sure for made in compiles(dockerfile, facts))
        )
        yield found(
            f"{one.path} does not exist: NVIDIA names the folder with two numbers, /usr/local/cuda-{cuda} in "
            f"{stage.base.reference}"
            if three
            else f"{one.path} is of CUDA {one.cuda}, and the base {stage.base.reference} has only CUDA {cuda}",
            one.span,
            Severity.ERROR if forced else Severity.WARNING,
            f"write {_PATH.sub('/usr/local/cuda', one.path)}, which is a link to the CUDA that is there",
            {f"CUDA {cuda}": f"{stage.base.span.place}, {stage.base.cuda.via}", one.path: one.span.place},
        )
    if stage.base.family == "os":
        return  # its CUDA is what these packages bring
    torch = dockerfile.torch
    wanted = stack.minor(stack.said(torch.cuda)) if torch is not None else ""
    old: set[str] = set()
    for one_more in stack.toolkits(install for step in stage.steps for install in step.installs):
        version = stack.minor(one_more.cuda)
        if one_more.install.manager not in stack.SYSTEM or not version or version in old or version == wanted:
            continue
        if _numbers(version) < _numbers(cuda):
            old.add(version)
            yield warning(
                f"{one_more.install.name} is of CUDA {version}, and the base {stage.base.reference} has CUDA {cuda}",
                one_more.install.span,
                {f"CUDA {cuda}": f"{stage.base.span.place}, {stage.base.cuda.via}"},
                f"take {re.sub(r'-[0-9]+-[0-9]+$', '-' + cuda.replace('.', '-'), one_more.install.name)}",
            )


def _open(stage: Stage, dockerfile: Dockerfile) -> Iterator[_Named]:
    """What a stage names of CUDA that no toolkit which it surely installs is."""
    installs = [install for step in dockerfile.steps_of(stage.index) for install in step.installs]
    there = {stack.minor(one.cuda) for one in stack.toolkits(installs) if one.whole}
    there |= {stack.major(each) for each in there}
    yield from (one for one in _named(stage) if one.cuda not in there)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _brought(line: list[Stage]) -> bool:
    """Whether a COPY, an archive or a link puts a folder of CUDA there."""
    for stage in line:
        for step in stage.steps:
            if step.copy is not None and "/usr/local/cuda" in step.copy.target:
                return True
            if step.copy is not None and any("/usr/local" in source for source in step.copy.sources):
                return True
            for command in step.commands:
                target = command.args[-1] if command.args else ""
                if command.program in ("ln", "mv", "cp", "mkdir") and _PATH.fullmatch(target.rstrip("/")):
                    return True
    return False


def _named(stage: Stage) -> Iterator[_Named]:
    """Every place of a stage that surely names a folder of a numbered CUDA; what variables repeat, where it began."""
    kept: set[tuple[str, bool]] = set()  # a search path that grows holds again all that it held
    for step in stage.steps:
        for setting in step.settings:
            if setting.kind == "ENV" and setting.value and setting.sure:
                home = setting.name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR")
                for path in _entries(setting.value):
                    if (path, home) not in kept and (cuda := _cuda_of(path)):
                        kept.add((path, home))
                        yield _Named(path, cuda, setting.span, False, home)
        if step.name != "RUN":
            continue
        for command in step.commands:
            if command.sure and command.program not in _HARMLESS:
                yield from _of_command(command)


def _of_command(command: Command) -> Iterator[_Named]:
    first = command.words[0]
    words: list[Word] = [*command.words, *command.assigns.values()]
    for word in words:
        if word.sure:
            for path in _entries(word.text):
                if cuda := _cuda_of(path):
                    started = word is first and path == first.text and command.after in ("", "&&", ";")
                    yield _Named(path, cuda, word.span, started)


def _entries(text: str) -> list[str]:
    return _ENTRY_ENDS.split(text) if "/usr/local/cuda-" in text else []


def _cuda_of(path: str) -> str:
    """The version of the numbered folder of CUDA that a path begins with, or ""."""
    match = _PATH.match(path)
    if match is None:
        return ""
    return f"{match[1]}.{match[2]}{match[3] or ''}" if match[2] else match[1]


# ---------------------------------------------------------------- cuDNN

_APT_CUDNN = pattern(
    r"(?:lib)?cudnn(\d+)?(?:-dev|-devel|-samples|-headers|-static|-jit)*(?:-(?:dev-|devel-)?cuda-(\d+))?"
)
_PIP_CUDNN = pattern(r"nvidia-cudnn-cu(\d+)")
_JAXLIB = pattern(r"cuda(\d+)[._-]cudnn(\d)(\d?)\d*")


@dataclass(frozen=True, slots=True)
class _Cudnn:
    """A cuDNN that gets installed: its version and the CUDA major that it is made for, "" where not said."""

    install: Install
    version: str
    cuda: str


def cudnn_mismatch(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """Each cuDNN fits the CUDA that it meets and the framework that loads it."""
    need_stages(dockerfile)
    skip_if(stack.rocm(dockerfile), "the image is not for NVIDIA GPUs")
    own_cudnn, dockerfile = stack.said(dockerfile.base.cudnn), equipped(dockerfile)
    base, cuda = dockerfile.base, stack.cuda_of_base(dockerfile.base)
    added = [one for install in dockerfile.installs if install.sure and (one := _cudnn(install)) is not None]
    base_cudnn = stack.said(base.cudnn)
    if not added and not base_cudnn and not base.cudnn.is_unsupported and dockerfile.torch is None:
        raise Skip("there is no cuDNN here, as far as the Dockerfile shows")
    if not added and not base_cudnn and (beside := _of_torch(dockerfile, facts)) is not None:
        yield beside
        return
    skip_if(not added and not base_cudnn, "nothing but torch's own cuDNN is here")
    told: set[str] = set()
    for one in added:
        finding = (
            _newest_of_apt(one, own_cudnn, cuda, dockerfile)
            or _of_cuda(one, cuda, dockerfile, facts)
            or _of_pin(one, dockerfile, facts)
        )
        key = finding.message.removeprefix(one.install.name) if finding is not None else ""
        if finding is not None and key not in told:
            told.add(key)
            yield finding
    if base_cudnn and not told:
        noticed = list(_of_base(base_cudnn, added, dockerfile, facts))
        yield from noticed
        if not noticed:
            unread = [each for step in dockerfile.steps for each in step.unread] or dockerfile.unread
            # Beside a torch that is known, which brings its own, no list of 480 public files made an error of it; and
            # NVIDIA's images of frameworks have the cuDNN that theirs are made for.
            bare = dockerfile.torch is None and own_cudnn and base.family != "ngc"
            worst = Severity.ERROR if bare else Severity.WARNING
            unknown_if_unread(unread, ", so which cuDNN is loaded is not known", worst)


def _cudnn(install: Install) -> _Cudnn | None:
    local = re.match(r"cuda(\d+)", install.local)
    cuda = local[1] if local else ""
    if install.manager in stack.SYSTEM:
        named = _APT_CUDNN.fullmatch(install.name)
        return _Cudnn(install, install.version or named[1] or "", named[2] or cuda) if named else None
    if install.manager == "source" and install.name == "cudnn":
        return _Cudnn(install, install.version, cuda)
    named = _PIP_CUDNN.fullmatch(install.name) if not install.constraint else None
    return _Cudnn(install, install.version, named[1]) if named else None


_NEWEST_8 = "12"  # the CUDA major of the last cuDNN 8 in NVIDIA's archives of these systems
_ITS_SYSTEMS = ("ubuntu20.04", "ubuntu22.04")


def _newest_of_apt(one: _Cudnn, own_cudnn: str, base_cuda: str, dockerfile: Dockerfile) -> Finding | None:
    """libcudnn8 without its version, which apt takes for the newest CUDA, whichever is there."""
    install, base = one.install, dockerfile.base
    named = install.manager == "apt" and install.name in ("libcudnn8", "libcudnn8-dev")
    if not named or install.version or install.specifier or one.cuda or own_cudnn or not base_cuda:
        return None
    if stack.said(base.os) not in _ITS_SYSTEMS or base.family != "nvidia" or stack.major(base_cuda) == _NEWEST_8:
        return None
    if int(stack.major(base_cuda)) > int(_NEWEST_8):
        return None
    return warning(
        f"{install.name} without a version is the newest, made for CUDA {_NEWEST_8}, and here is CUDA {base_cuda}",
        install.span,
        {
            f"the newest is for CUDA {_NEWEST_8}": "NVIDIA/JAX-Toolbox pull request 301; openmpf/openmpf issue 1649",
            f"CUDA {base_cuda}": f"{base.span.place}, {base.cuda.via}",
        },
        f"pin the build for this CUDA, as `apt list -a {install.name}` shows it ({install.name}=8.*+cuda"
        f"{stack.minor(base_cuda)}), or take the base's tag with cudnn8",
    )


def _of_minor(one: _Cudnn, loaders: Mapping[str, str], facts: Facts) -> Finding | None:
    """A cuDNN for another minor, where minors were not compatible yet: it was made for each."""
    named = re.match(r"cuda(\d+\.\d+)$", one.install.local)
    if named is None or int(one.cuda) >= facts.cudas[0].version.major:
        return None
    if any(stack.minor(version) == named[1] for version in loaders.values()):
        return None
    return warning(
        f"{one.install.name} is made for CUDA {named[1]}, and here is {' and '.join(loaders)}",
        one.install.span,
        {f"CUDA {named[1]}": one.install.span.place},
        f"take the cuDNN for CUDA {stack.minor(next(iter(loaders.values())))}",
    )


def _of_cuda(one: _Cudnn, base_cuda: str, dockerfile: Dockerfile, facts: Facts) -> Finding | None:
    """A cuDNN for another CUDA major than everything that could load it."""
    if not one.cuda:
        return None
    torch = _loader(one.install, dockerfile)
    torch_cuda = stack.said(torch.cuda) if torch is not None else ""
    added = [each.cuda for each in stack.toolkits(dockerfile.installs) if each.whole]
    wheel = one.install.manager not in (*stack.SYSTEM, "source")
    if wheel and torch is not None:
        if torch_cuda in ("", "cpu"):
            return None
        loaders = {f"torch's CUDA {torch_cuda}": torch_cuda}
    else:
        if "" in added or (torch is not None and not torch_cuda):
            return None
        loaders = {f"CUDA {base_cuda} of the base": base_cuda} if base_cuda else {}
        loaders |= {f"CUDA {each}": each for each in added}
        if torch_cuda not in ("", "cpu"):
            loaders[f"torch's CUDA {torch_cuda}"] = torch_cuda
    if not loaders:
        return None
    if any(stack.major(version) == one.cuda for version in loaders.values()):
        return _of_minor(one, loaders, facts)
    base = dockerfile.base
    return error(
        f"{one.install.name} is made for CUDA {one.cuda}, and here is {' and '.join(loaders)}",
        one.install.span,
        {
            f"CUDA {one.cuda}": one.install.span.place,
            **({f"CUDA {base_cuda}": f"{base.span.place}, {base.cuda.via}"} if base_cuda else {}),
            **({f"torch's CUDA {torch_cuda}": torch.cuda.via} if torch is not None and torch_cuda else {}),
        },
        f"remove it, for torch brings its own, or take the package for CUDA {stack.major(torch_cuda)}"
        if wheel and torch_cuda
        else f"take the cuDNN for CUDA {stack.major(next(iter(loaders.values())))}",
    )


def _loader(install: Install, dockerfile: Dockerfile) -> Torch | None:
    """The torch that a cuDNN meets: of a wheel the one in its own environment, else the one that stays."""
    own = install.prefix if install.manager not in (*stack.SYSTEM, "source") else ""
    beside = [one for one in dockerfile.torches if one.prefix in ("", own)] if own else []
    return beside[-1] if beside else dockerfile.torch


def _of_pin(one: _Cudnn, dockerfile: Dockerfile, facts: Facts) -> Finding | None:
    """A pinned wheel of cuDNN that replaces the one which torch pins: it is installed after torch, or with it."""
    torch, install = dockerfile.torch, one.install
    if torch is None or torch.install is None or not install.version or not _PIP_CUDNN.fullmatch(install.name):
        return None
    if torch.method not in ("pip", "uv", "poetry") or install.locked or torch.install.locked:
        return None
    if torch.prefix and install.prefix and torch.prefix != install.prefix:
        return None
    order = list(dockerfile.installs)
    if order.index(install) < next((n for n, each in enumerate(order) if each.span == torch.span), len(order)):
        return None  # torch comes later and puts its own there
    row = stack.row_of(torch, facts)
    if row is None or row.cudnn is None or one.cuda != str(row.cuda.major):
        return None
    other = row.cudnn.major != int(stack.major(install.version))
    if not other and (not row.default or install.version == str(row.cudnn)):
        return None
    return found(
        f"{install.name}=={install.version} replaces {row.cudnn}, which torch {row.torch} requires"
        + (", and is of another major" if other else ""),
        install.span,
        Severity.ERROR if other else Severity.WARNING,
        f"drop it, for torch brings it, or pin {install.name}=={row.cudnn}",
        {f"torch {row.torch} requires {install.name}=={row.cudnn}": cited(row)},
    )


def _of_base(base_cudnn: str, added: list[_Cudnn], dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The cuDNN of the base against what the frameworks load, and against torch's own."""
    base, torch = dockerfile.base, dockerfile.torch
    mine = stack.major(base_cudnn)
    here = {mine} | {stack.major(one.version) for one in added if one.version}
    row = stack.row_of(torch, facts)
    own = str(row.cudnn.major) if row is not None and row.cudnn is not None else ""
    # A list that was not read may bring a torch, and with it the cuDNN that is wanted.
    open_ = not own if torch is not None else bool(dockerfile.unread)
    if not any(not one.version for one in added) and not open_:
        for install in dockerfile.installs:
            whole, why = _needed(install, facts) if not _replaced(install, dockerfile) else ("", "")
            needed = stack.major(whole)
            release = f" {install.version}" if install.version else ""
            if needed == mine and not added and needed != own and _older(base, whole, facts):
                yield warning(
                    f"{install.name}{release} was compiled with cuDNN {whole} and takes none that is older, and the "
                    f"base {base.reference} has {_older(base, whole, facts)}",
                    install.span,
                    {f"cuDNN {whole}": why, f"cuDNN {_older(base, whole, facts)}": f"facts: {base.reference}"},
                    f"take a base whose cuDNN is {whole} or newer, or an older release of {install.name}",
                )
                return
            if needed and needed not in here and needed != own:
                yield error(
                    f"{install.name}{release} loads cuDNN {needed}, and the base {base.reference} has cuDNN {mine}",
                    install.span,
                    {f"cuDNN {needed}": why, f"cuDNN {mine}": f"{base.span.place}, {base.cudnn.via}"},
                    f"take a base with cuDNN {needed}, or a release of {install.name} that is made for cuDNN {mine}",
                )
                return
    if torch is None or row is None or not own or torch.method in ("base", "source", "conda") or own == mine:
        return
    yield note(
        f"{stack.shown(torch)} brings cuDNN {row.cudnn}, and the base {base.reference} has cuDNN {base_cudnn}",
        torch.span,
        {f"cuDNN {row.cudnn}": cited(row), f"cuDNN {base_cudnn}": f"{base.span.place}, {base.cudnn.via}"},
        "take a base without cuDNN where nothing else uses it",
    )


# They load the cuDNN of the torch beside them, where the system has none.
_BY_TORCH = options.names("ctranslate2 faster-whisper")


def _of_torch(dockerfile: Dockerfile, facts: Facts) -> Finding | None:
    """What loads one cuDNN where torch's own is the only one, and another.  Source: SYSTRAN/faster-whisper issue 1086,
    the table of CTranslate2 and torch releases; OpenNMT/CTranslate2 issue 1780."""
    base, torch = dockerfile.base, dockerfile.torch
    row = stack.row_of(torch, facts)
    plain = base.family in ("python", "os", "nvidia") and base.sure
    if torch is None or row is None or row.cudnn is None or torch.method not in ("pip", "uv") or not plain:
        return None
    if dockerfile.unread or any("cudnn" in each.name for each in dockerfile.installs):
        return None
    own = str(row.cudnn.major)
    for install in dockerfile.installs:
        needed, why = _needed(install, facts) if install.name in _BY_TORCH else ("", "")
        if needed and stack.major(needed) != own and install.prefix == torch.prefix:
            release = f" {install.version}" if install.version else ""
            return warning(
                f"{install.name}{release} loads cuDNN {needed}, and the only one here is cuDNN {row.cudnn}, which "
                f"{stack.shown(torch)} brings",
                install.span,
                {f"cuDNN {needed}": why, f"cuDNN {row.cudnn}": cited(row)},
                f"take a release of {install.name} that is made for cuDNN {own}, or install nvidia-cudnn of {needed} "
                "and put it on LD_LIBRARY_PATH",
            )
    return None


def _replaced(install: Install, dockerfile: Dockerfile) -> bool:
    """Whether a later command may put another build in the place of this one: jax asks for a jaxlib of its own, and
    packages on top of it for a newer jax."""
    names = ("jax", "jaxlib") if install.name in ("jax", "jaxlib") else (install.name,)
    later = dockerfile.installs[dockerfile.installs.index(install) + 1 :]
    others = [
        one
        for one in later
        if ((one.name in names and _another(one)) or ("jax" in names and one.name in _ON_JAX))
        and not one.constraint
        and (not one.prefix or not install.prefix or one.prefix == install.prefix)
    ]
    commands = commands_of(dockerfile) if others else {}
    mine = commands.get(install.span, {})
    return any(not together(mine, commands.get(one.span, {})) for one in others)


def _another(one: Install) -> bool:
    """Whether an install may ask for another release than the one that is there."""
    return bool(one.version or one.specifier or one.extras or one.url or "--upgrade" in one.options)


_ON_JAX = options.names("blackjax brax chex diffrax distrax dm-haiku equinox flax jaxopt jraph numpyro optax")


def _older(base: Base, wanted: str, facts: Facts) -> str:
    """The cuDNN of a base that is known to be older than a minor release ("A.B"), else ""."""
    known = facts.image_tag(base.reference) if base.sure and not base.digest else None
    has = str(known.row.cudnn) if known is not None and known.row.cudnn is not None else stack.said(base.cudnn)
    has = has if base.sure and "." in wanted and "." in has else ""
    return has if has and allows(f"<{wanted}", has) is True else ""


def _needed(install: Install, facts: Facts) -> tuple[str, str]:
    """The system's cuDNN that a package surely loads, its major or the oldest minor release of it, and who says so;
    ("", "") for none."""
    if not install.sure or install.constraint or install.manager not in ("pip", "uv", "poetry") or install.url:
        return "", ""
    if install.name in ("jaxlib", "jax"):
        asked = (install.local,) if install.name == "jaxlib" else install.extras
        local = next((found for word in asked if (found := _JAXLIB.fullmatch(word))), None)
        if local is not None:
            return f"{local[2]}.{local[3]}".rstrip("."), f"{install.span.place}, its own words"
        if install.name == "jaxlib":
            return "", ""
    if any(extra.startswith(("and-cuda", "cudnn", "cuda")) for extra in install.extras):
        return "", ""
    if not install.version and (install.specifier or install.name.startswith("tensorflow") or not install.python):
        return "", ""  # which release it is hangs on more than its name
    if install.index or install.extra_indexes or install.find_links:
        return "", ""
    row = facts.gpu_package(install.name, install.version)
    if row is None or row.own is not False or not row.cudnn:
        return "", ""
    return row.cudnn, cited(row)
