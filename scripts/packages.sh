#!/usr/bin/env bash
# Checks the tools that the build needs and installs those that are missing and that Debian has. Quick when none is.
#
# scripts/packages.sh [servers]: with the servers that tests start for themselves, RabbitMQ and Redis. They are installed as programs, not
# as services: none is started, now or at boot, and one that this machine already runs is left as it is.
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
services=()
if [[ ${1:-} == servers ]]; then
    # Where Debian has them: sbin is not in everyone's path.
    [[ -x /usr/sbin/rabbitmq-server ]] || { missing+=(rabbitmq-server) && services+=(rabbitmq-server); }
    command -v epmd >/dev/null || services+=(epmd.socket epmd.service)
    command -v redis-server >/dev/null || { missing+=(redis-server) && services+=(redis-server); }
fi
[[ ${#missing[@]} -gt 0 ]] || exit 0

command -v apt-get >/dev/null || die "missing: ${missing[*]} (Debian's names), and there is no apt-get" "Install them with this system's package manager, then run make again."
sudo=()
if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || die "missing: ${missing[*]}" "Run as root: apt-get install ${missing[*]}"
    sudo=(sudo)
fi
# Packages of servers start them. Each asks policy-rc.d first (Debian Policy 9.3.3.1), where there is one: 101 is "not allowed". Containers
# come with one that says so. On a host there is none as a rule, so one is there while we install; a host's own is kept, whatever it says.
policy=/usr/sbin/policy-rc.d
if [[ ${#services[@]} -gt 0 && ! -e $policy ]]; then
    trap '"${sudo[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" install -m 755 /dev/stdin "$policy"
fi
say "installing ${missing[*]} (apt-get)"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
# Nor at the next boot; upgrades keep to that. A container has no systemd and needs none of it.
if [[ ${#services[@]} -gt 0 ]] && command -v systemctl >/dev/null; then
    "${sudo[@]}" systemctl --quiet disable "${services[@]}" 2>/dev/null || say "systemctl could not disable ${services[*]}: they may start at the next boot"
fi
find_python >/dev/null || die "this system has no Python from 3.11 to 3.13" "Install one, then run make with PYTHON=/path/to/it."
