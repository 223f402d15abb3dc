/* softmax(q * k^T * scale) * v for each head; heads lie side by side in a row. q is
 * [queries][heads * width], k [keys][heads * width], v [keys][heads * value_width]; y has a row for
 * each query. `scores` holds one query's row of weights. y may be q if the widths are the same. */
static void attention(const float *q, const float *k, const float *v, float scale, int queries,
                      int keys, int heads, int width, int value_width, float *scores, float *y)
{
    for (int query = 0; query < queries; query++)
        for (int head = 0; head < heads; head++) {
            float largest = -FLT_MAX, total = 0.0f;
            for (int key = 0; key < keys; key++) {
                float sum = 0.0f;
                for (int i = 0; i < width; i++)
                    sum += q[(query * heads + head) * width + i]
                         * k[(key * heads + head) * width + i];
                scores[key] = sum * scale;
                if (scores[key] > largest)
                    largest = scores[key];
            }
            for (int key = 0; key < keys; key++) {
                scores[key] = exponential(scores[key] - largest);
                total += scores[key];
            }
            if (total < 1.0f)
                total = 1.0f; /* the largest alone gives 1; a row of -infinity gives 0 */
            for (int i = 0; i < value_width; i++) {
                float sum = 0.0f;
                for (int key = 0; key < keys; key++)
                    sum += scores[key] * v[(key * heads + head) * value_width + i];
                y[(query * heads + head) * value_width + i] = sum / total;
            }
        }
}
