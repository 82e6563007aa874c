package bench

import (
	"fmt"
	"strconv"
	"strings"
)

// Workload is a job of equal users.
type Workload struct {
	Name         string `json:"name"`
	PrefixTokens int    `json:"prefix_tokens"` // shared by all users
	OwnTokens    int    `json:"own_tokens"`    // a user's own
	OutputTokens int    `json:"output_tokens"` // generated for each user
	Parallel     int    `json:"parallel"`      // K
}

// Workloads are the two that figures are given for: a short briefing, and the
// classification into tags.
var Workloads = []Workload{
	{Name: "briefing", PrefixTokens: 180, OwnTokens: 120, OutputTokens: 50, Parallel: 16},
	{Name: "tags", PrefixTokens: 400, OwnTokens: 60, OutputTokens: 15, Parallel: 16},
}

// ParseWorkload reads NAME=PREFIX,OWN,OUTPUT,K.
func ParseWorkload(text string) (Workload, error) {
	const form = "want NAME=PREFIX,OWN,OUTPUT,K, for example briefing=180,120,50,16"
	name, numbers, ok := strings.Cut(text, "=")
	parts := strings.Split(numbers, ",")
	if !ok || name == "" || len(parts) != 4 {
		return Workload{}, fmt.Errorf("%q: %s", text, form)
	}
	var n [4]int
	for i, part := range parts {
		v, err := strconv.Atoi(strings.TrimSpace(part))
		least := 1
		if i == 0 {
			least = 0 // no shared prefix
		}
		if err != nil || v < least || v > 1<<20 {
			return Workload{}, fmt.Errorf("%q: %s", text, form)
		}
		n[i] = v
	}
	if n[3] > 255 {
		return Workload{}, fmt.Errorf("%q: K is %d, want at most 255", text, n[3])
	}
	return Workload{Name: name, PrefixTokens: n[0], OwnTokens: n[1], OutputTokens: n[2], Parallel: n[3]}, nil
}
