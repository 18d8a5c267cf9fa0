"""What checks of a Dockerfile and of a list of packages say of a torch beside a NumPy that it was not built for."""

from __future__ import annotations

from collections.abc import Iterable

from envkit.dockerfile import options
from envkit.facts import TorchAbiRow
from envkit.judging.checks._torch_fit import cited
from envkit.subjects.dockerfile import Install
from envkit.versions import Python

FAMILY = options.names("torch torchvision torchaudio")
# What people install before, of which nothing brings torch.
TOOLS = options.names(
    "pip setuptools wheel uv packaging ninja numpy cmake cython build poetry virtualenv psutil pybind11"
)
# Whose newest releases, and the last ones for each Python from 3.9 on, require NumPy and take its second release: read
# in their METADATA.
BRINGS = options.names(
    "accelerate datasets h5py matplotlib opencv-python opencv-python-headless pandas scikit-image "
    "scikit-learn scipy seaborn sentence-transformers torchvision transformers"
)
# What neither requires NumPy nor bounds it.
WITHOUT = options.names(
    "addict aiohttp boto3 click einops fastapi faster-whisper fire flask ftfy gdown gunicorn httpx huggingface-hub "
    "hydra-core ipykernel jinja2 jupyter jupyterlab loguru nltk omegaconf pillow protobuf psutil pyarrow pydantic "
    "pytest python-dotenv python-multipart pyyaml redis regex requests rich sentencepiece tabulate tensorboardx "
    "termcolor tqdm typing-extensions uvicorn wandb websockets yacs"
)
SINCE = Python("3.9")  # for which NumPy has a second release


def misfit(what: str, row: TorchAbiRow, torch: str) -> str:
    """The sentence of a finding; ``what`` goes on behind the package's name."""
    return f"{row.package}{what} newer than what torch {torch} was built for, so that neither takes the other's arrays"


def takes(row: TorchAbiRow) -> dict[str, str]:
    """The evidence: from which torch on it goes."""
    return {f"torch takes {row.package} {row.since} from {row.torch} on": cited(row)}


def older(row: TorchAbiRow) -> str:
    """The fix."""
    return f"pin `{row.package}<{row.since.partition('.')[0]}`, or take a newer torch"


def unbounded(one: Install, mine: Iterable[Install], row: TorchAbiRow) -> bool:
    """Whether nothing among the installs of an environment keeps the installer from the newest release: neither the
    package's own specifier, nor the pin of another one, which may bound it."""
    bound = "<" in one.specifier or "~" in one.specifier or "=" in one.specifier.replace(">=", "")
    others = [each for each in mine if each.name not in FAMILY | TOOLS and each.name != row.package]
    return not bound and all(not each.specifier and not each.constraint for each in others)
