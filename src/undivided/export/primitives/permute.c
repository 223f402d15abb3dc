/* The axes in another order. `shape` is that of y, and `strides` how far apart in x the numbers are
 * along each of its axes. */
static void permute(const float *x, int axes, const int *shape, const int *strides, int count,
                    float *y)
{
    for (int i = 0; i < count; i++) {
        int from = 0, rest = i;
        for (int axis = axes - 1; axis >= 0; axis--) {
            from += rest % shape[axis] * strides[axis];
            rest /= shape[axis];
        }
        y[i] = x[from];
    }
}
