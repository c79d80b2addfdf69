// What the two TUs of the module share.
#pragma once

constexpr int kBins = 256;

// In normalise.cu.
int normalise(const unsigned* counts, float* shares, unsigned total);
