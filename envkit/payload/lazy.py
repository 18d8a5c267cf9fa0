"""torch for modules that are imported where there is none: it is imported when one of its names is first used.

Code that ``torch.compile`` or ``torch.export`` traces imports torch itself, for a tracer does not look through this.
"""

from __future__ import annotations

import importlib
from typing import Any


class _Torch:
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("torch"), name)


torch: Any = _Torch()
