"""Trees that a stranger wrote: whatever envkit is asked about them, nothing of them is run, and nothing grows or waits.

Each trap makes a canary file if any program obeys it.  That the traps of git work is shown with git itself.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from forked import envkit
from index import Index, Publish

from envkit.engine import BuildRequest
from envkit.engine.local import LocalEngine
from envkit.errors import UsageError
from envkit.system.files import beside

LOCK = ("lock", "--engine", "none", "--allow-unpinned", "os", "--allow-unpinned", "base")  # asks for wheels alone
DOCKERFILE = "FROM ubuntu:24.04\nRUN pip install torch==2.6.0\n"
SPEC = 'torch = "2.6.0"\npython = "3.11"\n'
COMPOSE = "services:\n  a:\n    image: ubuntu:24.04\n    build: .\n"


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=60)


class Canary:
    """A program that leaves its mark; it is named by what it would prove."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "canary"
        self.program = folder / "trap"
        self.program.write_text(f"#!/bin/sh\necho ran >> {self.mark}\ncat\n")
        self.program.chmod(0o755)

    def sings(self) -> bool:
        return self.mark.exists()


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return lay(
        tmp_path / "tree",
        {
            "Dockerfile": DOCKERFILE,
            "requirements.txt": "torch==2.6.0\n",
            "compose.yaml": COMPOSE,
            "sub/Dockerfile": DOCKERFILE,
        },
    )


def quiet(env: dict[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, **(env or {})}


VERBS: tuple[tuple[str, ...], ...] = (
    ("check",),
    ("check", "."),
    ("check", "sub"),
    ("check", "--diff"),
    ("check", "--fix"),
    ("check", "Dockerfile", "compose.yaml"),
    ("check", "--allow-no-files", "."),
    ("audit", "."),
    ("explain", "Dockerfile"),
    ("judge", "compose.yaml"),
    ("lock", "--check", "."),
    ("render", "."),
)


WALKS = (("check",), ("check", "--fix", "sub"), ("audit", "."))  # those that walk a folder


def every_verb(
    tree: Path, canary: Canary, env: dict[str, str] | None = None, verbs: tuple[tuple[str, ...], ...] = WALKS
) -> None:
    """No verb that reads the tree sets off its traps, whatever it says of it, and none meets a fault of envkit's."""
    for words in verbs:
        ended = envkit(*words, cwd=tree, env=quiet(env))
        assert "Traceback" not in ended.stderr, (words, ended.stderr)
        assert ended.returncode in (0, 1, 2, 3), (words, ended)
        assert not canary.sings(), words


# ---------------------------------------------------------------- git

CONFIGS = {
    "fsmonitor": "[core]\n\tfsmonitor = {trap}\n",
    "hooks": "[core]\n\thooksPath = {hooks}\n",
    "clean filter": '[filter "x"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n\trequired = true\n',
    "textconv": '[diff "x"]\n\ttextconv = {trap}\n\tcommand = {trap}\n',
    "included": "[include]\n\tpath = {more}\n",
    "included by place": '[includeIf "gitdir:**"]\n\tpath = {more}\n',
    "aliases": '[alias]\n\tls-files = "!{trap}"\n\tcheck-ignore = "!{trap}"\n',
    "ssh": "[core]\n\tsshCommand = {trap}\n",
    "pager": "[core]\n\tpager = {trap}\n[pager]\n\tls-files = {trap}\n",
    "signatures": "[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {trap}\n",
    "editor and credentials": "[core]\n\teditor = {trap}\n\taskPass = {trap}\n[credential]\n\thelper = !{trap}\n",
    "alternate refs": "[core]\n\talternateRefsCommand = {trap}\n\tgitProxy = {trap}\n",
}


def config(canary: Canary, name: str) -> str:
    folder = canary.mark.parent
    more = folder / "more.config"
    more.write_text(f"[core]\n\tfsmonitor = {canary.program}\n")
    hooks = folder / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("pre-commit", "post-checkout", "post-index-change", "reference-transaction"):
        shutil.copy(canary.program, hooks / hook)
    return CONFIGS[name].format(trap=canary.program, more=more, hooks=hooks)


def repository(tree: Path) -> None:
    assert git(tree, "init", "-q").returncode == 0
    assert git(tree, "add", "-f", ".").returncode == 0


@pytest.mark.parametrize("name", CONFIGS)
def test_a_repositorys_own_configuration_runs_nothing(tree: Path, canary: Canary, name: str) -> None:
    repository(tree)
    (tree / ".gitattributes").write_text("* filter=x diff=x\n")
    with (tree / ".git" / "config").open("a") as file:
        file.write(config(canary, name))
    os.utime(tree / "Dockerfile", (1, 1))  # the index is stale, so that whoever refreshes it looks at the file
    every_verb(tree, canary, verbs=VERBS if name == "fsmonitor" else WALKS)


def test_the_first_of_these_traps_is_one(tree: Path, canary: Canary) -> None:
    repository(tree)
    with (tree / ".git" / "config").open("a") as file:
        file.write(config(canary, "fsmonitor"))
    git(tree, "ls-files", "--cached", "--others", "--exclude-standard")
    assert canary.sings(), "git itself would not have obeyed, so the tests above show nothing"


def test_a_bare_repository_committed_as_a_folder_runs_nothing(tree: Path, canary: Canary) -> None:
    bare = tree / "sub" / "docs"
    bare.mkdir()
    assert git(bare, "init", "-q", "--bare").returncode == 0
    lay(bare, {"Dockerfile": DOCKERFILE})
    (bare / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = {canary.program}\n"
    )
    shutil.copy(canary.program, bare / "hooks" / "post-index-change")
    repository(tree)
    every_verb(tree, canary)
    every_verb_from = (("check",), ("check", "Dockerfile"), ("audit", "."))
    for words in every_verb_from:
        assert envkit(*words, cwd=bare).returncode in (0, 1, 2, 3)
        assert not canary.sings(), words
    found = envkit("check", "--format", "json", cwd=tree)
    assert "sub/docs/Dockerfile" in found.stdout, "it is a folder like any other"


def test_a_git_file_that_leads_to_a_strangers_repository_runs_nothing(tree: Path, canary: Canary) -> None:
    other = tree.parent / "other"
    other.mkdir()
    repository(other)
    (other / ".git" / "config").write_text(config(canary, "fsmonitor"))
    (tree / ".git").write_text(f"gitdir: {other}/.git\n")
    every_verb(tree, canary)
    for said in ("gitdir: /dev/zero", "gitdir: ../../../../../../etc", "gitdir:", "gitdir: a\0b", "x" * 200_000):
        (tree / ".git").write_text(said)
        every_verb(tree, canary)


def test_gits_variables_run_nothing_and_lead_nowhere(tree: Path, canary: Canary) -> None:
    repository(tree)
    other = tree.parent / "elsewhere"
    other.mkdir()
    repository(other)
    (other / ".git" / "config").write_text(config(canary, "fsmonitor"))
    tools = tree / "tools"
    tools.mkdir()
    for name in ("git", "git-ls-files", "git-check-ignore"):
        shutil.copy(canary.program, tools / name)
    trap = str(canary.program)
    every_verb(tree, canary, {"GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other)})
    every_verb(
        tree, canary, {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": trap}
    )
    every_verb(tree, canary, {"GIT_CONFIG_GLOBAL": str(other / ".git" / "config"), "GIT_EXEC_PATH": str(tools)})
    every_verb(
        tree, canary, {"GIT_EXTERNAL_DIFF": trap, "GIT_PAGER": trap, "GIT_SSH_COMMAND": trap, "GIT_ASKPASS": trap}
    )
    every_verb(tree, canary, {"PATH": f"{tools}:{os.environ['PATH']}"})
    every_verb(tree, canary, {"PATH": f".:tools::{os.environ['PATH']}"})


# ---------------------------------------------------------------- what other programs read of a folder


def python_traps(canary: Canary) -> dict[str, str]:
    code = f"open({str(canary.mark)!r}, 'w').close()\n"
    modules = "sitecustomize usercustomize conftest setup docker yaml uv jinja2 typer rich torch numpy msgspec git"
    return {
        **{f"{name}.py": code for name in modules.split()},
        "trap.pth": f"import os; {code}",
        "__init__.py": code,
        "envkit/__init__.py": code,
        "build_backend.py": code,
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "build_backend"\nbackend-path = ["."]\n'
        '[project]\nname = "x"\ndynamic = ["version", "dependencies"]\n[tool.uv]\nno-build = false\n',
        "setup.cfg": "[metadata]\nname = x\nversion = attr: build_backend.__version__\n",
        "noxfile.py": code,
        ".envrc": f"touch {canary.mark}\n",
    }


def test_python_files_of_a_tree_are_read_and_never_imported(tree: Path, canary: Canary) -> None:
    lay(tree, python_traps(canary))
    lay(tree, {"Dockerfile": DOCKERFILE + "COPY . /src\nRUN pip install -e /src\nRUN python /src/setup.py install\n"})
    every_verb(tree, canary, verbs=VERBS)
    # In a Python of its own as well: the console script, started in the tree.
    script = "import sys; from envkit.cli import main; sys.argv[0] = 'envkit'; main()"
    for words in (("check", "."), ("audit", "."), ("explain", "Dockerfile")):
        argv = [sys.executable, "-P", "-c", script, *words]
        done = subprocess.run(argv, cwd=tree, capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 1, 2, 3), done.stderr
        assert not canary.sings(), words


def test_an_image_tree_with_python_hooks_is_audited_and_not_run(tmp_path: Path, canary: Canary) -> None:
    root = tmp_path / "image"
    site = "usr/lib/python3.11/site-packages"
    lay(root, {f"{site}/{name}": text for name, text in python_traps(canary).items()})
    lay(
        root,
        {
            f"{site}/torch/__init__.py": f"open({str(canary.mark)!r}, 'w')\n",
            f"{site}/torch/version.py": "import os\n__version__ = os.system('" + str(canary.program) + "')\n",
            f"{site}/torch-2.6.0.dist-info/METADATA": "Name: torch\nVersion: 2.6.0\n",
            "etc/ld.so.preload": str(canary.program),
            "etc/ld.so.conf": "include /etc/*\ninclude /etc/ld.so.conf\n",
        },
    )
    (root / "usr" / "bin").mkdir(parents=True)
    for name in ("python3", "ldd", "ldconfig", "dpkg", "git"):
        shutil.copy(canary.program, root / "usr" / "bin" / name)
    for env in ({}, {"PATH": f"{root}/usr/bin:{os.environ['PATH']}"}):
        ended = envkit("audit", str(root), env=quiet(env))
        assert ended.returncode in (0, 1, 2, 3) and "Traceback" not in ended.stderr
        assert not canary.sings()


def test_the_action_installs_envkit_by_no_pip_of_the_tree(tree: Path, canary: Canary) -> None:
    """The folder in which an action's steps run is what a stranger's pull request holds."""
    code = f"open({str(canary.mark)!r}, 'w').close()\n"
    lay(tree, {"pip.py": code, "venv.py": code, "sitecustomize.py": code, "packaging/__init__.py": code})
    steps = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text())["runs"]["steps"]
    (install,) = (step["run"] for step in steps if "pip install" in step.get("run", ""))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = quiet({"PATH": path, "GITHUB_ACTION_PATH": str(tree / "none"), "PIP_NO_INPUT": "1"})
    done = subprocess.run(["bash", "-c", install], cwd=tree, env=env, capture_output=True, text=True, timeout=300)
    assert "none" in done.stderr, "pip itself refused the folder that does not exist"
    assert not canary.sings()


def test_makefiles_and_env_files_are_text(tree: Path, canary: Canary) -> None:
    lay(
        tree,
        {
            "Makefile": f"X := $(shell {canary.program} </dev/null)\n"
            f"Y != {canary.program}\ninclude $(shell {canary.program})\nall:\n\t{canary.program}\n",
            "Dockerfile": f"FROM ubuntu:24.04\nCOPY . .\nRUN make $(sh {canary.program}) `{canary.program}`\n"
            'ENV A=$(touch canary)\nSHELL ["/bin/sh", "-c"]\n',
            ".env": f"A=$({canary.program})\nB=`{canary.program}`\n",
            "compose.yaml": f"services:\n  a:\n    env_file: .env\n    build: .\n    command: $({canary.program})\n",
            "devcontainer.json": json.dumps({"image": "a", "initializeCommand": str(canary.program)}),
            ".pre-commit-config.yaml": f"repos:\n- repo: local\n  hooks:\n  - id: a\n    entry: {canary.program}\n",
        },
    )
    every_verb(tree, canary, verbs=VERBS)


TAGS = (
    "!!python/object/apply:os.system",
    "!!python/object/new:os.system",
    "!!python/name:os.system",
    "!!python/module:os",
    "!python/object/apply:subprocess.check_call",
)


@pytest.mark.parametrize("name", ["compose.yaml", "environment.yml", "job.yaml", "docker-compose.gpu.yml"])
def test_tags_of_yaml_make_no_objects(tree: Path, canary: Canary, name: str) -> None:
    for tag in TAGS:
        call = f"{tag} ['{canary.program}']"
        lay(tree, {name: f"services:\n  a:\n    image: {call}\ndependencies: {call}\nname: {call}\nspec: {call}\n"})
        lay(tree, {f"sub/{name}": f"{call}\n--- {call}\n"})
        every_verb(tree, canary, verbs=(("check",),))


# ---------------------------------------------------------------- what never ends, and what grows

BYTES = 3 << 30  # of address space; envkit and its tests have 1 GB before they begin
SECONDS = 60  # of a processor


def bounded(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command line that is killed where it takes more memory or processor time than any file is worth."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))  # a fork has used none

    done = envkit(*words, cwd=cwd, timeout=600, before=limited)
    assert done.returncode in (0, 1, 2, 3), (done.returncode, done.stderr[-2000:])
    assert "Traceback" not in done.stderr and "internal error of envkit" not in done.stderr + done.stdout, done.stderr
    return done


def laughs(depth: int = 40) -> str:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, depth)]
    return "\n".join(lines)


BOMBS = {
    "aliases of aliases": ("compose.yaml", f"{laughs()}\nservices:\n  a:\n    image: a\n    command: *a39\n"),
    "merged aliases": (
        "compose.yaml",
        "x0: &x0 {k: v}\n"
        + "".join(f"x{n}: &x{n} {{<<: [*x{n - 1}, *x{n - 1}], k{n}: *x{n - 1}}}\n" for n in range(1, 40))
        + "services:\n  a: *x39\n",
    ),
    "an alias of itself": ("compose.yaml", "services: &s\n  a: *s\n"),
    "nested lists": ("job.yaml", "apiVersion: v1\nkind: Job\nspec: " + "[" * 100_000 + "]" * 100_000 + "\n"),
    "nested maps": ("environment.yml", "name: a\nchannels: []\ndependencies:\n- " + "{a: " * 50_000 + "\n"),
    "many documents": ("job.yaml", "apiVersion: v1\nkind: Job\n---\n" * 100_000),
    "a key of many parts": ("pyproject.toml", "[project]\nname = 'a'\n" + ".".join(["a"] * 200_000) + " = 1\n"),
    "many dotted keys": ("pyproject.toml", "".join(f"a.b{n}.c = 1\n" for n in range(60_000))),
    "nested tables": ("pyproject.toml", "x = " + "[" * 100_000 + "]" * 100_000 + "\n"),
    "nested inline tables": ("uv.lock", "version = 1\n" + "x = " + "{a=" * 5_000 + "1" + "}" * 5_000 + "\n"),
    "a long number": ("pyproject.toml", "x = " + "9" * 1_000_000 + "\n"),
    "nested JSON": ("devcontainer.json", '{"image": ' + "[" * 200_000 + "]" * 200_000 + "}"),
    "arguments of arguments": (
        "Dockerfile",
        "ARG A0=aaaaaaaaaaaaaaaa\n"
        + "".join(f"ARG A{n}=$A{n - 1}$A{n - 1}\n" for n in range(1, 60))
        + "FROM a:$A59\n"
        + "".join(f"ENV B{n}=$B{n - 1}$B{n - 1}b\n" for n in range(1, 60))
        + "RUN echo $B59\n",
    ),
    "nested shell": ("Dockerfile", "FROM a\nRUN " + "$(" * 20_000 + "x" + ")" * 20_000 + "\n"),
    "nested braces": ("Dockerfile", "FROM a\nRUN echo " + "${A:-" * 20_000 + "x" + "}" * 20_000 + "\n"),
    "many stages": ("Dockerfile", "".join(f"FROM {'a' if n == 0 else f's{n - 1}'} AS s{n}\n" for n in range(4_000))),
    "requirements in a circle": ("requirements.txt", "-r requirements.txt\n-c requirements.txt\n" * 5_000),
    "a lock of one line": ("envkit.lock", "x = [" + "1," * 200_000 + "]\n"),
    "stars of a .dockerignore": (".dockerignore", "\n".join("*a" * 200 + "b" for _ in range(1_000)) + "\n"),
    "stars of a .gitignore": (".gitignore", "\n".join("*a" * 200 + "b" for _ in range(1_000)) + "\n"),
    "steps of a .gitignore": (".gitignore", "\n".join("**/a*a*/" * 100 + "b" for _ in range(1_000)) + "\n"),
    "exclusions": ("envkit.toml", '[check]\nexclude = ["' + "*a" * 50 + 'b"]\n'),
    "a key of many parts in the settings": ("envkit.toml", "[check]\n" + ".".join(["a"] * 200_000) + " = 1\n"),
}


@pytest.mark.slow  # each starts envkit on a large file
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_no_more_than_it_is_long(tree: Path, name: str) -> None:
    file, text = BOMBS[name]
    (tree / ".git").mkdir()
    (tree / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    deep = tree / ("a" * 100) / ("a" * 100)
    lay(deep, {"a" * 100 + ".Dockerfile": DOCKERFILE})
    lay(tree, {file: text})
    bounded("check", ".", cwd=tree)
    if file == "envkit.lock":
        lay(tree, {"envkit.toml": SPEC})
    if file.startswith("envkit."):
        bounded("lock", "--check", ".", cwd=tree)
    elif not file.startswith("."):
        bounded("check", file, cwd=tree)


def test_what_is_no_file_is_not_waited_for(tree: Path) -> None:
    for name in ("pipe.Dockerfile", "requirements-dev.txt", "pyproject.toml", "envkit.toml", ".gitignore"):
        os.mkfifo(tree / name)
    (tree / "sub" / "requirements.txt").symlink_to("/dev/zero")
    (tree / "sub" / "environment.yaml").symlink_to("/dev/stdin")
    (tree / "sub" / "compose.yaml").symlink_to("/dev/tty")
    (tree / "sub" / "a.Dockerfile").symlink_to("a.Dockerfile")
    (tree / "sub" / "up").symlink_to("..")
    (tree / "Dockerfile").write_text("FROM a\nCOPY requirements-dev.txt .\nRUN pip install -r requirements-dev.txt\n")
    (tree / ".git").mkdir()
    (tree / ".git" / "HEAD").write_text("x")
    (tree / ".git" / "info").mkdir()
    os.mkfifo(tree / ".git" / "info" / "exclude")
    os.mkfifo(tree / ".git" / "index")
    for words in (("check",), ("check", "sub"), ("check", "--diff"), ("audit", ".")):
        ended = envkit(*words, cwd=tree, timeout=120)
        assert ended.returncode in (0, 1, 2, 3), (words, ended)
    for name in ("pipe.Dockerfile", "sub/requirements.txt", "envkit.toml"):
        ended = envkit("check", name, cwd=tree, timeout=120)
        assert ended.returncode == 2 and len(ended.stderr.splitlines()) <= 2, ended


SECRET = "hunter2-of-this-machine"


def test_a_link_out_of_the_tree_shows_nothing_of_what_it_leads_to(tree: Path) -> None:
    (tree.parent / "private").write_text(f"FROM {SECRET}\nRUN pip install {SECRET}==1\ntorch=={SECRET}\n")
    lay(tree, {"Dockerfile": "FROM python:3.11\nCOPY r.txt .\nRUN pip install -r r.txt\n"})
    for name in (
        "a.Dockerfile",
        "requirements-a.txt",
        "pyproject.toml",
        "uv.lock",
        "r.txt",
        "sub/compose.yaml",
        ".env",
    ):
        (tree / name).symlink_to(os.path.relpath(tree.parent / "private", (tree / name).parent))
    (tree / "home").symlink_to("..")
    for words in (("check",), ("check", "--diff"), ("check", "--format", "json", "--observed"), ("check", "--fix")):
        ended = envkit(*words, cwd=tree)
        assert ended.returncode in (1, 2, 3), ended
        assert SECRET not in ended.stdout + ended.stderr, words
    assert SECRET in (tree.parent / "private").read_text()


def test_a_fix_is_not_written_through_a_link_out_of_the_tree(tree: Path) -> None:
    victim = tree.parent / "victim"
    victim.write_text("FROM python:3.11\nRUN apt-get install curl\nRUN pip install torch\n")
    before = victim.read_bytes()
    (tree / "a.Dockerfile").symlink_to(victim)
    envkit("check", "--fix", cwd=tree)
    assert victim.read_bytes() == before


# ---------------------------------------------------------------- somebody's spec


class Listener:
    """A port that counts who comes: an index that only the tree names."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.came = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return
            self.came += 1
            one.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.socket.close()


def steered(tree: Path, port: int) -> None:
    """All the ways in which the folder that uv is started in can lead it to another index, or make it run something."""
    url = f"http://127.0.0.1:{port}/simple"
    lay(
        tree,
        {
            "uv.toml": f'index-url = "{url}"\nextra-index-url = ["{url}"]\nfind-links = ["./wheels"]\n'
            f'[[index]]\nname = "theirs"\nurl = "{url}"\ndefault = true\n',
            "pyproject.toml": f'[project]\nname = "a"\nversion = "1"\n[tool.uv]\nindex-url = "{url}"\n'
            f'[[tool.uv.index]]\nname = "theirs"\nurl = "{url}"\ndefault = true\n[tool.uv.pip]\nindex-url = "{url}"\n',
            "pip.conf": f"[global]\nindex-url = {url}\n",
            ".python-version": "3.99\n",
            ".env": f"UV_DEFAULT_INDEX={url}\nUV_INDEX_URL={url}\n",
            "wheels/numpy-99.0-py3-none-any.whl": "no wheel",
        },
    )


@pytest.mark.parametrize("where", ["in the folder", "above it"])
def test_a_lock_of_somebodys_spec_asks_only_the_index_of_this_machine(
    tmp_path: Path, index: Index, published: Publish, listener: Listener, where: str
) -> None:
    published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    index.add("numpy", "2.2.0")
    job = lay(tmp_path / "repo" / "job", {"envkit.toml": SPEC + 'packages = ["numpy"]\n'})
    steered(job if where == "in the folder" else tmp_path / "repo", listener.port)
    ended = envkit(*LOCK, cwd=job, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert listener.came == 0
    assert 'numpy = { version = "2.2.0"' in (job / "envkit.lock").read_text()


def test_a_broken_configuration_of_uv_in_the_folder_stops_no_lock(
    tmp_path: Path, index: Index, published: Publish
) -> None:
    published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    job = lay(tmp_path / "job", {"envkit.toml": SPEC, "uv.toml": "[", "pyproject.toml": "["})
    ended = envkit(*LOCK, cwd=job, timeout=300)
    assert ended.returncode == 0, ended.stderr


def test_the_local_engine_installs_from_the_index_of_this_machine(
    tmp_path: Path, index: Index, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = index.add("tiny", "1.0")
    context = lay(tmp_path / "context", {"requirements.txt": f"tiny==1.0 --hash=sha256:{pin.sha256}\n"})
    tree = lay(tmp_path / "repo", {})
    tree.mkdir()
    steered(tree, listener.port)
    monkeypatch.chdir(tree)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    said: list[str] = []
    LocalEngine(tmp_path / "root").build(BuildRequest(context, "a:1", 300, args={"PYTHON": version}), said.append)
    assert listener.came == 0


@pytest.mark.parametrize("verb", ["lock", "render"])
def test_what_lies_beside_a_spec_is_not_written_through_a_link_out_of_it(
    tmp_path: Path, index: Index, published: Publish, verb: str
) -> None:
    published("2.6.0", "3.11", "nvidia-cudnn-cu12")
    job = lay(tmp_path / "job", {"envkit.toml": SPEC})
    if verb == "render":
        assert envkit(*LOCK, cwd=job, timeout=300).returncode == 0
    victim = tmp_path / "victim"
    victim.write_text(SECRET)
    (job / ("envkit.lock" if verb == "lock" else "Dockerfile")).symlink_to(victim)
    ended = envkit(verb, *(LOCK[1:] if verb == "lock" else ()), cwd=job, timeout=300)
    assert ended.returncode == 2, ended
    assert victim.read_text() == SECRET and SECRET not in ended.stdout + ended.stderr
    if verb == "render":
        (job / ".devcontainer").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "elsewhere").mkdir()
        assert envkit("render", "--as", "devcontainer", cwd=job, timeout=300).returncode == 2
        assert not list((tmp_path / "elsewhere").iterdir())


def test_a_file_beside_a_spec_may_be_a_link_within_its_repository(tmp_path: Path) -> None:
    repo = lay(tmp_path / "repo", {"shared.lock": "", "job/envkit.toml": SPEC})
    (repo / "job" / "envkit.lock").symlink_to("../shared.lock")
    with pytest.raises(UsageError, match="leads by a link out of"):
        beside(repo / "job", "envkit.lock")
    (repo / ".git").mkdir()
    assert beside(repo / "job", "envkit.lock") == repo / "job" / "envkit.lock"
    os.mkfifo(repo / "job" / "Dockerfile")
    with pytest.raises(UsageError, match="is no file"):
        beside(repo / "job", "Dockerfile")


# ---------------------------------------------------------------- logs and saved documents

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b31m\u202e\x00\x08\x1bP+q\x1b\\"


def test_a_log_with_escapes_reaches_no_terminal(tmp_path: Path, canary: Canary) -> None:
    text = f"{ESCAPES}RuntimeError: CUDA error: {ESCAPES}out of memory {ESCAPES}\n$({canary.program})\n"
    (tmp_path / "log.txt").write_text(text * 20)
    (tmp_path / f"{ESCAPES.replace(chr(0), '').replace('/', '')}.log").write_text(text)
    (tmp_path / "Dockerfile").write_text(f"FROM a{ESCAPES}\nRUN pip install torch==2{ESCAPES}.6.0\n")
    for words in (("explain", "log.txt"), ("explain", "."), ("check", "Dockerfile"), ("check", ".")):
        ended = envkit(*words, cwd=tmp_path)
        assert ended.returncode in (0, 1, 2, 3), ended
        for sign in "\x1b\x07\x9b\x08\u202e\x00":
            assert sign not in ended.stdout + ended.stderr, (words, sign)
    assert not canary.sings()


def test_a_hostile_document_is_refused_in_a_sentence(tmp_path: Path, canary: Canary) -> None:
    documents: dict[str, Callable[[], bytes]] = {
        "nested": lambda: b"[" * 3_000_000,
        "nested subject": lambda: b'{"schema": "envkit.subject/1", "kind": "image", "subject": ' + b'{"a":' * 500_000,
        "pickle": lambda: b"cos\nsystem\n(S'" + str(canary.program).encode() + b"'\ntR.",
        "another class": lambda: b'{"schema": "envkit.subject/1", "kind": "os.system", "subject": "x"}',
        "numbers": lambda: b'{"schema": "envkit.subject/1", "kind": "image", "subject": ' + b"9" * 5_000_000 + b"}",
        "one key often": lambda: b"{" + b'"kind": "image",' * 500_000 + b'"kind": "image"}',
        "no text": lambda: b"\xff\xfe\x00" * 1_000_000,
    }
    for name, make in documents.items():
        (tmp_path / "x.json").write_bytes(make())
        others = (("doctor", "--from", "x.json"), ("explain", "x.json")) if name in ("nested", "numbers") else ()
        for words in (("judge", "x.json"), *others):
            done = bounded(*words, cwd=tmp_path)
            assert words[0] == "explain" or done.returncode in (2, 3), (name, words, done)
            assert len(done.stderr) < 10_000, (name, words)
            assert not canary.sings(), (name, words)
