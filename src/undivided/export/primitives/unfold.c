/* Cut a picture into patches that touch and do not overlap: x is rows * height by columns * width
 * pixels of `depth` numbers, y has a row for each patch with its pixels in row order. */
static void unfold(const float *x, int rows, int columns, int height, int width, int depth,
                   float *y)
{
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            for (int line = 0; line < height; line++) {
                const float *pixels =
                    x + ((row * height + line) * columns + column) * width * depth;
                for (int i = 0; i < width * depth; i++)
                    *y++ = pixels[i];
            }
}
