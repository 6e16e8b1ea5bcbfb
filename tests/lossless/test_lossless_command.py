"""`specscope lossless`: servers that say what they are told, and real ones."""

import json
import math
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import httpx
import pytest
from stand_in import serving

from specscope import cli
from specscope.errors import InputError
from specscope.lossless.client import AskedServer
from specscope.prompts import Prompt, read_prompts

HERE = Path(__file__).parent
PATIENCE_S = 240


def words(prompt, margin=3.0, error=0.0, wrong_at=None):
    """Ten tokens that a prompt decides; from a place on, other ones."""
    told = [(f"{prompt}{n} ", -0.5 + error, margin) for n in range(10)]
    if wrong_at is not None:
        told[wrong_at:] = [(f"x{n} ", -0.5, margin) for n in range(10 - wrong_at)]
    return told


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"p{n}"}) + "\n" for n in range(30)))
    return path


def asked(capsys, *arguments):
    code = cli.main(["lossless", *map(str, arguments), "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else None, printed.err


def test_servers_that_agree_are_lossless(capsys, prompts):
    with serving(words) as (base, bodies), serving(words) as (spec, _):
        code, found, _ = asked(capsys, base, spec, "--prompts", prompts)

    assert (code, found["state"], found["parted"], found["prompts"]) == (0, "equal", 0, 30)
    assert found["detailed"] is True
    assert found["tokens"] == 300
    assert found["most"] < 0.12
    assert len(bodies) == 60
    assert {body["temperature"] for body in bodies} == {0.0}


def test_a_parting_at_a_clear_best_token_is_a_fault(capsys, prompts):
    def lenient(prompt):
        return words(prompt, wrong_at=4 if prompt == "p7" else None)

    with serving(words) as (base, _), serving(lenient) as (spec, _):
        code, found, errors = asked(capsys, base, spec, "--prompts", prompts)

    assert (code, errors) == (3, "")  # an answer, so nothing is wrong to tell on stderr
    assert (found["state"], found["parted"], found["clear"]) == ("differs", 1, 1)
    assert (found["first"], found["unit"]) == (4, "token")
    (parted,) = [p for p in found["compared"] if p["parting"]]
    assert parted["parting"] == {"at": 4, "unit": "token", "margin": 3.0}


def test_near_ties_are_no_fault_however_many(capsys, prompts):
    def base(prompt):
        return words(prompt, margin=0.1)

    def rounded(prompt):
        return words(prompt, margin=0.1, error=0.06, wrong_at=5)

    with serving(base) as (one, _), serving(rounded) as (other, _):
        code, found, _ = asked(capsys, one, other, "--prompts", prompts)
        strict = asked(capsys, one, other, "--prompts", prompts, "--logit-error", "0.01")

    assert (code, found["state"], found["near_ties"]) == (0, "as_twins", 30)
    assert found["logit_error"] == pytest.approx(0.06)
    assert strict[1]["state"] == "differs"


def test_another_computation_is_not_rounding(capsys, prompts):
    with (
        serving(words) as (base, _),
        serving(lambda prompt: words(prompt, error=0.9, wrong_at=9)) as (spec, _),
    ):
        code, found, _ = asked(capsys, base, spec, "--prompts", prompts)

    assert (code, found["state"]) == (3, "differs")
    assert "more than rounding explains" in found["reason"]


@pytest.mark.parametrize(("every", "state"), [(1, "differs"), (5, "undecided"), (100, "equal")])
def test_servers_without_log_probabilities_are_compared_by_text(capsys, prompts, every, state):
    def wrong(prompt):
        return words(prompt, wrong_at=3 if int(prompt[1:]) % every == every - 1 else None)

    with serving(words, detailed=False) as (base, _), serving(wrong, detailed=False) as (spec, _):
        code, found, _ = asked(capsys, base, spec, "--prompts", prompts)

    assert (code, found["state"], found["detailed"]) == (0 if state == "equal" else 3, state, False)
    assert found["unit"] == ("character" if found["parted"] else "token")


def test_a_baseline_that_differs_from_itself_measures_the_other(capsys, prompts):
    calls = {}

    def unsteady(prompt):
        calls[prompt] = calls.get(prompt, 0) + 1
        return words(prompt, wrong_at=6 if calls[prompt] % 2 else None)

    with (
        serving(unsteady, detailed=False) as (base, _),
        serving(words, detailed=False) as (spec, _),
    ):
        _, found, _ = asked(capsys, base, spec, "--prompts", prompts)

    assert found["twins_parted"] > 20
    assert found["state"] != "differs"


def test_chats_are_asked_as_chats(capsys, tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "hello"}]}) + "\n")
    with serving(words) as (base, bodies), serving(words) as (spec, _):
        code, found, _ = asked(capsys, base + "/v1", spec, "--prompts", path)

    assert (code, found["state"], found["detailed"]) == (0, "equal", True)
    assert bodies[0]["top_logprobs"] == 2


def test_prompts_that_a_server_refuses_are_counted(capsys, prompts):
    def picky(prompt):
        return "too long" if prompt == "p3" else words(prompt)

    with serving(words) as (base, _), serving(picky) as (spec, _):
        code, found, _ = asked(capsys, base, spec, "--prompts", prompts)

    assert (code, found["prompts"]) == (0, 29)
    assert found["detailed"] is True  # the prompt was refused, not the question after details
    assert "prompt 4: HTTP 400" in found["failed"][0]


def test_what_cannot_be_asked_is_said_in_one_line(capsys, prompts, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    torn = tmp_path / "torn.jsonl"
    torn.write_text('{"prompt": "a"}\n{"prompt"\n')
    with serving(words) as (base, _), serving(lambda _: "no") as (refusing, _):
        nobody = asked(capsys, base, "http://127.0.0.1:9", "--prompts", prompts)
        refused = asked(capsys, base, refusing, "--prompts", prompts)
        nothing = asked(capsys, base, base, "--prompts", empty)
        broken = asked(capsys, base, base, "--prompts", torn)

    for code, printed, said in (nobody, refused, nothing, broken):
        assert (code, printed) == (1, None)
        assert said.startswith("specscope lossless: ")
        assert len(said.splitlines()) == 1
    assert "line 2: not JSON" in broken[2]


def test_odd_answers_are_refused_in_one_line_and_a_ruled_out_second_token_is_far(capsys, prompts):
    with serving(lambda p: words(p, margin=math.inf)) as (base, _):
        code, found, _ = asked(capsys, base, base, "--prompts", prompts, "--most", 3)
        with serving(lambda p: words(p, margin=math.inf, wrong_at=4)) as (spec, _):
            _, parted, _ = asked(capsys, base, spec, "--prompts", prompts, "--most", 3)
    with serving(lambda p: words(p, error=math.nan)) as (odd, _):
        refused, _, said = asked(capsys, odd, odd, "--prompts", prompts)

    assert (code, found["state"]) == (0, "equal")
    assert (parted["state"], parted["clear"]) == ("differs", 3)
    assert refused == 1
    assert "no finite log-probability" in said
    assert len(said.splitlines()) == 1
    for body in ({"choices": [{"text": "a"}], "usage": [1]}, {"choices": [{"text": "a", "logprobs":
                 {"tokens": [], "token_logprobs": [], "top_logprobs": [[1]]}}]}):  # fmt: skip
        answer = httpx.Response(200, json=body)
        with pytest.raises(InputError, match="not an answer"):
            AskedServer("b", "http://h", None, "m")._read(answer, Prompt(1, "", {"prompt": "a"}))


def test_a_person_reads_the_answer_first(capsys, prompts):
    with serving(words) as (base, _), serving(lambda p: words(p, wrong_at=2)) as (spec, _):
        code = cli.main(["lossless", base, spec, "--prompts", str(prompts)])

    printed = capsys.readouterr().out.splitlines()
    assert code == 3
    assert printed[0].startswith("Speculation changes outputs")
    assert "- prompt 1 : differs from token 2 on, baseline's margin 3" in printed
    assert "- and 25 more" in printed


def test_the_bundled_prompts_are_spread_over_their_kinds():
    some = read_prompts(None, most=8)

    assert len({prompt.label for prompt in some}) == 4
    with pytest.raises(InputError, match="no prompt"):
        read_prompts(Path(os.devnull))


# --- the reference engine itself


class Engines:
    """Servers as processes, each ended with the test."""

    def __init__(self, folder):
        self.folder, self.running = folder, []

    def start(self, name, *command):
        log = self.folder / f"{name}.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, *command, "--port", "0"], stdout=out, stderr=out
            )
        self.running.append(process)
        return log

    def address(self, log):
        deadline = time.monotonic() + PATIENCE_S
        while "serving" not in (text := log.read_text()):
            assert time.monotonic() < deadline, text
            assert all(process.poll() is None for process in self.running), text
            time.sleep(0.1)
        url = text.split(" at ")[1].split("/v1")[0].strip()
        with urllib.request.urlopen(f"{url}/health", timeout=PATIENCE_S):
            return url

    def close(self):
        for process in self.running:
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    running = Engines(tmp_path_factory.mktemp("engines"))
    serve = ("-m", "specscope", "engine", "serve")
    logs = [
        running.start("target", *serve, "--k", "0"),
        running.start("speculative", *serve, "--k", "4"),
        running.start("synthetic", str(HERE / "synthetic_server.py"), "--k", "4"),
    ]
    try:
        yield [running.address(log) for log in logs]
    finally:
        running.close()


def test_the_engine_speculates_without_changing_a_text(engines, capsys):
    target, speculative, _ = engines

    code, found, _ = asked(capsys, target, speculative, "--most", 12, "--max-tokens", 24)

    assert (code, found["state"], found["parted"]) == (0, "equal", 0)
    assert found["prompts"] == 12
    assert found["tokens"] > 100


def test_an_engine_that_keeps_what_its_target_refuses_is_caught(engines, capsys):
    target, _, synthetic = engines

    code, found, errors = asked(capsys, target, synthetic, "--most", 12, "--max-tokens", 24)

    assert (code, found["state"], errors) == (3, "differs", "")
    assert found["twins_parted"] == 0
    assert found["parted"] > 6
    assert found["p_value"] < 0.01
