"""Which pip a command runs, as far as it matters: whether it refuses what does not fit together, or only says so."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envkit.dockerfile.pythons import SYSTEM
from envkit.dockerfile.requirements import allows
from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import apart
from envkit.model import Severity
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Dockerfile, Install
from envkit.versions import Python, Torch

# The first pip that refuses what does not fit; those before install it and say so.  Source: pip, news of 20.3.
RESOLVES = "20.3"
# Whose python3-pip is older.  Source: the packages python3-pip of Ubuntu and Debian.
_OLD_SYSTEMS = frozenset({"ubuntu16.04", "ubuntu18.04", "ubuntu20.04", "debian9", "debian10"})
# Each newer Python came out with a newer pip, and for each older one that is no Python 2 there is a newer pip.
_ALWAYS = Python("3.10")
_PYTHON3 = Python("3.5")
# The patch releases whose images were last built with an older pip.  Source: docker-library/python, PYTHON_PIP_VERSION.
_LAST_OLD_PATCH = {"3.6": 12, "3.7": 9, "3.8": 6, "3.9": 0}
# The first release of Miniconda and of its images with a newer pip.  Source: anaconda, the packages of Miniconda 4.9.2
# (pip 20.2.4) and 4.10.3 (21.1.3).
_CONDA_SINCE = (4, 10, 3)
_CONDA_RELEASE = pattern(r"(\d+)\.(\d+)\.(\d+)")
# TensorFlow's images pin `pip<20.3`.  Source: tensorflow/tensorflow, tools/dockerfiles, from 2.4 to 2.11.
_TENSORFLOWS = "tensorflow/tensorflow"
_GET_PIP = pattern(r"get[-_]?pip")


def refuses(dockerfile: Dockerfile, one: Install, facts: Facts) -> bool | None:
    """Whether the installer of ``one`` refuses releases that do not fit together: False where pip is known to be older
    than the resolver, None where the text does not say which pip it is."""
    if one.manager != "pip":
        return True
    python = Python(one.python) if one.python else None
    order = list(dockerfile.installs)
    before = order[: order.index(one)] if one in order else order
    for pip in reversed([each for each in before if _is_pip(each, one)]):
        taken = _taken(pip, python)
        if taken is not None:
            return taken
    if python is not None and python >= _PYTHON3 and any(_GET_PIP.search(step.value) for step in dockerfile.steps):
        return True
    steps = ((stage.base, step) for stage in dockerfile.stages for step in stage.steps)
    base = next((base for base, step in steps if one in step.installs), dockerfile.base)
    return _of_base(base, one, python, before, facts)


def of_one_command(dockerfile: Dockerfile, one: Install, facts: Facts) -> tuple[Severity, str]:
    """What comes of two that do not fit in one command: pip refuses them only since it has a resolver."""
    refused = refuses(dockerfile, one, facts)
    if refused:
        return Severity.ERROR, f", so that {one.manager} refuses the two and the build ends here"
    if refused is None:
        return Severity.WARNING, f", and pip since {RESOLVES} refuses the two; an older one installs them all the same"
    return Severity.WARNING, f", and the pip here, older than {RESOLVES}, installs the two all the same"


def _is_pip(each: Install, one: Install) -> bool:
    """Whether an install surely is one of pip into the same environment."""
    here = not each.prefix or not one.prefix or each.prefix == one.prefix
    return each.name == "pip" and each.sure and here and not each.constraint


def _taken(pip: Install, python: Python | None) -> bool | None:
    """Whether an install of pip brings one with the resolver, None where it may leave the one that is there."""
    if pip.version:
        return allows(f">={RESOLVES}", pip.version)
    if pip.specifier and allows(pip.specifier, "20.3.4") is False and allows(pip.specifier, "99") is False:
        return False if "--upgrade" in pip.options else None
    if "--upgrade" not in pip.options and allows(pip.specifier or ">=0", "20.2.4") is not False:
        return None if pip.manager != "conda" else True
    return python >= _PYTHON3 if python is not None else True


def _of_base(base: Base, one: Install, python: Python | None, before: Sequence[Install], facts: Facts) -> bool | None:
    """By what the image and the distribution's packages bring."""
    system = stack.said(base.os)
    if python is not None and python >= _ALWAYS and apart(one.prefix):
        return True  # a virtual environment has the pip that came out with its Python, not the system's
    old_system = system in _OLD_SYSTEMS and base.family in ("os", "nvidia")
    if old_system and (one.prefix == SYSTEM or apart(one.prefix)) and "conda" not in one.prefix:
        return False
    if python is not None and python >= _ALWAYS:
        return True
    if python is not None and python < _PYTHON3:
        return False
    if "/envs/" in one.prefix:
        return True  # conda takes the newest for its Python
    if base.family == "pytorch":
        release = stack.said(base.torch)
        return (
            True if not release or Torch(release) >= Torch(facts.milestone("pytorch-image-resolver").release) else None
        )
    if base.repository == _TENSORFLOWS:
        return False
    if base.family == "python":
        return _of_python(base)
    if base.family == "conda" or "conda" in one.prefix or "forge" in one.prefix:
        brought = [each for each in before if each.manager == "source" and each.prefix == one.prefix]
        return _of_conda(base.tag if base.family == "conda" else brought[-1].version if brought else "latest")
    return True if base.family in ("os", "nvidia") and system and not old_system else None


def _of_python(base: Base) -> bool | None:
    version = re.fullmatch(r"(\d+\.\d+)\.(\d+)", base.python.value or "")
    if version is None:
        return not base.python.value or Python(base.python.value) > _PYTHON3
    return None if int(version[2]) <= _LAST_OLD_PATCH.get(version[1], -1) else True


def _of_conda(release: str) -> bool | None:
    found = _CONDA_RELEASE.search(release)
    if found is None:
        return True if release.partition("-")[0] in ("", "latest") else None
    return tuple(map(int, found.groups())) >= _CONDA_SINCE
