"""Shared objects and images put together byte by byte, for what reads them without running them."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from test_layers import digest, member, pack

from envkit.engine import Engine
from envkit.image.tree import Tree, open_tree

SITE = "/opt/venv/lib/python3.11/site-packages"


def elf_file(
    *,
    soname: str = "",
    needed: Sequence[str] = (),
    rpath: str = "",
    runpath: str = "",
    defines: Sequence[str] = (),
    undefined: Sequence[str] = (),
    weak: Sequence[str] = (),
    needs: Mapping[str, Sequence[str]] | None = None,
    versions: Sequence[str] = (),
    rodata: bytes = b"",
    fatbin: bytes = b"",
    machine: int = 62,
) -> bytes:
    """An ELF file of 64 bits whose one loaded segment is the whole file.

    ``defines``, ``undefined`` and ``weak`` (undefined too) are symbols, ``versions`` those that it defines, ``needs``
    those that it asks of each provider.
    """
    texts = bytearray(b"\0")

    def text(value: str) -> int:
        at = texts.find(b"\0" + value.encode() + b"\0")
        if at >= 0:
            return at + 1
        texts.extend(value.encode() + b"\0")
        return len(texts) - len(value) - 1

    symbols = [bytes(24)]
    symbols += [struct.pack("<IBBHQQ", text(name), 0x12, 0, 1, 64, 8) for name in defines]
    symbols += [struct.pack("<IBBHQQ", text(name), 0x12, 0, 0, 0, 0) for name in undefined]
    symbols += [struct.pack("<IBBHQQ", text(name), 0x22, 0, 0, 0, 0) for name in weak]
    wanted = b""
    for number, (provider, names) in enumerate((needs or {}).items(), 1):
        last = number == len(needs or {})
        wanted += struct.pack("<HHIII", 1, len(names), text(provider), 16, 0 if last else 16 * (1 + len(names)))
        for index, name in enumerate(names):
            wanted += struct.pack("<IHHII", 0, 0, 2 + index, text(name), 16 if index + 1 < len(names) else 0)
    given = b"".join(
        struct.pack("<HHHHIII", 1, 0, index + 1, 1, 0, 20, 28 if index + 1 < len(versions) else 0)
        + struct.pack("<II", text(name), 0)
        for index, name in enumerate(versions)
    )
    tags = [(1, text(name)) for name in needed]
    tags += [(tag, text(value)) for tag, value in ((14, soname), (15, rpath), (29, runpath)) if value]
    parts = {
        ".dynstr": bytes(texts), ".dynsym": b"".join(symbols), ".gnu.version_r": wanted, ".gnu.version_d": given,
        ".rodata": rodata, ".nv_fatbin": fatbin,
    }  # fmt: skip
    at, places, body = 64 + 2 * 56, {}, b""
    for name, content in parts.items():
        places[name] = at + len(body)
        body += content + bytes(-len(content) % 8)
    tags += [(5, places[".dynstr"]), (10, len(texts)), (6, places[".dynsym"]), (11, 24)]
    if wanted:
        tags += [(0x6FFFFFFE, places[".gnu.version_r"]), (0x6FFFFFFF, len(needs or {}))]
    if given:
        tags += [(0x6FFFFFFC, places[".gnu.version_d"]), (0x6FFFFFFD, len(versions))]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in (*tags, (0, 0)))
    places[".dynamic"] = at + len(body)
    body += dynamic
    sizes = {**{name: len(content) for name, content in parts.items()}, ".dynamic": len(dynamic)}
    titles, rows = b"\0", [bytes(64)]
    for name, size in sizes.items():
        if size:
            rows.append(struct.pack("<IIQQQQIIQQ", len(titles), 1, 0, 0, places[name], size, 0, 0, 8, 0))
            titles += name.encode() + b"\0"
    rows.append(struct.pack("<IIQQQQIIQQ", len(titles), 3, 0, 0, at + len(body), len(titles) + 10, 0, 0, 1, 0))
    titles += b".shstrtab\0"
    table = at + len(body) + len(titles)
    whole = table + 64 * len(rows)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, table, 0, 64, 56, 2, 64, len(rows), len(rows) - 1)
    head += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, whole, whole, 4096)
    head += struct.pack("<IIQQQQQQ", 2, 6, *[places[".dynamic"]] * 3, len(dynamic), len(dynamic), 8)
    return head + body + titles + b"".join(rows)


def wheel(name: str, version: str, files: Mapping[str, bytes], requires: Sequence[str] = ()) -> dict[str, bytes]:
    """An installed wheel: its ``files`` by their path in site-packages, its METADATA and its RECORD."""
    lines = []
    for path, content in files.items():
        hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={hashed},{len(content)}")
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires) + "\nRequires-Dist: not-this-one\n"
    return {
        **{f"{SITE}/{path}": content for path, content in files.items()},
        f"{SITE}/{info}/METADATA": metadata.encode(),
        f"{SITE}/{info}/RECORD": "\n".join([*lines, f"{info}/RECORD,,", ""]).encode(),
    }


def no_engine() -> Engine:
    raise AssertionError("no engine is needed")


def packed(files: Mapping[str, bytes | str], modes: Mapping[str, int] | None = None) -> bytes:
    """A layer's archive; a text in place of a file's bytes is where a link leads, a path with an ending slash is a
    directory, and ``modes`` are what differs from 0644 and 0755."""
    members = []
    for path, content in files.items():
        kind = b"5" if path.endswith("/") else b"2" if isinstance(content, str) else b"0"
        info, _ = member(path.strip("/"), content if isinstance(content, bytes) and kind == b"0" else b"", kind)
        info.linkname = content if isinstance(content, str) else ""
        info.mode = (modes or {}).get(path.rstrip("/"), 0o755 if kind == b"5" else 0o644)
        members.append((info, content if isinstance(content, bytes) and kind == b"0" else b""))
    return pack(members)


def image(
    folder: Path,
    *layers: Mapping[str, bytes | str],
    config: Mapping[str, Any] | None = None,
    architecture: str = "amd64",
    commands: Sequence[str] = (),
    modes: Mapping[str, int] | None = None,
) -> AbstractContextManager[Tree]:
    """The tree of a saved image with layers as ``packed`` makes them."""
    layered = [packed(files, modes) for files in layers]
    about = {
        "architecture": architecture,
        "os": "linux",
        "config": dict(config or {}),
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layered]},
        "history": [{"created_by": commands[at] if at < len(commands) else "x"} for at in range(len(layered))],
    }
    names = [f"{number:064x}/layer.tar" for number in range(len(layered))]
    manifest = json.dumps([{"Config": "c.json", "RepoTags": None, "Layers": names}]).encode()
    whole = pack(
        [
            *[member(name, layer) for name, layer in zip(names, layered, strict=True)],
            member("c.json", json.dumps(about).encode()),
            member("manifest.json", manifest),
        ]
    )
    saved = folder / "image.tar"
    saved.write_bytes(whole)
    return open_tree(str(saved), no_engine, lambda line: None)
