"""The first lines of the payload that run: what this Python is, told before anything can fail.

Any Python 3 reads this file, however old: no formatted string, no annotation that Python would evaluate, and nothing
from __future__.  A Python that was built without hashlib or ctypes reads it too.
"""

import os
import sys

BEGAN = "envkit payload: began"  # on stderr, which is heard while the run goes on
OLDEST = (3, 8)  # of the Pythons that the other files are written for
GIVEN = list(sys.path)  # the search path as a job of this Python has it, but for the first entry, which is the payload


def libc() -> str:
    """The C library of this process: "glibc 2.36", "musl", or empty where neither is known.

    Only glibc answers to that name in confstr(3); musl's loader, which is the library itself, lies in the process.
    """
    try:
        said = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        said = ""
    if said:
        return said
    try:
        with open("/proc/self/maps") as maps:
            return "musl" if "/ld-musl-" in maps.read() else ""
    except OSError:
        return ""


def standard_first() -> None:
    """Puts the standard library before what PYTHONPATH and .pth files name: their json.py is not for the payload."""
    folder = os.path.dirname(os.path.abspath(os.__file__))
    standard = [one for one in sys.path[1:] if one in (folder, os.path.join(folder, "lib-dynload"))]
    sys.path[1:] = standard + [one for one in sys.path[1:] if one not in standard]


def begin(argv: "list[str]") -> bool:
    """Whether the payload can go on here.

    A run that was given a nonce is answered with one line that says which Python and which C library it met.
    """
    standard_first()
    version = ".".join(str(part) for part in sys.version_info[:3])
    library = libc()
    fit = sys.version_info[:2] >= OLDEST and library != "musl"
    if "--announce" in argv:
        os.write(2, (BEGAN + "\n").encode("ascii"))
    if "--nonce" in argv[:-1]:
        import json

        said = {"began": {"python": version, "libc": library}, "nonce": argv[argv.index("--nonce") + 1]}
        # On a line of its own, past sys.stdout, whatever the image has printed before or made of it.
        os.write(1, ("\n" + json.dumps(said, sort_keys=True) + "\n").encode("ascii"))
    elif not fit:
        sys.stderr.write("this is Python {} on {}, which the payload does not know\n".format(version, library or "?"))
    return fit
