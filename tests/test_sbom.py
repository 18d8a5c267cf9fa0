"""The bill of materials: valid by the official schema of CycloneDX, complete by the lock, and always the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from forked import envkit
from index import Index
from packageurl import PackageURL

from envkit.build import bill
from envkit.plan import licences
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Lock
from envkit.system import index as client

IMAGES = Path(__file__).resolve().parents[1] / "images"
LOCK = locks.parse((IMAGES / "torch-2.6-cu124" / "envkit.lock").read_text(), "envkit.lock")
DEBUG = locks.parse((IMAGES / "torch-2.6-cu124-debug" / "envkit.lock").read_text(), "envkit.lock")
PULLED = locks.parse((IMAGES / "torch-2.6-cu124-pytorch" / "envkit.lock").read_text(), "envkit.lock")
VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)
HOSTILE = ("MIT AND (", '"', "a\nb", "<x>", "\x00", "GPL-2.0-only OR MIT", "Ünlicense", "{}", "Apache 2.0", "x" * 5000)


@pytest.mark.parametrize(
    ("lock", "flavor"),
    [
        (LOCK, "runtime"),
        pytest.param(DEBUG, "debug", marks=pytest.mark.slow),  # the schema looks at each of 200 parts
        (PULLED, "runtime"),
    ],
)
def test_the_official_schema_takes_it(lock: Lock, flavor: str) -> None:
    texts = [*((one,) for one in HOSTILE), *[("MIT", "BSD License")] * 99]
    said = dict(zip((pin.name for pin in lock.wheels), texts, strict=False))
    text = bill.cyclonedx(lock, flavor, said)
    assert VALIDATOR.validate_str(text) is None
    assert text == bill.cyclonedx(lock, flavor, dict(reversed(said.items())))
    broken = json.loads(text)
    broken["components"][0]["type"] = "wheel"  # the schema does refuse
    assert VALIDATOR.validate_str(json.dumps(broken)) is not None


def test_it_holds_every_wheel_and_package_of_the_flavor_and_no_other() -> None:
    for lock, flavor in ((DEBUG, "runtime"), (DEBUG, "debug")):
        made = json.loads(bill.cyclonedx(lock, flavor, {}))
        found = {one["bom-ref"]: one for one in made["components"]}
        wheels, debs = locks.upto(lock, flavor)
        assert set(found) == {"base", *(f"wheel:{pin.name}" for pin in wheels), *(f"deb:{deb.name}" for deb in debs)}
        for pin in wheels:
            one = found[f"wheel:{pin.name}"]
            assert one["hashes"] == [{"alg": "SHA-256", "content": pin.sha256}] and one["version"] == pin.version
            name = PackageURL.from_string(one["purl"])
            assert (name.type, name.name, name.version, name.qualifiers) == (
                "pypi", pin.name, pin.version, {"file_name": pin.file},
            )  # fmt: skip
            assert "licenses" not in one
        for deb in debs:
            name = PackageURL.from_string(found[f"deb:{deb.name}"]["purl"])
            assert (name.type, name.namespace, name.name, name.version) == ("deb", "debian", deb.name, deb.version)
            assert name.qualifiers == {"arch": deb.arch, "distro": lock.suite}
        (tied,) = [one for one in made["dependencies"] if one["ref"] == "image"]
        assert {*tied["dependsOn"]} == {*found}


def test_the_base_is_named_by_its_digest() -> None:
    (made,) = [one for one in json.loads(bill.cyclonedx(LOCK, "runtime", {}))["components"] if one["bom-ref"] == "base"]
    assert (made["type"], made["version"]) == ("operating-system", LOCK.digest) and "purl" not in made
    digest = "sha256:" + "ab" * 32
    pulled = replace(LOCK, origin="registry", digest=digest, image="ghcr.io/team/base:1")
    (made,) = [
        one for one in json.loads(bill.cyclonedx(pulled, "runtime", {}))["components"] if one["bom-ref"] == "base"
    ]
    name = PackageURL.from_string(made["purl"])
    assert (name.type, name.name, name.version) == ("oci", "base", digest)
    assert name.qualifiers == {"repository_url": "ghcr.io/team/base", "tag": "1"}
    (made,) = [
        one
        for one in json.loads(bill.cyclonedx(replace(LOCK, digest=""), "runtime", {}))["components"]
        if one["bom-ref"] == "base"
    ]
    assert "version" not in made and "hashes" not in made


def test_its_time_and_number_are_the_locks() -> None:
    one, other = (json.loads(bill.cyclonedx(LOCK, flavor, {})) for flavor in ("runtime", "devel"))
    assert one["metadata"]["timestamp"] == other["metadata"]["timestamp"] < "2026-11-28"
    assert one["serialNumber"] != other["serialNumber"]
    assert json.loads(bill.cyclonedx(replace(LOCK, epoch=1), "runtime", {}))["serialNumber"] != one["serialNumber"]


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: x", ("MIT OR Apache-2.0",)),
        ("Classifier: License :: OSI Approved :: BSD License\nLicense: BSD", ("BSD License",)),
        ("Classifier: License :: OSI Approved\nLicense: BSD-3-Clause", ("BSD-3-Clause",)),
        ("Classifier: License :: A\nClassifier: License :: B\nClassifier: License :: A", ("A", "B")),
        ("License: MIT\n  and more\n  of it", ("MIT",)),
        ("License: UNKNOWN", ()),
        ("License: " + "x" * 500, ()),
        ("Summary: x\n\nLicense: MIT", ()),  # of the description
        ("", ()),
    ],
)
def test_a_licence_is_what_metadata_says(heads: str, said: tuple[str, ...]) -> None:
    assert licences.stated(f"Metadata-Version: 2.4\nName: a\n{heads}\n\ntext\n") == said


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (("MIT",), [{"license": {"id": "MIT"}}]),
        (("MIT OR Apache-2.0",), [{"expression": "MIT OR Apache-2.0"}]),
        (("BSD License",), [{"license": {"name": "BSD License"}}]),
        (("A License", "MIT License"), [{"license": {"name": "A License"}}, {"license": {"name": "MIT License"}}]),
    ],
)
def test_a_licence_is_an_identifier_where_it_is_one(said: tuple[str, ...], shown: list[dict[str, object]]) -> None:
    made = json.loads(bill.cyclonedx(LOCK, "runtime", {"torch": said}))
    (torch,) = [one for one in made["components"] if one["bom-ref"] == "wheel:torch"]
    assert torch["licenses"] == shown


def test_licences_come_from_the_wheel_itself(index: Index) -> None:
    held = index.add("held", "1.0", heads=("License-Expression: MIT",))
    silent = index.add("silent", "1.0")
    other = replace(index.add("other", "1.0", heads=("License-Expression: MIT",)), sha256="0" * 64)
    gone = replace(silent, name="gone", file="gone-1.0-py3-none-any.whl")
    known, unread = licences.of_index((held, silent, other, gone), client.configured())
    assert known == {"held": ("MIT",), "silent": ()}
    assert unread == dict.fromkeys(("other", "gone"), "the package index does not have this wheel")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "trainer"
    made.mkdir()
    for name in ("envkit.toml", "envkit.lock"):
        (made / name).write_bytes((IMAGES / "torch-2.6-cu124" / name).read_bytes())
    return made


@pytest.mark.slow  # the schema looks at each part
def test_the_verb_prints_or_writes_it(project: Path, index: Index) -> None:
    plain = envkit("sbom", str(project), "--no-licenses")
    assert (plain.returncode, plain.stderr) == (0, "") and VALIDATOR.validate_str(plain.stdout) is None
    written = envkit("sbom", str(project), "--no-licenses", "-o", str(project / "bom.json"))
    assert written.stdout == f"{project / 'bom.json'}\n" and (project / "bom.json").read_text() == plain.stdout
    asked = envkit("sbom", str(project))  # of an index that has none of the wheels
    assert asked.returncode == 0 and asked.stdout == plain.stdout
    assert "no licence of filelock, fsspec, jinja2" in asked.stderr
    (project / "envkit.lock").unlink()
    refused = envkit("sbom", str(project), "--no-licenses", "-o", str(project / "new.json"))
    assert refused.returncode == 2 and "there is no lock" in refused.stderr and not (project / "new.json").exists()
