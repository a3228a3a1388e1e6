#!/usr/bin/env bash
# What failed beside everything else is run once more, alone: usage CACHE PYTEST...
# A false claim fails again; one that only a busy machine broke is named and passes.
# More than a few at once are no accident, and stay failed. What is repeated is also
# written to build/again.log, where it can be counted: each line is a test to mend.
set -euo pipefail
cache=$1
shift
most=3
list="$cache/v/cache/lastfailed"
failed=$([ -f "$list" ] && grep -c '": true' "$list" || true)
if [ "${failed:-0}" -lt 1 ] || [ "$failed" -gt "$most" ]; then
	exit 1
fi
echo "FAILED ONCE, run again alone (mend it, though it pass):"
grep '": true' "$list"
build="$(dirname "$0")/../build"
mkdir -p "$build"
sed -n "s/^ *\"\(.*\)\": true,\{0,1\}\$/$(date -u +%Y-%m-%dT%H:%M:%SZ) \1/p" "$list" \
	>>"$build/again.log"
exec "$@" -o cache_dir="$cache" --last-failed --last-failed-no-failures none
