// Command languagehost is a small pulumi-language-go: it lets the Pulumi CLI run
// programs and plugins written in Go by building and starting them. The official
// host comes with Pulumi's installer only, and this one needs nothing but Go.
//
// It knows two runtime options of Pulumi.yaml and PulumiPolicy.yaml: binary, a
// program that is built already, and buildTarget, where to build to.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/constant"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
)

func main() {
	cancelled := make(chan bool)
	h := &host{}
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: cancelled,
		Init: func(server *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(server, h)
			return nil
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "languagehost:", err)
		os.Exit(1)
	}
	// The engine gives its address, and this process ends with it.
	if len(os.Args) > 1 {
		h.engine = os.Args[len(os.Args)-1]
		err := rpcutil.Healthcheck(context.Background(), h.engine, time.Minute, func() { close(cancelled) })
		if err != nil {
			fmt.Fprintln(os.Stderr, "languagehost:", err)
			os.Exit(1)
		}
	}
	fmt.Println(handle.Port) // the engine reads it
	if err := <-handle.Done; err != nil {
		fmt.Fprintln(os.Stderr, "languagehost:", err)
		os.Exit(1)
	}
}

type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer

	engine string // its address
}

func (h *host) Handshake(_ context.Context, r *pulumirpc.LanguageHandshakeRequest) (*pulumirpc.LanguageHandshakeResponse, error) {
	if address := r.GetEngineAddress(); address != "" {
		h.engine = address
	}
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

func (h *host) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{}, nil
}

// GetRequiredPackages says nothing: providers are found when they are first used.
func (h *host) GetRequiredPackages(context.Context, *pulumirpc.GetRequiredPackagesRequest) (*pulumirpc.GetRequiredPackagesResponse, error) {
	return &pulumirpc.GetRequiredPackagesResponse{}, nil
}

func (h *host) GetRequiredPlugins(context.Context, *pulumirpc.GetRequiredPluginsRequest) (*pulumirpc.GetRequiredPluginsResponse, error) {
	return &pulumirpc.GetRequiredPluginsResponse{}, nil
}

func (h *host) InstallDependencies(_ *pulumirpc.InstallDependenciesRequest, _ grpc.ServerStreamingServer[pulumirpc.InstallDependenciesResponse]) error {
	return nil
}

func (h *host) About(context.Context, *pulumirpc.AboutRequest) (*pulumirpc.AboutResponse, error) {
	return &pulumirpc.AboutResponse{}, nil
}

func (h *host) GetProgramDependencies(context.Context, *pulumirpc.GetProgramDependenciesRequest) (*pulumirpc.GetProgramDependenciesResponse, error) {
	return &pulumirpc.GetProgramDependenciesResponse{}, nil
}

func (h *host) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// Run builds the program and runs it against the engine's monitor.
func (h *host) Run(ctx context.Context, r *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	program, remove, err := build(ctx, r.GetInfo())
	if err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	defer remove()
	config, err := json.Marshal(r.GetConfig())
	if err != nil {
		return nil, err
	}
	secrets, err := json.Marshal(r.GetConfigSecretKeys())
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, r.GetArgs()...)
	cmd.Dir = r.GetPwd()
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // stdout has the port alone
	cmd.Env = append(os.Environ(),
		pulumi.EnvOrganization+"="+r.GetOrganization(),
		pulumi.EnvProject+"="+r.GetProject(),
		pulumi.EnvPulumiRootDirectory+"="+r.GetInfo().GetRootDirectory(),
		pulumi.EnvStack+"="+r.GetStack(),
		pulumi.EnvConfig+"="+string(config),
		pulumi.EnvConfigSecretKeys+"="+string(secrets),
		pulumi.EnvDryRun+"="+strconv.FormatBool(r.GetDryRun()),
		pulumi.EnvParallel+"="+strconv.Itoa(int(r.GetParallel())),
		pulumi.EnvMonitor+"="+r.GetMonitorAddress(),
		pulumi.EnvEngine+"="+h.engine,
	)
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return &pulumirpc.RunResponse{}, nil
	case errors.As(err, &exit) && exit.ExitCode() == constant.ExitStatusLoggedError:
		return &pulumirpc.RunResponse{Bail: true}, nil
	default:
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("run the program: %v", err)}, nil
	}
}

// RunPlugin builds a provider or a policy pack and passes its output on.
func (h *host) RunPlugin(r *pulumirpc.RunPluginRequest, stream grpc.ServerStreamingServer[pulumirpc.RunPluginResponse]) error {
	program, remove, err := build(stream.Context(), r.GetInfo())
	if err != nil {
		return err
	}
	defer remove()
	cmd := exec.CommandContext(stream.Context(), program, r.GetArgs()...)
	cmd.Dir = r.GetPwd()
	cmd.Env = append(os.Environ(), r.GetEnv()...)
	out := make(chan *pulumirpc.RunPluginResponse)
	cmd.Stdout = chunks(func(data []byte) *pulumirpc.RunPluginResponse {
		return &pulumirpc.RunPluginResponse{Output: &pulumirpc.RunPluginResponse_Stdout{Stdout: data}}
	}).to(out)
	cmd.Stderr = chunks(func(data []byte) *pulumirpc.RunPluginResponse {
		return &pulumirpc.RunPluginResponse{Output: &pulumirpc.RunPluginResponse_Stderr{Stderr: data}}
	}).to(out)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the plugin: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		close(out)
	}()
	for message := range out {
		if err := stream.Send(message); err != nil {
			_ = cmd.Process.Kill() // nobody listens any more
			for range out {
			}
			return err
		}
	}
	code := int32(0)
	if err := <-ended; err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return err
		}
		code = int32(exit.ExitCode())
	}
	return stream.Send(&pulumirpc.RunPluginResponse{Output: &pulumirpc.RunPluginResponse_Exitcode{Exitcode: code}})
}

// chunks makes a message of what is written.
type chunks func([]byte) *pulumirpc.RunPluginResponse

func (c chunks) to(out chan<- *pulumirpc.RunPluginResponse) io.Writer { return &chunkWriter{c, out} }

type chunkWriter struct {
	message chunks
	out     chan<- *pulumirpc.RunPluginResponse
}

func (w *chunkWriter) Write(data []byte) (int, error) {
	w.out <- w.message(append([]byte(nil), data...))
	return len(data), nil
}

// build makes the program, unless its options name one that is built.
func build(ctx context.Context, info *pulumirpc.ProgramInfo) (program string, remove func(), err error) {
	nothing := func() {}
	if binary := option(info.GetOptions(), "binary"); binary != "" {
		if !filepath.IsAbs(binary) {
			binary = filepath.Join(info.GetRootDirectory(), binary)
		}
		return binary, nothing, nil
	}
	target := option(info.GetOptions(), "buildTarget")
	remove = nothing
	if target == "" {
		folder, err := os.MkdirTemp("", "languagehost-")
		if err != nil {
			return "", nil, err
		}
		target = filepath.Join(folder, "program")
		remove = func() { os.RemoveAll(folder) }
	} else if !filepath.IsAbs(target) {
		target = filepath.Join(info.GetRootDirectory(), target)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", target, ".")
	cmd.Dir = info.GetProgramDirectory()
	if output, err := cmd.CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("go build: %w\n%s", err, output)
	}
	return target, remove, nil
}

func option(options *structpb.Struct, name string) string {
	return options.GetFields()[name].GetStringValue()
}
