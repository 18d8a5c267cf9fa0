"""Workflows, Apptainer definitions, batch scripts, Helm values and Makefiles: what their readers make of them, beside
what the pages show."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import written
from clocks import costs_less
from inline import Envkit

from envkit import facts as tables
from envkit.model import Outcome, Result, Severity
from envkit.static import CheckOptions, run
from envkit.static.judged import READERS, of_text
from envkit.static.settings import Settings

FACTS = tables.load()
JOB = """on: push
{above}jobs:
  test:
    runs-on: {runner}
    {strategy}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {{python-version: "3.11"}}
{steps}
"""
MISFIT = "pip install torch==2.5.1 torchvision==0.21.0"
DEFINITION = "Bootstrap: docker\nFrom: {base}\n\n%post\n    {post}\n"
BATCH = "#!/bin/bash\n#SBATCH {asked}\n{lines}\n"


def fired(kind: str, text: str) -> set[str]:
    return written.fired(text, FACTS, kind)


def results(kind: str, text: str, *, strict: bool = False) -> dict[str, Result]:
    found = of_text(kind, text, "f", None, CheckOptions(strict=strict), FACTS)
    return {result.check: result for result in found.results}


def workflow(steps: str, *, runner: str = "ubuntu-24.04", strategy: str = "", above: str = "") -> str:
    return JOB.format(runner=runner, strategy=strategy, steps="      " + steps.replace("\n", "\n      "), above=above)


# ---------------------------------------------------------------- workflows


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        (f"- run: {MISFIT}", True),
        (f"- run: |\n    python -m pip install -U pip\n    {MISFIT}", True),
        (f"- run: >-\n    {MISFIT}", True),
        (f'- run: "{MISFIT}"', True),
        (f"- run: {MISFIT}\n  shell: pwsh", False),
        (f"- run: {MISFIT}\n  if: runner.os == 'Linux'", True),
        (f"- run: {MISFIT}\n  if: runner.os == 'Windows'", False),
        (f"- run: {MISFIT}\n  if: github.event_name == 'push'", False),  # nobody knows
        (f"- run: {MISFIT}\n  if: runner.os == 'Linux' && github.ref == 'main'", False),
        ("- run: pip install torch==${{ env.TORCH }} torchvision==0.21.0", True),
        ("- run: pip install torch==${{ inputs.torch }} torchvision==0.21.0", False),
        ("- run: pip install torch==$TORCH torchvision==0.21.0", True),
    ],
)
def test_the_commands_of_a_job_are_those_of_its_linux(steps: str, *, found: bool) -> None:
    text = workflow(steps, above='env:\n  TORCH: "2.5.1"\n')
    assert ("torchvision-mismatch" in fired("workflow", text)) is found


@pytest.mark.parametrize("runner", ["windows-latest", "macos-14", "[self-hosted, Windows, gpu]"])
def test_a_runner_of_another_system_is_passed_over(runner: str) -> None:
    assert not fired("workflow", workflow(f"- run: {MISFIT}", runner=runner))


MATRIX = "strategy: {{matrix: {0}}}"
AXES = "{os: [ubuntu-22.04, windows-2022], torch: ['2.6.0', '2.5.1']}"


@pytest.mark.parametrize(
    ("matrix", "found"),
    [
        (AXES, True),
        ("{torch: ['2.6.0']}", False),
        ("{torch: ['2.6.0'], include: [{torch: '2.5.1'}]}", True),
        ("{torch: ['2.6.0', '2.5.1'], exclude: [{torch: '2.5.1'}]}", False),
        ("{os: [ubuntu-22.04], torch: ['2.6.0'], include: [{os: windows-2022, torch: '2.5.1'}]}", False),
        ("{torch: ['2.6.0'], include: [{torch: '2.6.0', vision: x}]}", False),
        ("${{ fromJSON(needs.a.outputs.matrix) }}", False),
        ("{torch: '${{ fromJSON(inputs.torch) }}'}", False),
    ],
)
def test_every_combination_of_a_matrix_is_judged(matrix: str, *, found: bool) -> None:
    runner = "${{ matrix.os }}" if "os:" in matrix else "ubuntu-latest"
    steps = "- run: pip install torch==${{ matrix.torch }} torchvision==0.21.0"
    text = workflow(steps, runner=runner, strategy=MATRIX.format(matrix))
    assert ("torchvision-mismatch" in fired("workflow", text)) is found


def test_a_finding_stands_at_the_words_and_once_for_all_combinations() -> None:
    steps = f"- name: a\n  run: |\n    true ${{{{ matrix.x }}}}\n      {MISFIT}"
    text = workflow(steps, strategy=MATRIX.format("{x: [a, b, c]}"))
    (finding,) = results("workflow", text)["torchvision-mismatch"].findings
    assert finding.span is not None and not finding.edits
    line = text.split("\n")[finding.span.line - 1]
    assert line[finding.span.column - 1 :].startswith("torchvision==0.21.0")


def test_what_was_not_read_is_a_doubt_only_beside_a_torch_and_never_ends_undecided() -> None:
    listed = "- run: pip install -r other.txt"
    assert {one.outcome for one in results("workflow", workflow(listed)).values()} <= {Outcome.PASS, Outcome.SKIP}
    image = "nvidia/cuda:12.4.1-devel-ubuntu22.04"
    job = f"on: push\njobs:\n  a:\n    container: {image}\n    steps: [{{run: pip install torch}}]\n"
    torch = results("workflow", job)
    doubts = [one for one in torch.values() if one.outcome is Outcome.UNKNOWN]
    assert doubts and not any(one.at_most is Severity.ERROR for one in doubts)
    strict = results("workflow", workflow(listed), strict=True).values()
    assert any(one.outcome is Outcome.UNKNOWN for one in strict)


def test_a_container_without_python_is_missed_unless_an_action_may_bring_it() -> None:
    job = (
        "on: push\njobs:\n  a:\n    container: nvidia/cuda:12.4.1-devel-ubuntu22.04\n    steps:\n"
        "{}      - run: pip install torch\n"
    )
    assert "python-missing" in fired("workflow", job.format(""))
    assert "python-missing" not in fired("workflow", job.format("      - uses: ./.github/actions/setup\n"))


def test_a_secret_of_a_workflow_is_found_and_an_expression_is_none() -> None:
    token = "hf_" + "aQ9zLm3TtRk7WvXyP2sNdGhJcBfEuKoIw8"
    assert "workload-secret-in-file" in fired("workflow", workflow("- run: a", above=f"env:\n  HF_TOKEN: {token}\n"))
    expression = "env:\n  HF_TOKEN: ${{ secrets.HF_TOKEN }}\n"
    assert "workload-secret-in-file" not in fired("workflow", workflow("- run: a", above=expression))


# ---------------------------------------------------------------- Apptainer


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (DEFINITION.format(base="python:3.11", post=MISFIT), True),
        (DEFINITION.format(base="python:3.11  # ours", post=MISFIT), True),
        (DEFINITION.format(base="python:{{ p }}", post=MISFIT) + "%arguments\n    p=3.11\n", True),
        (DEFINITION.format(base="python:3.11", post="pip install torch=={{ t }} torchvision==0.21.0"), False),
        (
            DEFINITION.format(base="python:3.11", post="pip install torch=={{ t }} torchvision==0.21.0")
            + "%arguments\n    t=2.5.1\n",
            True,
        ),
        (DEFINITION.format(base="python:3.11", post="true") + f"%runscript\n    {MISFIT}\n", False),
        (DEFINITION.format(base="python:3.11", post="true") + f"%test\n    {MISFIT}\n", False),
    ],
)
def test_post_is_what_a_build_runs(text: str, *, found: bool) -> None:
    assert ("torchvision-mismatch" in fired("apptainer", text)) is found


def test_post_is_run_by_sh_unless_it_names_another_shell() -> None:
    text = DEFINITION.format(base="ubuntu:22.04", post="source /opt/a.sh")
    assert "run-needs-bash" in fired("apptainer", text)
    assert "run-needs-bash" not in fired("apptainer", text.replace("%post", "%post -c /bin/bash"))


def test_stages_take_files_of_one_another_and_a_local_image_is_unknown() -> None:
    text = (
        "Bootstrap: docker\nFrom: python:3.11\nStage: made\n%post\n    true\n\n"
        "Bootstrap: docker\nFrom: nvidia/cuda:12.4.7-base-ubuntu22.04\n%files from made\n    /a /b\n"
    )
    assert "base-tag-never-existed" in fired("apptainer", text)
    assert not fired("apptainer", "Bootstrap: localimage\nFrom: ubuntu:latest\n%post\n    true\n")
    assert of_text("apptainer", "no definition\n", "a.def", None, CheckOptions(), FACTS).unreadable


# ---------------------------------------------------------------- batch scripts


@pytest.mark.parametrize(
    ("asked", "lines", "found"),
    [
        ("--gres=gpu:2", "apptainer exec a.sif python a.py", True),
        ("--gres=gpu:2", "apptainer exec --nv a.sif python a.py", False),
        ("--gres=gpu:2", "apptainer exec \\\n  --nv a.sif python a.py", False),
        ("--gres=gpu:2", "export APPTAINER_NV=1\napptainer exec a.sif python a.py", False),
        ("--gres gpu:a100:2", "singularity run a.sif", True),
        ("-G 2", "srun singularity run a.sif", True),
        ("--gres=lustre:1", "singularity run a.sif", False),
        ("--cpus-per-task=2", "singularity run a.sif", False),
        ("--gres=gpu:1", "docker run pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime", True),
        ("--gres=gpu:1", "srun --container-image=nvcr.io#nvidia/pytorch:24.05-py3 python a.py", False),
    ],
)
def test_a_container_of_a_job_with_gpus_asks_for_them(asked: str, lines: str, *, found: bool) -> None:
    assert ("workload-gpu-not-requested" in fired("slurm", BATCH.format(asked=asked, lines=lines))) is found


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("--gres=gpu:4", True),
        ("--gpus-per-node=h100:4", True),
        ("--gpus-per-node=8", False),
        ("--nodes=2 --gpus=8", False),  # how many on each is not said
        ("--gres=gpu:$N", False),
        ("--partition=gpu", False),
    ],
)
def test_the_ranks_of_a_job_are_held_to_its_gpus(asked: str, *, found: bool) -> None:
    text = BATCH.format(asked=asked, lines="apptainer exec --nv a.sif torchrun --nproc_per_node 8 a.py")
    assert ("workload-ranks-exceed-gpus" in fired("slurm", text)) is found


def test_memory_of_the_machine_is_shared_with_apptainer() -> None:
    lines = "apptainer exec --nv docker://nvcr.io/nvidia/pytorch:24.05-py3 torchrun --nproc_per_node 2 a.py"
    assert not fired("slurm", BATCH.format(asked="--gres=gpu:2", lines=lines))


# ---------------------------------------------------------------- Makefiles and charts


@pytest.mark.parametrize(
    ("recipe", "found"),
    [
        ("docker run --rm $(IMAGE) ./a", True),
        ("@docker container run --rm ${IMAGE} ./a", True),
        ("docker run --rm \\\n\t  --gpus all $(IMAGE) ./a", False),
        ("sudo docker run -it --runtime=nvidia $(IMAGE) ./a", False),
        ("nvidia-docker run $(IMAGE) ./a", False),
        ("podman run --device nvidia.com/gpu=all $(IMAGE)", False),
        ("docker run --rm $(OTHER) ./a", False),
        ("docker run $(GPUS) $(IMAGE)", False),
        ("docker pull $(IMAGE)", False),
    ],
)
def test_docker_run_in_a_recipe_asks_for_gpus(recipe: str, *, found: bool) -> None:
    text = f"IMAGE := nvidia/cuda:12.4.1-runtime-ubuntu22.04\n\na:\n\t{recipe}\n"
    assert ("workload-gpu-not-requested" in fired("makefile", text)) is found


def test_an_image_that_the_makefile_builds_is_that_of_its_dockerfile() -> None:
    text = (
        "a:\n\tdocker build -t job -f Dockerfile .\n\tdocker run --rm job\n"
        "--- Dockerfile ---\nFROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN echo\n"
    )
    assert "workload-gpu-not-requested" in fired("makefile", text)
    assert "workload-gpu-not-requested" not in fired("makefile", text.replace("run --rm job", "run --gpus 1 job"))


def test_an_image_that_is_built_here_is_not_pulled_and_one_for_amd_has_no_cuda() -> None:
    build = "a:\n\tdocker build -t job --build-arg A=b .\n\tdocker run --gpus all job\n"
    assert "workload-image-unpinned" not in fired("makefile", build)
    assert "workload-image-unpinned" in fired("makefile", "a:\n\tdocker run --gpus all job\n")
    chart = "image: {repository: a/vllm-rocm, tag: latest}\nresources: {limits: {amd.com/gpu: 1}}\n"
    assert not fired("helm", chart)


def test_containers_that_a_step_starts_are_those_of_the_workflow() -> None:
    step = "- run: docker run --gpus all {} nvidia-smi"
    assert "workload-image-never-existed" in fired(
        "workflow", workflow(step.format("nvidia/cuda:12.4.7-base-ubuntu22.04"))
    )
    assert not fired("workflow", workflow(step.format("nvidia/cuda:12.4.1-base-ubuntu22.04")))


def test_values_of_a_chart_without_a_tag_or_with_a_template_say_nothing() -> None:
    limits = "resources: {limits: {nvidia.com/gpu: 1}}\n"
    assert fired("helm", "image: {repository: vllm/vllm-openai, tag: latest}\n" + limits) == {"workload-image-unpinned"}
    assert not fired("helm", "image: {repository: vllm/vllm-openai, tag: ''}\n" + limits)
    assert not fired("helm", "image: {repository: vllm/vllm-openai, tag: '{{ .x }}'}\n" + limits)
    assert not fired("helm", "sub: {image: {repository: nvidia/cuda, tag: 12.4.1-base-ubuntu22.04}}\n")


# ---------------------------------------------------------------- all of them


def test_a_project_is_searched_for_them(tmp_path: Path) -> None:
    for name, text in {
        ".github/workflows/ci.yml": workflow(f"- run: {MISFIT}"),
        ".github/workflows/docs.yml": "on: push\njobs: {a: {steps: [{run: make}]}}\n",
        "job/train.sbatch": BATCH.format(asked="--gres=gpu:1", lines="apptainer run a.sif"),
        "job/other.sh": "echo\n",
        "image.def": DEFINITION.format(base="python:3.11", post=MISFIT),
        "chart/values.yaml": "image:\n  repository: vllm/vllm-openai\n  tag: latest  # for CUDA 12\n",
        "Makefile": "a:\n\tdocker run --gpus all a\n",
        "lib/Makefile": "a:\n\tcc a.c\n",
        "install.sh": "#!/bin/sh\nexit\n\0",
        "large.sh": "#SBATCH -N 1\n" * 400_000,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = run.gather((str(tmp_path),), Settings())
    judged = run.check(found, CheckOptions(), Settings())
    names = {Path(each.path).relative_to(tmp_path).as_posix(): each.kind for each in judged}
    assert names == {
        ".github/workflows/ci.yml": "workflow", "job/train.sbatch": "slurm", "image.def": "apptainer",
        "chart/values.yaml": "helm", "Makefile": "makefile",
    }  # fmt: skip


def test_a_workflow_reads_the_lists_of_its_repository_and_since_asks_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / ".github" / "workflows" / "ci.yml"
    place.parent.mkdir(parents=True)
    place.write_text(workflow("- run: pip install torch==2.5.1 -r requirements.txt"))
    (tmp_path / "requirements.txt").write_text("torchvision==0.20.1\n")
    (tmp_path / ".dockerignore").write_text("*\n")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "a")):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], check=True)
    with Envkit(capsys, "check", "--quiet") as envkit:
        assert envkit("--since", "main").code == 0
        (tmp_path / "requirements.txt").write_text("torchvision==0.21.0\n")
        changed = envkit("--since", "main")
        assert changed.code == 1 and "ci.yml" in changed.out
        (tmp_path / "requirements.txt").write_text("torchvision==0.20.1\n")
        assert envkit(str(place)).code == 0


HOSTILE = {
    "a matrix of many axes": workflow(
        "- run: pip install a==${{ matrix.a0 }}",
        strategy=MATRIX.format("{" + ", ".join(f"a{n}: [{', '.join(map(str, range(50)))}]" for n in range(30)) + "}"),
    ),
    "an axis of many values": workflow(
        "- run: pip install torch==${{ matrix.a }}", strategy=MATRIX.format("{a: [" + "'2.6.0', " * 20_000 + "]}")
    ),
    "many braces": workflow("- run: pip install torch " + "${{ " * 20_000),
    "many steps": workflow("\n".join(["- run: pip install torch"] * 5_000)),
    "many comparisons": workflow("- run: a\n  if: " + " && ".join(["matrix.a == 'b'"] * 20_000)),
    "aliases": (
        "on: push\nx: &x [a, a]\ny: &y [*x, *x, *x]\njobs:\n  a: {steps: [{run: pip install torch, env: *y}]}\n"
    ),
    "a container that is a list": "on: push\njobs:\n  a:\n    container: [nvidia/cuda]\n    steps: {}\n",
    "steps that are none": "on: push\njobs: [a]\n# torch\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_workflow_is_safe(name: str) -> None:
    with costs_less(6.0):
        found = of_text("workflow", HOSTILE[name], "f", None, CheckOptions(), FACTS)
    assert not any(result.outcome is Outcome.CRASHED for result in found.results)


@pytest.mark.parametrize("kind", ["apptainer", "slurm", "makefile", "helm", "workflow"])
@pytest.mark.parametrize(
    "text", ["", "\x00", "a" * 300_000, "\n" * 100_000, "From: a\n" * 20_000, "%post\n" * 20_000, 
     "#SBATCH -G " * 20_000,
             "Bootstrap: docker\nFrom: {{ a }}\n%post\n" + "{{ a }}" * 20_000, "a:\n" + "\tdocker run a\n" * 5_000]
)  # fmt: skip
def test_any_text_gives_a_result(kind: str, text: str) -> None:
    assert kind in READERS
    with costs_less(6.0):
        found = of_text(kind, text, "f", None, CheckOptions(), FACTS)
    assert not any(result.outcome is Outcome.CRASHED for result in found.results)
