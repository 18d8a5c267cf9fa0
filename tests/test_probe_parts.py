"""Parts of the probe in their order: what is passed over ends nothing, and what comes behind it is still told."""

from __future__ import annotations

import os
import re
import shutil
import sys
from hashlib import md5
from pathlib import Path

import pytest
from binaries import CUBIN, cubin, entry, fat, library
from test_payload_extensions import installed
from test_payload_identity import changed_quietly, laid
from test_payload_probe import record

from envkit.payload import elf
from envkit.payload.probe import (
    ask,
    bound,
    content,
    extensions,
    libs,
    maps,
    paths,
    preloaded,
    present,
    toolchain,
    wheels,
)
from envkit.payload.probe.paths import PTH, PYTHONPATH, SCRIPT, SITE, STDLIB, USER_SITE, Place

CODE = library(__dot__nv_fatbin=fat(entry(CUBIN, 90, cubin(124))))


# What was changed


def test_whatever_is_not_compared_hides_no_change_behind_it(tmp_path: Path) -> None:
    """A package that is not of CUDA, one without RECORD, one of conda and a library that is gone, then the change."""
    conda = record(tmp_path, "nvidia-nccl-cu12", "2.21", {"nvidia/libnccl.so.2": b"n"})
    Path(conda.info, "INSTALLER").write_text("conda\n")
    bare = wheels.Dist("cuda-bindings", "12.4", str(tmp_path / "cuda_bindings-12.4.dist-info"))
    files = {"torch/lib/a.so": b"a", "torch/lib/b.so": b"bb", "torch/lib/c.so": b"cc"}
    dists = [record(tmp_path, "absl", "1", {"absl.py": b""}), bare, conda, record(tmp_path, "torch", "2.6.0", files)]
    (tmp_path / "torch/lib/a.so").unlink()
    later = os.stat(tmp_path / "torch-2.6.0.dist-info/RECORD").st_mtime + 60
    (tmp_path / "torch/lib/c.so").write_bytes(b"??")
    os.utime(tmp_path / "torch/lib/c.so", (later, later))
    seen = content.compared(dists, budget_s=0.0)  # nothing but what the time of its change gives away
    assert {(Path(str(row["path"])).name, row["found"]) for row in seen.differing} == {
        (tmp_path.name, content.NO_RECORD),
        ("a.so", "the file is missing"),
        ("c.so", "none of their hashes"),
    }
    assert (seen.read, seen.read_bytes, seen.left_bytes) == (1, 2, 2)
    assert [Path(path).name for path in seen.left] == ["libnccl.so.2", "b.so"]


def test_by_size_alone_a_file_of_two_packages_is_that_of_the_one_whose_size_it_has(tmp_path: Path) -> None:
    first = record(tmp_path, "nvidia-a", "1", {"nvidia/x.so": b"1234", "nvidia/y.h": b"12"})
    second = record(tmp_path, "nvidia-b", "2", {"nvidia/x.so": b"123456", "nvidia/y.h": b"1234"})
    (tmp_path / "nvidia/y.h").write_bytes(b"123")
    listed = content._Listed([first, second])
    entries = listed.by_path[str(tmp_path / "nvidia/x.so")]
    assert content._is_of(entries, 6, "") == "nvidia-b==2 by size"
    assert content._is_of(entries, 5, "") == "5 bytes, none of their sizes"
    assert content._is_of(entries[:1], 4, "") == ""
    assert listed.size(str(tmp_path / "nvidia/y.h")) == 3


def test_what_was_changed_last_is_read_before_other_large_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "_FIRST", 1)  # byte: the smallest library is all that is read first
    files = {f"torch/{name}.so": name.encode() * size for name, size in (("a", 1), ("b", 2), ("c", 3), ("d", 4))}
    dist = record(tmp_path, "torch", "2.6.0", {**files, "torch/x.py": b"x", "torch/gone.so": b"x"})
    (tmp_path / "torch/gone.so").unlink()
    (tmp_path / "torch/b.so").write_bytes(b"another size, which needs no look at its content")
    for name in ("torch/x.py", "torch/d.so"):
        changed_quietly(tmp_path / name)
    listed = content._Listed([dist])
    listed.written = dict.fromkeys(listed.written, content._Written(0, _between(tmp_path)))
    assert [Path(path).name for path in listed.order()] == ["a.so", "x.py", "d.so", "c.so"]


def _between(tree: Path) -> int:
    """A time after the files were laid down and before some of them were changed."""
    return max((tree / f"torch/{name}").stat().st_ctime_ns for name in ("a.so", "c.so"))


# Extensions


def test_what_is_no_extension_hides_none_behind_it(tmp_path: Path) -> None:
    files = {"k/libcudart.so.12": CODE, "k/empty.so": b"", "k/one.so": CODE, "k/same.so": CODE, "k/two.so": CODE}
    dists = [
        installed(tmp_path / "t", "torch", {"torch/_C.so": CODE}),
        installed(tmp_path / "p", "plain", {"plain.py": b""}),
        installed(tmp_path / "k", "k", files),
        installed(tmp_path / "m", "m", {"m.so": CODE}),
    ]
    (tmp_path / "k/k/same.so").unlink()
    (tmp_path / "k/k/same.so").symlink_to("one.so")
    told = extensions.extensions(dists)
    assert [Path(str(one["path"])).name for one in told] == ["one.so", "two.so", "m.so"]


# The search path


def test_modules_are_files_and_packages_under_the_names_that_an_import_takes(tmp_path: Path) -> None:
    laid(tmp_path, "1st.py", "a-b.py", "z.py", "both.py", "both/__init__.py", "bare/x.py", "later/__init__.pyc")
    laid(tmp_path, "ext.abi3.so", "old.cpython-39-x86_64-linux-gnu.so", "pypy.pypy39.so", "x.so.1", "t.txt", "c.pyc")
    assert paths.modules(str(tmp_path), paths.HERE) == {
        "z": f"{tmp_path}/z.py",
        "both": f"{tmp_path}/both",
        "later": f"{tmp_path}/later",
        "ext": f"{tmp_path}/ext.abi3.so",
        "old": f"{tmp_path}/old.cpython-39-x86_64-linux-gnu.so",
        "c": f"{tmp_path}/c.pyc",
    }
    laid(tmp_path, "w.so", "w.py")
    assert paths.modules(str(tmp_path), paths.HERE)["w"] == f"{tmp_path}/w.py"


def test_names_that_hide_nothing_leave_those_behind_them_to_be_told(tmp_path: Path) -> None:
    """One that is nowhere else, one that does not count, a copy, one release twice; then two that count."""
    laid(tmp_path, "job/alone.py", "job/docs.py", "job/eager.py", "job/fire/__init__.py", "job/fire-1.dist-info/M")
    laid(tmp_path, "job/numpy.py", "job/torch/__init__.py", "site/docs.py", "site/fire/__init__.py", "site/fire/x.py")
    laid(tmp_path, "site/fire-1.dist-info/M", "site/numpy/__init__.py", "site/torch/__init__.py", "site/torch/x.py")
    shutil.copy(tmp_path / "job/eager.py", tmp_path / "site/eager.py")
    search = [Place(str(tmp_path / name), by) for name, by in (("job", SCRIPT), ("site", SITE))]
    rows = list(paths.hidden(search, paths.HERE))
    assert [(row["module"], row["path"], row["hidden"]) for row in rows] == [
        ("numpy", f"{tmp_path}/job/numpy.py", f"{tmp_path}/site/numpy"),
        ("torch", f"{tmp_path}/job/torch", f"{tmp_path}/site/torch"),
    ]


@pytest.mark.parametrize(
    ("name", "by", "late", "whole", "counts"),
    [
        ("torch", SITE, SITE, True, True),
        ("json", PTH, STDLIB, False, True),
        ("json", SITE, STDLIB, False, False),  # behind the standard library
        ("json", USER_SITE, STDLIB, False, False),
        ("this", SCRIPT, STDLIB, False, False),
        ("sitecustomize", SCRIPT, STDLIB, False, False),
        ("codecs", SCRIPT, STDLIB, False, False),
        ("numpy", USER_SITE, SITE, False, True),
        ("scipy", USER_SITE, SITE, False, False),
        ("scipy", PYTHONPATH, SITE, False, True),
        ("scipy", PYTHONPATH, USER_SITE, False, True),
        ("scipy", PYTHONPATH, SITE, True, False),
        ("numpy", PYTHONPATH, SITE, True, True),
        ("numpy", PYTHONPATH, PYTHONPATH, False, False),  # both are the job's own
        ("numpy", SITE, SITE, False, False),
        ("numpy", STDLIB, SITE, False, False),
        ("tests", SCRIPT, SITE, False, False),
    ],
)
def test_whether_a_module_may_hide_another(name: str, by: str, late: str, whole: bool, counts: bool) -> None:
    assert paths._counts(name, by, late, whole) is counts


def test_the_search_path_of_a_job_names_who_put_each_folder_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("job", "named", "pth", "site"):
        (tmp_path / name).mkdir()
    standard = os.path.dirname(os.path.abspath(os.__file__))
    given = ["script", "", f"{tmp_path}/gone", f"{tmp_path}/named", f"{tmp_path}/pth", standard, f"{tmp_path}/site"]
    monkeypatch.setattr(paths.begin, "GIVEN", [*given, f"{tmp_path}/named", f"{tmp_path}/job"])
    monkeypatch.setenv("PYTHONPATH", f":{tmp_path}/named:")
    rest = [("named", PYTHONPATH), ("pth", PTH), (Path(standard).name, STDLIB), ("site", SITE)]
    found = [(Path(place.folder).name, place.by) for place in paths.places(str(tmp_path / "job"))]
    assert found == [("job", SCRIPT), *rest]
    found = [(Path(place.folder).name, place.by) for place in paths.places(None)]
    assert found == [*rest, ("job", SITE)]  # by the path alone


def test_links_to_pythons_that_are_gone_are_told_of_each_name_up_to_the_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "own", "last"):
        (tmp_path / name).mkdir()
    for name in ("one", "two", "last"):
        (tmp_path / name / "python3").symlink_to(f"/nowhere/{name}")
    (tmp_path / "own/python3").symlink_to(sys.executable)
    (tmp_path / "again").symlink_to("own")
    folders = ("one", "two", "own", "last", "again")
    monkeypatch.setenv("PATH", ":".join(["", *(f"{tmp_path}/{name}" for name in folders)]))
    assert paths.dangling() == [
        {"path": f"{tmp_path}/{name}/python3", "target": f"/nowhere/{name}"} for name in ("one", "two")
    ]
    (tmp_path / "own/python3").unlink()
    (tmp_path / "own/python3").symlink_to("/bin/sh")  # a python that is another one: PATH did not lead here
    assert paths.dangling() == []


# Debian's packages, toolkits, wheels


def test_packages_and_lines_that_are_not_asked_for_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "info").mkdir()
    bad = tmp_path / "libz.so.1"
    bad.write_bytes(b"x")
    other = "d41d8cd98f00b204e9800998ecf8427e  usr/share/doc/a\n"
    here = f"{str(tmp_path)[1:]}/lib/none.so"
    (tmp_path / "info/a.md5sums").write_text(other)
    (tmp_path / "info/b.md5sums").write_text(f"{md5(b'x').hexdigest()}  {here}\n")
    (tmp_path / "info/z.md5sums").write_text(f"{other}{md5(b'y').hexdigest()}  {str(bad)[1:]}\n{other}")
    assert preloaded.changed([str(bad)], str(tmp_path)) == ([{"path": str(bad), "package": "z"}], [])
    assert preloaded.changed([], str(tmp_path)) == ([], [])


def test_libraries_of_others_and_of_wheels_hide_none_in_a_toolkit(tmp_path: Path) -> None:
    for name in ("cuda", "z"):
        (tmp_path / name).mkdir()
    for name in ("liba.so", "libcublas.so.12", "libcudart.so.12", "libcufft.so.11"):
        (tmp_path / "cuda" / name).touch()
    (tmp_path / "cuda/libcudnn.so.9").symlink_to("gone")
    owned = {str(tmp_path / "cuda/libcublas.so.12")}
    found = present.libraries(owned, str(tmp_path / "none"), (f"{tmp_path}/cuda",), str(tmp_path / "dpkg"))
    assert [one["name"] for one in found] == ["cudart", "cufft"]


def test_what_is_no_library_of_cuda_or_gone_hides_none_that_is_on_disk(tmp_path: Path) -> None:
    files = {"a/libc10.so": b"", "nvidia/libcublas.so.12": b"", "nvidia/libcudart.so.12": b""}
    owned = wheels.owners([record(tmp_path, "nvidia-x", "1", files)])
    (tmp_path / "nvidia/libcublas.so.12").unlink()
    assert [one["name"] for one in wheels.on_disk(owned)] == ["cudart"]


def test_folders_without_cudnn_hide_none_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("plain", "z"):
        (tmp_path / name).mkdir()
    (tmp_path / "plain/libcudnn_ops.so.9").touch()  # a part without the library itself
    (tmp_path / "z/libcudnn.so.9").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/gone:{tmp_path}/plain:{tmp_path}/z")
    monkeypatch.setattr(wheels, "_SYSTEM", ())
    (row,) = wheels.cudnn_sets({})
    assert (row["directory"], row["owner"]) == (str(tmp_path / "z"), "")


def test_an_assembler_is_looked_for_in_every_package_that_brings_one(tmp_path: Path) -> None:
    dists = [installed(tmp_path / name, name, {"x/bin/ptxas": b"", "x/bin/ptxas2": b""}) for name in ("a", "triton")]
    dists.append(installed(tmp_path / "c", "nvidia-cuda-nvcc-cu12", {"n/bin/ptxas": b"", "n/bin/ptxas-blackwell": b""}))
    found = [(owner, Path(path).name) for owner, path in toolchain._listed(dists, "ptxas")]
    own = "nvidia-cuda-nvcc-cu12"
    assert found == [("triton", "ptxas"), (own, "ptxas"), (own, "ptxas-blackwell")]


# The linker's own tables


def test_what_a_mapped_object_needs_is_read_in_memory_as_from_its_file() -> None:
    import _ctypes

    objects = [one for one in maps.loaded() if os.path.isfile(one.path)]
    assert any(os.path.samefile(one.path, _ctypes.__file__) for one in objects)
    for one in objects:
        seen = bound._read(one)
        assert seen is not None and seen.needed == elf.read(elf.mapped(one.path)).needed


def test_the_address_that_the_linker_wrote_leads_to_the_library_that_holds_the_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import _ctypes

    monkeypatch.setattr(bound, "_NAME", re.compile(rb"(?P<cudart>dlsym\0)|(?P<nccl>PyList_New\0)|(?P<cufft>none\0)"))
    (loaded,) = [one for one in maps.loaded() if os.path.realpath(one.path) == os.path.realpath(_ctypes.__file__)]
    one = bound._read(loaded)
    assert one is not None
    (row,) = bound._own(one, {"cudart", "cufft"})
    assert (row["name"], row["symbol"], row["caller"]) == ("cudart", "dlsym", os.path.basename(loaded.path))
    assert row["path"] == os.path.realpath(maps.resolves("dlsym"))
    (python,) = bound._own(one, {"nccl"})
    assert python["path"] == os.path.realpath(maps.resolves("PyList_New"))
    assert libs.family(loaded.path) == ""


# Questions


def test_what_a_question_writes_into_the_pipe_ends_what_is_believed() -> None:
    """A line that is no answer, then one that looks like one."""
    before = set(os.listdir("/proc/self/fd"))

    def meddling() -> int:
        for number in set(os.listdir("/proc/self/fd")) - before:
            if os.path.exists(f"/proc/self/fd/{number}"):  # the listing's own is closed again
                os.write(int(number), b'junk\n{"answer": 7}\n')
        return 5

    questions = ask.Questions(meddling, 20.0, [lambda: 1, lambda: 2])
    answers = questions.answers()
    assert len(answers) == 1 and answers[0][0] is None
