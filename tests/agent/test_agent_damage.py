"""Files in the rings' folder that somebody damages while engine and sidecar are at work."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from agent_support import a_boot, ring_at
from ring_damage import DAMAGES
from rounds import one_round
from waiting import until

from specscope_agent.agent import Agent
from specscope_agent.settings import AgentSettings
from specscope_agent.source import Source
from specscope_agent.wire import decode
from specscope_hook.layout import BOOT, DATA, W_CAPACITY, W_VERSION, W_WRITE
from specscope_hook.recorder import Recorder

HERE = Path(__file__).parent
WRITER = """
import sys, time
sys.path[:0] = sys.argv[3:]
from pathlib import Path
from rounds import one_round
from specscope_hook.boot import new_boot
from specscope_hook.recorder import Recorder
from specscope_hook.ring import Ring
from specscope_hook.settings import HookSettings
boot = new_boot(HookSettings(None, sys.argv[2]), engine="e", engine_version="1", target="t")
ring = Ring.create(Path(sys.argv[1], f"{boot.replica}-{boot.boot}.ring"), boot, 1 << 18)
recorder = Recorder(ring, salt=b"s")
recorder.admitted(request=1, class_=0, prompt_tokens=1)
recorded, stop = 1, Path(sys.argv[1], "stop")
while not stop.exists():
    one_round(recorder)
    recorded += 1
    time.sleep(0.001)
assert recorder.on
recorder.close()
print(recorded)
"""


def writer(rings: Path, replica: str) -> subprocess.Popen:
    """A process that records until there is a file `stop`, and says how much it was."""
    run = [sys.executable, "-c", WRITER, str(rings), replica, str(HERE)]
    return subprocess.Popen(run, stdout=subprocess.PIPE, text=True)


def spooled(agent: Agent) -> tuple[list[tuple[Source, int]], list[dict]]:
    """Record numbers of all rows in the spool, and all losses."""
    seqs, losses = [], []
    for source in agent.spool.sources:
        number = 0
        while number := agent.spool.next_waiting(source, number):
            for table in agent.spool.take(source, number).tables:
                rows = decode(table.arrow).to_pylist()
                if table.name in ("round", "request"):
                    seqs += [(source, row["seq"]) for row in rows]
                elif table.name == "loss":
                    losses += rows
    return seqs, losses


def test_damage_to_rings_kills_nobody_and_is_counted(tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    rng = random.Random(14)
    agent = Agent(AgentSettings(rings=rings, spool=tmp_path / "spool", spool_bytes=1 << 30))
    hurt = {damage.__name__: damage for damage in DAMAGES}
    writers = {name: writer(rings, name) for name in (*hurt, "whole")}
    until(lambda: len(list(rings.glob("*.ring"))) == len(writers))
    over_at, next_at = time.monotonic() + 5.0, 0.0

    while any(process.poll() is None for process in writers.values()):
        agent.tick()
        if time.monotonic() > over_at:
            (rings / "stop").touch()  # from here on nothing is damaged that nobody would mend
        elif time.monotonic() > next_at:
            next_at = time.monotonic() + rng.uniform(0.2, 1.2)
            for ring in rings.glob("*.ring"):
                if damage := hurt.get(ring.name.split("-")[0]):
                    damage(ring, rng)
        time.sleep(0.05)
    recorded = {name: int(process.stdout.read()) for name, process in writers.items()}
    for _ in range(30):  # a ring that was made anew is drained twice
        agent.tick()
    seqs, losses = spooled(agent)
    agent.close()

    assert {name: process.returncode for name, process in writers.items()} == dict.fromkeys(
        writers, 0
    )
    assert len(seqs) == len(set(seqs))
    stored = {name: sum(s.replica == name for s, _ in seqs) for name in recorded}
    lost = {n: sum(r["count"] or 0 for r in losses if r["replica"] == n) for n in recorded}
    assert {name: stored[name] + lost[name] for name in recorded} == recorded
    assert lost["whole"] == 0 < sum(lost.values())
    assert all(stored.values())


def test_one_sick_ring_never_stops_the_others(tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    kept = {name: ring_at(rings, a_boot(name), 1 << 16) for name in ("good", "sick", "huge")}
    recorders = {name: Recorder(ring, salt=b"s") for name, ring in kept.items()}
    agent = Agent(AgentSettings(rings=rings, spool=tmp_path / "spool", spool_bytes=1 << 30))
    for recorder in recorders.values():
        one_round(recorder)
    agent.tick()
    for name in ("x.ring", "x.ring.new"):
        os.mkfifo(rings / name)
    (rings / "folder.ring").mkdir()
    (rings / "zero.ring").symlink_to("/dev/zero")
    (rings / "text.ring").write_text("no ring")
    with kept["sick"].path.open("r+b") as file:
        file.seek(W_WRITE * 8 + 6)
        file.write(b"\x04")  # 2^50 bytes more than there are
    with kept["huge"].path.open("r+b") as file:
        file.truncate(64 << 30)  # sparse
        file.seek(W_CAPACITY * 8)
        file.write(((64 << 30) - DATA).to_bytes(8, "little"))
    for _ in range(3):
        one_round(recorders["good"])

    began = time.thread_time()
    for _ in range(5):
        agent.tick()
    spent = time.thread_time() - began
    after_damage = len(spooled(agent)[0])
    for name, ring in kept.items():
        ring._inspect_at = 0
        one_round(recorders[name])
    for _ in range(5):
        agent.tick()
    seqs, _ = spooled(agent)
    healthy = agent.health.stuck()
    agent.close()
    for ring in kept.values():
        ring.close()

    assert after_damage == 6
    assert spent < 5.0
    assert healthy == []
    assert {(source.replica, seq) for source, seq in seqs} >= {
        *(("good", seq) for seq in range(1, 6)),
        ("sick", 2),
        ("huge", 2),
    }


def test_a_ring_that_nobody_can_read_is_a_loss_and_set_aside(tmp_path, monkeypatch):
    rings = tmp_path / "rings"
    rings.mkdir()
    dead, living, newer = (ring_at(rings, a_boot(n), 1 << 16) for n in ("dead", "living", "newer"))
    one_round(Recorder(dead, salt=b"s"))
    dead.close()
    newer.close()
    for ring, place in ((dead, BOOT + 30), (living, BOOT + 30), (newer, W_VERSION * 8)):
        with ring.path.open("r+b") as file:
            file.seek(place)
            file.write(b"\x7f")
    agent = Agent(AgentSettings(rings=rings, spool=tmp_path / "spool", spool_bytes=1 << 30))
    monkeypatch.setattr("specscope_agent.rings.UNFINISHED_S", 0.0)

    for _ in range(3):
        agent.tick()
    _, losses = spooled(agent)
    agent.close()
    living.close()

    assert [(row["replica"], row["reason"], row["first_seq"]) for row in losses] == [
        ("dead", "tail_unknown", 1)
    ]
    assert [path.suffix for path in sorted(rings.iterdir())] == [".damaged", ".ring", ".ring"]
