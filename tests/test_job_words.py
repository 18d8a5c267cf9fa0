"""What a person says of a job in words: a network, a port, a folder, a user, a mount; and what is none of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from envkit.engine import Bind
from envkit.errors import UsageError
from envkit.launch import job
from envkit.subjects.declared import Mount

ME = os.getuid()


@pytest.mark.parametrize("word", ["bridge", "host", "none", "my_net.1-2", "container:abc", "0"])
def test_a_network_has_the_name_of_one(word: str) -> None:
    assert job.network(word) == word


@pytest.mark.parametrize(
    "word", ["8080", "8080:80", "1:65535/tcp", "127.0.0.1:8080:80", "[::1]:53:53/udp", "0.0.0.0:80"]
)
def test_a_port_is_published_as_the_engine_reads_it(word: str) -> None:
    assert job.port(word) == word


@pytest.mark.parametrize(
    ("of", "word", "says"),
    [
        *((job.network, word, "is no network") for word in ("", "-x", "a b", "a\nb", ":x", "a,b")),
        *(
            (job.port, word, "is no port")
            for word in ("", "0", "80:0", "0:80", "65536", "a:80", "80/icmp", "80:", "1:2:3:4")
        ),
        (job.working_folder, "src", "`src` is no path from the container's root"),
        (job.working_folder, "", "is no path from the container's root"),
        *(
            (job.user_of, word, "is no user")
            for word in ("", "ada", "-1", "1:ada", "4294967296", "1:4294967296", "1:2:3")
        ),
    ],
)
def test_what_is_none_is_refused_in_one_sentence(of: Callable[[str], object], word: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        of(word)
    assert caught.value.fix and "\n" not in caught.value.message


def test_a_folder_of_the_container_is_said_without_detours() -> None:
    assert [job.working_folder(text) for text in (None, "/", "/a/../b/", "//x")] == ["", "/", "/b", "//x"]


def test_a_user_without_a_group_has_the_engines_or_ones_own() -> None:
    assert job.user_of(None) is None
    assert job.user_of("4294967295:0") == (4294967295, 0) and job.user_of("7:8") == (7, 8)
    assert job.user_of(str(ME)) == (ME, os.getgid()) and job.user_of(f"{ME}:9") == (ME, 9)
    assert job.user_of(str(ME + 1)) == job.user_of(f"{ME + 1}:") == (ME + 1, 0)


def test_a_path_of_this_machine_is_mounted_from_its_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = job.binds(
        [Mount("/data", "/d", True), Mount("./x", "/x", False), Mount("~/y", "/y", False), Mount("vol", "/v", True)]
    )
    assert made == (
        Bind("/data", "/d", False), Bind(f"{tmp_path}/x", "/x", True), Bind(f"{tmp_path}/home/y", "/y", True),
        Bind("vol", "/v", False),
    )  # fmt: skip
