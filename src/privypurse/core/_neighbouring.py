"""The neighbouring relation: the meaning of "one record". Chosen once per purse."""

import enum

from privypurse.core._errors import InvalidArgument


class Neighbouring(enum.Enum):
    """Which pairs of data sets the guarantee makes hard to distinguish.

    Attributes
    ----------
    ADD_REMOVE
        One record is added or removed. The number of records is then itself private.
    REPLACE_ONE
        One record is exchanged for another. The number of records is public.
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @classmethod
    def parse(cls, neighbouring: "Neighbouring | str") -> "Neighbouring":
        """Read a relation from the enum itself or from its name."""
        given = neighbouring.strip().lower().replace("_", "-") if isinstance(neighbouring, str) else neighbouring
        try:
            return cls(given)
        except ValueError:
            what = f"neighbouring must be 'add-remove' or 'replace-one'; got {neighbouring!r}"
            remedy = "Pass 'add-remove', or 'replace-one' if the number of records is public"
            raise InvalidArgument(f"{what}. {remedy}.") from None
