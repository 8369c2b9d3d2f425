"""The records in Redis match docs/reference/access-token-record.md, which other gateways implement."""

import re

import httpx2
import pytest
import redis

from service.gateway.access_record import access_key, parse_grant
from service.protocol.token_form import digest_token, is_access_token
from service.protocol.user import identify_user
from tests.support.clients_and_users import ALICE, PHONE_APP, access_key_of, tokens_of
from tests.support.servers import CHECKOUT

GUIDE = (CHECKOUT / "docs" / "reference" / "access-token-record.md").read_text()
TOKEN = re.findall(r"^TOKEN=(\S+)$", GUIDE, re.MULTILINE)[0]

pytestmark = pytest.mark.clause("decided-record-version")


def block_after(heading: str, number: int = 0) -> str:
    """The text of a block of code below a heading, counted from 0."""
    section = GUIDE.partition(f"\n## {heading}\n")[2]
    blocks: list[str] = re.findall(r"^```\w*\n(.*?)\n```$", section, re.MULTILINE | re.DOTALL)
    return blocks[number]


def test_the_key_of_the_example_is_that_of_its_token() -> None:
    assert is_access_token(TOKEN)
    assert re.fullmatch(block_after("The token"), TOKEN)
    assert block_after("The key", 2) == access_key("220", digest_token(TOKEN))


def test_example_value_matches_the_guide() -> None:
    grant = parse_grant(block_after("The value").encode())

    assert grant.expires_at_ms - grant.issued_at_ms == 600_000
    assert (grant.client_id, grant.username, grant.realm) == ("phone-app", "alice@example.com", "main")
    assert grant.subject == identify_user("main", "alice@example.com").digest
    assert grant.covers("realm:main role:enduser")


async def test_redis_records_match_the_example(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    example = block_after("The value").split("\n")

    lines = str(store.get(access_key_of(tokens["access_token"]))).split("\n")

    assert len(lines) == len(example)
    assert lines[0] == example[0]
    assert [len(line) for line in lines[:4]] == [len(line) for line in example[:4]]
    assert lines[4:] == example[4:]
