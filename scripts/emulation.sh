# Sourced by image.sh and e2e.sh: installs what they run, where that can be done,
# and says what can't. Nothing here fails: the tests skip what is missing, and
# run_tests shows what was skipped and why.

say() { echo "$(basename "$0" .sh): $*" >&2; }

# need PROGRAM PACKAGE: notes the Debian package of a program that is missing.
missing=()
need() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || missing+=("$2"); }

prepare() {
	need mmdebstrap mmdebstrap
	if [ "$(uname -m)" != aarch64 ]; then
		need qemu-aarch64-static qemu-user-static
		need update-binfmts binfmt-support
	fi
	for name in "$@"; do need "${name%%:*}" "${name##*:}"; done
	if [ ${#missing[@]} -gt 0 ]; then
		if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
			say "installing ${missing[*]}"
			apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
				say "apt-get could not install them"
		else
			say "missing, and only root can install it: ${missing[*]}"
		fi
	fi
	if [ "$(uname -m)" != aarch64 ] && [ "$(id -u)" = 0 ]; then
		[ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc ||
			say "binfmt_misc can't be mounted"
		[ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || update-binfmts --enable qemu-aarch64 ||
			say "qemu-aarch64 can't be registered"
	fi
}

# run_tests ARGS: go test, with the skipped tests and their reasons at the end.
run_tests() {
	local log status=0
	log=$(mktemp)
	go test -count=1 -p 1 -v "$@" 2>&1 | tee "$log" | grep -vE '^(=== (RUN|PAUSE|CONT|NAME))' || status=1
	local skipped
	skipped=$(grep -c -- '^ *--- SKIP' "$log" || true)
	echo
	if [ "$skipped" -gt 0 ]; then
		echo "$skipped skipped on this machine:"
		# The reason is the line after, or the one before for a subtest.
		grep -B1 -A1 -- '^ *--- SKIP' "$log" | grep -v -- '^--$' | sed 's/^/  /'
	else
		echo "nothing skipped"
	fi
	rm -f "$log"
	return $status
}
