"""Writes docs/spec.md and docs/contract.md: every key that envkit.toml and a machine's contract may hold.

    python scripts/spec_table.py [--check]

Keys, types and allowed values come from the types; the sentences and examples stand here.  Each default and example is
tried on the reader itself: a key without a sentence, a default that is not the reader's, or an example that it refuses
ends with exit code 1, and so does a page that is not current under --check.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from envkit import facts
from envkit.doctor import contracts
from envkit.errors import UsageError
from envkit.plan import spec
from envkit.plan.image_table import RawImage
from envkit.plan.spec import Spec
from envkit.static import settings
from envkit.subjects.host.expected import Expected
from envkit.system import files

ROOT = Path(__file__).parent.parent
HERE = Path("envkit.toml")


class Key(NamedTuple):
    """A key: its default as TOML ("" where it is required), what it takes, what it means, and a line with it."""

    default: str
    takes: str
    means: str
    example: str


SPEC = {
    "name": Key(
        "",
        "lower-case letters, digits, dots, dashes and underscores; at most 64",
        "The image's name: without `--tag` it becomes `envkit/NAME:latest`.",
        'name = "trainer"',
    ),
    "torch": Key(
        "",
        "a release, or a version specifier",
        "The torch release. Of a range, the newest release that runs on the declared GPUs and drivers is taken; "
        "of these the newest that the newest of `packages` go with.",
        'torch = ">=2.6,<2.9"',
    ),
    "cuda": Key(
        '"auto"',
        '"auto", or a version of two or three numbers',
        'The CUDA version that torch is built for. `"auto"` takes the newest build that fits all other keys.',
        'cuda = "12.4"',
    ),
    "python": Key(
        "",
        'major and minor version, or "auto"',
        "The Python version. It decides which operating systems are possible: Python comes from the distribution. "
        '`"auto"` takes the newest that torch and the packages have wheels for, of Debian first, whose packages can be '
        "pinned; the lock says which.",
        'python = "3.11"',
    ),
    "os": Key(
        '"auto"',
        "",
        "The operating system. Only Debian is pinned package by package today.",
        'os = "debian12"',
    ),
    "base": Key(
        '"wheels"',
        "",
        "Where CUDA comes from. `wheels`: a slim operating system, CUDA from the wheels that torch names. `nvidia`: an "
        "nvidia/cuda image below the wheels. `pytorch`: a pytorch/pytorch image. `ngc`: an nvcr.io/nvidia/pytorch "
        "image.",
        'base = "wheels"',
    ),
    "tag": Key(
        '""',
        "a tag of the base image",
        'The tag of the base image; `base = "ngc"` needs it. Empty: envkit chooses.',
        'tag = "25.01-py3"',
    ),
    "flavor": Key('"runtime"', "", "What the image is for: see [flavors](flavors.md).", 'flavor = "devel"'),
    "platform": Key('"linux/amd64"', "", "The platform of the image.", 'platform = "linux/arm64"'),
    "packages": Key(
        "[]",
        "PEP 508 requirements by name, no `===`; wheels by path or by URL with their hash",
        "More Python packages, chosen together with torch. The newest of them decides which release of `torch` is "
        "taken; what is held back is said, with what keeps it. A release from years before its torch or a pre-release "
        "is taken only if you pin or name it. A package without a wheel is [built from its "
        "source](reproducible.md#packages-without-a-wheel) if it is plain Python; one that must be compiled stands in "
        "[`build`](#build). A wheel that no index has is named "
        "by its file (`./wheels/ours-1.0-py3-none-any.whl`) or its address, which needs a hash; the lock holds its "
        "name and hash, and a build and `envkit vendor` get the file.",
        'packages = ["numpy", "einops==0.8.*"]',
    ),
    "build": Key(
        "[]",
        "`name==version`",
        "Packages that are compiled from their source on the index against the locked torch, for the GPUs in `gpus`: "
        "see [compiled packages](recipes/compiled-package.md). `envkit lock` compiles them in a container without a "
        'network and pins the wheels. Needs `base = "wheels"`, a container engine, and for GPUs a devel flavor with '
        "nvcc.",
        'build = ["flash-attn==2.8.3"]',
    ),
    "requirements": Key(
        "[]",
        "names of files in pip's format, from the folder of the spec",
        "More packages, from requirements files and those that they name with `-r` and `-c`. Indexes that they name "
        "count as `index` and `extra-index`. Wheels by path, from the folder of the file on, or by URL with their hash "
        "are taken; folders, archives and repositories are refused; the build of torch (`+cu124`, its index) is chosen "
        "by `cuda`.",
        'requirements = ["requirements.txt"]',
    ),
    "project": Key(
        '""',
        "a folder, from the folder of the spec",
        "More packages: the dependencies in its `pyproject.toml`; and the project itself, if that is a package: see "
        "[your project in the image](image.md#the-project-itself). The versions in a `uv.lock` "
        "beside it are kept, torch's too, which is then held to the facts. Of `[tool.uv]` its indexes, "
        "`constraint-dependencies`, `override-dependencies` and `exclude-newer` count; what it takes from a repository "
        "or a path is refused, unless `packages` names a wheel of it.",
        'project = "."',
    ),
    "extras": Key("[]", "names", "Extras of the project that are wanted too.", 'extras = ["train"]'),
    "groups": Key("[]", "names", "Dependency groups of the project that are wanted too.", 'groups = ["dev"]'),
    "constraints": Key(
        "[]",
        "requirements, or names of files with them (`.txt`, `.in`)",
        "What holds for a package if it is taken at all.",
        'constraints = ["numpy<2"]',
    ),
    "overrides": Key(
        "[]",
        "requirements, or names of files with them (`.txt`, `.in`)",
        "What is taken of a package whatever others ask of it. torch is none: it is the key `torch`.",
        'overrides = ["protobuf==5.29.5"]',
    ),
    "exclude-newer": Key(
        '""',
        "a day",
        "Releases from this day on (UTC) do not count.",
        'exclude-newer = "2026-06-01"',
    ),
    "index": Key(
        '""',
        "`https://HOST/...`",
        "The package index in place of the one that uv is configured for. It holds no credential: the one for its host "
        "is read from the variables of uv and pip, netrc or the program `keyring`, or from a variable that the address "
        "names: `https://${TOKEN}@HOST/simple`, `https://__token__:${TOKEN}@HOST/simple`. With a name in front "
        "(`corp=https://HOST/simple`), `UV_INDEX_CORP_USERNAME` and `UV_INDEX_CORP_PASSWORD` count. The lock holds "
        "neither address nor credential; a build gets both as the BuildKit secret `index`. For a plain `docker build`, "
        "`--secret id=index,src=FILE` takes a file with the line "
        "`export UV_DEFAULT_INDEX=https://USER:PASSWORD@HOST/simple`.",
        'index = "https://packages.example.com/simple"',
    ),
    "extra-index": Key(
        "[]",
        "as `index`",
        "Indexes that are asked before `index`. A package that one of them has is taken from no other, so that nobody "
        "can publish a newer one of the same name elsewhere.",
        'extra-index = ["https://${TOKEN}@packages.example.com/team/simple"]',
    ),
    "apt": Key("[]", "names, or name=version", "More Debian packages.", 'apt = ["libnuma1"]'),
    "gpus": Key(
        "[]",
        "product names, or capabilities",
        "The GPUs that the image must run on. The lock is refused when the torch build has no kernels for one of them.",
        'gpus = ["A100", "RTX 4090", "sm_90"]',
    ),
    "driver": Key(
        '""',
        "a release or a branch, or a list of them",
        "The drivers that the image will meet. The oldest counts: the lock is refused when it is too old, and when no "
        "driver of the list knows one of the `gpus`: B200 needs branch 570 or newer, and branch 580 is the last that "
        "knows V100.",
        'driver = ["550", "580.65.06"]',
    ),
    "guard": Key(
        "false",
        "true or false",
        "Whether the image tests its GPUs before it runs its command: see [the guard](jobs/README.md#the-guard). Only "
        'for `base = "wheels"`, and not in debug images.',
        "guard = true",
    ),
}
IMAGE = {
    "copy": Key(
        "[]",
        "paths of files and folders, from the folder of the spec on",
        "What of the project lies in the image, below `workdir`, at the same path as in the project. What the "
        "`.dockerignore` names is left out, and so is what may hold credentials, whether it says so or not: see "
        "[what is left out](image.md#what-is-left-out).",
        'copy = ["train.py", "configs"]',
    ),
    "workdir": Key(
        '""',
        "a path from the root of the image on, of letters, digits, dots, dashes and underscores",
        "Where a container starts. The folder is made, and belongs to `user`. By default `/workspace` if there is "
        "something to `copy`.",
        'workdir = "/srv/app"',
    ),
    "user": Key(
        '""',
        "`NAME`, `UID` or `NAME:UID` with a UID from 1000 on, or `root`",
        "Who a container's processes are. The user is made with a group of the same name and number and the home "
        "`/home/NAME`, which it may write; it may also add packages to the environment, and may not change those that "
        "are there. A name alone gets the UID 1000, a UID alone the name `app`. Without the key it is root, as in the "
        "base. A debug image keeps root.",
        'user = "app"',
    ),
    "env": Key(
        "{}",
        "a table: variable = text",
        "Variables of every process. A variable whose name says that it is a secret, a credential in a value, and the "
        "variables that envkit sets itself (`PATH`, `VIRTUAL_ENV`, `CUDA_HOME`, `HOME`) are refused.",
        'env = { HF_HUB_OFFLINE = "1" }',
    ),
    "expose": Key(
        "[]",
        "ports, with `/udp` or `/sctp` where they are not TCP's",
        "The ports on which a container serves. It opens none: `docker run --publish` does.",
        'expose = ["8080"]',
    ),
    "entrypoint": Key(
        "[]",
        "a program and its arguments",
        "What a container runs, with `cmd`, or the command that it is given, behind it. It must end by running those "
        'words, as `exec "$@"` does, or `envkit run -- COMMAND` and `envkit probe` reach nothing. Behind the guard if '
        "there is one. A debug image has none.",
        'entrypoint = ["/workspace/start.sh"]',
    ),
    "cmd": Key(
        "[]",
        "a program and its arguments",
        "What a container runs if it is given no command. A debug image opens a shell.",
        'cmd = ["python", "train.py"]',
    ),
    "healthcheck": Key(
        "",
        "a table: `command`, and of `interval`, `timeout`, `start-period` (such as `30s`), `retries` what is needed",
        "The command by which the engine asks whether a container serves, and when, as Dockerfile's HEALTHCHECK.",
        'healthcheck = { command = ["python", "-c", "import app; app.ping()"], interval = "30s" }',
    ),
}
# Lines that a spec with one of these examples needs beside it.
BESIDE = {
    "tag": 'base = "ngc"\n',
    "build": 'gpus = ["A100"]\n',
    "extras": 'project = "."\n',
    "groups": 'project = "."\n',
}
REQUIRED = {"torch": 'torch = "2.6.0"', "python": 'python = "3.11"'}
FIELDS = {"driver": "drivers", "exclude-newer": "before"}  # the field of Spec, where it is not the key

CHECK = {
    "fail-on": "lowest severity that makes the exit code 1: `note`, `warning` or `error`",
    "gpus": "GPUs that the files must run on, as `--gpu`",
    "driver": "the oldest driver that they will meet, as `--driver`",
    "exclude": "patterns of paths that are not read",
    "severity": "a table: check = `note`, `warning`, `error`, or `off`",
    "base": "a table for each base image of your own, with what it holds",
}

CONTRACT = {
    "require": (
        'require = ["gpu"]',
        "What a verdict must stand on. `gpu`: undecided where the driver answers for none.",
    ),
    "gpus.count": ("count = 8", "How many GPUs there are. 0 on a login node or a build host: a GPU there is a fault."),
    "gpus.name": ('name = "NVIDIA H100*"', "The name of each, as the driver says it; `*` stands for anything."),
    "gpus.memory_gib": ("memory_gib = 79", "Memory of each in GiB, at least."),
    "gpus.mig": ('mig = "off"', "Whether MIG is on: `on` or `off`."),
    "gpus.ecc": ('ecc = "on"', "Whether ECC is on: `on` or `off`."),
    "gpus.persistence": ('persistence = "on"', "Whether persistence mode is on: `on` or `off`."),
    "driver.version": ('version = ">=550.54.15,<581"', "The driver's version, as a version specifier."),
    "driver.cuda": ('cuda = ">=12.4"', "The newest CUDA that the driver supports, as a version specifier."),
    "nvlink.links": ("links = 18", "NVLinks that are up, on each GPU."),
    "infiniband.ports": ("ports = 8", "Active InfiniBand or RoCE ports."),
    "infiniband.rate_gbps": ("rate_gbps = 400", "Rate of each in Gb/s, at least."),
    "machine.kernel": ('kernel = "6.8.*"', "The kernel's release; `*` stands for anything."),
    "machine.os": ('os = "Ubuntu 24.04*"', "The distribution's name; `*` stands for anything."),
    "machine.services": ('services = ["slurmd"]', "Services of systemd that must be running."),
    "checks.require": (
        'require = ["host-infiniband-port-down"]',
        "Checks that must give an answer: skipped is a failure.",
    ),
    "checks.may_be_unknown": (
        'may_be_unknown = ["host-driver-unsigned-under-secure-boot"]',
        "Checks that may stay unknown on this kind of machine.",
    ),
}


def keys(written: type[msgspec.Struct]) -> list[str]:
    """The keys that a person may write into this table."""
    return [field.encode_name for field in msgspec.structs.fields(written)]


def read(*lines: str, first: bool = False) -> Spec:
    """The spec of these lines and of what every spec needs, which comes ``first`` where the lines are of a table."""
    given = "\n".join(lines)
    needed = "\n".join(line for key, line in REQUIRED.items() if f"{key} =" not in given)
    return spec.parse(f"{needed}\n{given}" if first else f"{given}\n{needed}", HERE)


def faults() -> list[str]:
    """What does not agree with the readers, a line each."""
    found = [f"`{key}` has no sentence, or none is known" for key in {*SPEC, "image"} ^ set(keys(spec.RawSpec))]
    found += [f"[image] `{key}` has no sentence, or none is known" for key in set(IMAGE) ^ set(keys(RawImage))]
    found += [
        f"[check] `{key}` has no sentence, or none is known" for key in set(CHECK) ^ set(keys(settings.RawSettings))
    ]
    found += [f"`{key}` of the contract has no sentence, or none is known" for key in set(CONTRACT) ^ {*leaves()}]
    plain = read()
    for key, row in SPEC.items():
        try:
            if row.default and replace(read(f"{key} = {row.default}"), path=plain.path) != plain:
                found.append(f"the default of `{key}` is not {row.default}")
            read(BESIDE.get(key, "") + row.example)
        except UsageError as error:
            found.append(f"`{key}`: {error.message}")
    for key, row in IMAGE.items():
        try:
            if row.default and read("[image]", f"{key} = {row.default}", first=True).image != plain.image:
                found.append(f"the default of `image.{key}` is not {row.default}")
            if read("[image]", row.example, first=True).image == plain.image:
                found.append(f"`image.{key}`: its example changes nothing")
        except UsageError as error:
            found.append(f"`image.{key}`: {error.message}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "expect.toml"
        for key, (example, _) in CONTRACT.items():
            path.write_text(table(key, example), encoding="utf-8")
            try:
                if contracts.load(path, checks()) == Expected():
                    found.append(f"`{key}` of the contract: its example changes nothing")
            except UsageError as error:
                found.append(f"`{key}` of the contract: {error.message}")
    return found


def checks() -> frozenset[str]:
    """The checks that the contract's examples name."""
    return frozenset({"host-infiniband-port-down", "host-driver-unsigned-under-secure-boot"})


def table(key: str, example: str) -> str:
    """The line of a contract below the heading of its table."""
    head, _, rest = key.partition(".")
    return f"[{head}]\n{example}\n" if rest else f"{example}\n"


def leaves(kind: Any = Expected, before: str = "") -> dict[str, str]:
    """The keys of the contract with their types in words."""
    found: dict[str, str] = {}
    hints = get_type_hints(kind)
    for one in fields(kind):
        if is_dataclass(inner := hints[one.name]):
            found |= leaves(inner, f"{before}{one.name}.")
        else:
            found[before + one.name] = in_words(inner)
    return found


def in_words(kind: Any) -> str:
    """A type in words."""
    parts = [part for part in get_args(kind) if part not in (type(None), Ellipsis)]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f'"{member.value}"' for member in kind)
    if str(kind).startswith("tuple"):
        return "a list of texts"
    return {int: "a whole number", float: "a number", str: "a text"}[parts[0] if parts else kind]


def systems() -> str:
    """The operating systems that the facts know."""
    return ", ".join(['"auto"', *(f"{row.name} (Python {row.python})" for row in facts.load().oses)])


def spec_page() -> str:
    """The text of docs/spec.md."""
    hints = get_type_hints(Spec)
    lines = [
        "# The spec: envkit.toml",
        "",
        "Written by `scripts/spec_table.py` from the types that read the file. `envkit init` writes a spec with",
        "comments. `torch` and `python` are required. An unknown key is refused, with the nearest one that exists.",
        "Where there is no `envkit.toml`, the table `[tool.envkit]` of `pyproject.toml` is the spec; `project` is then",
        'that project, unless it says `project = ""`.',
        "",
        "```toml",
        *(row.example for key, row in SPEC.items() if key not in ("tag", "platform", "guard")),
        "```",
    ]
    for key, row in SPEC.items():
        takes = row.takes or "one of " + (systems() if key == "os" else in_words(hints[FIELDS.get(key, key)]))
        default = (
            f"`{row.default}`" if row.default else "the folder's name" if key == "name" else "none: it is required"
        )
        beside = BESIDE.get(key, "")
        lines += ["", f"## {key}", "", row.means, "", f"- takes: {takes}", f"- default: {default}", "", "```toml"]
        lines += [*beside.splitlines(), row.example, "```"]
    lines += [
        "",
        "## The table [image]",
        "",
        "What of your project an image holds, and how its containers start: [your project in the image](image.md).",
        "None of it is part of what a lock answers, so a change asks for a new build and for no new lock.",
    ]
    for key, row in IMAGE.items():
        default = f"`{row.default}`" if row.default else "none"
        lines += ["", f"### {key}", "", row.means, "", f"- takes: {row.takes}", f"- default: {default}", ""]
        lines += ["```toml", "[image]", row.example, "```"]
    lines += [
        "",
        "## The table [check]",
        "",
        "Settings of `envkit check`, which may stand in the same file or in one of their own:",
        "[settings](check.md#settings) has an example.",
        "",
        "| key | |",
        "|---|---|",
        *(f"| `{key}` | {means} |" for key, means in CHECK.items()),
        "",
        f"A base image of your own may say: {', '.join(f'`{key}`' for key in keys(settings.KnownBase))}.",
    ]
    return "\n".join(lines) + "\n"


def contract_page() -> str:
    """The text of docs/contract.md."""
    lines = [
        "# The contract: expect.toml",
        "",
        "Written by `scripts/spec_table.py` from the types that read the file. `envkit doctor --expect FILE` and",
        "`envkit preflight --expect FILE` hold a machine to it. Every key is optional; what the contract does not say",
        "is not judged. An unknown key is refused. [Examining a machine](doctor.md#the-contract) has a whole contract.",
    ]
    for key, kind in leaves().items():
        example, means = CONTRACT[key]
        lines += [
            "",
            f"## {key}",
            "",
            means,
            "",
            f"- takes: {kind}",
            "",
            "```toml",
            *table(key, example).splitlines(),
            "```",
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the pages, or says whether they are current; 1 where something does not agree with the readers."""
    wrong = faults()
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    made = {ROOT / "docs" / "spec.md": spec_page(), ROOT / "docs" / "contract.md": contract_page()}
    if sys.argv[1:] == ["--check"]:
        return (
            0 if all(path.exists() and path.read_text(encoding="utf-8") == text for path, text in made.items()) else 1
        )
    for path, text in made.items():
        files.write(path, text)
        print(f"{path.relative_to(ROOT)}: {text.count(chr(10) + '## ')} keys")
    return 0


if __name__ == "__main__":
    sys.exit(main())
