"""The house rules that a machine can hold: who imports whom, and what stays out of code and repository.

Each rule is a function from source to complaints, and each is shown a source that breaks it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Container, Iterator
from functools import cache
from pathlib import Path

import pytest

import envkit
from envkit.system.proc import run

PACKAGE = Path(envkit.__file__).parent
ROOT = PACKAGE.parent
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
PAYLOAD = "envkit.payload"


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@cache
def tree(source: str) -> ast.Module:
    """The syntax tree of a module, which several rules walk."""
    return ast.parse(source)


@cache
def parts(source: str) -> tuple[ast.AST, ...]:
    """The parts of a module that the rules look at, for walking the whole tree is most of their time."""
    kinds = (ast.Import, ast.ImportFrom, ast.ExceptHandler, ast.Call)
    return tuple(node for node in ast.walk(tree(source)) if isinstance(node, kinds))


def imports(module: str, source: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, wherever it stands; ``from a import b`` is a and a.b."""
    package = module if SOURCES.get(module, Path(module)).name == "__init__.py" else module.rpartition(".")[0]
    for node in parts(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            names = package.split(".")
            above = ".".join(names[: len(names) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            yield node.lineno, base
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


# The rooms of envkit/ in one order: a room may import those of earlier rows alone.
FLOORS = (
    ("patterns", "records"),
    ("errors", "model", "payload", "versions"),
    ("credentials",),
    ("facts", "system"),
    ("engine", "logs", "subjects"),
    ("dockerfile", "host", "image"),
    ("judging", "plan"),
    ("placement", "report", "runner"),
    ("build", "doctor", "static"),
    ("diff", "explain", "fleet", "launch"),
    ("debug",),
    ("cli",),
    ("__main__",),
)
FLOOR = {f"envkit.{room}": number for number, row in enumerate(FLOORS) for room in row}
# The same inside rooms whose modules build on one another.
STEPS = {
    "judging": (
        ("doubts", "throughput", "nvidia_require", "variables"),
        ("checks",),
        ("required",),
        ("judge",),
        ("pages",),
    ),
    "plan": (
        ("given", "indexes", "sdist"),
        ("uv_project",),
        ("inputs", "image_table", "project_tree"),
        ("package",),
        ("spec", "shipped"),
        ("lockfile", "flavors", "edit", "request"),
        ("apt", "derive", "refusal", "sources"),
        ("resolve", "project"),
        ("together",),
        ("cpu", "uv_failure"),
        ("wheels",),
        ("dry_run", "solve"),
        ("compiled",),
        ("update", "requires", "pushed", "licences"),
    ),
    "build": (
        ("flags", "inside", "possible", "render", "yaml_text"),
        ("task", "draft", "bill"),
        ("exporters",),
        ("schedulers",),
        ("up",),
        ("vendor",),
    ),
    "diff": (("compare",), ("hosts", "render"), ("diff",)),
    "fleet": (
        ("apiserver", "evidence", "hostlist"),
        ("documents", "launchers", "links"),
        ("fingerprint", "floors", "folder", "frames", "pods"),
        ("trials",),
        ("gather", "node"),
        ("verdict",),
        ("acting", "answers", "contracts", "rounds"),
        ("marks", "start"),
    ),
}
STEP = [
    {f"envkit.{room}.{module}": number for number, row in enumerate(rows) for module in row}
    for room, rows in STEPS.items()
]
ORDERS = (FLOOR, *STEP)
# Observers decide nothing, and the packages that hold no opinion do not know those that do.
OBSERVERS = ("envkit.engine", "envkit.host", "envkit.image", "envkit.system.proc")
JUDGES = ("envkit.judging.checks", "envkit.judging.judge", "envkit.report", "envkit.cli")
# What is a function of its arguments reaches the world through nobody.
PURE = (
    "envkit.dockerfile", "envkit.facts", "envkit.judging", "envkit.logs", "envkit.subjects",
    "envkit.plan.spec", "envkit.plan.lockfile", "envkit.plan.flavors", "envkit.plan.resolve",
    "envkit.plan.request", "envkit.plan.refusal",
    "envkit.build.flags", "envkit.build.render", "envkit.build.exporters", "envkit.build.schedulers",
    "envkit.build.bill",
    "envkit.diff.compare", "envkit.diff.render", "envkit.image.tar", "envkit.fleet.evidence", "envkit.fleet.links",
)  # fmt: skip


@cache
def holders(module: str) -> tuple[str, ...]:
    """A module and the packages that it is in."""
    names = module.split(".")
    return tuple(".".join(names[:end]) for end in range(len(names), 0, -1))


def of(module: str, packages: Container[str]) -> str | None:
    """The one of ``packages`` that a module is in."""
    return next((package for package in holders(module) if package in packages), None)


@cache
def upward(module: str, name: str) -> bool:
    """Whether an import goes to the same or a later row of an order that both stand in."""
    for ranks in ORDERS:
        mine, theirs = of(module, ranks), of(name, ranks)
        if mine and theirs and mine != theirs and ranks[theirs] >= ranks[mine]:
            return True
    return False


def against_the_direction(module: str, source: str) -> list[str]:
    """Imports of a later or the same row, of judges by observers, and of observers by what is pure."""
    complaints = []
    for line, name in imports(module, source):
        opinion = of(module, OBSERVERS) and of(name, JUDGES)
        touching = of(module, PURE) and of(name, OBSERVERS)
        if upward(module, name) or opinion or touching:
            complaints.append(f"{module}:{line} imports {name}")
    return complaints


OWNERS = {
    "docker": ("envkit.engine",),
    "pynvml": ("envkit.host.nvml",),
    "subprocess": ("envkit.system.proc", "envkit.system.attended", PAYLOAD),
}


def outside_their_place(module: str, source: str) -> list[str]:
    """Imports of a library by any module but the one that owns it."""
    return [
        f"{module}:{line} imports {name}"
        for line, name in imports(module, source)
        for library, owners in OWNERS.items()
        if is_in(name, library) and not any(is_in(module, owner) for owner in owners)
    ]


# Modules and methods that came after Python 3.8, which the compiler cannot see.
YOUNG_MODULES = {"graphlib", "tomllib", "zoneinfo"}
YOUNG_NAMES = {
    "removeprefix", "removesuffix", "bit_count", "is_relative_to", "hardlink_to", "to_thread", "randbytes",
    "pairwise", "batched", "nextafter", "ulp", "lcm", "waitstatus_to_exitcode", "pidfd_open", "StrEnum",
}  # fmt: skip
YOUNG_ARGUMENTS = {"zip": {"strict"}, "dataclass": {"slots", "kw_only"}, "Popen": {"process_group"}}
IN_THE_CHILD = ("torch", "triton")  # what an image is asked about; imported inside functions only


def named(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that an import in the payload names; a relative one stays within."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [PAYLOAD if node.level else node.module or ""]


def unfit_for_the_payload(module: str, source: str) -> list[str]:
    """What keeps a payload module from running on a bare Python 3.8."""
    complaints = []
    try:
        tree = ast.parse(source, feature_version=(3, 8))
    except SyntaxError as error:
        return [f"{module}:{error.lineno} is no Python 3.8: {error.msg}"]
    lazy = {
        node
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in named(node):
                top = name.split(".")[0]
                standard = top in sys.stdlib_module_names and top not in YOUNG_MODULES
                asked = top in IN_THE_CHILD and node in lazy
                if not (standard or asked or is_in(name, PAYLOAD)):
                    complaints.append(f"{module}:{node.lineno} imports {name}")
        torchs = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in IN_THE_CHILD
        if isinstance(node, ast.Attribute) and node.attr in YOUNG_NAMES and not torchs:
            complaints.append(f"{module}:{node.lineno} uses .{node.attr}")
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            young = YOUNG_ARGUMENTS.get(called, set()) & {each.arg for each in node.keywords}
            complaints += [f"{module}:{node.lineno} passes {name} to {called}" for name in sorted(young)]
    postpones = "annotations" in {
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    older = module == f"{PAYLOAD}.begin"  # tells a Python that is too old so, hence is read by it
    if any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree)) and not postpones and not older:
        complaints.append(f"{module}:1 does not postpone its annotations")
    return complaints


# Texts and comments only: 12.5 may be a budget in seconds, "12.5" is somebody's release.
VERSIONS = re.compile(
    r"(?<![\w.+-])(?:"
    r"[3-6][0-9]{2}\.[0-9]{2,3}(?:\.[0-9]{1,3})?"  # a driver
    r"|(?:1\.1[0-3]|2\.[0-9]{1,2})\.[0-9]{1,2}(?:\+\w+)?"  # a torch
    r"|(?:9|1[0-3])\.[0-9]{1,2}(?:\.[0-9]{1,3})?"  # a CUDA
    r")(?!\w)(?!\.\w)"
    r"|\btorch[ =<>~!`]*[12]\.[0-9]"
    r"|[\"'`]2\.[0-9]{1,2}[\"'`]"  # a torch by its first two numbers, as a user types it
    r"|\bcu(?:9|1[0-9])[0-9]\b",
)


# Numbers that only look like a release of torch.
OTHER_VERSIONS = {("envkit.static.sarif", "2.1.0")}


def names_a_version(module: str, source: str) -> list[str]:
    """Version numbers of torch, CUDA or a driver in texts and comments; facts are rows."""
    if not VERSIONS.search(source):  # nothing does in any of its tokens: a text and a comment begin with their own mark
        return []
    code = (tokenize.NUMBER, tokenize.NAME, tokenize.OP)
    return [
        f"{module}:{token.start[0]} names {found[0]}"
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in code
        for found in VERSIONS.finditer(token.string)
        if (module, found[0]) not in OTHER_VERSIONS
    ]


# A dying check is a result; a dying command is exit 70; proc hands on what a reader's thread raised.
LAST_RESORTS = ("envkit.judging.judge", "envkit.cli.ending", "envkit.system.proc", "envkit.report.page")


def is_unsafe(module: str, source: str) -> list[str]:
    """Shells, and handlers that swallow everything where nobody may."""
    complaints = []
    for node in parts(source):
        if isinstance(node, ast.ExceptHandler):
            caught = "BaseException" if node.type is None else ast.unparse(node.type)
            broad = re.search(r"\b(Base)?Exception\b", caught)
            reraised = any(isinstance(each, ast.Raise) and each.exc is None for each in ast.walk(node))
            if broad and not reraised and module not in LAST_RESORTS and not is_in(module, PAYLOAD):
                complaints.append(f"{module}:{node.lineno} catches {caught}")
        if isinstance(node, ast.Call):
            if any(each.arg == "shell" for each in node.keywords):
                complaints.append(f"{module}:{node.lineno} passes shell=")
            if ast.unparse(node.func) in ("os.system", "os.popen", "eval", "exec"):
                complaints.append(f"{module}:{node.lineno} calls {ast.unparse(node.func)}")
    return complaints


CLOCKS = {"monotonic", "perf_counter", "time"}


def measures_by_the_clock(module: str, source: str) -> list[str]:
    """Bounds of the wall clock, and ends so soon that a loaded machine meets them; tests/clocks.py has better."""
    if not re.search("timeout|" + "|".join(rf"\b{name}\b" for name in CLOCKS), source):
        return []  # to parse every test takes seconds
    complaints = []
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.Assert):
            bounds = [
                each
                for each in ast.walk(node)
                if isinstance(each, ast.Compare) and isinstance(each.ops[-1], ast.Lt | ast.LtE)
            ]
            taken = [each for one in bounds for each in ast.walk(one) if isinstance(each, ast.BinOp)]
            calls = [each.func for one in taken for each in ast.walk(one) if isinstance(each, ast.Call)]
            if CLOCKS & {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}:
                complaints.append(f"{module}:{node.lineno} bounds the time of the clock")
        given = node.value if isinstance(node, ast.keyword) and node.arg == "timeout" else None
        if isinstance(given, ast.Constant) and given.value is not None and given.value < 60:
            complaints.append(f"{module}:{given.lineno} gives {given.value} s to what a loaded machine does")
    return complaints


# Texts for people. What a rule depends on is a state, a reason or a field.
SENTENCES = {"missing", "via", "message"}
CALLS_ON = {"startswith", "endswith", "partition", "rpartition", "find", "index", "count"}
CALLS_WITH = {"match", "fullmatch", "search", "findall", "finditer"}
# What a log says is the program's own text, which only patterns can read.
READS_TEXTS = "envkit.logs"


def is_sentence(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def is_text(node: ast.AST) -> bool:
    """Whether a part is text that the code states: a constant that says something, or the name of one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value != ""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.isupper() or isinstance(node, ast.JoinedStr)


def decides_by_a_sentence(module: str, source: str) -> list[str]:
    """Comparisons of what is worded for a person with a text: to word it again would change a verdict."""
    if is_in(module, READS_TEXTS) or not re.search(rf"\.({'|'.join(SENTENCES)})\b", source):
        return []
    complaints = []
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            sides += [each for side in sides if isinstance(side, ast.Tuple | ast.List | ast.Set) for each in side.elts]
            if any(map(is_sentence, sides)) and any(map(is_text, sides)):
                complaints.append(f"{module}:{node.lineno} compares {ast.unparse(node)}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on = node.func.attr in CALLS_ON and is_sentence(node.func.value)
            parts_given = [each for one in node.args for each in ast.walk(one)]
            if on or (node.func.attr in CALLS_WITH and any(map(is_sentence, parts_given))):
                complaints.append(f"{module}:{node.lineno} calls {ast.unparse(node)}")
        elif isinstance(node, ast.Match) and is_sentence(node.subject):
            complaints.append(f"{module}:{node.lineno} matches {ast.unparse(node.subject)}")
    return complaints


# A group, perhaps one that captures nothing, and behind it a possessive repeat. A class may hold the same characters.
POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+")
CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def repeats_a_group_possessively(module: str, source: str) -> list[str]:
    """Possessive repeats of groups: before Python 3.11.5 they match wrongly (python/cpython#106052).
    Those of a single character or class are sound."""
    if not re.search(r"\)(?:[*+?]|\{.*\})\+", source):
        return []
    return [
        f"{module}:{node.lineno} repeats a group possessively: {node.value!r}"
        for node in ast.walk(tree(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if POSSESSIVE_GROUP.search(CLASS.sub("x", node.value))
    ]


EVERYWHERE: tuple[Callable[[str, str], list[str]], ...] = (
    against_the_direction,
    outside_their_place,
    names_a_version,
    is_unsafe,
    decides_by_a_sentence,
    repeats_a_group_possessively,
)


@pytest.mark.parametrize("rule", EVERYWHERE, ids=lambda rule: rule.__name__)
def test_the_product_keeps(rule: Callable[[str, str], list[str]]) -> None:
    assert SOURCES
    assert [each for name, path in SOURCES.items() for each in rule(name, path.read_text("utf-8"))] == []


def test_no_test_measures_by_the_clock() -> None:
    folder = Path(__file__).parent
    files = [path for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] not in ("debug", "data")]
    assert len(files) > 100
    rule = measures_by_the_clock
    found = [each for path in files if path.name != "clocks.py" for each in rule(path.name, path.read_text("utf-8"))]
    assert found == []


def test_the_payload_runs_on_a_bare_python() -> None:
    mine = {name: path for name, path in SOURCES.items() if is_in(name, PAYLOAD)}
    assert mine
    rule = unfit_for_the_payload
    assert [each for name, path in mine.items() for each in rule(name, path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("rule", "module", "source"),
    [
        (against_the_direction, "envkit.model", "from envkit.facts import Facts"),
        (against_the_direction, "envkit.judging.checks.image", "def f():\n    import envkit.judging.judge"),
        (against_the_direction, "envkit.subjects.image", "from ..judging.checks import image"),
        (against_the_direction, "envkit.report.json", "from envkit import cli"),
        (against_the_direction, "envkit.host.nvml", "from envkit.judging.judge import judge"),
        (against_the_direction, "envkit.build.up", "from envkit.cli import main"),
        (against_the_direction, "envkit.judging.checks.host_gpu", "from envkit.system import proc"),
        (against_the_direction, "envkit.judging.judge", "from envkit.static.kinds import kind_of"),
        (against_the_direction, "envkit.judging.checks.image", "from envkit.judging import judge"),
        (against_the_direction, "envkit.engine.docker", "from envkit.plan.spec import Spec"),
        (against_the_direction, "envkit.plan.flavors", "from envkit.plan.resolve import Choice"),
        (against_the_direction, "envkit.plan.resolve", "from envkit.plan import solve"),
        (against_the_direction, "envkit.plan.resolve", "from envkit.engine.docker import DockerEngine"),
        (against_the_direction, "envkit.plan.apt", "from envkit.plan.solve import lock"),
        (against_the_direction, "envkit.image.tar", "from envkit.plan.lockfile import Lock"),
        (against_the_direction, "envkit.image.tar", "from envkit.system import proc"),
        (against_the_direction, "envkit.diff.compare", "from envkit.diff.diff import changes"),
        (against_the_direction, "envkit.diff.compare", "from envkit.engine import Engine"),
        (against_the_direction, "envkit.build.exporters", "from envkit.build.up import build"),
        (against_the_direction, "envkit.build.up", "from envkit.build import vendor"),
        (against_the_direction, "envkit.build.vendor", "from envkit.diff import diff"),
        (against_the_direction, "envkit.engine.buildx", "from envkit.build.up import build"),
        (outside_their_place, "envkit.host.docker", "import docker.errors"),
        (outside_their_place, "envkit.host.observe", "from pynvml import nvmlInit"),
        (outside_their_place, "envkit.build.up", "def f():\n    from subprocess import run"),
        (unfit_for_the_payload, "envkit.payload.main", "import torch"),
        (unfit_for_the_payload, "envkit.payload.main", "def f():\n    import numpy"),
        (unfit_for_the_payload, "envkit.payload.main", "from envkit.model import Observed"),
        (unfit_for_the_payload, "envkit.payload.main", "import tomllib"),
        (unfit_for_the_payload, "envkit.payload.main", "match 1:\n    case 1: pass"),
        (unfit_for_the_payload, "envkit.payload.main", "'a'.removeprefix('b')"),
        (unfit_for_the_payload, "envkit.payload.main", "zip((), strict=True)"),
        (unfit_for_the_payload, "envkit.payload.main", "def f(x: int | None): pass"),
        (names_a_version, "envkit.build.up", "# as in 12.4"),
        (names_a_version, "envkit.build.up", "x = 'torch 2.6'"),
        (names_a_version, "envkit.build.up", "x = '2.6'"),
        (names_a_version, "envkit.build.up", "x = 'needs 550.54.14.'"),
        (names_a_version, "envkit.build.up", "x = f'{1} 2.6.0+cu124'"),
        (names_a_version, "envkit.build.up", "x = 'whl/cu118'"),
        (names_a_version, "envkit.build.up", '"""Since 535.104 ..."""'),
        (measures_by_the_clock, "test_x", "assert time.monotonic() - begun < 5"),
        (measures_by_the_clock, "test_x", "assert 2 < perf_counter() - begun <= 5 * factor"),
        (measures_by_the_clock, "test_x", "run(command, timeout=20)"),
        (is_unsafe, "envkit.build.up", "try: pass\nexcept Exception: pass"),
        (is_unsafe, "envkit.build.up", "try: pass\nexcept: pass"),
        (is_unsafe, "envkit.build.up", "run('ls', shell=True)"),
        (is_unsafe, "envkit.build.up", "import os\nos.system('ls')"),
        (decides_by_a_sentence, "envkit.build.up", "seen.missing == 'not supported'"),
        (decides_by_a_sentence, "envkit.build.up", "'' != host.numa.missing != 'no file'"),
        (decides_by_a_sentence, "envkit.build.up", "audit.torch.missing == NO_TORCH"),
        (decides_by_a_sentence, "envkit.build.up", "audit.torch.missing != image.NO_TORCH"),
        (decides_by_a_sentence, "envkit.build.up", "seen.missing == f'no {name}'"),
        (decides_by_a_sentence, "envkit.build.up", "NO_TORCH in (one.missing, other.missing)"),
        (decides_by_a_sentence, "envkit.build.up", "seen.missing not in ('', 'not supported')"),
        (decides_by_a_sentence, "envkit.build.up", "'ROCm' in base.cuda.via"),
        (decides_by_a_sentence, "envkit.build.up", "error.message.startswith('no ')"),
        (decides_by_a_sentence, "envkit.build.up", "via, _, near = base.exists.via.partition(NEAREST)"),
        (decides_by_a_sentence, "envkit.build.up", "_HUNG.match(seen.missing)"),
        (decides_by_a_sentence, "envkit.build.up", "re.search('hung', f'{one.kind}: {one.message}')"),
        (decides_by_a_sentence, "envkit.build.up", "match seen.via:\n    case 'PATH': pass"),
        (repeats_a_group_possessively, "envkit.build.up", "re.compile(r'(?:a|b)*+')"),
        (repeats_a_group_possessively, "envkit.build.up", "re.compile(rf'(?:{x}|b){{1,2}}+')"),
        (repeats_a_group_possessively, "envkit.build.up", "re.compile(r'[x](?:a)?+[y]')"),
    ],
)
def test_a_breach_is_seen(rule: Callable[[str, str], list[str]], module: str, source: str) -> None:
    assert rule(module, source + "\n")


@pytest.mark.parametrize(
    ("rule", "module", "source"),
    [
        (against_the_direction, "envkit.judging.checks.image", "from envkit.facts import Facts\nfrom . import host"),
        (against_the_direction, "envkit.plan.apt", "from envkit.engine import debian\nfrom envkit.system import proc"),
        (against_the_direction, "envkit.diff.diff", "from envkit.build import up\nfrom envkit.diff import hosts"),
        (outside_their_place, "envkit.engine.docker", "import docker"),
        (unfit_for_the_payload, "envkit.payload.smoke.gemm", "import os\nfrom envkit.payload import isolate"),
        (names_a_version, "envkit.build.up", "x = 12.4  # seconds; RFC 3986, glibc 2.17, 127.0.0.1, cu12"),
        (measures_by_the_clock, "test_x", "assert time.monotonic() - begun >= 2 and process_time() - before < 1"),
        (measures_by_the_clock, "test_x", "run(command, timeout=120)"),
        (is_unsafe, "envkit.build.up", "try: pass\nexcept BaseException:\n    raise"),
        (
            decides_by_a_sentence,
            "envkit.build.up",
            "one.missing != ''\none.missing == two.missing\nname in lock.missing",
        ),
        (decides_by_a_sentence, "envkit.build.up", "seen.reason is Reason.NO_TORCH\nseen.missing.removeprefix('x: ')"),
        (decides_by_a_sentence, "envkit.logs.hang", "_TIMED_OUT.search(trace.message)"),
        (repeats_a_group_possessively, "envkit.build.up", r"re.compile(r'[()*+,]++ (?:a)+ \)*+ (?>b*)')"),
    ],
)
def test_what_is_allowed_is_not_complained_of(rule: Callable[[str, str], list[str]], module: str, source: str) -> None:
    assert rule(module, source + "\n") == []


# Put together here, for this file is searched as well.
HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("pythonhosted", "org"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("snapshot", "debian", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
    )
)
LOCAL_PATHS = (("", "work", "main"), ("", "work", "shared"), ("..", "shared", ""))
OF_THIS_MACHINE = tuple("/".join(parts) for parts in LOCAL_PATHS)


def strays(text: str) -> list[str]:
    """Host names of package registries and paths of one machine."""
    return [each for each in (*HOSTS, *OF_THIS_MACHINE) if each in text]


def test_no_file_names_a_package_registry_or_one_machine() -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "-x", "__pycache__"]
    listed = run(command, timeout_s=60, cwd=ROOT)
    if listed.exit:
        pytest.skip(f"the files of the repository are not known: {listed.stderr.strip()}")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert PACKAGE / "model.py" in paths
    texts = ((path, path.read_bytes().decode("utf-8", "replace")) for path in paths if path.is_file())
    assert [f"{path.relative_to(ROOT)}: {each}" for path, text in texts for each in strays(text)] == []


@pytest.mark.parametrize("name", [*HOSTS, *OF_THIS_MACHINE])
def test_a_stray_name_is_seen(name: str) -> None:
    assert strays(f"see https://{name}/simple") != []


def test_every_room_stands_on_a_floor() -> None:
    rooms = {name for name in SOURCES if name.count(".") == 1}
    assert rooms == set(FLOOR)


def test_the_top_of_the_package_stays_small() -> None:
    top = [name for name in SOURCES if name.count(".") <= 1 and SOURCES[name].parent.name == "envkit"]
    assert len(top) <= 9, top


@pytest.mark.parametrize("room", STEPS)
def test_the_modules_of_an_ordered_room_are_all_in_its_order(room: str) -> None:
    inside = {name.split(".")[2] for name in SOURCES if name.startswith(f"envkit.{room}.")}
    assert inside == {module for row in STEPS[room] for module in row}


def test_no_file_is_longer_than_a_person_reads() -> None:
    """900 lines: beyond that a module has two subjects."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    long = {path: length for path, length in lengths.items() if length > 900}
    assert not long
