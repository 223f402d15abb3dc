/* y = a * b, for each of `count` numbers. y may be a or b. */
static void multiply(const float *a, const float *b, int count, float *y)
{
    for (int i = 0; i < count; i++)
        y[i] = a[i] * b[i];
}
