/*
 * eager/kernels/reduce_canon.h -- template: one canonical reduction over contiguous operands.
 *
 * The includer defines T (value), SFX (f32, f64, i64), ESIZE (bytes of T), NAME, OP (+ or *),
 * IDENTITY and EXPR (the element, of LD(x), LD(y), LD(w) and the scalars p, q) and gets
 *     static T NAME_SFX(const T *x, const T *y, const T *w, T p, T q, int64_t n)
 * Operands that EXPR does not name may be NULL. AHEAD, if defined, is an address whose line is fetched
 * early while group i of 64 elements is added. NAME, EXPR and AHEAD are undefined at the end.
 *
 * Invariants: lane l of a block of 4096 holds the sequential reduction of the elements with index
 * = l mod 64; lanes are combined l with l + 32, then + 16 ... + 1; results of blocks are a sequence
 * reduced by the same rule. Missing elements are the identity (-0 or 1), which changes no bits, so
 * padding may be added or left out freely.
 */
#define FN(name) WF_JOIN(name, SFX)
#define V WF_JOIN(wf_vec, SFX)
#define VMEM WF_JOIN(wf_mem, SFX)
#define VN (WF_VBYTES / ESIZE)
#define NA (WF_LANES / VN)

/* One register, halved. */
#define OF(a, b) ((a)OP(b))
#if VN == 16
#define FOLD(v) WF_FOLD_16(v, OF)
#elif VN == 8
#define FOLD(v) WF_FOLD_8(v, OF)
#elif VN == 4
#define FOLD(v) WF_FOLD_4(v, OF)
#else
#define FOLD(v) WF_FOLD_2(v, OF)
#endif

#define ARGS x, y, w, p, q
#define PARAMS                                                                                     \
    __attribute__((unused)) const T *x, __attribute__((unused)) const T *y,                        \
        __attribute__((unused)) const T *w, __attribute__((unused)) T p,                           \
        __attribute__((unused)) T q

/* The elements of a register's first lanes, [i, n), fewer than it has; the identity in the others. */
WF_INLINE V FN(WF_JOIN(NAME, part))(PARAMS, int64_t i, int64_t n)
{
#define LD(ptr) WF_JOIN(WF_PART, SFX)((ptr) + i, n - i)
    const V e = EXPR;
    return WF_JOIN(WF_ONLY, SFX)(n - i, e, WF_JOIN(wf_all, SFX)((T)(IDENTITY)));
#undef LD
}

/* One block, elements [i, n), 0 < n - i <= 4096. */
WF_INLINE T FN(WF_JOIN(NAME, block))(PARAMS, int64_t i, int64_t n)
{
#define LD(ptr) ((V) * (const VMEM *)((ptr) + i + k * VN))
    V a[NA];
    if (n - i >= WF_LANES) {
        WF_UNROLL for (int k = 0; k < NA; k++)
        {
            a[k] = EXPR;
        }
        for (i += WF_LANES; i + WF_LANES <= n; i += WF_LANES) {
            WF_UNROLL for (int k = 0; k < NA; k++)
            {
                a[k] = a[k] OP(EXPR);
            }
#ifdef AHEAD
            for (int k = 0; k < WF_LANES; k += 64 / ESIZE) {
                __builtin_prefetch(AHEAD + i + k);
            }
#endif
        }
    } else {
        WF_UNROLL for (int k = 0; k < NA; k++)
        {
            a[k] = WF_JOIN(wf_all, SFX)((T)(IDENTITY));
        }
    }
    if (i < n) {
        const int whole = (int)(n - i) / VN;
        const V last = FN(WF_JOIN(NAME, part))(ARGS, i + whole * VN, n);
        WF_UNROLL for (int k = 0; k < NA; k++)
        {
            if (k < whole) {
                a[k] = a[k] OP(EXPR);
            } else if (k == whole) {
                a[k] = a[k] OP last;
            }
        }
    }
    WF_UNROLL for (int h = NA / 2; h >= 1; h /= 2)
    {
        WF_UNROLL for (int k = 0; k < h; k++)
        {
            a[k] = a[k] OP a[k + h];
        }
    }
    FOLD(a[0]);
    return (T)a[0][0];
#undef LD
}

/* Any n >= 0. Results of blocks go to the lanes of the next level as they come. */
__attribute__((unused)) static T FN(NAME)(PARAMS, int64_t n)
{
    if (n <= WF_BLOCK) {
        return n > 0 ? FN(WF_JOIN(NAME, block))(ARGS, 0, n) : (T)(IDENTITY);
    }
    enum { LEVELS = 5 };
    T lane[LEVELS][WF_LANES];
    int64_t count[LEVELS] = {0};
    int top = 0;
    for (int64_t i = 0; i < n; i += WF_BLOCK) {
        T part = FN(WF_JOIN(NAME, block))(ARGS, i, n - i < WF_BLOCK ? n : i + WF_BLOCK);
        bool last = n - i <= WF_BLOCK;
        for (int level = 0; level < LEVELS; level++) {
            int64_t c = count[level]++;
            T *a = &lane[level][c % WF_LANES];
            *a = c < WF_LANES ? part : (T)(*a OP part);
            top = top > level ? top : level;
            if (count[level] < WF_BLOCK && !(last && level <= top)) {
                break;
            }
            for (int64_t l = count[level]; l < WF_LANES; l++) {
                lane[level][l] = (T)(IDENTITY);
            }
            for (int h = WF_LANES / 2; h >= 1; h /= 2) {
                for (int l = 0; l < h; l++) {
                    lane[level][l] = (T)(lane[level][l] OP lane[level][l + h]);
                }
            }
            part = lane[level][0];
            count[level] = 0;
            if (last && level == top) {
                return part;
            }
        }
    }
    return (T)(IDENTITY);
}

#undef PARAMS
#undef ARGS
#undef FOLD
#undef OF
#undef NA
#undef VN
#undef VMEM
#undef V
#undef FN
#undef EXPR
#undef NAME
#undef AHEAD
