"""vLLM's adaptive verification: the verified length of each draft.

The scheduler plans the whole draft of each sequence. The V2 runner's worker then gives the batch a
budget and admits the likeliest drafts; only the device knows the admitted lengths. The counts are
copied after the step's own work and read with its tokens, so nothing waits. It never ran on a GPU,
only with a stand-in for vLLM's manager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specscope_hook.plugin import read_arguments

METHODS: dict[str, tuple[str, ...]] = {"reallocate_drafts": ("req_ids",)}
"""Of vLLM's AdaptiveVerificationManager, with the parameters that are read."""


class AdmittedDrafts:
    """Admitted draft lengths of the steps that one worker has begun, until their tokens are
    known."""

    def __init__(self, manager: Any, event: Callable[[], Any]) -> None:
        """Wrap a manager's method.

        event: creates a device event. Raises NotSupported or AttributeError for an unknown manager.
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
        """Copy the step's counts off the device. The first item of the result is the offset of each
        sequence's logits."""
        counts, happened = result[0].to("cpu", non_blocking=True), self._event()
        happened.record()
        self._step = list(ids), counts, happened

    def take(self) -> Callable[[], dict[str, int] | None]:
        """Take the begun step. Call the returned function after its tokens are known.

        It gives the verified draft lengths by request id; None if no draft was planned or the copy
        is not complete.
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
