"""The templates of pages for a browser, filled: every value escaped, foreign text by the filter ``visible``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envkit import __version__
from envkit.errors import EnvkitError
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


def attempted(name: str, make: Callable[[], object]) -> str:
    """Makes a page, or a file beside an answer; what went wrong and what to do in one sentence, "" if nothing did.

    An answer must not be lost for the picture of it, whatever a template raises.
    """
    try:
        make()
    except Exception as error:
        return _unmade(name, error)
    return ""


def _unmade(name: str, error: Exception) -> str:
    from envkit.system.files import shipped

    if isinstance(error, EnvkitError):
        return f"{name} was not written: {error.message}; {error.fix}"
    if isinstance(error, OSError) and error.strerror:  # a template that is not there has none
        return f"{name} was not written: {error.strerror}: {error.filename}; check its folder"
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    again = "install envkit again (pip install --force-reinstall envkit)"
    return f"{name} was not written, its template in {shipped('templates')} cannot be used ({said}); {again}"
