#!/usr/bin/env bash
# Builds the worker image for ARM64 and x86-64 with a Docker daemon of its own and
# without any registry, runs it read-only, breaks it, pushes it to a registry on
# the loopback address, and checks what Lambda would get. See docs/image.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/emulation.sh

prepare dockerd:docker.io runc:runc docker-registry:docker-registry
scripts/setup.sh
SWARM_IMAGE_TESTS=1 run_tests -timeout 40m -run 'TestImage' ./runtime/image
