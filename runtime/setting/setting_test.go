package setting_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/runtime/setting"
)

func TestReader(t *testing.T) {
	t.Parallel()
	env := map[string]string{"NAME": "n", "WHOLE": "7", "NUMBER": "0.5", "TEXT": "plain", "FAR": "s3://b/k", "BROKEN": "s3://b/none",
		"BIG": "11", "HALF": "1.5", "NAN": "NaN", "LESS": "-0.1"}
	r := setting.New(func(name string) string { return env[name] }, func(url string) (string, error) {
		if url == "s3://b/k" {
			return "from far", nil
		}
		return "", errors.New("there is no such object")
	})
	for name, ok := range map[string]bool{
		"get":      r.Get("NAME") == "n" && r.Get("NONE") == "",
		"required": r.Required("NAME", "a name") == "n",
		"whole":    r.Whole("WHOLE", 1, 10, 3) == 7 && r.Whole("NONE", 1, 10, 3) == 3,
		"number":   r.Number("NUMBER", 1, 0.2) == 0.5 && r.Number("NONE", 1, 0.2) == 0.2,
		"text":     r.Text("TEXT") == "plain" && r.Text("FAR") == "from far" && r.Text("NONE") == "",
	} {
		if !ok {
			t.Errorf("%s: another value", name)
		}
	}
	r.Fault("NAME", nil)
	if err := r.Err(); err != nil {
		t.Fatalf("faults where there are none: %v", err)
	}

	r.Required("NONE", "the table")
	r.Text("BROKEN")
	for _, name := range []string{"BIG", "HALF", "NAME"} {
		if got := r.Whole(name, 1, 10, 3); got != 3 {
			t.Errorf("%s is read as %d, want the fallback", name, got)
		}
	}
	for _, name := range []string{"NAN", "LESS", "NAME"} {
		r.Number(name, 1, 0)
	}
	for _, want := range []string{
		"NONE is not set: give the table", "BROKEN: there is no such object", `BIG is "11", want a whole number from 1 to 10`, `HALF is "1.5"`,
		`NAN is "NaN", want a number from 0 to 1`, `LESS is "-0.1"`, `NAME is "n", want a whole`, `NAME is "n", want a number`,
	} {
		if !strings.Contains(r.Err().Error(), want) {
			t.Errorf("the error lacks %s:\n%v", want, r.Err())
		}
	}
}
