"""What of a project goes into its image: the table [image], the files that come along, the wheel, and the labels."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from envkit.build import inside
from envkit.dockerfile.context import Context
from envkit.errors import Unsatisfiable, UsageError
from envkit.plan import image_table, package, project, project_tree, solve
from envkit.plan import lockfile as locks
from envkit.plan.image_table import Account, ImageTable
from envkit.plan.indexes import Indexes
from envkit.plan.project_tree import LeftOut
from envkit.plan.spec import Spec, load, parse
from envkit.runner.runner import promise_of
from envkit.system import files
from envkit.versions import Python

ROOT = Path(__file__).resolve().parents[1]
LOCK = locks.parse((ROOT / "images/torch-2.6-cu124/envkit.lock").read_text(), "envkit.lock")


def table(*lines: str) -> ImageTable:
    return parse('torch = "2.6.0"\npython = "3.11"\n[image]\n' + "\n".join(lines), Path("/srv/job/envkit.toml")).image


def refused(*lines: str) -> str:
    with pytest.raises(UsageError) as caught:
        table(*lines)
    assert caught.value.fix and "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("user", "account"),
    [
        ("app", Account("app", 1000)), ("1234", Account("app", 1234)), ("me:2000", Account("me", 2000)),
        ("root", None), ("0", None), ("", None),
    ],
)  # fmt: skip
def test_a_user_is_a_name_a_number_or_both(user: str, account: Account | None) -> None:
    assert table(f'user = "{user}"').account == account


@pytest.mark.parametrize(
    "user",
    [
        "999",
        "me:33",
        "root:1000",
        "Me",
        "a b",
        "me:",
        ":1000",
        "9" * 30,
        "me:0",
        "-x",
        "me:1e3",
        "\u0661\u0661\u0661\u0661",
    ],
)
def test_a_user_of_the_system_and_what_is_none_is_refused(user: str) -> None:
    assert "`image.user` is" in refused(f'user = "{user}"')


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('copy = ["../x"]', "no path below the folder"),
        ('copy = ["a/../../x"]', "no path below the folder"),
        ('copy = ["/etc/passwd"]', "no path below the folder"),
        ('copy = [""]', "no path below the folder"),
        ('copy = "."', "must be a list of texts"),
        ('workdir = "/"', "a folder that is not the system's"),
        ('workdir = "/etc/x"', "a folder that is not the system's"),
        ('workdir = "/opt/venv/x"', "a folder that is not the system's"),
        ('workdir = "/usr"', "a folder that is not the system's"),
        ('workdir = "/a/../b"', "a plain path from /"),
        ('workdir = "a"', "a plain path from /"),
        ('env = { "A B" = "1" }', "no name of a variable"),
        ('env = { "A=1\\nRUN" = "1" }', "no name of a variable"),
        ('env = { PATH = "/x" }', "PATH, which envkit sets"),
        ('env = { HF_TOKEN = "abc" }', "HF_TOKEN, which by its name is a secret"),
        ('env = { URL = "https://me:hunter2@example.com/" }', "holds a credential"),
        ('env = { A = "1\\n2" }', "`image.env.A` holds"),
        ("env = { A = 1 }", "`image.env` holds a whole number, and each value of it must be text"),
        ('expose = ["0"]', "expected a port"),
        ('expose = ["70000"]', "expected a port"),
        ('expose = ["80/icmp"]', "expected a port"),
        ('entrypoint = ["-x"]', "is no program"),
        ('cmd = [" "]', "is no program"),
        ('cmd = ["curl", "-u", "me:hunter2"]', "holds a credential"),
        ("healthcheck = { command = [] }", "has no command"),
        ('healthcheck = { command = ["true"], interval = "soon" }', "expected a time"),
        ('healthcheck = { command = ["true"], retries = 1000 }', "from 1 to 100"),
        ('healthcheck = { command = ["true"], times = 1 }', "times"),
        ('volumes = ["/x"]', "unknown key `image.volumes`"),
    ],
)
def test_what_is_outside_its_grammar_is_refused_with_the_key(line: str, said: str) -> None:
    message = refused(line)
    assert said in message and "hunter2" not in message


def test_a_table_is_in_a_lock_what_it_is_in_a_spec() -> None:
    held = table(
        'copy = ["./src/", "src", "a b"]', 'workdir = "/srv/app/"', 'env = { B = "ü", A = "$x" }', 'expose = ["80"]',
        'healthcheck = { command = ["true"], start-period = "5s" }',
    )  # fmt: skip
    assert (held.copy, held.place, held.env) == (("src", "a b"), "/srv/app", (("A", "$x"), ("B", "ü")))
    made = replace(LOCK, inside=held)
    assert locks.parse(locks.dump(made), "x") == made
    assert locks.dump(replace(made, inside=image_table.NOTHING)) == locks.dump(LOCK)


# The files.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "demo"
    made.mkdir()
    return made


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def fill(folder: Path, names: str, text: str = "x\n") -> None:
    for name in names.split():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def copied(folder: Path, *paths: str, ignore: str = "") -> tuple[list[str], LeftOut]:
    target = folder.parent / "target"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    if ignore:
        (folder / ".dockerignore").write_text(ignore)
    left_out = project_tree.copy(folder, paths, target, Context(folder).rules())
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_symlink() or path.is_file())
    return found, left_out


SECRETS = (
    ".env .env.local prod.env .netrc .git/config a/.git-credentials .ssh/id_rsa id_ed25519 deploy/id_rsa.old tls.key"
    " cert.p12 .pypirc .npmrc .aws/credentials .kube/config .docker/config.json .streamlit/secrets.toml"
    " service-account-prod.json .htpasswd pip.conf"
)
HARMLESS = (
    "env.py .envs/readme .env.example id_rsa.pub keys.py monkey.txt environment.yml gitlog.md .gitignore token.py"
)


def test_what_may_hold_credentials_stays_out_and_is_named(folder: Path) -> None:
    fill(folder, SECRETS)
    fill(folder, HARMLESS)
    write(folder, some__pem="-----BEGIN OPENSSH PRIVATE KEY-----\nx\n", ca__pem="-----BEGIN CERTIFICATE-----\nx\n")
    found, left_out = copied(folder, ".")
    assert found == sorted([*HARMLESS.split(), "ca/pem"])
    tops = {".git", ".ssh", ".aws", ".kube", ".docker"}
    expected = {name.split("/")[0] if name.split("/")[0] in tops else name for name in SECRETS.split()} | {"some/pem"}
    assert set(left_out.secret) == expected
    said = list(left_out.said())
    assert len(said) == 1 and said[0].startswith("left out of the image: ") and "and 13 more" in said[0]


@pytest.mark.parametrize("path", [".env", "deploy/id_rsa", ".git", ".venv", "data/x.bin"])
def test_naming_what_is_left_out_is_an_error_and_no_way_in(folder: Path, path: str) -> None:
    fill(folder, ".env deploy/id_rsa .git/HEAD .venv/x data/x.bin")
    with pytest.raises(UsageError, match="which is left out") as caught:
        copied(folder, path, ignore="data\n")
    assert caught.value.fix


def test_the_dockerignore_and_what_tools_make_again_count(folder: Path) -> None:
    fill(folder, "a.py b.bin data/x data/keep/y pkg/__pycache__/a.pyc pkg/m.py .mypy_cache/z own/bin/python")
    (folder / "own/pyvenv.cfg").write_text("home = /usr\n")
    found, left_out = copied(folder, ".", ignore="*.bin\ndata\n!data/keep\n")
    assert found == [".dockerignore", "a.py", "data/keep/y", "pkg/m.py"]
    assert (left_out.ignored, left_out.made) == (["b.bin", "data/x"], [".mypy_cache", "own", "pkg/__pycache__"])


def test_links_stay_links_and_lead_nowhere_else(folder: Path) -> None:
    fill(folder, "a.py run.sh")
    (folder / "run.sh").chmod(0o700)
    (folder.parent / "outside").write_text("hunter2\n")
    (folder / "b.py").symlink_to("a.py")
    (folder / "out").symlink_to("../outside")
    (folder / "root").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    found, left_out = copied(folder, ".")
    assert found == ["a.py", "b.py", "run.sh"] and left_out.outside == ["out", "pipe", "root"]
    target = folder.parent / "target"
    assert os.readlink(target / "b.py") == "a.py"
    assert [(target / name).stat().st_mode & 0o777 for name in ("a.py", "run.sh")] == [0o644, 0o755]
    (folder / "sub").symlink_to("..")
    with pytest.raises(UsageError, match="there is none"):
        copied(folder, "sub/outside")
    with pytest.raises(UsageError, match="names gone, and there is none"):
        copied(folder, "gone")


# The package.

BACKEND = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[project]\nname = "My_App"\n' + BACKEND, ("my-app", "hatchling")),
        ('[project]\nname = "app"\n', ()),
        ('[project]\nname = "app"\n[tool.uv]\npackage = true\n', ("app", "setuptools>=40.8.0")),
        ('[project]\nname = "app"\n[tool.uv]\npackage = false\n' + BACKEND, ()),
    ],
)
def test_a_project_is_a_package_where_uv_would_install_it(folder: Path, text: str, found: tuple[str, ...]) -> None:
    write(folder, **{"pyproject.toml": text})
    assert package.of(folder) == found


def spec_of(folder: Path, text: str = BACKEND, more: str = "") -> Spec:
    write(
        folder,
        **{"pyproject.toml": '[project]\nname = "demo"\nversion = "1.2"\nlicense = "MIT"\n' + text,
           "envkit.toml": 'torch = "2.6.0"\npython = "3.11"\nproject = "."\n' + more},
    )  # fmt: skip
    return load(folder)


def test_a_lock_without_the_project_does_not_answer_a_spec_with_it(folder: Path) -> None:
    spec = spec_of(folder)
    assert spec.package == ("demo", "hatchling")
    (told,) = (line for line in locks.problems(spec, LOCK) if "project" in line)
    assert told == "the spec asks for project demo, hatchling, the lock was made for none"


def test_the_project_is_no_addition_to_what_an_image_promises() -> None:
    assert promise_of(replace(LOCK, project=locks.Project("demo", "3.11", ())), "runtime").project == "demo"


def test_a_revision_is_read_without_git(folder: Path) -> None:
    commit, other = "0123456789abcdef" * 2 + "01234567", "f" * 40
    assert inside.revision(folder) == ""
    write(
        folder,
        **{".git/HEAD": "ref: refs/heads/feature/a\n", ".git/packed-refs": f"# pack\n{commit} refs/heads/feature/a\n"},
    )
    assert inside.revision(folder) == commit
    write(folder, **{".git/refs/heads/feature/a": f"{other}\n"})
    (folder / "sub").mkdir()
    assert inside.revision(folder / "sub") == other
    for head in ("ref: ../../../etc/passwd\n", "ref: refs/heads/../../../x\n", "x\n", f"{commit}0\n"):
        write(folder, **{".git/HEAD": head})
        assert inside.revision(folder) == ""
    tree = folder.parent / "tree"
    write(tree, **{".git": f"gitdir: {folder}/.git/worktrees/tree\n"})
    write(
        folder,
        **{".git/worktrees/tree/HEAD": "ref: refs/heads/feature/a\n", ".git/worktrees/tree/commondir": "../..\n"},
    )
    assert inside.revision(tree) == other


@pytest.mark.slow  # real builds, with what they need from the index
def test_the_wheel_is_the_same_each_time_and_follows_the_files(folder: Path) -> None:
    spec = spec_of(folder)
    fill(folder, "src/demo/__init__.py .env src/demo/id_rsa", "x = 1\n")

    def resolve(python: Python, lines: object) -> tuple[locks.Pin, ...]:
        return solve.build_tools(Indexes(), python, ("hatchling",), "")

    said: list[str] = []
    held = project.lock(spec, Python("3.11"), None, resolve)
    assert held.roots == ("src",) and any(line.startswith("hatchling==") for line in held.requires)

    def made() -> project.ProjectWheel:
        return project.wheel(spec, held, said.append, Indexes(), LeftOut())

    first = made()
    assert first.version == "1.2" and b"id_rsa" not in first.data
    os.utime(folder / "src/demo/__init__.py", (1, 1))
    (folder / "src/demo/__init__.py").chmod(0o600)
    assert made() == first
    write(folder, **{"src/demo/__init__.py": "x = 2\n"})
    assert made().data != first.data


@pytest.mark.parametrize(
    ("file", "roots"),
    [("src/demo/__init__.py", ("src",)), ("demo/__init__.py", (".",)), ("demo.py", (".",)), ("lib/demo.py", ("lib",)),
     ("other/x.py", ())],
)  # fmt: skip
def test_a_lock_reads_what_the_build_of_a_project_takes_and_runs_nothing(
    folder: Path, file: str, roots: tuple[str, ...]
) -> None:
    build = '[build-system]\nrequires = ["setuptools<70"]\nbuild-backend = "setuptools.build_meta"\n'
    spec = spec_of(folder, build)
    shutil.rmtree(folder / "src", ignore_errors=True)
    fill(folder, file)
    write(folder, **{"setup.py": f"open({str(folder / 'ran')!r}, 'w')\n"})
    asked: list[str] = []

    def resolve(python: Python, lines: Sequence[str]) -> tuple[locks.Pin, ...]:
        asked.extend(lines)
        return ()

    made = project.lock(spec, Python("3.11"), None, resolve)
    assert (made.roots, asked) == (roots, ["setuptools<70", "wheel"])
    assert not (folder / "ran").exists()


@pytest.mark.slow  # a real build that fails
def test_a_project_that_must_be_compiled_is_refused_with_a_way_out(folder: Path) -> None:
    build = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    spec = spec_of(folder, build)
    write(
        folder,
        **{"setup.py": "from setuptools import Extension, setup\nsetup(ext_modules=[Extension('demo', ['demo.c'])])\n",
           "demo.c": "int x;\n"},
    )  # fmt: skip

    def resolve(python: Python, lines: object) -> tuple[locks.Pin, ...]:
        return solve.build_tools(Indexes(), python, ("setuptools",), "")

    held = project.lock(spec, Python("3.11"), None, resolve)
    with pytest.raises(Unsatisfiable, match="makes no wheel of plain Python") as caught:
        project.wheel(spec, held, lambda line: None, Indexes(), LeftOut())
    assert "package = false" in caught.value.fix


def test_nothing_is_staged_of_a_project_that_is_no_package(folder: Path) -> None:
    spec = spec_of(folder, "", '[image]\ncopy = ["a.py"]\n')
    fill(folder, "a.py b.py")
    target = files.folder(folder.parent / "staged")
    lock = replace(LOCK, inside=spec.image)
    assert inside.wanted(lock) and not inside.wanted(LOCK)
    inside.stage(spec, lock, target, lambda line: None, Indexes())
    assert sorted(path.name for path in target.rglob("*")) == ["a.py", "files", "labels.json"]
    assert inside.labels(target) == {"org.opencontainers.image.licenses": "MIT"}
    with pytest.raises(UsageError, match="does not contain the project"):
        inside.labels(folder)
