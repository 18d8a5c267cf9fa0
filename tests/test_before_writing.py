"""No lock is written that `envkit check` would refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envkit.errors import UsageError
from envkit.facts import load as load_facts
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Lock, Pin
from envkit.plan.spec import Spec, load
from envkit.static.before_writing import refuse

IMAGES = Path(__file__).parent.parent / "images"


def checked_in(name: str) -> tuple[Spec, Lock]:
    spec = load(IMAGES / name)
    return spec, locks.parse((IMAGES / name / "envkit.lock").read_text(), name)


def beside(lock: Lock, name: str, version: str) -> Lock:
    """The lock with one wheel more."""
    pin = Pin(name, version, f"{name}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl", "0" * 64)
    return replace(lock, wheels=locks.in_order((*lock.wheels, pin)))


def test_the_locks_of_all_images_are_accepted() -> None:
    for path in sorted(IMAGES.glob("*/envkit.lock")):
        spec, lock = checked_in(path.parent.name)
        refuse(spec, load_facts(), lock)


def test_a_torchaudio_of_another_torch_is_refused_with_the_finding() -> None:
    spec, lock = checked_in("torch-2.6-cu124")
    refuse(spec, load_facts(), beside(lock, "torchaudio", "2.6.0"))
    with pytest.raises(UsageError) as caught:
        refuse(spec, load_facts(), beside(lock, "torchaudio", "2.11.0"))
    assert caught.value.message.startswith("no lock was written, for it would be refused: torchaudio 2.11.0 was made")
    assert caught.value.fix
