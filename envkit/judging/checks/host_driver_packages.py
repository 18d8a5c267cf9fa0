"""What is asked of the driver's packages: that they fit one another and nothing changes them under a job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.judging.checks._driver import driver_packages, need_own_driver, need_own_gpu, some
from envkit.judging.checks._host import is_loaded, loaded_driver
from envkit.judging.checks._outcomes import note, skip_if, warning
from envkit.model import Finding, Severity, Skip
from envkit.subjects import Host
from envkit.subjects.host import NO_DPKG, Package, UnattendedUpgrades

# the packages that must be of one version: the module, its source, and the libraries that talk to it
_CORE = re.compile(
    r"(libnvidia-(compute|gpucomp|cfg1|decode|encode|fbc1|gl|ml1|ptxjitcompiler1)|libcuda1|nvidia-(dkms|kernel-dkms"
    r"|open-kernel-dkms|kernel-source|kernel-open|compute-utils|driver|open|utils))(-.*)?"
)
# an upgrade of one of these is what a running job notices
_FELT = re.compile(r"(libnvidia-compute|libcuda1|nvidia-dkms|nvidia-kernel-dkms|nvidia-open-kernel-dkms)(-.*)?")
_UNFINISHED = ("half-installed", "unpacked", "half-configured")
_KERNEL_OR_DRIVER = re.compile(r"linux-(image|modules|base|firmware)|nvidia|libcuda")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def upstream(version: str) -> str:
    """The upstream part of a Debian version, which for the driver's packages is the driver's version."""
    return version.rpartition(":")[2].partition("-")[0]


def host_driver_packages_mixed_versions(host: Host) -> Iterator[Finding]:
    """The driver's packages are all of one version."""
    need_own_gpu(host)
    core = [package for package in driver_packages(host) if _CORE.fullmatch(package.name)]
    skip_if(not core, "none of the driver's own packages is installed")
    by_version: dict[str, list[str]] = {}
    for package in core:
        by_version.setdefault(upstream(package.version), []).append(package.name)
    if len(by_version) > 1:
        said = [f"{version} ({some(names, 2)})" for version, names in sorted(by_version.items())]
        yield warning(
            f"the driver's packages are of {len(by_version)} versions: {', '.join(said)}",
            "/var/lib/dpkg/status",
            dict.fromkeys(by_version, host.driver_packages.via),
            "purge the packages of the branch that is not wanted, install the other whole and reboot; "
            "check it with `dpkg -l '*nvidia*' | grep ^ii`",
        )


def host_driver_packages_half_configured(host: Host) -> Iterator[Finding]:
    """The driver's packages are configured to the end."""
    need_own_gpu(host)
    for package in driver_packages(host):
        if package.state in _UNFINISHED:
            yield Finding(
                f"package {package.name} {package.version} is {package.state}",
                Severity.WARNING if is_loaded(host) else Severity.ERROR,
                package.name,
                {package.state: host.driver_packages.via},
                "finish it with `dpkg --configure -a`; for a module that could not be built the reason is in "
                "/var/lib/dkms/nvidia/*/build/make.log; check it with `dpkg --audit`",
            )


def host_driver_unattended_upgrades_on(host: Host) -> Iterator[Finding]:
    """Unattended upgrades do not replace the driver under a running job."""
    need_own_gpu(host)
    packages = [package for package in driver_packages(host) if _FELT.fullmatch(package.name)]
    skip_if(not packages, "the driver did not come in Debian packages")
    upgrades = host.unattended.need("apt's unattended upgrades")
    open_to = [package.name for package in packages if upgrades.enabled and _upgradable(package, upgrades)]
    if open_to:
        yield warning(
            f"unattended upgrades may replace {some(open_to)} under a running job",
            "/etc/apt/apt.conf.d/50unattended-upgrades",
            {"unattended upgrades are on": host.unattended.via, f"{some(open_to)} not held": host.driver_packages.via},
            f'hold them with `apt-mark hold {" ".join(open_to)}`, or add "nvidia-" and "libnvidia-" to '
            "Unattended-Upgrade::Package-Blacklist; check it with `unattended-upgrade --dry-run --verbose`",
        )


def _upgradable(package: Package, upgrades: UnattendedUpgrades) -> bool:
    if package.held or any(_matches(pattern, package.name) for pattern in upgrades.skipped):
        return False
    if package.vendor == "distribution":
        return True
    return any(
        re.search(r"nvidia|cuda|(origin|o|site|label|l)=\*", origin, re.IGNORECASE) for origin in upgrades.origins
    )


def _matches(pattern: str, name: str) -> bool:
    """Whether the tool leaves the package alone: its patterns are regular expressions for a name's beginning."""
    try:
        return re.match(pattern, name) is not None
    except re.error:
        return False


def host_reboot_pending(host: Host) -> Iterator[Finding]:
    """The distribution does not ask for a reboot."""
    skip_if(host.reboot.is_unsupported, NO_DPKG)
    reboot = host.reboot.need("whether a reboot is due")
    if not reboot.wanted:
        return
    weighty = [name for name in reboot.packages if _KERNEL_OR_DRIVER.match(name)]
    whom = some(weighty or list(reboot.packages)) or "no package by name"
    yield Finding(
        f"a reboot is due: {whom}",
        Severity.WARNING if weighty or not reboot.packages else Severity.NOTE,
        "/run/reboot-required",
        {whom: host.reboot.via},
        "drain the machine and reboot it before a long job starts; check it with `ls /run/reboot-required`",
    )


def host_driver_branch_end_of_life(host: Host, facts: Facts) -> Iterator[Finding]:
    """NVIDIA still supports the driver's branch."""
    need_own_driver(host)
    driver, via = loaded_driver(host)
    row = facts.branch(driver)
    end = last_day(row.eol) if row is not None and row.eol is not None else ""
    if row is None or not end:
        raise Skip(f"the facts have no end of life for the driver branch {driver.major}")
    today = max(host.today.need("the day"), row.seen)
    if today > end:
        yield note(
            f"driver {driver} is of branch {driver.major}, whose support ended: {row.eol}",
            evidence={str(driver): via, f"end of life {row.eol}": row.source},
            fix="plan the move to a branch with long-term support, which still gets security fixes; "
            "check it with `envkit facts driver`",
        )


def last_day(words: str) -> str:
    """An end of life ("June 2026", "2026-06-03") as the last day that it may mean; empty for other words."""
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", words):
        return words
    month, _, year = words.partition(" ")
    return f"{year}-{_MONTHS.index(month) + 1:02}-31" if month in _MONTHS and re.fullmatch("[0-9]{4}", year) else ""
