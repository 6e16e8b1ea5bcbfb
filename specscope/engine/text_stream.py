"""Text out of tokens as they come: no half characters, nothing behind a stop string."""

from collections.abc import Sequence

from specscope.engine.sequence import Detokenize

REPLACEMENT = "\ufffd"


class TextStream:
    """Gives out the text that is certain and keeps back what the next token may still change."""

    def __init__(self, detokenize: Detokenize, stop: Sequence[str]) -> None:
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
        certain = len(self.text) - self._held()
        return self._give(certain)

    def finish(self) -> str:
        """The rest, up to the first stop string."""
        places = [self.text.find(stop) for stop in self.stop]
        found = [place for place in places if place >= 0]
        return self._give(min(found, default=len(self.text)))

    def _give(self, end: int) -> str:
        piece = self.text[self.given : end]
        self.given = max(self.given, end)
        return piece

    def _held(self) -> int:
        """Characters at the end that may be, or begin, a stop string."""
        for stop in self.stop:
            place = self.text.find(stop)
            if place >= 0:
                return len(self.text) - place
        return max((_overlap(self.text, stop) for stop in self.stop), default=0)


def _overlap(text: str, stop: str) -> int:
    """The longest beginning of `stop` that `text` ends with."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
