"""The stand-in engine as `sglang`, hooked by our plug-in; with SGLang's own registry too.

SGLANG_SOURCE names the directory of its unpacked wheel, see environment.sh.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from sglang_serving import Hands, Plan, read_ring  # noqa: E402

from specscope_hook.adapters.sglang import register  # noqa: E402
from specscope_hook.clock import SystemClock  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "sglang: needs SGLang's own source; SGLANG_SOURCE names it")


def forget_sglang():
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def sglang_source():
    """SGLang's unpacked wheel."""
    path = os.environ.get("SGLANG_SOURCE")
    if not path:
        pytest.skip("SGLANG_SOURCE is not set")
    return Path(path)


@pytest.fixture
def forgotten():
    """No SGLang imported, before and after, whatever a skip leaves behind."""
    forget_sglang()
    yield
    forget_sglang()


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.sglang)])
def sglang(request, monkeypatch, forgotten):
    """The stand-in package, fresh; its registry is a stand-in too, or SGLang's own."""
    monkeypatch.syspath_prepend(str(HERE / "standin"))
    package = importlib.import_module("sglang")
    if request.param == "real":
        path = request.getfixturevalue("sglang_source") / "sglang/srt/plugins/hook_registry.py"
        name = "sglang.srt.plugins.hook_registry"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return package


class Engine:
    """Starts the stand-in as SGLang starts: plug-ins, hooks, then a scheduler."""

    def __init__(self, directory, hands):
        self.directory = directory
        self.hands = hands

    def start(self, **plan):
        register()
        return self.build(**plan)

    def build(self, **plan):
        registry = importlib.import_module("sglang.srt.plugins.hook_registry")
        registry.HookRegistry.apply_hooks()
        scheduler = importlib.import_module("sglang.srt.managers.scheduler")
        return scheduler.Scheduler(Plan(self.hands, **plan), None)

    def request(self, rid, **more):
        return importlib.import_module("sglang.srt.requests").Req(rid, **more)

    @property
    def bags(self):
        return importlib.import_module("sglang.srt.runtime_context").bags

    def serve(self, *reqs, scheduler=None, **plan):
        """Run to the end; the ring afterwards."""
        scheduler = scheduler or self.start(**plan)
        for req in reqs:
            scheduler._add_request_to_queue(req)
        scheduler.run_event_loop()
        return self.ring()

    def ring(self):
        return read_ring(self.directory)


@pytest.fixture
def engine(sglang, tmp_path, monkeypatch):
    """An engine with the hook on, its time in the script's hands."""
    rings = tmp_path / "rings"
    rings.mkdir()
    for name in [name for name in os.environ if name.startswith("SPECSCOPE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPECSCOPE_RINGS", str(rings))
    monkeypatch.setenv("SPECSCOPE_REPLICA", "r0")
    monkeypatch.setenv("SPECSCOPE_RING_BYTES", str(1 << 20))
    hands = Hands()
    monkeypatch.setattr(SystemClock, "monotonic_ns", staticmethod(hands.monotonic_ns))
    monkeypatch.setattr(SystemClock, "unix_ns", staticmethod(hands.unix_ns))
    return Engine(rings, hands)
