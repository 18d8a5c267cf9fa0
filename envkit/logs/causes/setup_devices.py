"""The process sees no GPU: no driver, a driver that was not built or loaded, a container or a job without GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes import _setup
from envkit.logs.causes._readers import of_root
from envkit.logs.causes._stated import INNOCENT, shortened
from envkit.logs.causes._tracebacks import events_in, fatal, is_wrapper, short_kind, telling
from envkit.logs.causes._worded import worded
from envkit.logs.ends import (
    ILL,
    is_output,
    service,
)
from envkit.logs.knowledge import statements
from envkit.logs.records import Event, Hypothesis, Role, Strength
from envkit.logs.story import Story
from envkit.logs.survived import (
    STUMBLES,
    words,
)

_ID = "cuda-init-no-device"
_AFTER = (
    "torch-not-compiled-with-cuda", "invalid-device-ordinal", "cublas-not-initialized", "cudnn-not-initialized",
    "not-gpu-env",
)  # fmt: skip
_UNKNOWN_START = ("unknown-error-init", "unknown-error-start", "cuda-999-caffe2")
_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[0-9a-f-]{8,60})")
_NAMED = re.compile(r"(?:GPU|MIG)-[0-9a-f-]{4,60}$")
_PLUGIN = ("cdi-strategy", "plugin-non-nvml")
_CLUSTER = ("k8s-insufficient", "k8s-allocatable")
_STUB = ("no-device-stub", "stub-driver-s", "stub-driver-code")
_SAYS_NONE = ("no-gpu-torch", "no-device", "no-device-code", "no-device-cuew", "tf-cuinit", "no-device-tensorrt")
_KERNEL = (
    "rm-init", "probe-not-called", "probe-failed", "probe-error", "driver-no-adapter", "gpu-needs-open", "gpu-legacy",
    "gpu-not-supported", "module-rejected", "bar-invalid",
)  # fmt: skip
_MAC = ("/users/", "macosx", "macos", "darwin", "apple silicon")
_SHORTAGE = re.compile(
    r"\d+/(?P<all>\d+) nodes are (?:un)?available: .{0,400}?(?P<short>\d+) [Ii]nsufficient nvidia\.com/(?:gpu|mig)"
)
_UNHEALTHY = re.compile(r"\bno healthy devices present\b|\bcannot allocate unhealthy devices\b")
_RAY = re.compile(r"ray::|^(?:\x1b\[\d+m)?\(\w{1,80} (?:pid|ip)=")
# not what a build tool says of the command that failed
_BUILD_ENDED = ("build-ninja-stopped", "build-ext-named")
_BUILD_ERROR = re.compile(r"(?:^|: )(?:fatal )?error: (?!command |subprocess|metadata)")
# exceptions of a program that got no answer where it expected one
_FOR_WANT = frozenset([*STUMBLES, "ValueError", "JSONDecodeError", "CalledProcessError"])
_OF_GPU = re.compile(r"(?i)\bcuda|\bgpus?\b|nvidia|nvml|driver|\bdevices?\b")
# BuildKit and Docker's older builder, of the step that failed
_BUILD_STEP = re.compile(
    r"process \"/bin/(?:ba)?sh (?:-\w+ )+(?P<step>(?:[^\"\\]|\\.){1,300})\" did not complete"
    r"|The command '/bin/(?:ba)?sh (?:-\w+ )+(?P<old>[^']{1,300})' returned a non-zero code"
)
# what libraries say where they go on without a GPU, and that they are built so
_BUILT_WITHOUT = re.compile(
    r"(?i)\b(?:compiled|built) without (?:gpu|cuda)\b|\bprovider 'cudaexecutionprovider' is not in available"
)
_SAID_NONE = re.compile(
    r"(?i)\bno (?:usable |compatible |supported |suitable |visible |nvidia |cuda |capable ){0,3}"
    r"(?:gpus?|accelerators?|cuda devices?) (?:(?:was|were|is|are) )?(?:found|detected|discovered|available|visible)\b"
    r"|\b(?:compiled|built) without (?:gpu|cuda)\b"
    r"|\bprovider 'cudaexecutionprovider' is not in available provider names"
    r"|\bcuda(?: (?:is )?|[._]is_)available(?:\(\))?[ :=]{1,3}(?:false|no)\b"
)
# the program's own last words
_REFUSES = re.compile(
    r"(?i)\b(?:no|without an?) gpus?\b.{0,40}\b(?:refus\w+|giving up|cannot|will not|exiting|abort\w+|quit\w*)\b"
    r"|\b(?:needs?|requires?|must|wants?)\b(?! no\b).{0,80}\b(?:gpus?|cuda|accelerators?)\b"
    r"|\basked for (?:the |an? )?(?:gpus?|cuda)\b.{0,40}\bgot\b"
    r"|\b(?:gpus?|cuda|accelerators?)\b.{0,80}"
    r"\b(?:refus\w+|required|mandatory|giving up|cannot (?:go on|run|serve|start))"
)
_GOES_ON = re.compile(
    r"(?i)\bskip|\bfall|\bfell\b|\bcontinu|\bus(?:es|ing) (?:the )?cpu|\bon (?:the )?cpu\b|\bfine\b|\bok\b"
)
_EMPTY = re.compile(r"^['\"]?(?:-1|none|void|NoDevFiles)?['\"]?$", re.IGNORECASE)


def driver_not_installed(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The driver's module was not built, not loaded or refused (modprobe, DKMS, nvidia-installer, NVRM)."""
    known = statements("install")
    order = list(known)
    found = [event for event in _setup.roots_of(story, _ID) if event.signature.id in known]
    for event in sorted(found, key=lambda each: order.index(each.signature.id))[:1]:
        says, more = known[event.signature.id], [other for other in found if other is not event][:1]
        nvidia = "nvidia" in event.line.text.lower() or _setup.words_seen(story, "nvidia")
        strength = Strength.LIKELY if nvidia else Strength.POSSIBLE
        over = (*_AFTER, "missing-shared-library", "nvidia-container-cli-init-error") if nvidia else ()
        yield _setup.hypothesis(event, says.cause, strength, says.because, more=more, fix=says.fix, over=over)


def no_device(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A process that finds no GPU or no driver, by what the log shows of how it was started."""
    special = {*statements("install"), *_PLUGIN, *_CLUSTER, *_KERNEL}
    mine = [each for each in _setup.roots_of(story, _ID) if each.signature.id not in special]
    for event in [each for each in mine if not each.signature.id.startswith("mps-refused")][:1]:
        if event.signature.id == "no-runtime-found" and _fails_otherwise(story, event):
            continue
        if event.signature.id == "smi-not-found" and (step := _build_step(story, event)) is not None:
            yield worded("image-build-asks-gpu", event, step=shortened(step))
            continue
        if event.signature.id == "smi-not-found" and (_of_another_service(story, event) or _asked_beside(story, event)):
            continue
        strength = _setup.unless_only_warned(story, event, Strength.LIKELY)
        # torch's build helper says so on every machine without a GPU; and what the driver's installation or the kernel
        # says comes before this
        if event.signature.id == "no-runtime-found" or story.of(*statements("install"), *_KERNEL):
            strength = min(strength, Strength.POSSIBLE)
        yield _started_so(story, event, strength) or _unseen(story, event, strength)


def _fails_otherwise(story: Story, event: Event) -> bool:
    """Whether a compiler or a build tool says behind a line what it fails by."""
    lines = (line for seen in story.files if seen.name == event.line.file for line in seen.loud)
    told = any(line.number > event.line.number and _BUILD_ERROR.search(line.text) for line in lines)
    return told or (bool(story.of(*_BUILD_ENDED)) and any(each.category == INNOCENT for each in story.roots))


def _of_another_service(story: Story, event: Event) -> bool:
    """Whether a service asked for nvidia-smi beside another one that ended by an exception of its own."""
    mine = service(event.line)
    ended = [trace for trace in story.tracebacks if mine and service(trace.line) not in ("", mine)]
    return bool(ended) and not any(
        each.category not in ("", "not-gpu-env", "insufficient-evidence")
        for trace in ended
        for each in events_in(story, trace)
    )


def _asked_beside(story: Story, event: Event) -> bool:
    """Whether the program asked for nvidia-smi in passing, and ended by an exception that has nothing to do with it."""
    if not story.tracebacks and _setup.ended_otherwise(story, event):
        return True
    chain = fatal(story)
    trace = telling(chain) if chain else None
    if trace is None or trace.first.number <= event.line.number or short_kind(trace) in _FOR_WANT:
        return False
    return not any(each.category != "not-gpu-env" for each in events_in(story, trace)) and not _OF_GPU.search(
        f"{trace.kind} {words(trace)}"
    )


def _build_step(story: Story, event: Event) -> str | None:
    """The step of an image's build that a line is of, if it is of one."""
    lines = [line for seen in story.files if seen.name == event.line.file for line in (*seen.loud, *seen.tail)]
    found = next((match for line in lines if (match := _BUILD_STEP.search(line.text))), None)
    return found["step"] or found["old"] if found else None


def program_says_so(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A program that prints that CUDA is not available, and nothing after it until its launcher tells that it ended."""
    for event in story.of("cuda-said-not-available")[:1]:
        if story.roots or not all(map(is_wrapper, story.tracebacks)):
            return
        seen = next(each for each in story.files if each.name == event.line.file)
        ends = [trace.first.number for trace in story.tracebacks if trace.line.file == seen.name]
        ends += [each.line.number for each in story.events if each.role is Role.CASCADE and each.line.file == seen.name]
        end = min((number for number in ends if number > event.line.number), default=0)
        between = (line for line in (*seen.head, *seen.tail) if event.line.number < line.number < end)
        if end and not any(is_output(line) and line.text != event.line.text for line in between):
            cause = "container-config" if _setup.in_container(story) else None
            yield worded("program-says-no-cuda", event, cause=cause or "")


def refused_for_want(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A library said in passing that it has no GPU, or no code for one, and the program ends by refusing to go on."""
    if len(story.files) != 1 or story.roots or story.tracebacks:
        return
    seen = story.files[0]
    last = next((line for line in reversed(seen.tail) if not ILL.search(line.text)), None)
    if last is None or not _REFUSES.search(last.text) or _GOES_ON.search(last.text):
        return
    said = next((line for line in (*seen.head, *seen.tail) if _SAID_NONE.search(line.text) and line != last), None)
    if said is None or said.number >= last.number:
        return
    kept = (line for line in (*seen.head, *seen.tail) if said.number < line.number < last.number)
    built = next((line for line in (said, *kept) if _BUILT_WITHOUT.search(line.text)), None)
    lines, why = (said, last), f"{shortened(said.text)}; the program refuses to go on so: {shortened(last.text)}"
    if built is not None:
        cpu = "torch-not-compiled-with-cuda"
        yield Hypothesis(cpu, "wrong-build-installed", Strength.LIKELY, (built, last), why, over=(_ID, "not-gpu-env"))
        return
    cause = "container-config" if _setup.in_container(story) else "no-gpu-or-driver"
    yield Hypothesis(_ID, cause, Strength.USUAL, lines, why, over=("not-gpu-env",))


def _started_so(story: Story, event: Event, strength: Strength) -> Hypothesis | None:
    """How the process was started, where that alone says why it has no GPU."""
    without = _setup.started_without_gpus(story, event)
    if without is not None:
        engine = without.values.get("engine", "the engine")
        option = "--nv" if engine in ("singularity", "apptainer") else "--gpus or a CDI device"
        return worded("container-started-without-gpus", event, without, strength=strength, engine=engine, option=option)
    if event.signature.id == "jetson-nvmap":
        return worded("jetson-memory-refused", event, strength=strength)
    if _setup.words_seen(story, *_MAC) and _setup.gpus_listed(story) is None:
        return worded("platform-without-cuda", event, strength=strength)
    if _under_ray(story, event):
        return worded("ray-worker-without-gpu", event, strength=strength)
    return None


def _unseen(story: Story, event: Event, strength: Strength) -> Hypothesis:
    """A process that sees no GPU and does not say why: where it ran, and what nvidia-smi showed."""
    works, said = _setup.gpus_listed(story), _short(event)
    if event.signature.id in _STUB:
        return worded("driver-is-a-stub", event, strength=strength, event=said)
    if event.signature.id == "deserialize-no-cuda":
        return worded("file-of-a-gpu-loaded-without", event, strength=strength, event=said)
    if event.signature.id == "nvml-blocked":
        return worded("system-blocks-the-gpu", event, strength=strength, event=said)
    if works is not None and event.signature.id not in ("smi-no-driver", "smi-none", "smi-not-found"):
        cause = "container-config" if _setup.in_container(story) else "launch-config"
        least = min(strength, Strength.LIKELY)
        return worded("gpu-shown-but-not-seen", event, works, cause=cause, strength=least, event=said)
    if _setup.in_container(story):
        sign = _setup.container_sign(story)
        engine = sign if sign is not None and sign.signature.id.startswith("setup-docker") else None
        return worded("container-sees-no-gpu", event, engine, strength=strength, event=said)
    return worded("process-sees-no-gpu", event, strength=strength, event=said)


def asked_device_without_cuda(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A device was asked for by number, and the log says itself that torch sees no CUDA at all (ultralytics)."""
    asked = [event for event in story.roots if event.signature.id in ("invalid-device-id", "ultralytics-device")]
    none = [event for event in story.of("ultralytics-available") if event.values.get("available") == "False"]
    if not asked or not none:
        return
    cpu = "+cpu" in (story.value("torch") or "") or _setup.words_seen(story, "+cpu")
    yield worded("cpu-build-asked-for-a-gpu" if cpu else "no-cuda-whichever-gpu", asked[0], *none[:1])


def unknown_at_start(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """CUDA 999 while it starts: the device files or the nvidia_uvm module are not as the driver needs them."""
    for event in [each for each in story.roots if each.signature.id in _UNKNOWN_START][:1]:
        strength = _setup.unless_only_warned(story, event, Strength.LIKELY)
        container = _setup.in_container(story) or story.of("lost-nvml-unknown")
        yield worded("cuda-cannot-start-in-container" if container else "cuda-cannot-start", event, strength=strength)


def cluster_without_gpus(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Kubernetes has no GPU to give: all taken, or the device plugin finds no driver (k8s-device-plugin)."""
    plugins = [event for event in _setup.roots_of(story, _ID) if event.signature.id in _PLUGIN]
    if plugins:
        yield worded("device-plugin-sees-no-driver", plugins[0], *story.of("plugin-hint")[:1])
        return
    # the sentence of the scheduler goes on about preemption, by which a row for any shortage may have found it
    for event in story.roots:
        shortage = _SHORTAGE.search(event.line.text)
        if shortage is None and event.signature.id not in _CLUSTER:
            continue
        short, nodes = (shortage["short"], shortage["all"]) if shortage else ("", "")
        if _UNHEALTHY.search(event.line.text):
            yield worded("gpus-of-a-node-unhealthy", event)
            return
        who = f"{short} of {nodes} nodes have" if short else "the node has"
        if short == nodes == "1":  # where nobody else takes it, nobody offers it
            yield worded("node-offers-no-gpu", event, who=who)
        else:
            over = {"cuda-init-no-device", *(root.category for root in story.before(event))} - {"", INNOCENT}
            yield worded("no-free-gpu-in-cluster", event, over=sorted(over), who=who)
        return


def visible_devices(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """CUDA_VISIBLE_DEVICES hides every GPU, or is in a form that the program does not read."""
    stated = _setup.roots_of(story, "cuda-visible-devices-misuse")
    if stated:
        event = stated[0]
        value = event.values.get("visible") or event.values.get("device") or ""
        yield worded("visible-devices-not-usable", event, value=value)
        return
    none = [event for event in story.in_category(_ID) if event.signature.id in _SAYS_NONE]
    if not none:
        return
    event = none[0]
    listed = story.of("setup-smi-list")
    there = [found[1] for each in (*listed, *story.of("setup-smi-mig")) if (found := _UUID.search(each.line.text))]
    for given in story.of("setup-visible"):
        value = (given.values.get("visible") or "").strip("'\"")
        written, first = "=" in given.line.text, value.partition(",")[0].strip()
        if written and _EMPTY.match(value):
            seen = f"CUDA_VISIBLE_DEVICES is {value}" if value else "CUDA_VISIBLE_DEVICES is empty"
        elif listed and first.isdigit() and int(first) >= len(listed):
            # CUDA reads the list up to the first entry that is no GPU of the machine
            seen = f"CUDA_VISIBLE_DEVICES is {value} on a machine with {len(listed)} GPUs"
        elif there and _NAMED.match(first) and not any(uuid.startswith(first) for uuid in there):
            seen = f"CUDA_VISIBLE_DEVICES is {value}, and nvidia-smi lists no such GPU or slice"
        else:
            continue
        yield worded("visible-devices-hide-all", event, given, seen=seen)
        return


@of_root("cgroup-lost-gpu", "lost-nvml-unknown")
def lost_in_container(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """A running container lost its GPU devices (container toolkit documentation, troubleshooting)."""
    hardware = [root for root in story.roots if root.category.startswith(("xid-", "sxid", "ecc", "gpu-hardware"))]
    broken = [root for root in hardware if root.line.source == "kernel"] or story.of("smi-handle")
    strength, over = (Strength.POSSIBLE, ()) if broken else (Strength.LIKELY, (_ID, "missing-shared-library"))
    yield worded("container-lost-its-gpu", event, *story.of("lost-daemon-reload")[:1], strength=strength, over=over)


def _under_ray(story: Story, event: Event) -> bool:
    if event.signature.id not in ("no-gpu-torch", "no-device", "cuda-not-available", "needs-gpu", "needs-gpu-ray"):
        return False
    trace = story.traceback_of(event.line)
    frames = [frame.file for frame in trace.frames] if trace is not None else []
    return any("/ray/" in file for file in frames) or bool(_RAY.search(event.line.body))


def _short(event: Event) -> str:
    text = " ".join(event.line.text.split())
    return text if len(text) <= 120 else text[:117] + "..."
