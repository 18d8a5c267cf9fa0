"""What packages say of their build, and real imports of packages made here, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from clocks import comes, ends

from envkit.image.probe import read
from envkit.model import Observed, Reason
from envkit.payload.probe import frameworks, wheels
from envkit.payload.probe.child import Child, ParallelChildren
from envkit.runner.pack import pack
from envkit.subjects.image import NO_PROMISE, Framework, Image


def distribution(base: Path, name: str, version: str, files: dict[str, str], *requires: str) -> wheels.Dist:
    """An installed distribution with ``files`` and Requires-Dist lines."""
    for file, text in files.items():
        (base / file).parent.mkdir(parents=True, exist_ok=True)
        (base / file).write_text(text)
    info = base / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, "", "text"]))
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return wheels.Dist(name, version, str(info))


CPP_LIB = json.dumps({"version": {"cuda": 1204, "torch": "2.6.0+cu124", "python": "3.11.7"}, "env": {}})
TORCH_INFO = "version='0.16'\ntorch_info={'version': '2.6', 'cuda_version': '12.4', 'bf16_support': True}\n"


@pytest.mark.parametrize(
    ("name", "version", "files", "requires", "others", "says"),
    [
        ("xformers", "0.0.29", {"xformers/cpp_lib.json": CPP_LIB}, (), (), ("2.6.0+cu124", "12.4", "yes")),
        ("xformers", "0.0.29", {"xformers/cpp_lib.json": "[]"}, (), (), ("", "", "")),
        ("xformers", "0.0.29", {"xformers/cpp_lib.json": "{"}, ("torch==2.6.0",), (), ("2.6.0", "", "")),
        ("flash-attn", "2.7.4.post1+cu12torch2.6cxx11abiFALSE", {}, ("torch",), (), ("2.6", "12", "yes")),
        ("deepspeed", "0.16", {"deepspeed/git_version_info_installed.py": TORCH_INFO}, (), (), ("2.6", "12.4", "yes")),
        (
            "deepspeed",
            "0.16",
            {"deepspeed/git_version_info_installed.py": "torch_info={'version': '0.0', 'cuda_version': '0.0'}"},
            (),
            (),
            ("", "", ""),
        ),
        ("torchaudio", "2.6.0+cu124", {}, ("torch (==2.6.0)",), (), ("2.6.0", "12.4", "yes")),
        ("torchvision", "0.21.0+cpu", {}, ("torch==2.6.0",), (), ("2.6.0", "", "no")),
        ("vllm", "0.8.0", {}, ("torch==2.6.0", "torch==2.5.0 ; extra == 'old'"), (), ("2.6.0", "", "")),
        ("vllm", "0.8.0", {}, ("torch>=2.6", "torchvision==0.21.0", "torch==2.*"), (), ("", "", "")),
        ("cupy-cuda12x", "13.3.0", {}, (), (), ("", "12", "yes")),
        ("jax", "0.5.0", {}, (), ("jaxlib", "jax-cuda13-plugin"), ("", "13", "yes")),
        ("jax", "0.5.0", {}, (), ("jaxlib",), ("", "", "no")),
    ],
)
def test_what_a_distribution_says_of_its_build(
    tmp_path: Path,
    name: str,
    version: str,
    files: dict[str, str],
    requires: tuple[str, ...],
    others: tuple[str, ...],
    says: tuple[str, str, str],
) -> None:
    claim = frameworks.claim_of(distribution(tmp_path, name, version, files, *requires), {name, *others})
    assert (claim.torch, claim.cuda, claim.gpu) == says
    assert bool(claim.via) == bool(claim.torch or claim.cuda)


ON_ONE_CPU = (
    "import os, sys; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]); os.execv(sys.argv[1], sys.argv[1:])"
)


def probed(tmp_path: Path, one_cpu: bool = False, **env: str) -> Image:
    pyz = tmp_path / "envkit.pyz"
    pyz.write_bytes(pack())
    first = [sys.executable, "-c", ON_ONE_CPU] if one_cpu else []
    done = subprocess.run(
        [*first, sys.executable, str(pyz), "probe"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path), **env},
        stdin=subprocess.DEVNULL,
    )
    return read(
        json.loads(done.stdout.splitlines()[-1]), "here", "", Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE)
    )


def found(image: Image) -> dict[str, Framework]:
    return {one.name: one for one in image.frameworks.need("frameworks")}


FAKE_TORCH = "__version__ = '2.6.0'\nclass version: cuda = None\nclass _C: _has_cudnn = False\n"


def test_each_package_is_imported_after_torch_and_one_death_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    sources = {
        "torchvision": "import sys; assert 'torch' in sys.modules; print('noise')",
        "bitsandbytes": "import ctypes; ctypes.string_at(0)",
        "torchaudio": "raise ImportError('libcudart.so.99: cannot open\\n shared object file')",
        "xformers": "import sys; sys.exit(3)",
    }
    for name, text in sources.items():
        distribution(tmp_path, name, "1.0", {f"{name}/__init__.py": text}, "torch==2.5.0")
    (tmp_path / "torchvision" / "version.py").write_text("cuda = 12040\n")
    said = found(probed(tmp_path))
    assert said["torchvision"].ended == "done"
    assert (said["torchvision"].built_torch, said["torchvision"].built_cuda) == ("2.5.0", "12.4")
    assert said["bitsandbytes"].ended == "was killed by SIGSEGV"
    assert said["bitsandbytes"].built_torch == "2.5.0"  # its files were read before it was imported
    assert said["torchaudio"].ended.startswith("raised ImportError: libcudart.so.99")
    assert said["xformers"].ended == "raised SystemExit: 3"


@pytest.mark.slow  # several whole probes
def test_a_package_without_its_modules_is_broken_and_a_broken_torch_leaves_all_open(tmp_path: Path) -> None:
    distribution(tmp_path, "onnxruntime", "1.0", {})
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    assert found(probed(tmp_path))["onnxruntime"].ended.startswith("raised ModuleNotFoundError")
    (tmp_path / "torch.py").write_text("raise ImportError('no')")
    assert "raised ImportError: no" in probed(tmp_path).frameworks.missing


def test_no_package_that_uses_cuda_costs_no_process(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH + "open('/dev/null')\n")
    image: Any = probed(tmp_path)
    assert image.frameworks.need("frameworks") == ()


SEES = """import os, time
def sees(path):
    ends = time.monotonic() + 120
    while not os.path.exists(path):
        if time.monotonic() > ends: raise ImportError('alone: ' + path)
        time.sleep(0.01)
"""


def test_the_imports_run_beside_that_of_torch(tmp_path: Path) -> None:
    torch = "import sys; from sees import sees\nif '--framework' not in sys.argv: sees({marker!r})\n"
    marker = str(tmp_path / "marker")
    (tmp_path / "sees.py").write_text(SEES)
    (tmp_path / "torch.py").write_text(torch.format(marker=marker) + FAKE_TORCH)
    distribution(tmp_path, "torchaudio", "1.0", {"torchaudio/__init__.py": f"open({marker!r}, 'w')"})
    image = probed(tmp_path)
    assert image.torch_import.need("ending") == "done"
    assert found(image)["torchaudio"].ended == "done"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_the_imports_run_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    (tmp_path / "sees.py").write_text(SEES)
    for name, other in (("torchaudio", "xformers"), ("xformers", "torchaudio")):
        text = f"from sees import sees; open({str(tmp_path / name) + '.marker'!r}, 'w')\n"
        text += f"sees({str(tmp_path / other) + '.marker'!r})"
        distribution(tmp_path, name, "1.0", {f"{name}/__init__.py": text})
    assert {name: one.ended for name, one in found(probed(tmp_path)).items()} == {
        "torchaudio": "done",
        "xformers": "done",
    }


@pytest.mark.slow  # imports that wait for one another
def test_on_one_cpu_they_run_one_after_the_other_and_each_tells_of_itself(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    lock = str(tmp_path / "lock")
    alone = f"import os, time; os.mkdir({lock!r}); time.sleep(0.2); os.rmdir({lock!r})"
    versions = {"torchaudio": "1.0", "vllm": "2.0", "xformers": "3.0"}
    for name, version in versions.items():
        distribution(tmp_path, name, version, {f"{name}/__init__.py": alone})
    rows = probed(tmp_path, one_cpu=True).frameworks.need("frameworks")
    assert [(one.name, one.version, one.ended) for one in rows] == [(*one, "done") for one in versions.items()]


def test_where_torch_is_broken_nobody_waits_for_an_import(tmp_path: Path) -> None:
    hangs = "import sys, time\nif '--framework' in sys.argv: time.sleep(600)\nraise ImportError('no')"
    (tmp_path / "torch.py").write_text(hangs)
    distribution(tmp_path, "torchaudio", "1.0", {"torchaudio/__init__.py": ""})
    with ends():
        assert "raised ImportError: no" in probed(tmp_path).frameworks.missing


def test_an_import_that_hangs_is_ended_within_its_own_budget_which_torch_does_not_use_up(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import time; time.sleep(1.5)\n" + FAKE_TORCH)
    distribution(tmp_path, "torchaudio", "1.0", {"torchaudio/__init__.py": "import time; time.sleep(600)"})
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    parallel, started = ParallelChildren(), time.monotonic()
    with ends():
        child = parallel.start(Child(["--framework", "torchaudio"], 0.5, ("import torchaudio",), env))
        while parallel.running:
            parallel.wait()
    assert (child.doing, child.how) == ("import torchaudio", "did not end within 0.5 s")
    assert time.monotonic() - started >= 2.0  # both


def test_an_import_that_waited_for_a_processor_has_that_time_beside_its_budget(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    distribution(tmp_path, "torchaudio", "1.0", {"torchaudio/__init__.py": "import time; time.sleep(600)"})
    child = Child(
        ["--framework", "torchaudio"], 0.2, ("import torchaudio",), {**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    try:
        assert comes(lambda: child.hear() and child.doing == "import torchaudio")
        assert comes(lambda: child.late(0.0))
        assert not child.late(5.0), "as long as it waited, up to seven budgets more"
        assert not child.late(None)
        assert comes(lambda: child.late(0.0)), "nobody waits for a processor for ever"
    finally:
        child.close(hung=True)
    assert child.how == "did not end within 0.2 s"


AT_HOME = """import os, site
os.mkdir(os.path.expanduser('~/.x'))
open({told!r}, 'w').write(os.path.expanduser('~') + ' ' + site.getuserbase())
"""


@pytest.mark.parametrize("writable", [True, False])
def test_only_an_unwritable_home_is_replaced_for_the_imports_and_the_users_site_stays(
    tmp_path: Path, writable: bool
) -> None:
    home, told = tmp_path / "home", tmp_path / "told"
    if writable:
        home.mkdir()
    else:
        home.write_text("")  # in which not even root can make anything
    # the observed torch has the home that a user's has
    same = f"import os, sys; assert '--framework' in sys.argv or os.environ['HOME'] == {str(home)!r}\n"
    (tmp_path / "torch.py").write_text(same + FAKE_TORCH)
    distribution(tmp_path, "cupy-cuda12x", "1.0", {"cupy/__init__.py": AT_HOME.format(told=str(told))})
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    image = probed(tmp_path, HOME=str(home), TMPDIR=str(temporary))
    assert image.torch_import.need("ending") == "done"
    assert found(image)["cupy-cuda12x"].ended == "done"
    seen, base = told.read_text().split()
    assert base == os.environ.get("PYTHONUSERBASE", f"{home}/.local")
    assert (seen == str(home)) == writable
    assert seen.startswith(str(home if writable else temporary))
    assert list(temporary.iterdir()) == []  # it is gone
    assert not writable or [one.name for one in home.iterdir()] == [".x"]
