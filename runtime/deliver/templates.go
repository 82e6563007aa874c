package deliver

import (
	"bytes"
	"embed"
	"fmt"
	htmltemplate "html/template"
	"strings"
	"sync"
	"text/template"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

//go:embed templates
var templateFiles embed.FS

// View is what a template sees. All text is cleaned: one line and no control
// characters where it says so. The HTML template escapes every value where it
// stands; the text and subject templates write them as they are.
type View struct {
	Lang string // BCP 47 tag of the reader's language
	Dir  string // "ltr" or "rtl"

	Brand   string // who sends this, one line
	Name    string // the reader's display name, one line, may be empty
	Date    string // the day in the reader's language
	Subject string // one line, at most 200 characters

	Blocks    []Block // the briefing
	Text      string  // the briefing as plain text, wrapped at 72 columns
	Preheader string  // its beginning, one line, for the list of mails

	Why            string // why the reader gets this, in the reader's language
	Unsubscribe    string // the word for it, in the reader's language
	UnsubscribeURL string // may be empty
}

// TemplateSources are the texts of a tenant's own templates: Go templates over
// a View, text/template for Subject and Text, html/template for HTML. An empty
// one stands for the default.
type TemplateSources struct {
	Subject, Text, HTML string
}

// Templates are the three templates of a mail. They are safe for concurrent use.
type Templates struct {
	subject, text *template.Template
	html          *htmltemplate.Template
}

// DefaultTemplates returns the templates that ParseTemplates falls back to.
var DefaultTemplates = sync.OnceValue(func() *Templates {
	templates, err := ParseTemplates(TemplateSources{})
	if err != nil {
		panic(err) // the embedded files are part of the program
	}
	return templates
})

// ParseTemplates parses the sources and tries each on two sample mails, so that
// a field that does not exist is found now and not at eight in the morning. The
// errors name the template and the line.
func ParseTemplates(sources TemplateSources) (*Templates, error) {
	for _, s := range []struct {
		text *string
		file string
	}{
		{&sources.Subject, "subject.tmpl"}, {&sources.Text, "mail.txt.tmpl"}, {&sources.HTML, "mail.html.tmpl"},
	} {
		if *s.text != "" {
			continue
		}
		content, err := templateFiles.ReadFile("templates/" + s.file)
		if err != nil {
			return nil, err
		}
		*s.text = string(content)
	}
	var t Templates
	var err error
	if t.subject, err = template.New("subject").Option("missingkey=error").Parse(sources.Subject); err != nil {
		return nil, fmt.Errorf("parse mail template: %w", err)
	}
	if t.text, err = template.New("text").Option("missingkey=error").Parse(sources.Text); err != nil {
		return nil, fmt.Errorf("parse mail template: %w", err)
	}
	if t.html, err = htmltemplate.New("html").Option("missingkey=error").Parse(sources.HTML); err != nil {
		return nil, fmt.Errorf("parse mail template: %w", err)
	}
	for _, sample := range []briefing.Row{
		{RunID: "sample", UserID: "1", Name: "Sample", Locale: "en", Subject: "Sample",
			Briefing: "# Heading\n\nA **bold** paragraph\nof two lines.\n\n- one\n- two\n\n1. first\n2. second"},
		{RunID: "sample", UserID: "2", Locale: "ar"},
	} {
		view := Settings{Brand: "Sample"}.view(sample, sample.Name, "https://example.com/u")
		if _, _, _, err := t.execute(&view); err != nil {
			return nil, err
		}
	}
	return &t, nil
}

// buffers are what templates write into; growing one costs as much as filling it.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPartBytes bounds what a template makes of one mail: several times what mail
// programs show.
const maxPartBytes = 1 << 20

// bounded ends a template that goes on and on.
type bounded struct{ *bytes.Buffer }

func (b bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxPartBytes {
		return 0, fmt.Errorf("gives more than %d bytes", maxPartBytes)
	}
	return b.Buffer.Write(p)
}

// execute writes the three parts. The view's subject becomes what the subject
// template makes of it before the other two see it.
func (t *Templates) execute(view *View) (subject, text, html string, err error) {
	buffer := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buffer)
	buffer.Reset()
	if err := t.subject.Execute(bounded{buffer}, view); err != nil {
		return "", "", "", fmt.Errorf("mail template: %w", err)
	}
	view.Subject = cut(headerText(buffer.String()), maxSubjectRunes)
	if view.Subject == "" {
		return "", "", "", fmt.Errorf("mail template: template: subject: gives an empty subject")
	}
	buffer.Reset()
	if err := t.text.Execute(bounded{buffer}, view); err != nil {
		return "", "", "", fmt.Errorf("mail template: %w", err)
	}
	text = strings.ReplaceAll(buffer.String(), "\r\n", "\n")
	buffer.Reset()
	if err := t.html.Execute(bounded{buffer}, view); err != nil {
		return "", "", "", fmt.Errorf("mail template: %w", err)
	}
	return view.Subject, text, buffer.String(), nil
}
