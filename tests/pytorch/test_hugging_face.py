"""Hugging Face: the Trainer's own loop, made private."""

import json
import logging

import pytest
import torch

from privypurse import InvalidArgument, NoiseSource
from privypurse.pytorch import make_private, open_purse
from privypurse.training.schedules._base import ConstantNoise

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from privypurse.pytorch.integrations.hugging_face import FILE, mean_of, private_trainer, usual_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
BUDGET = {"records": 300, "epsilon": 2.0, "delta": 1e-5}
STEPS = 12


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("transformers").setLevel(logging.ERROR)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_bert(**changes):
    torch.manual_seed(2)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = {"vocab_size": 50, "max_position_embeddings": 16, "hidden_dropout_prob": 0.0} | small
    config |= {"attention_probs_dropout_prob": 0.0} | changes
    return transformers.BertForSequenceClassification(transformers.BertConfig(**config))


def make_gpt2():
    torch.manual_seed(2)
    small = {"n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=50, **small))


def texts(*, follow=False):
    words = torch.randint(1, 50, (300, 8), generator=torch.Generator().manual_seed(1))
    labels = words if follow else (words[:, 0] > 25).long()
    return [{"input_ids": text, "labels": label} for text, label in zip(words, labels, strict=True)]


def make_trainer(folder, model=None, data=None, **changes):
    silent = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "logging_steps": 5, "save_strategy": "no"}
    settings = {"per_device_train_batch_size": 30, "num_train_epochs": 2, "learning_rate": 1e-2} | silent | changes
    args = transformers.TrainingArguments(str(folder), **settings)
    model = model or make_bert()
    trainer = transformers.Trainer(model, args, train_dataset=data or texts())
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def parameters(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


class Sizes:
    """Counts the records of each batch that a Trainer makes a step with."""

    def __init__(self, trainer):
        self.sizes, self._step = [], trainer.training_step
        trainer.training_step = self.note

    def note(self, model, inputs, *others):
        self.sizes.append(len(inputs["input_ids"]))
        return self._step(model, inputs, *others)


def test_a_run_spends_its_budget_and_each_update_is_a_release(tmp_path):
    trainer = make_trainer(tmp_path)
    private = private_trainer(trainer, **BUDGET)
    trainer.train()
    assert private.engine.stop_reason == "steps"
    assert private.engine.gradients == private.purse.spent.releases == trainer.state.global_step == 20
    assert 2.0 * (1 - 1e-3) < private.purse.spent.epsilon <= 2.0


def test_logs_hold_what_is_spent_and_nothing_private(tmp_path):
    trainer = make_trainer(tmp_path, save_strategy="steps", save_steps=10)
    private_trainer(trainer, epsilon_every=10, **BUDGET)
    output = trainer.train()
    public = {"learning_rate", "epoch", "step", "epsilon", "privacy_budget_left"}
    public |= {"train_runtime", "train_samples_per_second", "train_steps_per_second"}
    assert {name for logs in trainer.state.log_history for name in logs} == public
    assert [logs["step"] for logs in trainer.state.log_history if "epsilon" in logs] == [10, 20, 20]
    spent = [logs["epsilon"] for logs in trainer.state.log_history if "epsilon" in logs]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(2.0, rel=1e-3)
    assert output.training_loss != output.training_loss  # not a number
    state = json.loads((tmp_path / "checkpoint-20" / "trainer_state.json").read_text())
    assert state["total_flos"] == 0
    assert {name for logs in state["log_history"] for name in logs} <= public


def test_samples_are_fetched_by_the_workers_that_the_trainer_asks_for(tmp_path):
    workers = set()

    class Fetched(list):
        def __getitem__(self, row):
            one = super().__getitem__(row)
            return one | {"labels": torch.tensor(torch.utils.data.get_worker_info() is not None).long()}

    trainer = make_trainer(tmp_path, data=Fetched(texts()), dataloader_num_workers=1, max_steps=3)
    private_trainer(
        trainer, loss=lambda outputs, labels: (workers.update(labels.tolist()), outputs[0].sum(1))[1], **BUDGET
    )
    trainer.train()
    assert trainer.state.global_step == 3
    assert workers == {1}


def test_noise_reaches_the_update(tmp_path):
    plain = make_trainer(tmp_path)
    plain.train()
    runs = []
    for _ in range(2):
        trainer = make_trainer(tmp_path)
        private_trainer(trainer, **BUDGET)
        trainer.train()
        runs.append(parameters(trainer.model))
    assert not torch.allclose(runs[0], runs[1], atol=1e-3)
    assert not torch.allclose(runs[0], parameters(plain.model), atol=1e-3)


def test_with_a_budget_it_learns(tmp_path):
    trainer = make_trainer(tmp_path, num_train_epochs=6, learning_rate=2e-2)
    private_trainer(trainer, **BUDGET | {"epsilon": 50.0})
    trainer.train()
    metrics = trainer.evaluate(texts())
    assert metrics["eval_loss"] < 0.5  # below the 0.69 of a coin


def test_samples_are_poisson(tmp_path):
    trainer = make_trainer(tmp_path, num_train_epochs=5)
    private_trainer(trainer, **BUDGET)
    counter = Sizes(trainer)
    trainer.train()
    assert len(counter.sizes) == 50
    assert len(set(counter.sizes)) > 5
    assert 25 < sum(counter.sizes) / 50 < 35


def test_accumulated_batches_are_one_sample(tmp_path):
    runs = []
    for size, accumulate in ((30, 1), (10, 3)):
        trainer = make_trainer(tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=accumulate)
        private = private_trainer(trainer, noise=NoiseSource(seed=3), clip_norm=0.1, **BUDGET)
        counter = Sizes(trainer)
        trainer.train()
        assert private.purse.spent.releases == trainer.state.global_step == 20
        assert len(counter.sizes) == 20 * accumulate
        runs.append(parameters(trainer.model))
    assert torch.allclose(*runs, atol=1e-4)


def test_checkpoints_of_activations_change_nothing(tmp_path):
    # Newer releases of transformers have another name for it.
    name = next(
        one for one in ("activation", "gradient") if hasattr(transformers.TrainingArguments, f"{one}_checkpointing")
    )
    runs = []
    for saves in (False, True):
        trainer = make_trainer(tmp_path, max_steps=3, **{f"{name}_checkpointing": saves})
        private_trainer(trainer, noise=NoiseSource(seed=3), clip_norm=0.1, **BUDGET)
        trainer.train()
        assert getattr(trainer.model, f"is_{name}_checkpointing") == saves
        runs.append(parameters(trainer.model))
    assert torch.allclose(*runs, atol=1e-5)


def test_empty_batches_of_a_sample_do_not_reach_the_model(tmp_path):
    """Samples of 8 records in 8 batches: many of these have none, and BERT cannot be run on none."""
    trainer = make_trainer(tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=8, max_steps=3)
    private = private_trainer(trainer, **BUDGET)
    counter, seen = Sizes(trainer), []
    trainer.model.register_forward_pre_hook(
        lambda _, args, given: seen.append(len(given["input_ids"])), with_kwargs=True
    )
    trainer.train()
    assert len(counter.sizes) == 24
    assert min(seen) == 1
    assert private.purse.spent.releases == trainer.state.global_step == 3


def test_learning_rates_follow_their_scheduler(tmp_path):
    trainer = make_trainer(tmp_path, logging_steps=1, lr_scheduler_type="linear")
    private_trainer(trainer, **BUDGET)
    trainer.train()
    rates = [logs["learning_rate"] for logs in trainer.state.log_history if "learning_rate" in logs]
    assert rates == pytest.approx([1e-2 * (1 - k / 20) for k in range(20)])


def test_half_precision_works(tmp_path):
    trainer = make_trainer(tmp_path, bf16=True)
    private = private_trainer(trainer, **BUDGET)
    trainer.train()
    assert private.purse.spent.releases == 20
    assert torch.isfinite(parameters(trainer.model)).all()


def test_the_trainer_stops_with_the_budget(tmp_path):
    trainer = make_trainer(tmp_path, num_train_epochs=50)
    private = private_trainer(trainer, schedule=ConstantNoise(2.0), steps=500, **BUDGET)
    trainer.train()
    assert private.engine.stop_reason == "budget"
    assert 0 < private.purse.spent.releases == trainer.state.global_step < 500


def test_the_trainer_stops_with_the_steps(tmp_path):
    trainer = make_trainer(tmp_path, num_train_epochs=50)
    private = private_trainer(trainer, steps=STEPS, **BUDGET)
    trainer.train()
    assert private.engine.stop_reason == "steps"
    assert trainer.state.global_step == STEPS


def test_a_language_model_trains_with_texts_of_any_length(tmp_path):
    data = texts(follow=True)
    for k, record in enumerate(data):
        record["labels"] = torch.where(torch.arange(8) < 2 + k % 6, record["labels"], -100)
    trainer = make_trainer(tmp_path, make_gpt2(), data)
    before = parameters(trainer.model)
    private = private_trainer(trainer, **BUDGET)
    trainer.train()
    assert private.purse.spent.releases == 20
    assert not torch.equal(before, parameters(trainer.model))


def test_gradients_are_those_of_single_records(tmp_path):
    """One step of SGD without noise to speak of, by hand: each record on its own, clipped, added
    up.
    """
    data, clip = texts(), 0.05
    trainer = make_trainer(tmp_path, make_bert(), data, max_grad_norm=1.0, optim="sgd", lr_scheduler_type="constant")
    before = parameters(trainer.model)
    private = private_trainer(
        trainer, **BUDGET | {"epsilon": 1e6}, full_batch=True, steps=1, clip_norm=clip, noise=NoiseSource(seed=1)
    )
    trainer.train()
    model, total = make_bert(), torch.zeros_like(before)
    for record in data:
        model.zero_grad()
        model(input_ids=record["input_ids"][None], labels=record["labels"][None]).loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        total += gradient * min(1.0, clip / gradient.norm().item())
    std = private.engine.trace.steps[0].noise_std
    step = (before - parameters(trainer.model)) / 1e-2 * 300
    assert std < clip / 10
    assert (step - total).norm() < 3 * std * len(total) ** 0.5 + 0.01 * total.norm()
    assert (step - total).norm() < 0.2 * total.norm()


def durable(folder):
    return open_purse(
        epsilon=2.0,
        delta=1e-5,
        neighbouring="add-remove",
        steps=STEPS,
        sample_prob=0.1,
        ledger=folder / "budget.db",
        dataset="texts",
    )


def test_a_run_goes_on_from_a_checkpoint_with_what_it_paid(tmp_path):
    for max_steps in (STEPS // 2, STEPS):
        trainer = make_trainer(tmp_path, max_steps=max_steps, save_strategy="steps", save_steps=STEPS // 2)
        private = private_trainer(trainer, records=300, purse=durable(tmp_path), steps=STEPS)
        trainer.train(resume_from_checkpoint=max_steps == STEPS)
    assert (tmp_path / f"checkpoint-{STEPS // 2}" / FILE).exists()
    assert trainer.state.global_step == private.purse.spent.releases == len(private.engine.trace.steps) == STEPS
    assert private.engine.stop_reason == "steps"
    assert private.purse.spent.epsilon == pytest.approx(2.0, rel=1e-3)


def test_a_resumed_simulation_is_the_uninterrupted_one(tmp_path):
    runs = {}
    for name, lengths in (("whole", (STEPS,)), ("halves", (STEPS // 2, STEPS))):
        for max_steps in lengths:
            saving = {"save_strategy": "steps", "save_steps": STEPS // 2, "lr_scheduler_type": "constant"}
            trainer = make_trainer(tmp_path / name, max_steps=max_steps, **saving)
            purse = open_purse(
                epsilon=2.0,
                delta=1e-5,
                neighbouring="add-remove",
                steps=2 * STEPS,
                sample_prob=0.1,
                noise=NoiseSource(seed=4),
            )
            private_trainer(trainer, records=300, purse=purse, steps=STEPS)
            trainer.train(resume_from_checkpoint=max_steps == STEPS and name == "halves")
        runs[name] = parameters(trainer.model)
    assert torch.equal(runs["whole"], runs["halves"])


def test_a_checkpoint_that_does_not_know_its_run_is_refused(tmp_path):
    for again in (False, True):
        trainer = make_trainer(tmp_path, max_steps=STEPS, save_strategy="steps", save_steps=STEPS // 2)
        private = private_trainer(trainer, **BUDGET)
        if again:
            with pytest.raises(InvalidArgument, match="second budget"):
                trainer.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS // 2}"))
        else:
            trainer.train()
    assert private.purse.spent.releases == 0


def test_a_trainer_that_got_another_optimizer_is_stopped(tmp_path):
    trainer = make_trainer(tmp_path)
    private = private_trainer(trainer, **BUDGET)
    before = parameters(trainer.model)
    trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
    with pytest.raises(InvalidArgument, match="another optimizer"):
        trainer.train()
    assert private.purse.spent.releases == 0
    assert torch.equal(parameters(trainer.model), before)


def test_a_trainer_that_got_its_loader_back_is_stopped(tmp_path):
    trainer = make_trainer(tmp_path)
    private_trainer(trainer, **BUDGET)
    del trainer.get_train_dataloader
    with pytest.raises(InvalidArgument, match="another loader"):
        trainer.train()


def own_loss(outputs, labels, **kwargs):
    return outputs["logits"].sum()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"include_num_input_tokens_seen": "all"}, "include_num_input_tokens_seen"),
        ({"torch_compile": True}, "torch_compile"),
        ({"train_sampling_strategy": "group_by_length"}, "grouped by length"),
    ],
)
def test_what_is_not_sound_is_refused(tmp_path, changes, words):
    if words == "grouped by length" and not hasattr(transformers.TrainingArguments, "train_sampling_strategy"):
        changes = {"group_by_length": True}
    with pytest.raises(InvalidArgument, match=words):
        private_trainer(make_trainer(tmp_path, **changes), **BUDGET)


def test_losses_of_ones_own_are_one_for_each_record(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.compute_loss_func = own_loss
    with pytest.raises(InvalidArgument, match="loss="):
        private_trainer(trainer, **BUDGET)
    trainer.compute_loss_func = None
    private = private_trainer(trainer, loss=lambda outputs, labels: outputs["logits"].square().mean(), **BUDGET)
    with pytest.raises(InvalidArgument, match="one loss for each"):
        trainer.train()
    assert private.purse.spent.releases == 0


@pytest.mark.parametrize("name", ["accumulate", "loss_reduction", "scaler"])
def test_what_the_trainer_says_is_not_said_twice(tmp_path, name):
    with pytest.raises(InvalidArgument, match=name):
        private_trainer(make_trainer(tmp_path), **BUDGET, **{name: 2})


# Losses of single records.


def test_the_loss_of_a_record_does_not_depend_on_the_others():
    loss = usual_loss(shift=True, smoothing=0.0, task=None)
    logits = torch.randn(4, 6, 9, generator=torch.Generator().manual_seed(3))
    labels = torch.randint(0, 9, (4, 6), generator=torch.Generator().manual_seed(4))
    labels[1, 2:], labels[2] = -100, -100
    together = loss({"logits": logits}, labels)
    alone = torch.cat([loss({"logits": logits[k : k + 1]}, labels[k : k + 1]) for k in range(4)])
    assert torch.allclose(together, alone)
    assert together[2] == 0


@pytest.mark.parametrize("kind", ["classes", "regression", "labels", "smoothed"])
def test_the_mean_is_the_loss_of_the_model(kind):
    words = torch.randint(0, 50, (6, 8), generator=torch.Generator().manual_seed(3))
    labels = {"regression": torch.arange(6.0), "labels": torch.eye(6)[:, :3]}.get(kind, torch.arange(6) % 3)
    task = {"regression": "regression", "labels": "multi_label_classification"}.get(kind)
    model = make_bert(num_labels=1 if kind == "regression" else 3, problem_type=task).eval()
    outputs = model(input_ids=words, labels=labels)
    ours = mean_of(usual_loss(shift=False, smoothing=0.1 * (kind == "smoothed"), task=task))(outputs, labels)
    theirs = outputs.loss
    if kind == "smoothed":
        theirs = torch.nn.functional.cross_entropy(outputs.logits, labels, label_smoothing=0.1)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)


def test_labels_are_missed():
    with pytest.raises(InvalidArgument, match="no labels"):
        mean_of(usual_loss(shift=False, smoothing=0.0, task=None))({"logits": torch.zeros(2, 2)}, None)


def test_make_private_alone_gives_each_record_its_positions():
    model = make_bert()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(model, optimizer, texts(), batch_size=30, steps=2, **BUDGET)
    for batch in private.loader:
        model(**batch).loss.backward()
        optimizer.step()
    assert private.engine.stop_reason == "steps"
