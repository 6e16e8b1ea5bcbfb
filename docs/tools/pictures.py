"""Draws the pictures of the docs: `make pictures DEMO=specscope-demo`, after `make demo`.

The report's pictures come from a demonstration's store, the one of `specscope top` from the bundled
engine, served for a few seconds. Chromium draws all of them, so they show what a reader would see.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from html import escape
from pathlib import Path

from PIL import Image

from specscope.demo.run import report_of
from specscope.report import plots
from specscope.report.canvas import PAGE_COLOURS
from specscope.report.render import to_html
from specscope.store.connection import Store

PICTURES = Path(__file__).parents[1] / "pictures"
MOST_BYTES = 200_000
SCALE = 2  # pixels a point, for sharp text on any screen
SHOWN = ("json", "prose")  # the two classes that differ most fit beside the README's first lines
COLOURS = "".join(f"{name}: {colour};" for colour, name in PAGE_COLOURS.items())
TRAFFIC = Path(__file__).parents[1] / "examples" / "traffic.py"
START_S = 120.0  # time for the engine to start on a busy machine
SERVED_S = 12.0  # `top` looks at ten seconds


def main(demo: Path) -> int:
    """Draw every picture into docs/pictures."""
    with Store.open(f"chdb://{(demo / 'store').resolve()}") as store:
        report = report_of(store)
    contrasts = [
        plots.Contrast(segment.name, arm.arm, arm.speedup, arm.low, arm.high)
        for segment in report.segments
        for arm in segment.arms
        if segment.label in SHOWN and arm.speedup is not None
    ]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        draw(scratch, "report", to_html(report), 1100, 1060)
        draw(scratch, "verdict", framed(plots.speedups(contrasts)), 790, 446)
        screen = top(scratch)
        draw(scratch, "top", terminal(screen), 720, 56 + 20 * screen.count("\n"))
    return 0


def framed(svg: str) -> str:
    """A page with one picture in the report's own colours."""
    return (
        f"<!doctype html><style>:root {{ {COLOURS} }} body {{ margin: 16px; background: white; }}"
        f"text {{ font-family: sans-serif; }}</style>{svg}"
    )


def terminal(screen: str) -> str:
    """A page that looks like a terminal with this text."""
    return (
        "<!doctype html><style>body { margin: 0; padding: 16px 20px; background: #1e242b; }"
        "pre { margin: 0; color: #e6e9ec; font: 14px/20px 'DejaVu Sans Mono', monospace; }"
        f"b {{ color: #7fd1a8; }}</style><pre><b>$ specscope top --once</b>\n{escape(screen)}</pre>"
    )


def top(scratch: Path) -> str:
    """What `specscope top --once` prints while the bundled engine serves four classes of text."""
    rings = scratch / "rings"
    rings.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    specscope = [sys.executable, "-m", "specscope"]
    environment = os.environ | {"SPECSCOPE_RINGS": str(rings), "SPECSCOPE_REPLICA": "laptop"}
    engine = subprocess.Popen(
        [*specscope, "engine", "serve", "--port", str(port), "--k", "4"], env=environment
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until_it_answers(f"{address}/v1/models")
    except BaseException:
        engine.terminate()
        raise
    traffic = subprocess.Popen(
        [sys.executable, TRAFFIC, address, "--rate", "4", "--seconds", "16"],
        stdout=subprocess.DEVNULL,
    )
    try:
        time.sleep(SERVED_S)
        looked = subprocess.run(
            [*specscope, "top", "--once"],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        traffic.wait()
    finally:
        traffic.kill()
        engine.terminate()
        engine.wait()
    return looked.stdout


def until_it_answers(address: str) -> None:
    """Wait for a server. Raises SystemExit if it does not answer within START_S."""
    for _ in range(int(START_S)):
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            time.sleep(1.0)
        else:
            return
    raise SystemExit(f"{address} did not answer within {START_S:.0f} s")


def draw(scratch: Path, name: str, html: str, width: int, height: int) -> None:
    """A page's first screen as docs/pictures/NAME.png. width, height: points.

    Raises SystemExit if the picture is too large to show on a page.
    """
    page, shot = scratch / f"{name}.html", scratch / f"{name}.png"
    page.write_text(html)
    subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars",
            "--blink-settings=preferredColorScheme=1", f"--user-data-dir={scratch / 'profile'}",
            f"--force-device-scale-factor={SCALE}", f"--window-size={width},{height}",
            f"--screenshot={shot}", page.as_uri(),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    PICTURES.mkdir(exist_ok=True)
    drawn = PICTURES / f"{name}.png"
    image = Image.open(shot).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    image.save(drawn, optimize=True)
    size = drawn.stat().st_size
    sys.stdout.write(f"{drawn.name}: {size // 1000} kB\n")
    if size > MOST_BYTES:
        raise SystemExit(f"{drawn} has {size} bytes, more than {MOST_BYTES}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
