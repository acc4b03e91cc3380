"""The examples and tutorials of Opacus on made-up data: each step is that of one record at a time."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse.pytorch import fix, make_private  # noqa: E402
from tests.pytorch.layer_cases import assert_step, trained_of  # noqa: E402

RECORDS = 12


def mnist():
    """Classifier of examples/mnist.py."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


class Residual(nn.Module):
    def __init__(self, seen, width, stride):
        super().__init__()
        self.first, self.norm = nn.Conv2d(seen, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.second, self.last = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.beside = nn.Sequential(nn.Conv2d(seen, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.last(self.second(self.act(self.norm(self.first(x))))) + self.beside(x))


def cifar10():
    """ResNet of examples/cifar10.py; its BatchNorm is replaced as in the guide to the module validator."""
    start = nn.Conv2d(3, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
    blocks = Residual(4, 4, 1), Residual(4, 8, 2)
    return fix(nn.Sequential(*start, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)))


class Words(nn.Module):
    """Classifier of names by letters (examples/char-lstm-classification.py) and of reviews by words (examples/imdb.py)."""

    def __init__(self, **settings):
        super().__init__()
        self.words, self.lstm = nn.Embedding(20, 8, padding_idx=0), nn.LSTM(8, 12, batch_first=True, **settings)
        self.out = nn.Linear(12, 10)

    def forward(self, x, lengths=None):
        x = self.words(x)
        if lengths is not None:
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.out(self.lstm(x)[1][0][-1])


class Bags(nn.Module):
    """Classifier of the tutorial on samplers of gradients: an EmbeddingBag with offsets."""

    def __init__(self):
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(20, 8), nn.Linear(8, 10)

    def forward(self, x):
        return self.out(self.bag(x.flatten(), torch.arange(len(x)) * x.shape[1]))


class Adapted(nn.Module):
    """A frozen linear map and a trained one of rank 2, as PEFT writes it for the tutorial on LoRA."""

    def __init__(self, seen, width):
        super().__init__()
        self.base_layer = nn.Linear(seen, width).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(seen, 2, bias=False), nn.Linear(2, width, bias=False)

    def forward(self, x):
        return self.base_layer(x) + 2 * self.lora_B(self.lora_A(x))


EXAMPLES = {
    "mnist": (mnist, lambda: (torch.randn(RECORDS, 1, 28, 28),)),
    "cifar10": (cifar10, lambda: (torch.randn(RECORDS, 3, 8, 8),)),
    "names": (lambda: Words(num_layers=2), lambda: (torch.randint(1, 20, (RECORDS, 9)), torch.arange(RECORDS) % 9 + 1)),
    "reviews": (Words, lambda: (torch.randint(20, (RECORDS, 15)),)),
    "bags": (Bags, lambda: (torch.randint(20, (RECORDS, 7)),)),
    "lora": (
        lambda: nn.Sequential(Adapted(6, 8), nn.Tanh(), Adapted(8, 10)),
        lambda: (torch.randn(RECORDS, 6),),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("backward", [False, True], ids=["own loop", "engine.backward"])
def test_a_step_is_that_of_one_record_at_a_time(name, backward):
    torch.manual_seed(0)
    make, inputs = EXAMPLES[name]
    assert_step(make(), (*inputs(), torch.randint(10, (RECORDS,))), backward=backward)


def discriminator():
    """Discriminator of examples/dcgan.py: one number for each image."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)),
        *(nn.Conv2d(8, 16, 4, 2, 1), nn.GroupNorm(4, 16), nn.LeakyReLU(0.2, inplace=True)),
        *(nn.Conv2d(16, 1, 4), nn.Flatten(0)),
    )


def test_a_discriminator_is_trained_on_real_and_made_up_images():
    torch.manual_seed(0)
    images = torch.randn(40, 1, 16, 16)
    judge = discriminator()
    maker = nn.Sequential(nn.ConvTranspose2d(5, 8, 8), nn.ReLU(), nn.ConvTranspose2d(8, 1, 2, 2), nn.Tanh())
    optimizers = [torch.optim.Adam(module.parameters(), lr=2e-3) for module in (judge, maker)]
    run = {"records": 40, "epsilon": 2.0, "delta": 1e-5, "batch_size": 10, "steps": 4}
    private = make_private(judge, optimizers[0], (images,), **run)
    for (real,) in private.loader:
        made = maker(torch.randn(len(real), 5, 1, 1))
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(made.detach())).mean()
        loss.backward()
        optimizers[0].step()
        judge.eval()  # the generator sees no records
        optimizers[1].zero_grad()
        F.softplus(-judge(made)).mean().backward()
        optimizers[1].step()
        judge.train()
    assert (private.engine.stop_reason, private.purse.spent.releases) == ("steps", 4)
    assert 1.99 < private.purse.spent.epsilon <= 2.0


def test_a_step_of_a_discriminator_is_that_of_one_image_at_a_time():
    torch.manual_seed(0)
    judge = discriminator()
    assert len(list(trained_of(judge))) == 8
    targets = (torch.arange(RECORDS) % 2).double()
    assert_step(judge, (torch.randn(RECORDS, 1, 16, 16), targets), nn.BCEWithLogitsLoss())
