"""What an AOTInductor package says of itself, read without torch and without running anything of it.

A package (.pt2) is a zip: ``data/aotinductor/<model>/`` holds the model's library, the metadata that torch wrote beside
it, the machine code of its GPU kernels and, mostly, the C++ source it was made from, whose checks of the inputs spell
out what each input must be (torch/_inductor/codegen/cpp_wrapper_cpu.py, ``generate_input_output_runtime_checks``).
Older releases give a bare library.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from envkit.payload import elf

_MEMBERS = 20000  # a package of many models has hundreds
_TEXT = 64 << 20  # bytes of a source or of read-only data that are looked through
_JSON = 1 << 20
_INFLATED = 512 << 20  # torch stores its members; one that is packed is unpacked in memory
_RATIO = 200  # text packs a hundredfold; a bomb a thousandfold
_FOLDER = re.compile(r"(?:^|/)data/aotinductor/([^/]+)/([^/]+)\Z")
_KERNELS = (b".cubin\0", b".fatbin\0")
_SAID = 4096  # characters of a value that is not ours to trust

# The texts that the generated checks throw, as the source spells them; the first group is the input's position.
_NAME = re.compile(r'inputs_info_\[(\d+)\]\.name = "([^"\\\n]{1,200})";')
_DTYPE = re.compile(r'input_handles\[(\d+)\]: unmatched dtype, "\s*<< "expected: " << \w+ << "\((?:at::k)?(\w+)\), "')
_DEVICE = re.compile(r'input_handles\[(\d+)\]: unmatched device type, "\s*<< "expected: " << \w+ << "\d+\((\w+)\), "')
_DIM = re.compile(r'input_handles\[(\d+)\]: unmatched dim value at (\d+), "\s*<< "expected: (\d+), "')
_LEAST = re.compile(r'input_handles\[(\d+)\]: dim value is too small at (\d+), "\s*<< "expected it to be >= (\d+), "')
_MOST = re.compile(r'input_handles\[(\d+)\]: dim value is too large at (\d+), "\s*<< "expected to be <= (\d+), "')
_STRIDE = re.compile(r'input_handles\[(\d+)\]: unmatched stride value at (\d+), "\s*<< "expected: (\d+), "')
_DTYPES = {  # c10/core/ScalarType.h to the names that Python uses
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128", "ComplexHalf": "complex32",
}  # fmt: skip
_KEYS = {  # of the metadata
    "device": "AOTI_DEVICE_KEY", "machine": "AOTI_MACHINE", "isa": "AOTI_CPU_ISA",
    "capability": "AOTI_COMPUTE_CAPABILITY",
}  # fmt: skip
_DIMS = 64  # at most; a number beyond it is no dimension
# What only libstdc++ itself defines: no header has it, so a library that exports one was linked with all of libstdc++.a
# that it uses.  The state that cannot be there twice hangs on the first two.
_RUNTIME = {
    "_ZNSt6locale7classicEv": "std::locale::classic()",
    "_ZNSt6locale2id11_S_refcountE": "std::locale::id::_S_refcount",
    "_ZNSt8ios_base4InitC1Ev": "std::ios_base::Init::Init()",
    "__cxa_throw": "__cxa_throw",
}
_STD = re.compile(r"_Z(?:GV)?(?:T[A-Z])?(?:N[VKRO]*)?St")  # Itanium C++ ABI 5.1: what is in namespace std


class Broken(Exception):
    """The package cannot be read; the text says why in one sentence."""


def empty(path: str) -> dict[str, Any]:
    """A package of which nothing is known yet."""
    return {
        "path": path, "size": 0, "form": "", "model": "", "models": [], "device": "", "machine": "", "isa": "",
        "capability": "", "libraries": [], "kernels": [], "inputs": [], "error": "",
    }  # fmt: skip


def kernel_arch(data: memoryview) -> str:
    """The architecture that a cubin is machine code for ("sm_90a"); raises ValueError if it is no cubin.

    The ELF header names it in its flags: up to ABI version 7 in the lowest byte, with bit 11 for code of exactly that
    architecture; from version 8 on in the second byte, with bit 3 (assembled by ptxas of three toolkits and read
    back; family code, "f", carries no mark of its own).
    """
    head = bytes(data[:64])
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", head, 18)[0] != 190:
        raise ValueError("it is no machine code for NVIDIA GPUs")
    (flags,) = struct.unpack_from("<I", head, 48)
    number, exact = ((flags >> 8) & 0xFF, flags & 0x8) if head[8] >= 8 else (flags & 0xFF, flags & 0x800)
    return f"sm_{number}{'a' if exact else ''}"


def _names_in(text: bytes) -> Iterator[str]:
    """The paths of GPU kernels that a library's read-only data names."""
    for ending in _KERNELS:
        at = text.find(ending)
        while at >= 0:
            begin = text.rfind(b"\0", max(0, at - _SAID), at) + 1
            name = text[begin : at + len(ending) - 1].decode("utf-8", "replace")
            if name.isprintable() and not os.path.basename(name).startswith((".", "%")):
                yield name
            at = text.find(ending, at + 1)


def library(name: str, data: memoryview) -> dict[str, Any]:
    """What the model's library ``name`` asks of the machine that loads it."""
    said: dict[str, Any] = {
        "name": name, "size": len(data), "machine": "", "needed": [], "needs": [], "search": [], "kernels": [],
        "guards": "", "carries": [], "std": 0, "error": "",
    }  # fmt: skip
    try:
        found = elf.read(data)
        exported = {symbol.name for symbol in elf.symbols(data, found) if symbol.defined}
    except ValueError as error:
        said["error"] = str(error)
        return said
    start, size = found.sections.get(".rodata", (0, len(data)))
    text = bytes(data[start : start + min(size, _TEXT)])
    guarded = b"unmatched dtype" in text
    said.update(
        machine=found.machine,
        needed=list(found.needed),
        needs=[{"library": provider, "versions": list(versions)} for provider, versions in found.needs],
        search=[*found.rpath, *found.runpath],
        kernels=sorted(set(_names_in(text))),
        carries=[words for name, words in _RUNTIME.items() if name in exported],
        std=sum(1 for name in exported if _STD.match(name)),
        guards="" if not guarded else "variable" if b"AOTI_RUNTIME_CHECK_INPUTS" in text else "always",
    )
    return said


def inputs(source: str) -> list[dict[str, Any]]:
    """What the generated source says of each input, by position; a dimension that may vary is null.

    ``least`` and ``most`` are the bounds of each dimension, null where the source names none.
    """
    names = {int(at): name for at, name in _NAME.findall(source)}
    dtypes = {int(at): _DTYPES.get(name, name.lower()) for at, name in _DTYPE.findall(source)}
    devices = {int(at): name for at, name in _DEVICE.findall(source)}
    tables: dict[str, dict[int, dict[int, int]]] = {}
    for key, pattern in (("shape", _DIM), ("least", _LEAST), ("most", _MOST), ("stride", _STRIDE)):
        table = tables.setdefault(key, {})
        for at, dim, value in pattern.findall(source):
            if int(dim) < _DIMS:
                table.setdefault(int(at), {})[int(dim)] = int(value)
    said = []
    for at in sorted({*names, *dtypes}):
        rank = max((dim + 1 for table in tables.values() for dim in table.get(at, {})), default=0)
        one: dict[str, Any] = {"name": names.get(at, ""), "dtype": dtypes.get(at, ""), "device": devices.get(at, "")}
        for key, table in tables.items():
            # Without a check of its type nothing was written of this input at all, not even that it has no dimension.
            one[key] = [table.get(at, {}).get(dim) for dim in range(rank)] if at in dtypes else None
        said.append(one)
    return said


def _start(file: memoryview, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin; raises Broken if they lie nowhere."""
    head = bytes(file[member.header_offset : member.header_offset + 30])
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise Broken(f"the zip is damaged: {member.filename} has no header where the zip's table says")
    name, extra = struct.unpack_from("<HH", head, 26)
    start = member.header_offset + 30 + name + extra
    if start + member.file_size > len(file):
        raise Broken(f"the zip is damaged: {member.filename} ends behind the end of the file")
    return int(start)


def _as_it_lies(member: zipfile.ZipInfo) -> bool:
    return member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1


def _bytes_of(archive: zipfile.ZipFile, file: memoryview, member: zipfile.ZipInfo, limit: int) -> memoryview:
    """The content of a member, checked against its checksum; raises Broken."""
    if _as_it_lies(member):
        start = _start(file, member)
        data = file[start : start + member.file_size]
        if len(data) <= _INFLATED and zlib.crc32(data) != member.CRC:
            raise Broken(f"the zip is damaged: the content of {member.filename} does not have its checksum")
        return data
    if member.file_size > limit:
        raise Broken(f"{member.filename} would unpack to {member.file_size} bytes, more than the {limit} that are read")
    try:
        with archive.open(member) as stream:
            return memoryview(stream.read(limit))
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise Broken(f"the zip is damaged: {member.filename}: {error}") from None


def _listed(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The members, if none of them lies or leads out of the package; raises Broken."""
    members = archive.infolist()
    if len(members) > _MEMBERS:
        raise Broken(f"the zip lists {len(members)} members, more than the {_MEMBERS} that are read")
    seen = set()
    for member in members:
        name = member.filename
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise Broken(f"the member {name[:200]!r} leads out of the package, so loading it writes elsewhere")
        if name in seen:
            raise Broken(f"the zip lists {name[:200]!r} twice")
        seen.add(name)
        if member.file_size > _JSON and member.file_size > _RATIO * max(1, member.compress_size):
            raise Broken(f"{name[:200]!r} unpacks from {member.compress_size} to {member.file_size} bytes: a zip bomb")
    return members


def _metadata(texts: list[tuple[str, bytes]]) -> dict[str, str]:
    """The keys that torch wrote; the wrapper's file speaks for its model."""
    said: dict[str, str] = {}
    for name, text in sorted(texts, key=lambda one: "wrapper" not in one[0]):
        try:
            document = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError):
            raise Broken(f"{name} holds no JSON") from None
        if not isinstance(document, dict):
            raise Broken(f"{name} holds no object")
        for key, value in document.items():
            if isinstance(value, str):
                said.setdefault(key, value[:_SAID])
    return said


def _chosen(models: list[str], wanted: str) -> str:
    if not models:
        raise Broken("it holds no AOTInductor model: no member lies in data/aotinductor/")
    if wanted and wanted not in models:
        raise Broken(f"it holds no model {wanted!r}; its models are {', '.join(models[:20])}")
    return wanted or ("model" if "model" in models else models[0])


def _read_zip(path: str, file: memoryview, wanted: str, said: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Fills ``said``; where the model's libraries lie in the file, by name."""
    places: dict[str, tuple[int, int]] = {}
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error, EOFError) as error:
        raise Broken(f"it is no whole zip: {error}") from None
    with archive:
        members = _listed(archive)
        parts = [(match, member) for member in members for match in [_FOLDER.search(member.filename)] if match]
        said["models"] = sorted({match[1] for match, _ in parts})
        said["model"] = _chosen(said["models"], wanted)
        mine = [(match[2], member) for match, member in parts if match[1] == said["model"]]
        texts = []
        for name, member in mine:
            if name.endswith("_metadata.json"):
                texts.append((name, bytes(_bytes_of(archive, file, member, _JSON)[:_JSON])))
            elif name.endswith(".so"):
                said["libraries"].append(library(name, _bytes_of(archive, file, member, _INFLATED)))
                if _as_it_lies(member):
                    places[name] = (_start(file, member), member.file_size)
            elif name.endswith((".cubin", ".fatbin")):
                said["kernels"].append(_kernel(name, _bytes_of(archive, file, member, _INFLATED)))
            elif name.endswith(".cpp") and not said["inputs"]:
                source = bytes(_bytes_of(archive, file, member, _TEXT)[:_TEXT]).decode("utf-8", "replace")
                said["inputs"] = inputs(source)
        keys = _metadata(texts)
    said.update({field: keys.get(key, "") for field, key in _KEYS.items()})
    return places


def _kernel(name: str, data: memoryview) -> dict[str, Any]:
    if name.endswith(".fatbin"):
        return {"name": name, "archs": [], "error": ""}
    try:
        return {"name": name, "archs": [kernel_arch(data)], "error": ""}
    except ValueError as error:
        return {"name": name, "archs": [], "error": str(error)}


def _read_library(path: str, file: memoryview, said: dict[str, Any]) -> None:
    """A bare library finds its kernels by the paths in it."""
    one = library(os.path.basename(path), file)
    said["libraries"].append(one)
    for kernel in one["kernels"]:
        try:
            with open(kernel, "rb") as opened:
                said["kernels"].append(_kernel(os.path.basename(kernel), memoryview(opened.read(1 << 16))))
        except OSError:
            continue  # one that is named and not listed is missing


def read(path: str, wanted: str = "") -> tuple[dict[str, Any], dict[str, tuple[int, int]]]:
    """What the package at ``path`` says, and where its model's libraries lie in it: offset and size by name.

    ``wanted`` names one of its models.  A package that cannot be read says why in ``error``.
    """
    said = empty(path)
    places: dict[str, tuple[int, int]] = {}
    try:
        with open(path, "rb") as opened:
            said["size"] = os.fstat(opened.fileno()).st_size
            if not said["size"]:
                raise Broken("the file is empty")
            # Never closed: an error on its way out still holds pieces of it; it goes with the last of them.
            file = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        head = bytes(file[:8])
        if head[:4] == b"\x7fELF":
            said["form"] = "so"
            _read_library(path, file, said)
            places[os.path.basename(path)] = (0, len(file))
        elif head[:2] == b"PK":
            said["form"] = "pt2"
            places.update(_read_zip(path, file, wanted, said))
        else:
            raise Broken(f"it is neither a zip nor a library: it begins with {head!r}")
    except Broken as broken:
        said["error"] = str(broken)
    except OSError as error:
        said["error"] = f"it cannot be read: {error.strerror or error}"
    return said, places
