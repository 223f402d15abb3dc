/* max(x, 0). NaN stays NaN. */
static float relu(float x)
{
    return x < 0.0f ? 0.0f : x;
}
