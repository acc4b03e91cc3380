"""Images as tensors, views of them, and the fixed features of the image classifier."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.preprocessing._scattering import PIECE, Scattering2D, as_tensor, check_images

GROUP = 3  # channels that are normalised together
COSINES = 5  # lowest frequencies over places that are kept, in each direction
CHANNELS = (1, 3, 4)


class View(NamedTuple):
    """A public change of an image: degrees, factors, and shifts as parts of its sides."""

    turn: float = 0.0
    scale: float = 1.0
    shear: float = 0.0
    right: float = 0.0
    down: float = 0.0


_PIXEL = 1 / 28
# The most useful ones first; each is used with all before it.
VIEWS = (
    View(),
    *(View(right=_PIXEL * right, down=_PIXEL * down) for right, down in ((1, 0), (-1, 0), (0, 1), (0, -1))),
    View(turn=10.0),
    View(turn=-10.0),
    View(scale=1.08),
    View(scale=0.92),
    *(View(right=_PIXEL * right, down=_PIXEL * down) for right, down in ((1, 1), (-1, 1), (1, -1), (-1, -1))),
    View(shear=0.15),
    View(shear=-0.15),
)


def channels_first(X: Any, channels: str | None) -> Any:
    """Return images as (n, c, h, w). Without `channels` the place of 1, 3 or 4 channels tells the layout."""
    images = check_images(X)
    if channels not in (None, "first", "last"):
        raise InvalidArgument(f"channels must be 'first', 'last' or None; got {shown(channels)}. Omit it.")
    if images.ndim == 3:
        return images[:, None]
    first, last = (images.shape[place] in CHANNELS for place in (1, 3))
    if channels is None and first == last:
        what = f"X of shape {tuple(images.shape)} may have its channels first or last"
        raise InvalidArgument(f"{what}. Pass channels='first' or 'last'.")
    if channels == "first" or (channels is None and first):
        return images
    return images.permute(0, 3, 1, 2) if isinstance(images, Tensor) else images.transpose(0, 3, 1, 2)


def check_range(pixel_range: Any, images: Any) -> tuple[float, float]:
    """Return the declared range of pixels, by default that of their type."""
    kind = str(images.dtype).removeprefix("torch.")
    known = {"uint8": (0.0, 255.0), "bool": (0.0, 1.0)}
    if pixel_range is None and kind not in known:
        what = f"pixel_range must be declared for pixels of {kind}; got None"
        raise InvalidArgument(f"{what}. Pass for example pixel_range=(0, 1), by public knowledge.")
    low, high = known[kind] if pixel_range is None else _pair(pixel_range)
    return low, high


def _pair(pixel_range: Any) -> tuple[float, float]:
    given = pixel_range if isinstance(pixel_range, tuple | list) and len(pixel_range) == 2 else (math.nan, math.nan)
    low, high = (float(end) if isinstance(end, int | float | np.number) else math.nan for end in given)
    if not (-1e30 < low < high < 1e30):
        raise InvalidArgument(
            f"pixel_range must be two numbers, low and high; got {shown(pixel_range)}. Pass (0, 255)."
        )
    return low, high


def seen_as(images: Tensor, view: View) -> Tensor:
    """Return images (n, c, h, w) in a view, by bilinear interpolation; edges are continued."""
    if view == View():
        return images
    angle = math.radians(view.turn)
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    linear = turn @ np.array([[1.0, view.shear], [0.0, 1.0]]) / view.scale
    affine = np.column_stack([linear, [2 * view.right, 2 * view.down]])
    grid = F.affine_grid(
        torch.from_numpy(affine).to(images).expand(len(images), 2, 3), list(images.shape), align_corners=False
    )
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def features(images: Any, bounds: tuple[float, float], view: View, device: torch.device) -> Tensor:
    """Return rows of features of images (n, c, h, w): scattering, normalised by image, without high frequencies.

    Each row depends on its image alone. Pixels are clipped to `bounds`; NaN counts as the lowest.
    """
    low, high = bounds
    transform, piece = Scattering2D(), PIECE[device.type != "cpu"]
    rows = []
    with torch.no_grad():
        for first in range(0, len(images), piece):
            part = as_tensor(images[first : first + piece], device)
            part = (part.nan_to_num(low).clamp(low, high) - low) / (high - low)
            found = transform(seen_as(part, view)).flatten(1, 2)
            found = F.group_norm(found, found.shape[1] // GROUP)
            down, across = (_cosines(side, found) for side in found.shape[-2:])
            rows.append((down @ found @ across.mT).flatten(1))
    return torch.cat(rows)


def _cosines(places: int, like: Tensor) -> Tensor:
    """Return the lowest cosines over places, of length 1."""
    at, frequency = torch.arange(places) + 0.5, torch.arange(min(COSINES, places))[:, None]
    waves = torch.cos(math.pi * frequency * at / places)
    return F.normalize(waves, dim=1).to(like)


Tell = Callable[[int, int], None]


def features_of_views(images: Any, bounds: tuple[float, float], count: int, device: torch.device, tell: Tell) -> Tensor:
    """Return the features of the first `count` views of images, as (count, n, d)."""
    first = features(images, bounds, VIEWS[0], device)
    found = first.new_empty((count, *first.shape))
    found[0] = first
    for number in range(1, count):
        tell(number, count)
        found[number] = features(images, bounds, VIEWS[number], device)
    return found
