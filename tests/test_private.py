"""A room uses no private attribute of another room's objects.

An attribute counts as a room's own if a class in the room defines it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "continua"

# Private attributes of torch, accelerate and named tuples that have no public counterpart.
NOT_OURS = {
    "_C", "_SpectralNorm", "_are_functorch_transforms_active", "_backward_hooks", "_buffers",
    "_cache_enabled", "_cdata", "_foreach_add_", "_forward_hooks", "_forward_pre_hooks",
    "_functorch", "_get_tracing_state", "_len_torch_dispatch_stack", "_modules",
    "_non_persistent_buffers_set", "_parameters", "_replace", "_reset_state", "_version",
}  # fmt: skip


def own_attributes(source: str) -> Iterator[str]:
    """The attributes that the classes of a file define: methods, class variables, `self.name`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield inner.name
                targets = getattr(inner, "targets", [getattr(inner, "target", None)])
                yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) in ("self", "cls")
        ):
            yield node.attr


def foreign_attributes(source: str, own: set[str]) -> Iterator[ast.Attribute]:
    """Uses of private attributes that are not among a room's own."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        name = node.attr
        if not name.startswith("_") or name.startswith("__") or name in own | NOT_OURS:
            continue
        if ast.unparse(node.value) not in ("self", "cls", "super()"):
            yield node


def test_no_room_uses_a_private_attribute_of_another():
    files = {f.relative_to(SOURCE): f.read_text("utf-8") for f in sorted(SOURCE.rglob("*.py"))}
    own: dict[str, set[str]] = {}
    for path, source in files.items():
        own.setdefault(path.parts[0], set()).update(own_attributes(source))
    found = [
        f"src/continua/{path}:{node.lineno}: {ast.unparse(node)} is private to another room"
        for path, source in files.items()
        for node in foreign_attributes(source, own[path.parts[0]])
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("block._rebase()", "block._rebase"),
        ("y = f(x)._plan", "f(x)._plan"),
        ("block._solver = 1", "block._solver"),
        ("class A:\n    def f(self, b):\n        return self._x + b._x", "b._x"),
        ("self._x\ncls._x\nsuper()._x\nz.__dict__\nz._version", None),
        ("class A:\n    _x: int = 0\n    _y = 1\n    def _z(self): ...\na._x + a._y + a._z", None),
        ("class A:\n    def __init__(self):\n        self._x = 1\nA()._x", None),
    ],
)
def test_checker(source, found):
    own = set(own_attributes(source))
    used = [ast.unparse(node) for node in foreign_attributes(source, own)]
    assert used == ([found] if found else [])
