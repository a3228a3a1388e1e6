#!/usr/bin/env bash
# Looks at what Corral is made of: usage TOOLS ENVIRONMENT, both folders of programs.
# Fails on a severe finding in our own code, a licence that does not go with ours, or a
# known fault of a dependency. Advisories are asked for over the network: where they
# cannot be had, that is said, and nothing else is.
set -euo pipefail
tools=$1
environment=$2
mkdir -p build

echo "our own code (bandit, severe findings):"
"$tools/bandit" --quiet --recursive src -lll && echo "  none"

echo "parts list: build/sbom.json (CycloneDX)"
"$tools/cyclonedx-py" requirements requirements.lock --output-reproducible \
	--output-file build/sbom.json

# Everything the lock names; what may be linked to and shipped beside is not listed.
names=$(sed -n 's/^\([A-Za-z0-9._-]*\)\(\[.*\]\)\{0,1\}==.*/\1/p' requirements.lock)
echo "licences: build/licences.txt"
"$tools/pip-licenses" --python="$environment/python" --packages $names --from=mixed \
	--output-file build/licences.txt \
	--partial-match --fail-on "Affero;GNU General Public License;GPL-2.0-only;GPL-3.0"

echo "known faults of dependencies (pip-audit):"
found=build/advisories.txt
if "$tools/pip-audit" --requirement requirements.lock --disable-pip --require-hashes \
	--progress-spinner off >"$found" 2>&1; then
	unknown=$(grep -c "could not be audited" "$found" || true)
	if [ "$unknown" -gt 5 ]; then
		echo "  not looked for: no advisories can be had from here ($unknown unknown)"
	else
		echo "  none"
	fi
elif grep -q "could not be audited\|Connection\|timed out\|resolve" "$found" \
	&& ! grep -q "Fix Versions" "$found"; then
	echo "  not looked for: no advisories can be had from here"
else
	cat "$found"
	exit 1
fi
