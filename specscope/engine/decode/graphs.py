"""CUDA graphs: the parts of a round are captured once per shape and replayed.

A shape that is not captured runs eagerly, on the graph's static inputs. Graphs are captured only
while no request is there: by RoundPipeline.warm_up before the first request, and by Engine.capture
whenever the engine is idle, for the shapes that ran eagerly. So no request waits for a capture, and
no round's time contains one.

All differences between two rounds of one shape must be inputs, or tensors that keep their address.
Random numbers need no generator, see sampler.py.

On a CPU, EagerReplay stands in for a graph, so padding and copying are tested without a GPU.
"""

import contextlib
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from specscope.engine.decode.timing import LAUNCH, EventTimer, InGraph, Parts, Timer
from specscope.engine.errors import EngineError
from specscope.engine.model.device import is_gpu
from specscope.engine.model.layout import Buckets

MOST_SHAPES = 2048
"""Further shapes always run eagerly: each graph holds memory for its results and its nodes."""
STREAM_CAPTURE = range(900, 909)
"""cudaErrorStreamCaptureUnsupported .. cudaErrorStreamCaptureWrongThread of the CUDA runtime."""

Work = Callable[[Sequence[Tensor], Parts], tuple[Tensor, ...]]
"""(static inputs, where to mark parts) -> outputs."""


class CaptureFailed(EngineError):
    """The work cannot be captured as a CUDA graph here; it runs eagerly."""


def forbids_capture(error: RuntimeError) -> bool:
    """Whether `error` means that the work cannot be captured.

    Other errors, such as lack of memory or a failed kernel, are not ignored.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return False
    code = getattr(error, "error_code", None)  # torch.AcceleratorError has CUDA's
    return "captur" in str(error) if code is None else code in STREAM_CAPTURE


class Replay(Protocol):
    """Captured work: its outputs keep their addresses, and each replay overwrites them."""

    def ready(self) -> bool:
        """Whether the marks of the last replay have been read."""

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

        Raises CaptureFailed if something in it cannot be captured; what else goes wrong in it
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
    """A replay without a graph: compute again, and write to the addresses of the first results."""

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
class GraphEntry:
    """One shape: its static inputs, and as many copies of its graph as may be unread at once."""

    work: Work
    inputs: tuple[Tensor, ...]
    copies: list[Replay] = field(default_factory=list)
    warm: bool = False
    """Whether it ran eagerly before, so that its kernels are loaded."""
    missing: bool = False
    """Whether it ran eagerly for want of a copy since the last capture."""

    def fill(self, given: Sequence[Tensor]) -> None:
        """Copy the round's inputs in; they may be smaller, the rest of a static input is stale."""
        for static, tensor in zip(self.inputs, given, strict=True):
            if tensor.numel():
                corner = tuple(slice(size) for size in tensor.shape)
                static[corner].copy_(tensor, non_blocking=True)

    def ready_copy(self) -> Replay | None:
        """A copy whose last replay has been read, if there is one."""
        return next((copy for copy in self.copies if copy.ready()), None)


class Graphs:
    """Everything captured so far, by shape."""

    def __init__(self, buckets: Buckets, capture: Capture, timer: Timer) -> None:
        self.buckets, self.timer = buckets, timer
        self._capture = capture
        self.shapes: dict[Hashable, GraphEntry] = {}
        self.broken = self._capturing = False
        self.replayed = self.eager = 0

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """A context in which `run` captures warm shapes that lack a copy."""
        self._capturing = True
        try:
            yield
        finally:
            self._capturing = False

    def run(
        self, key: Hashable, work: Work, inputs: Sequence[tuple[Tensor, tuple[int, ...]]]
    ) -> tuple[Tensor, ...]:
        """The outputs of `work` on `inputs`, each given with the size that it is padded to.

        key: all that `work` depends on besides its inputs' values and tensors that keep their
        address. Outputs share memory with other graphs' intermediate results: they must be used
        up, in the stream, before the next replay.
        """
        sizes = tuple(size for _, size in inputs)
        entry = self.shapes.get((key, sizes))
        if entry is None:
            entry = GraphEntry(work, tuple(tensor.new_zeros(size) for tensor, size in inputs))
            if len(self.shapes) < MOST_SHAPES and not self.broken:
                self.shapes[key, sizes] = entry
        entry.fill([tensor for tensor, _ in inputs])
        copy = entry.ready_copy()
        if copy is None and self._capturing and entry.warm:
            copy = self._add_copy(entry)
        if copy is not None:
            self.replayed += 1
            return copy.replay(self.timer)
        self.eager += 1
        entry.warm = entry.missing = True
        return entry.work(entry.inputs, self.timer)

    def capture(self, most: int | None = None) -> int:
        """Capture the shapes that ran eagerly since, at most `most`; how many there were.

        Only while no request is there.
        """
        missing = [entry for entry in self.shapes.values() if entry.missing][:most]
        for entry in missing:
            self._add_copy(entry)
        return len(missing)

    def _add_copy(self, entry: GraphEntry) -> Replay | None:
        """A new copy. What may not be captured turns graphs off with a warning, once.

        Other errors of the device are raised.
        """
        entry.missing = False
        if self.broken:
            return None
        try:
            copy = self._capture(lambda parts: entry.work(entry.inputs, parts))
        except CaptureFailed as error:
            self.broken = True
            self.shapes.clear()
            warnings.warn(f"CUDA graphs are off: {error}", stacklevel=2)
            return None
        entry.copies.append(copy)
        return copy


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
