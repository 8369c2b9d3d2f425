"""Password hashes that other systems made, with their passwords."""

from typing import Final, NamedTuple


class ForeignHash(NamedTuple):
    text: str
    password: str


FOREIGN_HASHES: Final = {
    # Made by make_password of Django 5.2 with its hashers; the first has the number of iterations of Django 6.
    "Django PBKDF2": ForeignHash(
        "pbkdf2_sha256$1200000$vnI0g8Ss5oHgQ3fPMMjLup$WoHEFaBPQPHAivTj8kq8vMaCTeg5/2/gzYdy/wbghtw=", "a password é"
    ),
    "Django bcrypt": ForeignHash(
        "bcrypt_sha256$$2b$12$MY9BTB.AwP515P1pB7o0MuOCMXEtbvTcpZXw9uf8gXBxgqH6UWCZC", 8 * "a password é"
    ),
    # The default of the users that Laravel's own factory made until Laravel 10, by Hash::make of PHP's bcrypt.
    "Laravel": ForeignHash("$2y$10$92IXUNpkjO0rOQ5byMi.Ye4oKoEa3Ro9llC/.og/at2.uheWG/igi", "password"),
    # Made by Keycloak 24 with its default, and converted as examples/move_in does.
    "Keycloak": ForeignHash(
        "$pbkdf2-sha512$210000$JaBKqx57IIB/dLDTpWBu.Q$5IL4kCCyOerhaEHfdK1BbjYxO6HitYLRtJOxwD8MUZH5wCgc1edmf35rWiP9sRxE"
        "wnQDstxch8twKh08Usi1fQ",
        "password",
    ),
    # The vector of RFC 7914 §12 with N = 16384, whose first 32 bytes are those that one with 32 bytes has.
    "scrypt": ForeignHash(
        "$scrypt$ln=14,r=8,p=1$U29kaXVtQ2hsb3JpZGU$cCO9yzr9c0hGHAbNgf046/2o+7qQT44+qbVD9lRdofI", "pleaseletmein"
    ),
    # A vector of RFC 6070 §2. Its first 20 bytes are those that a key of 20 bytes has.
    "PBKDF2 with SHA-1": ForeignHash(
        "$pbkdf2$4096$c2FsdFNBTFRzYWx0U0FMVHNhbHRTQUxUc2FsdFNBTFRzYWx0$PS7sT.QchJuAyNg2YsDkSospGpY",
        "passwordPASSWORDpassword",
    ),
}
