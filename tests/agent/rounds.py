"""A round for writers that are processes of their own, and load no more than the hook."""

from specscope_hook.recorder import Recorder


def one_round(recorder: Recorder, request: int = 1) -> None:
    """A round of one sequence."""
    recorder.round(
        started_at=1_790_000_000_000_000_000,
        wall_us=1000.0,
        requests=[request],
        contexts=[10],
        classes=[0],
        k=[2],
        accepted=[1],
        emitted=[2],
        ends=[0],
    )
