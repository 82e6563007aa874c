package mailout

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"golang.org/x/text/language"

	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/setting"
)

// Environment of the handlers. Values marked "text" may also be s3://bucket/key
// of an object that holds the text.
const (
	EnvLedgerTable      = "SWARM_LEDGER_TABLE"       // deliver and unsubscribe, required
	EnvLedgerDays       = "SWARM_LEDGER_DAYS"        // how long the ledger remembers, default DefaultLedgerDays
	EnvFrom             = "SWARM_FROM"               // "Name <address>", required
	EnvReplyTo          = "SWARM_REPLY_TO"           // default the sender
	EnvBrand            = "SWARM_BRAND"              // name above each briefing, default the sender's
	EnvLocale           = "SWARM_LOCALE"             // of users without one, default en
	EnvConfigurationSet = "SWARM_CONFIGURATION_SET"  // of SES, default the account's
	EnvSender           = "SWARM_SENDER"             // ses or ses-bulk, default ses
	EnvRatePerSec       = "SWARM_RATE_PER_SEC"       // of all workers together; default 0: deliver.AccountShare of the account's
	EnvWorkers          = "SWARM_DELIVERY_WORKERS"   // the function's reserved concurrency, default 1
	EnvDeliverAt        = "SWARM_DELIVER_AT"         // HH:MM, default at once
	EnvTimeZone         = "SWARM_TIME_ZONE"          // of that time and of the dates in mails, default UTC
	EnvUnsubscribeURL   = "SWARM_UNSUBSCRIBE_URL"    // https URL, {token} or ?t= takes the token; default no link
	EnvUnsubscribeMail  = "SWARM_UNSUBSCRIBE_MAILTO" // mailbox for those who can't post, default none
	EnvUnsubscribeKey   = "SWARM_UNSUBSCRIBE_KEY"    // ARN of the secret, or the key itself; required with either of the two above
	EnvSubject          = "SWARM_SUBJECT_TEMPLATE"   // text, default the built-in one
	EnvHTML             = "SWARM_HTML_TEMPLATE"      // text, default the built-in one
	EnvText             = "SWARM_TEXT_TEMPLATE"      // text, default the built-in one
)

// DefaultLedgerDays is how long nobody gets the mails of the same run again.
const DefaultLedgerDays = 30

// Values of EnvSender.
const (
	SenderSES     = "ses"
	SenderSESBulk = "ses-bulk"
)

// bulkWorkers is what SendBulkEmail bears: all calls but those for single mails
// are limited to one a second for the account (AWS's documentation, read in
// public copies on 2026-11-30).
const bulkWorkers = 1

// Settings are what the environment of the deliver handler says.
type Settings struct {
	LedgerTable      string
	KeepFor          time.Duration
	Mail             deliver.Settings
	ConfigurationSet string
	Bulk             bool
	RatePerSec       float64 // of all workers together, 0 for the account's
	Workers          int
	At               *deliver.Clock // nil for at once
	Location         *time.Location
}

// Read is how settings reach beyond the environment.
type Read struct {
	// Text returns the object of an s3:// value, Secret that of a secret's ARN.
	Text, Secret func(name string) (string, error)
}

// ReadSettings reads the environment. The error names every fault.
func ReadSettings(getenv func(string) string, read Read) (Settings, error) {
	r := setting.New(getenv, read.Text)
	s := Settings{
		LedgerTable:      r.Required(EnvLedgerTable, "the name of the sent-ledger's table"),
		KeepFor:          time.Duration(r.Whole(EnvLedgerDays, 1, 3650, DefaultLedgerDays)) * 24 * time.Hour,
		ConfigurationSet: r.Get(EnvConfigurationSet), Workers: int(r.Whole(EnvWorkers, 1, 1000, 1)), Location: time.UTC,
		RatePerSec: r.Number(EnvRatePerSec, maxRatePerSec, 0),
	}
	switch v := r.Get(EnvSender); v {
	case "", SenderSES:
	case SenderSESBulk:
		s.Bulk = true
		if s.Workers > bulkWorkers {
			r.Faultf("%s is %d with %s, the limit is %d: SES takes one bulk call a second from an account", EnvWorkers, s.Workers, SenderSESBulk, bulkWorkers)
		}
	default:
		r.Faultf("%s is %q, want %s or %s", EnvSender, v, SenderSES, SenderSESBulk)
	}
	if v := r.Get(EnvTimeZone); v != "" {
		location, err := time.LoadLocation(v)
		if err != nil {
			r.Faultf("%s is %q, want a name of the tz database, such as Europe/Berlin", EnvTimeZone, v)
		} else {
			s.Location = location
		}
	}
	if v := r.Get(EnvDeliverAt); v != "" {
		at, err := deliver.ParseClock(v)
		r.Fault(EnvDeliverAt, err)
		s.At = &at
	}
	s.Mail = deliver.Settings{
		From: r.Get(EnvFrom), ReplyTo: r.Get(EnvReplyTo), Brand: r.Get(EnvBrand), Locale: r.Get(EnvLocale), Location: s.Location,
	}
	if s.Mail.Locale != "" {
		if _, err := language.Parse(s.Mail.Locale); err != nil {
			r.Faultf("%s is %q, want a language tag, such as de or pt-BR", EnvLocale, s.Mail.Locale)
		}
	}
	templates, err := deliver.ParseTemplates(deliver.TemplateSources{Subject: r.Text(EnvSubject), HTML: r.Text(EnvHTML), Text: r.Text(EnvText)})
	r.Fault(EnvSubject+", "+EnvHTML+" or "+EnvText, err)
	s.Mail.Templates = templates
	s.readUnsubscribe(r, read)
	if _, err := deliver.NewComposer(s.Mail); err != nil {
		r.Fault(EnvFrom+" or "+EnvReplyTo, err)
	}
	return s, r.Err()
}

// maxRatePerSec bounds mails a second; a larger figure is a mistake.
const maxRatePerSec = 100_000

// readUnsubscribe reads how users end their mails.
func (s *Settings) readUnsubscribe(r *setting.Reader, read Read) {
	link, mailbox := r.Get(EnvUnsubscribeURL), r.Get(EnvUnsubscribeMail)
	if link == "" && mailbox == "" {
		return
	}
	keys, err := ReadKeys(r.Get, read)
	if err != nil {
		r.Faultf("%w", err)
		return
	}
	if link != "" {
		links, err := deliver.NewUnsubscribeLinks(withToken(link), keys)
		r.Fault(EnvUnsubscribeURL, err)
		if err == nil {
			s.Mail.UnsubscribeURL = links.URL
		}
	}
	if mailbox != "" {
		mails, err := deliver.NewUnsubscribeMails(mailbox, keys)
		r.Fault(EnvUnsubscribeMail, err)
		if err == nil {
			s.Mail.UnsubscribeMail = mails.URL
		}
	}
}

// withToken adds the place of the token to a URL that names none.
func withToken(link string) string {
	switch {
	case strings.Contains(link, "{token}"):
		return link
	case strings.Contains(link, "?"):
		return link + "&" + tokenField + "={token}"
	case strings.Count(link, "/") < 3: // https://host
		return link + "/?" + tokenField + "={token}"
	}
	return link + "?" + tokenField + "={token}"
}

// ReadKeys reads the keys that sign unsubscribe links.
func ReadKeys(getenv func(string) string, read Read) (*deliver.UnsubscribeKeys, error) {
	secret := getenv(EnvUnsubscribeKey)
	if strings.HasPrefix(secret, "arn:") {
		var err error
		if secret, err = read.Secret(secret); err != nil {
			return nil, fmt.Errorf("%s: %w", EnvUnsubscribeKey, err)
		}
	}
	keys, err := deliver.ParseUnsubscribeKeys(secret)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvUnsubscribeKey, err)
	}
	return keys, nil
}

// Secret reads a secret's text.
func Secret(ctx context.Context, client *secretsmanager.Client, arn string) (string, error) {
	out, err := client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &arn})
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	if out.SecretString == nil {
		return string(out.SecretBinary), nil
	}
	return aws.ToString(out.SecretString), nil
}
