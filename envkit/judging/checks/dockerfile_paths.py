"""What is asked of the folders in which the loader looks for CUDA's libraries."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envkit.dockerfile.requirements import allows
from envkit.dockerfile.torches import variant_of
from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import need_stages, unknown_if_unread
from envkit.judging.checks._outcomes import error, found, skip_if, warning
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding, Severity, Skip, Span, Unknown
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Command, Dockerfile, Setting, Step, Torch

_CUDA = pattern(r"/usr/local/cuda(?:-(\d+(?:\.\d+)?))?(?:/lib64|/lib|/targets/[\w-]+/lib)?")
_STUBS = pattern(r"/usr/local/cuda[-\d.]*(?:/lib64|/lib|/targets/[\w-]+/lib)/stubs")
_OWN = pattern(r"(?:site|dist)-packages/(?:nvidia/|torch/lib)")
_SYSTEM = frozenset({"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu"})
_LIBRARY = pattern(r"lib(?:cu(?:da|dart|blas|blasLt|dnn\w*|fft|sparse|solver|rand)|nvrtc|nvJitLink)\.so")


def ld_library_path_shadow(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """LD_LIBRARY_PATH and LD_PRELOAD put no CUDA libraries of another version, and no stubs, before those of torch."""
    need_stages(dockerfile)
    settings = _settings(dockerfile)
    written = list(_stub_configs(dockerfile))
    skip_if(not settings and not written, "nothing here sets the loader's search path")
    uses = stack.framework(dockerfile)
    if uses is None and dockerfile.torch is None:
        if written or any(_may_shadow(each, dockerfile.base) for each in settings):
            unknown_if_unread(dockerfile.unread)
        raise Skip("no framework for CUDA is installed, as far as the text says")
    for span, folder in written:
        yield _stub(span, folder, "ld.so.conf")
    for setting in settings:
        for folder in _folders(setting):
            if _OWN.search(folder):
                break  # torch's own come first
            if _STUBS.fullmatch(folder):
                if _has_stubs(dockerfile):
                    yield _stub(setting.span, folder, setting.name)
                continue
            finding = _shadow(setting, folder, dockerfile, facts)
            if finding is not None:
                yield finding
                break


def _settings(dockerfile: Dockerfile) -> list[Setting]:
    """The last ENV of either variable, if the file sets it."""
    last: dict[str, Setting] = {}
    for step in dockerfile.steps:
        for setting in step.settings:
            if setting.kind == "ENV" and setting.name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
                last[setting.name] = setting
    return list(last.values())


def _folders(setting: Setting) -> Iterator[str]:
    for entry in re.split(r"[:\s]+" if setting.name == "LD_PRELOAD" else ":", setting.value or ""):
        if setting.name == "LD_PRELOAD":
            if _LIBRARY.match(posixpath.basename(entry)) and "/" in entry:
                yield stack.normal(posixpath.dirname(entry))
        elif entry.strip():
            yield stack.normal(entry)


def _has_stubs(dockerfile: Dockerfile) -> bool:
    """Whether a toolkit with its stubs is there: a base for development, or packages for it."""
    flavor = stack.said(dockerfile.base.flavor)
    devel = flavor == "devel" or dockerfile.base.family == "ngc"
    return devel or any(one.whole for one in stack.toolkits(dockerfile.installs))


def _stub(span: Span, folder: str, by: str) -> Finding:
    return error(
        f"{by} names {folder}, whose libcuda is only a stub",
        span,
        {folder: span.place},
        "remove the stubs folder from it; to link against them while building, set LIBRARY_PATH in that RUN alone",
    )


def _stub_configs(dockerfile: Dockerfile) -> Iterator[tuple[Span, str]]:
    """Every place that writes a stubs folder into the loader's configuration, and no later one that takes it away."""
    if not _has_stubs(dockerfile):
        return
    written: list[tuple[Span, str]] = []
    for _, command, text in _configuring(dockerfile):
        if text is None:
            if command.program == "rm" and any("ld.so.conf.d" in word for word in command.args):
                written.clear()
            continue
        match = _STUBS.search(text)
        if match and command.program != "ldconfig":
            written.append((command.span, match[0]))
    yield from written


def _configuring(dockerfile: Dockerfile) -> Iterator[tuple[Step, Command, str | None]]:
    """Commands that surely change the loader's configuration, with what they write; None for a removal."""
    for step, command in dockerfile.commands:
        if not command.sure:
            continue
        said_here = " ".join(word.text for word in command.words[1:])
        targets = [redirect.target.text for redirect in command.redirects if redirect.op.startswith((">", "&>"))]
        if command.program == "tee":
            targets += list(command.args)
        if any("/etc/ld.so.conf" in target for target in targets):
            piped = said_here
            if command.program == "tee":
                piped = " ".join(" ".join(other.args) for other in step.commands if other.program in ("echo", "printf"))
            yield step, command, f"{piped}\n{command.heredoc}"
        elif command.program == "ldconfig":
            yield step, command, said_here
        elif command.program == "rm":
            yield step, command, None


def _may_shadow(setting: Setting, base: Base) -> bool:
    """Whether a setting names a folder that can stand before torch's libraries, whatever gets installed."""
    system = () if base.cudnn.is_unsupported else _SYSTEM
    return any(_STUBS.fullmatch(each) or _CUDA.fullmatch(each) or each in system for each in _folders(setting))


def _shadow(setting: Setting, folder: str, dockerfile: Dockerfile, facts: Facts) -> Finding | None:
    torch = dockerfile.torch
    if torch is None or torch.method in ("base", "conda", "source"):
        return None  # conda's libraries carry an RPATH, which the loader heeds first
    cuda = stack.said(torch.cuda)
    if cuda == "cpu":
        return None
    if folder in _SYSTEM:
        return _cudnn(setting, folder, torch, dockerfile.base, facts)
    there = _libraries(folder, dockerfile)
    if not there:
        return None
    version, build = stack.said(torch.version), None
    if not cuda:
        build = stack.least_build(torch, dockerfile, facts)
        if build is None:
            raise Unknown(f"the CUDA of torch was not observed: {torch.cuda.missing}")
        if not (stack.is_last(build, torch, facts) or not _before(_OPENS, str(build.torch), facts)):
            raise Unknown(f"the CUDA of torch was not observed: {torch.cuda.missing}")
        cuda, version = str(build.cuda), str(build.torch)
    if stack.major(there) != stack.major(cuda) or stack.minor(there) in ("", stack.minor(cuda)):
        return None  # of two majors only libraries share a soname that torch needs itself, and finds by its RPATH
    if setting.name == "LD_PRELOAD":
        libraries, older = "libraries", False
    else:
        libraries, older = _found_there(torch, version, there, cuda, facts)
    if not libraries:
        return None
    so = f", whose libcusparse needs one of CUDA {stack.minor(cuda)} or newer, so that `import torch` fails"
    return found(
        f"{setting.name} puts {folder} with the {libraries} of CUDA {there} before the one that {stack.shown(torch)} "
        f"brings for CUDA {cuda}{so if older else ''}",
        setting.span,
        Severity.ERROR if older else Severity.WARNING,
        f"take {folder} off {setting.name}: torch finds its own libraries",
        stack.evidence(torch, build) | {f"CUDA {there}": f"{dockerfile.base.span.place}, {dockerfile.base.cuda.via}"},
    )


def _before(name: str, version: str, facts: Facts) -> bool:
    """Whether a release of torch is older than the first one that does otherwise."""
    return allows(f"<{facts.milestone(name).release}", version) is True


def _found_there(torch: Torch, version: str, there: str, cuda: str, facts: Facts) -> tuple[str, bool]:
    """Which of torch's own libraries the loader finds in a folder of LD_LIBRARY_PATH in place of torch's, "" for none,
    and whether they are too old for it.

    Wheels that hold all of CUDA find it by RUNPATH, which comes after the variable.  Those that require NVIDIA's
    wheels have RPATH, which comes before it, and what is then left are the libraries that those of NVIDIA, which have
    RUNPATH, need of one another and torch does not.  Source: ld.so(8), and what the rows of ``milestone`` name.
    """
    held = "torch-index-requires-cuda" if _of_own_index(torch) else "torch-requires-cuda"
    if _before(held, version, facts):
        return "libcublas", False
    if _before("torch-needs-cublaslt", version, facts):
        return "libcublasLt", False  # which libcublas needs
    older = tuple(map(int, stack.minor(there).split("."))) < tuple(map(int, stack.minor(cuda).split(".")))
    linked = stack.major(cuda) == "12" and older and _before(_OPENS, version, facts)
    return ("libnvJitLink", True) if linked else ("", False)


# torch opens libnvJitLink by its path before it loads what needs it.
_OPENS = "torch-opens-nvjitlink"


def _of_own_index(torch: Torch) -> bool:
    """Whether a wheel is of PyTorch's own index, whose older ones hold all of CUDA."""
    one = torch.install
    return one is not None and bool(one.local or any(map(variant_of, (one.index, *one.extra_indexes, *one.find_links))))


def _libraries(folder: str, dockerfile: Dockerfile) -> str:
    """The CUDA whose math libraries lie in a folder, "" for none or where that is not known."""
    match = _CUDA.fullmatch(folder)
    if not match or folder == "/usr/local/cuda":
        return ""
    base = dockerfile.base
    cuda = stack.cuda_of_base(base)
    if not match[1] or match[1] in (stack.minor(cuda), stack.major(cuda)):
        flavor = stack.said(base.flavor)
        if not flavor and not base.flavor.is_unsupported:
            raise Unknown(f"whether {base.reference} has libraries in {folder} is not known: {base.flavor.missing}")
        if base.family == "pytorch" and flavor == "runtime":
            return ""  # PyTorch makes these FROM ubuntu, and CUDA comes with torch (docker.Makefile, BASE_RUNTIME)
        return cuda if flavor in ("runtime", "devel") else ""
    return next(
        (one.cuda for one in stack.toolkits(dockerfile.installs) if one.whole and stack.minor(one.cuda) == match[1]), ""
    )


def _cudnn(setting: Setting, folder: str, torch: Torch, base: Base, facts: Facts) -> Finding | None:
    """The base's cuDNN before the one of torch's wheel, where both have the same soname."""
    cudnn, row = stack.said(base.cudnn), stack.row_of(torch, facts)
    if base.family != "nvidia" or not cudnn or row is None or row.cudnn is None:
        return None
    if row.cudnn.major != int(stack.major(cudnn)):
        return None
    other = str(row.cuda.major) != stack.major(stack.cuda_of_base(base))
    if not other and ("." not in cudnn or cudnn == str(row.cudnn)):
        return None
    return found(
        f"{setting.name} puts {folder} with cuDNN {cudnn} of the base before the cuDNN {row.cudnn} that "
        f"{stack.shown(torch)} brings"
        + (f", and it is made for CUDA {stack.major(stack.cuda_of_base(base))}" if other else ""),
        setting.span,
        Severity.ERROR if other else Severity.WARNING,
        f"take {folder} off {setting.name}, where the loader looks anyway, or a base without cuDNN",
        {f"cuDNN {row.cudnn}": cited(row), f"cuDNN {cudnn}": f"{base.span.place}, {base.cudnn.via}"},
    )


# ---------------------------------------------------------------- cuda-compat

_COMPAT = pattern(r"/(?:usr/local/cuda[^/\s:;\"']*|cuda[^/\s:;\"']*|usr/local/cuda-\S*)/(?:\S*/)?compat(?:/|\b)")


def cuda_compat_registered(dockerfile: Dockerfile) -> Iterator[Finding]:
    """The folder of cuda-compat is not put where the loader looks at every start."""
    need_stages(dockerfile)
    for span, where in _registered(dockerfile):
        yield warning(
            f"{where} makes the loader take libcuda of cuda-compat in place of the machine's driver",
            span,
            {where: span.place},
            "leave it out: the container toolkit takes cuda-compat where the driver is older and the GPU allows it",
        )


def _registered(dockerfile: Dockerfile) -> Iterator[tuple[Span, str]]:
    for setting in _settings(dockerfile):
        entries = [entry for entry in re.split(r"[:\s]+", setting.value or "") if _COMPAT.search(f"{entry}/")]
        entries = [entry for entry in entries if not _only_where_needed(entry, dockerfile)]
        if entries:
            yield setting.span, f"{entries[0]} on {setting.name}"
    for _, command, text in _configuring(dockerfile):
        if text is not None and _COMPAT.search(text):
            named = next((word for word in command.args if _COMPAT.search(word)), "of a compat folder")
            yield command.span, f"ldconfig {named}" if command.program == "ldconfig" else "a line in ld.so.conf"
    for _, command in dockerfile.commands:
        if command.sure and (where := _copied(command)):
            yield command.span, where
        if command.sure and _in_startup_file(command):
            yield command.span, "a start-up file of the shell"
    yield from _set_at_start(dockerfile)


def _only_where_needed(folder: str, dockerfile: Dockerfile) -> bool:
    """Whether a folder of cuda-compat is one of NVIDIA's frameworks, on whose own search path it stands too: its
    libraries lie in ``lib.real``, which the entry point links to ``lib`` where it has found an older driver.

    Source: the LD_LIBRARY_PATH of nvcr.io/nvidia/pytorch (/usr/local/cuda/compat/lib before all others).
    """
    base = dockerfile.base
    of_framework = base.family == "ngc" and re.match(r"[0-9]{2}\.[0-9]{2}(?:$|[-_.])", base.tag) is not None
    return of_framework and "l4t" not in base.reference and ".real" not in folder


def _copied(command: Command) -> str:
    """Which libcuda of cuda-compat a command links or copies to another folder, empty if none."""
    if command.program not in ("ln", "cp") or len(command.args) < 2 or _COMPAT.search(command.args[-1]):
        return ""
    sources = [word for word in command.args[:-1] if _COMPAT.search(word) and "libcuda" in word]
    return f"{command.program} of {sources[0]}" if sources else ""


def _in_startup_file(command: Command) -> bool:
    """Whether a command writes the folder of cuda-compat into a file that shells read when they start."""
    started = " ".join(word.text for word in command.words)
    files = [redirect.target.text for redirect in command.redirects]
    startup = any(re.search(r"bashrc|profile|/etc/environment", one) for one in files)
    return startup and "LD_LIBRARY_PATH" in started and _COMPAT.search(started) is not None


def _set_at_start(dockerfile: Dockerfile) -> Iterator[tuple[Span, str]]:
    """Where CMD and ENTRYPOINT put the folder of cuda-compat on LD_LIBRARY_PATH."""
    for step in dockerfile.steps:
        if step.name in ("CMD", "ENTRYPOINT"):
            for command in step.commands:
                value = command.assigns.get("LD_LIBRARY_PATH")
                if value is not None and _COMPAT.search(f"{value.text}/"):
                    yield value.span, f"LD_LIBRARY_PATH of {step.name}"
