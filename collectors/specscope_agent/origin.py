"""The header of a ring: the boot, the model card and the dictionaries."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from specscope_agent.arrays import Names
from specscope_agent.card import ModelCard
from specscope_agent.payloads import Payloads
from specscope_hook.layout import CLASSES_MAX
from specscope_hook.ring import NAME_ADAPTER, NAME_ARM, NAME_CLASS, RingReader
from specscope_hook.ring_records import RecordLayout

log = logging.getLogger("specscope.agent")

Dictionaries = tuple[dict[int, str], dict[int, str], dict[int, str]]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of records, as of the last look at the ring."""

    boot: Mapping[str, Any]
    card: ModelCard
    dictionaries: Dictionaries
    names: Names
    payloads: Payloads

    @classmethod
    def of(cls, reader: RingReader) -> Self:
        """Raises CorruptRing if the ring's header does not name its columns."""
        boot, dictionaries = reader.boot, _dictionaries(reader)
        layout = RecordLayout.of(boot)
        if unknown := layout.unknown():
            log.warning(
                "%s: its hook is newer; columns that are dropped: %s",
                reader.path,
                ", ".join(unknown),
            )
        return cls(
            boot, ModelCard.of(boot), dictionaries, Names.of(*dictionaries), Payloads(layout)
        )

    def refreshed(self, reader: RingReader) -> Self:
        """The origin with newly added names; the same object if there are none."""
        dictionaries = _dictionaries(reader)
        if dictionaries == self.dictionaries:
            return self
        return replace(self, dictionaries=dictionaries, names=Names.of(*dictionaries))

    @property
    def classes_full(self) -> bool:
        """Whether further classes become `other`."""
        return len(self.dictionaries[0]) >= CLASSES_MAX


def _dictionaries(reader: RingReader) -> Dictionaries:
    return reader.names(NAME_CLASS), reader.names(NAME_ARM), reader.names(NAME_ADAPTER)
