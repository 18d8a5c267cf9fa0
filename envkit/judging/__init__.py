"""Judges: checks are pure functions of one subject and the facts; what must be answered before a pass."""
