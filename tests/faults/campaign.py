"""Random faults in the whole pipeline, then a recount: `python campaign.py --faults 1000`.

Real processes: two engines without a model, a sidecar, the service; a proxy between the last two;
small disks of their own for store and spool where this user may mount. A seed decides which
fault comes when. After each episode everything is healed, drained, stopped and recounted by
`check.py`, which shares no code with the product. Prints JSON lines, the last one the sum; exit
code 1 for a violation. `--mutants` plants faults of the product instead, and must find each.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "walk"), str(HERE)]

from kinds import ENGINES, NAMES, Faulty, boot_of  # noqa: E402
from mutants import MUTANTS  # noqa: E402
from waiting import PATIENCE_S  # noqa: E402

PACE_S = 0.35
SETTLING = 3  # patiences: an upgrade on a full disk, and pauses of a sidecar that double
QUIET_S = 20.0  # in which a sidecar reads whatever can be read


class Episode(Faulty):
    """One pipeline, its faults, and its recount."""

    violations: list[str]
    _quiet_since = 0.0

    def run(self, faults: int, pace_s: float) -> None:
        """pace_s: mean time between two faults"""
        self.violations = []
        for name in NAMES:
            self.begin(name)
        self._wait(self.healthy, "the service never started")
        for _ in range(faults):
            time.sleep(self.random.expovariate(1 / pace_s))
            self.fault()
            self.mend(all_=False)
        self.settle()

    def settle(self) -> None:
        """Heal everything, end the engines, drain, stop, recount."""
        self.old.clear()
        for name in NAMES:
            self.set_clock(name, 0)
        self.mend(all_=True)
        self._wait(self.healthy, "the service does not start any more")
        for name in ENGINES:
            self.end(name)
        self._wait(lambda: not any(map(self.alive, ENGINES)), "an engine does not end")
        self._wait(self._drained, "the sidecar does not drain")
        for name in ("agent", "service"):
            self.end(name)
            self._wait(lambda name=name: not self.alive(name), f"the {name} does not end")
        mutant = self.mutant if self.mutant.startswith("service") else ""
        subprocess.run(
            [sys.executable, str(HERE / "roll.py"), self.store],
            env=self.environment | {"MUTANT": mutant}, check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        self._recount()

    def _recount(self) -> None:
        hurt = self.folder / "hurt.json"
        hurt.write_text(json.dumps(self.hurt))
        checked = subprocess.run(
            [sys.executable, str(HERE / "check.py"), str(self.store_disk.path / "store"),
             str(hurt), *(str(log) for log in self.logs if log.exists())],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if checked.returncode:
            self.violations.append(f"cannot be checked: {checked.stderr[-1500:]}")
            return
        result = json.loads(checked.stdout)
        self.violations += result.pop("violations")
        self.counts.update({f"checked {name}": count for name, count in result.items()})

    def _drained(self) -> bool:
        """Whether everything is acknowledged, also the end of each boot. A header that was hurt
        after its engine had died is mended by nobody: such a ring stays, is said, and holds up no
        other."""
        left = {boot_of(ring) for ring in self.rings.glob("*.ring")}
        if any(self.spool.glob("*-*/")) or left - self.hurt.keys():
            self._quiet_since = time.monotonic()
            return False
        if left and time.monotonic() - self._quiet_since < QUIET_S:
            return False
        self.counts["checked rings_unreadable"] = len(left)
        return True

    def _wait(self, condition, otherwise: str) -> None:
        deadline = time.monotonic() + SETTLING * PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                left = [str(p) for p in (*self.spool.glob("*/*"), *self.rings.iterdir())]
                self.violations.append(f"{otherwise}; left: {left[:20]}")
                raise TimeoutError(otherwise)
            for name in ("service", "agent"):
                if "start" in otherwise or "drain" in otherwise:
                    self.begin(name)
            time.sleep(0.2)


def episode(
    seed: int,
    faults: int,
    *,
    mutant: str = "",
    only: frozenset[str] = frozenset(),
    spool_bytes: int | None = None,
    pace_s: float = PACE_S,
    keep: bool = False,
) -> Episode:
    """Run one, and leave its folder where there was a violation and `keep`."""
    folder = Path(tempfile.mkdtemp(prefix=f"faults-{seed}-"))
    one = Episode(folder, seed, mutant=mutant, only=only, spool_bytes=spool_bytes)
    try:
        one.run(faults, pace_s)
    except TimeoutError:
        pass
    finally:
        if one.violations and keep:
            shutil.copytree(one.store_disk.path, folder / "kept", symlinks=True, dirs_exist_ok=True)
            shutil.copytree(one.spool, folder / "kept-spool", dirs_exist_ok=True)
        one.close()
        if not (one.violations and keep):
            shutil.rmtree(folder, ignore_errors=True)
    return one


def find_mutants(names: list[str], seed: int) -> bool:
    """Whether each planted fault of the product is found within a few faults."""
    found = 0
    for name in names:
        mutant = MUTANTS[name]
        for attempt in range(3):
            one = episode(
                seed + attempt, mutant.faults, mutant=name, only=mutant.only,
                spool_bytes=mutant.spool_bytes, pace_s=mutant.pace_s,
            )  # fmt: skip
            if one.violations:
                break
        found += bool(one.violations)
        say({"mutant": name, "seed": seed + attempt, "found": one.violations[:2]})
    say({"mutants": len(names), "found": found})
    return found == len(names)


def say(answer: dict) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--each", type=int, default=60, help="faults in an episode")
    parser.add_argument("--only", default="", help="kinds of faults, with commas")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no episode after so many")
    parser.add_argument("--mutants", nargs="*", help="plant these faults of the product, or all")
    args = parser.parse_args()
    if args.mutants is not None:
        return not find_mutants(args.mutants or list(MUTANTS), args.seed)
    totals: Counter[str] = Counter()
    violations: dict[str, list[str]] = {}
    left, seed, began = args.faults, args.seed, time.monotonic()
    only = frozenset(filter(None, args.only.split(",")))
    while left > 0 and time.monotonic() - began < 60 * args.minutes:
        one = episode(seed, min(left, args.each), only=only, keep=True)
        totals.update(one.counts)
        if one.violations:
            violations[str(seed)] = [*one.violations[:8], f"kept in {one.folder}"]
        done = {name: n for name, n in one.counts.items() if name.startswith("checked")}
        kinds = {name: n for name, n in one.counts.items() if not name.startswith("checked")}
        say({"seed": seed, **done, "by_kind": kinds, "violations": one.violations[:8]})
        left, seed = left - args.each, seed + 1
    kinds = {name: n for name, n in totals.items() if not name.startswith("checked")}
    checked = {name: n for name, n in totals.items() if name.startswith("checked")}
    say(
        {"faults": sum(kinds.values()), "by_kind": kinds, "checked": checked,
         "violations": violations}
    )  # fmt: skip
    return bool(violations)


if __name__ == "__main__":
    sys.exit(main())
