/* linear with the weight turned, [out][in]: a table that is used twice. */
static void linear_turned(const float *x, const float *weight, const float *bias, int rows, int in,
                          int out, float *y)
{
    for (int row = 0; row < rows; row++, x += in, y += out)
        for (int o = 0; o < out; o++) {
            const float sum = dot(x, weight + o * in, 1, in);
            y[o] = bias ? sum + bias[o] : sum;
        }
}
