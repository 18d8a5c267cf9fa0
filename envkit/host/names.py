"""What the machine's own name leads to; a resolver whose servers are gone takes many seconds to say so."""

from __future__ import annotations

import socket

from envkit.host.root import HostRoot, Source
from envkit.model import Observed
from envkit.subjects.host.system import Names


def resolve(name: str) -> tuple[tuple[str, ...], str]:
    """The addresses of a name, or the resolver's words on why there are none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return (), (error.strerror or str(error)).lower()
    except UnicodeError:  # a name of more than 63 characters
        return (), "it is no name of a host"
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found)), ""


def names(place: HostRoot) -> Observed[Names]:
    """What "localhost" and the machine's own name lead to; a recorded tree is asked nothing."""
    if not place.live:
        return Observed.lost("a recorded tree does not run")
    localhost, unknown = resolve("localhost")
    hostname = socket.gethostname()
    addresses, error = resolve(hostname)
    return Observed.of(Names(hostname, addresses, error, localhost, unknown), "getaddrinfo")


SOURCES: dict[str, Source] = {"names": names}
