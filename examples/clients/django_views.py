"""Django views that log users in with Authlib and keep `sub` in the session."""

from typing import Any

from authlib.integrations.django_client import OAuth, OAuthError
from django.http import HttpRequest
from django.shortcuts import redirect

service = OAuth().register(
    "service",
    client_id="web-shop",
    client_secret="web-shop-secret",
    server_metadata_url="http://127.0.0.1:8000/.well-known/oauth-authorization-server",
    client_kwargs={"scope": "realm:main role:enduser", "code_challenge_method": "S256"},
)


def login(request: HttpRequest) -> Any:
    return service.authorize_redirect(request, request.build_absolute_uri("/callback"))


def callback(request: HttpRequest) -> Any:
    try:
        tokens = service.authorize_access_token(request)
    except OAuthError:  # the user went back or denied the request
        return redirect("/")
    request.session["user"] = service.userinfo(token=tokens)["sub"]
    return redirect("/")
