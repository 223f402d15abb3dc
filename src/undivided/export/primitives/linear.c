/* y = x * weight + bias for each of `rows` rows; without a bias it is 0. x is [rows][in], weight
 * [in][out], y [rows][out]. */
static void linear(const float *x, const float *weight, const float *bias, int rows, int in,
                   int out, float *y)
{
    for (int row = 0; row < rows; row++, x += in, y += out)
        for (int o = 0; o < out; o++) {
            const float sum = dot(x, weight + o, out, in);
            y[o] = bias ? sum + bias[o] : sum;
        }
}
