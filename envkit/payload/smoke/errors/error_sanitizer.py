"""compute-sanitizer finds what is planted for each of its tools, by kernel and line, and nothing in the clean twins.

Each program is a fresh interpreter without a framework, under the tool.
"""

from __future__ import annotations

import ctypes
import json
import os
from functools import partial
from typing import Any, NamedTuple

from envkit.payload import programs
from envkit.payload.smoke import nvrtc, provoke, sanitize
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers.stages import own_folder
from envkit.payload.smoke.sources import text_of

_THREADS = 64
_TOOL_S = 90.0
_MARK = "// here"
# Each kernel does right with fault = 0 and wrong with 1; the marked line is the one to be named.
_SOURCES = {tool: text_of(f"errors/sanitizer_{tool}.cu") for tool in sanitize.TOOLS}


class _Program(NamedTuple):
    """One run: a tool's kernel, with its fault or without, on a device."""

    tool: str
    fault: bool
    device: str

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return _SOURCES[self.tool].partition("void ")[2].partition("(")[0]


def lines(tool: str) -> list[int]:
    """The numbers of the lines that the tool must name one of."""
    return [number for number, line in enumerate(_SOURCES[tool].split("\n"), 1) if _MARK in line]


def planted(device: str, tool: str, fault: str, target: str) -> None:
    """What the fresh interpreter does; writes the codes of its calls to the file ``target``."""
    program = _Program(tool, fault == "1", device)
    gpu = provoke.begin(device)
    driver = gpu.driver
    _, kernels = nvrtc.build(driver, gpu.number, _SOURCES[tool], [program.kernel], ["--generate-line-info"])
    source, result = driver.take(4 * _THREADS), driver.take(4 * _THREADS)
    if tool != "initcheck" or not program.fault:
        driver.write(source, bytes(4 * _THREADS))
    driver.write(result, bytes(4 * _THREADS))
    arguments = [ctypes.c_uint64(source), ctypes.c_uint64(result), ctypes.c_int(int(program.fault))]
    code = provoke.code_of(lambda: driver.launch(kernels[program.kernel], 1, _THREADS, arguments))
    code = code or provoke.code_of(driver.synchronize)
    wrong = -1 if code else sum(byte != 1 for byte in driver.read(result, 4 * _THREADS)[::4])
    with open(target, "w", encoding="ascii") as file:
        json.dump({"code": code, "wrong": wrong}, file)


def _watched(program: _Program, folder: str) -> dict[str, Any]:
    """Runs the program under its tool: what the tool found and how the program ended."""
    stem = os.path.join(folder, f"{program.tool}-{int(program.fault)}-{program.device.replace(':', '')}")
    target, log = stem + ".json", stem + ".log"
    argv = programs.interpreter(__name__, "planted", [program.device, program.tool, str(int(program.fault)), target])
    code, said = programs.told(sanitize.command(program.tool, argv, log), _TOOL_S)
    said = said[-600:]
    if not os.path.exists(log):
        raise RuntimeError(f"compute-sanitizer exited with status {code} and without its log: {said}")
    with open(log, encoding="utf-8", errors="replace") as file:
        report = sanitize.read(file.read())
    ended: dict[str, Any] = {}
    if os.path.exists(target):
        with open(target, encoding="ascii") as file:
            ended = json.load(file)
    return {"errors": report.errors, "first": report.first, "program": ended or said}


def _named(value: dict[str, Any], program: _Program) -> bool:
    """Whether the tool named the planted kernel and line."""
    places = [f"{program.kernel}.cu:{number}" for number in lines(program.tool)]
    first = str(value.get("first", ""))
    return value.get("errors", 0) > 0 and any(first.endswith(place) for place in places) and program.kernel in first


def run(bench: Bench) -> None:
    """Measures for each tool ``TOOL.reported.wrong`` (kernel and line of the planted fault) and ``TOOL.clean.wrong``
    (errors told of the clean twin, and what that computed wrong), then ``after.wrong``."""
    if not sanitize.found("compute-sanitizer"):
        bench.not_applicable("there is no compute-sanitizer in PATH, in a CUDA toolkit or among the wheels")
    nvrtc.Compiler()  # which says that there is none before anything is started
    folder = own_folder(bench, "error-sanitizer")
    for tool in sanitize.TOOLS:
        faulty = _Program(tool, provoke.planted(bench), bench.device)
        clean = faulty._replace(fault=False)
        to_run = {"clean": clean} if faulty == clean else {"faulty": faulty, "clean": clean}
        works = {name: partial(_watched, program, folder) for name, program in to_run.items()}
        found = provoke.ends(works, _TOOL_S + 10.0)
        ending, twin = found.get("faulty", found["clean"]), found["clean"]
        value = ending.value if isinstance(ending.value, dict) else {}
        provoke.tell(bench, f"{tool}.reported.wrong", _named(value, faulty), f"{tool}: {provoke.words(ending)}")
        value = twin.value if isinstance(twin.value, dict) else {}
        clear = value.get("errors") == 0 and value.get("program") == {"code": 0, "wrong": 0}
        provoke.tell(bench, f"{tool}.clean.wrong", clear, "" if clear else f"{tool}, clean: {provoke.words(twin)}")
    provoke.after_driver(bench)
