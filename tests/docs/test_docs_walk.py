"""The blocks of the pages run as printed, one terminal each; all of their commands parse."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from ports import own_port
from waiting import until

from specscope.cli import build_parser

ROOT = Path(__file__).parents[2]
ENGINE = re.compile(r"vllm serve .*?'\{.*?\}'|specscope engine serve --k 4", re.DOTALL)
SHORT = {
    "--seconds 420": "--seconds 10",
    "--minutes 5 --block-s 6": "--minutes 0.2 --block-s 2",
    "--minutes 90": "--minutes 0.2 --block-s 2",
}


def blocks(page, heading):
    """Shell blocks behind a heading, without the installation."""
    section = (ROOT / page).read_text().partition(heading)[2].partition("\n## Next")[0]
    texts = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = ["\n".join(one for one in t.splitlines() if "pip install" not in one) for t in texts]
    return [text for text in lines if text.strip() and "-m venv" not in text]


class Machine:
    """Terminals with one home, whose ports and rings are this test's own."""

    def __init__(self, home):
        self.home, self.rings = home, home / "shm"
        self.rings.mkdir()
        self.ports = {"7070": own_port(), "8123": own_port(), "8000": own_port()}
        for name, variable in (("7070", "SPECSCOPE_LISTEN"), ("8123", "SPECSCOPE_HTTP")):
            setattr(self, variable, f"127.0.0.1:{self.ports[name]}")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SPECSCOPE_")}
        self.environment = kept | {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }

    def text(self, block):
        """A block on this machine's ports and memory, with the bundled engine."""
        port = self.ports["8000"]
        block = ENGINE.sub(f"specscope engine serve --k 4 --port {port}", block)
        block = block.replace("/dev/shm", str(self.rings))
        for name, own in self.ports.items():
            block = block.replace(f"127.0.0.1:{name}", f"127.0.0.1:{own}")
        for long, short in SHORT.items():
            block = block.replace(long, short)
        listen = f"SPECSCOPE_LISTEN={self.SPECSCOPE_LISTEN} SPECSCOPE_HTTP={self.SPECSCOPE_HTTP}"
        return block.replace("\nspecscope serve", f"\nexport {listen}\nspecscope serve")

    @contextmanager
    def terminal(self, block):
        """A terminal that stays open: the block's last command runs until it is interrupted."""
        process = subprocess.Popen(
            ["bash", "-ec", self.text(block)],
            cwd=ROOT,
            env=self.environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)

    def paste(self, block):
        """Exit code and output of a block that ends by itself."""
        out = self.home / "out"
        run = subprocess.run(
            [
                "bash",
                "-c",
                self.text(f"cd {ROOT}\n{block}").replace(
                    "specscope report", f"specscope report --out {out}"
                ),
            ],
            capture_output=True,
            text=True,
            env=self.environment,
        )
        return run.returncode, run.stdout + run.stderr

    def answers(self, name, path):
        """Whether something listens on the port that the page calls `name`."""
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}{path}", timeout=5).close()
        except OSError:
            return False
        return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "heading"),
    [("README.md", "## Measure your own engine"), ("docs/start.md", "# Start in five minutes")],
    ids=["readme", "start"],
)
def test_the_blocks_of_a_page_run_from_nothing_to_a_report(tmp_path, page, heading):
    texts = blocks(page, heading)
    engine = next(text for text in texts if ENGINE.search(text))
    service = next(text for text in texts if "specscope serve" in text)
    sidecar = next(text for text in texts if "specscope agent" in text)
    rest = [
        text for text in texts if text not in (engine, service, sidecar) and "specscope" in text
    ]
    machine = Machine(tmp_path)

    with ExitStack() as stack:
        stack.enter_context(machine.terminal(service))
        until(lambda: machine.answers("8123", "/health"))
        stack.enter_context(machine.terminal(sidecar))
        stack.enter_context(machine.terminal(engine))
        until(lambda: machine.answers("8000", "/v1/models"))
        address = f"http://127.0.0.1:{machine.ports['8000']}"
        traffic = [sys.executable, "docs/examples/traffic.py", address, "--class", "json"]
        clients = stack.enter_context(subprocess.Popen([*traffic, "--seconds", "25"], cwd=ROOT))
        code, said = machine.paste("\n".join(rest))
        clients.wait()

    report = json.loads((tmp_path / "out/report.json").read_text())
    assert code in (0, 3), said
    assert report["accounting"]["recorded"] == report["accounting"]["stored"] > 0
    assert clients.returncode == 0
    assert "json" in said


PLACEHOLDERS = ("…", "...", "|")
COMMAND = re.compile(r"^ *(?:\$ )?(?:[A-Z_]+=\S+ )*specscope (\S.*)$")
ALL_PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if page.name != "cli.md"
)


def commands(page):
    """The command lines of specscope in the code blocks of a page, without comments."""
    text = (ROOT / page).read_text()
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        if language not in ("", "sh"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            found = COMMAND.match(line)
            if found and not any(mark in found[1] for mark in PLACEHOLDERS):
                yield shlex.split(found[1].rstrip("&"), comments=True)


@pytest.mark.parametrize("page", ALL_PAGES)
def test_the_commands_of_a_page_have_options_that_exist(page):
    for words in commands(page):
        build_parser(words[0]).parse_args(words)


EXPORTS = re.compile(r"export SPECSCOPE_(?:STORE|SERVICE|APPLY_TOKEN)=.*")
RUN_HERE = {
    "docs/experiments.md": ("gate calibrate --k", "gate watch", "gate recommend", "gate history"),
    "docs/operations.md": ("doctor",),
    "docs/evaluator.md": ("lossless",),
    "docs/replay.md": ("replay",),
}
ELSEWHERE = {
    "one:8000": "127.0.0.1:8000",
    "two:8000": "127.0.0.1:8000",
    "http://127.0.0.1:8001": "--most 4 --max-tokens 8 http://127.0.0.1:8000",
    "--rate 4 --most 200": "--rate 8 --most 32 --max-tokens 8",
    "--out replay.json": "--parts 4 --out replay.json",
}


def lines_of(page, starts):
    """The command lines of a page that begin so, without comments."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    found = re.findall(r"^specscope (.*?)(?: +#.*)?$", text, re.MULTILINE)
    return [f"specscope {line}" for line in found if line.startswith(starts)]


@pytest.mark.slow
def test_the_commands_of_the_daily_pages_run(tmp_path):
    texts = blocks("docs/start.md", "# Start in five minutes")
    exports = "\n".join(EXPORTS.findall((ROOT / "docs/experiments.md").read_text()))
    machine = Machine(tmp_path)
    answers = {}

    with ExitStack() as stack:
        for mark in ("specscope serve", "specscope agent", "specscope engine"):
            stack.enter_context(machine.terminal(next(one for one in texts if mark in one)))
        until(lambda: machine.answers("8123", "/health"))
        until(lambda: machine.answers("8000", "/v1/models"))
        address = f"http://127.0.0.1:{machine.ports['8000']}"
        traffic = [sys.executable, "docs/examples/traffic.py", address, "--class", "json"]
        clients = stack.enter_context(subprocess.Popen([*traffic, "--seconds", "30"], cwd=ROOT))
        for page, starts in RUN_HERE.items():
            for line in lines_of(page, starts):
                for printed, here in ELSEWHERE.items():
                    line = line.replace(printed, here)
                answers[line] = machine.paste(f"cd {tmp_path}\n{exports}\n{line}")
        clients.wait()

    assert len(answers) >= 10
    assert {line: said for line, (code, said) in answers.items() if code not in (0, 3)} == {}
