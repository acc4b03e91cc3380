"""Save models as folders of plain files, written under a temporary name, and load them."""

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from privypurse.core._checks import FloatArray, shown
from privypurse.core._errors import FileUnusable, InvalidArgument, PrivypurseError
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._reading import check_fields, read_json, refusing
from privypurse.core._version import __version__
from privypurse.estimators import (
    PrivateGammaRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRidge,
)
from privypurse.estimators._base import PrivateLinearModel
from privypurse.estimators._linear_models import PrivateLinearRegressor
from privypurse.estimators._preparation import Preparation
from privypurse.estimators._uncovered import check_named
from privypurse.methods._by_name import BY_NAME
from privypurse.purse._certificate import Certificate
from privypurse.purse._purse import Spent
from privypurse.runs._rehearse import groups_of
from privypurse.runs._steps import pipeline_from_json, steps_to_json
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._schema import parse_schema, write_schema
from privypurse.training._trace import Trace

__all__ = ["load_model", "save_model"]

MODEL, CERTIFICATE, TRACE = "model.json", "certificate.json", "trace.json"
SCHEMA, STEPS = "schema.toml", "steps.json"  # a folder has one of them
MANIFEST, RUN = "manifest.json", "run.json"
MADE_AGAIN = ("report.html", "measurements.json")  # rewritten by `evaluate` and `report`, so without checksums
ROOM_BYTES = 24 << 20  # free on the disk before anything is paid for; a report takes most of it
FORMAT = 1
KINDS: dict[str, type[PrivateLinearModel]] = {
    kind.__name__: kind
    for kind in (
        *(PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge, PrivateHuberRegressor),
        *(PrivatePoissonRegressor, PrivateGammaRegressor),
    )
}
# Parameters of a process, not of a model.
_NOT_KEPT = ("purse", "callbacks", "random_state", "verbose", "method", "warm_start", "copy_X")
_LATER = ("turn", "turn_noise", "curvature", "target_spread", "target_reach")
_ARRAYS = ("unit", "centre", "stretch", "spread", "turn", "log_odds")


def model_to_json(model: PrivateLinearModel) -> str:
    """Return a fitted private model of this library as JSON."""
    kind = type(model).__name__
    if KINDS.get(kind) is not type(model) or not hasattr(model, "certificate_"):
        raise InvalidArgument(f"expected a fitted {', '.join(KINDS)} as model, got {kind}. Fit it first.")
    params = {name: _plain(value) for name, value in model.get_params(deep=False).items() if name not in _NOT_KEPT}
    if isinstance(params.get("class_weight"), Mapping):  # keys of JSON are text
        params["class_weight"] = [[_plain(name), _plain(weight)] for name, weight in params["class_weight"].items()]
    method = model.method if isinstance(model.method, str) else model.method.name
    # What earlier versions did not know is left out where there is none.
    its = {name: one for name, one in vars(model.preparation_).items() if one is not None or name not in _LATER}
    fitted = {
        "coef": model.coef_.tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
        "n_features_in": int(model.n_features_in_),
        "n_iter": model.n_iter_,
        "stop_reason": model.stop_reason_,
        "spent": asdict(model.privacy_spent_),
        "preparation": {name: _plain(value) for name, value in its.items()},
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
    }
    # Fields that earlier versions did not have are written where they say something.
    if params.get("class_weight") is None:
        params.pop("class_weight", None)
    else:
        fitted["class_shift"] = np.asarray(model._class_shift).tolist()
    if params.get("target_transform") is None:
        params.pop("target_transform", None)
    else:
        fitted["smearing"] = model.smearing_
    if getattr(model, "_corrects_clip", False):
        fitted["corrects_clip"] = True
    if hasattr(model, "feature_names_in_"):
        fitted["feature_names"] = [str(name) for name in model.feature_names_in_]
    fields = {"format": FORMAT, "version": __version__, "kind": kind, "method": method}
    return json.dumps(fields | {"params": params, "fitted": fitted}, indent=1, allow_nan=False)


def model_from_json(text: str) -> PrivateLinearModel:
    """Read a model back from `model_to_json`."""
    with refusing("this is not a privypurse model. Pass the output of model_to_json."):
        fields = read_json(text)
        if fields["format"] != FORMAT:
            formats = f"the model has format {fields['format']!r}; this version reads format {FORMAT}"
            raise InvalidArgument(f"{formats}. Install the privypurse that wrote it, {fields.get('version')}.")
        fitted, method = fields["fitted"], fields["method"]
        if isinstance(fields["params"].get("class_weight"), list):
            fields["params"]["class_weight"] = dict(fields["params"]["class_weight"])
        model = KINDS[fields["kind"]](**fields["params"], method=method if method in BY_NAME else "auto")
        model.coef_ = np.array(fitted["coef"], dtype=np.float64)
        intercept = np.array(fitted["intercept"], dtype=np.float64)
        model.intercept_ = intercept if intercept.ndim else float(intercept)
        # Probabilities of models of earlier versions, which wrote neither, stay as they were.
        model._class_shift = np.array(fitted.get("class_shift", 0.0), dtype=np.float64)
        if isinstance(model, PrivateLogisticRegression):
            model._corrects_clip = bool(fitted.get("corrects_clip", False))
        if "smearing" in fitted:
            model.smearing_ = float(fitted["smearing"])
        model.n_features_in_ = fitted["n_features_in"]
        if "feature_names" in fitted:
            model.feature_names_in_ = np.array(fitted["feature_names"], dtype=object)
        model.n_iter_, model.stop_reason_ = fitted["n_iter"], fitted["stop_reason"]
        model.privacy_spent_ = Spent(**fitted["spent"])
        fields = fitted["preparation"]
        listed = [name for name in _ARRAYS if isinstance(fields.get(name), list)]
        arrays = {name: np.array(fields[name], dtype=np.float64) for name in listed}
        model.preparation_ = Preparation(**fields | arrays | {"target": tuple(fields["target"])})
        if fitted["classes"] is not None:
            model.classes_ = np.array(fitted["classes"])
        _check(model)
    return model


def _check(model: Any) -> None:
    """Raise ValueError or TypeError unless shapes, classes and types of a model agree."""
    columns, classes = model.n_features_in_, getattr(model, "classes_", None)
    count = 1 if classes is None or len(classes) == 2 else len(classes)
    check_fields(model.privacy_spent_)
    check_fields(model.preparation_)
    arrays = (getattr(model.preparation_, name) for name in ("centre", "stretch", "spread", "unit"))
    shapes = [
        np.atleast_2d(model.coef_).shape == (count, columns),
        np.atleast_1d(model.intercept_).shape == (count,),
        model._class_shift.shape in ((), (count,)),
        model.coef_.ndim == (1 if classes is None else 2),
        len(getattr(model, "feature_names_in_", range(columns))) == columns,
        model.preparation_.turn is None or model.preparation_.turn.shape == (columns, columns),
        *(array is None or np.ndim(array) == 0 or np.shape(array) == (columns,) for array in arrays),
    ]
    if getattr(model, "target_transform", None) is not None and not 0 < model.smearing_ < math.inf:
        raise ValueError("a factor is not above zero")
    if isinstance(model, PrivateLinearRegressor) != (classes is None) or not all(shapes):
        raise ValueError("parts have other shapes")
    if classes is not None and (classes.ndim != 1 or len(classes) < 2 or len(set(classes.tolist())) < len(classes)):
        raise ValueError("classes are not different from each other")
    if type(columns) is not int or type(model.n_iter_) is not int or not isinstance(model.stop_reason_, str):
        raise TypeError("counts must be whole numbers")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Neighbouring):
        return value.value
    return list(value) if isinstance(value, tuple | range) else value


def replace_folder(new: pathlib.Path, there: pathlib.Path) -> None:
    """Replace a folder, or a link to one, by another folder beside it, or put it back."""
    old = partial_path(there).with_suffix(".old")
    there.rename(old)
    try:
        new.rename(there)
    except OSError:
        old.rename(there)
        raise
    if old.is_symlink():
        old.unlink()
    else:
        shutil.rmtree(old, ignore_errors=True)


class ModelNotSaved(PrivypurseError, OSError):
    """A trained and paid model could not be written to its folder. The message says where it is."""


class ModelFolder:
    """The folder for one model, checked and locked before training. Use it in a ``with`` statement.

    Its parent must exist. `overwrite` replaces an existing model once the new one is complete.

    Guarantees
    ----------
    * `write` puts all files and their checksums on the disk under another name and then renames the
      folder: after a crash at any moment there is a complete model under `folder`, or what was
      there before. An old model is first renamed aside: a crash between the two renames leaves it
      beside `folder`, under a hidden name that ends in ``.old``, and nothing under `folder`.
    * Two runs cannot have one `folder`: the second is refused before it pays. A model that appeared
      in the meantime is not replaced, unless `overwrite`.
    * A disk with less than `ROOM_BYTES` of room is refused before anything is paid. If writing
      fails all the same, the files but the report go to the system's folder for temporary files,
      and `ModelNotSaved` says where: what was paid for is not lost.
    """

    def __init__(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.folder = pathlib.Path(folder).absolute()
        self._overwrite = overwrite
        self._partial = self.folder.parent / f".{self.folder.name}.partial"
        self._claim: int | None = None

    def __enter__(self) -> "ModelFolder":
        out = f"out {str(self.folder)!r}"
        if self.folder.exists() or self.folder.is_symlink():
            try:
                self._check_replaceable()
            except InvalidArgument as error:
                if self._overwrite:
                    raise
                raise InvalidArgument(f"out exists, and would not be replaced: {error.message}") from None
            if not self._overwrite:
                raise InvalidArgument(f"{out} exists already. Pass another folder or --overwrite.")
        if not self.folder.parent.is_dir():
            raise InvalidArgument(f"{out} is in a folder that does not exist. Create {str(self.folder.parent)!r}.")
        try:
            self._claim = _claimed(self._partial)
            if shutil.disk_usage(self._partial).free < ROOM_BYTES:
                raise OSError(errno.ENOSPC, "No space left on device")
        except BlockingIOError as error:
            raise InvalidArgument(f"{out} is being written by another run. Pass another folder or wait.") from error
        except OSError as error:
            self.__exit__()
            remedy = f"Make {ROOM_BYTES >> 20} MB of room there, or pass another folder."
            raise FileUnusable(f"{out} cannot be written: {error.strerror}. {remedy}") from error
        return self

    def write(self, files: Mapping[str, str]) -> None:
        """Write the files and rename the folder into place."""
        try:
            _write_all(self._partial, files)
            self._move_in_place()
        except (OSError, InvalidArgument) as error:
            why = error.strerror if isinstance(error, OSError) else "something else is there now"
            lost = f"the model is trained and paid for, but cannot be written to {str(self.folder)!r} ({why})"
            elsewhere = "the folder for temporary files"
            try:
                refuge = pathlib.Path(tempfile.mkdtemp(prefix="privypurse-model-"))
                elsewhere = repr(str(refuge))
                # A report is large, and can be made again from the rest.
                _write_all(refuge, {name: text for name, text in files.items() if name != "report.html"})
            except OSError:
                raise ModelNotSaved(f"{lost}, nor to {elsewhere}. Its payment stays on the ledger.") from error
            raise ModelNotSaved(f"{lost}. It is in {elsewhere}: move it from there.") from error

    def _move_in_place(self) -> None:
        if not (self.folder.exists() or self.folder.is_symlink()):
            self._partial.rename(self.folder)
        elif not self._overwrite:
            raise FileExistsError(errno.EEXIST, "something else is there now")
        else:
            self._check_replaceable()
            replace_folder(self._partial, self.folder)
        with contextlib.suppress(OSError):  # the model is in place already
            _sync_folder(self.folder.parent)

    def _check_replaceable(self) -> None:
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            return
        check_is_model(self.folder)
        known = {MANIFEST, *MADE_AGAIN, *_checksums(self.folder)}
        if others := sorted(path.name for path in self.folder.iterdir() if path.name not in known):
            lost = f"holds other files, which would be lost: {', '.join(others[:5])[:200]}"
            raise InvalidArgument(f"out {str(self.folder)!r} {lost}. Move them elsewhere or pass another folder.")

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None


def _claimed(folder: pathlib.Path) -> int:
    """Create or empty a folder and lock it. Return the lock; BlockingIOError if another run has it."""
    while True:
        folder.mkdir(exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with contextlib.suppress(FileNotFoundError):  # its last owner just removed it
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(handle), folder.stat()):
                    for left in folder.iterdir():
                        left.unlink()
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def model_files(pipeline: Any) -> dict[str, str]:
    """Return the files that hold a pipeline of declared steps and a fitted private model, or the model alone."""
    if isinstance(pipeline, PrivateLinearModel):
        pipeline = Pipeline([("model", pipeline)])
    model = pipeline[-1] if isinstance(pipeline, Pipeline) else pipeline
    if not isinstance(model, PrivateLinearModel):
        raise InvalidArgument(
            f"expected a private linear model, or a pipeline of declared steps that ends with one; got {shown(model)}. "
            "Additive models are kept by `privypurse train`, or with skops."
        )
    files = {MODEL: model_to_json(model)}
    if len(pipeline) == 2 and isinstance(pipeline[0], TableEncoder):
        files[SCHEMA] = write_schema(pipeline[0].schema)
    else:
        check_named(pipeline)
        files[STEPS] = steps_to_json(pipeline)
    files |= {CERTIFICATE: model.certificate_.to_json(), "certificate.txt": str(model.certificate_)}
    return files | {TRACE: model.trace_.to_json()}


def save_model(
    pipeline: Pipeline | PrivateLinearModel, folder: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Save a fitted pipeline in a folder of plain files: JSON, and text.

    Parameters
    ----------
    pipeline : Pipeline or estimator
        A fitted private linear model; or a pipeline of a `TableEncoder`, or of other declared steps, and
        such a model: ``DeclaredOneHot``, ``BoundedScaler``, ``RowNormalizer``, ``Normalizer``,
        ``SimpleImputer`` with a constant, also in a ``ColumnTransformer``, ``FeatureUnion`` or
        ``Pipeline``. A ``PrivateRangeScaler`` comes back as a ``BoundedScaler`` with the ranges it
        released.
    folder : str or path
        Path of the model.
    overwrite : bool, default False
        Replace an existing model.

    Raises
    ------
    InvalidArgument
        A step learned from the data, or cannot be written as text. Nothing is written.
    """
    files = model_files(pipeline)
    with ModelFolder(folder, overwrite=overwrite) as place:
        place.write(files)


def load_model(folder: str | os.PathLike[str]) -> Pipeline:
    """Load a model as a scikit-learn pipeline. Check its files against their checksums.

    Parameters
    ----------
    folder : str or path
        Folder written by `privypurse train --out` or `save_model`.

    Returns
    -------
    Pipeline
        With steps "columns" and "model", for data frames with the columns of the schema; or with the
        steps that were saved. (Whether a ``ColumnTransformer`` returns a sparse or a dense table may
        change, since it depends on the records. Scores then differ by rounding.)
    """
    place = check_is_model(pathlib.Path(folder))
    declared = SCHEMA if SCHEMA in _checksums(place) else STEPS
    damaged = f"{str(folder)!r} is not a privypurse model: one of its files cannot be read. Restore it from a copy."
    with refusing(damaged, also=(OSError,)):
        texts = {name: (place / name).read_text(encoding="utf-8") for name in (MODEL, declared, CERTIFICATE, TRACE)}
    model: Any = model_from_json(texts[MODEL])
    model.certificate_ = Certificate.from_json(texts[CERTIFICATE])
    model.trace_ = Trace.from_json(texts[TRACE])
    if declared == STEPS:
        with refusing(damaged):
            return pipeline_from_json(texts[STEPS], model)
    schema = parse_schema(texts[SCHEMA])
    if schema.to_buy or len(schema.features) != model.n_features_in_:
        raise InvalidArgument(f"the model {str(folder)!r} and its schema do not fit together. Restore it from a copy.")
    with refusing(damaged, also=(OSError,)):
        model._reported = schema.features, groups_of(schema), _half_widths(place, model)
    return Pipeline([("columns", TableEncoder(schema)), ("model", model)])


def _half_widths(folder: pathlib.Path, model: PrivateLinearModel) -> tuple[FloatArray, FloatArray] | None:
    """Return half-widths of the intervals of ``coef_`` and ``intercept_`` in the report of a model, if it has some."""
    stored = read_json((folder / RUN).read_text(encoding="utf-8")) if RUN in _checksums(folder) else {}
    if stored.get("half_widths") is None:
        return None
    coefficients, intercepts = (np.array(part, dtype=np.float64) for part in stored["half_widths"])
    return coefficients.reshape(model.coef_.shape), intercepts.reshape(np.shape(model.intercept_))


def check_is_model(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder. Raise InvalidArgument unless it holds a complete, unchanged model."""
    try:
        checksums = _checksums(folder)
        if not {MODEL, CERTIFICATE, TRACE} <= set(checksums) or not {SCHEMA, STEPS} & set(checksums):
            raise KeyError
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{str(folder)!r} is not a privypurse model: it has no readable {MANIFEST}"
        raise InvalidArgument(f"{why}. Pass a folder made by `privypurse train --out`.") from error
    for name, checksum in checksums.items():
        try:
            content = (folder / pathlib.PurePath(name).name).read_bytes()
        except (OSError, ValueError):
            content = None
        if content is None or hashlib.sha256(content).hexdigest() != checksum:
            raise InvalidArgument(f"{str(folder)!r} is damaged: {name[:80]} is missing or changed. Restore a copy.")
    return folder


def _checksums(folder: pathlib.Path) -> dict[str, str]:
    return dict(read_json((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"])


def partial_path(path: pathlib.Path) -> pathlib.Path:
    """Return a fresh hidden name beside a path, for writing until the content is complete."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary name to write to, renamed to `path` at the end. A device is not replaced."""
    if path.exists() and not path.is_file():
        yield path
        return
    new = partial_path(path)
    try:
        yield new
        new.replace(path)
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def replace_file(path: pathlib.Path, text: str) -> None:
    """Write a file under a temporary name and rename it into place."""
    if not path.name or "\x00" in path.name:
        raise InvalidArgument(f"the file to write must have a name; got {str(path)!r}. Pass for example report.html.")
    with replacing(path) as new:
        if new == path:
            new.write_bytes(_bytes(text))  # a device, which cannot be synchronized
        else:
            _write(new, text)


def _write_all(folder: pathlib.Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        _write(folder / name, text)
    kept = {name: text for name, text in files.items() if name not in MADE_AGAIN}
    checksums = {name: hashlib.sha256(_bytes(text)).hexdigest() for name, text in kept.items()}
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
    # Names of files may hold bytes that are not UTF-8.
    return text.encode("utf-8", "backslashreplace")
