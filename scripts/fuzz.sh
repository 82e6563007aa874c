#!/usr/bin/env bash
# Fuzzes every fuzz test for the time given, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
for file in $(git grep -l '^func Fuzz' -- '*_test.go'); do
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "== $name in $(dirname "$file")"
		go test "./$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "${1:-30s}"
	done
done
