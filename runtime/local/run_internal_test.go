package local

import (
	"testing"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// The short way to a line's id must give what parsing gives.
func TestLineKey(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"1", "u-1", "größe 🎉", `a"b`, `a\b`, "a<b&c>", "a\u2028b", "9007199254740993", "}", `","user_id":"`} {
		line, err := briefing.Record{UserID: id, Email: "a@example.com"}.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if key, ok := lineKey(line); ok && key != keyOf(id) {
			t.Errorf("the key of %s is not that of %q", line, id)
		} else if !ok && id == "u-1" {
			t.Errorf("%s has to be parsed", line)
		}
		rec, err := briefing.ParseRecord(line)
		if err != nil || rec.UserID != id {
			t.Errorf("%s: %q, error %v", line, rec.UserID, err)
		}
	}
	for _, line := range []string{"", "{}", `{"user_id":1}`, `{"user_id":"`, `{"user_id":"a`, `{"email":"a","user_id":"b"}`} {
		if _, ok := lineKey([]byte(line)); ok {
			t.Errorf("%q has a key", line)
		}
	}
}
