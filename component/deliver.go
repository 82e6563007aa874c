package component

import (
	"math"
	"strconv"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/dynamodb"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/secretsmanager"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sesv2"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component/states"
	"github.com/briefing-swarm/briefing-swarm/plan"
)

// Attributes of the sent-ledger.
const (
	ledgerRun     = "run_id"
	ledgerUser    = "user_id"
	ledgerExpires = "expires_at"
)

// deliverMemoryMib is the memory of the functions that mail, as the plan bills
// it: they mostly wait for SES.
const deliverMemoryMib = 256

// deliver is the mail-out: the ledger of who was mailed, SES, the state machine
// and its functions, and the rule that starts it for each file of briefings.
type deliver struct {
	ledger        *dynamodb.Table
	identity      *sesv2.EmailIdentity // nil where it was there already
	configuration *sesv2.ConfigurationSet
	key           *secretsmanager.Secret
	deliver       *lambda.Function
	feedback      *lambda.Function
	unsubscribe   *lambda.Function // nil where a page of the sender's own does it
	unsubscribeAt pulumi.StringInput
	machine       *machine
	rule          *cloudwatch.EventRule
}

// deliver builds the mail-out, or nothing without a sender.
func (s *swarm) deliver(in *ingest, out *gather, topic pulumi.StringInput) (*deliver, error) {
	if !s.mail() {
		return nil, nil
	}
	d := &deliver{}
	var err error
	if d.ledger, err = s.table("ledger", true, ledgerExpires, ledgerRun, ledgerUser); err != nil {
		return nil, err
	}
	if err := s.sender(d); err != nil {
		return nil, err
	}
	if err := s.optOut(d); err != nil {
		return nil, err
	}
	if err := s.hearBack(d); err != nil {
		return nil, err
	}
	if err := s.mailer(d, in); err != nil {
		return nil, err
	}
	definition := document(func(v []string) (string, error) {
		return states.Delivery{
			DeliverFunction: v[0], DeliverTimeoutSec: plan.LambdaTimeoutMaxSec, RunsBucket: v[1], TopicArn: v[2],
			WindowSec: s.windowSec(), TimeoutSec: 2*86_400 + s.windowSec(), // the wait for deliverAt is at most a day
			Comment: "briefing swarm " + s.name + ": mails one file of briefings",
		}.JSON()
	}, d.deliver.QualifiedArn, in.runs.ID(), topic)
	d.machine, err = s.machine("delivery", definition, append(s.announce(topic),
		s.invoke(d.deliver),
		allow([]string{"s3:GetObject"}, below(s.bucketArn(out.briefings), briefingsPrefix)),
		allow([]string{"s3:AbortMultipartUpload", "s3:GetObject", "s3:ListMultipartUploadParts", "s3:PutObject"}, below(s.bucketArn(in.runs), states.DeliveriesPrefix)),
	)...)
	if err != nil {
		return nil, err
	}
	d.rule, err = s.started("briefings-landed", out.briefings.ID(), briefingsPrefix+"*.parquet", d.machine, nil)
	return d, err
}

// windowSec is how long a delivery keeps trying: twice as long as its mails take
// at the planned rate, an hour at least and a day at most.
func (s *swarm) windowSec() int {
	sec := 2 * float64(s.users()) / s.mailRate()
	return int(math.Min(86_400, math.Max(3600, sec)))
}

// sender creates what SES needs to send for the sender: its identity, unless
// there is one, and the configuration set.
func (s *swarm) sender(d *deliver) error {
	var err error
	d.configuration, err = sesv2.NewConfigurationSet(s.ctx, s.child("mail"), &sesv2.ConfigurationSetArgs{
		ConfigurationSetName: pulumi.String(s.unique("mail")),
		DeliveryOptions:      sesv2.ConfigurationSetDeliveryOptionsArgs{TlsPolicy: pulumi.String("REQUIRE")},
		ReputationOptions:    sesv2.ConfigurationSetReputationOptionsArgs{ReputationMetricsEnabled: pulumi.Bool(true)},
		SendingOptions:       sesv2.ConfigurationSetSendingOptionsArgs{SendingEnabled: pulumi.Bool(true)},
		SuppressionOptions:   sesv2.ConfigurationSetSuppressionOptionsArgs{SuppressedReasons: pulumi.ToStringArray([]string{"BOUNCE", "COMPLAINT"})},
		Tags:                 s.tags(),
	}, s.opts()...)
	if err != nil {
		return err
	}
	if s.SenderIdentityArn != nil {
		return nil
	}
	identity := s.domain
	if s.SenderIdentity == IdentityAddress {
		identity = s.from
	}
	d.identity, err = sesv2.NewEmailIdentity(s.ctx, s.child("sender"), &sesv2.EmailIdentityArgs{EmailIdentity: pulumi.String(identity), Tags: s.tags()}, s.opts()...)
	return err
}

// send permits to send as the sender and nobody else. SES asks for permission on
// recipients too, where they are identities of the account: in its sandbox all
// are.
func (s *swarm) send(d *deliver) statement {
	st := statement{
		// A mail that is composed already asks for the second as well.
		actions:   []string{"ses:SendEmail", "ses:SendRawEmail"},
		resources: []pulumi.StringInput{s.arn("ses", "identity/*"), s.arn("ses", "configuration-set/%s", d.configuration.ConfigurationSetName)},
		condition: pulumi.Map{"StringEquals": pulumi.Map{"ses:FromAddress": pulumi.String(s.from)}},
	}
	if s.SenderIdentityArn != nil {
		st.resources = append(st.resources, s.SenderIdentityArn.ToStringPtrOutput().Elem()) // may be another account's
	}
	return st
}

// optOut creates the key of the unsubscribe links, and the function behind them
// unless the sender has a page.
func (s *swarm) optOut(d *deliver) error {
	recovery := 30
	if s.ForceDestroy {
		recovery = 0
	}
	var err error
	d.key, err = secretsmanager.NewSecret(s.ctx, s.child("unsubscribe-key"), &secretsmanager.SecretArgs{
		Description:          pulumi.String("briefing swarm " + s.name + ": signs the links to unsubscribe"),
		RecoveryWindowInDays: pulumi.Int(recovery), Tags: s.tags(),
	}, s.opts()...)
	if err != nil {
		return err
	}
	value, err := secretsmanager.NewSecretVersion(s.ctx, s.child("unsubscribe-key-value"), &secretsmanager.SecretVersionArgs{
		SecretId: d.key.ID(), SecretString: s.UnsubscribeKey,
	}, s.opts()...)
	if err != nil {
		return err
	}
	if !s.unsubscribe {
		d.unsubscribeAt = pulumi.String(s.UnsubscribeUrl)
		return nil
	}
	d.unsubscribe, err = s.function(function{
		what: "unsubscribe", handler: "unsubscribe", description: "ends a user's mails with one click",
		memoryMib: deliverMemoryMib, timeoutSec: 30,
		env: pulumi.StringMap{"SWARM_LEDGER_TABLE": d.ledger.Name, "SWARM_UNSUBSCRIBE_KEY": d.key.Arn, "SWARM_BRAND": pulumi.String(s.Brand)},
		allow: []statement{
			allow([]string{"dynamodb:PutItem"}, s.tableArn(d.ledger)),
			allow([]string{"secretsmanager:GetSecretValue"}, d.key.Arn),
		},
		after: []pulumi.Resource{value},
	})
	if err != nil {
		return err
	}
	// Mail programs send the POST: they sign nothing. The token in it is signed.
	url, err := s.functionURL("unsubscribe", d.unsubscribe, nil, AuthNone, "BUFFERED")
	if err != nil {
		return err
	}
	d.unsubscribeAt = pulumi.Sprintf("%s?t={token}", url.FunctionUrl)
	return nil
}

// hearBack creates the function that hears of bounces and complaints.
func (s *swarm) hearBack(d *deliver) error {
	var err error
	d.feedback, err = s.function(function{
		what: "feedback", handler: "feedback", description: "hears of bounces and complaints",
		memoryMib: deliverMemoryMib, timeoutSec: 60,
		allow: []statement{
			// The suppression list is the account's: it has no resource.
			anywhere("ses:PutSuppressedDestination"),
		},
	})
	if err != nil {
		return err
	}
	if _, err := sesv2.NewConfigurationSetEventDestination(s.ctx, s.child("mail-events"), &sesv2.ConfigurationSetEventDestinationArgs{
		ConfigurationSetName: d.configuration.ConfigurationSetName, EventDestinationName: pulumi.String("eventbridge"),
		EventDestination: sesv2.ConfigurationSetEventDestinationEventDestinationArgs{
			Enabled:            pulumi.Bool(true),
			MatchingEventTypes: pulumi.ToStringArray([]string{"BOUNCE", "COMPLAINT", "REJECT", "RENDERING_FAILURE"}),
			EventBridgeDestination: sesv2.ConfigurationSetEventDestinationEventDestinationEventBridgeDestinationArgs{
				EventBusArn: s.arn("events", "event-bus/default"),
			},
		},
	}, s.opts()...); err != nil {
		return err
	}
	rule, err := cloudwatch.NewEventRule(s.ctx, s.child("mail-failed"), &cloudwatch.EventRuleArgs{
		Description: pulumi.String("briefing swarm " + s.name + ": what became of mails that SES had taken"),
		EventPattern: pulumi.JSONMarshal(pulumi.Map{
			"source":      pulumi.ToStringArray([]string{"aws.ses"}),
			"detail-type": pulumi.ToStringArray([]string{"Email Bounced", "Email Complaint Received", "Email Rejected", "Email Rendering Failed"}),
			"detail":      pulumi.Map{"mail": pulumi.Map{"tags": pulumi.Map{"ses:configuration-set": pulumi.StringArray{d.configuration.ConfigurationSetName}}}},
		}),
		Tags: s.tags(),
	}, s.opts()...)
	if err != nil {
		return err
	}
	permission, err := lambda.NewPermission(s.ctx, s.child("feedback-permission"), &lambda.PermissionArgs{
		Action: pulumi.String("lambda:InvokeFunction"), Function: d.feedback.Name,
		Principal: pulumi.String(eventsService), SourceArn: rule.Arn, SourceAccount: s.account.ToStringPtrOutput(),
	}, s.opts()...)
	if err != nil {
		return err
	}
	_, err = cloudwatch.NewEventTarget(s.ctx, s.child("mail-failed-target"), &cloudwatch.EventTargetArgs{Rule: rule.Name, Arn: d.feedback.Arn},
		s.opts(pulumi.DependsOn([]pulumi.Resource{permission}))...)
	return err
}

// mailer creates the function that composes and sends.
func (s *swarm) mailer(d *deliver, in *ingest) error {
	texts, readTexts, err := s.storeTexts(in.runs, s.mailTexts())
	if err != nil {
		return err
	}
	env := pulumi.StringMap{
		"SWARM_LEDGER_TABLE": d.ledger.Name, "SWARM_LEDGER_DAYS": pulumi.String(strconv.Itoa(s.RetentionDays)),
		"SWARM_FROM": pulumi.String(s.Sender), "SWARM_REPLY_TO": pulumi.String(s.ReplyTo), "SWARM_BRAND": pulumi.String(s.Brand), "SWARM_LOCALE": pulumi.String(s.Locale),
		"SWARM_CONFIGURATION_SET": d.configuration.ConfigurationSetName, "SWARM_SENDER": pulumi.String("ses"),
		"SWARM_RATE_PER_SEC":     decimal(s.SesRatePerSec), // 0: the account's own
		"SWARM_DELIVERY_WORKERS": pulumi.String(strconv.Itoa(s.mailWorkers())),
		"SWARM_DELIVER_AT":       pulumi.String(s.DeliverAt), "SWARM_TIME_ZONE": pulumi.String(s.TimeZone),
		"SWARM_UNSUBSCRIBE_URL": d.unsubscribeAt, "SWARM_UNSUBSCRIBE_MAILTO": pulumi.String(s.UnsubscribeMailto),
		"SWARM_UNSUBSCRIBE_KEY": d.key.Arn,
	}
	d.deliver, err = s.function(function{
		what: "deliver", handler: "deliver", description: "mails the briefings of a batch",
		memoryMib: deliverMemoryMib, timeoutSec: plan.LambdaTimeoutMaxSec, reserved: s.mailWorkers(), env: with(env, texts),
		allow: append(readTexts,
			allow([]string{"dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}, s.tableArn(d.ledger)),
			allow([]string{"secretsmanager:GetSecretValue"}, d.key.Arn),
			s.send(d),
			// The sending rate is the account's: it has no resource.
			anywhere("ses:GetAccount"),
		),
	})
	return err
}
