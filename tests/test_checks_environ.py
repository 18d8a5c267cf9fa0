"""The checks of environment variables at their edges, for an image that ran and for one that was only read."""

from __future__ import annotations

from pathlib import Path

import answers
import pytest

from envkit import facts
from envkit.judging import judge
from envkit.model import Observed, Result, Severity
from envkit.payload.probe import environ
from envkit.subjects import Image
from envkit.subjects.audit import Audit
from envkit.subjects.image import Variable

FACTS = facts.load()


def of(check: str, variables: dict[str, str]) -> Result:
    """What the check says, the same of a process and of an image's configuration."""
    seen = Observed.of(tuple(Variable(*pair) for pair in variables.items()), "env")
    ran = answers.judged(check, Image("i", variables=seen))
    read = answers.judged(check, Audit("i", variables=seen))
    assert ran == read
    return ran


@pytest.mark.parametrize(
    ("variables", "severities"),
    [
        ({"LD_LIBRARY_PATH": "/opt/lib::/usr/local/lib"}, []),
        ({"LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"}, []),
        ({"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}, []),  # image-forward-compat-incompatible
        ({"LD_LIBRARY_PATH": "/usr/local/cuda-12.4/lib64/stubs"}, [Severity.ERROR]),
        ({"LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/usr/local/cuda/lib64/stubs/"}, [Severity.ERROR, Severity.NOTE]),
        ({"LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/opt/cudnn/lib"}, [Severity.NOTE]),
        ({"LD_PRELOAD": "/lib/libjemalloc.so.2 /x/libcudart.so.12:/x/libnccl.so.2"}, [Severity.NOTE, Severity.NOTE]),
        ({"LD_PRELOAD": "/lib/libtcmalloc.so", "CUDA_HOME": "/usr/local/cuda"}, []),
    ],
)
def test_the_linkers_variables(variables: dict[str, str], severities: list[Severity]) -> None:
    assert [finding.severity for finding in of("image-loader-variables-shadow-cuda", variables).findings] == severities


@pytest.mark.parametrize(
    ("name", "on", "off"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1", "0"),
        ("CUDA_MODULE_LOADING", "eager", "LAZY"),
        ("NCCL_DEBUG", "TRACE", "INFO"),
        ("NCCL_P2P_DISABLE", "1", ""),
        ("NCCL_SHM_DISABLE", "2", "false"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "0"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "INFO"),
        ("TRITON_INTERPRET", "1", "0"),
    ],
)
def test_what_was_left_on_says_what_it_costs(name: str, on: str, off: str) -> None:
    (finding,) = of("image-debug-variables-left-on", {name: on}).findings
    assert (finding.severity, finding.where) == (Severity.WARNING, name)
    assert finding.message.startswith(f"{name} is `{on}`: ")
    assert not of("image-debug-variables-left-on", {name: off}).findings


def test_a_stubs_directory_that_is_not_there_or_holds_nothing_is_a_note() -> None:
    stubs = "/usr/local/cuda/lib64/stubs"
    for idle, severity in (((stubs,), Severity.NOTE), ((), Severity.ERROR), (("/other/stubs",), Severity.ERROR)):
        seen = Observed.of((Variable("LD_LIBRARY_PATH", f"/opt/lib:{stubs}", idle),), "env")
        for subject in (Image("i", variables=seen), Audit("i", variables=seen)):
            (finding,) = judge.run(judge.checks()["image-loader-variables-shadow-cuda"], subject, FACTS).findings
            assert finding.severity is severity


def test_which_stubs_directories_hold_nothing_is_looked_up_where_the_process_runs(tmp_path: Path) -> None:
    full, bare = tmp_path / "full" / "stubs", tmp_path / "bare" / "stubs"
    for folder in (full, bare):
        folder.mkdir(parents=True)
    (full / "libcuda.so").write_bytes(b"")
    (bare / "README").write_text("")
    value = f"{full}:{bare}/;/none/stubs:/none/lib:/dev/null/stubs:"
    (one,) = environ.variables({"LD_LIBRARY_PATH": value})
    assert one["idle"] == [f"{bare}/", "/none/stubs", "/dev/null/stubs"]
    assert environ.variables({"LD_LIBRARY_PATH": str(full)}) == [{"name": "LD_LIBRARY_PATH", "value": str(full)}]
