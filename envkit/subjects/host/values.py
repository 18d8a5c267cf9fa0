"""What a value of a machine can be.  Whatever else a source or a document says is nonsense, and is not observed.

``codec`` reads it as a missing value with ``Reason.NONSENSE``; host-value-impossible reports it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from envkit.subjects.limit import Told as Told

Count = Annotated[int, Meta(ge=0)]  # bytes and times too
Amount = Annotated[float, Meta(ge=0)]
ToldAmount = Annotated[float, Meta(ge=-1)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Celsius = Annotated[int, Meta(ge=-25, le=200)]  # boards are sold for -25; a GPU switches itself off near 110
Threshold = Annotated[int, Meta(ge=-1, le=200)]  # of a temperature, -1 where there is none
Megahertz = Annotated[int, Meta(ge=0, le=100_000)]
Milliwatts = Annotated[int, Meta(ge=0, le=100_000_000)]
GpuBytes = Annotated[int, Meta(ge=1, le=1 << 50)]  # of a GPU that has memory
Lanes = Literal[1, 2, 4, 8, 12, 16, 32]  # PCI Express Base Specification, Link Width
LanesOrNone = Literal[0, 1, 2, 4, 8, 12, 16, 32]
PacketBytes = Literal[128, 256, 512, 1024, 2048, 4096]  # the same, Device Control
Generation = Annotated[int, Meta(ge=0, le=16)]
GigatransfersPerSecond = Annotated[float, Meta(ge=2.5, le=512)]
Number = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]  # of a thing among its like
PortNumber = Annotated[int, Meta(ge=1, le=254)]
Text = Annotated[str, Meta(min_length=1)]
PciAddress = Annotated[str, Meta(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
PciId = Annotated[str, Meta(pattern=r"^(0x[0-9a-f]{4})?$")]
GpuUuid = Annotated[str, Meta(pattern=r"^(GPU|MIG)-[0-9A-Za-z-]+$")]
Capability = Annotated[str, Meta(pattern=r"^sm_[0-9]{2,3}[af]?$")]
Version = Annotated[str, Meta(pattern=r"^([0-9]+(\.[0-9]+)*)?$")]  # empty where none was told
