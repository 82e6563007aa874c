#!/usr/bin/env bash
# Makes .cache/states with what judges and runs the state machines in tests: two
# static judges (npm) and two interpreters, LocalStack's and MiniStack's (PyPI),
# all pinned by hash in scripts/states/. What is there and whole is left alone.
#
# NAME.txt comes from NAME.in by "uv pip compile --generate-hashes --no-header
# --universal --python-version 3.11"; without tailer, which has no wheel and
# which LocalStack needs for its own command only.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "states: $*" >&2; exit 1; }

pins=scripts/states
to=.cache/states
want=$(cat "$pins"/*.txt "$pins/package-lock.json" | sha256sum | cut -d' ' -f1)
[ "$(cat "$to/VERSION" 2>/dev/null)" = "$want" ] && exit 0
command -v python3 >/dev/null || fail "python3 is missing"
command -v npm >/dev/null || fail "npm is missing"
echo "states: installing judges and interpreters of state machines for tests" >&2
rm -rf "$to"
mkdir -p "$to"
cp "$pins/package.json" "$pins/package-lock.json" "$to/"
npm ci --prefix "$to" --ignore-scripts --no-fund --no-audit --loglevel=error >&2
for name in localstack ministack; do
	python3 -m venv "$to/$name" || fail "python3 has no venv: apt-get install python3-venv, or the like"
	"$to/$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: -r "$pins/$name.txt" >&2
done
echo "$want" >"$to/VERSION"
