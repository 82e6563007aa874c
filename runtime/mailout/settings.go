package mailout

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"golang.org/x/text/language"

	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
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
	var faults []error
	fault := func(name string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
	}
	text := func(name string) string {
		v := getenv(name)
		if !strings.HasPrefix(v, "s3://") {
			return v
		}
		v, err := read.Text(v)
		fault(name, err)
		return v
	}
	whole := func(name string, most, fallback int) int {
		v := getenv(name)
		if v == "" {
			return fallback
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > most {
			faults = append(faults, fmt.Errorf("%s is %q, want a whole number from 1 to %d", name, v, most))
		}
		return n
	}
	s := Settings{
		LedgerTable: getenv(EnvLedgerTable), KeepFor: time.Duration(whole(EnvLedgerDays, 3650, DefaultLedgerDays)) * 24 * time.Hour,
		ConfigurationSet: getenv(EnvConfigurationSet), Workers: whole(EnvWorkers, 1000, 1), Location: time.UTC,
	}
	if s.LedgerTable == "" {
		faults = append(faults, fmt.Errorf("%s is not set: give the name of the sent-ledger's table", EnvLedgerTable))
	}
	switch v := getenv(EnvSender); v {
	case "", SenderSES:
	case SenderSESBulk:
		s.Bulk = true
		if s.Workers > bulkWorkers {
			faults = append(faults, fmt.Errorf("%s is %d with %s, the limit is %d: SES takes one bulk call a second from an account", EnvWorkers, s.Workers, SenderSESBulk, bulkWorkers))
		}
	default:
		faults = append(faults, fmt.Errorf("%s is %q, want %s or %s", EnvSender, v, SenderSES, SenderSESBulk))
	}
	if v := getenv(EnvRatePerSec); v != "" {
		var err error
		if s.RatePerSec, err = strconv.ParseFloat(v, 64); err != nil || !(s.RatePerSec >= 0) || math.IsInf(s.RatePerSec, 0) {
			faults = append(faults, fmt.Errorf("%s is %q, want mails per second, or 0 for the account's rate", EnvRatePerSec, v))
		}
	}
	if v := getenv(EnvTimeZone); v != "" {
		location, err := time.LoadLocation(v)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s is %q, want a name of the tz database, such as Europe/Berlin", EnvTimeZone, v))
		} else {
			s.Location = location
		}
	}
	if v := getenv(EnvDeliverAt); v != "" {
		at, err := deliver.ParseClock(v)
		fault(EnvDeliverAt, err)
		s.At = &at
	}
	s.Mail = deliver.Settings{
		From: getenv(EnvFrom), ReplyTo: getenv(EnvReplyTo), Brand: getenv(EnvBrand), Locale: getenv(EnvLocale), Location: s.Location,
	}
	if s.Mail.Locale != "" {
		if _, err := language.Parse(s.Mail.Locale); err != nil {
			faults = append(faults, fmt.Errorf("%s is %q, want a language tag, such as de or pt-BR", EnvLocale, s.Mail.Locale))
		}
	}
	templates, err := deliver.ParseTemplates(deliver.TemplateSources{Subject: text(EnvSubject), HTML: text(EnvHTML), Text: text(EnvText)})
	fault(EnvSubject+", "+EnvHTML+" or "+EnvText, err)
	s.Mail.Templates = templates
	faults = append(faults, s.readUnsubscribe(getenv, read)...)
	if _, err := deliver.NewComposer(s.Mail); err != nil {
		fault(EnvFrom+" or "+EnvReplyTo, err)
	}
	return s, errors.Join(faults...)
}

// readUnsubscribe reads how users end their mails.
func (s *Settings) readUnsubscribe(getenv func(string) string, read Read) (faults []error) {
	link, mailbox := getenv(EnvUnsubscribeURL), getenv(EnvUnsubscribeMail)
	if link == "" && mailbox == "" {
		return nil
	}
	keys, err := ReadKeys(getenv, read)
	if err != nil {
		return []error{err}
	}
	if link != "" {
		links, err := deliver.NewUnsubscribeLinks(withToken(link), keys)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", EnvUnsubscribeURL, err))
		} else {
			s.Mail.UnsubscribeURL = links.URL
		}
	}
	if mailbox != "" {
		mails, err := deliver.NewUnsubscribeMails(mailbox, keys)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", EnvUnsubscribeMail, err))
		} else {
			s.Mail.UnsubscribeMail = mails.URL
		}
	}
	return faults
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
