#!/usr/bin/env bash
# Checks the tools that the build needs and installs those that are missing and that Debian has. Quick when none is.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

command -v cargo >/dev/null || die "cargo was not found" \
    "Install Rust with rustup (https://rustup.rs); Debian 12's own cargo is too old. rust-toolchain.toml then picks the version."

missing=()
command -v "${CXX:-g++}" >/dev/null || missing+=(g++)
command -v flock >/dev/null || missing+=(util-linux)
if python=$(find_python); then
    # Headers: what the compiler generates for a model includes Python.h.
    has_headers='import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
    if [[ $(readlink -f "$python") == /usr/bin/* ]]; then
        "$python" -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
        "$python" -c "$has_headers" || missing+=(python3-dev)
    else
        "$python" -c 'import venv, ensurepip' 2>/dev/null || die "$python cannot make virtual environments" "Install its venv module, or name another Python: make PYTHON=..."
        "$python" -c "$has_headers" || die "$python has no headers (Python.h)" "Install its development files, or name another Python: make PYTHON=..."
    fi
else
    [[ -z ${PYTHON:-} ]] || die "$PYTHON is no Python from 3.11 to 3.13" "Name another one, or leave PYTHON out."
    missing+=(python3 python3-venv python3-dev)
fi
[[ ${#missing[@]} -gt 0 ]] || exit 0

command -v apt-get >/dev/null || die "missing: ${missing[*]} (Debian's names), and there is no apt-get" "Install them with this system's package manager, then run make again."
sudo=()
if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || die "missing: ${missing[*]}" "Run as root: apt-get install ${missing[*]}"
    sudo=(sudo)
fi
say "installing ${missing[*]} (apt-get)"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
find_python >/dev/null || die "this system has no Python from 3.11 to 3.13" "Install one, then run make with PYTHON=/path/to/it."
