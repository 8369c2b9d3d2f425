"""A web server's client with Authlib: code flow with PKCE, refresh, userinfo and revocation.

Authlib does not check `iss`; examples/client.py does.
"""

from typing import Any

from authlib.common.security import generate_token
from authlib.integrations.httpx_client import OAuth2Client

SERVICE = "http://127.0.0.1:8000"
client = OAuth2Client(
    "web-shop",
    "web-shop-secret",
    redirect_uri="http://127.0.0.1:9000/callback",
    scope="realm:main role:enduser",
    code_challenge_method="S256",
)
verifier = generate_token(48)
login, state = client.create_authorization_url(f"{SERVICE}/authorization/", code_verifier=verifier)


def callback(address: str) -> Any:
    endpoint = f"{SERVICE}/oauth2/v1/token"
    tokens = client.fetch_token(endpoint, authorization_response=address, state=state, code_verifier=verifier)
    return client.refresh_token(endpoint, tokens["refresh_token"])


def get_user() -> Any:
    return client.get(f"{SERVICE}/oauth2/v1/userinfo").json()  # ["sub"]


def log_out(tokens: dict[str, Any]) -> None:
    client.revoke_token(f"{SERVICE}/oauth2/v1/revoke", tokens["refresh_token"]).raise_for_status()
