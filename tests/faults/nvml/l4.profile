# One L4 24 GB, idle.  Sources: NVIDIA's L4 datasheet (72 W, PCIe 4, ECC, no NVLink, no MIG).  Banks, thresholds,
# VBIOS and infoROM are assumed.
count = 1
driver = 580.159.04
library = 13.580.159.04
cuda = 13000

gpu.name = NVIDIA L4
gpu.brand = 14
gpu.architecture = 8
gpu.sm.major = 8
gpu.sm.minor = 9
gpu.part_number = 900-2G193-0000-000
gpu.vbios = 95.04.29.00.06
gpu.inforom = G193.0200.00.01
gpu.memory = 24152899584
gpu.memory.reserved = 482344960
gpu.memory.used = 0
gpu.bar1 = 34359738368
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
gpu.banks.full = 96
gpu.banks.high = 0
gpu.banks.partial = 0
gpu.banks.low = 0
gpu.banks.none = 0

gpu.sram.parity = 0
gpu.sram.secded = 0
gpu.sram.exceeded = 0

gpu.field.193 = -6
gpu.field.194 = -3
gpu.power = 11900
gpu.power.limit = 72000
gpu.power.default = 72000
gpu.power.least = 40000
gpu.power.most = 72000
gpu.clock.sm = 210
gpu.clock.memory = 405
gpu.clock.most.sm = 2040
gpu.clock.most.memory = 6251
gpu.clock.application.graphics = 2040
gpu.clock.usual.graphics = 2040
gpu.pstate = 8
# at rest the link runs at its lowest generation
gpu.pcie.generation = 1
gpu.pcie.width = 16
gpu.pcie.most.generation = 4
gpu.pcie.most.width = 16

gpu.0.pci = 00000000:31:00.0
gpu.0.minor = 0
gpu.0.uuid = GPU-54545454-2222-3333-4444-555555555555
gpu.0.serial = 1321923000001
gpu.0.temperature = 39
gpu.0.margin = 46
