// Small kernels that time a memory system: load chains, flag round trips, fences, plain copies, one-shot all-reduces.
// Compiled at run time for the GPU at hand (NVRTC or nvcc), no headers. Tensors are bf16 in packets of 16 bytes.
// Whatever waits has a time limit and reports it, so that a wrong answer cannot become a stuck GPU.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SENTINEL 0x80008000u  // two times -0.0: no sum that matters is lost by sending +0.0 instead

__device__ __forceinline__ u64 now_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__device__ __forceinline__ u32 load_u32(const u32* p) {
    u32 v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ u32 load_acquire(const u32* p) {
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ u64 load_u64(const u64* p) {
    u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void store_u32(u32* p, u32 v) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ void store_release(u32* p, u32 v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ uint4 load16(const uint4* p) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
__device__ __forceinline__ void store16(uint4* p, uint4 v) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// ---- latency ----------------------------------------------------------------------------------------------------

// One thread follows a chain of addresses: result[0] nanoseconds for all loads.
extern "C" __global__ void load_chain(const u64* start, u32 loads, u64* result) {
    const u64* p = start;
    u64 begin = now_ns();
    for (u32 i = 0; i < loads; i++) p = (const u64*)load_u64(p);
    result[0] = now_ns() - begin;
    result[1] = (u64)p;
}

// Two GPUs answer each other: `mine` is polled, `theirs` is stored to. result[0] nanoseconds, result[1] 1 when done.
extern "C" __global__ void ping_pong(u32* mine, u32* theirs, u32 first, u32 rounds, u32 warm, u64 limit_ns,
                                     u64* result) {
    u64 begin = 0, entered = now_ns();
    result[1] = 0;
    for (u32 r = 1; r <= warm + rounds; r++) {
        if (first) store_u32(theirs, r);
        u32 polls = 0;
        while (load_u32(mine) != r)
            if ((++polls & 4095u) == 0 && now_ns() - entered > limit_ns) return;
        if (!first) store_u32(theirs, r);
        if (r == warm) begin = now_ns();
    }
    result[0] = now_ns() - begin;
    result[1] = 1;
}

// One block stores `words` words and, if asked, fences for the whole system. result[0] nanoseconds for all rounds.
extern "C" __global__ void fence_rounds(u32* target, u32 words, u32 rounds, u32 fence, u64* result) {
    u64 begin = now_ns();
    for (u32 r = 0; r < rounds; r++) {
        for (u32 i = threadIdx.x; i < words; i += blockDim.x) store_u32(target + i, r + i);
        __syncthreads();
        if (fence && threadIdx.x == 0) __threadfence_system();
        __syncthreads();
    }
    if (threadIdx.x == 0) result[0] = now_ns() - begin;
}

extern "C" __global__ void empty_kernel() {}

// ---- copies -----------------------------------------------------------------------------------------------------

// Stores when `target` is far, loads when `source` is.
extern "C" __global__ void copy16(uint4* target, const uint4* source, u64 packets) {
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < packets; i += 4 * stride) {
        uint4 a = load16(source + i), b = load16(source + i + stride);
        uint4 c = load16(source + i + 2 * stride), d = load16(source + i + 3 * stride);
        store16(target + i, a);
        store16(target + i + stride, b);
        store16(target + i + 2 * stride, c);
        store16(target + i + 3 * stride, d);
    }
    for (; i < packets; i += stride) store16(target + i, load16(source + i));
}

// ---- one-shot all-reduce ----------------------------------------------------------------------------------------

struct Sum {
    float v[8];
};
__device__ __forceinline__ void add(Sum& s, uint4 p) {
    u32 w[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        s.v[2 * k] += __uint_as_float(w[k] << 16);
        s.v[2 * k + 1] += __uint_as_float(w[k] & 0xffff0000u);
    }
}
__device__ __forceinline__ u32 round_bf16(float x) {
    u32 bits = __float_as_uint(x);
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
__device__ __forceinline__ uint4 packed(const Sum& s) {
    u32 w[4];
#pragma unroll
    for (int k = 0; k < 4; k++) w[k] = round_bf16(s.v[2 * k]) | (round_bf16(s.v[2 * k + 1]) << 16);
    return make_uint4(w[0], w[1], w[2], w[3]);
}
__device__ __forceinline__ u32 sendable(u32 w) { return w == SENTINEL ? 0u : w; }
__device__ __forceinline__ uint4 sendable(uint4 p) {
    return make_uint4(sendable(p.x), sendable(p.y), sendable(p.z), sendable(p.w));
}
__device__ __forceinline__ bool arrived(uint4 p) {
    return p.x != SENTINEL && p.y != SENTINEL && p.z != SENTINEL && p.w != SENTINEL;
}
__device__ __forceinline__ uint4 wait16(const uint4* p, u64 entered, u64 limit_ns, u32* error) {
    u32 polls = 0;
    uint4 v = load16(p);
    while (!arrived(v)) {
        if ((++polls & 1023u) == 0 && now_ns() - entered > limit_ns) {
            *error = 1;
            break;
        }
        v = load16(p);
    }
    return v;
}

// Sentinel push: stores the tensor into a slot of every peer, polls its own slots. inboxes[r] is the inbox of rank r:
// [3 sets][n senders][stride packets]. A set is cleared by its owner one call after it was read.
extern "C" __global__ void oneshot_push(const u64* inboxes, const uint4* in, uint4* out, u32 packets, u32 stride,
                                        u32 rank, u32 n, u32* calls, u64 limit_ns, u32* error) {
    __shared__ u32 shared_call;
    if (threadIdx.x == 0) shared_call = calls[blockIdx.x];
    __syncthreads();
    u32 call = shared_call, set = call % 3, old = (call + 2) % 3;
    u32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    u64 entered = now_ns();
    if (load_u32(error)) limit_ns = 0;  // lost already: do not wait again
    for (u32 i = first; i < packets; i += step) {
        uint4 mine = sendable(in[i]);
        for (u32 d = 1; d < n; d++) {
            u32 to = (rank + d) % n;
            store16((uint4*)inboxes[to] + (u64)(set * n + rank) * stride + i, mine);
        }
    }
    uint4* inbox = (uint4*)inboxes[rank];
    uint4 clear = make_uint4(SENTINEL, SENTINEL, SENTINEL, SENTINEL);
    for (u32 i = first; i < packets; i += step) {
        Sum sum = {};
        for (u32 r = 0; r < n; r++) {
            if (r == rank) {
                add(sum, sendable(in[i]));
            } else {
                add(sum, wait16(inbox + (u64)(set * n + r) * stride + i, entered, limit_ns, error));
                store16(inbox + (u64)(old * n + r) * stride + i, clear);
            }
        }
        out[i] = packed(sum);
    }
    __syncthreads();
    if (threadIdx.x == 0) calls[blockIdx.x] = call + 1;
}

// Through shared memory that all can reach (pinned host memory): stores the tensor once, polls the slots of the others.
// slots[r] is the slot of rank r: [3 sets][stride packets]; its owner clears a set once all have passed it.
extern "C" __global__ void oneshot_shared(const u64* slots, const uint4* in, uint4* out, u32 packets, u32 stride,
                                          u32 rank, u32 n, u32* calls, u64 limit_ns, u32* error) {
    __shared__ u32 shared_call;
    if (threadIdx.x == 0) shared_call = calls[blockIdx.x];
    __syncthreads();
    u32 call = shared_call, set = call % 3, old = (call + 2) % 3;
    u32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    u64 entered = now_ns();
    if (load_u32(error)) limit_ns = 0;  // lost already: do not wait again
    uint4* own = (uint4*)slots[rank];
    uint4 clear = make_uint4(SENTINEL, SENTINEL, SENTINEL, SENTINEL);
    for (u32 i = first; i < packets; i += step) store16(own + (u64)set * stride + i, sendable(in[i]));
    for (u32 i = first; i < packets; i += step) {
        Sum sum = {};
        uint4 got[8];  // all peers' loads in flight before the first is waited for
#pragma unroll
        for (u32 r = 0; r < 8; r++)
            if (r < n && r != rank) got[r] = load16((const uint4*)slots[r] + (u64)set * stride + i);
#pragma unroll
        for (u32 r = 0; r < 8; r++) {
            if (r >= n) continue;
            if (r == rank) {
                add(sum, sendable(in[i]));
            } else {
                if (!arrived(got[r]))
                    got[r] = wait16((const uint4*)slots[r] + (u64)set * stride + i, entered, limit_ns, error);
                add(sum, got[r]);
            }
        }
        out[i] = packed(sum);
        store16(own + (u64)old * stride + i, clear);
    }
    __syncthreads();
    if (threadIdx.x == 0) calls[blockIdx.x] = call + 1;
}

// Pull behind a flag barrier: stages its tensor, flags the peers block by block, loads from them. stages[r] is
// [2 buffers][stride packets], flags[r] is [blocks][n senders] words that rank r polls.
extern "C" __global__ void oneshot_pull(const u64* stages, const u64* flags, const uint4* in, uint4* out, u32 packets,
                                        u32 stride, u32 rank, u32 n, u32* calls, u64 limit_ns, u32* error) {
    __shared__ u32 shared_call;
    if (threadIdx.x == 0) shared_call = calls[blockIdx.x];
    __syncthreads();
    u32 call = shared_call, set = call & 1u;
    u32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    u64 entered = now_ns();
    if (load_u32(error)) limit_ns = 0;  // lost already: do not wait again
    uint4* own = (uint4*)stages[rank] + (u64)set * stride;
    for (u32 i = first; i < packets; i += step) store16(own + i, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) __threadfence_system();
    __syncthreads();
    u32 peer = threadIdx.x;
    if (peer < n && peer != rank) {
        store_release((u32*)flags[peer] + blockIdx.x * n + rank, call + 1);
        u32 polls = 0;
        const u32* mine = (const u32*)flags[rank] + blockIdx.x * n + peer;
        while ((int)(load_acquire(mine) - (call + 1)) < 0)
            if ((++polls & 1023u) == 0 && now_ns() - entered > limit_ns) {
                *error = 1;
                break;
            }
    }
    __syncthreads();
    for (u32 i = first; i < packets; i += step) {
        Sum sum = {};
        uint4 got[8];
#pragma unroll
        for (u32 r = 0; r < 8; r++)
            if (r < n) got[r] = r == rank ? in[i] : load16((const uint4*)stages[r] + (u64)set * stride + i);
#pragma unroll
        for (u32 r = 0; r < 8; r++)
            if (r < n) add(sum, got[r]);
        out[i] = packed(sum);
    }
    __syncthreads();
    if (threadIdx.x == 0) calls[blockIdx.x] = call + 1;
}
