"""File systems of other machines, and paths that variables name: whatever may hang with a server that is gone."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable

from envkit.host.disks import all_mounts
from envkit.host.root import HostRoot, by_name, nearest, short
from envkit.model import Observed
from envkit.subjects.host import CudaDirectory
from envkit.subjects.host.system import Mount, NamedPath, RemoteEnded, RemoteMount

_KINDS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "wekafs", "panfs", "pvfs2"}
# file systems in a program whose files are another machine's; the many others that are not never hang a job
_BY_FUSE = {
    "sshfs", "glusterfs", "ceph-fuse", "s3fs", "gcsfuse", "juicefs", "dfuse", "rclone", "goofys", "blobfuse2",
    "mount-s3",
}  # fmt: skip
_ANSWER_S = 1.0  # a server that is there answers in milliseconds; Nagios' check_disk and df hang for minutes
_MOST_MOUNTS = 64

_DIRECTORIES = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
_FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NCCL_TOPO_FILE", "CUDA_INJECTION64_PATH")
# what else the table of variables asks about
_ASKED = (
    "CUDAHOSTCXX", "CUDNN_ERRATA_JSON_FILE", "NCCL_CONF_FILE", "NCCL_GRAPH_FILE", "PYTHONHOME", "TRITON_CUDACRT_PATH",
    "TRITON_CUDART_PATH", "TRITON_CUOBJDUMP_PATH", "TRITON_LIBCUDA_PATH", "TRITON_LIBDEVICE_PATH",
    "TRITON_NVDISASM_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_PTXAS_PATH", "TORCHINDUCTOR_CUTLASS_DIR",
)  # fmt: skip
_HOLDS = {"CUDA_HOME": ("bin/nvcc",), "CUDA_PATH": ("bin/nvcc",), "CUDA_MPS_PIPE_DIRECTORY": ("control",)}


def is_remote(mount: Mount) -> bool:
    """Whether the files of a mount are another machine's."""
    kind = mount.kind.removeprefix("fuse.")
    return mount.kind in _KINDS or (kind != mount.kind and kind in _BY_FUSE)


def ask(paths: list[str], statvfs: Callable[[str], object], limit_s: float) -> dict[str, str]:
    """How each path answered, all asked side by side: "" for well, an error's words, or "hung".

    A thread whose question hangs cannot be ended; this runs in a child that ends with all its threads.
    """
    answers: dict[str, str] = {}

    def one(path: str) -> None:
        try:
            statvfs(path)
        except OSError as error:
            answers[path] = short(error)
        else:
            answers[path] = ""

    threads = [threading.Thread(target=one, args=(path,), daemon=True) for path in paths]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    return {path: answers.get(path, "hung") for path in paths}


def remote_mounts(place: HostRoot) -> Observed[tuple[RemoteMount, ...]]:
    """The mounts of other machines' files and whether they answer; a recorded tree has only their names."""
    read = all_mounts(place)
    if read.value is None:
        return read.absence()
    mounts = {mount.path: mount for mount in read.value if is_remote(mount)}
    if mounts and not place.live:
        return Observed.lost("a recorded tree has no file systems of other machines to ask")
    if len(mounts) > _MOST_MOUNTS:
        return Observed.lost(f"{len(mounts)} mounts of other machines' files are more than {_MOST_MOUNTS}")
    answers = ask(list(mounts), os.statvfs, _ANSWER_S)
    return Observed.of(tuple(_judged(mounts[path], answer) for path, answer in answers.items()), "statvfs")


def _judged(mount: Mount, answer: str) -> RemoteMount:
    ended: RemoteEnded = "answered" if not answer else "hung" if answer == "hung" else "error"
    detail = f"no answer within {_ANSWER_S:g} s" if ended == "hung" else answer
    return RemoteMount(mount.path, mount.kind, mount.device, ended, detail)


def look(place: HostRoot, variable: str, path: str) -> NamedPath:
    """What lies at a path that a variable names; raises OSError if that may not be looked at."""
    name = path.lstrip("/")
    try:
        mode = place.path(name).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        parent = nearest(place, name)
        return NamedPath(variable, path, "absent", parent.is_dir() and os.access(parent, os.W_OK | os.X_OK))
    kind = "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
    holds = tuple(entry for entry in _HOLDS.get(variable, ()) if place.exists(f"{name}/{entry}"))
    right = os.W_OK | os.X_OK if kind == "directory" else os.W_OK
    runs = os.access(place.path(name), os.X_OK) if kind == "file" else None
    return NamedPath(variable, path, kind, os.access(place.path(name), right), holds, runs)


def named_paths(place: HostRoot) -> Observed[tuple[NamedPath, ...]]:
    """What lies at the paths that the environment names; names without a slash are the loader's to find."""
    asked = [
        (name, place.environ[name]) for name in (*_DIRECTORIES, *_FILES, *_ASKED, *_HOLDS) if place.environ.get(name)
    ]
    preloads = place.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    asked += [("LD_PRELOAD", path) for path in preloads if "/" in path and "$" not in path]
    found = []
    for variable, path in asked:
        # a relative path is one from the directory in which the job will start, which nobody knows
        if path.startswith("/"):
            found.append(look(place, variable, path))
    return Observed.of(tuple(found), "environment, stat")


def cuda_on_path(place: HostRoot) -> Observed[tuple[CudaDirectory, ...]]:
    """The directories of LD_LIBRARY_PATH that hold libcuda, each name with the file it leads to."""
    found = []
    for directory in dict.fromkeys(part for part in place.environ.get("LD_LIBRARY_PATH", "").split(":") if part):
        files = {}
        for name in ("libcuda.so.1", "libcuda.so"):
            if os.path.lexists(place.path(directory) / name):
                real = os.path.realpath(place.path(f"{directory}/{name}"))
                files[name] = real if place.live else f"/{os.path.relpath(real, os.path.realpath(place.root))}"
        if files:
            found.append(CudaDirectory(directory, files))
    return Observed.of(tuple(found), "LD_LIBRARY_PATH")


SOURCES = by_name(remote_mounts, named_paths, cuda_on_path)
