"""Podman, by its own program, as root or as an ordinary user; there is no daemon to ask.

A container that runs the payload has what Docker's has (``docker``): no network, no capabilities, no way to new
privileges, a read-only root, memory file systems of a limited size for all that it writes, and limits of processes and
memory where podman can set them, which is said in ``where`` if it cannot: a rootless one on cgroup v1 has none, and
there the number of processes is held by RLIMIT_NPROC.  It dies with envkit: podman's stdin ends with it, the payload
kills itself at that, and a process that outlives envkit removes the container (``reaper``).
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from envkit.credentials import names_secret
from envkit.engine import (
    CONTAINERS,
    WORK,
    Ability,
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
    cannot,
    docker_run,
    held,
    podman_build,
    podman_cli,
    reaper,
)
from envkit.engine.held import RUN_LABEL, TREE_LABEL
from envkit.engine.leftovers import DRAFT, new_draft, pid_space, stale_drafts
from envkit.engine.podman_cli import about, ask, told
from envkit.engine.store import sees_trusted
from envkit.engine.trouble import absent, started, unreachable
from envkit.errors import EnvkitError, Undecided, UsageError, one_line
from envkit.system import files, proc
from envkit.system.proc import Completed

_FIRST_WORD_S = 20.0  # a registry in reach names the manifest in under two; podman tries an unreachable one four times
_PULL_S = 3600.0  # an image of 20 GB over a slow line
_SAVE_S = 1800.0
_VOLUME_SIZE = 1 << 30  # bytes of a VOLUME in memory
_OWN = ("/tmp", "/dev/shm", "/envkit")  # what a run has there goes before a VOLUME
_MOST_MADE = 10 << 30  # bytes that a container which compiles may give back
_NO_START = "Error: unable to start container"  # becomes an error of ours
_GRACE_S = 0.5  # for the program that waits for a container whose time is up; the container is killed next
_NEVER_STARTED = ("created", "configured", "initialized")
_REFUSED = (125, 126, 127)  # podman's own exit codes and a shell's (podman-run(1)): its records tell them apart


class PodmanEngine:
    """Podman of this machine and this user; ``cache`` is the directory for bootstrapped bases.

    Making one raises Undecided where podman is missing, may not run as this user, or works on another machine.
    """

    name = "podman"
    containers = True
    # An image's own configuration names the containers in which buildah made it.
    abilities = CONTAINERS - {Ability.JOIN, Ability.ATTEST, Ability.SAME_ID}

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._info = podman_cli.info()
        host = self._info["host"]
        self.rootless = bool(host.get("security", {}).get("rootless"))
        self._controllers = frozenset(host.get("cgroupControllers") or ())
        self.version = str(self._info.get("version", {}).get("Version", ""))
        self._memory = int(host.get("memTotal") or 0)
        self._store = self._info.get("store", {})
        self.label = f"{RUN_LABEL}={pid_space()}-{os.getpid()}"  # on every container of this process
        lacks = [word for word, name in (("processes", "pids"), ("memory", "memory")) if name not in self._controllers]
        notes = ["rootless"] if self.rootless else []
        if lacks:
            notes.append(f"no limit of {' and '.join(lacks)}: cgroup {host.get('cgroupVersion', 'unknown')}")
        self.where = f"podman {self.version}" + (f" ({', '.join(notes)})" if notes else "")

    # -- bases

    def _facts(self, image: str) -> dict[str, Any]:
        facts = about("image", image)
        if facts is None:
            fix = "check its name (podman image ls), or build or pull it"
            if self.rootless:
                fix += "; root's images are not those of this user"
            raise UsageError(f"podman has no image {one_line(image)}", fix)
        return facts

    def _local(self, ref: str, digest: str) -> ResolvedBase | None:
        """The image ``ref`` if podman holds it with ``digest`` (any, if that is empty)."""
        facts = about("image", ref)
        if facts is None:
            return None
        tree = (facts.get("Labels") or {}).get(TREE_LABEL, "")
        if facts["RootFS"].get("Layers") != [tree]:
            tree = ""
        known = [tree] if tree else [name.rpartition("@")[2] for name in facts.get("RepoDigests") or ()]
        if digest and digest not in known:
            return None
        return ResolvedBase(ref, facts["Id"], "bootstrapped" if tree else "local", digest or next(iter(known), ""))

    def _pull(self, ref: str, say: Say) -> str:
        """Pulls ``ref``; returns why no registry served, or an empty text when it came."""
        say(f"asking the registry for {ref}")
        answered, begun = False, time.monotonic()

        def hear(line: str) -> None:
            nonlocal answered
            if re.match(r"Getting image source|Copying blob|Writing manifest", line):
                answered = True

        def silent() -> bool:
            return not answered and time.monotonic() - begun > _FIRST_WORD_S

        done = ask("pull", podman_cli.qualified(ref), timeout_s=_PULL_S, on_line=hear, stop=silent)
        if not done.exit and not done.timed_out:
            return ""
        text = podman_cli.words_of(done)
        if done.timed_out:
            return f"the registry said nothing for {_FIRST_WORD_S:.0f} s"
        if unreachable(done.stderr):
            return text
        if absent(text):
            why = f"the base image {ref} does not exist or is private: {text}"
            raise UsageError(why, "check its name, or podman login")
        raise podman_cli.refusal(done, self._place())

    def _place(self) -> str:
        return f"podman's store {self._store.get('graphRoot', '')}"

    def resolve_base(self, request: BaseRequest, say: Say) -> ResolvedBase:
        """The base of ``request``: podman's own image of that name or digest, else the registry's, else one
        bootstrapped from the suite's packages.  Raises what Docker's raises."""
        pinned = f"{request.ref.partition('@')[0]}@{request.digest}" if request.digest else request.ref
        tree_tag = base.tag(request.suite, request.digest) if request.suite and request.digest else ""
        for ref in filter(None, (request.ref, pinned, tree_tag)):
            found = self._local(ref, request.digest)
            if found is not None:
                return found
        why = self._pull(pinned, say) if pinned else "no name was given"
        if not why:
            pulled = self._local(podman_cli.qualified(pinned), request.digest)
            if pulled is None:
                raise Undecided(f"podman pulled {pinned} and does not hold it", "see `podman image ls --digests`")
            return replace(pulled, how="registry")
        if not request.suite:
            raise Undecided(
                f"the base image {pinned} is not here and no registry serves it: {why.strip().rstrip('.')}",
                "give the machine access to the registry, or load the image with podman load, or choose a Debian base",
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
                "the distribution has newer packages: run envkit lock again, or bring the locked base with podman load",
            )
        return self._adopt(request, made, say)

    def _adopt(self, request: BaseRequest, made: base.BootstrappedTree, say: Say) -> ResolvedBase:
        ref = base.tag(request.suite, made.sha256)
        found = self._local(ref, made.sha256)
        if found is not None:
            return found
        say(f"loading {ref}")
        with files.scratch("base") as folder:
            archive = folder / "base.tar"
            with archive.open("wb") as file:
                for piece in base.image_archive(made, ref, request.epoch, {TREE_LABEL: made.sha256}):
                    file.write(piece)
            self._loaded(archive)
        found = self._local(ref, made.sha256)
        if found is None:
            raise Undecided(f"podman loaded {ref} and does not hold it", "see `podman image ls`")
        return found

    def _loaded(self, archive: Path) -> list[str]:
        """The names of the images that podman took in from ``archive``."""
        done = ask("load", "--input", str(archive), timeout_s=_SAVE_S)
        if done.exit:
            raise podman_cli.refusal(done, self._place())
        return re.findall(r"^Loaded image(?:\(s\))?: (.+)$", done.stdout, re.M)

    def load(self, saved: Path, request: BaseRequest) -> ResolvedBase:
        """Loads a saved base; a registry's digest is the folder's word, as its lock is."""
        names = self._loaded(saved)
        if len(names) != 1:
            raise UsageError(f"{saved} holds {len(names)} images, not one with a name", "fill it with `envkit vendor`")
        found = self._local(names[0], "")
        if found is None or (found.how == "bootstrapped" and found.sha256 != request.digest):
            raise UsageError(f"{saved} holds another base than {request.digest}", "fill it again with `envkit vendor`")
        return ResolvedBase(names[0], found.id, "vendored", request.digest)

    def digest(self, ref: str) -> str:
        """The digest that the registry has for ``ref`` now, by skopeo: podman itself only says it of what it pulled.

        Raises Undecided where there is no skopeo or no registry answers, UsageError where it has no such image.
        """
        skopeo = shutil.which("skopeo")
        if skopeo is None:
            said = "podman cannot ask a registry for a digest without pulling the image"
            raise Undecided(said, "install skopeo, or use a Docker Engine for this")
        named = f"docker://{podman_cli.qualified(ref)}"
        done = proc.run([skopeo, "inspect", "--format", "{{.Digest}}", named], timeout_s=60)
        if done.exit == 0 and not done.timed_out:
            return done.stdout.strip()
        text = podman_cli.words_of(done)
        if absent(text):
            raise UsageError(f"{ref} does not exist or is private: {text}", "check its name, or podman login")
        raise Undecided(f"no registry answers for {ref}: {text}", "give this machine access to the registry")

    # -- images

    def build(self, request: BuildRequest, say: Say) -> BuiltImage:
        """Builds with `podman build`, which names the image only when all of it is there."""
        begun = time.monotonic()
        if request.provenance:
            raise cannot(self, Ability.ATTEST)
        if self._store.get("graphDriverName") == "vfs":  # what podman takes where nobody chose one
            say(
                f"{self._place()} has the driver vfs, which copies the whole image for every step of a build and takes "
                "several times its room"
            )
        self._drop_leftovers()
        tag = new_draft() if request.passing else request.tag
        with proc.sigterm_raises():
            built = podman_build.build(replace(request, tag=tag), say, self._info)
        return BuiltImage(built, tag, int(self._facts(built).get("Size") or 0), time.monotonic() - begun)

    def _drop_leftovers(self) -> None:
        """Takes away images and containers whose envkit was killed on this machine."""
        listed = told("image", "ls", "--filter", f"reference={DRAFT}", "--format", "{{.Repository}}:{{.Tag}}")
        names = [name.rpartition("/")[2] for name in listed.split()]
        for draft in stale_drafts(names, time.time()):
            self.remove(draft)
        rows = told("ps", "--all", "--filter", f"label={RUN_LABEL}", "--format", "{{.ID}} {{.Labels}}")
        for row in rows.splitlines():
            owner = re.search(rf"{re.escape(RUN_LABEL)}:([0-9a-f]+)-([0-9]+)", row)
            if owner and owner[1] == pid_space() and not Path("/proc", owner[2]).exists():
                self._discard(row.split()[0])

    def layers(self, image: str) -> tuple[str, ...]:
        """The content hashes of the layers of ``image``; UsageError if podman has no such image."""
        return tuple(self._facts(image)["RootFS"].get("Layers") or ())

    def stored(self, image: str) -> StoredImage:
        """The id and the size of ``image``, and its layers' folders where this process may read podman's store."""
        facts = self._facts(image)
        config, roots = self._unpacked(facts)
        return StoredImage(f"sha256:{facts['Id']}", int(facts.get("Size") or 0), config, roots)

    def _unpacked(self, facts: Mapping[str, Any]) -> tuple[bytes, tuple[Path, ...]]:
        """The configuration and the layers' folders of root's overlay store, or nothing.

        A rootless store is another matter: its owners are sub-ids, and its overlay marks what is gone in other ways.
        """
        driver = facts.get("GraphDriver") or {}
        places = driver.get("Data") or {}
        status = self._store.get("graphStatus") or {}
        plain = status.get("Native Overlay Diff") == "true" and status.get("Using metacopy") == "false"
        if driver.get("Name") != "overlay" or self.rootless or not plain or not sees_trusted():
            return b"", ()
        identity = f"sha256:{facts['Id']}"
        name = "=" + base64.b64encode(identity.encode()).decode()  # containers/storage, images.go: a key as a file
        kept = Path(str(self._store.get("graphRoot", "")), "overlay-images", str(facts["Id"]), name)
        try:
            config = kept.read_bytes()
        except OSError:
            return b"", ()
        stack = [places.get("UpperDir") or "", *(places.get("LowerDir") or "").split(":")]
        roots = tuple(Path(path) for path in reversed(stack) if path)
        readable = all(os.access(root, os.R_OK | os.X_OK) for root in roots)
        if f"sha256:{sha256(config).hexdigest()}" != identity or len(roots) != len(facts["RootFS"]["Layers"]):
            return b"", ()
        return (config, roots) if readable else (b"", ())

    def file(self, image: str, path: str) -> bytes:
        """The content of a file of ``image``, read from a container that is never started."""
        self._facts(image)
        with self._gone_in_the_end() as name, files.scratch("file") as folder:
            self._create(name, ["--network", "none", "--image-volume", "ignore", "--entrypoint", ""], image, ["true"])
            done = ask("cp", f"{name}:{path}", str(folder / "file"))
            if done.exit or not (folder / "file").is_file():
                raise UsageError(f"the image {image} has no file {path}", "choose an image with it")
            return (folder / "file").read_bytes()

    def save(self, image: str, target: Path) -> None:
        """Writes ``image`` as podman exports it; UsageError if there is no such image, or ``target`` cannot be written.

        The shell opens ``target``: a rootless podman may not, where it is a file of this process without a name.
        """
        self._facts(image)
        path = str(target).replace("/proc/self/", f"/proc/{os.getpid()}/")
        script = 'exec 3>"$1" || exit 200; shift; exec "$@" >&3'
        words = podman_cli.argv("save", "--format", "docker-archive", image)
        done = proc.run(["sh", "-c", script, "sh", path, *words], timeout_s=_SAVE_S)
        if done.exit in (2, 200):  # a shell may leave at a redirection that fails, with its own code
            said = f"{target} cannot be written: {done.stderr.strip().rpartition(': ')[2].lower()}"
            raise UsageError(said, "check the folder it is in")
        if done.timed_out or done.exit:
            if "no space left" in done.stderr:
                raise Undecided("the disk is full: the image was not saved", "free some space and run again")
            raise podman_cli.refusal(done, self._place())

    def push(self, image: str, ref: str, say: Say) -> str:
        """As `podman push`; a registry of this machine itself is spoken to without TLS, as Docker does."""
        self._facts(image)
        say(f"pushing {ref}")
        plain = ["--tls-verify=false"] if re.match(r"(?:localhost|127\.[0-9.]+|\[::1\])[:/]", ref) else []
        with files.scratch("push") as folder:
            told_in = folder / "digest"
            words = (
                "push",
                "--quiet",
                f"--digestfile={told_in}",
                *plain,
                image,
                f"docker://{podman_cli.qualified(ref)}",
            )
            done = ask(*words, timeout_s=_SAVE_S)
            if not done.exit:
                return told_in.read_text().strip()
        # Why stands last in a long line: the blob that it began with comes first.
        refused = re.search("(?:denied|unauthorized|forbidden|authentication required)[^:\n]*$", done.stderr.strip())
        if refused:
            raise UsageError(f"the registry does not take {ref} from this user: {one_line(refused[0])}", "podman login")
        raise podman_cli.refusal(done, self._place())

    def join(self, index: str, pinned: str, platform: str, say: Say) -> str:
        """Not possible yet."""
        raise cannot(self, Ability.JOIN)

    def elsewhere(self) -> bool:
        """Never: a podman that works on another machine is refused."""
        return False

    def labels(self, image: str) -> Mapping[str, str]:
        """The labels of ``image``; UsageError if podman has no such image."""
        return dict(self._facts(image).get("Labels") or {})

    def declared(self, image: str) -> DeclaredStart:
        """The ENTRYPOINT, CMD, ENV, USER and WORKDIR of ``image``; UsageError if podman has no such image."""
        return held.declared(self._facts(image).get("Config") or {})

    def remove(self, image: str) -> None:
        """Takes the name ``image`` away, and its content if it has no other; one that is not there is no error."""
        done = ask("image", "rm", image)
        if done.exit and ask("image", "exists", image).exit == 0:
            ask("untag", image)  # a container has it: the name goes, the content with that container

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

        Raises UsageError if the image or a mount does not exist, CannotStart if the image has no such program, and
        Undecided if podman cannot give such a GPU.
        """
        own = ["/envkit/envkit.pyz", *argv, "--watch-stdin"]
        command = list(start(own)) if start else ["python3", *own]
        facts = self._same_platform(image)
        seen = {**(mounts or {})}
        with proc.scratch_folder() as folder:
            file = folder / "envkit.pyz"
            file.write_bytes(payload)
            file.chmod(0o444)  # the image's user reads it, whoever that is
            seen["/envkit/envkit.pyz"] = file
            memory = {path: _VOLUME_SIZE for path in held.volumes(image, facts) if path not in (*seen, *_OWN)}
            memory["/tmp"] = min(self._memory // 2 or 1 << 30, 8 << 30)
            words = [*self._bounds(memory), "--interactive", "--shm-size", str(1 << 30), *podman_cli.devices(gpus)]
            words += _bound({at: (path, False) for at, path in seen.items()})
            return self._attended(words, placed, env or {}, image, command, timeout_s, say, stop)

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
        """Runs ``argv``, a person's own command, as `podman run` would; it may trace its own processes."""
        self._same_platform(image)
        words = ["--interactive", "--cap-add", "SYS_PTRACE", "--shm-size", str(1 << 30), "--log-driver", "none"]
        words += [
            "--no-healthcheck",
            "--entrypoint",
            "",
            *(["--network", network] if network else []),
            *self._most(8192),
        ]
        words += [*podman_cli.limits(), *podman_cli.devices(gpus), *_bound(mounts)]
        return self._attended(words, placed, {}, image, list(argv), timeout_s, say, None)

    def compile(
        self, image: str, argv: Sequence[str], given: Path, made: Path, *, timeout_s: float, say: Say
    ) -> Completed:
        """Runs ``argv`` over a folder of this machine that is its own, and goes with it; as root, without a
        capability."""
        self._same_platform(image)
        with proc.scratch_folder() as folder:
            work = folder / "work"
            work.mkdir()
            with tarfile.open(given) as archive:  # which envkit has packed
                # Debian 12's Python, 3.11.2, has no filters; an attribute that it does not know is none to it.
                archive.extraction_filter = getattr(tarfile, "tar_filter", None)
                archive.extractall(work)
            words = [*self._bounds({"/tmp": min(self._memory // 2 or 1 << 30, 8 << 30)}), "--interactive"]
            words += ["--user", "0:0", "--workdir", WORK, *_bound({WORK: (work, True)})]
            done = self._attended(words, None, {}, image, list(argv), timeout_s, say, None)
            out = work / "out"
            if not done.timed_out and out.exists():
                size = sum(path.lstat().st_size for path in out.rglob("*"))
                if size > _MOST_MADE:
                    said = f"what the container left in {WORK}/out has more than {_MOST_MADE >> 30} GB"
                    raise Undecided(said, "see what the package's build writes there")
                with tarfile.open(made, "w") as archive:
                    archive.add(out, "out")
        return done

    def job_line(self, request: JobRequest) -> JobLine:
        """`podman run` for ``request``, whose container goes by itself."""
        return docker_run.line(self._spoken(request), self._terms())

    def attend(self, request: JobRequest, attend: Attend) -> JobEnd:
        """`podman run` by ``attend``, of a container that stays until podman has said how it ended."""
        self._same_platform(request.image)
        with self._gone_in_the_end() as name:
            # Who waits for a job asks for no health, and a podman without systemd complains that it cannot.
            quiet = ("--pull", "never", "--log-driver", "none", "--no-healthcheck")
            own = ("--name", name, "--label", self.label, *quiet)
            code = attend(docker_run.line(self._spoken(request), self._terms(), own))
            found = about("container", name)
        if found is None:
            raise Undecided("podman made no container, as it says above", "see what it names")
        end = docker_run.end(code, found["State"])
        if end.not_started:
            return replace(end, not_started="podman did not start it, as it says above")
        return replace(end, doubt=_doubt(found, request.gpus))

    def _spoken(self, request: JobRequest) -> JobRequest:
        """The request in words that this podman takes."""
        pairs = zip(request.options, request.options[1:], strict=False)
        taken = [after.partition("=")[0] for word, after in pairs if word == "--ulimit"]
        options = tuple(word for word in request.options if word != "--init" or podman_cli.has_init())
        return replace(request, options=(*podman_cli.limits(*taken), *options))

    def _terms(self) -> docker_run.Terms:
        return docker_run.Terms("podman", gpus="cdi", rootless=self.rootless)

    def _same_platform(self, image: str) -> dict[str, Any]:
        """What podman says of ``image``; Undecided for one of another platform."""
        facts, host = self._facts(image), self._info["host"]
        held.same_platform(image, facts, str(host.get("os", "")), str(host.get("arch", "")))
        return facts

    def _most(self, processes: int) -> list[str]:
        """Words that hold the number of processes, by the kernel's group where that is podman's to set."""
        if "pids" in self._controllers:
            return ["--pids-limit", str(processes)]
        # In a user namespace of its own the kernel counts the processes of that alone (ucounts, Linux 5.14).
        return ["--pids-limit", "0", "--ulimit", f"nproc={processes}:{processes}"]

    def _bounds(self, written: Mapping[str, int]) -> list[str]:
        """What holds for every container that runs code of others; it may write to folders in memory, of so many
        bytes each.  podman copies into one what the image has there (tmpcopyup)."""
        words = [
            "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only",
            "--read-only-tmpfs=false", "--image-volume", "ignore", "--no-healthcheck", "--log-driver", "none",
            "--entrypoint", "",
        ]  # fmt: skip
        for path, size in written.items():
            words += ["--tmpfs", f"{path}:rw,exec,nosuid,nodev,mode=1777,size={size}"]
        if "memory" in self._controllers and self._memory:
            most = str(self._memory * 7 // 8)
            words += ["--memory", most, "--memory-swap", most]
        words += [] if self.rootless else ["--oom-score-adj", "500"]
        # See ``docker``: at 1 byte no handler of dumps is started; who is not root may not raise a limit of 0.
        core = 0 if self.rootless else 1
        process_limit = self._most(4096)
        held = ("nproc",) if "--ulimit" in process_limit else ()
        return [*words, *process_limit, "--ulimit", f"core={core}:{core}", *podman_cli.limits(*held)]

    def _create(self, name: str, words: Sequence[str], image: str, command: Sequence[str], **env: str) -> None:
        own = ["create", "--name", name, "--label", self.label, "--pull", "never"]
        told(*own, *words, image, *command, env=env)

    def _attended(
        self,
        words: Sequence[str],
        placed: DeclaredStart | None,
        env: Mapping[str, str],
        image: str,
        command: list[str],
        timeout_s: float,
        say: Say,
        stop: Callable[[], bool] | None,
    ) -> Completed:
        """A container with the options ``words`` from its start to its end, gone when this returns or raises."""
        variables = {**(placed.environment if placed else {}), **env}
        secrets = {name: value for name, value in variables.items() if names_secret(name)}
        given = [part for name, value in variables.items()
                 for part in ("--env", name if name in secrets else f"{name}={value}")]  # fmt: skip
        if placed and placed.user:
            given += ["--user", placed.user]
        if placed and placed.workdir:
            given += ["--workdir", placed.workdir]
        with self._gone_in_the_end() as name:
            self._create(name, [*words, *given], image, command, **secrets)
            done = proc.run(
                podman_cli.argv("start", "--attach", "--interactive", name), timeout_s=timeout_s, hold_stdin=True,
                on_line=lambda line: None if line.startswith(_NO_START) else say(line), stop=stop, grace_s=_GRACE_S,
            )  # fmt: skip
            code = done.exit
            if code in _REFUSED and not done.timed_out:
                state = (about("container", name) or {}).get("State") or {}
                if state.get("Status") in _NEVER_STARTED or not _began(state):
                    raise _cannot_start(done, command[0], image)
        if not done.stdout and code in (1, 255):
            started(done.stderr, image)
        number = 128 - code if 128 < code <= 192 else code
        return Completed(tuple(command), number, done.stdout, done.stderr, done.timed_out)

    @contextmanager
    def _gone_in_the_end(self) -> Iterator[str]:
        """A name for a container, which is gone when this ends, and soon after envkit if that is killed."""
        name = f"envkit-{uuid.uuid4().hex[:16]}"
        with proc.sigterm_raises(), proc.outlived_by(reaper.command(name, podman_cli.program())):
            try:
                yield name
            finally:
                self._discard(name)

    def _discard(self, container: str) -> None:
        try:
            ask("rm", "--force", "--time", "0", "--volumes", "--ignore", container)
        except Undecided:  # its store is held by another podman: the news is what came before
            return


def _began(state: Mapping[str, Any]) -> bool:
    return not str(state.get("StartedAt") or "0001-").startswith("0001-")


def _bound(mounts: Mapping[str, tuple[Path, bool]]) -> list[str]:
    """Words for what a container sees of this machine; UsageError for what is not there."""
    words = []
    for at, (path, writable) in mounts.items():
        if not path.exists():
            raise UsageError(f"there is no {path}", "name a file or folder that exists")
        words += docker_run.bound(str(path.resolve()), at, writable)
    return words


def _doubt(found: Mapping[str, Any], gpus: Sequence[str]) -> str:
    """Why it is not sure that a container had the GPUs that it was asked with, empty if it is: podman lists the devices
    that it gave."""
    if not gpus:
        return ""
    devices = [str(one.get("PathInContainer", "")) for one in (found.get("HostConfig") or {}).get("Devices") or ()]
    if any(re.fullmatch(r"/dev/(?:nvidia\d+|dxg|nvidia-caps/.*)", device) for device in devices):
        return ""
    return "podman lists no GPU among the devices that it gave: see `nvidia-ctk cdi list`"


def _cannot_start(done: Completed, program: str, image: str) -> EnvkitError:
    text = podman_cli.words_of(done)
    if f'exec: "{program}"' in text or f"`{program}`" in text or "executable file" in text:
        if program == "python3":
            said = f"the image {image} has no python3 to run the payload with"
            return CannotStart(said, "an image without Python cannot be probed: choose one that has it on PATH")
        return CannotStart(f"the image {image} cannot start {program}: {text}", "correct ENTRYPOINT or CMD")
    fix = "run it by hand (podman --log-level=debug) to see more"
    return podman_cli.recognised(done) or CannotStart(f"the container could not be started: {text}", fix)
