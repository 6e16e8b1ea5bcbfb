"""The Boot record and the model card in it."""

import json
import struct
from types import SimpleNamespace

import pytest

from specscope_hook.adapters.vllm_boot import _schedule, configuration, loaded_bytes_per_weight
from specscope_hook.attach import attach
from specscope_hook.boot import epoch_of, new_boot
from specscope_hook.errors import RingError
from specscope_hook.ring import RingReader
from specscope_hook.settings import HookSettings
from specscope_hook.weights import Weights, weights_of

SETTINGS = HookSettings(rings=None, replica="r0", price_per_hour=2.5)


def a_boot(**values):
    known = {"engine": "x", "engine_version": "1", "target": "m"}
    return new_boot(SETTINGS, **known | values)


def test_a_batch_size_schedule_is_told_in_the_engine_s_own_words():
    ranges = [(1, 4, 3), (5, 64, 0)]  # as vLLM's configuration has them

    assert _schedule(SimpleNamespace(num_speculative_tokens_per_batch_size=ranges)) == (
        "[[1, 4, 3], [5, 64, 0]]"
    )
    assert _schedule(SimpleNamespace(num_speculative_tokens_per_batch_size=None)) is None
    assert _schedule(SimpleNamespace()) is None  # of a version that has none
    assert _schedule(None) is None  # without speculation


def test_the_settings_of_adaptive_verification_are_in_the_configuration(monkeypatch):
    monkeypatch.setenv("VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN", "4096")
    settings = []
    for adapts in (True, False):
        spec = SimpleNamespace(method="dspark", enable_adaptive_verification=adapts)
        config = SimpleNamespace(
            speculative_config=spec,
            parallel_config=SimpleNamespace(
                tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1
            ),
            model_config=SimpleNamespace(dtype="float32", quantization=None),
        )
        settings.append(configuration(config, "0.33.0"))

    on, off = settings
    assert on["speculative"]["enable_adaptive_verification"] is True
    assert on["adaptive_verification_context"] == "4096"
    assert "adaptive_verification_context" not in off


def test_two_starts_of_the_same_thing_share_the_epoch_and_nothing_else():
    first, second = a_boot(), a_boot()

    assert first.boot != second.boot
    assert first.epoch == second.epoch == epoch_of(first)
    assert (first.replica, first.price_per_hour) == ("r0", 2.5)


@pytest.mark.parametrize(
    "change",
    [
        {"engine_version": "2"},
        {"target": "n"},
        {"draft": "d"},
        {"gpu_type": "H100"},
        {"k_max": 3},
        {"k_schedule": "[[1, 4, 3]]"},
    ],
    ids=str,
)
def test_what_changes_the_evidence_changes_the_epoch(change):
    assert a_boot().epoch != a_boot(**change).epoch


def test_an_attached_ring_carries_its_boot(tmp_path):
    settings = HookSettings(rings=tmp_path, replica="r/0", ring_bytes=4096)
    boot = new_boot(settings, engine="x", engine_version="1", target="m")

    ring, recorder = attach(settings, boot)

    assert ring.path == tmp_path / f"r_0-{boot.boot}.ring"
    assert RingReader.open(ring.path).boot["replica"] == "r/0"
    assert recorder.on


def test_a_hook_that_is_off_attaches_to_nothing():
    with pytest.raises(RingError, match="off"):
        attach(SETTINGS, a_boot())


def write_tensors(path, **tensors):
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}
        for name, (dtype, shape) in tensors.items()
    }
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def test_weights_are_counted_over_all_files_by_their_headers(tmp_path):
    write_tensors(tmp_path / "a.safetensors", w=("BF16", [3, 5]), b=("F32", [2]))
    write_tensors(tmp_path / "b.safetensors", q=("I8", [7]), s=("F16", []))

    found = weights_of(tmp_path)

    assert found == Weights(count=15 + 2 + 7 + 1, size=30 + 8 + 7 + 2)


def test_weights_that_cannot_be_read_are_unknown(tmp_path):
    nothing = weights_of(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 100)

    assert nothing is None
    assert weights_of(tmp_path) is None


def a_model(quantization=None, itemsize=4, quantised_on_disk=False):
    config = {"bits": 4} if quantised_on_disk else None
    return SimpleNamespace(
        quantization=quantization,
        dtype=SimpleNamespace(itemsize=itemsize),
        hf_config=SimpleNamespace(quantization_config=config),
    )


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (a_model(), 4.0),  # --dtype float32 of files in bfloat16
        (a_model(itemsize=2), 2.0),
        (a_model("fp8"), 1.0),  # quantised as it is loaded
        (a_model("fp8_per_block"), 1.0),
        (a_model("bitsandbytes"), 0.5),
        (a_model("awq", quantised_on_disk=True), 2.25),  # as its files hold it
        (a_model("fp8", quantised_on_disk=True), 2.25),
        (a_model("a method of tomorrow"), None),
        (SimpleNamespace(), None),
    ],
)
def test_a_weights_size_is_that_of_the_loaded_model(model, size):
    assert loaded_bytes_per_weight(model, on_disk=2.25) == size
