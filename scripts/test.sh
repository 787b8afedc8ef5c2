#!/usr/bin/env bash
# All tests, cheap ones first. torch installs in the background while cargo builds; only what needs it waits for it.
#
# scripts/test.sh [STEP...] runs the named steps only: packages fmt clippy rust doc deploy peers torch lint python triton end-to-end
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

root=$PWD
venv_log=target/venv.log
names=() seconds=()
only=("$@")

asked() {
    local name
    [[ ${#only[@]} -gt 0 ]] || return 0
    for name in "$@"; do [[ " ${only[*]} " != *" $name "* ]] || return 0; done
    return 1
}

# step NAME COMMAND...: runs it unless other steps were asked for, and keeps its time. Not called in a condition, so that set -e holds.
step() {
    local name=$1 started=$SECONDS
    shift
    asked "$name" || return 0
    printf '\n== %s: %s\n' "$name" "$*"
    current=$name
    "$@"
    current=
    names+=("$name") seconds+=($((SECONDS - started)))
}

finish() {
    local code=$? i
    printf '\n'
    for i in "${!names[@]}"; do printf '%5d s  %s\n' "${seconds[$i]}" "${names[$i]}"; done
    printf '%5d s  in all\n' "$SECONDS"
    [[ -z ${venv_pid:-} ]] || kill "$venv_pid" 2>/dev/null || true
    [[ -z ${peers_pid:-} ]] || kill "$peers_pid" 2>/dev/null || true
    if [[ $code -ne 0 ]]; then
        printf 'FAILED in step %s\n' "${current:-start}"
        [[ ! -s $venv_log ]] || tail -5 "$venv_log"
    fi
    exit "$code"
}

# Without nextest cargo's own runner does. Further words go to the runner.
rust_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --no-tests pass "$@"
    else
        cargo test --quiet --lib --bins --tests "$@"
    fi
}

wait_for_torch() {
    [[ -n ${venv_pid:-} ]] || return 0
    wait "$venv_pid" || { cat "$venv_log" >&2; return 4; }
    venv_pid=
}

# Kernels for a GPU that need not be here: compiled for one by the builders, and run in Triton's interpreter. A Python without triton, which
# the builders' tests pass over elsewhere, is an error here.
triton_tests() {
    wait_for_torch
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --locked -p kernelopt-coordinator --test triton --run-ignored only
        KERNELOPT_REQUIRE_TRITON=1 cargo nextest run --locked -p kernelopt-gpu-agent --test cuda_build
    else
        cargo test --quiet --locked -p kernelopt-coordinator --test triton -- --ignored
        KERNELOPT_REQUIRE_TRITON=1 cargo test --quiet --locked -p kernelopt-gpu-agent --test cuda_build
    fi
}

python_tests() { wait_for_torch && (cd python && "$root/.venv/bin/python" -m pytest -q); }

# Real searches: optimised code, and one test at a time, since one measures.
end_to_end() {
    wait_for_torch
    cargo build --release --locked -p kernelopt-cli
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --no-tests pass --release --locked -p kernelopt-tests --test-threads 1
    else
        cargo test --quiet --release --locked -p kernelopt-tests -- --test-threads 1
    fi
}

# What the background has not installed yet, run.sh waits for, or installs itself and says why it cannot.
peers() { cargo build --quiet --locked -p kernelopt-cli && tests/peers/run.sh target/debug/kernelopt; }

# The rules are named, so that a new ruff finds what the old one did. Captures are the compiler's own text, and some candidates are
# planted to be wrong.
python_lint() { wait_for_torch && .venv/bin/python -m ruff check --no-cache --select E4,E7,E9,F --extend-exclude captures,bundles,planted python examples tests; }

mkdir -p target
trap finish EXIT
step packages scripts/packages.sh servers
if asked torch lint python triton end-to-end; then
    scripts/venv.sh >"$venv_log" 2>&1 &
    venv_pid=$!
fi
if asked peers; then
    tests/peers/run.sh --install >/dev/null 2>&1 &
    peers_pid=$!
fi
export KERNELOPT_PYTHON=$root/.venv/bin/python PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH}

step fmt cargo fmt --all --check
step clippy cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step rust rust_tests --locked --workspace --exclude kernelopt-tests
step doc cargo test --quiet --doc --locked --workspace
step deploy scripts/deploy-check.sh
step peers peers
step torch wait_for_torch
step lint python_lint
step python python_tests
step triton triton_tests
step end-to-end end_to_end
