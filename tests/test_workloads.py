"""Compose files, manifests and devcontainers: what their readers make of them, beside what the pages show."""

from __future__ import annotations

import time

import pytest
import written
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st

from envkit import facts as tables
from envkit.judging.checks._workload import gpu_count, option, size
from envkit.model import Outcome, Span
from envkit.static import CheckOptions
from envkit.static.workloads import READERS
from envkit.subjects.workload import Container, FileValue, GpuRequest

FACTS = tables.load()
AT = Span("f", 1)

POD = """apiVersion: {api}
kind: {kind}
spec:
{around}
{pad}containers:
{pad}  - name: a
{pad}    image: nvcr.io/nvidia/pytorch:24.05-py3
"""


def fired(kind: str, text: str) -> set[str]:
    return written.fired(text, FACTS, kind)


@pytest.mark.parametrize(
    ("kind", "around", "depth"),
    [
        ("Pod", "", 2),
        ("Deployment", "  replicas: 2\n  template:\n    spec:", 6),
        ("CronJob", "  jobTemplate:\n    spec:\n      template:\n        spec:", 10),
        ("PyTorchJob", "  pytorchReplicaSpecs:\n    Worker:\n      replicas: 3\n      template:\n        spec:", 10),
        ("LeaderWorkerSet", "  leaderWorkerTemplate:\n    workerTemplate:\n      spec:", 8),
    ],
)
def test_pods_are_found_in_whatever_holds_them(kind: str, around: str, depth: int) -> None:
    text = POD.format(api="v1", kind=kind, around=around, pad=" " * depth)
    assert "workload-gpu-not-requested" in fired("kubernetes", text)
    limits = text + " " * (depth + 4) + "resources: {limits: {nvidia.com/gpu: 1}}\n"
    assert "workload-gpu-not-requested" not in fired("kubernetes", limits)


def test_every_document_and_every_item_of_a_list_counts() -> None:
    pod = "spec: {containers: [{name: a, image: 'nvcr.io/nvidia/pytorch:24.05-py3'}]}"
    listed = f"apiVersion: v1\nkind: List\nitems:\n  - {{kind: Pod, {pod}}}\n"
    assert "workload-gpu-not-requested" in fired("kubernetes", listed)
    assert "workload-gpu-not-requested" in fired("kubernetes", f"apiVersion: v1\nkind: Service\n---\n{pod}\n")


@pytest.mark.parametrize(("value", "set_for"), [("all", True), ("void", False)])
def test_a_container_that_sets_its_gpus_is_found_behind_others_that_do_not(value: str, set_for: bool) -> None:
    image = "image: 'nvcr.io/nvidia/pytorch:24.05-py3', resources: {limits: {nvidia.com/gpu: 1}}"
    env = f"env: [{{name: NVIDIA_VISIBLE_DEVICES, value: {value}}}]"
    pod = f"apiVersion: v1\nkind: Pod\nspec: {{containers: [{{name: a, {image}}}, {{name: b, {image}, {env}}}]}}\n"
    assert ("workload-visible-devices-set-in-pod" in fired("kubernetes", pod)) is set_for


def test_an_init_container_needs_no_gpu() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nspec:\n  initContainers:\n"
        "    - {name: i, image: 'nvidia/cuda:12.4.1-devel-ubuntu22.04'}\n"
        "  containers:\n    - name: a\n      image: postgres:16\n"
    )
    assert not fired("kubernetes", text)


SHM = "workload-shm-too-small"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "kubernetes",
            "apiVersion: v1\nkind: Pod\nspec:\n"
            "  volumes: [{emptyDir: {}}, 7, {name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]\n"
            "  containers: [7, {name: a, image: 'nvcr.io/nvidia/pytorch:24.05-py3',\n"
            "    resources: {limits: {nvidia.com/gpu: 2}},\n"
            "    volumeMounts: [{name: shm, mountPath: /x}, {name: shm, mountPath: /dev/shm}]}]\n",
        ),
        (
            "compose",
            "services:\n  a:\n    image: nvcr.io/nvidia/pytorch:24.05-py3\n    gpus: 2\n"
            "    volumes: [{type: volume, target: /x}, 'x:/y', {type: tmpfs, target: /dev/shm, tmpfs: {size: 8g}}]\n",
        ),
    ],
)
def test_what_stands_first_in_a_list_hides_nothing_behind_it(kind: str, text: str) -> None:
    assert written.judged(SHM, kind, text, FACTS).outcome is Outcome.PASS
    assert SHM in fired(kind, text.replace("/dev/shm", "/other"))


def test_one_pod_that_stands_in_two_places_is_read_once_and_hides_none_behind_it() -> None:
    pod = "{{containers: [{{name: {0}, image: 'nvcr.io/nvidia/pytorch:24.05-py3'}}]}}"
    text = f"kind: List\nitems:\n- spec: &one {pod.format('a')}\n- spec: *one\n- spec: {pod.format('b')}\n"
    result = written.judged("workload-gpu-not-requested", "kubernetes", text, FACTS)
    assert [finding.message.count("`a`") for finding in result.findings] == [1, 0]


def test_an_extended_service_brings_its_request() -> None:
    base = "  a:\n    image: nvidia/cuda:12.4.1-base-ubuntu22.04\n"
    text = f"services:\n{base}    gpus: all\n  b:\n    extends: {{service: a}}\n"
    assert "workload-gpu-not-requested" not in fired("compose", text)
    assert "workload-gpu-not-requested" in fired("compose", f"services:\n{base}  b:\n    extends: a\n")
    chain = "  b:\n    extends: c\n  c:\n    extends: d\n  d:\n    gpus: all\n"
    assert "workload-gpu-not-requested" not in fired("compose", f"services:\n{base}    extends: b\n{chain}")


def test_a_service_that_extends_itself_ends() -> None:
    text = "services:\n  a:\n    extends: b\n    image: x:1\n  b:\n    extends: a\n"
    assert not written.file("compose", text, FACTS).unreadable


def test_another_file_is_extended() -> None:
    text = (
        "services:\n  a:\n    extends: {file: base.yml, service: gpu}\n    image: nvidia/cuda:12.4.1-base-ubuntu22.04\n"
        "--- base.yml ---\nservices:\n  gpu:\n    gpus: all\n"
    )
    assert "workload-gpu-not-requested" not in fired("compose", text)


def test_a_variable_of_compose_takes_its_default() -> None:
    text = "services:\n  a:\n    image: nvidia/cuda:${TAG:-12.1-devel}\n    gpus: all\n"
    assert "workload-image-never-existed" in fired("compose", text)
    assert "workload-image-never-existed" not in fired("compose", text.replace(":-12.1-devel", ""))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "kubernetes",
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - image: {{ .Values.image }}\n      name: a\n",
        ),
        ("kubernetes", "apiVersion: v1\nkind: Pod\n{{- with .x }}\nspec: {}\n{{- end }}\n"),
        ("compose", "services: 3\n"),
        ("compose", "a: [\n"),
        ("devcontainer", '{"image": '),
        ("devcontainer", "[1]"),
    ],
)
def test_what_cannot_be_read_says_why(kind: str, text: str) -> None:
    judged = written.file(kind, text, FACTS)
    assert judged.unreadable
    assert not judged.results


CLEAN = [
    (
        "compose",
        "services:\n  t:\n    image: nvidia/cuda:12.4.1-runtime-ubuntu22.04\n    shm_size: 8gb\n    deploy:\n"
        "      resources:\n        reservations:\n          devices:\n"
        "            - {driver: nvidia, count: 2, capabilities: [gpu]}\n  db:\n    image: postgres:latest\n",
    ),
    (
        "kubernetes",
        "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n"
        "      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]\n"
        "      containers:\n        - name: t\n"
        "          image: nvcr.io/nvidia/pytorch:24.05-py3\n          args: [torchrun, --nproc_per_node=8, t.py]\n"
        "          resources: {limits: {nvidia.com/gpu: 8}}\n"
        "          volumeMounts: [{name: shm, mountPath: /dev/shm}]\n",
    ),
    (
        "devcontainer",
        '{"image": "nvidia/cuda:12.4.1-devel-ubuntu22.04", "runArgs": ["--gpus", "all", "--ipc=host"]}\n',
    ),
]


@pytest.mark.parametrize(("kind", "text"), CLEAN)
def test_nothing_is_said_of_a_clean_file(kind: str, text: str) -> None:
    results = written.file(kind, text, FACTS).results
    assert {result.outcome for result in results} <= {Outcome.PASS, Outcome.SKIP}
    assert any(result.outcome is Outcome.PASS for result in results)


@pytest.mark.parametrize(
    ("request_of", "count"),
    [
        (GpuRequest("devices", AT, "nvidia", FileValue("2", AT)), 2),
        (GpuRequest("devices", AT, "nvidia", ids=("0", "3", "4")), 3),
        (GpuRequest("devices", AT, "nvidia", FileValue("all", AT)), None),
        (GpuRequest("devices", AT, "nvidia"), None),
        (GpuRequest("devices", AT, "nvidia", FileValue("-1", AT)), None),
        (GpuRequest("limit", AT, "nvidia.com/gpu", FileValue("8", AT)), 8),
        (GpuRequest("limit", AT, "nvidia.com/gpu", FileValue("${N}", AT, False), sure=False), None),
        (GpuRequest("claim", AT, "gpu"), None),
        (GpuRequest("option", AT, "nvidia", FileValue('"device=0,1"', AT)), 2),
        (GpuRequest("option", AT, "nvidia", FileValue("all", AT)), None),
        (GpuRequest("cdi", AT, "nvidia.com/gpu", None, ("0",)), 1),
        (GpuRequest("cdi", AT, "nvidia.com/gpu", None, ("all",)), None),
        (GpuRequest("runtime", AT, "nvidia"), None),
    ],
)
def test_gpus_are_counted_where_they_can_be(request_of: GpuRequest, count: int | None) -> None:
    assert gpu_count(Container("a", AT, gpus=(request_of,))) == count


def test_no_request_is_no_gpu() -> None:
    assert gpu_count(Container("a", AT)) == 0


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("64m", 1 << 26), ("2gb", 2 << 30), ("8Gi", 8 << 30), ("1073741824", 1 << 30), ("1.5g", 3 << 29), ("much", None)],
)
def test_sizes_are_read(text: str, bytes_: int | None) -> None:
    assert size(FileValue(text, AT)) == bytes_


def test_an_option_is_found_in_words_and_in_scripts() -> None:
    script = Container(
        "a", AT, command=(FileValue("bash", AT), FileValue("-c", AT), FileValue("cd x && torchrun --nproc=2 y", AT))
    )
    found = option(script, "--nproc")
    assert found is not None
    assert found.value == "2"
    assert option(Container("a", AT, command=(FileValue("--tp", AT), FileValue("4", AT))), "--tp") == FileValue("4", AT)
    assert option(Container("a", AT, command=(FileValue("--tp", AT),)), "--tp") is None


@pytest.mark.parametrize("kind", sorted(READERS))
@given(text=st.text(alphabet=st.sampled_from("{}[]:-,&*<|#'\"\n \tservicconta:gpu$0"), max_size=100))
@examples(40)
def test_any_text_is_judged_or_named(kind: str, text: str) -> None:
    for body in (text, "services:\n  a:\n    " + text, "spec:\n  containers:\n    - name: a\n      " + text):
        judged = READERS[kind](body, "f", None, CheckOptions(), FACTS)
        assert judged.unreadable or judged.results
        assert not [result for result in judged.results if result.outcome is Outcome.CRASHED]


_KEYS = (
    "image",
    "deploy",
    "gpus",
    "devices",
    "environment",
    "volumes",
    "ulimits",
    "command",
    "build",
    "tmpfs",
    "extends",
)
_PARTS = ("resources", "env", "volumeMounts", "args", "securityContext", "image")


@pytest.mark.parametrize("value", ["[]", "{}", "~", "3", "[[1]]", "[{}]", "{a: {b: [c]}}", "'x'", "[~]", "{~: ~}"])
def test_no_shape_of_a_value_breaks_a_reader(value: str) -> None:
    texts = [("compose", f"services:\n  a:\n    {key}: {value}\n") for key in _KEYS]
    texts += [("compose", f"services:\n  a: {value}\n"), ("compose", f"services: {value}\n")]
    texts += [
        ("kubernetes", f"spec:\n  volumes: {value}\n  containers:\n    - name: a\n      {key}: {value}\n")
        for key in _PARTS
    ]
    texts += [
        ("devcontainer", f'{{"image": "x", "{key}": {value}}}') for key in ("runArgs", "build", "hostRequirements")
    ]
    for kind, text in texts:
        judged = READERS[kind](text, "f", None, CheckOptions(("H100",), "550"), FACTS)
        assert not [result for result in judged.results if result.outcome is Outcome.CRASHED], (kind, text)


def test_many_containers_take_little_time() -> None:
    service = "    image: nvidia/cuda:12.4.1-base-ubuntu22.04\n    gpus: all\n"
    text = "services:\n" + "".join(f"  s{number}:\n{service}" for number in range(1500))
    begin = time.process_time()
    assert written.file("compose", text, FACTS).results
    assert time.process_time() - begin < 3
