"""Distributed training: the first process charges the purse and draws the noise, once for all."""

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from privypurse.core._errors import InvalidArgument


class Processes:
    """The processes of a `torch.distributed` group, or this one alone: then nothing is to be shared.

    Only the first process uses the purse. It sends the sample, the noisy sum and the end of the run
    to the others, so that noise is added once and all processes make the same step.
    """

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.count = dist.get_world_size() if together else 1
        self.alone = self.count == 1

    def check_same(self, what: str, value: Any) -> None:
        """Raise InvalidArgument where processes have different values."""
        if self.count > 1:
            values: list[Any] = [None] * self.count
            dist.all_gather_object(values, value)
            if any(other != values[0] for other in values):
                raise InvalidArgument(
                    f"processes have different {what}. Give each the whole data set in the same order: the first process "
                    "draws the sample for all."
                )

    @property
    def first(self) -> bool:
        """Whether this process charges the purse."""
        return self.rank == 0

    def agree(self, module: nn.Module) -> None:
        """Broadcast the first process's parameters and buffers."""
        if self.count > 1:
            for tensor in (*module.parameters(), *module.buffers()):
                dist.broadcast(tensor.data, 0)

    def tell(self, value: Any) -> Any:
        """Return the first process's value in all of them."""
        box = [value]
        dist.broadcast_object_list(box, 0)
        return box[0]

    def share(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return this process's part of the first one's sample."""
        whole: NDArray[np.intp] = self.tell(rows)
        return whole[self.rank :: self.count]

    def add_up(self, part: Tensor) -> Tensor:
        """Return the sum of all parts in the first process; the result in others is not defined."""
        part = part.clone()
        dist.reduce(part, 0)
        return part

    def hand_out(self, noisy: Tensor | None, like: Tensor) -> Tensor:
        """Return the first process's noisy sum in all of them."""
        value = torch.empty_like(like, dtype=torch.float64) if noisy is None else noisy.contiguous()
        dist.broadcast(value, 0)
        return value
