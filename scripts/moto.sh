#!/usr/bin/env bash
# Makes .cache/moto, a Python environment with the moto server that the AWS
# tests talk to. Packages are pinned by hash; what is there and whole is left
# alone. scripts/moto.txt comes from scripts/moto.in by
# "uv pip compile --generate-hashes --no-header".
set -euo pipefail
cd "$(dirname "$0")/.."

want=$(sha256sum scripts/moto.txt | cut -d' ' -f1)
env=.cache/moto
[ "$(cat "$env/VERSION" 2>/dev/null)" = "$want" ] && exit 0
command -v python3 >/dev/null || { echo "moto: python3 is missing" >&2; exit 1; }
echo "moto: installing the moto server for tests" >&2
rm -rf "$env"
mkdir -p .cache
python3 -m venv "$env" || { echo "moto: python3 has no venv: apt-get install python3-venv, or the like" >&2; exit 1; }
"$env/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r scripts/moto.txt >&2
echo "$want" >"$env/VERSION"
