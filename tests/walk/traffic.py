"""A serving process without a model: seeded requests and rounds through the real hook.

Run as `python traffic.py RECORDS SEED PAUSE_US LOG`; settings from the environment. It takes no new
requests after RECORDS records or SIGTERM, and ends when the last has ended. What it did goes to
LOG, one JSON line a record, so that a test can compare without asking the product.
"""

import json
import os
import signal
import sys
import time
from random import Random

from specscope_hook.attach import attach
from specscope_hook.boot import new_boot
from specscope_hook.columns import End
from specscope_hook.settings import HookSettings

CLASSES = ("chat", "code", "sql")
K = (0, 2, 4)
BATCH = 6


def main(records: int, seed: int, pause_us: int, log) -> None:
    random = Random(seed)
    settings = HookSettings.from_env(os.environ)
    boot = new_boot(
        settings, engine="traffic", engine_version="1", target="none", method="draft_model", k_max=4
    )
    _, recorder = attach(settings, boot)
    class_ids = {name: recorder.class_id(name) for name in CLASSES}
    running, written, born, told = [], 0, 0, []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))

    def note(**values):
        log.write(json.dumps(values) + "\n")

    note(kind="boot", boot=boot.boot, replica=boot.replica)
    while (written < records and not told) or running:
        while len(running) < BATCH and written < records and not told:
            name = random.choice(CLASSES)
            hashed = recorder.request_hash(f"{seed}/{born}")
            left, prompt = random.randint(5, 60), random.randint(1, 3000)
            handle = recorder.admitted(
                request=hashed,
                class_=class_ids[name],
                prompt_tokens=prompt,
                requested_output=left,
                temperature=0.5,
            )
            note(kind="admitted", request=hashed, label=name, prompt=prompt, asked=left)
            running.append(
                {"id": hashed, "class": name, "left": left, "context": prompt, "handle": handle,
                 "out": 0}
            )  # fmt: skip
            born += 1
            written += 1
        k = [random.choice(K) for _ in running]
        accepted = [random.randint(0, limit) for limit in k]
        emitted = [min(kept + 1, row["left"]) for kept, row in zip(accepted, running, strict=True)]
        ends = [
            End.LENGTH if out == row["left"] else End.NONE
            for out, row in zip(emitted, running, strict=True)
        ]
        parts = [random.uniform(10, 900) for _ in range(4)]
        values = {
            "started_at": time.time_ns(),
            "wall_us": sum(parts),
            "draft_us": parts[0],
            "verify_us": parts[1],
            "sample_us": parts[2],
            "idle_us": parts[3],
            "waiting": random.randint(0, 9),
            "padded_tokens": random.randint(0, 9),
            "requests": [row["id"] for row in running],
            "contexts": [row["context"] for row in running],
            "k": k,
            "accepted": accepted,
            "emitted": emitted,
            "ends": [int(end) for end in ends],
        }
        recorder.round(classes=[class_ids[row["class"]] for row in running], **values)
        note(kind="round", classes=[row["class"] for row in running], **values)
        written += 1
        for row, out in zip(running, emitted, strict=True):
            row["left"] -= out
            row["out"] += out
            row["context"] += out
        for row in [row for row in running if row["left"] == 0]:
            recorder.ended(
                row["handle"], output_tokens=row["out"], reason=End.LENGTH, digest=row["id"] ^ 1
            )
            note(kind="ended", request=row["id"], tokens=row["out"])
            written += 1
        running = [row for row in running if row["left"] > 0]
        if pause_us:
            time.sleep(pause_us / 1e6)
    recorder.close()
    note(kind="closed", written=written)


if __name__ == "__main__":
    with open(sys.argv[4], "w", buffering=1) as log:  # it may be killed
        main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), log)
