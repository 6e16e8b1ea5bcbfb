"""The policy in force here: checked, remembered across restarts, put into every ring."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from specscope_hook.errors import HookError
from specscope_hook.gate import Gate
from specscope_hook.ring import RingReader

log = logging.getLogger("specscope.agent")


class Policies:
    """Takes policies from the uplink's thread, hands them to rings on the loop's."""

    def __init__(self, folder: Path) -> None:
        """folder: of the spool; the last policy lies there as policy.json"""
        self._path = folder / "policy.json"
        self._lock = Lock()
        self._text = ""
        self._number = 0
        self._written: dict[Path, str] = {}
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("the policy that was kept cannot be read: %s", error)
            return
        if gate := _gate_of(text):
            self._put_in_force(text, gate)

    @property
    def number(self) -> int:
        return self._number

    @property
    def text(self) -> str:
        return self._text

    def receive(self, number: int, text: str) -> None:
        """A policy from the service; one that cannot be followed is said and left."""
        if number != self._number and (gate := _gate_of(text)):
            # Kept before it is in force: a sidecar that is killed forgets nothing that it followed.
            new = self._path.with_suffix(".new")
            try:
                new.write_text(text)
                os.rename(new, self._path)
            except OSError as error:
                log.warning("the policy is in force but not kept: %s", error)
            self._put_in_force(text, gate)

    def _put_in_force(self, text: str, gate: Gate) -> None:
        with self._lock:
            self._text, self._number = text, gate.policy

    def apply(self, readers: Iterable[RingReader], lowered: str = "") -> None:
        """Write the policy, or the one the guardrail made of it, where it is not yet."""
        text = lowered or self._text
        if not text:
            return
        for reader in readers:
            if self._written.get(reader.path) == text:
                continue
            self._written[reader.path] = text
            try:
                reader.control_write(text)
            except HookError as error:
                log.warning("the policy does not fit into %s: %s", reader.path, error)


def _gate_of(text: str) -> Gate | None:
    """What a policy asks for; None, and said, where it cannot be followed."""
    try:
        return Gate.from_policy(text)
    except HookError as error:
        log.warning("a policy was refused: %s", error)
        return None
