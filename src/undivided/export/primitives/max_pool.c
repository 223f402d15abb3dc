/* y = the largest of `rows` rows, number by number. x is [rows][width], y [width]. NaN is the
 * largest. */
static void max_pool(const float *x, int rows, int width, float *y)
{
    for (int i = 0; i < width; i++) {
        float largest = x[i];
        for (int row = 1; row < rows; row++)
            if (x[row * width + i] > largest || x[row * width + i] != x[row * width + i])
                largest = x[row * width + i];
        y[i] = largest;
    }
}
