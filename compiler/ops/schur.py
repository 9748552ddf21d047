"""Eigenvalues and vectors of a square matrix by QR steps, in LAPACK's order in single precision.

The order in which eigenvalues converge, and so stand, depends on shifts and thresholds. These are
those of LAPACK's sgeev and cgeev, since the frameworks' order is theirs; numpy.linalg.eig always
computes in double precision, and has another order for many matrices. All arithmetic here is double
and complex; imaginary parts of a real matrix stay 0 until a pair of eigenvalues is split.
"""

from dataclasses import dataclass

import numpy as np

EPSILON = float(np.finfo(np.float32).eps)
LEAST = float(np.finfo(np.float32).tiny) / EPSILON
"""Threshold of zero, times the matrix's size."""

DIVISOR, GROWTH = 1e-100, 1e100
"""Limits of the back-substitution: the least divisor, and when a vector is scaled down."""

Matrix = np.ndarray


@dataclass
class _State:
    """t = zᴴ a z; a real matrix takes two shifts at once, by reflections of three rows."""

    t: Matrix
    z: Matrix
    width: int

    def reflect(self, v: Matrix, first: int, column: int, end: int) -> complex:
        """Bring v to (beta, 0, ...) by rows of t from `first` on; columns change above `end`."""
        below = float((np.abs(v[1:]) ** 2).sum())
        if below == 0 and v[0].imag == 0:
            return complex(v[0])
        beta = -float(np.copysign(np.sqrt(abs(v[0]) ** 2 + below), v[0].real))
        tau = complex((beta - v[0].real) / beta, -v[0].imag / beta)
        v = np.concatenate([[1], v[1:] / (v[0] - beta)])
        own = slice(first, first + len(v))
        rows = self.t[own, column:]
        rows -= np.conj(tau) * np.outer(v, v.conj() @ rows)
        for columns in (self.t[:end, own], self.z[:, own]):
            columns -= tau * np.outer(columns @ v, v.conj())
        return complex(beta)

    def clear(self, first: int, count: int, column: int, end: int) -> None:
        """Bring a column to zero below row `first`."""
        rows = slice(first, first + count)
        beta = self.reflect(self.t[rows, column].copy(), first, column + 1, end)
        self.t[rows, column] = 0
        self.t[first, column] = beta

    def is_small(self, k: int) -> bool:
        """Whether the element left of diagonal element k may count as 0."""
        own, before = self.t[k, k], self.t[k - 1, k - 1]
        left, above = _sum(self.t[k, k - 1]), _sum(self.t[k - 1, k])
        least = LEAST * len(self.t)
        if left <= least:
            return True
        if left > EPSILON * (_sum(own) + _sum(before)):
            return False
        size, gap = _sum(own), _sum(before - own)
        most = max(size, gap) + max(left, above)
        limit = EPSILON * (min(size, gap) * (max(size, gap) / most))
        return min(left, above) * (max(left, above) / most) <= max(least, limit)

    def step(self, low: int, high: int, shift: complex) -> None:
        """Make a QR step, starting at the last two consecutive small subdiagonal elements."""
        t, m = self.t, high + 1 - self.width
        v = self._start(m, shift)
        while m > low and not self._starts_at(m, v):
            m -= 1
            v = self._start(m, shift)
        for row in range(m, high):
            count = min(self.width, high + 1 - row)
            end = min(row + count, high) + 1
            if row > m:
                self.clear(row, count, row - 1, end)
                continue
            self.reflect(v, row, row - 1 if row > low else row, end)
            if row > low:
                t[row + 1 : row + count, row - 1] = 0

    def _start(self, m: int, shift: complex) -> Matrix:
        """First column of h - s, or of (h - s)(h - s̄), of t from row m on."""
        t = self.t
        if self.width == 2:
            return np.array([t[m, m] - shift, t[m + 1, m]])
        first, under = t[m, m].real - shift.real, t[m + 1, m].real
        column = (
            first**2 + shift.imag**2 + t[m, m + 1].real * under,
            under * (first + t[m + 1, m + 1].real - shift.real),
            under * t[m + 2, m + 1].real,
        )
        return np.array(column, np.complex128)

    def _starts_at(self, m: int, v: Matrix) -> bool:
        around = sum(_sum(self.t[i, i]) for i in range(m - (self.width == 3), m + 2))
        under = sum(map(_sum, v[1:]))
        return _sum(self.t[m, m - 1]) * under <= EPSILON * _sum(v[0]) * around

    def shift(self, low: int, high: int, turn: int) -> complex:
        """Return an eigenvalue of the last two rows, and occasionally an exceptional shift."""
        t, last = self.t, slice(high - 1, high + 1)
        (a, b), (c, d) = t[last, last]
        exceptional = turn != 0 and turn % 10 == 0
        if self.width == 2:
            if exceptional:
                at, near = (low, low + 1) if turn % 20 else (high, high)
                return complex(t[at, at] + 0.75 * abs(t[near, near - 1]))
            square, half = b * c, (a - d) / 2
            root = np.sqrt(half**2 + square)
            half += -root if half.real * root.real + half.imag * root.imag < 0 else root
            return complex(d - square / half if square else d)
        if exceptional:
            k = low + 1 if turn % 20 else high - 1
            c = abs(t[k, k - 1].real) + abs(t[k + 1, k].real)
            a = d = 0.75 * c + t[low if turn % 20 else high, low if turn % 20 else high].real
            b = -0.4375 * c
        half, square = (a - d).real / 2, ((a - d).real / 2) ** 2 + (b * c).real
        root = np.sqrt(abs(square))
        if square <= 0:
            return complex(d.real + half, root)
        return complex(d.real + (half - root if half > 0 else half + root))

    def split(self, k: int) -> None:
        """Make two rows of a real matrix triangular, whose pair of eigenvalues is deflated."""
        (a, b), (c, d) = self.t[k : k + 2, k : k + 2].real
        half = (a - d) / 2
        square = half**2 + b * c
        one, other = complex(d), complex(a)
        if square < 0:
            one = complex(d + half, np.sqrt(-square))
            other = one.conjugate()
        elif b != 0:
            away = half + np.copysign(np.sqrt(square), half)
            one, other = complex(d + away), complex(d if away == 0 else d - b * c / away)
        self.reflect(np.array([one - d, complex(c)]), k, k, k + 2)
        self.t[k, k], self.t[k + 1, k], self.t[k + 1, k + 1] = one, 0, other


def _sum(x: complex) -> float:
    return abs(x.real) + abs(x.imag)


def _isolate(t: Matrix) -> tuple[list[tuple[int, int]], int, int]:
    """Move eigenvalues that stand alone in a row to the end, in a column to the start."""
    exchanges, low, high = [], 0, len(t) - 1

    def move(i: int, row: bool) -> bool:
        others = [k for k in range(low, high + 1) if k != i]
        if low == high or np.any(t[i, others] if row else t[others, i]):
            return False
        place = high if row else low
        t[[i, place]] = t[[place, i]]
        t[:, [i, place]] = t[:, [place, i]]
        exchanges.append((i, place))
        return True

    found = True
    while found:
        found = False
        for i in range(high, -1, -1):
            if move(i, row=True):
                found, high = True, high - 1
    found = high > 0
    while found:
        found = False
        for i in range(low, high + 1):
            if move(i, row=False):
                found, low = True, low + 1
    return exchanges, low, high


def _balance(t: Matrix, low: int, high: int) -> Matrix:
    """Bring norms of rows and columns together by powers of 2; return these."""
    factors, inner = np.ones(len(t)), slice(low, high + 1)
    found = True
    while found:
        found = False
        for i in range(low, high + 1):
            column, row = (float(np.linalg.norm(x)) for x in (t[inner, i], t[i, inner]))
            before, f = column + row, 1.0
            while 0 < column < row / 2:
                f, column, row = f * 2, column * 2, row / 2
            while 0 < row <= column / 2:
                f, column, row = f / 2, column / 2, row * 2
            if 0 in (column, row) or column + row >= 0.95 * before:
                continue
            factors[i] *= f
            t[i] /= f
            t[:, i] *= f
            found = True
    return factors


def _triangle(state: _State, low: int, high: int) -> None:
    """Make a Hessenberg matrix in [low, high] upper triangular; LinAlgError if that never ends."""
    left, turn = 30 * max(10, len(state.t)), 0
    while high >= low:
        k = high
        while k > low and not state.is_small(k):
            k -= 1
        if k > low:
            state.t[k, k - 1] = 0
        if k <= high - state.width + 1:
            if left <= 0:
                raise np.linalg.LinAlgError
            state.step(k, high, state.shift(k, high, turn))
            turn, left = turn + 1, left - 1
            continue
        if k < high:
            state.split(k)
        high, turn = k - 1, 0


def _substitute(t: Matrix, j: int) -> Matrix:
    """Solve (t - t[j, j]) x = 0, x[j] = 1, of the rows above j."""
    x = np.zeros(len(t), np.complex128)
    x[j], least = 1, max(np.finfo(float).eps * _sum(t[j, j]), DIVISOR)
    for i in range(j - 1, -1, -1):
        gap = t[j, j] - t[i, i]
        x[i] = t[i, i + 1 : j + 1] @ x[i + 1 : j + 1] / (gap if _sum(gap) >= least else -least)
        if _sum(x[i]) > GROWTH:
            x /= _sum(x[i])
    return x


def eig(a: Matrix) -> tuple[Matrix, Matrix]:
    """Return the eigenvalues of a real or complex matrix, and vectors of any scale as columns."""
    t, size = a.astype(np.complex128), len(a)
    exchanges, low, high = _isolate(t)
    factors = _balance(t, low, high)
    state = _State(t, np.eye(size, dtype=np.complex128), 2 if np.iscomplexobj(a) else 3)
    for k in range(low, high - 1):
        state.clear(k + 1, high - k, k, high + 1)
    _triangle(state, low, high)
    x = np.stack([_substitute(t, j) for j in range(size)], 1)
    vectors = (state.z @ x) * factors[:, None]
    for i, place in reversed(exchanges):
        vectors[[i, place]] = vectors[[place, i]]
    return t.diagonal(), vectors
