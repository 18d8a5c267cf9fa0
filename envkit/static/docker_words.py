"""Command lines that start a container: of docker, podman, Apptainer and Slurm's pyxis, read into Container.

Sources: Docker CLI reference, docker container run; Apptainer User Guide, GPU Support; pyxis, README.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from envkit.dockerfile import options
from envkit.dockerfile.options import Grammar, ParsedOptions
from envkit.model import Span
from envkit.static.workloads import BOUND, CDI, DEVICE_NODE, Reading
from envkit.subjects.dockerfile import Command, Dockerfile, Word
from envkit.subjects.workload import Container, FileValue, GpuRequest, Mount

_RUN = Grammar(
    options.names(
        "--add-host --annotation --attach --blkio-weight --cap-add --cap-drop --cgroup-parent --cgroupns --cidfile"
        " --cpu-period --cpu-quota --cpu-shares --cpus --cpuset-cpus --cpuset-mems --detach-keys --device"
        " --device-cgroup-rule --dns --domainname --entrypoint --env --env-file --expose --gpus --group-add"
        " --health-cmd --hostname --ip --ipc --isolation --label --label-file --link --log-driver --log-opt"
        " --mac-address --memory --memory-reservation --memory-swap --mount --name --network --oom-score-adj --pid"
        " --pids-limit --platform --publish --pull --restart --runtime --security-opt --shm-size --stop-signal"
        " --stop-timeout --storage-opt --sysctl --tmpfs --ulimit --user --userns --uts --volume --volumes-from"
        " --workdir --hooks-dir --annotation --arch --authfile"
    ),
    short={"e": "--env", "v": "--volume", "w": "--workdir", "u": "--user", "m": "--memory", "p": "--publish",
           "h": "--hostname", "l": "--label", "a": "--attach", "c": "--cpu-shares"},
    aliases={"--net": "--network"},
)  # fmt: skip
_BUILD = Grammar(
    options.names(
        "--add-host --allow --attest --build-arg --build-context --builder --cache-from --cache-to --file"
        " --cgroup-parent --iidfile --label --metadata-file --network --no-cache-filter"
        " --platform --progress --provenance --sbom --secret --shm-size --ssh --tag --target --ulimit --isolation"
        " --memory --output"
    ),
    short={"t": "--tag", "f": "--file", "o": "--output", "m": "--memory"},
)
_APPTAINER = Grammar(
    options.names(
        "--app --bind --mount --env --env-file --home --overlay --pwd --cwd --scratch --workdir --network"
        " --network-args --security --dns --hostname --fusemount --add-caps --drop-caps"
        " --apply-cgroups --userns-uid --cpus --memory"
    ),
    short={"B": "--bind", "H": "--home", "o": "--overlay", "S": "--scratch", "W": "--workdir"},
)
_GLOBAL = Grammar(
    options.names("--context --host --config --log-level --connection"), short={"c": "--context", "H": "--host"}
)
_ENGINES = ("docker", "podman", "nvidia-docker", "nvidia-docker2")
_APPTAINERS = ("apptainer", "singularity")
_TRUE = ("true", "1", "yes")


def container(name: str, span: Span, image: FileValue, said: FileValue | None, reading: Reading) -> Container:
    """A container that something starts with docker's options, as text; one that no shell splits gives none."""
    try:
        words = shlex.split(said.value) if said is not None else []
    except ValueError:
        words = []
    at = said.span if said is not None else span
    given = options.read([Word(word, word, at, "$" not in word) for word in words], _RUN)
    return replace(_container(given, name, span, "docker"), image=image, base=reading.image(image))


Made = dict[str, Dockerfile | None]  # images that a file builds, by name; None for one whose Dockerfile is not known


def started(command: Command, reading: Reading, built: Made) -> Container | None:
    """The container that a command starts, None for a command that starts none; ``built`` are images made here."""
    if command.program in _ENGINES:
        return _docker(command, reading, built)
    if command.program in _APPTAINERS:
        return _apptainer(command, reading)
    if command.program == "srun":
        return _pyxis(command, reading)
    return None


def _of_image(command: Command, verbs: tuple[str, ...], grammar: Grammar) -> ParsedOptions | None:
    """The options of a command line that starts an image by one of ``verbs``, the image first of the rest."""
    words = _after(command.words[1:], verbs)
    given = None if words is None else options.read(words, grammar, inner=True)
    return given if given and given.rest else None


def _docker(command: Command, reading: Reading, built: Made) -> Container | None:
    given = _of_image(command, ("run", "create"), _RUN)
    if given is None:
        return None
    image, *rest = given.rest
    said = _value(image)
    name = given.last("--name")
    one = _container(given, name.text if name is not None else _short(image.text), image.span, command.program)
    made = built.get(image.text)
    one = replace(one, built=made, command=tuple(map(_value, rest)), local=one.local or image.text in built)
    return one if made is not None else replace(one, image=said, base=reading.image(said))


def built(command: Command, reading: Reading, made: Made) -> None:
    """Puts the Dockerfile that a `docker build` reads under the names of the image that it makes."""
    words = _after(command.words[1:], ("build",)) if command.program in _ENGINES else None
    if words is None:
        return
    given = options.read(words, _BUILD)
    tags = [tag for tag in given.every("--tag") if tag.sure]
    folder = given.rest[0] if len(given.rest) == 1 else None
    made.update(dict.fromkeys(tag.text for tag in tags))
    if not tags or folder is None or not folder.sure or given.every("--build-arg"):
        return  # an argument makes another image than the default
    file, target = given.last("--file"), given.last("--target")
    place = "." if folder.text in (".", "./") else folder.text
    name = file.text if file is not None else "Dockerfile"
    if file is not None and place != ".":
        return  # its path goes from the folder of the call, and the reader's from the context
    dockerfile = reading.build(place, name, folder.span, target.text if target is not None else "")
    if dockerfile is not None:
        made.update(dict.fromkeys((tag.text for tag in tags), dockerfile))


def _after(words: Sequence[Word], wanted: tuple[str, ...]) -> list[Word] | None:
    """The words behind docker's subcommand, None where it is another."""
    given = options.read(words, _GLOBAL, inner=True)
    rest = list(given.rest)
    if rest and rest[0].text in ("container", "image", "buildx"):
        rest = rest[1:]
    return rest[1:] if rest and rest[0].text in wanted else None


def _container(given: ParsedOptions, name: str, span: Span, program: str) -> Container:
    """What the options of docker run give a container, without its image."""
    env: dict[str, FileValue | None] = {}
    for word in given.every("--env"):
        key, equals, value = word.text.partition("=")
        env[key] = replace(_value(word), value=value) if equals else None
    limits = {}
    for word in given.every("--ulimit"):
        key, _, value = word.text.partition("=")
        limits[key] = replace(_value(word), value=value.split(":")[0])
    flags = dict(given.options)
    said = flags.get("--privileged")
    privileged = "true" if said is None or said.text in _TRUE else "false"
    return Container(
        name,
        span,
        gpus=tuple(_gpus(given, span, program)),
        runtime=_last(given, "--runtime"),
        shm=_last(given, "--shm-size"),
        ipc=_last(given, "--ipc"),
        privileged=FileValue(privileged, span) if "--privileged" in flags else None,
        ulimits=limits,
        env=env,
        env_files=bool(given.every("--env-file")),
        mounts=tuple(_mounts(given)),
        devices=tuple(_value(word) for word in given.every("--device")),
        capabilities=tuple(word.text for word in given.every("--cap-add")),
        local=(pull := given.last("--pull")) is not None and pull.text == "never",
        workdir=_last(given, "--workdir"),
        user=_last(given, "--user"),
    )


def _gpus(given: ParsedOptions, span: Span, program: str) -> Iterator[GpuRequest]:
    for word in given.every("--gpus"):
        yield GpuRequest("option", word.span, "nvidia", _value(word), sure=word.sure)
    for word in given.every("--device"):
        cdi = CDI.match(word.text)
        if cdi:
            yield GpuRequest("cdi", word.span, cdi[1], FileValue(cdi[2], word.span), (cdi[2],), sure=word.sure)
        elif DEVICE_NODE.match(word.text.split(":")[0]):
            yield GpuRequest("node", word.span, word.text)
    runtime = given.last("--runtime")
    if runtime is not None and runtime.text == "nvidia":
        yield GpuRequest("runtime", runtime.span, "nvidia", sure=runtime.sure)
    elif program.startswith("nvidia-docker"):
        yield GpuRequest("runtime", span, "nvidia")


def _mounts(given: ParsedOptions) -> Iterator[Mount]:
    for word in given.every("--volume"):
        found = BOUND.match(word.text)
        if found:
            bind = found["source"].startswith((".", "/", "~", "$"))
            yield Mount("bind" if bind else "volume", found["source"], found["target"], word.span)
    for word in given.every("--mount"):
        parts = dict(part.partition("=")[::2] for part in word.text.split(","))
        source, target = parts.get("source", parts.get("src", "")), parts.get("target", parts.get("dst", ""))
        yield Mount(parts.get("type", "volume"), source, target, word.span)
    for word in given.every("--tmpfs"):
        target, _, more = word.text.partition(":")
        size = re.search(r"(?:^|,)size=([^,]+)", more)
        yield Mount("tmpfs", "", target, word.span, FileValue(size[1], word.span) if size else None)


def _apptainer(command: Command, reading: Reading) -> Container | None:
    given = _of_image(command, ("exec", "run", "shell"), _APPTAINER)
    if given is None:
        return None
    image, *rest = given.rest
    env: dict[str, FileValue | None] = {}
    for word in given.every("--env"):
        for pair in word.text.split(","):
            key, equals, value = pair.partition("=")
            if equals:
                env[key] = replace(_value(word), value=value)
    names = given.names()
    switched = any(command.env.get(f"{one}_NV", "") in _TRUE for one in ("APPTAINER", "SINGULARITY"))
    nv = "--nv" in names or "--nvccli" in names or switched
    one = Container(
        _short(image.text),
        image.span,
        gpus=(GpuRequest("nv", image.span, "nvidia"),) if nv else (),
        ipc=FileValue("host", image.span),  # /dev/shm is the machine's, unless --contain asks for another
        env=env,
        env_files=bool(given.every("--env-file")),
        command=tuple(map(_value, rest)),
    )
    return _of_reference(one, image, reading)


def _pyxis(command: Command, reading: Reading) -> Container | None:
    """`srun --container-image`: enroot's hook brings the job's GPUs, and /dev/shm is the machine's."""
    words = command.words[1:]
    for at, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if name != "--container-image" or (not equals and at + 1 >= len(words)):
            continue
        image = replace(word, text=value) if equals else words[at + 1]
        rest = tuple(_value(each) for each in words[at + 1 :])
        one = Container(_short(image.text), image.span, ipc=FileValue("host", image.span), command=rest)
        one = replace(one, gpus=(GpuRequest("pyxis", image.span, "nvidia"),))
        return _of_reference(one, replace(image, text=image.text.replace("#", "/", 1)), reading, registry=True)
    return None


def _of_reference(one: Container, image: Word, reading: Reading, *, registry: bool = False) -> Container:
    """The container with what its image holds, where that is one of a registry and no file of the machine."""
    reference = image.text.removeprefix("docker://")
    file = reference.startswith(("/", ".", "~", "$")) or reference.endswith((".sif", ".simg", ".img", ".sqsh"))
    if file or (not registry and reference == image.text):
        return one
    said = replace(_value(image), value=reference)
    return replace(one, image=said, base=reading.image(said))


def _value(word: Word) -> FileValue:
    return FileValue(word.text, word.span, word.sure)


def _last(given: ParsedOptions, name: str) -> FileValue | None:
    word = given.last(name)
    return _value(word) if word is not None else None


def _short(reference: str) -> str:
    """A name for a container that has none: the last part of its image's."""
    return reference.rstrip("/").rsplit("/", 1)[-1] or reference
