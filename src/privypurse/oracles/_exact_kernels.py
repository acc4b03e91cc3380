"""Compiled integer sums: the gradients of ``_kernels``, with each record rounded to a lattice.

Secure noise requires that a record's integers are a function of that record and of public values
alone: not of its position in a block, the block's length, the threads, or other records. Hence:

* Everything up to the rounding is compiled without reordering or contraction (no ``fastmath``).
  Each operation is then one of IEEE 754, with the same bits in a vector as alone. The functions
  shared with ``_kernels`` are compiled a second time, from the same source.
* Sums over the columns of a row, which the compiler may not vectorise under these rules, are
  written out for lanes: column j goes to lane j mod L, and the lanes are added in a fixed tree.
* After the rounding there are only integers, whose sums do not depend on any order.

``docs/proofs/exact_noise.md`` shows that no record passes its bound (Claim 0a) and that no sum
overflows (Claim 0c): 32 bits hold a coordinate's sum over a block of at most 256 rows.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from privypurse.oracles import _kernels, _links, _sparse_kernels
from privypurse.oracles._kernels import _BLOCK_NUMBERS, _NARROW, BLOCK, limited_coefficient, scaled_coefficient

# Not cached on disk, where numba would confuse them with the fast ones; their callers hold a copy.
_strict = njit(nogil=True, error_model="numpy")
_products_by_column = _strict(_kernels._raw_products_by_column.py_func)
_finish_scores = _strict(_kernels.finish_scores.py_func)
_slopes = _strict(_links.slopes.py_func)
_transpose, _sparse_products = _kernels._transpose, _sparse_kernels._raw_products  # strict already

_LANE_BYTES = 64
# Added to a double below 2^51, this rounds the sum to an integer that can be read off its bits.
_SHIFT = 1.5 * 2.0**52
_SHIFT_BITS = 0x4338000000000000


@intrinsic
def nearest(typing_context: Any, value: Any) -> Any:
    """Round to the nearest integer: a float32 below 2^31 to 32 bits, a double below 2^51 to 64."""
    single = value == types.float32

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if single:
            kind = ir.FloatType()
            rint = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), "llvm.rint.f32")
            return builder.fptosi(builder.call(rint, arguments), ir.IntType(32))
        shifted = builder.fadd(arguments[0], ir.Constant(ir.DoubleType(), _SHIFT))
        return builder.sub(builder.bitcast(shifted, ir.IntType(64)), ir.Constant(ir.IntType(64), _SHIFT_BITS))

    return (types.int32(types.float32) if single else types.int64(types.float64)), codegen


@intrinsic
def _plus(typing_context: Any, first: Any, second: Any) -> Any:
    """Add two integers without widening 32-bit ones, as ``+`` would."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.add(*arguments)

    return first(first, first), codegen


@intrinsic
def row_products(typing_context: Any, table: Any, row: Any, vector: Any) -> Any:
    """Return the products of a row with a vector and with itself, in the precision of the table.

    Rows must be contiguous. As many lanes as fill 64 bytes, each a chain of separate
    multiplications and additions; missing columns of the last step count as zero; then the upper
    half of the lanes is added to the lower, down to one. This fixed formula does not depend on the
    machine's instructions.
    """
    scalar = table.dtype

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        other = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        kind, size, index, short = context.get_value_type(scalar), scalar.bitwidth // 8, ir.IntType(64), ir.IntType(32)
        lanes = _LANE_BYTES // size
        wide, pointer = ir.VectorType(kind, lanes), ir.VectorType(kind, lanes).as_pointer()
        columns = builder.extract_value(array.shape, 1)
        start = builder.gep(array.data, [builder.mul(arguments[1], columns)])
        zero = ir.Constant(wide, [ir.Constant(kind, 0.0)] * lanes)
        product, square = cgutils.alloca_once_value(builder, zero), cgutils.alloca_once_value(builder, zero)

        def step(x: Any, y: Any) -> None:
            builder.store(builder.fadd(builder.load(product), builder.fmul(x, y)), product)
            builder.store(builder.fadd(builder.load(square), builder.fmul(x, x)), square)

        def at(base: Any, offset: Any) -> Any:
            return builder.bitcast(builder.gep(base, [offset]), pointer)

        steps = builder.sdiv(columns, index(lanes))
        with cgutils.for_range(builder, steps) as loop:
            offset = builder.mul(loop.index, index(lanes))
            step(*(builder.load(at(base, offset), align=size) for base in (start, other)))
        done = builder.mul(steps, index(lanes))
        with builder.if_then(builder.icmp_signed("<", done, columns)):
            places = ir.VectorType(short, lanes)
            empty = ir.Constant(places, ir.Undefined)
            left = builder.insert_element(empty, builder.trunc(builder.sub(columns, done), short), short(0))
            left = builder.shuffle_vector(left, empty, ir.Constant(places, [short(0)] * lanes))
            present = builder.icmp_signed("<", ir.Constant(places, [short(k) for k in range(lanes)]), left)
            form = ir.FunctionType(wide, [pointer, short, ir.VectorType(ir.IntType(1), lanes), wide])
            name = f"llvm.masked.load.v{lanes}f{8 * size}.p0"
            load = cgutils.get_or_insert_function(builder.module, form, name)
            step(*(builder.call(load, [at(base, done), short(size), present, zero]) for base in (start, other)))

        def fold(values: Any) -> Any:
            width = lanes
            while width > 1:
                width //= 2
                ends = (range(width), range(width, 2 * width))
                places = (ir.Constant(ir.VectorType(short, width), list(map(short, half))) for half in ends)
                values = builder.fadd(*(builder.shuffle_vector(values, values, half) for half in places))
            return builder.extract_element(values, short(0))

        results = [fold(builder.load(place)) for place in (product, square)]
        return context.make_tuple(builder, signature.return_type, results)

    return types.UniTuple(scalar, 2)(table, types.int64, vector), codegen


@njit(nogil=True, cache=True, error_model="numpy")
def _in_units(
    coefficient: Any, scale: Any, squared: Any, frame: Any, clip_norm: float, per_unit: float, factor: Any, count: int
) -> int:
    """Clip contributions, write coefficients in steps, and return the constant column's sum."""
    constant = frame[0]
    total = 0
    if clip_norm < math.inf:
        for i in range(count):
            coefficient[i] = limited_coefficient(coefficient[i], squared[i], frame, clip_norm)
    for i in range(count):
        steps = scaled_coefficient(coefficient[i], scale[i]) * per_unit
        factor[i] = steps
        total += nearest(steps * constant)
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def _add_rows(table: Any, start: int, count: int, factor: Any, out: Any) -> None:
    """Add rounded rows, four at a time, to load and store the sums once for four rows."""
    i = 0
    while i + 4 <= count:
        f0, f1, f2, f3 = factor[i], factor[i + 1], factor[i + 2], factor[i + 3]
        r0, r1, r2, r3 = table[start + i], table[start + i + 1], table[start + i + 2], table[start + i + 3]
        for j in range(out.size):
            first = _plus(nearest(f0 * r0[j]), nearest(f1 * r1[j]))
            second = _plus(nearest(f2 * r2[j]), nearest(f3 * r3[j]))
            out[j] = _plus(out[j], _plus(first, second))
        i += 4
    while i < count:
        f0, r0 = factor[i], table[start + i]
        for j in range(out.size):
            out[j] = _plus(out[j], nearest(f0 * r0[j]))
        i += 1


@njit(nogil=True, cache=True, error_model="numpy")
def _add_columns(columns: Any, start: int, count: int, factor: Any, out: Any) -> None:
    for j in range(out.size):
        total = out[j]
        for i in range(count):
            total = _plus(total, nearest(factor[i] * columns[j, start + i]))
        out[j] = total


@njit(nogil=True, cache=True, error_model="numpy")
def _add_finite_rows(table: Any, start: int, count: int, factor: Any, scale: Any, out: Any) -> None:
    """Add the finite rows; the slow path, for blocks with a non-finite row."""
    for i in range(count):
        if scale[i] > 0.0:
            for j in range(out.size):
                out[j] = _plus(out[j], nearest(factor[i] * table[start + i, j]))


@njit(nogil=True, cache=True, error_model="numpy")
def dense_gradient(
    rows: Any, weights: Any, frame: Any, loss: Any, units: Any, by_column: bool, segments: Any, partial: Any
) -> None:
    """Sum clipped gradients in whole steps of ``1/per_unit``; other arguments as in ``_kernels``.

    `block_sum` is scratch space for a block's sums: 32 bits for a float32 table, else 64.
    """
    (table, target), (clip_norm, per_unit, block_sum) = rows, units
    n, d = table.shape
    rows_of_segment, first_segment, last_segment = segments
    code, parameter, clip, _, _ = loss
    bias, vector = float(weights[d]), weights[:d]
    block = min(BLOCK, max(16, _BLOCK_NUMBERS // d))
    narrow = d <= _NARROW and not by_column
    raw, squared = np.empty(BLOCK), np.empty(BLOCK)
    score, scale, slope = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    factor = np.empty(BLOCK, table.dtype)
    buffer = np.empty((d if narrow else 1, BLOCK), table.dtype)
    for segment in range(first_segment, last_segment):
        out = partial[segment]
        stop = min((segment + 1) * rows_of_segment, n)
        for b in range(segment * rows_of_segment, stop, block):
            count = min(block, stop - b)
            if by_column:
                _products_by_column(table.T, b, count, vector, raw[:count], squared[:count])
            elif narrow:
                _transpose(table, b, count, buffer)
                _products_by_column(buffer, 0, count, vector, raw[:count], squared[:count])
            else:
                for i in range(count):
                    raw[i], squared[i] = row_products(table, b + i, vector)
            clean = _finish_scores(raw[:count], squared[:count], bias, frame, score, scale)
            _slopes(code, parameter, clip, score, target[b : b + count], slope, count)
            out[d] += _in_units(slope, scale, squared, frame, clip_norm, per_unit, factor, count)
            block_sum[:] = 0
            if not clean:
                _add_finite_rows(table, b, count, factor, scale, block_sum)
            elif by_column:
                _add_columns(table.T, b, count, factor, block_sum)
            elif narrow:
                _add_columns(buffer, 0, count, factor, block_sum)
            else:
                _add_rows(table, b, count, factor, block_sum)
            for j in range(d):
                out[j] += block_sum[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _add_sparse_rows(table: Any, b: int, count: int, factor: Any, scale: Any, out: Any) -> None:
    values, columns, starts, ones = table
    for i in range(count):
        f, k, stop = factor[i], np.intp(starts[b + i]), np.intp(starts[b + i + 1])
        if scale[i] > 0.0:
            if ones:
                whole = nearest(f)
                while k + 2 <= stop:
                    # The columns of a row differ: both sums may be loaded before a store.
                    j0, j1 = columns[k], columns[k + 1]
                    s0, s1 = out[j0] + whole, out[j1] + whole
                    out[j0] = s0
                    out[j1] = s1
                    k += 2
                if k < stop:
                    out[columns[k]] += whole
            else:
                while k < stop:
                    out[columns[k]] += nearest(f * values[k])
                    k += 1


@njit(nogil=True, cache=True, error_model="numpy")
def sparse_gradient(rows: Any, weights: Any, frame: Any, loss: Any, units: Any, segments: Any, partial: Any) -> None:
    """Sum clipped gradients in whole steps of ``1/per_unit``; as in ``_sparse_kernels``.

    Whether all values are 1 must not affect any row: a step count times 1 is rounded as it is.
    """
    (table, target), (clip_norm, per_unit) = rows, units
    d = weights.size - 1
    rows_of_segment, first_segment, last_segment = segments
    code, parameter, clip, _, _ = loss
    raw, squared = np.empty(BLOCK), np.empty(BLOCK)
    score, scale, slope, factor = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for segment in range(first_segment, last_segment):
        out = partial[segment]
        stop = min((segment + 1) * rows_of_segment, target.size)
        for b in range(segment * rows_of_segment, stop, BLOCK):
            count = min(BLOCK, stop - b)
            _sparse_products(table, b, count, weights, raw, squared)
            _finish_scores(raw[:count], squared[:count], weights[d], frame, score, scale)
            _slopes(code, parameter, clip, score, target[b : b + count], slope, count)
            out[d] += _in_units(slope, scale, squared, frame, clip_norm, per_unit, factor, count)
            _add_sparse_rows(table, b, count, factor, scale, out)
