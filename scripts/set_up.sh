#!/bin/sh
# Makes the virtual environment and installs this project into it: sh scripts/set_up.sh base|dev
# Reads PYTHON (an interpreter; the first of a few names when empty) and VENV (a folder; .venv when empty).
set -eu

group=$1
venv=${VENV:-.venv}
log=$venv/install.log
export PIP_DISABLE_PIP_VERSION_CHECK=1

fail() {
    echo "error: $1" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        version=$("$PYTHON" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) ||
            fail "PYTHON=$PYTHON is not a Python that runs (give the name or path of a Python 3.11 or newer)"
        new_enough "$PYTHON" ||
            fail "$PYTHON is Python $version; 3.11 or newer is needed (PYTHON=python3.12 make demo picks another)"
        return
    fi
    for PYTHON in python3 python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$PYTHON"; then return; fi
    done
    version=$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || version=none
    fail "Python 3.11 or newer is needed, python3 here is: $version (install one; PYTHON=/path/to/python make demo picks it)"
}

make_venv() {
    if [ -e "$venv" ]; then
        if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then return; fi
        fail "$venv is there, but it has no working Python with pip (remove it: rm -r $venv, and run make again)"
    fi
    find_python
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$PYTHON cannot make virtual environments (on Debian and Ubuntu: apt-get install python3-venv)"
    echo "set-up: making $venv with $("$PYTHON" --version)"
    trap 'rm -rf "$venv"' EXIT
    trap 'exit 130' INT TERM
    "$PYTHON" -m venv "$venv" || fail "could not make $venv; the lines above say why"
    trap - EXIT INT TERM
}

explain_failure() {
    if grep -q -i -E 'name resolution|name or service not known|network is unreachable|nodename nor servname|NewConnectionError|ConnectTimeoutError' "$log"; then
        fail "the packages could not be fetched: no network, or the package index does not answer (whole log: $log)"
    fi
    if grep -q -i 'no space left on device' "$log"; then
        fail "the disk is full; the environment needs about 3 GB, 7 GB with a CUDA build of torch (whole log: $log)"
    fi
    tail -n 15 "$log" >&2
    fail "the install failed; the lines above say why (whole log: $log)"
}

install() {
    if [ "$group" = base ]; then target=".[backends,history,step]"; else target=".[$group]"; fi
    echo "set-up: installing $target into $venv with the versions of constraints.txt (1 to 2 minutes, log: $log)"
    # A line every 15 seconds, from a helper that ends with this script however it ends.
    ( n=0
      while sleep 1 && kill -0 $$ 2>/dev/null; do
          n=$((n + 1))
          if [ $((n % 15)) -eq 0 ]; then echo "set-up: still installing, $n s"; fi
      done ) &
    helper=$!
    trap 'kill $helper 2>/dev/null || true' EXIT
    trap 'exit 130' INT TERM
    status=0
    "$venv/bin/python" -m pip install -q -e "$target" -c constraints.txt >"$log" 2>&1 || status=$?
    kill $helper 2>/dev/null || true
    wait $helper 2>/dev/null || true
    trap - EXIT INT TERM
    if [ "$status" -ne 0 ]; then explain_failure; fi
}

cd "$(dirname "$0")/.."
make_venv
install
touch "$venv/.installed-base"
if [ "$group" = dev ]; then touch "$venv/.installed-dev"; fi
echo "set-up: done"
