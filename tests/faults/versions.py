"""Earlier versions of this repository, so that processes can be upgraded in the middle."""

from __future__ import annotations

import io
import subprocess
import tarfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Versions that withstand the faults of the campaign as far as it mixes them.
EARLIER = {"service": "f493215", "agent": "9885144", "engine": "3d29e79"}


@cache
def earlier(role: str, folder: Path) -> Path | None:
    """Source tree of the earlier version of a role; None where there is no history."""
    packages = ("specscope", "collectors/specscope_agent", "collectors/specscope_hook")
    archive = subprocess.run(
        ["git", "archive", "--format=tar", EARLIER[role], *packages],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if archive.returncode:
        return None
    target = folder / f"version-{EARLIER[role]}"
    if not target.exists():
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(target, filter="data")
    return target


def path_of(role: str, folder: Path) -> str:
    """PYTHONPATH of the earlier version of a role."""
    tree = earlier(role, folder)
    return f"{tree}:{tree}/collectors" if tree else ""
