"""The CUDA error behind an exception, by number and name, asked of the CUDA runtime that is loaded in this process.

A framework's message holds the runtime's sentence ("an illegal memory access was encountered") and seldom its number.
Sentences change between releases, so the loaded runtime itself is asked which of its numbers has this one.
"""

from __future__ import annotations

import ctypes
import os
import re

from envkit.payload import mapped

_CODES = 1000  # cudaErrorUnknown, 999, is the highest but for one of the driver's start (driver_types.h)
_MEMORY = 2  # cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY


def _runtime() -> str:
    """The path of the CUDA runtime mapped here, empty without one."""
    try:
        return next((path for path in mapped.paths() if os.path.basename(path).startswith("libcudart.so")), "")
    except OSError:
        return ""


class Failed(RuntimeError):
    """Something failed; ``cuda_code`` and ``cuda_name`` are the CUDA error behind it, 0 and empty for none."""

    def __init__(self, text: str, cuda: str = "") -> None:
        """``cuda`` is the error as an ending tells it: "700 cudaErrorIllegalAddress"."""
        super().__init__(text)
        code, _, name = cuda.partition(" ")
        self.cuda_code = int(code) if code.isdigit() else 0
        self.cuda_name = name


def code_of(error: BaseException) -> tuple[int, str]:
    """The number of the CUDA error and its name, (0, "") for an exception that tells of none.

    torch says the number itself where its release does (``error_code``).  Raises nothing.
    """
    own = getattr(error, "cuda_code", 0)  # the suite's own call of the driver
    if own:
        return int(own), str(getattr(error, "cuda_name", ""))
    known = getattr(error, "error_code", None)
    text = str(error)
    if not known and "CUDA error" not in text and "CUDA driver error" not in text:
        return (_MEMORY, "cudaErrorMemoryAllocation") if type(error).__name__ == "OutOfMemoryError" else (0, "")
    path = _runtime()
    if not path:
        return 0, ""
    library = ctypes.CDLL(path)
    library.cudaGetErrorString.restype = library.cudaGetErrorName.restype = ctypes.c_char_p
    said = re.search(r"CUDA (?:driver )?error: ?([^\n]*)", text)
    sentence = said.group(1).strip() if said else ""
    # torch's own codes count only if they are CUDA's
    for code in [known] if isinstance(known, int) and known > 0 else range(1, _CODES):
        name = (library.cudaGetErrorName(code) or b"").decode("utf-8", "replace")
        words = (library.cudaGetErrorString(code) or b"").decode("utf-8", "replace")
        if code == known or (sentence and words == sentence):
            return code, name
    return 0, ""
