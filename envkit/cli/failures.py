"""Verbs for a job that fails: explain, debug."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from typer import Argument, Context, Exit, Option

from envkit.cli import fleets
from envkit.cli.app import FAILED, app
from envkit.cli.ending import say, warn
from envkit.cli.options import (
    DTYPES,
    IMAGE_ENGINES,
    NAME_OR_FILE,
    PAGE_FORMATS,
    Hosts,
    PythonPath,
    Quiet,
    detail,
    format_option,
    place_of,
)
from envkit.cli.verdict import Printing, finish, judged_report
from envkit.errors import UsageError

if TYPE_CHECKING:
    from envkit.debug import DebugRequest
    from envkit.debug.job import CommandTarget
    from envkit.runner.runner import ExecTarget

_container = partial(Option, rich_help_panel="In a container")
_measures = partial(Option, rich_help_panel="What a run costs")
_hangs = partial(Option, rich_help_panel="Hangs")
_precision = partial(Option, rich_help_panel="Precision of a model")


@app.command(rich_help_panel=FAILED)
def explain(
    logs: Annotated[
        list[str] | None,
        Argument(
            metavar="[LOG]...|ID",
            click_type=NAME_OR_FILE,
            help="Logs, or - for stdin; or the id of a check or of a kind of failure.",
        ),
    ] = None,
    kernel_log: Annotated[
        list[str] | None, Option("--kernel-log", help="A kernel log (dmesg, journalctl -k); may be given again.")
    ] = None,
    beside: Annotated[
        Path | None, Option("--observations", help="A JSON report of probe or doctor, or a file that --save wrote.")
    ] = None,
    rank: Annotated[
        list[str] | None,
        Option("--rank", help="RANK=FILE, if the file name does not contain the rank; may be given again."),
    ] = None,
    run: Annotated[
        Path | None,
        Option("--run", metavar="RUN", help="The run on many nodes whose job failed, as for `judge`: names the node."),
    ] = None,
    hosts: Hosts = None,
    timeline: Annotated[
        int | None,
        Option("--timeline", min=0, help="Number of timeline lines; by default 12 on the console, otherwise all."),
    ] = None,
    redact: Annotated[
        bool, Option("--redact", help="Replace machines, addresses, users, serial numbers and ids with placeholders.")
    ] = False,
    format: Annotated[str, format_option(PAGE_FORMATS)] = "console",
) -> None:
    """Name the cause of a failure from its logs; or print the page of a check or of a kind of failure.

    Exit codes: 1 a cause was found, 3 the logs do not show the cause, 2 wrong input, 0 a page was printed.
    """
    from envkit.explain import explain as verb

    words = tuple(logs or ())
    if verb.is_page(words) and not (kernel_log or beside or rank or run):
        sys.stdout.write(verb.page(words[0]))
        return
    if not words and not kernel_log and not rank:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                "there is nothing to explain",
                "name logs, pipe one in, or give the id of a check or of a kind of failure",
            )
        words = ("-",)
    if hosts and run is None:
        raise UsageError("--hosts names the nodes of a run, and there is none", "add --run and the run")
    ran = fleets.ran(run, hosts or "") if run else None
    asked = verb.ExplainRequest(words, tuple(kernel_log or ()), beside, tuple(rank or ()), redact, ran)
    found = verb.answer(asked, say)
    sys.stdout.write(verb.printed(found, format, timeline, sys.stdout))
    raise Exit(verb.exit_code(found))


@app.command(
    rich_help_panel=FAILED, context_settings={"allow_extra_args": True}
)  # a command without -- gets a sentence of its own
def debug(
    context: Context,
    image: Annotated[
        str | None, _container("--image", metavar="IMAGE", help="Run the command in a container of this image.")
    ] = None,
    gpus: Annotated[
        str, _container("--gpus", metavar="[all|none|N,...]", help="With --image: the GPUs that the container gets.")
    ] = "auto",
    network: Annotated[
        str, _container("--network", metavar="[bridge|host|none]", help="With --image: the container's network.")
    ] = "",
    engine: Annotated[
        str, _container("--engine", click_type=IMAGE_ENGINES, help="With --image: the engine that has the image.")
    ] = "docker",
    volume: Annotated[
        list[str] | None,
        _container("--volume", "-v", metavar="SOURCE:TARGET[:ro]", help="With --image: a mount; may be given again."),
    ] = None,
    env: Annotated[
        list[str] | None,
        _container("--env", "-e", metavar="NAME[=VALUE]", help="With --image: a variable; may be given again."),
    ] = None,
    user: Annotated[
        str | None, _container("--user", "-u", metavar="UID[:GID]", help="With --image: the user it runs as.")
    ] = None,
    workdir: Annotated[
        str | None, _container("--workdir", "-w", metavar="PATH", help="With --image: where it starts.")
    ] = None,
    budget: Annotated[float, Option("--budget", help="Time limit in seconds for all stages.")] = 1800.0,
    stage_timeout: Annotated[float, Option("--stage-timeout", help="Time limit in seconds for one stage.")] = 600.0,
    memory: Annotated[
        bool, _measures("--memory", help="Run it once: where the GPU's memory goes, what grows, why it runs out.")
    ] = False,
    slow: Annotated[
        bool, _measures("--slow", help="Run it once: where a step's time goes, which rank waits for whom.")
    ] = False,
    core: Annotated[
        Path | None,
        Option(
            "--core",
            metavar="FILE",
            help="Run nothing: open this core dump, in the --image that it was written in; after --, its program.",
        ),
    ] = None,
    ranks: Annotated[
        bool, _hangs("--ranks", help="The command starts several ranks (torchrun, srun, ...): find out why they hang.")
    ] = False,
    hang_after: Annotated[
        float | None,
        _hangs(
            "--hang-timeout",
            help="With --ranks: end the job after so many seconds without progress of any rank.",
        ),
    ] = None,
    stall_timeout: Annotated[
        float | None,
        _hangs(
            "--stall-timeout",
            help="Seconds without output after which stacks are compared; 0: never. By default 120, with --ranks 0.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, Option("--only", metavar="STAGE", help="Run only this stage; may be given again.")
    ] = None,
    skip: Annotated[
        list[str] | None, Option("--skip", metavar="STAGE", help="Leave this stage out; may be given again.")
    ] = None,
    kernel: Annotated[
        list[str] | None,
        Option(
            "--kernel", metavar="NAME", help="Part of a kernel's name; compute-sanitizer then checks only such kernels."
        ),
    ] = None,
    out: Annotated[Path | None, Option("--out", help="The folder for all output files; new or empty.")] = None,
    precision: Annotated[
        str,
        _precision(
            "--precision",
            metavar="MODULE:FACTORY",
            help="Instead of a command: run one step of the model that FACTORY returns, in two dtypes.",
        ),
    ] = "",
    dtype: Annotated[
        str, _precision("--dtype", click_type=DTYPES, help="With --precision: the narrow dtype.")
    ] = "bfloat16",
    autocast: Annotated[
        bool, _precision("--autocast", help="With --precision: use torch.autocast instead of casting the model.")
    ] = False,
    code: Annotated[
        Path | None, _precision("--code", help="With --precision: the folder that contains MODULE.")
    ] = None,
    python: PythonPath = None,
    format: Annotated[str, format_option(PAGE_FORMATS)] = "console",
    quiet: Quiet = False,
    verbose: Annotated[
        bool, _precision("--verbose", help="With --precision: list also the checks that passed or were skipped.")
    ] = False,
) -> None:
    """Run a failing command several times, each time with one more tool: `envkit debug -- python train.py`.

    Unchanged, with blocking launches, under compute-sanitizer, with a GPU core dump; for a hang, the stacks of
    every process. Exit code 0: it succeeded and nothing was found; 1: a cause was found; 3: undecided. With --memory
    or --slow the command runs once, and the report says where the GPU's memory or a step's time goes.
    """
    import shlex

    from envkit import debug as debugging
    from envkit import facts
    from envkit.debug import job, render
    from envkit.system import no_room

    if context.args:
        words = shlex.join([*context.args, *(context.obj or ())])
        raise UsageError(f"the command `{context.args[0]}` must follow --", f"envkit debug -- {words}")
    amount = detail(quiet, verbose)
    if not precision and (autocast or code or python or dtype != "bfloat16" or verbose):
        kinds = "--dtype, --autocast, --code, --python and --verbose"
        raise UsageError(f"{kinds} only work with --precision", "name a model's factory")
    if memory and slow:
        raise UsageError("--memory and --slow cannot be used together", "run the command once with each")
    if (memory or slow) and (ranks or only or skip or kernel or precision):
        raise UsageError(
            "--memory and --slow run the command once and have no stages",
            "leave out --ranks, --only, --skip, --kernel and --precision",
        )
    if core and (memory or slow or ranks or only or skip or kernel or precision):
        raise UsageError(
            "--core opens what a crash has left, and runs nothing",
            "leave out --memory, --slow, --ranks, --only, --skip, --kernel and --precision",
        )
    if core and len(context.obj or ()) > 1:
        raise UsageError("--core takes the program alone after --", f"-- {context.obj[0]}")
    if precision:
        if context.obj:
            raise UsageError("--precision and a command cannot be used together", "use only one of them")
        place = place_of(image, python, engine, gpus)
        # a warning is found, too
        printing = Printing(format, "warning", False, amount)
        _debug_precision(place, precision, dtype, autocast, code or Path(), budget, printing)
    if not image and (volume or network or gpus != "auto" or env or user or workdir):
        kinds = "--volume, --network, --gpus, --env, --user and --workdir"
        raise UsageError(f"{kinds} only work with --image", "name the image, or leave them out")
    if hang_after is not None and not (ranks and hang_after > 0):
        raise UsageError(
            f"--hang-timeout {hang_after:g} has no effect", "give a number of seconds above 0, and --ranks"
        )
    request = debugging.DebugRequest(
        command=context.obj or (),
        budget_s=budget,
        stage_s=stage_timeout,
        quiet_s=stall_timeout if stall_timeout is not None else 0.0 if ranks else debugging.QUIET_S,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
        kernels=tuple(kernel or ()),
        hang_after_s=(hang_after or debugging.ranks.HANG_AFTER_S) if ranks else 0.0,
        hang_ends=hang_after is not None,
        folder=out,
    )
    ground: job.CommandTarget = job.LocalMachine()
    if image:
        from envkit.debug import container
        from envkit.engine import Ability, DeclaredStart, needs
        from envkit.engine.choice import connect
        from envkit.launch import docker_options
        from envkit.launch import job as jobs
        from envkit.runner import runner

        shown, bound = runner.default_gpus(gpus), container.volumes(volume or ())
        connected = connect(engine, say)
        needs(connected, Ability.FOLLOW)
        runner.are_here(shown, connected)
        variables = docker_options.job_from(env=env or ()).environment.value or {}
        who = ":".join(map(str, jobs.user_of(user) or ()))
        placed = DeclaredStart(environment=variables, user=who, workdir=jobs.working_folder(workdir))
        joined = jobs.network(network) if network else "none" if core else ""
        ground = container.Container(connected, image, shown, say, joined, bound, placed)
    if memory or slow:
        _debug_measured(request, ground, "memory" if memory else "slow", format, quiet)
    with no_room.into(out or Path()):
        if core:
            from envkit.debug import corefile

            program = next(iter(request.command), "")
            made = corefile.opened(corefile.read(core), program, request, ground, facts.load(), say)
        else:
            made = debugging.run(request, ground, facts.load(), say)
    if format == "html":
        from envkit.debug import as_html

        _page(lambda: as_html.render(made), render.text(made, quiet))
    else:
        sys.stdout.write(render.document(made) if format == "json" else render.text(made, quiet))
    raise Exit(made.code)


def _page(make: Callable[[], str], text: str) -> None:
    """Prints a page; where it cannot be made, why, and the text in its place, on stderr: stdout is read as a page."""
    from envkit.report import page

    made: list[str] = []
    if trouble := page.attempted("the page", lambda: made.append(make())):
        warn(trouble)
        sys.stderr.write(text)
    sys.stdout.write("".join(made))


def _debug_measured(request: DebugRequest, ground: CommandTarget, question: str, format: str, quiet: bool) -> NoReturn:
    """Runs the command once, prints what it costs, and exits by that."""
    from envkit import facts
    from envkit.debug import measured, measured_text
    from envkit.system import no_room

    with no_room.into(request.folder or Path()):
        made = measured.run(request, ground, facts.load(), question, say)
    if format == "html":
        _page(lambda: measured_text.page(made), measured_text.text(made, quiet))
    else:
        sys.stdout.write(measured_text.document(made) if format == "json" else measured_text.text(made, quiet))
    raise Exit(made.code)


def _debug_precision(
    place: ExecTarget, target: str, dtype: str, autocast: bool, code: Path, budget_s: float, printing: Printing
) -> NoReturn:
    """Judges one step of a model in a narrow dtype, prints the report, and exits by it."""
    from envkit.report import summary
    from envkit.runner import runner

    started = time.monotonic()
    seen = runner.precision(place, target, say, dtype=dtype, autocast=autocast, code=code, timeout_s=budget_s)
    finish(*judged_report("precision", seen, started, summary.precision(seen)), printing)
