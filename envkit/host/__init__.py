"""Looks at this machine and decides nothing.

Sources that can hang (NVML, device nodes, the engine's socket, the kernel log, file systems) are read by
modules of this package that run as children: each prints one JSON document a line, so that what was read
before a hang counts.
"""
