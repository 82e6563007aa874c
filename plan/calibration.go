package plan

import "time"

// CalibrationSchema names the version of the Calibration document.
const CalibrationSchema = "briefing-swarm/calibration/1"

// Calibration is what one machine was measured to do with one model. `swarm
// bench` writes it as calibration.json, and a run's manifest carries one.
type Calibration struct {
	Schema     string    `json:"schema"`
	MeasuredAt time.Time `json:"measured_at"`
	// Source says how the figures came about, for example "swarm bench".
	Source string `json:"source"`
	// Confidence is "measured", "medium" or "low"; only figures that this
	// machine's own bench produced are "measured".
	Confidence string             `json:"confidence"`
	Machine    CalibrationMachine `json:"machine"`
	Model      CalibrationModel   `json:"model"`
	// LoadSec is the time from opening the file to the first possible decode.
	LoadSec float64 `json:"load_sec"`
	// PeakMemoryBytes is the process's peak resident memory at the largest K.
	PeakMemoryBytes int64 `json:"peak_memory_bytes"`
	// PrefillTokensPerSec is prompt throughput of long prompts, one sequence.
	PrefillTokensPerSec float64 `json:"prefill_tokens_per_sec"`
	// Decode is total decode throughput by the number of parallel sequences,
	// ascending.
	Decode []DecodeRate `json:"decode"`
	// Workloads are whole jobs, prefill and decode interleaved as in a run.
	Workloads []Workload `json:"workloads,omitempty"`
	// Range is given where the figures are not one machine's but lie between
	// bounds; the figures above are then the likely ones.
	Range *CalibrationRange `json:"range,omitempty"`
}

// CalibrationRange bounds the figures of a Calibration.
type CalibrationRange struct {
	Slow CalibrationRates `json:"slow"`
	Fast CalibrationRates `json:"fast"`
}

// CalibrationRates are the figures that a range bounds.
type CalibrationRates struct {
	PrefillTokensPerSec float64      `json:"prefill_tokens_per_sec"`
	Decode              []DecodeRate `json:"decode"`
}

// CalibrationMachine is where a Calibration was measured.
type CalibrationMachine struct {
	CPU      string   `json:"cpu"`
	Arch     string   `json:"arch"`     // "arm64" or "x86_64", Lambda's names
	Features []string `json:"features"` // instruction sets llama.cpp reports as used
	Variant  string   `json:"variant"`  // the ggml CPU variant loaded, for example "zen4"
	Threads  int      `json:"threads"`
	CPUs     float64  `json:"cpus"` // CPUs the process may use: quota or visible
	// LambdaMemoryMib is the memory of the function it was measured in; 0 is a
	// machine that is not Lambda.
	LambdaMemoryMib int `json:"lambda_memory_mib,omitempty"`
}

// CalibrationModel is the model a Calibration was measured with.
type CalibrationModel struct {
	Name         string `json:"name"`
	Quantization string `json:"quantization"`
	Parameters   int64  `json:"parameters"`
	WeightBytes  int64  `json:"weight_bytes"`
	Layers       int    `json:"layers"`
	KVBytesToken int64  `json:"kv_bytes_per_token"`
	RandomWeight bool   `json:"random_weights"` // true for `swarm bench --shape`
}

// DecodeRate is decode throughput with Parallel sequences, all together.
type DecodeRate struct {
	Parallel     int     `json:"parallel"`
	TokensPerSec float64 `json:"tokens_per_sec"`
}

// Workload is a job of equal prompts: PrefixTokens shared by all users,
// OwnTokens per user, OutputTokens generated per user.
type Workload struct {
	Name         string `json:"name"`
	PrefixTokens int    `json:"prefix_tokens"`
	OwnTokens    int    `json:"own_tokens"`
	OutputTokens int    `json:"output_tokens"`
	Parallel     int    `json:"parallel"`
	// Users is how many the job had, all in one batch; 0 is Parallel.
	Users      int     `json:"users,omitempty"`
	SecPerUser float64 `json:"sec_per_user"`
	// NaiveSecPerUser is the loop that clears the cache for every user, and
	// PrefixSecPerUser the one that keeps the common prefix but runs one user at
	// a time, both in the same process; 0 when not measured.
	NaiveSecPerUser  float64 `json:"naive_sec_per_user,omitempty"`
	PrefixSecPerUser float64 `json:"prefix_sec_per_user,omitempty"`
}
