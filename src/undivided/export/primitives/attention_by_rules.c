/* What an attention layer may say beyond softmax(q * k^T * scale) * v; what is 0 does not apply. */
struct rules {
    int key_heads;                /* heads of keys and values, each for heads / key_heads of q's */
    int before, after;            /* how many keys before and after its own place a query sees */
    float softcap;                /* scores are bent to stay between -softcap and softcap */
    const float *by_distance;     /* [heads][queries + keys - 1], added to scores by key - query */
    const unsigned char *allowed; /* [queries][keys], 0 where a query does not see a key */
};

/* attention with rules: k is [keys][key_heads * width], v [keys][key_heads * value_width]. A query
 * that sees nothing gives 0, and what it does not see cannot reach it, not even as NaN. */
static void attention_by_rules(const float *q, const float *k, const float *v, float scale,
                               int queries, int keys, int heads, int width, int value_width,
                               struct rules rules, float *scores, float *y)
{
    const int distances = queries + keys - 1;
    for (int query = 0; query < queries; query++)
        for (int head = 0; head < heads; head++, q += width, y += value_width) {
            const int key_head = head * rules.key_heads / heads;
            const int first = query > rules.before ? query - rules.before : 0;
            const int end = query + rules.after < keys ? query + rules.after + 1 : keys;
            const unsigned char *allowed = rules.allowed ? rules.allowed + query * keys : 0;
            for (int key = first; key < end; key++) {
                const float *row = k + (key * rules.key_heads + key_head) * width;
                scores[key] = dot(q, row, 1, width) * scale;
                if (rules.softcap > 0.0f)
                    scores[key] = rules.softcap * hyperbolic_tangent(scores[key] / rules.softcap);
                if (rules.by_distance)
                    scores[key] += rules.by_distance[head * distances + key - query + queries - 1];
                if (allowed && !allowed[key])
                    scores[key] = -HUGE_VALF;
            }
            softmax(scores + first, 1, end - first, scores + first);
            for (int i = 0; i < value_width; i++) {
                const float *column = v + key_head * value_width + i;
                float sum = 0.0f;
                for (int key = first; key < end; key++)
                    if (!allowed || allowed[key])
                        sum += scores[key] * column[key * rules.key_heads * value_width];
                y[i] = sum;
            }
        }
}
