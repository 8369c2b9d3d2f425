package main

import (
	"encoding/json"
	"os"
	"testing"
)

// The service's own tests read the same file.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Live []struct {
			Token, Key, Record string
			Grant              Grant
		}
		Malformed []string
		Outages   []string
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, live := range vectors.Live {
		if key, ok := MakeKey(live.Token); !ok || key != live.Key {
			t.Errorf("%s: key %s", live.Token, key)
		}
		if grant, err := ParseRecord(live.Record); err != nil || *grant != live.Grant {
			t.Errorf("%s: grant %v, %v", live.Token, grant, err)
		}
	}
	for _, token := range vectors.Malformed {
		if key, ok := MakeKey(token); ok {
			t.Errorf("%q has the key %s", token, key)
		}
	}
	for _, record := range vectors.Outages {
		if grant, err := ParseRecord(record); err == nil {
			t.Errorf("%q is %v", record, grant)
		}
	}
	if len(vectors.Live) == 0 || len(vectors.Malformed) == 0 || len(vectors.Outages) == 0 {
		t.Error("vectors are missing")
	}
}
