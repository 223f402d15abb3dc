/* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), which is nearly gelu. */
static float gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + hyperbolic_tangent(0.797884561f * (x + 0.044715f * x * x * x)));
}
