"""Files that are missing, cut short or made for something else, and settings that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, Says, gpu_roots, shortened, stated
from envkit.logs.records import Hypothesis, Strength
from envkit.logs.story import Story

_AGAIN = "fetch or write the file again, and compare its size and checksum with the source's"
_CORRUPT = {
    "program-torch-archive": "the checkpoint's archive cannot be read, so it is cut short or is none: {text}",
    "program-torch-header": "the checkpoint's header cannot be read, so the file is damaged",
    "program-torch-magic": "the checkpoint does not begin as one does, so the file is damaged or something else",
    "program-torch-short": "the checkpoint ends {wanted} bytes too early",
    "program-safetensors": "the header of a safetensors file cannot be read ({what})",
    "program-safetensors-error": "a safetensors file cannot be read ({what})",
    "program-pickle": "the pickled file cannot be read ({what})",
    "program-ran-out-of-input": "a pickled file is empty or cut short",
    "program-bad-zip": "a zip archive cannot be read: {text}",
    "program-bad-tar": "a tar archive cannot be read ({what})",
    "program-bad-gzip": "a compressed file ends too early",
    "program-bad-zlib": "compressed data cannot be unpacked: {text}",
    "program-bad-stdin": "compressed data cannot be unpacked: {text}",
    "program-bad-hdf5": "an HDF5 file cannot be read ({what})",
    "program-bad-image": "an image file is cut short or is none: {text}",
    "program-bad-parquet": "a Parquet file is cut short or is none",
    "program-bad-arrow": "an Arrow file is cut short or is none: {text}",
    "program-bad-gguf": "a GGUF file cannot be read ({what})",
    "program-bad-gguf-bounds": "a GGUF file is shorter than its own table says",
    "program-bad-hash-value": "a fetched file is not the one that was published: {text}",
    "program-bad-checksum": "a fetched file is not the one that was published: {text}",
    "program-bad-json": "text that should be JSON is not ({what})",
    "program-http-consistency": "a fetched file has {size} bytes instead of {wanted}",
}
_ARGUMENTS = {
    "program-no-file": "a file that the program wants is not there: {text}",
    "program-no-script": "Python was told to run {path}, which is not there",
    "program-hub-no-model": "the model's name is neither a folder here nor known at the hub: {text}",
    "program-hub-no-file": "the model has no file {name}: {text}",
    "program-hub-no-weights": "the folder of the model holds no weights: {text}",
    "program-hub-cannot-load": "{what} of {path} could not be loaded: neither a folder here nor found at the hub",
    "program-hub-bad-name": "the name of the model is no name of the hub's: {text}",
    "program-hub-unknown": "the hub does not know, or does not show, what is asked for: {text}",
    "program-settings-hydra": "the setting {name} cannot be overridden: the configuration has none of that name",
    "program-settings-missing": "a setting without a default was not given ({what})",
    "program-settings-yaml": "a YAML file cannot be read: {text}",
    "program-settings-pydantic": "{count} settings of {name} do not fit",
    "program-weights-trust": "the model brings code of its own, and running it was not allowed",
}
_CONTAINER = {
    "program-no-command": "the program {name} is not installed here",
    "program-no-executable": "the container has no program {name} that can be run",
}

TABLE = {
    **{
        each: Says("corrupt-data", why, fix=_AGAIN, next=("ls -l FILE; sha256sum FILE",))
        for each, why in _CORRUPT.items()
    },
    **{each: Says("launch-config", why) for each, why in _ARGUMENTS.items()},
    **{each: Says("container-config", why) for each, why in _CONTAINER.items()},
    "program-no-command": Says("container-config", "the program {name} is not installed here", Strength.POSSIBLE),
    "program-exec-format": Says(
        "cpu-arch-unsupported",
        "a binary was made for another processor: {text}",
        fix="use an image or a binary made for this machine's processor",
        next=("uname -m; file BINARY",),
    ),
    "program-pickle-weights-only": Says(
        "version-mismatch",
        "this torch reads only tensors unless it is told otherwise, and the checkpoint holds other objects",
        fix="allow the classes by torch.serialization.add_safe_globals, or weights_only=False for a file you trust",
    ),
    "program-model-unknown": Says(
        "version-mismatch",
        "the installed transformers does not know this kind of model: {text}",
        fix="install a release of transformers that knows the model",
    ),
    "program-checkpoint-shapes": Says(
        "program-bug", "the checkpoint was made for another model than the {name} it is loaded into"
    ),
}


def unreadable_or_unfit(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Damaged files, missing files, wrong names and settings, as the reading library words them.

    An "invalid load key" `v` or `<` tells what the file really is: a Git LFS pointer or a web page.
    """
    for found in stated(story, TABLE):
        text = found.evidence[0].text
        real = _what_it_is(text)
        if not real:
            yield found
            continue
        why = f"{real} lies where the data should be: {shortened(text)}"
        yield replace(found, because=why)


def _what_it_is(text: str) -> str:
    if "invalid load key, 'v'" in text:
        return "a pointer of Git LFS"
    if "invalid load key, '<'" in text:
        return "a web page"
    return ""


def refused_arguments(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """An argument parser that refuses what it was given; a launcher's own --local_rank is the program's to know.

    Source: torchrun's documentation, "Transitioning from torch.distributed.launch to torchrun".
    """
    for event in story.of("program-arguments")[:1]:
        what = event.values["what"]
        if "--local_rank" in what or "--local-rank" in what:
            why = f"the launcher passes --local_rank, and the program has no such option: {shortened(what)}"
            fix = "read LOCAL_RANK from the environment, or let the program take --local_rank and --local-rank"
            yield Hypothesis(INNOCENT, "program-bug", Strength.LIKELY, (event.line,), why, fix=fix)
            continue
        strength = Strength.POSSIBLE if gpu_roots(story) else Strength.LIKELY
        why = f"the program refuses its command line: {shortened(what)}"
        yield Hypothesis(INNOCENT, "launch-config", strength, (event.line,), why)
