"""Examples of the engine need PyTorch; without it they are left out."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["*/pytorch/*", "*/mechanisms/torch_*"]
if not importlib.util.find_spec("lightning"):
    collect_ignore_glob.append("*/pytorch/lightning.py")
if not importlib.util.find_spec("transformers"):
    collect_ignore_glob.append("*/pytorch/hugging_face.py")
