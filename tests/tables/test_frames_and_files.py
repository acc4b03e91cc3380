"""A frame that pandas parsed from a file is encoded as the file is, for every kind of column."""

import datetime
import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privypurse.tables._encoder import TableEncoder
from privypurse.tables._files import TableFile
from privypurse.tables._schema import MISSING_VALUES, Category, Date, Number, Schema

BOTH = {"missing": True}
DAYS = {
    "first": datetime.date(2020, 1, 1),
    "last": datetime.date(2025, 1, 1),
    "parts": ("position", "month", "weekday"),
}


def a_category(*categories):
    return Category(name="x", categories=categories, other=True, missing=True)


# A column, and values as a file has them.
KINDS = {
    "numbers": (
        Number(name="x", range=(0, 100), **BOTH),
        ["1", "20", "+4", "999", "1e1", ".5", "0.25", "999.0", "inf"],
    ),
    "cuts": (Number(name="x", cuts=(1.0, 2.0, 3.5), **BOTH), ["1", "2.0", "3.5", "7", "-1"]),
    "whole numbers": (a_category("1", "2", "30"), ["1", "2", "30", "7", "1.0", "3e1", "999"]),
    "decimals": (a_category("1.0", "2.50", "999.5"), ["1", "2.5", "2.50", "999.5", "7.25"]),
    "words": (a_category("a", "b c", "é"), ["a", " b c", "é ", "A", "1"]),
    "words and numbers": (a_category("a", "1"), ["a", "1", "1.0", "2"]),
    "booleans": (a_category("False", "True"), ["True", "False", "TRUE", "false"]),
    "booleans in lower case": (a_category("false", "true"), ["True", "False", "TRUE", "false"]),
    "booleans as numbers": (a_category("0", "1"), ["True", "False"]),
    "booleans of other words": (a_category("no", "yes"), ["True", "False", "yes", "no", "Yes"]),
    "dates": (Date(name="x", **DAYS, **BOTH), ["2021-05-06", "2024-12-31", "1999-01-01", "junk"]),
    "digits of dates": (Date(name="x", **DAYS, **BOTH), ["20210506", "20241231"]),
    "digits in an order": (Date(name="x", format="%d%m%Y", **DAYS, **BOTH), ["01022024", "31122023"]),
}
MISSING = ["", "NA", "NaN"]


def check_agree(path, column, values):
    path.write_text("id,x\n" + "".join(f"{row},{value}\n" for row, value in enumerate(values)), encoding="utf-8")
    encoder = TableEncoder(Schema((column,), missing_values=(*MISSING_VALUES, "999")))
    expected = np.vstack([encoder.transform(block) for block in TableFile(path).blocks(["x"], strict=True)])
    parsed = pd.read_csv(path)
    frames = [parsed, parsed.convert_dtypes(), parsed.astype(object), pd.read_csv(path, dtype=str)]
    frames.append(pd.read_csv(path, dtype_backend="pyarrow"))
    for frame in frames:
        # Its reader may be off by the last digit of a double.
        np.testing.assert_allclose(encoder.transform(frame), expected, rtol=1e-6, err_msg=f"{values}: {frame.x.dtype}")


@pytest.mark.parametrize("name", KINDS)
def test_a_frame_agrees_with_its_file(tmp_path, name):
    column, values = KINDS[name]
    # Which values are together decides how pandas reads them.
    for size in (1, len(values)):
        for chosen in itertools.combinations(values, size):
            check_agree(tmp_path / "file.csv", column, [*chosen, "", chosen[0]])
            check_agree(tmp_path / "file.csv", column, [*chosen, chosen[0]])


@pytest.mark.parametrize("name", KINDS)
def test_a_frame_agrees_with_its_file_whatever_is_in_it(tmp_path, name):
    column, values = KINDS[name]

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.sampled_from([*values, *MISSING]), min_size=1, max_size=8))
    def agrees(chosen):
        check_agree(tmp_path / "file.csv", column, chosen)

    agrees()


def test_codes_with_leading_zeros_are_not_numbers(tmp_path):
    (tmp_path / "file.csv").write_text("x\n01\n1\n")
    encoder = TableEncoder(Schema((a_category("1"),)))
    as_text = encoder.transform(pd.read_csv(tmp_path / "file.csv", dtype=str))
    assert as_text.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_digits_with_a_number_of_days_are_dates():
    encoder = TableEncoder(Schema((Date(name="x", format="%d%m%Y", **DAYS, **BOTH),)))
    first, second = encoder.transform({"x": [1022024.0, 31122023.0]})
    assert first[2] == second[12] == 1  # February and December
