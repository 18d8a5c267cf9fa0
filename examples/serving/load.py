"""Ask a running server from many threads: ``python load.py http://localhost:8000``."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen


def ask(url: str) -> int:
    """One request; how many were computed together."""
    body = json.dumps({"inputs": [0.5] * 64}).encode()
    with urlopen(Request(f"{url}/predict", body), timeout=30) as answer:
        return int(json.load(answer)["batch"])


def main(url: str, requests: int = 256, threads: int = 16) -> None:
    with urlopen(f"{url}/healthz", timeout=30):
        pass
    started = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        batches = list(pool.map(ask, [url] * requests))
    took = time.monotonic() - started
    print(f"{requests} requests in {took:.2f} s; {sum(batches) / requests:.1f} were computed together on average")


if __name__ == "__main__":
    main(sys.argv[1])
