"""Under the rule ``documented`` no float comes near a record: not in a literal, a call or a division."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

from registry.model import split
from registry.splits import documented, layout, plan, resolve


def floats(tree: ast.AST) -> list[str]:
    """The places where ``tree`` could create a float."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if (isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div))
        or (isinstance(node, ast.Constant) and isinstance(node.value, float))
        or (isinstance(node, ast.Name) and node.id in ("float", "round"))
    ]


@pytest.mark.parametrize("module", [layout, plan, resolve, split])
def test_no_module_on_the_path_makes_a_float(module: ModuleType) -> None:
    assert floats(ast.parse(inspect.getsource(module))) == []


def test_the_documented_rule_makes_no_float() -> None:
    functions = {
        one.name: floats(one)
        for one in ast.parse(inspect.getsource(documented)).body
        if isinstance(one, ast.FunctionDef)
    }
    # The explanation divides a Fraction.
    assert functions.pop("explain_bound") == ["Fraction(place) * extent.num_examples / 100"]
    assert {name for name, found in functions.items() if found} == set()
    assert "find_range" in functions
