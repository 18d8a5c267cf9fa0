"""The folders that libraries write into, and whether the user of this process may: by owner and mode.

A probe's container has a read-only root and no capabilities, so that trying to write would say nothing of the job.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

# variable: who writes there, and the folder below HOME that is taken without it ("" for HOME itself, None for none)
# Sources: XDG Base Directory Specification; Triton, runtime/cache.py; torch, _inductor/runtime/cache_dir_utils.py,
# hub.py and utils/cpp_extension.py; CUDA C++ Programming Guide, CUDA_CACHE_PATH; huggingface_hub, constants.py.
CACHES: dict[str, tuple[str, str | None]] = {
    "HOME": ("", ""),
    "XDG_CACHE_HOME": ("", None),
    "TRITON_CACHE_DIR": ("triton", ".triton/cache"),
    "TORCHINDUCTOR_CACHE_DIR": ("torch", None),
    "TORCH_EXTENSIONS_DIR": ("torch", None),
    "TORCH_HOME": ("torch", None),
    "CUDA_CACHE_PATH": ("torch", ".nv/ComputeCache"),
    "HF_HOME": ("huggingface-hub", ".cache/huggingface"),
    "HF_HUB_CACHE": ("huggingface-hub", None),
    "HF_DATASETS_CACHE": ("datasets", None),
    "TRANSFORMERS_CACHE": ("transformers", None),
    "VLLM_CACHE_ROOT": ("vllm", None),
    "NUMBA_CACHE_DIR": ("numba", None),
    "MPLCONFIGDIR": ("matplotlib", None),
}


def may_write(status: os.stat_result, uid: int, groups: set[int]) -> bool:
    """Whether a process of ``uid`` may make files in a folder, by its owner and mode (inode(7)); root always may."""
    if uid == 0:
        return True
    mode = status.st_mode
    bits = mode >> 6 if status.st_uid == uid else mode >> 3 if status.st_gid in groups else mode
    return bits & 3 == 3


def _nearest(path: str) -> tuple[str, os.stat_result | None, bool]:
    """The first of ``path`` and its parents that is there, and whether something above denies the way to it."""
    while True:
        try:
            return path, os.stat(path), False
        except PermissionError:
            return path, None, True
        except OSError:
            if path == "/":
                return path, None, False
            path = os.path.dirname(path)


# What the kernel shows there takes no file of anybody, whatever its mode says: proc(5), sysfs(5).
_KERNELS = ("proc", "sys")


def _mount(path: str) -> str:
    """The mount point that a path lies on."""
    while path != "/" and not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _filled(path: str) -> bool:
    try:
        return bool(os.listdir(path))
    except OSError:
        return False


def folder(variable: str, path: str, named: bool, by: str, uid: int, groups: set[int]) -> dict[str, Any]:
    """One folder, in the words of the subject."""
    real = os.path.realpath(path)
    nearest, status, denied = _nearest(real)
    takes_files = nearest.split("/")[1] not in _KERNELS
    a_folder = not denied and status is not None and stat.S_ISDIR(status.st_mode) and takes_files
    writable = a_folder and status is not None and may_write(status, uid, groups)
    try:
        read_only = bool(os.statvfs(nearest).f_flag & os.ST_RDONLY)
    except OSError:
        read_only = False
    return {
        "variable": variable,
        "path": path,
        "named": named,
        "by": by,
        "exists": nearest == real and status is not None,
        "is_folder": status is None or stat.S_ISDIR(status.st_mode),
        "filled": _filled(real),
        "nearest": nearest,
        "owner_uid": status.st_uid if status is not None else -1,
        "mode": f"{stat.S_IMODE(status.st_mode):04o}" if status is not None else "",
        "writable": writable,
        "read_only": read_only,
        "mount": _mount(nearest),
    }


def _folders(environment: Mapping[str, str]) -> Iterator[tuple[str, str, bool, str]]:
    home = environment.get("HOME") or os.path.expanduser("~")
    cache = environment.get("XDG_CACHE_HOME", "")
    for variable, (by, below) in CACHES.items():
        value = environment.get(variable, "")
        if value:
            yield variable, os.path.expanduser(value), True, by
        elif below is not None:
            base, _, rest = below.partition("/")
            path = os.path.join(cache, rest) if base == ".cache" and cache else os.path.join(home, below)
            yield variable, os.path.normpath(path), False, by


def seen(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Each folder, once."""
    uid, groups = os.geteuid(), {os.getegid(), *os.getgroups()}
    return [folder(*one, uid=uid, groups=groups) for one in _folders(environment) if os.path.isabs(one[1])]
