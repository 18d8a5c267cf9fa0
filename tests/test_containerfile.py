"""Dockerfiles as envkit renders them, in the words of a builder that knows fewer."""

from __future__ import annotations

from pathlib import Path

import pytest

from envkit.engine.containerfile import FOLDER, _keyed, plain
from envkit.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]

FILE = """# a comment with <<"EOF"
ARG BASE=debian
FROM scratch AS given
FROM scratch AS list
COPY <<"EOF" /words
FROM nowhere
RUN <<"OTHER"
EOF
FROM ${BASE} AS tools
RUN --mount=type=bind,from=list,target=/list \\
    --mount=type=secret,id=ca <<"EOF"
set -eu
cat <<'END'
END
EOF
FROM tools AS unused
RUN exit 1
FROM ${BASE} AS last
RUN --mount=type=bind,source=envkit.lock,target=/envkit.lock --mount=type=bind,from=given,target=/given \\
    sh /given/run
COPY --from=tools /made /
"""


def stages(text: str) -> list[str]:
    return [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("FROM ")]


def test_here_documents_become_files_and_what_nobody_needs_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "envkit.lock").write_text("lock")
    text, files = plain(FILE, tmp_path)
    assert stages(text) == ["given", "list", "tools", "last"]
    assert files == {"001": 'FROM nowhere\nRUN <<"OTHER"\n', "002": "set -eu\ncat <<'END'\nEND\n"}
    assert f"COPY {FOLDER}/001 /words\n" in text and "<<" not in text.partition("\n")[2]
    assert f"--mount=type=bind,source={FOLDER}/002,target=/{FOLDER} --mount=type=bind,from=list" in text
    assert text.rstrip().endswith("COPY --from=tools /made /") and f" sh /{FOLDER}\n" in text


def test_a_stage_that_a_folder_stands_in_for_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    text, _ = plain(FILE, tmp_path, "last", {"given": tmp_path / "folder"})
    assert stages(text) == ["list", "tools", "last"]
    assert stages(plain(FILE, tmp_path, "list")[0]) == ["list"]
    with pytest.raises(UsageError, match="no stage `nothing`"):
        plain(FILE, tmp_path, "nothing")


def steps(text: str) -> dict[str, str]:
    """The hash in each step that has one, by what it runs."""
    found = [part.partition("; ") for part in text.split(": ") if "; " in part]
    return {rest.split("\n")[0]: key for key, _, rest in found if len(key) == 16}


def test_a_step_has_another_word_once_what_it_mounts_is_another(tmp_path: Path) -> None:
    (tmp_path / "envkit.lock").write_text("lock")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "run").write_text("true")
    given = {"given": folder}
    before = steps(plain(FILE, tmp_path, replaced=given)[0])
    assert len(before) == 2 and steps(plain(FILE, tmp_path, replaced=given)[0]) == before
    first, second = before
    listed = steps(plain(FILE.replace("FROM nowhere", "FROM elsewhere"), tmp_path, replaced=given)[0])
    assert listed[first] != before[first] and listed[second] == before[second]
    (tmp_path / "envkit.lock").write_text("another")
    locked = steps(plain(FILE, tmp_path, replaced=given)[0])
    assert locked[first] == before[first] and locked[second] != before[second]
    (folder / "run").write_text("false")
    assert steps(plain(FILE, tmp_path, replaced=given)[0])[second] != locked[second]


@pytest.mark.parametrize(
    "step", ["COPY <<EOF /a\nx\nEOF", 'RUN cat <<"EOF"\nx\nEOF', 'RUN <<"A" <<"B"\nA\nB', 'ADD <<"EOF" /a\nEOF']
)
def test_a_form_that_envkit_does_not_render_is_refused(tmp_path: Path, step: str) -> None:
    with pytest.raises(UsageError, match="here-document"):
        plain(f"FROM scratch\n{step}\n", tmp_path)


def test_a_stage_on_an_image_that_is_mounted_ends_with_a_step_that_no_cache_has(tmp_path: Path) -> None:
    text = """FROM debian AS unpacked
RUN unpack
FROM scratch AS list
COPY list /
FROM debian AS os
RUN install
FROM os
RUN --mount=type=bind,from=unpacked,source=/opt,target=/opt,rw --mount=type=bind,from=list,target=/list \\
    --mount=type=bind,from=os,target=/os place
"""
    plainly, none = plain(text, tmp_path)
    written, files = plain(text, tmp_path, fresh="never before")
    fresh = f"COPY {FOLDER}/fresh /{FOLDER}.fresh\n"
    assert written == plainly.replace("RUN unpack\n", f"RUN unpack\n{fresh}")  # what an image is made from has none
    assert (none, files) == ({}, {"fresh": "never before"})


@pytest.mark.parametrize("rendered", sorted((ROOT / "images").glob("*/Dockerfile")), ids=lambda path: path.parent.name)
def test_every_dockerfile_of_ours_is_read(rendered: Path, tmp_path: Path) -> None:
    text = rendered.read_text()
    for target in ("runtime", "devel", "debug"):
        written, files = plain(text, tmp_path, target)
        kept = "\n".join(line for line in written.splitlines() if not line.startswith("#"))
        assert '<<"' not in kept and stages(written)[-1] == target
        assert all(body and body in text for body in files.values())


def test_a_command_is_keyed_by_what_its_mounts_show(tmp_path: Path) -> None:
    step = "RUN --mount=type=cache,target=/c --mount=type=bind,source=a.txt,target=/a pip install"
    (tmp_path / "a.txt").write_text("one")
    first = _keyed(step, tmp_path, {}, {})
    assert first != step and first.endswith("; pip install") and first == _keyed(step, tmp_path, {}, {})
    (tmp_path / "a.txt").write_text("two")
    assert _keyed(step, tmp_path, {}, {}) != first
    other = step.replace("source=a.txt", "from=tools")
    assert _keyed(other, tmp_path, {"tools": "k1"}, {}) != _keyed(other, tmp_path, {"tools": "k2"}, {})
    for unkeyed in ("RUN --mount=type=cache,target=/c pip install", "RUN pip install", "COPY a b"):
        assert _keyed(unkeyed, tmp_path, {}, {}) == unkeyed
