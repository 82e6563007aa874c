#!/usr/bin/env bash
# Runs the Lambda program for real without AWS: under the Lambda runtime interface
# emulator with the real model, on this machine's processor and on an emulated
# Graviton2, and as a whole pipeline against moto with every tenth call failing.
# See docs/image.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/emulation.sh

prepare
scripts/setup.sh
scripts/moto.sh
SWARM_E2E=1 run_tests -timeout 40m ./internal/rootfs ./internal/rietest ./internal/pipelinetest
