/* tanh(x) to about 2 ulp: an odd polynomial near 0, and 1 - 2 / (e^2x + 1) further out. */
static float hyperbolic_tangent(float x)
{
    const float size = x < 0.0f ? -x : x;
    if (size < 0.625f) {
        const float s = x * x;
        float p = -5.71703678e-3f;
        p = p * s + 2.06505787e-2f;
        p = p * s - 5.37434965e-2f;
        p = p * s + 1.33314908e-1f;
        p = p * s - 3.33332837e-1f;
        return x + x * s * p;
    }
    const float y = size > 10.0f ? 1.0f : 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
    return x < 0.0f ? -y : y;
}
