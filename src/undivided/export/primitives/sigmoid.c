/* 1 / (1 + e^-x), from e^-|x|, which never overflows. */
static float sigmoid(float x)
{
    const float e = exponential(x < 0.0f ? x : -x);
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
