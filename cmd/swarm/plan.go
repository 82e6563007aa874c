package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/briefing-swarm/briefing-swarm/plan"
	"github.com/briefing-swarm/briefing-swarm/plan/page"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// planOptions are what `swarm plan` is given beside plan.Inputs.
type planOptions struct {
	model        string
	calibration  string
	fromManifest string
	prices       string
	deadline     time.Duration
	holdMail     time.Duration
	noMail       bool
	afterAll     bool
	minimise     string
	asJSON       bool
	html         string
}

func newPlanCmd() *cobra.Command {
	in := plan.Defaults()
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what a run costs, how long it takes, which quotas it needs, and whether to do it",
		Long: `Compute the plan of a run on AWS, without an AWS account: the bill line by line,
the time line by simulation, the quotas, what the same briefings cost elsewhere,
and one plain sentence on whether to use the swarm.

How fast the machine is comes from a calibration. Two ship: graviton2, a range
of public figures for arm64, and x86-avx512, measured by this project. Your own
replaces them: from 'swarm bench' on such a machine (--calibration), or from the
manifest of a run (--from-manifest). Cost and time are a range until then.

Numbers may be written as 1e6, 1M, 250k, 1,000,000 or 1_000_000.`,
		Example: `  swarm plan --users 1e6
  swarm plan --users 1e6 --model llama-3.2-1b --output-tokens 15 --no-mail
  swarm plan --users 1M --minimise cost --deadline 30m
  swarm plan --arch x86_64 --region eu-central-1 --prices prices.json
  swarm plan --from-manifest out/manifest.json --html plan.html
  swarm plan --users 5e5 --json | jq '.cost.per_run_usd'
  swarm plan --sec-per-user 3       # believe a figure, see what it leads to

  # your own speed instead of the range, in one command on such a machine:
  swarm bench --shape llama-3.2-3b`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runPlan(cmd, in, o) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	number(f, &in.Users, "users", "input records of one run")
	integer(f, &in.RunsPerMonth, "runs-per-month", "how often the run repeats in a month")
	integer(f, &in.PrefixTokens, "prefix-tokens", "prompt tokens that all users share")
	integer(f, &in.UserTokens, "user-tokens", "prompt tokens of one user")
	integer(f, &in.OutputTokens, "output-tokens", "mean tokens of a briefing")
	integer(f, &in.ContextTokens, "context-tokens", "room of one sequence, longest prompt and output; 0: the least that holds the tokens above")
	integer(f, &in.RecordBytes, "record-bytes", "size of an input record; 0: from the tokens")
	integer(f, &in.RowBytes, "row-bytes", "size of an output row; 0: from the tokens")
	f.StringVar(&o.model, "model", "llama-3.2-3b", "a name of 'swarm model list', or the path of a .gguf file")
	f.StringVar(&in.ModelStore, "model-store", in.ModelStore, "where workers load it from: image, efs or s3")
	f.StringVar(&in.Architecture, "arch", in.Architecture, "arm64 or x86_64; by default the calibration's")
	f.StringVar(&in.Region, "region", in.Region, "an AWS region of the price file")
	integer(f, &in.MemoryMib, "memory-mib", "memory of a worker; 1,769 MiB buy a vCPU")
	integer(f, &in.EphemeralStorageMib, "ephemeral-storage-mib", "size of a worker's /tmp")
	integer(f, &in.TimeoutSec, "timeout-sec", "time limit of a worker")
	integer(f, &in.BatchSize, "batch-size", "users per child; by default lowered until a batch ends in time")
	integer(f, &in.ParallelSequences, "parallel-sequences", "users a worker decodes together (K)")
	integer(f, &in.MaxConcurrency, "max-concurrency", "workers at one time")
	f.StringVar(&in.ChildType, "child-type", in.ChildType, "children of the Distributed Map: STANDARD or EXPRESS")
	integer(f, &in.BufferMib, "buffer-mib", "Firehose closes a file at this size")
	integer(f, &in.BufferSec, "buffer-sec", "or after this time")
	integer(f, &in.RetentionDays, "retention-days", "how long data, logs and the sent-ledger are kept")
	f.BoolVar(&o.noMail, "no-mail", false, "plan without sending mail")
	decimal(f, &in.SesRatePerSec, "ses-rate-per-sec", "mails sent a second")
	f.BoolVar(&o.afterAll, "mail-after-all", false, "send no mail before the last briefing is written")
	f.DurationVar(&o.holdMail, "hold-mail", 0, "send no mail before that long after the input, for example 10m")
	f.DurationVar(&o.deadline, "deadline", 0, "when the last briefing must be written, for example 10m")
	f.StringVar(&o.minimise, "minimise", "", "search memory, batch, K and workers for the least cost or time")
	integer(f, &in.ProvisionedConcurrency, "provisioned-concurrency", "workers of the endpoint kept ready")
	decimal(f, &in.ProvisionedHoursPerMonth, "provisioned-hours-per-month", "for how long")
	number(f, &in.EndpointRequestsPerMonth, "endpoint-requests-per-month", "requests to the streaming endpoint")
	number(f, &in.QueueRequestsPerMonth, "queue-requests-per-month", "requests through SQS")
	integer(f, &in.NatGateways, "nat-gateways", "NAT gateways of the VPC")
	f.BoolVar(&in.FreeTier, "free-tier", false, "take the account's free tiers off")
	decimal(f, &in.SecPerUser, "sec-per-user", "measured seconds one user takes, instead of a calibration")
	decimal(f, &in.GpuUsersPerHour, "gpu-users-per-hour", "briefings an hour a g5.xlarge was measured to write")
	f.Var(quotaFlag{&in.Quotas}, "quota", "what the account has, for example lambda-concurrency=3000; may be repeated: "+strings.Join(quotaNames(), ", "))
	f.StringVar(&o.calibration, "calibration", "", "a file of 'swarm bench', or "+strings.Join(plan.CalibrationNames(), " or "))
	f.StringVar(&o.fromManifest, "from-manifest", "", "take the calibration of a run's manifest.json")
	f.StringVar(&o.prices, "prices", "", "a price file of 'swarm prices refresh'")
	f.BoolVar(&o.asJSON, "json", false, "print the whole plan as JSON (docs/schema/plan.schema.json)")
	f.StringVar(&o.html, "html", "", "write a page with charts to this file")
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 80 "))
	return cmd
}

func runPlan(cmd *cobra.Command, in plan.Inputs, o planOptions) error {
	usage := func(err error) error { return &exitError{Code: exitUsage, Err: err} }
	changed := cmd.Flags().Changed
	if o.minimise != "" && o.minimise != plan.MinimiseCost && o.minimise != plan.MinimiseTime {
		return usage(fmt.Errorf("--minimise is %q, want %s or %s", o.minimise, plan.MinimiseCost, plan.MinimiseTime))
	}
	var speeds []string
	for _, name := range []string{"calibration", "from-manifest", "sec-per-user"} {
		if changed(name) {
			speeds = append(speeds, "--"+name)
		}
	}
	if len(speeds) > 1 {
		return usage(fmt.Errorf("%s each say how fast the machine is: give one of them", strings.Join(speeds, " and ")))
	}
	in.Mail, in.StartEarly = !o.noMail, !o.afterAll
	in.DeadlineMinutes, in.DeliverAtSec = o.deadline.Minutes(), o.holdMail.Seconds()
	if o.prices != "" {
		prices, err := readPricesFile(o.prices)
		if err != nil {
			return err
		}
		in.Prices = prices
	}
	c, err := calibrationOf(o)
	if err != nil {
		return err
	}
	in.Calibration = c
	if c.Schema != "" && !changed("arch") {
		in.Architecture = c.Machine.Arch
	}
	if c.Machine.LambdaMemoryMib > 0 && !changed("memory-mib") {
		in.MemoryMib = c.Machine.LambdaMemoryMib
	}
	if c.Schema != "" && !changed("model") && c.Model.Name != "" {
		in.Model = calibratedModel(c)
	} else if in.Model, err = planModel(o.model, in); err != nil {
		return err
	}
	if !changed("batch-size") {
		in = in.FitBatch()
	}
	p, err := plan.Estimate(in)
	if err != nil {
		return planFault(cmd, err)
	}
	if _, err := model.LookupShape(in.Model.Name); err != nil {
		p.Speed.Calibrate = "swarm bench --model " + o.model // a file: it can be measured itself
	}
	if o.minimise != "" {
		p.Tuning, err = plan.Tune(in, o.minimise, o.deadline.Seconds())
		if err != nil {
			return planFault(cmd, err)
		}
	}
	if o.asJSON || o.html != "" {
		if err := p.AddSensitivity(); err != nil {
			return err
		}
	}
	if o.html != "" {
		if err := writePage(o.html, p); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s\n", o.html)
	}
	if o.asJSON {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(p)
	}
	return p.WriteTable(cmd.OutOrStdout())
}

// writePage writes the HTML page whole or not at all.
func writePage(path string, p *plan.Plan) error {
	return writeWhole(path, func(w io.Writer) error { return page.Write(w, p) })
}

// writeWhole writes a file beside path and moves it there when it is complete.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	tmp, err := os.CreateTemp(dirOf(path), ".swarm-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreMissing(os.Remove(tmp.Name())))
		}
	}()
	if err := errors.Join(write(tmp), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func dirOf(path string) string {
	if i := strings.LastIndexByte(path, os.PathSeparator); i > 0 {
		return path[:i]
	} else if i == 0 {
		return string(os.PathSeparator)
	}
	return "."
}

func readPricesFile(path string) (*plan.Prices, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	prices, err := plan.ReadPrices(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return prices, nil
}

// calibrationOf reads the calibration that was asked for; its Schema is empty
// if none was.
func calibrationOf(o planOptions) (plan.Calibration, error) {
	path := o.fromManifest
	if o.calibration != "" {
		if slices.Contains(plan.CalibrationNames(), o.calibration) {
			return plan.ShippedCalibration(o.calibration)
		}
		path = o.calibration
	}
	if path == "" {
		return plan.Calibration{}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && o.calibration != "" {
			return plan.Calibration{}, fmt.Errorf("calibration %q is neither a file nor one that ships (%s); 'swarm bench' writes one", o.calibration, strings.Join(plan.CalibrationNames(), ", "))
		}
		return plan.Calibration{}, fmt.Errorf("read calibration: %w", err)
	}
	c, err := plan.ReadCalibration(data)
	if err != nil {
		return plan.Calibration{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// planModel finds the model's figures in the catalogue, or in a GGUF file.
func planModel(name string, in plan.Inputs) (plan.Model, error) {
	options := model.MemoryOptions{Parallel: in.ParallelSequences, ContextPerSequence: max(1, in.Context()), Arch: in.Architecture}
	build := func(name, quantization string, s model.Shape, parameters, bytes int64, need model.Need) plan.Model {
		return plan.Model{
			Name: name, Quantization: quantization, Parameters: parameters, WeightBytes: bytes,
			Layers: s.Layers, KVHeads: s.KVHeads, HeadDim: s.HeadDim, WorkBytes: need.RepackBytes + need.ComputeBytes,
		}
	}
	e, err := model.Lookup(name)
	if err == nil {
		return build(e.Name, e.Quantization, e.Shape, e.ParameterCount, e.SizeBytes, e.MemoryNeed(options)), nil
	}
	if !strings.ContainsAny(name, `/\`) && !strings.HasSuffix(strings.ToLower(name), ".gguf") {
		return plan.Model{}, err
	}
	h, err := model.Open(name)
	if err != nil {
		return plan.Model{}, err
	}
	return build(h.Name, h.Quantization, h.Shape, h.Parameters, h.FileBytes, h.MemoryNeed(options)), nil
}

// calibratedModel is the model a calibration was measured with: the
// catalogue's if it is there, else what the calibration knows of it.
func calibratedModel(c plan.Calibration) plan.Model {
	m := plan.Model{
		Name: c.Model.Name, Quantization: c.Model.Quantization, Parameters: c.Model.Parameters, WeightBytes: c.Model.WeightBytes,
		Layers: max(1, c.Model.Layers), KVHeads: 1,
	}
	m.HeadDim = max(1, int(c.Model.KVBytesToken/4/int64(m.Layers)))
	if e, err := model.Lookup(c.Model.Name); err == nil {
		m.Layers, m.KVHeads, m.HeadDim = e.Shape.Layers, e.Shape.KVHeads, e.Shape.HeadDim
	}
	if peak := c.PeakMemoryBytes; peak > 0 && len(c.Decode) > 0 {
		// What was seen beyond weights: cache of the largest group and scratch. It is
		// taken as scratch alone, so the need errs on the safe side.
		m.WorkBytes = max(0, peak-c.Model.WeightBytes)
	}
	return m
}

// planFault prints the faults of a plan's inputs with the flags that set them.
func planFault(cmd *cobra.Command, err error) error {
	var faults plan.Faults
	if !errors.As(err, &faults) {
		return err
	}
	out := cmd.ErrOrStderr()
	var region *plan.UnknownRegionError
	if errors.As(err, &region) {
		fmt.Fprintf(out, "swarm: %v\n", region)
	}
	fmt.Fprintf(out, "swarm: this plan cannot be run:\n")
	for _, f := range faults {
		name := f.Field
		if flag := flagOf(cmd, f.Field); flag != "" {
			name = "--" + flag
		}
		fmt.Fprintf(out, "- %s is %s, allowed is %s:\n  %s\n", name, f.Value, f.Limit, f.Remedy)
	}
	return &exitError{Code: exitFault}
}

// flagOf is the flag of an input: memoryMib is set by --memory-mib.
func flagOf(cmd *cobra.Command, field string) string {
	if quota, ok := strings.CutPrefix(field, "quotas."); ok {
		return "quota " + kebab(quota)
	}
	name := map[string]string{"architecture": "arch", "deadlineMinutes": "deadline", "deliverAtSec": "hold-mail"}[field]
	switch {
	case strings.HasPrefix(field, "model."):
		name = "model"
	case name == "":
		name = kebab(field)
	}
	if cmd.Flags().Lookup(name) == nil {
		return ""
	}
	return name
}

// kebab writes memoryMib as memory-mib.
func kebab(camel string) string {
	var b strings.Builder
	for i, r := range camel {
		if unicode.IsUpper(r) || (unicode.IsDigit(r) && i > 0 && !unicode.IsDigit(rune(camel[i-1]))) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// quotaFlag sets one quota by NAME=VALUE.
type quotaFlag struct{ quotas *plan.Quotas }

// settings are those of quotaFlag, by the names of plan.Quotas.
func (q quotaFlag) settings() map[string]func(string) error {
	return map[string]func(string) error{
		"lambda-concurrency":          (*intFlag)(&q.quotas.LambdaConcurrency).Set,
		"lambda-memory-mib":           (*intFlag)(&q.quotas.LambdaMemoryMib).Set,
		"sfn-transitions-per-sec":     (*floatFlag)(&q.quotas.SfnTransitionsPerSec).Set,
		"firehose-mib-per-sec":        (*floatFlag)(&q.quotas.FirehoseMibPerSec).Set,
		"firehose-requests-per-sec":   (*floatFlag)(&q.quotas.FirehoseRequestsPerSec).Set,
		"firehose-records-per-sec":    (*floatFlag)(&q.quotas.FirehoseRecordsPerSec).Set,
		"ses-recipients-per-sec":      (*floatFlag)(&q.quotas.SesRecipientsPerSec).Set,
		"ses-recipients-per-24-hours": (*int64Flag)(&q.quotas.SesRecipientsPer24Hours).Set,
	}
}

func quotaNames() []string {
	return slices.Sorted(maps.Keys(quotaFlag{new(plan.Quotas)}.settings()))
}

func (q quotaFlag) String() string { return "" }
func (q quotaFlag) Type() string   { return "NAME=VALUE" }
func (q quotaFlag) Set(s string) error {
	name, value, _ := strings.Cut(s, "=")
	set, ok := q.settings()[name]
	if !ok {
		return fmt.Errorf("no quota %q, want one of %s", name, strings.Join(quotaNames(), ", "))
	}
	return set(value)
}

// The numbers of flags, in the ways people write them.

func number(f *pflag.FlagSet, p *int64, name, usage string) { f.Var((*int64Flag)(p), name, usage) }

func integer(f *pflag.FlagSet, p *int, name, usage string) { f.Var((*intFlag)(p), name, usage) }

func decimal(f *pflag.FlagSet, p *float64, name, usage string) { f.Var((*floatFlag)(p), name, usage) }

type int64Flag int64

func (v *int64Flag) String() string { return strconv.FormatInt(int64(*v), 10) }
func (v *int64Flag) Type() string   { return "N" }
func (v *int64Flag) Set(s string) error {
	n, err := parseWhole(s)
	*v = int64Flag(n)
	return err
}

type intFlag int

func (v *intFlag) String() string { return strconv.Itoa(int(*v)) }
func (v *intFlag) Type() string   { return "N" }
func (v *intFlag) Set(s string) error {
	n, err := parseWhole(s)
	*v = intFlag(n)
	return err
}

type floatFlag float64

func (v *floatFlag) String() string { return strconv.FormatFloat(float64(*v), 'f', -1, 64) }
func (v *floatFlag) Type() string   { return "X" }
func (v *floatFlag) Set(s string) error {
	x, err := parseNumber(s)
	*v = floatFlag(x)
	return err
}

// parseWhole reads a whole number; see parseNumber.
func parseWhole(s string) (int64, error) {
	x, err := parseNumber(s)
	if err != nil {
		return 0, err
	}
	if x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	return int64(x), nil
}

// parseNumber reads 1000000, 1e6, 1M, 250k, 2.5M, 1,000,000 or 1_000_000.
func parseNumber(s string) (float64, error) {
	text, factor := s, 1.0
	if n := len(text); n > 0 {
		if f, ok := map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6, 'm': 1e6, 'G': 1e9, 'g': 1e9}[text[n-1]]; ok {
			text, factor = text[:n-1], f
		}
	}
	if i := strings.IndexAny(text, ",_"); i >= 0 {
		if !grouped(text) {
			return 0, fmt.Errorf("%q is not a number: groups of three digits are divided by , or _", s)
		}
		text = strings.NewReplacer(",", "", "_", "").Replace(text)
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || strings.ContainsAny(text, "xXpP") {
		return 0, fmt.Errorf("%q is not a number: write it as 1000000, 1e6, 1M or 1,000,000", s)
	}
	return x * factor, nil
}

// grouped says that separators stand between groups of three digits only, so
// that 1,5 is not read as 15.
func grouped(s string) bool {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '_' })
	if len(parts) < 2 || len(parts) != 1+strings.Count(s, ",")+strings.Count(s, "_") {
		return false
	}
	last := len(parts) - 1
	parts[last], _, _ = strings.Cut(parts[last], ".")
	for i, p := range parts {
		if strings.Trim(p, "0123456789") != "" || len(p) > 3 || (i > 0 && len(p) != 3) {
			return false
		}
	}
	return true
}
