"""Train the classifier of our own package: ``python train.py``."""

from __future__ import annotations

import torch
from rings import Classifier, points
from torch.nn.functional import cross_entropy


def main(steps: int = 300) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Classifier().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    given, rings = (each.to(device) for each in points(2000, seed=1))
    for step in range(1, steps + 1):
        loss = cross_entropy(model(given), rings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    unseen, truth = (each.to(device) for each in points(1000, seed=2))
    right = (model(unseen).argmax(1) == truth).float().mean().item()
    print(f"{100 * right:.1f} % of 1000 unseen points are on the ring that the model says, on {device}")


if __name__ == "__main__":
    main()
