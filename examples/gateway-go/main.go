// Command gateway checks access tokens in Redis, as docs/reference/access-token-record.md describes, with the standard library only.
//
//	REDIS_URL=redis://gateway:password@127.0.0.1:6379 LISTEN=127.0.0.1:8080 go run .
//
// It answers 200 with the subject, 401, or 503 if Redis is unavailable. It knows one Redis server over TCP, without TLS,
// Sentinel or Cluster.
package main

import (
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
)

func (l *Lookup) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		w.Header().Set("WWW-Authenticate", `Bearer realm="example"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	grant, err := l.Find(token)
	switch {
	case err != nil:
		log.Print(err)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	case grant == nil:
		w.Header().Set("WWW-Authenticate", `Bearer realm="example", error="invalid_token"`)
		w.WriteHeader(http.StatusUnauthorized)
	default:
		w.Header().Set("X-Auth-Subject", grant.Subject)
	}
}

func main() {
	address, err := url.Parse(os.Getenv("REDIS_URL"))
	if err != nil || address.Scheme != "redis" || address.Host == "" {
		log.Fatal("REDIS_URL: expected redis://user:password@host:port")
	}
	lookup := &Lookup{address: address.Host, user: address.User.Username()}
	lookup.password, _ = address.User.Password()
	go lookup.Run(func(err error) { log.Print(err) })
	log.Fatal(http.ListenAndServe(os.Getenv("LISTEN"), lookup))
}
