"""Renders float4 and float8 exactly as PostgreSQL 12 and later print them with ``extra_float_digits`` above 0.

Of the decimals strictly between the midpoints to the neighbouring floats, PostgreSQL prints one with the fewest digits,
and among those the nearest to the value (Ryu, ``src/common/d2s.c``). Python's ``repr`` may also use a midpoint itself,
which can be shorter.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

_MAX_FLOAT4 = float(np.finfo(np.float32).max)
_DIGITS_FLOAT8, _DIGITS_FLOAT4 = 17, 9
_FIXED_FLOAT8, _FIXED_FLOAT4 = 15, 6  # DBL_DIG, FLT_DIG: from this exponent on, scientific notation
# only in this range can a decimal of up to 17 digits be a midpoint, because a midpoint is an odd multiple of a power of
# 2, and the decimal a multiple of a power of 5
_MIDPOINTS = (2.0**53, 1e41)


def float8_text(value: float) -> str:
    return _special(value) or _signed(value, *_shortest_float8(abs(value)), _FIXED_FLOAT8)


def float4_text(value: float) -> str:
    """``value`` must be a float that a float4 holds exactly."""
    return _special(value) or _signed(value, *_shortest_float4(abs(value)), _FIXED_FLOAT4)


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    return ""


def _shortest_float8(value: float) -> tuple[str, int]:
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    place = len(whole) - 1 + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    place -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if _MIDPOINTS[0] <= value < _MIDPOINTS[1]:
        below, above = math.nextafter(value, 0), math.nextafter(value, math.inf)
        doubled = 2 * int(digits) * 10 ** (place + 1) // 10 ** len(digits)
        if doubled in (int(value) + int(below), int(value) + int(above)):
            return _shortest(Fraction(value), Fraction(below), Fraction(above), _DIGITS_FLOAT8)
    return digits, place


def _shortest_float4(value: float) -> tuple[str, int]:
    single = np.float32(value)
    below = float(np.nextafter(single, np.float32(0)))
    above = 2 * value - below if value == _MAX_FLOAT4 else float(np.nextafter(single, np.float32(np.inf)))
    return _shortest(Fraction(value), Fraction(below), Fraction(above), _DIGITS_FLOAT4)


def _shortest(value: Fraction, below: Fraction, above: Fraction, most: int) -> tuple[str, int]:
    """The digits without trailing zeros, and the exponent of the first digit."""
    low, high = (below + value) / 2, (value + above) / 2
    first = int(f"{float(value):.17e}".partition("e")[2])
    for count in range(1, most + 1):
        scale = Fraction(10) ** (first - count + 1)
        floor = value // scale
        inside = [number for number in (floor, floor + 1) if low < number * scale < high]
        if inside:
            nearest = min(inside, key=lambda number: (abs(number * scale - value), number % 2))
            digits = str(nearest)
            return digits.rstrip("0"), first + len(digits) - count
    raise ValueError("float")


def _signed(value: float, digits: str, place: int, fixed: int) -> str:
    return ("-" if value < 0 else "") + _laid_out(digits, place, fixed)


def _laid_out(digits: str, place: int, fixed: int) -> str:
    if not -4 <= place < fixed:
        point = "." if len(digits) > 1 else ""
        return f"{digits[0]}{point}{digits[1:]}e{'-' if place < 0 else '+'}{abs(place):02}"
    if place < 0:
        return "0." + "0" * (-place - 1) + digits
    if len(digits) <= place + 1:
        return digits + "0" * (place + 1 - len(digits))
    return f"{digits[: place + 1]}.{digits[place + 1 :]}"
