/* y = x / sqrt(mean of x^2 + epsilon) * gain, for each of `rows` rows. y may be x. */
static void rms_normalize(const float *x, const float *gain, float epsilon, int rows, int width,
                          float *y)
{
    for (int row = 0; row < rows; row++, x += width, y += width) {
        float square = 0.0f;
        for (int i = 0; i < width; i++)
            square += x[i] * x[i];
        const float scale = 1.0f / sqrtf(square / (float)width + epsilon);
        for (int i = 0; i < width; i++)
            y[i] = x[i] * scale * gain[i];
    }
}
