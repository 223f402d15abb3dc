/* y = (x - mean) / sqrt(variance + epsilon) * gain + shift, for each of `rows` rows. y may be x. */
static void normalize(const float *x, const float *gain, const float *shift, float epsilon,
                      int rows, int width, float *y)
{
    for (int row = 0; row < rows; row++, x += width, y += width) {
        float mean = 0.0f, variance = 0.0f;
        for (int i = 0; i < width; i++)
            mean += x[i];
        mean /= (float)width;
        for (int i = 0; i < width; i++)
            variance += (x[i] - mean) * (x[i] - mean);
        variance /= (float)width;
        const float scale = 1.0f / sqrtf(variance + epsilon);
        for (int i = 0; i < width; i++)
            y[i] = (x[i] - mean) * scale * gain[i] + shift[i];
    }
}
