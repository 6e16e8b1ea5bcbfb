"""The sizes to which a round is filled up, so that few graphs serve all rounds.

What is filled up belongs to nobody: tokens of a spare row behind the last, whose cache they may
spoil, and rows whose results are thrown away.
"""

from collections.abc import Sequence
from dataclasses import dataclass

DRAFTS = (0, 1, 2, 3, 4, 6, 8)
SHORTEST_EXTENT = 64


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sizes for an engine of so many slots, of drafts up to k_max, of caches of that capacity."""

    slots: int
    k_max: int
    capacity: int

    @property
    def spare(self) -> int:
        """The row of nobody."""
        return self.slots

    def rows(self, count: int) -> int:
        """The next power of two, at most all slots."""
        return min(1 << (count - 1).bit_length(), self.slots)

    @property
    def extents(self) -> list[int]:
        """All that `extent` may answer, the largest first."""
        sizes = [self.extent(1)]
        while sizes[0] < self.capacity:
            sizes.insert(0, self.extent(sizes[0] + 1))
        return sizes

    def width(self, count: int) -> int:
        """Tokens of the widest row: drafts as above, then in steps of four, at most k_max."""
        k = count - 1
        wider = next((draft for draft in DRAFTS if draft >= k), -(-k // 4) * 4)
        return max(count, min(wider, self.k_max) + 1)

    def tokens(self, widths: Sequence[int]) -> int:
        """Packed tokens: four sizes an octave, so at most a quarter is computed for nobody.

        Where all rows bring the same number, or nothing, whole rows are filled up.
        """
        unit = max(widths) if len({*widths} - {0}) == 1 else 1
        count = sum(widths) // unit
        return unit * _up(count, 1 << max(0, (count - 1).bit_length() - 3))

    def extent(self, count: int) -> int:
        """Positions that attention reads: two sizes an octave from 64, at most the cache's."""
        rounded = _up(count, 1 << max(0, (count - 1).bit_length() - 2))
        return min(max(rounded, SHORTEST_EXTENT), self.capacity)


def _up(count: int, step: int) -> int:
    return -(-count // step) * step
