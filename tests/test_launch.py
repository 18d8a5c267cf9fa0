"""What becomes a Launch: options and variables of a job, the image's files, and what the job mounts."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import machines
import pytest
from binaries import library
from elves import image, no_engine
from hypothesis import given
from hypothesis import strategies as st

from envkit.engine import Engine
from envkit.errors import Undecided, UsageError
from envkit.host.root import HostRoot
from envkit.launch import docker_options, launch
from envkit.subjects import Launch
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.declared import UNDECLARED, Job, Mount
from envkit.subjects.host import Limit
from envkit.subjects.launch import Account, CompatLibrary, Inside

HOST = machines.host("h100")
TELLS = {"format": 1, "CUDA version": "13.1", "driver": [535, 580], "device": [2, 14]}


def quiet(line: str) -> None:
    """Says nothing."""


def note(text: bytes, owner: bytes = b"NVIDIA Corporation\0") -> bytes:
    """A note of ELF: sizes, type, and both texts filled up to four bytes."""
    return struct.pack("<III", len(owner), len(text), 0) + owner + bytes(-len(owner) % 4) + text + bytes(-len(text) % 4)


def compat(data: bytes) -> bytes:
    """A libcuda with such a section."""
    return library(__dot__note__dot__cuda__dot__fwd_compatibility=data)


def seen(
    tmp_path: Path, files: Mapping[str, bytes | str], job: Job, config: Mapping[str, object] | None = None
) -> Launch:
    with image(tmp_path, files, config=config or {"Env": ["PATH=/usr/bin"]}):
        return launch.observe(str(tmp_path / "image.tar"), HOST, job, no_engine, quiet)


# --- variables


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\nB=2", {"A": "1", "B": "2"}),
        ("# a remark\n\n   \nA=1", {"A": "1"}),
        ('A="quoted"', {"A": '"quoted"'}),
        ("A= spaces kept ", {"A": " spaces kept "}),
        ("A=b=c", {"A": "b=c"}),
        ("A=", {"A": ""}),
        ("  A=1", {"A": "1"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("MINE\nNOBODYS", {"MINE": "here"}),
        ("A=1\nA=2", {"A": "2"}),
        ("\ufeffA=1", {"A": "1"}),
        ("A=# no remark", {"A": "# no remark"}),
    ],
)
def test_a_file_of_variables_is_read_as_the_engine_reads_it(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    file = tmp_path / "env"
    file.write_bytes(text.encode())
    assert docker_options.read_env_file(file, {"MINE": "here"}) == found


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"A=1\n=2", "line 2 of .* has no name before the ="),
        (b"A=1\nexport B=hidden", "line 2 of .* has white space in the name"),
        (b"A B=1", "line 1 of .* has white space in the name"),
        (b"A=1\nB =hidden", "line 2 of .* has white space in the name"),
        (b"A=\xff", "is no UTF-8 at byte 2"),
        (b"A=1\nB=hid\x00den", "line 2 of .* holds a zero byte"),
    ],
)
def test_a_bad_line_is_one_clear_error_without_its_value(tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "env"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=message) as caught:
        docker_options.read_env_file(file, {})
    assert "hidden" not in caught.value.message


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        docker_options.read_env_file(tmp_path / "env", {})
    with pytest.raises(UsageError, match="cannot be read: it is a folder"):
        docker_options.read_env_file(tmp_path, {})


# --- options


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        ("all", ("all",)),
        ("-1", ("all",)),
        ("none", ()),
        ("0", ()),
        ("2", ("0", "1")),
        ("device=3", ("3",)),
        ('"device=0,2"', ("0", "2")),
        ("0,1", ("0", "1")),
        ("GPU-1234", ("GPU-1234",)),
        ("nvidia.com/gpu=1", ("1",)),
    ],
)
def test_gpus_are_named_as_to_docker(wish: str, names: tuple[str, ...]) -> None:
    assert docker_options.gpus_of(wish) == names


@pytest.mark.parametrize(
    "wish", ["", "device=", "0,,1", "99999999999", "-3", "auto", "capabilities=compute", "all,capabilities=utility"]
)
def test_no_gpus_are_named_by_these(wish: str) -> None:
    with pytest.raises(UsageError):
        docker_options.gpus_of(wish)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64m", 64 << 20), ("1g", 1 << 30), ("1.5G", 3 << 29), ("512", 512), ("16GiB", 16 << 30), ("2kb", 2048)],
)
def test_sizes_are_those_of_the_engine(text: str, size: int) -> None:
    assert docker_options.size(text, "--shm-size") == size


def test_what_nobody_declared_is_so_said() -> None:
    job = docker_options.job_from(caller={})
    assert (job.gpus.missing, job.user.missing, job.limits.missing, job.workers.missing) == (UNDECLARED,) * 4
    assert job.shm.value == 64 << 20
    assert "default" in job.shm.via
    assert docker_options.job_from(ipc="host", caller={}).shm.value is None


def test_a_declared_job_is_all_there(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("A=file\nB=file\nC\n")
    job = docker_options.job_from(
        gpus="device=0,1", way="cdi", nodes=2, ranks=2, workers=4, env=["B=line", "D"], env_files=[file],
        caller={"C": "mine", "D": "mine"}, shm="16g", memory="64g", network="host", user="1000:1000",
        ulimits=["memlock=-1", "nofile=1024:2048"], mounts=["/data:/data:ro", "cache:/root/.cache"],
        tmpfs=["/tmp:size=1g"], devices=["/dev/infiniband"],
        capabilities=["CAP_SYS_ADMIN", "ipc_lock"], privileged=False, read_only=True, checkpoint="/data/run",
        checkpoint_size="10g", command=["python", "-V"],
    )  # fmt: skip
    assert job.environment.value == {"A": "file", "B": "line", "C": "mine", "D": "mine"}
    assert job.limits.value == {"memlock": Limit(-1, -1), "nofile": Limit(1024, 2048)}
    assert job.mounts.value == (Mount("/data", "/data", True), Mount("cache", "/root/.cache"))
    assert (job.tmpfs.value, job.capabilities.value) == (("/tmp",), ("SYS_ADMIN", "IPC_LOCK"))
    assert (job.shm.value, job.checkpoint_bytes.value) == (16 << 30, 10 << 30)
    assert from_plain(Job, to_plain(job)) == job


@pytest.mark.parametrize(
    ("name", "least", "means", "below"),
    [
        ("nodes", 1, 1, 0),
        ("ranks", 1, 1, 0),
        ("workers", 0, 0, -1),
        ("pids", -1, None, -2),  # no limit, as for an engine
        ("cpus", 0.0, None, -0.5),
        ("cpus", 0.5, 0.5, -0.5),
    ],
)
def test_the_least_that_means_something_is_taken(name: str, least: float, means: float | None, below: float) -> None:
    job = docker_options.job_from(**{name: least}, caller={})  # type: ignore[arg-type]  # options of several types
    assert getattr(job, name).value == means
    with pytest.raises(UsageError, match=f"{below:g}"):
        docker_options.job_from(**{name: below}, caller={})  # type: ignore[arg-type]


@pytest.mark.parametrize("cpus", [float("inf"), float("nan")])
def test_no_job_has_all_processors_that_there_could_be(cpus: float) -> None:
    with pytest.raises(UsageError, match="cannot have"):
        docker_options.job_from(cpus=cpus, caller={})


def test_options_that_mean_nothing_are_refused() -> None:
    for wrong in (
        lambda: docker_options.job_from(way="magic"),
        lambda: docker_options.job_from(nodes=0),
        lambda: docker_options.job_from(workers=-1),
        lambda: docker_options.job_from(shm="much"),
        lambda: docker_options.job_from(ulimits=["memlock"]),
        lambda: docker_options.job_from(mounts=["/data"]),
        lambda: docker_options.job_from(mounts=["/data:relative"]),
        lambda: docker_options.job_from(ulimits=["foo=3"]),
        lambda: docker_options.job_from(ulimits=["nofile=5:3"]),
        lambda: docker_options.job_from(ulimits=["nofile=-1:3"]),
        lambda: docker_options.job_from(ipc="foo"),
        lambda: docker_options.job_from(network=""),
        lambda: docker_options.job_from(user="a:b:c"),
        lambda: docker_options.job_from(user=""),
        lambda: docker_options.job_from(tmpfs=["relative"]),
        lambda: docker_options.job_from(shm="9" * 400),
        lambda: docker_options.job_from(memory="99999999999g"),
        lambda: docker_options.job_from(checkpoint="run"),
        lambda: docker_options.job_from(env=["=1"]),
    ):
        with pytest.raises(UsageError) as caught:
            wrong()
        assert caught.value.fix


@pytest.mark.parametrize("ipc", ["host", "none", "container:other"])
def test_the_size_of_a_shared_dev_shm_is_not_the_jobs_to_say(ipc: str) -> None:
    assert docker_options.job_from(ipc=ipc, shm="16g", caller={}).shm.missing


def test_a_limit_of_nothing_is_the_engines_word_for_none() -> None:
    job = docker_options.job_from(memory="0", shm="0", ipc="shareable", caller={})
    assert job.memory.missing == "not declared"
    assert job.shm.value == 64 << 20


# --- the image


@pytest.mark.parametrize(
    ("config", "given", "words"),
    [
        ({"Entrypoint": ["/guard", "--"], "Cmd": ["bash"]}, ["tool", "x"], ("/guard", "--", "tool", "x")),
        ({"Entrypoint": ["/guard", "--"], "Cmd": ["bash"]}, None, ("/guard", "--", "bash")),
        ({"Entrypoint": None, "Cmd": ["bash"]}, ["tool"], ("tool",)),
    ],
)
def test_an_entry_point_comes_before_a_command_as_the_engine_puts_it(
    tmp_path: Path, config: dict[str, object], given: list[str] | None, words: tuple[str, ...]
) -> None:
    made = seen(tmp_path, {"/guard": b"#!/bin/sh\n"}, docker_options.job_from(command=given, caller={}), config)
    assert made.job.command.value == words


def test_an_image_without_accounts_is_no_riddle(tmp_path: Path) -> None:
    made = seen(tmp_path, {"/x": b""}, docker_options.job_from(caller={}))
    assert made.accounts.value == ()
    assert made.paths.value is not None
    assert "/root" in made.paths.value


def test_the_environment_is_the_images_under_the_jobs_and_holds_no_secret(tmp_path: Path) -> None:
    words = ["LD_LIBRARY_PATH=/mine", "HF_TOKEN=hf_x", "WANDB_API_KEY=x", "HOME=/work"]
    job = docker_options.job_from(env=words, caller={})
    made = seen(
        tmp_path,
        {"/etc/passwd": b"root:x:0:0::/root:/bin/sh\n"},
        job,
        {"Env": ["PATH=/usr/bin", "LD_LIBRARY_PATH=/its", "CUDA_VERSION=13.0.2", "SECRET=s"]},
    )
    assert made.job.environment.value == {"LD_LIBRARY_PATH": "/mine", "CUDA_VERSION": "13.0.2", "HOME": "/work"}
    assert made.job.replaced.value == {"LD_LIBRARY_PATH": "/its"}
    assert "hf_x" not in json.dumps(to_plain(made))
    assert made.job.user.value == "root"


def test_paths_users_and_the_program_are_looked_up_in_the_image(tmp_path: Path) -> None:
    job = docker_options.job_from(
        env=["LD_LIBRARY_PATH=/usr/local/cuda/lib64/:/none", "LD_PRELOAD=/lib/x.so"], command=["tool", "x"], caller={}
    )
    files: dict[str, bytes | str] = {
        "/etc/passwd": b"root:x:0:0::/root:/bin/sh\nbroken line\ndev:x:1000:100::/home/dev:/bin/sh\n",
        "/usr/local/cuda": "cuda-13.0",
        "/usr/local/cuda-13.0/lib64/": b"",
        "/lib/x.so": b"x",
        "/usr/bin/tool": b"#!/bin/sh\n",
        "/usr/bin/data": b"x",
    }
    with image(tmp_path, files, config={"Env": ["PATH=/usr/bin"]}, modes={"/usr/bin/tool": 0o755}):
        made = launch.observe(str(tmp_path / "image.tar"), HOST, job, no_engine, quiet)
        other = launch.observe(
            str(tmp_path / "image.tar"), HOST, docker_options.job_from(command=["data"], caller={}), no_engine, quiet
        )
    paths = made.paths.value or {}
    assert paths["/usr/local/cuda/lib64"] == Inside("directory", "/usr/local/cuda-13.0/lib64", 0, 0, 0o755)
    assert paths["/none"].kind == "absent"
    assert paths["/lib/x.so"].kind == "file"
    assert {"/", "/tmp", "/root", "/home", "/home/dev"} <= paths.keys()  # where a program writes unasked
    assert made.accounts.value == (Account("root", 0, 0, "/root"), Account("dev", 1000, 100, "/home/dev"))
    assert made.program.value == "/usr/bin/tool"
    assert other.program.value == ""  # a file that nobody may execute is no program


def test_the_images_own_command_runs_where_none_is_given(tmp_path: Path) -> None:
    made = seen(tmp_path, {"/x": b""}, Job(), {"Entrypoint": ["/start"], "Cmd": ["now"], "User": "dev"})
    assert (made.job.command.value, made.job.user.value) == (("/start", "now"), "dev")


def test_an_engine_that_does_not_answer_leaves_the_image_open() -> None:
    def silent() -> Engine:
        raise Undecided("no engine answers")

    made = launch.observe("trainer:1", HOST, docker_options.job_from(env=["A=1"], caller={}), silent, quiet)
    assert "no engine answers" in made.image.missing
    assert made.job.environment.value is None
    assert made.host is HOST


def test_a_launch_is_written_and_read_back() -> None:
    made = machines.launch("h100")
    assert from_plain(Launch, to_plain(made)) == made


# --- forward compatibility


def test_a_note_tells_cuda_branches_and_brands() -> None:
    assert launch.parse_note(note(json.dumps(TELLS).encode())) == ("13.1", (535, 580), (2, 14))
    assert launch.parse_note(note(b'{"Format":1,"CUDA Version":"13.2"}\0')) == ("13.2", (), ())
    longer = bytearray(note(b'{"CUDA version":"13.2"}\0'))
    longer[4] += 2  # as the library for Tegra has it
    assert launch.parse_note(bytes(longer)) == ("13.2", (), ())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        bytes(1 << 17),
        note(b"{}", b"GNU\0"),
        note(b"no json"),
        note(b"[]"),
        note(b'{"driver":"535"}'),
        note(b'{"driver":[true]}'),
        note(b'{"driver":[535]}')[:-4],
        struct.pack("<III", 1 << 31, 1 << 31, 0) + b"NVIDIA Corporation\0",
    ],
)
def test_a_damaged_note_is_an_error_of_value(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"note|Expecting"):
        launch.parse_note(data)


@given(st.binary(max_size=200))
def test_no_bytes_end_in_another_error(data: bytes) -> None:
    with suppress(ValueError):
        cuda, branches, brands = launch.parse_note(note(data))
        assert all(type(one) is int for one in (*branches, *brands)) and isinstance(cuda, str)


def test_compat_libraries_are_found_with_what_they_say(tmp_path: Path) -> None:
    made = seen(
        tmp_path,
        {
            "/usr/local/cuda": "cuda-13.1",
            "/usr/local/cuda-13.1/compat/libcuda.so": "libcuda.so.1",
            "/usr/local/cuda-13.1/compat/libcuda.so.1": "libcuda.so.590.44.01",
            "/usr/local/cuda-13.1/compat/libcuda.so.590.44.01": compat(note(json.dumps(TELLS).encode())),
            "/usr/local/cuda-12.4/compat/libcuda.so.550.54.15": library(),
            "/usr/lib/libcuda.so.550.54.15": library(),
        },
        Job(),
    )
    assert sorted(made.compat.value or (), key=lambda one: one.path) == [
        CompatLibrary("/usr/local/cuda-12.4/compat/libcuda.so.550.54.15", "550.54.15"),
        CompatLibrary(
            "/usr/local/cuda-13.1/compat/libcuda.so.590.44.01", "590.44.01", True, True, "13.1", (535, 580), (2, 14)
        ),
    ]


def test_a_damaged_compat_library_is_not_one_without_a_note(tmp_path: Path) -> None:
    made = seen(tmp_path, {"/usr/local/cuda/compat/libcuda.so.590.44.01": compat(note(b"{"))}, Job())
    assert "libcuda.so.590.44.01" in made.compat.missing


# --- mounts


def test_what_is_mounted_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o750)
    (tmp_path / "file").write_text("x")
    there = HostRoot(Path("/"), {})
    job = docker_options.job_from(
        mounts=[f"{tmp_path}/data:/data", f"{tmp_path}/file:/f", f"{tmp_path}/no:/no", "cache:/c"], caller={}
    )
    with image(tmp_path, {"/x": b""}):
        made = launch.observe(str(tmp_path / "image.tar"), HOST, job, no_engine, quiet, there)
    mounts = made.job.mounts.value or ()
    assert [one.kind.value for one in mounts] == ["directory", "file", "absent", "volume"]
    assert mounts[0].mode.value == 0o750
    assert (mounts[0].free.value or 0) > 0
    assert mounts[2].free.value is None


def test_mounts_of_a_recorded_machine_stay_open(tmp_path: Path) -> None:
    made = seen(tmp_path, {"/x": b""}, docker_options.job_from(mounts=["/data:/data"], caller={}))
    assert [one.kind.missing for one in made.job.mounts.value or ()] == ["the machine was recorded elsewhere"]
