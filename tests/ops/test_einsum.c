/*
 * tests/ops/test_einsum.c -- einsum against a loop through all values of all letters, in long double; eager, traced and at
 * several numbers of threads.
 *
 * ctest: threads optimised
 */
#include "tests/ops/compositions.h"
#include "tests/support/effort.h"

/* -- einsum --------------------------------------------------------------------------------------------------- */

/* `plain` is the equation with letters for the axes under an ellipsis, and an arrow. */
typedef struct equation {
    const char *text, *plain;
    int n;
    weft_shape shape[3];
} equation;

static weft_tensor call_einsum(const void *how, const weft_tensor *in, int n)
{
    const equation *e = how;
    return (weft_einsum)(e->text, in, n);
}

/* Place in a row-major tensor of the letters' values; extents of 1 have one. */
static int64_t place(const char *letters, int n, weft_shape s, const int64_t *value)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        at = at * s.v[i] + (s.v[i] == 1 ? 0 : value[(unsigned char)letters[i]]);
    }
    return at;
}

/* Every value of every letter; the shape of the result. */
static weft_shape einsum_by_hand(const equation *e, real (*v)[MOST], int dtype)
{
    int64_t extent[128] = {0}, value[128] = {0}, all = 1;
    const char *term[4] = {0}, *p = e->plain;
    int length[4] = {0};
    char letters[32] = "";
    for (int t = 0; t <= e->n; t++) {
        term[t] = p;
        length[t] = (int)strcspn(p, ",-");
        for (int i = 0; i < length[t] && t < e->n; i++) {
            int64_t *x = &extent[(unsigned char)p[i]], d = e->shape[t].v[i];
            if (!strchr(letters, p[i])) {
                strncat(letters, &p[i], 1);
                *x = 1;
            }
            *x = *x == 1 ? d : *x;
        }
        p += length[t] + (p[length[t]] == '-' ? 2 : p[length[t]] == ',');
    }
    weft_shape out = {.n = length[e->n]};
    for (int i = 0; i < out.n; i++) {
        out.v[i] = extent[(unsigned char)term[e->n][i]];
    }
    for (const char *c = letters; *c; c++) {
        all *= extent[(unsigned char)*c];
    }
    for (int64_t k = 0; k < all; k++) {
        int64_t rest = k;
        for (const char *c = letters; *c; c++) {
            value[(unsigned char)*c] = rest % extent[(unsigned char)*c];
            rest /= extent[(unsigned char)*c];
        }
        real product = 1;
        for (int t = 0; t < e->n; t++) {
            product *= v[t][place(term[t], length[t], e->shape[t], value)];
        }
        add_term(place(term[e->n], length[e->n], out, value), product);
    }
    /* products of parts: a term is added in one of up to n sums */
    want_sums(count(out), dtype, 3 * e->n, e->n - 1);
    return out;
}

static void check_einsum(const equation *e, int dtype, bool odd)
{
    static real v[3][MOST];
    weft_scope sc = weft_scope_begin();
    weft_tensor in[3];
    for (int t = 0; t < e->n; t++) {
        in[t] = given(e->shape[t], dtype, odd, v[t]);
    }
    weft_shape out = einsum_by_hand(e, v, dtype);
    judge(e->text, call_einsum, e, in, e->n, (weft_dtype)dtype, out);
    weft_scope_end(sc);
}

Test(compositions, einsum)
{
    const equation list[] = {
        {"ij,jk->ik", "ij,jk->ik", 2, {S(3, 4), S(4, 5)}},
        {"ij,jk", "ij,jk->ik", 2, {S(3, 4), S(4, 5)}},
        {"ba", "ba->ab", 1, {S(3, 4)}},
        {"Ba", "Ba->Ba", 1, {S(3, 4)}},
        {" i j , k j -> k i ", "ij,kj->ki", 2, {S(3, 4), S(5, 4)}},
        {"ij->", "ij->", 1, {S(30, 40)}},
        {"ii", "ii->", 1, {S(5, 5)}},
        {"iij->ji", "iij->ji", 1, {S(3, 3, 4)}},
        {"iii->i", "iii->i", 1, {S(3, 3, 3)}},
        {"i,j->ji", "i,j->ji", 2, {S(3), S(4)}},
        {"i,i->", "i,i->", 2, {S(300), S(300)}},
        {"bi,bi->b", "bi,bi->b", 2, {S(3, 7), S(3, 7)}},
        {"bij,bjk->bik", "bij,bjk->bik", 2, {S(2, 3, 4), S(2, 4, 5)}},
        {"bhqd,bhkd->bhqk", "bhqd,bhkd->bhqk", 2, {S(2, 3, 4, 5), S(2, 3, 6, 5)}},
        {"btd,de->bte", "btd,de->bte", 2, {S(2, 3, 4), S(4, 5)}},
        {"abcd,cdab->", "abcd,cdab->", 2, {S(2, 3, 4, 5), S(4, 5, 2, 3)}},
        {"aibj,cjdi->dabc", "aibj,cjdi->dabc", 2, {S(2, 3, 4, 5), S(2, 5, 3, 3)}},
        {"ij,jk->ik", "ij,jk->ik", 2, {S(3, 1), S(4, 5)}},
        {"ij,ij->ij", "ij,ij->ij", 2, {S(1, 4), S(3, 1)}},
        {"ij,ij->ij", "ij,ij->ij", 2, {S(1, 4), S(1, 1)}},
        {"ij,j->i", "ij,j->i", 2, {S(3, 0), S(0)}},
        {",ij->j", ",ij->j", 2, {S(), S(3, 4)}},
        {"...ij,...jk->...ik", "zij,jk->zik", 2, {S(2, 3, 4), S(4, 5)}},
        {"...ij,...jk->...ik", "yzij,yzjk->yzik", 2, {S(2, 1, 3, 4), S(2, 3, 4, 2)}},
        {"i...,...i", "iz,zi->z", 2, {S(3, 4), S(4, 3)}},
        {"...a->", "yza->", 1, {S(2, 3, 4)}},
        {"a...->...", "a->", 1, {S(5)}},
        {"ab,bc,cd->ad", "ab,bc,cd->ad", 3, {S(3, 4), S(4, 2), S(2, 5)}},
        {"i,ij,j->", "i,ij,j->", 3, {S(3), S(3, 4), S(4)}},
        {"ij,ij,ij->ij", "ij,ij,ij->ij", 3, {S(3, 4), S(3, 1), S(1, 4)}},
    };
    for (int i = 0; i < COUNT(list); i++) {
        check_einsum(&list[i], WEFT_F64, false);
        check_einsum(&list[i], WEFT_F32, true);
        if (list[i].n < 3) { /* f16 and bf16 round what lies between */
            check_einsum(&list[i], i % 2 ? WEFT_F16 : WEFT_BF16, i % 3 == 0);
        }
        check_einsum(&list[i], WEFT_I64, true);
    }
    check_einsum(&list[0], WEFT_I32, false);
}

/* One to three operands with letters of six, some of them twice, some of extent 1, some results left out. */
Test(compositions, einsum_at_random)
{
    char text[64];
    for (int k = 0; k < (int)effort_of(300); k++) {
        int64_t extent[6];
        bool used[6] = {false};
        equation e = {text, text, (int)test_between(&rng, 1, 3), {{0}}};
        int at = 0;
        for (int i = 0; i < 6; i++) {
            extent[i] = test_between(&rng, 1, 3);
        }
        for (int t = 0; t < e.n; t++) {
            int64_t axes = test_between(&rng, 0, 4), mine[6];
            memcpy(mine, extent, sizeof mine);
            mine[test_between(&rng, 0, 5)] = 1;
            for (int i = 0; i < axes; i++) {
                int64_t letter = test_between(&rng, 0, 5);
                used[letter] = true;
                text[at++] = "aXbYcd"[letter];
                e.shape[t].v[e.shape[t].n++] = mine[letter];
            }
            at += snprintf(text + at, 4, t + 1 < e.n ? "," : "->");
        }
        for (int64_t first = test_between(&rng, 0, 5), i = 0; i < 6; i++) {
            int64_t letter = (first + 5 * i) % 6;
            if (used[letter] && test_between(&rng, 0, 1)) {
                text[at++] = "aXbYcd"[letter];
            }
        }
        text[at] = 0;
        check_einsum(&e, k % 3 ? WEFT_F64 : WEFT_F32, k % 2);
    }
}

Test(compositions, einsum_views_types_and_ranks)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_reshape(weft_arange(0, 12, 1, WEFT_F32), S(3, 4)), y;
    cr_assert(weft_shares_memory(x, weft_einsum("ij->ji", x)));
    cr_assert(weft_shares_memory(x, weft_einsum("ij->ij", x)));
    cr_assert(weft_shares_memory(x, weft_einsum("ii->i", weft_narrow(x, 1, 0, 3))));
    y = weft_einsum("ij,j->i", x, weft_ones(S(4), WEFT_F64));
    check_type("promoted", y, WEFT_F64, S(3));
    check_type("a number", weft_einsum("ij,->ji", x, weft_i(2)), WEFT_F32, S(4, 3));
    check_type("of bool", weft_einsum("i->", weft_ones(S(4), WEFT_BOOL)), WEFT_I64, S());
    check_type("of bytes", weft_einsum("i->", weft_ones(S(4), WEFT_U8)), WEFT_U8, S());
    weft_shape twos = {.n = 16};
    for (int i = 0; i < 16; i++) {
        twos.v[i] = 2;
    }
    y = weft_full(twos, 2, WEFT_F16); /* fifteen axes stay beside the matrices of its products */
    y = weft_einsum("abcdefghijklmnop,abcdefghijklmnop->bcdefghijklmnop", y, y);
    cr_assert_eq(weft_item_f64(weft_min(y)), 8, "%s", weft_error_text(y));
    cr_assert_eq(weft_item_f64(weft_max(y)), 8);
    y = weft_full(twos, 1, WEFT_F32);
    weft_tensor z =
        weft_reshape(weft_narrow(weft_flatten(y, 0, -1), 0, 0, 512), S(2, 2, 2, 2, 2, 2, 2, 2, 2));
    check_error("17 axes between",
                weft_einsum("abcdefgh,ijklmnopq,abcdefghijklmnop->q", weft_select(z, 0, 0), z, y),
                WEFT_ESHAPE, "rank 17");
    check_error("17 axes", weft_einsum("abcdefgh,ijklmnopq", weft_select(z, 0, 0), z), WEFT_ESHAPE,
                "rank 17");
    weft_scope_end(sc);
}
