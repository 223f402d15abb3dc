/* y = function(x), for each of `count` numbers. y may be x. */
static void activate(float (*function)(float), const float *x, int count, float *y)
{
    for (int i = 0; i < count; i++)
        y[i] = function(x[i]);
}
