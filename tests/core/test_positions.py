"""Sparse matrices whose entries lie outside of their shape are refused, whatever their format."""

import numpy as np
import pytest
from scipy import sparse

from privypurse.core._checks import check_positions
from privypurse.core._errors import InvalidArgument

FORMATS = ["csr", "csc", "bsr", "coo", "lil", "dia", "dok"]


def a_matrix(form):
    return sparse.csr_matrix(np.arange(1.0, 13.0).reshape(4, 3) * (np.arange(12).reshape(4, 3) % 3 > 0)).asformat(form)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_taken_whole(form):
    check_positions(a_matrix(form))
    check_positions(getattr(sparse, f"{form}_matrix")((4, 3)))


def with_part(form, name, change):
    matrix = a_matrix(form)
    setattr(matrix, name, change(np.array(getattr(matrix, name), copy=True)))
    return matrix


def put(place, value):
    def change(array):
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("form", "name", "change"),
    [
        ("csr", "indices", put(0, 3)),
        ("csr", "indices", put(0, -1)),
        ("csr", "indptr", put(0, 1)),
        ("csr", "indptr", put(-1, 99)),
        ("csr", "indptr", lambda starts: starts[:-1]),
        ("csr", "indptr", lambda starts: starts[::-1].copy()),
        ("csr", "indptr", lambda starts: starts / 2),
        ("csr", "data", lambda values: values[:, None]),
        ("csc", "indices", put(0, 4)),
        ("bsr", "data", lambda values: values[:, :0]),
        ("coo", "row", put(0, 4)),
        ("coo", "col", put(0, 3)),
        ("coo", "data", lambda values: values[:-1]),
        ("dia", "offsets", lambda offsets: offsets[:-1]),
        ("dia", "offsets", lambda offsets: offsets.astype(np.int64) + 2**32),
        ("dia", "data", lambda values: values[0]),
    ],
)
def test_positions_outside_of_the_shape_are_refused(form, name, change):
    with pytest.raises(InvalidArgument, match="Rebuild the matrix"):
        check_positions(with_part(form, name, change))


@pytest.mark.parametrize("column", [3, -1, 1.5, "a", None])
def test_lists_and_keys_with_other_columns_are_refused(column):
    lists, keys = a_matrix("lil"), a_matrix("dok")
    lists.rows[0][0] = column
    keys._dict[0, column] = 1.0
    for matrix in (lists, keys):
        with pytest.raises(InvalidArgument, match="Rebuild the matrix"):
            check_positions(matrix)


def test_lists_of_different_length_are_refused():
    matrix = a_matrix("lil")
    matrix.data[0].append(1.0)
    with pytest.raises(InvalidArgument, match="Rebuild the matrix"):
        check_positions(matrix)


def test_what_is_no_matrix_is_refused():
    for matrix in (object(), sparse.coo_array(np.ones(3))):
        with pytest.raises(InvalidArgument, match="Rebuild the matrix"):
            check_positions(matrix)
