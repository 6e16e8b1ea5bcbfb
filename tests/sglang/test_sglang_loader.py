"""SGLang's own plug-in loader and registry, from its wheel: they find us and go around."""

import importlib.util
import sys

import pytest

pytestmark = pytest.mark.sglang


@pytest.fixture
def load_plugins(sglang, sglang_source, monkeypatch, tmp_path):
    """SGLang's `load_plugins`, and our entry point as an installed distribution has it."""
    for name in ("environ", "plugins.hook_registry", "plugins"):
        package = "__init__.py" if name == "plugins" else ""
        path = sglang_source / "sglang/srt" / name.replace(".", "/")
        path = path / package if package else path.with_suffix(".py")
        spec = importlib.util.spec_from_file_location(f"sglang.srt.{name}", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
    info = tmp_path / "site" / "hooked-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hooked\nVersion: 1\n")
    entry = "[sglang.srt.plugins]\nhooked = specscope_hook.adapters.sglang:register\n"
    (info / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(info.parent))
    return sys.modules["sglang.srt.plugins"].load_plugins


def test_sglangs_loader_finds_the_plug_in_and_serves_hooked(engine, load_plugins):
    load_plugins()

    ring = engine.serve(engine.request("a"), scheduler=engine.build())

    assert len(ring.ends) == 1
    assert ring.rounds


def test_an_allow_list_without_us_keeps_us_out(engine, load_plugins, monkeypatch):
    monkeypatch.setenv("SGLANG_PLUGINS", "another")

    load_plugins()

    assert engine.serve(engine.request("a"), scheduler=engine.build()) is None
