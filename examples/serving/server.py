"""Serve a model over HTTP, requests that come at the same time as one batch: ``python server.py --port 8000``.

POST /predict takes {"inputs": [64 numbers]} and answers {"outputs": [8 numbers], "batch": how many were computed
together}; GET /healthz answers once the model is warm.  SIGTERM answers what has come in, then ends.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch import Tensor, nn

WIDTH = 64
MOST_BYTES = 1 << 16  # of a request; 64 numbers are some 1,300


class Batcher:
    """Computes what waits, up to ``most`` inputs at once; the first of them waits ``wait_s`` for others."""

    def __init__(self, model: nn.Module, device: str, most: int, wait_s: float) -> None:
        self.model, self.device, self.most, self.wait_s = model, device, most, wait_s
        self.waiting: queue.SimpleQueue[tuple[list[float], Future[tuple[list[float], int]]]] = queue.SimpleQueue()

    def ask(self, inputs: list[float]) -> tuple[list[float], int]:
        """The outputs, and how many were computed together."""
        answer: Future[tuple[list[float], int]] = Future()
        self.waiting.put((inputs, answer))
        return answer.result()

    def run(self) -> None:
        """Serves the queue for ever."""
        while True:
            batch = [self.waiting.get()]
            while len(batch) < self.most:
                try:
                    batch.append(self.waiting.get(timeout=self.wait_s))
                except queue.Empty:
                    break
            try:
                rows = self.compute(torch.tensor([inputs for inputs, _ in batch]))
                for (_, answer), row in zip(batch, rows.tolist(), strict=True):
                    answer.set_result((row, len(batch)))
            except Exception as error:  # an error of CUDA is for all who asked
                for _, answer in batch:
                    answer.set_exception(error)

    @torch.inference_mode()
    def compute(self, inputs: Tensor) -> Tensor:
        """Outputs, on the CPU; the batch is filled up to ``most``, so that the GPU sees one shape alone."""
        rows = torch.zeros(self.most, WIDTH)
        rows[: len(inputs)] = inputs
        return self.model(rows.to(self.device))[: len(inputs)].cpu()


class Server(ThreadingHTTPServer):
    """The batcher behind HTTP, a thread for each connection."""

    daemon_threads = False  # server_close waits for answers under way
    request_queue_size = 128  # connections that wait to be taken; the standard library's 5 are refused under load

    def __init__(self, address: tuple[str, int], batcher: Batcher) -> None:
        super().__init__(address, Handler)
        self.batcher = batcher


class Handler(BaseHTTPRequestHandler):
    """The two paths."""

    server: Server
    timeout = 30

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/healthz" else 404, {"ok": self.path == "/healthz"})

    def do_POST(self) -> None:
        if self.path != "/predict":
            return self.answer(404, {"error": f"there is no {self.path}"})
        try:
            inputs = self.inputs()
        except ValueError as error:
            return self.answer(400, {"error": str(error)})
        try:
            outputs, together = self.server.batcher.ask(inputs)
        except RuntimeError as error:
            return self.answer(500, {"error": str(error).splitlines()[0]})
        return self.answer(200, {"outputs": outputs, "batch": together})

    def inputs(self) -> list[float]:
        """The request's numbers; raises ValueError for anything else."""
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 < size <= MOST_BYTES:
            raise ValueError(f"a body of 1 to {MOST_BYTES} bytes is wanted, not {size}")
        given = json.loads(self.rfile.read(size))
        found = given.get("inputs") if isinstance(given, dict) else None
        if (
            not isinstance(found, list)
            or len(found) != WIDTH
            or not all(isinstance(each, (int, float)) for each in found)
        ):
            raise ValueError(f"inputs must be a list of {WIDTH} numbers")
        return [float(each) for each in found]

    def answer(self, code: int, document: dict[str, object]) -> None:
        """Sends ``document``."""
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: who wants a log has a proxy in front."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="0.0.0.0", help="a container's port is published by its engine")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--wait-ms", type=float, default=2.0)
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, 8), nn.Softmax(-1)).eval().to(device)
    batcher = Batcher(model, device, options.batch, options.wait_ms / 1000)
    batcher.compute(torch.zeros(1, WIDTH))  # libraries are loaded and kernels chosen before the first request
    threading.Thread(target=batcher.run, daemon=True).start()
    server = Server((options.host, options.port), batcher)
    # shutdown waits for serve_forever, which runs in this very thread
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"serving on port {server.server_port}, on {device}", flush=True)
    server.serve_forever()
    server.server_close()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
