"""Examples that need a package which is not installed are left out."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["*/pytorch/*", "*/mechanisms/_torch_*"]
if not importlib.util.find_spec("lightning"):
    collect_ignore_glob.append("*/pytorch/integrations/lightning.py")
if not importlib.util.find_spec("transformers"):
    collect_ignore_glob.append("*/pytorch/integrations/hugging_face.py")
if not importlib.util.find_spec("dask"):
    collect_ignore_glob.append("*/oracles/_dask_backend.py")
