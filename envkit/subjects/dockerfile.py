"""A Dockerfile as it would be built: stages, what each step runs, what gets installed, and where each value stands.

Nothing here is a guess.  A word whose value only a build can know says so (``Word.sure``), a file of the build context
that was not read is listed (``Unread``), and a field that the text does not settle is not observed, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from envkit.model import Observed, Span
from envkit.records import dataclass
from envkit.subjects.resolved import Resolved


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command after the shell's expansion.

    ``raw`` is what the file says, quotes and all.  ``sure`` is False where a part of ``text`` is not known before the
    build (an unset variable, a command's output); that part stands in ``text`` as written.  ``quoted`` says that at
    least a part of it was quoted.
    """

    text: str
    raw: str
    span: Span
    sure: bool = True
    quoted: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Redirect:
    """``op`` is ">", ">>", "<", "2>", "&>", "<<<" and so on; ``target`` the file, or the text of a here-document."""

    op: str
    target: Word


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command of a RUN (or CMD, ENTRYPOINT, a script in the context) as the shell would start it.

    ``words`` is never empty; wrappers such as sudo, env, time, exec and nice are taken off, ``raw_words`` has them.
    ``assigns`` are the assignments before it (``CUDA=1 pip install x``).  ``env`` is every variable with a known value
    at that moment: ENV, ARG and what the same RUN set before; ``assigns`` are in it.
    ``after`` is the operator in front of it: "" for the first, or one of "&&", "||", ";", "|", "|&", "&".
    ``sure`` is False where it runs only under a condition that is not known before the build (an undecided if, case,
    loop, the right side of ``||``, a function that nobody calls).
    ``cwd`` is the working directory, "" where it is not known.  ``heredoc`` is what it reads from a here-document.
    """

    words: tuple[Word, ...]
    span: Span
    raw_words: tuple[Word, ...] = ()
    assigns: Mapping[str, Word] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    redirects: tuple[Redirect, ...] = ()
    after: str = ""
    sure: bool = True
    cwd: str = ""
    heredoc: str = ""

    @property
    def program(self) -> str:
        """The base name of what is started ("pip3", "python3.11")."""
        text = self.words[0].text
        return text.rsplit("/", 1)[-1] if "/" in text else text

    @property
    def args(self) -> tuple[str, ...]:
        """All words after the program, expanded."""
        return tuple(word.text for word in self.words[1:])


BUILDS = "builds:"


@dataclass(frozen=True, slots=True)
class Install:
    """One package that one command asks for.

    ``manager``: pip, uv, conda, poetry, apt, dnf, apk, source, base.  ``name`` is the canonical name ("torch",
    lower case, dashes; Debian's package name for apt).  ``specifier`` is as written ("==1.2.3", ">=2,<3", "=1.2.*" for
    conda), ``version`` the exact public version it pins, "" where it pins none; ``local`` the local version or build
    ("cuNNN", "cpu"; from "+cuNNN", from a wheel's file name, from a conda build string).  ``url`` is a wheel, archive,
    VCS or path requirement.  ``index`` is the index in force, "" for the default one; ``extra_indexes`` and
    ``find_links`` as pip means them; ``channels`` are conda's, most wanted first.  ``options`` are the option names
    given ("--no-deps", "-U" as "--upgrade", "--pre", "--no-build-isolation", "--no-cache-dir", "--user", "--system").
    ``target`` is what says into which environment: the words that choose the Python ("pip3", "python3.11 -m pip",
    "/opt/venv/bin/pip", "conda:NAME" or "conda:/prefix", "uv:--system", "uv:VENV"); evaluate.py settles which Python
    that is.  ``constraint`` is True for a line of a constraints file: it installs nothing, but pins.
    ``locked`` is True where a lock file names the exact artifact.  ``marker`` is an environment marker that was not
    decided.  ``span`` is the requirement itself, in the file that names it; ``sure`` as in Command.
    evaluate.py adds ``python``, the version of the Python it goes into ("3.10", "" where not known), and ``prefix``,
    the folder of that environment ("/usr/local", "/opt/venv", "/opt/conda/envs/x", "" where not known).
    ``requires`` is which Pythons a project of the context takes, by its own word (">=3.9,<3.13", "^3.10").
    ``builds`` is what building a project of the context surely does: its setup.py imports "torch" where its
    build-system does not ask for torch, makes a "cuda" extension, leaves its architectures "open"; "apart" where a
    pyproject.toml has each pip build it apart from the installed packages.
    """

    manager: str
    name: str
    span: Span
    specifier: str = ""
    version: str = ""
    local: str = ""
    extras: tuple[str, ...] = ()
    url: str = ""
    editable: bool = False
    index: str = ""
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()
    target: str = ""
    constraint: bool = False
    locked: bool = False
    marker: str = ""
    sure: bool = True
    python: str = ""
    prefix: str = ""
    requires: str = ""

    @property
    def builds(self) -> frozenset[str]:
        """What building a project of the context surely does; its reader keeps it among ``options``, behind BUILDS."""
        return frozenset(one.removeprefix(BUILDS) for one in self.options if one.startswith(BUILDS))


@dataclass(frozen=True, slots=True)
class Removal:
    """``pip uninstall``, ``apt-get remove``, ``conda remove`` of one package."""

    manager: str
    name: str
    span: Span
    target: str = ""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that decides what gets installed and could not be read: ``why`` is a clause ("no build context was
    given").

    ``system`` says that it can only hold packages of the distribution or a Python, and no package for a Python.
    """

    path: str
    why: str
    span: Span
    system: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """The external image under a stage, and what it holds as far as its reference or the facts say.

    ``reference`` is FROM's word with its ARGs expanded; ``repository`` without registry default, tag and digest
    ("nvidia/cuda", "nvcr.io/nvidia/pytorch"); ``tag`` "" where none is written.  ``scratch`` marks FROM scratch.
    ``family``: nvidia, pytorch, ngc, python, conda, os (debian, ubuntu, rockylinux, ...), other (frameworks known by
    name, see the facts) or unknown.  Each Observed says in ``via`` whether the tag said it or which fact row did, and
    in ``missing`` why not; a base that surely has none of it (no CUDA in python:3.11) is unsupported.
    ``flavor``: base, runtime or devel.  ``cudnn`` is the version as exactly as known ("8", "9.1.0.70").
    ``nvcc``, ``compiler``: whether nvcc, a C compiler is there.  ``variables`` are ENVs of the image that matter
    (LD_LIBRARY_PATH, PATH, NVIDIA_VISIBLE_DEVICES, NVIDIA_DRIVER_CAPABILITIES, CUDA_VERSION, PIP_NO_CACHE_DIR).
    ``exists``: False where the publisher's list of tags is complete for it and lacks it; ``retired``: True where the
    tag was taken away or may be; both not observed where unknown.  ``near_tags`` are tags that do exist, the likest
    first, where it never did; ``removed`` says that a retired tag is known to be gone.  ``rocm`` marks an image for
    AMD's GPUs.  ``built_by`` is the file of the project that builds it, "" where none is known to.
    """

    reference: str
    repository: str
    tag: str
    digest: str
    span: Span
    sure: bool = True
    platform: str = ""
    scratch: bool = False
    family: str = "unknown"
    cuda: Observed[str] = field(default_factory=Observed)
    cudnn: Observed[str] = field(default_factory=Observed)
    flavor: Observed[str] = field(default_factory=Observed)
    os: Observed[str] = field(default_factory=Observed)
    python: Observed[str] = field(default_factory=Observed)
    torch: Observed[str] = field(default_factory=Observed)
    torch_cuda: Observed[str] = field(default_factory=Observed)
    nvcc: Observed[bool] = field(default_factory=Observed)
    compiler: Observed[bool] = field(default_factory=Observed)
    exists: Observed[bool] = field(default_factory=Observed)
    retired: Observed[bool] = field(default_factory=Observed)
    near_tags: tuple[str, ...] = ()
    removed: bool = False
    rocm: bool = False
    built_by: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """One ENV, ARG or LABEL: ``value`` expanded, None for an ARG without a default; ``sure`` as in Word."""

    kind: str
    name: str
    value: str | None
    span: Span
    sure: bool = True
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY or ADD: ``source_stage`` is the index of the stage it takes from, None for the build context; ``image`` an
    external image it takes from, "" otherwise."""

    sources: tuple[str, ...]
    target: str
    span: Span
    source_stage: int | None = None
    image: str = ""
    add: bool = False

    @property
    def foreign(self) -> bool:
        """Whether it takes from another stage or image, and not from the build context."""
        return self.source_stage is not None or bool(self.image)

    @property
    def of_uv(self) -> bool:
        """Whether it brings uv's programs alone."""
        return all(source.rsplit("/", 1)[-1] in ("uv", "uvx") for source in self.sources)


@dataclass(frozen=True, slots=True)
class Lacking:
    """A file or folder that the step at ``span`` takes out of the build context, which does not have it: the
    .dockerignore keeps it out (``kept_out``), or the project has none; ``near`` is where it has one of that name."""

    source: str
    span: Span
    near: str = ""
    kept_out: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a stage: ``name`` is upper case ("RUN").

    RUN, CMD, ENTRYPOINT, HEALTHCHECK have ``commands``; RUN and SHELL keep ``flags`` ("--mount=type=cache,target=/x");
    ENV, ARG and LABEL ``settings``; COPY and ADD a ``copy``.  ``value`` is the text after the name and its flags with
    continuations joined.  ``installs``, ``removals`` and ``unread`` are what its commands do.  ``exec_form`` marks
    JSON.  ``user``, ``workdir`` and ``env`` hold at its begin.
    """

    name: str
    span: Span
    value: str = ""
    flags: tuple[str, ...] = ()
    exec_form: bool = False
    commands: tuple[Command, ...] = ()
    installs: tuple[Install, ...] = ()
    removals: tuple[Removal, ...] = ()
    unread: tuple[Unread, ...] = ()
    settings: tuple[Setting, ...] = ()
    copy: Copy | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Carried:
    """A virtual environment at ``prefix`` that the COPY at ``span`` takes out of ``stage``: its ``bin/python`` is a
    link to the Python ``version`` below ``home``.  ``left`` is True where the stage that gets it certainly does not
    have that Python at its end."""

    prefix: str
    version: str
    home: str
    stage: int
    span: Span
    left: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: ``line`` are the indexes of the stages that it is made of, root first, itself last.

    ``base`` is the external image at the root of its lineage.  ``env`` is the environment at its end.  ``carried``
    are the virtual environments that it copies out of other stages.
    """

    index: int
    name: str
    span: Span
    base: Base
    line: tuple[int, ...]
    steps: tuple[Step, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    carried: tuple[Carried, ...] = ()

    @property
    def parent(self) -> int | None:
        """The index of the stage that it is FROM, None where it is FROM an external image."""
        return self.line[-2] if len(self.line) > 1 else None


@dataclass(frozen=True, slots=True)
class Torch:
    """The torch that the image ends up with.

    ``version`` is its public version, ``cuda`` its CUDA ("X.Y"), "cpu" or "rocm...", each not observed where the text
    leaves it open (an unpinned requirement); ``method`` is base, pip, uv, conda, poetry, source or wheel.
    ``install`` is None for the base's own.
    """

    version: Observed[str]
    cuda: Observed[str]
    method: str
    span: Span
    install: Install | None = None
    python: Observed[str] = field(default_factory=Observed)
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class StartCommand:
    """What the image starts, as far as it is a Python: ``version`` "3.11", ``prefix`` its environment."""

    command: Command
    version: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """One Dockerfile as its default build would go.

    ``stages`` are all of them in order; ``lineage`` are the indexes of those whose steps the image is made of, root
    first, the target last; ``brought`` are indexes of stages out of which the target copies an environment (a venv,
    site-packages, /usr/local, /opt/conda); ``reachable`` are all stages that the default build makes.  ``installs`` are
    all installs that the image keeps, in order.  ``torches`` are all torches that it gets, in order: the last one
    stays.  ``unread`` are the files that would say more.  ``started`` is the Python that ENTRYPOINT and CMD start, None
    where they start none that is known.  ``gpus`` and ``driver`` are what the user says that it must run on.
    ``problems`` are clauses for what BuildKit refuses, each with its place.  ``lacking`` is what is copied out of the
    context and not there; None where no project was read.  ``resolved`` is what the package index says of the commands
    of pip and uv in all reachable stages; None where it was not to be asked.
    The nine fields of the contract are ``base_image`` ... ``torch_install_method``; ``via`` names the line or fact.
    """

    path: str
    text: str
    stages: tuple[Stage, ...]
    lineage: tuple[int, ...] = ()
    brought: tuple[int, ...] = ()
    reachable: tuple[int, ...] = ()
    installs: tuple[Install, ...] = ()
    unread: tuple[Unread, ...] = ()
    torches: tuple[Torch, ...] = ()
    started: StartCommand | None = None
    base_image: Observed[str] = field(default_factory=Observed)
    base_cuda: Observed[str] = field(default_factory=Observed)
    base_cudnn: Observed[str] = field(default_factory=Observed)
    base_flavor: Observed[str] = field(default_factory=Observed)
    base_os: Observed[str] = field(default_factory=Observed)
    torch_version: Observed[str] = field(default_factory=Observed)
    torch_cuda: Observed[str] = field(default_factory=Observed)
    python_version: Observed[str] = field(default_factory=Observed)
    torch_install_method: Observed[str] = field(default_factory=Observed)
    gpus: tuple[str, ...] = ()
    driver: str = ""
    problems: tuple[str, ...] = ()
    lacking: tuple[Lacking, ...] | None = None
    resolved: tuple[Resolved, ...] | None = None

    @property
    def target(self) -> Stage:
        """The stage that the default build makes: the last one."""
        return self.stages[-1]

    @property
    def base(self) -> Base:
        """The external image at the root of the target's lineage."""
        return self.target.base

    def steps_of(self, index: int) -> list[Step]:
        """The steps of the stages that the stage ``index`` is made of, in order."""
        return [step for each in self.stages[index].line for step in self.stages[each].steps]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps whose layers the image consists of, in order."""
        return tuple(step for index in self.lineage for step in self.stages[index].steps)

    @property
    def commands(self) -> tuple[tuple[Step, Command], ...]:
        """Every command of the RUNs of ``steps``, with its step."""
        return tuple((step, command) for step in self.steps if step.name == "RUN" for command in step.commands)

    @property
    def torch(self) -> Torch | None:
        """The torch that stays, None where none gets installed as far as the text says."""
        return self.torches[-1] if self.torches else None
