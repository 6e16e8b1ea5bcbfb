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


def test_the_client_lists_the_model_and_finds_it_by_name(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError, match="no model 'org/other'"):
        client.models.retrieve("org/other")


def test_a_completion_is_the_same_whole_and_in_pieces(client):
    generation = {"model": MODEL, "prompt": PROMPT, "max_tokens": 16, "seed": 3}

    whole = client.completions.create(**generation)
    pieces = list(client.completions.create(**generation, stream=True))

    assert whole.usage.completion_tokens <= 16
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_chat_is_the_same_whole_and_in_pieces_and_counts_its_tokens(client):
    generation = {
        "model": MODEL, "messages": [{"role": "user", "content": "select"}], "max_tokens": 12,
        "seed": 5, "extra_headers": {"x-specscope-class": "chat"},
    }  # fmt: skip

    whole = client.chat.completions.create(**generation)
    *pieces, last = client.chat.completions.create(
        **generation, stream=True, stream_options={"include_usage": True}
    )

    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text == whole.choices[0].message.content
    assert last.usage == whole.usage
    assert last.choices == []
    assert {piece.usage for piece in pieces} == {None}
    assert len({(piece.id, piece.created) for piece in [*pieces, last]}) == 1


def test_a_completion_streams_its_usage_too_and_only_when_asked(client):
    generation = {"model": MODEL, "prompt": PROMPT, "max_tokens": 6, "seed": 3, "stream": True}

    *pieces, last = client.completions.create(**generation, stream_options={"include_usage": True})
    plain = list(client.completions.create(**generation, stream_options={"include_usage": False}))

    assert last.usage.completion_tokens <= 6
    assert [piece.choices for piece in plain] == [piece.choices for piece in pieces]


CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "select"}], "seed": 5}
LEAVE_IT_ALONE = {
    "n": 1, "logprobs": False, "logit_bias": {}, "frequency_penalty": 0, "presence_penalty": 0.0,
    "response_format": {"type": "text"}, "modalities": ["text"], "tools": [], "tool_choice": "auto",
    "parallel_tool_calls": True, "metadata": {"team": "a"}, "user": "someone", "stop": None,
    "store": False, "service_tier": "auto", "temperature": 1, "top_p": 1,
    "prediction": {"type": "content", "content": "from"},
}  # fmt: skip


def test_fields_that_change_nothing_are_taken_and_change_nothing(client):
    plain = client.chat.completions.create(**CHAT, max_tokens=10)
    full = client.chat.completions.create(
        **CHAT, **LEAVE_IT_ALONE, max_tokens=1, max_completion_tokens=10
    )
    parts = [{"type": "text", "text": "sel"}, {"type": "text", "text": "ect"}]
    pieced = client.chat.completions.create(
        **CHAT | {"messages": [{"role": "user", "content": parts}]}, max_tokens=10
    )

    assert full.choices == plain.choices == pieced.choices
    assert full.usage == plain.usage


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"presence_penalty": 0.1}, "presence_penalty"),
        ({"frequency_penalty": 0.1}, "frequency_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"stop": ["x"] * 9}, "stop"),
        ({"seed": 1 << 70}, "seed"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": 1 << 40}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"model": "gpt-5"}, "model"),
        ({"messages": [{"role": "user", "content": "a " * 2000}]}, "messages"),
        ({"messages": []}, "messages"),
        ({"extra_body": {"beam_width": 4}}, "beam_width"),
    ],
)
def test_what_would_change_the_answer_and_is_not_there_is_refused_by_name(client, change, field):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**CHAT | change)

    assert caught.value.param == field
    assert caught.value.type == "invalid_request_error"


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
