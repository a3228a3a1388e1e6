#!/usr/bin/env bash
# Compile llama.cpp's server, once, from the source distribution of llama-cpp-python:
# ten minutes on two cores. Says so, and does nothing, where there is no compiler.
#
# usage: tools/llama.sh FOLDER PYTHON
# Leaves FOLDER/bin/llama-server, and FOLDER/bin/python with the package gguf.
set -euo pipefail

folder=$(realpath -m "$1")
python=$2
version=0.3.36

say() { printf '%s\n' "$*" >&2; }

for compiler in "${CC:-cc}" "${CXX:-c++}"; do
    if ! command -v "$compiler" >/dev/null; then
        say "skipping llama.cpp: no C++ compiler here ($compiler)." \
            "On Debian, as root: apt-get install g++"
        exit 0
    fi
done
if [ -x "$folder/bin/llama-server" ] && [ "$(cat "$folder/version")" = $version ]; then
    exit 0
fi

"$python" -m venv --clear "$folder"
"$folder/bin/python" -m pip install --quiet cmake ninja gguf
"$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python \
    --dest "$folder" "llama-cpp-python==$version"
tar -xzf "$folder"/llama_cpp_python-$version.tar.gz -C "$folder"
source=$folder/llama_cpp_python-$version/vendor/llama.cpp

say "compiling llama.cpp: this takes minutes, once"
PATH="$folder/bin:$PATH"
# Speed of the code matters less here than that of the compiler.
cmake -G Ninja -S "$source" -B "$folder/work" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DCMAKE_C_FLAGS_RELEASE=-O2 \
    -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF >"$folder/cmake.log"
cmake --build "$folder/work" --target llama-server >"$folder/compile.log" || {
    tail -n 30 "$folder/compile.log" >&2
    exit 1
}
cp "$folder/work/bin/llama-server" "$folder/bin/"
rm -rf "$folder/work" "$source" "$folder"/llama_cpp_python-$version*
printf '%s\n' $version >"$folder/version"
