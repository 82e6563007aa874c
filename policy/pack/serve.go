package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/briefing-swarm/briefing-swarm/policy"
)

// serve runs the pack's server until the engine ends. The policies are served by
// policyx, and front stands before it for what policyx does not do yet.
func serve(p *pack) error {
	behind, err := startPolicyx(p)
	if err != nil {
		return err
	}
	cancel := make(chan bool)
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: cancel,
		Init: func(server *grpc.Server) error {
			pulumirpc.RegisterAnalyzerServer(server, &front{pack: p, behind: behind})
			return nil
		},
	})
	if err != nil {
		return err
	}
	// The engine gives its address. A pack must not outlive an engine that was
	// killed.
	if len(os.Args) > 1 {
		if err := rpcutil.Healthcheck(context.Background(), os.Args[len(os.Args)-1], time.Minute, func() { close(cancel) }); err != nil {
			return err
		}
	}
	fmt.Println(handle.Port) // the engine reads it
	return <-handle.Done
}

// startPolicyx starts policyx's own server. It tells its port on the standard
// output alone, which is lent to it until then.
func startPolicyx(p *pack) (pulumirpc.AnalyzerClient, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdout := os.Stdout
	os.Stdout = writer
	ended := make(chan error, 1)
	go func() {
		ended <- policyx.Main(p.policies)
		writer.Close()
	}()
	line, err := bufio.NewReader(reader).ReadString('\n')
	os.Stdout = stdout
	if err != nil {
		return nil, errors.Join(err, <-ended)
	}
	conn, err := grpc.NewClient("127.0.0.1:"+strings.TrimSpace(line),
		grpc.WithTransportCredentials(insecure.NewCredentials()), rpcutil.GrpcChannelOptions())
	if err != nil {
		return nil, err
	}
	return pulumirpc.NewAnalyzerClient(conn), nil
}

// front passes the engine's calls on to policyx, and adds what that lacks: it
// answers before a stack is configured (policy publish, policy analyze), refuses
// configuration that would have no effect, hands configuration to stack policies
// and components' inputs to all, and says what is not known yet.
type front struct {
	pulumirpc.UnimplementedAnalyzerServer

	pack   *pack
	behind pulumirpc.AnalyzerClient
}

func (f *front) Handshake(ctx context.Context, r *pulumirpc.AnalyzerHandshakeRequest) (*pulumirpc.AnalyzerHandshakeResponse, error) {
	response, err := f.behind.Handshake(ctx, r)
	if err != nil {
		return nil, err
	}
	// Without a stack, policyx has no policies to tell about and ends.
	_, err = f.ConfigureStack(ctx, &pulumirpc.AnalyzerStackConfigureRequest{})
	return response, err
}

func (f *front) ConfigureStack(ctx context.Context, r *pulumirpc.AnalyzerStackConfigureRequest) (*pulumirpc.AnalyzerStackConfigureResponse, error) {
	config := map[string]string{}
	for key, value := range r.GetConfig() {
		if name, ok := strings.CutPrefix(key, r.GetProject()+":"); ok && !slices.Contains(r.GetConfigSecretKeys(), key) {
			config[name] = value
		}
	}
	f.pack.mu.Lock()
	f.pack.stack, f.pack.inputs, f.pack.unknown = config, map[string]property.Map{}, map[string][]string{}
	f.pack.mu.Unlock()
	return f.behind.ConfigureStack(ctx, r)
}

// Configure refuses names that the pack does not have: the engine passes them
// over.
func (f *front) Configure(ctx context.Context, r *pulumirpc.ConfigureAnalyzerRequest) (*emptypb.Empty, error) {
	settings := map[string]map[string]any{}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(r.GetPolicyConfig())) {
		if name == "all" {
			continue // the engine's word for every policy
		}
		own, ok := policy.Lookup(name)
		if !ok {
			var names []string
			for _, p := range policy.All() {
				names = append(names, p.Name)
			}
			faults = append(faults, fmt.Sprintf("there is no policy %q; the pack has %s", name, strings.Join(names, ", ")))
			continue
		}
		settings[name] = r.GetPolicyConfig()[name].GetProperties().AsMap()
		for _, property := range slices.Sorted(maps.Keys(settings[name])) {
			if !slices.ContainsFunc(own.Settings, func(s policy.Setting) bool { return s.Name == property }) {
				var names []string
				for _, s := range own.Settings {
					names = append(names, s.Name)
				}
				has := "it has none but enforcementLevel"
				if len(names) > 0 {
					has = "it has " + strings.Join(names, ", ")
				}
				faults = append(faults, fmt.Sprintf("policy %s has no property %q; %s", name, property, has))
			}
		}
	}
	if len(faults) > 0 {
		return nil, status.Error(codes.InvalidArgument, "policy configuration: "+strings.Join(faults, "\n"))
	}
	f.pack.mu.Lock()
	f.pack.settings = settings
	f.pack.mu.Unlock()
	return f.behind.Configure(ctx, r)
}

// GetAnalyzerInfo adds what policyx has no fields for.
func (f *front) GetAnalyzerInfo(ctx context.Context, r *emptypb.Empty) (*pulumirpc.AnalyzerInfo, error) {
	info, err := f.behind.GetAnalyzerInfo(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, p := range info.GetPolicies() {
		if own, ok := policy.Lookup(p.GetName()); ok {
			p.RemediationSteps = own.Remedy
			p.Tags = []string{string(own.Group)}
		}
	}
	return info, nil
}

// Analyze keeps a component's inputs: at the end the engine shows its outputs
// only.
func (f *front) Analyze(ctx context.Context, r *pulumirpc.AnalyzeRequest) (*pulumirpc.AnalyzeResponse, error) {
	if provider := r.GetProvider(); provider == nil {
		inputs, err := plugin.UnmarshalProperties(r.GetProperties(), plugin.MarshalOptions{
			KeepUnknowns: true, KeepSecrets: true, KeepResources: true, KeepOutputValues: true,
		})
		if err != nil {
			return nil, err
		}
		f.pack.mu.Lock()
		f.pack.inputs[r.GetUrn()] = resource.FromResourcePropertyMap(inputs)
		f.pack.mu.Unlock()
	}
	return f.behind.Analyze(ctx, r)
}

// AnalyzeStack adds one line for each policy that could not see everything.
func (f *front) AnalyzeStack(ctx context.Context, r *pulumirpc.AnalyzeStackRequest) (*pulumirpc.AnalyzeResponse, error) {
	response, err := f.behind.AnalyzeStack(ctx, r)
	if err != nil {
		return nil, err
	}
	f.pack.mu.Lock()
	defer f.pack.mu.Unlock()
	for _, own := range policy.All() {
		text := policy.Summary(f.pack.unknown[own.Name])
		if text == "" {
			continue
		}
		response.Diagnostics = append(response.Diagnostics, &pulumirpc.AnalyzeDiagnostic{
			PolicyName: own.Name, PolicyPackName: policy.Name, PolicyPackVersion: policy.Version,
			Description: own.Description, Message: own.Description + "\n" + text,
			EnforcementLevel: pulumirpc.EnforcementLevel_ADVISORY,
		})
	}
	return response, nil
}

// Remediate does nothing: no policy changes a resource.
func (f *front) Remediate(context.Context, *pulumirpc.AnalyzeRequest) (*pulumirpc.RemediateResponse, error) {
	return &pulumirpc.RemediateResponse{}, nil
}

func (f *front) GetPluginInfo(ctx context.Context, r *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return f.behind.GetPluginInfo(ctx, r)
}

func (f *front) Cancel(ctx context.Context, r *emptypb.Empty) (*emptypb.Empty, error) {
	return f.behind.Cancel(ctx, r)
}
