"""The stages: for each, what it changes, and whether it is worth its time after what the stages before it showed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from envkit.debug import cores, native, numbers, packages, placed, ranks, sanitizer, stacks, told
from envkit.debug.job import CRASHES, CommandRun, Tools
from envkit.debug.records import Fault, PythonFrame
from envkit.facts import Facts
from envkit.logs.records import Event, Explanation, Role
from envkit.logs.story import Story
from envkit.records import dataclass

UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # each tensor an allocation of its own, as large as asked for
BUT_CAPTURES = {"ENVKIT_DEBUG_CACHE": "captures"}  # the same but for what is made while a CUDA graph is captured
CACHED = {"ENVKIT_DEBUG_CACHE": "all"}
_PROFILE_S = 60  # of a command that takes long
_LINES = {"ENVKIT_DEBUG_LINES": "1"}  # kernels that are compiled at run time are compiled with their lines
BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}
# An exception that a computation brought about, not the program's own words: what it complains of may be a kernel's.
_NUMBERS = re.compile(
    r"mismatch|not (?:close|equal)|differ|wrong|incorrect|\bnan\b|\binf\b|diverg|unexpected (?:result|value)"
    r"|max(?:imum)? (?:abs|diff|err)",
    re.I,
)
_RUNNER = re.compile(r"run_func_\(|model_container_runner|AOTInductorModelContainerRun")  # torch, csrc/inductor
_PACKAGE = re.compile(r"AOTInductor model|aoti_load_package|pt2_archive")
_CAPTURE = ("capture-forbidden", "capture-refused", "capture-broken", "capture-failed")  # signatures of outputs
_WAITS_FOR_GPU = re.compile(r"\b(?:cu(?:Ctx|Stream|Event)|cuda(?:Device|Stream|Event))Synchronize\b|\bsynchronize\b")


def of_numbers(kind: str, message: str) -> bool:
    """Whether an exception is about what was computed, which a silent fault of a kernel can cause."""
    return kind.endswith("AssertionError") or bool(_NUMBERS.search(message))


def captures_fail(story: Story) -> bool:
    """Whether an output tells of a capture of a CUDA graph that failed, before any other error of CUDA."""
    met = [event for event in story.events if event.role is not Role.ADVICE and event.has("cuda")]
    return bool(met) and met[0].signature.id in _CAPTURE


@dataclass(frozen=True, slots=True)
class State:
    """What is known before a stage: what ran so far, by stage, and what it told."""

    command: tuple[str, ...]
    tools: Tools
    kernels: tuple[str, ...] = ()
    stage_s: float = 600.0
    runs: Mapping[str, CommandRun] = field(default_factory=dict)
    stories: Mapping[str, Story] = field(default_factory=dict)
    faults: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    python: tuple[PythonFrame, ...] = ()
    explanation: Explanation | None = None
    told: ranks.Diagnosis | None = None  # what the ranks of a job tell
    goes_on: str = ""  # why a job whose time was up may go on all the same
    placed: placed.Placed | None = None  # the tensor on another device, of an operation that refused it
    origin: numbers.Origin | None = None  # the call that made the first number that is not finite, or changed a tensor
    standing: str = ""  # the kernel that the GPU was in while the command stood at a line
    native: str = ""  # where native code died
    inside: bool = False  # whether that is below code that is neither the C library's nor Python's
    carries: str = ""  # the library that it died in for a C++ runtime of its own
    elsewhere: tuple[str, ...] = ()  # other lines that launch the kernel, where nothing tells which one it was
    cached: bool = False  # whether a stage without torch's cache failed by a capture, for which it is left on now
    hidden: bool = False  # whether torch's cache of memory hid the kernel's error that the command failed by
    tracked: str = ""  # the assertion of the device that torch tracked
    launched: str = ""  # where a launch was refused whose answer nobody looked at, before the call that told of it
    waited: str = ""  # the copies that a command waits for nowhere, and is well where they are waited for
    mixed: str = ""  # what an AOTInductor package says of an input that is not as those it was made for

    @property
    def first(self) -> CommandRun:
        """The command as it is."""
        return self.runs["as-is"]

    @property
    def device(self) -> bool:
        """Whether any run met an error that CUDA reports: not a word of advice, and not a warning that passed."""
        met = [event for event in self._events() if event.role is not Role.ADVICE and event.category]
        traits = ("sticky", "cuda", "device")
        return any(any(map(event.has, traits)) and not event.has("warning") for event in met)

    @property
    def sticky(self) -> bool:
        """Whether the command as it is met an error that poisons its process, whatever it made of it."""
        events = self.stories["as-is"].events if "as-is" in self.stories else ()
        return any(event.has("sticky") and event.role is not Role.ADVICE for event in events)

    @property
    def failed(self) -> bool:
        """Whether the command as it is went wrong: itself, a child of it, or a kernel whose error it passed over."""
        return not self.first.succeeded or bool(self.first.crashed()) or self.sticky

    @property
    def gpu(self) -> bool:
        """Whether it uses CUDA."""
        return self.device or any(run.cuda for run in self.runs.values())

    @property
    def captures(self) -> bool:
        """Whether it captures CUDA graphs, in which torch can allocate from its cache of memory alone."""
        return self.cached or any(event["event"] == "graph" for run in self.runs.values() for event in run.events)

    @property
    def broken_capture(self) -> bool:
        """Whether the command as it is failed by a call that cannot be captured."""
        story = self.stories.get("as-is")
        return self.failed and not self.sticky and story is not None and captures_fail(story)

    @property
    def hangs(self) -> bool:
        """Whether it did not come to an end by itself."""
        return self.first.ended in ("hung", "timed-out")

    @property
    def stands(self) -> bool:
        """Whether its time was up while it used a processor and no stack of Python moved, as where it waits for a
        kernel."""
        first = self.first
        stood = bool(first.samples) and not stacks.moved(first.samples)
        return self.gpu and first.ended == "timed-out" and first.busy >= 0.5 and stood and not self.goes_on

    @property
    def fault(self) -> Fault | None:
        """The fault that a stage has found."""
        return next((found for each in self.faults.values() if (found := sanitizer.worst(each))), None)

    @property
    def assertion(self) -> bool:
        """Whether the device itself printed the assertion that failed, with its place."""
        return any(event.has("device") and event.category == "device-side-assert" for event in self._events())

    @property
    def numbers(self) -> bool:
        """Whether it failed by an exception about what it computed, which a silent fault of a kernel can cause."""
        raised = [event for event in self.first.events if event.get("event") == "exception"]
        said = [(str(event.get("kind", "")), str(event.get("message", ""))) for event in raised]
        said += [(trace.kind, trace.message) for story in self.stories.values() for trace in story.tracebacks]
        return any(of_numbers(kind, message) for kind, message in said)

    @property
    def messages(self) -> tuple[str, ...]:
        """What the first exception of each run said that ended with one."""
        met = (next((each for each in run.events if each["event"] == "exception"), None) for run in self.runs.values())
        return tuple(str(event.get("message", "")) for event in met if event is not None)

    @property
    def settled(self) -> str:
        """Why the explanation of the command's own output leaves no question to a GPU's tools; empty if it does."""
        told = self.explanation
        if told is None or not self.failed or self.device or self.numbers or self.first.crashed():
            return ""
        if self.first.exit is not None and self.first.exit < 0:
            return ""
        if told.confidence >= 0.5 and told.category != "insufficient-evidence":
            return f"its own output tells the cause ({told.category}), and no kernel is part of it"
        return ""

    @property
    def refused(self) -> bool:
        """Whether the command failed at a launch that CUDA refused, so that the kernel never ran."""
        told = self.explanation
        refused = (
            told is not None
            and told.confidence >= 0.5
            and (told.because.startswith("the launch of a kernel was refused") or told.category == "no-kernel-image")
        )
        return self.failed and not self.sticky and refused

    def _events(self) -> list[Event]:
        return [event for story in self.stories.values() for event in story.events]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A stage that is to run: why, what it adds to the environment, and what it puts around the command.

    ``around`` makes the command line out of the command and the stage's folder as the command sees it.  ``launches``
    are kernels whose launches are to be found.
    """

    why: str
    environ: Mapping[str, str | None] = field(default_factory=dict)
    around: Callable[[Sequence[str], str], Sequence[str]] | None = None
    launches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SkippedStage:
    """A stage that does not run: why.  ``missing`` is the tool that it wants; ``open`` says that it should have looked,
    so that without it nothing may be called clean."""

    why: str
    missing: str = ""
    open: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage by its name, and how it is decided whether it runs."""

    name: str
    decide: Callable[[State], StagePlan | SkippedStage]


def _as_is(state: State) -> StagePlan | SkippedStage:
    return StagePlan("to see how it ends, with a crash handler in its Pythons")


def _unless_told(decide: Callable[[State], StagePlan | SkippedStage]) -> Callable[[State], StagePlan | SkippedStage]:
    """Decides on a stage that runs only where the stages before it leave a question."""
    return lambda state: _told(state) or decide(state)


def _told(state: State) -> SkippedStage | None:
    """Why no stage after the first runs, if none does."""
    if state.first.ended == "forks":
        return SkippedStage("the command forks without end")
    if not state.gpu:
        return SkippedStage("no process of the command loaded the CUDA driver")
    if state.fault or state.told:
        return SkippedStage("the cause is named")
    if state.mixed:
        return SkippedStage("the package's own checks name the cause")
    if state.tracked:
        return SkippedStage("the device's assertion that failed is named")
    if state.placed:
        return SkippedStage("the tensor that lies on another device is named")
    if state.origin and state.origin.sure:
        return SkippedStage("the call of torch that it began with is named")
    if state.native:
        return SkippedStage("the CPU's code died by itself, and no kernel's error was reported")
    if state.settled:
        return SkippedStage(state.settled)
    return None


def _unless_refused(decide: Callable[[State], StagePlan | SkippedStage]) -> Callable[[State], StagePlan | SkippedStage]:
    """Decides on a stage that looks into kernels, of which one that was refused leaves nothing to see."""

    def decided(state: State) -> StagePlan | SkippedStage:
        if not _told(state) and state.refused and state.python:
            return SkippedStage("the launch itself was refused, and the line that asked for it is known")
        if not _told(state) and state.broken_capture and state.python:
            return SkippedStage("the capture was refused, of which no kernel is part, and its line is known")
        return _unless_told(decide)(state)

    return decided


def _package_checks(state: State) -> StagePlan | SkippedStage:
    said = state.first.text()[-65536:]
    # a package takes a pointer of the CPU for one of the GPU and computes with it: what fails then is a kernel
    refused, faulted = _RUNNER.search(said), state.device and (_PACKAGE.search(said) or packages.loading(state.python))
    loaded = any(event["event"] == "package" for event in state.first.events)
    if not state.failed or not (refused or faulted or loaded):
        return SkippedStage("no AOTInductor package refused its inputs, or was used by a command that failed")
    why = "an AOTInductor package says nothing of its inputs: with its own checks it names the one that does not fit"
    return StagePlan(why, {"AOTI_RUNTIME_CHECK_INPUTS": "1"})


def _placement(state: State) -> StagePlan | SkippedStage:
    said = state.explanation
    if not state.failed or said is None or said.category != "tensors-on-different-devices":
        return SkippedStage("no operation refused tensors for their devices")
    why = "an operation was given tensors of two devices: to see which, and where each was made"
    return StagePlan(why, {"ENVKIT_DEBUG_PLACES": "1"})


def _numbers(state: State) -> StagePlan | SkippedStage:
    raised = [event for event in state.first.events if event["event"] == "exception"]
    said = [f"{event.get('kind', '')} {event.get('message', '')}" for event in raised]
    asked = any(numbers.CHANGED in each or numbers.NOT_FINITE.search(each) for each in said)
    if state.mixed:
        return SkippedStage("the package's own checks name the cause")
    if not (state.failed and state.gpu and asked) or state.device:
        return SkippedStage("no exception told of numbers that are not finite, or of a tensor changed in place")
    why = "to see the call of torch that makes the first nan out of numbers, and each that changes a tensor in place"
    return StagePlan(why, {"ENVKIT_DEBUG_NUMBERS": "1", "TORCH_COMPILE_DISABLE": "1"})


def _blocking(state: State) -> StagePlan | SkippedStage:
    if state.hangs:
        return SkippedStage("the command hangs, and this stage shows where an error is raised")
    if not state.device:
        return SkippedStage("no CUDA error was reported, and this stage shows where one is raised")
    why = "CUDA reports a kernel's error at a later call; with blocking launches the launch itself fails"
    return StagePlan(why, BLOCKING)


def _assertions(state: State) -> StagePlan | SkippedStage:
    said = "".join(run.text()[-65536:] for run in state.runs.values())
    if state.assertion:
        return SkippedStage("the device printed its assertion and the place of it already")
    if "Device-side assertion tracking was not enabled by user" in said:
        why = "this torch was built with device-side assertions, which are off until they are asked for"
        return StagePlan(why, {**BLOCKING, "PYTORCH_USE_CUDA_DSA": "1"})
    if "TORCH_USE_CUDA_DSA" in said:
        return SkippedStage(
            "this torch was built without device-side assertions: TORCH_USE_CUDA_DSA is read when torch is compiled, "
            "and setting it now changes nothing"
        )
    return SkippedStage("torch reported no error that its device-side assertions could tell more of")


def _uncached(state: State) -> StagePlan | SkippedStage:
    if state.tools.paths.get("compute-sanitizer"):
        return SkippedStage("compute-sanitizer is there, and its stages run without torch's cache of memory")
    if state.hangs or not state.failed:
        return SkippedStage("the command raises no error that could come earlier without torch's cache of memory")
    if state.captures:
        return SkippedStage("the command captures CUDA graphs, which cannot be done without torch's cache of memory")
    said = "without torch's cache each tensor is an allocation of its own, so that a stray access fails at once"
    return StagePlan(said, {**UNCACHED, **BLOCKING})


def _watched(tool: str) -> Callable[[State], StagePlan | SkippedStage]:
    def decide(state: State) -> StagePlan | SkippedStage:
        if state.assertion:
            return SkippedStage("an assertion of the device failed, which is not a fault of memory")
        if state.hangs and not (tool == "synccheck" and _stuck_in_gpu(state)):
            return SkippedStage("the command hangs and its threads do not wait for a kernel")
        path = state.tools.paths.get("compute-sanitizer", "")
        if not path:
            return SkippedStage("there is no compute-sanitizer", "compute-sanitizer", open=True)
        why = {
            "memcheck": "to check every access of every kernel against the allocations",
            "initcheck": "to find reads of memory that nobody wrote",
            "racecheck": "to find shared memory that threads use without a barrier or an atomic between them",
            "synccheck": "to find barriers that not all threads reach",
        }[tool]

        def around(argv: Sequence[str], folder: str) -> Sequence[str]:
            return sanitizer.command(path, tool, argv, f"{folder}/sanitizer.log", state.kernels)

        return StagePlan(why, {**_memory(state), **_LINES}, around)

    return decide


def _memory(state: State) -> Mapping[str, str]:
    """The environment in which as many tensors as can be are allocations of their own."""
    if state.cached:
        return CACHED
    return BUT_CAPTURES if state.captures else UNCACHED


def unseen(state: State) -> str:
    """What the stages of compute-sanitizer could not see of a command that captures graphs; "" for any other."""
    ran = [state.runs[tool] for tool in sanitizer.TOOLS if tool in state.runs]
    if not ran or not state.captures:
        return ""
    how = {event.get("how") for run in ran for event in run.events if event["event"] == "graph"}
    wholly = state.cached or "all" in how
    if not (wholly or how):
        return ""
    tensors = "all tensors" if wholly else "the tensors that a capture makes"
    return (
        f"a CUDA graph cannot be captured without torch's cache of memory, which was on for {tensors}: beyond the "
        "end of one of these memcheck sees no access that stays within a piece of the cache (2 MiB and more), and "
        "initcheck no read of what another left there"
    )


def _stuck_in_gpu(state: State) -> bool:
    samples = state.first.samples
    last = samples[-1]["processes"].values() if samples else ()
    return any(_WAITS_FOR_GPU.search(str(each.get("python", "")) + str(each.get("native", ""))) for each in last)


def _core(state: State) -> StagePlan | SkippedStage:
    if not (state.stands or (state.device and not state.hangs)):
        return SkippedStage(
            "no kernel's error was reported, and the command does not stand at a line that uses the GPU"
        )
    if state.assertion:
        return SkippedStage("the device printed its assertion and the place of it already")
    if not state.tools.paths.get("cuda-gdb"):
        return SkippedStage("there is no cuda-gdb to open a core dump of the GPU", "cuda-gdb", open=True)

    # The names must be inside the folder of the stage, which is known where the command line is made.
    def looked_at(argv: Sequence[str], folder: str) -> Sequence[str]:
        return cores.at_a_look(f"{folder}/gpu-core-", f"{folder}/gpu-pipe", state.first.seconds * 0.75, argv)

    if state.stands:
        why = "its line did not move while it used a processor: to see which kernel the GPU is in"
        return StagePlan(why, _LINES, looked_at)

    def around(argv: Sequence[str], folder: str) -> Sequence[str]:
        words = [f"{name}={value}" for name, value in cores.environ(f"{folder}/gpu-core-").items()]
        return ("env", *words, *argv)

    added = {**_LINES, **UNCACHED} if state.hidden else _LINES
    return StagePlan("the driver writes down the state of the kernel that fails, at full speed", added, around)


def _copies(state: State) -> StagePlan | SkippedStage:
    if not state.failed or not state.numbers or state.device or not told.varied(list(state.messages)):
        return SkippedStage("the command did not fail by other numbers in each of several runs")
    why = "its numbers are others in each run: to see whether they are right once each copy is waited for"
    return StagePlan(why, {"ENVKIT_DEBUG_COPIES": "1"})


def _launches(state: State) -> StagePlan | SkippedStage:
    fault = state.fault
    if not fault and state.refused:
        why = "a launch was refused, which the next call that looks for errors tells: to see which launch it was"
        return StagePlan(why, {"ENVKIT_DEBUG_REFUSED": "1"})
    if not fault:
        return SkippedStage("no kernel is named whose launch could be looked for")
    if fault.python and not stacks.replays(fault.python):
        return SkippedStage("compute-sanitizer told the line of Python that launches the kernel")
    name = base_name(fault.kernel)
    if not name:
        return SkippedStage(f"the kernel has no name that could be looked for: {fault.kernel[:80]}")
    return StagePlan("to find the line of Python that launches the kernel, which no tool has told", launches=(name,))


def _native(state: State) -> StagePlan | SkippedStage:
    if state.first.exit not in CRASHES:
        return SkippedStage("the command itself died of no fault of native code")
    if state.fault or state.told or state.mixed or state.device:
        return SkippedStage("the GPU's part of it is told")
    path = state.tools.paths.get("gdb") or state.tools.paths.get("cuda-gdb", "")  # which is gdb for what the CPU runs
    if not path:
        return SkippedStage("there is no gdb to say where native code died", "gdb")

    def around(argv: Sequence[str], folder: str) -> Sequence[str]:
        return native.command(path, argv, f"{folder}/gdb.log")

    return StagePlan("native code died: to see in which function of which library", {"SHELL": "/bin/sh"}, around)


def _profile(state: State) -> StagePlan | SkippedStage:
    if not (state.first.ended == "timed-out" and state.first.busy >= 0.5 and state.gpu):
        return SkippedStage("the command does not just take long")
    path = state.tools.paths.get("nsys", "")
    if not path:
        return SkippedStage("there is no nsys to say what takes the time", "nsys")
    # Half of the stage's time is left for what nsys writes when it has recorded.
    recorded = f"--duration={max(1, min(_PROFILE_S, round(state.stage_s / 2)))}"
    words = ("profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none", recorded)

    def around(argv: Sequence[str], folder: str) -> Sequence[str]:
        return (path, *words, "--force-overwrite=true", "--output", f"{folder}/profile", *argv)

    return StagePlan("it was still working when its time was up: to see what takes the time", {}, around)


STAGES: tuple[Stage, ...] = (
    Stage("as-is", _as_is),
    Stage("package-checks", _package_checks),
    Stage("placement", _placement),
    Stage("numbers", _numbers),
    Stage("native", _native),  # before the tools for kernels, which a crash of the CPU leaves nothing to find
    Stage("blocking", _unless_told(_blocking)),
    Stage("device-assertions", _unless_told(_assertions)),
    Stage("no-cache", _unless_told(_uncached)),
    *(Stage(tool, _unless_refused(_watched(tool))) for tool in sanitizer.TOOLS[:2]),
    Stage("core-dump", _unless_refused(_core)),  # before the tools that see no address: they take longest
    *(Stage(tool, _unless_refused(_watched(tool))) for tool in sanitizer.TOOLS[2:]),
    Stage("copies", _unless_told(_copies)),
    Stage("launches", _launches),
    Stage("profile", _profile),
)
NAMES = tuple(stage.name for stage in STAGES)
TOOLS = ("compute-sanitizer", "cuda-gdb", "py-spy", "gdb", "nsys")


def base_name(kernel: str) -> str:
    """The identifier of a kernel, which stands in its mangled name too: without result, namespaces, template and
    parameters."""
    text = re.sub(r"\(anonymous namespace\)::", "", kernel)
    text = re.split(r"[<(]", text, maxsplit=1)[0].strip()
    found = re.search(r"(\w+)$", text.rpartition("::")[2])
    return found[1] if found else ""


def how_to_get(tool: str, facts: Facts) -> str:
    """How to come by a tool, of the facts' rows: its packages by where they come from."""
    ways: dict[str, list[str]] = {}
    for row in facts.tools:
        if row.tool == tool and row.package not in ways.setdefault(row.how, []):
            ways[row.how].append(row.package)
    said = []
    if ways.get("wheel"):
        said.append(f"pip install {' or '.join(ways['wheel'][-2:])}")
    if ways.get("apt-nvidia"):
        said.append(f"apt-get install {ways['apt-nvidia'][-1]} of NVIDIA's archive (X-Y is the CUDA release)")
    if ways.get("apt"):
        said.append(f"apt-get install {ways['apt'][-1]} of the distribution's")
    said.append("or build the image with envkit's debug flavor")
    return ", ".join(said)


def first_file(folder: Path, pattern: str) -> Path | None:
    """The first file of a stage that fits, by name."""
    return min(folder.glob(pattern), default=None)
