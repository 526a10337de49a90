"""YAML text to plain data, with the line of every value.

Scalars follow the core schema of YAML 1.2, so `1e-4` is a number and `no` is text. Keys are text and appear once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from fmha.harness.depth import too_deep
from fmha.harness.errors import ConfigError

FieldPath = tuple[str | int, ...]

MOST_VALUES = 1_000_000  # aliases included: nine anchors of nine aliases each would be a thousand million
_TAG = "tag:yaml.org,2002:"
_WORD = re.compile(r"[\w-]+\Z")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_TRUE = ("true", "True", "TRUE")


class _CoreLoader(yaml.SafeLoader):
    """SafeLoader under the core schema's rules for plain scalars."""


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same over libyaml where PyYAML has it: ten times faster, but it words what is wrong less well."""


_CoreLoader.yaml_implicit_resolvers = {}
for _name, _pattern in (
    ("null", r"~|null|Null|NULL|"),
    ("bool", r"true|True|TRUE|false|False|FALSE"),
    ("int", r"[-+]?[0-9]{1,18}"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"),
):
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), None)
_FastLoader.yaml_implicit_resolvers = _CoreLoader.yaml_implicit_resolvers


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data and where it stood. `name` is the file as errors name it."""

    name: str
    data: Any
    lines: dict[FieldPath, int] = field(default_factory=dict)

    def problem(self, path: FieldPath, what: str) -> str:
        """`matrix.yaml:14: suites.seed.axes.t[2]: what`; a path that is missing has its nearest parent's line."""
        return f"{self.name}:{self.line(path)}: {render(path)}{': ' if path else ''}{what}"

    def line(self, path: FieldPath) -> int:
        """The line of a field, or of the nearest one around it that has a line."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def render(path: FieldPath) -> str:
    """`("suites", "seed", "t", 2)` as `suites.seed.t[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _WORD.match(part) else repr(part))
    return text


def parse(text: str, name: str) -> Document:
    """Read one YAML document. Raises ConfigError, naming the line, for anything but plain data with unique keys."""
    if (line := too_deep(text)) is not None:
        raise ConfigError([f"{name}:{line}: broken YAML: nested too deeply"])
    try:
        root = _composed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        hint = "; indent with spaces, not tabs" if "'\\t'" in str(error.problem) else ""
        raise ConfigError([f"{name}:{line}: broken YAML: {error.problem or error.context}{hint}"]) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError([f"{name}:{line}: broken YAML: {error.reason}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{name}:1: broken YAML: nested too deeply"]) from error
    if root is None:
        raise ConfigError([f"{name}:1: the file is empty"])
    document = Document(name, None)
    try:
        data = _plain(root, (), document, set())
    except RecursionError as error:
        raise ConfigError([f"{name}:1: broken YAML: nested too deeply"]) from error
    return Document(name, data, document.lines)


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_FastLoader)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=_CoreLoader)


def _plain(node: yaml.Node, path: FieldPath, document: Document, open_nodes: set[int]) -> Any:
    document.lines[path] = node.start_mark.line + 1
    if len(document.lines) > MOST_VALUES:
        raise ConfigError([document.problem(path, f"the file has more than {MOST_VALUES} values, its aliases counted")])
    if id(node) in open_nodes:
        raise ConfigError([document.problem(path, "an alias inside its own anchor")])
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, path, document)
    open_nodes.add(id(node))
    try:
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [_plain(item, (*path, index), document, open_nodes) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return _mapping(node, path, document, open_nodes)
    finally:
        open_nodes.discard(id(node))
    raise ConfigError([document.problem(path, f"unknown tag {node.tag}")])


def _mapping(node: yaml.MappingNode, path: FieldPath, document: Document, open_nodes: set[int]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TAG + "str":
            shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
            raise ConfigError([f"{document.name}:{line}: {render(path) or 'top level'}: key {shown!r} must be text"])
        key = key_node.value
        if key in result:
            first = document.lines[(*path, key)]
            raise ConfigError([f"{document.name}:{line}: {render((*path, key))}: key repeated, first on line {first}"])
        result[key] = _plain(value_node, (*path, key), document, open_nodes)
        document.lines[(*path, key)] = line
    return result


def _scalar(node: yaml.ScalarNode, path: FieldPath, document: Document) -> Any:
    kind = node.tag.removeprefix(_TAG)
    try:
        if kind == "str":
            return node.value
        if kind == "int":
            return int(node.value)
        if kind == "float":
            return float(node.value)
        if kind == "bool":
            return node.value in _TRUE
        if kind == "null":
            return _WORDS[node.value]
    except (ValueError, KeyError) as error:
        raise ConfigError([document.problem(path, f"{node.value!r} is not of type {kind}")]) from error
    raise ConfigError([document.problem(path, f"unknown tag {node.tag}")])
