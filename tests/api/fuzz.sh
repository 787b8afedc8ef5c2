#!/usr/bin/env bash
# Fuzzes the HTTP API by its own OpenAPI document (schemathesis): the real server over a desk in memory, whose made-up devices finish every
# job; or, as `scripts/with-fleet.sh tests/api/fuzz.sh ...`, a coordinator at work on its fleet. No answer may be a server error, have a status or a body that the document does not know, or take what it calls malformed.
#
# tests/api/fuzz.sh [EXAMPLES [SEED]]    examples of each operation, 100 unless said; the seed is printed, and makes a run come again
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/common.sh

examples=${1:-100} seed=${2:-$RANDOM}
python=$(find_python) || die "no Python from 3.11 to 3.13 was found" "Run scripts/packages.sh first."
key=$({ cat tests/api/requirements.txt; "$python" -VV; } | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kernelopt
venv=$cache/venv-api-$key
mkdir -p "$cache"
exec 9>"$venv.lock"
flock 9
if [[ ! -f $venv/complete ]]; then
    say "installing schemathesis into $venv (once per machine)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement tests/api/requirements.txt >&2 ||
        die "pip could not install tests/api/requirements.txt"
    touch "$venv/complete"
fi
flock -u 9

work=$(mktemp -d)
if [[ -n ${FLEET_JOB:-} ]]; then
    url=$KERNELOPT_SERVER bundle=$FLEET_BUNDLE token=$KERNELOPT_TOKEN desk=
    export KERNELOPT_FUZZ_JOB=$FLEET_JOB
    trap 'rm -rf "$work"' EXIT
else
    cargo build --locked --quiet -p kernelopt-test-api
    mkfifo "$work/input"
    # The desk ends when its input does, whatever becomes of this script.
    exec 8<>"$work/input"
    target/debug/desk-in-memory <"$work/input" >"$work/address" 2>"$work/log" 8>&- &
    desk=$!
    end() {
        exec 8>&-
        kill "$desk" 2>/dev/null || true
        wait "$desk" 2>/dev/null || true
        rm -rf "$work"
    }
    trap end EXIT
    for _ in {1..100}; do
        [[ $(wc -l <"$work/address") -lt 2 ]] || break
        kill -0 "$desk" 2>/dev/null || { cat "$work/log" >&2; die "the desk did not start"; }
        sleep 0.1
    done
    { read -r url; read -r bundle; } <"$work/address"
    token=operator-0123456789abcdef
fi

# It keeps a folder where it is started. A cancelled job can still be looked at, which is what use_after_free minds.
export SCHEMATHESIS_HOOKS=hooks PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/tests/api KERNELOPT_FUZZ_BUNDLE=$bundle
cd "$work"
"$venv/bin/schemathesis" run "$url/openapi.json" --header "Authorization: Bearer $token" \
    --checks all --exclude-checks use_after_free --max-examples "$examples" --seed "$seed" \
    --request-timeout 20 --suppress-health-check all --no-color
[[ -z $desk ]] || kill -0 "$desk" || die "the desk did not survive"
