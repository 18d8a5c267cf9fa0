"""Turns one report into text for a person or a machine; reporters know no rule and decide nothing.

Every reporter gets the report after credentials were taken out of it, so none of them can print one.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from envkit.credentials import redacted_text
from envkit.errors import UsageError
from envkit.model import Report, Severity
from envkit.report import console, html
from envkit.report.console import Detail, Table
from envkit.report.html import Bar
from envkit.report.redact import redacted

DOCUMENTS = ("json", "junit", "html", "prometheus", "nagios")  # each a module, with the function `render`
FORMATS: tuple[str, ...] = ("console", *DOCUMENTS)

__all__ = ["DOCUMENTS", "FORMATS", "Bar", "Detail", "Table", "redacted", "redacted_text", "render"]


def render(
    report: Report,
    format: str = "console",
    *,
    fail_on: Severity = Severity.ERROR,
    tables: tuple[Table, ...] = (),
    bars: tuple[Bar, ...] = (),
    color: bool = False,
    width: int = 80,
    detail: Detail = Detail.NORMAL,
) -> str:
    """The report in one of ``FORMATS``, ending in a newline.

    ``fail_on`` is what the exit code goes by, so that the printed verdict is the same.  ``color``, ``width``
    (in columns) and ``detail`` are for the console alone, ``bars`` for the page of HTML, ``tables`` for both.
    Raises UsageError for a format that does not exist.
    """
    safe, shown = redacted(report), tuple(map(_without_credentials, tables))
    if format == "console":
        return console.render(safe, fail_on, shown, color, width, detail)
    if format == "html":
        return html.render(safe, fail_on, tuple(replace(bar, label=redacted_text(bar.label)) for bar in bars), shown)
    if format not in DOCUMENTS:
        raise UsageError(f"there is no format `{format}`", f"choose one of {', '.join(FORMATS)}")
    made: str = import_module(f"{__name__}.{format}").render(safe, fail_on)  # of five, each run needs one
    return made


def _without_credentials(table: Table) -> Table:
    rows = tuple(tuple(redacted_text(cell) for cell in row) for row in table.rows)
    return Table(redacted_text(table.title), table.columns, rows)
