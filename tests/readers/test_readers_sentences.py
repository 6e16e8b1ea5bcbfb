"""Two speeds in one sentence: which run each is of, and when a sentence says too little."""

import pytest

from specscope.readers.tables.cells import quantity
from specscope.readers.tables.sentences import sentences, speeds_in_sentence


@pytest.mark.parametrize(
    ("sentence", "without", "with_"),
    [
        ("I measure 41.5 tok/s with MTP, and 32.0 tok/s without it, a gain of 30%.", 32.0, 41.5),
        ("32 tok/s without, 41 tok/s with the draft", 32, 41),
        ("Without the drafter I get 18 t/s, with it 27 t/s.", 18, 27),
        ("With EAGLE-3 enabled it runs at 90 tokens/s vs 60 tokens/s without.", 60, 90),
        ("Speed went from 12 tok/s (no draft) to 9 tok/s (with draft).", 12, 9),
        ("Decoding falls from 45 tok/s to 31 tok/s with speculative decoding enabled", 45, 31),
        ("baseline 120 tok/s → 180 tok/s with eagle3", 120, 180),
        ("measured 40.1 tok/s baseline and 60.2 tok/s at n-max 3 (+50%)", 40.1, 60.2),
        (
            "Mine: baseline 40.1 → 60.2 tok/s with `--spec-draft-n-max 3` (+50%), accepts 0.5–0.9.",
            40.1,
            60.2,
        ),
        ("Turning on MTP took our server from slow to quick: 31.9 → 52.8 tok/s.", 31.9, 52.8),
        ("After enabling n-gram speculation the rate changed, 44.0 -> 38.5 tok/s.", 44.0, 38.5),
        ("Enabled EAGLE-3 (k=3): throughput went from 31.9 to 52.8 tok/s.", 31.9, 52.8),
        ("Turning the draft model off, decode went from 52.8 to 31.9 tok/s.", 31.9, 52.8),
        ("The base model runs at 45 tok/s, with n-gram it reaches 61 tok/s", 45, 61),
    ],
)
def test_a_sentence_with_both_runs_gives_both_speeds(sentence, without, with_):
    found = [float(speed.split()[0]) for _, speed in speeds_in_sentence(sentence)]

    assert found == [without, with_]


@pytest.mark.parametrize(
    "sentence",
    [
        "I expected 30 tok/s without MTP and 41 tok/s with MTP.",  # nothing ran
        "It should reach 41 tok/s with MTP and 30 tok/s without it.",
        "vLLM gives 50 tok/s with MTP and llama.cpp 30 tok/s without MTP",  # another engine
        "On 4B: 42 tok/s without a draft, 8B 30 tok/s with a draft.",  # another model
        "20 tok/s without, 32 tok/s with MTP and an FP8 cache",  # something else besides
        "32 tok/s with MTP and FP8, 20 tok/s without",
        "20 tok/s without MTP at batch 1, 41 tok/s with MTP at batch 8",  # another load
        "Decode is 42 tok/s with MTP off and 61 tok/s with MTP on (2.45x)",  # it contradicts itself
        "With MTP I get 41 tok/s, 45 tok/s on code, and 30 tok/s without",  # three figures
        "prefill is 500 tok/s with MTP and 510 tok/s without",
        "MTP k=2 gives 61 tok/s, MTP k=4 gives 58 tok/s",  # both speculate
        "EAGLE went from 120 tok/s to 180 tok/s with CUDA graphs",
        "MTP was 30 tok/s and went from 30 tok/s to 41 tok/s with MTP depth 3",
        "40.1 → 60.2 tok/s with MTP at n-max 3",  # before and after what?
        "baseline 40.1 → 60.2 tok/s with MTP (+80%)",
        "Upgraded the MTP head from v1 to v2: 31.9 → 52.8 tok/s.",
        "Raising the MTP depth from 1 to 3, 31.9 → 52.8 tok/s.",
        "Enabling FP8 together with MTP: 31.9 → 52.8 tok/s.",
        "Enabling MTP and FP8: 31.9 → 52.8 tok/s",
        "After upgrading the driver, enabling MTP gives 31.9 → 52.8 tok/s",
        "We enabled MTP on an H200 after running on an H100: 31.9 → 52.8 tok/s",
        "MTP off (llama.cpp) BF16: 52.4 tok/s MTP on (vLLM) FP8: 37.6 tok/s",  # another engine
        "with EAGLE3: 1970 tps baseline (EAGLE3): 1168 tps",  # both speculate
        "Enabling MTP gives 40 to 70 tok/s.",  # a range
        "Without MTP 20-60 tok/s, with MTP 30-90 tok/s.",  # which is compared with which?
        "Is 41 tok/s with MTP against 30 tok/s without normal?",
    ],
)
def test_a_sentence_that_may_mean_something_else_gives_nothing(sentence):
    assert speeds_in_sentence(sentence) == []


def test_a_narrow_range_is_as_good_as_its_middle():
    found = speeds_in_sentence("Without a drafter I get 18-19 tok/s, with it 30-33 tok/s.")

    assert [quantity(speed).value for _, speed in found] == [18.5, 31.5]


def test_a_paragraph_may_stand_in_several_lines():
    prose = [
        "I tried both. Plain decoding gives",
        "20 tok/s and MTP gives 28 tok/s.",
        "",
        "Thanks!",
    ]

    found = [speeds for one in sentences(prose) if (speeds := speeds_in_sentence(one))]

    assert found == [[("Plain decoding", "20 tok/s"), ("MTP", "28 tok/s")]]
