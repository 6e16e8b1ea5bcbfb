"""OpenAI's own client against the served engine: both kinds of completion, streams, errors."""

import openai
import pytest
from engine.test_engine_server import PROMPT, counted, start
from waiting import PATIENCE_S, until

MODEL = "specscope-bundled"


@pytest.fixture(scope="module")
def client():
    process, url = start("--slots", "2", "--capacity", "300")
    with openai.OpenAI(
        base_url=f"{url}/v1", api_key="none", timeout=PATIENCE_S, max_retries=0
    ) as client:
        yield client
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


def test_the_client_lists_the_model(client):
    assert [model.id for model in client.models.list()] == [MODEL]


def test_a_completion_is_the_same_whole_and_in_pieces(client):
    asked = {"model": MODEL, "prompt": PROMPT, "max_tokens": 16, "seed": 3}

    whole = client.completions.create(**asked)
    pieces = list(client.completions.create(**asked, stream=True))

    assert whole.usage.completion_tokens <= 16
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_chat_is_the_same_whole_and_in_pieces_and_counts_its_tokens(client):
    asked = {
        "model": MODEL, "messages": [{"role": "user", "content": "select"}], "max_tokens": 12,
        "seed": 5, "extra_headers": {"x-specscope-class": "chat"},
    }  # fmt: skip

    whole = client.chat.completions.create(**asked)
    *pieces, last = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )

    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text == whole.choices[0].message.content
    assert last.usage == whole.usage


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"prompt": "a " * 2000}, "at most 299 fit"), ({"top_p": 0}, "top_p"), ({"n": 2}, "n other")],
)
def test_what_cannot_be_served_is_the_clients_own_error_with_the_reason(client, change, reason):
    with pytest.raises(openai.BadRequestError, match=reason):
        client.completions.create(**{"model": MODEL, "prompt": "a"} | change)


def test_a_stream_that_the_client_closes_is_cancelled(client):
    def closed_in_time():
        """Whether it was closed before the answer was whole, which a busy machine may prevent."""
        stream = client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=250, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        stream.close()
        until(lambda: counted(plain, "specscope_engine_running") == 0)
        return counted(plain, 'specscope_engine_requests_total{reason="abort"}') > 0

    with openai.DefaultHttpxClient(base_url=client.base_url.join("/")) as plain:
        until(closed_in_time)
