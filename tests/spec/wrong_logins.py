"""Credentials that the service must refuse."""

from dataclasses import replace

from tests.support.clients_and_users import ALICE, WEB_SHOP, UserCredentials

WRONG_ALICE = replace(ALICE, password="wrong")
UNKNOWN_USER = UserCredentials("nobody@example.com", "wrong")
WRONG_SHOP = replace(WEB_SHOP, client_secret="wrong")
