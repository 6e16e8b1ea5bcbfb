"""The running experiment of a replica's policy: its arms, its pair and its end."""

from __future__ import annotations

from dataclasses import dataclass

from specscope_hook.errors import PolicyError
from specscope_hook.gate import Gate

NS = 10**9


@dataclass(frozen=True, slots=True)
class RunningExperiment:
    """The state of an experiment at one time, by the hook's rules.

    pair: number of the pair, from 1. pairs: number of pairs; None without an end. block_s: seconds
    left of the block. left_s: seconds left of the experiment; None without an end. begins_s:
    seconds to the first pair; 0 after that. is_arm: whether the pair runs arms, or the table in
    force as all other pairs do.
    """

    policy: int
    arms: tuple[str, ...]
    pair: int
    pairs: int | None
    begins_s: float
    block_s: float
    left_s: float | None
    share: float
    is_arm: bool


def experiment_of(text: str, replica: str, boot: str, now: int) -> RunningExperiment | None:
    """Read the experiment from the policy on a replica's control page. now: ns since 1970.

    None if the policy has no experiment, if it has ended, or if the hook would refuse the policy.
    """
    try:
        gate = Gate.from_policy(text) if text else None
    except PolicyError:
        return None
    if gate is None or gate.kind != "blocks" or gate.block_ms is None or gate.detach:
        return None
    block_ns = gate.block_ms * 1_000_000
    pair_ns = block_ns * len(gate.arms)
    pair = now // pair_ns
    if gate.over(pair):
        return None
    begins_ns = max(0, gate.first_pair * pair_ns - now)
    last = gate.last_pair
    return RunningExperiment(
        policy=gate.policy,
        arms=tuple(arm.name for arm in gate.arms),
        pair=max(0, pair - gate.first_pair) + 1,
        pairs=None if last is None else last - gate.first_pair + 1,
        begins_s=begins_ns / NS,
        block_s=(block_ns - now % block_ns) / NS,
        left_s=None if last is None else ((last + 1) * pair_ns - now) / NS,
        share=gate.share,
        is_arm=gate.experimental(replica, boot, pair),
    )
