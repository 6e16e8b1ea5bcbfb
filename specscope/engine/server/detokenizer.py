"""Streams text from tokens: no half characters, nothing from a stop string on."""

from collections.abc import Sequence

from specscope.engine.decode.scheduler import Decode

REPLACEMENT = "\ufffd"


class Detokenizer:
    """Gives out the text that is certain and keeps back what the next token may still change."""

    def __init__(self, detokenize: Decode, stop: Sequence[str]) -> None:
        self.detokenize, self.stop = detokenize, stop
        self.ids: list[int] = []
        self.given = 0
        self.text = ""

    def feed(self, ids: Sequence[int]) -> str:
        """The text that `ids` made certain."""
        self.ids += ids
        self.text = self.detokenize(self.ids)
        if self.text.endswith(REPLACEMENT):
            return ""
        return self._give(self._certain())

    def finish(self) -> str:
        """The rest, up to the first stop string."""
        return self._give(self._stop_place(otherwise=len(self.text)))

    def _give(self, end: int) -> str:
        piece = self.text[self.given : end]
        self.given = max(self.given, end)
        return piece

    def _certain(self) -> int:
        """Characters that are no part of a stop string, nor of what may become one."""
        begun = max((_overlap(self.text, stop) for stop in self.stop), default=0)
        return self._stop_place(otherwise=len(self.text) - begun)

    def _stop_place(self, otherwise: int) -> int:
        """Where the first stop string begins, whichever of them it is."""
        places = [self.text.find(stop) for stop in self.stop]
        return min((place for place in places if place >= 0), default=otherwise)


def _overlap(text: str, stop: str) -> int:
    """The longest beginning of `stop` that `text` ends with."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
