# Sourced by the other scripts: words, and the Python to build on.

# An error says what to do; the code is that of docs/exit-codes.md for a machine that lacks something.
die() {
    printf 'error: %s\n' "$1" >&2
    [[ $# -lt 2 ]] || printf '       %s\n' "$2" >&2
    exit 4
}

say() { printf '%s\n' "$*" >&2; }

# The first interpreter that torch 2.11 has wheels for; $PYTHON names another.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}
