// The same work on the CPU, one thread after another, for AddressSanitizer: it needs no GPU and finds the same line.
#include <cstdio>
#include <memory>
#include <vector>

#include "histogram.h"

int main() {
  const int count = 100000;
  std::vector<float> samples(count);
  for (int i = 0; i < count; ++i) samples[i] = sample_of(i);
  auto bins = std::make_unique<unsigned[]>(BINS);
  for (int thread = 0; thread < count; ++thread)
    count_sample(samples.data(), count, thread, bins.get(), [](unsigned* bin) { ++*bin; });
  unsigned total = 0;
  for (int bin = 0; bin < BINS; ++bin) total += bins[bin];
  std::printf("%u of %d samples are in a bin\n", total, count);
  return total == static_cast<unsigned>(count) ? 0 : 1;
}
