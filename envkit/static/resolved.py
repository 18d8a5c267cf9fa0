"""`envkit check --resolve`: what each command of pip and uv in a Dockerfile does to the torch that is there, asked of
the package index in the order of the build.

Of the index nothing is taken for granted: what cannot be asked is said, and is never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envkit.dockerfile.evaluate import read
from envkit.dockerfile.follows import Taken
from envkit.dockerfile.torches import cuda_of, variant_of
from envkit.dockerfile.tree import Source
from envkit.errors import EnvkitError, Undecided, Unsatisfiable, UsageError
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Observed, Outcome, Result, Severity, Span
from envkit.plan import dry_run
from envkit.plan.dry_run import Answer, Budget, Library, Question
from envkit.plan.indexes import Access, Indexes
from envkit.plan.together import Unreached
from envkit.plan.wheels import TargetPlatform
from envkit.static import ASKED, AskIndex, CheckOptions, JudgedFile
from envkit.static.stub_index import StubIndexes
from envkit.subjects.dockerfile import Base, Dockerfile, Install
from envkit.subjects.packages import Packages
from envkit.subjects.resolved import FAMILY, Change, Dist, Environment, LeftOut, Resolved, Unmet
from envkit.system import files
from envkit.versions import Python

# The checks that are judged again on what the index says.
CHECKS = frozenset(
    {
        "cpu-torch-in-cuda-image", "driver-too-old", "extra-index-shadowed", "gpu-arch-not-covered", "numpy-too-new",
        "package-rejected", "torch-cuda-vs-base-mismatch-major", "torch-cuda-vs-base-mismatch-minor",
        "torch-installed-twice", "torch-python-unsupported", "torch-rejected", "torchvision-mismatch",
    }
)  # fmt: skip
_UNKNOWN_IN = {"ngc": ("numpy", "torchvision", "triton"), "pytorch": ("numpy",), "other": ("numpy",)}
_MANAGERS = ("pip", "uv")
_NO_PYTHON = "the Python that it installs into is not known"
_PROBE_S = 20.0  # for one page of an index that a file names
_WATCHED = (*FAMILY, "numpy")
_OF_BUILD = re.compile(r"(?i)(?:nvidia|cuda|triton|pytorch-triton)\b")

Say = Callable[[str], None]


class ByIndex:
    """A Follower that asks the package index; ``before`` is the day whose index is meant, "" for today."""

    def __init__(self, facts: Facts, budget: Budget, before: str, say: Say, stubs: Path, text: str = "") -> None:
        self.facts, self.budget, self.before, self.say = facts, budget, before, say
        self.library = Library()
        self.followed: dict[tuple[str, str], tuple[str, ...]] = {}  # releases without a wheel, and what they ask for
        self.silent_pages: set[str] = set()  # addresses of --find-links
        self.probed: set[str] = set()  # the addresses of indexes that files name
        self.stubs = StubIndexes(facts, stubs)
        self.held_by_constraint = "constraint" not in text.lower()
        self.failed = ""  # why nothing more is asked
        day = before or datetime.now(UTC).date().isoformat()
        self.said_by = f"the package index {'as of' if before else 'on'} {day}"

    # ---------------------------------------------------------------- what is there

    def begins(self, base: Base) -> Environment:
        """As Follower."""
        unknown = [Dist(name, "") for name in _UNKNOWN_IN.get(base.family, ())]
        found = {one.name: one for one in unknown}
        version = None if base.torch.missing else base.torch.value
        if base.torch.is_unsupported:
            return found
        by = f"the base {base.reference}"
        if version is None:
            return found if base.family in ("os", "nvidia", "python") else found | _nothing_known()
        found["torch"] = Dist("torch", version, (), by)
        if base.family == "pytorch":
            for row in self.facts.torch_builds(version)[:1]:
                for name, mates in (("torchvision", row.torchvision), ("torchaudio", row.torchaudio)):
                    if mates:
                        release = str(row.torch)
                        found[name] = Dist(name, str(mates[-1]), (f"torch=={release}",), by)
        return found

    # ---------------------------------------------------------------- one command

    def took(self, installs: list[Install], before: Environment, base: Base) -> Taken:
        """As Follower."""
        before = _overlaid(before, [one for one in installs if one.manager not in _MANAGERS])
        asked = [one for one in installs if one.manager in _MANAGERS and one.sure]
        wanted = [one for one in asked if not one.constraint]
        if not wanted or len(asked) < len([one for one in installs if one.manager in _MANAGERS]):
            return Taken(installs, (), _overlaid(before, installs))
        first = wanted[0]
        record = Resolved(
            first.manager, first.span, first.prefix, self.said_by, spans=frozenset(one.span for one in wanted)
        )
        if all(one.locked for one in wanted):
            return Taken(installs, (), _overlaid(before, installs))
        try:
            return self._asked(wanted, asked, before, base, record)
        except Unsatisfiable as error:
            said = _sentence(error)
            torch = bool(re.search(r"\btorch(?:vision|audio)?\b", said))
            refused = replace(record, refused=said, about_torch=torch)
            return Taken(installs, (), _overlaid(before, installs), refused)
        except EnvkitError as error:
            if isinstance(error, Unreached):  # an index that a file names was heard before: it is the machine's own
                self.failed = self.failed or error.message
            return Taken(
                installs, (), _overlaid(before, installs), replace(record, unanswered=error.message.rstrip("."))
            )

    def _asked(
        self, wanted: list[Install], asked: list[Install], before: Environment, base: Base, record: Resolved
    ) -> Taken:
        if self.failed:
            raise Undecided(self.failed, "")
        held = {} if "--target" in wanted[0].options else dict(before)
        lines, left_out, direct = self._lines(wanted, held)
        if direct:
            held |= direct
        question = self._question(wanted, asked, lines, held, base)
        left_out += _of_unknown(wanted, question.excluded)
        names = ", ".join(lines[:3]) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
        answer, stood_in = Answer({}), ""
        if lines:
            self.say(f"asking the package index: {names}")
            answer, stood_in, question = self._answered(question)
            for url in wanted[0].find_links:
                if url.rstrip("/") in {page.rstrip("/") for page in self.silent_pages}:
                    left_out.append(LeftOut(_short(url), "its page does not answer", wanted[0].span))
            answer, question = self._with_sources(answer, question)
        if stood_in:
            record = replace(record, said_by=f"{record.said_by}, and the facts for {stood_in}")
        comes = {**{name: one.version for name, one in direct.items()}, **answer.comes}
        requires = self.library.read(answer.comes, question, self.budget)
        after = dict(held)
        for name, version in answer.comes.items():
            after[name] = Dist(name, version, requires.get(name, ()), f"{record.span.place}")
        for name, source in answer.sources.items():
            after[name] = Dist(name, source.version, self.followed.get((name, source.version), ()), record.span.place)
        return self._taken(wanted, asked, dict(before), after, comes, question, replace(
            record, left_out=(*left_out, *self._left(answer, wanted))
        ))  # fmt: skip

    def _lines(
        self, wanted: Iterable[Install], held: Mapping[str, Dist]
    ) -> tuple[tuple[str, ...], list[LeftOut], dict[str, Dist]]:
        """What the index is asked for, what it is not, and what comes from an address and is known by its name."""
        lines: list[str] = []
        left: list[LeftOut] = []
        direct: dict[str, Dist] = {}
        for one in wanted:
            if one.url:
                if one.version and one.name:
                    version = f"{one.version}+{one.local}" if one.local else one.version
                    direct[one.name] = Dist(one.name, version, (), one.span.place)
                elif one.name in held or one.name == "torch":
                    direct[one.name] = Dist(one.name, "", (), one.span.place)
                if "://" in one.url and one.name not in FAMILY:
                    left.append(LeftOut(one.name or _short(one.url), "it comes from an address", one.span))
                continue
            extras = f"[{','.join(one.extras)}]" if one.extras else ""
            line = f"{one.name}{extras}{one.specifier}" + (f"; {one.marker}" if one.marker else "")
            try:
                Requirement(line)
            except InvalidRequirement:
                left.append(LeftOut(one.name, f"{one.specifier} is not known before the build", one.span))
                continue
            lines.append(line)
        return tuple(dict.fromkeys(lines)), left, direct

    def _question(
        self, wanted: list[Install], asked: list[Install], lines: tuple[str, ...], held: dict[str, Dist], base: Base
    ) -> Question:
        first = wanted[0]
        python = first.python or (self.facts.os_python(base.os.value or "") if base.family in ("os", "nvidia") else "")
        try:
            target = Python(".".join((python or "").split(".")[:2]))
        except ValueError as error:
            raise UsageError(_NO_PYTHON, "") from error
        try:
            glibc = self.facts.os(base.os.value or "").glibc
        except UsageError:
            glibc = None  # of a base that nobody knows as new as any: no wheel is out of reach
        machine = "aarch64" if re.search("arm64|aarch64", base.platform) else "x86_64"
        constraints = [f"{one.name}{one.specifier}" for one in asked if one.constraint and not one.url]
        torch = held.get("torch")
        if torch is not None and torch.by.startswith("the base") and torch.version:
            held["torch"] = torch = _with_local(torch, asked, base)
            if first.manager == "pip" and self._constrained(base):
                constraints.append(f"torch=={torch.version}")
        names = {canonicalize_name(Requirement(line).name) for line in lines}
        firm = {one.name for one in wanted if one.version}
        excluded = {one.name for one in held.values() if not one.version and one.name not in firm}
        before = self.before
        newest = max(row.glibc for row in self.facts.oses if row.glibc is not None)
        place = TargetPlatform(target, machine, glibc or newest, indexes=self._indexes(first, wanted))
        flags = list(dry_run.flags_of(first.manager, first.options, sorted(names)))
        for url in first.find_links:
            if variant_of(url) or "torch_stable" in url:
                continue  # the builds of that index stand in for the page
            page = dry_run.access(url).url
            if page not in self.silent_pages:
                flags += ["--find-links", page]
        good = tuple(line for line in constraints if _valid(line))
        question = Question((), place, before=before)
        if lines and torch is not None and torch.version and not torch.requires:
            held["torch"] = replace(torch, requires=self._torch_asks(torch.version, question))
        wheels = bool({"--only-binary=:all:", "--prefer-binary", "--no-build"} & first.options)
        return Question(lines, place, held, good, tuple(flags), frozenset(excluded), before, wheels)

    def _torch_asks(self, version: str, question: Question) -> tuple[str, ...]:
        """What a torch that the index may not have asks for: what the release of that number does, but for libraries
        of CUDA and its compiler, which each build has its own way."""
        release = version.partition("+")[0]
        if not self.facts.torch_builds(release):
            return ()
        lines = self.library.of("torch", release, question, self.budget)
        return tuple(line for line in lines if not _OF_BUILD.match(line))

    def _constrained(self, base: Base) -> bool:
        """Whether the constraints of NVIDIA's image hold its torch, as its notes say of a range of months."""
        month = re.match(r"(\d{2}\.\d{2})-py3", base.tag)
        if base.family != "ngc" or month is None or not self.held_by_constraint:
            return False
        since, until = (self.facts.milestone(name).release for name in ("ngc-holds-torch", "ngc-constraints-empty"))
        return since <= month[1] < until

    def _indexes(self, one: Install, beside: Sequence[Install]) -> Indexes:
        extra = [*one.extra_indexes]
        backend = next((o.split("=", 1)[1] for o in one.options if o.startswith("--torch-backend=")), "")
        if backend and backend != "auto":
            extra.insert(0, f"https://download.pytorch.org/whl/{backend}")
        extra += [f"https://download.pytorch.org/whl/{found}" for url in one.find_links if (found := variant_of(url))]
        if any("torch_stable" in url for url in one.find_links):
            extra += [f"https://download.pytorch.org/whl/{each.local}" for each in beside if each.local]
        own = dry_run.access(one.index) if one.index else None
        return Indexes(own, tuple(dry_run.access(url) for url in dict.fromkeys(extra)))

    def _answered(self, question: Question) -> tuple[Answer, str, Question]:
        """The answer, with the facts' builds in the place of an index of PyTorch's that does not answer; and its
        name."""
        for one in question.place.indexes.every:
            self._probe(one)
        question, stood_in = self._stood_in(question)
        try:
            answer = dry_run.ask(question, self.budget)
        except Unreached:
            if "--find-links" not in question.flags:
                raise
            # pip goes on without a page that does not answer, and uv does not.
            flags = list(question.flags)
            while "--find-links" in flags:
                at = flags.index("--find-links")
                self.silent_pages.add(flags[at + 1])
                del flags[at : at + 2]
            question = replace(question, flags=tuple(flags))
            answer = dry_run.ask(question, self.budget)
        return answer, ", ".join(dict.fromkeys(stood_in)), question

    def _probe(self, one: Access) -> None:
        """Asks an index that the file names for one page; raises Undecided where it does not answer, for uv goes on in
        silence without one that wants a credential.  For one of PyTorch's the facts can stand in."""
        from envkit.system.index import Index  # it costs 40 ms

        if one.url in self.probed:
            return
        self.probed.add(one.url)
        try:
            Index(one.full, min(_PROBE_S, self.budget.left())).files("torch")
        except Undecided as error:
            if not variant_of(one.url):
                raise Undecided(f"{one.host}: {error.message}", error.fix) from error
            self.stubs.unreached.add(one.host)

    def _stood_in(self, question: Question) -> tuple[Question, list[str]]:
        place, found = question.place, []

        def known(one: Access) -> Access:
            variant = variant_of(one.url)
            if variant and one.host in self.stubs.unreached:
                found.append(one.host)
                return Access(self.stubs.of(variant, place.python, place.machine))
            return one

        held = place.indexes
        new = Indexes(known(held.own) if held.own else None, tuple(known(one) for one in held.extra))
        for dist in self.stubs.dists:
            self.library.put(dist)
        question = replace(question, place=replace(place, indexes=new))
        if found and question.before:  # the pages that stand in have no days, so that their rows' days count
            words = tuple(word for name in FAMILY for word in ("--exclude-newer-package", f"{name}=false"))
            bound = (f"torch<={newest}.post99",) if (newest := self.stubs.newest(question.before)) else ()
            question = replace(question, flags=(*question.flags, *words), constraints=(*question.constraints, *bound))
        return question, found

    def _with_sources(self, answer: Answer, question: Question) -> tuple[Answer, Question]:
        """The answer with what releases without a wheel ask for, by their archives, else which torch by the facts."""
        lines: list[str] = []
        if "--no-deps" in question.flags:
            return answer, question
        for name, source in answer.sources.items():
            row = self.facts.torch_need(name, source.version)
            said = dry_run.source_requires(source, question, self.budget)
            if said is None and row is not None and row.torch is not None:
                said = (f"torch{row.torch}",)
            if said is None:
                continue
            self.followed[name, source.version] = said
            extras = next((Requirement(line).extras for line in question.requirements if _names(line, name)), ())
            lines += [str(one) for one in dry_run.asks(said, question.place, extras) if one.url is None]
        lines = [line.partition(";")[0] for line in lines]
        lines = [line for line in lines if canonicalize_name(Requirement(line).name) not in question.excluded]
        if not lines:
            return answer, question
        more = replace(question, requirements=(*question.requirements, *lines))
        return dry_run.ask(more, self.budget), more

    def _left(self, answer: Answer, wanted: list[Install]) -> Iterable[LeftOut]:
        spans = {one.name: one.span for one in wanted}
        for name, why in answer.left_out.items():
            source = answer.sources.get(name)
            known = source is not None and (name, source.version) in self.followed
            known = known or "--no-deps" in wanted[0].options
            yield LeftOut(name, why, spans.get(name, wanted[0].span), name in spans and not known)

    # ---------------------------------------------------------------- what came of it

    def _taken(
        self,
        wanted: list[Install],
        asked: list[Install],
        before: dict[str, Dist],
        after: dict[str, Dist],
        comes: Mapping[str, str],
        question: Question,
        record: Resolved,
    ) -> Taken:
        named = {one.name: one for one in wanted}
        changes, brought = [], []
        for name, version in comes.items():
            if name not in _WATCHED or not version or (name == "numpy" and "numpy" in question.excluded):
                continue
            old = before.get(name)
            if old is not None and old.version == version and name not in named:
                continue
            path = _why(name, old.version if old else "", named, after, question.place)
            because = tuple(clause for _, clause in path)
            by = named.get(path[0][0], wanted[0]) if path else wanted[0]
            was, put = (old.version, old.by) if old else ("", "")
            changes.append(Change(name, was, version, because, name in named, put, by.span))
            after[name] = replace(after[name], by=by.span.place)
            if name not in named:
                brought.append((_come(by, name, version), by))
        kept = [one for one in asked if one.constraint or one.url or one.name in comes or one.name not in after]
        told = [_exact(one, comes) for one in kept]
        there = {name: after[name].version for name in _WATCHED if name in after}
        record = replace(
            record, changes=tuple(changes), unmet=tuple(_unmet(before, after, question.place)), after=there
        )
        replaced = next((one for one in changes if one.name == "torch" and one.old and one.because), None)
        if replaced is not None and replaced.old != replaced.new:
            record = replace(record, fix=self._way_out(replaced, named, before, question))
        return Taken(told, tuple(brought), after, record)

    def _way_out(
        self, change: Change, named: Mapping[str, Install], before: Mapping[str, Dist], question: Question
    ) -> str:
        """The newest release of what brings another torch that goes with the one that is there, "" for none."""
        by = next((one for one in named if change.because[0].startswith(f"{one} ")), "")
        if not by or "torch" not in before:
            return ""
        extras = f"[{','.join(named[by].extras)}]" if named[by].extras else ""
        lines = [f"{by}{extras}" if canonicalize_name(Requirement(line).name) == by else line
                 for line in question.requirements]  # fmt: skip
        asked = replace(
            question, requirements=tuple(lines), constraints=(*question.constraints, f"torch=={change.old}")
        )
        try:
            found = dry_run.ask(asked, self.budget)
        except EnvkitError:
            return ""
        version = found.comes.get(by, "")
        if not version:
            return ""
        own = dry_run.asks(self.library.read({by: version}, asked, self.budget).get(by, ()), question.place)
        bound = [str(one.specifier) for one in own if one.name == "torch"]
        # A release from before its project said which torch it takes is no advice.
        if not bound or ("==" in change.because[-1] and "==" not in bound[0]):
            return ""
        return f"pin {by}=={version}, the newest that goes with torch {change.old}"


def _of_unknown(wanted: Iterable[Install], excluded: frozenset[str]) -> list[LeftOut]:
    """What of torch's kin a command wants anew where nobody knows which release of it is there, which may be enough."""
    return [
        LeftOut(one.name, "which release of it the base holds is not known", one.span)
        for one in wanted
        if one.name in FAMILY and one.name in excluded and not one.url and (one.specifier or "--upgrade" in one.options)
    ]


def _nothing_known() -> dict[str, Dist]:
    return {name: Dist(name, "") for name in _WATCHED}


def _overlaid(before: Environment, installs: Iterable[Install]) -> Environment:
    """What is there after installs that nobody followed: their pins, and no release that may be another now."""
    after = dict(before)
    for one in installs:
        if one.constraint or one.manager in ("apt", "dnf", "apk"):
            continue
        name = "torch" if one.name == "pytorch" else one.name
        version = f"{one.version}+{one.local}" if one.local and one.manager in _MANAGERS else one.version
        known = one.sure and version and _valid(f"{name}=={version}")
        if known or name in _WATCHED or name in after:
            after[name] = Dist(name, version if known else "", (), one.span.place)
    return after


def _with_local(torch: Dist, asked: Iterable[Install], base: Base) -> Dist:
    """The base's torch with the local part that a line asks for, where that is its own CUDA."""
    for one in asked:
        same = one.name == "torch" and one.version == torch.version and one.local
        if same and cuda_of(one.local) == base.torch_cuda.value:
            return replace(torch, version=f"{torch.version}+{one.local}")
    return torch


def _names(line: str, name: str) -> bool:
    return canonicalize_name(Requirement(line).name) == name


def _valid(line: str) -> bool:
    try:
        Requirement(line)
    except InvalidRequirement:
        return False
    return True


def _short(url: str) -> str:
    return re.sub(r"^(?:git\+)?\w+://(?:[^/@]*@)?", "", url)[:60]


def _sentence(error: Unsatisfiable) -> str:
    """uv's reason in one sentence."""
    lines = [line.removeprefix("cause: ") for line in error.chain if not line.startswith(("error:", "hint:"))]
    steps = re.split(r"(?:^|[.] )(?:And b|B)ecause |[.] Or because ", " ".join(lines).strip())
    told = [step.partition(", we can conclude that ")[0].rstrip(". ") for step in steps if step.strip()]
    return "; ".join(told).replace("you require", "this command asks for") or error.message


def _exact(one: Install, comes: Mapping[str, str]) -> Install:
    """An install with the release that it got."""
    version = comes.get(one.name, "")
    if not version or one.url or one.constraint:
        return one
    release, _, local = version.partition("+")
    return replace(one, version=release, local=local or one.local, specifier=f"=={version}")


def _come(by: Install, name: str, version: str) -> Install:
    """What an install brings along, as one of its own."""
    release, _, local = version.partition("+")
    return replace(by, name=name, version=release, local=local, specifier=f"=={version}", extras=(), url="")


def _why(
    name: str, old: str, named: Mapping[str, Install], after: Mapping[str, Dist], place: TargetPlatform
) -> list[tuple[str, str]]:
    """The way from what the command names to who asks for ``name``: each step's package and a clause.

    Of several the shortest to one that the old release is not enough for.
    """
    found: list[list[tuple[str, str]]] = []
    queue: list[tuple[str, tuple[str, ...], list[tuple[str, str]]]] = [
        (one, named[one].extras, []) for one in named if one in after and one != name
    ]
    seen = {one for one, _, _ in queue}
    while queue:
        at, extras, path = queue.pop(0)
        dist = after[at]
        for wanted in dry_run.asks(dist.requires, place, extras):
            other = canonicalize_name(wanted.name)
            text = f"{wanted.name}{wanted.specifier}"
            step = [*path, (at, f"{at} {dist.version} asks for {text}")]
            if other == name:
                if not old or not dry_run.met(wanted, old):
                    return step
                found.append(step)
            elif other in after and other not in seen:
                seen.add(other)
                queue.append((other, tuple(wanted.extras), step))
    return found[0] if found else []


def _unmet(before: Environment, after: Environment, place: TargetPlatform) -> Iterable[Unmet]:
    """Who is left with another torch, or another of its kin, than it asks for, and was not before."""

    def every(held: Environment) -> dict[tuple[str, str, str, str], Unmet]:
        found = {}
        for dist in held.values():
            for wanted in dry_run.asks(dist.requires, place):
                there = held.get(canonicalize_name(wanted.name))
                if there is None or there.name not in _WATCHED or not there.version:
                    continue
                if dry_run.met(wanted, there.version):
                    continue
                text = f"{wanted.name}{wanted.specifier}"
                key = (dist.name, dist.version, text, there.version)
                found[key] = Unmet(dist.name, dist.version, text, there.name, there.version)
        return found

    earlier = every(before)
    return [one for key, one in every(after).items() if key not in earlier]


def judged(
    text: str,
    path: str,
    context: Source | None,
    check_options: CheckOptions,
    facts: Facts,
    offline: tuple[Result, ...],
) -> JudgedFile:
    """A Dockerfile judged by what the index says of its installs; ``offline`` is what its text alone came to.

    The checks of CHECKS are judged again, and stand in the place of the same of ``offline``.
    """
    return finished(read_followed(text, path, context, check_options, facts), offline, facts)


def finished(subject: Dockerfile, offline: tuple[Result, ...], facts: Facts) -> JudgedFile:
    """The file with the results of what was followed in the place of those of its text."""
    from envkit.static.judged import fields

    anew = {result.check: result for result in judge.judge(subject, facts, CHECKS)}
    results = tuple(anew.get(result.check, result) for result in offline)
    return JudgedFile(subject.path, "dockerfile", subject.text, (*results, verdict(subject)), fields(subject))


def read_followed(
    text: str, path: str, context: Source | None, check_options: CheckOptions, facts: Facts
) -> Dockerfile:
    """The subject of a Dockerfile's text with what the index says of its installs, as ``check_options`` ask it."""
    ask = check_options.ask
    assert ask is not None
    with files.scratch("stubs") as stubs:
        follower = ByIndex(facts, Budget(ask.budget_s), ask.before, ask.say, stubs, text)
        return read(
            text,
            path,
            facts,
            context,
            known=check_options.bases,
            gpus=check_options.gpus,
            driver=check_options.driver,
            follower=follower,
        )


def of_requirements(subject: Packages, lines: tuple[Install, ...], ask: AskIndex, facts: Facts) -> Packages:
    """A list of requirements with what the index says of them in an empty environment: of its own Python, or of those
    that the newest torch is for, the middle ones first, until one of them can be installed."""
    own = None if subject.python.missing else subject.python.value
    newest = next((row for row in reversed(facts.torches) if row.default and row.pythons), None)
    listed = [Python(f"{tag[2]}.{tag[3:]}") for tag in (newest.pythons or () if newest else ()) if tag[3:].isdigit()]
    middle = sorted(set(listed), key=lambda one: abs(one.minor - sorted(listed)[len(listed) // 2].minor))
    pythons = [own] if own else [str(one) for one in middle]
    nowhere = Base("", "", "", "", Span(subject.path, 1), family="python", torch=Observed.unsupported())
    record: Resolved | None = None
    with files.scratch("stubs") as stubs:
        follower = ByIndex(facts, Budget(ask.budget_s), ask.before, ask.say, stubs)
        for python in pythons:
            taken = follower.took([replace(one, python=python) for one in lines], {}, nowhere)
            if taken.record is None:
                break
            first = record or taken.record
            record = taken.record
            if not record.refused:
                break
            record = replace(
                first, said_by=f"{follower.said_by}, for Python {', '.join(map(str, sorted(map(Python, pythons))))}"
            )
    return replace(subject, resolved=() if record is None else (record,))


def verdict(subject: Dockerfile | Packages) -> Result:
    """The result that says whether everything was asked; open where it was not."""
    records = subject.resolved or ()
    silent = [one for one in records if one.unanswered]
    if silent:
        why = "; ".join(dict.fromkeys(one.unanswered for one in silent))
        places = ", ".join(dict.fromkeys(one.span.place for one in silent[:3]))
        # Which torch an unknown base holds is no more known, so that nothing there ends a build for sure.
        worst = Severity.WARNING if why == _NO_PYTHON else Severity.ERROR
        said = f"what {places} does to torch was not asked: {why}"
        return Result(ASKED, Outcome.UNKNOWN, reason=said, at_most=worst)
    left = [each for one in records for each in one.left_out if each.matters]
    if left:
        said = "; ".join(
            f"what {each.name} brings was not followed ({each.span.place}), because {each.why}" for each in left[:3]
        )
        more = f"; and {len(left) - 3} more" if len(left) > 3 else ""
        return Result(ASKED, Outcome.UNKNOWN, reason=said + more, at_most=Severity.WARNING)
    if not records:
        return Result(ASKED, Outcome.SKIP, reason="no command installs what an index was to be asked for")
    return Result(ASKED, Outcome.PASS)
