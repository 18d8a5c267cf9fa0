"""Whether the releases of packages that a Dockerfile pins are ones that go together, by what each of them asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envkit.dockerfile.requirements import admits, allows
from envkit.facts import Facts, RequireRow
from envkit.judging.checks import _by_index as by_index
from envkit.judging.checks import _nvidia_wheels as nvidia_wheels
from envkit.judging.checks._dockerfile import Commands, apart, commands_of, need_stages, optional, reached, together
from envkit.judging.checks._outcomes import found, skip_if, warning
from envkit.judging.checks._pips import of_one_command
from envkit.judging.checks._torch_fit import cited
from envkit.judging.checks._torch_ousted import BOUND_BY_TORCH, Against, against, torch_of_base
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Dockerfile, Install, Torch

_HEEDLESS = frozenset({"--no-deps", "--override", "--overrides", "--use-deprecated"})
# What brings a NumPy that pip finds in a distribution's own folder.
_WITH_NUMPY = pattern(r"numpy|scipy|pandas|opencv|matplotlib|\bros-")


@dataclass(frozen=True, slots=True)
class _Asked:
    """One package that asks for releases of another: ``row`` says so, ``use`` that its metadata does not."""

    one: Install
    other: str
    specifier: str
    row: RequireRow
    use: bool

    @property
    def words(self) -> str:
        """What it asks for, as a sentence has it."""
        verb = "works with" if self.use else "asks for"
        return f"{self.one.name} {self.one.version} {verb} {self.other}{self.specifier}"


def package_rejected(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The releases that are pinned are ones that the packages beside them ask for.  Source: Requires-Dist in their
    METADATA; what an import takes where that says less."""
    need_stages(dockerfile)
    lenient = {span for _, step in reached(dockerfile) for span in optional(step)}
    order = [one for one in dockerfile.installs if _counts(one) and one.span not in lenient]
    pins = [one for one in order if one.version]
    wishes = [asked for one in pins for asked in _asks(one, facts)]
    commands = commands_of(dockerfile)
    others = [*_over_tensorflow(dockerfile, order, facts)]
    others += nvidia_wheels.excluding(dockerfile, order, commands, _HEEDLESS, facts)
    others += by_index.refusals(dockerfile, facts, torch=False)
    met = list(against(dockerfile, _over_torch(dockerfile, order), facts))
    others += [_other_triton(one, dockerfile) for one in met if one.by is None and one.pin.name == "triton"][:1]
    yield from others
    skip_if(not (wishes or others), "no package is pinned of which is known which releases of others it asks for")
    named: dict[str, list[tuple[int, Install]]] = {}  # by name, with the place in the order
    for at, one in enumerate(order):
        named.setdefault(one.name, []).append((at, one))
    # Of a torch that gives way to its pin torch-installed-twice tells.
    told = {("torch", one.pin.name) for one in met if one.by is not None or one.pin.name == "triton"}
    for asked in wishes:
        if (asked.one.name, asked.other) in told:
            continue
        finding = _beside(asked, named, commands, dockerfile, facts) or _brought(
            asked, wishes, order, dockerfile, facts
        )
        if finding is not None:
            told.add((asked.one.name, asked.other))
            yield finding


_TENSORFLOWS = pattern(r"(\d+\.\d+\.\d+)(?:-gpu)?(?:-jupyter)?")


def _over_tensorflow(dockerfile: Dockerfile, order: Sequence[Install], facts: Facts) -> Iterator[Finding]:
    """A pin that takes the place of what the TensorFlow of TensorFlow's own image asks for."""
    base = dockerfile.base
    tag = _TENSORFLOWS.fullmatch(base.tag) if base.repository == "tensorflow/tensorflow" and base.sure else None
    if tag is None or any(each.name.startswith("tensorflow") for each in order) or dockerfile.unread:
        return
    last = {each.name: each for each in order if not apart(each.prefix) and "--target" not in each.options}
    for row in facts.require_rows("tensorflow", tag[1]):
        for other, specifier in row.requires.items():
            pin = last.get(other)
            if pin is None or not pin.version or allows(specifier, pin.version) is not False:
                continue
            yield warning(
                f"{base.reference} holds tensorflow {tag[1]}, which asks for {other}{specifier}, and {pin.name} "
                f"{pin.version} is installed over the one that it took",
                pin.span,
                {f"tensorflow {tag[1]} asks for {other}{specifier}": cited(row), base.reference: base.span.place},
                f"take a {other} that is {specifier}, or another release of tensorflow, and test the two",
            )


def _over_torch(dockerfile: Dockerfile, order: Sequence[Install]) -> list[Torch]:
    """The torches of a build that has a triton, or another that torch asks for, named: the base's first."""
    if not any(each.name in BOUND_BY_TORCH for each in order):
        return []
    base, torches = torch_of_base(dockerfile), list(dockerfile.torches)
    if base is not None and dockerfile.base.sure and not (torches and torches[0].method == "base"):
        torches.insert(0, base)
    return torches


def _other_triton(one: Against, dockerfile: Dockerfile) -> Finding:
    """A triton that takes the place of the one that the torch which is there asks for, while torch stays as it is."""
    base, pin = dockerfile.base.reference, f"triton{one.pin.specifier}"
    holds = f"{base} holds" if one.torch.method == "base" else f"{one.torch.span.place} installs"
    return warning(
        f"{holds} torch {one.release}, which asks for triton{one.asked}, and {pin} is installed over the one that it "
        "took",
        one.pin.span,
        {f"torch {one.release} asks for triton{one.asked}": one.because, pin: one.pin.span.place},
        f"take triton{one.asked}, or the torch that asks for {pin}, and test the two",
    )


def _counts(one: Install) -> bool:
    plain = not (one.url or one.constraint or one.locked or one.marker)
    return one.manager in ("pip", "uv") and one.sure and plain and "$" not in one.specifier + one.version


def _asks(one: Install, facts: Facts) -> Iterator[_Asked]:
    for row in facts.require_rows(one.name, one.version):
        for other, specifier in row.requires.items():
            if other == "triton" and (one.local or one.index or one.extra_indexes or one.find_links):
                continue  # torch's builds of other indexes ask for another one, or for none
            yield _Asked(one, other, specifier.replace("{version}", one.version), row, row in facts.require_uses)


def _beside(
    asked: _Asked,
    named: Mapping[str, Sequence[tuple[int, Install]]],
    commands: Mapping[Span, Commands],
    dockerfile: Dockerfile,
    facts: Facts,
) -> Finding | None:
    """What comes of a pin of the other package that is not among the releases asked for."""
    one = asked.one
    others = named.get(asked.other, ())
    mine = commands.get(one.span, {}) if others else {}
    for _, pin in others:
        heeded = not asked.use and pin.version and not _HEEDLESS & (one.options | pin.options)
        if heeded and together(mine, commands.get(pin.span, {})) and allows(asked.specifier, pin.version) is False:
            return _refused(asked, pin, dockerfile, facts)
    last = [each for each in others if each[1].prefix == one.prefix][-1:]
    stays = [each for each in named[one.name] if each[1].prefix == one.prefix][-1:]
    if not last or not one.prefix or stays[0][1] != one:
        return None
    pin, over = last[0][1], last[0][0] > stays[0][0]
    if not pin.version and over:
        pin = _newest(pin, dockerfile, facts)
    if not pin.version:
        return None
    if allows(asked.specifier, pin.version) is not False:
        return None
    if asked.use:
        so = f", and here is {pin.name} {pin.version}: {asked.row.note}"
    elif "--no-deps" in one.options or together(mine, commands.get(pin.span, {})):
        return None
    elif over:
        so = f", and {pin.name} {pin.version} is installed over the one that it took"
    else:
        so = f", so that {one.manager} puts such a one in the place of {pin.name} {pin.version}"
    return warning(
        asked.words + so,
        pin.span if over else one.span,
        {asked.words: cited(asked.row), f"{pin.name} {pin.version}": pin.span.place},
        _fix(asked),
    )


def _newest(one: Install, dockerfile: Dockerfile, facts: Facts) -> Install:
    """An install that is told to take the newest release of a name alone, with the newest that its Python takes."""
    told = {"--upgrade", "--force-reinstall", "--reinstall"} & one.options and not {"--pre"} & one.options
    held = one.specifier or one.index or one.extra_indexes or one.find_links or not one.python
    if not told or held or any(each.constraint or each.locked for each in dockerfile.installs):
        return one
    return replace(one, version=next(iter(_known(one.name, one.python, facts)), ""))


def _refused(asked: _Asked, pin: Install, dockerfile: Dockerfile, facts: Facts) -> Finding:
    """Two pins of one command that exclude each other."""
    severity, so = of_one_command(dockerfile, asked.one, facts)
    evidence = {asked.words: cited(asked.row), f"{pin.name} {pin.version}": pin.span.place}
    message = f"{asked.words}, and {pin.name} {pin.version} is pinned beside it{so}"
    return found(message, pin.span, severity, _fix(asked), evidence)


def _fix(asked: _Asked) -> str:
    return f"take a {asked.other} that is {asked.specifier}, or another release of {asked.one.name}, and test the two"


def _brought(
    asked: _Asked, wishes: Sequence[_Asked], order: Sequence[Install], dockerfile: Dockerfile, facts: Facts
) -> Finding | None:
    """What comes of a package that works with an older release of another than its metadata lets in, where nothing
    holds the installer back from the newest that is let in."""
    one = asked.one
    named = [each for each in dockerfile.installs if each.name == asked.other]
    if (
        any(each not in order for each in named)
        or not asked.use
        or dockerfile.unread
        or any(each.version for each in named)
        or not _needed(asked, wishes, named)
    ):
        return None
    held = any(each.constraint or each.locked for each in dockerfile.installs)
    plain = dockerfile.base.family in ("python", "os", "nvidia", "pytorch") and dockerfile.base.sure
    if held or not plain or not one.python or "--no-deps" in one.options or one.index or one.extra_indexes:
        return None
    if asked.other == "numpy" and not _numpy_is_free(order, dockerfile, facts):
        return None
    bounds = [each.specifier for each in wishes if each.other == asked.other and not each.use]
    bounds += [each.specifier for each in named]
    newest = next(
        (each for each in _known(asked.other, one.python, facts) if all(_in(each, bound) for bound in bounds)), ""
    )
    if not newest or allows(asked.specifier, newest) is not False:
        return None
    return warning(
        f"{asked.words}, and {one.manager} takes the newest that is let in, {newest} or a newer one: {asked.row.note}",
        one.span,
        {asked.words: cited(asked.row)},
        f"add `{asked.other}{asked.specifier}`, or take a newer {one.name}",
    )


def _numpy_is_free(order: Sequence[Install], dockerfile: Dockerfile, facts: Facts) -> bool:
    """Whether neither the base holds a NumPy nor a pinned package of which nothing is known may hold it back."""
    others = (each for each in dockerfile.installs if not _counts(each))
    held = dockerfile.base.family == "pytorch" or any(_WITH_NUMPY.search(each.name) for each in others)
    return not held and all(
        not each.specifier or each.name == "numpy" or facts.require_rows(each.name, each.version) for each in order
    )


def _needed(asked: _Asked, wishes: Sequence[_Asked], named: Sequence[Install]) -> bool:
    """Whether the other package is installed: named, or required by a pinned one."""
    by_itself = asked.other == "numpy"  # which all those require that are compiled against it
    return by_itself or bool(named) or any(each.other == asked.other and not each.use for each in wishes)


def _in(release: str, bound: str) -> bool:
    return not bound or allows(bound, release) is True


def _known(name: str, python: str, facts: Facts) -> list[str]:
    """Releases of a package that the facts mention and that a Python takes, the newest first."""
    from packaging.version import Version

    mine = [row for row in facts.needs_pythons if row.package == name and admits(row.requires, python) is not False]
    wheels = [row for row in facts.wheel_pythons if row.package == name and python[:4].rstrip(".") in row.pythons]
    rows = mine or wheels or [row for row in facts.requires if row.package == name]
    return sorted({row.until for row in rows} | {row.since for row in rows}, key=Version, reverse=True)
