#define CHUNK 16

#if KIND == 64
typedef double number;
typedef double real;
#define LOWEST (-1e300)
__device__ real load(number x) { return x; }
__device__ number store(real x) { return x; }
__device__ real power(real x) { return exp(x); }
__device__ real logarithm(real x) { return log(x); }
__device__ real larger(real x, real y) { return x > y ? x : y; }
#else
typedef float real;
#define LOWEST (-1e38f)
#if KIND == 32
typedef float number;
__device__ real load(number x) { return x; }
__device__ number store(real x) { return x; }
#else
typedef unsigned short number;
__device__ real load(number x) { return __uint_as_float((unsigned)x << 16); }
__device__ number store(real x)
{
    unsigned bits = __float_as_uint(x);
    if (x != x) return 0x7fc0;
    return (number)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
#endif
__device__ real power(real x) { return expf(x); }
__device__ real logarithm(real x) { return logf(x); }
__device__ real larger(real x, real y) { return x > y ? x : y; }
#endif

extern "C" __global__ void wkv_forward(int batch, int steps, int channels, const real* w, const real* u,
                                       const number* k, const number* v, number* y)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= batch * channels) return;
    int channel = at % channels;
    long long base = (long long)(at / channels) * steps * channels + channel;
    real decay = w[channel], bonus = u[channel], a = 0, b = 0, top = LOWEST;
    for (int first = 0; first < steps; first += CHUNK) {
        real keys[CHUNK], values[CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            bool inside = first + i < steps;
            keys[i] = inside ? load(k[base + (long long)(first + i) * channels]) : 0;
            values[i] = inside ? load(v[base + (long long)(first + i) * channels]) : 0;
        }
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            if (first + i >= steps) break;
            real own = bonus + keys[i], most = larger(top, own);
            real past = power(top - most), now = power(own - most);
            y[base + (long long)(first + i) * channels] =
                store((past * a + now * values[i]) / (past * b + now));
            most = larger(decay + top, keys[i]);
            past = power(decay + top - most), now = power(keys[i] - most);
            a = past * a + now * values[i];
            b = past * b + now;
            top = most;
        }
    }
}

/* The first walk repeats the sums, with their derivatives by the decay, and keeps each output and the logarithm of
   its weight; the second walks back with the gradients of both sums, their largest exponent apart as well. */
extern "C" __global__ void wkv_backward(int batch, int steps, int channels, const real* w, const real* u,
                                        const number* k, const number* v, const number* g, real* outputs,
                                        real* weights, real* gw, real* gu, number* gk, number* gv)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= batch * channels) return;
    int channel = at % channels;
    long long base = (long long)(at / channels) * steps * channels + channel;
    real decay = w[channel], bonus = u[channel], a = 0, b = 0, da = 0, db = 0, top = LOWEST, to_w = 0, to_u = 0;
    for (int t = 0; t < steps; t++) {
        long long place = base + (long long)t * channels;
        real key = load(k[place]), value = load(v[place]), grad = load(g[place]);
        real own = bonus + key, most = larger(top, own);
        real past = power(top - most), now = power(own - most);
        real weight = past * b + now, out = (past * a + now * value) / weight;
        to_w += grad / weight * past * (da - out * db);
        to_u += grad / weight * now * (value - out);
        outputs[place] = out;
        weights[place] = most + logarithm(weight);
        most = larger(decay + top, key);
        past = power(decay + top - most), now = power(key - most);
        da = past * (da + a);
        db = past * (db + b);
        a = past * a + now * value;
        b = past * b + now;
        top = most;
    }
    gw[at] = to_w;
    gu[at] = to_u;
    real ga = 0, gb = 0;
    top = LOWEST;
    for (int t = steps - 1; t >= 0; t--) {
        long long place = base + (long long)t * channels;
        real key = load(k[place]), value = load(v[place]), grad = load(g[place]);
        real out = outputs[place], weight = weights[place];
        real own = grad * power(bonus + key - weight), state = power(key + top);
        gv[place] = store(own + state * ga);
        gk[place] = store(own * (value - out) + state * (ga * value + gb));
        real most = larger(-weight, decay + top);
        real past = power(decay + top - most), now = power(-weight - most);
        ga = past * ga + now * grad;
        gb = past * gb - now * grad * out;
        top = most;
    }
}
