"""vLLM's adaptive verification: how much of each draft the target checks.

The scheduler plans the whole draft of each sequence. The V2 runner's worker then gives the batch a
budget and admits the drafts that are likeliest to be kept; how many of each, only the device knows.
The counts are copied behind the step's own work, and read when its tokens are here: nothing waits.
Never run on a GPU: exercised with a stand-in for the manager, and held against its source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specscope_hook.plugin import read_arguments

METHODS: dict[str, tuple[str, ...]] = {"reallocate_drafts": ("req_ids",)}
"""Of vLLM's AdaptiveVerificationManager, with the parameters that are read."""


class AdmittedDrafts:
    """Counts of the steps that one worker has begun, until their tokens are here."""

    def __init__(self, manager: Any, event: Callable[[], Any]) -> None:
        """Wrap a manager's method.

        event: makes what is recorded on the device and asked whether it has happened.
        Raises NotSupported or AttributeError if the manager is not the one that is known.
        """
        self._bonus = int(manager.num_bonus_tokens)
        self._event = event
        self._step: tuple[Sequence[str], Any, Any] | None = None
        original = manager.reallocate_drafts
        read = read_arguments(original, *METHODS["reallocate_drafts"])

        def reallocate_drafts(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            try:
                (ids,) = read(args, kwargs)
                self._note(ids, result)
            except Exception:
                self._step = None  # not known of this step
            return result

        manager.reallocate_drafts = reallocate_drafts

    def _note(self, ids: Sequence[str], result: Any) -> None:
        """Copy the step's counts off the device; the first of the result is how many logits of
        all sequences lie before each one's."""
        counts, happened = result[0].to("cpu", non_blocking=True), self._event()
        happened.record()
        self._step = list(ids), counts, happened

    def take(self) -> Callable[[], dict[str, int] | None]:
        """The step that has just begun; what it returns is asked for once its tokens are here.

        Drafts that the target checks by request id; None if no draft was planned or the copy has
        not happened yet.
        """
        step, self._step = self._step, None

        def admitted() -> dict[str, int] | None:
            if step is None or not step[2].query():
                return None
            ids, counts, _ = step
            ends = counts.tolist()
            return {
                id_: end - begin - self._bonus
                for id_, begin, end in zip(ids, ends[:-1], ends[1:], strict=True)
            }

        return admitted
