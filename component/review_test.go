package component_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/briefing-swarm/briefing-swarm/component"
)

// TestReview holds what a preview shows against what is kept, and within the
// columns of a terminal.
func TestReview(t *testing.T) {
	t.Parallel()
	for name, args := range configurations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := component.Review("acme", args())
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 76 {
					t.Errorf("a line has %d columns: %s", n, line)
				}
			}
			golden(t, name+".review.txt", text+"\n")
		})
	}
}
