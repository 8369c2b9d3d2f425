"""Subject identifiers, by which another system names a user.

Clauses: RFC 9493 §3, §3.2.2, §3.2.3, §3.2.4, draft-parecki-oauth-global-token-revocation
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from .errors import InvalidRequest

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Opaque(msgspec.Struct, tag_field="format", tag="opaque"):
    id: _Text


class IssuerAndSubject(msgspec.Struct, tag_field="format", tag="iss_sub"):
    iss: _Text
    sub: _Text


class Email(msgspec.Struct, tag_field="format", tag="email"):
    email: _Text


SubjectIdentifier = Opaque | IssuerAndSubject | Email


class _Request(msgspec.Struct):
    sub_id: SubjectIdentifier


def parse_sub_id(body: Any) -> SubjectIdentifier:
    """Return the `sub_id` of a decoded JSON body. Raises InvalidRequest if it has none of a known format.

    Unknown members are ignored.
    """
    try:
        return msgspec.convert(body, _Request).sub_id
    except msgspec.ValidationError:
        raise InvalidRequest("sub_id_malformed") from None
