/* erf(x) to about 2 ulp: an odd polynomial near 0, and 1 - e^-p(x) further out. */
static float error_function(float x)
{
    const float size = x < 0.0f ? -x : x;
    float p;
    if (size < 0.95f) {
        const float s = x * x;
        p = 8.21542344e-5f;
        p = p * s - 8.10596510e-4f;
        p = p * s + 5.19779697e-3f;
        p = p * s - 2.68581044e-2f;
        p = p * s + 1.12836726e-1f;
        p = p * s - 3.76126319e-1f;
        p = p * s + 1.28379166e-1f;
        return x + x * p;
    }
    p = 1.25792285e-5f;
    p = p * size - 3.36340338e-4f;
    p = p * size + 3.69769568e-3f;
    p = p * size - 2.38793436e-2f;
    p = p * size + 1.06373608e-1f;
    p = p * size + 6.35068238e-1f;
    p = p * size + 1.12866902f;
    const float y = size > 4.0f ? 1.0f : 1.0f - exponential(-size * p);
    return x < 0.0f ? -y : y;
}
