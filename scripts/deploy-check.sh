#!/usr/bin/env bash
# Checks deploy/ without Docker and without a cluster.
#
# scripts/deploy-check.sh                                              expressions are run on telemetry in which everything happens
# scripts/deploy-check.sh --coordinator HOST:PORT --agent HOST:PORT    they are run on these processes (more options: tests/deploy/expressions.py)
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

# Unpacked, not installed: the package would start a service.
tools=$PWD/target/deploy-tools
export PATH=$tools/usr/bin:$PATH
if ! command -v promtool >/dev/null || ! command -v prometheus >/dev/null; then
    say "fetching prometheus (apt-get download)"
    mkdir -p "$tools"
    (cd "$tools" && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb .) ||
        die "prometheus could not be fetched" "Install it with this system's package manager (after apt-get update, on Debian)."
fi

missing=()
command -v yamllint >/dev/null || missing+=(yamllint)
command -v systemd-analyze >/dev/null || missing+=(systemd)
if [[ ${#missing[@]} -gt 0 ]]; then
    command -v apt-get >/dev/null || die "missing: ${missing[*]} (Debian's names), and there is no apt-get" "Install them with this system's package manager."
    sudo=()
    if [[ $(id -u) -ne 0 ]]; then
        command -v sudo >/dev/null || die "missing: ${missing[*]}" "Run as root: apt-get install ${missing[*]}"
        sudo=(sudo)
    fi
    say "installing ${missing[*]} (apt-get)"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
# The one that yamllint brought PyYAML to.
python=/usr/bin/python3
"$python" -c 'import yaml' 2>/dev/null || python=python3

work=$(mktemp -d)
telemetry_pid=
finish() {
    [[ -z $telemetry_pid ]] || kill "$telemetry_pid" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

say '== Prometheus: configuration, rules, tests of every alert'
promtool check config deploy/prometheus/prometheus.yml >"$work/config" || { cat "$work/config"; exit 1; }
promtool check rules --lint=all --lint-fatal deploy/prometheus/alerts.yml >"$work/rules" || { cat "$work/rules"; exit 1; }
(cd deploy/prometheus && promtool test rules alerts_test.yml >"$work/tests") || { cat "$work/tests"; exit 1; }

say '== files against each other'
yamllint --strict -c tests/deploy/yamllint.yaml deploy
"$python" deploy/grafana/build.py --check
"$python" deploy/kubernetes/build.py --check
"$python" tests/deploy/static.py
bash -n deploy/compose-secrets.sh

say '== systemd units'
# In a root of their own, where the program that they start exists.
mkdir -p "$work/root/etc/systemd/system" "$work/root/usr/local/bin" "$work/root/usr/lib/systemd"
cp -r /usr/lib/systemd/system "$work/root/usr/lib/systemd/"
cp deploy/systemd/*.service "$work/root/etc/systemd/system/"
install -m 755 /bin/true "$work/root/usr/local/bin/kernelopt"
systemd-analyze verify --root="$work/root" kernelopt-coordinator.service kernelopt-agent@gpu.service 2>"$work/units" || true
if [[ -s $work/units ]]; then
    cat "$work/units"
    exit 1
fi
# Exposure from 0 to 100; 25 is 2.5 of 10.
for unit in deploy/systemd/*.service; do
    systemd-analyze security --offline=true --threshold=25 "$unit" >"$work/security" 2>&1 || { cat "$work/security"; exit 1; }
done

say '== expressions against a live Prometheus'
processes=("$@")
if [[ ${#processes[@]} -eq 0 ]]; then
    cargo build --quiet --locked -p kernelopt-shared --example telemetry
    "${CARGO_TARGET_DIR:-target}/debug/examples/telemetry" 127.0.0.1:0 127.0.0.1:0 >"$work/addresses" &
    telemetry_pid=$!
    for _ in {1..50}; do
        [[ $(wc -l <"$work/addresses") -lt 2 ]] || break
        sleep 0.1
    done
    mapfile -t addresses <"$work/addresses"
    processes=(--coordinator "${addresses[0]}" --agent "${addresses[1]}")
fi
"$python" tests/deploy/expressions.py "${processes[@]}"
