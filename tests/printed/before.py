"""What a job prints before its training begins: data that are prepared, a model that is looked at, warnings."""

from __future__ import annotations

import logging
import sys
import time
import warnings

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout)
log = logging.getLogger("prepare")


def shards(count: int) -> int:
    """Counts words in made-up shards, with a progress bar that overwrites its line; how many words there were."""
    found = 0
    for index in range(count):
        text = " ".join(f"error{number % 7} token{number}" for number in range(2000))
        found += len(text.split())
        done = 30 * (index + 1) // count
        sys.stderr.write(f"\rTokenizing: {100 * (index + 1) // count:3d}%|{'#' * done:30}| {index + 1}/{count}")
        sys.stderr.flush()
    sys.stderr.write("\n")
    return found


def main() -> None:
    """Prints and works for about a second."""
    log.info("config: {'lr': 0.0003, 'epochs': 3, 'on_error': 'skip', 'fail_fast': False, 'seed': 17}")
    begun = time.monotonic()
    words = shards(40)
    log.info("tokenized %d words in %.2f s, 0 errors, 3 failed lookups retried", words, time.monotonic() - begun)
    warnings.warn("tokenizer: no padding token, using the end of text in its place", UserWarning, stacklevel=1)
    log.warning("no checkpoint found in ./checkpoints, starting from scratch")
    try:
        import torch
    except ImportError:
        log.info("no torch here; the sizes of the model are not checked")
        return
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    log.info("torch %s, built for CUDA %s", torch.__version__, torch.version.cuda)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    scheduler.step()  # before the optimizer's first step, which torch warns of
    for step in range(10):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        optimizer.step()
        log.info("dry run step %d loss %.4f error_rate=%.3f grad_norm nan_count=0", step, loss.item(), 1 / (step + 2))
    log.info("dry run on the CPU passed, no failures")


main()
