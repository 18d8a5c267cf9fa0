"""Takes out of a recorded machine what would tell whose it is: names, serial numbers, UUIDs and addresses.

Each gets a placeholder of the same form, the same one wherever it occurs, so that what belonged together still does and
a check says of the placeholders what it said of the originals.

A machine is redacted by default: after what is known by its form or its place, each word of every text is kept only if
envkit itself uses it where it reads and judges machines, or if it is a number, a version or the kernel's name of a
device.  No check can ask for a word that envkit does not have, so nothing that is judged goes; any other word, whoever
put it there, gets a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from envkit.model import is_observation

_HEX = "[0-9a-fA-F]"
_UUID = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"  # a driver's version has four numbers too, but larger ones
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"\b{_UUID}\b"), "00000000-0000-0000-0000-{:012x}"),
    (re.compile(rf"\b{_HEX}{{32}}\b"), "{:032x}"),  # machine-id, boot id
    (re.compile(rf"\b0x{_HEX}{{16}}\b"), "0x{:016x}"),  # a GUID or WWN
    # a GUID or GID of InfiniBand, then MAC addresses: the longer form first
    (re.compile(rf"\b{_HEX}{{4}}(?::{_HEX}{{4}}){{7}}\b"), "0000:0000:0000:0000:0000:0000:0000:{:04x}"),
    (re.compile(rf"\b{_HEX}{{4}}(?::{_HEX}{{4}}){{3}}\b"), "0000:0000:0000:{:04x}"),
    (re.compile(rf"\b{_HEX}{{2}}(?::{_HEX}{{2}}){{5}}\b"), "02:00:00:00:00:{:02x}"),  # locally administered
    (re.compile(rf"\benx{_HEX}{{12}}\b"), "enx02{:010x}"),  # systemd's name of an interface by its MAC address
    (re.compile(rf"(?<![\d.])(?!127\.|0\.0\.0\.0)(?:{_OCTET}\.){{3}}{_OCTET}(?![\d.])"), "192.0.2.{}"),  # RFC 5737
    (re.compile(r"(?<=://)[^\s/:]+(?=[:/]|\Z)"), "server-{}"),  # with its user, if it has one
)
_IPV6 = re.compile(rf"(?<![\w:.])(?={_HEX}*:){_HEX}*(?::{_HEX}*){{2,7}}(?![\w:])")
_SERVER = re.compile(r"\A(?://)?([^\s:/]+)(?=:/|/)")  # of a network file system: server:/path or //server/share
_LEAST_NAME = 3  # characters: a shorter host name occurs by chance in other words
_SERIALS = ("serial", "board_serial")
_SERVERS = ("MASTER_ADDR", "server")
_USERS = ("USER", "LOGNAME")
_HOME = re.compile(r"/(?:home|Users)/([^/:\s\"']+)")
# Names of accounts and machines that tell nobody, and that mean something else where they occur.
_EVERYBODY = {
    "root", "user", "admin", "nvidia", "docker", "containerd", "ubuntu", "debian", "kernel", "gpu", "localhost",
}  # fmt: skip
_VERSIONS = ("packages", "driver_packages")  # some have four small numbers, like an address


class _Known:
    """What is to be hidden wherever it occurs, and the placeholders that were given."""

    def __init__(self, plain: Mapping[str, Any]) -> None:
        found = list(_leaves(plain, ""))
        names = {text for key, text in found if key == "hostname"} | {str(plain.get("name", ""))}
        names |= {name.partition(".")[0] for name in names}
        users = {text for key, text in found if key in _USERS}
        users |= {user for _, text in found for user in _HOME.findall(text)}
        self.given: dict[str, str] = {}
        self.names = _any(one for one in names - _EVERYBODY if len(one) >= _LEAST_NAME)
        self.users = _any(users - _EVERYBODY)
        self.serials = _any(text for key, text in found if key in _SERIALS and len(text) > _LEAST_NAME)

    def word(self, found: str, of_a_name: bool) -> str:
        """A word as it may stand in a redacted machine; ``of_a_name`` where a machine or its address is named, which a
        common word may do too."""
        common = found.lower() in (_OF_ADDRESSES if of_a_name else _vocabulary())
        if common or _FORMS.fullmatch(found):
            return found
        return self.stand_in(found, "word{}")

    def stand_in(self, found: str, form: str) -> str:
        """The placeholder of ``found``, in this form."""
        if not found.strip("0-:x"):  # nothing but zeros: it says that there is none
            return found
        if found.lower() not in self.given:
            number = 1 + sum(other.startswith(f"{form} ") for other in self.given.values())
            self.given[found.lower()] = f"{form} {form.format(number)}"
        return self.given[found.lower()].removeprefix(f"{form} ")

    def hiding(self, form: str) -> Callable[[re.Match[str]], str]:
        """What re.sub takes to put placeholders of this form in place of what is found."""
        return lambda found: self.stand_in(found[0], form)


def _any(words: Iterator[str] | set[str]) -> str:
    """A pattern for each of the words, the longest first; one that never matches if there is none."""
    return "|".join(re.escape(word) for word in sorted(filter(None, words), key=len, reverse=True)) or r"(?!)"


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Each text with the key that it stands under, and each key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for inner, item in value.items():
            yield "", str(inner)
            yield from _leaves(item, key if inner == "value" else str(inner))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item, key)


def machine(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The machine, as plain data, under placeholders; names of users in paths go too."""
    known = _Known(plain)
    return {**_kept_words(_walk(plain, "", known), known), "name": "machine"}


# What envkit knows of machines: the words in these files are anybody's.
_KNOWLEDGE = (
    *("facts/*.jsonl", "logs/signatures/*.jsonl", "host/*.jsonl"),
    *("host/*.py", "subjects/host/*.py", "judging/checks/*host*.py"),
)
_WORD = re.compile(r"\w+")
_NAMES_PLACES = re.compile(r"(?:^|_)(?:proxy|host|hostname|addr|address|server|url|uri|endpoint)(?:$|_)", re.IGNORECASE)
_OF_ADDRESSES = {"http", "https", "tcp", "socks5", "localhost", "machine"}  # and what _FORMS has
# Words that no list can hold: short ones and numbers; ids of PCI; what the kernel and systemd call devices; parts of
# versions; and the placeholders themselves.
_FORMS = re.compile(
    r"\w{1,2}|\d{1,10}|0x[0-9a-f]{1,8}|0{5,}[0-9a-f]*|enx02[0-9a-f]{10}"
    r"|nvidia\d{1,3}|nvme\d{1,2}(?:n\d{1,2}(?:p\d{1,2})?)?|[hsvx]+d[a-z]\d{0,2}|md\d{1,3}|raid\d{1,2}|mc\d{1,2}"
    r"|(?:mlx|bnxt|irdma|rxe|efa)\d?_?\d{1,2}|dm|zram\d{1,2}|(?:eth|bond|docker|ib|tun|br|card|renderD|cpu)(?:0|[1-9]\d?)|gpu(?:\d|1[0-5])"
    r"|(?:en|ib|wl)(?:o\d{1,3}|s\d{1,3}|p\d{1,3}s\d{1,3})(?:f\d{1,2})?(?:d\d{1,2})?(?:np?\d{1,2})?(?:v\d{1,3})?"
    r"|(?:\d{0,4}(?:ubuntu|debian|deb|nmu|dfsg|bpo|build|rc|beta|el|fc|git)\d{1,4})+|server|host|word\d+",
    re.IGNORECASE,
)


@cache
def _vocabulary() -> frozenset[str]:
    here = Path(__file__).parents[1]
    files = [path for pattern in _KNOWLEDGE for path in sorted(here.glob(pattern))]
    return frozenset(word.lower() for path in files for word in _WORD.findall(path.read_text("utf-8")))


def _kept_words(value: Any, known: _Known, key: str = "") -> Any:
    if isinstance(value, str):
        names = _NAMES_PLACES.search(key) and (key.isupper() or key.lower().endswith("_proxy"))
        return _WORD.sub(lambda found: known.word(found[0], bool(names)), value)
    if isinstance(value, Mapping):
        return {_kept_words(str(inner), known): _kept_words(item, known, str(inner)) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kept_words(item, known, key) for item in value]
    return value


def _walk(value: Any, key: str, known: _Known) -> Any:
    if isinstance(value, str):
        return _text(value, key, known)
    if isinstance(value, Mapping):
        if is_observation(value):
            return {inner: _walk(item, key if inner == "value" else "", known) for inner, item in value.items()}
        version = key if key in _VERSIONS else ""
        return {
            _text(str(inner), version, known): _walk(item, version or str(inner), known)
            for inner, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_walk(item, key, known) for item in value]
    return value


def _text(text: str, key: str, known: _Known) -> str:
    if key in _SERIALS and text:
        return known.stand_in(text, "serial-{}")
    if key == "hostname" and text:
        return text if text in _EVERYBODY else "machine"
    text = re.sub(rf"(?<![\w-])(?:{known.names})(?:\.[A-Za-z][\w-]*)*(?![\w-])", "machine", text)
    if key in _SERVERS and text and not _local(text):
        return known.stand_in(text, "server-{}")
    if key == "device":
        text = _SERVER.sub(lambda found: found[0].replace(found[1], known.stand_in(found[1], "server-{}")), text)
    text = re.sub(rf"(?<![\w-])(?:{known.serials})(?![\w-])", known.hiding("serial-{}"), text)
    for pattern, form in _RULES if key not in _VERSIONS else ():
        text = pattern.sub(known.hiding(form), text)
    text = _IPV6.sub(lambda found: _address(found[0], known), text)
    text = re.sub(rf"(?<=/)(?:{known.users})(?=[/:\s\"']|\Z)|\A(?:{known.users})\Z", "user", text)
    return re.sub(rf"(?<![\w.-])(?:{known.users})@", "user@", text)


def _local(text: str) -> bool:
    return text in ("localhost", "machine", "::1", "0.0.0.0") or text.startswith("127.")


def _address(text: str, known: _Known) -> str:
    try:
        address = ip_address(text)
    except ValueError:  # a time, or the bus number of a device
        return text
    if address.is_loopback or address.is_unspecified or int(address) < 1 << 16:  # or a placeholder
        return text
    return known.stand_in(text, "2001:db8::{:x}")  # RFC 3849


# What logs say of people and machines beside what a machine's own record says.
_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}(?![\w.])"), "user-{}@example.com"),
    (re.compile(r"(?<=://)[^\s/:@]{1,255}(?=[:/]|\Z)"), "server-{}"),
    (re.compile(rf"\b{_HEX}{{64}}\b"), "{:064x}"),  # a container's id
)
_SERIAL_SAID = re.compile(r"(?i)\b(serial(?:[ _]number)?[ \t]{0,60}[:=][ \t]{0,9})([\w-]{4,40})")
_SERVER_SAID = re.compile(r"(?<=MASTER_ADDR=)[\w.-]{3,253}|(?<=rdzv_endpoint=)[\w.-]{3,253}")
_USER_SAID = re.compile(r"(?:\b(?:USER|LOGNAME|user|username)=|\bUserId=)[\"']?([A-Za-z_][\w.-]{2,31})")
_PROMPT = re.compile(r"\b([A-Za-z_][\w-]{1,31})@([A-Za-z][\w-]{2,62})(?=[: ][~/\]])")
# what may follow a machine's name; what follows it in the name of a file is none
_DOMAIN = r"(?:\.(?!(?:log|err|out|txt|json|gz|py|sh)\b)[A-Za-z][\w-]{0,62}){0,5}"
_KEPT = ("role", "category", "cause", "clock", "source", "level")  # words of envkit's own


def words(plain: Any, hosts: Iterable[str]) -> Any:
    """Plain data that quotes logs, under placeholders; ``hosts`` are machines that the logs' prefixes name."""
    told = [text for _, text in _leaves(plain, "")]
    people = {user for text in told for user in _USER_SAID.findall(text)}
    machines = {*hosts, *(name for text in told for name in _SERVER_SAID.findall(text))}
    for text in told:
        for user, host in _PROMPT.findall(text):
            people.add(user)
            machines.add(host)
    machines |= {name.partition(".")[0] for name in machines if not name[:1].isdigit()}
    known = _Known({"USER": sorted(people), "": plain})
    nameable = {name for name in machines - _EVERYBODY if len(name) >= _LEAST_NAME and not _local(name)}
    named = re.compile(rf"(?<![\w-])({_any(nameable)}){_DOMAIN}(?![\w-])")

    def change(text: str) -> str:
        text = named.sub(lambda found: known.stand_in(found[1], "host-{}"), text)
        for pattern, form in _WORDS:
            text = pattern.sub(known.hiding(form), text)
        text = _SERIAL_SAID.sub(lambda found: found[1] + known.stand_in(found[2], "serial-{}"), text)
        return _text(text, "", known)

    return changed(plain, change, _KEPT)


def changed(value: Any, change: Callable[[str], str], kept: tuple[str, ...], key: str = "") -> Any:
    """Plain data with ``change`` made of each text but of those under the keys ``kept``."""
    if isinstance(value, str):
        return value if key in kept else change(value)
    if isinstance(value, Mapping):
        return {inner: changed(item, change, kept, str(inner)) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [changed(item, change, kept, key) for item in value]
    return value
