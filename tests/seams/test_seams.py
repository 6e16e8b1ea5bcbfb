"""The check of an engine's source: what it must find, on sources that lack one thing each."""

import ast
from pathlib import Path

import pytest
from seam_check import NAMES, count, main, missing
from seam_table import ENGINES

SEAMS = [(engine, seam) for engine, seams in ENGINES.items() for seam in seams]
LACKS = [
    *((engine, seam, name) for engine, seam in SEAMS for name in (*seam.methods, *seam.fields)),
    *(
        (engine, seam, f"{name}.{parameter}")
        for engine, seam in SEAMS
        for name, parameters in seam.methods.items()
        for parameter in parameters
    ),
]


def write_source(engine, directory, lacking=None):
    """Write a source that has every seam of an engine but one, reordered and with more in it."""
    files = {}
    for seam in ENGINES[engine]:
        lines = [f"class {seam.owner}:"]
        for name, parameters in seam.methods.items():
            kept = [p for p in parameters if lacking != (seam, f"{name}.{p}")]
            if lacking != (seam, name):
                listed = ", ".join(["self", "added", *reversed(kept)])
                lines.append(f"    def {name}({listed}): pass")
        lines.append("    def more(self):")
        lines += [f"        self.{field} = 1" for field in seam.fields if lacking != (seam, field)]
        lines.append("        self.more = 2")
        files.setdefault(seam.file, []).append("\n".join(lines))
    for file, classes in files.items():
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(classes))
        ast.parse(path.read_text())
    (directory / f"{engine}-9.9.dist-info").mkdir(parents=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_source_with_every_seam_fits_and_enters_the_table(engine, tmp_path):
    write_source(engine, tmp_path / "source")
    table = tmp_path / "table.md"

    assert main([f"{engine}={tmp_path / 'source'}", "--table", str(table)]) == 0

    assert "| 9.9 |" in table.read_text()


@pytest.mark.parametrize(("engine", "seam", "name"), LACKS)
def test_a_source_that_lacks_one_thing_is_found_out(engine, seam, name, tmp_path, capsys):
    write_source(engine, tmp_path / "source", (seam, name))
    table = tmp_path / "table.md"

    assert main([f"{engine}={tmp_path / 'source'}", "--table", str(table)]) == 1

    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == 1
    assert f"{seam.file}: {seam.owner}" in lines[0]
    assert lines[0].endswith(name.rpartition(".")[2])
    assert not table.exists()


def test_the_table_of_the_docs_is_of_the_seams_that_the_adapters_have():
    page = (Path(__file__).parents[2] / "docs" / "engines" / "verified.md").read_text()

    for engine, seams in ENGINES.items():
        methods, fields = count(seams)
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {NAMES[engine]} |")]
        assert row.endswith(f"| {methods} | {fields} |"), "run `make seams`"


def test_a_source_without_a_file_or_a_class_is_found_out(tmp_path):
    assert len(list(missing(ENGINES["vllm"], Path(tmp_path)))) == len(ENGINES["vllm"])
