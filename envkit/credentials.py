"""What a credential looks like: to take it out of what is printed or saved, and to find it where a person wrote it.

Reports and saved observations end in build logs and bug reports, and their evidence is taken from environments, URLs
and the output of other people's programs.  What hides prefers hiding too much over showing one secret; what finds
(``surely_names_secret`` and those below it) prefers silence over a complaint about a stand-in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from envkit.model import is_observation
from envkit.patterns import pattern

HIDDEN = "[hidden]"
SECRET = "a secret"  # in the evidence of a finding: what it marks is a secret itself

# "token" must end there: TOKENIZERS_PARALLELISM and max_tokens are no secrets.  A name that says where a
# secret lies (TOKEN_FILE) is none either.  The lengths are bounded so that a long log takes linear time.
_NAME = (
    r"[\w.-]{0,99}?(?:token|passw(?:or)?d|passphrase|secret|credentials?|api[_-]?key|access[_-]?key|private[_-]?key)"
    r"(?![a-z])(?![\w-]{0,99}_(?:file|path|dir|name)\b)[\w-]{0,99}"
)
# A value that only refers to a variable gives nothing away, and the fixes of checks are full of them.
_REFERENCE = r"(?![\"']?\$(?:\w+|\{\w+\})[\"']?(?:[\s&`]|\Z))"
_VALUE = r"(?:(\")[^\"]*\"|(')[^']*'|[^\s\"'&`]+)"

# With a colon the same words are also prose ("keep the secret: mount it"), references of images, mounts, annotations
# and the counts of logs ("time per token: 3.1").
_COLON_NAME = (
    r"[\w.-]{0,99}?(?:token|passw(?:or)?d|passphrase|secret|credentials?|api[_-]?key|access[_-]?key|private[_-]?key)"
    r"(?![a-z])(?![\w-]{0,99}_(?:file|path|dir|name)\b)(?:[0-9]{1,9}|_\w{0,99})?(?<!_)"
)
_NO_VALUE = (
    r"(?!:|\\?[\"']?(?:str|int|bytes|bool|none|null|true|false|optional)(?![\w-])"
    r"|(?-i:\.{0,2}/[a-z0-9_.-]+(?:[/:\s]|\Z)))"
)
_COUNT = r"(?![\w.-]{0,99}token[ \t]{0,9}:[ \t]{0,9}[0-9.]{1,7}(?:[a-z%]{0,3}/|[,;]?(?:\s|\Z)))"
_QUOTED = r"(\\?[\"'])[^\"'\n]{1,999}[\"']?"

_SECRET_NAME = pattern(_NAME, re.IGNORECASE)
# Of a variable these say enough; in running text the same words mean most often something else.
_SECRET_VARIABLE = pattern(r"[A-Z0-9_]*(?:KEY|AUTH|PASS|PWD|JWT|BEARER|CREDS?|COOKIE|_PAT)", re.IGNORECASE)
_NO_SECRETS = ("PWD", "OLDPWD")
# Tokens known by their shape: GitHub, Hugging Face, GitLab, NVIDIA, AWS, Slack, OpenAI, PyPI, npm, Google.
SHAPES = (
    r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,}|hf_[A-Za-z0-9]{30,}|glpat-[\w-]{20,}|nvapi-[\w-]{40,}"
    r"|A[KS]IA[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}|sk-(?:proj-|ant-)?[A-Za-z0-9_-]{32,}|pypi-[\w-]{50,}|AIza[\w-]{35}"
    r"|npm_[A-Za-z0-9]{36}"
)
# Each form, whatever its case where it begins with (?i), and what stands in its place.
_RULES = (
    # A log may cut a key off before its end line.
    (r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", HIDDEN),
    # RFC 3986 userinfo.  A user alone goes too: tokens are passed that way.
    (r"(://)[^\s/?#\"'`]{1,500}@", rf"\1{HIDDEN}@"),
    # A proxy may be named without a scheme.
    (r"(?i)(\b\w{0,20}_proxy[\"']?\s*[:=]\s*[\"']?)[^\s/@\"'`]{1,500}@", rf"\1{HIDDEN}@"),
    # A password with a raw slash in it is no valid URL and is met; `host:5000/name@sha256:...` holds none.
    (r"(://)[^\s/:@\"'`]+:(?![0-9]+/)[^\s@\"'`]{1,500}@", rf"\1{HIDDEN}@"),
    (r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"'`]+", rf"\1{HIDDEN}"),
    (r"(?i)(\bbearer\s+)[\w.~+/=-]{8,}", rf"\1{HIDDEN}"),
    # A JSON Web Token (RFC 7519): its head is an object in base64url, which begins so.
    (r"\beyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?", HIDDEN),
    (rf"(?i)(?<![\w.-])({_NAME})(\s*=\s*|[\"']\s*[:=]\s*){_REFERENCE}{_VALUE}", rf"\1\2\3\4{HIDDEN}\3\4"),
    (
        rf"(?i)(?<!\S)(--?(?:[\w-]{{0,99}}-)?(?:password|passwd|token|api-key)\s+)(?!-){_REFERENCE}{_VALUE}",
        rf"\1\2\3{HIDDEN}\2\3",
    ),
    # JSON within a text of JSON.
    (
        rf"(?i)(?<![\w.-])({_NAME}\\{{1,3}}[\"']\s{{0,9}}:\s{{0,9}}\\{{1,3}}[\"'])[^\"'\\]{{1,999}}",
        rf"\1{HIDDEN}",
    ),
    # "api_key:x" and "password :x".
    (
        rf"(?i)(?<![\w./-]){_COUNT}({_COLON_NAME}[ \t]{{0,9}}:)(?!\s){_NO_VALUE}{_REFERENCE}(?:{_QUOTED}|[^\s\"'&`]+)",
        rf"\1\2{HIDDEN}\2",
    ),
    # YAML's "token: x", where a line or a list's entry begins; of running text what is quoted, what has digits, and
    # what ends the line or stands before the next name.
    (
        rf"(?im)((?:^|[={{\[,;(\"'`|-])[ \t]{{0,40}}{_COUNT}{_COLON_NAME}[ \t]{{0,9}}:[ \t]{{1,40}}"
        rf"(?:(?:bearer|basic|token)[ \t]+)?){_NO_VALUE}{_REFERENCE}(?:{_QUOTED}|[^\s\"'&`]+)",
        rf"\1\2{HIDDEN}\2",
    ),
    (
        rf"(?im)(?<![\w./-]){_COUNT}({_COLON_NAME}[ \t]{{0,9}}:[ \t]{{1,40}}){_NO_VALUE}{_REFERENCE}(?:{_QUOTED}"
        r"|(?=[^\s\"'&`]{0,99}[0-9])[^\s\"'&`]{6,}|[^\s\"'&`]+(?=[ \t]*$|[ \t]+[\w-]{1,99}[ \t]*[:=]))",
        rf"\1\2{HIDDEN}\2",
    ),
    # A Dockerfile's older form, with a blank instead of "=".
    (rf"(?im)^(\s*(?:ONBUILD\s+)?ENV\s+{_NAME}\s+){_REFERENCE}\S.*", rf"\1{HIDDEN}"),
    # Lines of name:password on their way to chpasswd.
    (
        r"(\b(?:echo|printf)\s[^\n|:]{0,200}:)(?!\$)[^\n|]{1,200}?(?=[\"']?\s{0,9}\|[^\n|]{0,99}\bchpasswd\b)",
        rf"\1{HIDDEN}",
    ),
    # A line of .netrc, or what prints one.
    (r"(?i)(\blogin\s+\S{1,200}\s+password\s+)(?!\$)[^\s\"']+", rf"\1{HIDDEN}"),
    (r"(?i)([\"']password\s+)(?!\$)[^\s\"']+(?=[\"'])", rf"\1{HIDDEN}"),
    (r"(\bwandb\s+login\s+(?:--\S+\s+)*)[0-9a-f]{40}\b", rf"\1{HIDDEN}"),
    # curl's own option; a user alone is asked for the password.
    (
        r"(\bcurl\b[^\n]{0,500}?\s(?:-u|--user|--proxy-user)[\s=][\"']?[^\s:\"'$]{1,200}:)(?!\$)[^\s\"']+",
        rf"\1{HIDDEN}",
    ),
    # Options of other programs that take a password: mysql's -p has it in the same word.
    (r"(\bsshpass\s+(?:-v\s+)?-p\s?[\"']?)(?!\$)[^\s\"']+", rf"\1{HIDDEN}"),
    (
        r"(\b(?:mysql|mariadb)(?:-?(?:dump|admin|import|check))?\s(?:[^\n|;&]{0,300}?\s)?-p)(?![\s$]|[\"']\$)[^\s]+",
        rf"\1{HIDDEN}",
    ),
    (r"(\b(?:useradd|usermod)\s[^\n|;&]{0,300}?(?<=\s)(?:-p|--password)[\s=][\"']?)(?!\$)[^\s\"']+", rf"\1{HIDDEN}"),
    (r"(\bredis-cli\s[^\n|;&]{0,300}?(?<=\s)(?:-a|--pass)[\s=][\"']?)(?!\$)[^\s\"']+", rf"\1{HIDDEN}"),
    (
        r"(\becho\s+(?:-\w+\s+)?[\"']?)(?!\$)[^\s|\"'\[]{1,200}(?=[\"']?\s*\|\s*(?:sudo\s+)?passwd\s+--stdin)",
        rf"\1{HIDDEN}",
    ),
    (r"(\bchpasswd\b[^\n]{0,60}<<<\s*[\"']?[^\s:\"']{1,99}:)(?!\$)[^\s\"']+", rf"\1{HIDDEN}"),
    (rf"\b(?:{SHAPES})", HIDDEN),
)
# In small letters; each form holds one of them. Most texts hold none, and to look for all forms takes far longer.
_MARKS = (
    "://", "_proxy", "authorization", "bearer", "eyj", "token", "passw", "passphrase", "secret", "credential", "key",
    "wandb", "curl", "sshpass", "mysql", "mariadb", "useradd", "usermod", "redis-cli",
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "hf_", "glpat-", "nvapi-", "akia", "asia",
    "xox", "sk-", "pypi-", "aiza", "npm_",
)  # fmt: skip


def redacted_text(text: str) -> str:
    """``text`` without the passwords, tokens and keys that can be told by their shape or their name."""
    if text.isascii():  # else small letters may be others than those that re.IGNORECASE takes for the same
        small = text.lower()
        if not any(mark in small for mark in _MARKS):
            return text
    return _hidden(text)


def _hidden(text: str) -> str:
    for form, replacement in _compiled():
        text = form.sub(replacement, text)
    return text


@cache
def _compiled() -> list[tuple[re.Pattern[str], str]]:
    """The forms, compiled where a text with a mark comes first: it takes 8 ms, and most runs have none."""
    return [(re.compile(form), replacement) for form, replacement in _RULES]


def names_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, and not where one lies."""
    if name.upper() in _NO_SECRETS:
        return False
    return bool(_SECRET_NAME.fullmatch(name) or _SECRET_VARIABLE.fullmatch(name))


def redacted_value(name: str, value: str) -> str:
    """The value of a variable as it may be shown: hidden whole where its name says that it is a secret, and where the
    assignment as a whole reads like one."""
    if value and names_secret(name):
        return HIDDEN
    shown = redacted_text(f"{name}={value}")
    return shown.removeprefix(f"{name}=") if shown.startswith(f"{name}=") else HIDDEN


def redacted_plain(plain: Any) -> Any:
    """Plain data, a saved subject or what a report observed, with every text and key passed through ``redacted_text``.

    A text under a key that names a secret is hidden whole, and so is the value of a variable of such a name.
    """
    return _plain(plain)


_VARIABLE = {"name", "value"}


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        return redacted_value(name, value) if name else redacted_text(value)
    if isinstance(value, Mapping):
        if is_observation(value):  # what was observed of the thing that the key above names
            return {key: _plain(item, name if key == "value" else "") for key, item in value.items()}
        if value.keys() >= _VARIABLE and isinstance(value["name"], str):
            return {key: _plain(item, value["name"] if key == "value" else str(key)) for key, item in value.items()}
        return {redacted_text(str(key)): _plain(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, name) for item in value]
    return value


# Found in files that people write.

_TOKEN = pattern(rf"(?<![A-Za-z0-9_])(?:{SHAPES})|-----BEGIN [A-Z ]*PRIVATE KEY-----")
_CERTAIN_NAME = pattern(
    r"(?:^|_)(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|SECRET|SECRETS|CREDENTIALS?|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY"
    r"|SECRET_?KEY|AUTH_?KEY|LICENSE_?KEY|KEY_?SECRET|(?:SSH|PRV|PRIV|PRIVATE_SSH|DEPLOY|RSA)_?KEY|ID_(?:RSA|ED25519)"
    r"|(?:GIT|GH|GITHUB|GITLAB|AZURE|DEVOPS)_PAT)(?:$|_(?!FILE|PATH|DIR|NAME|ID|URL|TYPE|LENGTH|LEN|LIMIT|TTL|COUNT"
    r"|SIZE|TIMEOUT|EXPIR|HOST|PORT|PARALLEL|POLICY|MIN|MAX|METHOD|MODE))",
    re.IGNORECASE,
)
# PASS stands at the end of other words too (bypass, compass).
_GLUED = pattern(
    r"(?:APIKEY|PASSWORD|PASSWD|SECRETKEY|ACCESSKEY|AUTHTOKEN)$"
    r"|(?:^|_)(?:MY|DB|ROOT|ADMIN|USER|SUDO|SSH|VNC|FTP|SMTP|MAIL|MYSQL|PG|POSTGRES|REDIS|MONGO)PASS$",
    re.IGNORECASE,
)
_LONGEST = 200  # characters of a name or value that are looked at; no secret of a person is longer
_NO_CERTAIN_NAME = pattern(
    r"^(?:OLD)?PWD$|APPLICATION_CREDENTIALS$|(?:^|_)PUB(?:LIC)?(?:_|$)"
    r"|^MAX_|^NUM_|_(?:DIR|FILE|PATH|URL|ID)$|TOKENIZER|NO_?PASS|WITHOUT_PASSWORD",
    re.IGNORECASE,
)
_STAND_INS = """
    your my the a an some insert enter put add change changeme replace fill set use example sample dummy fake test
    testing foo bar foobar todo placeholder redacted secret secrets password passwd pass pwd token tokens key keys none
    null nil false true yes no empty default undefined na here me it this api apikey access auth hf wandb huggingface
    github build time only not real value string user admin root postgres mysql redis docker jupyter notebook hidden
    sk pk id abc abcd abcdef qwerty letmein welcome local localhost dev demo"""
_STAND_IN_WORDS = frozenset(_STAND_INS.split())
_COUNTED = pattern(r"(?:0+|1?2?3?4?5?6?7?8?9?0?|(?:123)+|1+|9+)\Z")


def surely_names_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, and not where one lies or how long it is."""
    if len(name) > _LONGEST:
        return False
    return bool((_CERTAIN_NAME.search(name) or _GLUED.search(name)) and not _NO_CERTAIN_NAME.search(name))


def shape_in(text: str) -> re.Match[str] | None:
    """The first token in a text that is known by its shape and is no example of one."""
    for found in _TOKEN.finditer(text):
        body = found[0].rpartition("_")[2] or found[0]
        example = re.search(r"x{6}|X{6}|1234567|abcdef|EXAMPLE|your", body)
        if found[0].startswith("-") or (len(set(body)) > 5 and not example):
            return found
    return None


def placeholder(value: str) -> bool:
    """Whether a value stands for a secret that is to be put there, or is none that anybody could guard.

    Words without a digit are taken for stand-ins: secrets that programs make have digits.
    """
    text = value.strip()[:_LONGEST].strip("\"'")
    if len(text) < 6 or len(set(text)) < 4 or not re.search(r"[0-9]", text):
        return True
    if re.search(r"[<>{}\[\]$]|\.\.\.|%\w+%", text):
        return True
    words, numbers = re.findall(r"[A-Za-z]+", text), re.findall(r"[0-9]+", text)
    plain = all(word.lower() in _STAND_IN_WORDS or len(set(word.lower())) == 1 for word in words)
    return plain and all(_COUNTED.match(number) for number in numbers)


def plain_password(value: str) -> bool:
    """Whether a value is one word that a person may have chosen as a password, and no stand-in for one."""
    text = value.strip()[:_LONGEST].strip("\"'")
    if not re.fullmatch(r"[\w!@#%&*+=.:-]{5,64}", text) or len(set(text)) < 4:
        return False
    words = [word.lower() for word in re.findall(r"[A-Za-z]+", text)]
    return bool(words) and not all(word in _STAND_IN_WORDS for word in words)


def looks_real(value: str) -> bool:
    """Whether a value is long and mixed as only generated secrets are."""
    text = value.strip().strip("\"'")
    mixed = re.search(r"[0-9]", text) and re.search(r"[A-Za-z]", text) and " " not in text
    return len(text) >= 16 and bool(mixed)


def looks_chosen(value: str) -> bool:
    """Whether a value is a shorter one that follows the rules for passwords: small and capital letters and digits."""
    text = value.strip()[:_LONGEST].strip("\"'")
    kinds = (r"[0-9]", r"[a-z]", r"[A-Z]")
    return len(text) >= 8 and " " not in text and all(re.search(kind, text) for kind in kinds)
