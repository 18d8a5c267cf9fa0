"""Text that came out of somebody's image, made harmless to print."""

from __future__ import annotations

import re
import textwrap

# What a terminal or an XML parser takes for more than a character: C0 and C1 controls but tab and newline,
# lone surrogates (undecodable bytes in file names), the two noncharacters XML forbids, and the marks that
# turn the reading direction around.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible(text: str) -> str:
    """``text`` with every active character written as its escape; tabs and newlines stay."""
    return _ACTIVE.sub(_escaped, text.replace("\r\n", "\n"))


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """``text``, made visible, in lines of ``width`` but for longer words, its own line breaks kept; ``first`` and
    ``rest`` go before them."""
    lines: list[str] = []
    for part in visible(text).splitlines() or [""]:
        begin = rest if lines else first
        lines += textwrap.wrap(
            part, width, initial_indent=begin, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        ) or [begin.rstrip()]
    return lines
