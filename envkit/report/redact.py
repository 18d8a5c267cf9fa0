"""Takes what looks like a credential out of a report before it is printed.

Reports end in build logs and bug reports, and their evidence is taken from environments, URLs and the output
of other people's programs.  The rules prefer hiding too much over showing one secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envkit.model import Finding, Report, Result, Subject

HIDDEN = "[hidden]"

# "token" must end there: TOKENIZERS_PARALLELISM and max_tokens are no secrets.  A name that says where a
# secret lies (TOKEN_FILE) is none either.  The lengths are bounded so that a long log takes linear time.
_NAME = (
    r"[\w.-]{0,99}?(?:token|passw(?:or)?d|passphrase|secret|credentials?|api[_-]?key|access[_-]?key|private[_-]?key)"
    r"(?![a-z])(?![\w-]{0,99}_(?:file|path|dir|name)\b)[\w-]{0,99}"
)
# A value that only refers to a variable gives nothing away, and the fixes of checks are full of them.
_REFERENCE = r"(?![\"']?\$(?:\w+|\{\w+\})[\"']?(?:[\s&`]|\Z))"
_VALUE = r"(?:(\")[^\"]*\"|(')[^']*'|[^\s\"'&`]+)"

_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # A log may cut a key off before its end line.
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        HIDDEN,
    ),
    # RFC 3986 userinfo.  A user alone goes too: tokens are passed that way.
    (re.compile(r"(://)[^\s/?#\"'`]{1,500}@"), rf"\1{HIDDEN}@"),
    # A password with a raw slash in it is no valid URL and is met; `host:5000/name@sha256:...` holds none.
    (re.compile(r"(://)[^\s/:@\"'`]+:(?![0-9]+/)[^\s@\"'`]{1,500}@"), rf"\1{HIDDEN}@"),
    (
        re.compile(
            r"(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"'`]+",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(rf"(?<![\w.-])({_NAME})(\s*=\s*|[\"']\s*[:=]\s*){_REFERENCE}{_VALUE}", re.IGNORECASE),
        rf"\1\2\3\4{HIDDEN}\3\4",
    ),
    (
        re.compile(
            rf"(?<!\S)(--?(?:[\w-]{{0,99}}-)?(?:password|passwd|token|api-key)\s+)(?!-){_REFERENCE}{_VALUE}",
            re.IGNORECASE,
        ),
        rf"\1\2\3{HIDDEN}\2\3",
    ),
    # A Dockerfile's older form, with a blank instead of "=".
    (
        re.compile(rf"^(\s*(?:ONBUILD\s+)?ENV\s+{_NAME}\s+){_REFERENCE}\S.*", re.IGNORECASE | re.MULTILINE),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(\bwandb\s+login\s+(?:--\S+\s+)*)[0-9a-f]{40}\b"), rf"\1{HIDDEN}"),
    # curl's own option; a user alone is asked for the password.
    (
        re.compile(r"(\bcurl\b[^\n]{0,500}?\s(?:-u|--user|--proxy-user)[\s=][\"']?[^\s:\"'$]{1,200}:)(?!\$)[^\s\"']+"),
        rf"\1{HIDDEN}",
    ),
    # Tokens known by their shape: GitHub, Hugging Face, GitLab, NVIDIA, AWS, Slack, OpenAI, PyPI, Google.
    (
        re.compile(
            r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,}|hf_[A-Za-z0-9]{30,}|glpat-[\w-]{20,}"
            r"|nvapi-[\w-]{40,}|A[KS]IA[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}|sk-(?:proj-|ant-)?[A-Za-z0-9_-]{32,}"
            r"|pypi-[\w-]{50,}|AIza[\w-]{35})"
        ),
        HIDDEN,
    ),
)


def redacted_text(text: str) -> str:
    """``text`` without the passwords, tokens and keys that can be told by their shape or their name."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def redacted(report: Report) -> Report:
    """The report with every text in it passed through ``redacted_text``.

    In ``observed``, a text under a key that names a secret is hidden whole.
    """
    return replace(
        report,
        subject=Subject(report.subject.kind, redacted_text(report.subject.name)),
        results=tuple(map(_result, report.results)),
        observed=_plain(report.observed),
        coverage=replace(report.coverage, gpus=tuple(map(redacted_text, report.coverage.gpus))),
    )


def _result(result: Result) -> Result:
    findings = tuple(map(_finding, result.findings))
    return replace(result, reason=redacted_text(result.reason), findings=findings)


def _finding(finding: Finding) -> Finding:
    evidence: dict[str, str] = {}
    for value, how in finding.evidence.items():
        key, via = redacted_text(value), redacted_text(how)
        # Two values may read the same once their secrets are gone; neither source may get lost.
        evidence[key] = f"{evidence[key]}; {via}" if key in evidence else via
    return replace(
        finding,
        message=redacted_text(finding.message),
        where=redacted_text(finding.where),
        evidence=evidence,
        fix=redacted_text(finding.fix),
    )


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        return HIDDEN if value and _SECRET_NAME.fullmatch(name) else redacted_text(value)
    if isinstance(value, Mapping):
        return {key: _plain(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, name) for item in value]
    return value
