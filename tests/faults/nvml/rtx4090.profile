# One GeForce RTX 4090 that drives a screen, at rest.  Sources: NVIDIA's product page (24 GB, 450 W, PCIe 4); ECC can be
# switched on with nvidia-smi and is off as delivered, so it counts no errors; no MIG, no NVLink, no serial and no part
# number told.  Limits of temperature and power, VBIOS and infoROM are assumed.
count = 1
driver = 580.159.04
library = 13.580.159.04
cuda = 13000

gpu.name = NVIDIA GeForce RTX 4090
gpu.brand = 5
gpu.architecture = 8
gpu.sm.major = 8
gpu.sm.minor = 9
gpu.vbios = 95.02.3C.40.B8
gpu.inforom = G002.0000.00.03
gpu.memory = 25757220864
gpu.memory.reserved = 526385152
gpu.memory.used = 412090368
gpu.bar1 = 34359738368
gpu.bar1.used = 268435456

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

gpu.display = 1
gpu.processes.graphics = 2101 311427072
gpu.ecc = 0
gpu.ecc.pending = 0
# a limit of 90 C, told as margins
gpu.field.193 = -7
gpu.field.194 = -2
gpu.temperature = 38
gpu.margin = 52
gpu.power = 21000
gpu.power.limit = 450000
gpu.power.default = 450000
gpu.power.least = 150000
gpu.power.most = 600000
gpu.clock.sm = 210
gpu.clock.memory = 405
gpu.clock.most.sm = 3105
gpu.clock.most.memory = 10501
gpu.pstate = 8
gpu.pcie.generation = 1
gpu.pcie.width = 16
gpu.pcie.most.generation = 4
gpu.pcie.most.width = 16

gpu.0.pci = 00000000:01:00.0
gpu.0.minor = 0
gpu.0.uuid = GPU-90909090-2222-3333-4444-555555555555
