"""`envkit check --resolve`: what each install does to the torch that is there, by the real uv and an index of ours."""

from __future__ import annotations

import io
import json
import socket
import tarfile
from pathlib import Path

import pytest
from index import Index

from envkit import facts as tables
from envkit.dockerfile.tree import NoContext
from envkit.facts import Facts
from envkit.model import Outcome, Severity
from envkit.plan import sdist
from envkit.static import ASKED, AskIndex, CheckOptions, JudgedFile
from envkit.static.judged import of_dockerfile, of_text
from envkit.static.resolved import read_followed
from envkit.subjects.dockerfile import Dockerfile

BASE = "FROM pytorch/pytorch:2.4.0-cuda12.1-cudnn9-runtime\n"  # Python 3.11, torchvision 0.19.0
PLAIN = "FROM python:3.11\n"
TAG = "cp311-cp311-manylinux_2_28_x86_64"


@pytest.fixture(scope="module")
def facts() -> Facts:
    return tables.load()


@pytest.fixture
def shop(index: Index) -> Index:
    """An index with torch and some of what asks for it."""
    for torch, vision in (("2.4.0", "0.19.0"), ("2.6.0", "0.21.0"), ("2.7.0", "0.22.0")):
        index.add("torch", torch, tag=TAG)
        index.add("torchvision", vision, f"torch=={torch}", tag=TAG)
        index.add("torchaudio", torch, f"torch=={torch}", tag=TAG)
    index.add("served", "1.0", "torch==2.4.0")
    index.add("served", "2.0", "torch==2.7.0")
    index.add("eased", "1.0", "torch>=2.0")
    index.add("seen", "1.0", "torchvision")
    index.add("far", "1.0", "served")
    index.add("extra-only", "1.0", 'torch>=2.6; extra == "torch"')
    return index


def followed(text: str, facts: Facts, budget_s: float = 60, before: str = "") -> Dockerfile:
    """The subject of a Dockerfile whose installs were followed."""
    options = CheckOptions(ask=AskIndex(budget_s, before, lambda line: None))
    return read_followed(text, "Dockerfile", NoContext(), options, facts)


def after(text: str, facts: Facts) -> dict[str, str]:
    """The torch and its kin that are there at the end."""
    records = followed(text, facts).resolved or ()
    assert not any(one.unanswered or one.refused for one in records), records
    return {name: version for name, version in records[-1].after.items() if name != "numpy"}


def judged(text: str, facts: Facts, budget_s: float = 60) -> JudgedFile:
    options = CheckOptions(ask=AskIndex(budget_s, "", lambda line: None))
    return of_dockerfile(text, "Dockerfile", None, options, facts)


def messages(file: JudgedFile, *checks: str) -> list[str]:
    return [one.message for result in file.results if result.check in checks for one in result.findings]


def run(*lines: str) -> str:
    return "".join(f"RUN {line}\n" for line in lines)


OLD = {"torch": "2.4.0", "torchvision": "0.19.0", "torchaudio": "2.4.0"}
NEW = {"torch": "2.7.0", "torchvision": "0.19.0", "torchaudio": "2.4.0"}  # torch alone is another


@pytest.mark.parametrize(
    ("lines", "there"),
    [
        pytest.param(["pip install served"], NEW, id="the newest of a package brings its own torch"),
        pytest.param(["pip install served==1.0"], OLD, id="its old release is content with what is there"),
        pytest.param(["pip install eased"], OLD, id="kept because satisfied"),
        pytest.param(["pip install torch"], OLD, id="a name alone is satisfied"),
        pytest.param(["pip install 'torch>=2.5'"], NEW, id="a bound that excludes it"),
        pytest.param(["pip install seen"], OLD, id="the torchvision of the base is enough"),
        pytest.param(["pip install --no-deps served"], OLD, id="--no-deps leaves torch alone"),
        pytest.param(["pip install -U eased"], OLD, id="-U renews what is named alone"),
        pytest.param(["pip install -U --upgrade-strategy eager eased"], NEW, id="unless it is eager"),
        pytest.param(["uv pip install --system -U eased"], NEW, id="uv's -U renews all"),
        pytest.param(["uv pip install --system eased"], OLD, id="uv keeps what is enough"),
        pytest.param(["uv pip install --system served"], NEW, id="uv replaces it too"),
        pytest.param(["pip install -U torch"], NEW, id="-U torch"),
        pytest.param(["pip install --force-reinstall eased"], NEW, id="--force-reinstall looks at nothing there"),
        pytest.param(["pip install extra-only"], OLD, id="an extra that nobody asks for"),
        pytest.param(["pip install 'extra-only[torch]'"], NEW, id="an extra that is asked for"),
        pytest.param(["pip install far"], NEW, id="by way of another"),
        pytest.param(
            ["pip install torchvision==0.22.0"], {**NEW, "torchvision": "0.22.0"}, id="torchvision brings its torch"
        ),
        pytest.param(["pip install served", "pip install served==1.0"], OLD, id="and back"),
        pytest.param(["pip install torch==2.6.0 && pip install eased"], {**NEW, "torch": "2.6.0"}, id="in one RUN"),
        pytest.param(
            ["pip uninstall -y torch torchvision torchaudio", "pip install eased"], {"torch": "2.7.0"}, id="uninstalled"
        ),
        pytest.param(["printf 'torch==2.4.0\\n' > c.txt && pip install -c c.txt far"], OLD, id="a constraint keeps it"),
        pytest.param(
            ["python -m venv /opt/venv && /opt/venv/bin/pip install eased"], {"torch": "2.7.0"}, id="another Python"
        ),
        pytest.param(
            ["python -m venv /opt/venv && /opt/venv/bin/pip install eased", "pip install eased"],
            OLD,
            id="and the first",
        ),
    ],
)
def test_the_state_after(lines: list[str], there: dict[str, str], shop: Index, facts: Facts) -> None:
    assert after(BASE + run(*lines), facts) == there


def test_what_the_torch_of_the_base_asks_for_counts(index: Index, facts: Facts) -> None:
    """pip goes back to a torch that goes with a pin, if something in the command asks for torch; else it leaves it."""
    index.add("torch", "2.4.0", "algebra>=1.13", "nvidia-blas==1.0", tag=TAG)
    index.add("torch", "2.3.0", tag=TAG)
    for release in ("1.12", "1.14"):
        index.add("algebra", release)
    index.add("eased", "1.0", "torch>=2.0")
    assert after(BASE + run("pip install eased algebra==1.12"), facts)["torch"] == "2.3.0"
    assert after(BASE + run("pip install eased algebra==1.14"), facts)["torch"] == "2.4.0"
    assert after(BASE + run("pip install algebra==1.12"), facts)["torch"] == "2.4.0"


def test_nvidias_own_build_is_kept_where_it_is_enough(shop: Index, facts: Facts) -> None:
    base = "FROM nvcr.io/nvidia/pytorch:24.07-py3\n"
    shop.add("torch", "2.7.0", tag="cp310-cp310-manylinux_2_28_x86_64")
    kept = after(base + run("pip install eased"), facts)["torch"]
    assert kept.startswith("2.4.0a0")
    assert after(base + run("pip install 'torch>=2.4'"), facts)["torch"] == "2.7.0"  # an earlier one is no 2.4
    file = judged(base + run("pip install served"), facts)
    (said,) = messages(file, "torch-rejected")
    assert said.startswith("served 2.0 asks for torch==2.7.0, so that pip puts torch 2.7.0 in the place of")


def test_a_torchvision_of_a_base_whose_release_is_not_known_is_a_doubt(shop: Index, facts: Facts) -> None:
    base = "FROM nvcr.io/nvidia/pytorch:25.03-py3\nENV PIP_CONSTRAINT=\n"
    for line, open_ in (("pip install 'torchvision>=0.22'", True), ("pip install torchvision", False)):
        (said,) = (one for one in judged(base + run(line), facts).results if one.check == ASKED)
        assert (said.outcome is Outcome.UNKNOWN) == open_, line
        assert ("which release of it the base holds is not known" in said.reason) == open_


def test_what_its_constraints_hold_is_refused(shop: Index, facts: Facts) -> None:
    shop.add("torch", "2.7.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    base = "FROM nvcr.io/nvidia/pytorch:25.03-py3\n"
    (record,) = followed(base + run("pip install served==2.0"), facts).resolved or ()
    assert record.refused
    assert record.about_torch
    (record,) = followed(base + run("PIP_CONSTRAINT= pip install served==2.0"), facts).resolved or ()
    assert record.after["torch"] == "2.7.0"


def test_the_finding_has_the_chain_the_place_and_a_way_out(shop: Index, facts: Facts) -> None:
    file = judged(BASE + run("pip install --no-cache-dir far"), facts)
    (finding,) = (one for result in file.results if result.check == "torch-rejected" for one in result.findings)
    assert finding.message == (
        "far 1.0 asks for served, and served 2.0 asks for torch==2.7.0, so that pip puts torch 2.7.0 in the place of "
        "the torch 2.4.0 of the base pytorch/pytorch:2.4.0-cuda12.1-cudnn9-runtime"
    )
    assert finding.severity is Severity.WARNING
    assert finding.where == "Dockerfile:2"
    assert "the package index on 20" in finding.evidence["torch 2.7.0"]
    named = judged(BASE + run("pip install --no-cache-dir served"), facts)
    (finding,) = (one for result in named.results if result.check == "torch-rejected" for one in result.findings)
    assert finding.fix.startswith("pin served==1.0, the newest that goes with torch 2.4.0; or ")
    assert file.observed["torch_version"] == "2.7.0"
    assert [result.outcome for result in file.results if result.check == ASKED] == [Outcome.PASS]


def test_torchvision_of_the_base_stays_behind(shop: Index, facts: Facts) -> None:
    (said,) = messages(judged(BASE + run("pip install --no-cache-dir served"), facts), "torchvision-mismatch")
    assert "holds the torchvision of its torch 2.4.0" in said
    clean = judged(BASE + run("pip install --no-cache-dir served torchvision"), facts)
    assert not messages(clean, "torchvision-mismatch")


def test_what_is_left_behind_is_told_and_what_moves_along_is_not(shop: Index, facts: Facts) -> None:
    left = judged(PLAIN + run("pip install served==1.0", "pip install torch==2.7.0"), facts)
    (said,) = messages(left, "torch-rejected")
    assert said.startswith("served 1.0 asks for torch==2.4.0, and stays beside torch 2.7.0")
    assert not messages(
        judged(PLAIN + run("pip install served==1.0", "pip install torch==2.7.0 served==2.0"), facts), "torch-rejected"
    )


def test_what_cannot_be_solved_ends_the_build(shop: Index, facts: Facts) -> None:
    file = judged(PLAIN + run("pip install served==2.0 torch==2.4.0"), facts)
    (finding,) = (one for result in file.results if result.check == "torch-rejected" for one in result.findings)
    assert finding.severity is Severity.ERROR
    assert "served>=2.0 depends on torch==2.7.0 and this command asks for served==2.0" in finding.message
    assert "pip refuses them and the build ends here" in finding.message
    shop.add("other", "1.0", "third==1.0")
    shop.add("third", "2.0")
    file = judged(PLAIN + run("pip install other"), facts)
    (said,) = messages(file, "package-rejected")
    assert "third==1.0" in said
    assert not messages(judged(PLAIN + run("pip install other || true"), facts), "package-rejected")
    assert not messages(judged(PLAIN + run("pip install --no-deps other"), facts), "package-rejected")


def test_source_alone_is_left_out_and_named(shop: Index, facts: Facts) -> None:
    shop.wheels["bare_ext-1.0.tar.gz"] = b""
    file = judged(BASE + run("pip install bare-ext served"), facts)
    (doubt,) = (result for result in file.results if result.check == ASKED)
    assert (doubt.outcome, doubt.at_most) == (Outcome.UNKNOWN, Severity.WARNING)
    assert doubt.reason == ("what bare-ext brings was not followed (Dockerfile:2), because its index has source alone")
    assert messages(file, "torch-rejected")  # the rest was followed


def test_an_older_wheel_is_not_taken_for_the_newest_source(shop: Index, facts: Facts) -> None:
    shop.add("bare-ext", "0.9", "torch==2.6.0")
    shop.wheels["bare_ext-1.0.tar.gz"] = b""
    (record,) = followed(BASE + run("pip install bare-ext"), facts).resolved or ()
    assert [one.name for one in record.left_out] == ["bare-ext"]
    assert record.after["torch"] == "2.4.0"


def test_an_older_release_is_not_taken_for_what_another_has_no_wheel_of(shop: Index, facts: Facts) -> None:
    shop.add("omega", "1.0")
    shop.add("omega", "2.0", "antler==4.9", "torch==2.6.0")
    shop.wheels["antler-4.9.tar.gz"] = b""
    (record,) = followed(BASE + run("pip install omega"), facts).resolved or ()
    assert record.after["torch"] == "2.6.0"
    assert [(one.name, one.matters) for one in record.left_out] == [("antler", False)]
    (record,) = followed(BASE + run("pip install omega --only-binary :all:"), facts).resolved or ()
    assert record.after["torch"] == "2.4.0"
    # What is older for another reason stays so.
    (record,) = followed(BASE + run("pip install served torch==2.4.0"), facts).resolved or ()
    assert record.after["torch"] == "2.4.0"
    assert not record.left_out


def test_what_the_index_does_not_have_is_named(shop: Index, facts: Facts) -> None:
    (record,) = followed(BASE + run("pip install our-own-thing served"), facts).resolved or ()
    assert [(one.name, one.why) for one in record.left_out] == [("our-own-thing", "the index does not have it")]
    assert record.after["torch"] == "2.7.0"


def test_no_code_of_a_package_runs(shop: Index, facts: Facts, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        text = f"open({str(mark)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='trap', version='1.0')\n"
        for name, body in (("setup.py", text), ("PKG-INFO", "Metadata-Version: 1.0\nName: trap\nVersion: 1.0\n")):
            member = tarfile.TarInfo(f"trap-1.0/{name}")
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body.encode()))
    shop.wheels["trap-1.0.tar.gz"] = made.getvalue()
    shop.add("asks-trap", "1.0", "trap")
    followed(PLAIN + run("pip install trap", "pip install asks-trap", "uv pip install --system --no-deps trap"), facts)
    assert not mark.exists()


def test_the_best_of_all_indexes_is_pips_and_the_first_is_uvs(shop: Index, tmp_path: Path, facts: Facts) -> None:
    extra = Index()
    extra.folder = tmp_path / "extra"
    extra.folder.mkdir()
    extra.add("torch", "2.5.0+cu121", tag=TAG)
    url = f"--extra-index-url {extra.url}"
    try:
        assert after(PLAIN + run(f"pip install torch {url}"), facts)["torch"] == "2.7.0"
        assert after(PLAIN + run(f"uv pip install --system torch {url}"), facts)["torch"] == "2.5.0+cu121"
        kept = run(f"pip install torch==2.5.0+cu121 {url}", "pip install eased")
        assert after(PLAIN + kept, facts)["torch"] == "2.5.0+cu121"
        extra.wants = "porter:open-sesame-7391"
        own = extra.url.replace("http://", "http://porter:open-sesame-7391@")
        text = PLAIN + run(f"pip install torch==2.5.0+cu121 --extra-index-url {own}")
        assert after(text, facts)["torch"] == "2.5.0+cu121"
        refused = judged(PLAIN + run(f"pip install torch==2.5.0+cu121 {url}"), facts)
        (doubt,) = (result for result in refused.results if result.check == ASKED)
        assert doubt.outcome is Outcome.UNKNOWN
        said = json.dumps([str(result) for result in judged(text, facts).results if result.check == ASKED])
        assert "open-sesame" not in said
    finally:
        extra.server.shutdown()
        extra.server.server_close()


def test_a_variable_of_this_machine_is_not_for_a_host_that_a_file_names(
    shop: Index, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "open-sesame-7391")
    text = PLAIN + run("pip install torch --index-url 'https://${SECRET_TOKEN}@elsewhere.invalid/simple'")
    (record,) = followed(text, facts).resolved or ()
    assert record.unanswered == "its address is not known here"


def test_an_index_that_is_not_there_is_a_doubt_and_no_pass(
    shop: Index, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{free.getsockname()[1]}/simple")
    file = judged(BASE + run("pip install --no-cache-dir served"), facts)
    (doubt,) = (result for result in file.results if result.check == ASKED)
    assert (doubt.outcome, doubt.at_most) == (Outcome.UNKNOWN, Severity.ERROR)
    assert doubt.reason.startswith("what Dockerfile:2 does to torch was not asked: the package index at 127.0.0.1:")


def test_an_index_that_hangs_takes_its_budget_and_no_more(
    shop: Index, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{deaf.getsockname()[1]}/simple")
        lines = ("pip install served", "pip install eased")
        records = followed(BASE + run(*lines), facts, budget_s=1).resolved or ()
    assert len(records) == 2
    assert all("within 1 s" in one.unanswered for one in records)


def test_a_page_of_links_that_is_silent_is_left_out_as_pip_does(shop: Index, facts: Facts) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        page = f"http://127.0.0.1:{free.getsockname()[1]}/whl/torch-2.4.0.html"
    text = BASE + run(f"pip install served -f {page}", "pip install eased")
    first, second = followed(text, facts).resolved or ()
    assert (first.after["torch"], second.after["torch"]) == ("2.7.0", "2.7.0")
    assert [one.why for one in first.left_out] == ["its page does not answer"]
    assert not second.left_out


def test_an_index_of_pytorchs_that_is_silent_is_stood_in_for_by_the_facts(
    shop: Index, facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        silent = f"http://127.0.0.1:{free.getsockname()[1]}/whl/cu121"
    (record,) = followed(PLAIN + run(f"pip install torch torchvision --index-url {silent}"), facts).resolved or ()
    assert record.said_by.endswith("and the facts for " + silent.split("/")[2])
    assert record.after == {"torch": "2.5.1+cu121", "torchvision": "0.20.1+cu121"}
    (record,) = (
        followed(PLAIN + run(f"pip install torch==2.4.0+cu121 --extra-index-url {silent}"), facts).resolved or ()
    )
    assert record.after == {"torch": "2.4.0+cu121"}


def test_a_day_of_the_index(shop: Index, facts: Facts) -> None:
    shop.add("torch", "2.8.0", tag=TAG, uploaded="2025-08-06T00:00:00Z")
    text = PLAIN + run("pip install torch")
    (now,), (then,) = (followed(text, facts, before=day).resolved or () for day in ("", "2025-03-01"))
    assert (now.after["torch"], then.after["torch"]) == ("2.8.0", "2.7.0")
    assert then.said_by == "the package index as of 2025-03-01"


def test_a_known_source_is_followed_by_the_facts(shop: Index, facts: Facts) -> None:
    name = "flash-attn"
    row = facts.torch_needs_of[name][-1]
    shop.wheels[f"flash_attn-{row.until}.tar.gz"] = b""
    (record,) = followed(PLAIN + run(f"pip install {name}=={row.until}"), facts).resolved or ()
    assert record.after.get("torch") == "2.7.0"
    assert not any(one.matters for one in record.left_out)


def test_two_stages_do_not_share_what_is_installed(shop: Index, facts: Facts) -> None:
    text = f"{BASE.strip()} AS one\n{run('pip install served')}FROM one AS two\n{run('pip install eased')}"
    assert after(text, facts) == NEW
    text = f"{BASE.strip()} AS one\n{run('pip install served')}{BASE}COPY --from=one /srv /srv\n"
    assert after(text + run("pip install eased"), facts) == OLD


def test_a_list_of_requirements_is_asked_for_as_a_whole(shop: Index, facts: Facts) -> None:
    for minor in ("310", "312", "313", "314"):
        shop.add("torch", "2.7.0", tag=f"cp{minor}-cp{minor}-manylinux_2_28_x86_64")

    def said(text: str) -> tuple[list[str], Outcome]:
        options = CheckOptions(ask=AskIndex(60, "", lambda line: None))
        file = of_text("requirements", text, "requirements.txt", None, options, facts)
        (asked,) = (result for result in file.results if result.check == ASKED)
        return messages(file, "packages-conflicting-pins"), asked.outcome

    (message,), _ = said("served==2.0\ntorch<2.7\n")
    assert message.startswith(
        "no releases meet all that the file asks for, so that pip refuses it: served>=2.0 depends"
    )
    assert said("served==2.0\ntorch>=2.7\n") == ([], Outcome.PASS)
    assert said("served==2.0; python_version < '3.0'\ntorch<=2.7\n") == ([], Outcome.PASS)


def test_what_nobody_asks_is_as_before(facts: Facts) -> None:
    file = of_dockerfile(BASE + run("pip install served"), "Dockerfile", None, CheckOptions(), facts)
    assert not [result for result in file.results if result.check == ASKED]
    assert file.observed["torch_version"] == "2.4.0"


def archive(**files: str) -> bytes:
    """A source archive that holds these files; "__" stands for a slash."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, body in files.items():
            member = tarfile.TarInfo("bare_ext-1.0/" + name.replace("__", "/").replace("_txt", ".txt"))
            member.size = len(body.encode())
            tar.addfile(member, io.BytesIO(body.encode()))
    return made.getvalue()


OLD_INFO = "Metadata-Version: 2.1\nName: bare-ext\nVersion: 1.0\n"


@pytest.mark.parametrize(
    ("files", "there", "open_"),
    [
        pytest.param({"PKG-INFO": OLD_INFO + "Requires-Dist: torch==2.6.0\n"}, "2.6.0", False, id="PKG-INFO"),
        pytest.param(
            {"PKG-INFO": OLD_INFO, "bare_ext.egg-info__requires_txt": "torch>=2.5\n\n[dev]\ntorch==2.6.0\n"},
            "2.7.0",
            False,
            id="requires.txt",
        ),
        pytest.param(
            {"PKG-INFO": OLD_INFO, "bare_ext.egg-info__PKG-INFO": OLD_INFO}, "2.4.0", False, id="it asks for nothing"
        ),
        pytest.param(
            {"PKG-INFO": OLD_INFO.replace("2.1", "2.2")}, "2.4.0", False, id="metadata that is complete says so"
        ),
        pytest.param(
            {"PKG-INFO": OLD_INFO.replace("2.1", "2.2") + "Dynamic: Requires-Dist\n"}, "2.4.0", True, id="dynamic"
        ),
        pytest.param({"PKG-INFO": OLD_INFO}, "2.4.0", True, id="an old archive of which a build decides"),
        pytest.param({}, "2.4.0", True, id="nothing in it"),
    ],
)
def test_what_a_source_archive_says_is_followed(
    files: dict[str, str], there: str, open_: bool, shop: Index, facts: Facts
) -> None:
    shop.wheels["bare_ext-1.0.tar.gz"] = archive(**files)
    (record,) = followed(BASE + run("pip install bare-ext"), facts).resolved or ()
    assert record.after["torch"] == there
    assert [one.matters for one in record.left_out] == [open_]
    kept = followed(BASE + run("pip install --no-deps bare-ext"), facts).resolved or ()
    assert kept[-1].after["torch"] == "2.4.0"
    assert not any(one.matters for one in kept[-1].left_out)


def test_an_archive_that_grows_without_end_is_no_answer() -> None:
    bomb = archive(**{"big": "0" * (3 << 20), "PKG-INFO": OLD_INFO})
    assert sdist.requires(bomb[: len(bomb) // 2]) is None
    assert sdist.requires(b"no archive") is None
    assert sdist.requires(bomb, most=1 << 20) is None
    assert sdist.requires(archive(**{"PKG-INFO": OLD_INFO + "Requires-Dist: torch\n"})) == ("torch",)


def test_the_sections_of_requires_txt() -> None:
    text = 'torch>=2.5\n\n[:python_version < "3.8"]\nold\n\n[gpu]\ncupy\n\n[gpu:sys_platform == "linux"]\ntriton\n'
    assert sdist.requires(archive(**{"PKG-INFO": OLD_INFO, "x.egg-info__requires_txt": text})) == (
        "torch>=2.5",
        'old; (python_version < "3.8")',
        'cupy; extra == "gpu"',
        'triton; (sys_platform == "linux") and extra == "gpu"',
    )
