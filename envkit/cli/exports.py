"""Verbs that give an image, or a file that runs it, to others: render, push, sbom."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Option

from envkit.cli import options
from envkit.cli.app import MAKE, app
from envkit.cli.ending import say, warn
from envkit.cli.options import OUTPUTS
from envkit.errors import UsageError

if TYPE_CHECKING:
    from envkit.build.task import Task
    from envkit.plan.lockfile import Lock
    from envkit.plan.spec import Spec

_BY_NUMBER = ("kubernetes-job", "jobset", "sbatch")  # which give GPUs by their number


@app.command(rich_help_panel=MAKE, context_settings={"allow_extra_args": True})
def render(
    context: Context,
    spec: options.SpecPath = Path(),
    output: Annotated[str, Option("--output", "-o", help="A file, or - for stdout.")] = "",
    kind: Annotated[str, Option("--as", click_type=OUTPUTS, help="What to write.")] = "dockerfile",
    flavor: options.FlavorName = "",
    image: Annotated[
        str, Option("--image", metavar="REF", help="Where the image is; by default where `envkit push` brought it.")
    ] = "",
    gpus: Annotated[
        str, Option("--gpus", metavar="[all|none|N]", help="How many GPUs a node gives; by default all, or 1.")
    ] = "",
    nodes: Annotated[int, Option("--nodes", min=1, max=100_000, help="How many nodes run it (jobset, sbatch).")] = 1,
    env: options.Env = None,
    env_file: options.EnvFile = None,
    volume: options.Volume = None,
    shm_size: options.Shm = None,
    memory: options.Memory = None,
    user: options.User = None,
    workdir: options.Workdir = None,
    no_preflight: Annotated[
        bool, Option("--no-preflight", help="Start the command without trying the GPUs before.")
    ] = False,
) -> None:
    """Write the Dockerfile of a locked spec, or a file by which another tool runs a job in its image.

    The job is the command after `--`, as in `envkit render --as sbatch -- python train.py`.
    """
    from envkit.build import exporters, schedulers
    from envkit.build import render as renderer
    from envkit.plan import lockfile as locks
    from envkit.plan.spec import Flavor, load
    from envkit.system import files

    if context.args:
        raise UsageError(f"the command `{context.args[0]}` must follow --", "envkit render --as KIND -- COMMAND")
    parsed_spec = load(options.spec_at(spec))
    found = locks.load(parsed_spec)
    if found is None:
        state = "is for another spec" if locks.path_of(parsed_spec).exists() else "does not exist"
        raise UsageError(f"{locks.path_of(parsed_spec)} {state}", f"run `envkit lock {spec}` first")
    lock, argv = found, tuple(context.obj or ())
    target = Flavor(flavor or (Flavor.DEBUG if kind == "devcontainer" else lock.flavor))
    given: dict[str, object] = {
        "--image": image, "--gpus": gpus, "--env": env, "--env-file": env_file, "--volume": volume, "--memory": memory,
        "--shm-size": shm_size, "--user": user, "--workdir": workdir, "--no-preflight": no_preflight, "--": argv,
    }  # fmt: skip
    _fits(kind, nodes, {name for name, value in given.items() if value})

    def task() -> Task:
        return _task(
            parsed_spec, lock, target.value, kind, argv, image, gpus, nodes, env, env_file, volume, shm_size, memory,
            user, workdir, not no_preflight,
        )  # fmt: skip

    kinds: dict[str, tuple[str, Callable[[], str]]] = {
        "dockerfile": ("Dockerfile", lambda: renderer.dockerfile(lock)),
        "compose": ("compose.yaml", lambda: exporters.compose(lock, target, task())),
        "devcontainer": (".devcontainer/devcontainer.json", lambda: exporters.devcontainer(lock, task())),
        "kubernetes-job": ("job.yaml", lambda: schedulers.kubernetes_job(lock, task())),
        "jobset": ("jobset.yaml", lambda: schedulers.jobset(lock, task())),
        "sbatch": (f"{lock.name}.sbatch", lambda: schedulers.sbatch(lock, task())),
        "apptainer": (f"{lock.name}.def", lambda: exporters.apptainer(lock, task())),
    }
    name, text = kinds[kind][0], kinds[kind][1]()
    if output == "-":
        sys.stdout.write(text)
        return
    path = Path(output) if output else files.beside(parsed_spec.path.parent, name)
    if not output:
        files.folder(path.parent)
    files.write(path, text)
    print(path)


def _fits(kind: str, nodes: int, given: set[str]) -> None:
    """Raises UsageError for an option that the kind of file has no place for."""
    without: dict[str, set[str]] = {
        "dockerfile": given,
        "devcontainer": {"--user"},
        "sbatch": {"--user"},
        "apptainer": {"--user", "--memory"},
    }
    fixes = {"sbatch": "Apptainer runs a job as whoever starts it", "apptainer": "`apptainer run` has options for it"}
    if stray := next(iter(sorted(given & without.get(kind, set()))), ""):
        said = "the command after --" if stray == "--" else stray
        raise UsageError(f"{said} says nothing to --as {kind}", fixes.get(kind, "leave it out, or take another kind"))
    if nodes > 1 and kind not in ("jobset", "sbatch"):
        raise UsageError(f"--nodes says nothing to --as {kind}", "take --as jobset or --as sbatch")


def _task(
    spec: Spec,
    lock: Lock,
    flavor: str,
    kind: str,
    argv: tuple[str, ...],
    image: str,
    gpus: str,
    nodes: int,
    env: list[str] | None,
    env_files: list[Path] | None,
    volumes: list[str] | None,
    shm: str | None,
    memory: str | None,
    user: str | None,
    workdir: str | None,
    preflight: bool,
) -> Task:
    """The job that the options describe."""
    from envkit.build.flags import WORKSPACE
    from envkit.build.possible import image_name
    from envkit.build.task import Task
    from envkit.launch import docker_options, job
    from envkit.plan import pushed

    if gpus not in ("", "all", "none") and not (gpus.isdecimal() and len(gpus) < 4):
        raise UsageError(f"`{gpus[:40]}` is no number of GPUs", "write all, none or a number below 1000")
    asked = gpus or ("1" if kind in _BY_NUMBER else "all")
    read = docker_options.job_from(env=env or (), env_files=env_files or (), mounts=volumes, shm=shm, memory=memory)
    places = pushed.places(spec, lock, flavor)
    if image:
        image_name(image)
    elif places:
        image = places[0].pinned
        say(f"the image is {image}, which was pushed as {places[0].ref}; --image names another")
    account = lock.inside.account if kind in ("kubernetes-job", "jobset") or lock.inside.copy else None
    return Task(
        image=image or job.tag_of(spec, flavor),
        registry=bool(image),
        argv=argv or (() if kind == "devcontainer" or flavor == "debug" else lock.inside.cmd),
        project=not lock.inside.copy,
        gpus=None if asked == "all" else 0 if asked == "none" else int(asked),
        nodes=nodes,
        env=read.environment.value or {},
        binds=tuple(read.mounts.value or ()),
        workdir=job.working_folder(workdir) or lock.inside.place or WORKSPACE,
        user=job.user_of(user) or ((account.uid, account.uid) if account else (os.getuid(), os.getgid())),
        shm=docker_options.size(shm, "--shm-size") if shm else None,
        memory=docker_options.size(memory, "--memory") if memory else None,
        preflight=preflight,
    )


@app.command(rich_help_panel=MAKE)
def push(
    ref: Annotated[
        str, Argument(metavar="REF", help="Its name in a registry, such as registry.example.com/team/trainer:1.")
    ],
    spec: options.SpecPath = Path(),
    engine: options.EngineName = "docker",
    tag: options.Tag = "",
    flavor: options.FlavorName = "",
    index: Annotated[
        str, Option("--index", metavar="NAME", help="Also make it the image of its platform under this common name.")
    ] = "",
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print no progress.")] = False,
) -> None:
    """Bring the image of a locked spec to a registry, and note its digest in envkit.pushed.toml.

    You log in with `docker login` before. Prints the name with the digest.
    """
    from envkit.build.possible import can_be_pushed
    from envkit.engine import Ability, needs
    from envkit.engine.choice import connect
    from envkit.launch import job
    from envkit.plan import lockfile as locks
    from envkit.plan import pushed
    from envkit.plan.spec import load

    options.detail(quiet, False)
    can_be_pushed(ref, tag, index)
    parsed = load(options.spec_at(spec))
    lock, name = locks.load(parsed), job.tag_of(parsed, flavor, tag)
    pushed.read(parsed)  # what cannot be read could not be written either
    connected = connect(engine, say)
    needs(connected, Ability.PUSH)
    if index:
        needs(connected, Ability.JOIN)
    if lock is None or (connected.containers and not job.is_built(lock, name, connected, flavor)):
        words = " ".join(["envkit build", *([] if spec == Path() else [str(spec)])])
        raise UsageError(f"there is no image {name} of this spec and its lock", f"run `{words}` first")
    digest = connected.push(name, ref, say)
    pinned = pushed.Place(ref, digest).pinned
    print(pinned)
    one = pushed.Pushed(digest, flavor or lock.flavor, lock.platform, pushed.of_lock(lock))
    say(f"noted in {pushed.record(parsed, ref, one)}")
    if index:
        print(pushed.Place(index, connected.join(index, pinned, lock.platform, say)).pinned)


@app.command(rich_help_panel=MAKE)
def sbom(
    spec: options.SpecPath = Path(),
    output: Annotated[str, Option("--output", "-o", help="A file; by default, and with -, stdout.")] = "-",
    flavor: options.FlavorName = "",
    no_licenses: Annotated[
        bool, Option("--no-licenses", help="Do not ask the package index for the licences of the wheels.")
    ] = False,
) -> None:
    """Print what an image of a locked spec holds as a software bill of materials (CycloneDX)."""
    from envkit.plan import indexes, licences
    from envkit.plan import lockfile as locks
    from envkit.plan.spec import load
    from envkit.system import files
    from envkit.system.index import BUDGET_S

    options.writable(Path(output) if output != "-" else None)
    parsed = load(options.spec_at(spec))
    lock = locks.load(parsed)
    if lock is None:
        raise UsageError(f"there is no lock for {parsed.path}", f"run `envkit lock {spec}` first")
    target = flavor or lock.flavor
    known: dict[str, tuple[str, ...]] = {}
    if not no_licenses:
        pins, _ = locks.upto(lock, target)
        say(f"reading the METADATA of {len(pins)} wheels")
        known, unread = licences.of_index(pins, indexes.of(parsed.index, parsed.extra_index).pages(BUDGET_S))
        for why in sorted(set(unread.values())):
            names = sorted(name for name, reason in unread.items() if reason == why)
            warn(f"no licence of {', '.join(names)}: {why}")
        if silent := sorted(name for name, said in known.items() if not said):
            warn(f"no licence of {', '.join(silent)}: its METADATA says none")
    from envkit.build import bill

    text = bill.cyclonedx(lock, target, known)
    if output == "-":
        sys.stdout.write(text)
        return
    files.write(Path(output), text)
    print(output)
