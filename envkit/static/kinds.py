"""Which kind of file a file is, by its name, and where that says little, by its text."""

from __future__ import annotations

import re

from envkit.patterns import pattern

# kind -> what a person calls it
KINDS = {
    "dockerfile": "Dockerfile",
    "requirements": "pip requirements file",
    "pyproject": "pyproject.toml",
    "uv-lock": "uv.lock",
    "conda": "conda environment file",
    "compose": "compose file",
    "kubernetes": "Kubernetes manifest",
    "devcontainer": "devcontainer.json",
    "workflow": "GitHub workflow",
    "apptainer": "Apptainer definition",
    "slurm": "Slurm batch script",
    "helm": "Helm values",
    "makefile": "Makefile",
    "spec": "envkit.toml",
    "lock": "envkit.lock",
}
_NAMES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "dockerfile",
        pattern(r"(?!.*\.dockerignore$)(?:(?:docker|container)file(?:[._-].*)?|.*[._-](?:docker|container)file)", re.I),
    ),
    ("requirements", pattern(r"(?:.*[._-])?(?:requirements|constraints)(?:[._-].*)?\.(?:txt|in)", re.I)),
    ("pyproject", pattern(r"pyproject\.toml")),
    ("uv-lock", pattern(r"uv\.lock")),
    ("spec", pattern(r"envkit\.toml")),
    ("lock", pattern(r"envkit\.lock")),
    ("compose", pattern(r"(?:docker-)?compose(?:[._-].*)?\.ya?ml", re.I)),
    ("devcontainer", pattern(r"\.?devcontainer\.json")),
)
BY_TEXT = ("yaml", "script")  # in place of a kind: the name leaves open what only the text can tell
_YAML = pattern(r".*\.ya?ml", re.I)
_DEFINITION = pattern(r".*\.def|(?:Singularity|Apptainer)(?:[._-].*)?")
_MAKEFILE = pattern(r"(?:GNUm|[Mm])akefile|.*\.mk")
_SCRIPT = pattern(r".*\.(?:sh|bash|sbatch|slurm|job)", re.I)
_VALUES = pattern(r"(?:.*[-_.])?values(?:[-_.].*)?\.ya?ml", re.I)
_TEXT: tuple[tuple[str, tuple[re.Pattern[str], ...]], ...] = (
    ("kubernetes", (pattern(r"^apiVersion\s*:", re.M), pattern(r"^kind\s*:", re.M))),
    ("conda", (pattern(r"^dependencies\s*:", re.M), pattern(r"^(?:channels|name|prefix)\s*:", re.M))),
    ("compose", (pattern(r"^services\s*:", re.M),)),
)
_GPU = pattern(r"torch|cuda|nvidia|gpu", re.I)  # a workflow, say, that has none of these is no concern of envkit's
_WORKFLOW = (pattern(r"^jobs\s*:", re.M), pattern(r"^[\"']?on[\"']?\s*:", re.M))
_CHART = pattern(r"^\s*(?:repository|image)\s*:\s*\S", re.M)
_BOOTSTRAP = pattern(r"^\s*bootstrap\s*:", re.I | re.M)
_STARTS_IMAGES = pattern(r"\b(?:docker|podman)\s+(?:[\w-]+\s+)?(?:build|run|create)\b")
_BATCH = pattern(r"^#SBATCH\s", re.M)
_RUNS = pattern(
    r"\b(?:singularity|apptainer)\b.*\b(?:exec|run|shell)\b|--container-image|\b(?:docker|podman)\s+run\b"
    r"|\bpip3?\s+install\b"
)
_FROM = pattern(r"^\s*FROM\s+\S", re.I | re.M)
_LEAST = 65_536  # characters that are looked at; whatever a file is, it says so by then


def by_name(name: str) -> str:
    """The kind that a file's name promises, one of BY_TEXT where only the text can tell, "" for none."""
    for kind, shape in _NAMES:
        if shape.fullmatch(name):
            return kind
    if _YAML.fullmatch(name):
        return "yaml"
    return "script" if any(shape.fullmatch(name) for shape in (_SCRIPT, _MAKEFILE, _DEFINITION)) else ""


def by_text(text: str, name: str = "") -> str:
    """The kind that a file's text shows, "" for none that envkit knows."""
    head = text[:_LEAST]
    if not name or _YAML.fullmatch(name):
        for kind, shapes in _TEXT:
            if all(shape.search(head) for shape in shapes):
                return kind
        if all(shape.search(head) for shape in _WORKFLOW):
            return "workflow" if _GPU.search(text) else ""
        if _VALUES.fullmatch(name) and _CHART.search(head) and _GPU.search(text):
            return "helm"
    if _BOOTSTRAP.search(head) and (not name or _DEFINITION.fullmatch(name)):
        return "apptainer"
    if _BATCH.search(head) and _RUNS.search(text) and (not name or _SCRIPT.fullmatch(name)):
        return "slurm"
    if _MAKEFILE.fullmatch(name) and _STARTS_IMAGES.search(text):
        return "makefile"
    return "dockerfile" if by_name(name) not in BY_TEXT and _FROM.search(head) else ""
