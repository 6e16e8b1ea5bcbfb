"""An engine's unpacked source, parsed: no engine is imported to be checked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def class_of(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """A class of a module, or None."""
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return next((node for node in classes if node.name == name), None)


def method_of(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """A method of a class, or None."""
    methods = (node for node in owner.body if isinstance(node, ast.FunctionDef))
    return next((node for node in methods if node.name == name), None)


def names_in(tree: ast.AST) -> set[str]:
    """Methods, annotated fields, members, and whatever is assigned to an attribute."""
    return set(_names(tree))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def parameters_of(method: ast.FunctionDef) -> list[str]:
    """Names of a method's parameters but for `self`."""
    arguments = method.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return names[1:] if names[:1] == ["self"] else names


def parsed(path: Path) -> ast.Module | None:
    """A source file, parsed; None if it is not there."""
    return ast.parse(path.read_text()) if path.is_file() else None
