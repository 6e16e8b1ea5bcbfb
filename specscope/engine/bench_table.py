"""The bench as text."""


def table(result: dict[str, object]) -> str:
    """The cells as text, one line each."""
    head = (
        f"{'class':8}{'drafter':8}{'batch':>6}{'context':>8}{'k':>3}{'tok/s':>9}{'speedup':>9}"
        f"{'tok/round':>10}{'catchup':>8}{'draft':>8}{'verify':>8}{'sample':>8}{'idle':>8}"
        f"{'GB/s':>7}{'of copy':>8}"
    )
    lines = [f"copy bandwidth {result['copy_gb_s']:.1f} GB/s; times in ms a round", head]
    cells = result["cells"]
    assert isinstance(cells, list)
    for c in cells:
        speedup = "" if c["speedup"] is None else f"{c['speedup']:.2f}x"
        parts = "".join(
            f"{c[f'{name}_us'] / 1e3:8.2f}"
            for name in ("catchup", "draft", "verify", "sample", "idle")
        )
        lines.append(
            f"{c['label']:8}{c['drafter']:8}{c['batch']:6}{c['context']:8}{c['k']:3}"
            f"{c['tokens_per_s']:9.0f}{speedup:>9}{c['tokens_per_round']:10.2f}{parts}"
            f"{c['achieved_gb_s']:7.1f}{c['of_copy']:8.0%}"
        )
    return "\n".join(lines)
