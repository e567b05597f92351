"""Every error code that the source can raise, found in its syntax trees.

A code is a literal that reaches `ColdSnapError`: as its first argument, through a function or
class that hands a parameter of its own on, or as the first of a returned tuple. Conditional
expressions give several. A code that is composed at run time gives a pattern with ``*``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("coldsnap", "steps", "runtime")
CODE = re.compile(r"[a-z][a-z0-9]*(\.[a-z0-9*]+(-[a-z0-9*]+)*)+")


@dataclass(frozen=True)
class Raiser:
    """A callable one of whose parameters is a code."""

    module: Path | None
    """Where it is defined; None: anywhere."""
    name: str
    parameter: str
    position: int | None
    """Among the positional arguments of a call; None for keyword-only."""
    form: str = "{}"
    """The code, with the argument in the braces."""


@dataclass
class Search:
    modules: dict[Path, ast.Module]
    raisers: set[Raiser] = field(default_factory=set)
    found: dict[str, set[str]] = field(default_factory=dict)
    """Code -> places."""

    def run(self) -> None:
        self.raisers.add(Raiser(None, "ColdSnapError", "code", 0))
        known = 0
        while known != len(self.raisers):
            known = len(self.raisers)
            for path, tree in self.modules.items():
                self._scan(path, tree)

    def _scan(self, path: Path, tree: ast.Module) -> None:
        for function, node in nodes(tree):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                if len(node.value.elts) == 3:
                    self._keep(node.value.elts[0], path)
            elif isinstance(node, ast.Call):
                for value, form in self._codes_of(path, node):
                    self._keep(value, path, form)
                    self._follow(value, form, function, path, tree)

    def _codes_of(self, path: Path, call: ast.Call) -> Iterator[tuple[ast.expr, str]]:
        name = callee(call)
        if name.endswith("Error") and call.args:
            yield call.args[0], "{}"
        for raiser in tuple(self.raisers):
            if raiser.name == name and self._means(path, call, raiser):
                yield from ((value, raiser.form) for value in argument(call, raiser))

    def _means(self, path: Path, call: ast.Call, raiser: Raiser) -> bool:
        """Whether the call in that module can be of this raiser, not of one that has its name."""
        if raiser.module in {None, path}:
            return True
        if raiser.name.startswith("_"):
            return False
        origins = imports(self.modules[path])
        if isinstance(call.func, ast.Name):
            return origins.get(raiser.name) == raiser.module.stem
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(base, ast.Name) and base.id in origins:
            return base.id == raiser.module.stem
        return True  # a method of an object

    def _keep(self, value: ast.expr, path: Path, form: str = "{}") -> None:
        for text in literals(value):
            code = form.format(text)
            if CODE.fullmatch(code):
                place = f"{path.relative_to(ROOT)}:{value.lineno}"
                self.found.setdefault(code, set()).add(place)

    def _follow(
        self,
        value: ast.expr,
        form: str,
        function: ast.FunctionDef | None,
        path: Path,
        tree: ast.Module,
    ) -> None:
        """A code in a variable: what it was assigned, or whoever calls the function."""
        if isinstance(value, ast.JoinedStr):
            form, value = composed(value)
        if not isinstance(value, ast.Name):
            return
        for assigned in constants(value.id, tree):
            self._keep(assigned, path, form)
        if function is None:
            return
        for assigned in assignments(value.id, function, tree):
            self._keep(assigned, path, form)
        raiser = raiser_of(value.id, function, path, tree)
        if raiser is not None:
            self.raisers.add(replace(raiser, form=form))
            for default in defaults(value.id, function.args):
                self._keep(default, path, form)


@cache
def codes() -> dict[str, list[str]]:
    """Code (or pattern) -> places in the source."""
    modules = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    search = Search(modules)
    search.run()
    return {code: sorted(places) for code, places in sorted(search.found.items())}


def nodes(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | None, ast.AST]]:
    """Every node with the innermost function around it."""

    def walk(
        node: ast.AST, function: ast.FunctionDef | None
    ) -> Iterator[tuple[ast.FunctionDef | None, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            yield function, child
            yield from walk(child, child if isinstance(child, ast.FunctionDef) else function)

    yield from walk(tree, None)


def callee(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


@cache
def imports(tree: ast.Module) -> dict[str, str]:
    """Name -> last part of the module that it is imported from."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {a.asname or a.name: node.module.rpartition(".")[2] for a in node.names}
    return found


def argument(call: ast.Call, raiser: Raiser) -> Iterator[ast.expr]:
    yield from (word.value for word in call.keywords if word.arg == raiser.parameter)
    if raiser.position is not None and raiser.position < len(call.args):
        yield call.args[raiser.position]


def composed(value: ast.JoinedStr) -> tuple[str, ast.expr]:
    """``f"pack.{reason}"`` as (``pack.{}``, reason); two holes are none."""
    holes = [part.value for part in value.values if isinstance(part, ast.FormattedValue)]
    form = "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{}" for part in value.values
    )
    return (form, holes[0]) if len(holes) == 1 else ("{}", value)


def raiser_of(name: str, function: ast.FunctionDef, path: Path, tree: ast.Module) -> Raiser | None:
    """The function (or its class) as a raiser, if `name` is a parameter of it."""
    positional = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    if positional and positional[0] in {"self", "cls"}:
        positional = positional[1:]
    owner = function.name if function.name != "__init__" else class_of(tree, function)
    if name in positional:
        return Raiser(path, owner, name, positional.index(name))
    if name in {arg.arg for arg in function.args.kwonlyargs}:
        return Raiser(path, owner, name, None)
    return None


def literals(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from literals(value.body)
        yield from literals(value.orelse)
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from literals(part)
    elif isinstance(value, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "*" for part in value.values
        )


def constants(name: str, tree: ast.Module) -> Iterator[ast.expr]:
    """What a name of the module is set to."""
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            yield node.value


def assignments(name: str, function: ast.FunctionDef, tree: ast.Module) -> Iterator[ast.expr]:
    """Values of ``name = ...``, of ``name, other = ..., ...``, and of ``... = TABLE.get(...)``."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield node.value
            elif isinstance(target, ast.Tuple):
                names = [part.id for part in target.elts if isinstance(part, ast.Name)]
                if name in names:
                    rows = [node.value, *table_rows(node.value, tree)]
                    for row in rows:
                        if isinstance(row, ast.Tuple) and len(row.elts) == len(names):
                            yield row.elts[names.index(name)]


def table_rows(value: ast.expr, tree: ast.Module) -> Iterator[ast.expr]:
    """What ``TABLE[key]`` or ``TABLE.get(key, default)`` of a dict of the module can be."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        yield from value.args[1:]
        value = value.func
    table = value.value if isinstance(value, (ast.Subscript, ast.Attribute)) else None
    if isinstance(table, ast.Name):
        for constant in constants(table.id, tree):
            if isinstance(constant, ast.Dict):
                yield from constant.values


def defaults(name: str, args: ast.arguments) -> Iterator[ast.expr]:
    positional = [*args.posonlyargs, *args.args]
    pairs = list(
        zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True)
    )
    pairs += [(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d]
    yield from (default for arg, default in pairs if arg.arg == name)


def class_of(tree: ast.Module, function: ast.FunctionDef) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and function in node.body:
            return node.name
    return ""


if __name__ == "__main__":
    for code, places in codes().items():
        print(code, *places[:3])
