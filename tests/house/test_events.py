"""The lists of security events in docs/reference/events-and-logs.md are what the service records."""

import ast
import logging
from collections.abc import Iterator

from service.observability.audit import VITAL, get_level, goes_to_stream
from service.protocol.verdicts import REFRESH_REFUSALS
from tests.support.events import read_table
from tests.support.servers import CHECKOUT


def test_documents_list_every_event_with_its_level() -> None:
    table = read_table()
    shares = {event: "always" if event in VITAL else "yes" if goes_to_stream(event) else "" for event in table}
    told = {
        event: ("warning" if get_level(event) == logging.WARNING else "info", share) for event, share in shares.items()
    }
    told["events_lost"] = ("warning", "yes")  # the stream writes it there by itself

    assert {event: row[:2] for event, row in table.items()} == told


RECORDERS = ("record_event", "make_event", "record", "record_request_event", "record_user_event", "_record")


def find_recorded_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of events in calls that record one, and in the tables of such names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in RECORDERS:
            values = node.args
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target).endswith("_EVENTS"):
            values = node.value.values if isinstance(node.value, ast.Dict) else []
        else:
            continue
        yield from (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def test_documents_list_every_recorded_event() -> None:
    trees = {path: ast.parse(path.read_text()) for path in (CHECKOUT / "service").rglob("*.py")}
    recorded = {name: path.name for path, tree in trees.items() for name in find_recorded_names(tree)}

    recorded |= {refusal.event: "verdicts.py" for refusal in REFRESH_REFUSALS.values() if refusal.event}

    assert {"tokens_issued", "code_replayed", "consent_denied"} <= set(recorded)
    assert not {name: path for name, path in recorded.items() if name not in read_table()}
