/* The sum of x[i] * w[i * step] for `count` numbers: four sums side by side, of every fourth term
 * from first to last, and then their sum. That is faster than one, and rounds half as much off. */
static float dot(const float *x, const float *w, int step, int count)
{
    const int fours = count - count % 4;
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    for (int i = 0; i < fours; i += 4) {
        a += x[i] * w[i * step];
        b += x[i + 1] * w[(i + 1) * step];
        c += x[i + 2] * w[(i + 2) * step];
        d += x[i + 3] * w[(i + 3) * step];
    }
    for (int i = fours; i < count; i++)
        a += x[i] * w[i * step];
    return (a + b) + (c + d);
}
