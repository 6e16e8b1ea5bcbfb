"""CUDA graphs: the parts of a round are captured once per shape and replayed.

The first round of a shape runs eagerly on the graph's static inputs, which warms the kernels up.
The second is captured; later rounds copy their inputs and replay. RoundPipeline.warm_up does this
for the usual shapes before the first request.

Everything that differs between two rounds of one shape must be an input, or lie in a tensor that
keeps its address. Random numbers need no generator, see sampler.py.

On a CPU, EagerReplay stands in for a graph, so padding and copying are tested without a GPU."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from specscope.engine.decode.timing import CAPTURE, LAUNCH, EventTimer, InGraph, Parts, Timer
from specscope.engine.errors import EngineError
from specscope.engine.model.device import is_gpu
from specscope.engine.model.layout import Buckets

MOST_SHAPES = 512
"""Beyond them rounds run as they are: each graph holds memory for its results and its nodes."""
STREAM_CAPTURE = range(900, 909)
"""cudaErrorStreamCaptureUnsupported .. cudaErrorStreamCaptureWrongThread of the CUDA runtime."""

Work = Callable[[Sequence[Tensor], Parts], tuple[Tensor, ...]]
"""(static inputs, where to mark parts) -> outputs."""


class CaptureFailed(EngineError):
    """The work cannot be a CUDA graph here; as it is it runs."""


def forbids_capture(error: RuntimeError) -> bool:
    """Whether `error` says that something may not be captured.

    Memory that is short, or a kernel that failed, is another matter, and nothing to pass over.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return False
    code = getattr(error, "error_code", None)  # torch.AcceleratorError has CUDA's
    return "captur" in str(error) if code is None else code in STREAM_CAPTURE


class Replay(Protocol):
    """Captured work: its outputs keep their place, and each replay writes them anew."""

    def ready(self) -> bool:
        """Whether what the last replay marked has been read."""

    def replay(self, timer: Timer) -> tuple[Tensor, ...]:
        """Enqueue it."""


class CudaReplay:
    """Work in a CUDA graph. Has never run on a GPU."""

    def __init__(
        self,
        work: Callable[[Parts], tuple[Tensor, ...]],
        pool: Any = None,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """Capture `work` into memory of `pool`, which graphs share that never run at once.

        stream: to capture on, one for all that share a pool; torch's own is on whichever GPU was
        captured on first.

        Raises CaptureFailed where something in it cannot be captured; what else goes wrong in it
        (memory, a failed kernel) is raised as it is.
        """
        timer, current = EventTimer(external=True), torch.cuda.current_stream()
        self.graph = torch.cuda.CUDAGraph()
        cause: RuntimeError | None = None
        try:
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(self.graph, pool, stream, capture_error_mode="thread_local"):
                try:
                    self.outputs = work(timer)
                except RuntimeError as error:
                    cause = error  # ending the capture may then say no more than that it is spoilt
                    raise
        except RuntimeError as error:
            cause = cause or error
            if forbids_capture(cause):
                raise CaptureFailed(str(cause).partition("\n")[0]) from error
            raise cause from None
        finally:
            # A capture that cannot be ended leaves its stream the current one.
            torch.cuda.set_stream(current)
        self.inside = InGraph(timer.marks)

    def ready(self) -> bool:
        """See Replay: the graph's events are recorded again by its next replay."""
        return not self.inside.unread

    def replay(self, timer: Timer) -> tuple[Tensor, ...]:
        """See Replay."""
        with timer.part(LAUNCH):
            self.graph.replay()
            timer.replayed(self.inside)
        return self.outputs


class EagerReplay:
    """The same without a graph: computes anew, and writes where the first results lay."""

    def __init__(self, work: Callable[[Parts], tuple[Tensor, ...]]) -> None:
        self.work = work
        self.outputs: tuple[Tensor, ...] | None = None

    def ready(self) -> bool:
        """See Replay."""
        return True

    def replay(self, timer: Timer) -> tuple[Tensor, ...]:
        """See Replay."""
        with timer.part(LAUNCH):
            fresh = self.work(timer)
            if self.outputs is None:
                self.outputs = fresh
            for place, value in zip(self.outputs, fresh, strict=True):
                place.copy_(value)
        return self.outputs


Capture = Callable[[Callable[[Parts], tuple[Tensor, ...]]], Replay]


@dataclass(slots=True)
class Replayed:
    """One shape: its static inputs, and its graph in as many copies as are unread at once."""

    work: Work
    inputs: tuple[Tensor, ...]
    copies: list[Replay] = field(default_factory=list)

    def fill(self, given: Sequence[Tensor]) -> None:
        """Copy the round's inputs in; they may be smaller, what lies behind them is stale."""
        for static, tensor in zip(self.inputs, given, strict=True):
            if tensor.numel():
                corner = tuple(slice(size) for size in tensor.shape)
                static[corner].copy_(tensor, non_blocking=True)

    def free(self, capture: Capture, timer: Timer) -> Replay:
        """A copy whose last replay has been read, captured now if there is none."""
        copy = next((copy for copy in self.copies if copy.ready()), None)
        if copy is None:
            with timer.part(CAPTURE):
                copy = capture(lambda parts: self.work(self.inputs, parts))
            self.copies.append(copy)
        return copy


class Graphs:
    """Everything captured so far, by shape."""

    def __init__(self, buckets: Buckets, capture: Capture, timer: Timer) -> None:
        self.buckets, self.capture, self.timer = buckets, capture, timer
        self.shapes: dict[Hashable, Replayed] = {}
        self.broken = False

    def run(
        self, key: Hashable, work: Work, inputs: Sequence[tuple[Tensor, tuple[int, ...]]]
    ) -> tuple[Tensor, ...]:
        """The outputs of `work` on `inputs`, each given with the size that it is filled up to.

        key: all that work depends on besides its inputs' values and tensors that keep their
        place. Outputs share memory with what other graphs compute on the way: they must be used
        up, in the stream, before the next is replayed.

        What cannot be captured is said once and runs as it is from then on; other errors of the
        device are raised.
        """
        sizes = tuple(size for _, size in inputs)
        given = [tensor for tensor, _ in inputs]
        known = self.shapes.get((key, sizes))
        if known is None:
            statics = tuple(tensor.new_zeros(size) for tensor, size in inputs)
            known = Replayed(work, statics)
            if len(self.shapes) < MOST_SHAPES and not self.broken:
                self.shapes[key, sizes] = known
            known.fill(given)
            return work(known.inputs, self.timer)
        known.fill(given)
        if not self.broken:
            try:
                return known.free(self.capture, self.timer).replay(self.timer)
            except CaptureFailed as error:
                self.broken = True
                self.shapes.clear()
                warnings.warn(f"CUDA graphs are off: {error}", stacklevel=2)
        return work(known.inputs, self.timer)


def graphs_for(
    device: str, buckets: Buckets, timer: Timer, wanted: bool | None = None
) -> Graphs | None:
    """CUDA graphs on a GPU unless unwanted; their stand-in elsewhere only where wanted."""
    on_gpu = is_gpu(device)
    if not (on_gpu if wanted is None else wanted):
        return None
    if not on_gpu:
        return Graphs(buckets, EagerReplay, timer)
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return Graphs(buckets, partial(CudaReplay, pool=pool, stream=stream), timer)
