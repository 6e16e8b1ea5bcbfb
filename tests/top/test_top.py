"""What `specscope top` shows of the reference engine with the hook on, against what it did."""

import json

import pytest
import torch
from engine.tiny_models import Record, near, prompts, tiny_model

from specscope.cli import main
from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.top.screen import lines
from specscope.top.watch import Watch
from specscope_hook.adapters.reference import ReferenceObserver
from specscope_hook.attach import attach
from specscope_hook.boot import new_boot
from specscope_hook.errors import RingError
from specscope_hook.layout import Cursor
from specscope_hook.peek import RingPeek
from specscope_hook.reader import RingReader
from specscope_hook.settings import HookSettings

CLASSES = ("sql", "prose", "json")
K = 3


class Serving:
    """The reference engine, its hook writing a ring, and what it did."""

    def __init__(self, folder, ring_bytes=1 << 20, replica="r0"):
        torch.set_num_threads(1)
        settings = HookSettings(folder, replica, ring_bytes)
        boot = new_boot(settings, engine="reference", engine_version="1", target="tiny", k_max=K)
        self.ring, self.recorder = attach(settings, boot)
        self.record = Record()
        target = tiny_model(0)
        self.engine = Engine(
            target,
            ModelDrafter(near(target, 0.05)),
            k_max=K,
            slots=4,
            capacity=100,
            gate=lambda sequences, _: [0 if s.request.label == "json" else K for s in sequences],
            observers=[ReferenceObserver(self.recorder), self.record],
        )
        self._made = 0

    def requests(self, count):
        for prompt in prompts([5] * count):
            label = CLASSES[self._made % len(CLASSES)]
            params = SamplingParams(temperature=1.0, seed=self._made, max_new_tokens=17)
            self.engine.submit(str(self._made), prompt, params, label=label)
            self._made += 1
        return self

    def serve(self):
        while self.engine.step():
            pass
        return self


@pytest.fixture
def folder(tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    return rings


def look(watch):
    (replica,) = watch.look()
    return replica


def labels(serving):
    return {request.id: request.label for request in serving.record.admissions}


def test_the_figures_are_those_of_the_rounds_that_ran(folder):
    serving = Serving(folder).requests(9).serve()
    rounds, label = serving.record.rounds, labels(serving)

    replica = look(Watch(folder, 3600.0))

    shown, k = replica.figures, [k for r in rounds for k in r.k]
    emitted = [(label[id], n) for r in rounds for id, n in zip(r.requests, r.emitted, strict=True)]
    assert (replica.replica, replica.engine, replica.target) == ("r0", "reference 1", "tiny")
    assert (replica.state, replica.dropped) == ("serving", 0)
    assert shown.rounds == len(rounds)
    assert shown.batch == pytest.approx(len(k) / len(rounds))
    assert shown.k == {value: k.count(value) / len(k) for value in sorted(set(k))}
    assert {0, K} <= set(shown.k)
    assert shown.tokens_per_round == pytest.approx(sum(n for _, n in emitted) / len(k))
    assert shown.by_class == {
        name: pytest.approx(
            sum(n for c, n in emitted if c == name) / sum(c == name for c, _ in emitted)
        )
        for name in CLASSES
    }
    walls = sorted(r.wall_us for r in rounds)
    assert shown.round_p95_ms == pytest.approx(
        walls[-(-95 * len(walls) // 100) - 1] / 1e3, rel=1e-5
    )
    for part in ("draft", "verify", "sample", "idle"):
        spent = sum(getattr(r, f"{part}_us") for r in rounds)
        assert shown.shares[part] == pytest.approx(spent / sum(walls), rel=1e-4)
    assert sum(shown.shares.values()) == pytest.approx(1)


def test_survival_falls_by_the_share_kept_of_what_was_tested(folder):
    serving = Serving(folder).requests(40).serve()

    shown = look(Watch(folder, 3600.0)).figures.survival

    drafting = [
        (accepted, end)
        for r in serving.record.rounds
        for k, accepted, end in zip(r.k, r.accepted, r.ends, strict=True)
        if k and end == "none"
    ]
    plain = [sum(a > j for a, _ in drafting) / len(drafting) for j in range(K)]
    assert len(shown) == K
    assert shown == pytest.approx(plain, abs=0.04)  # without the rounds in which a text ended
    assert list(shown) == sorted(shown, reverse=True)


def test_looking_takes_nothing_from_the_sidecar_and_reads_what_it_has_taken(folder):
    serving = Serving(folder).requests(6).serve()
    watch = Watch(folder, 3600.0)
    before = look(watch).figures
    reader = RingReader.open(serving.ring.path)

    records, cursor, gaps = reader.pull(Cursor(), 1 << 20)
    reader.release(cursor)
    late = look(Watch(folder, 3600.0)).figures
    serving.requests(6).serve()
    more, _, _ = reader.pull(cursor, 1 << 20)

    assert gaps == []
    assert [r.seq for r in records + more] == list(range(1, reader.next_seq))
    assert late == before
    assert look(watch).figures.rounds == len(serving.record.rounds)


def test_a_writer_that_comes_round_again_and_again_is_followed(folder):
    serving = Serving(folder, ring_bytes=1 << 13)
    watch, peek = Watch(folder, 3600.0), RingPeek.open(serving.ring.path)
    reader, cursor, seen = RingReader.open(serving.ring.path), Cursor(), []
    looked = peek.newest(1 << 20)

    for turn in range(30):
        serving.requests(2)
        while serving.engine.step():
            _, cursor, _ = reader.pull(cursor, 1 << 20)
            reader.release(cursor)
        if turn % 3 == 0:
            records, looked = peek.look(looked)
            seen += [record.seq for record in records]

    assert cursor.position > 3 * 8192
    assert seen == sorted(set(seen))
    assert seen[-1] > 0.9 * cursor.next_seq
    assert len(seen) > 100
    shown = look(watch).figures
    assert shown.rounds <= len(serving.record.rounds)


def test_a_look_cannot_write(folder):
    serving = Serving(folder).requests(1).serve()
    peek = RingPeek.open(serving.ring.path)

    with pytest.raises(RingError):
        peek.release(Cursor(64, 2))
    with pytest.raises(RingError):
        peek.control_write("{}")


def test_states_are_told_apart(folder):
    first = Serving(folder, replica="ended").requests(1).serve()
    first.recorder.close()
    Serving(folder, replica="faulty").recorder.detach("a planted fault")
    Serving(folder, replica="idle")

    found = {replica.replica: replica for replica in Watch(folder, 10.0).look()}

    assert {name: one.state for name, one in found.items()} == {
        "ended": "ended", "faulty": "detached", "idle": "serving"
    }  # fmt: skip
    assert found["faulty"].fault == "a planted fault"
    assert found["idle"].figures is None


def test_an_experiments_arm_and_policy_are_those_of_the_newest_round(folder):
    serving = Serving(folder)
    serving.recorder.block(7, 3, "k3")
    serving.requests(2).serve()

    shown = look(Watch(folder, 3600.0)).figures

    assert (shown.policy, shown.arm) == (7, "k3")


def test_one_look_is_printed_as_text_of_80_columns_and_as_json(folder, capsys):
    Serving(folder).requests(9).serve()

    assert main(["top", str(folder), "--once", "--seconds", "3600"]) == 0
    text = capsys.readouterr().out
    assert main(["top", str(folder), "--once", "--json", "--seconds", "3600"]) == 0
    body = json.loads(capsys.readouterr().out)

    assert "r0  reference 1  tiny  [serving]" in text
    assert max(map(len, text.splitlines())) <= 80
    assert body["schema"] == "specscope.top/1"
    (replica,) = body["replicas"]
    assert f"tokens    {replica['figures']['tokens_per_round']:.2f} per round" in text
    assert "sql" in text


def test_a_replica_is_chosen_by_its_name(folder):
    for name in ("r1", "r2"):
        Serving(folder, replica=name)

    assert [one.replica for one in Watch(folder, 1.0, "r2").look()] == ["r2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no folder of rings"),
        (["{folder}"], "no ring in"),
        (["{folder}/nowhere"], "No such file"),
        (["{folder}", "--replica", "r9"], "no ring of r9"),
    ],
)
def test_nothing_to_show_is_one_line(folder, capsys, monkeypatch, words, said):
    monkeypatch.delenv("SPECSCOPE_RINGS", raising=False)

    code = main(["top", "--once", *(word.format(folder=folder) for word in words)])

    error = capsys.readouterr().err
    assert code in (1, 2)
    assert error.count("\n") == 1
    assert said in error


def test_a_file_that_is_no_ring_is_said_and_hides_no_other(folder, capsys):
    (folder / "junk.ring").write_bytes(b"x" * 200_000)

    assert main(["top", str(folder), "--once"]) == 1
    assert "junk.ring is not a ring" in capsys.readouterr().err

    Serving(folder).requests(1).serve()
    assert main(["top", str(folder), "--once"]) == 0


def test_a_live_view_repeats_until_it_is_interrupted(folder, capsys, monkeypatch):
    serving, slept = Serving(folder), []

    def sleep(seconds):
        slept.append(seconds)
        serving.requests(1).serve()
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("specscope.top.cli.time.sleep", sleep)
    assert main(["top", str(folder), "--json", "--every", "0.5", "--seconds", "3600"]) == 0

    looks = [
        json.loads(line)["replicas"][0]["figures"] for line in capsys.readouterr().out.splitlines()
    ]
    assert slept == [0.5] * 3
    assert looks[0] is None
    assert looks[1]["rounds"] < looks[2]["rounds"]


def test_the_live_view_draws_what_one_look_prints(folder, monkeypatch, capsys):
    Serving(folder).requests(3).serve()

    def sleep(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("specscope.top.cli.time.sleep", sleep)
    assert main(["top", str(folder), "--seconds", "3600"]) == 0

    shown = capsys.readouterr().out
    for line in lines(Watch(folder, 3600.0).look()):
        assert line[:11] in shown
