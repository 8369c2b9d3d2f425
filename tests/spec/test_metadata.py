"""The metadata document over HTTP: its address and its content, each statement of which holds."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.conftest import Clock, MakeSettings, serving
from tests.support.clients_and_users import ALICE, PHONE_APP, assert_error

METADATA = "/.well-known/oauth-authorization-server"
ISSUERS = ("https://login.example.org:8443", "https://example.org/tokens", "https://example.org/deep/tokens")


async def read_metadata(http: httpx2.AsyncClient, address: str = METADATA) -> Mapping[str, str | bool | list[str]]:
    response = await http.get(address)
    assert response.status_code == 200, response.text
    metadata: Mapping[str, str | bool | list[str]] = response.json()
    return metadata


def insert_well_known(issuer: str) -> str:
    """Return the address of an issuer's metadata document, as a client derives it."""
    parts = urlsplit(issuer)
    return f"{parts.scheme}://{parts.netloc}{METADATA}{parts.path.rstrip('/')}"


@pytest.mark.clause("decided-metadata", "9207-3-metadata", "8414-2-issuer", "8414-2-endpoints", "8414-2-scopes")
@pytest.mark.clause("8414-3.2-no-empty-list")
async def test_metadata_list_all_capabilities(http: httpx2.AsyncClient) -> None:
    assert await read_metadata(http) == {
        "issuer": "http://127.0.0.1:8000",
        "authorization_endpoint": "http://127.0.0.1:8000/authorization/",
        "token_endpoint": "http://127.0.0.1:8000/oauth2/v1/token",
        "revocation_endpoint": "http://127.0.0.1:8000/oauth2/v1/revoke",
        "introspection_endpoint": "http://127.0.0.1:8000/oauth2/v1/introspect",
        "userinfo_endpoint": "http://127.0.0.1:8000/oauth2/v1/userinfo",
        "global_token_revocation_endpoint": "http://127.0.0.1:8000/oauth2/v1/global-token-revocation",
        "scopes_supported": [
            "realm:main",
            "role:enduser",
            "role:organisation",
            "role:admin",
            "role:partner",
            "role:device",
            "role:orderer",
        ],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "password", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "revocation_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "introspection_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "global_token_revocation_endpoint_auth_methods_supported": ["client_secret_basic"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
        "ui_locales_supported": ["en", "de"],
    }


@pytest.mark.clause("8414-3.1-get", "8414-3.2-json")
async def test_the_document_is_json_that_anybody_may_keep_for_a_while(http: httpx2.AsyncClient) -> None:
    response = await http.get(METADATA)

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "public, max-age=300"
    assert "pragma" not in response.headers


@pytest.mark.clause(
    "decided-metadata", "8414-3-path-inserted", "8414-3.3-issuer-identical", "6819-4.5.4-counterfeit-token-endpoint"
)
@pytest.mark.parametrize("issuer", ISSUERS)
async def test_the_document_found_by_an_issuer_names_that_issuer(
    make_settings: MakeSettings, clock: Clock, registry: None, issuer: str
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_BASE_URL=issuer), clock) as http:
        metadata = await read_metadata(http, insert_well_known(issuer))

    assert metadata["issuer"] == issuer
    assert metadata["authorization_endpoint"] == f"{issuer}/authorization/"


@pytest.mark.clause("decided-metadata", "decided-base-url-slash", "8414-3.1-terminating-slash")
async def test_metadata_of_a_base_path_has_two_addresses(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_BASE_URL="https://example.org/tokens/"), clock) as http:
        documents = [
            await read_metadata(http, f"{METADATA}/tokens"),
            await read_metadata(http, f"/tokens{METADATA}"),
            await read_metadata(http, METADATA),
        ]

        assert_error(await http.get(f"{METADATA}/tokens/"), 404, "invalid_request")
        assert_error(await http.get(f"{METADATA}/other"), 404, "invalid_request")
    assert [document["issuer"] for document in documents] == ["https://example.org/tokens"] * 3


@pytest.mark.clause("decided-metadata", "spec-0-two-addresses")
async def test_only_the_authorization_endpoint_lies_under_the_web_url(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_BASE_URL="https://api.example.org", TOKEN_SERVICE_WEB_URL="https://login.example.org/start"
    )
    async with serving(settings, clock) as http:
        metadata = await read_metadata(http)

    assert metadata["authorization_endpoint"] == "https://login.example.org/start/authorization/"
    assert metadata["issuer"] == "https://api.example.org"
    assert metadata["token_endpoint"] == "https://api.example.org/oauth2/v1/token"
    assert metadata["revocation_endpoint"] == "https://api.example.org/oauth2/v1/revoke"


@pytest.mark.clause("decided-metadata")
@pytest.mark.parametrize(
    "grant_type", ["authorization_code", "password", "refresh_token", "client_credentials", "implicit"]
)
async def test_metadata_names_the_supported_grant_types(http: httpx2.AsyncClient, grant_type: str) -> None:
    metadata = await read_metadata(http)
    named = metadata["grant_types_supported"]
    assert isinstance(named, list)

    response = await http.post(str(metadata["token_endpoint"]), data=PHONE_APP.credentials | {"grant_type": grant_type})

    assert_error(response, 400, "invalid_request" if grant_type in named else "unsupported_grant_type")


@pytest.mark.clause("decided-metadata", "8414-2-scopes")
async def test_metadata_names_the_realms_with_a_login(http: httpx2.AsyncClient) -> None:
    named = (await read_metadata(http))["scopes_supported"]
    assert isinstance(named, list)

    for realm in ("realm:main", "realm:cep"):
        response = await PHONE_APP.log_in(http, ALICE, f"{realm} role:enduser")
        assert response.status_code == (200 if realm in named else 400), realm
