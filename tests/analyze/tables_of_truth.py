"""Tables around known truths: what ran, with and without speculation, and how fast, is chosen
first; then a person's table is drawn around it, with traps. Nothing of the readers is used here.

A trap is a speculating arm that is called a baseline, a row that was never run, a mean over
classes, a prefill column that runs the other way, another engine in a name. A verdict is false if
the truth does not hold it, and so is a figure that no run gave.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

DECIDED = ("keep", "set_k", "disable", "no_difference", "route")
DRAFTERS = (
    "MTP",
    "EAGLE3",
    "eagle-3",
    "n-gram",
    "DFlash",
    "draft model",
    "Medusa",
    "suffix decoding",
)
OFF_NAMES = (
    *(
        "no spec",
        "none",
        "vanilla",
        "no speculation",
        "without {d}",
        "w/o {d}",
        "{d} off",
        "{d}=off",
    ),
    *("target only", "autoregressive", "no_spec", "spec decode disabled", "no {d}"),
)
WORD_NAMES = ("baseline", "Baseline", "base", "reference")
NEUTRAL = (
    "tuned",
    "v2",
    "candidate",
    "new kernel",
    "patched",
    "after",
    "main",
    "config B",
    "optimised",
)
ON_NAMES = (
    "{d}",
    "{d} k={k}",
    "with {d}",
    "{d} on",
    "{d}=on",
    "{d} (k={k})",
    "static_k{k}",
    "{d}, k={k}",
)
TRAP_NAMES = (
    "{d} baseline",
    "baseline ({d})",
    "baseline (with {d})",
    "{d} (base)",
    "main ({d}, k={k})",
)
DATASETS = ("gsm8k", "humaneval", "mt-bench", "ShareGPT", "summaries", "chat", "code", "math500")
MODELS = ("Qwen3-8B", "Llama-3.1-70B", "GLM-4.5-Air", "gemma-27B")
SPEED_HEADERS = (
    "tok/s",
    "Output tok/s",
    "decode tok/s",
    "Throughput (tok/s)",
    "tokens/s",
    "tps",
    "avg tok/s",
)
TIME_HEADERS = ("TPOT (ms)", "Mean TPOT (ms)", "ms/token", "tpot_ms")
ARM_HEADERS = ("config", "arm", "mode", "setup", "method", "Configuration", "variant")
K_HEADERS = ("k", "num_speculative_tokens", "n_max", "draft length", "gamma", "spec-draft-n-max")
SWITCH_HEADERS = (
    "MTP",
    "spec decode",
    "Speculative decoding",
    "speculation",
    "EAGLE",
    "draft model",
)
RATE_HEADERS = ("acceptance", "accept rate", "Acceptance rate (%)", "draft acceptance")
LENGTH_HEADERS = ("accept len", "mean acceptance length", "tokens/round", "acc_len")
CAPTIONS = ("Results on one H100:", "### Throughput", "Same server, same prompts.", "",
"**Numbers**",
            "It was slower than I expected:", "Decode speed, batch 1:")  # fmt: skip
PLANNED = ("(projected)", "(estimated)", "*(not run yet)*", "(theoretical)", "(expected, untested)")
ENGINES = ("vLLM", "SGLang", "llama.cpp", "TensorRT-LLM")
PRECISIONS = ("BF16", "FP8", "INT4", "Q4_K_M")


@dataclass
class Arm:
    """One thing that ran in one class; `speeds` are tok/s, one a run."""

    name: str
    speculates: bool
    k: int | None
    klass: str
    speeds: list[float]
    rate: float | None = None
    length: float | None = None
    silent: bool = False
    """Nothing in the table says whether it speculates."""
    ran: bool = True
    marks: list[str] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return sum(self.speeds) / len(self.speeds)


@dataclass
class Truth:
    """A drawn table and what is true of it."""

    text: str
    name: str
    arms: list[Arm]
    comparable: bool
    classes: list[str]
    seed: int
    layout: str
    outcomes: bool
    """The table gives an acceptance for each arm that drafted."""

    def of(self, klass: str) -> tuple[list[Arm], list[Arm]]:
        """(target-only runs, speculating runs) of a class that were run."""
        own = [arm for arm in self.arms if arm.klass == klass and arm.ran]
        return [a for a in own if not a.speculates], [
            a for a in own if a.speculates and not a.silent
        ]


def make(seed: int) -> Truth:
    """The table of a seed."""
    rng = random.Random(seed)
    drafter = rng.choice(DRAFTERS)
    plan = _Plan(rng, drafter)
    arms = plan.arms()
    layout = rng.choice(_LAYOUTS)
    if plan.several_runs and layout in ("lines", "blocks"):
        layout = "markdown"
    if layout in ("columns", "metrics", "lines", "blocks") and plan.needs_rows:
        layout = rng.choice(("markdown", "csv", "grid", "aligned"))
    text, name = _draw(rng, plan, arms, layout)
    outcomes = (plan.rates or plan.lengths) and layout not in (
        "columns",
        "metrics",
        "lines",
        "blocks",
    )
    return Truth(text, name, arms, plan.comparable, plan.classes, seed, layout, outcomes)


class _Plan:
    """What is planted: names, columns that tell, traps."""

    def __init__(self, rng: random.Random, drafter: str) -> None:
        self.rng, self.drafter = rng, drafter
        self.dimension = rng.choice(("none", "concurrency", "dataset", "context", "model", "batch"))
        values = {
            "none": [""],
            "concurrency": rng.sample(["1", "4", "16", "64"], rng.randint(2, 3)),
            "context": rng.sample(["512", "2048", "8192"], 2),
            "batch": rng.sample(["1", "8", "32"], 2),
            "dataset": rng.sample(DATASETS, rng.randint(2, 3)),
            "model": rng.sample(MODELS, 2),
        }
        self.classes = values[self.dimension]
        self.with_base = rng.random() < 0.72
        self.trap_baseline = rng.random() < 0.35
        self.k_column = rng.random() < 0.35
        self.switch_column = rng.random() < 0.25
        self.rates = rng.random() < 0.45
        self.lengths = rng.random() < 0.3
        self.several_runs = rng.random() < 0.25
        self.projected = rng.random() < 0.15
        self.mean_row = self.dimension == "dataset" and rng.random() < 0.3
        self.prefill = rng.random() < 0.25
        self.delta = rng.random() < 0.2
        self.unlike = rng.random() < 0.1
        self.comparable = not self.unlike
        self.time = rng.random() < 0.2
        self.neutral_extra = rng.random() < 0.2
        self.hidden = rng.random() < 0.5
        self.needs_rows = self.k_column or self.switch_column or self.projected or self.mean_row
        self.needs_rows = (
            self.needs_rows or self.rates or self.lengths or self.prefill or self.delta
        )

    def arms(self) -> list[Arm]:
        rng = self.rng
        ks = rng.sample([1, 2, 3, 4, 5, 7], rng.randint(1, 3))
        base_name = rng.choice(OFF_NAMES + WORD_NAMES).format(d=self.drafter)
        column = self.k_column or self.switch_column
        if self.with_base and column and rng.random() < 0.3:
            base_name = rng.choice(NEUTRAL)  # only its column says that it does not speculate
        names = []
        for k in ks:
            evident = column or self.rates or self.lengths
            pool = ON_NAMES + (TRAP_NAMES if self.trap_baseline else ())
            if evident and self.trap_baseline and rng.random() < 0.5:
                pool = WORD_NAMES + NEUTRAL + ("baseline (as deployed)", "old baseline")
            name = rng.choice(pool).format(d=self.drafter, k=k)
            names.append(
                name if name not in names and name != base_name else f"{self.drafter} k={k}"
            )
        if len({n.lower() for n in names}) < len(names):
            names = [f"{self.drafter} k={k}" for k in ks]
        engines = rng.sample(ENGINES, 2) if self.unlike else []
        precisions = rng.sample(PRECISIONS, 2) if self.unlike and rng.random() < 0.5 else []
        ratios = [
            rng.choice((0.31, 0.55, 0.72, 0.84, 0.97, 1.0, 1.04, 1.16, 1.4, 2.1, 2.9)) for _ in ks
        ]
        found = []
        for klass in self.classes:
            base = rng.choice((14.2, 57.3, 131.0, 640.5, 1820.0, 2711.7)) * rng.uniform(0.8, 1.2)
            runs = rng.randint(2, 4) if self.several_runs else 1
            if self.with_base:
                said = f"{base_name} ({engines[0]})" if engines else base_name
                said = f"{said} {precisions[0]}" if precisions else said
                found.append(Arm(said, False, 0, klass, self._runs(base, runs)))
            for k, name, ratio in zip(ks, names, ratios, strict=True):
                speed = base * ratio * rng.uniform(0.99, 1.01)
                rate = round(rng.uniform(0.3, 0.9), 3)
                said = f"{name} ({engines[1]})" if engines else name
                said = f"{said} {precisions[1]}" if precisions else said
                arm = Arm(
                    said, True, k, klass, self._runs(speed, runs), rate, round(1 + k * rate, 2)
                )
                found.append(arm)
            if self.neutral_extra:
                extra = base * rng.choice((0.4, 1.8, 3.0))
                hidden = self.hidden and not (self.rates or self.lengths)
                name = f"kernel X ({engines[0]})" if engines else "kernel X"
                arm = Arm(name, hidden, None, klass, self._runs(extra, runs), silent=True)
                found.append(arm)
            if self.projected:
                mark = rng.choice(PLANNED)
                ahead = Arm(f"{self.drafter} k=9 {mark}", True, 9, klass, [base * 3.7], ran=False)
                found.append(ahead)
        for arm in found:
            arm.speeds = [float(_shown(speed)) for speed in arm.speeds]
        return found

    def _runs(self, mean: float, runs: int) -> list[float]:
        return [mean * self.rng.uniform(0.97, 1.03) for _ in range(runs)]


def _shown(speed: float) -> str:
    return f"{speed:.1f}" if speed < 1000 else f"{speed:.0f}"


_LAYOUTS = (
    "markdown",
    "markdown",
    "markdown",
    "csv",
    "tsv",
    "grid",
    "aligned",
    "columns",
    "metrics",
    "lines",
    "blocks",
)


def _draw(rng: random.Random, plan: _Plan, arms: list[Arm], layout: str) -> tuple[str, str]:
    if layout == "columns":
        return _columns(rng, plan, arms), "table.md"
    if layout == "metrics":
        return _metrics(rng, plan, arms), "table.md"
    if layout == "lines":
        return _lines(rng, plan, arms), "notes.txt"
    if layout == "blocks":
        return _blocks(rng, plan, arms), "blocks.md"
    header, rows = _rows(rng, plan, arms, layout)
    if layout == "csv":
        return _csv(header, rows, ","), "bench.csv"
    if layout == "tsv":
        return _csv(header, rows, "\t"), "bench.tsv"
    caption = rng.choice(CAPTIONS)
    body = {"markdown": _markdown, "grid": _grid, "aligned": _aligned}[layout](rng, header, rows)
    return f"{caption}\n\n{body}\n", "table.md"


def _rows(
    rng: random.Random, plan: _Plan, arms: list[Arm], layout: str
) -> tuple[list[str], list[list[str]]]:
    plain = layout in ("csv", "tsv")
    head = {"concurrency": ("concurrency", "conc", "max_concurrency"), "dataset": ("dataset",
    "task", "workload"),
            "context": ("context", "ctx", "input_len"), "model": ("model",), "batch": ("batch",
            "bs", "batch_size"),
            "none": ("",)}  # fmt: skip
    columns: list[tuple[str, dict[int, str]]] = []
    if plan.dimension != "none":
        columns.append((rng.choice(head[plan.dimension]), {id(a): a.klass for a in arms}))
    columns.append((rng.choice(ARM_HEADERS), {id(a): a.name for a in arms}))
    if plan.k_column:
        none = rng.choice(("0", "-", "—", "0", "n/a"))
        columns.append(
            (
                rng.choice(K_HEADERS),
                {id(a): str(a.k) if a.k else ("" if a.silent else none) for a in arms},
            )
        )
    if plan.switch_column:
        on, off = rng.choice(
            (("on", "off"), ("yes", "no"), ("✅", "❌"), ("enabled", "disabled"), ("True", "False"))
        )
        columns.append(
            (
                rng.choice(SWITCH_HEADERS),
                {id(a): "" if a.silent else (on if a.speculates else off) for a in arms},
            )
        )
    if plan.prefill:
        columns.append(
            (rng.choice(("prefill tok/s", "TTFT (ms)", "p99 TPOT (ms)", "prompt tok/s")),
             {id(a): _shown(9000 / (1 + a.speed)) for a in arms})
        )  # fmt: skip
    notation = rng.choice(("plain", "unit", "bold", "approx", "grouped", "remark"))
    header = rng.choice(SPEED_HEADERS)
    if plan.time and not plan.several_runs:
        header = rng.choice(TIME_HEADERS)
        cells = {id(a): f"{1000 / a.speed:.3f}" for a in arms}
    elif plan.several_runs and not plain:
        header += f" ({len(arms[0].speeds)} runs)"
        cells = {id(a): rng.choice((" / ", ", ")).join(map(_shown, a.speeds)) for a in arms}
    else:
        cells = {id(a): _noted(rng, a.speed, notation, plain) for a in arms}
    columns.append((header, cells))
    if plan.delta:
        columns.append(
            (
                rng.choice(("Δ", "vs main", "change")),
                {id(a): rng.choice(("+3%", "-2%", "0%")) for a in arms},
            )
        )
    if plan.rates:
        percent = rng.random() < 0.7
        pool = RATE_HEADERS if percent else [name for name in RATE_HEADERS if "%" not in name]
        columns.append(
            (rng.choice(pool),
             {id(a): (f"{a.rate * 100:.1f}%" if percent else f"{a.rate:.3f}") if a.rate else
             rng.choice(("-", "n/a", "—"))
              for a in arms})
        )  # fmt: skip
    if plan.lengths:
        columns.append(
            (
                rng.choice(LENGTH_HEADERS),
                {id(a): f"{a.length:.2f}" if a.length else "-" for a in arms},
            )
        )
    order = list(arms)
    if rng.random() < 0.5:
        rng.shuffle(order)
    rows = [[cells[id(a)] for _, cells in columns] for a in order]
    if plan.several_runs and plain:  # one row a run
        place = next(i for i, (name, _) in enumerate(columns) if name == header)
        rows = []
        for arm in order:
            for speed in arm.speeds:
                row = [cells[id(arm)] for _, cells in columns]
                row[place] = _shown(speed)
                rows.append(row)
    if plan.mean_row:
        mean = [""] * len(columns)
        mean[0] = rng.choice(("mean", "**mean**", "Average", "total", "geomean"))
        mean[[n for n, _ in columns].index(header)] = _shown(
            sum(a.speed for a in arms) / len(arms) * 1.3
        )
        rows.append(mean)
    return [name for name, _ in columns], rows


def _noted(rng: random.Random, speed: float, notation: str, plain: bool) -> str:
    text = _shown(speed)
    if plain:
        return text
    return {
        "plain": text,
        "unit": f"{text} tok/s",
        "bold": f"**{text}**" if rng.random() < 0.5 else text,
        "approx": f"~{text}",
        "grouped": f"{float(text):,.1f}" if speed >= 1000 else text,
        "remark": f"{text} ({rng.choice(('n=3', 'median', 'warm'))})",
    }[notation]


def _csv(header: list[str], rows: list[list[str]], mark: str) -> str:
    def cell(text: str) -> str:
        return f'"{text}"' if mark in text or '"' in text else text

    return "\n".join(mark.join(map(cell, row)) for row in [header, *rows]) + "\n"


def _markdown(rng: random.Random, header: list[str], rows: list[list[str]]) -> str:
    rule = rng.choice(("---", ":---:", "---:"))
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join([rule] * len(header)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _grid(rng: random.Random, header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    bar = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def line(row: list[str]) -> str:
        return "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"

    return "\n".join([bar, line(header), bar.replace("-", "="), *(line(row) for row in rows), bar])


def _aligned(rng: random.Random, header: list[str], rows: list[list[str]]) -> str:
    rows = [[cell or "-" for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(row: list[str]) -> str:
        return "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()

    rule = "  ".join("-" * w for w in widths) if rng.random() < 0.5 else "-" * (sum(widths) + 8)
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def _columns(rng: random.Random, plan: _Plan, arms: list[Arm]) -> str:
    names = list(dict.fromkeys(arm.name for arm in arms))
    first = {"none": "", "dataset": "dataset", "model": "model"}.get(plan.dimension, plan.dimension)
    unit = rng.choice(("header", "cell", "caption"))
    head = [first, *(f"{n} tok/s" if unit == "header" else n for n in names)]
    rows = []
    for klass in plan.classes:
        by_name = {arm.name: arm for arm in arms if arm.klass == klass}
        cells = [_shown(by_name[n].speed) + (" tok/s" if unit == "cell" else "") for n in names]
        rows.append([klass or "run", *cells])
    caption = "Decode tok/s" if unit == "caption" else rng.choice(CAPTIONS)
    return f"{caption}\n\n{_markdown(rng, head, rows)}\n"


def _metrics(rng: random.Random, plan: _Plan, arms: list[Arm]) -> str:
    parts = []
    for klass in plan.classes:
        own = [arm for arm in arms if arm.klass == klass]
        rows = [
            ["Output token throughput (tok/s)", *(_shown(a.speed) for a in own)],
            ["Mean TTFT (ms)", *(_shown(9000 / (1 + a.speed)) for a in own)],
            ["Mean TPOT (ms)", *(f"{1000 / a.speed:.3f}" for a in own)],
        ]
        title = f"### {plan.dimension} {klass}\n\n" if klass else ""
        parts.append(title + _markdown(rng, ["Metric", *(a.name for a in own)], rows))
    return "\n\n".join(parts) + "\n"


def _lines(rng: random.Random, plan: _Plan, arms: list[Arm]) -> str:
    lines = []
    unit = rng.choice(("tok/s", "tokens/s", "t/s", "tps"))
    for klass in plan.classes:
        if klass:
            lines += ["", f"{plan.dimension} {klass}", ""]
        lines += [f"{arm.name}: {_shown(arm.speed)} {unit}" for arm in arms if arm.klass == klass]
    return "\n".join(lines) + "\n"


def _blocks(rng: random.Random, plan: _Plan, arms: list[Arm]) -> str:
    klass = plan.classes[0]
    plan.classes = plan.classes[:1]
    parts = []
    for arm in arms:
        if arm.klass != klass:
            continue
        grid = _grid(rng, ["Key", "Value"], [["Output token throughput (tok/s)", _shown(arm.speed)],
                                             ["Number of concurrency", "6"]])  # fmt: skip
        parts.append(f"{arm.name}:\n```\n{grid}\n```\n")
    return "\n".join(parts)
