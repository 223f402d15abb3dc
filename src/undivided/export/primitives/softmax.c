/* y = e^x / sum of e^x, for each of `rows` rows. y may be x. */
static void softmax(const float *x, int rows, int width, float *y)
{
    for (int row = 0; row < rows; row++, x += width, y += width) {
        float largest = -FLT_MAX, total = 0.0f;
        for (int i = 0; i < width; i++)
            if (x[i] > largest)
                largest = x[i];
        for (int i = 0; i < width; i++) {
            y[i] = exponential(x[i] - largest);
            total += y[i];
        }
        if (total < 1.0f)
            total = 1.0f; /* the largest alone gives 1; a row of -infinity gives 0 */
        for (int i = 0; i < width; i++)
            y[i] /= total;
    }
}
