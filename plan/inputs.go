package plan

// The architectures of Lambda, by Lambda's names.
const (
	ARM64 = "arm64"
	X8664 = "x86_64"
)

// How the children of the Distributed Map run.
const (
	Standard = "STANDARD"
	Express  = "EXPRESS"
)

// Where the weights lie before a worker loads them.
const (
	StoreImage = "image" // in the container image, loaded lazily by Lambda
	StoreEFS   = "efs"   // on a file system, read through the VPC
	StoreS3    = "s3"    // fetched into /tmp when a worker starts
)

// Inputs is all that a plan depends on. Start from Defaults and change what
// differs: a zero is a value here, not a request for the default, except where
// a field says so.
type Inputs struct {
	// Users is the number of input records of one run.
	Users int64 `json:"users"`
	// RunsPerMonth is how often the run repeats in a month.
	RunsPerMonth int `json:"runs_per_month"`
	// PrefixTokens is the part of the prompt that all users share: system
	// prompt, examples, chat template. It is computed once per batch.
	PrefixTokens int `json:"prefix_tokens"`
	// UserTokens is the part of the prompt that is the user's own.
	UserTokens int `json:"user_tokens"`
	// OutputTokens is the mean length of a briefing.
	OutputTokens int `json:"output_tokens"`
	// ContextTokens is the room of one sequence, its longest prompt and output
	// together; 0 is the sum of the three above, rounded up to 256.
	ContextTokens int `json:"context_tokens"`
	// RecordBytes is the size of an input record as JSON; 0 derives it from
	// UserTokens.
	RecordBytes int `json:"record_bytes"`
	// RowBytes is the size of an output row as JSON; 0 derives it from
	// OutputTokens and RecordBytes.
	RowBytes int `json:"row_bytes"`

	Model Model `json:"model"`
	// ModelStore is StoreImage, StoreEFS or StoreS3.
	ModelStore string `json:"model_store"`
	// Architecture is ARM64 or X8664.
	Architecture string `json:"architecture"`
	// Region is an AWS region of the price file.
	Region string `json:"region"`
	// MemoryMib is the memory of one worker; it buys CPU: 1,769 MiB a vCPU.
	MemoryMib int `json:"memory_mib"`
	// EphemeralStorageMib is the size of /tmp; 512 are free.
	EphemeralStorageMib int `json:"ephemeral_storage_mib"`
	// TimeoutSec is the worker's time limit.
	TimeoutSec int `json:"timeout_sec"`
	// BatchSize is the number of users one child gets at most.
	BatchSize int `json:"batch_size"`
	// ParallelSequences is how many users a worker decodes together.
	ParallelSequences int `json:"parallel_sequences"`
	// MaxConcurrency bounds the children, and so the workers, at one time.
	MaxConcurrency int `json:"max_concurrency"`
	// ChildType is Standard or Express.
	ChildType string `json:"child_type"`
	// BufferMib and BufferSec close a Firehose buffer, whichever comes first.
	BufferMib int `json:"buffer_mib"`
	BufferSec int `json:"buffer_sec"`
	// RetentionDays is how long data, logs and the sent-ledger are kept.
	RetentionDays int `json:"retention_days"`

	// Mail says whether every briefing is mailed.
	Mail bool `json:"mail"`
	// SesRatePerSec is the rate at which mail goes out.
	SesRatePerSec float64 `json:"ses_rate_per_sec"`
	// StartEarly lets mail follow the files as they land; without it mail waits
	// for the last one.
	StartEarly bool `json:"start_early"`
	// DeliverAtSec holds all mail until that many seconds after the input
	// landed; 0 holds nothing.
	DeliverAtSec float64 `json:"deliver_at_sec"`
	// DeadlineMinutes is when the last briefing must be written, counted from the
	// arrival of the input; 0 is no deadline.
	DeadlineMinutes float64 `json:"deadline_minutes"`

	// ProvisionedConcurrency keeps that many workers of the endpoint ready.
	ProvisionedConcurrency int `json:"provisioned_concurrency"`
	// ProvisionedHoursPerMonth is for how long.
	ProvisionedHoursPerMonth float64 `json:"provisioned_hours_per_month"`
	// EndpointRequestsPerMonth go to the streaming endpoint; 0 is no endpoint.
	EndpointRequestsPerMonth int64 `json:"endpoint_requests_per_month"`
	// QueueRequestsPerMonth come through SQS; 0 is no queue.
	QueueRequestsPerMonth int64 `json:"queue_requests_per_month"`
	// NatGateways is how many NAT gateways the VPC has. With StoreEFS and none,
	// the plan counts an interface endpoint for Firehose instead.
	NatGateways int `json:"nat_gateways"`
	// FreeTier takes the monthly free tiers off; they are the account's, not the
	// swarm's, so the default is not to.
	FreeTier bool `json:"free_tier"`

	// SecPerUser replaces the calibration: the measured seconds one user takes in
	// a full batch on this memory, prompt and output together. 0 uses Calibration.
	SecPerUser float64 `json:"sec_per_user"`
	// GpuUsersPerHour is how many briefings an hour a g5.xlarge was measured to
	// write; 0 is not known.
	GpuUsersPerHour float64 `json:"gpu_users_per_hour"`

	// Quotas are the account's, as far as they are known.
	Quotas Quotas `json:"quotas"`
	// Calibration says how fast the machine is. The zero value takes the one that
	// ships for Architecture.
	Calibration Calibration `json:"calibration"`
	// Prices is the price file; nil takes the one that ships.
	Prices *Prices `json:"-"`
}

// Model is what a plan must know of a model.
type Model struct {
	Name         string `json:"name"`
	Quantization string `json:"quantization"`
	Parameters   int64  `json:"parameters"`
	WeightBytes  int64  `json:"weight_bytes"` // the size of the file
	Layers       int    `json:"layers"`
	KVHeads      int    `json:"kv_heads"`
	HeadDim      int    `json:"head_dim"`
	// WorkBytes is memory beside weights and cache: scratch buffers, and weights
	// that loading keeps twice. 0 counts none.
	WorkBytes int64 `json:"work_bytes,omitempty"`
}

// KVBytesPerToken is the size of one token's keys and values at 16 bits.
func (m Model) KVBytesPerToken() int64 {
	return 2 * 2 * int64(m.Layers) * int64(m.KVHeads) * int64(m.HeadDim)
}

// String is name and quantization, for people.
func (m Model) String() string {
	switch {
	case m.Quantization == "":
		return m.Name
	case m.Name == "":
		return m.Quantization
	}
	return m.Name + " " + m.Quantization
}

// Quotas are an account's quotas; 0 means not given, and the plan then takes
// the default and says so.
type Quotas struct {
	LambdaConcurrency       int     `json:"lambda_concurrency,omitempty"`
	LambdaMemoryMib         int     `json:"lambda_memory_mib,omitempty"`
	SfnTransitionsPerSec    float64 `json:"sfn_transitions_per_sec,omitempty"`
	FirehoseMibPerSec       float64 `json:"firehose_mib_per_sec,omitempty"`
	FirehoseRequestsPerSec  float64 `json:"firehose_requests_per_sec,omitempty"`
	FirehoseRecordsPerSec   float64 `json:"firehose_records_per_sec,omitempty"`
	SesRecipientsPerSec     float64 `json:"ses_recipients_per_sec,omitempty"`
	SesRecipientsPer24Hours int64   `json:"ses_recipients_per_24_hours,omitempty"`
}

// DefaultModel is Llama 3.2 3B in Q4_K_M.
func DefaultModel() Model {
	return Model{
		Name: "llama-3.2-3b", Quantization: "Q4_K_M",
		Parameters: 3_212_749_824, WeightBytes: 2_019_377_696,
		Layers: 28, KVHeads: 8, HeadDim: 128,
		WorkBytes: 411_723_161, // as runtime/model computes it for 16 sequences of 512 tokens on arm64
	}
}

// Defaults is a complete plan for one user base: 1,000,000 users a day, Llama
// 3.2 3B on arm64 workers of 4,096 MiB.
//
// 4,096 MiB is 2.3 vCPU, so two threads decode and a third of a CPU is left to
// the runtime, the sink and the network; Tune shows what giving that up saves.
// 900 workers leave a tenth of a default account's 1,000 to everything else.
func Defaults() Inputs {
	return Inputs{
		Users: 1_000_000, RunsPerMonth: 30,
		PrefixTokens: 180, UserTokens: 120, OutputTokens: 50,
		Model: DefaultModel(), ModelStore: StoreImage,
		Architecture: ARM64, Region: "us-east-1",
		MemoryMib: 4096, EphemeralStorageMib: 512, TimeoutSec: 900,
		BatchSize: 32, ParallelSequences: 16, MaxConcurrency: 900,
		ChildType: Standard, BufferMib: 128, BufferSec: 60, RetentionDays: 30,
		Mail: true, SesRatePerSec: 200, StartEarly: true,
		ProvisionedHoursPerMonth: HoursPerMonth,
	}
}

// HoursPerMonth is the month that AWS counts with.
const HoursPerMonth = 730

// recordBytes is the size of one input record: four bytes a token, and keys,
// id, address and name around them.
func (in Inputs) recordBytes() float64 {
	if in.RecordBytes > 0 {
		return float64(in.RecordBytes)
	}
	return float64(200 + 4*in.UserTokens)
}

// rowBytes is the size of one output row: five bytes an output token once
// escaped, the fixed columns, and the record's fields passed through.
func (in Inputs) rowBytes() float64 {
	if in.RowBytes > 0 {
		return float64(in.RowBytes)
	}
	return 500 + 5*float64(in.OutputTokens) + in.recordBytes()
}

// parallel is how many sequences really run together.
func (in Inputs) parallel() int { return min(in.ParallelSequences, in.BatchSize) }

// MemoryGB is a Lambda memory size in the unit that is billed.
func MemoryGB(memoryMib int) float64 { return float64(memoryMib) / 1024 }

// VCPU is the CPU share that a Lambda memory size buys.
func VCPU(memoryMib int) float64 { return float64(memoryMib) / MibPerVCPU }

// Threads is how many threads a worker of that memory should decode with: the
// whole vCPUs of its share, at least one. More threads than CPU time have been
// seen to make llama.cpp 45 times slower.
func Threads(memoryMib int) int { return max(1, memoryMib/MibPerVCPU) }

// cores is the CPU those threads get.
func cores(memoryMib int) float64 { return min(float64(Threads(memoryMib)), VCPU(memoryMib)) }

// Context is ContextTokens, with its default filled in.
func (in Inputs) Context() int {
	if in.ContextTokens > 0 {
		return in.ContextTokens
	}
	return padContext(in.PrefixTokens + in.UserTokens + in.OutputTokens)
}

// padContext rounds up to what llama.cpp gives a sequence: whole blocks of 256
// cells of the KV cache.
func padContext(tokens int) int { return (tokens + 255) / 256 * 256 }

// MemoryNeedMib is what a worker needs: the weights once (read, not mapped), the
// KV cache of every parallel sequence and of the shared prefix, each of
// contextTokens, Model.WorkBytes, and 512 MiB for the rest.
func MemoryNeedMib(m Model, contextTokens, parallel int) int {
	cells := float64(parallel+1) * float64(padContext(contextTokens))
	bytes := float64(m.WeightBytes) + float64(m.WorkBytes) + cells*float64(m.KVBytesPerToken())
	return int(bytes/(1<<20)) + 1 + overheadMib
}

const overheadMib = 512
