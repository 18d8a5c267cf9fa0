"""Packages that use CUDA or torch: what each says it was built for, and what its import maps beyond torch's libraries.

Each is imported in a process of its own, after torch, as most programs do it: two of them may not bear one another.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from envkit.payload.probe.child import Child, ParallelChildren

if TYPE_CHECKING:
    from envkit.payload.probe import wheels
    from envkit.payload.probe.report import Pipe

_STEP_S = 60.0  # for the import of one, and for asking it; torch before it has what torch has
_IMPORT = "import "
_ASK = "asking "

# distribution: the package whose import is observed.  Triton alone is a part of torch and is nothing to be imported.
FRAMEWORKS = {
    "torchvision": "torchvision", "torchaudio": "torchaudio", "xformers": "xformers", "flash-attn": "flash_attn",
    "bitsandbytes": "bitsandbytes", "vllm": "vllm", "deepspeed": "deepspeed", "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime", "jax": "jax", "cupy-cuda11x": "cupy", "cupy-cuda12x": "cupy",
    "cupy-cuda13x": "cupy", "tensorflow": "tensorflow",
}  # fmt: skip


class Claim:
    """What a distribution says of its build; empty where it does not say."""

    def __init__(self) -> None:
        self.torch = self.cuda = self.gpu = ""
        self.via: list[str] = []

    def say(self, via: str, torch: str = "", cuda: str = "") -> None:
        """Takes what ``via`` says for whatever nobody said before."""
        if (torch and not self.torch) or (cuda and not self.cuda):
            self.via.append(via)
        self.torch, self.cuda = self.torch or torch, self.cuda or cuda


def _cuda_of(digits: str) -> str:
    """The digits behind "cu" as CUDA's version: the last one is the minor from three digits on."""
    return f"{digits[:-1]}.{digits[-1]}" if len(digits) > 2 else digits


def _file(dist: wheels.Dist, name: str) -> str:
    try:
        with open(os.path.join(dist.base, name), encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _xformers(dist: wheels.Dist, claim: Claim) -> None:
    """xformers' own build record: {"version": {"torch": "x.y.z+cuNNN", "cuda": 100 * x + y or "x.y"}}."""
    try:
        said = json.loads(_file(dist, "xformers/cpp_lib.json"))["version"]
        cuda = said.get("cuda")
        cuda = f"{cuda // 100}.{cuda % 100}" if isinstance(cuda, int) else str(cuda or "")
        claim.say("xformers/cpp_lib.json", str(said.get("torch") or ""), cuda)
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def _deepspeed(dist: wheels.Dist, claim: Claim) -> None:
    """DeepSpeed's torch_info = {"version": "x.y", "cuda_version": "x.y"}, written where operators were built ahead."""
    for line in _file(dist, "deepspeed/git_version_info_installed.py").splitlines():
        name, equals, text = line.partition("=")
        if name.strip() != "torch_info" or not equals:
            continue
        try:
            said = ast.literal_eval(text.strip())
            torch, cuda = str(said.get("version", "")), str(said.get("cuda_version", ""))
        except (ValueError, SyntaxError, AttributeError):
            return
        if torch.strip("0."):  # all zeros where nothing was built
            claim.say("torch_info of DeepSpeed's installation", torch, cuda if cuda.strip("0.") else "")


def claim_of(dist: wheels.Dist, names: set[str]) -> Claim:
    """What the distribution's files say of its build; ``names`` are those of all installed distributions."""
    claim = Claim()
    if dist.name == "xformers":
        _xformers(dist, claim)
    if dist.name == "deepspeed":
        _deepspeed(dist, claim)
    local = dist.version.partition("+")[2]
    # "cuNNN" (PyTorch's index), "cuNNtorchX.YcxxNNabi..." (flash-attn)
    cuda, torch = re.search(r"cu(\d{2,4})", local), re.search(r"torch(\d+\.\d+(?:\.\d+)?)", local)
    if cuda or torch:
        claim.say("its version", torch.group(1) if torch else "", _cuda_of(cuda.group(1)) if cuda else "")
    suffix = re.fullmatch(r"cupy-cuda(\d+)x", dist.name)
    if suffix:
        claim.say("its name", cuda=suffix.group(1))
        claim.gpu = "yes"
    if dist.name == "jax":
        plugin = re.compile(r"jax-cuda(\d+)-plugin")
        majors = [found.group(1) for found in map(plugin.fullmatch, sorted(names)) if found]
        claim.gpu = "yes" if majors else "no"
        if majors:
            claim.say("the name of its plugin", cuda=majors[0])
    for line in dist.requires:
        pin = re.match(r"torch\s*\(?\s*==\s*([0-9][^\s,;)]*)", line)
        if pin and "extra ==" not in line and not pin.group(1).endswith("*"):
            claim.say("Requires-Dist: " + line, pin.group(1))
    if "cpu" in local:
        claim.gpu = "no"
    elif claim.cuda and not claim.gpu:
        claim.gpu = "yes"
    return claim


def _asked(package: str, claim: Claim) -> None:
    """What the imported package says of its build, where it has a function for it."""
    module: Any = importlib.import_module(package)
    if package == "onnxruntime":
        can = {"CUDAExecutionProvider", "TensorrtExecutionProvider"} & set(module.get_available_providers())
        claim.gpu = "yes" if can else "no"
        claim.say("onnxruntime's build", cuda=str(getattr(module, "cuda_version", "") or ""))
    elif package == "tensorflow":
        said = module.sysconfig.get_build_info()
        claim.gpu = "yes" if said.get("is_cuda_build") else "no"
        claim.say("tf.sysconfig.get_build_info", cuda=str(said.get("cuda_version") or ""))
    elif package == "torchvision":
        # CUDA_VERSION of cuda.h: 1000 * major + 10 * minor
        number = int(getattr(importlib.import_module("torchvision.version"), "cuda", None) or 0)
        claim.gpu = "yes" if number else "no"
        claim.say("torchvision.version", cuda=f"{number // 1000}.{number % 1000 // 10}" if number else "")


def _imported(name: str, names: set[str]) -> tuple[str, list[str]]:
    """How the import ended, and the packages that were imported: jax finds its plugins only when first used."""
    packages = [FRAMEWORKS[name]]
    if name == "jax":
        packages += [f"jax_plugins.xla_cuda{n}" for n in ("12", "13") if f"jax-cuda{n}-plugin" in names]
    for package in packages:
        try:
            importlib.import_module(package)
        except BaseException as error:  # whatever a broken package raises, SystemExit included, is the observation
            return f"raised {type(error).__name__}: {error}", packages
    return "done", packages


def _told(claim: Claim) -> dict[str, str]:
    via = ", ".join(claim.via)
    return {"built_torch": claim.torch, "built_cuda": claim.cuda, "built_via": via, "gpu": claim.gpu}


def report(pipe: Pipe, name: str) -> None:
    """Tells of the distribution ``name`` what its files say, then how its import ends, then what that mapped."""
    from envkit.payload.probe import libs, maps, torchside, wheels

    pipe.doing("reading the installed distributions")
    dists = wheels.distributions()
    names = {dist.name for dist in dists}
    claim = claim_of(next(dist for dist in dists if dist.name == name), names)
    pipe.field("claim", dict(_told(claim)))
    pipe.doing("import torch")
    ended, opened = torchside.import_torch()
    torchs = maps.mapped()
    pipe.doing(_IMPORT + name)
    ended, _packages = _imported(name, names)
    pipe.field("ended", {"ended": ended})
    if ended == "done":
        pipe.doing(_ASK + "it for its build")
        try:
            _asked(FRAMEWORKS[name], claim)
        except Exception as error:  # one that cannot name its build is data
            claim.via.append(f"it does not name its build: {type(error).__name__}: {error}")
        pipe.field("claim", dict(_told(claim)))
    pipe.doing(_ASK + "the libraries that it mapped for their versions")
    known = {os.path.realpath(path) for path in torchs}
    owner_of = partial(wheels.owner_of, owned=wheels.owners(dists), known={})
    told = libs.libraries(torchs, opened, owner_of)
    more = [lib for lib in told if lib["path"] not in known and not libs.is_torch(lib["name"])]
    pipe.field("libraries", {"libraries": more})


def _writable(directory: str) -> bool:
    """Whether a file can be made there; os.access does not say that root cannot, as in /proc."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=directory):  # without a name where the file system can, so nothing is seen
            return True
    except OSError:
        return False


def _fresh_home() -> str:
    """A new temporary directory where the home directory cannot be written, else empty.

    The probe's container has a read-only root.  A package that makes a directory in the home at its import would fail
    here for that alone, and its failure would say nothing of how it fits torch.
    """
    import tempfile

    if _writable(os.path.expanduser("~")):
        return ""
    try:
        return tempfile.mkdtemp(prefix="envkit-home-")
    except OSError:  # nothing at all can be written
        return ""


def _environment(home: str) -> dict[str, str] | None:
    """The environment of a process whose home is ``home``; None, for nothing changes, where that is empty."""
    if not home:
        return None
    import site

    # The user's packages are still those of the home that was.
    return {**os.environ, "HOME": home, "PYTHONUSERBASE": site.getuserbase()}


class Imports:
    """The imports of those of ``installed`` that are frameworks, each in a child, as many at once as there are CPUs.

    They run beside the import of torch in its own child, whose end nobody waits for.
    """

    def __init__(self, installed: list[dict[str, str]], parallel: ParallelChildren, folder: Sequence[str] = ()) -> None:
        self.wanted = [wheel for wheel in installed if wheel["name"] in FRAMEWORKS]
        self._waiting = list(self.wanted)
        self._parallel, self._folder = parallel, folder
        self._children: list[Child] = []
        self._home = _fresh_home() if self.wanted else ""
        self._env = _environment(self._home)
        self._at_once = max(1, len(os.sched_getaffinity(0)))

    def _running(self) -> list[Child]:
        return [child for child in self._children if child in self._parallel.running]

    def go_on(self) -> None:
        """Starts as many of the waiting ones as there is room for."""
        while self._waiting and len(self._running()) < self._at_once:
            name = self._waiting.pop(0)["name"]
            child = Child([*self._folder, "--framework", name], _STEP_S, (_IMPORT + name, _ASK), self._env)
            self._children.append(self._parallel.start(child))

    def give_up(self) -> None:
        """Ends those that run and starts no other."""
        self._waiting.clear()
        for child in self._running():
            self._parallel.stop(child, kill=True)

    def close(self) -> None:
        """Ends those that still run and removes the home that was made for them."""
        self.give_up()
        if self._home:
            import shutil

            shutil.rmtree(self._home, ignore_errors=True)

    def told(self) -> list[dict[str, object]]:
        """What each child told, once all have ended."""
        rows: list[dict[str, object]] = []
        for index, child in enumerate(self._children):
            one = self.wanted[index]
            row: dict[str, object] = {"name": one["name"], "version": one["version"], "ended": child.failed}
            for part in ("claim", "ended", "libraries"):
                row.update(child.found.get(part, {}))
            if child.failed and child.doing == _IMPORT + one["name"]:
                row["ended"] = child.how
            rows.append(row)
        return rows
