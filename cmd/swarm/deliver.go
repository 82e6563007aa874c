package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/text/language"

	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/local"
)

// deliverFlags are the flags of `swarm deliver` as they were given.
type deliverFlags struct {
	to                      string
	at, zone                string
	rate                    float64
	dryRun, retryUnknown    bool
	ledger, ledgerTable     string
	ledgerDays              int
	suppressed, out         string
	configurationSet        string
	from, replyTo, brand    string
	locale                  string
	subject, html, text     string
	unsubscribeURL, mailbox string
}

// Values of --to beside URLs.
const (
	toEML     = "eml"
	toSES     = "ses"
	toSESBulk = "ses-bulk"
)

// unknownName is the list of mails whose fate is unknown, beside the ledger.
const unknownName = "unknown-mails.jsonl"

func newDeliverCmd() *cobra.Command {
	f := &deliverFlags{}
	cmd := &cobra.Command{
		Use:   "deliver DIR|FILE --to smtp://HOST:PORT|ses|eml",
		Short: "Mail the briefings of a run, each user once",
		Long: `Mail the rows of Parquet files that are ok and have an address: those of a
run's folder, of a folder of Parquet files, or of one file, be it of this machine
or of Firehose.

Each mail is claimed in a ledger before it is sent and confirmed after that, so
that the same command again sends to those only who got nothing. A mail that was
claimed by a process that died is of unknown fate: it is listed, and sent again
with --retry-unknown only, since its user may have got it.

--to ses sends through the AWS account of the environment, at nine tenths of its
rate. Mail can be held with --at until a time of day; where that was less than
twelve hours ago it goes at once.`,
		Example: `  swarm deliver out --to eml --out mail
  swarm deliver out --to smtp://localhost:1025 --from "News <news@example.com>" --dry-run
  swarm deliver part-000000.parquet --to smtp://user:pass%40word@mail.example.com --rate 10 --at 08:00 --time-zone Europe/Berlin
  swarm deliver out --to ses --from "News <news@example.com>" --configuration-set briefings`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "", "smtp://host:port, smtps://host:port, ses, ses-bulk (50 mails a call) or eml")
	flags.StringVar(&f.out, "out", "", "folder for --to eml (default: mail beside the briefings)")
	flags.StringVar(&f.at, "at", "", "begin at this time of day, HH:MM (default: now)")
	flags.StringVar(&f.zone, "time-zone", "", "of --at and of the dates in mails, such as Europe/Berlin (default: UTC)")
	flags.Float64Var(&f.rate, "rate", 0, "most mails per second (default with SES: 0.9 of the account's rate; else no bound)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "write every mail and send none; say what would happen")
	flags.BoolVar(&f.retryUnknown, "retry-unknown", false, "also send mails of unknown fate; some users may get a second one")
	flags.StringVar(&f.ledger, "ledger", "", "file that remembers who was mailed (default: "+local.LedgerName+" beside the briefings)")
	flags.StringVar(&f.ledgerTable, "ledger-table", "", "DynamoDB table in place of that file, the one that the deployed delivery uses")
	flags.IntVar(&f.ledgerDays, "ledger-days", 30, "how long entries in --ledger-table are kept")
	flags.StringVar(&f.suppressed, "suppressed", "", "file with the user_id of everybody who is to get no mail, one a line")
	flags.StringVar(&f.configurationSet, "configuration-set", "", "of SES (default: the account's)")
	flags.StringVar(&f.from, "from", "Morning briefing <briefing@localhost.localdomain>", "sender of the mails")
	flags.StringVar(&f.replyTo, "reply-to", "", "where replies go (default: the sender)")
	flags.StringVar(&f.brand, "brand", "", "name above each briefing (default: the sender's name)")
	flags.StringVar(&f.locale, "locale", "", "language of users who have none (default en)")
	flags.StringVar(&f.subject, "subject-template", "", "file with the Go template of the subject (default: the built-in one)")
	flags.StringVar(&f.html, "html-template", "", "file with the Go template of the HTML part (default: the built-in one)")
	flags.StringVar(&f.text, "text-template", "", "file with the Go template of the text part (default: the built-in one)")
	flags.StringVar(&f.unsubscribeURL, "unsubscribe-url", "", "https URL with {token}, signed with $"+unsubscribeKeyEnv)
	flags.StringVar(&f.mailbox, "unsubscribe-mailto", "", "mailbox for those whose mail program can't post to that URL")
	return cmd
}

// mailing is one delivery.
type mailing struct {
	*deliverFlags
	paths    []string
	dir      string // where the ledger and the lists lie
	rows     int64
	settings deliver.Settings
	at       *deliver.Clock
	location *time.Location
	optOuts  deliver.Suppressed
	clients  *awsclient.Clients // of --to ses and --ledger-table
	rateFrom string             // why the rate is what it is
}

func (f *deliverFlags) run(ctx context.Context, input string, stdout, stderr io.Writer) (err error) {
	m, err := f.mailing(input)
	if err != nil {
		return &exitError{Code: exitUsage, Err: err}
	}
	if m.rows, err = gather.CountRows(m.paths...); err != nil {
		return err
	}
	composer, err := deliver.NewComposer(m.settings)
	if err != nil {
		return &exitError{Code: exitUsage, Err: fmt.Errorf("--from, --reply-to: %w", err)}
	}
	options := deliver.Options{Composer: composer, Retake: f.retryUnknown, Suppressed: m.optOuts}
	if m.needsAWS() {
		if m.clients, err = awsclient.New(ctx); err != nil {
			return err
		}
	}
	closeSender, err := m.useSender(ctx, &options, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSender()) }()
	closeLedger, err := m.useLedger(&options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLedger()) }()
	if err := m.wait(ctx, stderr); err != nil {
		return err
	}
	return m.deliver(ctx, options, stdout, stderr)
}

// mailing checks the flags by themselves, all of them at once.
func (f *deliverFlags) mailing(input string) (*mailing, error) {
	var faults []error
	fault := func(flag string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", flag, err))
		}
	}
	m := &mailing{deliverFlags: f, location: time.UTC}
	var err error
	if m.paths, m.dir, err = mailFiles(input); err != nil {
		faults = append(faults, err)
	}
	fault("--to", f.checkTo())
	if !(f.rate >= 0) || math.IsInf(f.rate, 0) {
		faults = append(faults, fmt.Errorf("--rate is %v, want a number of mails per second, or 0 for the default", f.rate))
	}
	if f.zone != "" {
		if m.location, err = time.LoadLocation(f.zone); err != nil {
			faults = append(faults, fmt.Errorf("--time-zone is %q, want a name of the tz database, such as Europe/Berlin", f.zone))
			m.location = time.UTC
		}
	}
	if f.at != "" {
		at, err := deliver.ParseClock(f.at)
		fault("--at", err)
		m.at = &at
	}
	if f.ledger != "" && f.ledgerTable != "" {
		faults = append(faults, errors.New("--ledger and --ledger-table exclude each other"))
	}
	if f.ledgerDays < 1 {
		faults = append(faults, fmt.Errorf("--ledger-days is %d, want at least 1", f.ledgerDays))
	}
	for _, only := range []struct {
		set        bool
		flag, want string
		right      bool
	}{
		{f.out != "", "--out", "eml", f.to == toEML},
		{f.configurationSet != "", "--configuration-set", "ses or ses-bulk", f.ses()},
		{f.ledger != "" || f.ledgerTable != "" || f.retryUnknown, "a ledger", "smtp or ses: files are written again without harm", f.to != toEML},
	} {
		if only.set && !only.right {
			faults = append(faults, fmt.Errorf("%s goes with --to %s", only.flag, only.want))
		}
	}
	if f.suppressed != "" {
		m.optOuts, err = readOptOuts(f.suppressed)
		fault("--suppressed", err)
	}
	if f.locale != "" {
		if _, err := language.Parse(f.locale); err != nil {
			faults = append(faults, fmt.Errorf("--locale is %q, want a language tag, such as de or pt-BR", f.locale))
		}
	}
	m.settings = deliver.Settings{From: f.from, ReplyTo: f.replyTo, Brand: f.brand, Locale: f.locale, Location: m.location}
	faults = append(faults, m.readTemplates()...)
	faults = append(faults, m.readUnsubscribe()...)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return m, nil
}

// checkTo refuses what mail can't be sent to.
func (f *deliverFlags) checkTo() error {
	switch {
	case f.to == "":
		return errors.New("say where to: smtp://host:port, smtps://host:port, ses, ses-bulk or eml")
	case f.to == toEML, f.ses():
		return nil
	}
	if u, err := url.Parse(f.to); err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" {
		return errors.New("want smtp://host:port, smtps://host:port, ses, ses-bulk or eml")
	}
	_, err := deliver.NewSMTP(f.to, deliver.SMTPOptions{})
	return err
}

func (f *deliverFlags) ses() bool { return f.to == toSES || f.to == toSESBulk }

func (f *deliverFlags) needsAWS() bool { return f.ses() || f.ledgerTable != "" }

// mailFiles finds the Parquet files of a run's folder, of any other folder, or
// the one that is named, and the folder for what a delivery leaves.
func mailFiles(input string) (paths []string, dir string, err error) {
	info, err := os.Stat(input)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", fmt.Errorf("%s does not exist", input)
	case err != nil:
		return nil, "", err
	case !info.IsDir():
		return []string{input}, filepath.Dir(input), nil
	}
	for _, folder := range []string{filepath.Join(input, local.BriefingsDir), input} {
		found, err := filepath.Glob(filepath.Join(escapeGlob(folder), "*.parquet"))
		if err != nil {
			return nil, "", err
		}
		if len(found) > 0 {
			slices.Sort(found)
			return found, input, nil
		}
	}
	return nil, "", fmt.Errorf("%s holds no *.parquet file, nor does its folder %s", input, local.BriefingsDir)
}

// escapeGlob makes a folder's name stand for itself in a pattern.
func escapeGlob(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

func readOptOuts(path string) (deliver.Suppressed, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close() // opened for reading: nothing to lose
	return deliver.ReadOptOuts(in)
}

// readTemplates reads the tenant's own templates.
func (m *mailing) readTemplates() (faults []error) {
	var sources deliver.TemplateSources
	for _, part := range []struct {
		flag, path string
		text       *string
	}{{"--subject-template", m.subject, &sources.Subject}, {"--html-template", m.html, &sources.HTML}, {"--text-template", m.text, &sources.Text}} {
		if part.path == "" {
			continue
		}
		text, err := os.ReadFile(part.path)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", part.flag, err))
		}
		*part.text = string(text)
	}
	if len(faults) > 0 {
		return faults
	}
	templates, err := deliver.ParseTemplates(sources)
	if err != nil {
		return []error{err}
	}
	m.settings.Templates = templates
	return nil
}

// readUnsubscribe reads how users end their mails.
func (m *mailing) readUnsubscribe() (faults []error) {
	if m.unsubscribeURL == "" && m.mailbox == "" {
		return nil
	}
	keys, err := deliver.ParseUnsubscribeKeys(os.Getenv(unsubscribeKeyEnv))
	if err != nil {
		return []error{fmt.Errorf("--unsubscribe-url, --unsubscribe-mailto: %w (in $%s)", err, unsubscribeKeyEnv)}
	}
	if m.unsubscribeURL != "" {
		links, err := deliver.NewUnsubscribeLinks(m.unsubscribeURL, keys)
		if err != nil {
			faults = append(faults, fmt.Errorf("--unsubscribe-url: %w", err))
		} else {
			m.settings.UnsubscribeURL = links.URL
		}
	}
	if m.mailbox != "" {
		mails, err := deliver.NewUnsubscribeMails(m.mailbox, keys)
		if err != nil {
			faults = append(faults, fmt.Errorf("--unsubscribe-mailto: %w", err))
		} else {
			m.settings.UnsubscribeMail = mails.URL
		}
	}
	return faults
}

// useSender sets where mails go and how fast.
func (m *mailing) useSender(ctx context.Context, o *deliver.Options, stderr io.Writer) (closeSender func() error, err error) {
	closeSender = func() error { return nil }
	rate := m.rate
	switch {
	case m.ses():
		account, err := deliver.ReadSESAccount(ctx, m.clients.SES)
		if err != nil {
			return nil, err
		}
		if err := account.Err(); err != nil {
			return nil, err
		}
		if rate == 0 {
			rate = account.WorkerRate(1)
			m.rateFrom = fmt.Sprintf(" (%.0f %% of the account's %g/s)", deliver.AccountShare*100, account.RatePerSec)
		}
		if !account.Production {
			fmt.Fprintln(stderr, "the SES account is in the sandbox: only verified addresses get mail")
		}
		if left := account.Left(); left >= 0 && left < float64(m.rows) {
			fmt.Fprintf(stderr, "the account may send %.0f more mails in these 24 hours, and there are %d rows: the delivery will stop, and go on when it is run again\n", left, m.rows)
		}
		o.UseSES(m.clients.SES, m.configurationSet, m.to == toSESBulk, rate)
	case m.to == toEML:
		if m.dryRun {
			break
		}
		folder := m.out
		if folder == "" {
			folder = filepath.Join(m.dir, local.MailDir)
		}
		if o.Sender, err = deliver.NewEML(folder, m.rows > local.ShardFrom); err != nil {
			return nil, err
		}
	default:
		smtp, err := deliver.NewSMTP(m.to, deliver.SMTPOptions{})
		if err != nil {
			return nil, err
		}
		o.Sender, closeSender = smtp, smtp.Close
	}
	if rate > 0 && !m.dryRun {
		o.Pace = deliver.NewPace(rate)
		took := time.Duration(float64(m.rows) / rate * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(stderr, "%d rows at %.4g mails/s%s: %v\n", m.rows, rate, m.rateFrom, took)
	}
	if m.dryRun {
		o.Sender = deliver.Null{}
	}
	return closeSender, nil
}

// useLedger opens the ledger. A dry run makes none.
func (m *mailing) useLedger(o *deliver.Options) (closeLedger func() error, err error) {
	closeLedger = func() error { return nil }
	path := m.ledger
	if path == "" {
		path = filepath.Join(m.dir, local.LedgerName)
	}
	switch {
	case m.to == toEML:
		return closeLedger, nil
	case m.ledgerTable != "":
		o.Ledger = deliver.NewDynamoLedger(m.clients.DynamoDB, m.ledgerTable, time.Duration(m.ledgerDays)*24*time.Hour)
		if m.optOuts == nil {
			o.Suppressed = deliver.NewDynamoOptOuts(m.clients.DynamoDB, m.ledgerTable)
		}
	default:
		if _, err := os.Stat(path); m.dryRun && errors.Is(err, fs.ErrNotExist) {
			return closeLedger, nil
		}
		ledger, err := deliver.OpenFileLedger(path)
		if err != nil {
			return nil, err
		}
		o.Ledger, closeLedger = ledger, ledger.Close
	}
	if m.dryRun {
		o.Ledger = deliver.Preview{Of: o.Ledger}
	}
	return closeLedger, nil
}

// wait holds the delivery until its time.
func (m *mailing) wait(ctx context.Context, stderr io.Writer) error {
	if m.at == nil || m.dryRun {
		return nil
	}
	at := m.at.Next(time.Now(), m.location)
	left := time.Until(at)
	if left <= 0 {
		return nil
	}
	fmt.Fprintf(stderr, "waiting for %s, %v from now\n", at.Format("2006-01-02 15:04 MST"), left.Round(time.Second))
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &exitError{Code: exitInterrupted, Err: errors.New("interrupted before anything was sent")}
	}
}

// deliver sends the mails and says what became of them.
func (m *mailing) deliver(ctx context.Context, o deliver.Options, stdout, stderr io.Writer) error {
	unknown := &unknownList{path: filepath.Join(m.dir, unknownName), keep: m.dryRun}
	show, done := progressTo(stderr)
	progress := local.Progress{Stage: local.StageDeliver, Total: m.rows}
	o.OnOutcome = func(outcome deliver.Outcome) {
		progress.Done++
		if outcome.Result == deliver.Failed {
			progress.Failed++
		}
		if outcome.Result == deliver.UnknownFate {
			unknown.add(outcome)
		}
		show(progress)
	}
	stats, err := deliver.Deliver(ctx, gather.MailRows(m.paths...), o)
	done()
	listed, listErr := unknown.close()
	m.summarise(stdout, stats, listed)
	switch {
	case errors.Is(err, context.Canceled):
		return &exitError{Code: exitInterrupted, Err: errors.Join(errors.New("interrupted: the same command again goes on from here"), listErr)}
	case err != nil:
		return errors.Join(err, listErr)
	}
	return listErr
}

// unknownList writes down the mails of unknown fate, for an operator to look
// into. Where there are none there is no list.
type unknownList struct {
	path string
	keep bool // leave the list of before as it is
	file *os.File
	out  *bufio.Writer
	err  error
}

func (u *unknownList) add(o deliver.Outcome) {
	if u.err != nil || u.keep {
		return
	}
	if u.file == nil {
		if u.file, u.err = os.OpenFile(u.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); u.err != nil {
			return
		}
		u.out = bufio.NewWriter(u.file)
	}
	u.err = json.NewEncoder(u.out).Encode(map[string]any{"run_id": o.RunID, "user_id": o.UserID, "code": o.Code, "seen_at": o.Time.UTC().Truncate(time.Second)})
}

// close returns the path of the list, "" for none.
func (u *unknownList) close() (string, error) {
	if u.keep {
		return "", nil
	}
	if u.file == nil {
		if err := os.Remove(u.path); u.err == nil && err != nil && !errors.Is(err, fs.ErrNotExist) {
			u.err = err
		}
	} else {
		u.err = errors.Join(u.err, u.out.Flush(), u.file.Close())
	}
	if u.err != nil {
		return "", fmt.Errorf("list mails of unknown fate: %w", u.err)
	}
	if u.file == nil {
		return "", nil
	}
	return u.path, nil
}

// summarise says in a few lines what became of the rows.
func (m *mailing) summarise(w io.Writer, s deliver.Stats, unknown string) {
	sent := "sent"
	if m.dryRun {
		sent = "would be sent"
	}
	fmt.Fprintf(w, "%d of %d rows: %d %s\n", s.Rows, m.rows, s.Sent, sent)
	fate := "of unknown fate, not sent again by itself"
	if unknown != "" {
		fate += ": " + unknown
	}
	for _, line := range []struct {
		n    int
		what string
	}{
		{s.Already, "sent before, or another row is about the same user"},
		{s.SkippedFailed, "without a briefing"},
		{s.SkippedNoAddress, "without an address"},
		{s.SkippedOptOut, "unsubscribed"},
		{s.Unknown, fate},
		{s.Unsent, "not reached: run the same again"},
	} {
		if line.n > 0 {
			fmt.Fprintf(w, "%8d %s\n", line.n, line.what)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(s.Failed)) {
		fmt.Fprintf(w, "%8d failed: %s\n", s.Failed[code], code)
	}
}
