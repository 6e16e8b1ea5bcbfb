"""A serving process that only follows its policy: a ring, blocks, a loop of rounds.

Run as `python follower.py LOG`; settings from the environment. Each change of the draft length
that its next sequence would get goes to LOG, one JSON line with the policy that says so.
"""

import json
import os
import signal
import sys
import threading

from specscope_hook.attach import attach
from specscope_hook.blocks import Blocks
from specscope_hook.boot import new_boot
from specscope_hook.settings import HookSettings

ROUND_S = 0.02


def main(log) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    settings = HookSettings.from_env(os.environ)
    boot = new_boot(
        settings,
        engine="follower",
        engine_version="1",
        target="none",
        method="draft_model",
        k_max=8,
    )
    ring, recorder = attach(settings, boot)
    blocks = Blocks(ring, recorder, boot.replica, boot.boot)
    before = ()
    while not over.wait(ROUND_S):
        blocks.turn()
        policy = None if blocks.gate is None else blocks.gate.policy
        now = (blocks.k("sql", 100, 64, 4, 0), policy, blocks.refused)
        if now != before:
            before = now
            line = dict(zip(("k", "policy", "refused"), now, strict=True))
            log.write(json.dumps(line) + "\n")
            log.flush()
    recorder.close()


if __name__ == "__main__":
    with open(sys.argv[1], "w") as log:
        main(log)
