"""Trained models as folders of plain files: JSON, TOML and HTML, no pickle. Written whole or not at all."""

from privypurse.store.folder import ModelFolder, ModelNotSaved, load_model, save_model

__all__ = ["ModelFolder", "ModelNotSaved", "load_model", "save_model"]
