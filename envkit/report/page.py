"""The templates of pages for a browser, filled: every value escaped, foreign text by the filter ``visible``."""

from __future__ import annotations

from collections.abc import Mapping

from envkit import __version__
from envkit.report.text import visible


def filled(template: str, values: Mapping[str, object]) -> str:
    """A page of the templates with these values, each of them escaped; its filter ``visible`` is for foreign text."""
    # Imported here: it takes longer than the whole of the other formats.
    import jinja2

    from envkit.system.files import shipped

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["visible"] = visible
    return environment.get_template(template).render({"version": __version__, **values})
