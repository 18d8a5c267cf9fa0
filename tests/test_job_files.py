"""The files by which other tools run a job: each valid by its own schema, each word of a hostile job back as it was
given from the reader that the file is for, and nothing in them that is secret."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import kube_schemas
import kubernetes_validate
import pytest
import yaml
from forked import envkit
from hypothesis import given
from hypothesis import strategies as st

from envkit.build import exporters, schedulers, yaml_text
from envkit.build.task import Task
from envkit.errors import UsageError
from envkit.plan import lockfile as locks
from envkit.plan import pushed
from envkit.plan.image_table import ImageTable
from envkit.plan.spec import Flavor, load
from envkit.subjects.declared import Mount
from envkit.system import proc

STACK = Path(__file__).resolve().parents[1] / "images" / "torch-2.6-cu124"
LOCK = replace(locks.parse((STACK / "envkit.lock").read_text(), "envkit.lock"), name="team-v2.train")
SECRET = "hf_thisistheonethatnobodymaysee"
# What means something to YAML, to a shell, to Compose, to Kubernetes, to Slurm or to Apptainer.
HOSTILE = (
    "plain", "", " ", "-", "--", "no", "0o17", "1e3", "null", "~", "a: b", "- a", "#x", "x #y", "&a", "*a", "!x",
    "%post", "@x", "`id`", "$HOME", "${HOME}", "$(id)", "$$", "$$(HOME)", "$(HOME)", "'", '"', "''\"", "\\", "\\n",
    "a\tb", "{{ x }}", "{{{", "a;id", "a&&id", "|", "> /tmp/x", "ü", "\U0001f600", "\u2028", "\x7f", "\x85", "\ufeff",
    "EOF", "#SBATCH --nodes=9", "end\\",
)  # fmt: skip
LINES = ("a\nb", "a\n%post\nid", "\nEOF\nid\n", "a\n#SBATCH --nodes=9\n", "a\r\nb", "x\n")
EVERY = (*HOSTILE, *LINES)
TASK = Task(
    "registry.example.com/team/train@sha256:" + "ab" * 32,
    registry=True,
    argv=("python", "train.py", "--lr", "1e-3"),
    gpus=8,
    env={"EPOCHS": "3", "HF_TOKEN": SECRET},
    binds=(Mount("/data", "/data", read_only=True),),
    user=(1234, 567),
    shm=16 << 30,
    memory=64 << 30,
)
HOSTILE_TASK = replace(TASK, argv=("python", *EVERY), env={f"V{n}": text for n, text in enumerate(EVERY)})
COMPOSE = json.loads(
    (Path(check_jsonschema.__file__).parent / "builtin_schemas/vendor/compose-spec.json").read_text("utf-8")
)
COMPOSE_FILE = jsonschema.validators.validator_for(COMPOSE)(COMPOSE)
NEWEST = kubernetes_validate.latest_version()
RELEASES = [f"1.{minor}" for minor in range(int(NEWEST.split(".")[1]) - 3, int(NEWEST.split(".")[1]) + 1)]
KINDS: dict[str, Callable[[locks.Lock, Task], str]] = {
    "compose": lambda lock, task: exporters.compose(lock, Flavor.RUNTIME, task),
    "devcontainer": lambda lock, task: exporters.devcontainer(lock, replace(task, argv=())),
    "kubernetes-job": schedulers.kubernetes_job,
    "jobset": schedulers.jobset,
    "sbatch": schedulers.sbatch,
    "apptainer": exporters.apptainer,
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_holds_a_secret(kind: str) -> None:
    text = KINDS[kind](LOCK, TASK)
    assert SECRET not in text and "HF_TOKEN" in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_the_same_for_the_same_job(kind: str) -> None:
    assert KINDS[kind](LOCK, TASK) == KINDS[kind](LOCK, TASK)


@given(
    st.dictionaries(
        st.sampled_from(EVERY),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(EVERY),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(EVERY), inner),
            max_leaves=4,
        ),
        min_size=1,
    )
)
def test_yaml_gives_back_what_it_was_given(value: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_text.text(value)) == value


def test_a_program_is_a_block_that_can_be_read() -> None:
    assert yaml_text.text({"run": "if a:\n    b\n\nc\n"}) == "run: |\n  if a:\n      b\n\n  c\n"
    assert yaml_text.text({"run": " a\nb\n"}) == 'run: " a\\nb\\n"\n'


# Compose


def interpolated(value: Any) -> Any:
    """A document as Compose has it with an empty environment: `$$` is `$`, the rest of its own is refused here."""
    if isinstance(value, dict):
        return {key: interpolated(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolated(inner) for inner in value]
    if not isinstance(value, str):
        return value
    value = re.sub(r"\$\{ENVKIT_[UG]ID:-([0-9]+)\}", r"\1", value)
    assert "$" not in value.replace("$$", "")
    return value.replace("$$", "$")


@pytest.mark.parametrize("task", [TASK, HOSTILE_TASK, replace(TASK, argv=(), gpus=None, registry=False, image="a/b:1")])
@pytest.mark.parametrize("flavor", Flavor)
def test_compose_is_valid_by_the_schema_of_compose_files(flavor: Flavor, task: Task) -> None:
    document = yaml.safe_load(exporters.compose(LOCK, flavor, task))
    COMPOSE_FILE.validate(document)
    document["services"]["envkit"]["shm_size"] = ["8g"]  # the schema does refuse
    with pytest.raises(jsonschema.ValidationError):
        COMPOSE_FILE.validate(document)


def test_compose_runs_the_job_of_envkit_run() -> None:
    document = interpolated(yaml.safe_load(exporters.compose(LOCK, Flavor.RUNTIME, TASK)))
    job = document["services"]["envkit"]
    assert job["image"] == TASK.image and "build" not in job and "tty" not in job
    assert job["entrypoint"] == ["python3", "-I", "-S", "/envkit/guard.py", "--"] and job["command"] == [*TASK.argv]
    assert (job["working_dir"], job["user"], job["shm_size"], job["mem_limit"]) == (
        "/workspace", "1234:567", "16g", "64g",
    )  # fmt: skip
    assert job["environment"]["HF_TOKEN"] is None  # Compose's own environment has it
    assert job["environment"] | {"EPOCHS": "3", "HOME": "/home/job", "ENVKIT_GPUS": "8"} == job["environment"]
    assert job["environment"]["ENVKIT_SHM"] == str(16 << 30)
    assert [(each["source"], each["target"], each.get("read_only", False)) for each in job["volumes"]] == [
        (".", "/workspace", False), ("home", "/home/job", False), ("/data", "/data", True),
    ]  # fmt: skip
    (device,) = job["deploy"]["resources"]["reservations"]["devices"]
    assert device["device_ids"] == [f"nvidia.com/gpu={number}" for number in range(8)]
    assert document["configs"]["guard"]["content"].startswith('"""The entry point of an image')


def test_a_volume_of_a_person_s_is_none_of_the_file_s_own() -> None:
    named = replace(TASK, binds=(Mount("home", "/mine"), Mount("workspace", "/other", read_only=True)))
    document = interpolated(yaml.safe_load(exporters.compose(LOCK, Flavor.RUNTIME, named)))
    volumes = {key: one["name"] for key, one in document["volumes"].items()}
    found = {one["target"]: volumes.get(one["source"]) for one in document["services"]["envkit"]["volumes"]}
    assert (found["/mine"], found["/other"]) == ("home", "workspace") and found["/home/job"].startswith(
        "team-v2.train-"
    )
    placed = replace(TASK, binds=(Mount("/code", "/workspace"), Mount("/scratch", "/home/job")))
    document = yaml.safe_load(exporters.compose(LOCK, Flavor.RUNTIME, placed))
    assert [one["source"] for one in document["services"]["envkit"]["volumes"]] == ["/code", "/scratch"]
    assert [*document["services"]] == ["envkit"] and "depends_on" not in document["services"]["envkit"]


def test_compose_gives_every_word_as_it_was() -> None:
    job = interpolated(yaml.safe_load(exporters.compose(LOCK, Flavor.RUNTIME, HOSTILE_TASK)))["services"]["envkit"]
    assert job["command"] == ["python", *EVERY]
    assert [job["environment"][name] for name in HOSTILE_TASK.env] == [*EVERY]


def test_a_guard_in_the_image_needs_no_other() -> None:
    guarded = replace(LOCK, guard=True)
    document = yaml.safe_load(exporters.compose(guarded, Flavor.RUNTIME, TASK))
    assert "entrypoint" not in document["services"]["envkit"] and "configs" not in document
    off = yaml.safe_load(exporters.compose(guarded, Flavor.RUNTIME, replace(TASK, preflight=False)))
    assert off["services"]["envkit"]["environment"]["ENVKIT_GUARD"] == "off"
    pod = documents(schedulers.kubernetes_job(guarded, TASK))[-1]["spec"]["template"]["spec"]
    assert "command" not in pod["containers"][0] and pod["containers"][0]["args"] == [*TASK.argv]
    assert "/usr/share/envkit/guard.py -- python train.py" in schedulers.sbatch(guarded, TASK)


def test_an_image_with_the_project_in_it_starts_as_it_says() -> None:
    """Its entry point stands behind the guard, and nothing is mounted over its files."""
    table = ImageTable(copy=("src",), workdir="/app", user="app", entrypoint=("tini", "--"), cmd=("python", "run.py"))
    inside = replace(LOCK, inside=table)
    task = replace(TASK, project=False, workdir="/app")
    job = yaml.safe_load(exporters.compose(inside, Flavor.RUNTIME, task))["services"]["envkit"]
    assert job["entrypoint"][-3:] == ["--", "tini", "--"] and job["command"] == [*TASK.argv]
    assert [each["target"] for each in job["volumes"]] == ["/home/job", "/data"]
    made = documents(schedulers.kubernetes_job(inside, task))
    assert [one["metadata"]["name"] for one in made[1:-1]] == ["team-v2-train-home"]
    (container,) = made[-1]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-3:] == ["--", "tini", "--"] and container["workingDir"] == "/app"
    text = schedulers.sbatch(inside, task)
    assert "/workspace" not in text.rpartition("srun")[2] and '-c "$guard" -- tini -- python train.py' in text
    assert "set -- tini -- python train.py" in exporters.apptainer(inside, task)


def test_without_cuda_no_gpu_is_asked_for() -> None:
    plain = replace(LOCK, cuda=None, variant="cpu")
    job = yaml.safe_load(exporters.compose(plain, Flavor.RUNTIME, replace(TASK, gpus=None)))["services"]["envkit"]
    assert "deploy" not in job and job["environment"]["ENVKIT_GPUS"] == "0"
    none = replace(TASK, gpus=None, preflight=False)  # the guard's own text names them
    assert "nvidia" not in schedulers.kubernetes_job(plain, none)
    assert "gpu" not in schedulers.sbatch(plain, none) and "--nv" not in schedulers.sbatch(plain, none)


# Kubernetes


def documents(text: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(text)]


def expanded(text: str, variables: dict[str, str]) -> str:
    """What the kubelet makes of a word: $(NAME) of a variable that there is, `$$` is `$`, all else stays
    (k8s.io/kubernetes/third_party/forked/golang/expansion)."""

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


@pytest.mark.parametrize(("release", "task"), [*((release, TASK) for release in RELEASES), (NEWEST, HOSTILE_TASK)])
def test_kubernetes_documents_are_strictly_valid(release: str, task: Task) -> None:
    made = documents(schedulers.kubernetes_job(LOCK, task))
    assert [one["kind"] for one in made] == ["ConfigMap", "PersistentVolumeClaim", "PersistentVolumeClaim", "Job"]
    for one in made:
        kubernetes_validate.validate(one, release, strict=True)
    made[-1]["spec"]["template"]["spec"]["containers"][0]["comand"] = []  # a strict schema notices
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(made[-1], release, strict=True)


def test_a_pod_has_what_the_job_needs() -> None:
    claims = documents(schedulers.kubernetes_job(LOCK, TASK))
    job = claims.pop()
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert job["metadata"]["name"] == "team-v2-train" and job["spec"]["backoffLimit"] == 0
    assert container["command"] == ["python3", "-I", "-S", "/envkit/guard.py", "--"]
    assert container["args"] == [*TASK.argv] and container["workingDir"] == "/workspace"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8, "memory": "64Gi"}
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (1234, 567)
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["restartPolicy"] == "Never"
    places = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes[places["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert volumes[places["/data"]]["hostPath"] == {"path": "/data"}
    own = [volumes[places[path]]["persistentVolumeClaim"]["claimName"] for path in ("/workspace", "/home/job")]
    assert own == [one["metadata"]["name"] for one in claims if one["kind"] == "PersistentVolumeClaim"]
    secret = next(one for one in container["env"] if one["name"] == "HF_TOKEN")
    assert secret["valueFrom"]["secretKeyRef"] == {"name": "team-v2-train-secrets", "key": "HF_TOKEN"}


def test_the_kubelet_gives_every_word_as_it_was() -> None:
    (container,) = documents(schedulers.kubernetes_job(LOCK, HOSTILE_TASK))[-1]["spec"]["template"]["spec"][
        "containers"
    ]
    seen: dict[str, str] = {}
    for one in container["env"]:
        seen[one["name"]] = expanded(one["value"], {"HOME": "wrong", **seen})
    assert [seen[name] for name in HOSTILE_TASK.env] == [*EVERY]
    assert [expanded(word, seen) for word in container["args"]] == ["python", *EVERY]


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_jobset_is_a_valid_job_for_each_node(nodes: int) -> None:
    made = documents(schedulers.jobset(LOCK, replace(TASK, nodes=nodes)))[-1]
    assert (made["apiVersion"], made["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (replicated,) = made["spec"]["replicatedJobs"]
    for release in kube_schemas.RELEASES:
        kube_schemas.validate(made, release)
    job = replicated["template"]
    assert (job["spec"]["parallelism"], job["spec"]["completions"], job["spec"]["completionMode"]) == (
        nodes, nodes, "Indexed",
    )  # fmt: skip
    env = {one["name"]: one for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert ("PET_MASTER_ADDR" in env) == (nodes > 1)
    if nodes > 1:
        assert env["PET_MASTER_ADDR"]["value"] == "team-v2-train-node-0-0.team-v2-train"
        assert made["spec"]["network"] == {"enableDNSHostnames": True, "subdomain": "team-v2-train"}


def test_an_object_has_a_name_that_kubernetes_takes() -> None:
    for name in ("a", "a.b_c", "x" * 64, "a--b", "9" * 50 + "-" + "b" * 10):
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", schedulers.object_name(name))
        assert len(schedulers.object_name(name)) <= 40


# Slurm


STAND_IN = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["TOLD"], "a") as told:
    json.dump([sys.argv[1:], dict(os.environ)], told)
    told.write("\\n")
at = sys.argv.index(os.environ["IMAGE"])
command = sys.argv[at + 1:]
for name, value in dict(os.environ).items():
    if name.startswith("APPTAINERENV_"):
        os.environ[name.removeprefix("APPTAINERENV_")] = value
os.execvp(command[0], command)
"""
TELL = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open(os.environ['SEEN'], 'w'))"
SHOW = (sys.executable, "-c", TELL)


def submitted(task: Task, folder: Path, lock: locks.Lock = LOCK) -> tuple[proc.Completed, list[str]]:
    """Runs a batch script as a node would, with an srun that is its only task and an apptainer that starts its command
    here; what the script printed, and the words of apptainer."""
    (folder / "bin").mkdir()
    for name, text in (("srun", '#!/bin/sh\nexec "$@"\n'), ("apptainer", STAND_IN)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    script = folder / "job.sbatch"
    script.write_text(schedulers.sbatch(lock, task))
    env = {
        "PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "TOLD": f"{folder}/told", "IMAGE": "there.sif",
        "ENVKIT_IMAGE": "there.sif", "SEEN": f"{folder}/seen", "HF_TOKEN": SECRET, "SLURM_JOB_ID": "7",
    }  # fmt: skip
    done = proc.run(["bash", str(script)], timeout_s=60, env=env, cwd=folder)
    told = (folder / "told").read_text().splitlines() if (folder / "told").exists() else []
    return done, json.loads(told[0])[0] if told else []


def test_a_batch_script_gives_every_word_as_it_was(tmp_path: Path) -> None:
    task = replace(HOSTILE_TASK, argv=(*SHOW, *EVERY), env={**HOSTILE_TASK.env, "ENVKIT_GPUS": "0"}, shm=None)
    done, words = submitted(task, tmp_path)
    assert (done.exit, done.stdout) == (0, ""), done.stderr
    argv, environ = json.loads((tmp_path / "seen").read_text())
    assert argv == [*EVERY] and [environ[name] for name in HOSTILE_TASK.env] == [*EVERY]
    assert words[:2] == ["exec", "--nv"] and words[words.index("--pwd") + 1] == "/workspace"
    assert words[words.index("--bind") + 1] == f"{tmp_path}:/workspace"
    assert words[words.index("--mount") + 1] == "type=bind,source=/data,destination=/data,ro"
    assert "%" not in json.dumps(words[:9])


def test_a_batch_script_ends_as_its_command_and_tries_first(tmp_path: Path) -> None:
    cpu = {"ENVKIT_GPUS": "0"}
    task = replace(TASK, argv=("sh", "-c", "exit 7"), env=cpu, shm=None)
    (tmp_path / "a").mkdir()
    assert submitted(task, tmp_path / "a")[0].exit == 7
    (tmp_path / "b").mkdir()
    done, _ = submitted(replace(task, shm=1 << 50), tmp_path / "b")  # more shared memory than any machine has
    assert done.exit == 1 and "ENVKIT_SHM asks for" in done.stderr
    (tmp_path / "c").mkdir()
    assert submitted(replace(task, shm=1 << 50, preflight=False), tmp_path / "c")[0].exit == 7


def test_a_batch_script_takes_a_secret_from_the_environment(tmp_path: Path) -> None:
    task = replace(TASK, argv=SHOW, env={"HF_TOKEN": SECRET, "OTHER_TOKEN": "x", "ENVKIT_GPUS": "0"}, shm=None)
    done, _ = submitted(task, tmp_path)
    assert done.exit == 1 and "OTHER_TOKEN: is a secret that the job needs" in done.stderr
    assert not (tmp_path / "seen").exists()


def test_the_lines_of_slurm_come_first_and_hold_no_text_of_the_job() -> None:
    for task in (TASK, HOSTILE_TASK):
        lines = schedulers.sbatch(LOCK, task).split("\n")
        own = [line for line in lines if line.startswith("#SBATCH")]
        head = lines[1 : lines.index("set -euo pipefail")]
        wanted = ["--job-name=team-v2-train", "--nodes=1", "--ntasks-per-node=1", "--output=%x-%j.out"]
        wanted += ["--gpus-per-node=8", "--mem=65536M"]
        assert [line for line in head if line.startswith("#SBATCH")] == [f"#SBATCH {word}" for word in wanted]
        # Behind the first command Slurm reads no more of them.
        assert own[: len(wanted)] == [f"#SBATCH {word}" for word in wanted]
    hostile = schedulers.sbatch(LOCK, HOSTILE_TASK)
    assert proc.run(["bash", "-n"], timeout_s=60, stdin=hostile).exit == 0
    assert "\r" not in hostile  # for which sbatch refuses a script


# Apptainer


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"(?m)^%([a-z]+)\n", text)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_a_definition_gives_every_word_as_it_was(tmp_path: Path) -> None:
    task = replace(
        TASK, argv=(*SHOW, *HOSTILE), env={f"V{n}": text for n, text in enumerate(HOSTILE)}, binds=(), preflight=False
    )
    text = exporters.apptainer(LOCK, task)
    assert "{{" not in text  # where a definition is a template
    found = sections(text)
    assert [*found] == ["", "post", "environment", "runscript", "test", "labels", "help"]
    env = {"PATH": os.environ["PATH"], "HOME": "/h", "SEEN": f"{tmp_path}/seen"}
    done = proc.run(["sh"], timeout_s=60, env=env, stdin=found["environment"] + found["runscript"])
    assert (done.exit, done.stderr) == (0, "")
    argv, environ = json.loads((tmp_path / "seen").read_text())
    assert argv == [*HOSTILE] and [environ[name] for name in task.env] == [*HOSTILE]
    assert environ["TORCHINDUCTOR_CACHE_DIR"] == "/h/.cache/inductor"


@pytest.mark.parametrize("text", LINES)
def test_a_definition_takes_no_line_break(text: str) -> None:
    for task in (replace(TASK, argv=("sh", text)), replace(TASK, env={"A": text}), replace(TASK, workdir=text)):
        with pytest.raises(UsageError, match="line break"):
            exporters.apptainer(LOCK, task)


def test_a_definition_says_how_it_is_run_and_brings_its_guard() -> None:
    found = sections(exporters.apptainer(LOCK, TASK))
    assert "apptainer run --nv --mount type=bind,source=/data,destination=/data,ro --pwd /workspace" in found["help"]
    assert "HF_TOKEN from your environment" in found["help"]
    assert '/usr/share/envkit/guard.py -- "$@"' in found["runscript"] and "set -- python train.py" in found["runscript"]
    assert "cat > /usr/share/envkit/guard.py" in found["post"]
    assert "guard" not in sections(exporters.apptainer(LOCK, replace(TASK, argv=())))["runscript"]


# Development containers


def test_a_development_container_has_the_job_s_volumes_and_variables() -> None:
    made = json.loads(
        exporters.devcontainer(LOCK, replace(TASK, argv=(), env=dict(zip("ABC", EVERY[30:33], strict=True))))
    )
    assert made["containerEnv"] == dict(zip("ABC", EVERY[30:33], strict=True))
    assert made["mounts"][2:] == ["type=bind,source=/data,target=/data,readonly"]
    for bind, shown in (
        (Mount("/d,e", "/data"), {"type": "bind", "source": "/d,e", "target": "/data"}),
        (Mount("named", "/data"), {"type": "volume", "source": "named", "target": "/data"}),
    ):
        (last,) = json.loads(exporters.devcontainer(LOCK, replace(TASK, argv=(), binds=(bind,))))["mounts"][2:]
        assert last == shown
    with pytest.raises(UsageError, match="has a comma"):
        exporters.devcontainer(LOCK, replace(TASK, argv=(), binds=(Mount("/d,e", "/data", read_only=True),)))
    assert made["runArgs"][-8:-4] == ["--shm-size", "16g", "--memory", "64g"]
    held = json.loads(exporters.devcontainer(LOCK, replace(TASK, argv=())))
    assert held["containerEnv"]["HF_TOKEN"] == "${localEnv:HF_TOKEN}"
    with pytest.raises(UsageError, match="fill in"):
        exporters.devcontainer(LOCK, replace(TASK, argv=(), env={"A": "${localEnv:HOME}"}))
    with pytest.raises(UsageError, match="runs no command"):
        exporters.devcontainer(LOCK, TASK)


@pytest.mark.parametrize("gpus", [0, 8])
def test_a_development_container_without_gpus_asks_for_no_limit_that_serves_them_alone(gpus: int) -> None:
    """An engine that may not raise a limit starts none that asks for it."""
    made = json.loads(exporters.devcontainer(LOCK, replace(TASK, argv=(), gpus=gpus)))["runArgs"]
    assert ("memlock=-1" in made, "nvidia.com/gpu=all" in made or "--device" in made) == (gpus > 0, gpus > 0)
    assert "core=-1" in made


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (1, 1), (2, 2), (3, 0)])
def test_a_development_container_starts_unless_preflight_finds_something(code: int, ends: int, tmp_path: Path) -> None:
    (tmp_path / "envkit").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/told\nexit {code}\n')
    (tmp_path / "envkit").chmod(0o755)
    words = json.loads(exporters.devcontainer(LOCK, replace(TASK, argv=())))["initializeCommand"]
    done = proc.run(words, timeout_s=60, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.exit == ends
    assert (tmp_path / "told").read_text() == f"preflight --level passive --gpus 8 {TASK.image}\n"
    assert proc.run(words, timeout_s=60, env={"PATH": "/usr/bin:/bin"}).exit == 0  # without envkit


# What is refused


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (partial(schedulers.kubernetes_job, task=replace(TASK, argv=())), "runs a command, and none is given"),
        (partial(schedulers.sbatch, task=replace(TASK, argv=())), "runs a command, and none is given"),
        (partial(schedulers.kubernetes_job, task=replace(TASK, gpus=None)), "by their number"),
        (partial(schedulers.kubernetes_job, task=replace(TASK, nodes=2)), "does not join 2 nodes"),
        (partial(schedulers.kubernetes_job, task=replace(TASK, binds=(Mount("A b", "/d"),))), "name of a claim"),
        (partial(schedulers.sbatch, task=replace(TASK, binds=(Mount("data", "/d"),))), "has no volume"),
        (partial(schedulers.sbatch, task=replace(TASK, binds=(Mount("~/data", "/d"),))), "has no volume"),
    ],
)
def test_what_a_tool_cannot_do_is_said(made: Callable[[locks.Lock], str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        made(LOCK)


@pytest.mark.parametrize("name", ["", "A B", "A;id", "1A", "A\nB", "Ä", "A-B", "A$(id)"])
def test_a_variable_has_a_name_of_letters(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a variable"):
        replace(TASK, env={name: "x"})


# The verb


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "trainer"
    made.mkdir()
    for name in ("envkit.toml", "envkit.lock"):
        (made / name).write_bytes((STACK / name).read_bytes())
    return made


NAMES = {
    "compose": "compose.yaml", "kubernetes-job": "job.yaml", "jobset": "jobset.yaml", "sbatch": "trainer.sbatch",
    "apptainer": "trainer.def",
}  # fmt: skip


@pytest.mark.parametrize("kind", NAMES)
def test_render_writes_the_job_behind_the_dashes(kind: str, project: Path) -> None:
    done = envkit("render", str(project), "--as", kind, "-e", "A=1", "--gpus", "2", "--", "python", "train.py", "it's")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{project / NAMES[kind]}\n", "")
    assert "train.py" in (project / NAMES[kind]).read_text()


def test_render_takes_the_image_that_was_pushed(project: Path) -> None:
    spec = load(project)
    lock = locks.load(spec)
    assert lock is not None
    digest = "sha256:" + "cd" * 32
    one = pushed.Pushed(digest, "runtime", lock.platform, pushed.of_lock(lock))
    pushed.record(spec, "registry.example.com:5000/team/train:1", one)
    job = ("render", str(project), "--as", "kubernetes-job", "-o", "-", "--", "true")
    assert f'image: "registry.example.com:5000/team/train@{digest}"' in envkit(*job).stdout
    pushed.record(
        spec, "registry.example.com:5000/team/train:1", pushed.Pushed(digest, "runtime", lock.platform, "0" * 64)
    )
    assert 'image: "envkit/trainer:latest"' in envkit(*job).stdout  # that one is of another lock
    named = envkit(*job[:6], "--image", "ghcr.io/team/train:2", "--", "true")
    assert 'image: "ghcr.io/team/train:2"' in named.stdout


def test_render_takes_what_the_spec_says_of_the_image(project: Path) -> None:
    with (project / "envkit.toml").open("a") as spec:
        spec.write('\n[image]\ncopy = ["train.py"]\nuser = "app"\ncmd = ["python", "train.py"]\n')
    made = yaml.safe_load(envkit("render", str(project), "--as", "compose", "-o", "-").stdout)["services"]["envkit"]
    assert made["command"] == ["python", "train.py"] and made["user"] == "${ENVKIT_UID:-1000}:${ENVKIT_GID:-1000}"
    job = documents(envkit("render", str(project), "--as", "kubernetes-job", "-o", "-").stdout)[-1]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["python", "train.py"]
    other = documents(envkit("render", str(project), "--as", "kubernetes-job", "-o", "-", "--", "true").stdout)[-1]
    assert other["spec"]["template"]["spec"]["containers"][0]["args"] == ["true"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--as", "dockerfile", "--", "python"), "the command after -- says nothing to --as dockerfile"),
        (("--env", "A=1"), "--env says nothing to --as dockerfile"),
        (("--as", "sbatch", "--user", "1:1", "--", "a"), "--user says nothing to --as sbatch"),
        (("--as", "compose", "--nodes", "2"), "--nodes says nothing to --as compose"),
        (("--as", "compose", "--gpus", "many"), "`many` is no number of GPUs"),
        (("--as", "sbatch", "--gpus", "all", "--", "a"), "Slurm gives GPUs by their number"),
        (("--as", "jobset"), "Kubernetes runs a command, and none is given"),
        (("--as", "compose", "--image", "A B"), "`A B` is not a valid image name"),
        (("--as", "compose", "--shm-size", "x"), "is no size"),
        (("--as", "compose", "train.py"), "must follow --"),
    ],
)
def test_render_refuses_in_one_sentence_and_writes_nothing(words: tuple[str, ...], says: str, project: Path) -> None:
    before = sorted(path.name for path in project.iterdir())
    done = envkit("render", str(project), *words)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
    assert sorted(path.name for path in project.iterdir()) == before
    assert shlex.split(done.stderr.splitlines()[0].replace("'", ""))  # one sentence
