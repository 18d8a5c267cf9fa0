"""The guard of an image, in real processes with a stand-in driver: each fault and its clean twin; what it leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from clocks import comes, ends
from processes import children

from envkit.build import render
from envkit.errors import UsageError
from envkit.payload import guard
from envkit.plan.lockfile import dump, parse
from envkit.plan.spec import parse as parse_spec

ROOT = Path(__file__).parent.parent
GUARD = ROOT / "envkit" / "payload" / "guard.py"
CONTEXTS = ROOT / "tests" / "faults" / "contexts.c"
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
has_driver = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda.so.1 that has contexts."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    return library(tmp_path_factory.mktemp("driver"), f'#include "{CONTEXTS}"\n')


def library(folder: Path, text: str) -> Path:
    (folder / "libcuda.c").write_text(text)
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", folder / "libcuda.so.1", folder / "libcuda.c"], check=True, timeout=60)
    return folder


def environment(folder: Path, **said: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder), **said}


def argv(*command: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(GUARD), "--", *command]


def guarded(folder: Path, command: Sequence[str] = ("echo", "ran"), **said: str) -> subprocess.CompletedProcess[str]:
    """The guard before ``command``, with ``folder`` first for the linker."""
    return subprocess.run(
        argv(*command), env=environment(folder, **said), capture_output=True, text=True, timeout=60, check=False
    )


def refused(done: subprocess.CompletedProcess[str], code: int) -> str:
    """What the guard said instead of running the command: one sentence, and a fix below it."""
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    message, fix = done.stderr.splitlines()
    assert message.startswith("envkit guard: ")
    assert not message.endswith(".")
    assert fix.startswith("  fix: ")
    assert len(fix) > 15
    return message


def passed(done: subprocess.CompletedProcess[str], stderr: str = "") -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", stderr)


# What a job would fail at


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (2, "the GPU's memory is taken"),
        (34, "the toolkit's stub"),
        (35, "the driver is older"),
        (36, "the driver is older"),
        (46, "another process has the GPU for itself"),
        (100, "shows this process no GPU"),
        (101, "CUDA_VISIBLE_DEVICES names a GPU that is not here"),
        (214, "uncorrectable memory error"),
        (304, "the kernel refused"),
        (802, "NVLink fabric is not ready"),
        (803, "another version than the loaded kernel module"),
        (804, "forward-compatibility libcuda"),
        (805, "MPS server cannot be reached"),
        (807, "MPS server is not ready"),
        (999, "a reason that it does not tell"),
        (777, "the job's own first call would fail with it"),
    ],
)
def test_a_code_of_cuinit_stops_the_job_with_its_number_its_name_and_the_cause(
    driver: Path, code: int, words: str
) -> None:
    message = refused(guarded(driver, STANDIN_INIT=str(code)), 1)
    assert message.startswith(f"envkit guard: cuInit returned {code} (CUDA_ERROR_OF_THE_STAND_IN): ")
    assert words in message


@pytest.mark.skipif(has_driver, reason="this machine has a driver")
def test_no_device_is_told_with_the_nodes_that_lack(driver: Path) -> None:
    message = refused(guarded(driver, STANDIN_INIT="100"), 1)
    assert message.endswith("; here is no /dev/nvidiactl, no /dev/nvidia-uvm, no /dev/nvidia0 or other GPU")
    assert "/dev/nvidia" not in refused(guarded(driver, STANDIN_INIT="803"), 1)


def test_a_driver_that_works_lets_the_command_run_and_says_nothing(driver: Path) -> None:
    passed(guarded(driver))
    passed(guarded(driver, STANDIN_DEVICES="8", ENVKIT_GPUS="8", NVIDIA_VISIBLE_DEVICES="all", ENVKIT_GUARD="on"))


@pytest.mark.parametrize(
    ("devices", "said", "promised"),
    [
        ("0", {"NVIDIA_VISIBLE_DEVICES": "all"}, "0 of 1 GPUs promised by NVIDIA_VISIBLE_DEVICES=all"),
        ("0", {"NVIDIA_VISIBLE_DEVICES": "void"}, "0 of 1 GPUs promised by NVIDIA_VISIBLE_DEVICES=void"),
        ("0", {}, "0 of 1 GPUs promised by the image's guard"),
        ("1", {"NVIDIA_VISIBLE_DEVICES": "0,3"}, "1 of 2 GPUs promised by NVIDIA_VISIBLE_DEVICES=0,3"),
        ("2", {"CUDA_VISIBLE_DEVICES": "0,1,7"}, "2 of 3 GPUs promised by CUDA_VISIBLE_DEVICES=0,1,7"),
        ("7", {"ENVKIT_GPUS": "8"}, "7 of 8 GPUs promised by ENVKIT_GPUS=8"),
        ("2", {"ENVKIT_GPUS": "2", "CUDA_VISIBLE_DEVICES": "0,1,2"}, "2 of 3 GPUs promised by CUDA_VISIBLE_DEVICES"),
    ],
)
def test_fewer_gpus_than_promised_stop_the_job_and_one_more_would_do(
    driver: Path, devices: str, said: dict[str, str], promised: str
) -> None:
    assert promised in refused(guarded(driver, STANDIN_DEVICES=devices, **said), 1)
    passed(guarded(driver, STANDIN_DEVICES=str(int(devices) + 1), **said))


@pytest.mark.parametrize(
    ("said", "least"),
    [
        ({}, [1]),
        ({"ENVKIT_GPUS": "0", "NVIDIA_VISIBLE_DEVICES": "all"}, []),
        ({"ENVKIT_GPUS": "3"}, [3]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-5a1c,MIG-77e0"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "0,1,2,3"}, [1]),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-0a1b2c3d-0000-0000-0000-000000000000,GPU-1"}, [2]),
        ({"NVIDIA_VISIBLE_DEVICES": "0:0,0:1"}, [1]),
        ({"NVIDIA_VISIBLE_DEVICES": "nvidia.com/gpu=all"}, [1]),
        ({"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}, [1]),
        ({"NVIDIA_VISIBLE_DEVICES": ""}, [1]),
    ],
)
def test_what_the_variables_promise(said: dict[str, str], least: list[int]) -> None:
    assert [promise.least for promise in guard.promises(said)] == least


def test_a_job_without_gpus_is_not_stopped_by_a_driver_and_that_is_told(driver: Path) -> None:
    told = "envkit guard: its environment promises no GPU, none was looked at\n"
    passed(guarded(driver, STANDIN_INIT="999", ENVKIT_GPUS="0"), told)
    passed(guarded(driver, STANDIN_INIT="999", NVIDIA_VISIBLE_DEVICES="none"), told)


@pytest.mark.parametrize(("code", "words"), [(2, "memory is taken"), (46, "for itself"), (214, "memory error")])
def test_a_device_on_which_no_context_can_be_made_stops_the_job(driver: Path, code: int, words: str) -> None:
    said = {"STANDIN_DEVICES": "4", "STANDIN_CONTEXT": str(code)}
    message = refused(guarded(driver, STANDIN_CONTEXT_OF="2", **said), 1)
    assert f"cuDevicePrimaryCtxRetain of device 2 returned {code} " in message
    assert words in message
    passed(guarded(driver, STANDIN_CONTEXT_OF="4", **said))  # there are 0 to 3


@pytest.mark.skipif(has_driver, reason="this machine has a driver")
def test_without_a_driver_the_container_got_none(tmp_path: Path) -> None:
    message = refused(guarded(tmp_path), 1)
    assert message == "envkit guard: there is no libcuda.so.1 here: the machine's driver was not put in"


def test_a_library_that_cannot_be_loaded_is_told_in_the_linkers_words(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    assert "libcuda.so.1 cannot be loaded: " in refused(guarded(tmp_path), 1)


def test_shared_memory_smaller_than_asked_for_stops_the_job(driver: Path) -> None:
    found = os.statvfs("/dev/shm")
    whole = found.f_frsize * found.f_blocks
    passed(guarded(driver, ENVKIT_SHM=str(whole)))
    message = refused(guarded(driver, ENVKIT_SHM=str(whole + 1)), 1)
    assert f"/dev/shm has {whole >> 20} MiB, ENVKIT_SHM asks for" in message
    refused(guarded(driver, ENVKIT_SHM=str(whole + 1), ENVKIT_GPUS="0"), 1)


def test_shared_memory_that_is_not_there_stops_the_job(tmp_path: Path) -> None:
    with pytest.raises(guard.Stop, match="cannot be read") as caught:
        guard.need_shm(1, str(tmp_path / "shm"))
    assert caught.value.code == guard.FAULT


@pytest.mark.parametrize(
    ("text", "size"), [("67108864", 1 << 26), ("64m", 1 << 26), ("16G", 1 << 34), ("1gb", 1 << 30), ("1GiB", 1 << 30)]
)
def test_sizes_are_read_as_docker_reads_them(text: str, size: int) -> None:
    assert guard.size(text) == size


# What stays open


def test_a_driver_that_hangs_is_undecided_within_the_budget_and_no_process_stays(driver: Path) -> None:
    with ends():
        message = refused(guarded(driver, STANDIN_INIT="hang", ENVKIT_GUARD_S="0.5"), 3)
    assert message == "envkit guard: cuInit did not end within 0.5 s"
    said = {"STANDIN_DEVICES": "3", "STANDIN_CONTEXT": "hang", "STANDIN_CONTEXT_OF": "1", "ENVKIT_GUARD_S": "0.5"}
    message = refused(guarded(driver, **said), 3)
    assert message == "envkit guard: making the context of device 1 did not end within 0.5 s"


def test_a_driver_that_dies_is_undecided(driver: Path) -> None:
    assert refused(guarded(driver, STANDIN_INIT="crash"), 3).endswith("cuInit was killed by SIGSEGV")
    message = refused(guarded(driver, STANDIN_DEVICES="1", STANDIN_CONTEXT="crash"), 3)
    assert message.endswith("making the context of device 0 was killed by SIGSEGV")


def test_a_fault_outranks_a_hang(driver: Path) -> None:
    """One device too few is certain, whatever becomes of the others' contexts."""
    said = {"STANDIN_DEVICES": "1", "STANDIN_CONTEXT": "hang", "ENVKIT_GUARD_S": "0.5", "ENVKIT_GPUS": "2"}
    assert "1 of 2 GPUs" in refused(guarded(driver, **said), 1)


@needs_compiler
def test_a_library_without_the_drivers_functions_is_undecided(tmp_path: Path) -> None:
    done = guarded(library(tmp_path, "int standin_nothing(void) { return 0; }\n"))
    assert (done.returncode, done.stdout) == (3, "")
    assert "undefined symbol: cuInit" in done.stderr
    assert "cuInit ended its process with code 70" in done.stderr


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["at cuInit"],
        ["at cuInit", "end"],
        ["at cuInit", "count 2", "made 0", "end"],
        ["at cuInit", "count 1", "made 0"],
    ],
)
def test_a_child_that_left_out_a_step_is_no_pass(lines: list[str]) -> None:
    with pytest.raises(guard.Stop) as caught:
        guard.judge(guard.ChildReport(lines, 0, 1.0), [guard.ExpectedGpus(1, "a test")])
    assert caught.value.code == guard.UNDECIDED


def test_the_whole_of_what_a_child_says_is_a_pass() -> None:
    lines = ["at cuInit", "count 2", "made 1", "made 0", "end"]
    guard.judge(guard.ChildReport(lines, 0, 1.0), [guard.ExpectedGpus(2, "a test")])
    with pytest.raises(guard.Stop):  # the same, from a child that died as it left
        guard.judge(guard.ChildReport(lines, signal.SIGSEGV, 1.0), [guard.ExpectedGpus(2, "a test")])


# Use


@pytest.mark.parametrize(
    ("words", "said", "told"),
    [
        ([], {}, "there is no command"),
        (["--"], {}, "there is no command"),
        (["--", ""], {}, "there is no command"),
        (["echo", "ran"], {}, "there is no command"),
        (["--", "echo"], {"ENVKIT_GPUS": "two"}, "ENVKIT_GPUS is 'two'"),
        (["--", "echo"], {"ENVKIT_GPUS": "-1"}, "ENVKIT_GPUS is '-1'"),
        (["--", "echo"], {"ENVKIT_SHM": "much"}, "ENVKIT_SHM is 'much'"),
        (["--", "echo"], {"ENVKIT_GUARD": "maybe"}, "ENVKIT_GUARD is 'maybe'"),
        (["--", "echo"], {"ENVKIT_GUARD_S": "0"}, "ENVKIT_GUARD_S is '0'"),
        (["--", "echo"], {"ENVKIT_GUARD_S": "900"}, "ENVKIT_GUARD_S is '900'"),
    ],
)
def test_wrong_use_is_told_and_runs_nothing(driver: Path, words: list[str], said: dict[str, str], told: str) -> None:
    command = [sys.executable, "-I", "-S", str(GUARD), *words]
    done = subprocess.run(
        command, env=environment(driver, **said), capture_output=True, text=True, timeout=60, check=False
    )
    assert told in refused(done, 2)


def test_a_guard_that_is_off_says_so_and_runs_the_command(driver: Path) -> None:
    passed(
        guarded(driver, STANDIN_INIT="999", ENVKIT_GUARD="off"),
        "envkit guard: ENVKIT_GUARD is off, nothing was looked at\n",
    )


def test_a_command_that_cannot_run_ends_as_in_a_shell(driver: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program\n")
    assert f"`{plain}` cannot be run: Permission denied" in refused(guarded(driver, [str(plain)]), 126)
    assert "`no-such-program` cannot be run" in refused(guarded(driver, ["no-such-program"]), 127)


# The command has the process to itself


@pytest.mark.parametrize(
    "codes",
    [
        pytest.param([0, 1, 2, 3, 64, 77, 126, 127, 128, 130, 137, 143, 254, 255], id="some"),
        # Each starts a guard: ten seconds of a processor. Those that shells and the guard itself use are above.
        pytest.param(list(range(256)), id="every", marks=pytest.mark.slow),
    ],
)
def test_every_exit_code_is_the_commands(driver: Path, codes: list[int]) -> None:
    def code(wanted: int) -> int:
        return guarded(driver, ["sh", "-c", f"exit {wanted}"]).returncode

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(code, codes)) == codes


def state(words: list[str], folder: Path, **said: str) -> tuple[int, dict[str, str]]:
    """A process and what it tells of itself: signals, limits, group, descriptors, children, environment."""
    tell = (
        # read by the shell itself: while it starts a program, its signals are blocked for a moment
        'while read -r l; do case $l in Sig[!Q]*|Shd*|Umask*|Uid*|Groups*) echo "$l";; esac; done </proc/$$/status; '
        "cat /proc/$$/environ | tr '\\0' '\\n'; "
        "cat /proc/$$/limits; echo pid $$; echo group $(cut -d' ' -f5,6 /proc/$$/stat); "
        "for one in /proc/$$/fd/*; do echo fd ${one##*/}; done; echo children $(cat /proc/$$/task/$$/children | wc -w)"
    )
    # Python 3.13 starts a path by posix_spawn, which leaves two signals of glibc ignored, but a bare name by fork.
    command = [*words, shutil.which("sh") or "/bin/sh", "-c", tell]
    with subprocess.Popen(
        command, env=environment(folder, **said), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        text = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 0
    told = {line.replace(str(process.pid), "PID"): "" for line in text.splitlines()}
    assert "pid PID" in told
    return process.pid, told


@pytest.mark.parametrize("said", [{}, {"LC_CTYPE": "POSIX", "ENVKIT_GPUS": "1", "EMPTY": ""}, {"LC_ALL": "C"}])
def test_the_command_has_the_number_the_group_the_signals_and_the_environment_of_the_guard(
    driver: Path, said: dict[str, str]
) -> None:
    """Python itself ignores two signals, sets LC_CTYPE in a C locale, and opens files."""
    assert state(argv(), driver, **said)[1] == state([], driver, **said)[1]


def test_words_arrive_as_they_were_given(driver: Path) -> None:
    words = [b"printf", b"%s|", b"", b"a b", b"--nonce", b"--", b"\xff\xfe", "ä".encode()]
    done = subprocess.run([*map(os.fsencode, argv()), *words], env=environment(driver), capture_output=True, timeout=60)
    assert done.stdout == b"".join(word + b"|" for word in words[2:])


def test_a_signal_reaches_the_command_itself(driver: Path) -> None:
    script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        argv("sh", "-c", script), env=environment(driver), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert (process.stdout.read(), process.wait(120)) == ("caught\n", 5)
    with subprocess.Popen(
        argv("sh", "-c", "echo ready; exec sleep 60"), env=environment(driver), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(120) == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_while_it_looks_ends_it_and_its_child(driver: Path, number: signal.Signals) -> None:
    with subprocess.Popen(argv("echo", "ran"), env=environment(driver, STANDIN_INIT="hang"), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:  # fmt: skip
        assert comes(lambda: children(process.pid))
        (child,) = children(process.pid)
        time.sleep(0.2)  # until the child is in the driver; a signal before that ends it as well
        process.send_signal(number)
        assert process.wait(120) == -number
        assert process.communicate()[0] == b""
    assert comes(lambda: not os.path.exists(f"/proc/{child}"))


def test_as_a_containers_first_process_it_heeds_sigterm_too(driver: Path) -> None:
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no process namespace may be made here")
    with subprocess.Popen(
        [*apart, *argv("echo", "ran")], env=environment(driver, STANDIN_INIT="hang"), stdout=subprocess.PIPE
    ) as process:
        assert comes(lambda: children(process.pid))
        (first,) = children(process.pid)
        assert comes(lambda: children(first))
        time.sleep(0.1)
        os.kill(first, signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
        assert process.communicate()[0] == b""


# The image


REFERENCE = parse((ROOT / "images" / "torch-2.6-cu124" / "envkit.lock").read_text(), "torch-2.6-cu124")
ENTRY = 'ENTRYPOINT ["/opt/venv/bin/python", "-I", "-S", "/usr/share/envkit/guard.py", "--"]'
LEAST = 'torch = "2.6.0"\npython = "3.11"\n'


def test_an_image_that_asks_for_a_guard_has_it_as_its_entry_point_and_a_debug_image_has_none() -> None:
    text = render.dockerfile(replace(REFERENCE, guard=True))
    assert f'COPY <<"EOF" /guard.py\n{GUARD.read_text()}EOF\n' in text
    assert "EOF" not in GUARD.read_text().splitlines()
    runtime = text[text.index("FROM cuda AS runtime") :]
    assert runtime.index("COPY --from=guard /out/ /") < runtime.index(ENTRY) < runtime.index('CMD ["python3"]')
    assert runtime.count(ENTRY) == 1
    assert "ENTRYPOINT []\n" in runtime[runtime.index("FROM devel AS debug") :]


def test_an_image_that_asks_for_none_has_neither_file_nor_entry_point() -> None:
    text = render.dockerfile(REFERENCE)
    assert "guard" not in text
    assert "ENTRYPOINT" not in text
    assert "guard" not in dump(REFERENCE)


def test_the_lock_holds_the_wish_for_a_guard() -> None:
    asked = replace(REFERENCE, guard=True)
    assert parse(dump(asked), "here") == asked
    assert parse(dump(REFERENCE), "here").guard is False


def test_a_spec_asks_for_a_guard() -> None:
    where = Path("/srv/envkit.toml")
    assert parse_spec(LEAST + "guard = true\n", where).guard is True
    assert parse_spec(LEAST + "guard = false\n", where).guard is False
    assert parse_spec(LEAST, where).guard is False


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('guard = "yes"', "must be true or false, not text"),
        ('guard = true\nbase = "ngc"', "an entry point of its own"),
        ('guard = true\nflavor = "debug"', "a debug image has no guard"),
    ],
)
def test_a_guard_that_cannot_be_is_refused(line: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_spec(LEAST + line + "\n", Path("/srv/envkit.toml"))


def test_a_child_that_hangs_in_the_driver_is_waited_for_no_longer_than_its_time() -> None:
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        with ends():
            assert guard._reaped(child, time.monotonic() - 1.0) is None
    finally:
        os.kill(child, signal.SIGKILL)
    status = guard._reaped(child, time.monotonic() + 60.0)
    assert status is not None and os.WTERMSIG(status) == signal.SIGKILL
