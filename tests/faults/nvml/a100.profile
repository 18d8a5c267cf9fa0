# 8 x A100 SXM4 80 GB with NVSwitches, as in a DGX A100, idle.  Sources: NVIDIA's A100 datasheet (400 W, 600 GB/s of
# NVLink, PCIe 4); NVIDIA's GPU memory error management document (640 banks, no retired pages).  It has no NVLink fabric
# that a GPU registers with; part number, VBIOS and infoROM have a true form and assumed digits.
count = 8
driver = 580.159.04
library = 13.580.159.04
cuda = 13000
confidential = 0

gpu.name = NVIDIA A100-SXM4-80GB
gpu.brand = 14
gpu.architecture = 7
gpu.sm.major = 8
gpu.sm.minor = 0
gpu.part_number = 692-2G506-0212-002
gpu.vbios = 92.00.9E.00.01
gpu.inforom = G506.0212.00.02
gpu.memory = 85899345920
gpu.memory.reserved = 637534208
gpu.memory.used = 0
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
gpu.banks.full = 640
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

gpu.threshold.shutdown = 92
gpu.threshold.slowdown = 89
gpu.threshold.gpu = 85
gpu.threshold.memory = 95
gpu.field.82 = 44
gpu.power.limit = 400000
gpu.power.default = 400000
gpu.power.least = 100000
gpu.power.most = 400000
gpu.clock.sm = 210
gpu.clock.memory = 1593
gpu.clock.most.sm = 1410
gpu.clock.most.memory = 1593
# the default of the application clocks lies below the most
gpu.clock.application.graphics = 1275
gpu.clock.usual.graphics = 1275
gpu.pstate = 0
gpu.pcie.generation = 4
gpu.pcie.width = 16
gpu.pcie.most.generation = 4
gpu.pcie.most.width = 16

# 12 links of the third generation; error counters by nvmlDeviceGetNvLinkErrorCounter, the speed by the field of all links
gpu.nvlink.count = 12
gpu.nvlink.state = 1
gpu.nvlink.version = 5
gpu.nvlink.remote = 2
gpu.nvlink.replay = 0
gpu.nvlink.recovery = 0
gpu.nvlink.crc_flit = 0
gpu.nvlink.crc_data = 0
gpu.field.90 = 25000

gpu.0.pci = 00000000:07:00.0
gpu.0.minor = 0
gpu.0.uuid = GPU-04444444-2222-3333-4444-555555555555
gpu.0.serial = 1563221000000
gpu.0.temperature = 33
gpu.0.power = 62000
gpu.1.pci = 00000000:0F:00.0
gpu.1.minor = 1
gpu.1.uuid = GPU-14444444-2222-3333-4444-555555555555
gpu.1.serial = 1563221000001
gpu.1.temperature = 34
gpu.1.power = 62500
gpu.2.pci = 00000000:47:00.0
gpu.2.minor = 2
gpu.2.uuid = GPU-24444444-2222-3333-4444-555555555555
gpu.2.serial = 1563221000002
gpu.2.temperature = 35
gpu.2.power = 63000
gpu.3.pci = 00000000:4E:00.0
gpu.3.minor = 3
gpu.3.uuid = GPU-34444444-2222-3333-4444-555555555555
gpu.3.serial = 1563221000003
gpu.3.temperature = 36
gpu.3.power = 63500
gpu.4.pci = 00000000:87:00.0
gpu.4.minor = 4
gpu.4.uuid = GPU-44444444-2222-3333-4444-555555555555
gpu.4.serial = 1563221000004
gpu.4.temperature = 33
gpu.4.power = 64000
gpu.5.pci = 00000000:90:00.0
gpu.5.minor = 5
gpu.5.uuid = GPU-54444444-2222-3333-4444-555555555555
gpu.5.serial = 1563221000005
gpu.5.temperature = 34
gpu.5.power = 64500
gpu.6.pci = 00000000:B7:00.0
gpu.6.minor = 6
gpu.6.uuid = GPU-64444444-2222-3333-4444-555555555555
gpu.6.serial = 1563221000006
gpu.6.temperature = 35
gpu.6.power = 65000
gpu.7.pci = 00000000:BD:00.0
gpu.7.minor = 7
gpu.7.uuid = GPU-74444444-2222-3333-4444-555555555555
gpu.7.serial = 1563221000007
gpu.7.temperature = 36
gpu.7.power = 65500
