"""A pytest plugin for PyTorch/XLA code on TPU."""

from pytest_tpu.markers import isolated, multi_process
from pytest_tpu.model.host import Host
from pytest_tpu.model.verdict import LaunchError, Verdict, VerdictKind
from pytest_tpu.model.world import World

__all__ = ["Host", "LaunchError", "Verdict", "VerdictKind", "World", "isolated", "multi_process"]
