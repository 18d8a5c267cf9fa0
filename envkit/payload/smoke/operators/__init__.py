"""Operators of torch, in the regimes that jobs reach."""

from envkit.payload.smoke.case import GENERIC, Case

CASES = (Case("operators", beside=True, faults=GENERIC, seconds=120.0, since=2),)
