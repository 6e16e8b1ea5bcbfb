"""Wrong input gets one clear line and exit code 1 or 2, from every verb; a traceback is a bug."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from specscope.errors import ExitCode, install_command

ROOT = Path(__file__).parents[1]


def specscope(*words, environment=None, options=()):
    clean = {name: v for name, v in os.environ.items() if not name.startswith("SPECSCOPE_")}
    return subprocess.run(
        [sys.executable, *options, "-m", "specscope", *words],
        env=clean | (environment or {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def one_line(run):
    """What it said, having said one line and ended with a code for errors."""
    codes = (ExitCode.FAILED, ExitCode.USAGE)
    assert run.returncode in codes, (run.returncode, run.stdout, run.stderr)
    lines = run.stderr.strip().splitlines()
    assert len(lines) == 1, run.stderr
    return lines[0]


def test_a_port_in_use_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        said = one_line(
            specscope(
                "serve", "--store", f"chdb://{tmp_path}/store", "--listen", f"127.0.0.1:{port}",
                "--http", "127.0.0.1:0",
            )
        )  # fmt: skip

    assert str(port) in said


def test_a_store_that_another_process_owns_is_named_with_its_owner(tmp_path):
    dsn = f"chdb://{tmp_path}/store"
    service = subprocess.Popen(
        [sys.executable, "-m", "specscope", "serve", "--store", dsn,
         "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert "serving" in service.stdout.readline()

        said = one_line(specscope("report", "--store", dsn, "--out", str(tmp_path / "report")))
    finally:
        service.terminate()
        service.wait(PATIENCE_S)

    assert f"owned by process {service.pid}" in said
    assert "http://127.0.0.1:" in said


def test_a_store_that_does_not_exist_is_named(tmp_path):
    said = one_line(specscope("report", "--store", f"chdb://{tmp_path}/nothing"))

    assert "nothing" in said


def test_no_store_at_all_is_said_with_how_to_name_one():
    assert "SPECSCOPE_STORE" in one_line(specscope("report"))


def test_an_unknown_setting_is_refused_with_the_nearest_known_one(tmp_path):
    environment = {"SPECSCOPE_STOER": "x", "SPECSCOPE_RINGS": str(tmp_path)}

    for verb in ("serve", "agent", "report"):
        said = one_line(specscope(verb, environment=environment))

        assert "did you mean SPECSCOPE_STORE?" in said


def test_what_kubernetes_injects_for_a_service_is_not_a_setting(tmp_path):
    environment = {"SPECSCOPE_PORT": "tcp://10.0.0.1:7070", "SPECSCOPE_SERVICE_HOST": "10.0.0.1"}

    assert "SPECSCOPE_STORE" in one_line(specscope("report", environment=environment))


def test_a_missing_extra_is_named_with_the_command_that_installs_it(tmp_path):
    bare = {"PYTHONPATH": f"{ROOT}:{ROOT / 'collectors'}:{ROOT / 'dashboards'}"}

    for verb, extra, *arguments in (
        ("serve", "server", "--store", f"chdb://{tmp_path}/s"),
        ("agent", "agent"),
        ("report", "report", "--store", f"chdb://{tmp_path}/s"),
        ("demo", "all"),
    ):
        said = one_line(
            specscope(verb, *arguments, environment=bare | {"SPECSCOPE_RINGS": str(tmp_path)},
                      options=("-S",))
        )  # fmt: skip

        assert f"pip install -e '.[{extra}]'" in said  # a clone, so no index is asked for us

    assert install_command("agent") == "pip install 'specscope[agent]'"  # installed: pip keeps it


def test_a_file_that_nothing_reads_is_named_with_what_was_tried(tmp_path):
    (tmp_path / "poem.txt").write_text("so much depends\nupon\n")

    said = one_line(specscope("analyze", str(tmp_path / "poem.txt")))

    assert "poem.txt" in said


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "out")

    for words in (("demo", "--quick"), ("dashboards", "render")):
        said = one_line(specscope(*words, "--out", out))

        assert said.startswith(f"specscope {words[0]}: {tmp_path}/file")
        assert said.endswith(": Not a directory")


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "absent.log" in one_line(specscope("analyze", str(tmp_path / "absent.log")))


def test_a_bundled_model_that_was_changed_is_refused(tmp_path):
    program = (
        "import sys, shutil\nfrom pathlib import Path\nfrom importlib.resources import files\n"
        "from specscope.engine.pair import load_pair\n"
        "folder = Path(sys.argv[1])\n"
        "shutil.copytree(files('specscope.engine') / 'bundled', folder / 'pair')\n"
        "(folder / 'pair/draft.safetensors').unlink()\n"
        "load_pair(folder / 'pair')\n"
    )

    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True
    )

    assert run.stderr.strip().splitlines()[-1].endswith("draft.safetensors is missing")


@pytest.mark.parametrize("damage", ["not a ring", ""])
def test_a_sidecar_meets_a_corrupt_ring_says_so_and_goes_on(tmp_path, damage):
    rings, spool = tmp_path / "rings", tmp_path / "spool"
    rings.mkdir()
    spool.mkdir()
    (rings / "replica-1.ring").write_text(damage)
    agent = subprocess.Popen(
        [sys.executable, "-m", "specscope", "agent"],
        env=dict(os.environ)
        | {
            "SPECSCOPE_RINGS": str(rings),
            "SPECSCOPE_SPOOL": str(spool),
            "SPECSCOPE_SERVICE": "127.0.0.1:1",
        },
        stderr=subprocess.PIPE,
        text=True,
    )

    said = next(line for line in agent.stderr if "replica-1.ring" in line or "Traceback" in line)
    still_running = agent.poll() is None
    agent.terminate()
    _, rest = agent.communicate(timeout=PATIENCE_S)

    assert still_running, said + rest
    assert "Traceback" not in said + rest


@pytest.mark.parametrize("option", [("--k", "-1"), ("--slots", "0"), ("--threads", "many")])
def test_an_engine_s_number_that_means_nothing_is_wrong_usage(option):
    run = specscope("engine", "serve", *option)

    assert run.returncode == 2
    assert option[0] in run.stderr
