"""Target-only decoding as one would write it on a blackboard: no cache, no batch, no speculation.

It shares the model's weights and the noise with the engine, and nothing else.
"""

import torch

from specscope.engine.decode.sampler import COUPLED, gumbel, key


def letters(ids):
    """Text of the tiny models' tokens, for stop strings."""
    return "".join(chr(97 + token % 26) for token in ids)


def kept(logits, temperature, top_k, top_p):
    """The tokens that top-k and then top-p keep, by probability; ties with the last kept stay."""
    ordered = sorted(range(len(logits)), key=lambda token: -logits[token])
    if top_k:
        floor = logits[ordered[min(top_k, len(ordered)) - 1]]
        ordered = [token for token in ordered if logits[token] >= floor]
    law = torch.softmax(torch.tensor([logits[token] / temperature for token in ordered]), 0)
    before, last = 0.0, 0
    for place, mass in enumerate(law.tolist()):
        if place and before >= top_p:
            break
        before, last = before + mass, place
    return {token for token in ordered if logits[token] >= logits[ordered[last]]}


def next_token(model, text, params):
    """Greedy, or the coupled draw at this place."""
    with torch.inference_mode():
        logits = model.score(torch.tensor([text]))[0, -1]
    if params.greedy:
        return int(logits.argmax())
    noise = gumbel(
        key(torch.tensor([params.seed]), torch.tensor([len(text)]), COUPLED), len(logits)
    )
    allowed = kept(logits.tolist(), params.temperature, params.top_k, params.top_p)
    race = (logits / params.temperature + noise[0]).tolist()
    return max(sorted(allowed), key=lambda token: race[token])


def decode_plainly(model, prompt, params, capacity):
    """The tokens that follow `prompt`, and how the text ends."""
    text = list(prompt)
    limit = min(len(prompt) + params.max_new_tokens, capacity)
    while True:
        text.append(next_token(model, text, params))
        output = text[len(prompt) :]
        if output[-1] in params.eos:
            return output, "eos"
        if any(stop in letters(output) for stop in params.stop):
            return output, "stop"
        if len(text) == limit:
            return output, "length"
