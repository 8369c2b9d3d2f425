import secrets
from ipaddress import ip_network
from pathlib import Path

import pytest

from service.config.parsers import Limit
from service.config.reading import BadSettings
from service.config.settings import EXAMPLE_SEED, Settings, load_settings, unknown_variables
from service.serving.arguments import apply_arguments, apply_port, make_configuration, parse_arguments

KEY = "a key of 32 bytes with 16 distinct"
OTHER_KEY = "another key of 40 bytes with 16 distinct"
PRODUCTION = {"REDIS_URL": "redis://localhost:6379/0", "TOKEN_SERVICE_SECRET_KEY": KEY}


def load(**variables: str) -> Settings:
    return load_settings(PRODUCTION | variables)


def mistakes(environment: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(BadSettings) as refusal:
        load_settings(environment)
    return refusal.value.mistakes


@pytest.fixture
def seed_file(tmp_path: Path) -> str:
    file = tmp_path / "seed.yaml"
    file.write_text("clients: []\n")
    return str(file)


def test_a_broken_key_in_the_data_folder_is_a_mistake(tmp_path: Path, seed_file: str) -> None:
    (tmp_path / "secret_key").write_text("short\n")
    environment = {"TOKEN_SERVICE_DATA_DIR": str(tmp_path), "TOKEN_SERVICE_SEED_FILE": seed_file}
    assert [mistake.partition(": expected")[0] for mistake in mistakes(environment)] == [
        f"TOKEN_SERVICE_SECRET_KEY_FILE: {str(tmp_path / 'secret_key')!r}"
    ]


PUBLIC = [
    ({"HOST": "0.0.0.0"}, "HOST '0.0.0.0'"),
    ({"HOST": "id.example.com"}, "HOST 'id.example.com'"),
    ({"TOKEN_SERVICE_BASE_URL": "https://id.example.com"}, "TOKEN_SERVICE_BASE_URL 'https://id.example.com'"),
    ({"TOKEN_SERVICE_WEB_URL": "http://10.0.0.1:8000"}, "TOKEN_SERVICE_WEB_URL 'http://10.0.0.1:8000'"),
    ({"TOKEN_SERVICE_TRUSTED_PROXIES": "127.0.0.1,10.0.0.0/8"}, "TOKEN_SERVICE_TRUSTED_PROXIES '10.0.0.0/8'"),
    ({"TOKEN_SERVICE_TRUSTED_PROXIES": "::/0"}, "TOKEN_SERVICE_TRUSTED_PROXIES '::/0'"),
]


@pytest.mark.parametrize(("public", "named"), PUBLIC)
@pytest.mark.clause("decided-example-seed-not-public")
def test_the_example_seed_starts_at_no_public_address(tmp_path: Path, public: dict[str, str], named: str) -> None:
    (line,) = mistakes({"TOKEN_SERVICE_DATA_DIR": str(tmp_path)} | public)

    assert line.startswith(f"TOKEN_SERVICE_SEED_FILE: not set: expected your own seed file, because {named} is ")
    assert line.endswith(f", set this to {EXAMPLE_SEED})")


@pytest.mark.clause("decided-example-seed-not-public")
def test_named_example_seed_is_accepted(tmp_path: Path, seed_file: str) -> None:
    folder = {"TOKEN_SERVICE_DATA_DIR": str(tmp_path)}
    public, _ = PUBLIC[0]

    assert load_settings(folder | public | {"TOKEN_SERVICE_SEED_FILE": str(EXAMPLE_SEED)}).has_public_example_seed
    assert not load_settings(folder | public | {"TOKEN_SERVICE_SEED_FILE": seed_file}).has_public_example_seed
    assert load(**public).seed_file is None


@pytest.mark.clause("decided-example-seed-not-public")
def test_example_seed_refuses_an_inherited_socket(tmp_path: Path, seed_file: str) -> None:
    folder = {"TOKEN_SERVICE_DATA_DIR": str(tmp_path)}

    with pytest.raises(BadSettings, match="because the socket of --fd 3 is reachable from other machines"):
        load_settings(folder, handed_socket=3)
    for named in (str(EXAMPLE_SEED), seed_file):
        load_settings(folder | {"TOKEN_SERVICE_SEED_FILE": named}, handed_socket=3)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_the_example_seed_is_for_this_machine(tmp_path: Path, host: str) -> None:
    settings = load_settings({"TOKEN_SERVICE_DATA_DIR": str(tmp_path), "HOST": host})

    assert settings.seed_file == EXAMPLE_SEED
    assert not settings.has_public_example_seed


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("600", 600_000), ("0.25", 250), ("90s", 90_000), ("10m", 600_000), ("1.5h", 5_400_000), ("30d", 2_592_000_000)],
)
def test_durations_take_a_unit(text: str, milliseconds: int) -> None:
    settings = load(TOKEN_SERVICE_ACCESS_TOKEN_TTL=text, TOKEN_SERVICE_REFRESH_GRACE=text)

    assert (settings.access_token_ms, settings.refresh_grace_ms) == (milliseconds, milliseconds)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("1/second", (1, 1_000)), ("20/minute", (20, 60_000)), ("3/hour", (3, 3_600_000)), ("7/day", (7, 86_400_000))],
)
@pytest.mark.clause("decided-limits-form")
def test_limits_name_their_window(text: str, limit: Limit) -> None:
    assert load(TOKEN_SERVICE_LOGIN_ATTEMPTS=text).login_attempts == limit


def test_the_address_of_the_metrics_is_a_host_and_a_port() -> None:
    assert load(TOKEN_SERVICE_METRICS_ADDRESS="[::1]:9100").metrics_address == ("::1", 9100)


def test_the_base_url_follows_host_and_port() -> None:
    assert load(HOST="::1", PORT="9000").base_url == "http://[::1]:9000"
    assert load(HOST="fe80::1%eth0", PORT="9000").base_url == "http://[fe80::1%eth0]:9000"
    other = load(TOKEN_SERVICE_BASE_URL="https://api.example.org/", TOKEN_SERVICE_WEB_URL="https://login.example.org/")
    assert (other.base_url, other.web_url) == ("https://api.example.org", "https://login.example.org")


def test_web_url_follows_port_and_scheme_of_the_server() -> None:
    environment = PRODUCTION.copy()
    arguments = parse_arguments(
        ["--host", "::1", "--port", "0", "--ssl-certfile", __file__], load_settings(environment)
    )
    apply_arguments(arguments, environment)
    apply_port(arguments, 9443, environment)

    settings = load_settings(environment)

    assert (settings.base_url, settings.web_url) == ("https://[::1]:9443", "https://[::1]:9443")


@pytest.mark.clause("decided-idle-connections")
@pytest.mark.parametrize(("value", "seconds"), [("", 75), ("2m", 120), ("1.9s", 1), ("0.5s", 1)])
def test_the_server_keeps_idle_connections_as_set(value: str, seconds: int) -> None:
    settings = load_settings(PRODUCTION | {"TOKEN_SERVICE_KEEP_ALIVE": value})

    assert make_configuration(parse_arguments([], settings)).timeout_keep_alive == seconds


@pytest.mark.parametrize(
    ("text", "colour"), [("#0a5", "#00aa55"), ("#0A5", "#00aa55"), ("#12abEF", "#12abef"), ("#1f5fa8", "#1f5fa8")]
)
def test_the_accent_is_kept_in_six_small_digits(text: str, colour: str) -> None:
    assert load(TOKEN_SERVICE_PAGE_ACCENT=text).page_accent == colour


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("large.png", 256 * 1024 + 1, "an image file of at most 256 KiB"),
        ("logo.html", 1, "an image file whose name ends in .svg, .png, .jpg, .jpeg, .webp, .gif"),
        ("png", 1, "an image file whose name ends in .svg, .png, .jpg, .jpeg, .webp, .gif"),
    ],
)
@pytest.mark.clause("decided-bad-setting")
def test_a_logo_that_cannot_be_shown_ends_the_start(tmp_path: Path, name: str, size: int, expected: str) -> None:
    logo = tmp_path / name
    logo.write_bytes(b"x" * size)
    (line,) = mistakes(PRODUCTION | {"TOKEN_SERVICE_PAGE_LOGO": str(logo)})
    assert line == f"TOKEN_SERVICE_PAGE_LOGO: {str(logo)!r}: expected {expected}"


def test_trusted_proxies_are_addresses_and_networks() -> None:
    proxies = load(TOKEN_SERVICE_TRUSTED_PROXIES="10.0.0.0/8, ::1,192.0.2.7").trusted_proxies
    assert proxies == (ip_network("10.0.0.0/8"), ip_network("::1"), ip_network("192.0.2.7"))


WRONG = {
    "REDIS_URL": ["redis://", "redis+sentinel://one"],
    "HOST": ["two words", "[::1]", "http://here", "::%\n", "::%/"],
    "PORT": ["-1", "65536", "http", "80.5"],
    "WEB_CONCURRENCY": ["0", "two", "1.5"],
    "TOKEN_SERVICE_BASE_URL": ["example.org", "ftp://x", "/path", "https://x?y", "https://x#y", "https://x:port"],
    "TOKEN_SERVICE_SEED_FILE": ["nowhere/seed.yaml"],
    "TOKEN_SERVICE_ACCESS_TOKEN_TTL": ["0", "-1", "10 m", "10min", "40000d", "1e3", "nan", " 5", "0.0001"],
    "TOKEN_SERVICE_REFRESH_GRACE": ["-1", "five"],
    "TOKEN_SERVICE_PAGE_NAME": [" ", "two\nlines", "n" * 61, "right\u202eleft"],
    "TOKEN_SERVICE_PAGE_LOGO": ["nowhere/logo.png"],
    "TOKEN_SERVICE_PAGE_ACCENT": ["blue", "#12345", "1f5fa8", "#fff\n", "#fff;x:y"],
    "TOKEN_SERVICE_PAGE_HELP_URL": ["help", "/help", "mailto:help", "https://", "https://x/a b"],
    "TOKEN_SERVICE_PAGE_PRIVACY_URL": ["javascript:alert(1)"],
    "TOKEN_SERVICE_PAGE_LEGAL_URL": ["//example.org"],
    "TOKEN_SERVICE_PAGE_REGISTER_URL": ["javascript:alert(1)", "//example.org", "https://x:port", "https://x/\n"],
    "TOKEN_SERVICE_LOGIN_ATTEMPTS": ["10", "0/minute", "10/fortnight", "10 / minute", "1.5/day"],
    "TOKEN_SERVICE_PASSWORD_MIN_LENGTH": ["0", "129", "8.0"],
    "TOKEN_SERVICE_SESSIONS_PER_USER": ["0", "2001", "many"],
    "TOKEN_SERVICE_TRUSTED_PROXIES": ["proxy.example", "10.0.0.0/33", "10.0.0.1/8"],
    "TOKEN_SERVICE_METRICS_ADDRESS": ["9100", ":9100", "127.0.0.1", "127.0.0.1:0", "h:65536", "::1:9100"],
    "TOKEN_SERVICE_KEEP_ALIVE": ["0", "long"],
    "TOKEN_SERVICE_VERIFY_CACHE": ["yes", "1"],
    "LOG_LEVEL": ["loud"],
    "LOG_FORMAT": ["xml"],
}


@pytest.mark.parametrize(
    ("variable", "value"), [(variable, value) for variable, values in WRONG.items() for value in values]
)
@pytest.mark.clause("decided-bad-setting", "6749-3.2-no-fragment")
def test_mistake_names_variable_value_and_expectation(variable: str, value: str) -> None:
    (line,) = mistakes(PRODUCTION | {variable: value})
    shown = "(hidden)" if variable == "REDIS_URL" else repr(value)
    assert line.startswith(f"{variable}: {shown}: expected ")


@pytest.mark.clause("decided-secret-key-needed")
def test_with_redis_url_a_key_is_required() -> None:
    (line,) = mistakes({"REDIS_URL": "redis://localhost"})
    assert line == (
        "TOKEN_SERVICE_SECRET_KEY: not set: expected 32 bytes or more, because REDIS_URL is set. "
        "Make a key: head -c 48 /dev/urandom | base64"
    )


WEAK_KEYS = {
    "too short": "hunter2",
    "one letter": "k" * 32,
    "few letters": "correct horse correct horse correct",
    "few digits of hexadecimal": "0123456789abcde0" * 2,
    "half a byte more": "0123456789abcde" * 3,
}


@pytest.mark.parametrize("key", WEAK_KEYS.values(), ids=WEAK_KEYS)
@pytest.mark.clause("decided-secret-key-distinct", "decided-secret-key-needed", "decided-secrets-not-shown")
def test_a_weak_key_is_refused_and_not_shown(key: str) -> None:
    (line,) = mistakes(PRODUCTION | {"TOKEN_SERVICE_SECRET_KEY": f"{KEY},{key}"})

    assert line == (
        "TOKEN_SERVICE_SECRET_KEY: (hidden): "
        "expected each key to have at least 32 bytes, 16 of them different (key 2 of 2 has fewer)"
    )


@pytest.mark.clause("decided-secret-key-distinct")
def test_random_keys_are_accepted_in_any_encoding() -> None:
    """Hexadecimal text has few distinct characters, and often fewer than sixteen."""
    for _ in range(1000):
        for key in (secrets.token_hex(32), secrets.token_urlsafe(48), secrets.token_hex(32).upper()):
            assert load(TOKEN_SERVICE_SECRET_KEY=key).secret_keys == (key.encode(),)


URL = "redis://:hunter2@cache:6379/0"


@pytest.fixture
def secret_files(tmp_path: Path) -> dict[str, str]:
    for name, value in {"url": URL, "key": f"{KEY},{OTHER_KEY}"}.items():
        (tmp_path / name).write_text(f"\n {value}\n", "utf-8-sig")
    return {"REDIS_URL_FILE": str(tmp_path / "url"), "TOKEN_SERVICE_SECRET_KEY_FILE": str(tmp_path / "key")}


@pytest.mark.clause("decided-secrets-from-files")
def test_a_secret_may_come_from_a_file(secret_files: dict[str, str]) -> None:
    settings = load_settings(secret_files)

    assert (settings.redis_url, settings.embedded, settings.seed_file) == (URL, False, None)
    assert settings.secret_keys == (KEY.encode(), OTHER_KEY.encode())
    assert list(unknown_variables(secret_files)) == []


@pytest.mark.clause("decided-secrets-from-files")
def test_a_secret_comes_from_one_place(secret_files: dict[str, str]) -> None:
    assert mistakes(PRODUCTION | secret_files) == tuple(
        f"{variable}: {file!r}: expected either {variable.removesuffix('_FILE')} or this, not both"
        for variable, file in secret_files.items()
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "a non-empty file of at most 64 KiB"),
        (b" \n", "a non-empty file of at most 64 KiB"),
        (b"h" * 70_000, "a non-empty file of at most 64 KiB"),
        (b"hunter2 \xff", "a readable file in UTF-8"),
        (None, "a file that exists and can be read"),
    ],
)
@pytest.mark.parametrize("variable", ["REDIS_URL_FILE", "TOKEN_SERVICE_SECRET_KEY_FILE"])
@pytest.mark.clause("decided-secrets-from-files")
def test_a_file_that_holds_no_secret_is_named(
    secret_files: dict[str, str], variable: str, content: bytes | None, expected: str
) -> None:
    file = Path(secret_files[variable])
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)

    assert mistakes(secret_files) == (f"{variable}: {str(file)!r}: expected {expected}",)


@pytest.mark.parametrize(
    ("variable", "content"),
    [("REDIS_URL_FILE", "hunter2://:hunter2@h"), ("TOKEN_SERVICE_SECRET_KEY_FILE", f"{KEY},hunter2")],
)
@pytest.mark.clause("decided-secrets-from-files", "decided-secrets-not-shown")
def test_a_wrong_value_in_a_file_is_not_shown(secret_files: dict[str, str], variable: str, content: str) -> None:
    file = Path(secret_files[variable])
    file.write_text(content)

    (line,) = mistakes(secret_files)

    assert line.startswith(f"{variable}: {str(file)!r}: expected ")
    assert "hunter2" not in line
    assert KEY not in line


def test_unknown_variable_is_reported_with_a_suggestion() -> None:
    typos = ("CODE_TLL", "PORT", "REDIS_URL", "SECRETKEY", "ZZZ")
    environment = {f"TOKEN_SERVICE_{typo}": "1" for typo in typos} | {"PATH": "", **PRODUCTION}
    assert list(unknown_variables(environment)) == [
        "TOKEN_SERVICE_CODE_TLL is not a setting; did you mean TOKEN_SERVICE_CODE_TTL?",
        "TOKEN_SERVICE_PORT is not a setting; did you mean PORT?",
        "TOKEN_SERVICE_REDIS_URL is not a setting; did you mean REDIS_URL?",
        "TOKEN_SERVICE_SECRETKEY is not a setting; did you mean TOKEN_SERVICE_SECRET_KEY?",
        "TOKEN_SERVICE_ZZZ is not a setting",
    ]


def test_an_empty_variable_counts_as_unset() -> None:
    assert load(PORT="", TOKEN_SERVICE_SESSION_MAX_AGE="", TOKEN_SERVICE_CODE_TTL="") == load()


@pytest.mark.parametrize("variable", ["TOKEN_SERVICE_BASE_URL", "TOKEN_SERVICE_WEB_URL"])
@pytest.mark.parametrize("value", ["https://ann:hunter2@example.org", "ann:hunter2@example.org"])
@pytest.mark.clause("decided-secrets-not-shown")
def test_no_password_of_a_url_is_shown(variable: str, value: str) -> None:
    (line,) = mistakes(PRODUCTION | {variable: value})
    assert line.startswith(f"{variable}: ")
    assert "hunter2" not in line
