"""Torch's tracked device-side assertions (PYTORCH_USE_CUDA_DSA): what an error of CUDA says of the one that failed."""

from __future__ import annotations

import re

FIX = "look at the values that the assertion compares, before the call: an index or a label is out of its range"
# torch, c10/cuda/CUDADeviceAssertionHost.cpp; where the list of launches was full it does not know the launch.
_FAILURE = re.compile(
    r"GPU assertion failure message = (.+)\n"
    r"\s*File containing assertion = (.+:\d+)\n"
    r"\s*Device function containing assertion = (.+)\n"
    r"\s*Thread ID that failed assertion = \[(\d+),(\d+),(\d+)\]\n"
    r"\s*Block ID that failed assertion = \[(\d+),(\d+),(\d+)\]\n"
    r"(?:\s*File containing kernel launch = (.+:\d+)\n)?"
)


def sentence(text: str) -> str:
    """The first assertion that an output tells of, with its place; "" where it tells of none."""
    found = _FAILURE.search(text)
    if not found:
        return ""
    said, place, function, *numbers, launched = found.groups()
    thread, block = (f"({', '.join(each)})" for each in (numbers[:3], numbers[3:]))
    told = f"the assertion `{said}` failed on the device at {place} in {function}, thread {thread} of block {block}"
    return told + (f"; its kernel is launched at {launched}" if launched else "")
