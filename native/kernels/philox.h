// Philox4x32-10: sixteen blocks side by side, the 64 words of one tile of coins.
//
// Word j/16 of the block whose count begins at tile·16 + j%16 says whether number j of the tile is
// kept. So a coin depends on where it falls alone, not on who throws it or when.
#pragma once

#include "vector.h"

namespace undivided::UNDIVIDED_SET {

// Bit j is set where word j is at least `drop_below`.
inline __attribute__((noinline)) uint64_t kept_of_tile(uint64_t seed, uint32_t tile, uint32_t second,
                                                       uint32_t third, uint32_t fourth,
                                                       uint32_t drop_below) {
  constexpr int N = 16;
  uint32_t c0[N], c1[N], c2[N], c3[N];
  for (int i = 0; i < N; ++i) {
    c0[i] = tile * N + i;
    c1[i] = second;
    c2[i] = third;
    c3[i] = fourth;
  }
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < N; ++i) {
      uint64_t a = (uint64_t)c0[i] * 0xD2511F53u, b = (uint64_t)c2[i] * 0xCD9E8D57u;
      uint32_t n0 = (uint32_t)(b >> 32) ^ c1[i] ^ k0, n2 = (uint32_t)(a >> 32) ^ c3[i] ^ k1;
      c0[i] = n0;
      c1[i] = (uint32_t)b;
      c2[i] = n2;
      c3[i] = (uint32_t)a;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  uint64_t bits = 0;
  for (int i = 0; i < N; ++i)
    bits |= (uint64_t)(c0[i] >= drop_below) << i | (uint64_t)(c1[i] >= drop_below) << (i + N) |
            (uint64_t)(c2[i] >= drop_below) << (i + 2 * N) |
            (uint64_t)(c3[i] >= drop_below) << (i + 3 * N);
  return bits;
}

}  // namespace undivided::UNDIVIDED_SET
