"""Faults of where tensors live: models whose parts meet on two devices, and AOTInductor packages.

No GPU is there: torch pretends one, and the packages are made for the CPU and then say otherwise.
"""

from __future__ import annotations

import json
import shlex
import sys
import zipfile
from collections.abc import Callable
from functools import cache as once
from hashlib import sha256
from pathlib import Path

from fault import Case, Fault
from stacks import Bench, cache, made_once, pristine, run, wheel

MODELS = """
import os

import torch
from torch import nn


class Two(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.one = nn.Linear(4, 8, device=first)
        self.two = nn.Linear(8, 2, device=second)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


class Carried(Two):
    def forward(self, x):
        return self.two(torch.relu(self.one(x)).to(self.two.weight.device))


class Forking(Two):
    def forward(self, x):
        y = self.one(x)
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return self.two(y)


def clean():
    return Two("cuda", "cuda"), torch.randn(3, 4, device="cuda")


def cpu_input():
    return Two("cuda", "cuda"), torch.randn(3, 4)


def two_gpus():
    return Two("cuda:0", "cuda:1"), torch.randn(3, 4, device="cuda:0")


def carried():
    return Carried("cuda", "cpu"), torch.randn(3, 4, device="cuda")


def frozen():
    model = Carried("cpu", "cuda")
    model.one.requires_grad_(False)
    return model, torch.randn(3, 4)


def frozen_clean():
    model = Carried("cuda", "cuda")
    model.one.requires_grad_(False)
    return model, torch.randn(3, 4, device="cuda")


def half():
    model = Two("cuda", "cuda")
    model.two.half()
    return model, torch.randn(3, 4, device="cuda")


def on_cpu():
    return Two("cpu", "cpu"), torch.randn(3, 4)


def forking():
    return Forking("cuda", "cuda"), torch.randn(3, 4, device="cuda")


def floats():
    return (torch.randn(3, 4),)


def elsewhere():
    return (torch.randn(3, 4, device="meta"),)


def doubles():
    return (torch.randn(3, 4, dtype=torch.float64),)
"""


def _line(text: str) -> str:
    """The number of the first line of the models that holds ``text``."""
    return str(next(number for number, line in enumerate(MODELS.splitlines(), 1) if text in line))


@once  # one function for all who ask for the same, so that its run is shared
def placed(stack: str, factory: str, *traces: str) -> Callable[[Bench], Case]:
    """The model of ``factory`` followed in ``stack``."""

    def make(bench: Bench) -> Case:
        bench.write("code/envkit_models.py", MODELS)
        words = ["probe", "--python", str(pristine(stack).python), "--gpus", "none"]
        words += ["--placement", f"envkit_models:{factory}", "--code", str(bench.folder / "code")]
        return Case(tuple(words), {}, traces)

    return make


def ranked(world: int, *traces: str) -> Callable[[Bench], Case]:
    """Two ranks of a job of two, of which rank 1 is told that they are ``world``; the report is that of rank 0."""

    def make(bench: Bench) -> Case:
        bench.write("code/envkit_models.py", MODELS)
        (bench.folder / "ranks").mkdir()
        words = ["probe", "--python", str(pristine("t215").python), "--gpus", "none", "--mode", "run"]
        words += ["--placement", "envkit_models:on_cpu", "--code", str(bench.folder / "code")]
        words += ["--ranks", str(bench.folder / "ranks")]
        other = shlex.join([sys.executable, "-m", "envkit", *words])
        setup = f"RANK=1 WORLD_SIZE={world} {other} > {bench.folder}/other 2>&1 &"
        return Case(tuple(words), {"RANK": "0", "WORLD_SIZE": "2"}, traces, setup)

    return make


# packages

MAKE = """
import sys

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x):
        return torch.relu(self.fc(x))


with torch.no_grad():
    program = torch.export.export(Net().eval(), (torch.randn(3, 4),))
    torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
"""


ALONE = "TORCHINDUCTOR_COMPILE_THREADS=1"  # a pool of processes, each of which imports torch, for one kernel


def package() -> Path:
    """A package for this processor, compiled once by torch 2.15."""
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line[:5] in ("flags", "Featu"))
    processor = sha256(flags.encode()).hexdigest()
    folder = cache() / "packages" / processor[:12]
    with made_once(folder) as wanted:
        if wanted:
            folder.mkdir(parents=True)
            (folder / "make.py").write_text(MAKE)
            run("env", ALONE, pristine("t215").python, folder / "make.py", folder / "model.pt2")
    return folder / "model.pt2"


def relinked(*words: str) -> Callable[[Bench], Case]:
    """A package for the CPU that torch 2.11 made with a g++ that adds ``words`` to each link, run as it says itself."""

    def make(bench: Bench) -> Case:
        tools = wheel("setuptools==79.0.1").site  # this torch imports it to compile and to load
        (bench.folder / "make.py").write_text(MAKE)
        cxx = bench.folder / "g++"
        link = f'case " $* " in *" -shared "*) exec /usr/bin/g++ "$@" {" ".join(words)} ;; esac'
        cxx.write_text(f'#!/bin/sh\n{link}\nexec /usr/bin/g++ "$@"\n')
        cxx.chmod(0o755)
        model = bench.folder / "model.pt2"
        steered = (ALONE, f"CXX={cxx}", f"PYTHONPATH={tools}", f"TORCHINDUCTOR_CACHE_DIR={bench.folder / 'cache'}")
        run("env", *steered, pristine("t211").python, bench.folder / "make.py", model)
        argv = ("probe", "--python", str(pristine("t211").python), "--gpus", "none", "--aoti", str(model))
        traces = ("std::locale::classic()", "libstdc++.so.6", str(cxx), "set CXX=/usr/bin/g++")
        return Case(argv, {"CXX": str(cxx), "PYTHONPATH": str(tools)}, traces)

    return make


def edited(bench: Bench, changes: dict[str, str]) -> Path:
    """The package with other words in its metadata."""
    target = bench.folder / "model.pt2"
    changed = 0
    with zipfile.ZipFile(package()) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            if changes and item.filename.endswith("wrapper_metadata.json"):
                data = json.dumps({**json.loads(data), **changes}).encode()
                changed += 1
            new.writestr(item, data)
    assert changed == bool(changes), "the package holds no metadata to change"
    return target


def packaged(changes: dict[str, str], inputs: str, *traces: str) -> Callable[[Bench], Case]:
    """The package with ``changes`` in its metadata, run with what the function ``inputs`` gives."""

    def make(bench: Bench) -> Case:
        bench.write("code/envkit_models.py", MODELS)
        words = ["probe", "--python", str(pristine("t215").python), "--gpus", "none"]
        words += ["--aoti", str(edited(bench, changes))]
        words += ["--inputs", f"envkit_models:{inputs}", "--code", str(bench.folder / "code")]
        return Case(tuple(words), {}, traces)

    return make


FITTING = packaged({}, "floats")

FAULTS = (
    Fault(
        "E02",
        "placement-fork-after-cuda",
        "a model forks a process after it used the GPU",
        placed("t215", "forking", "envkit_models.py", _line("child = os.fork()")),
        "the same model without the fork",
        placed("t215", "clean"),
        severity="warning",
    ),
    Fault(
        "F01",
        "placement-state-split",
        "a part of the parameters is on the CPU",
        placed("t215", "carried", "cpu", "cuda"),
        "all parameters are on the GPU",
        placed("t215", "clean"),
        severity="warning",
        also=frozenset({"placement-host-copies"}),
    ),
    Fault(
        "F02",
        "placement-two-devices",
        "an input on the CPU meets a model on the GPU",
        placed("t215", "cpu_input", "envkit_models.py", _line("torch.relu(self.one(x)))")),
        "the input is on the GPU",
        placed("t215", "clean"),
    ),
    Fault(
        "F01",
        "placement-frozen-split",
        "the frozen part is on the CPU and the trained one on the GPU",
        placed("t215", "frozen", "cpu", "cuda"),
        "both are on the GPU",
        placed("t215", "frozen_clean"),
        severity="warning",
        also=frozenset({"placement-host-copies"}),
    ),
    Fault(
        "F02",
        "placement-dtype-mix",
        "a layer of half precision meets what one of single precision gives",
        placed("t215", "half", "float16", "float32", _line("torch.relu(self.one(x)))")),
        "both layers are of single precision",
        placed("t215", "clean"),
    ),
    Fault(
        "F02",
        "placement-two-devices",
        "two layers are on two GPUs and nothing carries over",
        placed("t215", "two_gpus", "cuda:0", "cuda:1", _line("torch.relu(self.one(x)))")),
        "both are on one GPU",
        placed("t215", "clean"),
        also=frozenset({"placement-state-split"}),
        variant="gpus",
    ),
    Fault(
        "F02",
        "placement-two-devices",
        "an input on the CPU meets a model on the GPU in torch 2.6, whose fake tensors need a driver",
        placed("t26", "cpu_input", "envkit_models.py", _line("torch.relu(self.one(x)))")),
        "the input is on the GPU",
        placed("t26", "clean"),
        variant="t26",
    ),
    Fault(
        "F03",
        "aoti-no-such-device",
        "a package for CUDA where there is no GPU",
        packaged({"AOTI_DEVICE_KEY": "cuda"}, "floats", "cuda"),
        "a package for the CPU",
        FITTING,
        also=frozenset({"aoti-wrong-runner-class"}),
        twin_skips=True,
    ),
    Fault(
        "F03",
        "aoti-other-machine",
        "a package that says it is for aarch64",
        packaged({"AOTI_MACHINE": "aarch64"}, "floats", "aarch64"),
        "one for this machine",
        FITTING,
        nightly=True,
    ),
    Fault(
        "F03",
        "aoti-isa-missing",
        "a package that says it was compiled for instructions of ARM",
        packaged({"AOTI_CPU_ISA": "ASIMD"}, "floats", "asimd"),
        "one compiled for this processor",
        FITTING,
        nightly=True,
    ),
    Fault(
        "F04",
        "aoti-device-differs",
        "an input on the device meta for a package that takes it on the CPU",
        packaged({}, "elsewhere", "meta", "cpu"),
        "the input is on the CPU",
        FITTING,
    ),
    Fault(
        "F04",
        "aoti-input-mismatch",
        "an input of double precision for a package that takes single",
        packaged({}, "doubles", "float64", "float32"),
        "an input of single precision",
        FITTING,
        nightly=True,
    ),
    Fault(
        "F05",
        "aoti-wrong-runner-class",
        "a package whose metadata says CUDA and whose library is linked for the CPU",
        packaged({"AOTI_DEVICE_KEY": "cuda"}, "floats", "AOTIModelContainerRunnerCuda"),
        "both say CPU",
        FITTING,
        also=frozenset({"aoti-no-such-device"}),
        nightly=True,
    ),
    Fault(
        "F05",
        "aoti-cxx-runtime-inside",
        "a package made with a compiler that links libstdc++ statically, beside torch's shared one",
        relinked("-static-libstdc++"),
        "the compiler hides the copy that it links in",
        relinked("-static-libstdc++", "-Wl,--exclude-libs,libstdc++.a"),
        also=frozenset({"aoti-raised"}),
        nightly=True,
    ),
    Fault(
        "F08",
        "placement-ranks-share-gpu",
        "of two ranks one is told that there are two and the other that there is one",
        ranked(1, "rank 0 says 2", "rank 1 says 1"),
        "both are told that there are two; without GPUs nothing more is compared",
        ranked(2),
        twin_skips=True,
    ),
)
