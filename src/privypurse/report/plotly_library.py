"""The drawing library, to be written into the page so that it needs no network."""

from functools import cache

from privypurse.core.errors import InvalidArgument
from privypurse.report.markup import embedded_script


@cache
def source() -> str:
    """Return the source of plotly.js, about 5 MB, as it may stand in a script element."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise InvalidArgument(
            'a report draws its plots with plotly, which is not installed. Install it: pip install "privypurse[cli]"'
        ) from error
    return embedded_script(str(get_plotlyjs()))
