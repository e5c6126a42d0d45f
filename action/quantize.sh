#!/bin/sh
# Installs gq, quantizes a checkpoint, and holds the file to an accuracy gate. The exit status is gq's: 0 the gate is
# met, 3 it is not met and there is no file, 1 or 2 something failed. action.yml sets these variables on GitHub:
#
#   GQ_MODEL      the checkpoint
#   GQ_GATE       a file of conditions, or default (the default)
#   GQ_FLAGS      further flags of gq quantize, divided at spaces
#   GQ_DIRECTORY  directory for file and reports (default: quantized)
#   GQ_FILE       name of the file (default: model.gqf)
#   GQ_VERSION    release to install (default: the gq on the path)
#   GQ_URL        directory of the release's archives (default: the release's page on GitHub)
set -euf
: "${GQ_MODEL:?set GQ_MODEL to the checkpoint}"
directory=${GQ_DIRECTORY:-quantized}
file=$directory/${GQ_FILE:-model.gqf}

fail() {
	echo "quantize.sh: $*" >&2
	exit 1
}

sha256() {
	if command -v sha256sum >/dev/null; then
		sha256sum "$@"
	else
		shasum -a 256 "$@" # macOS
	fi
}

# Puts the gq of a release on the path, for later steps of a job too.
install_release() {
	case $(uname -s) in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	*) fail "expected Linux or macOS, found $(uname -s): install gq before, and leave GQ_VERSION empty" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) cpu=amd64 ;;
	aarch64 | arm64) cpu=arm64 ;;
	*) fail "expected an x86-64 or arm64 CPU, found $(uname -m): a release has no gq for it" ;;
	esac
	url=${GQ_URL:-https://github.com/lowbit-go/gq/releases/download/v$GQ_VERSION}
	name=gq-$GQ_VERSION-$os-$cpu
	dir=$(mktemp -d "${RUNNER_TEMP:-/tmp}/gq.XXXXXX")
	for part in SHA256SUMS "$name.tar.gz"; do
		curl -fsSL --retry 3 -o "$dir/$part" "$url/$part" || fail "$url/$part: no download"
	done
	(cd "$dir" && awk -v name="$name.tar.gz" '$2 == name' SHA256SUMS | sha256 -c -) ||
		fail "$url/$name.tar.gz is not the file of SHA256SUMS"
	tar xzf "$dir/$name.tar.gz" -C "$dir"
	PATH=$dir/$name:$PATH
	test -z "${GITHUB_PATH:-}" || echo "$dir/$name" >>"$GITHUB_PATH"
}

test -z "${GQ_VERSION:-}" || install_release
gq version
mkdir -p "$directory"
status=0
# The flags are divided here. No pattern among them becomes names of files, because of set -f.
gq quantize "$GQ_MODEL" ${GQ_FLAGS:-} -o "$file" --quiet --gate "${GQ_GATE:-default}" \
	--report "$directory/accuracy.html" --report "$directory/accuracy.md" \
	--report "$directory/accuracy.xml" --report "$directory/accuracy.json" \
	>"$directory/accuracy.txt" || status=$?
sed -n 1,20p "$directory/accuracy.txt" # the gate comes first
if test -n "${GITHUB_STEP_SUMMARY:-}" && test -e "$directory/accuracy.md"; then
	cat "$directory/accuracy.md" >>"$GITHUB_STEP_SUMMARY"
fi
case $status in
0) echo "the gate is met: $file is ready" ;;
3) echo "the gate is not met, there is no $file: see $directory/accuracy.html" >&2 ;;
*) echo "nothing was measured (status $status)" >&2 ;;
esac
exit "$status"
