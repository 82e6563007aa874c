package component

import (
	"strconv"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component/states"
	"github.com/briefing-swarm/briefing-swarm/plan"
)

// generate is the run: the state machine, its functions, and the rule that
// starts it.
type generate struct {
	normalise, generate, reconcile *lambda.Function
	machine                        *machine
	rule                           *cloudwatch.EventRule
}

// The least time that the estimate of a run gives its execution, and how many
// times its slow case a run may take.
const (
	runTimeoutLeastSec = 86_400
	runTimeoutFactor   = 4
)

func (s *swarm) generate(in *ingest, out *gather, model *recipe, topic pulumi.StringInput) (*generate, error) {
	g := &generate{}
	var err error
	objects := allow([]string{"s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"}, below(s.bucketArn(in.runs), states.RunsPrefix))
	limits := pulumi.StringMap{"SWARM_MAX_RECORDS": pulumi.String(strconv.Itoa(s.maxRecords)), "SWARM_USER_IDS_IN_MEMORY": pulumi.String(strconv.Itoa(idsInMemory))}
	g.normalise, err = s.function(function{
		what: "normalise", handler: "normalise", description: "an input file becomes records",
		memoryMib: helperMemory, timeoutSec: plan.LambdaTimeoutMaxSec, tmpMib: s.helperTmpMib,
		env: with(limits, pulumi.StringMap{
			"SWARM_RUNS_BUCKET": in.runs.ID(), "SWARM_FIREHOSE_STREAM": out.stream.Name,
			"SWARM_MODEL_NAME":          pulumi.String(s.plan.Inputs.Model.String()),
			"SWARM_USD_PER_RECORD":      decimal(round(s.plan.Cost.PerUserUsd.Likely, 1e9)),
			"SWARM_SEC_PER_RECORD":      decimal(round(s.plan.Speed.SecPerUser.Likely, 1e3)),
			"SWARM_CEILING_USD_PER_RUN": decimal(s.CostCeilingUsdPerRun),
		}),
		allow: []statement{
			allow([]string{"s3:GetObject", "s3:GetObjectVersion"}, below(s.bucketArn(in.inputs), inputsPrefix)),
			objects, s.put(out),
		},
	})
	if err != nil {
		return nil, err
	}
	g.generate, err = s.function(function{
		what: "generate", handler: "generate", description: "writes the briefings of a batch",
		memoryMib: s.MemoryMib, timeoutSec: s.TimeoutSec, tmpMib: s.EphemeralStorageMib, reserved: s.ReservedConcurrency,
		env:   with(model.env, pulumi.StringMap{"SWARM_FIREHOSE_STREAM": out.stream.Name}),
		allow: append([]statement{s.put(out)}, model.allow...), network: model.store,
	})
	if err != nil {
		return nil, err
	}
	g.reconcile, err = s.function(function{
		what: "reconcile", handler: "reconcile", description: "finds the users who have no briefing",
		memoryMib: helperMemory, timeoutSec: plan.LambdaTimeoutMaxSec, tmpMib: s.helperTmpMib,
		env: with(limits, pulumi.StringMap{
			"SWARM_RUNS_BUCKET": in.runs.ID(), "SWARM_BRIEFINGS_BUCKET": out.briefings.ID(), "SWARM_BRIEFINGS_PREFIX": pulumi.String(briefingsPrefix),
		}),
		allow: []statement{
			allow([]string{"s3:ListBucket"}, s.bucketArn(in.runs), s.bucketArn(out.briefings)),
			allow([]string{"s3:GetObject"}, below(s.bucketArn(out.briefings), briefingsPrefix)),
			objects,
		},
	})
	if err != nil {
		return nil, err
	}
	definition := document(func(v []string) (string, error) {
		return states.Run{
			NormaliseFunction: v[0], GenerateFunction: v[1], ReconcileFunction: v[2],
			NormaliseTimeoutSec: plan.LambdaTimeoutMaxSec, GenerateTimeoutSec: s.TimeoutSec, ReconcileTimeoutSec: plan.LambdaTimeoutMaxSec,
			ClaimsTable: v[3], RunsBucket: v[4], TopicArn: v[5],
			MaxConcurrency: s.MaxConcurrency, MaxItemsPerBatch: s.BatchSize, ToleratedFailurePercentage: s.ToleratedFailurePercentage,
			BufferSec:  s.BufferSec,
			TimeoutSec: max(runTimeoutLeastSec, int(runTimeoutFactor*s.plan.Time.High.WrittenSec.P99)),
			Comment:    "briefing swarm " + s.name + ": a run over one input file",
		}.JSON()
	}, g.normalise.QualifiedArn, g.generate.QualifiedArn, g.reconcile.QualifiedArn, in.claims.Name, in.runs.ID(), topic)
	g.machine, err = s.machine("run", definition, append(s.announce(topic),
		s.invoke(g.normalise), s.invoke(g.generate), s.invoke(g.reconcile),
		allow([]string{"dynamodb:PutItem", "dynamodb:UpdateItem"}, s.tableArn(in.claims)),
		allow([]string{"s3:AbortMultipartUpload", "s3:GetObject", "s3:ListMultipartUploadParts", "s3:PutObject"}, below(s.bucketArn(in.runs), states.RunsPrefix)),
	)...)
	if err != nil {
		return nil, err
	}
	input, err := limited(s.Items)
	if err != nil {
		return nil, err
	}
	g.rule, err = s.started("input-landed", in.inputs.ID(), inputsPrefix+"*", g.machine, input)
	return g, err
}

// with joins environments.
func with(a, b pulumi.StringMap) pulumi.StringMap {
	all := pulumi.StringMap{}
	for _, m := range []pulumi.StringMap{a, b} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}
