"""The policy in force here: checked, stored across restarts, written into every ring."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from specscope_agent import files
from specscope_agent.guardrail import Limits
from specscope_hook.errors import HookError
from specscope_hook.gate import Gate
from specscope_hook.ring import RingReader

log = logging.getLogger("specscope.agent")

LONGEST_BYTES = 1 << 20  # of a kept policy; the control page holds far less


class Policies:
    """Receive policies in the uplink's thread, and write them into rings in the loop's thread."""

    def __init__(self, folder: Path) -> None:
        """folder: the spool's folder, which holds the last policy as policy.json"""
        self._path = folder / "policy.json"
        self._lock = Lock()
        self._text = ""
        self._number = 0
        self._unfit: set[Path] = set()
        try:
            with files.open_regular(self._path) as file:
                text = file.read(LONGEST_BYTES).decode()
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("the policy that was kept cannot be read: %s", error)
            return
        if gate := _gate_of(text):
            self._put_in_force(text, gate)
        else:
            self._set_aside()

    def _set_aside(self) -> None:
        """Rename an invalid stored policy, which every start would refuse again."""
        aside = self._path.with_suffix(".refused")
        try:
            os.rename(self._path, aside)
            log.warning("the policy that was kept is set aside as %s", aside)
        except OSError as error:
            log.warning("the policy that was kept cannot be set aside: %s", error)

    @property
    def number(self) -> int:
        return self._number

    @property
    def text(self) -> str:
        return self._text

    def receive(self, number: int, text: str) -> None:
        """Receive a policy from the service; an invalid one is logged and ignored."""
        if number != self._number and (gate := _gate_of(text)):
            # Kept before it is in force: a sidecar that is killed forgets nothing that it followed.
            try:
                files.replace(self._path, [text.encode()], sync=True)
            except OSError as error:
                log.warning("the policy is in force but not kept: %s", error)
            self._put_in_force(text, gate)

    def _put_in_force(self, text: str, gate: Gate) -> None:
        with self._lock:
            self._text, self._number = text, gate.policy
            self._unfit.clear()

    def apply(self, readers: Iterable[RingReader], lowered: str = "") -> None:
        """Write the policy, or the guardrail's version of it, into rings without it."""
        text = lowered or self._text
        if not text:
            return
        for reader in readers:
            # What lies there is looked at: a ring that was damaged has been made anew without it.
            if reader.path in self._unfit or reader.control_text == text:
                continue
            try:
                reader.control_write(text)
            except HookError as error:
                self._unfit.add(reader.path)
                log.warning("the policy does not fit into %s: %s", reader.path, error)


def _gate_of(text: str) -> Gate | None:
    """The gate of a policy; None, with a log line, for an invalid one."""
    try:
        gate = Gate.from_policy(text)
        Limits.of(text)
    except Exception as error:  # a policy comes from elsewhere: nothing in one may end us
        log.warning("a policy was refused: %s", error)
        return None
    return gate
