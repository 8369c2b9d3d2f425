"""A Flask application that logs users in with Authlib and keeps `sub` in its session."""

from typing import Any

from authlib.integrations.flask_client import OAuth, OAuthError
from flask import Flask, redirect, session, url_for

app = Flask(__name__)
app.secret_key = "of your application"
service = OAuth(app).register(
    "service",
    client_id="web-shop",
    client_secret="web-shop-secret",
    server_metadata_url="http://127.0.0.1:8000/.well-known/oauth-authorization-server",
    client_kwargs={"scope": "realm:main role:enduser", "code_challenge_method": "S256"},
)


@app.get("/login")
def login() -> Any:
    return service.authorize_redirect(url_for("callback", _external=True))


@app.get("/callback")
def callback() -> Any:
    try:
        tokens = service.authorize_access_token()
    except OAuthError:  # the user went back or denied the request
        return redirect("/")
    session["user"] = service.userinfo(token=tokens)["sub"]
    return redirect("/")
