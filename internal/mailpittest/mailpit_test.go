package mailpittest

import (
	"net/smtp"
	"strings"
	"testing"
)

func TestServerGivesBackWhatItWasSent(t *testing.T) {
	t.Parallel()
	server := Start(t)
	if got := server.Messages(); len(got) != 0 {
		t.Fatalf("a new server holds %d mails", len(got))
	}
	raw := strings.ReplaceAll(`From: Sender <from@example.com>
To: reader@example.org
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
Message-ID: <1@example.com>
Content-Type: text/html; charset=utf-8

<p>Hello</p>
`, "\n", "\r\n")
	if err := smtp.SendMail(server.SMTPAddr, nil, "from@example.com", []string{"reader@example.org"}, []byte(raw)); err != nil {
		t.Fatal(err)
	}
	list := server.Messages()
	if len(list) != 1 || list[0].Subject != "Grüße" || list[0].To[0].Address != "reader@example.org" {
		t.Fatalf("the server lists %+v", list)
	}
	message := server.Message(list[0].ID)
	if message.MessageID != "1@example.com" || !strings.Contains(message.HTML, "Hello") {
		t.Errorf("message %+v", message)
	}
	if got := string(server.Raw(list[0].ID)); !strings.HasSuffix(got, raw) {
		t.Errorf("raw mail:\n%s", got)
	}
	if got := server.Headers(list[0].ID).Get("Message-Id"); got != "<1@example.com>" {
		t.Errorf("Message-Id %q", got)
	}
	if got := server.HTMLCheck(list[0].ID); got.Total.Nodes == 0 {
		t.Errorf("HTML check saw no nodes: %+v", got)
	}
	if got := server.LinkCheck(list[0].ID); got.Errors != 0 || len(got.Links) != 0 {
		t.Errorf("link check of a mail without links: %+v", got)
	}
}
