"""What a step takes for granted and does not find: apt's package lists, a C compiler, a package on the one index."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from envkit.dockerfile import options, system
from envkit.dockerfile.files import NOWHERE
from envkit.dockerfile.pythons import within
from envkit.dockerfile.requirements import allows
from envkit.dockerfile.tree import mounts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import forgiven, inside, need_stages, optional
from envkit.judging.checks._outcomes import error, skip_if
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Install, Step, Unread
from envkit.versions import Python

# ---------------------------------------------------------------- apt's lists

_LISTS = "/var/lib/apt/lists"
# Packages that few others bring along and that the images below do not hold, so that apt has to look them up.
_LEAVES = options.names(
    "aria2 axel bpytop cmake espeak-ng ffmpeg fish git git-lfs graphviz htop iputils-ping jq libgl1-mesa-glx "
    "libsndfile1 locales mesa-utils nano neovim net-tools nginx ninja-build nodejs npm nvtop openssh-server "
    "portaudio19-dev protobuf-compiler python3-pip python3-tk python3-venv redis-server rsync screen "
    "software-properties-common sudo supervisor swig tesseract-ocr tmux tree unzip vim xvfb zip zsh"
)
# What brings so much that one of those may be among it.
_META = pattern(
    r"ros-|ubuntu-|xfce|lxde|kali|gnome|kde|libopencv|r-base|texlive|task-|.*-desktop|.*-all(?:-dev)?|nvidia-"
)
_IN_FULL_PYTHON = options.names("git unzip")  # of buildpack-deps
# Images of conda that are Debian's or Ubuntu's and end without lists.  Source: anaconda/docker-images at a32b8c1e,
# miniconda3/debian/Dockerfile; conda-forge/miniforge-images at 01b5f660a1e4, ubuntu/Dockerfile.
_CONDAS = options.names("continuumio/miniconda3 condaforge/miniforge3 condaforge/mambaforge")
_IN_PYTORCH = options.names("git cmake vim sudo")  # of old or devel images
_IN_ROCM = options.names("sudo python3-pip git vim cmake")  # of AMD's; the last three in rocm-terminal
# What may look the lists up by itself.
_MAY_UPDATE = options.names(
    "add-apt-repository apt-add-repository ansible-playbook chroot eval gdebi make source xargs ."
)


def apt_lists_missing(dockerfile: Dockerfile) -> Iterator[Finding]:
    """apt has package lists where it installs: images come without them, and a step may have removed them.  Source:
    Docker, "Building best practices", apt-get; ubuntu, debian, python and nvidia/cuda, whose images hold none."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        if not _without_lists(base):
            continue
        asked += 1
        found = _unlisted(dockerfile.steps_of(index), base)
        if found is None or found[0].span in told:
            continue
        command, name, removed = found
        told.add(command.span)
        why = f"{removed} removed them" if removed else f"{base.reference} has none"
        yield error(
            f"apt has no package lists here, so that it does not find {name} and the build ends here",
            command.words[0].span,
            {why: removed or base.span.place},
            "write `apt-get update &&` before it, in the same RUN",
        )
    skip_if(not asked, "the base is no image that is known to come without package lists")


def _without_lists(base: Base) -> bool:
    """Whether an image surely holds no lists of packages: those that its publisher's Dockerfile ends without."""
    if not base.sure or not re.match(r"ubuntu|debian", stack.said(base.os)):
        slim = base.family == "python" and not re.search(r"alpine|windows", base.tag)
        return base.sure and (slim or base.family == "pytorch") and not base.os.value
    return base.family in ("os", "nvidia", "python", "pytorch") or base.repository in _CONDAS


def _unlisted(steps: Sequence[Step], base: Base) -> tuple[Command, str, str] | None:
    """The first command that surely has apt look a package up without lists, the package, and what removed them."""
    there, removed = False, ""
    brought: set[str] = set()
    for step in steps:
        if step.copy is not None and _brings_lists(step):
            return None
        if step.name != "RUN":
            continue
        if any(_overlap(str(given.get("target", ""))) for given in mounts(step.flags)):
            return None
        for at, command in enumerate(step.commands):
            if (command.program in system.APT and "update" in command.args) or _may_update(command, step):
                there = True
            elif command.program == "rm" and any(arg.startswith(_LISTS) for arg in command.args):
                if not command.sure:
                    return None
                there, removed = False, step.span.place
            elif command.program in system.APT and "install" in command.args:
                names = [word for word in command.args if re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", word)]
                lacking = [name for name in names if name in _LEAVES and name not in brought | _held(base)]
                certain = command.sure and not forgiven(step, at) and not any(map(_META.match, brought))
                if not there and lacking and certain:
                    return command, lacking[0], removed
                brought |= set(names)
        if step.unread or re.search(r"\bapt\S*\s[^&;|\n]*\bupdate\b", step.value):
            there = there or not _removed(step)
    return None


def _removed(step: Step) -> bool:
    return f"rm -rf {_LISTS}" in re.sub(r"\s+", " ", step.value)


def _held(base: Base) -> frozenset[str]:
    full = base.family == "python" and "slim" not in base.tag
    if base.rocm:
        return _IN_ROCM
    if base.repository in _CONDAS:
        return options.names("git")
    return _IN_FULL_PYTHON if full else _IN_PYTORCH if base.family == "pytorch" else frozenset()


def _overlap(folder: str) -> bool:
    return bool(folder) and (_LISTS.startswith(folder.rstrip("/")) or folder.startswith("/var/lib/apt"))


def _brings_lists(step: Step) -> bool:
    """Whether a COPY may bring lists: of another image or stage, into the root or above them."""
    copy = step.copy
    return copy is not None and (_overlap(copy.target) or (copy.foreign and copy.target in ("/", "/var")))


def _may_update(command: Command, step: Step) -> bool:
    """Whether a command may update the lists in a way that the text does not show: a script above all."""
    program = command.words[0].text
    shell = program in system.SHELLS or command.program in system.SHELLS
    return (
        command.program in _MAY_UPDATE
        or shell
        or ("/" in program and command.program not in system.APT)
        or (command.span.path != step.span.path)
    )


# ---------------------------------------------------------------- a compiler

# Packages without a wheel for Linux, each with the releases that this is true of.  Source: the package index, asked
# with `pip download --only-binary=:all:` for Python 3.11 on 2026-11-29.
_SOURCES = {
    **dict.fromkeys(
        options.names(
            "annoy cython-bbox dlib evdev fasttext hnswlib kenlm llama-cpp-python madmom mysqlclient noise pesq "
            "pyaudio pycuda pysptk python-ldap pyworld uwsgi webrtcvad"
        ),
        "",
    ),
    "insightface": "<=0.7.3",
    "psycopg2": ">=2.8",
}
# What brings no compiler, as far as people install it beside.
_HARMLESS = pattern(
    r"(?:apt-utils|aria2|bash|bzip2|ca-certificates|curl|dumb-init|espeak(?:-ng)?|ffmpeg|fonts-\S+|git|git-lfs|gnupg2?|gosu|"
    r"htop|iputils-ping|jq|less|libgl1(?:-mesa-glx)?|libglib2\.0-0|libgomp1|libmagic1|libpq5|libportaudio2|libsm6|"
    r"libsndfile1|libxext6|libxrender1|locales|nano|netcat\S*|openssh-client|openssh-server|procps|rsync|screen|sox|sudo|"
    r"software-properties-common|supervisor|tini|tmux|tzdata|unzip|vim|wget|zip|poppler-utils|tesseract-ocr\S*|"
    r"python3(?:\.\d+)?(?:-(?:minimal|venv|distutils|dev))?)"
)
_MAY_BRING = options.names("conda mamba micromamba dnf yum apk dpkg gdebi tar make nix")


def compiler_missing(dockerfile: Dockerfile) -> Iterator[Finding]:
    """A package that has no wheel finds a compiler where it is built.  Source: the package index; Debian, python3-pip,
    which recommends build-essential."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        if base.compiler.value is not False or base.digest or not base.sure:
            continue
        debian = re.match(r"ubuntu|debian", stack.said(base.os)) or (base.family == "python" and not base.os.value)
        if not debian or "alpine" in base.tag:
            continue
        asked += 1
        for step in dockerfile.steps_of(index):
            brings = _brings_compiler(step)
            one = next((each for each in _built(step) if each.span not in told), None)
            if one is not None and not brings:
                told.add(one.span)
                yield error(
                    f"{one.name}{one.specifier} has no wheel and is built from its source, and neither "
                    f"{base.reference} nor a step before brings a compiler, so that the build ends here",
                    one.span,
                    {"no compiler in the base": f"{base.span.place}, {base.compiler.via}"},
                    "install build-essential and what it is built with before, or build it in a stage of its own",
                )
                break
            if brings:
                break
    skip_if(not asked, "the base has a compiler, or is not known")


def _built(step: Step) -> Iterator[Install]:
    """The packages of a step that pip or uv surely build from their source."""
    lenient = optional(step)
    for one in step.installs:
        bound = _SOURCES.get(one.name)
        if bound is None or one.manager not in ("pip", "uv") or not one.sure or one.span in lenient:
            continue
        elsewhere = one.url or one.index or one.extra_indexes or one.find_links or one.constraint or one.marker
        known = one.python and Python(one.python) >= Python("3.8")
        meant = (
            not bound
            or (not one.specifier and bound.startswith(">"))
            or (bool(one.version) and allows(bound, one.version) is True)
        )
        if not elsewhere and known and meant and "--only-binary" not in one.options:
            yield one


def _brings_compiler(step: Step) -> bool:
    """Whether a step may bring a compiler."""
    if step.copy is not None:
        other = step.copy.foreign
        return other and bool(re.fullmatch(r"/(?:usr(?:/(?:local|bin|lib)?)?|opt)?/?", step.copy.target))
    if step.name != "RUN":
        return False
    if any(one.system for one in step.unread):
        return True
    for command in step.commands:
        script = command.program in system.SHELLS or "/" in command.words[0].text or command.span.path != step.span.path
        if command.program in _MAY_BRING or (script and not command.program.startswith(("python", "pip"))):
            return True
        if command.program in system.APT and "install" in command.args:
            names = [word for word in command.args if not word.startswith("-") and word != "install"]
            lean = "--no-install-recommends" in command.args
            if not all(_HARMLESS.fullmatch(name) or (lean and name == "python3-pip") for name in names):
                return True
    return any(one.manager in ("conda", "source") for one in step.installs)


# ---------------------------------------------------------------- the one index

# What PyTorch's index does not have, as far as people ask it for that.
_NOT_THERE = options.names(
    "accelerate bitsandbytes diffusers einops fastapi flask gradio jupyter jupyterlab librosa nltk onnx onnxruntime "
    "onnxruntime-gpu openai openai-whisper opencv-python opencv-python-headless peft pydantic python-multipart "
    "pytorch-lightning lightning redis scikit-image scikit-learn scipy seaborn sentence-transformers soundfile spacy "
    "streamlit tensorboard timm transformers trl ultralytics uvicorn wandb"
)


# The index of nightly builds has what vLLM needs as well.
_PYTORCHS = pattern(r"download\.pytorch\.org/whl(?!/nightly)")
# What brings none of those along.
_ALONE = options.names("torch torchvision torchaudio pip setuptools wheel numpy ninja packaging triton")


def index_lacks_package(dockerfile: Dockerfile) -> Iterator[Finding]:
    """Where pip is given PyTorch's index alone, that index has each package.  Source: pytorch/test-infra at
    027dd134, s3_management/manage.py, PACKAGE_ALLOW_LIST; pip, "--index-url"."""
    need_stages(dockerfile)
    asked = 0
    told: set[tuple[str, int]] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        free = base.family in ("os", "nvidia", "python") and base.sure  # what is there already is not looked up
        for step in dockerfile.steps_of(index):
            lenient = optional(step)
            mine = [one for one in step.installs if _on_pytorchs_alone(one)]
            asked += bool(mine)
            for one in mine if free else ():
                place = (one.span.path, index)
                if one.name in _NOT_THERE and place not in told and one.span not in lenient:
                    told.add(place)
                    yield error(
                        f"{one.name} is looked for on PyTorch's index alone, which does not have it, so that the build "
                        "ends here",
                        one.span,
                        {"the only index": one.index},
                        "give PyTorch's index to torch, torchvision and torchaudio alone, in a command of their own",
                    )
            others = [one for one in step.installs if one not in mine and one.manager not in ("apt", "dnf", "apk")]
            free = free and not step.unread and all(one.name in _ALONE for one in others)
    skip_if(not asked, "no package is looked for on PyTorch's index alone")


def _on_pytorchs_alone(one: Install) -> bool:
    """Whether pip surely looks a package up on PyTorch's index and nowhere else."""
    plain = one.manager == "pip" and one.sure and not (one.url or one.constraint or one.marker or one.locked)
    return plain and bool(_PYTORCHS.search(one.index)) and not (one.extra_indexes or one.find_links)


# ---------------------------------------------------------------- what is copied


def copied_file_missing(dockerfile: Dockerfile) -> Iterator[Finding]:
    """What is copied out of the build context is there.  Source: BuildKit 0.13 and Docker Engine 26.1.5, tried with
    files, folders, patterns, links and a .dockerignore: `failed to compute cache key: ... not found`."""
    need_stages(dockerfile)
    skip_if(dockerfile.lacking is None, "no checkout was read that the Dockerfile belongs to")
    for each in dockerfile.lacking or ():
        if each.kept_out:
            yield error(
                f"the .dockerignore keeps {each.source} out of the build context, so that the build ends here",
                each.span,
                fix="let it in by a line with `!` at the end of the .dockerignore, or do not copy it",
            )
            continue
        there = f"; it has {each.near}" if each.near else ""
        yield error(
            f"{each.source} is not in the project{there}, and nothing says that it is made before, so that the build "
            "ends here",
            each.span,
            fix=f"copy {each.near}" if each.near else "add it to the repository, or let a step of the build make it",
        )


# ---------------------------------------------------------------- lists that a RUN installs

# What puts no file where a list would be; of all else that may be so.
_PUT_NO_LIST = options.names(
    "apk apt apt-get apt-key add-apt-repository cd chmod chown dnf echo export groupadd locale-gen microdnf mkdir pip "
    "pip3 printf rm set sudo tdnf touch true unset update-alternatives useradd usermod uv yum zypper :"
)


def install_list_missing(dockerfile: Dockerfile) -> Iterator[Finding]:
    """The list that pip or uv installs in a RUN is in the image at that moment: the build context is not.  Source:
    Dockerfile reference, RUN and COPY."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        plain = base.sure and not base.digest and base.family in ("os", "nvidia", "python", "pytorch")
        steps = dockerfile.steps_of(index) if plain and "onbuild" not in base.tag else ()
        for number, step in enumerate(steps):
            for at, command, lost in _lists_of_nobody(step):
                asked += 1
                full = posixpath.normpath(posixpath.join("/", command.cwd, lost.path))
                if command.span in told or forgiven(step, at) or _may_put(full, steps[:number], step.commands[:at]):
                    continue
                told.add(command.span)
                yield error(
                    f"no step before puts {lost.path} into the image, so that {command.program} does not find it and "
                    "the build ends here",
                    lost.span,
                    {f"{base.reference} has no such list": base.span.place},
                    f"write `COPY {posixpath.basename(lost.path)} .` before it, or with BuildKit `RUN "
                    "--mount=type=bind,target=. ...`",
                )
    skip_if(not asked, "every list that is installed is put there, or may be")


def _lists_of_nobody(step: Step) -> Iterator[tuple[int, Command, Unread]]:
    """The surely run commands of a RUN that install a list which nothing puts there, with their places in it."""
    if step.name != "RUN" or any(True for _ in mounts(step.flags)):
        return
    for lost in step.unread:
        if lost.why != NOWHERE or re.search(r"[$`*?]", lost.path) or not lost.path.endswith((".txt", ".in")):
            continue
        for at, command in enumerate(step.commands):
            mine = inside(command.span, lost.span) and not command.cwd.startswith(
                "/opt"
            )  # torch's sources, in old images
            if mine and command.sure and command.program.startswith(("pip", "uv", "python")):
                yield at, command, lost
                break


_A_FILE = pattern(r".*\.(?:txt|in|toml|cfg|ini|py|sh|lock|ya?ml|json|md|whl)")


def _may_put(path: str, before: Sequence[Step], commands: Sequence[Command]) -> bool:
    """Whether a step may put the file at ``path`` there in a way that the text does not show: a submodule, which a
    checkout of the project may lack, among them."""
    for step in before:
        copy = step.copy
        above = copy is not None and within(path, posixpath.normpath(copy.target))
        if copy is not None and above and not all(_A_FILE.fullmatch(source) for source in copy.sources):
            return True
        if copy is not None and copy.foreign and not copy.of_uv:
            return True
        if copy is not None and copy.add and any(re.search(r"://|\.(?:t|zip)", source) for source in copy.sources):
            return True
        if step.unread or (step.name == "RUN" and any(True for _ in mounts(step.flags))):
            return True
    every = [*(each for step in before if step.name == "RUN" for each in step.commands), *commands]
    return any(each.program not in _PUT_NO_LIST and "pip" not in each.args[:2] for each in every)
