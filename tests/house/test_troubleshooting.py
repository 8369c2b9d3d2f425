"""Each heading of docs/how-to/troubleshooting.md that quotes a message has the words of the code."""

import ast
import re

from tests.support.servers import CHECKOUT

OF_REDIS = {"Connection refused", "OOM command not allowed when used memory > 'maxmemory'", "NOAUTH", "WRONGPASS"}
ASSEMBLED = {"its userinfo returned status 403"}
"""Messages whose words are not in one text of the code."""


def list_texts() -> list[str]:
    """Return all texts of the code, and of f-strings the fixed parts."""
    trees = (ast.parse(path.read_text()) for path in (CHECKOUT / "service").rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_quoted_messages_are_those_of_the_code() -> None:
    page = (CHECKOUT / "docs" / "how-to" / "troubleshooting.md").read_text()
    headings = re.findall(r"^###? (.*`.*)$", page, re.MULTILINE)
    quoted = [message for heading in headings for message in re.findall(r"`(.+?)`", heading)]
    texts = list_texts()

    assert len(quoted) > 30
    assert set(quoted) >= OF_REDIS | ASSEMBLED
    for message in set(quoted) - OF_REDIS - ASSEMBLED:
        for part in message.split("…"):
            assert any(part.strip() in text for text in texts), message
