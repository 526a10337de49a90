"""How deeply a YAML text is nested, told before anybody builds anything of it.

PyYAML's composers, over libyaml as well, call themselves once a level, and in C without a limit: fifty thousand `[`
end the process. The events of a text come without any of that. This loads next to nothing but the parser.
"""

from __future__ import annotations

MOST_DEPTH = 500  # levels; a matrix.yaml has some seven
SAFE = 2000  # levels that no composer minds: a text that can have no more is not looked through


def too_deep(text: str) -> int | None:
    """The line on which the text is nested more deeply than MOST_DEPTH; None where nothing is, or where it is no YAML
    before that."""
    if _most(text) <= SAFE:
        return None
    import yaml  # here, for next to no text is looked through

    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
                depth += 1
                if depth > MOST_DEPTH:
                    return event.start_mark.line + 1 if event.start_mark else 1
            elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
                depth -= 1
    except (yaml.YAMLError, RecursionError):
        return None
    return None


def _most(text: str) -> int:
    """No fewer levels than the text has: each takes a character that opens one, or a line that is indented further."""
    indents = {len(line) - len(line.lstrip(" ")) for line in text.splitlines()}
    return sum(map(text.count, "[{?")) + text.count("- ") + text.count("-\t") + text.count("-\n") + len(indents)
