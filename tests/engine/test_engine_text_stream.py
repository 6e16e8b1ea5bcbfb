"""Text is given out when nothing that may still come can change it."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from specscope.engine.server.detokenizer import Detokenizer


def test_a_character_of_several_tokens_is_given_out_whole():
    stream = Detokenizer(lambda ids: bytes(ids).decode(errors="replace"), ())

    pieces = [stream.feed([byte]) for byte in "aé→b".encode()]

    assert pieces == ["a", "", "é", "", "", "→", "b"]


def test_what_may_become_a_stop_string_is_kept_back():
    stream = Detokenizer(lambda ids: bytes(ids).decode(), ("END",))

    pieces = [stream.feed(part.encode()) for part in ("aE", "N", "x", "yEN", "Dz")]

    assert pieces == ["a", "", "ENx", "y", ""]
    assert stream.finish() == ""


def test_the_cost_of_a_chunk_does_not_grow_with_the_answer():
    decoded = 0

    def decode(ids):
        nonlocal decoded
        decoded += len(ids)
        return bytes(ids).decode(errors="replace")

    stream, text = Detokenizer(decode, ("END",)), "aé→b" * 500
    pieces = [stream.feed([byte]) for byte in text.encode()]

    assert "".join(pieces) == text
    assert decoded < 8 * len(text.encode())


def test_a_token_whose_text_depends_on_the_one_before_is_decoded_after_it():
    words = [" one", " two", " three"]
    # As many tokenizers do: a text does not begin with the space of its first word.
    stream = Detokenizer(lambda ids: "".join(words[id] for id in ids).removeprefix(" "), ())

    pieces = [stream.feed(ids) for ids in ([0], [1, 2], [0])]

    assert pieces == ["one", " two three", " one"]


@given(
    st.text("ab→", max_size=20),
    st.lists(st.text("ab→", min_size=1, max_size=4), max_size=2),
    st.lists(st.integers(0, 30)),
)
@example("ab", ["b", "ab"], [])  # the stop string that begins first is not the first of the list
def test_the_pieces_are_the_text_up_to_its_first_stop_string(text, stops, cuts):
    raw = text.encode()
    # An engine's text ends with the token that completes a stop string.
    ends = [text.encode().index(stop.encode()) + len(stop.encode()) for stop in stops
            if stop in text]  # fmt: skip
    raw = raw[: min(ends, default=len(raw))]
    stream = Detokenizer(lambda ids: bytes(ids).decode(errors="replace"), tuple(stops))
    places = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]

    pieces = [stream.feed(raw[a:b]) for a, b in pairwise(places)]

    whole = raw.decode(errors="replace")
    first = min((whole.index(stop) for stop in stops if stop in whole), default=len(whole))
    given = "".join(pieces)
    assert whole[:first].startswith(given)
    assert given + stream.finish() == whole[:first]
