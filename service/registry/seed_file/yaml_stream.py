"""The YAML of a seed file as a stream of values, of which one item of a list at most is in memory.

The tree of a file with 100,000 users would take half a gigabyte. A value is made as soon as its text is read. A
repeated key is reported with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import yaml
from yaml import events
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.nodes import ScalarNode

_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"
_SCALARS: Final = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "binary", "timestamp")
)
_COLLECTIONS: Final = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


class SeedYaml:
    """The reader of one document. `note_repeated` is called with the place of each key that is repeated in its mapping.

    Text that is not YAML, or has other types than the plain ones, raises an error. `describe_yaml_error` puts these
    errors into words.
    """

    def __init__(self, file: Readable, note_repeated: Callable[[str], None]) -> None:
        self._loader: Any = yaml.CSafeLoader(file)
        self._next: Callable[[], Any] = self._loader.get_event
        self._note_repeated = note_repeated
        self._anchors: dict[str, Any] = {}

    def close(self) -> None:
        self._loader.dispose()

    def read_sections(self) -> Iterator[tuple[Any, Any]] | None:
        """Return the keys and values of the document, or None if the document is not a mapping.

        A list comes as an iterator, which is valid until the next key is read. A document that is not a mapping is read
        to the end of the file as well.
        """
        self._next()
        event = self._next()
        if not isinstance(event, events.StreamEndEvent):
            start = self._next()
            if isinstance(start, events.MappingStartEvent):
                self._check_tag(start)
                return self._read_root(event)
            self._read_value(start, "")
            self._end(event)
        return None

    def _read_root(self, document: Any) -> Iterator[tuple[Any, Any]]:
        seen: set[str] = set()
        while not isinstance(event := self._next(), events.MappingEndEvent):
            name = self._read_value(event, "?")
            if isinstance(name, list | dict):
                raise ConstructorError(None, None, "found unhashable key", event.start_mark)
            if str(name) in seen:
                self._note_repeated(str(name))
            seen.add(str(name))
            event = self._next()
            if isinstance(event, events.SequenceStartEvent) and event.anchor is None:
                self._check_tag(event)
                items = self._read_items(str(name))
                yield name, items
                for _ in items:
                    pass
            else:
                yield name, self._read_value(event, str(name))
        self._end(document)

    def _end(self, document: Any) -> None:
        assert isinstance(self._next(), events.DocumentEndEvent)
        event = self._next()
        if not isinstance(event, events.StreamEndEvent):
            expected = "expected a single document in the stream"
            raise ComposerError(expected, document.start_mark, "but found another document", event.start_mark)

    def _read_value(self, event: Any, place: str) -> Any:
        if isinstance(event, events.AliasEvent):
            return self._get_anchored(event)
        if event.anchor in self._anchors:
            raise ComposerError(None, None, "found duplicate anchor", event.start_mark)
        value: Any
        if isinstance(event, events.ScalarEvent):
            value = self._read_scalar(event)
        else:
            self._check_tag(event)
            is_mapping = isinstance(event, events.MappingStartEvent)
            value = self._read_mapping(place) if is_mapping else list(self._read_items(place))
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _get_anchored(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise ComposerError(
                None, None, "found undefined alias (text that begins with * needs quotes)", event.start_mark
            )
        return self._anchors[event.anchor]

    def _read_scalar(self, event: Any) -> Any:
        tag = self._get_tag(event)
        if tag == _TEXT:
            return event.value
        if tag not in _SCALARS:
            raise _unknown_tag(event)
        try:
            return self._loader.construct_document(ScalarNode(tag, event.value, event.start_mark, event.end_mark))
        except (ValueError, LookupError, AttributeError, OverflowError):  # raised by PyYAML's constructors
            problem = f"found text that is no {tag.rpartition(':')[2]}"
            raise ConstructorError(None, None, problem, event.start_mark) from None

    def _get_tag(self, event: Any) -> str:
        if event.tag is not None and event.tag != "!":
            return str(event.tag)
        return str(self._loader.resolve(ScalarNode, event.value, event.implicit))

    def _read_items(self, place: str) -> Iterator[Any]:
        index = 0
        while not isinstance(event := self._next(), events.SequenceEndEvent):
            yield self._read_value(event, f"{place}[{index}]")
            index += 1

    def _read_mapping(self, place: str) -> dict[Any, Any]:
        own: dict[Any, Any] = {}
        merged: list[dict[Any, Any]] = []
        while not isinstance(event := self._next(), events.MappingEndEvent):
            if isinstance(event, events.ScalarEvent) and event.value == "<<" and self._get_tag(event) == _MERGE:
                merged += self._read_merged(place)
                continue
            name = self._read_value(event, f"{place}.?")
            if isinstance(name, list | dict):
                raise ConstructorError(None, None, "found unhashable key", event.start_mark)
            inner = f"{place}.{name}"
            if name in own:
                self._note_repeated(inner)
            own[name] = self._read_value(self._next(), inner)
        for mapping in merged:
            own = mapping | own
        return own

    def _read_merged(self, place: str) -> list[dict[Any, Any]]:
        """Return the mappings to merge.

        Keys of the merging mapping take precedence over these mappings, and an earlier mapping over a later one.
        """
        event = self._next()
        value = self._read_value(event, f"{place}.<<")
        mappings = value if isinstance(value, list) else [value]
        if not all(isinstance(mapping, dict) for mapping in mappings):
            raise ConstructorError(None, None, "expected a mapping, or a list of mappings, to merge", event.start_mark)
        return mappings

    def _check_tag(self, event: Any) -> None:
        if event.tag not in _COLLECTIONS:
            raise _unknown_tag(event)


def _unknown_tag(event: Any) -> ConstructorError:
    """Return the error for an unknown tag.

    The message does not repeat the text, because a password without quotes that begins with ! is read as a tag. The
    same applies to aliases, which begin with *.
    """
    return ConstructorError(None, None, "found unknown tag (text that begins with ! needs quotes)", event.start_mark)


def describe_yaml_error(error: Exception) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return "the file: is not text in UTF-8"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return f"the file: {'is nested too deeply' if isinstance(error, RecursionError) else error}"
