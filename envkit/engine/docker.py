"""The Docker engine (and Podman through its Docker-compatible socket); the only module that imports the SDK.

A container that runs the payload has no network, no capabilities, no way to new privileges, a read-only root and at
most 4096 processes.  Nothing that it writes comes to the engine's disk: it may write to /tmp, /dev/shm and the VOLUMEs
that the image has no files for, each a memory file system of a limited size; the payload's folder and the VOLUMEs that
the image has files for are read-only; it leaves no log and no core dump.  Files in /tmp may be executed, for
torch.compile and Triton load the libraries they have just compiled there.  It runs as the image's own user, as the job
will, under the engine's user namespaces where it has them.  It dies with envkit, however envkit ends: the engine
closes its stdin with envkit's connection, the payload kills itself at that, and the engine removes what has ended;
where the image's Python never came to the payload, or the engine had not even made the container, a process that
outlives envkit removes it (``reaper``).
"""

from __future__ import annotations

import io
import os
import queue
import shutil
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from envkit.engine import (
    CONTAINERS,
    WORK,
    Attend,
    BaseRequest,
    BuildRequest,
    BuiltImage,
    CannotStart,
    DeclaredStart,
    JobEnd,
    JobLine,
    JobRequest,
    ResolvedBase,
    Say,
    Start,
    StoredImage,
    base,
    buildx,
    docker_run,
    held,
    reaper,
    store,
    wire,
)
from envkit.engine.endpoint import SOCKET, api_version, client, endpoint
from envkit.engine.held import OWNER_LABEL, RUN_LABEL, TREE_LABEL
from envkit.engine.leftovers import DRAFT, abandoned, new_draft, stale_drafts
from envkit.engine.output import Output
from envkit.engine.sdk import asking, docker, requests
from envkit.engine.trouble import absent, explain, started, unreachable
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.system import proc
from envkit.system.files import is_full
from envkit.system.proc import Completed

_AHEAD_S = 10.0  # for an image of layers that another image has just taken in: names and a few files; 0.1 s was seen
_API_S = 60.0  # any one call; the longest seen is the removal of a 6 GB container, under two seconds
_FIRST_WORD_S = 8.0  # a registry in reach names the manifest in under two; a closed network may stay silent for minutes
_STALL_S = 120.0  # while pulling; unpacking one layer of 5 GB says nothing for up to a minute
_GONE_S = 10  # from the end of a container's output to its removal; 0.1 s is usual
_PAYLOAD_DIR = "/envkit"
_VOLUME_SIZE = 1 << 30  # bytes of a VOLUME in memory: caches of compiled kernels, under 100 MB in the smoke suite
_MOST_MADE = 10 << 30  # bytes that a container which compiles may give back; the largest known wheel has 1 GB
_MOST_COPIED = 4  # VOLUMEs with files: the engine copies them, and of nested ones the same files for each
_DROPPED_FIX = "if Podman answers in Docker's place, use --engine podman; else see the engine's log"


def _payload_tar(payload: bytes) -> bytes:
    """The payload as the archive that enters the volume, readable by whatever user the image has."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("envkit.pyz")
        entry.size, entry.mode = len(payload), 0o444
        archive.addfile(entry, io.BytesIO(payload))
    return buffer.getvalue()


class DockerEngine:
    """The engine that the environment and docker's configuration name (``endpoint``), which all of envkit asks.

    ``cache`` is the directory for bootstrapped bases.  Making one raises Undecided if no engine answers, and UsageError
    if what names it names none.
    """

    name = "docker"
    containers = True
    abilities = CONTAINERS

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self.endpoint = endpoint(os.environ)
        self.where = self.endpoint.shown
        self.usual = self.endpoint.host == SOCKET  # the one that nobody had to name
        api_version(self.endpoint)
        with asking():
            self._info = self._plain("/info") or dict(self._client.info())

    @cached_property
    def _client(self) -> docker.DockerClient:
        """The SDK's, which asks the engine for its version first; raises Undecided if that is gone by now."""
        with asking():
            return client(self.endpoint, _API_S)

    def _plain(self, path: str) -> dict[str, Any] | None:
        """What the engine says at ``path``; None where it gives no such answer, or goes by another version of its API:
        then the SDK must ask, which knows what is wrong."""
        said = None if api_version(self.endpoint) else wire.ask(self.endpoint, path)
        return said.value if said and said.status == 200 else None

    @property
    def is_podman(self) -> bool:
        """Whether Podman answers in Docker's place."""
        with asking():
            parts = self._client.version().get("Components") or ()
        return any(str(part.get("Name", "")).startswith("Podman") for part in parts)

    # -- bases

    def _inspect(self, image: str) -> dict[str, Any] | None:
        if plain := self._plain(f"/images/{quote(image, safe='/:@')}/json"):
            return plain
        try:
            with asking(docker.errors.NotFound):
                return dict(self._client.api.inspect_image(image))
        except docker.errors.NotFound:
            return None

    def _facts(self, image: str) -> dict[str, Any]:
        """What the engine says of ``image``; UsageError if it has no such image."""
        facts = self._inspect(image)
        if facts is None:
            raise _no_image(image)
        return facts

    def _local(self, ref: str, digest: str) -> ResolvedBase | None:
        """The image ``ref`` if the engine holds it with ``digest`` (any, if that is empty)."""
        facts = self._inspect(ref)
        if facts is None:
            return None
        tree = (facts["Config"].get("Labels") or {}).get(TREE_LABEL, "")
        if facts["RootFS"].get("Layers") != [tree]:
            tree = ""  # built on a bootstrapped base, from which it has the label
        known = [tree] if tree else [name.rpartition("@")[2] for name in facts.get("RepoDigests") or ()]
        if digest and digest not in known:
            return None
        return ResolvedBase(ref, facts["Id"], "bootstrapped" if tree else "local", digest or next(iter(known), ""))

    def _pull(self, ref: str, say: Say) -> str:
        """Pulls ``ref``; returns why no registry served, or an empty text when it came."""
        events: queue.Queue[dict[str, Any] | Exception | None] = queue.Queue()
        api = self._client.api

        def listen() -> None:
            try:
                for event in api.pull(ref, stream=True, decode=True):
                    events.put(event)
                events.put(None)
            except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
                events.put(error)

        say(f"asking the registry for {ref}")
        threading.Thread(target=listen, daemon=True).start()
        patience, told = _FIRST_WORD_S, ""
        while True:
            try:
                event = events.get(timeout=patience)
            except queue.Empty:
                return f"the registry said nothing for {patience:.0f} s"
            if event is None:
                return ""
            said = event.get("error", "") if isinstance(event, dict) else getattr(event, "explanation", "") or event
            if text := str(said):
                if absent(text):
                    why = f"the base image {ref} does not exist or is private: {text.rstrip('.')}"
                    raise UsageError(why, "check its name, or docker login")
                if unreachable(text):
                    return text
                where, free = self._room()
                raise explain([text], where=where, free=free) or Undecided(f"pulling {ref} failed: {text.rstrip('.')}")
            assert not isinstance(event, Exception)
            patience = _STALL_S
            status = f"{event.get('status', '')} {event.get('id', '')}".strip()
            if status != told and event.get("status") in ("Pull complete", "Download complete"):
                say(status)
            told = status

    def resolve_base(self, request: BaseRequest, say: Say) -> ResolvedBase:
        """The base of ``request``: the engine's own image of that name or digest, else the registry's, else one
        bootstrapped from the suite's packages.

        Raises UsageError if a registry answers that there is no such image, Undecided if none answers and no suite
        is given, or if what was bootstrapped is not what the lock pins.
        """
        pinned = f"{request.ref.partition('@')[0]}@{request.digest}" if request.digest else request.ref
        tree_tag = base.tag(request.suite, request.digest) if request.suite and request.digest else ""
        for ref in filter(None, (request.ref, pinned, tree_tag)):
            found = self._local(ref, request.digest)
            if found is not None:
                return found
        why = self._pull(pinned, say) if pinned else "no name was given"
        if not why:
            pulled = self._local(pinned, request.digest)
            if pulled is None:
                raise Undecided(f"the engine pulled {pinned} and does not hold it", "see the engine's log")
            return ResolvedBase(pulled.ref, pulled.id, "registry", pulled.sha256)
        if not request.suite:
            raise Undecided(
                f"the base image {pinned} is not here and no registry serves it: {why.strip().rstrip('.')}",
                "give the machine access to the registry, or load the image with docker load, or choose a Debian base",
            )
        if request.ref:
            say(f"no registry serves {request.ref}; making it from the packages of {request.suite}")
        if not request.digest:
            recent = base.recent(request.suite, request.include, request.epoch, self._cache)
            if recent and (found := self._local(base.tag(request.suite, recent), recent)):
                return found
        made = base.bootstrap(request.suite, request.include, request.epoch, self._cache, say, request.digest)
        if request.digest and made.sha256 != request.digest:
            raise Undecided(
                f"the base made from {request.suite} today is {made.sha256}, the lock holds {request.digest}",
                "the distribution has newer packages: run envkit lock again, or bring the locked base with docker load",
            )
        return self._adopt(request, made, say)

    def digest(self, ref: str) -> str:
        """The digest ("sha256:...") that the registry has for ``ref`` now; nothing is pulled.

        Raises Undecided where none answers within ``_FIRST_WORD_S`` seconds and UsageError where it has no such image.
        """
        try:
            with asking(docker.errors.APIError):
                hasty = client(self.endpoint, _FIRST_WORD_S)
                digest = hasty.api.inspect_distribution(ref)["Descriptor"]["digest"]
        except docker.errors.APIError as error:
            text = str(error.explanation or error).strip().rstrip(".")
            if absent(text):
                raise UsageError(
                    f"{ref} does not exist or is private: {text}", "check its name, or docker login"
                ) from error
            raise Undecided(
                f"no registry answers for {ref}: {text}", "give the engine access to the registry"
            ) from error
        return str(digest)

    def _adopt(self, request: BaseRequest, made: base.BootstrappedTree, say: Say) -> ResolvedBase:
        """Loads a bootstrapped tree as an image whose id depends on nothing but the tree."""
        ref = base.tag(request.suite, made.sha256)
        found = self._local(ref, made.sha256)
        if found is not None:
            return found
        say(f"loading {ref}")
        labels = {TREE_LABEL: made.sha256}
        with asking():
            for _ in self._client.api.load_image(base.image_archive(made, ref, request.epoch, labels)):
                pass  # the engine's own progress; the image is looked up below
        found = self._local(ref, made.sha256)
        if found is None:
            raise Undecided(f"the engine loaded {ref} and does not hold it", "see the engine's log")
        return found

    # -- images

    def _room(self) -> tuple[str, int | None]:
        """Where the engine keeps images and how many bytes are free there, None if that is not on this machine."""
        root = str(self._info.get("DockerRootDir", ""))
        try:
            free = shutil.disk_usage(root).free
        except OSError:
            free = None
        return f"the engine's store {root}", free

    def build(self, request: BuildRequest, say: Say) -> BuiltImage:
        """Builds with BuildKit.  ``request.tag`` names the image only when all of it is there: BuildKit names an
        image before it has unpacked it, so it is built under a name of its own first."""
        started = time.monotonic()
        self._drop_drafts()
        tag, draft = request.tag, new_draft()
        where, free = self._room()
        unpacked = "containerd" in str(self._info.get("DriverStatus", ""))
        # The builder that works in the engine's own store, where the bases are, bears the name of the context; another
        # that the user has chosen for his own work would not see them.
        if request.provenance and not unpacked:
            said = f"this engine keeps images in {self._info.get('Driver')}, which holds no attestation"
            raise UsageError(said, "turn on its containerd image store (docs/push.md), or leave --provenance out")
        build = partial(buildx.build, builder=self.endpoint.context, unpacked=unpacked, where=where, free=free)
        try:
            with proc.sigterm_raises(), self._ahead(replace(request, tag=f"{draft}-ahead"), build) as on_made:
                build(replace(request, tag=draft), say, on_made=on_made)
            with asking():
                facts = self._client.api.inspect_image(draft)
                if request.passing:  # the next build of anybody here takes it away, should this process be killed
                    tag = draft
                    return BuiltImage(facts["Id"], tag, self._size(tag, facts), time.monotonic() - started)
                repository, _, version = tag.rpartition(":") if ":" in tag.rpartition("/")[2] else (tag, "", "latest")
                self._client.api.tag(draft, repository, version)
        finally:
            if tag != draft:
                with suppress(Undecided):  # an engine that has just died is not the news; why the build failed is
                    self.remove(draft)
        return BuiltImage(facts["Id"], tag, self._size(tag, facts), time.monotonic() - started)

    @contextmanager
    def _ahead(self, request: BuildRequest, build: Callable[..., str]) -> Iterator[Callable[[str], None]]:
        """Has the engine take in the layers up to ``request.ahead`` while it runs the steps of the block that come
        after.

        An engine hashes a layer on one processor, and only when an image is to hold it: 4 s for CUDA's libraries, at
        the end of a build that had nothing else to do.  So the stage becomes an image of its own as soon as a step of
        it has run, by a second build that finds its steps made, and the image goes before this returns.  What the block
        is given is to be told the stage of each step that has run.
        """
        if not request.ahead or self._has_alike(request):
            yield lambda stage: None
            return
        begin, over = threading.Event(), threading.Event()

        def work() -> None:
            begin.wait()
            if not over.is_set():
                with suppress(EnvkitError, OSError):  # the build beside this one meets the same trouble, and tells
                    build(replace(request, target=request.ahead), lambda line: None, stop=over.is_set)

        def on_made(stage: str) -> None:
            if stage == request.ahead:
                begin.set()

        worker = threading.Thread(target=work)
        worker.start()
        try:
            yield on_made
            if begin.is_set():
                worker.join(_AHEAD_S)
        finally:
            over.set()
            begin.set()
            worker.join()
            with suppress(Undecided):  # as for the image itself
                self.remove(request.tag)

    def _has_alike(self, request: BuildRequest) -> bool:
        """Whether an image is here that may hold layers which ``request`` is about to make once more.

        An engine with the overlay2 store that has taken in such a layer compares the next one above it with the older
        image's files, by another way, and packs it in another order: the same files, and another hash (moby's
        EnsureLayer and overlay2's isParent; seen with 26.1).  Taken in with the others, at the end, it does not.
        """
        with asking():
            return bool(self._client.api.images(filters={"label": sorted(request.labels)}))

    def _drop_drafts(self) -> None:
        with asking():
            listed = self._client.api.images(name=DRAFT)
        for draft in stale_drafts((tag for entry in listed for tag in entry.get("RepoTags") or ()), time.time()):
            self.remove(draft)

    def _size(self, tag: str, facts: Mapping[str, Any]) -> int:
        """The bytes that ``tag`` takes in the store; the list counts unpacked files, the single view of a
        containerd store only the compressed ones."""
        with asking():
            listed = self._client.api.images(filters={"reference": tag})
        return max([int(facts.get("Size", 0)), *(int(entry.get("Size", 0)) for entry in listed)])

    def layers(self, image: str) -> tuple[str, ...]:
        """The content hashes of the layers of ``image``; UsageError if the engine has no such image."""
        return tuple(self._facts(image)["RootFS"].get("Layers") or ())

    def stored(self, image: str) -> StoredImage:
        """The id and the size of ``image``, and its layers' folders where this process may read the engine's store;
        UsageError if the engine has no such image."""
        facts = self._facts(image)
        config, roots = store.unpacked(self._info, facts)
        return StoredImage(str(facts["Id"]), int(facts.get("Size") or 0), config, roots)

    def file(self, image: str, path: str) -> bytes:
        """The content of a file of ``image``, read from a container that is never started."""
        with self._gone_in_the_end() as name:
            container = self._hold(name, image, held.volumes(image, self._facts(image)), ())
            try:
                with asking(docker.errors.NotFound):
                    pieces, _ = self._client.api.get_archive(container, path)
                    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
                        member = archive.extractfile(archive.next() or "")
                        return member.read() if member else b""
            except (docker.errors.NotFound, KeyError):
                raise UsageError(f"the image {image} has no file {path}", "choose an image with it") from None

    def load(self, saved: Path, request: BaseRequest) -> ResolvedBase:
        """Loads a saved base.  A registry's digest does not come along with it: that one is the folder's word, as its
        lock is; a base made from packages is held to its own."""
        with asking(), saved.open("rb") as stream:
            loaded = self._client.images.load(stream)
        if len(loaded) != 1 or not loaded[0].tags:
            raise UsageError(f"{saved} holds {len(loaded)} images, not one with a name", "fill it with `envkit vendor`")
        ref = str(loaded[0].tags[0])
        found = self._local(ref, "")
        if found is None or (found.how == "bootstrapped" and found.sha256 != request.digest):
            raise UsageError(f"{saved} holds another base than {request.digest}", "fill it again with `envkit vendor`")
        return ResolvedBase(ref, found.id, "vendored", request.digest)

    def save(self, image: str, target: Path) -> None:
        """Writes ``image`` as the engine exports it; UsageError if the engine has no such image, or ``target`` cannot
        be written."""
        try:
            file = target.open("wb", buffering=0)
        except OSError as error:
            raise _unwritable(target, error) from error
        with file:
            try:
                with asking(docker.errors.NotFound):
                    for piece in self._client.api.get_image(image, chunk_size=1 << 20):
                        _write(file, piece, target)
            except docker.errors.NotFound:
                raise _no_image(image) from None

    def push(self, image: str, ref: str, say: Say) -> str:
        """As ``docker push``; UsageError if the engine has no such image."""
        from envkit.engine import docker_push  # it has the SDK

        self._facts(image)
        with asking():
            return docker_push.push(client(self.endpoint, docker_push.STALL_S).api, image, ref, say)

    def join(self, index: str, pinned: str, platform: str, say: Say) -> str:
        """As ``docker buildx imagetools create`` does it."""
        from envkit.engine import platforms  # it has the SDK

        return platforms.join(index, pinned, platform, self.endpoint.context, say)

    def elsewhere(self) -> bool:
        """Whether the engine names its machine, and names another: behind DOCKER_HOST, or a socket in a container."""
        return self._info.get("Name") not in (None, "", os.uname().nodename)

    def labels(self, image: str) -> Mapping[str, str]:
        """The labels of ``image``; UsageError if the engine has no such image."""
        return dict(self._facts(image)["Config"].get("Labels") or {})

    def declared(self, image: str) -> DeclaredStart:
        """The ENTRYPOINT, CMD, ENV, USER and WORKDIR of ``image``; UsageError if the engine has no such image."""
        return held.declared(self._facts(image)["Config"])

    def remove(self, image: str) -> None:
        """Takes the name ``image`` away, and its content if it has no other."""
        with suppress(docker.errors.NotFound), asking(docker.errors.NotFound):
            self._client.api.remove_image(image, force=True)

    # -- runs

    def run(
        self,
        image: str,
        argv: Sequence[str],
        *,
        payload: bytes,
        gpus: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        start: Start | None = None,
        placed: DeclaredStart | None = None,
        mounts: Mapping[str, Path] | None = None,
        timeout_s: float,
        say: Say,
        stop: Callable[[], bool] | None = None,
    ) -> Completed:
        """Runs the payload in a container of its own, which is gone when this returns or raises.

        ``mounts`` are bound read-only, so the engine must run on this machine.  ``gpus`` enter as CDI devices of the
        kind nvidia.com/gpu, or by NVIDIA's runtime where the engine reads no such device.  A container's exit code
        above 128 is returned as the negative number of the signal.
        Raises UsageError if the image or a mount does not exist, CannotStart if the image has no such program, and
        Undecided if the engine has no such GPU, or if it goes away.
        """
        own = [f"{_PAYLOAD_DIR}/envkit.pyz", *argv, "--watch-stdin"]
        command = list(start(own)) if start else ["python3", *own]
        self._same_platform(image)
        with self._gone_in_the_end() as name:
            container = self._create(name, image, command, payload, gpus, env, mounts, placed)
            return self._attended(container, image, command, timeout_s, say, stop)

    def follow(
        self,
        image: str,
        argv: Sequence[str],
        *,
        mounts: Mapping[str, tuple[Path, bool]],
        gpus: tuple[str, ...] = (),
        network: str = "",
        placed: DeclaredStart | None = None,
        timeout_s: float,
        say: Say,
    ) -> Completed:
        """Runs ``argv``, a person's own command, as `docker run` would: writable, with the network ``network``, and
        with ``placed`` as in ``run``.

        It may trace its own processes, for that is what it is run for.  ``mounts`` are bound at their paths, each with
        whether it may be written to.  ``gpus`` enter as for ``run``, which says what is raised.
        """
        self._same_platform(image)
        bound = [_mount(at, path, writable) for at, (path, writable) in mounts.items()]
        api = self._client.api
        with self._gone_in_the_end() as name:
            with asking():
                host = api.create_host_config(
                    auto_remove=True,
                    network_mode=network or "bridge",
                    extra_hosts={name: "127.0.0.1"} if network == "none" else None,  # torchrun looks its host up
                    cap_add=["SYS_PTRACE"],
                    init=False,
                    shm_size=1 << 30,
                    pids_limit=8192,
                    log_config=_no_log(),
                    mounts=bound,
                    **_devices(gpus, self._info),
                )
                own: dict[str, Any] = {"name": name, "entrypoint": "", "labels": {RUN_LABEL: "1"}}
                own |= ({"hostname": name} if network == "none" else {}) | (_placed(placed) if placed else {})
                created = api.create_container(image, list(argv), stdin_open=True, host_config=host, **own)
                if gpus and (why := docker_run.dropped(api.inspect_container(str(created["Id"])), gpus)):
                    raise Undecided(why, _DROPPED_FIX)
            return self._attended(str(created["Id"]), image, list(argv), timeout_s, say, None)

    def job_line(self, request: JobRequest) -> JobLine:
        """`docker run` for ``request``, whose container goes by itself."""
        return docker_run.line(request, docker_run.terms(self._info))

    def attend(self, request: JobRequest, attend: Attend) -> JobEnd:
        """`docker run` by ``attend``, of a container that stays until the engine has said how it ended.

        Raises UsageError if the engine has no such image, and Undecided if it goes away.
        """
        self._same_platform(request.image)
        with self._gone_in_the_end() as name:
            own = ("--name", name, "--label", f"{RUN_LABEL}=1", "--pull", "never")
            code = attend(docker_run.line(request, docker_run.terms(self._info), own))
            record = self._plain(f"/containers/{name}/json") or self._ended(name)
        return replace(docker_run.end(code, record["State"]), doubt=docker_run.dropped(record, request.gpus))

    def _ended(self, container: str) -> dict[str, Any]:
        try:
            with asking(docker.errors.NotFound):
                return dict(self._client.api.inspect_container(container))
        except docker.errors.NotFound:
            raise Undecided("the docker engine made no container, as it says above", "see its log") from None
        except Undecided as error:
            raise docker_run.lost(container, error, reaper.BACK_S) from error

    def compile(
        self, image: str, argv: Sequence[str], given: Path, made: Path, *, timeout_s: float, say: Say
    ) -> Completed:
        """Runs ``argv`` over a volume of its own, which goes with its container when this returns or raises.

        The volume lies on the engine's disk: what compilers leave takes gigabytes, more than memory has to spare.  The
        files are root's, and so is the process, but without a capability.  Raises what ``run`` does.
        """
        self._same_platform(image)
        api, own, memory = self._client.api, {RUN_LABEL: "1"}, int(self._info.get("MemTotal") or 0)
        with self._gone_in_the_end() as name:
            with asking():
                host = api.create_host_config(
                    **self._bounds({"/tmp": _tmp_size(memory)}),
                    mounts=[docker.types.Mount(WORK, None, "volume", labels={**own, OWNER_LABEL: name})],
                )
                words: dict[str, Any] = {"name": name, "labels": own, "entrypoint": "", "user": "0:0"}
                words |= {"working_dir": WORK, "healthcheck": {"test": ["NONE"]}}
                container = str(
                    api.create_container(image, list(argv), stdin_open=True, host_config=host, **words)["Id"]
                )
                with given.open("rb") as stream:
                    api.put_archive(container, WORK, stream)
            done = self._attended(container, image, list(argv), timeout_s, say, None)
            if not done.timed_out:
                self._fetch(container, f"{WORK}/out", made)
        return done

    def _fetch(self, container: str, path: str, target: Path) -> None:
        """Writes what lies at ``path`` in a container that has ended into the tar ``target``."""
        with target.open("wb", buffering=0) as file, suppress(docker.errors.NotFound), asking(docker.errors.NotFound):
            pieces, _ = self._client.api.get_archive(container, path, chunk_size=1 << 20)
            for piece in pieces:
                _write(file, piece, target)
                if file.tell() > _MOST_MADE:
                    said = f"what the container left in {path} has more than {_MOST_MADE >> 30} GB"
                    raise Undecided(said, "see what the package's build writes there")

    def _same_platform(self, image: str) -> None:
        own = (str(self._info.get("OSType", "")), str(self._info.get("Architecture", "")))
        held.same_platform(image, self._facts(image), *own)

    def _hold(self, container: str, image: str, volumes: Sequence[str], copied: Sequence[str]) -> str:
        """Makes the holder of ``container``, which is never started, for its files.  It has the payload's folder and
        the engine's copies of what the image holds at ``copied`` as volumes of its own; nothing is copied for its other
        ``volumes``."""
        api, own = self._client.api, {RUN_LABEL: "1"}
        name, of_it = reaper.holder_of(container), {**own, OWNER_LABEL: container}
        with asking():
            host = api.create_host_config(
                network_mode="none",
                tmpfs={path: "" for path in volumes if path not in copied},
                mounts=[docker.types.Mount(path, None, "volume", labels=of_it) for path in (_PAYLOAD_DIR, *copied)],
            )
            made = api.create_container(image, ["true"], name=name, entrypoint="", labels=own, host_config=host)
        return str(made["Id"])

    def _has_files(self, container: str, path: str) -> bool:
        """Whether something lies in the folder ``path`` of a container that was never started, in the image's words."""
        try:
            with asking(docker.errors.NotFound):
                pieces, _ = self._client.api.get_archive(container, f"{path}/.", chunk_size=4096)
                # the folder's own entry has 512 bytes, or a few more blocks with a long name
                begin = b"".join(islice(pieces, 4))
                pieces.close()
        except docker.errors.NotFound:
            return False
        try:
            with tarfile.open(fileobj=io.BytesIO(begin), mode="r|") as archive:
                archive.next()
                return archive.next() is not None
        except tarfile.TarError:  # an entry that goes beyond what was read
            return True

    def _laid(self, container: str, image: str, payload: bytes) -> tuple[str, list[str]]:
        """A container whose volumes the one called ``container`` is to have read-only: the payload's folder and the
        VOLUMEs that the image has files for; and the image's other VOLUMEs.

        The engine puts files into no volume that the container itself may only read, hence a container to lay them in.
        """
        declared = held.volumes(image, self._facts(image))
        volumes = [path for path in declared if path not in (_PAYLOAD_DIR, "/tmp", "/dev/shm")]
        holder = self._hold(container, image, volumes, ())
        copied = [path for path in volumes if self._has_files(holder, path)]
        if len(copied) > _MOST_COPIED:
            raise Undecided(
                f"the image {image} declares {len(copied)} VOLUMEs that hold files, more than the {_MOST_COPIED} that "
                "a run has the engine copy",
                "declare VOLUMEs for data alone, or the one folder that holds them all",
            )
        if copied:
            self._discard(reaper.holder_of(container))
            holder = self._hold(container, image, volumes, copied)
        with asking():
            self._client.api.put_archive(holder, _PAYLOAD_DIR, _payload_tar(payload))
        return holder, [path for path in volumes if path not in copied]

    def _create(
        self,
        name: str,
        image: str,
        command: list[str],
        payload: bytes,
        gpus: tuple[str, ...],
        env: Mapping[str, str] | None,
        mounts: Mapping[str, Path] | None,
        placed: DeclaredStart | None,
    ) -> str:
        bound = [_mount(at, path, writable=False) for at, path in (mounts or {}).items()]
        api = self._client.api
        memory = int(self._info.get("MemTotal") or 0)
        holder, empty = self._laid(name, image, payload)
        written = dict.fromkeys((path for path in empty if path not in (mounts or {})), _VOLUME_SIZE)
        written["/tmp"] = _tmp_size(memory)
        with asking():
            host = api.create_host_config(
                **self._bounds(written),
                auto_remove=True,
                shm_size=1 << 30,  # NCCL and the data loader; the engine's own default of 64 MiB is too small
                # Not a file of this machine: an engine elsewhere has none of them.
                volumes_from=[f"{holder}:ro"],
                mounts=bound,
                **_devices(gpus, self._info),
            )
            variables = {**(placed.environment if placed else {}), **(env or {})}
            own = {"name": name, "labels": {RUN_LABEL: "1"}, "environment": variables}
            if placed is not None:
                own |= {**_placed(placed), "environment": variables}
            # What is to run of the image's entry point is part of the command, and is under the same limits.
            own |= {"entrypoint": "", "healthcheck": {"test": ["NONE"]}}
            container = str(api.create_container(image, command, stdin_open=True, host_config=host, **own)["Id"])
            if gpus and (why := docker_run.dropped(api.inspect_container(container), gpus)):
                raise Undecided(why, _DROPPED_FIX)
            api.remove_container(holder, force=True)  # its volumes are the other's now, and go with that one
            for stale in abandoned(api.containers(all=True, filters={"label": RUN_LABEL}), container):
                with suppress(docker.errors.APIError):  # another envkit may be at it too
                    api.remove_container(stale, v=True, force=True)
        return container

    def _bounds(self, written: Mapping[str, int]) -> dict[str, Any]:
        """What holds for every container that runs code of others; it may write to folders in memory, of so many
        bytes each."""
        memory = int(self._info.get("MemTotal") or 0)
        return {
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "read_only": True,
            "tmpfs": {path: f"rw,exec,nosuid,nodev,mode=1777,size={size}" for path, size in written.items()},
            # A run that takes all memory dies in its own group, and before anything else of the machine does.
            "mem_limit": memory * 7 // 8 or None,
            "memswap_limit": memory * 7 // 8 or None,
            "oom_score_adj": 500,
            "pids_limit": 4096,
            "ulimits": [_no_core(docker_run.ROOTLESS in str(self._info.get("SecurityOptions")))],
            "log_config": _no_log(),
        }

    def _attended(
        self,
        container: str,
        image: str,
        command: list[str],
        timeout_s: float,
        say: Say,
        stop: Callable[[], bool] | None,
    ) -> Completed:
        api = self._client.api
        deadline = time.monotonic() + timeout_s
        with asking():
            connection = api.attach_socket(container, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        try:
            output = Output(docker.utils.socket.frames_iter(connection, tty=False), say)
            output.start()
            try:
                with asking(docker.errors.APIError):
                    api.start(container)
            except docker.errors.APIError as error:
                raise _cannot_start(error, command[0], image) from error
            cut = not self._wait(output, deadline, stop)
            if cut:
                self._kill(container)
                output.ended(_GONE_S)
            if output.overflow:
                raise Undecided(
                    f"the run in the image {image} wrote more than {output.overflow} and was stopped",
                    "look at what the image prints when its Python starts (sitecustomize, a .pth file) and when it "
                    "imports torch",
                )
            code = self._exit_code(container)
        finally:
            connection.close()
        number = 128 - code if 128 < code <= 192 else code
        stdout, stderr = output.stdout(), output.stderr()
        if not stdout and code in (1, 255):
            started(stderr, image)
        return Completed(tuple(command), number, stdout, stderr, cut)

    def _wait(self, output: Output, deadline: float, stop: Callable[[], bool] | None) -> bool:
        """Waits for the output's end; False at the deadline, when the caller says so or when there is too much of
        it."""
        while not output.ended(min(0.2, deadline - time.monotonic())):
            if time.monotonic() >= deadline or output.overflow or (stop is not None and stop()):
                return False
        return True

    def _kill(self, container: str) -> None:
        with suppress(docker.errors.APIError), asking(docker.errors.APIError):  # it may have ended just now
            self._client.api.kill(container)

    def _exit_code(self, container: str) -> int:
        """The exit code by the engine's own log of events, which outlives the removed container."""
        with asking():
            events = self._client.api.events(since=1, decode=True, filters={"container": container, "event": "die"})
        timer = threading.Timer(_GONE_S, events.close)
        timer.daemon = True
        timer.start()
        try:
            with suppress(OSError, ValueError, requests.exceptions.RequestException):
                for event in events:
                    return int(event["Actor"]["Attributes"]["exitCode"])
        finally:
            timer.cancel()
            events.close()
        said = "the docker engine did not say how the container ended"
        raise Undecided(said, "see whether the engine was stopped or restarted in the middle, and run again")

    @contextmanager
    def _gone_in_the_end(self) -> Iterator[str]:
        """A name for a container, which is gone when this ends, and soon after envkit if that is killed: who removes it
        knows the name before the engine is asked for the container, which takes it seconds under load."""
        name = f"envkit-{uuid.uuid4().hex[:16]}"
        with proc.sigterm_raises(), proc.outlived_by(reaper.command(name)) as tell:
            try:
                yield name
            finally:
                if not all([self._discard(name), self._discard(reaper.holder_of(name))]):
                    tell(reaper.LOST)

    def _discard(self, container: str) -> bool:
        """Removes the container, waits until it is gone, and says whether it is: an engine that has died takes no
        order, and what it started may outlive it."""
        gone = wire.ask(self.endpoint, f"/containers/{container}?v=1&force=1", "DELETE")
        if gone and gone.status in (204, 404):
            return True
        try:
            api = self._client.api
        except EnvkitError:
            return False
        deadline = time.monotonic() + _GONE_S
        while time.monotonic() < deadline:
            try:
                api.remove_container(container, v=True, force=True)
                return True
            except docker.errors.NotFound:
                return True
            except docker.errors.APIError:
                time.sleep(0.05)  # the engine's own removal is under way
            except (docker.errors.DockerException, requests.exceptions.RequestException, OSError):
                break
        return False


def _no_log() -> docker.types.LogConfig:
    """The engine's own log of the output would fill its disk."""
    return docker.types.LogConfig(type="none")


def _placed(start: DeclaredStart) -> dict[str, Any]:
    return {"environment": dict(start.environment), "user": start.user, "working_dir": start.workdir}


def _mount(at: str, path: Path, writable: bool) -> docker.types.Mount:
    if not path.exists():
        raise UsageError(f"there is no {path}", "name a file or folder that exists")
    return docker.types.Mount(at, str(path.resolve()), "bind", read_only=not writable)


def _devices(gpus: Sequence[str], info: Mapping[str, Any]) -> dict[str, Any]:
    """How GPUs are asked for.  By NVIDIA's runtime the request is that of `--gpus`, beside the runtime, which must be
    named where it is set to work by CDI."""
    if not gpus:
        return {}
    if docker_run.terms(info).gpus == "gpus":
        which: dict[str, Any] = {"count": -1} if tuple(gpus) == ("all",) else {"device_ids": list(gpus)}
        request = docker.types.DeviceRequest(capabilities=[["gpu"]], **which)
        return {"device_requests": [request], "runtime": "nvidia"}
    devices = [f"nvidia.com/gpu={gpu}" for gpu in gpus]
    return {"device_requests": [docker.types.DeviceRequest(driver="cdi", device_ids=devices)]}


def _no_core(rootless: bool) -> docker.types.Ulimit:
    """The limit of core dumps.  At 1 byte the kernel neither writes a file nor starts the host's handler of dumps,
    which may write one there; at 0 it would start that (fs/coredump.c).  A rootless engine may not raise a limit of 0.
    """
    limit = 0 if rootless else 1
    return docker.types.Ulimit(name="core", soft=limit, hard=limit)


def _tmp_size(memory: int) -> int:
    """The bytes that /tmp may hold on a machine with ``memory`` bytes, 0 if that is not known: half of them, as the
    kernel allows unasked, and 8 GiB at most; the compilers of the smoke suite leave under 100 MB there."""
    return min(memory // 2 or 1 << 30, 8 << 30)


def _write(file: io.FileIO, piece: bytes, target: Path) -> None:
    """Writes ``piece``; the disk's word is not mistaken for the engine's."""
    left = memoryview(piece)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise _unwritable(target, error) from error


def _unwritable(target: Path, error: OSError) -> EnvkitError:
    if is_full(error):
        return Undecided("the disk is full: the image was not saved", "free some space and run again")
    return UsageError(f"{target} cannot be written: {error.strerror}", "check the folder it is in")


def _no_image(image: str) -> UsageError:
    return UsageError(
        f"the docker engine has no image {image}", "check its name (docker image ls), or build or pull it"
    )


def _cannot_start(error: docker.errors.APIError, program: str, image: str) -> EnvkitError:
    text = str(error.explanation or error).strip().rstrip(".")
    if f'exec: "{program}"' in text:
        if program == "python3":
            said = f"the image {image} has no python3 to run the payload with"
            return CannotStart(said, "an image without Python cannot be probed: choose one that has it on PATH")
        why = text.rpartition(f'exec: "{program}"')[2].strip(": ")
        return CannotStart(f"the image {image} cannot start {program}: {why}", "correct ENTRYPOINT or CMD")
    if "CDI" in text or "device driver" in text:
        return Undecided(
            f"the docker engine cannot give the container these GPUs: {text}",
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, enable the engine's CDI feature, restart it",
        )
    known = explain([text], where="the engine's store")
    return known or CannotStart(f"the container could not be started: {text}", "see the engine's log")
