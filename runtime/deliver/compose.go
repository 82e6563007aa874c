package deliver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// maxBriefingBytes bounds the text of one mail. Gmail hides what comes after
// 102 KB, and the HTML around a briefing takes some of that.
const maxBriefingBytes = 64 << 10

// Settings say how a tenant's mails look. The zero value of every field but
// From is sound.
type Settings struct {
	// From is the sender, as "Name <address>" or an address alone. Its domain
	// also names the mails (Message-ID).
	From string
	// ReplyTo is where replies go; "" for From.
	ReplyTo string
	// Brand is the name above each briefing; "" for the sender's name, or the
	// domain when it has none.
	Brand string
	// Templates replace the built-in ones; nil for those.
	Templates *Templates
	// UnsubscribeURL gives the https link that ends a user's mails by a POST
	// (RFC 8058), such as UnsubscribeLinks.URL. nil, or "" for a user: no link
	// and no List-Unsubscribe.
	UnsubscribeURL func(briefing.Row) string
	// UnsubscribeMail gives the mailto: link that does the same by a mail, such
	// as UnsubscribeMails.URL, for programs that can't post. nil for none.
	UnsubscribeMail func(briefing.Row) string
	// Locale is for rows without a locale of their own, a BCP 47 tag; "" for en.
	Locale string
	// Location is where the day in a mail is told; nil for UTC.
	Location *time.Location
	// Now gives the Date of a mail; nil for the clock.
	Now func() time.Time
}

// Composer writes mails. It is safe for concurrent use.
type Composer struct {
	settings Settings
	from     mail.Address
	replyTo  *mail.Address
	domain   string
}

// NewComposer checks the settings and reports all their faults at once.
func NewComposer(settings Settings) (*Composer, error) {
	var faults []error
	from, err := parseAddress(settings.From)
	if err != nil {
		faults = append(faults, fmt.Errorf("sender (from): %w: write it as \"Name <name@example.com>\"", err))
	}
	from.Name = displayName(from.Name)
	c := &Composer{settings: settings, from: from}
	if needsSMTPUTF8(from.Address) {
		faults = append(faults, errors.New("sender (from): its part before the @ must be ASCII, or few servers take its mail"))
	}
	if settings.ReplyTo != "" {
		replyTo, err := parseAddress(settings.ReplyTo)
		if err != nil {
			faults = append(faults, fmt.Errorf("reply-to: %w", err))
		}
		replyTo.Name = displayName(replyTo.Name)
		c.replyTo = &replyTo
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	c.domain = from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	c.settings.Brand = cut(headerText(settings.Brand), maxNameRunes)
	if c.settings.Brand == "" {
		c.settings.Brand = from.Name
	}
	if c.settings.Brand == "" {
		c.settings.Brand = c.domain
	}
	if c.settings.Templates == nil {
		c.settings.Templates = DefaultTemplates()
	}
	if c.settings.Now == nil {
		c.settings.Now = time.Now
	}
	return c, nil
}

// Compose writes the mail for a row with a briefing and an address. A *SendError
// of kind Permanent says why this user cannot be mailed.
func (c *Composer) Compose(row briefing.Row) (Message, error) {
	to, err := checkRow(row)
	if err != nil {
		return Message{}, err
	}
	// The display name of the row, not one that the address may bring along.
	to.Name = displayName(row.Name)

	header, unsubscribe, err := c.settings.unsubscribe(row)
	if err != nil {
		return Message{}, &SendError{Kind: Permanent, Code: CodeUnsubscribeURL, Err: fmt.Errorf("unsubscribe link %w", err)}
	}

	view := c.settings.view(row, to.Name, unsubscribe)
	subject, text, html, err := c.settings.Templates.execute(&view)
	if err != nil {
		// The error of a template can quote the value it stumbled over.
		return Message{}, &SendError{Kind: Permanent, Code: CodeTemplate}
	}
	message := Message{
		RunID:   row.RunID,
		UserID:  row.UserID,
		ID:      messageID(row.RunID, row.UserID) + "@" + c.domain,
		From:    c.from,
		To:      to,
		ReplyTo: c.replyTo,
		Date:    c.settings.Now().UTC(),
		Subject: subject,
		Text:    text,
		HTML:    html,
		Headers: []HeaderField{
			// RFC 3834 keeps vacation replies away, the second one those of Exchange.
			{"Auto-Submitted", "auto-generated"},
			{"X-Auto-Response-Suppress", "OOF, AutoReply"},
		},
	}
	message.Headers = append(message.Headers, header...)
	return message, nil
}

// checkRow refuses a row that no mail can be made of, and returns its address.
func checkRow(row briefing.Row) (mail.Address, error) {
	to, err := parseAddress(row.Email)
	if err != nil {
		return to, &SendError{Kind: Permanent, Code: CodeAddress, Err: err}
	}
	if len(row.Briefing) > maxBriefingBytes {
		return to, &SendError{Kind: Permanent, Code: CodeTooLong,
			Err: fmt.Errorf("briefing has %d bytes, the limit is %d", len(row.Briefing), maxBriefingBytes)}
	}
	return to, nil
}

// unsubscribe returns the header fields by which mail programs end a user's
// mails, and the link that the mail itself shows.
func (s Settings) unsubscribe(row briefing.Row) (header []HeaderField, shown string, err error) {
	var links []string
	add := func(link func(briefing.Row) string, check func(string) error) {
		if link == nil || err != nil {
			return
		}
		if text := link(row); text != "" {
			err = check(text)
			links = append(links, text)
		}
	}
	add(s.UnsubscribeURL, checkUnsubscribeURL)
	add(s.UnsubscribeMail, checkUnsubscribeText)
	if err != nil {
		return nil, "", err
	}
	if len(links) == 0 {
		return nil, "", nil
	}
	// The second link is a fallback that a very long id can do without.
	list := "<" + strings.Join(links, ">, <") + ">"
	if len(list) > maxHeaderValue {
		list = "<" + links[0] + ">"
	}
	header = []HeaderField{{"List-Unsubscribe", list}}
	if !strings.HasPrefix(links[0], "mailto:") {
		header = append(header, HeaderField{"List-Unsubscribe-Post", "List-Unsubscribe=One-Click"})
	}
	return header, links[0], nil
}

// view gathers what the templates see of a row.
func (s Settings) view(row briefing.Row, name, unsubscribe string) View {
	fallback := s.Locale
	if fallback == "" {
		fallback = "en"
	}
	locale := lookupLocale(row.Locale, fallback)
	day := row.GeneratedAt
	if day.IsZero() {
		day = time.Now()
		if s.Now != nil {
			day = s.Now()
		}
	}
	if s.Location != nil {
		day = day.In(s.Location)
	} else {
		day = day.UTC()
	}
	blocks := parseBody(bodyText(row.Briefing))
	subject := cut(headerText(row.Subject), maxSubjectRunes)
	if subject == "" {
		subject = locale.phrases.yourDay
	}
	return View{
		Lang:           locale.tag,
		Dir:            locale.dir,
		Brand:          s.Brand,
		Name:           name,
		Date:           locale.formatDate(day),
		Subject:        subject,
		Blocks:         blocks,
		Text:           wrapBlocks(blocks),
		Preheader:      preheader(blocks),
		Why:            strings.ReplaceAll(locale.phrases.why, "%s", s.Brand),
		Unsubscribe:    locale.phrases.unsubscribe,
		UnsubscribeURL: unsubscribe,
	}
}

// preheader is the beginning of the briefing, which mail programs show beside
// the subject.
func preheader(blocks []Block) string {
	var b strings.Builder
	for _, block := range blocks {
		for _, line := range block.Lines {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(line.String())
			if b.Len() > maxPreheaderRunes*4 {
				return cut(headerText(b.String()), maxPreheaderRunes)
			}
		}
	}
	return cut(headerText(b.String()), maxPreheaderRunes)
}

// messageID is the part of a Message-ID before the @.
func messageID(runID, userID string) string {
	key := Key{runID, userID}.hash()
	// Hashed once more, so that a mail's header does not give away the key of
	// its entry in the ledger.
	sum := sha256.Sum256(append([]byte("message-id\x00"), key[:]...))
	return hex.EncodeToString(sum[:16])
}
