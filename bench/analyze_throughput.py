"""`analyze` on log text: at least 20 MB/s and constant memory, for a usual and a dense vLLM log.

The bound holds for the usual log, in processor time: on a busy machine the clock measures the
neighbours. Run: python bench/analyze_throughput.py [--megabytes 200]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from specscope.analyze.collect import analyze

MUST_REACH_MB_S = 20.0


def statistics_lines() -> Iterator[str]:
    """Nothing but statistics: the densest log there is."""
    n = 0
    while True:
        n += 1
        clock = f"{1 + n // 8640 % 12:02d}-{1 + n // 86400 % 28:02d} " + time.strftime(
            "%H:%M:%S", time.gmtime(10 * n)
        )
        accepted, drafts = 150, 129
        head = f"(APIServer pid=17303) INFO {clock}"
        rate = (accepted + drafts) / 10
        yield (
            f"{head} [loggers.py:335] Engine 000: Avg prompt throughput: 225.3 tokens/s, "
            f"Avg generation throughput: {rate:.1f} tokens/s, Running: 3 reqs, Waiting: 0 reqs, "
            "GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%\n"
            f"{head} [metrics.py:120] SpecDecoding metrics: Mean acceptance length: "
            f"{1 + accepted / drafts:.2f}, Accepted throughput: {accepted / 10:.2f} tokens/s, "
            f"Drafted throughput: {3 * drafts / 10:.2f} tokens/s, Accepted: {accepted} tokens, "
            f"Drafted: {3 * drafts} tokens, Per-position acceptance rate: 0.543, 0.357, 0.264, "
            f"Avg Draft acceptance rate: {100 * accepted / drafts / 3:.1f}%\n"
        )


def usual_lines() -> Iterator[str]:
    """A server's log: twenty request lines to a pair of statistics lines."""
    for pair in statistics_lines():
        yield pair
        for port in range(20):
            request = f'10.0.0.7:{40000 + port} - "POST /v1/completions HTTP/1.1" 200 OK'
            yield f"(APIServer pid=17303) INFO:     {request}\n"


def measure(lines: Iterator[str], megabytes: int) -> tuple[float, float, float, int]:
    """(MB/s by the clock and by processor time, peak memory above the start in MB, drafts)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vllm.log"
        size = 0
        with path.open("w") as file:
            while size < megabytes << 20:
                size += file.write(next(lines))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start, busy = time.perf_counter(), time.process_time()
        result = analyze([str(path)])
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    drafts = result.totals.drafts if result.totals and result.totals.drafts else 0
    return size / 1e6 / seconds, size / 1e6 / busy, after - before, drafts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    megabytes = parser.parse_args().megabytes
    reached = False
    for name, lines in (("usual", usual_lines()), ("statistics only", statistics_lines())):
        clock, cpu, memory, drafts = measure(lines, megabytes)
        reached |= name == "usual" and cpu >= MUST_REACH_MB_S
        print(f"{name:16} {cpu:6.1f} MB/s processor time, {clock:.1f} by the clock, ", end="")
        print(f"+{memory:.0f} MB peak, {drafts} drafts")
    print(f"must reach {MUST_REACH_MB_S:.0f} MB/s: {'yes' if reached else 'NO'}")
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
