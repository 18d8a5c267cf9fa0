"""The driver's checks at their edges; each fault beside its clean twin stands on the check's page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import answers
import pytest

from envkit import facts
from envkit.judging import judge
from envkit.model import Finding, Observed, Outcome, Result, Severity
from envkit.subjects import Image
from envkit.subjects.image import DriverSeen, ExpectedContents, Extension, Node, TorchBuild, Variable
from envkit.subjects.imported import ImportEnd
from envkit.versions import Sm

FACTS = facts.load()
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"
COMPAT = "/usr/local/cuda-13.2/compat/libcuda.so.595.45.04"
NODES = tuple(Node(path) for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"))
HEALTHY = DriverSeen(
    LIBRARY, "", 0, "13.0", "580.65.06", "580.65.06", "", True, (), (), NODES, count=1, nvml_count=1, nvml="580.65.06"
)
NEW = ("2.15.0+cu132", "13.2", ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120"))
OLD = ("2.6.0+cu124", "12.4", ("sm_50", "sm_80", "sm_90"))
CPU = ("2.15.0+cpu", "", ())
CODES = (3, 34, 35, 46, 100, 101, 222, 700, 716, 801, 802, 803, 804, 999)


def image(
    seen: DriverSeen = HEALTHY,
    torch: tuple[str, str, tuple[str, ...]] = OLD,
    gpus: tuple[str, ...] = ("all",),
    sms: tuple[Sm, ...] = (Sm(9, 0),),
    variables: dict[str, str] | None = None,
    extensions: tuple[Extension, ...] = (),
) -> Image:
    version, cuda, archs = torch
    build = TorchBuild(version, cuda, 0, "", archs, "/opt/venv/torch")
    return Image(
        "i",
        torch_import=Observed.of(ImportEnd("done"), "import"),
        torch=Observed.of(build, "torch._C"),
        driver=Observed.of(seen, "dlopen"),
        devices=Observed.of(sms, "cuDeviceGetAttribute"),
        variables=Observed.of(tuple(Variable(*pair) for pair in (variables or {}).items()), "os.environ"),
        extensions=Observed.of(extensions, "site-packages"),
        gpus_given=gpus,
    )


def one(check: str, subject: Image) -> Result:
    return answers.judged(check, subject)


def found(check: str, subject: Image) -> Finding:
    result = one(check, subject)
    assert result.outcome is Outcome.FAIL, result
    return result.findings[0]


OURS = sorted(
    name for name, check in judge.checks().items() if check.judge.__module__ == "envkit.judging.checks.driver"
)


def test_a_healthy_driver_passes_whatever_it_is_asked() -> None:
    said = {name: one(name, image()) for name in OURS}
    skipped = {name for name, result in said.items() if result.outcome is Outcome.SKIP}
    assert skipped == {"image-forward-compat-incompatible"}
    assert all(result.outcome in (Outcome.PASS, Outcome.SKIP) for result in said.values()), said
    assert len(said) == 11


@pytest.mark.parametrize("name", OURS)
def test_without_a_driver_and_without_gpus_every_question_is_skipped_with_a_reason(name: str) -> None:
    absent = DriverSeen(load_error="libcuda.so.1: cannot open shared object file: No such file or directory")
    result = one(name, image(absent, gpus=(), sms=()))
    assert result.outcome is Outcome.SKIP
    assert result.reason


@pytest.mark.parametrize("code", CODES)
def test_each_code_of_the_dictionary_is_named_with_cause_and_fix(code: int) -> None:
    (row,) = (row for row in FACTS.cuda_errors if row.code == code)
    finding = found("image-driver-init-failed", image(replace(HEALTHY, init=code, count=None)))
    assert [part for part in (str(code), row.name, row.means, row.cause) if part not in finding.message] == []
    assert (finding.fix, finding.severity) == (row.fix, Severity.ERROR)


def test_a_code_that_no_row_holds_is_still_a_failure() -> None:
    assert "returned 4711" in found("image-driver-init-failed", image(replace(HEALTHY, init=4711))).message


def test_no_device_is_a_fault_only_where_gpus_were_given_and_names_the_variable_that_hides_them() -> None:
    seen = replace(HEALTHY, init=100, count=None)
    assert one("image-driver-init-failed", image(seen, gpus=(), sms=())).outcome is Outcome.SKIP
    finding = found("image-driver-init-failed", image(seen, sms=(), variables={"CUDA_VISIBLE_DEVICES": "9"}))
    assert finding.message.endswith("CUDA_VISIBLE_DEVICES is `9`")


def test_an_error_row_has_words_for_every_field() -> None:
    for row in FACTS.cuda_errors:
        assert row.means and row.cause and row.fix, row
        assert not any(text.endswith(".") for text in (row.means, row.cause, row.fix)), row
        assert row.name.startswith(("CUDA_", "cuda"))


@pytest.mark.parametrize(
    ("cuda", "torch", "outcome"),
    [
        ("12.2", NEW, Outcome.FAIL),
        ("12.9", NEW, Outcome.FAIL),
        ("13.0", NEW, Outcome.PASS),
        ("13.0", OLD, Outcome.PASS),
        ("11.8", OLD, Outcome.FAIL),
        ("12.2", CPU, Outcome.SKIP),
    ],
)
def test_a_driver_of_an_older_major_is_too_old(cuda: str, torch: Any, outcome: Outcome) -> None:
    assert one("image-driver-too-old", image(replace(HEALTHY, cuda=cuda), torch)).outcome is outcome


def test_too_old_names_the_driver_the_build_and_the_floor() -> None:
    message = found("image-driver-too-old", image(replace(HEALTHY, cuda="12.2", module="535.183.01"), NEW)).message
    assert [word for word in ("535.183.01", "12.2", "2.15.0+cu132", "580.65.06") if word not in message] == []


def test_minor_compat_is_a_note_and_another_major_none_of_its_business() -> None:
    assert found("image-minor-compat-in-use", image(torch=NEW)).severity is Severity.NOTE
    assert one("image-minor-compat-in-use", image(torch=OLD)).outcome is Outcome.PASS
    assert one("image-minor-compat-in-use", image(replace(HEALTHY, cuda="12.2"), NEW)).outcome is Outcome.SKIP


@pytest.mark.parametrize(
    ("init", "file", "module", "severity"),
    [
        (0, "595.45.04", "535.183.01", None),
        (0, "595.45.04", "595.10.01", Severity.WARNING),
        (0, "595.45.04", "610.10.01", Severity.WARNING),
        (999, "595.45.04", "610.10.01", Severity.ERROR),
        (803, "595.45.04", "535.183.01", Severity.ERROR),
        (804, "595.45.04", "535.183.01", Severity.ERROR),
    ],
)
def test_compat_in_use_must_be_the_newer_one(init: int, file: str, module: str, severity: Severity | None) -> None:
    seen = replace(HEALTHY, library=COMPAT, compat=(COMPAT,), init=init, file=file, module=module, cuda="13.2")
    result = one("image-forward-compat-incompatible", image(seen, NEW))
    assert [finding.severity for finding in result.findings] == ([severity] if severity else [])
    assert one("image-driver-library-not-from-host", image(seen, NEW)).outcome is Outcome.SKIP


def test_the_compat_package_of_the_hosts_own_branch_is_refused_and_named() -> None:
    # as met on an H200 with LD_LIBRARY_PATH=/usr/local/cuda/compat
    path = "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05"
    seen = replace(
        HEALTHY, library=path, init=803, file="580.95.05", module="580.159.04", owner="cuda-compat-13-0",
        in_cache=False, compat=(path,), count=None, nvml="580.159.04",
    )  # fmt: skip
    finding = found("image-forward-compat-incompatible", image(seen, ("2.11.0+cu130", "13.0", ("sm_90",))))
    wanted = (path, "cuda-compat-13-0", "580.159.04", "803", "no newer branch than the module")
    assert [word for word in wanted if word not in finding.message] == []
    assert "LD_LIBRARY_PATH" in finding.fix


def test_an_unused_compat_library_matters_only_where_the_driver_is_too_old_and_it_is_new_enough() -> None:
    seen = replace(HEALTHY, cuda="12.2", file="535.183.01", module="535.183.01", compat=(COMPAT,))
    finding = found("image-forward-compat-incompatible", image(seen, NEW))
    assert (finding.severity, finding.where) == (Severity.WARNING, COMPAT)
    older = replace(seen, compat=("/usr/local/cuda-12.4/compat/libcuda.so.550.54.14",))
    assert one("image-forward-compat-incompatible", image(older, NEW)).outcome is Outcome.PASS
    assert one("image-forward-compat-incompatible", image(seen, OLD)).outcome is Outcome.PASS


def test_a_library_of_another_release_than_the_module_is_an_error_whoever_brought_it() -> None:
    seen = replace(HEALTHY, file="550.54.14")
    finding = found("image-driver-library-not-from-host", image(seen))
    assert finding.severity is Severity.ERROR
    assert "reboot" in finding.fix
    baked = found("image-driver-library-not-from-host", image(replace(seen, owner="libnvidia-compute-550")))
    assert "libnvidia-compute-550 brought" in baked.message
    assert "reboot" not in baked.fix


def test_a_library_in_the_image_that_fits_this_host_is_a_warning() -> None:
    finding = found("image-driver-library-not-from-host", image(replace(HEALTHY, owner="libcuda1")))
    assert finding.severity is Severity.WARNING


def test_nvmls_word_stands_for_a_module_that_proc_does_not_show() -> None:
    hidden = replace(HEALTHY, module="")
    assert one("image-driver-library-not-from-host", image(hidden)).outcome is Outcome.PASS
    assert one("image-driver-library-not-from-host", image(replace(hidden, nvml="550.54.14"))).outcome is Outcome.FAIL
    silent = replace(hidden, nvml="did not end within 60 s")
    assert one("image-driver-library-not-from-host", image(silent)).outcome is Outcome.UNKNOWN


def test_one_closed_gpu_of_several_is_a_warning_and_the_only_one_an_error() -> None:
    closed = Node("/dev/nvidia1", "Operation not permitted")
    several = replace(HEALTHY, nodes=(*NODES, closed))
    assert found("image-device-nodes-closed", image(several)).severity is Severity.WARNING
    only = replace(HEALTHY, nodes=(*NODES[:2], closed))
    assert found("image-device-nodes-closed", image(only)).severity is Severity.ERROR


@pytest.mark.parametrize(
    ("asked", "severities"),
    [
        ("compute,utility", []),
        ("all", []),
        ("utility, compute ,video", []),
        ("compute", [Severity.WARNING]),
        ("utility", [Severity.ERROR]),
        ("graphics", [Severity.ERROR, Severity.WARNING]),
    ],
)
def test_compute_is_needed_and_utility_missed(asked: str, severities: list[Severity]) -> None:
    result = one("image-device-nodes-closed", image(variables={"NVIDIA_DRIVER_CAPABILITIES": asked}))
    assert [finding.severity for finding in result.findings] == severities


@pytest.mark.parametrize(
    ("visible", "cuda", "outcome"),
    [
        (None, 4, Outcome.PASS),
        (None, 3, Outcome.FAIL),
        ("0,1", 2, Outcome.PASS),
        ("0,1,9,3", 2, Outcome.FAIL),
        ("GPU-1234,GPU-5678", 1, Outcome.FAIL),
        ("2", 1, Outcome.PASS),
        ("-1", 0, Outcome.PASS),
    ],
)
def test_cuda_sees_what_the_variable_names(visible: str | None, cuda: int, outcome: Outcome) -> None:
    nodes = (*NODES, *(Node(f"/dev/nvidia{number}") for number in (1, 2, 3)))
    seen = replace(HEALTHY, count=cuda, nvml_count=4, nodes=nodes)
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert one("image-device-count-differs", image(seen, variables=variables)).outcome is outcome


def extension(*ptx: str, built_with: str = "13.1", sass: tuple[str, ...] = ()) -> Extension:
    return Extension("/opt/own.so", "own", "1", "libcudart.so.13", built_with, sass, ptx)


@pytest.mark.parametrize(
    ("one_of", "driver", "outcome"),
    [
        (extension("compute_80"), "13.0", Outcome.FAIL),
        (extension("compute_80"), "13.1", Outcome.PASS),
        (extension("compute_80", sass=("sm_90",)), "13.0", Outcome.PASS),
        (extension("compute_120"), "13.0", Outcome.PASS),  # no code at all is another check's matter
        (extension("compute_80", built_with="12.6"), "12.5", Outcome.PASS),  # both write the same ISA
        (extension("compute_80", built_with="12.8"), "12.5", Outcome.FAIL),
        (extension("compute_80", built_with=""), "13.0", Outcome.UNKNOWN),
        (extension("compute_80", built_with="99.0"), "13.0", Outcome.UNKNOWN),
    ],
)
def test_ptx_needs_a_driver_that_knows_its_isa(one_of: Extension, driver: str, outcome: Outcome) -> None:
    subject = image(replace(HEALTHY, cuda=driver), OLD, extensions=(one_of,))
    assert one("image-ptx-newer-than-driver", subject).outcome is outcome


def test_ptx_of_torch_itself_is_judged_too() -> None:
    torch = ("2.15.0+cu132", "13.2", ("sm_80", "compute_90"))
    finding = found("image-ptx-newer-than-driver", image(torch=torch))
    assert "torch 2.15.0+cu132 has only PTX of CUDA 13.2 for sm_90" in finding.message


def test_a_cpu_torch_is_right_where_it_was_promised() -> None:
    subject = image(torch=CPU)
    assert found("image-runs-on-cpu", subject).severity is Severity.ERROR
    promised = replace(subject, promise=Observed.of(ExpectedContents("2.15.0", "", ()), "label"))
    assert one("image-runs-on-cpu", promised).outcome is Outcome.PASS


@pytest.mark.parametrize("hiding", ["", "-1", "NoDevFiles"])
def test_a_variable_that_hides_every_gpu_is_a_fault(hiding: str) -> None:
    finding = found("image-runs-on-cpu", image(sms=(), variables={"CUDA_VISIBLE_DEVICES": hiding}))
    assert "hides every GPU" in finding.message


def test_the_ptx_isa_rises_with_cuda_and_reaches_every_torch() -> None:
    isas = [tuple(map(int, row.isa.split("."))) for row in FACTS.ptx_isas]
    assert isas == sorted(set(isas))
    assert all(len(row.cuda.parts) == 2 for row in FACTS.ptx_isas)
    for row in FACTS.torches:  # every torch's CUDA lies within the table
        assert FACTS.ptx_isas[0].cuda <= row.cuda <= FACTS.ptx_isas[-1].cuda
