"""`specscope engine`: train the bundled pair, measure the engine, serve it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Describe the verb and its three commands."""
    parser: ArgumentParser = subparsers.add_parser(
        "engine", help="the reference engine: serve, bench, train"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_train(commands)
    _add_bench(commands)
    _add_serve(commands)


def train(args: Namespace) -> int:
    """Rebuild the pair, or a pair's draft head, from text on this machine."""
    import torch

    from specscope.engine.pair import check_hashes
    from specscope.engine.train.build import build_head, build_pair
    from specscope.engine.train.corpus import collect, own_documents

    documents = collect(args.docs, args.stdlib)
    if args.head_of is None:
        build_pair(documents, own_documents(), args.out, _say)
    else:
        check_hashes(args.head_of)
        torch.set_num_threads(args.threads)
        build_head(documents, args.head_of, args.out, _say)
    _print(f"wrote {args.out}")
    return 0


def bench(args: Namespace) -> int:
    """Measure and print a table, or JSON."""
    import torch

    from specscope.engine.bench.bench import Plan, table
    from specscope.engine.bench.bench import bench as measure

    torch.set_num_threads(args.threads)
    if args.acceptance:
        return _bench_acceptance(args)
    pair = _pair(args)
    plan = Plan(
        tuple(args.batch), tuple(args.context), tuple(args.k), tuple(args.drafter or pair.drafters),
        tuple(args.label), args.tokens, args.temperature, args.repeats,
    )  # fmt: skip
    result = measure(pair, plan, args.device, args.graphs, args.progress)
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    _print(json.dumps(result) if args.json else table(result))
    return 0


def _bench_acceptance(args: Namespace) -> int:
    from dataclasses import asdict

    from specscope.engine.bench.acceptance import acceptance_table, measure
    from specscope.engine.errors import BadSetting
    from specscope.engine.pair import bundled_prompts

    pair, cells = _pair(args), []
    for done, label in enumerate(args.label):
        args.progress("classes", done, len(args.label))
        prompts = [prompt for prompt in bundled_prompts() if prompt.label == label]
        if not prompts:
            raise BadSetting(f"unknown class {label!r}")
        for drafter in args.drafter or pair.drafters:
            if drafter == "none":
                continue
            cells += measure(pair, prompts[: max(args.batch)], args.k, drafter)
    args.progress("classes", len(args.label), len(args.label))
    result = [asdict(cell) for cell in cells]
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    _print(json.dumps(result) if args.json else acceptance_table(cells))
    return 0


def serve(args: Namespace) -> int:
    """Answer OpenAI-compatible requests until a signal to end."""
    import torch

    from specscope.engine.server.server import serve as run_server
    from specscope.engine.server.service import Settings

    torch.set_num_threads(args.threads)
    usual = 2048 if args.device.startswith("cuda") else 256
    settings = Settings(
        host=args.host, port=args.port, k=args.k, slots=args.slots, capacity=args.capacity,
        prefill_tokens=usual if args.prefill_tokens is None else args.prefill_tokens,
        cache_tokens=args.cache_tokens,
        drafter=args.drafter, class_header=args.class_header, graphs=args.graphs,
    )  # fmt: skip
    run_server(_pair(args), settings, args.device, _say)
    return 0


def _add_train(commands: Any) -> None:
    parser = commands.add_parser("train", help="rebuild the bundled pair, half an hour or more")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the pair into")
    parser.add_argument(
        "--docs",
        type=Path,
        default=Path("/usr/share/doc/python3.11/html/_sources"),
        help="reST sources of Python's documentation (Debian: python3.11-doc)",
    )
    parser.add_argument(
        "--stdlib", type=Path, default=Path("/usr/lib/python3.11"), help="Python's library"
    )
    parser.add_argument(
        "--head-of", type=Path, metavar="PAIR",
        help="train only a draft head, for the target of the pair in this folder; run it again "
        "with the same --out to continue an interrupted training",
    )  # fmt: skip
    parser.add_argument(
        "--threads",
        type=_count,
        default=1,
        help="CPU threads for training the head; equal numbers give equal weights",
    )
    parser.set_defaults(run=train)


def _add_bench(commands: Any) -> None:
    parser = commands.add_parser("bench", help="speed over batch, context, k and drafter")
    _add_models(parser)
    many: dict[str, Any] = {"nargs": "+"}
    parser.add_argument(
        "--batch", type=_count, default=[1, 8, 32], help="sequences at once", **many
    )
    parser.add_argument("--context", type=_count, default=[64], help="prompt tokens", **many)
    parser.add_argument("--k", type=_natural, default=[2, 4], help="draft lengths", **many)
    parser.add_argument(
        "--drafter", help="model, eagle or ngram (default: all that the pair has)", **many
    )
    parser.add_argument(
        "--label", default=["prose", "python", "sql", "json"], help="classes of prompts", **many
    )
    parser.add_argument("--tokens", type=_count, default=64, help="new tokens per request")
    parser.add_argument("--temperature", type=float, default=1.0, help="temperature of sampling")
    parser.add_argument("--repeats", type=_count, default=2, help="runs of each cell")
    parser.add_argument(
        "--acceptance", action="store_true",
        help="measure acceptance instead of speed; the largest --batch is the number of held-out "
        "prompts per class, and temperature, tokens and context are fixed",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=bench)


def _add_serve(commands: Any) -> None:
    parser = commands.add_parser("serve", help="OpenAI-compatible server")
    _add_models(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on")
    parser.add_argument("--k", type=_natural, default=4, help="longest draft; 0 is target-only")
    parser.add_argument("--slots", type=_count, default=16, help="sequences at once")
    parser.add_argument("--capacity", type=_count, default=512, help="tokens of one sequence")
    parser.add_argument(
        "--prefill-tokens", type=_count,
        help="most prompt tokens that are prefilled between two rounds (default: 2048 on a GPU, "
        "256 on a CPU)",
    )  # fmt: skip
    parser.add_argument(
        "--cache-tokens", type=_count,
        help="most tokens in all caches together; if they are full, the engine preempts the "
        "youngest sequence (default: no limit)",
    )  # fmt: skip
    parser.add_argument(
        "--drafter", choices=("model", "eagle", "ngram", "none"), default="model",
        help="draft model, draft head on the target's hidden states, n-gram lookup, or none",
    )  # fmt: skip
    parser.add_argument(
        "--class-header", default="x-specscope-class", help="header that names a request's class"
    )
    parser.set_defaults(run=serve)


def _add_models(parser: ArgumentParser) -> None:
    parser.add_argument("--pair", type=Path, help="folder that `engine train` wrote")
    parser.add_argument("--target", type=Path, help="Hugging Face checkpoint to decode with")
    parser.add_argument("--draft", type=Path, help="Hugging Face checkpoint to draft with")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"),
        help="type of the weights (default: bfloat16 on a GPU, float32 on a CPU)",
    )  # fmt: skip
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=_count, default=1, help="CPU threads")
    parser.add_argument(
        "--no-graphs", dest="graphs", action="store_const", const=False,
        help="do not use CUDA graphs on a GPU",
    )  # fmt: skip


def _pair(args: Namespace) -> Any:
    import torch

    from specscope.engine.pair import load_bundled, load_checkpoints, load_pair

    on_gpu = args.device.startswith("cuda")
    dtype = getattr(torch, args.dtype or ("bfloat16" if on_gpu else "float32"))
    if args.target is not None:
        return load_checkpoints(args.target, args.draft, dtype, args.device)
    if args.pair is not None:
        return load_pair(args.pair, dtype, args.device)
    return load_bundled(dtype, args.device)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _natural(text: str) -> int:
    """A whole number from 0 on. Raises ArgumentTypeError."""
    return _at_least(0, text)


def _count(text: str) -> int:
    """A whole number from 1 on. Raises ArgumentTypeError."""
    return _at_least(1, text)


def _at_least(least: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ArgumentTypeError(f"{text!r} is no whole number from {least} on")
    return number
