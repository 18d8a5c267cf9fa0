"""The kernel's side of the driver as files show it: modules on disk, their signatures, modprobe's options, firmware."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator

from envkit.host.root import MOST_BYTES, HostRoot, Source, by_name, short
from envkit.model import Observed
from envkit.payload.elf import mapped
from envkit.subjects.host import Firmware, KernelModules, ModprobeLine, ModuleFile, ModuleSigning
from envkit.subjects.host.driver import release_key
from envkit.system.proc import run

_TREES = ("lib/modules", "run/booted-system/kernel-modules/lib/modules")  # the second one is NixOS's
_MOST_KERNELS = 16
_MOST_LIST = 16 << 20  # bytes of modules.dep; those of distributions have less than one million
_MODINFO = ("/usr/sbin/modinfo", "/sbin/modinfo", "/usr/bin/modinfo", "/run/current-system/sw/bin/modinfo")
_MODINFO_S = 1.0  # it unpacks a module of up to 100 MB
# Debian calls the module nvidia-current; nvidia-uvm and its like are other modules
_MODULE = re.compile(r"nvidia(-(current|tesla|legacy)(?!.*-(uvm|drm|modeset|peermem)\.)[^/]*)?\.ko(\.(zst|xz|gz))?")
_SIGNATURE = b"~Module signature appended~\n"  # the kernel's include/linux/module_signature.h
_MODPROBE = ("etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")
_OURS = re.compile(r"nouveau|nvidia(_(current|uvm|drm|modeset|peermem).*)?")
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_FIRMWARE = ("lib/firmware/updates", "lib/firmware", "usr/lib/firmware")


def parse_modinfo(data: memoryview) -> dict[str, str]:
    """The section .modinfo of a kernel module, the first value of each name.

    It is a list of "name=value" with a zero byte behind each; the layout of the file is that of elf.h.  Raises
    ValueError for anything but a 64-bit little-endian ELF file with such a section.
    """
    try:
        if bytes(data[:6]) != b"\x7fELF\x02\x01":
            raise ValueError("it is no 64-bit little-endian ELF file")
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        (texts,) = struct.unpack_from("<Q", data, table + names * size + 24)
        for number in range(count):
            at = table + number * size
            (name,) = struct.unpack_from("<I", data, at)
            if bytes(data[texts + name : texts + name + 9]) == b".modinfo\0":
                start, length = struct.unpack_from("<QQ", data, at + 24)
                words = bytes(data[start : start + min(length, MOST_BYTES)]).decode("utf-8", "replace").split("\0")
                pairs = [word.partition("=") for word in words if "=" in word]
                return {name: value for name, _, value in reversed(pairs)}
    except (struct.error, OverflowError) as error:
        raise ValueError(f"it is cut off: {error}") from error
    raise ValueError("it has no section .modinfo")


def _by_dkms(place: HostRoot, release: str) -> str:
    """The version that DKMS has installed for a kernel, empty if it has none.

    /var/lib/dkms/<module>/kernel-<release>-<arch> is a link to <version>/<release>/<arch>.
    """
    try:
        packages = [name for name in place.names("var/lib/dkms") if "nvidia" in name]
    except OSError:
        return ""
    found = set()
    for package in packages:
        folder = place.path(f"var/lib/dkms/{package}")
        for name in os.listdir(folder) if folder.is_dir() else []:
            if name.startswith(f"kernel-{release}-") and (folder / name).is_symlink():
                found.add(os.readlink(folder / name).rstrip("/").split("/")[-3:][0])
    return found.pop() if len(found) == 1 else ""


def _module_file(place: HostRoot, path: str, release: str) -> ModuleFile:
    shown = f"/{path}"
    file = place.path(path)
    if path.endswith(".ko"):
        with file.open("rb") as opened:
            opened.seek(-min(len(_SIGNATURE), file.stat().st_size), os.SEEK_END)
            signed = Observed.of(opened.read() == _SIGNATURE, f"the end of {shown}")
        try:
            version = parse_modinfo(mapped(str(file)))["version"]
        except (ValueError, KeyError) as error:
            return ModuleFile(shown, Observed.lost(f"{shown}: {error}"), signed)
        return ModuleFile(shown, Observed.of(version, f".modinfo of {shown}"), signed)
    # not by PATH: Debian's users have no sbin in theirs
    program = next((name for name in _MODINFO if place.live and os.access(name, os.X_OK)), "")
    if program:
        answer = run([program, str(file)], timeout_s=_MODINFO_S)
        said = dict(line.split(":", 1) for line in answer.stdout.splitlines() if ":" in line)
        if answer.exit == 0 and "version" in said:
            # modinfo prints these lines for a module with a signature alone
            signed = Observed.of(bool({"sig_id", "signer", "signature"} & set(said)), "modinfo")
            return ModuleFile(shown, Observed.of(said["version"].strip(), "modinfo"), signed)
    packed = Observed[bool].lost(f"{shown} is packed", shown)
    if dkms := _by_dkms(place, release):
        return ModuleFile(shown, Observed.of(dkms, "/var/lib/dkms"), packed)
    return ModuleFile(shown, Observed.lost(f"{shown} is packed, and neither modinfo nor DKMS tells"), packed)


def _listed(place: HostRoot, tree: str) -> list[str]:
    """The nvidia modules in modules.dep, which is what modprobe goes by, as paths under the root."""
    with place.path(f"{tree}/modules.dep").open("rb") as file:
        text = file.read(_MOST_LIST).decode("utf-8", "replace")
    paths = [path for path in re.findall(r"^[^:\n]*(?=:)", text, re.MULTILINE) if "nvidia" in path]
    ours = [path for path in paths if _MODULE.fullmatch(path.rpartition("/")[2])]
    return [path.lstrip("/") if path.startswith("/") else f"{tree}/{path}" for path in ours]


def kernels(place: HostRoot) -> Observed[tuple[KernelModules, ...]]:
    """The kernels whose modules are here; a container has none."""
    release_file = place.text("proc/sys/kernel/osrelease")
    if release_file.value is None:
        return release_file.absence()
    running = release_file.value.strip()
    found: dict[str, KernelModules] = {}
    for tree in _TREES:
        if not place.exists(tree):
            continue
        releases = [name for name in place.names(tree) if place.exists(f"{tree}/{name}/modules.dep")]
        releases.sort(key=lambda name: (name == running, release_key(name)))
        for release in releases[-_MOST_KERNELS:]:
            here = release == running
            there = [path for path in _listed(place, f"{tree}/{release}") if place.exists(path)]
            files = tuple(_module_file(place, path, release) if here else ModuleFile(f"/{path}") for path in there)
            bootable = place.exists(f"boot/vmlinuz-{release}") or place.exists(f"{tree}/{release}/vmlinuz")
            found.setdefault(release, KernelModules(release, here, bootable, files))
    return Observed.of(tuple(found[release] for release in sorted(found)), "/lib/modules")


def parse_lockdown(text: str) -> str:
    """The mode in brackets out of "none [integrity] confidentiality"; raises ValueError if there is none."""
    found = re.search(r"\[(none|integrity|confidentiality)\]", text)
    if not found:
        raise ValueError(f"no mode in brackets in `{text.strip()[:60]}`")
    return found[1]


def _enforced(place: HostRoot) -> Observed[bool]:
    seen, why = [], []
    for name, means in (("sys/module/module/parameters/sig_enforce", "Y"), ("sys/kernel/security/lockdown", "")):
        try:
            word = place.word(name)
            seen.append(word == means if means else parse_lockdown(word) != "none")
        except (OSError, ValueError) as error:
            why.append(f"/{name}: {short(error)}")
    # either of them is enough to refuse, both are needed to say that nothing does
    if any(seen) or not why:
        return Observed.of(any(seen), "sig_enforce and lockdown")
    return Observed.lost("; ".join(why))


def signing(place: HostRoot) -> Observed[ModuleSigning]:
    """Secure Boot and whether the kernel insists on signatures.

    An EFI variable's file is four bytes of attributes and its value (the kernel's efivarfs.rst).
    """
    if not place.exists("sys/firmware") or not place.names("sys/firmware"):
        return Observed.unsupported("/sys/firmware")  # a container, from which engines hide it
    if not place.exists("sys/firmware/efi"):
        return Observed.of(ModuleSigning("no EFI", _enforced(place)), "/sys/firmware/efi")
    with place.path(_SECURE_BOOT).open("rb") as file:
        data = file.read(16)
    if len(data) != 5 or data[4] > 1:
        raise ValueError(f"the variable SecureBoot has {len(data)} bytes")
    return Observed.of(ModuleSigning("on" if data[4] else "off", _enforced(place)), "/sys/firmware/efi/efivars")


def parse_modprobe(text: str, path: str) -> Iterator[ModprobeLine]:
    """The lines of modprobe.d(5) about NVIDIA's modules and nouveau; a dash in a module's name is an underscore."""
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split(None, 2)
        if len(words) >= 2 and not words[0].startswith("#"):
            module = words[1].replace("-", "_")
            if _OURS.fullmatch(module):
                yield ModprobeLine(path, words[0], module, words[2].strip() if len(words) > 2 else "")


def parse_command_line(text: str) -> Iterator[ModprobeLine]:
    """What the kernel's command line says of these modules: "modprobe.blacklist=a,b" and "module.option=value"."""
    for word in re.findall(r'(?:[^\s"]|"[^"]*")+', text):
        name, _, value = word.partition("=")
        if name in ("modprobe.blacklist", "module_blacklist"):
            for module in value.replace("-", "_").split(","):
                if _OURS.fullmatch(module):
                    yield ModprobeLine("/proc/cmdline", "blacklist", module)
        elif "." in name and _OURS.fullmatch(module := name.partition(".")[0].replace("-", "_")):
            yield ModprobeLine("/proc/cmdline", "options", module, word.partition(".")[2])


def modprobe(place: HostRoot) -> Observed[tuple[ModprobeLine, ...]]:
    """What modprobe's files and the kernel's command line say; of files of one name the first directory's counts."""
    files: dict[str, str] = {}
    for directory in _MODPROBE:
        if place.exists(directory):
            for name in place.names(directory):
                if name.endswith(".conf"):
                    files.setdefault(name, f"{directory}/{name}")
    found: list[ModprobeLine] = []
    for _, path in sorted(files.items()):
        text = place.text(path)
        if text.value is None:
            return text.absence()
        found += parse_modprobe(text.value, f"/{path}")
    booted = place.text("proc/cmdline")
    if booted.value is None:
        return booted.absence()
    found += parse_command_line(booted.value)
    return Observed.of(tuple(found), "modprobe.d and /proc/cmdline")


def firmware(place: HostRoot) -> Observed[Firmware]:
    """The GSP's firmware by driver version, in the directories of the kernel's firmware loader."""
    try:
        first = place.word("sys/module/firmware_class/parameters/path").strip("/")
    except OSError:
        first = ""
    roots = [root for root in dict.fromkeys((first, *_FIRMWARE)) if root and place.exists(root)]
    files: dict[str, tuple[str, ...]] = {}
    for root in roots:
        for version in place.names(f"{root}/nvidia") if place.exists(f"{root}/nvidia") else ():
            folder = place.path(f"{root}/nvidia/{version}")
            names = sorted(os.listdir(folder)) if version[:1].isdigit() and folder.is_dir() else []
            gsp = tuple(name for name in names if re.fullmatch(r"gsp[A-Za-z0-9_]*\.bin(\.xz|\.zst)?", name))
            if gsp:
                files.setdefault(version, gsp)
    return Observed.of(Firmware(f"/{roots[0]}" if roots else "", files), "/lib/firmware/nvidia")


# the kernels last, for modinfo may need its whole second
SOURCES: dict[str, Source] = {"module_signing": signing, **by_name(modprobe, firmware, kernels)}
