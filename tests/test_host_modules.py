"""Modules, options and firmware on trees in the kernel's and modprobe's own formats, whole and broken."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from envkit.host import modules
from envkit.host.root import HostRoot
from envkit.model import Observed
from envkit.subjects.host import Firmware, ModprobeLine, ModuleSigning

REL = "6.8.0-85-generic"
SIGNATURE = b"~Module signature appended~\n"
EFI_VARIABLE = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def put(root: Path, name: str, content: str | bytes = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def module(info: dict[str, str], section: bytes = b".modinfo") -> bytes:
    """A relocatable ELF file with one section of "name=value" and one of names, laid out as elf.h says."""
    text = b"".join(f"{name}={value}".encode() + b"\0" for name, value in info.items())
    names = b"\0" + section + b"\0.shstrtab\0"
    table = 64 + len(text) + len(names)

    def head(name: int, kind: int, at: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)

    start = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    sections = head(0, 0, 0, 0) + head(1, 1, 64, len(text)) + head(len(section) + 2, 3, 64 + len(text), len(names))
    return start + text + names + sections


def place(root: Path) -> HostRoot:
    return HostRoot(root, {})


def test_modinfo_is_read_out_of_a_relocatable_file() -> None:
    said = modules.parse_modinfo(memoryview(module({"version": "580.159.04", "license": "Dual MIT/GPL"})))
    assert said == {"version": "580.159.04", "license": "Dual MIT/GPL"}


def test_modinfo_of_a_module_that_gcc_made(tmp_path: Path) -> None:
    """The first value of a name counts, as in modinfo -F."""
    data = module({"alias": "one", "version": "1"}).replace(b"version", b"alias\0x")  # same length of the section
    assert modules.parse_modinfo(memoryview(data))["alias"] == "one"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x7fELF",
        b"\x7fELF\x02\x01",
        b"\x7fELF\x02\x02" + bytes(58),
        b"text" * 50,
        module({"version": "1"}, b".other"),
        module({"version": "1"})[:-100],
        b"\x7fELF\x02\x01" + b"\xff" * 200,
    ],
)
def test_modinfo_refuses_what_is_no_module(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"64-bit|cut off|modinfo"):
        modules.parse_modinfo(memoryview(data))


def tree(root: Path, release: str, *listed: str) -> None:
    put(root, "proc/sys/kernel/osrelease", f"{REL}\n")
    put(root, f"lib/modules/{release}/modules.dep", "".join(f"{name}: kernel/x.ko\n" for name in listed))


def test_kernels_and_the_version_of_the_module_on_disk(tmp_path: Path) -> None:
    tree(tmp_path, REL, "kernel/drivers/char/ipmi.ko", "updates/dkms/nvidia-uvm.ko", "updates/dkms/nvidia.ko")
    tree(tmp_path, "6.8.0-90-generic", "kernel/fs/ext4.ko")
    put(tmp_path, "boot/vmlinuz-6.8.0-90-generic")
    put(tmp_path, f"lib/modules/{REL}/updates/dkms/nvidia.ko", module({"version": "580.159.04"}) + SIGNATURE)
    running, newer = modules.kernels(place(tmp_path)).need("kernels")
    assert (running.release, running.running, running.bootable) == (REL, True, False)
    (file,) = running.nvidia
    assert (file.path, file.version.value) == (f"/lib/modules/{REL}/updates/dkms/nvidia.ko", "580.159.04")
    assert file.signed.value is True
    assert (newer.release, newer.running, newer.bootable, newer.nvidia) == ("6.8.0-90-generic", False, True, ())


def test_unsigned_and_broken_module(tmp_path: Path) -> None:
    tree(tmp_path, REL, "extra/nvidia.ko")
    file = put(tmp_path, f"lib/modules/{REL}/extra/nvidia.ko", module({"license": "NVIDIA"}))
    ((seen,),) = [kernel.nvidia for kernel in modules.kernels(place(tmp_path)).need("kernels")]
    assert seen.signed.value is False
    assert seen.version.value is None
    file.write_bytes(b"\x7fELF")
    ((seen,),) = [kernel.nvidia for kernel in modules.kernels(place(tmp_path)).need("kernels")]
    assert "cut off" in seen.version.missing or "64-bit" in seen.version.missing


def test_packed_module_has_the_version_that_dkms_installed(tmp_path: Path) -> None:
    tree(tmp_path, REL, "updates/dkms/nvidia.ko.zst")
    put(tmp_path, f"lib/modules/{REL}/updates/dkms/nvidia.ko.zst", b"\x28\xb5\x2f\xfd")
    ((seen,),) = [kernel.nvidia for kernel in modules.kernels(place(tmp_path)).need("kernels")]
    assert seen.version.value is None
    assert seen.signed.value is None
    (tmp_path / "var/lib/dkms/nvidia").mkdir(parents=True)
    (tmp_path / f"var/lib/dkms/nvidia/kernel-{REL}-x86_64").symlink_to(f"580.178.04/{REL}/x86_64")
    (tmp_path / "var/lib/dkms/nvidia/kernel-4.18.0-x86_64").symlink_to("570.211.01/4.18.0/x86_64")
    ((seen,),) = [kernel.nvidia for kernel in modules.kernels(place(tmp_path)).need("kernels")]
    assert (seen.version.value, seen.version.via) == ("580.178.04", "/var/lib/dkms")
    (tmp_path / "var/lib/dkms/nvidia-old").mkdir()
    (tmp_path / f"var/lib/dkms/nvidia-old/kernel-{REL}-x86_64").symlink_to(f"570.211.01/{REL}/x86_64")
    ((seen,),) = [kernel.nvidia for kernel in modules.kernels(place(tmp_path)).need("kernels")]
    assert seen.version.value is None


def test_modinfo_is_asked_about_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = put(tmp_path, "nvidia.ko.zst", b"\x28\xb5\x2f\xfd")
    program = put(tmp_path, "usr/sbin/modinfo", "#!/bin/sh\necho 'version:  580.1'\necho 'signer: x'\n")
    program.chmod(0o755)
    monkeypatch.setattr(modules, "_MODINFO", (str(tmp_path / "none"), str(program)))
    seen = modules._module_file(place(Path("/")), str(packed)[1:], "none")
    assert (seen.version.value, seen.version.via, seen.signed.value) == ("580.1", "modinfo", True)
    other = modules._module_file(place(tmp_path), "nvidia.ko.zst", "none")
    assert other.version.value is None and other.signed.value is None
    program.write_text("#!/bin/sh\necho 'version: 580.1'\nexit 1\n")
    assert modules._module_file(place(Path("/")), str(packed)[1:], "none").version.value is None


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("nvidia.ko", True),
        ("nvidia.ko.xz", True),
        ("nvidia-current.ko", True),
        ("nvidia-current-open.ko.zst", True),
        ("nvidia-current-uvm.ko", False),
        ("nvidia-drm.ko", False),
        ("nvidiafb.ko", False),
        ("nvidia-wmi-ec-backlight.ko.zst", False),
    ],
)
def test_which_file_is_the_driver(tmp_path: Path, name: str, ours: bool) -> None:
    tree(tmp_path, REL, f"kernel/{name}")
    put(tmp_path, f"lib/modules/{REL}/kernel/{name}", module({"version": "1"}))
    (kernel,) = modules.kernels(place(tmp_path)).need("kernels")
    assert bool(kernel.nvidia) is ours


def test_container_has_no_kernels_and_a_gone_file_is_no_module(tmp_path: Path) -> None:
    put(tmp_path, "proc/sys/kernel/osrelease", REL)
    assert modules.kernels(place(tmp_path)).value == ()
    tree(tmp_path, REL, "updates/nvidia.ko")
    (kernel,) = modules.kernels(place(tmp_path)).need("kernels")
    assert kernel.nvidia == ()


def test_nixos_keeps_its_modules_elsewhere(tmp_path: Path) -> None:
    put(tmp_path, "proc/sys/kernel/osrelease", REL)
    base = f"run/booted-system/kernel-modules/lib/modules/{REL}"
    put(tmp_path, f"{base}/modules.dep", "kernel/misc/nvidia.ko:\n")
    put(tmp_path, f"{base}/kernel/misc/nvidia.ko", module({"version": "580.159.04"}))
    (kernel,) = modules.kernels(place(tmp_path)).need("kernels")
    assert kernel.nvidia[0].version.value == "580.159.04"


def test_signing_tells_secure_boot_from_no_efi_and_from_a_masked_directory(tmp_path: Path) -> None:
    assert modules.signing(place(tmp_path)).is_unsupported
    (tmp_path / "sys/firmware").mkdir(parents=True)
    assert modules.signing(place(tmp_path)).value is None
    put(tmp_path, "sys/firmware/acpi/x")
    put(tmp_path, "sys/module/module/parameters/sig_enforce", "N\n")
    put(tmp_path, "sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
    seen = modules.signing(place(tmp_path)).need("signing")
    assert (seen.secure_boot, seen.enforced.value) == ("no EFI", False)
    put(tmp_path, EFI_VARIABLE, b"\x06\0\0\0\x01")
    put(tmp_path, "sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    seen = modules.signing(place(tmp_path)).need("signing")
    assert (seen.secure_boot, seen.enforced.value) == ("on", True)
    put(tmp_path, EFI_VARIABLE, b"\x06\0\0\0\x00")
    assert modules.signing(place(tmp_path)).need("signing").secure_boot == "off"


def test_enforcement_is_known_by_one_sign_and_denied_by_two(tmp_path: Path) -> None:
    put(tmp_path, "sys/firmware/acpi/x")
    put(tmp_path, "sys/module/module/parameters/sig_enforce", "N")
    seen = modules.signing(place(tmp_path))
    assert isinstance(seen.value, ModuleSigning)
    assert seen.value.enforced.value is None
    put(tmp_path, "sys/module/module/parameters/sig_enforce", "Y")
    assert modules.signing(place(tmp_path)).need("signing").enforced.value is True


@pytest.mark.parametrize("data", [b"", b"\x06\0\0\0", b"\x06\0\0\0\x02", bytes(9)])
def test_an_efi_variable_of_another_shape_is_refused(tmp_path: Path, data: bytes) -> None:
    put(tmp_path, EFI_VARIABLE, data)
    with pytest.raises(ValueError, match="SecureBoot"):
        modules.signing(place(tmp_path))


def test_modprobe_lines_of_ours_alone() -> None:
    text = """\
# options nvidia NVreg_Commented=1
options nvidia NVreg_EnableMSI=1 \\
    NVreg_DeviceFileMode=0660
blacklist nouveau
  blacklist nvidia-uvm
options nvidiafb mode=1
softdep nvidia post: nvidia-uvm
blacklist
install nvidia-current modprobe -i nvidia-current $CMDLINE_OPTS
"""
    assert list(modules.parse_modprobe(text, "/x.conf")) == [
        ModprobeLine("/x.conf", "options", "nvidia", "NVreg_EnableMSI=1      NVreg_DeviceFileMode=0660"),
        ModprobeLine("/x.conf", "blacklist", "nouveau"),
        ModprobeLine("/x.conf", "blacklist", "nvidia_uvm"),
        ModprobeLine("/x.conf", "softdep", "nvidia", "post: nvidia-uvm"),
        ModprobeLine("/x.conf", "install", "nvidia_current", "modprobe -i nvidia-current $CMDLINE_OPTS"),
    ]


def test_command_line_speaks_of_modules_too() -> None:
    text = 'quiet modprobe.blacklist=nouveau,floppy nvidia.NVreg_EnableMSI=0 nvidia-drm.modeset=1 x="a b.c" ext4.y=1'
    assert list(modules.parse_command_line(text)) == [
        ModprobeLine("/proc/cmdline", "blacklist", "nouveau"),
        ModprobeLine("/proc/cmdline", "options", "nvidia", "NVreg_EnableMSI=0"),
        ModprobeLine("/proc/cmdline", "options", "nvidia_drm", "modeset=1"),
    ]


def test_a_file_in_etc_hides_one_of_its_name(tmp_path: Path) -> None:
    put(tmp_path, "proc/cmdline", "quiet")
    put(tmp_path, "etc/modprobe.d/nvidia.conf", "options nvidia NVreg_EnableMSI=1\n")
    put(tmp_path, "lib/modprobe.d/nvidia.conf", "options nvidia NVreg_EnableMSI=0\n")
    put(tmp_path, "lib/modprobe.d/zz.conf", "blacklist nouveau\n")
    put(tmp_path, "etc/modprobe.d/note.txt", "blacklist nvidia\n")
    found = modules.modprobe(place(tmp_path)).need("lines")
    assert [(line.path, line.command) for line in found] == [
        ("/etc/modprobe.d/nvidia.conf", "options"),
        ("/lib/modprobe.d/zz.conf", "blacklist"),
    ]


def test_modprobe_on_hostile_files_is_lost(tmp_path: Path) -> None:
    assert modules.modprobe(place(tmp_path)).value is None  # a tree without /proc/cmdline
    put(tmp_path, "proc/cmdline", "")
    (tmp_path / "etc/modprobe.d/dir.conf").mkdir(parents=True)
    assert "directory" in modules.modprobe(place(tmp_path)).missing
    (tmp_path / "etc/modprobe.d/dir.conf").rmdir()
    put(tmp_path, "etc/modprobe.d/dir.conf", "x" * (2 << 20))
    assert "more than" in modules.modprobe(place(tmp_path)).missing


def test_firmware_by_version_and_by_the_loaders_own_path(tmp_path: Path) -> None:
    assert modules.firmware(place(tmp_path)).value == Firmware()
    put(tmp_path, "lib/firmware/nvidia/580.159.04/gsp_ga10x.bin.zst")
    put(tmp_path, "lib/firmware/nvidia/580.159.04/gsp_log.elf")
    put(tmp_path, "lib/firmware/nvidia/ad102/gsp/booter.bin")
    assert modules.firmware(place(tmp_path)).value == Firmware("/lib/firmware", {"580.159.04": ("gsp_ga10x.bin.zst",)})
    put(tmp_path, "sys/module/firmware_class/parameters/path", "/nix/firmware\n")
    put(tmp_path, "nix/firmware/nvidia/595.91.07/gsp_tu10x.bin")
    seen = modules.firmware(place(tmp_path)).need("firmware")
    assert (seen.root, set(seen.files)) == ("/nix/firmware", {"580.159.04", "595.91.07"})


def test_every_source_survives_garbage(tmp_path: Path) -> None:
    for name in (
        "proc/sys/kernel/osrelease",
        "proc/cmdline",
        "sys/module/firmware_class/parameters/path",
        EFI_VARIABLE,
    ):
        put(tmp_path, name, bytes(range(256)))
    put(tmp_path, "lib/modules/x/modules.dep", b"\xff\xfe\0" * 1000)
    put(tmp_path, "lib/firmware/nvidia", "a file where a directory should be")
    for name, source in modules.SOURCES.items():
        try:
            seen = source(place(tmp_path))
        except (OSError, ValueError, LookupError):
            continue  # what the group turns into "lost" with the reason
        assert isinstance(seen, Observed), name
