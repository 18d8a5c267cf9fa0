"""Whether a project is a package, and what building it requires.

It counts as one where uv would install it (uv's documentation, "Build systems"): its pyproject.toml has a
[build-system], or says so by `package` in [tool.uv].
"""

from __future__ import annotations

import re
from pathlib import Path

from packaging.utils import canonicalize_name

from envkit.dockerfile.files import toml
from envkit.errors import UsageError, one_line
from envkit.plan import inputs
from envkit.system import files

FILE = "pyproject.toml"
OFF = "if it is no package, say so: [tool.uv] package = false"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")  # PyPA, "Names and normalization"
_USUAL = ["setuptools>=40.8.0"]  # PEP 518, where nothing is said


def of(folder: Path) -> tuple[str, ...]:
    """The name of the package in ``folder``, normalised, and what building it requires; nothing where it is none.

    Raises UsageError for a pyproject.toml that cannot be read or does not say it right.
    """
    path = folder / FILE
    try:
        table = toml(files.text(path, f"name the folder of a {FILE}"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {one_line(str(error))}", "fix the line named above") from error
    system, tool, project = (table.get(key, {}) for key in ("build-system", "tool", "project"))
    uv = tool.get("uv", {}) if isinstance(tool, dict) else {}
    wanted = uv.get("package", bool(system)) if isinstance(uv, dict) else bool(system)
    if not wanted:
        return ()
    name = project.get("name") if isinstance(project, dict) else None
    requires = system.get("requires", _USUAL) if isinstance(system, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"{path} has no `name` of a package in [project]", f"write one; {OFF}")
    if not isinstance(requires, list) or not all(isinstance(each, str) for each in requires):
        raise UsageError(f"{path}: `requires` of [build-system] must be a list of texts", f"correct it; {OFF}")
    said = (inputs.requirement(each, f"{path}: [build-system]") for each in requires)
    return str(canonicalize_name(name)), *sorted(set(said))
