/* e^x to about 1 ulp: x = n * ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r, and 2^n put
 * together from its bits. 0 below -87.3, infinite above 88.3. */
static float exponential(float x)
{
    if (x < -87.3f)
        return 0.0f;
    if (!(x <= 88.3f))
        return x * HUGE_VALF; /* infinity, or NaN where x is NaN */
    const int n = (int)(x * 1.44269504f + (x < 0.0f ? -0.5f : 0.5f));
    const float r = (x - (float)n * 0.693359375f) + (float)n * 2.12194440e-4f;
    float p = 1.99178481e-4f;
    p = p * r + 1.39460980e-3f;
    p = p * r + 8.33326578e-3f;
    p = p * r + 4.16662693e-2f;
    p = p * r + 1.66666672e-1f;
    p = p * r + 0.5f;
    const union { uint32_t bits; float value; } power = {(uint32_t)(n + 127) << 23};
    return (p * (r * r) + r + 1.0f) * power.value;
}
