/* y = x * scale + offset, for each of `count` numbers. y may be x. */
static void rescale(const float *x, float scale, float offset, int count, float *y)
{
    for (int i = 0; i < count; i++)
        y[i] = x[i] * scale + offset;
}
