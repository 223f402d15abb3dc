/* elu(x) + 1 */
static float feature(float x)
{
    return x > 0.0f ? x + 1.0f : exponential(x);
}

/* The mean of v by weights feature(q) * feature(k), for each head; heads lie side by side in a row.
 * q is [queries][heads * width], k [keys][key_heads * width], v [keys][key_heads * value_width]; y
 * has a row for each query. `state` holds what keys give a head, value_width + 1 sums for each of
 * `width` features, and then the features of a query. y may be q if the widths are the same. */
static void linear_attention(const float *q, const float *k, const float *v, int queries, int keys,
                             int heads, int key_heads, int width, int value_width, int causal,
                             float *state, float *y)
{
    const int together = heads / key_heads, columns = value_width + 1;
    float *features = state + width * columns;
    for (int key_head = 0; key_head < key_heads; key_head++) {
        int seen = 0;
        for (int i = 0; i < width * columns; i++)
            state[i] = 0.0f;
        for (int query = 0; query < queries; query++) {
            for (; seen < keys && (!causal || seen <= query); seen++)
                for (int i = 0; i < width; i++) {
                    const float x = feature(k[(seen * key_heads + key_head) * width + i]);
                    const float *value = v + (seen * key_heads + key_head) * value_width;
                    float *sums = state + i * columns;
                    for (int j = 0; j < value_width; j++)
                        sums[j] += x * value[j];
                    sums[value_width] += x;
                }
            for (int i = 0; i < together; i++) {
                const int place = query * heads + key_head * together + i;
                for (int j = 0; j < width; j++)
                    features[j] = feature(q[place * width + j]);
                const float sum = dot(features, state + value_width, columns, width);
                for (int j = 0; j < value_width; j++)
                    y[place * value_width + j] =
                        sum == 0.0f ? 0.0f : dot(features, state + j, columns, width) / sum;
            }
        }
    }
}
