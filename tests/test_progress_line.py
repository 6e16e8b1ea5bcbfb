"""How far long work is: a line on a terminal, nothing elsewhere."""

import io

from specscope.cli import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True

    @property
    def shown(self):
        return self.getvalue().rpartition("\x1b[K")[2]


def test_the_time_left_counts_what_was_done_since_the_first_call():
    now, terminal = [100.0], Terminal()
    progress = ProgressLine(terminal, lambda: now[0])

    progress("parts", 4, 10)
    assert terminal.shown == "parts: 4 of 10"
    now[0] += 30.0
    progress("parts", 6, 10)
    assert terminal.shown == "parts: 6 of 10, about 1:00 left"
    progress("parts", 10, 10)
    assert terminal.shown == ""


def test_another_name_begins_anew():
    now, terminal = [0.0], Terminal()
    progress = ProgressLine(terminal, lambda: now[0])

    progress("one", 0, 2)
    now[0] = 50.0
    progress("two", 0, 4)
    now[0] = 51.0
    progress("two", 1, 4)

    assert terminal.shown == "two: 1 of 4, about 0:03 left"


def test_a_stage_is_removed_once():
    terminal = Terminal()
    progress = ProgressLine(terminal)

    progress.stage("reading")
    assert terminal.shown == "reading"
    progress.stage("")
    length = len(terminal.getvalue())
    progress.stage("")

    assert len(terminal.getvalue()) == length


def test_nothing_is_written_elsewhere():
    pipe = io.StringIO()
    progress = ProgressLine(pipe)

    progress("parts", 0, 2)
    progress.stage("reading")

    assert pipe.getvalue() == ""
