"""Texts of figures with what they decide, and by how much: blocks, legends, columns, arrows."""

BLOCKS_AND_LEGENDS = {
    "blocks of figures below their arms": (
        "### Baseline\n- Output tokens/s: 45.2\n- TPOT: 22.1 ms\n\n"
        "### + MTP (k=3)\n- Output tokens/s: 71.9\n- TPOT: 13.9 ms\n- Acceptance rate: 68%\n",
        {"keep"},
        [1.591, 1.59],
    ),
    "blocks of two classes": (
        "## code\n### Baseline\n- Output tokens/s: 45.2\n### MTP\n- Output tokens/s: 71.9\n\n"
        "## prose\n### Baseline\n- Output tokens/s: 45.0\n### MTP\n- Output tokens/s: 38.2\n",
        {"keep", "disable"},
        [1.591, 0.849],
    ),
    "blocks whose baseline accepts drafts": (
        "### Baseline\n- Output tokens/s: 45.2\n- Acceptance rate: 60%\n\n"
        "### MTP tuned\n- Output tokens/s: 71.9\n- Acceptance rate: 68%\n",
        set(),
        [],
    ),
    "blocks of two machines": (
        "### Baseline (A100)\n- Output tokens/s: 45.2\n\n### MTP (H100)\n- Output tokens/s: 71.9\n",
        set(),
        [],
    ),
    "blocks of prefill": (
        "### Baseline\n- Prompt tokens/s: 452\n\n### MTP\n- Prompt tokens/s: 300\n",
        set(),
        [],
    ),
    "arms as rows, loads as columns": (
        "| | c=1 | c=8 |\n|---|---|---|\n"
        "| no spec TPOT (ms) | 12 | 16 |\n| EAGLE3 TPOT (ms) | 7 | 20 |\n",
        {"keep", "disable"},
        [1.714, 0.8],
    ),
    "loads as columns, all rows draft": (
        "| | c=1 | c=8 |\n|---|---|---|\n"
        "| MTP1 (tok/s) | 80 | 510 |\n| MTP3 (tok/s) | 150 | 700 |\n",
        set(),
        [],
    ),
    "a column of metrics between class and arms": (
        "| class | metric | baseline | EAGLE |\n|---|---|---|---|\n"
        "| a | TTFT ms | 80 | 150 |\n| a | tok/s | 30 | 20 |\n",
        {"disable"},
        [0.667],
    ),
    "a column of other metrics": (
        "| class | metric | baseline | EAGLE |\n|---|---|---|---|\n"
        "| a | accuracy | 80 | 90 |\n| a | memory GB | 30 | 40 |\n",
        set(),
        [],
    ),
    "off and on below the word": (
        "MTP\n\n| prompt | off | on |\n|---|---|---|\n"
        "| a | 30 tok/s | 45 tok/s |\n| b | 31 tok/s | 44 tok/s |\n",
        {"keep"},
        [1.5, 1.419],
    ),
    "off and on of something else": (
        "MTP k=3 with overlap scheduling\n\n| prompt | off | on |\n|---|---|---|\n"
        "| a | 30 tok/s | 45 tok/s |\n| b | 31 tok/s | 44 tok/s |\n",
        set(),
        [],
    ),
    "with and without something else": (
        "EAGLE k=3: thinking mode\n\n| prompt | without | with |\n|---|---|---|\n"
        "| a | 30 tok/s | 45 tok/s |\n| b | 31 tok/s | 44 tok/s |\n",
        set(),
        [],
    ),
    "off and on of models that draft, below another word": (
        "Chunked prefill\n\n| model | off | on |\n|---|---|---|\n"
        "| Qwen MTP | 30 tok/s | 45 tok/s |\n| GLM MTP | 31 tok/s | 44 tok/s |\n",
        set(),
        [],
    ),
    "rows with more below them": (
        "run              tok/s    note\n"
        "baseline         18.1     plain\n                    chat 18.1  code 18.2\n"
        "mtp k=2          30.0     fast\n                    chat 29.1  code 31.2\n",
        {"keep"},
        [1.657],
    ),
    "a numbered list with a drafter's size": (
        "1. no draft: 22.4 t/s\n2. draft 0.6B, n=8: 31.0 t/s\n3. draft 1.7B, n=8: 20.0 t/s\n",
        {"keep"},
        [1.384, 0.893],
    ),
    "a numbered list of two models": (
        "1. 8B no draft: 82.4 t/s\n2. 70B draft 0.6B: 31.0 t/s\n",
        set(),
        [],
    ),
    "names that lines above explain": (
        "Config A: vanilla decoding\nConfig B: ngram speculative decoding\n\n"
        "| Config | tok/s |\n|---|---|\n| A | 812 |\n| B | 690 |\n",
        {"disable"},
        [0.85],
    ),
    "names that all draft": (
        "Config A: MTP with k of one\nConfig B: MTP with k of three\n\n"
        "| Config | tok/s |\n|---|---|\n| A | 812 |\n| B | 990 |\n",
        set(),
        [],
    ),
    "a ladder of one speed a class": (
        "Decode throughput (tok/s):\n\n| n_max | code | prose |\n|---|---|---|\n"
        "| 0 | 25 | 25 |\n| 2 | 40 | 31 |\n| 8 | 47 | 19 |\n",
        {"keep", "set_k"},
        [1.88, 1.24],
    ),
    "a time per token that fell": (
        "Latency per token dropped from 24.1 ms to 14.9 ms after enabling EAGLE-3.\n",
        {"keep"},
        [1.617],
    ),
    "a time per token that rose": (
        "Latency per token rose from 14.9 ms to 24.1 ms after enabling EAGLE-3.\n",
        {"disable"},
        [0.618],
    ),
    "a time per token after two changes": (
        "Latency per token dropped from 24.1 ms to 14.9 ms after enabling EAGLE-3 and upgrading.\n",
        set(),
        [],
    ),
    "two prints of a client": (
        "no spec\n============ Serving Benchmark Result ============\n"
        "Successful requests:                     100\n"
        "Output token throughput (tok/s):         697.4\n"
        "==================================================\n\n"
        "eagle3 k=3\n============ Serving Benchmark Result ============\n"
        "Successful requests:                     100\n"
        "Output token throughput (tok/s):         981.8\n"
        "==================================================\n",
        {"keep"},
        [1.408],
    ),
    "arms and speeds with an arrow each": (
        "> 8B → 8B MTP: 24.0 → 41.0 tok/s (1.7x)\n> 30B → 30B MTP: 50 → 40 t/s\n",
        {"keep", "disable"},
        [1.708, 0.8],
    ),
    "an arrow to another model": ("> 8B → 30B MTP: 24.0 → 41.0 tok/s\n", set(), []),
    "an arrow between two drafts": ("> 8B MTP1 → 8B MTP3: 24.0 → 41.0 tok/s\n", set(), []),
    "the baseline's speed in a column of its own": (
        "| Pair | Plain t/s | Accept rate | Measured speedup |\n|---|---|---|---|\n"
        "| A + MTP | 18.9 | 0.87 | 1.36x |\n",
        {"keep"},
        [1.36],
    ),
    "changes of backends over their baseline": (
        "| backend | accept rate | decode vs baseline |\n|---|---|---|\n"
        "| A | 36% | -32% (61 vs 90 tok/s) |\n| B | 92% | +128% |\n",
        {"keep", "disable"},
        [0.68, 2.28],
    ),
    "changes of arms over a bare baseline": (
        "| config | accept rate | tok/s vs baseline |\n|---|---|---|\n"
        "| MTP async | 60% | +22% |\n| MTP fused | 61% | +34% |\n",
        set(),
        [],
    ),
    "changes of memory": (
        "| backend | accept rate | memory vs baseline |\n|---|---|---|\n"
        "| A | 60% | +32% |\n| B | 61% | +34% |\n",
        set(),
        [],
    ),
    "an arm named by its options": (
        "- Baseline: 26.7 tok/s\n- With `--spec-type draft-mtp --spec-draft-n-max 2`: 52.5 tok/s\n",
        {"keep"},
        [1.966],
    ),
    "options that set more than a drafter": (
        "- Baseline: 26.7 tok/s\n- With `--spec-type draft-mtp --n-cpu-moe 20`: 52.5 tok/s\n",
        set(),
        [],
    ),
    "seconds that a logger prints": (
        "2026-01-03 00:22:49,788 - INFO - Normal: 0.60s\n"
        "2026-01-03 00:22:49,788 - INFO - Speculative: 0.43s\n"
        "2026-01-03 00:22:49,788 - INFO - Speedup: 1.40x\n",
        {"keep"},
        [1.395],
    ),
    "a name that its sentence goes on from": (
        "We saw 17.4 tps non-MTP versus 27.7 tps MTP which is fine for us and for all our users.\n",
        {"keep"},
        [1.592],
    ),
}
