# One T4 16 GB, idle.  Sources: NVIDIA's T4 datasheet (70 W, PCIe 3, ECC); NVIDIA's dynamic page retirement document: it
# retires pages and cannot remap rows.  No MIG, no NVLink.  Thresholds, VBIOS and infoROM are assumed.
count = 1
driver = 580.159.04
library = 13.580.159.04
cuda = 13000

gpu.name = Tesla T4
gpu.brand = 14
gpu.architecture = 6
gpu.sm.major = 7
gpu.sm.minor = 5
gpu.part_number = 900-2G183-0000-001
gpu.vbios = 90.04.A7.00.01
gpu.inforom = G183.0200.00.02
gpu.memory = 16106127360
gpu.memory.reserved = 467664896
gpu.memory.used = 0
gpu.bar1 = 268435456
gpu.bar1.used = 2097152

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

gpu.retired.single = 0
gpu.retired.double = 0
gpu.retired.pending = 0
gpu.threshold.shutdown = 96
gpu.threshold.slowdown = 93
gpu.threshold.gpu = 85
gpu.temperature = 36
gpu.power = 9200
gpu.power.limit = 70000
gpu.power.default = 70000
gpu.power.least = 60000
gpu.power.most = 70000
gpu.clock.sm = 300
gpu.clock.memory = 405
gpu.clock.most.sm = 1590
gpu.clock.most.memory = 5001
gpu.clock.application.graphics = 585
gpu.clock.usual.graphics = 585
gpu.pstate = 8
gpu.pcie.generation = 1
gpu.pcie.width = 16
gpu.pcie.most.generation = 3
gpu.pcie.most.width = 16

gpu.0.pci = 00000000:00:1E.0
gpu.0.minor = 0
gpu.0.uuid = GPU-74747474-2222-3333-4444-555555555555
gpu.0.serial = 1320221000001
