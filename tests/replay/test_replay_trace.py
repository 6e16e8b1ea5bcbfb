"""Traces: what can be read, what is refused and where, and how one is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.answers import trace

from specscope.cli import main
from specscope.errors import InputError
from specscope.replay.schedule import cut
from specscope.replay.trace import read_trace, synthetic_prompt, write_trace

LINE = {"offset_s": 0.5, "class": "sql", "prompt": "SELECT", "max_tokens": 8}


def file_of(tmp_path, *lines):
    path = tmp_path / "trace.jsonl"
    write_trace(path, lines)
    return path


def test_a_trace_is_read_by_rising_offset_with_what_each_line_says(tmp_path):
    chat = {
        "offset_s": 0, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4,
        "session": "s", "sampling": {"temperature": 0, "seed": 7},
    }  # fmt: skip

    found = read_trace(file_of(tmp_path, LINE, chat))

    first, second = found.requests
    assert (first.class_, first.session, first.cluster) == ("other", "s", "session s")
    assert first.body("m") == {
        "messages": chat["messages"], "max_tokens": 4, "temperature": 0, "seed": 7, "model": "m",
        "user": "s", "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert (second.offset_s, second.class_, second.cluster) == (0.5, "sql", "request 0")
    assert (found.span_s, found.synthetic) == (0.5, 0)


def test_a_prompt_that_was_not_kept_is_as_long_and_the_same_each_time(tmp_path):
    line = {"offset_s": 0, "prompt_tokens": 300, "max_tokens": 8}

    (asked,) = read_trace(file_of(tmp_path, line)).requests

    assert asked.synthetic
    assert len(asked.body(None)["prompt"]) == 300
    assert asked.body(None)["prompt"] == synthetic_prompt(0, 300) != synthetic_prompt(1, 300)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"offset_s": None}, "offset_s is None"),
        ({"offset_s": -1}, "not a time after"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"prompt": None}, "neither prompt"),
        ({"messages": []}, "both prompt and messages"),
        ({"prompt": 7}, "neither a text nor a list"),
        ({"class": 3}, "class is 3"),
        ({"sampling": {"stream": False}}, "sets"),
    ],
)
def test_a_line_that_means_nothing_is_named_by_its_number(tmp_path, change, said):
    path = file_of(tmp_path, LINE, LINE | change)

    with pytest.raises(InputError, match=r"trace\.jsonl:2: ") as error:
        read_trace(path)

    assert said in str(error.value)


@pytest.mark.parametrize("text", ["", "\n\n", "{", "[1]\n", '"x"\n', "\x00\xff"])
def test_what_is_no_trace_is_one_line(tmp_path, text):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(InputError) as error:
        read_trace(path)

    assert len(str(error.value).splitlines()) == 1


@given(
    count=st.integers(1, 60),
    parts=st.integers(1, 12),
    passes=st.integers(1, 3),
    seed=st.integers(0, 99),
    by_time=st.booleans(),
)
def test_every_request_is_in_one_part_a_pass_and_no_side_is_always_first(
    count, parts, passes, seed, by_time
):
    asked = trace(count)

    made = cut(asked, parts, passes, seed, by_time=by_time)

    sent = sorted(one.number for part in made for one in part.requests)
    assert sent == sorted(list(range(count)) * passes)
    assert all(one.offset_s >= part.begin_s - 1e-9 for part in made for one in part.requests)
    first = [part.order[0] for part in made]
    for one, other in zip(first[::2], first[1::2], strict=False):
        assert {one, other} == {"a", "b"}
    assert made == cut(asked, parts, passes, seed, by_time=by_time)


def test_a_trace_in_which_all_arrive_at_once_is_one_part():
    (part,) = cut(trace(5, span_s=0.0), 10, 1, 0)

    assert len(part.requests) == 5


def test_lines_are_json_and_nothing_else(tmp_path):
    path = file_of(tmp_path, LINE)

    assert [json.loads(line) for line in path.read_text().splitlines()] == [LINE]


def test_prompts_become_a_trace_with_each_of_them_once(tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(json.dumps({"prompt": f"p{n}", "label": "sql"}) + "\n" for n in range(200))
    )
    path = tmp_path / "trace.jsonl"

    code = main(["replay", str(path), "--prompts", str(prompts), "--rate", "4", "--seed", "1"])

    found = read_trace(path)
    assert code == 0
    assert sorted(one.content["prompt"] for one in found.requests) == sorted(
        f"p{n}" for n in range(200)
    )
    assert {one.class_ for one in found.requests} == {"sql"}
    assert found.span_s == pytest.approx(50, rel=0.3)


def test_the_demos_prompts_become_a_trace_of_its_classes(tmp_path):
    path = tmp_path / "trace.jsonl"

    main(["replay", str(path), "--prompts", "bundled", "--most", "40"])

    found = read_trace(path)
    assert len(found.requests) == 40
    assert {one.class_ for one in found.requests} == {"json", "prose", "python", "sql"}


def test_of_a_conversation_the_turns_before_the_first_answer_are_asked(tmp_path):
    def said(*turns):
        return {"id": "x", "conversations": [{"from": f, "value": v} for f, v in turns]}

    whole = said(("system", "be brief"), ("human", "hi"), ("gpt", "hello"), ("human", "more"))
    file = tmp_path / "shared.json"
    file.write_text(json.dumps([whole, said(("gpt", "nobody asked")), said(("human", "yes"))]))
    path = tmp_path / "trace.jsonl"

    main(["replay", str(path), "--prompts", str(file)])

    found = [one.content["messages"] for one in read_trace(path).requests]
    assert sorted(found, key=len) == [
        [{"role": "user", "content": "yes"}],
        [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
    ]


@pytest.mark.parametrize(
    "text", ["[1]", "[", '[{"conversations": [7]}]', '[{"conversations": [{"from": "human"}]}]']
)
def test_a_file_without_prompts_is_one_line(tmp_path, capsys, text):
    file = tmp_path / "shared.json"
    file.write_text(text)

    code = main(["replay", str(tmp_path / "t"), "--prompts", str(file)])

    assert (code, capsys.readouterr().err.count("\n")) == (1, 1)
