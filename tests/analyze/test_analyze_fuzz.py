"""Input that nobody meant: cut, shuffled, interleaved, binary, gigantic. No crash, no hang."""

import json
import random
import resource
import sys
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specscope.analyze import render
from specscope.analyze.collect import Collector, analyze
from specscope.errors import InputError
from specscope.readers.source import from_stream

DATA = Path(__file__).parents[1] / "data" / "readers"
SEEDS = [
    p.read_bytes()[:16_384] for p in sorted(DATA.rglob("*")) if p.is_file() and p.suffix != ".md"
]
MANY = settings(max_examples=120)


def outcome(*contents):
    """The JSON of an analysis of these bytes, or None where nothing could be read."""
    collector = Collector()
    for number, content in enumerate(contents):
        collector.read(from_stream(f"input-{number}", BytesIO(content)))
    try:
        analysis = collector.result()
    except InputError:
        return None
    page = render.page(analysis)
    assert max(map(len, page.splitlines())) <= 80
    result = analysis.as_json()
    json.dumps(result, allow_nan=False)
    return result


@st.composite
def spoiled(draw):
    """A real file, spoiled in one to three ways."""
    content = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 3))):
        seed = draw(st.integers(0, 2**32))
        content = draw(st.sampled_from(WAYS))(content, random.Random(seed))
    return content


def cut(content, rng):
    return content[: rng.randrange(len(content) + 1)]


def shuffle(content, rng):
    lines = content.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


def interleave(content, rng):
    other = rng.choice(SEEDS).splitlines(keepends=True)
    mixed = []
    for line in content.splitlines(keepends=True):
        mixed += [line, *other[:1]]
        other = other[1:]
    return b"".join(mixed)


def scribble(content, rng):
    data = bytearray(content)
    for _ in range(rng.randrange(1, 40)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def other_numbers(content, rng):
    digits = b"0123456789"
    return bytes(rng.choice(digits) if byte in digits else byte for byte in content)


def swollen(content, rng):
    """Numbers of thousands of digits, or with dots in them."""
    data = bytearray(content)
    places = [i for i, byte in enumerate(data) if byte in b"0123456789"]
    for place in sorted(rng.sample(places, min(len(places), 6)), reverse=True):
        data[place : place + 1] = rng.choice([b"9" * 6000, b"9" * 14, b"1.2", b".", b"1e999", b"-"])
    return bytes(data)


def splice(content, rng):
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.randbytes(rng.randrange(400)) + content[at:]


def repeat(content, rng):
    return content * rng.randrange(1, 6)


WAYS = (cut, shuffle, interleave, scribble, other_numbers, swollen, splice, repeat)


@MANY
@given(spoiled())
def test_a_spoiled_file_never_crashes_and_its_numbers_stay_possible(content):
    result = outcome(content)

    for window in (result or {"windows": []})["windows"]:
        drafts, accepted = window["drafts"], window["accepted"]
        assert window["mean_length"] is None or window["mean_length"] >= 1
        assert window["acceptance_rate"] is None or 0 <= window["acceptance_rate"] <= 1
        if drafts and accepted is not None:
            assert window["mean_length"] == pytest.approx(1 + accepted / drafts)


@MANY
@given(spoiled(), spoiled())
def test_two_spoiled_files_together_never_crash(first, second):
    outcome(first, second)


@MANY
@given(st.binary(max_size=2048))
def test_bytes_without_meaning_never_crash(content):
    outcome(content)


@MANY
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "traceEvents",
                        "specDecodingStats",
                        "iter",
                        "numDraftTokens",
                        "spec_decode_num_drafts",
                        "output_throughput",
                        "benchmarks",
                        "metrics",
                        "num_spec_steps",
                        "predicted_n",
                        "draft_n",
                        "spec_accept_length",
                        "target_tg_tok_s",
                        "draft_tg_tok_s",
                        "run",
                        "message",
                        "graph_launches",
                        "idle_pct",
                        "ph",
                        "ts",
                        "dur",
                        "args",
                    ]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=30,
    )
)
def test_json_of_the_right_keys_and_wrong_kinds_never_crashes(document):
    outcome(json.dumps(document).encode())


@pytest.mark.parametrize("filler", [b"x", b"SpecDecoding metrics: ", b"{", b'"', b","])
def test_a_gigantic_line_is_skipped_and_what_follows_is_read(filler):
    log = (DATA / "cases/vllm-19254-ngram-v1log/vllm.log").read_bytes()
    line = filler * (30_000_000 // len(filler))

    result = outcome(log + b"\n" + line + b"\n" + log)

    assert result["totals"]["proposed"] == 2 * 10578
    assert "LONG_LINE" in {f["code"] for f in result["findings"]}


DOCUMENT = b"| a | tok/s |\n|---|---|\n| none | 1 |\n```\nx\n```\n"


@pytest.mark.parametrize(
    "filler", [b" ", b"-", b"|", b"[", b"\t", b"`", b"> ", b"- ", b"1 tok/s ", b"a: 1 tps ", b"<a"]
)
def test_a_document_of_odd_lines_ends_and_keeps_its_table(filler):
    line = filler * (20_000 // len(filler))

    result = outcome(DOCUMENT + (line + b"\n") * 5 + filler * 100_000 + b"\n" + DOCUMENT)

    assert result["inputs"]


def test_memory_does_not_grow_with_the_log(tmp_path):
    pair = (DATA / "fixtures/vllm-0.32/serve_draft_model.log").read_bytes()
    small, large = tmp_path / "small.log", tmp_path / "large.log"
    small.write_bytes(pair * 60)
    with large.open("wb") as file:
        for _ in range(600):
            file.write(pair)
    analyze([str(small)])

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = analyze([str(large)]).as_json()
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert result["totals"]["proposed"] == 600 * 1263
    assert len(result["windows"]) <= 512
    assert grown_kib < 16 * 1024


def test_the_work_grows_with_the_length_and_not_its_square():
    log = (DATA / "fixtures/vllm-0.32/serve_draft_model.log").read_bytes()

    def calls(times):
        """Function calls, which are the same on every machine; MB/s are bench/'s."""
        made = 0

        def counted(frame, event, argument):
            nonlocal made
            made += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            outcome(log * times)
        finally:
            sys.setprofile(before)
        return made

    few, many = calls(16), calls(160)

    assert 2 * few < many < 11 * few
