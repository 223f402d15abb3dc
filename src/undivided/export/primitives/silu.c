/* x / (1 + e^-x). */
static float silu(float x)
{
    return x * sigmoid(x);
}
