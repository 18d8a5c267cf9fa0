"""The real trial: processes of a real torch that meet, sum and time, through gloo on this machine.

Faults are planted in one rank, or in a proxy between two of them; clean twins go the same way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fleet
import link_proxy
import pytest
import torches
from fleet import healthy, lay

from envkit.fleet import gather, node, rounds
from envkit.fleet.folder import Place
from envkit.fleet.verdict import FleetVerdict, Rules, State, judge
from envkit.payload import trial

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # each trial imports torch in several processes
LIMIT_S = 90.0
SMALL = 4 << 20
# What comes before the trial in the process that is its parent; its ranks are forks of that.
PLANTS = {
    "hangs": "if len(calls) == 3: time.sleep(600)",
    "dies": "if len(calls) == 2: os.kill(os.getpid(), 9)",
    "raises": "if len(calls) == 2: raise RuntimeError('CUDA error: uncorrectable ECC error encountered')",
    "corrupts": "real(data); data[2] += len(calls) == 4; return",
}
PLANT = """
import os, runpy, sys, time
import torch.distributed as dist
real, calls = dist.all_reduce, []
def planted(data):
    calls.append(1)
    {line}
    real(data)
dist.all_reduce = planted
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def python(place: Path, name: str, plant: str = "", **environment: str) -> str:
    """A Python whose trials have this fault, or these variables."""
    words = f"{torches.PYTHON} "
    if plant:
        (place / f"{name}.py").write_text(PLANT.format(line=PLANTS[plant]))
        words += f"{place}/{name}.py "
    path = place / name
    exports = "".join(f"export {key}='{value}'\n" for key, value in environment.items())
    path.write_text(f'#!/bin/bash\n{exports}exec {words}"$@"\n')
    path.chmod(0o755)
    return str(path)


def pair(place: Path, first: str, second: str, limit_s: float = LIMIT_S) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both nodes say of one trial, each in the Python that it was given."""
    said: dict[int, dict[str, Any]] = {}

    def take(at: int, program: str) -> None:
        asked = trial.Asked("5" * 32, at, 2, str(place / "meet"), limit_s, size=SMALL, repeats=3)
        said[at] = rounds.run_trial(program, asked, ("n1", "n2"))

    both = [threading.Thread(target=take, args=(at, program)) for at, program in enumerate((first, second))]
    for each in both:
        each.start()
    for each in both:
        each.join()
    return said[0], said[1]


def outcomes(said: tuple[Mapping[str, Any], Mapping[str, Any]]) -> list[str]:
    return [one["outcome"] for one in said]


@torches.needs_torch
def test_a_clean_pair_passes_and_says_what_it_did(tmp_path: Path) -> None:
    first, second = pair(tmp_path, torches.PYTHON, torches.PYTHON)
    assert outcomes((first, second)) == ["passed", "passed"], (first, second)
    assert (first["backend"], first["wrong"], first["elements"], first["stage"]) == (
        "gloo",
        0,
        4 * (SMALL // 4) + 3,
        "done",
    )
    assert first["gbps"] > 0


@torches.needs_torch
@pytest.mark.parametrize(
    ("plant", "ends", "words"),
    [
        ("dies", ["failed", "failed"], "it was killed by SIGKILL"),
        ("raises", ["failed", "failed"], "uncorrectable ECC error"),
        ("corrupts", ["passed", "wrong"], ""),
        ("hangs", ["failed", "failed"], "25 s"),  # ended by its own parent, or from outside where that had no time
    ],
)
def test_a_rank_with_a_fault(tmp_path: Path, plant: str, ends: list[str], words: str) -> None:
    said = pair(tmp_path, torches.PYTHON, python(tmp_path, "bad", plant), 25.0 if plant == "hangs" else LIMIT_S)
    assert outcomes(said) == ends, said
    assert words in said[1]["detail"]
    assert plant != "corrupts" or said[1]["wrong"] == 1


@torches.needs_torch
def test_a_partner_that_never_comes(tmp_path: Path) -> None:
    asked = trial.Asked("5" * 32, 0, 2, str(tmp_path / "meet"), 20.0)
    alone = rounds.run_trial(torches.PYTHON, asked, ("n1", "n2"))
    assert alone["outcome"] == "failed", alone
    late = rounds.run_trial(torches.PYTHON, asked._replace(node=1), ("n1", "n2"))
    assert late["outcome"] == "failed", late
    assert "was not reached" in late["detail"] or "20 s" in late["detail"], late


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[link_proxy.Proxy]:
    made = link_proxy.Proxy(request.param)
    yield made
    made.close()


@torches.needs_torch
@pytest.mark.skipif(not link_proxy.compiler(), reason="no C compiler")
@pytest.mark.parametrize("proxy", ["clean", "corrupt", "drop", "delay"], indirect=True)
def test_a_link_through_a_proxy(tmp_path: Path, proxy: link_proxy.Proxy) -> None:
    shim = {"LD_PRELOAD": str(link_proxy.library(tmp_path)), "LINK_PROXY": str(proxy.port), "LINK_PAIR": "n1,n2"}
    through = python(tmp_path, "through", **shim)
    said = pair(tmp_path, through, through, 30.0 if proxy.play == "drop" else LIMIT_S)
    assert proxy.passed > 1 << 20, "the ranks did not go through the proxy"
    if proxy.play == "clean":
        assert outcomes(said) == ["passed", "passed"], said
    elif proxy.play == "corrupt":
        assert "wrong" in outcomes(said), said
    elif proxy.play == "drop":
        assert outcomes(said) == ["failed", "failed"], said
    else:  # as slow as the proxy sleeps, whatever else runs on this machine: so many pieces, so many hundredths
        assert outcomes(said) == ["passed", "passed"] and proxy.played > 100, said
        assert min(one["gbps"] for one in said) < SMALL / (SMALL / (1 << 16) * 0.01) / 1e9


def run_of(place: Path, pythons: Mapping[str, str], hosts: tuple[str, ...]) -> FleetVerdict:
    """Nodes as threads, which go through the real rounds with real trials, each by its own Python."""
    run = fleet.run(hosts, links="pairs", trial_s=LIMIT_S, created=time.time())
    lay(place, *(one for one in healthy() if one.head.node in hosts), run=run)
    nodes = [
        threading.Thread(
            target=rounds.take_part,
            args=(Place(place, run, 0.0), node.identity(run.run, run.nonce, name),
                  rounds.Trying(pythons.get(name, torches.PYTHON), SMALL), time.monotonic(), Rules(),
                  lambda line: None),
        )
        for name in hosts
    ]  # fmt: skip
    for each in nodes:
        each.start()
    for each in nodes:
        each.join()
    return judge(gather.gather(place, (), ()), time.time())


@torches.needs_torch
def test_a_node_whose_ranks_die_is_named_among_four(tmp_path: Path) -> None:
    hosts = ("n1", "n2", "n3", "n4")
    found = run_of(tmp_path, {"n3": python(tmp_path, "bad", "dies")}, hosts)
    assert (found.named(State.FAIL), found.named(State.OK)) == (("n3",), ("n1", "n2", "n4")), found.nodes
    assert "killed by SIGKILL" in found.nodes[2].sentence and found.links is not None and found.links.crossings == ()


@torches.needs_torch
@pytest.mark.skipif(not link_proxy.compiler(), reason="no C compiler")
@pytest.mark.parametrize("proxy", ["corrupt"], indirect=True)
def test_a_link_that_corrupts_is_named_as_a_pair_among_four(tmp_path: Path, proxy: link_proxy.Proxy) -> None:
    shim = {"LD_PRELOAD": str(link_proxy.library(tmp_path)), "LINK_PROXY": str(proxy.port), "LINK_PAIR": "n3,n4"}
    hosts = ("n1", "n2", "n3", "n4")
    through = python(tmp_path, "through", **shim)
    found = run_of(tmp_path, dict.fromkeys(("n3", "n4"), through), hosts)
    assert found.named(State.OK) == hosts
    assert found.links is not None and [(one.one, one.two) for one in found.links.crossings] == [(("n3",), ("n4",))]
