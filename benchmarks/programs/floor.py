"""The floor: what an empty test on N ordinals costs with nothing around it, by a bare loop of `os.fork`.

Usage: floor.py REPEAT CORES. Prints the seconds of each repetition as JSON; the first one warms up.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
import torch_xla

LIMIT_S = 60.0


def ordinal(rank: int, size: int, store: Path) -> None:
    """What every launcher has to do: a device, a group, one all-reduce of a tensor on the device."""
    torch.set_num_threads(1)
    device = torch_xla.device()
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(store), size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=LIMIT_S),
    )
    on_host = torch.ones(1, device=device).cpu()
    dist.all_reduce(on_host)

    assert size == on_host.to(device).cpu().item()


def child(rank: int, size: int, store: Path, quiet: int) -> NoReturn:
    """Run one ordinal and leave at once; gloo's lines about its connections go nowhere."""
    code = 1
    try:
        os.dup2(quiet, 1)
        ordinal(rank, size, store)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def reap(pids: list[int], deadline: float) -> None:
    """Wait for all of them; whoever is left at the deadline is killed."""
    left, codes = set(pids), []
    try:
        while left and time.monotonic() < deadline:
            for pid in list(left):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    left.discard(pid)
                    codes.append(os.waitstatus_to_exitcode(status))
            time.sleep(0.0005)
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    assert [0] * len(pids) == codes, f"exit codes {codes}"


def launch(size: int, folder: Path, quiet: int) -> float:
    """Fork all ordinals and wait for them; returns the seconds it took."""
    began = time.perf_counter()
    store = folder / f"store-{time.monotonic_ns()}"
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            child(rank, size, store, quiet)
        pids.append(pid)
    reap(pids, time.monotonic() + LIMIT_S)
    return time.perf_counter() - began


def main(repeat: int, size: int) -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as quiet:
        seconds = [launch(size, Path(folder), quiet.fileno()) for _ in range(repeat + 1)]
    print(json.dumps(seconds[1:]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
