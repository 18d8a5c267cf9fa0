"""A lock as a software bill of materials, in the format CycloneDX: wheels, Debian packages and the base, by content.

The text depends on the lock, the flavor and the licences alone: its time is the lock's, and its serial number is made
of the lock's hash.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256

from cyclonedx.exception.factory import InvalidLicenseExpressionException
from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from envkit import __version__
from envkit.build.render import apt_epoch
from envkit.plan.lockfile import Deb, Lock, Pin, dump, upto

_NAMESPACE = uuid.UUID("8a1f6d0e-6a53-4f8e-9f0d-3b3c2f0f5a11")  # of the serial numbers; any that stays the same


def cyclonedx(lock: Lock, flavor: str, licences: Mapping[str, Sequence[str]]) -> str:
    """The bill of an image of ``flavor``, as JSON of CycloneDX 1.6; ``licences`` are by the name of the wheel."""
    text = dump(lock)
    digest = sha256(text.encode()).hexdigest()
    wheels, debs = upto(lock, flavor)
    parts = [_base(lock), *(_wheel(pin, licences.get(pin.name, ())) for pin in wheels)]
    parts += [_deb(deb, lock) for deb in debs]
    about = [Property(name="envkit:flavor", value=flavor), Property(name="envkit:platform", value=lock.platform)]
    image = Component(
        name=lock.name,
        version=digest[:12],
        type=ComponentType.CONTAINER,
        bom_ref="image",
        properties=[*about, Property(name="envkit:lock:sha256", value=digest)],
    )
    tool = Component(name="envkit", version=__version__, type=ComponentType.APPLICATION, bom_ref="envkit")
    bom = Bom(
        components=parts,
        serial_number=uuid.uuid5(_NAMESPACE, f"{flavor} {digest}"),
        metadata=BomMetaData(
            component=image,
            tools=ToolRepository(components=[tool]),
            timestamp=datetime.fromtimestamp(max(lock.epoch, apt_epoch(lock)), UTC),
        ),
    )
    bom.register_dependency(image, parts)
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def _hashed(digest: str) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))] if digest else []


def _base(lock: Lock) -> Component:
    """The base: a registry's image by its manifest's digest, or a tree made of packages by that tree's hash."""
    if lock.origin != "registry" or not lock.digest:
        return Component(
            name=lock.image,
            version=lock.digest or None,
            type=ComponentType.OPERATING_SYSTEM,
            bom_ref="base",
            hashes=_hashed(lock.digest),
        )
    name, _, tag = lock.image.partition("@")[0].partition(":")
    where = {"repository_url": name, **({"tag": tag} if tag else {})}
    return Component(
        name=lock.image,
        version=lock.digest,
        type=ComponentType.CONTAINER,
        bom_ref="base",
        hashes=_hashed(lock.digest),
        purl=PackageURL(type="oci", name=name.rpartition("/")[2], version=lock.digest, qualifiers=where),
    )


def _wheel(pin: Pin, said: Sequence[str]) -> Component:
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"wheel:{pin.name}",
        hashes=_hashed(pin.sha256),
        purl=PackageURL(type="pypi", name=pin.name, version=pin.version, qualifiers={"file_name": pin.file}),
        licenses=_licences(said),
    )


def _licences(said: Sequence[str]) -> list[License]:
    """One expression of SPDX, or what else METADATA says, each by its identifier where it is one."""
    factory = LicenseFactory()
    if len(said) == 1:
        try:
            return [factory.make_from_string(said[0])]
        except InvalidLicenseExpressionException:
            return [factory.make_with_name(said[0])]
    return [factory.make_with_name(one) for one in said]


def _deb(deb: Deb, lock: Lock) -> Component:
    where = {"arch": deb.arch, **({"distro": lock.suite} if lock.suite else {})}
    return Component(
        name=deb.name,
        version=deb.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"deb:{deb.name}",
        hashes=_hashed(deb.sha256),
        purl=PackageURL(type="deb", namespace="debian", name=deb.name, version=deb.version, qualifiers=where),
    )
