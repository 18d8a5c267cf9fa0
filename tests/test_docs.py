"""What the documentation says is true: its commands exist, its files are read, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main
import yaml

from envkit import cli
from envkit import facts as tables
from envkit.doctor import contracts
from envkit.errors import UsageError
from envkit.fleet import contracts as fleet_contracts
from envkit.judging import judge, pages
from envkit.plan import spec
from envkit.static import fleet as fleet_machines
from envkit.static import settings

ROOT = Path(__file__).parent.parent
WRITTEN = sorted([*ROOT.joinpath("docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "SECURITY.md"))])
KNOWLEDGE = sorted(next(ROOT.joinpath("envkit").rglob("kb")).glob("*.md"))
VERBS = click.Context(typer.main.get_command(cli.app), info_name="envkit")


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def fences(path: Path, kind: str) -> Iterator[tuple[int, str]]:
    """The blocks of one language in a page, each with its first line."""
    whole = text(path)
    for found in re.finditer(rf"^```{kind}\n(.*?)^```", whole, re.DOTALL | re.MULTILINE):
        yield whole.count("\n", 0, found.start()) + 2, found[1]


def prose(path: Path) -> str:
    return re.sub(r"^```.*?^```$", "", text(path), flags=re.DOTALL | re.MULTILINE)


# Commands.

# A line of an indented block that runs envkit: behind a prompt, variables, another program, or a pipe.
_LINE = re.compile(
    r"^ {4,}(?:\$ )?((?:[A-Z_]+=\S+ )*(?:[^\n#]*?\| |srun (?:--\S+ )*|uvx --from \. |\.venv/bin/)?envkit [^\n]*)", re.M
)
_INLINE = re.compile(r"`envkit ([^`\n]+)`")


def commands(path: Path) -> Iterator[list[str]]:
    """The words behind ``envkit`` of each command in the blocks of a page."""
    for line in _LINE.findall(prose(path)):
        if re.match(r"envkit: ", line) or line.startswith("envkit guard"):  # what it prints
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|>;&")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words = list(lexer)
        start = next(i for i, word in enumerate(words) if Path(word).name == "envkit") + 1
        # Another command follows behind "--", and a shell's words behind a pipe.
        end = next(
            (i for i, word in enumerate(words) if i >= start and (word == "--" or word[0] in "|>;&")), len(words)
        )
        yield words[start:end]


def refused(words: list[str], whole: bool) -> str:
    """Why the command line does not take these words, empty if it does; all of them are there where ``whole``."""
    group = VERBS.command
    assert isinstance(group, click.Group)
    if words[0].startswith("-"):
        return "" if words[0] in ("--version", "--help") else f"there is no {words[0]}"
    command = group.get_command(VERBS, words[0])
    if command is None:
        return f"there is no verb {words[0]}"
    try:
        if whole:
            command.make_context(words[0], words[1:], parent=VERBS)
        else:
            command.make_parser(click.Context(command)).parse_args(words[1:])
    except click.exceptions.Exit:
        return ""
    except (click.ClickException, UsageError) as error:
        return str(error)
    return ""


def test_every_command_that_a_block_shows_is_taken_by_the_command_line() -> None:
    seen, wrong = set(), []
    for path in WRITTEN:
        for words in commands(path):
            seen.add(words[0])
            if why := refused(words, whole=True):
                wrong.append(f"{path.relative_to(ROOT)}: envkit {shlex.join(words)}: {why}")
    assert not wrong, "\n".join(wrong)
    group = VERBS.command
    assert isinstance(group, click.Group)
    assert seen >= set(group.commands), "verbs that no page shows"


def test_every_command_that_a_sentence_names_has_that_verb_and_those_options() -> None:
    wrong = []
    for path in (*WRITTEN, *KNOWLEDGE):
        for line in _INLINE.findall(prose(path)):
            words = line.replace("...", "X").split()
            end = next((i for i, word in enumerate(words) if word in ("--", "|", "\\|", ">", "&&")), len(words))
            if words[0].isupper() or words[0].endswith(":"):  # `envkit COMMAND --help`; what it prints
                continue
            if why := refused(words[:end], whole=False):
                if "requires an argument" in why:  # `envkit check --gpu`, named for itself
                    continue
                wrong.append(f"{path.relative_to(ROOT)}: `envkit {line}`: {why}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        (["lokc"], True), (["lock", "--nope"], True), (["judge"], True), (["doctor", "--budget", "soon"], True),
        (["lock", "--nope"], False), (["--nope"], True),
    ],
)  # fmt: skip
def test_what_the_command_line_does_not_know_is_refused_here_too(words: list[str], whole: bool) -> None:
    assert refused(words, whole)


# Files.


def read(block: str, folder: Path) -> None:
    """Loads a block of TOML as what it is: settings of check, a contract, or a spec, completed where it is a part."""
    table: dict[str, Any] = tomllib.loads(block)
    file = folder / "envkit.toml"
    file.write_text(block, encoding="utf-8")
    if "class" in table:
        fleet_contracts.load(file)
    elif isinstance(table.get("machine"), list):
        fleet_machines.load(file, tables.load())
    elif "check" in table:
        settings.load(file, lambda: frozenset(judge.checks()))
    elif "require" in table or any(isinstance(value, dict) for key, value in table.items() if key != "image"):
        contracts.load(file, judge.checks())
    else:
        needed = {"torch": 'torch = "2.6.0"', "python": 'python = "3.11"'}
        lines = [line for key, line in needed.items() if key not in table]
        spec.parse("\n".join([*lines, block]), file)


def test_every_block_of_toml_is_read_as_what_it_is(tmp_path: Path) -> None:
    wrong, count = [], 0
    for path in WRITTEN:
        for line, block in fences(path, "toml"):
            count += 1
            try:
                read(block, tmp_path)
            except (UsageError, tomllib.TOMLDecodeError) as error:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {error}")
    assert not wrong, "\n".join(wrong)
    assert count > 30
    with pytest.raises(UsageError):
        read("[gpus]\ncoumt = 8\n", tmp_path)


def test_every_block_of_yaml_is_yaml_and_names_what_the_repository_offers() -> None:
    hooks = {hook["id"] for hook in yaml.safe_load(text(ROOT / ".pre-commit-hooks.yaml"))}
    inputs = set(yaml.safe_load(text(ROOT / "action.yml"))["inputs"])
    blocks = [yaml.safe_load(block) for path in WRITTEN for _, block in fences(path, "yaml")]
    used = [step for block in blocks for step in steps(block) if "envkit" in step.get("uses", "")]
    asked = [
        hook["id"]
        for block in blocks
        if isinstance(block, dict)
        for repo in block.get("repos", ())
        for hook in repo["hooks"]
    ]
    included = [each for block in blocks if isinstance(block, dict) for each in block.get("include", ())]
    component = next(yaml.safe_load_all(text(ROOT / "templates" / "check" / "template.yml")))["spec"]["inputs"]
    assert len(included) >= 2 and all("/envkit/check@" in each["component"] for each in included)
    assert all("source" in each["inputs"] and set(each["inputs"]) <= set(component) for each in included)
    assert len(used) >= 2
    assert all(set(step.get("with", {})) <= inputs for step in used)
    assert asked and set(asked) <= hooks


def steps(block: Any) -> list[dict[str, Any]]:
    """The steps of a workflow, or of a part of one."""
    if isinstance(block, list):
        return [step for step in block if isinstance(step, dict)]
    return [step for job in block.get("jobs", {}).values() for step in job["steps"]]


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)


def test_every_link_leads_to_a_file_of_the_repository_and_a_heading_of_it() -> None:
    wrong = []
    for path in WRITTEN:
        for target, anchor in re.findall(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]*))?\)", prose(path)):
            to = (path.parent / target).resolve() if target else path
            if not to.exists():
                wrong.append(f"{path.relative_to(ROOT)}: {target}")
            elif anchor and to.suffix == ".md" and anchor not in anchors(to):
                wrong.append(f"{path.relative_to(ROOT)}: {target}#{anchor}")
    assert not wrong, "\n".join(wrong)


# The whole.


def test_the_readme_is_short_and_its_picture_small() -> None:
    assert len(text(ROOT / "README.md").split()) <= 1200
    assert (ROOT / "docs" / "terminal.svg").stat().st_size < 60_000


@pytest.mark.parametrize("script", ["spec_table.py", "terminal_svg.py"])
def test_what_is_made_by_a_script_is_current(script: str) -> None:
    done = subprocess.run([sys.executable, f"scripts/{script}", "--check"], cwd=ROOT, timeout=60)
    assert done.returncode == 0, f"run `python scripts/{script}`"


@pytest.fixture(scope="module")
def site() -> Any:
    """The hook that adds the pages of the site that are made from the code."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import site_pages
    finally:
        sys.path.pop(0)
    return site_pages


def test_the_site_has_every_check_in_an_index_by_subject(site: Any) -> None:
    made = dict(site.check_pages())
    assert set(made) == {f"checks/{name}.md" for name in pages.names()}
    indexed = "".join(page for name, page in site.indexes() if name != "checks/index.md")
    assert {name for name in pages.names() if f"]({name}.md)" in indexed} == set(pages.names())


def test_a_page_of_a_check_keeps_its_words_and_folds_its_examples(site: Any) -> None:
    page = site.check_page("host-no-gpu", judge.checks()["host-no-gpu"])
    assert "# This machine has an NVIDIA GPU\n" in page
    assert "`envkit doctor`" in page
    assert "Severity: error." in page
    assert "<summary>The check fires on a machine without a GPU</summary>" in page
    assert '    {"on": "bare"}\n' in page
    assert "```" not in page


def test_the_page_of_all_options_says_what_each_argument_is(site: Any) -> None:
    page = str(site.options())
    group = VERBS.command
    assert isinstance(group, click.Group)
    for name, verb in group.commands.items():
        _, _, part = page.partition(f"## envkit {name}\n")
        rows = [line for line in part.partition("\n## ")[0].splitlines() if line.startswith("| `")]
        assert len(rows) == sum(not getattr(each, "hidden", False) for each in verb.params), name
        assert not [row for row in rows if row.endswith("` |  |")], name


def test_a_link_is_turned_to_the_site_and_one_to_nowhere_is_left_for_the_strict_build(site: Any) -> None:
    there = {"checks/host-no-gpu.md", "project/security.md", "doctor.md"}

    def turned(link: str) -> str:
        return str(site.linked(f"[x]({link})", "docs/jobs", "jobs/README.md", lambda uri: uri in there))

    kb = KNOWLEDGE[0].parent.relative_to(ROOT)
    assert turned("../doctor.md#the-contract") == "[x](../doctor.md#the-contract)"
    assert turned(f"../../{kb}/host-no-gpu.md") == "[x](../checks/host-no-gpu.md)"
    assert turned("../../SECURITY.md") == "[x](../project/security.md)"
    assert turned("../../action.yml") == "x (`action.yml`)"
    assert turned("../../nowhere.md") == "[x](../../nowhere.md)"
    assert turned("https://example.org/") == "[x](https://example.org/)"


def test_the_strict_build_refuses_broken_links_and_pages_outside_of_the_menu(tmp_path: Path) -> None:
    whole = yaml.safe_load(text(ROOT / "properdocs.yml"))
    small = {key: whole[key] for key in ("site_name", "theme", "strict", "validation")}
    small |= {"nav": ["index.md", "missing.md"], "plugins": []}
    (tmp_path / "properdocs.yml").write_text(yaml.safe_dump(small))
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "index.md").write_text("# Home\n\n[a](nowhere.md) [b](other.md#nowhere) [c](/absolute.md)\n")
    (folder / "other.md").write_text("# Other\n")
    recipe = re.findall(r"(?m)^docs:.*\n\t\$\(BIN\)/python (.*)$", text(ROOT / "Makefile"))
    assert len(recipe) == 1
    done = subprocess.run(
        [sys.executable, *recipe[0].split()], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    for word in ("nowhere.md", "#nowhere", "/absolute.md", "missing.md", "other.md"):
        assert re.search(rf"WARNING.*{re.escape(word)}", said), word
