"""Transformers that learn nothing: declared ranges, row lengths and declared categories."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

from privypurse import InvalidArgument
from privypurse.estimators import BoundedScaler, DeclaredOneHot, RowNormalizer

anything = st.floats(allow_nan=True, allow_infinity=True)
tables = hnp.arrays(
    st.sampled_from([np.float64, np.float32]),
    st.tuples(st.integers(1, 6), st.just(3)),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)
bounds = st.floats(-1e100, 1e100)


def frame(kind="pandas"):
    library = pytest.importorskip(kind)
    return library.DataFrame({"age": [30.0, 60.0, 200.0], "colour": ["red", "blue", "pink"]})


# BoundedScaler


@given(tables, st.tuples(bounds, bounds).filter(lambda pair: pair[1] - pair[0] >= 1e-100))
def test_scaled_numbers_lie_in_the_range_or_are_missing(X, pair):
    scaled = BoundedScaler(*pair, feature_range=(0.0, 2.0)).fit_transform(X)
    assert scaled.dtype == X.dtype
    assert (np.isnan(scaled) == np.isnan(X)).all()
    assert ((scaled >= 0) & (scaled <= 2) | np.isnan(X)).all()


@pytest.mark.parametrize("centre", [0.0, 1e10, -3e15])
@given(X=hnp.arrays(np.float64, (3, 2), elements=st.floats(0, 1)))
def test_scaling_loses_no_digits(centre, X):
    scaler = BoundedScaler(centre - 4, centre + 4, feature_range=(-2, 0.5))
    exact = X + centre  # what the numbers are after rounding
    expected = (exact - (centre - 4)) / 8 * 2.5 - 2
    assert scaler.transform(exact) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert scaler.inverse_transform(scaler.transform(exact)) == pytest.approx(exact, rel=1e-14, abs=1e-14)


@given(tables, hnp.arrays(np.float64, (1, 3), elements=anything))
def test_records_do_not_affect_one_another(X, other):
    for transformer in (
        BoundedScaler([-1, 0, 5], [1, 9, 6]),
        RowNormalizer(),
        RowNormalizer(2.0),
        DeclaredOneHot([0, 1], unknown="other", missing="column", sparse_output=False),
    ):
        alone = transformer.transform(X)
        together = transformer.fit_transform(np.vstack([X.astype(np.float64), other]))[:-1]
        np.testing.assert_allclose(alone, together, rtol=1e-6, atol=1e-30)


def test_scaling_there_and_back():
    scaler = BoundedScaler(lower=[0, -10], upper=[100, 10], feature_range=(0, 1))
    X = np.array([[0.0, 5.0], [25.0, -10.0], [1e9, -np.inf]])
    scaled = scaler.fit_transform(X)
    assert scaled == pytest.approx(np.array([[0, 0.75], [0.25, 0], [1, 0]]))
    assert scaler.inverse_transform(scaled) == pytest.approx(np.array([[0, 5], [25, -10], [100, -10]]))
    assert scaler.get_feature_names_out().tolist() == ["x0", "x1"]
    with pytest.raises(ValueError, match="expecting 2 features"):
        scaler.inverse_transform(X[:, :1])


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({"lower": [-3, -7.7], "upper": [3, 7.7]}, True),
        ({"lower": 0, "upper": [3, 0.1], "feature_range": (0, 1)}, True),
        ({"lower": [-0.1, -3], "upper": [0.3, 9], "feature_range": (-1, 3)}, True),
        ({"lower": [0, 0], "upper": [3, 5]}, False),
        ({"lower": 1, "upper": 2, "feature_range": (1, 2)}, False),
    ],
)
def test_sparse_tables_are_scaled_where_zeros_stay(settings, keeps):
    dense = np.array([[0.0, 2.0], [4.0, 0.0], [-9.0, 0.05]])
    scaler = BoundedScaler(**settings)
    if not keeps:
        with pytest.raises(InvalidArgument, match=r"zeros of a sparse X.*feature_range=.*X\.toarray"):
            scaler.fit_transform(sparse.csr_matrix(dense))
        return
    for make in (sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array):
        table = make(dense)
        scaled = scaler.fit_transform(table)
        assert sparse.issparse(scaled)
        assert scaled.toarray() == pytest.approx(scaler.transform(dense))
        assert (table.toarray() == dense).all()
        assert scaler.inverse_transform(scaled).toarray() == pytest.approx(
            scaler.inverse_transform(scaler.transform(dense))
        )


def test_duplicates_in_a_sparse_table_are_added_up_before_they_are_limited():
    twice = sparse.csr_matrix((np.array([0.8, 0.8]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    assert BoundedScaler().transform(twice).toarray().tolist() == [[1.0, 0.0]]
    assert RowNormalizer().transform(twice).toarray().tolist() == [[1.0, 0.0]]
    assert twice.nnz == 2


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_data_frames_keep_their_names(kind):
    ages = frame(kind)[["age"]]
    scaler = BoundedScaler(lower={"age": 0, "other": 3}, upper={"age": 120}).set_output(transform=kind)
    scaled = scaler.fit_transform(ages)
    assert type(scaled) is type(ages)
    assert list(scaled.columns) == ["age"]
    assert np.asarray(scaled)[:, 0] == pytest.approx([-0.5, 0.0, 1.0])
    # Ranges by name need no fit either.
    assert BoundedScaler({"age": 0}, {"age": 120}).transform(ages)[:, 0] == pytest.approx([-0.5, 0.0, 1.0])
    back = scaler.inverse_transform(scaled)
    assert np.asarray(back)[:, 0] == pytest.approx([30, 60, 120])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lower": [0, 0, 0]}, "lower must be a number, one number for each of the 2 columns"),
        ({"upper": None}, "upper must be a number"),
        ({"lower": np.nan}, "lower must hold finite numbers"),
        ({"upper": np.inf}, "upper must hold finite numbers"),
        ({"upper": "5"}, "upper must be a number"),
        ({"upper": [1.0, "5"]}, "upper must hold finite numbers"),
        (
            {"lower": [0, 2], "upper": [1, 2]},
            "lower must be less than upper in every column, by 1e-100 or more; got 2.0 and 2.0 in column 1",
        ),
        ({"lower": {"age": 0}}, "lower is declared by column name, but X has no named columns"),
        ({"lower": 0, "upper": 5e-324}, "lower must be less than upper"),
        ({"feature_range": (1, 1)}, "feature_range must be two ordinary numbers"),
        ({"feature_range": 3}, "feature_range must be two ordinary numbers"),
        ({"feature_range": (0, np.nan)}, "feature_range must be two ordinary numbers"),
    ],
)
def test_wrong_ranges_are_refused(settings, message):
    for act in ("fit", "transform"):
        with pytest.raises(InvalidArgument, match=message):
            getattr(BoundedScaler(**settings), act)(np.zeros((2, 2)))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_other_columns_than_in_fit_are_refused(kind):
    library = pytest.importorskip(kind)
    scaler = BoundedScaler().fit(library.DataFrame({"a": [1.0], "b": [2.0]}))
    with pytest.raises(ValueError, match=r"order|columns that"):
        scaler.transform(library.DataFrame({"b": [1.0], "a": [2.0]}))


def test_a_column_without_a_range_is_named():
    with pytest.raises(InvalidArgument, match="upper must have a number for every column of X; got none for 'age'"):
        BoundedScaler(lower={"age": 0}, upper={"weight": 1}).fit(frame()[["age"]])


def test_errors_do_not_quote_the_data():
    for transformer in (BoundedScaler(), RowNormalizer()):
        with pytest.raises(InvalidArgument, match="X must hold numbers") as caught:
            transformer.fit(np.array([["secret", 1.0]], dtype=object))
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None or "secret" not in repr(caught.value.__cause__)


# RowNormalizer


@given(tables, st.sampled_from([0.5, 1.0, 7.0]))
def test_rows_have_the_length(X, norm):
    rows = RowNormalizer(norm).fit_transform(X)
    finite = np.isfinite(X).all(axis=1)
    assert rows.dtype == X.dtype
    assert np.isnan(rows[~finite]).all()
    before, after = (np.linalg.norm(part[finite].astype(np.float64), axis=1) for part in (X, rows))
    np.testing.assert_allclose(after, np.minimum(before, norm), rtol=1e-5)
    as_sparse = RowNormalizer(norm).fit_transform(sparse.csr_matrix(X))
    kept = X != 0
    np.testing.assert_allclose(as_sparse.toarray()[kept], rows[kept], rtol=1e-5)


def test_rows_of_any_size():
    X = np.array([[3e300, 4e300], [3e-310, 4e-310], [0.0, 0.0], [0.3, 0.4]])
    assert RowNormalizer().transform(X) == pytest.approx(np.array([[0.6, 0.8], [3e-310, 4e-310], [0, 0], [0.3, 0.4]]))
    assert RowNormalizer().transform(sparse.csr_matrix((2, 3))).nnz == 0


@pytest.mark.parametrize(("name", "value"), [("norm", 0.0), ("norm", "1"), ("norm", np.nan)])
def test_wrong_lengths_are_refused(name, value):
    for act in ("fit", "transform"):
        with pytest.raises(InvalidArgument, match=f"{name} must be"):
            getattr(RowNormalizer(**{name: value}), act)([[1.0]])


# DeclaredOneHot


@pytest.mark.parametrize("sparse_output", [True, False])
def test_categories(sparse_output):
    X = [["red", 1], ["pink", 2], [None, np.nan], ["blue", "1"]]
    lists = [["red", "blue"], [2, 1]]

    def encoded(**settings):
        result = DeclaredOneHot(lists, sparse_output=sparse_output, **settings).fit_transform(X)
        assert sparse.issparse(result) == sparse_output
        return (result.toarray() if sparse_output else result).astype(int).tolist()

    assert encoded() == [[1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert encoded(unknown="other") == [
        [1, 0, 0, 0, 1, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 0, 0, 1],
        [0, 1, 0, 0, 0, 1],
    ]
    assert encoded(unknown="other", missing="column")[2] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert encoded(missing="column")[2] == [0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_data_frames_of_categories(kind):
    colours = frame(kind)[["colour"]]
    hot = DeclaredOneHot({"colour": ["blue", "red"]}, unknown="other", sparse_output=False).set_output(transform=kind)
    result = hot.fit_transform(colours)
    assert type(result) is type(colours)
    assert list(result.columns) == ["colour_blue", "colour_red", "colour_other"]
    assert np.asarray(result).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    with pytest.raises(
        InvalidArgument, match="categories must have a list for every column of X; got none for 'colour'"
    ):
        DeclaredOneHot({"color": ["blue"]}).fit(colours)


def test_all_that_pandas_calls_missing():
    pandas = pytest.importorskip("pandas")
    hot = DeclaredOneHot(["a"], missing="column", sparse_output=False)
    for column in (
        pandas.Series(["a", None], dtype="object"),
        pandas.Series(["a", pandas.NA], dtype="string"),
        pandas.Series(["a", None], dtype="category"),
        pandas.Series(["a", pandas.NaT], dtype="object"),
    ):
        assert hot.fit_transform(column.to_frame()).tolist() == [[1, 0], [0, 1]]
    numbers = pandas.Series([3, None], dtype="Int64").to_frame("n")
    assert DeclaredOneHot({"n": [3]}, missing="column").fit_transform(numbers).toarray().tolist() == [[1, 0], [0, 1]]


@given(st.lists(st.sampled_from([0, 1, 2, 5, -1]), min_size=1), st.permutations([0, 1, 2, -1]))
def test_numbers_are_found_in_any_order_and_type(values, listed):
    expected = [[float(value == category) for category in listed] for value in values]
    for dtype in (np.int64, np.float32, object, np.int8):
        X = np.array(values, dtype=dtype).reshape(-1, 1)
        assert DeclaredOneHot(listed).fit_transform(X).toarray().tolist() == expected


def test_values_that_cannot_be_looked_up_are_unknown():
    X = np.empty((1, 1), dtype=object)
    X[0, 0] = [1, 2]
    assert DeclaredOneHot(["a"], unknown="other").transform(X).toarray().tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "categories must be the declared categories; got None"),
        ({"categories": "ab"}, "categories must be the declared"),
        ({"categories": []}, "categories must be the declared"),
        ({"categories": [["a"], []]}, "categories must be lists of different values"),
        ({"categories": [["a", "a"], ["b"]]}, "categories must be lists of different values"),
        ({"categories": [["a", None], ["b"]]}, "missing='column'"),
        ({"categories": [["a"], "b"]}, "categories must be lists of different values"),
        ({"categories": [["a"]]}, "one list for each of the 2 columns of X; got 1"),
        ({"categories": {"x": ["a"]}}, "categories are declared by column name, but X has no named columns"),
        ({"categories": ["a"], "unknown": "drop"}, "unknown must be one of"),
        ({"categories": ["a"], "missing": None}, "missing must be one of"),
    ],
)
def test_wrong_categories_are_refused(settings, message):
    for act in ("fit", "transform"):
        with pytest.raises(InvalidArgument, match=message):
            getattr(DeclaredOneHot(**settings), act)([["a", "b"]])


def test_names_of_columns():
    hot = DeclaredOneHot([["a"], ["b", "c"]], missing="column")
    with pytest.raises(ValueError, match="not fitted yet"):
        hot.get_feature_names_out()
    hot.fit([["a", "b"]])
    assert hot.get_feature_names_out(["p", "q"]).tolist() == ["p_a", "p_missing", "q_b", "q_c", "q_missing"]
    with pytest.raises(ValueError, match="should have length equal"):
        hot.get_feature_names_out(["p"])


# All of them


def test_in_a_pipeline_of_columns():
    table = frame()
    columns = ColumnTransformer(
        [
            ("number", BoundedScaler({"age": 0}, {"age": 120}), ["age"]),
            ("category", DeclaredOneHot({"colour": ["blue", "red"]}, sparse_output=False), ["colour"]),
        ]
    )
    pipeline = make_pipeline(columns, RowNormalizer()).set_output(transform="pandas")
    result = pipeline.fit_transform(table)
    assert list(result.columns) == ["number__age", "category__colour_blue", "category__colour_red"]
    assert (np.linalg.norm(result, axis=1) <= 1 + 1e-12).all()
    again = pickle.loads(pickle.dumps(pipeline)).transform(table)
    assert np.asarray(again).tolist() == np.asarray(result).tolist()
    assert clone(pipeline).fit_transform(table).equals(result)
