/* y = x, for each of `count` numbers. */
static void copy(const float *x, int count, float *y)
{
    for (int i = 0; i < count; i++)
        y[i] = x[i];
}
