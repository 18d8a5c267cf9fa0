extern "C" __global__ void plant(unsigned* base, long long shift, long long cycles)
{
    long long start = clock64();
    while (clock64() - start < cycles) {}
    *(volatile unsigned*)((char*)base + shift) = 7;
}
