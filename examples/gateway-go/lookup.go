package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	heartbeat = 200 * time.Millisecond
	trust     = time.Second // the cache may be used for this long after an answered heartbeat was sent
	patience  = time.Second // for one answer
	maxCached = 100_000
)

var errDown = errors.New("Redis does not answer")

type cached struct {
	grant     *Grant
	isTracked bool // false: Redis will not report a change, so the grant is only a sign that the token was used
}

// Lookup finds the grants of access tokens. It caches a token from its second use on, until Redis invalidates it.
type Lookup struct {
	address, user, password string

	mu        sync.Mutex
	conn      net.Conn    // nil while there is no connection
	waiting   []func(any) // what to do with the next answers; called with the lock, in the order of the stream
	cache     map[string]cached
	trusted   time.Time // the end of the trust in the cache
	redisMs   int64     // the time of Redis in the last answered heartbeat,
	redisSent time.Time // and when that heartbeat was sent; a time of Go has a monotonic clock
}

// Find returns the grant of a token, or nil if the token is not live. An error is an outage.
func (l *Lookup) Find(token string) (*Grant, error) {
	key, ok := MakeKey(token)
	if !ok {
		return nil, nil
	}
	type result struct {
		grant *Grant
		err   error
	}
	answered := make(chan result, 1)
	l.mu.Lock()
	known, wasUsed := l.cache[key]
	if known.isTracked && time.Now().Before(l.trusted) && l.nowMs() < known.grant.ExpiresMs {
		l.mu.Unlock()
		return known.grant, nil
	}
	if wasUsed {
		l.send(l.check, "CLIENT", "CACHING", "YES")
	}
	l.send(func(answer any) {
		var grant *Grant
		err, _ := answer.(error)
		if record, isText := answer.(string); isText {
			grant, err = ParseRecord(record)
		}
		delete(l.cache, key)
		if grant != nil {
			if len(l.cache) >= maxCached {
				l.cache = map[string]cached{}
			}
			l.cache[key] = cached{grant, wasUsed}
		}
		answered <- result{grant, err}
	}, "GET", key)
	l.mu.Unlock()
	select {
	case found := <-answered:
		return found.grant, found.err
	case <-time.After(patience):
		return nil, errDown
	}
}

// nowMs returns the latest time that the clock of Redis may show.
func (l *Lookup) nowMs() int64 { return l.redisMs + time.Since(l.redisSent).Milliseconds() }

// send writes a command. The caller has the lock.
func (l *Lookup) send(handle func(any), words ...string) {
	if l.conn == nil {
		handle(errDown)
		return
	}
	l.waiting = append(l.waiting, handle)
	command := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	l.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(l.conn, command); err != nil {
		l.conn.Close() // Run notices it
	}
}

// check ends the connection if Redis refused a command without which nothing may be cached.
func (l *Lookup) check(answer any) {
	if refusal, isRefused := answer.(error); isRefused && l.conn != nil {
		log.Print(refusal)
		l.conn.Close()
	}
}

// Run keeps one connection to Redis, and connects again when it is lost. Each connection begins with an empty cache.
func (l *Lookup) Run(report func(error)) {
	for {
		conn, err := net.DialTimeout("tcp", l.address, patience)
		if err == nil {
			err = l.serve(conn)
		}
		report(err)
		time.Sleep(heartbeat)
	}
}

func (l *Lookup) serve(conn net.Conn) error {
	l.mu.Lock()
	l.conn, l.cache = conn, map[string]cached{}
	hello := []string{"HELLO", "3"}
	if l.password != "" && l.user == "" {
		l.user = "default" // an address may have a password only
	}
	if l.password != "" {
		hello = append(hello, "AUTH", l.user, l.password)
	}
	l.send(l.check, hello...)
	l.send(l.check, "CLIENT", "TRACKING", "ON", "OPTIN")
	l.mu.Unlock()
	go l.beat(conn)
	reader := bufio.NewReader(conn)
	for {
		conn.SetReadDeadline(time.Now().Add(2 * trust))
		value, err := readValue(reader)
		l.mu.Lock()
		if err != nil {
			conn.Close()
			waiting := l.waiting
			l.conn, l.cache, l.waiting, l.trusted = nil, nil, nil, time.Time{}
			for _, handle := range waiting {
				handle(errDown)
			}
			l.mu.Unlock()
			return err
		}
		if push, isPush := value.(push); isPush {
			l.invalidate(push)
		} else {
			handle := l.waiting[0]
			l.waiting = l.waiting[1:]
			handle(value)
		}
		l.mu.Unlock()
	}
}

// beat sends heartbeats while this connection lasts. An answer proves that all earlier invalidations have arrived.
func (l *Lookup) beat(conn net.Conn) {
	for ; ; time.Sleep(heartbeat) {
		l.mu.Lock()
		if l.conn != conn {
			l.mu.Unlock()
			return
		}
		sent := time.Now()
		l.send(func(answer any) {
			if parts, isTime := answer.([]any); isTime && len(parts) == 2 {
				seconds, _ := strconv.ParseInt(fmt.Sprint(parts[0]), 10, 64)
				microseconds, _ := strconv.ParseInt(fmt.Sprint(parts[1]), 10, 64)
				l.redisMs, l.redisSent, l.trusted = seconds*1000+microseconds/1000, sent, sent.Add(trust)
			}
		}, "TIME")
		l.mu.Unlock()
	}
}

func (l *Lookup) invalidate(push push) {
	if len(push) != 2 || push[0] != "invalidate" {
		return
	}
	keys, areNamed := push[1].([]any)
	if !areNamed { // the database was emptied
		l.cache = map[string]cached{}
	}
	for _, key := range keys {
		delete(l.cache, fmt.Sprint(key))
	}
}
