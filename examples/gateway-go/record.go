package main

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// Grant is what the record of an access token says. Times are milliseconds since 1970 by the clock of Redis.
type Grant struct {
	IssuedMs  int64  `json:"issued_ms"`
	ExpiresMs int64  `json:"expires_ms"`
	Session   string `json:"session"`
	ClientID  string `json:"client_id"`
	Subject   string `json:"subject"`
	Username  string `json:"username"`
	Scope     string `json:"scope"`
}

var (
	tokenForm     = regexp.MustCompile(`^tsat1_[0-9a-f]{3}[A-Za-z0-9_-]{44}$`)
	errUnreadable = errors.New("the record of an access token has an unknown version or form")
)

// MakeKey returns the key of an access token, or false if the text does not have the form of one.
func MakeKey(token string) (string, bool) {
	if !tokenForm.MatchString(token) {
		return "", false
	}
	digest := sha256.Sum256([]byte(token))
	return "access:{" + token[6:9] + "}:" + base64.RawURLEncoding.EncodeToString(digest[:16]), true
}

// ParseRecord returns the grant of a record, and ignores lines behind the eighth. An error is an outage: it does not say
// that the token is invalid.
func ParseRecord(record string) (*Grant, error) {
	lines := strings.Split(record, "\n")
	if len(lines) < 8 || lines[0] != "2" {
		return nil, errUnreadable
	}
	issuedMs, err := strconv.ParseInt(lines[1], 10, 64)
	expiresMs, err2 := strconv.ParseInt(lines[2], 10, 64)
	if err != nil || err2 != nil {
		return nil, errUnreadable
	}
	return &Grant{issuedMs, expiresMs, lines[3], lines[4], lines[5], lines[6], lines[7]}, nil
}
