package deliver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// sesWorld is an SES behind a front, with a sender that it knows.
func sesWorld(t testing.TB) (*mototest.Front, *awsclient.Clients) {
	t.Helper()
	front := mototest.NewFront(t, mototest.Start(t))
	clients := mototest.Clients(t, front.URL)
	mototest.Sender(t, clients, "briefings.example")
	mototest.Sender(t, clients, "desk@briefings.example")
	return front, clients
}

// sesRows are the samples but for the one whose address moto can't read: it has
// an @ within quotes.
func sesRows() []briefing.Row {
	return slices.DeleteFunc(sampleRows(), func(row briefing.Row) bool { return strings.Count(row.Email, "@") > 1 })
}

// TestSESSendsWhatWasComposed reads the mails that SES took.
func TestSESSendsWhatWasComposed(t *testing.T) {
	front, clients := sesWorld(t)
	composer := testComposer(t, func(s *Settings) { s.ReplyTo = "Help <help@briefings.example>" })
	var codes []string
	rows := sesRows()
	stats, err := Deliver(t.Context(), rowsOf(rows), Options{
		Composer: composer, Sender: NewSES(clients.SES, ""), OnOutcome: func(o Outcome) {
			if o.Result != Sent {
				codes = append(codes, o.Code)
			} else if o.MessageID == "" {
				t.Errorf("%s: no id of SES", o.UserID)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// SES has no SMTPUTF8.
	want := Stats{Rows: len(rows), Sent: len(rows) - 1, Failed: map[string]int{CodeSMTPUTF8: 1}}
	if diff := cmp.Diff(want, stats); diff != "" {
		t.Errorf("stats, codes %q (-want +got):\n%s", codes, diff)
	}
	taken := map[string]mototest.Mail{}
	for _, m := range front.Mails() {
		taken[string(m.Raw)] = m
	}
	found := 0
	for _, row := range rows {
		message, err := composer.Compose(row)
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := taken[string(render(t, composer, row))]; ok {
			found++
			if m.To.Address != message.To.Address {
				t.Errorf("%s: the envelope names another address", row.UserID)
			}
		}
	}
	if found != want.Sent {
		t.Errorf("SES took %d of the mails byte by byte, want %d", found, want.Sent)
	}
}

// TestSESBulk sends the samples in calls of several mails.
func TestSESBulk(t *testing.T) {
	front, clients := sesWorld(t)
	composer := testComposer(t, func(s *Settings) { s.ReplyTo = "Help <help@briefings.example>" })
	rows := sesRows()
	ids := map[string]bool{}
	stats, err := Deliver(t.Context(), rowsOf(rows), Options{
		Composer: composer, Sender: NewSESBulk(clients.SES, "", 20, 200*time.Millisecond), Workers: 40,
		OnOutcome: func(o Outcome) { ids[o.MessageID] = true },
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Stats{Rows: len(rows), Sent: len(rows) - 1, Failed: map[string]int{CodeSMTPUTF8: 1}}, stats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if n := front.Calls("SendBulkEmail"); n < 3 || n > 6 {
		t.Errorf("%d calls for %d mails in calls of 20", n, len(rows)-1)
	}
	if len(ids) != len(rows) {
		t.Errorf("%d different ids for %d mails", len(ids)-1, len(rows)-1)
	}
	type content struct{ Subject, HTML, Text, Unsubscribe, Post, Auto string }
	got := map[mail.Address][]content{}
	for _, m := range front.Mails() {
		got[*m.To] = append(got[*m.To], content{m.Subject, m.HTML, m.Text, m.Headers["List-Unsubscribe"], m.Headers["List-Unsubscribe-Post"], m.Headers["Auto-Submitted"]})
	}
	want := map[mail.Address][]content{}
	for _, row := range rows {
		m, err := composer.Compose(row)
		if err != nil {
			t.Fatal(err)
		}
		if needsSMTPUTF8(m.To.Address) {
			continue
		}
		link := "<" + testLinks(t, "https://briefings.example/u/{token}").URL(row) + ">"
		want[m.To] = append(want[m.To], content{m.Subject, m.HTML, m.Text, link, "List-Unsubscribe=One-Click", "auto-generated"})
	}
	less := cmpopts.SortSlices(func(a, b content) bool { return a.Subject < b.Subject })
	if diff := cmp.Diff(want, got, less); diff != "" {
		t.Errorf("mails (-want +got):\n%s", diff)
	}
}

// TestSESBulkPartial: of each call half is refused for the moment.
func TestSESBulkPartial(t *testing.T) {
	front, clients := sesWorld(t)
	front.Fail(func(c mototest.Call) mototest.Fault {
		if c.Operation == "SendBulkEmail" && c.N < 6 {
			return mototest.Partial
		}
		return mototest.None
	})
	stats, err := Deliver(t.Context(), rowsOf(manyRows(100)), Options{
		Composer: testComposer(t, nil), Sender: NewSESBulk(clients.SES, "", 50, 50*time.Millisecond), Workers: 50, MaxAttempts: 10, RetryDelay: 10 * time.Millisecond,
	})
	if err != nil || stats.Sent != 100 {
		t.Fatalf("stats %+v, %v", stats, err)
	}
	users := map[string]int{}
	for _, m := range front.Mails() {
		users[m.To.Address]++
	}
	if len(users) != 100 || len(front.Mails()) != 100 {
		t.Errorf("%d mails to %d users, want 100 to 100", len(front.Mails()), len(users))
	}
}

// sesAnswering is an SES that answers every call so.
func sesAnswering(t *testing.T, status int, name, body string) *sesv2.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Amzn-Errortype", name)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	return mototest.Clients(t, server.URL).SES
}

// TestSESErrors tells what each answer of SES means for the mail and the run.
func TestSESErrors(t *testing.T) {
	said := func(message string) string { return fmt.Sprintf(`{"message":%q}`, message) }
	for _, tc := range []struct {
		name   string
		status int
		code   string
		body   string
		want   Kind
		wantAs string
	}{
		{"rate", 429, "TooManyRequestsException", said("Maximum sending rate exceeded."), Temporary, CodeSESThrottled},
		{"rate, as version 1 says it", 400, "Throttling", said("Maximum sending rate exceeded."), Temporary, CodeSESThrottled},
		{"daily quota", 429, "TooManyRequestsException", said("Daily message quota exceeded."), Fatal, CodeSESQuota},
		{"daily quota, as version 1 says it", 454, "ThrottlingException", said("Daily message quota exceeded"), Fatal, CodeSESQuota},
		{"a limit", 400, "LimitExceededException", said("There are too many instances of the specified resource type."), Fatal, CodeSESQuota},
		{"suspended", 400, "AccountSuspendedException", said("ended"), Fatal, CodeSESPaused},
		{"paused", 400, "SendingPausedException", said("Email sending is disabled."), Fatal, CodeSESPaused},
		{"MAIL FROM", 400, "MailFromDomainNotVerifiedException", said("no MX"), Fatal, CodeSESUnverified},
		{"sender or sandbox", 400, "MessageRejected", said("Email address is not verified. The following identities failed the check in region US-EAST-1: jane.doe@example.com"), Fatal, CodeSESUnverified},
		{"no such configuration set", 404, "NotFoundException", said("Configuration set <x> does not exist."), Fatal, CodeSESSetup},
		{"no permission", 403, "AccessDeniedException", said("User is not authorized to perform ses:SendEmail"), Fatal, CodeSESSetup},
		{"bad signature", 403, "InvalidClientTokenId", said("The security token is invalid"), Fatal, CodeSESSetup},
		{"virus", 400, "MessageRejected", said("The message contains a virus: jane.doe@example.com"), Permanent, CodeSESRejected},
		{"malformed", 400, "BadRequestException", said("Local address contains control or whitespace: jane.doe@example.com"), Permanent, CodeSESInvalid},
		{"a code of the future", 400, "SomethingNewException", said("?"), Permanent, CodeSESInvalid},
		{"broken inside", 500, "InternalServiceErrorException", said("oops"), Temporary, CodeSESUnavailable},
		{"unavailable", 503, "", "<html>busy</html>", Temporary, CodeSESUnavailable},
		{"a gateway gave up", 504, "", "", Uncertain, CodeSESUncertain},
		{"a gateway failed", 502, "", "<html>", Uncertain, CodeSESUncertain},
		{"at the same time", 409, "ConcurrentModificationException", said("again"), Temporary, CodeSESUnavailable},
		{"half an answer", 200, "", `{"MessageI`, Uncertain, CodeSESUncertain},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := sesAnswering(t, tc.status, tc.code, tc.body)
			for kind, sender := range map[string]Sender{"single": NewSES(client, "set"), "bulk": NewSESBulk(client, "set", 1, time.Hour)} {
				_, err := sender.Send(t.Context(), testMessage(t))
				failure := checkSendError(t, err)
				if failure.Kind != tc.want || failure.Code != tc.wantAs {
					t.Errorf("%s: %v, want %v %s", kind, failure, tc.want, tc.wantAs)
				}
				if failure.Kind == Fatal && failure.Err == nil {
					t.Errorf("%s: the run stops and nobody says what to do", kind)
				}
				holdsNobody(t, err)
			}
		})
	}
}

// TestSESBulkResults tells what each status of an entry means.
func TestSESBulkResults(t *testing.T) {
	t.Parallel()
	want := map[types.BulkEmailStatus]Kind{
		types.BulkEmailStatusMessageRejected: Permanent, types.BulkEmailStatusMailFromDomainNotVerified: Fatal, types.BulkEmailStatusConfigurationSetNotFound: Fatal,
		types.BulkEmailStatusTemplateNotFound: Fatal, types.BulkEmailStatusAccountSuspended: Fatal, types.BulkEmailStatusAccountThrottled: Temporary,
		types.BulkEmailStatusAccountDailyQuotaExceeded: Fatal, types.BulkEmailStatusInvalidSendingPoolName: Fatal, types.BulkEmailStatusAccountSendingPaused: Fatal,
		types.BulkEmailStatusConfigurationSetSendingPaused: Fatal, types.BulkEmailStatusInvalidParameter: Permanent, types.BulkEmailStatusTransientFailure: Temporary,
		types.BulkEmailStatusFailed: Permanent, "A_NEW_ONE": Uncertain,
	}
	for _, status := range types.BulkEmailStatus("").Values() {
		if _, known := want[status]; !known && status != types.BulkEmailStatusSuccess {
			t.Errorf("the SDK has a status %s that nobody thought about", status)
		}
	}
	for status, kind := range want {
		failure := bulkFailure(types.BulkEmailEntryResult{Status: status})
		if failure == nil || failure.Kind != kind || failure.Kind == Fatal && failure.Err == nil {
			t.Errorf("%s: %v, want %v", status, failure, kind)
		}
	}
	if failure := bulkFailure(types.BulkEmailEntryResult{Status: types.BulkEmailStatusSuccess}); failure != nil {
		t.Error(failure)
	}
	detail := "Email address is not verified."
	if failure := bulkFailure(types.BulkEmailEntryResult{Status: types.BulkEmailStatusMessageRejected, Error: &detail}); failure.Kind != Fatal {
		t.Errorf("unverified: %v", failure)
	}
}

// TestSESBulkAnswersTooFew: who has no result may have been mailed.
func TestSESBulkAnswersTooFew(t *testing.T) {
	client := sesAnswering(t, 200, "", `{"BulkEmailEntryResults":[{"Status":"SUCCESS","MessageId":"one"}]}`)
	sender := NewSESBulk(client, "", 2, time.Hour)
	var callers sync.WaitGroup
	var mu sync.Mutex
	var got []string
	for range 2 {
		callers.Go(func() {
			id, err := sender.Send(context.Background(), testMessage(t))
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprint(id, err))
		})
	}
	callers.Wait()
	all := strings.Join(got, "; ")
	if !strings.Contains(all, "one<nil>") || !strings.Contains(all, CodeSESUncertain) {
		t.Errorf("%s, want one id and one uncertain", all)
	}
}

// TestSESConnections tells a call that never began from one whose answer got
// lost. Nothing is sent twice: each call reaches the server at most once.
func TestSESConnections(t *testing.T) {
	var asked atomic.Int64
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}))
	cut.Config.ErrorLog = nil
	t.Cleanup(cut.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + listener.Addr().String()
	listener.Close()

	for _, tc := range []struct {
		name, url string
		kind      Kind
		code      string
	}{
		{"nobody listens", closed, Temporary, CodeSESUnreachable},
		{"cut before the answer", cut.URL, Uncertain, CodeSESUncertain},
	} {
		client := mototest.Clients(t, tc.url).SES
		_, err := NewSES(client, "").Send(t.Context(), testMessage(t))
		if failure := checkSendError(t, err); failure.Kind != tc.kind || failure.Code != tc.code {
			t.Errorf("%s: %v, want %v %s", tc.name, failure, tc.kind, tc.code)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times for one mail", n)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	clients, err := awsclient.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewSES(clients.SES, "").Send(t.Context(), testMessage(t))
	if failure := checkSendError(t, err); failure.Kind != Fatal || failure.Code != CodeSESSetup {
		t.Errorf("without credentials: %v", failure)
	}
}

// TestSESGoesOnAfterCancel: a call that began ends by its answer.
func TestSESGoesOnAfterCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		time.Sleep(50 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"MessageId":"id-1"}`)
	}))
	t.Cleanup(server.Close)
	id, err := NewSES(mototest.Clients(t, server.URL).SES, "").Send(ctx, testMessage(t))
	if id != "id-1" || err != nil {
		t.Errorf("id %q, %v", id, err)
	}
	// And one that did not begin never does.
	client := mototest.Clients(t, server.URL).SES
	for kind, sender := range map[string]Sender{"single": NewSES(client, ""), "bulk": NewSESBulk(client, "", 1, time.Hour)} {
		_, err := sender.Send(ctx, testMessage(t))
		if failure := checkSendError(t, err); failure.Kind != Temporary || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v after the end", kind, err)
		}
	}
}

func TestSESAccount(t *testing.T) {
	front, clients := sesWorld(t)
	for _, tc := range []struct {
		name    string
		account mototest.Account
		want    string
		left    float64
	}{
		{"fresh", mototest.Account{MaxSendRate: 14, Max24HourSend: 50_000, SentLast24Hours: 20_000}, "", 30_000},
		{"no limit", mototest.Account{MaxSendRate: 200, Max24HourSend: -1, SentLast24Hours: 20_000}, "", -1},
		{"used up", mototest.Account{MaxSendRate: 14, Max24HourSend: 50_000, SentLast24Hours: 50_001}, CodeSESQuota, 0},
		{"paused", mototest.Account{MaxSendRate: 14, Max24HourSend: 50_000, Paused: true}, CodeSESPaused, 50_000},
	} {
		front.SetAccount(tc.account)
		a, err := ReadSESAccount(t.Context(), clients.SES)
		if err != nil {
			t.Fatal(err)
		}
		if a.Left() != tc.left {
			t.Errorf("%s: %v left, want %v", tc.name, a.Left(), tc.left)
		}
		var failure *SendError
		if err := a.Err(); tc.want == "" && err != nil || tc.want != "" && (!errors.As(err, &failure) || failure.Code != tc.want || failure.Kind != Fatal) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
	if got := (SESAccount{RatePerSec: 100}).WorkerRate(4); got != 22.5 {
		t.Errorf("each of 4 workers may send %v of 100 mails a second", got)
	}
	// GetAccount is the call that is throttled first.
	front.Fail(func(c mototest.Call) mototest.Fault {
		if c.N < 2 {
			return mototest.Throttle
		}
		return mototest.None
	})
	if _, err := ReadSESAccount(t.Context(), clients.SES); err != nil {
		t.Errorf("after two refusals: %v", err)
	}
}
