/* Every window of a picture becomes a row. x is height by width pixels of `depth` numbers. A window
 * is high by wide pixels; one begins every `down` and `across` pixels, the first `above` and `left`
 * of the picture. Outside of it is 0. y is [rows][columns][high * wide * depth]. */
static void windows(const float *x, int height, int width, int depth, int high, int wide, int down,
                    int across, int above, int left, int rows, int columns, float *y)
{
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            for (int i = 0; i < high * wide; i++) {
                const int line = row * down + i / wide - above;
                const int place = column * across + i % wide - left;
                const int inside = line >= 0 && line < height && place >= 0 && place < width;
                for (int j = 0; j < depth; j++)
                    *y++ = inside ? x[(line * width + place) * depth + j] : 0.0f;
            }
}
