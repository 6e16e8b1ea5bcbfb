"""A fresh embedded store for each test; the engine allows one path at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from specscope.store.connection import Store
from specscope.store.migrate import migrate


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        migrate(opened)
        yield opened
