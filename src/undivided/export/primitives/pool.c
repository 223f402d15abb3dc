/* y = the mean of `rows` rows, added from first to last. x is [rows][width], y [width]. */
static void pool(const float *x, int rows, int width, float *y)
{
    for (int i = 0; i < width; i++) {
        float sum = 0.0f;
        for (int row = 0; row < rows; row++)
            sum += x[row * width + i];
        y[i] = sum / (float)rows;
    }
}
