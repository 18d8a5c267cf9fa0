"""Options that several verbs have, and what becomes of their words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from typer import Argument, Option

from envkit.cli.ending import hush, say
from envkit.errors import UsageError, nearest, one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from envkit.model import Severity
    from envkit.report import Detail
    from envkit.runner.start import Override

OUTPUT = "Output"  # the panel of --help for what is printed and written
WHERE = "Where it runs"


class Choice(click.Choice[str]):
    """One of a few words of a ``kind``; a wrong one is refused with the nearest.

    ``also`` are other spellings that are taken and not shown.  An empty value is a default that stands for none: one
    that was written is refused before.
    """

    def __init__(self, kind: str, words: Sequence[str], also: Sequence[str] = ()) -> None:
        super().__init__(words)
        self.kind, self.words, self.also = kind, tuple(words), tuple(also)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        word = str(value)
        if word in ("", *self.words, *self.also):
            return word
        known = list(self.words)
        raise UsageError(
            f"there is no {self.kind} `{one_line(word)}`{nearest(word, known)}", f"one of: {', '.join(known)}"
        )


class _NameOrFile(click.types.StringParamType):
    """Text that may name a file: a shell completes files there."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class _Spec(click.Path):
    """A spec: a shell completes files, and the names of envkit's own images."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from envkit.plan.shipped import names

        own = [name for name in names() if incomplete and name.startswith(incomplete)]
        return [CompletionItem(incomplete, type="file"), *map(CompletionItem, own)]


NAME_OR_FILE = _NameOrFile()
SPEC = _Spec()


def spec_at(path: Path) -> Path:
    """Where the spec lies: ``path``, or a copy in the working folder where it is the name of an image of envkit's."""
    from envkit.plan import shipped

    if not shipped.is_name(path):
        return path
    copy = shipped.copied(path.name, Path())
    say(f"copied the spec and the lock of {path} to {copy}")
    return copy


# What each stands for is imported with the verb alone; tests/test_command_line.py holds these to it.
FORMATS = Choice("format", ("console", "json", "junit", "html", "prometheus", "nagios"))
CHECK_FORMATS = Choice("format", ("console", "json", "sarif", "github", "gitlab", "junit", "html"))
PAGE_FORMATS = Choice("format", ("console", "json", "html"))
DATA_FORMATS = Choice("format", ("console", "json"))
ENGINES = Choice("engine", ("docker", "podman", "charliecloud", "apptainer", "local", "auto"))
LOCK_ENGINES = Choice("engine", ("docker", "podman", "none", "auto"))
IMAGE_ENGINES = Choice("engine", ("docker", "podman", "auto"))
SEVERITIES = Choice("severity", ("note", "warning", "error"), also=("NOTE", "WARNING", "ERROR"))
STYLES = Choice("exit style", ("envkit", "nagios", "slurm", "nvsentinel"))
FLAVORS = Choice("flavor", ("runtime", "devel", "debug"))
OUTPUTS = Choice("output", ("dockerfile", "compose", "devcontainer", "kubernetes-job", "jobset", "sbatch", "apptainer"))
PARTS = Choice("part of a lock", ("os", "base"))
SUITES = Choice("Debian suite", ("bookworm", "trixie"))
SMOKE_LEVELS = Choice("level", ("quick", "full", "stress"))
ABILITY_LEVELS = Choice("level", ("none", "quick", "full"))
FLIGHT_LEVELS = Choice("level", ("passive", "probe", "quick", "full"))
LINK_TESTS = Choice("test of links", ("pairs", "groups"))
FAULT_KINDS = Choice(
    "kind of injected fault", ("all", "ulp", "one", "nan", "scale", "block", "order", "device", "fault")
)
SANITIZERS = Choice("tool of compute-sanitizer", ("memcheck", "racecheck", "initcheck", "synccheck"))
PLACEMENT_WAYS = Choice("way", ("auto", "run", "fake", "trace"))
GPU_WAYS = Choice("way", ("cdi", "hook", "none"))
DTYPES = Choice("dtype", ("bfloat16", "float16", "float32"), also=("bf16", "fp16", "half", "fp32"))
TOPICS = Choice(
    "topic",
    (
        "torch", "gpu", "cuda", "driver", "cudnn", "nccl", "image", "os", "tool", "toolkit", "peak", "xid", "package",
    ),
)  # fmt: skip


_output = partial(Option, rich_help_panel=OUTPUT)
_where = partial(Option, rich_help_panel=WHERE)


def format_option(choices: Choice) -> Any:
    return _output("--format", "-f", click_type=choices, help="Output format.")


def gpus_option(*names: str) -> Any:
    return _where(*names, metavar="[auto|all|none|N,...]", help="Which GPUs to use, by index.")


SpecPath = Annotated[
    Path,
    Argument(
        metavar="SPEC",
        click_type=SPEC,
        help="envkit.toml, the directory that contains it, or the name of a spec that comes with envkit.",
    ),
]
EngineName = Annotated[
    str,
    _where(
        "--engine",
        click_type=ENGINES,
        help="Where images are built and run; local is a private virtual environment, charliecloud and apptainer run "
        "saved images, auto takes the first of docker, podman and local that answers.",
    ),
]
Format = Annotated[str, format_option(FORMATS)]
FailOn = Annotated[str, _output("--fail-on", click_type=SEVERITIES, help="Lowest severity that makes the exit code 1.")]
WithObserved = Annotated[bool, _output("--observed", help="Include everything that was observed in the JSON.")]
_QUIET = "Print only the verdict and the findings, without progress."
_VERBOSE = "Also list the checks that passed or were skipped."
Quiet = Annotated[bool, _output("--quiet", "-q", help=_QUIET)]
Verbose = Annotated[bool, _output("--verbose", "-v", help=_VERBOSE)]
LongVerbose = Annotated[bool, _output("--verbose", help=_VERBOSE)]  # -v is --volume there
Gpus = Annotated[str, gpus_option("--gpus")]
ExitStyle = Annotated[str, _output("--exit-style", click_type=STYLES, help="Which exit codes to use.")]
Save = Annotated[Path | None, _output("--save", help="Write what was observed to this file, for `envkit judge`.")]
MANY = "Many nodes"
_many = partial(Option, rich_help_panel=MANY)
Hosts = Annotated[
    str | None,
    _many(
        "--hosts",
        metavar="LIST|FILE",
        click_type=NAME_OR_FILE,
        help="The nodes that must answer, such as n[1-8]; by default those of the launcher.",
    ),
]
Also = Annotated[
    list[Path] | None,
    _many(
        "--also",
        metavar="FILE",
        help="A log with framed documents, Pods as JSON, or kubernetes:NAMESPACE/job/NAME; may be given again.",
    ),
]
ClassContracts = Annotated[
    Path | None, _many("--contract", help="What each hardware class must be, in TOML; see docs/fleet.md.")
]
MayDiffer = Annotated[
    list[str] | None,
    _many("--may-differ", metavar="PROPERTY", help="A property that may differ among equal nodes; may be given again."),
]
Target = Annotated[
    str | None, Argument(metavar="IMAGE", help="An image; by default the Python that envkit runs under.")
]
RequireGpu = Annotated[bool, _output("--require-gpu", help="Without a GPU the verdict is undecided (exit 3).")]
StartFile = Annotated[
    str,
    Option(
        "--start",
        metavar="FILE[#SERVICE]",
        click_type=NAME_OR_FILE,
        help="Start as this compose file, Kubernetes manifest or devcontainer.json says.",
    ),
]
Frameworks = Annotated[
    list[str] | None,
    Option(
        "--framework",
        metavar="[jax|tensorflow|...|none]",
        help="The framework to check instead of torch; may be given again.",
    ),
]
PythonPath = Annotated[Path | None, _where("--python", help="A Python on this machine, instead of an image.")]
Tag = Annotated[str, Option("--tag", "-t", metavar="NAME", help="Name of the image; by default envkit/NAME:latest.")]
FlavorName = Annotated[str, Option("--flavor", click_type=FLAVORS, help="The flavor; by default the one in the spec.")]
NoCache = Annotated[bool, Option("--no-cache", help="Build every layer from scratch.")]
RefreshOs = Annotated[
    bool, Option("--refresh-os", help="Put today's base and Debian packages into the lock; the wheels stay.")
]
_container = partial(Option, rich_help_panel="The container, as for `docker run`")
Env = Annotated[
    list[str] | None,
    _container("--env", "-e", metavar="NAME[=VALUE]", help="An environment variable; may be given again."),
]
EnvFile = Annotated[list[Path] | None, _container("--env-file", help="A file of lines NAME=VALUE.")]
Volume = Annotated[
    list[str] | None, _container("--volume", "-v", metavar="SOURCE:TARGET[:ro]", help="A mount; may be given again.")
]
Shm = Annotated[str | None, _container("--shm-size", metavar="SIZE", help="Size of /dev/shm; by default 8g.")]
Memory = Annotated[str | None, _container("--memory", "-m", metavar="SIZE", help="Memory limit, such as 64g.")]
User = Annotated[
    str | None, _container("--user", "-u", metavar="UID[:GID]", help="The user it runs as; by default you.")
]
Workdir = Annotated[
    str | None, _container("--workdir", "-w", metavar="PATH", help="Where it starts; by default where you are.")
]
AllowUnpinned = Annotated[
    list[str] | None,
    Option("--allow-unpinned", click_type=PARTS, help="Lock even if this cannot be pinned; may be given again."),
]


def severity(word: str) -> Severity:
    from envkit.model import Severity

    return Severity[word.upper()]


def detail(quiet: bool, verbose: bool) -> Detail:
    """How much of a report to print; quiet also ends the lines of progress."""
    from envkit.report import Detail

    if quiet and verbose:
        raise UsageError("--quiet and --verbose cannot be used together", "use only one of them")
    if quiet:
        hush()
    return Detail.QUIET if quiet else Detail.VERBOSE if verbose else Detail.NORMAL


def consistent(required: bool, gpus: str) -> None:
    """Refuses what contradicts itself, before any work."""
    if required and gpus == "none":
        raise UsageError("--require-gpu and --gpus none cannot be used together", "use only one of them")


def job_command(
    text: str, start: str, image: str | None, direct: bool, engine: str, elsewhere: bool
) -> tuple[str, ...]:
    """The words of ``--command``, split as a shell does it; refuses it, ``--start`` and ``--direct`` where they mean
    nothing."""
    import shlex

    for option, given in (("--command", bool(text)), ("--start", bool(start)), ("--direct", direct)):
        if given and (image is None or engine == "local" or elsewhere):
            raise UsageError(f"{option} only works when an image is probed", "name an image, or leave it out")
    if text and direct:
        raise UsageError("--command and --direct cannot be used together", "use only one of them")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            f"--command `{one_line(text)}` cannot be split into words: {error}", "quote it as a shell does"
        ) from None
    return words


def override_of(start: str) -> Override | None:
    """The start that ``--start`` names, None where it names none."""
    if not start:
        return None
    from envkit import facts
    from envkit.static import starts

    made = starts.override(start, facts.load())
    for name in made.unknown:
        say(f"{made.name}: the value of {name} is not in the file, and the run goes without it")
    return made


def place_of(image: str | None, python: Path | None, engine: str, gpus: str) -> Any:
    from envkit.engine.choice import connect
    from envkit.runner import runner

    if image and python:
        raise UsageError("an image and --python were both given", "name one of them")
    shown = runner.default_gpus(gpus)
    if image:
        connected = connect(engine, say)
        runner.are_here(shown, connected)
        return runner.InEngine(connected, image, "", shown)
    runner.are_here(shown)
    return runner.LocalPython(runner.interpreter(python), shown) if python else runner.this_python(shown)


def writable(*files: Path | None) -> None:
    """Refuses, before the work rather than after it, files that its result could not be written to."""
    from envkit.system.files import can_be_written

    for file in files:
        if file is not None:
            can_be_written(file)


def save_subject(path: Path | None, kind: str, subject: object) -> None:
    from envkit.subjects import codec, saved
    from envkit.system import files

    if path is not None:
        files.write(path, saved.text(kind, codec.to_plain(subject)), 0o600)
        say(f"wrote {path}")
