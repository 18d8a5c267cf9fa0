"""What the checks of a launch share: which GPUs the job gets, what it is told, and where its files come from.

What the job declares and nobody can observe is skipped where it was not declared; what the image or the machine should
have shown is unknown where they did not.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from envkit.judging.checks._host import gpu_name, need_driver, nvml_answers
from envkit.judging.checks._outcomes import skip_if, unknown_if
from envkit.model import Finding, Observed, Reason, Skip
from envkit.records import dataclass
from envkit.subjects.audit import Audit, DriverFile, TorchFiles
from envkit.subjects.declared import Mount
from envkit.subjects.host import Gpu
from envkit.subjects.image import NO_PROMISE
from envkit.subjects.launch import Account, Launch
from envkit.versions import Sm

T = TypeVar("T")

AGAIN = "check it with `envkit preflight`"
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class ContainerGpus:
    """The GPUs of the machine that the container gets, in the order in which it counts them, and the names of none."""

    gpus: tuple[Gpu, ...]
    strange: tuple[str, ...]


def declared(value: Observed[T], what: str) -> T:
    """What the job declares; raises Skip where nobody said it."""
    if value.missing or value.value is None:
        raise Skip(f"{what}: {value.missing or 'no value'}")
    return value.value


def wanted(launch: Launch) -> tuple[str, ...]:
    """The names of the GPUs that the job wants; raises Skip if it wants none, or nobody said."""
    names = declared(launch.job.gpus, "which GPUs the job gets")
    skip_if(not names, "the job gets no GPU")
    return names


def given(launch: Launch) -> ContainerGpus:
    """The GPUs that the job gets; raises Skip if it wants none, or where there is no GPU or no driver, which
    launch-gpu-missing says; raises Unknown if the machine's are not known.
    """
    names = wanted(launch)
    need_driver(launch.host)
    here = nvml_answers(launch.host).gpus
    if names == ("all",):
        return ContainerGpus(here, ())
    found: list[Gpu] = []
    strange: list[str] = []
    for name in names:
        gpu = _named(name, here)
        if gpu is None:
            strange.append(name)
        elif gpu not in found:
            found.append(gpu)
    return ContainerGpus(tuple(found), tuple(strange))


def _named(name: str, here: tuple[Gpu, ...]) -> Gpu | None:
    unknown_if(name.startswith("MIG-"), f"which GPU has the instance {name} was not observed")
    number = name.partition(":")[0]  # "0:1" is instance 1 of GPU 0
    if number.isdecimal():
        return next((gpu for gpu in here if gpu.index == int(number)), None)
    fitting = [gpu for gpu in here if gpu.uuid.need(f"the UUID of GPU {gpu.index}").startswith(name)]
    return fitting[0] if len(fitting) == 1 and name.startswith("GPU-") else None


def some_given(launch: Launch) -> tuple[Gpu, ...]:
    """The GPUs of ``given``; raises Skip where that is none, which launch-gpu-missing says."""
    gpus = given(launch).gpus
    skip_if(not gpus, "none of the GPUs that the job names is here")
    return gpus


def judge_each(
    gpus: tuple[Gpu, ...], what: str, of: Callable[[Gpu], Observed[T]], judge: Callable[[Gpu, T], Iterator[Finding]]
) -> list[Finding]:
    """Judges one value of each GPU; one that it does not have is passed over, a doubt counts where nothing is wrong."""
    findings: list[Finding] = []
    doubts: list[str] = []
    for gpu in gpus:
        seen = of(gpu)
        if seen.is_unsupported:
            continue
        if seen.missing or seen.value is None:
            doubts.append(f"{what} of {gpu_name(gpu)} was not observed: {seen.missing or 'no value'}")
        else:
            findings += judge(gpu, seen.value)
    unknown_if(not findings and doubts, "; ".join(doubts))
    return findings


def some(count: int, what: str) -> str:
    """A count with its noun ("1 process", "2 processes")."""
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('ss') else 's'}"


def sms_of(gpus: tuple[Gpu, ...]) -> tuple[list[Sm], str]:
    """The capabilities that were observed, each once, and the doubt about the others, empty if there is none."""
    known = [gpu for gpu in gpus if gpu.sm.value is not None]
    others = [gpu_name(gpu) for gpu in gpus if gpu.sm.value is None]
    doubt = f"the compute capability of {', '.join(others)} was not observed" if others else ""
    return sorted({sm_of(gpu) for gpu in known}), doubt


def sm_of(gpu: Gpu) -> Sm:
    """The compute capability; raises Unknown if it was not observed."""
    return Sm.parse(gpu.sm.need(f"the compute capability of {gpu_name(gpu)}"))


def variables(launch: Launch) -> Mapping[str, str]:
    """The environment that the process will have."""
    return launch.job.environment.need("the environment of the job")


def said(launch: Launch, name: str) -> dict[str, str]:
    """The evidence of a variable."""
    return {f"{name}={variables(launch).get(name, '')}": launch.job.environment.via}


def entries(text: str) -> list[str]:
    """The directories of a search path."""
    return [posixpath.normpath(one) for one in re.split("[:;]", text) if one]


def image(launch: Launch) -> Audit:
    """What the image's files show."""
    return launch.image.need("the image")


def torch_of(launch: Launch) -> TorchFiles | None:
    """The image's torch, None if it has none; raises Unknown if that is open."""
    audit = image(launch)
    return None if audit.torch.reason is Reason.NO_TORCH else audit.torch.need("the image's torch")


def promised_gpus(launch: Launch) -> tuple[Sm, ...]:
    """The GPUs that the image was built for; raises Skip where it says none."""
    promise = image(launch).promise
    skip_if(promise.reason is Reason.NO_PROMISE, NO_PROMISE)
    gpus = promise.need("the image's promise").gpus
    skip_if(not gpus, "the image's lock names no GPU")
    return gpus


def library_path(launch: Launch) -> list[tuple[str, str]]:
    """The directories of the job's LD_LIBRARY_PATH, each with where it really lies in the image, empty if nowhere."""
    named = entries(variables(launch).get("LD_LIBRARY_PATH", ""))
    if not named:
        return []
    paths = launch.paths.need("the files at the paths that the job names")
    return [(one, paths[one].real if one in paths else "") for one in named]


def searched(launch: Launch, file: DriverFile) -> str:
    """What makes ld.so search the directory of ``file`` under the job's own LD_LIBRARY_PATH, empty if nothing does."""
    folder = posixpath.dirname(file.path)
    if any(folder in (one, real) for one, real in library_path(launch)):
        return "LD_LIBRARY_PATH"
    return "" if file.searched == "LD_LIBRARY_PATH" else file.searched


def driver_files(launch: Launch, kind: str) -> list[tuple[DriverFile, str]]:
    """The driver's files of a kind that the image brings and the job would search, each with what makes it so."""
    files = image(launch).drivers.need("the driver's libraries in the image")
    return [(one, by) for one in files if one.kind == kind and (by := searched(launch, one))]


def nodes(launch: Launch) -> int:
    """The machines of the job; raises Skip where nobody said."""
    return declared(launch.job.nodes, "how many machines the job has")


def need_nodes(launch: Launch) -> int:
    """The machines of a job that has several; raises Skip otherwise."""
    count = nodes(launch)
    skip_if(count < 2, "the job runs on one machine")
    return count


def below(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def mounts(launch: Launch) -> tuple[Mount, ...]:
    """What the job mounts; raises Skip where nobody said."""
    return declared(launch.job.mounts, "what the job mounts")


def mount_of(launch: Launch, path: str) -> Mount | None:
    """The mount that ``path`` lies in, the deepest one; raises Skip where nobody said what is mounted."""
    holding = [one for one in mounts(launch) if below(path, one.target)]
    return max(holding, key=lambda one: len(one.target)) if holding else None


@dataclass(frozen=True, slots=True)
class JobUser:
    """Whom the job runs as; ``account`` is None for a number that the image's /etc/passwd does not have."""

    uid: int
    gid: int
    account: Account | None


def who(launch: Launch) -> JobUser:
    """Whom the job runs as; raises Skip where nobody said, Unknown for a name that the image does not tell."""
    text = declared(launch.job.user, "the user of the job")
    name, _, group = text.partition(":")
    if name in ("root", "0"):
        return JobUser(0, int(group) if group.isdecimal() else 0, Account("root", 0, 0, "/root"))
    accounts = launch.accounts.need("the users of the image")
    account = next((one for one in accounts if name in (one.name, str(one.uid))), None)
    unknown_if(account is None and not name.isdecimal(), f"the image has no user `{name}`, so its number is not known")
    uid = account.uid if account else int(name)
    own = account.gid if account else 0  # what runc takes for a number without an account
    return JobUser(uid, int(group) if group.isdecimal() else own, account)


def may_write(one: JobUser, uid: int, gid: int, mode: int) -> bool:
    """Whether a process of ``one`` may write a file of this owner and mode; groups beside its own are not known."""
    if one.uid == 0:
        return True
    bits = mode >> 6 if one.uid == uid else mode >> 3 if one.gid == gid else mode
    return bool(bits & 0o2)
