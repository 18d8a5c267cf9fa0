"""apt, dnf, apk, dpkg, runfiles, archives, Pythons and conda's installers; links and downloads."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import answers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.dockerfile import system
from envkit.dockerfile.files import FileText
from envkit.dockerfile.system import Trail
from envkit.model import Span
from envkit.subjects.dockerfile import Command, Install, Redirect, Removal, Unread, Word


class NoFiles:
    """A build without a context."""

    def read(self, path: str, cwd: str) -> FileText | str:
        return "no build context was given"


def word(text: str, column: int = 1) -> Word:
    return Word(text, text, Span("Dockerfile", 1, column, 1, column + len(text)), "$" not in text and "`" not in text)


def command(
    text: str, *, after: str = "", sure: bool = True, cwd: str = "/", env: Mapping[str, str] | None = None
) -> Command:
    """A command as the shell reader gives it; a word with a "$" is one that nobody knows, "> FILE" a redirect."""
    body, _, target = text.partition(" > ")
    words, at = [], 0
    for plain in shlex.split(body):
        at = max(body.find(plain, at), 0)
        words.append(word(plain, at + 1))
        at += len(plain)
    redirects = (Redirect(">", word(target)),) if target else ()
    span = Span("Dockerfile", 1, 1, 1, len(text) + 1)
    return Command(tuple(words), span, redirects=redirects, after=after, sure=sure, cwd=cwd, env=env or {})


def found(text: str, trail: Trail | None = None, **env: str) -> list[Install | Removal | Unread]:
    read = list(system.read(command(text, env=env), NoFiles(), trail))
    return answers.same("installs", ("system", text, trail, env), read)


def installs(text: str, trail: Trail | None = None, **env: str) -> list[Install]:
    records = found(text, trail, **env)
    assert all(isinstance(record, Install) for record in records), records
    return [record for record in records if isinstance(record, Install)]


def run(*steps: str | Command) -> list[Install]:
    """The installs of commands that run one after the other; "a | b" is a pipe, and cd and & are the shell reader's."""
    trail, got = Trail(), []
    for step in steps:
        for at, text in enumerate(step.split(" | ") if isinstance(step, str) else (step,)):
            one = command(text, after="|" if at else "&&") if isinstance(text, str) else text
            got += [record for record in system.read(one, NoFiles(), trail) if isinstance(record, Install)]
            trail = system.remember(one, trail)
    return answers.same("installs", ("system", steps), got)


def names(text: str) -> list[str]:
    return [one.name for one in installs(text)]


# ---------------------------------------------------------------- packages


@pytest.mark.parametrize(
    "text",
    [
        "apt-get install -y --no-install-recommends git python3.11",
        "apt-get -y -qq -o Dpkg::Use-Pty=0 install git python3.11",
        "apt install git python3.11 -y",
        "apt-get install -yqq git --fix-missing python3.11",
        "apt-get -oAcquire::Retries=3 -q=2 install git python3.11",
        "aptitude install -t bookworm-backports git python3.11",
        "apt-get install -y git/bookworm-backports python3.11:amd64",
        "dnf -y install --setopt=install_weak_deps=False git python3.11",
        "yum install -y --enablerepo epel git python3.11",
        "microdnf install --nodocs -y git python3.11",
        "zypper --non-interactive install -y git python3.11",
        "apk add --no-cache --virtual .build git python3.11",
    ],
)
def test_names(text: str) -> None:
    assert names(text) == ["git", "python3.11"]


@pytest.mark.parametrize(
    ("text", "manager", "name", "version", "local"),
    [
        ("apt-get install libcudnn8=8.9.7.29-1+cuda12.2", "apt", "libcudnn8", "8.9.7.29-1+cuda12.2", "cuda12.2"),
        ("apt-get install libcudnn9-cuda-12", "apt", "libcudnn9-cuda-12", "", ""),
        ("apt-get install cuda-toolkit-12-4", "apt", "cuda-toolkit-12-4", "", ""),
        ("apt-get install cuda-toolkit=12.4.1-1", "apt", "cuda-toolkit", "12.4.1-1", ""),
        ("apt-get install libcudnn8=8.9.*", "apt", "libcudnn8", "", ""),
        ("apt-get install libcudnn8=$CUDNN", "apt", "libcudnn8", "", ""),
        ("apt-get install g++", "apt", "g++", "", ""),
        ("dnf install cuda-toolkit-12-4", "dnf", "cuda-toolkit-12-4", "", ""),
        ("dnf install cuda-toolkit-12-4-12.4.1-1.x86_64", "dnf", "cuda-toolkit-12-4", "12.4.1-1", ""),
        ("yum install libcudnn8-8.9.7.29-1.cuda12.2", "dnf", "libcudnn8", "8.9.7.29-1.cuda12.2", "cuda12.2"),
        ("yum install gcc-toolset-11", "dnf", "gcc-toolset-11", "", ""),
        ("apk add py3-pip=23.1-r0", "apk", "py3-pip", "23.1-r0", ""),
        ("apk add python3~3.11", "apk", "python3", "", ""),
        ("dpkg -i cuda-keyring_1.1-1_all.deb", "apt", "cuda-keyring", "1.1-1", ""),
        ("dpkg -i cuda-keyring_x86_64.deb", "apt", "cuda-keyring", "", ""),
        ("dpkg -i nvidia-peer-memory_${TAG}_all.deb", "apt", "nvidia-peer-memory", "", ""),
        ("dnf -y module install nvidia-driver:latest-dkms", "dnf", "nvidia-driver", "", ""),
        (
            "apt-get install -y ./libcudnn8_8.9.7.29-1+cuda12.2_amd64.deb",
            "apt",
            "libcudnn8",
            "8.9.7.29-1+cuda12.2",
            "cuda12.2",
        ),
        (
            "dpkg --install /tmp/cuda-repo-ubuntu2204-12-4-local_12.4.1-550.54.15-1_amd64.deb",
            *("apt", "cuda-repo-ubuntu2204-12-4-local", "12.4.1-550.54.15-1", ""),
        ),
        ("rpm -i https://example.com/cuda-repo-rhel8-12.4.1-1.x86_64.rpm", "dnf", "cuda-repo-rhel8", "12.4.1-1", ""),
    ],
)
def test_versions(text: str, manager: str, name: str, version: str, local: str) -> None:
    (one,) = installs(text)
    assert (one.manager, one.name, one.version, one.local) == (manager, name, version, local)
    assert one.sure


@pytest.mark.parametrize(
    "text",
    [
        "apt-get update",
        "apt-get install",
        "apt-get install -s git",
        "apt-get clean",
        "apt-get build-dep python3",
        "apt list cuda",
        "dnf makecache",
        "dnf groupinstall x",
        "dnf install @development",
        "apk update",
        "dpkg --print-architecture",
        "dpkg -l",
        "rpm -q cuda",
        "rpm --import https://example.com/key",
        "pip install apt",
        "ls",
    ],
)
def test_nothing_gets_installed(text: str) -> None:
    assert found(text) == []


def test_removals() -> None:
    gone = found("apt-get purge -y --autoremove git cuda-toolkit-12-4")
    assert [one.name for one in gone if isinstance(one, Removal)] == ["git", "cuda-toolkit-12-4"]
    (minus, plus) = found("apt-get install -y python3- git")
    assert isinstance(minus, Removal) and minus.name == "python3" and isinstance(plus, Install)
    assert [type(one) for one in found("apk del .build")] == [Removal]
    assert [type(one) for one in found("yum remove -y cuda")] == [Removal]
    assert [type(one) for one in found("dpkg -r git")] == [Removal]


def test_what_nobody_knows_is_said() -> None:
    (unread,) = found("apt-get install -y $PACKAGES")
    assert isinstance(unread, Unread) and "not known" in unread.why
    (kernel,) = installs("apt-get install -y linux-headers-$KERNEL")
    assert kernel.name == "linux-headers-$KERNEL" and not kernel.sure
    (file,) = found("dpkg -i /tmp/x.deb")
    assert isinstance(file, Unread)
    (unsure,) = system.read(command("apt-get install git", sure=False), NoFiles())
    assert isinstance(unsure, Install) and not unsure.sure


def test_options_and_span() -> None:
    text = "apt-get install -y --no-install-recommends --allow-change-held-packages libcudnn8=8.9.7.29-1+cuda12.2"
    (one,) = installs(text)
    assert one.options == {"--no-install-recommends", "--allow-change-held-packages"}
    assert text[one.span.column - 1 : one.span.end_column - 1] == "libcudnn8=8.9.7.29-1+cuda12.2"


def test_a_downloaded_package_keeps_its_name() -> None:
    url = "https://example.com/pool/libcudnn8_8.9.7.29-1%2Bcuda12.2_amd64.deb"
    (one,) = run(f"wget -qO /tmp/c.deb {url}", "dpkg -i /tmp/c.deb")
    assert (one.name, one.version, one.url) == ("libcudnn8", "8.9.7.29-1+cuda12.2", url)


# ---------------------------------------------------------------- CUDA

RUN = "cuda_12.4.1_550.54.15_linux.run"
URL = f"https://developer.download.nvidia.com/compute/cuda/12.4.1/local_installers/{RUN}"


@pytest.mark.parametrize(
    ("text", "options", "target"),
    [
        (f"sh {RUN} --silent --toolkit", {"--silent", "--toolkit"}, "/usr/local/cuda-12.4"),
        (
            f"./{RUN} --silent --toolkit --toolkitpath=/opt/cuda",
            {"--silent", "--toolkit", "--toolkitpath"},
            "/opt/cuda",
        ),
        (f"bash -x /tmp/{RUN} --silent", {"--silent", "--driver"}, "/usr/local/cuda-12.4"),
        (f"sh {RUN} -silent -toolkit -override", {"--silent", "--toolkit", "--override"}, "/usr/local/cuda-12.4"),
    ],
)
def test_runfile(text: str, options: set[str], target: str) -> None:
    (one,) = installs(text)
    assert (one.manager, one.name, one.version, one.target) == ("source", "cuda-toolkit", "12.4.1", target)
    assert one.options == options


@pytest.mark.parametrize(
    "steps",
    [
        (f"wget {URL}", f"chmod +x {RUN}", f"./{RUN} --silent --toolkit"),
        (f"wget -q -O cuda.run {URL}", "sh cuda.run --silent --toolkit"),
        (f"wget -qO /tmp/cuda.run {URL}", "bash /tmp/cuda.run --toolkit --silent"),
        (f"curl -fsSL -o cuda.run {URL}", "sh cuda.run --silent --toolkit"),
        (f"curl -LO {URL}", f"sh ./{RUN} --silent --toolkit"),
        (f"curl -L {URL} > cuda.run", "sh cuda.run --silent --toolkit"),
        (f"wget {URL}", f"mv {RUN} /opt/c.run", "sh /opt/c.run --silent --toolkit"),
    ],
)
def test_a_runfile_keeps_its_name(steps: tuple[str, ...]) -> None:
    (one,) = run(*steps)
    assert (one.name, one.version, "--driver" in one.options) == ("cuda-toolkit", "12.4.1", False)


def test_old_and_other_runfiles() -> None:
    assert [one.version for one in installs("sh cuda_10.2.89_440.33.01_linux.run --silent --toolkit")] == ["10.2.89"]
    assert [one.version for one in installs("sh cuda_9.0.176_384.81_linux-run --silent --toolkit")] == ["9.0.176"]
    assert [one.version for one in installs("sh cuda_12.4.1_550.54.15_linux_sbsa.run --toolkit")] == ["12.4.1"]
    (driver,) = installs(f"sh {RUN} --silent --driver")
    assert (driver.name, driver.version) == ("nvidia-driver", "550.54.15")
    (driver,) = installs("sh NVIDIA-Linux-x86_64-550.54.15.run -s --no-kernel-module")
    assert (driver.name, driver.version) == ("nvidia-driver", "550.54.15") and "--no-kernel-module" in driver.options
    assert found(f"sh {RUN} --extract=/tmp") == [] and found("sh run.run") == [] and found(f"rm {RUN}") == []


@pytest.mark.parametrize(
    ("steps", "version", "local"),
    [
        (("tar xf cudnn-linux-x86_64-8.9.7.29_cuda12-archive.tar.xz",), "8.9.7.29", "cuda12"),
        (("tar -xzvf cudnn-11.3-linux-x64-v8.2.1.32.tgz -C /usr/local",), "8.2.1.32", "cuda11.3"),
        (
            ("curl -o c.tgz https://example.com/cudnn-11.3-linux-x64-v8.2.1.32.tgz", "tar xf c.tgz"),
            *("8.2.1.32", "cuda11.3"),
        ),
        (
            ("wget -qO- https://example.com/cudnn-linux-x86_64-8.9.7.29_cuda12-archive.tar.xz | tar xJ -C /opt",),
            *("8.9.7.29", "cuda12"),
        ),
    ],
)
def test_cudnn(steps: tuple[str, ...], version: str, local: str) -> None:
    (one,) = run(*steps)
    assert (one.manager, one.name, one.version, one.local) == ("source", "cudnn", version, local)


# ---------------------------------------------------------------- conda and Pythons


@pytest.mark.parametrize(
    ("steps", "name", "version", "local", "target"),
    [
        (
            ("bash Miniconda3-py39_4.12.0-Linux-x86_64.sh -b -p /opt/conda",),
            "miniconda",
            "4.12.0",
            "py39",
            "/opt/conda",
        ),
        (
            ("bash Miniconda3-py310_23.3.1-0-Linux-x86_64.sh -bfp /usr/local",),
            "miniconda",
            "23.3.1-0",
            "py310",
            "/usr/local",
        ),
        (("./Miniconda3-latest-Linux-x86_64.sh -b",), "miniconda", "", "", "/root/miniconda3"),
        (("bash Miniconda3-4.5.4-Linux-x86_64.sh -b",), "miniconda", "4.5.4", "", "/root/miniconda3"),
        (("bash Anaconda3-2022.05-Linux-x86_64.sh -b -p ~/ana",), "anaconda", "2022.05", "py39", "/root/ana"),
        (("bash Anaconda3-2020.07-Linux-x86_64.sh -b -p /a",), "anaconda", "2020.07", "py38", "/a"),
        (("bash Anaconda3-5.3.0-Linux-x86_64.sh -b -p /a",), "anaconda", "5.3.0", "", "/a"),
        (("bash Anaconda2-4.0.0-Linux-x86_64.sh -b -p /a",), "anaconda", "4.0.0", "py27", "/a"),
        (("bash Miniconda2-latest-Linux-x86_64.sh -b -p /a",), "miniconda", "", "py27", "/a"),
        (("sh Miniforge3-Linux-x86_64.sh -b -p conda",), "miniforge", "", "", "/w/conda"),
        (("bash Miniforge3-$(uname)-$(uname -m).sh -b -p /opt/c",), "miniforge", "", "", "/opt/c"),
        (("bash Mambaforge-23.1.0-1-Linux-x86_64.sh -b",), "mambaforge", "23.1.0-1", "", "/root/mambaforge"),
        (("bash ~/miniconda.sh -b -p /opt/conda",), "miniconda", "", "", "/opt/conda"),
        (
            (
                "curl -sLo ~/mc.sh https://repo.anaconda.com/miniconda/Miniconda3-py38_4.9.2-Linux-x86_64.sh",
                "bash ~/mc.sh -b -u -p /opt/conda",
            ),
            *("miniconda", "4.9.2", "py38", "/opt/conda"),
        ),
        (
            (
                "wget https://example.com/miniforge/releases/download/23.3.1-1/Miniforge3-Linux-x86_64.sh -O m.sh",
                "bash m.sh -b -p /opt/conda",
            ),
            *("miniforge", "23.3.1-1", "", "/opt/conda"),
        ),
    ],
)
def test_conda_installers(steps: tuple[str, ...], name: str, version: str, local: str, target: str) -> None:
    trail, got = Trail(), []
    for text in steps:
        body = text.replace("$(uname -m)", "$(machine)")
        one = command(body, cwd="/w")
        got += list(system.read(one, NoFiles(), trail))
        trail = system.remember(one, trail)
    (one_install,) = got
    assert isinstance(one_install, Install)
    found_ = (one_install.name, one_install.version, one_install.local, one_install.target)
    assert found_ == (name, version, local, target)


@pytest.mark.parametrize(
    "text",
    [
        "bash install_deps.sh -b",
        "source /opt/conda/etc/profile.d/conda.sh",
        "rm miniconda.sh",
        "bash",
        "chmod +x miniconda.sh",
    ],
)
def test_no_installer(text: str) -> None:
    assert found(text) == []


SOURCE = "https://www.python.org/ftp/python/3.11.4/Python-3.11.4.tgz"


@pytest.mark.parametrize(
    "steps",
    [
        (
            f"wget {SOURCE}",
            "tar xzf Python-3.11.4.tgz",
            command("./configure", cwd="/t/Python-3.11.4"),
            command("make -j 8 install", cwd="/t/Python-3.11.4"),
        ),
        (f"curl -sSL {SOURCE} | tar xz", command("make install", cwd="/t/Python-3.11.4")),
        (
            f"wget -O p.tgz {SOURCE}",
            "tar xf p.tgz --strip-components=1 -C /usr/src/python",
            command("make install", cwd="/usr/src/python"),
        ),
        (
            "git clone --depth 1 -b v3.11.4 https://github.com/python/cpython.git",
            command("make install", cwd="/cpython"),
        ),
        ("make -C /src/Python-3.11.4 install",),
    ],
)
def test_python_from_source(steps: tuple[str | Command, ...]) -> None:
    (one,) = run(*steps)
    assert (one.manager, one.name, one.version, one.target, one.options) == (
        "source",
        "python",
        "3.11.4",
        "/usr/local",
        frozenset(),
    )


def test_python_beside_and_elsewhere() -> None:
    (beside,) = run(f"wget {SOURCE}", command("make altinstall", cwd="/t"))
    assert beside.options == {"altinstall"}
    at = "/t/Python-3.11.4"
    (prefix,) = run(f"wget {SOURCE}", command("./configure --prefix=/opt/py", cwd=at), command("make install", cwd=at))
    assert prefix.target == "/opt/py"
    assert run(f"wget {SOURCE}", command("make", cwd=at)) == []
    assert run(command("make install", cwd="/src/ninja")) == []
    assert run(f"wget {SOURCE}", command("make install", cwd="/src/ninja")) == []
    once = command("make install", cwd="/src/python")
    assert len(run(f"wget {SOURCE}", once, once)) == 1


def test_pyenv() -> None:
    (one,) = installs("pyenv install -s 3.10.13", PYENV_ROOT="/opt/pyenv")
    assert (one.version, one.target, one.options) == ("3.10.13", "/opt/pyenv/versions/3.10.13", {"--pyenv"})
    assert found("pyenv global 3.10.13") == [] and found("pyenv install --list") == []
    (unread,) = found("pyenv install $VERSION")
    assert isinstance(unread, Unread)
    (unread,) = found("python-build -v 3.7.4 /opt/python")
    assert isinstance(unread, Unread)


# ---------------------------------------------------------------- links


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "update-alternatives --install /usr/bin/python3 python3 /usr/bin/python3.11 1",
            [("/usr/bin/python3", "/usr/bin/python3.11", 1)],
        ),
        (
            "update-alternatives --install /usr/bin/python python /usr/bin/python3.11 2"
            " --slave /usr/bin/pip pip /usr/bin/pip3.11",
            [("/usr/bin/python", "/usr/bin/python3.11", 2), ("/usr/bin/pip", "/usr/bin/pip3.11", 2)],
        ),
        ("update-alternatives --set python3 /usr/bin/python3.11", [("python3", "/usr/bin/python3.11", -1)]),
        ("update-alternatives --config python3", []),
        ("ln -sf /usr/bin/python3.10 /usr/bin/python", [("/usr/bin/python", "/usr/bin/python3.10", -1)]),
        ("ln -s python3 /usr/bin/python", [("/usr/bin/python", "/usr/bin/python3", -1)]),
        ("ln -s cuda-11.8 /usr/local/cuda", [("/usr/local/cuda", "/usr/local/cuda-11.8", -1)]),
        ("ln -s ../bin/python3 /usr/local/python", [("/usr/local/python", "/usr/bin/python3", -1)]),
        ("ln -sf /usr/bin/python3.10 /usr/local/bin/", [("/usr/local/bin/python3.10", "/usr/bin/python3.10", -1)]),
        (
            "ln -s /opt/py/bin/python3 /opt/py/bin/pip3 /usr/bin",
            [("/usr/bin/python3", "/opt/py/bin/python3", -1), ("/usr/bin/pip3", "/opt/py/bin/pip3", -1)],
        ),
        ("ln -s -t /usr/bin /opt/py/bin/python3", [("/usr/bin/python3", "/opt/py/bin/python3", -1)]),
        ("ln -sfn /usr/local/cuda-11.8 /usr/local/cuda", [("/usr/local/cuda", "/usr/local/cuda-11.8", -1)]),
        ("ln -s '$(which python3.11)' /usr/bin/python", [("/usr/bin/python", "python3.11", -1)]),
        ("ln -s /usr/bin/python3", [("/python3", "/usr/bin/python3", -1)]),
        ("apt-get install -y python-is-python3", [("/usr/bin/python", "/usr/bin/python3", -1)]),
        ("apt-get remove -y python-is-python3", []),
        (
            "make -C /src/Python-3.11.4 install",
            [
                ("/usr/local/bin/python3", "/usr/local/bin/python3.11", -1),
                ("/usr/local/bin/pip3", "/usr/local/bin/pip3.11", -1),
            ],
        ),
        ("make -C /src/Python-3.11.4 altinstall", []),
        ("ln", []),
        ("update-alternatives --install /usr/bin/python3", []),
        ("echo ln -s a b", []),
    ],
)
def test_links(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert [(link.name, link.target, link.priority) for link in system.links(command(text))] == expected


def test_pip_for_the_python_that_reads_the_pipe() -> None:
    trail = system.remember(command("curl -sS https://bootstrap.pypa.io/get-pip.py"), Trail())
    one = command("python3.10", after="|")
    assert {(link.name, link.target) for link in system.links(one, trail)} == {
        ("/usr/local/bin/pip", "python3.10"),
        ("/usr/local/bin/pip3", "python3.10"),
    }
    assert system.links(one, system.remember(command("ls"), trail)) == ()


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20) | st.sampled_from(
    [
        "install",
        "-o",
        "--",
        "x=1",
        "-p",
        "./x.deb",
        "Python-3.11.4.tgz",
        RUN,
        "=",
        "--install",
        "-C",
        "/",
        "-",
        "$x",
        "https://a/b",
    ]
)


@given(
    st.sampled_from(["apt-get", "dnf", "apk", "dpkg", "rpm", "make", "tar", "curl", "ln", "sh", "pyenv", "wget", "mv"]),
    st.lists(TEXTS, max_size=7),
)
def test_any_words_are_read(program: str, words: list[str]) -> None:
    one = Command(tuple(word(text) for text in (program, *words)), Span("Dockerfile", 1), cwd="/")
    trail = system.remember(one, Trail(files={"x": URL}, python="3.11.4"))
    for record in system.read(one, NoFiles(), trail):
        assert isinstance(record, Install | Removal | Unread)
    assert all(link.name for link in system.links(one, trail) if link.target)
