package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

func newModelCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "model",
		Short: "List, fetch and inspect models (GGUF files)",
		Long: `List the models this program knows, fetch one, or look into a GGUF file.

Fetched models are kept in the folder "models" of the cache: the value of
SWARM_CACHE, or "briefing-swarm" in your own cache folder.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newModelListCmd(), newModelPullCmd(), newModelInspectCmd())
	return cmd
}

// listedModel is one line of `swarm model list --json`.
type listedModel struct {
	model.Entry
	URL          string `json:"url"`
	Cached       bool   `json:"cached"`
	MinMemoryMib int    `json:"min_memory_mib"`
}

func newModelListCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the models that can be named in 'swarm run --model'",
		Example: `  swarm model list
  swarm model list --json | jq -r '.[] | select(.licence == "Apache-2.0").name'`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var listed []listedModel
			for _, e := range model.Catalogue() {
				_, _, err := model.Resolve(e.Name)
				var absent *model.NotPulledError
				if err != nil && !errors.As(err, &absent) {
					return err
				}
				listed = append(listed, listedModel{
					Entry:        e,
					URL:          e.URL(),
					Cached:       err == nil,
					MinMemoryMib: e.MemoryNeed(model.MemoryOptions{}).MinMemoryMib(),
				})
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), listed)
			}
			return writeModelTable(cmd.OutOrStdout(), listed)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known of each model, as JSON")
	return cmd
}

// writeModelTable fits 80 columns.
func writeModelTable(out io.Writer, listed []listedModel) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tQUANT\tSIZE\tLAYERS\tKV\tCTX\tLICENCE\tSUM\tHERE")
	for _, m := range listed {
		fmt.Fprintf(t, "%s\t%s\t%.2f GB\t%d\t%d x %d\t%dk\t%s\t%s\t%s\n",
			m.Name, m.Quantization, float64(m.SizeBytes)/1e9, m.Shape.Layers,
			m.Shape.KVHeads, m.Shape.HeadDim, m.Shape.Context>>10, m.Licence, yesNo(m.SHA256 != ""), yesNo(m.Cached))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(out, `
KV: heads x values of each, per layer. CTX: trained context in 1024 tokens.
SUM: a verified checksum is known. HERE: the file is in the cache.
Fetch one with 'swarm model pull NAME'; --json shows sources and memory needs.
`)
	return err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

// shortCount writes a number of parameters: "3.21B", "135M".
func shortCount(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.2fB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.0fM", float64(n)/1e6)
}

func newModelPullCmd() *cobra.Command {
	var (
		o      model.PullOptions
		dir    string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "pull NAME|URL",
		Short: "Fetch a model into the cache, and check it",
		Long: `Fetch a model of 'swarm model list', or a GGUF file by its address.

An interrupted pull resumes when it is called again. The file appears under
its name only after its checksum and its header were checked. Where no
checksum is known, give one with --sha256, or accept what comes with
--record-sha256: its checksum is then written beside the file, and later pulls
compare with it.

HF_TOKEN is sent to Hugging Face for models that ask for a log-in; HF_ENDPOINT
names a mirror; HTTPS_PROXY and NO_PROXY are honoured.`,
		Example: `  swarm model pull smollm2-135m
  swarm model pull llama-3.2-3b --record-sha256
  swarm model pull https://example.com/my-model.Q4_K_M.gguf --sha256 9f86d0...`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				var err error
				if dir, err = model.ModelsDir(); err != nil {
					return err
				}
			}
			progress := newPullProgress(cmd.ErrOrStderr())
			o.Progress = progress.report
			pulled, err := pullModel(cmd.Context(), args[0], dir, o)
			progress.end()
			if err != nil {
				if errors.Is(err, context.Canceled) {
					return &exitError{Code: exitInterrupted, Err: errors.New("interrupted; the same command resumes the download")}
				}
				var noSum *model.NoChecksumError
				var unknown *model.UnknownNameError
				if errors.As(err, &noSum) || errors.As(err, &unknown) {
					return &exitError{Code: exitUsage, Err: err}
				}
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), pulled)
			}
			return writePulled(cmd.OutOrStdout(), pulled)
		},
	}
	cmd.Flags().StringVar(&o.SHA256, "sha256", "", "the checksum the file must have (64 hexadecimal digits)")
	cmd.Flags().BoolVar(&o.RecordSHA256, "record-sha256", false, "accept a file of unknown checksum, and record what it was")
	cmd.Flags().StringVar(&dir, "dir", "", "folder to keep the file in (default: the cache)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// pullModel fetches a name of the catalogue or an address.
func pullModel(ctx context.Context, what, dir string, o model.PullOptions) (model.Pulled, error) {
	if strings.Contains(what, "://") {
		name, err := model.FileName(what)
		if err != nil {
			return model.Pulled{}, &exitError{Code: exitUsage, Err: err}
		}
		return model.Pull(ctx, what, filepath.Join(dir, name), o)
	}
	e, err := model.Lookup(what)
	if err != nil {
		return model.Pulled{}, err
	}
	return e.Pull(ctx, dir, o)
}

func writePulled(out io.Writer, p model.Pulled) error {
	how := "checksum as expected"
	if !p.Verified {
		how = "checksum recorded, not verified"
		if p.Already {
			how = "checksum not verified"
		}
	}
	if p.Already {
		how = "was already there, " + how
	}
	_, err := fmt.Fprintf(out, "%s\n%s, sha256 %s\n%s\n", p.Path, model.FormatBytes(p.Bytes), p.SHA256, how)
	return err
}

// pullProgress shows how far a download is: one line that is rewritten on a
// terminal, a line every ten seconds elsewhere.
type pullProgress struct {
	out      io.Writer
	terminal bool
	start    time.Time
	last     time.Time
	first    int64 // bytes there at the first report, which took no time
	shown    bool
}

func newPullProgress(out io.Writer) *pullProgress {
	f, ok := out.(*os.File)
	return &pullProgress{out: out, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

func (p *pullProgress) report(done, total int64) {
	now := time.Now()
	if p.start.IsZero() {
		p.start, p.first, p.last = now, done, now
	}
	pause := 10 * time.Second
	if p.terminal {
		pause = 200 * time.Millisecond
	}
	if now.Sub(p.last) < pause {
		return
	}
	p.last = now
	line := pullLine(done, total, done-p.first, now.Sub(p.start))
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(p.out, line)
	}
	p.shown = true
}

func pullLine(done, total, fetched int64, took time.Duration) string {
	line := model.FormatBytes(done)
	if total > 0 {
		line += fmt.Sprintf(" of %s (%d%%)", model.FormatBytes(total), 100*done/total)
	}
	if rate := float64(fetched) / took.Seconds(); took > 0 && rate > 0 {
		line += fmt.Sprintf(", %s/s", model.FormatBytes(int64(rate)))
		if total > 0 {
			left := time.Duration(float64(total-done) / rate * float64(time.Second))
			line += fmt.Sprintf(", %s left", left.Round(time.Second))
		}
	}
	return line
}

func (p *pullProgress) end() {
	if p.terminal && p.shown {
		fmt.Fprintln(p.out)
	}
}

// inspection is what `swarm model inspect --json` prints.
type inspection struct {
	Path          string         `json:"path"`
	Name          string         `json:"name"`
	CatalogueName string         `json:"catalogue_name,omitempty"`
	FileBytes     int64          `json:"file_bytes"`
	GGUFVersion   uint32         `json:"gguf_version"`
	Quantization  string         `json:"quantization"`
	HeadType      string         `json:"head_type"`
	Parameters    int64          `json:"parameters"`
	Tensors       int            `json:"tensors"`
	Shape         model.Shape    `json:"shape"`
	Tokenizer     string         `json:"tokenizer"`
	PreTokenizer  string         `json:"pre_tokenizer,omitempty"`
	ChatTemplate  string         `json:"chat_template,omitempty"`
	Licence       string         `json:"licence,omitempty"`
	RandomWeights bool           `json:"random_weights"`
	KVBytesToken  int64          `json:"kv_bytes_per_token"`
	Memory        model.Need     `json:"memory"`
	MinMemoryMib  int            `json:"min_memory_mib"`
	FitsLambda    bool           `json:"fits_lambda"`
	Metadata      map[string]any `json:"metadata"`
}

func newModelInspectCmd() *cobra.Command {
	var (
		o      model.MemoryOptions
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "inspect NAME|PATH",
		Short: "Show what a GGUF file holds, and the memory it needs",
		Long: `Read the header of a GGUF file, check that the file is whole, and add up the
memory needed to generate with it. A file that is no usable GGUF is refused
with what it looks like instead, and exit code 1.`,
		Example: `  swarm model inspect smollm2-135m
  swarm model inspect ./model.gguf --parallel 16 --context 512
  swarm model inspect ./model.gguf --json | jq .min_memory_mib`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Parallel < 1 || o.Parallel > 4096 {
				return &exitError{Code: exitUsage, Err: fmt.Errorf("--parallel is %d; it must be 1 to 4096 sequences", o.Parallel)}
			}
			if o.ContextPerSequence < 1 || o.ContextPerSequence > 1<<24 {
				return &exitError{Code: exitUsage, Err: fmt.Errorf("--context is %d; it must be 1 to %d tokens", o.ContextPerSequence, 1<<24)}
			}
			path, entry, err := model.Resolve(args[0])
			if err != nil {
				return err
			}
			h, err := model.Open(path)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), inspect(path, entry, h, o))
			}
			return writeInspection(cmd.OutOrStdout(), path, h, o)
		},
	}
	cmd.Flags().IntVar(&o.Parallel, "parallel", 1, "sequences generated at the same time")
	cmd.Flags().IntVar(&o.ContextPerSequence, "context", model.DefaultContext, "most tokens of a sequence, prompt and output together")
	cmd.Flags().BoolVar(&o.MMap, "mmap", false, "count the file as mapped into memory, as 'swarm run' does on a laptop, not as read")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON, all metadata included")
	return cmd
}

func inspect(path string, entry *model.Entry, h *model.Header, o model.MemoryOptions) inspection {
	need := h.MemoryNeed(o)
	meta := map[string]any{}
	for _, key := range h.Metadata.Keys() {
		meta[key] = jsonValue(h.Metadata[key])
	}
	i := inspection{
		Path: path, Name: h.Name, FileBytes: h.FileBytes, GGUFVersion: h.Version,
		Quantization: h.Quantization, HeadType: h.HeadType.String(), Parameters: h.Parameters, Tensors: len(h.Tensors),
		Shape: h.Shape, Tokenizer: h.Tokenizer, PreTokenizer: h.PreTokenizer, ChatTemplate: h.ChatTemplate,
		Licence: h.Licence, RandomWeights: h.RandomWeights, KVBytesToken: h.KVBytesPerToken(),
		Memory: need, MinMemoryMib: need.MinMemoryMib(), FitsLambda: need.FitsLambda(), Metadata: meta,
	}
	if entry != nil {
		i.CatalogueName = entry.Name
	}
	return i
}

// jsonValue is a metadata value as JSON can show it: long arrays by their
// length, and as text the numbers JSON does not have.
func jsonValue(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
	case model.Array:
		if v.Values == nil {
			return fmt.Sprintf("array of %d values", v.Len)
		}
		shown := make([]any, len(v.Values))
		for i := range v.Values {
			shown[i] = jsonValue(v.Values[i])
		}
		return shown
	}
	return v
}

func writeInspection(out io.Writer, path string, h *model.Header, o model.MemoryOptions) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("File", "%s", path)
	row("Size", "%s, GGUF version %d, %d tensors", model.FormatBytes(h.FileBytes), h.Version, len(h.Tensors))
	name := h.Name
	if h.RandomWeights {
		name += ": for measuring only"
	}
	row("Model", "%s", orNone(printable(name)))
	row("Architecture", "%s, %s parameters", printable(h.Architecture), shortCount(h.Parameters))
	head := "its own"
	if h.TiedHead {
		head = "the embedding table's"
	}
	row("Quantization", "%s; output head %v, %s weights", h.Quantization, h.HeadType, head)
	row("Shape", "%d layers, embedding %d, feed-forward %d", h.Layers, h.Embedding, h.FeedForward)
	row("Attention", "%s, %s of %d values", plural(h.Heads, "head"), plural(h.KVHeads, "KV head"), h.HeadDim)
	row("Context", "%d tokens trained", h.Context)
	row("Vocabulary", "%d tokens, %s", h.Vocab, orNone(strings.Trim(printable(h.Tokenizer+" "+h.PreTokenizer), " ")))
	chat := "none (a base model, not an instruct one?)"
	if h.ChatTemplate != "" {
		chat = fmt.Sprintf("yes (%d bytes of Jinja)", len(h.ChatTemplate))
	}
	row("Chat template", "%s", chat)
	row("Licence", "%s", orNone(printable(h.Licence)))
	if err := t.Flush(); err != nil {
		return err
	}
	return writeNeed(out, h, o)
}

// writeNeed prints the memory need as a sum.
func writeNeed(out io.Writer, h *model.Header, o model.MemoryOptions) error {
	n := h.MemoryNeed(o)
	fmt.Fprintf(out, "\nMemory for %s of %d tokens\n", plural(n.Parallel, "sequence"), n.ContextPerSequence)
	line := func(name string, bytes int64, note string) {
		if note != "" {
			note = "  " + note
		}
		fmt.Fprintf(out, "  %-10s %9.1f MiB%s\n", name, float64(bytes)/(1<<20), note)
	}
	line("weights", n.WeightBytes, "")
	repack := "none are held twice"
	switch {
	case o.MMap:
		repack = "re-ordered copies beside the mapped file, at most"
	case n.RepackBytes > 0:
		repack = "the head, re-ordered beside the embedding table"
	}
	line("repacking", n.RepackBytes, repack)
	line("KV cache", n.KVBytes, fmt.Sprintf("%.1f KiB a token; the shared prefix has a sequence of its own", float64(h.KVBytesPerToken())/(1<<10)))
	line("compute", n.ComputeBytes, "llama.cpp's scratch buffers")
	line("overhead", n.OverheadBytes, "the program and the system")
	line("total", n.TotalBytes, "")
	if !n.FitsLambda() {
		_, err := fmt.Fprintf(out, "\nNo Lambda function can hold this: %d MiB, and the most is %d MiB.\nLower --parallel or --context, or take a smaller model.\n", n.MinMemoryMib(), model.LambdaMaxMemoryMib)
		return err
	}
	_, err := fmt.Fprintf(out, "\nSmallest Lambda memory setting that fits: %d MiB (%.2f vCPU)\n", n.MinMemoryMib(), float64(n.MinMemoryMib())/lambdaMibPerCPU)
	return err
}

// lambdaMibPerCPU is the memory at which a Lambda function has one whole CPU,
// as AWS documents it.
const lambdaMibPerCPU = 1769

// printable keeps text from a file that anybody may have written from
// steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}

func orNone(s string) string {
	if s == "" {
		return "not stated"
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// usageArgs marks a wrong number of arguments as a mistake in the call.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &exitError{Code: exitUsage, Err: fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
		}
		return nil
	}
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
