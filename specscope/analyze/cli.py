"""`specscope analyze PATH... | URL`: the answer as a page or as JSON."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter, _SubParsersAction

from specscope.analyze import render
from specscope.analyze.collect import analyze
from specscope.analyze.live import watch
from specscope.errors import ExitCode, UsageError
from specscope.readers.codes import CODES
from specscope_hook.settings import complaints

_READS = """\
reads, by content and through gzip: vLLM (V0, V1), SGLang and llama.cpp server logs;
Prometheus text of vLLM, SGLang, llama.cpp, TensorRT-LLM and dcgm-exporter (one
scrape, or two and their difference); TensorRT-LLM iteration JSON; results of
`vllm bench serve`, SGLang bench_serving, guidellm and AIPerf; answer files of
Spec-Bench and EAGLE; per-request metrics;
PyTorch/Kineto traces; Nsight Systems sqlite and cuda_gpu_trace CSV; nvidia-smi CSV;
a benchmark table as CSV, Markdown or text; a pasted issue; ClickHouse error lines.
"""


def add_parser(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    """Describe the verb."""
    parser = subparsers.add_parser(
        "analyze",
        help="a verdict from logs, metrics and traces",
        description="Is speculative decoding paying here, and if not, why not?\n\n" + _READS,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH|URL", help="files, directories, or one /metrics URL"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, schema specscope.analysis/1"
    )
    parser.add_argument("--codes", action="store_true", help="list the finding codes and remedies")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time to poll a URL (default: 60)"
    )
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between two polls (default: 5)"
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> ExitCode:
    """Analyse and write to standard output.

    Returns UNSETTLED if no verdict settles anything, DONE otherwise. Raises InputError if no input
    could be read, UsageError for invalid arguments.
    """
    for complaint in complaints(os.environ):  # it reads none of them, so it goes on
        sys.stderr.write(f"specscope analyze: {complaint}\n")
    if args.codes:
        found = [{"code": name, **code._asdict()} for name, code in CODES.items()]
        sys.stdout.write(json.dumps(found, indent=1) + "\n" if args.json else render.codes())
        return ExitCode.DONE
    if not args.paths:
        raise UsageError("give a log, a scrape, a trace, a benchmark file, a directory or a URL")
    urls = [path for path in args.paths if path.startswith(("http://", "https://"))]
    if urls and len(args.paths) > 1:
        raise UsageError("one URL at a time, without files")
    if urls and not 0 < args.every <= args.seconds:
        raise UsageError("--every must be above 0 and at most --seconds")
    if urls:
        args.progress.stage(f"polling {urls[0]} for {args.seconds:g} s\n")
    analysis = watch(urls[0], args.seconds, args.every) if urls else analyze(args.paths)
    if args.json:
        sys.stdout.write(json.dumps(analysis.as_json(), indent=1, allow_nan=False) + "\n")
    else:
        sys.stdout.write(render.page(analysis))
    return ExitCode.of_answer(any(one.action.settles for one in analysis.verdicts))
