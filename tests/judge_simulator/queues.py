"""Requests that wait before simulated engines, first in, first out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


class Queues:
    """Of every world: the class of each request that waits, and the block that times it."""

    def __init__(self, worlds: int) -> None:
        self._items = np.zeros((2, worlds, 64), np.int64)
        self._head = np.zeros(worlds, np.int64)
        self._tail = np.zeros(worlds, np.int64)

    @property
    def waiting(self) -> Counts:
        """[worlds] how many."""
        return self._tail - self._head

    def put(self, arrived: Counts, who: Counts, kinds: Counts, block: int) -> None:
        """arrived: [worlds] how many; who, kinds: world and class of each, by world."""
        while int((self.waiting + arrived).max()) > self._items.shape[2]:
            self._grow()
        place = (self._tail[who] + _ranks(arrived)) % self._items.shape[2]
        self._items[0, who, place], self._items[1, who, place] = kinds, block
        self._tail = self._tail + arrived

    def take(self, count: Counts, who: Counts) -> tuple[Counts, Counts]:
        """Class and block of the first so many. count: [worlds]; who: the world of each."""
        place = (self._head[who] + _ranks(count)) % self._items.shape[2]
        self._head = self._head + count
        return self._items[0, who, place], self._items[1, who, place]

    def _grow(self) -> None:
        room = self._items.shape[2]
        order = (self._head[:, None] + np.arange(room)) % room
        ordered = np.take_along_axis(self._items, np.stack([order, order]), axis=2)
        self._items = np.concatenate([ordered, np.zeros_like(ordered)], axis=2)
        self._tail, self._head = self.waiting, np.zeros_like(self._head)


def _ranks(counts: Counts) -> Counts:
    """0, 1, … within each group, one group after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) - np.repeat(ends - counts, counts)
