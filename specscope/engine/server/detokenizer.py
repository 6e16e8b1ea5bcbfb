"""Streams text from tokens: no half characters, nothing from a stop string on."""

from collections.abc import Sequence

from specscope.engine.decode.scheduler import Decode

REPLACEMENT = "\ufffd"


class Detokenizer:
    """Return text as soon as it is final; hold back text that the next token may change.

    Only the newest tokens are decoded, with those of the chunk before as context, so the cost of a
    chunk does not grow with the answer.
    """

    def __init__(self, decode: Decode, stop: Sequence[str]) -> None:
        self.decode, self.stop = decode, stop
        self.context: list[int] = []  # tokens whose text is known
        self.fresh: list[int] = []  # tokens behind them, which end in half a character
        self.pending = ""  # text that may be part of a stop string
        self.stopped = False

    def feed(self, ids: Sequence[int]) -> str:
        """Add `ids` and return the text that is now final."""
        self.fresh += ids
        text = self._fresh_text()
        if text.endswith(REPLACEMENT):
            return ""
        self.context, self.fresh = self.fresh, []
        self.pending += text
        held = max((_overlap(self.pending, stop) for stop in self.stop), default=0)
        return self._give(len(self.pending) - held)

    def finish(self) -> str:
        """The remaining text, up to the first stop string."""
        self.pending += self._fresh_text()
        return self._give(len(self.pending))

    def _fresh_text(self) -> str:
        if not self.fresh:
            return ""
        known = self.decode(self.context) if self.context else ""
        return self.decode([*self.context, *self.fresh])[len(known) :]

    def _give(self, end: int) -> str:
        """The pending text up to `end`, or up to the first stop string; then nothing more."""
        places = [self.pending.find(stop) for stop in self.stop]
        stop = min((place for place in places if place >= 0), default=None)
        if self.stopped:
            return ""
        self.stopped, end = stop is not None, end if stop is None else stop
        piece, self.pending = self.pending[:end], self.pending[end:]
        return piece


def _overlap(text: str, stop: str) -> int:
    """The longest beginning of `stop` that `text` ends with."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
