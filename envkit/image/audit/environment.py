"""The Python that an image runs by default, what is installed for it, and what its torch says of itself."""

from __future__ import annotations

import ast
import base64
import csv
import fnmatch
import hashlib
import mmap
import posixpath
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from envkit.image.audit.linker import is_file, text
from envkit.image.tree import DEFAULT_PATH, Tree, variables
from envkit.model import Observed
from envkit.payload import elf
from envkit.payload.probe import wheels
from envkit.records import dataclass
from envkit.subjects.audit import Interpreter, Package
from envkit.subjects.image import NO_RECORD, Overwritten

_VERSION = re.compile(r"python(3\.[0-9]+)t?\Z")
# A program, whatever its version or place; its library; what installers leave; a torch for C++.
_OF_PYTHON = re.compile(
    r"/((python|pypy)[0-9.]*t?(\.exe)?|lib(python|pypy|torch)[^/]*|pyvenv\.cfg|conda-meta|(site|dist)-packages"
    r"|[^/]*\.(dist-info|egg-info|egg|pex|whl|pyz))\Z"
)
_THREADS = 4  # hashlib releases the GIL
_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class Dist:
    """One installed distribution: ``name`` as PEP 503 spells it, the text of its RECORD, the directory that this counts
    from, and the ``layer`` that RECORD, which an installer writes last, is in."""

    name: str
    version: str
    requires: tuple[str, ...]
    record: str
    base: str
    layer: int


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One line of a RECORD with a hash: ``sha256`` as RECORD spells it, ``size`` -1 if not given."""

    path: str
    sha256: str
    size: int
    owner: str
    version: str


@dataclass(frozen=True, slots=True)
class Pythons:
    """The default Python: its version as far as files tell it, how they do, and where it imports from."""

    version: str
    via: str
    found: Interpreter


def default(tree: Tree) -> Pythons | str:
    """The Python that ``python3`` names on the image's PATH, else that of the only virtual environment there is.

    Where there is neither, or it is a script that may start any, the reason why it stays open.
    """
    path = _on_path(tree)
    if not path:
        venvs = [one for one in tree.entries if one.endswith("/pyvenv.cfg") and is_file(tree, one)]
        if len(venvs) != 1:
            return f"no python3 is on the image's PATH, and {len(venvs) or 'no'} virtual environments are elsewhere"
        path = f"{posixpath.dirname(venvs[0])}/bin/python3"
    real = tree.real(path)
    machine = ""
    if real and tree.entries[real].kind == "file":
        try:
            machine = elf.read(tree.data(real)).machine
        except ValueError as error:
            return f"which Python {path} starts is open: {error}"
    site, version, via = _sites(tree, path, real)
    others = {
        posixpath.dirname(each)
        for each, entry in tree.entries.items()
        if entry.kind == "directory" and each.endswith(".dist-info") and posixpath.dirname(each) not in site
    }
    stray = sorted(each for each in others if each.endswith(("-packages", "/site")))
    return Pythons(version, via, Interpreter(path, machine, tuple(site), tuple(stray)))


def no_python(tree: Tree) -> bool:
    """Whether everything could be looked at, and nowhere lies a Python, a package of one or a library of torch's."""
    return not tree.unread and not any(_OF_PYTHON.search(path) for path in tree.entries)


def _on_path(tree: Tree) -> str:
    for directory in variables(tree.config).get("PATH", DEFAULT_PATH).split(":"):
        for name in ("python3", "python"):
            path = posixpath.normpath(f"{directory}/{name}") if directory.startswith("/") else ""
            if not path:
                continue
            if is_file(tree, path):
                return path
            folder = tree.real(posixpath.dirname(path))
            entry = tree.entries.get(f"{folder.rstrip('/')}/{name}") if folder else None
            # A directory that is a virtual environment: its Python lies in the system around it.
            if entry is not None and entry.kind == "link" and _venv(tree, path):
                return path
    return ""


def _venv(tree: Tree, path: str) -> str:
    """The pyvenv.cfg that the Python at ``path`` would find (site, PEP 405), empty if there is none."""
    folder = posixpath.dirname(path)
    for place in (folder, posixpath.dirname(folder)):
        if is_file(tree, f"{place.rstrip('/')}/pyvenv.cfg"):
            return f"{place.rstrip('/')}/pyvenv.cfg"
    return ""


def _sites(tree: Tree, path: str, real: str) -> tuple[list[str], str, str]:
    """The directories of installed packages, first the one that wins, the version, and where it was read."""
    found: list[str] = []
    for directory in variables(tree.config).get("PYTHONPATH", "").split(":"):
        if directory.startswith("/"):
            found.append(posixpath.normpath(directory))
    config = _venv(tree, path)
    version, via, system = "", "", True
    if config:
        said = {
            key.strip().lower(): value.strip()
            for key, _, value in (line.partition("=") for line in text(tree, config).splitlines())
        }
        version = said.get("version_info", said.get("version", ""))
        number = re.match(r"[0-9]+(\.[0-9]+)*", version)
        version = number[0] if number else ""
        via, system = config, said.get("include-system-site-packages", "").lower() == "true"
        found += _under(tree, posixpath.dirname(config), version)
    if system and real:
        prefix = posixpath.dirname(posixpath.dirname(real))
        name = _VERSION.match(posixpath.basename(real))
        libs = f"{prefix.rstrip('/')}/lib"
        named = [match[1] for match in map(_VERSION.match, _names(tree, libs)) if match]
        minor = name[1] if name else (named[0] if len(named) == 1 else "")
        if not version:
            version, via = _full(tree, libs, minor), real if name else libs
        if not config and variables(tree.config).get("PYTHONNOUSERSITE", "") == "":
            found += _under(tree, f"{home(tree)}/.local", minor)
        if prefix == "/usr":
            found += [*_under(tree, "/usr/local", minor), f"/usr/local/lib/python{minor}/dist-packages"]
            found.append("/usr/lib/python3/dist-packages")
        found += _under(tree, prefix, minor)
    real_of = {tree.real(each): None for each in dict.fromkeys(found)}
    sites = [each for each in real_of if each and tree.entries[each].kind == "directory"]
    for each in tuple(sites):
        sites += [more for more in _from_pth(tree, each) if more not in sites]
    return sites, version, via


def home(tree: Tree) -> str:
    """HOME as a container has it: the image's variable, else that of its user by custom."""
    user = str(tree.config.get("User") or "root").partition(":")[0]
    return variables(tree.config).get("HOME") or ("/root" if user in ("root", "0") else f"/home/{user}")


def _names(tree: Tree, folder: str) -> list[str]:
    inside = f"{tree.real(folder).rstrip('/')}/"
    return sorted({each[len(inside) :].partition("/")[0] for each in tree.entries if each.startswith(inside)})


def _under(tree: Tree, prefix: str, version: str) -> list[str]:
    minor = ".".join(version.split(".")[:2])
    if minor:
        return [f"{prefix.rstrip('/')}/{lib}/python{minor}/site-packages" for lib in ("lib", "lib64")]
    names = [name for name in _names(tree, f"{prefix.rstrip('/')}/lib") if _VERSION.match(name)]
    return [f"{prefix.rstrip('/')}/lib/{name}/site-packages" for name in names]


def _full(tree: Tree, libs: str, minor: str) -> str:
    """The version to its third number where patchlevel.h lies beside the Python, else ``minor``."""
    header = f"{posixpath.dirname(libs)}/include/python{minor}/patchlevel.h"
    found = re.search(r'PY_VERSION\s+"([0-9.]+)', text(tree, header)) if is_file(tree, header) else None
    return found[1] if found else minor


def _from_pth(tree: Tree, site: str) -> Iterator[str]:
    """The directories that .pth files of ``site`` add (module site); lines of code are not run and add nothing."""
    for name in _names(tree, site):
        path = f"{site}/{name}"
        if not name.endswith(".pth") or not is_file(tree, path):
            continue
        for line in text(tree, path, 1 << 16).splitlines():
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                real = tree.real(posixpath.normpath(posixpath.join(site, line.strip())))
                if real and tree.entries[real].kind == "directory":
                    yield real


def distributions(tree: Tree, site: tuple[str, ...]) -> list[Dist]:
    """What importlib.metadata would find in ``site``, the first directory of a name winning."""
    found: list[Dist] = []
    base_of: dict[str, str] = {}
    places: dict[str, list[str]] = {each: [] for each in site}
    for path in tree.entries:
        if path.endswith((".dist-info", ".egg-info")):
            places.get(posixpath.dirname(path), []).append(path)
    for base, paths in places.items():
        for path in paths:
            file = next((one for one in (f"{path}/METADATA", f"{path}/PKG-INFO", path) if is_file(tree, one)), "")
            name, version, requires = _metadata(text(tree, file, 1 << 20)) if file else ("", "", ())
            if not name or base_of.setdefault(name, base) != base:
                continue
            record = f"{path}/RECORD"
            listed = text(tree, record, 64 << 20) if is_file(tree, record) else ""
            layer = tree.entries[tree.real(record) or tree.real(file)].layer
            found.append(Dist(name, version, requires, listed, base, layer))
    return sorted(found, key=lambda dist: (dist.name, dist.version))


def _metadata(said: str) -> tuple[str, str, tuple[str, ...]]:
    """Name, version and Requires-Dist of the core metadata in ``said``; a header ends at the first empty line."""
    name = version = ""
    requires: list[str] = []
    for line in said.splitlines():
        key, _, value = line.partition(":")
        if not line:
            break
        if key == "Name":
            name = wheels.normalise(value.strip())
        elif key == "Version":
            version = value.strip()
        elif key == "Requires-Dist":
            requires.append(value.strip())
    return name, version, tuple(requires)


def listed_by(dist: Dist, only: str = "") -> list[RecordEntry]:
    """The lines of a distribution's RECORD that carry a sha256 and hold the text ``only``, with absolute paths."""
    try:
        rows = [row for row in csv.reader(line for line in dist.record.splitlines() if only in line) if len(row) == 3]
    except csv.Error:
        return []  # what cannot be read lists nothing, and is told so
    found = []
    for path, hashed, size in rows:
        kind, _, digest = hashed.partition("=")
        if kind == "sha256":
            bytes_ = int(size) if size.isascii() and size.isdigit() else -1
            found.append(RecordEntry(_place(dist.base, path), digest, bytes_, dist.name, dist.version))
    return found


def _place(base: str, path: str) -> str:
    """Where a path of RECORD leads; most need no normalising, which is slow."""
    plain = path[:1] not in ("", ".", "/") and "/." not in path
    return f"{base}/{path}" if plain else posixpath.normpath(posixpath.join(base, path))


def packages(tree: Tree, dists: list[Dist]) -> list[Package]:
    """The distributions with the bytes of the files that their RECORD lists."""
    found = []
    for dist in dists:
        sizes = []
        for line in dist.record.splitlines():
            entry = tree.entries.get(_place(dist.base, line.partition(",")[0].strip('"')))
            if entry is not None and entry.kind == "file":
                sizes.append(entry.size)
        found.append(Package("wheel", dist.name, dist.version, sum(sizes), len(sizes)))
    return found


def digest(tree: Tree, path: str) -> str:
    """The sha256 of the file at ``path`` as RECORD spells it."""
    total = hashlib.sha256()
    data = tree.data(path)
    # A map of this file alone may be read ahead, and let go of behind: gigabytes are not kept for one look at each.
    whole = data.obj if isinstance(data.obj, mmap.mmap) and len(data.obj) == len(data) else None
    if whole is not None:
        whole.madvise(mmap.MADV_SEQUENTIAL)
    for at in range(0, len(data), _CHUNK):
        total.update(data[at : at + _CHUNK])
        if whole is not None:
            whole.madvise(mmap.MADV_DONTNEED, at, min(_CHUNK, len(data) - at))
    return base64.urlsafe_b64encode(total.digest()).rstrip(b"=").decode()


def overwritten(tree: Tree, dists: list[Dist], hash_all: bool) -> list[Overwritten]:
    """The files of the CUDA stack that are not what each owner's RECORD says.

    Every listed file is compared by size.  Hashed are those that two distributions list with different hashes, and
    shared libraries that lie in another layer than the wheel's RECORD, for something put them there after it;
    with ``hash_all`` every one.  Missing are only shared libraries: images are slimmed by removing headers and tests.
    """
    listed: dict[str, list[RecordEntry]] = {}
    found: list[Overwritten] = []
    layer_of: dict[str, int] = {}
    for dist in dists:
        if not wheels.is_cuda(dist.name):
            continue
        lines = listed_by(dist)
        for entry in lines:
            listed.setdefault(entry.path, []).append(entry)
        if not lines:
            found.append(Overwritten(dist.base, (f"{dist.name}=={dist.version}",), NO_RECORD))
        layer_of[dist.name] = dist.layer
    real = {path: _real(tree, path) for path in listed}
    suspects = [
        path
        for path, who in listed.items()
        if real[path]
        and all(entry.size in (-1, tree.entries[real[path]].size) for entry in who)
        and (hash_all or len({entry.sha256 for entry in who}) > 1 or _moved(tree, path, who, layer_of))
    ]
    with ThreadPoolExecutor(_THREADS) as pool:
        hashes = dict(zip(suspects, pool.map(lambda path: digest(tree, path), suspects), strict=True))
    for path, who in sorted(listed.items()):
        has = _found(tree, real[path], path, who, hashes.get(path, ""))
        if has:
            found.append(Overwritten(path, tuple(f"{one.owner}=={one.version}" for one in who), has))
    return found


def _real(tree: Tree, path: str) -> str:
    entry = tree.entries.get(path)
    real = path if entry is not None and entry.kind == "file" else tree.real(path)
    return real if real and tree.entries[real].kind == "file" else ""


def _moved(tree: Tree, path: str, who: list[RecordEntry], layer_of: Mapping[str, int]) -> bool:
    entry = tree.entries.get(path)
    if ".so" not in posixpath.basename(path) or entry is None:
        return False
    return entry.kind == "link" or all(entry.layer != layer_of[one.owner] for one in who)


def _found(tree: Tree, real: str, path: str, who: list[RecordEntry], sha256: str) -> str:
    """What the file is instead of what each of ``who`` lists, in the words of the probe; empty if it is that."""
    if not real:
        return "the file is missing" if ".so" in posixpath.basename(path) else ""
    size = tree.entries[real].size
    if sha256:
        if all(one.sha256 == sha256 for one in who):
            return ""
        return next((f"{one.owner}=={one.version}" for one in who if one.sha256 == sha256), "none of their hashes")
    if all(one.size in (-1, size) for one in who):
        return ""
    fitting = next((f"{one.owner}=={one.version} by size" for one in who if one.size == size), "")
    return fitting or f"{size} bytes, none of their sizes"


def torch_version(tree: Tree, dist: Dist) -> Observed[tuple[str, str]]:
    """torch's version and CUDA, which torch/version.py names in plain assignments."""
    path = f"{dist.base}/torch/version.py"
    if not is_file(tree, path):
        return Observed.lost(f"{path} is missing")
    said = text(tree, path, 1 << 16)
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", said, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=\n]*=\s*(?:['\"]([0-9.]+)['\"]|None)", said, re.MULTILINE)
    if version is None or cuda is None:
        return Observed.lost(f"{path} does not name version and CUDA as torch's own does")
    return Observed.of((version[1], cuda[1] or ""), path)


def preloads(tree: Tree, base: str) -> tuple[tuple[str, ...], bool]:
    """The libraries, as patterns of file names, that ``import torch`` opens by path after its own, in order; and
    whether it goes on after one that is missing.

    Read in torch/__init__.py: calls of its ``_preload_cuda_deps`` outside an ``except``; with two texts they name one
    library, without they go through the pairs in that function.  None for a torch that does not do so.
    """
    path = f"{base}/torch/__init__.py"
    if not is_file(tree, path):
        return (), False
    try:
        module = ast.parse(text(tree, path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no Python that torch would ship
        return (), False
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    start = functions.get("_load_global_deps")
    tries = [node for node in ast.walk(start) if isinstance(node, ast.Try)] if start else []
    found: list[str] = []
    lenient = False
    for call in (node for each in tries for part in each.body for node in ast.walk(part)):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "_preload_cuda_deps":
            continue
        texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if len(texts) == 2:
            found.append(texts[1])
        elif "_preload_cuda_deps" in functions:
            found += _pairs(functions["_preload_cuda_deps"])
            lenient = any(each.arg == "required" for each in call.keywords)
    return tuple(dict.fromkeys(found)), lenient


def _pairs(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        items = node.elts if isinstance(node, ast.Tuple) else node.args[:2] if isinstance(node, ast.Call) else []
        texts = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        if len(texts) == 2 and ".so" in texts[1]:
            yield texts[1]


def matching(paths: list[str], pattern: str) -> str:
    """The first of ``paths`` whose file name fits ``pattern``, empty if none does."""
    return next((path for path in paths if fnmatch.fnmatchcase(posixpath.basename(path), pattern)), "")
