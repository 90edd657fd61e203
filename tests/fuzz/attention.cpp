// Arguments of the C ABI. The input is a list of changes to arguments that are right: 2 bytes say where, 1 what (one of the numbers that
// hurt, or the 8 bytes that follow). prepare and workspace follow no pointer, so any arguments must end in a status and a message.
#include <cstring>
#include <limits>

#include "flashgpt/flashgpt.h"
#include "fuzz/targets.h"

namespace flashgpt::fuzz {
namespace {

char memory[1 << 16];

template <class... Sizes> flashgpt_tensor tensor(std::int32_t dtype, Sizes... sizes) {
  flashgpt_tensor t{memory, dtype, sizeof...(sizes), {sizes...}, {}};
  std::int64_t n = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.strides[i] = n;
    n *= t.shape[i];
  }
  return t;
}

struct Arguments {
  flashgpt_attention_spec spec;
  flashgpt_attention_forward_args forward;
  flashgpt_attention_backward_args backward;
  flashgpt_attention_decode_args decode;
};

// Two sequences of 8 queries and 16 keys, 4 heads over 2, head dim 8; every optional tensor is there.
Arguments right() {
  Arguments a{};
  flashgpt_attention_spec& s = a.spec;
  flashgpt_attention_spec_init(&s);
  s.batch = 2, s.max_q = 8, s.max_k = 16, s.heads = 4, s.kv_heads = 2, s.head_dim = s.v_head_dim = 8;
  s.alibi = s.sink = s.causal = s.block_mask = 1, s.block_q = 4, s.block_k = 8, s.dropout = 0.1f;
  const flashgpt_tensor q = tensor(FLASHGPT_F32, 2, 8, 4, 8), k = tensor(FLASHGPT_F32, 2, 16, 2, 8), lse = tensor(FLASHGPT_F32, 2, 4, 8),
                        lengths = tensor(FLASHGPT_I32, 2), heads = tensor(FLASHGPT_F32, 4), state = tensor(FLASHGPT_I64, 2);
  const flashgpt_block_lists lists{tensor(FLASHGPT_I32, 1, 4, 2), tensor(FLASHGPT_I32, 2, 1, 2), tensor(FLASHGPT_I32, 1, 4, 2, 2),
                                   tensor(FLASHGPT_I32, 2, 1, 2, 2)};
  auto& f = a.forward;
  f.size = sizeof f, f.o = f.q = q, f.k = f.v = k, f.lse = lse, f.seqused_q = f.seqused_k = lengths;
  f.alibi_slopes = f.sink = heads, f.dropout_state = state, f.blocks = lists;
  auto& b = a.backward;
  b.size = sizeof b, b.q = b.o = b.dq = b.dout = q, b.k = b.v = b.dk = b.dv = k, b.lse = b.dlse = lse, b.seqused_q = b.seqused_k = lengths;
  b.alibi_slopes = b.sink = b.dsink = heads, b.dropout_state = state, b.blocks = b.key_blocks = lists;
  auto& d = a.decode;
  d.size = sizeof d, d.o = d.q = q, d.k_cache = d.v_cache = k, d.k_new = d.v_new = tensor(FLASHGPT_F32, 2, 3, 2, 8), d.lse = lse;
  d.lengths = d.new_lengths = d.seqused_q = d.batch_index = d.left_pad = lengths, d.sink = d.alibi_slopes = heads;
  d.rotary_cos = d.rotary_sin = tensor(FLASHGPT_F32, 40, 4);
  return a;
}

void answered(flashgpt_status status, const char* what) {
  promise(status == FLASHGPT_OK || status == FLASHGPT_FAILURE || status == FLASHGPT_INVALID || status == FLASHGPT_DEVICE, what);
  promise(status == FLASHGPT_OK || std::strlen(flashgpt_message()) > 0, "a failure has a message");
}

}  // namespace

void attention(std::string_view bytes) {
  static flashgpt_context* context = [] {
    const flashgpt_context_options options{sizeof options, FLASHGPT_CPU, 2};
    flashgpt_context* c = nullptr;
    promise(flashgpt_create(&options, &c) == FLASHGPT_OK, "a context is made");
    return c;
  }();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kNumbers[] = {0,
                                       1,
                                       -1,
                                       2,
                                       3,
                                       4,
                                       5,
                                       7,
                                       8,
                                       16,
                                       255,
                                       65536,
                                       1 << 30,
                                       std::int64_t{1} << 31,
                                       std::int64_t{1} << 32,
                                       std::int64_t{1} << 40,
                                       std::int64_t{1} << 62,
                                       kMost,
                                       -kMost - 1,
                                       0x7fc000007fc00000};
  Arguments a = right();
  const bool plain_decode = bytes.size() % 2 == 0;  // what the call with a cache refuses
  if (plain_decode) a.spec.dropout = 0, a.spec.block_mask = 0;
  while (bytes.size() >= 3) {
    std::uint16_t at = 0;
    std::memcpy(&at, bytes.data(), 2);
    const auto what = static_cast<unsigned char>(bytes[2]);
    bytes.remove_prefix(3);
    std::int64_t value = kNumbers[what % std::size(kNumbers)];
    if (what >= 192 && bytes.size() >= 8) {
      std::memcpy(&value, bytes.data(), 8);
      bytes.remove_prefix(8);
    }
    const std::size_t width = what % 2 == 0 ? 8 : 4, place = at * 4u % (sizeof a - 8) / width * width;
    std::memcpy(reinterpret_cast<char*>(&a) + place, &value, width);
  }
  std::size_t needed = 0;
  answered(flashgpt_attention_forward_prepare(context, &a.spec, &a.forward), "forward prepared");
  answered(flashgpt_attention_forward_workspace(context, &a.spec, &a.forward, &needed), "forward planned");
  answered(flashgpt_attention_backward_prepare(context, &a.spec, &a.backward), "backward prepared");
  answered(flashgpt_attention_backward_workspace(context, &a.spec, &a.backward, &needed), "backward planned");
  answered(flashgpt_attention_decode_prepare(context, &a.spec, &a.decode), "decode prepared");
  answered(flashgpt_attention_decode_workspace(context, &a.spec, &a.decode, &needed), "decode planned");
}

}  // namespace flashgpt::fuzz
