# 8 x H100 SXM5 80 GB with NVSwitches, as in a DGX H100, idle.  Sources: NVIDIA's H100 datasheet (700 W, 900 GB/s of
# NVLink, PCIe 5); `nvidia-smi -q` of an 8-GPU node for clocks, banks, reserved memory, BAR1, margins and the fabric;
# PCI addresses: NVIDIA DGX H100 user guide.
count = 8
driver = 580.159.04
library = 13.580.159.04
cuda = 13000
confidential = 0

gpu.name = NVIDIA H100 80GB HBM3
gpu.brand = 14
gpu.architecture = 9
gpu.sm.major = 9
gpu.sm.minor = 0
gpu.part_number = 692-2G520-0200-000
gpu.vbios = 96.00.A5.00.01
gpu.inforom = G520.0200.00.05
gpu.memory = 85520809984
gpu.memory.reserved = 476053504
gpu.memory.used = 1048576
gpu.bar1 = 137438953472
gpu.bar1.used = 1048576

gpu.persistence = 1
gpu.compute_mode = 0
gpu.display = 0
gpu.accounting = 0
gpu.virtual = 0
gpu.throttle = 0x1
gpu.utilization = 0
gpu.utilization.memory = 0
gpu.pcie.replays = 0
gpu.p2p = 0
gpu.gsp = 1
gpu.gsp.version = 580.159.04
gpu.inforom.corrupt = 0
gpu.processes.compute =
gpu.processes.graphics =
gpu.processes.mps =
# GPU recovery action: none
gpu.field.230 = 0
# nanoseconds of throttling since the driver was loaded: power, sync boost, thermal, hw thermal, hw power brake
gpu.field.74 = 0
gpu.field.76 = 0
gpu.field.269 = 0
gpu.field.270 = 0
gpu.field.271 = 0

gpu.ecc = 1
gpu.ecc.pending = 1
gpu.ecc.corrected = 0
gpu.ecc.corrected.ever = 0
gpu.ecc.uncorrected = 0
gpu.ecc.uncorrected.ever = 0

gpu.remap.correctable = 0
gpu.remap.uncorrectable = 0
gpu.remap.pending = 0
gpu.remap.failed = 0
gpu.banks.full = 2560
gpu.banks.high = 0
gpu.banks.partial = 0
gpu.banks.low = 0
gpu.banks.none = 0

gpu.sram.parity = 0
gpu.sram.secded = 0
gpu.sram.exceeded = 0

gpu.mig = 0
gpu.mig.pending = 0
gpu.mig.most = 7

# limits of 87 C told as margins (field 193 shutdown, 194 slowdown); that of the memory is assumed
gpu.field.193 = -8
gpu.field.194 = -2
gpu.field.82 = 43
gpu.threshold.memory = 95
gpu.power.limit = 700000
gpu.power.default = 700000
gpu.power.least = 200000
gpu.power.most = 700000
gpu.clock.sm = 345
gpu.clock.memory = 2619
gpu.clock.most.sm = 1980
gpu.clock.most.memory = 2619
gpu.clock.application.graphics = 1980
gpu.clock.usual.graphics = 1980
gpu.pstate = 0
gpu.pcie.generation = 5
gpu.pcie.width = 16
gpu.pcie.most.generation = 5
gpu.pcie.most.width = 16

# 18 links of the fourth generation, all to NVSwitches; 164 is the speed, 161 to 163 replay, recovery and CRC errors
gpu.nvlink.count = 18
gpu.nvlink.state = 1
gpu.nvlink.version = 6
gpu.nvlink.remote = 2
gpu.field.164 = 26562
gpu.field.161 = 0
gpu.field.162 = 0
gpu.field.163 = 0
# one node: no cluster, and a health that is not supported
gpu.fabric.state = 3
gpu.fabric.status = 0
gpu.fabric.clique = 0
gpu.fabric.cluster = 00000000000000000000000000000000
gpu.fabric.health = 0

gpu.0.pci = 00000000:1B:00.0
gpu.0.minor = 0
gpu.0.uuid = GPU-01111111-2222-3333-4444-555555555555
gpu.0.serial = 1650723000000
gpu.0.temperature = 31
gpu.0.margin = 56
gpu.0.power = 70000
gpu.1.pci = 00000000:43:00.0
gpu.1.minor = 1
gpu.1.uuid = GPU-11111111-2222-3333-4444-555555555555
gpu.1.serial = 1650723000001
gpu.1.temperature = 32
gpu.1.margin = 55
gpu.1.power = 70500
gpu.2.pci = 00000000:52:00.0
gpu.2.minor = 2
gpu.2.uuid = GPU-21111111-2222-3333-4444-555555555555
gpu.2.serial = 1650723000002
gpu.2.temperature = 33
gpu.2.margin = 54
gpu.2.power = 71000
gpu.3.pci = 00000000:61:00.0
gpu.3.minor = 3
gpu.3.uuid = GPU-31111111-2222-3333-4444-555555555555
gpu.3.serial = 1650723000003
gpu.3.temperature = 34
gpu.3.margin = 53
gpu.3.power = 71500
gpu.4.pci = 00000000:9D:00.0
gpu.4.minor = 4
gpu.4.uuid = GPU-41111111-2222-3333-4444-555555555555
gpu.4.serial = 1650723000004
gpu.4.temperature = 31
gpu.4.margin = 56
gpu.4.power = 72000
gpu.5.pci = 00000000:C3:00.0
gpu.5.minor = 5
gpu.5.uuid = GPU-51111111-2222-3333-4444-555555555555
gpu.5.serial = 1650723000005
gpu.5.temperature = 32
gpu.5.margin = 55
gpu.5.power = 72500
gpu.6.pci = 00000000:D1:00.0
gpu.6.minor = 6
gpu.6.uuid = GPU-61111111-2222-3333-4444-555555555555
gpu.6.serial = 1650723000006
gpu.6.temperature = 33
gpu.6.margin = 54
gpu.6.power = 73000
gpu.7.pci = 00000000:DF:00.0
gpu.7.minor = 7
gpu.7.uuid = GPU-71111111-2222-3333-4444-555555555555
gpu.7.serial = 1650723000007
gpu.7.temperature = 34
gpu.7.margin = 53
gpu.7.power = 73500
