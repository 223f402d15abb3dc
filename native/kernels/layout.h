// Operations that move numbers: load (from the caller's samples), unfold, reshape, store.
//
// Unfold cuts a picture [height][width][depth] into patches, one row of down·across·depth numbers
// for each, row by row. Patches do not overlap, so backward moves each gradient back.
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

// Where the run of numbers that patch row `dy` of patch (py, px) takes from a picture begins.
struct Geometry {
  int64_t height, width, depth, down, across;
  int64_t patches_across() const { return width / across; }
  int64_t patches() const { return height / down * patches_across(); }
  int64_t run() const { return across * depth; }
  int64_t from(int64_t patch, int64_t row) const {
    int64_t py = patch / patches_across(), px = patch % patches_across();
    return ((py * down + row) * width + px * across) * depth;
  }
};

UNDIVIDED_INLINE Geometry geometry_of(const Instruction& op) {
  return {op.height, op.across_image, op.depth, op.down, op.across};
}

// count numbers of a sample as floats, rescaled. Plain loops: compilers widen bytes best alone.
UNDIVIDED_INLINE void convert(const Input& input, int64_t first, int64_t count, float scale,
                              float offset, float* __restrict to) {
  if (input.element == Element::kByte) {
    const uint8_t* from = (const uint8_t*)input.x + first;
    for (int64_t i = 0; i < count; ++i) to[i] = (float)from[i] * scale + offset;
  } else {
    const float* from = (const float*)input.x + first;
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] * scale + offset;
  }
}

// Rows of a sample as they come, each behind the other `stride` apart and padded with zeros. A
// vector may reach into the rows behind, but not beyond the sample.
UNDIVIDED_INLINE void convert_rows(const Input& input, int64_t first, int64_t rows, int64_t width,
                                   float scale, float offset, float* to, int64_t stride) {
  const float* from = (const float*)input.x + first;
  const float* end = input.element == Element::kFloat ? from + rows * width : from;
  for (int64_t r = 0; r < rows; ++r, first += width, from += width, to += stride) {
    if (from + padded(width) <= end) {
      for (int64_t c = 0; c < padded(width); c += kLanes) {
        Vector v = load(from + c) * scale + offset;
        store(to + c, lanes_below(width - c) ? v : Vector{});
      }
    } else {
      convert(input, first, width, scale, offset, to);
      for (int64_t c = width; c < stride; ++c) to[c] = 0.0f;
    }
  }
}

UNDIVIDED_INLINE void cut_patch(const float* from, const Geometry& g, float* row,
                                const Buffer& y) {
  int64_t run = g.run();
  for (int64_t d = 0; d < g.down; ++d, from += g.width * g.depth, row += run) {
    if (run == 4) {
      typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
      *(Four*)row = *(const Four*)from;
    } else {
      for (int64_t i = 0; i < run; ++i) row[i] = from[i];
    }
  }
  for (int64_t c = y.width; c < y.stride; ++c) *row++ = 0.0f;
}

// Where a sample's own numbers begin in an input.
UNDIVIDED_INLINE int64_t first_of(const Input& input, int64_t member) {
  return input.first_row ? input.first_row[member] * input.row_elements
                         : member * input.sample_elements;
}

UNDIVIDED_INLINE void load_forward(const Work& work, const Instruction& op) {
  const Input& input = work.samples->inputs[op.slot];
  const Buffer& y = buffer_of(work, op.y);
  float scale = (float)op.scale, offset = (float)op.offset;
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t first = first_of(input, work.members[s]);
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    int64_t rows = rows_in(work, y.axis, s);
    if (op.down == 0) {  // rows as they come
      if (y.width == y.stride) {
        convert(input, first, rows * y.width, scale, offset, to);
        continue;
      }
      convert_rows(input, first, rows, y.width, scale, offset, to, y.stride);
      continue;
    }
    Geometry g = geometry_of(op);
    float* flat = values_of(work, op.scratch);
    convert(input, first, input.sample_elements, scale, offset, flat);
    for (int64_t py = 0; py < g.height / g.down; ++py)
      for (int64_t px = 0; px < g.patches_across(); ++px, to += y.stride)
        cut_patch(flat + (py * g.down * g.width + px * g.across) * g.depth, g, to, y);
  }
}

UNDIVIDED_INLINE void unfold_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  Geometry g = geometry_of(op);
  for (int64_t s = 0; s < work.count; ++s) {
    const float* from = row_of(work, op.x, start_of(work, x.axis, s));
    for (int64_t patch = 0; patch < g.patches(); ++patch) {
      float* to = row_of(work, op.y, start_of(work, y.axis, s) + patch);
      for (int64_t c = y.width; c < y.stride; ++c) to[c] = 0.0f;
      for (int64_t i = 0; i < y.width; ++i) {
        int64_t at = g.from(patch, i / g.run()) + i % g.run();
        to[i] = from[at / x.width * x.stride + at % x.width];
      }
    }
  }
}

UNDIVIDED_INLINE void unfold_backward(const Work& work, const Instruction& op) {
  const Buffer &dx = buffer_of(work, op.dx), &dy = buffer_of(work, op.dy);
  Geometry g = geometry_of(op);
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = row_of(work, op.dx, start_of(work, dx.axis, s));
    if (!op.accumulate_x)
      for (int64_t i = 0; i < rows_in(work, dx.axis, s) * dx.stride; ++i) to[i] = 0.0f;
    for (int64_t patch = 0; patch < g.patches(); ++patch) {
      const float* from = row_of(work, op.dy, start_of(work, dy.axis, s) + patch);
      for (int64_t i = 0; i < dy.width; ++i) {
        int64_t at = g.from(patch, i / g.run()) + i % g.run();
        to[at / dx.width * dx.stride + at % dx.width] += from[i];
      }
    }
  }
}

// The numbers of one sample in row order, from rows of one width to rows of another.
UNDIVIDED_INLINE void rearrange(const float* from, const Buffer& source, float* to,
                                const Buffer& target, int64_t count, bool accumulate) {
  for (int64_t i = 0; i < count; ++i) {
    float value = from[i / source.width * source.stride + i % source.width];
    float& place = to[i / target.width * target.stride + i % target.width];
    place = accumulate ? place + value : value;
  }
}

UNDIVIDED_INLINE void reshape_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    clear_padding(to, y, rows_in(work, y.axis, s));
    rearrange(row_of(work, op.x, start_of(work, x.axis, s)), x, to, y,
              rows_in(work, x.axis, s) * x.width, false);
  }
}

UNDIVIDED_INLINE void reshape_backward(const Work& work, const Instruction& op) {
  const Buffer &dx = buffer_of(work, op.dx), &dy = buffer_of(work, op.dy);
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = row_of(work, op.dx, start_of(work, dx.axis, s));
    if (!op.accumulate_x) clear_padding(to, dx, rows_in(work, dx.axis, s));
    rearrange(row_of(work, op.dy, start_of(work, dy.axis, s)), dy, to, dx,
              rows_in(work, dx.axis, s) * dx.width, op.accumulate_x);
  }
}

// Where a sample's own numbers begin in the caller's array of a slot.
UNDIVIDED_INLINE float* output_of(const Work& work, int64_t slot, int64_t member) {
  const int64_t* starts = work.output_start ? work.output_start[slot] : nullptr;
  return work.outputs[slot] + (starts ? starts[member] : member * work.output_elements[slot]);
}

// Copies a value (or the gradient of the samples, folded back and rescaled) to the caller.
UNDIVIDED_INLINE void store_rows(const Work& work, const Instruction& op) {
  const Buffer& x = buffer_of(work, op.x);
  float scale = (float)op.scale;
  for (int64_t s = 0; s < work.count; ++s) {
    const float* from = row_of(work, op.x, start_of(work, x.axis, s));
    float* to = output_of(work, op.slot, work.members[s]);
    int64_t rows = rows_in(work, x.axis, s);
    Geometry g = geometry_of(op);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < x.width; ++c) {
        int64_t at = op.down ? g.from(r, c / g.run()) + c % g.run() : r * x.width + c;
        to[at] = from[r * x.stride + c] * scale;
      }
  }
}

// The gradient that the caller gives for the output becomes that of a value.
UNDIVIDED_INLINE void seed_backward(const Work& work, const Instruction& op) {
  const Buffer& dx = buffer_of(work, op.dx);
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t member = work.members[s], rows = rows_in(work, dx.axis, s);
    const int64_t* starts = work.output_gradient_start;
    const float* from =
        work.output_gradient + (starts ? starts[member] : member * rows * dx.width);
    float* to = row_of(work, op.dx, start_of(work, dx.axis, s));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < dx.stride; ++c)
        to[r * dx.stride + c] = c < dx.width ? from[r * dx.width + c] : 0.0f;
  }
}

}  // namespace undivided::UNDIVIDED_SET
