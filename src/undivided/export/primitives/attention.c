/* softmax(q * k^T * scale) * v for each head; heads lie side by side in a row. q is
 * [queries][heads * width], k [keys][heads * width], v [keys][heads * value_width]; y has a row for
 * each query. `scores` holds one query's row of weights. y may be q if the widths are the same. */
static void attention(const float *q, const float *k, const float *v, float scale, int queries,
                      int keys, int heads, int width, int value_width, float *scores, float *y)
{
    for (int query = 0; query < queries; query++)
        for (int head = 0; head < heads; head++, q += width, y += value_width) {
            for (int key = 0; key < keys; key++)
                scores[key] = dot(q, k + (key * heads + head) * width, 1, width) * scale;
            softmax(scores, 1, keys, scores);
            for (int i = 0; i < value_width; i++)
                y[i] = dot(scores, v + head * value_width + i, heads * value_width, keys);
        }
}
