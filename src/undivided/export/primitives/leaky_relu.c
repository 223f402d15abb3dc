/* x, or a hundredth of it where it is negative. */
static float leaky_relu(float x)
{
    return x > 0.0f ? x : 0.01f * x;
}
