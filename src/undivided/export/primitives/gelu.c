/* x times the share of the normal distribution below x: x / 2 * (1 + erf(x / sqrt 2)). */
static float gelu(float x)
{
    return 0.5f * x * (1.0f + error_function(x * 0.707106781f));
}
