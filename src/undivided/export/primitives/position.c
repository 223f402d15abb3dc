/* y = x + table, for each of `count` numbers. y may be x. */
static void position(const float *x, const float *table, int count, float *y)
{
    for (int i = 0; i < count; i++)
        y[i] = x[i] + table[i];
}
