package component

import (
	"maps"
	"reflect"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// Args are the inputs of a BriefingSwarm. A zero value asks for the default
// where one is documented. Plain Go fields decide which resources exist, or
// enter the estimate, and so must be known in a preview; the others may come
// from other resources.
type Args struct {
	// Tenant is whose swarm it is: the tag and the metric dimension tenant.
	// Default: the component's name.
	Tenant string `pulumi:"tenant"`
	// Tags are put on every resource that takes tags, beside tenant and swarm.
	Tags map[string]string `pulumi:"tags"`
	// Region is the region whose prices and limits count. Default: that of the
	// AWS provider; where both are known they must be the same.
	Region string `pulumi:"region"`

	// Model is a model of the catalogue (swarm model list). Default
	// llama-3.2-3b. With a ModelSource that is a file it may be empty.
	Model string `pulumi:"model"`
	// ModelSource is where the GGUF file comes from: a path on the deploying
	// machine, or an https address that the image build fetches it from. Default:
	// the catalogue's address.
	ModelSource string `pulumi:"modelSource"`
	// ModelSha256 is the file's checksum, which the image build verifies.
	// Required unless ModelSource is a file, or the catalogue has it.
	ModelSha256 string `pulumi:"modelSha256"`
	// ModelStore is "image", the default: the weights are in the container image;
	// or "efs": they are on a file system that the workers mount, and are put there
	// after the deployment.
	ModelStore string `pulumi:"modelStore"`
	// ImageUri is a container image in ECR, with its digest, that was built as
	// docs/image.md says. Where it is set, no repository is made and nothing is
	// built.
	ImageUri pulumi.StringPtrInput `pulumi:"imageUri"`

	// SystemPrompt is the part of the prompt that all users share. Default: the
	// one that ships, which asks for a short briefing.
	SystemPrompt string `pulumi:"systemPrompt"`
	// UserTemplate is the template of a user's own part of the prompt. Default:
	// the one that ships.
	UserTemplate string `pulumi:"userTemplate"`
	// ChatTemplate replaces the model's own chat template (Jinja).
	ChatTemplate string `pulumi:"chatTemplate"`
	// Grammar is a GBNF grammar that the output keeps to.
	Grammar string `pulumi:"grammar"`
	// Stop are strings that end a briefing.
	Stop []string `pulumi:"stop"`
	// MaxTokens is the most tokens of a briefing. Default 96.
	MaxTokens int `pulumi:"maxTokens"`
	// ContextTokens is the most tokens of one user, prompt and briefing together;
	// a longer prompt ends as a failed row. Default: PrefixTokens, UserTokens and
	// MaxTokens, rounded up to 256.
	ContextTokens int `pulumi:"contextTokens"`
	// Temperature is the sampling temperature, 0 to 5. Default 0: the same prompt
	// gives the same briefing.
	Temperature float64 `pulumi:"temperature"`
	// TopP is the nucleus that is sampled from, above 0 to 1. Default 1.
	TopP float64 `pulumi:"topP"`
	// MinP leaves out tokens less likely than this part of the likeliest, 0 to 1.
	MinP float64 `pulumi:"minP"`
	// Seed makes sampling repeatable. Default 0.
	Seed int `pulumi:"seed"`

	// Architecture is "arm64", the default, or "x86_64".
	Architecture string `pulumi:"architecture"`
	// MemoryMib is the memory of one worker; 1,769 MiB buy a vCPU. Default 4096.
	MemoryMib int `pulumi:"memoryMib"`
	// EphemeralStorageMib is the size of the functions' /tmp. Default 512, which
	// is free; more is set for normalise and reconcile where ExpectedUsers need it.
	EphemeralStorageMib int `pulumi:"ephemeralStorageMib"`
	// TimeoutSec is the time limit of a worker. Default 900, Lambda's longest.
	TimeoutSec int `pulumi:"timeoutSec"`
	// MaxConcurrency is how many workers run at one time. Default 900.
	MaxConcurrency int `pulumi:"maxConcurrency"`
	// ReservedConcurrency is taken out of the account's concurrency for the
	// workers alone. Default 0: they share it with the account's other functions.
	ReservedConcurrency int `pulumi:"reservedConcurrency"`
	// BatchSize is how many users one worker gets at a time. Default: 32, or as
	// many as end within TimeoutSec on a slow machine.
	BatchSize int `pulumi:"batchSize"`
	// ParallelSequences is how many users a worker decodes together. Default 16.
	ParallelSequences int `pulumi:"parallelSequences"`
	// ToleratedFailurePercentage is the part of all batches that may fail before
	// the run stops. Default 5. A user whose text fails is no failed batch.
	ToleratedFailurePercentage int `pulumi:"toleratedFailurePercentage"`
	// BufferMib is the volume of rows, 64 to 128, at which Firehose closes a
	// Parquet file. Default 128.
	BufferMib int `pulumi:"bufferMib"`
	// BufferSec is the time, 60 to 900, after which it closes one anyway. Default
	// 60.
	BufferSec int `pulumi:"bufferSec"`

	// ExpectedUsers is the size of an input file, for the estimate. Default
	// 1,000,000.
	ExpectedUsers int `pulumi:"expectedUsers"`
	// RunsPerMonth is how often a file comes. Default 30.
	RunsPerMonth int `pulumi:"runsPerMonth"`
	// PrefixTokens is the length of the prompt's part that all users share, for
	// the estimate. Default: 180 for the prompt that ships, else a token for each 4
	// bytes of SystemPrompt and 30 for the chat template.
	PrefixTokens int `pulumi:"prefixTokens"`
	// UserTokens is the mean length of a user's own part of the prompt, for the
	// estimate. Default 120.
	UserTokens int `pulumi:"userTokens"`
	// OutputTokens is the mean length of a briefing, for the estimate. Default 50,
	// at most MaxTokens.
	OutputTokens int `pulumi:"outputTokens"`
	// RecordBytes is the mean size of an input record. Default: from UserTokens.
	RecordBytes int `pulumi:"recordBytes"`
	// Items is how many records of an input file are used; 0, the default, is
	// all. For a first, small run.
	Items int `pulumi:"items"`
	// DeadlineMinutes is when the last briefing must be written, counted from the
	// arrival of the input. Default 0: there is no deadline.
	DeadlineMinutes float64 `pulumi:"deadlineMinutes"`
	// CostCeilingUsdPerRun refuses a run whose estimate is higher: in the
	// preview by ExpectedUsers, and at the start of a run by its true number of
	// records. Default 0: no ceiling.
	CostCeilingUsdPerRun float64 `pulumi:"costCeilingUsdPerRun"`
	// CostCeilingUsdPerMonth refuses a deployment whose estimate is higher, and
	// becomes an AWS budget. Default 0: no ceiling.
	CostCeilingUsdPerMonth float64 `pulumi:"costCeilingUsdPerMonth"`
	// AccountQuotas are the account's quotas as far as they are known, by
	// name: firehoseMibPerSec, firehoseRecordsPerSec, firehoseRequestsPerSec,
	// lambdaConcurrency, lambdaMemoryMib, sesRecipientsPer24Hours,
	// sesRecipientsPerSec, sfnTransitionsPerSec. What is not given is taken to be
	// AWS's default.
	AccountQuotas map[string]float64 `pulumi:"accountQuotas"`
	// ReadAccountQuotas asks Service Quotas for lambdaConcurrency,
	// sfnTransitionsPerSec and, with mail, the two of SES, where AccountQuotas does
	// not give them, in every preview and update. What can't be read is taken to be
	// AWS's default, with a warning. Default false.
	ReadAccountQuotas bool `pulumi:"readAccountQuotas"`
	// Calibration says how fast a worker is: a name ("graviton2", "x86-avx512")
	// or the JSON that swarm bench writes. Default: the one of Architecture.
	Calibration string `pulumi:"calibration"`
	// Prices is the JSON that swarm prices refresh writes. Default: the prices
	// that ship.
	Prices string `pulumi:"prices"`

	// Sender is the From of every mail: an address, with a name or without, such
	// as "Acme <briefing@acme.example>". Default: empty, no mail is sent.
	Sender string `pulumi:"sender"`
	// SenderIdentity is what SES is asked to verify: "domain" of Sender, the
	// default, or its "address" alone.
	SenderIdentity string `pulumi:"senderIdentity"`
	// SenderIdentityArn is an SES identity that is there already. Where it is set,
	// none is made.
	SenderIdentityArn pulumi.StringPtrInput `pulumi:"senderIdentityArn"`
	// Brand is the name above each briefing. Default: the name in Sender.
	Brand string `pulumi:"brand"`
	// Locale is the language of the mail's own words for users who name none, such
	// as de or pt-BR. Default en.
	Locale string `pulumi:"locale"`
	// ReplyTo is where answers go. Default: Sender.
	ReplyTo string `pulumi:"replyTo"`
	// DeliverAt is when the mail goes out, HH:MM in TimeZone. Default: as soon as
	// a file of briefings is there.
	DeliverAt string `pulumi:"deliverAt"`
	// TimeZone is that of DeliverAt and InputAt, such as Europe/Berlin. Default
	// UTC.
	TimeZone string `pulumi:"timeZone"`
	// InputAt is when the input usually comes, HH:MM in TimeZone. It is for the
	// estimate only: with DeliverAt it says when mail starts.
	InputAt string `pulumi:"inputAt"`
	// DeliveryWindowMinutes is how long the mail-out may take. Default 0: as long
	// as it takes.
	DeliveryWindowMinutes float64 `pulumi:"deliveryWindowMinutes"`
	// SesRatePerSec is how many mails go out a second. Default 200 for the
	// estimate; delivery itself then reads the account's own rate.
	SesRatePerSec float64 `pulumi:"sesRatePerSec"`
	// UnsubscribeUrl is a page of yours that takes RFC 8058's POST, with {token}
	// where the signed token goes. Default: a function of the swarm.
	UnsubscribeUrl string `pulumi:"unsubscribeUrl"`
	// UnsubscribeKey signs the tokens: a secret of at least 32 random characters,
	// required with Sender. Another key makes the links of old mails invalid.
	UnsubscribeKey pulumi.StringPtrInput `pulumi:"unsubscribeKey"`
	// UnsubscribeMailto is an address that takes unsubscribe mails, as well.
	UnsubscribeMailto string `pulumi:"unsubscribeMailto"`
	// SubjectTemplate is the template of the mail's subject. Default: the one that
	// ships.
	SubjectTemplate string `pulumi:"subjectTemplate"`
	// HtmlTemplate is the template of the mail's HTML part. Default: the one that
	// ships.
	HtmlTemplate string `pulumi:"htmlTemplate"`
	// TextTemplate is the template of the mail's plain part. Default: the one that
	// ships.
	TextTemplate string `pulumi:"textTemplate"`

	// Endpoint adds a streaming endpoint that speaks the OpenAI chat API.
	Endpoint bool `pulumi:"endpoint"`
	// EndpointAuth is "AWS_IAM", the default, or "NONE": anyone may call it.
	EndpointAuth string `pulumi:"endpointAuth"`
	// EndpointConcurrency bounds how many requests are answered at one time.
	// Default 0: the account's concurrency does.
	EndpointConcurrency int `pulumi:"endpointConcurrency"`
	// EndpointRequestsPerMonth is how many come, for the estimate. Default 10,000 with Endpoint.
	EndpointRequestsPerMonth int `pulumi:"endpointRequestsPerMonth"`
	// ProvisionedConcurrency keeps so many workers of the endpoint ready, and is
	// billed by the hour. Default 0.
	ProvisionedConcurrency int `pulumi:"provisionedConcurrency"`
	// Queue adds an SQS queue for single requests, answered into a table.
	Queue bool `pulumi:"queue"`
	// QueueConcurrency bounds how many requests are answered at one time, 2 to
	// 1000. Default 20.
	QueueConcurrency int `pulumi:"queueConcurrency"`
	// QueueRequestsPerMonth is how many come, for the estimate. Default 10,000 with Queue.
	QueueRequestsPerMonth int `pulumi:"queueRequestsPerMonth"`

	// RetentionDays is how long inputs, briefings, ledgers and logs are kept.
	// Default 30.
	RetentionDays int `pulumi:"retentionDays"`
	// ForceDestroy lets a destroy delete buckets and repositories with what is in
	// them. Default false.
	ForceDestroy bool `pulumi:"forceDestroy"`
	// AlarmsEmail gets a mail when an alarm fires and when a run or a delivery
	// ends, after confirming it once. Default: alarms show in CloudWatch alone.
	AlarmsEmail string `pulumi:"alarmsEmail"`
}

// ElementType is Args with every input resolved.
func (Args) ElementType() reflect.Type { return resolvedArgs }

// resolvedArgs has the fields of Args, with plain types in the place of those
// that may come from other resources.
var resolvedArgs = func() reflect.Type {
	t := reflect.TypeFor[Args]()
	fields := make([]reflect.StructField, t.NumField())
	for i := range fields {
		fields[i] = t.Field(i)
		if fields[i].Type == reflect.TypeFor[pulumi.StringPtrInput]() {
			fields[i].Type = reflect.TypeFor[*string]()
		}
	}
	return reflect.StructOf(fields)
}()

// Values of Args.
const (
	IdentityDomain  = "domain"
	IdentityAddress = "address"
	AuthIAM         = "AWS_IAM"
	AuthNone        = "NONE"
)

// Defaults that the plan does not know of.
const (
	defaultMaxTokens        = 96
	defaultTolerated        = 5
	defaultQueueConcurrency = 20
	defaultRequests         = 10_000 // a month, to the endpoint and to the queue
	defaultTimeZone         = "UTC"
	// Of a prompt whose tokens nobody has counted: the plan's own bytes a token, and
	// what a chat template puts around it.
	tokenBytes = 4
	chatTokens = 30
)

// withDefaults fills in what is not set. Model is left to findModel.
func (a Args) withDefaults(name string) Args {
	d := plan.Defaults()
	a.Tags = maps.Clone(a.Tags)
	a.Stop = append([]string(nil), a.Stop...)
	set(&a.Tenant, name)
	set(&a.ModelStore, d.ModelStore)
	a.ModelSha256 = strings.ToLower(a.ModelSha256)
	set(&a.MaxTokens, defaultMaxTokens)
	set(&a.TopP, 1)
	set(&a.Architecture, d.Architecture)
	set(&a.MemoryMib, d.MemoryMib)
	set(&a.EphemeralStorageMib, d.EphemeralStorageMib)
	set(&a.TimeoutSec, d.TimeoutSec)
	set(&a.MaxConcurrency, d.MaxConcurrency)
	set(&a.ParallelSequences, d.ParallelSequences)
	set(&a.ToleratedFailurePercentage, defaultTolerated)
	set(&a.BufferMib, d.BufferMib)
	set(&a.BufferSec, d.BufferSec)
	set(&a.ExpectedUsers, int(d.Users))
	set(&a.RunsPerMonth, d.RunsPerMonth)
	if a.SystemPrompt != "" {
		set(&a.PrefixTokens, chatTokens+(len(a.SystemPrompt)+tokenBytes-1)/tokenBytes)
	}
	set(&a.PrefixTokens, d.PrefixTokens)
	set(&a.UserTokens, d.UserTokens)
	set(&a.OutputTokens, min(d.OutputTokens, max(1, a.MaxTokens)))
	set(&a.ContextTokens, (a.PrefixTokens+a.UserTokens+a.MaxTokens+255)/256*256)
	set(&a.RetentionDays, d.RetentionDays)
	if a.mail() {
		set(&a.SenderIdentity, IdentityDomain)
		set(&a.TimeZone, defaultTimeZone)
	}
	if a.Endpoint {
		set(&a.EndpointAuth, AuthIAM)
		set(&a.EndpointRequestsPerMonth, defaultRequests)
	}
	if a.Queue {
		set(&a.QueueConcurrency, defaultQueueConcurrency)
		set(&a.QueueRequestsPerMonth, defaultRequests)
	}
	return a
}

// mail says whether briefings are mailed.
func (a Args) mail() bool { return a.Sender != "" }

// set gives a field that is zero its default.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
