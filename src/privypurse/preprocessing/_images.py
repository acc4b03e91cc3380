"""Images as tensors, views of them, and the fixed features of the image classifier."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.preprocessing._scattering import PIECE, Scattering2D, as_tensor, check_images

CHANNELS = (1, 3, 4)
SCALES, PLACES = 3, 4  # of scattering: at most so many scales, with at least so many places along a side
COSINES = 5  # lowest frequencies over places that are kept, in each direction
# Ends of the ranges of views: degrees, a share of the size, a shear, and shares of both sides.
REACH = np.array([12.0, 0.1, 0.15, 1.5 / 28, 1.5 / 28])
RATIO = 1.1347241384015194  # of the sequence of views; solves x^6 = x + 1


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


def view(number: int) -> np.ndarray[Any, Any]:
    """Return the affine map of a view. The first is the identity; the sequence fills the ranges evenly."""
    place = (0.5 + number * RATIO ** -np.arange(1.0, 1 + REACH.size)) % 1
    turn, scale, shear, right, down = REACH * (2 * place - 1)
    sine, cosine = math.sin(math.radians(turn)), math.cos(math.radians(turn))
    linear = np.array([[cosine, -sine], [sine, cosine]]) @ np.array([[1.0, shear], [0.0, 1.0]]) / (1 + scale)
    return np.column_stack([linear, [2 * right, 2 * down]])


def seen_in(images: Tensor, number: int) -> Tensor:
    """Return images (n, c, h, w) in a view, by bilinear interpolation; edges are continued."""
    if number == 0:
        return images
    maps = torch.from_numpy(view(number)).to(images).expand(len(images), 2, 3)
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def features(images: Any, bounds: tuple[float, float], number: int, device: torch.device) -> Tensor:
    """Return rows of features of images (n, c, h, w) in a view: scattering, normalised by channel and image.

    Each row depends on its image alone. Pixels are clipped to `bounds`; NaN counts as the lowest.
    High frequencies over places are left out.
    """
    low, high = bounds
    transform, piece = Scattering2D(scales(images.shape[-2:])), PIECE[device.type != "cpu"]
    rows = []
    with torch.no_grad():
        for first in range(0, len(images), piece):
            part = as_tensor(images[first : first + piece], device)
            part = (part.nan_to_num(low).clamp(low, high) - low) / (high - low)
            found = transform(seen_in(part, number)).flatten(1, 2)
            found = F.group_norm(found, found.shape[1])
            down, across = (_cosines(side, found) for side in found.shape[-2:])
            rows.append((found.flatten(2) @ torch.kron(down, across).mT).flatten(1))
    return torch.cat(rows)


def scales(sides: Any) -> int:
    """Return the number of scales of scattering: fewer for small images."""
    return max([1, *(J for J in range(2, SCALES + 1) if math.ceil(min(sides) / 2**J) >= PLACES)])


def _cosines(places: int, like: Tensor) -> Tensor:
    """Return the lowest cosines over places, of length 1."""
    at, frequency = torch.arange(places) + 0.5, torch.arange(min(COSINES, places))[:, None]
    waves = torch.cos(math.pi * frequency * at / places)
    return F.normalize(waves, dim=1).to(like)


Tell = Callable[[int, int], None]


def features_of_views(images: Any, bounds: tuple[float, float], count: int, device: torch.device, tell: Tell) -> Tensor:
    """Return the features of the first `count` views of images, as (count, n, d)."""
    tell(0, count)
    first = features(images, bounds, 0, device)
    found = first.new_empty((count, *first.shape))
    found[0] = first
    for number in range(1, count):
        tell(number, count)
        found[number] = features(images, bounds, number, device)
    return found
