# 8 x B200 180 GB with NVSwitches, idle.  Sources: NVIDIA's HGX B200 datasheet (1000 W, 1.8 TB/s of NVLink 5); nvml.h for
# what Blackwell no longer has: NVLink's DL counters and, with driver branch 580, application clocks.  Banks, margins,
# clocks, part number, VBIOS and infoROM are assumed.
count = 8
driver = 580.159.04
library = 13.580.159.04
cuda = 13000
confidential = 0

gpu.name = NVIDIA B200
gpu.brand = 14
gpu.architecture = 10
gpu.sm.major = 10
gpu.sm.minor = 0
gpu.part_number = 692-2G525-0200-000
gpu.vbios = 97.00.88.00.0F
gpu.inforom = G525.0200.00.03
gpu.memory = 192265846784
gpu.memory.reserved = 747634688
gpu.memory.used = 0
gpu.bar1 = 274877906944
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
gpu.banks.full = 4096
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

gpu.field.193 = -8
gpu.field.194 = -2
gpu.field.82 = 33
gpu.power.limit = 1000000
gpu.power.default = 1000000
gpu.power.least = 200000
gpu.power.most = 1000000
gpu.clock.sm = 120
gpu.clock.memory = 3996
gpu.clock.most.sm = 1965
gpu.clock.most.memory = 3996
gpu.pstate = 0
gpu.pcie.generation = 5
gpu.pcie.width = 16
gpu.pcie.most.generation = 5
gpu.pcie.most.width = 16

# 18 links of the fifth generation; 208 receive errors, 211 integrity errors, 214 failed and 215 all link recoveries
gpu.nvlink.count = 18
gpu.nvlink.state = 1
gpu.nvlink.version = 7
gpu.nvlink.remote = 2
gpu.field.164 = 53125
gpu.field.208 = 0
gpu.field.211 = 0
gpu.field.214 = 0
gpu.field.215 = 0
# two bits each: bandwidth degraded, route recovery, unhealthy route, access timeout recovery: all false; then nothing
# incorrect in the configuration
gpu.fabric.state = 3
gpu.fabric.status = 0
gpu.fabric.clique = 0
gpu.fabric.cluster = 00000000000000000000000000000000
gpu.fabric.health = 0x1aa

gpu.0.pci = 00000000:04:00.0
gpu.0.minor = 0
gpu.0.uuid = GPU-03333333-2222-3333-4444-555555555555
gpu.0.serial = 1650825000000
gpu.0.temperature = 29
gpu.0.margin = 58
gpu.0.power = 140000
gpu.1.pci = 00000000:23:00.0
gpu.1.minor = 1
gpu.1.uuid = GPU-13333333-2222-3333-4444-555555555555
gpu.1.serial = 1650825000001
gpu.1.temperature = 30
gpu.1.margin = 57
gpu.1.power = 140500
gpu.2.pci = 00000000:64:00.0
gpu.2.minor = 2
gpu.2.uuid = GPU-23333333-2222-3333-4444-555555555555
gpu.2.serial = 1650825000002
gpu.2.temperature = 31
gpu.2.margin = 56
gpu.2.power = 141000
gpu.3.pci = 00000000:84:00.0
gpu.3.minor = 3
gpu.3.uuid = GPU-33333333-2222-3333-4444-555555555555
gpu.3.serial = 1650825000003
gpu.3.temperature = 32
gpu.3.margin = 55
gpu.3.power = 141500
gpu.4.pci = 00000000:97:00.0
gpu.4.minor = 4
gpu.4.uuid = GPU-43333333-2222-3333-4444-555555555555
gpu.4.serial = 1650825000004
gpu.4.temperature = 29
gpu.4.margin = 58
gpu.4.power = 142000
gpu.5.pci = 00000000:B7:00.0
gpu.5.minor = 5
gpu.5.uuid = GPU-53333333-2222-3333-4444-555555555555
gpu.5.serial = 1650825000005
gpu.5.temperature = 30
gpu.5.margin = 57
gpu.5.power = 142500
gpu.6.pci = 00000000:DA:00.0
gpu.6.minor = 6
gpu.6.uuid = GPU-63333333-2222-3333-4444-555555555555
gpu.6.serial = 1650825000006
gpu.6.temperature = 31
gpu.6.margin = 56
gpu.6.power = 143000
gpu.7.pci = 00000000:F9:00.0
gpu.7.minor = 7
gpu.7.uuid = GPU-73333333-2222-3333-4444-555555555555
gpu.7.serial = 1650825000007
gpu.7.temperature = 32
gpu.7.margin = 55
gpu.7.power = 143500
