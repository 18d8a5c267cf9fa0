"""dpkg's list, apt's configuration and the mark for a reboot, in their own formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from clocks import costs_less

from envkit.host import packages
from envkit.host.root import HostRoot
from envkit.subjects.host import Package, Reboot, UnattendedUpgrades

STATUS = """\
Package: adduser
Status: install ok installed
Architecture: all
Version: 3.134

Package: libnvidia-compute-580
Status: hold ok installed
Priority: optional
Maintainer: Ubuntu Core Developers <ubuntu-devel-discuss@lists.ubuntu.com>
Architecture: amd64
Version: 580.159.04-0ubuntu0.24.04.1
Description: NVIDIA libcompute package
 Package: not-a-package
 .
 more text

Package: libnvidia-compute-580
Status: install ok installed
Architecture: i386
Version: 580.159.04-0ubuntu0.24.04.1

Package: nvidia-dkms-open
Status: install ok half-configured
Maintainer: cudatools <cudatools@nvidia.com>
Architecture: amd64
Version: 580.159.04-1ubuntu1

Package: nvidia-driver-570
Status: deinstall ok config-files
Architecture: amd64
Version: 570.211.01-0ubuntu1

Package: nvidia-settings
Status: install ok installed
Architecture: amd64
Version: 510.47.03-0ubuntu4

Package: libnvidia-container1
Status: install ok installed
Architecture: amd64
Version: 1.18.1-1

Package: linux-modules-nvidia-580-6.8.0-85-generic
Status: install ok installed
Architecture: amd64
Version: 6.8.0-85.85+1

Package: docker-ce
Status: install ok installed
Architecture: amd64
Version: 5:28.3.0-1~ubuntu.24.04~noble
"""


def put(root: Path, name: str, content: str | bytes = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def place(root: Path) -> HostRoot:
    return HostRoot(root, {})


def test_installed_packages_that_matter(tmp_path: Path) -> None:
    put(tmp_path, "var/lib/dpkg/status", STATUS)
    assert packages.packages(place(tmp_path)).value == {
        "libnvidia-compute-580": "580.159.04-0ubuntu0.24.04.1",
        "nvidia-dkms-open": "580.159.04-1ubuntu1",
        "nvidia-settings": "510.47.03-0ubuntu4",
        "libnvidia-container1": "1.18.1-1",
        "linux-modules-nvidia-580-6.8.0-85-generic": "6.8.0-85.85+1",
        "docker-ce": "5:28.3.0-1~ubuntu.24.04~noble",
    }


def test_the_drivers_own_packages_with_hold_state_and_vendor(tmp_path: Path) -> None:
    put(tmp_path, "var/lib/dpkg/status", STATUS)
    assert packages.driver_packages(place(tmp_path)).value == (
        Package("libnvidia-compute-580", "580.159.04-0ubuntu0.24.04.1", "installed", True, "distribution"),
        Package("nvidia-dkms-open", "580.159.04-1ubuntu1", "half-configured", False, "nvidia"),
        Package("linux-modules-nvidia-580-6.8.0-85-generic", "6.8.0-85.85+1"),
    )


def test_a_package_field_anywhere_in_its_paragraph(tmp_path: Path) -> None:
    put(tmp_path, "var/lib/dpkg/status", "Status: install ok installed\nVersion: 2\nPackage: docker.io\n\nPackage: x\n")
    assert packages.packages(place(tmp_path)).value == {"docker.io": "2"}


def test_without_dpkg_everything_says_so(tmp_path: Path) -> None:
    for name, source in packages.SOURCES.items():
        assert source(place(tmp_path)).is_unsupported, name


def test_an_empty_list_has_no_package_and_another_text_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "var/lib/dpkg/status", "")
    assert packages.packages(place(tmp_path)).value == {}
    put(tmp_path, "var/lib/dpkg/status", b"\xff\0garbage" * 1000)
    with pytest.raises(ValueError, match="names no package"):
        packages.packages(place(tmp_path))


def test_five_megabytes_are_read_in_a_moment(tmp_path: Path) -> None:
    filler = "".join(
        f"Package: other{number}\nStatus: install ok installed\nVersion: 1\nDescription: {'x' * 900}\n\n"
        for number in range(5000)
    )
    put(tmp_path, "var/lib/dpkg/status", filler + STATUS)
    with costs_less(1.0):
        assert len(packages.packages(place(tmp_path)).need("packages")) == 6


APT = """\
// a comment with "quotes" { and braces
APT::Periodic::Update-Package-Lists "1";
APT::Periodic::Unattended-Upgrade "1";
Unattended-Upgrade::Allowed-Origins {
        "${distro_id}:${distro_codename}-security";
//      "${distro_id}:${distro_codename}-updates";
};
Unattended-Upgrade::Package-Blacklist {
    /* kept back
       since the accident */
    "nvidia-";
    "libnvidia-";   # and their libraries
};
Acquire { http { Proxy "http://proxy:3128"; }; };
"""


def test_apt_configuration_in_both_notations() -> None:
    nested = 'APT { Periodic { Unattended-Upgrade "0"; }; };\nunattended-upgrade::package-blacklist:: "cuda-";\n'
    assert list(packages.parse_apt(nested)) == [
        ("apt::periodic::unattended-upgrade", "0"),
        ("unattended-upgrade::package-blacklist", "cuda-"),
    ]
    said = packages.parse_unattended(packages.parse_apt(APT), installed=True)
    assert said == UnattendedUpgrades(True, ("${distro_id}:${distro_codename}-security",), ("nvidia-", "libnvidia-"))
    later = packages.parse_unattended(packages.parse_apt(APT + nested), installed=True)
    assert (later.enabled, later.skipped) == (False, ("nvidia-", "libnvidia-", "cuda-"))


def test_clear_empties_a_list() -> None:
    text = APT + '#clear Unattended-Upgrade::Package-Blacklist;\nUnattended-Upgrade::Package-Blacklist { "cuda"; };\n'
    assert packages.parse_unattended(packages.parse_apt(text), installed=True).skipped == ("cuda",)


def test_upgrades_are_off_without_the_tool_or_the_period() -> None:
    assert not packages.parse_unattended(packages.parse_apt(APT), installed=False).enabled
    assert not packages.parse_unattended(packages.parse_apt(""), installed=True).enabled


@pytest.mark.parametrize("text", ['A "not ended', "A { B; } }", "/* for ever"])
def test_apt_refuses_what_does_not_end(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(packages.parse_apt(text))


def test_apt_reads_its_files_in_order_and_no_backups(tmp_path: Path) -> None:
    put(tmp_path, "var/lib/dpkg/status", "")
    put(tmp_path, "usr/bin/unattended-upgrade")
    put(tmp_path, "etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";')
    put(tmp_path, "etc/apt/apt.conf.d/20auto-upgrades.dpkg-old", 'APT::Periodic::Unattended-Upgrade "0";')
    put(tmp_path, "etc/apt/apt.conf.d/50x.conf", 'Unattended-Upgrade::Package-Blacklist { "nvidia"; };')
    assert packages.unattended(place(tmp_path)).value == UnattendedUpgrades(True, (), ("nvidia",))
    put(tmp_path, "etc/apt/apt.conf", 'APT::Periodic::Unattended-Upgrade "0";')
    assert not packages.unattended(place(tmp_path)).need("upgrades").enabled
    (tmp_path / "etc/apt/apt.conf.d/60dir").mkdir()
    assert "directory" in packages.unattended(place(tmp_path)).missing


def test_reboot_with_and_without_names(tmp_path: Path) -> None:
    put(tmp_path, "var/lib/dpkg/status", "")
    assert packages.reboot(place(tmp_path)).value == Reboot(False)
    put(tmp_path, "run/reboot-required", "*** System restart required ***\n")
    assert packages.reboot(place(tmp_path)).value == Reboot(True)
    put(tmp_path, "run/reboot-required.pkgs", "linux-base\nlinux-image-6.8.0-90-generic\nlinux-base\n")
    assert packages.reboot(place(tmp_path)).value == Reboot(True, ("linux-base", "linux-image-6.8.0-90-generic"))
