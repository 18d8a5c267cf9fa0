"""Which kind of file a file is, by its name, and where that says little, by its text."""

from __future__ import annotations

import re

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
    "spec": "envkit.toml",
    "lock": "envkit.lock",
}
_NAMES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "dockerfile",
        re.compile(
            r"(?!.*\.dockerignore$)(?:(?:docker|container)file(?:[._-].*)?|.*[._-](?:docker|container)file)", re.I
        ),
    ),
    ("requirements", re.compile(r"(?:.*[._-])?(?:requirements|constraints)(?:[._-].*)?\.(?:txt|in)", re.I)),
    ("pyproject", re.compile(r"pyproject\.toml")),
    ("uv-lock", re.compile(r"uv\.lock")),
    ("spec", re.compile(r"envkit\.toml")),
    ("lock", re.compile(r"envkit\.lock")),
    ("compose", re.compile(r"(?:docker-)?compose(?:[._-].*)?\.ya?ml", re.I)),
    ("devcontainer", re.compile(r"\.?devcontainer\.json")),
)
_YAML = re.compile(r".*\.ya?ml", re.I)
_TEXT: tuple[tuple[str, tuple[re.Pattern[str], ...]], ...] = (
    ("kubernetes", (re.compile(r"^apiVersion\s*:", re.M), re.compile(r"^kind\s*:", re.M))),
    ("conda", (re.compile(r"^dependencies\s*:", re.M), re.compile(r"^(?:channels|name|prefix)\s*:", re.M))),
    ("compose", (re.compile(r"^services\s*:", re.M),)),
)
_FROM = re.compile(r"^\s*FROM\s+\S", re.I | re.M)
_LEAST = 65_536  # characters that are looked at; whatever a file is, it says so by then


def by_name(name: str) -> str:
    """The kind that a file's name promises, "yaml" where only the text can tell, "" for none."""
    for kind, pattern in _NAMES:
        if pattern.fullmatch(name):
            return kind
    return "yaml" if _YAML.fullmatch(name) else ""


def by_text(text: str, name: str = "") -> str:
    """The kind that a file's text shows, "" for none that envkit knows."""
    head = text[:_LEAST]
    if not name or _YAML.fullmatch(name):
        for kind, patterns in _TEXT:
            if all(pattern.search(head) for pattern in patterns):
                return kind
    return "dockerfile" if not _YAML.fullmatch(name or "x") and _FROM.search(head) else ""
