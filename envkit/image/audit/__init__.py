"""What the files of an image say of it: no program of it is run, nothing of it is imported, no GPU is asked.

One pass reads the headers of the shared objects, the records of the packages and the configuration; symbols are read
only where a version cannot answer, and contents are hashed only where something else raised the suspicion.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from envkit.image import exposed
from envkit.image.audit import access, debian, environment, libraries, search, start
from envkit.image.audit.linker import Linker, is_file
from envkit.image.tree import DEFAULT_PATH, Tree, variables
from envkit.model import Observed, Reason
from envkit.payload import elf, fatbin
from envkit.payload.probe import environ, wheels
from envkit.subjects.audit import NO_LIBC, NO_TORCH, Audit, DeviceCode, Layer, Package, Secret, TorchFiles, Writable
from envkit.subjects.image import ExpectedContents, Requirement, Variable, Wheel
from envkit.versions import Sm

__all__ = ["observe"]

Item = TypeVar("Item")

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # Go's names, which image configurations use


def observe(
    tree: Tree,
    *,
    gpus: tuple[Sm, ...],
    promise: Observed[ExpectedContents],
    hash_all: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Audit:
    """What the files of ``tree`` say; ``gpus`` are those that the user named, ``promise`` what the image was built as.

    ``hash_all`` compares every file of the CUDA stack with its wheel's hash, which reads some gigabytes.  ``say`` is
    told what is being done.  A damaged file is a reason for a missing value and raises nothing.
    """
    audit = _about(tree, Audit(tree.name, tree.digest, promise=promise, gpus_given=gpus))
    found = environment.default(tree)
    pythons = None if isinstance(found, str) else found
    dists: list[environment.Dist] = []
    if pythons is None:
        audit = _without_python(audit, str(found))
        if environment.no_python(tree):
            audit = _nothing_installed(audit)
    else:
        say("reading the installed distributions")
        dists = environment.distributions(tree, pythons.found.site)
        audit = _installed(tree, audit, pythons, dists)
        if hash_all:
            say("hashing the files of torch and CUDA")
        changed = tuple(environment.overwritten(tree, dists, hash_all))
        audit = replace(audit, overwritten=Observed.of(changed, "RECORD, size and sha256"))
    say("reading the installed packages")
    debs = debian.read(tree)
    audit = replace(audit, packages=Observed.of(_packages(tree, dists, debs or ()), "RECORD and /var/lib/dpkg"))
    machine = _machine(tree, pythons)
    if audit.platform.missing and machine:
        audit = replace(audit, platform=Observed.of(machine, "ELF header of a program"))
    say("reading the shared objects")
    owners = libraries.wheel_owners(tree, dists)
    for deb in debs or ():
        for path in deb.files:
            if ".so" in path:
                owners.setdefault(path, libraries.Owner("deb", deb.name, deb.version))
    linker = _linker(tree, machine, dists)
    audit = _bound(tree, audit, linker, pythons, dists, owners)
    owned = {path for deb in debs or () for path in deb.files}
    owned |= {entry.path for dist in dists for entry in environment.listed_by(dist)}
    if pythons is not None:
        say("following what an import finds")
        audit = replace(
            audit, search=Observed.of(search.search(tree, pythons, owned), "the folders of the search path")
        )
        audit = replace(audit, closed=access.closed(tree, pythons, dists))
    audit = replace(audit, preloads=Observed.of(tuple(start.preloads(tree, machine)), "/etc/ld.so.preload, LD_PRELOAD"))
    audit = replace(audit, entrypoint=start.entrypoint(tree))
    say("looking for credentials")
    unread = [f"{path}: {why}" for path, why in tree.unread.items()]
    secrets = _secrets(tree, owned, unread)
    return replace(
        audit,
        secrets=Observed.of(secrets, "configuration, history and files"),
        unread=Observed.of(tuple(sorted(unread)), "open, scandir"),
        writable=Observed.of(_writable(tree, audit, linker.searched()), "file modes"),
    )


def _about(tree: Tree, audit: Audit) -> Audit:
    """What the configuration and the layers say."""
    config, via = tree.config, "image config"
    none = "a directory has no image configuration"
    architecture = str(config.get("architecture") or "")
    once = {id(entry): entry for entry in tree.entries.values() if entry.kind == "file"}  # hard links share an entry
    size = sum(entry.size for entry in once.values())
    env = []
    for name, value in sorted(variables(tree.config).items()):
        if environ.steers(name) or name == "TMPDIR":  # which a probe sets for its own process
            idle = environ.idle(value, partial(_names, tree)) if name == "LD_LIBRARY_PATH" else ()
            env.append(
                Variable(
                    name, exposed.command(value)[0], tuple(idle), "" if name.startswith("LD_") else _leads(tree, value)
                )
            )
    layers = tuple(Layer(layer.size, exposed.command(layer.command)[0]) for layer in tree.layers)
    return replace(
        audit,
        platform=Observed.of(_MACHINES.get(architecture, architecture), via) if architecture else Observed.lost(none),
        user=Observed.of(str(config.get("User") or "root"), via) if config else Observed.lost(none),
        variables=Observed.of(tuple(env), via if config else none),
        layers=Observed.of(layers, "history"),
        size=Observed.of(size, "sizes of all files"),
        hidden=Observed.of(tree.hidden, "files that a later layer replaced or removed"),
    )


def _leads(tree: Tree, value: str) -> str:
    """What the image has at the path that a variable's value is, in the words of ``Variable.leads``."""
    if not value.startswith("/") or ":" in value:
        return ""
    real = tree.real(value)
    if not real:
        return "absent"
    entry = tree.entries[real]
    if entry.kind == "file":
        return "program" if entry.mode & 0o111 else "file"
    return "directory" if entry.kind == "directory" else "other"


def _names(tree: Tree, directory: str) -> list[str]:
    inside = f"{tree.real(directory)}/"
    return [path[len(inside) :] for path in tree.entries if path.startswith(inside)] if len(inside) > 1 else []


def _without_python(audit: Audit, why: str) -> Audit:
    """The audit with everything left open that depends on where Python imports from."""
    lost = Observed[Any].lost(why)
    there = replace(audit, search=lost, modules=lost, closed=lost)
    return replace(there, python=lost, interpreter=lost, wheels=lost, requires=lost, overwritten=lost, torch=lost)


def _nothing_installed(audit: Audit) -> Audit:
    """The audit of a tree that was read whole and holds no Python: that nothing is installed for one was seen."""
    none = Observed[Any].of((), "no Python among all files")
    torch = Observed[Any].lost(NO_TORCH, reason=Reason.NO_TORCH)
    return replace(audit, torch=torch, wheels=none, requires=none, overwritten=none)


def _installed(tree: Tree, audit: Audit, pythons: environment.Pythons, dists: list[environment.Dist]) -> Audit:
    python = (
        Observed.of(pythons.version, pythons.via)
        if pythons.version
        else Observed[str].lost(f"{pythons.found.path} does not tell its version by its name or its files")
    )
    closure = search.needed(dists)
    asked = tuple(
        Requirement(dist.name, dist.version, line)
        for dist in dists
        if dist.name in ("torch", "cuda-toolkit") or dist.name in closure
        for line in dist.requires
        if wheels.asks(dist.name, line, closure)
    )
    return replace(
        audit,
        python=python,
        interpreter=Observed.of(pythons.found, "PATH of the image"),
        wheels=Observed.of(tuple(Wheel(dist.name, dist.version) for dist in dists), "METADATA"),
        requires=Observed.of(asked, "METADATA"),
        modules=Observed.of(search.modules(tree, pythons, dists), "RECORD, the search path"),
        torch=_torch(tree, dists),
    )


def _torch(tree: Tree, dists: list[environment.Dist]) -> Observed[TorchFiles]:
    dist = next((each for each in dists if each.name == "torch"), None)
    if dist is None:
        return Observed.lost(NO_TORCH, reason=Reason.NO_TORCH)
    said = environment.torch_version(tree, dist)
    if said.value is None:
        return said.absence("")
    return Observed.of(TorchFiles(*said.value, f"{dist.base}/torch"), said.via)


def _packages(tree: Tree, dists: list[environment.Dist], debs: tuple[debian.Deb, ...]) -> tuple[Package, ...]:
    found = environment.packages(tree, dists)
    for deb in debs:
        size = sum(tree.entries[path].size for path in deb.files)
        found.append(Package("deb", deb.name, deb.version, size, len(deb.files)))
    return tuple(sorted(found, key=lambda one: (-one.size, one.name)))


def _machine(tree: Tree, pythons: environment.Pythons | None) -> str:
    """The ELF machine of the tree's programs: its Python's, else that of the first shared object."""
    if pythons is not None and pythons.found.machine:
        return pythons.found.machine
    for path in libraries.shared(tree, pythons.found.site if pythons else ()):
        try:
            return elf.read(tree.data(path)).machine
        except ValueError:
            continue
    return ""


def _linker(tree: Tree, machine: str, dists: list[environment.Dist]) -> Linker:
    path = variables(tree.config).get("LD_LIBRARY_PATH", "")
    entries = tuple(one.rstrip("/") or "/" for one in path.replace(";", ":").split(":") if one)
    names = {posixpath.basename(line.path) for dist in dists for line in environment.listed_by(dist, ".so")}
    return Linker(tree, machine, entries, partial(libraries.opens, tree), frozenset(names))


def _bound(
    tree: Tree,
    audit: Audit,
    linker: Linker,
    pythons: environment.Pythons | None,
    dists: list[environment.Dist],
    owners: dict[str, libraries.Owner],
) -> Audit:
    """What ld.so would do with the shared objects, and what they hold."""
    survey = libraries.Survey(tree, linker, pythons, dists, owners)
    version, libc = survey.libc()
    extensions = _read(survey.extensions, "their ELF sections", "device code of an extension")
    audit = replace(
        audit,
        libc=Observed.of(f"glibc {version}", libc) if version else Observed.lost(NO_LIBC, reason=Reason.NO_LIBC),
        code=_code(tree, audit, survey),
        extensions=extensions if pythons or audit.wheels.value == () else audit.python.absence(""),
        cudnn=Observed.of(tuple(survey.cudnn()), "their strings"),
        copies=Observed.of(tuple(survey.copies()), "file names"),
        drivers=Observed.of(tuple(survey.drivers()), "file names"),
        cxx=Observed.of(tuple(survey.cxx()), "DT_VERDEF of libstdc++.so.6"),
    )
    why = linker.cache_error
    if not linker.whole and any(name.startswith("/lib/ld-musl-") for name in tree.entries):
        why = "the C library is musl, whose search for libraries was not followed"
    elif not linker.machine:
        why = "no ELF file of 64 bits was found"
    if why:
        return replace(audit, objects=Observed.lost(why), unmet=Observed.lost(why))
    objects = Observed.of(tuple(survey.objects()), "the search of ld.so, followed in the files")
    what = "the dynamic symbols of a shared object"
    return replace(audit, objects=objects, unmet=_read(survey.unmet, "version tables and dynamic symbols", what))


def _read(found: Callable[[], Iterable[Item]], via: str, what: str) -> Observed[tuple[Item, ...]]:
    """All that ``found`` gives, lost where ``what`` is damaged."""
    try:
        return Observed.of(tuple(found()), via)
    except ValueError as error:
        return Observed.lost(f"{what}: {error}")


def _code(tree: Tree, audit: Audit, survey: libraries.Survey) -> Observed[DeviceCode]:
    """The device code of the torch that Python imports."""
    torch = audit.torch.value
    if torch is None:
        return audit.torch.absence("")
    if not torch.cuda:
        return Observed.lost(f"torch {torch.version} is built without CUDA")
    path = f"{torch.path}/lib/libtorch_cuda.so"
    header = survey.linker.header(tree.real(path)) if is_file(tree, path) else None
    if header is None:
        return Observed.lost(f"{path} is missing or damaged")
    try:
        code = fatbin.read(tree.data(path), header)
    except ValueError as error:
        return Observed.lost(f"{path}: {error}")
    if code is None:
        return Observed.lost(f"{path} holds no device code")
    return Observed.of(DeviceCode(path, code.sass, code.ptx), "the fat binaries in libtorch_cuda.so")


def _secrets(tree: Tree, owned: Collection[str], unread: list[str]) -> tuple[Secret, ...]:
    found = [exposed.variable(name, value) for name, value in sorted(variables(tree.config).items())]
    for number, layer in enumerate(tree.layers, 1):
        if exposed.command(layer.command)[1]:
            found.append(Secret(f"command of layer {number}", "a credential in the image's history"))
    found += exposed.files(tree, owned, unread)
    return tuple(secret for secret in found if secret is not None)


def _writable(tree: Tree, audit: Audit, linker_places: Iterable[tuple[str, str]]) -> tuple[Writable, ...]:
    path = variables(tree.config).get("PATH", DEFAULT_PATH)
    places = [(each, "PATH") for each in path.split(":") if each.startswith("/")]
    site = audit.interpreter.value.site if audit.interpreter.value else ()
    places += [(each, "Python imports from it") for each in site]
    return tuple(exposed.writable(tree, [*places, ("/etc", "configuration"), *linker_places]))
