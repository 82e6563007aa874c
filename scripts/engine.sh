#!/usr/bin/env bash
# Builds the Pulumi command line from the module that tools/go.mod pins into the
# folder of tools, unless it is there in that version. It is large: the first build
# takes many minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

module=github.com/pulumi/pulumi/pkg/v3
version=$(go list -C tools -m -f '{{.Version}}' $module)
dir=${SWARM_TOOLS_DIR:-$PWD/.cache/tools}
if [ -x "$dir/pulumi" ] && go version -m "$dir/pulumi" | grep -q "^	mod	$module	$version	"; then
	exit 0
fi

echo "engine: building Pulumi $version, once; this takes a while" >&2
mkdir -p "$dir"
fresh=$dir/pulumi.$$.new
trap 'rm -f "$fresh"' EXIT
# Without its version the command line refuses what the Automation API asks.
go build -C tools -trimpath \
	-ldflags "-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=${version#v}" \
	-o "$fresh" $module/cmd/pulumi
mv "$fresh" "$dir/pulumi"
