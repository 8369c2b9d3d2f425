"""Input of operators: variables, REDIS_URL, arguments, times. Mistakes are reported without secrets."""

import os
import re

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.admin.command import parsed_by
from service.admin.input import parse_time_ms
from service.admin.output import format_span, format_time
from service.config.parsers import parse_duration_or_zero_ms
from service.config.reading import BadSettings
from service.config.settings import SETTINGS, load_settings
from service.gateway.lookup import BearerLookup
from service.redis_client.url import parse_redis_url, without_password
from tests.fuzz.generators import bent_text, text, wild

PASSWORD = "Tr0ub4dor"
KEY = "a key of 32 bytes with 16 distinct"
ENOUGH = {"REDIS_URL": "redis://127.0.0.1", "TOKEN_SERVICE_SECRET_KEY": KEY}
VARIABLES = sorted(setting.variable for setting in SETTINGS.values())
GOOD = (
    "redis+sentinel://u:p@[::1]:1,b:2/main/3?db=4", "unix://u:p@/run/redis.sock?db=1", "redis+cluster://a:1,b",
    "127.0.0.1", "::1", "8000", "[::1]:9100", "0.5", "86400", "10/minute", "10.0.0.0/8,::1", "on", "info", "json",
    "https://id.example:8443/tokens/", "~", "~nobody-here/x", "/dev/null/x", "a" * 5000, "#1f5fa8", f"{KEY},{KEY}",
)  # fmt: skip
URLS = (
    "redis://{}h:1/0",
    "rediss://{}[::1]:1/0?db=",
    "redis+cluster://{}a:1,b:2",
    "redis+sentinel://{}a,b/main/0",
    "unix://{}/run/redis.sock?db=1",
)


def as_the_system_has_it(value: str) -> str:
    """Return the value as a process finds it in its environment: bytes without a zero, as text."""
    return os.fsdecode(value.replace("\0", "").encode(errors="surrogatepass"))


def mistakes_of(environment: dict[str, str]) -> str:
    """Empty where there is none."""
    try:
        load_settings(ENOUGH | environment)
    except BadSettings as refusal:
        return str(refusal)
    return ""


@given(
    st.dictionaries(st.sampled_from(VARIABLES), st.one_of(st.sampled_from(GOOD), bent_text(*GOOD), wild), max_size=6)
)
def test_any_environment_is_settings_or_mistakes(environment: dict[str, str]) -> None:
    environment = {name: as_the_system_has_it(value) for name, value in environment.items()}
    told = mistakes_of(environment)

    assert all(mistake.startswith(tuple(VARIABLES)) for mistake in told.splitlines())
    assert told.replace("\n", "").isprintable()


# REDIS_URL


@given(st.one_of(bent_text(*(url.format("u:p@") for url in URLS)), wild))
def test_an_address_of_redis_is_read_or_a_value_error(url: str) -> None:
    try:
        found = parse_redis_url(url)
    except ValueError:
        with pytest.raises(ValueError, match="redis_url: "):
            BearerLookup(url)
        return

    assert bool(found.path) != bool(found.nodes)
    assert all(name and 1 <= port <= 65535 for name, port in found.nodes)
    assert BearerLookup(url)._router.options.url == found


RAW = st.tuples(text.map(lambda some: re.sub("[0-9@]", "", some)), text).map(PASSWORD.join)


@given(st.sampled_from(URLS), RAW)
def test_passwords_are_hidden_in_every_spelling(url: str, password: str) -> None:
    """This includes a password that should have been encoded."""
    _assert_hidden(url.format(f":{password}@"))
    _assert_hidden(url.format(f"user:{password}@"))
    # Without a host, digits and a slash look like a port and a path, and what follows @ looks like a host.
    _assert_hidden(f"{url.partition(':')[0]}://:{password}")


def _assert_hidden(url: str) -> None:
    for parse in (parse_redis_url, BearerLookup):
        told = ""
        try:
            parse(url)
            assert PASSWORD not in without_password(url), url
        except ValueError as expected:
            told = str(expected)
        assert PASSWORD not in told
    assert PASSWORD not in mistakes_of({"REDIS_URL": url.replace("\0", "")})


# Arguments, times, versions


@given(st.one_of(bent_text("24h", "1.5d", "2026-11-21T08:30:00Z", "9999-12-31T23:59:59-23:59", "2026-W47-6"), wild))
@example("9999-12-31T23:59:59-23:59")
def test_times_and_spans_are_read_or_wrong_usage(words: str) -> None:
    for parse, form in ((parse_duration_or_zero_ms, format_span), (parse_time_ms, format_time)):
        try:
            found = parsed_by(parse)(words)
        except click.UsageError:
            continue
        assert isinstance(found, int)
        assert found >= 0
        assert form(found)
