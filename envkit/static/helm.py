"""Values of a Helm chart where they are plain: an image beside the resources and the variables that its container gets.

What a chart's templates make of them is not known, so that only what is wrong whatever they make is found.  Source:
Helm, Chart Best Practices, Values; the keys that `helm create` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from envkit.dockerfile.nodes import Node, documents, template_line
from envkit.dockerfile.tree import Source
from envkit.facts import Facts
from envkit.model import Severity
from envkit.static import CheckOptions, JudgedFile
from envkit.static.translated import judged, together
from envkit.static.workloads import Reading, kubernetes_gpus, plain, resources
from envkit.subjects.workload import Container, FileValue, Workload

_MOST, _DEEPEST = 200, 12  # images of one file; levels
# A chart may ask for GPUs, memory and privileges in its templates: what values leave out says nothing.
_CHECKS = frozenset(
    ("workload-cuda-visible-devices-invalid", "workload-driver-capabilities-incomplete", "workload-driver-too-old",
     "workload-gpu-arch-not-covered", "workload-gpu-request-invalid", "workload-image-never-existed",
     "workload-image-unpinned", "workload-ranks-exceed-gpus", "workload-secret-in-file",
     "workload-visible-devices-set-in-pod")
)  # fmt: skip


def of_helm(text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts) -> JudgedFile:
    """A chart's values, judged by the checks of what they say by themselves."""
    roots = documents(text, path)
    if isinstance(roots, str):
        return JudgedFile(path, "helm", text, unreadable=roots)
    if (line := template_line(roots)) != 0:
        return JudgedFile(path, "helm", text, unreadable=f"line {line} holds a template, so it is no plain YAML")
    reading = Reading(path, context, check_options, facts, [])
    containers = [one for root in roots[:1] for one in _containers(root, "", 0, reading, set())]
    asked = check_options
    workload = Workload(path, "helm", tuple(containers[:_MOST]), (), (), asked.gpus, asked.driver)
    return JudgedFile(path, "helm", text, together([judged(workload, facts, _CHECKS)], Severity.WARNING))


def _containers(node: Node, name: str, depth: int, reading: Reading, seen: set[int]) -> Iterator[Container]:
    """An image with what stands beside it, at any depth; what an anchor repeats is read once."""
    if id(node) in seen or depth > _DEEPEST or len(seen) > 20_000:
        return
    seen.add(id(node))
    image = node.get("image")
    if image is not None:
        one = _container(node, image, name, reading)
        if one is not None:
            yield one
    for item in node.listed():
        yield from _containers(item, name, depth + 1, reading, seen)
    for key, value in node.pairs():
        yield from _containers(value, key.text, depth + 1, reading, seen)


def _container(node: Node, image: Node, name: str, reading: Reading) -> Container | None:
    said = plain(image) if image.keys is None else _reference(image)
    if said is None:
        return None
    env: dict[str, FileValue | None] = {}
    for part in ("env", "extraEnv", "extraEnvVars", "environment"):
        env |= _environment(node.get(part))
    command = tuple(
        word
        for part in ("command", "args", "extraArgs")
        for item in node.listed(part)
        if (word := plain(item)) is not None
    )
    return Container(
        name or "the chart",
        said.span,
        said,
        reading.image(said),
        gpus=tuple(kubernetes_gpus(node, node)),
        env=env,
        command=command,
        resources=resources(node),
    )


def _reference(image: Node) -> FileValue | None:
    """`registry`, `repository` and `tag` as one reference; without a tag, which the chart then has, it is not sure."""
    registry, repository, tag = (plain(image.get(part)) for part in ("registry", "repository", "tag"))
    digest = plain(image.get("digest"))
    if repository is None or not repository.value:
        return None
    whole = f"{registry.value}/{repository.value}" if registry is not None and registry.value else repository.value
    place = tag if tag is not None and tag.value else repository
    if digest is not None and digest.value:
        return replace(place, value=f"{whole}@{digest.value}")
    if tag is None or not tag.value:
        return replace(place, value=whole, sure=False)
    return replace(place, value=f"{whole}:{tag.value}", sure=repository.sure and tag.sure)


def _environment(node: Node | None) -> Mapping[str, FileValue | None]:
    """Variables as a list of names with values, or as keys."""
    if node is None:
        return {}
    listed = {key.text: plain(item.get("value")) for item in node.listed() if (key := item.get("name")) is not None}
    return listed | {key.text: plain(value) for key, value in node.pairs()}


READERS = {"helm": of_helm}
