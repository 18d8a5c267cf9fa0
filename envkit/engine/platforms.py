"""One name in a registry for the images of several platforms: an index, made and extended by docker's own client.

Each machine pushes the image of its platform and then joins it to the index, in the place of the one of the same
platform that may be there.  Two that do so at the same moment overwrite each other, so one comes after the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from envkit.engine import Say, buildx
from envkit.engine.docker_push import trouble
from envkit.engine.trouble import absent
from envkit.errors import Undecided, UsageError, one_line
from envkit.system import proc

_BUDGET_S = 300.0  # some requests of a few KB; layers of another repository of the registry are mounted, not sent
_NONE = "unknown/unknown"  # the platform by which buildx marks an attestation
_OF = "vnd.docker.reference.digest"  # the image that it is of


def join(index: str, pinned: str, platform: str, builder: str, say: Say) -> str:
    """The digest ("sha256:...") of the name ``index`` once it stands for the image ``pinned`` (NAME@sha256:...) of
    ``platform`` ("linux/arm64"), beside those of other platforms.

    Raises UsageError where ``index`` is one image already, or the registry does not let this user, and Undecided where
    it does not serve.
    """
    held = _inspected(index, builder)
    if held is not None and "manifests" not in held:
        said = f"{one_line(index)} is one image and no index of several platforms"
        raise UsageError(said, "choose another name for the index, or delete that one in the registry")
    others = _others((held or {}).get("manifests") or (), platform)
    head, slash, last = index.rpartition("/")
    repository = f"{head}{slash}{last.partition(':')[0]}"
    say(f"joining {platform} to {index}, which has {len(others)} others" if others else f"making {index}")
    sources = [*(f"{repository}@{digest}" for digest in others), pinned]
    _client("create", "--builder", builder, "--progress", "plain", "--tag", index, *sources, index=index)
    made = _inspected(index, builder)
    if made is None or platform not in [_platform(one) for one in made.get("manifests") or ()]:
        raise Undecided(
            f"the registry has no {platform} under {one_line(index)} now", "see whether somebody else pushed"
        )
    return str(made["digest"])


def _others(manifests: Sequence[Any], platform: str) -> list[str]:
    """The digests of an index that stay: images of other platforms, and what is attested of these."""
    images = [str(one["digest"]) for one in manifests if _platform(one) not in (platform, _NONE)]
    attested = [str(one["digest"]) for one in manifests if (one.get("annotations") or {}).get(_OF) in images]
    return images + attested


def _platform(manifest: Any) -> str:
    said = manifest.get("platform") or {}
    return f"{said.get('os')}/{said.get('architecture')}"


def _inspected(name: str, builder: str) -> dict[str, Any] | None:
    """What the registry has under ``name``, None for nothing."""
    words = ("inspect", "--builder", builder, "--format", "{{json .Manifest}}", name)
    text = _client(*words, index=name, may_be_absent=True)
    try:
        return dict(json.loads(text)) if text else None
    except (ValueError, TypeError, RecursionError) as error:
        raise Undecided(f"what the registry has under {one_line(name)} cannot be read", "see the registry") from error


def _client(*words: str, index: str, may_be_absent: bool = False) -> str:
    done = proc.run(
        [buildx.client(), "buildx", "imagetools", *words], timeout_s=_BUDGET_S, env={**os.environ, "NO_COLOR": "1"}
    )
    if done.timed_out:
        raise Undecided(f"the registry did not answer within {_BUDGET_S:.0f} s", "run again")
    if done.exit == 0:
        return done.stdout.strip()
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or done.stderr.splitlines()[-1:]
    said = " ".join(lines).removeprefix("ERROR: ")
    if may_be_absent and absent(said):
        return ""
    raise trouble(said, index.partition("/")[0])
