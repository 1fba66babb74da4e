"""What torch.compile must know of the bridge: no collective is compiled, and none is traced into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch_xla
from torch_xla._dynamo import dynamo_bridge

_COLLECTIVES: Final = ("_c10d_functional", "_c10d_functional_autograd")


def install(is_ordinal: Callable[[], bool]) -> None:
    """Have the backend ``openxla`` run graphs with collectives instead of compiling them, on ordinals.

    It compiles a graph by running it once, and afterwards runs what XLA recorded. A bridged collective leaves nothing
    in the record but its first result: four steps that multiply a sum would give 6, 6, 6, 6. To cut the graph at each
    collective was tried: it needs more cuts for what writes in place around them, and still runs collectives while it
    traces, which ordinals need not do equally often. Run as it stands, the graph gives the same numbers.
    """
    original = dynamo_bridge.extract_compiled_graph_helper

    def extract(graph: torch.fx.GraphModule, args: Any) -> Callable[..., Any]:
        if is_ordinal() and _has_collective(graph):
            return _uncompiled(graph)
        compiled: Callable[..., Any] = original(graph, args)
        return compiled

    dynamo_bridge.extract_compiled_graph_helper = extract


def opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep torch.compile out of a function that it took for native code before it was replaced."""
    disabled: Callable[..., Any] = torch.compiler.disable(function)
    return disabled


def _has_collective(graph: torch.fx.GraphModule) -> bool:
    parts = [part for part in graph.modules() if isinstance(part, torch.fx.GraphModule)]
    targets = [node.target for part in parts for node in part.graph.nodes if node.op == "call_function"]
    return any(getattr(target, "namespace", "") in _COLLECTIVES for target in targets)


def _uncompiled(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        results = graph(*args)
        # What was compiled has run when the call returns; nothing may pile up from step to step.
        tensors = [value for value in (*args, *_flat(results)) if isinstance(value, torch.Tensor)]
        torch_xla._XLAC._xla_sync_multi(tensors, [], False, True)  # noqa: SLF001 - torch_xla.sync takes all tensors
        return results

    return run


def _flat(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)
