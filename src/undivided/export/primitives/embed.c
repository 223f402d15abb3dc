/* y = the row of `table` that each id names. An id is a whole number from 0 below `vocabulary`;
 * what is none counts as 0. */
static void embed(const float *ids, const float *table, int count, int vocabulary, int width,
                  float *y)
{
    for (int i = 0; i < count; i++) {
        const int id = ids[i] >= 0.0f && ids[i] < (float)vocabulary ? (int)ids[i] : 0;
        for (int j = 0; j < width; j++)
            *y++ = table[id * width + j];
    }
}
