/* The largest of every window of a picture, for each of `depth` numbers; the windows are those of
 * `windows`, of which only what is inside the picture counts. NaN is the largest. */
static void max_windows(const float *x, int height, int width, int depth, int high, int wide,
                        int down, int across, int above, int left, int rows, int columns, float *y)
{
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            for (int j = 0; j < depth; j++) {
                float largest = -HUGE_VALF;
                for (int i = 0; i < high * wide; i++) {
                    const int line = row * down + i / wide - above;
                    const int place = column * across + i % wide - left;
                    if (line < 0 || line >= height || place < 0 || place >= width)
                        continue;
                    const float value = x[(line * width + place) * depth + j];
                    if (value > largest || value != value)
                        largest = value;
                }
                *y++ = largest;
            }
}
