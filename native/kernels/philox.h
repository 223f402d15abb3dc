// Philox4x32-10: sixteen blocks side by side, the 64 words of one tile of coins.
//
// Word j/16 of the block whose count begins at tile·16 + j%16 says whether number j of the tile is
// kept. So a coin depends on where it falls alone, not on who throws it or when.
#pragma once

#include "vector.h"

namespace undivided::UNDIVIDED_SET {

// Bit j is set where word j is at least `drop_below`. The words stand in lanes of 64 bits, where a
// product has room: five times as fast as what compilers make of arrays of 32.
inline __attribute__((noinline)) uint64_t kept_of_tile(uint64_t seed, uint32_t tile,
                                                       uint32_t second, uint32_t third,
                                                       uint32_t fourth, uint32_t drop_below) {
  constexpr int kLongs = kLanes / 2, kParts = 16 / kLongs;
  typedef uint64_t Words __attribute__((vector_size(8 * kLongs)));
  const Words low = Words{} + 0xffffffffull;
  Words c0[kParts], c1[kParts], c2[kParts], c3[kParts], lane{};
  for (int i = 0; i < kLongs; ++i) lane[i] = (uint64_t)i;
  for (int p = 0; p < kParts; ++p) {
    c0[p] = lane + (uint64_t)p * kLongs + (uint64_t)(uint32_t)(tile * 16);
    c1[p] = Words{} + second;
    c2[p] = Words{} + third;
    c3[p] = Words{} + fourth;
  }
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 8
    for (int p = 0; p < kParts; ++p) {
      Words a = c0[p] * 0xD2511F53ull, b = c2[p] * 0xCD9E8D57ull;
      c0[p] = (b >> 32) ^ c1[p] ^ (uint64_t)k0;
      c1[p] = b & low;
      c2[p] = (a >> 32) ^ c3[p] ^ (uint64_t)k1;
      c3[p] = a & low;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  uint64_t bits = 0;
  for (int p = 0; p < kParts; ++p) {
    const Words words[4] = {c0[p], c1[p], c2[p], c3[p]};
    for (int w = 0; w < 4; ++w) {
      Words kept = (Words)(words[w] >= Words{} + drop_below) & (Words{} + 1ull) << lane;
      uint64_t part = 0;
      for (int i = 0; i < kLongs; ++i) part |= kept[i];
      bits |= part << (16 * w + p * kLongs);
    }
  }
  return bits;
}

}  // namespace undivided::UNDIVIDED_SET
