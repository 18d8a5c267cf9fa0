"""Verbs that examine machines: doctor, preflight before a job starts, drain after it found a bad node."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

from typer import Argument, Context, Exit, Option

from envkit.cli import fleets, options
from envkit.cli.app import MACHINE, WORDS, app
from envkit.cli.ending import exits, say, warn
from envkit.cli.options import FLIGHT_LEVELS, GPU_WAYS, LINK_TESTS, OUTPUT
from envkit.cli.verdict import Printing, finish
from envkit.errors import UsageError, one_line

_output = partial(Option, rich_help_panel=OUTPUT)
_many = partial(Option, rich_help_panel=options.MANY)
_job = partial(Option, rich_help_panel="The job, as for `docker run`")


@app.command(rich_help_panel=MACHINE)
def doctor(
    cuda: Annotated[str, Option("--cuda", metavar="VERSION", help="The CUDA version that must run here.")] = "",
    expect: Annotated[
        Path | None, Option("--expect", help="A contract in TOML that says what must be there; see docs/doctor.md.")
    ] = None,
    budget: Annotated[float, Option("--budget", help="Time limit in seconds for all sources together.")] = 8.0,
    root: Annotated[
        Path, Option("--root", help="The root folder of the machine, if it is mounted in a container or a recording.")
    ] = Path("/"),
    saved: Annotated[
        Path | None, Option("--from", help="Judge a machine that --save wrote, instead of this one.")
    ] = None,
    save: options.Save = None,
    redact: Annotated[
        bool,
        _output("--redact", help="Replace serials, UUIDs, names and addresses with placeholders, in file and report."),
    ] = False,
    list_them: Annotated[bool, Option("--list", help="List the checks without examining the machine.")] = False,
    format: options.Format = "console",
    fail_on: options.FailOn = "error",
    exit_style: options.ExitStyle = "envkit",
    observed: options.WithObserved = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Examine this machine without changing it: driver, GPUs, fabric, container engine, kernel log, limits."""
    from envkit.doctor import doctor

    started = time.monotonic()
    with exits(exit_style):
        if list_them:
            for line in doctor.listing():
                print(line)
            return
        printing = Printing(format, fail_on, observed, options.detail(quiet, verbose))
        options.writable(save)
        host = doctor.host(root, budget, cuda, expect, saved, redact)
        options.save_subject(save, "host", host)
        finish(*doctor.report(host, started), printing, style=exit_style)


@app.command(rich_help_panel=MACHINE)
def preflight(
    context: Context,
    image: options.Target = None,
    level: Annotated[
        str, Option("--level", click_type=FLIGHT_LEVELS, help="How much to check; each level includes those before it.")
    ] = "quick",
    host: Annotated[
        Path | None,
        Option("--host", help="Judge a machine that `doctor --save` wrote, instead of this one; starts nothing."),
    ] = None,
    python: options.PythonPath = None,
    expect: Annotated[Path | None, Option("--expect", help="The machine's contract, as for doctor.")] = None,
    gpus: Annotated[
        str | None, _job("--gpus", metavar="[all|none|COUNT|device=N,...]", help="The GPUs that the container gets.")
    ] = None,
    way: Annotated[
        str | None, _job("--gpu-runtime", click_type=GPU_WAYS, help="How the container gets its GPUs.")
    ] = None,
    nodes: Annotated[int | None, _job("--nodes", metavar="N", help="Number of machines.")] = None,
    ranks: Annotated[int | None, _job("--ranks", metavar="N", help="Number of processes on this machine.")] = None,
    workers: Annotated[
        int | None, _job("--workers", metavar="N", help="Number of data loader processes per rank.")
    ] = None,
    env: Annotated[
        list[str] | None, _job("--env", "-e", metavar="NAME=VALUE", help="An environment variable; may be given again.")
    ] = None,
    env_file: Annotated[
        list[Path] | None, _job("--env-file", help="A file of lines NAME=VALUE, as for docker.")
    ] = None,
    shm_size: Annotated[str | None, _job("--shm-size", metavar="SIZE", help="Size of /dev/shm, such as 16g.")] = None,
    memory: Annotated[str | None, _job("--memory", "-m", metavar="SIZE", help="Memory limit, such as 64g.")] = None,
    ipc: Annotated[str | None, _job("--ipc", metavar="[private|host|...]", help="Whose /dev/shm it uses.")] = None,
    network: Annotated[
        str | None, _job("--network", metavar="[bridge|host|none|NAME]", help="The container's network.")
    ] = None,
    ulimit: Annotated[
        list[str] | None,
        _job("--ulimit", metavar="NAME=VALUE", help="A limit, such as memlock=-1; may be given again."),
    ] = None,
    pids_limit: Annotated[
        int | None, _job("--pids-limit", metavar="N", help="The most processes and threads of the container.")
    ] = None,
    cpus: Annotated[float | None, _job("--cpus", metavar="N", help="How many processors it may keep busy.")] = None,
    user: Annotated[
        str | None, _job("--user", "-u", metavar="UID[:GID]", help="The user it runs as, by number or name.")
    ] = None,
    volume: Annotated[
        list[str] | None, _job("--volume", "-v", metavar="SOURCE:TARGET[:ro]", help="A mount; may be given again.")
    ] = None,
    tmpfs: Annotated[
        list[str] | None, _job("--tmpfs", metavar="PATH", help="A path in the container that is a tmpfs.")
    ] = None,
    device: Annotated[list[str] | None, _job("--device", metavar="DEVICE", help="A device of the machine.")] = None,
    cap_add: Annotated[list[str] | None, _job("--cap-add", metavar="CAPABILITY", help="A capability to add.")] = None,
    privileged: Annotated[bool, _job("--privileged", help="The container has all privileges.")] = False,
    read_only: Annotated[bool, _job("--read-only", help="The container's root is read-only.")] = False,
    checkpoint: Annotated[
        str | None,
        _job(
            "--checkpoint",
            metavar="PATH",
            help="The path to which the job writes checkpoints, as seen in the container.",
        ),
    ] = None,
    checkpoint_size: Annotated[
        str | None, _job("--checkpoint-size", metavar="SIZE", help="How much space they need, such as 200g.")
    ] = None,
    may_be_unknown: Annotated[
        list[str] | None,
        _output("--allow-unknown", metavar="CHECK", help="A check that may stay unknown here; may be given again."),
    ] = None,
    fleet: Annotated[
        str | None,
        _many(
            "--fleet",
            metavar="FOLDER|-",
            help="This is one node of many: leave a document in this shared folder, or on stdout; see docs/fleet.md.",
        ),
    ] = None,
    hosts: options.Hosts = None,
    count: Annotated[
        int | None, _many("--count", metavar="N", help="The number of nodes, where the launcher numbers them.")
    ] = None,
    node: Annotated[str | None, _many("--node", help="Which node this is, if the launcher does not say.")] = None,
    spares: Annotated[
        int | None, _many("--spares", metavar="N", help="Start the command on all but N nodes, the healthy ones.")
    ] = None,
    frames: Annotated[bool, _many("--frames", help="Also print the document on stdout, in framed lines.")] = False,
    termination: Annotated[
        Path | None, _many("--termination-log", help="Also write a short document to this file, for Kubernetes.")
    ] = None,
    links: Annotated[
        str | None,
        _many(
            "--links",
            click_type=LINK_TESTS,
            help="Then test the links between nodes that passed: in pairs, or also in groups up to all of them.",
        ),
    ] = None,
    trial_budget: Annotated[
        float, _many("--trial-budget", metavar="SECONDS", help="Time limit of one trial of a link; 60 without.")
    ] = 0.0,
    link_floor: Annotated[
        float,
        _many(
            "--link-floor", metavar="GB/S", help="The least bus bandwidth that is not slow; by default by the facts."
        ),
    ] = 0.0,
    contract: options.ClassContracts = None,
    may_differ: options.MayDiffer = None,
    budget: Annotated[float, Option("--budget", help="Time limit in seconds for all levels; 0: no limit.")] = 0.0,
    framework: options.Frameworks = None,
    require_gpu: options.RequireGpu = False,
    engine: options.EngineName = "docker",
    report: Annotated[Path | None, _output("--report", help="Where to write the JSON report.")] = None,
    format: options.Format = "console",
    fail_on: options.FailOn = "error",
    exit_style: options.ExitStyle = "envkit",
    observed: options.WithObserved = False,
    quiet: options.Quiet = False,
    verbose: options.LongVerbose = False,
) -> None:
    """Decide before a job starts whether image, machine and job fit together; `-- COMMAND` runs only after a pass.

    The job's options are those of `docker run`. With a command, the report goes to stderr, and after a pass the command
    replaces this process.
    """
    from envkit import report as reports
    from envkit.engine.choice import connect
    from envkit.launch import docker_options
    from envkit.launch import preflight as flights
    from envkit.runner import runner
    from envkit.system import files

    command: tuple[str, ...] = context.obj or ()
    with exits(exit_style):
        if context.obj == ():  # a script whose variable is empty would take "passed" for "ran"
            raise UsageError("there is no command after --", "name one, or leave -- out")
        if command and host is not None:  # the pass of another machine says nothing of the one that would run it
            said = f"{host} is a saved machine, which cannot start the command `{command[0]}`"
            raise UsageError(
                said, "leave out --host to judge this machine and start the command here, or leave out the command"
            )
        printing = Printing(format, fail_on, observed, options.detail(quiet, verbose))
        options.writable(report)
        _startable(command)
        job = docker_options.job_from(
            gpus=gpus,
            way=way,
            nodes=nodes,
            ranks=ranks,
            workers=workers,
            env=env or (),
            env_files=env_file or (),
            shm=shm_size,
            memory=memory,
            ipc=ipc,
            network=network,
            ulimits=ulimit,
            pids=pids_limit,
            cpus=cpus,
            user=user,
            mounts=volume,
            tmpfs=tmpfs,
            devices=device,
            capabilities=cap_add,
            privileged=privileged or None,
            read_only=read_only or None,
            checkpoint=checkpoint,
            checkpoint_size=checkpoint_size,
        )
        shown = job.gpus.value if job.gpus.value is not None else runner.default_gpus("auto")
        asked = runner.asked_frameworks(framework or ())
        open_ones = tuple(may_be_unknown or ())
        request = flights.PreflightRequest(
            image or "", job, level, host, python, expect, budget, open_ones, require_gpu, frameworks=asked
        )
        if fleet is not None:
            request.check()
            if report or format != "console" or exit_style != "envkit":
                raise UsageError(
                    "a node of a run prints no report of its own", "leave out --report, --format and --exit-style"
                )
            many = fleets.Many(
                fleet,
                hosts or "",
                count or 0,
                node or "",
                spares or 0,
                frames,
                termination,
                tuple(may_differ or ()),
                contract,
                links or "",
                trial_budget,
                link_floor,
                _python_of_trials(image, python) if links else "",
            )
            fleets.named_once(hosts, count)
            code, become = fleets.examine_node(many, context.meta[WORDS], level, budget, command, fail_on)
            if become:
                _become(command, become)
            raise Exit(code)
        fleets.need_fleet(
            ("--hosts", hosts), ("--count", count), ("--node", node), ("--spares", spares), ("--frames", frames),
            ("--termination-log", termination), ("--may-differ", may_differ), ("--contract", contract),
            ("--links", links), ("--trial-budget", trial_budget or None), ("--link-floor", link_floor or None),
        )  # fmt: skip
        made = flights.run(request, lambda: connect(engine, say), shown, say)
        if report:
            files.write(report, reports.render(made, "json", fail_on=options.severity(fail_on)), 0o600)
            say(f"wrote {report}")
        found = flights.cause(made, options.severity(fail_on))
        if found:
            warn(f"cause: {found.message}")
            warn(f"fix: {found.fix}")
        elif made.exit_code(options.severity(fail_on)) == 3:
            warn(f"undecided: {flights.doubt(made) or 'nothing was judged'}")
        if command and made.exit_code(options.severity(fail_on)) == 0:
            say(f"passed in {made.elapsed_s:.1f} s; starting {command[0]}")
            _become(command)
        finish(made, (), printing, style=exit_style, out=sys.stderr if command else sys.stdout)


@app.command(rich_help_panel=MACHINE)
def drain(
    run: Annotated[Path, Argument(metavar="RUN", help="A run on many nodes, as for `judge`.")],
    apply: Annotated[bool, Option("--apply", help="Do it; without, only print what would be done.")] = False,
    undo: Annotated[
        bool, Option("--undo", help="Return the nodes to service that envkit drained and that are ok in this run.")
    ] = False,
    unknown: Annotated[bool, Option("--unknown", help="Also drain the nodes whose state is unknown.")] = False,
    hosts: options.Hosts = None,
    also: options.Also = None,
    contract: options.ClassContracts = None,
    may_differ: options.MayDiffer = None,
    fail_on: options.FailOn = "error",
    quiet: options.Quiet = False,
) -> None:
    """Drain the failed nodes of a run in Slurm, or cordon them in Kubernetes; without --apply, only show how."""
    options.detail(quiet, False)
    asked = fleets.Judging(run, hosts or "", also or (), contract, may_differ or (), fail_on)
    fleets.act(asked, undo, unknown, apply)


def _python_of_trials(image: str | None, python: Path | None) -> str:
    """The Python whose torch tests the links, "" for this one; raises UsageError where there is none."""
    import importlib.util

    if python is not None:
        return os.path.abspath(python)
    if image is not None or importlib.util.find_spec("torch") is None:
        said = "the links are tested by torch in a Python of this machine, and this one has none"
        if image is not None:
            said = f"the links are tested by torch in a Python of this machine, and not in {one_line(image)}"
        raise UsageError(said, "name a Python that has torch as --python, or start envkit inside the job's container")
    return ""


def _startable(command: tuple[str, ...]) -> None:
    """Raises UsageError for a command that does not exist, before anything is looked at."""
    import shutil

    if command and not shutil.which(command[0]):
        raise UsageError(f"there is no program `{command[0]}`", "name one that is on PATH, or its path")


def _become(command: tuple[str, ...], variables: Mapping[str, str] | None = None) -> NoReturn:
    """This process becomes the command: same pid, process group and files; signals act as they do by default."""
    sys.stdout.flush()
    with suppress(OSError):
        sys.stderr.flush()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, {**os.environ, **(variables or {})})
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror}", "check its permissions") from error
