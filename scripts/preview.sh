#!/usr/bin/env bash
# Shows what `pulumi preview` shows for the dev stack, with its cost review and
# the verdict of the policy pack, without an AWS account: the engine is Pulumi's
# own, AWS and Docker are stand-ins that make nothing. Arguments are passed on to
# pulumi preview. SWARM_CONFIG="key=value …" changes the stack's configuration.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/engine.sh
own=$PWD/.cache/own
tools=${SWARM_TOOLS_DIR:-$PWD/.cache/tools}
mkdir -p "$own"
echo "preview: building the program, the policies and the stand-ins" >&2
go build -o "$own/briefing-swarm" .
go build -o "$own/briefing-swarm-policies" ./policy/pack
go build -o "$own/pulumi-resource-standin" ./internal/enginetest/standin
go build -o "$own/pulumi-language-go" ./internal/enginetest/languagehost

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state" "$work/standin" "$work/project"
plugin() { # kind-name-version, file, program
	mkdir -p "$work/pulumi/plugins/$1"
	ln -s "$3" "$work/pulumi/plugins/$1/$2"
}
# The versions are those that the SDKs in go.mod ask for.
version() { go list -m -f '{{.Version}}' "$1"; }
plugin "resource-aws-$(version github.com/pulumi/pulumi-aws/sdk/v6)" pulumi-resource-aws "$own/pulumi-resource-standin"
plugin "resource-docker-$(version github.com/pulumi/pulumi-docker/sdk/v4)" pulumi-resource-docker "$own/pulumi-resource-standin"
plugin "language-go-$(version github.com/pulumi/pulumi/sdk/v3)" pulumi-language-go "$own/pulumi-language-go"

# A copy, as pulumi writes into Pulumi.dev.yaml; the program is built already.
sed "s|^runtime: go\$|runtime: {name: go, options: {binary: $own/briefing-swarm}}|" Pulumi.yaml >"$work/project/Pulumi.yaml"
cp Pulumi.dev.yaml "$work/project/"
export PULUMI_HOME=$work/pulumi PULUMI_BACKEND_URL=file://$work/state PULUMI_CONFIG_PASSPHRASE=preview \
	PULUMI_SKIP_UPDATE_CHECK=true PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION=true PULUMI_IGNORE_AMBIENT_PLUGINS=true \
	PULUMI_CREDENTIAL_HELPER=none PULUMI_ACCESS_TOKEN='' STANDIN_DIR=$work/standin
cd "$work/project"
"$tools/pulumi" stack init dev >/dev/null
for pair in ${SWARM_CONFIG:-}; do
	"$tools/pulumi" config set --stack dev "${pair%%=*}" "${pair#*=}"
done
"$tools/pulumi" preview --stack dev --non-interactive --policy-pack "$own/briefing-swarm-policies" "$@"
echo "AWS and Docker were stand-ins: nothing was made. docs/deploy.md does it in earnest."
