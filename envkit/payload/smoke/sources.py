"""Kernels and programs in languages of their own, which lie beside the tests that compile them."""

from __future__ import annotations

import pkgutil


def text_of(name: str) -> str:
    """The file ``name`` ("kernels/nvrtc_timer.cu") of this folder, a member of the zip where the payload runs from one.

    Raises OSError where it is not there.
    """
    data = pkgutil.get_data("envkit.payload.smoke", name)
    assert data is not None  # only a loader that cannot read data gives none
    return data.decode("ascii")
