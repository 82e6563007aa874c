package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/briefing-swarm/briefing-swarm/runtime/bench"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/llama"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// benchFlags are the flags of `swarm bench` as they were given.
type benchFlags struct {
	model              modelFlags
	shape, quant       string
	naive              bool
	naiveQuant         string
	sequences          []int
	workloads          []string
	repeat, rounds     int
	out                string
	asJSON             bool
	unifiedKV, noFlash bool
	noRepack           bool
	prefillChunk       int
}

// shapeSeed makes the random weights the same everywhere.
const shapeSeed = 1

func newBenchCmd() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench {--model MODEL | --shape SHAPE}",
		Short: "Measure this machine: prefill, decode, memory, and the gain over simple loops",
		Long: `Measure how fast this machine runs a model, and write calibration.json, from
which 'swarm plan' then computes cost and time.

--shape measures a file of random weights instead of a model: speed depends on
the shape of the weights, not on their values, so nobody needs to download a
model to learn what it would do here. Close other programs: compute threads
wait for each other, and one busy neighbour slows all of them.`,
		Example: `  swarm bench --model llama-3.2-3b
  swarm bench --shape llama-3.2-3b --quant q4_0+q4_0-head --naive --naive-quant q4_k
  swarm bench --shape llama-3.2-1b --sequences 1,8,16 --repeat 1 --out ''`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.model.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.shape, "shape", "", "measure random weights of this shape: "+strings.Join(model.ShapeNames(), ", "))
	flags.StringVar(&f.quant, "quant", "q4_k", "quantization of --shape: "+strings.Join(model.RecipeNames(), ", "))
	flags.BoolVar(&f.naive, "naive", false, "also run the two one-at-a-time loops and print the ratios")
	flags.StringVar(&f.naiveQuant, "naive-quant", "", "other weights for those loops (default: the same)")
	flags.IntSliceVar(&f.sequences, "sequences", []int{1, 2, 4, 8, 16, 32}, "K of the decode figures")
	flags.StringArrayVar(&f.workloads, "workload", nil, "NAME=PREFIX,OWN,OUTPUT,K in tokens, may be repeated (default briefing=180,120,50,16 and tags=400,60,15,16)")
	flags.IntVar(&f.repeat, "repeat", 3, "measurements of each figure; the median counts")
	flags.IntVar(&f.rounds, "rounds", 2, "users of a workload, in multiples of K")
	flags.StringVar(&f.out, "out", "calibration.json", "file for the calibration, '' for none")
	flags.BoolVar(&f.asJSON, "json", false, "print the whole report as JSON")
	flags.BoolVar(&f.unifiedKV, "unified-kv", false, "one KV cache for all sequences instead of one for each")
	flags.BoolVar(&f.noFlash, "no-flash-attention", false, "attention the plain way")
	flags.BoolVar(&f.noRepack, "no-repack", false, "weights as they are in the file")
	flags.IntVar(&f.prefillChunk, "prefill-chunk", 0, "prompt tokens that a step takes along beside running sequences (default: as many as a step holds)")
	return cmd
}

func (f *benchFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	workloads, err := f.parse()
	if err != nil {
		return &exitError{Code: exitUsage, Err: err}
	}
	ours, err := f.open(ctx, stderr, f.quant, workloads)
	if err != nil {
		return err
	}
	defer ours.Close()
	opt := bench.Options{
		Backend: ours, Loops: f.naive, Engine: engine.Options{PrefillChunk: f.prefillChunk}, Sequences: f.sequences, Workloads: workloads,
		Repeat: f.repeat, Rounds: f.rounds,
		Note: func(s string) { fmt.Fprintln(stderr, "swarm: "+s) },
	}
	if f.naive && f.naiveQuant != "" && f.naiveQuant != f.quant {
		naive, err := f.open(ctx, stderr, f.naiveQuant, workloads)
		if err != nil {
			return err
		}
		defer naive.Close()
		opt.Naive = naive
	}
	report, err := bench.Run(ctx, opt)
	if errors.Is(err, context.Canceled) {
		return &exitError{Code: exitInterrupted, Err: errors.New("interrupted: nothing was written")}
	}
	if err != nil {
		return err
	}
	if f.out != "" {
		b, err := json.MarshalIndent(report.Calibration, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.out, append(b, '\n'), 0o644); err != nil {
			return fmt.Errorf("write calibration: %w", err)
		}
	}
	if f.asJSON {
		return writeJSON(stdout, report)
	}
	f.print(stdout, report, opt)
	return nil
}

// parse checks the flags, all faults at once.
func (f *benchFlags) parse() ([]bench.Workload, error) {
	var faults []error
	if (f.shape == "") == (f.model.model == "") {
		if f.shape == "" {
			faults = append(faults, errors.New("nothing to measure: give --model MODEL or --shape SHAPE"))
		} else if os.Getenv(modelEnv) != f.model.model {
			faults = append(faults, errors.New("--model and --shape exclude each other"))
		}
	}
	if f.naiveQuant != "" && (f.shape == "" || !f.naive) {
		faults = append(faults, errors.New("--naive-quant goes with --shape and --naive"))
	}
	for name, n := range map[string]int{"--repeat": f.repeat, "--rounds": f.rounds} {
		if n < 1 {
			faults = append(faults, fmt.Errorf("%s is %d, want at least 1", name, n))
		}
	}
	for _, k := range f.sequences {
		if k < 1 || k > 255 {
			faults = append(faults, fmt.Errorf("--sequences has %d, want 1 to 255", k))
		}
	}
	workloads := bench.Workloads
	if len(f.workloads) > 0 {
		workloads = nil
	}
	for _, text := range f.workloads {
		w, err := bench.ParseWorkload(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("--workload: %w", err))
		}
		workloads = append(workloads, w)
	}
	return workloads, errors.Join(faults...)
}

// open loads what is to be measured, large enough for all of it.
func (f *benchFlags) open(ctx context.Context, stderr io.Writer, quant string, workloads []bench.Workload) (*llama.Backend, error) {
	flags := f.model
	if f.shape != "" {
		recipe, err := model.LookupRecipe(quant)
		if err != nil {
			return nil, &exitError{Code: exitUsage, Err: err}
		}
		fmt.Fprintf(stderr, "swarm: random weights, shape %s, %s\n", f.shape, quant)
		if flags.model, err = model.RandomFile(ctx, "", f.shape, recipe, shapeSeed, nil); err != nil {
			return nil, err
		}
	}
	flags.parallel, flags.context = 1, max(flags.context, bench.PrefillTokens+1)
	for _, k := range f.sequences {
		flags.parallel = max(flags.parallel, k)
	}
	for _, w := range workloads {
		flags.parallel = max(flags.parallel, w.Parallel)
		flags.context = max(flags.context, w.PrefixTokens+w.OwnTokens+w.OutputTokens)
	}
	opt, err := flags.llamaOptions()
	if err != nil {
		return nil, err
	}
	opt.UnifiedKV, opt.NoFlashAttention, opt.NoRepack = f.unifiedKV, f.noFlash, f.noRepack
	return llama.Open(opt)
}

func (f *benchFlags) print(w io.Writer, r *bench.Report, opt bench.Options) {
	c := r.Calibration
	fmt.Fprintf(w, "model    %s, %s of weights\n", c.Model.Name, model.FormatBytes(c.Model.WeightBytes))
	fmt.Fprintf(w, "machine  %s, %s, variant %s, %d threads of %.1f CPUs\n", c.Machine.CPU, c.Machine.Arch, c.Machine.Variant, c.Machine.Threads, c.Machine.CPUs)
	fmt.Fprintf(w, "load     %.1f s", c.LoadSec)
	if c.PeakMemoryBytes > 0 {
		fmt.Fprintf(w, ", peak memory %s", model.FormatBytes(c.PeakMemoryBytes))
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "prefill  %.1f tokens/s, one prompt\n", c.PrefillTokensPerSec)
	if len(c.Decode) > 0 {
		fmt.Fprintf(w, "decode   K           ")
		for _, d := range c.Decode {
			fmt.Fprintf(w, "%8d", d.Parallel)
		}
		fmt.Fprintf(w, "\n         tokens/s    ")
		for _, d := range c.Decode {
			fmt.Fprintf(w, "%8.1f", d.TokensPerSec)
		}
		fmt.Fprintln(w)
	}
	for _, x := range r.Comparisons {
		fmt.Fprintf(w, "\n%s: prefix %d, own %d, output %d tokens, K %d\n", x.Name, x.PrefixTokens, x.OwnTokens, x.OutputTokens, x.Parallel)
		fmt.Fprintf(w, "  this engine                  %8.3f s a user\n", x.EngineSec)
		if !opt.Loops {
			continue
		}
		with := ""
		if opt.Naive != nil {
			with = ", with " + opt.Naive.Host().Quantization
		}
		fmt.Fprintf(w, "  loop, cache cleared          %8.3f s a user  %5.2f times as long%s\n", x.ClearSec, x.OverClear, with)
		fmt.Fprintf(w, "  loop, common prefix kept     %8.3f s a user  %5.2f times as long%s\n", x.PrefixSec, x.OverPrefix, with)
	}
	if len(r.Comparisons) > 0 {
		fmt.Fprintf(w, "\nengine   %.2f%% of its time outside llama.cpp's decode call\n", 100*r.OwnShare)
	}
	if f.out != "" {
		fmt.Fprintf(w, "\nwritten to %s: swarm plan --calibration %s\n", f.out, f.out)
	}
}
