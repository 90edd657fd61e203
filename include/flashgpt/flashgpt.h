/* Attention from C, or through any language's foreign function interface: libflashgpt exports what is declared here and nothing else.
 *
 * - Structs are plain and zero-initialised: a tensor that is all zeros is absent. Each begins with its size as the caller knows it
 *   (flashgpt_tensor apart), so that a library with more fields reads the missing ones as zero.
 * - Every call returns a status; the message of the last failure in this thread is flashgpt_message(). No exception leaves the library.
 * - prepare does what is slow and can fail early: checks, and on a GPU the choice and compilation of kernels. workspace says how much
 *   memory a call needs. The call itself allocates nothing and compiles nothing; it returns when its results are there (CPU).
 * - A context may be used by several threads; calls through it take turns. Its threads are not pinned.
 *
 * Shapes, masks, lengths: flashgpt/attention.h for the spec, which has the same fields; strides are in elements, the last one is 1.
 */
#ifndef FLASHGPT_FLASHGPT_H_
#define FLASHGPT_FLASHGPT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FLASHGPT_API __attribute__((visibility("default")))
#else
#define FLASHGPT_API
#endif

typedef int32_t flashgpt_status;
enum {
  FLASHGPT_OK = 0,
  FLASHGPT_FAILURE = 1,
  FLASHGPT_INVALID = 3, /* an argument; the message names it, its value and what was expected */
  FLASHGPT_DEVICE = 4   /* device, memory, or a feature that the device's kernels lack */
};

enum { FLASHGPT_F32 = 0, FLASHGPT_BF16 = 1, FLASHGPT_F16 = 2, FLASHGPT_I64 = 4, FLASHGPT_I32 = 5 };
enum { FLASHGPT_CPU = 0, FLASHGPT_CUDA = 1 };

typedef struct flashgpt_tensor {
  void* data;
  int32_t dtype;
  int32_t rank; /* at most 5; 0: absent */
  int64_t shape[5];
  int64_t strides[5]; /* in elements */
} flashgpt_tensor;

typedef struct flashgpt_context flashgpt_context;

typedef struct flashgpt_context_options {
  size_t size;
  int32_t device;  /* FLASHGPT_CPU */
  int32_t threads; /* 0: those that the process may use */
} flashgpt_context_options;

typedef struct flashgpt_attention_spec {
  size_t size;
  int64_t batch, max_q, max_k, total_q, total_k, heads, kv_heads, head_dim, v_head_dim;
  int32_t varlen, dtype;
  float scale, softcap; /* 0: 1 / sqrt(head_dim); none */
  int32_t alibi, sink, causal, block_mask;
  int64_t window_left, window_right; /* -1: no limit */
  int64_t block_q, block_k;
  float dropout;
  uint32_t dropout_stream;
  int64_t head_offset, total_heads;
  int32_t partial_output, reserved;
} flashgpt_attention_spec;

typedef struct flashgpt_block_lists {
  flashgpt_tensor full_count, partial_count, full_index, partial_index;
} flashgpt_block_lists;

typedef struct flashgpt_attention_forward_args {
  size_t size;
  flashgpt_tensor o, lse, q, k, v;
  flashgpt_tensor cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k;
  flashgpt_tensor alibi_slopes, sink, dropout_state;
  flashgpt_block_lists blocks;
} flashgpt_attention_forward_args;

typedef struct flashgpt_attention_backward_args {
  size_t size;
  flashgpt_tensor dq, dk, dv, dout, q, k, v, o, lse, dlse;
  flashgpt_tensor cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k;
  flashgpt_tensor alibi_slopes, sink, dropout_state, dsink; /* dsink is added to */
  flashgpt_block_lists blocks, key_blocks;
} flashgpt_attention_backward_args;

/* src/attention/decode.h says what each tensor is. */
typedef struct flashgpt_attention_decode_args {
  size_t size;
  flashgpt_tensor o, lse, q, k_cache, v_cache, k_new, v_new;
  flashgpt_tensor lengths, new_lengths, seqused_q, batch_index, left_pad, page_table;
  flashgpt_tensor rotary_cos, rotary_sin, alibi_slopes, sink;
  int32_t rotary_interleaved, reserved;
} flashgpt_attention_decode_args;

FLASHGPT_API const char* flashgpt_version(void);
/* Of the last call of this thread that failed; "" before. Valid until the next call of this thread. */
FLASHGPT_API const char* flashgpt_message(void);

FLASHGPT_API flashgpt_status flashgpt_create(const flashgpt_context_options* options, flashgpt_context** context);
FLASHGPT_API void flashgpt_destroy(flashgpt_context* context);

/* Keys that the kernels take at a time: with block_k a multiple of it a causal mask given as blocks has the bits of causal. 0 for NULL. */
FLASHGPT_API int64_t flashgpt_attention_key_tile(const flashgpt_context* context);

/* Defaults: no windows (-1), everything else zero, size set. */
FLASHGPT_API void flashgpt_attention_spec_init(flashgpt_attention_spec* spec);

FLASHGPT_API flashgpt_status flashgpt_attention_forward_prepare(flashgpt_context*, const flashgpt_attention_spec*,
                                                                const flashgpt_attention_forward_args*);
FLASHGPT_API flashgpt_status flashgpt_attention_forward_workspace(flashgpt_context*, const flashgpt_attention_spec*,
                                                                  const flashgpt_attention_forward_args*, size_t* bytes);
/* stream: the GPU's queue; NULL on the CPU. */
FLASHGPT_API flashgpt_status flashgpt_attention_forward(flashgpt_context*, const flashgpt_attention_spec*,
                                                        const flashgpt_attention_forward_args*, void* workspace, size_t bytes,
                                                        void* stream);

FLASHGPT_API flashgpt_status flashgpt_attention_backward_prepare(flashgpt_context*, const flashgpt_attention_spec*,
                                                                 const flashgpt_attention_backward_args*);
FLASHGPT_API flashgpt_status flashgpt_attention_backward_workspace(flashgpt_context*, const flashgpt_attention_spec*,
                                                                   const flashgpt_attention_backward_args*, size_t* bytes);
FLASHGPT_API flashgpt_status flashgpt_attention_backward(flashgpt_context*, const flashgpt_attention_spec*,
                                                         const flashgpt_attention_backward_args*, void* workspace, size_t bytes,
                                                         void* stream);

FLASHGPT_API flashgpt_status flashgpt_attention_decode_prepare(flashgpt_context*, const flashgpt_attention_spec*,
                                                               const flashgpt_attention_decode_args*);
FLASHGPT_API flashgpt_status flashgpt_attention_decode_workspace(flashgpt_context*, const flashgpt_attention_spec*,
                                                                 const flashgpt_attention_decode_args*, size_t* bytes);
FLASHGPT_API flashgpt_status flashgpt_attention_decode(flashgpt_context*, const flashgpt_attention_spec*,
                                                       const flashgpt_attention_decode_args*, void* workspace, size_t bytes, void* stream);

#ifdef __cplusplus
}
#endif

#endif
