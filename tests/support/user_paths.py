"""Paths with the name of a user, right ones and near misses. No log may have the name."""

from typing import Final

NAME: Final = "zoe"

USER_PATHS: Final = (
    "/oauth2/v1/users/zoe",
    "/oauth2/v1/users/zoe/healthz",
    "/oauth2/v1/users/zoe@example.com",
    "/oauth2/v1/users/zoe%40example.com",
    "/oauth2/v1/users/%0Azoe@example.com",
    "/oauth2/v1/users%2Fzoe",
    "/oauth2/v1/users%252Fzoe",
    "/oauth2/v1/%75sers/zoe@example.com",
    "/oauth2/v1/Users/zoe",
    "//oauth2/v1/users//zoe",
    "/oauth2/v1/zoe@example.com/users/",
    "/zoe%40example.com",
    "/zoe%2540example.com",
    f"/oauth2/v1/users/{'z' * 150}zoe",
    f"/{'x' * 150}zoe{'x' * 50}@example.com",
)
