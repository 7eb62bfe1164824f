/* bound.c: bounds of docs/numerics.md, and the comparison. */
#include "bound.h"

#include "gen.h"

#include <math.h>

double bound_store_unit(bstk_dtype dtype) {
    switch (dtype) {
    case BSTK_F32:
        return 0x1p-24;
    case BSTK_F16:
        return 0x1p-11;
    case BSTK_BF16:
        return 0x1p-8;
    default:
        return 0x1p-53;
    }
}

bstk_dtype bound_sum_dtype(bstk_dtype dtype) {
    return dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32;
}

double bound_sum_unit(bstk_dtype dtype) {
    /* In f64 the reference rounds as much as the result does: twice the unit. */
    return dtype == BSTK_F64 ? 0x1p-52 : 0x1p-24;
}

double bound_smallest(bstk_dtype dtype) {
    switch (dtype) {
    case BSTK_F32:
        return 0x1p-149;
    case BSTK_F16:
        return 0x1p-24;
    case BSTK_BF16:
        return 0x1p-133;
    default:
        return 0x1p-1074;
    }
}

double bound_overflow(bstk_dtype dtype) {
    /* Largest number and half of its last place. */
    switch (dtype) {
    case BSTK_F32:
        return 0x1.ffffffp127;
    case BSTK_F16:
        return 65520;
    case BSTK_BF16:
        return 0x1.ffp127;
    default:
        return INFINITY;
    }
}

double bound_gamma(double n, double u) {
    return n * u < 1 ? n * u / (1 - n * u) : INFINITY;
}

double bound_product(bstk_dtype dtype, int64_t k, double value, double size) {
    const double terms = (double)k;
    /* 4 roundings beyond the sum's: alpha, beta and their two products; each term may underflow once. */
    const double sum = size > 0 ? bound_gamma(terms + 4, bound_sum_unit(dtype)) * size : 0;
    const double underflow = size > 0 ? (terms + 4) * bound_smallest(bound_sum_dtype(dtype)) : 0;
    const double store = bound_store_unit(dtype) * fabs(value) + (size > 0 ? bound_smallest(dtype) : 0);
    return 2 * (sum + underflow + store);
}

double bound_stored(bstk_dtype dtype, double value, double error) {
    return error + bound_store_unit(dtype) * (fabs(value) + error) + bound_smallest(dtype);
}

double bound_smallest_normal(bstk_dtype dtype) {
    return dtype == BSTK_F64 ? 0x1p-1022 : 0x1p-126;
}

void bound_softmax_row(bstk_dtype dtype, int64_t count, const uint8_t *kept, const double *s, const double *delta,
                       double *error, double *lse_error) {
    const double u = bound_sum_unit(dtype), tiny = bound_smallest_normal(dtype);
    double max = -INFINITY, terms = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (kept[i]) {
            max = fmax(max, s[i]);
            terms += 1;
        }
    }
    /* An online softmax scales what it has, by an exp and a product, where the maximum rises: at every tile at most. */
    const double rescaling = 5 * u * ceil((double)count / 16);
    /* error[] first holds the largest exponential that the errors allow: exp(t + theta) * (1 + 4u). */
    double sum = 0, excess = 0;
    for (int64_t i = 0; i < count; ++i) {
        error[i] = 0;
        if (!kept[i] || s[i] == -INFINITY)
            continue;
        const double t = s[i] - max, theta = delta[i] + 4 * u * fabs(t) + rescaling;
        error[i] = exp(t + theta) * (1 + 4 * u) + tiny;
        sum += exp(t);
        excess += error[i] - exp(t);
    }
    const double rho = excess / sum + bound_gamma(terms, u);
    for (int64_t i = 0; i < count; ++i) {
        if (!kept[i] || s[i] == -INFINITY)
            continue;
        const double y = exp(s[i] - max) / sum;
        error[i] = rho < 1 ? fmin(1, error[i] / (sum * (1 - rho)) * (1 + 4 * u) - y + tiny) : 1;
    }
    *lse_error = rho < 1 ? -log1p(-rho) + 8 * u * (fabs(max) + fabs(log(sum))) + tiny : INFINITY;
}

bound_result bound_compare(const bstk_tensor *got, const double *want, const double *bound) {
    bound_result r = {.ok = true, .at = -1};
    double worst_bad = -1;
    const int64_t count = gen_count(got), width = gen_width(got);
    const int64_t step = got->ndim > 0 ? got->stride[got->ndim - 1] : 0;
    for (int64_t i = 0, at = 0; i < count; ++i) {
        at = i % width == 0 ? gen_offset(got, i) : at + step;
        const double g = gen_load(got->dtype, got->data, at), w = want[i];
        double ratio = 0; /* more than 1 fails; infinite when there is no measure */
        if (isnan(w)) {
            ratio = isnan(g) ? 0 : INFINITY;
        } else if (isinf(w)) {
            ratio = g == w ? 0 : INFINITY;
        } else if (bound[i] == INFINITY) {
            ratio = 0;
        } else if (isinf(g)) {
            const bool may = signbit(g) == signbit(w) && fabs(w) + bound[i] >= bound_overflow(got->dtype);
            ratio = may || gen_round(got->dtype, w) == g ? 0 : INFINITY;
        } else if (bound[i] == 0) {
            ratio = gen_round(got->dtype, w) == g ? 0 : INFINITY;
        } else {
            ratio = fabs(g - w) / bound[i];
        }
        const bool bad = !(ratio <= 1);
        r.bad += bad;
        if (!isinf(ratio) && ratio > r.worst)
            r.worst = ratio;
        if (bad && isnan(ratio))
            ratio = INFINITY; /* a NaN where a number belongs, or a bound that is none */
        if (bad ? ratio > worst_bad : (r.ok && (r.at < 0 || ratio >= r.worst))) {
            worst_bad = bad ? ratio : worst_bad;
            r.at = i;
            r.got = g;
            r.want = w;
            r.bound = bound[i];
        }
        r.ok = r.ok && !bad;
    }
    return r;
}
