"""What only a GPU can tell, in one run of a few minutes: each check with figure and bar.

    python bench/engine_gpu.py [--out FILE]           on the first GPU; see bench/gpu.sh
    python bench/engine_gpu.py --small [--out FILE]   on the CPU, to see that the script works

FILE is written anew after each check, so that a run that is cut short has told what it found.
Exits 0 if all checks that have a budget hold, 1 if one fails, 2 without a GPU. Has not run on one.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from engine_gpu_checks import all_checks, free_memory
from engine_gpu_place import Check, Place

from specscope.engine.pair import bundled_prompts, load_bundled


def run(place: Place, minutes: float, out: Path | None) -> list[Check]:
    """All checks for which there is time, printed and written as they come."""
    found: list[Check] = []
    until = time.monotonic() + 60 * minutes
    for name, check in all_checks(place):
        began = time.monotonic()
        if began > until:
            results = [Check(name, "skipped: no time left", "runs", False)]
        else:
            try:
                result = check()
                results = result if isinstance(result, list) else [result]
            except ImportError as error:
                results = [Check(name, f"skipped: needs {error.name}", "runs")]
            except Exception as error:  # the other checks still tell something
                results = [Check(name, f"{type(error).__name__}: {error}", "runs", False)]
        free_memory(place)
        found += results
        for one in results:
            print(one, flush=True)
        print(f"     [{name}: {time.monotonic() - began:.0f} s]", flush=True)
        if out:
            out.write_text(json.dumps(summary(place, found), indent=2, default=str) + "\n")
    return found


def summary(place: Place, found: list[Check]) -> dict[str, object]:
    """The checks so far, fit for JSON."""
    return {
        "schema": "specscope.engine.gpu/1",
        "device": torch.cuda.get_device_name() if place.gpu else "cpu",
        "torch": torch.__version__,
        "passed": sum(check.holds is True for check in found),
        "failed": sum(check.holds is False for check in found),
        "checks": [asdict(check) for check in found],
    }


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--small", action="store_true", help="on the CPU")
    arguments.add_argument("--out", type=Path, help="write the checks as JSON here")
    arguments.add_argument("--minutes", type=float, default=5.5, help="no check begins later")
    args = arguments.parse_args()
    if not args.small and not torch.cuda.is_available():
        print("NO GPU: nothing was measured; --small shows on a CPU that the script works")
        return 2
    device = "cpu" if args.small else "cuda"
    torch.set_num_threads(1)
    pair = load_bundled(device=device)
    prompts = [pair.encode(prompt.text) for prompt in bundled_prompts()[::16]]
    place = Place(device, pair, prompts[: 4 if args.small else 16], 16 if args.small else 96)
    found = run(place, args.minutes, args.out)
    passed, failed = (sum(check.holds is wanted for check in found) for wanted in (True, False))
    print(f"CHECKS: {passed} passed, {failed} failed, {len(found) - passed - failed} not judged")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
