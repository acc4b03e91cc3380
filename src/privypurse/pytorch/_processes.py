"""Several processes that train one module together, under `torch.distributed`."""

from typing import Any

import torch.distributed as dist


class Processes:
    """The processes of a `torch.distributed` group, or this one alone: then nothing is to be shared.

    Only the first process uses the purse. It sends sample, noisy sum and end of the run to the others.
    """

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.count = dist.get_world_size() if together else 1
        self.alone, self.first = self.count == 1, self.rank == 0  # the first one charges the purse

    def tell(self, value: Any) -> Any:
        """Return the first process's value in all of them."""
        box = [value]
        dist.broadcast_object_list(box, 0)
        return box[0]
