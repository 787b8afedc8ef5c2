#!/usr/bin/env bash
# Makes .venv, the Python with torch that capture, profile and the model gate run in.
#
# The environment itself lies in the user's cache, named by a hash of what it is made of, so that a second clone links it and is
# ready at once. A half-made one, left by a kill or a full disk, is made anew.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

python=$(find_python) || die "no Python from 3.11 to 3.13 was found" "Run scripts/packages.sh first."
key=$({ cat scripts/requirements.txt; "$python" -VV; readlink -f "$python"; uname -m; } | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kernelopt
venv=$cache/venv-$key
mkdir -p "$cache" 2>/dev/null && [[ -w $cache ]] || die "$cache cannot be written" "Set XDG_CACHE_HOME to a folder that can."

[[ -L .venv || ! -e .venv ]] || die ".venv is a folder that this script did not make" "Move it away."

exec 9>"$venv.lock"
flock 9
if [[ ! -f $venv/complete ]]; then
    need_kib=$((9 << 20))
    free_kib=$(df --output=avail -k "$cache" | tail -1)
    ((free_kib > need_kib)) || die "$cache: $((free_kib >> 20)) GiB free, torch needs $((need_kib >> 20))" "Free some space, or set XDG_CACHE_HOME to another disk."
    say "installing torch into $venv (once per machine; 5 GB, some minutes)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    quiet=--quiet
    [[ ! -t 2 ]] || quiet=
    "$venv/bin/python" -m pip install $quiet --disable-pip-version-check --requirement scripts/requirements.txt >&2 ||
        die "pip could not install scripts/requirements.txt" "Its own words are above; a second run goes on from what was downloaded."
    "$venv/bin/python" -c 'import torch' || die "torch was installed but cannot be imported"
    touch "$venv/complete"
fi
ln -sfn "$venv" .venv
