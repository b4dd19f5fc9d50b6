"""Steps recorded as CUDA graphs."""

import threading
from collections.abc import Callable

import torch
from torch import Tensor

_lock = threading.Lock()


def recorded(step: Callable[[Tensor], object], numbers: Tensor) -> Callable[[Tensor], object]:
    """Record a step, some eighty kernels, so that CUDA launches them together.

    Parameters
    ----------
    step : callable
        Of uniform numbers, one row for each chain. It must write its results into tensors that
        exist already, and run a few times without effect if ``numbers`` are given.
    numbers : Tensor
        Numbers that leave everything as it is.

    Returns
    -------
    callable
        The same step.
    """
    given = numbers.clone()
    with _lock, torch.cuda.device(given.device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries set themselves up
                step(given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            step(given)

    def replay(part: Tensor) -> None:
        given.copy_(part)
        graph.replay()

    return replay
