"""Folders of models: those that were changed are refused; what a stranger made is read without
harm, or refused.
"""

import hashlib
import json
import pathlib
import shutil
from random import Random
from typing import Any

from privypurse.datasets import make_census
from privypurse.runs._account import Account
from privypurse.runs._demo import census_schema
from privypurse.runs._describe import load_run, report_of
from privypurse.runs._train import TrainSettings, train_file
from privypurse.runs.folder import MANIFEST, load_model, save_model
from privypurse.tables._schema import write_schema
from tests.fuzz.guard import Finding
from tests.fuzz.mutations import spoil_bytes, spoil_json, spoil_text
from tests.runs.fitted import a_pipeline

SCRIPT = "<script>alert(4711)"


class ModelTarget:
    """An input says which model, which files are replaced by what, and whether the checksums were
    made anew.
    """

    name, seconds = "model", 5.0

    def prepare(self, folder: pathlib.Path) -> None:
        self._folder = folder / "model"
        self._seeds = {}
        for kind in ("logistic", "svm, three classes", "ridge"):
            save_model(a_pipeline(kind), folder / kind)
            self._seeds[kind] = folder / kind
        census = make_census(400, 1)
        census.to_csv(folder / "census.csv")
        (folder / "census.toml").write_text(write_schema(census_schema(census)), encoding="utf-8")
        settings = TrainSettings(
            data=folder / "census.csv",
            target=census.target,
            epsilon=1.0,
            out=folder / "trained",
            account=Account(dataset="census", ledger=folder / "budget.db", budget=3.0),
            schema=folder / "census.toml",
        )
        train_file(settings)
        self._seeds["trained"] = folder / "trained"
        self._files = {
            kind: {path.name: path.read_text() for path in place.iterdir() if path.suffix in (".json", ".toml")}
            for kind, place in self._seeds.items()
        }
        for kind in self._seeds:
            self.check(json.dumps({"model": kind, "files": {}, "checksums": True}).encode())

    def make(self, random: Random) -> bytes:
        kind = random.choice(list(self._seeds))
        files = {}
        for name in random.sample(sorted(self._files[kind]), random.choice((1, 1, 2))):
            text = self._files[kind][name]
            if name.endswith(".json") and random.random() < 0.85:
                files[name] = spoil_json(random, json.loads(text)).decode("utf-8", "replace")
            elif random.random() < 0.5:
                files[name] = spoil_text(random, text)
            else:
                files[name] = spoil_bytes(random, text.encode()).decode("utf-8", "surrogateescape")
        return json.dumps({"model": kind, "files": files, "checksums": random.random() < 0.8}).encode()

    def check(self, content: bytes) -> None:
        described = json.loads(content)
        kind, files = described["model"], described["files"]
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._seeds[kind], self._folder)
        for name, text in files.items():
            try:
                raw = text.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                raw = text.encode("utf-8", "surrogatepass")
            (self._folder / name).write_bytes(raw)
        if described["checksums"] and MANIFEST not in files:
            self._make_checksums()
        pipeline = load_model(self._folder)
        covered = set(self._manifest()["sha256"]) & set(files)
        if any(files[name] != self._files[kind][name] for name in covered) and not described["checksums"]:
            raise Finding("a model whose files were changed is loaded")
        self._use(pipeline)
        if (self._folder / "run.json").exists():
            page = report_of(*load_run(self._folder))
            if SCRIPT in page:
                raise Finding("a report carries a script that was in a file")

    def _use(self, pipeline: Any) -> None:
        schema = pipeline[0].schema
        rows = {column.name: ["0", "x", "31.5"] for column in schema.columns}
        if schema.to_buy or not rows:
            return
        answers = pipeline.predict(rows)
        if len(answers) != 3:
            raise Finding("a model does not answer for every row")
        str(pipeline[-1].certificate_), repr(pipeline[-1].trace_)

    def _manifest(self) -> Any:
        return json.loads((self._folder / MANIFEST).read_text())

    def _make_checksums(self) -> None:
        manifest = self._manifest()
        for name in manifest["sha256"]:
            manifest["sha256"][name] = hashlib.sha256((self._folder / name).read_bytes()).hexdigest()
        (self._folder / MANIFEST).write_text(json.dumps(manifest))
