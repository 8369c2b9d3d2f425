"""Persons whose logins fail."""

from __future__ import annotations

from dataclasses import replace

from tests.support.clients_and_users import ALICE, login_form

WRONG_ALICE = login_form(replace(ALICE, password="wrong"))
