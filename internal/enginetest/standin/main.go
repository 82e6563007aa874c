// Command standin is a Pulumi provider that stands in for pulumi-resource-aws
// and pulumi-resource-docker in tests, by the name it is started under. It has
// no cloud behind it. It refuses what the services are known to refuse, with
// all faults of a resource at once, and answers with outputs of the shapes that
// the services give.
//
// The environment steers it: STANDIN_DIR is a folder for the trace of calls
// (trace.jsonl) and for what the two providers must know of each other,
// STANDIN_QUOTAS a JSON object with values of Service Quotas, by
// "service/code", or "denied" for all, STANDIN_PROGRAM_DIR the folder that
// relative paths start from.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/provider"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

//go:generate go run ./schemagen

// versions are those of the SDKs in go.mod: the engine asks for exactly these.
var versions = map[string]string{"aws": "6.83.4", "docker": "4.10.0"}

func main() {
	pkg := strings.TrimPrefix(filepath.Base(os.Args[0]), "pulumi-resource-")
	if versions[pkg] == "" {
		fmt.Fprintf(os.Stderr, "standin: started as %q, want pulumi-resource-aws or pulumi-resource-docker\n", os.Args[0])
		os.Exit(2)
	}
	err := provider.Main(pkg, func(*provider.HostClient) (pulumirpc.ResourceProviderServer, error) {
		return &standin{pkg: pkg, dir: os.Getenv("STANDIN_DIR")}, nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}
