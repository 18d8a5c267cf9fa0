"""Faults of a start that files show before anything is built: `envkit check --start FILE`.

The faults of a start that only a container shows are in tests/data/starts.toml, for a real engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from fault import Case, Fault
from stacks import Bench

from envkit.judging.judge import checks
from envkit.subjects.start import JobStart

TITLES = {
    "S01": "words behind an entry point that never reach it",
    "S02": "words that an entry point changes on their way",
    "S03": "words for a shell where none is started",
    "S04": "a JSON list that is none",
    "S05": "a script that the kernel does not run",
    "S06": "a file that is not where the start looks for it",
    "S07": "an entry point that another start takes away, with what it sets up",
    "S08": "an entry point without anything to run",
    "S09": "a Python that has none of the packages",
    "S10": "an activation that the shell cannot do",
    "S11": "variables that only a login shell reads",
    "S12": "a job whose output is held back",
    "S13": "a user whom the image does not know",
    "S14": "a job whose end the container does not have",
}
NIGHTLY = ("script", "one-word", "comma", "alpine", "no-interpreter", "ignored")  # two of each check run every day
SLIM = "FROM python:3.11-slim\nWORKDIR /app\nCOPY . .\n"
UBUNTU = "FROM ubuntu:22.04\nRUN apt-get update && apt-get install -y python3 python3-venv\nWORKDIR /app\nCOPY . .\n"
CONDA = "FROM continuumio/miniconda3\nWORKDIR /app\nCOPY . .\n"
VENV = "RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install torch==2.6.0\n"
PASSES = '#!/bin/sh\nset -e\nexec "$@"\n'
ACTIVATES = '#!/bin/bash\nset -e\nsource /opt/venv/bin/activate\nexec "$@"\n'
JOB = 'CMD ["python", "train.py"]\n'
ENTRY = 'ENTRYPOINT ["/app/entry.sh"]\n'


def _project(bench: Bench, start: str, files: Mapping[str, str], trace: str, modes: Mapping[str, int]) -> Case:
    """A check of the start that the file ``start`` describes, among ``files``, by all checks of starts; ``modes`` are
    those of files that have another one than is usual."""
    for name, text in {"train.py": "print(1)\n", **files}.items():
        bench.write(name, text, modes.get(name, 0o755 if name.endswith(".sh") else 0o644))
    beside = (str(bench.folder / "Dockerfile"),) if start == "pod.yaml" else ()
    only = tuple(word for name in sorted(checks(JobStart)) for word in ("--only", name))
    return Case(("check", *beside, "--start", str(bench.folder / start), *only), {}, tuple(trace.split()))


Files = Mapping[str, str]


def _fault(
    probe: str, check: str, variant: str, words: str, planted: Files, twin_words: str, twin: Files, trace: str, *,
    start: str = "Dockerfile", severity: str = "error", skips: bool = False, modes: Mapping[str, int] | None = None,
) -> Fault:  # fmt: skip
    """A fault whose finding names the words of ``trace``; ``modes`` are those of the planted files."""
    made: Callable[..., Callable[[Bench], Case]] = partial
    return Fault(
        probe, check, words, made(_project, start=start, files=planted, trace=trace, modes=modes or {}),
        twin_words, made(_project, start=start, files=twin, trace="", modes={}),
        severity=severity, twin_skips=skips, nightly=variant in NIGHTLY, variant=variant,
    )  # fmt: skip


def _service(*lines: str) -> str:
    return "services:\n  train:\n    build: .\n" + "".join(f"    {line}\n" for line in lines)


def _pod(*lines: str) -> str:
    spec = "".join(f"    {line}\n" for line in lines)
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: train}\nspec:\n  containers:\n"
    return f"{head}  - name: train\n    image: a/b:1\n{spec}"


FAULTS = (
    _fault(
        "S01", "start-command-dropped", "shell-form", "an ENTRYPOINT in the shell form meets the args of a pod",
        {"Dockerfile": SLIM + "ENTRYPOINT python train.py\n", "pod.yaml": _pod("args: [--epochs, '3']")},
        "it is a JSON list",
        {"Dockerfile": SLIM + 'ENTRYPOINT ["python", "train.py"]\n', "pod.yaml": _pod("args: [--epochs, '3']")},
        "--epochs", start="pod.yaml",
    ),
    _fault(
        "S01", "start-command-dropped", "script", "an entry point's script starts its own job",
        {"Dockerfile": SLIM + ENTRY + JOB, "entry.sh": "#!/bin/sh\nset -e\npython serve.py\n", "serve.py": ""},
        "it starts its own job where it is given none",
        {"Dockerfile": SLIM + ENTRY + JOB, "serve.py": "",
         "entry.sh": '#!/bin/sh\nif [ $# -eq 0 ]; then set -- python serve.py; fi\nexec "$@"\n'},
        "/app/entry.sh",
    ),
    _fault(
        "S01", "start-command-dropped", "bash-c", "bash -c with its program as separate words",
        {"Dockerfile": SLIM + 'CMD ["/bin/bash", "-c", "python", "train.py"]\n'}, "the words are one text",
        {"Dockerfile": SLIM + 'CMD ["/bin/bash", "-c", "python train.py"]\n'}, "train.py",
    ),
    _fault(
        "S02", "start-arguments-split", "unquoted", "an entry point runs $@ without quotes, for a name with a blank",
        {"Dockerfile": SLIM + ENTRY, "entry.sh": "#!/bin/sh\nexec $@\n",
         "compose.yaml": _service("command: [python, train.py, --name, my run]")},
        "it has the quotes",
        {"Dockerfile": SLIM + ENTRY, "entry.sh": PASSES,
         "compose.yaml": _service("command: [python, train.py, --name, my run]")},
        "my run", start="compose.yaml",
    ),
    _fault(
        "S02", "start-arguments-split", "joined", "an entry point runs all words as one",
        {"Dockerfile": SLIM + ENTRY + JOB, "entry.sh": '#!/bin/sh\nexec "$*"\n'}, "it runs each",
        {"Dockerfile": SLIM + ENTRY + JOB, "entry.sh": PASSES}, "/app/entry.sh",
    ),
    _fault(
        "S03", "start-needs-a-shell", "operator", "two commands of a compose file, which starts no shell",
        {"Dockerfile": SLIM, "compose.yaml": _service("command: python train.py && python train.py")},
        "a shell runs them",
        {"Dockerfile": SLIM, "compose.yaml": _service("command: sh -c 'python train.py && python train.py'")},
        "&&", start="compose.yaml",
    ),
    _fault(
        "S03", "start-needs-a-shell", "variable", "a variable of shells in the command of a pod",
        {"Dockerfile": SLIM, "pod.yaml": _pod("command: [python, train.py, --out, $OUT]")}, "one of Kubernetes",
        {"Dockerfile": SLIM, "pod.yaml": _pod("command: [python, train.py, --out, $(OUT)]")}, "$OUT", start="pod.yaml",
    ),
    _fault(
        "S03", "start-needs-a-shell", "one-word", "a whole command line as one word of the exec form",
        {"Dockerfile": SLIM + 'CMD ["python train.py"]\n'}, "a word each", {"Dockerfile": SLIM + JOB}, "python",
    ),
    _fault(
        "S04", "start-exec-form-broken", "quotes", "an exec form with single quotes",
        {"Dockerfile": SLIM + "CMD ['python', 'train.py']\n"}, "with double quotes", {"Dockerfile": SLIM + JOB}, "CMD",
    ),
    _fault(
        "S04", "start-exec-form-broken", "comma", "an exec form with a comma behind its last word",
        {"Dockerfile": SLIM + 'ENTRYPOINT ["python", "train.py",]\n'}, "without it",
        {"Dockerfile": SLIM + 'ENTRYPOINT ["python", "train.py"]\n'}, "ENTRYPOINT",
    ),
    _fault(
        "S05", "start-script-not-executable", "mode", "a script without the mode to execute it",
        {"Dockerfile": SLIM + ENTRY + JOB, "entry.sh": PASSES}, "with it",
        {"Dockerfile": SLIM + ENTRY + JOB, "entry.sh": PASSES}, "executed", modes={"entry.sh": 0o644},
    ),
    _fault(
        "S05", "start-script-not-executable", "windows", "a script with line ends of Windows",
        {"Dockerfile": SLIM + ENTRY + JOB, "entry.sh": PASSES.replace("\n", "\r\n")}, "the build corrects them",
        {"Dockerfile": SLIM + "RUN sed -i 's/\\r$//' /app/entry.sh\n" + ENTRY + JOB,
         "entry.sh": PASSES.replace("\n", "\r\n")},
        "carriage", skips=True,
    ),
    _fault(
        "S05", "start-script-not-executable", "no-interpreter", "a script whose #! stands in its second line",
        {"Dockerfile": SLIM + ENTRY + JOB, "entry.sh": "\n" + PASSES}, "sh is named before it",
        {"Dockerfile": SLIM + 'ENTRYPOINT ["sh", "/app/entry.sh"]\n' + JOB, "entry.sh": "\n" + PASSES}, "/app/entry.sh",
    ),
    _fault(
        "S05", "start-script-not-executable", "alpine", "a script for bash on Alpine",
        {"Dockerfile": SLIM.replace("slim", "alpine") + ENTRY + JOB, "entry.sh": PASSES.replace("sh", "bash", 1)},
        "on Debian",
        {"Dockerfile": SLIM + ENTRY + JOB, "entry.sh": PASSES.replace("sh", "bash", 1)}, "/bin/bash",
    ),
    _fault(
        "S06", "start-file-missing", "workdir", "a service's working folder is not the one that COPY fills",
        {"Dockerfile": "FROM python:3.11-slim\nWORKDIR /srv\nCOPY . /srv/project/\n" + JOB}, "it is",
        {"Dockerfile": "FROM python:3.11-slim\nWORKDIR /srv/project\nCOPY . /srv/project/\n" + JOB}, "/srv/train.py",
    ),
    _fault(
        "S06", "start-file-missing", "ignored", "the .dockerignore keeps the job's file out",
        {"Dockerfile": SLIM + JOB, ".dockerignore": "*.py\n"}, "it keeps others out",
        {"Dockerfile": SLIM + JOB, ".dockerignore": "*.pt\n"}, "/app/train.py",
    ),
    _fault(
        "S06", "start-file-missing", "mount", "a mounted project hides the environment in its folder",
        {"Dockerfile": SLIM + "RUN python -m venv /app/.venv\n",
         "compose.yaml": _service("command: [/app/.venv/bin/python, train.py]", "volumes: ['.:/app']")},
        "a volume lies over it",
        {"Dockerfile": SLIM + "RUN python -m venv /app/.venv\n",
         "compose.yaml": _service("command: [/app/.venv/bin/python, train.py]", "volumes: ['.:/app', '/app/.venv']")},
        "/app/.venv", start="compose.yaml",
    ),
    _fault(
        "S07", "start-entrypoint-bypassed", "pod", "a pod's command takes the place of an activation",
        {"Dockerfile": SLIM + ENTRY, "entry.sh": ACTIVATES, "pod.yaml": _pod("command: [python, train.py]")},
        "its args do not",
        {"Dockerfile": SLIM + ENTRY, "entry.sh": ACTIVATES, "pod.yaml": _pod("args: [python, train.py]")},
        "activate", start="pod.yaml", severity="warning", skips=True,
    ),
    _fault(
        "S07", "start-entrypoint-bypassed", "compose", "a service's entrypoint takes the place of one that exports",
        {"Dockerfile": SLIM + ENTRY, "entry.sh": '#!/bin/sh\nexport NCCL_DEBUG=INFO\nexec "$@"\n',
         "compose.yaml": _service("entrypoint: [python, train.py]")},
        "of one that sets up nothing",
        {"Dockerfile": SLIM + ENTRY, "entry.sh": PASSES, "compose.yaml": _service("entrypoint: [python, train.py]")},
        "NCCL_DEBUG", start="compose.yaml", severity="warning",
    ),
    _fault(
        "S08", "start-without-command", "compose", "a service's entrypoint takes the image's CMD away",
        {"Dockerfile": SLIM + JOB, "entry.sh": PASSES, "compose.yaml": _service("entrypoint: /app/entry.sh")},
        "the service names the command",
        {"Dockerfile": SLIM + JOB, "entry.sh": PASSES,
         "compose.yaml": _service("entrypoint: /app/entry.sh", "command: [python, train.py]")},
        "/app/entry.sh", start="compose.yaml",
    ),
    _fault(
        "S09", "start-python-without-the-packages", "system", "a service starts the distribution's python3",
        {"Dockerfile": UBUNTU + VENV, "compose.yaml": _service("command: [python3, train.py]")},
        "the environment is first on its PATH",
        {"Dockerfile": UBUNTU + VENV + "ENV PATH=/opt/venv/bin:$PATH\n",
         "compose.yaml": _service("command: [python3, train.py]")},
        "/opt/venv", start="compose.yaml",
    ),
    _fault(
        "S10", "start-activation-fails", "conda", "conda activate in a shell that has not read its hook",
        {"Dockerfile": CONDA + 'CMD ["bash", "-c", "conda activate train && python train.py"]\n'}, "a login shell has",
        {"Dockerfile": CONDA + 'CMD ["bash", "-lc", "conda activate train && python train.py"]\n'}, "conda",
    ),
    _fault(
        "S10", "start-activation-fails", "dash", "source in the shell form on Ubuntu",
        {"Dockerfile": UBUNTU + "CMD source /opt/venv/bin/activate && python train.py\n"}, "a dot in its place",
        {"Dockerfile": UBUNTU + "CMD . /opt/venv/bin/activate && python train.py\n"}, "source",
    ),
    _fault(
        "S11", "start-variables-of-a-login-shell", "bashrc", "PATH is set in .bashrc",
        {"Dockerfile": UBUNTU + "RUN echo 'export PATH=/opt/venv/bin:$PATH' >> ~/.bashrc\n" + JOB}, "by ENV",
        {"Dockerfile": UBUNTU + "ENV PATH=/opt/venv/bin:$PATH\n" + JOB}, "PATH", severity="warning",
    ),
    _fault(
        "S12", "start-output-held-back", "conda-run", "a job under conda run",
        {"Dockerfile": CONDA + 'CMD ["conda", "run", "-n", "train", "python", "train.py"]\n'},
        "with --no-capture-output",
        {"Dockerfile": CONDA + 'CMD ["conda", "run", "--no-capture-output", "-n", "train", "python", "train.py"]\n'},
        "conda", severity="warning",
    ),
    _fault(
        "S13", "start-user-without-home", "compose", "a service's user has no name in the image",
        {"Dockerfile": SLIM + JOB, "compose.yaml": _service("user: '1234:1234'")}, "the build makes it",
        {"Dockerfile": SLIM + "RUN useradd -m -u 1234 app\n" + JOB, "compose.yaml": _service("user: '1234:1234'")},
        "1234", start="compose.yaml", severity="warning",
    ),
    _fault(
        "S14", "start-exit-code-lost", "tee", "the job's log goes through tee",
        {"Dockerfile": SLIM + "CMD python train.py 2>&1 | tee log.txt\n"}, "with pipefail",
        {"Dockerfile": SLIM + 'CMD ["bash", "-c", "set -o pipefail; python train.py 2>&1 | tee log.txt"]\n'},
        "tee", severity="warning",
    ),
)  # fmt: skip
