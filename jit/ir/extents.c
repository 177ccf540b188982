/*
 * jit/ir/extents.c -- extents of several symbols: n+m, 2*n*m-n, (h/16)*(w/16)+1.
 *
 * An extent of one symbol is its number (wf_sym). What is of several is a polynomial: whole numbers times what counts the sizes of a symbol, and
 * times products of two of these. Of a symbol whose sizes are `rest` more than multiples of `multiple` that is t with size =
 * multiple * t + rest; so what is rounded down, n/4, is a polynomial, too, and equal extents have equal terms. Each function keeps those it
 * has met in a table, and an extent's number holds the place there.
 *
 * Invariants: a polynomial that has a number is of at least two terms, or of one that is a product; one of its terms is positive; its
 * terms are in order, none of them is 0; it has a text of less than WF_EXTENT_TEXT, which reads as the same polynomial.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/ir/ir.h"

enum { MOST_POLYS = 4096, MOST_TERMS = 12 };
#define MOST_FACTOR (INT64_C(1) << 40) /* of a term */

/* What no number of one symbol has: a divisor of 1024 and an even factor, which are in no lowest terms. The place stands where they
 * have what is added. */
#define JOINT                                                                                      \
    (WF_SYM(0) + (INT64_C(1) << WF_SYM_BITS) + (INT64_C(1023) << (WF_SYM_BITS + 2 * WF_TERM_BITS)))
enum { PLACE_SHIFT = WF_SYM_BITS + WF_TERM_BITS };

/* -- polynomials -------------------------------------------------------------------------------------------------- */

/* By the first symbol, then the second; a symbol alone is behind its products. */
static int order(const wf_poly_term *a, int i, int j)
{
    return a->of[0] != i ? a->of[0] - i : a->of[1] - j;
}

bool wf_poly_add(wf_poly *p, int64_t by, int i, int j)
{
    if (i == WF_NO_SYMBOL) {
        return !__builtin_add_overflow(p->plus, by, &p->plus);
    }
    if (i > j) {
        const int k = i;
        i = j;
        j = k;
    }
    uint32_t at = 0;
    while (at < p->n && order(&p->term[at], i, j) < 0) {
        at++;
    }
    const bool there = at < p->n && order(&p->term[at], i, j) == 0;
    int64_t sum = by;
    if (there && __builtin_add_overflow(p->term[at].by, by, &sum)) {
        return false;
    }
    if (sum != 0 && !there) {
        if (p->n == WF_POLY_TERMS) {
            return false;
        }
        memmove(&p->term[at + 1], &p->term[at], (p->n - at) * sizeof p->term[0]);
        p->term[at].of[0] = (uint8_t)i;
        p->term[at].of[1] = (uint8_t)j;
        p->n++;
    }
    if (sum != 0) {
        p->term[at].by = sum;
    } else if (there) {
        memmove(&p->term[at], &p->term[at + 1], (p->n - at - 1) * sizeof p->term[0]);
        p->n--;
    }
    return true;
}

/* a n / d, rounded down, is a (m / d) t + a r / d, where n is m t + r. False: too large. */
static bool quotient(wf_range r, int64_t a, int64_t d, int64_t *by, int64_t *plus)
{
    if (__builtin_mul_overflow(a, r.multiple, by) || __builtin_mul_overflow(a, r.rest, plus)) {
        return false;
    }
    *by /= d;
    *plus /= d;
    return true;
}

bool wf_poly_add_symbol(const wf_fn *f, wf_poly *p, bool less, int64_t a, int k, int64_t d)
{
    int64_t by, plus;
    return quotient(f->range[k], a, d, &by, &plus) &&
           wf_poly_add(p, less ? -by : by, k, WF_NO_SYMBOL) &&
           wf_poly_add(p, less ? -plus : plus, WF_NO_SYMBOL, WF_NO_SYMBOL);
}

bool wf_poly_add_product(const wf_fn *f, wf_poly *p, int64_t a, int i, int64_t d, int j, int64_t e)
{
    int64_t by[2], plus[2], x[4];
    return quotient(f->range[i], 1, d, &by[0], &plus[0]) &&
           quotient(f->range[j], 1, e, &by[1], &plus[1]) && /* up to 1024 each */
           !__builtin_mul_overflow(a, by[0] * by[1], &x[0]) &&
           !__builtin_mul_overflow(a, by[0] * plus[1], &x[1]) &&
           !__builtin_mul_overflow(a, plus[0] * by[1], &x[2]) &&
           !__builtin_mul_overflow(a, plus[0] * plus[1], &x[3]) && wf_poly_add(p, x[0], i, j) &&
           wf_poly_add(p, x[1], i, WF_NO_SYMBOL) && wf_poly_add(p, x[2], j, WF_NO_SYMBOL) &&
           wf_poly_add(p, x[3], WF_NO_SYMBOL, WF_NO_SYMBOL);
}

static int64_t count_of(wf_range r, int64_t size)
{
    return (size - r.rest) / r.multiple;
}

/* False: too large. */
static bool value_of(const wf_fn *f, const wf_poly *p, const int64_t *sizes, int64_t *value)
{
    *value = p->plus;
    for (uint32_t k = 0; k < p->n; k++) {
        const wf_poly_term *t = &p->term[k];
        int64_t x = t->by;
        for (int i = 0; i < 2 && t->of[i] != WF_NO_SYMBOL; i++) {
            if (__builtin_mul_overflow(x, count_of(f->range[t->of[i]], sizes[t->of[i]]), &x)) {
                return false;
            }
        }
        if (__builtin_add_overflow(*value, x, value)) {
            return false;
        }
    }
    return true;
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */

const wf_poly *wf_poly_of(const wf_fn *f, int64_t v)
{
    const int64_t place = (v - JOINT) >> PLACE_SHIFT;
    return v >= JOINT && f->polys && place < f->polys->n && v == JOINT + (place << PLACE_SHIFT)
               ? &f->polys->p[place]
               : NULL;
}

int64_t wf_sym_value(const wf_fn *f, int64_t v, const int64_t *sizes)
{
    const wf_poly *p = wf_poly_of(f, v);
    int64_t x;
    if (p) {
        return value_of(f, p, sizes, &x) ? x : INT64_MAX;
    }
    if (__builtin_mul_overflow(sizes[wf_sym_of(v)], wf_sym_times(v), &x) ||
        __builtin_add_overflow(x / wf_sym_over(v), wf_sym_plus(v), &x)) {
        return INT64_MAX;
    }
    return x;
}

uint32_t wf_sym_symbols(const wf_fn *f, int64_t v)
{
    const wf_poly *p = wf_poly_of(f, v);
    uint32_t set = p ? 0 : 1u << wf_sym_of(v);
    for (uint32_t k = 0; p && k < p->n; k++) {
        set |= 1u << p->term[k].of[0];
        set |= p->term[k].of[1] == WF_NO_SYMBOL ? 0 : 1u << p->term[k].of[1];
    }
    return set;
}

static bool same_poly(const wf_poly *p, const wf_poly *q)
{
    bool same = p->n == q->n && p->plus == q->plus;
    for (uint32_t k = 0; k < p->n && same; k++) {
        same = p->term[k].by == q->term[k].by &&
               order(&p->term[k], q->term[k].of[0], q->term[k].of[1]) == 0;
    }
    return same;
}

bool wf_sym_same(const wf_fn *f, int64_t v, const wf_fn *g, int64_t w)
{
    const wf_poly *p = wf_poly_of(f, v), *q = wf_poly_of(g, w);
    return p && q ? same_poly(p, q) : !p && !q && v == w;
}

/* Of one symbol: a/d = by / multiple, and what is added to that. */
static int64_t single(const wf_fn *f, const wf_poly *p)
{
    const wf_poly_term *t = &p->term[0];
    const wf_range r = f->range[t->of[0]];
    const int64_t v = wf_sym(t->of[0], t->by, r.multiple, 0);
    int64_t by, plus;
    return v > 0 && quotient(r, wf_sym_times(v), wf_sym_over(v), &by, &plus) &&
                   !__builtin_sub_overflow(p->plus, plus, &plus)
               ? wf_sym(t->of[0], t->by, r.multiple, plus)
               : -1;
}

bool wf_poly_extent(const wf_fn *f, const wf_poly *p, int64_t *v)
{
    char text[WF_EXTENT_TEXT];
    bool good = p->plus <= MOST_FACTOR && p->plus >= -MOST_FACTOR, positive = false;
    if (p->n == 0) {
        *v = p->plus;
        return !WF_IS_SYM(*v);
    }
    if (p->n == 1 && p->term[0].of[1] == WF_NO_SYMBOL) {
        *v = single(f, p);
        return *v > 0;
    }
    good = good && p->n <= MOST_TERMS;
    for (uint32_t k = 0; k < p->n; k++) {
        const int64_t by = p->term[k].by;
        good = good && by <= MOST_FACTOR && by >= -MOST_FACTOR;
        positive = positive || by > 0;
    }
    wf_polys *all = f->polys;
    uint32_t at = 0;
    while (all && at < all->n && !same_poly(&all->p[at], p)) {
        at++;
    }
    *v = JOINT + ((int64_t)at << PLACE_SHIFT);
    if (!good || !positive || !all || at == MOST_POLYS || at < all->n) {
        return all && at < all->n;
    }
    if (wf_grow(&all->p, all->n, 1, &all->cap, sizeof *all->p)) {
        return false;
    }
    all->p[all->n++] = *p;
    good = wf_extent_text(f, *v, text)[0] != '\0';
    all->n -= !good;
    return good;
}

/* -- text ---------------------------------------------------------------------------------------------------------- */

typedef struct writer {
    const wf_fn *f;
    char *text;
    size_t n;
} writer;

static void put(writer *w, const char *s)
{
    const size_t n = strlen(s);
    if (w->n + n < WF_EXTENT_TEXT) {
        memcpy(w->text + w->n, s, n + 1);
    }
    w->n += n;
}

/* The factor, or the sign of a term behind others. */
static void put_factor(writer *w, bool less, int64_t a)
{
    char number[32];
    put(w, less ? "-" : w->n ? "+" : "");
    snprintf(number, sizeof number, "%lld*", (long long)a);
    put(w, a == 1 ? "" : number);
}

static void put_symbol(writer *w, int k, int64_t d)
{
    char over[32];
    snprintf(over, sizeof over, "/%d", (int)d);
    put(w, w->f->symbols[k]);
    put(w, d == 1 ? "" : over);
}

/* Term t as a product a * (n / d) * (m / e), with the smallest divisors, which is taken off `left`. */
static void write_product(writer *w, const wf_poly_term *t, wf_poly *left, bool writes)
{
    const int64_t by = t->by < 0 ? -t->by : t->by;
    const int64_t m = w->f->range[t->of[0]].multiple, l = w->f->range[t->of[1]].multiple;
    const int64_t first = wf_common_divisor(by, m), second = wf_common_divisor(by / first, l),
                  a = by / first / second;
    if (!writes) {
        const bool fits = wf_poly_add_product(w->f, left, t->by < 0 ? a : -a, t->of[0], m / first,
                                              t->of[1], l / second);
        w->n = fits ? w->n : WF_EXTENT_TEXT;
        return;
    }
    put_factor(w, t->by < 0, a);
    put_symbol(w, t->of[0], m / first);
    put(w, "*");
    put_symbol(w, t->of[1], l / second);
}

/* Term t as a n / d, which is taken off what is left to be added. */
static void write_symbol(writer *w, const wf_poly_term *t, int64_t *left)
{
    const wf_range r = w->f->range[t->of[0]];
    const int64_t by = t->by < 0 ? -t->by : t->by, common = wf_common_divisor(by, r.multiple);
    int64_t each, plus;
    put_factor(w, t->by < 0, by / common);
    put_symbol(w, t->of[0], r.multiple / common);
    if (quotient(r, by / common, r.multiple / common, &each, &plus)) {
        *left -= t->by < 0 ? -plus : plus;
    }
}

/* What is positive first. Factors are so small that nothing overflows. "": there is no room for it. */
const char *wf_poly_text(const wf_fn *f, const wf_poly *p, char text[WF_EXTENT_TEXT])
{
    writer w = {.f = f, .text = text};
    wf_poly left = *p;
    int64_t plus;
    text[0] = '\0';
    for (uint32_t k = 0; k < p->n; k++) {
        if (p->term[k].of[1] != WF_NO_SYMBOL) {
            write_product(&w, &p->term[k], &left, false);
        }
    }
    plus = left.plus;
    for (int less = 0; less < 2; less++) {
        for (uint32_t k = 0; k < p->n; k++) {
            if (p->term[k].of[1] != WF_NO_SYMBOL && (p->term[k].by < 0) == less) {
                write_product(&w, &p->term[k], NULL, true);
            }
        }
        for (uint32_t k = 0; k < left.n; k++) {
            if ((left.term[k].by < 0) == less) {
                write_symbol(&w, &left.term[k], &plus);
            }
        }
    }
    if (plus != 0) {
        char number[32];
        snprintf(number, sizeof number, "%+lld", (long long)plus);
        put(&w, number);
    }
    if (w.n >= WF_EXTENT_TEXT) {
        text[0] = '\0';
    }
    return text;
}

/* -- through points ------------------------------------------------------------------------------------------------ */

/* Where points are: symbol k moved once, twice, or with another one. */
static int moved(int k)
{
    return WF_POINTS_APART + 2 * k;
}
static int moved_twice(int k)
{
    return WF_POINTS_APART + 2 * k + 1;
}
static int moved_both(int n, int i, int j)
{
    return WF_POINTS_APART + 2 * n + j * (j - 1) / 2 + i;
}

/* The next size up or down that a range has; none: the same. */
static int64_t next(wf_range r, int64_t size, int by)
{
    const int64_t x = size + by * r.multiple;
    return x > 0 && wf_range_has(r, x) ? x : size;
}

void wf_points_around(const wf_range *range, int n, wf_points *p)
{
    const int64_t *base = p->size[WF_POINTS_BASE];
    int64_t once[WF_MAX_SYMBOLS], twice[WF_MAX_SYMBOLS];
    for (int k = 0; k < n; k++) {
        const int up =
            next(range[k], base[k], 2) != base[k] || next(range[k], base[k], -2) == base[k] ? 1
                                                                                            : -1;
        const int way = next(range[k], base[k], up) != base[k] ? up : -up;
        once[k] = next(range[k], base[k], way);
        twice[k] = next(range[k], base[k], 2 * way);
    }
    p->n = moved_both(n, 0, n);
    for (int i = WF_POINTS_APART; i < p->n; i++) {
        memcpy(p->size[i], base, (size_t)n * sizeof *base);
    }
    for (int j = 0; j < n; j++) {
        p->size[moved(j)][j] = once[j];
        p->size[moved_twice(j)][j] = twice[j];
        for (int i = 0; i < j; i++) {
            p->size[moved_both(n, i, j)][i] = once[i];
            p->size[moved_both(n, i, j)][j] = once[j];
        }
    }
}

/* by * (t - t0) * (u - u0), of counts t of symbol i and u of j, which are t0 and u0 at the base. */
static bool add_around(wf_poly *p, int64_t by, int i, int64_t t0, int j, int64_t u0)
{
    int64_t x, y, z, less_x, less_y;
    return !__builtin_mul_overflow(by, t0, &x) && !__builtin_mul_overflow(by, u0, &y) &&
           !__builtin_mul_overflow(x, u0, &z) && !__builtin_sub_overflow(0, x, &less_x) &&
           !__builtin_sub_overflow(0, y, &less_y) && wf_poly_add(p, by, i, j) &&
           wf_poly_add(p, less_y, i, WF_NO_SYMBOL) && wf_poly_add(p, less_x, j, WF_NO_SYMBOL) &&
           wf_poly_add(p, z, WF_NO_SYMBOL, WF_NO_SYMBOL);
}

static bool difference(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_sub_overflow(a, b, out) && *out <= MOST_FACTOR && *out >= -MOST_FACTOR;
}

/* What x does around the base says all factors: a symbol's own by its first and second differences, a product's by what two moves
 * together do more than each. */
static bool fit(const wf_fn *f, const wf_points *at, const int64_t *x, wf_poly *p)
{
    const int n = (int)f->nsymbols;
    const int64_t *base = at->size[WF_POINTS_BASE], x0 = x[WF_POINTS_BASE];
    int64_t t0[WF_MAX_SYMBOLS], way[WF_MAX_SYMBOLS], first[WF_MAX_SYMBOLS], second, both;
    *p = (wf_poly){.plus = x0};
    for (int k = 0; k < n; k++) {
        t0[k] = count_of(f->range[k], base[k]);
        way[k] = count_of(f->range[k], at->size[moved(k)][k]) - t0[k];
        if (!difference(x[moved(k)], x0, &first[k]) ||
            !difference(x[moved_twice(k)], x[moved(k)], &second) ||
            (first[k] != 0 &&
             at->size[moved_twice(k)][k] == base[k])) { /* two sizes say too little */
            return false;
        }
        second -= first[k];
        const int64_t own = way[k] * (first[k] - second / 2);
        int64_t less;
        if (second % 2 != 0 || !add_around(p, second / 2, k, t0[k], k, t0[k]) ||
            __builtin_mul_overflow(-own, t0[k], &less) || !wf_poly_add(p, own, k, WF_NO_SYMBOL) ||
            !wf_poly_add(p, less, WF_NO_SYMBOL, WF_NO_SYMBOL)) {
            return false;
        }
        for (int i = 0; i < k; i++) {
            if (!difference(x[moved_both(n, i, k)], x[moved(i)], &both) ||
                !add_around(p, way[i] * way[k] * (both - first[k]), i, t0[i], k, t0[k])) {
                return false;
            }
        }
    }
    return true;
}

int64_t wf_extent_through(const wf_fn *f, const wf_points *at, const int64_t *x)
{
    wf_poly p;
    int64_t v;
    bool good = fit(f, at, x, &p);
    for (int i = 0; i < WF_POINTS_APART && good; i++) {
        good = value_of(f, &p, at->size[i], &v) && v == x[i];
    }
    return good && wf_poly_extent(f, &p, &v) && WF_IS_SYM(v) ? v : -1;
}
