"""What the terminal shows beside the rounds: the experiment, the devices, losses, many replicas."""

import dataclasses
import itertools
import json

import pytest

from specscope.top.experiment import experiment_of
from specscope.top.figures import figures
from specscope.top.gpus import GpuNow, Gpus, devices_of
from specscope.top.screen import ScreenLine, Style, fitting, lines, painted, styled
from specscope.top.watch import Replica, Watch
from specscope_agent.nvml_fields import Reading
from specscope_hook.attach import attach
from specscope_hook.blocks import Blocks
from specscope_hook.boot import new_boot
from specscope_hook.reader import RingReader
from specscope_hook.ring_records import RingRound
from specscope_hook.settings import HookSettings

SECOND = 10**9
BLOCK_MS, FIRST, PAIRS = 2000, 100, 10
POLICY = {
    "policy": 9, "kind": "blocks", "seed": 3, "block_ms": BLOCK_MS, "burn_in_ms": 500,
    "arms": [{"name": "k0"}, {"name": "k4"}], "first_pair": FIRST, "last_pair": FIRST + PAIRS - 1,
    "share": 0.5, "table": [], "default_k": 4,
}  # fmt: skip
PAIR_NS = 2 * BLOCK_MS * 10**6
BEGIN = FIRST * PAIR_NS


class StoppedClock:
    def __init__(self, now):
        self.now = now

    def unix_ns(self):
        return self.now

    def monotonic_ns(self):
        return self.now


def a_ring(tmp_path, replica="r0", **facts):
    folder = tmp_path / "rings"
    folder.mkdir(exist_ok=True)
    settings = HookSettings(folder, replica, 1 << 16)
    boot = new_boot(
        settings, engine="reference", engine_version="1", target="tiny", k_max=4, **facts
    )
    return *attach(settings, boot), boot


@pytest.mark.parametrize("at_s", [-7.5, 0.0, 1.9, 2.0, 3.9, 4.1, 17.3, 39.9, 40.0, 99.0])
def test_the_experiment_is_the_one_that_the_hook_follows(tmp_path, at_s):
    ring, recorder, boot = a_ring(tmp_path)
    now = BEGIN + int(at_s * SECOND)
    clock = StoppedClock(now)
    blocks = Blocks(ring, recorder, "r0", boot.boot, clock)
    RingReader.open(ring.path).control_write(json.dumps(POLICY))
    blocks.turn()

    one = experiment_of(json.dumps(POLICY), "r0", boot.boot, now)

    if at_s >= 4.0 * PAIRS:
        assert one is None
        return
    assert one.arms == ("k0", "k4")
    if at_s < 0:
        assert blocks.gate is None
        assert one.begins_s == pytest.approx(-at_s)
        return
    assert (one.pair, one.pairs) == (1 + int(at_s // 4), PAIRS)
    assert one.is_arm == blocks.gate.experimental("r0", boot.boot, FIRST + one.pair - 1)
    assert one.block_s == pytest.approx(2.0 - at_s % 2)
    assert one.left_s == pytest.approx(4.0 * PAIRS - at_s)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", json.dumps(POLICY | {"kind": "table"}), json.dumps({"policy": 1})]
)
def test_what_is_no_experiment_shows_none(text):
    assert experiment_of(text, "r0", "b", BEGIN) is None


def test_the_policy_on_the_control_page_is_shown(tmp_path):
    ring, _, _ = a_ring(tmp_path)
    forever = {name: value for name, value in POLICY.items() if name != "last_pair"}
    RingReader.open(ring.path).control_write(json.dumps(forever))

    (replica,) = Watch(tmp_path / "rings", 10.0).look()

    assert replica.experiment.policy == 9
    (text,) = [line for line in lines([replica]) if line.startswith("  pairs")]
    assert "k0, k4; pair" in text
    assert "experiment has no end" in text


def a_round(number, arm, k, accepted, wall_us=1000.0):
    fields = {field.name: 0 for field in dataclasses.fields(RingRound)}
    lists = {"requests": [1], "classes": [0], "contexts": [9], "k": [k], "accepted": [accepted],
             "emitted": [accepted + 1], "ends": [0]}  # fmt: skip
    row = {**fields, **lists, "started_at": number * 10**6, "wall_us": wall_us, "pair": 1 + number,
           "arm": arm, "policy": 9}  # fmt: skip
    return RingRound(**row)


def test_arms_of_an_experiment_stand_beside_each_other():
    ran = [a_round(n, 0, 0, 0, 1000.0) for n in range(4)]
    ran += [a_round(4 + n, 1, 4, 3, 1600.0) for n in range(4)]

    shown = figures(ran, {0: "sql"}, {0: "k0", 1: "k4"})

    assert {name: (one.tokens_per_round, one.round_ms) for name, one in shown.by_arm.items()} == {
        "k0": (1.0, 1.0), "k4": (4.0, 1.6)
    }  # fmt: skip
    assert figures(ran[:4], {0: "sql"}, {0: "k0", 1: "k4"}).by_arm == {}


def readings(uuid, **values):
    return [
        Reading(uuid, None, name, value if not isinstance(value, str) else None, "1",
                value if isinstance(value, str) else "", 0)
        for name, value in values.items()
    ]  # fmt: skip


def test_a_device_says_what_it_does_and_what_slows_it():
    told = [
        *readings("GPU-a", gpu_utilisation=0.93, memory_utilisation=0.2, dram_active=0.61,
                  power=412.0, sm_clock=1755.0, memory_used=64e9, clock_event_reasons=float(0x44)),
        *readings("GPU-b", device="device lost"),
        *readings("GPU-c", gpu_utilisation=0.1, dram_active="needs Hopper or newer",
                  memory_utilisation=0.3),
    ]  # fmt: skip

    first, lost, old = devices_of(told)

    assert first == GpuNow("GPU-a", 0.93, 0.61, 412.0, 1755.0, 64e9, ("power limit", "heat"), "")
    assert lost.reason == "device lost"
    assert (old.memory_busy, old.reason) == (0.3, "")
    shown = replica(devices=(first, lost))
    gpus = [line for line in styled([shown]) if line.text.startswith("  gpu")]
    assert gpus[0].text == (
        "  gpu       GPU-a: busy 93%, memory 61%, 64 GB, 412 W, 1755 MHz, "
        "slowed by power limit, heat"
    )
    assert [line.style for line in gpus] == [Style.WARNING] * 2


def test_devices_that_nobody_can_ask_are_said_once_and_only_if_the_engine_names_some(tmp_path):
    a_ring(tmp_path, "cpu")
    a_ring(tmp_path, "gpu", gpu_uuids=["01234567-89ab"])
    watch = Watch(tmp_path / "rings", 10.0)

    shown = {one.replica: one for one in watch.look()}

    reason = Gpus()
    reason.look()
    reason.close()
    assert shown["cpu"].no_devices == ""
    assert shown["gpu"].no_devices == (reason.reason or "not on this machine")
    watch.close()


def replica(name="r0", **changes):
    plain = Replica(name, "b0", "vllm 1", "tiny", "serving", "", 0.0, 0, None)
    return dataclasses.replace(plain, **changes)


def test_losses_and_faults_stand_out():
    shown = {line.text.split()[0]: line.style for line in styled([replica(dropped=7)])}

    assert shown["lost"] is Style.BAD
    assert next(styled([replica(state="gone")])).style is Style.BAD
    assert next(styled([replica()])).style is Style.GOOD
    assert painted(ScreenLine("x", Style.BAD)) == "\x1b[1;31mx\x1b[0m"
    assert painted(ScreenLine("x")) == "x"


def test_many_replicas_are_a_line_each():
    ran = figures([a_round(n, 1, 4, 3) for n in range(9)], {}, {1: "k4"})
    many = [replica(f"replica-{n}", figures=ran, dropped=n) for n in range(40)]

    few, crowd = fitting(many[:1], 3), fitting(many, 24)

    assert len(few) > 3  # one alone is never cut
    assert len(crowd) == 24
    assert max(len(line.text) for line in crowd) <= 80
    assert crowd[1].text.startswith("replica-0 ")
    assert crowd[-1].text == "and 18 more: --replica NAME shows one"
    assert [line.style for line in crowd[1:3]] == [Style.PLAIN, Style.WARNING]
    assert len(fitting(many[:2], 100)) > 10


def test_a_long_name_is_cut_in_the_table_alone():
    names = ["x" * 60, "y"]

    rows = fitting([replica(name) for name in names], 3)

    assert all("…" in one.text for one in rows[1:2])
    assert any("x" * 60 in text for text in lines([replica(names[0])]))
    assert all(len(one.text) <= 80 for one in itertools.chain(rows))
