"""The same empty test as a script for torchrun, which starts a new interpreter for each rank."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch_xla


def main() -> None:
    """A device, a group, one all-reduce of a tensor on the device."""
    torch.set_num_threads(1)
    device = torch_xla.device()
    dist.init_process_group("gloo")
    on_host = torch.ones(1, device=device).cpu()
    dist.all_reduce(on_host)

    assert dist.get_world_size() == on_host.to(device).cpu().item()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
