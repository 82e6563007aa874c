package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/llama"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/local"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// Environment of the verbs that use a model.
const (
	modelEnv          = "SWARM_MODEL"
	unsubscribeKeyEnv = "SWARM_UNSUBSCRIBE_KEY"
)

// runFlags are the flags of `swarm run` as they were given.
type runFlags struct {
	input, out, format   string
	systemPrompt         string
	userTemplate         string
	items                int64
	rerunFailed          string
	restart              bool
	batchSize, maxTokens int
	temperature          float32
	topP, minP           float32
	seed                 uint64
	stop                 []string
	grammar              string
	tags                 []string
	mail, from, brand    string
	unsubscribeURL       string
	mailRate             float64
	model                modelFlags
}

// modelFlags are shared by the verbs that load a model.
type modelFlags struct {
	model    string
	parallel int
	context  int
	threads  int
	library  string
	template string
}

// plainTemplate stands in for the chat template that a base model lacks.
const plainTemplate = "{% for m in messages %}{{ m.content }}{% if not loop.last %}\n\n{% endif %}{% endfor %}\n\nAnswer:\n"

func (f *modelFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", os.Getenv(modelEnv), "GGUF file, or a name of 'swarm model list' (default $"+modelEnv+")")
	flags.IntVar(&f.parallel, "parallel", engine.DefaultParallel, "sequences decoded together, K")
	flags.IntVar(&f.context, "context", 0, "most tokens of a user, prompt and output (default 1024)")
	flags.IntVar(&f.threads, "threads", 0, "compute threads (default: the whole CPUs of the quota)")
	flags.StringVar(&f.template, "chat-template", "", "Jinja file to use in place of the model's own, or 'plain' for a base model that has none")
	flags.StringVar(&f.library, "llama-lib", "", "folder of the llama.cpp libraries (default $"+llama.LibraryEnv+", else .cache/llama)")
}

// llamaOptions returns what to open, with the model's path resolved.
func (f *modelFlags) llamaOptions() (llama.Options, error) {
	if err := f.check(); err != nil {
		return llama.Options{}, &exitError{Code: exitUsage, Err: err}
	}
	path, entry, err := model.Resolve(f.model)
	var unknown *model.UnknownNameError
	if errors.As(err, &unknown) {
		return llama.Options{}, &exitError{Code: exitUsage, Err: err}
	}
	if err != nil {
		return llama.Options{}, err
	}
	threads := f.threads
	if threads == 0 {
		threads = engine.Threads(engine.CPUs(runtime.NumCPU()))
	}
	template := plainTemplate
	if f.template != "plain" {
		template = ""
		if f.template != "" {
			b, err := os.ReadFile(f.template)
			if err != nil {
				return llama.Options{}, &exitError{Code: exitUsage, Err: fmt.Errorf("read chat template: %w", err)}
			}
			template = string(b)
		}
	}
	opt := llama.Options{LibraryDir: f.library, ChatTemplate: template, Path: path, Parallel: f.parallel, ContextPerSequence: f.context, Threads: threads, SelfTest: true}
	if entry != nil {
		opt.Name = entry.Name + " " + entry.Quantization
		return opt, nil
	}
	header, err := model.Open(path)
	if err != nil {
		return llama.Options{}, err
	}
	opt.Name = llama.Name(path, header)
	return opt, nil
}

// check returns what is wrong with the flags by themselves, all of it.
func (f *modelFlags) check() error {
	var faults []error
	if f.model == "" {
		faults = append(faults, fmt.Errorf("no model: give --model FILE or NAME, or set %s; 'swarm model list' shows names", modelEnv))
	}
	if f.parallel < 1 {
		faults = append(faults, fmt.Errorf("--parallel is %d, want at least 1", f.parallel))
	}
	if f.context < 0 {
		faults = append(faults, fmt.Errorf("--context is %d, want a number of tokens, or 0 for the default", f.context))
	}
	if f.threads < 0 {
		faults = append(faults, fmt.Errorf("--threads is %d, want at least 1, or 0 for the default", f.threads))
	}
	return errors.Join(faults...)
}

func newRunCmd() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run --input FILE --out DIR --model MODEL",
		Short: "Turn a file of users into briefings, Parquet and mail",
		Long: `Run the whole pipeline on this machine: normalise the input, generate a
briefing for each user, write Parquet, write or send mail, reconcile, report.

DIR gets normalised.jsonl, rejects.jsonl, briefings/*.parquet, mail/*.eml,
manifest.json and report.html. Ctrl-C finishes the users in flight; the same
command again goes on from there and ends with exactly one row per user.`,
		Example: `  swarm run --input users.csv --out out --model llama-3.2-3b
  swarm run --input users.jsonl.gz --out out --model model.gguf --items 10
  swarm run --input users.csv --out tags --model model.gguf --tags sports,money,travel --max-tokens 15 --mail none
  swarm run --input users.csv --out out --model model.gguf --mail smtp://localhost:1025 --from "News <news@example.com>"
  swarm run --rerun-failed out/manifest.json --out again --model model.gguf`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.input, "input", "", "users, CSV or JSON Lines, gzip or not")
	flags.StringVar(&f.out, "out", "", "folder for the results")
	flags.StringVar(&f.format, "format", "auto", "auto, csv or jsonl")
	f.model.add(cmd)
	flags.StringVar(&f.systemPrompt, "system-prompt", "", "file with the system prompt, the same for all users (default: a built-in one)")
	flags.StringVar(&f.userTemplate, "user-template", "", "file with the template of a user's prompt (default: all fields as notes)")
	flags.Int64Var(&f.items, "items", 0, "stop after so many users, for a trial (default: all)")
	flags.StringVar(&f.rerunFailed, "rerun-failed", "", "manifest.json of a run whose failed users to run again")
	flags.BoolVar(&f.restart, "restart", false, "remove the run that --out holds and begin anew")
	flags.IntVar(&f.batchSize, "batch-size", local.DefaultBatchSize, "users per call of the engine, as in one Lambda invocation")
	flags.IntVar(&f.maxTokens, "max-tokens", local.DefaultMaxTokens, "most tokens to generate for a user")
	flags.Float32Var(&f.temperature, "temperature", 0, "0 takes the likeliest token; higher varies")
	flags.Float32Var(&f.topP, "top-p", 1, "keep the likeliest tokens that reach this probability")
	flags.Float32Var(&f.minP, "min-p", 0, "drop tokens below this share of the likeliest one's probability")
	flags.Uint64Var(&f.seed, "seed", 0, "makes a temperature above 0 repeatable")
	flags.StringArrayVar(&f.stop, "stop", nil, "text that ends a briefing where it begins, may be repeated (default with the built-in system prompt: a blank line)")
	flags.StringVar(&f.grammar, "grammar", "", "file with a GBNF grammar the text must follow")
	flags.StringSliceVar(&f.tags, "tags", nil, "answer with exactly one of these, a,b,c")
	flags.StringVar(&f.mail, "mail", "eml", "eml, smtp://host:port, smtps://host:port or none")
	flags.StringVar(&f.from, "from", "Morning briefing <briefing@localhost.localdomain>", "sender of the mails")
	flags.StringVar(&f.brand, "brand", "", "name above each briefing (default: the sender's name)")
	flags.StringVar(&f.unsubscribeURL, "unsubscribe-url", "", "https URL with {token}, signed with $"+unsubscribeKeyEnv)
	flags.Float64Var(&f.mailRate, "mail-rate", 0, "most mails per second (default: no bound)")
	return cmd
}

func (f *runFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	opt, err := f.options()
	if err != nil {
		return err
	}
	if f.rerunFailed != "" {
		if err := f.takeFailed(&opt); err != nil {
			return err
		}
	}
	show, done := progressTo(stderr)
	opt.OnProgress = show
	m, err := local.Run(ctx, opt)
	done()
	if mail := opt.Mail; mail != nil {
		if sender, ok := mail.Sender.(io.Closer); ok {
			// The server is told goodbye; the mails are out already.
			_ = sender.Close()
		}
	}
	var conflict *local.ConflictError
	var option *engine.OptionError
	switch {
	case errors.Is(err, local.ErrInterrupted):
		return &exitError{Code: exitInterrupted, Err: err}
	case errors.As(err, &conflict), errors.As(err, &option):
		return &exitError{Code: exitUsage, Err: err}
	case err != nil:
		return err
	}
	f.summarise(stdout, m)
	return nil
}

// options turns flags into options, with all faults at once.
func (f *runFlags) options() (local.Options, error) {
	var faults []error
	fault := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	if f.input == "" && f.rerunFailed == "" {
		fault(errors.New("no users: give --input FILE"))
	}
	if f.input != "" && f.rerunFailed != "" {
		fault(errors.New("--input and --rerun-failed exclude each other: the failed users come out of the earlier run's folder"))
	}
	if f.out == "" {
		fault(errors.New("nowhere to write: give --out DIR"))
	}
	format, err := briefing.ParseFormat(f.format)
	if err != nil {
		fault(fmt.Errorf("--format: %w", err))
	}
	template, err := readTemplate(f.systemPrompt, f.userTemplate)
	fault(err)
	grammar, err := f.grammarText()
	fault(err)
	mail, err := f.mailOptions()
	fault(err)
	for _, v := range []struct {
		name        string
		value, most float64
	}{{"--temperature", float64(f.temperature), 5}, {"--top-p", float64(f.topP), 1}, {"--min-p", float64(f.minP), 1}} {
		if !(v.value >= 0 && v.value <= v.most) {
			fault(fmt.Errorf("%s is %v, want 0 to %v", v.name, v.value, v.most))
		}
	}
	for _, v := range []struct {
		name  string
		value int
	}{{"--batch-size", f.batchSize}, {"--max-tokens", f.maxTokens}} {
		if v.value < 1 {
			fault(fmt.Errorf("%s is %d, want at least 1", v.name, v.value))
		}
	}
	if f.items < 0 {
		fault(fmt.Errorf("--items is %d, want at least 1, or 0 for all", f.items))
	}
	if !(f.mailRate >= 0) {
		fault(fmt.Errorf("--mail-rate is %v, want a number of mails per second, or 0 for no bound", f.mailRate))
	}
	llamaOpt, err := f.model.llamaOptions()
	var usage *exitError
	switch {
	case errors.As(err, &usage):
		fault(usage.Err)
	case err != nil && len(faults) == 0:
		return local.Options{}, err
	}
	if len(faults) > 0 {
		return local.Options{}, &exitError{Code: exitUsage, Err: errors.Join(faults...)}
	}
	stop := f.stop
	if len(stop) == 0 && f.systemPrompt == "" && grammar == "" {
		stop = []string{briefing.DefaultStop}
	}
	return local.Options{
		Input: f.input, Format: format, Limit: f.items, Out: f.out, Restart: f.restart,
		Model: local.Model{Name: llamaOpt.Name, Path: llamaOpt.Path, Open: func(context.Context) (engine.Backend, error) {
			return llama.Open(llamaOpt)
		}},
		Engine: engine.Options{Parallel: f.model.parallel}, Template: template, BatchSize: f.batchSize, MaxTokens: f.maxTokens,
		Sampling: engine.Sampling{Temperature: f.temperature, TopP: f.topP, MinP: f.minP, Seed: f.seed},
		Stop:     stop, Grammar: grammar, Mail: mail, Command: commandLine(os.Args),
	}, nil
}

func readTemplate(systemFile, userFile string) (*briefing.Template, error) {
	system, user := briefing.DefaultSystemPrompt(), briefing.DefaultUserTemplate()
	for _, part := range []struct {
		flag, file string
		text       *string
	}{{"--system-prompt", systemFile, &system}, {"--user-template", userFile, &user}} {
		if part.file == "" {
			continue
		}
		b, err := os.ReadFile(part.file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.flag, err)
		}
		*part.text = string(b)
	}
	return briefing.ParseTemplate(system, user)
}

func (f *runFlags) grammarText() (string, error) {
	switch {
	case f.grammar != "" && len(f.tags) > 0:
		return "", errors.New("--grammar and --tags exclude each other")
	case len(f.tags) > 0:
		grammar, err := engine.TagsGrammar(f.tags)
		if err != nil {
			return "", fmt.Errorf("--tags: %w", err)
		}
		return grammar, nil
	case f.grammar != "":
		b, err := os.ReadFile(f.grammar)
		if err != nil {
			return "", fmt.Errorf("--grammar: %w", err)
		}
		return string(b), nil
	}
	return "", nil
}

func (f *runFlags) mailOptions() (*local.Mail, error) {
	if f.mail == "none" {
		return nil, nil
	}
	settings := deliver.Settings{From: f.from, Brand: f.brand}
	if f.unsubscribeURL != "" {
		keys, err := deliver.ParseUnsubscribeKeys(os.Getenv(unsubscribeKeyEnv))
		if err != nil {
			return nil, fmt.Errorf("--unsubscribe-url: %w (in $%s)", err, unsubscribeKeyEnv)
		}
		links, err := deliver.NewUnsubscribeLinks(f.unsubscribeURL, keys)
		if err != nil {
			return nil, fmt.Errorf("--unsubscribe-url: %w", err)
		}
		settings.UnsubscribeURL = links.URL
	}
	composer, err := deliver.NewComposer(settings)
	if err != nil {
		return nil, fmt.Errorf("--from, --brand: %w", err)
	}
	mail := &local.Mail{Composer: composer, RatePerSec: f.mailRate}
	if f.mail == "eml" {
		mail.Folder = local.MailDir
		return mail, nil
	}
	if !strings.HasPrefix(f.mail, "smtp://") && !strings.HasPrefix(f.mail, "smtps://") {
		return nil, errors.New("--mail is none of eml, smtp://host:port, smtps://host:port and none")
	}
	if mail.Sender, err = deliver.NewSMTP(f.mail, deliver.SMTPOptions{}); err != nil {
		return nil, fmt.Errorf("--mail: %w", err)
	}
	return mail, nil
}

// commandLine quotes args for a shell.
func commandLine(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if a == "" || strings.ContainsFunc(a, func(r rune) bool {
			return !strings.ContainsRune("-_./=:,+@%", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
		}) {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		quoted[i] = a
	}
	if len(quoted) > 0 {
		quoted[0] = filepath.Base(quoted[0])
	}
	return strings.Join(quoted, " ")
}

// takeFailed makes the failed users of an earlier run the input of this one.
// Rows that were rejected have no record to run again: they want a new input.
func (f *runFlags) takeFailed(opt *local.Options) error {
	earlier, err := local.ReadManifest(f.rerunFailed)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.rerunFailed)
	type row struct {
		UserID string `parquet:"user_id"`
		Status string `parquet:"status"`
	}
	failed := map[string]bool{}
	for r, err := range gather.DirRows[row](filepath.Join(dir, local.BriefingsDir)) {
		if err != nil {
			return err
		}
		if r.Status != briefing.StatusOK {
			failed[r.UserID] = true
		}
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	opt.RerunOf, opt.Format = earlier.RunID, briefing.FormatJSONL
	opt.Input = filepath.Join(f.out, "failed-users.jsonl")
	n, err := copyRecords(filepath.Join(dir, local.NormalisedName), opt.Input, failed)
	if err == nil && n == 0 {
		err = fmt.Errorf("run %s has no failed user with a readable record: there is nothing to run again", earlier.RunID)
	}
	return err
}

// copyRecords copies the canonical records of the given users.
func copyRecords(from, to string, users map[string]bool) (n int, err error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close() // opened for reading: nothing to lose
	out, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 2*briefing.MaxRecordBytes)
	for lines.Scan() {
		rec, err := briefing.ParseRecord(lines.Bytes())
		if err != nil {
			return n, err
		}
		if !users[rec.UserID] {
			continue
		}
		n++
		if _, err := out.Write(append(lines.Bytes(), '\n')); err != nil {
			return n, err
		}
	}
	return n, lines.Err()
}

// summarise says in a few lines what came out and where it is.
func (f *runFlags) summarise(w io.Writer, m *local.Manifest) {
	c := m.Counts
	fmt.Fprintf(w, "%s: %d briefings, %d failed", m.RunID, c.OK, c.Failed)
	if c.Rejected > 0 {
		fmt.Fprintf(w, ", %d input rows rejected (see %s)", c.Rejected, filepath.Join(f.out, local.RejectsName))
	}
	fmt.Fprintln(w)
	if e := m.Engine; e != nil && e.WallSec > 0 {
		fmt.Fprintf(w, "speed:    %.1f users/s, %.0f tokens/s with %d threads (%s)\n", e.RecordsPerSec, e.CompletionPerSec, e.Threads, e.Variant)
	}
	fmt.Fprintf(w, "parquet:  %s\n", filepath.Join(f.out, local.BriefingsDir))
	if mail := c.Mail; mail != nil {
		where := "by SMTP"
		if f.mail == "eml" {
			where = "in " + filepath.Join(f.out, local.MailDir)
		}
		fmt.Fprintf(w, "mail:     %d %s", mail.Sent, where)
		for _, part := range []struct {
			n    int64
			what string
		}{{mail.Already, "sent before"}, {mail.NoAddress, "without an address"}, {mail.Failed, "failed"}, {mail.Unknown, "of unknown fate, not sent again"}} {
			if part.n > 0 {
				fmt.Fprintf(w, ", %d %s", part.n, part.what)
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "report:   %s\n", filepath.Join(f.out, local.ReportName))
	fmt.Fprintf(w, "manifest: %s\n", filepath.Join(f.out, local.ManifestName))
}
