/* y = row number `row` of x. */
static void pick(const float *x, int row, int width, float *y)
{
    for (int i = 0; i < width; i++)
        y[i] = x[row * width + i];
}
