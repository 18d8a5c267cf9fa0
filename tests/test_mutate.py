"""scripts/mutate: what a test notices is killed, what none notices is shown, and the tree itself stays as it is."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from clocks import comes

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "mutate"
MUTATE = """
import importlib.machinery, importlib.util, pathlib, sys
loader = importlib.machinery.SourceFileLoader("mutate", sys.argv.pop(1))
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
sys.modules["mutate"] = module
loader.exec_module(module)
module.CPU_S = 2
sys.exit(module.main(pathlib.Path.cwd(), "toy", ("run.py",)))
"""
TOY = {
    "pyproject.toml": "[tool.mypy]\nfiles = ['toy']\n",
    # What scripts/unit is for envkit, without the seconds that it needs to import all of it.
    "run.py": """
import runpy, sys
files, _, options = " ".join(sys.argv[1:]).partition(" -- ")
for file in files.split():
    for name, test in runpy.run_path(file).items():
        if name.startswith("test") and f"--deselect={file}::{name}" not in options.split():
            try: test()
            except Exception as error: sys.exit(f"FAILED {file}::{name}: {error!r}")
""",
    "toy/__init__.py": "",
    "toy/rule/__init__.py": "",
    "toy/rule/age.py": "def grown(age):\n    return age >= len('eighteen letters..')\n",
    "toy/unseen.py": "def odd(number: int) -> bool:\n    return number in (one,)\none = len('1')\n",
    "toy/half.py": "def pair(number):\n    return number in (two,)\ntwo = len('12')\n",
    "toy/wait.py": "def down(number):\n    while number:\n        if number:\n            number = min(number, 0)\n",
    "tests/test_rule.py": "from toy.rule import age\ndef test(): assert age.grown(18) and not age.grown(17)\n",
    "tests/test_unseen.py": "from toy import unseen\ndef test(): unseen.odd(1)\n",
    "tests/test_wait.py": "import toy.wait\ndef test(): toy.wait.down(3)\n",
    "tests/test_half.py": "from toy import half\ndef test_red(): assert half.pair(5)\n"
    "def test_sound(): assert half.pair(2) and not half.pair(1)\n",
    "tests/test_red.py": "from toy import unseen\ndef test(): assert unseen.odd(2)\n",
}


@pytest.fixture(scope="module")
def mutate() -> ModuleType:
    loader = SourceFileLoader("mutate", str(SCRIPT))
    spec = spec_from_loader("mutate", loader)
    assert spec
    module = module_from_spec(spec)
    sys.modules["mutate"] = module  # where its dataclass looks itself up
    loader.exec_module(module)
    return module


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    for name, text in TOY.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path / "tree"], check=True)
    return tmp_path / "tree"


def run(toy: Path, *words: str) -> subprocess.Popen[str]:
    """The script over the toy tree, its copies beside that."""
    (toy.parent / "copies").mkdir()
    env = {**os.environ, "TMPDIR": str(toy.parent / "copies")}
    return subprocess.Popen(
        [sys.executable, "-c", MUTATE, SCRIPT, "-j", "1", *words],
        cwd=toy,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.nightly
@pytest.mark.slow  # starts a Python for each mutant
def test_what_no_test_notices_survives_and_the_rest_is_killed(toy: Path) -> None:
    with run(toy, "--seed", "1", "--count", "50") as process:
        said = process.communicate()[0]
    assert process.returncode == 0, said
    assert "toy/rule/age.py:2 [comparison] killed by tests/test_rule.py" in said
    assert "toy/rule/age.py:2 [return None] killed by tests/test_rule.py" in said
    survivor = (
        "toy/unseen.py:2 [comparison] SURVIVED\n    - return number in (one,)\n    + return number not in (one,)\n"
    )
    assert survivor in said
    assert "toy/unseen.py:2 [return None] killed by mypy" in said
    assert "toy/wait.py:3 [if False] killed: hung" in said
    assert "tests/test_red.py::test fails without a mutant as well and was left out" in said
    assert "tests/test_half.py::test_red fails without a mutant as well and was left out" in said
    assert "toy/half.py:2 [return None] killed by tests/test_half.py" in said  # by the other test of that file
    rows = [line.split() for line in said[said.index("room ") :].splitlines()[1:]]
    assert [row for row in rows if row[0] == "rule"] == [["rule", "2", "2", "0", "0", "0%"]]
    assert {name: (toy / name).read_text() for name in TOY} == TOY
    assert not list((toy.parent / "copies").iterdir())


def test_a_stop_takes_the_copies_away(toy: Path) -> None:
    (toy / "tests" / "test_wait.py").write_text(
        "import toy.wait, time, pathlib\n"
        f"def test():\n    pathlib.Path({str(toy)!r}, 'begun').touch()\n    time.sleep(600)\n"
    )
    with run(toy, "--seed", "1", "--count", "9", "--room", "wait") as process:
        assert comes((toy / "begun").exists)
        process.terminate()
        said = process.communicate()[0]
    assert process.returncode == 130, said
    assert not list((toy.parent / "copies").iterdir())


@pytest.mark.nightly
@pytest.mark.slow  # draws from all of envkit
def test_the_same_seed_draws_the_same_mutants_from_every_room(mutate: ModuleType) -> None:
    drawn = mutate.draw(ROOT, "envkit", 5, 60)
    assert drawn == mutate.draw(ROOT, "envkit", 5, 60)
    assert drawn != mutate.draw(ROOT, "envkit", 6, 60)
    rooms = Counter(mutant.room for mutant in drawn)
    have = {name.removesuffix(".py") for name in os.listdir(ROOT / "envkit") if (ROOT / "envkit" / name).is_dir()}
    assert rooms.keys() >= have - {"kb", "__pycache__"}
    assert rooms["payload"] > rooms["engine"] > 0
    assert len({mutant.kind for mutant in drawn}) == 9


@pytest.mark.nightly
@pytest.mark.slow  # parses all of envkit
def test_each_change_leaves_python_and_changes_it(mutate: ModuleType) -> None:
    dice = random.Random(1)
    for path in dice.sample(sorted((ROOT / "envkit").rglob("*.py")), 12):
        source = path.read_bytes()
        for mutant in mutate.mutants(ROOT, path.relative_to(ROOT).as_posix()):
            changed = mutant.applied(source)
            assert changed != source, mutant
            compile(changed, path, "exec")


@pytest.mark.nightly
@pytest.mark.slow  # starts a Python for each mutant
def test_a_mutant_meets_the_tests_of_its_module_then_of_its_room(mutate: ModuleType) -> None:
    def of(file: str) -> list[str]:
        return list(mutate.tests_of(ROOT, mutate.Mutant(file, 1, "bool", 0, 1, "")))

    assert of("envkit/dockerfile/words.py")[0] == "tests/test_dockerfile_words.py"
    assert "tests/test_dockerfile_uv.py" in of("envkit/dockerfile/words.py")[1:]
    assert "tests/test_pages.py" in of("envkit/judging/checks/host_memory.py")
    assert "tests/test_debug.py" in of("envkit/payload/companion/envkit_supervisor.py")
    assert "tests/test_cli.py" in of("envkit/__main__.py")


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("smoke/libraries/einsum.py", {"test_payload_smoke.py", "test_smoke_compared.py", "test_smoke_libraries.py"}),
        ("smoke/several_gpus/fsdp.py", {"test_payload_smoke.py", "test_smoke_compared.py"}),
        ("placement/pretend.py", {"test_placement.py"}),
        ("precision/watch.py", {"test_precision.py"}),
        ("aoti/crash.py", {"test_aoti.py"}),
        ("probe/child.py", {"test_payload_probe.py"}),
    ],
)
def test_a_part_of_the_payload_first_meets_the_tests_that_run_it_in_a_child(
    mutate: ModuleType, file: str, tests: set[str]
) -> None:
    mutant = mutate.Mutant(f"envkit/payload/{file}", 1, "bool", 0, 1, "")
    first = [name.removeprefix("tests/") for name in mutate.tests_of(ROOT, mutant)][:20]
    assert tests <= set(first)
    assert "test_payload_old_python.py" not in first[: len(tests)]  # one of the payload's that imports none of it


@pytest.mark.parametrize("python", ["", sys.executable])
def test_slow_tests_count_where_there_is_a_torch_and_beside_the_pages_of_checks(
    mutate: ModuleType, toy: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENVKIT_TORCH_PYTHON", python)
    (toy / "options.py").write_text(
        "import sys\nsys.exit(0 if 'not engine and not faults' in sys.argv else 'FAILED t.py')\n"
    )
    (toy.parent / "copy").mkdir()
    copy = mutate.Copy(toy, toy.parent / "copy", ("options.py",), threading.Event())
    assert copy.first_failure(["tests/test_rule.py"]) == ("" if python else "t.py")
    assert copy.first_failure(["tests/test_rule.py", "tests/test_pages.py"]) == ""
