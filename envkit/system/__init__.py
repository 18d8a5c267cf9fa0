"""What touches the operating system: programs, files, and disks without room.

``proc`` is the only use of subprocess.
"""
