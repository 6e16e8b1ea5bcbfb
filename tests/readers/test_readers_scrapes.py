"""Prometheus text: differences, restarts, names of other exporters, MIG."""

import pytest
from reading import scrapes

from specscope.analyze.collect import analyze


def result(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / f"{name}.prom").write_text(text)
    return analyze([str(tmp_path / f"{name}.prom") for name in files]).as_json()


def counters(n, prefix="vllm:", boot=1.0, extra=""):
    return (
        f"process_start_time_seconds {boot}\n"
        f'{prefix}spec_decode_num_drafts_total{{engine="0",model_name="m"}} {10 * n}\n'
        f'{prefix}spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {30 * n}\n'
        f'{prefix}spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {20 * n}\n'
        + "".join(
            f"{prefix}spec_decode_num_accepted_tokens_per_pos_total"
            f'{{engine="0",model_name="m",position="{position}"}} {kept * n}\n'
            for position, kept in enumerate((10, 7, 3))
        )
        + f'{prefix}generation_tokens_total{{engine="0",model_name="m"}} {40 * n}\n'
        + extra
    )


@pytest.mark.parametrize("prefix", ["vllm:", "ray_vllm:", "ray_vllm_", "vllm_"])
def test_the_difference_of_two_scrapes_is_taken_in_the_order_of_their_counters(prefix, tmp_path):
    found = result(tmp_path, a=counters(5, prefix), b=counters(2, prefix))

    totals = found["totals"]
    assert (totals["drafts"], totals["accepted"]) == (30, 60)
    assert totals["mean_length"] == 3.0
    assert totals["accepted_at"] == [30, 21, 9]


def test_scrapes_of_two_starts_are_counted_apart(tmp_path):
    found = result(tmp_path, a=counters(5, boot=1.0), b=counters(2, boot=2.0))

    assert found["totals"]["drafts"] == 70
    assert "COUNTER_RESET" in {f["code"] for f in found["findings"]}


def test_many_scrapes_in_one_file_are_differenced_one_by_one(tmp_path):
    found = result(tmp_path, a="".join(counters(n) for n in (1, 2, 4, 8)))

    assert [w["drafts"] for w in found["windows"]] == [10, 20, 40]


def test_a_fall_in_the_middle_starts_again(tmp_path):
    found = result(tmp_path, a="".join(counters(n) for n in (3, 5, 1, 2)))

    assert [w["drafts"] for w in found["windows"]] == [20, 10]
    assert "COUNTER_RESET" in {f["code"] for f in found["findings"]}


def test_rounds_without_a_proposal_show_in_the_latency_histogram(tmp_path):
    extra = (
        'vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 36\n'
        'vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 0.36\n'
        'vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 1\n'
    )

    found = result(tmp_path, a=counters(1, extra=extra))

    skipped = next(f for f in found["findings"] if f["code"] == "SKIPPED_ROUNDS")
    assert skipped["evidence"]["tokens_per_round"] == pytest.approx(39 / 36, abs=1e-4)
    assert found["totals"]["round_ms"] == pytest.approx(10.0)


def test_short_outputs_bound_the_over_count_at_their_end(tmp_path):
    found = result(
        tmp_path, a=counters(1, extra='vllm:request_success_total{engine="0",model_name="m"} 4\n')
    )

    bound = next(f for f in found["findings"] if f["code"] == "EOS_OVERCOUNT")["evidence"]["bound"]
    assert bound == pytest.approx(3 * 4 / 40)


def test_v0_counters_give_prefix_acceptance_through_their_efficiency(tmp_path):
    text = (
        "vllm:spec_decode_num_accepted_tokens_total 1735\n"
        "vllm:spec_decode_num_draft_tokens_total 2648\n"
        "vllm:spec_decode_num_emitted_tokens_total 2149\n"
        "vllm:spec_decode_efficiency 0.649\n"
    )

    totals = result(tmp_path, a=text)["totals"]

    assert (totals["k"], totals["drafts"], totals["accepted"]) == (4, 662, 1487)


def test_trtllm_counters_are_read_by_token_position(tmp_path):
    text = "".join(
        f'trtllm_spec_decode_drafted_tokens_total{{token_position="{p}"}} 100\n'
        f'trtllm_spec_decode_accepted_tokens_total{{token_position="{p}"}} {kept}\n'
        for p, kept in enumerate((80, 50, 20))
    )
    text += "trtllm_spec_decode_num_draft_tokens_total 300\n"
    text += "trtllm_spec_decode_num_accepted_tokens_total 150\n"

    totals = result(tmp_path, a=text)["totals"]

    assert (totals["k"], totals["drafts"], totals["accepted_at"]) == (3, 100, [80, 50, 20])


def test_sglang_gauges_and_device_seconds_are_read(tmp_path):
    text = (
        'sglang:num_running_reqs{model_name="m"} 2\n'
        'sglang:gen_throughput{model_name="m"} 400\n'
        'sglang:spec_accept_length{model_name="m"} 2.0\n'
        'sglang:spec_accept_rate{model_name="m"} 0.5\n'
        'sglang:spec_num_draft_tokens{model_name="m"} 4\n'
        'sglang:forward_execution_seconds_total{model_name="m",category="target_verify"} 6\n'
        'sglang:forward_execution_seconds_total{model_name="m",category="eagle_draft"} 2\n'
    )

    found = result(tmp_path, a=text)

    assert found["totals"]["k"] == 3
    assert found["totals"]["acceptance_rate"] == pytest.approx(1 / 3)
    assert found["totals"]["round_ms"] == pytest.approx(10.0)
    assert found["time"]["parts_ms"] == {"draft": 2000.0, "verify": 6000.0}


def test_mig_instances_and_new_names_of_dcgm_are_read(tmp_path):
    text = (
        'DCGM_FI_PROF_DRAM_UTIL_RATIO{gpu="0",UUID="GPU-a",GPU_I_ID="1"} 0.41\n'
        'DCGM_FI_PROF_DRAM_UTIL_RATIO{gpu="0",UUID="GPU-a",GPU_I_ID="2"} 0.11\n'
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} 9.223372036854775794e18\n'
    )

    devices = result(tmp_path, a=text)["devices"]

    ratios = {d["gpu_instance"]: d["value"] for d in devices if "DRAM" in d["field"]}
    assert ratios == {"1": 0.41, "2": 0.11}
    blank = next(d for d in devices if "FB" in d["field"])
    assert (blank["value"], blank["reason"]) == (None, "blank value")


def test_nan_samples_and_timestamps_are_passed_over():
    found = scrapes("vllm:a_total 3 1700000000000\nvllm:b_total NaN\nvllm:c_total 1e3\n")

    assert dict(found[0].samples) == {("vllm:a_total", ()): 3.0, ("vllm:c_total", ()): 1000.0}


def test_a_drafter_that_proposes_nothing_is_said(tmp_path):
    text = (
        "vllm:spec_decode_num_drafts_total 0\n"
        "vllm:spec_decode_num_draft_tokens_total 0\n"
        "vllm:spec_decode_num_accepted_tokens_total 0\n"
        "vllm:generation_tokens_total 5000\n"
    )

    found = result(tmp_path, a=text)

    assert "DRAFTER_NEVER_USED" in {f["code"] for f in found["findings"]}
    assert found["verdicts"][0]["action"] == "no_data"
    assert found["totals"]["acceptance_rate"] is None
