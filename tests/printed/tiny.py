"""A small language model that libraries train on a processor, for programs that are made to fail in it.

import tiny
tiny.train(40, workers=2)
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
import transformers

logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(levelname)s - %(name)s - %(message)s")
VOCABULARY = 96


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Made-up sentences; ``each`` is called with the number of a row before it is made."""

    def __init__(self, count: int = 512, each: Any = None) -> None:
        self._count, self._each = count, each

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        if self._each:
            self._each(place)
        row = torch.arange(place, place + 24) % VOCABULARY
        return {"input_ids": row, "labels": row}


def model() -> Any:
    """A GPT-2 of two layers."""
    torch.manual_seed(7)
    sizes = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))


def train(steps: int = 40, workers: int = 0, each: Any = None, callbacks: Any = (), **more: Any) -> Any:
    """The library's own trainer with its bars and logs."""
    log = logging.getLogger("sft")
    log.info("Model config %s", transformers.GPT2Config(vocab_size=VOCABULARY))
    log.warning("Process rank: %s, device: cpu, distributed training: True", os.environ.get("LOCAL_RANK", "-1"))
    given = transformers.TrainingArguments(
        output_dir="out", max_steps=steps, per_device_train_batch_size=4, logging_steps=2, report_to=[], use_cpu=True,
        save_strategy=more.pop("save_strategy", "no"), dataloader_num_workers=workers, **more,
    )  # fmt: skip
    made = transformers.Trainer(model=model(), args=given, train_dataset=Rows(each=each), callbacks=list(callbacks))
    log.info("*** Train ***  Num parameters = %d", sum(p.numel() for p in made.model.parameters()))
    return made.train()
