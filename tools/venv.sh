#!/usr/bin/env bash
# Make or refresh a virtual environment from a hashed lock, and put Corral itself in
# it. Does nothing when lock, pyproject and interpreter are those of the last time.
#
# usage: tools/venv.sh FOLDER LOCK [PACKAGE...]   (PYTHON=... chooses the interpreter)
# PACKAGEs are in no lock: pip installs them, from wherever it is told to on this machine.
set -euo pipefail

folder=$1
lock=$2
shift 2
others=("$@")
oldest=3.11

say() { printf '%s\n' "$*" >&2; }

is_recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if is_recent "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    say "Corral needs Python $oldest or newer; found none as: ${PYTHON:-python3}." \
        "Install one, or name it: make setup PYTHON=/path/to/python3.12"
    exit 1
}

digest() {
    "$1" - "$lock" pyproject.toml <<'PY'
import hashlib, pathlib, sys
text = b"".join(pathlib.Path(name).read_bytes() for name in sys.argv[1:])
print(hashlib.sha256(text).hexdigest(), sys.version.split()[0])
PY
    printf '%s\n' "${others[@]}"
}

make_venv() {
    local base
    base=$(find_python)
    say "creating $folder with $("$base" --version)"
    "$base" -m venv --clear "$folder" && return
    # Debian keeps this part of Python in a package of its own.
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            -o DPkg::Lock::Timeout=300 python3-venv >&2
        "$base" -m venv --clear "$folder" && return
    fi
    say "$base cannot make virtual environments;" \
        "on Debian, as root: apt-get install python3-venv"
    exit 1
}

# Measured for Linux and Python 3.11 when the locks were written.
megabytes() {
    case $(basename "$lock") in
    requirements.lock) echo 84 ;;
    requirements-dev.lock) echo 226 ;;
    *) echo 177 ;;
    esac
}

# The installer comes out of the lock too, with its hashes.
install_uv() {
    local part="$folder/uv.lock"
    awk '/^[a-zA-Z0-9]/ {wanted = /^uv==/} wanted' "$lock" >"$part"
    "$python" -m pip install --quiet --disable-pip-version-check \
        --require-hashes --no-deps -r "$part"
}

# uv does not read pip's settings, so a machine that reaches packages only through
# those is served by pip itself.
install_lock() {
    say "installing $lock: $(grep -c '^[a-zA-Z0-9]' "$lock") packages, about" \
        "$(megabytes) MB to fetch; what is in a cache is not fetched again"
    if [ -x "$folder/bin/uv" ] || install_uv; then
        "$folder/bin/uv" pip install --quiet --python "$python" \
            --compile-bytecode --require-hashes --no-deps -r "$lock" && return
        say "uv could not install $lock; trying pip"
    fi
    "$python" -m pip install --quiet --disable-pip-version-check \
        --require-hashes --no-deps -r "$lock"
}

install_self() {
    if [ -x "$folder/bin/uv" ]; then
        "$folder/bin/uv" pip install --quiet --python "$python" \
            --no-deps --no-build-isolation -e . && return
    fi
    "$python" -m pip install --quiet --disable-pip-version-check \
        --no-deps --no-build-isolation -e .
}

# PyTorch's usual build is gigabytes for a GPU. Whoever told pip where packages are on
# this machine has chosen a build; else uv knows where those for processors are.
install_others() {
    if [ -n "$("$python" -m pip config list 2>/dev/null)" ] || [ ! -x "$folder/bin/uv" ]
    then
        say "installing ${others[*]} as pip is told to on this machine"
        "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
            "${others[@]}"
    else
        say "installing ${others[*]}, the build for processors (about 200 MB)"
        "$folder/bin/uv" pip install --quiet --python "$python" --no-deps \
            --torch-backend=cpu "${others[@]}"
    fi
}

python=$folder/bin/python
if [ ! -x "$python" ] || ! is_recent "$python"; then
    make_venv
fi
stamp=$folder/.stamp-$(basename "$lock")
wanted=$(digest "$python")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
rm -f "$stamp"
install_lock
install_self
if [ ${#others[@]} -gt 0 ]; then
    install_others || say "could not install ${others[*]}; going on without"
fi
"$python" -m compileall -q src || true
printf '%s\n' "$wanted" >"$stamp"
