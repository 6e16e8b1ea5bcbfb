"""Replay: propose a recorded completion, with each token corrupted at a known rate.

The real verifier decides, so the acceptance is known and the text is the target's."""

import random
from collections.abc import Callable, Mapping, Sequence

from specscope.engine.decode.batch import Batch
from specscope.engine.decode.drafters.drafter import Drafter, Proposal, host_proposal, pause


class ReplayDrafter(Drafter):
    """Drafts from recorded target-only completions.

    Position j of a round keeps its token with probability rates[j] (or rates[label][j] by class),
    independently; otherwise the drafter corrupts it. Under greedy or coupled sampling with the
    recorded seed, rates[j] is exactly the conditional acceptance. Rejection sampling tests the
    draft against the target's distribution, so its acceptance is unknown.
    """

    reads_texts = True

    def __init__(
        self,
        completions: Mapping[str, Sequence[int]],
        rates: Sequence[float] | Mapping[str, Sequence[float]],
        vocab: int,
        delay_us: float = 0.0,
        seed: int = 0,
        wait: Callable[[float], None] = pause,
    ) -> None:
        """completions: token ids by request id. `delay_us` is added for each position drafted, by
        `wait`, which is given microseconds."""
        self.completions, self.rates, self.vocab = completions, rates, vocab
        self.delay_us, self.seed, self.wait = delay_us, seed, wait

    def propose(self, batch: Batch, ks: Sequence[int]) -> Proposal:
        """The next up to k recorded tokens, each corrupted with probability 1 - rates[j]."""
        proposals = []
        for row, k in enumerate(ks):
            request = batch.requests[row]
            start = len(batch.texts[row]) - request.prompt_tokens
            known = self.completions.get(request.id, ())[start : start + k]
            rng = random.Random(f"{self.seed}/{request.id}/{start}")
            rates = self._rates_of(request.label)
            proposals.append([self._spoil(token, rates[j], rng) for j, token in enumerate(known)])
        self.wait(self.delay_us * max(ks))
        return host_proposal(proposals, batch.state.device)

    def _rates_of(self, label: str) -> Sequence[float]:
        return self.rates[label] if isinstance(self.rates, Mapping) else self.rates

    def _spoil(self, token: int, rate: float, rng: random.Random) -> int:
        wrong = (token + rng.randrange(1, self.vocab)) % self.vocab
        return token if rng.random() < rate else wrong
