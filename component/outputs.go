package component

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// BriefingSwarm is a swarm's outputs. Those of options that were not asked for
// are null. The estimate is known in a preview.
type BriefingSwarm struct {
	pulumi.ResourceState

	// InputBucket is where an input file starts a run, below InputPrefix.
	InputBucket pulumi.StringOutput `pulumi:"inputBucket"`
	// InputPrefix is the prefix in InputBucket, inputs/.
	InputPrefix pulumi.StringOutput `pulumi:"inputPrefix"`
	// RunsBucket holds the records, rejects, receipts and manifests of runs.
	RunsBucket pulumi.StringOutput `pulumi:"runsBucket"`
	// BriefingsBucket holds the Parquet files, below BriefingsPrefix.
	BriefingsBucket pulumi.StringOutput `pulumi:"briefingsBucket"`
	// BriefingsPrefix is the prefix in BriefingsBucket, briefings/.
	BriefingsPrefix pulumi.StringOutput `pulumi:"briefingsPrefix"`
	// GlueDatabase is the database of GlueTable.
	GlueDatabase pulumi.StringOutput `pulumi:"glueDatabase"`
	// GlueTable is what queries know the Parquet files as.
	GlueTable pulumi.StringOutput `pulumi:"glueTable"`
	// FirehoseStream takes the rows of the workers.
	FirehoseStream pulumi.StringOutput `pulumi:"firehoseStream"`
	// StateMachineArn is the machine that a run is an execution of.
	StateMachineArn pulumi.StringOutput `pulumi:"stateMachineArn"`
	// DeliveryStateMachineArn mails the Parquet files.
	DeliveryStateMachineArn pulumi.StringPtrOutput `pulumi:"deliveryStateMachineArn"`
	// ClaimsTable is the table of the input files that were seen.
	ClaimsTable pulumi.StringOutput `pulumi:"claimsTable"`
	// LedgerTable is the table of the users who were mailed, and of those who
	// unsubscribed.
	LedgerTable pulumi.StringPtrOutput `pulumi:"ledgerTable"`
	// ResultsTable is the table of the queue's answers.
	ResultsTable pulumi.StringPtrOutput `pulumi:"resultsTable"`
	// NormaliseFunctionArn is the function that turns a file into records.
	NormaliseFunctionArn pulumi.StringOutput `pulumi:"normaliseFunctionArn"`
	// GenerateFunctionArn is the function that writes the briefings.
	GenerateFunctionArn pulumi.StringOutput `pulumi:"generateFunctionArn"`
	// ReconcileFunctionArn is the function that finds users without a row.
	ReconcileFunctionArn pulumi.StringOutput `pulumi:"reconcileFunctionArn"`
	// DeliverFunctionArn is the function that mails.
	DeliverFunctionArn pulumi.StringPtrOutput `pulumi:"deliverFunctionArn"`
	// EndpointUrl is the streaming endpoint.
	EndpointUrl pulumi.StringPtrOutput `pulumi:"endpointUrl"`
	// QueueUrl is the queue that takes single requests.
	QueueUrl pulumi.StringPtrOutput `pulumi:"queueUrl"`
	// DeadLetterQueueUrl is where requests end that could not be answered.
	DeadLetterQueueUrl pulumi.StringPtrOutput `pulumi:"deadLetterQueueUrl"`
	// ImageUri is the image of all functions, with its digest.
	ImageUri pulumi.StringOutput `pulumi:"imageUri"`
	// RepositoryUrl is where the image was pushed to, null where it was given.
	RepositoryUrl pulumi.StringPtrOutput `pulumi:"repositoryUrl"`
	// ModelUploadTo is where the model file is to be put. Null with modelStore
	// image.
	ModelUploadTo pulumi.StringPtrOutput `pulumi:"modelUploadTo"`
	// ModelCopyTaskArn is the DataSync task that copies the model from there to the
	// workers' file system. Null with modelStore image.
	ModelCopyTaskArn pulumi.StringPtrOutput `pulumi:"modelCopyTaskArn"`
	// ConfigurationSet is the configuration set of SES.
	ConfigurationSet pulumi.StringPtrOutput `pulumi:"configurationSet"`
	// DkimTokens are what the sender's domain must have as CNAME records before SES
	// sends for it.
	DkimTokens pulumi.StringArrayOutput `pulumi:"dkimTokens"`
	// Dashboard is the name of the CloudWatch dashboard.
	Dashboard pulumi.StringOutput `pulumi:"dashboard"`
	// AlarmsTopicArn is the topic that alarms and runs tell.
	AlarmsTopicArn pulumi.StringPtrOutput `pulumi:"alarmsTopicArn"`

	// UsdPerRun is the likely cost of a run.
	UsdPerRun pulumi.Float64Output `pulumi:"usdPerRun"`
	// UsdPerRunLow is the cost of a run on a fast machine.
	UsdPerRunLow pulumi.Float64Output `pulumi:"usdPerRunLow"`
	// UsdPerRunHigh is the cost of a run on a slow machine.
	UsdPerRunHigh pulumi.Float64Output `pulumi:"usdPerRunHigh"`
	// UsdPerMonth is the likely cost of a month, with all runs.
	UsdPerMonth pulumi.Float64Output `pulumi:"usdPerMonth"`
	// UsdPerMonthLow is the cost of a month on a fast machine.
	UsdPerMonthLow pulumi.Float64Output `pulumi:"usdPerMonthLow"`
	// UsdPerMonthHigh is the cost of a month on a slow machine.
	UsdPerMonthHigh pulumi.Float64Output `pulumi:"usdPerMonthHigh"`
	// UsdPerMonthStanding is what a month costs without any run.
	UsdPerMonthStanding pulumi.Float64Output `pulumi:"usdPerMonthStanding"`
	// UsdPerUser is UsdPerRun over the users.
	UsdPerUser pulumi.Float64Output `pulumi:"usdPerUser"`
	// UsdPerRunElsewhere is what the cheapest other way of writing the briefings
	// costs, null where no price is known.
	UsdPerRunElsewhere pulumi.Float64PtrOutput `pulumi:"usdPerRunElsewhere"`
	// MinutesPerRun is the likely time from the arrival of the input to the last
	// briefing.
	MinutesPerRun pulumi.Float64Output `pulumi:"minutesPerRun"`
	// MinutesPerRunLow is that time on a fast machine.
	MinutesPerRunLow pulumi.Float64Output `pulumi:"minutesPerRunLow"`
	// MinutesPerRunHigh is that time on a slow machine.
	MinutesPerRunHigh pulumi.Float64Output `pulumi:"minutesPerRunHigh"`
	// MinutesToLastMail is the likely time to the last mail, null without mail.
	MinutesToLastMail pulumi.Float64PtrOutput `pulumi:"minutesToLastMail"`
	// QuotasNeeded is what the swarm needs of each quota that can be requested, by
	// its code, such as L-B99A9384.
	QuotasNeeded pulumi.Float64MapOutput `pulumi:"quotasNeeded"`
	// QuotasShort are the codes of those that the account lacks.
	QuotasShort pulumi.StringArrayOutput `pulumi:"quotasShort"`
	// EstimateConfidence is how well the workers' speed is known: "measured",
	// "medium" or "low".
	EstimateConfidence pulumi.StringOutput `pulumi:"estimateConfidence"`
	// PricesDate is the day of the prices.
	PricesDate pulumi.StringOutput `pulumi:"pricesDate"`
	// PlanInputs is what the estimate was computed from, as JSON: the inputs of
	// package plan. Policies recompute the estimate from it and the resources.
	PlanInputs pulumi.StringOutput `pulumi:"planInputs"`
	// BatchSize is how many users a worker gets at a time.
	BatchSize pulumi.IntOutput `pulumi:"batchSize"`
}

// built sets the outputs of what was created.
func (c *BriefingSwarm) built(s *swarm, st *stages) {
	c.InputBucket, c.InputPrefix = st.ingest.inputs.Bucket, known(inputsPrefix)
	c.RunsBucket = st.ingest.runs.Bucket
	c.BriefingsBucket, c.BriefingsPrefix = st.gather.briefings.Bucket, known(briefingsPrefix)
	c.GlueDatabase, c.GlueTable, c.FirehoseStream = st.gather.database.Name, st.gather.table.Name, st.gather.stream.Name
	c.StateMachineArn, c.ClaimsTable = st.generate.machine.Arn, st.ingest.claims.Name
	c.NormaliseFunctionArn, c.GenerateFunctionArn, c.ReconcileFunctionArn = st.generate.normalise.Arn, st.generate.generate.Arn, st.generate.reconcile.Arn
	c.ImageUri = s.worker.ToStringOutput()
	c.Dashboard = st.dashboard.DashboardName
	absent := none[pulumi.StringPtrOutput]((*string)(nil))
	c.RepositoryUrl, c.AlarmsTopicArn = absent, absent
	if st.repository != nil {
		c.RepositoryUrl = st.repository.RepositoryUrl.ToStringPtrOutput()
	}
	if s.AlarmsEmail != "" {
		c.AlarmsTopicArn = st.topic.ToStringOutput().ToStringPtrOutput()
	}
	c.ModelUploadTo, c.ModelCopyTaskArn = absent, absent
	if m := st.store; m != nil {
		c.ModelUploadTo = pulumi.Sprintf("s3://%s/%s%s", st.ingest.runs.Bucket, modelsPrefix, s.model.File).ToStringPtrOutput()
		c.ModelCopyTaskArn = m.copier.Arn.ToStringPtrOutput()
	}
	c.DeliveryStateMachineArn, c.LedgerTable, c.DeliverFunctionArn, c.ConfigurationSet = absent, absent, absent, absent
	c.DkimTokens = pulumi.StringArray{}.ToStringArrayOutput()
	if d := st.deliver; d != nil {
		c.DeliveryStateMachineArn, c.LedgerTable = d.machine.Arn.ToStringPtrOutput(), d.ledger.Name.ToStringPtrOutput()
		c.DeliverFunctionArn, c.ConfigurationSet = d.deliver.Arn.ToStringPtrOutput(), d.configuration.ConfigurationSetName.ToStringPtrOutput()
		if d.identity != nil {
			c.DkimTokens = d.identity.DkimSigningAttributes.Tokens()
		}
	}
	c.EndpointUrl, c.QueueUrl, c.DeadLetterQueueUrl, c.ResultsTable = absent, absent, absent, absent
	if e := st.endpoint; e != nil {
		c.EndpointUrl = e.url.FunctionUrl.ToStringPtrOutput()
	}
	if q := st.queue; q != nil {
		c.QueueUrl, c.DeadLetterQueueUrl, c.ResultsTable = q.requests.Url.ToStringPtrOutput(), q.deadLetters.Url.ToStringPtrOutput(), q.results.Name.ToStringPtrOutput()
	}
}

func known(s string) pulumi.StringOutput { return pulumi.String(s).ToStringOutput() }

// estimate sets the outputs that are known before anything is created.
func (c *BriefingSwarm) estimate(d *design) error {
	p := d.plan
	number := func(v float64) pulumi.Float64Output { return pulumi.Float64(v).ToFloat64Output() }
	c.UsdPerRun, c.UsdPerRunLow, c.UsdPerRunHigh = number(cents(p.Cost.PerRunUsd.Likely)), number(cents(p.Cost.PerRunUsd.Low)), number(cents(p.Cost.PerRunUsd.High))
	c.UsdPerMonth, c.UsdPerMonthLow, c.UsdPerMonthHigh = number(cents(p.Cost.PerMonthUsd.Likely)), number(cents(p.Cost.PerMonthUsd.Low)), number(cents(p.Cost.PerMonthUsd.High))
	c.UsdPerMonthStanding = number(cents(p.Cost.StandingUsd.Likely))
	c.UsdPerUser = number(round(p.Cost.PerUserUsd.Likely, 1e8))
	c.UsdPerRunElsewhere = none[pulumi.Float64PtrOutput]((*float64)(nil))
	if usd := d.elsewhere(); !math.IsNaN(usd) {
		c.UsdPerRunElsewhere = pulumi.Float64Ptr(cents(usd)).ToFloat64PtrOutput()
	}
	minutes := func(sec float64) float64 { return round(sec/60, 10) }
	c.MinutesPerRun, c.MinutesPerRunLow, c.MinutesPerRunHigh = number(minutes(p.Time.Likely.WrittenSec.P50)), number(minutes(p.Time.Low.WrittenSec.P50)), number(minutes(p.Time.High.WrittenSec.P50))
	c.MinutesToLastMail = none[pulumi.Float64PtrOutput]((*float64)(nil))
	if d.mail() {
		c.MinutesToLastMail = pulumi.Float64Ptr(minutes(p.Time.Likely.LastMailSec.P50)).ToFloat64PtrOutput()
	}
	needed, short := pulumi.Float64Map{}, pulumi.StringArray{}
	for _, q := range p.Quotas {
		if q.Code == "" {
			continue
		}
		needed[q.Code] = pulumi.Float64(math.Ceil(q.Needed.Likely))
		if !q.Enough {
			short = append(short, pulumi.String(q.Code))
		}
	}
	c.QuotasNeeded, c.QuotasShort = needed.ToFloat64MapOutput(), short.ToStringArrayOutput()
	c.EstimateConfidence = pulumi.String(p.Speed.Confidence).ToStringOutput()
	c.PricesDate = pulumi.String(p.PricesDate).ToStringOutput()
	inputs, err := json.Marshal(p.Inputs)
	if err != nil {
		return fmt.Errorf("write down the estimate's inputs: %w", err)
	}
	c.PlanInputs = pulumi.String(inputs).ToStringOutput()
	c.BatchSize = pulumi.Int(d.BatchSize).ToIntOutput()
	return nil
}

// elsewhere is the cheapest other way of writing the briefings, NaN where no
// price is known.
func (d *design) elsewhere() float64 {
	least := math.NaN()
	for _, a := range d.plan.Alternatives {
		if a.PerRunUsd != nil && !(*a.PerRunUsd >= least) {
			least = *a.PerRunUsd
		}
	}
	return least
}

// cents keeps cents, and three digits of what is less than a dollar.
func cents(usd float64) float64 {
	if usd <= 0 || usd >= 1 {
		return round(usd, 100)
	}
	return round(usd, math.Pow(10, 2-math.Floor(math.Log10(usd))))
}

// round keeps 1/steps: outputs must not differ in their last digits from one
// processor to another.
func round(v, steps float64) float64 { return math.Round(v*steps) / steps }

// none is the output of something that there is not: null, and of its type.
func none[T pulumi.Output](nothing any) T { return pulumi.ToOutput(nothing).(T) }

// Outputs are all outputs by their names, as a program exports them.
func (c *BriefingSwarm) Outputs() pulumi.Map {
	outputs := pulumi.Map{}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if name, ok := v.Type().Field(i).Tag.Lookup("pulumi"); ok {
			outputs[name] = v.Field(i).Interface().(pulumi.Output)
		}
	}
	return outputs
}
