"""PTX text of the tests that need no compiler: of an old language version, which every driver can compile.

The target is the oldest that all of today's drivers still translate to any GPU after it (PTX ISA, directive .target:
code for one target runs on every later one).
"""

from __future__ import annotations

from envkit.payload.smoke.sources import text_of

HEAD = ".version 5.0\n.target sm_50\n.address_size 64\n"
ADD = text_of("driver_only/add.ptx").encode()
# ptx_step makes *p = *p * m + s; two of them with different numbers do not commute.  ptx_spin stays busy for as many
# clock cycles of its multiprocessor as it is told, and leaves how many went by.
STEPS = text_of("driver_only/steps.ptx").encode()
