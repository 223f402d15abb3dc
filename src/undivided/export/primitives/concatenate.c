/* y = a and, behind it, b. */
static void concatenate(const float *a, int a_count, const float *b, int b_count, float *y)
{
    for (int i = 0; i < a_count; i++)
        y[i] = a[i];
    for (int i = 0; i < b_count; i++)
        y[a_count + i] = b[i];
}
