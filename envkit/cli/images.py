"""Verbs that look into an image or a Python: audit, probe, smoke; judge, for what they saved; diff."""

from __future__ import annotations

import os
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from envkit.cli import fleets, options
from envkit.cli.app import LOOK, app
from envkit.cli.ending import say
from envkit.cli.options import (
    ABILITY_LEVELS,
    DATA_FORMATS,
    FAULT_KINDS,
    NAME_OR_FILE,
    PLACEMENT_WAYS,
    SANITIZERS,
    SMOKE_LEVELS,
)
from envkit.cli.verdict import Printing, finish, finish_smoke, judged_report
from envkit.errors import EnvkitError, UsageError

if TYPE_CHECKING:
    from envkit.runner.runner import InEngine

_run = partial(Option, rich_help_panel=options.MANY)


@app.command(rich_help_panel=LOOK)
def audit(
    target: Annotated[
        str,
        Argument(
            metavar="IMAGE", click_type=NAME_OR_FILE, help="An image, a file that `docker save` wrote, or a directory."
        ),
    ],
    gpu: Annotated[
        list[str] | None, Option("--gpu", metavar="GPU", help="A GPU it must run on (H100, sm_90); may be given again.")
    ] = None,
    hash_all: Annotated[
        bool, Option("--hash", help="Compare all files of torch and CUDA with the hashes in their wheels; slow.")
    ] = False,
    framework: options.Frameworks = None,
    engine: options.EngineName = "docker",
    save: options.Save = None,
    format: options.Format = "console",
    fail_on: options.FailOn = "error",
    observed: options.WithObserved = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Examine an image's files without running anything in it; needs no GPU."""
    from envkit import facts
    from envkit.engine.choice import connect
    from envkit.report import summary
    from envkit.runner import runner

    started = time.monotonic()
    printing = Printing(format, fail_on, observed, options.detail(quiet, verbose))
    options.writable(save)
    known = facts.load()
    gpus = tuple(sorted({known.gpu(name).sm for name in gpu or ()}))
    asked = runner.asked_frameworks(framework or ())
    seen = runner.audit(target, lambda: connect(engine, say), say, gpus=gpus, hash_all=hash_all, frameworks=asked)
    options.save_subject(save, "audit", seen)
    finish(*judged_report("audit", seen, started, summary.audit(seen)), printing)


@app.command(rich_help_panel=LOOK)
def probe(
    image: options.Target = None,
    python: options.PythonPath = None,
    static: Annotated[bool, Option("--static", help="Import nothing; only look at what is installed and set.")] = False,
    placement: Annotated[
        str,
        Option(
            "--placement",
            metavar="MODULE:FACTORY",
            help="Report the device of every tensor of the model and inputs that FACTORY returns.",
        ),
    ] = "",
    aoti: Annotated[
        Path | None, Option("--aoti", metavar="PACKAGE", help="Check how an AOTInductor package loads and runs there.")
    ] = None,
    inputs: Annotated[
        str,
        Option(
            "--inputs",
            metavar="MODULE:FUNCTION",
            help="With --aoti: the function that returns the package's arguments.",
        ),
    ] = "",
    code: Annotated[
        Path | None, Option("--code", help="The folder that contains MODULE; read-only in a container.")
    ] = None,
    how: Annotated[
        str,
        Option("--mode", click_type=PLACEMENT_WAYS, help="With --placement: run uses a GPU; fake and trace need none."),
    ] = "auto",
    ranks: Annotated[
        Path | None, Option("--ranks", help="With --placement: a folder that all ranks of the job can write to.")
    ] = None,
    framework: options.Frameworks = None,
    command: Annotated[
        str,
        Option("--command", help="What the job runs, in the place of the image's CMD, as in 'python train.py'."),
    ] = "",
    start: options.StartFile = "",
    direct: Annotated[
        bool, Option("--direct", help="Run the first python3 of the image, past its entry point and command.")
    ] = False,
    abilities: Annotated[
        str,
        Option(
            "--abilities",
            click_type=ABILITY_LEVELS,
            help="What is tried besides: open and load, compile a kernel (quick); torch.compile, builds (full).",
        ),
    ] = "quick",
    engine: options.EngineName = "docker",
    gpus: options.Gpus = "auto",
    require_gpu: options.RequireGpu = False,
    save: options.Save = None,
    format: options.Format = "console",
    fail_on: options.FailOn = "error",
    observed: options.WithObserved = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Show which CUDA libraries a process in the image really binds, or where a model's tensors are."""
    from envkit.report import summary
    from envkit.runner import runner

    started = time.monotonic()
    printing = Printing(format, fail_on, observed, options.detail(quiet, verbose))
    options.writable(save)
    if (static, bool(placement), aoti is not None).count(True) > 1:
        raise UsageError("--static, --placement and --aoti cannot be used together", "use only one of them")
    if inputs and aoti is None:
        raise UsageError("--inputs only works with --aoti", "name the package with --aoti, or use --placement")
    if framework and (placement or aoti is not None):
        raise UsageError("--framework does not work with --placement or --aoti", "leave it out")
    asked = runner.asked_frameworks(framework or ())
    options.consistent(require_gpu, gpus)
    job = options.job_command(command, start, image, direct, engine, bool(placement or aoti is not None))
    override = options.override_of(start)
    place = options.place_of(image, python, engine, gpus)
    if placement:
        followed = runner.placement(place, placement, say, code or Path(), how, ranks)
        options.save_subject(save, "placement", followed)
        made = judged_report("placement", followed, started, summary.placement(followed), require_gpu)
    elif aoti is not None:
        ran = runner.aoti(place, say, aoti, inputs=inputs, code=code or (Path() if inputs else None))
        options.save_subject(save, "aoti", ran)
        made = judged_report("aoti", ran, started, summary.aoti(ran), require_gpu)
    else:
        seen = runner.probe(
            place,
            say,
            static=static,
            frameworks=asked,
            command=job,
            direct=direct,
            override=override,
            abilities=abilities,
        )
        options.save_subject(save, "image", seen)
        made = judged_report("image", seen, started, summary.image(seen), require_gpu)
    plain = not placement and aoti is None and isinstance(place, runner.InEngine) and place.engine.containers
    finish(*made, printing, next_step=_how_to_run(place) if plain else "")


def _how_to_run(place: InEngine) -> str:
    """The engine's own line to paste, for the image that was looked at; empty where that has gone since."""
    from envkit.launch import job

    try:
        labels = place.engine.labels(place.name)
    except EnvkitError:
        return ""
    made = job.of_image(place.name, labels, place.gpus, Path.cwd(), os.environ)
    return f"run your code in it: {shlex.join(place.engine.job_line(made).argv)}"


@app.command(rich_help_panel=LOOK)
def smoke(
    image: options.Target = None,
    level: Annotated[
        str, Option("--level", click_type=SMOKE_LEVELS, help="Which tests to run; stress needs --minutes.")
    ] = "quick",
    minutes: Annotated[float, Option("--minutes", help="How long --level stress repeats its tests.")] = 0.0,
    only: Annotated[
        list[str] | None, Option("--only", metavar="TEST", help="Run only this test; may be given again.")
    ] = None,
    exclude: Annotated[
        list[str] | None, Option("--exclude", metavar="TEST", help="Leave this test out; may be given again.")
    ] = None,
    extra: Annotated[
        list[Path] | None, Option("--test-file", help="A file with your own tests: functions smoke_*(bench).")
    ] = None,
    list_them: Annotated[bool, Option("--list", help="List the tests of the level without running them.")] = False,
    python: options.PythonPath = None,
    engine: options.EngineName = "docker",
    gpus: Annotated[str, options.gpus_option("--gpus", "--gpu")] = "auto",
    injected_fault: Annotated[
        str,
        Option(
            "--inject-fault",
            click_type=FAULT_KINDS,
            help="Deliberately disturb each result. Every test must then fail (exit 1).",
        ),
    ] = "",
    sanitize: Annotated[
        str, Option("--sanitize", click_type=SANITIZERS, help="Run under this tool of compute-sanitizer.")
    ] = "",
    require_gpu: options.RequireGpu = False,
    save: options.Save = None,
    format: options.Format = "console",
    fail_on: options.FailOn = "error",
    observed: options.WithObserved = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Run the standard kernel tests, each in its own process."""
    from envkit.report import summary
    from envkit.runner import runner

    started = time.monotonic()
    printing = Printing(format, fail_on, observed, options.detail(quiet, verbose))
    options.writable(save)
    request = runner.SmokeRequest(
        level,
        tuple(only or ()),
        tuple(exclude or ()),
        tuple(extra or ()),
        injected_fault,
        sanitize,
        minutes or float(list_them and level == "stress"),  # a list takes no time
    )
    request.check()
    if list_them:
        for line in summary.smoke_list(level, request.only, request.exclude):
            print(line)
        return
    options.consistent(require_gpu, gpus)
    place = options.place_of(image, python, engine, gpus)
    run = runner.smoke(place, say, request)
    options.save_subject(save, "smoke", run)
    finish_smoke(run, started, require_gpu, printing)


@app.command(name="judge", rich_help_panel=LOOK)
def judge_saved(
    saved: Annotated[
        Path,
        Argument(
            metavar="FILE|RUN",
            help="A file that --save wrote, or a run on many nodes: its folder, or kubernetes:NAMESPACE/job/NAME.",
        ),
    ],
    require_gpu: options.RequireGpu = False,
    hosts: options.Hosts = None,
    also: options.Also = None,
    contract: options.ClassContracts = None,
    may_differ: options.MayDiffer = None,
    out: Annotated[
        Path | None,
        _run("--out", metavar="FOLDER", help="Write nodes.ok, nodes.fail, nodes.unknown and reports there."),
    ] = None,
    segments: Annotated[
        Path | None,
        _run(
            "--segment-health-check",
            metavar="FOLDER",
            help="Leave the decision there for nvidia-resiliency-ext's ft_launcher.",
        ),
    ] = None,
    format: options.Format = "console",
    fail_on: options.FailOn = "error",
    observed: options.WithObserved = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Judge a file that --save wrote, or the run of a job on many nodes, on any machine."""
    from envkit.fleet.pods import is_asked
    from envkit.subjects import KINDS, codec
    from envkit.subjects import saved as files

    started = time.monotonic()
    printing = Printing(format, fail_on, observed, options.detail(quiet, verbose))
    if os.path.isdir(saved) or hosts or also or is_asked(saved):
        for option, needed in (("--require-gpu", require_gpu), ("--observed", observed)):
            if needed:
                raise UsageError(
                    f"{option} is for a file that --save wrote", f"leave it out: {saved} is a run of nodes"
                )
        asked = fleets.Judging(saved, hosts or "", also or (), contract, may_differ or (), fail_on)
        fleets.judge_run(asked, out, segments, format)
    for option, given in (
        ("--contract", contract), ("--may-differ", may_differ), ("--out", out), ("--segment-health-check", segments),
    ):  # fmt: skip
        if given:
            raise UsageError(
                f"{option} is for a run on many nodes, and {saved} is no folder", "name a run's folder, or add --hosts"
            )
    kind, plain = files.document(saved)
    subject: Any = codec.recorded(KINDS[kind], plain)
    if kind == "smoke":
        finish_smoke(subject, started, require_gpu, printing)
    if kind == "host":  # its contract was saved with it
        from envkit.doctor import doctor

        finish(*doctor.report(subject, started, require_gpu), printing)
    finish(*judged_report(kind, subject, started, (), require_gpu), printing)


@app.command(rich_help_panel=LOOK)
def diff(
    old: Annotated[
        str,
        Argument(
            metavar="A",
            click_type=NAME_OR_FILE,
            help="A lock, a spec, an image, or a file that `probe --save` or `doctor --save` wrote.",
        ),
    ],
    new: Annotated[
        str,
        Argument(metavar="B", click_type=NAME_OR_FILE, help="Another one of the same kind, or @host for this machine."),
    ],
    probe: Annotated[
        bool, Option("--probe", help="For two images, also compare the libraries that are loaded inside.")
    ] = False,
    engine: options.EngineName = "docker",
    format: Annotated[str, options.format_option(DATA_FORMATS)] = "console",
    quiet: options.Quiet = False,
) -> None:
    """Explain what a change means: GPUs lost, drivers needed, libraries changed. Exit 0: the same, 1: different."""
    from envkit import facts
    from envkit.diff import diff, render

    options.detail(quiet, False)
    kind, changes = diff.changes(old, new, facts.load(), engine, probe, say)
    if format == "json":
        print(render.to_json(changes, kind, old, new))
    else:
        sys.stdout.write(render.render_text(changes, old, new))
    raise Exit(1 if changes else 0)
