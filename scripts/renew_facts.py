"""Reads from the package index what the tables of facts say of it, and prints the differences for review.

    python scripts/renew_facts.py                       compares every release that the torch table has, and lists what
                                                        is newer than the tables; exit 1 where there is a difference
    python scripts/renew_facts.py torch [RELEASE ...]   the same of the torch table, or of these releases alone
    python scripts/renew_facts.py versions              the same of toolkits, cuDNN and NCCL
    python scripts/renew_facts.py need [PACKAGE ...]    the same of facts/torch_need.jsonl, or of these packages
    python scripts/renew_facts.py need --write          writes that table
    python scripts/renew_facts.py require [PACKAGE ...] the same of facts/require.jsonl: which releases of one another
                                                        packages admit; --cache FOLDER keeps what the index answered
    python scripts/renew_facts.py nvidia [PACKAGE ...]  the same of facts/nvidia_need.jsonl: which of NVIDIA's wheels
                                                        packages ask for by their extras

A row that is printed for a new release of torch lacks what METADATA does not say: the architectures, PTX, the
companions and the builds on PyTorch's own index.  They stay null until somebody has read them.  The index is the one
that this machine is configured for (envkit/system/index.py).
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime
from email.parser import HeaderParser
from functools import partial
from pathlib import Path
from typing import TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from envkit.errors import EnvkitError, Undecided
from envkit.facts import Facts, TorchRow, load
from envkit.facts.derived import environment, releases, requirements
from envkit.facts.rows import DerivedRow, NvidiaNeedRow, RequireRow, TorchNeedRow, columns
from envkit.plan.derive import derive
from envkit.system import files, index
from envkit.system.index import Index, IndexFile
from envkit.versions import Torch

BUDGET_S = 1800.0  # some thousand questions to a slow index
_AT_ONCE = 8
# What METADATA does not say.
_BY_HAND = {
    "archs", "ptx", "archs_aarch64", "ptx_aarch64", "torchvision", "torchaudio", "note", "source", "seen",
}  # fmt: skip

# Whose releases are for one torch, or for few, or that ask for a torch without saying more.  Canonical names.
PACKAGES = (
    "accelerate", "auto-gptq", "autoawq", "bertopic", "bitsandbytes", "causal-conv1d", "chatterbox-tts",
    "compressed-tensors", "deepspeed", "demucs", "easyocr", "facenet-pytorch", "fairscale", "fastai", "fbgemm-gpu",
    "flair", "flash-attn", "flashinfer-python", "gptqmodel", "kornia", "liger-kernel", "lightning", "llmcompressor",
    "lmdeploy", "mamba-ssm", "monai", "moshi", "nvidia-modelopt", "open-clip-torch", "openai-whisper", "optimum",
    "peft",
    "pyannote-audio", "pytorch-lightning", "segmentation-models-pytorch", "sentence-transformers", "sgl-kernel",
    "sglang", "speechbrain", "stable-baselines3", "tensordict", "timm", "torch-tensorrt", "torchao", "torchaudio",
    "torchcodec", "torchdata", "torchmetrics", "torchrec", "torchrl", "torchtext", "torchtitan", "torchtune",
    "torchvision", "trl", "ultralytics", "unsloth", "vllm", "whisperx", "xformers", "xgrammar",
)  # fmt: skip
# Whose releases ask for certain releases of one another, and what else of that is pinned beside them in the field.
BOUND = (
    "accelerate", "chex", "cupy-cuda11x", "cupy-cuda12x", "datasets", "diffusers", "faster-whisper", "flax",
    "gradio", "huggingface-hub", "jax", "jaxlib", "keras", "librosa", "lightning", "mediapipe", "numba",
    "onnxruntime-gpu", "opencv-python", "opencv-python-headless", "optax", "pandas", "peft",
    "pyannote-audio", "pytorch-lightning", "scikit-image", "scikit-learn", "scipy", "sentence-transformers",
    "sglang", "spacy", "tensorboard", "tensorflow", "tensorflow-text", "tf-keras", "thinc", "tokenizers", "torch",
    "transformers", "trl", "vllm", "whisperx",
)  # fmt: skip
_BESIDE = frozenset({
    *BOUND, "albumentations", "bitsandbytes", "compressed-tensors", "coqui-tts", "ctranslate2", "cudf-cu12",
    "cuml-cu12", "cupy-cuda11x", "cupy-cuda12x", "cut-cross-entropy", "depyf", "fastapi", "flashinfer-python",
    "fsspec", "httpx", "langchain", "lightning", "llguidance", "llmcompressor", "lm-format-enforcer", "ml-dtypes",
    "mlflow", "mmengine", "msgspec", "networkx", "numpy", "onnx", "onnxruntime-gpu", "openai", "optimum",
    "orbax-checkpoint", "outlines", "paddlepaddle-gpu", "pillow", "prometheus-fastapi-instrumentator", "protobuf",
    "pyarrow", "pydantic", "pytorch-lightning", "ray", "requests", "safetensors", "sagemaker", "setuptools",
    "starlette", "streamlit", "sympy", "tensorboard-data-server", "tensorflow-cpu", "tensorflow-hub",
    "tensorflow-probability", "tiktoken", "timm", "torchmetrics", "torchtune", "triton", "typing-extensions",
    "ultralytics", "xformers", "xgrammar",
})  # fmt: skip
# Whose extras ask for releases of NVIDIA's wheels, and what these bring that does.  torch's own are in the torch table.
WITH_NVIDIAS = ("jax", "jax-cuda12-plugin", "jax-cuda13-plugin", "onnxruntime-gpu", "tensorflow")
_CARRIERS = frozenset({"jax-cuda12-plugin", "jax-cuda13-plugin"})
_NOT_OF_TORCH = frozenset({"torch", "torchvision", "torchaudio"})  # which torch_need has
# Of which a release may be let in that the package does not work with (the table require_use).
_UNBOUND = frozenset({"huggingface-hub", "jax", "numpy", "transformers"})

_SINCE = "2023-03-01"  # the month of torch 2.0; what is older is not read
_SINCE_REQUIRE = "2023-01-01"
_MOST_SDIST = 32 << 20
_Row = TypeVar("_Row", TorchNeedRow, RequireRow, NvidiaNeedRow)


def today() -> str:
    return datetime.now(UTC).date().isoformat()


# torch


def differences(derived: DerivedRow, row: TorchRow) -> list[str]:
    """Each field in which the row says something else than the index, as a sentence."""
    return [
        f"torch {row.torch}: {field.name} is {_shown(seen)} on the index and {_shown(known)} in the table"
        for field in fields(row)
        if field.name not in _BY_HAND
        for seen, known in [(getattr(derived, field.name), getattr(row, field.name))]
        if _shown(seen) != _shown(known)
    ]


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def as_line(row: TorchRow | TorchNeedRow | RequireRow | NvidiaNeedRow) -> str:
    """A row as its table has it."""

    def plain(value: object) -> object:
        if isinstance(value, tuple):
            return [plain(each) for each in value]
        return value if value is None or isinstance(value, bool | dict) else str(value)

    return json.dumps({name: plain(getattr(row, name)) for name in columns(type(row))}, ensure_ascii=False)


def torches(asked: Index, facts: Facts, names: Sequence[str]) -> Iterator[str]:
    """Where the torch table and the index differ, and a row for each release that only the index has."""
    found = {file.name: file for file in asked.files("torch") if not file.yanked}
    known = {row.torch: row for row in facts.torches if row.default}
    old = {row.torch for row in facts.torches_old}
    wanted = [Torch(name) for name in names] or [each for each in releases(found) if each not in old]
    if not names:
        yield from (f"torch {torch}: not on the index any more" for torch in known if torch not in wanted)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for release, row in zip(wanted, pool.map(partial(_derived, asked, found), wanted), strict=True):
            if isinstance(row, str):
                yield f"torch {release}: {row}"
            elif release in known:
                yield from differences(row, known[release])
            else:
                yield f"torch {release} is new:\n{as_line(row)}"


def _derived(asked: Index, found: Mapping[str, IndexFile], release: Torch) -> DerivedRow | str:
    try:
        return derive(asked, release, found)
    except Undecided as error:
        return error.message


# Toolkits and libraries


def versions(asked: Index, facts: Facts) -> Iterator[str]:
    """The releases of CUDA's toolkit and libraries that are newer than the newest one of their table."""
    tables = {
        "cuda-toolkit": [row.version for row in facts.cudas],
        "nvidia-cudnn-cu13": [row.version for row in facts.cudnns if "nvidia-cudnn-cu13" in row.wheels],
        "nvidia-cudnn-cu12": [row.version for row in facts.cudnns if "nvidia-cudnn-cu12" in row.wheels],
        "nvidia-nccl-cu13": [row.version for row in facts.nccls if "nvidia-nccl-cu13" in row.wheels],
        "nvidia-nccl-cu12": [row.version for row in facts.nccls if "nvidia-nccl-cu12" in row.wheels],
    }
    for package, known in tables.items():
        newest = max((Version(str(version)) for version in known), default=Version("0"))
        on_index = _finals(asked.files(package))
        for version, file in on_index.items():
            if version > newest:
                yield f"{package} {version} of {file.uploaded or 'an unknown day'} is new; the table ends with {newest}"


def _finals(found: Iterable[IndexFile]) -> dict[Version, IndexFile]:
    """One file of each final release, oldest first: a wheel for Linux, else another wheel, else the source."""
    best: dict[Version, tuple[int, str, IndexFile]] = {}
    for file in found:
        try:
            wheel = file.name.endswith(".whl")
            version = parse_wheel_filename(file.name)[1] if wheel else parse_sdist_filename(file.name)[1]
        except ValueError:
            continue
        if file.yanked or version.is_prerelease or version.local:
            continue
        here = wheel and re.search(r"linux.*x86_64|-any\.whl", file.name)
        rank = (0 if here else 1 if wheel else 2, file.name, file)
        best[version] = min(best.get(version, rank), rank, key=lambda one: one[:2])
    return {version: best[version][2] for version in sorted(best)}


# Who is built for which torch


def need(asked: Index, package: str, say: Callable[[str], None]) -> list[TorchNeedRow]:
    """The rows of one package, its oldest releases first; releases that say the same stand in one row."""
    finals = {version: file for version, file in _finals(asked.files(package)).items() if file.uploaded >= _SINCE}

    def read(file: IndexFile) -> str | None:
        try:
            return asked.metadata(file) if file.name.endswith(".whl") else _of_source(asked, file)
        except EnvkitError as error:
            say(f"{file.name}: {error.message}")
            return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        texts = dict(zip(finals, pool.map(read, finals.values()), strict=True))
    rows: list[TorchNeedRow] = []
    gap = True
    for version, text in texts.items():
        if text is None:
            gap = True  # what was not read stands in no row
            continue
        torch, note = torch_of(text)
        if rows and not gap and (rows[-1].torch, rows[-1].note) == (torch, note):
            rows[-1] = _upto(rows[-1], str(version))
        else:
            rows.append(_need_row(package, str(version), torch, note))
        gap = False
    return rows


def _need_row(package: str, version: str, torch: str | None, note: str) -> TorchNeedRow:
    source = "Requires-Dist in the METADATA of the releases on the package index"
    return TorchNeedRow(
        package=package, since=version, until=version, torch=torch, note=note, source=source, seen=today()
    )


def _upto(row: TorchNeedRow, until: str) -> TorchNeedRow:
    return TorchNeedRow(**{name: getattr(row, name) for name in columns(TorchNeedRow)} | {"until": until})


def torch_of(metadata: str) -> tuple[str | None, str]:
    """What METADATA asks of torch on x86_64 Linux without an extra, "" for any or none; None, and why, where that
    depends on the Python."""
    header = HeaderParser().parsestr(metadata)
    try:
        admitted = SpecifierSet(str(header["Requires-Python"] or ""))
    except InvalidSpecifier:
        admitted = SpecifierSet()
    pythons = [f"3.{minor}" for minor in range(8, 16) if admitted.contains(f"3.{minor}.9")]
    lines = [one for one in requirements(metadata) if canonicalize_name(one.name) == "torch"]
    found, asks = set(), False
    for python in pythons or ["3.11"]:
        place = environment("x86_64", python)
        here = [str(one.specifier) for one in lines if one.marker is None or one.marker.evaluate(place)]
        found.add(",".join(sorted(filter(None, here))))
        asks = asks or bool(here)
    if len(found) > 1:
        return None, "depends on the Python: " + " or ".join(sorted(one or "none" for one in found))
    only = found.pop()
    return only, "" if only else "asks for any torch" if asks else "asks for no torch"


def _of_source(asked: Index, file: IndexFile) -> str:
    """PKG-INFO of a source archive of at most some megabytes; raises Undecided where it cannot be read."""
    data = asked.whole(file, _MOST_SDIST)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                if member.isfile() and re.fullmatch(r"[^/]+/PKG-INFO", member.name):
                    held = archive.extractfile(member)
                    text = held.read(1 << 22).decode("utf-8", "replace") if held else ""
                    # Before version 2.2 a source's PKG-INFO may leave out what setup.py requires (PEP 643).
                    old = Version(str(HeaderParser().parsestr(text)["Metadata-Version"] or "1")) < Version("2.2")
                    dynamic = {str(one).lower() for one in HeaderParser().parsestr(text).get_all("Dynamic", [])}
                    if "Requires-Dist:" in text or not (old or "requires-dist" in dynamic):
                        return text
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Undecided(f"cannot be read: {error}", "") from error
    raise Undecided("says nowhere what it requires", "")


def needs(asked: Index, facts: Facts, packages: Sequence[str], say: Callable[[str], None]) -> list[TorchNeedRow]:
    """The table of torch_need anew: the rows of ``packages``, read now, among those that it has of others."""
    fresh = [row for package in packages for row in need(asked, package, say)]
    return _anew(facts.torch_needs, fresh, packages)


def _anew(table: Sequence[_Row], fresh: Sequence[_Row], packages: Sequence[str]) -> list[_Row]:
    """A table with ``fresh`` rows of ``packages``; one that says what an old one says is left as it was."""

    def says(row: _Row) -> str:
        return as_line(replace(row, source="", seen=""))

    held = {says(row): row for row in table}
    kept = [row for row in table if row.package not in packages]
    same = [held.get(says(row), row) for row in fresh]
    return sorted((*kept, *same), key=lambda row: (row.package, Version(row.since)))


# Who asks for which releases of others


def asked_of(metadata: str) -> dict[str, str]:
    """What METADATA asks of the packages in question on x86_64 Linux without an extra: by name the clauses that hold
    whichever the Python."""
    shared = _shared(metadata, (_BESIDE - _NOT_OF_TORCH).__contains__)
    kept = {name: clauses for name, clauses in sorted(shared.items()) if clauses or name in _UNBOUND}
    return {name: ",".join(sorted(clauses)) for name, clauses in kept.items()}


def _shared(metadata: str, wanted: Callable[[str], bool], extra: str = "") -> dict[str, set[str]]:
    """What METADATA asks of ``wanted`` packages on x86_64 Linux: by name the clauses that hold whichever the Python."""
    header = HeaderParser().parsestr(metadata)
    try:
        admitted = SpecifierSet(str(header["Requires-Python"] or ""))
    except InvalidSpecifier:
        admitted = SpecifierSet()
    lines = [one for one in requirements(metadata) if wanted(canonicalize_name(one.name))]
    answers: list[dict[str, set[str]]] = []
    for minor in range(8, 15):
        if admitted.contains(f"3.{minor}.9"):
            place = {**environment("x86_64", f"3.{minor}"), "extra": extra}
            here: dict[str, set[str]] = {}
            for one in lines:
                if not one.url and (one.marker is None or one.marker.evaluate(place)):
                    here.setdefault(canonicalize_name(one.name), set()).update(map(str, one.specifier))
            answers.append(here)
    first, *rest = answers or [{}]
    return {name: clauses.intersection(*(one.get(name, set()) for one in rest)) for name, clauses in first.items()}


def require(asked: Index, package: str, cache: Path | None, say: Callable[[str], None]) -> list[RequireRow]:
    """The rows of one package, its oldest releases first.

    The last release of each minor is read, one at a time; where it says something else than that of the minor before,
    the others of the minor as well.
    """
    finals = {
        version: file
        for version, file in _finals(asked.files(package)).items()
        if file.uploaded >= _SINCE_REQUIRE and file.name.endswith(".whl")
    }
    read: dict[Version, dict[str, str] | None] = {}

    def of(version: Version) -> dict[str, str] | None:
        if version not in read:
            kept = cache / f"{finals[version].name}.metadata" if cache else None
            try:
                text = kept.read_text("utf-8") if kept and kept.exists() else asked.metadata(finals[version])
                read[version] = asked_of(text)
            except EnvkitError as error:
                say(f"{finals[version].name}: {error.message}")
                read[version] = None
            else:
                if kept:
                    files.write(kept, text)
        return read[version]

    minors: dict[tuple[int, ...], list[Version]] = {}
    for version in finals:
        minors.setdefault(version.release[:2], []).append(version)
    rows: list[RequireRow] = []
    before: dict[str, str] | None = None
    for patches in minors.values():
        last = of(patches[-1])
        same = last is not None and last == before
        for version in patches:
            wants = last if same else of(version)
            if wants is not None and wants == before:
                rows[-1] = replace(rows[-1], until=str(version))
            elif wants is not None:
                rows.append(_require_row(package, str(version), wants))
            before = wants  # what was not read stands in no row
    return [row for row in rows if row.requires]


def _require_row(package: str, version: str, wants: Mapping[str, str]) -> RequireRow:
    source = "Requires-Dist in the METADATA of the wheels on the package index"
    return RequireRow(
        package=package, since=version, until=version, requires=wants, note="", source=source, seen=today()
    )


def requires(
    asked: Index, facts: Facts, packages: Sequence[str], cache: Path | None, say: Callable[[str], None]
) -> list[RequireRow]:
    """The table of require anew: the rows of ``packages``, read now, among those that it has of others."""
    fresh = [row for package in packages for row in require(asked, package, cache, say)]
    return _anew(facts.requires, fresh, packages)


# Who asks for which of NVIDIA's wheels


def nvidia(asked: Index, package: str, say: Callable[[str], None]) -> list[NvidiaNeedRow]:
    """The rows of one package, its oldest releases first; releases and extras that say the same stand in one row."""
    texts: dict[tuple[str, str], str] = {}

    def read(name: str, file: IndexFile) -> str:
        if (name, file.name) not in texts:
            texts[name, file.name] = asked.metadata(file)
        return texts[name, file.name]

    carriers: dict[str, Mapping[Version, IndexFile]] = {}

    def of(name: str, file: IndexFile, extra: str) -> dict[str, str]:
        text = read(name, file)
        found = {key: set(each) for key, each in _shared(text, re.compile("nvidia-").match, extra).items() if each}
        for one in requirements(text):
            carrier = canonicalize_name(one.name)
            place = {**environment("x86_64", "3.12"), "extra": extra}
            if carrier not in _CARRIERS or (one.marker and not one.marker.evaluate(place)):
                continue
            if carrier not in carriers:
                carriers[carrier] = _finals(asked.files(carrier))
            newest = max(filter(one.specifier.contains, carriers[carrier]), default=None)
            for inner in map(canonicalize_name, one.extras) if newest else ():
                for key, each in of(carrier, carriers[carrier][newest], inner).items():
                    found.setdefault(key, set()).update(each.split(","))
        return {key: ",".join(sorted(each)) for key, each in sorted(found.items())}

    rows: list[NvidiaNeedRow] = []
    last: list[NvidiaNeedRow] = []
    for version, file in _finals(asked.files(package)).items():
        if file.uploaded < _SINCE or not file.name.endswith(".whl"):
            continue
        try:
            provided = HeaderParser().parsestr(read(package, file)).get_all("Provides-Extra", [])
            by_extra = {extra: of(package, file, extra) for extra in ("", *sorted(map(canonicalize_name, provided)))}
        except EnvkitError as error:
            say(f"{file.name}: {error.message}")
            last = []  # what was not read stands in no row
            continue
        told: dict[str, list[str]] = {}
        for extra, wants in by_extra.items():
            if wants and (not extra or wants != by_extra[""]):
                told.setdefault(json.dumps(wants), []).append(extra)
        fresh = [_nvidia_row(package, str(version), extras, json.loads(wants)) for wants, extras in told.items()]
        if [(row.extras, row.requires) for row in last] == [(row.extras, row.requires) for row in fresh]:
            fresh = [replace(row, until=str(version)) for row in last]
            del rows[len(rows) - len(last) :]
        rows += fresh
        last = fresh
    return rows


def _nvidia_row(package: str, version: str, extras: Sequence[str], wants: Mapping[str, str]) -> NvidiaNeedRow:
    source = "Requires-Dist in the METADATA of the wheels on the package index"
    return NvidiaNeedRow(
        package=package, since=version, until=version, extras=tuple(extras), requires=wants, note="", source=source,
        seen=today(),
    )  # fmt: skip


def nvidias(asked: Index, facts: Facts, packages: Sequence[str], say: Callable[[str], None]) -> list[NvidiaNeedRow]:
    """The table of nvidia_need anew: the rows of ``packages``, read now, among those that it has of others."""
    fresh = [row for package in packages for row in nvidia(asked, package, say)]
    return _anew(facts.nvidia_needs, fresh, packages)


def _renewed(name: str, old: Sequence[_Row], new: Sequence[_Row], facts: Facts, write: bool) -> list[str]:
    """Lines of a table that are gone, then those that are new; with ``write`` it is the new one from then on."""
    before, now = [as_line(row) for row in old], [as_line(row) for row in new]
    if write:
        files.write(facts.directory / f"{name}.jsonl", "".join(f"{line}\n" for line in now))
    same = {*before} & {*now}
    return [f"{sign} {line}" for sign, lines in (("-", before), ("+", now)) for line in lines if line not in same]


def main(arguments: Sequence[str]) -> int:
    """Prints the differences; 1 where there are any, 3 where the index does not answer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "what", nargs="?", choices=("all", "torch", "versions", "need", "require", "nvidia"), default="all"
    )
    parser.add_argument("names", nargs="*", help="releases of torch, or packages of a table of requirements")
    parser.add_argument("--write", action="store_true", help="write the tables of requirements")
    parser.add_argument("--cache", type=Path, help="a folder that keeps METADATA for require")
    options = parser.parse_args(arguments)
    facts = load()
    told: list[str] = []
    say = partial(print, file=sys.stderr)
    try:
        asked = index.configured(BUDGET_S)
        if options.what in ("all", "torch"):
            told += torches(asked, facts, options.names if options.what == "torch" else ())
        if options.what in ("all", "versions"):
            told += versions(asked, facts)
        if options.what in ("all", "need"):
            names = options.names if options.what == "need" and options.names else PACKAGES
            rows = needs(asked, facts, names, say)
            told += _renewed("torch_need", facts.torch_needs, rows, facts, options.write)
        if options.what in ("all", "require"):
            names = options.names if options.what == "require" and options.names else BOUND
            bounds = requires(asked, facts, names, options.cache, say)
            told += _renewed("require", facts.requires, bounds, facts, options.write)
        if options.what in ("all", "nvidia"):
            names = options.names if options.what == "nvidia" and options.names else WITH_NVIDIAS
            libraries = nvidias(asked, facts, names, say)
            told += _renewed("nvidia_need", facts.nvidia_needs, libraries, facts, options.write)
    except EnvkitError as error:
        print(f"{error.message}; {error.fix}", file=sys.stderr)
        return 3
    seen = max(row.seen for row in facts.torches)
    print("\n".join(told) if told else f"the tables, read up to {seen}, agree with the index")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
