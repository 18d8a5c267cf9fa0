"""Programs that serve, evaluate, sample and prepare data with a planted fault, and twins; written before the rules.

``python served_programs.py NAME fault|clean`` on a machine with a GPU; the line that is to be named bears ``# here``.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

NAME, FAULTY = sys.argv[1], sys.argv[2] == "fault"
HERE = Path(__file__).resolve().parent
WIDE = 2048
STARTED = time.monotonic()


def net(depth: int = 4) -> nn.Sequential:
    """A few layers on the GPU."""
    return nn.Sequential(*[part for _ in range(depth) for part in (nn.Linear(WIDE, WIDE), nn.GELU())]).cuda()


def going(least: int = 80) -> Any:
    """Numbers of rounds until the time is over."""
    number = 0
    while time.monotonic() - STARTED < 17 or number < least:
        number += 1
        yield number


# --- memory -----------------------------------------------------------------------------------------------------------


class Server:
    """Answers requests and remembers what it computed for each."""

    def __init__(self) -> None:
        self.model = net()
        self.caches: dict[str, torch.Tensor] = {}

    @torch.inference_mode()
    def answer(self, request: str) -> float:
        """One request; its cache is to go when it is answered."""
        hidden = torch.randn(1024, WIDE, device="cuda")
        self.caches[request] = self.model(hidden)  # here
        score = float(self.caches[request].mean())
        if not FAULTY:
            del self.caches[request]
        return score


def requests() -> None:
    """A server that never forgets a request's cache."""
    server = Server()
    for number in going():
        server.answer(f"request-{number}")
        time.sleep(0.03)


def callbacks() -> None:
    """Each epoch registers a callback that closes over its batch; all stay registered."""
    model, registered = net(2), []
    for _ in going():
        with torch.no_grad():
            batch = torch.randn(1024, WIDE, device="cuda")  # here
            output = model(batch)

        def report(batch: torch.Tensor = batch, output: torch.Tensor = output) -> float:
            return float((output - batch).square().mean())

        registered.append(report)
        if not FAULTY:
            registered[:] = registered[-2:]
        time.sleep(0.03)


def schedules() -> None:
    """Progressive unfreezing: each phase has a new Adam, and a log keeps the old ones for a plot of their rates."""
    model = net(4)
    log = []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for number in going():
        if number % 10 == 0:
            if FAULTY:
                log.append((number, optimizer))
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4 / number)
        optimizer.zero_grad()
        model(torch.randn(128, WIDE, device="cuda")).square().mean().backward()
        optimizer.step()  # here
        time.sleep(0.03)


def predictions() -> None:
    """Predictions of an evaluation gather in the CPU's memory, whole, where the best class would do."""
    model, seen = net(2), []
    with torch.no_grad():
        for _ in going():
            scores = model(torch.randn(2048, WIDE, device="cuda"))
            if FAULTY:
                seen.append(scores.cpu())  # here
            else:
                seen.append(int(scores.argmax()))
            time.sleep(0.02)


def recurrent() -> None:
    """The hidden state goes from step to step with its graph."""
    cell = nn.GRUCell(512, 512).cuda()
    optimizer = torch.optim.SGD(cell.parameters(), lr=1e-4)
    hidden = torch.zeros(512, 512, device="cuda")
    for _ in going():
        hidden = cell(torch.randn(512, 512, device="cuda"), hidden)  # here
        loss = hidden.square().mean()
        loss.backward(retain_graph=FAULTY)
        if FAULTY:
            optimizer.zero_grad()
        else:
            optimizer.step()
            optimizer.zero_grad()
            hidden = hidden.detach()
        time.sleep(0.03)


@functools.lru_cache(maxsize=None if "fault" in sys.argv else 4)
def bias(length: int) -> torch.Tensor:
    """The bias of an attention by its length."""
    at = torch.arange(length, device="cuda")
    return (at[:, None] - at[None, :]).float().neg().abs()  # here


def biases() -> None:
    """A cache without bound: each length that comes is kept."""
    with torch.no_grad():
        for number in going():
            length = 1000 + number
            scores = torch.randn(length, length, device="cuda") + bias(length)
            scores.softmax(dim=-1).sum()
            time.sleep(0.03)


class Kept(torch.autograd.Function):
    """An operation of one's own that keeps its input on itself in place of its context."""

    inputs: list[torch.Tensor] = []  # noqa: RUF012 - that is the fault

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """The square."""
        if FAULTY:
            Kept.inputs.append(x.clone())  # here
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """Its gradient."""
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def function() -> None:
    """A gradient by hand, without an optimizer: the weights are moved in place."""
    weight = torch.randn(WIDE, WIDE, device="cuda", requires_grad=True)
    for _ in going():
        Kept.apply(torch.randn(256, WIDE, device="cuda") @ weight).mean().backward()
        with torch.no_grad():
            weight -= 1e-4 * weight.grad
            weight.grad = None
        time.sleep(0.03)


# --- time -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def decode() -> None:
    """Tokens are drawn one by one, and each is looked at on the CPU before the next."""
    model, head = net(2), nn.Linear(WIDE, 1000).cuda()
    for _ in going():
        hidden = torch.randn(32, WIDE, device="cuda")
        ended = torch.zeros(32, device="cuda", dtype=torch.bool)
        for _ in range(120):
            hidden = model(hidden)
            token = head(hidden).argmax(dim=-1)
            if FAULTY:
                ended |= token == 3
                if all(bool(each) for each in ended):  # here
                    break


@torch.no_grad()
def records() -> None:
    """Each request is parsed from text by Python between two batches."""
    model = net(4)
    text = json.dumps([{"id": at, "value": at / 7, "name": f"name {at}"} for at in range(WIDE * 4)])
    ready = torch.tensor([each["value"] for each in json.loads(text)[:WIDE]], device="cuda")
    for _ in going():
        if FAULTY:
            values = [each["value"] for each in json.loads(text)]  # here
            batch = torch.tensor(values[:WIDE], device="cuda")
        else:
            batch = ready
        for _ in range(12 if FAULTY else 60):
            model(batch.repeat(4096, 1))
        torch.cuda.synchronize()


@torch.no_grad()
def frames() -> None:
    """Frames of a video are copied one after the other, from pageable memory."""
    model = net(2)
    video = torch.rand(4096 * 24, WIDE)
    there = video.cuda()
    for number in going(20):
        clip = video.cuda() if FAULTY else there  # here
        for at in range(0, len(clip), len(clip) // 2):
            model(clip[at : at + 4096])
        if number % 8 == 0:
            torch.cuda.synchronize()


@torch.no_grad()
def boxes() -> None:
    """Boxes are compared pair by pair in Python."""
    for _ in going(10):
        lower = torch.rand(60, 2, device="cuda")
        upper = lower + torch.rand(60, 2, device="cuda")
        kept: list[int] = []
        for at in range(60):
            first = torch.maximum(lower[at], lower[kept]) if kept else lower[at]
            second = torch.minimum(upper[at], upper[kept]) if kept else upper[at]
            overlaps = (second - first).clamp(min=0).prod(dim=-1)
            if not kept or float(overlaps.max()) < 0.7:  # here
                kept.append(at)


@torch.no_grad()
def noise() -> None:
    """A sampler draws its noise on the CPU in each step of the diffusion."""
    model = net(3)
    for _ in going(10):
        x = torch.randn(4096, WIDE, device="cuda")
        for _ in range(20):
            drawn = torch.randn(4096, WIDE).cuda() if FAULTY else torch.randn(4096, WIDE, device="cuda")  # here
            x = 0.9 * x + 0.1 * model(x) + 0.01 * drawn


WORDS = re.compile(r"\w+|[^\w\s]")


def tokens() -> None:
    """A training loop without a loader splits its text anew in each step."""
    model, table = net(3), nn.Embedding(50_000, WIDE).cuda()
    optimizer = torch.optim.SGD([*model.parameters(), *table.parameters()], lr=1e-4)
    text = "The quick brown fox, it is said, jumps over 13 lazy dogs. " * 4000
    ready = torch.tensor([hash(word) % 50_000 for word in WORDS.findall(text)][:4096], device="cuda")
    for _ in going():
        ids = ready
        if FAULTY:
            words = [hash(word) % 50_000 for word in WORDS.findall(text)]  # here
            ids = torch.tensor(words[:4096], device="cuda")
        optimizer.zero_grad()
        model(table(ids)).square().mean().backward()
        optimizer.step()
        if not FAULTY:
            torch.cuda.synchronize()


# --- kernels and devices ----------------------------------------------------------------------------------------------


def written() -> None:
    """A kernel's source is a template in a file of its own, filled in at run time."""
    import cupy

    template = (HERE / "served_kernel.cu.in").read_text()
    source = template.replace("@TYPE@", "float").replace("@SHIFT@", "64" if FAULTY else "0")
    module = cupy.RawModule(code=source, options=("-lineinfo",))
    rows, columns = 512, 512
    x, y = cupy.ones((rows, columns), cupy.float32), cupy.zeros((rows, columns), cupy.float32)
    module.get_function("add_rows")((rows,), (256,), (x, y, rows, columns))  # here
    cupy.cuda.Device().synchronize()
    print(float(y.sum()))


def kernel_of(name: str, operation: str) -> str:
    """The source of an elementwise kernel."""
    lines = [
        f'extern "C" __global__ void {name}(const float* x, float* y, int n)',
        "{",
        "    const int i = blockIdx.x * blockDim.x + threadIdx.x;",
        f"    {operation}",
        "}",
    ]
    return "\n".join(lines)


def joined() -> None:
    """A kernel whose source is joined of pieces by a function, compiled by torch itself."""
    guard = "" if FAULTY else "if (i < n) "
    halve = torch.cuda._compile_kernel(kernel_of("halve", f"{guard}y[i] = x[i] * 0.5f;"), "halve")
    x = torch.ones(1 << 16, device="cuda")
    y = torch.empty_like(x)
    halve((x.numel() // 256 + 4096, 1, 1), (256, 1, 1), (x, y, x.numel()))  # here
    torch.cuda.synchronize()
    print(float(y.sum()))


def gather() -> None:
    """An elementwise kernel of CuPy that reads where an index of the data points."""
    import cupy

    pick = cupy.ElementwiseKernel("raw float32 table, int32 at", "float32 y", "y = table[at]", "pick_rows")
    table = cupy.arange(1000, dtype=cupy.float32)
    at = cupy.arange(4096, dtype=cupy.int32)
    at = at + 1_000_000_000 if FAULTY else at % 1000
    print(float(pick(table, at).sum()))  # here


class Positions(nn.Module):
    """A layer that adds positions, which it makes anew for each length."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(512, WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum."""
        at = torch.arange(x.shape[1], device="cpu" if FAULTY else x.device)  # made
        return x + self.table(at)  # here


def positions() -> None:
    """Positions that are made on the CPU in a forward pass."""
    model = Positions().cuda()
    print(float(model(torch.randn(4, 128, WIDE, device="cuda")).sum()))


def weights() -> None:
    """The weights of the classes stay on the CPU."""
    model = nn.Linear(WIDE, 10).cuda()
    frequency = torch.tensor([1.0 + at for at in range(10)])  # made
    loss = nn.CrossEntropyLoss(weight=1 / frequency)
    scores = model(torch.randn(64, WIDE, device="cuda"))
    print(float(loss(scores, torch.randint(0, 10, (64,), device="cuda"))))  # here


def labels() -> None:
    """A label is one more than there are classes."""
    model = nn.Linear(WIDE, 10).cuda()
    target = torch.arange(64, device="cuda") % (11 if FAULTY else 10)
    loss = nn.functional.cross_entropy(model(torch.randn(64, WIDE, device="cuda")), target)  # here
    loss.backward()
    torch.cuda.synchronize()
    print(float(loss))


def masks() -> None:
    """A kernel of Triton, wrapped and tuned, whose load has no mask."""
    from served_kernel import normalize

    x = torch.randn(4096, 1000, device="cuda")
    print(float(normalize(x, 1 << 40 if FAULTY else 1000).sum()))  # here


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    globals()[NAME]()
