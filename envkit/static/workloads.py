"""Compose files, Kubernetes manifests and devcontainer.json, read into Workload."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from envkit.dockerfile.bases import base as base_of
from envkit.dockerfile.evaluate import TooLarge
from envkit.dockerfile.evaluate import read as read_dockerfile
from envkit.dockerfile.files import FileText
from envkit.dockerfile.nodes import Node, documents, json_with_comments, template_line
from envkit.dockerfile.tree import Source
from envkit.dockerfile.words import expand
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Span
from envkit.records import dataclass
from envkit.static import CheckOptions, JudgedFile
from envkit.subjects.dockerfile import Base, Dockerfile, Unread
from envkit.subjects.workload import Container, FileValue, GpuRequest, Mount, StartLine, Workload

_OVERLAY = re.compile(r"(?:docker-)?compose[._-](?:.*[._-])?(?:override|gpu|gpus|cuda|nvidia)(?:[._-].*)?\.ya?ml", re.I)
_VARIABLE = re.compile(r"\$(?:\{|\(|[A-Za-z_])|<[A-Za-z][^<>]*>")  # also <what a person has to put in>
_REFERENCE = re.compile(r"[a-z0-9.:/_-]+(?::[A-Za-z0-9_.-]+)?(?:@|\Z)")
_DEEPEST = 8  # services that extend one another
_MOST = 2_000  # containers of one file
CDI = re.compile(r"(nvidia\.com/[a-z0-9._-]+)=(.+)")
DEVICE_NODE = re.compile(r"/dev/nvidia(\d+|ctl|-uvm|-caps)?")
_GPU_RESOURCE = re.compile(
    r"(?:[a-z0-9.-]*nvidia\.com/(?:mig-|.*gpu).*|(?:amd|gpu\.intel|aliyun)\.com/.*gpu.*)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Subfolder:
    """A folder of a build context."""

    context: Source
    folder: str

    def read(self, path: str) -> FileText | str:
        """The file below the folder."""
        return self.context.read(posixpath.normpath(posixpath.join(self.folder, path)))

    def names(self, path: str) -> tuple[str, ...]:
        """The names below a folder of it."""
        return self.context.names(posixpath.normpath(posixpath.join(self.folder, path)))

    def clone_of(self, url: str) -> Source | None:
        """As the context says."""
        return self.context.clone_of(url)


@dataclass(slots=True)
class Reading:
    """What the reading of one file needs and finds."""

    path: str
    context: Source | None
    check_options: CheckOptions
    facts: Facts
    unread: list[Unread]

    def image(self, said: FileValue, platform: str = "") -> Base:
        """What the image holds."""
        if not _REFERENCE.match(said.value):  # a word that stands for an image
            said = replace(said, sure=False)
        known = self.check_options.bases.get(said.value)
        if known is not None:
            return replace(known, span=said.span)
        return base_of(said.value, said.span, self.facts, sure=said.sure, platform=platform)

    def build(self, folder: str, name: str, span: Span, target: str = "") -> Dockerfile | None:
        """The Dockerfile that an image is built from, None where it cannot be read here."""
        if self.context is None or "://" in folder or folder.startswith(("/", "git@", "..")) or "$" in folder + name:
            return None
        below = _Subfolder(self.context, folder)
        found = below.read(name)
        if isinstance(found, str):
            self.unread.append(Unread(posixpath.join(folder, name), found, span))
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.path), folder, name))
        try:
            read = read_dockerfile(found.text, path, self.facts, below, known=self.check_options.bases)
        except TooLarge as error:
            self.unread.append(Unread(posixpath.join(folder, name), str(error), span))
            return None
        if not read.stages or (target and read.target.name.lower() != target.lower()):
            return None
        return read


def workload_of(reading: Reading, kind: str, containers: tuple[Container, ...]) -> Workload:
    overlays, asked = _overlays(reading) if kind == "compose" else (), reading.check_options
    return Workload(reading.path, kind, containers, tuple(reading.unread), overlays, asked.gpus, asked.driver)


def _overlays(reading: Reading) -> tuple[str, ...]:
    """Other compose files of the folder that are laid over this one, by their names."""
    names = reading.context.names(".") if reading.context is not None else ()
    own = posixpath.basename(reading.path)
    return tuple(name for name in names if name != own and _OVERLAY.fullmatch(name))


def plain(node: Node | None) -> FileValue | None:
    """A text as it stands; one with a variable or a template's braces is not sure."""
    if node is None or node.items is not None or node.keys is not None or node.empty:
        return None
    return FileValue(node.text, node.span, "{{" not in node.text and not _VARIABLE.search(node.text))


def _words(texts: tuple[FileValue, ...]) -> tuple[FileValue, ...]:
    """The words of a command that is one text, taken apart as a shell would."""
    found: list[FileValue] = []
    for said in texts:
        try:
            parts = shlex.split(said.value)
        except ValueError:
            parts = said.value.split()
        found += [replace(said, value=part) for part in parts]
    return tuple(found)


# ---------------------------------------------------------------- compose


def of_compose(
    text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts
) -> Workload | str:
    """A compose file: each service with what it extends.  Source: the Compose Specification."""
    roots = documents(text, path)
    if isinstance(roots, str):
        return roots
    if (line := template_line(roots)) != 0:
        return f"line {line} is a template and no YAML before it is rendered"
    reading = Reading(path, context, check_options, facts, [])
    services = roots[0].get("services") if roots else None
    if services is None or services.keys is None:
        return "it has no services"
    containers = []
    for key, body in list(services.pairs())[:_MOST]:
        lineage = _lineage(body, services, reading)
        containers.append(_service(key, lineage, reading))
    return workload_of(reading, "compose", tuple(containers))


def _lineage(body: Node, services: Node, reading: Reading) -> tuple[Node, ...]:
    """A service and those that it extends, nearest first."""
    lineage = [body]
    while len(lineage) <= _DEEPEST and (extends := lineage[-1].get("extends")) is not None:
        name = extends.text or (named.text if (named := extends.get("service")) is not None else "")
        file = extends.get("file")
        if file is not None:
            context = reading.context
            found = context.read(posixpath.normpath(file.text)) if context is not None else "no folder was given"
            if isinstance(found, str):
                reading.unread.append(Unread(file.text, found, file.span))
                break
            roots = documents(found.text, posixpath.join(posixpath.dirname(reading.path), file.text))
            other = roots[0].get("services") if not isinstance(roots, str) and roots else None
            if other is None:
                why = roots if isinstance(roots, str) else "it has no services"
                reading.unread.append(Unread(file.text, why, file.span))
                break
            services = other
        parent = services.get(name)
        if parent is None or parent is lineage[-1]:
            break
        lineage.append(parent)
    return tuple(lineage)


def _expanded(node: Node | None) -> FileValue | None:
    """A value with its variables as compose puts them in where the environment has none of them."""
    said = plain(node)
    if said is None or "$" not in said.value:
        return said
    shielded = said.value.replace("$$", "\0")
    done = expand(shielded, {})
    return FileValue(done.text.replace("\0", "$"), said.span, "{{" not in said.value and done.sure)


def _first(lineage: tuple[Node, ...], *path: str) -> Node | None:
    return next((found for body in lineage if (found := body.get(*path)) is not None), None)


def _service(key: Node, lineage: tuple[Node, ...], reading: Reading) -> Container:
    image = _expanded(_first(lineage, "image"))
    build = _first(lineage, "build")
    platform = _expanded(_first(lineage, "platform"))
    env: dict[str, FileValue | None] = {}
    for body in reversed(lineage):
        env.update(_environment(body.get("environment")))
    devices = tuple(
        one
        for body in lineage
        for item in body.listed("devices")
        if (one := _expanded(item if item.keys is None else item.get("source"))) is not None
    )
    replicas = _expanded(_first(lineage, "deploy", "replicas") or _first(lineage, "scale"))
    runtime = _expanded(_first(lineage, "runtime"))
    added = _first(lineage, "cap_add")
    policy = _expanded(_first(lineage, "pull_policy"))
    entrypoint, arguments = _line(lineage, "entrypoint"), _line(lineage, "command")
    return Container(
        key.text,
        key.span,
        image if build is None else None,
        reading.image(image, platform.value if platform else "") if image is not None and build is None else None,
        _built(build, reading) if build is not None else None,
        tuple(_compose_gpus(lineage, devices, runtime)),
        runtime,
        _expanded(_first(lineage, "shm_size")),
        _expanded(_first(lineage, "ipc")),
        _expanded(_first(lineage, "privileged")),
        _ulimits(lineage),
        env,
        _first(lineage, "env_file") is not None,
        _both(entrypoint, arguments),
        tuple(_volumes(lineage)),
        devices,
        {},
        tuple(one.text for one in added.listed()) if added is not None else (),
        _whole(replicas) if replicas is not None else 1,
        local=policy is not None and policy.value in ("never", "build"),
        entrypoint=entrypoint,
        arguments=arguments,
        workdir=_expanded(_first(lineage, "working_dir")),
        user=_expanded(_first(lineage, "user")),
        folder=_context(build),
        build_args=_environment(build.get("args")) if build is not None and build.keys is not None else {},
    )


def _context(build: Node | None) -> str:
    """The build context of a service, below the folder of the file."""
    folder = _expanded(build if build is None or build.keys is None else build.get("context"))
    return folder.value if folder else "."


def _built(build: Node, reading: Reading) -> Dockerfile | None:
    """The Dockerfile of a service's build; None for one that is written in the compose file itself."""
    if build.get("dockerfile_inline") is not None:
        return None
    name, target = _expanded(build.get("dockerfile")), _expanded(build.get("target"))
    file = name.value if name else "Dockerfile"
    return reading.build(_context(build), file, build.span, target.value if target else "")


def _line(lineage: tuple[Node, ...], key: str) -> StartLine | None:
    """The words of a service's entry point or of its command; a text is taken apart as a shell would, and runs in none.

    One that is null is left to the image, one that is empty takes the image's away (Compose Specification).
    """
    node = _first(lineage, key)
    if node is None or node.empty:
        return None
    listed = node.listed() if node.items is not None else (node,)
    said = tuple(one for item in listed if (one := _expanded(item)) is not None)
    return StartLine(_words(said) if node.items is None else said, key, node.span)


def _both(entrypoint: StartLine | None, arguments: StartLine | None) -> tuple[FileValue, ...]:
    return (*(entrypoint.words if entrypoint else ()), *(arguments.words if arguments else ()))


def _ulimits(lineage: tuple[Node, ...]) -> dict[str, FileValue]:
    found: dict[str, FileValue] = {}
    for body in reversed(lineage):
        for name, value in body.pairs("ulimits"):
            limit = _expanded(value if value.keys is None else value.get("soft"))
            if limit is not None:
                found[name.text] = limit
    return found


def _whole(said: FileValue) -> int | None:
    return int(said.value) if said.sure and re.fullmatch(r"[0-9]{1,6}", said.value) else None


def _environment(node: Node | None) -> Mapping[str, FileValue | None]:
    if node is None:
        return {}
    if node.items is None:
        return {key.text: _expanded(value) for key, value in node.pairs()}
    found: dict[str, FileValue | None] = {}
    for item in node.items:
        name, equals, value = item.text.partition("=")
        said = _expanded(replace(item, text=value)) if equals else None
        found[name] = said if said is not None or not equals else FileValue("", item.span)
    return found


def _compose_gpus(
    lineage: tuple[Node, ...], devices: tuple[FileValue, ...], runtime: FileValue | None
) -> Iterator[GpuRequest]:
    reserved = _first(lineage, "deploy", "resources", "reservations", "devices")
    for item in reserved.listed() if reserved is not None else ():
        yield _device(item, "devices")
    generic = _first(lineage, "deploy", "resources", "reservations", "generic_resources")
    for item in generic.listed() if generic is not None else ():
        kind, value = item.get("discrete_resource_spec", "kind"), item.get("discrete_resource_spec", "value")
        if kind is not None and "gpu" in kind.text.lower():
            yield GpuRequest("generic", item.span, kind.text, _expanded(value))
    gpus = _first(lineage, "gpus")
    if gpus is not None and gpus.items is None:
        yield GpuRequest("gpus", gpus.span, "nvidia", _expanded(gpus))
    for item in gpus.listed() if gpus is not None else ():
        yield _device(item, "gpus")
    if runtime is not None and runtime.value == "nvidia":
        yield GpuRequest("runtime", runtime.span, "nvidia", sure=runtime.sure)
    for one in devices:
        cdi = CDI.match(one.value)
        if cdi:
            yield GpuRequest(
                "cdi", one.span, cdi[1], FileValue(cdi[2], one.span) if cdi[2] == "all" else None, (cdi[2],)
            )
        elif DEVICE_NODE.match(one.value.split(":")[0]):
            yield GpuRequest("node", one.span, one.value)


def _device(item: Node, form: str) -> GpuRequest:
    """One entry of compose's device requests."""
    driver, count, ids, capabilities = (item.get(name) for name in ("driver", "count", "device_ids", "capabilities"))
    flat = [
        word.text
        for one in (capabilities.listed() if capabilities is not None else ())
        for word in (one.listed() if one.items is not None else (one,))
    ]
    expanded = [_expanded(one) for one in ids.listed()] if ids is not None else []
    named = tuple(part.strip() for one in expanded if one is not None for part in one.value.split(",") if part.strip())
    options = item.get("options")
    return GpuRequest(
        form,
        item.span,
        driver.text if driver is not None else "nvidia" if form == "gpus" else "",
        _expanded(count),
        named if ids is not None else None,
        tuple(flat) if capabilities is not None else None,
        all(one is None or one.sure for one in expanded) and (options is None or options.keys is not None),
    )


BOUND = re.compile(r"(?P<source>(?:[A-Za-z]:)?[^:]*):(?P<target>[^:]+)(?::[A-Za-z,]+)?\Z")


def _volumes(lineage: tuple[Node, ...]) -> Iterator[Mount]:
    for body in lineage:
        for item in body.listed("volumes"):
            if item.keys is not None:
                kind, source, target = (item.get(name) for name in ("type", "source", "target"))
                size = _expanded(item.get("tmpfs", "size"))
                yield Mount(
                    kind.text if kind is not None else "volume",
                    source.text if source is not None else "",
                    target.text if target is not None else "",
                    item.span,
                    size,
                )
                continue
            said = _expanded(item)
            found = BOUND.match(said.value) if said is not None else None
            if found:
                bind = found["source"].startswith((".", "/", "~"))
                yield Mount("bind" if bind else "volume", found["source"], found["target"], item.span)
            elif said is not None and said.value.startswith("/"):  # a volume without a name
                yield Mount("volume", "", said.value, item.span)
        tmpfs = body.get("tmpfs")
        for item in tmpfs.listed() if tmpfs is not None and tmpfs.items is not None else (tmpfs,) if tmpfs else ():
            target_of, _, options = item.text.partition(":")
            size_of = re.search(r"(?:^|,)size=([^,]+)", options)
            yield Mount("tmpfs", "", target_of, item.span, FileValue(size_of[1], item.span) if size_of else None)


# ---------------------------------------------------------------- Kubernetes


def of_kubernetes(
    text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts
) -> Workload | str:
    """Kubernetes manifests: every pod, in whatever object.  Source: Kubernetes API reference, PodSpec."""
    roots = documents(text, path)
    if isinstance(roots, str):
        return roots
    if (line := template_line(roots)) != 0:
        return f"line {line} holds a template ({{{{ }}}}), so it is no manifest before it is rendered"
    reading = Reading(path, context, check_options, facts, [])
    containers: list[Container] = []
    for root in roots:
        for spec, replicas in _pods(root):
            containers += _pod(spec, replicas, reading)
            if len(containers) > _MOST:
                return f"it has more than {_MOST} containers"
    return workload_of(reading, "kubernetes", tuple(containers))


def _pods(root: Node) -> Iterator[tuple[Node, int | None]]:
    """Every pod specification, with the number of its copies."""
    seen: set[int] = set()
    stack: list[tuple[Node, int | None]] = [(root, 1)]
    while stack:
        node, replicas = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        own = plain(node.get("replicas"))
        if own is not None:
            replicas = _whole(own)
        if any(item.get("image") or item.get("name") for item in node.listed("containers")):
            yield node, replicas
        below = [value for _, value in node.pairs()] if node.keys is not None else list(node.listed())
        stack += [(one, replicas) for one in reversed(below) if one.items is not None or one.keys is not None]


def _pod(spec: Node, replicas: int | None, reading: Reading) -> Iterator[Container]:
    volumes: dict[str, tuple[str, str, FileValue | None]] = {}
    for volume in spec.listed("volumes"):
        name = volume.get("name")
        if name is None:
            continue
        empty, host = volume.get("emptyDir"), volume.get("hostPath", "path")
        if host is not None:
            volumes[name.text] = ("bind", host.text, None)
        elif empty is not None:
            medium = empty.get("medium")
            kind = "memory" if medium is not None and medium.text == "Memory" else "empty"
            volumes[name.text] = (kind, "", plain(empty.get("sizeLimit")))
        else:
            volumes[name.text] = ("other", name.text, None)
    host_ipc = spec.get("hostIPC")
    for part, initial in (("initContainers", True), ("containers", False)):
        for item in spec.listed(part):
            if item.keys is None:
                continue
            mounts = []
            for mount in item.listed("volumeMounts"):
                named, target = mount.get("name"), mount.get("mountPath")
                kind, source, size = volumes.get(named.text if named is not None else "", ("other", "", None))
                mounts.append(Mount(kind, source, target.text if target is not None else "", mount.span, size))
            image, name = plain(item.get("image")), item.get("name")
            policy = item.get("imagePullPolicy")
            added = item.get("securityContext", "capabilities", "add")
            entrypoint, arguments = _pod_line(item, "command"), _pod_line(item, "args")
            context = item.get("securityContext") or item
            uid = context.get("runAsUser") or spec.get("securityContext", "runAsUser")
            yield Container(
                name.text if name is not None else "",
                name.span if name is not None else item.span,
                image,
                reading.image(image) if image is not None else None,
                None,
                tuple(kubernetes_gpus(item, spec)),
                plain(spec.get("runtimeClassName")),
                None,
                FileValue("host", host_ipc.span) if host_ipc is not None and host_ipc.true else None,
                plain(item.get("securityContext", "privileged")),
                {},
                {
                    key.text: plain(one.get("value"))
                    for one in item.listed("env")
                    if (key := one.get("name")) is not None
                },
                item.get("envFrom") is not None,
                _both(entrypoint, arguments),
                tuple(mounts),
                (),
                resources(item),
                tuple(one.text for one in added.listed()) if added is not None else (),
                replicas,
                initial,
                local=policy is not None and policy.text == "Never",
                entrypoint=entrypoint,
                arguments=arguments,
                workdir=plain(item.get("workingDir")),
                user=plain(uid),
            )


def _pod_line(item: Node, key: str) -> StartLine | None:
    """``command`` or ``args`` of a container: words for no shell, in which $(NAME) is a variable (PodSpec)."""
    node = item.get(key)
    if node is None or not node.items:
        return None
    words = (FileValue(word.text, word.span, "{{" not in word.text and "$(" not in word.text) for word in node.items)
    return StartLine(tuple(words), key, node.span)


def resources(item: Node) -> Mapping[str, FileValue]:
    """Limits and requests by "limits/NAME"."""
    found: dict[str, FileValue] = {}
    for part in ("limits", "requests"):
        for key, value in item.pairs("resources", part):
            said = plain(value)
            if said is not None:
                span = replace(said.span, line=key.span.line, column=key.span.column)
                found[f"{part}/{key.text}"] = replace(said, span=span)
    return found


def kubernetes_gpus(item: Node, spec: Node) -> Iterator[GpuRequest]:
    for name, said in resources(item).items():
        part, _, resource = name.partition("/")
        if _GPU_RESOURCE.fullmatch(resource):
            yield GpuRequest("limit" if part == "limits" else "request", said.span, resource, said, sure=said.sure)
    claims = item.get("resources", "claims")
    for claim in claims.listed() if claims is not None else ():
        yield GpuRequest("claim", claim.span, (named.text if (named := claim.get("name")) is not None else ""))


# ---------------------------------------------------------------- devcontainer


def of_devcontainer(
    text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts
) -> Workload | str:
    """A devcontainer.json.  Source: the Development Containers specification, metadata reference."""
    root = json_with_comments(text, path)
    if isinstance(root, str):
        return root
    if root.keys is None:
        return "it is no object"
    reading = Reading(path, context, check_options, facts, [])
    if root.get("dockerComposeFile") is not None:
        return workload_of(reading, "devcontainer", ())
    image = _literal(plain(root.get("image")))
    file = root.get("build", "dockerfile") or root.get("dockerFile")
    built = _built_by_devcontainer(root, file, reading) if file is not None else None
    options, args = _options(root)
    env: dict[str, FileValue | None] = {key.text: plain(value) for key, value in _pairs(root.get("containerEnv"))}
    for key, equals, value, said in _assigned(options, "-e", "--env"):
        env[key] = replace(said, value=value) if equals else None
    limits = {key: replace(said, value=value.split(":")[0]) for key, _, value, said in _assigned(options, "--ulimit")}
    named = root.get("name")
    container = Container(
        named.text if named is not None else "devcontainer",
        image.span if image else file.span if file is not None else root.span,
        image,
        reading.image(image) if image is not None else None,
        built,
        tuple(_devcontainer_gpus(root, options)),
        _option(options, "--runtime"),
        _option(options, "--shm-size"),
        _option(options, "--ipc"),
        plain(root.get("privileged")) or next((one for one in args if one.value == "--privileged"), None),
        limits,
        env,
        any(name == "--env-file" for name, _ in options),
        (),
        tuple(_bound(options)),
        tuple(said for name, said in options if name == "--device"),
        {},
        tuple(said.value for name, said in options if name == "--cap-add"),
        workdir=_literal(plain(root.get("workspaceFolder"))) or _option(options, "--workdir"),
        user=plain(root.get("remoteUser")) or plain(root.get("containerUser")) or _option(options, "--user"),
        folder=posixpath.normpath(named.text) if (named := root.get("build", "context")) is not None else ".",
    )
    return workload_of(reading, "devcontainer", (container,) if image is not None or file is not None else ())


def _built_by_devcontainer(root: Node, file: Node, reading: Reading) -> Dockerfile | None:
    """The Dockerfile that a devcontainer.json names, whose path goes from the file and not from its context."""
    folder, target = root.get("build", "context"), root.get("build", "target")
    below = posixpath.normpath(folder.text) if folder is not None else "."
    name = posixpath.relpath(file.text, below) if not below.startswith("..") else file.text
    return reading.build(below, name, file.span, target.text if target is not None else "")


def _devcontainer_gpus(root: Node, options: tuple[tuple[str, FileValue], ...]) -> Iterator[GpuRequest]:
    for name, said in options:
        if name == "--gpus":
            yield GpuRequest("option", said.span, "nvidia", said, sure=said.sure)
    wanted = root.get("hostRequirements", "gpu")
    if wanted is not None and (wanted.true or wanted.keys is not None or wanted.text == "optional"):
        yield GpuRequest("host", wanted.span, "nvidia")
    for name, said in options:
        if name == "--device" and (cdi := CDI.match(said.value)):
            yield GpuRequest("cdi", said.span, cdi[1], None, (cdi[2],))
    runtime = _option(options, "--runtime")
    if runtime is not None and runtime.value == "nvidia":
        yield GpuRequest("runtime", runtime.span, "nvidia")


def _assigned(options: tuple[tuple[str, FileValue], ...], *names: str) -> Iterator[tuple[str, str, str, FileValue]]:
    """The values of these options, parted at their equals sign."""
    for name, said in options:
        if name in names:
            yield (*said.value.partition("="), said)


def _pairs(node: Node | None) -> Iterator[tuple[Node, Node]]:
    if node is not None:
        yield from node.pairs()


def _literal(said: FileValue | None) -> FileValue | None:
    """A value, which is not sure where the editor puts a variable in."""
    return None if said is None else replace(said, sure=said.sure and "${" not in said.value)


def _options(root: Node) -> tuple[tuple[tuple[str, FileValue], ...], tuple[FileValue, ...]]:
    """Options of runArgs with their values, and all of its words."""
    node = root.get("runArgs")
    words = node.listed() if node is not None else ()
    args = tuple(said for one in words if (said := _literal(plain(one))) is not None)
    found = []
    for place, said in enumerate(args):
        name, equals, value = said.value.partition("=")
        if said.value.startswith("--") and equals:
            found.append((name, replace(said, value=value)))
        elif said.value.startswith("-") and place + 1 < len(args) and not args[place + 1].value.startswith("-"):
            found.append((said.value, args[place + 1]))
    return tuple(found), args


def _option(options: tuple[tuple[str, FileValue], ...], name: str) -> FileValue | None:
    return next((said for given, said in reversed(options) if given == name), None)


def _bound(options: tuple[tuple[str, FileValue], ...]) -> Iterator[Mount]:
    for name, said in options:
        if name in ("-v", "--volume") and (found := BOUND.match(said.value)):
            yield Mount("bind", found["source"], found["target"], said.span)


KINDS = {"compose": of_compose, "kubernetes": of_kubernetes, "devcontainer": of_devcontainer}


def _judged(
    kind: str, text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts
) -> JudgedFile:
    """A file of one of KINDS, judged by every check for it."""
    found = KINDS[kind](text, path, context, check_options, facts)
    if isinstance(found, str):
        return JudgedFile(path, kind, text, unreadable=found)
    return JudgedFile(path, kind, text, judge.judge(found, facts))


READERS = {kind: partial(_judged, kind) for kind in KINDS}
