"""What the adapter touches of SGLang: a table by hand, held to SGLang's source where it is."""

import ast
import importlib
import inspect
import json
from pathlib import Path

import pytest

from specscope_hook.adapters import sglang as adapter
from specscope_hook.adapters import sglang_requests, sglang_worker
from specscope_hook.errors import NotSupported

HERE = Path(__file__).parent
TABLE = json.loads((HERE.parent / "data/sglang/source-0.5.23.json").read_text())
METHODS = [
    (f, *each.split("."), s) for f, of in TABLE["signatures"].items() for each, s in of.items()
]
PLAYED = [each for each in METHODS if (HERE / "standin/sglang/srt" / each[0]).exists()]
WRAPPED = {
    **adapter.METHODS,
    **sglang_worker._DRAFT,
    **sglang_worker._VERIFY,
    **sglang_worker._LOOKUP,
    "forward_batch_generation": sglang_worker._FORWARD,
}


def class_of(file, name, source):
    """A class of a source file, parsed; for `*` the module."""
    tree = ast.parse((source / "sglang/srt" / file).read_text())
    if name == "*":
        return tree
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def names_in(tree):
    """Methods, annotated fields, and what is assigned to self."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def test_the_table_is_of_the_version_that_the_adapter_names():
    assert TABLE["version"] == adapter.TESTED


@pytest.mark.parametrize(("file", "owner", "method", "parameters"), METHODS)
def test_the_adapter_takes_the_real_parameters(file, owner, method, parameters):
    space = {}
    exec(f"def {method}({parameters}): pass", space)
    real = type(owner, (), {method: space[method]})

    adapter.check(real, {method: WRAPPED[method]}, TABLE["version"])

    renamed = {method: (*WRAPPED[method][:-1], "another")}
    with pytest.raises(NotSupported, match=f"{owner}.{method}"):
        adapter.check(real, renamed, TABLE["version"])


@pytest.mark.parametrize(("file", "owner", "method", "parameters"), PLAYED)
def test_the_stand_in_has_the_real_parameters(sglang, file, owner, method, parameters):
    name = "sglang.srt." + file.removesuffix(".py").replace("/", ".")
    module = importlib.import_module(name)

    assert str(inspect.signature(getattr(getattr(module, owner), method))) == f"({parameters})"


@pytest.mark.sglang
@pytest.mark.parametrize(("file", "owner", "method", "parameters"), METHODS)
def test_the_source_has_the_tables_parameters(sglang_source, file, owner, method, parameters):
    body = class_of(file, owner, sglang_source).body
    found = next(n.args for n in body if isinstance(n, ast.FunctionDef) and n.name == method)
    for each in (*found.args, *found.kwonlyargs):
        each.annotation = None

    assert ast.unparse(found) == parameters


def test_the_table_has_all_that_makes_a_requests_content():
    named = TABLE["attributes"]
    shapes = named["sampling/sampling_params.py"]["SamplingParams"]

    assert set(sglang_requests._SHAPES) <= set(shapes)
    assert set(sglang_requests._BESIDES) <= set(named["managers/schedule_batch.py"]["Req"])


@pytest.mark.sglang
@pytest.mark.parametrize("file", TABLE["attributes"])
def test_the_source_has_the_attributes_that_are_read(sglang_source, file):
    for owner, names in TABLE["attributes"][file].items():
        assert set(names) - names_in(class_of(file, owner, sglang_source)) == set(), owner


@pytest.mark.sglang
@pytest.mark.parametrize("file", TABLE["texts"])
def test_the_source_says_what_is_taken_for_granted(sglang_source, file):
    text = (sglang_source / "sglang/srt" / file).read_text()

    assert [each for each in TABLE["texts"][file] if each not in text] == []


@pytest.mark.sglang
def test_a_result_can_carry_what_we_know_of_its_launch(sglang_source):
    decorators = class_of(
        "managers/utils.py", "GenerationBatchResult", sglang_source
    ).decorator_list

    assert [ast.unparse(each) for each in decorators] == ["dataclasses.dataclass"]
