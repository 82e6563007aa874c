package mailout

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	s, err := ReadSettings(env(), Read{})
	if err != nil {
		t.Fatal(err)
	}
	if s.LedgerTable != "ledger" || s.KeepFor != 30*24*time.Hour || s.Bulk || s.Workers != 1 || s.RatePerSec != 0 || s.At != nil || s.Location != time.UTC {
		t.Errorf("defaults %+v", s)
	}
	row := briefing.Row{RunID: "r", UserID: "u"}
	if link := s.Mail.UnsubscribeURL(row); !strings.HasPrefix(link, "https://briefings.example/u?t=") || s.Mail.UnsubscribeMail != nil {
		t.Errorf("link %s", link)
	}
	read := Read{
		Text: func(name string) (string, error) {
			if name != "s3://templates/subject" {
				return "", errors.New("no such object")
			}
			return "{{.Brand}}: {{.Subject}}", nil
		},
		Secret: func(arn string) (string, error) { return "the secret's own 16 bytes", nil },
	}
	s, err = ReadSettings(env(EnvSender, "ses-bulk", EnvRatePerSec, "12.5", EnvDeliverAt, "08:00", EnvTimeZone, "Europe/Berlin", EnvLedgerDays, "90", EnvSubject, "s3://templates/subject",
		EnvUnsubscribeKey, "arn:aws:secretsmanager:us-east-1:123456789012:secret:key", EnvUnsubscribeURL, "https://x.example/?a=b", EnvUnsubscribeMail, "stop@x.example", EnvLocale, "de"), read)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Bulk || s.RatePerSec != 12.5 || s.At.String() != "08:00" || s.Location.String() != "Europe/Berlin" || s.KeepFor != 90*24*time.Hour {
		t.Errorf("settings %+v", s)
	}
	if link := s.Mail.UnsubscribeURL(row); !strings.HasPrefix(link, "https://x.example/?a=b&t=") || !strings.HasPrefix(s.Mail.UnsubscribeMail(row), "mailto:stop@x.example?") {
		t.Errorf("link %s", link)
	}
}

func TestSettingsFaultsAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	read := Read{
		Text:   func(string) (string, error) { return "", errors.New("no such object") },
		Secret: func(string) (string, error) { return "short", nil },
	}
	_, err := ReadSettings(env(EnvLedgerTable, "", EnvLedgerDays, "0", EnvFrom, "nobody", EnvReplyTo, "@", EnvSender, "pigeon", EnvRatePerSec, "-1", EnvWorkers, "many",
		EnvDeliverAt, "8", EnvTimeZone, "Mars", EnvLocale, "?", EnvUnsubscribeKey, "arn:x", EnvHTML, "s3://a/b"), read)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		EnvLedgerTable + " is not set", EnvLedgerDays + ` is "0"`, EnvFrom, "reply-to", EnvSender + ` is "pigeon"`, EnvRatePerSec + ` is "-1"`, EnvWorkers + ` is "many"`,
		EnvDeliverAt + ": ", EnvTimeZone + ` is "Mars"`, EnvLocale, EnvUnsubscribeKey + ": unsubscribe key 1 has 5 bytes", EnvHTML + ": no such object",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	for _, bad := range [][]string{
		{EnvUnsubscribeURL, "http://x.example"}, {EnvUnsubscribeMail, "nobody"}, {EnvSubject, "{{.Nothing}}"}, {EnvSender, SenderSESBulk, EnvWorkers, "2"}, {EnvUnsubscribeKey, ""}, {EnvRatePerSec, "NaN"},
	} {
		if _, err := ReadSettings(env(bad...), read); err == nil || !strings.Contains(err.Error(), bad[0]) && !strings.Contains(err.Error(), bad[len(bad)-2]) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

func TestWithToken(t *testing.T) {
	t.Parallel()
	for link, want := range map[string]string{
		"https://x.example/u/{token}": "https://x.example/u/{token}", "https://x.example/u": "https://x.example/u?t={token}", "https://x.example": "https://x.example/?t={token}",
		"https://x.example/": "https://x.example/?t={token}", "https://x.example/u?a=b": "https://x.example/u?a=b&t={token}",
	} {
		if got := withToken(link); got != want {
			t.Errorf("%s became %s, want %s", link, got, want)
		}
	}
}

// TestSecret reads a key as the function does.
func TestSecret(t *testing.T) {
	server := mototest.Start(t)
	clients := mototest.Clients(t, server.URL)
	out, err := clients.SecretsManager.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: ptr("key"), SecretString: ptr("sixteen bytes or more")})
	if err != nil {
		t.Fatal(err)
	}
	if secret, err := Secret(t.Context(), clients.SecretsManager, *out.ARN); err != nil || secret != "sixteen bytes or more" {
		t.Errorf("%q, %v", secret, err)
	}
	if _, err := Secret(t.Context(), clients.SecretsManager, *out.ARN+"x"); err == nil {
		t.Error("a secret that is not there was read")
	}
}
