import pytest

from service.redis_client.url import RedisUrl, parse_redis_url, without_password

WELL_FORMED = {
    "redis://localhost": RedisUrl(kind="single", nodes=(("localhost", 6379),)),
    "redis://10.0.0.7:7000/3": RedisUrl(kind="single", nodes=(("10.0.0.7", 7000),), db=3),
    "redis://localhost?db=3": RedisUrl(kind="single", nodes=(("localhost", 6379),), db=3),
    "redis://[::1]:7000/": RedisUrl(kind="single", nodes=(("::1", 7000),)),
    "rediss://cache.example": RedisUrl(kind="single", tls=True, nodes=(("cache.example", 6379),)),
    "redis://ann:p%40ss%2F@cache": RedisUrl(kind="single", nodes=(("cache", 6379),), username="ann", password="p@ss/"),
    "redis://:secret@cache": RedisUrl(kind="single", nodes=(("cache", 6379),), password="secret"),
    "unix:///run/redis.sock": RedisUrl(kind="single", path="/run/redis.sock"),
    "unix://ann:secret@/run/my%20redis.sock?db=2": RedisUrl(
        kind="single", path="/run/my redis.sock", username="ann", password="secret", db=2
    ),
    "redis+cluster://one,two:7001,[fe80::1]:7002": RedisUrl(
        kind="cluster", nodes=(("one", 6379), ("two", 7001), ("fe80::1", 7002))
    ),
    "rediss+cluster://ann:secret@one:7000/": RedisUrl(
        kind="cluster", tls=True, nodes=(("one", 7000),), username="ann", password="secret"
    ),
    "redis+sentinel://one,two:26380/main": RedisUrl(
        kind="sentinel", nodes=(("one", 26379), ("two", 26380)), master_name="main"
    ),
    "rediss+sentinel://:secret@one/main/4": RedisUrl(
        kind="sentinel", tls=True, nodes=(("one", 26379),), password="secret", db=4, master_name="main"
    ),
}

ALSO_WRITTEN = {
    "REDIS://localhost": "redis://localhost",
    "Unix:///run/redis.sock": "unix:///run/redis.sock",
    "RedisS+Cluster://one": "rediss+cluster://one",
    "valkey://ann:Valkey@cache/3": "redis://ann:Valkey@cache/3",
    "valkeys://cache": "rediss://cache",
    "valkey+cluster://one,two": "redis+cluster://one,two",
    "valkeys+cluster://one": "rediss+cluster://one",
    "valkey+sentinel://one/Valkey": "redis+sentinel://one/Valkey",
    "VALKEYS+SENTINEL://one/main": "rediss+sentinel://one/main",
}

MALFORMED = [
    "",
    "localhost:6379",
    "redis:localhost",
    "http://localhost",
    "valkeyss://localhost",
    "valkey+unix:///run/valkey.sock",
    "redis://",
    "redis:///0",
    "redis://:6379",
    "redis://local host",
    "redis://ann:sec\x00ret@cache",
    "redis://localhost:0",
    "redis://localhost:65536",
    "redis://localhost:port",
    "redis://localhost/first",
    "redis://localhost/-1",
    "redis://localhost/1?db=2",
    "redis://localhost?timeout=3",
    "redis://localhost#1",
    "redis://one,two",
    "redis://::1",
    "redis://[::1",
    "redis://[::1]x",
    "unix://run/redis.sock",
    "unix:///",
    "redis+cluster://one,,two",
    "redis+cluster://one/0",
    "redis+cluster://one?db=0",
    "redis+cluster://",
    "redis+sentinel://one",
    "redis+sentinel://one/",
    "redis+sentinel://one/main/zero",
    "redis+sentinel:///main",
]


@pytest.mark.parametrize("text", WELL_FORMED)
def test_every_redis_url_format_is_parsed(text: str) -> None:
    assert parse_redis_url(text) == WELL_FORMED[text]


@pytest.mark.parametrize("text", ALSO_WRITTEN)
def test_scheme_may_name_valkey_in_any_case(text: str) -> None:
    assert parse_redis_url(text) == parse_redis_url(ALSO_WRITTEN[text])


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_redis_url(text)


SECRET_INSIDE = {
    "redis://ann:hunter2@cache:6379/0": "redis://…@cache:6379/0",
    "redis+sentinel://:hunter2@[::1]:1,[::2]/main/0?db=": "redis+sentinel://…@[::1]:1,[::2]/main/0",
}


@pytest.mark.parametrize("text", SECRET_INSIDE)
def test_a_password_is_never_shown(text: str) -> None:
    assert without_password(text) == SECRET_INSIDE[text]


def test_an_address_does_not_show_its_password() -> None:
    assert "hunter2" not in repr(parse_redis_url("redis://ann:hunter2@cache"))
