"""Saved images are read as engines write them, refused when damaged, and compared down to one header."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

import pytest

from envkit.errors import UsageError
from envkit.image.tar import Layer, compare, differing, first_difference, read

DAY = 1795161600  # 2026-11-20T08:00:00Z


def digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mtime, info.mode = kind, len(content), DAY, 0o644
    return info, content


def pack(members: Sequence[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def files(*members: tuple[str, bytes]) -> bytes:
    return pack([member(name, content) for name, content in members])


def config(layers: Sequence[bytes]) -> bytes:
    return json.dumps({"rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]}}).encode()


def classic(layers: Sequence[bytes]) -> bytes:
    """As engines before 25 save an image: a folder a layer, a link for a layer that comes twice."""
    members, names, seen = [], [], {}
    for number, layer in enumerate(layers):
        name = f"{number:064x}/layer.tar"
        names.append(name)
        if layer in seen:
            info, _ = member(name, kind=tarfile.SYMTYPE)
            info.linkname = f"../{seen[layer]}"
            members.append((info, b""))
        else:
            members += [member(f"{number:064x}/VERSION", b"1.0"), member(name, layer)]
        seen.setdefault(layer, name)
    about = config(layers)
    manifest = [{"Config": "c.json", "RepoTags": None, "Layers": names}]
    return pack([*members, member("c.json", about), member("manifest.json", json.dumps(manifest).encode())])


def blob(data: bytes) -> tuple[tarfile.TarInfo, bytes]:
    return member(f"blobs/sha256/{sha256(data).hexdigest()}", data)


def oci(
    layers: Sequence[bytes],
    packed: Callable[[bytes], bytes] = bytes,
    nested: bool = False,
    manifest_json: bool = False,
) -> bytes:
    """The OCI layout, with an attestation beside the image; ``nested`` as a containerd store saves it."""
    blobs = [packed(layer) for layer in layers]
    about = config(layers)
    manifest = json.dumps(
        {"config": {"digest": digest(about)}, "layers": [{"digest": digest(one)} for one in blobs]}
    ).encode()
    proof = json.dumps({"config": {"digest": digest(b"{}")}, "layers": []}).encode()
    notes = {"vnd.docker.reference.type": "attestation-manifest"}
    listed = json.dumps(
        {
            "manifests": [
                {"digest": digest(manifest)},
                {"digest": digest(proof), "annotations": notes},
                {"digest": digest(b"another platform's, not saved")},
            ]
        }
    ).encode()
    members = [blob(one) for one in dict.fromkeys(blobs)] + [blob(about), blob(manifest), blob(proof)]
    if nested:
        members.append(blob(listed))
        listed = json.dumps({"manifests": [{"digest": digest(listed)}]}).encode()
    members += [member("index.json", listed), member("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')]
    if manifest_json:
        names = [f"blobs/sha256/{digest(one)[7:]}" for one in blobs]
        both = [{"Config": f"blobs/sha256/{digest(about)[7:]}", "Layers": names}]
        members.append(member("manifest.json", json.dumps(both).encode()))
    return pack(members)


def one(layer: bytes) -> Layer:
    (found,) = read(io.BytesIO(oci([layer])))
    return found


BASE = files(("etc/os-release", b"ID=debian\n"), ("usr/bin/sh", b"\x7fELF"))
TOP = files(("usr/lib/.wh.old.so", b""), ("usr/lib/new.so", b"\x7fELF" * 300))


@pytest.mark.parametrize(
    "saved",
    [
        classic([BASE, TOP, BASE]),
        oci([BASE, TOP, BASE]),
        oci([BASE, TOP, BASE], manifest_json=True),
        oci([BASE, TOP, BASE], nested=True),
        oci([BASE, TOP, BASE], packed=lambda layer: gzip.compress(layer, mtime=0)),
        oci([BASE, TOP, BASE], packed=lambda layer: gzip.compress(layer[:700]) + gzip.compress(layer[700:])),
    ],
    ids=["classic", "oci", "both", "nested index", "gzip", "gzip in two streams"],
)
def test_the_layers_of_every_layout_are_the_same(saved: bytes) -> None:
    layers = read(io.BytesIO(saved))

    assert [layer.diff_id for layer in layers] == [digest(BASE), digest(TOP), digest(BASE)]
    assert [layer.size for layer in layers] == [len(BASE), len(TOP), len(BASE)]
    assert list(layers[0].entries) == ["etc/os-release", "usr/bin/sh"]
    assert list(layers[1].entries) == ["usr/lib/.wh.old.so", "usr/lib/new.so"]
    assert layers[1].entries["usr/lib/new.so"].sha256 == sha256(b"\x7fELF" * 300).hexdigest()
    assert not any(layer.unread for layer in layers)


def test_a_stream_that_gives_little_at_a_time_is_read_whole() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 77))

    saved = oci([BASE, TOP])
    assert read(Slow(saved)) == read(io.BytesIO(saved))


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_every_kind_of_entry_is_read_as_the_standard_library_reads_it(form: int) -> None:
    long = "usr/" + "deep/" * 60 + "naïve.txt"
    members = [member("./usr/", kind=tarfile.DIRTYPE), member(long, b"x" * 1500), member("empty")]
    for name, kind, link in (
        ("usr/link", tarfile.SYMTYPE, "../" * 60 + "far"),
        ("usr/hard", tarfile.LNKTYPE, long),
        ("dev/null", tarfile.CHRTYPE, ""),
        ("dev/sda", tarfile.BLKTYPE, ""),
        ("run/pipe", tarfile.FIFOTYPE, ""),
    ):
        info, _ = member(name, kind=kind)
        info.linkname, info.devmajor, info.devminor, info.uid, info.gid, info.mode = link, 8, 3, 1 << 22, 100, 0o4755
        members.append((info, b""))
    if form == tarfile.PAX_FORMAT:
        members[2][0].pax_headers = {"mtime": "1795161600.123456789", "SCHILY.xattr.security.capability": "\x01\x02"}
    layer = pack(members, form)

    entries = one(layer).entries
    with tarfile.open(fileobj=io.BytesIO(layer)) as oracle:
        theirs = {info.name.removeprefix("./"): info for info in oracle}
    assert list(entries) == list(theirs)
    for name, info in theirs.items():
        mine = entries[name]
        assert (mine.mode, mine.uid, mine.gid, mine.size) == (info.mode, info.uid, info.gid, info.size), name
        if not info.isdev():
            assert mine.link == info.linkname, name
    assert [entry.kind for entry in entries.values()] == [
        "directory", "file", "file", "link", "hard link", "character device", "block device", "fifo",
    ]  # fmt: skip
    assert entries["dev/sda"].link == "8:3"
    if form == tarfile.PAX_FORMAT:
        assert entries["empty"].mtime == DAY * 10**9 + 123456789
        assert entries["empty"].xattrs == (("security.capability", b"\x01\x02"),)


def changed(**to: object) -> bytes:
    """A layer of two files, the second one's header changed."""
    members = [member("a", b"one"), member("b", b"two")]
    for key, value in to.items():
        setattr(members[1][0], key, value)
    return pack(members)


PLAIN = changed()


@pytest.mark.parametrize(
    ("new", "what"),
    [
        (files(("a", b"one"), ("b", b"TWO")), f"b: content sha256 {sha256(b'two').hexdigest()[:12]} / "),
        (files(("a", b"one"), ("b", b"longer")), ", 3 / 6 bytes"),
        (changed(mtime=DAY + 86400), "b: mtime 2026-11-20T08:00:00Z / 2026-11-21T08:00:00Z"),
        (changed(mtime=DAY + 0.5), "b: mtime 2026-11-20T08:00:00Z / 2026-11-20T08:00:00.5Z"),
        (changed(mtime=1 << 60), f"b: mtime 2026-11-20T08:00:00Z / {(1 << 60) * 10**9} ns"),
        (changed(mode=0o755), "b: mode 0644 / 0755"),
        (changed(uid=1000, gid=7), "b: owner 0:0 / 1000:7"),
        (changed(mode=0o600, mtime=DAY + 1), "b: mode 0644 / 0600, mtime "),
        (changed(pax_headers={"SCHILY.xattr.user.x": "1"}), "b: extended attributes (user.x)"),
        (pack([member("a", b"one"), member("b", kind=tarfile.DIRTYPE)]), "b: file / directory"),
        (files(("a", b"one")), "b: only in the first"),
        (files(("a", b"one"), ("b", b"two"), ("a0\n", b"")), "a0\\n: only in the second"),
        (files(("b", b"two"), ("a", b"one")), "the same entries in another order, from entry 1 on: a / b"),
        (changed(uname="root"), "b: only the tar header differs"),
        (PLAIN + bytes(512), "all entries agree, and the archives differ outside of them"),
    ],
)
def test_the_first_difference_is_named_and_mirrored(new: bytes, what: str) -> None:
    mine, theirs = one(PLAIN), one(new)

    there, back = first_difference(mine, theirs), first_difference(theirs, mine)
    assert there is not None and back is not None
    assert what in there
    assert there.partition(":")[0] == back.partition(":")[0]
    assert first_difference(theirs, one(new)) is None


def test_the_first_path_in_sorted_order_is_named_whatever_the_archives_order() -> None:
    old = files(("z", b"1"), ("m", b"1"), ("a", b"1"))
    new = files(("z", b"2"), ("m", b"2"), ("a", b"1"))

    (difference,) = compare(read(io.BytesIO(oci([old]))), read(io.BytesIO(oci([new]))))
    assert difference.what.startswith("m: content ")
    assert (difference.number, difference.paths) == (1, 2)
    assert (difference.old, difference.new) == (digest(old), digest(new))


def test_layers_are_compared_place_by_place() -> None:
    old, new = read(io.BytesIO(oci([BASE, TOP]))), read(io.BytesIO(oci([BASE, PLAIN, TOP])))

    second, third = compare(old, new)
    assert (second.number, second.what) == (2, "a: only in the second")
    assert (third.number, third.old, third.what) == (3, "", "only in the second")
    assert compare(old, old) == ()


def test_a_link_that_leads_elsewhere_and_a_device_of_other_numbers_differ() -> None:
    def linked(to: str, minor: int) -> bytes:
        link, _ = member("l", kind=tarfile.SYMTYPE)
        device, _ = member("d", kind=tarfile.CHRTYPE)
        link.linkname, device.devminor = to, minor
        return pack([(link, b""), (device, b"")])

    assert first_difference(one(linked("a", 1)), one(linked("b", 1))) == "l: leads to a / b"
    assert first_difference(one(linked("a", 1)), one(linked("a", 2))) == "d: leads to 0:1 / 0:2"


def test_of_a_path_that_comes_twice_the_last_counts() -> None:
    assert one(files(("a", b"1"), ("b", b""), ("a", b"2"))).entries["a"].sha256 == sha256(b"2").hexdigest()
    twice, once = one(files(("a", b"1"), ("a", b"2"))), one(files(("a", b"2")))
    assert "a path that comes twice" in str(first_difference(twice, once))


def test_only_the_wanted_layers_are_taken_apart() -> None:
    wanted = differing([digest(BASE), digest(TOP)], [digest(BASE), digest(PLAIN)])

    for saved in (oci([BASE, TOP]), classic([BASE, TOP])):
        base, top = read(io.BytesIO(saved), wanted)
        assert (base.entries, base.unread, base.diff_id) == ({}, "it was not asked for", digest(BASE))
        assert "usr/lib/new.so" in top.entries
    assert first_difference(base, base) is None
    assert first_difference(base, top) == "what differs is not known: it was not asked for"


def test_a_layer_packed_with_zstd_is_not_known_and_never_the_same_as_another() -> None:
    def squeezed(layer: bytes) -> bytes:
        return b"\x28\xb5\x2f\xfd" + layer[:600]

    (mine,) = read(io.BytesIO(oci([BASE], packed=squeezed)))
    assert mine.unread == "it is packed with zstd"
    assert first_difference(mine, one(TOP)) == "what differs is not known: it is packed with zstd"
    (difference,) = compare([mine], [one(TOP)])
    assert difference.paths == 0
    assert first_difference(mine, one(BASE)) is None  # their diff_ids say so


def refused(saved: bytes) -> str:
    with pytest.raises(UsageError) as raised:
        read(io.BytesIO(saved))
    assert "\n" not in raised.value.message
    return raised.value.message


def test_an_archive_cut_off_anywhere_is_refused() -> None:
    saved = oci([BASE, TOP])
    whole = read(io.BytesIO(saved))
    end = len(saved.rstrip(b"\0"))
    for cut in (*range(0, end, 173), end - 1):
        refused(saved[:cut])
    assert read(io.BytesIO(saved[: end + -end % 512])) == whole  # the end mark is not content


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_layer_with_any_byte_changed_is_refused(packed: Callable[[bytes], bytes]) -> None:
    saved = oci([TOP], packed=packed)
    start = saved.index(packed(TOP)[20:80]) - 20
    first = 0 if packed is bytes else 10  # gzip's own header may hold another time
    for place in range(start + first, start + len(packed(TOP)), 97 if packed is bytes else 1):
        refused(saved[:place] + bytes([saved[place] ^ 0x41]) + saved[place + 1 :])


def test_what_is_no_saved_image_is_refused_in_one_sentence() -> None:
    assert "neither manifest.json nor index.json" in refused(b"")
    assert "a header holds b'lohelloh' for a number" in refused(b"hello" * 500)
    assert "neither manifest.json" in refused(files(("readme", b"text")))
    assert "is not JSON" in refused(files(("manifest.json", b"[{]")))
    assert "is not JSON" in refused(files(("manifest.json", b"[" * 200000)))
    assert "no list" in refused(files(("manifest.json", b'{"Layers": 1}')))
    assert "holds 2 images" in refused(files(("manifest.json", b"[{}, {}]")))
    assert "holds 0 images" in refused(files(("index.json", b'{"manifests": []}')))
    manifest = b'[{"Config": "c", "Layers": ["l"]}]'
    assert "c is not in it" in refused(files(("manifest.json", manifest)))
    about = ("c", config([BASE]))
    assert "layer 1, l, is not in it or no tar" in refused(files(("manifest.json", manifest), about))
    assert "layer 1, l, is not in it or no tar" in refused(files(("manifest.json", manifest), about, ("l", b"x" * 900)))
    assert f"layer 1 is {digest(TOP)}" in refused(files(("manifest.json", manifest), about, ("l", TOP)))
    broken = BASE[:1024] + b"junk" * 128 + BASE[1536:]
    assert "layer 1, l: a header holds" in refused(files(("manifest.json", manifest), about, ("l", broken)))
    assert "names 1 layers and its configuration 2" in refused(
        files(("manifest.json", manifest), ("c", config([BASE, TOP])), ("l", BASE))
    )


def test_an_index_that_names_itself_ends() -> None:
    name = "blobs/sha256/" + "0" * 64
    index = json.dumps({"manifests": [{"digest": "sha256:" + "0" * 64}]}).encode()
    assert "name one another" in refused(files((name, index), ("index.json", index)))


def test_an_extension_larger_than_any_file_needs_is_refused() -> None:
    huge, _ = member("a")
    huge.pax_headers = {"comment": "x" * (1 << 21)}
    assert "extension says" in refused(pack([(huge, b"")]))


@pytest.mark.slow  # it works up to its bound
def test_memory_stays_bounded_whatever_the_layers_hold() -> None:
    saved = oci([files(("big", bytes(64 << 20)), ("other", bytes(32 << 20)))])
    stream = io.BytesIO(saved)
    tracemalloc.start()
    try:
        (layer,) = read(stream)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert layer.size > 96 << 20
    assert peak < 24 << 20


def test_layers_of_equal_content_and_other_names_of_owners_are_told_apart_by_their_headers() -> None:
    plain, named = one(PLAIN), one(changed(uname="nobody"))
    assert plain.entries["b"] != named.entries["b"]
    assert replace(plain.entries["b"], header="") == replace(named.entries["b"], header="")
