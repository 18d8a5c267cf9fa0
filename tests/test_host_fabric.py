"""The readers of NVSwitches, RDMA devices and network interfaces, on trees with what kernels and daemons write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envkit.host import fabric, machine, network, rdma
from envkit.host.observe import Group, read_groups
from envkit.host.root import HostRoot
from envkit.subjects.host.fabric import FabricCard, FabricDaemons, Gid

SWITCH, CARD, GPU = "0000:05:00.0", "0000:18:00.0", "0000:1b:00.0"
PCI = "sys/devices/pci0000:00"


def write(root: Path, files: dict[str, str | bytes]) -> HostRoot:
    """A tree with these files under ``root``."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return HostRoot(root, {})


def function(root: Path, address: str, vendor: str, device: str, code: str, driver: str = "") -> None:
    """A PCI function as the kernel shows it: a directory, its link on the bus, its driver's link."""
    at = f"{PCI}/{address}"
    write(root, {f"{at}/vendor": vendor + "\n", f"{at}/device": device + "\n", f"{at}/class": code + "\n"})
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / address).symlink_to(f"../../../devices/pci0000:00/{address}")
    if driver:
        (root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        (root / at / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")


def vpd(submodel: str) -> bytes:
    """Vital product data: a name, the read-only fields, the end tag."""
    name = b"NVIDIA ConnectX-7"
    value = f"MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=C7010Z{submodel}".encode()
    fields = b"PN\x06MCX750" + b"VA" + bytes([len(value)]) + value
    parts = b"\x82" + len(name).to_bytes(2, "little") + name + b"\x90" + len(fields).to_bytes(2, "little") + fields
    return parts + b"\x78" + b"\xff" * 64


def hca(root: Path, name: str, address: str, layer: str = "InfiniBand") -> None:
    """An RDMA device with one port."""
    function(root, address, "0x15b3", "0x1021", "0x020700", "mlx5_core")
    at = f"{PCI}/{address}/infiniband/{name}"
    port = f"{at}/ports/1"
    write(
        root,
        {
            f"{at}/fw_ver": "28.43.2566\n",
            f"{at}/board_id": "MT_0000000838\n",
            f"{port}/link_layer": f"{layer}\n",
            f"{port}/state": "4: ACTIVE\n",
            f"{port}/phys_state": "5: LinkUp\n",
            f"{port}/rate": "400 Gb/sec (4X NDR)\n",
            f"{port}/counters/link_downed": "2\n",
            f"{port}/counters/VL15_dropped": "N/A (no PMA)\n",
            f"{port}/hw_counters/lifespan": "10\n",
            f"{port}/hw_counters/local_ack_timeout_err": "7\n",
            f"{port}/gid_attrs/types/0": "IB/RoCE v1\n",
            f"{port}/gid_attrs/types/3": "RoCE v2\n",
            f"{port}/gids/0": "0000:0000:0000:0000:0000:0000:0000:0000\n",
            f"{port}/gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
            f"{PCI}/{address}/net/ibp24s0/mtu": "2044\n",
            "sys/class/infiniband_mad/umad0/ibdev": f"{name}\n",
            "sys/class/infiniband_mad/umad0/port": "1\n",
            "sys/class/infiniband_verbs/uverbs0/ibdev": f"{name}\n",
            "dev/infiniband/uverbs0": "",
            "proc/uptime": "1209600.50 99999.00\n",
        },
    )
    (root / at / "device").symlink_to(f"../../../{address}")
    (root / "sys/class/infiniband").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/infiniband" / name).symlink_to(f"../../devices/pci0000:00/{address}/infiniband/{name}")


def test_cards_of_the_fabric(tmp_path: Path) -> None:
    function(tmp_path, GPU, "0x10de", "0x2330", "0x030200", "nvidia")
    function(tmp_path, SWITCH, "0x10de", "0x22a3", "0x068000", "nvidia-nvswitch")
    function(tmp_path, CARD, "0x15b3", "0x1021", "0x020700")
    function(tmp_path, "0000:10:1b.0", "0x1d0f", "0xefa2", "0x020000", "efa")
    function(tmp_path, "0000:31:00.0", "0x8086", "0x159b", "0x020000", "ice")
    (tmp_path / PCI / CARD / "physfn").mkdir()
    assert fabric.fabric_cards(HostRoot(tmp_path, {})).value == (
        FabricCard(SWITCH, "nvswitch", "0x22a3", "nvidia-nvswitch"),
        FabricCard("0000:10:1b.0", "efa", "0xefa2", "efa"),
        FabricCard(CARD, "infiniband", "0x1021", "", True),
    )


def test_a_machine_without_a_pci_bus_has_no_cards_and_one_without_sys_says_nothing(tmp_path: Path) -> None:
    assert fabric.fabric_cards(HostRoot(tmp_path, {})).value is None
    (tmp_path / "sys/bus").mkdir(parents=True)
    assert fabric.fabric_cards(HostRoot(tmp_path, {})).value == ()


@pytest.mark.parametrize(
    ("data", "managers"),
    [(vpd(",SMDL=SW_MNG"), (CARD,)), (vpd(""), ()), (b"", ()), (b"\xff" * (2 << 20), ()), (None, ())],
)
def test_a_card_that_manages_nvswitches(tmp_path: Path, data: bytes | None, managers: tuple[str, ...]) -> None:
    function(tmp_path, GPU, "0x10de", "0x2901", "0x030200", "nvidia")
    function(tmp_path, CARD, "0x15b3", "0x1021", "0x020700", "mlx5_core")
    if data is not None:
        (tmp_path / PCI / CARD / "vpd").write_bytes(data)
    assert fabric.switch_managers(HostRoot(tmp_path, {})).value == managers


def test_no_card_is_asked_beside_an_nvswitch_or_without_a_gpu(tmp_path: Path) -> None:
    function(tmp_path, CARD, "0x15b3", "0x1021", "0x020700", "mlx5_core")
    (tmp_path / PCI / CARD / "vpd").mkdir()  # reading it would be an error
    assert fabric.switch_managers(HostRoot(tmp_path, {})).value == ()
    function(tmp_path, GPU, "0x10de", "0x2330", "0x030200", "nvidia")
    assert "is a directory" in fabric.switch_managers(HostRoot(tmp_path, {})).missing
    function(tmp_path, SWITCH, "0x10de", "0x22a3", "0x068000", "nvidia-nvswitch")
    assert fabric.switch_managers(HostRoot(tmp_path, {})).value == ()


def test_daemons_by_their_cut_names_and_whose_processes_they_are(tmp_path: Path) -> None:
    comms = {"2": "kthreadd", "71": "nv-fabricmanage", "72": "nvlsm"}
    place = write(tmp_path, {f"proc/{pid}/comm": f"{comm}\n" for pid, comm in comms.items()})
    (tmp_path / "proc/73").mkdir()  # it ended between two reads
    assert fabric.fabric_daemons(place).value == FabricDaemons(("nv-fabricmanager", "nvlsm"), True)
    (tmp_path / "proc/2/comm").write_text("bash\n")
    assert fabric.fabric_daemons(place).value == FabricDaemons(("nv-fabricmanager", "nvlsm"), False)


LOG = """\
[Feb 25 2025 13:00:00] [ERROR] [tid 1] an error of the last time
[Feb 26 2025 08:00:00] [INFO] [tid 1803] Fabric Manager Log initializing at: 2/26/2025 08:00:00.000
[Feb 26 2025 08:00:01] [INFO] [tid 1803] Received an inband message
[Feb 27 2025 15:10:02] [ERROR] [tid 12727] detected NVSwitch non-fatal error 12028 on fid 0
"""


def test_the_log_of_the_fabric_manager_counts_since_its_start(tmp_path: Path) -> None:
    place = write(tmp_path, {"var/log/fabricmanager.log": LOG})
    log = fabric.fabric_log(place).need("the log")
    assert log.lines == ("[Feb 27 2025 15:10:02] [ERROR] [tid 12727] detected NVSwitch non-fatal error 12028 on fid 0",)
    (tmp_path / "var/log/fabricmanager.log").write_text(LOG + LOG.splitlines()[0].join(["", "\n"]) * 40_000)
    log = fabric.fabric_log(place).need("the log")
    assert len(log.lines) == fabric.LINES_MOST < log.count < 40_000


def test_the_log_is_where_the_configuration_says(tmp_path: Path) -> None:
    config = "usr/share/nvidia/nvswitch/fabricmanager.cfg"
    place = write(tmp_path, {config: "# a comment=1\nLOG_FILE_NAME=/var/log/other.log\nLOG_USE_SYSLOG=0\n"})
    assert fabric.fabric_log(place).need("the log").present is False
    write(tmp_path, {"var/log/other.log": LOG})
    assert fabric.fabric_log(place).via == "/var/log/other.log"
    write(tmp_path, {config: "LOG_USE_SYSLOG=1\n"})
    assert "syslog" in fabric.fabric_log(place).missing


def test_imex(tmp_path: Path) -> None:
    place = HostRoot(tmp_path, {})
    seen = fabric.imex(place).need("imex")
    assert (seen.listed, seen.nodes, seen.channels) == (False, (), ())
    write(
        tmp_path,
        {
            "etc/nvidia-imex/config.cfg": "IMEX_NODE_CONFIG_FILE=/shared/nodes.cfg\n",
            "shared/nodes.cfg": "# nodes\n10.0.0.11\n\n10.0.0.12\n",
            "dev/nvidia-caps-imex-channels/channel0": "",
        },
    )
    seen = fabric.imex(place).need("imex")
    assert seen.path == "/shared/nodes.cfg"
    assert seen.nodes == ("10.0.0.11", "10.0.0.12")
    assert seen.channels == ("/dev/nvidia-caps-imex-channels/channel0",)


def test_an_rdma_device(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0", CARD)
    (device,) = rdma.infiniband(HostRoot(tmp_path, {})).need("devices")
    assert (device.name, device.pci, device.driver, device.virtual) == ("mlx5_0", CARD, "mlx5_core", False)
    assert (device.board.value, device.firmware.value, device.nets) == ("MT_0000000838", "28.43.2566", ("ibp24s0",))
    assert (device.verbs.value, device.counting_s.value) == ("usable", 1209600.5)
    (port,) = device.ports.need("ports")
    assert (port.number, port.layer.value, port.state.value) == (1, "InfiniBand", "ACTIVE")
    assert (port.physical.value, port.rate.value, port.umad.value) == ("LinkUp", 400.0, True)
    assert port.counters.value == {"link_downed": 2, "lifespan": 10, "local_ack_timeout_err": 7}
    assert port.gids.is_unsupported


def test_an_rdma_device_on_ethernet_has_gids(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0", CARD, "Ethernet")
    (device,) = rdma.infiniband(HostRoot(tmp_path, {})).need("devices")
    assert device.ports.need("ports")[0].gids.value == (Gid(3, "RoCE v2", "0000:0000:0000:0000:0000:ffff:0a00:0001"),)


def test_what_an_rdma_device_does_not_tell(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0", CARD)
    at = tmp_path / PCI / CARD / "infiniband/mlx5_0"
    (at / "board_id").unlink()
    (at / "ports/1/state").write_text("garbage\n")
    (at / "ports/1/rate").unlink()
    (at / "ports/1/rate").mkdir()
    (at / "ports/1/phys_state").write_bytes(b"\xff\x00" * (1 << 20))
    (tmp_path / "dev/infiniband/uverbs0").unlink()
    (tmp_path / "proc/uptime").write_text("")
    for table in ("counters", "hw_counters"):
        for file in (at / "ports/1" / table).iterdir():
            file.write_text("N/A\n")
    (device,) = rdma.infiniband(HostRoot(tmp_path, {})).need("devices")
    (port,) = device.ports.need("ports")
    assert device.board.is_unsupported
    assert (device.verbs.value, device.counting_s.value) == ("no node", None)
    assert (port.state.value, port.rate.value, port.physical.value, port.counters.value) == (None, None, None, None)
    assert "garbage" in port.state.missing


def test_a_device_of_software_has_no_address(tmp_path: Path) -> None:
    at = "sys/class/infiniband/rxe0"
    write(tmp_path, {f"{at}/ports/1/state": "4: ACTIVE\n", f"{at}/fw_ver": "\n"})
    (device,) = rdma.infiniband(HostRoot(tmp_path, {})).need("devices")
    assert (device.pci, device.driver, device.firmware.is_unsupported) == ("", "", True)
    assert device.verbs.value == "no class device"


def test_rdma_devices_that_are_not_there_and_a_tree_that_does_not_say(tmp_path: Path) -> None:
    assert rdma.infiniband(HostRoot(tmp_path, {})).value is None
    (tmp_path / "sys/class").mkdir(parents=True)
    assert rdma.infiniband(HostRoot(tmp_path, {})).value == ()


@pytest.mark.parametrize(
    ("text", "rate"),
    [("400 Gb/sec (4X NDR)", 400.0), ("2.5 Gb/sec (1X SDR)", 2.5), ("10 (4X)", None), ("", None)],
)
def test_rates(text: str, rate: float | None) -> None:
    if rate is None:
        with pytest.raises(ValueError, match="is no rate"):
            rdma.parse_rate(text)
    else:
        assert rdma.parse_rate(text) == rate


def test_cufile_is_json_with_comments() -> None:
    text = """{
        // NOTE : a comment with "quotes"
        "logging": {"dir": "http://not/a//comment"}, /* another
        one */
        "properties": {"allow_compat_mode": false, "use_pci_p2pdma": true}
    }"""
    seen = rdma.parse_cufile("/etc/cufile.json", text)
    assert (seen.error, seen.compatible, seen.p2pdma) == ("", False, True)
    assert rdma.parse_cufile("x", "{").error
    assert rdma.parse_cufile("x", "[]").error
    assert rdma.parse_cufile("x", json.dumps({"properties": {"allow_compat_mode": "no"}})).compatible is None


def test_nccl_files_and_who_wins(tmp_path: Path) -> None:
    write(tmp_path, {"etc/nccl.conf": "# site\nNCCL_SOCKET_IFNAME==ens1f0\nNCCL_DEBUG=WARN\nPATH=/bin\n"})
    write(tmp_path, {"home/ada/.nccl.conf": "NCCL_DEBUG=INFO\n"})
    assert rdma.nccl_conf(HostRoot(tmp_path, {})).value == {"NCCL_SOCKET_IFNAME": "=ens1f0", "NCCL_DEBUG": "WARN"}
    assert rdma.nccl_conf(HostRoot(tmp_path, {"HOME": "/home/ada"})).need("files")["NCCL_DEBUG"] == "INFO"
    named = HostRoot(tmp_path, {"HOME": "/home/ada", "NCCL_CONF_FILE": "/none"})
    assert rdma.nccl_conf(named).need("files")["NCCL_DEBUG"] == "WARN"


ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eno1\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""
ZEROS = "0" * 32
ROUTES6 = (
    f"{ZEROS} 00 {ZEROS} 00 fe800000000000000000000000000001 00000400 00000004 00000000 00000003     eno2\n"
    f"{ZEROS} 00 {ZEROS} 00 {ZEROS} ffffffff 00000001 00000000 00200200       lo\n"
    f"{ZEROS} 00 {ZEROS} 00 {ZEROS} ffffffff 00000001 00000000 00000201     eno3\n"
)


def test_default_routes() -> None:
    assert network.parse_routes(ROUTES, ROUTES6) == {"eno1", "eno2"}
    assert network.parse_routes("", "") == frozenset()
    with pytest.raises((ValueError, IndexError)):
        network.parse_routes("head\none two\n", "")


def test_network_interfaces_and_a_bond(tmp_path: Path) -> None:
    for name, speed in (("eno1", "25000"), ("eno2", "-1"), ("bond0", "25000"), ("lo", None)):
        at = f"sys/class/net/{name}"
        write(tmp_path, {f"{at}/operstate": "up\n", f"{at}/mtu": "9000\n", f"{at}/flags": "0x1003\n"})
        if speed:
            write(tmp_path, {f"{at}/speed": f"{speed}\n"})
    place = write(
        tmp_path,
        {
            "sys/class/net/bonding_masters": "bond0\n",
            "sys/class/net/lo/flags": "0x9\n",
            "sys/class/net/bond0/bonding/slaves": "eno1 eno2\n",
            "sys/class/net/eno1/bonding_slave/mii_status": "up\n",
            "sys/class/net/eno2/bonding_slave/mii_status": "going down\n",
            "proc/net/route": ROUTES,
        },
    )
    found = {item.name: item for item in network.network(place).need("interfaces")}
    assert set(found) == {"bond0", "eno1", "eno2", "lo"}
    assert (found["bond0"].members, found["bond0"].down) == (("eno1", "eno2"), ("eno2",))
    assert found["eno1"].speed.value == 25000
    assert found["eno2"].speed.is_unsupported and found["lo"].speed.is_unsupported
    assert [item.name for item in found.values() if item.default] == ["eno1"]
    assert found["lo"].loopback and not found["eno1"].loopback


def test_the_environment_is_kept_by_prefix_and_secrets_are_not() -> None:
    kept = machine.environment(
        {
            "NCCL_IB_HCA": "mlx5",
            "UCX_TLS": "rc",
            "FI_PROVIDER": "efa",
            "GLOO_SOCKET_IFNAME": "eno1",
            "CUDA_VISIBLE_DEVICES": "0",
            "NVIDIA_API_KEY": "x",
            "TORCH_HUB_TOKEN": "x",
            "NCCL_PASSWORD": "x",
            "HOME": "/root",
        }
    ).need("the environment")
    assert set(kept) == {"NCCL_IB_HCA", "UCX_TLS", "FI_PROVIDER", "GLOO_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES"}


@pytest.mark.parametrize("hostile", ["empty", "garbage", "directories"])
def test_hostile_trees_cost_no_more_than_their_source(tmp_path: Path, hostile: str) -> None:
    hca(tmp_path, "mlx5_0", CARD)
    write(tmp_path, {"sys/class/net/eno1/operstate": "up", "sys/class/net/eno1/mtu": "9000"})
    for file in [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]:
        file.unlink()
        if hostile == "directories":
            file.mkdir()
        else:
            file.write_bytes(b"" if hostile == "empty" else b"\xff\x00;=\n" * (400 << 10))
    sources = (fabric.SOURCES, fabric.VITAL, rdma.SOURCES, rdma.CONFIGURED, network.SOURCES)
    groups = tuple(Group(str(number), lambda place, them=them: them, 5.0) for number, them in enumerate(sources))
    found = read_groups(groups, HostRoot(tmp_path, {"HOME": "/"}), 20.0)
    assert set(found) == {name for them in sources for name in them}
    assert not any("reader" in seen.missing and "failed:" not in seen.missing for seen in found.values()), found
    assert found["network"].value is None or found["network"].value == ()
