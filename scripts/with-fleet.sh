#!/usr/bin/env bash
# Runs a command while a fleet runs here: private RabbitMQ and Redis, a coordinator with a token, an agent on the processor, and a job.
# The command finds KERNELOPT_SERVER and KERNELOPT_TOKEN (an operator's), FLEET_COORDINATOR and FLEET_AGENT (HOST:PORT of their metrics),
# FLEET_JOB (the job's name), FLEET_BUNDLE (the digest of its bundle). With FLEET_BUSY=1 more jobs follow the first. Everything ends with it.
#
# scripts/with-fleet.sh COMMAND [ARGUMENT...]    PROFILE=release takes the release build
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
[[ $# -gt 0 ]] || die "no command" "scripts/with-fleet.sh COMMAND [ARGUMENT...]"

target=${CARGO_TARGET_DIR:-target} profile=${PROFILE:-debug}
options=(--locked --quiet)
[[ $profile == debug ]] || options+=(--profile "$profile")
cargo build "${options[@]}" -p kernelopt-cli -p kernelopt-test-servers
export KERNELOPT_PYTHON=${KERNELOPT_PYTHON:-$PWD/.venv/bin/python} PYTHONPATH=$PWD/python${PYTHONPATH:+:$PYTHONPATH}
kernelopt=$PWD/$target/$profile/kernelopt

work=$(mktemp -d)
pids=()
finish() {
    local code=$?
    [[ $code -eq 0 ]] || tail -n 20 "$work"/*.log >&2
    # A client that is waited for outlives the shell that waits.
    [[ -z ${busy:-} ]] || kill "$busy" $(ps -o pid= --ppid "$busy") 2>/dev/null || true
    # Last started first: nobody is left to wait for a server that is gone.
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        kill "${pids[$i]}" 2>/dev/null || true
        wait "${pids[$i]}" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT

# until_says FILE WORDS PID: waits until a process has said something.
until_says() {
    for _ in {1..600}; do
        ! grep -q "$2" "$1" 2>/dev/null || return 0
        kill -0 "$3" 2>/dev/null || break
        sleep 0.1
    done
    die "no word of: $2"
}

mkfifo "$work/input"
exec 8<>"$work/input"
"$target/$profile/kernelopt-test-servers" <"$work/input" >"$work/servers" 2>"$work/servers.log" 8>&- &
pids+=($!)
until_says "$work/servers" REDIS "${pids[0]}"
set -a
source "$work/servers"
set +a

free_port() { "$KERNELOPT_PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
token() { head -c 32 /dev/urandom | sha256sum | cut -c1-64; }
KERNELOPT_TOKEN=$(token) agent_token=$(token)
(umask 077 && printf '%s=operator\n%s=agent\n' "$KERNELOPT_TOKEN" "$agent_token" >"$work/tokens")
export KERNELOPT_TOKEN FLEET_COORDINATOR=127.0.0.1:$(free_port) FLEET_AGENT=127.0.0.1:$(free_port)
export KERNELOPT_SERVER=http://$FLEET_COORDINATOR

"$kernelopt" coordinator --listen "$FLEET_COORDINATOR" --data "$work/data" --tokens-file "$work/tokens" 2>"$work/coordinator.log" 8>&- &
pids+=($!)
until_says "$work/coordinator.log" 'the API is at' "${pids[1]}"
KERNELOPT_TOKEN=$agent_token "$kernelopt" agent --device cpu --name gpu1 --metrics "$FLEET_AGENT" --blobs "$KERNELOPT_SERVER/v1/blobs" 2>"$work/agent.log" 8>&- &
pids+=($!)
until_says "$work/agent.log" serving "${pids[2]}"

"$KERNELOPT_PYTHON" -m kernelopt capture tests/fixtures/models.py:layer_norm_one_thread -o "$work/bundle" >"$work/capture.log" 2>&1
"$kernelopt" submit "$work/bundle" --budget 60s --max-candidates 4 --json >"$work/job" 2>"$work/submit.log"
field() { "$KERNELOPT_PYTHON" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/job" "$1"; }
FLEET_JOB=$(field id) FLEET_BUNDLE=$(field bundle)
export FLEET_JOB FLEET_BUNDLE
# All is looked at while something happens: other searches and drills, one after the other.
if [[ -n ${FLEET_BUSY:-} ]]; then
    while "$kernelopt" submit "$work/bundle" --budget 60s --max-candidates 12 --seed "$RANDOM" --wait && "$kernelopt" drill --tasks 50 --wait; do :; done >"$work/busy.log" 2>&1 8>&- &
    busy=$!
    pids+=("$busy")
fi
"$@"
# What the command did to them, they have survived; the agent may have been told to leave.
for pid in "${pids[@]:0:2}"; do
    kill -0 "$pid" 2>/dev/null || die "a process of the fleet did not survive"
done
