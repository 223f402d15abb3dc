/* Turn each pair of numbers (a, b) of each head into (a * c - b * s, a * s + b * c). `turns` has a
 * cosine and a sine for each pair of a head, for each of `rows` rows. y may be x.
 *
 * A product is added, not taken away: GCC recognizes the two lines of a complex product as one, and
 * at -O3 fuses it to be rounded once, whatever -ffp-contract says. */
static void rotary(const float *x, const float *turns, int rows, int heads, int width, float *y)
{
    for (int row = 0; row < rows; row++, turns += width / 2 * 2)
        for (int head = 0; head < heads; head++, x += width, y += width) {
            for (int i = 0; i + 1 < width; i += 2) {
                const float a = x[i], b = x[i + 1], c = turns[i], s = turns[i + 1];
                const float minus = 0.0f - s;
                y[i] = a * c + b * minus;
                y[i + 1] = a * s + b * c;
            }
            if (width % 2)
                y[width - 1] = x[width - 1];
        }
}
