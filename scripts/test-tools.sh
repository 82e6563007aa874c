#!/usr/bin/env bash
# Makes .cache/venv with the Python packages that tests use, pinned and checked
# by hash. What is there and right is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "test-tools: $*" >&2; }
fail() { echo "test-tools: $*" >&2; exit 1; }

venv=.cache/venv
requirements=scripts/test-requirements.txt
cmp -s "$requirements" "$venv/requirements.txt" && "$venv/bin/python" -c 'import duckdb' 2>/dev/null && exit 0

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or later is needed for tests"
if ! python3 -c 'import ensurepip' 2>/dev/null; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		say "installing python3-venv"
		apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
	else
		fail "python3 has no venv: apt-get install python3-venv, or the like"
	fi
fi
say "fetching $(sed -n 's/^\([a-z0-9-]*==[0-9.]*\).*/\1/p' "$requirements" | tr '\n' ' ')for tests"
rm -rf "$venv"
mkdir -p .cache
python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes -r "$requirements" >&2
cp "$requirements" "$venv/requirements.txt"
