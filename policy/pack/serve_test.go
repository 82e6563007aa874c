package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/briefing-swarm/briefing-swarm/internal/enginetest"
	"github.com/briefing-swarm/briefing-swarm/policy"
)

// config writes a configuration file.
func config(t *testing.T, document any) string {
	t.Helper()
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestConfiguration: what the engine passes over is refused, what it checks is
// refused by it, and what is right has its effect.
func TestConfiguration(t *testing.T) {
	pack := built(t)
	folder := buildContext(t)
	for _, test := range []struct {
		name   string
		config any
		exit   int
		want   string
	}{
		{"unknown policy", map[string]any{"run-cost-celling": map[string]any{"enforcementLevel": "mandatory"}}, 1,
			`there is no policy "run-cost-celling"; the pack has cheaper-alternative, `},
		{"unknown property", map[string]any{"run-cost-ceiling": map[string]any{"maxUsd": 10}}, 1,
			`policy run-cost-ceiling has no property "maxUsd"; it has maxUsdPerRun, useHighEstimate`},
		{"wrong type", map[string]any{"run-cost-ceiling": map[string]any{"maxUsdPerRun": "10"}}, 1,
			"maxUsdPerRun: Invalid type. Expected: number, given: string"},
		{"out of range", map[string]any{"cost-estimate-honest": map[string]any{"tolerancePercent": 101}}, 1,
			"tolerancePercent: Must be less than or equal to 100"},
		{"a ceiling", map[string]any{"run-cost-ceiling": map[string]any{"maxUsdPerRun": 0.5}}, 1,
			"over the ceiling of $0.50 (from the policy's configuration)"},
		{"a high ceiling", map[string]any{"run-cost-ceiling": map[string]any{"maxUsdPerRun": 8, "useHighEstimate": true}}, 1,
			"usdPerRunHigh is "},
		{"only advice", map[string]any{"run-cost-ceiling": map[string]any{"maxUsdPerRun": 0.5, "enforcementLevel": "advisory"}}, 0,
			"[advisory]  run-cost-ceiling"},
		{"all disabled", map[string]any{"all": "disabled"}, 0, ""},
		{"all but one disabled", map[string]any{"all": "disabled", "run-cost-ceiling": map[string]any{"enforcementLevel": "mandatory", "maxUsdPerRun": 0.5}}, 1,
			"[mandatory]  run-cost-ceiling"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := enginetest.New(t).Inline("acme", "dev", nil, newFixture(folder).program)
			s.PolicyPack, s.PolicyConfig = pack, config(t, test.config)
			r := s.Preview()
			text := r.Text
			if r.Err != nil {
				text += r.Err.Error()
			}
			if r.Exit() != test.exit || !strings.Contains(text, test.want) {
				t.Errorf("exit code %d, want %d with %q:\n%s", r.Exit(), test.exit, test.want, text)
			}
		})
	}
}

// TestLimitsFromStack: what the stack's configuration says of the account counts
// where the policy's does not, and a new account's where neither does.
func TestLimitsFromStack(t *testing.T) {
	pack := built(t)
	for _, test := range []struct {
		name   string
		stack  map[string]string
		config any
		want   string
	}{
		{"defaults", nil, map[string]any{}, "over the account's 1,000 (the default of a new account)"},
		{"stack", map[string]string{"acme:accountQuotas": `{"lambdaConcurrency": 1500}`}, map[string]any{}, "over the account's 1,500 (from accountQuotas)"},
		{"policy", map[string]string{"acme:accountQuotas": `{"lambdaConcurrency": 1500}`},
			map[string]any{"lambda-concurrency": map[string]any{"maxConcurrency": 1200}}, "over the account's 1,200 (from the policy's configuration)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(buildContext(t))
			delete(f.inputs["accountQuotas"].(pulumi.Map), "lambdaConcurrency")
			f.function.ReservedConcurrentExecutions = pulumi.Int(1950)
			s := enginetest.New(t).Inline("acme", "dev", test.stack, f.program)
			s.PolicyPack, s.PolicyConfig = pack, config(t, test.config)
			if r := s.Preview(); !strings.Contains(r.Text, test.want) {
				t.Errorf("want %q:\n%s", test.want, r.Text)
			}
		})
	}
}

// TestException: a violation that a file of version 2 excepts is shown, and lets
// the update through; the same of another resource does not.
func TestException(t *testing.T) {
	f := newFixture(buildContext(t))
	f.url.AuthorizationType = pulumi.String("NONE")
	s := enginetest.New(t).Inline("acme", "dev", nil, f.program)
	s.PolicyPack = built(t)
	document := func(urn string) map[string]any {
		return map[string]any{"version": 2, "policies": map[string]any{}, "exceptions": map[string]any{"status-page": map[string]any{
			"reason": "the status page is for everyone",
			"match":  []any{map[string]any{"policies": []string{"no-public-endpoint"}, "targets": []string{urn}}},
		}}}
	}
	s.PolicyConfig = config(t, document("urn:pulumi:dev::acme::aws:lambda/functionUrl:FunctionUrl::report"))
	if r := s.Preview(); r.Exit() != 0 || !strings.Contains(r.Text, "[exempted]  no-public-endpoint") {
		t.Errorf("preview with the exception: exit code %d:\n%s", r.Exit(), r.Text)
	}
	if r := s.Up(); r.Exit() != 0 {
		t.Errorf("update with the exception: exit code %d:\n%s", r.Exit(), r.Text)
	}
	s.PolicyConfig = config(t, document("urn:pulumi:dev::acme::aws:lambda/functionUrl:FunctionUrl::other"))
	if r := s.Preview(); r.Exit() != 1 {
		t.Errorf("preview with an exception of something else: exit code %d:\n%s", r.Exit(), r.Text)
	}
}

// TestFolder runs the pack as a folder with PulumiPolicy.yaml, which a language
// host builds.
func TestFolder(t *testing.T) {
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(buildContext(t))
	f.tls = false
	s := enginetest.New(t).Inline("acme", "dev", nil, f.program)
	s.PolicyPack = folder
	if r := s.Preview(); r.Exit() != 1 || !strings.Contains(r.Text, "[mandatory]  tls-only") {
		t.Errorf("exit code %d:\n%s\n%v", r.Exit(), r.Text, r.Err)
	}
}

// TestAnalyze runs the pack on an exported state, without a program.
func TestAnalyze(t *testing.T) {
	e := enginetest.New(t)
	f := newFixture(buildContext(t))
	f.tls = false
	s := e.Inline("acme", "dev", nil, f.program)
	if r := s.Up(); r.Err != nil {
		t.Fatal(r.Err)
	}
	state, err := os.Create(filepath.Join(t.TempDir(), "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Export(state); err != nil {
		t.Fatal(err)
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, exit := e.Command(t.TempDir(), "policy", "analyze", "--file", state.Name(), "--policy-pack", built(t))
	if text := stdout + stderr; exit == 0 || !strings.Contains(text, "tls-only") || strings.Contains(text, "panic") {
		t.Errorf("exit code %d:\n%s", exit, text)
	}
}

// TestWithoutStack asks what `pulumi policy publish` asks, which configures no
// stack: who the pack is and what its policies are.
func TestWithoutStack(t *testing.T) {
	p := &pack{}
	behind, err := startPolicyx(p)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pulumirpc.RegisterAnalyzerServer(server, &front{pack: p, behind: behind})
	go server.Serve(listener)
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := pulumirpc.NewAnalyzerClient(conn)
	if _, err := client.Handshake(ctx, &pulumirpc.AnalyzerHandshakeRequest{EngineAddress: listener.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	info, err := client.GetAnalyzerInfo(ctx, &emptypb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if info.GetName() != policy.Name || info.GetVersion() != policy.Version || len(info.GetPolicies()) != len(policy.All()) {
		t.Errorf("the pack says it is %s %s with %d policies", info.GetName(), info.GetVersion(), len(info.GetPolicies()))
	}
	for _, own := range info.GetPolicies() {
		if own.GetDescription() == "" || own.GetRemediationSteps() == "" || len(own.GetTags()) == 0 {
			t.Errorf("policy %s says too little of itself: %v", own.GetName(), own)
		}
	}
	plugin, err := client.GetPluginInfo(ctx, &emptypb.Empty{})
	if err != nil || plugin.GetVersion() != policy.Version {
		t.Errorf("plugin version %q, error %v", plugin.GetVersion(), err)
	}
}
