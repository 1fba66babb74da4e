from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from tests.process.bridge_worlds import run_collectives

if TYPE_CHECKING:
    from pytest_tpu.model.place import Place

pytestmark = pytest.mark.process

LOOPBACK = "127.0.0.1"


def reduce_and_look(_place: Place) -> list[tuple[str, str, str]]:
    """Sum over all ordinals, then name the state and both addresses of each socket of this process."""
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm

    xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, device=torch_xla.device())).cpu()
    sockets = psutil.Process().net_connections(kind="inet")
    return [(socket.status, socket.laddr.ip, getattr(socket.raddr, "ip", "")) for socket in sockets]


def test_loopback_only() -> None:
    """Ordinals of an emulated host listen and connect on the loopback interface alone, where no firewall asks."""
    for sockets in run_collectives(3, reduce_and_look):
        listens = [ours for status, ours, _ in sockets if status == psutil.CONN_LISTEN]
        connected = [(ours, theirs) for status, ours, theirs in sockets if status == psutil.CONN_ESTABLISHED]

        assert {LOOPBACK} == set(listens)
        assert {(LOOPBACK, LOOPBACK)} == set(connected)
        assert len(sockets) == len(listens) + len(connected)
