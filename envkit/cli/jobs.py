"""Verbs that run a person's own command in the image of a spec: run, shell."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

from typer import Context, Exit, Option

from envkit.cli import options
from envkit.cli.app import JOB, app
from envkit.cli.ending import say, warn
from envkit.errors import UsageError

if TYPE_CHECKING:
    from envkit.engine import Engine, JobRequest
    from envkit.launch.job import JobOptions
    from envkit.plan.lockfile import Lock
    from envkit.plan.spec import Spec
    from envkit.subjects import Host

_container = partial(Option, rich_help_panel="The container, as for `docker run`")

_Publish = Annotated[
    list[str] | None, _container("--publish", "-p", metavar="[IP:]PORT:PORT", help="A port; may be given again.")
]
_Network = Annotated[
    str | None, _container("--network", metavar="[bridge|host|none|NAME]", help="The container's network.")
]
_Ipc = Annotated[str | None, _container("--ipc", metavar="[private|host|...]", help="Whose /dev/shm it uses.")]
_Ulimit = Annotated[list[str] | None, _container("--ulimit", metavar="NAME=VALUE", help="A limit; may be given again.")]
_Print = Annotated[bool, Option("--print", help="Print the command line to paste, and run nothing.")]
_Quiet = Annotated[bool, Option("--quiet", "-q", help="Print no progress.")]
_NoPreflight = Annotated[bool, Option("--no-preflight", help="Start without `envkit preflight --level passive`.")]


@app.command(rich_help_panel=JOB, context_settings={"allow_extra_args": True})
def run(
    context: Context,
    spec: options.SpecPath = Path(),
    engine: options.EngineName = "docker",
    gpus: options.Gpus = "auto",
    tag: options.Tag = "",
    flavor: options.FlavorName = "",
    env: options.Env = None,
    env_file: options.EnvFile = None,
    volume: options.Volume = None,
    publish: _Publish = None,
    network: _Network = None,
    shm_size: options.Shm = None,
    ipc: _Ipc = None,
    ulimit: _Ulimit = None,
    memory: options.Memory = None,
    user: options.User = None,
    workdir: options.Workdir = None,
    print_it: _Print = False,
    no_preflight: _NoPreflight = False,
    no_explain: Annotated[bool, Option("--no-explain", help="Do not explain the output of a command that fails.")] = (
        False
    ),
    quiet: _Quiet = False,
) -> None:
    """Run your own command in the image of a spec: `envkit run -- python train.py`.

    The image is built if it is not there. The folder of the spec is at /workspace, where the command starts as you. The
    exit code is that of the command; what envkit itself says is on stderr, and ends with whose exit code it is.
    """
    command: tuple[str, ...] = context.obj or ()
    if context.args or not command:
        words = shlex.join([*context.args, *command] or ["python", "train.py"])
        said = f"the command `{context.args[0]}` must follow --" if context.args else "there is no command after --"
        raise UsageError(said, f"envkit run -- {words}")
    options.detail(quiet, False)
    given = (gpus, env, env_file, volume, publish, network, shm_size, ipc, ulimit, memory, user, workdir)
    prepare = partial(_prepared, spec, engine, given, tag, flavor)
    _start(prepare, command, flavor, print_it, not no_preflight, not no_explain)


@app.command(rich_help_panel=JOB)
def shell(
    spec: options.SpecPath = Path(),
    engine: options.EngineName = "docker",
    gpus: options.Gpus = "auto",
    tag: options.Tag = "",
    flavor: options.FlavorName = "",
    env: options.Env = None,
    env_file: options.EnvFile = None,
    volume: options.Volume = None,
    publish: _Publish = None,
    network: _Network = None,
    shm_size: options.Shm = None,
    ipc: _Ipc = None,
    ulimit: _Ulimit = None,
    memory: options.Memory = None,
    user: options.User = None,
    workdir: options.Workdir = None,
    print_it: _Print = False,
    quiet: _Quiet = False,
) -> None:
    """Open a shell where `envkit run` would start a command."""
    options.detail(quiet, False)
    if not print_it and not (os.isatty(0) and os.isatty(1)):
        raise UsageError("a shell needs a terminal", "use `envkit run -- COMMAND` in scripts")
    given = (gpus, env, env_file, volume, publish, network, shm_size, ipc, ulimit, memory, user, workdir)
    _start(partial(_prepared, spec, engine, given, tag, flavor), (), flavor, print_it, False, False)


# The options of both verbs as a person gave them, in the order in which `_options` takes them apart.
_Given = tuple[
    str, list[str] | None, list[Path] | None, list[str] | None, list[str] | None, str | None, str | None, str | None,
    list[str] | None, str | None, str | None, str | None,
]  # fmt: skip


def _options(given: _Given) -> JobOptions:
    """What the options mean, before any work."""
    from envkit.launch import docker_options, job
    from envkit.runner.asked import default_gpus

    gpus, env, env_files, volumes, publish, network, shm_size, ipc, ulimits, memory, user, workdir = given
    words: dict[str, list[str]] = {
        "--publish": publish or [],
        "--network": [network] if network else [],
        "--shm-size": [shm_size] if shm_size else [],
        "--ipc": [ipc] if ipc else [],
        "--ulimit": ulimits or [],
        "--memory": [memory] if memory else [],
    }
    for one in publish or ():
        job.port(one)
    if network:
        job.network(network)
    read = docker_options.job_from(
        env=env or (), env_files=env_files or (), mounts=volumes, shm=shm_size, memory=memory, ipc=ipc, ulimits=ulimits
    )
    return job.JobOptions(
        gpus=default_gpus(gpus),
        env=read.environment.value,
        binds=job.binds(read.mounts.value or ()),
        user=job.user_of(user),
        workdir=job.working_folder(workdir),
        words=tuple(word for name, values in words.items() for value in values for word in (name, value)),
    )


class _Prepared(NamedTuple):
    """A job's spec and engine, its lock if there is one, and the name of its image; ``built``: that is of the lock."""

    spec: Spec
    given: JobOptions
    engine: Engine
    lock: Lock | None
    name: str
    built: bool


def _prepared(where: Path, engine: str, given: _Given, tag: str, flavor: str) -> _Prepared:
    """What the options and the spec say and what the engine has, before any work; raises for what cannot be."""
    from envkit.build.possible import can_be_built
    from envkit.engine import Ability
    from envkit.engine.choice import connect
    from envkit.launch import job
    from envkit.plan import lockfile as locks
    from envkit.plan.spec import load
    from envkit.runner.asked import are_here

    read = _options(given)
    job.are_there(read.binds)  # before a build of minutes
    parsed = load(options.spec_at(where))
    connected = connect(engine, say)
    _can_follow(read, connected)
    builds = Ability.BUILD in connected.abilities
    can_be_built(parsed.platform.value, tag if builds else "")
    are_here(read.gpus, connected)
    lock, name = locks.load(parsed), job.tag_of(parsed, flavor, tag)
    if lock is not None and not builds:
        _is_its_own(lock, tag, connected, flavor)
    built = lock is not None and (not builds or job.is_built(lock, name, connected, flavor))
    return _Prepared(parsed, read, connected, lock, name, built)


def _start(
    prepare: Callable[[], _Prepared], command: tuple[str, ...], flavor: str, print_it: bool, preflight: bool,
    explain: bool,
) -> NoReturn:  # fmt: skip
    """Everything from the spec to the exit code; without ``command``, of a shell."""
    from envkit.launch import job

    preflight = preflight and not print_it
    (made, here) = _beside(prepare) if preflight else (prepare(), None)
    parsed, given, connected, lock = made.spec, made.given, made.engine, made.lock
    if not print_it and not made.built:
        lock, here = _built(parsed, made.name, connected, flavor), None  # the machine as it was minutes ago
    if not command:
        command = ("bash",) if connected.containers else (os.environ.get("SHELL") or "sh",)
    if lock is None:
        at = parsed.path.parent
        raise UsageError(f"there is no lock for {parsed.path}", f"run `envkit lock {shlex.quote(str(at))}` first")
    request = job.request(
        lock, made.name, job.project_of(parsed, Path.cwd()), command, given, os.environ, Path.cwd(),
        flavor=flavor, package=parsed.path.parent / parsed.project, containers=connected.containers,
    )  # fmt: skip
    job.ready(request)  # also for a line to paste: an engine makes no folders, or makes them as root
    if print_it:
        _print(request, connected)
    if lock.project and "PYTHONPATH" not in request.env:
        warn(f"{lock.project.name} is imported as it was built, not from its folder: build again after a change")
    if preflight:
        _fly(request, connected, here)
    _attend(parsed, request, connected, explain)


def _beside(prepare: Callable[[], _Prepared]) -> tuple[_Prepared, Host]:
    """What ``prepare`` gives, and this machine as other processes have looked at it meanwhile, for the preflight."""
    from envkit.host.observe import observe_host

    made: list[_Prepared] = []

    def meanwhile() -> None:
        made.append(prepare())
        from envkit.launch import preflight as flights

        flights.read_judges()
        import envkit.engine.docker_run
        import envkit.system.attended  # noqa: F401

    here = observe_host(meanwhile=meanwhile)
    return made[0], here


def _can_follow(given: JobOptions, engine: Engine) -> None:
    """Raises UsageError for an option that this engine could only drop without a word."""
    from envkit.engine import Ability

    about = {word for word in given.words if word.startswith("--")} if Ability.LIMITS not in engine.abilities else set()
    if not engine.containers:
        said = {"--volume": given.binds, "--user": given.user, "--workdir": given.workdir}
        about |= {name for name, value in said.items() if value}
    if about:
        said_of = f"{min(about)} is about a container, and --engine {engine.name} has none"
        raise UsageError(said_of, "leave one of them out")


def _is_its_own(lock: Lock, image: str, engine: Engine, flavor: str) -> None:
    """Raises UsageError where an engine that builds nothing is given no image, or that of another lock."""
    from envkit.launch import job
    from envkit.runner.asked import LOCK_LABEL

    if not image:
        said = f"the {engine.name} engine builds no image, and no saved one is named"
        raise UsageError(said, "--tag image.tar, as `docker save` or `podman save` wrote it from the built image")
    if not engine.labels(image).get(LOCK_LABEL):
        warn(f"envkit: {image} does not say which lock it is of; it is taken as it is")
    elif not job.is_built(lock, image, engine, flavor):
        raise UsageError(f"{image} is of another lock than this spec's", "build, save, and name the new file")


def _built(spec: Spec, name: str, engine: Engine, flavor: str) -> Lock:
    """Builds the image ``name`` of the spec, locking it first if there is no lock for it; what that takes is imported
    where it is needed."""
    from envkit import facts
    from envkit.build import up as pipeline
    from envkit.cli.generate import accept
    from envkit.plan import indexes
    from envkit.plan.update import ensure_lock

    lock = ensure_lock(spec, facts.load(), lambda: engine, say, accept=accept, workshop=pipeline.workshop)
    pipeline.write_dockerfile(spec, lock)
    named = indexes.of(spec.index, spec.extra_index)
    pipeline.build(lock, engine, say, tag=name, flavor=flavor, indexes=named, wheels=spec.given, spec=spec)
    return lock


def _print(request: JobRequest, engine: Engine) -> NoReturn:
    made = engine.job_line(request)
    for name in made.env:
        warn(f"{name} is not printed: it is a secret; export it before you paste the line")
    print(shlex.join(made.argv))
    raise Exit(0)


def _fly(request: JobRequest, engine: Engine, here: Host | None) -> None:
    """The passive preflight: a finding ends the run, what stays open is told.  ``here`` is the machine as just seen."""
    from envkit.launch import job
    from envkit.launch import preflight as flights
    from envkit.model import Severity
    from envkit.system.files import cache_dir

    image = request.image if engine.containers else ""
    asked = flights.PreflightRequest(image, job.declared(request), "passive", kept=cache_dir() / "launches", here=here)
    made = flights.run(asked, lambda: engine, request.gpus, lambda line: None)
    code = made.exit_code(Severity.ERROR)
    if code == 1 and (found := flights.cause(made, Severity.ERROR)):
        warn(f"cause: {found.message}")
        warn(f"fix: {found.fix}")
        warn("envkit: the command was not started: preflight found an error; --no-preflight starts it all the same")
        raise Exit(1)
    if code == 3:
        warn(f"preflight is undecided, starting all the same: {flights.doubt(made) or 'nothing was judged'}")
    else:
        say("preflight passed")


def _attend(spec: Spec, request: JobRequest, engine: Engine, explain: bool) -> NoReturn:
    """Runs the command for the person at the terminal, and exits as it did."""
    from dataclasses import replace

    from envkit.engine import JobLine
    from envkit.engine.docker_run import refused
    from envkit.system.attended import Attended, attended

    on_terminal = os.isatty(0) and os.isatty(1)
    request = replace(request, terminal=on_terminal, stdin=on_terminal or not os.isatty(0))
    seen: list[Attended] = []

    def attend(line: JobLine) -> int:
        if not shutil.which(line.argv[0]):
            raise UsageError(f"there is no program `{line.argv[0]}` on PATH", f"install it, or see `{line.argv[0]}`")
        seen.append(attended(line.argv, env={**os.environ, **line.env}))
        return seen[0].exit

    end = engine.attend(request, attend)
    if end.doubt:
        warn(f"envkit: it is not certain that the command had its GPUs: {end.doubt}")
    code, why = refused(end.exit, seen[0].text[-1000:]) if seen and not end.not_started else (end.exit, end.not_started)
    if why:
        warn(f"envkit: the command was not started: {why}")
        raise Exit(code)
    if end.exit == 0:
        raise Exit(0)
    if end.out_of_memory:
        warn("envkit: the kernel killed a process of the container at its memory limit; --memory raises it")
    warn(f"envkit: exit code {end.exit} is the command's own{_signal(end.exit)}")
    if explain and seen and not seen[0].stopped and end.exit != 128 + signal.SIGINT:
        _explained(spec, request, engine, seen[0].text)
    raise Exit(end.exit)


def _signal(code: int) -> str:
    from envkit.system.proc import signal_name

    return f" ({signal_name(code - 128)})" if 128 < code <= 192 else ""


def _explained(spec: Spec, request: JobRequest, engine: Engine, text: str) -> None:
    """What `explain` makes of the output, on stderr, and the line to go on with."""
    from envkit.explain import explain
    from envkit.launch import job
    from envkit.system import files

    kept = files.folder(job.folder_of(spec.name)) / "output.log"
    files.write(kept, text, 0o600)
    found = explain.answer(explain.ExplainRequest((str(kept),), (), None, (), False), lambda line: None)
    if explain.exit_code(found) == 1:
        sys.stderr.write(explain.printed(found, "console", None, sys.stderr))
    else:
        warn("its output does not show the cause")
    warn(f"the output is in {kept}; to look closer: {shlex.join(job.debug_words(request, engine))}")
