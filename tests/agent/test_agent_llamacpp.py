"""A llama.cpp server followed by its log: recorded runs against the server's own answers."""

import json
from pathlib import Path

import pytest

from specscope_agent.loss import rows_table
from specscope_agent.sources.llamacpp import LlamaCpp
from specscope_hook.ring import Cursor

DATA = Path(__file__).parents[1] / "data" / "llamacpp"
RUNS = ("ngram", "draft-model")


class Kept:
    """What a spool would hold: cursors, rows and losses of every source."""

    def __init__(self):
        self.cursors, self.boots, self.requests, self.parts, self.losses = {}, {}, [], [], {}
        self.ended = set()

    def follow(self, source):
        while harvest := source.poll(lambda of: self.cursors.get(of, Cursor())):
            self.cursors[harvest.source] = harvest.cursor
            for name, rows in harvest.rows.items():
                rows_table(name, rows)  # the stored schema takes them
            if harvest.boot:
                self.boots.setdefault(harvest.source, harvest.boot)
                rows_table("boot", [harvest.boot])
            self.requests += harvest.rows.get("request", [])
            self.parts += harvest.rows.get("request_part", [])
            for lost in harvest.losses:
                key = lost.table, lost.detail
                self.losses[key] = self.losses.get(key, 0) + lost.count
            if harvest.ended:
                self.ended.add(harvest.source)
            source.kept()
        return self

    def answers(self):
        """(prompt, cached, output, proposed, accepted) of each request that ended by itself."""
        parts = {part["request"]: part for part in self.parts}
        empty = {"k": [], "accepted": []}
        return sorted(
            (
                row["prompt_tokens"],
                row["cached_tokens"],
                row["output_tokens"],
                sum(parts.get(row["request"], empty)["k"]),
                sum(parts.get(row["request"], empty)["accepted"]),
            )
            for row in self.requests
            if row["reason"] != "abort"
        )


def answers(run):
    """The same from the `timings` of the server's responses."""
    return sorted(
        (
            timings["prompt_n"] + timings["cache_n"],
            timings["cache_n"],
            timings["predicted_n"],
            timings.get("draft_n", 0),
            timings.get("draft_n_accepted", 0),
        )
        for timings in json.loads((DATA / f"{run}.json").read_text())
    )


def lines_of(run):
    return (DATA / f"{run}.log").read_bytes().splitlines(keepends=True)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "server.log"


@pytest.mark.parametrize("run", RUNS)
def test_every_request_has_the_counts_of_its_response(run):
    kept = Kept().follow(LlamaCpp(DATA / f"{run}.log", "r0"))

    assert kept.answers() == answers(run)
    assert kept.losses == {}
    ((source, boot),) = kept.boots.items()
    assert source in kept.ended
    methods = {"ngram": ("ngram", 6), "draft-model": ("draft_model", 4)}
    assert (boot["method"], boot["k_max"]) == methods[run]


def test_times_are_the_servers_and_a_cut_round_emits_what_came_out():
    kept = Kept().follow(LlamaCpp(DATA / "draft-model.log", "r0"))

    wanted = {t["predicted_n"]: t for t in json.loads((DATA / "draft-model.json").read_text())}
    for row in kept.requests:
        if row["reason"] == "abort":
            assert (row["output_tokens"], row["decode_ms"]) == (None, None)
            continue
        timings = wanted[row["output_tokens"]]
        assert row["prefill_ms"] == pytest.approx(timings["prompt_ms"], abs=0.006)
        assert row["decode_ms"] == pytest.approx(timings["predicted_ms"], abs=0.006)
    stopped = next(p for p in kept.parts if p["accepted"] == [4] and p["emitted"] == [1])
    assert stopped["k"] == [4]
    assert [row["reason"] for row in kept.requests].count("abort") == 1


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("step", [1, 7, 40])
def test_a_sidecar_that_starts_anew_at_any_line_loses_and_doubles_nothing(log, run, step):
    whole, kept = Kept(), Kept()
    lines = lines_of(run)
    log.write_bytes(b"")
    living = LlamaCpp(log, "r0")
    for at in range(0, len(lines), step):
        with log.open("ab") as file:
            file.write(b"".join(lines[at : at + step]))
        kept.follow(LlamaCpp(log, "r0"))
        whole.follow(living)

    assert kept.answers() == whole.answers() == answers(run)
    assert sorted(r["seq"] for r in kept.requests) == sorted(r["seq"] for r in whole.requests)
    assert {r["boot"] for r in kept.requests} == {r["boot"] for r in whole.requests}
    assert kept.losses == whole.losses == {}


def test_half_a_line_waits_for_its_end(log):
    text = b"".join(lines_of("ngram"))
    kept, source = Kept(), LlamaCpp(log, "r0")
    for at in range(0, len(text), 997):
        with log.open("ab") as file:
            file.write(text[at : at + 997])
        kept.follow(source)

    assert kept.answers() == answers("ngram")
    assert kept.losses == {}


@pytest.mark.parametrize("rotated", [False, True])
def test_a_server_that_starts_again_is_another_boot(log, rotated):
    kept, source = Kept(), LlamaCpp(log, "r0")
    first, second = lines_of("ngram"), lines_of("draft-model")
    log.write_bytes(b"".join(first[:-1]))  # killed: no last word
    kept.follow(source)
    if rotated:
        log.rename(log.with_suffix(".1"))
    with log.open("ab") as file:
        file.write(b"".join(second))
    kept.follow(source)

    assert kept.answers() == sorted(answers("ngram") + answers("draft-model"))
    assert len(kept.boots) == 2
    assert len(kept.ended) == 1


def test_requests_that_the_server_took_with_it_are_counted(log):
    lines = lines_of("ngram")
    opened = next(i for i, line in enumerate(lines) if b"accepted " in line)
    log.write_bytes(b"".join(lines[:opened] + lines_of("draft-model")))
    kept, source = Kept(), LlamaCpp(log, "r0")
    log.write_bytes(b"".join(lines[:opened]))
    kept.follow(source)
    with log.open("ab") as file:
        file.write(b"".join(lines_of("draft-model")))
    kept.follow(source)

    begun = sum(b"processing task" in line for line in lines[:opened])
    assert kept.losses == {("request", "the log ends before the request does"): begun}
    assert kept.answers() == answers("draft-model")


def test_a_log_that_is_cut_in_place_goes_on_with_the_same_server(log):
    lines = lines_of("draft-model")
    idle = 1 + next(i for i, line in enumerate(lines) if b"release" in line)
    kept, source = Kept(), LlamaCpp(log, "r0")
    log.write_bytes(b"".join(lines[:idle]))
    kept.follow(source)
    log.write_bytes(b"")
    kept.follow(source)
    with log.open("ab") as file:
        file.write(b"".join(lines[idle:]))
    kept.follow(source)

    assert kept.answers() == answers("draft-model")
    assert {boot["target"] for boot in kept.boots.values()} == {"gemma.gguf"}


def test_lines_of_an_unknown_form_are_counted_and_said_once(log, caplog):
    lines = lines_of("ngram")
    odd = [
        b"0.09.000.000 I slot print_timing: id  0 | task 0 | eval time: 12 ms\n",
        b"0.09.000.000 I slot print_timing: id  0 | task 0 | draft acceptance = 3 of 4\n",
        b"[17] prompt eval time =     1.00 ms /     5 tokens\n",
        b"\xff\xfe accepted  9/ 9 draft tokens\n",
    ]
    at = 2 + next(i for i, line in enumerate(lines) if b"task 0 | processing task" in line)
    log.write_bytes(b"".join([*lines[:at], *odd, b"\x00" * 99 + b"\n", *lines[at:]]))

    kept = Kept().follow(LlamaCpp(log, "r0"))

    assert kept.answers() == answers("ngram")
    assert kept.losses == {("log", "a line that no pattern knows"): len(odd)}
    assert len(caplog.records) == 1


def test_a_clients_text_within_a_line_is_no_line_of_the_server(log):
    lines = lines_of("ngram")
    forged = b"0.09.000.000 I slot   operator(): id  0 | task 0 | accepted  9/ 9 draft tokens"
    said = b"0.09.000.000 D Parsed message: " + json.dumps({"c": forged.decode()}).encode() + b"\n"
    at = 2 + next(i for i, line in enumerate(lines) if b"task 0 | processing task" in line)
    log.write_bytes(b"".join([*lines[:at], said, *lines[at:]]))

    kept = Kept().follow(LlamaCpp(log, "r0"))

    assert kept.answers() == answers("ngram")


@pytest.mark.parametrize(
    ("without", "table", "detail"),
    [
        (b"draft tokens", "request_part", "the server was started without LLAMA_TRACE=1"),
        (b"verbosity", "request", "the server's start is not in the log"),
        (b"n_max", "request", "the log does not say how long a draft may be"),
    ],
)
def test_what_the_log_does_not_say_is_counted_and_not_guessed(log, without, table, detail):
    log.write_bytes(b"".join(line for line in lines_of("draft-model") if without not in line))

    kept = Kept().follow(LlamaCpp(log, "r0"))

    (counted,) = kept.losses
    assert counted == (table, detail)
    assert (kept.parts, bool(kept.requests)) == ([], table == "request_part")


def test_rounds_that_do_not_add_up_are_not_stored(log):
    lines = lines_of("draft-model")
    first = next(i for i, line in enumerate(lines) if b"draft tokens" in line)
    log.write_bytes(b"".join(lines[:first] + lines[first + 1 :]))

    kept = Kept().follow(LlamaCpp(log, "r0"))

    key = "request_part", "the rounds do not add up to the server's own counts"
    assert kept.losses == {key: 1}
    assert len(kept.requests) == len(answers("draft-model")) + 1


def test_the_pass_of_debug_lines_counts_a_round_once(log):
    doubled = []
    for line in lines_of("ngram"):
        doubled.append(line)
        if b"draft tokens" in line:
            text = line.replace(b" I ", b" D ").replace(b"/ ", b"/").replace(b"  ", b" ")
            doubled.append(text.rstrip(b"\n") + b", new n_tokens = 22\n")
    log.write_bytes(b"".join(doubled))

    kept = Kept().follow(LlamaCpp(log, "r0"))

    assert kept.answers() == answers("ngram")


def test_a_log_that_is_not_there_yet_is_waited_for(log):
    source, kept = LlamaCpp(log, "r0"), Kept()
    kept.follow(source)
    log.write_bytes(b"".join(lines_of("ngram")))

    assert kept.follow(source).answers() == answers("ngram")
