"""scripts/unit: what fails is shown and counted, whatever way it fails, and it ends with all it began."""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
from clocks import comes

UNIT = Path(__file__).resolve().parents[1] / "scripts" / "unit"
FILES = {
    "test_right.py": "def test_a(): pass\ndef test_b(): pass\n",
    "test_wrong.py": "def test_a(): pass\ndef test_b():\n    left = 6\n    assert left == 7\n",
    "test_no_python.py": "def\n",
    "test_empty.py": "",
    "test_dies.py": "import os\ndef test_a(): os.kill(os.getpid(), 9)\n",
    "test_leaves.py": "import os\ndef test_a(): os._exit(0)\n",
    "test_cleans.py": "import pytest\n@pytest.fixture\ndef f():\n  yield\n  raise OSError('late')\ndef test(f): ...\n",
    "test_left_out.py": "import pytest\n@pytest.mark.slow\ndef test_a(): assert False\n",
    "test_skipped.py": "import pytest\npytest.skip('not here', allow_module_level=True)\n",
}


def begin(output: Path, *words: object) -> int:
    """The script in a fork of this process, which has imported most of what it imports first."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            for number in (1, 2):
                os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            sys.stdout = os.fdopen(1, "w", 1)
            sys.stderr = os.fdopen(2, "w", 1)
            sys.argv = [str(UNIT), *map(str, words)]
            loader = SourceFileLoader("unit", str(UNIT))
            module = module_from_spec(spec_from_loader("unit", loader))
            sys.modules["unit"] = module  # where its dataclass looks itself up
            loader.exec_module(module)
            code = module.main()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.slow  # each starts the script, which imports all of envkit
def test_every_way_to_fail_is_a_failure_with_its_name(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    paths = [tmp_path / name for name in FILES]
    assert ended(begin(tmp_path / "said", "-j", 3, *paths)) == 1
    said = (tmp_path / "said").read_text()
    failed = [line for line in said.splitlines() if line.startswith("FAILED ")]
    wrong = ["cleans", "dies", "empty", "leaves", "no_python", "wrong"]
    assert sorted(re.findall(r"test_(\w+)\.py", line)[-1] for line in failed) == wrong, said
    assert "assert 6 == 7" in said
    assert "OSError: late" in said
    assert "SyntaxError" in said
    assert "was ended by SIGKILL" in said
    assert re.match(r"3 failed, 4 passed, 1 skipped, 1 left out in .* 9 files, 3 at once", said.splitlines()[-1]), said


@pytest.mark.slow  # each starts the script, which imports all of envkit
def test_what_is_right_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_right.py").write_text(FILES["test_right.py"])
    assert ended(begin(tmp_path / "said", "-j", 1, tmp_path / "test_right.py")) == 0
    assert re.fullmatch(r"2 passed in .* s: 1 files, 1 at once\n", (tmp_path / "said").read_text())


@pytest.mark.slow  # each starts the script, which imports all of envkit
def test_nothing_that_runs_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "test_left_out.py").write_text(FILES["test_left_out.py"])
    assert ended(begin(tmp_path / "said", tmp_path / "test_left_out.py")) == 1


@pytest.mark.slow  # each starts the script, which imports all of envkit
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_all_that_runs(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "test_long.py").write_text(
        "import os, pathlib, subprocess, time\n"
        "def test_a():\n"
        "    with subprocess.Popen(['sleep', '60']) as child:\n"
        "        pathlib.Path(__file__).with_name('pids').write_text(f'{os.getpid()} {child.pid} ')\n"
        "        try:\n"
        "            time.sleep(60)\n"
        "        finally:\n"
        "            child.kill()\n"
    )
    pid = begin(tmp_path / "said", tmp_path / "test_long.py")
    told = tmp_path / "pids"
    assert comes(lambda: told.exists() and told.read_text())
    os.kill(pid, number)
    assert ended(pid) == 130
    assert not [each for each in told.read_text().split() if os.path.exists(f"/proc/{each}")]
