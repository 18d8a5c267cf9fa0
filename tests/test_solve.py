"""From a wish to pins, with the real uv and an index of hand-made wheels on this machine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from envkit import proc, solve
from envkit.errors import Undecided, Unsatisfiable, UsageError
from envkit.facts import load as load_facts
from envkit.lock import Pin, digest_of, dump
from envkit.lock import parse as parse_lock
from envkit.spec import Spec, parse
from envkit.versions import Glibc, Python

UPLOADED = "2025-01-02T03:04:05.000000Z"
UPLOADED_S = int(datetime.fromisoformat(UPLOADED).timestamp())


FRAME = " \u00d7\u2570\u2500\u25b6"  # what uv draws around its words


def quiet(line: str) -> None:
    pass


class Index:
    """A package index on a port of this machine; ``wheels`` by file name."""

    def __init__(self) -> None:
        self.wheels: dict[str, bytes] = {}
        self.hashed = True
        self.status = 200
        index = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                body, kind = index.answer(self.path)
                self.send_response(index.status if index.status != 200 else 200 if body is not None else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body or b"")

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, path: str) -> tuple[bytes | None, str]:
        if path.startswith("/files/"):
            return self.wheels.get(path.removeprefix("/files/").replace("%2B", "+")), "application/octet-stream"
        name = path.removeprefix("/simple/").strip("/")
        listed = [
            {
                "filename": file,
                "url": f"/files/{file.replace('+', '%2B')}",
                "hashes": {"sha256": hashlib.sha256(data).hexdigest()} if self.hashed else {},
                "upload-time": UPLOADED,
            }
            for file, data in sorted(self.wheels.items())
            if file.split("-")[0].lower().replace("_", "-") == name
        ]
        if not listed:
            return None, "text/plain"
        page = {"meta": {"api-version": "1.1"}, "name": name, "files": listed, "versions": []}
        return json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json"

    def add(self, name: str, version: str, *requires: str, tag: str = "py3-none-any") -> Pin:
        """Publishes a wheel without content and gives its pin."""
        stem = name.replace("-", "_")
        file = Path(f"{stem}-{version}-{tag}.whl")
        info = f"{stem}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        with (self.folder / file).open("wb") as out, zipfile.ZipFile(out, "w") as archive:
            for member, text in (
                (f"{info}/METADATA", "\n".join(lines) + "\n"),
                (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {tag}\n"),
                (f"{info}/RECORD", ""),
            ):
                archive.writestr(zipfile.ZipInfo(member), text)
        data = (self.folder / file).read_bytes()
        self.wheels[file.name] = data
        return Pin(name, version, file.name, hashlib.sha256(data).hexdigest())

    folder: Path


def sdist(name: str, version: str) -> bytes:
    """A source release whose metadata can be read without building it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for member, text in (
            ("PKG-INFO", f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n"),
            ("pyproject.toml", f'[project]\nname = "{name}"\nversion = "{version}"\n'),
        ):
            entry = tarfile.TarInfo(f"{name}-{version}/{member}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An empty index that uv asks in place of any other."""
    made = Index()
    made.folder = tmp_path / "wheels"
    made.folder.mkdir()
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", made.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield made
    made.server.shutdown()
    made.server.server_close()


def closure(*requirements: str, python: str = "3.11", glibc: str = "2.36") -> tuple[tuple[Pin, ...], int]:
    return solve.closure(
        requirements, python=Python(python), machine="x86_64", glibc=Glibc(glibc), backend="", say=quiet
    )


# The closure.


def test_the_closure_is_pinned_by_hash_and_sorted(index: Index) -> None:
    b = index.add("b-lib", "1.5")
    index.add("b-lib", "2.0")
    a = index.add("a", "1.0", "b_lib<2", "zed; python_version < '3.8'")
    assert closure("a") == ((a, b), UPLOADED_S)


def test_the_same_wish_gives_the_same_pins(index: Index) -> None:
    index.add("a", "1.0", "b")
    index.add("b", "1.0")
    assert closure("a", "b") == closure("b", "a")


def test_wheels_fit_the_python_and_the_glibc_of_the_target_not_of_this_machine(index: Index) -> None:
    for tag in ("cp310-cp310-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_x86_64",
                "cp312-cp312-manylinux_2_39_x86_64", "cp312-cp312-manylinux_2_28_aarch64"):  # fmt: skip
        index.add("a", "1.0", tag=tag)
    (pin,), _ = closure("a", python="3.10")
    assert pin.file == "a-1.0-cp310-cp310-manylinux_2_28_x86_64.whl"
    (pin,), _ = closure("a", python="3.12")
    assert pin.file == "a-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    with pytest.raises(Unsatisfiable):
        closure("a", python="3.13")
    with pytest.raises(Unsatisfiable):
        closure("a", python="3.10", glibc="2.17")


@pytest.mark.parametrize(
    ("glibc", "tag"),
    [
        ("2.36", "cp311-cp311-manylinux_2_34_x86_64"),
        ("2.31", "cp311-cp311-manylinux_2_28_x86_64"),
        ("2.17", "cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64"),
    ],
)
def test_of_several_wheels_that_fit_the_one_an_installer_takes_is_pinned(index: Index, glibc: str, tag: str) -> None:
    tags = ("cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_34_x86_64", "py3-none-any",
            "cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64", "cp311-cp311-musllinux_1_2_x86_64")  # fmt: skip
    pins = {each: index.add("a", "1.0", tag=each) for each in tags}
    assert closure("a", glibc=glibc)[0] == (pins[tag],)


def test_a_local_version_is_kept_in_the_pin(index: Index) -> None:
    pin = index.add("a", "1.0+cu126")
    assert closure("a==1.0+cu126")[0] == (pin,)


def test_a_conflict_is_explained(index: Index) -> None:
    index.add("a", "1.0", "c<2")
    index.add("b", "1.0", "c>=2")
    index.add("c", "1.0")
    index.add("c", "2.0")
    with pytest.raises(Unsatisfiable) as caught:
        closure("a", "b")
    told = " ".join(caught.value.chain)
    assert "c<2" in told
    assert "c>=2" in told
    assert all(line.isprintable() and line[0] not in FRAME for line in caught.value.chain)


def test_a_package_that_does_not_exist_is_unsatisfiable(index: Index) -> None:
    index.add("a", "1.0")
    with pytest.raises(Unsatisfiable) as caught:
        closure("nosuchthing")
    assert "nosuchthing" in " ".join(caught.value.chain)


def test_a_source_release_cannot_be_pinned(index: Index) -> None:
    index.add("a", "1.0")
    index.wheels["b-1.0.tar.gz"] = sdist("b", "1.0")
    with pytest.raises(Unsatisfiable):
        closure("b")


def test_an_index_without_hashes_still_gives_pins_with_hashes(index: Index) -> None:
    pin = index.add("a", "1.0")
    index.hashed = False
    assert closure("a")[0] == (pin,)


def test_nobody_listens_is_undecided(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    with pytest.raises(Undecided) as caught:
        closure("a")
    assert not isinstance(caught.value, UsageError)
    assert "cannot be reached" in caught.value.message


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_an_index_that_answers_with_an_error_is_undecided(index: Index, status: int) -> None:
    index.add("a", "1.0")
    index.status = status
    with pytest.raises(Undecided):
        closure("a")


def test_the_wish_list_leaves_nothing_behind(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    index.add("a", "1.0")
    closure("a")
    assert list(scratch.glob("envkit-*")) == []


# uv's words.


def failed(text: str) -> Unsatisfiable | Undecided:
    return solve._failure(text)


@pytest.mark.parametrize(
    "text",
    [
        "error: Request failed after 3 retries\n  Caused by: Failed to fetch: `http://127.0.0.1/simple/torch/`\n"
        "  Caused by: error sending request for url (http://127.0.0.1/simple/torch/)\n"
        "  Caused by: client error (Connect)\n  Caused by: tcp connect error: Connection refused (os error 111)\n",
        "error: Failed to fetch: `http://127.0.0.1/simple/torch/`\n  Caused by: dns error: failed to lookup address\n",
        "error: Failed to fetch: `http://x/`\n  Caused by: operation timed out\n",
        "error: Network is unreachable (os error 101)\n",
    ],
)
def test_an_index_out_of_reach_is_undecided(text: str) -> None:
    error = failed(text)
    assert isinstance(error, Undecided)
    assert "cannot be reached" in error.message
    assert error.message.isprintable()


def test_a_foreign_certificate_is_told_apart() -> None:
    error = failed(
        "error: Failed to fetch: `https://127.0.0.1/simple/torch/`\n"
        "  Caused by: invalid peer certificate: UnknownIssuer\n"
    )
    assert isinstance(error, Undecided)
    assert "certificate" in error.message
    assert "SSL_CERT_FILE" in error.fix


def test_a_full_disk_is_told_apart() -> None:
    error = failed("error: failed to write to file `/c/x`: No space left on device (os error 28)\n")
    assert isinstance(error, Undecided)
    assert "disk is full" in error.message


def test_a_conflict_keeps_the_words_of_the_solver_without_their_frame() -> None:
    error = failed(
        "  \u00d7 No solution found when resolving dependencies:\n"
        "  ╰─▶ Because torch==2.6.0 depends on triton==3.2.0 and you require triton==3.1.0, we can\n"
        "      conclude that your requirements are unsatisfiable.\n\n"
        "hint: `torch` was requested with a pre-release marker\n"
    )
    assert isinstance(error, Unsatisfiable)
    assert error.chain == (
        "No solution found when resolving dependencies:",
        "Because torch==2.6.0 depends on triton==3.2.0 and you require triton==3.1.0, we can",
        "conclude that your requirements are unsatisfiable.",
        "hint: `torch` was requested with a pre-release marker",
    )


# The platform.


@pytest.mark.parametrize(
    ("glibc", "tag"),
    [("2.36", "x86_64-manylinux_2_36"), ("2.28", "x86_64-manylinux_2_28"), ("2.30", "x86_64-manylinux_2_28"),
     ("2.99", "x86_64-manylinux_2_40"), ("3.0", "x86_64-manylinux_2_40")],
)  # fmt: skip
def test_the_platform_is_never_newer_than_the_system(glibc: str, tag: str) -> None:
    assert solve.platform_tag("x86_64", Glibc(glibc)) == tag


def test_a_glibc_older_than_any_wheel_is_refused() -> None:
    with pytest.raises(UsageError, match=r"glibc 2\.12"):
        solve.platform_tag("x86_64", Glibc("2.12"))


def test_uv_says_its_version() -> None:
    assert solve.uv_version()[0].isdigit()
    assert Path(proc.uv_path()).exists()


# The whole way.

Publish = Callable[..., Spec]


@pytest.fixture
def published(index: Index) -> Publish:
    """Publishes a torch of CUDA 12 or 13 and the solver's own wheel; gives the spec that asks for it."""

    def publish(torch: str, python: str, cudnn: str, *packages: str, text: str = "") -> Spec:
        tag = f"cp{python.replace('.', '')}"
        index.add("torch", torch, cudnn, tag=f"{tag}-{tag}-manylinux_2_28_x86_64")
        index.add(cudnn, "9.1.0.70")
        index.add("uv", solve.uv_version(), tag="py3-none-manylinux_2_17_x86_64")
        listed = ", ".join(f'"{each}"' for each in packages)
        return parse(
            f'torch = "{torch}"\npython = "{python}"\npackages = [{listed}]\n{text}', Path("/srv/job/envkit.toml")
        )

    return publish


def test_a_wish_becomes_a_lock(index: Index, published: Publish) -> None:
    numpy = index.add("numpy", "2.2.0")
    spec = published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy", text='gpus = ["H100"]')
    said: list[str] = []
    made = solve.lock(spec, load_facts(), said.append)
    assert [pin.name for pin in made.wheels] == ["numpy", "nvidia-cudnn-cu12", "torch"]
    assert made.wheels[0] == numpy
    assert (made.torch, made.variant, made.cuda, made.suite) == ("2.6.0", "cu124", "12.4", "bookworm")
    assert (made.installer.name, made.installer.version) == ("uv", solve.uv_version())
    assert made.spec == digest_of(spec)
    assert made.epoch == UPLOADED_S
    assert made.gpus == (("H100", "sm_90", "machine code of sm_90"),)
    assert any("torch 2.6.0 for CUDA 12.4" in line for line in said)
    assert parse_lock(dump(made), "x") == made


def test_a_library_of_another_cuda_is_refused(index: Index, published: Publish) -> None:
    index.add("nvidia-nccl-cu12", "2.21.5")
    spec = published("2.11.0", "3.11", "nvidia-cudnn-cu13", "nvidia-nccl-cu12", text='cuda = "13.0"')
    with pytest.raises(UsageError) as caught:
        solve.lock(spec, load_facts(), quiet)
    assert "nvidia-nccl-cu12 2.21.5 belongs to CUDA 12" in caught.value.message
    assert "CUDA 13.0" in caught.value.message
    assert "CUDA 13" in caught.value.fix


def test_a_base_with_torch_gets_only_what_it_lacks(index: Index, published: Publish) -> None:
    index.add("einops", "0.8.0")
    index.add("accelerate", "1.0.0", "torch>=2")
    text = 'base = "pytorch"\ncuda = "12.4"\nflavor = "devel"'
    made = solve.lock(
        published("2.6.0", "3.11", "nvidia-cudnn-cu12", "einops", "accelerate", text=text), load_facts(), quiet
    )
    assert made.preinstalled
    assert [pin.name for pin in made.wheels] == ["accelerate", "einops"]


def test_what_was_asked_for_by_name_goes_on_a_base_with_torch(index: Index, published: Publish) -> None:
    """A name like those of CUDA's own wheels does not make a package part of torch, nor is a wish dropped silently."""
    index.add("nvidia-ml-py", "12.575.51")
    text = 'base = "pytorch"\ncuda = "12.4"\nflavor = "devel"'
    packages = ("nvidia-ml-py", "nvidia-cudnn-cu12", "torch>=2")
    made = solve.lock(published("2.6.0", "3.11", "nvidia-cudnn-cu12", *packages, text=text), load_facts(), quiet)
    assert [pin.name for pin in made.wheels] == ["nvidia-cudnn-cu12", "nvidia-ml-py"]


def test_a_package_that_needs_torch_does_not_bring_another_one_to_ngc(index: Index, published: Publish) -> None:
    index.add("accelerate", "1.0.0", "torch>=2")
    published("2.6.0", "3.12", "nvidia-cudnn-cu12")
    spec = parse(
        'base = "ngc"\ntag = "26.07-py3"\ntorch = "2.13"\npython = "3.12"\npackages = ["accelerate"]',
        Path("/srv/job/envkit.toml"),
    )
    made = solve.lock(spec, load_facts(), quiet)
    assert [pin.name for pin in made.wheels] == ["accelerate"]


def test_a_wish_that_the_facts_forbid_never_asks_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    spec = parse('torch = "2.6.0"\npython = "3.11"\ncuda = "12.1"', Path("/srv/job/envkit.toml"))
    with pytest.raises(Unsatisfiable, match=r"12\.1"):
        solve.lock(spec, load_facts(), quiet)
