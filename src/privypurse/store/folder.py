"""A model in a folder: written under another name and moved into place, so that half a model is never taken for one."""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from sklearn.pipeline import Pipeline

from privypurse.core.errors import FileUnusable, InvalidArgument, PrivypurseError
from privypurse.core.reading import read_json
from privypurse.core.version import __version__
from privypurse.purse.certificate import Certificate
from privypurse.store.as_json import model_from_json, model_to_json
from privypurse.store.exchange import exchange
from privypurse.tables.encoder import TableEncoder
from privypurse.tables.schema_file import parse_schema, write_schema
from privypurse.training.trace import Trace

MODEL, SCHEMA, CERTIFICATE, TRACE, MANIFEST = (
    "model.json",
    "schema.toml",
    "certificate.json",
    "trace.json",
    "manifest.json",
)
# Room for the files, report included, is taken before anything is paid for.
BALLAST_BYTES = 24 << 20


class ModelNotSaved(PrivypurseError, OSError):
    """A model was trained and paid for and could not be written where it was asked for; the message says where it is."""


class ModelFolder:
    """A place for one model, checked and held before training begins. Use it in a ``with`` statement.

    Parameters
    ----------
    folder : str or path
        Where the model will be. Its parent must exist.
    overwrite : bool, default False
        Replace a model that is there already, once the new one is complete.

    Guarantees
    ----------
    * `write` puts all files and their checksums on the disk under another name and then renames the folder: after a crash at any
      moment there is either a complete model under `folder` or what was there before. (Where the system cannot exchange two
      folders in one step, a crash between two renames leaves the old model beside it, in a folder that ends in ``.old``.)
    * A model that came into being in the meantime is not replaced, unless `overwrite`.
    * Disk space is taken on entry. If writing fails all the same, the files go to the system's folder for temporary files, and
      `ModelNotSaved` says where: what was paid for is not lost.
    """

    def __init__(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.folder = pathlib.Path(folder).absolute()
        self._overwrite = overwrite
        self._partial = self.folder.parent / f".{self.folder.name}.{secrets.token_hex(4)}.partial"

    def __enter__(self) -> "ModelFolder":
        if self.folder.exists() or self.folder.is_symlink():
            if not self._overwrite:
                raise InvalidArgument(
                    f"out {str(self.folder)!r} is there already. Pass another folder, or --overwrite. Nothing was spent."
                )
            self._check_replaceable()
        if not self.folder.parent.is_dir():
            raise InvalidArgument(
                f"out {str(self.folder)!r} is in a folder that does not exist. Make {str(self.folder.parent)!r} first. "
                "Nothing was spent."
            )
        try:
            self._partial.mkdir()
            with (self._partial / "ballast").open("wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, BALLAST_BYTES)
        except OSError as error:
            self._discard()
            raise FileUnusable(
                f"out {str(self.folder)!r} cannot be written: {error.strerror}. Make {BALLAST_BYTES >> 20} MB of room there, or "
                "pass another folder. Nothing was spent."
            ) from error
        return self

    def write(self, files: Mapping[str, str]) -> None:
        """Write the files and put the folder in place."""
        try:
            (self._partial / "ballast").unlink()
            _write_all(self._partial, files)
            self._move_in_place()
        except (OSError, InvalidArgument) as error:
            why = error.strerror if isinstance(error, OSError) else "something else is there now"
            refuge = None
            try:
                refuge = pathlib.Path(tempfile.mkdtemp(prefix="privypurse-model-"))
                _write_all(refuge, files)
            except OSError:
                elsewhere = "the folder for temporary files" if refuge is None else repr(str(refuge))
                raise ModelNotSaved(
                    f"the model is trained and paid for, but cannot be written to {str(self.folder)!r} ({why}), nor to "
                    f"{elsewhere}. Its payment stays on the ledger."
                ) from error
            raise ModelNotSaved(
                f"the model is trained and paid for, but cannot be written to {str(self.folder)!r} ({why}). It is in "
                f"{str(refuge)!r}: move it from there."
            ) from error

    def _move_in_place(self) -> None:
        if not (self.folder.exists() or self.folder.is_symlink()):
            self._partial.rename(self.folder)
        elif not self._overwrite:
            raise FileExistsError(errno.EEXIST, "another model is there now")
        else:
            self._check_replaceable()
            exchange(self._partial, self.folder)
        with contextlib.suppress(OSError):  # it is in place
            _sync_folder(self.folder.parent)

    def _check_replaceable(self) -> None:
        if not self.folder.is_dir() or any(self.folder.iterdir()):
            check_is_model(self.folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._discard()

    def _discard(self) -> None:
        if self._partial.is_symlink():  # what was replaced was a link: what it points to stays
            self._partial.unlink()
        shutil.rmtree(self._partial, ignore_errors=True)


def model_files(pipeline: Pipeline) -> dict[str, str]:
    """Return the files that hold a pipeline of a `TableEncoder` and a fitted private model."""
    steps = [step for _, step in pipeline.steps] if isinstance(pipeline, Pipeline) else []
    if len(steps) != 2 or not isinstance(steps[0], TableEncoder):
        raise InvalidArgument(
            "pipeline must be Pipeline([('columns', TableEncoder(schema)), ('model', a fitted private model)]). Other models can "
            "be saved with skops."
        )
    encoder, model = steps
    return {
        MODEL: model_to_json(model),
        SCHEMA: write_schema(encoder.schema),
        CERTIFICATE: model.certificate_.to_json(),
        "certificate.txt": str(model.certificate_),
        TRACE: model.trace_.to_json(),
    }


def save_model(pipeline: Pipeline, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Save a fitted pipeline in a folder of plain files.

    Parameters
    ----------
    pipeline : Pipeline
        Of a `TableEncoder` and one of this library's private models.
    folder : str or path
        Where to.
    overwrite : bool, default False
        Replace a model that is there.
    """
    files = model_files(pipeline)
    with ModelFolder(folder, overwrite=overwrite) as place:
        place.write(files)


def load_model(folder: str | os.PathLike[str]) -> Pipeline:
    """Load a model as a scikit-learn pipeline, after checking that its files are as they were written.

    Parameters
    ----------
    folder : str or path
        What `privypurse train --out` or `save_model` wrote.

    Returns
    -------
    Pipeline
        With steps "columns" and "model"; takes data frames with the columns of the schema.
    """
    place = check_is_model(pathlib.Path(folder))
    damaged = f"{str(folder)!r} is not a privypurse model: one of its files cannot be read. Restore it from a copy."
    try:
        texts = {name: (place / name).read_text(encoding="utf-8") for name in (MODEL, SCHEMA, CERTIFICATE, TRACE)}
    except (OSError, ValueError) as error:
        raise InvalidArgument(damaged) from error
    model: Any = model_from_json(texts[MODEL])
    model.certificate_ = Certificate.from_json(texts[CERTIFICATE])
    model.trace_ = Trace.from_json(texts[TRACE])
    schema = parse_schema(texts[SCHEMA])
    if schema.to_buy or len(schema.features) != model.n_features_in_:
        raise InvalidArgument(
            f"the model {str(folder)!r} and its schema do not belong together. Restore it from a copy."
        )
    return Pipeline([("columns", TableEncoder(schema)), ("model", model)])


def check_is_model(folder: pathlib.Path) -> pathlib.Path:
    """Refuse a folder that holds no complete model, or one whose files were changed."""
    try:
        manifest = read_json((folder / MANIFEST).read_text(encoding="utf-8"))
        checksums = dict(manifest["sha256"])
        if not {MODEL, SCHEMA, CERTIFICATE, TRACE} <= set(checksums):
            raise KeyError
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"{str(folder)!r} is not a privypurse model: it has no readable {MANIFEST}. Pass the folder that `privypurse train "
            "--out` made."
        ) from error
    for name, checksum in checksums.items():
        try:
            intact = _checksum((folder / pathlib.PurePath(name).name).read_bytes()) == checksum
        except (OSError, ValueError):  # no such file, or no such name
            intact = False
        if not intact:
            raise InvalidArgument(
                f"the model {str(folder)!r} is damaged: {name[:80]} is missing or was changed. Restore it from a copy."
            )
    return folder


def check_place(path: pathlib.Path, option: str) -> None:
    """Refuse a file to write whose folder does not exist, before what is to be written has been paid for."""
    if not path.parent.is_dir():
        raise InvalidArgument(
            f"{option} {str(path)!r} is in a folder that does not exist. Make {str(path.parent)!r} first. Nothing was spent."
        )


def replace_file(path: pathlib.Path, text: str) -> None:
    """Write a file under another name and move it into place."""
    if not path.name or "\x00" in path.name:
        raise InvalidArgument(f"the file to write must have a name; got {str(path)!r}. Pass for example report.html.")
    if path.exists() and not path.is_file():
        path.write_bytes(_bytes(text))  # a device, which must stay one; a folder is refused by the system
        return
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        _write(new, text)
        new.replace(path)
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def _write_all(folder: pathlib.Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        _write(folder / name, text)
    # Reports and measurements are made anew later on; what was paid for is not.
    kept = {name: text for name, text in files.items() if name not in ("report.html", "measurements.json")}
    checksums = {name: _checksum(_bytes(text)) for name, text in kept.items()}
    _write(folder / MANIFEST, json.dumps({"version": __version__, "sha256": checksums}, indent=1))
    _sync_folder(folder)


def _write(path: pathlib.Path, text: str) -> None:
    with path.open("wb") as file:
        file.write(_bytes(text))
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: pathlib.Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _bytes(text: str) -> bytes:
    # Names of files may hold bytes that are no text: a model that was paid for is not lost to one.
    return text.encode("utf-8", "backslashreplace")


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
