"""Coefficients of the float32 functions in this folder: weighted minimax polynomials, rounded to float32 and polished.

    python minimax.py            # prints every table; needs numpy and mpmath

A polynomial is fitted in double by Lawson's iteration (weights grow where the error is large, so that least squares turns
into minimax), its coefficients are rounded to float32, and single-ulp moves of them are kept while the worst error of the
float32 evaluation, fused multiply-adds included, falls.
"""
import mpmath as mp
import numpy as np

f32 = np.float32


def fma(a, b, c):
    return f32(np.float64(a) * np.float64(b) + np.float64(c))


def lawson(x, y, weight, powers, rounds=400):
    basis = np.stack([x**p for p in powers], 1)
    w = np.ones_like(x)
    for _ in range(rounds):
        s = np.sqrt(w) * weight
        c, *_ = np.linalg.lstsq(basis * s[:, None], y * s, rcond=None)
        error = np.abs(basis @ c - y) * weight
        w = w * (error / error.max() + 1e-3)
        w /= w.sum()
    return c, error.max()


def polish(c, worst, rounds=3):
    c = np.array(c, f32)
    best = worst(c)
    for _ in range(rounds):
        moved = False
        for i in range(len(c)):
            for step in (1, -1, 2, -2, 4, -4, 8, -8):
                trial = c.copy()
                trial[i] = np.frombuffer(np.array(np.frombuffer(trial[i].tobytes(), np.int32)[0] + step, np.int32).tobytes(), f32)[0]
                e = worst(trial)
                if e < best:
                    c, best, moved = trial, e, True
        if not moved:
            break
    return c, best


def ulps(got, want):
    return np.max(np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(f32)).astype(np.float64))


def chebyshev(a, b, n):
    return (a + b) / 2 + (b - a) / 2 * np.cos(np.pi * (np.arange(n) + 0.5) / n)


def show(name, c, e):
    print(name, "worst ulp %.4f" % e, ", ".join(f"{float(v):.9g}f" for v in c))


def exp_table():
    """exp(r) = 1 + r + r^2 (c0 + ... + c4 r^4), |r| <= ln 2 / 2."""
    x = chebyshev(-0.3467, 0.3467, 2000)
    y = (np.expm1(x) - x) / x**2
    y = np.array([float((mp.expm1(mp.mpf(v)) - v) / mp.mpf(v) ** 2) for v in x])
    c, _ = lawson(x, y, x**2 / np.exp(x), range(5))
    r = np.linspace(-0.34658, 0.34658, 40001).astype(f32)
    want = np.exp(r.astype(np.float64))

    def worst(c):
        p = np.full_like(r, c[-1])
        for k in c[-2::-1]:
            p = fma(p, r, k)
        p = fma(p, r, f32(1))
        return ulps(fma(p, r, f32(1)), want)

    show("exp", *polish(c, worst))


def log_table():
    """log(1 + r) = r - r^2/2 + r^3 (c0 + ... + c7 r^7), 1 + r in [sqrt(1/2), sqrt 2]."""
    a, b = float(mp.sqrt(0.5)) - 1, float(mp.sqrt(2)) - 1
    x = chebyshev(a - 1e-4, b + 1e-4, 2000)
    y = np.array([float((mp.log1p(mp.mpf(v)) - v + mp.mpf(v) ** 2 / 2) / mp.mpf(v) ** 3) for v in x])
    c, _ = lawson(x, y, np.abs(x**3 / np.log1p(x)), range(8))
    m = np.linspace(a + 1, b + 1, 60001).astype(f32)
    r = (m - f32(1)).astype(f32)
    r = r[r != 0]
    want = np.log1p(r.astype(np.float64))

    def worst(c):
        p = np.full_like(r, c[-1])
        for k in c[-2::-1]:
            p = fma(p, r, k)
        s = (r * r).astype(f32)
        p = (p * r).astype(f32)
        q = fma(p, s, (f32(-0.5) * s).astype(f32))
        return ulps((r + q).astype(f32), want)

    show("log", *polish(c, worst))


def erf_tables():
    """erf(x) = x + x (c0 + ... ) in x^2 for |x| <= 0.93; 1 - exp(-(x + x (q0 + ...))) in x above."""
    edge = 0.93
    x = chebyshev(1e-3, edge + 0.01, 2000)
    y = np.array([float(mp.erf(mp.mpf(v)) / v - 1) for v in x])
    c, _ = lawson(x * x, y, x / np.array([float(mp.erf(v)) for v in x]), range(6))
    t = np.concatenate([np.linspace(1e-4, edge, 30001), np.geomspace(1e-30, 1e-2, 2000)]).astype(f32)
    want = np.array([float(mp.erf(mp.mpf(float(v)))) for v in t])

    def worst(c):
        s = (t * t).astype(f32)
        p = np.full_like(t, c[-1])
        for k in c[-2::-1]:
            p = fma(p, s, k)
        return ulps(fma(p, t, t), want)

    show("erf low", *polish(c, worst))
    x = chebyshev(edge - 0.01, 3.95, 2000)
    z = np.array([float(-mp.log(mp.erfc(mp.mpf(v)))) for v in x])
    erfc = np.array([float(mp.erfc(mp.mpf(v))) for v in x])
    for degree in (5, 6, 7):
        c, e = lawson(x, z / x - 1, x * erfc / (1 - erfc), range(degree))
        t = np.linspace(edge, 4, 30001).astype(f32)
        want = np.array([float(mp.erf(mp.mpf(float(v)))) for v in t])

        def worst(c):
            p = np.full_like(t, c[-1])
            for k in c[-2::-1]:
                p = fma(p, t, k)
            q = fma(p, t, t)
            return ulps((f32(1) - np.exp(-q.astype(np.float64)).astype(f32)).astype(f32), want)

        show(f"erf high {degree}", *polish(c, worst))


def short_erf_table():
    """erf(x) = 1 - 2^(-x (c0 + ...)) in x >= 0, by absolute error; Triton's `short erf`. The highest coefficient must be positive."""
    x = chebyshev(1e-4, 4.0, 3000)
    erfc = np.array([float(mp.erfc(mp.mpf(v))) for v in x])
    y = np.array([float(-mp.log(mp.erfc(mp.mpf(v)), 2) / v) for v in x])
    c, _ = lawson(x, y, x * (erfc + 2e-9), range(8))
    t = np.linspace(0, 4.2, 200001).astype(f32)
    p = np.full_like(t, f32(c[-1]))
    for k in c[-2::-1]:
        p = fma(p, t, f32(k))
    got = (1 - np.exp2(-(p * t).astype(np.float64)).astype(f32)).astype(f32)
    worst = np.max(np.abs(got - np.array([float(mp.erf(float(v))) for v in t])))
    print("short erf, worst absolute error %.3g" % worst, ", ".join(f"{float(f32(v)):.9g}" for v in c))


def tanh_table():
    """tanh(x) = x + x^3 (c0 + ...) in x^2 for |x| <= 0.55."""
    for edge, n in ((0.55, 4), (0.625, 5)):
        x = chebyshev(1e-3, edge + 0.01, 2000)
        y = np.array([float((mp.tanh(mp.mpf(v)) / v - 1) / mp.mpf(v) ** 2) for v in x])
        c, _ = lawson(x * x, y, x**3 / np.tanh(x), range(n))
        t = np.concatenate([np.linspace(1e-4, edge, 30001), np.geomspace(1e-30, 1e-2, 2000)]).astype(f32)
        want = np.array([float(mp.tanh(mp.mpf(float(v)))) for v in t])

        def worst(c):
            s = (t * t).astype(f32)
            p = np.full_like(t, c[-1])
            for k in c[-2::-1]:
                p = fma(p, s, k)
            return ulps(fma((p * s).astype(f32), t, t), want)

        show(f"tanh {edge} {n}", *polish(c, worst))


if __name__ == "__main__":
    exp_table()
    log_table()
    erf_tables()
    short_erf_table()
    tanh_table()
