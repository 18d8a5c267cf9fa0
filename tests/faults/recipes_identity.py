"""Faults of who is who: bytes, gaps, hidden modules, modes, preloads and entry points.

What only an image's configuration shows is audited in a small image of a system, a Python and a torch of a few files.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from fault import Case, Fault, auditing, probing, sound
from stacks import Bench, Stack, pristine

TITLES = {
    "I01": "a file that keeps its size and time and is not its wheel's",
    "I02": "METADATA that names another release than the library",
    "I03": "a library of Debian's that is not its package's",
    "I04": "what torch requires and is not there",
    "I05": "a file of the job that hides a module",
    "I06": "another torch, or a file of that name, further ahead",
    "I07": "files that the image's user may not read",
    "I08": "a first Python that is gone",
    "I09": "code that every start of Python runs",
    "I10": "a preload that is ignored",
    "I11": "a preloaded library of another CUDA",
    "I12": "an entry point that cannot start",
    "I13": "an old C++ runtime on LD_LIBRARY_PATH",
}
CATALOGUE = {
    "I01": ("image-files-overwritten",),
    "I02": ("image-library-of-other-release",),
    "I03": ("image-system-library-changed",),
    "I04": ("image-torch-dependency-missing",),
    "I05": ("image-module-hidden",),
    "I06": ("image-torch-hidden",),
    "I07": ("image-file-closed",),
    "I08": ("image-python-dangling",),
    "I09": ("image-code-at-start",),
    "I10": ("image-preload-ignored",),
    "I11": ("audit-preload-of-other-cuda",),
    "I12": ("audit-entrypoint-cannot-start",),
    "I13": ("audit-cxx-runtime-older",),
}

CUDNN, BUILTINS = "nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.4"
CXX = "usr/lib/x86_64-linux-gnu/libstdc++.so.6"


# bytes


def _quietly(stack: Stack, name: str, change: bool) -> Path:
    """The file ``name`` written again under its own time of modification, with four other bytes if ``change``."""
    path = stack.site / name
    status, data = path.stat(), bytearray(path.read_bytes())
    if change:
        data[-4:] = bytes(byte ^ 1 for byte in data[-4:])
    stack.write(name, bytes(data))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return path


def patched(name: str) -> Callable[[Bench], Case]:
    """Four bytes of a file differ from its wheel's, its size and its time do not."""

    def plant(bench: Bench) -> Case:
        stack = bench.stack("t26")
        return probing(stack, str(_quietly(stack, name, True)))

    return plant


@cache
def written_again(name: str) -> Callable[[Bench], Case]:
    """The file was written again with the bytes of its wheel, under its time."""

    def plant(bench: Bench) -> Case:
        stack = bench.stack("t26")
        _quietly(stack, name, False)
        return probing(stack)

    return plant


def _renumbered(bench: Bench, distribution: str, version: str, other: str, *traces: str) -> Case:
    """METADATA of a wheel names another release than its files are of."""
    stack = bench.stack("t26")
    old, new = (f"{distribution.replace('-', '_')}-{one}.dist-info" for one in (version, other))
    text = (stack.site / old / "METADATA").read_text()
    (stack.site / old).rename(stack.site / new)
    stack.write(f"{new}/METADATA", text.replace(f"Version: {version}", f"Version: {other}"))
    record = (stack.site / new / "RECORD").read_text()
    kept = [line for line in record.splitlines() if ".dist-info/METADATA" not in line]
    stack.write(f"{new}/RECORD", "\n".join(kept).replace(old, new) + "\n")
    return probing(stack, other, *traces)


def _debian(bench: Bench, change: bool) -> Case:
    """A library of Debian's lies under another file, of the same bytes or with four others."""
    real = Path("/lib/x86_64-linux-gnu/libgcc_s.so.1").resolve()
    data = bytearray(real.read_bytes())
    if change:
        data += b"\0\0\0\1"
    copy = bench.folder / real.name
    copy.write_bytes(bytes(data))
    copy.chmod(0o644)
    return probing(pristine("t26"), str(real), setup=f"mount --bind {copy} {real}")


# what torch requires


def without(*distributions: str, traces: tuple[str, ...] = ()) -> Callable[[Bench], Case]:
    """Distributions are uninstalled."""

    def plant(bench: Bench) -> Case:
        stack = bench.stack("t26")
        for name in distributions:
            stack.drop(name)
        return probing(stack, *(traces or distributions))

    return plant


def _without_files(bench: Bench, name: str) -> Case:
    """A package's files are gone, and what says that it is installed is there."""
    stack = bench.stack("t26")
    shutil.rmtree(stack.site / name)
    return probing(stack, name, "without its files")


def _other_version(bench: Bench, distribution: str, other: str) -> Case:
    """What says which release of a package is installed names another one."""
    stack = bench.stack("t26")
    (info,) = stack.site.glob(f"{distribution.replace('-', '_')}-[0-9]*.dist-info")
    lines = (info / "METADATA").read_text().splitlines()
    told = [f"Version: {other}" if line.startswith("Version: ") else line for line in lines]
    stack.write(f"{info.name}/METADATA", "\n".join(told) + "\n")
    return probing(stack, distribution, other)


# what hides what


def beside(name: str, text: str = "") -> Callable[[Bench], Case]:
    """A file lies in a folder that PYTHONPATH names."""

    def plant(bench: Bench) -> Case:
        path = bench.write(f"job/{name}", text)
        return probing(pristine("t26"), str(path), env={"PYTHONPATH": str(bench.folder / "job")})

    return plant


def put_first(name: str) -> Callable[[Bench], Case]:
    """A file lies in a folder that a .pth file puts before the standard library."""

    def plant(bench: Bench) -> Case:
        stack, path = bench.stack("t26"), bench.write(f"job/{name}", "")
        stack.write("job.pth", f"import sys; sys.path.insert(1, {str(path.parent)!r})\n")
        return probing(stack, str(path))

    return plant


def _harmless(bench: Bench) -> Case:
    """A job's folder on PYTHONPATH as many have one."""
    for name in ("train.py", "utils.py", "config.py", "tests/__init__.py", "data/x.txt", "models/__init__.py"):
        bench.write(f"job/{name}", "")
    (bench.folder / "job/torch").mkdir()  # without __init__ it hides nothing
    return probing(pristine("t26"), env={"PYTHONPATH": str(bench.folder / "job")})


def _first_python(bench: Bench, gone: bool) -> Case:
    """PATH names a folder whose python3 leads nowhere, or to the Python that runs, and then the stack."""
    stack, folder = pristine("t26"), bench.folder / "first"
    folder.mkdir()
    (folder / "python3").symlink_to("/nowhere/bin/python3" if gone else stack.python)
    return probing(stack, str(folder / "python3"), env={"PATH": f"{folder}:{stack.root}/bin:/usr/bin:/bin"})


def _preloaded(bench: Bench, what: str) -> Case:
    """LD_PRELOAD names a library that is there, one that is not, or a text."""
    own, gone, text = bench.library("libempty.so", "int nothing;\n"), bench.folder / "libgone.so", bench.folder / "x.so"
    text.write_text("#!/bin/sh\n")
    path = {"there": own, "gone": gone, "text": text}[what]
    return probing(pristine("t26"), str(path), env={"LD_PRELOAD": str(path)})


def _at_start(bench: Bench, owned: bool) -> Case:
    """A .pth file with code, brought by a package or by nobody."""
    stack = bench.stack("t26")
    path = stack.write("start.pth", "import sys\n")
    if owned:
        stack.package("start", "1", "start.pth")
    return probing(stack, str(path))


# small images

Files = Mapping[str, "bytes | str | Path"]
SYSTEM = ("libc.so.6", "libm.so.6", "libgcc_s.so.1", "libz.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2")
SITE = "opt/venv/lib/python3.11/site-packages"
TORCH = {
    "torch/__init__.py": "import random\nimport json\nimport typing_extensions\n",
    "torch/version.py": "__version__ = '2.6.0'\ncuda = '12.4'\n",
    "torch/nn/__init__.py": "",
}


def image(
    bench: Bench, *traces: str, files: Files | None = None, modes: Mapping[str, int] | None = None, **config: object
) -> Case:
    """An image of a system, a Python and a small torch, with further files, modes and configuration."""
    root, made = bench.folder / "root", dict(files or {})
    venv = Stack(root / "opt/venv")
    (root / SITE).mkdir(parents=True)
    for name, text in TORCH.items():
        venv.write(name, text)
    venv.package("torch", "2.6.0", *TORCH)
    for name in ("random", "json", "sched"):
        made[f"usr/lib/python3.11/{name}.py"] = ""
    for name in SYSTEM:
        made.setdefault(f"usr/lib/x86_64-linux-gnu/{name}", Path("/usr/lib/x86_64-linux-gnu", name))
    made["opt/venv/pyvenv.cfg"] = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.7\n"
    made["usr/bin/python3.11"] = made["bin/sh"] = made["usr/bin/tini"] = Path("/bin/sh").resolve()
    for name, content in made.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        data = content.resolve().read_bytes() if isinstance(content, Path) else content
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        path.chmod(0o755 if "/bin/" in f"/{name}" else 0o644)
    (root / "opt/venv/bin").mkdir()
    (root / "opt/venv/bin/python3").symlink_to("/usr/bin/python3.11")
    for name, mode in (modes or {}).items():
        (root / name).chmod(mode)
    env = ["PATH=/opt/first/bin:/opt/venv/bin:/usr/bin:/bin", *config.pop("Env", [])]  # type: ignore[misc]
    return auditing(_packed(bench, root, {"Env": env, **config}), *traces)


def _packed(bench: Bench, root: Path, config: dict[str, object]) -> Path:
    """``root`` as a saved image of one layer, all of whose files are root's."""
    layer = bench.folder / "layer.tar"

    def of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        return member

    with tarfile.open(layer, "w") as tar:
        tar.add(root, ".", filter=of_root)
    digest = "sha256:" + sha256(layer.read_bytes()).hexdigest()
    about = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    manifest = [{"Config": "config.json", "RepoTags": ["fault:latest"], "Layers": ["layer.tar"]}]
    path = bench.folder / "image.tar"
    with tarfile.open(path, "w") as tar:
        for name, document in (("manifest.json", manifest), ("config.json", about)):
            data = json.dumps(document).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        tar.add(layer, "layer.tar")
    return path


def started(
    script: str | None, *traces: str, mode: int = 0o755, words: tuple[str, ...] = ("/entry.sh",)
) -> Callable[[Bench], Case]:
    """An image whose ENTRYPOINT is ``words``, with /entry.sh of this text and mode."""

    def plant(bench: Bench) -> Case:
        files = {} if script is None else {"entry.sh": script}
        modes = {} if script is None else {"entry.sh": mode}
        return image(bench, *traces, files=files, modes=modes, Entrypoint=list(words), Cmd=["python3", "train.py"])

    return plant


starts_well = started('#!/bin/sh\nexec "$@"\n')
by_tini = started('#!/bin/sh\nexec "$@"\n', words=("tini", "--", "/entry.sh"))
by_shell = started('exec "$@"\n', mode=0o644, words=("/bin/sh", "/entry.sh"))


def in_workdir(*names: str) -> Callable[[Bench], Case]:
    """An image whose command starts a script, beside which other files lie."""

    def plant(bench: Bench) -> Case:
        files = dict.fromkeys((f"app/{name}" for name in ("train.py", *names)), "")
        traces = [f"/app/{name}" for name in names[:1]]
        return image(bench, *traces, files=files, Cmd=["python3", "train.py"], WorkingDir="/app")

    return plant


in_job = in_workdir("utils.py", "tests/__init__.py", "os.py")


def _of_user(bench: Bench, name: str, mode: int) -> Case:
    return image(bench, f"/{name}", f"mode {mode:04o}", modes={name: mode}, User="1000:1000")


def _preload_file(bench: Bench, text: str, *traces: str) -> Case:
    empty = bench.library("libempty.so", "int nothing;\n")
    return image(bench, *traces, files={"etc/ld.so.preload": text, "opt/libempty.so": empty})


def _preloaded_cudart(bench: Bench, number: str) -> Case:
    """/etc/ld.so.preload names a CUDA runtime of another major."""
    name = f"opt/libcudart.so.{number}"
    files = {"etc/ld.so.preload": f"/{name}\n", name: bench.library(f"libcudart.so.{number}", "int nothing;\n")}
    return image(bench, f"/{name}", "CUDA 11", files=files)


def _cxx(bench: Bench, newest: int) -> Case:
    """LD_LIBRARY_PATH names a folder whose C++ runtime ends at GLIBCXX_3.4.``newest``."""
    versions = "".join(f"GLIBCXX_3.4.{minor} {{ }};\n" for minor in range(1, newest + 1)) + "CXXABI_1.3 { };\n"
    script = bench.write("versions", "GLIBCXX_3.4 { global: nothing; local: *; };\n" + versions)
    made = bench.library("old/libstdc++.so.6", "int nothing;\n", f"-Wl,--version-script={script}")
    files = {"opt/old/libstdc++.so.6": made}
    return image(bench, "/opt/old/libstdc++.so.6", files=files, Env=["LD_LIBRARY_PATH=/opt/old"])


def _python_of_image(bench: Bench, target: str) -> Case:
    """The first python3 on an image's PATH is a link to ``target``."""
    case = image(bench, "/opt/first/bin/python3", target)
    root = bench.folder / "root"
    (root / "opt/first/bin").mkdir(parents=True)
    (root / "opt/first/bin/python3").symlink_to(target)
    env = ["PATH=/opt/first/bin:/opt/venv/bin:/usr/bin:/bin"]
    return auditing(_packed(bench, root, {"Env": env}), *case.traces)


def _two_torches(bench: Bench, on_path: bool) -> Case:
    other = {f"opt/other/{name}": text for name, text in TORCH.items()}
    other["opt/other/torch-2.4.0.dist-info/METADATA"] = "Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0\n"
    env = [f"PYTHONPATH=/opt/{'other' if on_path else 'nothing'}"]
    return image(bench, "/opt/other/torch (2.4.0)", f"/{SITE}/torch (2.6.0)", files=other, Env=env)


IMPORT = frozenset({"image-torch-import-fails"})
NVTX, FUNCTIONAL = "nvidia/nvtx/lib/libnvToolsExt.so.1", "torch/functional.py"
LIBRARIES = {
    "cublas": "nvidia/cublas/lib/libcublas.so.12",
    "cudart": "nvidia/cuda_runtime/lib/libcudart.so.12",
    "cudnn": CUDNN,
    "linalg": "torch/lib/libtorch_cuda_linalg.so",
}
NEEDED = "image-torch-dependency-missing"

FAULTS = (
    *(
        Fault(
            "I01",
            "image-files-overwritten",
            f"four bytes of {Path(path).name} differ from its wheel's, its size and time do not",
            patched(path),
            f"{Path(path).name} was written again with the bytes of its wheel",
            written_again(path),
            nightly=name != "cublas",
            variant=name,
        )
        for name, path in LIBRARIES.items()
    ),
    Fault(
        "I01",
        "image-files-overwritten",
        "four bytes of torch/functional.py differ from its wheel's, its size and time do not",
        patched(FUNCTIONAL),
        "torch/functional.py was written again with the bytes of its wheel",
        written_again(FUNCTIONAL),
        severity="warning",  # its byte code, which Python takes by size and time, is as it was
        nightly=True,
        variant="python",
    ),
    Fault(
        "I02",
        "image-library-of-other-release",
        "METADATA says cuDNN 9.5.1.17, and cuDNN says 9.1.0",
        lambda bench: _renumbered(bench, "nvidia-cudnn-cu12", "9.1.0.70", "9.5.1.17", "9.1.0"),
        "both say 9.1.0",
        sound("t26"),
        also=frozenset({"image-torch-requirement-not-met"}),
        variant="cudnn",
    ),
    Fault(
        "I02",
        "image-library-of-other-release",
        "METADATA says NCCL 2.25.1, and NCCL says 2.21.5",
        lambda bench: _renumbered(bench, "nvidia-nccl-cu12", "2.21.5", "2.25.1", "2.21.5"),
        "both say 2.21.5",
        sound("t26"),
        also=frozenset({"image-torch-requirement-not-met"}),
        nightly=True,
        variant="nccl",
    ),
    Fault(
        "I03",
        "image-system-library-changed",
        "another file lies where libgcc's package has its library",
        lambda bench: _debian(bench, True),
        "a copy of the library lies there",
        lambda bench: _debian(bench, False),
    ),
    Fault(
        "I04",
        NEEDED,
        "sympy is not installed",
        without("sympy", traces=("sympy==1.13.1", "torch.compile")),
        "opt-einsum, which only an extra of torch's asks for, is not installed",
        sound("t26"),
        variant="sympy",
    ),
    *(
        Fault(
            "I04",
            NEEDED,
            f"{name} is not installed",
            without(name),
            "it is installed",
            sound("t26"),
            severity=severity,
            nightly=True,
            variant=name,
        )
        for name, severity in (
            ("networkx", "error"),
            ("filelock", "error"),
            ("jinja2", "warning"),
            ("fsspec", "warning"),
            ("mpmath", "error"),
        )
    ),
    Fault(
        "I04",
        NEEDED,
        "the files of mpmath are gone and its METADATA is there",
        lambda bench: _without_files(bench, "mpmath"),
        "both are there",
        sound("t26"),
        nightly=True,
        variant="files",
    ),
    Fault(
        "I04",
        NEEDED,
        "an older sympy than torch pins",
        lambda bench: _other_version(bench, "sympy", "1.11"),
        "the sympy that torch pins",
        sound("t26"),
        nightly=True,
        variant="older",
    ),
    Fault(
        "I05",
        "image-module-hidden",
        "a mailbox.py, which torch does not import, in a folder of PYTHONPATH",
        beside("mailbox.py"),
        "utils.py, config.py, tests and a folder called torch without __init__ there",
        _harmless,
        severity="warning",
        variant="pythonpath",
    ),
    Fault(
        "I05",
        "image-module-hidden",
        "a numpy.py in a folder of PYTHONPATH",
        beside("numpy.py"),
        "utils.py, config.py, tests and a folder called torch without __init__ there",
        _harmless,
        also=IMPORT,
        nightly=True,
        variant="numpy",
    ),
    *(
        Fault(
            "I05",
            "image-module-hidden",
            f"a {name} that a .pth file puts before the standard library's",
            put_first(name),
            "a .pth file that puts no such folder first",
            put_first("harmless.py"),
            also=IMPORT,
            nightly=True,
            variant=name.partition(".")[0],
        )
        for name in ("random.py", "json.py", "typing.py")
    ),
    Fault(
        "I05",
        "image-module-hidden",
        "a random.py beside the script that an image starts",
        in_workdir("random.py"),
        "utils.py, tests and os.py, which Python has imported before, beside it",
        in_job,
        variant="script",
    ),
    Fault(
        "I05",
        "image-module-hidden",
        "a sched.py beside the script that an image starts",
        in_workdir("sched.py"),
        "utils.py, tests and os.py, which Python has imported before, beside it",
        in_job,
        severity="warning",
        nightly=True,
        variant="unused",
    ),
    Fault(
        "I06",
        "image-torch-hidden",
        "a torch.py in a folder of PYTHONPATH",
        beside("torch.py", "def load():\n    pass\n"),
        "utils.py, config.py, tests and a folder called torch without __init__ there",
        _harmless,
        variant="file",
    ),
    Fault(
        "I06",
        "image-torch-hidden",
        "a torch.py beside the script that an image starts",
        in_workdir("torch.py"),
        "utils.py, tests and os.py, which Python has imported before, beside it",
        in_job,
        nightly=True,
        variant="script",
    ),
    Fault(
        "I06",
        "image-torch-hidden",
        "PYTHONPATH of an image names a folder with an older torch",
        lambda bench: _two_torches(bench, True),
        "the folder is there, and PYTHONPATH names another",
        lambda bench: _two_torches(bench, False),
        severity="warning",
        variant="older",
    ),
    Fault(
        "I07",
        "image-file-closed",
        "root alone may read a file of torch's, and the image runs as uid 1000",
        lambda bench: _of_user(bench, f"{SITE}/torch/version.py", 0o600),
        "everybody may read it",
        lambda bench: _of_user(bench, f"{SITE}/torch/version.py", 0o644),
        variant="file",
    ),
    Fault(
        "I07",
        "image-file-closed",
        "root alone may enter a folder of torch's, and the image runs as uid 1000",
        lambda bench: _of_user(bench, f"{SITE}/torch/nn", 0o700),
        "everybody may enter it",
        lambda bench: _of_user(bench, f"{SITE}/torch/nn", 0o755),
        nightly=True,
        variant="folder",
    ),
    Fault(
        "I08",
        "image-python-dangling",
        "the first python3 of PATH is a link that leads nowhere",
        lambda bench: _first_python(bench, True),
        "it leads to the Python that runs",
        lambda bench: _first_python(bench, False),
        variant="probe",
    ),
    Fault(
        "I08",
        "image-python-dangling",
        "the first python3 of an image's PATH is a link that leads nowhere",
        lambda bench: _python_of_image(bench, "/root/.local/uv/python3.12"),
        "it leads to the Python of the virtual environment",
        lambda bench: _python_of_image(bench, "/opt/venv/bin/python3"),
        nightly=True,
        variant="audit",
    ),
    Fault(
        "I09",
        "image-code-at-start",
        "a .pth file with code that no package brought",
        lambda bench: _at_start(bench, False),
        "a package brought it",
        lambda bench: _at_start(bench, True),
        severity="note",
    ),
    Fault(
        "I10",
        "image-preload-ignored",
        "LD_PRELOAD names a library that is not there",
        lambda bench: _preloaded(bench, "gone"),
        "it is there",
        lambda bench: _preloaded(bench, "there"),
        severity="warning",
        variant="gone",
    ),
    Fault(
        "I10",
        "image-preload-ignored",
        "LD_PRELOAD names a text",
        lambda bench: _preloaded(bench, "text"),
        "it names a library",
        lambda bench: _preloaded(bench, "there"),
        severity="warning",
        nightly=True,
        variant="text",
    ),
    Fault(
        "I10",
        "image-preload-ignored",
        "/etc/ld.so.preload of an image names a library that is not there",
        lambda bench: _preload_file(bench, "/opt/libgone.so\n", "/opt/libgone.so"),
        "it names one that is there",
        lambda bench: _preload_file(bench, "/opt/libempty.so # an allocator\n"),
        severity="warning",
        nightly=True,
        variant="file",
    ),
    Fault(
        "I11",
        "audit-preload-of-other-cuda",
        "/etc/ld.so.preload of an image with torch for CUDA 12.4 names libcudart.so.11.0",
        lambda bench: _preloaded_cudart(bench, "11.0"),
        "it names an allocator",
        lambda bench: _preload_file(bench, "/opt/libempty.so\n"),
        twin_skips=True,
    ),
    Fault(
        "I12",
        "audit-entrypoint-cannot-start",
        "ENTRYPOINT is not in the image",
        started(None, "/entry.sh"),
        "it is there",
        starts_well,
        variant="missing",
    ),
    *(
        Fault(
            "I12",
            "audit-entrypoint-cannot-start",
            words,
            started(script, "/entry.sh", trace, mode=mode),
            twin_words,
            twin,
            nightly=True,
            variant=variant,
        )
        for variant, words, script, mode, trace, twin_words, twin in (
            ("mode", "ENTRYPOINT has mode 0644", "#!/bin/sh\n", 0o644, "0644", "a shell reads it", by_shell),
            ("crlf", "its lines end as on Windows", "#!/bin/sh\r\n", 0o755, "carriage", "as on Linux", starts_well),
            (
                "bash",
                "its first line names bash, which is not there",
                "#!/bin/bash\n",
                0o755,
                "/bin/bash",
                "sh",
                starts_well,
            ),
            ("line", "it has no first line", "exec true\n", 0o755, "exec format", "tini starts one with it", by_tini),
        )
    ),
    Fault(
        "I13",
        "audit-cxx-runtime-older",
        "LD_LIBRARY_PATH of an image leads to a C++ runtime that ends at GLIBCXX_3.4.11",
        lambda bench: _cxx(bench, 11),
        "it leads to one that is newer than the system's",
        lambda bench: _cxx(bench, 60),
        severity="warning",
    ),
)
