package component

import (
	"fmt"
	"maps"
	"math"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a time zone must be known on any machine

	"github.com/briefing-swarm/briefing-swarm/plan"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// design is what a swarm is built from: the arguments with their defaults, and
// what follows from them.
type design struct {
	Args
	model modelFile
	plan  *plan.Plan
	// from is the address of Sender, and domain what is behind its @.
	from, domain string
	// unsubscribe says that the swarm takes unsubscribe requests itself.
	unsubscribe bool
	// helperTmpMib is the /tmp of normalise and reconcile, and maxRecords how many
	// records of a file fit there.
	helperTmpMib, maxRecords int
}

var (
	componentName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$`)
	tenantName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9 ._-]{0,62}[A-Za-z0-9])?$`)
	languageTag   = regexp.MustCompile(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$`)
	clockTime     = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)
)

// resolve fills in the defaults, checks everything and computes the plan.
// providerRegion is where the AWS provider deploys, empty if that is not known.
// The error is an *ArgsError with all faults.
func resolve(name string, given *Args, providerRegion string) (*design, error) {
	if given == nil {
		given = &Args{}
	}
	d := &design{Args: given.withDefaults(name)}
	f := &faults{}
	if !componentName.MatchString(name) {
		f.add("name", quote(name), "1 to 30 lower-case letters, digits and hyphens, a letter first", "buckets, functions and roles are named after the component: choose a shorter or plainer name")
	}
	if d.Tenant != name && !tenantName.MatchString(d.Tenant) {
		f.add("tenant", quote(d.Tenant), "1 to 64 letters, digits and . _ - or space", "it becomes a tag and a metric dimension: choose a plainer name")
	}
	d.checkTags(f)
	d.checkRegion(f, providerRegion)
	d.checkModel(f)
	d.checkPrompt(f)
	d.checkWorkers(f)
	d.checkMail(f)
	d.checkOptions(f)
	d.estimate(f, given.BatchSize == 0)
	if len(f.list) > 0 {
		return nil, &ArgsError{Component: name, Faults: f.order()}
	}
	return d, nil
}

// maxTags leaves room for tenant, swarm and what the provider adds: AWS takes 50.
const maxTags = 40

func (d *design) checkTags(f *faults) {
	if len(d.Tags) > maxTags {
		f.add("tags", fmt.Sprintf("%d tags", len(d.Tags)), fmt.Sprintf("%d tags", maxTags), "AWS takes 50, some of which the swarm and the provider set")
	}
	for _, key := range slices.Sorted(maps.Keys(d.Tags)) {
		switch value := d.Tags[key]; {
		case key == tagTenant || key == tagSwarm:
			f.add("tags", quote(key), "keys other than "+tagTenant+" and "+tagSwarm, "the swarm sets them itself: set tenant, or the component's name")
		case key == "" || len(key) > 128 || len(value) > 256 || strings.HasPrefix(strings.ToLower(key), "aws:"):
			f.add("tags", quote(key+"="+value), "keys of 1 to 128 bytes that do not begin with aws:, values of at most 256", "shorten it, or leave it out")
		}
	}
}

func (d *design) checkRegion(f *faults, providerRegion string) {
	switch {
	case d.Region == "" && providerRegion == "":
		f.add("region", "empty", "a region", "the AWS provider's region is not known in this preview: set region to it, so that prices and limits can be looked up")
	case d.Region == "":
		d.Region = providerRegion
	case providerRegion != "" && d.Region != providerRegion:
		f.add("region", quote(d.Region), "the AWS provider's "+providerRegion, "leave region out, or give the component a provider of that region")
	}
}

func (d *design) checkModel(f *faults) {
	f.oneOf("modelStore", d.ModelStore, plan.StoreImage, plan.StoreEFS)
	var ok bool
	if d.model, ok = d.findModel(f); !ok {
		return
	}
	d.Model = d.model.Model.Name
	if d.ContextTokens > d.model.Context && d.model.Context > 0 {
		f.add("contextTokens", plan.FormatNumber(float64(d.ContextTokens))+" tokens", "the model's "+plan.FormatNumber(float64(d.model.Context)), "shorten the prompt or maxTokens, or take a model with a longer context")
	}
}

// maxTextBytes is the longest text that a worker reads from S3.
const maxTextBytes = 1 << 20

// checkTemplates parses the prompt as the workers will.
func (d *design) checkTemplates(f *faults) {
	if d.SystemPrompt != "" {
		if _, err := briefing.ParseTemplate(d.SystemPrompt, briefing.DefaultUserTemplate()); err != nil {
			f.add("systemPrompt", quote(d.SystemPrompt), "plain text of at most 64 KiB", oneLine(err))
		}
	}
	if d.UserTemplate != "" {
		if _, err := briefing.ParseTemplate(briefing.DefaultSystemPrompt(), d.UserTemplate); err != nil {
			f.add("userTemplate", quote(d.UserTemplate), "a template with a record's fields", oneLine(err))
		}
	}
}

// Bounds of the stop strings, which are part of a function's environment of 4 KB.
const (
	stopMax      = 16
	stopMaxBytes = 1024
)

func (d *design) checkPrompt(f *faults) {
	d.checkTemplates(f)
	for _, text := range d.texts() {
		if !f.has(text.field) && len(text.content) > maxTextBytes {
			f.add(text.field, plan.FormatNumber(float64(len(text.content)))+" B", plan.FormatNumber(maxTextBytes)+" B", "shorten it")
		}
	}
	f.within("maxTokens", float64(d.MaxTokens), 1, 131_072, "tokens", "no model of the catalogue has a longer context")
	if d.OutputTokens > d.MaxTokens {
		f.add("outputTokens", plan.FormatNumber(float64(d.OutputTokens))+" tokens", "maxTokens, "+plan.FormatNumber(float64(d.MaxTokens)), "the mean briefing can't be longer than the longest: raise maxTokens")
	}
	if least := d.PrefixTokens + d.UserTokens + d.MaxTokens; d.ContextTokens < least || d.ContextTokens < 64 {
		f.add("contextTokens", plan.FormatNumber(float64(d.ContextTokens))+" tokens", "at least "+plan.FormatNumber(math.Max(64, float64(least)))+" (prefixTokens + userTokens + maxTokens)", "raise it, or shorten the prompt or maxTokens")
	}
	f.within("temperature", d.Temperature, 0, 5, "", "0 gives the likeliest briefing, 1 the model's own spread")
	f.within("topP", d.TopP, 0, 1, "", "1 samples from all tokens")
	f.within("minP", d.MinP, 0, 1, "", "0 leaves no token out")
	f.within("seed", float64(d.Seed), 0, math.MaxInt32, "", "any whole number from 0")
	stopBytes := 0
	for _, s := range d.Stop {
		stopBytes += len(s)
	}
	if len(d.Stop) > stopMax || stopBytes > stopMaxBytes {
		f.add("stop", fmt.Sprintf("%d strings of %d B", len(d.Stop), stopBytes), fmt.Sprintf("%d strings of %d B in all", stopMax, stopMaxBytes), "give the few short strings that end a briefing")
	}
	if slices.Contains(d.Stop, "") {
		f.add("stop", `""`, "strings that are not empty", "an empty string would end every briefing at once: leave it out")
	}
}

// parallelMax is what the engine decodes together: llama.cpp has 256 sequences,
// one of which is the shared prefix's.
const parallelMax = 255

func (d *design) checkWorkers(f *faults) {
	f.oneOf("architecture", d.Architecture, plan.ARM64, plan.X8664)
	f.within("parallelSequences", float64(d.ParallelSequences), 1, parallelMax, "sequences", "llama.cpp decodes no more together")
	f.within("toleratedFailurePercentage", float64(d.ToleratedFailurePercentage), 0, 100, "%", "give the part of batches that may fail")
	f.within("items", float64(d.Items), 0, plan.MapItemsMax, "records", "0 uses all records of a file")
	for _, key := range slices.Sorted(maps.Keys(d.AccountQuotas)) {
		if _, ok := accountQuotas[key]; !ok {
			f.add("accountQuotas", quote(key), "one of "+strings.Join(AccountQuotaNames(), ", "), "correct the name")
		}
	}
	account := int(d.AccountQuotas["lambdaConcurrency"])
	if d.ReservedConcurrency != 0 {
		f.within("reservedConcurrency", float64(d.ReservedConcurrency), float64(max(1, d.MaxConcurrency)), 10_000_000, "executions", "with less than maxConcurrency, batches would be refused: raise it, or lower maxConcurrency")
	}
	if account > 0 {
		reserved := d.ReservedConcurrency + d.EndpointConcurrency + d.mailWorkers()
		if most := account - lambdaUnreservedMin; reserved > 0 && reserved > most {
			f.add("reservedConcurrency", fmt.Sprintf("%s executions in all (workers %d, endpoint %d, mail %d)", plan.FormatNumber(float64(reserved)), d.ReservedConcurrency, d.EndpointConcurrency, d.mailWorkers()),
				plan.FormatNumber(float64(max(0, most)))+" (Lambda keeps 100 of the account's for functions without a reservation)", "lower it, endpointConcurrency or sesRatePerSec, or request quota L-B99A9384")
		}
		others := helperConcurrency + d.mailWorkers() + max(d.EndpointConcurrency, d.ProvisionedConcurrency)
		if d.Queue {
			others += d.QueueConcurrency
		}
		if most := account - others; d.MaxConcurrency > most {
			f.add("maxConcurrency", plan.FormatNumber(float64(d.MaxConcurrency))+" workers", fmt.Sprintf("%s (the account's %s without the %d that the swarm's other functions need)",
				plan.FormatNumber(float64(max(0, most))), plan.FormatNumber(float64(account)), others), "lower it, or request quota L-B99A9384")
		}
	}
}

const (
	lambdaUnreservedMin = 100
	// helperConcurrency is one of each other function.
	helperConcurrency = 4
)

func (d *design) checkMail(f *faults) {
	if !d.mail() {
		for _, field := range []struct {
			name string
			set  bool
		}{
			{"senderIdentity", d.SenderIdentity != ""}, {"senderIdentityArn", d.SenderIdentityArn != nil}, {"brand", d.Brand != ""}, {"locale", d.Locale != ""}, {"replyTo", d.ReplyTo != ""},
			{"deliverAt", d.DeliverAt != ""}, {"deliveryWindowMinutes", d.DeliveryWindowMinutes != 0}, {"sesRatePerSec", d.SesRatePerSec != 0},
			{"unsubscribeUrl", d.UnsubscribeUrl != ""}, {"unsubscribeMailto", d.UnsubscribeMailto != ""}, {"unsubscribeKey", d.UnsubscribeKey != nil},
			{"subjectTemplate", d.SubjectTemplate != ""}, {"htmlTemplate", d.HtmlTemplate != ""}, {"textTemplate", d.TextTemplate != ""},
		} {
			if field.set {
				f.add(field.name, "set", "nothing without sender", "set sender too, or leave it out: without a sender no mail is sent")
			}
		}
		return
	}
	if a, err := mail.ParseAddress(d.Sender); err != nil {
		f.add("sender", "no mail address", `an address such as "Acme <briefing@acme.example>"`, "correct it")
	} else {
		d.from = a.Address
		d.domain = a.Address[strings.LastIndexByte(a.Address, '@')+1:]
	}
	for field, value := range map[string]string{"replyTo": d.ReplyTo, "unsubscribeMailto": d.UnsubscribeMailto} {
		if _, err := mail.ParseAddress(value); value != "" && err != nil {
			f.add(field, "no mail address", "an address", "correct it")
		}
	}
	if d.Locale != "" && !languageTag.MatchString(d.Locale) {
		f.add("locale", quote(d.Locale), "a language tag", "write it as de or pt-BR")
	}
	f.oneOf("senderIdentity", d.SenderIdentity, IdentityDomain, IdentityAddress)
	if d.DeliverAt != "" && !clockTime.MatchString(d.DeliverAt) {
		f.add("deliverAt", quote(d.DeliverAt), "HH:MM from 00:00 to 23:59", "write it as 08:00")
	}
	if d.InputAt != "" && !clockTime.MatchString(d.InputAt) {
		f.add("inputAt", quote(d.InputAt), "HH:MM from 00:00 to 23:59", "write it as 07:50")
	}
	if _, err := time.LoadLocation(d.TimeZone); err != nil || d.TimeZone == "Local" {
		f.add("timeZone", quote(d.TimeZone), "a name of the IANA database", "write it as Europe/Berlin")
	}
	if d.UnsubscribeUrl != "" {
		if u, err := url.Parse(d.UnsubscribeUrl); err != nil || u.Scheme != "https" || u.Host == "" || strings.Count(d.UnsubscribeUrl, "{token}") != 1 || strings.Contains(u.Host, "{") {
			f.add("unsubscribeUrl", quote(d.UnsubscribeUrl), "an https address with {token} once in its path or query", "write it as https://example.com/unsubscribe?t={token}, or leave it out for the swarm's own")
		}
	}
	if d.UnsubscribeKey == nil {
		f.add("unsubscribeKey", "empty", "a secret of at least 32 characters", `with mail there is a link to unsubscribe, which must be signed: pulumi config set --secret unsubscribeKey "$(openssl rand -hex 32)"`)
	}
	d.unsubscribe = d.UnsubscribeUrl == ""
	f.within("deliveryWindowMinutes", d.DeliveryWindowMinutes, 0, 7*24*60, "min", "give minutes, within a week")
	if d.SesRatePerSec != 0 {
		f.within("sesRatePerSec", d.SesRatePerSec, 0.01, 100_000, "mails/s", "give the rate the account may send at")
	}
	if w := d.DeliveryWindowMinutes; w > 0 {
		if need := float64(d.users()) / (60 * w); d.mailRate() < need {
			f.add("sesRatePerSec", plan.FormatNumber(d.mailRate())+" mails/s", fmt.Sprintf("at least %s mails/s (%s mails within %s min)", plan.FormatNumber(math.Ceil(need)), plan.FormatNumber(float64(d.users())), plan.FormatNumber(w)),
				"raise it, for which SES quota L-CDEF9B6B must be as high, or widen deliveryWindowMinutes")
		}
		if have := d.AccountQuotas["sesRecipientsPerSec"]; have > 0 && d.mailRate() > have*plan.SesShare {
			f.add("sesRatePerSec", plan.FormatNumber(d.mailRate())+" mails/s", fmt.Sprintf("%s mails/s (nine tenths of the account's %s)", plan.FormatNumber(have*plan.SesShare), plan.FormatNumber(have)),
				"request SES quota L-CDEF9B6B, or lower it and widen deliveryWindowMinutes")
		}
	}
}

// users is how many users of an input file are written to.
func (d *design) users() int {
	if d.Items > 0 {
		return min(d.Items, d.ExpectedUsers)
	}
	return d.ExpectedUsers
}

// mailRate is SesRatePerSec, or what the estimate takes for it.
func (a Args) mailRate() float64 {
	if a.SesRatePerSec != 0 {
		return a.SesRatePerSec
	}
	if have := a.AccountQuotas["sesRecipientsPerSec"]; have > 0 {
		return have * plan.SesShare
	}
	return plan.Defaults().SesRatePerSec
}

// Mails that one worker sends a second, as the plan takes it, and the most
// workers that the function shares the rate among.
const (
	mailsPerWorker = 20
	mailWorkersMax = 1000
)

// mailWorkers is how many workers mail at one time. Each sends its part of the
// rate, so that there must never be more of them, however many files land.
func (a Args) mailWorkers() int {
	if !a.mail() {
		return 0
	}
	return int(math.Min(mailWorkersMax, math.Max(1, math.Ceil(a.mailRate()/mailsPerWorker))))
}

// Limits of SQS as an event source of Lambda, and of CloudWatch.
const (
	queueConcurrencyMin = 2
	queueConcurrencyMax = 1000
)

// logRetentionDays are the retentions that CloudWatch Logs takes, but for the
// longest, which is longer than the functions take.
var logRetentionDays = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288}

func (d *design) checkOptions(f *faults) {
	if d.Endpoint {
		f.oneOf("endpointAuth", d.EndpointAuth, AuthIAM, AuthNone)
		if d.EndpointAuth == AuthNone && d.EndpointConcurrency < 1 {
			f.add("endpointConcurrency", "0", "at least 1 with endpointAuth NONE", "an endpoint that anyone may call must be bounded: set it, or use AWS_IAM")
		}
		if d.ModelStore == plan.StoreEFS {
			f.add("endpoint", "true", "false with modelStore efs", "function URLs can't stream out of a VPC, and EFS needs one: use modelStore image")
		}
		f.within("endpointConcurrency", float64(d.EndpointConcurrency), 0, plan.MapConcurrencyMax, "requests", "give the most requests at one time")
	} else {
		for field, v := range map[string]int{"endpointConcurrency": d.EndpointConcurrency, "endpointRequestsPerMonth": d.EndpointRequestsPerMonth, "provisionedConcurrency": d.ProvisionedConcurrency} {
			if v != 0 {
				f.add(field, plan.FormatNumber(float64(v)), "0 without endpoint", "set endpoint too, or leave it out")
			}
		}
	}
	if d.ProvisionedConcurrency > d.EndpointConcurrency && d.EndpointConcurrency > 0 {
		f.add("provisionedConcurrency", plan.FormatNumber(float64(d.ProvisionedConcurrency))+" workers", "endpointConcurrency, "+plan.FormatNumber(float64(d.EndpointConcurrency)), "workers above it could never be used: lower it, or raise endpointConcurrency")
	}
	if d.Queue {
		f.within("queueConcurrency", float64(d.QueueConcurrency), queueConcurrencyMin, queueConcurrencyMax, "requests", "Lambda takes no other number for a queue")
	} else {
		for field, v := range map[string]int{"queueConcurrency": d.QueueConcurrency, "queueRequestsPerMonth": d.QueueRequestsPerMonth} {
			if v != 0 {
				f.add(field, plan.FormatNumber(float64(v)), "0 without queue", "set queue too, or leave it out")
			}
		}
	}
	if d.RetentionDays > 0 && !slices.Contains(logRetentionDays, d.RetentionDays) {
		f.add("retentionDays", plan.FormatNumber(float64(d.RetentionDays))+" days", "one of "+strings.Trim(fmt.Sprint(logRetentionDays), "[]"), "CloudWatch Logs keeps logs for no other number of days")
	}
	if d.AlarmsEmail != "" {
		if a, err := mail.ParseAddress(d.AlarmsEmail); err != nil || a.Address != d.AlarmsEmail {
			f.add("alarmsEmail", "no mail address", "a bare address", "correct it")
		}
	}
	f.within("costCeilingUsdPerRun", d.CostCeilingUsdPerRun, 0, 1e9, "USD", "0 is no ceiling")
	f.within("costCeilingUsdPerMonth", d.CostCeilingUsdPerMonth, 0, 1e9, "USD", "0 is no ceiling")
	d.sizeHelpers()
}

// What normalise and reconcile keep of every user beyond those in memory.
const (
	idsInMemory  = 4_000_000
	idBytes      = 20
	tmpSpareMib  = 512
	helperMemory = 1769 // MiB, a vCPU: as the plan bills it
)

// sizeHelpers gives normalise and reconcile the /tmp that they need.
func (d *design) sizeHelpers() {
	need := tmpSpareMib
	if beyond := d.ExpectedUsers - idsInMemory; beyond > 0 {
		need += (beyond*idBytes + 1<<20 - 1) >> 20
	}
	// A Map takes 100,000,000 items, which always fit into Lambda's largest /tmp.
	d.helperTmpMib = max(need, d.EphemeralStorageMib)
	d.maxRecords = min(plan.MapItemsMax, idsInMemory+(d.helperTmpMib-tmpSpareMib)<<20/idBytes)
}
