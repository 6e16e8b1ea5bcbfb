"""Inputs that mislead: what they decide, if anything, is written beside each."""

import pytest
from table_campaign import answer_of
from tables_of_truth import DECIDED

GAIN, LOSS, NONE = {"keep", "set_k"}, {"disable"}, set()
CASES = []


def c(name, allowed, text):
    """Note a case: the decisions that its text allows."""
    CASES.append(pytest.param(text, allowed, id=name))


def md(header, *rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


# reversed columns / direction
c("mtp col first", GAIN, md(["Prompt", "MTP tok/s", "no MTP tok/s"], ["a", 50, 30], ["b", 45, 30]))
c(
    "mtp col first loses",
    LOSS,
    md(["Prompt", "MTP tok/s", "no MTP tok/s"], ["a", 20, 30], ["b", 21, 30]),
)
c("tpot seconds", GAIN, md(["arm", "tpot (s)"], ["baseline", "0.033"], ["MTP", "0.020"]))
c("tpot seconds loses", LOSS, md(["arm", "tpot (s)"], ["baseline", "0.020"], ["MTP", "0.033"]))
c("latency s", GAIN, md(["arm", "latency (s)"], ["no spec", "33.1"], ["MTP", "20.2"]))
c("latency loses", LOSS, md(["arm", "latency (s)"], ["no spec", "20.2"], ["MTP", "33.1"]))
c("mixed s and ms", LOSS, md(["arm", "TPOT"], ["no spec", "20 ms"], ["MTP", "0.033 s"]))
c(
    "lower is better in caption",
    GAIN,
    "Time per token, lower is better\n\n" + md(["arm", "ms/token"], ["no spec", 30], ["MTP", 20]),
)
c(
    "lower is better no unit",
    LOSS,
    "(lower is better)\n\n" + md(["workload", "no spec", "MTP"], ["a", 20, 30], ["b", 21, 31]),
)
c(
    "lower is better caption score",
    NONE,
    "Score, lower is better\n\n" + md(["workload", "no spec", "MTP"], ["a", 20, 30], ["b", 21, 31]),
)
c(
    "ms columns",
    LOSS,
    "Median TPOT in ms\n\n" + md(["concurrency", "no spec", "MTP"], [1, 20, 30], [8, 21, 31]),
)
c(
    "wall time columns",
    LOSS,
    "Wall time (s)\n\n" + md(["prompt", "no spec", "MTP"], ["a", 20, 30], ["b", 21, 31]),
)
c("total seconds", LOSS, md(["prompt", "no spec (s)", "MTP (s)"], ["a", 20, 30], ["b", 21, 31]))
c("duration s", LOSS, md(["run", "Benchmark duration (s)"], ["no spec", 20], ["MTP", 30]))
c(
    "tok/s but percent change col",
    GAIN,
    md(["config", "tok/s", "change"], ["no MTP", 30, "-"], ["MTP k=2", 45, "+50%"]),
)
c("percent as speed", NONE, md(["config", "speed"], ["no MTP", "100%"], ["MTP k=2", "150%"]))
c("percent change only", NONE, md(["config", "MTP vs previous MTP"], ["a", "+20%"], ["b", "+30%"]))
# k column baselines that speculate
c("baseline k=1", NONE, md(["config", "k", "tok/s"], ["baseline", 1, 30], ["tuned", 3, 45]))
c(
    "baseline has acc",
    NONE,
    md(["config", "tok/s", "accept %"], ["baseline", 30, "60%"], ["new", 45, "70%"]),
)
c("base EAGLE vs EAGLE3", NONE, md(["config", "tok/s"], ["baseline: EAGLE-1", 30], ["EAGLE-3", 45]))
c("vanilla EAGLE", NONE, md(["method", "tok/s"], ["vanilla EAGLE", 30], ["EAGLE tree", 45]))
c(
    "standard speculative decoding",
    NONE,
    md(["method", "tok/s"], ["standard speculative decoding", 30], ["ours (tree drafting)", 45]),
)
c("plain MTP", NONE, md(["method", "tok/s"], ["plain MTP", 30], ["MTP + async", 45]))
c(
    "MTP off overlap",
    NONE,
    md(["method", "tok/s"], ["MTP, overlap off", 30], ["MTP, overlap on", 45]),
)
c(
    "overlap off/on caption MTP",
    NONE,
    "MTP k=3 with overlap scheduling\n\n" + md(["overlap", "tok/s"], ["off", 30], ["on", 45]),
)
c(
    "baseline in MTP heading",
    NONE,
    "## MTP k=3 runs\n\n" + md(["config", "tok/s"], ["baseline", 30], ["fused kernel", 45]),
)
c(
    "baseline under section spec on",
    NONE,
    "All runs below use EAGLE-3 speculative decoding.\n\n"
    + md(["config", "tok/s"], ["baseline", 30], ["optimized", 45]),
)
c(
    "without X in MTP",
    NONE,
    md(["config", "tok/s"], ["MTP without CUDA graphs", 30], ["MTP with CUDA graphs", 45]),
)
c(
    "no draft quant",
    NONE,
    md(["config", "tok/s"], ["no draft quantization", 30], ["draft quantized FP8", 45]),
)
c(
    "no draft cache",
    NONE,
    md(["config", "tok/s"], ["no draft KV reuse", 30], ["draft KV reuse", 45]),
)
c("spec v1 vs v2", NONE, md(["config", "tok/s"], ["spec v1 (baseline)", 30], ["spec v2", 45]))
c(
    "disabled adaptive",
    NONE,
    md(
        ["config", "tok/s"],
        ["adaptive speculation disabled (fixed k=3)", 30],
        ["adaptive speculation enabled", 45],
    ),
)
c("no tree", NONE, md(["config", "tok/s"], ["EAGLE no tree", 30], ["EAGLE tree", 45]))
c("no overlap spec", NONE, md(["config", "tok/s"], ["no-overlap spec", 30], ["overlap spec", 45]))
c("none overlap", NONE, md(["spec overlap", "tok/s"], ["none", 30], ["on", 45]))
c("no EAGLE fix", NONE, md(["build", "tok/s"], ["without EAGLE fix", 30], ["with EAGLE fix", 45]))
c(
    "without spec sampling kernel",
    NONE,
    md(["build", "tok/s"], ["without MTP patch", 30], ["with MTP patch", 45]),
)
# hardware
c("hw one arm", NONE, md(["config", "gpu", "tok/s"], ["no spec", "A100", 30], ["MTP", "H100", 45]))
c("hw in names", NONE, md(["config", "tok/s"], ["no spec (A100)", 30], ["MTP (H100)", 45]))
c("TP differs", NONE, md(["config", "TP", "tok/s"], ["no spec", 4, 30], ["MTP", 8, 45]))
c("TP in names", NONE, md(["config", "tok/s"], ["no spec TP4", 30], ["MTP TP8", 45]))
c("batch in names", NONE, md(["config", "tok/s"], ["no spec bs=1", 30], ["MTP bs=8", 145]))
c(
    "conc in names",
    NONE,
    md(["config", "tok/s"], ["no spec, concurrency 1", 30], ["MTP, concurrency 8", 145]),
)
c("model size", NONE, md(["config", "tok/s"], ["no spec 70B", 30], ["MTP 8B", 145]))
c("quant in names", NONE, md(["config", "tok/s"], ["no spec Q8_0", 30], ["MTP Q4_K_M", 45]))
c("context in names", NONE, md(["config", "tok/s"], ["no spec 32k ctx", 30], ["MTP 4k ctx", 45]))
# runs
c(
    "median one run w/ spread",
    NONE,
    md(["config", "tok/s"], ["no spec", "30 ± 8"], ["MTP", "33 ± 9"]),
)
c(
    "three runs overlapping",
    NONE,
    md(["config", "tok/s (3 runs)"], ["no spec", "28 / 33 / 41"], ["MTP", "30 / 35 / 44"]),
)
c("small diff", NONE, md(["config", "tok/s"], ["no spec", "30.0"], ["MTP", "31.5"]))
# aggregate vs per user
c(
    "per-user vs agg",
    NONE,
    md(["config", "throughput"], ["no spec", "480 tok/s (total)"], ["MTP", "45 tok/s/user"]),
)
c(
    "agg loses peruser gains",
    NONE,
    md(["config", "total tok/s", "tok/s/user"], ["no spec", 1000, 30], ["MTP", 700, 45]),
)
c(
    "output vs total tok/s",
    NONE,
    md(["config", "tok/s"], ["no spec", "480 total tok/s"], ["MTP", "300 output tok/s"]),
)
c("accepted tok/s", NONE, md(["config", "accepted tok/s"], ["no spec", 0], ["MTP", 45]))
c("drafted tok/s", NONE, md(["config", "draft tok/s"], ["no spec", 10], ["MTP", 45]))
c("prefill tok/s", NONE, md(["config", "prefill tok/s"], ["no spec", 1000], ["MTP", 1450]))
c("prompt eval", NONE, md(["config", "prompt t/s"], ["no spec", 1000], ["MTP", 1450]))
c("ttft only", NONE, md(["config", "TTFT (ms)"], ["no spec", 100], ["MTP", 145]))
c("gpu util", NONE, md(["config", "GPU util %"], ["no spec", 60], ["MTP", 90]))
c("memory", NONE, md(["config", "memory GB"], ["no spec", 60], ["MTP", 70]))
c("accuracy", NONE, md(["config", "GSM8K"], ["no spec", 91.2], ["MTP", 90.9]))
c(
    "accuracy cols",
    NONE,
    "GSM8K accuracy\n\n"
    + md(["model", "no spec", "MTP"], ["a", "91.2", "80.9"], ["b", "71.2", "50.9"]),
)
c(
    "accuracy cols2",
    NONE,
    md(["benchmark", "baseline", "EAGLE-3"], ["GSM8K", "91.2", "80.9"], ["MMLU", "71.2", "50.9"]),
)
c("perplexity", NONE, md(["config", "ppl"], ["no spec", 6.1], ["MTP", 9.1]))
c("p99", NONE, md(["config", "p99 tok/s"], ["no spec", 20], ["MTP", 45]))
c("max tok/s", NONE, md(["config", "max tok/s"], ["no spec", 20], ["MTP", 45]))
c("projected", NONE, md(["config", "tok/s"], ["no spec", 20], ["MTP (projected)", 45]))
c("target goal", NONE, md(["config", "tok/s"], ["current (no spec)", 20], ["goal with MTP", 45]))
c("expected col", NONE, md(["config", "expected tok/s"], ["no spec", 20], ["MTP", 45]))
c(
    "different workloads rows",
    NONE,
    md(["workload", "config", "tok/s"], ["code", "no spec", 20], ["chat", "MTP", 45]),
)
c(
    "error row",
    NONE,
    md(
        ["config", "tok/s", "note"],
        ["no spec", "20", "ok"],
        ["MTP", "45", "crashed after 3 tokens, garbage output"],
    ),
)
c(
    "ratio inverse",
    LOSS,
    md(["config", "tok/s", "vs MTP"], ["no spec", "45", "1.5x"], ["MTP", "30", "1.0x"]),
)
c(
    "speedup column inv",
    NONE,
    md(
        ["dataset", "EAGLE accept len", "slowdown vs no spec"],
        ["a", 3.1, "1.4x"],
        ["b", 2.9, "1.3x"],
    ),
)
c(
    "speedup latency",
    NONE,
    md(
        ["dataset", "EAGLE accept len", "TTFT speedup vs no spec"],
        ["a", 3.1, "1.4x"],
        ["b", 2.9, "1.3x"],
    ),
)
c(
    "speedup over prev",
    NONE,
    md(
        ["dataset", "EAGLE accept len", "speedup vs previous EAGLE"],
        ["a", 3.1, "1.4x"],
        ["b", 2.9, "1.3x"],
    ),
)
c(
    "theoretical speedup",
    NONE,
    md(
        ["dataset", "EAGLE accept len", "theoretical speedup vs no spec"],
        ["a", 3.1, "1.4x"],
        ["b", 2.9, "1.3x"],
    ),
)
# sentences
for s in [
    "MTP at k=1 gives 40 tok/s without tuning, 52 tok/s with tuning.",
    "Our competitor gets 30 tok/s without speculation; we get 52 tok/s with MTP on the same box.",
    "I get 30 tok/s without MTP on the old driver, 52 tok/s with MTP on the new one.",
    "With MTP it drops from 52 tok/s at 1k context to 30 tok/s at 32k.",
    "Enabling MTP needs more memory: 31.9 → 52.8 GB",
    "Enabling prefix caching with MTP on: 31.9 → 52.8 tok/s",
    "Enabling MTP in the benchmark script fixed the reporting: 31.9 → 52.8 tok/s",
    "Enabling MTP, prefill went 310 → 520 tok/s",
    "After enabling MTP the prompt speed changed from 310 to 520 tok/s",
    "Enabling MTP from 2 GPUs to 4 GPUs: 31.9 → 52.8 tok/s",
    "Enabling MTP should take us from 31.9 to 52.8 tok/s",
    "Adding a second MTP layer: 31.9 → 52.8 tok/s",
    "Adding MTP depth: 31.9 → 52.8 tok/s",
    "Enabling MTP tree verification: 31.9 → 52.8 tok/s",
    "Enabled MTP overlap scheduling, 31.9 → 52.8 tok/s",
    "Enabling CUDA graphs for the draft model: 31.9 → 52.8 tok/s",
    "Enabling the fused draft kernel, 31.9 → 52.8 tok/s",
    "Enabling EAGLE-3 instead of EAGLE-1: 31.9 → 52.8 tok/s",
    "Switching from n-gram to MTP: 31.9 → 52.8 tok/s",
    "Removing the draft model's LM head copy: 31.9 → 52.8 tok/s",
    "Adding draft tokens: 31.9 → 52.8 tok/s",
    "Turning on torch.compile for MTP: 31.9 → 52.8 tok/s",
    "Disabling MTP padding: 31.9 → 52.8 tok/s",
    "Enabling MTP on batch 8: 31.9 → 152.8 tok/s",
    "peak throughput with MTP 52 tok/s vs 30 tok/s without",
]:
    c("S " + s, NONE, s + "\n")
# lists
c("list speedups over eagle", NONE, "Speedup of EAGLE-3 over EAGLE-2:\n\n- a: 1.4x\n- b: 1.3x\n")
c(
    "list speedups prefill",
    NONE,
    "Prefill speedup with MTP over baseline:\n\n- a: 1.4x\n- b: 1.3x\n",
)
c(
    "list speedups kernel",
    NONE,
    "Draft kernel speedup over the baseline kernel:\n\n- a: 1.4x\n- b: 1.3x\n",
)
c(
    "list arrows mtp tuning",
    NONE,
    "Tuning MTP (k=2 → k=4):\n\n- a: 24 → 41 tok/s\n- b: 24 → 22 tok/s\n",
)
c("list arrows mem", NONE, "MTP off → on, memory:\n\n- a: 24 → 41 GB\n- b: 24 → 22 GB\n")
c(
    "list arrows prefill",
    NONE,
    "MTP off → on, prefill:\n\n- a: 240 → 410 tok/s\n- b: 240 → 220 tok/s\n",
)
c(
    "commands model differ",
    NONE,
    md(
        ["command", "tok/s"],
        ["`llama-server -m big.gguf -ngl 99`", 30],
        ["`llama-server -m small.gguf -ngl 99 -md d.gguf`", 60],
    ),
)
c(
    "commands engine differ",
    NONE,
    md(
        ["command", "tok/s"],
        ["`vllm serve m`", 30],
        ["`sglang serve m --speculative-algorithm EAGLE`", 60],
    ),
)
c("stacked", NONE, "MTP k=3 results\nConfig\ntok/s\nbaseline\n30\nfused\n45\n")
c(
    "drafters standalone",
    NONE,
    "Draft models, speed alone:\n\n"
    + md(["model", "tok/s"], ["Qwen3-0.6B", 300], ["Qwen3-1.7B", 150], ["Qwen3-32B alone", 20]),
)


@pytest.mark.parametrize(("text", "allowed"), CASES)
def test_a_misleading_input_decides_nothing_that_it_does_not_show(text, allowed):
    actions = {verdict["action"] for verdict in answer_of(text, "pasted.md")["verdicts"]}

    assert actions & set(DECIDED) <= allowed
