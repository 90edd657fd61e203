#include "flashgpt/tensor.h"

#include <gtest/gtest.h>

namespace flashgpt {
namespace {

TEST(Tensor, ViewsOfAPackedRow) {
  float data[2 * 12];
  const Tensor packed(data, {2, 12}, Dtype::kF32);
  const Tensor q = packed.slice(1, 0, 6).split(1, 3, 2);
  EXPECT_EQ(q.shape, (Shape{2, 3, 2}));
  EXPECT_EQ(q.stride(0), 12);
  EXPECT_EQ(q.stride(1), 2);
  EXPECT_FALSE(q.contiguous());
  EXPECT_EQ(packed.slice(1, 6, 2).data, data + 6);
  EXPECT_EQ(q.select(0, 1).data, data + 12);
  EXPECT_EQ(q.select(0, 1).shape, (Shape{3, 2}));
  EXPECT_TRUE(packed.contiguous());
}

TEST(Tensor, BadViewsThrow) {
  float data[12];
  const Tensor t(data, {3, 4}, Dtype::kF32);
  EXPECT_THROW(t.view({5, 2}), Error);
  EXPECT_THROW(t.slice(1, 2, 3), Error);
  EXPECT_THROW(t.slice(1, 0, 2).view({6}), Error);
  EXPECT_THROW(t.split(1, 3, 2), Error);
  EXPECT_THROW(t.as<double>(), Error);
  EXPECT_EQ(t.view({12}).shape.str(), "[12]");
}

}  // namespace
}  // namespace flashgpt
