// What one thread of the histogram does, for the GPU and, so that AddressSanitizer can look at it, for the CPU.
#pragma once

#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif

constexpr int BINS = 64;

// The bin of a sample in [0, 1].  FIXED closes the last bin on the right: without it, 1.0 falls behind the end.
BOTH inline int bin_of(float sample) {
  int bin = static_cast<int>(sample * BINS);
#ifdef FIXED
  if (bin == BINS) bin = BINS - 1;
#endif
  return bin;
}

template <typename Add>
BOTH inline void count_sample(const float* samples, int count, int thread, unsigned* bins, Add add) {
  if (thread < count) add(&bins[bin_of(samples[thread])]);
}

// Sample i of a fixed sequence in [0, 1]; every hundredth is 1 exactly.
inline float sample_of(int i) { return i % 100 == 99 ? 1.0f : static_cast<float>((i * 7919) % 10007) / 10007.0f; }
