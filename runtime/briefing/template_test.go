package briefing

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testRecord(t testing.TB) Record {
	t.Helper()
	rec, err := ParseRecord([]byte(`{"user_id":"u-1","email":"ana@example.com","name":"Ana","locale":"de-CH",
		"city":"Zürich","weather":{"high":19,"low":-2.50,"text":"sunny & <dry>"},"tasks":["call","write"],
		"none":null,"blank":"","count":3,"big":9007199254740993,"huge":123456789012345678901,"price":1234567.5,"on":true,"off":false,
		"news interest":"rail","evil":"{{.email}}","empty":[],"nested":{"gone":null,"a":{"b":"deep"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestRender(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, template, want string }{
		{"known fields", "{{.user_id}} {{.name}} {{.locale}} {{.email}}", "u-1 Ana de-CH ana@example.com"},
		{"context by name", "{{.city}}", "Zürich"},
		{"context whose name is no identifier", `{{index . "news interest"}}`, "rail"},
		{"missing", "[{{.nothing}}]", "[]"},
		{"missing below missing", "[{{.nothing.at.all}}]", "[]"},
		{"null", "[{{.none}}][{{.none.x}}][{{.nested.gone.x}}]", "[][][]"},
		{"missing in a condition", "{{if .nothing}}yes{{else}}no{{end}} {{with .none}}yes{{else}}no{{end}} {{if .blank}}yes{{else}}no{{end}}", "no no no"},
		{"missing compared", `{{if eq .nothing "x"}}yes{{else}}no{{end}}`, "no"},
		{"missing through a variable", "{{$x := .nothing}}[{{$x}}]", "[]"},
		{"missing in printf", `{{printf "[%s]" .nothing}}`, "[]"},
		{"nested", "{{.weather.text}}, {{.weather.high}}", "sunny & <dry>, 19"},
		{"deep", "{{.nested.a.b}}", "deep"},
		{"numbers", "{{.count}} {{.big}} {{.huge}} {{.price}} {{.weather.low}}", "3 9007199254740993 123456789012345678901 1234567.5 -2.5"},
		{"numbers printed", `{{print .price " " .count}} {{printf "%d %.1f" .count .price}}`, "1234567.5 3 3 1234567.5"},
		{"numbers compared", "{{if gt .weather.high 15}}warm{{end}} {{if lt .weather.low 0.0}}frost{{end}}", "warm frost"},
		{"true and false", "{{if .on}}on{{end}}{{if .off}}off{{end}} {{.off}}", "on false"},
		{"objects and lists print as JSON", "{{.weather}} {{.tasks}} {{.empty}}", `{"high":19,"low":-2.5,"text":"sunny & <dry>"} ["call","write"] []`},
		{"range over a list", "{{range $i, $t := .tasks}}{{if $i}}, {{end}}{{$t}}{{end}}", "call, write"},
		{"range over nothing", "{{range .nothing}}x{{else}}none{{end}}", "none"},
		{"break and continue", "{{range .tasks}}{{if eq . \"call\"}}{{continue}}{{end}}{{.}}{{break}}{{end}}", "write"},
		{"all context in order", "{{range .context}}{{.name}};{{end}}",
			"city;weather;tasks;blank;count;big;huge;price;on;off;news interest;evil;empty;nested;"},
		{"context has no known fields", `{{range .context}}{{if eq .name "email"}}{{.value}}{{end}}{{end}}x`, "x"},
		{"data is never a template", "{{.evil}}", "{{.email}}"},
		{"default", `{{default "you" .nothing}} {{.blank | default "none"}} {{.name | default "you"}} {{.count | default 5}}`, "you none Ana 3"},
		{"join", `{{join ", " .tasks}} {{.city | join ", "}} {{.nothing | join ", "}}`, "call, write Zürich"},
		{"json", "{{json .weather}} {{json .city}} {{json .nothing}}", `{"high":19,"low":-2.5,"text":"sunny & <dry>"} "Zürich" null`},
		{"trunc counts characters", "{{trunc 2 .city}} {{.tasks | trunc 5}} {{trunc 9 .name}} {{trunc 0 .name}}", `Zü ["cal Ana`},
		{"white space around is dropped", "\n\n  {{.name}}\n\n", "Ana"},
		{"printed types", `{{printf "%v" .weather}} {{html .city}}`, `{"high":19,"low":-2.5,"text":"sunny & <dry>"} Zürich`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			template, err := ParseTemplate(" Be brief.\n", tt.template)
			if err != nil {
				t.Fatal(err)
			}
			got, err := template.Render(testRecord(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Prompt{System: "Be brief.", User: tt.want}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestRenderErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, template, code string }{
		{"empty", "{{.nothing}}", CodePromptEmpty},
		{"too large", "{{range .tasks}}{{range 10000}}ten letters{{end}}{{end}}", CodePromptTooLarge},
		{"loop without end", "{{range 999999999999}}{{end}}", CodeTemplateEndless},
		{"loops within loops", "{{range 9999}}{{range 9999}}{{range 9999}}{{end}}{{end}}{{end}}", CodeTemplateEndless},
		{"loop over a number of the data", "{{range .big}}{{end}}", CodeTemplateEndless},
		{"text that doubles", `{{$x := "0123456789"}}{{range 40}}{{$x = print $x $x}}{{end}}`, CodePromptTooLarge},
		{"text that doubles in printf", `{{$x := "0123456789"}}{{range 40}}{{$x = printf "%s%s" $x $x}}{{end}}`, CodePromptTooLarge},
		{"wide number", `{{printf "%99999999d" 1}}`, CodeTemplateFailed},
		{"width from an argument", `{{printf "%*d" 99999 1}}`, CodeTemplateFailed},
		{"field of a string", "{{.city.name}}", CodeTemplateFailed},
		{"range over text", "{{range .city}}{{end}}x", CodeTemplateFailed},
		{"compared with another kind", "{{if eq .weather .city}}{{end}}x", CodeTemplateFailed},
		{"out of range", "{{index .tasks 9}}", CodeTemplateFailed},
		{"negative trunc", "{{trunc -1 .city}}", CodeTemplateFailed},
		{"call of no function", "{{call .city}}", CodeTemplateFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			template, err := ParseTemplate("", tt.template)
			if err != nil {
				t.Fatal(err)
			}
			_, err = template.Render(testRecord(t))
			var templateErr *TemplateError
			if !errors.As(err, &templateErr) || templateErr.Code != tt.code {
				t.Fatalf("error %v, want code %s", err, tt.code)
			}
			for _, secret := range []string{"Zürich", "sunny", "call,", "Ana"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error %q quotes the user's %q", err, secret)
				}
			}
		})
	}
	template, err := ParseTemplate("", "{{.name}}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := template.Render(Record{UserID: "1", Context: []Field{field("a", "{broken")}}); err == nil || strings.Contains(err.Error(), "broken") {
		t.Errorf("a value that is not JSON: %v", err)
	}
}

func TestParseTemplateErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, system, user, want string }{
		{"fields in the system prompt", "Write to {{.name}}.", "x", "same plain text for every user"},
		{"empty user template", "", " \n", "it is empty"},
		{"unknown function", "", "{{shout .name}}", `function "shout" not defined`},
		{"unclosed", "", "{{if .name}}", "unexpected EOF"},
		{"define", "", `{{define "a"}}x{{end}}{{.name}}`, "not available"},
		{"define of itself", "", `{{define "user"}}{{template "user"}}{{end}}`, "not available"},
		{"block", "", `{{block "a" .}}x{{end}}`, "not available"},
		{"template", "", `{{template "user"}}`, "not available"},
		{"template within a loop", "", `{{range .tasks}}{{if .}}{{else}}{{template "user"}}{{end}}{{end}}`, "not available"},
		{"not UTF-8", "\xff", "x", "system prompt: it is not UTF-8"},
		{"NUL", "", "x\x00", "NUL"},
		{"too long", strings.Repeat("x", MaxPromptBytes+1), "x", "65537 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseTemplate(tt.system, tt.user)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
	// All at once.
	_, err := ParseTemplate("{{.a}}\xff", "")
	for _, want := range []string{"plain text", "UTF-8", "empty"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	// Braces alone are text.
	if _, err := ParseTemplate("Use {{ sparingly }", "x"); err != nil {
		t.Error(err)
	}
}

func TestTemplateFields(t *testing.T) {
	t.Parallel()
	template, err := ParseTemplate("", `{{.b}}{{with .a}}{{.inner}}{{$.c}}{{end}}{{if eq (print .d.e) "x"}}{{else}}{{range .f}}{{.g}}{{else}}{{.h}}{{end}}{{end}}`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "d", "f", "h"}, template.Fields()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The defaults are what most users see, for every example.
func TestDefaultTemplate(t *testing.T) {
	t.Parallel()
	template, err := ParseTemplate(DefaultSystemPrompt(), DefaultUserTemplate())
	if err != nil {
		t.Fatal(err)
	}
	if template.System() == "" || strings.TrimSpace(template.System()) != template.System() {
		t.Errorf("system prompt %q", template.System())
	}
	rec, err := ParseRecord([]byte(`{"user_id":"u-1","email":"ana@example.com","name":"Ana","city":"Lisbon","blank":"","tasks":["call","write"]}`))
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := template.Render(rec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `The facts are "name: Ana; city: Lisbon; tasks: ["call","write"]". Write the message for Ana.`
	if diff := cmp.Diff(want, prompt.User); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, name := range []string{"users.csv", "users.jsonl"} {
		file, err := os.Open("../../examples/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		r, err := NewReader(file, ReaderOptions{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		for rec, err := r.Next(); err == nil; rec, err = r.Next() {
			prompt, err := template.Render(rec)
			if err != nil {
				t.Fatalf("%s, row %d: %v", name, r.Row(), err)
			}
			if rec.Email != "" && strings.Contains(prompt.User, rec.Email) || strings.Contains(prompt.User, rec.UserID) {
				t.Errorf("%s, row %d: the prompt holds the address or the id", name, r.Row())
			}
			if !strings.Contains(prompt.User, rec.Name) {
				t.Errorf("%s, row %d: the prompt lacks the name", name, r.Row())
			}
		}
		if r.Row() < 8 {
			t.Errorf("%s has %d rows", name, r.Row())
		}
	}
}

func TestRenderConcurrently(t *testing.T) {
	t.Parallel()
	template, err := ParseTemplate("", "{{.name}} {{range .tasks}}{{.}}{{end}}")
	if err != nil {
		t.Fatal(err)
	}
	rec := testRecord(t)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				if prompt, err := template.Render(rec); err != nil || prompt.User != "Ana callwrite" {
					t.Errorf("%+v, %v", prompt, err)
				}
			}
		})
	}
	wait.Wait()
}

// FuzzTemplate renders any template: no panic, no endless loop, a prompt within
// its limits or a TemplateError.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		"{{.name}} {{range .context}}{{.name}}: {{.value}}\n{{end}}", "{{range 1000000}}{{end}}", `{{printf "%5d" .count}}`,
		`{{with $x := .weather}}{{$x.high}}{{else}}{{index . "a"}}{{end}}`, `{{$x := "a"}}{{range .tasks}}{{$x = print $x $x}}{{end}}`,
		"{{/* c */}}{{- json . -}}", `{{slice .city 1 2 | html | trunc 1 | default "x"}}`, "{{break}}", "{{range $i, $c := .big}}{{$i}}{{end}}",
	} {
		f.Add(seed)
	}
	rec := testRecord(f)
	f.Fuzz(func(t *testing.T, text string) {
		template, err := ParseTemplate("", text)
		if err != nil {
			return
		}
		prompt, err := template.Render(rec)
		var templateErr *TemplateError
		switch {
		case err != nil && !errors.As(err, &templateErr):
			t.Fatalf("error %v is no TemplateError", err)
		case err == nil && (prompt.User == "" || len(prompt.User) > MaxPromptBytes):
			t.Fatalf("prompt of %d bytes", len(prompt.User))
		}
	})
}
