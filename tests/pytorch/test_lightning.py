"""Lightning: the Trainer's own loop, made private by a callback."""

import logging
import weakref

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privypurse import InvalidArgument, NoiseSource
from privypurse.pytorch import make_private, open_purse
from privypurse.pytorch.integrations.logging import CsvLog
from privypurse.training.schedules._base import ConstantNoise

pl = pytest.importorskip("lightning.pytorch")

from privypurse.pytorch.integrations.lightning import PrivateTraining  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    r"ignore:.*isinstance\(treespec, LeafSpec\).*:FutureWarning",  # what Lightning does with torch 2.13
    "ignore:.*does not have many workers.*",
    "ignore:.*number of training batches.*",
    "ignore:.*Checkpoint directory.*exists and is not empty.*",
    "ignore:.*mid-epoch.*",
)
BUDGET = {"records": 400, "epsilon": 2.0, "delta": 1e-5}
STEPS = 12


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_loader(batch_size=40):
    X = torch.randn(400, 4, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(X, (X[:, 0] > 0).long()), batch_size=batch_size, shuffle=True)


# What modules saw, for these tests: a module that kept it itself would be refused.
NOTES = weakref.WeakKeyDictionary()


class Classifier(pl.LightningModule):
    """An ordinary module, which knows nothing of privacy."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    @property
    def sizes(self):
        return NOTES.setdefault(self, ([], []))[0]

    @property
    def rates(self):
        return NOTES.setdefault(self, ([], []))[1]

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        if "log" in self.__dict__:
            return nn.functional.cross_entropy(self.net(inputs), targets)  # the trial, on made-up records
        self.sizes.append(len(inputs))
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        return nn.functional.cross_entropy(self.net(inputs), targets)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def make_trainer(*callbacks, kind=pl.Trainer, **changes):
    silent = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    settings = {"accelerator": "cpu", "max_epochs": 2, "enable_checkpointing": False, "callbacks": list(callbacks)}
    return kind(**silent | settings | changes)


def fit(model=None, loader=None, *, ckpt_path=None, trainer=None, **changes):
    """Train privately; returns model, callback and Trainer."""
    callback = PrivateTraining(**BUDGET | changes)
    model, trainer = model or Classifier(), make_trainer(callback, **trainer or {})
    trainer.fit(model, loader or make_loader(), ckpt_path=ckpt_path)
    return model, callback, trainer


def parameters(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_run_spends_its_budget_and_each_update_is_a_release():
    model, callback, trainer = fit()
    engine, purse = callback.private.engine, callback.private.purse
    assert engine.stop_reason == "steps"
    assert engine.gradients == purse.spent.releases == trainer.global_step == 20
    assert 2.0 * (1 - 1e-3) < purse.spent.epsilon <= 2.0
    assert "training_step" not in vars(model)
    assert torch.isfinite(parameters(model)).all()


def test_the_run_is_the_one_of_make_private_in_a_loop_of_ones_own():
    model, _, _ = fit(noise=NoiseSource(seed=3))
    own = Classifier()
    optimizer = own.configure_optimizers()
    scheduler, optimizer = optimizer["lr_scheduler"]["scheduler"], optimizer["optimizer"]
    own.forward = own.net.forward
    private = make_private(own, optimizer, make_loader(), epochs=2, noise=NoiseSource(seed=3), **BUDGET)
    for _ in range(2):
        for inputs, targets in private.loader:
            nn.functional.cross_entropy(own(inputs), targets).backward()
            optimizer.step()
            scheduler.step()
    assert torch.allclose(parameters(model), parameters(own), rtol=0, atol=1e-6)


def test_noise_reaches_the_update():
    plain = Classifier()
    make_trainer().fit(plain, make_loader())
    first, second = (parameters(fit()[0]) for _ in range(2))
    assert not torch.allclose(first, second, atol=1e-3)
    assert not torch.allclose(first, parameters(plain), atol=1e-3)


def test_samples_are_poisson():
    model, _, _ = fit(trainer={"max_epochs": 6})
    assert len(model.sizes) == 60
    assert len(set(model.sizes)) > 5
    assert 35 < sum(model.sizes) / 60 < 45


def test_empty_samples_are_releases_too_and_a_made_up_record_stands_in():
    loader = DataLoader(make_loader().dataset, batch_size=1)
    model, callback, trainer = fit(loader=loader, trainer={"max_steps": 30, "max_epochs": -1})
    assert min(model.sizes) == 1
    assert callback.private.purse.spent.releases == trainer.global_step == 30
    assert torch.isfinite(parameters(model)).all()


def test_learning_rates_follow_their_scheduler():
    model, _, _ = fit()
    assert model.rates == pytest.approx([0.5 * 0.9**k for k in range(20)])


def test_accumulated_batches_are_one_sample():
    whole, _, _ = fit(noise=NoiseSource(seed=3), clip_norm=0.1)
    model, callback, trainer = fit(
        loader=make_loader(20), trainer={"accumulate_grad_batches": 2}, noise=NoiseSource(seed=3), clip_norm=0.1
    )
    assert callback.private.purse.spent.releases == trainer.global_step == 20
    assert len(model.sizes) == 40
    assert torch.allclose(parameters(model), parameters(whole), atol=1e-5)


def test_half_precision_works():
    model, callback, _ = fit(trainer={"precision": "bf16-mixed"})
    assert callback.private.purse.spent.releases == 20
    assert torch.isfinite(parameters(model)).all()


def test_the_trainer_stops_with_the_budget():
    _, callback, trainer = fit(trainer={"max_epochs": -1}, schedule=ConstantNoise(2.0), steps=1_000)
    assert callback.private.engine.stop_reason == "budget"
    assert trainer.should_stop
    assert 0 < callback.private.purse.spent.releases == trainer.global_step < 1_000


def test_the_trainer_stops_with_the_steps():
    _, callback, trainer = fit(trainer={"max_epochs": -1}, steps=STEPS)
    assert callback.private.engine.stop_reason == "steps"
    assert trainer.global_step == STEPS


def test_data_may_come_from_the_module_and_validation_is_left_alone():
    class WithData(Classifier):
        def train_dataloader(self):
            return make_loader()

        def val_dataloader(self):
            return DataLoader(make_loader().dataset, batch_size=100)

        def validation_step(self, batch, batch_idx):
            assert not self.training
            self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    model, callback = WithData(), PrivateTraining(**BUDGET | {"epsilon": 20.0})
    trainer = make_trainer(callback, max_epochs=4)
    trainer.fit(model)
    assert callback.private.purse.spent.releases == 40
    assert trainer.callback_metrics["accuracy"] > 0.8


def test_a_log_is_lent_the_purse_of_the_run(tmp_path):
    fit(callbacks=[CsvLog(tmp_path / "run.csv")])
    last = (tmp_path / "run.csv").read_text().splitlines()[-1].split(",")
    assert last[-1] == "steps"
    assert float(last[-2]) == pytest.approx(2.0, rel=1e-3)


def test_the_other_lightning_works_too():
    other = pytest.importorskip("pytorch_lightning")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Other(other.LightningModule):
        training_step, configure_optimizers = Classifier.training_step, Classifier.configure_optimizers
        sizes, rates = Classifier.sizes, Classifier.rates

        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 2)

    callback = PrivateTraining(**BUDGET)
    trainer = make_trainer(callback, kind=other.Trainer)
    trainer.fit(Other(), make_loader())
    assert callback.private.purse.spent.releases == trainer.global_step == 20


# Going on.


def durable(folder, **settings):
    steps = {"neighbouring": "add-remove", "steps": STEPS, "sample_prob": 0.1, "ledger": folder / "budget.db"}
    return open_purse(epsilon=2.0, delta=1e-5, dataset="people", **steps | settings)


def halves(folder, purse_of):
    """Train half of the steps, save, and train the other half in a new Trainer."""
    for max_steps, ckpt in ((STEPS // 2, None), (-1, folder / "half.ckpt")):
        callback = PrivateTraining(records=400, purse=purse_of(), steps=STEPS)
        trainer = make_trainer(callback, max_steps=max_steps, max_epochs=-1)
        model = Classifier()
        trainer.fit(model, make_loader(), ckpt_path=ckpt)
        trainer.save_checkpoint(folder / "half.ckpt")
    return model, callback, trainer


def test_a_run_goes_on_from_a_checkpoint_with_what_it_paid(tmp_path):
    _, callback, trainer = halves(tmp_path, lambda: durable(tmp_path))
    assert trainer.global_step == STEPS
    assert callback.private.engine.stop_reason == "steps"
    assert callback.private.purse.spent.releases == len(callback.private.engine.trace.steps) == STEPS
    assert callback.private.purse.spent.epsilon == pytest.approx(2.0, rel=1e-3)


def test_a_resumed_simulation_is_the_uninterrupted_one(tmp_path):
    def seeded():
        return open_purse(
            epsilon=2.0,
            delta=1e-5,
            neighbouring="add-remove",
            steps=2 * STEPS,
            sample_prob=0.1,
            noise=NoiseSource(seed=4),
        )

    model, _, _ = halves(tmp_path, seeded)
    callback = PrivateTraining(records=400, purse=seeded(), steps=STEPS)
    whole = Classifier()
    make_trainer(callback, max_epochs=-1).fit(whole, make_loader())
    assert torch.equal(parameters(model), parameters(whole))
    assert model.rates == whole.rates[STEPS // 2 :]


def test_a_checkpoint_that_does_not_know_its_run_is_refused(tmp_path):
    _, _, trainer = fit(trainer={"max_epochs": 1}, epochs=2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    with pytest.raises(InvalidArgument, match="second budget"):
        fit(ckpt_path=tmp_path / "half.ckpt")


def test_the_usual_checkpoints_of_the_trainer_are_written(tmp_path):
    saving = {"enable_checkpointing": True, "default_root_dir": tmp_path}
    fit(trainer=saving)
    assert list(tmp_path.rglob("*.ckpt"))


# What is refused.


class Manual(Classifier):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Several(Classifier):
    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.net[0], self.net[2])]

    def training_step(self, batch, batch_idx):
        raise AssertionError


class Elsewhere(pl.Callback):
    """Puts the ordinary loader back."""

    def on_fit_start(self, trainer, pl_module):
        trainer.fit_loop._data_source.instance = make_loader()


def test_manual_optimisation_is_refused():
    with pytest.raises(InvalidArgument, match="manual optimisation"):
        fit(Manual())


def test_several_optimizers_are_refused():
    model = Several()
    model.automatic_optimization = True
    with pytest.raises((InvalidArgument, RuntimeError), match="optimizers"):
        fit(model)


def test_clipping_by_the_trainer_is_refused():
    with pytest.raises(InvalidArgument, match="gradient_clip_val=1"):
        fit(trainer={"gradient_clip_val": 1.0})


def test_a_trainer_that_takes_other_batches_is_stopped():
    callback, model = PrivateTraining(**BUDGET), Classifier()
    before = parameters(model)
    with pytest.raises(InvalidArgument, match="uses another loader"):
        make_trainer(callback, Elsewhere()).fit(model, make_loader())
    assert callback.private.purse.spent.releases == 0
    assert torch.equal(parameters(model), before)


def test_records_of_elsewhere_are_refused_in_the_step_itself():
    class Peeking(Classifier):
        def training_step(self, batch, batch_idx):
            return super().training_step(next(iter(make_loader(7))), batch_idx)

    with pytest.raises(InvalidArgument, match="records"):
        fit(Peeking())


@pytest.mark.parametrize("name", ["accumulate", "loss", "scaler", "loader"])
def test_what_the_trainer_says_is_not_said_twice(name):
    with pytest.raises(InvalidArgument, match=name):
        PrivateTraining(**{name: 2})


def test_several_loaders_are_refused():
    with pytest.raises(InvalidArgument, match="one DataLoader"):
        fit(loader=[make_loader(), make_loader()])


def test_samples_that_would_be_cut_are_refused():
    with pytest.raises(InvalidArgument, match="limit_train_batches"):
        fit(loader=make_loader(20), trainer={"accumulate_grad_batches": 2, "limit_train_batches": 3})
