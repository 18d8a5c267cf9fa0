"""Pages of the documentation site that are made from the code while `make docs` builds it; none of them is committed.

- ``checks/ID.md``: the page of each check (``envkit/kb``), its examples folded;
- ``checks/index.md`` and ``checks/by-SUBJECT.md``: the checks by what they judge;
- ``options.md``: every command with its options, as the command line itself declares them;
- ``images.md`` and ``project/*.md``: pages that lie elsewhere in the repository;
- ``site.css``: the colours of code.

Links of the pages work in the repository; here they are turned to the pages of the site.  A link to a file that is
neither a page nor in the repository is left alone, so that the strict build fails on it.
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import typer.main
from properdocs.structure.files import File
from pygments.formatters import HtmlFormatter

from envkit import cli
from envkit.cli.app import help_records
from envkit.judging import judge, pages
from envkit.judging.judge import Check

ROOT = Path(__file__).resolve().parent.parent
KB = Path(next(ROOT.joinpath("envkit").rglob("kb")))
LOG = logging.getLogger("properdocs.hooks.site_pages")

EXAMPLES = sorted(ROOT.glob("examples/*/README.md"))
# Pages of the repository outside of docs/, by their place in the site.
ELSEWHERE = {
    "images.md": "images/README.md",
    "examples/index.md": "examples/README.md",
    **{f"examples/{path.parent.name}.md": f"examples/{path.parent.name}/README.md" for path in EXAMPLES},
    "project/architecture.md": "ARCHITECTURE.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/security.md": "SECURITY.md",
    "project/changelog.md": "CHANGELOG.md",
}


class Subject(NamedTuple):
    """What checks judge: the page's name, its title, and the commands that run them."""

    page: str
    title: str
    verbs: str


SUBJECTS = {
    "Host": Subject("by-machine", "A machine", "`envkit doctor`, `envkit preflight`"),
    "Launch": Subject("by-launch", "A launch: image, machine and job", "`envkit preflight`"),
    "Dockerfile": Subject("by-dockerfile", "A Dockerfile", "`envkit check`"),
    "Packages": Subject("by-packages", "Requirements, projects, environments and locks", "`envkit check`"),
    "Workload": Subject("by-workload", "Compose files, manifests, development containers", "`envkit check`"),
    "JobStart": Subject("by-start", "Starts of containers, as files describe them", "`envkit check --start FILE`"),
    "Image": Subject("by-image", "A process in an image", "`envkit probe`, `envkit up`, `envkit preflight`"),
    "Audit": Subject("by-audit", "The files of an image", "`envkit audit`, `envkit preflight`"),
    "SmokeRun": Subject("by-smoke", "The smoke tests", "`envkit smoke`, `envkit up`, `envkit preflight`"),
    "Placement": Subject("by-placement", "Where a model's tensors are", "`envkit probe --placement MODULE:FACTORY`"),
    "Precision": Subject(
        "by-precision", "A training step in a narrow type", "`envkit debug --precision MODULE:FACTORY`"
    ),
    "AotiRun": Subject("by-aoti", "An AOTInductor package", "`envkit probe --aoti PACKAGE`"),
}
REQUIRED = Subject("by-required", "What must be answered before a pass", "every command that gives a verdict")

OUTCOMES = {
    "fails": "The check fires on",
    "passes": "The check passes on",
    "unknown": "The check cannot decide on",
    "skips": "The check does not apply to",
}


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are made; called by the site generator before it reads any page."""
    made = {**dict(check_pages()), **dict(indexes()), "options.md": options(), "site.css": styles()}
    for name, path in ELSEWHERE.items():
        made[name] = (ROOT / path).read_text(encoding="utf-8")
    for name, text in made.items():
        if files.get_file_from_path(name) is not None:
            LOG.warning("docs/%s is there, and a page of that name is made from the code", name)
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: Any) -> str:
    """Turns the links of a page of the repository to the pages of the site."""
    name = page.file.src_uri
    if name.startswith("checks/"):
        return markdown
    here = posixpath.dirname(ELSEWHERE.get(name, f"docs/{name}"))
    return outside_code(
        markdown, lambda text: linked(text, here, name, lambda uri: bool(files.get_file_from_path(uri)))
    )


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """The text with ``change`` made everywhere but in fenced blocks."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def linked(text: str, here: str, name: str, is_page: Callable[[str], bool]) -> str:
    """``text`` with the links of the page ``name`` of the site; ``here`` is its folder in the repository."""

    def turned(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        path = posixpath.normpath(posixpath.join(here, target))
        uri = place(path)
        if is_page(uri):
            return f"[{words}]({posixpath.relpath(uri, posixpath.dirname(name) or '.')}{anchor})"
        if (ROOT / path).exists():
            return words if words.strip("`") == path else f"{words} (`{path}`)"
        return found[0]

    return re.sub(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)", turned, text)


def place(path: str) -> str:
    """The place in the site of a file of the repository; for one that is no page, a place where none is."""
    known = {source: name for name, source in ELSEWHERE.items()}
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).parent == KB:
        return f"checks/{posixpath.basename(path)}"
    return known.get(path, f"../{path}")


def styles() -> str:
    """Colours of code by day and by night, and the summaries of folded blocks."""
    day = HtmlFormatter(style="default").get_style_defs(".codehilite")
    night = HtmlFormatter(style="github-dark").get_style_defs("[data-bs-theme=dark] .codehilite")
    return f"{day}\n{night}\n{FOLDED}"


FOLDED = """details { margin: 0 0 0.5rem 0; }
summary { cursor: pointer; }
"""


# The checks.


def check_pages() -> Iterator[tuple[str, str]]:
    """The page of each check and of each required question."""
    checks = judge.checks()
    for name in pages.names():
        yield f"checks/{name}.md", check_page(name, checks.get(name))


def check_page(name: str, check: Check | None) -> str:
    """One page: what it is about, its prose, and its examples, folded."""
    page = pages.load(name)
    kinds = [SUBJECTS[kind.__name__] for kind in check.subjects] if check else [REQUIRED]
    subjects = ", ".join(f"[{kind.title}]({kind.page}.md)" for kind in kinds)
    severity = page.told.get("severity")
    lines = [
        f"# {page.title}",
        "",
        f"`{name}`",
        "",
        f"Judges: {subjects}. Run by: {'; '.join(kind.verbs for kind in kinds)}.",
        *([f"Severity: {severity}."] if severity else []),
        "",
    ]
    for heading, body in page.sections.items():
        lines += [f"## {heading}", "", body, ""]
    if page.examples:
        lines += ["## Examples", "", "The tests of envkit judge each of them.", ""]
    for outcome, says in OUTCOMES.items():
        for example in page.examples:
            if example.outcome == outcome:
                lines += folded(f"{says} {example.fault or 'this'}", example.kind, example.text)
    return "\n".join(lines)


def folded(summary: str, kind: str, text: str) -> list[str]:
    """A block of code that is shown when its summary is clicked."""
    language = {"dockerfile": "docker", "compose": "yaml", "workload": "yaml", "packages": "text"}.get(kind, "json")
    if language == "json" and not text.lstrip().startswith(("{", "[")):
        language = "text"
    shown = re.sub(r"[&<>]", lambda found: {"&": "&amp;", "<": "&lt;", ">": "&gt;"}[found[0]], summary)
    code = [f"    {line}".rstrip() for line in [f":::{language}", *text.rstrip("\n").splitlines()]]
    return ['<details markdown="1">', f"<summary>{shown}</summary>", "", *code, "", "</details>", ""]


def indexes() -> Iterator[tuple[str, str]]:
    """The page of all subjects, and for each of them the page with its checks."""
    checks = judge.checks()
    required = [name for name in pages.names() if name not in checks]
    overview = [
        "# Checks by subject",
        "",
        f"{len(checks)} checks and {len(required)} required questions. `envkit explain CHECK` prints the same pages in",
        "a terminal, and the search at the top of this site finds them by their words.",
        "",
        "| what is judged | checks | run by |",
        "|---|---|---|",
    ]
    for kind, subject in SUBJECTS.items():
        mine = [check for check in checks.values() if kind in {one.__name__ for one in check.subjects}]
        overview.append(f"| [{subject.title}]({subject.page}.md) | {len(mine)} | {subject.verbs} |")
        yield f"checks/{subject.page}.md", subject_page(subject, mine)
    overview.append(f"| [{REQUIRED.title}]({REQUIRED.page}.md) | {len(required)} | {REQUIRED.verbs} |")
    text = [f"# {REQUIRED.title}", "", "[What a verdict means](../verdict.md) gives the reasons.", "", *table(required)]
    yield f"checks/{REQUIRED.page}.md", "\n".join(text) + "\n"
    yield "checks/index.md", "\n".join(overview) + "\n"


def subject_page(subject: Subject, checks: list[Check]) -> str:
    """The checks of one subject, under the headings of the modules that hold them."""
    lines = [f"# {subject.title}", "", f"Run by: {subject.verbs}.", ""]
    modules: dict[str, list[str]] = {}
    for check in checks:
        modules.setdefault(check.judge.__module__, []).append(check.id)
    for module, names in sorted(modules.items()):
        heading, rest = about(module)
        if len(modules) > 1:
            lines += [f"## {heading}", ""]
        lines += [f"{rest}.", ""] if rest else []
        lines += table(sorted(names))
    return "\n".join(lines) + "\n"


def about(module: str) -> tuple[str, str]:
    """A heading and what follows it, out of the first sentence of a module's docstring."""
    first = (sys.modules[module].__doc__ or module).strip().split("\n")[0].rstrip(".")
    heading, _, rest = re.sub(r"^What is asked of ", "", first).partition(": ")
    return heading[:1].upper() + heading[1:], rest[:1].upper() + rest[1:]


def table(names: list[str]) -> list[str]:
    """A row a page: its name with a link, its title, its severity."""
    lines = ["| check | the rule | severity |", "|---|---|---|"]
    for name in names:
        page = pages.load(name)
        cells = (f"[{name}]({name}.md)", page.title, page.told.get("severity", ""))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


# The command line.


def options() -> str:
    """Every command with its arguments and options, as the command line declares them."""
    group = typer.main.get_command(cli.app)
    assert isinstance(group, click.Group)
    lines = ["# All options", "", "Made from the command line itself; `envkit COMMAND --help` prints the same.", ""]
    root = click.Context(group, info_name="envkit")
    for name, command in group.commands.items():
        context = click.Context(command, info_name=name, parent=root)
        lines += [f"## envkit {name}", "", (command.help or "").strip(), "", f"    :::text\n    {usage(context)}", ""]
        rows = [record for one, record in help_records(command, context) if one in command.params]
        lines += ["| option | |", "|---|---|"] if rows else []
        lines += [f"| `{cell(option)}` | {cell(says)} |" for option, says in rows]
        lines.append("")
    return "\n".join(lines)


def usage(context: click.Context) -> str:
    """The usage line of a command."""
    return f"{context.command_path} {' '.join(context.command.collect_usage_pieces(context))}"


def cell(text: str) -> str:
    """Text fit for a cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")
