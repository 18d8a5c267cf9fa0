"""What is judged: frozen records of one thing as it was observed, each value with how it was found.

A subject can be written to JSON and read back with nothing lost, so that it can be judged elsewhere.
"""

from typing import Any

from envkit.subjects.aoti import AotiRun
from envkit.subjects.audit import Audit
from envkit.subjects.host import Host
from envkit.subjects.image import Image
from envkit.subjects.placement import Placement
from envkit.subjects.smoke import SmokeRun

__all__ = ["KINDS", "AotiRun", "Audit", "Host", "Image", "Placement", "SmokeRun"]

# the word by which a saved subject says what it is, and by which the name of its checks begins
KINDS: dict[str, type[Any]] = {
    "aoti": AotiRun,
    "audit": Audit,
    "host": Host,
    "image": Image,
    "placement": Placement,
    "smoke": SmokeRun,
}
